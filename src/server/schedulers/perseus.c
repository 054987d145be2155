/* SPDX-License-Identifier: Apache-2.0 */
/* Perseus: a job that starts from nothing. It sweeps, plans with what it measured, hands out a plan
 * and watches it; wishes choose another plan. One round of results is one step:
 *
 * phase     what it hands out             leaves when
 * COUNT     nothing: highest clocks       microbatches are counted -> SWEEP
 * SWEEP     the sweep's frequency, then    planned -> PLAN; no plan possible -> HOLD
 *           the highest for one round
 * PLAN      the plan that wishes choose   drift too large to correct -> SWEEP
 * HOLD      highest frequencies           never
 *
 * All of it runs on a worker; the planner too, after the results of the round that follows the
 * sweep: planning may take its time, and ranks go on meanwhile with what they have, which had
 * better not be the sweep's lowest frequency. Next changes nothing but which plan is running, so
 * that it can be asked again after a wish. */
#include "server/schedulers/perseus.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "plan/problem.h"
#include "server/schedulers/builtin.h"

enum { COUNT_MISSES_MAX = 3 };

/* ---- Shared ---------------------------------------------------------------------------------- */

void harpe_perseus_log(const harpe_perseus *self, harpe_log_level level, const char *format, ...) {
    if (!self->job->log.write) return;
    char text[512], line[768];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)snprintf(line, sizeof line, "%.200s: %s", self->job->job->job_id, text);
    self->job->log.write(self->job->log.user, level, line);
}

harpe_online_outside harpe_perseus_outside(const harpe_perseus *self) {
    return (harpe_online_outside){self->outside_time_s > 0 ? self->outside_time_s : 0,
                                  self->outside_energy_j > 0 ? self->outside_energy_j : 0};
}

int harpe_perseus_gpus_per_stage(const harpe_perseus *self) {
    return self->job->job->dp_degree * self->job->job->tp_degree;
}

void harpe_perseus_hold(harpe_perseus *self, const char *reason) {
    self->phase = HARPE_PERSEUS_HOLD;
    (void)snprintf(self->hold_reason, sizeof self->hold_reason, "%s", reason);
    if (!*reason) return;
    harpe_perseus_log(self, HARPE_LOG_ERROR, "runs at its highest frequencies from now on: %s",
                      reason);
}

/* ---- The profile ----------------------------------------------------------------------------- */

/* NULL: nowhere. To be freed. */
static char *profile_path(const harpe_perseus *self) {
    char *path = NULL;
    int length = -1;
    if (self->args.profile_path)
        length = asprintf(&path, "%s", self->args.profile_path);
    else if (self->job->directory)
        length = asprintf(&path, "%s/profile.csv", self->job->directory);
    return length < 0 ? NULL : path;
}

void harpe_perseus_write_profile(harpe_perseus *self) {
    harpe_profile *profile = NULL;
    harpe_error error = {0};
    char *path = profile_path(self);
    if (!path) return;
    harpe_status status = harpe_sweep_profile(self->sweep, &profile, &error);
    if (!status) status = harpe_profile_write_csv(profile, path, &error);
    if (status)
        harpe_perseus_log(self, HARPE_LOG_WARNING, "the profile is not written: %s", error.message);
    self->is_profile_written = status == HARPE_OK;
    harpe_profile_free(profile);
    free(path);
}

/* ---- Planning -------------------------------------------------------------------------------- */

harpe_status harpe_perseus_make_plans(harpe_perseus *self, harpe_error *error) {
    harpe_profile *profile;
    harpe_online_plans *plans;
    harpe_status status = harpe_sweep_profile(self->sweep, &profile, error);
    if (status) return status;
    double blocking_w = self->blocking_power_w * harpe_perseus_gpus_per_stage(self);
    status = harpe_online_plans_new(self->pipeline, profile, blocking_w, self->args.plans, &plans,
                                    error);
    harpe_profile_free(profile);
    if (status) return status;
    harpe_online_plans_free(self->plans);
    self->plans = plans;
    return HARPE_OK;
}

