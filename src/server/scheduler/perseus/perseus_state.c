/* SPDX-License-Identifier: Apache-2.0 */
/* Writes an online scheduler's state as JSON and reads it again after a restart of the server. The
 * state contains the measurements, and the plans are computed again. This file also writes the
 * frontier as JSON. */
#include "server/scheduler/perseus/perseus_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/scheduler/perseus/explorer_state.h"
#include "server/scheduler/perseus/perseus_job.h"
#include "server/scheduler/perseus/perseus_plan.h"
#include "server/scheduler/perseus/perseus_replicas.h"
#include "server/scheduler/perseus/perseus_report.h"
#include "server/scheduler/perseus/sweep_state.h"

/* States of version 3 are also accepted. They have no measured baseline, so no savings are reported
 * for them. */
enum { VERSION = 4, VERSION_WITHOUT_BASELINE = 3 };

static const char *const PHASES[] = {"count", "sweep", "plan", "hold", "explore"};
enum { PHASE_COUNT = sizeof PHASES / sizeof PHASES[0] };

static harpe_status print(json_t *json, char **text, harpe_error *error) {
    char *made = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (!made) return harpe_fail_memory(error);
    *text = made;
    return HARPE_OK;
}

static int64_t first_kept(const harpe_perseus *self) {
    return self->round > HARPE_PERSEUS_HISTORY ? self->round - HARPE_PERSEUS_HISTORY : 0;
}

/* ---- Saving ---------------------------------------------------------------------------------- */

/* The length of the list of numbers for each of the last rounds (oldest first): [time, energy, time
 * and energy of the baseline, iterations, systematic uncertainties, weights]. */
enum { HISTORY_NUMBERS = 9, HISTORY_NUMBERS_BEFORE = 4 };

static json_t *save_history(const harpe_perseus *self) {
    json_t *list = json_array();
    for (int64_t r = first_kept(self); r < self->round; r++) {
        const harpe_perseus_measured *measured = &self->history[r % HARPE_PERSEUS_HISTORY];
        json_array_append_new(
            list, json_pack("[f,f,f,f,I,f,f,f,f]", measured->time_s, measured->energy_j,
                            measured->baseline_s, measured->baseline_j,
                            (json_int_t)measured->iterations, measured->systematic_s,
                            measured->systematic_j, measured->weight_s, measured->weight_j));
    }
    return list;
}

/* Writes the times of the same rounds. They are a list of their own, because earlier versions
 * accept only the numbers above. */
static json_t *save_times(const harpe_perseus *self) {
    json_t *list = json_array();
    for (int64_t r = first_kept(self); r < self->round; r++)
        json_array_append_new(list,
                              json_integer(self->history[r % HARPE_PERSEUS_HISTORY].ended_wall_s));
    return list;
}

/* Writes [first round with the shift, shift of time, shift of energy, the usual deviations and
 * their rounds]. */
static json_t *save_comparison(const harpe_perseus *self) {
    const harpe_perseus_usual *usual = self->usual;
    return json_pack("[I,f,f,f,f,f,f]", (json_int_t)self->scaled.since_round,
                     self->scaled.factor[0], self->scaled.factor[1], usual[0].deviation,
                     usual[0].rounds, usual[1].deviation, usual[1].rounds);
}

/* Returns 0, or -1 if memory runs out. */
static int save_exploration(const harpe_perseus *self, json_t *json) {
    if (json_object_set_new(json, "exploration", harpe_explorer_save(self->explorer))) return -1;
    return json_object_set_new(json, "explores",
                               json_pack("[b,b]", self->explores, self->explores_next));
}

