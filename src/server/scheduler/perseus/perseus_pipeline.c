/* SPDX-License-Identifier: Apache-2.0 */
/* Shows one plan of an online job as a pipeline: start, duration, clock and power of every
 * instruction, and one critical path. Also shows the measurements of each (stage, instruction) from
 * the last round that ran the plan. This file changes no state. */
#include "server/scheduler/perseus/perseus_pipeline.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/problem.h"

/* A plan laid out in time. Each array has a number for each instruction. */
typedef struct layout {
    const harpe_perseus *self;
    harpe_plan plan;
    double *start_s, *duration_s, *energy_j;
    int *frequency_mhz;
} layout;

/* ---- Laying out ------------------------------------------------------------------------------ */

static void free_layout(layout *self) {
    free(self->start_s);
    free(self->frequency_mhz);
}

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

static harpe_status fill_layout(layout *self, const int *frequency_mhz, harpe_error *error) {
    const harpe_online_pipeline *pipeline = self->self->pipeline;
    for (size_t i = 0; i < pipeline->instruction_count; i++) {
        harpe_profile_point point;
        if (!harpe_sweep_point(self->self->sweep, pipeline->entry_of[i], frequency_mhz[i], &point))
            return harpe_fail(error, HARPE_INTERNAL, "a plan runs '%.64s' at %d MHz, unmeasured",
                              pipeline->entries[pipeline->entry_of[i]].instruction,
                              frequency_mhz[i]);
        self->duration_s[i] = point.time_s;
        self->energy_j[i] = point.energy_j;
        self->frequency_mhz[i] = point.frequency_mhz;
    }
    return harpe_plan_evaluate(self->self->plans->problem, self->frequency_mhz, &self->plan,
                               self->start_s, error);
}

static harpe_status make_layout(const harpe_perseus *self, int64_t number, layout *out,
                                harpe_error *error) {
    const harpe_plan *plan = NULL;
    harpe_status status = find_plan(self, number, &plan, error);
    if (status != HARPE_OK) return status;
    size_t count = self->pipeline->instruction_count;
    layout made = {.self = self};
    made.start_s = harpe_calloc(3 * count, sizeof *made.start_s);
    made.frequency_mhz = harpe_calloc(count, sizeof *made.frequency_mhz);
    if (made.start_s && made.frequency_mhz) {
        made.duration_s = made.start_s + count;
        made.energy_j = made.duration_s + count;
        status = fill_layout(&made, plan->frequency_mhz, error);
    } else {
        status = harpe_fail_memory(error);
    }
    if (status != HARPE_OK) {
        free_layout(&made);
        return status;
    }
    *out = made;
    return HARPE_OK;
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
static json_t *show_critical_path(const layout *self) {
    int32_t first = self->self->plans->problem->instruction_count;
    int32_t *nodes = harpe_calloc((size_t)first, sizeof *nodes);
    if (!nodes) return NULL;
    size_t end = (size_t)first;
    for (int32_t node = last_to_end(self); node >= 0; node = waited_for_longest(self, node))
        nodes[--first] = node;
    json_t *path = json_array();
    for (size_t i = (size_t)first; i < end; i++)
        json_array_append_new(path, json_integer(nodes[i]));
    free(nodes);
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
static json_t *show_entries(const layout *self, const harpe_perseus_seen *seen) {
    const harpe_online_pipeline *pipeline = self->self->pipeline;
    json_t *list = json_array();
    double *sums = harpe_calloc(2 * pipeline->entry_count, sizeof *sums);
    for (size_t i = 0; sums && i < pipeline->instruction_count; i++) {
        sums[2 * pipeline->entry_of[i]] += self->duration_s[i];
        sums[2 * pipeline->entry_of[i] + 1] += self->energy_j[i];
    }
    for (size_t e = 0; sums && e < pipeline->entry_count; e++) {
        const harpe_online_entry *entry = &pipeline->entries[e];
        const harpe_online_mean *mean = seen ? &seen->entries[e] : NULL;
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
    free(sums);
    return list;
}

static json_t *show(const layout *self, const harpe_perseus_seen *seen) {
    json_t *ranks = json_array();
    for (int r = 0; r < self->self->pipeline->rank_count; r++)
        json_array_append_new(ranks, show_rank(self, r));
    return json_pack(
        "{s:f,s:f,s:f,s:o,s:o,s:o,s:o}", "time", self->plan.time_s, "energy", self->plan.energy_j,
        "blocking_power", self->self->blocking_power_w * harpe_perseus_gpus_per_stage(self->self),
        "measured_round", seen ? json_integer(seen->round) : json_null(), "entries",
        show_entries(self, seen), "ranks", ranks, "critical", show_critical_path(self));
}

harpe_status harpe_perseus_pipeline(const void *state, int64_t number, char **json,
                                    harpe_error *error) {
    const harpe_perseus *self = state;
    layout laid_out;
    harpe_status status = make_layout(self, number, &laid_out, error);
    if (status != HARPE_OK) return status;
    size_t index = number >= 0 ? (size_t)number : self->running;
    bool was_run =
        self->seen.entries && self->seen.plan == index && number != HARPE_PIPELINE_ALL_MAXIMUM;
    json_t *shown = show(&laid_out, was_run ? &self->seen : NULL);
    free_layout(&laid_out);
    char *text = shown ? json_dumps(shown, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(shown);
    if (!text) return harpe_fail_memory(error);
    *json = text;
    return HARPE_OK;
}

/* ---- What was seen --------------------------------------------------------------------------- */

void harpe_perseus_see(harpe_perseus *self, const harpe_online_round *round) {
    size_t count = self->pipeline->entry_count;
    harpe_perseus_seen *seen = &self->seen;
    if (!seen->entries) seen->entries = harpe_calloc(count, sizeof *seen->entries);
    if (!seen->entries) return; /* there was no memory; the entries are not shown */
    memcpy(seen->entries, round->entries, count * sizeof *seen->entries);
    seen->round = self->round - 1;
    seen->plan = self->running;
}

void harpe_perseus_forget_seen(harpe_perseus *self) {
    free(self->seen.entries);
    self->seen = (harpe_perseus_seen){0};
}
