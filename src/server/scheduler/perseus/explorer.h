/* SPDX-License-Identifier: Apache-2.0 */
/* Learns what the instructions of a job take at each clock, in one of two ways. Safe exploration
 * learns the clocks that a plan needs, without a round that is slower than promised. It first runs
 * rounds at the highest clocks. In each later round, different runs of an instruction have
 * different clocks, and the time of every clock that was not measured is bounded by physics.
 * docs/online.md explains the promise. A sweep promises nothing: it runs one clock a round on each
 * pipeline rank, from the highest down, until the energy of every (stage, instruction) has risen
 * several times in a row. This code makes the schedule of the next round and decides when enough is
 * known; it does not run plans. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_EXPLORER_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_EXPLORER_H

#include <jansson.h>

#include <harpe/profile.h>

#include "server/scheduler/perseus/clock_curve.h"
#include "server/scheduler/perseus/online_plans.h"
#include "server/scheduler/perseus/online_round.h"
#include "server/scheduler/perseus/switch_latencies.h"

/* The observations of one entry of the pipeline. */
typedef struct harpe_explorer_entry {
    harpe_clock_curve curve;
    /* The measured clocks, the highest first. The points are computed from the curve, and the
     * ratios are not applied to them. */
    harpe_profile_point *points;
    size_t count;
    double time_ratio, energy_ratio; /* corrections for drift, for all points; 1: none */
    int rises;        /* in a sweep: how many times in a row the entry's energy has risen */
    bool has_stopped; /* in a sweep: the entry runs at its highest clock until the end */
} harpe_explorer_entry;

/* The time and energy of iterations outside of their instructions, and the whole time of these
 * iterations. All are sums over rounds and GPUs. */
typedef struct harpe_explorer_waiting {
    double time_s, energy_j, watched_s;
} harpe_explorer_waiting;

/* The cost of learning: sums over all iterations, and one iteration at the highest clocks for
 * comparison. The latter is from the first round. If the first round was a warm-up and the second
 * round has a probe, it is from the second round. */
typedef struct harpe_explorer_cost {
    size_t rounds, iterations;
    size_t timed_iterations,
        metered_iterations; /* the iterations in time_s, and those in energy_j */
    double time_s, energy_j;
    double first_time_s, first_energy_j; /* 0: not reported */
    harpe_explorer_waiting waiting;      /* of all ranks */
} harpe_explorer_cost;

/* A noise that is pooled over many measurements: its variance is squares / freedom. */
typedef struct harpe_explorer_noise {
    double squares, freedom;
} harpe_explorer_noise;

typedef struct harpe_explorer {
    const harpe_online_pipeline *pipeline;
    int rank_count;                    /* number of the job's ranks */
    int rises_to_stop;                 /* for a sweep; 0: this is an exploration */
    harpe_tried_clocks *clocks;        /* one per pipeline rank */
    size_t clock_count;                /* of the longest list of clocks */
    harpe_online_latencies *latencies; /* of changes to these clocks */
    harpe_explorer_entry *entries;     /* one per entry */
    harpe_explorer_waiting *waiting;   /* one per pipeline rank */
    int *frequency_mhz;                /* of the present round, one per instruction */
    int *next_mhz;                     /* of the next round */
    /* In a sweep, the index of the present clock. In an exploration, 0 until a lower clock was
     * tried, then 1. In both, clock_count when learning is over. */
    size_t position;
    int misses; /* rounds in a row with missing measurements */
    harpe_explorer_cost cost;
    harpe_explorer_noise noise; /* of the time of one run, over all instructions */
    size_t rounds;              /* observed rounds since the start, or since the last request */
    size_t highest_rounds;      /* those of `rounds` that ran no lower clock, at the start */
    size_t spoiled_rounds;
    int surprises;                        /* rounds in a row that took longer than promised */
    int restarts;                         /* how often all observations were forgotten */
    size_t wanted_count;                  /* unknown clocks that the next plan needs */
    size_t measured_before, stale_rounds; /* measured clocks; rounds in a row without a new clock */
    double promised_s; /* upper bound of the present round's pipeline time; 0: not computed */
    double next_promised_s;
    double fastest_s;     /* of the pipeline at the highest clocks */
    bool is_exploring;    /* the rounds at the highest clocks are over */
    int looks;            /* rounds until it is known whether the straggler is a GPU of this job */
    int straggler_rounds; /* rounds left in which a plan can reveal such a GPU */
    double undisturbed_s; /* fastest time without the straggler; 0: there is no straggler, or
                           * nothing was measured before it came */
} harpe_explorer;

/* The limits that the next round must keep. */
typedef struct harpe_explorer_terms {
    double slowdown, exploration_slowdown; /* exploration_slowdown: a share, such as 0.01 */
    harpe_online_requests requests;
    harpe_online_outside outside;
    double undisturbed_s;           /* 0: the fastest time */
    const double *blocking_power_w; /* of a GPU of each pipeline rank; 0: not known */
    int gpus_per_stage;
    const int *ran_mhz; /* clock of each instruction now; NULL: that of the present round */
} harpe_explorer_terms;

/* Makes an explorer whose first round has the highest clocks. `ranks` has the `rank_count` ranks of
 * the job; every `stride`th clock is tried. `rises_to_stop` is 0 for an exploration. Returns
 * HARPE_INVALID_INPUT if the ranks of a stage have no clock in common. Free with
 * harpe_explorer_free. */
