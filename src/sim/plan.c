/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the list of instructions of each rank from a profile and a schedule. Each instruction has
 * messages for the dependencies that <harpe/schedule.h> defines. Also computes the planner's
 * predictions. This file runs nothing. */
#include "sim/sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "plan/profiles.h"
#include "plan/schedule.h"
#include "plan/synth.h"

/* ---- Instructions and messages --------------------------------------------------------------- */

static bool is_forward(const harpe_action *action) { return action->operation == HARPE_FORWARD; }

/* Returns true for a backward whose result the previous stage waits for. */
static bool is_backward(const harpe_action *action) {
    return action->operation == HARPE_BACKWARD || action->operation == HARPE_BACKWARD_INPUT ||
           action->operation == HARPE_FORWARD_BACKWARD;
}

typedef struct builder {
    harpe_sim_plan *plan;
    int *rank_of_stage;
    int stages, microbatches, rank;
    size_t count;
} builder;

/* Returns the index of the message that reports the end of an action. `stage` is the stage of the
 * sender. */
static size_t message_index(const builder *b, const harpe_action *action, int stage) {
    size_t kind = is_forward(action) ? 0 : 1;
    return (kind * (size_t)b->stages + (size_t)stage) * (size_t)b->microbatches +
           (size_t)action->microbatch;
}

/* Adds a message, unless the sender and the receiver are the same rank, because the instructions of
 * a rank run in order anyway. */
static void add_message(const builder *b, const harpe_action *action, int sender_stage,
                        int peer_stage, harpe_sim_message *messages, int *count) {
    if (peer_stage < 0 || peer_stage >= b->stages) return;
    int peer = b->rank_of_stage[peer_stage];
    if (peer == b->rank) return;
    messages[(*count)++] =
        (harpe_sim_message){.index = message_index(b, action, sender_stage), .peer = peer};
}

static void add_action(const builder *b, harpe_sim_instruction *to, const harpe_action *action) {
    if (!is_forward(action) && !is_backward(action)) return;
    int step = is_forward(action) ? 1 : -1; /* 1: to the next stage; -1: back */
    int stage = action->stage;
    add_message(b, action, stage - step, stage - step, to->waits, &to->wait_count);
    add_message(b, action, stage, stage + step, to->sends, &to->send_count);
}

static void add_instruction(builder *b, const harpe_instruction *from) {
    const harpe_sim_plan *plan = b->plan;
    bool is_one = from->action_count == 1 ||
                  harpe_profile_find(plan->profile, from->actions[0].stage, from->name);
    for (int a = 0; a < from->action_count; a++) {
        if (a == 0 || !is_one) {
            harpe_sim_instruction *next = &b->plan->instructions[b->count++];
            next->name = is_one ? from->name : harpe_action_name(&from->actions[a]);
            next->stage = from->actions[a].stage;
        }
        add_action(b, &b->plan->instructions[b->count - 1], &from->actions[a]);
    }
}

static void find_ranks_of_stages(builder *b, const harpe_schedule *schedule) {
    for (int r = 0; r < harpe_schedule_rank_count(schedule); r++) {
        size_t count;
        const harpe_instruction *list = harpe_schedule_rank(schedule, r, &count);
        for (size_t i = 0; i < count; i++)
            for (int a = 0; a < list[i].action_count; a++)
                b->rank_of_stage[list[i].actions[a].stage] = r;
    }
}

