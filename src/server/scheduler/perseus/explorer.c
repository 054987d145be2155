/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the curves of all instructions, and takes the results of rounds into them. A round that was
 * slower or noisier than it should be has little weight. explorer_plan.c makes the rounds. */
#include "server/scheduler/perseus/explorer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "server/scheduler/stored.h"

/* The number of runs for which a point of a sweep counts. */
#define SEED_WEIGHT 16.0
/* Before any round shows the noise: an assumption. */
#define USUAL_NOISE 0.01
/* Each observation of the noise counts as at most so many values. */
#define NOISE_FREEDOM_MAX 2000.0
/* A value outside of its bounds by this share (HARPE_CLOCK_BREAK_SHARE at a new clock), or by this
 * number of standard errors, does not belong to the clock that the instruction should have had. */
#define DOUBT_SHARE 0.02
#define DOUBT_ERRORS 5.0
#define DOUBT_WEIGHT 0.02
/* A round whose times scatter by this factor more than usual is a burst of jitter. */
#define BURST_FACTOR 3.0
/* The usual deviation counts as at least this share there. On GPUs that change their clocks late,
 * no run is known better, because latencies vary: an assumption. */
#define USUAL_NOISE_MIN 0.002
/* A GPU has become slower or faster if its time at the highest clock has changed by this number of
 * standard errors. */
#define LOOK_ERRORS 2.0
/* A round that takes this share longer than promised is spoiled. */
#define SURPRISE_SHARE 0.01
#define SURPRISE_ERRORS 4.0
#define SPOILED_WEIGHT 0.05

/* ---- Making it ------------------------------------------------------------------------------- */

void harpe_explorer_run_highest(harpe_explorer *explorer) {
    const harpe_online_pipeline *pipeline = explorer->pipeline;
    for (size_t i = 0; i < pipeline->instruction_count; i++)
        explorer->next_mhz[i] = harpe_sweep_highest_mhz(
            explorer->sweep, pipeline->entries[pipeline->entry_of[i]].pipeline_rank);
    explorer->next_promised_s = explorer->fastest_s;
}

void harpe_explorer_begin_round(harpe_explorer *explorer) {
    memcpy(explorer->frequency_mhz, explorer->next_mhz,
           explorer->pipeline->instruction_count * sizeof *explorer->frequency_mhz);
    explorer->promised_s = explorer->next_promised_s;
}

harpe_status harpe_explorer_new(const harpe_online_pipeline *pipeline, harpe_sweep *sweep,
                                const harpe_online_latencies *latencies, harpe_explorer **out,
                                harpe_error *error) {
    harpe_explorer *explorer = harpe_calloc(1, sizeof *explorer);
    if (!explorer) return harpe_fail_memory(error);
    explorer->pipeline = pipeline;
    explorer->sweep = sweep;
    explorer->latencies = latencies;
    explorer->curves = harpe_calloc(pipeline->entry_count, sizeof *explorer->curves);
    explorer->frequency_mhz =
        harpe_calloc(pipeline->instruction_count, sizeof *explorer->frequency_mhz);
    explorer->next_mhz = harpe_calloc(pipeline->instruction_count, sizeof *explorer->next_mhz);
    bool is_made = explorer->curves && explorer->frequency_mhz && explorer->next_mhz;
    for (size_t e = 0; is_made && e < pipeline->entry_count; e++) {
        const harpe_sweep_clocks *clocks = &sweep->clocks[pipeline->entries[e].pipeline_rank];
        is_made = harpe_clock_curve_init(&explorer->curves[e], clocks->mhz, clocks->count);
    }
    if (!is_made) {
        harpe_explorer_free(explorer);
        return harpe_fail_memory(error);
    }
    harpe_explorer_run_highest(explorer);
    harpe_explorer_begin_round(explorer);
    *out = explorer;
    return HARPE_OK;
}

