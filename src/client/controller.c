/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's side of the frequency controller: starting its process, hearing of its troubles,
 * another one after its death, the end. Wishes go through controller_slot.c; no clock is set
 * here. */
#include "client/controller.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/side_process.h"
#include "gpu/gpus.h"

#define DWELL_S 0.01
#define POLL_S 20e-6
#define LONGEST_S 1e6
#define STOP_S 3.0 /* all of a stop */

/* ---- Starting ------------------------------------------------------------------------------- */

static harpe_status check_duration(double duration_s, const char *name, harpe_error *error) {
    if (duration_s <= LONGEST_S) return HARPE_OK; /* and it is a number */
    return harpe_fail(error, HARPE_INVALID_ARGUMENT, "frequency controller: %s cannot be %g", name,
                      duration_s);
}

static int64_t nanoseconds(double given_s, double default_s, int64_t when_negative) {
    if (given_s < 0) return when_negative;
    return (int64_t)((given_s > 0 ? given_s : default_s) * 1e9);
}

static harpe_status fill_header(const harpe_frequency_controller_options *options,
                                harpe_controller_header *header, harpe_error *error) {
    const char *socket =
        options->zeusd_socket ? options->zeusd_socket : secure_getenv("ZEUSD_SOCK_PATH");
    *header = (harpe_controller_header){
        .magic = HARPE_CONTROLLER_MAGIC,
        .version = HARPE_CONTROLLER_VERSION,
        .slot_size = sizeof(harpe_controller_slot),
        .trainer = (int32_t)getpid(),
        .dwell_ns = nanoseconds(options->minimum_dwell_s, DWELL_S, 0),
        .poll_ns = nanoseconds(options->poll_interval_s, POLL_S, -1),
    };
    if (socket && strlen(socket) >= sizeof header->zeusd_socket) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "zeusd's socket '%.200s' has too long a path for a socket", socket);
    }
    snprintf(header->zeusd_socket, sizeof header->zeusd_socket, "%s", socket ? socket : "");
    snprintf(header->uuid, sizeof header->uuid, "%s",
             harpe_gpu_info_at(options->gpus, options->gpu)->uuid);
    snprintf(header->library_path, sizeof header->library_path, "%s",
             harpe_gpus_library_path(options->gpus));
    return HARPE_OK;
}

static harpe_status check_options(const harpe_frequency_controller_options *options,
                                  harpe_error *error) {
    harpe_gpu *gpu = NULL;
    if (!options || !options->gpus) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "frequency controller: no GPUs given");
    }
    harpe_status status = harpe_gpus_find(options->gpus, options->gpu, &gpu, error);
    if (status == HARPE_OK) {
        status = check_duration(options->minimum_dwell_s, "minimum_dwell_s", error);
    }
    if (status == HARPE_OK) {
        status = check_duration(options->poll_interval_s, "poll_interval_s", error);
    }
    return status;
}

/* Memory without a name: nothing is left in /dev/shm however both processes end. */
static harpe_status make_slot(harpe_frequency_controller *controller, harpe_error *error) {
    size_t size = sizeof *controller->slot;
    controller->memory = memfd_create("harpe-frequency-controller", MFD_CLOEXEC);
    if (controller->memory < 0 || ftruncate(controller->memory, (off_t)size) != 0) {
        return harpe_fail_errno(error, errno, "memory shared with the frequency controller");
    }
    /* Populated, so that the first wish meets no page fault. */
    void *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, controller->memory, 0);
    if (memory == MAP_FAILED) {
        return harpe_fail_errno(error, errno, "memory shared with the frequency controller");
    }
    controller->slot = memory;
    return HARPE_OK;
}

/* Starts a process on the slot as it is. `patience_ms`, `gives_up`: harpe_side_process's. */
static harpe_status start_process(harpe_frequency_controller *controller, int patience_ms,
                                  const atomic_bool *gives_up, int *socket, harpe_error *error) {
    struct iovec greeting = {&controller->header, sizeof controller->header};
    harpe_controller_message answer;
    harpe_side_process process = {.name = "the frequency controller",
                                  .arguments = {HARPE_CONTROLLER_ARGUMENT},
                                  .memory = controller->memory,
                                  .greeting = &greeting,
                                  .greeting_count = 1,
                                  .answer = &answer,
                                  .answer_size = sizeof answer,
                                  .patience_ms = patience_ms,
                                  .gives_up = gives_up};
    int opened = -1;
    harpe_status status = harpe_side_process_start(&process, &opened, error);
    if (status != HARPE_OK) return status;
    if (answer.error.status != HARPE_OK) {
        close(opened);
        answer.error.message[sizeof answer.error.message - 1] = '\0';
        if (error) *error = answer.error;
        return answer.error.status;
    }
    atomic_store(&controller->process, answer.process);
    *socket = opened;
    return HARPE_OK;
}

