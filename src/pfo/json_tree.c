/* SPDX-License-Identifier: Apache-2.0 */
/* Reads JSON into a flat list of nodes. The results of ranks consist mostly of numbers. The scan
 * converts these numbers without an allocation for each value. The models check the values. Every
 * text from outside is checked for UTF-8 before it is read. */
#include "pfo/json_tree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/number.h"

/* ---- UTF-8 ----------------------------------------------------------------------------------- */

/* Returns the number of bytes of the first character of `text`, 1 to 4. Returns 0 if the character
 * is invalid. Overlong forms, surrogates, and code points above U+10FFFF are invalid too. */
static size_t character_length(const unsigned char *text, size_t length) {
    unsigned char first = text[0];
    if (first < 0x80) return 1;
    size_t needed = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || length < needed) return 0;
    for (size_t i = 1; i < needed; i++)
        if ((text[i] & 0xC0) != 0x80) return 0;
    bool is_overlong = (first == 0xE0 && text[1] < 0xA0) || (first == 0xF0 && text[1] < 0x90);
    bool is_surrogate = first == 0xED && text[1] > 0x9F;
    bool is_too_large = first == 0xF4 && text[1] > 0x8F;
    return is_overlong || is_surrogate || is_too_large ? 0 : needed;
}

size_t harpe_utf8_span(const char *text, size_t length) {
    size_t at = 0;
    while (at < length) {
        uint64_t block;
        while (length - at >= sizeof block) {
            memcpy(&block, text + at, sizeof block);
            if (block & 0x8080808080808080U) break;
            at += sizeof block;
        }
        if (at == length) break;
        size_t character = character_length((const unsigned char *)text + at, length - at);
        if (character == 0) break;
        at += character;
    }
    return at;
}

/* ---- Reading --------------------------------------------------------------------------------- */

typedef struct reader {
    const char *text, *at, *end;
    harpe_json_node *nodes;
    size_t count, capacity;
    char *decoded; /* room for all texts with escapes; NULL: none so far */
    size_t decoded_length;
    const char *message;
    const char *failed_at;
} reader;

static bool fail_at(reader *r, const char *at, const char *message) {
    r->message = message;
    r->failed_at = at;
    return false;
}

/* Adds a node without its value. */
static bool push(reader *r, harpe_json_kind kind, const char *start) {
    if (r->count == r->capacity && !HARPE_ARRAY_RESERVE(r->nodes, r->capacity, r->count + 1))
        return fail_at(r, r->at, NULL);
    r->nodes[r->count++] =
        (harpe_json_node){.start = (uint32_t)(start - r->text), .kind = (uint32_t)kind};
    return true;
}

static void skip_space(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t'))
        r->at++;
}

static bool next_is(const reader *r, char c) { return r->at < r->end && *r->at == c; }

/* ---- Texts ----------------------------------------------------------------------------------- */

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Reads four hexadecimal digits. As in Python, at least one more character must follow the digits.
 */
static bool read_code_unit(reader *r, const char *digits, uint32_t *unit) {
    uint32_t value = 0;
    if (r->end - digits <= 4) return fail_at(r, digits - 1, "Invalid \\uXXXX escape");
    for (int i = 0; i < 4; i++) {
        int digit = hex_value(digits[i]);
        if (digit < 0) return fail_at(r, digits - 1, "Invalid \\uXXXX escape");
        value = value << 4 | (uint32_t)digit;
    }
    *unit = value;
    return true;
}

static void put_code_point(reader *r, uint32_t code) {
    char *out = r->decoded + r->decoded_length;
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xC0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        *out++ = (char)(0xE0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    } else {
        *out++ = (char)(0xF0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3F));
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    }
    r->decoded_length = (size_t)(out - r->decoded);
}

/* Reads an escape; `*at` points after "\u". A lone surrogate becomes U+FFFD, because UTF-8 cannot
 * contain it, and so does NUL, because a C string cannot contain it. */
static bool read_unicode_escape(reader *r, const char **at) {
    uint32_t code;
    uint32_t low;
    if (!read_code_unit(r, *at, &code)) return false;
    *at += 4;
    if (code >= 0xD800 && code < 0xDC00 && r->end - *at >= 2 && (*at)[0] == '\\' &&
        (*at)[1] == 'u') {
        if (!read_code_unit(r, *at + 2, &low)) return false;
        if (low >= 0xDC00 && low < 0xE000) {
            *at += 6;
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        }
    }
    put_code_point(r, code == 0 || (code >= 0xD800 && code < 0xE000) ? 0xFFFD : code);
    return true;
}