harpe_status harpe_explorer_new(const harpe_online_pipeline *pipeline, const harpe_rank_info *ranks,
                                int rank_count, int stride, int rises_to_stop, harpe_explorer **out,
                                harpe_error *error);
void harpe_explorer_free(harpe_explorer *explorer);

/* ---- Rounds ---------------------------------------------------------------------------------- */

/* Begins the round that was made last. The next observed results belong to this round. */
void harpe_explorer_begin_round(harpe_explorer *explorer);
/* Gives the next round the highest clocks. */
void harpe_explorer_run_highest(harpe_explorer *explorer);
/* Returns the highest clock of an entry. */
int harpe_explorer_highest_mhz(const harpe_explorer *explorer, int entry);
/* Returns true if each instruction has its highest clock in `frequency_mhz`. */
bool harpe_explorer_are_highest(const harpe_explorer *explorer, const int *frequency_mhz);
/* Returns true if the present round is a probe: a round at the highest clocks in which some blocks
 * run at lower clocks. */
bool harpe_explorer_ran_probe(const harpe_explorer *explorer);
/* Returns the clock of this round of a sweep if all pipeline ranks try the same clock, and
 * otherwise 0. */
int harpe_explorer_common_mhz(const harpe_explorer *explorer);
bool harpe_explorer_is_over(const harpe_explorer *explorer);

/* Counts the cost of a round of learning. */
void harpe_explorer_count(harpe_explorer *explorer, const harpe_online_round *round);
/* Counts a round with missing values. After a few such rounds in a row, learning ends with the
 * values that were measured. Fails if no value was measured. */
harpe_status harpe_explorer_miss(harpe_explorer *explorer, const harpe_online_round *round,
                                 harpe_error *error);
/* Learns from the results of the present round. `round` was read from `reports`. In a sweep, also
 * chooses the clocks of the next round. */
harpe_status harpe_explorer_observe(harpe_explorer *explorer, const harpe_online_round *round,
                                    const harpe_online_reports *reports,
                                    const harpe_explorer_terms *terms, harpe_error *error);

/* Forgets all observations and the cost of learning, and begins to learn. Keeps the latencies. */
void harpe_explorer_begin(harpe_explorer *explorer);
/* Forgets all observations, because they contradict each other, and begins again. */
void harpe_explorer_restart(harpe_explorer *explorer);
/* Call it when a straggler has come or changed, because the straggler may be a GPU of this job. The
 * next round has the highest clocks and shows how much slower the GPUs have become. If `is_running`
 * is true, the results of the explorer's present round are not used, because the straggler has come
 * during this round. */
void harpe_explorer_look_for_straggler(harpe_explorer *explorer, bool is_running);
/* Restores the times from before the straggler. Call it when the straggler is gone. */
void harpe_explorer_forget_straggler(harpe_explorer *explorer);

/* ---- What was learnt ------------------------------------------------------------------------- */

/* Returns the relative standard deviation of the time of one run. */
double harpe_explorer_noise_of(const harpe_explorer *explorer);
/* Counts the clocks of all entries that were measured. */
size_t harpe_explorer_measured(const harpe_explorer *explorer);
/* These functions return the additional time and energy of learning: the time or energy of its
 * iterations, minus that of as many iterations at the highest clocks. They return 0 if the result
 * is not known. The additional energy is usually negative. */
double harpe_explorer_extra_time_s(const harpe_explorer *explorer);
double harpe_explorer_extra_energy_j(const harpe_explorer *explorer);
/* Returns the blocking power of a GPU of a pipeline rank, computed from the time and energy of
 * iterations outside of their instructions. Pipeline ranks with the same list of clocks have GPUs
 * of the same model, so the sums over these pipeline ranks are used. If these GPUs wait too little,
 * the sums over all GPUs are used. Returns 0 if all GPUs together wait too little. */
double harpe_explorer_blocking_power_w(const harpe_explorer *explorer, int pipeline_rank);
/* Writes time and energy of an entry at a clock, corrected by the entry's ratios. Returns false if
 * the clock was not measured. */
bool harpe_explorer_point(const harpe_explorer *explorer, int entry, int frequency_mhz,
                          harpe_profile_point *out);
/* Writes the rows of a profile: all points, entry by entry, corrected by their ratios. `gpu_count`
 * is the number of GPUs of a stage. The caller frees `*out` with free(). */
harpe_status harpe_explorer_rows(const harpe_explorer *explorer, int gpu_count,
                                 harpe_measurement **out, size_t *out_count, harpe_error *error);
/* Makes the profile of all points, corrected by their entries' ratios. `blocking_power_w` has the
 * blocking power of a GPU of each pipeline rank. If one of these values is not possible (0:
 * not known), the profile has no blocking power. */
harpe_status harpe_explorer_profile(const harpe_explorer *explorer, const double *blocking_power_w,
                                    harpe_profile **out, harpe_error *error);

/* These functions save and load the state of an explorer, so that a server that was killed
 * continues with the same round. `save` returns NULL if memory runs out. `load` reads into an
 * explorer of the same job. If the state does not fit, `load` returns false, and the explorer must
 * be freed or begun again. */
json_t *harpe_explorer_save(const harpe_explorer *explorer);
bool harpe_explorer_load(harpe_explorer *explorer, const json_t *saved);

#endif
