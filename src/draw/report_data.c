/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the data for the page's script as JSON. Texts are escaped, so that they cannot end the
 * script element. The size is limited for every input: a plan contains only its differences from
 * the plan before it, and if there are too many points or plans, some are left out. web/report/
 * reads the data. */
#include "draw/report_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "draw/axis.h"
#include "draw/report_savings.h"

#define PLANS_MAX 2000
#define VERTICES_MAX 1000
#define INSTRUCTIONS_MAX 20000 /* with more, the page shows only a picture */
#define CHANGES_SIZE_MAX 1000000

static void put(harpe_text *out, const char *text) { harpe_text_append(out, text, strlen(text)); }

/* Writes a comma before every element except the first. */
static void put_comma(harpe_text *out, bool is_first) {
    if (!is_first) put(out, ",");
}

/* Writes numbers as [a,b,...]. */
static void put_numbers(harpe_text *out, const double *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        put(out, i == 0 ? "[" : ",");
        harpe_text_number(out, numbers[i]);
    }
    put(out, "]");
}

/* Writes a string in quotes. '<' is escaped, because "</script" would end the script element. */
static void put_string(harpe_text *out, const char *text) {
    size_t size = strlen(text) + 4;
    char *clean = harpe_calloc(size, 1);
    if (!clean) {
        out->failed = true;
        return;
    }
    put(out, "\"");
    for (const char *at = harpe_clean_text(clean, size, text); *at; at++)
        if (*at == '"' || *at == '\\' || *at == '<')
            harpe_text_printf(out, "\\u%04x", (unsigned)*at);
        else
            harpe_text_append(out, at, 1);
    put(out, "\"");
    free(clean);
}

/* ---- Plans ----------------------------------------------------------------------------------- */

/* The indices of the plans on the page, fastest first, and whether each is in a headline. */
typedef struct plan_list {
    size_t *index;
    bool *is_headline;
    size_t count;
} plan_list;

static void free_list(plan_list *list) {
    free(list->index);
    free(list->is_headline);
}

static harpe_status choose_plans(const harpe_report *report, plan_list *out, harpe_error *error) {
    double reference_s = report->has_reference ? report->reference.time_s : report->plans[0].time_s;
    const size_t headlines[] = {0, report->plan_count - 1,
                                harpe_report_best_within(report, reference_s),
                                harpe_report_best_within(report, reference_s * 1.05),
                                harpe_report_best_within(report, INFINITY)};
    const size_t headline_count = sizeof headlines / sizeof headlines[0];
    size_t step = (report->plan_count + PLANS_MAX - 1) / PLANS_MAX;
    plan_list list = {0};
    list.index = harpe_calloc(report->plan_count, sizeof *list.index);
    list.is_headline = harpe_calloc(report->plan_count, sizeof *list.is_headline);
    if (!list.index || !list.is_headline) {
        free_list(&list);
        return harpe_fail_memory(error);
    }
    for (size_t i = 0; i < report->plan_count; i++) {
        bool is_headline = false;
        for (size_t k = 0; k < headline_count; k++)
            is_headline |= headlines[k] == i;
        if (!is_headline && i % step != 0) continue;
        list.index[list.count] = i;
        list.is_headline[list.count++] = is_headline;
    }
    *out = list;
    return HARPE_OK;
}

static void put_plans(const harpe_report *report, const plan_list *list, harpe_text *out) {
    put(out, ",\n\"plans\":[");
    for (size_t k = 0; k < list->count; k++) {
        const harpe_report_plan *plan = &report->plans[list->index[k]];
        put_comma(out, k == 0);
        put_numbers(out,
                    (double[]){plan->number, plan->time_s, plan->energy_j, plan->lower_bound_j,
                               plan->peak_power_w, plan->swing_w},
                    6);
    }
    put(out, "]");
}

static void put_one_clock(const harpe_report *report, harpe_text *out) {
    put(out, ",\n\"one_clock\":[");
    for (size_t i = 0; i < report->one_clock_count; i++) {
        const harpe_report_point *point = &report->one_clock[i];
        put_comma(out, i == 0);
        put_numbers(out, (double[]){point->frequency_mhz, point->time_s, point->energy_j}, 3);
    }
    put(out, "]");
}

static void put_bound(const harpe_report *report, harpe_text *out) {
    size_t step = (report->bound_count + VERTICES_MAX - 1) / VERTICES_MAX;
    put(out, ",\n\"bound\":[");
    for (size_t i = 0; i < report->bound_count; i++) {
        if (i % step != 0 && i + 1 != report->bound_count) continue;
        put_comma(out, i == 0);
        put_numbers(out, (double[]){report->bound[i].time_s, report->bound[i].energy_j}, 2);
    }
    put(out, "]");
}

