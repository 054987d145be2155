/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the profile CSV of offline results, which the planner reads. */
#include <stdlib.h>
#include <string.h>

#include <harpe/pfo.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"

static int highest_first(const void *a, const void *b) {
    const harpe_frequency_value *first = a;
    const harpe_frequency_value *second = b;
    return (second->frequency_mhz > first->frequency_mhz) -
           (second->frequency_mhz < first->frequency_mhz);
}

/* Returns a copy with the highest frequency first, or NULL when out of memory. */
static harpe_frequency_value *sorted(const harpe_frequency_value *values, size_t count) {
    harpe_frequency_value *copy = harpe_calloc(count, sizeof *copy);
    if (copy && count > 0) {
        memcpy(copy, values, count * sizeof *copy);
        qsort(copy, count, sizeof *copy, highest_first);
    }
    return copy;
}

static bool is_alone(const harpe_frequency_value *values, size_t count, size_t i) {
    return i >= count || i + 1 == count || values[i].frequency_mhz != values[i + 1].frequency_mhz;
}

static harpe_status print_rows(harpe_text *text, const harpe_offline_profiling_result *result,
                               const char *instruction, const harpe_frequency_value *times,
                               size_t time_count, const harpe_frequency_value *energies,
                               size_t energy_count, harpe_error *error) {
    for (size_t i = 0; i < time_count || i < energy_count; i++) {
        if (i >= time_count || i >= energy_count ||
            times[i].frequency_mhz != energies[i].frequency_mhz ||
            !is_alone(times, time_count, i)) {
            int frequency_mhz = i < time_count ? times[i].frequency_mhz : energies[i].frequency_mhz;
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "rank %d: %s at or below %d MHz: each frequency must have one time "
                              "and one energy",
                              result->rank, instruction, frequency_mhz);
        }
        harpe_text_printf(text, "%d,%d,%d,%d,%d,%s,%d,", result->rank, result->dp_rank,
                          result->pp_rank, result->tp_rank, result->pp_rank, instruction,
                          times[i].frequency_mhz);
        harpe_text_number(text, times[i].value);
        harpe_text_append(text, ",", 1);
        harpe_text_number(text, energies[i].value);
        harpe_text_append(text, "\n", 1);
    }
    return HARPE_OK;
}

static harpe_status print_instruction(harpe_text *text,
                                      const harpe_offline_profiling_result *result,
                                      const char *instruction, const harpe_frequency_value *time_s,
                                      size_t time_count, const harpe_frequency_value *energy_j,
                                      size_t energy_count, harpe_error *error) {
    harpe_frequency_value *times = sorted(time_s, time_count);
    harpe_frequency_value *energies = sorted(energy_j, energy_count);
    harpe_status status = times && energies ? print_rows(text, result, instruction, times,
                                                         time_count, energies, energy_count, error)
                                            : harpe_fail_memory(error);
    free(times);
    free(energies);
    return status;
}

harpe_status
harpe_offline_profiling_results_write_csv(const char *path,
                                          const harpe_offline_profiling_result *results,
                                          size_t count, harpe_error *error) {
    size_t path_length = strlen(path);
    if (path_length < 4 || strcmp(path + path_length - 4, ".csv") != 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "%s: the name must end in .csv", path);
    harpe_text text = {0};
    harpe_status status = HARPE_OK;
    harpe_json_raw(&text, "rank,dp_rank,pp_rank,tp_rank,stage,instruction,frequency,time,energy\n");
    for (size_t i = 0; i < count && status == HARPE_OK; i++) {
        const harpe_offline_profiling_result *one = &results[i];
        status =
            print_instruction(&text, one, "forward", one->forward_time_s, one->forward_time_count,
                              one->forward_energy_j, one->forward_energy_count, error);
        if (status == HARPE_OK)
            status = print_instruction(&text, one, "backward", one->backward_time_s,
                                       one->backward_time_count, one->backward_energy_j,
                                       one->backward_energy_count, error);
    }
    if (status == HARPE_OK)
        status = text.failed ? harpe_fail_memory(error)
                             : harpe_file_write(path, text.data, text.length, error);
    harpe_text_free(&text);
    return status;
}
