/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the records of the audit log, and lets workers write and read them. Records that come while
 * a worker writes are written together afterwards. Records of tokens without the role operator are
 * limited. audit_file.c has the calls on the file. */
#include "server/api/audit.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/credit.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "server/api/audit_file.h"
#include "server/engine/engine.h"

enum { LATE_S = 5 /* a write that takes longer makes the server refuse what steers */ };

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
    harpe_file_processes *files;
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

static void write_batch(void *user) {
    harpe_audit *audit = user;
    const harpe_text *text = &audit->writing.text;
    audit->status = harpe_audit_file_append(audit->files, audit->path, audit->old_path, text->data,
                                            text->length, &audit->error);
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
    int64_t at_ms = harpe_clock_wall_ns() / 1000000;
    json_t *record =
        json_pack("{s:f, s:s?, s:s?, s:s?, s:s, s:s?, s:i, s:o?}", "at", (double)at_ms / 1000,
                  "who", note->who, "role", note->role, "address",
                  *note->address ? note->address : NULL, "what", note->what, "request", note->body,
                  "status", http_status, "detail", detail_of(http_status, answer, length));
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
    harpe_file_processes *files;
    const char *path, *old_path;
    int limit;
    void (*done)(void *user, char *json, const harpe_error *error);
    void *user;
    char *json;
    harpe_error error;
} reading;

static void read_newest(void *user) {
    reading *self = user;
    harpe_text json = {0};
    if (harpe_audit_file_read(self->files, self->path, self->old_path, self->limit, &json,
                              &self->error) == HARPE_OK)
        self->json = json.data;
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
    *self = (reading){.files = audit->files,
                      .path = audit->path,
                      .old_path = audit->old_path,
                      .limit = limit,
                      .done = done,
                      .user = user};
    self->work =
        (harpe_work){.work = read_newest, .done = is_read, .user = self, .pool = HARPE_POOL_AUDIT};
    harpe_workers_submit(audit->workers, &self->work);
}

/* ---- Life ------------------------------------------------------------------------------------ */

harpe_audit *harpe_audit_new(harpe_workers *workers, harpe_file_processes *files, const char *path,
                             harpe_log log) {
    harpe_audit *audit = harpe_calloc(1, sizeof *audit);
    if (!audit) return NULL;
    *audit = (harpe_audit){.workers = workers, .files = files, .path = path, .log = log};
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
