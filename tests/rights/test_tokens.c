/* SPDX-License-Identifier: Apache-2.0 */
/* The file of tokens: what is written is read again, tokens are found by their text and by nothing
 * else, each damage of a line is named, and files keep their mode under concurrent changes. */
#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rights/tokens.h"

/* `*text` gets the text of the token. */
static void add(harpe_tokens *tokens, const char *name, harpe_role role, const char *scope,
                char **text) {
    harpe_error error;
    int64_t watts = role == HARPE_ROLE_JOB ? 5000 : -1;
    if (harpe_tokens_add(tokens, name, role, scope, watts, 1764100000, text, &error) != HARPE_OK)
        fail_msg("%s", error.message);
}

TEST(tokens_survive_writing) {
    static const struct {
        const char *name, *scope;
        harpe_role role;
    } rows[] = {{"a", NULL, HARPE_ROLE_VIEWER},
                {"job-1", "row1", HARPE_ROLE_JOB},
                {"Anna_B", "row1,row2,r\xc3\xa4um", HARPE_ROLE_OPERATOR}};
    harpe_tokens tokens = {0}, again = {0};
    char *texts[3];
    for (int i = 0; i < 3; i++)
        add(&tokens, rows[i].name, rows[i].role, rows[i].scope, &texts[i]);
    char *text = harpe_tokens_format(&tokens);
    assert_int_equal(harpe_tokens_parse(text, strlen(text), "t", &again, NULL), HARPE_OK);
    char *second = harpe_tokens_format(&again);
    assert_string_equal(text, second);
    assert_int_equal(again.count, 3);
    for (int i = 0; i < 3; i++) {
        const harpe_named_token *found = harpe_tokens_find(&again, texts[i]);
        assert_non_null(found);
        assert_string_equal(found->name, rows[i].name);
        assert_int_equal(found->role, rows[i].role);
        assert_int_equal(found->watts, rows[i].role == HARPE_ROLE_JOB ? 5000 : -1);
        assert_true(harpe_scope_equal(found->scope, rows[i].scope));
        assert_null(strstr(text, strchr(texts[i], '.') + 1)); /* the secret is not in the file */
        free(texts[i]);
    }
    free(text);
    free(second);
    harpe_tokens_free(&tokens);
    harpe_tokens_free(&again);
}

TEST(only_the_whole_text_is_a_token) {
    harpe_tokens tokens = {0};
    char *one = NULL, *two = NULL;
    add(&tokens, "one", HARPE_ROLE_VIEWER, NULL, &one);
    add(&tokens, "two", HARPE_ROLE_OPERATOR, NULL, &two);
    size_t length = strlen(one);
    char other[200];
    assert_non_null(harpe_tokens_find(&tokens, one));
    for (size_t i = 0; i < length; i++) {
        memcpy(other, one, length + 1);
        other[i] = other[i] == 'x' ? 'y' : 'x';
        assert_null(harpe_tokens_find(&tokens, other));
        (void)snprintf(other, sizeof other, "%.*s", (int)i, one);
        assert_null(harpe_tokens_find(&tokens, other));
    }
    (void)snprintf(other, sizeof other, "%s0", one);
    assert_null(harpe_tokens_find(&tokens, other));
    /* The secret of one token under the name of another. */
    (void)snprintf(other, sizeof other, "two%s", strchr(one, '.'));
    assert_null(harpe_tokens_find(&tokens, other));
    assert_true(harpe_tokens_remove(&tokens, "one"));
    assert_false(harpe_tokens_remove(&tokens, "one"));
    assert_null(harpe_tokens_find(&tokens, one));
    assert_ptr_equal(harpe_tokens_find(&tokens, two), harpe_tokens_named(&tokens, "two"));
    free(one);
    free(two);
    harpe_tokens_free(&tokens);
}

#define SALT "00112233445566778899aabbccddeeff"
#define HASH SALT SALT

