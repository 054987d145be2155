/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, writes and compares tokens. It opens no file: tokens_file.c does. */
#include "rights/tokens.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/hex.h"
#include "base/number.h"
#include "base/random.h"
#include "base/text.h"
#include "rights/scope.h"

enum { SECRET_BYTES = 32, FIELDS = 7 };

static const char HEADING[] = "# Tokens of harpe serve: NAME ROLE GROUPS ADDED SALT HASH [WATTS]\n"
                              "# `harpe fleet token` changes this file.\n";

/* ---- Roles and names ------------------------------------------------------------------------- */

static const char *const ROLES[] = {
    [HARPE_ROLE_NONE] = "none",
    [HARPE_ROLE_VIEWER] = "viewer",
    [HARPE_ROLE_JOB] = "job",
    [HARPE_ROLE_OPERATOR] = "operator",
};

const char *harpe_role_name(harpe_role role) { return ROLES[role]; }

harpe_role harpe_role_named(const char *name, size_t length) {
    for (int role = HARPE_ROLE_VIEWER; role <= HARPE_ROLE_OPERATOR; role++)
        if (strlen(ROLES[role]) == length && memcmp(ROLES[role], name, length) == 0)
            return (harpe_role)role;
    return HARPE_ROLE_NONE;
}

static bool name_is_sound(const char *name, size_t length) {
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    if (length == 0 || length > HARPE_TOKEN_NAME_MAX) return false;
    for (size_t i = 0; i < length; i++)
        if (!memchr(allowed, name[i], sizeof allowed - 1)) return false;
    return true;
}

static bool scope_is_sound(const char *scope, size_t length) {
    if (length == 0 || length > HARPE_SCOPE_MAX) return false;
    for (const char *at = scope, *end = scope + length;; at++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end;
        if (!harpe_group_name_is_sound(at, (size_t)(stop - at))) return false;
        if (!comma) return true;
        at = comma;
    }
}

/* ---- The list -------------------------------------------------------------------------------- */

void harpe_tokens_free(harpe_tokens *tokens) {
    for (size_t i = 0; i < tokens->count; i++)
        free(tokens->tokens[i].scope);
    free(tokens->tokens);
    *tokens = (harpe_tokens){0};
}

static harpe_named_token *find_name(const harpe_tokens *tokens, const char *name, size_t length) {
    for (size_t i = 0; i < tokens->count; i++) {
        harpe_named_token *token = &tokens->tokens[i];
        if (strlen(token->name) == length && memcmp(token->name, name, length) == 0) return token;
    }
    return NULL;
}

harpe_named_token *harpe_tokens_named(const harpe_tokens *tokens, const char *name) {
    return find_name(tokens, name, strlen(name));
}

bool harpe_tokens_remove(harpe_tokens *tokens, const char *name) {
    harpe_named_token *token = harpe_tokens_named(tokens, name);
    if (!token) return false;
    free(token->scope);
    size_t behind = (size_t)(tokens->tokens + tokens->count - (token + 1));
    memmove(token, token + 1, behind * sizeof *token);
    tokens->count--;
    return true;
}

/* ---- Secrets --------------------------------------------------------------------------------- */

static void hash_secret(const unsigned char *salt, const char *secret,
                        unsigned char out[HARPE_SHA256_BYTES]) {
    harpe_sha256 hash;
    harpe_sha256_begin(&hash);
    harpe_sha256_append(&hash, salt, HARPE_TOKEN_SALT_BYTES);
    harpe_sha256_append(&hash, secret, strlen(secret));
    harpe_sha256_end(&hash, out);
}

const harpe_named_token *harpe_tokens_find(const harpe_tokens *tokens, const char *text) {
    const char *dot = strchr(text, '.');
    const harpe_named_token *token = dot ? find_name(tokens, text, (size_t)(dot - text)) : NULL;
    if (!token) return NULL;
    unsigned char hash[HARPE_SHA256_BYTES];
    hash_secret(token->salt, dot + 1, hash);
    unsigned difference = 0;
    for (size_t i = 0; i < sizeof hash; i++)
        difference |= (unsigned)(hash[i] ^ token->hash[i]);
    return difference == 0 ? token : NULL;
}

