/* SPDX-License-Identifier: Apache-2.0 */
/* What Perseus knows of a running pipeline: its instructions, the results of a round, latencies of
 * changes of clock, plans, and savings. Several sources define these functions. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_ONLINE_INTERNAL_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_ONLINE_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/pfo.h>
#include <harpe/plan.h>
#include <harpe/schedule.h>

#include "base/array.h"
#include "pfo/rank_clocks.h"

/* ---- Pipeline -------------------------------------------------------------------------------- */

/* The pipeline of an online job. It connects a schedule with measurements, which have only the name
 * of an instruction: it gives the (stage, instruction) of each instruction of the schedule, and of
 * the k-th run of a name on a rank. A pipeline does not change after it is made. */

/* One (stage, instruction). Each has its own curve in a profile. */
typedef struct harpe_online_entry {
    int stage;
    int pipeline_rank; /* the pipeline rank that runs it */
    const char *instruction;
    size_t run_count; /* in one iteration */
    size_t name;      /* index of the name */
} harpe_online_entry;

/* All runs of one name on one pipeline rank, in the order in which they run. If the rank has
 * several stages, these are the runs of all its stages. */
typedef struct harpe_online_name {
    const char *instruction;
    size_t run_count, first_run;
} harpe_online_name;

typedef struct harpe_online_pipeline {
    harpe_schedule *schedule;
    int rank_count, microbatches;
    size_t instruction_count;
    size_t *rank_offset; /* [rank_count + 1]: first instruction of each rank */
    int *entry_of;       /* [instruction_count], rank by rank */
    size_t *run_of;      /* [instruction_count]: index of its run; runs are in the order of names */
    size_t entry_count, entry_capacity;
    harpe_online_entry *entries;
    size_t name_count, name_capacity;
    harpe_online_name *names; /* rank by rank */
    harpe_arena arena;
} harpe_online_pipeline;

/* What the ranks report of a round: one element per rank in each list. */
typedef struct harpe_online_reports {
    const harpe_rank_info *ranks;
    const harpe_profiling_result *results;
    const harpe_rank_clocks *clocks; /* NULL: no rank reports its clocks, or they changed at once */
    size_t count;
    int only_replica; /* its data parallel rank + 1: only its runs and clocks are read; 0: all */
} harpe_online_reports;

/* The schedule of an online job. */
typedef struct harpe_online_schedule {
    const char *name;            /* of a built-in schedule; NULL: csv_path, or else 1f1b */
    const char *csv_path;        /* the CSV file of a schedule; NULL: none */
    const char *const *prologue; /* as in harpe_schedule_options */
    const char *const *epilogue;
} harpe_online_schedule;

/* Makes a pipeline. If the schedule is a file, the number of microbatches is not used. */
harpe_status harpe_online_pipeline_new(const harpe_online_schedule *schedule, int ranks,
                                       int microbatches, harpe_online_pipeline **out,
                                       harpe_error *error);
void harpe_online_pipeline_free(harpe_online_pipeline *pipeline);

/* Finds the number of microbatches in an iteration from these results. Each iteration of each rank
 * gives a number by its runs of "forward", and the most frequent number is the result. Iterations
 * without any backward (evaluation steps) do not count, unless a rank has no other iterations.
 * Iterations whose runs fit no number of microbatches do not count either. If two numbers are
 * equally frequent, the number that occurs later in a rank's list is the result, because the first
 * iterations of a job can be unusual. Returns HARPE_INVALID_INPUT if this does not decide, or if a
 * rank has no iteration that counts. */
harpe_status harpe_online_count_microbatches(const char *name, int pipeline_ranks,
                                             const harpe_online_reports *reports, int *microbatches,
                                             harpe_error *error);

/* Makes the schedule. A schedule from a file must have no lags, and must have `ranks` ranks (0: any
 * number). */
harpe_status harpe_online_schedule_make(const harpe_online_schedule *which, int ranks,
                                        int microbatches, harpe_schedule **out, harpe_error *error);

/* Checks that microbatches can be counted with this schedule. Returns HARPE_INVALID_ARGUMENT if
 * they cannot. */
harpe_status harpe_online_can_count(const char *name, int pipeline_ranks, harpe_error *error);

/* ---- Latencies of changes -------------------------------------------------------------------- */

/* Switching latencies: how long the GPUs of each stage take to change their clock. The ranks report
 * these times. They do not depend on plans or schedules. */

