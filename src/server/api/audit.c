/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads the audit log. Records that come while a worker writes are written together
 * afterwards, with one fsync. The file is opened for each write, so it may be renamed at any time.
 * Records of tokens without the role operator are limited. A file that is too long is
 * renamed to PATH.old. */
#include "server/api/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/credit.h"
#include "base/error.h"
#include "base/file_internal.h"
#include "base/log.h"
#include "base/text.h"
#include "server/engine/pools.h"

enum {
    TAIL_BYTES = 8 << 20,  /* of the file, that a reader looks at */
    FILE_BYTES = 64 << 20, /* the longest file */
    LATE_S = 5,            /* a write that takes longer makes the server refuse what steers */
};

typedef struct waiter {
    struct waiter *next;
    void (*done)(void *user);
    void *user;
} waiter;

typedef struct batch {
    harpe_text text;
    waiter *waiters;
} batch;

/* Limits of the records of one token: how many at once, and how many more in each second. DONE is
 * for requests that were carried out, REFUSED for refused requests. */
static const double DONE_MOST = 1000, DONE_PER_S = 1, REFUSED_MOST = 20, REFUSED_PER_S = 0.1;

/* The records of one token. */
typedef struct source {
    char *who; /* "": requests without a token */
    harpe_credit done, refused;
    int left_out; /* records since the last one that was written */
} source;

struct harpe_audit {
    harpe_workers *workers;
    const char *path;
    char *old_path; /* PATH.old */
    source *sources;
    size_t source_count, source_capacity;
    harpe_log log;
    batch waiting, writing;
    bool is_writing;
    int64_t begun_ns; /* when the write began */
    harpe_work work;
    harpe_status status; /* of the last write; a worker writes it */
    harpe_error error;
    bool has_failed;  /* the last write has failed */
    harpe_error told; /* why; a worker does not use it */
    bool is_late;     /* the log says that the present write takes long */
};

/* ---- How much a token may add ---------------------------------------------------------------- */

/* Returns NULL if memory runs out. */
static source *source_of(harpe_audit *audit, const char *who) {
    for (size_t i = 0; i < audit->source_count; i++)
        if (strcmp(audit->sources[i].who, who) == 0) return &audit->sources[i];
    if (!HARPE_ARRAY_RESERVE(audit->sources, audit->source_capacity, audit->source_count + 1))
        return NULL;
    source *added = &audit->sources[audit->source_count];
    *added = (source){.who = strdup(who)};
    if (!added->who) return NULL;
    audit->source_count++;
    return added;
}

/* An operator may do everything, so each of its changes has a record. A request whose client left
 * (499) may have changed something. */