void harpe_explorer_seed(harpe_explorer *explorer) {
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++) {
        harpe_clock_curve *curve = &explorer->curves[e];
        const harpe_sweep_list *list = &explorer->sweep->lists[e];
        for (size_t i = 0; i < list->count; i++) {
            harpe_clock_share share = {harpe_clock_curve_find(curve, list->points[i].frequency_mhz),
                                       1};
            if (share.clock < curve->count)
                harpe_clock_curve_observe(curve, &share, 1, list->points[i].time_s,
                                          list->points[i].energy_j, SEED_WEIGHT, 0);
        }
    }
    explorer->is_exploring = true;
}

void harpe_explorer_restart(harpe_explorer *explorer) {
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++)
        harpe_clock_curve_forget(&explorer->curves[e]);
    explorer->noise = (harpe_explorer_noise){0};
    explorer->rounds = explorer->highest_rounds = 0;
    explorer->surprises = 0;
    explorer->measured_before = explorer->stale_rounds = 0;
    explorer->restarts++;
    explorer->fastest_s = 0;
    explorer->is_exploring = false;
    harpe_explorer_run_highest(explorer);
}

void harpe_explorer_free(harpe_explorer *explorer) {
    if (!explorer) return;
    for (size_t e = 0; explorer->curves && e < explorer->pipeline->entry_count; e++)
        harpe_clock_curve_free(&explorer->curves[e]);
    free(explorer->curves);
    free(explorer->frequency_mhz);
    free(explorer->next_mhz);
    free(explorer);
}

/* ---- Noise ----------------------------------------------------------------------------------- */

double harpe_explorer_noise_of(const harpe_explorer *explorer) {
    const harpe_explorer_noise *noise = &explorer->noise;
    double own = noise->freedom > 0 ? sqrt(noise->squares / noise->freedom) : USUAL_NOISE;
    return harpe_online_latencies_are_late(explorer->latencies) ? fmax(own, USUAL_NOISE_MIN) : own;
}

/* Computes the relative deviation of a run in this round. Returns 0 if it is not known. */
static double noise_of_round(const harpe_online_clock_runs *runs, size_t count, double *freedom) {
    double squares = 0;
    *freedom = 0;
    for (size_t k = 0; k < count; k++) {
        if (runs[k].iteration_count < 2 || !(runs[k].mean.time_s > 0)) continue;
        if (runs[k].frequency_mhz < 0) continue; /* several clocks, whose shares vary */
        double own = (double)runs[k].iteration_count - 1;
        squares += own * runs[k].spread * runs[k].spread;
        *freedom += own;
    }
    return *freedom > 0 ? sqrt(squares / *freedom) : 0;
}

