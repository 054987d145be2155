/* SPDX-License-Identifier: Apache-2.0 */
/* The planner computes the exact time-energy frontier and frequency plans from a profile and a
 * schedule, and proves how good each plan is.
 *
 *     harpe_profile --+
 *                     +--> harpe_problem --> harpe_frontier --> harpe_plan_set
 *     harpe_schedule -+     (options, DAG)    (lower bound)      (real frequencies)
 *
 * All times are in seconds, energies in joules, powers in watts, frequencies in MHz. Objects do
 * not change after they are made, and any thread may read them. Several threads may make
 * different objects at once. A problem must outlive the objects that are made from it. The
 * profile and the schedule need not outlive the problem.
 *
 * A rank of the pipeline is one GPU, or several GPUs that work in step (tensor or data parallel
 * peers). The profile's energies are sums over all GPUs of the rank. The energy of one iteration of
 * length T is the sum of the instructions' energies plus the blocking energy W and the overhead
 * energy V:
 *
 *     W = sum over all ranks r of G_r * P_r * (T - time that r spends in instructions)
 *     V = overhead power * T
 *
 * Rank r has G_r GPUs, each of which draws P_r watts while it waits. If the power of a rank is
 * known for each kind of wait (harpe_wait_power), W is the sum over all waits of G_r times the
 * power of the wait's kind times its length; instructions start as early as possible. The overhead
 * power is the power of everything that is not a GPU: CPUs, memory, fans. It is 0 unless the
 * options set it, and the energy is then that of the GPUs alone. */
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

/* ---- Schedule of a profile ------------------------------------------------------------------- */

/* Initialise with zeros, then set the members that you need. */
typedef struct harpe_schedule_request {
    /* If `path` is NULL, these are the parameters of a built-in schedule. If `ranks` is 0, the
     * number of ranks is the number of the profile's stages divided by the stages per rank. If
     * `path` is not NULL, the schedule in the file must have these numbers of microbatches and
     * ranks (0: any number), and the other members are 0. */
    harpe_schedule_options options;
    const char *path;            /* a CSV file for harpe_schedule_read_csv; NULL: a built-in
                                  * schedule */
    uint64_t memory_limit_bytes; /* the most memory that planning with the schedule may need; 0: 4
                                  * GiB */
} harpe_schedule_request;

/* Makes the schedule for planning with a profile. Fails with HARPE_INVALID_ARGUMENT if a built-in
 * schedule lacks the number of microbatches, if a number differs from the file's, or if chunks or
 * the settings of interleaved-1f1b are given with a file. Fails with HARPE_INVALID_INPUT if the
 * profile's stages cannot be divided evenly among the ranks. Fails with HARPE_LIMIT_EXCEEDED,
 * before the schedule is made, if planning a built-in schedule needs more than the memory limit.
 * Also fails as harpe_schedule_new and harpe_schedule_read_csv do. `ranks` may differ from the
 * profile here: harpe_problem_new checks that the profile has the schedule's stages. Any thread may
 * call it. Free with harpe_schedule_free. */
HARPE_API harpe_status harpe_schedule_for_profile(const harpe_profile *profile,
                                                  const harpe_schedule_request *request,
                                                  harpe_schedule **out, harpe_error *error);

/* ---- Problem --------------------------------------------------------------------------------- */

typedef struct harpe_problem harpe_problem;

typedef enum harpe_cost_model {
    HARPE_COST_HULL = 0,        /* the lower convex hull of the measured points */
    HARPE_COST_EXPONENTIAL = 1, /* a*exp(b*t)+c fitted to the Pareto points, as published */
} harpe_cost_model;

/* The blocking power of a kind of wait. A wait of a rank is named after the instruction that ends
 * it: "forward", "backward", "optimizer" and so on. The wait after the rank's last instruction is
 * HARPE_WAIT_END. */
typedef struct harpe_wait_power {
    int rank;         /* -1: all ranks */
    const char *wait; /* NULL or "": all kinds that have no power of their own */
    double power_w;   /* of one waiting GPU, 0 to 1e5 */
} harpe_wait_power;

#define HARPE_WAIT_END "end"

