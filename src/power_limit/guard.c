/* SPDX-License-Identifier: Apache-2.0 */
/* Both sides of the guard of power limits, and the claims on its GPUs.
 *
 * The trainer's side starts the guard, replaces it if it dies, and dismisses it; it restores
 * nothing itself. The guard's side claims the GPUs, records their settings, waits for the trainer's
 * end, and restores the GPUs if the trainer has not restored them. Its process runs the program
 * harpe, or the node agent's program, and does no other work. While the trainer runs, the guard
 * changes nothing, except settings that a dead job has left changed. */
#include "power_limit/guard.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <syslog.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/helper_process.h"
#include "base/log.h"
#include "base/process.h"
#include "base/wait.h"
#include "gpu/gpus.h"

/* ---- Claims: all or none --------------------------------------------------------------------- */

#define CLAIM_TIMEOUT_S 10.0

/* Returns the power limit that a frequency controller has found and will restore. Returns 0 if no
 * controller has changed the GPU's power limit. */
static uint32_t limit_beneath(const harpe_gpus *gpus, int gpu) {
    harpe_saved_settings found;
    return harpe_saved_settings_find(gpus, gpu, HARPE_SAVED_CLOCKS, &found, NULL)
               ? found.power_limit_mw
               : 0;
}

/* Reads the limit to restore. Reads it again if a controller has come or gone meanwhile. */
static harpe_status look_at_limit(harpe_gpus *gpus, int gpu, harpe_guarded_gpu *saved,
                                  harpe_error *error) {
    uint32_t before_mw;
    uint32_t limit_mw = 0;
    uint32_t after_mw = limit_beneath(gpus, gpu);
    do {
        before_mw = after_mw;
        harpe_status status = harpe_gpu_power_limit(gpus, gpu, &limit_mw, error);
        if (status != HARPE_OK) return status;
        after_mw = limit_beneath(gpus, gpu);
    } while (after_mw != before_mw);
    saved->limit_mw = after_mw > 0 ? after_mw : limit_mw;
    saved->controlled_mw = after_mw > 0 ? limit_mw : 0;
    return HARPE_OK;
}

/* Reads the settings to restore later. These are the present settings, unless an earlier process
 * for the same trainer or a frequency controller has recorded others. */
static harpe_status look(const harpe_holding *holding, harpe_guarded_gpu *saved,
                         harpe_error *error) {
    harpe_gpus *gpus = holding->gpus;
    int gpu = holding->gpu;
    if (saved->is_saved) return HARPE_OK;
    if (holding->is_continued) {
        saved->limit_mw = holding->record.state.power_limit_mw;
        saved->persistence = holding->record.state.persistence;
        saved->controlled_mw = 0;
        if (limit_beneath(gpus, gpu) > 0)
            (void)harpe_gpu_default_power_limit(gpus, gpu, &saved->controlled_mw, NULL);
    } else {
        bool is_enabled = false;
        harpe_status status = look_at_limit(gpus, gpu, saved, error);
        if (status != HARPE_OK) return status;
        bool is_known = harpe_gpu_persistence_mode(gpus, gpu, &is_enabled, NULL) == HARPE_OK;
        saved->persistence = is_known ? is_enabled : -1;
    }
    saved->is_saved = 1;
    return HARPE_OK;
}

/* Finds the GPU by UUID and not by number, because the guard sees all GPUs, and the trainer sees
 * only the GPUs in CUDA_VISIBLE_DEVICES. */
static harpe_status take_one(harpe_gpus *gpus, const harpe_holding_options *options,
                             harpe_guarded_gpu *saved, harpe_holding **out, harpe_error *error) {
    harpe_holding *holding = NULL;
    int gpu = harpe_gpus_find_uuid(gpus, saved->uuid);
    if (gpu < 0) return harpe_fail(error, HARPE_NOT_FOUND, "there is no GPU %s", saved->uuid);
    harpe_status status = harpe_holding_take(gpus, gpu, options, &holding, error);
    if (status != HARPE_OK) return status;
    harpe_saved_settings *state = &holding->record.state;
    status = look(holding, saved, error);
    if (status == HARPE_OK) {
        state->power_limit_mw = saved->limit_mw;
        state->persistence = saved->persistence;
        status = harpe_holding_save(holding, error);
    }
    if (status == HARPE_OK)
        *out = holding;
    else
        harpe_holding_release(holding);
    return status;
}

harpe_guarded_gpu *harpe_guarded_gpus_new(const harpe_gpus *gpus) {
    harpe_guarded_gpu *saved = harpe_calloc((size_t)harpe_gpus_count(gpus), sizeof *saved);
    for (int i = 0; saved && i < harpe_gpus_count(gpus); i++)
        snprintf(saved[i].uuid, sizeof saved[i].uuid, "%s", harpe_gpu_info_at(gpus, i)->uuid);
    return saved;
}

