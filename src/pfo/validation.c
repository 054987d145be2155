/* SPDX-License-Identifier: Apache-2.0 */
/* The list of problems of a request, in the form that existing clients know. This file collects and
 * prints problems, and the readers of fields (fields.c) find them. */
#include "pfo/validation.h"

#include <stdio.h>

#include "base/error.h"
#include "base/text.h"

/* A hostile body could contain millions of invalid fields. */
enum { PROBLEM_LIMIT = 1000, SHOWN_NAME_BYTES = 64 };

void harpe_problems_add_context(harpe_problems *problems, json_t *location, const char *type,
                                const char *message, json_t *context) {
    json_t *problem = NULL;
    if (harpe_problems_count(problems) >= PROBLEM_LIMIT) {
        json_decref(location);
        json_decref(context);
        return;
    }
    if (!problems->list) problems->list = json_array();
    if (location) { /* json_pack takes both references over, also if it fails */
        problem = json_pack("{s:o, s:s, s:s, s:o*}", "loc", location, "msg", message, "type", type,
                            "ctx", context);
    } else {
        json_decref(context);
    }
    if (!problem || json_array_append_new(problems->list, problem) != 0)
        problems->out_of_memory = true;
}

void harpe_problems_add(harpe_problems *problems, json_t *location, const char *type,
                        const char *message) {
    harpe_problems_add_context(problems, location, type, message, NULL);
}

void harpe_problems_add_limit(harpe_problems *problems, json_t *location, const char *type,
                              const char *message, json_int_t limit) {
    json_t *context = json_pack("{s:I}", "limit_value", limit);
    if (!context) problems->out_of_memory = true;
    harpe_problems_add_context(problems, location, type, message, context);
}

size_t harpe_problems_count(const harpe_problems *problems) {
    return json_array_size(problems->list);
}

char *harpe_problems_format(const harpe_problems *problems) {
    if (problems->out_of_memory) return NULL;
    json_t *answer = json_pack("{s:O?}", "detail", problems->list);
    char *text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;
    json_decref(answer);
    return text;
}

/* Appends ["body", "frequencies", 3] as "body.frequencies[3]: ". Names from outside are cleaned
 * first. */
static void append_location(harpe_text *text, const json_t *location) {
    size_t i;
    const json_t *part;
    json_array_foreach(location, i, part) {
        if (json_is_integer(part)) {
            harpe_text_printf(text, "[%lld]", (long long)json_integer_value(part));
            continue;
        }
        harpe_text_append(text, ".", i > 0 ? 1 : 0);
        const char *name = json_string_value(part);
        size_t length = json_string_length(part);
        for (size_t k = 0; name && k < length && k < SHOWN_NAME_BYTES; k++)
            harpe_text_append(text, name[k] >= ' ' && name[k] <= '~' ? &name[k] : "?", 1);
    }
    harpe_text_append(text, ": ", json_array_size(location) > 0 ? 2 : 0);
}

harpe_status harpe_problems_status(const harpe_problems *problems, harpe_error *error) {
    size_t count = harpe_problems_count(problems);
    harpe_text where = {0};
    if (problems->out_of_memory) return harpe_fail_memory(error);
    if (count == 0) return HARPE_OK;
    const json_t *first = json_array_get(problems->list, 0);
    append_location(&where, json_object_get(first, "loc"));
    const char *message = json_string_value(json_object_get(first, "msg"));
    char others[64] = "";
    if (count > 1) (void)snprintf(others, sizeof others, " (and %zu more)", count - 1);
    harpe_status status =
        where.failed ? harpe_fail_memory(error)
                     : harpe_fail(error, HARPE_INVALID_INPUT, "%s%s%s",
                                  where.data ? where.data : "", message ? message : "", others);
    harpe_text_free(&where);
    return status;
}

void harpe_problems_free(harpe_problems *problems) {
    json_decref(problems->list);
    *problems = (harpe_problems){0};
}