/* The rows of a file of wait powers. */
typedef struct harpe_wait_powers harpe_wait_powers;

/* Reads a CSV file with the columns wait and blocking_power, and optionally rank. An empty rank is
 * -1, and an empty wait is "". At most 65,536 rows. Fails with HARPE_INVALID_INPUT if a field is
 * wrong or two rows have the same rank and wait; the message names file, line and column. Free with
 * harpe_wait_powers_free. */
HARPE_API harpe_status harpe_wait_powers_read_csv(const char *path, harpe_wait_powers **out,
                                                  harpe_error *error);
HARPE_API harpe_status harpe_wait_powers_parse_csv(const char *text, size_t length,
                                                   const char *name, harpe_wait_powers **out,
                                                   harpe_error *error);
HARPE_API void harpe_wait_powers_free(harpe_wait_powers *powers);
/* Returns the rows in the order of the file. Valid until harpe_wait_powers_free. */
HARPE_API const harpe_wait_power *harpe_wait_powers_rows(const harpe_wait_powers *powers,
                                                         size_t *count);

/* Initialise with zeros, then set the members that you need. */
typedef struct harpe_problem_options {
    /* Power of one waiting GPU, also if a rank has several GPUs: one value per rank, or a single
     * value for all ranks. NULL: 0 W. */
    const double *blocking_power_w;
    size_t blocking_power_count; /* 0 (0 W), 1 or the schedule's rank count */
    harpe_cost_model cost_model;
    double unit_time_s;          /* sampling interval of the exponential model; 0: 0.001 */
    double noise_factor;         /* relaxes the Pareto filter if fewer than 4 points remain; 0:
                                  * 0.95 */
    uint64_t memory_limit_bytes; /* larger problems fail with HARPE_LIMIT_EXCEEDED; 0: 4 GiB */
    /* Number of GPUs of a stage, 1 to 65536. The energy in a row is the sum over these GPUs. Set it
     * for a profile that does not contain the number (harpe_profile_gpu_count is 1 for all stages).
     * 0: the profile's number. */
    int gpus_per_stage;
    /* Power of all machines of the pipeline outside of their GPUs, 0 to 1e9 W. It is drawn for the
     * whole iteration, whatever the GPUs do. With it, energies and lower bounds are those of whole
     * machines, and T* is a shorter time. */
    double overhead_power_w;
    /* Seconds from the end of an instruction to the earliest start of an instruction of another
     * rank that waits for it, 0 to 1e6: the time of a transfer that is in neither of them.
     * Instructions with a lag of their own (harpe_instruction) keep it. */
    double transfer_time_s;
    /* The blocking powers of kinds of waits, in any order; NULL: each rank has one power. The power
     * of a wait of rank r is that of the row for r and the kind; else that of the row for all ranks
     * and the kind; else that of the row for r without a kind; else that of the row for all ranks
     * without a kind; else the blocking power above. A kind that no instruction of its ranks has,
     * and two rows of one rank and kind, fail with HARPE_INVALID_ARGUMENT. */
    const harpe_wait_power *wait_powers;
    size_t wait_power_count;
    /* The name of the file of the rows, with which messages about them begin. Errors of the rows
     * are then HARPE_INVALID_INPUT. NULL: there is no file. */
    const char *wait_powers_name;
} harpe_problem_options;

/* Joins a profile and a schedule. Fails with HARPE_INVALID_INPUT if the profile does not have
 * exactly the schedule's stages, lacks a (stage, instruction) that the schedule runs (the message
 * names it), gives the stages of one rank different numbers of GPUs, or contradicts gpus_per_stage.
 * Fails with HARPE_INVALID_ARGUMENT if an option is out of its range. Free with
 * harpe_problem_free. */
HARPE_API harpe_status harpe_problem_new(const harpe_profile *profile,
                                         const harpe_schedule *schedule,
                                         const harpe_problem_options *options, harpe_problem **out,
                                         harpe_error *error);
HARPE_API void harpe_problem_free(harpe_problem *problem);