static bool read_escape(reader *r, const char *opening, const char **at) {
    static const char names[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    const char *backslash = (*at)++;
    if (*at == r->end) return fail_at(r, opening, "Unterminated string starting at");
    char c = *(*at)++;
    if (c == 'u') return read_unicode_escape(r, at);
    const char *name = c != '\0' ? strchr(names, c) : NULL;
    if (!name) return fail_at(r, backslash, "Invalid \\escape");
    put_code_point(r, (uint32_t)(unsigned char)meanings[name - names]);
    return true;
}

/* Reads the rest of a text with escapes, starting with the first escape at `at`. */
static bool read_escaped_text(reader *r, const char *opening, const char *at) {
    if (!r->decoded) { /* allocated once, because decoding makes no text longer */
        r->decoded = malloc((size_t)(r->end - opening));
        if (!r->decoded) return fail_at(r, at, NULL);
    }
    size_t start = r->decoded_length;
    const char *plain = opening + 1;
    for (;;) {
        memcpy(r->decoded + r->decoded_length, plain, (size_t)(at - plain));
        r->decoded_length += (size_t)(at - plain);
        if (*at == '"') break;
        if (!read_escape(r, opening, &at)) return false;
        plain = at;
        while (at < r->end && *at != '"' && *at != '\\' && (unsigned char)*at >= 0x20)
            at++;
        if (at == r->end) return fail_at(r, opening, "Unterminated string starting at");
        if ((unsigned char)*at < 0x20) return fail_at(r, at, "Invalid control character at");
    }
    r->at = at + 1;
    if (!push(r, HARPE_JSON_DECODED_TEXT, r->text + start)) return false;
    r->nodes[r->count - 1].length = (uint32_t)(r->decoded_length - start);
    return true;
}

static bool read_text(reader *r) {
    const char *opening = r->at;
    const char *at = opening + 1;
    while (at < r->end && *at != '"' && *at != '\\' && (unsigned char)*at >= 0x20)
        at++;
    if (at == r->end) return fail_at(r, opening, "Unterminated string starting at");
    if ((unsigned char)*at < 0x20) return fail_at(r, at, "Invalid control character at");
    if (*at == '\\') return read_escaped_text(r, opening, at);
    r->at = at + 1;
    if (!push(r, HARPE_JSON_TEXT, opening + 1)) return false;
    r->nodes[r->count - 1].length = (uint32_t)(at - opening - 1);
    return true;
}

/* ---- Values ---------------------------------------------------------------------------------- */

static bool read_value(reader *r, int depth);

static bool read_number(reader *r) {
    double value;
    bool is_integer;
    size_t length = harpe_scan_number(r->at, (size_t)(r->end - r->at), &value, &is_integer);
    if (length == 0) return fail_at(r, r->at, "Expecting value");
    if (!push(r, is_integer ? HARPE_JSON_INTEGER : HARPE_JSON_REAL, r->at)) return false;
    r->nodes[r->count - 1].number = value;
    r->at += length;
    return true;
}

static bool read_word(reader *r) {
    static const struct {
        const char *word;
        harpe_json_kind kind;
        double number;
    } words[] = {
        {"null", HARPE_JSON_NULL, 0},
        {"true", HARPE_JSON_TRUE, 0},
        {"false", HARPE_JSON_FALSE, 0},
        {"NaN", HARPE_JSON_REAL, (double)NAN},
        {"Infinity", HARPE_JSON_REAL, INFINITY},
        {"-Infinity", HARPE_JSON_REAL, -INFINITY},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i].word);
        if ((size_t)(r->end - r->at) >= length && memcmp(r->at, words[i].word, length) == 0) {
            if (!push(r, words[i].kind, r->at)) return false;
            r->nodes[r->count - 1].number = words[i].number;
            r->at += length;
            return true;
        }
    }
    return fail_at(r, r->at, "Expecting value");
}

static void close_container(reader *r, size_t container, uint32_t count) {
    r->at++;
    r->nodes[container].held.count = count;
    r->nodes[container].held.end = (uint32_t)r->count;
}

static bool read_list(reader *r, int depth) {
    size_t list = r->count;
    uint32_t count = 0;
    if (!push(r, HARPE_JSON_LIST, r->at)) return false;
    r->at++;
    skip_space(r);
    while (!(count == 0 && next_is(r, ']'))) {
        if (!read_value(r, depth)) return false;
        count++;
        skip_space(r);
        if (next_is(r, ']')) break;
        if (!next_is(r, ',')) return fail_at(r, r->at, "Expecting ',' delimiter");
        r->at++;
        skip_space(r);
    }
    close_container(r, list, count);
    return true;
}

static bool read_pair(reader *r, int depth) {
    if (!next_is(r, '"'))
        return fail_at(r, r->at, "Expecting property name enclosed in double quotes");
    if (!read_text(r)) return false;
    skip_space(r);
    if (!next_is(r, ':')) return fail_at(r, r->at, "Expecting ':' delimiter");
    r->at++;
    skip_space(r);
    return read_value(r, depth);
}

