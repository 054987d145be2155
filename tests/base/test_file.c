/* SPDX-License-Identifier: Apache-2.0 */
/* Single files: read whole within a limit; written whole or not at all, even if the disk is full,
 * the file is too large, or the directory is not writable. After every failure the old file must
 * still exist, without other files beside it. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/file.h"
#include "scratch.h"

enum { NOBODY = 65534, MANY = 1 << 20 };

SCRATCH_TEST(file_is_read_whole_and_terminated) {
    owned_array char *text;
    size_t length;
    put_file(scratch_path(s, "f"), "hello\n");
    assert_works(harpe_file_read(s->path, 6, &text, &length, &failure));
    assert_int_equal(length, 6);
    assert_string_equal(text, "hello\n");
}

SCRATCH_TEST(empty_file_is_an_empty_text) {
    owned_array char *text;
    size_t length;
    put_file(scratch_path(s, "f"), "");
    assert_works(harpe_file_read(s->path, 0, &text, &length, &failure));
    assert_int_equal(length, 0);
    assert_string_equal(text, "");
}

SCRATCH_TEST(file_over_the_limit_is_refused) {
    char *text = NULL;
    size_t length = 42;
    put_file(scratch_path(s, "f"), "hello\n");
    assert_refuses(harpe_file_read(s->path, 5, &text, &length, &failure), HARPE_LIMIT_EXCEEDED,
                   s->path);
    /* This file has no known size and no end. */
    assert_int_equal(harpe_file_read("/dev/zero", 100000, &text, &length, &failure),
                     HARPE_LIMIT_EXCEEDED);
    assert_null(text);
    assert_int_equal(length, 42);
}

TEST(file_without_a_known_size_is_read) {
    owned_array char *text;
    size_t length;
    assert_works(harpe_file_read("/proc/self/status", MANY, &text, &length, &failure));
    assert_true(length > 0);
    assert_memory_equal(text, "Name:", 5);
}

SCRATCH_TEST(pipe_is_read_to_its_end) {
    char command[600];
    owned_array char *text;
    size_t length;
    assert_int_equal(mkfifo(scratch_path(s, "pipe"), 0600), 0);
    snprintf(command, sizeof command, "(head -c 100000 /dev/zero | tr '\\0' x >%s) &", s->path);
    assert_int_equal(system(command), 0);
    assert_works(harpe_file_read(s->path, MANY, &text, &length, &failure));
    assert_int_equal(length, 100000);
    assert_int_equal(text[99999], 'x');
}

SCRATCH_TEST(what_cannot_be_read_is_named) {
    char *text;
    size_t length;
    assert_refuses(harpe_file_read(scratch_path(s, "missing"), 10, &text, &length, &failure),
                   HARPE_NOT_FOUND, "missing: No such file or directory");
    assert_refuses(harpe_file_read(s->root, 10, &text, &length, &failure), HARPE_INVALID_ARGUMENT,
                   "Is a directory");
    put_file(scratch_path(s, "f"), "x");
    assert_int_equal(harpe_file_read(scratch_path(s, "f/g"), 10, &text, &length, &failure),
                     HARPE_NOT_FOUND);
}

SCRATCH_TEST(unreadable_file_is_permission_denied) {
    char *text;
    size_t length;
    put_file(scratch_path(s, "f"), "secret");
    assert_int_equal(chmod(s->path, 0), 0);
    bool was_root = geteuid() == 0;
    assert_true(!was_root || seteuid(NOBODY) == 0);
    harpe_status status = harpe_file_read(s->path, 10, &text, &length, NULL);
    assert_true(!was_root || seteuid(0) == 0);
    assert_int_equal(status, HARPE_PERMISSION_DENIED);
}

SCRATCH_TEST(file_is_created_and_replaced) {
    assert_works(harpe_file_write(scratch_path(s, "f"), "one", 3, &failure));
    assert_true(file_holds(s->path, "one"));
    assert_works(harpe_file_write(s->path, "two!", 4, &failure));
    assert_true(file_holds(s->path, "two!"));
    assert_works(harpe_file_write(s->path, NULL, 0, &failure));
    assert_true(file_holds(s->path, ""));
    assert_int_equal(entry_count(s->root), 1);
}