/* Return the number of GPUs of one rank (0: no such rank), and of all ranks together. */
HARPE_API int harpe_problem_gpu_count(const harpe_problem *problem, int rank);
HARPE_API int harpe_problem_total_gpu_count(const harpe_problem *problem);

/* Returns the blocking power of all GPUs of a rank together; 0: no such rank. If the rank's kinds
 * of waits have different powers, this is the highest of them. */
HARPE_API double harpe_problem_blocking_power_w(const harpe_problem *problem, int rank);

/* Returns the power of all GPUs of a rank together while they wait for entry `index` of the rank's
 * list, or, if `index` is the length of the list, after the last entry. 0: no such entry. */
HARPE_API double harpe_problem_wait_power_w(const harpe_problem *problem, int rank, size_t index);

/* Return true if the profile has switching latencies, and the seconds from the request for a
 * frequency until the GPUs of a rank have it: the longest of the rank's stages. 0: not known. */
HARPE_API bool harpe_problem_has_switch_latency(const harpe_problem *problem);
HARPE_API double harpe_problem_switch_latency_s(const harpe_problem *problem, int rank,
                                                int frequency_mhz);

/* Return the number of ranks of the pipeline, the length of one rank's list, and the length of
 * all lists together. */
HARPE_API int harpe_problem_rank_count(const harpe_problem *problem);
HARPE_API size_t harpe_problem_rank_length(const harpe_problem *problem, int rank);
HARPE_API size_t harpe_problem_instruction_count(const harpe_problem *problem);

/* Returns the name of entry `index` of a rank's list. An overlapped pair without its own profile
 * rows counts as two entries. Valid while the problem exists. */
HARPE_API const char *harpe_problem_instruction_name(const harpe_problem *problem, int rank,
                                                     size_t index);

/* A (stage, instruction) for the planner. It contains only the options that are Pareto-optimal
 * in (time, effective energy); effective energy is energy - blocking power * time. The blocking
 * power is that of harpe_problem_blocking_power_w. */
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
    /* The convex curve of the relaxation, fastest point first. With HARPE_COST_HULL it consists
     * of the options on the hull. */
    size_t curve_count;
    const double *curve_time_s;
    const double *curve_effective_energy_j;
} harpe_option_list;

HARPE_API size_t harpe_problem_option_list_count(const harpe_problem *problem);
HARPE_API const harpe_option_list *harpe_problem_option_list_at(const harpe_problem *problem,
                                                                size_t index);

/* ---- Frontier -------------------------------------------------------------------------------- */

/* The cost of a change of clock on this machine; all 0: no cost. */
typedef struct harpe_clock_switch {
    double latency_s;       /* from the request to the new clock; the old clock holds until then */
    double energy_j;        /* energy of one change. It counts when plans are compared, and is not
                             * part of harpe_plan.energy_j */
    double minimum_dwell_s; /* each clock of a plan holds for at least this time; see
                             * harpe_plan_request for the exception */
    bool takes_profile;     /* the latency of each clock is that of harpe_problem_switch_latency_s,
                             * and latency_s is 0. Fails with HARPE_INVALID_ARGUMENT if the profile
                             * has none */
} harpe_clock_switch;

typedef struct harpe_frontier harpe_frontier;

/* One vertex of the lower bound. Without a cost of changes, it is the exact, piecewise linear
 * frontier of the relaxation. */
typedef struct harpe_frontier_vertex {
    double time_s;
    double lower_bound_j; /* no plan of time_s needs less energy (blocking and overhead included) */
    double marginal_w;    /* -dE/dT of the compute part just below time_s; at T_min, just above
                           * it */
} harpe_frontier_vertex;

/* The amount of work that the solver has done. */
typedef struct harpe_work {
    uint64_t pivots;            /* exchanges of a tree arc */
    uint64_t degenerate_pivots; /* pivots that moved no flow */
    uint64_t nodes_moved;       /* events that moved to the other side of the cut */
    uint64_t path_steps;        /* tree arcs walked */
    double build_s, solve_s, assign_s;
    uint64_t memory_bytes; /* the solver's arrays */
} harpe_work;