harpe_status harpe_perseus_save(const void *state, char **text, size_t *length,
                                harpe_error *error) {
    const harpe_perseus *self = state;
    const harpe_online_requests *requests = &self->requests;
    json_t *json = json_pack(
        "{s:i,s:s,s:s,s:i,s:b,s:f,s:[f,f,f,f],s:[f,f,f,f],s:I,s:i,s:I,s:o,s:[i,I,i,I],s:i,s:b,s:b,"
        "s:f,s:o,s:o,s:o,s:o}",
        "version", VERSION, "phase", PHASES[self->phase], "reason", self->hold_reason,
        "count_misses", self->count_misses, "is_profile_written", self->is_profile_made,
        "blocking_power", self->blocking_power_w, "outside", self->outside_time_s,
        self->outside_energy_j, self->shift_time_s, self->shift_energy_j, "wishes",
        requests->slowdown, requests->iteration_time_s, requests->plan_time_s,
        requests->power_cap_w, "running", (json_int_t)(self->explores ? 0 : self->running),
        "drift_rounds", self->drift_rounds, "round", (json_int_t)self->round, "measured",
        save_history(self), "patience", self->corrections.level,
        (json_int_t)self->corrections.since, self->sweeps.level, (json_int_t)self->sweeps.since,
        "misfits", self->mismatches, "misfit_was_told", self->mismatch_was_told, "is_plan_new",
        self->is_plan_new, "undisturbed_time", self->plans ? self->plans->undisturbed_s : 0.0,
        "savings", harpe_savings_save(&self->savings), "savings_again",
        harpe_savings_save(&self->savings_again), "comparison", save_comparison(self),
        "measured_at", save_times(self));
    if (json && self->pipeline &&
        (json_object_set_new(json, "microbatches", json_integer(self->pipeline->microbatches)) ||
         json_object_set_new(json, "sweep", harpe_sweep_save(self->sweep)) ||
         json_object_set_new(json, "latencies", harpe_online_latencies_save(self->latencies)) ||
         (self->sweep_again &&
          json_object_set_new(json, "sweep_again", harpe_sweep_save(self->sweep_again))) ||
         (self->replicas &&
          json_object_set_new(json, "replicas", harpe_perseus_replicas_save(self))) ||
         (self->explorer && save_exploration(self, json)))) {
        json_decref(json);
        json = NULL;
    }
    harpe_status status = print(json, text, error);
    if (status == HARPE_OK) *length = strlen(*text);
    return status;
}

/* ---- Loading --------------------------------------------------------------------------------- */

static bool load_numbers(const json_t *saved, double *numbers, size_t count) {
    if (json_array_size(saved) != count) return false;
    for (size_t i = 0; i < count; i++) {
        numbers[i] = json_number_value(json_array_get(saved, i));
        if (!isfinite(numbers[i])) return false;
    }
    return true;
}

static bool load_history(harpe_perseus *self, const json_t *saved) {
    int64_t first = first_kept(self);
    if ((int64_t)json_array_size(saved) != self->round - first) return false;
    for (int64_t r = first; r < self->round; r++) {
        double n[HISTORY_NUMBERS] = {0};
        const json_t *one = json_array_get(saved, (size_t)(r - first));
        if (!load_numbers(one, n, HISTORY_NUMBERS) && !load_numbers(one, n, HISTORY_NUMBERS_BEFORE))
            return false;
        self->history[r % HARPE_PERSEUS_HISTORY] = (harpe_perseus_measured){
            r, n[0], n[1], n[2], n[3], (int64_t)n[4], n[5], n[6], n[7], n[8], 0};
    }
    return true;
}

/* A state of an earlier version has no times. */
static void load_times(harpe_perseus *self, const json_t *saved) {
    int64_t first = first_kept(self);
    if ((int64_t)json_array_size(saved) != self->round - first) return;
    for (int64_t r = first; r < self->round; r++)
        self->history[r % HARPE_PERSEUS_HISTORY].ended_wall_s =
            json_integer_value(json_array_get(saved, (size_t)(r - first)));
}

static bool load_phase(harpe_perseus *self, const char *name) {
    for (int p = 0; name && p < PHASE_COUNT; p++) {
        if (strcmp(name, PHASES[p]) != 0) continue;
        self->phase = (harpe_perseus_phase)p;
        return true;
    }
    return false;
}

static int load_count(const json_t *json, const char *name) {
    json_int_t value = json_integer_value(json_object_get(json, name));
    return value > 0 && value < 1000000000 ? (int)value : 0;
}

static bool load_backoff(harpe_perseus_backoff *backoff, const double *numbers) {
    if (!(numbers[0] >= 0 && numbers[0] <= HARPE_PERSEUS_LEVEL_MAX && numbers[1] >= 0 &&
          numbers[1] < 1e15))
        return false;
    *backoff = (harpe_perseus_backoff){(int)numbers[0], (int64_t)numbers[1]};
    return true;
}

static bool load_comparison(harpe_perseus *self, const json_t *json) {
    double n[7];
    if (!load_numbers(json, n, 7) || !(n[0] >= -1 && n[0] < 1e15)) return false;
    self->scaled = (harpe_perseus_scaled){{n[1], n[2]}, (int64_t)n[0]};
    self->usual[0] = (harpe_perseus_usual){n[3], n[4]};
    self->usual[1] = (harpe_perseus_usual){n[5], n[6]};
    return n[4] >= 0 && n[6] >= 0;
}

