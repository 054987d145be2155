/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the pipe and the memory through which a command signals its steps, and reads the signals in
 * the memory. A thread waits on the memory's futex, and makes a descriptor readable that can be
 * polled. power_limit_run.c interprets the signals. */
#include "cli/power_limit/step_signals.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/thread.h"
#include "base/wait.h"

enum { PIPE_SIZE = 1 << 20 };

/* ---- The command's side ---------------------------------------------------------------------- */

/* Opens the command's end of the pipe for reading and writing. A write then never raises SIGPIPE,
 * even after this process has died. The end does not block, so the command continues if this
 * process is stopped. */
static int open_lines_end(int write_end) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", write_end);
    int both_ends = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (both_ends < 0) { /* /proc is not available */
        (void)fcntl(write_end, F_SETFL, O_NONBLOCK);
        return write_end;
    }
    (void)close(write_end);
    return both_ends;
}

static harpe_status open_lines(harpe_step_signals *signals, harpe_error *error) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return harpe_fail_errno(error, errno, "a pipe for step signals");
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    (void)fcntl(ends[1], F_SETPIPE_SZ, PIPE_SIZE); /* it may stay smaller */
    signals->lines = ends[0];
    signals->lines_end = open_lines_end(ends[1]);
    return HARPE_OK;
}

static harpe_status open_memory(harpe_step_signals *signals, harpe_error *error) {
    size_t size = sizeof *signals->shared;
    signals->memory = memfd_create("harpe-step-signals", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (signals->memory < 0 || ftruncate(signals->memory, (off_t)size) != 0 ||
        fcntl(signals->memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return harpe_fail_errno(error, errno, "memory for step signals");
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, signals->memory, 0);
    if (memory == MAP_FAILED) return harpe_fail_errno(error, errno, "memory for step signals");
    signals->shared = memory;
    signals->shared->magic = HARPE_STEP_MEMORY_MAGIC;
    return HARPE_OK;
}

static harpe_status set_environment(const harpe_step_signals *signals, harpe_error *error) {
    struct stat lines, memory;
    char number[16], pipe_name[48], memory_name[64];
    if (fstat(signals->lines_end, &lines) != 0 || fstat(signals->memory, &memory) != 0)
        return harpe_fail_errno(error, errno, "step signals");
    snprintf(number, sizeof number, "%d", signals->lines_end);
    snprintf(pipe_name, sizeof pipe_name, "%" PRIu64 ":%" PRIu64, (uint64_t)lines.st_dev,
             (uint64_t)lines.st_ino);
    snprintf(memory_name, sizeof memory_name, "%d:%" PRIu64 ":%" PRIu64, signals->memory,
             (uint64_t)memory.st_dev, (uint64_t)memory.st_ino);
    bool is_set = setenv(HARPE_STEP_LINES_VARIABLE, number, 1) == 0 &&
                  setenv(HARPE_STEP_PIPE_VARIABLE, pipe_name, 1) == 0 &&
                  setenv(HARPE_STEP_MEMORY_VARIABLE, memory_name, 1) == 0;
    return is_set ? HARPE_OK : harpe_fail_memory(error);
}

/* ---- Listening ------------------------------------------------------------------------------- */

/* See step_signal.c for the order of stores and loads. */
static void *listen_to_memory(void *argument) {
    harpe_step_signals *signals = argument;
    harpe_step_memory *shared = signals->shared;
    uint32_t told = 0;
    while (!atomic_load(&signals->is_over)) {
        uint32_t heard = atomic_load(&shared->bell);
        if (heard != told) {
            uint64_t one = 1;
            ssize_t ignored = write(signals->bell, &one, sizeof one);
            (void)ignored;
            told = heard;
        }
        atomic_store(&shared->is_parked, 1);
        if (atomic_load(&shared->bell) == told && !atomic_load(&signals->is_over))
            (void)harpe_wait_while(&shared->is_parked, 1, -1);
        atomic_store(&shared->is_parked, 0);
    }
    return NULL;
}

static harpe_status start_listener(harpe_step_signals *signals, harpe_error *error) {
    signals->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (signals->bell < 0) return harpe_fail_errno(error, errno, "step signals");
    int failure = harpe_thread_start(&signals->listener, "harpe-steps", listen_to_memory, signals);
    if (failure) return harpe_fail_errno(error, failure, "a thread for step signals");
    signals->has_listener = true;
    return HARPE_OK;
}

static void stop_listener(harpe_step_signals *signals) {
    if (!signals->has_listener) return;
    atomic_store(&signals->is_over, true);
    atomic_store(&signals->shared->is_parked, 0);
    harpe_wake(&signals->shared->is_parked);
    harpe_thread_join(signals->listener);
}

/* ---- Opening --------------------------------------------------------------------------------- */

harpe_status harpe_step_signals_open(harpe_step_signals *signals, harpe_error *error) {
    *signals = (harpe_step_signals){.memory = -1, .lines = -1, .lines_end = -1, .bell = -1};
    harpe_status status = open_lines(signals, error);
    if (status == HARPE_OK) status = open_memory(signals, error);
    if (status == HARPE_OK) status = set_environment(signals, error);
    if (status == HARPE_OK) status = start_listener(signals, error);
    if (status != HARPE_OK) harpe_step_signals_close(signals);
    return status;
}

void harpe_step_signals_passed_on(harpe_step_signals *signals) {
    (void)close(signals->lines_end);
    signals->lines_end = -1;
}

static void close_one(int *descriptor) {
    if (*descriptor >= 0) (void)close(*descriptor);
    *descriptor = -1;
}

void harpe_step_signals_close(harpe_step_signals *signals) {
    stop_listener(signals);
    if (signals->shared) (void)munmap(signals->shared, sizeof *signals->shared);
    close_one(&signals->memory);
    close_one(&signals->lines);
    close_one(&signals->lines_end);
    close_one(&signals->bell);
    signals->shared = NULL;
    signals->has_listener = false;
}

/* ---- Taking signals -------------------------------------------------------------------------- */

char harpe_step_signals_next(harpe_step_signals *signals) {
    const harpe_step_memory *shared = signals->shared;
    /* Epochs come first, because the steps before them have already been counted. */
    uint64_t epochs = atomic_load(&shared->epochs);
    uint64_t steps = atomic_load(&shared->steps);
    if (signals->taken_epochs < epochs) {
        bool is_known = epochs - signals->taken_epochs <= HARPE_STEP_EPOCHS;
        uint64_t at = signals->taken_epochs % HARPE_STEP_EPOCHS;
        if (!is_known || signals->taken_steps >= steps ||
            signals->taken_steps >= atomic_load(&shared->steps_at_epoch[at])) {
            signals->taken_epochs++;
            return 'e';
        }
    }
    if (signals->taken_steps >= steps) return '\0';
    signals->taken_steps++;
    return 's';
}

void harpe_step_signals_take_all(harpe_step_signals *signals, uint64_t *steps, uint64_t *epochs) {
    uint64_t all_epochs = atomic_load(&signals->shared->epochs);
    uint64_t all_steps = atomic_load(&signals->shared->steps);
    *steps = all_steps - signals->taken_steps;
    *epochs = all_epochs - signals->taken_epochs;
    signals->taken_steps = all_steps;
    signals->taken_epochs = all_epochs;
}
