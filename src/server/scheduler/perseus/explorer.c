/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the curves of all instructions, and adds the results of rounds to them. In an exploration,
 * explorer_plan.c makes the rounds, and a round that was slower or noisier than expected has little
 * weight. The rounds of a sweep are made here. When the energy of an instruction has risen at
 * several lower clocks in a row, still lower clocks save nothing. The instruction then runs at its
 * highest clock until the end of the sweep, so that it slows training as little as possible. */
#include "server/scheduler/perseus/explorer_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "server/scheduler/builtin.h"

enum { MISSES_MAX = 3 };

/* GPUs must wait for at least this share of the time. Otherwise their blocking power cannot be
 * computed. */
#define WAITING_SHARE_MIN 0.001
/* Of a profile. */
#define BLOCKING_POWER_MAX_W 1e5
/* The assumed noise before any round shows it. */
#define USUAL_NOISE 0.01
/* Each observation of the noise counts as at most this number of values. */
#define NOISE_FREEDOM_MAX 2000.0
/* A value outside of its bounds by this share (HARPE_CLOCK_BREAK_SHARE at a new clock), or by this
 * number of standard errors, does not belong to the clock that the instruction should have had. */
#define DOUBT_SHARE 0.02
#define DOUBT_ERRORS 5.0
#define DOUBT_WEIGHT 0.02
/* A round whose times scatter by this factor more than usual is a burst of jitter. */
#define BURST_FACTOR 3.0
/* For this comparison the usual deviation is at least this share. It is an assumption: on GPUs that
 * change their clocks late, latencies vary, so the time of a run is not known better. */
#define USUAL_NOISE_MIN 0.002
/* A GPU has become slower or faster if its time at the highest clock has changed by this number of
 * standard errors. */
#define LOOK_ERRORS 2.0
/* A round that takes this share longer than promised is spoiled. */
#define SURPRISE_SHARE 0.01
#define SURPRISE_ERRORS 4.0
#define SPOILED_WEIGHT 0.05

/* ---- Clocks ---------------------------------------------------------------------------------- */

static int compare_falling(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x < y) - (x > y);
}

/* Finds the clocks that all ranks of a pipeline rank have. */
static harpe_status find_clocks(harpe_explorer *explorer, const harpe_rank_info *ranks, int stride,
                                int pipeline_rank, harpe_error *error) {
    int *common = NULL;
    size_t count = 0, kept = 0;
    for (int r = 0; r < explorer->rank_count; r++) {
        if (ranks[r].pp_rank != pipeline_rank) continue;
        const int *offered = common ? common : ranks[r].available_frequencies_mhz;
        size_t offered_count = common ? count : ranks[r].available_frequency_count;
        if (!common) common = harpe_arena_alloc(&explorer->arena, offered_count, sizeof *common);
        if (!common) return harpe_fail_memory(error);
        count = 0;
        for (size_t i = 0; i < offered_count; i++)
            if (offered[i] > 0 && offered[i] <= HARPE_FREQUENCY_MAX_MHZ &&
                harpe_rank_has_frequency(&ranks[r], offered[i]))
                common[count++] = offered[i];
    }
    if (count == 0)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "the ranks of pipeline rank %d have no available frequency in common: a "
                          "sweep needs GPUs of one model in each stage",
                          pipeline_rank);
    qsort(common, count, sizeof *common, compare_falling);
    int last = 0;
    for (size_t i = 0, distinct = 0; i < count; i++) {
        if (common[i] == last) continue;
        last = common[i];
        if (distinct++ % (size_t)stride == 0) common[kept++] = last;
    }
    explorer->clocks[pipeline_rank] = (harpe_tried_clocks){common, kept};
    if (kept > explorer->clock_count) explorer->clock_count = kept;
    return HARPE_OK;
}

/* ---- Making it ------------------------------------------------------------------------------- */

