/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated days: by hand, and the accounts and budgets of random days under all policies. */
#include "test.h"

#include <math.h>

#include "base/error.h"
#include "base/text.h"
#include "fleet/fleet_tools.h"
#include "fleets.h"
#include "plan/instances.h"

typedef harpe_status check_function(harpe_error *error);

static harpe_fleet_file read_file(const char *text) {
    harpe_fleet_file file;
    harpe_error error = {.message = ""};
    assert_ok(harpe_fleet_file_parse(text, strlen(text), "f", &file, &error), error);
    return file;
}

static harpe_fleet_day simulate(const harpe_fleet_file *file, harpe_fleet_policy policy) {
    harpe_fleet_day day = {.jobs = NULL};
    harpe_error error = {.message = ""};
    assert_ok(harpe_fleet_simulate(file, "f", policy, NULL, &day, &error), error);
    return day;
}

static harpe_fleet_day simulate_text(const char *text, harpe_fleet_policy policy) {
    harpe_fleet_file file = read_file(text);
    harpe_fleet_day day = simulate(&file, policy);
    harpe_fleet_file_free(&file);
    return day;
}

/* ---- By hand --------------------------------------------------------------------------------- */

/* Two jobs of 10 GPUs. At 90 % of the time, a gives up 100 W for 1 %, and b for 10 %. */
#define PLANS(cheap) \
    "\"gpus\":10,\"plans\":[{\"time\":1,\"power\":500},{\"time\":" cheap ",\"power\":400}]"
#define TWO_JOBS \
    "\"jobs\":[{\"name\":\"a\",\"priority\":1," PLANS("1.01") "}," \
                                                              "{\"name\":\"b\"," PLANS("1.1") "}]"

TEST(without_a_budget_all_policies_do_the_same) {
    for (int p = 0; p < HARPE_FLEET_POLICY_COUNT; p++) {
        harpe_fleet_day day =
            simulate_text("{" TWO_JOBS ",\"horizon\":7200,\"prices\":[{\"price\":0},"
                          "{\"from\":3600,\"price\":1e-6,\"carbon\":500}]}",
                          (harpe_fleet_policy)p);
        assert_near(day.energy_j, 1000 * 7200.0, 1e-9);
        assert_near(day.cost, 1e-6, 1e-9);
        assert_near(day.carbon_kg, 0.5, 1e-9);
        assert_true(day.weighted_slowdown == 0 && day.breach_count == 0 && day.stopped_s == 0);
        harpe_fleet_day_clear(&day);
    }
}

TEST(the_policies_differ_under_a_budget) {
    const char *text = "{" TWO_JOBS ",\"horizon\":1000,\"budgets\":[{\"watts\":900}]}";
    harpe_fleet_day split = simulate_text(text, HARPE_FLEET_SPLIT);
    assert_near(split.weighted_slowdown, 0.01, 1e-9);
    assert_near(split.lost_s, 1000 - 1000 / 1.01, 1e-9);
    /* The cap is 45 W for each GPU: both jobs run between their plans. */
    harpe_fleet_day cap = simulate_text(text, HARPE_FLEET_UNIFORM_CAP);
    assert_near(cap.weighted_slowdown, 0.005 + 0.05, 1e-6);
    assert_near(cap.energy_j, 900 * 1000.0, 1e-6);
    /* b has the lower priority. */
    harpe_fleet_day stop = simulate_text(text, HARPE_FLEET_STOP_LOWEST);
    assert_true(stop.jobs[0].done_s == 1000 && stop.jobs[1].done_s == 0);
    assert_true(stop.without_work == 1 && stop.stopped_s == 1000);
    assert_near(stop.energy_j, 500 * 1000.0, 1e-9);
    assert_true(split.breach_count + cap.breach_count + stop.breach_count == 0);
    harpe_fleet_day_clear(&split);
    harpe_fleet_day_clear(&cap);
    harpe_fleet_day_clear(&stop);
}

TEST(a_job_ends_with_its_work) {
    harpe_fleet_day day =
        simulate_text("{\"jobs\":[{\"name\":\"a\",\"work\":1000,\"arrival\":10," PLANS(
                          "1.25") "}],"
                                  "\"horizon\":5000,\"budgets\":[{\"watts\":400}]}",
                      HARPE_FLEET_SPLIT);
    /* It arrives when nothing runs, waits for one iteration of reaction, and runs 25 % slower. */
    assert_true(day.jobs[0].is_done);
    assert_near(day.jobs[0].done_s, 1000, 1e-9);
    assert_near(day.jobs[0].here_s, 1250 + day.jobs[0].stopped_s, 1e-9);
    assert_near(day.energy_j, 400 * 1250.0, 1e-9);
    harpe_fleet_day_clear(&day);
}

