/* SPDX-License-Identifier: Apache-2.0 */
/* Reads documents and their typed fields as pydantic 1 does: 4, 4.0 and "4" are integers. For every
 * invalid field, a problem with the field's location is added, and reading continues. The problems
 * have the form of the published server: {"detail": [{"loc": [...], "msg": ..., "type": ...},
 * ...]}. The models (models.c) define their fields. */
#ifndef HARPE_PFO_FIELDS_H
#define HARPE_PFO_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

#include "pfo/json_tree.h"

/* ---- Problems -------------------------------------------------------------------------------- */

/* Initialise it with zeros, and free it with harpe_problems_free. */
typedef struct harpe_problems {
    json_t *list; /* NULL if there are no problems */
    bool out_of_memory;
} harpe_problems;

/* Adds a problem. Takes `location` over, a JSON list such as ["body", "pp_degree"]. */
void harpe_problems_add(harpe_problems *problems, json_t *location, const char *type,
                        const char *message);
/* Adds a problem with "ctx": {"limit_value": limit}. */
void harpe_problems_add_limit(harpe_problems *problems, json_t *location, const char *type,
                              const char *message, json_int_t limit);
/* Returns the number of problems. At most 1000 are kept. */
size_t harpe_problems_count(const harpe_problems *problems);
/* Returns {"detail": [...]} as text, which the caller frees with free(); NULL when out of
 * memory. */
char *harpe_problems_format(const harpe_problems *problems);
/* Returns HARPE_INVALID_INPUT with the first problem and the number of others, or HARPE_OK if
 * there are none. */
harpe_status harpe_problems_status(const harpe_problems *problems, harpe_error *error);
void harpe_problems_free(harpe_problems *problems);

/* ---- Fields ---------------------------------------------------------------------------------- */

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

/* Add a problem and return false. Its "ctx" is `context`, which is taken over; NULL: none. */
bool harpe_fields_problem(harpe_fields *fields, const harpe_place *place, const char *type,
                          const char *message);
bool harpe_fields_problem_context(harpe_fields *fields, const harpe_place *place, const char *type,
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

/* Returns the node of the member at `place`, whose name is the innermost part of `place`, or 0 if
 * there is none. Adds a problem if the member is required and missing. */
size_t harpe_fields_find(harpe_fields *fields, size_t object, const harpe_place *place,
                         bool is_required);
/* Reads a required integer of at least `minimum` from an object at `place`. */
bool harpe_member_int(harpe_fields *fields, size_t object, const harpe_place *place,
                      const char *name, int minimum, int *out);

/* ---- Documents ------------------------------------------------------------------------------- */

/* Reads a model from a node of a document. Fills `*out` only if it has no problem. */
typedef void harpe_model_read(harpe_fields *fields, size_t node, const harpe_place *place,
                              void *out);

/* Decodes a request's body, which must be an object. The locations of problems begin with "body".
 */
bool harpe_body_decode(const char *body, size_t length, harpe_model_read *read, void *out,
                       harpe_problems *problems);
/* Decodes a document with any root. The first problem becomes the error. */
harpe_status harpe_text_decode(const char *text, size_t length, harpe_model_read *read, void *out,
                               harpe_error *error);
/* Decodes a query value such as "3" for `name` (location ["query", name]). `text` NULL: missing. */
bool harpe_query_int_decode(const char *name, const char *text, int64_t *out,
                            harpe_problems *problems);

#endif