static void learn_noise(harpe_explorer_noise *noise, double own, double freedom) {
    noise->squares += freedom * own * own;
    noise->freedom += freedom;
    if (noise->freedom <= NOISE_FREEDOM_MAX) return;
    noise->squares *= NOISE_FREEDOM_MAX / noise->freedom;
    noise->freedom = NOISE_FREEDOM_MAX;
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

/* Returns the weight of the whole round, 0 to 1. */
static double weight_of_round(harpe_explorer *explorer, const harpe_online_round *round,
                              double own_noise, const harpe_explorer_terms *terms) {
    double weight = 1, usual = fmax(harpe_explorer_noise_of(explorer), USUAL_NOISE_MIN);
    if (explorer->noise.freedom > 0 && own_noise > BURST_FACTOR * usual)
        weight = usual * usual / (own_noise * own_noise);
    bool is_held = terms->requests.slowdown > 0 || terms->requests.iteration_time_s > 0;
    double expected_s = explorer->promised_s + terms->outside.time_s;
    double error_s = round->time_spread_s / sqrt(fmax(1, (double)round->spread_iterations));
    double margin = SURPRISE_SHARE;
    if (round->iteration_time_s > 0)
        margin = fmax(margin, SURPRISE_ERRORS * error_s / round->iteration_time_s);
    /* In the first rounds, the time outside of the pipeline is not known. */
    bool is_bounded = explorer->promised_s > 0 && explorer->fastest_s > 0;
    bool is_late = is_bounded && !is_held && round->iteration_time_s > expected_s * (1 + margin);
    explorer->surprises = is_late ? explorer->surprises + 1 : 0;
    if (is_late) weight *= SPOILED_WEIGHT;
    explorer->spoiled_rounds += weight < 0.5;
    return weight;
}

/* Returns the weight of one observation. A time that is hardly possible shows that the clock
 * was not what it should have been. */
static double weight_of_runs(const harpe_clock_estimate *known, const harpe_online_clock_runs *runs,
                             double noise) {
    double error = noise / sqrt((double)(runs->run_count * runs->iteration_count));
    double rules = isfinite(known->error) ? DOUBT_SHARE : HARPE_CLOCK_BREAK_SHARE;
    double margin = fmax(rules, DOUBT_ERRORS * error);
    bool is_possible = runs->mean.time_s >= known->lower_s * (1 - margin) &&
                       runs->mean.time_s <= known->upper_s * (1 + margin);
    return is_possible ? 1 : DOUBT_WEIGHT;
}

static harpe_status take_runs(harpe_explorer *explorer, const harpe_online_clock_runs *runs,
                              double weight, harpe_error *error) {
    harpe_clock_curve *curve = &explorer->curves[runs->entry];
    const harpe_sweep_list *list = &explorer->sweep->lists[runs->entry];
    double noise = harpe_explorer_noise_of(explorer);
    harpe_clock_share share = {harpe_clock_curve_find(curve, runs->frequency_mhz), 1};
    if (share.clock == curve->count || !(runs->mean.time_s > 0)) return HARPE_OK;
    /* A probe measures latencies; a clock so near to the highest one does not show the curve. */
    if (!explorer->is_exploring && share.clock > 0) return HARPE_OK;
    harpe_online_clock_runs own = *runs;
    own.mean.time_s /= list->time_ratio; /* curves do not contain drift */
    own.mean.energy_j /= list->energy_ratio;
    harpe_clock_estimate *known = harpe_calloc(curve->count, sizeof *known);
    if (!known) return harpe_fail_memory(error);
    if (explorer->is_exploring && harpe_clock_curve_estimate(curve, noise, 0, known))
        weight *= weight_of_runs(&known[share.clock], &own, noise);
    free(known);
    harpe_clock_curve_observe(curve, &share, 1, own.mean.time_s, own.mean.energy_j,
                              weight * (double)(runs->run_count * runs->iteration_count), noise);
    return HARPE_OK;
}

/* A run that was at several clocks is an observation, too, if it was at one of them for nearly all
 * of its time. Otherwise an error in the shares would make this clock look fast. */
static void take_mixed_run(harpe_explorer *explorer, const harpe_online_clock_runs *runs,
                           const harpe_run_clocks *clocks, double weight) {
    harpe_clock_curve *curve = &explorer->curves[runs->entry];
    const harpe_sweep_list *list = &explorer->sweep->lists[runs->entry];
    harpe_clock_share shares[HARPE_CLOCK_PARTS];
    double largest = 0;
    for (int i = 0; i < clocks->count; i++) {
        shares[i] = (harpe_clock_share){harpe_clock_curve_find(curve, clocks->parts[i].mhz),
                                        clocks->parts[i].share};
        if (shares[i].clock == curve->count) return;
        largest = fmax(largest, shares[i].share);
    }
    if (largest < HARPE_MAIN_SHARE_MIN || clocks->count <= 0 || !(runs->mean.time_s > 0)) return;
    harpe_clock_curve_observe(curve, shares, (size_t)clocks->count,
                              runs->mean.time_s / list->time_ratio,
                              runs->mean.energy_j / list->energy_ratio,
                              weight * (double)(runs->run_count * runs->iteration_count),
                              harpe_explorer_noise_of(explorer));
}

/* Compares a round at the highest clocks with what is known, and scales the times of the entries
 * that have changed. */
static void look(const harpe_explorer *explorer, const harpe_online_round *round) {
    const harpe_online_pipeline *pipeline = explorer->pipeline;
    for (size_t e = 0; e < pipeline->entry_count; e++) {
        const harpe_clock_point *known = &explorer->curves[e].points[0];
        harpe_sweep_list *list = &explorer->sweep->lists[e];
        double runs = (double)(pipeline->entries[e].run_count * round->iterations);
        double error = harpe_explorer_noise_of(explorer) * sqrt(1 / runs + 1 / known->weight);
        double ratio = round->entries[e].time_s / (known->time_s * list->time_ratio);
        if (!(known->weight > 0) || fabs(ratio - 1) <= LOOK_ERRORS * error) continue;
        list->time_ratio *= ratio;
        list->energy_ratio = round->entries[e].energy_j / known->energy_j;
    }
}

void harpe_explorer_look_for_straggler(harpe_explorer *explorer, bool is_running) {
    if (harpe_explorer_measured(explorer) > 0) explorer->looks = is_running ? 2 : 1;
}

void harpe_explorer_forget_straggler(harpe_explorer *explorer) {
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++)
        explorer->sweep->lists[e].time_ratio = explorer->sweep->lists[e].energy_ratio = 1;
    explorer->looks = 0;
    explorer->undisturbed_s = 0;
}

