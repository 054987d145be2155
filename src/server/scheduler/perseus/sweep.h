/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep runs one frequency a round on each pipeline rank, from its highest frequency down,
 * until the energy of every (stage, instruction) has risen several times in a row. Pipeline ranks
 * with GPUs of different models have different lists of frequencies. This code chooses the next
 * frequency, keeps the measurements, and counts the cost. It does not depend on plans. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_SWEEP_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_SWEEP_H

#include <stdbool.h>

#include <harpe/profile.h>

#include "server/scheduler/perseus/online_round.h"
#include "server/scheduler/perseus/switch_latencies.h"

/* The points of one entry, the highest frequency first. */
typedef struct harpe_sweep_list {
    harpe_profile_point *points; /* as measured; has space for all frequencies */
    size_t count;
    double time_ratio,
        energy_ratio; /* corrections for drift since the sweep, the same for all points; 1: none */
    int rises;        /* how many times in a row its energy has risen */
    bool has_stopped; /* runs at its highest frequency until the end of the sweep */
} harpe_sweep_list;

/* Time and energy of the iterations outside of their instructions, and the whole time of these
 * iterations. Sums over rounds and GPUs. */
typedef struct harpe_sweep_waiting {
    double time_s, energy_j, watched_s;
} harpe_sweep_waiting;

/* The cost of the sweep: sums over all of its iterations, and an iteration of its first round. All
 * instructions of that round ran at the highest frequency. If the round was a warm-up and the next
 * one has a probe, it is an iteration of the next one. */
typedef struct harpe_sweep_cost {
    size_t rounds, iterations;
    size_t timed_iterations,
        metered_iterations; /* iterations that are counted in the members below */
    double time_s, energy_j;
    double first_time_s, first_energy_j; /* 0: not reported */
    harpe_sweep_waiting waiting;         /* of all ranks */
} harpe_sweep_cost;

typedef struct harpe_sweep {
    const harpe_online_pipeline *pipeline;
    int rank_count;               /* of the job */
    harpe_sweep_clocks *clocks;   /* one per pipeline rank */
    harpe_sweep_waiting *waiting; /* one per pipeline rank */
    size_t frequency_count;       /* of the longest list of clocks */
    size_t position; /* index of the present frequency; frequency_count: the sweep is over */
    int rises_to_stop;
    int misses; /* rounds in a row with missing measurements */
    harpe_sweep_list *lists;
    harpe_sweep_cost cost;
} harpe_sweep;

/* Makes a sweep. `ranks` has the `rank_count` ranks of the job. Returns HARPE_INVALID_INPUT if the
 * ranks of a stage have no frequency in common. Free the sweep with harpe_sweep_free. */
harpe_status harpe_sweep_new(const harpe_online_pipeline *pipeline, const harpe_rank_info *ranks,
                             int rank_count, int frequency_stride, int rises_to_stop,
                             harpe_sweep **out, harpe_error *error);
void harpe_sweep_free(harpe_sweep *sweep);

bool harpe_sweep_is_over(const harpe_sweep *sweep);
/* Returns the frequency of an entry in this round; the highest frequency after the sweep. */
int harpe_sweep_frequency_mhz(const harpe_sweep *sweep, int entry);
/* Returns the highest frequency of a pipeline rank. */
int harpe_sweep_highest_mhz(const harpe_sweep *sweep, int pipeline_rank);
/* Returns true if all of these clocks, one per instruction, are the highest ones. */
bool harpe_sweep_are_highest(const harpe_sweep *sweep, const int *frequency_mhz);
/* Returns the frequency of this round if all pipeline ranks try the same one, otherwise 0. */
int harpe_sweep_common_mhz(const harpe_sweep *sweep);

/* Adds the measurements of a round. If values are missing, the same frequency runs again in the
 * next round. After a few such rounds in a row, the sweep ends with the values that it has. It
 * fails if it has none. */
harpe_status harpe_sweep_observe(harpe_sweep *sweep, const harpe_online_round *round,
                                 harpe_error *error);

/* Parts of harpe_sweep_observe for an exploration, which chooses its clocks itself: counts the cost
 * of a round, and counts a round with missing values, which ends the sweep or fails as above. */
void harpe_sweep_count(harpe_sweep *sweep, const harpe_online_round *round);
harpe_status harpe_sweep_miss(harpe_sweep *sweep, const harpe_online_round *round,
                              harpe_error *error);

/* These functions return the additional time and energy of the sweep: its time or energy minus that
 * of the same number of iterations at the highest frequency. They return 0 if it is not known. The
 * additional energy is usually negative. */
double harpe_sweep_extra_time_s(const harpe_sweep *sweep);
double harpe_sweep_extra_energy_j(const harpe_sweep *sweep);
/* Returns the blocking power of a GPU of a pipeline rank, computed from the time and energy of
 * iterations outside of their instructions. Pipeline ranks with the same list of frequencies have
 * GPUs of the same model, and are taken together. If these GPUs wait too little, the blocking power
 * is that of all GPUs. Returns 0 if all GPUs together wait too little. */
double harpe_sweep_blocking_power_w(const harpe_sweep *sweep, int pipeline_rank);

/* Writes time and energy of an entry at a frequency, corrected by its ratios. Returns false if they
 * were not measured. */
bool harpe_sweep_point(const harpe_sweep *sweep, int entry, int frequency_mhz,
                       harpe_profile_point *out);
/* Writes all points, corrected by their entries' ratios. `blocking_power_w` has the blocking power
 * of a GPU of each pipeline rank. A profile with a value that is not possible (0: not known) has
 * none. `latencies` (NULL: none) are those of changes to the clocks. */
harpe_status harpe_sweep_profile(const harpe_sweep *sweep, const double *blocking_power_w,
                                 const harpe_online_latencies *latencies, harpe_profile **out,
                                 harpe_error *error);

/* Save and load a sweep for a restart of the server. `save` returns NULL if memory runs out. `load`
 * returns false and leaves the sweep as it was if the data does not fit the pipeline. */
json_t *harpe_sweep_save(const harpe_sweep *sweep);
bool harpe_sweep_load(harpe_sweep *sweep, const json_t *saved);

#endif