harpe_status harpe_power_claims_take(harpe_gpus *gpus, harpe_guarded_gpu *saved, size_t count,
                                     pid_t trainer, bool (*gives_up)(void *user),
                                     harpe_power_claims *out, harpe_error *error) {
    harpe_holding_options options = {.kind = HARPE_SAVED_POWER,
                                     .trainer = trainer,
                                     .timeout_s = CLAIM_TIMEOUT_S,
                                     .gives_up = gives_up};
    harpe_saved_settings_recovery recovery = {.report = harpe_saved_settings_report_to_syslog};
    harpe_power_claims claims = {.each = harpe_calloc(count, sizeof *claims.each)};
    if (!claims.each) return harpe_fail_memory(error);
    /* A failure on a GPU of another job does not matter here; the claim reports failures on the
     * job's own GPUs. */
    (void)harpe_saved_settings_recover(gpus, &recovery, NULL);
    harpe_status status = HARPE_OK;
    while (status == HARPE_OK && claims.count < count) {
        size_t i = claims.count;
        status = take_one(gpus, &options, &saved[i], &claims.each[i], error);
        if (status == HARPE_OK) claims.count++;
    }
    if (status == HARPE_OK) {
        for (size_t i = 0; i < count; i++)
            claims.each[i]->changed = HARPE_ALL_SETTINGS; /* the trainer may change them now */
        *out = claims;
        return HARPE_OK;
    }
    harpe_power_claims_release(&claims, false); /* records of an earlier process stay */
    return status;
}

void harpe_power_claims_release(harpe_power_claims *claims, bool restored) {
    for (size_t i = 0; i < claims->count; i++) {
        if (claims->each[i] && restored) claims->each[i]->changed = 0;
        harpe_holding_release(claims->each[i]);
    }
    free(claims->each);
    *claims = (harpe_power_claims){0};
}

/* ---- The guard process ----------------------------------------------------------------------- */

#define TRY_FOR_S 30.0

/* The restoration of one GPU, on a thread of its own. */
typedef struct restoration {
    const harpe_guarded_gpu *saved;
    harpe_holding *holding;
    double try_for_s;
    pthread_t thread;
} restoration;

typedef struct guarded {
    harpe_lease_terms terms;
    harpe_guarded_gpu *saved;
    size_t count;
    harpe_gpus *gpus;
    harpe_power_claims claims;
    restoration *restorations; /* allocated before they are needed */
} guarded;

/* ---- The guard process: taking over ---------------------------------------------------------- */

static bool receive(void *data, size_t size) {
    return harpe_helper_process_receive(harpe_helper_socket(), data, size, -1);
}

static harpe_status receive_header(harpe_guard_header *header, harpe_error *error) {
    if (!receive(header, sizeof *header) || header->magic != HARPE_GUARD_MAGIC)
        return harpe_fail(error, HARPE_INVALID_INPUT, "not started by a power limit optimizer");
    if (header->version != HARPE_GUARD_VERSION || header->gpu_size != sizeof(harpe_guarded_gpu)) {
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "the program harpe is of another version than the library");
    }
    if (header->gpu_count < 1 || header->gpu_count > HARPE_GUARD_GPU_LIMIT) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "from 1 to %d GPUs can be guarded, not %u",
                          HARPE_GUARD_GPU_LIMIT, header->gpu_count);
    }
    header->library_path[sizeof header->library_path - 1] = '\0';
    if (header->terms.is_lease) return harpe_helper_process_end_on_signal(error);
    return HARPE_OK;
}

static harpe_status receive_gpus(guarded *all, size_t count, harpe_error *error) {
    all->count = count;
    all->saved = harpe_calloc(all->count, sizeof *all->saved);
    all->restorations = harpe_calloc(all->count, sizeof *all->restorations);
    if (!all->saved || !all->restorations) return harpe_fail_memory(error);
    if (!receive(all->saved, all->count * sizeof *all->saved))
        return harpe_fail(error, HARPE_INVALID_INPUT, "the optimizer ended too early");
    for (size_t i = 0; i < count; i++)
        all->saved[i].uuid[sizeof all->saved[i].uuid - 1] = '\0';
    return HARPE_OK;
}

static bool trainer_is_gone(void *user) {
    (void)user;
    return harpe_helper_process_wait(0);
}

static harpe_status take_over(guarded *all, harpe_error *error) {
    harpe_guard_header header;
    harpe_status status = receive_header(&header, error);
    if (status == HARPE_OK) all->terms = header.terms;
    if (status == HARPE_OK) status = receive_gpus(all, header.gpu_count, error);
    if (status == HARPE_OK) {
        harpe_gpus_options options = {.library_path =
                                          header.library_path[0] ? header.library_path : NULL,
                                      .visible_devices = "all"};
        status = harpe_gpus_open(&options, &all->gpus, error);
    }
    if (status != HARPE_OK) return status;
    return harpe_power_claims_take(all->gpus, all->saved, all->count, (pid_t)header.trainer,
                                   trainer_is_gone, &all->claims, error);
}

