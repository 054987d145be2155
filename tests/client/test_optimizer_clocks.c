/* SPDX-License-Identifier: Apache-2.0 */
/* The clocks that a rank reports: of rounds with few and with many requests, and of rounds whose
 * requests are not known. */
#include "test.h"

#include <math.h>

#include "client/control.h"
#include "client/optimizer_internal.h"
#include "client/profiler_internal.h"
#include "pfo/rank_clocks.h"

enum { RUNS = 2, STEP_US = 100000, LATENCY_US = 1000 };

/* A rank whose steps have two instructions of 50 ms, at 1400 MHz and at 1000 MHz. */
typedef struct rank {
    harpe_pipeline *optimizer;
    harpe_frequency_controller controller;
    harpe_controller_slot *slot;
    harpe_profiler_spans spans;
    int asked_mhz[RUNS];
    uint64_t steps; /* that have been asked for */
} rank;

static void learn(harpe_switch_table *table, size_t i, uint32_t mhz, uint32_t us) {
    harpe_switch_entry entry = {mhz, 10, us, us};
    atomic_store(&table->word[i], harpe_switch_pack(&entry));
}

static int start(void **state) {
    rank *one = calloc(1, sizeof *one);
    if (!one) return -1;
    *state = one;
    one->optimizer = calloc(1, sizeof *one->optimizer);
    one->slot = aligned_alloc(_Alignof(harpe_controller_slot), sizeof *one->slot);
    if (!one->optimizer || !one->slot) return -1;
    *one->slot = (harpe_controller_slot){0};
    atomic_store(&one->slot->learns_switches, 1);
    learn(&one->slot->switch_table, 0, 1400, LATENCY_US);
    learn(&one->slot->switch_table, 1, 1000, LATENCY_US);
    one->controller.slot = one->slot;
    atomic_store(&one->optimizer->controller, &one->controller);
    one->asked_mhz[0] = 1400;
    one->asked_mhz[1] = 1000;
    one->spans = (harpe_profiler_spans){.run_count = RUNS, .asked_mhz = one->asked_mhz};
    return 0;
}

static int end(void **state) {
    rank *one = *state;
    free(one->spans.us);
    free(one->slot);
    free(one->optimizer);
    free(one);
    return 0;
}

/* Step 0 begins a little after the start of time. */
static uint64_t begin_of(uint64_t step) { return 10000 + step * STEP_US; }

/* Asks for the clocks of some more steps: each at the begin of its instruction. */
static void ask(rank *one, uint64_t steps) {
    for (uint64_t end = one->steps + steps; one->steps < end; one->steps++)
        for (uint64_t k = 0; k < RUNS; k++)
            harpe_clock_asks_add(one->slot, begin_of(one->steps) + k * STEP_US / RUNS,
                                 (uint32_t)one->asked_mhz[k]);
}

/* Measures some steps from step `first` on. */
static void measure(rank *one, uint64_t first, size_t steps) {
    one->spans.step_count = steps;
    one->spans.us = calloc(2 * RUNS * steps, sizeof *one->spans.us);
    assert_non_null(one->spans.us);
    for (size_t i = 0; i < RUNS * steps; i++) {
        one->spans.us[2 * i] = begin_of(first) + i * STEP_US / RUNS;
        one->spans.us[2 * i + 1] = one->spans.us[2 * i] + STEP_US / RUNS;
    }
}

static harpe_rank_clocks report(const rank *one) {
    harpe_rank_clocks clocks;
    owned_array char *text = strdup("{\"rank\":0}");
    assert_non_null(text);
    harpe_pipeline_append_clocks(one->optimizer, &one->spans, &text);
    assert_true(harpe_rank_clocks_read(text, strlen(text), RUNS, &clocks));
    return clocks;
}

/* Requires runs in which the clock of the other instruction lasts for the latency. */
static void assert_late(const rank *one) {
    const double late = (double)LATENCY_US * RUNS / STEP_US;
    AT_END(harpe_rank_clocks_free) harpe_rank_clocks clocks = report(one);
    assert_true(clocks.is_known);
    assert_int_equal(clocks.latency_count, 2);
    assert_int_equal(clocks.run_count, RUNS);
    for (int k = 0; k < RUNS; k++) {
        const harpe_run_clocks *run = &clocks.runs[k];
        assert_int_equal(run->count, 2);
        for (int i = 0; i < 2; i++) {
            bool is_asked = run->parts[i].mhz == one->asked_mhz[k];
            assert_true(is_asked || run->parts[i].mhz == one->asked_mhz[1 - k]);
            assert_true(fabs(run->parts[i].share - (is_asked ? 1 - late : late)) < 1e-3);
        }
    }
}

