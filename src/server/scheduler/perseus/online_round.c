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

#include "base/array.h"
#include "base/error.h"
#include "server/scheduler/builtin.h"

/* Bounds of a profile's rows. */
#define RUN_MIN_S 1e-9
#define RUN_MAX_S 1e6
#define RUN_MIN_J 1e-12
#define RUN_MAX_J 1e9

/* A run counts as a run at one clock if it has at least this share. */
#define PURE_SHARE 0.98
/* Ranks agree if the shares of their clocks differ by at most this from those of the first rank. */
#define SAME_SHARE 0.03

typedef struct reading {
    const harpe_online_pipeline *pipeline;
    harpe_online_clock_runs *groups; /* groups of runs; a group has runs of one entry */
    size_t group_count;
    size_t *group_of; /* [run]: the group of each run, as run_of numbers the runs */
    double *scratch;  /* has two elements for each iteration of the longest list */
    harpe_online_round *round;
    bool tells_time, tells_energy, tells_waiting;
} reading;

/* The group of runs that are not read. */
#define NO_GROUP SIZE_MAX

/* ---- Memory ---------------------------------------------------------------------------------- */

static size_t longest_of(const harpe_breakdown *list, size_t count, size_t longest) {
    for (size_t b = 0; b < count; b++)
        if (list[b].iteration_count > longest) longest = list[b].iteration_count;
    return longest;
}

/* Returns the number of iterations of the longest list. */
static size_t longest_list(const harpe_online_reports *reports) {
    size_t longest = 0;
    for (size_t r = 0; r < reports->count; r++) {
        const harpe_profiling_result *result = &reports->results[r];
        if (result->iteration_time_count > longest) longest = result->iteration_time_count;
        if (result->iteration_energy_count > longest) longest = result->iteration_energy_count;
        longest = longest_of(result->time_breakdown, result->time_breakdown_count, longest);
        longest = longest_of(result->energy_breakdown, result->energy_breakdown_count, longest);
    }
    return longest;
}

/* Returns false if memory runs out. Free with end_reading in any case. */
static bool begin_reading(reading *self, const harpe_online_pipeline *pipeline, size_t longest) {
    size_t runs = pipeline->instruction_count;
    *self = (reading){.pipeline = pipeline,
                      .groups = harpe_calloc(runs, sizeof *self->groups),
                      .group_of = harpe_calloc(runs, sizeof *self->group_of),
                      .scratch = harpe_calloc(2 * longest + 1, sizeof *self->scratch),
                      .tells_time = true,
                      .tells_energy = true,
                      .tells_waiting = true};
    return self->groups && self->group_of && self->scratch;
}

static void end_reading(reading *self) {
    free(self->groups);
    free(self->group_of);
    free(self->scratch);
}

/* ---- Groups ---------------------------------------------------------------------------------- */

static void add_group(reading *self, int entry, int mhz) {
    self->groups[self->group_count++] = (harpe_online_clock_runs){
        .entry = entry, .frequency_mhz = mhz, .iteration_count = SIZE_MAX};
}

/* Adds an instruction to a group. The instructions of a group are added in their order. */
static void add_to_group(reading *self, size_t k, size_t instruction) {
    harpe_online_clock_runs *group = &self->groups[k];
    size_t run = self->pipeline->run_of[instruction];
    if (group->run_count++ == 0) group->first_run = run;
    group->end_run = run + 1;
    self->group_of[run] = k;
}

/* Makes a group for each entry, with the entry's number. */
static void group_by_entry(reading *self) {
    for (size_t e = 0; e < self->pipeline->entry_count; e++)
        add_group(self, (int)e, 0);
    for (size_t i = 0; i < self->pipeline->instruction_count; i++)
        add_to_group(self, (size_t)self->pipeline->entry_of[i], i);
}

/* Returns the group of an entry's runs at a clock. Searches the groups from `first` on, and adds a
 * group if none fits. */
static size_t find_group(reading *self, size_t first, int entry, int mhz) {
    size_t k = first;
    while (k < self->group_count &&
           (self->groups[k].entry != entry || self->groups[k].frequency_mhz != mhz))
        k++;
    if (k == self->group_count) add_group(self, entry, mhz);
    return k;
}

