/* SPDX-License-Identifier: Apache-2.0 */
/* The combination of profile and schedule to a problem: lists, names, options, blocking powers,
 * overlapped pairs, and every mismatch between the two. Solves nothing. */
#include "test.h"

#include "instances.h"
#include "plan/problem.h"

static void assert_refused(const harpe_profile *profile, const harpe_schedule *schedule,
                           const harpe_problem_options *options, harpe_status status,
                           const char *expected) {
    harpe_problem *problem = NULL;
    assert_refuses(harpe_problem_new(profile, schedule, options, &problem, &failure), status,
                   expected);
    assert_null(problem);
    assert_int_equal(harpe_problem_new(profile, schedule, options, &problem, NULL), status);
}

/* Creates two options for each instruction. Stage s is slower than stage s - 1. */
static harpe_profile *plain_profile(int stages) {
    owned_rows rows = {0};
    for (int s = 0; s < stages; s++) {
        add_row(&rows, s, "backward", 900, 0.3 + s, 20);
        add_row(&rows, s, "backward", 1400, 0.2 + s, 30);
        add_row(&rows, s, "forward", 900, 0.15 + s, 10);
        add_row(&rows, s, "forward", 1400, 0.1 + s, 15);
    }
    return profile_of(&rows);
}

/* ---- Lists ----------------------------------------------------------------------------------- */

TEST(lists_are_the_schedules) {
    owned_schedule schedule = schedule_1f1b(3, 4);
    owned_profile profile = plain_profile(3);
    owned_problem problem = problem_of(profile, schedule, NULL);
    assert_int_equal(harpe_problem_rank_count(problem), 3);
    assert_int_equal(harpe_problem_instruction_count(problem), 24);
    for (int r = 0; r < 3; r++) {
        size_t count = 0;
        const harpe_instruction *list = harpe_schedule_rank(schedule, r, &count);
        assert_int_equal(harpe_problem_rank_length(problem, r), count);
        for (size_t i = 0; i < count; i++)
            assert_string_equal(harpe_problem_instruction_name(problem, r, i), list[i].name);
        assert_null(harpe_problem_instruction_name(problem, r, count));
    }
    assert_int_equal(harpe_problem_option_list_count(problem), 6);
    assert_null(harpe_problem_option_list_at(problem, 6));
    assert_int_equal(harpe_problem_rank_length(problem, -1), 0);
    assert_int_equal(harpe_problem_rank_length(problem, 3), 0);
    assert_null(harpe_problem_instruction_name(problem, 3, 0));
    assert_null(harpe_problem_instruction_name(problem, -1, 0));
}

/* With DualPipe, both ranks of a stage have choices of their own, because their blocking powers
 * differ. An option that waits at 80 W may be better than another, and at 300 W worse. */
TEST(two_ranks_of_a_stage_have_their_own_choices) {
    owned_schedule schedule =
        schedule_of(&(harpe_schedule_options){.name = "dualpipe", .ranks = 4, .microbatches = 8});
    owned_rows rows = {0};
    for (int s = 0; s < 4; s++) {
        static const char *const names[] = {"forward", "backward", "backward_input",
                                            "backward_weight", "overlap_f_b"};
        for (int n = 0; n < 5; n++) {
            add_row(&rows, s, names[n], 900, 0.3, 30);
            add_row(&rows, s, names[n], 1400, 0.2, 50);
        }
    }
    owned_profile profile = profile_of(&rows);
    const double watts[] = {10, 20, 30, 300};
    harpe_problem_options options = {.blocking_power_w = watts, .blocking_power_count = 4};
    owned_problem problem = problem_of(profile, schedule, &options);
    for (int r = 0; r < 4; r++) {
        size_t count = 0;
        const harpe_instruction *list = harpe_schedule_rank(schedule, r, &count);
        for (size_t i = 0; i < count; i++) {
            const harpe_choice *choice =
                harpe_problem_choice(problem, (int32_t)(problem->rank_offset[r] + i));
            assert_int_equal(choice->list.rank, r);
            assert_int_equal(choice->list.stage, list[i].actions[0].stage);
            assert_string_equal(choice->list.instruction, list[i].name);
            assert_true(choice->blocking_power_w == watts[r]);
            /* At 300 W the slower option costs 20 J less, and 30 J of waiting that it saves more.
             */
            assert_int_equal(choice->list.option_count, 2);
            double saved_j = choice->list.options[0].effective_energy_j -
                             choice->list.options[1].effective_energy_j;
            assert_true(saved_j > 20 + 0.0999 * watts[r] && saved_j < 20 + 0.1001 * watts[r]);
        }
    }
    assert_int_equal(problem->choice_count, harpe_problem_option_list_count(problem));
    assert_in_range(problem->choice_count, 4 * 2 * 4, 4 * 2 * 5);
}