static harpe_status draw(void *bytes, size_t length, harpe_error *error) {
    if (harpe_random(bytes, length)) return HARPE_OK;
    return harpe_fail_errno(error, errno, "the kernel gives no random numbers for a token");
}

/* Makes the token's salt, secret, hash and text. */
static harpe_status make_secret(harpe_named_token *token, char **text, harpe_error *error) {
    unsigned char random[SECRET_BYTES];
    char secret[2 * SECRET_BYTES + 1];
    harpe_status status = draw(random, sizeof random, error);
    if (status == HARPE_OK) status = draw(token->salt, sizeof token->salt, error);
    if (status != HARPE_OK) return status;
    harpe_hex_put(secret, random, sizeof random);
    hash_secret(token->salt, secret, token->hash);
    if (asprintf(text, "%s.%s", token->name, secret) < 0) status = harpe_fail_memory(error);
    explicit_bzero(random, sizeof random);
    explicit_bzero(secret, sizeof secret);
    return status;
}

harpe_status harpe_tokens_add(harpe_tokens *tokens, const char *name, harpe_role role,
                              const char *scope, int64_t watts, int64_t now_s, char **text,
                              harpe_error *error) {
    harpe_named_token token = {.role = role, .added_s = now_s, .watts = watts};
    if (!name_is_sound(name, strlen(name)))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "'%.80s' is no name of a token: use 1 to %d letters, digits, - and _",
                          name, HARPE_TOKEN_NAME_MAX);
    if (scope && !scope_is_sound(scope, strlen(scope)))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "'%.200s' is no list of groups: a group is a word of 1 to %d bytes "
                          "without , ; +",
                          scope, HARPE_GROUP_NAME_MAX);
    if (harpe_tokens_named(tokens, name))
        return harpe_fail(error, HARPE_ALREADY_EXISTS,
                          "there is a token '%s' already: remove it first, or choose another name",
                          name);
    if (tokens->count >= HARPE_NAMED_TOKENS_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "there are %d tokens already: remove some",
                          HARPE_NAMED_TOKENS_MAX);
    (void)snprintf(token.name, sizeof token.name, "%s", name);
    if (!HARPE_ARRAY_RESERVE(tokens->tokens, tokens->capacity, tokens->count + 1))
        return harpe_fail_memory(error);
    token.scope = scope ? strdup(scope) : NULL;
    harpe_status status =
        scope && !token.scope ? harpe_fail_memory(error) : make_secret(&token, text, error);
    if (status != HARPE_OK) {
        free(token.scope);
        return status;
    }
    tokens->tokens[tokens->count++] = token;
    return HARPE_OK;
}

/* An operator may do everything, and a viewer declares nothing. */
int64_t harpe_token_claim_w(const harpe_named_token *token) {
    if (token->role != HARPE_ROLE_JOB) return -1;
    if (token->watts >= 0) return token->watts;
    return token->scope ? HARPE_TOKEN_WATTS_OF_GROUPS : HARPE_TOKEN_WATTS_MAX;
}

/* ---- Reading --------------------------------------------------------------------------------- */

typedef struct field {
    const char *text;
    size_t length;
} field;

/* Splits a line at its spaces. Returns the number of fields, at most FIELDS + 1. */
static int split(const char *line, size_t length, field fields[FIELDS + 1]) {
    int count = 0;
    for (size_t at = 0; at < length && count <= FIELDS; count++) {
        const char *space = memchr(line + at, ' ', length - at);
        size_t size = space ? (size_t)(space - line) - at : length - at;
        fields[count] = (field){line + at, size};
        at += size + 1;
    }
    return count;
}

static bool read_hex(field text, unsigned char *out, size_t size) {
    return text.length == 2 * size && harpe_hex_take(text.text, out, size);
}

