/* SPDX-License-Identifier: Apache-2.0 */
/* Perseus optimizes a job without an existing profile. It learns the clocks, computes plans from
 * the measurements, hands out a plan, and compares later measurements with this plan. A job request
 * makes it choose another plan. Each round of results is one step:
 *
 * phase     schedule                          next phase
 * COUNT     empty: highest clocks             microbatches are counted -> EXPLORE or SWEEP
 * EXPLORE   some at the highest clocks, then  enough is known -> PLAN; no plan is possible -> HOLD
 *           the explorer's rounds
 * SWEEP     the sweep's frequency, then the   planned -> PLAN; no plan is possible -> HOLD
 *           highest for one round
 * PLAN      the plan that requests choose,    drift too large to correct, or other steps ->
 *           the explorer's rounds for them,   EXPLORE or SWEEP
 *           or the highest, for the savings
 * HOLD      highest frequencies               none
 *
 * All of this code runs on a worker, and so does the planner. The planner runs after the results of
 * the round that follows the sweep. Planning may take long, and the ranks continue with their last
 * schedule meanwhile. This is the reason for the round after the sweep: its schedule has the
 * highest frequency, while the sweep's lowest frequency would slow the job down. The function
 * `next` changes only the number of the running plan, so it can be called again after a job
 * request. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"
#include "plan/schedule.h"
#include "server/scheduler/builtin.h"
#include "server/scheduler/perseus/perseus_internal.h"

enum {
    MISSES_MAX = 3,
    /* The rounds after a report that show whether the straggler is a GPU of the job. The first may
     * have begun before the report, and does not count. */
    STRAGGLER_ROUNDS = 4,
};

/* Because of noise, a round may be slower than a straggler allows, by at most this share. */
#define STRAGGLER_TOLERANCE 0.005

/* ---- Arguments ------------------------------------------------------------------------------- */

/* The arguments of the online schedulers. One table describes them, and they are read and checked
 * with this table. All arguments are optional. */

/* The last ones are for plans, which InstructionProfiler does not make. */
static const harpe_scheduler_argument ARGUMENTS[] = {
    {"num_microbatches", HARPE_ARGUMENT_WHOLE, 1, 1e6, false},
    {"schedule", HARPE_ARGUMENT_OTHER, 0, 0, false},
    {"prologue", HARPE_ARGUMENT_NAMES, 0, HARPE_STANDALONE_NAMES_MAX, false},
    {"epilogue", HARPE_ARGUMENT_NAMES, 0, HARPE_STANDALONE_NAMES_MAX, false},
    {"frequency_stride", HARPE_ARGUMENT_WHOLE, 1, 1000, false},
    {"rises_to_stop", HARPE_ARGUMENT_WHOLE, 1, 1000, false},
    {"profile_path", HARPE_ARGUMENT_TEXT, 0, 0, false},
    {"blocking_power", HARPE_ARGUMENT_NUMBERS, 0, 1e5, false},
    {"plans", HARPE_ARGUMENT_WHOLE, 2, 1e4, false},
    {"slowdown", HARPE_ARGUMENT_NUMBER, 1, 1e6, false},
    {"drift_tolerance", HARPE_ARGUMENT_NUMBER, 0.001, 1, false},
    {"rounds_to_drift", HARPE_ARGUMENT_WHOLE, 1, 1e6, false},
    {"learning", HARPE_ARGUMENT_OTHER, 0, 0, false},
    {"exploration_slowdown", HARPE_ARGUMENT_NUMBER, 0.001, 0.5, false},
};
enum { ARGUMENT_COUNT = sizeof ARGUMENTS / sizeof ARGUMENTS[0], COUNT_WITHOUT_PLANS = 7 };

static bool is_text(const json_t *value) {
    return json_is_string(value) && *json_string_value(value);
}

