/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's side of the guard: starts the guard, replaces it if it dies, and dismisses it. The
 * trainer's side restores nothing itself. */
#include "powerlimit/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/helper_process.h"
#include "base/log.h"
#include "base/process.h"
#include "base/thread.h"
#include "base/wait.h"
#include "gpu/gpus.h"
#include "gpu/saved_settings.h"

#define FIRST_PAUSE_S 0.1
#define LONGEST_PAUSE_S 30.0
#define SHORT_LIFE_S 1.0 /* a guard that has lived this long is replaced without delay */

enum { ANSWER_MS = 5000 };

struct harpe_guard {
    harpe_gpus *gpus;
    harpe_log log;
    harpe_guard_header header;
    harpe_guarded_gpu *saved; /* for each GPU, known after the first guard has started */
    size_t count;
    int socket;
    int end; /* eventfd, readable when the guard is to be dismissed */
    pid_t owner;
    pthread_t watcher;
    bool has_watcher;
    atomic_bool is_over;
};

/* ---- One guard process ----------------------------------------------------------------------- */

/* Starts a guard process, which fills `saved`. `starter` is the member of harpe_helper_process. */
static harpe_status start_process(const harpe_guard_header *header, harpe_guarded_gpu *saved,
                                  int starter, const atomic_bool *gives_up, int *socket,
                                  harpe_error *error) {
    size_t size = header->gpu_count * sizeof *saved;
    struct iovec greeting[] = {{(void *)header, sizeof *header}, {saved, size}};
    harpe_error answer;
    harpe_helper_process process = {.name = "the power limit guard",
                                    .arguments = {"power-limit", HARPE_GUARD_ARGUMENT},
                                    .memory = -1,
                                    .starter = starter,
                                    .greeting = greeting,
                                    .greeting_count = 2,
                                    .answer = &answer,
                                    .answer_size = sizeof answer,
                                    .gives_up = gives_up};
    int opened = -1;
    harpe_status status = harpe_helper_process_start(&process, &opened, error);
    if (status != HARPE_OK) return status;
    answer.message[sizeof answer.message - 1] = '\0';
    if (answer.status != HARPE_OK)
        status = harpe_fail(error, answer.status, "power limit guard: %s", answer.message);
    else if (!harpe_helper_process_receive(opened, saved, size, ANSWER_MS))
        status = harpe_fail(error, HARPE_IO_ERROR, "the power limit guard has died at its start");
    if (status != HARPE_OK) {
        harpe_process_close(opened);
        return status;
    }
    *socket = opened;
    return HARPE_OK;
}

