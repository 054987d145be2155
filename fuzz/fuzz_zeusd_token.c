/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a token of zeusd. The target signs the bytes itself, so that the claims
 * are parsed too. What is refused must get one line; what is taken must be within its limits. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/hmac.h>

#include "agent/zeusd_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char key[] = "a key for fuzzing";

static void require(bool holds) {
    if (!holds) abort();
}

static void check(const harpe_zeusd_tokens *tokens, const char *token) {
    harpe_zeusd_claims claims;
    harpe_error error = {0};
    harpe_status status = harpe_zeusd_token_check(tokens, token, 1000000, &claims, &error);
    if (status != HARPE_OK) {
        require(error.status == status && error.message[0] && !strchr(error.message, '\n'));
        return;
    }
    require(memchr(claims.subject, '\0', sizeof claims.subject) != NULL);
    require(claims.scope_count <= HARPE_ZEUSD_SCOPES_MAX);
    require(!claims.expires || claims.expiry_s + HARPE_ZEUSD_LEEWAY_S >= 1000000);
    for (size_t i = 0; i < claims.scope_count; i++)
        require(harpe_zeusd_claims_grant(&claims, claims.scopes[i]));
}

static size_t encode(const uint8_t *data, size_t size, char *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    size_t length = 0;
    for (size_t i = 0; i < size; i += 3) {
        size_t count = size - i < 3 ? size - i : 3;
        uint32_t bits = (uint32_t)data[i] << 16;
        if (count > 1) bits |= (uint32_t)data[i + 1] << 8;
        if (count > 2) bits |= data[i + 2];
        for (size_t digit = 0; digit <= count; digit++)
            out[length++] = digits[bits >> (18 - 6 * digit) & 63];
    }
    out[length] = '\0';
    return length;
}

/* Signs "header.claims", whose parts are the bytes before and after the first line end. */
static char *sign(const uint8_t *data, size_t size) {
    const uint8_t *line = memchr(data, '\n', size);
    size_t header_size = line ? (size_t)(line - data) : 0;
    char *token = malloc(2 * size + 100);
    require(token != NULL);
    size_t length = encode(data, header_size, token);
    token[length++] = '.';
    size_t skipped = line ? header_size + 1 : 0;
    length += encode(data + skipped, size - skipped, token + length);
    uint8_t digest[32];
    require(HMAC(EVP_sha256(), key, (int)strlen(key), (const unsigned char *)token, length, digest,
                 NULL) != NULL);
    token[length++] = '.';
    (void)encode(digest, sizeof digest, token + length);
    return token;
}

static void check_encoding(const char *text) {
    size_t length = strlen(text);
    unsigned char *bytes = malloc(length + 1);
    char *again = malloc(2 * length + 8);
    require(bytes && again);
    ptrdiff_t count = harpe_zeusd_base64url(text, length, bytes);
    if (count >= 0)
        require(encode(bytes, (size_t)count, again) == length && strcmp(again, text) == 0);
    free(bytes);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static harpe_zeusd_tokens *tokens; /* one for all inputs */
    if (!tokens) require(harpe_zeusd_tokens_new(key, strlen(key), &tokens, NULL) == HARPE_OK);
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    check(tokens, text);
    check_encoding(text);
    free(text);
    text = sign(data, size);
    check(tokens, text);
    free(text);
    return 0;
}
