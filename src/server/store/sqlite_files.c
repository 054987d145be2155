/* SPDX-License-Identifier: Apache-2.0 */
/* The files of an SQLite store: their names, the record of commits, whether the newest commits are
 * missing, and whether another program has changed the files. A server must not continue without
 * commits that it has acknowledged to its clients, so it refuses to start with such a store. */
#include "server/store/sqlite_internal.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "base/platform.h"
#include "base/process.h"
#include "base/text.h"

enum { LINKS_AT_MOST = 40 }; /* symbolic links in a row; the kernel has the same limit */

/* ---- The file system ------------------------------------------------------------------------- */

const harpe_store_files *harpe_store_files_elsewhere;

const harpe_store_files *harpe_store_files_of(const char *path) {
    const harpe_store_files *files = harpe_store_files_elsewhere;
    return files && files->vfs(path) ? files : NULL;
}

const char *harpe_store_vfs(const char *path) {
    return harpe_store_files_elsewhere ? harpe_store_files_elsewhere->vfs(path) : NULL;
}

static int look_at(const char *path, struct stat *info) {
    const harpe_store_files *files = harpe_store_files_of(path);
    if (files) return files->look(path, info);
    return stat(path, info) == 0 ? 0 : errno;
}

int harpe_store_create(const char *path) {
    const harpe_store_files *files = harpe_store_files_of(path);
    struct stat info;
    if (files) return files->look(path, &info) == 0 ? EEXIST : files->write(path, "", 0, false);
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0600);
    if (file < 0) return errno;
    (void)close(file);
    return 0;
}

void harpe_store_remove(const char *path) {
    const harpe_store_files *files = harpe_store_files_of(path);
    if (files)
        (void)files->remove(path);
    else
        (void)unlink(path);
}

int harpe_store_open_file(const char *path) {
    const harpe_store_files *files = harpe_store_files_of(path);
    int file = -1;
    if (!files) return open(path, O_RDONLY | O_CLOEXEC);
    errno = files->open(path, &file);
    return file;
}

int64_t harpe_store_free_bytes(const char *path) {
    const harpe_store_files *files = harpe_store_files_of(path);
    struct statvfs info;
    if (files) return files->free_bytes(path);
    if (statvfs(path, &info) != 0) return -1;
    return (int64_t)info.f_bavail * (int64_t)info.f_frsize;
}

/* ---- Names ----------------------------------------------------------------------------------- */

harpe_store_name harpe_store_beside(const char *path, const char *suffix) {
    harpe_store_name name;
    (void)snprintf(name.text, sizeof name.text, "%s%s", path, suffix);
    return name;
}

/* Replaces the symbolic link `name` by its target, as a path that this process can use. Returns
 * false if it is not a link. */
static bool follow(harpe_store_name *name) {
    char target[PATH_MAX];
    ssize_t length = readlink(name->text, target, sizeof target - 1);
    if (length <= 0) return false;
    target[length] = '\0';
    char *slash = *target == '/' ? NULL : strrchr(name->text, '/');
    size_t kept = slash ? (size_t)(slash + 1 - name->text) : 0;
    (void)snprintf(name->text + kept, sizeof name->text - kept, "%s", target);
    return true;
}

/* Returns `name` with all symbolic links in its directory resolved. The last part is not changed.
 */
static harpe_store_name with_real_directory(harpe_store_name name) {
    char directory[PATH_MAX];
    char *slash = strrchr(name.text, '/');
    *slash = '\0';
    bool is_found = realpath(slash == name.text ? "/" : name.text, directory) != NULL;
    *slash = '/';
    return is_found ? harpe_store_beside(directory, slash) : name;
}

/* Also follows a link to a file that does not exist yet, because SQLite makes the file there. */
harpe_store_name harpe_store_real_path(const char *path) {
    char real[PATH_MAX];
    if (harpe_store_files_of(path)) return harpe_store_beside(path, "");
    if (realpath(path, real)) return harpe_store_beside(real, "");
    harpe_store_name name = harpe_store_beside(strchr(path, '/') ? "" : "./", path);
    int links = 0;
    while (links < LINKS_AT_MOST && follow(&name))
        links++;
    return with_real_directory(name);
}

off_t harpe_store_size_of(const char *path, const char *suffix) {
    struct stat info;
    return look_at(harpe_store_beside(path, suffix).text, &info) == 0 ? info.st_size : 0;
}

/* Without this check, SQLite and the function that reads the record would wait for a pipe, or use a
 * device as a store. */
