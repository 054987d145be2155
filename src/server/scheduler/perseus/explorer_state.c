/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads an exploration as JSON, so that a server that was killed continues with the same
 * round. The data is checked even though an earlier server wrote it. */
#include "server/scheduler/perseus/explorer_state.h"

#include <limits.h>
#include <math.h>

/* ---- Saving ---------------------------------------------------------------------------------- */

/* Writes [[clock, weight, time, energy], ...] of the observed clocks. */
static json_t *save_curve(const harpe_clock_curve *curve) {
    json_t *list = json_array();
    for (size_t c = 0; c < curve->count; c++) {
        const harpe_clock_point *point = &curve->points[c];
        if (point->weight > 0)
            json_array_append_new(list, json_pack("[i,f,f,f]", curve->mhz[c], point->weight,
                                                  point->time_s, point->energy_j));
    }
    return list;
}

static json_t *save_clocks(const harpe_explorer *explorer, const int *mhz) {
    json_t *list = json_array();
    for (size_t i = 0; i < explorer->pipeline->instruction_count; i++)
        json_array_append_new(list, json_integer(mhz[i]));
    return list;
}

json_t *harpe_explorer_save(const harpe_explorer *explorer) {
    json_t *curves = json_array();
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++)
        json_array_append_new(curves, save_curve(&explorer->curves[e]));
    return json_pack("{s:o,s:o,s:o,s:[I,I],s:[f,f],s:[I,I,I,i,i],s:[f,f,f],s:b,s:[i,f,i]}",
                     "curves", curves, "clocks", save_clocks(explorer, explorer->frequency_mhz),
                     "next", save_clocks(explorer, explorer->next_mhz), "stale",
                     (json_int_t)explorer->measured_before, (json_int_t)explorer->stale_rounds,
                     "noise", explorer->noise.squares, explorer->noise.freedom, "rounds",
                     (json_int_t)explorer->rounds, (json_int_t)explorer->highest_rounds,
                     (json_int_t)explorer->spoiled_rounds, explorer->surprises, explorer->restarts,
                     "times", explorer->promised_s, explorer->next_promised_s, explorer->fastest_s,
                     "is_exploring", explorer->is_exploring, "straggler", explorer->looks,
                     explorer->undisturbed_s, explorer->straggler_rounds);
}

/* ---- Loading --------------------------------------------------------------------------------- */

static bool load_numbers(const json_t *saved, double *numbers, size_t count) {
    if (json_array_size(saved) != count) return false;
    for (size_t i = 0; i < count; i++) {
        numbers[i] = json_number_value(json_array_get(saved, i));
        if (!(numbers[i] >= 0 && numbers[i] < 1e15)) return false;
    }
    return true;
}

static size_t index_of(const harpe_clock_curve *curve, double mhz) {
    size_t c = 0;
    while (c < curve->count && curve->mhz[c] != mhz)
        c++;
    return c;
}

static bool load_curve(harpe_clock_curve *curve, const json_t *saved) {
    if (!json_is_array(saved)) return false;
    for (size_t i = 0; i < json_array_size(saved); i++) {
        double n[4];
        if (!load_numbers(json_array_get(saved, i), n, 4)) return false;
        size_t c = index_of(curve, n[0]);
        if (c == curve->count || !(n[1] > 0 && n[2] > 0 && n[3] > 0)) return false;
        curve->points[c] = (harpe_clock_point){n[1], n[2], n[3]};
    }
    return true;
}

static bool load_clocks(const harpe_explorer *explorer, int *mhz, const json_t *saved) {
    const harpe_online_pipeline *pipeline = explorer->pipeline;
    if (json_array_size(saved) != pipeline->instruction_count) return false;
    for (size_t i = 0; i < pipeline->instruction_count; i++) {
        const harpe_clock_curve *curve = &explorer->curves[pipeline->entry_of[i]];
        double clock = json_number_value(json_array_get(saved, i));
        if (index_of(curve, clock) == curve->count) return false;
        mhz[i] = (int)clock;
    }
    return true;
}

bool harpe_explorer_load(harpe_explorer *explorer, const json_t *saved) {
    double noise[2], rounds[5], times[3], stale[2] = {0, 0}, straggler[3] = {0, 0, 0};
    /* Older servers do not write these two. */
    const json_t *saved_stale = json_object_get(saved, "stale");
    const json_t *saved_straggler = json_object_get(saved, "straggler");
    const json_t *curves = json_object_get(saved, "curves");
    if (json_array_size(curves) != explorer->pipeline->entry_count ||
        !load_clocks(explorer, explorer->frequency_mhz, json_object_get(saved, "clocks")) ||
        !load_clocks(explorer, explorer->next_mhz, json_object_get(saved, "next")) ||
        !load_numbers(json_object_get(saved, "noise"), noise, 2) ||
        !load_numbers(json_object_get(saved, "rounds"), rounds, 5) ||
        !load_numbers(json_object_get(saved, "times"), times, 3) ||
        (saved_stale && !load_numbers(saved_stale, stale, 2)) ||
        (saved_straggler && !load_numbers(saved_straggler, straggler, 3)))
        return false;
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++)
        if (!load_curve(&explorer->curves[e], json_array_get(curves, e))) return false;
    explorer->noise = (harpe_explorer_noise){noise[0], noise[1]};
    explorer->rounds = (size_t)rounds[0];
    explorer->highest_rounds = (size_t)rounds[1];
    explorer->spoiled_rounds = (size_t)rounds[2];
    explorer->surprises = (int)fmin(rounds[3], 1000);
    explorer->restarts = (int)fmin(rounds[4], 1000);
    explorer->promised_s = times[0];
    explorer->next_promised_s = times[1];
    explorer->fastest_s = times[2];
    explorer->measured_before = (size_t)stale[0];
    explorer->stale_rounds = (size_t)stale[1];
    explorer->looks = (int)fmin(straggler[0], 2);
    explorer->undisturbed_s = straggler[1];
    explorer->straggler_rounds = (int)fmin(straggler[2], INT_MAX);
    explorer->is_exploring = json_is_true(json_object_get(saved, "is_exploring"));
    return true;
}
