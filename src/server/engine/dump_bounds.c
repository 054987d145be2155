/* SPDX-License-Identifier: Apache-2.0 */
/* How a file process keeps the bounds on dumps. */
#include "server/engine/dump_bounds.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "pfo/metadata.h"

enum { JOB_BYTES = 256, DISK_BLOCK = 512, CLOCKS_APART_S = 3600 };

typedef struct dump_file {
    char *path; /* JOB/NAME */
    int64_t time_s, bytes;
} dump_file;

typedef struct dump_files {
    dump_file *items;
    size_t count, capacity;
} dump_files;

/* A temporary file of harpe_file_write: .NAME.json.0123456789abcdef.tmp */
bool harpe_dump_is_left_over(const char *name) {
    size_t length = strlen(name);
    const size_t tail = strlen(".json.0123456789abcdef.tmp");
    if (name[0] != '.' || length <= tail || strcmp(name + length - 4, ".tmp") != 0) return false;
    if (strncmp(name + length - tail, ".json.", 6) != 0) return false;
    for (const char *tag = name + length - 20; tag < name + length - 4; tag++)
        if (!isxdigit((unsigned char)*tag)) return false;
    return true;
}

/* Returns true for ranks.json and profile.csv, which stay as long as the newest file of their job.
 */
static bool is_of_job(const char *name) {
    return strcmp(name, "ranks.json") == 0 || strcmp(name, "profile.csv") == 0;
}

/* Returns true for names of files that the server writes. */
static bool is_dump(const char *name) {
    size_t digits = strspn(name, "0123456789");
    const char *rest = name + digits;
    bool is_of_round =
        digits > 0 && (strcmp(rest, ".sched.json") == 0 || strcmp(rest, ".prof.json") == 0);
    return is_of_round || is_of_job(name) || harpe_dump_is_left_over(name);
}

/* A time in the future is of a clock that was ahead. It counts as the oldest, so that these files
 * do not take the room of new ones. */
static int64_t time_of(const struct stat *info) {
    return info->st_mtime > harpe_clock_wall_whole_s() + CLOCKS_APART_S ? 0 : info->st_mtime;
}

static void add_file(dump_files *files, const char *job, const char *name,
                     const struct stat *info) {
    dump_file file = {.time_s = time_of(info), .bytes = (int64_t)info->st_blocks * DISK_BLOCK};
    if (!HARPE_ARRAY_RESERVE(files->items, files->capacity, files->count + 1)) return;
    if (asprintf(&file.path, "%s/%s", job, name) < 0) return;
    files->items[files->count++] = file;
}

/* Adds the dumps of one job. */
static void list_job(int directory, const char *job, dump_files *files) {
    int opened = openat(directory, job, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = opened < 0 ? NULL : fdopendir(opened);
    if (!entries) {
        if (opened >= 0) (void)close(opened);
        return;
    }
    size_t first = files->count;
    int64_t newest_s = 0;
    for (const struct dirent *entry; (entry = readdir(entries));) {
        struct stat info;
        if (!is_dump(entry->d_name) ||
            fstatat(opened, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(info.st_mode))
            continue;
        add_file(files, job, entry->d_name, &info);
        if (time_of(&info) > newest_s) newest_s = time_of(&info);
    }
    (void)closedir(entries);
    for (size_t i = first; i < files->count; i++)
        if (is_of_job(strchr(files->items[i].path, '/') + 1)) files->items[i].time_s = newest_s;
}

/* Removes a file, and its job's directory if nothing is left in it. */
static void remove_file(int directory, dump_file *file) {
    (void)unlinkat(directory, file->path, 0);
    *strchr(file->path, '/') = '\0';
    (void)unlinkat(directory, file->path, AT_REMOVEDIR);
}

static void free_files(dump_files *files) {
    for (size_t i = 0; i < files->count; i++)
        free(files->items[i].path);
    free(files->items);
}

static void remove_job(int directory, const char *job) {
    dump_files files = {0};
    if (!harpe_job_id_is_valid(job)) return;
    list_job(directory, job, &files);
    for (size_t i = 0; i < files.count; i++)
        remove_file(directory, &files.items[i]);
    free_files(&files);
}

/* The newest first, and files of a job before those of its rounds. */
static int by_age(const void *left, const void *right) {
    const dump_file *a = left, *b = right;
    if (a->time_s != b->time_s) return a->time_s > b->time_s ? -1 : 1;
    return is_of_job(strchr(b->path, '/') + 1) - is_of_job(strchr(a->path, '/') + 1);
}

/* If no file was written for longer than `age_s`, the wall clock may have jumped. Then no file from
 * before is too old. */
static void keep_bounds(int directory, dump_files *files, int64_t bytes, int64_t age_s) {
    int64_t now_s = harpe_clock_wall_whole_s(), later_s = now_s, sum = 0;
    bool trusts_clock = true;
    if (files->count > 0) qsort(files->items, files->count, sizeof *files->items, by_age);
    for (size_t i = 0; i < files->count; i++) {
        dump_file *file = &files->items[i];
        trusts_clock = trusts_clock && later_s - file->time_s <= age_s;
        later_s = file->time_s;
        sum += file->bytes;
        if (sum > bytes || (trusts_clock && now_s - file->time_s > age_s))
            remove_file(directory, file);
    }
}

void harpe_dump_bounds_keep(const char *path, const char *forgotten, int64_t bytes, int64_t age_s) {
    DIR *jobs = opendir(path);
    if (!jobs) return;
    int directory = dirfd(jobs);
    char job[JOB_BYTES];
    for (const char *line = forgotten; *line; line += strspn(line, "\n")) {
        size_t length = strcspn(line, "\n");
        (void)snprintf(job, sizeof job, "%.*s", (int)length, line);
        if (length < sizeof job) remove_job(directory, job);
        line += length;
    }
    dump_files files = {0};
    for (const struct dirent *entry; bytes > 0 && (entry = readdir(jobs));)
        if (harpe_job_id_is_valid(entry->d_name)) list_job(directory, entry->d_name, &files);
    keep_bounds(directory, &files, bytes, age_s);
    free_files(&files);
    (void)closedir(jobs);
}