static void log_sweep(const harpe_perseus *self) {
    const harpe_sweep_cost *cost = &self->sweep->cost;
    harpe_perseus_log(self, HARPE_LOG_INFO,
                      "sweep finished: %zu rounds, %zu iterations; it took %.3g s more and %.4g J "
                      "%s than at the highest frequency",
                      cost->rounds, cost->iterations, harpe_sweep_extra_time_s(self->sweep),
                      harpe_sweep_extra_energy_j(self->sweep) > 0
                          ? harpe_sweep_extra_energy_j(self->sweep)
                          : -harpe_sweep_extra_energy_j(self->sweep),
                      harpe_sweep_extra_energy_j(self->sweep) > 0 ? "more" : "less");
}

static size_t chosen(const harpe_perseus *self) {
    return harpe_online_plans_choose(self->plans, self->args.slowdown, &self->wishes,
                                     harpe_perseus_outside(self));
}

static void log_plan(const harpe_perseus *self) {
    const harpe_plan *plan = harpe_plan_set_at(self->plans->set, chosen(self));
    const harpe_plan *all = &self->plans->all_maximum;
    harpe_perseus_log(
        self, HARPE_LOG_INFO,
        "planned: iterations of %.4g s (highest frequency: %.4g s) and %.5g J, %.1f %% "
        "less; blocking power %.4g W; %zu plans",
        plan->time_s, all->time_s, plan->energy_j, 100 * (1 - plan->energy_j / all->energy_j),
        self->blocking_power_w, harpe_plan_set_count(self->plans->set));
}

/* What the sweep's first round took beyond its prediction lies outside of the pipeline. */
static void calibrate(harpe_perseus *self) {
    const harpe_sweep_cost *cost = &self->sweep->cost;
    const harpe_plan *all = &self->plans->all_maximum;
    self->outside_time_s = cost->first_time_s > 0 ? cost->first_time_s - all->time_s : 0;
    self->outside_energy_j = cost->first_energy_j > 0 ? cost->first_energy_j - all->energy_j : 0;
    self->shift_time_s = self->shift_energy_j = 0;
}

static void end_sweep(harpe_perseus *self) {
    log_sweep(self);
    harpe_perseus_write_profile(self);
    if (!self->makes_plans) harpe_perseus_hold(self, "");
}

static void plan_first(harpe_perseus *self) {
    harpe_error error = {0};
    double given_w = self->args.blocking_power_w;
    self->blocking_power_w = given_w >= 0 ? given_w : harpe_sweep_blocking_power_w(self->sweep);
    if (harpe_perseus_make_plans(self, &error)) {
        harpe_perseus_hold(self, error.message);
        return;
    }
    calibrate(self);
    self->phase = HARPE_PERSEUS_PLAN;
    self->drift_rounds = 0;
    log_plan(self);
}

/* ---- Making it ------------------------------------------------------------------------------- */

harpe_status harpe_perseus_begin_sweep(harpe_perseus *self, int microbatches, harpe_error *error) {
    const harpe_scheduler_job *job = self->job;
    harpe_status status =
        harpe_online_pipeline_new(self->args.schedule, self->args.schedule_csv, job->job->pp_degree,
                                  microbatches, &self->pipeline, error);
    if (!status)
        status = harpe_sweep_new(self->pipeline, job->ranks, job->job->world_size,
                                 self->args.frequency_stride, self->args.rises_to_stop,
                                 &self->sweep, error);
    if (!status) self->phase = HARPE_PERSEUS_SWEEP;
    return status;
}

void harpe_perseus_destroy(void *state) {
    harpe_perseus *self = state;
    harpe_online_plans_free(self->plans);
    harpe_sweep_free(self->sweep);
    harpe_online_pipeline_free(self->pipeline);
    harpe_perseus_args_free(&self->args);
    free(self);
}