static bool load_savings(harpe_perseus *self, const json_t *json) {
    int64_t version = json_integer_value(json_object_get(json, "version"));
    if (version == VERSION_WITHOUT_BASELINE) return true;
    return version == VERSION &&
           harpe_savings_load(&self->savings, json_object_get(json, "savings")) &&
           harpe_savings_load(&self->savings_again, json_object_get(json, "savings_again")) &&
           load_comparison(self, json_object_get(json, "comparison"));
}

static bool load_plain(harpe_perseus *self, const json_t *json) {
    double outside[4], requests[4], backoff[4];
    const char *reason = json_string_value(json_object_get(json, "reason"));
    self->round = json_integer_value(json_object_get(json, "round"));
    self->running = (size_t)load_count(json, "running");
    self->count_misses = load_count(json, "count_misses");
    self->drift_rounds = load_count(json, "drift_rounds");
    self->mismatches = load_count(json, "misfits");
    self->mismatch_was_told = json_is_true(json_object_get(json, "misfit_was_told"));
    self->is_plan_new = json_is_true(json_object_get(json, "is_plan_new"));
    self->is_profile_made = json_is_true(json_object_get(json, "is_profile_written"));
    self->blocking_power_w = json_number_value(json_object_get(json, "blocking_power"));
    if (self->round < 0 || !reason ||
        !(self->blocking_power_w >= 0 && self->blocking_power_w < 1e9) ||
        !load_numbers(json_object_get(json, "outside"), outside, 4) ||
        !load_numbers(json_object_get(json, "wishes"), requests, 4) ||
        !load_numbers(json_object_get(json, "patience"), backoff, 4) ||
        !load_backoff(&self->corrections, &backoff[0]) ||
        !load_backoff(&self->sweeps, &backoff[2]) ||
        !load_history(self, json_object_get(json, "measured")) || !load_savings(self, json) ||
        !load_phase(self, json_string_value(json_object_get(json, "phase"))))
        return false;
    load_times(self, json_object_get(json, "measured_at"));
    (void)snprintf(self->hold_reason, sizeof self->hold_reason, "%s", reason);
    self->outside_time_s = outside[0];
    self->outside_energy_j = outside[1];
    self->shift_time_s = outside[2];
    self->shift_energy_j = outside[3];
    self->requests = (harpe_online_requests){requests[0], requests[1], requests[2], requests[3]};
    return true;
}

/* Computes the plans again from the measurements. */
static bool make_plans(harpe_perseus *self, const json_t *json, harpe_error *error) {
    double undisturbed_s = json_number_value(json_object_get(json, "undisturbed_time"));
    harpe_perseus_find_blocking_power(self);
    if (harpe_perseus_make_plans(self, undisturbed_s, error)) return false;
    if (self->running >= harpe_plan_set_count(self->plans->set)) self->running = 0;
    return true;
}

static void load_plans(harpe_perseus *self, const json_t *json) {
    harpe_error reason = {0};
    if (!make_plans(self, json, &reason)) harpe_perseus_hold(self, reason.message);
}

static harpe_status load_sweep_again(harpe_perseus *self, const json_t *json, harpe_error *error) {
    harpe_sweep *again;
    harpe_status status = harpe_perseus_new_sweep(self, &again, error);
    if (status != HARPE_OK) return status;
    status = harpe_sweep_load(again, json_object_get(json, "sweep_again"), error);
    if (status != HARPE_OK) {
        harpe_sweep_free(again);
        return status;
    }
    if (make_plans(self, json, error)) {
        self->sweep_again = again;
    } else { /* otherwise it is the first sweep */
        harpe_sweep_free(self->sweep);
        self->sweep = again;
    }
    return HARPE_OK;
}

/* Reads the exploration after its sweep. A state without one comes from a sweep; its points are
 * then what the explorer knows. */
