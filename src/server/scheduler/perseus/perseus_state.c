/* SPDX-License-Identifier: Apache-2.0 */
/* Writes an online scheduler's state as JSON and reads it again after a restart of the server. The
 * state contains the measurements, and the plans are computed again. */
#include "server/scheduler/perseus/perseus_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "server/scheduler/builtin.h"

enum { VERSION = 6 };

/* ---- The members ----------------------------------------------------------------------------- */

static const harpe_stored_member MEMBERS[] = {
    HARPE_STORED(harpe_perseus, phase, 0, HARPE_PERSEUS_EXPLORE),
    HARPE_STORED(harpe_perseus, round, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_perseus, count_misses, 0, 1e9),
    HARPE_STORED(harpe_perseus, mismatches, 0, 1e9),
    HARPE_STORED(harpe_perseus, mismatch_was_told, 0, 1),
    HARPE_STORED(harpe_perseus, drift_rounds, 0, 1e9),
    HARPE_STORED(harpe_perseus, is_plan_new, 0, 1),
    HARPE_STORED(harpe_perseus, is_profile_made, 0, 1),
    HARPE_STORED(harpe_perseus, explores, 0, 1),
    HARPE_STORED(harpe_perseus, explores_next, 0, 1),
    HARPE_STORED(harpe_perseus, outside_time_s, HARPE_STORED_ANY),
    HARPE_STORED(harpe_perseus, outside_energy_j, HARPE_STORED_ANY),
    HARPE_STORED(harpe_perseus, shift_time_s, HARPE_STORED_ANY),
    HARPE_STORED(harpe_perseus, shift_energy_j, HARPE_STORED_ANY),
    HARPE_STORED_DOUBLES(harpe_perseus, requests, HARPE_STORED_ANY),
    HARPE_STORED(harpe_perseus, corrections.level, 0, HARPE_PERSEUS_LEVEL_MAX),
    HARPE_STORED(harpe_perseus, corrections.since, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_perseus, measuring.level, 0, HARPE_PERSEUS_LEVEL_MAX),
    HARPE_STORED(harpe_perseus, measuring.since, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_perseus, runs_highest, 0, 1),
    HARPE_STORED(harpe_perseus, runs_highest_next, 0, 1),
    HARPE_STORED(harpe_perseus, references.level, 0, HARPE_PERSEUS_LEVEL_MAX),
    HARPE_STORED(harpe_perseus, references.since, HARPE_STORED_COUNT),
    HARPE_STORED_DOUBLES(harpe_perseus, told, HARPE_STORED_ANY),
    HARPE_STORED_DOUBLES(harpe_perseus, baseline_told, HARPE_STORED_ANY),
    HARPE_STORED_DOUBLES(harpe_perseus, usual, HARPE_STORED_COUNT),
};
static const harpe_stored TABLE = HARPE_STORED_TABLE(harpe_perseus, MEMBERS);

static const harpe_stored_member MEASURED_MEMBERS[] = {
    HARPE_STORED(harpe_perseus_measured, round, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_perseus_measured, value, HARPE_STORED_ANY),
    HARPE_STORED(harpe_perseus_measured, baseline, HARPE_STORED_ANY),
    HARPE_STORED(harpe_perseus_measured, iterations, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_perseus_measured, systematic, HARPE_STORED_ANY),
    HARPE_STORED(harpe_perseus_measured, is_waiting, 0, 1),
    HARPE_STORED(harpe_perseus_measured, ended_wall_s, HARPE_STORED_ANY),
};
static const harpe_stored MEASURED = HARPE_STORED_TABLE(harpe_perseus_measured, MEASURED_MEMBERS);

/* ---- Saving ---------------------------------------------------------------------------------- */

static json_t *save_history(const harpe_perseus *self) {
    json_t *list = json_array();
    for (int64_t r = harpe_perseus_first_kept(self); r < self->round; r++)
        harpe_stored_append(
            &list, harpe_stored_save_row(&MEASURED, &self->history[r % HARPE_PERSEUS_HISTORY]));
    return list;
}

harpe_status harpe_perseus_save(const void *state, char **text, size_t *length,
                                harpe_error *error) {
    const harpe_perseus *self = state;
    json_t *json = harpe_stored_save(&TABLE, self);
    harpe_stored_add(&json, "version", json_integer(VERSION));
    harpe_stored_add(&json, "reason", json_string(self->hold_reason));
    harpe_stored_add(&json, "running",
                     json_integer((json_int_t)(self->explores ? 0 : self->running)));
    harpe_stored_add(&json, "undisturbed_time",
                     json_real(self->plans ? self->plans->undisturbed_s : 0));
    harpe_stored_add(&json, "measured", save_history(self));
    harpe_stored_add(&json, "savings", harpe_savings_save(&self->savings));
    if (self->pipeline) {
        harpe_stored_add(&json, "microbatches", json_integer(self->pipeline->microbatches));
        harpe_stored_add(&json, "learnt", harpe_explorer_save(self->explorer));
    }
    if (self->before) harpe_stored_add(&json, "before", json_incref(self->before));
    if (self->replicas) harpe_stored_add(&json, "replicas", harpe_perseus_replicas_save(self));
    harpe_stored_add(&json, "conduct", harpe_conduct_sums_save(self->conduct));
    char *made = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (!made) return harpe_fail_memory(error);
    *text = made;
    *length = strlen(made);
    return HARPE_OK;
}