/* Powers of the options win over those of the profile. */
TEST(blocking_powers_may_be_in_the_profile) {
    owned_schedule schedule =
        schedule_of(&(harpe_schedule_options){.name = "zb-v", .ranks = 2, .microbatches = 4});
    harpe_measurement rows[12];
    static const char *const names[] = {"forward", "backward_input", "backward_weight"};
    for (int i = 0; i < 12; i++)
        rows[i] = (harpe_measurement){.stage = i / 3,
                                      .rank = -1,
                                      .instruction = names[i % 3],
                                      .frequency_mhz = 1400,
                                      .time_s = 0.1,
                                      .energy_j = 20,
                                      .gpu_count = 2,
                                      .blocking_power_w = i / 3 == 0 || i / 3 == 3 ? 50 : 70};
    owned_profile profile = NULL;
    assert_works(harpe_profile_new(rows, 12, &profile, &failure));
    owned_problem problem = problem_of(profile, schedule, NULL);
    assert_true(harpe_problem_blocking_power_w(problem, 0) == 100); /* stages 0 and 3, 2 GPUs */
    assert_true(harpe_problem_blocking_power_w(problem, 1) == 140);
    assert_true(harpe_problem_blocking_power_w(problem, 2) == 0);
    harpe_problem_free(problem);
    const double watts = 30;
    harpe_problem_options options = {.blocking_power_w = &watts, .blocking_power_count = 1};
    problem = problem_of(profile, schedule, &options);
    assert_true(harpe_problem_blocking_power_w(problem, 0) == 60);
    harpe_profile_free(profile);
    for (int i = 9; i < 12; i++)
        rows[i].blocking_power_w = 0;
    assert_works(harpe_profile_new(rows, 12, &profile, &failure));
    assert_refused(profile, schedule, NULL, HARPE_INVALID_INPUT, "share a rank");
}

/* What waits for a pair that is split waits for its second half, and its first half waits. */
TEST(waits_follow_the_halves_of_a_pair) {
    const char *text = "0F0,BARRIER,(0F1;0B0)OVERLAP_F_B,BARRIER,0B1\n"
                       "1F0,1B0,BARRIER,BARRIER,1F1,1B1\n";
    owned_schedule schedule = NULL;
    assert_works(harpe_schedule_parse_csv(text, strlen(text), "s.csv", &schedule, &failure));
    owned_profile profile = plain_profile(2);
    owned_problem problem = problem_of(profile, schedule, NULL);
    /* 0F0 0F1 0B0 0B1 are 0 to 3, and 1F0 1B0 1F1 1B1 are 4 to 7. */
    static const int expected[][2] = {{5, 1}, {5, 3}, {2, 6}};
    for (size_t w = 0; w < 3; w++) {
        bool is_there = false;
        for (int32_t a = 0; a < problem->dag.arc_count; a++)
            is_there = is_there || (problem->dag.arc_from[a] == expected[w][0] &&
                                    problem->dag.arc_to[a] == expected[w][1]);
        assert_true(is_there);
    }
}

TEST(problem_outlives_profile_and_schedule) {
    owned_schedule schedule = schedule_1f1b(2, 2);
    owned_profile profile = plain_profile(2);
    owned_problem problem = problem_of(profile, schedule, NULL);
    assert_string_equal(harpe_problem_instruction_name(problem, 1, 1), "backward");
    owned_frontier frontier = frontier_of(problem);
    (void)maximum_of(problem);
    harpe_problem_free(NULL);
}

