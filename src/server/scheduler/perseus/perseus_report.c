/* SPDX-License-Identifier: Apache-2.0 */
/* Shows an online scheduler to people: savings, as members of the frontier and as figures for
 * /metrics and the lists of jobs; the frontier; and one plan as a pipeline, with start, duration,
 * clock and power of every instruction, one critical path, and the measurements of each (stage,
 * instruction) from the last round that ran the plan. Every saving has an uncertainty. This file
 * changes no state. */
#include "server/scheduler/perseus/perseus_internal.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/problem.h"
#include "server/scheduler/builtin.h"

enum { RECENT_ROUNDS = 10 };

static const char *const PHASES[] = {"count", "sweep", "plan", "hold", "explore"};

/* Returns null for a number that is not known. */
static json_t *number_or_null(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

/* ---- Figures --------------------------------------------------------------------------------- */

static void figures_of_plan(const harpe_perseus *self, harpe_figures *out) {
    out->plan = -1;
    if (self->phase != HARPE_PERSEUS_PLAN || !self->plans) return;
    const harpe_plan *plan = harpe_plan_set_at(self->plans->set, self->running);
    out->plan = (int64_t)self->running;
    out->plan_count = (int64_t)harpe_plan_set_count(self->plans->set);
    const harpe_plan *highest = &self->plans->all_maximum;
    /* As fast as the plan, or as the highest clocks if these are slower. */
    const harpe_plan *one_clock =
        harpe_plan_set_within(self->plans->one_clock, fmax(plan->time_s, highest->time_s));
    double more_s = self->outside_time_s + self->shift_time_s;
    double more_j = self->outside_energy_j + self->shift_energy_j;
    out->plan_time_s = plan->time_s + more_s;
    out->plan_energy_j = plan->energy_j + more_j;
    out->highest_time_s = highest->time_s + more_s;
    out->highest_energy_j = highest->energy_j + more_j;
    out->one_clock_mhz = harpe_plan_one_clock_mhz(self->plans->problem, one_clock->frequency_mhz);
    out->one_clock_time_s = one_clock->time_s + more_s;
    out->one_clock_energy_j = one_clock->energy_j + more_j;
}

void harpe_perseus_figures(const void *state, harpe_figures *out) {
    const harpe_perseus *self = state;
    const harpe_savings *all = &self->savings;
    *out = (harpe_figures){.phase = PHASES[self->phase],
                           .iterations = all->iterations,
                           .used_time_s = all->used[HARPE_TIME],
                           .used_energy_j = all->used[HARPE_ENERGY]};
    figures_of_plan(self, out);
    out->has_savings = harpe_savings_has_baseline(all, HARPE_ENERGY) &&
                       harpe_savings_has_baseline(all, HARPE_TIME);
    if (!out->has_savings) return;
    harpe_estimate energy = harpe_savings_total(all, HARPE_ENERGY, &out->energy_baseline_j);
    harpe_estimate time = harpe_savings_total(all, HARPE_TIME, &out->time_baseline_s);
    out->saved_energy_j = energy.value;
    out->saved_energy_uncertainty_j = energy.uncertainty;
    out->lost_time_s = 0.0 - time.value;
    out->lost_time_uncertainty_s = time.uncertainty;
    const harpe_baseline *baseline = &all->baseline;
    time = harpe_savings_baseline(all, HARPE_TIME);
    energy = harpe_savings_baseline(all, HARPE_ENERGY);
    out->baseline =
        (harpe_figures_baseline){.time_s = time.value,
                                 .time_uncertainty_s = time.uncertainty,
                                 .energy_j = energy.value,
                                 .energy_uncertainty_j = energy.uncertainty,
                                 .iterations = (int64_t)baseline->mean[HARPE_TIME].iterations,
                                 .rounds = (int64_t)baseline->mean[HARPE_TIME].rounds,
                                 .first_round = baseline->first_round,
                                 .last_round = baseline->last_round,
                                 .first_wall_s = baseline->first_wall_s,
                                 .last_wall_s = baseline->last_wall_s};
}

static json_t *show_baseline(const harpe_figures *figures) {
    const harpe_figures_baseline *own = &figures->baseline;
    if (!figures->has_savings) return json_null();
    return json_pack("{s:f,s:o,s:f,s:o,s:I,s:I,s:[I,I],s:[I,I]}", "time", own->time_s,
                     "time_uncertainty", number_or_null(own->time_uncertainty_s), "energy",
                     own->energy_j, "energy_uncertainty", number_or_null(own->energy_uncertainty_j),
                     "iterations", (json_int_t)own->iterations, "rounds", (json_int_t)own->rounds,
                     "between_rounds", (json_int_t)own->first_round, (json_int_t)own->last_round,
                     "measured_at", (json_int_t)own->first_wall_s, (json_int_t)own->last_wall_s);
}

/* ---- Of single rounds ------------------------------------------------------------------------ */

/* Returns the sum over only this round of the history. */
static harpe_savings_sum sum_of_round(const harpe_perseus_measured *measured, int quantity) {
    double n = (double)measured->iterations, value = measured->value[quantity];
    return (harpe_savings_sum){n, n * value, n * value * value, n * measured->systematic[quantity]};
}

static bool is_compared(const harpe_perseus_measured *measured) {
    return measured->baseline[HARPE_TIME] > 0 && measured->iterations > 0;
}

static double uncertainty_of(const harpe_perseus *self, const harpe_perseus_measured *measured,
                             int quantity) {
    bool is_highest = measured->baseline[HARPE_TIME] == measured->value[HARPE_TIME] &&
                      measured->baseline[HARPE_ENERGY] == measured->value[HARPE_ENERGY];
    if (is_highest) return 0; /* it saves nothing */
    harpe_savings_sum sum = sum_of_round(measured, quantity);
    return harpe_savings_of_sum(&self->savings, &sum, quantity).uncertainty / sum.iterations;
}

static json_t *show_round(const harpe_perseus *self, const harpe_perseus_measured *measured) {
    json_t *baseline = json_null(), *uncertainty = json_null();
    if (measured->baseline[HARPE_TIME] > 0)
        baseline =
            json_pack("[f,f]", measured->baseline[HARPE_TIME], measured->baseline[HARPE_ENERGY]);
    if (is_compared(measured))
        uncertainty = json_pack("[o,o]", number_or_null(uncertainty_of(self, measured, HARPE_TIME)),
                                number_or_null(uncertainty_of(self, measured, HARPE_ENERGY)));
    json_t *ended_at =
        measured->ended_wall_s > 0 ? json_integer(measured->ended_wall_s) : json_null();
    return json_pack("{s:I,s:f,s:f,s:I,s:o,s:o,s:o}", "round", (json_int_t)measured->round, "time",
                     measured->value[HARPE_TIME], "energy", measured->value[HARPE_ENERGY],
                     "iterations", (json_int_t)measured->iterations, "baseline", baseline,
                     "uncertainty", uncertainty, "ended_at", ended_at);
}

/* ---- Sums ------------------------------------------------------------------------------------ */

/* Adds up the newest rounds that ran a plan, at most RECENT_ROUNDS. Returns their number. */
static int find_recent(const harpe_perseus *self, harpe_savings_sum *sums, double *baselines) {
    int rounds = 0;
    baselines[HARPE_TIME] = baselines[HARPE_ENERGY] = 0;
    memset(sums, 0, HARPE_QUANTITIES * sizeof *sums);
    int64_t first = harpe_perseus_first_kept(self);
    for (int64_t r = self->round - 1; r >= first && rounds < RECENT_ROUNDS; r--) {
        const harpe_perseus_measured *measured = &self->history[r % HARPE_PERSEUS_HISTORY];
        if (!is_compared(measured)) continue;
        rounds++;
        for (int q = 0; q < HARPE_QUANTITIES; q++) {
            harpe_savings_sum sum = sum_of_round(measured, q);
            harpe_savings_sum_add(&sums[q], &sum);
            baselines[q] += sum.iterations * measured->baseline[q];
        }
    }
    return rounds;
}

/* Returns the savings of the newest rounds as JSON. Each saving is divided by the baseline, so 0.1
 * means 10 %. Returns null if no round or no baseline was measured. */
static json_t *show_recent(const harpe_perseus *self) {
    harpe_savings_sum sums[HARPE_QUANTITIES];
    double baselines[HARPE_QUANTITIES];
    int rounds = find_recent(self, sums, baselines);
    harpe_estimate share[HARPE_QUANTITIES];
    if (rounds == 0 || !harpe_savings_has_baseline(&self->savings, HARPE_ENERGY))
        return json_null();
    for (int q = 0; q < HARPE_QUANTITIES; q++) {
        harpe_estimate saved = harpe_savings_of_sum(&self->savings, &sums[q], q);
        share[q] =
            (harpe_estimate){1 - sums[q].measured / baselines[q], saved.uncertainty / baselines[q]};
    }
    return json_pack("{s:i,s:f,s:o,s:b,s:f,s:o,s:b}", "rounds", rounds, "energy",
                     share[HARPE_ENERGY].value, "energy_uncertainty",
                     number_or_null(share[HARPE_ENERGY].uncertainty), "energy_is_significant",
                     harpe_estimate_is_significant(share[HARPE_ENERGY]), "time",
                     0.0 - share[HARPE_TIME].value, "time_uncertainty",
                     number_or_null(share[HARPE_TIME].uncertainty), "time_is_significant",
                     harpe_estimate_is_significant(share[HARPE_TIME]));
}

static json_t *show_saved(const harpe_perseus *self, const harpe_figures *figures) {
    harpe_estimate energy = {0, INFINITY}, time = {0, INFINITY};
    if (figures->has_savings) {
        energy = (harpe_estimate){figures->saved_energy_j, figures->saved_energy_uncertainty_j};
        time = (harpe_estimate){figures->lost_time_s, figures->lost_time_uncertainty_s};
    }
    return json_pack("{s:I,s:f,s:o,s:b,s:f,s:f,s:o,s:b,s:f,s:f,s:o}", "iterations",
                     (json_int_t)figures->iterations, "energy", energy.value, "energy_uncertainty",
                     number_or_null(energy.uncertainty), "energy_is_significant",
                     harpe_estimate_is_significant(energy), "energy_baseline",
                     figures->energy_baseline_j, "time", time.value, "time_uncertainty",
                     number_or_null(time.uncertainty), "time_is_significant",
                     harpe_estimate_is_significant(time), "time_baseline", figures->time_baseline_s,
                     "confidence", 0.95, "recent", show_recent(self));
}

/* ---- The frontier ---------------------------------------------------------------------------- */

static json_t *show_history(const harpe_perseus *self) {
    json_t *list = json_array();
    for (int64_t r = harpe_perseus_first_kept(self); r < self->round; r++)
        json_array_append_new(list, show_round(self, &self->history[r % HARPE_PERSEUS_HISTORY]));
    return list;
}

/* Returns the clock of this round of a sweep if all pipeline ranks try the same clock, and
 * otherwise 0. */
static int common_mhz(const harpe_explorer *explorer) {
    int common = 0;
    if (harpe_explorer_is_over(explorer)) return 0;
    for (int p = 0; p < explorer->pipeline->rank_count; p++) {
        const harpe_tried_clocks *clocks = &explorer->clocks[p];
        int mhz = explorer->position < clocks->count ? clocks->mhz[explorer->position] : 0;
        if (mhz == 0 || (p > 0 && mhz != common)) return 0;
        common = mhz;
    }
    return common;
}

static json_t *show_sweep(const harpe_explorer *explorer) {
    int mhz = common_mhz(explorer);
    harpe_online_mean extra = harpe_explorer_extra(explorer);
    return json_pack("{s:I,s:I,s:f,s:f,s:I,s:I,s:o}", "rounds", (json_int_t)explorer->cost.rounds,
                     "iterations", (json_int_t)explorer->cost.iterations, "extra_time",
                     extra.time_s, "extra_energy", extra.energy_j, "frequencies",
                     (json_int_t)explorer->clock_count, "done", (json_int_t)explorer->position,
                     "frequency", mhz > 0 ? json_integer(mhz) : json_null());
}

static json_t *show_exploration(const harpe_perseus *self) {
    const harpe_explorer *explorer = self->explorer;
    bool is_running = self->phase == HARPE_PERSEUS_EXPLORE || self->explores_next;
    bool answers_requests = explorer->is_exploring && explorer->looks == 0; /* in the next round */
    return json_pack(
        "{s:b,s:b,s:I,s:I,s:I,s:I,s:f,s:f}", "is_running", is_running, "answers_requests",
        answers_requests, "highest_rounds", (json_int_t)explorer->highest_rounds, "measured",
        (json_int_t)harpe_explorer_measured(explorer), "wanted", (json_int_t)explorer->wanted_count,
        "spoiled_rounds", (json_int_t)explorer->spoiled_rounds, "noise",
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
    harpe_figures figures;
    harpe_perseus_figures(self, &figures);
    json_t *json = json_pack("{s:s,s:I,s:o,s:o,s:o,s:o}", "phase", PHASES[self->phase], "round",
                             (json_int_t)self->round, "measured", show_history(self), "saved",
                             show_saved(self, &figures), "baseline", show_baseline(&figures),
                             "job_requests", show_requests(&self->requests));
    if (json && self->explorer) json_object_set_new(json, "sweep", show_sweep(self->explorer));
    if (json && self->explorer && !self->args.learns_by_sweep)
        json_object_set_new(json, "exploration", show_exploration(self));
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
            self->outside_energy_j + self->shift_energy_j, "job_request_outside",
            harpe_perseus_outside(self).time_s, harpe_perseus_outside(self).energy_j,
            "undisturbed_time", self->plans->undisturbed_s);
        json_object_update(json, plans);
        json_decref(plans);
    }
    char *made = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (!made) return harpe_fail_memory(error);
    *text = made;
    return HARPE_OK;
}