/* ---- Timeline -------------------------------------------------------------------------------- */

static bool is_entry_usable(const harpe_report_entry *entry) {
    for (size_t i = 0; i < entry->point_count; i++)
        if (!harpe_is_drawable(entry->points[i].time_s) || entry->points[i].time_s <= 0.0 ||
            !harpe_is_drawable(entry->points[i].energy_j))
            return false;
    return entry->point_count > 0 && entry->instruction;
}

static bool is_instruction_usable(const harpe_report_timeline *timeline, size_t i) {
    const harpe_report_instruction *instruction = &timeline->instructions[i];
    for (size_t k = 0; k < instruction->wait_count; k++) {
        int32_t from = instruction->waits_for[k];
        if (from < 0 || (size_t)from >= timeline->instruction_count) return false;
    }
    return instruction->entry < timeline->entry_count;
}

static bool are_ranks_usable(const harpe_report_timeline *timeline) {
    if (timeline->rank_count < 1 || timeline->rank_offset[0] != 0) return false;
    for (int r = 0; r < timeline->rank_count; r++)
        if (timeline->rank_offset[r] > timeline->rank_offset[r + 1]) return false;
    return timeline->rank_offset[timeline->rank_count] == timeline->instruction_count;
}

harpe_status harpe_report_check_timeline(const harpe_report_timeline *timeline,
                                         harpe_error *error) {
    if (!are_ranks_usable(timeline)) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "report: the timeline's ranks do not hold its instructions");
    }
    for (size_t i = 0; i < timeline->entry_count; i++) {
        if (!is_entry_usable(&timeline->entries[i])) {
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "report: entry %zu of the timeline has no usable points", i);
        }
    }
    for (size_t i = 0; i < timeline->instruction_count; i++) {
        if (!is_instruction_usable(timeline, i)) {
            return harpe_fail(
                error, HARPE_INVALID_ARGUMENT,
                "report: instruction %zu of the timeline refers to an entry that does not exist",
                i);
        }
    }
    return HARPE_OK;
}

static void put_entries(const harpe_report_timeline *timeline, harpe_text *out) {
    put(out, "\"entries\":[");
    for (size_t i = 0; i < timeline->entry_count; i++) {
        const harpe_report_entry *entry = &timeline->entries[i];
        put_comma(out, i == 0);
        harpe_text_printf(out, "{\"stage\":%d,\"instruction\":", entry->stage);
        put_string(out, entry->instruction);
        if (entry->gpu_count > 1) harpe_text_printf(out, ",\"gpus\":%d", entry->gpu_count);
        put(out, ",\"points\":[");
        for (size_t k = 0; k < entry->point_count; k++) {
            const harpe_report_point *point = &entry->points[k];
            put_comma(out, k == 0);
            put_numbers(out, (double[]){point->frequency_mhz, point->time_s, point->energy_j}, 3);
        }
        put(out, "]}\n");
    }
    put(out, "]");
}

static void put_ranks(const harpe_report_timeline *timeline, harpe_text *out) {
    put(out, ",\n\"ranks\":[");
    for (int r = 0; r < timeline->rank_count; r++) {
        size_t first = timeline->rank_offset[r];
        size_t end = timeline->rank_offset[r + 1];
        put_comma(out, r == 0);
        put(out, "{\"entry\":[");
        for (size_t i = first; i < end; i++) {
            put_comma(out, i == first);
            harpe_text_printf(out, "%zu", timeline->instructions[i].entry);
        }
        put(out, "],\"microbatch\":[");
        for (size_t i = first; i < end; i++) {
            put_comma(out, i == first);
            harpe_text_printf(out, "%d", timeline->instructions[i].microbatch);
        }
        put(out, "]}\n");
    }
    put(out, "]");
}

/* Writes the instructions that wait for other instructions. The instruction before it on the same
 * rank does not count as another instruction. Each wait is a pair of numbers: the distance from the
 * previous waiting instruction to this one, and the index of the instruction for which it waits. */
static void put_waits(const harpe_report_timeline *timeline, harpe_text *out) {
    size_t last = 0;
    bool is_first = true;
    int rank = 0;
    put(out, ",\n\"waits\":[");
    for (size_t i = 0; i < timeline->instruction_count; i++) {
        const harpe_report_instruction *instruction = &timeline->instructions[i];
        while (timeline->rank_offset[rank + 1] <= i)
            rank++;
        bool has_one_before = i > timeline->rank_offset[rank];
        for (size_t k = 0; k < instruction->wait_count; k++) {
            size_t from = (size_t)instruction->waits_for[k];
            if (has_one_before && from == i - 1) continue;
            put_comma(out, is_first);
            harpe_text_printf(out, "%zu,%zu", i - last, from);
            is_first = false;
            last = i;
        }
    }
    put(out, "]");
}

