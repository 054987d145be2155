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

typedef enum argument_kind {
    WHOLE,
    NUMBER,
    NUMBERS,
    TEXT,
    NAMES,
    SCHEDULE,
    LEARNING
} argument_kind;

typedef struct argument {
    const char *name;
    argument_kind kind;
    bool is_for_plans;
    double minimum, maximum;
} argument;

static const argument ARGUMENTS[] = {
    {"num_microbatches", WHOLE, false, 1, 1e6},
    {"schedule", SCHEDULE, false, 0, 0},
    {"prologue", NAMES, false, 0, 0},
    {"epilogue", NAMES, false, 0, 0},
    {"frequency_stride", WHOLE, false, 1, 1000},
    {"rises_to_stop", WHOLE, false, 1, 1000},
    {"profile_path", TEXT, false, 0, 0},
    {"blocking_power", NUMBERS, true, 0, 1e5},
    {"plans", WHOLE, true, 2, 1e4},
    {"slowdown", NUMBER, true, 1, 1e6},
    {"drift_tolerance", NUMBER, true, 0.001, 1},
    {"rounds_to_drift", WHOLE, true, 1, 1e6},
    {"learning", LEARNING, true, 0, 0},
    {"exploration_slowdown", NUMBER, true, 0.001, 0.5},
};
enum { ARGUMENT_COUNT = sizeof ARGUMENTS / sizeof ARGUMENTS[0] };

static const argument *find(const char *name, bool plans) {
    for (int i = 0; i < ARGUMENT_COUNT; i++) {
        const argument *known = &ARGUMENTS[i];
        if (strcmp(known->name, name) == 0) return known->is_for_plans && !plans ? NULL : known;
    }
    return NULL;
}

static bool is_text(const json_t *value) {
    return json_is_string(value) && *json_string_value(value);
}

static bool is_number(const argument *known, const json_t *value) {
    double number = json_number_value(value);
    return json_is_number(value) && number >= known->minimum && number <= known->maximum;
}

/* Returns true for a number, or for a list with at least one number. */
static bool are_numbers(const argument *known, const json_t *value) {
    size_t count = json_array_size(value), good = 0;
    for (size_t i = 0; i < count; i++)
        good += is_number(known, json_array_get(value, i));
    return is_number(known, value) || (count > 0 && good == count);
}

static bool are_names(const json_t *value) {
    size_t count = json_array_size(value), good = 0;
    for (size_t i = 0; i < count; i++)
        good += json_is_string(json_array_get(value, i));
    return json_is_array(value) && good == count && count <= HARPE_STANDALONE_NAMES_MAX;
}

static bool is_way_of_learning(const json_t *value) {
    return is_text(value) && (strcmp(json_string_value(value), "explore") == 0 ||
                              strcmp(json_string_value(value), "sweep") == 0);
}

static harpe_status check_value(const char *scheduler, const argument *known, const json_t *value,
                                harpe_error *error) {
    double number = json_number_value(value);
    switch (known->kind) {
    case WHOLE:
        if (json_is_integer(value) && number >= known->minimum && number <= known->maximum)
            return HARPE_OK;
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "scheduler_args: %s of %s must be a whole number from %.0f to %.0f",
                          known->name, scheduler, known->minimum, known->maximum);
    case NUMBER:
        if (is_number(known, value)) return HARPE_OK;
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "scheduler_args: %s of %s must be a number from %g to %g", known->name,
                          scheduler, known->minimum, known->maximum);
    case NUMBERS:
        if (are_numbers(known, value)) return HARPE_OK;
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "scheduler_args: %s of %s must be a number from %g to %g, or a list with "
                          "such a number for each pipeline rank",
                          known->name, scheduler, known->minimum, known->maximum);
    case TEXT:
        if (is_text(value)) return HARPE_OK;
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "scheduler_args: %s of %s must be a text and must not be empty",
                          known->name, scheduler);
    case NAMES:
        if (are_names(value)) return HARPE_OK;
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "scheduler_args: %s of %s must be a list of at most %d names of "
                          "instructions",
                          known->name, scheduler, HARPE_STANDALONE_NAMES_MAX);
    case LEARNING:
        if (is_way_of_learning(value)) return HARPE_OK;
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "scheduler_args: %s of %s must be \"explore\" or \"sweep\"", known->name,
                          scheduler);
    case SCHEDULE:
        if (is_text(value) ||
            (json_object_size(value) == 1 && is_text(json_object_get(value, "csv"))))
            return HARPE_OK;
        break;
    }
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "scheduler_args: %s of %s must be a schedule's name or {\"csv\": \"path\"}",
                      known->name, scheduler);
}

static harpe_status check(const char *scheduler, bool plans, json_t *args, harpe_error *error) {
    const char *name;
    json_t *value;
    json_object_foreach(args, name, value) {
        const argument *known = find(name, plans);
        if (!known)
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "scheduler_args: %s has no argument '%.64s'", scheduler, name);
        harpe_status status = check_value(scheduler, known, value, error);
        if (status != HARPE_OK) return status;
    }
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
    json_t *args = json_loads(args_json, JSON_REJECT_DUPLICATES, NULL);
    harpe_status status = HARPE_OK;
    if (!json_is_object(args))
        status = harpe_fail(error, HARPE_INVALID_ARGUMENT,
                            "scheduler_args: must be a JSON object, for example "
                            "{\"num_microbatches\": 8}");
    if (status == HARPE_OK) status = check(scheduler, plans, args, error);
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

/* A file is checked by reading it. */
static harpe_status check_schedule(const harpe_perseus_args *args, harpe_error *error) {
    const harpe_online_schedule *which = &args->schedule;
    harpe_schedule *schedule;
    harpe_status status;
    if (!which->csv_path) {
        harpe_schedule_options options = {.ranks = 1,
                                          .microbatches = 1,
                                          .prologue = which->prologue,
                                          .epilogue = which->epilogue};
        if (args->num_microbatches > 0) return check_name(args, error);
        status = harpe_online_can_count(which->name, 4, error);
        if (status == HARPE_OK) status = harpe_schedule_new(&options, &schedule, error);
    } else {
        status = harpe_file_check_regular(which->csv_path, error);
        if (status == HARPE_OK) status = harpe_schedule_read_csv(which->csv_path, &schedule, error);
        if (status == HARPE_OK) {
            status = harpe_online_check_lags(which, schedule, error);
            if (status == HARPE_OK)
                status = harpe_schedule_surround(schedule, which->prologue, which->epilogue, error);
            if (status != HARPE_OK) harpe_schedule_free(schedule);
        }
    }
    if (status != HARPE_OK) return status;
    harpe_schedule_free(schedule);
    return HARPE_OK;
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