/* Solves the whole frontier from the minimum-energy time T* down to the shortest time T_min.
 * `progress` may be NULL; it receives one phase, "solving", up to the fraction 1. One pivot
 * moves O(instructions) events in the worst case; see docs/benchmarks.md for times. Free with
 * harpe_frontier_free. */
HARPE_API harpe_status harpe_frontier_new(const harpe_problem *problem,
                                          const harpe_progress *progress, harpe_frontier **out,
                                          harpe_error *error);
/* Does the same for changes of clock that have a cost. The bound is that of plans whose clocks
 * hold, as in harpe_plan_request, with the energy of their changes. A plan whose clocks hold too
 * briefly can be below it. Fails as harpe_plan_switching does if the cost is wrong. */
HARPE_API harpe_status harpe_frontier_new_for(const harpe_problem *problem,
                                              const harpe_clock_switch *cost,
                                              const harpe_progress *progress, harpe_frontier **out,
                                              harpe_error *error);
HARPE_API void harpe_frontier_free(harpe_frontier *frontier);

/* Returns the vertices, fastest (T_min) first; `*count` >= 1. Between two of them the bound is
 * linear. With a cost of changes, it may fall at a time; two vertices then have this time, and the
 * first one holds. Valid while the frontier exists. */
HARPE_API const harpe_frontier_vertex *harpe_frontier_vertices(const harpe_frontier *frontier,
                                                               size_t *count);
/* Returns the lower bound at any time. Between vertices, the bound is interpolated. Beyond the last
 * one, it is the bound of T*, because no plan needs less energy. Below T_min, it is +infinity. The
 * frontier of harpe_plan_set_new with a cost of changes is that of harpe_frontier_new_for. */
HARPE_API double harpe_frontier_bound_at(const harpe_frontier *frontier, double time_s);
HARPE_API harpe_work harpe_frontier_work(const harpe_frontier *frontier);

/* ---- Plans ----------------------------------------------------------------------------------- */

typedef struct harpe_plan_set harpe_plan_set;

/* One plan: a profiled frequency for every instruction, and the time and energy of the iteration
 * according to the profile. */
typedef struct harpe_plan {
    double time_s;        /* longest path over the measured times */
    double energy_j;      /* compute, blocking and overhead energy together */
    double lower_bound_j; /* no plan of time_s needs less energy: the frontier's bound. With a cost
                           * of changes: no plan whose clocks hold, with as many changes */
    double compute_energy_j;  /* measured energies of all instructions */
    double blocking_energy_j; /* energy of all GPUs while they wait */
    double average_power_w;   /* average power of one GPU, without overhead:
                               * (compute + blocking energy) / (time * GPUs of all ranks) */
    const int *frequency_mhz; /* instruction_count numbers: rank 0's list, then rank 1's, ... */
    double overhead_energy_j; /* overhead power * time; 0 unless the problem has overhead power */
} harpe_plan;

typedef enum harpe_plan_choice {
    /* About `count` plans. There are always plans for T_min, for T*, and for 0, 0.1, 0.2, 0.5, 1, 2
     * and 5 % more time than the highest clocks, up to T* or, if changes of clock have a cost, also
     * above. The others are spread evenly in time from T_min to T*. In a graph with deadlines all
     * plans are (1: T* alone). */
    HARPE_PLANS_SPREAD = 0,
    HARPE_PLANS_ALL = 1, /* one plan for each vertex of the frontier */
    HARPE_PLANS_AT = 2,  /* one plan for each of times_s: the best plan found that is not
                          * slower */
} harpe_plan_choice;