/* Makes a group for each clock of each entry. There are few clocks, and a negative one occurs once.
 * The groups of a pipeline rank follow one another, those of negative clocks last. */
static void group_by_clock(reading *self, const int *frequency_mhz) {
    const harpe_online_pipeline *pipeline = self->pipeline;
    for (int p = 0; p < pipeline->rank_count; p++) {
        size_t start = pipeline->rank_offset[p], end = pipeline->rank_offset[p + 1];
        size_t first = self->group_count;
        for (size_t i = start; i < end; i++) {
            self->group_of[pipeline->run_of[i]] = NO_GROUP;
            if (frequency_mhz[i] <= 0) continue;
            add_to_group(self, find_group(self, first, pipeline->entry_of[i], frequency_mhz[i]), i);
        }
        for (size_t i = start; i < end; i++) {
            if (frequency_mhz[i] >= 0) continue;
            add_group(self, pipeline->entry_of[i], frequency_mhz[i]);
            add_to_group(self, self->group_count - 1, i);
        }
    }
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* Returns the sum of the values of a group, or -1 if one of them is invalid. `group_of` NULL: all
 * values count. */
static double sum_of_runs(const double *values, size_t count, const size_t *group_of,
                          size_t group) {
    double sum = 0;
    for (size_t k = 0; k < count; k++) {
        if (group_of && group_of[k] != group) continue;
        if (!(values[k] >= 0 && values[k] <= RUN_MAX_J)) return -1;
        sum += values[k];
    }
    return sum;
}

/* Writes the mean value of a group's runs in each good iteration, and returns their number. */
static size_t collect_runs(const reading *self, const harpe_breakdown *breakdown, size_t k,
                           double minimum, double maximum) {
    const harpe_online_pipeline *pipeline = self->pipeline;
    const harpe_online_clock_runs *group = &self->groups[k];
    const harpe_online_name *name = &pipeline->names[pipeline->entries[group->entry].name];
    size_t good = 0, first = group->first_run, count = group->end_run - first;
    for (size_t i = 0; breakdown && i < breakdown->iteration_count; i++) {
        if (breakdown->counts[i] != name->run_count) continue;
        const double *values = breakdown->values + breakdown->offsets[i];
        double sum =
            sum_of_runs(values + (first - name->first_run), count, self->group_of + first, k);
        double mean = sum / (double)group->run_count;
        if (mean >= minimum && mean <= maximum) self->scratch[good++] = mean;
    }
    return good;
}

/* Returns the typical sum of all runs of a name in an iteration, or 0. */
static double typical_total(const harpe_breakdown *breakdown, double *scratch) {
    size_t good = 0;
    for (size_t i = 0; i < breakdown->iteration_count; i++) {
        double sum =
            sum_of_runs(breakdown->values + breakdown->offsets[i], breakdown->counts[i], NULL, 0);
        if (sum > 0) scratch[good++] = sum;
    }
    return harpe_median(scratch, good);
}

static const harpe_breakdown *times_of(const harpe_profiling_result *result, const char *name) {
    return harpe_find_breakdown(result->time_breakdown, result->time_breakdown_count, name);
}

static const harpe_breakdown *energies_of(const harpe_profiling_result *result, const char *name) {
    return harpe_find_breakdown(result->energy_breakdown, result->energy_breakdown_count, name);
}

/* Returns the typical time and energy of one run of a group on one rank; 0: not measured. Also
 * updates the mean of the group: its time is the longest of all ranks, and its energy is their sum.
 * If a rank has not measured the group, the energy of the mean is negative. */
static harpe_online_mean read_group(const reading *self, const harpe_profiling_result *result,
                                    size_t k) {
    harpe_online_clock_runs *group = &self->groups[k];
    const char *name = self->pipeline->entries[group->entry].instruction;
    harpe_online_mean own, *mean = &group->mean;
    size_t good = collect_runs(self, times_of(result, name), k, RUN_MIN_S, RUN_MAX_S);
    own.time_s = harpe_median(self->scratch, good);
    double spread = harpe_robust_spread(self->scratch, good) * sqrt((double)group->run_count);
    if (own.time_s > 0) group->spread = fmax(group->spread, spread / own.time_s);
    if (good < group->iteration_count) group->iteration_count = good;
    good = collect_runs(self, energies_of(result, name), k, RUN_MIN_J, RUN_MAX_J);
    own.energy_j = harpe_median(self->scratch, good);
    bool is_measured = own.time_s > 0 && own.energy_j > 0 && mean->energy_j >= 0;
    mean->energy_j = is_measured ? mean->energy_j + own.energy_j : -1;
    if (is_measured) mean->time_s = fmax(mean->time_s, own.time_s);
    return own;
}

/* Returns true if a report is of a pipeline rank, and of the only replica if there is one. */
static bool is_of(const harpe_online_reports *reports, size_t r, int pipeline_rank) {
    const harpe_rank_info *rank = &reports->ranks[r];
    return rank->pp_rank == pipeline_rank &&
           (reports->only_replica == 0 || rank->dp_rank + 1 == reports->only_replica);
}

harpe_status harpe_online_round_read_clocks(const harpe_online_pipeline *pipeline,
                                            const harpe_online_reports *reports,
                                            const int *frequency_mhz, harpe_online_clock_runs **out,
                                            size_t *out_count, harpe_error *error) {
    reading self;
    if (!begin_reading(&self, pipeline, longest_list(reports))) {
        end_reading(&self);
        return harpe_fail_memory(error);
    }
    group_by_clock(&self, frequency_mhz);
    for (size_t k = 0; k < self.group_count; k++) {
        harpe_online_mean *mean = &self.groups[k].mean;
        int pipeline_rank = pipeline->entries[self.groups[k].entry].pipeline_rank;
        for (size_t r = 0; r < reports->count; r++)
            if (is_of(reports, r, pipeline_rank)) (void)read_group(&self, &reports->results[r], k);
        if (!(mean->energy_j > 0)) *mean = (harpe_online_mean){0, 0};
    }
    *out = self.groups;
    *out_count = self.group_count;
    self.groups = NULL;
    end_reading(&self);
    return HARPE_OK;
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

/* Returns the typical value of a list, and its sum. */
static double read_list(const reading *self, const double *values, size_t count, double maximum,
                        double *total) {
    size_t good = 0;
    *total = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(values[i] > 0 && values[i] <= maximum)) continue;
        *total += values[i];
        self->scratch[good++] = values[i];
    }
    return harpe_median(self->scratch, good);
}