static bool is_left_out(source *from, const harpe_audit_note *note, int http_status) {
    int64_t now_ns = harpe_clock_ns();
    if (http_status >= 400 && http_status < 499)
        return !harpe_credit_take(&from->refused, REFUSED_MOST, REFUSED_PER_S, now_ns);
    return !note->is_operator && !harpe_credit_take(&from->done, DONE_MOST, DONE_PER_S, now_ns);
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Appends the text. If the last write was cut off, begins a new line first. */
static int append_to(int file, const harpe_text *text) {
    struct stat info;
    char last = '\n';
    if (fstat(file, &info) != 0) return errno;
    if (info.st_size > 0 && pread(file, &last, 1, info.st_size - 1) != 1) return errno;
    int failure = last == '\n' ? 0 : harpe_write_all(file, "\n", 1);
    if (!failure) failure = harpe_write_all(file, text->data, text->length);
    if (!failure && fdatasync(file) != 0 && errno != EINVAL) failure = errno;
    return failure;
}

static int open_log(const char *path) {
    return open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
}

/* Opens the file for a text of this length. A long file is renamed first. If that is not possible,
 * it becomes longer, because the records are needed. */
static int open_with_room(const harpe_audit *audit, size_t length) {
    struct stat info;
    int file = open_log(audit->path);
    if (file < 0 || fstat(file, &info) != 0 || info.st_size == 0) return file;
    if (info.st_size + (off_t)length <= FILE_BYTES) return file;
    if (rename(audit->path, audit->old_path) != 0) return file;
    (void)close(file);
    return open_log(audit->path);
}

static void write_batch(void *user) {
    harpe_audit *audit = user;
    audit->status = HARPE_OK;
    int file = open_with_room(audit, audit->writing.text.length);
    int failure = file < 0 ? errno : append_to(file, &audit->writing.text);
    if (file >= 0 && close(file) != 0 && !failure) failure = errno;
    if (failure)
        audit->status = harpe_fail_errno(&audit->error, failure,
                                         "audit_log: cannot append to %.300s", audit->path);
}

/* Calls what waits for a batch, in any order, and empties the batch. */
static void finish(batch *done) {
    waiter *waiters = done->waiters;
    harpe_text_free(&done->text);
    *done = (batch){0};
    for (waiter *next; waiters; waiters = next) {
        next = waiters->next;
        waiters->done(waiters->user);
        free(waiters);
    }
}

static void begin_to_write(harpe_audit *audit);

static void is_written(void *user) {
    harpe_audit *audit = user;
    bool has_failed = audit->status != HARPE_OK;
    if (has_failed && !audit->has_failed)
        harpe_log_line(&audit->log, HARPE_LOG_ERROR,
                       "%s; requests that steer are refused until it can be written",
                       audit->error.message);
    if (!has_failed && audit->has_failed)
        harpe_log_line(&audit->log, HARPE_LOG_WARNING, "audit_log: %.300s can be written again",
                       audit->path);
    audit->has_failed = has_failed;
    if (has_failed) audit->told = audit->error;
    audit->is_writing = audit->is_late = false;
    batch written = audit->writing;
    audit->writing = (batch){0};
    begin_to_write(audit);
    finish(&written);
}

static void begin_to_write(harpe_audit *audit) {
    if (audit->is_writing || audit->waiting.text.length == 0) return;
    audit->is_writing = true;
    audit->begun_ns = harpe_clock_ns();
    audit->writing = audit->waiting;
    audit->waiting = (batch){0};
    audit->work = (harpe_work){.work = write_batch,
                               .done = is_written,
                               .user = audit,
                               .pool = HARPE_POOL_AUDIT,
                               .subject = audit->path};
    harpe_workers_submit(audit->workers, &audit->work);
}

/* Returns the "detail" of an answer, or NULL. */
static json_t *detail_of(int http_status, const char *answer, size_t length) {
    if (http_status == 200 || !answer) return NULL;
    json_t *value = json_loadb(answer, length, 0, NULL);
    json_t *detail = json_incref(json_object_get(value, "detail"));
    json_decref(value);
    return detail;
}

static char *record_of(const harpe_audit_note *note, int http_status, const char *answer,
                       size_t length, int left_out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    long ms = now.tv_nsec / 1000000;
    double at = (double)now.tv_sec + (double)ms / 1000;
    json_t *record = json_pack(
        "{s:f, s:s?, s:s?, s:s?, s:s, s:s?, s:i, s:o?}", "at", at, "who", note->who, "role",
        note->role, "address", *note->address ? note->address : NULL, "what", note->what, "request",
        note->body, "status", http_status, "detail", detail_of(http_status, answer, length));
    if (record && left_out > 0) json_object_set_new(record, "left_out", json_integer(left_out));
    char *text = record ? json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(record);
    return text;
}

/* Returns false if memory runs out. */
static bool wait_for(batch *waiting, void (*done)(void *user), void *user) {
    waiter *fresh = done ? malloc(sizeof *fresh) : NULL;
    if (!done) return true;
    if (!fresh) return false;
    *fresh = (waiter){.next = waiting->waiters, .done = done, .user = user};
    waiting->waiters = fresh;
    return true;
}

void harpe_audit_write(harpe_audit *audit, const harpe_audit_note *note, int http_status,
                       const char *answer, size_t length, void (*done)(void *user), void *user) {
    source *from = source_of(audit, note->who ? note->who : "");
    if (from && is_left_out(from, note, http_status)) {
        from->left_out++;
        if (done) done(user);
        return;
    }
    char *record = record_of(note, http_status, answer, length, from ? from->left_out : 0);
    size_t before = audit->waiting.text.length;
    if (record) harpe_text_printf(&audit->waiting.text, "%s\n", record);
    bool is_kept = record && !audit->waiting.text.failed;
    free(record);
    if (is_kept && wait_for(&audit->waiting, done, user)) {
        if (from) from->left_out = 0;
        begin_to_write(audit);
        return;
    }
    if (is_kept) audit->waiting.text.length = before;
    audit->waiting.text.failed = false;
    harpe_log_line(&audit->log, HARPE_LOG_ERROR, "audit_log: out of memory for a record of %.300s",
                   note->what);
    if (done) done(user);
}

bool harpe_audit_fault(harpe_audit *audit, char *line, size_t size) {
    int64_t writing_s =
        audit->is_writing ? (harpe_clock_ns() - audit->begun_ns) / INT64_C(1000000000) : 0;
    bool is_late = writing_s >= LATE_S;
    if (is_late)
        (void)snprintf(line, size,
                       "audit_log: %.300s does not answer: a record has waited for %lld s",
                       audit->path, (long long)writing_s);
    else if (audit->has_failed)
        (void)snprintf(line, size, "%s", audit->told.message);
    if (is_late && !audit->is_late)
        harpe_log_line(&audit->log, HARPE_LOG_ERROR,
                       "%s; requests that steer are refused until it is written", line);
    audit->is_late = is_late;
    return is_late || audit->has_failed;
}

/* ---- Reading --------------------------------------------------------------------------------- */

typedef struct reading {
    harpe_work work;
    const char *path, *old_path;
    int limit;
    void (*done)(void *user, char *json, const harpe_error *error);
    void *user;
    char *json;
    harpe_error error;
} reading;

/* Appends the last lines that are JSON objects, until the list has `limit` of them. */
static void take_lines(json_t *list, const char *text, size_t length, int limit) {
    while (length > 0 && json_array_size(list) < (size_t)limit) {
        size_t end = text[length - 1] == '\n' ? length - 1 : length;
        const char *before = memrchr(text, '\n', end);
        size_t begin = before ? (size_t)(before - text) + 1 : 0;
        json_t *record = json_loadb(text + begin, end - begin, 0, NULL);
        if (json_is_object(record))
            json_array_append_new(list, record);
        else
            json_decref(record);
        length = begin;
    }
}

/* Reads the end of a file that is open, and takes its lines. Returns 0 or an errno. */
static int take_tail(json_t *list, int file, off_t size, int limit) {
    size_t length = 0;
    char *tail = malloc(TAIL_BYTES);
    off_t from = size > TAIL_BYTES ? size - TAIL_BYTES : 0;
    ssize_t got = tail ? 1 : -1;
    while (got > 0 && length < TAIL_BYTES) {
        got = pread(file, tail + length, TAIL_BYTES - length, from + (off_t)length);
        if (got > 0) length += (size_t)got;
    }
    int failure = got < 0 ? errno : 0;
    if (!failure) take_lines(list, tail, length, limit);
    free(tail);
    return failure;
}

/* Takes the newest lines of the file and then those of the file before it. */
static int take_newest(const reading *self, json_t *list) {
    const char *const paths[] = {self->path, self->old_path};
    struct stat info = {0};
    ino_t seen = 0;
    int failure = 0;
    for (int i = 0; i < 2 && !failure && json_array_size(list) < (size_t)self->limit; i++) {
        int file = open(paths[i], O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (file < 0 && errno == ENOENT) continue;
        if (file < 0 || fstat(file, &info) != 0)
            failure = errno;
        else if (info.st_ino != seen) /* otherwise it was renamed after it was read */
            failure = take_tail(list, file, info.st_size, self->limit);
        seen = info.st_ino;
        if (file >= 0) (void)close(file);
    }
    return failure;
}

static void read_newest(void *user) {
    reading *self = user;
    json_t *list = json_array();
    int failure = list ? take_newest(self, list) : 0;
    if (list && !failure) self->json = json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(list);
    if (failure)
        (void)harpe_fail_errno(&self->error, failure, "audit_log: cannot read %.300s", self->path);
    else if (!self->json)
        (void)harpe_fail_memory(&self->error);
}

static void is_read(void *user) {
    reading *self = user;
    self->done(self->user, self->json, &self->error);
    free(self);
}

void harpe_audit_read(harpe_audit *audit, int limit,
                      void (*done)(void *user, char *json, const harpe_error *error), void *user) {
    reading *self = harpe_calloc(1, sizeof *self);
    if (!self) {
        harpe_error error;
        (void)harpe_fail_memory(&error);
        done(user, NULL, &error);
        return;
    }
    *self = (reading){.path = audit->path,
                      .old_path = audit->old_path,
                      .limit = limit,
                      .done = done,
                      .user = user};
    self->work =
        (harpe_work){.work = read_newest, .done = is_read, .user = self, .pool = HARPE_POOL_AUDIT};
    harpe_workers_submit(audit->workers, &self->work);
}

/* ---- Life ------------------------------------------------------------------------------------ */

harpe_audit *harpe_audit_new(harpe_workers *workers, const char *path, harpe_log log) {
    harpe_audit *audit = harpe_calloc(1, sizeof *audit);
    if (!audit) return NULL;
    *audit = (harpe_audit){.workers = workers, .path = path, .log = log};
    if (asprintf(&audit->old_path, "%s.old", path) >= 0) return audit;
    free(audit);
    return NULL;
}

void harpe_audit_free(harpe_audit *audit) {
    if (!audit) return;
    finish(&audit->writing);
    finish(&audit->waiting);
    for (size_t i = 0; i < audit->source_count; i++)
        free(audit->sources[i].who);
    free(audit->sources);
    free(audit->old_path);
    free(audit);
}
