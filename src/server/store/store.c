/* SPDX-License-Identifier: Apache-2.0 */
/* The loop queues changes. The store's thread takes a batch of queued changes, and the back-end
 * writes the batch in one transaction (group commit). Then the loop acknowledges the changes. This
 * file is the layer between the engine and the databases, and does not use SQL. It also decides
 * which statements read records back, and in which order. */
#include "server/store/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait.h"
#include "server/store/backend.h"

/* Limits of batches. The size of a batch is limited, so that its first change does not wait long.
 * Larger batches are not faster. If the loop is busy, a few batches can wait for their
 * acknowledgement. If more would wait, the thread waits for the loop. */
enum {
    BATCH_CHANGES = 4096,
    BATCH_BYTES = 8 << 20,
    BATCHES_UNACKNOWLEDGED = 4,
    PROBE_MS = 1000,
    CHECK_S = 2,         /* between checks that the store is still there, if nothing is written */
    PROBE_BYTES = 16384, /* more bytes than the free part of a page */
};

static const harpe_store_backend *const harpe_store_backends[] = {
    &harpe_store_memory,
    &harpe_store_postgres,
    &harpe_store_sqlite,
};

typedef struct batch {
    harpe_change *first;
    harpe_status status;
    harpe_error error;
    int64_t free_bytes; /* after the write */
} batch;

typedef struct change_list {
    harpe_change *first;
    harpe_change **end; /* where the next change is linked in */
} change_list;

struct harpe_store {
    const harpe_store_backend *backend;
    void *state; /* the back-end's */
    harpe_log log;

    /* Only the loop uses the following members. */
    harpe_loop *loop;
    harpe_store_counts counts; /* counts of acknowledged changes */
    bool has_failed;           /* the last batch could not be written; `failure` gives the reason */
    harpe_error failure;
    harpe_timer *probe_timer;
    bool is_probing; /* `probe` is submitted */
    harpe_change probe;
    char probe_text[PROBE_BYTES];

    pthread_t thread;
    pthread_mutex_t lock; /* protects all members below */
    pthread_cond_t has_work, has_written;
    change_list queued;
    bool is_waiting; /* the thread waits for work */
    bool is_closing, has_ended;
    /* A ring of batches. Those from `acknowledged` up to `written` (not included) are written but
     * not acknowledged. */
    batch batches[BATCHES_UNACKNOWLEDGED];
    size_t written, acknowledged;
    int64_t batch_begun_ns; /* 0: none is being written */
    bool is_missing; /* the last check found another file or none; `missing` has the reason */
    harpe_error missing;

    int written_event; /* eventfd: tells the loop to acknowledge */
    harpe_watch *watch;
};

/* ---- Writing: the store's thread ------------------------------------------------------------- */

/* Takes the changes of one batch from the queue, at least one. */
static harpe_change *take_batch(change_list *queued) {
    harpe_change *first = queued->first;
    harpe_change *last = first;
    size_t count = 1;
    size_t bytes = first->length;
    while (last->next && count < BATCH_CHANGES && bytes + last->next->length <= BATCH_BYTES) {
        last = last->next;
        count++;
        bytes += last->length;
    }
    queued->first = last->next;
    if (!queued->first) queued->end = &queued->first;
    last->next = NULL;
    return first;
}

/* Logs the first failure and the first success after it. A database that is down fails every batch.
 */
static void log_transition(const harpe_store *store, const batch *before, const batch *now) {
    if (now->status != HARPE_OK && (!before || before->status == HARPE_OK))
        harpe_log_line(&store->log, HARPE_LOG_ERROR, "cannot store: %s", now->error.message);
    else if (now->status == HARPE_OK && before && before->status != HARPE_OK)
        harpe_log_line(&store->log, HARPE_LOG_WARNING, "storing works again");
}

/* Checks the files. Call it with the mutex locked. It unlocks the mutex during the check, because a
 * file system may be slow. */