TEST(an_event_with_notice_breaches_nothing) {
    for (int p = 0; p < HARPE_FLEET_POLICY_COUNT; p++) {
        harpe_fleet_day day = simulate_text(
            "{" TWO_JOBS ",\"horizon\":4000,\"reaction\":20,\"budgets\":[{\"watts\":1000}],"
            "\"events\":[{\"from\":1000,\"duration\":1000,\"share\":0.2,\"notice\":60}]}",
            (harpe_fleet_policy)p);
        assert_int_equal(day.breach_count, 0);
        double reaction_s = 20, lost_w = p == HARPE_FLEET_STOP_LOWEST ? 500 : 200;
        double least_j = 1000 * 4000.0 - lost_w * (1000 + 2 * reaction_s);
        assert_true(day.energy_j >= least_j - 1 && day.energy_j <= least_j + lost_w * reaction_s);
        harpe_fleet_day_clear(&day);
    }
}

TEST(an_event_without_notice_breaches_for_the_reaction) {
    harpe_fleet_day day =
        simulate_text("{" TWO_JOBS ",\"horizon\":4000,\"reaction\":20,"
                      "\"budgets\":[{\"watts\":1500,\"overhead\":1.5}],"
                      "\"events\":[{\"from\":1000,\"duration\":1000,\"watts\":300}]}",
                      HARPE_FLEET_SPLIT);
    assert_int_equal(day.breach_count, 1);
    assert_true(day.breaches[0].group == 0 && day.breaches[0].from_s == 1000);
    assert_near(day.breaches[0].to_s, 1020, 1e-9);
    assert_near(day.breaches[0].worst_w, 300, 1e-9);
    harpe_fleet_day_clear(&day);
}

TEST(a_budget_comes_back_on_a_ramp) {
    const char *text =
        "{\"jobs\":[{\"name\":\"a\",\"plans\":[{\"time\":1,\"power\":1000},"
        "{\"time\":1.1,\"power\":800},{\"time\":1.2,\"power\":600},{\"time\":1.3,\"power\":500}]}],"
        "\"horizon\":4000,\"reaction\":5,\"ramp\":1,\"budgets\":[{\"watts\":1000}],"
        "\"events\":[{\"from\":1000,\"duration\":1000,\"share\":0.5,\"notice\":100}]}";
    harpe_fleet_day day = simulate_text(text, HARPE_FLEET_SPLIT);
    assert_int_equal(day.breach_count, 0);
    double last_w = 0;
    for (size_t i = 0; i < day.sample_count; i++) {
        const harpe_fleet_sample *sample = &day.samples[i];
        if (sample->at_s < 2000) continue;
        assert_true(sample->power_w <= 500 + (sample->at_s - 2000) * 1.0 + 1e-6);
        last_w = sample->power_w;
    }
    assert_near(last_w, 1000, 1e-9);
    harpe_fleet_day_clear(&day);
}

static int checks;

static harpe_status stop_at_third(harpe_error *error) {
    return ++checks < 3 ? HARPE_OK : harpe_fail(error, HARPE_INTERRUPTED, "stopped");
}

TEST(a_simulation_can_be_stopped) {
    harpe_fleet_file file = read_file("{" TWO_JOBS ",\"prices\":[{\"from\":1},{\"from\":2},"
                                      "{\"from\":3},{\"from\":4}]}");
    harpe_fleet_day day = {.jobs = NULL};
    harpe_error error = {.message = ""};
    checks = 0;
    assert_int_equal(
        harpe_fleet_simulate(&file, "f", HARPE_FLEET_SPLIT, stop_at_third, &day, &error),
        HARPE_INTERRUPTED);
    assert_int_equal(checks, 3);
    assert_null(day.jobs);
    harpe_fleet_file_free(&file);
}

/* ---- Random days ----------------------------------------------------------------------------- */

static void write_job(test_random *random, harpe_text *text, int number, bool has_groups,
                      double *least_w) {
    size_t kind = below(random, 6), plans = 1 + below(random, 8);
    double time_s = uniform(random, 0.5, 40), power_w = uniform(random, 100, 5000);
    harpe_text_printf(text, "%s{\"name\":\"j%d\",\"priority\":%zu,\"weight\":%.3f",
                      number > 0 ? "," : "", number, below(random, 3), uniform(random, 0, 3));
    if (has_groups && below(random, 2) == 0)
        harpe_text_printf(text, ",\"group\":\"g%zu\"", below(random, 2));
    /* A load that arrives later cannot wait for others. */
    if (kind == 0) {
        harpe_text_printf(text, ",\"power\":%.3f}", power_w);
        *least_w += power_w;
        return;
    }
    if (below(random, 2) == 0)
        harpe_text_printf(text, ",\"arrival\":%.3f", uniform(random, 0, 3000));
    if (below(random, 3) == 0) harpe_text_printf(text, ",\"end\":%.3f", uniform(random, 3001, 9e3));
    if (below(random, 3) == 0) harpe_text_printf(text, ",\"work\":%.3f", uniform(random, 10, 5e3));
    harpe_text_printf(text, ",\"plans\":[");
    for (size_t k = 0; k < plans; k++) {
        double slowdown = 1 + 0.08 * (double)k;
        harpe_text_printf(text, "%s{\"time\":%.9f,\"power\":%.6f}", k > 0 ? "," : "",
                          time_s * slowdown, power_w / slowdown / slowdown);
    }
    harpe_text_printf(text, "]}");
    double last = 1 + 0.08 * (double)(plans - 1);
    *least_w += power_w / last / last;
}

