/* SPDX-License-Identifier: Apache-2.0 */
/* The planner: from a profile and a schedule to the exact time-energy frontier and to frequency
 * plans with a proof of how good each is.
 *
 *     harpe_profile --+
 *                     +--> harpe_problem --> harpe_frontier --> harpe_plan_set
 *     harpe_schedule -+     (options, DAG)    (lower bound)      (real frequencies)
 *
 * All times are in seconds, energies in joules, powers in watts, frequencies in MHz. Objects are
 * immutable once made and may be read from any thread; different objects may be made on different
 * threads at once. The problem must outlive what is made from it; profile and schedule need not
 * outlive the problem.
 *
 * A rank of the pipeline is one GPU, or several that work in step (tensor or data parallel peers).
 * The profile's energies are those of all GPUs of the rank. W is the sum over all ranks r of
 * G_r * P_r * (T - time that r spends in instructions), with G_r GPUs that each draw P_r watts
 * while they wait. The energy of one iteration of length T is
 *     sum of the instructions' energies + W. */
#ifndef HARPE_PLAN_H
#define HARPE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/api.h>
#include <harpe/callback.h>
#include <harpe/profile.h>
#include <harpe/schedule.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

/* ---- Problem ------------------------------------------------------------------------------ */

typedef struct harpe_problem harpe_problem;

typedef enum harpe_cost_model {
    HARPE_COST_HULL = 0,        /* the measured points' own lower convex hull */
    HARPE_COST_EXPONENTIAL = 1, /* a*exp(b*t)+c fitted to the Pareto points, as published */
} harpe_cost_model;

/* Zero-initialise, then set what matters. */
typedef struct harpe_problem_options {
    /* Power of one waiting GPU, also if a rank has several GPUs: one value per rank, or a single
     * value for all ranks. NULL: 0 W */
    const double *blocking_power_w;
    size_t blocking_power_count; /* 0, 1 or the schedule's rank count */
    harpe_cost_model cost_model;
    double unit_time_s;          /* grid of the exponential model; 0: 0.001 */
    double noise_factor;         /* Pareto filter used where fewer than 4 points remain; 0: 0.95 */
    uint64_t memory_limit_bytes; /* refuse larger problems with HARPE_LIMIT_EXCEEDED; 0: 4 GiB */
    /* Number of GPUs whose summed energy the rows of a stage have, 1 to 65536, for a profile that
     * does not say it (harpe_profile_gpu_count is 1 for all stages). 0: what the profile says. */
    int gpus_per_stage;
} harpe_problem_options;

/* Joins profile and schedule. Fails with HARPE_INVALID_INPUT when the profile does not have exactly
 * the schedule's stages, lacks a (stage, instruction) that the schedule runs (naming it), gives the
 * stages of one rank different numbers of GPUs, or contradicts gpus_per_stage. Free with
 * harpe_problem_free. */
HARPE_API harpe_status harpe_problem_new(const harpe_profile *profile,
                                         const harpe_schedule *schedule,
                                         const harpe_problem_options *options, harpe_problem **out,
                                         harpe_error *error);
HARPE_API void harpe_problem_free(harpe_problem *problem);

/* GPUs of one rank (0: no such rank), and of all ranks together. */
HARPE_API int harpe_problem_gpu_count(const harpe_problem *problem, int rank);
HARPE_API int harpe_problem_total_gpu_count(const harpe_problem *problem);

/* Ranks of the pipeline, the length of one rank's list, and all lists together. */
HARPE_API int harpe_problem_rank_count(const harpe_problem *problem);
HARPE_API size_t harpe_problem_rank_length(const harpe_problem *problem, int rank);
HARPE_API size_t harpe_problem_instruction_count(const harpe_problem *problem);

/* Name of entry `index` of a rank's list (an overlapped pair without its own profile rows counts as
 * two entries). Valid while the problem lives. */
HARPE_API const char *harpe_problem_instruction_name(const harpe_problem *problem, int rank,
                                                     size_t index);

/* A (stage, instruction) as the planner sees it: only the Pareto-optimal options in (time,
 * effective energy), effective energy being energy - blocking power * time. */
typedef struct harpe_option {
    int frequency_mhz;
    double time_s;
    double energy_j;
    double effective_energy_j;
    bool is_on_hull; /* a corner of the curve that the relaxation uses */
} harpe_option;

typedef struct harpe_option_list {
    int stage;
    int rank;
    const char *instruction;
    size_t option_count;         /* >= 1 */
    const harpe_option *options; /* fastest first */
    /* The relaxation's convex curve, fastest first; equals the options on the hull for
     * HARPE_COST_HULL. */
    size_t curve_count;
    const double *curve_time_s;
    const double *curve_effective_energy_j;
} harpe_option_list;