/* ---- A plan ---------------------------------------------------------------------------------- */

/* A plan laid out in time. Each array has a number for each instruction. */
typedef struct layout {
    const harpe_perseus *self;
    harpe_plan plan;
    harpe_arena arena;
    double *start_s, *duration_s, *energy_j;
    int *frequency_mhz;
} layout;

/* ---- Laying out ------------------------------------------------------------------------------ */

static harpe_status find_plan(const harpe_perseus *self, int64_t number, const harpe_plan **out,
                              harpe_error *error) {
    if (self->phase != HARPE_PERSEUS_PLAN || !self->plans)
        return harpe_fail(error, HARPE_NOT_FOUND,
                          "there is no plan yet, because the job still measures");
    if (number == HARPE_PIPELINE_ALL_MAXIMUM) {
        *out = &self->plans->all_maximum;
        return HARPE_OK;
    }
    size_t count = harpe_plan_set_count(self->plans->set);
    size_t index = number == HARPE_PIPELINE_RUNNING ? self->running : (size_t)number;
    if (number < HARPE_PIPELINE_ALL_MAXIMUM || index >= count)
        return harpe_fail(error, HARPE_NOT_FOUND,
                          "there is no plan %lld: the job has %zu plans, numbered from 0",
                          (long long)number, count);
    *out = harpe_plan_set_at(self->plans->set, index);
    return HARPE_OK;
}