/* ---- The guard process: waiting -------------------------------------------------------------- */

/* Waits until the trainer sends a message, closes its end, or dies. Returns true if the trainer
 * has reported that everything is restored. */
static bool wait_for_end(void) {
    char byte = 0;
    (void)harpe_helper_process_wait(-1);
    return harpe_helper_process_receive(harpe_helper_socket(), &byte, 1, 0) &&
           byte == HARPE_GUARD_RESTORED;
}

/* ---- The guard process: requests of the holder of a lease ------------------------------------ */

static harpe_status carry_out(const guarded *all, const harpe_lease_power_request *request,
                              harpe_error *error) {
    int gpu = all->claims.each[0]->gpu;
    harpe_status status;
    switch (request->setting) {
    case HARPE_LEASE_POWER_LIMIT:
        status = harpe_lease_terms_check(&all->terms, HARPE_SET_POWER_LIMIT, request->value, error);
        if (status != HARPE_OK) return status;
        return harpe_gpu_set_power_limit(all->gpus, gpu, request->value, error);
    case HARPE_LEASE_PERSISTENCE:
        return harpe_gpu_set_persistence_mode(all->gpus, gpu, request->value != 0, error);
    default:
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "there is no setting %u",
                          request->setting);
    }
}

/* Carries out requests until the lease ends. Waits between two requests if the terms limit the
 * number of changes per second. */
static void serve_holder(const guarded *all) {
    harpe_lease_power_request request;
    int64_t not_before_ns = 0;
    for (;;) {
        (void)harpe_helper_process_wait(-1);
        int64_t pause_ns = not_before_ns - harpe_clock_ns();
        int pause_ms = pause_ns > 0 ? (int)(pause_ns / 1000000) + 1 : 0;
        if (harpe_helper_process_is_over_within(pause_ms)) return;
        if (!harpe_helper_process_receive(harpe_helper_socket(), &request, sizeof request, 0))
            return;
        harpe_error result = {.status = HARPE_OK};
        result.status = carry_out(all, &request, &result);
        not_before_ns = harpe_clock_ns() + all->terms.shortest_change_ns;
        /* Ends the lease of a holder that does not read its answers. While the guard waited for
         * such a holder, it would not notice the holder's end. */
        if (!harpe_helper_process_send_now(harpe_helper_socket(), &result, sizeof result)) return;
    }
}

/* ---- The guard process: restoring ------------------------------------------------------------ */

/* Finds the limit that the GPU must have now. Returns false if a frequency controller is about to
 * restore the limit that it has found. */
static bool revise(void *user, harpe_saved_settings *state) {
    const restoration *one = user;
    harpe_saved_settings found;
    bool is_in_use = false;
    bool is_controlled = one->saved->controlled_mw > 0 &&
                         harpe_saved_settings_find(one->holding->gpus, one->holding->gpu,
                                                   HARPE_SAVED_CLOCKS, &found, &is_in_use) &&
                         found.power_limit_mw > 0;
    state->power_limit_mw = is_controlled ? one->saved->controlled_mw : one->saved->limit_mw;
    return !is_controlled || is_in_use;
}

static void *restore_gpu(void *argument) {
    restoration *one = argument;
    harpe_saved_settings state = one->holding->record.state;
    harpe_error error;
    harpe_restoration how = {.gpus = one->holding->gpus,
                             .gpu = one->holding->gpu,
                             .state = &state,
                             .which = HARPE_ALL_SETTINGS,
                             .try_for_s = one->try_for_s,
                             .revise = revise,
                             .user = one};
    if (harpe_restore(&how, &error) == HARPE_OK)
        one->holding->changed = 0;
    else if (one->try_for_s > 0)
        syslog(LOG_USER | LOG_ERR, "harpe: a GPU's power limit could not be restored: %s",
               error.message);
    return NULL;
}

/* Restores all GPUs at the same time, because slow driver calls one after the other would take too
 * long. Removes the record of each restored GPU, even if another GPU could not be restored. Returns
 * true if all are restored. */
