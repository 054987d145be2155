/* SPDX-License-Identifier: Apache-2.0 */
/* Plans inside libharpe: their evaluation, sets of plans, plans for one time, and plans within
 * limits of power. <harpe/plan.h> is the public part. Several sources define these functions. */
#ifndef HARPE_PLAN_PLANS_H
#define HARPE_PLAN_PLANS_H

#include <stddef.h>

#include <harpe/plan.h>

#include "base/array.h"
#include "plan/problem.h"

/* ---- Evaluation ------------------------------------------------------------------------------ */

/* The two parts of evaluating a plan: finding each instruction's measured point, and running the
 * pipeline with any points. */

/* Returns true if an instruction was measured at clocks. Otherwise its only point is at 0 MHz: it
 * runs at any clock, always takes the same time, and leaves the clock as it is. */
static inline bool harpe_choice_has_clocks(const harpe_choice *choice) {
    return choice->points[0].frequency_mhz != 0;
}

/* Returns the point of an instruction while its GPU has a clock, or NULL if it was not measured at
 * this clock. */
const harpe_profile_point *harpe_choice_point(const harpe_choice *choice, int clock_mhz);
/* The same, but NULL also for a clock that the GPU did not reach. Plans are made of these points.
 */
const harpe_profile_point *harpe_choice_reached(const harpe_choice *choice, int clock_mhz);

/* Returns the clock that a plan leaves at the end of a rank's list, which is also that at its
 * beginning; 0: the rank has no clock. */
int harpe_evaluate_last_clock_mhz(const harpe_problem *problem, int rank, const int *frequency_mhz);

/* Returns how often the clocks of a plan change in an iteration. */
size_t harpe_evaluate_changes(const harpe_problem *problem, const int *frequency_mhz);

/* Finds the point of every instruction; `points` has room for all. At 0 MHz it is the point at this
 * frequency if there is one, else that at the clock which the rank has at this place of its list,
 * or at the highest if the rank has none. The error names the first instruction without a point. */
harpe_status harpe_evaluate_find_points(const harpe_problem *problem, const int *frequency_mhz,
                                        const harpe_profile_point **points, harpe_error *error);

/* Computes the time and the energies if every instruction starts as early as possible. `start_s`
 * receives every start. lower_bound_j and frequency_mhz stay 0. */
harpe_plan harpe_evaluate_points(const harpe_problem *problem,
                                 const harpe_profile_point *const *points, double *start_s);

/* One iteration of a plan. */
typedef struct harpe_iteration {
    const harpe_profile_point **points; /* [instruction] */
    double *start_s;                    /* [instruction] */
    harpe_plan plan;                    /* as harpe_evaluate_points returns it */
} harpe_iteration;

/* Finds the points of a plan and evaluates them. Clear `out` also after a failure. */
harpe_status harpe_iteration_run(harpe_iteration *out, const harpe_problem *problem,
                                 const int *frequency_mhz, harpe_error *error);
void harpe_iteration_clear(harpe_iteration *iteration);

/* Computes the latest start of every instruction. `latest_s` must contain the latest end of each of
 * them: the end of the iteration, or a deadline. */
void harpe_evaluate_latest_starts(const harpe_problem *problem,
                                  const harpe_profile_point *const *points, double *latest_s);

/* ---- Changes of clock ------------------------------------------------------------------------ */

/* Counts the changes of clock of a plan, computes their cost, and removes those for instructions
 * that take almost no time. switching.c defines these functions. */

/* Gives instructions that take almost no time the clock of the instruction before them in their
 * rank, in place. Such an instruction would be over before its own clock holds, and changes of
 * clock around it would cost more than it can save. It may become slower, but takes at most 0.1 ms
 * at its new clock. With `never_worse`, only those instructions follow that take no longer and need
 * no more energy (waiting included), so time and energy of the iteration do not rise. */
void harpe_switching_follow(const harpe_problem *problem, bool never_worse, int *frequency_mhz);

harpe_status harpe_clock_switch_check(const harpe_problem *problem, const harpe_clock_switch *cost,
                                      harpe_error *error);

/* Returns whether a change of clock costs anything. */
bool harpe_clock_switch_has_cost(const harpe_problem *problem, const harpe_clock_switch *cost);

/* Returns the longest latency of all ranks and frequencies. */
double harpe_clock_switch_longest_s(const harpe_problem *problem, const harpe_clock_switch *cost);

/* Returns how long the clock before a change to a frequency must have held: the minimum dwell time,
 * and the latency, because the change is requested after the change before. */
double harpe_clock_switch_hold_s(const harpe_problem *problem, const harpe_clock_switch *cost,
                                 int rank, int frequency_mhz);

