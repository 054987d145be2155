/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of the online schedulers. One table describes them, and they are read and checked
 * with this table. All arguments are optional. */
#include "server/scheduler/perseus/perseus_args.h"

#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "server/scheduler/perseus/online_pipeline.h"

typedef enum argument_kind { WHOLE, NUMBER, TEXT, SCHEDULE } argument_kind;

typedef struct argument {
    const char *name;
    argument_kind kind;
    bool is_for_plans;
    double minimum, maximum;
} argument;

static const argument ARGUMENTS[] = {
    {"num_microbatches", WHOLE, false, 1, 1e6},
    {"schedule", SCHEDULE, false, 0, 0},
    {"frequency_stride", WHOLE, false, 1, 1000},
    {"rises_to_stop", WHOLE, false, 1, 1000},
    {"profile_path", TEXT, false, 0, 0},
    {"blocking_power", NUMBER, true, 0, 1e5},
    {"plans", WHOLE, true, 2, 1e4},
    {"slowdown", NUMBER, true, 1, 1e6},
    {"drift_tolerance", NUMBER, true, 0.001, 1},
    {"rounds_to_drift", WHOLE, true, 1, 1e6},
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
        if (json_is_number(value) && number >= known->minimum && number <= known->maximum)
            return HARPE_OK;
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "scheduler_args: %s of %s must be a number from %g to %g", known->name,
                          scheduler, known->minimum, known->maximum);
    case TEXT:
        if (is_text(value)) return HARPE_OK;
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "scheduler_args: %s of %s must be a text and must not be empty",
                          known->name, scheduler);
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
    *out = (harpe_perseus_args){
        .json = args,
        .schedule = json_string_value(schedule),
        .schedule_csv = json_string_value(json_object_get(schedule, "csv")),
        .profile_path = json_string_value(json_object_get(args, "profile_path")),
        .num_microbatches = whole(args, "num_microbatches", 0),
        .frequency_stride = whole(args, "frequency_stride", 1),
        .rises_to_stop = whole(args, "rises_to_stop", 5),
        .plans = whole(args, "plans", 100),
        .rounds_to_drift = whole(args, "rounds_to_drift", 2),
        .blocking_power_w = number(args, "blocking_power", -1),
        .slowdown = number(args, "slowdown", 1),
        .drift_tolerance = number(args, "drift_tolerance", 0.05),
    };
    return HARPE_OK;
}

void harpe_perseus_args_free(harpe_perseus_args *args) {
    json_decref(args->json);
    *args = (harpe_perseus_args){0};
}

/* The number of a job's stages is not known at the start of the server. The name of a schedule can
 * be checked with one stage. Schedules that are not defined for one stage are checked with two. */
static harpe_status check_name(const harpe_perseus_args *args, harpe_error *error) {
    harpe_online_pipeline *pipeline = NULL;
    harpe_status status =
        harpe_online_pipeline_new(args->schedule, NULL, 1, args->num_microbatches, &pipeline, NULL);
    if (status != HARPE_OK)
        status = harpe_online_pipeline_new(args->schedule, NULL, 2, args->num_microbatches,
                                           &pipeline, error);
    if (status == HARPE_OK) harpe_online_pipeline_free(pipeline);
    return status;
}

/* A file is checked by reading it. */
static harpe_status check_schedule(const harpe_perseus_args *args, harpe_error *error) {
    if (!args->schedule_csv) {
        return args->num_microbatches == 0 ? harpe_online_can_count(args->schedule, 4, error)
                                           : check_name(args, error);
    }
    harpe_schedule *schedule;
    harpe_status status = harpe_file_check_regular(args->schedule_csv, error);
    if (status == HARPE_OK) status = harpe_schedule_read_csv(args->schedule_csv, &schedule, error);
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
