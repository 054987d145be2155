/* SPDX-License-Identifier: Apache-2.0 */
/* The search of clocks while a job runs: curves over the clock, the explorer, and its trials.
 * Several sources define these functions. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_EXPLORER_INTERNAL_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_EXPLORER_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include <harpe/profile.h>

#include "plan/dag.h"
#include "server/scheduler/perseus/online_internal.h"

/* ---- Curves over the clock ------------------------------------------------------------------- */

/* What is known about time and power of one (stage, instruction) over the clock. A curve keeps
 * weighted means of observations, and computes an estimate of every clock with bounds of its time.
 * Two rules of physics help: at a lower clock an instruction never takes less time, and its time
 * grows at most by the ratio of the clocks. Real GPUs break these rules a little. So an observed
 * time counts more than the rules. A curve does not depend on plans or schedules. */

/* The observations at one clock. */
typedef struct harpe_clock_point {
    double weight;           /* number of runs; 0: not observed */
    double time_s, energy_j; /* means of one run */
} harpe_clock_point;

typedef struct harpe_clock_curve {
    const int *mhz; /* the highest clock first; owned by the caller */
    size_t count;
    harpe_clock_point *points; /* one per clock */
} harpe_clock_curve;

/* A part of the time of a run, and the clock in this part. The shares of a run add up to 1. */
typedef struct harpe_clock_share {
    size_t clock; /* index */
    double share;
} harpe_clock_share;

/* A clock that was not observed is expected to take at most this share longer than the rules
 * permit. In measured profiles it is 1 %; steps of clocks that a GPU cannot run make it more. */
#define HARPE_CLOCK_BREAK_SHARE 0.1

/* The estimate of one clock, for one run. */
typedef struct harpe_clock_estimate {
    double time_s, energy_j;
    /* Bounds of the time. Without noise the true time of an observed clock is within them, and that
     * of another clock as well if it keeps the rules. */
    double lower_s, upper_s;
    double error; /* relative standard error of an observed time; INFINITY: not observed */
} harpe_clock_estimate;

/* Makes an empty curve. Returns false if memory runs out. Free with harpe_clock_curve_free. */
bool harpe_clock_curve_init(harpe_clock_curve *curve, const int *mhz, size_t count);
void harpe_clock_curve_free(harpe_clock_curve *curve);
/* Returns the index of a clock, or curve->count if the curve does not have it. */
size_t harpe_clock_curve_find(const harpe_clock_curve *curve, int mhz);
/* Forgets all observations. */
void harpe_clock_curve_forget(harpe_clock_curve *curve);

/* Adds the observed mean time and energy of runs at the clocks of `shares`. If a run had several
 * clocks, the observation belongs to the clock with the largest share, and the parts at other
 * clocks are removed with their estimates. Such an observation has less weight, and none if no
 * share is at least half. `noise` is the relative standard deviation of a run's time. */
void harpe_clock_curve_observe(harpe_clock_curve *curve, const harpe_clock_share *shares,
                               size_t share_count, double time_s, double energy_j, double weight,
                               double noise);

/* Estimates all clocks. `out` has curve->count elements. `waiting_w` is the power of the same GPUs
 * while they wait: the power falls to it at low clocks. Returns false if the highest clock was not
 * observed. O(count). */
bool harpe_clock_curve_estimate(const harpe_clock_curve *curve, double noise, double waiting_w,
                                harpe_clock_estimate *out);

/* How far the observations of clocks are from a curve through the clocks beside them: sums over
 * `count` clocks of the squared relative differences, less what noise explains. */
typedef struct harpe_clock_misfit {
    double time, energy;
    size_t count;
} harpe_clock_misfit;

/* Compares each observed clock between two others with the curve through these, and adds the
 * results to `*sum`. */
void harpe_clock_curve_add_misfit(const harpe_clock_curve *curve, double noise,
                                  harpe_clock_misfit *sum);

/* These functions save and load the observations. `save` returns NULL if memory runs out. `load`
 * returns false if `save` did not write the JSON for the same clocks; the curve may then have some
 * of the observations. */
json_t *harpe_clock_curve_save(const harpe_clock_curve *curve);
bool harpe_clock_curve_load(harpe_clock_curve *curve, const json_t *saved);

/* ---- Trials ---------------------------------------------------------------------------------- */

/* Places trials of clocks into the slack of a pipeline. Every duration is an upper bound, so the
 * iteration cannot take longer than the limit. After a request for a clock, a GPU may keep its old
 * clock for some time, and instructions in this time take as long as at the old clock. A trial is
 * therefore a block of consecutive instructions that lasts longer than the change of the clock: one
 * instruction, if changes are immediate. This code knows instructions only by numbers: it depends
 * neither on measurements nor on jobs. */

