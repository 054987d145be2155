/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines whose stages have several GPUs. A stage of eight equal GPUs is planned like a stage of
 * one GPU with eight times the energy. Stages of any sizes agree with an LP that itself adds up the
 * waiting GPUs. */
#include "test.h"

#include "base/text.h"
#include "instances.h"
#include "plan/profiles.h"

#include "relaxation_lp.h"

typedef enum told_by { TOLD_BY_RANK, TOLD_BY_GPUS, TOLD_BY_OPTION, TOLD_WAYS } told_by;

/* Returns the rows for `gpus` equal GPUs per stage, in one of the possible forms. */
static test_rows on_several_gpus(const test_rows *rows, int gpus, told_by way) {
    test_rows several = {0};
    int copies = way == TOLD_BY_RANK ? gpus : 1;
    for (size_t i = 0; i < rows->count; i++) {
        const harpe_measurement *row = &rows->rows[i];
        for (int g = 0; g < copies; g++) {
            add_row(&several, row->stage, row->instruction, row->frequency_mhz, row->time_s,
                    copies == 1 ? gpus * row->energy_j : row->energy_j);
            harpe_measurement *added = &several.rows[several.count - 1];
            if (way == TOLD_BY_RANK) added->rank = row->stage * gpus + g;
            if (way == TOLD_BY_GPUS) added->gpu_count = gpus;
        }
    }
    return several;
}

static harpe_problem *problem_on(const test_rows *rows, const harpe_schedule_options *how,
                                 double blocking_w, int gpus_per_stage) {
    owned_schedule schedule = schedule_of(how);
    owned_profile profile = profile_of(rows);
    return problem_of(profile, schedule,
                      &(harpe_problem_options){
                          .blocking_power_w = &blocking_w,
                          .blocking_power_count = 1,
                          .gpus_per_stage = gpus_per_stage,
                      });
}

/* Sums of thousands of doubles, and slopes in whole microwatts. */
#define ALIKE 1e-6

static void assert_several_times(const harpe_problem *one, const harpe_problem *several, int gpus) {
    size_t one_count = 0, several_count = 0;
    owned_frontier of_one = frontier_of(one);
    owned_frontier of_several = frontier_of(several);
    const harpe_frontier_vertex *v = harpe_frontier_vertices(of_one, &one_count);
    const harpe_frontier_vertex *w = harpe_frontier_vertices(of_several, &several_count);
    assert_true(v[0].time_s == w[0].time_s);                             /* T_min */
    assert_true(v[one_count - 1].time_s == w[several_count - 1].time_s); /* T* */
    for (size_t i = 0; i < one_count; i++) {
        assert_near(harpe_frontier_bound_at(of_several, v[i].time_s), gpus * v[i].lower_bound_j,
                    ALIKE);
    }
    harpe_plan a = maximum_of(one), b = maximum_of(several);
    assert_true(a.time_s == b.time_s);
    assert_near(b.energy_j, gpus * a.energy_j, ALIKE);
    assert_near(b.blocking_energy_j, gpus * a.blocking_energy_j, ALIKE);
    assert_near(b.average_power_w, a.average_power_w, ALIKE);
}

/* The measured character, because in profiles with ties two vertices near T* can differ by a
 * microwatt only. */
TEST(equal_gpus_change_nothing_but_the_energy) {
    test_random random = {11};
    const char *name;
    for (int k = 0; (name = harpe_schedule_name_at(k)); k++) {
        for (int gpus = 1; gpus <= 8; gpus += gpus == 1 ? 2 : 5) {
            harpe_schedule_options how = shape_for(name, random_int(&random, 1, 4), 4);
            owned_schedule schedule = schedule_of(&how);
            test_profile_shape shape = {.fewest_options = 3, .most_options = 12};
            owned_rows rows = make_rows(schedule, &shape, &random);
            owned_problem one = problem_on(&rows, &how, 80, 0);
            for (told_by way = 0; way < TOLD_WAYS; way++) {
                owned_rows more = on_several_gpus(&rows, gpus, way);
                owned_problem several =
                    problem_on(&more, &how, 80, way == TOLD_BY_OPTION ? gpus : 0);
                assert_int_equal(harpe_problem_total_gpu_count(several), gpus * how.ranks);
                assert_int_equal(harpe_problem_gpu_count(several, 0), gpus);
                assert_several_times(one, several, gpus);
            }
        }
    }
}

#ifdef HARPE_HAVE_CLP

/* Stages have different numbers of GPUs. This file gives the LP the sum of their blocking powers.
 */
TEST(different_gpus_match_an_lp) {
    test_random random = {12};
    for (int trial = 0; trial < test_trials(20); trial++) {
        int gpus[3];
        double blocking_w = random_between(&random, 0, 200), total_w = 0;
        harpe_schedule_options how = {.ranks = 3, .microbatches = random_int(&random, 1, 4)};
        owned_schedule schedule = schedule_of(&how);
        test_profile_shape shape = {.fewest_options = 2, .most_options = 6};
        owned_rows rows = make_rows(schedule, &shape, &random);
        for (int s = 0; s < 3; s++) {
            gpus[s] = random_int(&random, 1, 16);
            total_w += gpus[s] * blocking_w;
        }
        for (size_t i = 0; i < rows.count; i++) {
            rows.rows[i].gpu_count = gpus[rows.rows[i].stage];
            rows.rows[i].energy_j *= gpus[rows.rows[i].stage];
        }
        owned_problem problem = problem_on(&rows, &how, blocking_w, 0);
        owned_relaxation r = relaxation_of(problem);
        r.blocking_power_w = total_w;
        for (int i = 0; i < r.instruction_count; i++) {
            const harpe_option_list *list = r.list_of[i];
            for (size_t k = 0; k < list->option_count; k++) {
                double waiting_j = gpus[list->stage] * blocking_w * list->options[k].time_s;
                assert_near(list->options[k].effective_energy_j + waiting_j,
                            list->options[k].energy_j, 1e-9);
            }
        }
        owned_relaxation_lp lp = relaxation_lp_new(&r);
        owned_frontier frontier = frontier_of(problem);
        assert_bound_is_optimum(frontier, &lp, 4, &random, 0);
    }
}

