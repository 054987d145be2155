/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the rounds of an exploration. The planner is called twice: with the estimates of all
 * clocks, and with the measured clocks alone. The first plan names the clocks that are worth
 * measuring, and the difference between the two energies is what measuring can still save. The
 * trials are then placed where there is slack for certain. */
#include "server/scheduler/perseus/explorer_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/plans.h"
#include "plan/problem.h"

/* The exploration ends if a plan with more clocks is expected to save less than this share. */
#define WORTHWHILE_SHARE 0.001
/* A clock is known if the standard error of its time is at most this share. */
#define KNOWN_ERROR 0.005
/* A clock that was not measured is hoped to need less than its curve says, by this number of
 * standard deviations of the measured clocks from their curves, but at most by this share. */
#define MISFIT_FACTOR 2.0
#define MISFIT_MAX 0.05
/* Rounds at the highest clocks at the start, also those with a probe: at least, and at most, and
 * the share of the permitted slowdown that the uncertainty of their times may take. */
enum { FIRST_ROUNDS_MIN = 2, FIRST_ROUNDS_MAX = 8 };
#define UNCERTAIN_SHARE 0.5
#define UNCERTAIN_ERRORS 2.0
/* The first trial of an instruction has this share of the highest clock. */
#define FIRST_TRIAL_SHARE 0.85
/* A clock that may be as fast as the highest one is tried even if it is expected to be slower, as
 * long as it is the next lower clock, or not further below the measured clocks than this share. */
#define FREE_SHARE 0.003
#define FREE_REACH 0.85
/* ... and as long as its time has a larger standard error than this. */
#define FREE_ERROR 0.0015
/* Until the ranks have measured changes to a clock, these are assumed to take at most so long, in
 * s; if there is no room for a trial, the next value is assumed. On measured GPUs, changes take
 * some ms to some hundred ms (Velicka, Vysocky, Riha, arXiv 2502.20075). If they take longer than
 * the value that leaves room, a round can be slower than promised. */
static const double UNKNOWN_LATENCIES_S[] = {0.5, 0.2, 0.05, 0.02, 0.005};
enum { LATENCY_GUESSES = sizeof UNKNOWN_LATENCIES_S / sizeof UNKNOWN_LATENCIES_S[0] };
/* If no latency is known, a block lasts this long, or as long as the guess if that is shorter. */
#define USUAL_LATENCY_S 0.1
/* On GPUs that change their clocks late, some clocks can never be tried, and as long as no latency
 * is known, runs may have no known clock. The exploration ends after this many rounds in a row
 * without a new clock. */
enum { STALE_ROUNDS = 4 };
/* A clock that was not measured may take so much longer than the rules of explorer_internal.h
 * permit. If there is no room for a trial, the second value is assumed, unless the measured clocks
 * differ from their curves by more. Measured profiles break the rules by 1.1 % at most. */
static const double BREAK_SHARES[] = {HARPE_CLOCK_BREAK_SHARE, 0.03};
enum { BREAK_GUESSES = sizeof BREAK_SHARES / sizeof BREAK_SHARES[0] };
/* If there is still no room, an instruction is assumed to slow down as in the other stages, and by
 * at most HARPE_CLOCK_BREAK_SHARE more, if so many of them agree within this share. */
enum { SIBLINGS_MIN = 3 };
#define SIBLINGS_DIFFER 0.02
/* The exploration ends after this many rounds in any case. */
enum { ROUNDS_MAX = 40, PLANS_UNDER_CAP = 40 };
/* Bounds of a profile. */
#define TIME_MAX_S 1e6
#define ENERGY_MAX_J 1e9

typedef struct planning {
    harpe_explorer *explorer;
    const harpe_explorer_terms *terms;
    harpe_arena arena;
    harpe_clock_estimate **known; /* per entry */
    harpe_trial_choices *choices;
    harpe_trials trials;
    size_t *clocks;    /* of each instruction: planned, chosen, in the round that runs */
    double *latency_s; /* of each clock of each pipeline rank: the bounds, then the usual times */
    const double **bound_s, **usual_s; /* per pipeline rank */
    size_t late_count;                 /* clocks of all pipeline ranks */
    bool guesses;                      /* a latency is not known, so a guess counts */
    double allowed_s;                  /* the time that the terms allow */
    double fastest_s;
    double time_share, energy_share; /* that a clock may need less than its curve says */
    bool probes;                     /* the round has the highest clocks, but for a probe */
    bool is_blocked; /* not even the highest clocks fit after those of the round that runs */
} planning;