/* Free `self->arena` in any case. */
static harpe_status make_layout(layout *self, int64_t number, harpe_error *error) {
    const harpe_plan *plan = NULL;
    const harpe_online_pipeline *pipeline = self->self->pipeline;
    harpe_status status = find_plan(self->self, number, &plan, error);
    if (status != HARPE_OK) return status;
    size_t count = pipeline->instruction_count;
    self->start_s = harpe_arena_alloc(&self->arena, count, sizeof *self->start_s);
    self->duration_s = harpe_arena_alloc(&self->arena, count, sizeof *self->duration_s);
    self->energy_j = harpe_arena_alloc(&self->arena, count, sizeof *self->energy_j);
    self->frequency_mhz = harpe_arena_alloc(&self->arena, count, sizeof *self->frequency_mhz);
    if (self->arena.has_failed) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        harpe_profile_point point;
        if (!harpe_explorer_point(self->self->explorer, pipeline->entry_of[i],
                                  plan->frequency_mhz[i], &point))
            return harpe_fail(error, HARPE_INTERNAL, "a plan runs '%.64s' at %d MHz, unmeasured",
                              pipeline->entries[pipeline->entry_of[i]].instruction,
                              plan->frequency_mhz[i]);
        self->duration_s[i] = point.time_s;
        self->energy_j[i] = point.energy_j;
        self->frequency_mhz[i] = point.frequency_mhz;
    }
    return harpe_plan_evaluate(self->self->plans->problem, self->frequency_mhz, &self->plan,
                               self->start_s, error);
}

