/* SPDX-License-Identifier: Apache-2.0 */
/* Perseus: a job that starts from nothing. It sweeps, plans with what it measured, hands out a plan
 * and watches it; wishes choose another plan. One round of results is one step:
 *
 * phase     what it hands out             leaves when
 * COUNT     nothing: highest clocks       microbatches are counted -> SWEEP
 * SWEEP     the sweep's frequency, then    planned -> PLAN; no plan possible -> HOLD
 *           the highest for one round
 * PLAN      the plan that wishes choose   drift too large to correct, or other steps -> SWEEP
 * HOLD      highest frequencies           never
 *
 * All of it runs on a worker; the planner too, after the results of the round that follows the
 * sweep: planning may take its time, and ranks go on meanwhile with what they have, which had
 * better not be the sweep's lowest frequency. Next changes nothing but which plan is running, so
 * that it can be asked again after a wish. */
#include "server/schedulers/perseus.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/text.h"
#include "server/schedulers/builtin.h"

enum { MISSES_MAX = 3 };

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

/* ---- Making it ------------------------------------------------------------------------------- */

harpe_status harpe_perseus_new_sweep(const harpe_perseus *self, harpe_sweep **out,
                                     harpe_error *error) {
    const harpe_scheduler_job *job = self->job;
    return harpe_sweep_new(self->pipeline, job->ranks, job->job->world_size,
                           self->args.frequency_stride, self->args.rises_to_stop, out, error);
}

harpe_sweep *harpe_perseus_sweep_under_way(const harpe_perseus *self) {
    return self->sweep_again ? self->sweep_again : self->sweep;
}

harpe_status harpe_perseus_begin_sweep(harpe_perseus *self, int microbatches, harpe_error *error) {
    harpe_status status =
        harpe_online_pipeline_new(self->args.schedule, self->args.schedule_csv,
                                  self->job->job->pp_degree, microbatches, &self->pipeline, error);
    if (!status) status = harpe_perseus_new_sweep(self, &self->sweep, error);
    if (!status) self->phase = HARPE_PERSEUS_SWEEP;
    return status;
}

static void free_learnt(harpe_perseus *self) {
    harpe_perseus_forget_seen(self);
    harpe_online_plans_free(self->plans);
    harpe_sweep_free(self->sweep_again);
    harpe_sweep_free(self->sweep);
    harpe_online_pipeline_free(self->pipeline);
}

void harpe_perseus_destroy(void *state) {
    harpe_perseus *self = state;
    free_learnt(self);
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
    self->scaled.since_round = -1;
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
    const harpe_sweep *sweep = harpe_perseus_sweep_under_way(self);
    size_t end = pipeline->rank_offset[rank->pp_rank + 1];
    for (size_t i = pipeline->rank_offset[rank->pp_rank]; i < end; i++) {
        int entry = pipeline->entry_of[i];
        int mhz = plan_mhz ? plan_mhz[i] : harpe_sweep_frequency_mhz(sweep, entry);
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
        self->running = harpe_perseus_chosen(self);
        self->is_plan_new = false;
        plan_mhz = harpe_plan_set_at(self->plans->set, self->running)->frequency_mhz;
    }
    if (self->phase == HARPE_PERSEUS_SWEEP) writer->mark_trial(writer);
    harpe_status status = HARPE_OK;
    for (int r = 0; r < self->job->job->world_size && !status; r++)
        status = write_rank(self, &self->job->ranks[r], plan_mhz, writer, error);
    return status;
}

/* ---- Results --------------------------------------------------------------------------------- */

/* An empty schedule ran: the highest clocks. */
static harpe_status count_unscheduled(harpe_perseus *self, const harpe_profiling_result *results,
                                      size_t count, harpe_perseus_measured *measured,
                                      harpe_error *error) {
    harpe_online_round round;
    harpe_status status =
        harpe_online_round_read(self->pipeline, self->job->ranks, results, count, &round, error);
    if (status) return status;
    measured->time_s = round.iteration_time_s;
    measured->energy_j = round.iteration_energy_j;
    measured->iterations = (int64_t)round.iterations;
    harpe_perseus_count_sweep(self, &round, measured->round);
    harpe_online_round_free(&round);
    return HARPE_OK;
}

