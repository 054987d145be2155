/* SPDX-License-Identifier: Apache-2.0 */
/* The data of a fleet: groups, jobs with their hulls, and the last solution, and what the sources
 * of this folder share.
 *
 * Power is counted in whole microwatts, so sums are exact in any order. The cost of a plan is its
 * part of the objective. */
#ifndef HARPE_FLEET_FLEET_INTERNAL_H
#define HARPE_FLEET_FLEET_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/fleet.h>

#define HARPE_FLEET_NO_LIMIT INT64_MAX

/* A plan that no other plan of its job beats. */
typedef struct harpe_fleet_option {
    int64_t power_uw;
    double cost;
    size_t plan; /* index into the job's plans */
} harpe_fleet_option;

/* The plans of a job that a split may use, by increasing power and falling cost. The hull is the
 * lower convex hull of these options. Between two of its vertices lies a segment, whose gain is the
 * fall of the cost for a microwatt. The gains fall strictly. */
typedef struct harpe_fleet_hull {
    size_t option_count;
    harpe_fleet_option *options;
    size_t vertex_count;
    size_t *vertices;  /* indices into options */
    int64_t *power_uw; /* [vertex_count] */
    double *gain;      /* [vertex_count - 1] */
} harpe_fleet_hull;

typedef struct harpe_fleet_member {
    bool is_used;
    char *name;
    int group;
    double weight, max_slowdown;
    size_t plan_count;
    harpe_fleet_plan *plans;
    harpe_fleet_hull hull;
    bool has_hull; /* false after a change of the job or the price */
    size_t vertex; /* of the hull, at the price of the last solution */
    size_t option; /* the choice of the last solution */
    int next_free; /* of an unused slot */
    size_t place;  /* in its group's list */
} harpe_fleet_member;

typedef struct harpe_fleet_group {
    char *name;
    int parent; /* a lower number; -1: none */
    int depth;
    int first_child, next_sibling; /* -1: none */
    harpe_fleet_budget budget;
    int *jobs; /* direct members */
    size_t job_count, job_capacity;
    bool is_changed; /* it, or a group inside of it, changed since the last solution */

    /* The last solution. */
    int64_t least_uw;  /* of the jobs in it and its groups */
    int64_t limit_uw;  /* the budget, or least_uw if the budget is lower; HARPE_FLEET_NO_LIMIT */
    int64_t budget_uw; /* the budget; HARPE_FLEET_NO_LIMIT */
    int64_t power_uw;
    int64_t vertex_uw; /* power of the jobs' vertices */
    double threshold;  /* price of a microwatt at which the jobs fit into this group; 0: any */
    int64_t spare_uw;  /* what segments whose gain is the threshold may still take */
    double price;      /* the highest threshold of the group and the groups around it */
    int core;          /* for rounding.c */
    bool is_counted;   /* for the search */
} harpe_fleet_group;

struct harpe_fleet {
    harpe_fleet_member *jobs;
    size_t job_slots, job_capacity; /* used and unused */
    size_t job_count;
    int first_free;   /* -1: none */
    double highest_w; /* sum of the highest powers of all jobs */
    harpe_fleet_group *groups;
    size_t group_count, group_capacity;
    harpe_fleet_price price;
    bool is_solved;
    harpe_fleet_split split;
};

/* ---- solve.c: the hull of a job -------------------------------------------------------------- */

/* Returns the cost of a plan: its part of the objective. `overhead` is that of the whole fleet. */
double harpe_fleet_cost(const harpe_fleet_member *job, const harpe_fleet_price *price,
                        double overhead, size_t plan);

/* Makes the hull of a job again. O(plans * log plans), or O(plans) if the powers fall with the
 * times. On failure the hull is unchanged. */
harpe_status harpe_fleet_hull_make(harpe_fleet_member *job, const harpe_fleet_price *price,
                                   double overhead, harpe_error *error);
void harpe_fleet_hull_clear(harpe_fleet_hull *hull);

/* ---- rounding.c ------------------------------------------------------------------------------ */

/* Chooses an option of each job, and sets `power_uw` of each group. All groups have prices.
 * `*is_complete` is true if a search has shown that no choice is better. */
harpe_status harpe_fleet_round(harpe_fleet *fleet, bool *is_complete, harpe_error *error);

#endif