/* ---- The critical path ----------------------------------------------------------------------- */

static double end_of(const layout *self, int32_t node) {
    return self->start_s[node] + self->duration_s[node];
}

static int32_t last_to_end(const layout *self) {
    int32_t last = 0;
    for (int32_t i = 1; i < self->self->plans->problem->instruction_count; i++)
        if (end_of(self, i) > end_of(self, last)) last = i;
    return last;
}

static int32_t waited_for_longest(const layout *self, int32_t node) {
    const harpe_dag *dag = &self->self->plans->problem->dag;
    int32_t latest = -1;
    for (int32_t a = dag->first_arc_into[node]; a < dag->first_arc_into[node + 1]; a++)
        if (latest < 0 || end_of(self, dag->arc_from[a]) > end_of(self, latest))
            latest = dag->arc_from[a];
    return latest;
}

/* Lists the instructions of a critical path in the order of time. The search begins at the end of
 * the path. */
static json_t *show_critical_path(layout *self) {
    int32_t first = self->self->plans->problem->instruction_count;
    int32_t *nodes = harpe_arena_alloc(&self->arena, (size_t)first, sizeof *nodes);
    if (!nodes) return NULL;
    size_t end = (size_t)first;
    for (int32_t node = last_to_end(self); node >= 0; node = waited_for_longest(self, node))
        nodes[--first] = node;
    json_t *path = json_array();
    for (size_t i = (size_t)first; i < end; i++)
        json_array_append_new(path, json_integer(nodes[i]));
    return path;
}