/* Computes, for each rank, the shortest time for which a clock of a plan holds; INFINITY: the rank
 * changes no clock. */
harpe_status harpe_switching_dwells(const harpe_problem *problem, const int *frequency_mhz,
                                    double *shortest_s, harpe_error *error);

/* ---- Contents of a set ----------------------------------------------------------------------- */

/* The contents of a harpe_plan_set, and what all makers of plan sets do with it. */

/* The set owns each plan's frequencies. Initialise with zeros. */
struct harpe_plan_set {
    harpe_plan *plans;
    size_t count, capacity;
};

/* Frees the plans, but not the set. */
void harpe_plan_set_clear(harpe_plan_set *set);

/* Evaluates a plan and adds it. Copies the frequencies. */
harpe_status harpe_plan_set_add(harpe_plan_set *set, const harpe_problem *problem,
                                const int *frequency_mhz, harpe_error *error);

/* Returns the energy of a plan with `change_j` for each change of clock. */
double harpe_plan_set_cost_j(const harpe_problem *problem, double change_j, const harpe_plan *plan);

/* Keeps the plans that need less energy, with `change_j` for each change of clock, than every
 * faster plan. Sorts the fastest first. */
void harpe_plan_set_drop_dominated(harpe_plan_set *set, const harpe_problem *problem,
                                   double change_j);

/* Replaces the plans of a set after harpe_plan_set_drop_dominated by one for each time: the plan of
 * least energy that takes at most this time. If no plan is fast enough, the fastest one takes its
 * place: with a minimum dwell time, all plans found for a short time may take longer. */
harpe_status harpe_plan_set_pick(harpe_plan_set *set, const harpe_problem *problem,
                                 const double *times_s, size_t count, harpe_error *error);

/* ---- Plans for one time ---------------------------------------------------------------------- */

/* Plans one problem for one iteration time: quickly, by rounding the relaxed solution; or for a
 * replica of a job, whose time does not depend on the plan, with a search and with the frontier. */

typedef struct harpe_quick_plan {
    double time_s, energy_j; /* of the plan, by the profile */
    double lower_bound_j;    /* no plan of the wanted time needs less */
} harpe_quick_plan;

/* Makes the plan for `time_s`, without a search for better plans. A time below T_min counts as
 * T_min, and a time above T* counts as T*. The work is a few percent of that of harpe_plan_set_new.
 * Writes the clock of each instruction into `frequency_mhz`, which has room for all. On failure,
 * writes nothing. */
harpe_status harpe_quick_plan_make(const harpe_problem *problem, double time_s, int *frequency_mhz,
                                   harpe_quick_plan *out, harpe_error *error);

/* Makes a plan that takes at most `time_s` and needs the least energy if the GPUs wait until then.
 * If the problem's shortest time is a little above `time_s`, because of rounding, the plan takes
 * the shortest time. `width` is the width of the dive. `numbers` receives the frequencies of the
 * harpe_problem. `*frontier` (may be NULL) receives the frontier from `least_s` on, with the
 * vertices above T*; free it with harpe_frontier_free. */
harpe_status harpe_replica_search(const harpe_problem *problem, double time_s, double least_s,
                                  int width, int *numbers, harpe_frontier **frontier,
                                  harpe_error *error);

/* ---- Limits of power ------------------------------------------------------------------------- */

/* Plans whose power keeps the limits of a request. */

/* The most harmonics that are examined. It is reached if an iteration takes 1000 s. */
#define HARPE_HARMONICS_MAX 20000
/* Moments that differ by less than this share of the iteration are the same moment. */
#define HARPE_POWER_SLACK 1e-11
/* A swing that is smaller than this share of the peak is caused by rounding. */
#define HARPE_SWING_ROUNDING 1e-9

/* A change of the power at a moment of the iteration. */
typedef struct harpe_power_step {
    double time_s;
    double change_w;
} harpe_power_step;

typedef struct harpe_power_steps {
    harpe_power_step *items; /* earliest first */
    size_t count;
    double (*turn)[2]; /* scratch of power_steps_harmonics */
    double waiting_w;  /* power if all ranks wait */
    double iteration_s;
} harpe_power_steps;

/* A time in which the power is above a limit. */
typedef struct harpe_hot_time {
    double from_s, until_s;
    double before_s, before_j; /* all earlier hot times, and their energy above the limit */
} harpe_hot_time;

/* A component of the power: swing_w / 2 * cos(2 pi frequency_hz t - phase). */
typedef struct harpe_harmonic {
    double frequency_hz, swing_w, phase;
} harpe_harmonic;

