/* SPDX-License-Identifier: Apache-2.0 */
/* Who may do what: the tree of groups, scopes, and tokens with their file. */
#ifndef HARPE_RIGHTS_TOKENS_H
#define HARPE_RIGHTS_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <harpe/status.h>

#include "base/file_processes.h"

/* ---- The tree of groups ---------------------------------------------------------------------- */

/* The tree of groups: it has the parent of each group, which is the group directly around it. A
 * group whose parent is the whole fleet has no entry. The fleet changes the tree. Code that
 * compares a group with the groups of a token reads it. Only one thread may use a tree. */

/* A group and its parent. */
typedef struct harpe_group_place {
    char *name, *parent;
} harpe_group_place;

/* Initialise it with zeros. */
typedef struct harpe_group_tree {
    harpe_group_place *places; /* sorted by name */
    size_t count, capacity;
    uint64_t moves; /* how many times the parent of a group has changed */
} harpe_group_tree;

void harpe_group_tree_free(harpe_group_tree *tree);

/* Sets the parent of a group. If `parent` is NULL or "", the parent is the whole fleet, and the
 * entry of the group is removed. Returns false if memory runs out. The parent is then the whole
 * fleet, so that no token reaches the group through another group. */
bool harpe_group_tree_put(harpe_group_tree *tree, const char *name, const char *parent);

/* Returns the parent of a group, or NULL if the parent is the whole fleet. The text is valid until
 * the tree changes. `tree` may be NULL; then the parent of each group is the whole fleet. */
const char *harpe_group_tree_parent(const harpe_group_tree *tree, const char *name);

/* ---- Scopes ---------------------------------------------------------------------------------- */

/* A scope is the groups to which a token is limited, as one text: "row1,row2". NULL: not limited.
 */

/* The longest name of a group and the longest scope, in bytes. */
enum { HARPE_GROUP_NAME_MAX = 127, HARPE_SCOPE_MAX = 4096 };

/* Returns true if the scope is NULL, or names the group or a group around it. `group` NULL or "" is
 * the whole fleet, which only the scope NULL covers. `tree` NULL: no group is inside of another. */
bool harpe_scope_covers(const harpe_group_tree *tree, const char *scope, const char *group);

/* Returns true if a group can have this name: 1 to HARPE_GROUP_NAME_MAX bytes of UTF-8 without
 * white space, control characters and the characters , ; + that separate words of a job's metadata.
 */
bool harpe_group_name_is_sound(const char *name, size_t length);

/* Returns true if both scopes name the same groups in the same order. */
bool harpe_scope_equal(const char *a, const char *b);

/* Writes "the group row1", "the groups row1,row2" or "the whole fleet" for a message. Cuts a long
 * scope. */
const char *harpe_scope_words(const char *scope, char *buffer, size_t size);

/* ---- Tokens ---------------------------------------------------------------------------------- */

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

typedef enum harpe_role {
    HARPE_ROLE_NONE,
    HARPE_ROLE_VIEWER,   /* reads */
    HARPE_ROLE_JOB,      /* does what a training client does */
    HARPE_ROLE_OPERATOR, /* does everything */
} harpe_role;

enum {
    HARPE_TOKEN_NAME_MAX = 64, /* bytes */
    HARPE_TOKEN_SALT_BYTES = 16,
    HARPE_TOKEN_HASH_BYTES = 32, /* SHA-256 */
    HARPE_NAMED_TOKENS_MAX = 10000,
    HARPE_TOKEN_WATTS_MAX = 1000000000,
    HARPE_TOKEN_WATTS_OF_GROUPS = 1000000, /* for tokens with groups whose line does not say it */
};

typedef struct harpe_named_token {
    char name[HARPE_TOKEN_NAME_MAX + 1]; /* letters, digits, '-' and '_' */
    harpe_role role;
    char *scope; /* see above; NULL: all groups */
    int64_t added_s;
    int64_t watts; /* all members that are declared with the token; negative: not said */
    unsigned char salt[HARPE_TOKEN_SALT_BYTES], hash[HARPE_TOKEN_HASH_BYTES];
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

/* ---- The file of tokens ---------------------------------------------------------------------- */

/* The file of tokens on disk. Only its owner may read and write it (mode 0600). */

/* Which file a path named at some time, and when it last changed. */
typedef struct harpe_tokens_stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
} harpe_tokens_stamp;

#define HARPE_TOKENS_NO_STAMP ((harpe_tokens_stamp){.size = -1}) /* of no file */

/* Reads the tokens. Fails if the file is not a regular file, if other users may use it, or if a
 * line is not valid. An error begins with `flag` ("--tokens") and the path. Fills in `*stamp`,
 * which may be NULL. Nothing waits longer than 10 s. */
harpe_status harpe_tokens_file_read(const char *path, const char *flag, harpe_tokens *out,
                                    harpe_tokens_stamp *stamp, harpe_error *error);
/* Does the same if the file has another stamp than `*stamp`; `*is_changed` says whether it has.
 * File processes use the file, because it may be on a file server that does not answer. Waits for
 * them without a limit. To read the file in any case, begin with HARPE_TOKENS_NO_STAMP. */
harpe_status harpe_tokens_file_read_changed(harpe_file_processes *files, const char *path,
                                            const char *flag, harpe_tokens *out,
                                            harpe_tokens_stamp *stamp, bool *is_changed,
                                            harpe_error *error);
/* What a file process does. */
harpe_status harpe_tokens_file_work(const struct iovec *parts, size_t count, harpe_text *answer,
                                    harpe_error *error);
/* Returns the stamp of the file now, with zeros if there is no file. */
harpe_tokens_stamp harpe_tokens_file_look(const char *path);
bool harpe_tokens_stamp_equal(const harpe_tokens_stamp *a, const harpe_tokens_stamp *b);

/* Reads the file, lets `change` change the tokens, and replaces the file atomically. A missing file
 * counts as empty. If `change` fails, writes nothing. While it runs, other callers for files in the
 * same directory wait, so that no change is lost. */
harpe_status harpe_tokens_file_change(const char *path, const char *flag,
                                      harpe_status (*change)(void *user, harpe_tokens *tokens,
                                                             harpe_error *error),
                                      void *user, harpe_error *error);

#endif
