/* SPDX-License-Identifier: Apache-2.0 */
/* Switching latencies: how long after the request a GPU has a new clock. They depend on the new
 * clock and on the stage; a problem has them for each rank. They come from a profile, or from the
 * CSV file that `harpe profile switch` writes. Private to src/plan and src/cli. */
#ifndef HARPE_PLAN_LATENCIES_H
#define HARPE_PLAN_LATENCIES_H

#include "plan/profile_rows.h"

#define HARPE_SWITCH_TABLE_ROWS_MAX ((size_t)4096)
#define HARPE_SWITCH_LATENCY_MAX_S 3600

/* The owner of a latency that holds for all stages or ranks. */
enum { HARPE_LATENCY_OF_ALL = -1 };

typedef struct harpe_latency {
    int32_t owner; /* stage, or rank of a problem, or HARPE_LATENCY_OF_ALL */
    int32_t frequency_mhz;
    double latency_s;
} harpe_latency;

/* Sorted by owner, then by rising frequency; each pair once. */
typedef struct harpe_latencies {
    harpe_latency *items; /* free it */
    size_t count;         /* 0: no latency is known */
} harpe_latencies;

/* Finds the latencies of the rows. Rows of one stage, rank and frequency must agree; the longest of
 * all ranks counts. The error begins as those of harpe_profile_rows_finish do. */
harpe_status harpe_latencies_collect(const harpe_profile_rows *rows, const char *file_name,
                                     harpe_latencies *out, harpe_error *error);

/* Reads a CSV file with the columns frequency and latency_s. If it has the column gpu, all rows
 * must have the same one. Other columns are ignored. At most 1 MiB and HARPE_SWITCH_TABLE_ROWS_MAX
 * rows, and at least one. All have the owner HARPE_LATENCY_OF_ALL. Fails with HARPE_INVALID_INPUT
 * or HARPE_LIMIT_EXCEEDED, names file, line and column, and leaves `*out` as it was. */
harpe_status harpe_latencies_read_csv(const char *path, harpe_latencies *out, harpe_error *error);
harpe_status harpe_latencies_parse_csv(const char *text, size_t length, const char *name,
                                       harpe_latencies *out, harpe_error *error);

/* Sorts the items. Of several with one owner and frequency, keeps the one with the longest latency.
 */
void harpe_latencies_sort(harpe_latencies *latencies);

/* Returns the latency of a change to a frequency, or 0 if it is not known, or for 0 MHz, which asks
 * for no clock. Items for all owners give every other frequency a latency, too: linear between two
 * items, and that of the nearest item outside of them. */
double harpe_latencies_find(const harpe_latencies *latencies, int owner, int frequency_mhz);

#endif