static void look_at_files(harpe_store *store) {
    harpe_error error;
    store->batch_begun_ns = harpe_clock_ns();
    harpe_unlock(&store->lock);
    bool is_missing = store->backend->check(store->state, &error) != HARPE_OK;
    harpe_lock(&store->lock);
    store->batch_begun_ns = 0;
    if (is_missing && !store->is_missing)
        harpe_log_line(&store->log, HARPE_LOG_ERROR, "%s", error.message);
    if (is_missing) store->missing = error;
    store->is_missing = is_missing;
}

/* Call it with the mutex locked. It is unlocked while the thread waits. */
static void wait_a_while(harpe_store *store) {
    int64_t end_ns =
        store->backend->check ? harpe_clock_ns() + CHECK_S * INT64_C(1000000000) : INT64_MAX;
    store->is_waiting = true;
    bool is_woken = harpe_wait_until(&store->has_work, &store->lock, end_ns);
    store->is_waiting = false;
    if (!is_woken && !store->is_closing) look_at_files(store);
}

/* Call it with the mutex locked. It is unlocked while the thread waits. Returns false if the store
 * closes and everything is acknowledged. */
static bool wait_for_work(harpe_store *store) {
    for (;;) {
        size_t unacknowledged = store->written - store->acknowledged;
        if (store->queued.first && unacknowledged < BATCHES_UNACKNOWLEDGED) return true;
        if (store->is_closing && !store->queued.first && unacknowledged == 0) return false;
        wait_a_while(store);
    }
}

static int64_t free_bytes(const harpe_store *store) {
    return store->backend->free_bytes ? store->backend->free_bytes(store->state) : -1;
}

static void *write_batches(void *user) {
    harpe_store *store = user;
    const batch *before = NULL;
    harpe_lock(&store->lock);
    while (wait_for_work(store)) {
        batch *now = &store->batches[store->written % BATCHES_UNACKNOWLEDGED];
        now->first = take_batch(&store->queued);
        store->batch_begun_ns = harpe_clock_ns();
        harpe_unlock(&store->lock);
        now->status = store->backend->write(store->state, now->first, &now->error);
        now->free_bytes = free_bytes(store);
        log_transition(store, before, now);
        before = now;
        harpe_lock(&store->lock);
        store->written++;
        store->batch_begun_ns = 0;
        harpe_signal(&store->has_written);
        (void)eventfd_write(store->written_event, 1);
    }
    store->has_ended = true;
    harpe_signal(&store->has_written);
    harpe_unlock(&store->lock);
    return NULL;
}

/* ---- Queueing and acknowledging: the loop ---------------------------------------------------- */

static void submit(harpe_store *store, harpe_change *first, harpe_change *last, size_t count) {
    last->next = NULL;
    store->counts.queued += count;
    harpe_lock(&store->lock);
    *store->queued.end = first;
    store->queued.end = &last->next;
    if (store->is_waiting) harpe_signal(&store->has_work);
    harpe_unlock(&store->lock);
}

void harpe_store_submit(harpe_store *store, harpe_change *change) {
    submit(store, change, change, 1);
}

void harpe_store_submit_both(harpe_store *store, harpe_change *first, harpe_change *second) {
    first->next = second;
    submit(store, first, second, 2);
}

/* ---- Does it write again? -------------------------------------------------------------------- */

static void probe_is_written(void *user, harpe_status status, const harpe_error *error) {
    harpe_store *store = user;
    (void)status;
    (void)error;
    store->is_probing = false;
}

static void submit_probe(void *user) {
    harpe_store *store = user;
    store->probe_timer = NULL;
    if (!store->has_failed || store->is_probing) return;
    memset(store->probe_text, 'x', sizeof store->probe_text);
    store->is_probing = true;
    store->probe = (harpe_change){.kind = HARPE_CHANGE_PROBE,
                                  .job_id = "",
                                  .text = store->probe_text,
                                  .length = sizeof store->probe_text,
                                  .done = probe_is_written,
                                  .user = store};
    harpe_store_submit(store, &store->probe);
}

