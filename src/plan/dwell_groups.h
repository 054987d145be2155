/* SPDX-License-Identifier: Apache-2.0 */
/* Plans in which groups of neighbouring instructions of a rank run at one clock each: their clocks,
 * time and energy. dwell.c searches such plans. Private to src/plan. */
#ifndef HARPE_PLAN_DWELL_GROUPS_H
#define HARPE_PLAN_DWELL_GROUPS_H

#include <math.h>

#include "plan/problem.h"

/* Relative tolerance for times that are sums of doubles. */
#define HARPE_DWELL_ROUNDING 1e-12

/* Instructions first .. end - 1 of a rank, which run at one clock. The first of them has a clock;
 * instructions without clocks belong to the group before them. Those at the start of a list belong
 * to no group: they keep the clock of the last one, and their time and energy are always the
 * same. */
typedef struct harpe_group {
    int32_t first, end;
    int32_t clock_count; /* clocks that all of its instructions were measured at */
    int32_t first_clock; /* their place in `clocks`: the fastest first */
    int32_t clock;       /* chosen, 0 .. clock_count - 1 */
} harpe_group;

/* One clock of a group. */
typedef struct harpe_group_clock {
    int frequency_mhz;
    double time_s, energy_j; /* sums over the group; energy is effective */
    int32_t first_point;     /* place in `points` of the first instruction's point */
} harpe_group_clock;

/* A division of all lists into groups, and a plan with one clock for each group. */
typedef struct harpe_groups {
    const harpe_problem *problem;
    harpe_clock_switch cost;
    double change_j, needed_s; /* of a change of clock: its energy, and the longest time that a
                                * clock must hold */
    double deadline_s;         /* of the plan; INFINITY: none */
    bool may_be_short;         /* groups may take less than needed_s at some clocks */
    bool *is_exempt;           /* [rank]: its clocks cannot hold; see harpe_groups_init */
    int *common_mhz;           /* scratch: clocks that some instructions have in common */
    harpe_group *items;
    int32_t count;
    harpe_group_clock *clocks;
    size_t clock_count, clock_capacity;
    const harpe_profile_point **points;
    size_t point_count, point_capacity;
    double *time_s, *end_s; /* [instruction]: of the present plan */
    double *longest_s;      /* [place in the topological order]: the latest end up to here */
    double *tail_s;         /* [instruction]: least time from its end to the end of the iteration */
    int32_t *place;         /* [instruction]: place in the topological order */
    int32_t valid;          /* ends before this place are those of the present plan */
    uint64_t visits;        /* ends that were computed */
} harpe_groups;

/* Begins without groups. A rank is exempt from holding its clocks if its instructions have no clock
 * in common, and a clock holds too briefly even if the rank changes it only where it must. */
harpe_status harpe_groups_init(harpe_groups *groups, const harpe_problem *problem,
                               const harpe_clock_switch *cost, double deadline_s,
                               harpe_error *error);
void harpe_groups_clear(harpe_groups *groups);

/* Divides the list of each rank into groups that hold for at least `wanted_s` even at their
 * fastest, beginning `offset` instructions after the start of the list. The rest joins the last
 * group. A group also ends where the next instruction has no clock in common with it, and only
 * there if the rank is exempt. The clocks are the fastest. */
harpe_status harpe_groups_divide(harpe_groups *groups, double wanted_s, int32_t offset,
                                 harpe_error *error);

/* Makes the runs of equal clocks of a plan the groups, and their clocks those of the plan. They may
 * hold too briefly: see harpe_groups_hold. */
harpe_status harpe_groups_divide_like(harpe_groups *groups, const int *frequency_mhz,
                                      harpe_error *error);

/* Returns the shortest time that an instruction was measured to take. */
double harpe_groups_shortest_s(const harpe_groups *groups, int32_t instruction);

/* Returns the least time that an iteration takes. */
double harpe_groups_shortest_path_s(const harpe_groups *groups);

static inline const harpe_group_clock *
harpe_group_clock_at(const harpe_groups *groups, const harpe_group *group, int32_t clock) {
    return &groups->clocks[group->first_clock + clock];
}

static inline const harpe_group_clock *harpe_group_chosen(const harpe_groups *groups,
                                                          const harpe_group *group) {
    return harpe_group_clock_at(groups, group, group->clock);
}

/* Returns the point of an instruction of a group at a clock of the group. */
const harpe_profile_point *harpe_groups_point(const harpe_groups *groups, const harpe_group *group,
                                              int32_t clock, int32_t instruction);

void harpe_groups_set(harpe_groups *groups, harpe_group *group, int32_t clock);

/* Returns the length of the iteration, or INFINITY if it is above the deadline. */
double harpe_groups_length_s(harpe_groups *groups);

/* Returns the energy of the present plan, which takes `length_s`, with its changes of clock and
 * without that of instructions that belong to no group. */
double harpe_groups_energy_j(const harpe_groups *groups, double length_s);

/* Returns whether every clock of the present plan holds for the needed time, except on exempt
 * ranks. The length of the plan must be known and within the deadline. */
bool harpe_groups_hold(const harpe_groups *groups);

/* Writes the frequencies of the present plan. */
void harpe_groups_frequencies(const harpe_groups *groups, int *frequency_mhz);

#endif
