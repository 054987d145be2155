/* SPDX-License-Identifier: Apache-2.0 */
/* Returns the results of an instruction profiler: results of some steps, the profile of all steps,
 * and the power while waiting. The energy of an instruction is a fitted power times its duration.
 * These energies are not scaled to the counter's total, because the difference is noise of the
 * counter. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/wait.h"
#include "client/profiler_internal.h"
#include "plan/profiles.h"

/* ---- Which steps ----------------------------------------------------------------------------- */

size_t harpe_instruction_profiler_step_count(harpe_instruction_profiler *profiler, int64_t series) {
    size_t count = 0;
    if (!harpe_profiler_is_ours(profiler)) return 0;
    harpe_lock(&profiler->lock);
    for (size_t i = 0; i < profiler->known_count; i++)
        count += profiler->steps[i].series == series;
    harpe_unlock(&profiler->lock);
    return count;
}

static harpe_status check_process(const harpe_instruction_profiler *profiler, harpe_error *error) {
    if (harpe_profiler_is_ours(profiler)) return HARPE_OK;
    return harpe_fail(error, HARPE_NOT_SUPPORTED,
                      "this instruction profiler was made before fork() and its thread stayed in "
                      "the parent; make a new one in this process");
}

/* Returns the steps of a series whose energy is known. `*end` is the end of the series among all
 * steps. */
static harpe_step *steps_of(const harpe_instruction_profiler *profiler, int64_t series,
                            size_t *count, size_t *end) {
    harpe_step *chosen = harpe_calloc(profiler->known_count, sizeof *chosen);
    *count = 0;
    *end = 0;
    for (size_t i = 0; chosen && i < profiler->step_count; i++) {
        if (profiler->steps[i].series != series) continue;
        *end = i + 1;
        if (i < profiler->known_count) chosen[(*count)++] = profiler->steps[i];
    }
    return chosen;
}

/* ---- A result -------------------------------------------------------------------------------- */

/* The energies of `steps`, and the power of their instructions by key. */
typedef struct step_energies {
    double *power_w; /* by column */
    double *step_j;
} step_energies;

static bool find_energies(const harpe_instruction_profiler *profiler, const harpe_step *steps,
                          size_t count, step_energies *out) {
    size_t key_count = profiler->keys.count;
    const harpe_energy_curve *curve = profiler->has_energy ? &profiler->curve : NULL;
    harpe_power_model model = {0};
    out->step_j = harpe_calloc(count, sizeof *out->step_j);
    bool is_found = out->step_j && harpe_power_model_add(&model, steps, count, curve, key_count);
    if (is_found) {
        out->power_w = harpe_power_model_solve(&model, key_count);
        is_found = out->power_w && (!curve || harpe_step_energies(steps, count, curve, out->power_w,
                                                                  key_count, out->step_j));
    }
    harpe_power_model_clear(&model);
    return is_found;
}

/* Both breakdowns of a result, and the arrays to which they point. */
typedef struct breakdowns {
    harpe_arena arena;
    harpe_breakdown *time, *energy;
    size_t count;
} breakdowns;

/* Lists the names of the steps' instructions, in the order in which they first ran. */
static size_t list_names(const harpe_instruction_profiler *profiler, const harpe_step *steps,
                         size_t count, uint8_t names[HARPE_RECORDER_NAMES]) {
    size_t name_count = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < steps[i].span_count; k++) {
            uint8_t name = profiler->keys.items[steps[i].spans[k].key].name;
            if (name_count == 0 || !memchr(names, name, name_count)) names[name_count++] = name;
        }
    }
    return name_count;
}

static bool break_down(const harpe_instruction_profiler *profiler, const harpe_step *steps,
                       size_t count, uint8_t name, const double *power_w, breakdowns *out) {
    size_t most = 0, length = 0;
    for (size_t i = 0; i < count; i++)
        most += steps[i].span_count;
    size_t *counts = harpe_arena_alloc(&out->arena, count, sizeof *counts);
    size_t *offsets = harpe_arena_alloc(&out->arena, count, sizeof *offsets);
    double *time_s = harpe_arena_alloc(&out->arena, most, sizeof *time_s);
    double *energy_j = harpe_arena_alloc(&out->arena, most, sizeof *energy_j);
    if (!counts || !offsets || !time_s || !energy_j) return false;
    for (size_t i = 0; i < count; i++) {
        offsets[i] = length;
        for (size_t k = 0; k < steps[i].span_count; k++) {
            const harpe_span *span = &steps[i].spans[k];
            if (profiler->keys.items[span->key].name != name) continue;
            time_s[length] = (double)(span->end_ns - span->start_ns) * 1e-9;
            energy_j[length] = time_s[length] * power_w[HARPE_COLUMN_FIRST_KEY + span->key];
            length++;
        }
        counts[i] = length - offsets[i];
    }
    const char *text = profiler->recorder.names[name];
    out->time[out->count] = (harpe_breakdown){text, count, counts, offsets, time_s};
    out->energy[out->count++] = (harpe_breakdown){text, count, counts, offsets, energy_j};
    return true;
}

