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

/* What is known of one entry of the pipeline. */
typedef struct harpe_explorer_entry {
    harpe_clock_curve curve;
    /* The measured clocks, the highest first, without the ratios. They follow from the curve. */
    harpe_profile_point *points;
    size_t count;
    double time_ratio, energy_ratio; /* corrections for drift, for all points; 1: none */
    int rises;                       /* of a sweep: how many times in a row its energy has risen */
    bool has_stopped;                /* of a sweep: runs at its highest clock until the end */
} harpe_explorer_entry;

/* Time and energy of the iterations outside of their instructions, and the whole time of these
 * iterations. Sums over rounds and GPUs. */
typedef struct harpe_explorer_waiting {
    double time_s, energy_j, watched_s;
} harpe_explorer_waiting;

/* The cost of learning: sums over all of its iterations, and an iteration of its first round. All
 * instructions of that round ran at the highest clock. If the round was a warm-up and the next one
 * has a probe, it is an iteration of the next one. */
typedef struct harpe_explorer_cost {
    size_t rounds, iterations;
    size_t timed_iterations,
        metered_iterations; /* iterations that are counted in the members below */
    double time_s, energy_j;
    double first_time_s, first_energy_j; /* 0: not reported */
    harpe_explorer_waiting waiting;      /* of all ranks */
} harpe_explorer_cost;

/* What is known about the noise of one run's time, over all instructions. */
typedef struct harpe_explorer_noise {
    double squares, freedom;
} harpe_explorer_noise;

typedef struct harpe_explorer {
    const harpe_online_pipeline *pipeline;
    int rank_count;                    /* of the job */
    int rises_to_stop;                 /* of a sweep; 0: it explores */
    harpe_tried_clocks *clocks;        /* one per pipeline rank */
    size_t clock_count;                /* of the longest list of clocks */
    harpe_online_latencies *latencies; /* of changes to these clocks */
    harpe_explorer_entry *entries;     /* one per entry */
    harpe_explorer_waiting *waiting;   /* one per pipeline rank */
    int *frequency_mhz;                /* of the present round, one per instruction */
    int *next_mhz;                     /* of the next round */
    /* Of a sweep: the index of the present clock. Of an exploration: 0 until a lower clock was
     * tried, then 1. clock_count: the learning is over. */
    size_t position;
    int misses; /* rounds in a row with missing measurements */
    harpe_explorer_cost cost;
    harpe_explorer_noise noise;
    size_t rounds;         /* that were observed since the start, or since the last request */
    size_t highest_rounds; /* of them, rounds at the start without a lower clock */
    size_t spoiled_rounds;
    int surprises;       /* rounds in a row that took longer than promised */
    int restarts;        /* how often everything was forgotten */
    size_t wanted_count; /* clocks that the next plan needs, and that are not known */
    size_t measured_before, stale_rounds; /* clocks, and rounds in a row without a new one */
    double promised_s; /* upper bound of the present round's pipeline time; 0: not computed */
    double next_promised_s;
    double fastest_s;  /* of the pipeline at the highest clocks */
    bool is_exploring; /* the rounds at the highest clocks are over */
    /* A straggler: rounds until it is known whether it is a GPU of this job, and the fastest time
     * without it (0: there is no straggler, or nothing was measured before it). */
    int looks;
    int straggler_rounds; /* rounds of a plan that may still show that it is a GPU of this job */
    double undisturbed_s;
} harpe_explorer;