HARPE_API size_t harpe_problem_option_list_count(const harpe_problem *problem);
HARPE_API const harpe_option_list *harpe_problem_option_list_at(const harpe_problem *problem,
                                                                size_t index);

/* ---- Frontier ----------------------------------------------------------------------------- */

typedef struct harpe_frontier harpe_frontier;

/* One vertex of the exact piecewise linear frontier of the relaxation. */
typedef struct harpe_frontier_vertex {
    double time_s;
    double lower_bound_j; /* no plan that takes time_s needs less (blocking included) */
    double marginal_w;    /* -dE/dT of the compute part just below time_s; the last one's (at
                             T_min) is that of the segment above */
} harpe_frontier_vertex;

/* What solving cost. */
typedef struct harpe_work {
    uint64_t pivots;            /* exchanges of one tree arc */
    uint64_t degenerate_pivots; /* of which moved no flow */
    uint64_t nodes_moved;       /* events that changed sides */
    uint64_t path_steps;        /* tree arcs walked */
    double build_s, solve_s, assign_s;
    uint64_t memory_bytes; /* the solver's arrays */
} harpe_work;

/* Solves the whole frontier from the minimum-energy time T* down to the shortest time T_min.
 * `progress` may be NULL; it receives one phase, "solving", up to the fraction 1. Free with
 * harpe_frontier_free. Time: one pivot moves O(instructions) events at worst; see
 * docs/benchmarks.md. */
HARPE_API harpe_status harpe_frontier_new(const harpe_problem *problem,
                                          const harpe_progress *progress, harpe_frontier **out,
                                          harpe_error *error);
HARPE_API void harpe_frontier_free(harpe_frontier *frontier);

/* Vertices, fastest (T_min) first; `*count` >= 1. Valid while the frontier lives. */
HARPE_API const harpe_frontier_vertex *harpe_frontier_vertices(const harpe_frontier *frontier,
                                                               size_t *count);
/* The lower bound at a time between or beyond the vertices: interpolated inside, that of T* beyond
 * T* (no plan at all needs less), and +infinity below T_min. */
HARPE_API double harpe_frontier_bound_at(const harpe_frontier *frontier, double time_s);
HARPE_API harpe_work harpe_frontier_work(const harpe_frontier *frontier);

/* ---- Plans -------------------------------------------------------------------------------- */

typedef struct harpe_plan_set harpe_plan_set;

/* One plan: a real frequency for every instruction, and what it really takes by the profile. */
typedef struct harpe_plan {
    double time_s;        /* longest path over measured times */
    double energy_j;      /* measured energies plus blocking, of all GPUs */
    double lower_bound_j; /* of any plan that takes time_s */
    double compute_energy_j;
    double blocking_energy_j;
    double average_power_w;   /* of one GPU: energy / (time * GPUs of all ranks) */
    const int *frequency_mhz; /* rank 0's list, then rank 1's ...; instruction_count numbers */
} harpe_plan;

typedef enum harpe_plan_choice {
    HARPE_PLANS_SPREAD = 0, /* about `count` evenly spread in time from T* to T_min (1: T* alone) */
    HARPE_PLANS_ALL = 1,    /* one per vertex of the frontier */
    HARPE_PLANS_AT = 2,     /* one for each of times_s: the best found that is not slower */
} harpe_plan_choice;

/* What a change of clock costs on the machine at hand; all 0: nothing. */
typedef struct harpe_clock_switch {
    double latency_s;       /* from the wish to the new clock: so long the old one still holds */
    double energy_j;        /* of one change */
    double minimum_dwell_s; /* a clock that would hold for less is not worth a change */
} harpe_clock_switch;

typedef struct harpe_plan_request {
    harpe_plan_choice choice;
    int count;             /* for HARPE_PLANS_SPREAD; 0: 100 */
    const double *times_s; /* for HARPE_PLANS_AT, any order, each >= T_min */
    size_t time_count;
    /* Changes that cost more than they save are taken out, always by running the slower side
     * faster, so that no plan becomes slower; see harpe_plan_switching. */
    harpe_clock_switch clock_switch;
} harpe_plan_request;

/* Solves the frontier and makes plans along it in one pass. `frontier` may be NULL when only the
 * plans are wanted. Each plan of the set has a lower evaluated energy than all faster plans.
 * HARPE_PLANS_AT gives one plan per requested time, in the order of the request: the plan with the
 * least energy that is not slower. `progress` (may be NULL) receives the phase "solving", then
 * "planning"; the fraction is that of both together, never falls and ends at 1. */
HARPE_API harpe_status harpe_plan_set_new(const harpe_problem *problem,
                                          const harpe_plan_request *request,
                                          const harpe_progress *progress, harpe_frontier **frontier,
                                          harpe_plan_set **out, harpe_error *error);