static bool ran_highest(const harpe_explorer *explorer) {
    return harpe_sweep_are_highest(explorer->sweep, explorer->frequency_mhz);
}

bool harpe_explorer_ran_probe(const harpe_explorer *explorer) {
    return !explorer->is_exploring && !ran_highest(explorer);
}

/* Returns what ranks report of their clocks, or NULL if clocks did not change, or changed at once.
 */
static const harpe_rank_clocks *clocks_of(const harpe_explorer *explorer,
                                          const harpe_online_reports *reports) {
    bool may_be_late = harpe_online_latencies_are_late(explorer->latencies) ||
                       harpe_online_latencies_are_unknown(explorer->latencies);
    return may_be_late && !ran_highest(explorer) ? reports->clocks : NULL;
}

harpe_status harpe_explorer_observe(harpe_explorer *explorer, const harpe_online_round *round,
                                    const harpe_online_reports *reports,
                                    const harpe_explorer_terms *terms, harpe_error *error) {
    const harpe_online_pipeline *pipeline = explorer->pipeline;
    if (explorer->looks > 0) {
        explorer->rounds++;
        if (--explorer->looks == 0) look(explorer, round);
        return HARPE_OK;
    }
    harpe_online_reports told = *reports;
    told.clocks = clocks_of(explorer, reports);
    harpe_online_clock_runs *runs;
    size_t run_count;
    int *ran_mhz = harpe_calloc(pipeline->instruction_count, sizeof *ran_mhz);
    if (!ran_mhz) return harpe_fail_memory(error);
    harpe_find_real_clocks(pipeline, &told, explorer->frequency_mhz, HARPE_MAIN_SHARE_MIN, ran_mhz);
    harpe_status status =
        harpe_online_round_read_clocks(pipeline, &told, ran_mhz, &runs, &run_count, error);
    free(ran_mhz);
    if (status != HARPE_OK) return status;
    double freedom, own_noise = noise_of_round(runs, run_count, &freedom);
    double weight = weight_of_round(explorer, round, own_noise, terms);
    if (weight >= 0.5) learn_noise(&explorer->noise, own_noise, freedom);
    for (size_t k = 0; k < run_count && status == HARPE_OK; k++) {
        const harpe_run_clocks *mixed =
            harpe_real_clocks_of_run(pipeline, &told, runs[k].frequency_mhz);
        if (mixed && explorer->is_exploring)
            take_mixed_run(explorer, &runs[k], mixed, weight);
        else if (!mixed)
            status = take_runs(explorer, &runs[k], weight, error);
    }
    free(runs);
    explorer->rounds++;
    if (!explorer->is_exploring && !harpe_explorer_ran_probe(explorer)) explorer->highest_rounds++;
    return status;
}