static harpe_status build_program(harpe_sim_plan *plan, harpe_error *error) {
    const harpe_schedule *schedule = plan->schedule;
    int ranks = harpe_schedule_rank_count(schedule);
    builder b = {.plan = plan,
                 .stages = harpe_schedule_stage_count(schedule),
                 .microbatches = harpe_schedule_microbatch_count(schedule)};
    b.rank_of_stage = harpe_calloc((size_t)b.stages, sizeof *b.rank_of_stage);
    plan->instructions =
        harpe_calloc(2 * harpe_schedule_instruction_count(schedule), sizeof *plan->instructions);
    plan->rank_start = harpe_calloc((size_t)ranks + 1, sizeof *plan->rank_start);
    if (!b.rank_of_stage || !plan->instructions || !plan->rank_start) {
        free(b.rank_of_stage);
        return harpe_fail_memory(error);
    }
    find_ranks_of_stages(&b, schedule);
    for (b.rank = 0; b.rank < ranks; b.rank++) {
        size_t count;
        const harpe_instruction *list = harpe_schedule_rank(schedule, b.rank, &count);
        for (size_t i = 0; i < count; i++)
            add_instruction(&b, &list[i]);
        plan->rank_start[b.rank + 1] = b.count;
    }
    plan->message_count = 2 * (size_t)b.stages * (size_t)b.microbatches;
    free(b.rank_of_stage);
    return HARPE_OK;
}

static harpe_status make_schedule(const harpe_sim_options *options, harpe_sim_plan *plan,
                                  harpe_error *error) {
    harpe_schedule_options how = {.name = options->schedule_name,
                                  .ranks = options->pp,
                                  .microbatches = options->microbatches,
                                  .chunks = options->chunks,
                                  .microbatch_group_size = options->group_size,
                                  .overlaps_moe_expert_parallel_comm =
                                      options->overlaps_moe_expert_parallel_comm};
    harpe_status status = harpe_schedule_new(&how, &plan->schedule, error);
    if (status != HARPE_OK || plan->schedule->wait_count == 0) return status;
    return harpe_fail(
        error, HARPE_INVALID_ARGUMENT,
        "train-sim cannot run the schedule %s, whose ranks also wait for the ranks to "
        "which they send: choose dualpipe-v, or another schedule",
        options->schedule_name);
}

/* ---- Profile --------------------------------------------------------------------------------- */

static bool has_clock(const harpe_profile_entry *entry, int mhz) {
    for (size_t p = 0; p < entry->point_count; p++)
        if (entry->points[p].frequency_mhz == mhz) return true;
    return false;
}

/* Returns true if every instruction was measured at this clock. An instruction that was measured
 * without a set clock is ignored. */
static bool all_have_clock(const harpe_profile *profile, int mhz) {
    for (size_t e = 0; e < harpe_profile_entry_count(profile); e++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(profile, e);
        if (entry->points[0].frequency_mhz > 0 && !has_clock(entry, mhz)) return false;
    }
    return true;
}

/* Returns true if the emulated GPU supports the clock and all instructions were measured at it. A
 * row without a set clock (`mhz` is not positive) is always usable. */
static bool is_usable(const harpe_sim_options *options, const harpe_profile *profile, int mhz) {
    return mhz <= 0 ||
           (harpe_synth_offers_clock(options->gpu_model, mhz) && all_have_clock(profile, mhz));
}

/* Counts in `*usable` the rows of the profile whose clocks the emulated GPUs can use. Logs a
 * warning about all other rows. Fails if an instruction has no usable row. */
static harpe_status check_clocks(const harpe_sim_options *options, const harpe_profile *profile,
                                 size_t *usable, harpe_error *error) {
    size_t useless = 0;
    int example_mhz = 0;
    *usable = 0;
    for (size_t e = 0; e < harpe_profile_entry_count(profile); e++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(profile, e);
        size_t before = *usable;
        for (size_t p = 0; p < entry->point_count; p++) {
            int mhz = entry->points[p].frequency_mhz;
            if (is_usable(options, profile, mhz))
                ++*usable;
            else if (useless++ == 0)
                example_mhz = mhz;
        }
        if (*usable == before)
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s: an emulated %s offers none of the clocks that all instructions "
                              "have: name the model that was profiled with --gpu",
                              options->profile_path, options->gpu_model);
    }
    if (useless > 0 && !options->is_quiet)
        harpe_log_line(&options->log, HARPE_LOG_WARNING,
                       "%s: %zu rows, the first at %d MHz, are left out: an emulated %s "
                       "does not offer these clocks, or not all instructions have them",
                       options->profile_path, useless, example_mhz, options->gpu_model);
    return HARPE_OK;
}

