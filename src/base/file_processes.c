/* SPDX-License-Identifier: Apache-2.0 */
/* Both sides of the file processes. A request and its answer are packets of fixed size. Their data
 * is in memory files, which are sent with the packets, so neither side waits while it sends. */
#include "base/file_processes.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/helper_process.h"
#include "base/log.h"
#include "base/passed_files.h"
#include "base/process.h"
#include "base/version.h"
#include "base/wait.h"

enum { ABANDONED_MAX = 4, MS = 1000 };

#define ANSWER_LIMIT_BYTES ((off_t)256 << 20)

/* The request for a piece of work. The packet has a memory file with all parts, each followed by a
 * NUL. */
typedef struct request {
    uint64_t count;
    uint64_t lengths[HARPE_FILE_WORK_PARTS];
} request;

/* The answer. If it has text, the packet has a memory file with the text. */
typedef struct reply {
    harpe_status status;
    harpe_error error;
} reply;

typedef struct process {
    struct process *next;
    int socket, pidfd;
} process;

struct harpe_file_processes {
    const char *name;
    int patience_ms; /* 0: waits for ever */
    harpe_log log;
    atomic_bool is_stopping;
    int stops; /* eventfd: readable after harpe_file_processes_stop */
    pthread_mutex_t mutex;
    process *idle;
    int abandoned[ABANDONED_MAX]; /* pidfds of killed processes that had not ended */
    int abandoned_count;
    int late; /* callers that have waited longer than `patience_ms` */
};

/* ---- Memory files ---------------------------------------------------------------------------- */

/* Returns a memory file with all parts, each followed by a NUL, or -1 with errno. */
static int pack(const struct iovec *parts, size_t count) {
    int file = memfd_create("harpe-file-work", MFD_CLOEXEC);
    int failure = file < 0 ? errno : 0;
    for (size_t i = 0; i < count && !failure; i++) {
        failure = harpe_write_all(file, parts[i].iov_base, parts[i].iov_len);
        if (!failure) failure = harpe_write_all(file, "", 1);
    }
    if (!failure) return file;
    if (file >= 0) (void)close(file);
    errno = failure;
    return -1;
}

/* Sends a packet, and closes `file` (-1: none). Returns false if the other side is gone. */
static bool send_packet(int socket, const void *data, size_t size, int file) {
    harpe_passed_files files = {{file}, file >= 0};
    struct iovec part = {(void *)data, size};
    ssize_t sent;
    do {
        sent = harpe_passed_files_send(socket, &part, 1, &files, 0);
    } while (sent < 0 && errno == EINTR);
    if (file >= 0) (void)close(file);
    return sent == (ssize_t)size;
}

/* Receives a packet. Returns false if the other side is gone. */
static bool receive_packet(int socket, void *data, size_t size, int *file) {
    struct iovec part = {data, size};
    harpe_passed_files files;
    int flags;
    ssize_t got;
    do {
        got = harpe_passed_files_receive(socket, &part, 1, 1, &files, 0, &flags);
    } while (got < 0 && errno == EINTR);
    *file = files.count > 0 ? files.each[0] : -1;
    if (got == (ssize_t)size) return true;
    if (*file >= 0) (void)close(*file);
    return false;
}

/* ---- Starting and abandoning ----------------------------------------------------------------- */

static process *start(harpe_file_processes *self, harpe_error *error) {
    process *made = harpe_calloc(1, sizeof *made);
    if (!made) {
        (void)harpe_fail_memory(error);
        return NULL;
    }
    char name[80];
    (void)snprintf(name, sizeof name, "the file process for %s", self->name);
    harpe_helper_process helper = {
        .name = name,
        .arguments = {HARPE_FILE_PROCESS_ARGUMENT, self->name, harpe_build_version()},
        .memory = -1,
        .gives_up = &self->is_stopping};
    if (!harpe_helper_process_start_known(&helper, &made->socket, &made->pidfd, error)) return made;
    free(made);
    return NULL;
}

/* Kills the process. Takes its pidfd. */
static void kill_process(process *ended) {
    (void)harpe_process_signal(ended->pidfd, SIGKILL);
    (void)close(ended->socket);
    free(ended);
}

static void end(process *ended) {
    int pidfd = ended->pidfd;
    kill_process(ended);
    (void)close(pidfd);
}

/* Forgets the abandoned processes that have ended. The caller holds the mutex. */
static void forget_ended(harpe_file_processes *self) {
    int left = 0;
    for (int i = 0; i < self->abandoned_count; i++) {
        int pidfd = self->abandoned[i];
        if (harpe_events_now(pidfd, POLLIN) != 0)
            (void)close(pidfd);
        else
            self->abandoned[left++] = pidfd;
    }
    self->abandoned_count = left;
}

/* Kills a process that does not answer. Returns false and does nothing if too many processes were
 * killed and have not ended. */
static bool abandon(harpe_file_processes *self, process *hanging) {
    harpe_lock(&self->mutex);
    forget_ended(self);
    bool may = self->abandoned_count < ABANDONED_MAX;
    if (may) self->abandoned[self->abandoned_count++] = hanging->pidfd;
    harpe_unlock(&self->mutex);
    if (may) kill_process(hanging);
    return may;
}

