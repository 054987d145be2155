/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens with a name, a role and groups. The file of tokens has one line for each token:
 *
 *     NAME ROLE GROUPS ADDED SALT HASH [WATTS]
 *
 * GROUPS is "row1,row2", or "*" for all groups. ADDED is a time in seconds since 1970. SALT and
 * HASH are hexadecimal. HASH is the SHA-256 of the salt (16 bytes) and the secret part of the
 * token. WATTS limits the power that members of
 * the fleet may claim with a token of the role job. Lines that begin with # are comments. A token
 * is NAME.SECRET with a secret of 256 random bits, so nobody can find a token from its hash, and
 * the name tells which line to compare. */
#ifndef HARPE_RIGHTS_TOKENS_H
#define HARPE_RIGHTS_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

#include "base/sha256.h"

typedef enum harpe_role {
    HARPE_ROLE_NONE,
    HARPE_ROLE_VIEWER,   /* reads */
    HARPE_ROLE_JOB,      /* does what a training client does */
    HARPE_ROLE_OPERATOR, /* does everything */
} harpe_role;

enum {
    HARPE_TOKEN_NAME_MAX = 64, /* bytes */
    HARPE_TOKEN_SALT_BYTES = 16,
    HARPE_NAMED_TOKENS_MAX = 10000,
    HARPE_TOKEN_WATTS_MAX = 1000000000,
    HARPE_TOKEN_WATTS_OF_GROUPS = 1000000, /* for tokens with groups whose line does not say it */
};

typedef struct harpe_named_token {
    char name[HARPE_TOKEN_NAME_MAX + 1]; /* letters, digits, '-' and '_' */
    harpe_role role;
    char *scope; /* see rights/scope.h; NULL: all groups */
    int64_t added_s;
    int64_t watts; /* all members that are declared with the token; negative: not said */
    unsigned char salt[HARPE_TOKEN_SALT_BYTES], hash[HARPE_SHA256_BYTES];
} harpe_named_token;

/* Initialise it with zeros. The tokens are in the order of the file. */
typedef struct harpe_tokens {
    harpe_named_token *tokens;
    size_t count, capacity;
} harpe_tokens;

void harpe_tokens_free(harpe_tokens *tokens);

/* Reads the text of a file of tokens. An error begins with `what` and the number of the line. */
harpe_status harpe_tokens_parse(const char *text, size_t length, const char *what,
                                harpe_tokens *out, harpe_error *error);
/* Writes the text that harpe_tokens_parse reads. Free it with free(); NULL: out of memory. */
char *harpe_tokens_format(const harpe_tokens *tokens);

/* Returns the token with this text, or NULL. The time that it takes does not depend on how much of
 * the secret is right. */
const harpe_named_token *harpe_tokens_find(const harpe_tokens *tokens, const char *text);
/* Returns the token with this name, or NULL. */
harpe_named_token *harpe_tokens_named(const harpe_tokens *tokens, const char *name);

/* Adds a token. `scope` may be NULL, and `watts` negative. Writes the text of the token, which is
 * not kept anywhere, to
 * `*text`; erase it before you free it with free(). */
harpe_status harpe_tokens_add(harpe_tokens *tokens, const char *name, harpe_role role,
                              const char *scope, int64_t watts, int64_t now_s, char **text,
                              harpe_error *error);
/* Returns false if no token has this name. */
bool harpe_tokens_remove(harpe_tokens *tokens, const char *name);

/* Returns the power that members declared with the token may have together, or -1 for any power. */
int64_t harpe_token_claim_w(const harpe_named_token *token);

/* Returns "viewer", "job" or "operator". */
const char *harpe_role_name(harpe_role role);
/* Returns HARPE_ROLE_NONE if no role has this name. */
harpe_role harpe_role_named(const char *name, size_t length);

#endif