/* Returns false if another server owns the store, because this server does not write to it. */
static bool may_probe(const harpe_store *store) {
    return !harpe_store_is_shared(store) || harpe_store_is_owned(store);
}

static void note_outcome(harpe_store *store, const batch *written) {
    store->has_failed = written->status != HARPE_OK && may_probe(store);
    if (!store->has_failed) return;
    store->failure = written->error;
    if (!store->probe_timer)
        (void)harpe_loop_after(store->loop, PROBE_MS, submit_probe, store, &store->probe_timer,
                               NULL);
}

bool harpe_store_fault(harpe_store *store, int64_t deadline_s, char *line, size_t size) {
    harpe_lock(&store->lock);
    int64_t begun_ns = store->batch_begun_ns;
    bool is_missing = store->is_missing;
    if (is_missing) (void)snprintf(line, size, "store: %s", store->missing.message);
    harpe_unlock(&store->lock);
    if (is_missing) return true;
    int64_t takes_s = begun_ns ? (harpe_clock_ns() - begun_ns) / 1000000000 : 0;
    if (begun_ns && takes_s >= deadline_s) {
        (void)snprintf(line, size, "store: a write has taken %lld s and has not ended",
                       (long long)takes_s);
        return true;
    }
    if (!store->has_failed || !may_probe(store)) return false;
    (void)snprintf(line, size, "store: the last write failed: %s", store->failure.message);
    return true;
}

/* ---- Acknowledging --------------------------------------------------------------------------- */

static void acknowledge_batch(harpe_store *store, const batch *written) {
    bool is_written = written->status == HARPE_OK;
    note_outcome(store, written);
    store->counts.batches += is_written;
    store->counts.failures += !is_written;
    store->counts.free_bytes = written->free_bytes;
    harpe_change *next = NULL;
    for (harpe_change *change = written->first; change; change = next) {
        next = change->next; /* `done` may free the change */
        store->counts.queued--;
        store->counts.changes += is_written;
        if (!change->done) continue;
        change->done(change->user, written->status, is_written ? NULL : &written->error);
    }
}

/* Returns false if there was nothing to acknowledge. */
static bool acknowledge_one(harpe_store *store) {
    harpe_lock(&store->lock);
    bool has_one = store->acknowledged < store->written;
    const batch *written = &store->batches[store->acknowledged % BATCHES_UNACKNOWLEDGED];
    harpe_unlock(&store->lock);
    if (!has_one) return false;
    acknowledge_batch(store, written);
    harpe_lock(&store->lock);
    store->acknowledged++;
    if (store->is_waiting) harpe_signal(&store->has_work);
    harpe_unlock(&store->lock);
    return true;
}

static void acknowledge_written(void *user, uint32_t events) {
    (void)events;
    harpe_store *store = user;
    eventfd_t count = 0;
    (void)eventfd_read(store->written_event, &count);
    while (acknowledge_one(store)) {
    }
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static const harpe_store_backend *backend_for(const char *where) {
    for (size_t i = 0; i < sizeof harpe_store_backends / sizeof harpe_store_backends[0]; i++)
        if (harpe_store_backends[i]->accepts(where)) return harpe_store_backends[i];
    return NULL;
}

static void free_store(harpe_store *store) {
    harpe_watch_remove(store->watch);
    harpe_timer_cancel(store->probe_timer);
    if (store->written_event >= 0) (void)close(store->written_event);
    if (store->state) store->backend->close(store->state);
    pthread_cond_destroy(&store->has_written);
    pthread_cond_destroy(&store->has_work);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

/* Makes the loop watch the event of written batches. A posted call is not suitable, because it
 * cannot be removed when the store closes. */
static harpe_status watch_written(harpe_store *store, harpe_loop *loop, harpe_error *error) {
    store->written_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (store->written_event < 0)
        return harpe_fail_errno(error, errno, "making the store's eventfd");
    return harpe_loop_watch(loop, store->written_event, EPOLLIN, acknowledge_written, store,
                            &store->watch, error);
}

harpe_status harpe_store_open(const char *where, harpe_loop *loop, harpe_log log, harpe_store **out,
                              harpe_error *error) {
    const harpe_store_backend *backend = backend_for(where);
    if (!backend) {
        /* The text after the scheme may hold a password. */
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "store %.*s...: this kind of store is unknown; use a file, sqlite:FILE, "
                          "postgresql://... or memory",
                          (int)(strstr(where, "://") - where) + 3, where);
    }
    harpe_store *store = calloc(1, sizeof *store);
    if (!store) return harpe_fail_memory(error);
    *store = (harpe_store){.backend = backend, .log = log, .loop = loop, .written_event = -1};
    store->queued.end = &store->queued.first;
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->has_work, NULL);
    pthread_cond_init(&store->has_written, NULL);
    harpe_status status = backend->open(where, log, &store->state, error);
    if (status == HARPE_OK) store->counts.free_bytes = free_bytes(store);
    if (status == HARPE_OK) status = watch_written(store, loop, error);
    if (status == HARPE_OK) {
        int result = harpe_thread_start(&store->thread, "harpe-store", write_batches, store);
        if (result != 0) status = harpe_fail_errno(error, result, "starting the store's thread");
    }
    if (status != HARPE_OK) {
        free_store(store);
        return status;
    }
    *out = store;
    return HARPE_OK;
}