static bool restore(guarded *all, double try_for_s) {
    restoration *each = all->restorations;
    bool all_restored = true;
    for (size_t i = 0; i < all->count; i++) {
        each[i] = (restoration){&all->saved[i], all->claims.each[i], try_for_s, pthread_self()};
        if (each[i].holding &&
            harpe_thread_start(&each[i].thread, "harpe-restore", restore_gpu, &each[i]) != 0) {
            each[i].thread = pthread_self();
            (void)restore_gpu(&each[i]);
        }
    }
    for (size_t i = 0; i < all->count; i++) {
        if (!pthread_equal(each[i].thread, pthread_self())) harpe_thread_join(each[i].thread);
        if (!each[i].holding) continue;
        all_restored = all_restored && each[i].holding->changed == 0;
        if (each[i].holding->changed && try_for_s == 0) continue;
        harpe_holding_release(each[i].holding);
        all->claims.each[i] = NULL;
    }
    return all_restored;
}

/* Waits for the end. Returns true if the trainer has restored everything. Even then the guard looks
 * at the GPUs: the trainer's handle restores only what it has changed itself, and an earlier
 * process for this trainer (of a lease, for example) may have set the limit that it has found. */
static bool wait_until_over(const guarded *all) {
    if (!all->terms.is_lease) return wait_for_end();
    int32_t process = (int32_t)harpe_process_self();
    if (harpe_helper_process_send(harpe_helper_socket(), &process, sizeof process))
        serve_holder(all);
    return false;
}

int harpe_power_limit_guard_main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    guarded all = {0};
    harpe_error error = {.status = HARPE_OK};
    harpe_helper_process_begin();
    harpe_status status = take_over(&all, &error);
    error.status = status;
    /* If the trainer is gone, the code below notices it. */
    (void)harpe_helper_process_send(harpe_helper_socket(), &error, sizeof error);
    int code = EXIT_FAILURE;
    if (status == HARPE_OK) {
        (void)harpe_helper_process_send(harpe_helper_socket(), all.saved,
                                        all.count * sizeof *all.saved);
        harpe_helper_process_leave_directory();
        bool is_restored = wait_until_over(&all) && restore(&all, 0);
        if (is_restored || restore(&all, TRY_FOR_S)) code = EXIT_SUCCESS;
        harpe_power_claims_release(&all.claims, false);
    }
    harpe_gpus_close(all.gpus);
    free(all.saved);
    free(all.restorations);
    return code;
}

/* ---- The trainer's side ---------------------------------------------------------------------- */

#define FIRST_PAUSE_S 0.1
#define LONGEST_PAUSE_S 30.0
#define SHORT_LIFE_S 1.0 /* a guard that has lived this long is replaced without delay */

enum { ANSWER_MS = 5000 };

struct harpe_guard {
    harpe_gpus *gpus;
    harpe_log log;
    harpe_guard_header header;
    harpe_guarded_gpu *saved; /* for each GPU, known after the first guard has started */
    int socket;
    int end; /* eventfd, readable when the guard is to be dismissed */
    pid_t owner;
    pthread_t watcher;
    bool has_watcher;
    atomic_bool is_over;
};

/* ---- The trainer's side: one guard process --------------------------------------------------- */

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

/* ---- The trainer's side: watching ------------------------------------------------------------ */

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

/* ---- The trainer's side: start and end ------------------------------------------------------- */

static void release(harpe_guard *guard) {
    if (guard->socket >= 0) harpe_process_close(guard->socket);
    if (guard->end >= 0) close(guard->end);
    free(guard->saved);
    free(guard);
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

harpe_status harpe_guard_lend(const harpe_gpus *gpus, int gpu, pid_t trainer, int starter,
                              const harpe_lease_terms *terms, int *socket, int32_t *started,
                              harpe_error *error) {
    harpe_guarded_gpu saved = {.is_saved = 0};
    harpe_guard_header header = make_header(gpus, 1, trainer);
    header.terms = *terms;
    snprintf(saved.uuid, sizeof saved.uuid, "%s", harpe_gpu_info_at(gpus, gpu)->uuid);
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
    guard->socket = guard->end = -1;
    guard->owner = harpe_process_self();
    guard->saved = harpe_guarded_gpus_new(gpus);
    guard->header = make_header(gpus, (size_t)harpe_gpus_count(gpus), guard->owner);
    harpe_status status = guard->saved ? start_process(&guard->header, guard->saved, 0,
                                                       &guard->is_over, &guard->socket, error)
                                       : harpe_fail_memory(error);
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

void harpe_guard_stop(harpe_guard *guard, bool restored) {
    char byte = HARPE_GUARD_RESTORED;
    harpe_error error;
    if (!guard) return;
    if (guard->owner ==
        harpe_process_self()) { /* not in a forked child, which has no watcher thread */
        stop_watcher(guard);
        bool is_there = !has_died(guard) || replace_process(guard, &error) == HARPE_OK;
        if (!is_there && !restored)
            harpe_log_line(&guard->log, HARPE_LOG_WARNING,
                           "power limits are not restored; run 'harpe gpus --restore': %s",
                           error.message);
        if (is_there && restored) (void)harpe_helper_process_send(guard->socket, &byte, 1);
    }
    release(guard);
}