/* One of the two plans. */
typedef struct solution {
    harpe_problem *problem;
    int *frequency_mhz; /* of each instruction */
    harpe_quick_plan plan;
    double fastest_s;
} solution;

static const harpe_clock_curve *curve_of(const planning *self, size_t entry) {
    return &self->explorer->entries[entry].curve;
}

/* ---- Profiles -------------------------------------------------------------------------------- */

static size_t lowest_observed(const harpe_clock_curve *curve) {
    size_t lowest = 0;
    for (size_t c = 0; c < curve->count; c++)
        if (curve->points[c].weight > 0) lowest = c;
    return lowest;
}

/* Returns true if a clock may cost no time, and this is not certain. */
static bool may_be_free(const harpe_clock_curve *curve, const harpe_clock_estimate *known,
                        size_t c) {
    size_t lowest = lowest_observed(curve);
    return c > 0 && known[c].error > FREE_ERROR && lowest > 0 &&
           known[c].lower_s <= known[0].time_s * (1 + FREE_SHARE) &&
           (c <= lowest + 1 || curve->mhz[c] >= FREE_REACH * curve->mhz[lowest]);
}

/* Returns the time that the planner should expect of a clock. A clock that may cost no time is
 * expected to cost none, because otherwise it would never be measured. */
static double hoped_s(const harpe_clock_curve *curve, const harpe_clock_estimate *known, size_t c) {
    return may_be_free(curve, known, c) ? known[0].time_s : known[c].time_s;
}

static size_t row_limit(const planning *self) {
    size_t rows = 0;
    for (size_t e = 0; e < self->explorer->pipeline->entry_count; e++)
        rows += curve_of(self, e)->count;
    return rows;
}