static harpe_status check_others(const char *scheduler, const json_t *args, harpe_error *error) {
    const json_t *schedule = json_object_get(args, "schedule");
    const json_t *learning = json_object_get(args, "learning");
    const char *way = json_string_value(learning);
    bool is_file = json_object_size(schedule) == 1 && is_text(json_object_get(schedule, "csv"));
    if (schedule && !is_text(schedule) && !is_file)
        return harpe_fail(
            error, HARPE_INVALID_ARGUMENT,
            "scheduler_args: schedule of %s must be a schedule's name or {\"csv\": \"path\"}",
            scheduler);
    if (learning && !(way && (strcmp(way, "explore") == 0 || strcmp(way, "sweep") == 0)))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "scheduler_args: learning of %s must be \"explore\" or \"sweep\"",
                          scheduler);
    return HARPE_OK;
}

static double number(const json_t *args, const char *name, double otherwise) {
    const json_t *value = json_object_get(args, name);
    return value ? json_number_value(value) : otherwise;
}

/* Returns the names of a list, ended by NULL. They last as long as `list`. Returns NULL if memory
 * runs out. */
static const char **names_of(harpe_arena *arena, const json_t *list) {
    size_t count = json_array_size(list);
    const char **names = harpe_arena_alloc(arena, count + 1, sizeof *names);
    for (size_t i = 0; names && i < count; i++)
        names[i] = json_string_value(json_array_get(list, i));
    return names;
}

static void free_args(harpe_perseus_args *args) {
    harpe_arena_free(&args->arena);
    json_decref(args->json);
    *args = (harpe_perseus_args){0};
}

/* Reads arguments. If `plans` is true, also accepts the arguments for planning, which
 * InstructionProfiler does not have. Free with free_args. */
static harpe_status read_args(const char *scheduler, bool plans, const char *args_json,
                              harpe_perseus_args *out, harpe_error *error) {
    json_t *args;
    harpe_status status =
        harpe_scheduler_args_read(scheduler, args_json, ARGUMENTS,
                                  plans ? ARGUMENT_COUNT : COUNT_WITHOUT_PLANS, &args, error);
    if (status != HARPE_OK) return status;
    status = check_others(scheduler, args, error);
    if (status != HARPE_OK) {
        json_decref(args);
        return status;
    }
    const json_t *schedule = json_object_get(args, "schedule");
    const char *learning = json_string_value(json_object_get(args, "learning"));
    *out = (harpe_perseus_args){
        .json = args,
        .schedule = {.name = json_string_value(schedule),
                     .csv_path = json_string_value(json_object_get(schedule, "csv"))},
        .profile_path = json_string_value(json_object_get(args, "profile_path")),
        .num_microbatches = (int)number(args, "num_microbatches", 0),
        .frequency_stride = (int)number(args, "frequency_stride", 1),
        .rises_to_stop = (int)number(args, "rises_to_stop", 5),
        .plans = (int)number(args, "plans", 100),
        .rounds_to_drift = (int)number(args, "rounds_to_drift", 2),
        .blocking_power = json_object_get(args, "blocking_power"),
        .slowdown = number(args, "slowdown", 1),
        .learns_by_sweep = !plans || (learning && strcmp(learning, "sweep") == 0),
        .exploration_slowdown = number(args, "exploration_slowdown", 0.01),
        .drift_tolerance = number(args, "drift_tolerance", 0.05),
    };
    out->schedule.prologue = names_of(&out->arena, json_object_get(args, "prologue"));
    out->schedule.epilogue = names_of(&out->arena, json_object_get(args, "epilogue"));
    if (!out->arena.has_failed) return HARPE_OK;
    free_args(out);
    return harpe_fail_memory(error);
}

/* Checks that arguments with a value for each pipeline rank fit a job. */
static harpe_status check_ranks(const char *scheduler, const harpe_perseus_args *args,
                                int pipeline_ranks, harpe_error *error) {
    size_t given = json_array_size(args->blocking_power);
    if (!json_is_array(args->blocking_power) || given == (size_t)pipeline_ranks) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "scheduler_args: blocking_power of %s has %zu numbers, but this job has %d "
                      "pipeline ranks",
                      scheduler, given, pipeline_ranks);
}

/* The number of a job's stages is not known at the start of the server. The name of a schedule can
 * be checked with one stage. Schedules that are not defined for one stage are checked with two. */
