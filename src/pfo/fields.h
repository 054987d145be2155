/* SPDX-License-Identifier: Apache-2.0 */
/* Reads typed fields from a JSON tree as pydantic 1 does: 4, 4.0 and "4" are integers. For every
 * invalid field, a problem with the field's location is added, and reading continues. The models
 * (job_info.c ...) define their fields. */
#ifndef HARPE_PFO_FIELDS_H
#define HARPE_PFO_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pfo/json_tree.h"
#include "pfo/validation.h"

/* A document that is being read into models. */
typedef struct harpe_fields {
    const harpe_json *json;
    harpe_problems *problems;
    bool has_failed; /* true after a problem was added */
} harpe_fields;

/* The location of a value, as a chain on the stack from the innermost element outwards. An element
 * is a member's name, or an item's index if `name` is NULL. A NULL pointer is the root. */
typedef struct harpe_place {
    const struct harpe_place *parent;
    const char *name;
    size_t name_length;
    size_t index;
} harpe_place;

static inline harpe_place harpe_place_member(const harpe_place *parent, const char *name,
                                             size_t name_length) {
    return (harpe_place){parent, name, name_length, 0};
}

static inline harpe_place harpe_place_item(const harpe_place *parent, size_t index) {
    return (harpe_place){parent, NULL, 0, index};
}

/* A text in the document, or a static text. It is not NUL-terminated. If `bytes` is NULL, the value
 * is null. */
typedef struct harpe_slice {
    const char *bytes;
    size_t length;
} harpe_slice;

/* Copies a slice to `*room`, appends a NUL, and moves `*room` behind the copy. Returns NULL for
 * null. */
const char *harpe_slice_put(harpe_slice slice, char **room);

void harpe_fields_problem(harpe_fields *fields, const harpe_place *place, const char *type,
                          const char *message);
/* Adds a problem whose "ctx" is `context`. Takes `context` over. */
void harpe_fields_problem_context(harpe_fields *fields, const harpe_place *place, const char *type,
                                  const char *message, json_t *context);

/* ---- Values: return false if a problem was added; the output is then unchanged --------------- */

bool harpe_value_int(harpe_fields *fields, size_t node, const harpe_place *place, int minimum,
                     int *out);
bool harpe_value_double(harpe_fields *fields, size_t node, const harpe_place *place, double *out);
bool harpe_value_text(harpe_fields *fields, size_t node, const harpe_place *place,
                      harpe_slice *out);
/* Returns true if the node has the kind `kind` (LIST or OBJECT). */
bool harpe_value_is(harpe_fields *fields, size_t node, const harpe_place *place,
                    harpe_json_kind kind);

/* Reads [+-]digits within the range of int64. Like Python's int(), it ignores white space around
 * them. */
bool harpe_text_to_int(const char *text, size_t length, int64_t *out);

/* ---- Members of an object at `place` --------------------------------------------------------- */

/* Reads a required integer of at least `minimum`. */
bool harpe_member_int(harpe_fields *fields, size_t object, const harpe_place *place,
                      const char *name, int minimum, int *out);
/* Reads an optional text. If it is absent, the output is unchanged. */
bool harpe_member_text(harpe_fields *fields, size_t object, const harpe_place *place,
                       const char *name, bool may_be_null, harpe_slice *out);
/* Returns the node of a member that is a list or an object. Returns 0 if the member is missing or
 * invalid. Adds a problem if the member is invalid, or if it is required and missing. */
size_t harpe_member_container(harpe_fields *fields, size_t object, const harpe_place *place,
                              const char *name, harpe_json_kind kind, bool is_required);

#endif
