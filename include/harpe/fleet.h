/* SPDX-License-Identifier: Apache-2.0 */
/* Many jobs under one power budget: chooses a plan for each job so that all jobs together lose the
 * least time.
 *
 *     harpe_fleet_new, _add_group, _set_budget, _add --> _solve --> harpe_fleet_choice_of
 *
 * A plan of a job has a time (of an iteration) and a power (of the whole job). The slowdown of a
 * plan is its time divided by the time of the job's fastest plan. The split, one plan for each job,
 * minimises
 *
 *     sum over all jobs of weight * (slowdown - 1)                                     objective
 *     + price * overhead factor * sum over all jobs of power * slowdown                (cost per s)
 *
 * so that in each group the power of all jobs is within the group's budget. Without a price, the
 * second term is left out. With a negative price, it is negative. Groups nest, and group 0 is the
 * whole fleet.
 *
 * A fleet keeps its solution. After a change, harpe_fleet_solve begins with the last solution and
 * looks again only at the groups that contain the change.
 *
 * Powers are in watts, times in seconds. The solver counts power in whole microwatts. A fleet may
 * be used by one thread at a time. */
#ifndef HARPE_FLEET_H
#define HARPE_FLEET_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/api.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

#define HARPE_FLEET_NAME_MAX 255      /* longest name of a job or group, in bytes */
#define HARPE_FLEET_JOBS_MAX 1000000  /* most jobs of a fleet */
#define HARPE_FLEET_PLANS_MAX 10000   /* most plans of a job */
#define HARPE_FLEET_GROUPS_MAX 100000 /* most groups of a fleet, with group 0 */
#define HARPE_FLEET_DEPTH_MAX 32      /* most groups that contain one another, with group 0 */

typedef struct harpe_fleet harpe_fleet;

/* One way to run a job. */
typedef struct harpe_fleet_plan {
    double time_s;  /* 1e-9 .. 1e9 */
    double power_w; /* 0 .. 1e9, of all GPUs of the job */
} harpe_fleet_plan;

/* A job. A load that cannot be steered is a job with one plan. */
typedef struct harpe_fleet_job {
    const char *name; /* 1 .. HARPE_FLEET_NAME_MAX bytes without control characters, for messages;
                       * two jobs may have the same name */
    int group;        /* 0: the job is only in the whole fleet */
    double weight;    /* value of its time: 0 .. 1e12 */
    double max_slowdown;           /* largest accepted slowdown, 1 .. 1e9; 0: any */
    size_t plan_count;             /* 1 .. HARPE_FLEET_PLANS_MAX */
    const harpe_fleet_plan *plans; /* fastest first; of equal times in any order */
} harpe_fleet_job;

/* The budget of a group. The power of the jobs, times the overhead factor, must be at most
 * watts * (1 - margin). */
typedef struct harpe_fleet_budget {
    double watts;    /* 0 .. 1e12; negative: the group has no budget */
    double margin;   /* the part of the watts that must stay free: 0 .. 0.99 */
    double overhead; /* how many watts the budget's meter counts for one watt of a job, for a whole
                      * building the PUE: 1 .. 10; 0 means 1 */
} harpe_fleet_budget;

/* What energy costs, in any currency. */
typedef struct harpe_fleet_price {
    double energy_per_kwh;   /* -1e6 .. 1e6; negative: the supplier pays for used energy */
    double carbon_g_per_kwh; /* 0 .. 1e6 */
    double carbon_per_kg;    /* what a kilogram of carbon dioxide costs: 0 .. 1e6 */
    double value_per_s;      /* what a second of a job of weight 1 is worth: 0 .. 1e6; 0 means 1 */
} harpe_fleet_price;

/* A solution as a whole. */
typedef struct harpe_fleet_split {
    size_t job_count;
    double power_w;           /* of all jobs */
    double weighted_slowdown; /* sum of weight * (slowdown - 1) */
    double objective;         /* the minimised sum; without a price, it is weighted_slowdown; with
                               * a negative price, it and lower_bound may be negative */
    double lower_bound;       /* no split within the budgets has a lower objective */
    bool is_optimal;          /* the search was complete, or the objective is the lower bound */
    bool is_feasible; /* all budgets hold. If not, harpe_fleet_use_of tells which budgets do not
                       * hold; the jobs in these groups draw the least power that they can */
} harpe_fleet_split;

/* What the solution chose for one job. */
typedef struct harpe_fleet_choice {
    size_t plan; /* index into the job's plans */
    double time_s;
    double power_w;
    double slowdown;
    double gain_per_w;  /* how much the objective falls for each of the first watts that the job
                         * gets beyond its plan; 0 for the best plan */
    double price_per_w; /* how much the objective of the relaxation falls if the job gets one more
                         * watt: the sum of the prices of the job's groups */
} harpe_fleet_choice;

/* The state of one group in the solution. */
typedef struct harpe_fleet_use {
    double budget_w;    /* as set; negative: none */
    double limit_w;     /* what the jobs may draw: watts * (1 - margin) / overhead; negative: any */
    double power_w;     /* what the jobs draw */
    double least_w;     /* what the jobs draw at least, with the slowdowns that they accept */
    double missing_w;   /* by how much the budget is too small for least_w; 0: it is not */
    double price_per_w; /* the budget's own multiplier, in objective per watt of the jobs */
} harpe_fleet_use;

/* ---- Building -------------------------------------------------------------------------------- */

