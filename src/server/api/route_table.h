/* SPDX-License-Identifier: Apache-2.0 */
/* One row per route. routes.c dispatches requests by these rows, and /openapi.json is made from
 * them. */
#ifndef HARPE_SERVER_API_ROUTE_TABLE_H
#define HARPE_SERVER_API_ROUTE_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "http/http.h"
#include "server/engine/jobs.h"
#include "server/store/store.h"

typedef enum harpe_page {
    HARPE_PAGE_NONE, /* the route is a call */
    HARPE_PAGE_INFO,
    HARPE_PAGE_HEALTH,
    HARPE_PAGE_METRICS,
    HARPE_PAGE_OPENAPI,
    HARPE_PAGE_EVENTS, /* the stream of one job, or of all jobs */
} harpe_page;

typedef struct harpe_route {
    const char *method, *path; /* "/schedule/{job_id}" */
    harpe_page page;
    harpe_call_kind call;
    int job_segment; /* index of the segment that is the job's id; -1: none */
    bool needs_rank, takes_round;
    const char *body_schema;   /* name in openapi.c; NULL: no body */
    const char *answer_schema; /* schema of a 200 answer; NULL: any JSON */
    const char *summary;
    size_t most_body; /* bytes; 0: the server's limit */
} harpe_route;

/* The most rows of the table, including the last row, which has a NULL method. */
enum { HARPE_ROUTES_MAX = 20 };
extern const harpe_route harpe_route_table[];

struct harpe_latencies;
/* Returns the metrics in Prometheus' text format; free them with free(). `jobs` is NULL while
 * another server leads, because that server counts the jobs. `http` may be NULL. */
char *harpe_metrics_format(const harpe_jobs *jobs, const harpe_store *store, const harpe_http *http,
                           const struct harpe_latencies *latencies);
/* Appends the metrics of single jobs. `jobs` may be NULL, as for harpe_metrics_format. */
void harpe_metrics_append_jobs(harpe_text *text, const harpe_jobs *jobs);

#endif
