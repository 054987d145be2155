/* SPDX-License-Identifier: Apache-2.0 */
/* Checks signed tokens. The signature is checked before the claims are parsed, so only the header
 * of a forged token reaches the JSON parser. */
#include "agent/zeusd_internal.h"

#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

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