static harpe_status check_name(const harpe_perseus_args *args, harpe_error *error) {
    harpe_online_pipeline *pipeline = NULL;
    harpe_status status =
        harpe_online_pipeline_new(&args->schedule, 1, args->num_microbatches, &pipeline, NULL);
    if (status != HARPE_OK)
        status =
            harpe_online_pipeline_new(&args->schedule, 2, args->num_microbatches, &pipeline, error);
    if (status == HARPE_OK) harpe_online_pipeline_free(pipeline);
    return status;
}

/* A file is checked by reading it. Without microbatches, the name of a schedule must be one of
 * which they can be counted. */
static harpe_status check_schedule(const harpe_perseus_args *args, harpe_error *error) {
    harpe_online_schedule which = args->schedule;
    harpe_schedule *schedule;
    harpe_status status = HARPE_OK;
    if (!which.csv_path && args->num_microbatches > 0) return check_name(args, error);
    if (!which.csv_path) status = harpe_online_can_count(which.name, 4, error);
    which.name = NULL;
    if (status == HARPE_OK)
        status = harpe_online_schedule_make(&which, which.csv_path ? 0 : 1, 1, &schedule, error);
    if (status == HARPE_OK) harpe_schedule_free(schedule);
    return status;
}

/* The function check_args of a harpe_scheduler_class. */
static harpe_status check_args_of(const char *scheduler, bool plans, const char *args_json,
                                  harpe_error *error) {
    harpe_perseus_args args;
    harpe_status status = read_args(scheduler, plans, args_json, &args, error);
    if (status != HARPE_OK) return status;
    status = check_schedule(&args, error);
    free_args(&args);
    return status;
}

/* ---- Making it ------------------------------------------------------------------------------- */

static void destroy(void *state) {
    harpe_perseus *self = state;
    harpe_perseus_forget(self);
    free(self->blocking_powers_w);
    harpe_scheduler_file_free(&self->file);
    free_args(&self->args);
    free(self);
}

static harpe_status create_online(const harpe_scheduler_job *job, const char *name,
                                  bool makes_plans, void **state, harpe_error *error) {
    harpe_perseus *self = harpe_calloc(1, sizeof *self);
    if (!self) return harpe_fail_memory(error);
    self->job = job;
    self->name = name;
    self->makes_plans = makes_plans;
    self->blocking_powers_w =
        harpe_calloc((size_t)job->job->pp_degree, sizeof *self->blocking_powers_w);
    harpe_status status = self->blocking_powers_w
                              ? read_args(name, makes_plans, job->args_json, &self->args, error)
                              : harpe_fail_memory(error);
    if (status == HARPE_OK) status = check_ranks(name, &self->args, job->job->pp_degree, error);
    if (status == HARPE_OK && !makes_plans && !self->args.profile_path && !job->directory)
        status =
            harpe_fail(error, HARPE_INVALID_ARGUMENT,
                       "%s has no file to write: set its argument profile_path, or dump_dir", name);
    int told = harpe_scheduler_job_microbatches(job->job);
    if (status == HARPE_OK && told > 0) self->args.num_microbatches = told;
    if (status == HARPE_OK && (self->args.num_microbatches > 0 || self->args.schedule.csv_path))
        status = harpe_perseus_begin(self, self->args.num_microbatches, error);
    else if (status == HARPE_OK)
        status = harpe_online_can_count(self->args.schedule.name, job->job->pp_degree, error);
    if (status != HARPE_OK) {
        destroy(self);
        return status;
    }
    *state = self;
    return HARPE_OK;
}

/* ---- Schedules ------------------------------------------------------------------------------- */

/* Returns true if the present round runs the running plan. */
static bool runs_running_plan(const harpe_perseus *self) {
    return self->phase == HARPE_PERSEUS_PLAN && !self->explores && !self->runs_highest;
}