SCRATCH_TEST(relative_path_is_written) {
    char *before = getcwd(NULL, 0);
    assert_int_equal(chdir(s->root), 0);
    harpe_status status = harpe_file_write("f", "one", 3, NULL);
    bool is_there = file_holds("f", "one");
    assert_int_equal(chdir(before), 0);
    free(before);
    assert_int_equal(status, HARPE_OK);
    assert_true(is_there);
}

SCRATCH_TEST(new_file_follows_umask_and_old_one_keeps_its_mode) {
    struct stat info;
    mode_t before = umask(027);
    harpe_status status = harpe_file_write(scratch_path(s, "f"), "one", 3, NULL);
    umask(before);
    assert_int_equal(status, HARPE_OK);
    assert_int_equal(stat(s->path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    assert_int_equal(chmod(s->path, 0606), 0);
    assert_works(harpe_file_write(s->path, "two", 3, &failure));
    assert_int_equal(stat(s->path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0606);
}

SCRATCH_TEST(symbolic_link_stays_one) {
    char target[512];
    struct stat info;
    snprintf(target, sizeof target, "%s", scratch_path(s, "target"));
    put_file(target, "old");
    assert_int_equal(symlink("target", scratch_path(s, "link")), 0);
    assert_works(harpe_file_write(s->path, "new", 3, &failure));
    assert_int_equal(lstat(s->path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_true(file_holds(target, "new"));
}

SCRATCH_TEST(longest_file_name_can_be_written) {
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    assert_works(harpe_file_write(scratch_path(s, name), "x", 1, &failure));
    assert_true(file_holds(s->path, "x"));
}

TEST(full_disk_is_told) {
    harpe_error error;
    assert_int_equal(harpe_file_write("/dev/full", "x", 1, &error), HARPE_IO_ERROR);
    assert_string_equal(error.message, "/dev/full: No space left on device");
    assert_int_equal(error.vendor_code, ENOSPC);
    assert_int_equal(harpe_file_write("/dev/null", "x", 1, &error), HARPE_OK);
}

/* Simulates a disk that fills up: writing fails after the first `bytes`. */
static void limit_file_size(rlim_t bytes, struct rlimit *before) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, before), 0);
    limit = *before;
    limit.rlim_cur = bytes;
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

SCRATCH_TEST(failed_write_leaves_the_old_file_and_nothing_else) {
    struct rlimit before;
    char *data = calloc(1, MANY);
    put_file(scratch_path(s, "f"), "old");
    limit_file_size(10000, &before);
    harpe_status status = harpe_file_write(s->path, data, MANY, &failure);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    free(data);
    assert_int_equal(status, HARPE_IO_ERROR);
    assert_says(&failure, "File too large");
    assert_true(file_holds(s->path, "old"));
    assert_int_equal(entry_count(s->root), 1);
}

SCRATCH_TEST(places_that_cannot_be_written_are_named) {
    assert_refuses(harpe_file_write(scratch_path(s, "no/f"), "x", 1, &failure), HARPE_NOT_FOUND,
                   "no/f: No such file or directory");
    assert_int_equal(harpe_file_write(s->root, "x", 1, &failure), HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_file_write("", "x", 1, &failure), HARPE_NOT_FOUND);
    assert_int_equal(entry_count(s->root), 0);
}

SCRATCH_TEST(closed_directory_is_permission_denied) {
    assert_int_equal(mkdir(scratch_path(s, "closed"), 0755), 0);
    assert_int_equal(chmod(s->path, 0555), 0);
    scratch_path(s, "closed/f");
    bool was_root = geteuid() == 0;
    assert_true(!was_root || seteuid(NOBODY) == 0);
    harpe_status status = harpe_file_write(s->path, "x", 1, NULL);
    assert_true(!was_root || seteuid(0) == 0);
    assert_int_equal(status, HARPE_PERMISSION_DENIED);
}