static harpe_status make_profile(const planning *self, bool only_measured, harpe_profile **out,
                                 harpe_error *error) {
    const harpe_online_pipeline *pipeline = self->explorer->pipeline;
    harpe_measurement *rows = harpe_calloc(row_limit(self), sizeof *rows);
    if (!rows) return harpe_fail_memory(error);
    size_t count = 0;
    for (size_t e = 0; e < pipeline->entry_count; e++) {
        const harpe_clock_curve *curve = curve_of(self, e);
        const harpe_explorer_entry *own = &self->explorer->entries[e];
        for (size_t c = 0; c < curve->count; c++) {
            const harpe_clock_estimate *known = &self->known[e][c];
            bool is_measured = curve->points[c].weight >= 1 || c == 0;
            double time_s = only_measured ? known->time_s : hoped_s(curve, self->known[e], c);
            double energy_j = known->energy_j * time_s / known->time_s * own->energy_ratio;
            if (!is_measured) {
                time_s *= 1 - self->time_share;
                energy_j *= 1 - self->energy_share;
            }
            time_s *= own->time_ratio;
            if ((only_measured && !is_measured) || !(time_s <= TIME_MAX_S) ||
                !(energy_j <= ENERGY_MAX_J))
                continue;
            rows[count++] = harpe_explorer_row(
                self->explorer, e, (harpe_profile_point){curve->mhz[c], time_s, energy_j},
                harpe_explorer_gpus_per_stage(self->explorer));
        }
    }
    harpe_status status = harpe_profile_new(rows, count, out, error);
    free(rows);
    return status;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

/* Returns the time of the fastest plan within the power cap. */
static harpe_status find_time_under_cap(const planning *self, const harpe_profile *profile,
                                        double *time_s, harpe_error *error) {
    const harpe_explorer_terms *terms = self->terms;
    harpe_online_plans *plans;
    harpe_status status =
        harpe_online_plans_new(self->explorer->pipeline, profile, terms->blocking_power_w,
                               PLANS_UNDER_CAP, terms->undisturbed_s, &plans, error);
    if (status != HARPE_OK) return status;
    size_t chosen =
        harpe_online_plans_choose(plans, terms->slowdown, &terms->requests, terms->outside);
    *time_s = harpe_plan_set_at(plans->set, chosen)->time_s;
    harpe_online_plans_free(plans);
    return HARPE_OK;
}

/* Finds the time that the terms allow. */
static harpe_status find_allowed(planning *self, const harpe_profile *profile, double fastest_s,
                                 harpe_error *error) {
    const harpe_explorer_terms *terms = self->terms;
    double undisturbed_s = terms->undisturbed_s > 0 ? terms->undisturbed_s : fastest_s;
    double time_s = harpe_online_allowed_s(fastest_s, undisturbed_s, terms->slowdown,
                                           &terms->requests, terms->outside);
    harpe_status status = terms->requests.power_cap_w > 0
                              ? find_time_under_cap(self, profile, &time_s, error)
                              : HARPE_OK;
    if (status == HARPE_OK) self->allowed_s = fmax(time_s, fastest_s) * (1 + 1e-9);
    return status;
}

/* Makes one of the two plans. Free `made->problem` in any case. */
static harpe_status solve(planning *self, bool only_measured, solution *made, harpe_error *error) {
    const harpe_online_pipeline *pipeline = self->explorer->pipeline;
    harpe_problem_options options = {.blocking_power_w = self->terms->blocking_power_w,
                                     .blocking_power_count = (size_t)pipeline->rank_count};
    harpe_profile *profile = NULL;
    harpe_plan all;
    harpe_status status = make_profile(self, only_measured, &profile, error);
    if (status == HARPE_OK)
        status = harpe_problem_new(profile, pipeline->schedule, &options, &made->problem, error);
    if (status == HARPE_OK &&
        (size_t)made->problem->instruction_count != pipeline->instruction_count)
        status = harpe_fail(error, HARPE_NOT_SUPPORTED,
                            "the planner divides instructions of this schedule");
    made->frequency_mhz =
        harpe_arena_alloc(&self->arena, pipeline->instruction_count, sizeof *made->frequency_mhz);
    if (status == HARPE_OK && !made->frequency_mhz) status = harpe_fail_memory(error);
    if (status == HARPE_OK) status = harpe_plan_all_maximum(made->problem, &all, error);
    if (status == HARPE_OK) {
        made->fastest_s = all.time_s;
        status = find_allowed(self, profile, all.time_s, error);
    }
    if (status == HARPE_OK)
        status = harpe_quick_plan_make(made->problem, self->allowed_s, made->frequency_mhz,
                                       &made->plan, error);
    harpe_profile_free(profile);
    return status;
}

/* ---- What is wanted -------------------------------------------------------------------------- */

static size_t index_of(const harpe_clock_curve *curve, int mhz) {
    size_t c = 0;
    while (c + 1 < curve->count && curve->mhz[c] > mhz)
        c++;
    return c;
}

static bool is_known(const planning *self, size_t e, size_t c) {
    return self->known[e][c].error <= KNOWN_ERROR &&
           !may_be_free(curve_of(self, e), self->known[e], c);
}

/* An instruction of which only the highest clock is known gets a first trial. */
static void want_first_trial(planning *self, size_t e) {
    const harpe_clock_curve *curve = curve_of(self, e);
    if (curve->count < 2 || lowest_observed(curve) > 0) return;
    size_t c = index_of(curve, (int)(FIRST_TRIAL_SHARE * curve->mhz[0]));
    self->choices[e].is_wanted_most[c > 0 ? c : 1] = true;
}

static size_t find_wanted(planning *self, const solution *target) {
    const harpe_online_pipeline *pipeline = self->explorer->pipeline;
    size_t wanted = 0;
    for (size_t i = 0; i < pipeline->instruction_count; i++) {
        size_t e = (size_t)pipeline->entry_of[i];
        size_t c = index_of(curve_of(self, e), target->frequency_mhz[i]);
        self->clocks[i] = c;
        if (!is_known(self, e, c)) self->choices[e].is_wanted_most[c] = true;
    }
    for (size_t e = 0; e < pipeline->entry_count; e++) {
        want_first_trial(self, e);
        for (size_t c = 1; c < curve_of(self, e)->count; c++) {
            self->choices[e].is_wanted[c] = !is_known(self, e, c);
            wanted += self->choices[e].is_wanted_most[c];
        }
    }
    return wanted;
}

/* ---- The next round -------------------------------------------------------------------------- */

/* The uncertainty of the times at the highest clocks, as a share. */
static double uncertainty(const planning *self) {
    size_t entries = self->explorer->pipeline->entry_count;
    double sum = 0;
    for (size_t e = 0; e < entries; e++)
        sum += self->known[e][0].error;
    return UNCERTAIN_ERRORS * sum / (double)entries;
}

static void scale_bounds(planning *self) {
    for (size_t e = 0; e < self->explorer->pipeline->entry_count; e++) {
        const harpe_explorer_entry *own = &self->explorer->entries[e];
        for (size_t c = 0; c < curve_of(self, e)->count; c++) {
            harpe_clock_estimate *known = &self->known[e][c];
            known->time_s *= own->time_ratio;
            known->lower_s *= own->time_ratio;
            known->upper_s *= own->time_ratio;
            known->energy_j *= own->energy_ratio;
        }
    }
}

/* Finds how long changes of the clock may take. */
static void find_latencies(planning *self, double guess_s) {
    const harpe_explorer *explorer = self->explorer;
    const harpe_online_latencies *latencies = explorer->latencies;
    bool is_unknown = harpe_online_latencies_are_unknown(latencies);
    double usual_s = is_unknown ? fmin(guess_s, USUAL_LATENCY_S) : 0;
    double *bound = self->latency_s;
    self->guesses = false;
    for (int p = 0; p < explorer->pipeline->rank_count && self->trials.is_late; p++) {
        const harpe_tried_clocks *clocks = &explorer->clocks[p];
        for (size_t c = 0; c < clocks->count; c++) {
            int mhz = clocks->mhz[c];
            bound[c] = harpe_online_latencies_bound_s(latencies, p, mhz, guess_s);
            bound[self->late_count + c] =
                harpe_online_latencies_bound_s(latencies, p, mhz, usual_s);
            self->guesses |= bound[c] == guess_s;
        }
        bound += explorer->clock_count;
    }
}

/* Returns true if the highest clocks take longer than `limit_s` because the changes to them are
 * late. Then no change fits, and the round has the highest clocks. After it, none of them is late.
 */
static bool are_highest_late(const planning *self, double limit_s) {
    bool had_lower = false;
    for (size_t i = 0; i < self->explorer->pipeline->instruction_count; i++)
        had_lower |= self->trials.clock_before[i] > 0;
    return had_lower && self->explorer->next_promised_s > limit_s * (1 + 1e-9);
}

static harpe_status place_within(planning *self, double limit_s, harpe_error *error) {
    harpe_status status = HARPE_OK;
    self->guesses = true;
    self->trials.placed = 0;
    for (int i = 0; i < LATENCY_GUESSES && self->guesses && self->trials.placed == 0; i++) {
        find_latencies(self, UNKNOWN_LATENCIES_S[i]);
        status = self->probes ? harpe_trials_probe(&self->trials, limit_s, error)
                              : harpe_trials_place(&self->trials, limit_s, error);
        if (status != HARPE_OK) break;
    }
    return status;
}

/* A straggler that is a GPU of this job has made the fastest time longer. What an exploration may
 * cost is a share of the time without it, and the uncertainty counts against the allowed time. */
static double limit_beside_straggler_s(const planning *self, double spare) {
    double allowed_s = fmax(self->allowed_s * (1 - uncertainty(self)),
                            self->explorer->undisturbed_s * (1 + spare));
    return fmax(self->fastest_s, allowed_s);
}

static void widen_bounds(planning *self, double factor) {
    for (size_t e = 0; e < self->explorer->pipeline->entry_count; e++)
        for (size_t c = 0; c < curve_of(self, e)->count; c++)
            if (!isfinite(self->known[e][c].error)) self->known[e][c].upper_s *= factor;
}

/* Returns how much longer the other stages' same instruction takes at a clock, at most. Returns
 * INFINITY if too few of them have tried it, or if they differ. */
static double ratio_of_siblings(const planning *self, size_t entry, size_t c) {
    const harpe_online_entry *entries = self->explorer->pipeline->entries;
    const harpe_clock_curve *own = curve_of(self, entry);
    double least = INFINITY, most = 0;
    size_t count = 0;
    for (size_t e = 0; e < self->explorer->pipeline->entry_count; e++) {
        const harpe_clock_curve *other = curve_of(self, e);
        const harpe_clock_estimate *known = self->known[e];
        if (e == entry || strcmp(entries[e].instruction, entries[entry].instruction) != 0 ||
            other->count != own->count || other->mhz[0] != own->mhz[0] ||
            other->mhz[c] != own->mhz[c] || !isfinite(known[c].error))
            continue;
        double ratio = known[c].upper_s / known[0].time_s;
        least = fmin(least, ratio);
        most = fmax(most, ratio);
        count++;
    }
    return count >= SIBLINGS_MIN && most <= least * (1 + SIBLINGS_DIFFER) ? most : INFINITY;
}

/* Bounds the clocks that only other stages have tried. Returns true if a bound has changed. */
static bool trust_siblings(planning *self) {
    bool has_changed = false;
    for (size_t e = 0; e < self->explorer->pipeline->entry_count; e++) {
        for (size_t c = 1; c < curve_of(self, e)->count; c++) {
            harpe_clock_estimate *known = &self->known[e][c];
            if (isfinite(known->error)) continue;
            double upper_s = ratio_of_siblings(self, e, c) * self->known[e][0].time_s *
                             (1 + HARPE_CLOCK_BREAK_SHARE);
            has_changed |= upper_s < known->upper_s;
            known->upper_s = fmin(known->upper_s, upper_s);
        }
    }
    return has_changed;
}

static harpe_status place_trials(planning *self, double limit_s, harpe_error *error) {
    harpe_status status = HARPE_OK;
    double present = 1;
    for (int i = 0; i < BREAK_GUESSES && self->trials.placed == 0 && status == HARPE_OK; i++) {
        if (BREAK_SHARES[i] < self->time_share) continue;
        widen_bounds(self, (1 + BREAK_SHARES[i]) / present);
        present = 1 + BREAK_SHARES[i];
        status = place_within(self, limit_s, error);
    }
    if (status == HARPE_OK && self->trials.placed == 0 && trust_siblings(self))
        status = place_within(self, limit_s, error);
    return status;
}

/* Places the trials, and makes the schedule of the round. */
static harpe_status compose(planning *self, const harpe_problem *problem, harpe_error *error) {
    harpe_explorer *explorer = self->explorer;
    const harpe_online_pipeline *pipeline = explorer->pipeline;
    size_t count = pipeline->instruction_count;
    double spare = fmax(0, self->terms->exploration_slowdown - uncertainty(self));
    double limit_s = fmax(self->allowed_s, self->fastest_s * (1 + spare));
    if (explorer->undisturbed_s > 0) limit_s = limit_beside_straggler_s(self, spare);
    scale_bounds(self);
    const int *mhz = self->terms->ran_mhz ? self->terms->ran_mhz : explorer->frequency_mhz;
    for (size_t i = 0; i < count; i++)
        self->clocks[2 * count + i] =
            index_of(curve_of(self, (size_t)pipeline->entry_of[i]), mhz[i]);
    self->trials = (harpe_trials){.dag = &problem->dag,
                                  .entry_of = pipeline->entry_of,
                                  .entries = self->choices,
                                  .entry_count = pipeline->entry_count,
                                  .first_entry = explorer->rounds % pipeline->entry_count,
                                  .planned = self->clocks,
                                  .rank_count = pipeline->rank_count,
                                  .is_late = harpe_explorer_may_be_late(explorer),
                                  .rank_offset = pipeline->rank_offset,
                                  .latency_s = self->bound_s,
                                  .usual_s = self->usual_s,
                                  .clock_before = self->clocks + 2 * count,
                                  .clock = self->clocks + count};
    harpe_status status = place_trials(self, limit_s, error);
    if (status != HARPE_OK) return status;
    for (size_t i = 0; i < count; i++)
        explorer->next_mhz[i] =
            curve_of(self, (size_t)pipeline->entry_of[i])->mhz[self->trials.clock[i]];
    explorer->next_promised_s = self->trials.length_s;
    self->is_blocked = self->trials.placed == 0 && are_highest_late(self, limit_s);
    return HARPE_OK;
}

/* The bound shows what plans could save that mix measured clocks, and the plan shows what one
 * really saves. */
static bool is_as_good(const harpe_quick_plan *measured, const harpe_quick_plan *target) {
    return measured->lower_bound_j <= target->lower_bound_j * (1 + WORTHWHILE_SHARE) &&
           measured->energy_j <= target->energy_j * (1 + 2 * WORTHWHILE_SHARE);
}

/* Counts the rounds without a new clock. Returns true if no new one can be expected. */
static bool is_stale(harpe_explorer *explorer) {
    size_t measured = harpe_explorer_measured(explorer);
    bool is_new = measured > explorer->measured_before;
    explorer->stale_rounds = is_new ? 0 : explorer->stale_rounds + 1;
    explorer->measured_before = measured;
    return harpe_explorer_may_be_late(explorer) && explorer->stale_rounds >= STALE_ROUNDS;
}

static harpe_status explore(planning *self, bool *is_finished, harpe_error *error) {
    harpe_explorer *explorer = self->explorer;
    solution target = {0}, measured = {0};
    harpe_status status = solve(self, true, &measured, error);
    if (status == HARPE_OK) status = solve(self, false, &target, error);
    if (status == HARPE_OK) {
        explorer->fastest_s = self->fastest_s = measured.fastest_s;
        explorer->wanted_count = find_wanted(self, &target);
        bool is_enough = is_as_good(&measured.plan, &target.plan);
        bool may_end = explorer->wanted_count == 0 || is_enough || explorer->rounds >= ROUNDS_MAX;
        bool is_over = is_stale(explorer);
        for (size_t e = 0; e < explorer->pipeline->entry_count && explorer->rounds < ROUNDS_MAX;
             e++)
            may_end =
                may_end && (curve_of(self, e)->count < 2 || lowest_observed(curve_of(self, e)) > 0);
        if (!may_end && !is_over) status = compose(self, target.problem, error);
        *is_finished = self->trials.placed == 0 && !self->is_blocked;
    }
    harpe_problem_free(target.problem);
    harpe_problem_free(measured.problem);
    return status;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static bool begin(planning *self) {
    const harpe_online_pipeline *pipeline = self->explorer->pipeline;
    size_t entries = pipeline->entry_count, count = pipeline->instruction_count;
    size_t rows = row_limit(self), ranks = (size_t)pipeline->rank_count, at = 0;
    self->late_count = ranks * self->explorer->clock_count;
    self->known = harpe_arena_alloc(&self->arena, entries, sizeof *self->known);
    harpe_clock_estimate *estimates = harpe_arena_alloc(&self->arena, rows, sizeof *estimates);
    bool *flags = harpe_arena_alloc(&self->arena, 3 * rows, sizeof *flags);
    self->choices = harpe_arena_alloc(&self->arena, entries, sizeof *self->choices);
    self->clocks = harpe_arena_alloc(&self->arena, 3 * count, sizeof *self->clocks);
    self->latency_s =
        harpe_arena_alloc(&self->arena, 2 * self->late_count, sizeof *self->latency_s);
    self->bound_s = harpe_arena_alloc(&self->arena, 2 * ranks, sizeof *self->bound_s);
    if (self->arena.has_failed) return false;
    self->usual_s = self->bound_s + ranks;
    for (size_t p = 0; p < ranks; p++) {
        self->bound_s[p] = self->latency_s + p * self->explorer->clock_count;
        self->usual_s[p] = self->bound_s[p] + self->late_count;
    }
    for (size_t e = 0; e < entries; e++) {
        size_t clocks = curve_of(self, e)->count;
        int p = pipeline->entries[e].pipeline_rank;
        self->known[e] = estimates + at;
        self->choices[e] =
            (harpe_trial_choices){.rank = p,
                                  .count = clocks,
                                  .estimates = self->known[e],
                                  .waiting_w = self->terms->blocking_power_w[p] *
                                               harpe_explorer_gpus_per_stage(self->explorer),
                                  .is_wanted = flags,
                                  .is_wanted_most = flags + clocks,
                                  .is_placed = flags + 2 * clocks};
        at += clocks;
        flags += 3 * clocks;
    }
    return true;
}

/* Returns false if the highest clock of an instruction was not measured. */
static bool estimate(planning *self) {
    const harpe_explorer *explorer = self->explorer;
    double noise = harpe_explorer_noise_of(explorer);
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++)
        if (!harpe_clock_curve_estimate(curve_of(self, e), noise, self->choices[e].waiting_w,
                                        self->known[e]))
            return false;
    return true;
}

/* Returns how much less than the curve says a clock may need that was not measured. */
static double hoped_share(double squares, size_t count) {
    return count == 0 ? 0
                      : fmin(MISFIT_FACTOR * sqrt(fmax(squares, 0) / (double)count), MISFIT_MAX);
}

/* The curves are as far from clocks that were not measured as from those that were. */
static void find_misfit(planning *self) {
    const harpe_explorer *explorer = self->explorer;
    double noise = harpe_explorer_noise_of(explorer);
    harpe_clock_misfit sum = {0};
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++)
        harpe_clock_curve_add_misfit(curve_of(self, e), noise, &sum);
    self->time_share = hoped_share(sum.time, sum.count);
    self->energy_share = hoped_share(sum.energy, sum.count);
}

