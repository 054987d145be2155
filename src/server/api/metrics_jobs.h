/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of single jobs in Prometheus' text format. */
#ifndef HARPE_SERVER_API_METRICS_JOBS_H
#define HARPE_SERVER_API_METRICS_JOBS_H

#include "base/text.h"
#include "server/engine/engine.h"

/* Appends the metrics of single jobs of the groups of `scope` (NULL: all). `jobs` may be NULL, as
 * for harpe_metrics_format. */
void harpe_metrics_append_jobs(harpe_text *text, const harpe_jobs *jobs, const char *scope);

#endif
