/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what a request to the routes of zeusd carries: its query, and its signed token. */
#include "agent/zeusd_internal.h"

#include <ctype.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/text.h"

/* ---- Queries --------------------------------------------------------------------------------- */

/* Reads queries as zeusd does, field by field in the order of the query. As in zeusd, an incomplete
 * percent encoding stays as it is, and bytes that are not UTF-8 become U+FFFD. Unlike zeusd, this
 * code also replaces NUL by U+FFFD. */

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

/* ---- Signed tokens --------------------------------------------------------------------------- */

/* Checks signed tokens. The signature is checked before the claims are parsed, so only the header
 * of a forged token reaches the JSON parser. */

enum { DIGEST_SIZE = 32 };

struct harpe_zeusd_tokens {
    size_t length;
    unsigned char key[]; /* of HMAC-SHA256 */
};

/* ---- Groups ---------------------------------------------------------------------------------- */

static const struct {
    harpe_zeusd_group group;
    const char *name;
} groups[] = {{HARPE_ZEUSD_GPU_CONTROL, "gpu-control"},
              {HARPE_ZEUSD_GPU_READ, "gpu-read"},
              {HARPE_ZEUSD_CPU_READ, "cpu-read"}};

const char *harpe_zeusd_group_name(harpe_zeusd_group group) {
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (groups[i].group == group) return groups[i].name;
    return "";
}

bool harpe_zeusd_group_find(const char *name, harpe_zeusd_group *out) {
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        if (strcmp(groups[i].name, name) != 0) continue;
        *out = groups[i].group;
        return true;
    }
    return false;
}

bool harpe_zeusd_claims_grant(const harpe_zeusd_claims *claims, harpe_zeusd_group group) {
    for (size_t i = 0; i < claims->scope_count; i++)
        if (claims->scopes[i] == group) return true;
    return false;
}

/* ---- The key --------------------------------------------------------------------------------- */

harpe_status harpe_zeusd_tokens_new(const void *key, size_t length, harpe_zeusd_tokens **out,
                                    harpe_error *error) {
    if (length == 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the key for zeusd's tokens is empty: give at least 32 random bytes");
    if (length > INT_MAX)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "the key for zeusd's tokens is too long");
    harpe_zeusd_tokens *tokens = malloc(sizeof *tokens + length);
    if (!tokens) return harpe_fail_memory(error);
    tokens->length = length;
    memcpy(tokens->key, key, length);
    *out = tokens;
    return HARPE_OK;
}

void harpe_zeusd_tokens_free(harpe_zeusd_tokens *tokens) {
    if (!tokens) return;
    explicit_bzero(tokens->key, tokens->length);
    free(tokens);
}

/* ---- Parts of a token ------------------------------------------------------------------------ */

static int base64url_value(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '-') return 62;
    return c == '_' ? 63 : -1;
}

ptrdiff_t harpe_zeusd_base64url(const char *text, size_t length, unsigned char *out) {
    uint32_t bits = 0;
    unsigned bit_count = 0;
    ptrdiff_t written = 0;
    if (length % 4 == 1) return -1;
    for (size_t i = 0; i < length; i++) {
        int value = base64url_value(text[i]);
        if (value < 0) return -1;
        bits = bits << 6 | (uint32_t)value;
        bit_count += 6;
        if (bit_count < 8) continue;
        bit_count -= 8;
        out[written++] = (unsigned char)(bits >> bit_count);
        bits &= (1U << bit_count) - 1;
    }
    return bits == 0 ? written : -1;
}

/* One of the three parts of a token, which dots separate. */
typedef struct part {
    const char *text;
    size_t length;
} part;

static harpe_status fail_token(harpe_error *error, const char *why) {
    return harpe_fail(error, HARPE_PERMISSION_DENIED, "Invalid token: %s", why);
}

