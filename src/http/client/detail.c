/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the reason that a harpe server gives in the answer to a request that it refuses. */
#include "http/client/detail.h"

#include <jansson.h>
#include <stdio.h>

/* Describes an invalid field of a list: "body.pp_degree: field required". */
static void describe_bad_field(const json_t *problem, char *text, size_t size) {
    size_t length = 0;
    size_t index;
    const json_t *part;
    text[0] = '\0';
    json_array_foreach(json_object_get(problem, "loc"), index, part) {
        int more = json_is_string(part) ? snprintf(text + length, size - length, "%s%s",
                                                   index ? "." : "", json_string_value(part))
                                        : snprintf(text + length, size - length, "[%lld]",
                                                   (long long)json_integer_value(part));
        length += more > 0 ? (size_t)more : 0;
        if (length >= size) return;
    }
    const char *message = json_string_value(json_object_get(problem, "msg"));
    (void)snprintf(text + length, size - length, ": %s", message ? message : "");
}

bool harpe_answer_detail(const harpe_answer *answer, char *text, size_t size) {
    json_t *body = json_loadb(answer->body, answer->length, 0, NULL);
    const json_t *detail = json_object_get(body, "detail");
    bool is_found = json_is_string(detail) || json_array_size(detail) > 0;
    if (json_is_string(detail))
        (void)snprintf(text, size, "%s", json_string_value(detail));
    else if (is_found)
        describe_bad_field(json_array_get(detail, 0), text, size);
    json_decref(body);
    return is_found;
}