HARPE_API void harpe_plan_set_free(harpe_plan_set *plans);

/* Plans, fastest first (HARPE_PLANS_AT: as asked). */
HARPE_API size_t harpe_plan_set_count(const harpe_plan_set *plans);
HARPE_API const harpe_plan *harpe_plan_set_at(const harpe_plan_set *plans, size_t index);

/* What any assignment of frequencies takes. `frequency_mhz` has instruction_count numbers in the
 * problem's order, each one that the profile has for its instruction (0 stands for the highest);
 * the caller keeps it alive as long as `out` is used. `start_s` (may be NULL) receives the start
 * of every instruction, earliest first schedule. lower_bound_j is left 0. */
HARPE_API harpe_status harpe_plan_evaluate(const harpe_problem *problem, const int *frequency_mhz,
                                           harpe_plan *out, double *start_s, harpe_error *error);

/* What a plan's changes of clock cost. */
typedef struct harpe_switching {
    /* Changes of clock of all ranks in one iteration; the one from a rank's last instruction back
     * to its first is one, too. */
    size_t clock_writes;
    double shortest_dwell_s; /* between two changes of a rank, in the earliest schedule; 0: none */
    /* The iteration when every change comes `latency_s` late and costs `energy_j`. */
    double time_s, energy_j;
} harpe_switching;

/* `frequency_mhz` as for harpe_plan_evaluate; 0 leaves the clock alone. */
HARPE_API harpe_status harpe_plan_switching(const harpe_problem *problem, const int *frequency_mhz,
                                            const harpe_clock_switch *cost, harpe_switching *out,
                                            harpe_error *error);

/* Every instruction at its highest profiled frequency: the usual point of comparison. `out`'s
 * frequencies live as long as the problem. */
HARPE_API harpe_status harpe_plan_all_maximum(const harpe_problem *problem, harpe_plan *out,
                                              harpe_error *error);

/* ---- Plan files --------------------------------------------------------------------------- */

/* A frequency plan as the ecosystem's servers read it: a Python literal, one list per rank of
 * ("forward", 1410) tuples. */
typedef struct harpe_plan_file harpe_plan_file;

typedef struct harpe_plan_file_entry {
    const char *instruction;
    int frequency_mhz;
} harpe_plan_file_entry;

/* Reads exactly that literal form (either quote, white space, trailing commas, # comments); never
 * executes anything. At most 64 MiB. Free with harpe_plan_file_free. */
HARPE_API harpe_status harpe_plan_file_read(const char *path, harpe_plan_file **out,
                                            harpe_error *error);
HARPE_API harpe_status harpe_plan_file_parse(const char *text, size_t length, const char *name,
                                             harpe_plan_file **out, harpe_error *error);
HARPE_API void harpe_plan_file_free(harpe_plan_file *file);
HARPE_API int harpe_plan_file_rank_count(const harpe_plan_file *file);
HARPE_API const harpe_plan_file_entry *harpe_plan_file_rank(const harpe_plan_file *file, int rank,
                                                            size_t *count);

/* Writes a plan in that form, whole or not at all. `number` is the plan's, `cost_change_j` the
 * difference in total cost (energy less all ranks' blocking power times the iteration's time) to
 * the plan numbered one less (0 for the first). */
HARPE_API harpe_status harpe_plan_file_write(const char *path, const harpe_problem *problem,
                                             const harpe_plan *plan, int number,
                                             double cost_change_j, harpe_error *error);

/* Frequencies in the problem's order, for harpe_plan_evaluate. Names the first entry that does not
 * fit the problem. `frequency_mhz` has room for harpe_problem_instruction_count numbers. */
HARPE_API harpe_status harpe_plan_file_match(const harpe_plan_file *file,
                                             const harpe_problem *problem, int *frequency_mhz,
                                             harpe_error *error);

/* ---- Verification ------------------------------------------------------------------------- */

/* Proves a frontier without trusting the solver: at `samples` times spread over it (0: all
 * vertices) it solves the relaxation again and checks that flow is conserved and within capacity,
 * that the cut really cuts, that durations respect every dependency, and that primal and dual
 * objective meet. HARPE_INTERNAL names the first thing that does not hold. */
HARPE_API harpe_status harpe_frontier_verify(const harpe_problem *problem,
                                             const harpe_frontier *frontier, size_t samples,
                                             harpe_error *error);

/* Recomputes a plan from its frequencies with a different algorithm (iterated relaxation instead of
 * a topological order), checks every number of it, and that the bound is not above its energy. */
HARPE_API harpe_status harpe_plan_verify(const harpe_problem *problem,
                                         const harpe_frontier *frontier, const harpe_plan *plan,
                                         harpe_error *error);

HARPE_END_DECLS

#endif
