/* SPDX-License-Identifier: Apache-2.0 */
/* Plans for all pipeline replicas of a data parallel job together. GPUs of one model differ in
 * speed and power, so each GPU has a profile of its own, and gets a plan of its own.
 *
 *     harpe_replica_profiles --+
 *                              +--> harpe_replica_plans
 *     harpe_schedule ----------+
 *
 * A job has R replicas of one pipeline. Each stage of a replica has K GPUs that work in step
 * (tensor parallel peers); they are called peers here, and numbered from 0. An iteration of the job
 * ends when the slowest replica is ready. A faster replica therefore has time to spare, and its
 * plan uses this time. An instruction of K peers ends when the slowest peer has ended; each peer
 * has a clock of its own, and those that end early wait at their blocking power.
 *
 * Units, threads and ownership are those of <harpe/plan.h>. Objects do not change after they are
 * made. The profiles and the schedule need not outlive the plans. */
#ifndef HARPE_REPLICAS_H
#define HARPE_REPLICAS_H

#include <stddef.h>
#include <stdint.h>

#include <harpe/api.h>
#include <harpe/callback.h>
#include <harpe/plan.h>
#include <harpe/profile.h>
#include <harpe/schedule.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

/* ---- Profiles -------------------------------------------------------------------------------- */

/* The profile of each GPU of a job. */
typedef struct harpe_replica_profiles harpe_replica_profiles;

#define HARPE_REPLICAS_MAX 65536 /* replicas of a job, and peers of a stage */

/* Reads a CSV file with the columns of a profile (see harpe_profile_read_csv) and one or both of
 * the columns `replica` and `gpu`, from 0; a missing column is 0 in all rows. `gpu` is the number
 * of the peer within its stage. The names dp_rank and tp_rank mean the same as replica and gpu. The
 * columns rank and gpus are not allowed. blocking_power may differ between GPUs. Rows that one GPU
 * repeats are averaged, as in a profile. Fails with HARPE_INVALID_INPUT if a GPU lacks an
 * instruction that another one has. Accepts at most 256 MiB and 10 million rows. Errors name file,
 * line and column. Free `*out` with harpe_replica_profiles_free. */
HARPE_API harpe_status harpe_replica_profiles_read_csv(const char *path,
                                                       harpe_replica_profiles **out,
                                                       harpe_error *error);
HARPE_API harpe_status harpe_replica_profiles_parse_csv(const char *text, size_t length,
                                                        const char *name,
                                                        harpe_replica_profiles **out,
                                                        harpe_error *error);

/* Makes profiles from one profile for each GPU, which are copied: those of replica 0's peers first.
 * A GPU's profile has the rows of this peer number in all stages. */
HARPE_API harpe_status harpe_replica_profiles_new(const harpe_profile *const *profiles,
                                                  int replica_count, int peer_count,
                                                  harpe_replica_profiles **out, harpe_error *error);

/* How the GPUs of a job differ, for harpe_replica_profiles_vary. Every number is an assumption of
 * the caller. Initialise with zeros, then set the members that you need. */
typedef struct harpe_variability {
    int replica_count, peer_count; /* 1 .. HARPE_REPLICAS_MAX each, at most 1,000,000 GPUs; 0: 1 */
    double speed_deviation;        /* relative standard deviation of a GPU's times, 0 .. 0.3 */
    double power_deviation;        /* the same of its power, also while it waits, 0 .. 0.3 */
    double outlier_share;  /* this share of the GPUs, 0 .. 1, is slower by another factor, */
    double outlier_factor; /* which is between 1 and this number, 1 .. 10; 0: 1.5 */
    double noise;          /* relative standard deviation of each measured number, 0 .. 0.2 */
    uint64_t seed;         /* the same seed makes the same GPUs on every machine. The noise
                            * does not change the GPUs */
    uint64_t noise_seed;   /* the same for the noise */
} harpe_variability;

/* Makes the profiles of GPUs that differ by factors from the GPU of `base`. If the base is for
 * several GPUs of each stage, the energies are divided by their number. `blocking_power_w` is the
 * power of a waiting GPU before variation; 0: the base's own powers. */
HARPE_API harpe_status harpe_replica_profiles_vary(const harpe_profile *base,
                                                   double blocking_power_w,
                                                   const harpe_variability *variability,
                                                   harpe_replica_profiles **out,
                                                   harpe_error *error);

