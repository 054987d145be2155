/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a simulated run are counted for the right period, and their time and energy is their
 * median. */
#include "test.h"

#include <math.h>

#include "sim/sim.h"

enum { RANKS = 2 };

typedef struct world {
    harpe_sim_board *board;
    harpe_sim_run run;
} world;

static int open_world(void **state) {
    world *w = calloc(1, sizeof *w);
    if (!w) return -1;
    w->board = calloc(1, harpe_sim_board_size(RANKS, 0));
    if (!w->board) return -1;
    w->board->world_size = RANKS;
    w->board->turns_step = -1;
    w->run.board = w->board;
    w->run.story = (harpe_sim_story){.straggler_step = -1, .answered_step = -1};
    *state = w;
    return 0;
}

static int close_world(void **state) {
    world *w = *state;
    free(w->board);
    free(w);
    return 0;
}

/* The next step: each rank draws half of the energy and writes one clock. */
static void fill(harpe_sim_step *ranks, int64_t time_ns, double energy_j, int64_t round_of_0,
                 int64_t round_of_1) {
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (harpe_sim_step){.begin_ns = 1000,
                                    .end_ns = 1000 + time_ns,
                                    .energy_j = energy_j / RANKS,
                                    .round = r == 0 ? round_of_0 : round_of_1,
                                    .clock_writes = 1};
    }
}

static void add(world *w, int64_t time_ns, double energy_j, int64_t round_of_0,
                int64_t round_of_1) {
    fill(harpe_sim_step_at(w->board, w->run.story.step_count++), time_ns, energy_j, round_of_0,
         round_of_1);
}

static void add_baseline(world *w, double energy_j) {
    fill(harpe_sim_baseline_at(w->board, w->board->baseline_count++), 100, energy_j, -1, -1);
}

static void change(world *w, int64_t round, bool is_learned) {
    w->run.story.changes[w->run.story.change_count++] = (harpe_sim_change){round, is_learned};
}

static harpe_sim_summary sum_up(const world *w) {
    harpe_sim_summary sums;
    harpe_error error;
    assert_int_equal(harpe_sim_summary_make(&w->run, &sums, &error), HARPE_OK);
    return sums;
}

static void assert_counts(const harpe_sim_summary *sums, const int *expected) {
    for (int k = 0; k < HARPE_SIM_KINDS; k++)
        assert_int_equal(sums->kinds[k].steps, expected[k]);
}

#define FIXTURE_TEST(name) TEST_ON(name, world *w, open_world, close_world)

FIXTURE_TEST(run_without_steps_is_empty) {
    harpe_sim_summary sums = sum_up(w);
    assert_counts(&sums, (int[HARPE_SIM_KINDS]){0});
    for (int k = 0; k < HARPE_SIM_KINDS; k++) {
        assert_true(sums.kinds[k].time_s == 0 && sums.kinds[k].energy_j == 0);
        assert_int_equal(sums.kinds[k].last_round, -1);
    }
    harpe_sim_summary_free(&sums);
}

FIXTURE_TEST(steps_are_sorted_by_what_ran) {
    for (int i = 0; i < HARPE_SIM_WARM_UP_STEPS; i++)
        add(w, 100, 10, -1, -1);
    add(w, 100, 10, -1, -1); /* no schedule */
    add(w, 100, 10, 0, -1);  /* not on every rank */
    add(w, 100, 10, 0, 0);
    add(w, 100, 10, 1, 1);
    add(w, 100, 10, 2, 1); /* still the earlier round on one rank */
    add(w, 100, 10, 2, 2);
    add(w, 100, 10, 3, 4);
    change(w, 2, true);
    w->run.story.straggler_step = w->run.story.step_count;
    add(w, 100, 10, 4, 4);
    add(w, 100, 10, 5, 4);
    w->run.story.answered_step = w->run.story.step_count;
    w->run.story.straggler_round = 5;
    add(w, 100, 10, 5, 5);
    harpe_sim_summary sums = sum_up(w);
    assert_counts(&sums, (int[HARPE_SIM_KINDS]){0, 2, 3, 2, 2, 1});
    assert_int_equal(sums.kinds[HARPE_SIM_PLANNED].first_round, 2);
    assert_int_equal(sums.kinds[HARPE_SIM_PLANNED].last_round, 3);
    assert_int_equal(sums.kinds[HARPE_SIM_ANSWERED].first_round, 5);
    harpe_sim_summary_free(&sums);
}

/* After a drift the server measures again, and later it plans again. */
FIXTURE_TEST(plans_that_were_thrown_away_are_learnt_again) {
    for (int i = 0; i < HARPE_SIM_WARM_UP_STEPS; i++)
        add(w, 100, 10, -1, -1);
    for (int round = 0; round < 10; round++)
        add(w, 100, 10, round, round);
    change(w, 0, false);
    change(w, 2, true);
    change(w, 5, false);
    change(w, 9, true);
    harpe_sim_summary sums = sum_up(w);
    assert_counts(&sums, (int[HARPE_SIM_KINDS]){0, 0, 6, 4, 0, 0});
    harpe_sim_summary_free(&sums);
}

