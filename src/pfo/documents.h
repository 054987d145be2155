/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes a document into one model. */
#ifndef HARPE_PFO_DOCUMENTS_H
#define HARPE_PFO_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "pfo/fields.h"

/* Reads one model from an object. Fills `*out` only if the object has no problem. */
typedef void harpe_model_read(harpe_fields *fields, size_t object, const harpe_place *place,
                              void *out);

/* Decodes a request's body. The locations of problems begin with "body". */
bool harpe_body_decode(const char *body, size_t length, harpe_model_read *read, void *out,
                       harpe_problems *problems);
/* Decodes one model. The first problem becomes the error. */
harpe_status harpe_text_decode(const char *text, size_t length, harpe_model_read *read, void *out,
                               harpe_error *error);

/* Adds the reason why a document cannot be read, at ["body", character], or at the root if `place`
 * is NULL. */
void harpe_problems_add_failure(harpe_problems *problems, const harpe_place *place,
                                const char *text, size_t length, const harpe_json_failure *failure);

#endif
