/* SPDX-License-Identifier: Apache-2.0 */
/* Both sides of the work on files of dumps: how the server passes an order, and how a file process
 * carries it out. The parts of the work are the order, its directory, its path and its text. */
#include "server/engine/dump_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "server/engine/dump_bounds.h"

enum { ORDER, DIRECTORY, PATH, TEXT, PART_COUNT };

/* ---- In a file process ----------------------------------------------------------------------- */

static void clean_directory(const char *path) {
    DIR *directory = opendir(path);
    if (!directory) return;
    for (const struct dirent *entry; (entry = readdir(directory));)
        if (harpe_dump_is_left_over(entry->d_name))
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
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
    if (order->bounds) {
        harpe_dump_bounds_keep(order->directory, order->text ? order->text : "", order->most_bytes,
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

/* ---- In the server --------------------------------------------------------------------------- */

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