harpe_status harpe_store_check_kinds(const char *path, harpe_error *error) {
    static const char *const suffixes[] = {"", HARPE_STORE_LOG, HARPE_STORE_MEMORY,
                                           HARPE_STORE_JOURNAL, HARPE_STORE_COMMITS};
    if (harpe_store_files_of(path)) return HARPE_OK;
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        harpe_status status =
            harpe_file_check_regular(harpe_store_beside(path, suffixes[i]).text, error);
        if (status != HARPE_OK && status != HARPE_NOT_FOUND) return status;
    }
    return HARPE_OK;
}

void harpe_store_new_id(char id[HARPE_STORE_ID_SIZE]) {
    uint64_t number;
    if (!harpe_random_now(&number, sizeof number))
        number = (uint64_t)harpe_clock_ns() ^ ((uint64_t)harpe_process_self() << 40);
    (void)snprintf(id, HARPE_STORE_ID_SIZE, "%016" PRIx64, number);
}

/* ---- The record of commits ------------------------------------------------------------------- */

/* The length of the record, in bytes. It is always the same, and fits into one sector of a disk. */
enum { RECORD_SIZE = 96 };

static void format_record(const harpe_commit_record *record, char text[RECORD_SIZE]) {
    (void)snprintf(text, RECORD_SIZE,
                   "harpe-store 1\nid %.16s\ncommits %020" PRId64 "\nbase %020" PRId64 "\n",
                   record->id, record->commits, record->base);
}

/* Reads a line that consists of `head` and a number, and returns the text after it. Returns NULL if
 * `text` does not begin with such a line. */
static const char *parse_number(const char *text, const char *head, int64_t *value) {
    if (strncmp(text, head, strlen(head)) != 0) return NULL;
    text += strlen(head);
    size_t length = strspn(text, "0123456789");
    if (text[length] != '\n' || !harpe_parse_int(text, length, value)) return NULL;
    return text + length + 1;
}

static bool parse_record(const char *text, harpe_commit_record *out) {
    static const char head[] = "harpe-store 1\nid ";
    if (strncmp(text, head, strlen(head)) != 0) return false;
    text += strlen(head);
    size_t length = strspn(text, "0123456789abcdef");
    if (length == 0 || length >= sizeof out->id || text[length] != '\n') return false;
    memcpy(out->id, text, length);
    out->id[length] = '\0';
    text = parse_number(text + length + 1, "commits ", &out->commits);
    return text && parse_number(text, "base ", &out->base);
}

static harpe_status fail_elsewhere(const char *name, int failure, harpe_error *error) {
    return failure ? harpe_fail_errno(error, failure, "%s", name) : HARPE_OK;
}

/* Returns the text of the record, which the caller frees. */
static harpe_status read_record(const char *name, char **text, harpe_error *error) {
    const harpe_store_files *files = harpe_store_files_of(name);
    size_t length = 0;
    if (!files) return harpe_file_read_promptly(name, RECORD_SIZE, text, &length, error);
    *text = harpe_calloc(1, RECORD_SIZE + 1);
    if (!*text) return harpe_fail_memory(error);
    return fail_elsewhere(name, files->read(name, *text, RECORD_SIZE, &length), error);
}

static harpe_status write_record(const char *name, const char *text, harpe_error *error) {
    const harpe_store_files *files = harpe_store_files_of(name);
    if (files) return fail_elsewhere(name, files->write(name, text, strlen(text), true), error);
    harpe_status status = harpe_file_write(name, text, strlen(text), error);
    if (status == HARPE_OK && chmod(name, 0600) != 0)
        status = harpe_fail_errno(error, errno, "changing the mode of %s", name);
    return status;
}

harpe_status harpe_commit_record_read(const char *path, harpe_commit_record *out,
                                      harpe_error *error) {
    harpe_store_name name = harpe_store_beside(path, HARPE_STORE_COMMITS);
    char *text = NULL;
    harpe_status status = read_record(name.text, &text, error);
    bool is_other =
        status == HARPE_LIMIT_EXCEEDED || (status == HARPE_OK && !parse_record(text, out));
    if (is_other)
        status = harpe_fail(error, HARPE_INVALID_INPUT,
                            "%s: is not the record of a store's commits", name.text);
    free(text);
    return status;
}

harpe_status harpe_commit_record_make(const char *path, const harpe_commit_record *record,
                                      harpe_error *error) {
    char text[RECORD_SIZE];
    format_record(record, text);
    return write_record(harpe_store_beside(path, HARPE_STORE_COMMITS).text, text, error);
}