static harpe_status make_result(const harpe_instruction_profiler *profiler, const harpe_step *steps,
                                size_t count, int rank, const step_energies *energies,
                                harpe_profiling_result *out, harpe_error *error) {
    uint8_t names[HARPE_RECORDER_NAMES];
    size_t name_count = list_names(profiler, steps, count, names);
    breakdowns parts = {0};
    parts.time = harpe_arena_alloc(&parts.arena, name_count, sizeof *parts.time);
    parts.energy = harpe_arena_alloc(&parts.arena, name_count, sizeof *parts.energy);
    double *step_s = harpe_arena_alloc(&parts.arena, count, sizeof *step_s);
    bool is_made = parts.time && parts.energy && step_s;
    for (size_t i = 0; is_made && i < name_count; i++)
        is_made = break_down(profiler, steps, count, names[i], energies->power_w, &parts);
    for (size_t i = 0; is_made && i < count; i++)
        step_s[i] = (double)(steps[i].end_ns - steps[i].start_ns) * 1e-9;
    harpe_profiling_result result = {.rank = rank,
                                     .iteration_time_s = step_s,
                                     .iteration_time_count = count,
                                     .iteration_energy_j = energies->step_j,
                                     .iteration_energy_count = count,
                                     .time_breakdown = parts.time,
                                     .time_breakdown_count = parts.count,
                                     .energy_breakdown = parts.energy,
                                     .energy_breakdown_count = parts.count};
    harpe_status status =
        is_made ? harpe_profiling_result_copy(&result, out, error) : harpe_fail_memory(error);
    harpe_arena_free(&parts.arena);
    return status;
}

harpe_status harpe_instruction_profiler_take(harpe_instruction_profiler *profiler, int64_t series,
                                             size_t steps, int rank, harpe_profiling_result *out,
                                             harpe_error *error) {
    if (steps == 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "a result needs at least one step");
    harpe_status status = check_process(profiler, error);
    if (status != HARPE_OK) return status;
    size_t count = 0, end = 0;
    step_energies energies = {0};
    harpe_lock(&profiler->lock);
    harpe_step *chosen = steps_of(profiler, series, &count, &end);
    if (chosen && count < steps) {
        status = harpe_fail(error, HARPE_NOT_FOUND,
                            "series %lld: %zu of %zu steps are measured so far; ask again later",
                            (long long)series, count, steps);
    } else if (!chosen || !find_energies(profiler, chosen, steps, &energies)) {
        status = harpe_fail_memory(error);
    } else {
        status = make_result(profiler, chosen, steps, rank, &energies, out, error);
    }
    if (status == HARPE_OK) harpe_profiler_forget(profiler, end);
    harpe_unlock(&profiler->lock);
    free(energies.power_w);
    free(energies.step_j);
    free(chosen);
    return status;
}

/* ---- All steps so far ------------------------------------------------------------------------ */

/* Adds up the removed steps and the kept steps. Call it with the lock held. */
static bool model_everything(harpe_instruction_profiler *profiler, harpe_power_model *out) {
    harpe_power_model model = {0};
    if (!harpe_power_model_copy(&profiler->forgotten, &model)) return false;
    const harpe_energy_curve *curve = profiler->has_energy ? &profiler->curve : NULL;
    if (!harpe_power_model_add(&model, profiler->steps, profiler->known_count, curve,
                               profiler->keys.count)) {
        harpe_power_model_clear(&model);
        return false;
    }
    *out = model;
    return true;
}

double harpe_instruction_profiler_waiting_power_w(harpe_instruction_profiler *profiler) {
    double waiting_w = NAN;
    harpe_power_model model = {0};
    if (!harpe_profiler_is_ours(profiler)) return waiting_w;
    harpe_lock(&profiler->lock);
    if (model_everything(profiler, &model) &&
        harpe_power_fit_knows(&model.fit, HARPE_COLUMN_WAITING)) {
        double *power_w = harpe_power_model_solve(&model, profiler->keys.count);
        waiting_w = power_w ? power_w[HARPE_COLUMN_WAITING] : NAN;
        free(power_w);
    }
    harpe_unlock(&profiler->lock);
    harpe_power_model_clear(&model);
    return waiting_w;
}

/* Adds the row of one key. An instruction that is too short has no known energy and gets no row. */
static harpe_status print_row(const harpe_instruction_profiler *profiler,
                              const harpe_power_model *model, size_t key, double power_w, int stage,
                              int rank, harpe_text *text, harpe_error *error) {
    if (model->runs[key] == 0 || !(power_w > 0)) return HARPE_OK;
    double time_s = model->time_s[key] / (double)model->runs[key];
    const harpe_step_key *what = &profiler->keys.items[key];
    harpe_measurement row = {.stage = stage,
                             .rank = rank,
                             .instruction = profiler->recorder.names[what->name],
                             .frequency_mhz = what->frequency_mhz,
                             .time_s = time_s,
                             .energy_j = power_w * time_s};
    harpe_profile_field fault = harpe_profile_row_fault(&row, strlen(row.instruction));
    if (fault != HARPE_FIELD_COUNT) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "instruction '%s' at %d MHz has no place in a profile: %s",
                          row.instruction, row.frequency_mhz, harpe_profile_field_rule(fault));
    }
    harpe_text_printf(text, "%d,", stage);
    if (rank >= 0) harpe_text_printf(text, "%d,", rank);
    harpe_text_printf(text, "%s,%d,", row.instruction, row.frequency_mhz);
    harpe_text_number(text, row.time_s);
    harpe_text_append(text, ",", 1);
    harpe_text_number(text, row.energy_j);
    harpe_text_append(text, "\n", 1);
    return HARPE_OK;
}

