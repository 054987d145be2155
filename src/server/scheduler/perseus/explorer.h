/* SPDX-License-Identifier: Apache-2.0 */
/* Safe exploration: learns the clocks that a plan needs, without a round that is slower than
 * promised. It first runs rounds at the highest clocks. In each later round, different runs of an
 * instruction have different clocks, and the time of every clock that was not measured is bounded
 * by physics. docs/online.md explains the promise. This code makes the schedule of the next round
 * and decides when enough is known; it does not run plans. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_EXPLORER_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_EXPLORER_H

#include <jansson.h>

#include "server/scheduler/perseus/clock_curve.h"
#include "server/scheduler/perseus/online_plans.h"
#include "server/scheduler/perseus/online_round.h"
#include "server/scheduler/perseus/sweep.h"
#include "server/scheduler/perseus/switch_latencies.h"

/* What is known about the noise of one run's time, over all instructions. */
typedef struct harpe_explorer_noise {
    double squares, freedom;
} harpe_explorer_noise;

typedef struct harpe_explorer {
    const harpe_online_pipeline *pipeline;
    harpe_sweep *sweep;        /* has the clocks, and receives the points; owned by the caller */
    harpe_clock_curve *curves; /* one per entry */
    int *frequency_mhz;        /* of the present round, one per instruction */
    int *next_mhz;             /* of the next round */
    const harpe_online_latencies *latencies; /* owned by the caller */
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

/* Makes an explorer whose first round has the highest clocks. Free with harpe_explorer_free. */
harpe_status harpe_explorer_new(const harpe_online_pipeline *pipeline, harpe_sweep *sweep,
                                const harpe_online_latencies *latencies, harpe_explorer **out,
                                harpe_error *error);
void harpe_explorer_free(harpe_explorer *explorer);

/* Returns true if the present round is a probe: a round at the highest clocks in which some blocks
 * run at lower clocks. */
bool harpe_explorer_ran_probe(const harpe_explorer *explorer);

/* Learns from the results of the present round. `round` was read from `reports`. */
harpe_status harpe_explorer_observe(harpe_explorer *explorer, const harpe_online_round *round,
                                    const harpe_online_reports *reports,
                                    const harpe_explorer_terms *terms, harpe_error *error);

/* Begins the round that was made last. The results that are observed next are its results. */
void harpe_explorer_begin_round(harpe_explorer *explorer);
/* Takes the points of the sweep as observations, if an exploration has none of its own. */
void harpe_explorer_seed(harpe_explorer *explorer);
/* Forgets all observations, because they contradict each other, and begins again. */
void harpe_explorer_restart(harpe_explorer *explorer);
/* A straggler has come or changed. It may be a GPU of this job. The next round has the highest
 * clocks and shows how much slower the GPUs have become. If the explorer's round `is_running`, it
 * is of no use, because the straggler has come during this round. */
void harpe_explorer_look_for_straggler(harpe_explorer *explorer, bool is_running);
/* The straggler is gone. Restores the times from before it. */
void harpe_explorer_forget_straggler(harpe_explorer *explorer);
/* Gives the next round the highest clocks, if the planner could not make a better one. */
void harpe_explorer_run_highest(harpe_explorer *explorer);

/* Writes the points of all measured clocks into the lists of the sweep. */
harpe_status harpe_explorer_hand_over(const harpe_explorer *explorer, harpe_error *error);

/* Returns the relative standard deviation of the time of one run. */
double harpe_explorer_noise_of(const harpe_explorer *explorer);
/* Counts the clocks of all entries that were measured. */
size_t harpe_explorer_measured(const harpe_explorer *explorer);

/* Save and load an exploration, so that a server that was killed continues with the same round.
 * `save` returns NULL if memory runs out. `load` reads into a new explorer of the same job. It
 * returns false if the state does not fit; the explorer must then be freed or restarted. */
json_t *harpe_explorer_save(const harpe_explorer *explorer);
bool harpe_explorer_load(harpe_explorer *explorer, const json_t *saved);

#endif