/* Writes the instructions that have a lag. Each lag is a pair of numbers: the distance from the
 * previous instruction with a lag, and the lag. */
static void put_lags(const harpe_report_timeline *timeline, harpe_text *out) {
    size_t last = 0;
    bool is_first = true;
    for (size_t i = 0; i < timeline->instruction_count; i++) {
        double lag_s = timeline->instructions[i].lag_s;
        if (!(lag_s > 0)) continue;
        put(out, is_first ? ",\n\"lags\":[" : ",");
        harpe_text_printf(out, "%zu,", i - last);
        harpe_text_number(out, lag_s);
        is_first = false;
        last = i;
    }
    if (!is_first) put(out, "]");
}

static size_t point_of(const harpe_report_timeline *timeline, size_t instruction, int mhz) {
    const harpe_report_entry *entry = &timeline->entries[timeline->instructions[instruction].entry];
    for (size_t i = 0; i < entry->point_count; i++)
        if (entry->points[i].frequency_mhz == mhz) return i;
    return 0; /* the frequency is not among the points */
}

/* Writes a plan as differences from `before`, the plan written before. If `before` is NULL, writes
 * the differences from the highest frequencies. Each difference is a pair of numbers: the distance
 * from the previous changed instruction to this one, and the index of its new point. */
static void put_changes(const harpe_report_timeline *timeline, const int *before, const int *now,
                        harpe_text *out) {
    size_t last = 0;
    bool is_first = true;
    put(out, "[");
    for (size_t i = 0; i < timeline->instruction_count; i++) {
        if (before && before[i] == now[i]) continue;
        size_t point = point_of(timeline, i, now[i]);
        if (!before && point == 0) continue;
        put_comma(out, is_first);
        harpe_text_printf(out, "%zu,%zu", i - last, point);
        is_first = false;
        last = i;
    }
    put(out, "]");
}

/* Writes the plans of the page: the headline plans and every `step`-th plan, and null for the
 * others. Stops early if the text becomes too long. */
static void put_all_changes(const harpe_report *report, const plan_list *list, size_t step,
                            harpe_text *out) {
    const int *before = NULL;
    for (size_t k = 0; k < list->count && out->length <= CHANGES_SIZE_MAX; k++) {
        const int *now = report->plans[list->index[k]].frequency_mhz;
        put_comma(out, k == 0);
        if (now && (list->is_headline[k] || k % step == 0)) {
            put_changes(report->timeline, before, now, out);
            before = now;
        } else {
            put(out, "null");
        }
    }
}

static void put_timeline(const harpe_report *report, const plan_list *list, harpe_text *out) {
    const harpe_report_timeline *timeline = report->timeline;
    put(out, ",\n\"timeline\":{");
    put_entries(timeline, out);
    put_ranks(timeline, out);
    put_waits(timeline, out);
    put_lags(timeline, out);
    harpe_text changes = {0};
    for (size_t step = 1; step <= 2 * PLANS_MAX; step *= 2) {
        changes.length = 0;
        put_all_changes(report, list, step, &changes);
        if (changes.length <= CHANGES_SIZE_MAX) break;
    }
    put(out, ",\n\"plans\":[");
    harpe_text_append(out, changes.data, changes.length);
    put(out, "]}");
    out->failed |= changes.failed;
    harpe_text_free(&changes);
}

static bool has_timeline(const harpe_report *report) {
    const harpe_report_timeline *timeline = report->timeline;
    return timeline && report->pipeline_count > 0 &&
           timeline->instruction_count <= INSTRUCTIONS_MAX && report->plans[0].frequency_mhz;
}

harpe_status harpe_report_put_data(const harpe_report *report, harpe_text *out,
                                   harpe_error *error) {
    plan_list list = {0};
    harpe_status status = choose_plans(report, &list, error);
    if (status != HARPE_OK) return status;
    put(out, "<script type=\"application/json\" id=\"data\">{\"directory\":");
    put_string(out, report->directory ? report->directory : ".");
    if (report->is_of_graph) put(out, ",\"graph\":true");
    if (report->has_reference) {
        put(out, ",\"reference\":");
        put_numbers(out, (double[]){report->reference.time_s, report->reference.energy_j}, 2);
    }
    if (report->plans[0].overhead_energy_j > 0) put(out, ",\n\"has_overhead\":true");
    put_plans(report, &list, out);
    put_one_clock(report, out);
    put_bound(report, out);
    if (has_timeline(report)) put_timeline(report, &list, out);
    put(out, "}</script>\n");
    free_list(&list);
    return HARPE_OK;
}