/* Returns a process that waits for work, or NULL. */
static process *take_idle(harpe_file_processes *self) {
    harpe_lock(&self->mutex);
    process *taken = self->idle;
    if (taken) self->idle = taken->next;
    harpe_unlock(&self->mutex);
    return taken;
}

static void give_back(harpe_file_processes *self, process *idle) {
    harpe_lock(&self->mutex);
    idle->next = self->idle;
    self->idle = idle;
    harpe_unlock(&self->mutex);
}

/* ---- A piece of work ------------------------------------------------------------------------- */

/* A caller that waits. */
typedef struct call {
    harpe_file_processes *pool;
    const char *subject;
    const struct iovec *parts;
    request packet;
    int64_t patience_ms;
    bool is_late;
} call;

/* Says that a file system may hang, in one line for all callers. */
static void tell_late(call *self) {
    harpe_file_processes *pool = self->pool;
    if (self->is_late) return;
    self->is_late = true;
    harpe_lock(&pool->mutex);
    bool is_first = pool->late++ == 0;
    harpe_unlock(&pool->mutex);
    if (is_first)
        harpe_log_line(&pool->log, HARPE_LOG_WARNING,
                       "%s: no answer from %.300s for %d s: does its file system hang?", pool->name,
                       self->subject, pool->patience_ms / MS);
}

static void end_late(const call *self, bool has_answer) {
    harpe_file_processes *pool = self->pool;
    if (!self->is_late) return;
    harpe_lock(&pool->mutex);
    bool is_last = --pool->late == 0;
    harpe_unlock(&pool->mutex);
    if (is_last && has_answer)
        harpe_log_line(&pool->log, HARPE_LOG_WARNING, "%s: %.300s answers again", pool->name,
                       self->subject);
}

/* Sends the request to a process: to one that waits for work, or else to a new one. A process that
 * waits for work may have been killed. */
static process *begin(call *self, harpe_error *error) {
    for (;;) {
        process *taken = take_idle(self->pool);
        bool is_new = !taken;
        if (is_new) taken = start(self->pool, error);
        if (!taken) return NULL;
        int file = pack(self->parts, self->packet.count);
        if (file < 0) {
            (void)harpe_fail_errno(error, errno, "%s: memory for %.300s", self->pool->name,
                                   self->subject);
            give_back(self->pool, taken);
            return NULL;
        }
        if (send_packet(taken->socket, &self->packet, sizeof self->packet, file)) return taken;
        end(taken);
        harpe_log_line(&self->pool->log, HARPE_LOG_WARNING,
                       "%s: a file process was killed, and another one is started",
                       self->pool->name);
    }
}

typedef enum outcome { HAS_ANSWERED, IS_LATE, IS_STOPPED } outcome;

/* Waits until the process answers or ends. */
static outcome await(const call *self, const process *working) {
    struct pollfd events[] = {{.fd = working->socket, .events = POLLIN},
                              {.fd = self->pool->stops, .events = POLLIN}};
    int64_t wait_ms = self->patience_ms > INT32_MAX ? INT32_MAX : self->patience_ms;
    int ready;
    do {
        ready = harpe_poll(events, 2, self->patience_ms > 0 ? wait_ms * 1000000 : -1);
    } while (ready < 0 && errno == EINTR);
    if (ready == 0) return IS_LATE;
    return events[0].revents ? HAS_ANSWERED : IS_STOPPED;
}

/* Appends the content of a memory file, without the NUL at its end, and closes it. */
static harpe_status unpack(int file, harpe_text *text, harpe_error *error) {
    struct stat info;
    if (file < 0) return HARPE_OK;
    bool is_good =
        fstat(file, &info) == 0 && info.st_size > 0 && info.st_size <= ANSWER_LIMIT_BYTES;
    size_t size = is_good ? (size_t)info.st_size : 0;
    void *memory = is_good ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    (void)close(file);
    if (memory == MAP_FAILED) return harpe_fail(error, HARPE_IO_ERROR, "an answer is unreadable");
    harpe_text_append(text, memory, size - 1);
    (void)munmap(memory, size);
    return text->failed ? harpe_fail_memory(error) : HARPE_OK;
}

/* Receives the answer, and keeps the process for more work. */
static harpe_status finish(const call *self, process *working, harpe_text *answer,
                           harpe_error *error) {
    reply got;
    int file;
    if (!receive_packet(working->socket, &got, sizeof got, &file)) {
        end(working);
        return harpe_fail(error, HARPE_IO_ERROR,
                          "%s: the file process was killed while it worked on %.300s",
                          self->pool->name, self->subject);
    }
    give_back(self->pool, working);
    harpe_status status = unpack(file, answer, error);
    if (status != HARPE_OK || got.status == HARPE_OK) return status;
    if (error) *error = got.error;
    return got.status;
}