/* Stages and names that the schedule does not use have no effect. */
/* If the profile has more stages than planned, the last stage would be a different one. */
TEST(profile_and_schedule_have_the_same_stages) {
    static const struct {
        int profile, schedule;
        const char *expected;
    } trials[] = {
        {8, 4, "the profile has 8 stages, but the schedule (1f1b, 4 ranks) has 4: make the"},
        {4, 8, "the profile has 4 stages, but the schedule (1f1b, 8 ranks) has 8: profile the"},
        {1, 2, "the profile has 1 stage, but the schedule (1f1b, 2 ranks) has 2: "},
        {2, 1, "the profile has 2 stages, but the schedule (1f1b, 1 rank) has 1: "},
    };
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
        owned_schedule schedule = schedule_1f1b(trials[i].schedule, 2);
        owned_profile profile = plain_profile(trials[i].profile);
        harpe_problem *problem = NULL;
        assert_int_equal(harpe_problem_new(profile, schedule, NULL, &problem, &failure),
                         HARPE_INVALID_INPUT);
        if (strncmp(failure.message, trials[i].expected, strlen(trials[i].expected)) != 0)
            fail_msg("expected '%s', got '%s'", trials[i].expected, failure.message);
        assert_null(problem);
    }
}

/* ---- Options --------------------------------------------------------------------------------- */

static void assert_good_list(const harpe_option_list *list, double blocking_w) {
    assert_true(list->option_count >= 1 && list->curve_count >= 1);
    size_t corner = 0;
    for (size_t i = 0; i < list->option_count; i++) {
        const harpe_option *option = &list->options[i];
        assert_near(option->effective_energy_j, option->energy_j - blocking_w * option->time_s,
                    1e-12);
        if (i > 0) {
            assert_true(option->time_s > option[-1].time_s);
            assert_true(option->effective_energy_j < option[-1].effective_energy_j);
        }
        if (!option->is_on_hull) continue;
        assert_true(corner < list->curve_count);
        assert_true(list->curve_time_s[corner] == option->time_s);
        assert_true(list->curve_effective_energy_j[corner] == option->effective_energy_j);
        corner++;
    }
    assert_int_equal(corner, list->curve_count);
}

TEST(blocking_power_decides_which_options_are_worth_having) {
    owned_rows rows = {0};
    add_row(&rows, 0, "forward", 1400, 1, 300);
    /* needs more energy, but saves the waiting of the 2nd */
    add_row(&rows, 0, "forward", 1000, 2, 350);
    add_row(&rows, 0, "backward", 1400, 1, 300);
    static const harpe_schedule_options options = {.ranks = 1, .microbatches = 1};
    for (int watts = 0; watts <= 100; watts += 100) {
        owned_problem problem = problem_from_rows(&rows, &options, watts);
        const harpe_option_list *list = harpe_problem_option_list_at(problem, 0);
        assert_string_equal(list->instruction, "forward");
        assert_int_equal(list->option_count, watts == 0 ? 1 : 2);
    }
}

TEST(single_options_need_no_choice) {
    static const char *const before[] = {"load", NULL}, *const after[] = {"reduce", "step", NULL};
    owned_rows rows = {0};
    for (int s = 0; s < 2; s++) {
        add_row(&rows, s, "forward", 1400, 1, 300);
        add_row(&rows, s, "backward", 1400, 2, 500);
        add_row(&rows, s, "load", 0, 0.5, 20);
        add_row(&rows, s, "reduce", 0, 0.25, 25);
        add_row(&rows, s, "step", 0, 0.125, 30);
    }
    owned_problem problem =
        problem_from_rows(&rows,
                          &(harpe_schedule_options){
                              .ranks = 2, .microbatches = 1, .prologue = before, .epilogue = after},
                          100);
    assert_int_equal(harpe_problem_instruction_count(problem), 10);
    assert_string_equal(harpe_problem_instruction_name(problem, 1, 0), "load");
    assert_string_equal(harpe_problem_instruction_name(problem, 1, 4), "step");
    harpe_plan plan = maximum_of(problem);
    /* load F0 F1 B1 B0 reduce step, one after the other. */
    assert_near(plan.time_s, 0.5 + 1 + 1 + 2 + 2 + 0.25 + 0.125, 1e-12);
    assert_int_equal(plan.frequency_mhz[0], 0);
}

/* ---- Overlapped pairs ------------------------------------------------------------------------ */

static size_t count_named(const harpe_problem *problem, const char *name) {
    size_t found = 0;
    for (int r = 0; r < harpe_problem_rank_count(problem); r++)
        for (size_t i = 0; i < harpe_problem_rank_length(problem, r); i++)
            found += strcmp(harpe_problem_instruction_name(problem, r, i), name) == 0;
    return found;
}