static void assert_unknown(const rank *one) {
    AT_END(harpe_rank_clocks_free) harpe_rank_clocks clocks = report(one);
    assert_true(clocks.is_known);
    assert_int_equal(clocks.run_count, RUNS);
    for (int k = 0; k < RUNS; k++)
        assert_int_equal(clocks.runs[k].count, -1);
}

#define FIXTURE_TEST(name) TEST_ON(name, rank *one, start, end)

FIXTURE_TEST(a_short_round_has_its_clocks) {
    ask(one, 30);
    measure(one, 10, 20);
    assert_late(one);
}

FIXTURE_TEST(a_round_of_more_requests_than_are_kept_has_the_clocks_of_its_last_steps) {
    ask(one, 2 * HARPE_CONTROLLER_ASKS);
    measure(one, 10, 2 * HARPE_CONTROLLER_ASKS - 10);
    assert_late(one);
}

FIXTURE_TEST(the_clocks_of_steps_before_all_kept_requests_are_not_known) {
    ask(one, 2 * HARPE_CONTROLLER_ASKS);
    measure(one, 10, 20);
    assert_unknown(one);
}

/* The clock before the first request may be any, so these steps differ from the others. */
FIXTURE_TEST(steps_before_the_first_request_are_not_known) {
    one->steps = 2;
    ask(one, 30);
    measure(one, 0, 32);
    assert_unknown(one);
}

FIXTURE_TEST(no_request_means_the_clocks_of_the_schedule) {
    measure(one, 0, 10);
    AT_END(harpe_rank_clocks_free) harpe_rank_clocks clocks = report(one);
    assert_true(clocks.is_known);
    assert_int_equal(clocks.latency_count, 2);
    assert_int_equal(clocks.run_count, 0);
}

FIXTURE_TEST(without_the_thread_that_learns_no_clock_is_known) {
    atomic_store(&one->slot->learns_switches, 0);
    ask(one, 30);
    measure(one, 10, 20);
    assert_unknown(one);
}

/* The clock is known again after the next request. */
FIXTURE_TEST(a_request_that_failed_makes_the_clock_unknown) {
    ask(one, 20);
    uint64_t failed_us = begin_of(20) - 100;
    harpe_clock_asks_add(one->slot, failed_us, 1200);
    harpe_clock_asks_add(one->slot, failed_us, 0);
    ask(one, 20);
    measure(one, 1, 18);
    assert_late(one);
    free(one->spans.us);
    measure(one, 10, 20);
    assert_unknown(one);
    free(one->spans.us);
    measure(one, 21, 18);
    assert_late(one);
}

/* The steps of a V100's clocks are 7 and 8 MHz. The change to the second instruction's clock comes
 * after its end. */
FIXTURE_TEST(a_clock_that_is_7_mhz_away_is_another_one) {
    enum { STEPS = 20 };
    one->asked_mhz[1] = 1393;
    learn(&one->slot->switch_table, 1, 1393, STEP_US / 5);
    ask(one, STEPS + 1);
    measure(one, 1, STEPS);
    for (size_t i = 0; i < STEPS; i++) {
        uint64_t *us = one->spans.us + 2 * RUNS * i;
        us[3] = us[2] + STEP_US / 10;
    }
    AT_END(harpe_rank_clocks_free) harpe_rank_clocks clocks = report(one);
    assert_int_equal(clocks.run_count, RUNS);
    assert_int_equal(clocks.runs[1].count, 1);
    assert_int_equal(clocks.runs[1].parts[0].mhz, 1400);
}

FIXTURE_TEST(a_rank_without_a_controller_reports_no_clocks) {
    ask(one, 30);
    measure(one, 10, 20);
    atomic_store(&one->optimizer->controller, NULL);
    harpe_rank_clocks clocks = report(one);
    assert_false(clocks.is_known);
}
