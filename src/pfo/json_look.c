/* SPDX-License-Identifier: Apache-2.0 */
/* Reads values from a JSON tree (json_tree.c): texts, integers, members by name. */
#include "pfo/json_look.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/number.h"
#include "pfo/json_tree.h"

bool harpe_json_is_text(const harpe_json *json, size_t node) {
    harpe_json_kind kind = harpe_json_kind_of(json, node);
    return kind == HARPE_JSON_TEXT || kind == HARPE_JSON_DECODED_TEXT;
}

const char *harpe_json_bytes(const harpe_json *json, size_t node, size_t *length) {
    const harpe_json_node *it = &json->nodes[node];
    if (harpe_json_is_text(json, node)) {
        *length = it->length;
        return (it->kind == HARPE_JSON_TEXT ? json->text : json->decoded) + it->start;
    }
    double ignored;
    bool is_integer;
    const char *number = json->text + it->start;
    *length = harpe_scan_number(number, json->length - it->start, &ignored, &is_integer);
    return number;
}

bool harpe_json_int64(const harpe_json *json, size_t node, int64_t *value) {
    const double exact_limit = 9007199254740992.0; /* 2^53 */
    const double int64_limit = 9223372036854775808.0;
    double number = json->nodes[node].number;
    size_t length;
    if (fabs(number) < exact_limit && number == trunc(number)) {
        *value = (int64_t)number;
        return true;
    }
    if (harpe_json_kind_of(json, node) == HARPE_JSON_INTEGER) {
        const char *digits = harpe_json_bytes(json, node, &length);
        return harpe_parse_int(digits, length, value);
    }
    if (!(number >= -int64_limit && number < int64_limit && number == trunc(number))) return false;
    *value = (int64_t)number;
    return true;
}

/* ---- Members --------------------------------------------------------------------------------- */

size_t harpe_json_member(const harpe_json *json, size_t object, const char *name) {
    size_t name_length = strlen(name);
    size_t found = 0;
    size_t end = json->nodes[object].held.end;
    for (size_t key = object + 1; key < end; key = harpe_json_next(json, key + 1)) {
        size_t length;
        const char *bytes = harpe_json_bytes(json, key, &length);
        if (length == name_length && memcmp(bytes, name, length) == 0) found = key + 1;
    }
    return found;
}

static int compare_keys(const harpe_json *json, size_t a, size_t b) {
    size_t a_length;
    size_t b_length;
    const char *a_bytes = harpe_json_bytes(json, a, &a_length);
    const char *b_bytes = harpe_json_bytes(json, b, &b_length);
    int order = memcmp(a_bytes, b_bytes, a_length < b_length ? a_length : b_length);
    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

static int by_key(const void *a, const void *b, void *json) {
    const harpe_json_pair *first = a;
    const harpe_json_pair *second = b;
    int order = compare_keys(json, first->key, second->key);
    return order != 0 ? order : (first->order > second->order) - (first->order < second->order);
}

static int by_order(const void *a, const void *b) {
    const harpe_json_pair *first = a;
    const harpe_json_pair *second = b;
    return (first->order > second->order) - (first->order < second->order);
}

bool harpe_json_pairs(const harpe_json *json, size_t object, harpe_json_pair **pairs,
                      size_t *count) {
    uint32_t all = json->nodes[object].held.count;
    harpe_json_pair *list = harpe_calloc(all, sizeof *list);
    if (!list) return false;
    size_t key = object + 1;
    for (uint32_t i = 0; i < all; i++) {
        list[i] = (harpe_json_pair){(uint32_t)key, (uint32_t)key + 1, i};
        key = harpe_json_next(json, key + 1);
    }
    qsort_r(list, all, sizeof *list, by_key, (void *)json);
    size_t distinct = 0;
    for (uint32_t i = 0; i < all; i++)
        if (distinct > 0 && compare_keys(json, list[distinct - 1].key, list[i].key) == 0)
            list[distinct - 1].value = list[i].value;
        else
            list[distinct++] = list[i];
    qsort(list, distinct, sizeof *list, by_order);
    *pairs = list;
    *count = distinct;
    return true;
}
