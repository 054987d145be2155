/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of the server in Prometheus' text format. */
#ifndef HARPE_SERVER_API_METRICS_H
#define HARPE_SERVER_API_METRICS_H

#include "http/http.h"
#include "server/api/latencies.h"
#include "server/engine/engine.h"
#include "server/fleet/steering.h"
#include "server/store/store.h"

/* Returns the metrics in Prometheus' text format; free them with free(). `jobs` and `steering` are
 * NULL while another server leads, because that server counts the jobs. `http` may be NULL. If
 * `scope` is not NULL, the metrics of single jobs leave out jobs that are not in its groups, and
 * the metrics of the fleet are left out. `is_healthy`: /healthz answers 200. */
char *harpe_metrics_format(const harpe_jobs *jobs, const harpe_steering *steering,
                           const char *scope, const harpe_store *store, const harpe_http *http,
                           const harpe_latencies *latencies, bool is_healthy);

#endif