/* Removes noise. GPUs of one model differ by factors that are about the same at all clocks. For
 * each stage and instruction, the times of all GPUs are replaced by a factor of the GPU times a
 * number of the clock, which are fitted to the logarithms of all measured times. The energies are
 * replaced in the same way. Numbers that do not fit are left alone: those whose relative standard
 * deviation from the fitted ones is above `most_deviation` (0 to 1; 0.03 is usual), and all numbers
 * if there are fewer than 3 GPUs or clocks. If GPUs really differ in another way, but by less than
 * `most_deviation`, that difference is lost. Free `*out` with harpe_replica_profiles_free. */
HARPE_API harpe_status harpe_replica_profiles_smooth(const harpe_replica_profiles *profiles,
                                                     double most_deviation,
                                                     harpe_replica_profiles **out,
                                                     harpe_error *error);

HARPE_API void harpe_replica_profiles_free(harpe_replica_profiles *profiles);

/* Writes the profiles as one CSV file with the columns replica and gpu, completely or not at all.
 */
HARPE_API harpe_status harpe_replica_profiles_write_csv(const harpe_replica_profiles *profiles,
                                                        const char *path, harpe_error *error);

HARPE_API int harpe_replica_profiles_replica_count(const harpe_replica_profiles *profiles);
HARPE_API int harpe_replica_profiles_peer_count(const harpe_replica_profiles *profiles);
/* Returns the profile of one GPU number of a replica, or NULL. Valid while the profiles exist. */
HARPE_API const harpe_profile *harpe_replica_profiles_at(const harpe_replica_profiles *profiles,
                                                         int replica, int peer);

/* ---- Plans ----------------------------------------------------------------------------------- */

typedef struct harpe_replica_plans harpe_replica_plans;

/* Initialise with zeros, then set the members that you need. */
typedef struct harpe_replica_request {
    /* The iteration of the job takes at most this time; 0: the shortest time of the slowest
     * replica, times `slowdown`. A time below this shortest time fails with HARPE_INFEASIBLE. */
    double time_s;
    double slowdown; /* 1 or more; 0: 1. Not together with time_s */
    int threads;     /* the most threads; 0: one for each core that the process may use. The plans
                      * do not depend on it */
    /* Limits on the power of all replicas together, as in harpe_plan_request; 0: none. Replicas
     * then have plans of their own, also if their profiles are equal, and may begin later
     * (start_s). Without enough time, fails with HARPE_INFEASIBLE: a slower job may keep the
     * limits. */
    double max_peak_power_w;
    double max_swing_w;
    double max_swing_share; /* of the job's mean power */
} harpe_replica_request;

/* Time and energy of an iteration of the job: the time of the slowest replica, and the energy of
 * all GPUs until then. */
typedef struct harpe_replica_total {
    double time_s;
    double energy_j;
} harpe_replica_total;

/* The result for the whole job. */
typedef struct harpe_replica_job {
    harpe_replica_total own; /* each GPU follows its own plan */
    double lower_bound_j;    /* no plans with the time of `own` need less energy: the sum of the
                              * replicas' bounds */
    double fastest_s;        /* the shortest time of the slowest replica */
    double minimum_energy_s; /* the time at which the bound of the job is lowest */
    int slowest_replica;     /* the replica whose shortest time is fastest_s */
    int replica_count, peer_count, rank_count;
    int distinct_count; /* replicas whose profiles differ; the others share a plan. With limits on
                         * power: all replicas */
    harpe_replica_total all_maximum; /* every instruction at the highest clock */
    /* One plan for all replicas and peers: made from the longest times and the mean energies of
     * each stage for the same time (or its own shortest time, if that is longer), and evaluated
     * with the profiles of all GPUs. The time is 0 if the GPUs have no clocks in common. */
    harpe_replica_total one_plan;
} harpe_replica_job;

/* The plan of one replica. */
typedef struct harpe_replica_plan {
    double start_s;       /* it begins so much after the start of the iteration; above 0 only with
                           * limits on power */
    double time_s;        /* when the replica is ready */
    double energy_j;      /* until the job's iteration ends */
    double lower_bound_j; /* no plan of this replica needs less energy until then */
    double fastest_s;     /* its shortest time */
    int same_as;          /* the first replica with the same profiles; they share the plan */
} harpe_replica_plan;

/* Plans all replicas for one time. `options` may be NULL; wait powers, the exponential cost model
 * and gpus_per_stage fail with HARPE_NOT_SUPPORTED. Blocking powers in the options replace those of
 * the profiles, and overhead_power_w is the power of the machines of one replica. Also fails with
 * HARPE_NOT_SUPPORTED if a stage of the schedule runs on several ranks, and as harpe_problem_new
 * does; the message names the replica. `progress` (may be NULL) receives the phase "planning". If
 * it returns false, the function fails with HARPE_INTERRUPTED. Replicas are planned on several
 * threads; each needs the memory of one problem. Free with harpe_replica_plans_free. */
