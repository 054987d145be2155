/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the tokens of zeusd. These are JSON Web Tokens (RFC 7519) with an HMAC-SHA256 signature. A
 * token names a user, the groups of routes that the user may use, and an expiry. This
 * code does not issue tokens. */
#ifndef HARPE_AGENT_ZEUSD_TOKEN_H
#define HARPE_AGENT_ZEUSD_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

/* The groups of routes, as bits of a set. */
typedef enum harpe_zeusd_group {
    HARPE_ZEUSD_GPU_CONTROL = 1,
    HARPE_ZEUSD_GPU_READ = 2,
    HARPE_ZEUSD_CPU_READ = 4,
} harpe_zeusd_group;

/* Returns "gpu-control", "gpu-read" or "cpu-read". */
const char *harpe_zeusd_group_name(harpe_zeusd_group group);
/* Finds a group by its name. Returns false if there is none. */
bool harpe_zeusd_group_find(const char *name, harpe_zeusd_group *out);

enum {
    HARPE_ZEUSD_SUBJECT_SIZE = 256,
    HARPE_ZEUSD_SCOPES_MAX = 16,
    HARPE_ZEUSD_TOKEN_MAX = 8192, /* bytes of a token */
    /* How long a token is accepted after its expiry, because clocks of machines differ. zeusd does
     * the same. */
    HARPE_ZEUSD_LEEWAY_S = 60,
};

/* What a valid token says. */
typedef struct harpe_zeusd_claims {
    char subject[HARPE_ZEUSD_SUBJECT_SIZE];
    harpe_zeusd_group scopes[HARPE_ZEUSD_SCOPES_MAX]; /* in the order of the token */
    size_t scope_count;
    bool expires;
    uint64_t expiry_s; /* Unix time; only if `expires` */
} harpe_zeusd_claims;

typedef struct harpe_zeusd_tokens harpe_zeusd_tokens;

/* Copies the key. Fails with HARPE_INVALID_ARGUMENT if the key is empty. Free with
 * harpe_zeusd_tokens_free, which clears the key. */
harpe_status harpe_zeusd_tokens_new(const void *key, size_t length, harpe_zeusd_tokens **out,
                                    harpe_error *error);
void harpe_zeusd_tokens_free(harpe_zeusd_tokens *tokens); /* NULL is allowed */

/* Checks a token at the Unix time `now_s`. Fails with HARPE_PERMISSION_DENIED and zeusd's message
 * ("Token has expired.", "Invalid token: ..."). The message never contains a part of the token. Any
 * thread may call it. */
harpe_status harpe_zeusd_token_check(const harpe_zeusd_tokens *tokens, const char *token,
                                     int64_t now_s, harpe_zeusd_claims *out, harpe_error *error);

/* Returns true if the token grants the group. */
bool harpe_zeusd_claims_grant(const harpe_zeusd_claims *claims, harpe_zeusd_group group);

/* Decodes base64url without padding (RFC 7515). `out` has room for length * 3 / 4 bytes. Returns
 * the number of bytes, or -1 if the text is not a valid encoding. */
ptrdiff_t harpe_zeusd_base64url(const char *text, size_t length, unsigned char *out);

#endif