static harpe_status make_entries(harpe_explorer *explorer, harpe_error *error) {
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++) {
        harpe_explorer_entry *entry = &explorer->entries[e];
        const harpe_tried_clocks *clocks =
            &explorer->clocks[explorer->pipeline->entries[e].pipeline_rank];
        entry->points = harpe_arena_alloc(&explorer->arena, clocks->count, sizeof *entry->points);
        if (!harpe_clock_curve_init(&entry->curve, clocks->mhz, clocks->count))
            return harpe_fail_memory(error);
    }
    explorer->known =
        harpe_arena_alloc(&explorer->arena, explorer->clock_count, sizeof *explorer->known);
    return explorer->arena.has_failed ? harpe_fail_memory(error) : HARPE_OK;
}

static harpe_status make(harpe_explorer *made, const harpe_rank_info *ranks, int stride,
                         harpe_error *error) {
    const harpe_online_pipeline *pipeline = made->pipeline;
    size_t rank_count = (size_t)pipeline->rank_count, count = pipeline->instruction_count;
    harpe_arena *arena = &made->arena;
    made->clocks = harpe_arena_alloc(arena, rank_count, sizeof *made->clocks);
    made->waiting = harpe_arena_alloc(arena, rank_count, sizeof *made->waiting);
    made->entries = harpe_arena_alloc(arena, pipeline->entry_count, sizeof *made->entries);
    made->frequency_mhz = harpe_arena_alloc(arena, count, sizeof *made->frequency_mhz);
    made->next_mhz = harpe_arena_alloc(arena, count, sizeof *made->next_mhz);
    made->ran_mhz = harpe_arena_alloc(arena, count, sizeof *made->ran_mhz);
    made->seen = harpe_arena_alloc(arena, pipeline->entry_count, sizeof *made->seen);
    made->ratios = harpe_arena_alloc(arena, pipeline->entry_count, sizeof *made->ratios);
    if (arena->has_failed) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    for (int p = 0; p < pipeline->rank_count && status == HARPE_OK; p++)
        status = find_clocks(made, ranks, stride, p, error);
    if (status == HARPE_OK) status = make_entries(made, error);
    if (status != HARPE_OK) return status;
    made->latencies = harpe_online_latencies_new(made->clocks, pipeline->rank_count);
    return made->latencies ? HARPE_OK : harpe_fail_memory(error);
}

harpe_status harpe_explorer_new(const harpe_online_pipeline *pipeline, const harpe_rank_info *ranks,
                                int rank_count, int stride, int rises_to_stop, harpe_explorer **out,
                                harpe_error *error) {
    harpe_explorer *explorer = harpe_calloc(1, sizeof *explorer);
    if (!explorer) return harpe_fail_memory(error);
    explorer->pipeline = pipeline;
    explorer->rank_count = rank_count;
    explorer->rises_to_stop = rises_to_stop;
    harpe_status status = make(explorer, ranks, stride, error);
    if (status != HARPE_OK) {
        harpe_explorer_free(explorer);
        return status;
    }
    harpe_explorer_begin(explorer);
    harpe_explorer_begin_round(explorer);
    *out = explorer;
    return HARPE_OK;
}

void harpe_explorer_free(harpe_explorer *explorer) {
    if (!explorer) return;
    for (size_t e = 0; explorer->entries && e < explorer->pipeline->entry_count; e++)
        harpe_clock_curve_free(&explorer->entries[e].curve);
    harpe_online_latencies_free(explorer->latencies);
    harpe_arena_free(&explorer->arena);
    free(explorer);
}

/* ---- Beginning ------------------------------------------------------------------------------- */

static int highest_mhz(const harpe_explorer *explorer, size_t instruction) {
    return explorer->entries[explorer->pipeline->entry_of[instruction]].curve.mhz[0];
}

void harpe_explorer_run_highest(harpe_explorer *explorer) {
    for (size_t i = 0; i < explorer->pipeline->instruction_count; i++)
        explorer->next_mhz[i] = highest_mhz(explorer, i);
    explorer->next_promised_s = explorer->fastest_s;
}

