/* SPDX-License-Identifier: Apache-2.0 */
/* Reading typed fields out of a JSON tree, as pydantic 1 reads them: 4, 4.0 and "4" are integers,
 * every bad field is added to the problems with its place, and reading goes on. What a model's
 * fields are, the models say (job_info.c ...). */
#ifndef HARPE_PFO_FIELDS_H
#define HARPE_PFO_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pfo/json_tree.h"
#include "pfo/validation.h"

/* A document being read into models. */
typedef struct harpe_fields {
    const harpe_json *json;
    harpe_problems *problems;
    bool has_failed; /* a problem was added */
} harpe_fields;

/* Where a value stands, from the inside out, kept on the stack: a member's name or, when `name` is
 * NULL, an item's index. A NULL pointer is the root. */
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

/* A text inside the document (or a static one): not NUL-terminated. NULL bytes: null. */
typedef struct harpe_slice {
    const char *bytes;
    size_t length;
} harpe_slice;

/* Copies a slice to `*room`, NUL-terminated, and moves `*room` behind it. NULL for null. */
const char *harpe_slice_put(harpe_slice slice, char **room);

void harpe_fields_problem(harpe_fields *fields, const harpe_place *place, const char *type,
                          const char *message);
/* With "ctx": taken over. */
void harpe_fields_problem_context(harpe_fields *fields, const harpe_place *place, const char *type,
                                  const char *message, json_t *context);

/* ---- Values: false when a problem was added, and then the output is untouched ---------------- */

bool harpe_value_int(harpe_fields *fields, size_t node, const harpe_place *place, int minimum,
                     int *out);
bool harpe_value_double(harpe_fields *fields, size_t node, const harpe_place *place, double *out);
bool harpe_value_text(harpe_fields *fields, size_t node, const harpe_place *place,
                      harpe_slice *out);
/* Is the node of that kind (LIST or OBJECT)? */
bool harpe_value_is(harpe_fields *fields, size_t node, const harpe_place *place,
                    harpe_json_kind kind);

/* [+-]digits with white space around, as Python's int() takes them; within int64. */
bool harpe_text_to_int(const char *text, size_t length, int64_t *out);

/* ---- Members of an object at `place` --------------------------------------------------------- */

/* A required integer of at least `minimum`. */
bool harpe_member_int(harpe_fields *fields, size_t object, const harpe_place *place,
                      const char *name, int minimum, int *out);
/* Left alone when absent. */
bool harpe_member_text(harpe_fields *fields, size_t object, const harpe_place *place,
                       const char *name, bool may_be_null, harpe_slice *out);
/* A list or an object: its node; 0 when absent or bad (a problem, unless absent and optional). */
size_t harpe_member_container(harpe_fields *fields, size_t object, const harpe_place *place,
                              const char *name, harpe_json_kind kind, bool is_required);

/* ---- Documents ------------------------------------------------------------------------------- */

/* Reads one model from an object. Fills `*out` only when it adds no problem. */
typedef void harpe_model_read(harpe_fields *fields, size_t object, const harpe_place *place,
                              void *out);

/* A request's body: problems stand under "body". */
bool harpe_body_decode(const char *body, size_t length, harpe_model_read *read, void *out,
                       harpe_problems *problems);
/* One model, with the first problem as the error. */
harpe_status harpe_text_decode(const char *text, size_t length, harpe_model_read *read, void *out,
                               harpe_error *error);

/* Adds why a document cannot be read, at ["body", character] or, without `place`, at the root. */
void harpe_problems_add_failure(harpe_problems *problems, const harpe_place *place,
                                const char *text, size_t length, const harpe_json_failure *failure);

#endif