HARPE_API harpe_status harpe_replica_plans_new(const harpe_replica_profiles *profiles,
                                               const harpe_schedule *schedule,
                                               const harpe_problem_options *options,
                                               const harpe_replica_request *request,
                                               const harpe_progress *progress,
                                               harpe_replica_plans **out, harpe_error *error);
HARPE_API void harpe_replica_plans_free(harpe_replica_plans *plans);

HARPE_API harpe_replica_job harpe_replica_plans_job(const harpe_replica_plans *plans);
/* Returns the plan of a replica, or NULL. Valid while the plans exist. */
HARPE_API const harpe_replica_plan *harpe_replica_plans_at(const harpe_replica_plans *plans,
                                                           int replica);

/* Returns the job with one clock for all GPUs, which needs no planner: with the clock that needs
 * the least energy within `most_s`, or within the time of all_maximum if that is longer. It was
 * measured for every instruction of every GPU. `*frequency_mhz` is 0, and the total that of
 * all_maximum, if none needs less. Limits on power do not concern it. O(replicas * clocks). */
HARPE_API harpe_replica_total harpe_replica_plans_one_clock(const harpe_replica_plans *plans,
                                                            double most_s, int *frequency_mhz);

/* Returns the lower bound of the job's energy for an iteration of this time: a point of the
 * frontier of the job. The bound is lowest at minimum_energy_s. It is +infinity below the shortest
 * time. O(replicas log vertices). */
HARPE_API double harpe_replica_plans_bound_at(const harpe_replica_plans *plans, double time_s);

/* Writes `count` (2 or more) points of the frontier of the job, evenly spread from the shortest
 * time to minimum_energy_s. marginal_w is that just below the point. */
HARPE_API harpe_status harpe_replica_plans_frontier(const harpe_replica_plans *plans, size_t count,
                                                    harpe_frontier_vertex *points,
                                                    harpe_error *error);

/* Returns the clocks of one GPU, in MHz, in the order of its rank's list, and their number in
 * `*count`. NULL: no such GPU. Valid while the plans exist. */
HARPE_API const int *harpe_replica_plans_frequencies(const harpe_replica_plans *plans, int replica,
                                                     int rank, int peer, size_t *count);
/* Returns the name of entry `index` of a rank's list, or NULL. */
HARPE_API const char *harpe_replica_plans_instruction_name(const harpe_replica_plans *plans,
                                                           int rank, size_t index);

/* Which clocks harpe_replica_plans_evaluate takes. */
typedef enum harpe_replica_clocks {
    HARPE_REPLICA_OWN_PLANS = 0,
    HARPE_REPLICA_ONE_PLAN = 1,
    HARPE_REPLICA_ALL_MAXIMUM = 2,
} harpe_replica_clocks;

/* Evaluates the clocks with other profiles, for example with later measurements. The profiles must
 * have the same numbers of replicas and peers, and `schedule` and `options` must be those of the
 * plans. Fails with HARPE_INVALID_INPUT if a GPU has no row for a clock. */
HARPE_API harpe_status harpe_replica_plans_evaluate(const harpe_replica_plans *plans,
                                                    harpe_replica_clocks clocks,
                                                    const harpe_replica_profiles *profiles,
                                                    const harpe_schedule *schedule,
                                                    const harpe_problem_options *options,
                                                    harpe_replica_total *out, harpe_error *error);

/* Checks the plans with code that shares nothing with the search: evaluates every plan again with
 * the profiles, compares all times, energies and sums, and compares the lower bounds with those of
 * harpe_frontier_new. Fails with HARPE_INTERNAL if a check fails; the message names it. The other
 * arguments are those of harpe_replica_plans_new. */
HARPE_API harpe_status harpe_replica_plans_verify(const harpe_replica_plans *plans,
                                                  const harpe_replica_profiles *profiles,
                                                  const harpe_schedule *schedule,
                                                  const harpe_problem_options *options,
                                                  harpe_error *error);

/* Write a plan file (see harpe_plan_file_read), completely or not at all: the lists of one replica,
 * or of all. The lists are ordered by replica, then by pipeline rank, then by peer, as
 * PointSolution3D expects them. */
HARPE_API harpe_status harpe_replica_plans_write(const harpe_replica_plans *plans, const char *path,
                                                 harpe_error *error);
HARPE_API harpe_status harpe_replica_plans_write_one(const harpe_replica_plans *plans, int replica,
                                                     const char *path, harpe_error *error);

HARPE_END_DECLS

#endif