void harpe_explorer_begin_round(harpe_explorer *explorer) {
    memcpy(explorer->frequency_mhz, explorer->next_mhz,
           explorer->pipeline->instruction_count * sizeof *explorer->frequency_mhz);
    explorer->promised_s = explorer->next_promised_s;
}

void harpe_explorer_begin(harpe_explorer *explorer) {
    size_t kept = offsetof(harpe_explorer, position);
    memset((char *)explorer + kept, 0, sizeof *explorer - kept);
    memset(explorer->waiting, 0,
           (size_t)explorer->pipeline->rank_count * sizeof *explorer->waiting);
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++) {
        harpe_explorer_entry *entry = &explorer->entries[e];
        harpe_clock_curve_forget(&entry->curve);
        entry->time_ratio = entry->energy_ratio = 1;
        entry->count = 0;
        entry->rises = 0;
        entry->has_stopped = false;
    }
    harpe_explorer_run_highest(explorer);
}

void harpe_explorer_restart(harpe_explorer *explorer) {
    const harpe_explorer before = *explorer;
    harpe_explorer_begin(explorer);
    explorer->cost = before.cost;
    explorer->spoiled_rounds = before.spoiled_rounds;
    explorer->restarts = before.restarts + 1;
}

/* ---- Noise ----------------------------------------------------------------------------------- */

