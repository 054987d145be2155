/* SPDX-License-Identifier: Apache-2.0 */
/* What is learnt from samples of the clock: only complete changes that were seen closely. */
#include "test.h"

#include "client/switch_learning.h"

static harpe_switch_table table;
static harpe_switch_learning learning;

static int start(void **state) {
    (void)state;
    table = (harpe_switch_table){0};
    harpe_switch_learning_start(&learning, &table);
    return 0;
}

/* Samples every `step_us` from `from_us` to before `to_us`. */
static void sample(const harpe_clock_ask *asks, size_t count, uint64_t from_us, uint64_t to_us,
                   uint64_t step_us, uint32_t mhz) {
    for (uint64_t at_us = from_us; at_us < to_us; at_us += step_us)
        harpe_switch_learning_sample(&learning, asks, count, at_us, mhz);
}

static harpe_switch_entry entry(size_t i) { return harpe_switch_entry_at(&table, i); }

#define FIXTURE_TEST(name) TEST_WITH(name, start, NULL)

FIXTURE_TEST(a_change_between_two_close_samples_counts) {
    const harpe_clock_ask asks[] = {{10000, 705}, {100, 1410}};
    sample(asks, 2, 9000, 35000, 500, 1410);
    sample(asks, 2, 35000, 36000, 500, 705);
    assert_int_equal(entry(0).mhz, 705);
    assert_int_equal(entry(0).samples, 1);
    assert_int_equal(entry(0).median_us, 24750);
    assert_int_equal(entry(0).p95_us, 24750);
    assert_int_equal(entry(1).mhz, 0);
}

FIXTURE_TEST(a_rounded_clock_is_the_same_clock) {
    const harpe_clock_ask asks[] = {{10000, 700}, {100, 1410}};
    sample(asks, 2, 9000, 35000, 500, 1410);
    sample(asks, 2, 35000, 36000, 500, 705);
    assert_int_equal(entry(0).mhz, 700);
}

FIXTURE_TEST(a_change_that_is_over_at_the_first_sample_is_immediate) {
    const harpe_clock_ask asks[] = {{10000, 705}, {100, 1410}};
    sample(asks, 1, 9900, 9901, 1, 1410);
    sample(asks, 2, 10700, 10701, 1, 705);
    assert_int_equal(entry(0).samples, 1);
    assert_int_equal(entry(0).median_us, 0);
}

FIXTURE_TEST(samples_far_apart_do_not_count) {
    const harpe_clock_ask asks[] = {{10000, 705}, {100, 1410}};
    sample(asks, 2, 9900, 9901, 1, 1410);
    sample(asks, 2, 30000, 30001, 1, 705); /* anything up to 20 ms */
    assert_int_equal(entry(0).mhz, 0);
    start(state);
    sample(asks, 2, 11000, 11001, 1, 1410);
    sample(asks, 2, 30000, 30001, 1, 705);
    assert_int_equal(entry(0).mhz, 0);
}

/* The second request waits for the end of the first change, so only the first one is measured. */
FIXTURE_TEST(a_request_during_a_change_does_not_count) {
    const harpe_clock_ask asks[] = {{20000, 1005}, {10000, 705}, {100, 1410}};
    sample(asks, 3, 9000, 35000, 500, 1410);
    sample(asks, 3, 35000, 60000, 500, 705);
    sample(asks, 3, 60000, 61000, 500, 1005);
    assert_int_equal(entry(0).mhz, 705);
    assert_int_equal(entry(0).samples, 1);
    assert_int_equal(entry(1).mhz, 0);
}

FIXTURE_TEST(a_clock_that_nobody_asked_for_does_not_count) {
    const harpe_clock_ask asks[] = {{10000, 705}, {100, 1410}};
    sample(asks, 2, 9000, 35000, 500, 1410);
    sample(asks, 2, 35000, 36000, 500, 900);
    assert_int_equal(entry(0).mhz, 0);
    sample(asks, 0, 36000, 37000, 500, 705);
    assert_int_equal(entry(0).mhz, 0);
}

