/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON document as a flat list of nodes, read in one pass, as forgiving and with the same words
 * as Python's json module, whose errors travel in answers. It accepts what that accepts: integers
 * of any size, NaN and Infinity (as a REAL that is not finite), repeated keys; but refuses invalid
 * UTF-8 and more than HARPE_JSON_DEPTH levels. Knows nothing of models. */
#ifndef HARPE_PFO_JSON_TREE_H
#define HARPE_PFO_JSON_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HARPE_JSON_DEPTH = 64 };

typedef enum harpe_json_kind {
    HARPE_JSON_NULL,
    HARPE_JSON_FALSE,
    HARPE_JSON_TRUE,
    HARPE_JSON_INTEGER,
    HARPE_JSON_REAL,
    HARPE_JSON_TEXT,
    HARPE_JSON_DECODED_TEXT, /* a text that had escapes */
    HARPE_JSON_LIST,
    HARPE_JSON_OBJECT,
} harpe_json_kind;

/* Nodes stand in document order: a container is followed by all that it holds, an object by key,
 * value, key, value. Node 0 is the root, so that 0 also means "no such node". */
typedef struct harpe_json_node {
    union {
        double number;   /* INTEGER, REAL: the closest double */
        uint32_t length; /* TEXT, DECODED_TEXT: bytes */
        struct {
            uint32_t count; /* LIST: items; OBJECT: pairs */
            uint32_t end;   /* the first node behind it */
        } held;
    };
    uint32_t start; /* byte in the document; DECODED_TEXT: in the decoded texts */
    uint32_t kind;  /* harpe_json_kind */
} harpe_json_node;

typedef struct harpe_json {
    const char *text; /* the document, not owned */
    size_t length;
    harpe_json_node *nodes;
    size_t node_count;
    char *decoded; /* texts without their escapes, one behind the other */
} harpe_json;

/* Why a document cannot be read. */
typedef struct harpe_json_failure {
    const char *message; /* static, as Python says it; NULL: out of memory */
    size_t byte;         /* where */
} harpe_json_failure;

/* `text` must outlive the tree. False: `*out` untouched. Time and memory grow with `length` (16
 * bytes for each value and key). */
bool harpe_json_read(const char *text, size_t length, harpe_json *out, harpe_json_failure *failure);
void harpe_json_free(harpe_json *json);

static inline harpe_json_kind harpe_json_kind_of(const harpe_json *json, size_t node) {
    return (harpe_json_kind)json->nodes[node].kind;
}

/* The node behind this one and everything that it holds. */
static inline size_t harpe_json_next(const harpe_json *json, size_t node) {
    return json->nodes[node].kind >= HARPE_JSON_LIST ? json->nodes[node].held.end : node + 1;
}

bool harpe_json_is_text(const harpe_json *json, size_t node);
/* The bytes of a text (without its quotes) or of a number as it was written. Not NUL-terminated. */
const char *harpe_json_bytes(const harpe_json *json, size_t node, size_t *length);
/* An INTEGER, or a REAL without fraction, within int64. */
bool harpe_json_int64(const harpe_json *json, size_t node, int64_t *value);

/* The value of the last member of that name; 0: there is none. */
size_t harpe_json_member(const harpe_json *json, size_t object, const char *name);

typedef struct harpe_json_pair {
    uint32_t key, value; /* nodes */
    uint32_t order;
} harpe_json_pair;

/* All members, each name once: where it first stands, with its last value. `*pairs` is to be freed
 * with free(). False when out of memory. */
bool harpe_json_pairs(const harpe_json *json, size_t object, harpe_json_pair **pairs,
                      size_t *count);

/* How many bytes from the start are valid UTF-8. */
size_t harpe_utf8_span(const char *text, size_t length);

#endif
