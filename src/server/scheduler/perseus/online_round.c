/* SPDX-License-Identifier: Apache-2.0 */
/* Computes one number for each measured quantity from a round's results, and says what is missing.
 * chosen_runs.c reads the runs of an instruction. */
#include "server/scheduler/perseus/online_round.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "server/scheduler/perseus/savings.h"
#include "server/scheduler/stages.h"

typedef struct reading {
    const harpe_online_pipeline *pipeline;
    harpe_online_round *round;
    double *scratch; /* has one element for each iteration of the longest list */
    bool tells_time, tells_energy, tells_waiting;
} reading;

/* ---- Numbers --------------------------------------------------------------------------------- */

static double typical_of_list(const double *values, size_t count, double maximum, double *scratch) {
    size_t good = 0;
    for (size_t i = 0; i < count; i++)
        if (values[i] > 0 && values[i] <= maximum) scratch[good++] = values[i];
    return harpe_typical_value(scratch, good);
}

/* ---- What is missing ------------------------------------------------------------------------- */

static void tell_problem(harpe_online_round *round, int rank, const char *what,
                         const harpe_online_name *name, const harpe_breakdown *breakdown) {
    size_t runs = 0;
    for (size_t i = 0; breakdown && i < breakdown->iteration_count && runs == 0; i++)
        runs = breakdown->counts[i];
    if (runs > 0 && runs != name->run_count) round->ran_other_steps = true;
    if (round->problem[0]) return;
    if (runs == 0) {
        (void)snprintf(round->problem, sizeof round->problem, "rank %d reported no %s of '%.64s'",
                       rank, what, name->instruction);
    } else if (runs != name->run_count) {
        (void)snprintf(round->problem, sizeof round->problem,
                       "rank %d ran '%.64s' %zu times in an iteration, but the schedule has it %zu "
                       "times (check num_microbatches and schedule)",
                       rank, name->instruction, runs, name->run_count);
    } else {
        (void)snprintf(round->problem, sizeof round->problem,
                       "rank %d's %s of '%.64s' is zero or out of range", rank, what,
                       name->instruction);
    }
}

/* ---- One rank -------------------------------------------------------------------------------- */

static void read_entry(reading *self, const harpe_profiling_result *result,
                       const harpe_online_name *name, int entry) {
    harpe_chosen_runs all = {.name = name,
                             .entry = entry,
                             .count = self->pipeline->entries[entry].run_count,
                             .end = name->run_count};
    harpe_online_mean own = harpe_chosen_runs_read(result, &all, self->scratch);
    if (harpe_online_mean_add(&self->round->entries[entry], own)) return;
    if (!(own.time_s > 0)) {
        tell_problem(self->round, result->rank, "time", name,
                     harpe_find_breakdown(result->time_breakdown, result->time_breakdown_count,
                                          name->instruction));
    } else if (!(own.energy_j > 0)) {
        tell_problem(self->round, result->rank, "energy", name,
                     harpe_find_breakdown(result->energy_breakdown, result->energy_breakdown_count,
                                          name->instruction));
    }
}

/* Reads the waiting time and energy: the time and energy of an iteration minus all values of the
 * breakdowns. This includes instructions that the schedule does not have. */
static void read_waiting(reading *self, const harpe_profiling_result *result, int pipeline_rank,
                         double time_s, double energy_j) {
    self->tells_waiting = self->tells_waiting && time_s > 0 && energy_j > 0 &&
                          result->time_breakdown_count == result->energy_breakdown_count;
    for (size_t b = 0; b < result->time_breakdown_count && self->tells_waiting; b++) {
        const harpe_breakdown *times = &result->time_breakdown[b];
        const harpe_breakdown *energies = harpe_find_breakdown(
            result->energy_breakdown, result->energy_breakdown_count, times->instruction);
        self->tells_waiting = energies != NULL;
        if (!energies) return;
        time_s -= harpe_typical_total(times, self->scratch);
        energy_j -= harpe_typical_total(energies, self->scratch);
    }
    self->round->waiting[pipeline_rank].time_s += time_s;
    self->round->waiting[pipeline_rank].energy_j += energy_j;
}

static void read_rank(reading *self, const harpe_profiling_result *result, int pipeline_rank) {
    const harpe_online_pipeline *pipeline = self->pipeline;
    harpe_online_round *round = self->round;
    for (size_t n = pipeline->name_offset[pipeline_rank];
         n < pipeline->name_offset[pipeline_rank + 1]; n++) {
        const harpe_online_name *name = &pipeline->names[n];
        for (int e = name->first_entry; e < name->first_entry + name->entry_count; e++)
            read_entry(self, result, name, e);
    }
    double time_s = typical_of_list(result->iteration_time_s, result->iteration_time_count,
                                    HARPE_RUN_MAX_S, self->scratch);
    double energy_j = typical_of_list(result->iteration_energy_j, result->iteration_energy_count,
                                      HARPE_RUN_MAX_J, self->scratch);
    self->tells_time = self->tells_time && time_s > 0;
    self->tells_energy = self->tells_energy && energy_j > 0;
    if (time_s > round->iteration_time_s) round->iteration_time_s = time_s;
    round->iteration_energy_j += energy_j;
    if (result->iteration_time_count > round->iterations)
        round->iterations = result->iteration_time_count;
    read_waiting(self, result, pipeline_rank, time_s, energy_j);
}

