/* SPDX-License-Identifier: Apache-2.0 */
/* Reads queries as zeusd does, field by field in the order of the query. As in zeusd, an incomplete
 * percent encoding stays as it is, and bytes that are not UTF-8 become U+FFFD. Unlike zeusd, this
 * code also replaces NUL by U+FFFD. */
#include "agent/zeusd_internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"

/* ---- Decoding -------------------------------------------------------------------------------- */

static int hexadecimal(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes into `out`, which has room for `length` + 1 bytes, and adds a NUL. */
static size_t decode_bytes(const char *encoded, size_t length, char *out) {
    size_t written = 0;
    for (size_t i = 0; i < length; i++) {
        int high = encoded[i] == '%' && i + 2 < length ? hexadecimal(encoded[i + 1]) : -1;
        int low = high >= 0 ? hexadecimal(encoded[i + 2]) : -1;
        if (low >= 0) {
            out[written++] = (char)(high << 4 | low);
            i += 2;
        } else {
            out[written++] = encoded[i] == '+' ? ' ' : encoded[i];
        }
    }
    out[written] = '\0';
    return written;
}

/* Appends the text, and replaces bytes that are not UTF-8. */
static void append_utf8(harpe_text *out, const char *text, size_t length) {
    for (size_t i = 0; i < length;) {
        size_t size = 1;
        /* The decoded text ends with NUL, so an incomplete character at its end is recognised. */
        bool is_valid = text[i] != '\0' && harpe_character(text + i, &size) >= 0;
        if (is_valid)
            harpe_text_append(out, text + i, size);
        else
            harpe_text_append(out, "\xEF\xBF\xBD", 3);
        i += size;
    }
}

/* Decodes one name or value into a new text. Returns false if memory runs out. */
static bool decode(const char *encoded, size_t length, harpe_text *out) {
    char *bytes = harpe_calloc(length + 1, 1);
    if (!bytes) return false;
    size_t decoded = decode_bytes(encoded, length, bytes);
    append_utf8(out, bytes, decoded);
    harpe_text_append(out, "", 0); /* `data` is not NULL, even if it is empty */
    free(bytes);
    return !out->failed && out->data;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static const char out_of_memory[] = "out of memory";

static harpe_status tell(harpe_text *text, char **why) {
    *why = text->failed ? NULL : text->data;
    if (!*why) {
        harpe_text_free(text);
        *why = strdup(out_of_memory);
    }
    return HARPE_INVALID_ARGUMENT;
}

static harpe_status fail_memory(char **why) {
    *why = strdup(out_of_memory);
    return HARPE_OUT_OF_MEMORY;
}

static size_t count_fields(const harpe_zeusd_field *fields) {
    size_t count = 0;
    while (fields[count].name)
        count++;
    return count;
}

static harpe_status fail_unknown(const harpe_text *name, const harpe_zeusd_field *fields,
                                 char **why) {
    harpe_text text = {0};
    size_t count = count_fields(fields);
    harpe_text_printf(&text, "Query deserialize error: unknown field `");
    harpe_text_append(&text, name->data, name->length);
    harpe_text_printf(&text, "`, expected %s", count > 2 ? "one of " : "");
    for (size_t i = 0; i < count; i++) {
        const char *separator = i == 0 ? "" : count == 2 ? " or " : ", ";
        harpe_text_printf(&text, "%s`%s`", separator, fields[i].name);
    }
    return tell(&text, why);
}

static harpe_status fail_field(const char *kind, const char *name, char **why) {
    harpe_text text = {0};
    harpe_text_printf(&text, "Query deserialize error: %s field `%s`", kind, name);
    return tell(&text, why);
}

static harpe_status fail_value(const char *reason, char **why) {
    harpe_text text = {0};
    harpe_text_printf(&text, "Query deserialize error: %s", reason);
    return tell(&text, why);
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* Reads digits, with an optional '+' before them. Returns NULL, or the reason why the text is not a
 * number up to `most`. */
static const char *read_number(const char *text, size_t length, uint64_t most, uint64_t *out) {
    uint64_t number = 0;
    bool is_large = false;
    if (length == 0) return "cannot parse integer from empty string";
    if (*text == '+' && length > 1) {
        text++;
        length--;
    }
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return "invalid digit found in string";
        uint64_t digit = (uint64_t)(text[i] - '0');
        /* zeusd reports the first fault. It does not reach a letter after too many digits. */
        is_large = is_large || number > (most - digit) / 10;
        if (is_large) return "number too large to fit in target type";
        number = number * 10 + digit;
    }
    *out = number;
    return NULL;
}

static harpe_status read_value(const harpe_text *text, harpe_zeusd_field_type type,
                               harpe_zeusd_value *value, char **why) {
    const char *reason = NULL;
    uint64_t number = 0;
    if (type == HARPE_ZEUSD_SWITCH) {
        bool is_true = text->length == 4 && memcmp(text->data, "true", 4) == 0;
        bool is_false = text->length == 5 && memcmp(text->data, "false", 5) == 0;
        value->is_on = is_true;
        if (!is_true && !is_false) reason = "provided string was not `true` or `false`";
    } else if (type == HARPE_ZEUSD_NUMBER) {
        reason = read_number(text->data, text->length, UINT32_MAX, &number);
        value->number = (uint32_t)number;
    }
    return reason ? fail_value(reason, why) : HARPE_OK;
}

/* Reads one "name=value" of the query. */
static harpe_status read_pair(const char *pair, size_t length, const harpe_zeusd_field *fields,
                              harpe_zeusd_value *values, char **why) {
    const char *equals = memchr(pair, '=', length);
    size_t name_length = equals ? (size_t)(equals - pair) : length;
    harpe_text name = {0}, text = {0};
    harpe_status status = HARPE_OK;
    size_t i = 0;
    if (!decode(pair, name_length, &name) ||
        !decode(equals ? equals + 1 : "", equals ? length - name_length - 1 : 0, &text)) {
        status = fail_memory(why);
        goto done;
    }
    while (fields[i].name && (strlen(fields[i].name) != name.length ||
                              memcmp(fields[i].name, name.data, name.length) != 0))
        i++;
    if (!fields[i].name)
        status = fail_unknown(&name, fields, why);
    else if (values[i].is_given)
        status = fail_field("duplicate", fields[i].name, why);
    else
        status = read_value(&text, fields[i].type, &values[i], why);
    if (status == HARPE_OK) {
        values[i].is_given = true;
        values[i].text = text.data;
        values[i].text_length = text.length;
        text = (harpe_text){0};
    }
done:
    harpe_text_free(&name);
    harpe_text_free(&text);
    return status;
}

harpe_status harpe_zeusd_query_read(const char *query, const harpe_zeusd_field *fields,
                                    harpe_zeusd_value values[HARPE_ZEUSD_FIELDS_MAX], char **why) {
    memset(values, 0, HARPE_ZEUSD_FIELDS_MAX * sizeof *values);
    *why = NULL;
    /* A '#' begins a fragment, which is not a part of the query. */
    for (const char *pair = query; pair && *pair != '\0' && *pair != '#';) {
        size_t length = strcspn(pair, "&#");
        harpe_status status = length > 0 ? read_pair(pair, length, fields, values, why) : HARPE_OK;
        if (status != HARPE_OK) return status;
        pair += length + (pair[length] == '&');
    }
    for (size_t i = 0; fields[i].name; i++)
        if (!values[i].is_given && !fields[i].is_optional)
            return fail_field("missing", fields[i].name, why);
    return HARPE_OK;
}

void harpe_zeusd_values_free(harpe_zeusd_value values[HARPE_ZEUSD_FIELDS_MAX]) {
    for (size_t i = 0; i < HARPE_ZEUSD_FIELDS_MAX; i++)
        free(values[i].text);
    memset(values, 0, HARPE_ZEUSD_FIELDS_MAX * sizeof *values);
}

/* ---- Lists of devices ------------------------------------------------------------------------ */

/* Returns true if Unicode counts the character as white space (property White_Space). */
static bool is_space(int32_t code) {
    static const int32_t others[] = {' ',    0x85,   0xA0,   0x1680, 0x2028,
                                     0x2029, 0x202F, 0x205F, 0x3000};
    if ((code >= '\t' && code <= '\r') || (code >= 0x2000 && code <= 0x200A)) return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (code == others[i]) return true;
    return false;
}

/* Removes white space at both ends of a valid UTF-8 text. */
static void trim(const char **text, size_t *length) {
    size_t size = 1;
    while (*length > 0 && is_space(harpe_character(*text, &size))) {
        *text += size;
        *length -= size;
    }
    while (*length > 0) {
        const char *last = *text + *length - 1;
        while (last > *text && ((unsigned char)*last & 0xC0) == 0x80)
            last--;
        if (!is_space(harpe_character(last, &size))) return;
        *length = (size_t)(last - *text);
    }
}

static harpe_status fail_ids(const char *format, const char *device, const char *text,
                             size_t length, char **why) {
    harpe_text message = {0};
    char lower[8] = "";
    for (size_t i = 0; device[i] && i < sizeof lower - 1; i++)
        lower[i] = (char)tolower((unsigned char)device[i]);
    for (; *format; format++)
        if (*format == '@')
            harpe_text_append(&message, device, strlen(device));
        else if (*format == '#')
            harpe_text_append(&message, lower, strlen(lower));
        else
            harpe_text_append(&message, format, 1);
    harpe_text_append(&message, text, length);
    return tell(&message, why);
}

static int ascending(const void *a, const void *b) {
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

static size_t sort_and_unite(uint64_t *ids, size_t count) {
    size_t kept = 0;
    qsort(ids, count, sizeof *ids, ascending);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || ids[kept - 1] != ids[i]) ids[kept++] = ids[i];
    return kept;
}

static size_t count_commas(const char *text, size_t length) {
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += text[i] == ',';
    return count;
}

harpe_status harpe_zeusd_ids_read(const char *text, size_t length, const char *device,
                                  uint64_t **ids, size_t *count, char **why) {
    const char *all = text;
    size_t all_length = length;
    *why = NULL;
    trim(&all, &all_length);
    if (all_length == 0)
        return fail_ids("#_ids must contain at least one @ index", device, "", 0, why);
    uint64_t *found = harpe_calloc(count_commas(text, length) + 1, sizeof *found);
    if (!found) return fail_memory(why);
    size_t found_count = 0;
    for (const char *next = text, *end = text + length; next <= end;) {
        const char *comma = memchr(next, ',', (size_t)(end - next));
        const char *one = next;
        size_t one_length = (size_t)((comma ? comma : end) - next);
        trim(&one, &one_length);
        bool is_empty = one_length == 0;
        if (is_empty || read_number(one, one_length, UINT64_MAX, &found[found_count])) {
            free(found);
            return is_empty ? fail_ids("#_ids contains an empty @ index", device, "", 0, why)
                            : fail_ids("Invalid @ index: ", device, one, one_length, why);
        }
        found_count++;
        next = comma ? comma + 1 : end + 1;
    }
    *count = sort_and_unite(found, found_count);
    *ids = found;
    return HARPE_OK;
}