double harpe_explorer_noise_of(const harpe_explorer *explorer) {
    const harpe_noise *noise = &explorer->noise;
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

static void learn_noise(harpe_noise *noise, double own, double freedom) {
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

/* Adds an observation. If the run was at several clocks (`mixed`), its main clock must have nearly
 * all of the time. Otherwise an error in the shares would make this clock look fast. */
static void take_runs(harpe_explorer *explorer, const harpe_online_clock_runs *runs,
                      const harpe_run_clocks *mixed, double weight) {
    harpe_explorer_entry *entry = &explorer->entries[runs->entry];
    harpe_clock_curve *curve = &entry->curve;
    const harpe_run_clocks one = {.count = 1, .parts = {{runs->frequency_mhz, 1}}};
    const harpe_run_clocks *clocks = mixed ? mixed : &one;
    harpe_clock_share shares[HARPE_CLOCK_PARTS] = {0};
    double noise = harpe_explorer_noise_of(explorer), largest = 0;
    for (int i = 0; i < clocks->count; i++) {
        shares[i] = (harpe_clock_share){harpe_clock_curve_find(curve, clocks->parts[i].mhz),
                                        clocks->parts[i].share};
        if (shares[i].clock == curve->count) return;
        largest = fmax(largest, shares[i].share);
    }
    if (largest < HARPE_MAIN_SHARE_MIN || !(runs->mean.time_s > 0)) return;
    /* A probe measures latencies; a clock so near to the highest one does not show the curve. */
    if (!explorer->is_exploring && (mixed || shares[0].clock > 0)) return;
    harpe_online_clock_runs own = *runs;
    own.mean.time_s /= entry->time_ratio; /* curves do not contain drift */
    own.mean.energy_j /= entry->energy_ratio;
    if (explorer->is_exploring && !mixed &&
        harpe_clock_curve_estimate(curve, noise, 0, explorer->known))
        weight *= weight_of_runs(&explorer->known[shares[0].clock], &own, noise);
    harpe_clock_curve_observe(curve, shares, (size_t)clocks->count, own.mean.time_s,
                              own.mean.energy_j,
                              weight * (double)(runs->run_count * runs->iteration_count), noise);
}

/* Compares a round at the highest clocks with the curves, and scales the times of the entries that
 * have changed. */
static void look(const harpe_explorer *explorer, const harpe_online_round *round) {
    const harpe_online_pipeline *pipeline = explorer->pipeline;
    for (size_t e = 0; e < pipeline->entry_count; e++) {
        harpe_explorer_entry *entry = &explorer->entries[e];
        const harpe_clock_point *known = &entry->curve.points[0];
        double runs = (double)(pipeline->entries[e].run_count * round->iterations);
        double error = harpe_explorer_noise_of(explorer) * sqrt(1 / runs + 1 / known->weight);
        double ratio = round->entries[e].time_s / (known->time_s * entry->time_ratio);
        if (!(known->weight > 0) || fabs(ratio - 1) <= LOOK_ERRORS * error) continue;
        entry->time_ratio *= ratio;
        entry->energy_ratio = round->entries[e].energy_j / known->energy_j;
    }
}

void harpe_explorer_look_for_straggler(harpe_explorer *explorer, bool is_running) {
    if (harpe_explorer_measured(explorer) > 0) explorer->looks = is_running ? 2 : 1;
}

void harpe_explorer_forget_straggler(harpe_explorer *explorer) {
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++)
        explorer->entries[e].time_ratio = explorer->entries[e].energy_ratio = 1;
    explorer->looks = 0;
    explorer->undisturbed_s = 0;
}

static bool ran_highest(const harpe_explorer *explorer) {
    return harpe_explorer_are_highest(explorer, explorer->frequency_mhz);
}

bool harpe_explorer_ran_probe(const harpe_explorer *explorer) {
    return !explorer->is_exploring && !ran_highest(explorer);
}

static harpe_status explore(harpe_explorer *explorer, const harpe_online_round *round,
                            const harpe_online_reports *reports, const harpe_explorer_terms *terms,
                            harpe_error *error) {
    const harpe_online_pipeline *pipeline = explorer->pipeline;
    if (explorer->looks > 0) {
        explorer->rounds++;
        if (--explorer->looks == 0) look(explorer, round);
        return HARPE_OK;
    }
    harpe_online_reports told = *reports;
    if (!harpe_explorer_may_be_late(explorer) || ran_highest(explorer)) told.clocks = NULL;
    harpe_online_clock_runs *runs;
    size_t run_count;
    harpe_find_real_clocks(pipeline, &told, explorer->frequency_mhz, HARPE_MAIN_SHARE_MIN,
                           explorer->ran_mhz);
    harpe_status status = harpe_online_round_read_clocks(pipeline, &told, explorer->ran_mhz, &runs,
                                                         &run_count, error);
    if (status != HARPE_OK) return status;
    double freedom, own_noise = noise_of_round(runs, run_count, &freedom);
    double weight = weight_of_round(explorer, round, own_noise, terms);
    if (weight >= 0.5) learn_noise(&explorer->noise, own_noise, freedom);
    for (size_t k = 0; k < run_count; k++)
        take_runs(explorer, &runs[k],
                  harpe_real_clocks_of_run(pipeline, &told, runs[k].frequency_mhz), weight);
    free(runs);
    explorer->rounds++;
    if (!explorer->is_exploring && !harpe_explorer_ran_probe(explorer)) explorer->highest_rounds++;
    return HARPE_OK;
}

/* ---- Cost ------------------------------------------------------------------------------------ */

static void add_waiting(harpe_explorer_waiting *to, const harpe_explorer_waiting *from) {
    to->time_s += from->time_s;
    to->energy_j += from->energy_j;
    to->watched_s += from->watched_s;
}

static void count_waiting(harpe_explorer *explorer, const harpe_online_round *round) {
    int gpus = harpe_explorer_gpus_per_stage(explorer);
    if (!round->tells_waiting) return;
    for (int p = 0; p < explorer->pipeline->rank_count; p++) {
        harpe_explorer_waiting own = {round->waiting[p].time_s, round->waiting[p].energy_j,
                                      round->iteration_time_s * gpus};
        add_waiting(&explorer->waiting[p], &own);
        add_waiting(&explorer->cost.waiting, &own);
    }
}

void harpe_explorer_count(harpe_explorer *explorer, const harpe_online_round *round) {
    harpe_explorer_cost *cost = &explorer->cost;
    double iterations = (double)round->iterations;
    bool is_first = !round->has_probe || !(cost->first_time_s > 0) ||
                    harpe_savings_is_warm_up(cost->first_time_s, round->iteration_time_s) ||
                    harpe_savings_is_warm_up(cost->first_energy_j, round->iteration_energy_j);
    if (explorer->position == 0 && is_first) {
        cost->first_time_s = round->iteration_time_s;
        cost->first_energy_j = round->iteration_energy_j;
    }
    cost->rounds++;
    cost->iterations += round->iterations;
    cost->time_s += iterations * round->iteration_time_s;
    cost->energy_j += iterations * round->iteration_energy_j;
    if (round->iteration_time_s > 0) cost->timed_iterations += round->iterations;
    if (round->iteration_energy_j > 0) cost->metered_iterations += round->iterations;
    count_waiting(explorer, round);
}

/* Counts a round with missing values. After a few such rounds in a row, learning ends with the
 * values that were measured. Fails if no value was measured. */
static harpe_status miss(harpe_explorer *explorer, const harpe_online_round *round,
                         harpe_error *error) {
    if (++explorer->misses < MISSES_MAX) return HARPE_OK;
    if (explorer->position > 0) {
        explorer->position = explorer->clock_count;
        return HARPE_OK;
    }
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s, %d rounds in a row: online optimization needs time_breakdown and "
                      "energy_breakdown of every instruction of the schedule; turn on the "
                      "instruction profiler of the training side, or run PointSolution with a plan",
                      round->problem, explorer->misses);
}