harpe_status harpe_perseus_create(const harpe_scheduler_job *job, const char *name,
                                  bool makes_plans, void **state, harpe_error *error) {
    harpe_perseus *self = harpe_calloc(1, sizeof *self);
    if (!self) return harpe_fail_memory(error);
    self->job = job;
    self->name = name;
    self->makes_plans = makes_plans;
    harpe_status status =
        harpe_perseus_args_read(name, makes_plans, job->args_json, &self->args, error);
    if (!status && !makes_plans && !self->args.profile_path && !job->directory)
        status = harpe_fail(error, HARPE_INVALID_ARGUMENT,
                            "%s has no file to write: set its argument profile_path, or dump_data",
                            name);
    if (!status && (self->args.num_microbatches > 0 || self->args.schedule_csv)) {
        status = harpe_perseus_begin_sweep(self, self->args.num_microbatches, error);
    } else if (!status) {
        status = harpe_online_can_count(self->args.schedule, job->job->pp_degree, error);
    }
    if (status) {
        harpe_perseus_destroy(self);
        return status;
    }
    *state = self;
    return HARPE_OK;
}

/* ---- Schedules ------------------------------------------------------------------------------- */

static harpe_status write_rank(const harpe_perseus *self, const harpe_rank_info *rank,
                               const int *plan_mhz, harpe_schedule_writer *writer,
                               harpe_error *error) {
    const harpe_online_pipeline *pipeline = self->pipeline;
    size_t end = pipeline->rank_offset[rank->pp_rank + 1];
    for (size_t i = pipeline->rank_offset[rank->pp_rank]; i < end; i++) {
        int entry = pipeline->entry_of[i];
        int mhz = plan_mhz ? plan_mhz[i] : harpe_sweep_frequency_mhz(self->sweep, entry);
        harpe_status status =
            writer->add(writer, rank->rank, pipeline->entries[entry].instruction, mhz, error);
        if (status) return status;
    }
    return HARPE_OK;
}

harpe_status harpe_perseus_next(void *state, harpe_schedule_writer *writer, harpe_error *error) {
    harpe_perseus *self = state;
    const int *plan_mhz = NULL;
    if (self->phase == HARPE_PERSEUS_COUNT) return HARPE_OK;
    if (self->phase == HARPE_PERSEUS_PLAN) {
        self->running = chosen(self);
        plan_mhz = harpe_plan_set_at(self->plans->set, self->running)->frequency_mhz;
    }
    harpe_status status = HARPE_OK;
    for (int r = 0; r < self->job->job->world_size && !status; r++)
        status = write_rank(self, &self->job->ranks[r], plan_mhz, writer, error);
    return status;
}

/* ---- Results --------------------------------------------------------------------------------- */

static harpe_status observe_count(harpe_perseus *self, const harpe_profiling_result *results,
                                  size_t count, harpe_error *error) {
    int microbatches;
    harpe_error missed;
    harpe_status status =
        harpe_online_count_microbatches(self->args.schedule, self->job->job->pp_degree,
                                        self->job->ranks, results, count, &microbatches, &missed);
    if (!status) {
        harpe_perseus_log(self, HARPE_LOG_INFO, "counted %d microbatches", microbatches);
        return harpe_perseus_begin_sweep(self, microbatches, error);
    }
    if (++self->count_misses < COUNT_MISSES_MAX) return HARPE_OK;
    return harpe_fail(error, status, "%s (%d rounds in a row)", missed.message, self->count_misses);
}

static harpe_status observe_sweep(harpe_perseus *self, const harpe_online_round *round,
                                  harpe_error *error) {
    if (harpe_sweep_is_over(self->sweep)) {
        plan_first(self);
        return HARPE_OK;
    }
    harpe_status status = harpe_sweep_observe(self->sweep, round, error);
    if (status) return status;
    if (self->sweep->misses > 0)
        harpe_perseus_log(self, HARPE_LOG_WARNING, "a round of the sweep is %s: %s",
                          harpe_sweep_is_over(self->sweep) ? "missing, and the sweep ends with it"
                                                           : "run again",
                          round->problem);
    if (harpe_sweep_is_over(self->sweep)) end_sweep(self);
    return HARPE_OK;
}