static harpe_status load_exploration(harpe_perseus *self, const json_t *json, harpe_error *error) {
    const json_t *saved = json_object_get(json, "exploration");
    const json_t *explores = json_object_get(json, "explores");
    harpe_explorer_free(self->explorer);
    self->explorer = NULL;
    if (self->args.learns_by_sweep && self->phase != HARPE_PERSEUS_EXPLORE) return HARPE_OK;
    if (!saved && self->phase != HARPE_PERSEUS_PLAN && self->phase != HARPE_PERSEUS_EXPLORE)
        return HARPE_OK;
    harpe_status status = harpe_explorer_new(self->pipeline, harpe_perseus_sweep_under_way(self),
                                             self->latencies, &self->explorer, error);
    if (status != HARPE_OK) return status;
    if (!saved && self->phase == HARPE_PERSEUS_PLAN) {
        harpe_explorer_seed(self->explorer);
        return HARPE_OK;
    }
    if (!harpe_explorer_load(self->explorer, saved))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "the stored exploration does not fit this job's schedule: start the "
                          "server with the scheduler arguments that it had, or register the job "
                          "anew");
    self->explores = json_is_true(json_array_get(explores, 0));
    /* While the job explores, no plan runs, and the saved number may be of other plans. */
    if (self->explores && self->plans) self->running = harpe_perseus_chosen(self);
    self->explores_next = json_is_true(json_array_get(explores, 1));
    return HARPE_OK;
}

static harpe_status load_sweep(harpe_perseus *self, const json_t *json, harpe_error *error) {
    harpe_perseus_phase phase = self->phase;
    if (phase == HARPE_PERSEUS_COUNT) return HARPE_OK;
    if (!self->pipeline) {
        harpe_status status =
            harpe_perseus_begin_sweep(self, load_count(json, "microbatches"), error);
        if (status != HARPE_OK) return status;
    }
    self->phase = phase;
    harpe_status status = harpe_sweep_load(self->sweep, json_object_get(json, "sweep"), error);
    if (status != HARPE_OK) return status;
    if (!harpe_online_latencies_load(self->latencies, json_object_get(json, "latencies")))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "the stored latencies do not fit this job: register the job anew");
    bool is_learning = phase == HARPE_PERSEUS_SWEEP || phase == HARPE_PERSEUS_EXPLORE;
    if (phase == HARPE_PERSEUS_PLAN)
        load_plans(self, json);
    else if (is_learning && json_object_get(json, "sweep_again"))
        status = load_sweep_again(self, json, error);
    if (status == HARPE_OK) status = load_exploration(self, json, error);
    if (status == HARPE_OK && !harpe_perseus_replicas_load(self, json_object_get(json, "replicas")))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "the stored replicas do not fit this job's schedule: start the server "
                          "with the scheduler arguments that it had, or register the job anew");
    return status;
}

/* Hands the profile over again, because the last server may have been killed before it wrote the
 * file. */
static void hand_over_again(harpe_perseus *self) {
    if (!self->is_profile_made || !self->sweep || !harpe_sweep_is_over(self->sweep)) return;
    harpe_perseus_hand_over_profile(self);
    self->file.is_repeated = true;
}

harpe_status harpe_perseus_load(void *state, const char *text, size_t length, harpe_error *error) {
    harpe_perseus *self = state;
    json_t *json = json_loadb(text, length, 0, NULL);
    harpe_status status =
        load_plain(self, json)
            ? load_sweep(self, json, error)
            : harpe_fail(error, HARPE_INVALID_INPUT,
                         "the stored state of %s cannot be read: register the job anew",
                         self->name);
    if (status == HARPE_OK) hand_over_again(self);
    json_decref(json);
    return status;
}

/* ---- The frontier ---------------------------------------------------------------------------- */

static json_t *show_history(const harpe_perseus *self) {
    json_t *list = json_array();
    for (int64_t r = first_kept(self); r < self->round; r++)
        json_array_append_new(
            list, harpe_perseus_show_round(self, &self->history[r % HARPE_PERSEUS_HISTORY]));
    return list;
}

static json_t *show_sweep(const harpe_perseus *self) {
    const harpe_sweep *sweep = harpe_perseus_sweep_under_way(self);
    const harpe_sweep_cost *cost = &sweep->cost;
    int mhz = harpe_sweep_common_mhz(sweep);
    return json_pack("{s:I,s:I,s:f,s:f,s:I,s:I,s:o}", "rounds", (json_int_t)cost->rounds,
                     "iterations", (json_int_t)cost->iterations, "extra_time",
                     harpe_perseus_sweep_extra_time_s(self), "extra_energy",
                     harpe_perseus_sweep_extra_energy_j(self), "frequencies",
                     (json_int_t)sweep->frequency_count, "done", (json_int_t)sweep->position,
                     "frequency", mhz > 0 ? json_integer(mhz) : json_null());
}