/* Writes the rows of all keys. Call it with the lock held. */
static harpe_status print_everything(harpe_instruction_profiler *profiler, int stage, int rank,
                                     harpe_text *text, harpe_error *error) {
    harpe_power_model model = {0};
    if (!model_everything(profiler, &model)) return harpe_fail_memory(error);
    double *power_w = harpe_power_model_solve(&model, profiler->keys.count);
    harpe_status status = power_w ? HARPE_OK : harpe_fail_memory(error);
    harpe_text_printf(text, "stage,%sinstruction,frequency,time,energy\n",
                      rank >= 0 ? "rank," : "");
    size_t header_length = text->length;
    for (size_t key = 0; key < model.key_count && status == HARPE_OK; key++) {
        status = print_row(profiler, &model, key, power_w[HARPE_COLUMN_FIRST_KEY + key], stage,
                           rank, text, error);
    }
    if (status == HARPE_OK && text->length == header_length) {
        status = harpe_fail(error, HARPE_NOT_FOUND,
                            "no step was measured with its energy so far: there is no profile yet");
    }
    free(power_w);
    harpe_power_model_clear(&model);
    return status;
}

harpe_status harpe_instruction_profiler_write_csv(harpe_instruction_profiler *profiler, int stage,
                                                  int rank, const char *path, harpe_error *error) {
    harpe_status status = check_process(profiler, error);
    if (status != HARPE_OK) return status;
    harpe_text text = {0};
    harpe_lock(&profiler->lock);
    status = profiler->has_energy
                 ? print_everything(profiler, stage, rank, &text, error)
                 : harpe_fail(error, HARPE_NOT_SUPPORTED,
                              "a profile needs energies, and no GPU here reports any");
    harpe_unlock(&profiler->lock);
    if (status == HARPE_OK && text.failed) status = harpe_fail_memory(error);
    if (status == HARPE_OK) status = harpe_file_write(path, text.data, text.length, error);
    harpe_text_free(&text);
    return status;
}

/* ---- When instructions ran ------------------------------------------------------------------- */

/* Returns the number of instructions of the series' steps, or 0 if they differ or if there are
 * fewer than `steps` steps. */
static size_t common_count(const harpe_instruction_profiler *profiler, int64_t series,
                           size_t steps) {
    size_t found = 0, runs = 0;
    for (size_t i = 0; i < profiler->known_count && found < steps; i++) {
        const harpe_step *step = &profiler->steps[i];
        if (step->series != series) continue;
        if (found++ == 0) runs = step->span_count;
        if (step->span_count != runs) return 0;
    }
    return found == steps ? runs : 0;
}

static void copy_spans(const harpe_instruction_profiler *profiler, int64_t series,
                       harpe_profiler_spans *out) {
    size_t found = 0;
    for (size_t i = 0; i < profiler->known_count && found < out->step_count; i++) {
        const harpe_step *step = &profiler->steps[i];
        if (step->series != series) continue;
        uint64_t *us = out->us + 2 * out->run_count * found;
        for (size_t k = 0; k < out->run_count; k++) {
            us[2 * k] = (uint64_t)step->spans[k].start_ns / 1000;
            us[2 * k + 1] = (uint64_t)step->spans[k].end_ns / 1000;
            if (found == 0)
                out->asked_mhz[k] = profiler->keys.items[step->spans[k].key].frequency_mhz;
        }
        found++;
    }
}

bool harpe_profiler_copy_spans(harpe_instruction_profiler *profiler, int64_t series, size_t steps,
                               harpe_profiler_spans *out) {
    *out = (harpe_profiler_spans){.step_count = steps};
    if (!harpe_profiler_is_ours(profiler)) return false;
    harpe_lock(&profiler->lock);
    out->run_count = common_count(profiler, series, steps);
    out->asked_mhz = harpe_calloc(out->run_count, sizeof *out->asked_mhz);
    out->us = harpe_calloc(2 * out->run_count * steps, sizeof *out->us);
    bool is_made = out->run_count > 0 && out->asked_mhz && out->us;
    if (is_made) copy_spans(profiler, series, out);
    harpe_unlock(&profiler->lock);
    if (!is_made) harpe_profiler_spans_free(out);
    return is_made;
}

void harpe_profiler_spans_free(harpe_profiler_spans *spans) {
    free(spans->asked_mhz);
    free(spans->us);
    *spans = (harpe_profiler_spans){0};
}
