/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the errors of a request, one for each invalid field, in the form of the published
 * server: {"detail": [{"loc": [...], "msg": ..., "type": ...}, ...]}. */
#ifndef HARPE_PFO_VALIDATION_H
#define HARPE_PFO_VALIDATION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include <harpe/status.h>

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
/* Adds a problem whose "ctx" is `context`, or that has none if `context` is NULL. Takes `context`
 * over. */
void harpe_problems_add_context(harpe_problems *problems, json_t *location, const char *type,
                                const char *message, json_t *context);
/* Returns the number of problems. At most 1000 are kept. */
size_t harpe_problems_count(const harpe_problems *problems);
/* Returns {"detail": [...]} as text, which the caller frees with free(); NULL when out of
 * memory. */
char *harpe_problems_format(const harpe_problems *problems);
/* Returns HARPE_INVALID_INPUT with the first problem and the number of others, or HARPE_OK if
 * there are none. */
harpe_status harpe_problems_status(const harpe_problems *problems, harpe_error *error);
void harpe_problems_free(harpe_problems *problems);

#endif