/* The frequencies that are tried on one pipeline rank, the highest first. */
typedef struct harpe_tried_clocks {
    int *mhz;
    size_t count;
} harpe_tried_clocks;

/* The median and the 95th percentile of a switching latency, in s. Both are negative if the latency
 * is not known. */
typedef struct harpe_online_latency {
    double median_s, p95_s;
} harpe_online_latency;

typedef struct harpe_online_latencies {
    bool is_told;    /* a rank reports its clocks. If not, all changes count as immediate */
    bool can_change; /* a pipeline rank has several clocks */
    int rank_count;
    harpe_arena arena; /* of the lists below */
    size_t *offset;    /* [rank_count + 1]: first clock of each pipeline rank */
    int *mhz;
    harpe_online_latency *latency; /* one per clock */
    double shortest_s;             /* time of the shortest instruction so far; 0: not known */
    /* These follow from the others. */
    double longest_s;   /* of all clocks; 0: none is known */
    size_t known_count; /* of the clocks */
    bool is_late;
} harpe_online_latencies;

/* Makes an empty object. `clocks` has one element per pipeline rank and is copied. Returns NULL if
 * memory runs out. Free with harpe_online_latencies_free. */
harpe_online_latencies *harpe_online_latencies_new(const harpe_tried_clocks *clocks,
                                                   int rank_count);
void harpe_online_latencies_free(harpe_online_latencies *self);

/* Stores the latencies that ranks report in one round. If the ranks of a stage report different
 * latencies for a clock, the longest is stored. `ranks` and `clocks` have `count` elements each,
 * and clocks[i] is the report of ranks[i]. */
void harpe_online_latencies_take(harpe_online_latencies *self, const harpe_rank_info *ranks,
                                 const harpe_rank_clocks *clocks, size_t count);
/* Tells the object the time of an instruction, in s. The shortest time of all calls decides whether
 * changes are late. */
void harpe_online_latencies_take_time(harpe_online_latencies *self, double time_s);

/* Returns true if ranks report their clocks and can change these clocks, but have measured too few
 * changes. */
bool harpe_online_latencies_are_unknown(const harpe_online_latencies *self);
/* Returns true if changes are late: at least a tenth of the known medians are 0.5 ms or longer, and
 * 1 % of the shortest instruction or longer. Otherwise changes count as immediate. */
bool harpe_online_latencies_are_late(const harpe_online_latencies *self);

/* Returns a time, in s, within which nearly all changes to a clock are over. If this was not
 * measured on this pipeline rank, the function returns the longest time of the whole job. If no
 * pipeline rank has measured this clock, the function returns at least `guess_s`. 0: the change is
 * immediate. */
double harpe_online_latencies_bound_s(const harpe_online_latencies *self, int pipeline_rank,
                                      int mhz, double guess_s);
/* Returns the latency for plans, as a profile has it. 0: none is known, changes are immediate, or
 * `self` is NULL. */
double harpe_online_latencies_planned_s(const harpe_online_latencies *self, int pipeline_rank,
                                        int mhz);

/* Returns NULL if memory runs out. */
json_t *harpe_online_latencies_save(const harpe_online_latencies *self);
/* Returns false if the JSON is not what harpe_online_latencies_save writes for the same clocks. */
bool harpe_online_latencies_load(harpe_online_latencies *self, const json_t *saved);

/* ---- Rounds ---------------------------------------------------------------------------------- */

/* Reads one round's results for the online schedulers: time and energy of a run of each (stage,
 * instruction), also at each of its clocks, time and energy of an iteration, and time and energy
 * while GPUs waited. Says at which clocks the instructions really ran. Results come from clients
 * and can be wrong. Missing or invalid values are left out and reported in `problem`. They are
 * never an error. */

typedef struct harpe_online_mean {
    double time_s, energy_j; /* of one run; both are 0 if it was not measured */
} harpe_online_mean;