/* Adapts the profile for emulated GPUs: keeps only the clocks at which these GPUs run, and divides
 * energies by the number of GPUs. */
static harpe_status adapt_profile(const harpe_sim_options *options, harpe_profile **profile,
                                  harpe_error *error) {
    const harpe_profile *whole = *profile;
    harpe_profile *adapted = NULL;
    size_t count = 0, at = 0;
    harpe_status status = check_clocks(options, whole, &count, error);
    if (status != HARPE_OK) return status;
    harpe_measurement *rows = harpe_calloc(count, sizeof *rows);
    if (!rows) return harpe_fail_memory(error);
    for (size_t e = 0; e < harpe_profile_entry_count(whole); e++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(whole, e);
        int gpus = harpe_profile_gpu_count(whole, entry->stage);
        for (size_t p = 0; p < entry->point_count; p++) {
            if (!is_usable(options, whole, entry->points[p].frequency_mhz)) continue;
            rows[at++] = (harpe_measurement){.stage = entry->stage,
                                             .rank = -1,
                                             .instruction = entry->instruction,
                                             .frequency_mhz = entry->points[p].frequency_mhz,
                                             .time_s = entry->points[p].time_s,
                                             .energy_j = entry->points[p].energy_j / gpus};
        }
    }
    status = harpe_profile_new(rows, count, &adapted, error);
    free(rows);
    if (status != HARPE_OK) return status;
    harpe_profile_free(*profile);
    *profile = adapted;
    return HARPE_OK;
}

static void note_rows(const harpe_sim_options *options, const harpe_profile *profile) {
    harpe_text text = {0};
    const char *warning;
    for (size_t i = 0; !options->is_quiet && (warning = harpe_profile_warning_at(profile, i)); i++)
        harpe_log_line(&options->log, HARPE_LOG_WARNING, "%s", warning);
    harpe_profile_note_repeats(profile, options->profile_path, &text);
    if (text.length > 0 && !text.failed && !options->is_quiet)
        harpe_log_line(&options->log, HARPE_LOG_WARNING, "%s", text.data);
    harpe_text_free(&text);
}

static harpe_status read_profile(const harpe_sim_options *options, harpe_sim_plan *plan,
                                 harpe_error *error) {
    harpe_status status = harpe_profile_read_csv(options->profile_path, &plan->profile, error);
    if (status != HARPE_OK) return status;
    note_rows(options, plan->profile);
    return adapt_profile(options, &plan->profile, error);
}

/* Checks that the schedule has as many stages as the profile. If it had fewer, a part of the
 * profile would be ignored. */
static harpe_status check_stages(const harpe_sim_options *options, const harpe_sim_plan *plan,
                                 harpe_error *error) {
    int stages = harpe_schedule_stage_count(plan->schedule);
    int measured = harpe_profile_stage_count(plan->profile);
    int per_rank = stages / options->pp;
    char each[64] = "", advice[64] = "";
    if (stages == measured) return HARPE_OK;
    if (per_rank > 1) (void)snprintf(each, sizeof each, " (%d a rank)", per_rank);
    if (measured % per_rank == 0)
        (void)snprintf(advice, sizeof advice, "give --pp %d, or ", measured / per_rank);
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s has %d stages, but --pp %d with the schedule %s runs %d%s: %sname a "
                      "profile of %d stages",
                      options->profile_path, measured, options->pp, options->schedule_name, stages,
                      each, advice, stages);
}

