/* SPDX-License-Identifier: Apache-2.0 */
/* Computes one number for each measured quantity from a round's results, and says what is missing.
 * The value of some runs is their mean in each iteration, and then the median over the iterations.
 * Each instruction with several clocks gets a negative number of its own, -1 for the first
 * instruction of the pipeline, so it is read as if it had a clock of its own. The time of a stage
 * is that of its slowest rank, so the report of the rank with the lowest clocks counts, if the
 * reports agree. */
#include "server/scheduler/perseus/online_internal.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "server/scheduler/builtin.h"

/* Bounds of a profile's rows. */
#define RUN_MIN_S 1e-9
#define RUN_MAX_S 1e6
#define RUN_MIN_J 1e-12
#define RUN_MAX_J 1e9

enum { MEDIAN_OF_AT_LEAST = 3 };

/* A run counts as a run at one clock if it has at least this share. */
#define PURE_SHARE 0.98
/* Ranks agree if the shares of their clocks differ by at most this from those of the first rank. */
#define SAME_SHARE 0.03

/* Some runs of an entry. */
typedef struct chosen_runs {
    const harpe_online_name *name; /* entry_of_run has the entry for these runs alone */
    int entry;
    size_t count;
    size_t first, end; /* the part of the name's runs that has all of them */
} chosen_runs;

/* ---- Values ---------------------------------------------------------------------------------- */

/* Returns the median, or the mean of fewer than three values; 0 if there are none. Sorts the
 * values. */
static double typical_value(double *values, size_t count) {
    if (count == 0) return 0;
    if (count >= MEDIAN_OF_AT_LEAST) {
        qsort(values, count, sizeof *values, harpe_compare_doubles);
        return 0.5 * (values[(count - 1) / 2] + values[count / 2]);
    }
    return count == 1 ? values[0] : 0.5 * (values[0] + values[1]);
}

/* Returns the number of iterations of the longest list: the functions below need scratch for so
 * many values. */
