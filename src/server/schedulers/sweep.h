/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep: from the highest common frequency down, one frequency a round for everybody, until
 * the energy of every (stage, instruction) has risen often enough in a row. It says what runs next,
 * keeps what was measured, and counts what it cost. It knows nothing of plans. */
#ifndef HARPE_SERVER_SCHEDULERS_SWEEP_H
#define HARPE_SERVER_SCHEDULERS_SWEEP_H

#include <jansson.h>
#include <stdbool.h>

#include <harpe/profile.h>

#include "server/schedulers/online_round.h"

/* What is known of one entry, highest frequency first. */
typedef struct harpe_sweep_list {
    harpe_profile_point *points; /* as they were swept; room for all frequencies */
    size_t count;
    double time_ratio, energy_ratio; /* what drift has made of all of them since; 1 at first */
    int rises;                       /* of its energy, in a row */
    bool has_stopped;                /* runs at its highest frequency until the others are done */
} harpe_sweep_list;

/* What the sweep took: all of its iterations, and an iteration of its first round, in which
 * everything ran at the highest frequency. */
typedef struct harpe_sweep_cost {
    size_t rounds, iterations;
    size_t timed_iterations,
        metered_iterations; /* those whose time and energy are in what follows */
    double time_s, energy_j;
    double first_time_s, first_energy_j;                     /* 0: not reported */
    double waiting_time_s, waiting_energy_j, watched_time_s; /* summed over rounds and ranks */
} harpe_sweep_cost;

typedef struct harpe_sweep {
    const harpe_online_pipeline *pipeline;
    int rank_count; /* of the job */
    int *frequencies_mhz;
    size_t frequency_count;
    size_t position; /* of the frequency that runs now; frequency_count: over */
    int rises_to_stop;
    int misses; /* rounds in a row that did not measure what they should */
    harpe_sweep_list *lists;
    harpe_sweep_cost cost;
} harpe_sweep;

/* `ranks` are the job's, `rank_count` of them. HARPE_INVALID_INPUT when they have no frequency in
 * common. Free with harpe_sweep_free. */
harpe_status harpe_sweep_new(const harpe_online_pipeline *pipeline, const harpe_rank_info *ranks,
                             int rank_count, int frequency_stride, int rises_to_stop,
                             harpe_sweep **out, harpe_error *error);
void harpe_sweep_free(harpe_sweep *sweep);

bool harpe_sweep_is_over(const harpe_sweep *sweep);
/* What an entry runs at in this round; the highest frequency once the sweep is over. */
int harpe_sweep_frequency_mhz(const harpe_sweep *sweep, int entry);

/* Takes a round's measurements. A round that lacks some is run again; after a few in a row the
 * sweep ends with what it has, or fails when that is nothing. */
harpe_status harpe_sweep_observe(harpe_sweep *sweep, const harpe_online_round *round,
                                 harpe_error *error);

/* Time and energy beyond (energy: mostly below) what as many iterations at the highest frequency
 * would have taken; 0 where that is not known. */
double harpe_sweep_extra_time_s(const harpe_sweep *sweep);
double harpe_sweep_extra_energy_j(const harpe_sweep *sweep);
/* What a GPU draws while it waits, by iterations less instructions; 0 when they hardly wait. */
double harpe_sweep_blocking_power_w(const harpe_sweep *sweep);

/* What an entry takes at a frequency, corrected by its ratios. False: it was not measured. */
bool harpe_sweep_point(const harpe_sweep *sweep, int entry, int frequency_mhz,
                       harpe_profile_point *out);
/* All points, corrected by their entries' ratios. */
harpe_status harpe_sweep_profile(const harpe_sweep *sweep, harpe_profile **out, harpe_error *error);

/* For a restart of the server. NULL when out of memory. Loading refuses what does not fit the
 * pipeline, with the sweep as it was. */
json_t *harpe_sweep_save(const harpe_sweep *sweep);
harpe_status harpe_sweep_load(harpe_sweep *sweep, const json_t *saved, harpe_error *error);

#endif
