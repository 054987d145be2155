/* SPDX-License-Identifier: Apache-2.0 */
/* A fleet over time, as in a file (harpe-fleet(5)): jobs that come and go, budgets, prices and
 * events. Times count from the beginning of the file's time. */
#ifndef HARPE_FLEET_FLEET_FILE_H
#define HARPE_FLEET_FLEET_FILE_H

#include <harpe/fleet.h>

#include "base/array.h"
#include "fleet/price_series.h"

typedef struct harpe_fleet_file_job {
    const char *name;
    const char *group_name; /* NULL: no group */
    int group;
    double weight, max_slowdown, priority;
    double gpus;  /* 0: not known */
    bool is_load; /* cannot be steered or stopped */
    size_t plan_count;
    harpe_fleet_plan *plans;
    double arrival_s, end_s; /* end: INFINITY: none */
    double work_s; /* how long the job takes with its fastest plan; INFINITY: until its end */
} harpe_fleet_file_job;

typedef struct harpe_fleet_file_group {
    const char *name, *parent_name; /* NULL: the whole fleet */
    int parent;                     /* -1 for group 0 */
    harpe_fleet_budget budget;
} harpe_fleet_file_group;

typedef struct harpe_fleet_file_event {
    const char *group_name; /* NULL: the whole fleet */
    int group;
    double from_s, duration_s;
    double watts_less, share_less; /* one of them is 0 */
    double notice_s;               /* it is known so long before it begins */
} harpe_fleet_file_event;

/* All texts and arrays are in the arena. */
typedef struct harpe_fleet_file {
    harpe_arena arena;
    size_t job_count, group_count, price_count, event_count;
    harpe_fleet_file_job *jobs;
    harpe_fleet_file_group *groups; /* parents before children; [0]: the whole fleet */
    harpe_fleet_file_price *prices; /* by time */
    harpe_fleet_file_event *events;
    double carbon_per_kg, value_per_s;
    double reaction_s;   /* until a job follows a new plan, if its iterations are not longer */
    double ramp_w_per_s; /* how fast a budget comes back after an event; INFINITY: at once */
    double horizon_s;    /* length of a simulation */
} harpe_fleet_file;

/* Returns the watts of a group's budget at a moment: less the events that run then and that are
 * known at `known_s`. Negative: none. */
double harpe_fleet_file_watts(const harpe_fleet_file *file, int group, double at_s, double known_s);

/* Returns the price at a moment; zeros if the file has no price. Before the first entry, the first
 * one holds. */
harpe_fleet_price harpe_fleet_file_price_at(const harpe_fleet_file *file, double at_s);

/* Replaces the prices by those of a CSV file with the columns time_s, price_per_kwh and,
 * optionally, carbon_g_per_kwh. */
harpe_status harpe_fleet_file_read_prices(harpe_fleet_file *file, const char *path,
                                          harpe_error *error);

/* Returns the description of a job for harpe_fleet_add. It points into the file. */
harpe_fleet_job harpe_fleet_file_description(const harpe_fleet_file_job *job);

/* Makes the fleet of a moment. The jobs have the numbers of the file's jobs; jobs that are not
 * there at the moment have been removed. Checks the numbers of all jobs and budgets. `name` begins
 * the error. */
harpe_status harpe_fleet_file_fleet(const harpe_fleet_file *file, const char *name, double at_s,
                                    harpe_fleet **out, harpe_error *error);

void harpe_fleet_file_free(harpe_fleet_file *file); /* frees the contents, not the struct */

/* Read a file from JSON, of at most 256 MiB. Free with harpe_fleet_file_free. Errors are like those
 * of harpe_fleet_read_json. harpe_fleet_file_fleet checks the plans of the jobs. */
harpe_status harpe_fleet_file_parse(const char *text, size_t length, const char *name,
                                    harpe_fleet_file *out, harpe_error *error);
harpe_status harpe_fleet_file_read(const char *path, harpe_fleet_file *out, harpe_error *error);

#endif
