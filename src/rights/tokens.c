/* SPDX-License-Identifier: Apache-2.0 */
/* Who may do what: scopes, the tree of groups, and tokens with their file. */
#include "rights/tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <harpe/fleet.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "base/platform.h"
#include "base/text.h"

/* ---- Scopes ---------------------------------------------------------------------------------- */

/* Compares groups with the scope of a token. A token reaches the groups that it names and the
 * groups inside of them, as the tree is at that moment. */

static bool names(const char *scope, const char *group) {
    size_t length = strlen(group);
    for (const char *at = scope; *at;) {
        size_t own = strcspn(at, ",");
        if (own == length && memcmp(at, group, length) == 0) return true;
        at += own;
        at += *at == ',';
    }
    return false;
}

bool harpe_scope_covers(const harpe_group_tree *tree, const char *scope, const char *group) {
    if (!scope) return true;
    /* A tree has fewer levels. The limit ends the loop if groups form a circle. */
    for (int depth = 0; group && *group && depth < HARPE_FLEET_DEPTH_MAX; depth++) {
        if (names(scope, group)) return true;
        group = harpe_group_tree_parent(tree, group);
    }
    return false;
}

bool harpe_group_name_is_sound(const char *name, size_t length) {
    if (length == 0 || length > HARPE_GROUP_NAME_MAX || memchr(name, '\0', length)) return false;
    char copy[HARPE_GROUP_NAME_MAX + 1];
    memcpy(copy, name, length);
    copy[length] = '\0';
    if (strcspn(copy, " \t,;+") != length) return false;
    for (size_t at = 0, size; at < length; at += size)
        if (!harpe_character_is_safe(harpe_character(copy + at, &size))) return false;
    return true;
}

