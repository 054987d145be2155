/* SPDX-License-Identifier: Apache-2.0 */
/* The clocks of a span of time, from requests and latencies. */
#include "test.h"

#include <math.h>

#include "client/clock_shares.h"

static harpe_switch_table table;

static void learn(size_t i, uint32_t mhz, uint32_t median_us, uint32_t p95_us) {
    harpe_switch_entry entry = {mhz, 10, median_us, p95_us};
    atomic_store(&table.word[i], harpe_switch_pack(&entry));
}

static int start(void **state __attribute__((unused))) {
    table = (harpe_switch_table){0};
    learn(0, 1000, 10000, 10400);
    learn(1, 1400, 20000, 20400);
    return 0;
}

static harpe_run_clocks clocks_of(const harpe_clock_ask *asks, size_t count, uint64_t start_us,
                                  uint64_t end_us) {
    AT_END(harpe_clock_timeline_free) harpe_clock_timeline timeline;
    assert_true(harpe_clock_timeline_make(&timeline, asks, count, &table));
    harpe_run_clocks run = harpe_clock_shares_of(&timeline, start_us, end_us);
    return run;
}

static void assert_part(const harpe_run_clocks *run, int i, int mhz, double share) {
    assert_true(i < run->count);
    assert_int_equal(run->parts[i].mhz, mhz);
    assert_true(fabs(run->parts[i].share - share) < 1e-9);
}

static void assert_one_clock(const harpe_clock_ask *asks, size_t count, uint64_t start_us,
                             uint64_t end_us, int mhz) {
    harpe_run_clocks run = clocks_of(asks, count, start_us, end_us);
    assert_int_equal(run.count, 1);
    assert_part(&run, 0, mhz, 1);
}

#define FIXTURE_TEST(name) TEST_WITH(name, start, NULL)

FIXTURE_TEST(a_change_divides_a_span) {
    const harpe_clock_ask asks[] = {{0, 1400}, {100000, 1000}};
    harpe_run_clocks run = clocks_of(asks, 2, 100000, 300000);
    assert_int_equal(run.count, 2);
    assert_part(&run, 0, 1400, 0.05);
    assert_part(&run, 1, 1000, 0.95);
    assert_one_clock(asks, 2, 120000, 300000, 1000);
}

FIXTURE_TEST(a_request_replaces_one_that_waits) {
    const harpe_clock_ask asks[] = {{0, 1400}, {100000, 1000}, {105000, 1400}};
    assert_one_clock(asks, 3, 90000, 300000, 1400);
}

FIXTURE_TEST(what_is_not_certain_is_not_known) {
    const harpe_clock_ask asks[] = {{50000, 1400}, {100000, 1000}};
    assert_int_equal(clocks_of(asks, 2, 60000, 90000).count, -1); /* before the first change */
    assert_int_equal(clocks_of(asks, 0, 60000, 90000).count, -1);
    assert_int_equal(clocks_of(asks, 2, 90000, 90000).count, -1); /* no time */
    learn(0, 1000, 10000, 60000);
    assert_int_equal(clocks_of(asks, 2, 100000, 200000).count, -1); /* the change may be slow */
    assert_int_equal(clocks_of(asks, 2, 300000, 400000).count, 1);
}

FIXTURE_TEST(requests_out_of_order_tell_nothing) {
    const harpe_clock_ask asks[] = {{0, 1400}, {100000, 1000}, {40000, 1400}, {200000, 1000}};
    for (uint64_t start_us = 50000; start_us < 400000; start_us += 50000)
        assert_int_equal(clocks_of(asks, 4, start_us, start_us + 90000).count, -1);
}

FIXTURE_TEST(the_clock_is_known_from_the_latest_first_change_on) {
    const harpe_clock_ask asks[] = {{50000, 1400}, {100000, 1000}};
    harpe_clock_timeline timeline;
    learn(1, 1400, 20000, 30000);
    assert_true(harpe_clock_timeline_make(&timeline, asks, 2, &table));
    uint64_t begin_us = harpe_clock_timeline_begin(&timeline);
    assert_true(begin_us >= 80000 && begin_us < 100000);
    assert_int_equal(harpe_clock_shares_of(&timeline, begin_us, begin_us + 1000).count, 1);
    harpe_clock_timeline_free(&timeline);
    assert_true(harpe_clock_timeline_make(&timeline, asks, 0, &table));
    assert_true(harpe_clock_timeline_begin(&timeline) == UINT64_MAX);
    harpe_clock_timeline_free(&timeline);
}

FIXTURE_TEST(an_unknown_target_takes_any_time_up_to_the_longest) {
    const harpe_clock_ask asks[] = {{0, 1400}, {100000, 700}};
    assert_int_equal(clocks_of(asks, 2, 100000, 200000).count, -1);
    assert_one_clock(asks, 2, 130000, 500000, 700);
    const harpe_clock_ask replaced[] = {{0, 1400}, {100000, 700}, {105000, 1400}};
    assert_int_equal(clocks_of(replaced, 3, 100000, 140000).count, -1);
}

/* Each request is replaced before the GPU obeys, so nothing is ever learnt. */
FIXTURE_TEST(without_any_latency_only_long_runs_are_known) {
    const harpe_clock_ask asks[] = {{0, 1400},     {5000, 1000},    {10000, 1400},  {15000, 1000},
                                    {20000, 1400}, {2000000, 1000}, {3000000, 1400}};
    table = (harpe_switch_table){0};
    harpe_switch_entry few = {1400, HARPE_SWITCH_USABLE - 1, 10000, 10000};
    for (int learnt = 0; learnt < 2; learnt++) {
        atomic_store(&table.word[0], learnt ? harpe_switch_pack(&few) : 0);
        for (uint64_t start_us = 0; start_us < 25000; start_us += 5000)
            assert_int_equal(clocks_of(asks, 7, start_us, start_us + 5000).count, -1);
        assert_int_equal(clocks_of(asks, 7, 400000, 600000).count, -1);
        assert_one_clock(asks, 7, 600000, 2000000, 1400);
        assert_int_equal(clocks_of(asks, 7, 2000000, 2600000).count, -1);
        assert_one_clock(asks, 7, 2600000, 3000000, 1000);
    }
}

FIXTURE_TEST(the_mean_of_runs_is_that_of_their_shares) {
    const harpe_run_clocks one = {.count = 1, .parts = {{1000, 1}}};
    const harpe_run_clocks two = {.count = 2, .parts = {{1400, 0.5}, {1000, 0.5}}};
    const harpe_run_clocks unknown = {.count = -1};
    harpe_run_clocks mean = {0};
    harpe_clock_shares_add(&mean, 0, &one);
    harpe_clock_shares_add(&mean, 1, &two);
    assert_int_equal(mean.count, 2);
    assert_part(&mean, 0, 1000, 0.75);
    assert_part(&mean, 1, 1400, 0.25);
    harpe_clock_shares_add(&mean, 2, &unknown);
    assert_int_equal(mean.count, -1);
    harpe_clock_shares_add(&mean, 3, &one);
    assert_int_equal(mean.count, -1);
}
