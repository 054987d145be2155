/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of the online schedulers. One table describes them, and they are read and checked
 * with this table. All arguments are optional. */
#include "server/scheduler/perseus/perseus_job.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "plan/schedule.h"
#include "server/scheduler/builtin.h"

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

static int whole(const json_t *args, const char *name, int otherwise) {
    const json_t *value = json_object_get(args, name);
    return value ? (int)json_integer_value(value) : otherwise;
}

static double number(const json_t *args, const char *name, double otherwise) {
    const json_t *value = json_object_get(args, name);
    return value ? json_number_value(value) : otherwise;
}

/* Returns the names of a list, ended by NULL. They last as long as `list`. Returns NULL if memory
 * runs out. */
static const char **names_of(const json_t *list) {
    size_t count = json_array_size(list);
    const char **names = harpe_calloc(count + 1, sizeof *names);
    for (size_t i = 0; names && i < count; i++)
        names[i] = json_string_value(json_array_get(list, i));
    return names;
}

harpe_status harpe_perseus_args_read(const char *scheduler, bool plans, const char *args_json,
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
    const json_t *blocking_power = json_object_get(args, "blocking_power");
    const char *learning = json_string_value(json_object_get(args, "learning"));
    *out = (harpe_perseus_args){
        .json = args,
        .schedule = {.name = json_string_value(schedule),
                     .csv_path = json_string_value(json_object_get(schedule, "csv"))},
        .prologue = names_of(json_object_get(args, "prologue")),
        .epilogue = names_of(json_object_get(args, "epilogue")),
        .profile_path = json_string_value(json_object_get(args, "profile_path")),
        .num_microbatches = whole(args, "num_microbatches", 0),
        .frequency_stride = whole(args, "frequency_stride", 1),
        .rises_to_stop = whole(args, "rises_to_stop", 5),
        .plans = whole(args, "plans", 100),
        .rounds_to_drift = whole(args, "rounds_to_drift", 2),
        .blocking_power_w = json_is_number(blocking_power) ? json_number_value(blocking_power) : -1,
        .blocking_powers = json_is_array(blocking_power) ? blocking_power : NULL,
        .slowdown = number(args, "slowdown", 1),
        .learns_by_sweep = !plans || (learning && strcmp(learning, "sweep") == 0),
        .exploration_slowdown = number(args, "exploration_slowdown", 0.01),
        .drift_tolerance = number(args, "drift_tolerance", 0.05),
    };
    out->schedule.prologue = out->prologue;
    out->schedule.epilogue = out->epilogue;
    if (out->prologue && out->epilogue) return HARPE_OK;
    harpe_perseus_args_free(out);
    return harpe_fail_memory(error);
}

void harpe_perseus_args_free(harpe_perseus_args *args) {
    free(args->prologue);
    free(args->epilogue);
    json_decref(args->json);
    *args = (harpe_perseus_args){0};
}

harpe_status harpe_perseus_args_check_ranks(const char *scheduler, const harpe_perseus_args *args,
                                            int pipeline_ranks, harpe_error *error) {
    size_t given = json_array_size(args->blocking_powers);
    if (!args->blocking_powers || given == (size_t)pipeline_ranks) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "scheduler_args: blocking_power of %s has %zu numbers, but this job has %d "
                      "pipeline ranks",
                      scheduler, given, pipeline_ranks);
}

bool harpe_perseus_args_have_blocking_power(const harpe_perseus_args *args) {
    return args->blocking_powers || args->blocking_power_w >= 0;
}

double harpe_perseus_args_blocking_power_w(const harpe_perseus_args *args, int pipeline_rank) {
    if (!args->blocking_powers) return args->blocking_power_w;
    return json_number_value(json_array_get(args->blocking_powers, (size_t)pipeline_rank));
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

harpe_status harpe_perseus_args_check(const char *scheduler, bool plans, const char *args_json,
                                      harpe_error *error) {
    harpe_perseus_args args;
    harpe_status status = harpe_perseus_args_read(scheduler, plans, args_json, &args, error);
    if (status != HARPE_OK) return status;
    status = check_schedule(&args, error);
    harpe_perseus_args_free(&args);
    return status;
}