/* A GPU without work may have a low clock. It rises when work begins, whatever was asked for. */
FIXTURE_TEST(a_gpu_that_wakes_teaches_nothing) {
    const harpe_clock_ask asks[] = {{10000, 705}, {100, 1410}};
    sample(asks + 1, 1, 9000, 10000, 500, 210);
    sample(asks, 2, 10000, 35000, 500, 210);
    sample(asks, 2, 35000, 36000, 500, 705);
    assert_int_equal(entry(0).mhz, 0);
    start(state);
    sample(asks + 1, 1, 200, 9000, 500, 210); /* nobody knows the clock before the only request */
    sample(asks + 1, 1, 9000, 10000, 500, 1410);
    assert_int_equal(entry(0).mhz, 0);
}

/* A power limit holds the clock at 1200 to 1290 MHz, although 1410 MHz are set. */
FIXTURE_TEST(a_change_from_a_clock_that_was_not_reached_counts) {
    const harpe_clock_ask asks[] = {{600000, 705}, {100, 1410}};
    sample(asks, 1, 100000, 200000, 500, 1290);
    sample(asks, 2, 200000, 620000, 500, 1200);
    sample(asks, 2, 620000, 621000, 500, 705);
    assert_int_equal(entry(0).mhz, 705);
    assert_int_equal(entry(0).samples, 1);
    assert_int_equal(entry(0).median_us, 19750);
    assert_int_equal(entry(1).mhz, 0);
}

/* The GPU may still be on the way to 1410 MHz. */
FIXTURE_TEST(a_change_soon_after_another_does_not_count) {
    const harpe_clock_ask asks[] = {{500000, 705}, {100, 1410}};
    sample(asks, 2, 490000, 520000, 500, 1200);
    sample(asks, 2, 520000, 521000, 500, 705);
    assert_int_equal(entry(0).mhz, 0);
}

FIXTURE_TEST(the_last_sixteen_samples_count) {
    uint64_t now_us = 1000000;
    uint32_t mhz = 1410;
    for (int i = 0; i < 60; i++) {
        uint32_t next = mhz == 1410 ? 705 : 1410;
        const harpe_clock_ask asks[] = {{now_us, next}, {now_us - 500000, mhz}};
        uint64_t latency_us = i < 20 ? 80000 : 20000 + 1000 * (uint64_t)(i % 8 / 2);
        sample(asks, 2, now_us - 100, now_us + latency_us, 100, mhz);
        sample(asks, 2, now_us + latency_us, now_us + latency_us + 1000, 100, next);
        mhz = next;
        now_us += 1000000;
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(entry(i).samples, 30);
        assert_in_range(entry(i).median_us, 20900, 22100);
        assert_in_range(entry(i).p95_us, 22800, 23100);
    }
    harpe_switch_learning again;
    harpe_switch_learning_start(&again, &table);
    assert_int_equal(again.target_count, 2);
    assert_in_range(again.targets[0].us[0], 20900, 22100);
}

FIXTURE_TEST(more_clocks_than_the_table_has_are_harmless) {
    uint64_t now_us = 1000000;
    uint32_t mhz = 100;
    for (uint32_t i = 0; i < HARPE_SWITCH_TARGETS + 20; i++) {
        const harpe_clock_ask asks[] = {{now_us, mhz + 15}, {now_us - 500000, mhz}};
        sample(asks, 2, now_us - 100, now_us + 5000, 100, mhz);
        sample(asks, 2, now_us + 5000, now_us + 6000, 100, mhz + 15);
        mhz += 15;
        now_us += 1000000;
    }
    assert_int_equal(entry(HARPE_SWITCH_TARGETS - 1).samples, 1);
}

int main(void) { return run_listed_tests(); }