#endif

/* ---- Input and output ------------------------------------------------------------------------ */

static harpe_profile *parse(const char *text) {
    harpe_profile *profile = NULL;
    assert_works(harpe_profile_parse_csv(text, strlen(text), "p.csv", &profile, &failure));
    return profile;
}

TEST(an_aggregated_profile_keeps_its_gpus) {
    owned_profile profile = parse("rank,stage,instruction,frequency,time,energy\n"
                                  "0,0,forward,1410,1,10\n1,0,forward,1410,1,12\n"
                                  "2,1,forward,1410,1,10\n");
    assert_int_equal(harpe_profile_gpu_count(profile, 0), 2);
    assert_int_equal(harpe_profile_gpu_count(profile, 1), 1);
    assert_int_equal(harpe_profile_gpu_count(profile, 2), 0);
    assert_int_equal(harpe_profile_gpu_count(profile, -1), 0);
    owned_text text = {0};
    harpe_profile_print_csv(profile, &text);
    assert_string_equal(text.data, "stage,instruction,frequency,time,energy,gpus\n"
                                   "0,forward,1410,1,22,2\n1,forward,1410,1,10,1\n");
    owned_profile again = parse(text.data);
    assert_int_equal(harpe_profile_gpu_count(again, 0), 2);
    assert_int_equal(harpe_profile_gpu_count(again, 1), 1);
}

TEST(ranks_may_be_several_gpus_themselves) {
    owned_profile profile = parse("rank,stage,instruction,frequency,time,energy,gpus\n"
                                  "0,0,forward,1410,1,10,4\n1,0,forward,1410,1,12,2\n"
                                  "0,0,backward,1410,1,10,4\n1,0,backward,1410,1,12,2\n");
    assert_int_equal(harpe_profile_gpu_count(profile, 0), 6);
}

static void assert_refused(const char *text, const char *expected) {
    harpe_profile *profile = NULL;
    assert_refuses(harpe_profile_parse_csv(text, strlen(text), "p.csv", &profile, &failure),
                   HARPE_INVALID_INPUT, expected);
    assert_null(profile);
}

TEST(contradicting_gpus_are_refused) {
#define GPUS_HEADER "stage,instruction,frequency,time,energy,gpus\n"
    assert_refused(GPUS_HEADER "0,forward,1410,1,10,4\n0,forward,1395,1,10,4\n"
                               "0,backward,1410,1,10,8\n",
                   "p.csv:4:1: gpus is 8, but 4 for stage 0 in line 2");
    assert_refused(GPUS_HEADER "0,forward,1410,1,10,0\n",
                   "p.csv:2:21: gpus must be a whole number from 1 to 65536 (found '0')");
    assert_refused(GPUS_HEADER "0,forward,1410,1,10,\n", "p.csv:2:21: gpus must be");
    assert_refused(GPUS_HEADER "0,forward,1410,1,10,1.5\n", "p.csv:2:21: gpus must be");
}

static void assert_problem_refused(const char *csv, const harpe_schedule_options *how, int gpus,
                                   const char *expected) {
    owned_profile profile = parse(csv);
    owned_schedule schedule = schedule_of(how);
    harpe_problem *problem = NULL;
    harpe_status status = harpe_problem_new(
        profile, schedule, &(harpe_problem_options){.gpus_per_stage = gpus}, &problem, &failure);
    assert_int_not_equal(status, HARPE_OK);
    assert_says(&failure, expected);
    assert_null(problem);
}

TEST(gpus_that_do_not_fit_the_problem_are_refused) {
    const harpe_schedule_options one = {.ranks = 1, .microbatches = 1};
    const char *four = GPUS_HEADER "0,forward,1410,1,10,4\n0,backward,1410,1,10,4\n";
    assert_problem_refused(four, &one, 8,
                           "8 GPUs per stage are given, but stage 0 of the profile has 4");
    assert_problem_refused(four, &one, -1, "GPUs per stage must be 1 to 65536");
    assert_problem_refused(four, &one, 65537, "GPUs per stage must be 1 to 65536");
    /* Two stages on one rank. */
    const harpe_schedule_options two = {.name = "zb-v", .ranks = 1, .microbatches = 1};
    owned_text csv = {0};
    harpe_text_printf(&csv, GPUS_HEADER);
    for (int stage = 0; stage < 2; stage++) {
        static const char *const names[] = {"forward", "backward", "backward_input",
                                            "backward_weight"};
        for (int i = 0; i < 4; i++)
            harpe_text_printf(&csv, "%d,%s,1410,1,10,%d\n", stage, names[i], 2 + stage);
    }
    assert_problem_refused(csv.data, &two, 0, "stages that share a rank run on the same GPUs");
}