/* What the next round must keep to. */
typedef struct harpe_explorer_terms {
    double slowdown, exploration_slowdown; /* exploration_slowdown: a share, such as 0.01 */
    harpe_online_requests requests;
    harpe_online_outside outside;
    double undisturbed_s;           /* 0: the fastest time */
    const double *blocking_power_w; /* of a GPU of each pipeline rank; 0: not known */
    int gpus_per_stage;
    const int *ran_mhz; /* one per instruction: what runs now; NULL: the explorer's present round */
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

/* Begins the round that was made last. The results that are observed next are its results. */
void harpe_explorer_begin_round(harpe_explorer *explorer);
/* Gives the next round the highest clocks. */
void harpe_explorer_run_highest(harpe_explorer *explorer);
/* Returns the highest clock of an entry. */
int harpe_explorer_highest_mhz(const harpe_explorer *explorer, int entry);
/* Returns true if all of these clocks, one per instruction, are the highest ones. */
bool harpe_explorer_are_highest(const harpe_explorer *explorer, const int *frequency_mhz);
/* Returns true if the present round is a probe: a round at the highest clocks in which some blocks
 * run at lower clocks. */
bool harpe_explorer_ran_probe(const harpe_explorer *explorer);
/* Returns the clock of this round of a sweep if all pipeline ranks try the same one, otherwise 0.
 */
int harpe_explorer_common_mhz(const harpe_explorer *explorer);
bool harpe_explorer_is_over(const harpe_explorer *explorer);

/* Counts the cost of a round of learning. */
void harpe_explorer_count(harpe_explorer *explorer, const harpe_online_round *round);
/* Counts a round with missing values. After a few such rounds in a row, learning ends with the
 * values that it has. It fails if it has none. */
harpe_status harpe_explorer_miss(harpe_explorer *explorer, const harpe_online_round *round,
                                 harpe_error *error);
/* Learns from the results of the present round. `round` was read from `reports`. A sweep then has
 * the clocks of its next round. */
harpe_status harpe_explorer_observe(harpe_explorer *explorer, const harpe_online_round *round,
                                    const harpe_online_reports *reports,
                                    const harpe_explorer_terms *terms, harpe_error *error);

/* Forgets all that was learnt, and its cost, and begins to learn. Latencies stay. */
void harpe_explorer_begin(harpe_explorer *explorer);
/* Forgets all observations, because they contradict each other, and begins again. */
void harpe_explorer_restart(harpe_explorer *explorer);
/* A straggler has come or changed. It may be a GPU of this job. The next round has the highest
 * clocks and shows how much slower the GPUs have become. If the explorer's round `is_running`, it
 * is of no use, because the straggler has come during this round. */
void harpe_explorer_look_for_straggler(harpe_explorer *explorer, bool is_running);
/* The straggler is gone. Restores the times from before it. */
void harpe_explorer_forget_straggler(harpe_explorer *explorer);

/* ---- What was learnt ------------------------------------------------------------------------- */

/* Returns the relative standard deviation of the time of one run. */
double harpe_explorer_noise_of(const harpe_explorer *explorer);
/* Counts the clocks of all entries that were measured. */
size_t harpe_explorer_measured(const harpe_explorer *explorer);
/* These functions return the additional time and energy of learning: its time or energy minus that
 * of the same number of iterations at the highest clock. They return 0 if it is not known. The
 * additional energy is usually negative. */
double harpe_explorer_extra_time_s(const harpe_explorer *explorer);
double harpe_explorer_extra_energy_j(const harpe_explorer *explorer);
/* Returns the blocking power of a GPU of a pipeline rank, computed from the time and energy of
 * iterations outside of their instructions. Pipeline ranks with the same list of clocks have GPUs
 * of the same model, and are taken together. If these GPUs wait too little, the blocking power is
 * that of all GPUs. Returns 0 if all GPUs together wait too little. */
double harpe_explorer_blocking_power_w(const harpe_explorer *explorer, int pipeline_rank);
/* Writes time and energy of an entry at a clock, corrected by its ratios. Returns false if they
 * were not measured. */
bool harpe_explorer_point(const harpe_explorer *explorer, int entry, int frequency_mhz,
                          harpe_profile_point *out);
/* Writes the rows of a profile: all points, entry by entry, corrected by their ratios. `gpu_count`
 * is the number of GPUs of a stage. The caller frees `*out` with free(). */
harpe_status harpe_explorer_rows(const harpe_explorer *explorer, int gpu_count,
                                 harpe_measurement **out, size_t *out_count, harpe_error *error);
/* Makes the profile of all points, corrected by their entries' ratios. `blocking_power_w` has the
 * blocking power of a GPU of each pipeline rank. A profile with a value that is not possible (0:
 * not known) has none. */
harpe_status harpe_explorer_profile(const harpe_explorer *explorer, const double *blocking_power_w,
                                    harpe_profile **out, harpe_error *error);

/* Save and load what was learnt, so that a server that was killed continues with the same round.
 * `save` returns NULL if memory runs out. `load` reads into an explorer of the same job. It returns
 * false if the state does not fit; the explorer must then be freed or begun again. */
json_t *harpe_explorer_save(const harpe_explorer *explorer);
bool harpe_explorer_load(harpe_explorer *explorer, const json_t *saved);

#endif
