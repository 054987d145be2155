/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's side of the frequency controller: starts the controller's process, receives its
 * errors, starts another process if it dies, stops it, and passes clock requests to it. A request
 * must cost the training thread almost nothing. This file sets no clocks. */
#include "client/control.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/helper_process.h"
#include "base/log.h"
#include "base/process.h"
#include "base/wait.h"
#include "gpu/gpus.h"
#include "gpu/gpus_internal.h"

#define DWELL_S 0.01
#define POLL_S 20e-6
#define LONGEST_S 1e6
#define STOP_S 3.0

/* ---- Starting -------------------------------------------------------------------------------- */

static harpe_status check_duration(double duration_s, const char *name, harpe_error *error) {
    if (duration_s <= LONGEST_S) return HARPE_OK; /* also false for NaN */
    return harpe_fail(error, HARPE_INVALID_ARGUMENT, "frequency controller: %s cannot be %g", name,
                      duration_s);
}

static int64_t nanoseconds(double given_s, double default_s, int64_t when_negative) {
    if (given_s < 0) return when_negative;
    return (int64_t)((given_s > 0 ? given_s : default_s) * 1e9);
}

harpe_controller_header harpe_controller_header_for(const harpe_gpus *gpus, int gpu,
                                                    pid_t trainer) {
    harpe_controller_header header = {.magic = HARPE_CONTROLLER_MAGIC,
                                      .version = HARPE_CONTROLLER_VERSION,
                                      .slot_size = sizeof(harpe_controller_slot),
                                      .trainer = (int32_t)trainer};
    snprintf(header.uuid, sizeof header.uuid, "%s", harpe_gpu_info_at(gpus, gpu)->uuid);
    snprintf(header.library_path, sizeof header.library_path, "%s", harpe_gpus_library_path(gpus));
    return header;
}

static harpe_status fill_header(const harpe_frequency_controller_options *options,
                                harpe_controller_header *header, harpe_error *error) {
    *header = harpe_controller_header_for(options->gpus, options->gpu, harpe_process_self());
    header->dwell_ns = nanoseconds(options->minimum_dwell_s, DWELL_S, 0);
    header->poll_ns = nanoseconds(options->poll_interval_s, POLL_S, -1);
    header->keeps_power_limit = options->keeps_power_limit;
    return harpe_zeusd_find(options->zeusd_socket, &header->zeusd, error);
}

static harpe_status check_options(const harpe_frequency_controller_options *options,
                                  harpe_error *error) {
    harpe_gpu *gpu = NULL;
    if (!options || !options->gpus)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "frequency controller: no GPUs given");
    harpe_status status = harpe_gpus_find(options->gpus, options->gpu, &gpu, error);
    if (status == HARPE_OK)
        status = check_duration(options->minimum_dwell_s, "minimum_dwell_s", error);
    if (status == HARPE_OK)
        status = check_duration(options->poll_interval_s, "poll_interval_s", error);
    return status;
}

/* Makes shared memory without a name, so nothing remains in /dev/shm after the two processes have
 * ended for any reason. */
