/* SPDX-License-Identifier: Apache-2.0 */
/* The audit log: describes requests, makes the records, and lets workers write and read them in a
 * file. Records that come while a worker writes are written together afterwards. Records of tokens
 * without the role operator are limited. */
#include "server/api/api_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/credit.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"
#include "pfo/json_tree.h"

/* Describes a request as the server understands it: the decoded path, and of the body the members
 * that the route has, each with a bounded length. The bytes that a client sends could hide these in
 * white space, in members that nobody reads, or behind a value that a later one replaces. */

enum {
    WHAT_BYTES = 2000, /* of the path */
    RAW_BYTES = 1000,  /* of a body that is not an object */
    WORD_BYTES = 600,  /* of a text in a body; no valid text is longer */
    LIST_BYTES = 200,  /* of a list or an object in a body, and one item more */
};

/* ---- The request: bodies --------------------------------------------------------------------- */

static void put_number(harpe_text *text, double value) {
    if (isfinite(value))
        harpe_text_number(text, value);
    else
        harpe_json_raw(text, isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
}

static void put_word(harpe_text *text, const harpe_json *json, size_t node) {
    size_t length;
    const char *bytes = harpe_json_bytes(json, node, &length);
    char *word = strndup(bytes, length < WORD_BYTES ? length : WORD_BYTES);
    text->failed |= !word;
    harpe_json_string(text, "", word);
    free(word);
}

static void put_value(harpe_text *text, const harpe_json *json, size_t node);

static void put_items(harpe_text *text, const harpe_json *json, size_t node, bool is_object) {
    size_t end = harpe_json_next(json, node), begin = text->length;
    harpe_json_raw(text, is_object ? "{" : "[");
    for (size_t item = node + 1; item < end; item = harpe_json_next(json, item)) {
        if (item > node + 1) harpe_json_raw(text, ", ");
        if (text->length - begin > LIST_BYTES) {
            harpe_json_raw(text, "...");
            break;
        }
        put_value(text, json, item);
        if (!is_object) continue;
        harpe_json_raw(text, ": ");
        item = harpe_json_next(json, item);
        put_value(text, json, item);
    }
    harpe_json_raw(text, is_object ? "}" : "]");
}

/* A document has at most HARPE_JSON_DEPTH levels. */
static void put_value(harpe_text *text, const harpe_json *json, size_t node) {
    switch (harpe_json_kind_of(json, node)) {
    case HARPE_JSON_NULL: harpe_json_raw(text, "null"); return;
    case HARPE_JSON_FALSE: harpe_json_raw(text, "false"); return;
    case HARPE_JSON_TRUE: harpe_json_raw(text, "true"); return;
    case HARPE_JSON_INTEGER:
    case HARPE_JSON_REAL: put_number(text, json->nodes[node].number); return;
    case HARPE_JSON_TEXT:
    case HARPE_JSON_DECODED_TEXT: put_word(text, json, node); return;
    case HARPE_JSON_LIST: put_items(text, json, node, false); return;
    case HARPE_JSON_OBJECT: put_items(text, json, node, true); return;
    }
}

/* Writes the members of the body that the schema has, in the schema's order. */
static void put_members(harpe_text *text, const harpe_json *json, json_t *schema) {
    const char *name;
    json_t *unused;
    harpe_json_raw(text, "{");
    json_object_foreach(schema, name, unused) {
        size_t node = harpe_json_member(json, 0, name);
        if (node == 0) continue;
        harpe_text_printf(text, "%s\"%s\": ", text->length > 1 ? ", " : "", name);
        put_value(text, json, node);
    }
    harpe_json_raw(text, "}");
}

/* Returns what the server understands of the body, or the beginning of a body that is not an
 * object; NULL: out of memory. */
static char *understood(const harpe_route *route, const char *body, size_t length) {
    harpe_json json = {0};
    harpe_json_failure failure;
    harpe_text text = {0};
    json_t *members = route->body_schema ? harpe_openapi_members(route->body_schema) : NULL;
    if (members && harpe_json_read(body, length, &json, &failure) &&
        harpe_json_kind_of(&json, 0) == HARPE_JSON_OBJECT)
        put_members(&text, &json, members);
    else
        harpe_text_append(&text, body, harpe_cut_length(body, RAW_BYTES));
    json_decref(members);
    harpe_json_free(&json);
    harpe_text_append(&text, "", 0);
    return harpe_text_take(&text);
}

/* ---- The request: notes ---------------------------------------------------------------------- */

static char *path_of(harpe_http_request *request, const harpe_route *route) {
    harpe_text text = {0};
    const char *group = harpe_http_query(request, "group");
    harpe_text_printf(&text, "%s ", harpe_http_method(request));
    for (int i = 0; i < harpe_http_segment_count(request); i++)
        harpe_text_printf(&text, "/%s", harpe_http_segment(request, i));
    if (group && route->call == HARPE_CALL_FLEET_DELETE_BUDGET)
        harpe_text_printf(&text, "?group=%s", group);
    char *path = harpe_text_take(&text);
    if (path) path[harpe_cut_length(path, WHAT_BYTES)] = '\0';
    return path;
}

bool harpe_audit_note_take(harpe_audit_note *note, harpe_http_request *request,
                           const harpe_route *route, const harpe_client *client) {
    size_t length;
    const char *body = harpe_http_body(request, &length);
    *note = (harpe_audit_note){.role = client->name ? harpe_role_name(client->role) : NULL,
                               .is_operator = client->role == HARPE_ROLE_OPERATOR};
    harpe_http_client_address(request, note->address);
    note->what = path_of(request, route);
    if (note->what) harpe_clean_in_place(note->what);
    if (length > 0) note->body = understood(route, body, length);
    if (note->body) harpe_clean_in_place(note->body);
    if (client->name) note->who = strdup(client->name);
    if (note->what && (note->body || length == 0) && (note->who || !client->name)) return true;
    harpe_audit_note_clear(note);
    return false;
}

void harpe_audit_note_clear(harpe_audit_note *note) {
    free(note->who);
    free(note->what);
    free(note->body);
    *note = (harpe_audit_note){0};
}

/* ---- The file -------------------------------------------------------------------------------- */

/* These functions append records to the file of the audit log, and read its newest records. Each
 * call opens the file, so a user may rename the file at any time. A file that is too long is
 * renamed to PATH.old. The functions run in a file process (base/file_processes.h). It receives
 * three parts: the path, the text to append, and how many records to read. */

enum {
    TAIL_BYTES = 8 << 20,  /* the end of the file that is searched for records */
    FILE_BYTES = 64 << 20, /* the longest file */
    APPENDS = -1,          /* LIMIT has this value if the text is to be appended */
};

enum { PATH, APPENDED, LIMIT, PART_COUNT };

/* ---- The file: appending --------------------------------------------------------------------- */

/* Appends the text. If the last write was cut off, begins a new line first. */
static int append_to(int file, const struct iovec *text) {
    struct stat info;
    char last = '\n';
    if (fstat(file, &info) != 0) return errno;
    if (info.st_size > 0 && pread(file, &last, 1, info.st_size - 1) != 1) return errno;
    int failure = last == '\n' ? 0 : harpe_write_all(file, "\n", 1);
    if (!failure) failure = harpe_write_all(file, text->iov_base, text->iov_len);
    if (!failure && fdatasync(file) != 0 && errno != EINVAL) failure = errno;
    return failure;
}

static int open_log(const char *path) {
    return open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
}

/* Opens the file for a text of this length. A long file is renamed first. If that is not possible,
 * it becomes longer, because the records are needed. */
static int open_with_room(const char *path, const char *old_path, size_t length) {
    struct stat info;
    int file = open_log(path);
    if (file < 0 || fstat(file, &info) != 0 || info.st_size == 0) return file;
    if (info.st_size + (off_t)length <= FILE_BYTES) return file;
    if (rename(path, old_path) != 0) return file;
    (void)close(file);
    return open_log(path);
}

static harpe_status append(const char *path, const char *old_path, const struct iovec *text,
                           harpe_error *error) {
    int file = open_with_room(path, old_path, text->iov_len);
    int failure = file < 0 ? errno : append_to(file, text);
    if (file >= 0 && close(file) != 0 && !failure) failure = errno;
    return failure ? harpe_fail_errno(error, failure, "audit_log: cannot append to %.300s", path)
                   : HARPE_OK;
}

/* ---- The file: reading ----------------------------------------------------------------------- */

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
static int take_newest(const char *path, const char *old_path, int limit, json_t *list) {
    const char *const paths[] = {path, old_path};
    struct stat info = {0};
    ino_t seen = 0;
    int failure = 0;
    for (int i = 0; i < 2 && !failure && json_array_size(list) < (size_t)limit; i++) {
        int file = open(paths[i], O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (file < 0 && errno == ENOENT) continue;
        if (file < 0 || fstat(file, &info) != 0)
            failure = errno;
        else if (info.st_ino != seen) /* otherwise it was renamed after it was read */
            failure = take_tail(list, file, info.st_size, limit);
        seen = info.st_ino;
        if (file >= 0) (void)close(file);
    }
    return failure;
}

static harpe_status read_newest(const char *path, const char *old_path, int limit,
                                harpe_text *answer, harpe_error *error) {
    json_t *list = json_array();
    int failure = list ? take_newest(path, old_path, limit, list) : 0;
    char *json = list && !failure ? json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(list);
    if (failure) return harpe_fail_errno(error, failure, "audit_log: cannot read %.300s", path);
    if (!json) return harpe_fail_memory(error);
    harpe_text_append(answer, json, strlen(json));
    free(json);
    return HARPE_OK;
}

/* ---- The file: the work ---------------------------------------------------------------------- */

harpe_status harpe_audit_file_work(const struct iovec *parts, size_t count, harpe_text *answer,
                                   harpe_error *error) {
    int limit;
    char *old_path;
    const char *path = parts[PATH].iov_base;
    if (count != PART_COUNT || parts[LIMIT].iov_len != sizeof limit)
        return harpe_fail(error, HARPE_INTERNAL, "work on the audit log has the wrong size");
    memcpy(&limit, parts[LIMIT].iov_base, sizeof limit);
    if (asprintf(&old_path, "%s.old", path) < 0) return harpe_fail_memory(error);
    harpe_status status = limit < 0 ? append(path, old_path, &parts[APPENDED], error)
                                    : read_newest(path, old_path, limit, answer, error);
    free(old_path);
    return status;
}

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

/* ---- Writing records ------------------------------------------------------------------------- */

/* Appends the text and puts it on disk (`limit` is APPENDS), or reads the newest `limit` records as
 * a JSON list, newest first. */
static harpe_status run(const harpe_audit *audit, struct iovec appended, int limit,
                        harpe_text *answer, harpe_error *error) {
    const struct iovec parts[PART_COUNT] = {[PATH] = {(void *)audit->path, strlen(audit->path)},
                                            [APPENDED] = appended,
                                            [LIMIT] = {&limit, sizeof limit}};
    return harpe_file_processes_run(audit->files, audit->path, harpe_audit_file_work, parts,
                                    PART_COUNT, answer, error);
}

static void write_batch(void *user) {
    harpe_audit *audit = user;
    const harpe_text *text = &audit->writing.text;
    harpe_text nothing = {0};
    audit->status =
        run(audit, (struct iovec){text->data, text->length}, APPENDS, &nothing, &audit->error);
    harpe_text_free(&nothing);
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

/* ---- Reading records ------------------------------------------------------------------------- */

typedef struct reading {
    harpe_work work;
    const harpe_audit *audit;
    int limit;
    void (*done)(void *user, char *json, const harpe_error *error);
    void *user;
    char *json;
    harpe_error error;
} reading;

static void read_list(void *user) {
    reading *self = user;
    harpe_text json = {0};
    bool is_done =
        run(self->audit, (struct iovec){"", 0}, self->limit, &json, &self->error) == HARPE_OK;
    json.failed = json.failed || !is_done;
    self->json = harpe_text_take(&json);
    if (is_done && !self->json) (void)harpe_fail_memory(&self->error);
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
    *self = (reading){.audit = audit, .limit = limit, .done = done, .user = user};
    self->work =
        (harpe_work){.work = read_list, .done = is_read, .user = self, .pool = HARPE_POOL_AUDIT};
    harpe_workers_submit(audit->workers, &self->work);
}

/* ---- Life ------------------------------------------------------------------------------------ */

harpe_audit *harpe_audit_new(harpe_workers *workers, harpe_file_processes *files, const char *path,
                             harpe_log log) {
    harpe_audit *audit = harpe_calloc(1, sizeof *audit);
    if (audit) *audit = (harpe_audit){.workers = workers, .files = files, .path = path, .log = log};
    return audit;
}

void harpe_audit_free(harpe_audit *audit) {
    if (!audit) return;
    finish(&audit->writing);
    finish(&audit->waiting);
    for (size_t i = 0; i < audit->source_count; i++)
        free(audit->sources[i].who);
    free(audit->sources);
    free(audit);
}
