/* SPDX-License-Identifier: Apache-2.0 */
/* What is learnt from samples of the clock: only complete changes that were seen closely. */
#include "test.h"

#include "client/switch_learning.h"

static harpe_switch_table table;
static harpe_switch_learning learning;

static int start(void **state __attribute__((unused))) {
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

/* Samples of one clock. Meanwhile `asks` requests of the lesson are known, from index `skipped` on.
 */
typedef struct span {
    size_t skipped, asks;
    uint64_t from_us, to_us;
    uint32_t mhz;
} span;

/* The latest request comes first. The spans teach nothing, or one change to `mhz`. */
static const struct lesson {
    const char *name;
    harpe_clock_ask asks[3];
    span spans[3];
    uint32_t mhz, median_us; /* 0: nothing */
} lessons[] = {
    {.name = "a change between two close samples counts",
     .asks = {{10000, 705}, {100, 1410}},
     .spans = {{0, 2, 9000, 35000, 1410}, {0, 2, 35000, 36000, 705}},
     .mhz = 705,
     .median_us = 24750},
    {.name = "a rounded clock is the same clock",
     .asks = {{10000, 700}, {100, 1410}},
     .spans = {{0, 2, 9000, 35000, 1410}, {0, 2, 35000, 36000, 705}},
     .mhz = 700,
     .median_us = 24750},
    {.name = "a change that is over at the first sample is immediate",
     .asks = {{10000, 705}, {100, 1410}},
     .spans = {{0, 1, 9900, 9901, 1410}, {0, 2, 10700, 10701, 705}},
     .mhz = 705,
     .median_us = 0},
    {.name = "samples far apart do not count: anything up to 20 ms",
     .asks = {{10000, 705}, {100, 1410}},
     .spans = {{0, 2, 9900, 9901, 1410}, {0, 2, 30000, 30001, 705}}},
    {.name = "samples far apart after the request do not count",
     .asks = {{10000, 705}, {100, 1410}},
     .spans = {{0, 2, 11000, 11001, 1410}, {0, 2, 30000, 30001, 705}}},
    {.name = "a request during a change waits for its end, and does not count",
     .asks = {{20000, 1005}, {10000, 705}, {100, 1410}},
     .spans = {{0, 3, 9000, 35000, 1410}, {0, 3, 35000, 60000, 705}, {0, 3, 60000, 61000, 1005}},
     .mhz = 705,
     .median_us = 24750},
    {.name = "a clock that nobody asked for does not count",
     .asks = {{10000, 705}, {100, 1410}},
     .spans = {{0, 2, 9000, 35000, 1410}, {0, 2, 35000, 36000, 900}, {0, 0, 36000, 37000, 705}}},
    {.name = "a GPU without work has a low clock, which rises when work begins",
     .asks = {{10000, 705}, {100, 1410}},
     .spans = {{1, 1, 9000, 10000, 210}, {0, 2, 10000, 35000, 210}, {0, 2, 35000, 36000, 705}}},
    {.name = "nobody knows the clock before the only request",
     .asks = {{100, 1410}},
     .spans = {{0, 1, 200, 9000, 210}, {0, 1, 9000, 10000, 1410}}},
    {.name = "a power limit holds the clock at 1200 to 1290 MHz, although 1410 MHz are set",
     .asks = {{600000, 705}, {100, 1410}},
     .spans = {{0, 1, 100000, 200000, 1290},
               {0, 2, 200000, 620000, 1200},
               {0, 2, 620000, 621000, 705}},
     .mhz = 705,
     .median_us = 19750},
    {.name = "the GPU may still be on the way to 1410 MHz",
     .asks = {{500000, 705}, {100, 1410}},
     .spans = {{0, 2, 490000, 520000, 1200}, {0, 2, 520000, 521000, 705}}},
};

TEST(only_complete_changes_that_were_seen_closely_count) {
    for (size_t i = 0; i < sizeof lessons / sizeof *lessons; i++) {
        const struct lesson *one = &lessons[i];
        (void)start(NULL);
        print_message("%s\n", one->name);
        for (const span *s = one->spans; s < one->spans + 3; s++)
            sample(one->asks + s->skipped, s->asks, s->from_us, s->to_us, 500, s->mhz);
        assert_int_equal(entry(0).mhz, one->mhz);
        assert_int_equal(entry(0).samples, one->mhz > 0);
        assert_int_equal(entry(0).median_us, one->median_us);
        assert_int_equal(entry(0).p95_us, one->median_us);
        assert_int_equal(entry(1).mhz, 0);
    }
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
