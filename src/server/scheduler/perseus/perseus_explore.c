/* SPDX-License-Identifier: Apache-2.0 */
/* Connects the explorer with the job: gives it the terms of the next round, keeps the points of the
 * sweep up to date, and makes plans when enough is known. While a job has plans, they stay in use
 * and the phase stays PLAN. */
#include "server/scheduler/perseus/perseus_explore.h"

#include <math.h>

#include "base/error.h"
#include "base/format.h"
#include "server/scheduler/perseus/explorer_plan.h"
#include "server/scheduler/perseus/perseus_plan.h"
#include "server/scheduler/perseus/perseus_replicas.h"
#include "server/scheduler/perseus/perseus_report.h"
#include "server/scheduler/perseus/perseus_watch.h"

/* After this many rounds in a row that took longer than promised, the measurements are of no use:
 * the job has changed. If it changes all the time, the exploration goes on with what there is. */
enum { SURPRISES_MAX = 3, RESTARTS_MAX = 2 };

bool harpe_perseus_is_exploring(const harpe_perseus *self) {
    return self->phase == HARPE_PERSEUS_EXPLORE ||
           (self->phase == HARPE_PERSEUS_PLAN && self->explores);
}

/* ---- The terms of a round -------------------------------------------------------------------- */

static void find_blocking_power(harpe_perseus *self) {
    harpe_sweep *plans_sweep = self->sweep;
    self->sweep = harpe_perseus_sweep_under_way(self);
    harpe_perseus_find_blocking_power(self);
    self->sweep = plans_sweep;
}

/* Returns the time of an iteration outside of the pipeline. Before the first plan, it is known from
 * the rounds at the highest clocks. */
static harpe_online_outside outside_of(const harpe_perseus *self) {
    const harpe_sweep_cost *cost = &harpe_perseus_sweep_under_way(self)->cost;
    double undisturbed_s = self->explorer->undisturbed_s;
    double fastest_s = undisturbed_s > 0 ? undisturbed_s : self->explorer->fastest_s;
    if (self->plans && !self->sweep_again) return harpe_perseus_outside(self);
    if (!(fastest_s > 0) || !(cost->first_time_s > 0)) return (harpe_online_outside){0, 0};
    return (harpe_online_outside){fmax(0, cost->first_time_s - fastest_s), 0};
}

/* Returns the clocks of the round that runs, the lowest of all replicas. Returns NULL if they are
 * those of the explorer. */
static const int *running_mhz(const harpe_perseus *self) {
    if (self->phase != HARPE_PERSEUS_PLAN || self->explores || self->is_plan_new) return NULL;
    const int *lowest_mhz = harpe_perseus_replicas_lowest(self);
    if (lowest_mhz) return lowest_mhz;
    return harpe_plan_set_at(self->plans->set, self->running)->frequency_mhz;
}

