/* SPDX-License-Identifier: Apache-2.0 */
/* The durations of requests as Prometheus histograms: one for each route that the engine answers,
 * and one with longer buckets for schedules, whose ranks wait for one another. routes.c adds the
 * durations, and metrics.c prints them. */
#ifndef HARPE_SERVER_API_LATENCIES_H
#define HARPE_SERVER_API_LATENCIES_H

#include "base/text.h"
#include "server/api/route_table.h"

typedef struct harpe_latencies harpe_latencies;

harpe_latencies *harpe_latencies_new(void); /* NULL: out of memory */
void harpe_latencies_free(harpe_latencies *latencies);
/* Adds a duration. `route` is a row of harpe_route_table. */
void harpe_latencies_add(harpe_latencies *latencies, const harpe_route *route, int64_t duration_ns);
void harpe_latencies_format(const harpe_latencies *latencies, harpe_text *text);

#endif