bool harpe_scope_equal(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

const char *harpe_scope_words(const char *scope, char *buffer, size_t size) {
    size_t length = scope ? strlen(scope) : 0;
    if (length == 0)
        (void)snprintf(buffer, size, "the whole fleet");
    else if (length > 200)
        (void)snprintf(buffer, size, "the groups %.*s...", (int)harpe_cut_length(scope, 200),
                       scope);
    else
        (void)snprintf(buffer, size, "the group%s %s", strchr(scope, ',') ? "s" : "", scope);
    return buffer;
}

/* ---- The tree of groups ---------------------------------------------------------------------- */

/* Returns the index of the entry with this name, or the index at which it would be inserted. */
static size_t find(const harpe_group_tree *tree, const char *name, bool *is_found) {
    size_t low = 0, high = tree->count;
    *is_found = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, tree->places[middle].name);
        if (order == 0) {
            *is_found = true;
            return middle;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void free_place(harpe_group_place *place) {
    free(place->name);
    free(place->parent);
}

void harpe_group_tree_free(harpe_group_tree *tree) {
    for (size_t i = 0; i < tree->count; i++)
        free_place(&tree->places[i]);
    free(tree->places);
    *tree = (harpe_group_tree){0};
}

static void take_out(harpe_group_tree *tree, const char *name) {
    bool is_found;
    size_t at = find(tree, name, &is_found);
    if (!is_found) return;
    free_place(&tree->places[at]);
    tree->count--;
    memmove(&tree->places[at], &tree->places[at + 1], (tree->count - at) * sizeof *tree->places);
}

bool harpe_group_tree_put(harpe_group_tree *tree, const char *name, const char *parent) {
    bool is_found;
    const char *before = harpe_group_tree_parent(tree, name);
    if (strcmp(before ? before : "", parent ? parent : "") == 0) return true;
    tree->moves++;
    take_out(tree, name);
    if (!parent || !*parent) return true;
    harpe_group_place place = {strdup(name), strdup(parent)};
    if (!place.name || !place.parent ||
        !HARPE_ARRAY_RESERVE(tree->places, tree->capacity, tree->count + 1)) {
        free_place(&place);
        return false;
    }
    size_t at = find(tree, name, &is_found);
    memmove(&tree->places[at + 1], &tree->places[at], (tree->count - at) * sizeof *tree->places);
    tree->places[at] = place;
    tree->count++;
    return true;
}

const char *harpe_group_tree_parent(const harpe_group_tree *tree, const char *name) {
    bool is_found = false;
    size_t at = tree && tree->count > 0 ? find(tree, name, &is_found) : 0;
    return is_found ? tree->places[at].parent : NULL;
}

/* Reads and replaces the file of tokens. A lock orders the programs that change it. Readers need no
 * lock, because the file is replaced as a whole. */

enum { LOCK_MS = 10000 };

#define FILE_LIMIT_BYTES ((size_t)64 << 20)

/* ---- Stamps ---------------------------------------------------------------------------------- */

harpe_tokens_stamp harpe_tokens_file_look(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) return (harpe_tokens_stamp){0};
    return (harpe_tokens_stamp){info.st_dev, info.st_ino, info.st_size, info.st_ctim};
}

bool harpe_tokens_stamp_equal(const harpe_tokens_stamp *a, const harpe_tokens_stamp *b) {
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

/* ---- Reading the file ------------------------------------------------------------------------ */

static harpe_status check_mode(const char *path, const char *flag, harpe_error *error) {
    struct stat info;
    if (stat(path, &info) != 0) return harpe_fail_errno(error, errno, "%s %.300s", flag, path);
    if (!S_ISREG(info.st_mode))
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s %.300s: is not a file", flag, path);
    if (info.st_mode & 0077)
        return harpe_fail(error, HARPE_PERMISSION_DENIED,
                          "%s %.300s: other users may use the file (mode %04o): chmod 600 it", flag,
                          path, (unsigned)(info.st_mode & 07777));
    return HARPE_OK;
}

static harpe_status read_text(const char *path, const char *flag, char **text, size_t *length,
                              harpe_error *error) {
    harpe_status status = check_mode(path, flag, error);
    return status != HARPE_OK
               ? status
               : harpe_file_read_promptly(path, FILE_LIMIT_BYTES, text, length, error);
}

static harpe_status parse(const char *path, const char *flag, const char *text, size_t length,
                          harpe_tokens *out, harpe_error *error) {
    char what[400];
    (void)snprintf(what, sizeof what, "%s %.300s", flag, path);
    return harpe_tokens_parse(text, length, what, out, error);
}

harpe_status harpe_tokens_file_read(const char *path, const char *flag, harpe_tokens *out,
                                    harpe_tokens_stamp *stamp, harpe_error *error) {
    char *text;
    size_t length;
    /* A change between these calls gives the file another stamp than this one. */
    harpe_tokens_stamp seen = harpe_tokens_file_look(path);
    harpe_status status = read_text(path, flag, &text, &length, error);
    if (status != HARPE_OK) return status;
    status = parse(path, flag, text, length, out, error);
    free(text);
    if (status == HARPE_OK && stamp) *stamp = seen;
    return status;
}

/* ---- Reading in a file process --------------------------------------------------------------- */

/* The parts of the work. The answer is empty, or the stamp and the text. */
enum { PATH, FLAG, STAMP, PART_COUNT };

harpe_status harpe_tokens_file_work(const struct iovec *parts, size_t count, harpe_text *answer,
                                    harpe_error *error) {
    harpe_tokens_stamp known;
    if (count != PART_COUNT || parts[STAMP].iov_len != sizeof known)
        return harpe_fail(error, HARPE_INTERNAL, "a stamp of tokens has the wrong size");
    memcpy(&known, parts[STAMP].iov_base, sizeof known);
    char *text;
    size_t length;
    const char *path = parts[PATH].iov_base;
    harpe_tokens_stamp seen = harpe_tokens_file_look(path);
    if (harpe_tokens_stamp_equal(&seen, &known)) return HARPE_OK;
    harpe_status status = read_text(path, parts[FLAG].iov_base, &text, &length, error);
    if (status != HARPE_OK) return status;
    harpe_text_append(answer, (const char *)&seen, sizeof seen);
    harpe_text_append(answer, text, length);
    free(text);
    return HARPE_OK;
}

harpe_status harpe_tokens_file_read_changed(harpe_file_processes *files, const char *path,
                                            const char *flag, harpe_tokens *out,
                                            harpe_tokens_stamp *stamp, bool *is_changed,
                                            harpe_error *error) {
    const struct iovec parts[PART_COUNT] = {[PATH] = {(void *)path, strlen(path)},
                                            [FLAG] = {(void *)flag, strlen(flag)},
                                            [STAMP] = {stamp, sizeof *stamp}};
    harpe_text answer = {0};
    harpe_status status = harpe_file_processes_run(files, path, harpe_tokens_file_work, parts,
                                                   PART_COUNT, &answer, error);
    if (status == HARPE_OK && answer.failed) status = harpe_fail_memory(error);
    *is_changed = status != HARPE_OK || answer.length >= sizeof *stamp;
    if (status == HARPE_OK && *is_changed)
        status = parse(path, flag, answer.data + sizeof *stamp, answer.length - sizeof *stamp, out,
                       error);
    if (status == HARPE_OK && *is_changed) memcpy(stamp, answer.data, sizeof *stamp);
    harpe_text_free(&answer);
    return status;
}

/* ---- Changing -------------------------------------------------------------------------------- */

/* The lock of the programs that change the file: another file beside it, "<path>.lock". */
typedef struct change_lock {
    int directory, lock;
    char *name; /* in the directory */
} change_lock;

static void unlock(change_lock *lock) {
    if (lock->lock >= 0) harpe_file_unlock_at(lock->directory, lock->name, lock->lock);
    if (lock->directory >= 0) (void)close(lock->directory);
    free(lock->name);
}

static harpe_status lock_changes(const char *path, const char *flag, change_lock *out,
                                 harpe_error *error) {
    const char *slash = strrchr(path, '/');
    char *parent = harpe_path_parent(path);
    *out = (change_lock){-1, -1, harpe_path_join(slash ? slash + 1 : path, "", ".lock")};
    if (parent && out->name) {
        out->directory = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (out->directory >= 0) out->lock = harpe_file_lock_at(out->directory, out->name, LOCK_MS);
    }
    int failure = errno;
    free(parent);
    if (out->lock >= 0) return HARPE_OK;
    unlock(out);
    if (failure == EWOULDBLOCK)
        return harpe_fail(
            error, HARPE_UNAVAILABLE,
            "%s %.300s: another program has been changing the file for %d s (its lock "
            "is %.300s.lock); try again",
            flag, path, LOCK_MS / 1000, path);
    return harpe_fail_errno(error, failure, "%s %.300s: cannot lock %.300s.lock", flag, path, path);
}

static harpe_status write_tokens(const char *path, const harpe_tokens *tokens, harpe_error *error) {
    char *text = harpe_tokens_format(tokens);
    if (!text) return harpe_fail_memory(error);
    mode_t mask = umask(0077); /* a new file has the mode 0600 from its beginning */
    harpe_status status = harpe_file_write(path, text, strlen(text), error);
    (void)umask(mask);
    free(text);
    return status;
}

harpe_status harpe_tokens_file_change(const char *path, const char *flag,
                                      harpe_status (*change)(void *user, harpe_tokens *tokens,
                                                             harpe_error *error),
                                      void *user, harpe_error *error) {
    harpe_tokens tokens = {0};
    change_lock lock;
    harpe_status status = lock_changes(path, flag, &lock, error);
    if (status != HARPE_OK) return status;
    struct stat info;
    if (stat(path, &info) == 0 || errno != ENOENT)
        status = harpe_tokens_file_read(path, flag, &tokens, NULL, error);
    if (status == HARPE_OK) status = change(user, &tokens, error);
    if (status == HARPE_OK) status = write_tokens(path, &tokens, error);
    harpe_tokens_free(&tokens);
    unlock(&lock);
    return status;
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

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

/* Returns HARPE_ROLE_NONE if no role has this name. */
static harpe_role role_named(const char *name, size_t length) {
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

/* Writes the SHA-256 of salt and secret. Returns false if memory runs out. */
static bool hash_secret(const unsigned char *salt, const char *secret,
                        unsigned char out[HARPE_TOKEN_HASH_BYTES]) {
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    bool is_made = hash && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1 &&
                   EVP_DigestUpdate(hash, salt, HARPE_TOKEN_SALT_BYTES) == 1 &&
                   EVP_DigestUpdate(hash, secret, strlen(secret)) == 1 &&
                   EVP_DigestFinal_ex(hash, out, NULL) == 1;
    EVP_MD_CTX_free(hash);
    return is_made;
}

const harpe_named_token *harpe_tokens_find(const harpe_tokens *tokens, const char *text) {
    const char *dot = strchr(text, '.');
    const harpe_named_token *token = dot ? find_name(tokens, text, (size_t)(dot - text)) : NULL;
    if (!token) return NULL;
    unsigned char hash[HARPE_TOKEN_HASH_BYTES];
    bool is_same = hash_secret(token->salt, dot + 1, hash) &&
                   CRYPTO_memcmp(hash, token->hash, sizeof hash) == 0;
    return is_same ? token : NULL;
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
    if (!hash_secret(token->salt, secret, token->hash) ||
        asprintf(text, "%s.%s", token->name, secret) < 0)
        status = harpe_fail_memory(error);
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

/* ---- Reading a token ------------------------------------------------------------------------- */

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
    out->role = role_named(fields[1].text, fields[1].length);
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
        char salt[2 * HARPE_TOKEN_SALT_BYTES + 1], hash[2 * HARPE_TOKEN_HASH_BYTES + 1];
        harpe_hex_put(salt, token->salt, sizeof token->salt);
        harpe_hex_put(hash, token->hash, sizeof token->hash);
        harpe_text_printf(&text, "%s %s %s %" PRId64 " %s %s", token->name, ROLES[token->role],
                          token->scope ? token->scope : "*", token->added_s, salt, hash);
        if (token->watts >= 0) harpe_text_printf(&text, " %" PRId64, token->watts);
        harpe_text_append(&text, "\n", 1);
    }
    return harpe_text_take(&text);
}