static harpe_status write_rank(const harpe_perseus *self, const harpe_rank_info *rank,
                               const int *plan_mhz, harpe_schedule_writer *writer,
                               harpe_error *error) {
    const harpe_online_pipeline *pipeline = self->pipeline;
    size_t end = pipeline->rank_offset[rank->pp_rank + 1];
    const int *own_mhz = harpe_perseus_replicas_clocks(self, rank->dp_rank);
    if (own_mhz) plan_mhz = own_mhz;
    for (size_t i = pipeline->rank_offset[rank->pp_rank]; i < end; i++) {
        const char *name = pipeline->entries[pipeline->entry_of[i]].instruction;
        harpe_status status = writer->add(writer, rank->rank, name, plan_mhz[i], error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

static harpe_status next_schedule(void *state, harpe_schedule_writer *writer, harpe_error *error) {
    harpe_perseus *self = state;
    const int *plan_mhz = NULL;
    if (self->phase == HARPE_PERSEUS_COUNT) return HARPE_OK;
    if (self->phase == HARPE_PERSEUS_PLAN) {
        self->running = harpe_perseus_chosen(self);
        self->is_plan_new = false;
        self->explores = self->explores_next;
        self->runs_highest =
            self->runs_highest_next && !self->explores && harpe_perseus_may_run_highest(self);
        self->told = self->requests;
    }
    bool runs_plan = runs_running_plan(self);
    if (self->phase == HARPE_PERSEUS_PLAN && !self->explores) {
        plan_mhz = harpe_perseus_running_plan(self)->frequency_mhz;
    } else {
        harpe_explorer_begin_round(self->explorer);
        plan_mhz = self->explorer->frequency_mhz;
    }
    if (self->phase == HARPE_PERSEUS_SWEEP) writer->mark_trial(writer);
    harpe_status status =
        harpe_perseus_replicas_begin_round(self, runs_plan ? plan_mhz : NULL, error);
    for (int r = 0; r < self->job->job->world_size && status == HARPE_OK; r++)
        status = write_rank(self, &self->job->ranks[r], plan_mhz, writer, error);
    return status;
}

/* ---- Results --------------------------------------------------------------------------------- */

/* Stores the latencies that the ranks report. */
static void take_latencies(harpe_perseus *self, const harpe_online_round *round) {
    for (size_t e = 0; e < self->pipeline->entry_count; e++)
        harpe_online_latencies_take_time(self->explorer->latencies, round->entries[e].time_s);
    const harpe_online_reports *reports = &self->reports;
    if (reports->clocks)
        harpe_online_latencies_take(self->explorer->latencies, reports->ranks, reports->clocks,
                                    reports->count);
}

/* Reads the round, and records its time and energy. Free `*round` with harpe_online_round_free. */
static harpe_status read_round(harpe_perseus *self, harpe_perseus_measured *measured,
                               harpe_online_round *round, harpe_error *error) {
    harpe_status status = harpe_online_round_read(self->pipeline, &self->reports, round, error);
    if (status != HARPE_OK) return status;
    take_latencies(self, round);
    measured->value[HARPE_TIME] = round->iteration_time_s;
    measured->value[HARPE_ENERGY] = round->iteration_energy_j;
    measured->iterations = (int64_t)round->iterations;
    return HARPE_OK;
}

static harpe_status count_microbatches(const harpe_perseus *self, int *microbatches,
                                       harpe_error *error) {
    return harpe_online_count_microbatches(self->args.schedule.name, self->job->job->pp_degree,
                                           &self->reports, microbatches, error);
}

/* Handles a round before microbatches are counted. Its schedule is empty, so the round runs at the
 * highest clocks. */
static harpe_status observe_count(harpe_perseus *self, harpe_perseus_measured *measured,
                                  harpe_error *error) {
    int microbatches;
    harpe_online_round round;
    harpe_error missed;
    harpe_status status = count_microbatches(self, &microbatches, &missed);
    if (status != HARPE_OK && ++self->count_misses < MISSES_MAX) return HARPE_OK;
    if (status != HARPE_OK)
        return harpe_fail(error, status, "%s (%d rounds in a row)", missed.message,
                          self->count_misses);
    harpe_perseus_log(self, HARPE_LOG_INFO, "counted %d microbatches", microbatches);
    status = harpe_perseus_begin(self, microbatches, error);
    if (status == HARPE_OK) status = read_round(self, measured, &round, error);
    if (status != HARPE_OK) return status;
    harpe_perseus_count_learning(self, &round, measured->round);
    harpe_online_round_free(&round);
    return HARPE_OK;
}

/* Handles a round of a sweep. The first plans are made after one more round at the highest clocks,
 * because planning may take long, and the ranks continue with their last schedule meanwhile. */
static harpe_status observe_sweep(harpe_perseus *self, const harpe_online_round *round,
                                  bool was_over) {
    bool is_over = harpe_explorer_is_over(self->explorer);
    if (was_over) {
        (void)harpe_perseus_plan_learnt(self);
        return HARPE_OK;
    }
    if (self->explorer->misses > 0)
        harpe_perseus_log(self, HARPE_LOG_WARNING, "a round of the sweep is %s: %s",
                          is_over ? "missing, and the sweep ends with it" : "run again",
                          round->problem);
    if (!is_over) return HARPE_OK;
    harpe_perseus_log_learnt(self);
    if (self->makes_plans) return HARPE_OK;
    harpe_perseus_hand_over_profile(self);
    harpe_perseus_hold(self, "");
    return HARPE_OK;
}

/* Measures again if the ranks run another number of microbatches than was counted before. */
static bool counts_again(harpe_perseus *self) {
    int microbatches;
    harpe_error error = {0};
    const harpe_online_pipeline *pipeline = self->pipeline;
    bool may_count = self->args.num_microbatches == 0 && !self->args.schedule.csv_path &&
                     self->phase != HARPE_PERSEUS_HOLD && harpe_perseus_may_measure(self);
    if (self->mismatches < MISSES_MAX || !may_count) return false;
    harpe_status status = count_microbatches(self, &microbatches, &error);
    if (status != HARPE_OK || microbatches == pipeline->microbatches) return false;
    harpe_perseus_log(self, HARPE_LOG_WARNING,
                      "counted %d microbatches instead of %d: measures again for these",
                      microbatches, pipeline->microbatches);
    harpe_perseus_put_off(&self->measuring, self->round);
    status = harpe_perseus_begin(self, microbatches, &error);
    if (status != HARPE_OK) {
        harpe_perseus_log(self, HARPE_LOG_WARNING, "cannot begin anew: %s", error.message);
        return false;
    }
    self->mismatches = 0;
    harpe_perseus_renew_baseline(self);
    return true;
}

/* Writes the log line once. The job continues without a change. */
static void tell_mismatch(harpe_perseus *self, const harpe_online_round *round) {
    if (self->mismatch_was_told || self->mismatches < MISSES_MAX ||
        self->phase != HARPE_PERSEUS_PLAN)
        return;
    self->mismatch_was_told = true;
    harpe_perseus_log(self, HARPE_LOG_WARNING, "the plan does not fit what the ranks run: %s",
                      round->problem);
}

/* A job with a plan answers a straggler at once, as if another pipeline were slow. If its rounds
 * are then slower than the straggler allows, the straggler is a GPU of the job. */
static void check_straggler(harpe_perseus *self, const harpe_online_round *round) {
    harpe_explorer *explorer = self->explorer;
    bool is_planned = self->phase == HARPE_PERSEUS_PLAN && !self->runs_highest;
    if (!is_planned || explorer->straggler_rounds == 0) return;
    if (explorer->straggler_rounds-- == STRAGGLER_ROUNDS) return;
    harpe_online_outside outside = harpe_perseus_outside(self);
    /* A power cap or a plan time may have chosen a slower plan. */
    double allowed_s =
        fmax(harpe_online_straggler_time_s(self->plans->undisturbed_s, &self->requests, outside),
             harpe_plan_set_at(self->plans->set, self->running)->time_s);
    if (!(round->iteration_time_s > (allowed_s + outside.time_s) * (1 + STRAGGLER_TOLERANCE)))
        return;
    explorer->straggler_rounds = 0;
    harpe_explorer_look_for_straggler(explorer, true);
    harpe_perseus_explore_request(self);
}

static harpe_status take_round(harpe_perseus *self, const harpe_online_round *round, bool was_over,
                               harpe_error *error) {
    switch (self->phase) {
    case HARPE_PERSEUS_SWEEP: return observe_sweep(self, round, was_over);
    case HARPE_PERSEUS_EXPLORE: return harpe_perseus_explore_on(self, error);
    case HARPE_PERSEUS_PLAN:
        if (self->explores) return harpe_perseus_explore_on(self, error);
        return harpe_perseus_watch(self, round, error);
    default:
        /* If an earlier attempt had no memory for the profile, this makes it. */
        if (!self->makes_plans && !self->is_profile_made) harpe_perseus_hand_over_profile(self);
        return HARPE_OK;
    }
}

/* Returns the clocks that all replicas were asked for in this round, or NULL if they are not known.
 */
static const int *asked_mhz(const harpe_perseus *self) {
    bool has_plan = self->phase == HARPE_PERSEUS_PLAN && !self->explores;
    if (!has_plan) return self->explorer->frequency_mhz;
    if (self->is_plan_new) return NULL;
    return harpe_perseus_running_plan(self)->frequency_mhz;
}

/* Keeps the measurements of a round that ran a plan, for people. */
static void see(harpe_perseus *self, const harpe_online_round *round) {
    self->seen = (harpe_perseus_seen){true, self->round - 1, self->running};
    memcpy(self->explorer->seen, round->entries,
           self->pipeline->entry_count * sizeof *round->entries);
}

/* Counts the savings of a round. Call it before the round changes any state on which savings
 * depend. */
static void count_savings(harpe_perseus *self, const harpe_online_round *round,
                          harpe_perseus_measured *measured) {
    if (harpe_perseus_is_learning(self)) {
        harpe_perseus_count_learning(self, round, measured->round);
    } else if (self->phase == HARPE_PERSEUS_PLAN && !self->is_plan_new) {
        if (runs_running_plan(self)) see(self, round);
        harpe_perseus_count_planned(self, asked_mhz(self), round, measured);
    } else {
        harpe_savings_round own = harpe_perseus_savings_round(round, measured->round);
        harpe_savings_use(&self->savings, &own);
    }
}

static harpe_status observe_round(harpe_perseus *self, harpe_error *error) {
    int64_t number = self->round++;
    harpe_perseus_measured *measured = &self->history[number % HARPE_PERSEUS_HISTORY];
    *measured =
        (harpe_perseus_measured){.round = number, .ended_wall_s = harpe_clock_wall_whole_s()};
    if (self->phase == HARPE_PERSEUS_COUNT) return observe_count(self, measured, error);
    harpe_online_round round;
    harpe_status status = read_round(self, measured, &round, error);
    if (status != HARPE_OK) return status;
    round.has_probe =
        self->phase == HARPE_PERSEUS_EXPLORE && harpe_explorer_ran_probe(self->explorer);
    self->mismatches = round.problem[0] ? self->mismatches + 1 : 0;
    bool was_over = harpe_explorer_is_over(self->explorer);
    status = harpe_perseus_replicas_observe(self, asked_mhz(self), &round, error);
    /* Savings of a round with new clocks need the times of these clocks. */
    bool is_planned = self->phase == HARPE_PERSEUS_PLAN;
    if (status == HARPE_OK) check_straggler(self, &round);
    if (status == HARPE_OK && is_planned && self->explores)
        status = harpe_perseus_learn(self, &round, error);
    if (status == HARPE_OK) count_savings(self, &round, measured);
    if (status == HARPE_OK && !counts_again(self)) {
        if (harpe_perseus_is_learning(self) && !was_over)
            status = harpe_perseus_learn(self, &round, error);
        tell_mismatch(self, &round);
        if (status == HARPE_OK) status = take_round(self, &round, was_over, error);
    }
    if (status == HARPE_OK) harpe_perseus_replicas_plan(self);
    harpe_online_round_free(&round);
    return status;
}

void harpe_perseus_keep_conduct(void *state, harpe_conduct_sums *sums) {
    harpe_perseus *self = state;
    self->conduct = sums;
}

void harpe_perseus_tell_clocks(void *state, const harpe_rank_clocks *clocks) {
    harpe_perseus *self = state;
    self->reports.clocks = clocks;
}

size_t harpe_perseus_schedule_length(const void *state, size_t rank) {
    const harpe_perseus *self = state;
    if (!self->pipeline) return 0;
    const size_t *offset = &self->pipeline->rank_offset[self->job->ranks[rank].pp_rank];
    return offset[1] - offset[0];
}

static harpe_status observe(void *state, const harpe_profiling_result *results, size_t count,
                            harpe_error *error) {
    harpe_perseus *self = state;
    harpe_error reason = {0};
    self->reports = (harpe_online_reports){.ranks = self->job->ranks,
                                           .results = results,
                                           .clocks = self->reports.clocks,
                                           .count = count};
    harpe_status status = observe_round(self, &reason);
    self->reports = (harpe_online_reports){0};
    if (status == HARPE_OK) return HARPE_OK;
    if (!self->plans) return harpe_fail(error, status, "%s", reason.message);
    harpe_perseus_keep_plan(self, reason.message); /* the job continues */
    return HARPE_OK;
}

/* ---- Job requests ---------------------------------------------------------------------------- */

static void log_job_request(const harpe_perseus *self) {
    bool explores = !self->args.learns_by_sweep && self->explorer;
    bool looks = explores && self->explorer->looks > 0;
    bool answers = explores && self->explorer->is_exploring;
    if (looks || self->phase != HARPE_PERSEUS_PLAN) {
        harpe_perseus_log(self, HARPE_LOG_INFO, "a job request %s",
                          looks     ? "follows a round at the highest clocks"
                          : answers ? "counts from the next round on"
                                    : "is remembered until enough is measured");
        return;
    }
    const harpe_plan *plan = harpe_plan_set_at(self->plans->set, harpe_perseus_chosen(self));
    harpe_perseus_log(self, HARPE_LOG_INFO, "a job request: the plan of %s and %s runs next",
                      HARPE_TIME(plan->time_s), HARPE_ENERGY(plan->energy_j));
    double cap_w = self->requests.power_cap_w;
    harpe_online_outside outside = harpe_perseus_outside(self);
    if (cap_w > 0 && !harpe_online_plan_is_within(plan, cap_w, outside))
        harpe_perseus_log(
            self, HARPE_LOG_WARNING,
            "no plan's average power is within the cap of %s W: the chosen plan needs %s W",
            HARPE_DIGITS(cap_w, 4),
            HARPE_DIGITS((plan->energy_j + outside.energy_j) / (plan->time_s + outside.time_s), 4));
}

/* Call it when the straggler is gone. If the exploration has measured the job only with the
 * straggler, the exploration begins again. */
static void end_straggler(harpe_perseus *self) {
    harpe_explorer *explorer = self->explorer;
    if (!explorer || self->args.learns_by_sweep) return;
    bool has_straggler_only = self->phase == HARPE_PERSEUS_EXPLORE &&
                              !(explorer->undisturbed_s > 0) &&
                              harpe_explorer_measured(explorer) > 0;
    harpe_explorer_forget_straggler(explorer);
    if (!has_straggler_only) return;
    harpe_explorer_restart(explorer);
    explorer->looks = 1; /* the present round is not counted */
}

/* Sets the straggler. It may have caused the measured change of the time and energy outside of the
 * pipeline, so this change is dropped. */
static void tell_straggler(harpe_perseus *self, double slowdown, double iteration_time_s) {
    bool is_new =
        slowdown != self->requests.slowdown || iteration_time_s != self->requests.iteration_time_s;
    bool is_gone = slowdown == 0 && iteration_time_s == 0;
    if (is_gone) harpe_perseus_forget_drift(self);
    if (is_gone && is_new) end_straggler(self);
    bool is_planned = self->phase == HARPE_PERSEUS_PLAN;
    bool explores = self->explorer && !self->args.learns_by_sweep;
    if (explores && is_new)
        self->explorer->straggler_rounds = !is_gone && is_planned ? STRAGGLER_ROUNDS : 0;
    if (explores && is_new && !is_gone && !is_planned)
        harpe_explorer_look_for_straggler(self->explorer, self->phase == HARPE_PERSEUS_EXPLORE);
    self->requests.slowdown = slowdown;
    self->requests.iteration_time_s = iteration_time_s;
    self->shift_time_s = self->shift_energy_j = 0;
}

static harpe_status job_request(void *state, harpe_scheduler_job_request kind, double value,
                                harpe_error *error) {
    harpe_perseus *self = state;
    double minimum = kind == HARPE_JOB_REQUEST_SLOWDOWN ? 1 : 0;
    bool may_be_zero = kind == HARPE_JOB_REQUEST_POWER_CAP || kind == HARPE_JOB_REQUEST_PLAN_TIME;
    if (!(value >= minimum && value <= 1e12) || (value <= 0 && !may_be_zero))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "cannot honour a job request with the value %g", value);
    switch (kind) {
    case HARPE_JOB_REQUEST_SLOWDOWN: tell_straggler(self, value > 1 ? value : 0, 0); break;
    case HARPE_JOB_REQUEST_ITERATION_TIME: tell_straggler(self, 0, value); break;
    case HARPE_JOB_REQUEST_POWER_CAP: self->requests.power_cap_w = value; break;
    case HARPE_JOB_REQUEST_PLAN_TIME: self->requests.plan_time_s = value; break;
    default:
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "Perseus does not know this job request");
    }
    harpe_perseus_explore_request(self);
    log_job_request(self);
    return HARPE_OK;
}

/* ---- Perseus --------------------------------------------------------------------------------- */

static const char PERSEUS[] = "Perseus";

static harpe_status check_args(const char *args_json, harpe_error *error) {
    return check_args_of(PERSEUS, true, args_json, error);
}

static harpe_status create(const harpe_scheduler_job *job, void **state, harpe_error *error) {
    return create_online(job, PERSEUS, true, state, error);
}

static bool is_finished(const void *state) {
    (void)state;
    return false;
}

const harpe_scheduler_class harpe_perseus_scheduler = {
    .abi = HARPE_SCHEDULER_ABI,
    .name = PERSEUS,
    .check_args = check_args,
    .create = create,
    .next_schedule = next_schedule,
    .observe = observe,
    .destroy = destroy,
    .is_finished = is_finished,
    .save = harpe_perseus_save,
    .load = harpe_perseus_load,
    .job_request = job_request,
    .frontier = harpe_perseus_frontier,
    .pipeline = harpe_perseus_pipeline,
};

/* ---- InstructionProfiler --------------------------------------------------------------------- */

/* InstructionProfiler does only the first part of Perseus. It runs the sweep and writes the profile
 * as CSV, which `harpe plan` reads. Then all instructions run at the highest frequency until the
 * job ends. */

static const char PROFILER[] = "InstructionProfiler";

static harpe_status profiler_check_args(const char *args_json, harpe_error *error) {
    return check_args_of(PROFILER, false, args_json, error);
}

static harpe_status profiler_create(const harpe_scheduler_job *job, void **state,
                                    harpe_error *error) {
    return create_online(job, PROFILER, false, state, error);
}

static bool profiler_is_finished(const void *state) {
    const harpe_perseus *self = state;
    return self->phase == HARPE_PERSEUS_HOLD && self->is_profile_made;
}

const harpe_scheduler_class harpe_instruction_profiler = {
    .abi = HARPE_SCHEDULER_ABI,
    .name = PROFILER,
    .check_args = profiler_check_args,
    .create = profiler_create,
    .next_schedule = next_schedule,
    .observe = observe,
    .destroy = destroy,
    .is_finished = profiler_is_finished,
    .save = harpe_perseus_save,
    .load = harpe_perseus_load,
    .frontier = harpe_perseus_frontier,
};
