/* SPDX-License-Identifier: Apache-2.0 */
/* What commands and the server need besides <harpe/fleet.h>: series of prices, fleets in files, and
 * their simulation. */
#ifndef HARPE_FLEET_FLEET_TOOLS_H
#define HARPE_FLEET_FLEET_TOOLS_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/fleet.h>
#include <harpe/status.h>

#include "base/array.h"

/* Returns true if nothing has changed since harpe_fleet_solve. */
bool harpe_fleet_is_solved(const harpe_fleet *fleet);

/* ---- Series of prices ------------------------------------------------------------------------ */

/* Reads a time series of energy prices and carbon intensities from a text in CSV or JSON, and a
 * moment that a person or another program has written. */

/* The latest moment, in seconds since 1970. */
#define HARPE_MOMENT_MAX_S 1e11

/* Reads seconds since 1970, such as 1764100000.5, or a time of ISO 8601 with its offset from UTC,
 * such as 2026-11-26T06:00Z, 2026-11-26 07:00:00+01:00 or 2026-11-26T07:00:00.5+0100. Returns false
 * for another text, and for a moment before 1970 or after HARPE_MOMENT_MAX_S. */
bool harpe_moment_read(const char *text, size_t length, double *seconds);

/* The longest text, and the most prices in it. */
#define HARPE_PRICE_SERIES_BYTES ((size_t)64 << 20)
#define HARPE_PRICE_SERIES_MAX 1000000

/* Holds until the next price. */
typedef struct harpe_fleet_file_price {
    double from_s, energy_per_kwh, carbon_g_per_kwh;
} harpe_fleet_file_price;

/* Returns the price at a moment; zeros if there is none. Before the first one, the first one holds.
 */
harpe_fleet_price harpe_price_at(const harpe_fleet_file_price *prices, size_t count, double at_s,
                                 double carbon_per_kg, double value_per_s);

typedef struct harpe_price_series {
    harpe_fleet_file_price *prices; /* by time; at least one */
    size_t count;
    bool is_of_day; /* the times are seconds since 1970; false: they count from some beginning */
} harpe_price_series;

/* Reads CSV. The columns are time_s or at, price_per_kwh and, optionally, carbon_g_per_kwh, in any
 * order. `at` is a moment. Errors begin with `name`, the line and the column. */
harpe_status harpe_price_series_read_csv(const char *text, size_t length, const char *name,
                                         harpe_price_series *out, harpe_error *error);
/* Reads CSV, or JSON if the text begins with [ or {: a list of objects with at, energy_per_kwh and,
 * optionally, carbon_g_per_kwh, or an object with such a list as its member series. */
harpe_status harpe_price_series_read(const char *text, size_t length, const char *name,
                                     harpe_price_series *out, harpe_error *error);
void harpe_price_series_free(harpe_price_series *series); /* frees the contents */

/* ---- Files ----------------------------------------------------------------------------------- */

/* A fleet over time, as in a file (harpe-fleet(5)): jobs that come and go, budgets, prices and
 * events. Times count from the beginning of the file's time. */

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

/* Returns the price at a moment, as harpe_price_at does. */
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

/* ---- Simulation ------------------------------------------------------------------------------ */

/* Simulates a fleet over time under one of three ways to bring it under its budgets: Harpe's split,
 * one power cap for all GPUs, and stopping the jobs of lowest priority. */

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