/* Without an answer, no step of a straggler belongs to its plan. */
FIXTURE_TEST(straggler_without_an_answer_runs_the_old_plan) {
    for (int i = 0; i < 6; i++)
        add(w, 100, 10, 9, 9);
    change(w, 0, true);
    w->run.story.straggler_step = 4;
    harpe_sim_summary sums = sum_up(w);
    assert_counts(&sums, (int[HARPE_SIM_KINDS]){0, 0, 0, 1, 2, 0});
    harpe_sim_summary_free(&sums);
}

FIXTURE_TEST(what_a_step_takes_is_the_median) {
    const int64_t times_ns[] = {1000, 7000, 2000, 900000, 3000}; /* one stall */
    for (int i = 0; i < HARPE_SIM_WARM_UP_STEPS; i++)
        add(w, 1, 1, -1, -1);
    for (int i = 0; i < 5; i++)
        add(w, times_ns[i], (double)times_ns[i] / 100, 0, 0);
    harpe_sim_summary sums = sum_up(w);
    const harpe_sim_stretch *learning = &sums.kinds[HARPE_SIM_LEARNING];
    assert_int_equal(learning->steps, 5);
    assert_float_equal((float)(learning->time_s * 1e9), 3000.0F, 0.01);
    assert_float_equal((float)learning->energy_j, 30.0F, 1e-4);
    assert_float_equal((float)(learning->total_s * 1e9), 913000.0F, 1);
    assert_float_equal((float)learning->clock_writes, 10.0F, 0);
    harpe_sim_summary_free(&sums);

    add(w, 4000, 40, 0, 0); /* for an even number: the mean of the two in the middle */
    sums = sum_up(w);
    assert_float_equal((float)(sums.kinds[HARPE_SIM_LEARNING].time_s * 1e9), 3500.0F, 0.01);
    harpe_sim_summary_free(&sums);
}

FIXTURE_TEST(step_that_a_rank_did_not_finish_is_left_out) {
    for (int i = 0; i < HARPE_SIM_WARM_UP_STEPS + 2; i++)
        add(w, 100, 10, 0, 0);
    harpe_sim_step_at(w->board, HARPE_SIM_WARM_UP_STEPS)[1].end_ns = 0;
    harpe_sim_summary sums = sum_up(w);
    assert_int_equal(sums.kinds[HARPE_SIM_LEARNING].steps, 1);
    harpe_sim_summary_free(&sums);
}

/* A GPU warms up, so each step needs more energy than the step before. The plan changes nothing.
 * The medians of the baseline and of the plan are nevertheless equal. */
FIXTURE_TEST(baseline_is_measured_in_turns) {
    for (int i = 0; i < HARPE_SIM_WARM_UP_STEPS; i++)
        add(w, 100, 1, -1, -1);
    change(w, 0, true);
    add(w, 100, 2, 0, 0); /* the plan, before the first step of the baseline */
    w->board->turns_step = w->run.story.step_count;
    for (int i = 0; i < 3; i++) {
        add_baseline(w, 10 + 2 * i);
        add(w, 100, 11 + 2 * i, 0, 0);
    }
    add_baseline(w, 16);
    harpe_sim_summary sums = sum_up(w);
    assert_counts(&sums, (int[HARPE_SIM_KINDS]){4, 0, 0, 3, 0, 0});
    assert_float_equal(sums.kinds[HARPE_SIM_HIGHEST_CLOCKS].energy_j, 13, 1e-9);
    assert_float_equal(sums.kinds[HARPE_SIM_PLANNED].energy_j, 13, 1e-9);
    assert_true(harpe_sim_summary_uncertainty(&sums, HARPE_SIM_PLANNED) > 1);
    assert_true(isinf(harpe_sim_summary_uncertainty(&sums, HARPE_SIM_LEARNING)));
    harpe_sim_summary_free(&sums);
}

FIXTURE_TEST(equal_steps_have_no_uncertainty) {
    change(w, 0, true);
    for (int i = 0; i < HARPE_SIM_WARM_UP_STEPS + 3; i++)
        add(w, 100, 9, 0, 0);
    add_baseline(w, 10);
    harpe_sim_summary sums = sum_up(w);
    assert_true(isinf(harpe_sim_summary_uncertainty(&sums, HARPE_SIM_PLANNED)));
    harpe_sim_summary_free(&sums);
    add_baseline(w, 10);
    sums = sum_up(w);
    assert_true(harpe_sim_summary_uncertainty(&sums, HARPE_SIM_PLANNED) == 0);
    harpe_sim_summary_free(&sums);
}