/* The clocks of one (stage, instruction). */
typedef struct harpe_trial_choices {
    int rank;                              /* pipeline rank that runs it */
    size_t count;                          /* number of clocks, the highest first */
    const harpe_clock_estimate *estimates; /* [count] */
    double waiting_w;                      /* power of the GPUs while they wait */
    bool *is_wanted;                       /* [count]: a run at this clock is worth measuring */
    bool *is_wanted_most;                  /* [count]: the next plan needs it */
    bool *is_placed;                       /* [count]: a run of this round has this clock */
} harpe_trial_choices;

typedef struct harpe_trials {
    const harpe_dag *dag;
    const int *entry_of;          /* [node_count]: the choices of a node */
    harpe_trial_choices *entries; /* [entry_count] */
    size_t entry_count;
    size_t first_entry;    /* its trials are placed first */
    const size_t *planned; /* [node_count]: the clocks that save the most energy */
    /* The GPUs, one per pipeline rank. All instructions of a rank have the same list of clocks. */
    int rank_count;
    bool is_late;                   /* changes take time; if not, all latencies are 0 */
    const size_t *rank_offset;      /* [rank_count + 1]: first node of each rank */
    const double *const *latency_s; /* [rank_count][clock]: longest time of a change to it */
    const double *const *usual_s;   /* [rank_count][clock]: most changes take at most this */
    const size_t *clock_before;     /* [node_count]: in the round before */
    /* The results. */
    size_t *clock;   /* [node_count]: indices into the choices' clocks */
    double length_s; /* upper bound of the time of an iteration */
    size_t placed;   /* number of trials */
    size_t work;     /* steps of work, see HARPE_TRIALS_WORK */
} harpe_trials;

/* A limit on the work of one call. A step of this work is, for example, a visit of an instruction,
 * and takes some nanoseconds. When the call reaches the limit, it places no more trials and lowers
 * no more clocks. Large pipelines reach the limit. */
enum { HARPE_TRIALS_WORK = 1 << 26 };

/* Chooses the clock of each node, such that the iteration takes at most `limit_s`. The function
 * starts from the highest clocks. First it places the trials that are wanted most where there is
 * the most slack. If a clock does not fit anywhere, the lowest wanted clock above it that fits is
 * tried instead. Then the function lowers the clock of every other run, at most to its planned
 * clock, if its slack permits. Only a trial runs at a clock that was not observed, because such a
 * run may take any time. The limit holds in the first iteration of the round and in the later ones,
 * and for every time from 0 to its latency that a change may take. The exception is a round after
 * which changes to the highest clocks are so late that these clocks alone break the limit. */
harpe_status harpe_trials_place(harpe_trials *trials, double limit_s, harpe_error *error);

/* Makes a round at the highest clocks in which the ranks learn how long changes of the clock take.
 * On each rank, a short block of instructions runs at the next lower clock. If there is room, a
 * long block does so too. The function chooses the blocks that cost least time. The iteration takes
 * at most `limit_s`. */
harpe_status harpe_trials_probe(harpe_trials *trials, double limit_s, harpe_error *error);

/* ---- Explorer -------------------------------------------------------------------------------- */

/* Learns what the instructions of a job take at each clock, in one of two ways. Safe exploration
 * learns the clocks that a plan needs, without a round that is slower than promised. It first runs
 * rounds at the highest clocks. In each later round, different runs of an instruction have
 * different clocks, and the time of every clock that was not measured is bounded by physics.
 * docs/online.md explains the promise. A sweep promises nothing: it runs one clock a round on each
 * pipeline rank, from the highest down, until the energy of every (stage, instruction) has risen
 * several times in a row. This code makes the schedule of the next round and decides when enough is
 * known; it does not run plans. */

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

/* The cost of learning. `time_s` and `energy_j` are sums over all iterations. `first_time_s` and
 * `first_energy_j` are those of one iteration at the highest clocks, for comparison: from the first
 * round, or from the second round if the first one was a warm-up and the second one contains a
 * probe. */
typedef struct harpe_explorer_cost {
    size_t rounds, iterations;
    size_t timed_iterations,
        metered_iterations; /* the iterations in time_s, and those in energy_j */
    double time_s, energy_j;
    double first_time_s, first_energy_j; /* 0: not reported */
    harpe_explorer_waiting waiting;      /* of all ranks */
} harpe_explorer_cost;

