/* SPDX-License-Identifier: Apache-2.0 */
/* Energy windows by name: begin, end, restart, cancel. A name is looked up with the lock held, and
 * counters are read without it, so a slow driver does not delay other threads. window_reading.c
 * reads the counters, and plausibility.c checks them. */
#include "monitor/windows.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait.h"
#include "monitor/monitor_state.h"

enum {
    NAME_LENGTH_MAX = 1024,
    OPEN_MAX = 4096,       /* windows open at the same time */
    CLOSED_KEPT_MAX = 256, /* if more names are kept, closed names are discarded */
};

/* ---- Names ----------------------------------------------------------------------------------- */

/* Hashes a name with FNV-1a. Equal hashes do not prove equal names, so names are compared too. */
static uint64_t hash_of(const char *name) {
    uint64_t hash = 14695981039346656037U;
    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211U;
    return hash;
}

static harpe_window *find(const harpe_monitor *monitor, const char *name) {
    uint64_t hash = hash_of(name);
    for (size_t i = 0; i < monitor->window_count; i++) {
        harpe_window *window = monitor->windows[i];
        if (window->hash == hash && strcmp(window->name, name) == 0) return window;
    }
    return NULL;
}

void harpe_window_free(harpe_window *window) {
    if (!window) return;
    free(window->name);
    free(window->start.gpus);
    free(window->end.gpus);
    free(window->start.cpus);
    free(window->end.cpus);
    free(window);
}

static bool allocate_reading(const harpe_monitor *monitor, harpe_window_reading *reading) {
    reading->gpus = harpe_calloc(monitor->gpu_count, sizeof *reading->gpus);
    reading->cpus = monitor->rapl ? calloc(1, sizeof *reading->cpus) : NULL;
    return reading->gpus && (reading->cpus || !monitor->rapl);
}

/* Returns a closed window to reuse for another name, or NULL while more names may be kept. */
static harpe_window *recycle(harpe_monitor *monitor) {
    if (monitor->window_count < CLOSED_KEPT_MAX) return NULL;
    for (size_t tried = 0; tried < monitor->window_count; tried++) {
        harpe_window *window = monitor->windows[monitor->recycle_next];
        monitor->recycle_next = (monitor->recycle_next + 1) % monitor->window_count;
        if (window->state == HARPE_WINDOW_CLOSED) return window;
    }
    return NULL;
}

static harpe_status name_window(harpe_window *window, const char *name, harpe_error *error) {
    char *copy = strdup(name);
    if (!copy) return harpe_fail_memory(error);
    free(window->name);
    window->name = copy;
    window->hash = hash_of(name);
    window->zero_energy_told = false;
    return HARPE_OK;
}

static harpe_status add(harpe_monitor *monitor, const char *name, harpe_window **out,
                        harpe_error *error) {
    harpe_window *window = recycle(monitor);
    if (window) {
        *out = window;
        return name_window(window, name, error);
    }
    if (monitor->window_count >= OPEN_MAX) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "window '%.100s': %d windows are open already; end or cancel some", name,
                          OPEN_MAX);
    }
    window = calloc(1, sizeof *window);
    if (!window || !allocate_reading(monitor, &window->start) ||
        !allocate_reading(monitor, &window->end) ||
        !HARPE_ARRAY_RESERVE(monitor->windows, monitor->window_capacity,
                             monitor->window_count + 1)) {
        harpe_window_free(window);
        return harpe_fail_memory(error);
    }
    harpe_status status = name_window(window, name, error);
    if (status != HARPE_OK) {
        harpe_window_free(window);
        return status;
    }
    monitor->windows[monitor->window_count++] = window;
    *out = window;
    return HARPE_OK;
}

/* ---- Taking and releasing a window ----------------------------------------------------------- */

static harpe_status fail_busy(const char *name, harpe_error *error) {
    return harpe_fail(error, HARPE_ALREADY_EXISTS,
                      "window '%.100s': another thread is just beginning or ending it", name);
}

/* Marks the window as busy, so that no other thread uses it. */
static harpe_status take_for_begin(harpe_monitor *monitor, const char *name, bool restart,
                                   harpe_window **out, harpe_error *error) {
    harpe_window *window = find(monitor, name);
    harpe_status status = HARPE_OK;
    if (!window) {
        status = add(monitor, name, &window, error);
        if (status != HARPE_OK) return status;
    }
    if (window->state == HARPE_WINDOW_BUSY) return fail_busy(name, error);
    if (window->state == HARPE_WINDOW_OPEN && !restart) {
        return harpe_fail(error, HARPE_ALREADY_EXISTS,
                          "window '%.100s' is open already: end it, cancel it or restart it", name);
    }
    window->state = HARPE_WINDOW_BUSY;
    *out = window;
    return HARPE_OK;
}

static harpe_status take_open(harpe_monitor *monitor, const char *name, harpe_window **out,
                              harpe_error *error) {
    harpe_window *window = find(monitor, name);
    if (!window || window->state == HARPE_WINDOW_CLOSED) {
        return harpe_fail(error, HARPE_NOT_FOUND,
                          "window '%.100s' is not open: it was never begun, or has ended", name);
    }
    if (window->state == HARPE_WINDOW_BUSY) return fail_busy(name, error);
    window->state = HARPE_WINDOW_BUSY;
    *out = window;
    return HARPE_OK;
}

static void leave(harpe_monitor *monitor, harpe_window *window, harpe_window_state state) {
    harpe_lock(&monitor->lock);
    window->state = state;
    harpe_unlock(&monitor->lock);
}