/* ---- A sweep --------------------------------------------------------------------------------- */

/* Adds an observation of the present clock. Returns true if the entry needs more observations. */
static bool take_swept(harpe_explorer *explorer, size_t e, const harpe_online_round *round) {
    harpe_explorer_entry *entry = &explorer->entries[e];
    const harpe_clock_point *above = &entry->curve.points[explorer->position];
    const harpe_online_mean *mean = &round->entries[e];
    harpe_clock_share share = {explorer->position, 1};
    if (entry->has_stopped) return false;
    bool rises = explorer->position > 0 && mean->energy_j > above[-1].energy_j;
    double runs = (double)(explorer->pipeline->entries[e].run_count * round->iterations);
    harpe_clock_curve_observe(&entry->curve, &share, 1, mean->time_s, mean->energy_j, fmax(1, runs),
                              0);
    entry->rises = rises ? entry->rises + 1 : 0;
    entry->has_stopped =
        entry->rises >= explorer->rises_to_stop || explorer->position + 1 == entry->curve.count;
    return !entry->has_stopped;
}

/* Makes the next round of a sweep. */
static void sweep_next(harpe_explorer *explorer) {
    harpe_explorer_run_highest(explorer);
    for (size_t i = 0; i < explorer->pipeline->instruction_count; i++) {
        const harpe_explorer_entry *entry = &explorer->entries[explorer->pipeline->entry_of[i]];
        if (!entry->has_stopped && !harpe_explorer_is_over(explorer))
            explorer->next_mhz[i] = entry->curve.mhz[explorer->position];
    }
}

static void sweep(harpe_explorer *explorer, const harpe_online_round *round) {
    bool has_more = false;
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++)
        has_more = take_swept(explorer, e, round) || has_more;
    explorer->position = has_more ? explorer->position + 1 : explorer->clock_count;
    explorer->is_exploring = !has_more;
    sweep_next(explorer);
}

/* ---- All rounds ------------------------------------------------------------------------------ */

/* Finds the points of all entries. In a sweep, a clock's only observation is its point. */
static void find_points(const harpe_explorer *explorer) {
    double noise = harpe_explorer_noise_of(explorer);
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++) {
        harpe_explorer_entry *entry = &explorer->entries[e];
        const harpe_clock_curve *curve = &entry->curve;
        const harpe_clock_estimate *known = explorer->known;
        size_t count = 0;
        if (!harpe_clock_curve_estimate(curve, noise, 0, explorer->known)) continue;
        for (size_t c = 0; c < curve->count; c++) {
            const harpe_clock_point *own = &curve->points[c];
            if (!(own->weight >= 1 || (c == 0 && own->weight > 0))) continue;
            bool is_swept = explorer->rises_to_stop > 0;
            entry->points[count++] =
                (harpe_profile_point){curve->mhz[c], is_swept ? own->time_s : known[c].time_s,
                                      is_swept ? own->energy_j : known[c].energy_j};
        }
        if (count > 0) entry->count = count;
    }
}