static harpe_explorer_terms terms_of(const harpe_perseus *self) {
    return (harpe_explorer_terms){
        .slowdown = self->args.slowdown,
        .exploration_slowdown = self->args.exploration_slowdown,
        .requests = self->requests,
        .outside = outside_of(self),
        .undisturbed_s = self->plans ? self->plans->undisturbed_s : self->explorer->undisturbed_s,
        .blocking_power_w = self->blocking_powers_w,
        .gpus_per_stage = harpe_perseus_gpus_per_stage(self),
        .ran_mhz = running_mhz(self),
    };
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

harpe_status harpe_perseus_learn(harpe_perseus *self, const harpe_online_round *round,
                                 harpe_error *error) {
    harpe_explorer *explorer = self->explorer;
    harpe_sweep *sweep = harpe_perseus_sweep_under_way(self);
    bool is_first = self->phase == HARPE_PERSEUS_EXPLORE;
    if (is_first) harpe_sweep_count(sweep, round);
    if (round->problem[0]) return is_first ? harpe_sweep_miss(sweep, round, error) : HARPE_OK;
    sweep->misses = 0;
    harpe_explorer_terms terms = terms_of(self);
    harpe_status status = harpe_explorer_observe(explorer, round, &self->reports, &terms, error);
    if (status == HARPE_OK) status = harpe_explorer_hand_over(explorer, error);
    return status;
}

static void log_exploration(const harpe_perseus *self) {
    const harpe_sweep_cost *cost = &harpe_perseus_sweep_under_way(self)->cost;
    double extra_j = harpe_perseus_sweep_extra_energy_j(self);
    double extra_s = harpe_perseus_sweep_extra_time_s(self);
    harpe_perseus_log(self, HARPE_LOG_INFO,
                      "exploration finished: %zu rounds, %zu iterations, %zu clocks measured; it "
                      "took %s %s and %s %s than at the highest frequency",
                      cost->rounds, cost->iterations, harpe_explorer_measured(self->explorer),
                      HARPE_TIME(fabs(extra_s)), extra_s > 0 ? "longer" : "less",
                      HARPE_ENERGY(fabs(extra_j)), extra_j > 0 ? "more" : "less");
}

/* The first plans of an exploration. */
static void plan_first(harpe_perseus *self) {
    harpe_sweep *sweep = harpe_perseus_sweep_under_way(self);
    log_exploration(self);
    sweep->position = sweep->frequency_count;
    self->is_plan_new = true;
    bool is_again = self->sweep_again != NULL;
    harpe_perseus_plan_beside_straggler(self);
    if (!is_again) harpe_perseus_hand_over_profile(self);
}

/* Plans with more clocks than before. */
static harpe_status plan_more(harpe_perseus *self, harpe_error *error) {
    self->explores_next = false;
    self->is_plan_new = true;
    harpe_status status = harpe_perseus_make_plans(self, self->plans->undisturbed_s, error);
    if (status != HARPE_OK) return status;
    harpe_perseus_hand_over_profile(self);
    harpe_perseus_log(self, HARPE_LOG_INFO, "%zu clocks are measured now, and %zu plans are made",
                      harpe_explorer_measured(self->explorer),
                      harpe_plan_set_count(self->plans->set));
    return HARPE_OK;
}

/* The job has changed, so nothing that was measured holds. */
static void begin_anew(harpe_perseus *self) {
    harpe_perseus_log(self, HARPE_LOG_WARNING,
                      "%d rounds in a row took longer than the measurements permit: measures again",
                      self->explorer->surprises);
    harpe_explorer_restart(self->explorer);
    harpe_perseus_sweep_under_way(self)->position = 0;
}

static harpe_status advance(harpe_perseus *self, harpe_error *error) {
    harpe_explorer *explorer = self->explorer;
    harpe_sweep *sweep = harpe_perseus_sweep_under_way(self);
    bool is_finished;
    find_blocking_power(self);
    harpe_explorer_terms terms = terms_of(self);
    harpe_status status = harpe_explorer_plan(explorer, &terms, &is_finished, error);
    if (status != HARPE_OK) return status;
    bool is_first = self->phase == HARPE_PERSEUS_EXPLORE;
    bool is_begun =
        explorer->is_exploring || (explorer->looks > 0 && harpe_explorer_measured(explorer) > 0);
    if (is_first && is_begun && sweep->position == 0) sweep->position = 1;
    if (is_finished && is_first)
        plan_first(self);
    else if (is_finished)
        status = plan_more(self, error);
    else if (!is_first)
        self->explores_next = true;
    return status;
}

harpe_status harpe_perseus_explore_on(harpe_perseus *self, harpe_error *error) {
    harpe_sweep *sweep = harpe_perseus_sweep_under_way(self);
    bool is_first = self->phase == HARPE_PERSEUS_EXPLORE;
    if (sweep->misses > 0) {
        harpe_perseus_log(self, HARPE_LOG_WARNING,
                          "a round of the exploration had no use: measurements are missing");
        if (is_first && harpe_sweep_is_over(sweep)) plan_first(self);
        return HARPE_OK;
    }
    bool has_changed = self->explorer->surprises >= SURPRISES_MAX;
    if (has_changed && !is_first) {
        self->explores_next = false; /* the plan is watched, and drift is corrected */
        return HARPE_OK;
    }
    if (has_changed && self->explorer->restarts < RESTARTS_MAX) {
        begin_anew(self);
        return HARPE_OK;
    }
    harpe_error reason = {0};
    harpe_status status = advance(self, &reason);
    if (status == HARPE_OK) return HARPE_OK;
    if (self->plans) return harpe_fail(error, status, "%s", reason.message);
    harpe_perseus_hold(self, reason.message);
    return HARPE_OK;
}

void harpe_perseus_end_straggler(harpe_perseus *self) {
    harpe_explorer *explorer = self->explorer;
    if (!explorer) return;
    bool has_straggler_only = self->phase == HARPE_PERSEUS_EXPLORE &&
                              !(explorer->undisturbed_s > 0) &&
                              harpe_explorer_measured(explorer) > 0;
    harpe_explorer_forget_straggler(explorer);
    if (!has_straggler_only) return;
    harpe_explorer_restart(explorer);
    explorer->looks = 1; /* the present round is not counted */
    harpe_perseus_sweep_under_way(self)->position = 0;
}

void harpe_perseus_explore_request(harpe_perseus *self) {
    harpe_error reason = {0};
    bool has_begun = self->explorer && (self->explorer->is_exploring || self->explorer->looks > 0);
    if (!has_begun || (self->phase != HARPE_PERSEUS_PLAN && self->phase != HARPE_PERSEUS_EXPLORE))
        return;
    if (self->phase == HARPE_PERSEUS_PLAN) {
        self->explorer->rounds = 0;
        self->explorer->surprises = 0;
    }
    self->explorer->measured_before = self->explorer->stale_rounds = 0;
    bool had_plan = self->phase == HARPE_PERSEUS_PLAN && !self->explores && !self->explores_next;
    bool is_finished;
    harpe_explorer_terms terms = terms_of(self);
    harpe_status status = HARPE_OK;
    if (had_plan) {
        status = harpe_explorer_plan(self->explorer, &terms, &is_finished, &reason);
        self->explores_next = status == HARPE_OK && !is_finished;
    } else {
        status = advance(self, &reason);
    }
    if (status == HARPE_OK) return;
    harpe_perseus_log(self, HARPE_LOG_WARNING, "no clocks are tried for the job request: %s",
                      reason.message);
    self->explores_next = false;
    harpe_explorer_run_highest(self->explorer);
}