/* ---- The round ------------------------------------------------------------------------------- */

/* Reads the standard deviation of the iterations, with the values of all ranks combined, if all
 * ranks report the same number of iterations. */
static void read_spread(harpe_online_round *round, const harpe_profiling_result *results,
                        size_t count, double *scratch, double *energies_j) {
    size_t iterations = count > 0 ? results[0].iteration_time_count : 0;
    bool is_even = true;
    for (size_t r = 0; r < count; r++)
        is_even = is_even && results[r].iteration_time_count == iterations &&
                  results[r].iteration_energy_count == iterations;
    if (!is_even) return;
    for (size_t i = 0; i < iterations; i++) {
        scratch[i] = energies_j[i] = 0;
        for (size_t r = 0; r < count; r++) {
            if (results[r].iteration_time_s[i] > scratch[i])
                scratch[i] = results[r].iteration_time_s[i];
            energies_j[i] += results[r].iteration_energy_j[i];
        }
    }
    round->spread_iterations = iterations;
    round->time_spread_s = harpe_robust_spread(scratch, iterations);
    round->energy_spread_j = harpe_robust_spread(energies_j, iterations);
}

static double sum_of_list(const double *values, size_t count, double maximum) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        if (values[i] > 0 && values[i] <= maximum) sum += values[i];
    return sum;
}

static void read_totals(harpe_online_round *round, const harpe_profiling_result *result) {
    double time_s =
        sum_of_list(result->iteration_time_s, result->iteration_time_count, HARPE_RUN_MAX_S);
    if (time_s > round->total_time_s) round->total_time_s = time_s;
    round->total_energy_j +=
        sum_of_list(result->iteration_energy_j, result->iteration_energy_count, HARPE_RUN_MAX_J);
}

/* Keeps entries within a profile's bounds, and sets all others to 0. */
static void settle(reading *self) {
    harpe_online_round *round = self->round;
    for (size_t e = 0; e < self->pipeline->entry_count; e++) {
        harpe_online_mean *mean = &round->entries[e];
        bool is_good = mean->time_s > 0 && mean->energy_j > 0 && mean->energy_j <= HARPE_RUN_MAX_J;
        if (!is_good) *mean = (harpe_online_mean){0, 0};
        if (!is_good && !round->problem[0])
            (void)snprintf(round->problem, sizeof round->problem,
                           "stage %d has no usable time and energy of '%.64s'",
                           self->pipeline->entries[e].stage,
                           self->pipeline->entries[e].instruction);
    }
    if (!self->tells_time) round->iteration_time_s = 0;
    if (!self->tells_energy) round->iteration_energy_j = 0;
    round->tells_waiting = self->tells_waiting;
    for (int p = 0; p < self->pipeline->rank_count && !self->tells_waiting; p++)
        round->waiting[p] = (harpe_online_mean){0, 0};
}

harpe_status harpe_online_round_read(const harpe_online_pipeline *pipeline,
                                     const harpe_rank_info *ranks,
                                     const harpe_profiling_result *results, size_t count,
                                     harpe_online_round *out, harpe_error *error) {
    harpe_online_round round = {
        .entries = harpe_calloc(pipeline->entry_count, sizeof *round.entries),
        .waiting = harpe_calloc((size_t)pipeline->rank_count, sizeof *round.waiting)};
    size_t longest = harpe_longest_list(results, count);
    double *scratch = harpe_calloc(2 * longest + 1, sizeof *scratch);
    if (!round.entries || !round.waiting || !scratch) {
        harpe_online_round_free(&round);
        free(scratch);
        return harpe_fail_memory(error);
    }
    reading self = {pipeline, &round, scratch, true, true, true};
    for (size_t r = 0; r < count; r++)
        read_rank(&self, &results[r], ranks[r].pp_rank);
    settle(&self);
    for (size_t r = 0; r < count; r++)
        read_totals(&round, &results[r]);
    read_spread(&round, results, count, scratch, scratch + longest);
    free(scratch);
    *out = round;
    return HARPE_OK;
}

/* ---- Freeing --------------------------------------------------------------------------------- */

void harpe_online_round_free(harpe_online_round *round) {
    free(round->entries);
    free(round->waiting);
    *round = (harpe_online_round){0};
}
