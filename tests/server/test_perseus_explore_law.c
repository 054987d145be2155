/* SPDX-License-Identifier: Apache-2.0 */
/* Safe exploration of jobs whose times break the law of clocks and times: generated families, and
 * measured profiles. The promise holds, because it rests on what was measured. */
#include "test.h"

#include "plan/instances.h"
#include "server/explored_job.h"
#include "server/scheduler/perseus/explorer_internal.h"

/* Jobs that take long do not learn to the end, if not all trials are made. */
enum { ROUNDS_MAX = 80, FIRST_ROUNDS = 5 };

#define PROMISE 0.01

/* Makes a job of a family: a small one, if not all trials are made. */
static explored_job *job_of(explored_law law, uint64_t seed) {
    if (all_trials()) return explored_under(law, seed, EXPLORED_STAGES_MAX, 24);
    for (;; seed += 100000) {
        explored_job *s = explored_under(law, seed, 2, 4);
        if (s->clock_count >= 10 && s->clock_count <= 25) return s;
        explored_free(s);
    }
}

/* Learns, and returns how much slower the slowest round was. */
static double slowest_of(explored_job *s, int rounds) {
    explored_start(s, 2, "");
    explored_way way = explored_go(s, rounds);
    print_message("%s: %d rounds, slowest %+.2f %%, energy %+.2f %%, plan %+.2f %% time\n",
                  s->words, way.rounds, 100 * way.worst_time, 100 * way.mean_energy,
                  100 * way.plan_time);
    assert_true(way.plan_time <= PROMISE);
    explored_free(s);
    return way.worst_time;
}

/* ---- The promise ----------------------------------------------------------------------------- */

/* Returns the slowest round of the jobs of all families, without noise and with noise. */
static double slowest_of_families(int jobs, bool is_late) {
    double slowest = 0, sum = 0;
    int slow = 0;
    for (int i = 0; i < jobs; i++) {
        uint64_t seed = 1 + (uint64_t)i;
        explored_job *s = job_of(explored_any_law(seed), seed);
        if (i / (EXPLORED_LAWS - 1) % 2 == 0) s->jitter = 0;
        if (is_late) explored_make_wild(s);
        double own = slowest_of(s, ROUNDS_MAX);
        slow += own > PROMISE + 1e-9;
        sum += fmax(own - PROMISE, 0);
        slowest = fmax(slowest, own);
    }
    print_message("%d of %d jobs were slower than promised, by %.2f %% on average\n", slow, jobs,
                  slow > 0 ? 100 * sum / slow : 0);
    return slowest;
}

TEST(jobs_that_break_the_law_are_no_slower_than_promised) {
    int jobs = all_trials() ? test_trials(40) : 2;
    assert_true(slowest_of_families(jobs, false) <= PROMISE + 1e-9);
}

TEST(late_jobs_that_break_the_law_are_no_slower_than_promised) {
    int jobs = all_trials() ? test_trials(10) : 1;
    assert_true(slowest_of_families(jobs, true) <= PROMISE + 1e-9);
}

/* The measured times as they are, and with 1 % variation of each clock. */
TEST(measured_profiles_are_no_slower_than_promised) {
    for (int p = 0; p < (all_trials() ? MEASURED_PROFILE_COUNT : 1); p++) {
        char path[4096];
        find_data(measured_profiles[p], path, sizeof path);
        for (uint64_t seed = all_trials() ? 0 : 1; seed <= (all_trials() ? 4 : 1); seed++) {
            explored_law law = {seed > 0 ? EXPLORED_VARIED : EXPLORED_LAWFUL, 0.01, false};
            explored_job *s =
                explored_measured(path, law, all_trials() ? 24 : 4, MEASURED_BLOCKING_W, 0, seed);
            int rounds = all_trials() ? ROUNDS_MAX : FIRST_ROUNDS;
            assert_true(slowest_of(s, rounds) <= PROMISE + 1e-9);
        }
    }
}

/* ---- What is not measured -------------------------------------------------------------------- */

static size_t entry_of(const explored_job *s, size_t i) {
    const harpe_option_list *list = &harpe_problem_choice(s->problem, (int32_t)i)->list;
    return 2 * (size_t)list->stage + (strcmp(list->instruction, "forward") == 0);
}

/* A clock that was not measured may take any time, so only one run of an iteration has it. */
TEST(a_clock_that_was_not_measured_runs_once) {
    static int runs[2 * EXPLORED_STAGES_MAX][EXPLORED_CLOCKS_MAX];
    static bool has_run[2 * EXPLORED_STAGES_MAX][EXPLORED_CLOCKS_MAX];
    for (uint64_t seed = 1; seed <= (all_trials() ? 8 : 1); seed++) {
        explored_job *s = explored_sized(seed + 4, 5, 6); /* with much slack */
        int tried = 0;
        memset(has_run, 0, sizeof has_run);
        explored_start(s, 2, "");
        for (int round = 0; round < FIRST_ROUNDS && !is_in_phase(s, "plan"); round++) {
            memset(runs, 0, sizeof runs);
            explored_next(s);
            for (size_t i = 0; i < harpe_problem_instruction_count(s->problem); i++) {
                size_t e = entry_of(s, i), c = s->clock_index[i];
                runs[e][c]++;
                tried += c > 0 && !has_run[e][c];
                assert_true(c == 0 || has_run[e][c] || runs[e][c] == 1);
            }
            for (int e = 0; e < 2 * s->pp; e++)
                for (int c = 0; c < s->clock_count; c++)
                    has_run[e][c] |= runs[e][c] > 0;
            explored_observe(s);
        }
        assert_true(tried > 0);
        explored_free(s);
    }
}