typedef struct harpe_explorer {
    const harpe_online_pipeline *pipeline;
    int rank_count;                    /* number of the job's ranks */
    int rises_to_stop;                 /* for a sweep; 0: this is an exploration */
    harpe_arena arena;                 /* of the lists below */
    harpe_tried_clocks *clocks;        /* one per pipeline rank */
    size_t clock_count;                /* of the longest list of clocks */
    harpe_online_latencies *latencies; /* of changes to these clocks */
    harpe_explorer_entry *entries;     /* one per entry */
    harpe_explorer_waiting *waiting;   /* one per pipeline rank */
    int *frequency_mhz;                /* of the present round, one per instruction */
    int *next_mhz;                     /* of the next round */
    harpe_online_mean *seen;           /* of a round that ran a plan, for people; one per entry */
    /* Working memory, whose contents do not outlive the handling of a round. */
    int *ran_mhz;                /* one per instruction */
    harpe_online_mean *ratios;   /* one per entry */
    harpe_clock_estimate *known; /* one per clock of the longest list */
    /* What follows is 0 when learning begins. */

    /* In a sweep, the index of the present clock. In an exploration, 0 until a lower clock was
     * tried, then 1. In both, clock_count when learning is over. */
    size_t position;
    int misses; /* rounds in a row with missing measurements */
    harpe_explorer_cost cost;
    harpe_noise noise;     /* of the time of one run, over all instructions */
    size_t rounds;         /* observed rounds since the start, or since the last request */
    size_t highest_rounds; /* those of `rounds` that ran no lower clock, at the start */
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
    const int *ran_mhz; /* clock of each instruction now; NULL: that of the present round */
} harpe_explorer_terms;

static inline int harpe_explorer_gpus_per_stage(const harpe_explorer *explorer) {
    return explorer->rank_count / explorer->pipeline->rank_count;
}

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
/* Returns true if each instruction has its highest clock in `frequency_mhz`. */
bool harpe_explorer_are_highest(const harpe_explorer *explorer, const int *frequency_mhz);
/* Returns true if the present round is a probe: a round at the highest clocks in which some blocks
 * run at lower clocks. */
bool harpe_explorer_ran_probe(const harpe_explorer *explorer);
bool harpe_explorer_is_over(const harpe_explorer *explorer);

/* Counts the cost of a round of learning. */
void harpe_explorer_count(harpe_explorer *explorer, const harpe_online_round *round);
/* Learns from the results of the present round. `round` was read from `reports`. In a sweep, also
 * chooses the clocks of the next round. After a few rounds in a row with missing values, learning
 * ends with the values that were measured; the function fails if there are none. */
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
/* Returns the additional time and energy of learning: the time or energy of its iterations, minus
 * that of as many iterations at the highest clocks; 0: not known. The additional energy is usually
 * negative. */
harpe_online_mean harpe_explorer_extra(const harpe_explorer *explorer);
/* Returns the blocking power of a GPU of a pipeline rank, computed from the time and energy of
 * iterations outside of their instructions. Pipeline ranks with the same list of clocks have GPUs
 * of the same model, so the sums over these pipeline ranks are used. If these GPUs wait too little,
 * the sums over all GPUs are used. Returns 0 if all GPUs together wait too little. */
double harpe_explorer_blocking_power_w(const harpe_explorer *explorer, int pipeline_rank);
/* Writes time and energy of an entry at a clock, corrected by the entry's ratios. Returns false if
 * the clock was not measured. */
bool harpe_explorer_point(const harpe_explorer *explorer, int entry, int frequency_mhz,
                          harpe_profile_point *out);
/* Returns a point of an entry as a row of a profile. A stage has `gpu_count` GPUs. */
harpe_measurement harpe_explorer_row(const harpe_explorer *explorer, size_t entry,
                                     harpe_profile_point point, int gpu_count);
/* Writes the rows of a profile: all points, entry by entry, corrected by their ratios. `gpu_count`
 * is the number of GPUs of a stage. `blocking_power_w` NULL: not known. The caller frees `*out`
 * with free(). */
harpe_status harpe_explorer_rows(const harpe_explorer *explorer, int gpu_count,
                                 const double *blocking_power_w, harpe_measurement **out,
                                 size_t *out_count, harpe_error *error);
/* Makes the profile of all points, corrected by their entries' ratios. `blocking_power_w` has the
 * blocking power of a GPU of each pipeline rank. If one of these values is not possible (0:
 * not known), the profile has no blocking power. */
harpe_status harpe_explorer_profile(const harpe_explorer *explorer, const double *blocking_power_w,
                                    harpe_profile **out, harpe_error *error);

/* Returns true if the GPUs change their clocks late, or if it is not known whether they do. */
static inline bool harpe_explorer_may_be_late(const harpe_explorer *explorer) {
    return harpe_online_latencies_are_late(explorer->latencies) ||
           harpe_online_latencies_are_unknown(explorer->latencies);
}

/* These functions save and load the state of an explorer, so that a server that was killed
 * continues with the same round. `save` returns NULL if memory runs out. `load` reads into an
 * explorer of the same job. If the state does not fit, `load` returns false, and the explorer must
 * be freed or begun again. */
json_t *harpe_explorer_save(const harpe_explorer *explorer);
bool harpe_explorer_load(harpe_explorer *explorer, const json_t *saved);

/* ---- Plan of the next round ------------------------------------------------------------------ */

/* Makes the rounds of an exploration, and decides when enough is known. */

/* Makes the schedule of the next round. Sets `*is_finished` if the clocks that were measured are
 * enough for a plan under these terms; the schedule then does not change. */
harpe_status harpe_explorer_plan(harpe_explorer *explorer, const harpe_explorer_terms *terms,
                                 bool *is_finished, harpe_error *error);

#endif
