/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the arguments of the built-in schedulers. A misspelt argument is an error when the server
 * starts, and not only when the first job begins. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "pfo/conduct.h"
#include "pfo/metadata.h"
#include "server/scheduler/builtin.h"

static bool is_text(const json_t *value) {
    return json_is_string(value) && *json_string_value(value);
}

static bool is_number(const harpe_scheduler_argument *known, const json_t *value) {
    double number = json_number_value(value);
    return json_is_number(value) && number >= known->minimum && number <= known->maximum;
}

/* Returns true for a number, or for a list with at least one number. */
static bool are_numbers(const harpe_scheduler_argument *known, const json_t *value) {
    size_t count = json_array_size(value), good = 0;
    for (size_t i = 0; i < count; i++)
        good += is_number(known, json_array_get(value, i));
    return is_number(known, value) || (count > 0 && good == count);
}

static bool are_names(const harpe_scheduler_argument *known, const json_t *value) {
    size_t count = json_array_size(value), good = 0;
    for (size_t i = 0; i < count; i++)
        good += json_is_string(json_array_get(value, i));
    return json_is_array(value) && good == count && (double)count <= known->maximum;
}

/* Returns what a value should be, or NULL if it is right. */
static const char *problem_of(const harpe_scheduler_argument *known, const json_t *value,
                              char *text, size_t size) {
    const char *or_list = "";
    switch (known->kind) {
    case HARPE_ARGUMENT_WHOLE:
        if (json_is_integer(value) && is_number(known, value)) return NULL;
        (void)snprintf(text, size, "a whole number from %.0f to %.0f", known->minimum,
                       known->maximum);
        return text;
    case HARPE_ARGUMENT_NUMBERS:
        if (are_numbers(known, value)) return NULL;
        or_list = ", or a list with such a number for each pipeline rank";
        break;
    case HARPE_ARGUMENT_NUMBER:
        if (is_number(known, value)) return NULL;
        break;
    case HARPE_ARGUMENT_TEXT: return is_text(value) ? NULL : "a text and must not be empty";
    case HARPE_ARGUMENT_NAMES:
        if (are_names(known, value)) return NULL;
        (void)snprintf(text, size, "a list of at most %.0f names of instructions", known->maximum);
        return text;
    default: return NULL;
    }
    (void)snprintf(text, size, "a number from %g to %g%s", known->minimum, known->maximum, or_list);
    return text;
}

static const char *example_of(const harpe_scheduler_argument *known) {
    return known->kind == HARPE_ARGUMENT_TEXT ? "\"...\"" : "8";
}

static harpe_status check(const char *scheduler, json_t *args,
                          const harpe_scheduler_argument *known, size_t count, harpe_error *error) {
    const char *name;
    json_t *value;
    json_object_foreach(args, name, value) {
        char text[128];
        size_t i = 0;
        while (i < count && strcmp(known[i].name, name) != 0)
            i++;
        if (i == count)
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "scheduler_args: %s has no argument '%.64s'", scheduler, name);
        const char *problem = problem_of(&known[i], value, text, sizeof text);
        if (problem)
            return harpe_fail(error, HARPE_INVALID_ARGUMENT, "scheduler_args: %s of %s must be %s",
                              name, scheduler, problem);
    }
    for (size_t i = 0; i < count; i++) {
        if (!known[i].is_required || json_object_get(args, known[i].name)) continue;
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "scheduler_args: %s needs the argument '%s', for example {\"%s\": %s}; "
                          "--scheduler Perseus needs none",
                          scheduler, known[i].name, known[i].name, example_of(&known[i]));
    }
    return HARPE_OK;
}

harpe_status harpe_scheduler_args_read(const char *scheduler, const char *args_json,
                                       const harpe_scheduler_argument *known, size_t count,
                                       json_t **out, harpe_error *error) {
    json_t *args = json_loads(args_json, JSON_REJECT_DUPLICATES, NULL);
    harpe_status status =
        json_is_object(args)
            ? check(scheduler, args, known, count, error)
            : harpe_fail(error, HARPE_INVALID_ARGUMENT,
                         "scheduler_args: must be a JSON object, for example {\"%s\": %s}",
                         known->name, example_of(known));
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