/* ---- Showing --------------------------------------------------------------------------------- */

/* Shows one pipeline rank as columns: a number for each instruction. */
static json_t *show_rank(const layout *self, int rank) {
    const harpe_online_pipeline *pipeline = self->self->pipeline;
    const harpe_action *actions = self->self->plans->problem->action_of;
    json_t *entry = json_array(), *microbatch = json_array(), *frequency = json_array();
    json_t *start = json_array(), *duration = json_array(), *power = json_array();
    for (size_t i = pipeline->rank_offset[rank]; i < pipeline->rank_offset[rank + 1]; i++) {
        json_array_append_new(entry, json_integer(pipeline->entry_of[i]));
        json_array_append_new(microbatch, json_integer(actions[i].microbatch));
        json_array_append_new(frequency, json_integer(self->frequency_mhz[i]));
        json_array_append_new(start, json_real(self->start_s[i]));
        json_array_append_new(duration, json_real(self->duration_s[i]));
        json_array_append_new(power, json_real(self->energy_j[i] / self->duration_s[i]));
    }
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "entry", entry, "microbatch", microbatch,
                     "frequency", frequency, "start", start, "duration", duration, "power", power);
}

/* Shows time and energy of each (stage, instruction) in one iteration of the plan, and in the last
 * round that ran the plan (null: not measured). */
static json_t *show_entries(layout *self, const harpe_perseus_seen *seen) {
    const harpe_online_pipeline *pipeline = self->self->pipeline;
    json_t *list = json_array();
    double *sums = harpe_arena_alloc(&self->arena, 2 * pipeline->entry_count, sizeof *sums);
    for (size_t i = 0; sums && i < pipeline->instruction_count; i++) {
        sums[2 * pipeline->entry_of[i]] += self->duration_s[i];
        sums[2 * pipeline->entry_of[i] + 1] += self->energy_j[i];
    }
    for (size_t e = 0; sums && e < pipeline->entry_count; e++) {
        const harpe_online_entry *entry = &pipeline->entries[e];
        const harpe_online_mean *mean = seen ? &self->self->explorer->seen[e] : NULL;
        double runs = (double)entry->run_count;
        json_t *measured = mean && mean->time_s > 0
                               ? json_pack("[f,f]", mean->time_s * runs, mean->energy_j * runs)
                               : json_null();
        json_array_append_new(list, json_pack("{s:i,s:i,s:s,s:I,s:[f,f],s:o}", "stage",
                                              entry->stage, "rank", entry->pipeline_rank,
                                              "instruction", entry->instruction, "runs",
                                              (json_int_t)entry->run_count, "predicted",
                                              sums[2 * e], sums[2 * e + 1], "measured", measured));
    }
    return list;
}

static json_t *show_layout(layout *self, const harpe_perseus_seen *seen) {
    json_t *ranks = json_array();
    for (int r = 0; r < self->self->pipeline->rank_count; r++)
        json_array_append_new(ranks, show_rank(self, r));
    return json_pack(
        "{s:f,s:f,s:f,s:o,s:o,s:o,s:o}", "time", self->plan.time_s, "energy", self->plan.energy_j,
        "blocking_power",
        self->self->blocking_power_w * harpe_explorer_gpus_per_stage(self->self->explorer),
        "measured_round", seen ? json_integer(seen->round) : json_null(), "entries",
        show_entries(self, seen), "ranks", ranks, "critical", show_critical_path(self));
}

harpe_status harpe_perseus_pipeline(const void *state, int64_t number, char **json,
                                    harpe_error *error) {
    const harpe_perseus *self = state;
    layout laid_out = {.self = self};
    harpe_status status = make_layout(&laid_out, number, error);
    size_t index = number >= 0 ? (size_t)number : self->running;
    bool was_run =
        self->seen.is_known && self->seen.plan == index && number != HARPE_PIPELINE_ALL_MAXIMUM;
    json_t *shown = NULL;
    if (status == HARPE_OK) shown = show_layout(&laid_out, was_run ? &self->seen : NULL);
    harpe_arena_free(&laid_out.arena);
    if (status != HARPE_OK) return status;
    char *text = shown ? json_dumps(shown, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(shown);
    if (!text) return harpe_fail_memory(error);
    *json = text;
    return HARPE_OK;
}