static json_t *show_exploration(const harpe_perseus *self) {
    const harpe_explorer *explorer = self->explorer;
    bool is_running = self->phase == HARPE_PERSEUS_EXPLORE || self->explores_next;
    return json_pack("{s:b,s:b,s:I,s:I,s:I,s:I,s:f,s:f}", "is_running", is_running,
                     "answers_requests", harpe_explorer_answers_requests(explorer),
                     "highest_rounds", (json_int_t)explorer->highest_rounds, "measured",
                     (json_int_t)harpe_explorer_measured(explorer), "wanted",
                     (json_int_t)explorer->wanted_count, "spoiled_rounds",
                     (json_int_t)explorer->spoiled_rounds, "noise",
                     harpe_explorer_noise_of(explorer), "promised_time", explorer->promised_s);
}

static json_t *show_vertices(const harpe_frontier *frontier) {
    size_t count;
    const harpe_frontier_vertex *vertices = harpe_frontier_vertices(frontier, &count);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list,
                              json_pack("[f,f]", vertices[i].time_s, vertices[i].lower_bound_j));
    return list;
}

static json_t *show_plan(const harpe_plan *plan) {
    return json_pack("{s:f,s:f,s:f}", "time", plan->time_s, "energy", plan->energy_j, "lower_bound",
                     plan->lower_bound_j);
}

static json_t *show_plans(const harpe_plan_set *set) {
    json_t *list = json_array();
    for (size_t i = 0; i < harpe_plan_set_count(set); i++)
        json_array_append_new(list, show_plan(harpe_plan_set_at(set, i)));
    return list;
}

/* Shows the plans with one clock for all GPUs; frequency 0: the highest clocks, which differ. */
static json_t *show_one_clock(const harpe_online_plans *plans) {
    json_t *list = json_array();
    for (size_t i = 0; i < harpe_plan_set_count(plans->one_clock); i++) {
        const harpe_plan *plan = harpe_plan_set_at(plans->one_clock, i);
        int mhz = harpe_plan_one_clock_mhz(plans->problem, plan->frequency_mhz);
        json_array_append_new(list, json_pack("{s:i,s:f,s:f}", "frequency", mhz, "time",
                                              plan->time_s, "energy", plan->energy_j));
    }
    return list;
}

/* Shows the job requests. The value 0 means that there is no such request. */
static json_t *show_requests(const harpe_online_requests *requests) {
    return json_pack("{s:f,s:f,s:f,s:f}", "slowdown", requests->slowdown, "iteration_time",
                     requests->iteration_time_s, "plan_time", requests->plan_time_s, "power_cap",
                     requests->power_cap_w);
}

harpe_status harpe_perseus_frontier(const void *state, char **text, harpe_error *error) {
    const harpe_perseus *self = state;
    json_t *json = json_pack(
        "{s:s,s:I,s:o,s:o,s:o,s:o}", "phase", PHASES[self->phase], "round", (json_int_t)self->round,
        "measured", show_history(self), "saved", harpe_perseus_show_saved(self), "baseline",
        harpe_perseus_show_baseline(self), "wishes", show_requests(&self->requests));
    if (json && self->sweep) json_object_set_new(json, "sweep", show_sweep(self));
    if (json && self->explorer) json_object_set_new(json, "exploration", show_exploration(self));
    if (json && self->replicas)
        json_object_set_new(json, "replicas", harpe_perseus_replicas_show(self));
    if (json && *self->hold_reason)
        json_object_set_new(json, "reason", json_string(self->hold_reason));
    if (json && self->phase == HARPE_PERSEUS_PLAN) {
        json_t *plans = json_pack(
            "{s:o,s:o,s:I,s:f,s:o,s:o,s:[f,f],s:[f,f],s:f}", "vertices",
            show_vertices(self->plans->frontier), "plans", show_plans(self->plans->set), "current",
            (json_int_t)self->running, "blocking_power", self->blocking_power_w, "all_maximum",
            show_plan(&self->plans->all_maximum), "one_clock", show_one_clock(self->plans),
            "outside", self->outside_time_s + self->shift_time_s,
            self->outside_energy_j + self->shift_energy_j, "wish_outside",
            harpe_perseus_outside(self).time_s, harpe_perseus_outside(self).energy_j,
            "undisturbed_time", self->plans->undisturbed_s);
        json_object_update(json, plans);
        json_decref(plans);
    }
    return print(json, text, error);
}