static harpe_status make_slot(harpe_frequency_controller *controller, harpe_error *error) {
    size_t size = sizeof *controller->slot;
    controller->memory =
        memfd_create("harpe-frequency-controller", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    /* A node agent accepts only memory that cannot shrink, because an access beyond its end would
     * kill the controller. */
    if (controller->memory < 0 || ftruncate(controller->memory, (off_t)size) != 0 ||
        fcntl(controller->memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return harpe_fail_errno(error, errno, "memory shared with the frequency controller");
    /* The memory is mapped with all its pages, so that the first request causes no page fault. */
    void *memory = harpe_process_map(controller->memory, size);
    if (!memory)
        return harpe_fail_errno(error, errno, "memory shared with the frequency controller");
    controller->slot = memory;
    return HARPE_OK;
}

harpe_status harpe_controller_start_process(const harpe_controller_header *header, int memory,
                                            int starter, int timeout_ms,
                                            const atomic_bool *gives_up, int *socket,
                                            int32_t *started, harpe_error *error) {
    struct iovec greeting = {(void *)header, sizeof *header};
    harpe_controller_message answer;
    harpe_helper_process process = {.name = "the frequency controller",
                                    .arguments = {HARPE_CONTROLLER_ARGUMENT},
                                    .memory = memory,
                                    .starter = starter,
                                    .greeting = &greeting,
                                    .greeting_count = 1,
                                    .answer = &answer,
                                    .answer_size = sizeof answer,
                                    .timeout_ms = timeout_ms,
                                    .gives_up = gives_up};
    int opened = -1;
    harpe_status status = harpe_helper_process_start(&process, &opened, error);
    if (status != HARPE_OK) return status;
    if (answer.error.status != HARPE_OK) {
        harpe_process_close(opened);
        answer.error.message[sizeof answer.error.message - 1] = '\0';
        if (error) *error = answer.error;
        return answer.error.status;
    }
    *started = answer.process;
    *socket = opened;
    return HARPE_OK;
}

/* Starts a process with the slot in its present state. `timeout_ms` and `gives_up` are those of
 * harpe_helper_process. */
static harpe_status start_own_process(harpe_frequency_controller *controller, int timeout_ms,
                                      const atomic_bool *gives_up, int *socket,
                                      harpe_error *error) {
    int32_t started = 0;
    harpe_status status = harpe_controller_start_process(
        &controller->header, controller->memory, 0, timeout_ms, gives_up, socket, &started, error);
    if (status == HARPE_OK) atomic_store(&controller->process, started);
    return status;
}

/* Takes a lease from the node agent. The agent's controller gets the slot in its present state. */
static harpe_status borrow_controller(harpe_frequency_controller *controller, int timeout_ms,
                                      const atomic_bool *gives_up, int *socket,
                                      harpe_error *error) {
    harpe_lease_request request = {.uuid = controller->header.uuid,
                                   .control = HARPE_SAVED_CLOCKS,
                                   .memory = controller->memory,
                                   .dwell_ns = controller->header.dwell_ns,
                                   .poll_ns = controller->header.poll_ns,
                                   .timeout_ms = timeout_ms,
                                   .gives_up = gives_up};
    harpe_lease lease;
    harpe_status status = harpe_lease_take(controller->agent, &request, &lease, error);
    if (status != HARPE_OK) return status;
    atomic_store(&controller->process, lease.process);
    controller->terms = lease.terms;
    *socket = lease.socket;
    return HARPE_OK;
}

static harpe_status start_process(harpe_frequency_controller *controller, int timeout_ms,
                                  const atomic_bool *gives_up, int *socket, harpe_error *error) {
    return controller->agent[0]
               ? borrow_controller(controller, timeout_ms, gives_up, socket, error)
               : start_own_process(controller, timeout_ms, gives_up, socket, error);
}

/* Starts the first process. If no agent answers at the agent's socket, this trainer starts the
 * process itself. If the driver then denies permission, the error says why no agent could be
 * used. */
static harpe_status start_first(harpe_frequency_controller *controller, harpe_error *error) {
    harpe_error unreachable;
    const atomic_bool *gives_up = controller->gives_up;
    if (controller->agent[0] == '\0')
        return start_own_process(controller, 0, gives_up, &controller->socket, error);
    harpe_status status =
        borrow_controller(controller, 0, gives_up, &controller->socket, &unreachable);
    if (status == HARPE_OK) return HARPE_OK;
    if (status == HARPE_UNAVAILABLE) {
        controller->agent[0] = '\0';
        status = start_own_process(controller, 0, gives_up, &controller->socket, error);
        if (status != HARPE_PERMISSION_DENIED) return status;
    }
    return harpe_fail(error, status, "%s", unreachable.message);
}

static void release(harpe_frequency_controller *controller) {
    harpe_process_unmap(controller->slot, sizeof *controller->slot);
    if (controller->memory >= 0) close(controller->memory);
    if (controller->socket >= 0) harpe_process_close(controller->socket);
    free(controller);
}

harpe_status
harpe_frequency_controller_start_unless(const harpe_frequency_controller_options *options,
                                        const atomic_bool *gives_up,
                                        harpe_frequency_controller **out, harpe_error *error) {
    harpe_status status = check_options(options, error);
    if (status != HARPE_OK) return status;
    harpe_frequency_controller *controller = harpe_calloc(1, sizeof *controller);
    if (!controller) return harpe_fail_memory(error);
    controller->socket = controller->memory = -1;
    controller->owner = harpe_process_self();
    controller->stop_s = STOP_S;
    controller->gives_up = gives_up;
    controller->log = options->log;
    status = fill_header(options, &controller->header, error);
    if (status == HARPE_OK) status = make_slot(controller, error);
    if (status == HARPE_OK)
        atomic_store(&controller->slot->may_anticipate, options->may_anticipate);
    if (status == HARPE_OK && !harpe_zeusd_is_given(&controller->header.zeusd.place))
        (void)harpe_lease_find_agent(options->gpus, controller->agent);
    if (status == HARPE_OK) status = start_first(controller, error);
    if (status != HARPE_OK) {
        release(controller);
        return status;
    }
    *out = controller;
    return HARPE_OK;
}

harpe_status harpe_frequency_controller_start(const harpe_frequency_controller_options *options,
                                              harpe_frequency_controller **out,
                                              harpe_error *error) {
    return harpe_frequency_controller_start_unless(options, NULL, out, error);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

bool harpe_frequency_controller_has_died(const harpe_frequency_controller *controller) {
    int events = harpe_events_now(controller->socket, POLLRDHUP);
    return (events & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

harpe_status harpe_frequency_controller_check(harpe_frequency_controller *controller,
                                              harpe_error *error) {
    if (!controller || controller->owner != harpe_process_self()) return HARPE_OK;
    harpe_controller_message message;
    ssize_t got = recv(controller->socket, &message, sizeof message, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return HARPE_OK;
    bool has_ended = got != (ssize_t)sizeof message || (message.news == HARPE_CONTROLLER_RESTORED &&
                                                        message.error.status == HARPE_OK);
    if (has_ended && controller->agent[0]) {
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "the node agent's lease has ended (process %d): the agent restores the "
                          "clocks",
                          (int)atomic_load(&controller->process));
    }
    if (got != (ssize_t)sizeof message) {
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "the frequency controller (process %d) has died: clocks stay as they are",
                          (int)atomic_load(&controller->process));
    }
    message.error.message[sizeof message.error.message - 1] = '\0';
    if (error) *error = message.error;
    return message.error.status;
}

/* Starts a process to replace the one that has died. */
static harpe_status replace_process(harpe_frequency_controller *controller, int timeout_ms,
                                    const atomic_bool *gives_up, harpe_error *error) {
    int socket = -1;
    harpe_status status = start_process(controller, timeout_ms, gives_up, &socket, error);
    if (status != HARPE_OK) return status;
    /* The descriptor keeps its number, because another thread may be reading from it. */
    if (dup3(socket, controller->socket, O_CLOEXEC) < 0)
        status = harpe_fail_errno(error, errno, "restarting the frequency controller");
    harpe_process_close(socket);
    (void)harpe_process_holds(controller->socket);
    return status;
}

harpe_status harpe_frequency_controller_restart(harpe_frequency_controller *controller,
                                                harpe_error *error) {
    if (!harpe_frequency_controller_has_died(controller)) {
        return harpe_fail(error, HARPE_ALREADY_EXISTS,
                          "the frequency controller (process %d) is still there",
                          (int)atomic_load(&controller->process));
    }
    return replace_process(controller, 0, controller->gives_up, error);
}

/* ---- The end --------------------------------------------------------------------------------- */

static int milliseconds_until(double time_s) {
    double left_s = time_s - harpe_clock_s();
    return left_s > 0 ? (int)(left_s * 1e3) + 1 : 1;
}

/* Reads until the process has sent its result, and ignores all messages before it. Returns false if
 * the result has not come at `give_up_at`, or if the process has ended without a result. */
static bool hears_the_end(const harpe_frequency_controller *controller, double give_up_at,
                          bool *is_restored) {
    harpe_controller_message message;
    do {
        if (!harpe_helper_process_receive(controller->socket, &message, sizeof message,
                                          milliseconds_until(give_up_at)))
            return false;
    } while (message.news != HARPE_CONTROLLER_RESTORED);
    message.error.message[sizeof message.error.message - 1] = '\0';
    *is_restored = message.error.status == HARPE_OK;
    if (!*is_restored)
        harpe_log_line(&controller->log, HARPE_LOG_WARNING, "%s", message.error.message);
    /* Waits until the process has ended. */
    (void)harpe_helper_process_receive(controller->socket, &message, sizeof message,
                                       milliseconds_until(give_up_at));
    return true;
}

/* Makes the controller restore the GPU. If the controller is dead, starts a new controller, which
 * restores the GPU. Tries this twice at most, because the new controller may die too. After
 * controller->stop_s seconds, returns in any case; a controller that is still running goes on
 * alone. Returns true if the GPU is restored. */
static bool restore(harpe_frequency_controller *controller) {
    bool is_restored = false;
    double give_up_at = harpe_clock_s() + controller->stop_s;
    bool has_died = harpe_frequency_controller_has_died(controller);
    for (int tries = 0; tries < 2; tries++) {
        harpe_error error;
        if (has_died && replace_process(controller, milliseconds_until(give_up_at), NULL, &error)) {
            harpe_log_line(&controller->log, HARPE_LOG_WARNING, "%s", error.message);
            return false;
        }
        (void)shutdown(controller->socket, SHUT_WR);
        if (hears_the_end(controller, give_up_at, &is_restored)) return is_restored;
        has_died = harpe_frequency_controller_has_died(controller);
        if (!has_died) break;
    }
    harpe_log_line(
        &controller->log, HARPE_LOG_WARNING,
        "the frequency controller has not reported in %.0f s that the GPU is restored: it "
        "continues alone, and writes a failure to the system's log",
        controller->stop_s);
    return false;
}

bool harpe_frequency_controller_restores(harpe_frequency_controller *controller) {
    if (!controller) return true;
    bool is_restored = controller->owner != harpe_process_self() || restore(controller);
    release(controller);
    return is_restored;
}

void harpe_frequency_controller_stop(harpe_frequency_controller *controller) {
    (void)harpe_frequency_controller_restores(controller);
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* Wakes a parked controller. */
static void wake(harpe_controller_slot *slot) {
    if (atomic_exchange(&slot->is_parked, 0) == 0) return;
    harpe_wake(&slot->is_parked);
}

static void store_request(harpe_controller_slot *slot, int frequency_mhz, int64_t now_ns) {
    uint64_t clock_requests = atomic_load_explicit(&slot->clock_requests, memory_order_relaxed);
    atomic_store_explicit(&slot->clock_requests, clock_requests + 1, memory_order_relaxed);
    atomic_store(&slot->request, harpe_clock_request_make(now_ns, frequency_mhz));
    if (atomic_load(&slot->is_parked) == 0) return;
    atomic_fetch_add_explicit(&slot->wakes, 1, memory_order_relaxed);
    wake(slot);
}

/* The request is stored before is_parked is read, and the controller stores is_parked before its
 * last read of the request (both sequentially consistent). So at least one side sees the other's
 * store. */
void harpe_frequency_controller_set(harpe_frequency_controller *controller, int frequency_mhz) {
    if (!controller) return;
    store_request(controller->slot, frequency_mhz, harpe_clock_ns());
}

/* ---- Positions ------------------------------------------------------------------------------- */

static void store_note(harpe_controller_slot *slot, int64_t now_ns, uint64_t what) {
    uint64_t count = atomic_load_explicit(&slot->note_count, memory_order_relaxed);
    harpe_position_note *note = &slot->notes[count % HARPE_CONTROLLER_NOTES];
    atomic_store_explicit(&note->time_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&note->what, what, memory_order_relaxed);
    atomic_store_explicit(&slot->note_count, count + 1, memory_order_release);
}

/* Stores a note of the instruction, and after it the clock request, if there is one. Both have the
 * same time, so a controller that sees the request also finds the note, and knows that they belong
 * together. */
void harpe_controller_begin_instruction(harpe_frequency_controller *controller, int frequency_mhz,
                                        int64_t series, uint32_t position) {
    if (!controller) return;
    int64_t now_ns = harpe_clock_ns();
    store_note(controller->slot, now_ns,
               harpe_position_make(true, series, position, frequency_mhz));
    if (frequency_mhz > 0) store_request(controller->slot, frequency_mhz, now_ns);
}

void harpe_controller_end_instruction(harpe_frequency_controller *controller) {
    if (!harpe_controller_wants_ends(controller)) return;
    store_note(controller->slot, harpe_clock_ns(), harpe_position_make(false, 0, 0, 0));
}

/* ---- Obedience ------------------------------------------------------------------------------- */

harpe_frequency_controller_obedience
harpe_frequency_controller_obeys(const harpe_frequency_controller *controller) {
    if (!controller) return (harpe_frequency_controller_obedience){.looks = 0};
    const harpe_controller_slot *slot = controller->slot;
    return (harpe_frequency_controller_obedience){
        .looks = atomic_load(&slot->looks),
        .disobeyed = atomic_load(&slot->disobeyed),
        .disobeys = atomic_load(&slot->disobeys) != 0,
        .wanted_mhz = (int)atomic_load(&slot->wanted_mhz),
        .held_mhz = (int)atomic_load(&slot->held_mhz),
        .reasons = atomic_load(&slot->reasons),
    };
}

/* ---- Late clocks ----------------------------------------------------------------------------- */

size_t harpe_frequency_controller_switch_latencies(const harpe_frequency_controller *controller,
                                                   harpe_switch_latency *latencies,
                                                   size_t capacity) {
    size_t count = 0;
    for (size_t i = 0; controller && i < HARPE_SWITCH_TARGETS; i++) {
        harpe_switch_entry entry = harpe_switch_entry_at(&controller->slot->switch_table, i);
        if (entry.mhz == 0) break;
        if (count < capacity) {
            latencies[count] = (harpe_switch_latency){.frequency_mhz = (int)entry.mhz,
                                                      .samples = (int)entry.samples,
                                                      .latency_s = entry.median_us * 1e-6,
                                                      .latency_p95_s = entry.p95_us * 1e-6};
        }
        count++;
    }
    return count;
}

harpe_frequency_controller_anticipation
harpe_frequency_controller_anticipates(const harpe_frequency_controller *controller) {
    if (!controller) return (harpe_frequency_controller_anticipation){.anticipated = 0};
    const harpe_controller_slot *slot = controller->slot;
    return (harpe_frequency_controller_anticipation){
        .is_active = atomic_load(&slot->wants_ends) != 0,
        .anticipated = atomic_load(&slot->anticipated),
        .returned = atomic_load(&slot->returned),
    };
}

/* ---- Counts ---------------------------------------------------------------------------------- */

static void summarize_latencies(const harpe_controller_slot *slot,
                                harpe_frequency_controller_counts *counts) {
    size_t count = counts->written < HARPE_CONTROLLER_LATENCIES ? (size_t)counts->written
                                                                : HARPE_CONTROLLER_LATENCIES;
    uint32_t *sorted = count > 0 ? malloc(count * sizeof *sorted) : NULL;
    if (!sorted) return;
    for (size_t i = 0; i < count; i++)
        sorted[i] = atomic_load_explicit(&slot->latency_ns[i], memory_order_relaxed);
    qsort(sorted, count, sizeof *sorted, harpe_compare_uint32);
    size_t median = count / 2;
    size_t p99 = (count - 1) * 99 / 100;
    counts->latency_median_s = sorted[median] * 1e-9;
    counts->latency_p99_s = sorted[p99] * 1e-9;
    counts->latency_maximum_s = sorted[count - 1] * 1e-9;
    free(sorted);
}

harpe_frequency_controller_counts
harpe_frequency_controller_count(const harpe_frequency_controller *controller) {
    harpe_frequency_controller_counts counts = {0};
    if (!controller) return counts;
    const harpe_controller_slot *slot = controller->slot;
    uint64_t taken = atomic_load(&slot->taken);
    bool one_waits = atomic_load(&slot->request) != atomic_load(&slot->taken_request);
    counts.clock_requests = atomic_load(&slot->clock_requests);
    counts.written = atomic_load(&slot->written);
    counts.skipped = atomic_load(&slot->skipped);
    counts.failed = atomic_load(&slot->failed);
    /* The counts may change between these reads, so the difference may be negative. */
    counts.superseded =
        counts.clock_requests > taken + one_waits ? counts.clock_requests - taken - one_waits : 0;
    summarize_latencies(slot, &counts);
    return counts;
}

/* ---- Requests to the driver ------------------------------------------------------------------ */

/* A reader copies the ring of requests, and then leaves out those that the writer may have replaced
 * during the copy. Each request is stored with release and loaded with acquire. So a reader that
 * has loaded a new request also sees the count that the writer stored before this request, or a
 * larger one. */

void harpe_clock_asks_add(harpe_controller_slot *slot, uint64_t at_us, uint32_t mhz) {
    uint64_t count = atomic_load_explicit(&slot->ask_count, memory_order_relaxed);
    atomic_store_explicit(&slot->asks[count % HARPE_CONTROLLER_ASKS], at_us << 16 | (mhz & 0xFFFF),
                          memory_order_release);
    atomic_store_explicit(&slot->ask_count, count + 1, memory_order_release);
}

/* Returns the number of the oldest request that is certainly still in the ring if `count` requests
 * are complete. The writer may already be replacing the request before it. */
static uint64_t oldest_whole(uint64_t count) {
    return count < HARPE_CONTROLLER_ASKS ? 0 : count + 1 - HARPE_CONTROLLER_ASKS;
}

size_t harpe_clock_asks_copy(const harpe_controller_slot *slot, harpe_clock_ask *asks,
                             bool *has_lost) {
    uint64_t end = atomic_load_explicit(&slot->ask_count, memory_order_acquire);
    uint64_t first = oldest_whole(end);
    for (uint64_t i = first; i < end; i++) {
        uint64_t ask =
            atomic_load_explicit(&slot->asks[i % HARPE_CONTROLLER_ASKS], memory_order_acquire);
        asks[i - first] = (harpe_clock_ask){.asked_us = ask >> 16, .mhz = ask & 0xFFFF};
    }
    uint64_t now = atomic_load_explicit(&slot->ask_count, memory_order_relaxed);
    uint64_t whole = oldest_whole(now);
    if (whole > end) whole = end;
    size_t replaced = whole > first ? (size_t)(whole - first) : 0;
    size_t count = (size_t)(end - first) - replaced;
    memmove(asks, asks + replaced, count * sizeof *asks);
    *has_lost = first + replaced > 0;
    return count;
}