TEST(overlapped_pairs_are_kept_where_they_were_measured_and_split_elsewhere) {
    harpe_schedule_options options = shape_for("dualpipe-v", 2, 6);
    owned_schedule schedule = schedule_of(&options);
    size_t pairs = 0, listed = harpe_schedule_instruction_count(schedule);
    for (int r = 0; r < 2; r++) {
        size_t count = 0;
        const harpe_instruction *list = harpe_schedule_rank(schedule, r, &count);
        for (size_t i = 0; i < count; i++)
            pairs += list[i].action_count == 2;
    }
    assert_true(pairs > 0);
    for (int keeps = 0; keeps <= 1; keeps++) {
        test_random random = {3};
        test_profile_shape shape = {.character = CHARACTER_MEASURED,
                                    .fewest_options = 2,
                                    .most_options = 4,
                                    .keeps_pairs = keeps};
        owned_rows rows = make_rows(schedule, &shape, &random);
        owned_problem problem = problem_from_rows(&rows, &options, 70);
        assert_int_equal(count_named(problem, "overlap_f_b"), keeps ? pairs : 0);
        assert_int_equal(harpe_problem_instruction_count(problem), listed + (keeps ? 0 : pairs));
        owned_frontier frontier = frontier_of(problem);
        assert_works(harpe_frontier_verify(problem, frontier, 0, &failure));
    }
}

/* ---- Mismatches ------------------------------------------------------------------------------ */

TEST(missing_instructions_are_named) {
    owned_profile profile = plain_profile(3);
    owned_schedule gpipe =
        schedule_of(&(harpe_schedule_options){.name = "gpipe", .ranks = 4, .microbatches = 2});
    assert_refused(profile, gpipe, NULL, HARPE_INVALID_INPUT,
                   "the schedule (gpipe, 4 ranks) has 4");
    owned_schedule split =
        schedule_of(&(harpe_schedule_options){.name = "zb-h1", .ranks = 3, .microbatches = 2});
    assert_refused(profile, split, NULL, HARPE_INVALID_INPUT, "'backward_input' for stage 0");
    static const char *const load[] = {"load", NULL};
    owned_schedule loading =
        schedule_of(&(harpe_schedule_options){.ranks = 3, .microbatches = 2, .prologue = load});
    assert_refused(profile, loading, NULL, HARPE_INVALID_INPUT, "'load' for stage 0");
}

TEST(blocking_powers_must_fit_the_ranks_and_be_powers) {
    owned_profile profile = plain_profile(3);
    owned_schedule schedule = schedule_1f1b(3, 2);
    const double four[] = {1, 2, 3, 4};
    assert_refused(profile, schedule,
                   &(harpe_problem_options){.blocking_power_w = four, .blocking_power_count = 4},
                   HARPE_INVALID_ARGUMENT, "4 blocking powers for 3 ranks");
    assert_refused(profile, schedule,
                   &(harpe_problem_options){.blocking_power_w = four, .blocking_power_count = 2},
                   HARPE_INVALID_ARGUMENT, "2 blocking powers for 3 ranks");
    const double wrong[] = {-1, -1e-9, NAN, INFINITY, -INFINITY, 1.01e5};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const double powers[] = {1, 2, wrong[i]};
        harpe_problem_options one = {.blocking_power_w = &wrong[i], .blocking_power_count = 1};
        harpe_problem_options all = {.blocking_power_w = powers, .blocking_power_count = 3};
        assert_refused(profile, schedule, &one, HARPE_INVALID_ARGUMENT, "rank 0");
        assert_refused(profile, schedule, &all, HARPE_INVALID_ARGUMENT, "rank 2");
    }
}

TEST(no_blocking_power_is_none) {
    owned_profile profile = plain_profile(2);
    owned_schedule schedule = schedule_1f1b(2, 2);
    const harpe_problem_options ways[] = {
        {.blocking_power_w = NULL, .blocking_power_count = 1},
        {.blocking_power_w = &(double){0}, .blocking_power_count = 1},
        {.blocking_power_w = &(double){80}, .blocking_power_count = 0},
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        owned_problem problem = problem_of(profile, schedule, &ways[i]);
        harpe_plan plan = maximum_of(problem);
        assert_true(plan.blocking_energy_j == 0);
    }
}

