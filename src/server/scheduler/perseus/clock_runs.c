/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the runs of each entry by their clocks, and reads them from the results of all ranks of a
 * stage. The caller knows at which clocks the runs were. */
#include "server/scheduler/perseus/clock_runs.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "server/scheduler/perseus/savings.h"

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
static harpe_chosen_runs choose_clock(const harpe_online_pipeline *pipeline,
                                      const harpe_online_name *name, const int *frequency_mhz,
                                      const size_t *run_of, const harpe_online_clock_runs *runs,
                                      int *entry_of_run) {
    int p = pipeline->entries[runs->entry].pipeline_rank, mhz = runs->frequency_mhz;
    if (mhz < 0) {
        size_t run = run_of[-(mhz + 1)];
        entry_of_run[run] = runs->entry;
        return (harpe_chosen_runs){name, runs->entry, 1, run, run + 1};
    }
    for (size_t i = pipeline->rank_offset[p]; i < pipeline->rank_offset[p + 1]; i++) {
        int entry = pipeline->entry_of[i];
        if (entry < name->first_entry || entry >= name->first_entry + name->entry_count) continue;
        bool is_wanted = entry == runs->entry && frequency_mhz[i] == mhz;
        entry_of_run[run_of[i]] = is_wanted ? entry : -1;
    }
    return (harpe_chosen_runs){name, runs->entry, runs->run_count, 0, name->run_count};
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

static void read_clock(const harpe_profiling_result *result, const harpe_chosen_runs *chosen,
                       harpe_online_clock_runs *runs, double *scratch) {
    harpe_online_mean own = harpe_chosen_runs_read(result, chosen, scratch);
    (void)harpe_online_mean_add(&runs->mean, own);
    size_t good = harpe_chosen_runs_times(result, chosen, scratch);
    if (good < runs->iteration_count) runs->iteration_count = good;
    double spread = harpe_robust_spread(scratch, good) * sqrt((double)runs->run_count);
    if (own.time_s > 0 && spread / own.time_s > runs->spread) runs->spread = spread / own.time_s;
}

harpe_status harpe_online_round_read_clocks(const harpe_online_pipeline *pipeline,
                                            const harpe_rank_info *ranks,
                                            const harpe_profiling_result *results, size_t count,
                                            const int *frequency_mhz, harpe_online_clock_runs **out,
                                            size_t *out_count, harpe_error *error) {
    double *scratch = harpe_calloc(harpe_longest_list(results, count) + 1, sizeof *scratch);
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
        harpe_chosen_runs chosen =
            choose_clock(pipeline, &name, frequency_mhz, run_of, &runs[k], entry_of_run);
        name.entry_of_run = entry_of_run;
        for (size_t r = 0; r < count; r++)
            if (ranks[r].pp_rank == pipeline->entries[runs[k].entry].pipeline_rank)
                read_clock(&results[r], &chosen, &runs[k], scratch);
        if (!(runs[k].mean.energy_j > 0)) runs[k].mean = (harpe_online_mean){0, 0};
    }
    free(scratch);
    free(entry_of_run);
    free(run_of);
    *out = runs;
    *out_count = listed;
    return HARPE_OK;
}

harpe_status harpe_online_round_read_highest(const harpe_online_pipeline *pipeline,
                                             const harpe_rank_info *ranks,
                                             const harpe_profiling_result *results, size_t count,
                                             const int *frequency_mhz, const int *highest_mhz,
                                             harpe_online_mean *entries, harpe_error *error) {
    harpe_online_clock_runs *runs = NULL;
    size_t run_count = 0;
    int *wanted_mhz = harpe_calloc(pipeline->instruction_count, sizeof *wanted_mhz);
    if (!wanted_mhz) return harpe_fail_memory(error);
    for (int p = 0; p < pipeline->rank_count; p++) {
        size_t first = pipeline->rank_offset[p], end = pipeline->rank_offset[p + 1];
        for (size_t i = first; i < end; i++) {
            size_t before = i == first ? end - 1 : i - 1;
            bool is_wanted =
                frequency_mhz[i] == highest_mhz[p] && frequency_mhz[before] == highest_mhz[p];
            wanted_mhz[i] = is_wanted ? highest_mhz[p] : 0;
        }
    }
    harpe_status status = harpe_online_round_read_clocks(pipeline, ranks, results, count,
                                                         wanted_mhz, &runs, &run_count, error);
    for (size_t e = 0; e < pipeline->entry_count && status == HARPE_OK; e++)
        entries[e] = (harpe_online_mean){0, 0};
    for (size_t k = 0; k < run_count; k++)
        entries[runs[k].entry] = runs[k].mean;
    free(runs);
    free(wanted_mhz);
    return status;
}
