/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates a fleet over time under one of three ways to bring it under its budgets: Harpe's split,
 * one power cap for all GPUs, and stopping the jobs of lowest priority. */
#ifndef HARPE_FLEET_SIMULATE_H
#define HARPE_FLEET_SIMULATE_H

#include "fleet/fleet_file.h"

typedef enum harpe_fleet_policy {
    HARPE_FLEET_SPLIT = 0,
    HARPE_FLEET_UNIFORM_CAP,
    HARPE_FLEET_STOP_LOWEST,
    HARPE_FLEET_POLICY_COUNT,
} harpe_fleet_policy;

/* A time in which a group's meter showed more than its budget. */
typedef struct harpe_fleet_breach {
    int group;
    double from_s, to_s;
    double worst_w; /* above the budget */
} harpe_fleet_breach;

/* From here to the next sample, of the whole fleet, as its meter shows it. */
typedef struct harpe_fleet_sample {
    double at_s;
    double power_w;
    double budget_w; /* negative: none */
} harpe_fleet_sample;

/* What one job got. */
typedef struct harpe_fleet_job_day {
    double here_s; /* between its arrival and its end */
    double done_s; /* work, in seconds of the fastest plan */
    double stopped_s;
    double energy_j; /* of the job alone */
    bool is_done;    /* its work is complete */
} harpe_fleet_job_day;

typedef struct harpe_fleet_day {
    harpe_fleet_job_day *jobs; /* [jobs of the file] */
    size_t breach_count, breach_capacity;
    harpe_fleet_breach *breaches; /* by time */
    size_t sample_count, sample_capacity;
    harpe_fleet_sample *samples;
    double energy_j; /* with the overhead of the whole fleet */
    double cost, carbon_kg;
    double weighted_slowdown; /* sum of weight * (here / done - 1), of the jobs that did any work */
    double lost_s;            /* sum of weight * (here - done) */
    double stopped_s;         /* sum over all jobs */
    size_t without_work;      /* jobs that were there and did nothing */
    size_t too_slow;          /* jobs slower than they accept, over the whole time */
    size_t decisions;
} harpe_fleet_day;

/* Simulates from 0 to the file's horizon. `check` may be NULL; it is called before each decision,
 * and a status other than HARPE_OK ends the simulation. A plan takes effect after the file's
 * reaction time, or after the iteration that runs if that is longer. Jobs that need more power wait
 * until those that need less have changed. A budget that falls is known before only if an event
 * gives notice. Free with harpe_fleet_day_clear. */
harpe_status harpe_fleet_simulate(const harpe_fleet_file *file, const char *name,
                                  harpe_fleet_policy policy, harpe_status (*check)(harpe_error *),
                                  harpe_fleet_day *day, harpe_error *error);
void harpe_fleet_day_clear(harpe_fleet_day *day);

#endif