static void read_entry(const reading *self, const harpe_profiling_result *result, size_t entry) {
    const harpe_online_pipeline *pipeline = self->pipeline;
    const harpe_online_name *name = &pipeline->names[pipeline->entries[entry].name];
    harpe_online_mean own = read_group(self, result, entry);
    if (!(own.time_s > 0))
        tell_problem(self->round, result->rank, "time", name, times_of(result, name->instruction));
    else if (!(own.energy_j > 0))
        tell_problem(self->round, result->rank, "energy", name,
                     energies_of(result, name->instruction));
}

/* Reads the waiting time and energy: the time and energy of an iteration minus all values of the
 * breakdowns. This includes instructions that the schedule does not have. */
static void read_waiting(reading *self, const harpe_profiling_result *result, int pipeline_rank,
                         double time_s, double energy_j) {
    self->tells_waiting = self->tells_waiting && time_s > 0 && energy_j > 0 &&
                          result->time_breakdown_count == result->energy_breakdown_count;
    for (size_t b = 0; b < result->time_breakdown_count && self->tells_waiting; b++) {
        const harpe_breakdown *times = &result->time_breakdown[b];
        const harpe_breakdown *energies = energies_of(result, times->instruction);
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
    for (size_t e = 0; e < pipeline->entry_count; e++)
        if (pipeline->entries[e].pipeline_rank == pipeline_rank) read_entry(self, result, e);
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
        const harpe_online_mean *mean = &self->groups[e].mean;
        bool is_good = mean->time_s > 0 && mean->energy_j > 0 && mean->energy_j <= RUN_MAX_J;
        if (is_good) round->entries[e] = *mean;
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

void harpe_online_round_free(harpe_online_round *round) {
    free(round->entries);
    free(round->waiting);
    *round = (harpe_online_round){0};
}

harpe_status harpe_online_round_read(const harpe_online_pipeline *pipeline,
                                     const harpe_online_reports *reports, harpe_online_round *out,
                                     harpe_error *error) {
    harpe_online_round round = {
        .entries = harpe_calloc(pipeline->entry_count, sizeof *round.entries),
        .waiting = harpe_calloc((size_t)pipeline->rank_count, sizeof *round.waiting)};
    size_t longest = longest_list(reports);
    reading self;
    if (!begin_reading(&self, pipeline, longest) || !round.entries || !round.waiting) {
        harpe_online_round_free(&round);
        end_reading(&self);
        return harpe_fail_memory(error);
    }
    self.round = &round;
    group_by_entry(&self);
    for (size_t r = 0; r < reports->count; r++)
        read_rank(&self, &reports->results[r], reports->ranks[r].pp_rank);
    settle(&self);
    read_spread(&round, reports->results, reports->count, self.scratch, self.scratch + longest);
    end_reading(&self);
    *out = round;
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

/* Returns true if `other` has about the same share of each clock of `run`. */
static bool has_shares_of(const harpe_run_clocks *other, const harpe_run_clocks *run) {
    for (int i = 0; i < run->count; i++)
        if (fabs(run->parts[i].share - harpe_run_share(other, run->parts[i].mhz)) > SAME_SHARE)
            return false;
    return run->count > 0;
}

/* ---- Stages ---------------------------------------------------------------------------------- */

static int real_mhz(const harpe_run_clocks *run, size_t instruction, int asked_mhz,
                    double share_min) {
    double most = 0;
    for (int i = 0; i < run->count; i++)
        most = fmax(most, run->parts[i].share);
    if (run->count < 0 || most < share_min) return 0;
    return harpe_run_share(run, asked_mhz) >= PURE_SHARE ? asked_mhz : -(int)instruction - 1;
}

enum { NOBODY = -1, DIFFERENT = -2 };

/* Takes the report of one more rank; `first` is the first rank of its pipeline rank. `whose` has
 * the rank whose report counts for each instruction, NOBODY before the first one, and DIFFERENT if
 * the ranks do not agree. */
static void take_rank(const int *asked_mhz, const harpe_online_pipeline *pipeline,
                      const harpe_online_reports *reports, size_t first, size_t rank, int *whose) {
    const harpe_rank_clocks *clocks = reports->clocks;
    int p = reports->ranks[rank].pp_rank;
    for (size_t i = pipeline->rank_offset[p]; i < pipeline->rank_offset[p + 1]; i++) {
        if (whose[i] == DIFFERENT) continue;
        size_t best = whose[i] == NOBODY ? rank : (size_t)whose[i];
        harpe_run_clocks firsts = clocks_of(pipeline, p, i, &clocks[first], asked_mhz[i]);
        harpe_run_clocks lowest = clocks_of(pipeline, p, i, &clocks[best], asked_mhz[i]);
        harpe_run_clocks own = clocks_of(pipeline, p, i, &clocks[rank], asked_mhz[i]);
        if (mean_mhz(&own) < mean_mhz(&lowest)) best = rank;
        whose[i] =
            has_shares_of(&firsts, &own) && has_shares_of(&own, &firsts) ? (int)best : DIFFERENT;
    }
}

void harpe_find_real_clocks(const harpe_online_pipeline *pipeline,
                            const harpe_online_reports *reports, const int *asked_mhz,
                            double share_min, int *ran_mhz) {
    const harpe_rank_clocks *clocks = reports->clocks;
    int *whose = ran_mhz; /* until it is replaced by the clocks */
    for (size_t i = 0; i < pipeline->instruction_count; i++)
        whose[i] = NOBODY;
    for (int p = 0; p < pipeline->rank_count; p++) {
        size_t first = reports->count;
        for (size_t r = 0; clocks && r < reports->count; r++) {
            if (!is_of(reports, r, p)) continue;
            if (first == reports->count) first = r;
            take_rank(asked_mhz, pipeline, reports, first, r, whose);
        }
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