static bool measured_all(const harpe_explorer *explorer, const harpe_online_round *round) {
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++)
        if (!explorer->entries[e].has_stopped && !(round->entries[e].time_s > 0)) return false;
    return true;
}

harpe_status harpe_explorer_observe(harpe_explorer *explorer, const harpe_online_round *round,
                                    const harpe_online_reports *reports,
                                    const harpe_explorer_terms *terms, harpe_error *error) {
    bool sweeps = explorer->rises_to_stop > 0;
    if (sweeps ? !measured_all(explorer, round) : round->problem[0] != '\0')
        return miss(explorer, round, error);
    explorer->misses = 0;
    harpe_status status = HARPE_OK;
    if (sweeps)
        sweep(explorer, round);
    else
        status = explore(explorer, round, reports, terms, error);
    if (status == HARPE_OK) find_points(explorer);
    return status;
}

/* ---- What was learnt ------------------------------------------------------------------------- */

bool harpe_explorer_is_over(const harpe_explorer *explorer) {
    return explorer->position >= explorer->clock_count;
}

bool harpe_explorer_are_highest(const harpe_explorer *explorer, const int *frequency_mhz) {
    for (size_t i = 0; i < explorer->pipeline->instruction_count; i++)
        if (frequency_mhz[i] != highest_mhz(explorer, i)) return false;
    return true;
}

size_t harpe_explorer_measured(const harpe_explorer *explorer) {
    size_t measured = 0;
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++)
        for (size_t c = 0; c < explorer->entries[e].curve.count; c++)
            measured += explorer->entries[e].curve.points[c].weight > 0;
    return measured;
}

harpe_online_mean harpe_explorer_extra(const harpe_explorer *explorer) {
    const harpe_explorer_cost *cost = &explorer->cost;
    harpe_online_mean extra = {0, 0};
    if (cost->first_time_s > 0)
        extra.time_s = cost->time_s - (double)cost->timed_iterations * cost->first_time_s;
    if (cost->first_energy_j > 0)
        extra.energy_j = cost->energy_j - (double)cost->metered_iterations * cost->first_energy_j;
    return extra;
}

static bool have_same_clocks(const harpe_tried_clocks *a, const harpe_tried_clocks *b) {
    return a->count == b->count && memcmp(a->mhz, b->mhz, a->count * sizeof *a->mhz) == 0;
}

static double power_of(const harpe_explorer_waiting *waiting) {
    if (!(waiting->time_s > WAITING_SHARE_MIN * waiting->watched_s)) return 0;
    double power_w = waiting->energy_j / waiting->time_s;
    return power_w > 0 ? power_w : 0;
}

double harpe_explorer_blocking_power_w(const harpe_explorer *explorer, int pipeline_rank) {
    harpe_explorer_waiting same = {0};
    for (int p = 0; p < explorer->pipeline->rank_count; p++)
        if (have_same_clocks(&explorer->clocks[p], &explorer->clocks[pipeline_rank]))
            add_waiting(&same, &explorer->waiting[p]);
    double power_w = power_of(&same);
    return power_w > 0 ? power_w : power_of(&explorer->cost.waiting);
}

static harpe_profile_point corrected(const harpe_explorer_entry *entry, size_t i) {
    const harpe_profile_point *point = &entry->points[i];
    return (harpe_profile_point){point->frequency_mhz, point->time_s * entry->time_ratio,
                                 point->energy_j * entry->energy_ratio};
}

bool harpe_explorer_point(const harpe_explorer *explorer, int entry, int frequency_mhz,
                          harpe_profile_point *out) {
    const harpe_explorer_entry *list = &explorer->entries[entry];
    for (size_t i = 0; i < list->count; i++) {
        if (list->points[i].frequency_mhz != frequency_mhz) continue;
        *out = corrected(list, i);
        return true;
    }
    return false;
}