static harpe_status get_profile(const harpe_sim_options *options, harpe_sim_plan *plan,
                                harpe_error *error) {
    /* A synthetic profile is made even if it is not used, because the same function returns the
     * blocking power of the GPU model. */
    bool is_split = strncmp(options->schedule_name, "zb", 2) == 0 ||
                    strncmp(options->schedule_name, "dualpipe", 8) == 0;
    bool has_one_stage = harpe_schedule_stage_count(plan->schedule) == 1 &&
                         options->imbalance == HARPE_SIM_IMBALANCE; /* the user requested no other
                                                                     * value */
    harpe_synth_options how = {.gpu_model = options->gpu_model,
                               .stages = harpe_schedule_stage_count(plan->schedule),
                               .imbalance = has_one_stage ? 1 : options->imbalance,
                               .seed = options->seed,
                               .forward_time_s = options->forward_time_s,
                               .split_backward = is_split};
    harpe_status status =
        harpe_profile_synthesize(&how, &plan->profile, &plan->blocking_power_w, error);
    if (options->blocking_power_w >= 0) plan->blocking_power_w = options->blocking_power_w;
    if (status != HARPE_OK || !options->profile_path) return status;
    harpe_profile_free(plan->profile);
    plan->profile = NULL;
    status = read_profile(options, plan, error);
    return status != HARPE_OK ? status : check_stages(options, plan, error);
}

static harpe_status write_profile(const harpe_sim_plan *plan, const char *directory,
                                  harpe_error *error) {
    harpe_text path = {0};
    harpe_text_printf(&path, "%s/profile.csv", directory);
    harpe_status status = path.failed ? harpe_fail_memory(error)
                                      : harpe_profile_write_csv(plan->profile, path.data, error);
    harpe_text_free(&path);
    return status;
}

/* ---- A given plan ---------------------------------------------------------------------------- */

/* Predicts the time and energy of the job with a plan file that the user names; see plan.h. In a
 * simulated job, the ranks with the same dp_rank and tp_rank form a pipeline. A pipeline waits for
 * the other pipelines only at the end of a step. */

/* Copies the clocks of a list of the plan file to `frequency_mhz`. Fails if the list does not have
 * the instructions of the pipeline rank, in their order. */
static harpe_status take_list(const harpe_sim_options *options, const harpe_plan_file *file,
                              int list, const harpe_problem *problem, int rank, int *frequency_mhz,
                              harpe_error *error) {
    size_t count = 0, needed = harpe_problem_rank_length(problem, rank);
    const harpe_plan_file_entry *entries = harpe_plan_file_rank(file, list, &count);
    if (count != needed)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: list %d has %zu instructions, but stage %d runs %zu (is the number "
                          "of microbatches right?)",
                          options->plan_path, list, count, rank, needed);
    for (size_t i = 0; i < count; i++) {
        const char *name = harpe_problem_instruction_name(problem, rank, i);
        if (strcmp(entries[i].instruction, name) != 0)
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s: entry %zu of list %d is '%s', but stage %d runs '%s' there",
                              options->plan_path, i, list, entries[i].instruction, rank, name);
        frequency_mhz[i] = entries[i].frequency_mhz;
    }
    return HARPE_OK;
}

/* Evaluates the pipeline of the GPUs with this dp_rank and this tp_rank. */
static harpe_status run_pipeline(const harpe_sim_options *options, const harpe_plan_file *file,
                                 const harpe_problem *problem, int dp_rank, int tp_rank,
                                 int *frequency_mhz, harpe_plan *out, harpe_error *error) {
    harpe_status status = HARPE_OK;
    size_t at = 0;
    for (int rank = 0; rank < options->pp && status == HARPE_OK; rank++) {
        int list = (dp_rank * options->pp + rank) * options->tp + tp_rank;
        status = take_list(options, file, list, problem, rank, frequency_mhz + at, error);
        at += harpe_problem_rank_length(problem, rank);
    }
    if (status != HARPE_OK) return status;
    harpe_error reason;
    status = harpe_plan_evaluate(problem, frequency_mhz, out, NULL, &reason);
    if (status == HARPE_OK) return HARPE_OK;
    return harpe_fail(error, status, "%s: %s", options->plan_path, reason.message);
}