typedef struct harpe_online_round {
    harpe_online_mean *entries; /* one per entry; time: the slowest rank's; energy: the sum */
    size_t iterations;          /* the largest number that a rank reported */
    double iteration_time_s;    /* of the slowest rank; 0: not all ranks reported it */
    double iteration_energy_j;  /* of all ranks; 0: not all ranks reported it */
    /* For whole iterations (time: of the slowest rank; energy: sum of the ranks): the standard
     * deviation over the round's iterations, the number of iterations from which it is computed (0
     * or 1: the deviation is not known), and the sum over the iterations. */
    double time_spread_s, energy_spread_j;
    size_t spread_iterations;
    double total_time_s, total_energy_j;
    /* Time and energy of an iteration that are in no breakdown: for each pipeline rank, summed over
     * its GPUs. All are 0 if not all ranks report them. */
    harpe_online_mean *waiting;
    bool tells_waiting;
    bool ran_other_steps; /* an instruction ran more or less often than the schedule says */
    bool has_probe;       /* set by the caller: lower clocks ran to measure latencies */
    char problem[256];    /* why an entry was not measured, for people; "": all were measured */
} harpe_online_round;

/* Reads the results. Each value is the median over iterations, or the mean if there are fewer than
 * three. An iteration in which a rank ran an instruction more or less often than its schedule says
 * (an evaluation step, a list that was cut short) does not count for that instruction. Free with
 * harpe_online_round_free. */
harpe_status harpe_online_round_read(const harpe_online_pipeline *pipeline,
                                     const harpe_online_reports *reports, harpe_online_round *out,
                                     harpe_error *error);
void harpe_online_round_free(harpe_online_round *round);

/* ---- Runs at clocks -------------------------------------------------------------------------- */

/* The runs of one entry at one clock. */
typedef struct harpe_online_clock_runs {
    int entry, frequency_mhz;
    size_t run_count; /* in an iteration */
    size_t first_run, end_run;
    size_t iteration_count; /* the smallest number of a rank */
    harpe_online_mean mean; /* of one run; both values are 0 if they were not measured */
    double spread;          /* relative standard deviation of the time of one run; 0: not known */
} harpe_online_clock_runs;

/* Reads time and energy of each entry at each of its clocks. `frequency_mhz` has one value per
 * instruction of the pipeline; runs at 0 do not count. A negative clock stands for one instruction,
 * -1 for the first one, whose run is read by itself. The caller frees `*out` with free().
 * O(instructions * (clocks + iterations)). */
harpe_status harpe_online_round_read_clocks(const harpe_online_pipeline *pipeline,
                                            const harpe_online_reports *reports,
                                            const int *frequency_mhz, harpe_online_clock_runs **out,
                                            size_t *out_count, harpe_error *error);

/* ---- The clocks that runs had ---------------------------------------------------------------- */

/* An error in the shares of a run can make a clock look fast, so a run teaches something about its
 * main clock only if this has at least this share. */
#define HARPE_MAIN_SHARE_MIN 0.9

/* Finds at which clocks the instructions of a round really ran, one value per instruction of the
 * pipeline, from the clocks `asked_mhz` that the schedule asks for. Writes 0 for a run whose clocks
 * are not known, and a negative value for a run at several clocks: a GPU may change its clock late.
 * A rank that reports no clocks ran as its schedule asks. The clocks of a run are not known if the
 * ranks of its stage differ by more than a few percent of its time, or if it was at no clock for at
 * least `share_min` of its time. */
void harpe_find_real_clocks(const harpe_online_pipeline *pipeline,
                            const harpe_online_reports *reports, const int *asked_mhz,
                            double share_min, int *ran_mhz);

/* Returns the clocks of the instruction that a negative value of ran_mhz stands for, or NULL if the
 * value is not negative. They are those of the rank of the stage that had the lowest clocks. */
const harpe_run_clocks *harpe_real_clocks_of_run(const harpe_online_pipeline *pipeline,
                                                 const harpe_online_reports *reports, int ran_mhz);

/* ---- Plans ----------------------------------------------------------------------------------- */

/* The plans that an online job may run: the planner's frontier for the measured profile, and the
 * choice among the plans that job requests permit. They are made on a worker, and do not change
 * afterwards. */

typedef struct harpe_online_plans {
    harpe_problem *problem;
    harpe_frontier *frontier;
    harpe_plan_set *set; /* fastest (T_min) first */
    harpe_plan all_maximum;
    harpe_plan_set *one_clock; /* the plans with one clock for all GPUs */
    double undisturbed_s;      /* the lowest measured T_min, without corrections for drift */
} harpe_online_plans;

/* Makes plans. `blocking_power_w` is the blocking power of one GPU of each rank. The profile has
 * the number of GPUs of each stage. `undisturbed_s` is 0 if the profile has no corrections for
 * drift. Returns HARPE_INTERNAL if the profile is not of this pipeline. Free the plans with
 * harpe_online_plans_free. */