/* ---- Loading --------------------------------------------------------------------------------- */

static int load_count(const json_t *json, const char *name) {
    json_int_t value = json_integer_value(json_object_get(json, name));
    return value > 0 && value < 1000000000 ? (int)value : 0;
}

static bool load_history(harpe_perseus *self, const json_t *saved) {
    int64_t first = harpe_perseus_first_kept(self);
    if ((int64_t)json_array_size(saved) != self->round - first) return false;
    for (int64_t r = first; r < self->round; r++) {
        harpe_perseus_measured *measured = &self->history[r % HARPE_PERSEUS_HISTORY];
        const json_t *row = json_array_get(saved, (size_t)(r - first));
        if (!harpe_stored_load_row(&MEASURED, measured, row) || measured->round != r) return false;
    }
    return true;
}

static bool load_members(harpe_perseus *self, const json_t *json) {
    const char *reason = json_string_value(json_object_get(json, "reason"));
    if (json_integer_value(json_object_get(json, "version")) != VERSION || !reason ||
        !harpe_stored_load(&TABLE, self, json) ||
        !load_history(self, json_object_get(json, "measured")) ||
        !harpe_savings_load(&self->savings, json_object_get(json, "savings")))
        return false;
    self->running = (size_t)load_count(json, "running");
    (void)snprintf(self->hold_reason, sizeof self->hold_reason, "%s", reason);
    return true;
}

static harpe_status fail_fit(const char *part, harpe_error *error) {
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "the stored state of the %s does not fit this job's schedule: start the "
                      "server with the scheduler arguments that it had, or register the job anew",
                      part);
}

/* Computes the plans again from the measurements. */
static bool make_plans(harpe_perseus *self, const json_t *json, harpe_error *error) {
    double undisturbed_s = json_number_value(json_object_get(json, "undisturbed_time"));
    harpe_perseus_find_blocking_power(self);
    if (harpe_perseus_make_plans(self, undisturbed_s, error)) return false;
    if (self->running >= harpe_plan_set_count(self->plans->set)) self->running = 0;
    return true;
}

/* While a job measures again, its plans belong to the measurements before. Without these plans it
 * measures for the first time. */
static bool load_before(harpe_perseus *self, const json_t *json, json_t *before) {
    harpe_error reason = {0};
    if (!harpe_explorer_load(self->explorer, before)) return false;
    if (make_plans(self, json, &reason)) self->before = json_incref(before);
    return true;
}

static harpe_status load_learnt(harpe_perseus *self, const json_t *json, harpe_error *error) {
    harpe_error reason = {0};
    json_t *before = json_object_get(json, "before");
    if (before && harpe_perseus_is_learning(self) && !load_before(self, json, before))
        return fail_fit("explorer", error);
    if (!harpe_explorer_load(self->explorer, json_object_get(json, "learnt")))
        return fail_fit("explorer", error);
    if (self->phase == HARPE_PERSEUS_PLAN && !make_plans(self, json, &reason))
        harpe_perseus_hold(self, reason.message);
    /* While the job explores, no plan runs, and the saved number may be of other plans. */
    if (self->explores && self->plans) self->running = harpe_perseus_chosen(self);
    if (!harpe_perseus_replicas_load(self, json_object_get(json, "replicas")))
        return fail_fit("replicas", error);
    return HARPE_OK;
}

/* The members are read after the pipeline was made, which begins to learn. */
static harpe_status load(harpe_perseus *self, const json_t *json, harpe_error *error) {
    harpe_status status = HARPE_OK;
    int microbatches = load_count(json, "microbatches");
    if (!self->pipeline && microbatches > 0)
        status = harpe_perseus_begin(self, microbatches, error);
    if (status != HARPE_OK) return status;
    if (!load_members(self, json) || (self->phase != HARPE_PERSEUS_COUNT && !self->pipeline))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "the stored state of %s cannot be read: register the job anew",
                          self->name);
    if (self->phase != HARPE_PERSEUS_COUNT) return load_learnt(self, json, error);
    if (self->pipeline) harpe_perseus_begin_learning(self);
    return HARPE_OK;
}

/* Hands the profile over again, because the last server may have been killed before it wrote the
 * file. */
static void hand_over_again(harpe_perseus *self) {
    if (!self->is_profile_made || !self->explorer || !harpe_explorer_is_over(self->explorer))
        return;
    harpe_perseus_hand_over_profile(self);
    self->file.is_repeated = true;
}

harpe_status harpe_perseus_load(void *state, const char *text, size_t length, harpe_error *error) {
    harpe_perseus *self = state;
    json_t *json = json_loadb(text, length, 0, NULL);
    harpe_status status = load(self, json, error);
    if (status == HARPE_OK) {
        hand_over_again(self);
        (void)harpe_conduct_sums_load(self->conduct, json_object_get(json, "conduct"));
    }
    json_decref(json);
    return status;
}