static harpe_status observe_count(harpe_perseus *self, const harpe_profiling_result *results,
                                  size_t count, harpe_perseus_measured *measured,
                                  harpe_error *error) {
    int microbatches;
    harpe_error missed;
    harpe_status status =
        harpe_online_count_microbatches(self->args.schedule, self->job->job->pp_degree,
                                        self->job->ranks, results, count, &microbatches, &missed);
    if (!status) {
        harpe_perseus_log(self, HARPE_LOG_INFO, "counted %d microbatches", microbatches);
        status = harpe_perseus_begin_sweep(self, microbatches, error);
        return status ? status : count_unscheduled(self, results, count, measured, error);
    }
    if (++self->count_misses < MISSES_MAX) return HARPE_OK;
    return harpe_fail(error, status, "%s (%d rounds in a row)", missed.message, self->count_misses);
}

static void log_sweep(const harpe_perseus *self, const harpe_sweep *sweep) {
    const harpe_sweep_cost *cost = &sweep->cost;
    char energy[HARPE_QUANTITY_SIZE], time[HARPE_QUANTITY_SIZE];
    double extra_j = harpe_perseus_sweep_extra_energy_j(self);
    harpe_print_quantity(energy, fabs(extra_j), "J");
    harpe_print_quantity(time, harpe_perseus_sweep_extra_time_s(self), "s");
    harpe_perseus_log(self, HARPE_LOG_INFO,
                      "sweep finished: %zu rounds, %zu iterations; it took %s more and %s %s than "
                      "at the highest frequency",
                      cost->rounds, cost->iterations, time, energy, extra_j > 0 ? "more" : "less");
}

static harpe_status observe_sweep(harpe_perseus *self, const harpe_online_round *round,
                                  harpe_error *error) {
    harpe_sweep *sweep = harpe_perseus_sweep_under_way(self);
    if (harpe_sweep_is_over(sweep)) {
        harpe_perseus_plan_swept(self);
        return HARPE_OK;
    }
    harpe_status status = harpe_sweep_observe(sweep, round, error);
    if (status) return status;
    if (sweep->misses > 0)
        harpe_perseus_log(self, HARPE_LOG_WARNING, "a round of the sweep is %s: %s",
                          harpe_sweep_is_over(sweep) ? "missing, and the sweep ends with it"
                                                     : "run again",
                          round->problem);
    if (!harpe_sweep_is_over(sweep)) return HARPE_OK;
    log_sweep(self, sweep);
    if (!self->sweep_again) harpe_perseus_write_profile(self);
    if (!self->makes_plans) harpe_perseus_hold(self, "");
    return HARPE_OK;
}

/* Steps of another size than those that were counted: everything begins anew for them. */
static bool counts_again(harpe_perseus *self, const harpe_profiling_result *results, size_t count) {
    int microbatches;
    harpe_error error = {0};
    const harpe_online_pipeline *pipeline = self->pipeline;
    bool may_count = self->args.num_microbatches == 0 && !self->args.schedule_csv &&
                     self->phase != HARPE_PERSEUS_HOLD && harpe_perseus_may_sweep(self);
    if (self->misfits < MISSES_MAX || !may_count) return false;
    harpe_status status =
        harpe_online_count_microbatches(self->args.schedule, self->job->job->pp_degree,
                                        self->job->ranks, results, count, &microbatches, &error);
    if (status || microbatches == pipeline->microbatches) return false;
    harpe_perseus_log(self, HARPE_LOG_WARNING,
                      "counted %d microbatches instead of %d: sweeps again for these", microbatches,
                      pipeline->microbatches);
    harpe_perseus_put_sweep_off(self);
    harpe_perseus before = *self;
    self->seen = (harpe_perseus_seen){0};
    self->plans = NULL;
    self->sweep = self->sweep_again = NULL;
    self->pipeline = NULL;
    status = harpe_perseus_begin_sweep(self, microbatches, &error);
    free_learnt(status ? self : &before);
    if (status) {
        *self = before;
        harpe_perseus_log(self, HARPE_LOG_WARNING, "cannot begin anew: %s", error.message);
        return false;
    }
    self->misfits = 0;
    harpe_perseus_drop_baseline(self);
    harpe_perseus_renew_baseline(self);
    return true;
}

/* Said once; the job goes on as it is. */
static void tell_misfit(harpe_perseus *self, const harpe_online_round *round) {
    if (self->misfit_was_told || self->misfits < MISSES_MAX || self->phase != HARPE_PERSEUS_PLAN)
        return;
    self->misfit_was_told = true;
    harpe_perseus_log(self, HARPE_LOG_WARNING, "the plan does not fit what the ranks run: %s",
                      round->problem);
}