static void release(harpe_frequency_controller *controller) {
    if (controller->slot) (void)munmap(controller->slot, sizeof *controller->slot);
    if (controller->memory >= 0) close(controller->memory);
    if (controller->socket >= 0) close(controller->socket);
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
    controller->owner = getpid();
    controller->gives_up = gives_up;
    controller->log = options->log;
    status = fill_header(options, &controller->header, error);
    if (status == HARPE_OK) {
        status = make_slot(controller, error);
    }
    if (status == HARPE_OK) {
        status = start_process(controller, 0, gives_up, &controller->socket, error);
    }
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

/* ---- Troubles ------------------------------------------------------------------------------- */

bool harpe_frequency_controller_has_died(const harpe_frequency_controller *controller) {
    struct pollfd end = {.fd = controller->socket, .events = POLLRDHUP};
    return poll(&end, 1, 0) > 0 && (end.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

harpe_status harpe_frequency_controller_check(harpe_frequency_controller *controller,
                                              harpe_error *error) {
    if (!controller || controller->owner != getpid()) return HARPE_OK;
    harpe_controller_message message;
    ssize_t got = recv(controller->socket, &message, sizeof message, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return HARPE_OK;
    if (got != (ssize_t)sizeof message) {
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "the frequency controller (process %d) has died: clocks stay as they are",
                          (int)atomic_load(&controller->process));
    }
    message.error.message[sizeof message.error.message - 1] = '\0';
    if (error) *error = message.error;
    return message.error.status;
}

/* A process in place of the one that has died. */
static harpe_status replace_process(harpe_frequency_controller *controller, int patience_ms,
                                    const atomic_bool *gives_up, harpe_error *error) {
    int socket = -1;
    harpe_status status = start_process(controller, patience_ms, gives_up, &socket, error);
    if (status != HARPE_OK) return status;
    /* By its number too: another thread may be reading from that. */
    if (dup3(socket, controller->socket, O_CLOEXEC) < 0) {
        status = harpe_fail_errno(error, errno, "restarting the frequency controller");
    }
    close(socket);
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

/* ---- The end -------------------------------------------------------------------------------- */

static void warn(const harpe_frequency_controller *controller, const char *line) {
    if (controller->log.write) {
        controller->log.write(controller->log.user, HARPE_LOG_WARNING, line);
    }
}

static int milliseconds_until(double time_s) {
    double left_s = time_s - harpe_clock_s();
    return left_s > 0 ? (int)(left_s * 1e3) + 1 : 1;
}

/* Reads until the process has said how it went; what it said before does not matter any more. */
static bool hears_the_end(const harpe_frequency_controller *controller, double give_up_at) {
    harpe_controller_message message;
    do {
        if (!harpe_side_process_receive(controller->socket, &message, sizeof message,
                                        milliseconds_until(give_up_at)))
            return false;
    } while (message.news != HARPE_CONTROLLER_RESTORED);
    message.error.message[sizeof message.error.message - 1] = '\0';
    if (message.error.status != HARPE_OK) warn(controller, message.error.message);
    /* Until it is gone, so that nothing of it is left. */
    (void)harpe_side_process_receive(controller->socket, &message, sizeof message,
                                     milliseconds_until(give_up_at));
    return true;
}

/* A dead one leaves the GPU as it was, and the next one puts it back; it may also die in the middle
 * of it. Whatever is not done in time is done without this process. */
static void put_back(harpe_frequency_controller *controller) {
    double give_up_at = harpe_clock_s() + STOP_S;
    bool has_died = harpe_frequency_controller_has_died(controller);
    for (int tries = 0; tries < 2; tries++) {
        harpe_error error;
        if (has_died && replace_process(controller, milliseconds_until(give_up_at), NULL, &error)) {
            warn(controller, error.message);
            return;
        }
        (void)shutdown(controller->socket, SHUT_WR);
        if (hears_the_end(controller, give_up_at)) return;
        has_died = harpe_frequency_controller_has_died(controller);
        if (!has_died) break;
    }
    warn(controller, "the frequency controller does not say whether the GPU is put back: it goes "
                     "on trying, and tells the system's log when it fails");
}

void harpe_frequency_controller_stop(harpe_frequency_controller *controller) {
    if (!controller) return;
    if (controller->owner == getpid()) put_back(controller);
    release(controller);
}