harpe_status harpe_online_plans_new(const harpe_online_pipeline *pipeline,
                                    const harpe_profile *profile, const double *blocking_power_w,
                                    int plan_count, double undisturbed_s, harpe_online_plans **out,
                                    harpe_error *error);
void harpe_online_plans_free(harpe_online_plans *plans);

/* Computes time and energy of an iteration with these clocks, as for the plans: with late changes
 * if the profile has latencies. The other members of `*out` are 0. */
harpe_status harpe_online_plans_evaluate(const harpe_online_plans *plans, const int *frequency_mhz,
                                         harpe_plan *out, harpe_error *error);

/* The job requests; 0: none. */
typedef struct harpe_online_requests {
    double slowdown, iteration_time_s; /* a straggler: at most one of the two is set */
    double plan_time_s;
    double power_cap_w;
} harpe_online_requests;

/* The time and energy of a measured iteration outside of the pipeline (optimizer step, all-reduce).
 * Both are 0 or more. */
typedef struct harpe_online_outside {
    double time_s, energy_j;
} harpe_online_outside;

/* Returns the iteration time that a straggler allows, or 0 without a straggler. Like the times of
 * plans, it does not include `outside`. A slowdown is relative to undisturbed_s and not to a newer
 * T_min, because the straggler may have caused the change since then. */
double harpe_online_straggler_time_s(double undisturbed_s, const harpe_online_requests *requests,
                                     harpe_online_outside outside);

/* Returns the time that job requests allow a plan: the time of the requested plan, or `slowdown`
 * times `fastest_s` without such a request, or the straggler's time if that is longer. Like the
 * times of plans, it does not include `outside`. */
double harpe_online_allowed_s(double fastest_s, double undisturbed_s, double slowdown,
                              const harpe_online_requests *requests, harpe_online_outside outside);

/* Chooses a plan. The time limit is the time of the requested plan, or `slowdown` times the time of
 * the highest clocks without such a request. If the straggler's time is longer, that is the limit.
 * The search begins with the slowest plan within the limit, or with the fastest plan if no plan is
 * within the limit. From there, it continues with slower plans, and ends at the first plan whose
 * power is within the cap. If there is no such plan, the result is the slowest plan. */
size_t harpe_online_plans_choose(const harpe_online_plans *plans, double slowdown,
                                 const harpe_online_requests *requests,
                                 harpe_online_outside outside);
/* Returns true if the average power of the whole job with this plan is within the cap. */
bool harpe_online_plan_is_within(const harpe_plan *plan, double power_cap_w,
                                 harpe_online_outside outside);

/* ---- Savings --------------------------------------------------------------------------------- */

/* Savings are computed from three kinds of sums: of the rounds at the highest clocks, which are the
 * baseline; of the other rounds, which are compared with the baseline; and of squares, from which
 * the uncertainties of both are computed. docs/online.md has the formulas. The structures contain
 * plain numbers and can be copied. This code does not depend on plans or instructions. */

/* The variance of a median, divided by that of a mean, is at most pi / 2. */
#define HARPE_MEDIAN_VARIANCE 1.5707963267948966
/* A deviation that is estimated from a median absolute deviation has fewer degrees of freedom than
 * a standard deviation of the same values. This is the ratio. */
#define HARPE_ROBUST_EFFICIENCY 0.37

/* Times are in s and energies in J, of all ranks together. */
enum { HARPE_TIME = 0, HARPE_ENERGY = 1, HARPE_QUANTITIES = 2 };

/* The measured values of one round. */
typedef struct harpe_savings_round {
    int64_t number, wall_s; /* wall_s: the time of its end, in s since 1970 */
    double iterations;
    double value[HARPE_QUANTITIES];   /* of a typical iteration; 0: not reported */
    double total[HARPE_QUANTITIES];   /* of all its iterations */
    double spread[HARPE_QUANTITIES];  /* standard deviation of one iteration */
    double freedom[HARPE_QUANTITIES]; /* of the spread: iterations - 1; 0: not known */
} harpe_savings_round;

/* The mean over rounds. The weight of a round is its number of iterations. */
typedef struct harpe_savings_mean {
    double rounds, iterations;
    double mean;
    double squares; /* sum of iterations * (round's value - mean)^2 */
} harpe_savings_mean;

