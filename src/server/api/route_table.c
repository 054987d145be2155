/* SPDX-License-Identifier: Apache-2.0 */
/* Every route of the server. To add a route, add a row here, and a case in routes.c for a page or
 * in the engine for a call. */
#include "server/api/route_table.h"

#include <string.h>

/* Limits for bodies that the loop's thread decodes, and for bodies that are always small. A job has
 * at most 65,536 bytes of metadata, and JSON may use six bytes for each. */
enum { JOB_BYTES = 512 << 10, SMALL_BYTES = 64 << 10, PRICES_BYTES = 1 << 20 };

const harpe_route harpe_route_table[] = {
    /* The published protocol. */
    {"POST", "/register_job", HARPE_PAGE_NONE, HARPE_CALL_REGISTER_JOB, -1, false, false, "JobInfo",
     "JobId", "Register a job (rank 0); answers its id", JOB_BYTES},
    {"POST", "/register_rank/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_REGISTER_RANK, 1, false, false,
     "RankInfo", "Null", "Register one rank of a job", 0},
    {"GET", "/schedule/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_SCHEDULE, 1, true, true, NULL,
     "FrequencySchedule", "A rank's schedule of the next round; held until every rank has asked",
     0},
    {"POST", "/result/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_RESULT, 1, false, true,
     "ProfilingResult", "Null", "Report the measurements of a rank for the round", 0},
    {"GET", "/info", HARPE_PAGE_INFO, 0, -1, false, false, NULL, NULL,
     "Version and settings of the server", 0},
    /* Job requests for online schedulers. */
    {"POST", "/straggler/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_STRAGGLER, 1, false, false,
     "Straggler", "Null",
     "Report a straggler: iterations take this long anyway, so the job can slow down to save "
     "energy",
     SMALL_BYTES},
    {"POST", "/power_cap/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_POWER_CAP, 1, false, false,
     "PowerCap", "Null", "Limit the average power of the whole job", SMALL_BYTES},
    {"POST", "/plan/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_PLAN, 1, false, false, "Plan", "Null",
     "Run the plan of this iteration time", SMALL_BYTES},
    {"POST", "/end/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_END, 1, false, false, "End", "Null",
     "Report that the training of a rank has ended; the job ends with its last rank", SMALL_BYTES},
    /* Reading the state of jobs. */
    {"GET", "/jobs", HARPE_PAGE_NONE, HARPE_CALL_LIST, -1, false, false, NULL, NULL,
     "All jobs, newest first: at most limit jobs, after the place given as next in an earlier "
     "answer",
     0},
    {"GET", "/jobs/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_SHOW, 1, false, false, NULL, NULL,
     "All data of one job", 0},
    {"DELETE", "/jobs/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_EVICT, 1, false, false, NULL, "Null",
     "Evict a job", 0},
    {"GET", "/jobs/{job_id}/frontier", HARPE_PAGE_NONE, HARPE_CALL_FRONTIER, 1, false, false, NULL,
     NULL, "The frontier that a job runs on", 0},
    {"GET", "/jobs/{job_id}/pipeline", HARPE_PAGE_NONE, HARPE_CALL_PIPELINE, 1, false, false, NULL,
     NULL,
     "A plan of the job, instruction by instruction (plan: its number; default: the running plan)",
     0},
    {"GET", "/finished", HARPE_PAGE_NONE, HARPE_CALL_FINISHED, -1, false, false, NULL, NULL,
     "Final reports of evicted jobs, newest first: at most limit reports (100), after the first "
     "offset reports",
     0},
    {"GET", "/finished/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_FINISHED, 1, false, false, NULL, NULL,
     "The final report of an evicted job", 0},
    /* Many jobs under one power budget. */
    {"GET", "/fleet", HARPE_PAGE_NONE, HARPE_CALL_FLEET_SHOW, -1, false, false, NULL, "Fleet",
     "The power of all jobs, budgets, events, prices and energy", 0},
    {"GET", "/fleet/history", HARPE_PAGE_NONE, HARPE_CALL_FLEET_HISTORY, -1, false, false, NULL,
     "FleetHistory", "Power and limit of the last day: at most points points, between from and to",
     0},
    {"PUT", "/fleet/budget", HARPE_PAGE_NONE, HARPE_CALL_FLEET_PUT_BUDGET, -1, false, false,
     "FleetBudget", "FleetMissing",
     "Set the power budget of a group, or of the whole fleet; answers what is missing for it",
     SMALL_BYTES},
    {"DELETE", "/fleet/budget", HARPE_PAGE_NONE, HARPE_CALL_FLEET_DELETE_BUDGET, -1, false, false,
     NULL, "Null", "Remove the power budget of a group", 0},
    {"PUT", "/fleet/groups/{name}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_PUT_GROUP, 2, false, false,
     "FleetGroup", "Null", "Make a group, or move it into another group", SMALL_BYTES},
    {"DELETE", "/fleet/groups/{name}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_DELETE_GROUP, 2, false,
     false, NULL, "Null", "Remove a group that is not used", 0},
    {"PUT", "/fleet/jobs/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_PUT_JOB, 2, false, false,
     "FleetTerms", "Null",
     "Set group, weight, largest slowdown and priority of a job; goes before what the job says",
     SMALL_BYTES},
    {"PUT", "/fleet/loads/{name}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_PUT_LOAD, 2, false, false,
     "FleetLoad", "Null", "Declare a load that cannot be steered", SMALL_BYTES},
    {"DELETE", "/fleet/loads/{name}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_DELETE_LOAD, 2, false,
     false, NULL, "Null", "Remove a load", 0},
    {"PUT", "/fleet/members/{name}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_PUT_MEMBER, 2, false, false,
     "FleetMember", "Null",
     "Declare a job that is not registered here, with its plans; it asks for its plan by reports",
     SMALL_BYTES},
    {"DELETE", "/fleet/members/{name}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_DELETE_MEMBER, 2, false,
     false, NULL, "Null", "Remove a declared job", 0},
    {"POST", "/fleet/members/{name}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_REPORT, 2, false, false,
     "FleetReport", "FleetPlan",
     "Report the plan and the measured power of a declared job; answers the plan that it must run",
     SMALL_BYTES},
    {"POST", "/fleet/events", HARPE_PAGE_NONE, HARPE_CALL_FLEET_POST_EVENT, -1, false, false,
     "FleetEvent", "FleetPromise",
     "Announce a time with less power; answers what is promised and what is missing", SMALL_BYTES},
    {"DELETE", "/fleet/events/{id}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_DELETE_EVENT, 2, false,
     false, NULL, "Null", "Cancel an event; if it runs, its ramp begins", 0},
    {"PUT", "/fleet/prices", HARPE_PAGE_NONE, HARPE_CALL_FLEET_PUT_PRICES, -1, false, false,
     "FleetPrices", "Null", "Set the prices of energy over time", PRICES_BYTES},
    {"DELETE", "/fleet/prices", HARPE_PAGE_NONE, HARPE_CALL_FLEET_DELETE_PRICES, -1, false, false,
     NULL, "Null", "Remove the prices", 0},
    {"GET", "/events", HARPE_PAGE_EVENTS, 0, -1, false, false, NULL, NULL,
     "Changes of all jobs as they happen (server-sent events)", 0},
    {"GET", "/jobs/{job_id}/events", HARPE_PAGE_EVENTS, 0, 1, false, false, NULL, NULL,
     "Changes of one job as they happen (server-sent events)", 0},
    {"GET", "/healthz", HARPE_PAGE_HEALTH, 0, -1, false, false, NULL, NULL,
     "Checks whether the server can serve. 503: it cannot now. Needs no token", 0},
    {"GET", "/metrics", HARPE_PAGE_METRICS, 0, -1, false, false, NULL, NULL,
     "Counters and latencies in Prometheus' text format", 0},
    {"GET", "/openapi.json", HARPE_PAGE_OPENAPI, 0, -1, false, false, NULL, NULL,
     "This description", 0},
    {"GET", "/fleet/audit", HARPE_PAGE_AUDIT, 0, -1, false, false, NULL, NULL,
     "Who has asked for a change and what came of it, newest first: at most limit records", 0},
    {0},
};

