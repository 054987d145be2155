/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command of the user that marks its steps. Makes the memory and the pipe for the marks,
 * starts the command, passes signals on, and calls a function for each mark. `harpe power-limit
 * run` and `harpe tune` use this file, which does not know what a step is for. */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <harpe/power_limit.h>

#include "base/process.h"
#include "base/wait.h"
#include "cli/cli.h"

/* ---- The channel of step signals ------------------------------------------------------------- */

enum { PIPE_SIZE = 1 << 20 };

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

static harpe_status open_lines(harpe_step_channel *signals, harpe_error *error) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return harpe_fail_errno(error, errno, "a pipe for step signals");
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    (void)fcntl(ends[1], F_SETPIPE_SZ, PIPE_SIZE); /* it may stay smaller */
    signals->lines = ends[0];
    signals->lines_end = open_lines_end(ends[1]);
    return HARPE_OK;
}

static harpe_status open_memory(harpe_step_channel *signals, harpe_error *error) {
    size_t size = sizeof *signals->shared;
    signals->memory = memfd_create(HARPE_STEP_MEMORY_FILE, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (signals->memory < 0 || ftruncate(signals->memory, (off_t)size) != 0 ||
        fcntl(signals->memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return harpe_fail_errno(error, errno, "memory for step signals");
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, signals->memory, 0);
    if (memory == MAP_FAILED) return harpe_fail_errno(error, errno, "memory for step signals");
    signals->shared = memory;
    signals->shared->magic = HARPE_STEP_MEMORY_MAGIC;
    return HARPE_OK;
}

static harpe_status set_environment(const harpe_step_channel *signals, harpe_error *error) {
    struct stat lines, memory;
    char number[16], pipe_name[48], memory_name[80];
    if (fstat(signals->lines_end, &lines) != 0 || fstat(signals->memory, &memory) != 0)
        return harpe_fail_errno(error, errno, "step signals");
    snprintf(number, sizeof number, "%d", signals->lines_end);
    snprintf(pipe_name, sizeof pipe_name, "%" PRIu64 ":%" PRIu64, (uint64_t)lines.st_dev,
             (uint64_t)lines.st_ino);
    snprintf(memory_name, sizeof memory_name, "%d:%" PRIu64 ":%" PRIu64 ":%ld", signals->memory,
             (uint64_t)memory.st_dev, (uint64_t)memory.st_ino, (long)harpe_process_self());
    bool is_set = setenv(HARPE_STEP_LINES_VARIABLE, number, 1) == 0 &&
                  setenv(HARPE_STEP_PIPE_VARIABLE, pipe_name, 1) == 0 &&
                  setenv(HARPE_STEP_MEMORY_VARIABLE, memory_name, 1) == 0;
    return is_set ? HARPE_OK : harpe_fail_memory(error);
}

/* See step_signal.c for the order of stores and loads. */
static void *listen_to_memory(void *argument) {
    harpe_step_channel *signals = argument;
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

static harpe_status start_listener(harpe_step_channel *signals, harpe_error *error) {
    signals->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (signals->bell < 0) return harpe_fail_errno(error, errno, "step signals");
    int failure = harpe_thread_start(&signals->listener, "harpe-steps", listen_to_memory, signals);
    if (failure) return harpe_fail_errno(error, failure, "a thread for step signals");
    signals->has_listener = true;
    return HARPE_OK;
}

static void close_one(int *descriptor) {
    if (*descriptor >= 0) (void)close(*descriptor);
    *descriptor = -1;
}

static void close_channel(harpe_step_channel *signals) {
    if (signals->has_listener) {
        atomic_store(&signals->is_over, true);
        atomic_store(&signals->shared->is_parked, 0);
        harpe_wake(&signals->shared->is_parked);
        harpe_thread_join(signals->listener);
    }
    if (signals->shared) (void)munmap(signals->shared, sizeof *signals->shared);
    close_one(&signals->memory);
    close_one(&signals->lines);
    close_one(&signals->lines_end);
    close_one(&signals->bell);
    signals->shared = NULL;
    signals->has_listener = false;
}

/* Makes the pipe and the memory, and sets the environment variables that name them. */
static harpe_status open_channel(harpe_step_channel *signals, bool with_bell, harpe_error *error) {
    *signals = (harpe_step_channel){.memory = -1, .lines = -1, .lines_end = -1, .bell = -1};
    harpe_status status = open_lines(signals, error);
    if (status == HARPE_OK) status = open_memory(signals, error);
    if (status == HARPE_OK) status = set_environment(signals, error);
    if (status == HARPE_OK && with_bell) status = start_listener(signals, error);
    if (status != HARPE_OK) close_channel(signals);
    return status;
}

/* Returns the next signal in the memory: 's' for a step, 'e' for an epoch, '\0' for none. */
static char next_signal(harpe_step_channel *signals) {
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

/* Takes all signals out of the memory at once, and counts them. */
static void take_all(harpe_step_channel *signals, uint64_t *steps, uint64_t *epochs) {
    uint64_t all_epochs = atomic_load(&signals->shared->epochs);
    uint64_t all_steps = atomic_load(&signals->shared->steps);
    *steps = all_steps - signals->taken_steps;
    *epochs = all_epochs - signals->taken_epochs;
    signals->taken_steps = all_steps;
    signals->taken_epochs = all_epochs;
}

bool harpe_marked_command_is_users_mistake(harpe_status status) {
    return status == HARPE_INVALID_INPUT || status == HARPE_INVALID_ARGUMENT ||
           status == HARPE_IO_ERROR || status == HARPE_LIMIT_EXCEEDED;
}

/* ---- Starting -------------------------------------------------------------------------------- */

harpe_status harpe_marked_command_prepare(harpe_marked_command *child, const harpe_marks *marks,
                                          harpe_error *error) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD, SIGCONT, 0};
    sigset_t mask;
    child->marks = marks;
    harpe_command_block(numbers, &mask, &child->mask);
    child->signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (child->signals < 0) return harpe_fail_errno(error, errno, "preparing to run a command");
    return open_channel(&child->step_signals, marks->step, error);
}

harpe_status harpe_marked_command_start(harpe_marked_command *child, char *const *command,
                                        posix_spawn_file_actions_t *actions, harpe_error *error) {
    const harpe_step_channel *channel = &child->step_signals;
    posix_spawn_file_actions_t own;
    if (!actions) {
        posix_spawn_file_actions_init(&own);
        actions = &own;
    }
    /* These two descriptors stay open after exec. */
    posix_spawn_file_actions_adddup2(actions, channel->lines_end, channel->lines_end);
    posix_spawn_file_actions_adddup2(actions, channel->memory, channel->memory);
    int failure = harpe_command_spawn(command, actions, &child->mask, &child->id);
    if (actions == &own) posix_spawn_file_actions_destroy(&own);
    /* Otherwise this process could not detect the end of the pipe. */
    close_one(&child->step_signals.lines_end);
    if (failure) return harpe_fail_errno(error, failure, "running '%.100s'", command[0]);
    return HARPE_OK;
}

void harpe_marked_command_close(harpe_marked_command *child) {
    if (child->step_signals.shared) close_channel(&child->step_signals);
    if (child->signals > 0) (void)close(child->signals);
    child->signals = -1;
}

/* ---- Marks ----------------------------------------------------------------------------------- */

static void take_line(harpe_marked_command *child) {
    child->line[child->line_length] = '\0';
    if (strcmp(child->line, "step") == 0)
        harpe_step_memory_add(child->step_signals.shared, 1);
    else if (strcmp(child->line, "epoch") == 0)
        harpe_step_memory_end_epoch(child->step_signals.shared);
    else if (child->line_length > 0 && child->unknown_count++ == 0)
        fprintf(stderr, "%s: a line to HARPE_STEP_FD was neither 'step' nor 'epoch'\n",
                child->marks->program);
    child->line_length = 0;
}

static bool is_readable(int descriptor) { return harpe_events_now(descriptor, POLLIN) & POLLIN; }

/* Reads lines from the pipe once. Returns false if no process can write to the pipe any more, or if
 * there is nothing to read yet. */
static bool take_lines(harpe_marked_command *child) {
    char bytes[4096];
    ssize_t got = read(child->step_signals.lines, bytes, sizeof bytes);
    for (ssize_t i = 0; i < got; i++)
        if (bytes[i] == '\n')
            take_line(child);
        else if (child->line_length < sizeof child->line - 1)
            child->line[child->line_length++] = bytes[i];
    return got > 0 || (got < 0 && errno == EINTR);
}

static void take_step_signals(harpe_marked_command *child) {
    const harpe_marks *marks = child->marks;
    uint64_t rings;
    if (!marks->step) return;
    ssize_t ignored = read(child->step_signals.bell, &rings, sizeof rings);
    (void)ignored;
    for (char kind; (kind = next_signal(&child->step_signals));)
        if (kind == 's')
            marks->step(marks->user);
        else
            marks->epoch(marks->user);
}

/* Catches up after this process was stopped. The steps that were signalled meanwhile are over. */
static void pass_over(harpe_marked_command *child) {
    const harpe_marks *marks = child->marks;
    uint64_t steps;
    uint64_t epochs;
    if (!marks->step) return;
    while (take_lines(child)) {
    }
    take_all(&child->step_signals, &steps, &epochs);
    marks->pass_over(marks->user, steps, epochs);
}

/* Passes on signals that were sent only to this process. A signal of the terminal reaches the
 * command without help. */
static void take_signals(harpe_marked_command *child) {
    struct signalfd_siginfo info;
    while (read(child->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) {
            child->has_ended =
                child->has_ended || waitpid(child->id, &child->wait_code, WNOHANG) == child->id;
        } else if (info.ssi_signo == SIGCONT) {
            pass_over(child);
        } else if (info.ssi_code != SI_KERNEL && !child->has_ended) {
            (void)kill(child->id, (int)info.ssi_signo);
        }
    }
}

void harpe_marked_command_follow(harpe_marked_command *child) {
    enum { SIGNALS, LINES, BELL, WAYS };
    const harpe_marks *marks = child->marks;
    struct pollfd ways[WAYS] = {{.fd = child->signals, .events = POLLIN},
                                {.fd = child->step_signals.lines, .events = POLLIN},
                                {.fd = child->step_signals.bell, .events = POLLIN}};
    while (!child->has_ended) {
        if (harpe_poll(ways, WAYS, marks->tick ? marks->tick_ns : -1) < 0) continue;
        if (marks->tick) marks->tick(marks->user);
        take_signals(child);
        /* The pipe is empty, and no process can write to it any more. */
        if (ways[LINES].revents && !take_lines(child) && !(ways[LINES].revents & POLLIN))
            ways[LINES].fd = -1;
        take_step_signals(child);
        if (marks->step && !is_readable(child->step_signals.lines) &&
            !is_readable(child->step_signals.bell))
            marks->caught_up(marks->user);
    }
    /* All marks that the command made before its end. */
    while (take_lines(child))
        take_step_signals(child);
    take_step_signals(child);
}