/* Returns how much longer than the highest clocks the next round may be, by its bounds. */
static double promised_of(explored_job *s) {
    char *text = simulated_save(s);
    json_t *json = json_loads(text, 0, NULL);
    const json_t *exploration = json_object_get(json, "learnt");
    double fastest_s = json_number_value(json_object_get(exploration, "fastest_s"));
    double promised =
        json_number_value(json_object_get(exploration, "next_promised_s")) / fastest_s - 1;
    json_decref(json);
    free(text);
    return fastest_s > 0 ? promised : 0;
}

/* What the noise hides of the times at the highest clocks is not there for trials. */
TEST(the_promised_time_leaves_room_for_the_uncertainty) {
    for (int i = 0; i < (all_trials() ? test_trials(4) : 1); i++) {
        explored_job *s = job_of((explored_law){0}, (uint64_t)(300 + i));
        double most = 0;
        s->jitter = 0.02;
        s->iterations = 3;
        explored_start(s, 2, "");
        for (int round = 1; round < ROUNDS_MAX && !is_in_phase(s, "plan"); round++) {
            explored_next(s);
            explored_observe(s);
            double error = s->jitter / sqrt(round * s->iterations * s->microbatches);
            double promised = promised_of(s);
            if (promised > 0) most = fmax(most, promised + 2 * error);
        }
        assert_true(most > 0 && most <= PROMISE);
        explored_free(s);
    }
}

/* ---- What is learnt -------------------------------------------------------------------------- */

#define GOAL_ENERGY 0.005

/* Learns without noise. The plan is as fast as the highest clocks, and needs as little energy as
 * the plan that is made from the true times. */
static void learn_like_the_truth(explored_job *s, const char *more) {
    s->jitter = 0;
    explored_start(s, 2, more);
    explored_way way = explored_go(s, ROUNDS_MAX);
    print_message(
        "%s: %d rounds, slowest %+.2f %%, plan %+.3f %% time, %+.2f %% energy (%+.2f %%)\n",
        s->words, way.rounds, 100 * way.worst_time, 100 * way.plan_time, 100 * way.plan_energy,
        100 * way.best_energy);
    assert_true(way.plan_time <= 0.001);
    assert_true(way.plan_energy <= GOAL_ENERGY);
    explored_free(s);
}

/* Each clock of each instruction has its own deviation, as in profiles that were measured. Only
 * trials show the clocks that need less than their neighbours. In so short pipelines, most of these
 * trials do not fit into 1 %. */
TEST(plans_of_rough_profiles_are_as_good_as_those_of_the_truth) {
    int jobs = all_trials() ? test_trials(20) : 3;
    for (int i = 0; i < jobs; i++) {
        explored_law law = {EXPLORED_VARIED, 0.02, false};
        explored_job *s = job_of(law, 700 + (uint64_t)i);
        learn_like_the_truth(s, ", \"exploration_slowdown\": 0.05");
    }
}

/* The only other clock is so far below the highest one that its trials do not fit where there is no
 * slack. Other stages have shown that it costs little. */
TEST(plans_of_two_clocks_are_as_good_as_those_of_the_truth) {
    static const uint64_t seeds[] = {600027, 1400043};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        explored_job *s = explored_random(seeds[i]);
        assert_int_equal(s->clock_count, 2);
        learn_like_the_truth(s, "");
    }
}

/* Some clocks of a measured profile are faster than the highest one. */
TEST(plans_of_measured_profiles_are_as_good_as_those_of_the_truth) {
    for (int p = 0; p < MEASURED_PROFILE_COUNT; p++) {
        char path[4096];
        find_data(measured_profiles[p], path, sizeof path);
        learn_like_the_truth(explored_measured(path, (explored_law){0}, all_trials() ? 24 : 4,
                                               MEASURED_BLOCKING_W, 0, 1),
                             "");
    }
}

/* ---- Curves ---------------------------------------------------------------------------------- */

static void observe(harpe_clock_curve *curve, size_t clock, double time_s) {
    harpe_clock_share share = {clock, 1};
    harpe_clock_curve_observe(curve, &share, 1, time_s, 200 * time_s, 100, 0);
}

/* A time that was measured counts, whatever the law says of it. */
TEST(a_measured_time_counts_more_than_the_law) {
    static const int mhz[] = {1400, 1300, 1200, 1100};
    static const double times_s[][4] = {{1, 1.03, 1.01, 1.3}, {1, 0.98, 1.2, 1.19}};
    for (size_t k = 0; k < 2; k++) {
        harpe_clock_curve curve;
        harpe_clock_estimate known[4];
        assert_true(harpe_clock_curve_init(&curve, mhz, 4));
        for (size_t c = 0; c < 4; c++)
            observe(&curve, c, times_s[k][c]);
        assert_true(harpe_clock_curve_estimate(&curve, 0, 80, known));
        for (size_t c = 0; c < 4; c++) {
            assert_true(fabs(known[c].time_s - times_s[k][c]) <= 5e-4 * times_s[k][c]);
            assert_true(known[c].upper_s >= times_s[k][c]);
            assert_true(known[c].upper_s <= (1 + 5e-4) * fmax(times_s[k][c], 1));
        }
        assert_true(known[0].time_s == 1);
        harpe_clock_curve_free(&curve);
    }
}

int main(void) { return run_listed_tests(); }