harpe_measurement harpe_explorer_row(const harpe_explorer *explorer, size_t entry,
                                     harpe_profile_point point, int gpu_count) {
    return (harpe_measurement){.stage = explorer->pipeline->entries[entry].stage,
                               .rank = -1,
                               .instruction = explorer->pipeline->entries[entry].instruction,
                               .frequency_mhz = point.frequency_mhz,
                               .time_s = point.time_s,
                               .energy_j = point.energy_j,
                               .gpu_count = gpu_count};
}

harpe_status harpe_explorer_rows(const harpe_explorer *explorer, int gpu_count,
                                 const double *blocking_power_w, harpe_measurement **out,
                                 size_t *out_count, harpe_error *error) {
    size_t entries = explorer->pipeline->entry_count, count = 0;
    harpe_measurement *rows = harpe_calloc(entries * explorer->clock_count, sizeof *rows);
    if (!rows) return harpe_fail_memory(error);
    for (size_t e = 0; e < entries; e++) {
        for (size_t i = 0; i < explorer->entries[e].count; i++) {
            harpe_measurement *row = &rows[count++];
            *row = harpe_explorer_row(explorer, e, corrected(&explorer->entries[e], i), gpu_count);
            int p = explorer->pipeline->entries[e].pipeline_rank;
            row->switch_latency_s =
                harpe_online_latencies_planned_s(explorer->latencies, p, row->frequency_mhz);
            row->blocking_power_w = blocking_power_w ? blocking_power_w[p] : 0;
        }
    }
    *out = rows;
    *out_count = count;
    return HARPE_OK;
}

harpe_status harpe_explorer_profile(const harpe_explorer *explorer, const double *blocking_power_w,
                                    harpe_profile **out, harpe_error *error) {
    harpe_measurement *rows;
    size_t count;
    bool has_power = true;
    for (int p = 0; p < explorer->pipeline->rank_count; p++)
        has_power &= blocking_power_w[p] > 0 && blocking_power_w[p] <= BLOCKING_POWER_MAX_W;
    harpe_status status =
        harpe_explorer_rows(explorer, harpe_explorer_gpus_per_stage(explorer),
                            has_power ? blocking_power_w : NULL, &rows, &count, error);
    if (status != HARPE_OK) return status;
    status = harpe_profile_new(rows, count, out, error);
    free(rows);
    return status;
}

/* ---- The stored state ------------------------------------------------------------------------ */