/* Reads a line. Returns NULL, or what is wrong with it. */
static const char *read_token(const char *line, size_t length, harpe_named_token *out) {
    field fields[FIELDS + 1];
    int count = split(line, length, fields);
    if (count != FIELDS && count != FIELDS - 1)
        return "must have six words, and may have a seventh: see man harpe-fleet";
    field name = fields[0], groups = fields[2];
    if (!name_is_sound(name.text, name.length)) return "the first word is no name of a token";
    memcpy(out->name, name.text, name.length);
    out->name[name.length] = '\0';
    out->role = harpe_role_named(fields[1].text, fields[1].length);
    if (out->role == HARPE_ROLE_NONE)
        return "the second word is no role: it must be viewer, job or operator";
    bool has_all = groups.length == 1 && *groups.text == '*';
    if (!has_all && !scope_is_sound(groups.text, groups.length))
        return "the third word must be groups with commas between them, or *";
    if (!harpe_parse_int(fields[3].text, fields[3].length, &out->added_s) || out->added_s < 0)
        return "the fourth word must be a time in seconds since 1970";
    if (!read_hex(fields[4], out->salt, sizeof out->salt))
        return "the fifth word must be a salt of 32 hexadecimal digits";
    if (!read_hex(fields[5], out->hash, sizeof out->hash))
        return "the sixth word must be a hash of 64 hexadecimal digits";
    out->watts = -1;
    if (count == FIELDS && (!harpe_parse_int(fields[6].text, fields[6].length, &out->watts) ||
                            out->watts < 0 || out->watts > HARPE_TOKEN_WATTS_MAX))
        return "the seventh word must be a power in W";
    if (has_all) return NULL;
    out->scope = strndup(groups.text, groups.length);
    return out->scope ? NULL : "the memory for it is missing";
}

static harpe_status add_line(harpe_tokens *tokens, const char *line, size_t length,
                             const char *what, int number, harpe_error *error) {
    harpe_named_token token = {0};
    const char *fault = read_token(line, length, &token);
    if (!fault && harpe_tokens_named(tokens, token.name)) fault = "an earlier line has this name";
    if (!fault && tokens->count >= HARPE_NAMED_TOKENS_MAX) fault = "there are too many tokens";
    if (!fault && !HARPE_ARRAY_RESERVE(tokens->tokens, tokens->capacity, tokens->count + 1))
        fault = "the memory for it is missing";
    if (!fault) {
        tokens->tokens[tokens->count++] = token;
        return HARPE_OK;
    }
    free(token.scope);
    return harpe_fail(error, HARPE_INVALID_INPUT, "%.300s: line %d: %s", what, number, fault);
}

harpe_status harpe_tokens_parse(const char *text, size_t length, const char *what,
                                harpe_tokens *out, harpe_error *error) {
    harpe_tokens tokens = {0};
    int number = 1;
    for (size_t at = 0; at < length; number++) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t size = end ? (size_t)(end - text) - at : length - at;
        const char *line = text + at;
        at += size + 1;
        if (size > 0 && line[size - 1] == '\r') size--;
        if (size == 0 || *line == '#') continue;
        harpe_status status = add_line(&tokens, line, size, what, number, error);
        if (status == HARPE_OK) continue;
        harpe_tokens_free(&tokens);
        return status;
    }
    *out = tokens;
    return HARPE_OK;
}

/* ---- Writing --------------------------------------------------------------------------------- */

char *harpe_tokens_format(const harpe_tokens *tokens) {
    harpe_text text = {0};
    harpe_text_append(&text, HEADING, sizeof HEADING - 1);
    for (size_t i = 0; i < tokens->count; i++) {
        const harpe_named_token *token = &tokens->tokens[i];
        char salt[2 * HARPE_TOKEN_SALT_BYTES + 1], hash[2 * HARPE_SHA256_BYTES + 1];
        harpe_hex_put(salt, token->salt, sizeof token->salt);
        harpe_hex_put(hash, token->hash, sizeof token->hash);
        harpe_text_printf(&text, "%s %s %s %" PRId64 " %s %s", token->name, ROLES[token->role],
                          token->scope ? token->scope : "*", token->added_s, salt, hash);
        if (token->watts >= 0) harpe_text_printf(&text, " %" PRId64, token->watts);
        harpe_text_append(&text, "\n", 1);
    }
    if (!text.failed) return text.data;
    harpe_text_free(&text);
    return NULL;
}
