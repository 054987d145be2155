/* SPDX-License-Identifier: Apache-2.0 */
/* Reads documents and typed fields with the conversions and error texts of pydantic 1, and collects
 * and prints their problems. This file is stricter than pydantic where a conversion would lose data
 * silently: true is not a number, 4.9 is not an integer, and no number is infinite. If a text is
 * not JSON, the error has the form that FastAPI uses. */
#include "pfo/fields.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "base/text.h"

/* A hostile body could contain millions of invalid fields. */
enum {
    PROBLEM_LIMIT = 1000,
    SHOWN_NAME_BYTES = 64,
    MESSAGE_SIZE = 128,
    SHOWN_DOCUMENT_BYTES = 4096,
    SUMMARY_SIZE = 256
};

/* ---- Problems -------------------------------------------------------------------------------- */

/* Takes `location` and `context` over. */
static void add_problem(harpe_problems *problems, json_t *location, const char *type,
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
    add_problem(problems, location, type, message, NULL);
}

void harpe_problems_add_limit(harpe_problems *problems, json_t *location, const char *type,
                              const char *message, json_int_t limit) {
    json_t *context = json_pack("{s:I}", "limit_value", limit);
    if (!context) problems->out_of_memory = true;
    add_problem(problems, location, type, message, context);
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

/* ---- Locations ------------------------------------------------------------------------------- */

static json_t *location_of(const harpe_place *place) {
    json_t *location = json_array();
    for (; place; place = place->parent) {
        json_t *part = place->name ? json_stringn(place->name, place->name_length)
                                   : json_integer((json_int_t)place->index);
        if (json_array_insert_new(location, 0, part) != 0) {
            json_decref(location);
            return NULL;
        }
    }
    return location;
}

bool harpe_fields_problem_context(harpe_fields *fields, const harpe_place *place, const char *type,
                                  const char *message, json_t *context) {
    fields->has_failed = true;
    add_problem(fields->problems, location_of(place), type, message, context);
    return false;
}

bool harpe_fields_problem(harpe_fields *fields, const harpe_place *place, const char *type,
                          const char *message) {
    return harpe_fields_problem_context(fields, place, type, message, NULL);
}

static bool is_null(harpe_fields *fields, size_t node, const harpe_place *place) {
    return harpe_json_kind_of(fields->json, node) == HARPE_JSON_NULL &&
           !harpe_fields_problem(fields, place, "type_error.none.not_allowed",
                                 "none is not an allowed value");
}

static bool is_number(const harpe_fields *fields, size_t node) {
    harpe_json_kind kind = harpe_json_kind_of(fields->json, node);
    return kind == HARPE_JSON_INTEGER || kind == HARPE_JSON_REAL;
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* Removes the white space that Python's int() and float() ignore. */
static harpe_slice stripped(const char *text, size_t length) {
    static const char space[] = " \t\n\v\f\r\x1c\x1d\x1e\x1f";
    while (length > 0 && memchr(space, text[0], sizeof space - 1)) {
        text++;
        length--;
    }
    while (length > 0 && memchr(space, text[length - 1], sizeof space - 1))
        length--;
    return (harpe_slice){text, length};
}

static bool text_to_int(const char *text, size_t length, int64_t *out) {
    harpe_slice digits = stripped(text, length);
    return harpe_parse_int(digits.bytes, digits.length, out);
}

static bool to_int64(const harpe_fields *fields, size_t node, int64_t *out) {
    if (is_number(fields, node)) return harpe_json_int64(fields->json, node, out);
    if (!harpe_json_is_text(fields->json, node)) return false;
    size_t length;
    const char *text = harpe_json_bytes(fields->json, node, &length);
    return text_to_int(text, length, out);
}

/* Adds the problem that a number is beyond a limit. `limit_name` is "ge" or "le". */
static bool add_limit(harpe_fields *fields, const harpe_place *place, bool is_minimum, int limit) {
    char message[MESSAGE_SIZE];
    (void)snprintf(message, sizeof message, "ensure this value is %s than or equal to %d",
                   is_minimum ? "greater" : "less", limit);
    return harpe_fields_problem_context(
        fields, place, is_minimum ? "value_error.number.not_ge" : "value_error.number.not_le",
        message, json_pack("{s:i}", "limit_value", limit));
}

bool harpe_value_int(harpe_fields *fields, size_t node, const harpe_place *place, int minimum,
                     int *out) {
    int64_t value;
    if (is_null(fields, node, place)) return false;
    if (!to_int64(fields, node, &value))
        return harpe_fields_problem(fields, place, "type_error.integer",
                                    "value is not a valid integer");
    if (value < minimum) return add_limit(fields, place, true, minimum);
    if (value > INT_MAX) return add_limit(fields, place, false, INT_MAX);
    *out = (int)value;
    return true;
}

bool harpe_value_double(harpe_fields *fields, size_t node, const harpe_place *place, double *out) {
    double value = NAN;
    if (is_null(fields, node, place)) return false;
    if (is_number(fields, node)) {
        value = fields->json->nodes[node].number;
    } else if (harpe_json_is_text(fields->json, node)) {
        size_t length;
        const char *text = harpe_json_bytes(fields->json, node, &length);
        harpe_slice number = stripped(text, length);
        (void)harpe_parse_double(number.bytes, number.length, &value);
    }
    if (!isfinite(value))
        return harpe_fields_problem(fields, place, "type_error.float",
                                    "value is not a valid float");
    *out = value;
    return true;
}

bool harpe_value_text(harpe_fields *fields, size_t node, const harpe_place *place,
                      harpe_slice *out) {
    harpe_json_kind kind = harpe_json_kind_of(fields->json, node);
    if (is_null(fields, node, place)) return false;
    if (kind == HARPE_JSON_TRUE || kind == HARPE_JSON_FALSE) { /* as Python prints them */
        *out = kind == HARPE_JSON_TRUE ? (harpe_slice){"True", 4} : (harpe_slice){"False", 5};
        return true;
    }
    if (kind >= HARPE_JSON_LIST ||
        (is_number(fields, node) && !isfinite(fields->json->nodes[node].number)))
        return harpe_fields_problem(fields, place, "type_error.str", "str type expected");
    out->bytes = harpe_json_bytes(fields->json, node, &out->length);
    return true;
}

bool harpe_value_is(harpe_fields *fields, size_t node, const harpe_place *place,
                    harpe_json_kind kind) {
    if (harpe_json_kind_of(fields->json, node) == kind) return true;
    if (is_null(fields, node, place)) return false;
    return kind == HARPE_JSON_LIST
               ? harpe_fields_problem(fields, place, "type_error.list", "value is not a valid list")
               : harpe_fields_problem(fields, place, "type_error.dict",
                                      "value is not a valid dict");
}

/* ---- Members --------------------------------------------------------------------------------- */

size_t harpe_fields_find(harpe_fields *fields, size_t object, const harpe_place *place,
                         bool is_required) {
    size_t node = harpe_json_member(fields->json, object, place->name);
    if (node == 0 && is_required)
        harpe_fields_problem(fields, place, "value_error.missing", "field required");
    return node;
}

bool harpe_member_int(harpe_fields *fields, size_t object, const harpe_place *place,
                      const char *name, int minimum, int *out) {
    harpe_place here = harpe_place_member(place, name, strlen(name));
    size_t node = harpe_fields_find(fields, object, &here, true);
    return node != 0 && harpe_value_int(fields, node, &here, minimum, out);
}

/* ---- Documents ------------------------------------------------------------------------------- */

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

/* Adds the reason why a document cannot be read, at ["body", character], or at the root if `place`
 * is NULL. */
static void add_failure(harpe_problems *problems, const harpe_place *place, const char *text,
                        size_t length, const harpe_json_failure *failure) {
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
 * A body must be an object. */
static bool decode(const char *text, size_t length, const harpe_place *body, harpe_model_read *read,
                   void *out, harpe_problems *problems) {
    harpe_json json;
    harpe_json_failure failure;
    harpe_fields fields = {.json = &json, .problems = problems};
    if (length == 0 && body)
        return harpe_fields_problem(&fields, body, "value_error.missing", "field required");
    if (!harpe_json_read(text, length, &json, &failure)) {
        add_failure(problems, body, text, length, &failure);
        return false;
    }
    if (body && harpe_json_kind_of(&json, 0) == HARPE_JSON_NULL)
        harpe_fields_problem(&fields, body, "value_error.missing", "field required");
    else if (!body || harpe_value_is(&fields, 0, body, HARPE_JSON_OBJECT))
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
    if (text && text_to_int(text, strlen(text), out)) return true;
    harpe_problems_add(problems, json_pack("[s, s]", "query", name),
                       text ? "type_error.integer" : "value_error.missing",
                       text ? "value is not a valid integer" : "field required");
    return false;
}
