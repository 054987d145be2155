/* SPDX-License-Identifier: Apache-2.0 */
/* The controller on emulated GPUs whose clocks change late, in a world: it learns how
 * long changes take, asks for clocks before their instructions begin, and takes a wrong request
 * back. */
#include "client/controller_world.h"

#include "client/control.h"

#define CALL_S 0.002
#define LATENCY_S 0.03

static const world_machine late = {.gpus = "1xA100",
                                   .physics =
                                       "{\"switch_call_s\": 0.002, \"switch_latency_s\": 0.03}",
                                   .begin = begin,
                                   .end = end};
static const world_machine ideal = {.gpus = "1xA100", .begin = begin, .end = end};

static void start_anticipating(bool may_anticipate) {
    start((harpe_frequency_controller_options){.may_anticipate = may_anticipate,
                                               .minimum_dwell_s = -1});
}

/* ---- The training ---------------------------------------------------------------------------- */

typedef struct planned {
    int mhz;
    double busy_s, wait_s;
} planned;

static const planned with_waits[] = {{1410, 0.05, 0.05}, {705, 0.05, 0.05}, {1095, 0.05, 0.05}};
static const planned without_waits[] = {{1410, 0.06, 0}, {705, 0.06, 0}};

/* Runs a step. Returns the number of instructions that had their clock a millisecond after their
 * begin. */
static int run_step(const planned *plan, uint32_t count, int64_t series) {
    int at_clock = 0;
    for (uint32_t i = 0; i < count; i++) {
        harpe_controller_begin_instruction(controller, plan[i].mhz, series, i);
        pause_s(0.001);
        at_clock += clock_mhz(0) == plan[i].mhz;
        pause_s(plan[i].busy_s * (1 + 0.001 * (double)harpe_world_draw(20)));
        harpe_controller_end_instruction(controller);
        if (plan[i].wait_s > 0) pause_s(plan[i].wait_s);
    }
    return at_clock;
}

/* Runs steps until one has all of its clocks in time. */
static void run_until_in_time(const planned *plan, uint32_t count, int64_t series) {
    int steps = 0;
    while (run_step(plan, count, series) < (int)count)
        assert_true(++steps < 100);
}

static harpe_frequency_controller_anticipation early(void) {
    return harpe_frequency_controller_anticipates(controller);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

WORLD_TEST_OF(clocks_are_there_when_their_instructions_begin, late) {
    start_anticipating(true);
    assert_false(early().is_active);
    run_until_in_time(with_waits, 3, 1);
    assert_true(early().is_active);
    assert_true(early().anticipated >= 3);
    harpe_switch_latency latencies[8];
    size_t count = harpe_frequency_controller_switch_latencies(controller, latencies, 8);
    assert_true(count >= 2 && count <= 3);
    for (size_t i = 0; i < count; i++) {
        assert_true(latencies[i].samples >= 1);
        assert_true(latencies[i].latency_s >= 0.85 * (CALL_S + LATENCY_S));
        assert_true(latencies[i].latency_p95_s >= latencies[i].latency_s);
    }
    assert_int_equal(harpe_frequency_controller_switch_latencies(controller, NULL, 0), count);
    harpe_frequency_controller_counts counts = harpe_frequency_controller_count(controller);
    assert_int_equal(counts.failed, 0);
}

WORLD_TEST_OF(without_anticipation_no_clock_is_early, late) {
    start_anticipating(false);
    (void)run_step(with_waits, 3, 1); /* the controller has set the first clock at its start */
    for (int step = 0; step < 5; step++)
        assert_int_equal(run_step(with_waits, 3, 1), 0);
    assert_false(early().is_active);
    assert_int_equal(early().anticipated, 0);
}

WORLD_TEST_OF(a_gpu_that_obeys_at_once_is_not_anticipated, ideal) {
    start_anticipating(true);
    for (int step = 0; step < 5; step++)
        (void)run_step(with_waits, 3, 1);
    assert_false(early().is_active);
    assert_int_equal(early().anticipated + early().returned, 0);
}

WORLD_TEST_OF(a_stall_takes_an_early_request_back, late) {
    start_anticipating(true);
    run_until_in_time(with_waits, 3, 1); /* it knows the latencies now */
    for (int step = 0; step < 4; step++)
        (void)run_step(without_waits, 2, 2);
    uint64_t returned = early().returned;
    harpe_controller_begin_instruction(controller, 1410, 2, 0);
    WAIT_FOR(early().returned > returned);
    WAIT_FOR(clock_mhz(0) == 1410);
    harpe_controller_end_instruction(controller);
}

WORLD_TEST_OF(an_evaluation_runs_at_the_clocks_that_are_requested, late) {
    start_anticipating(true);
    run_until_in_time(with_waits, 3, 1);
    for (int i = 0; i < 3; i++) {
        int mhz = i == 1 ? 900 : 1410;
        harpe_controller_begin_instruction(controller, mhz, 1, HARPE_POSITION_LOST);
        WAIT_FOR(clock_mhz(0) == mhz);
        uint64_t anticipated = early().anticipated;
        pause_s(0.1);
        assert_int_equal(early().anticipated, anticipated);
        harpe_controller_end_instruction(controller);
    }
    run_until_in_time(with_waits, 3, 1);
}

WORLD_TEST_OF(a_killed_controller_is_replaced_and_learns_again, late) {
    start_anticipating(true);
    run_until_in_time(with_waits, 3, 1);
    harpe_world_kill(find_controller());
    WAIT_FOR(harpe_frequency_controller_has_died(controller));
    (void)run_step(with_waits, 3, 1);
    assert_works(harpe_frequency_controller_restart(controller, &failure));
    run_until_in_time(with_waits, 3, 1);
}
