/* SPDX-License-Identifier: Apache-2.0 */
/* The switching latencies of a profile: how long after the request a GPU has a new clock. They
 * depend on the new clock and on the stage; a problem has them for each rank. Private to src/plan.
 */
#ifndef HARPE_PLAN_LATENCIES_H
#define HARPE_PLAN_LATENCIES_H

#include "plan/profile_rows.h"

typedef struct harpe_latency {
    int32_t owner; /* stage, or rank of a problem */
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

/* Sorts the items. Of several with one owner and frequency, keeps the one with the longest latency.
 */
void harpe_latencies_sort(harpe_latencies *latencies);

/* Returns the latency of a change to a frequency, or 0 if it is not known. */
double harpe_latencies_find(const harpe_latencies *latencies, int owner, int frequency_mhz);

#endif
