/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads the audit log. Records that come while a worker writes are written together
 * afterwards, with one fsync. The file is opened for each write, so it may be renamed at any time.
 */
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
#include "base/error.h"
#include "base/file_internal.h"
#include "base/log.h"
#include "base/text.h"
#include "server/engine/pools.h"

enum {
    TAIL_BYTES = 8 << 20, /* of the file, that a reader looks at */
    LATE_S = 5,           /* a write that takes longer makes the server refuse what steers */
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

struct harpe_audit {
    harpe_workers *workers;
    const char *path;
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

static void write_batch(void *user) {
    harpe_audit *audit = user;
    audit->status = HARPE_OK;
    int file =
        open(audit->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
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
                       size_t length) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    long ms = now.tv_nsec / 1000000;
    double at = (double)now.tv_sec + (double)ms / 1000;
    json_t *record = json_pack(
        "{s:f, s:s?, s:s?, s:s?, s:s, s:s?, s:i, s:o?}", "at", at, "who", note->who, "role",
        note->role, "address", *note->address ? note->address : NULL, "what", note->what, "request",
        note->body, "status", http_status, "detail", detail_of(http_status, answer, length));
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
    char *record = record_of(note, http_status, answer, length);
    size_t before = audit->waiting.text.length;
    if (record) harpe_text_printf(&audit->waiting.text, "%s\n", record);
    bool is_kept = record && !audit->waiting.text.failed;
    free(record);
    if (is_kept && wait_for(&audit->waiting, done, user)) {
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
    const char *path;
    int limit;
    void (*done)(void *user, char *json, const harpe_error *error);
    void *user;
    char *json;
    harpe_error error;
} reading;

/* Makes a list of the last `limit` lines that are JSON objects. */
static char *list_of(const char *text, size_t length, int limit) {
    json_t *list = json_array();
    while (length > 0 && list && json_array_size(list) < (size_t)limit) {
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
    char *json = list ? json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(list);
    return json;
}

static void read_tail(void *user) {
    reading *self = user;
    struct stat info = {0};
    int file = open(self->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file < 0 && errno == ENOENT) {
        self->json = strdup("[]");
        return;
    }
    size_t length = 0;
    char *tail = file >= 0 && fstat(file, &info) == 0 ? malloc(TAIL_BYTES) : NULL;
    off_t from = info.st_size > TAIL_BYTES ? info.st_size - TAIL_BYTES : 0;
    ssize_t got = tail ? 1 : -1;
    while (got > 0 && length < TAIL_BYTES) {
        got = pread(file, tail + length, TAIL_BYTES - length, from + (off_t)length);
        if (got > 0) length += (size_t)got;
    }
    int failure = got < 0 ? errno : 0;
    if (file >= 0) (void)close(file);
    if (failure)
        (void)harpe_fail_errno(&self->error, failure, "audit_log: cannot read %.300s", self->path);
    else if (!(self->json = list_of(tail, length, self->limit)))
        (void)harpe_fail_memory(&self->error);
    free(tail);
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
    *self = (reading){.path = audit->path, .limit = limit, .done = done, .user = user};
    self->work =
        (harpe_work){.work = read_tail, .done = is_read, .user = self, .pool = HARPE_POOL_AUDIT};
    harpe_workers_submit(audit->workers, &self->work);
}

/* ---- Life ------------------------------------------------------------------------------------ */

harpe_audit *harpe_audit_new(harpe_workers *workers, const char *path, harpe_log log) {
    harpe_audit *audit = harpe_calloc(1, sizeof *audit);
    if (audit) *audit = (harpe_audit){.workers = workers, .path = path, .log = log};
    return audit;
}

void harpe_audit_free(harpe_audit *audit) {
    if (!audit) return;
    finish(&audit->writing);
    finish(&audit->waiting);
    free(audit);
}