static const harpe_stored_member MEMBERS[] = {
    HARPE_STORED(harpe_explorer, position, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_explorer, misses, 0, 1000),
    HARPE_STORED(harpe_explorer, cost.rounds, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_explorer, cost.iterations, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_explorer, cost.timed_iterations, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_explorer, cost.metered_iterations, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_explorer, cost.time_s, HARPE_STORED_ANY),
    HARPE_STORED(harpe_explorer, cost.energy_j, HARPE_STORED_ANY),
    HARPE_STORED(harpe_explorer, cost.first_time_s, HARPE_STORED_ANY),
    HARPE_STORED(harpe_explorer, cost.first_energy_j, HARPE_STORED_ANY),
    HARPE_STORED_DOUBLES(harpe_explorer, cost.waiting, HARPE_STORED_ANY),
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

static const harpe_stored_member WAITING_MEMBERS[] = {
    HARPE_STORED(harpe_explorer_waiting, time_s, HARPE_STORED_ANY),
    HARPE_STORED(harpe_explorer_waiting, energy_j, HARPE_STORED_ANY),
    HARPE_STORED(harpe_explorer_waiting, watched_s, HARPE_STORED_ANY),
};
static const harpe_stored WAITING = HARPE_STORED_TABLE(harpe_explorer_waiting, WAITING_MEMBERS);

static const harpe_stored_member ENTRY_MEMBERS[] = {
    HARPE_STORED(harpe_explorer_entry, rises, 0, 1e9),
    HARPE_STORED(harpe_explorer_entry, has_stopped, 0, 1),
    HARPE_STORED(harpe_explorer_entry, time_ratio, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_explorer_entry, energy_ratio, HARPE_STORED_COUNT),
};
static const harpe_stored ENTRY = HARPE_STORED_TABLE(harpe_explorer_entry, ENTRY_MEMBERS);

json_t *harpe_explorer_save(const harpe_explorer *explorer) {
    size_t entries = explorer->pipeline->entry_count, count = explorer->pipeline->instruction_count;
    size_t ranks = (size_t)explorer->pipeline->rank_count;
    json_t *json = harpe_stored_save(&TABLE, explorer), *curves = json_array();
    for (size_t e = 0; e < entries; e++)
        harpe_stored_append(&curves, harpe_clock_curve_save(&explorer->entries[e].curve));
    harpe_stored_add(&json, "waiting", harpe_stored_save_rows(&WAITING, explorer->waiting, ranks));
    harpe_stored_add(&json, "entries", harpe_stored_save_rows(&ENTRY, explorer->entries, entries));
    harpe_stored_add(&json, "curves", curves);
    harpe_stored_add(&json, "clocks", harpe_stored_save_clocks(explorer->frequency_mhz, count));
    harpe_stored_add(&json, "next_clocks", harpe_stored_save_clocks(explorer->next_mhz, count));
    harpe_stored_add(&json, "latencies", harpe_online_latencies_save(explorer->latencies));
    return json;
}

static bool load_clocks(const harpe_explorer *explorer, int *mhz, const json_t *saved) {
    const harpe_online_pipeline *pipeline = explorer->pipeline;
    if (!harpe_stored_load_clocks(mhz, pipeline->instruction_count, saved)) return false;
    for (size_t i = 0; i < pipeline->instruction_count; i++) {
        const harpe_clock_curve *curve = &explorer->entries[pipeline->entry_of[i]].curve;
        if (harpe_clock_curve_find(curve, mhz[i]) == curve->count) return false;
    }
    return true;
}

/* Checks that an entry has all points that its explorer must have measured. */
static bool is_possible(const harpe_explorer *explorer, harpe_explorer_entry *entry) {
    if (!(entry->time_ratio > 0 && entry->energy_ratio > 0)) return false;
    if (entry->count == 0) return explorer->position == 0;
    bool is_sweeping = explorer->rises_to_stop > 0 && !entry->has_stopped;
    return !is_sweeping || harpe_explorer_is_over(explorer) || entry->count == explorer->position;
}

bool harpe_explorer_load(harpe_explorer *explorer, const json_t *saved) {
    size_t entries = explorer->pipeline->entry_count;
    const json_t *curves = json_object_get(saved, "curves");
    harpe_explorer_begin(explorer);
    bool is_good =
        harpe_stored_load(&TABLE, explorer, saved) && explorer->position <= explorer->clock_count &&
        harpe_stored_load_rows(&WAITING, explorer->waiting, (size_t)explorer->pipeline->rank_count,
                               json_object_get(saved, "waiting")) &&
        harpe_stored_load_rows(&ENTRY, explorer->entries, entries,
                               json_object_get(saved, "entries")) &&
        json_array_size(curves) == entries;
    for (size_t e = 0; e < entries && is_good; e++)
        is_good = harpe_clock_curve_load(&explorer->entries[e].curve, json_array_get(curves, e));
    if (is_good) find_points(explorer);
    for (size_t e = 0; e < entries && is_good; e++)
        is_good = is_possible(explorer, &explorer->entries[e]);
    return is_good &&
           load_clocks(explorer, explorer->frequency_mhz, json_object_get(saved, "clocks")) &&
           load_clocks(explorer, explorer->next_mhz, json_object_get(saved, "next_clocks")) &&
           harpe_online_latencies_load(explorer->latencies, json_object_get(saved, "latencies"));
}
