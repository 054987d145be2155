/* SPDX-License-Identifier: Apache-2.0 */
/* What a scheduler has for people. The figures of a job are the energy that it used, its savings,
 * and the plan that it runs. Plain data. A worker computes it together with the scheduler's state,
 * and the loop shows it (figures.c, metrics.c). */
#ifndef HARPE_SERVER_SCHEDULER_FIGURES_H
#define HARPE_SERVER_SCHEDULER_FIGURES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/pfo.h>

#include "pfo/result_scan.h"

/* ---- Conduct --------------------------------------------------------------------------------- */

/* Sums up the conduct of all ranks over the rounds of a job: spoiled rounds and the reasons, steps
 * that ran as planned, and the comparison of energy counters with integrated power. Plain data. */

/* Why the measurements of a round are spoiled. A round can have several reasons. */
typedef enum harpe_spoil {
    HARPE_SPOIL_MISFIT = 0,     /* steps in a result did not fit the schedule */
    HARPE_SPOIL_DISOBEYED = 1,  /* a GPU had another clock than the set one */
    HARPE_SPOIL_JITTER = 2,     /* a few steps took much longer than the others */
    HARPE_SPOIL_MISSING = 3,    /* a rank has reported no step */
    HARPE_SPOIL_IMPOSSIBLE = 4, /* a GPU had an energy that cannot be */
    HARPE_SPOILS = 5,
} harpe_spoil;
extern const char *const harpe_spoil_names[HARPE_SPOILS]; /* in JSON and /metrics */

/* Two energies of the same time. */
typedef struct harpe_energy_pair {
    double counter_j, power_j;
    double uncertainty_j; /* half-width of the 95 % confidence interval of the difference */
} harpe_energy_pair;

/* Initialise with zeros. */
typedef struct harpe_conduct_sums {
    int64_t rounds, spoiled_rounds;
    int64_t spoiled[HARPE_SPOILS]; /* rounds by reason */
    int64_t last_round;            /* the last spoiled round, if there is one */
    int64_t last_reasons;          /* its reasons, a bit for each harpe_spoil */
    int64_t last_rank;             /* the first rank with one of these reasons */
    int64_t wanted_mhz, held_mhz;  /* of the last GPU that did not obey; 0: every GPU has obeyed */
    int64_t disobedient_rank;      /* its rank */

    /* Steps of all ranks; `told_rounds` 0: no rank has reported them. */
    int64_t told_rounds, steps, as_planned, misfits, disobeyed, lost, left_out;
    int64_t tokens_per_step; /* as a rank has reported it; 0: not reported */

    /* Since the start of the ranks. `compared_ranks` 0: nothing was compared. */
    int64_t compared_ranks;
    harpe_energy_pair all, worst;
    int64_t worst_rank; /* the rank with the largest difference relative to its uncertainty */
} harpe_conduct_sums;

/* The sums over the ranks of one round. Initialise with zeros. */
typedef struct harpe_conduct_round {
    int64_t reasons, ranks, compared_ranks;
    int64_t first_rank, worst_rank;
    bool is_told;
    harpe_energy_pair all, worst;
    double late_j, spread_j; /* the parts of all.uncertainty_j */
} harpe_conduct_round;

/* Adds a rank of a round. `reasons` are those that the rank's conduct does not say. */
void harpe_conduct_sums_add_rank(harpe_conduct_sums *sums, harpe_conduct_round *round, int rank,
                                 int64_t reasons, const harpe_conduct *conduct);
/* Adds the round, after its ranks were added. */
void harpe_conduct_sums_end_round(harpe_conduct_sums *sums, const harpe_conduct_round *round);
/* Adds a round with all its ranks. `schedules` NULL: it is not known what the ranks should have
 * run. */
void harpe_conduct_sums_add(harpe_conduct_sums *sums, const harpe_profiling_result *results,
                            const harpe_conduct *conducts,
                            const harpe_frequency_schedule *schedules, size_t count);

/* Returns true if the difference of the two energies is not larger than its uncertainty. `ranks` is
 * the number of ranks among which the pair was chosen: the largest of many differences is large by
 * chance. */
bool harpe_energy_pair_agrees(const harpe_energy_pair *pair, int64_t ranks);

/* The sums in the stored state of a scheduler. Returns NULL if memory runs out. */
json_t *harpe_conduct_sums_save(const harpe_conduct_sums *sums);
/* Returns false and leaves `sums` unchanged if the JSON has no sums. */
bool harpe_conduct_sums_load(harpe_conduct_sums *sums, const json_t *json);

/* The measured baseline. Uncertainties are half-widths of 95 % confidence intervals; INFINITY: not
 * known. */
typedef struct harpe_figures_baseline {
    double time_s, time_uncertainty_s; /* of an iteration */
    double energy_j, energy_uncertainty_j;
    int64_t iterations, rounds;        /* on which it is based */
    int64_t first_round, last_round;   /* the first and the last of these rounds */
    int64_t first_wall_s, last_wall_s; /* when they ended, in s since 1970 */
} harpe_figures_baseline;

typedef struct harpe_figures {
    /* Sums over all reported iterations; 0: none were reported. After a restart they are not known
     * until the stored results are in them; the engine sets `is_known`. */
    bool is_known;
    int64_t iterations;
    double used_energy_j, used_time_s;
    double power_w; /* of all ranks, in the last reported round; 0: not known */

    /* Savings relative to the baseline. They are set only if a baseline was measured. Uncertainties
     * are half-widths of 95 % confidence intervals; INFINITY: not known. */
    bool has_savings;
    double saved_energy_j, saved_energy_uncertainty_j, energy_baseline_j;
    double lost_time_s, lost_time_uncertainty_s, time_baseline_s;
    harpe_figures_baseline baseline;

    harpe_conduct_sums conduct;
    int64_t tokens_per_step; /* of the whole job; 0: not known */

    const char *phase; /* static; NULL: the scheduler has no phases */
    int64_t plan;      /* number of the running plan, from 0, of `plan_count`; -1: none */
    int64_t plan_count;
    double plan_time_s, plan_energy_j; /* predicted for an iteration of this plan */
    /* Predicted for an iteration at the highest clocks, and with the one clock for all GPUs that
     * needs the least energy of those that are as fast as the plan, or as the highest clocks if
     * these are slower. A clock of 0: none is better than the highest clocks. */
    double highest_time_s, highest_energy_j;
    int one_clock_mhz;
    double one_clock_time_s, one_clock_energy_j;
} harpe_figures;

/* A file that a scheduler has made for people. The scheduler does not write the file itself,
 * because ranks wait while it runs; the engine does. Initialise it with zeros. If path is NULL,
 * there is no file. Free it with harpe_scheduler_file_free. */
typedef struct harpe_scheduler_file {
    char *path, *text;
    size_t length;
    char *directory;  /* directory to create first; NULL: `path` may be anywhere, and other programs
                         may write it */
    bool is_repeated; /* the scheduler made it before a restart too, so the file may exist */
} harpe_scheduler_file;

void harpe_scheduler_file_free(harpe_scheduler_file *file); /* leaves it empty */

#endif
