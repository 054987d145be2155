/* SPDX-License-Identifier: Apache-2.0 */
/* Every route of the server. To add a route, add a row here, and a case in routes.c for a page or
 * in the engine for a call. */
#include "server/api/route_table.h"

/* Limits for bodies that the loop's thread decodes, and for bodies that are always small. A job has
 * at most 65,536 bytes of metadata, and JSON may use six bytes for each. */
enum { JOB_BYTES = 512 << 10, SMALL_BYTES = 64 << 10 };

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
    {0},
};

_Static_assert(sizeof harpe_route_table / sizeof *harpe_route_table <= HARPE_ROUTES_MAX,
               "latencies.c has too few places");
