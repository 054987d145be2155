/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes a text into one model. This file reads the document and checks that it is an object, and
 * the model reads the fields. If the text is not JSON, the error has the form that FastAPI uses. */
#include "pfo/documents.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "pfo/fields.h"
#include "pfo/models.h"
#include "pfo/utf8.h"

enum { SHOWN_DOCUMENT_BYTES = 4096, SUMMARY_SIZE = 256 };

/* A position in characters, as in Python. */
typedef struct position {
    json_int_t character, line, column;
} position;

static position position_of(const char *text, size_t byte) {
    position where = {0, 1, 1};
    for (size_t i = 0; i < byte; i++) {
        if (((unsigned char)text[i] & 0xC0) == 0x80) continue; /* not a character's first byte */
        where.character++;
        where.column++;
        if (text[i] == '\n') {
            where.line++;
            where.column = 1;
        }
    }
    return where;
}

/* Returns the beginning of the document that is valid UTF-8, cut to a length that suits an answer.
 */
static json_t *shown_document(const char *text, size_t length) {
    size_t shown = length < SHOWN_DOCUMENT_BYTES ? length : SHOWN_DOCUMENT_BYTES;
    return json_stringn(text, harpe_utf8_span(text, shown));
}

void harpe_problems_add_failure(harpe_problems *problems, const harpe_place *place,
                                const char *text, size_t length,
                                const harpe_json_failure *failure) {
    char summary[SUMMARY_SIZE];
    if (!failure->message) {
        problems->out_of_memory = true;
        return;
    }
    harpe_fields fields = {.problems = problems};
    position where = position_of(text, failure->byte);
    (void)snprintf(summary, sizeof summary, "%s: line %lld column %lld (char %lld)",
                   failure->message, (long long)where.line, (long long)where.column,
                   (long long)where.character);
    harpe_place character = harpe_place_item(place, (size_t)where.character);
    json_t *context = json_pack("{s:s, s:o, s:I, s:I, s:I}", "msg", failure->message, "doc",
                                shown_document(text, length), "pos", where.character, "lineno",
                                where.line, "colno", where.column);
    if (!context) problems->out_of_memory = true;
    harpe_fields_problem_context(&fields, place ? &character : NULL, "value_error.jsondecode",
                                 summary, context);
}

/* Decodes a text. `body` is the location "body", or NULL if the text is not the body of a request.
 */
static bool decode(const char *text, size_t length, const harpe_place *body, harpe_model_read *read,
                   void *out, harpe_problems *problems) {
    harpe_json json;
    harpe_json_failure failure;
    harpe_fields fields = {.json = &json, .problems = problems};
    if (length == 0 && body) {
        harpe_fields_problem(&fields, body, "value_error.missing", "field required");
        return false;
    }
    if (!harpe_json_read(text, length, &json, &failure)) {
        harpe_problems_add_failure(problems, body, text, length, &failure);
        return false;
    }
    if (body && harpe_json_kind_of(&json, 0) == HARPE_JSON_NULL)
        harpe_fields_problem(&fields, body, "value_error.missing", "field required");
    else if (harpe_value_is(&fields, 0, body, HARPE_JSON_OBJECT))
        read(&fields, 0, body, out);
    harpe_json_free(&json);
    return !fields.has_failed && !problems->out_of_memory;
}

bool harpe_body_decode(const char *body, size_t length, harpe_model_read *read, void *out,
                       harpe_problems *problems) {
    harpe_place place = harpe_place_member(NULL, "body", strlen("body"));
    return decode(body, length, &place, read, out, problems);
}

harpe_status harpe_text_decode(const char *text, size_t length, harpe_model_read *read, void *out,
                               harpe_error *error) {
    harpe_problems problems = {0};
    harpe_status status = HARPE_OK;
    if (!decode(text, length, NULL, read, out, &problems))
        status = harpe_problems_status(&problems, error);
    harpe_problems_free(&problems);
    return status;
}

bool harpe_query_int_decode(const char *name, const char *text, int64_t *out,
                            harpe_problems *problems) {
    if (text && harpe_text_to_int(text, strlen(text), out)) return true;
    harpe_problems_add(problems, json_pack("[s, s]", "query", name),
                       text ? "type_error.integer" : "value_error.missing",
                       text ? "value is not a valid integer" : "field required");
    return false;
}
