/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the JSON reader and compares it with an independent reader (jansson). Harpe's reader must
 * accept every text that jansson accepts, with the same values. A text that only Harpe's reader
 * accepts must contain something that jansson is known to refuse. */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pfo/json_tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

/* Checks a node and returns the index of the node after it and its contents. A container must have
 * as many items as its count, and its end must be the next node. Sets `*is_beyond_jansson` if
 * jansson refuses such a value. */
static size_t check_node(const harpe_json *json, size_t node, bool *is_beyond_jansson) {
    require(node < json->node_count);
    const harpe_json_node *it = &json->nodes[node];
    size_t length;
    size_t next = node + 1;
    switch (harpe_json_kind_of(json, node)) {
    case HARPE_JSON_TEXT:
    case HARPE_JSON_DECODED_TEXT: {
        const char *bytes = harpe_json_bytes(json, node, &length);
        require(harpe_utf8_span(bytes, length) == length);
        require(!memchr(bytes, '\0', length));
        *is_beyond_jansson |= memmem(bytes, length, "\xEF\xBF\xBD", 3) != NULL;
        return next;
    }
    case HARPE_JSON_INTEGER:
    case HARPE_JSON_REAL: {
        int64_t value;
        (void)harpe_json_bytes(json, node, &length);
        require(length > 0 || !isfinite(it->number));
        bool fits = harpe_json_int64(json, node, &value);
        *is_beyond_jansson |= !isfinite(it->number) || (it->kind == HARPE_JSON_INTEGER && !fits) ||
                              fabs(it->number) < 1e-300; /* jansson refuses underflow */
        return next;
    }
    case HARPE_JSON_LIST:
        for (uint32_t i = 0; i < it->held.count; i++)
            next = check_node(json, next, is_beyond_jansson);
        require(next == it->held.end);
        return next;
    case HARPE_JSON_OBJECT:
        for (uint32_t i = 0; i < it->held.count; i++) {
            require(harpe_json_is_text(json, next));
            next = check_node(json, check_node(json, next, is_beyond_jansson), is_beyond_jansson);
        }
        require(next == it->held.end);
        return next;
    default: return next;
    }
}

static void check_same(const harpe_json *json, size_t node, const json_t *expected);

static void check_same_object(const harpe_json *json, size_t node, const json_t *expected) {
    harpe_json_pair *pairs;
    size_t count;
    require(json_is_object(expected));
    require(harpe_json_pairs(json, node, &pairs, &count));
    require(count == json_object_size(expected));
    for (size_t i = 0; i < count; i++) {
        size_t length;
        const char *name = harpe_json_bytes(json, pairs[i].key, &length);
        char *copy = strndup(name, length);
        require(copy && harpe_json_member(json, node, copy) == pairs[i].value);
        const json_t *value = json_object_get(expected, copy);
        require(value != NULL);
        check_same(json, pairs[i].value, value);
        free(copy);
    }
    free(pairs);
}

static void check_same(const harpe_json *json, size_t node, const json_t *expected) {
    size_t length;
    int64_t value;
    switch (harpe_json_kind_of(json, node)) {
    case HARPE_JSON_NULL: require(json_is_null(expected)); return;
    case HARPE_JSON_TRUE: require(json_is_true(expected)); return;
    case HARPE_JSON_FALSE: require(json_is_false(expected)); return;
    case HARPE_JSON_INTEGER:
        require(harpe_json_int64(json, node, &value));
        require(json_is_integer(expected) && json_integer_value(expected) == value);
        return;
    case HARPE_JSON_REAL:
        require(json_is_real(expected) && json_real_value(expected) == json->nodes[node].number);
        return;
    case HARPE_JSON_TEXT:
    case HARPE_JSON_DECODED_TEXT: {
        const char *bytes = harpe_json_bytes(json, node, &length);
        require(json_is_string(expected) && json_string_length(expected) == length);
        require(memcmp(json_string_value(expected), bytes, length) == 0);
        return;
    }
    case HARPE_JSON_LIST:
        require(json_array_size(expected) == json->nodes[node].held.count);
        node++;
        for (size_t i = 0; i < json_array_size(expected); i++) {
            check_same(json, node, json_array_get(expected, i));
            node = harpe_json_next(json, node);
        }
        return;
    case HARPE_JSON_OBJECT: check_same_object(json, node, expected); return;
    }
}

/* Returns true if the text nests deeper than HARPE_JSON_DEPTH. The limit of jansson is 2048
 * levels. */
static bool is_deep(const char *text, size_t length) {
    int depth = 0;
    bool is_deep = false;
    for (size_t i = 0; i < length; i++) {
        depth += (text[i] == '[' || text[i] == '{') - (text[i] == ']' || text[i] == '}');
        is_deep |= depth > HARPE_JSON_DEPTH;
    }
    return is_deep;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    harpe_json json = {0};
    harpe_json_failure failure = {NULL, 0};
    json_error_t reason;
    json_t *expected = json_loadb(text, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, &reason);
    if (!harpe_json_read(text, size, &json, &failure)) {
        require(failure.message && failure.byte <= size);
        require(!json.nodes && !json.decoded);
        /* jansson treats a NUL byte between tokens as white space. */
        require(!expected || is_deep(text, size) || memchr(text, '\0', size));
        json_decref(expected);
        return 0;
    }
    bool is_beyond_jansson = size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0;
    require(check_node(&json, 0, &is_beyond_jansson) == json.node_count);
    require(expected || is_beyond_jansson);
    if (expected && !is_beyond_jansson) check_same(&json, 0, expected);
    json_decref(expected);
    harpe_json_free(&json);
    return 0;
}