typedef struct harpe_plan_request {
    harpe_plan_choice choice;
    int count; /* for HARPE_PLANS_SPREAD; 0: 100. For HARPE_PLANS_AT, plans that are made
                * besides, as for HARPE_PLANS_SPREAD, and may be chosen; 0: none */
    const double *times_s; /* for HARPE_PLANS_AT, any order, each >= T_min, or 0: T_min */
    size_t time_count;
    /* If a member is above 0, plans have no changes of clock that cost more energy than they save,
     * and each clock holds for at least minimum_dwell_s and latency_s. A rank whose instructions
     * have a clock in common can always hold it. Only a rank without such a clock may change its
     * clock sooner, if it must: harpe_plan_switching then finds a shorter dwell time. The fastest
     * plan takes longer than without this cost only if the profile has instructions that a higher
     * clock makes slower, or if instructions of a rank were not measured at the same clocks.
     * HARPE_PLANS_SPREAD and HARPE_PLANS_ALL then also make up to 10 plans that take longer
     * than T*, if that saves energy. The lower bounds are those of plans whose clocks hold; see
     * harpe_plan_switching. */
    harpe_clock_switch clock_switch;
    /* Limits on the power of the whole pipeline (harpe_power_shape); 0: none. Every plan of the set
     * keeps them. The planner changes a plan that breaks a limit: it lowers clocks where the power
     * is too high, and raises others. The changed plan takes no longer, but needs more energy. A
     * plan that cannot be changed so is left out, and slower plans are made. The search may miss a
     * plan that exists. Fails with HARPE_INFEASIBLE if no plan is found, or none for a time that
     * was asked for; the message has the lowest peak and the smallest swing that were found. Lower
     * bounds stay those of all plans. */
    double max_peak_power_w;
    double max_swing_w;
    double max_swing_share; /* of the plan's mean power; 0.05: 5 % */
    int threads; /* the most threads that may make plans; 0: one for each core that the process may
                  * use. The plans do not depend on it */
} harpe_plan_request;

/* Solves the frontier and makes plans along it in one pass. `frontier` may be NULL if only the
 * plans are needed. Plans are compared by their evaluated energy with that of their changes of
 * clock (clock_switch.energy_j), and each plan of the set needs less than all faster plans. The
 * best plan with one clock for all GPUs within the time of a plan is a candidate, except for
 * HARPE_PLANS_ALL and graphs. HARPE_PLANS_AT makes plans for the requested times and T_min, unless
 * `count` is above 0, and gives one plan for each of them, in the order of the request: the plan
 * with the least energy that is not slower. If clocks must hold for some time, and no plan that is
 * fast enough was found, this is the fastest plan that was found. `progress` (may be NULL) receives
 * the phase "solving", then "planning". The fraction covers both, never falls and ends at 1. The
 * same request gives the same plans on every machine. */
HARPE_API harpe_status harpe_plan_set_new(const harpe_problem *problem,
                                          const harpe_plan_request *request,
                                          const harpe_progress *progress, harpe_frontier **frontier,
                                          harpe_plan_set **out, harpe_error *error);
HARPE_API void harpe_plan_set_free(harpe_plan_set *plans);

/* Return the plans, fastest first (HARPE_PLANS_AT: in the order of the request). */
HARPE_API size_t harpe_plan_set_count(const harpe_plan_set *plans);
HARPE_API const harpe_plan *harpe_plan_set_at(const harpe_plan_set *plans, size_t index);

/* Computes the time and energy of any assignment of frequencies. `frequency_mhz` has
 * instruction_count numbers in the problem's order, each of them profiled for its instruction. 0
 * leaves the clock as it is: an instruction without a row at 0 MHz has the clock of the instruction
 * before it in its rank's list (before the first is the last of the list), which must be profiled
 * for it, or its highest if the whole list is 0. The caller keeps the array alive as long as it
 * uses `out`. `start_s` (may be NULL) receives the earliest start of every instruction.
 * lower_bound_j stays 0. */
HARPE_API harpe_status harpe_plan_evaluate(const harpe_problem *problem, const int *frequency_mhz,
                                           harpe_plan *out, double *start_s, harpe_error *error);

/* The changes of clock in a plan, and their cost. */
typedef struct harpe_switching {
    /* Changes of clock of all ranks in one iteration, including the change from a rank's last
     * instruction to its first. */
    size_t clock_writes;
    double shortest_dwell_s; /* shortest time between two changes of a rank if instructions start
                              * as early as possible; 0: no changes */
    /* Time and energy of the iteration if every clock is requested when its instruction begins, as
     * by harpe_plan_evaluate_late with a lead of 0. */
    double time_s, energy_j;
} harpe_switching;

/* Computes the cost of a plan's changes of clock. `frequency_mhz` is as for harpe_plan_evaluate;
 * 0 leaves the clock alone. */
