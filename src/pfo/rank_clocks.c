/* SPDX-License-Identifier: Apache-2.0 */
/* The text of the clocks of a rank:
 *
 *     "clocks":{"latencies":[[mhz, median, 95th percentile], ...], "runs":[run, ...]}
 *
 * A run is null (not known), or a list of clocks, each followed by its share of the time. An empty
 * list means the clock of the schedule. */
#include "pfo/rank_clocks.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/text.h"

#define MHZ_MAX 1e5
#define LATENCY_MAX_S 1e3
#define SHARES_TOLERANCE 0.01 /* of the sum of a run's shares from 1, as they are written */

void harpe_rank_clocks_free(harpe_rank_clocks *clocks) {
    free(clocks->latencies);
    free(clocks->runs);
    *clocks = (harpe_rank_clocks){0};
}

void harpe_rank_clocks_free_list(harpe_rank_clocks *list, size_t count) {
    for (size_t i = 0; list && i < count; i++)
        harpe_rank_clocks_free(&list[i]);
    free(list);
}

/* ---- Reading --------------------------------------------------------------------------------- */

static bool read_mhz(const json_t *json, int *mhz) {
    double value = json_number_value(json);
    if (!(value >= 1 && value <= MHZ_MAX && value == floor(value))) return false;
    *mhz = (int)value;
    return true;
}

static bool read_number(const json_t *json, double most, double *out) {
    *out = json_number_value(json);
    return json_is_number(json) && *out >= 0 && *out <= most;
}

static bool read_latency(const json_t *json, harpe_clock_latency *out) {
    return json_array_size(json) == 3 && read_mhz(json_array_get(json, 0), &out->mhz) &&
           read_number(json_array_get(json, 1), LATENCY_MAX_S, &out->median_s) &&
           read_number(json_array_get(json, 2), LATENCY_MAX_S, &out->p95_s) &&
           out->p95_s >= out->median_s;
}

static bool read_latencies(const json_t *json, harpe_rank_clocks *out) {
    for (size_t i = 0; i < out->latency_count; i++) {
        if (!read_latency(json_array_get(json, i), &out->latencies[i])) return false;
        for (size_t k = 0; k < i; k++)
            if (out->latencies[k].mhz == out->latencies[i].mhz) return false;
    }
    return true;
}

/* Reads a run. Its shares are rounded, so they are divided by their sum. */
static bool read_run(const json_t *json, harpe_run_clocks *out) {
    size_t size = json_array_size(json);
    double sum = 0;
    *out = (harpe_run_clocks){.count = json_is_null(json) ? -1 : (int)(size / 2)};
    if (json_is_null(json) || (json_is_array(json) && size == 0)) return true;
    if (!json_is_array(json) || size % 2 != 0 || size > 2 * (size_t)HARPE_CLOCK_PARTS) return false;
    for (size_t i = 0; i < size / 2; i++) {
        harpe_clock_part *part = &out->parts[i];
        if (!read_mhz(json_array_get(json, 2 * i), &part->mhz) ||
            !read_number(json_array_get(json, 2 * i + 1), 1 + SHARES_TOLERANCE, &part->share))
            return false;
        sum += part->share;
    }
    if (fabs(sum - 1) > SHARES_TOLERANCE) return false;
    for (int i = 0; i < out->count; i++)
        out->parts[i].share /= sum;
    return true;
}

static bool read_runs(const json_t *json, harpe_rank_clocks *out) {
    for (size_t i = 0; i < out->run_count; i++)
        if (!read_run(json_array_get(json, i), &out->runs[i])) return false;
    return true;
}

/* Returns false if memory runs out. Wrong clocks are not known. */
static bool read_object(const json_t *json, size_t runs_max, harpe_rank_clocks *out) {
    static const harpe_run_clocks unknown = {.count = -1};
    const json_t *latencies = json_object_get(json, "latencies");
    const json_t *runs = json_object_get(json, "runs");
    bool has_room = json_array_size(runs) <= runs_max;
    harpe_rank_clocks made = {.is_known = true,
                              .latency_count = json_array_size(latencies),
                              .run_count = has_room ? json_array_size(runs) : 1};
    if (!json_is_array(latencies) || !json_is_array(runs) ||
        made.latency_count > HARPE_CLOCK_LATENCIES)
        return true;
    made.latencies = harpe_calloc(made.latency_count, sizeof *made.latencies);
    made.runs = harpe_calloc(made.run_count, sizeof *made.runs);
    bool has_memory = made.latencies && made.runs;
    if (has_memory && !has_room) made.runs[0] = unknown;
    if (has_memory && read_latencies(latencies, &made) && (!has_room || read_runs(runs, &made)))
        *out = made;
    else
        harpe_rank_clocks_free(&made);
    return has_memory;
}

bool harpe_rank_clocks_read(const char *text, size_t length, size_t runs_max,
                            harpe_rank_clocks *out) {
    static const char name[] = "\"clocks\"";
    *out = (harpe_rank_clocks){0};
    if (!memmem(text, length, name, sizeof name - 1)) return true;
    json_t *json = json_loadb(text, length, 0, NULL);
    bool has_memory = read_object(json_object_get(json, "clocks"), runs_max, out);
    json_decref(json);
    return has_memory;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void write_run(harpe_text *text, const harpe_run_clocks *run) {
    if (run->count < 0) {
        harpe_text_append(text, "null", 4);
        return;
    }
    harpe_text_append(text, "[", 1);
    for (int i = 0; i < run->count; i++)
        harpe_text_printf(text, "%s%d,%.4f", i > 0 ? "," : "", run->parts[i].mhz,
                          run->parts[i].share);
    harpe_text_append(text, "]", 1);
}

harpe_status harpe_rank_clocks_append(const harpe_rank_clocks *clocks, char **json,
                                      harpe_error *error) {
    harpe_text text = {0};
    harpe_text_append(&text, *json, strlen(*json) - 1); /* without the brace at its end */
    harpe_text_printf(&text, ",\"clocks\":{\"latencies\":[");
    for (size_t i = 0; i < clocks->latency_count; i++) {
        const harpe_clock_latency *one = &clocks->latencies[i];
        harpe_text_printf(&text, "%s[%d,%.6f,%.6f]", i > 0 ? "," : "", one->mhz, one->median_s,
                          one->p95_s);
    }
    harpe_text_printf(&text, "],\"runs\":[");
    for (size_t i = 0; i < clocks->run_count; i++) {
        if (i > 0) harpe_text_append(&text, ",", 1);
        write_run(&text, &clocks->runs[i]);
    }
    harpe_text_append(&text, "]}}", 3);
    char *longer = harpe_text_take(&text);
    if (!longer) return harpe_fail_memory(error);
    free(*json);
    *json = longer;
    return HARPE_OK;
}
