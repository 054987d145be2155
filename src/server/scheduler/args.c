/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the arguments of the built-in schedulers. A misspelt argument is an error when the server
 * starts, and not only when the first job begins. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "pfo/metadata.h"
#include "pfo/result_scan.h"
#include "server/scheduler/builtin.h"

static const harpe_scheduler_argument *find(const harpe_scheduler_argument *known,
                                            const char *name) {
    for (; known->name; known++)
        if (strcmp(known->name, name) == 0) return known;
    return NULL;
}

static harpe_status check_value(const char *scheduler, const harpe_scheduler_argument *argument,
                                const json_t *value, harpe_error *error) {
    if (argument->is_text) {
        if (json_is_string(value) && *json_string_value(value)) return HARPE_OK;
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "scheduler_args: %s of %s must be a text and must not be empty",
                          argument->name, scheduler);
    }
    if (json_is_integer(value) && json_integer_value(value) >= 1 &&
        json_integer_value(value) <= argument->maximum)
        return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "scheduler_args: %s of %s must be a whole number from 1 to %lld",
                      argument->name, scheduler, (long long)argument->maximum);
}

static harpe_status check(const char *scheduler, json_t *args,
                          const harpe_scheduler_argument *known, harpe_error *error) {
    const char *name;
    json_t *value;
    json_object_foreach(args, name, value) {
        const harpe_scheduler_argument *argument = find(known, name);
        if (!argument)
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "scheduler_args: %s has no argument '%.64s'", scheduler, name);
        harpe_status status = check_value(scheduler, argument, value, error);
        if (status != HARPE_OK) return status;
    }
    for (; known->name; known++) {
        if (known->is_optional || json_object_get(args, known->name)) continue;
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "scheduler_args: %s needs the argument '%s', for example {\"%s\": %s}; "
                          "--scheduler Perseus needs none",
                          scheduler, known->name, known->name, known->is_text ? "\"...\"" : "8");
    }
    return HARPE_OK;
}

harpe_status harpe_scheduler_args_read(const char *scheduler, const char *args_json,
                                       const harpe_scheduler_argument *known, json_t **out,
                                       harpe_error *error) {
    json_error_t problem;
    json_t *args = json_loads(args_json, JSON_REJECT_DUPLICATES, &problem);
    if (!json_is_object(args)) {
        json_decref(args);
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "scheduler_args: must be a JSON object");
    }
    harpe_status status = check(scheduler, args, known, error);
    if (status != HARPE_OK) {
        json_decref(args);
        return status;
    }
    *out = args;
    return HARPE_OK;
}

/* ---- What a job says of itself --------------------------------------------------------------- */

static const char MICROBATCHES[] = "num_microbatches", TOKENS[] = "tokens_per_step";

/* Returns the N of a word NAME=N in a job's metadata, from 1 to `maximum`, or 0. `wrong` receives
 * the first such word that has no such N, or NULL; it may be NULL itself. */
static int64_t number_in_metadata(const harpe_job_info *job, const char *name, int64_t maximum,
                                  const char **wrong) {
    const char *value, *place = job->job_metadata ? job->job_metadata : "";
    size_t length;
    while ((value = harpe_metadata_next(&place, name, &length))) {
        bool is_whole = length > 0 && length < 11 && strspn(value, "0123456789") == length;
        long long number = is_whole ? strtoll(value, NULL, 10) : 0;
        if (number >= 1 && number <= maximum) return number;
        if (wrong && !*wrong) *wrong = value - strlen(name) - 1;
    }
    return 0;
}

int harpe_scheduler_job_microbatches(const harpe_job_info *job) {
    return (int)number_in_metadata(job, MICROBATCHES, HARPE_JOB_MICROBATCHES_MAX, NULL);
}

int64_t harpe_scheduler_job_tokens(const harpe_job_info *job) {
    return number_in_metadata(job, TOKENS, HARPE_TOKENS_MAX, NULL);
}

bool harpe_scheduler_job_wrong_word(const harpe_job_info *job, char *word, int64_t *maximum) {
    const char *wrong = NULL;
    *maximum = HARPE_JOB_MICROBATCHES_MAX;
    (void)number_in_metadata(job, MICROBATCHES, *maximum, &wrong);
    if (!wrong) {
        *maximum = HARPE_TOKENS_MAX;
        (void)number_in_metadata(job, TOKENS, *maximum, &wrong);
    }
    if (!wrong) return false;
    size_t length = strcspn(wrong, HARPE_METADATA_SEPARATORS);
    if (length > HARPE_JOB_WORD_MAX) length = HARPE_JOB_WORD_MAX;
    memcpy(word, wrong, length);
    word[length] = '\0';
    return true;
}
