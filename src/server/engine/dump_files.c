/* SPDX-License-Identifier: Apache-2.0 */
/* The files of dumps. File processes make all calls on them, because the directory may be on a file
 * server that does not answer. This file has both sides: how the server passes an order, and how a
 * file process carries it out and keeps the bounds. It knows no job. */
#include "server/engine/engine_internal.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_processes.h"
#include "pfo/models.h"

/* ---- Bounds ---------------------------------------------------------------------------------- */

enum { JOB_BYTES = 256, DISK_BLOCK = 512, CLOCKS_APART_S = 3600 };

typedef struct dump_file {
    char *path; /* JOB/NAME */
    int64_t time_s, bytes;
} dump_file;

typedef struct dump_files {
    dump_file *items;
    size_t count, capacity;
} dump_files;

/* Returns true for the name of an incomplete file, which an earlier server has left. A temporary
 * file of harpe_file_write: .NAME.json.0123456789abcdef.tmp */
static bool dump_is_left_over(const char *name) {
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
    return is_of_round || is_of_job(name) || dump_is_left_over(name);
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

/* Removes the dumps of the jobs in `forgotten`, one id per line. Then removes files that are older
 * than `age_s`, and the oldest ones beyond `bytes`. `bytes` 0: removes only forgotten jobs. A file
 * counts with the space that it has on the disk. */
static void dump_bounds_keep(const char *path, const char *forgotten, int64_t bytes,
                             int64_t age_s) {
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

/* ---- Orders, in a file process --------------------------------------------------------------- */

/* The parts of the work are the order, its directory, its path and its text. */

enum { ORDER, DIRECTORY, PATH, TEXT, PART_COUNT };

static void clean_directory(const char *path) {
    DIR *directory = opendir(path);
    if (!directory) return;
    for (const struct dirent *entry; (entry = readdir(directory));)
        if (dump_is_left_over(entry->d_name)) (void)unlinkat(dirfd(directory), entry->d_name, 0);
    (void)closedir(directory);
}

/* Removes the file from the page cache. */
static void leave_cache(const char *path) {
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* it may be a pipe */
    if (file < 0) return;
    (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    (void)close(file);
}

static bool has_text(const harpe_dump_order *order) {
    char *text;
    size_t length;
    if (harpe_file_read_promptly(order->path, order->length, &text, &length, NULL)) return false;
    bool is_same = length == order->length && memcmp(text, order->text, length) == 0;
    free(text);
    return is_same;
}

static harpe_status write_file(const harpe_dump_order *order, harpe_error *error) {
    harpe_status status = (order->sweeps ? harpe_file_write : harpe_file_write_one_of_many)(
        order->path, order->text, order->length, error);
    if (status == HARPE_OK && order->leaves_cache) leave_cache(order->path);
    return status;
}

static harpe_status carry_out(const harpe_dump_order *order, harpe_dump_finding *finding,
                              harpe_error *error) {
    if (order->bounds && order->directory) {
        dump_bounds_keep(order->directory, order->text ? order->text : "", order->most_bytes,
                         order->most_age_s);
        return HARPE_OK;
    }
    if (order->directory && order->only_looks)
        finding->open_mode = harpe_open_mode(order->directory);
    int failure =
        order->directory && !order->only_looks ? harpe_make_directories(order->directory, 0700) : 0;
    if (failure)
        return harpe_fail_errno(error, failure, "cannot make directory %s", order->directory);
    if (order->directory && order->cleans) clean_directory(order->directory);
    if (!order->path) return HARPE_OK;
    bool writes = order->text && !order->only_looks;
    bool looks = !writes || order->unless_there || order->unless_same;
    finding->is_there = looks && access(order->path, F_OK) == 0;
    if (!writes) return HARPE_OK;
    bool is_done = finding->is_there && (order->unless_there || has_text(order));
    return is_done ? HARPE_OK : write_file(order, error);
}

harpe_status harpe_dump_files_work(const struct iovec *parts, size_t count, harpe_text *answer,
                                   harpe_error *error) {
    harpe_dump_order order;
    harpe_dump_finding finding = {0};
    if (count != PART_COUNT || parts[ORDER].iov_len != sizeof order)
        return harpe_fail(error, HARPE_INTERNAL, "an order of a dump has the wrong size");
    memcpy(&order, parts[ORDER].iov_base, sizeof order);
    /* The order has addresses of the server. */
    order.directory = order.directory ? parts[DIRECTORY].iov_base : NULL;
    order.path = order.path ? parts[PATH].iov_base : NULL;
    order.text = order.text ? parts[TEXT].iov_base : NULL;
    harpe_status status = carry_out(&order, &finding, error);
    harpe_text_append(answer, (const char *)&finding, sizeof finding);
    return status;
}

mode_t harpe_open_mode(const char *directory) {
    struct stat info;
    if (stat(directory, &info) != 0 || !S_ISDIR(info.st_mode)) return 0;
    return info.st_mode & 0077 ? info.st_mode & 07777 : 0;
}

/* ---- Orders, in the server ------------------------------------------------------------------- */

static struct iovec part_of(const char *text) {
    return (struct iovec){(void *)(text ? text : ""), text ? strlen(text) : 0};
}

harpe_status harpe_dump_files_do(harpe_file_processes *files, const harpe_dump_order *order,
                                 harpe_dump_finding *finding, harpe_error *error) {
    const char *subject = order->path ? order->path : order->directory;
    const struct iovec parts[PART_COUNT] = {
        [ORDER] = {(void *)order, sizeof *order},
        [DIRECTORY] = part_of(order->directory),
        [PATH] = part_of(order->path),
        [TEXT] = {(void *)(order->text ? order->text : ""), order->text ? order->length : 0},
    };
    harpe_text answer = {0};
    harpe_status status = harpe_file_processes_run(files, subject, harpe_dump_files_work, parts,
                                                   PART_COUNT, &answer, error);
    if (status == HARPE_OK && answer.length != sizeof *finding) status = harpe_fail_memory(error);
    if (status == HARPE_OK) memcpy(finding, answer.data, sizeof *finding);
    harpe_text_free(&answer);
    return status;
}
