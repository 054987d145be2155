/* SPDX-License-Identifier: Apache-2.0 */
/* Directories that appear whole: they are invisible until committed, are gone after an abort,
 * replace an old directory in one step, and never replace a directory that Harpe has not created.
 */
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/file.h"
#include "scratch.h"

enum { NOBODY = 65534 };

static harpe_directory open_at(const char *path, bool replaces) {
    harpe_directory directory;
    assert_works(harpe_directory_open(&directory, path, replaces, &failure));
    return directory;
}

static void write_one(harpe_directory *directory, const char *name, const char *content) {
    assert_works(harpe_directory_write(directory, name, content, strlen(content), &failure));
}

SCRATCH_TEST(directory_appears_only_when_committed) {
    harpe_directory directory = open_at(scratch_path(s, "out"), false);
    write_one(&directory, "a", "first");
    write_one(&directory, "b", "second");
    write_one(&directory, "a", "1");
    assert_false(path_exists(s->path));
    assert_works(harpe_directory_commit(&directory, &failure));
    assert_null(directory.temporary_path);
    assert_true(file_holds(scratch_path(s, "out/a"), "1"));
    assert_true(file_holds(scratch_path(s, "out/b"), "second"));
    assert_int_equal(entry_count(scratch_path(s, "out")), 2);
    assert_int_equal(entry_count(s->root), 1);
    harpe_directory_abort(&directory); /* nothing is left to abort */
    assert_int_equal(entry_count(s->root), 1);
}

