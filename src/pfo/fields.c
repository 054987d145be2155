/* SPDX-License-Identifier: Apache-2.0 */
/* Reads typed fields with the conversions and error texts of pydantic 1. This file is stricter than
 * pydantic where a conversion would lose data silently: true is not a number, 4.9 is not an
 * integer, and no number is infinite. */
#include "pfo/fields.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "pfo/json_look.h"

enum { MESSAGE_SIZE = 128 };

/* ---- Problems -------------------------------------------------------------------------------- */

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

void harpe_fields_problem_context(harpe_fields *fields, const harpe_place *place, const char *type,
                                  const char *message, json_t *context) {
    fields->has_failed = true;
    harpe_problems_add_context(fields->problems, location_of(place), type, message, context);
}

void harpe_fields_problem(harpe_fields *fields, const harpe_place *place, const char *type,
                          const char *message) {
    harpe_fields_problem_context(fields, place, type, message, NULL);
}

static bool add(harpe_fields *fields, const harpe_place *place, const char *type,
                const char *message) {
    harpe_fields_problem(fields, place, type, message);
    return false;
}

static bool is_null(harpe_fields *fields, size_t node, const harpe_place *place) {
    return harpe_json_kind_of(fields->json, node) == HARPE_JSON_NULL &&
           !add(fields, place, "type_error.none.not_allowed", "none is not an allowed value");
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

bool harpe_text_to_int(const char *text, size_t length, int64_t *out) {
    harpe_slice digits = stripped(text, length);
    return harpe_parse_int(digits.bytes, digits.length, out);
}

static bool to_int64(const harpe_fields *fields, size_t node, int64_t *out) {
    if (is_number(fields, node)) return harpe_json_int64(fields->json, node, out);
    if (!harpe_json_is_text(fields->json, node)) return false;
    size_t length;
    const char *text = harpe_json_bytes(fields->json, node, &length);
    return harpe_text_to_int(text, length, out);
}

/* Adds the problem that a number is beyond a limit. `limit_name` is "ge" or "le". */
static bool add_limit(harpe_fields *fields, const harpe_place *place, bool is_minimum, int limit) {
    char message[MESSAGE_SIZE];
    (void)snprintf(message, sizeof message, "ensure this value is %s than or equal to %d",
                   is_minimum ? "greater" : "less", limit);
    harpe_fields_problem_context(
        fields, place, is_minimum ? "value_error.number.not_ge" : "value_error.number.not_le",
        message, json_pack("{s:i}", "limit_value", limit));
    return false;
}

bool harpe_value_int(harpe_fields *fields, size_t node, const harpe_place *place, int minimum,
                     int *out) {
    int64_t value;
    if (is_null(fields, node, place)) return false;
    if (!to_int64(fields, node, &value))
        return add(fields, place, "type_error.integer", "value is not a valid integer");
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
        return add(fields, place, "type_error.float", "value is not a valid float");
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
        return add(fields, place, "type_error.str", "str type expected");
    out->bytes = harpe_json_bytes(fields->json, node, &out->length);
    return true;
}

bool harpe_value_is(harpe_fields *fields, size_t node, const harpe_place *place,
                    harpe_json_kind kind) {
    if (harpe_json_kind_of(fields->json, node) == kind) return true;
    if (is_null(fields, node, place)) return false;
    return kind == HARPE_JSON_LIST
               ? add(fields, place, "type_error.list", "value is not a valid list")
               : add(fields, place, "type_error.dict", "value is not a valid dict");
}

const char *harpe_slice_put(harpe_slice slice, char **room) {
    if (!slice.bytes) return NULL;
    char *copy = *room;
    memcpy(copy, slice.bytes, slice.length);
    copy[slice.length] = '\0';
    *room += slice.length + 1;
    return copy;
}

/* ---- Members --------------------------------------------------------------------------------- */

static size_t find(harpe_fields *fields, size_t object, const harpe_place *place,
                   bool is_required) {
    size_t node = harpe_json_member(fields->json, object, place->name);
    if (node == 0 && is_required) (void)add(fields, place, "value_error.missing", "field required");
    return node;
}

bool harpe_member_int(harpe_fields *fields, size_t object, const harpe_place *place,
                      const char *name, int minimum, int *out) {
    harpe_place here = harpe_place_member(place, name, strlen(name));
    size_t node = find(fields, object, &here, true);
    return node != 0 && harpe_value_int(fields, node, &here, minimum, out);
}

bool harpe_member_text(harpe_fields *fields, size_t object, const harpe_place *place,
                       const char *name, bool may_be_null, harpe_slice *out) {
    harpe_place here = harpe_place_member(place, name, strlen(name));
    size_t node = find(fields, object, &here, false);
    if (node == 0) return true;
    if (may_be_null && harpe_json_kind_of(fields->json, node) == HARPE_JSON_NULL) {
        *out = (harpe_slice){0};
        return true;
    }
    return harpe_value_text(fields, node, &here, out);
}

size_t harpe_member_container(harpe_fields *fields, size_t object, const harpe_place *place,
                              const char *name, harpe_json_kind kind, bool is_required) {
    harpe_place here = harpe_place_member(place, name, strlen(name));
    size_t node = find(fields, object, &here, is_required);
    return node != 0 && harpe_value_is(fields, node, &here, kind) ? node : 0;
}
