/* SPDX-License-Identifier: Apache-2.0 */
/* A scratch directory for tests that use files. It is created before each test; after the test it
 * is checked and removed. Tests count its entries to prove that no file is left behind. */
#ifndef HARPE_TESTS_BASE_SCRATCH_H
#define HARPE_TESTS_BASE_SCRATCH_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct scratch {
    char root[64];
    char path[512]; /* the result of the last scratch_path() */
} scratch;

static inline int scratch_make(void **state) {
    scratch *s = calloc(1, sizeof *s);
    if (!s) return -1;
    strcpy(s->root, "/tmp/harpe-test-XXXXXX");
    if (!mkdtemp(s->root) || chmod(s->root, 0777) != 0) {
        free(s);
        return -1;
    }
    *state = s;
    return 0;
}

static inline int scratch_remove(void **state) {
    scratch *s = *state;
    char command[256];
    snprintf(command, sizeof command, "chmod -R u+rwx %s; rm -rf %s", s->root, s->root);
    int result = system(command);
    free(s);
    return result;
}

/* Returns a path that is valid until the next call. */
static inline const char *scratch_path(scratch *s, const char *name) {
    size_t length = strlen(s->root);
    memmove(s->path, s->root, length);
    snprintf(s->path + length, sizeof s->path - length, "/%s", name);
    return s->path;
}

static inline size_t entry_count(const char *directory) {
    DIR *stream = opendir(directory);
    size_t count = 0;
    if (!stream) return (size_t)-1;
    for (const struct dirent *entry; (entry = readdir(stream));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(stream);
    return count;
}

static inline bool path_exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

static inline void put_file(const char *path, const char *content) {
    FILE *file = fopen(path, "w");
    if (!file || fputs(content, file) < 0 || fclose(file) != 0) {
        perror(path);
        abort();
    }
}

static inline bool file_holds(const char *path, const char *content) {
    char got[4096] = "";
    FILE *file = fopen(path, "r");
    if (!file) return false;
    size_t length = fread(got, 1, sizeof got - 1, file);
    fclose(file);
    return length == strlen(content) && memcmp(got, content, length) == 0;
}

/* A test with a scratch directory. */
#define SCRATCH_TEST(name) TEST_ON(name, scratch *s, scratch_make, scratch_remove)

#endif