static bool needs_highest(const planning *self) {
    const harpe_explorer *explorer = self->explorer;
    if (explorer->looks > 0) return true;
    if (explorer->is_exploring) return explorer->surprises > 0 && explorer->rounds < ROUNDS_MAX;
    if (explorer->undisturbed_s > 0) return false; /* a straggler is answered with what is known */
    if (explorer->rounds < FIRST_ROUNDS_MIN) return true;
    return explorer->rounds < FIRST_ROUNDS_MAX &&
           uncertainty(self) > UNCERTAIN_SHARE * self->terms->exploration_slowdown;
}

/* After a round at the highest clocks, the ranks learn how long changes of their clocks take. */
static bool needs_probe(const harpe_explorer *explorer) {
    if (explorer->looks > 0) return !(explorer->undisturbed_s > 0);
    return !explorer->is_exploring && explorer->rounds > 0 &&
           harpe_online_latencies_are_unknown(explorer->latencies);
}

/* Makes a round at the highest clocks with a probe. If a straggler has just come, finds the fastest
 * time without it, and makes no probe. */
static harpe_status make_probe(planning *self, harpe_error *error) {
    solution highest = {0};
    harpe_status status = solve(self, true, &highest, error);
    self->fastest_s = highest.fastest_s;
    self->probes = true;
    if (status == HARPE_OK && self->explorer->looks > 0)
        self->explorer->undisturbed_s = highest.fastest_s;
    else if (status == HARPE_OK)
        status = compose(self, highest.problem, error);
    harpe_problem_free(highest.problem);
    return status;
}

harpe_status harpe_explorer_plan(harpe_explorer *explorer, const harpe_explorer_terms *terms,
                                 bool *is_finished, harpe_error *error) {
    planning self = {.explorer = explorer, .terms = terms};
    *is_finished = false;
    harpe_status status = begin(&self) ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) {
        bool is_estimated = estimate(&self);
        find_misfit(&self);
        if (!is_estimated || needs_highest(&self)) {
            harpe_explorer_run_highest(explorer);
            if (is_estimated && needs_probe(explorer)) status = make_probe(&self, error);
        } else {
            explorer->is_exploring = true;
            status = explore(&self, is_finished, error);
        }
    }
    harpe_arena_free(&self.arena);
    return status;
}