HARPE_API harpe_status harpe_plan_switching(const harpe_problem *problem, const int *frequency_mhz,
                                            const harpe_clock_switch *cost, harpe_switching *out,
                                            harpe_error *error);

/* An instruction of a plan whose clocks change late. A part of its work may be done at the clock
 * before. */
typedef struct harpe_late_instruction {
    double start_s;          /* in the iteration */
    double time_s, energy_j; /* of the whole instruction */
    int first_mhz, last_mhz; /* clocks at its start and its end */
    double first_share;      /* share of the work that is done at first_mhz; 1 if it keeps it */
} harpe_late_instruction;

/* A plan whose clocks change late, in the steady state: each iteration begins with the clocks and
 * requests that the one before leaves. */
typedef struct harpe_late_plan {
    double time_s, energy_j; /* of an iteration; with the energy of its changes */
    size_t request_count;    /* clocks that are requested in an iteration */
    size_t late_count;       /* instructions that do work at another clock than the plan's */
    bool is_steady; /* the state repeats; otherwise the numbers are means of many iterations, and
                     * instructions are those of the last */
} harpe_late_plan;

/* Computes the time and energy of a plan if a GPU has a clock only some time after the request
 * (`cost`). The controller asks for a clock when the plan changes it. `lead_s` (0 or more,
 * INFINITY too) says how much earlier than the instruction begins it may ask:
 *
 * - It asks at most as much earlier as the change takes, and not before the previous change of the
 *   rank has taken effect, but at the latest when the instruction begins. 0 is a controller that
 *   does not look ahead.
 * - A request replaces one that has not taken effect. The old clock holds until then.
 * - When a change takes effect, the instruction that runs does the rest of its work with the time
 *   and energy of the new clock. An instruction that was not measured at a clock takes the numbers
 *   of the nearest clock that it was measured at.
 *
 * An instruction at 0 MHz keeps the clock that the GPU has. `instructions` (may be NULL) receives
 * one entry for each instruction. O(instructions) for each iteration until the state repeats,
 * usually two or three. */
HARPE_API harpe_status harpe_plan_evaluate_late(
    const harpe_problem *problem, const int *frequency_mhz, const harpe_clock_switch *cost,
    double lead_s, harpe_late_plan *out, harpe_late_instruction *instructions, harpe_error *error);

/* The power of all GPUs of the pipeline, and the overhead power, during an iteration. Iterations
 * follow each other without a pause, instructions start as early as possible, and an instruction
 * draws its measured energy divided by its time. The average over an iteration is energy_j / time_s
 * of the plan. */
typedef struct harpe_power_shape {
    double peak_w;   /* highest power */
    double swing_w;  /* the strongest component of the power between 0.1 and 20 Hz, from peak to
                      * peak; 0: there is none */
    double swing_hz; /* frequency of this component, a multiple of 1 / time_s */
} harpe_power_shape;

/* Computes the power shape of a plan. `frequency_mhz` is as for harpe_plan_evaluate. The power is a
 * periodic step function, and its components are its Fourier series. If an iteration takes more
 * than 1000 s, only the first 20,000 components are examined. */
HARPE_API harpe_status harpe_plan_power_shape(const harpe_problem *problem,
                                              const int *frequency_mhz, harpe_power_shape *out,
                                              harpe_error *error);

/* Evaluates the plan in which every instruction runs at its highest profiled frequency, the
 * usual reference. The frequencies in `out` are valid while the problem exists. */
HARPE_API harpe_status harpe_plan_all_maximum(const harpe_problem *problem, harpe_plan *out,
                                              harpe_error *error);

/* ---- One clock for all GPUs ------------------------------------------------------------------ */

/* Evaluates the plans with one clock for all GPUs, which need no planner: one plan for each clock
 * at which every instruction was measured, and the plan at the highest clocks. Instructions at 0
 * MHz keep 0. The fastest plan is first; a slower plan may need more energy than a faster one, and
 * lower_bound_j stays 0. A set has at least the plan at the highest clocks. Takes O(clocks *
 * instructions). Fails with HARPE_NOT_SUPPORTED if the problem is that of a graph, whose options
 * need not be clocks. Free with harpe_plan_set_free. */