/* Makes a fleet without jobs, with group 0. Free with harpe_fleet_free. */
HARPE_API harpe_status harpe_fleet_new(harpe_fleet **out, harpe_error *error);
HARPE_API void harpe_fleet_free(harpe_fleet *fleet);

/* Adds a group inside of `parent` (0: the whole fleet). Groups are numbered from 1 in order. A name
 * may occur twice; the library uses it only in messages. */
HARPE_API harpe_status harpe_fleet_add_group(harpe_fleet *fleet, const char *name, int parent,
                                             int *group, harpe_error *error);
/* Return the number of groups, with group 0; the name of a group ("" for group 0); and its parent
 * (-1 for group 0). For a group that does not exist, they return NULL and -1. */
HARPE_API int harpe_fleet_group_count(const harpe_fleet *fleet);
HARPE_API const char *harpe_fleet_group_name(const harpe_fleet *fleet, int group);
HARPE_API int harpe_fleet_group_parent(const harpe_fleet *fleet, int group);

/* Sets the budget of one group. A new group has none. */
HARPE_API harpe_status harpe_fleet_set_budget(harpe_fleet *fleet, int group,
                                              const harpe_fleet_budget *budget, harpe_error *error);
/* Sets the watts of the groups 0 .. count - 1, and keeps margins and overheads, so that the fleet
 * can be solved for another moment. The next solve does not look again at groups whose watts are
 * unchanged. */
HARPE_API harpe_status harpe_fleet_set_watts(harpe_fleet *fleet, const double *watts, size_t count,
                                             harpe_error *error);
/* Sets the price of energy, which the objective contains. If `price` is NULL or all its members are
 * 0, there is no price. If only energy and carbon cost nothing, the objective is value_per_s times
 * the weighted slowdown. So a price of exactly 0 gives nearly the same split as a price near 0.
 * After a change of the price, the next solve looks at all jobs again. */
HARPE_API harpe_status harpe_fleet_set_price(harpe_fleet *fleet, const harpe_fleet_price *price,
                                             harpe_error *error);

/* Adds a job, and copies its description. `*job` identifies the job until it is removed. After
 * that, another job may get the number. The sum of the highest powers of all jobs is at most 9e12
 * W. Fails with HARPE_INVALID_INPUT if a number is out of its range; the message names the job. */
HARPE_API harpe_status harpe_fleet_add(harpe_fleet *fleet, const harpe_fleet_job *description,
                                       int *job, harpe_error *error);
/* Replaces a job by another description. The number stays the same. */
HARPE_API harpe_status harpe_fleet_update(harpe_fleet *fleet, int job,
                                          const harpe_fleet_job *description, harpe_error *error);
HARPE_API harpe_status harpe_fleet_remove(harpe_fleet *fleet, int job, harpe_error *error);
/* Returns a number that is above the numbers of all jobs, for a loop over them. Some numbers below
 * it may have no job. */
HARPE_API int harpe_fleet_job_end(const harpe_fleet *fleet);
/* Returns the name of a job, or NULL if there is no such job. */
HARPE_API const char *harpe_fleet_job_name(const harpe_fleet *fleet, int job);

/* ---- Solving --------------------------------------------------------------------------------- */

/* Finds the split. The relaxation, in which a job may mix two plans, is solved exactly and gives
 * the lower bound. This takes O(jobs * log plans) for each level of groups. Then each job gets a
 * plan. Fleets of up to 16 jobs are searched completely, or until the search has visited two
 * million nodes. The result depends on the fleet alone, not on earlier solutions. Infeasible
 * budgets are not an error: see harpe_fleet_split. */
HARPE_API harpe_status harpe_fleet_solve(harpe_fleet *fleet, harpe_fleet_split *split,
                                         harpe_error *error);

/* Read the solution. They fail with HARPE_NOT_FOUND if there is no such job or group, and with
 * HARPE_INVALID_ARGUMENT if the fleet has changed since harpe_fleet_solve. */
HARPE_API harpe_status harpe_fleet_choice_of(const harpe_fleet *fleet, int job,
                                             harpe_fleet_choice *choice, harpe_error *error);
HARPE_API harpe_status harpe_fleet_use_of(const harpe_fleet *fleet, int group, harpe_fleet_use *use,
                                          harpe_error *error);

/* Checks the solution with separate code, from the descriptions of the jobs: each plan is one that
 * the job accepts, the budgets hold, the sums are right, and the multipliers of the budgets prove
 * the lower bound (weak duality). Fails with HARPE_INTERNAL if the solution is wrong. O(plans). */
HARPE_API harpe_status harpe_fleet_verify(const harpe_fleet *fleet, harpe_error *error);

/* ---- Files ----------------------------------------------------------------------------------- */

/* Reads a JSON file (harpe-fleet(5)) of at most 256 MiB, and makes its fleet as it is at the moment
 * `at_s` (0 .. 1e9): the jobs, the price, and the budgets, reduced by the events of this moment. A
 * job's number is its position in the file. A job that has not arrived or has ended is not in the
 * fleet. Errors begin with the file's name, and name the job, budget, price or event. */
HARPE_API harpe_status harpe_fleet_read_json(const char *path, double at_s, harpe_fleet **out,
                                             harpe_error *error);
/* Does the same for a JSON text in memory. `name` replaces the file's name in errors. `text` need
 * not end in NUL. */
HARPE_API harpe_status harpe_fleet_parse_json(const char *text, size_t length, const char *name,
                                              double at_s, harpe_fleet **out, harpe_error *error);

HARPE_END_DECLS

#endif