static bool has_died(const harpe_guard *guard) {
    int events = harpe_events_now(guard->socket, POLLRDHUP);
    return (events & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

static harpe_status replace_process(harpe_guard *guard, harpe_error *error) {
    int socket = -1;
    harpe_status status =
        start_process(&guard->header, guard->saved, 0, &guard->is_over, &socket, error);
    if (status != HARPE_OK) return status;
    harpe_process_close(guard->socket);
    guard->socket = socket;
    return HARPE_OK;
}

/* ---- Watching -------------------------------------------------------------------------------- */

/* Returns true if the end comes within the given time. */
static bool is_over_within(const harpe_guard *guard, double pause_s) {
    struct pollfd end = {.fd = guard->end, .events = POLLIN};
    (void)harpe_poll(&end, 1, (int64_t)(pause_s * 1e9));
    return atomic_load(&guard->is_over);
}

/* Tries to start a guard until one runs. Reports only the first failure. */
static void replace(harpe_guard *guard, bool at_once) {
    harpe_error error;
    double pause_s = at_once ? 0 : FIRST_PAUSE_S;
    for (bool is_told = false; !is_over_within(guard, pause_s);) {
        harpe_status status = replace_process(guard, &error);
        if (status == HARPE_OK || status == HARPE_INTERRUPTED) return;
        if (!is_told) {
            harpe_log_line(&guard->log, HARPE_LOG_WARNING,
                           "the power limit guard has died and cannot be started again yet; until "
                           "then no process restores the limits if this one is killed: %s",
                           error.message);
        }
        is_told = true;
        pause_s = pause_s < FIRST_PAUSE_S ? FIRST_PAUSE_S : pause_s * 2;
        if (pause_s > LONGEST_PAUSE_S) pause_s = LONGEST_PAUSE_S;
    }
}

static void *watch(void *argument) {
    harpe_guard *guard = argument;
    while (!atomic_load(&guard->is_over)) {
        double since_s = harpe_clock_s();
        struct pollfd ends[2] = {{.fd = guard->socket, .events = POLLRDHUP},
                                 {.fd = guard->end, .events = POLLIN}};
        if (harpe_poll(ends, 2, -1) < 0 && errno != EINTR) return NULL;
        if (ends[0].revents & POLLNVAL) return NULL; /* the trainer has closed all descriptors */
        if (!atomic_load(&guard->is_over) && has_died(guard))
            replace(guard, harpe_clock_s() - since_s > SHORT_LIFE_S);
    }
    return NULL;
}

static harpe_status start_watcher(harpe_guard *guard, harpe_error *error) {
    guard->end = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (guard->end < 0) return harpe_fail_errno(error, errno, "the power limit guard");
    int failure = harpe_thread_start(&guard->watcher, "harpe-guard", watch, guard);
    if (failure) return harpe_fail_errno(error, failure, "a thread for the power limit guard");
    guard->has_watcher = true;
    return HARPE_OK;
}

static void stop_watcher(harpe_guard *guard) {
    uint64_t one = 1;
    if (!guard->has_watcher) return;
    atomic_store(&guard->is_over, true);
    ssize_t ignored = write(guard->end, &one, sizeof one);
    (void)ignored;
    harpe_thread_join(guard->watcher);
    atomic_store(&guard->is_over, false);
}

/* ---- Start and end --------------------------------------------------------------------------- */

static void release(harpe_guard *guard) {
    if (guard->socket >= 0) harpe_process_close(guard->socket);
    if (guard->end >= 0) close(guard->end);
    free(guard->saved);
    free(guard);
}

static void name_gpu(harpe_guarded_gpu *saved, const harpe_gpus *gpus, int gpu) {
    snprintf(saved->uuid, sizeof saved->uuid, "%s", harpe_gpu_info_at(gpus, gpu)->uuid);
}

static harpe_guard_header make_header(const harpe_gpus *gpus, size_t count, pid_t trainer) {
    harpe_guard_header header = {.magic = HARPE_GUARD_MAGIC,
                                 .version = HARPE_GUARD_VERSION,
                                 .gpu_size = sizeof(harpe_guarded_gpu),
                                 .gpu_count = (uint32_t)count,
                                 .trainer = (int32_t)trainer};
    snprintf(header.library_path, sizeof header.library_path, "%s", harpe_gpus_library_path(gpus));
    return header;
}

static harpe_status prepare(harpe_guard *guard, harpe_error *error) {
    guard->saved = harpe_calloc(guard->count, sizeof *guard->saved);
    if (!guard->saved) return harpe_fail_memory(error);
    for (size_t i = 0; i < guard->count; i++)
        name_gpu(&guard->saved[i], guard->gpus, (int)i);
    guard->header = make_header(guard->gpus, guard->count, harpe_process_self());
    return HARPE_OK;
}

harpe_status harpe_guard_lend(const harpe_gpus *gpus, int gpu, pid_t trainer, int starter,
                              const harpe_lease_terms *terms, int *socket, int32_t *started,
                              harpe_error *error) {
    harpe_guarded_gpu saved = {.is_saved = 0};
    harpe_guard_header header = make_header(gpus, 1, trainer);
    header.terms = *terms;
    name_gpu(&saved, gpus, gpu);
    int opened = -1;
    harpe_status status = start_process(&header, &saved, starter, NULL, &opened, error);
    if (status != HARPE_OK) return status;
    if (!harpe_helper_process_receive(opened, started, sizeof *started, ANSWER_MS)) {
        harpe_process_close(opened);
        return harpe_fail(error, HARPE_IO_ERROR, "the power limit guard has died at its start");
    }
    *socket = opened;
    return HARPE_OK;
}

harpe_status harpe_guard_start(harpe_gpus *gpus, harpe_log log, harpe_guard **out,
                               harpe_error *error) {
    harpe_guard *guard = harpe_calloc(1, sizeof *guard);
    if (!guard) return harpe_fail_memory(error);
    guard->gpus = gpus;
    guard->log = log;
    guard->count = (size_t)harpe_gpus_count(gpus);
    guard->socket = guard->end = -1;
    guard->owner = harpe_process_self();
    harpe_status status = prepare(guard, error);
    if (status == HARPE_OK)
        status =
            start_process(&guard->header, guard->saved, 0, &guard->is_over, &guard->socket, error);
    if (status == HARPE_OK) status = start_watcher(guard, error);
    if (status != HARPE_OK) {
        if (guard->socket >= 0)
            harpe_guard_stop(guard, true);
        else
            release(guard);
        return status;
    }
    *out = guard;
    return HARPE_OK;
}

/* Cleans up after a guard that has died and left its records. If the GPUs are restored, removes the
 * records. Otherwise starts another guard, which restores the GPUs at once. */
static void settle_without_guard(harpe_guard *guard, bool restored) {
    harpe_error error;
    if (!restored) {
        if (replace_process(guard, &error) != HARPE_OK) {
            harpe_log_line(&guard->log, HARPE_LOG_WARNING,
                           "power limits are not restored; run 'harpe gpus --restore': %s",
                           error.message);
        }
        return;
    }
    for (size_t i = 0; i < guard->count; i++)
        harpe_saved_settings_forget(guard->gpus, (int)i, HARPE_SAVED_POWER);
}

/* Returns true if a GPU has its saved settings. The trainer's handle restores only what it has
 * changed itself, but an earlier process for this trainer (of a lease, for example) may have set
 * the limit that the handle has found. If a frequency controller had changed the limit before the
 * guard started, only the guard knows which limit to restore. */
static bool is_back(const harpe_guard *guard, size_t i) {
    const harpe_guarded_gpu *saved = &guard->saved[i];
    uint32_t limit_mw = 0;
    bool is_persistent = false;
    if (saved->controlled_mw > 0 ||
        harpe_gpu_power_limit(guard->gpus, (int)i, &limit_mw, NULL) != HARPE_OK ||
        limit_mw != saved->limit_mw)
        return false;
    if (saved->persistence < 0) return true;
    return harpe_gpu_persistence_mode(guard->gpus, (int)i, &is_persistent, NULL) == HARPE_OK &&
           is_persistent == (saved->persistence == 1);
}

static bool are_all_back(const harpe_guard *guard) {
    for (size_t i = 0; i < guard->count; i++)
        if (!is_back(guard, i)) return false;
    return true;
}

void harpe_guard_stop(harpe_guard *guard, bool restored) {
    char byte = HARPE_GUARD_RESTORED;
    if (!guard) return;
    restored = restored && are_all_back(guard);
    if (guard->owner ==
        harpe_process_self()) { /* not in a forked child, which has no watcher thread */
        stop_watcher(guard);
        bool is_told = restored && harpe_helper_process_send(guard->socket, &byte, 1);
        if (!is_told && (restored || has_died(guard))) settle_without_guard(guard, restored);
    }
    release(guard);
}
