/* SPDX-License-Identifier: Apache-2.0 */
/* How long requests took, as Prometheus' histograms: one for each route that the engine answers,
 * and one with longer buckets for schedules, whose ranks wait for one another. Fed by routes.c,
 * shown by metrics.c. */
#ifndef HARPE_SERVER_LATENCIES_H
#define HARPE_SERVER_LATENCIES_H

#include "base/text.h"
#include "server/route_table.h"

typedef struct harpe_latencies harpe_latencies;

harpe_latencies *harpe_latencies_new(void); /* NULL: out of memory */
void harpe_latencies_free(harpe_latencies *latencies);
/* `route` is one of harpe_route_table. */
void harpe_latencies_add(harpe_latencies *latencies, const harpe_route *route, int64_t duration_ns);
void harpe_latencies_format(const harpe_latencies *latencies, harpe_text *text);

#endif