static bool read_object(reader *r, int depth) {
    size_t object = r->count;
    uint32_t count = 0;
    if (!push(r, HARPE_JSON_OBJECT, r->at)) return false;
    r->at++;
    skip_space(r);
    while (!(count == 0 && next_is(r, '}'))) {
        if (!read_pair(r, depth)) return false;
        count++;
        skip_space(r);
        if (next_is(r, '}')) break;
        if (!next_is(r, ',')) return fail_at(r, r->at, "Expecting ',' delimiter");
        r->at++;
        skip_space(r);
    }
    close_container(r, object, count);
    return true;
}

static bool read_value(reader *r, int depth) {
    if (r->at == r->end) return fail_at(r, r->at, "Expecting value");
    char c = *r->at;
    if ((c >= '0' && c <= '9') || (c == '-' && r->end - r->at > 1 && r->at[1] != 'I'))
        return read_number(r);
    if (c == '"') return read_text(r);
    if (c != '[' && c != '{') return read_word(r);
    if (depth == HARPE_JSON_DEPTH) return fail_at(r, r->at, "Nested deeper than 64 levels");
    return c == '[' ? read_list(r, depth + 1) : read_object(r, depth + 1);
}

static bool read_document(reader *r) {
    size_t length = (size_t)(r->end - r->text);
    size_t valid = harpe_utf8_span(r->text, length);
    if (length > UINT32_MAX - 1) return fail_at(r, r->text, "Document of more than 4 GiB");
    if (valid < length) return fail_at(r, r->text + valid, "Invalid UTF-8");
    if (length >= 3 && memcmp(r->text, "\xEF\xBB\xBF", 3) == 0) r->at += 3; /* a byte order mark */
    /* A number that training code prints has about 18 bytes. */
    if (!HARPE_ARRAY_RESERVE(r->nodes, r->capacity, length / 16 + 8))
        return fail_at(r, r->at, NULL);
    skip_space(r);
    if (!read_value(r, 0)) return false;
    skip_space(r);
    return r->at == r->end || fail_at(r, r->at, "Extra data");
}

bool harpe_json_read(const char *text, size_t length, harpe_json *out,
                     harpe_json_failure *failure) {
    reader r = {.text = text, .at = text, .end = text + length};
    if (!read_document(&r)) {
        *failure = (harpe_json_failure){r.message, (size_t)(r.failed_at - text)};
        free(r.nodes);
        free(r.decoded);
        return false;
    }
    *out = (harpe_json){text, length, r.nodes, r.count, r.decoded};
    return true;
}

void harpe_json_free(harpe_json *json) {
    free(json->nodes);
    free(json->decoded);
    *json = (harpe_json){0};
}

/* ---- Looking at values ----------------------------------------------------------------------- */

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

/* ---- Writing --------------------------------------------------------------------------------- */

static void put(harpe_text *text, const char *literal) {
    harpe_text_append(text, literal, strlen(literal));
}

/* Does not use snprintf, which would be slow: the messages of a large job contain a million
 * integers.
 */
void harpe_json_int(harpe_text *text, const char *literal, int64_t value) {
    char digits[24];
    char *first = digits + sizeof digits;
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do {
        *--first = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0) *--first = '-';
    put(text, literal);
    harpe_text_append(text, first, (size_t)(digits + sizeof digits - first));
}

static bool is_plain(char c) { return (unsigned char)c >= 0x20 && c != '"' && c != '\\'; }

/* Writes one character that must be escaped. */
static void write_escaped(harpe_text *text, char c) {
    char escape[8];
    int length;
    if (c == '"' || c == '\\')
        length = snprintf(escape, sizeof escape, "\\%c", c);
    else if ((unsigned char)c < 0x20)
        length = snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(unsigned char)c);
    else
        length = snprintf(escape, sizeof escape, "\xEF\xBF\xBD");
    harpe_text_append(text, escape, (size_t)length);
}

/* Writes a text in quotes, escaped. Bytes that are not UTF-8 become U+FFFD. NULL: null. */
void harpe_json_text(harpe_text *text, const char *literal, const char *value) {
    put(text, literal);
    if (!value) {
        put(text, "null");
        return;
    }
    put(text, "\"");
    size_t length = strlen(value);
    size_t at = 0;
    while (at < length) {
        size_t valid_end = at + harpe_utf8_span(value + at, length - at);
        while (at < valid_end) {
            size_t start = at;
            while (at < valid_end && is_plain(value[at]))
                at++;
            harpe_text_append(text, value + start, at - start);
            if (at < valid_end) write_escaped(text, value[at++]);
        }
        if (at < length) write_escaped(text, value[at++]);
    }
    put(text, "\"");
}