TEST(each_damage_of_a_line_is_named) {
    static const struct {
        const char *line, *fault;
    } rows[] = {
        {"a viewer * 1 " SALT, "six words"},
        {"a viewer * 1 " SALT " " HASH " x", "seventh word"},
        {"a viewer * 1 " SALT " " HASH " -1", "seventh word"},
        {"a viewer * 1 " SALT " " HASH " 1e3", "seventh word"},
        {"a viewer * 1 " SALT " " HASH " 1 2", "six words"},
        {"a  viewer * 1 " SALT " " HASH, "role"},
        {"a b viewer * 1 " SALT " " HASH, "role"},
        {"a.b viewer * 1 " SALT " " HASH, "name"},
        {" viewer * 1 " SALT " " HASH, "name"},
        {"a Viewer * 1 " SALT " " HASH, "role"},
        {"a none * 1 " SALT " " HASH, "role"},
        {"a viewer  1 " SALT " " HASH, "groups"},
        {"a viewer row1, 1 " SALT " " HASH, "groups"},
        {"a viewer row1,,row2 1 " SALT " " HASH, "groups"},
        {"a viewer r\xff 1 " SALT " " HASH, "groups"},
        {"a viewer * -1 " SALT " " HASH, "time"},
        {"a viewer * 1e3 " SALT " " HASH, "time"},
        {"a viewer * 1 " SALT "0 " HASH, "salt"},
        {"a viewer * 1 " SALT " " HASH "00", "hash"},
        {"a viewer * 1 " SALT " 0g" SALT "112233445566778899aabbccddeeff", "hash"},
        {"b viewer * 1 " SALT " " HASH, "an earlier line"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[600];
        harpe_tokens tokens = {0};
        harpe_error error;
        int length = snprintf(text, sizeof text, "# c\n\nb job row1 1 %s %s\n%s\n", SALT, HASH,
                              rows[i].line);
        assert_int_equal(harpe_tokens_parse(text, (size_t)length, "--tokens f", &tokens, &error),
                         HARPE_INVALID_INPUT);
        assert_non_null(strstr(error.message, "--tokens f: line 4: "));
        if (!strstr(error.message, rows[i].fault)) fail_msg("%s: %s", text, error.message);
        assert_null(tokens.tokens);
    }
}

TEST(names_and_groups_have_limits) {
    harpe_tokens tokens = {0};
    char long_name[HARPE_TOKEN_NAME_MAX + 2], long_group[HARPE_GROUP_NAME_MAX + 2], *text = NULL;
    memset(long_name, 'n', sizeof long_name - 1);
    memset(long_group, 'g', sizeof long_group - 1);
    long_name[sizeof long_name - 1] = long_group[sizeof long_group - 1] = '\0';
    const char *const names[] = {"", "a b", "a.b", "\xc3\xa4", "a/b", long_name};
    const char *const scopes[] = {"", ",", "a,", "a b", "a;b", "a\n", "a\x7f", long_group};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(
            harpe_tokens_add(&tokens, names[i], HARPE_ROLE_JOB, NULL, -1, 0, &text, NULL),
            HARPE_INVALID_ARGUMENT);
    for (size_t i = 0; i < sizeof scopes / sizeof *scopes; i++)
        assert_int_equal(
            harpe_tokens_add(&tokens, "a", HARPE_ROLE_JOB, scopes[i], -1, 0, &text, NULL),
            HARPE_INVALID_ARGUMENT);
    add(&tokens, long_name + 1, HARPE_ROLE_JOB, long_group + 1, &text);
    free(text);
    text = NULL;
    assert_int_equal(
        harpe_tokens_add(&tokens, long_name + 1, HARPE_ROLE_JOB, NULL, -1, 0, &text, NULL),
        HARPE_ALREADY_EXISTS);
    assert_null(text);
    harpe_tokens_free(&tokens);
}

TEST(a_scope_covers_its_groups_only) {
    assert_true(harpe_scope_covers(NULL, NULL, NULL));
    assert_true(harpe_scope_covers(NULL, NULL, "row1"));
    assert_false(harpe_scope_covers(NULL, "row1", NULL));
    assert_false(harpe_scope_covers(NULL, "row1", ""));
    assert_true(harpe_scope_covers(NULL, "row1", "row1"));
    assert_true(harpe_scope_covers(NULL, "a,row1,b", "row1"));
    assert_true(harpe_scope_covers(NULL, "a,row1", "row1"));
    assert_false(harpe_scope_covers(NULL, "row12", "row1"));
    assert_false(harpe_scope_covers(NULL, "row1", "row12"));
    assert_false(harpe_scope_covers(NULL, "a,b", "a,b"));
}

/* ---- Files ----------------------------------------------------------------------------------- */

static void path_in(char *path, size_t size, const char *directory) {
    (void)snprintf(path, size, "%s/tokens", directory);
}

static harpe_status add_named(void *user, harpe_tokens *tokens, harpe_error *error) {
    char *text = NULL;
    harpe_status status =
        harpe_tokens_add(tokens, user, HARPE_ROLE_VIEWER, NULL, -1, 1, &text, error);
    free(text);
    return status;
}

TEST(a_file_is_only_for_its_owner) {
    char directory[] = "/tmp/harpe-tokens-XXXXXX", path[100];
    assert_non_null(mkdtemp(directory));
    path_in(path, sizeof path, directory);
    mode_t mask = umask(0);
    assert_int_equal(harpe_tokens_file_change(path, "--tokens", add_named, "one", NULL), HARPE_OK);
    (void)umask(mask);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    static const mode_t loose[] = {0640, 0604, 0620, 0602, 0601, 0644, 0666};
    for (size_t i = 0; i < sizeof loose / sizeof *loose; i++) {
        harpe_tokens tokens = {0};
        harpe_error error;
        assert_int_equal(chmod(path, loose[i]), 0);
        assert_int_equal(harpe_tokens_file_read(path, "--tokens", &tokens, NULL, &error),
                         HARPE_PERMISSION_DENIED);
        assert_non_null(strstr(error.message, "chmod 600"));
        assert_int_equal(harpe_tokens_file_change(path, "--tokens", add_named, "two", NULL),
                         HARPE_PERMISSION_DENIED);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(directory), 0);
}

TEST(a_change_gives_another_stamp) {
    char directory[] = "/tmp/harpe-tokens-XXXXXX", path[100];
    assert_non_null(mkdtemp(directory));
    path_in(path, sizeof path, directory);
    harpe_tokens_stamp none = harpe_tokens_file_look(path), read;
    assert_int_equal(harpe_tokens_file_change(path, "--tokens", add_named, "one", NULL), HARPE_OK);
    harpe_tokens tokens = {0};
    assert_int_equal(harpe_tokens_file_read(path, "--tokens", &tokens, &read, NULL), HARPE_OK);
    harpe_tokens_free(&tokens);
    harpe_tokens_stamp now = harpe_tokens_file_look(path);
    assert_false(harpe_tokens_stamp_equal(&none, &now));
    assert_true(harpe_tokens_stamp_equal(&read, &now));
    assert_int_equal(harpe_tokens_file_change(path, "--tokens", add_named, "two", NULL), HARPE_OK);
    now = harpe_tokens_file_look(path);
    assert_false(harpe_tokens_stamp_equal(&read, &now));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(directory), 0);
}

TEST(no_change_is_lost) {
    enum { PROCESSES = 8, EACH = 5 };
    char directory[] = "/tmp/harpe-tokens-XXXXXX", path[100];
    assert_non_null(mkdtemp(directory));
    path_in(path, sizeof path, directory);
    for (int p = 0; p < PROCESSES; p++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child > 0) continue;
        for (int i = 0; i < EACH; i++) {
            char name[32];
            (void)snprintf(name, sizeof name, "t%d-%d", p, i);
            if (harpe_tokens_file_change(path, "--tokens", add_named, name, NULL)) _exit(1);
        }
        _exit(0);
    }
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    harpe_tokens tokens = {0};
    assert_int_equal(harpe_tokens_file_read(path, "--tokens", &tokens, NULL, NULL), HARPE_OK);
    assert_int_equal(tokens.count, PROCESSES * EACH);
    harpe_tokens_free(&tokens);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(directory), 0);
}