harpe_status harpe_perseus_observe(void *state, const harpe_profiling_result *results, size_t count,
                                   harpe_error *error) {
    harpe_perseus *self = state;
    int64_t number = self->round++;
    harpe_perseus_measured *measured = &self->history[number % HARPE_PERSEUS_HISTORY];
    *measured = (harpe_perseus_measured){.round = number};
    if (self->phase == HARPE_PERSEUS_COUNT) return observe_count(self, results, count, error);
    harpe_online_round round;
    harpe_status status =
        harpe_online_round_read(self->pipeline, self->job->ranks, results, count, &round, error);
    if (status) return status;
    measured->time_s = round.iteration_time_s;
    measured->energy_j = round.iteration_energy_j;
    if (self->phase == HARPE_PERSEUS_SWEEP) {
        status = observe_sweep(self, &round, error);
    } else if (self->phase == HARPE_PERSEUS_PLAN) {
        status = harpe_perseus_watch(self, &round, error);
    } else if (!self->makes_plans) {
        harpe_perseus_write_profile(self); /* it could not be before */
    }
    harpe_online_round_free(&round);
    return status;
}

/* ---- Wishes ---------------------------------------------------------------------------------- */

static void log_wish(const harpe_perseus *self) {
    if (self->phase != HARPE_PERSEUS_PLAN) {
        harpe_perseus_log(self, HARPE_LOG_INFO, "a wish is remembered until there is a plan");
        return;
    }
    const harpe_plan *plan = harpe_plan_set_at(self->plans->set, chosen(self));
    harpe_perseus_log(self, HARPE_LOG_INFO, "a wish: the plan of %.4g s and %.5g J runs next",
                      plan->time_s, plan->energy_j);
    double cap_w = self->wishes.power_cap_w;
    if (cap_w > 0 && !harpe_online_plan_is_within(plan, cap_w, harpe_perseus_outside(self)))
        harpe_perseus_log(
            self, HARPE_LOG_WARNING,
            "no plan's average power is within the cap of %.4g W: this one's is %.4g W", cap_w,
            plan->energy_j / plan->time_s);
}

/* What could not be explained may have been the straggler. */
static void tell_straggler(harpe_perseus *self, double slowdown, double iteration_time_s) {
    self->wishes.slowdown = slowdown;
    self->wishes.iteration_time_s = iteration_time_s;
    self->shift_time_s = self->shift_energy_j = 0;
}

static harpe_status wish(void *state, harpe_scheduler_wish kind, double value, harpe_error *error) {
    harpe_perseus *self = state;
    double minimum = kind == HARPE_WISH_SLOWDOWN ? 1 : 0;
    bool may_be_zero = kind == HARPE_WISH_POWER_CAP;
    if (!(value >= minimum && value <= 1e12) || (value <= 0 && !may_be_zero))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "a wish for %g cannot be granted", value);
    switch (kind) {
    case HARPE_WISH_SLOWDOWN: tell_straggler(self, value > 1 ? value : 0, 0); break;
    case HARPE_WISH_ITERATION_TIME: tell_straggler(self, 0, value); break;
    case HARPE_WISH_POWER_CAP: self->wishes.power_cap_w = value; break;
    case HARPE_WISH_PLAN_TIME: self->wishes.plan_time_s = value; break;
    default: return harpe_fail(error, HARPE_NOT_SUPPORTED, "Perseus knows no such wish");
    }
    log_wish(self);
    return HARPE_OK;
}

/* ---- Perseus --------------------------------------------------------------------------------- */

static const char NAME[] = "Perseus";

static harpe_status check_args(const char *args_json, harpe_error *error) {
    return harpe_perseus_args_check(NAME, true, args_json, error);
}

static harpe_status create(const harpe_scheduler_job *job, void **state, harpe_error *error) {
    return harpe_perseus_create(job, NAME, true, state, error);
}

static bool is_finished(const void *state) {
    (void)state;
    return false;
}

const harpe_scheduler_class harpe_perseus_scheduler = {
    .abi = HARPE_SCHEDULER_ABI,
    .name = NAME,
    .check_args = check_args,
    .create = create,
    .next_schedule = harpe_perseus_next,
    .observe = harpe_perseus_observe,
    .destroy = harpe_perseus_destroy,
    .is_finished = is_finished,
    .save = harpe_perseus_save,
    .load = harpe_perseus_load,
    .wish = wish,
    .frontier = harpe_perseus_frontier,
};
