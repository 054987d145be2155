/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the clocks in a result: for any bytes, the clocks are unknown, or possible and the same
 * after they are written and read again. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pfo/rank_clocks.h"

enum { RUNS_MAX = 8, MHZ_MAX = 100000 };
#define LATENCY_MAX_S 1e3
#define SUM_TOLERANCE 1e-9
/* The text has latencies in whole us, and shares with 4 digits after the point. */
#define LATENCY_STEP_S 1.001e-6
#define SHARE_STEP 5e-4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_latencies(const harpe_rank_clocks *clocks) {
    require(clocks->latency_count <= HARPE_CLOCK_LATENCIES);
    for (size_t i = 0; i < clocks->latency_count; i++) {
        const harpe_clock_latency *one = &clocks->latencies[i];
        require(one->mhz >= 1 && one->mhz <= MHZ_MAX);
        require(one->median_s >= 0 && one->median_s <= one->p95_s && one->p95_s <= LATENCY_MAX_S);
        for (size_t k = 0; k < i; k++)
            require(clocks->latencies[k].mhz != one->mhz);
    }
}

static void check_run(const harpe_run_clocks *run) {
    double sum = 0;
    require(run->count >= -1 && run->count <= HARPE_CLOCK_PARTS);
    for (int i = 0; i < run->count; i++) {
        require(run->parts[i].mhz >= 1 && run->parts[i].mhz <= MHZ_MAX);
        require(run->parts[i].share >= 0 && run->parts[i].share <= 1 + SUM_TOLERANCE);
        sum += run->parts[i].share;
    }
    require(run->count < 1 || fabs(sum - 1) <= SUM_TOLERANCE);
}

static void require_same(const harpe_rank_clocks *a, const harpe_rank_clocks *b) {
    require(a->is_known == b->is_known);
    require(a->latency_count == b->latency_count && a->run_count == b->run_count);
    for (size_t i = 0; i < a->latency_count; i++) {
        require(a->latencies[i].mhz == b->latencies[i].mhz);
        require(fabs(a->latencies[i].median_s - b->latencies[i].median_s) <= LATENCY_STEP_S);
        require(fabs(a->latencies[i].p95_s - b->latencies[i].p95_s) <= LATENCY_STEP_S);
    }
    for (size_t i = 0; i < a->run_count; i++) {
        require(a->runs[i].count == b->runs[i].count);
        for (int k = 0; k < a->runs[i].count; k++) {
            require(a->runs[i].parts[k].mhz == b->runs[i].parts[k].mhz);
            require(fabs(a->runs[i].parts[k].share - b->runs[i].parts[k].share) <= SHARE_STEP);
        }
    }
}

static void check_again(const harpe_rank_clocks *clocks) {
    harpe_rank_clocks again;
    char *json = strdup("{\"rank\":0}");
    require(json && harpe_rank_clocks_append(clocks, &json, NULL) == HARPE_OK);
    require(harpe_rank_clocks_read(json, strlen(json), clocks->run_count, &again));
    require_same(clocks, &again);
    harpe_rank_clocks_free(&again);
    free(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    harpe_rank_clocks clocks;
    require(harpe_rank_clocks_read((const char *)data, size, RUNS_MAX, &clocks));
    require(clocks.run_count <= RUNS_MAX);
    require(clocks.is_known || (clocks.latency_count == 0 && clocks.run_count == 0));
    check_latencies(&clocks);
    for (size_t i = 0; i < clocks.run_count; i++)
        check_run(&clocks.runs[i]);
    if (clocks.is_known) check_again(&clocks);
    harpe_rank_clocks_free(&clocks);
    return 0;
}