static harpe_status run(call *self, harpe_text *answer, harpe_error *error) {
    process *working = begin(self, error);
    if (!working) return error->status;
    for (;;) {
        switch (await(self, working)) {
        case HAS_ANSWERED: return finish(self, working, answer, error);
        case IS_STOPPED:
            end(working);
            return harpe_fail(error, HARPE_INTERRUPTED, "%s: stopped waiting for %.300s",
                              self->pool->name, self->subject);
        case IS_LATE: break;
        }
        tell_late(self);
        if (!abandon(self->pool, working)) continue;
        self->patience_ms *= 2;
        working = begin(self, error);
        if (!working) return error->status;
    }
}

harpe_status harpe_file_processes_run(harpe_file_processes *processes, const char *subject,
                                      harpe_file_work *work, const struct iovec *parts,
                                      size_t count, harpe_text *answer, harpe_error *error) {
    if (!processes) return work(parts, count, answer, error);
    harpe_error own;
    call one = {.pool = processes,
                .subject = subject,
                .parts = parts,
                .packet = {.count = count},
                .patience_ms = processes->patience_ms};
    for (size_t i = 0; i < count; i++)
        one.packet.lengths[i] = parts[i].iov_len;
    harpe_status status = run(&one, answer, error ? error : &own);
    end_late(&one, status != HARPE_INTERRUPTED);
    return status;
}

/* ---- The pool -------------------------------------------------------------------------------- */

harpe_status harpe_file_processes_new(const char *name, int patience_s, harpe_log log,
                                      harpe_file_processes **out, harpe_error *error) {
    harpe_file_processes *self = harpe_calloc(1, sizeof *self);
    if (!self) return harpe_fail_memory(error);
    self->name = name;
    self->patience_ms = patience_s * MS;
    self->log = log;
    self->stops = eventfd(0, EFD_CLOEXEC);
    if (self->stops < 0) {
        int failure = errno;
        free(self);
        return harpe_fail_errno(error, failure, "cannot make an eventfd");
    }
    pthread_mutex_init(&self->mutex, NULL);
    *out = self;
    return HARPE_OK;
}

void harpe_file_processes_stop(harpe_file_processes *processes) {
    if (!processes) return;
    atomic_store(&processes->is_stopping, true);
    (void)eventfd_write(processes->stops, 1);
}

void harpe_file_processes_free(harpe_file_processes *processes) {
    if (!processes) return;
    for (process *one; (one = take_idle(processes));)
        end(one);
    for (int i = 0; i < processes->abandoned_count; i++)
        (void)close(processes->abandoned[i]);
    pthread_mutex_destroy(&processes->mutex);
    (void)close(processes->stops);
    free(processes);
}

/* ---- The process ----------------------------------------------------------------------------- */

/* Ends the process with its starter, even while the work waits for a pipe. */
static void *end_with_starter(void *unused) {
    (void)unused;
    (void)harpe_helper_process_is_over_within(-1);
    _exit(EXIT_SUCCESS);
}

/* Finds the parts in the memory file. Returns false if they do not fit into it. */
static bool find_parts(const request *packet, char *memory, size_t size, struct iovec *parts) {
    size_t at = 0;
    if (packet->count > HARPE_FILE_WORK_PARTS) return false;
    for (size_t i = 0; i < packet->count; i++) {
        if (packet->lengths[i] >= size - at) return false;
        parts[i] = (struct iovec){memory + at, packet->lengths[i]};
        at += packet->lengths[i] + 1;
    }
    return at == size;
}

static bool answer(const reply *result, const harpe_text *text) {
    int file = -1;
    reply failed = {.status = HARPE_OUT_OF_MEMORY};
    if (result->status == HARPE_OK && text->length > 0) {
        struct iovec part = {text->data, text->length};
        file = text->failed ? -1 : pack(&part, 1);
        if (file < 0) (void)harpe_fail_memory(&failed.error);
        if (file < 0) result = &failed;
    }
    return send_packet(harpe_helper_socket(), result, sizeof *result, file);
}

/* Returns false if the starter wants no more work. */
static bool do_next(harpe_file_work *work) {
    request packet;
    struct stat info;
    struct iovec parts[HARPE_FILE_WORK_PARTS];
    int file;
    if (!receive_packet(harpe_helper_socket(), &packet, sizeof packet, &file)) return false;
    if (file < 0 || fstat(file, &info) != 0 || info.st_size <= 0) return false;
    size_t size = (size_t)info.st_size;
    char *memory = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
    (void)close(file);
    if (memory == MAP_FAILED || !find_parts(&packet, memory, size, parts)) return false;
    harpe_text text = {0};
    reply result = {.status = HARPE_OK};
    result.status = work(parts, packet.count, &text, &result.error);
    bool is_sent = answer(&result, &text);
    harpe_text_free(&text);
    (void)munmap(memory, size);
    return is_sent;
}

int harpe_file_process_main(int argc, char **argv, harpe_file_work *work) {
    pthread_t watcher;
    harpe_helper_process_begin();
    if (argc < 4 || strcmp(argv[3], harpe_build_version()) != 0) return EXIT_FAILURE;
    if (harpe_thread_start(&watcher, "harpe-watcher", end_with_starter, NULL) ||
        !harpe_helper_process_introduce())
        return EXIT_FAILURE;
    while (do_next(work))
        continue;
    return EXIT_SUCCESS;
}
