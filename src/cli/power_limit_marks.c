/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the pipe and the memory through which a command marks its steps, and takes marks out of the
 * memory. A thread turns the memory's futex into a descriptor that can be polled. power_limit_run.c
 * gives marks their meaning. */
#include "cli/power_limit_marks.h"

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

enum { PIPE_SIZE = 1 << 20 };

/* ---- What the command gets ------------------------------------------------------------------ */

/* The command's end is also open for reading: a write never raises SIGPIPE, not even after the
 * runner's death. It does not block: a runner that is stopped does not stop the command. */
static int open_lines_end(int write_end) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", write_end);
    int both_ends = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (both_ends < 0) { /* no /proc here */
        (void)fcntl(write_end, F_SETFL, O_NONBLOCK);
        return write_end;
    }
    (void)close(write_end);
    return both_ends;
}

static harpe_status open_lines(harpe_step_marks *marks, harpe_error *error) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return harpe_fail_errno(error, errno, "a pipe for step marks");
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    (void)fcntl(ends[1], F_SETPIPE_SZ, PIPE_SIZE); /* smaller where the system does not allow it */
    marks->lines = ends[0];
    marks->lines_end = open_lines_end(ends[1]);
    return HARPE_OK;
}

static harpe_status open_board(harpe_step_marks *marks, harpe_error *error) {
    size_t size = sizeof *marks->board;
    marks->memory = memfd_create("harpe-step-marks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (marks->memory < 0 || ftruncate(marks->memory, (off_t)size) != 0 ||
        fcntl(marks->memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return harpe_fail_errno(error, errno, "memory for step marks");
    }
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, marks->memory, 0);
    if (memory == MAP_FAILED) return harpe_fail_errno(error, errno, "memory for step marks");
    marks->board = memory;
    marks->board->magic = HARPE_MARK_MAGIC;
    return HARPE_OK;
}

static harpe_status set_environment(const harpe_step_marks *marks, harpe_error *error) {
    struct stat lines, memory;
    char number[16], pipe_name[48], memory_name[64];
    if (fstat(marks->lines_end, &lines) != 0 || fstat(marks->memory, &memory) != 0) {
        return harpe_fail_errno(error, errno, "step marks");
    }
    snprintf(number, sizeof number, "%d", marks->lines_end);
    snprintf(pipe_name, sizeof pipe_name, "%" PRIu64 ":%" PRIu64, (uint64_t)lines.st_dev,
             (uint64_t)lines.st_ino);
    snprintf(memory_name, sizeof memory_name, "%d:%" PRIu64 ":%" PRIu64, marks->memory,
             (uint64_t)memory.st_dev, (uint64_t)memory.st_ino);
    bool is_set = setenv(HARPE_MARK_LINES_VARIABLE, number, 1) == 0 &&
                  setenv(HARPE_MARK_PIPE_VARIABLE, pipe_name, 1) == 0 &&
                  setenv(HARPE_MARK_MEMORY_VARIABLE, memory_name, 1) == 0;
    return is_set ? HARPE_OK : harpe_fail_memory(error);
}

/* ---- Listening ------------------------------------------------------------------------------ */

/* See mark.c for the order of stores and loads. */
static void *listen_to_board(void *argument) {
    harpe_step_marks *marks = argument;
    harpe_mark_board *board = marks->board;
    uint32_t told = 0;
    while (!atomic_load(&marks->is_over)) {
        uint32_t heard = atomic_load(&board->bell);
        if (heard != told) {
            uint64_t one = 1;
            ssize_t ignored = write(marks->bell, &one, sizeof one);
            (void)ignored;
            told = heard;
        }
        atomic_store(&board->is_parked, 1);
        if (atomic_load(&board->bell) == told && !atomic_load(&marks->is_over)) {
            (void)syscall(SYS_futex, &board->is_parked, FUTEX_WAIT, 1, NULL, NULL, 0);
        }
        atomic_store(&board->is_parked, 0);
    }
    return NULL;
}

static harpe_status start_listener(harpe_step_marks *marks, harpe_error *error) {
    marks->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (marks->bell < 0) return harpe_fail_errno(error, errno, "step marks");
    int failure = pthread_create(&marks->listener, NULL, listen_to_board, marks);
    if (failure) return harpe_fail_errno(error, failure, "a thread for step marks");
    marks->has_listener = true;
    return HARPE_OK;
}

static void stop_listener(harpe_step_marks *marks) {
    if (!marks->has_listener) return;
    atomic_store(&marks->is_over, true);
    atomic_store(&marks->board->is_parked, 0);
    (void)syscall(SYS_futex, &marks->board->is_parked, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    (void)pthread_join(marks->listener, NULL);
}

/* ---- All of it ------------------------------------------------------------------------------ */

harpe_status harpe_step_marks_open(harpe_step_marks *marks, harpe_error *error) {
    *marks = (harpe_step_marks){.memory = -1, .lines = -1, .lines_end = -1, .bell = -1};
    harpe_status status = open_lines(marks, error);
    if (status == HARPE_OK) {
        status = open_board(marks, error);
    }
    if (status == HARPE_OK) {
        status = set_environment(marks, error);
    }
    if (status == HARPE_OK) {
        status = start_listener(marks, error);
    }
    if (status != HARPE_OK) {
        harpe_step_marks_close(marks);
    }
    return status;
}

void harpe_step_marks_passed_on(harpe_step_marks *marks) {
    (void)close(marks->lines_end);
    marks->lines_end = -1;
}

static void close_one(int *descriptor) {
    if (*descriptor >= 0) (void)close(*descriptor);
    *descriptor = -1;
}

void harpe_step_marks_close(harpe_step_marks *marks) {
    stop_listener(marks);
    if (marks->board) (void)munmap(marks->board, sizeof *marks->board);
    close_one(&marks->memory);
    close_one(&marks->lines);
    close_one(&marks->lines_end);
    close_one(&marks->bell);
    marks->board = NULL;
    marks->has_listener = false;
}

/* ---- Taking marks --------------------------------------------------------------------------- */

char harpe_step_marks_next(harpe_step_marks *marks) {
    const harpe_mark_board *board = marks->board;
    /* Epochs first: the steps before them have been counted by then. */
    uint64_t epochs = atomic_load(&board->epochs);
    uint64_t steps = atomic_load(&board->steps);
    if (marks->taken_epochs < epochs) {
        bool is_known = epochs - marks->taken_epochs <= HARPE_MARK_EPOCHS;
        uint64_t at = marks->taken_epochs % HARPE_MARK_EPOCHS;
        if (!is_known || marks->taken_steps >= steps ||
            marks->taken_steps >= atomic_load(&board->steps_at_epoch[at])) {
            marks->taken_epochs++;
            return 'e';
        }
    }
    if (marks->taken_steps >= steps) return '\0';
    marks->taken_steps++;
    return 's';
}

void harpe_step_marks_take_all(harpe_step_marks *marks, uint64_t *steps, uint64_t *epochs) {
    uint64_t all_epochs = atomic_load(&marks->board->epochs);
    uint64_t all_steps = atomic_load(&marks->board->steps);
    *steps = all_steps - marks->taken_steps;
    *epochs = all_epochs - marks->taken_epochs;
    marks->taken_steps = all_steps;
    marks->taken_epochs = all_epochs;
}
