/* SPDX-License-Identifier: Apache-2.0 */
/* Every route of the server. A new one is a row here, and a case in routes.c where it is a page or
 * in the engine where it is a call. */
#include "server/route_table.h"

const harpe_route harpe_route_table[] = {
    /* The published protocol. */
    {"POST", "/register_job", HARPE_PAGE_NONE, HARPE_CALL_REGISTER_JOB, -1, false, false, "JobInfo",
     "JobId", "Register a job (rank 0); answers its id"},
    {"POST", "/register_rank/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_REGISTER_RANK, 1, false, false,
     "RankInfo", "Null", "Register one rank of a job"},
    {"GET", "/schedule/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_SCHEDULE, 1, true, true, NULL,
     "FrequencySchedule", "A rank's schedule of the next round; held until every rank has asked"},
    {"POST", "/result/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_RESULT, 1, false, true,
     "ProfilingResult", "Null", "What a rank measured in the round"},
    {"GET", "/info", HARPE_PAGE_INFO, 0, -1, false, false, NULL, NULL,
     "Version and settings of the server"},
    /* Wishes for online schedulers. */
    {"POST", "/straggler/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_STRAGGLER, 1, false, false,
     "Straggler", "Null", "Iterations take this long anyway; slow down to save energy"},
    {"POST", "/power_cap/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_POWER_CAP, 1, false, false,
     "PowerCap", "Null", "Limit the average power of the whole job"},
    {"POST", "/plan/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_PLAN, 1, false, false, "Plan", "Null",
     "Run the plan of this iteration time"},
    {"POST", "/end/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_END, 1, false, false, "End", "Null",
     "The training of a rank ends; when all ranks have said so the job has ended"},
    /* Looking at it. */
    {"GET", "/jobs", HARPE_PAGE_NONE, HARPE_CALL_LIST, -1, false, false, NULL, NULL,
     "All jobs, newest first: at most limit, after the place that an earlier answer called next"},
    {"GET", "/jobs/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_SHOW, 1, false, false, NULL, NULL,
     "Everything known of one job"},
    {"DELETE", "/jobs/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_EVICT, 1, false, false, NULL, "Null",
     "Evict a job"},
    {"GET", "/jobs/{job_id}/frontier", HARPE_PAGE_NONE, HARPE_CALL_FRONTIER, 1, false, false, NULL,
     NULL, "The frontier that a job runs on"},
    {"GET", "/jobs/{job_id}/pipeline", HARPE_PAGE_NONE, HARPE_CALL_PIPELINE, 1, false, false, NULL,
     NULL, "A plan of it, instruction by instruction (plan: its number, or the running one)"},
    {"GET", "/events", HARPE_PAGE_EVENTS, 0, -1, false, false, NULL, NULL,
     "What changes among jobs, as it happens (server-sent events)"},
    {"GET", "/jobs/{job_id}/events", HARPE_PAGE_EVENTS, 0, 1, false, false, NULL, NULL,
     "What changes of one job, as it happens (server-sent events)"},
    {"GET", "/healthz", HARPE_PAGE_HEALTH, 0, -1, false, false, NULL, NULL,
     "Can the server serve? 503: not now. Needs no token"},
    {"GET", "/metrics", HARPE_PAGE_METRICS, 0, -1, false, false, NULL, NULL,
     "Counters and latencies in Prometheus' text format"},
    {"GET", "/openapi.json", HARPE_PAGE_OPENAPI, 0, -1, false, false, NULL, NULL,
     "This description"},
    {0},
};

_Static_assert(sizeof harpe_route_table / sizeof *harpe_route_table <= HARPE_ROUTES_MAX,
               "latencies.c has too few places");
