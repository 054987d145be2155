/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of switching latencies. For any bytes, the result is an error of one printable
 * line, or rows within their limits, with rising frequencies, between which the latencies of all
 * frequencies lie. Uses no files. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/profile.h>

#include "plan/profiles.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    harpe_latencies table = {0};
    harpe_error error = {.message = ""};
    harpe_status status =
        harpe_latencies_parse_csv((const char *)data, size, "fuzz.csv", &table, &error);
    if (status != HARPE_OK) {
        require(!table.items && table.count == 0);
        require(error.status == status);
        require(strncmp(error.message, "fuzz.csv", strlen("fuzz.csv")) == 0);
        require(!strpbrk(error.message, "\n\r\x1B"));
        return 0;
    }
    require(table.count >= 1 && table.count <= HARPE_SWITCH_TABLE_ROWS_MAX);
    for (size_t i = 0; i < table.count; i++) {
        const harpe_latency *row = &table.items[i], *before = i > 0 ? row - 1 : row;
        require(row->frequency_mhz >= 1 && row->frequency_mhz <= HARPE_FREQUENCY_MAX_MHZ);
        require(row->latency_s >= 0 && row->latency_s <= HARPE_SWITCH_LATENCY_MAX_S);
        require(i == 0 || before->frequency_mhz < row->frequency_mhz);
        int middle_mhz = before->frequency_mhz + (row->frequency_mhz - before->frequency_mhz) / 2;
        double middle_s = harpe_latencies_find(&table, 0, middle_mhz);
        require(middle_s >= fmin(before->latency_s, row->latency_s) - 1e-9);
        require(middle_s <= fmax(before->latency_s, row->latency_s) + 1e-9);
    }
    free(table.items);
    return 0;
}