/* Receives a component stronger than `least_w`. Returns the swing that others must exceed. */
typedef double harpe_harmonic_visit(void *user, const harpe_harmonic *found, double least_w);

typedef struct harpe_power_limits {
    double peak_w;      /* INFINITY: none */
    double swing_w;     /* INFINITY: none */
    double swing_share; /* of the plan's mean power; INFINITY: none */
} harpe_power_limits;

/* A move that delays a part of the problem: the delay `node` is before all instructions from
 * `first` to `end`. */
typedef struct harpe_power_shift {
    int32_t node, first, end;
} harpe_power_shift;

/* The working memory of repairs of one problem, and the present plan. */
typedef struct harpe_power_repair {
    harpe_arena arena;
    const harpe_problem *problem;
    const harpe_clock_switch *cost; /* of changes of clock */
    harpe_power_limits limits;
    const harpe_power_shift *shifts; /* NULL: nothing can be delayed */
    size_t shift_count;
    double deadline_s;
    /* The present plan. */
    const harpe_profile_point **points; /* [instruction] */
    harpe_plan plan;                    /* energy_j with that of the changes */
    harpe_power_shape shape;
    double excess_j; /* above the limits; 0 if they are kept */
    /* The smallest numbers of all plans that were tried and are in time. */
    harpe_power_shape least;
    /* Scratch. */
    const harpe_profile_point **before;
    double *start_s, *latest_s; /* latest start of each instruction that meets the deadline */
    int *frequency_mhz;
    double *dwell_s, *needed_s; /* [rank] */
    bool has_cost;
    harpe_power_steps steps;
    harpe_hot_time *hot;
    size_t hot_count;
    harpe_harmonic *strong; /* above the limit */
    size_t strong_count;
    double swing_limit_w;             /* of the present plan */
    double step_peak_w, step_swing_w; /* limits of the present step, if they are above the others */
    struct harpe_power_move *moves;
    size_t move_count, move_capacity;
    size_t tried;
} harpe_power_repair;

harpe_status harpe_power_repair_init(harpe_power_repair *repair, const harpe_problem *problem,
                                     const harpe_clock_switch *cost,
                                     const harpe_power_limits *limits, harpe_error *error);
void harpe_power_repair_clear(harpe_power_repair *repair);

/* Makes clocks the present plan. It may take longer than the deadline. */
harpe_status harpe_power_repair_begin(harpe_power_repair *repair, const int *frequency_mhz,
                                      double deadline_s, harpe_error *error);

/* Computes the numbers of the present plan from its points. */
void harpe_power_repair_evaluate(harpe_power_repair *repair);

/* Returns whether the present plan is in time and keeps the limits. */
bool harpe_power_repair_obeys(const harpe_power_repair *repair);

/* Changes the present plan, which is in time, until it keeps the limits or no move helps, and then
 * until no move saves energy within the limits. Each clock holds for as long as `cost` demands, or
 * as long as it did. Returns whether the plan keeps the limits. The work is limited. */
harpe_status harpe_power_repair_run(harpe_power_repair *repair, bool *obeys, harpe_error *error);

/* Writes the clocks of the present plan. */
void harpe_power_repair_frequencies(const harpe_power_repair *repair, int *frequency_mhz);

/* Fails with HARPE_INVALID_ARGUMENT if a limit is below 0 or no number. */
harpe_status harpe_power_limits_check(double peak_w, double swing_w, double swing_share,
                                      harpe_error *error);

/* Returns limits with INFINITY in place of 0, and whether there is any. */
harpe_power_limits harpe_power_limits_of(double peak_w, double swing_w, double swing_share);
bool harpe_power_limits_any(const harpe_power_limits *limits);

/* Returns whether a request has limits. */
bool harpe_power_limits_are_wanted(const harpe_plan_request *request);

/* Writes to `error` that no plans within a time (0: any) were found. */
harpe_status harpe_power_limits_fail(const harpe_power_repair *repair, double time_s,
                                     harpe_error *error);

/* Replaces the plans of a set that break the limits by plans that keep them and take no longer. If
 * the slowest plan breaks them, makes slower plans too. The set contains no dominated plans,
 * fastest first; the result may, in any order. Returns at once if all plans keep the limits. Fails
 * with HARPE_INFEASIBLE if no plan is left, or none for one of the times that were asked for.
 * `report` receives the part of the work that is done, 0 to 1, and returns false to stop. */
harpe_status harpe_power_limits_keep(const harpe_problem *problem,
                                     const harpe_plan_request *request,
                                     bool (*report)(void *user, double done), void *user,
                                     harpe_plan_set *set, harpe_error *error);

#endif