TEST(blocking_power_of_each_rank_is_its_own) {
    owned_profile profile = plain_profile(3);
    owned_schedule schedule = schedule_1f1b(3, 1);
    const double powers[] = {0, 50, 75};
    owned_problem problem =
        problem_of(profile, schedule,
                   &(harpe_problem_options){.blocking_power_w = powers, .blocking_power_count = 3});
    for (size_t i = 0; i < harpe_problem_option_list_count(problem); i++) {
        const harpe_option_list *list = harpe_problem_option_list_at(problem, i);
        assert_good_list(list, powers[list->rank]);
    }
    harpe_plan plan = maximum_of(problem);
    double time_s = (0.1 + 0.2) + (1.1 + 1.2) + (2.1 + 2.2);
    assert_near(plan.time_s, time_s, 1e-12);
    assert_near(plan.blocking_energy_j, 50 * (time_s - 2.3) + 75 * (time_s - 4.3), 1e-12);
}

TEST(memory_limit_is_kept) {
    owned_profile profile = plain_profile(2);
    owned_schedule schedule = schedule_1f1b(2, 10000);
    assert_refused(profile, schedule, &(harpe_problem_options){.memory_limit_bytes = 1 << 20},
                   HARPE_LIMIT_EXCEEDED, "the limit is 1 MiB");
    assert_refused(profile, schedule, &(harpe_problem_options){.memory_limit_bytes = 1},
                   HARPE_LIMIT_EXCEEDED, "fewer microbatches");
    owned_problem problem =
        problem_of(profile, schedule, &(harpe_problem_options){.memory_limit_bytes = 100 << 20});
}

TEST(options_that_make_no_sense_are_refused) {
    static const struct {
        harpe_problem_options options;
        harpe_status status;
        const char *says;
    } cases[] = {
        {{.overhead_power_w = -1}, HARPE_INVALID_ARGUMENT, "overhead power"},
        {{.overhead_power_w = 1.1e9}, HARPE_INVALID_ARGUMENT, "overhead power"},
        {{.overhead_power_w = INFINITY}, HARPE_INVALID_ARGUMENT, "overhead power"},
        {{.overhead_power_w = NAN}, HARPE_INVALID_ARGUMENT, "overhead power"},
        {{.transfer_time_s = -1e-9}, HARPE_INVALID_ARGUMENT, "transfer time"},
        {{.transfer_time_s = 1.1e6}, HARPE_INVALID_ARGUMENT, "transfer time"},
        {{.transfer_time_s = NAN}, HARPE_INVALID_ARGUMENT, "transfer time"},
        {{.transfer_time_s = INFINITY}, HARPE_INVALID_ARGUMENT, "transfer time"},
        {{.cost_model = (harpe_cost_model)2}, HARPE_INVALID_ARGUMENT, "there is no cost model"},
        {{.cost_model = (harpe_cost_model)8}, HARPE_INVALID_ARGUMENT, "there is no cost model"},
#define EXPONENTIAL .cost_model = HARPE_COST_EXPONENTIAL
        {{EXPONENTIAL, .unit_time_s = 1e-12}, HARPE_LIMIT_EXCEEDED, "--unit-time"},
        {{EXPONENTIAL, .unit_time_s = -1}, HARPE_INVALID_ARGUMENT, "unit time"},
        {{EXPONENTIAL, .unit_time_s = NAN}, HARPE_INVALID_ARGUMENT, "unit time"},
        {{EXPONENTIAL, .noise_factor = -0.5}, HARPE_INVALID_ARGUMENT, "noise factor"},
        {{EXPONENTIAL, .noise_factor = NAN}, HARPE_INVALID_ARGUMENT, "noise factor"},
        {{EXPONENTIAL, .noise_factor = 2}, HARPE_INVALID_ARGUMENT, "noise factor"},
    };
    test_random random = {4};
    owned_schedule schedule = schedule_1f1b(1, 1);
    test_profile_shape shape = {
        .character = CHARACTER_MEASURED, .fewest_options = 20, .most_options = 20};
    owned_rows rows = make_rows(schedule, &shape, &random);
    owned_profile profile = profile_of(&rows);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(profile, schedule, &cases[i].options, cases[i].status, cases[i].says);
}