static double end_power_w(const harpe_problem *problem) {
    double sum_w = 0;
    for (int rank = 0; rank < harpe_problem_rank_count(problem); rank++)
        sum_w += harpe_problem_blocking_power_w(problem, rank);
    return sum_w;
}

static harpe_status predict_gpus(const harpe_sim_options *options, const harpe_plan_file *file,
                                 const harpe_problem *problem, int *frequency_mhz,
                                 harpe_sim_prediction *out, harpe_error *error) {
    double waits_s = 0; /* sum over the pipelines so far: their waits until job.time_s */
    harpe_sim_prediction job = {0};
    for (int p = 0; p < options->dp * options->tp; p++) {
        harpe_plan plan;
        harpe_status status = run_pipeline(options, file, problem, p / options->tp, p % options->tp,
                                           frequency_mhz, &plan, error);
        if (status != HARPE_OK) return status;
        if (plan.time_s > job.time_s) {
            waits_s += p * (plan.time_s - job.time_s);
            job.time_s = plan.time_s;
        } else {
            waits_s += job.time_s - plan.time_s;
        }
        job.energy_j += plan.energy_j;
    }
    job.energy_j += end_power_w(problem) * waits_s;
    *out = job;
    return HARPE_OK;
}

static harpe_status predict_stages(const harpe_sim_options *options, const harpe_plan_file *file,
                                   const harpe_problem *problem, int *frequency_mhz,
                                   harpe_sim_prediction *out, harpe_error *error) {
    harpe_plan plan;
    harpe_status status = harpe_plan_file_match(file, problem, frequency_mhz, error);
    if (status == HARPE_OK)
        status = harpe_plan_evaluate(problem, frequency_mhz, &plan, NULL, error);
    if (status != HARPE_OK) return status;
    *out = (harpe_sim_prediction){plan.time_s, options->dp * options->tp * plan.energy_j};
    return HARPE_OK;
}

/* Reads the plan file options->plan_path, and evaluates its plan with the problem of one pipeline.
 * Writes the time and energy of the whole job. Errors name the file. */
static harpe_status predict_given(const harpe_sim_options *options, const harpe_problem *problem,
                                  harpe_sim_prediction *out, harpe_error *error) {
    harpe_plan_file *file = NULL;
    int *frequency_mhz =
        harpe_calloc(harpe_problem_instruction_count(problem), sizeof *frequency_mhz);
    harpe_status status = frequency_mhz ? harpe_plan_file_read(options->plan_path, &file, error)
                                        : harpe_fail_memory(error);
    if (status == HARPE_OK) {
        int lists = harpe_plan_file_rank_count(file);
        bool is_by_gpu = lists != options->pp && lists == options->dp * options->pp * options->tp;
        status = is_by_gpu ? predict_gpus(options, file, problem, frequency_mhz, out, error)
                           : predict_stages(options, file, problem, frequency_mhz, out, error);
    }
    harpe_plan_file_free(file);
    free(frequency_mhz);
    return status;
}

/* ---- Predictions ----------------------------------------------------------------------------- */

static harpe_sim_prediction predict(const harpe_sim_options *options, const harpe_plan *plan) {
    int pipelines = options->dp * options->tp;
    return (harpe_sim_prediction){.time_s = plan->time_s, .energy_j = pipelines * plan->energy_j};
}

harpe_sim_prediction harpe_sim_predict_one_clock(const harpe_sim_options *options,
                                                 const harpe_sim_plan *plan, double slowdown,
                                                 int *clock_mhz) {
    const harpe_plan *best =
        harpe_plan_set_within(plan->one_clock, slowdown * plan->all_maximum.time_s);
    *clock_mhz = harpe_plan_one_clock_mhz(plan->problem, best->frequency_mhz);
    return predict(options, best);
}