static harpe_status check_call(const harpe_monitor *monitor, const char *name, harpe_error *error) {
    if (!monitor || !name)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "a window needs a monitor and a name");
    if (strnlen(name, NAME_LENGTH_MAX + 1) > NAME_LENGTH_MAX) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "window '%.40s...': its name is longer than %d bytes", name,
                          NAME_LENGTH_MAX);
    }
    return HARPE_OK;
}

/* Adds the window's name before the reason. */
static harpe_status fail_window(const char *name, const harpe_error *reason, harpe_error *error) {
    int vendor_code = reason->vendor_code;
    harpe_status status =
        harpe_fail(error, reason->status, "window '%.100s': %.800s", name, reason->message);
    if (error) error->vendor_code = vendor_code;
    return status;
}

static void synchronize(harpe_monitor *monitor) {
    if (monitor->synchronize)
        monitor->synchronize(monitor->synchronize_user, monitor->gpu_indices, monitor->gpu_count);
}

/* ---- Begin ----------------------------------------------------------------------------------- */

harpe_status harpe_monitor_begin(harpe_monitor *monitor, const char *name, bool restart,
                                 harpe_error *error) {
    harpe_status status = check_call(monitor, name, error);
    if (status != HARPE_OK) return status;
    status = harpe_sampler_check(monitor->sampler, error);
    if (status != HARPE_OK) return status;
    harpe_window *window = NULL;
    harpe_lock(&monitor->lock);
    status = take_for_begin(monitor, name, restart, &window, error);
    harpe_unlock(&monitor->lock);
    if (status != HARPE_OK) return status;

    synchronize(monitor);
    harpe_error reason;
    window->start_time_s = harpe_clock_wall_s();
    status = harpe_window_read_start(monitor, &window->start, &reason);
    leave(monitor, window, status == HARPE_OK ? HARPE_WINDOW_OPEN : HARPE_WINDOW_CLOSED);
    return status == HARPE_OK ? HARPE_OK : fail_window(name, &reason, error);
}

/* ---- End ------------------------------------------------------------------------------------- */

static harpe_status measure(harpe_monitor *monitor, harpe_window *window,
                            harpe_window_measurement *measurement, harpe_error *error) {
    harpe_status status = harpe_sampler_check(monitor->sampler, error);
    if (status != HARPE_OK) return status;
    synchronize(monitor);
    status = harpe_window_read_end(monitor, &window->end, error);
    if (status != HARPE_OK) return status;
    status = harpe_measurement_new(monitor, measurement, error);
    if (status != HARPE_OK) return status;
    status =
        harpe_window_reading_difference(monitor, &window->start, &window->end, measurement, error);
    if (status != HARPE_OK) {
        harpe_window_measurement_clear(measurement);
        return status;
    }
    return HARPE_OK;
}

/* Writes the log line. The measurement is valid even if the disk is full, so a failure is logged
 * once and training continues. */
static void write_log(harpe_monitor *monitor, const harpe_window *window,
                      const harpe_window_measurement *measurement) {
    harpe_error error;
    if (!monitor->window_log ||
        harpe_window_log_write(monitor->window_log, window->start_time_s, window->name, measurement,
                               &error) == HARPE_OK)
        return;
    harpe_lock(&monitor->lock);
    bool is_told = monitor->log_failure_told;
    monitor->log_failure_told = true;
    harpe_unlock(&monitor->lock);
    if (!is_told) {
        harpe_log_line(&monitor->log, HARPE_LOG_ERROR, "window '%.100s' is missing in the log: %s",
                       window->name, error.message);
    }
}

/* Reads a window that this thread has taken, and releases it. */
static harpe_status finish(harpe_monitor *monitor, harpe_window *window, const char *name,
                           bool closes, harpe_window_measurement *out, harpe_error *error) {
    harpe_error reason;
    harpe_window_measurement measurement = {0};
    harpe_status status = measure(monitor, window, &measurement, &reason);
    if (status == HARPE_OK && closes) {
        harpe_window_check_plausibility(monitor, window, &measurement);
        write_log(monitor, window, &measurement);
    }
    leave(monitor, window, closes ? HARPE_WINDOW_CLOSED : HARPE_WINDOW_OPEN);
    if (status != HARPE_OK) return fail_window(name, &reason, error);
    if (out)
        *out = measurement;
    else
        harpe_window_measurement_clear(&measurement);
    return HARPE_OK;
}

harpe_status harpe_monitor_end(harpe_monitor *monitor, const char *name, bool cancel,
                               harpe_window_measurement *out, harpe_error *error) {
    harpe_status status = check_call(monitor, name, error);
    if (status != HARPE_OK) return status;
    harpe_window *window = NULL;
    harpe_lock(&monitor->lock);
    status = take_open(monitor, name, &window, error);
    if (status == HARPE_OK && cancel) window->state = HARPE_WINDOW_CLOSED;
    harpe_unlock(&monitor->lock);
    if (status != HARPE_OK || cancel) return status;
    return finish(monitor, window, name, true, out, error);
}

harpe_status harpe_monitor_peek(harpe_monitor *monitor, const char *name,
                                harpe_window_measurement *out, harpe_error *error) {
    harpe_status status = check_call(monitor, name, error);
    if (status != HARPE_OK) return status;
    harpe_window *window = NULL;
    harpe_lock(&monitor->lock);
    status = take_open(monitor, name, &window, error);
    harpe_unlock(&monitor->lock);
    return status == HARPE_OK ? finish(monitor, window, name, false, out, error) : status;
}