static harpe_status take_round(harpe_perseus *self, const harpe_online_round *round,
                               harpe_error *error) {
    switch (self->phase) {
    case HARPE_PERSEUS_SWEEP: return observe_sweep(self, round, error);
    case HARPE_PERSEUS_PLAN: return harpe_perseus_watch(self, round, error);
    default:
        if (!self->makes_plans) harpe_perseus_write_profile(self); /* it could not be before */
        return HARPE_OK;
    }
}

/* Before anything that depends on the round is changed. */
static harpe_status count_savings(harpe_perseus *self, const harpe_online_round *round,
                                  const harpe_profiling_result *results, size_t count,
                                  harpe_perseus_measured *measured, harpe_error *error) {
    if (self->phase == HARPE_PERSEUS_SWEEP) {
        harpe_perseus_count_sweep(self, round, measured->round);
    } else if (self->phase == HARPE_PERSEUS_PLAN && !self->is_plan_new) {
        harpe_perseus_see(self, round);
        return harpe_perseus_count_planned(self, round, results, count, measured, error);
    } else {
        harpe_savings_round own = harpe_perseus_savings_round(round, measured->round);
        harpe_savings_use(&self->savings, &own);
    }
    return HARPE_OK;
}

static harpe_status observe_round(harpe_perseus *self, const harpe_profiling_result *results,
                                  size_t count, harpe_error *error) {
    int64_t number = self->round++;
    harpe_perseus_measured *measured = &self->history[number % HARPE_PERSEUS_HISTORY];
    *measured = (harpe_perseus_measured){.round = number};
    if (self->phase == HARPE_PERSEUS_COUNT)
        return observe_count(self, results, count, measured, error);
    harpe_online_round round;
    harpe_status status =
        harpe_online_round_read(self->pipeline, self->job->ranks, results, count, &round, error);
    if (status) return status;
    measured->time_s = round.iteration_time_s;
    measured->energy_j = round.iteration_energy_j;
    measured->iterations = (int64_t)round.iterations;
    self->misfits = round.problem[0] ? self->misfits + 1 : 0;
    status = count_savings(self, &round, results, count, measured, error);
    if (status) {
        harpe_online_round_free(&round);
        return status;
    }
    if (!counts_again(self, results, count)) {
        tell_misfit(self, &round);
        status = take_round(self, &round, error);
    }
    harpe_online_round_free(&round);
    return status;
}

harpe_status harpe_perseus_observe(void *state, const harpe_profiling_result *results, size_t count,
                                   harpe_error *error) {
    harpe_perseus *self = state;
    harpe_error reason = {0};
    harpe_status status = observe_round(self, results, count, &reason);
    if (!status) return HARPE_OK;
    if (!self->plans) return harpe_fail(error, status, "%s", reason.message);
    harpe_perseus_keep_plan(self, reason.message); /* nothing to fail a job for */
    return HARPE_OK;
}

/* ---- Wishes ---------------------------------------------------------------------------------- */

static void log_wish(const harpe_perseus *self) {
    if (self->phase != HARPE_PERSEUS_PLAN) {
        harpe_perseus_log(self, HARPE_LOG_INFO, "a wish is remembered until there is a plan");
        return;
    }
    const harpe_plan *plan = harpe_plan_set_at(self->plans->set, harpe_perseus_chosen(self));
    char energy[HARPE_QUANTITY_SIZE];
    harpe_print_quantity(energy, plan->energy_j, "J");
    harpe_perseus_log(self, HARPE_LOG_INFO, "a wish: the plan of %.3f s and %s runs next",
                      plan->time_s, energy);
    double cap_w = self->wishes.power_cap_w;
    harpe_online_outside outside = harpe_perseus_outside(self);
    if (!(cap_w > 0) || harpe_online_plan_is_within(plan, cap_w, outside)) return;
    harpe_perseus_log(self, HARPE_LOG_WARNING,
                      "no plan's average power is within the cap of %.0f W: this one's is %.0f W",
                      cap_w, (plan->energy_j + outside.energy_j) / (plan->time_s + outside.time_s));
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
    bool may_be_zero = kind == HARPE_WISH_POWER_CAP || kind == HARPE_WISH_PLAN_TIME;
    if (!(value >= minimum && value <= 1e12) || (value <= 0 && !may_be_zero))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "a wish for %g cannot be granted", value);
    switch (kind) {
    case HARPE_WISH_SLOWDOWN:
        tell_straggler(self, value > 1 ? value : 0, 0);
        if (value <= 1) harpe_perseus_forget_drift(self);
        break;
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
    .pipeline = harpe_perseus_pipeline,
};