harpe_status harpe_commit_record_open(const char *path, int *file, harpe_error *error) {
    harpe_store_name name = harpe_store_beside(path, HARPE_STORE_COMMITS);
    *file = -1;
    if (harpe_store_files_of(path)) return HARPE_OK;
    *file = open(name.text, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    return *file < 0 ? harpe_fail_errno(error, errno, "%s", name.text) : HARPE_OK;
}

void harpe_commit_record_update(const char *path, int file, const harpe_commit_record *record) {
    const harpe_store_files *files = harpe_store_files_of(path);
    char text[RECORD_SIZE];
    format_record(record, text);
    ssize_t written;
    if (files)
        written = files->write(harpe_store_beside(path, HARPE_STORE_COMMITS).text, text,
                               strlen(text), false);
    else
        written = pwrite(file, text, strlen(text), 0);
    (void)written;
}

/* ---- Is it still the same file? -------------------------------------------------------------- */

static void read_header(const harpe_file_state *state, unsigned char header[]) {
    memset(header, 0, sizeof state->header); /* a shorter file fills only a part of it */
    if (state->file && state->file->pMethods)
        (void)state->file->pMethods->xRead(state->file, header, sizeof state->header, 0);
}

void harpe_file_state_note(harpe_file_state *state) {
    struct stat info;
    if (!state->path || look_at(state->path, &info) != 0) return;
    state->device = info.st_dev;
    state->inode = info.st_ino;
    state->size = info.st_size;
    state->modified = info.st_mtim;
    read_header(state, state->header);
}

/* Returns a text that describes how the file was changed or replaced. Returns NULL if it is
 * unchanged. A new time of modification alone (touch) does not matter. */
static const char *what_happened(const harpe_file_state *state) {
    struct stat info;
    unsigned char header[sizeof state->header];
    int failure = look_at(state->path, &info);
    if (failure) return failure == ENOENT ? "was deleted" : "cannot be reached";
    if (info.st_dev != state->device || info.st_ino != state->inode) return "was replaced";
    if (info.st_size < state->size) return "was truncated";
    if (info.st_size > state->size) return "was written by another program";
    if (info.st_mtim.tv_sec == state->modified.tv_sec &&
        info.st_mtim.tv_nsec == state->modified.tv_nsec)
        return NULL;
    read_header(state, header);
    return memcmp(header, state->header, sizeof header) == 0 ? NULL
                                                             : "was written by another program";
}

static harpe_status fail_state(const harpe_file_state *state, const char *happened,
                               harpe_error *error) {
    return harpe_fail(
        error, HARPE_IO_ERROR,
        "%.500s %s while the server has it open, so nothing is stored; save the state "
        "with harpe store backup, stop the server, and put the backup in place with "
        "harpe store restore",
        state->path, happened);
}

harpe_status harpe_file_state_check(const harpe_file_state *state, harpe_error *error) {
    const char *happened = state->path ? what_happened(state) : NULL;
    return happened ? fail_state(state, happened, error) : HARPE_OK;
}

harpe_status harpe_file_state_renew(harpe_file_state *state, harpe_error *error) {
    struct stat info;
    if (!state->path) return HARPE_OK;
    if (look_at(state->path, &info) != 0) return fail_state(state, "was deleted", error);
    if (info.st_dev != state->device || info.st_ino != state->inode)
        return fail_state(state, "was replaced", error);
    harpe_file_state_note(state);
    return HARPE_OK;
}

/* ---- Are commits missing? -------------------------------------------------------------------- */

/* Refuses to start a server with a store whose newest commits are missing. The server has
 * acknowledged these commits to its clients, so a server must not continue without them. */

#define REMEDY \
    "put a backup in its place with harpe store restore, or continue with the rest with harpe " \
    "store accept"

harpe_status harpe_sqlite_admit_files(const char *path, harpe_error *error) {
    harpe_commit_record record;
    if (harpe_store_size_of(path, "") > 0) return HARPE_OK;
    if (harpe_commit_record_read(path, &record, NULL) == HARPE_OK && record.commits > 0)
        return harpe_fail(
            error, HARPE_INVALID_INPUT,
            "%.400s: the database is gone: %.400s%s says that it had %lld commits; " REMEDY, path,
            path, HARPE_STORE_COMMITS, (long long)record.commits);
    if (harpe_store_size_of(path, HARPE_STORE_LOG) > 0)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%.400s: the database is gone, but its log %.400s%s is there; " REMEDY,
                          path, path, HARPE_STORE_LOG);
    return HARPE_OK;
}

