/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the measurements of the GPUs of each data parallel replica: a curve of time and energy over
 * the clock for each (replica, stage, instruction). Decides whether the GPUs of a stage differ
 * between replicas. The tensor parallel GPUs of one stage and replica work in step and count as
 * one GPU. This code makes no plans. docs/online.md ("Replicas that differ") has the tests and
 * their certainty. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_REPLICA_CURVES_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_REPLICA_CURVES_H

#include <jansson.h>

#include "server/scheduler/perseus/clock_curve.h"
#include "server/scheduler/perseus/explorer.h"
#include "server/scheduler/perseus/online_round.h"

/* The probability that equal GPUs seem to differ in one comparison of all GPUs. */
#define HARPE_REPLICA_FALSE_ALARM 0.001

/* The GPUs of one stage of one replica. */
typedef struct harpe_replica_gpu {
    double rounds;   /* number of rounds at known clocks since the GPU's last change */
    int streak;      /* number of rounds in a row in which the GPU was clearly slower than before;
                      * negative: faster */
    bool differs;    /* the GPU differs from those of the same stage in the other replicas */
    double time_log; /* log of: the GPU's time divided by that of the other replicas' GPUs */
    double planned_log;  /* time_log for which the present plans of replicas were made */
    double energy_log;   /* log of: the GPU's energy divided by that of the other replicas' GPUs */
    double round_log;    /* log of: the time in the last round divided by that of the curve */
    bool is_round_known; /* round_log was measured */
} harpe_replica_gpu;

typedef struct harpe_replica_curves {
    const harpe_online_pipeline *pipeline;
    int replica_count, rank_count; /* rank_count: pipeline ranks */
    harpe_clock_curve *curves;     /* [replica][entry] */
    double *change;                /* [replica][entry][2]: logs of the last round's change */
    harpe_replica_gpu *gpus;       /* [replica][pipeline rank] */
    /* The pooled variances of a GPU's time and energy from round to round, and of runs. */
    harpe_explorer_noise time_noise, energy_noise, run_noise;
    int patience; /* doubles the rounds after which a GPU counts as slower */
    double calm;  /* rounds since the patience changed */
} harpe_replica_curves;

/* Makes curves without observations. The clocks are copied from the explorer; `pipeline` must
 * outlive the curves. Free with harpe_replica_curves_free. */
harpe_status harpe_replica_curves_new(const harpe_online_pipeline *pipeline,
                                      const harpe_explorer *explorer, int replica_count,
                                      harpe_replica_curves **out, harpe_error *error);
void harpe_replica_curves_free(harpe_replica_curves *self);

/* The results of one replica in a round: its runs at each clock. */
typedef struct harpe_replica_runs {
    harpe_online_clock_runs *runs;
    size_t count;
} harpe_replica_runs;

/* Learns from a round. `round` has the runs of each replica. Returns true if the time of a GPU has
 * changed by more than noise explains. This function has then put the new time into the curves of
 * this GPU. */
bool harpe_replica_curves_observe(harpe_replica_curves *self, const harpe_replica_runs *round);

/* Estimates time (in s) and energy (in J) of one run of an instruction on a replica at a measured
 * clock, and writes both to `*out`. `entry` is the number of the instruction in the pipeline. The
 * estimate is the explorer's mean over all replicas, times the usual ratio of this replica to the
 * mean. If this replica was measured at this clock, and the measurement clearly differs from the
 * estimate, `*out` receives the measurement instead. harpe_replica_profiles_smooth removes noise in
 * the same way. Returns false if the clock was not measured. */
bool harpe_replica_curves_point(const harpe_replica_curves *self, const harpe_explorer *explorer,
                                int replica, int entry, int frequency_mhz,
                                harpe_profile_point *out);

/* Compares the GPUs of each stage at the clocks `frequency_mhz`, one for each instruction, and sets
 * the member `differs` of each GPU. A GPU counts as different until its difference falls below half
 * of the threshold. Returns true if any GPU differs. */
bool harpe_replica_curves_compare(harpe_replica_curves *self, const harpe_explorer *explorer,
                                  const int *frequency_mhz);

/* Returns the relative standard error of a GPU's time. */
double harpe_replica_curves_error(const harpe_replica_curves *self, int replica, int rank);

static inline harpe_replica_gpu *harpe_replica_gpu_at(const harpe_replica_curves *curves,
                                                      int replica, int rank) {
    return &curves->gpus[(size_t)replica * (size_t)curves->rank_count + (size_t)rank];
}

json_t *harpe_replica_curves_save(const harpe_replica_curves *self);
/* Returns false if the data does not fit the job. */
bool harpe_replica_curves_load(harpe_replica_curves *self, const json_t *json);

#endif
