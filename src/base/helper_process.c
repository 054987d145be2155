/* SPDX-License-Identifier: Apache-2.0 */
/* Starts helper processes: finds the program, detaches it from the starter's session, descriptors
 * and signals, and exchanges messages with it. It does not interpret the messages. */
#include "base/helper_process.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/platform.h"
#include "base/process.h"
#include "base/wait.h"

enum {
    TIMEOUT_MS = 30000,
    CHILD_MS = 10000,
    INTRODUCE_MS = 5000,
    LOOK_MS = 50,
    HIGH_DESCRIPTOR = 10,
};

/* Signals that are meant for the starter's terminal or process group, or that a batch system sends
 * to all processes of a job before its end (Slurm: --signal). */
static const int ignored_signals[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                      SIGPIPE, SIGTSTP, SIGUSR1, SIGUSR2};

/* ---- Finding the program --------------------------------------------------------------------- */

static bool is_program(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* Returns `folder`/`name` if it is a program, or else NULL. The caller frees the path. */
static char *program_at(const char *folder, const char *name) {
    char *path = harpe_path_join(folder, "/", name);
    if (path && is_program(path)) return path;
    free(path);
    return NULL;
}

/* Finds the program harpe near a program or library: in the same directory, in the directory above,
 * or in bin beside lib or lib/<triplet>. */
static char *program_near(const char *file) {
    static const char *const places[] = {"harpe", "../harpe", "../bin/harpe", "../../bin/harpe"};
    char *real = realpath(file, NULL);
    char *folder = real ? harpe_path_parent(real) : NULL;
    char *found = NULL;
    for (size_t i = 0; folder && !found && i < sizeof places / sizeof places[0]; i++)
        found = program_at(folder, places[i]);
    free(folder);
    free(real);
    return found;
}

static char *program_in_path(void) {
    const char *path = secure_getenv("PATH");
    char *copy = path ? strdup(path) : NULL;
    char *found = NULL;
    char *rest = NULL;
    for (char *folder = copy ? strtok_r(copy, ":", &rest) : NULL; folder && !found;
         folder = strtok_r(NULL, ":", &rest))
        found = program_at(folder, "harpe");
    free(copy);
    return found;
}

harpe_status harpe_helper_process_program(const char *name, char **out, harpe_error *error) {
    bool is_ignored = false;
    const char *given = harpe_trusted_file_variable("HARPE_PROGRAM", &is_ignored);
    if (given) {
        if (!is_program(given)) {
            return harpe_fail(error, HARPE_NOT_FOUND, "HARPE_PROGRAM: '%.200s' is not a program",
                              given);
        }
        *out = strdup(given);
        return *out ? HARPE_OK : harpe_fail_memory(error);
    }
    static const char inside[] = "";
    Dl_info info = {0};
    /* The library's own program comes first: a Python may have another version's program beside it.
     * The path of a library is absolute; that of a program may be relative to an older directory.
     */
    bool is_known = dladdr(inside, &info) && info.dli_fname && *info.dli_fname == '/';
    char *found = is_known ? program_near(info.dli_fname) : NULL;
    if (!found) found = program_near("/proc/self/exe");
    if (!found) found = program_in_path();
    if (!found) {
        return harpe_fail(
            error, HARPE_NOT_FOUND,
            "%s is the program harpe, which is not in PATH: install it, or name it in "
            "HARPE_PROGRAM%s",
            name, is_ignored ? " (which is ignored now: its file belongs to another user)" : "");
    }
    *out = found;
    return HARPE_OK;
}

/* ---- Starting it ----------------------------------------------------------------------------- */

/* The new process's program, arguments and descriptors, prepared before the fork. */
typedef struct launching {
    const char *program;
    char *arguments[5];
    int socket, starter, memory;
} launching;

/* Moves `descriptor` to `number`. Closes `number` if there is no descriptor. */
static bool place(int descriptor, int number) {
    if (descriptor >= 0) return dup2(descriptor, number) >= 0;
    (void)close(number);
    return true;
}

static int moved_up(int descriptor) {
    return descriptor < 0 ? -1 : fcntl(descriptor, F_DUPFD, HIGH_DESCRIPTOR);
}

/* Replaces the code of this process with the program. This process was forked from a process with
 * threads, so the code makes only system calls until exec. */
static _Noreturn void become(const launching *launch) {
    int null = moved_up(open("/dev/null", O_RDWR));
    int socket = moved_up(launch->socket);
    int starter = moved_up(launch->starter);
    int memory = moved_up(launch->memory);
    bool is_ready = null >= 0 && socket >= 0;
    for (int stream = STDIN_FILENO; is_ready && stream <= STDERR_FILENO; stream++)
        is_ready = place(null, stream);
    if (is_ready && place(socket, HARPE_HELPER_SOCKET) && place(starter, HARPE_HELPER_STARTER) &&
        place(memory, HARPE_HELPER_MEMORY)) {
        (void)syscall(SYS_close_range, HARPE_HELPER_MEMORY + 1U, ~0U, 0U);
        execve(launch->program, launch->arguments, environ);
    }
    _exit(127);
}

/* Resets signal handlers in a forked child before a signal can arrive, because the handlers
 * belong to the starter. */
static void forget_signals(void) {
    struct sigaction action = {.sa_handler = SIG_DFL};
    for (int number = 1; number < NSIG; number++)
        (void)sigaction(number, &action, NULL);
    harpe_helper_process_begin();
    (void)sigemptyset(&action.sa_mask);
    (void)sigprocmask(SIG_SETMASK, &action.sa_mask, NULL);
}

/* Forks twice, so the starter has no child to wait for. The process gets its own session, so
 * signals to the starter's group do not reach it. _Fork does not run the fork handlers that
 * frameworks install. */
static _Noreturn void detach(const launching *launch) {
    forget_signals();
    (void)setsid();
    pid_t grandchild = _Fork();
    if (grandchild == 0) become(launch);
    _exit(grandchild > 0 ? 0 : 127);
}

/* Waits for a child that only starts another process. Its end closes copies of all descriptors of
 * this process, which can take long if one of them is of a file system that hangs. */
static bool has_ended_within(pid_t child, int timeout_ms) {
    struct pollfd end = {.fd = harpe_process_open(child), .events = POLLIN};
    int ready;
    do {
        ready = harpe_poll(&end, 1, timeout_ms * INT64_C(1000000));
    } while (ready < 0 && errno == EINTR);
    if (end.fd >= 0) (void)close(end.fd);
    return ready > 0 && waitpid(child, NULL, WNOHANG) != 0;
}

static harpe_status spawn_detached(const launching *launch, const char *name, harpe_error *error) {
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t child = _Fork();
    if (child == 0) detach(launch);
    int fork_errno = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (child < 0) return harpe_fail_errno(error, fork_errno, "starting %s", name);
    if (has_ended_within(child, CHILD_MS)) return HARPE_OK;
    return harpe_fail(error, HARPE_UNAVAILABLE, "starting %s: a child process does not end in %d s",
                      name, CHILD_MS / 1000);
}

/* Opens the pidfd of the starter, and checks that the kernel has close_range. Without the pidfd, a
 * process that the starter forked could hide the starter's end. Without close_range, the helper
 * process could keep the starter's files open. Both are checked here, where an error can still be
 * returned. */
static harpe_status open_starter(int *starter, const char *name, harpe_error *error) {
    bool can_close = syscall(SYS_close_range, ~0U, ~0U, 0U) == 0;
    int opened = can_close ? harpe_process_open(harpe_process_self()) : -1;
    if (opened >= 0) {
        *starter = opened;
        return HARPE_OK;
    }
    if (errno != ENOSYS && errno != EPERM)
        return harpe_fail_errno(error, errno, "starting %s", name);
    return harpe_fail(error, HARPE_NOT_SUPPORTED,
                      "%s needs Linux 5.9 or newer: %s is missing, or forbidden by a sandbox", name,
                      can_close ? "pidfd_open" : "close_range");
}

/* ---- The process's answer -------------------------------------------------------------------- */

/* Waits until the process has answered or ended. */
static harpe_status wait_for_answer(const harpe_helper_process *process, int socket,
                                    harpe_error *error) {
    int timeout_ms = process->timeout_ms > 0 ? process->timeout_ms : TIMEOUT_MS;
    double give_up_at = harpe_clock_s() + timeout_ms / 1e3;
    struct pollfd answer = {.fd = socket, .events = POLLIN};
    while (harpe_poll(&answer, 1, LOOK_MS * INT64_C(1000000)) <= 0) {
        if (process->gives_up && atomic_load(process->gives_up))
            return harpe_fail(error, HARPE_INTERRUPTED, "stopped waiting for %s", process->name);
        if (harpe_clock_s() > give_up_at) {
            return harpe_fail(error, HARPE_UNAVAILABLE,
                              "%s has not answered for %.0f s: does the driver answer?",
                              process->name, timeout_ms / 1e3);
        }
    }
    return HARPE_OK;
}

static harpe_status greet(const harpe_helper_process *process, int socket, const char *program,
                          harpe_error *error) {
    bool is_well = true;
    for (size_t i = 0; is_well && i < process->greeting_count; i++) {
        const struct iovec *message = &process->greeting[i];
        is_well = harpe_helper_process_send(socket, message->iov_base, message->iov_len);
    }
    if (is_well) {
        harpe_status status = wait_for_answer(process, socket, error);
        if (status != HARPE_OK) return status;
        is_well = harpe_helper_process_receive(socket, process->answer, process->answer_size, 0);
    }
    if (is_well) return HARPE_OK;
    return harpe_fail(error, HARPE_IO_ERROR,
                      "%s '%.300s' did not start: is it of this version of Harpe? HARPE_PROGRAM "
                      "names another",
                      process->name, program ? program : "");
}

static harpe_status launch_process(const harpe_helper_process *process, const char *program,
                                   int socket, harpe_error *error) {
    launching launch = {.program = program,
                        .arguments = {(char[]){"harpe"}},
                        .socket = socket,
                        .memory = process->memory};
    for (size_t i = 0; i < sizeof process->arguments / sizeof process->arguments[0]; i++)
        launch.arguments[i + 1] = (char *)process->arguments[i];
    int own = -1;
    harpe_status status = open_starter(&own, process->name, error);
    if (status != HARPE_OK) return status;
    launch.starter = process->starter > 0 ? process->starter : own;
    int failure = 0;
    if (harpe_platform_in_use)
        failure = harpe_platform_in_use->start_helper(process->arguments, socket, launch.starter,
                                                      launch.memory);
    if (failure)
        status = harpe_fail_errno(error, failure, "starting %s", process->name);
    else if (!harpe_platform_in_use)
        status = spawn_detached(&launch, process->name, error);
    close(own);
    return status;
}

harpe_status harpe_helper_process_start(const harpe_helper_process *process, int *socket,
                                        harpe_error *error) {
    int sockets[2] = {-1, -1};
    char *program = NULL;
    harpe_status status = HARPE_OK;
    if (!harpe_platform_in_use)
        status = harpe_helper_process_program(process->name, &program, error);
    if (status != HARPE_OK) return status;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
        status = harpe_fail_errno(error, errno, "starting %s", process->name);
    if (status == HARPE_OK) {
        (void)harpe_process_holds(sockets[0]);
        status = launch_process(process, program, sockets[1], error);
        close(sockets[1]);
    }
    if (status == HARPE_OK) status = greet(process, sockets[0], program, error);
    free(program);
    if (status == HARPE_OK)
        *socket = sockets[0];
    else if (sockets[0] >= 0)
        harpe_process_close(sockets[0]);
    return status;
}

harpe_status harpe_helper_process_start_known(const harpe_helper_process *process, int *socket,
                                              int *pidfd, harpe_error *error) {
    int32_t number = 0;
    int channel = -1;
    harpe_helper_process known = *process;
    known.answer = &number;
    known.answer_size = sizeof number;
    harpe_status status = harpe_helper_process_start(&known, &channel, error);
    if (status != HARPE_OK) return status;
    int opened = harpe_process_open(number);
    if (opened >= 0 && harpe_helper_process_send(channel, "", 1)) {
        *socket = channel;
        *pidfd = opened;
        return HARPE_OK;
    }
    status = harpe_fail_errno(error, errno, "starting %s", process->name);
    if (opened >= 0) (void)close(opened);
    harpe_process_close(channel);
    return status;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static bool send_message(int socket, const void *data, size_t size, int flags) {
    ssize_t sent;
    do {
        sent = send(socket, data, size, MSG_NOSIGNAL | flags);
    } while (sent < 0 && errno == EINTR);
    return sent >= 0 && (size_t)sent == size;
}

bool harpe_helper_process_send(int socket, const void *data, size_t size) {
    return send_message(socket, data, size, 0);
}

bool harpe_helper_process_send_now(int socket, const void *data, size_t size) {
    return send_message(socket, data, size, MSG_DONTWAIT);
}

bool harpe_helper_process_receive(int socket, void *data, size_t size, int timeout_ms) {
    int64_t end_ns = harpe_clock_ns() + timeout_ms * INT64_C(1000000);
    struct pollfd wait = {.fd = socket, .events = POLLIN};
    for (;;) {
        int64_t left_ns = end_ns - harpe_clock_ns();
        int ready = harpe_poll(&wait, 1, timeout_ms < 0 ? -1 : left_ns > 0 ? left_ns : 0);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return false;
        ssize_t got = recv(socket, data, size, MSG_TRUNC);
        if (got < 0 && errno == EINTR) continue;
        return got >= 0 && (size_t)got == size;
    }
}

/* ---- Inside the helper process --------------------------------------------------------------- */

static int descriptor(int number) {
    return harpe_platform_in_use ? harpe_platform_in_use->helper_descriptor(number) : number;
}

int harpe_helper_socket(void) { return descriptor(HARPE_HELPER_SOCKET); }
int harpe_helper_memory(void) { return descriptor(HARPE_HELPER_MEMORY); }

void harpe_helper_process_leave_directory(void) {
    int ignored = harpe_platform_in_use ? 0 : chdir("/");
    (void)ignored;
}

void harpe_helper_process_begin(void) {
    if (harpe_platform_in_use) return;
    for (size_t i = 0; i < sizeof ignored_signals / sizeof ignored_signals[0]; i++)
        (void)signal(ignored_signals[i], SIG_IGN);
}

bool harpe_helper_process_introduce(void) {
    int32_t process = (int32_t)harpe_process_self();
    char go;
    return harpe_helper_process_send(harpe_helper_socket(), &process, sizeof process) &&
           harpe_helper_process_receive(harpe_helper_socket(), &go, 1, INTRODUCE_MS);
}

/* Becomes readable at SIGTERM. -1: SIGTERM is ignored. A helper process waits on one thread. */
static int end_signal = -1;

static int end_signal_descriptor(void) {
    return harpe_platform_in_use ? harpe_platform_in_use->signals() : end_signal;
}

harpe_status harpe_helper_process_end_on_signal(harpe_error *error) {
    sigset_t mask;
    if (harpe_platform_in_use) return HARPE_OK; /* the descriptor is there */
    (void)sigemptyset(&mask);
    (void)sigaddset(&mask, SIGTERM);
    end_signal = harpe_process_signals(&mask);
    if (end_signal < 0) return harpe_fail_errno(error, errno, "waiting for a signal");
    (void)signal(SIGTERM, SIG_DFL); /* an ignored signal is never delivered */
    return HARPE_OK;
}

static bool poll_ends(struct pollfd *ends, nfds_t count, int timeout_ms) {
    for (;;) {
        int ready = harpe_poll(ends, count, timeout_ms * INT64_C(1000000));
        if (ready >= 0) return ready > 0;
        if (errno != EINTR) return true;
    }
}

bool harpe_helper_process_wait(int timeout_ms) {
    struct pollfd ends[3] = {{.fd = harpe_helper_socket(), .events = POLLIN},
                             {.fd = descriptor(HARPE_HELPER_STARTER), .events = POLLIN},
                             {.fd = end_signal_descriptor(), .events = POLLIN}};
    return poll_ends(ends, 3, timeout_ms);
}

bool harpe_helper_process_is_over_within(int timeout_ms) {
    struct pollfd ends[2] = {{.fd = descriptor(HARPE_HELPER_STARTER), .events = POLLIN},
                             {.fd = end_signal_descriptor(), .events = POLLIN}};
    return poll_ends(ends, 2, timeout_ms);
}
