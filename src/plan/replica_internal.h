/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas of a job, each with the profiles of its GPUs: profiles, problems and plans. Private to
 * src/plan; replica_classes.h is for other rooms too. */
#ifndef HARPE_PLAN_REPLICA_INTERNAL_H
#define HARPE_PLAN_REPLICA_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include <harpe/profile.h>
#include <harpe/replicas.h>

#include "base/array.h"
#include "plan/plans.h"
#include "plan/problem.h"
#include "plan/replica_classes.h"

/* ---- Profiles -------------------------------------------------------------------------------- */

/* The contents of a harpe_replica_profiles, and what its makers share. */

struct harpe_replica_profiles {
    int replica_count, peer_count;
    harpe_profile **gpus; /* [replica * peer_count + peer]; owned */
};

#define HARPE_REPLICA_GPUS_MAX ((size_t)1000000)

/* Compares the rows of all GPUs of two replicas. Returns 0 if they are equal; otherwise the sign
 * says which replica comes first. */
int harpe_replica_profiles_compare(const harpe_replica_profiles *profiles, int one, int other);

/* ---- Problem of a replica -------------------------------------------------------------------- */

/* The problem of one replica. Each instruction has the combined options of its peers. In the
 * harpe_problem a combination has a number in place of a frequency: the first combination of n has
 * the number n, and the last one has the number 1. */

/* Combinations of the clocks of all peers. The first one has all peers at their highest clocks. The
 * others are the Pareto-optimal combinations that differ from it, fastest first. */
typedef struct harpe_peer_options {
    int peer_count;
    size_t count;
    double *time_s;     /* [count]: the longest time of a peer */
    double *energy_j;   /* [count]: of all peers until then, waiting included */
    int *frequency_mhz; /* [count * peer_count] */
} harpe_peer_options;

/* Combines the points of each peer. `power_w` has the power of each peer while it waits. The arena
 * owns the result. O(n log n) for n points of all peers, plus the size of the result. */
harpe_status harpe_peers_combine(const harpe_profile_entry *const *entries, const double *power_w,
                                 int peer_count, harpe_arena *arena, harpe_peer_options *out,
                                 harpe_error *error);

/* The clocks that a replica follows are an array of peer_count lists, each of which has
 * instruction_count clocks in the order of the problem. */
typedef struct harpe_replica_problem {
    harpe_arena arena;
    harpe_problem *problem;
    int peer_count;
    double *power_w; /* [stage * peer_count + peer]: while the peer waits */
    size_t entry_count;
    const harpe_profile_entry **entries; /* [entry * peer_count + peer]; the profiles own them */
    harpe_peer_options *options;         /* [entry]: in the order of the profiles' entries */
    size_t *entry_of;                    /* [choice]: SIZE_MAX for delays */
} harpe_replica_problem;

/* What makes the problems of a job. All must outlive the problems. */
typedef struct harpe_replica_source {
    const harpe_replica_profiles *profiles;
    const harpe_schedule *schedule;
    const harpe_problem_options *options; /* NULL: the defaults */
} harpe_replica_source;

/* Makes the problem. Fails with HARPE_NOT_SUPPORTED for options that replicas do not have, and if a
 * stage runs on several ranks. Errors begin with "replica N: ". */
harpe_status harpe_replica_problem_new(const harpe_replica_source *source, int replica,
                                       harpe_replica_problem *out, harpe_error *error);
void harpe_replica_problem_clear(harpe_replica_problem *replica);

/* Makes the problem, calls `use` with it, and frees it. */
harpe_status harpe_replica_problem_use(const harpe_replica_source *source, int replica,
                                       harpe_status (*use)(void *user,
                                                           const harpe_replica_problem *problem,
                                                           harpe_error *error),
                                       void *user, harpe_error *error);

/* Returns the time of an iteration in which all instructions are at their fastest. */
harpe_status harpe_replica_problem_fastest(const harpe_replica_problem *replica, double *fastest_s,
                                           harpe_error *error);

/* Writes the clocks of the peers for numbers of combinations. */
void harpe_replica_problem_decode(const harpe_replica_problem *replica, const int *numbers,
                                  int *frequency_mhz);

/* Evaluates clocks. The clocks of a peer begin at index peer * `stride` of `frequency_mhz`; with
 * the stride 0, all peers have the same clocks. If `frequency_mhz` is NULL, every instruction is at
 * its highest clock. */
harpe_status harpe_replica_problem_run(const harpe_replica_problem *replica,
                                       const int *frequency_mhz, size_t stride,
                                       harpe_replica_run *out, harpe_error *error);

/* ---- Plans of replicas ----------------------------------------------------------------------- */

/* The plan of a class of replicas. */
typedef struct harpe_replica_group {
    int *frequency_mhz;       /* [peer][instruction] */
    int *numbers;             /* [instruction]: combinations, if there are limits on power */
    harpe_frontier *frontier; /* from the shortest time of the job on */
    double fastest_s;
} harpe_replica_group;

struct harpe_replica_plans {
    harpe_arena arena; /* of the names */
    harpe_replica_job job;
    harpe_replica_plan *plans;     /* [replica] */
    harpe_replica_classes classes; /* of replicas with the same profiles */
    harpe_replica_group *groups;   /* [class] */
    /* Two tables, one after the other: [harpe_replica_clocks][class] has the runs of the classes at
     * these clocks; [clock][class] has their runs with one clock for all GPUs. The time of a run is
     * INFINITY if a GPU was not measured at the clock. */
    harpe_replica_run *runs;
    size_t instruction_count;
    size_t *rank_offset; /* [rank_count + 1] */
    const char **names;  /* [instruction] */
    int *one_plan_mhz;   /* [instruction]; NULL: there is no such plan */
    int *clock_mhz;      /* [clock]: those that all GPUs may have */
    size_t clock_count;
};

#endif