/* Rounds in which every instruction ran at its highest clock. */
typedef struct harpe_baseline {
    harpe_savings_mean mean[HARPE_QUANTITIES];
    int64_t first_round, last_round;   /* valid if there is a round */
    int64_t first_wall_s, last_wall_s; /* the times at which these rounds ended */
} harpe_baseline;

/* A relative noise that is pooled over many measurements: its variance is squares / freedom. */
typedef struct harpe_noise {
    double squares, freedom;
} harpe_noise;

/* Sums over the iterations of all rounds that are compared with the baseline. */
typedef struct harpe_savings_sum {
    double iterations;
    double measured;   /* sum of the measured values */
    double squares;    /* sum of iterations * value^2 */
    double systematic; /* systematic uncertainty: half-width of changes without a known cause */
} harpe_savings_sum;

/* The sums of rounds that were compared with earlier baselines. */
typedef struct harpe_savings_closed {
    double saved, baseline;
    double squares; /* of the half-widths at 95 % */
    double systematic;
} harpe_savings_closed;

typedef struct harpe_savings {
    int64_t iterations; /* of the baseline, and of the rounds compared with it */
    double used[HARPE_QUANTITIES];
    harpe_baseline baseline;
    harpe_noise noise[HARPE_QUANTITIES];         /* of iterations within a round */
    harpe_savings_sum sum[HARPE_QUANTITIES];     /* rounds with lower clocks */
    harpe_savings_sum waiting[HARPE_QUANTITIES]; /* those that wait for a new baseline */
    bool is_waiting;                             /* the job has changed since the baseline */
    harpe_savings_closed closed[HARPE_QUANTITIES];
    /* Values of the previous round with lower clocks. Rounds with one iteration are compared with
     * it. */
    int64_t last_number;
    double last_value[HARPE_QUANTITIES];
} harpe_savings;

/* A value with the half-width of its 95 % confidence interval; INFINITY: not known. */
typedef struct harpe_estimate {
    double value, uncertainty;
} harpe_estimate;

/* Returns true if the first round at the highest clocks was a warm-up: its value `before` is much
 * larger than `value` of the second one. */
bool harpe_savings_is_warm_up(double before, double value);
/* Adds a round at the highest clocks to the baseline. */
void harpe_savings_add_baseline(harpe_savings *savings, const harpe_savings_round *round);
/* Adds a round that is compared with the baseline. `systematic` has the uncertainty of the baseline
 * in this round, for each quantity; the uncertainty does not include noise. */
void harpe_savings_add(harpe_savings *savings, const harpe_savings_round *round,
                       const double *systematic);
void harpe_savings_sum_add(harpe_savings_sum *to, const harpe_savings_sum *from);
/* Counts the time and energy of a round that is not compared with the baseline. */
void harpe_savings_use(harpe_savings *savings, const harpe_savings_round *round);
/* Ends the baseline, because the job has changed. The next round at the highest clocks begins a new
 * baseline. Rounds that are added before it wait for this baseline: they have no savings yet, and
 * are then compared with it. */
void harpe_savings_expect_baseline(harpe_savings *savings);

bool harpe_savings_has_baseline(const harpe_savings *savings, int quantity);
/* Returns the value of an iteration at the highest clocks. */
harpe_estimate harpe_savings_baseline(const harpe_savings *savings, int quantity);
/* Returns the difference between the baseline and the measured values, for one sum. */
harpe_estimate harpe_savings_of_sum(const harpe_savings *savings, const harpe_savings_sum *sum,
                                    int quantity);
/* Returns the difference between the baseline and the measured values, for all sums together. Sets
 * `*baseline` to the value of all these iterations at the highest clocks. */
harpe_estimate harpe_savings_total(const harpe_savings *savings, int quantity, double *baseline);
/* Returns true if the interval does not contain 0. */
bool harpe_estimate_is_significant(harpe_estimate estimate);

/* These functions save and load the sums for a restart of the server. `save` returns NULL if there
 * is no memory. `load` returns false if the JSON is not valid. */
json_t *harpe_savings_save(const harpe_savings *savings);
bool harpe_savings_load(harpe_savings *savings, const json_t *json);

/* Estimates the standard deviation of the distribution of `values` from their median absolute
 * deviation, so that one stall has no effect. Overwrites `values`. Returns 0 for fewer than two
 * values. */
double harpe_robust_spread(double *values, size_t count);
/* Returns the two-sided 95 % quantile of Student's distribution. */
double harpe_student_quantile(double freedom);

#endif
