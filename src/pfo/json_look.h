/* SPDX-License-Identifier: Apache-2.0 */
/* Reads values from a JSON tree. */
#ifndef HARPE_PFO_JSON_LOOK_H
#define HARPE_PFO_JSON_LOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pfo/json_tree.h"

bool harpe_json_is_text(const harpe_json *json, size_t node);
/* Returns the bytes of a text without its quotes, or of a number as it was written. Not
 * NUL-terminated. */
const char *harpe_json_bytes(const harpe_json *json, size_t node, size_t *length);
/* Reads an INTEGER, or a REAL without fraction, within int64. */
bool harpe_json_int64(const harpe_json *json, size_t node, int64_t *value);

/* Returns the node of the value of the last member with this name, or 0 if there is none. */
size_t harpe_json_member(const harpe_json *json, size_t object, const char *name);

typedef struct harpe_json_pair {
    uint32_t key, value; /* nodes */
    uint32_t order;
} harpe_json_pair;

/* Lists the members of an object. A repeated name is listed once, at its first position and with
 * its last value. The caller frees `*pairs` with free(). Returns false when out of memory. */
bool harpe_json_pairs(const harpe_json *json, size_t object, harpe_json_pair **pairs,
                      size_t *count);

#endif