static size_t longest_list(const harpe_profiling_result *results, size_t count) {
    size_t longest = 0;
    for (size_t r = 0; r < count; r++) {
        const harpe_profiling_result *result = &results[r];
        size_t own = result->iteration_time_count > result->iteration_energy_count
                         ? result->iteration_time_count
                         : result->iteration_energy_count;
        for (size_t b = 0; b < result->time_breakdown_count; b++)
            if (result->time_breakdown[b].iteration_count > own)
                own = result->time_breakdown[b].iteration_count;
        for (size_t b = 0; b < result->energy_breakdown_count; b++)
            if (result->energy_breakdown[b].iteration_count > own)
                own = result->energy_breakdown[b].iteration_count;
        if (own > longest) longest = own;
    }
    return longest;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* Returns the sum of the values of `entry` (-1: of all entries) in an iteration, or -1 if a value
 * is invalid. */
static double sum_of_runs(const double *values, size_t count, const int *entry_of_run, int entry) {
    double sum = 0;
    for (size_t k = 0; k < count; k++) {
        if (entry >= 0 && entry_of_run[k] != entry) continue;
        if (!(values[k] >= 0 && values[k] <= RUN_MAX_J)) return -1;
        sum += values[k];
    }
    return sum;
}

/* Writes the mean value of the runs in each good iteration. Returns the number of iterations. */
static size_t collect_runs(const harpe_breakdown *breakdown, const chosen_runs *chosen,
                           double minimum, double maximum, double *scratch) {
    size_t good = 0, first = chosen->first;
    for (size_t i = 0; i < breakdown->iteration_count; i++) {
        if (breakdown->counts[i] != chosen->name->run_count) continue;
        double sum =
            sum_of_runs(breakdown->values + breakdown->offsets[i] + first, chosen->end - first,
                        chosen->name->entry_of_run + first, chosen->entry);
        double mean = sum / (double)chosen->count;
        if (mean >= minimum && mean <= maximum) scratch[good++] = mean;
    }
    return good;
}

/* Returns the typical value of one run, or 0. */
static double typical_run(const harpe_breakdown *breakdown, const chosen_runs *chosen,
                          double minimum, double maximum, double *scratch) {
    return typical_value(scratch, collect_runs(breakdown, chosen, minimum, maximum, scratch));
}

/* Returns the typical sum of all runs of a name in an iteration, or 0. */
static double typical_total(const harpe_breakdown *breakdown, double *scratch) {
    size_t good = 0;
    for (size_t i = 0; i < breakdown->iteration_count; i++) {
        double sum =
            sum_of_runs(breakdown->values + breakdown->offsets[i], breakdown->counts[i], NULL, -1);
        if (sum > 0) scratch[good++] = sum;
    }
    return typical_value(scratch, good);
}

/* Returns the typical time and energy of one of the runs on one rank. Both are 0 if there is no
 * run.
 */
static harpe_online_mean read_runs(const harpe_profiling_result *result, const chosen_runs *chosen,
                                   double *scratch) {
    const char *instruction = chosen->name->instruction;
    const harpe_breakdown *times =
        harpe_find_breakdown(result->time_breakdown, result->time_breakdown_count, instruction);
    const harpe_breakdown *energies =
        harpe_find_breakdown(result->energy_breakdown, result->energy_breakdown_count, instruction);
    harpe_online_mean mean = {0, 0};
    if (times) mean.time_s = typical_run(times, chosen, RUN_MIN_S, RUN_MAX_S, scratch);
    if (energies) mean.energy_j = typical_run(energies, chosen, RUN_MIN_J, RUN_MAX_J, scratch);
    return mean;
}

/* Writes the mean time of the runs in each iteration that counts. Returns the number of iterations.
 */
static size_t times_of_runs(const harpe_profiling_result *result, const chosen_runs *chosen,
                            double *times_s) {
    const harpe_breakdown *times = harpe_find_breakdown(
        result->time_breakdown, result->time_breakdown_count, chosen->name->instruction);
    return times ? collect_runs(times, chosen, RUN_MIN_S, RUN_MAX_S, times_s) : 0;
}

/* Adds a rank's value to the mean of an entry: the mean has the longest time and the sum of the
 * energies. The entry is measured only if all ranks of the stage have measured it; this function
 * returns whether this rank and those before have. A negative `energy_j` marks an entry that is not
 * measured. */
static bool add_to_mean(harpe_online_mean *mean, harpe_online_mean own) {
    if (own.time_s > 0 && own.energy_j > 0 && mean->energy_j >= 0) {
        if (own.time_s > mean->time_s) mean->time_s = own.time_s;
        mean->energy_j += own.energy_j;
        return true;
    }
    mean->energy_j = -1;
    return false;
}

typedef struct reading {
    const harpe_online_pipeline *pipeline;
    harpe_online_round *round;
    double *scratch; /* has one element for each iteration of the longest list */
    bool tells_time, tells_energy, tells_waiting;
} reading;

/* ---- Numbers --------------------------------------------------------------------------------- */

static size_t good_of_list(const double *values, size_t count, double maximum, double *good) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (values[i] > 0 && values[i] <= maximum) good[kept++] = values[i];
    return kept;
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

/* Returns the typical value of a list, and its sum. */
static double read_list(const reading *self, const double *values, size_t count, double maximum,
                        double *total) {
    size_t good = good_of_list(values, count, maximum, self->scratch);
    *total = 0;
    for (size_t i = 0; i < good; i++)
        *total += self->scratch[i];
    return typical_value(self->scratch, good);
}

/* ---- One rank -------------------------------------------------------------------------------- */

static void read_entry(reading *self, const harpe_profiling_result *result,
                       const harpe_online_name *name, int entry) {
    chosen_runs all = {.name = name,
                       .entry = entry,
                       .count = self->pipeline->entries[entry].run_count,
                       .end = name->run_count};
    harpe_online_mean own = read_runs(result, &all, self->scratch);
    if (add_to_mean(&self->round->entries[entry], own)) return;
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
        time_s -= typical_total(times, self->scratch);
        energy_j -= typical_total(energies, self->scratch);
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
    double total_s, total_j;
    double time_s = read_list(self, result->iteration_time_s, result->iteration_time_count,
                              RUN_MAX_S, &total_s);
    double energy_j = read_list(self, result->iteration_energy_j, result->iteration_energy_count,
                                RUN_MAX_J, &total_j);
    self->tells_time = self->tells_time && time_s > 0;
    self->tells_energy = self->tells_energy && energy_j > 0;
    if (time_s > round->iteration_time_s) round->iteration_time_s = time_s;
    if (total_s > round->total_time_s) round->total_time_s = total_s;
    round->iteration_energy_j += energy_j;
    round->total_energy_j += total_j;
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

/* Keeps entries within a profile's bounds, and sets all others to 0. */
static void settle(reading *self) {
    harpe_online_round *round = self->round;
    for (size_t e = 0; e < self->pipeline->entry_count; e++) {
        harpe_online_mean *mean = &round->entries[e];
        bool is_good = mean->time_s > 0 && mean->energy_j > 0 && mean->energy_j <= RUN_MAX_J;
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
                                     const harpe_online_reports *reports, harpe_online_round *out,
                                     harpe_error *error) {
    harpe_online_round round = {
        .entries = harpe_calloc(pipeline->entry_count, sizeof *round.entries),
        .waiting = harpe_calloc((size_t)pipeline->rank_count, sizeof *round.waiting)};
    size_t longest = longest_list(reports->results, reports->count);
    double *scratch = harpe_calloc(2 * longest + 1, sizeof *scratch);
    if (!round.entries || !round.waiting || !scratch) {
        harpe_online_round_free(&round);
        free(scratch);
        return harpe_fail_memory(error);
    }
    reading self = {pipeline, &round, scratch, true, true, true};
    for (size_t r = 0; r < reports->count; r++)
        read_rank(&self, &reports->results[r], reports->ranks[r].pp_rank);
    settle(&self);
    read_spread(&round, reports->results, reports->count, scratch, scratch + longest);
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

/* ---- Runs at clocks -------------------------------------------------------------------------- */

/* Writes a list of the entries and clocks that occur. Returns their number. There are few clocks,
 * and a negative one occurs once. */
static size_t list_clocks(const harpe_online_pipeline *pipeline, const int *frequency_mhz,
                          harpe_online_clock_runs *runs) {
    size_t listed = 0;
    for (int p = 0; p < pipeline->rank_count; p++) {
        size_t first = listed; /* of this pipeline rank */
        size_t start = pipeline->rank_offset[p], end = pipeline->rank_offset[p + 1];
        for (size_t i = start; i < end; i++) {
            size_t k = first;
            if (frequency_mhz[i] <= 0) continue;
            while (k < listed && (runs[k].entry != pipeline->entry_of[i] ||
                                  runs[k].frequency_mhz != frequency_mhz[i]))
                k++;
            if (k == listed)
                runs[listed++] = (harpe_online_clock_runs){.entry = pipeline->entry_of[i],
                                                           .frequency_mhz = frequency_mhz[i],
                                                           .iteration_count = SIZE_MAX};
            runs[k].run_count++;
        }
        for (size_t i = start; i < end; i++)
            if (frequency_mhz[i] < 0)
                runs[listed++] = (harpe_online_clock_runs){.entry = pipeline->entry_of[i],
                                                           .frequency_mhz = frequency_mhz[i],
                                                           .run_count = 1,
                                                           .iteration_count = SIZE_MAX};
    }
    return listed;
}

static const harpe_online_name *name_of(const harpe_online_pipeline *pipeline, int entry) {
    int p = pipeline->entries[entry].pipeline_rank;
    for (size_t n = pipeline->name_offset[p]; n < pipeline->name_offset[p + 1]; n++) {
        const harpe_online_name *name = &pipeline->names[n];
        if (entry >= name->first_entry && entry < name->first_entry + name->entry_count)
            return name;
    }
    return NULL;
}

/* Chooses the runs of an entry at a clock. Fills in entry_of_run for them; -1: another run. */
static chosen_runs choose_clock(const harpe_online_pipeline *pipeline,
                                const harpe_online_name *name, const int *frequency_mhz,
                                const size_t *run_of, const harpe_online_clock_runs *runs,
                                int *entry_of_run) {
    int p = pipeline->entries[runs->entry].pipeline_rank, mhz = runs->frequency_mhz;
    if (mhz < 0) {
        size_t run = run_of[-(mhz + 1)];
        entry_of_run[run] = runs->entry;
        return (chosen_runs){name, runs->entry, 1, run, run + 1};
    }
    for (size_t i = pipeline->rank_offset[p]; i < pipeline->rank_offset[p + 1]; i++) {
        int entry = pipeline->entry_of[i];
        if (entry < name->first_entry || entry >= name->first_entry + name->entry_count) continue;
        bool is_wanted = entry == runs->entry && frequency_mhz[i] == mhz;
        entry_of_run[run_of[i]] = is_wanted ? entry : -1;
    }
    return (chosen_runs){name, runs->entry, runs->run_count, 0, name->run_count};
}

/* Finds the number of each instruction among the runs of its name. */
static void number_runs(const harpe_online_pipeline *pipeline, size_t *run_of) {
    for (int p = 0; p < pipeline->rank_count; p++) {
        for (size_t n = pipeline->name_offset[p]; n < pipeline->name_offset[p + 1]; n++) {
            int first = pipeline->names[n].first_entry,
                end = first + pipeline->names[n].entry_count;
            size_t run = 0;
            for (size_t i = pipeline->rank_offset[p]; i < pipeline->rank_offset[p + 1]; i++)
                if (pipeline->entry_of[i] >= first && pipeline->entry_of[i] < end)
                    run_of[i] = run++;
        }
    }
}

static void read_clock(const harpe_profiling_result *result, const chosen_runs *chosen,
                       harpe_online_clock_runs *runs, double *scratch) {
    harpe_online_mean own = read_runs(result, chosen, scratch);
    (void)add_to_mean(&runs->mean, own);
    size_t good = times_of_runs(result, chosen, scratch);
    if (good < runs->iteration_count) runs->iteration_count = good;
    double spread = harpe_robust_spread(scratch, good) * sqrt((double)runs->run_count);
    if (own.time_s > 0 && spread / own.time_s > runs->spread) runs->spread = spread / own.time_s;
}

harpe_status harpe_online_round_read_clocks(const harpe_online_pipeline *pipeline,
                                            const harpe_online_reports *reports,
                                            const int *frequency_mhz, harpe_online_clock_runs **out,
                                            size_t *out_count, harpe_error *error) {
    size_t longest = longest_list(reports->results, reports->count);
    double *scratch = harpe_calloc(longest + 1, sizeof *scratch);
    int *entry_of_run = harpe_calloc(pipeline->instruction_count, sizeof *entry_of_run);
    size_t *run_of = harpe_calloc(pipeline->instruction_count, sizeof *run_of);
    harpe_online_clock_runs *runs = harpe_calloc(pipeline->instruction_count, sizeof *runs);
    if (!scratch || !entry_of_run || !run_of || !runs) {
        free(scratch);
        free(entry_of_run);
        free(run_of);
        free(runs);
        return harpe_fail_memory(error);
    }
    size_t listed = list_clocks(pipeline, frequency_mhz, runs);
    number_runs(pipeline, run_of);
    for (size_t k = 0; k < listed; k++) {
        harpe_online_name name = *name_of(pipeline, runs[k].entry);
        chosen_runs chosen =
            choose_clock(pipeline, &name, frequency_mhz, run_of, &runs[k], entry_of_run);
        name.entry_of_run = entry_of_run;
        for (size_t r = 0; r < reports->count; r++)
            if (reports->ranks[r].pp_rank == pipeline->entries[runs[k].entry].pipeline_rank)
                read_clock(&reports->results[r], &chosen, &runs[k], scratch);
        if (!(runs[k].mean.energy_j > 0)) runs[k].mean = (harpe_online_mean){0, 0};
    }
    free(scratch);
    free(entry_of_run);
    free(run_of);
    *out = runs;
    *out_count = listed;
    return HARPE_OK;
}

/* ---- Reports --------------------------------------------------------------------------------- */

/* Returns the report of a rank about an instruction; NULL: it ran as asked. */
static const harpe_run_clocks *report_of(const harpe_online_pipeline *pipeline, int pipeline_rank,
                                         size_t instruction, const harpe_rank_clocks *clocks) {
    static const harpe_run_clocks unknown = {.count = -1};
    size_t first = pipeline->rank_offset[pipeline_rank];
    size_t length = pipeline->rank_offset[pipeline_rank + 1] - first;
    if (!clocks->is_known || clocks->run_count == 0) return NULL;
    if (clocks->run_count != length) return &unknown;
    const harpe_run_clocks *run = &clocks->runs[instruction - first];
    return run->count == 0 ? NULL : run;
}

/* Returns the clocks that an instruction had on a rank. */
static harpe_run_clocks clocks_of(const harpe_online_pipeline *pipeline, int pipeline_rank,
                                  size_t instruction, const harpe_rank_clocks *clocks,
                                  int asked_mhz) {
    const harpe_run_clocks *run = report_of(pipeline, pipeline_rank, instruction, clocks);
    return run ? *run : (harpe_run_clocks){.count = 1, .parts = {{asked_mhz, 1}}};
}

static double mean_mhz(const harpe_run_clocks *run) {
    double sum = 0;
    for (int i = 0; i < run->count; i++)
        sum += run->parts[i].share * run->parts[i].mhz;
    return sum;
}

static bool agree(const harpe_run_clocks *a, const harpe_run_clocks *b) {
    for (int i = 0; i < a->count; i++)
        if (fabs(a->parts[i].share - harpe_run_share(b, a->parts[i].mhz)) > SAME_SHARE)
            return false;
    for (int i = 0; i < b->count; i++)
        if (fabs(b->parts[i].share - harpe_run_share(a, b->parts[i].mhz)) > SAME_SHARE)
            return false;
    return a->count > 0 && b->count > 0;
}

/* ---- Stages ---------------------------------------------------------------------------------- */

static size_t first_of(const harpe_rank_info *ranks, int pipeline_rank) {
    size_t r = 0;
    while (ranks[r].pp_rank != pipeline_rank)
        r++;
    return r;
}

static double main_share(const harpe_run_clocks *run) {
    double most = 0;
    for (int i = 0; i < run->count; i++)
        most = fmax(most, run->parts[i].share);
    return most;
}

static int real_mhz(const harpe_run_clocks *run, size_t instruction, int asked_mhz,
                    double share_min) {
    if (run->count < 0 || main_share(run) < share_min) return 0;
    return harpe_run_share(run, asked_mhz) >= PURE_SHARE ? asked_mhz : -(int)instruction - 1;
}

enum { NOBODY = -1, DIFFERENT = -2 };

/* Takes the report of one more rank. `whose` has the rank whose report counts for each instruction,
 * NOBODY before the first one, and DIFFERENT if the ranks do not agree. */
static void take_rank(const int *asked_mhz, const harpe_online_pipeline *pipeline,
                      const harpe_online_reports *reports, size_t rank, int *whose) {
    const harpe_rank_clocks *clocks = reports->clocks;
    int p = reports->ranks[rank].pp_rank;
    size_t first = first_of(reports->ranks, p);
    for (size_t i = pipeline->rank_offset[p]; i < pipeline->rank_offset[p + 1]; i++) {
        if (whose[i] == DIFFERENT) continue;
        size_t best = whose[i] == NOBODY ? rank : (size_t)whose[i];
        harpe_run_clocks firsts = clocks_of(pipeline, p, i, &clocks[first], asked_mhz[i]);
        harpe_run_clocks lowest = clocks_of(pipeline, p, i, &clocks[best], asked_mhz[i]);
        harpe_run_clocks own = clocks_of(pipeline, p, i, &clocks[rank], asked_mhz[i]);
        if (mean_mhz(&own) < mean_mhz(&lowest)) best = rank;
        whose[i] = agree(&firsts, &own) ? (int)best : DIFFERENT;
    }
}

void harpe_find_real_clocks(const harpe_online_pipeline *pipeline,
                            const harpe_online_reports *reports, const int *asked_mhz,
                            double share_min, int *ran_mhz) {
    const harpe_rank_clocks *clocks = reports->clocks;
    int *whose = ran_mhz; /* until it is replaced by the clocks */
    for (size_t i = 0; i < pipeline->instruction_count; i++)
        whose[i] = NOBODY;
    for (size_t r = 0; clocks && r < reports->count; r++)
        take_rank(asked_mhz, pipeline, reports, r, whose);
    for (int p = 0; p < pipeline->rank_count; p++) {
        for (size_t i = pipeline->rank_offset[p]; i < pipeline->rank_offset[p + 1]; i++) {
            int rank = whose[i];
            harpe_run_clocks run = {.count = -1};
            if (clocks && rank >= 0) run = clocks_of(pipeline, p, i, &clocks[rank], asked_mhz[i]);
            ran_mhz[i] = rank == NOBODY ? asked_mhz[i] : real_mhz(&run, i, asked_mhz[i], share_min);
        }
    }
}

/* A rank that ran as asked is not the one whose report counts, because then the run has one clock.
 */
const harpe_run_clocks *harpe_real_clocks_of_run(const harpe_online_pipeline *pipeline,
                                                 const harpe_online_reports *reports, int ran_mhz) {
    if (ran_mhz >= 0) return NULL;
    size_t i = (size_t)(-(ran_mhz + 1));
    const harpe_run_clocks *lowest = NULL;
    for (size_t r = 0; r < reports->count; r++) {
        int p = reports->ranks[r].pp_rank;
        if (i < pipeline->rank_offset[p] || i >= pipeline->rank_offset[p + 1]) continue;
        const harpe_run_clocks *run = report_of(pipeline, p, i, &reports->clocks[r]);
        if (run && run->count > 0 && (!lowest || mean_mhz(run) < mean_mhz(lowest))) lowest = run;
    }
    return lowest;
}