harpe_status harpe_sqlite_read_record(const harpe_sqlite *store, harpe_commit_record *record,
                                      bool *in_use, harpe_error *error) {
    sqlite3_stmt *statement = NULL;
    harpe_status status =
        harpe_sqlite_prepare(store, "SELECT id, commits, in_use FROM store", &statement, error);
    if (status != HARPE_OK) return status;
    int result = sqlite3_step(statement);
    if (result == SQLITE_ROW) {
        const unsigned char *id = sqlite3_column_text(statement, 0);
        (void)snprintf(record->id, sizeof record->id, "%s", id ? (const char *)id : "");
        record->commits = sqlite3_column_int64(statement, 1);
        *in_use = sqlite3_column_int(statement, 2) != 0;
    } else {
        status = result == SQLITE_DONE
                     ? harpe_fail(error, HARPE_INVALID_INPUT,
                                  "%s: the record of its commits is missing", store->name)
                     : harpe_sqlite_fail(store, error);
    }
    sqlite3_finalize(statement);
    return status;
}

/* ---- Without the log ------------------------------------------------------------------------- */

int harpe_sqlite_open_unchanging(const char *path, sqlite3 **db) {
    harpe_text name = {0};
    harpe_text_printf(&name, "file:");
    for (const char *c = path; *c; c++)
        if (isalnum((unsigned char)*c) || strchr("/._-", *c))
            harpe_text_append(&name, c, 1);
        else
            harpe_text_printf(&name, "%%%02X", (unsigned)(unsigned char)*c);
    harpe_text_printf(&name, "?immutable=1");
    int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX;
    int result =
        name.failed ? SQLITE_NOMEM : sqlite3_open_v2(name.data, db, flags, harpe_store_vfs(path));
    harpe_text_free(&name);
    return result;
}

void harpe_sqlite_read_alone(harpe_sqlite *store) {
    const char *path = store->path.text;
    harpe_sqlite view = {0};
    bool in_use;
    if (harpe_store_size_of(path, "") == 0 || harpe_store_size_of(path, HARPE_STORE_LOG) == 0)
        return;
    store->has_alone = harpe_sqlite_open_unchanging(path, &view.db) == SQLITE_OK &&
                       harpe_sqlite_read_record(&view, &store->alone, &in_use, NULL) == HARPE_OK;
    (void)sqlite3_close(view.db);
}

bool harpe_sqlite_is_older_than_log(const harpe_sqlite *store, const harpe_commit_record *beside) {
    if (!store->has_alone || beside->base == 0) return false;
    return strcmp(store->alone.id, beside->id) != 0 || store->alone.commits < beside->base;
}

/* ---- With it --------------------------------------------------------------------------------- */

static harpe_status compare(const harpe_sqlite *store, const harpe_commit_record *here,
                            const harpe_commit_record *beside, harpe_error *error) {
    const char *path = store->path.text;
    if (beside->commits == 0) return HARPE_OK; /* such a record is not used */
    if (harpe_sqlite_is_older_than_log(store, beside))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%.400s: an older copy or another database was put in the place of the "
                          "one that the log %.400s%s belongs to; " REMEDY,
                          path, path, HARPE_STORE_LOG);
    if (strcmp(here->id, beside->id) != 0)
        return harpe_fail(
            error, HARPE_INVALID_INPUT,
            "%.400s: another database was put in the place of the one that %.400s%s is "
            "about; " REMEDY,
            path, path, HARPE_STORE_COMMITS);
    if (here->commits < beside->commits)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%.400s: the last %lld of %lld commits are missing: its log %.400s%s was "
                          "removed or damaged, or the file is an older copy; " REMEDY,
                          path, (long long)(beside->commits - here->commits),
                          (long long)beside->commits, path, HARPE_STORE_LOG);
    return HARPE_OK;
}

harpe_status harpe_sqlite_admit(harpe_sqlite *store, bool had_log, harpe_error *error) {
    harpe_commit_record here = {0}, beside;
    bool in_use = false;
    harpe_status status = harpe_sqlite_read_record(store, &here, &in_use, error);
    if (status != HARPE_OK) return status;
    store->record = here;
    status = harpe_commit_record_read(store->path.text, &beside, error);
    if (status == HARPE_OK) return compare(store, &here, &beside, error);
    if (status != HARPE_NOT_FOUND && status != HARPE_INVALID_INPUT) return status;
    if (in_use && !had_log)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%.400s: is a copy of a store that a server had open, without its log "
                          "%.400s%s, so the newest commits are missing; " REMEDY,
                          store->path.text, store->path.text, HARPE_STORE_LOG);
    return HARPE_OK;
}