/* ---- What was learnt ------------------------------------------------------------------------- */

size_t harpe_explorer_measured(const harpe_explorer *explorer) {
    size_t measured = 0;
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++)
        for (size_t c = 0; c < explorer->curves[e].count; c++)
            measured += explorer->curves[e].points[c].weight > 0;
    return measured;
}

harpe_status harpe_explorer_hand_over(const harpe_explorer *explorer, harpe_error *error) {
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++) {
        const harpe_clock_curve *curve = &explorer->curves[e];
        harpe_sweep_list *list = &explorer->sweep->lists[e];
        harpe_clock_estimate *known = harpe_calloc(curve->count, sizeof *known);
        if (!known) return harpe_fail_memory(error);
        size_t count = 0;
        bool is_known =
            harpe_clock_curve_estimate(curve, harpe_explorer_noise_of(explorer), 0, known);
        for (size_t c = 0; is_known && c < curve->count; c++)
            if (curve->points[c].weight >= 1 || (c == 0 && curve->points[c].weight > 0))
                list->points[count++] =
                    (harpe_profile_point){curve->mhz[c], known[c].time_s, known[c].energy_j};
        if (count > 0) list->count = count;
        list->has_stopped = true;
        free(known);
    }
    return HARPE_OK;
}

/* ---- The stored state ------------------------------------------------------------------------ */

static const harpe_stored_member MEMBERS[] = {
    HARPE_STORED_DOUBLES(harpe_explorer, noise, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_explorer, rounds, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_explorer, highest_rounds, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_explorer, spoiled_rounds, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_explorer, surprises, 0, 1e9),
    HARPE_STORED(harpe_explorer, restarts, 0, 1e9),
    HARPE_STORED(harpe_explorer, wanted_count, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_explorer, measured_before, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_explorer, stale_rounds, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_explorer, promised_s, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_explorer, next_promised_s, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_explorer, fastest_s, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_explorer, is_exploring, 0, 1),
    HARPE_STORED(harpe_explorer, looks, 0, 2),
    HARPE_STORED(harpe_explorer, straggler_rounds, 0, 1e9),
    HARPE_STORED(harpe_explorer, undisturbed_s, HARPE_STORED_COUNT),
};
static const harpe_stored TABLE = HARPE_STORED_TABLE(harpe_explorer, MEMBERS);

json_t *harpe_explorer_save(const harpe_explorer *explorer) {
    const harpe_online_pipeline *pipeline = explorer->pipeline;
    size_t count = pipeline->instruction_count;
    json_t *json = harpe_stored_save(&TABLE, explorer);
    harpe_stored_add(&json, "curves",
                     harpe_clock_curves_save(explorer->curves, pipeline->entry_count));
    harpe_stored_add(&json, "clocks", harpe_stored_save_clocks(explorer->frequency_mhz, count));
    harpe_stored_add(&json, "next_clocks", harpe_stored_save_clocks(explorer->next_mhz, count));
    return json;
}

static bool load_clocks(const harpe_explorer *explorer, int *mhz, const json_t *saved) {
    const harpe_online_pipeline *pipeline = explorer->pipeline;
    if (!harpe_stored_load_clocks(mhz, pipeline->instruction_count, saved)) return false;
    for (size_t i = 0; i < pipeline->instruction_count; i++) {
        const harpe_clock_curve *curve = &explorer->curves[pipeline->entry_of[i]];
        if (harpe_clock_curve_find(curve, mhz[i]) == curve->count) return false;
    }
    return true;
}

bool harpe_explorer_load(harpe_explorer *explorer, const json_t *saved) {
    return harpe_stored_load(&TABLE, explorer, saved) &&
           harpe_clock_curves_load(explorer->curves, explorer->pipeline->entry_count,
                                   json_object_get(saved, "curves")) &&
           load_clocks(explorer, explorer->frequency_mhz, json_object_get(saved, "clocks")) &&
           load_clocks(explorer, explorer->next_mhz, json_object_get(saved, "next_clocks"));
}