/* Returns the right of a page. */
static harpe_right right_of_page(harpe_page page) {
    switch (page) {
    case HARPE_PAGE_INFO: /* training clients ask for it first */
    case HARPE_PAGE_OPENAPI: return HARPE_RIGHT_ENTER;
    case HARPE_PAGE_AUDIT: return HARPE_RIGHT_OVERSEE;
    default: return HARPE_RIGHT_READ;
    }
}

harpe_right harpe_route_right(const harpe_route *route) {
    if (route->page) return right_of_page(route->page);
    switch (route->call) {
    case HARPE_CALL_REGISTER_JOB:
    case HARPE_CALL_REGISTER_RANK:
    case HARPE_CALL_SCHEDULE:
    case HARPE_CALL_RESULT:
    case HARPE_CALL_END:
    case HARPE_CALL_FLEET_PUT_MEMBER: /* a training client declares itself, reports and leaves */
    case HARPE_CALL_FLEET_DELETE_MEMBER:
    case HARPE_CALL_FLEET_REPORT: return HARPE_RIGHT_TRAIN;
    default: return strcmp(route->method, "GET") == 0 ? HARPE_RIGHT_READ : HARPE_RIGHT_STEER;
    }
}

bool harpe_route_is_audited(const harpe_route *route) {
    if (harpe_route_right(route) == HARPE_RIGHT_STEER) return true;
    return !route->page &&
           (route->call == HARPE_CALL_END || route->call == HARPE_CALL_FLEET_PUT_MEMBER ||
            route->call == HARPE_CALL_FLEET_DELETE_MEMBER);
}

_Static_assert(sizeof harpe_route_table / sizeof *harpe_route_table <= HARPE_ROUTES_MAX,
               "latencies.c has too few places");