static harpe_status write_plan(const harpe_sim_plan *plan, const harpe_plan *fastest,
                               const char *directory, harpe_error *error) {
    harpe_text path = {0};
    harpe_text_printf(&path, "%s/plan.py", directory);
    harpe_status status =
        path.failed ? harpe_fail_memory(error)
                    : harpe_plan_file_write(path.data, plan->problem, fastest, 0, 0, error);
    harpe_text_free(&path);
    return status;
}

/* Predicts the plans that the online optimizer should find by itself, and one clock for all GPUs.
 */
static harpe_status predict_optimum(const harpe_sim_options *options, const char *directory,
                                    harpe_sim_plan *plan, harpe_error *error) {
    harpe_frontier *frontier = NULL;
    harpe_plan_set *plans = NULL;
    harpe_status status = harpe_plan_set_one_clock(plan->problem, &plan->one_clock, error);
    if (status == HARPE_OK) status = harpe_frontier_new(plan->problem, NULL, &frontier, error);
    if (status != HARPE_OK) return status;
    size_t count;
    double fastest_s = harpe_frontier_vertices(frontier, &count)[0].time_s;
    double times_s[] = {fastest_s, fastest_s * fmax(options->straggler.factor, 1)};
    harpe_plan_request request = {.choice = HARPE_PLANS_AT, .times_s = times_s, .time_count = 2};
    status = harpe_plan_set_new(plan->problem, &request, NULL, NULL, &plans, error);
    if (status == HARPE_OK) {
        plan->fastest = predict(options, harpe_plan_set_at(plans, 0));
        plan->slowed = predict(options, harpe_plan_set_at(plans, 1));
        if (options->is_offline)
            status = write_plan(plan, harpe_plan_set_at(plans, 0), directory, error);
    }
    harpe_plan_set_free(plans);
    harpe_frontier_free(frontier);
    return status;
}

static harpe_status make_predictions(const harpe_sim_options *options, const char *directory,
                                     harpe_sim_plan *plan, harpe_error *error) {
    harpe_plan highest;
    harpe_problem_options how = {.blocking_power_w = &plan->blocking_power_w,
                                 .blocking_power_count = 1};
    harpe_status status =
        harpe_problem_new(plan->profile, plan->schedule, &how, &plan->problem, error);
    if (status == HARPE_OK) status = harpe_plan_all_maximum(plan->problem, &highest, error);
    if (status != HARPE_OK) return status;
    plan->all_maximum = predict(options, &highest);
    return options->has_no_report ? HARPE_OK : predict_optimum(options, directory, plan, error);
}

harpe_status harpe_sim_plan_load(const harpe_sim_options *options, const char *directory,
                                 harpe_sim_plan *out, harpe_error *error) {
    harpe_sim_plan plan = {0};
    harpe_status status = make_schedule(options, &plan, error);
    if (status == HARPE_OK) status = get_profile(options, &plan, error);
    if (status == HARPE_OK) status = write_profile(&plan, directory, error);
    if (status == HARPE_OK) status = make_predictions(options, directory, &plan, error);
    if (status == HARPE_OK && options->plan_path)
        status = predict_given(options, plan.problem, &plan.fastest, error);
    if (status == HARPE_OK) status = build_program(&plan, error);
    if (status != HARPE_OK) {
        harpe_sim_plan_free(&plan);
        return status;
    }
    *out = plan;
    return HARPE_OK;
}

void harpe_sim_plan_free(harpe_sim_plan *plan) {
    harpe_plan_set_free(plan->one_clock);
    harpe_problem_free(plan->problem);
    harpe_profile_free(plan->profile);
    harpe_schedule_free(plan->schedule);
    free(plan->instructions);
    free(plan->rank_start);
    *plan = (harpe_sim_plan){0};
}