SCRATCH_TEST(empty_directory_can_be_committed) {
    struct stat info;
    mode_t before = umask(022);
    harpe_directory directory = open_at(scratch_path(s, "out///"), false);
    umask(before);
    assert_works(harpe_directory_commit(&directory, &failure));
    assert_int_equal(stat(scratch_path(s, "out"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0755);
}

SCRATCH_TEST(abort_leaves_nothing) {
    harpe_directory directory = open_at(scratch_path(s, "a/b/out"), false);
    write_one(&directory, "f", "x");
    assert_true(path_exists(scratch_path(s, "a/b")));
    harpe_directory_abort(&directory);
    assert_int_equal(entry_count(s->root), 0);
    harpe_directory_abort(&directory);
}

SCRATCH_TEST(abort_keeps_parents_that_others_use) {
    harpe_directory directory = open_at(scratch_path(s, "a/b/out"), false);
    put_file(scratch_path(s, "a/other"), "x");
    harpe_directory_abort(&directory);
    assert_false(path_exists(scratch_path(s, "a/b")));
    assert_true(path_exists(scratch_path(s, "a/other")));
}

TEST(struct_that_was_never_opened_can_be_aborted) {
    harpe_directory directory = {0};
    harpe_directory_abort(&directory);
    assert_int_equal(harpe_directory_commit(&directory, NULL), HARPE_INTERNAL);
}

SCRATCH_TEST(missing_parents_are_created) {
    harpe_directory directory = open_at(scratch_path(s, "a//b/out"), false);
    assert_works(harpe_directory_commit(&directory, &failure));
    assert_true(path_exists(scratch_path(s, "a/b/out")));
}

SCRATCH_TEST(existing_directory_is_refused_unless_told) {
    harpe_directory directory = {0};
    assert_int_equal(mkdir(scratch_path(s, "out"), 0755), 0);
    assert_refuses(harpe_directory_open(&directory, s->path, false, &failure), HARPE_ALREADY_EXISTS,
                   "out: already exists");
    assert_null(directory.temporary_path);
    assert_int_equal(entry_count(s->root), 1);
}

SCRATCH_TEST(existing_directory_is_replaced_when_told) {
    assert_int_equal(mkdir(scratch_path(s, "out"), 0755), 0);
    put_file(scratch_path(s, "out/old"), "old");
    harpe_directory directory = open_at(scratch_path(s, "out"), true);
    write_one(&directory, "new", "new");
    assert_true(file_holds(scratch_path(s, "out/old"), "old"));
    assert_works(harpe_directory_commit(&directory, &failure));
    assert_true(file_holds(scratch_path(s, "out/new"), "new"));
    assert_false(path_exists(scratch_path(s, "out/old")));
    assert_int_equal(entry_count(s->root), 1);
}

SCRATCH_TEST(aborted_replacement_keeps_the_old_directory) {
    assert_int_equal(mkdir(scratch_path(s, "out"), 0755), 0);
    put_file(scratch_path(s, "out/old"), "old");
    harpe_directory directory = open_at(scratch_path(s, "out"), true);
    write_one(&directory, "new", "new");
    harpe_directory_abort(&directory);
    assert_true(file_holds(scratch_path(s, "out/old"), "old"));
    assert_int_equal(entry_count(s->root), 1);
}

SCRATCH_TEST(link_to_a_directory_stays_one) {
    struct stat info;
    assert_int_equal(mkdir(scratch_path(s, "real"), 0755), 0);
    assert_int_equal(symlink("real", scratch_path(s, "out")), 0);
    harpe_directory directory = open_at(s->path, true);
    write_one(&directory, "f", "x");
    assert_works(harpe_directory_commit(&directory, &failure));
    assert_int_equal(lstat(scratch_path(s, "out"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_true(file_holds(scratch_path(s, "real/f"), "x"));
}

SCRATCH_TEST(what_is_no_directory_is_never_replaced) {
    harpe_directory directory;
    put_file(scratch_path(s, "out"), "precious");
    assert_refuses(harpe_directory_open(&directory, s->path, true, &failure), HARPE_ALREADY_EXISTS,
                   "not a directory");
    assert_true(file_holds(s->path, "precious"));
    assert_int_equal(harpe_directory_open(&directory, scratch_path(s, "out/sub"), true, &failure),
                     HARPE_NOT_FOUND);
    assert_int_equal(entry_count(s->root), 1);
}

SCRATCH_TEST(directory_with_directories_is_never_replaced) {
    harpe_directory directory;
    assert_int_equal(mkdir(scratch_path(s, "home"), 0755), 0);
    assert_int_equal(mkdir(scratch_path(s, "home/thesis"), 0755), 0);
    assert_refuses(harpe_directory_open(&directory, scratch_path(s, "home"), true, &failure),
                   HARPE_ALREADY_EXISTS, "contains a directory, thesis");
    assert_int_equal(entry_count(s->root), 1);
}

SCRATCH_TEST(what_appears_meanwhile_is_not_overwritten) {
    harpe_directory directory = open_at(scratch_path(s, "out"), false);
    write_one(&directory, "f", "ours");
    assert_int_equal(mkdir(scratch_path(s, "out"), 0755), 0);
    assert_int_equal(harpe_directory_commit(&directory, &failure), HARPE_ALREADY_EXISTS);
    harpe_directory_abort(&directory);
    assert_int_equal(entry_count(scratch_path(s, "out")), 0);
    assert_int_equal(entry_count(s->root), 1);
}

TEST(paths_that_name_no_directory_are_refused) {
    harpe_directory directory = {0};
    assert_int_equal(harpe_directory_open(&directory, "", true, &failure), HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_directory_open(&directory, "/", true, &failure), HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_directory_open(&directory, "not-there/..", true, &failure),
                     HARPE_INVALID_ARGUMENT);
    assert_null(directory.temporary_path);
}

SCRATCH_TEST(names_with_a_slash_are_refused) {
    const char *bad[] = {"", ".", "..", "a/b", "../x", "/x"};
    harpe_directory directory = open_at(scratch_path(s, "out"), false);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(harpe_directory_write(&directory, bad[i], "x", 1, NULL),
                         HARPE_INVALID_ARGUMENT);
    }
    harpe_directory_abort(&directory);
    assert_int_equal(entry_count(s->root), 0);
}

SCRATCH_TEST(files_written_by_name_are_part_of_it) {
    harpe_directory directory = open_at(scratch_path(s, "out"), false);
    char *path = harpe_directory_path(&directory, "picture.svg");
    put_file(path, "<svg/>");
    free(path);
    assert_works(harpe_directory_commit(&directory, &failure));
    assert_true(file_holds(scratch_path(s, "out/picture.svg"), "<svg/>"));
}

SCRATCH_TEST(full_disk_names_the_final_file_and_leaves_nothing) {
    struct rlimit before;
    char *data = calloc(1, 100000);
    harpe_directory directory = open_at(scratch_path(s, "out"), false);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit limit = {.rlim_cur = 10000, .rlim_max = before.rlim_max};
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    harpe_status status = harpe_directory_write(&directory, "plan.py", data, 100000, &failure);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    free(data);
    assert_int_equal(status, HARPE_IO_ERROR);
    assert_says(&failure, "out/plan.py: File too large");
    harpe_directory_abort(&directory);
    assert_int_equal(entry_count(s->root), 0);
}

SCRATCH_TEST(closed_parent_is_permission_denied) {
    harpe_directory directory;
    assert_int_equal(mkdir(scratch_path(s, "closed"), 0755), 0);
    assert_int_equal(chmod(s->path, 0555), 0);
    scratch_path(s, "closed/a/out");
    bool was_root = geteuid() == 0;
    assert_true(!was_root || seteuid(NOBODY) == 0);
    harpe_status status = harpe_directory_open(&directory, s->path, false, NULL);
    assert_true(!was_root || seteuid(0) == 0);
    assert_int_equal(status, HARPE_PERMISSION_DENIED);
}

SCRATCH_TEST(relative_path_is_created) {
    harpe_directory directory;
    char *before = getcwd(NULL, 0);
    assert_int_equal(chdir(s->root), 0);
    harpe_status status = harpe_directory_open(&directory, "out", false, NULL);
    if (status == HARPE_OK) status = harpe_directory_commit(&directory, NULL);
    assert_int_equal(chdir(before), 0);
    free(before);
    assert_int_equal(status, HARPE_OK);
    assert_true(path_exists(scratch_path(s, "out")));
}

/* ---- Rests of killed processes --------------------------------------------------------------- */

/* A child creates a directory and is killed meanwhile. */
static void die_while_making(const char *path) {
    pid_t child = fork();
    if (child == 0) {
        harpe_directory directory;
        if (harpe_directory_open(&directory, path, true, NULL) == HARPE_OK)
            (void)harpe_directory_write(&directory, "a", "1", 1, NULL);
        (void)raise(SIGKILL);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

SCRATCH_TEST(next_one_removes_what_a_killed_one_left) {
    die_while_making(scratch_path(s, "out"));
    die_while_making(scratch_path(s, "other"));
    assert_int_equal(entry_count(s->root), 2);
    harpe_directory directory = open_at(scratch_path(s, "out"), false);
    assert_works(harpe_directory_commit(&directory, &failure));
    assert_true(path_exists(scratch_path(s, "out")));
    assert_int_equal(entry_count(s->root), 2); /* "out", and what is left of "other" */
    assert_works(harpe_file_write(scratch_path(s, "other"), "x", 1, &failure));
    assert_int_equal(entry_count(s->root), 2);
}

SCRATCH_TEST(one_that_is_being_made_is_left_alone) {
    harpe_directory first, second;
    assert_works(harpe_directory_open(&first, scratch_path(s, "out"), true, &failure));
    write_one(&first, "a", "first");
    assert_works(harpe_directory_open(&second, scratch_path(s, "out"), true, &failure));
    write_one(&second, "a", "second");
    assert_works(harpe_directory_commit(&second, &failure));
    assert_works(harpe_directory_commit(&first, &failure));
    assert_true(file_holds(scratch_path(s, "out/a"), "first"));
    assert_int_equal(entry_count(s->root), 1);
}

SCRATCH_TEST(what_only_looks_like_it_is_left_alone) {
    static const char *const names[] = {
        ".out.0123456789abcdef.tmp.old", ".out.0123456789ABCDEF.tmp",   ".out.0123.tmp",
        "out.0123456789abcdef.tmp",      ".outer.0123456789abcdef.tmp", ".out.tmp"};
    size_t count = sizeof names / sizeof names[0];
    for (size_t i = 0; i < count; i++)
        assert_int_equal(mkdir(scratch_path(s, names[i]), 0777), 0);
    /* A directory that contains a directory is not one of Harpe's. */
    assert_int_equal(mkdir(scratch_path(s, ".out.0123456789abcdef.tmp"), 0777), 0);
    assert_int_equal(mkdir(scratch_path(s, ".out.0123456789abcdef.tmp/dear"), 0777), 0);
    /* A link is not followed. */
    assert_int_equal(symlink(".out.tmp", scratch_path(s, ".out.aaaaaaaaaaaaaaaa.tmp")), 0);
    assert_works(harpe_file_write(scratch_path(s, "out"), "x", 1, &failure));
    assert_int_equal(entry_count(s->root), (int)count + 3);
}

SCRATCH_TEST(many_at_once_all_succeed) {
    enum { CHILDREN = 8, TIMES = 60 };
    pid_t children[CHILDREN];
    for (int c = 0; c < CHILDREN; c++) {
        children[c] = fork();
        assert_true(children[c] >= 0);
        if (children[c] > 0) continue;
        int failures = 0;
        for (int i = 0; i < TIMES; i++) {
            harpe_directory directory;
            if (harpe_file_write(scratch_path(s, "file"), "x", 1, &failure) != HARPE_OK) {
                print_error("%s\n", failure.message);
                failures++;
            }
            if (harpe_directory_open(&directory, scratch_path(s, "out"), true, &failure) ||
                harpe_directory_write(&directory, "a", "1", 1, &failure) ||
                harpe_directory_commit(&directory, &failure)) {
                print_error("%s\n", failure.message);
                failures++;
                harpe_directory_abort(&directory);
            }
        }
        _exit(failures);
    }
    for (int c = 0; c < CHILDREN; c++) {
        int ended;
        assert_int_equal(waitpid(children[c], &ended, 0), children[c]);
        assert_true(WIFEXITED(ended));
        assert_int_equal(WEXITSTATUS(ended), 0);
    }
    assert_int_equal(entry_count(s->root), 2);
}