/* Decodes a part as a JSON object without repeated names. */
static harpe_status read_object(part from, json_t **out, harpe_error *error) {
    unsigned char *text = harpe_calloc(from.length, 1);
    if (!text) return harpe_fail_memory(error);
    ptrdiff_t length = harpe_zeusd_base64url(from.text, from.length, text);
    json_t *value =
        length >= 0 ? json_loadb((char *)text, (size_t)length, JSON_REJECT_DUPLICATES, NULL) : NULL;
    free(text);
    if (length < 0) return fail_token(error, "Base64 error: the encoding is not valid");
    if (json_is_object(value)) {
        *out = value;
        return HARPE_OK;
    }
    json_decref(value);
    return fail_token(error, "JSON error: a part is not an object");
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static harpe_status check_header(part from, harpe_error *error) {
    json_t *header = NULL;
    harpe_status status = read_object(from, &header, error);
    if (status != HARPE_OK) return status;
    const char *algorithm = json_string_value(json_object_get(header, "alg"));
    if (!algorithm)
        status = fail_token(error, "JSON error: missing field `alg`");
    else if (strcmp(algorithm, "HS256") != 0)
        status = fail_token(error, "InvalidAlgorithm");
    else if (json_object_get(header, "crit")) /* RFC 7515 4.1.11: none is understood */
        status = fail_token(error, "InvalidToken");
    json_decref(header);
    return status;
}

/* Checks that `signature` is the signature of the `length` bytes before it. */
static harpe_status check_signature(const harpe_zeusd_tokens *tokens, const char *signed_text,
                                    size_t length, part signature, harpe_error *error) {
    unsigned char expected[DIGEST_SIZE], given[DIGEST_SIZE + 3] = {0};
    if (signature.length > sizeof given * 4 / 3) return fail_token(error, "InvalidSignature");
    if (harpe_zeusd_base64url(signature.text, signature.length, given) != DIGEST_SIZE)
        return fail_token(error, "InvalidSignature");
    if (!HMAC(EVP_sha256(), tokens->key, (int)tokens->length, (const unsigned char *)signed_text,
              length, expected, NULL))
        return harpe_fail_memory(error);
    /* CRYPTO_memcmp takes the same time wherever the signatures differ, so that nobody can guess
     * one byte by byte. */
    return CRYPTO_memcmp(expected, given, DIGEST_SIZE) == 0 ? HARPE_OK
                                                            : fail_token(error, "InvalidSignature");
}

static harpe_status read_scopes(const json_t *scopes, harpe_zeusd_claims *claims,
                                harpe_error *error) {
    if (!json_is_array(scopes)) return fail_token(error, "JSON error: missing field `scopes`");
    claims->scope_count = json_array_size(scopes);
    if (claims->scope_count > HARPE_ZEUSD_SCOPES_MAX)
        return fail_token(error, "it has too many scopes");
    for (size_t i = 0; i < claims->scope_count; i++) {
        const char *name = json_string_value(json_array_get(scopes, i));
        if (!name || !harpe_zeusd_group_find(name, &claims->scopes[i]))
            return fail_token(error, "JSON error: unknown variant of a scope, expected one of "
                                     "`gpu-control`, `gpu-read`, `cpu-read`");
    }
    return HARPE_OK;
}

static harpe_status read_claims(const json_t *from, harpe_zeusd_claims *claims,
                                harpe_error *error) {
    const char *subject = json_string_value(json_object_get(from, "sub"));
    const json_t *expiry = json_object_get(from, "exp");
    if (!subject) return fail_token(error, "JSON error: missing field `sub`");
    if (strlen(subject) >= sizeof claims->subject)
        return fail_token(error, "the name of its user is too long");
    memcpy(claims->subject, subject, strlen(subject) + 1);
    if (expiry && !json_is_null(expiry)) {
        if (!json_is_integer(expiry) || json_integer_value(expiry) < 0)
            return fail_token(error, "JSON error: `exp` is not a time");
        claims->expires = true;
        claims->expiry_s = (uint64_t)json_integer_value(expiry);
    }
    harpe_status status = read_scopes(json_object_get(from, "scopes"), claims, error);
    if (status != HARPE_OK) return status;
    /* RFC 7519 4.1.3: a token can name its recipients. This server is not one of them. */
    const json_t *audience = json_object_get(from, "aud");
    if (audience && !json_is_null(audience)) return fail_token(error, "InvalidAudience");
    return HARPE_OK;
}

static harpe_status check_expiry(const harpe_zeusd_claims *claims, int64_t now_s,
                                 harpe_error *error) {
    int64_t oldest_s = now_s - HARPE_ZEUSD_LEEWAY_S;
    if (!claims->expires || oldest_s < 0 || claims->expiry_s >= (uint64_t)oldest_s) return HARPE_OK;
    return harpe_fail(error, HARPE_PERMISSION_DENIED, "Token has expired.");
}

harpe_status harpe_zeusd_token_check(const harpe_zeusd_tokens *tokens, const char *token,
                                     int64_t now_s, harpe_zeusd_claims *out, harpe_error *error) {
    harpe_zeusd_claims claims = {.scope_count = 0};
    json_t *read = NULL;
    size_t length = strnlen(token, HARPE_ZEUSD_TOKEN_MAX + 1);
    const char *first = memchr(token, '.', length);
    const char *second = first ? strchr(first + 1, '.') : NULL;
    if (length > HARPE_ZEUSD_TOKEN_MAX || !second || strchr(second + 1, '.'))
        return fail_token(error, "InvalidToken");
    part header = {token, (size_t)(first - token)};
    part payload = {first + 1, (size_t)(second - first - 1)};
    part signature = {second + 1, length - (size_t)(second + 1 - token)};
    harpe_status status = check_header(header, error);
    if (status == HARPE_OK)
        status = check_signature(tokens, token, (size_t)(second - token), signature, error);
    if (status == HARPE_OK) status = read_object(payload, &read, error);
    if (status != HARPE_OK) return status;
    status = read_claims(read, &claims, error);
    json_decref(read);
    if (status == HARPE_OK) status = check_expiry(&claims, now_s, error);
    if (status != HARPE_OK) return status;
    *out = claims;
    return HARPE_OK;
}