void harpe_store_close(harpe_store *store) {
    if (!store) return;
    harpe_lock(&store->lock);
    store->is_closing = true;
    harpe_signal(&store->has_work);
    while (!store->has_ended) {
        harpe_unlock(&store->lock);
        bool has_acknowledged = acknowledge_one(store);
        harpe_lock(&store->lock);
        if (!has_acknowledged && store->acknowledged == store->written && !store->has_ended)
            harpe_wait_for(&store->has_written, &store->lock);
    }
    harpe_unlock(&store->lock);
    harpe_thread_join(store->thread);
    free_store(store);
}

bool harpe_store_flush(harpe_store *store, int64_t wait_ms) {
    int64_t end_ns = harpe_clock_ns() + wait_ms * 1000000;
    bool is_flushed = false;
    while (!is_flushed && harpe_clock_ns() < end_ns) {
        while (acknowledge_one(store)) {
        }
        harpe_lock(&store->lock);
        is_flushed =
            !store->queued.first && store->is_waiting && store->acknowledged == store->written;
        harpe_unlock(&store->lock);
        if (!is_flushed) harpe_sleep_ns(5000000);
    }
    return is_flushed;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static harpe_status read_rows(const harpe_store *store, size_t which, const harpe_change *key,
                              harpe_record_reader *record, void *user, harpe_error *error) {
    return store->backend->read(store->state, which, which + 1, key, record, user, error);
}

typedef struct job_list {
    harpe_arena ids;
    harpe_change *jobs;
    size_t count, capacity;
} job_list;

static harpe_status list_job(void *user, const harpe_change *record, harpe_error *error) {
    job_list *list = user;
    const char *id = record->job_id;
    harpe_change job = {.job_id = harpe_arena_strdup(&list->ids, id, strlen(id)),
                        .number = record->number};
    if (!job.job_id || !HARPE_ARRAY_RESERVE(list->jobs, list->capacity, list->count + 1))
        return harpe_fail_memory(error);
    list->jobs[list->count++] = job;
    return HARPE_OK;
}

/* Lists the jobs before it reads their records, because a connection answers one question after the
 * other. */
static harpe_status load_jobs(const harpe_store *store, size_t which, const harpe_change *key,
                              harpe_record_reader *record, void *user, harpe_error *error) {
    job_list list = {0};
    harpe_status status = read_rows(store, which, key, list_job, &list, error);
    for (size_t i = 0; i < list.count && status == HARPE_OK; i++)
        status = store->backend->read(store->state, HARPE_READ_OF_JOB, HARPE_READ_OF_JOB_END,
                                      &list.jobs[i], record, user, error);
    harpe_arena_free(&list.ids);
    free(list.jobs);
    return status;
}

static harpe_status load_one(const harpe_store *store, const harpe_change *key,
                             harpe_record_reader *record, void *user, harpe_error *error) {
    harpe_status status = load_jobs(store, HARPE_READ_ONE_JOB, key, record, user, error);
    if (status != HARPE_OK) return status;
    return read_rows(store, HARPE_READ_ONE_DELETED, key, record, user, error);
}

static harpe_status load_all(const harpe_store *store, const harpe_change *key,
                             harpe_record_reader *record, void *user, harpe_error *error) {
    harpe_status status = read_rows(store, HARPE_READ_UPTIME, key, record, user, error);
    if (status == HARPE_OK) status = load_jobs(store, HARPE_READ_JOBS, key, record, user, error);
    if (status == HARPE_OK) status = read_rows(store, HARPE_READ_DELETED, key, record, user, error);
    if (status == HARPE_OK)
        status = read_rows(store, HARPE_READ_FINISHED, key, record, user, error);
    return status;
}

harpe_status harpe_store_load(harpe_store *store, const char *job_id, harpe_record_reader *record,
                              void *user, harpe_error *error) {
    const harpe_change key = {.job_id = job_id};
    harpe_status status = store->backend->begin_read(store->state, true, error);
    if (status != HARPE_OK) return status;
    status = (job_id ? load_one : load_all)(store, &key, record, user, error);
    return store->backend->end_read(store->state, status, error);
}

static harpe_status read_alone(harpe_store *store, size_t which, const harpe_change *key,
                               harpe_record_reader *record, void *user, harpe_error *error) {
    harpe_status status = store->backend->begin_read(store->state, false, error);
    if (status != HARPE_OK) return status;
    status = read_rows(store, which, key, record, user, error);
    return store->backend->end_read(store->state, status, error);
}

harpe_status harpe_store_load_notes(harpe_store *store, harpe_record_reader *record, void *user,
                                    harpe_error *error) {
    const harpe_change key = {0};
    return read_alone(store, HARPE_READ_NOTES, &key, record, user, error);
}

typedef struct result_copy {
    char *text;
    size_t length;
} result_copy;

static harpe_status copy_result(void *user, const harpe_change *record, harpe_error *error) {
    result_copy *copy = user;
    copy->text = harpe_calloc(record->length + 1, 1);
    if (!copy->text) return harpe_fail_memory(error);
    memcpy(copy->text, record->text, record->length);
    copy->length = record->length;
    return HARPE_OK;
}

harpe_status harpe_store_read_result(harpe_store *store, const char *job_id, int64_t round,
                                     int rank, char **text, size_t *length, harpe_error *error) {
    const harpe_change key = {.job_id = job_id, .round = round, .rank = rank};
    result_copy copy = {0};
    harpe_status status = read_alone(store, HARPE_READ_RESULT, &key, copy_result, &copy, error);
    if (status == HARPE_OK && !copy.text)
        return harpe_fail(error, HARPE_NOT_FOUND, "job %s has no result of rank %d for round %lld",
                          job_id, rank, (long long)round);
    *text = copy.text;
    *length = copy.length;
    return status;
}

/* ---- Owning ---------------------------------------------------------------------------------- */

bool harpe_store_is_shared(const harpe_store *store) { return store->backend->own != NULL; }

harpe_status harpe_store_own(harpe_store *store, const harpe_store_server *server,
                             harpe_ownership *out, harpe_error *error) {
    return store->backend->own(store->state, server, out, error);
}

harpe_status harpe_store_watch(harpe_store *store, int64_t owner, int64_t dead_beat,
                               harpe_store_leader *out, harpe_error *error) {
    return store->backend->watch(store->state, owner, dead_beat, out, error);
}

void harpe_store_disown(harpe_store *store) { store->backend->disown(store->state); }

bool harpe_store_is_owned(const harpe_store *store) {
    return store->backend->is_owned(store->state);
}

/* ---- Looking at it --------------------------------------------------------------------------- */

harpe_store_counts harpe_store_count(const harpe_store *store) { return store->counts; }
