/* SPDX-License-Identifier: Apache-2.0 */
/* The clocks in a result: they survive writing and reading, results without them are as before, and
 * wrong clocks never spoil a result. */
#include "test.h"

#include <math.h>

#include "pfo/rank_clocks.h"
#include "pfo/result_scan.h"

enum { RUNS_MAX = 3 };

static char *plain_result(void) {
    double time_s = 0.5, energy_j = 120;
    harpe_profiling_result result = {.rank = 3,
                                     .iteration_time_s = &time_s,
                                     .iteration_time_count = 1,
                                     .iteration_energy_j = &energy_j,
                                     .iteration_energy_count = 1};
    char *json = NULL;
    assert_works(harpe_profiling_result_format(&result, &json, &failure));
    return json;
}

TEST(clocks_survive_writing_and_reading) {
    harpe_clock_latency latencies[] = {{1410, 0.008, 0.0125}, {1200, 0, 0}};
    harpe_run_clocks runs[] = {
        {.count = 0}, {.count = -1}, {.count = 2, .parts = {{1410, 0.25}, {1200, 0.75}}}};
    harpe_rank_clocks clocks = {true, 2, latencies, 3, runs}, read;
    owned_array char *json = plain_result();
    int rank;
    assert_works(harpe_rank_clocks_append(&clocks, &json, &failure));
    assert_true(harpe_profiling_result_scan(json, strlen(json), &rank));
    assert_int_equal(rank, 3);
    harpe_profiling_result result;
    assert_works(harpe_profiling_result_parse(json, strlen(json), &result, &failure));
    harpe_profiling_result_free(&result);
    assert_true(harpe_rank_clocks_read(json, strlen(json), RUNS_MAX, &read));
    assert_true(read.is_known);
    assert_int_equal(read.latency_count, 2);
    assert_int_equal(read.latencies[0].mhz, 1410);
    assert_true(fabs(read.latencies[0].p95_s - 0.0125) < 1e-9);
    assert_int_equal(read.run_count, 3);
    assert_int_equal(read.runs[0].count, 0);
    assert_int_equal(read.runs[1].count, -1);
    assert_int_equal(read.runs[2].count, 2);
    assert_int_equal(read.runs[2].parts[1].mhz, 1200);
    assert_true(fabs(read.runs[2].parts[1].share - 0.75) < 1e-9);
    harpe_rank_clocks_free(&read);
}

/* A client rounds shares, so their sum is not always 1. */
TEST(shares_are_read_so_that_their_sum_is_1) {
    static const char text[] = "{\"rank\":0,\"clocks\":{\"latencies\":[],\"runs\":"
                               "[[1410,0.252456,1200,0.252456,900,0.252456,600,0.252626]]}}";
    harpe_rank_clocks read, again;
    owned_array char *json = plain_result();
    assert_true(harpe_rank_clocks_read(text, sizeof text - 1, RUNS_MAX, &read));
    assert_true(read.is_known);
    double sum = 0;
    for (int i = 0; i < read.runs[0].count; i++)
        sum += read.runs[0].parts[i].share;
    assert_true(fabs(sum - 1) < 1e-9);
    assert_works(harpe_rank_clocks_append(&read, &json, &failure));
    assert_true(harpe_rank_clocks_read(json, strlen(json), RUNS_MAX, &again));
    assert_true(again.is_known);
    harpe_rank_clocks_free(&read);
    harpe_rank_clocks_free(&again);
}

TEST(wrong_clocks_are_not_known) {
    static const char *const wrong[] = {
        "1",
        "[]",
        "{}",
        "{\"latencies\":[]}",
        "{\"latencies\":[],\"runs\":1}",
        "{\"latencies\":[[1410,1]],\"runs\":[]}",
        "{\"latencies\":[[1410,2,1]],\"runs\":[]}",
        "{\"latencies\":[[0,1,1]],\"runs\":[]}",
        "{\"latencies\":[[1410,-1,1]],\"runs\":[]}",
        "{\"latencies\":[[1410,1,1e9]],\"runs\":[]}",
        "{\"latencies\":[[1410,1,1],[1410,1,1]],\"runs\":[]}",
        "{\"latencies\":[],\"runs\":[[1410]]}",
        "{\"latencies\":[],\"runs\":[[1410,0.5]]}",
        "{\"latencies\":[],\"runs\":[[1410,2]]}",
        "{\"latencies\":[],\"runs\":[[1.5,1]]}",
        "{\"latencies\":[],\"runs\":[\"x\"]}",
        "{\"latencies\":[],\"runs\":[[1,0.2,2,0.2,3,0.2,4,0.2,5,0.2]]}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[300];
        harpe_rank_clocks read;
        int length =
            snprintf(text, sizeof text,
                     "{\"rank\":0,\"iter_time\":[],\"iter_energy\":[],\"clocks\":%s}", wrong[i]);
        assert_true(harpe_rank_clocks_read(text, (size_t)length, RUNS_MAX, &read));
        assert_false(read.is_known);
        assert_true(read.latency_count == 0 && read.run_count == 0);
        AT_END(harpe_profiling_result_free) harpe_profiling_result result;
        assert_works(harpe_profiling_result_parse(text, (size_t)length, &result, &failure));
    }
}

/* The memory of a result follows from the rank's schedule, not from what the rank sends. */
TEST(more_runs_than_the_schedule_has_are_one_that_is_not_known) {
    static const char begin[] =
        "{\"rank\":0,\"clocks\":{\"latencies\":[[1410,0.01,0.02]],\"runs\":[[]";
    enum { MORE = 100000 };
    owned_array char *text = malloc(sizeof begin + 3 * (size_t)MORE + 4);
    assert_non_null(text);
    for (size_t runs = 1; runs <= MORE; runs = runs < 6 ? runs + 1 : 10 * runs) {
        AT_END(harpe_rank_clocks_free) harpe_rank_clocks read;
        size_t length = sizeof begin - 1;
        memcpy(text, begin, length);
        for (size_t i = 1; i < runs; i++, length += 3)
            memcpy(text + length, ",[]", 3);
        memcpy(text + length, "]}}", 3);
        assert_true(harpe_rank_clocks_read(text, length + 3, RUNS_MAX, &read));
        assert_true(read.is_known);
        assert_int_equal(read.latency_count, 1);
        assert_int_equal(read.run_count, runs <= RUNS_MAX ? runs : 1);
        assert_int_equal(read.runs[0].count, runs <= RUNS_MAX ? 0 : -1);
        harpe_rank_clocks_free(&read);
        assert_true(harpe_rank_clocks_read(text, length + 3, 0, &read));
        assert_int_equal(read.run_count, 1);
        assert_int_equal(read.runs[0].count, -1);
    }
}

TEST(results_without_clocks_are_as_before) {
    harpe_rank_clocks read;
    owned_array char *json = plain_result();
    assert_true(harpe_rank_clocks_read(json, strlen(json), RUNS_MAX, &read));
    assert_false(read.is_known);
    assert_true(harpe_rank_clocks_read("", 0, RUNS_MAX, &read));
    assert_false(read.is_known);
}
