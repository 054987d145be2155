/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of frontier.csv. Any bytes are read as such a file. A table that is accepted
 * has usable numbers, and is the same after it is written and read again. A refused table must have
 * an error of one line. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plan/plan_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

/* Reads bytes as a file that exists only in memory. */
static harpe_status read_bytes(const void *data, size_t size, harpe_frontier_row **rows,
                               size_t *count, harpe_error *error) {
    int descriptor = memfd_create("frontier.csv", MFD_CLOEXEC);
    require(descriptor >= 0 && write(descriptor, data, size) == (ssize_t)size);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    harpe_status status = harpe_frontier_csv_read(path, rows, count, error);
    close(descriptor);
    return status;
}

/* A number that the file lacks is NaN. */
static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static void check_row(const harpe_frontier_row *row, const harpe_frontier_row *again) {
    require(row->plan >= 0 && row->time_s > 0 && isfinite(row->time_s));
    require(isfinite(row->energy_j) && isfinite(row->overhead_energy_j));
    require(row->plan == again->plan && row->time_s == again->time_s);
    require(row->energy_j == again->energy_j && row->savings_percent == again->savings_percent);
    require(row->overhead_energy_j == again->overhead_energy_j);
    require(same(row->peak_power_w, again->peak_power_w) && same(row->swing_w, again->swing_w));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    harpe_frontier_row *rows = NULL, *again = NULL;
    size_t count = 0, count_again = 0;
    harpe_error error = {.message = ""};
    harpe_status status = read_bytes(data, size, &rows, &count, &error);
    if (status != HARPE_OK) {
        require(!rows && error.status == status && error.message[0]);
        require(!strchr(error.message, '\n'));
        return 0;
    }
    bool is_complete =
        !isnan(rows[0].peak_power_w) && !isnan(rows[0].swing_w) && !isnan(rows[0].swing_hz);
    harpe_text text = {0};
    harpe_frontier_csv_format(&text, rows, count);
    require(!text.failed);
    status = read_bytes(text.data, text.length, &again, &count_again, &error);
    require((status == HARPE_OK) == is_complete); /* NaN is not a number in a file */
    require(!is_complete || count_again == count);
    for (size_t i = 0; is_complete && i < count; i++)
        check_row(&rows[i], &again[i]);
    harpe_text_free(&text);
    free(again);
    free(rows);
    return 0;
}
