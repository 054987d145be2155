/* SPDX-License-Identifier: Apache-2.0 */
/* One row per route: what routes.c dispatches by and what /openapi.json says. */
#ifndef HARPE_SERVER_ROUTE_TABLE_H
#define HARPE_SERVER_ROUTE_TABLE_H

#include <stdbool.h>

#include "base/text.h"
#include "server/http.h"
#include "server/jobs.h"
#include "server/store.h"

typedef enum harpe_page {
    HARPE_PAGE_NONE, /* the route is a call */
    HARPE_PAGE_INFO,
    HARPE_PAGE_HEALTH,
    HARPE_PAGE_METRICS,
    HARPE_PAGE_OPENAPI,
    HARPE_PAGE_EVENTS, /* of a job, or of all */
} harpe_page;

typedef struct harpe_route {
    const char *method, *path; /* "/schedule/{job_id}" */
    harpe_page page;
    harpe_call_kind call;
    int job_segment; /* which segment is the job's id; -1: none */
    bool needs_rank, takes_round;
    const char *body_schema;   /* name in openapi.c; NULL: takes no body */
    const char *answer_schema; /* of a 200; NULL: any JSON */
    const char *summary;
} harpe_route;

/* Ended by a NULL method, which counts. */
enum { HARPE_ROUTES_MAX = 20 };
extern const harpe_route harpe_route_table[];

struct harpe_latencies;
/* Prometheus' text format; to be freed with free(). `jobs` is NULL while another server leads: it
 * counts them. `http` may be NULL. */
char *harpe_metrics_format(const harpe_jobs *jobs, const harpe_store *store, const harpe_http *http,
                           const struct harpe_latencies *latencies);
/* Its part about single jobs; `jobs` as above. */
void harpe_metrics_append_jobs(harpe_text *text, const harpe_jobs *jobs);

#endif
