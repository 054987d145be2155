/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of a request in the ecosystem's form: {"detail": [{"loc": [...], "msg": ..., "type": ...},
 * ...]}, every bad field in it. Collects; decides nothing. */
#ifndef HARPE_PFO_VALIDATION_H
#define HARPE_PFO_VALIDATION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include <harpe/status.h>

/* Zero-initialise; free with harpe_problems_free. */
typedef struct harpe_problems {
    json_t *list; /* NULL while there are none */
    bool out_of_memory;
} harpe_problems;

/* Adds one. `location` is taken over: a JSON list such as ["body", "pp_degree"]. */
void harpe_problems_add(harpe_problems *problems, json_t *location, const char *type,
                        const char *message);
/* With "ctx": {"limit_value": limit}. */
void harpe_problems_add_limit(harpe_problems *problems, json_t *location, const char *type,
                              const char *message, json_int_t limit);
/* With any "ctx", which is taken over as well; NULL: none. */
void harpe_problems_add_context(harpe_problems *problems, json_t *location, const char *type,
                                const char *message, json_t *context);
/* At most 1000 are kept. */
size_t harpe_problems_count(const harpe_problems *problems);
/* {"detail": [...]} as text, to be freed with free(); NULL when out of memory. */
char *harpe_problems_format(const harpe_problems *problems);
/* HARPE_INVALID_INPUT with the first problem and the number of others; HARPE_OK when none. */
harpe_status harpe_problems_status(const harpe_problems *problems, harpe_error *error);
void harpe_problems_free(harpe_problems *problems);

#endif