/* Writes a day on which the budgets can always hold: all events give notice in time. */
static void write_day(test_random *random, harpe_text *text) {
    int jobs = 1 + (int)below(random, 12);
    bool has_groups = below(random, 2) == 0;
    double least_w = 0, overhead = uniform(random, 1, 1.4);
    harpe_text_printf(text, "{\"horizon\":8000,\"reaction\":%.1f,\"jobs\":[",
                      uniform(random, 0, 60));
    for (int j = 0; j < jobs; j++)
        write_job(random, text, j, has_groups, &least_w);
    double watts = least_w * overhead * uniform(random, 1.02, 2);
    harpe_text_printf(text, "],\"budgets\":[{\"watts\":%.3f,\"overhead\":%.6f}", watts, overhead);
    if (has_groups)
        harpe_text_printf(text, ",{\"group\":\"g0\"},{\"group\":\"g1\",\"watts\":%.3f}",
                          least_w * uniform(random, 1.02, 1.5));
    double spare = 1 - least_w * overhead * 1.01 / watts;
    harpe_text_printf(text, "],\"events\":[");
    for (int e = 0; e < 3; e++) {
        /* The events do not overlap, so the shares do not multiply. */
        harpe_text_printf(
            text, "%s{\"from\":%.3f,\"duration\":%.3f,\"share\":%.6f,\"notice\":%.3f}",
            e > 0 ? "," : "", 2000.0 * e + uniform(random, 200, 800), uniform(random, 1, 1000),
            spare * uniform(random, 0, 1), uniform(random, 100, 300));
    }
    harpe_text_printf(text, "]");
    if (below(random, 2) == 0)
        harpe_text_printf(text, ",\"ramp\":%.3f", uniform(random, 0.5, 1000));
    if (below(random, 3) == 0)
        harpe_text_printf(text, ",\"prices\":[{\"price\":0.1},{\"from\":4000,\"price\":0.5}]");
    harpe_text_printf(text, "}");
}

/* Adds up the samples, and checks that they say the same as the jobs. */
static void check_accounts(const harpe_fleet_file *file, const harpe_fleet_day *day, int number) {
    double from_jobs_j = 0, from_samples_j = 0;
    for (size_t j = 0; j < file->job_count; j++) {
        const harpe_fleet_file_job *job = &file->jobs[j];
        const harpe_fleet_job_day *got = &day->jobs[j];
        from_jobs_j += got->energy_j * file->groups[0].budget.overhead;
        double most_s = fmin(job->end_s, file->horizon_s) - job->arrival_s;
        assert_true(got->done_s >= 0 && got->done_s <= got->here_s * (1 + 1e-9));
        assert_true(got->here_s <= fmax(most_s, 0) + 1e-6);
        assert_true(got->done_s <= job->work_s + 1e-3);
        if (!got->is_done) assert_near(got->here_s + 1, fmax(most_s, 0) + 1, 1e-9);
    }
    for (size_t i = 0; i < day->sample_count; i++) {
        bool is_last = i + 1 == day->sample_count;
        double end_s = is_last ? file->horizon_s : day->samples[i + 1].at_s;
        from_samples_j += (end_s - day->samples[i].at_s) * day->samples[i].power_w;
    }
    if (fabs(from_jobs_j - day->energy_j) > 1e-6 * (1 + day->energy_j) ||
        fabs(from_samples_j - day->energy_j) > 1e-6 * (1 + day->energy_j))
        fail_msg("day %d: %.9g J are not %.9g J and %.9g J", number, day->energy_j, from_jobs_j,
                 from_samples_j);
}

TEST(random_days_keep_accounts_and_budgets) {
    for (int i = 0; i < test_trials(1000); i++) {
        test_random random = {(uint64_t)i + 500000};
        harpe_text text = {0};
        write_day(&random, &text);
        harpe_fleet_file file = read_file(text.data);
        for (int p = 0; p < HARPE_FLEET_POLICY_COUNT; p++) {
            harpe_fleet_day day = simulate(&file, (harpe_fleet_policy)p);
            check_accounts(&file, &day, i);
            if (day.breach_count > 0)
                fail_msg("day %d, policy %d: from %.3f s to %.3f s, %.6f W too much: %s", i, p,
                         day.breaches[0].from_s, day.breaches[0].to_s, day.breaches[0].worst_w,
                         text.data);
            harpe_fleet_day_clear(&day);
        }
        harpe_fleet_file_free(&file);
        harpe_text_free(&text);
    }
}