HARPE_API harpe_status harpe_plan_set_one_clock(const harpe_problem *problem, harpe_plan_set **out,
                                                harpe_error *error);

/* Returns the plan of a set that needs the least energy of those that take at most a time (1 + 1e-9
 * times as long counts as equal), or NULL if all take longer. */
HARPE_API const harpe_plan *harpe_plan_set_within(const harpe_plan_set *plans, double most_s);

/* Returns the clock of all instructions of a plan, except those at 0 MHz. 0: they differ, or there
 * are none, or the problem is that of a graph. */
HARPE_API int harpe_plan_one_clock_mhz(const harpe_problem *problem, const int *frequency_mhz);

/* ---- Plan files ------------------------------------------------------------------------------ */

/* A frequency plan in the format that other servers of this kind read: a Python literal with one
 * list of ("forward", 1410) tuples per rank. */
typedef struct harpe_plan_file harpe_plan_file;

typedef struct harpe_plan_file_entry {
    const char *instruction;
    int frequency_mhz;
} harpe_plan_file_entry;

/* Reads a file of this form and executes nothing. Accepts both kinds of quotes, white space,
 * trailing commas and # comments, and at most 64 MiB. Free with harpe_plan_file_free. */
HARPE_API harpe_status harpe_plan_file_read(const char *path, harpe_plan_file **out,
                                            harpe_error *error);
HARPE_API harpe_status harpe_plan_file_parse(const char *text, size_t length, const char *name,
                                             harpe_plan_file **out, harpe_error *error);
HARPE_API void harpe_plan_file_free(harpe_plan_file *file);
HARPE_API int harpe_plan_file_rank_count(const harpe_plan_file *file);
HARPE_API const harpe_plan_file_entry *harpe_plan_file_rank(const harpe_plan_file *file, int rank,
                                                            size_t *count);

/* Writes a plan in that form, completely or not at all. `number` is the plan's number.
 * `cost_change_j` is the difference in total cost from the previous plan (0 for the first plan).
 * The total cost is the energy minus all ranks' blocking power times the iteration's time. */
HARPE_API harpe_status harpe_plan_file_write(const char *path, const harpe_problem *problem,
                                             const harpe_plan *plan, int number,
                                             double cost_change_j, harpe_error *error);

/* Writes the file's frequencies in the problem's order, for harpe_plan_evaluate. 0 fits every
 * instruction. The error names the first entry that does not fit the problem. `frequency_mhz` has
 * room for harpe_problem_instruction_count numbers. */
HARPE_API harpe_status harpe_plan_file_match(const harpe_plan_file *file,
                                             const harpe_problem *problem, int *frequency_mhz,
                                             harpe_error *error);

/* ---- Verification ---------------------------------------------------------------------------- */

/* Verifies a frontier without relying on the solver's result. At `samples` times spread over the
 * frontier (0: all vertices), it solves the relaxation again and checks that flow is conserved and
 * within capacity, that the cut really cuts, that durations respect every dependency, and that the
 * primal and dual objectives are equal. If a check fails, returns HARPE_INTERNAL with a message
 * that names the check. */
HARPE_API harpe_status harpe_frontier_verify(const harpe_problem *problem,
                                             const harpe_frontier *frontier, size_t samples,
                                             harpe_error *error);

/* Recomputes a plan from its frequencies with a different algorithm (iterated relaxation instead of
 * a topological order), compares every number of the plan, and checks that the lower bound is that
 * of the frontier and not above the plan's energy. */
HARPE_API harpe_status harpe_plan_verify(const harpe_problem *problem,
                                         const harpe_frontier *frontier, const harpe_plan *plan,
                                         harpe_error *error);

/* Verifies all plans of a set, as harpe_plan_verify does. `problem` and `frontier` are those of the
 * set. */
HARPE_API harpe_status harpe_plan_set_verify(const harpe_problem *problem,
                                             const harpe_frontier *frontier,
                                             const harpe_plan_set *plans, harpe_error *error);

HARPE_END_DECLS

#endif
