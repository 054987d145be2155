/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the clocks in a result: for any bytes, the clocks are unknown, or possible and the same
 * after they are written and read again. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pfo/rank_clocks.h"

enum { RUNS_MAX = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_again(const harpe_rank_clocks *clocks) {
    harpe_rank_clocks again;
    char *json = strdup("{\"rank\":0}");
    require(json && harpe_rank_clocks_append(clocks, &json, NULL) == HARPE_OK);
    require(harpe_rank_clocks_read(json, strlen(json), clocks->run_count, &again));
    require(!again.is_known ||
            (again.latency_count == clocks->latency_count && again.run_count == clocks->run_count));
    harpe_rank_clocks_free(&again);
    free(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    harpe_rank_clocks clocks;
    require(harpe_rank_clocks_read((const char *)data, size, RUNS_MAX, &clocks));
    require(clocks.run_count <= RUNS_MAX);
    require(clocks.is_known || (clocks.latency_count == 0 && clocks.run_count == 0));
    for (size_t i = 0; i < clocks.latency_count; i++)
        require(clocks.latencies[i].mhz > 0 &&
                clocks.latencies[i].p95_s >= clocks.latencies[i].median_s);
    for (size_t i = 0; i < clocks.run_count; i++)
        require(clocks.runs[i].count >= -1 && clocks.runs[i].count <= HARPE_CLOCK_PARTS);
    if (clocks.is_known) check_again(&clocks);
    harpe_rank_clocks_free(&clocks);
    return 0;
}
