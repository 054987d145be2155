/* SPDX-License-Identifier: Apache-2.0 */
/* One row per route. routes.c dispatches requests by these rows, and /openapi.json is made from
 * them. */
#ifndef HARPE_SERVER_API_ROUTE_TABLE_H
#define HARPE_SERVER_API_ROUTE_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "server/engine/engine.h"

typedef enum harpe_page {
    HARPE_PAGE_NONE, /* the route is a call */
    HARPE_PAGE_INFO,
    HARPE_PAGE_HEALTH,
    HARPE_PAGE_METRICS,
    HARPE_PAGE_OPENAPI,
    HARPE_PAGE_EVENTS, /* the stream of one job, or of all jobs */
    HARPE_PAGE_AUDIT,
} harpe_page;

/* What a client must be allowed to do. */
typedef enum harpe_right {
    HARPE_RIGHT_ENTER, /* every token */
    HARPE_RIGHT_READ,
    HARPE_RIGHT_TRAIN, /* do what a training client does */
    HARPE_RIGHT_STEER,
    HARPE_RIGHT_OVERSEE, /* steer the whole fleet */
} harpe_right;

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
enum { HARPE_ROUTES_MAX = 48 };
extern const harpe_route harpe_route_table[];

/* Returns the right that the route needs. If nothing else is said in route_table.c, GET needs
 * HARPE_RIGHT_READ, and other methods need HARPE_RIGHT_STEER. */
harpe_right harpe_route_right(const harpe_route *route);
/* Returns true if the audit log gets the requests of this route. */
bool harpe_route_is_audited(const harpe_route *route);

#endif
