/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON document as a flat list of nodes. This reader is for the models that ranks and jobs send.
 * Like Python's json module, it accepts integers of any size, repeated keys, and NaN and Infinity,
 * which become a REAL that is not finite. It reports errors in the words of that module, because
 * the errors are part of answers. It refuses invalid UTF-8 and more than HARPE_JSON_DEPTH levels.
 * The library Jansson reads all other JSON. Jansson differs in the documents that it accepts and in
 * its error messages. It also allocates memory for each value, so it needs 11 to 17 times as long
 * for the result of a rank (227 us instead of 14 us for 640 numbers). */
#ifndef HARPE_PFO_JSON_TREE_H
#define HARPE_PFO_JSON_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

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

/* Nodes are in document order. A container is followed by its contents, an object by key, value,
 * key, value. Node 0 is the root, so 0 also means "no such node". */
typedef struct harpe_json_node {
    union {
        double number;   /* INTEGER, REAL: value as the closest double */
        uint32_t length; /* TEXT, DECODED_TEXT: bytes */
        struct {
            uint32_t count; /* LIST: items; OBJECT: pairs */
            uint32_t end;   /* index of the first node after this one and its contents */
        } held;
    };
    uint32_t start; /* byte offset in the document; for DECODED_TEXT, in `decoded` */
    uint32_t kind;  /* harpe_json_kind */
} harpe_json_node;

typedef struct harpe_json {
    const char *text; /* the document, owned by the caller */
    size_t length;
    harpe_json_node *nodes;
    size_t node_count;
    char *decoded; /* texts without their escapes, one after the other */
} harpe_json;

/* The reason why a document cannot be read. */
typedef struct harpe_json_failure {
    const char *message; /* static text, as Python words it; NULL: out of memory */
    size_t byte;         /* offset of the error in the document */
} harpe_json_failure;

/* Reads a document. `text` must outlive the tree. On failure returns false and leaves `*out`
 * unchanged. Time and memory are proportional to `length` (16 bytes for each value and key). */
bool harpe_json_read(const char *text, size_t length, harpe_json *out, harpe_json_failure *failure);
void harpe_json_free(harpe_json *json);

static inline harpe_json_kind harpe_json_kind_of(const harpe_json *json, size_t node) {
    return (harpe_json_kind)json->nodes[node].kind;
}

/* Skips this node with all its contents, and returns the next node. */
static inline size_t harpe_json_next(const harpe_json *json, size_t node) {
    return json->nodes[node].kind >= HARPE_JSON_LIST ? json->nodes[node].held.end : node + 1;
}

/* ---- Looking at values ----------------------------------------------------------------------- */

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

/* Returns how many bytes from the start are valid UTF-8. */
size_t harpe_utf8_span(const char *text, size_t length);

/* ---- Writing: `literal` is the text before the value, such as ",\"rank\":" ------------------- */

void harpe_json_int(harpe_text *text, const char *literal, int64_t value);
/* Writes a text in quotes, escaped. Bytes that are not UTF-8 become U+FFFD. NULL: null. */
void harpe_json_text(harpe_text *text, const char *literal, const char *value);

#endif
