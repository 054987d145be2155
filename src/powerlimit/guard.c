/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's side of the guard: finds the program, starts it detached from the trainer's
 * session, descriptors and signals, and waits until it is ready. It restores nothing itself. */
#include "powerlimit/guard.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file_parts.h"
#include "powerlimit/driver_library.h"

enum { READY_TIMEOUT_MS = 30000, HIGH_DESCRIPTOR = 10 };

struct harpe_guard {
    int socket;
};

/* ---- Finding the program -------------------------------------------------------------------- */

static bool is_program(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* `folder`/`name` when it is a program, to be freed; else NULL. */
static char *program_at(const char *folder, const char *name) {
    char *path = harpe_path_join(folder, "/", name);
    if (path && is_program(path)) return path;
    free(path);
    return NULL;
}

/* Installed beside or below a library (lib, lib/<triplet>), or in a build tree. */
static char *program_near(const char *file) {
    static const char *const places[] = {"harpe", "../harpe", "../bin/harpe", "../../bin/harpe"};
    char *real = realpath(file, NULL);
    char *folder = real ? harpe_path_parent(real) : NULL;
    char *found = NULL;
    for (size_t i = 0; folder && !found && i < sizeof places / sizeof places[0]; i++) {
        found = program_at(folder, places[i]);
    }
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
         folder = strtok_r(NULL, ":", &rest)) {
        found = program_at(folder, "harpe");
    }
    free(copy);
    return found;
}

static harpe_status find_program(char **out, harpe_error *error) {
    const char *given = secure_getenv("HARPE_PROGRAM");
    if (given && *given) {
        if (!is_program(given)) {
            return harpe_fail(error, HARPE_NOT_FOUND, "HARPE_PROGRAM: '%.200s' is no program",
                              given);
        }
        *out = strdup(given);
        return *out ? HARPE_OK : harpe_fail_memory(error);
    }
    static const char inside[] = "";
    Dl_info info = {0};
    char *found = program_near("/proc/self/exe");
    if (!found && dladdr(inside, &info) && info.dli_fname) {
        found = program_near(info.dli_fname);
    }
    if (!found) {
        found = program_in_path();
    }
    if (!found) {
        return harpe_fail(
            error, HARPE_NOT_FOUND,
            "the guard that puts power limits back is the program harpe, which is not "
            "in PATH: install it, name it in HARPE_PROGRAM, or go without guard");
    }
    *out = found;
    return HARPE_OK;
}

/* ---- Starting it ---------------------------------------------------------------------------- */

/* In a process forked out of one with threads: system calls only, until exec. */
static _Noreturn void become_guard(const char *program, int socket, int trainer) {
    char *arguments[] = {(char[]){"harpe"}, (char[]){"power-limit"}, (char[]){HARPE_GUARD_ARGUMENT},
                         NULL};
    int null = open("/dev/null", O_RDWR);
    socket = fcntl(socket, F_DUPFD, HIGH_DESCRIPTOR);
    trainer = trainer < 0 ? -1 : fcntl(trainer, F_DUPFD, HIGH_DESCRIPTOR);
    bool ok = null >= 0 && socket >= 0;
    for (int stream = STDIN_FILENO; ok && stream <= STDERR_FILENO; stream++) {
        ok = dup2(null, stream) >= 0;
    }
    ok = ok && dup2(socket, HARPE_GUARD_SOCKET) >= 0;
    unsigned first_unused = HARPE_GUARD_TRAINER;
    if (ok && trainer >= 0) {
        ok = dup2(trainer, HARPE_GUARD_TRAINER) >= 0;
        first_unused++;
    }
    if (ok) {
        (void)syscall(SYS_close_range, first_unused, ~0U, 0U);
        execve(program, arguments, environ);
    }
    _exit(127);
}

/* Two forks: the guard is nobody's child that the trainer would have to wait for, and its session
 * is its own, so that signals to the trainer's group pass it by. _Fork does not run the handlers
 * that frameworks hang onto fork. */
static harpe_status spawn_detached(const char *program, int socket, harpe_error *error) {
    int trainer = (int)syscall(SYS_pidfd_open, getpid(), 0);
    pid_t child = _Fork();
    if (child == 0) {
        (void)setsid();
        pid_t grandchild = _Fork();
        if (grandchild == 0) {
            become_guard(program, socket, trainer);
        }
        _exit(grandchild > 0 ? 0 : 127);
    }
    int fork_errno = errno;
    if (trainer >= 0) {
        close(trainer);
    }
    if (child < 0) return harpe_fail_errno(error, fork_errno, "starting the power limit guard");
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    return HARPE_OK;
}

/* ---- Talking to it -------------------------------------------------------------------------- */

static bool send_all(int socket, const void *data, size_t length) {
    const char *bytes = data;
    while (length > 0) {
        ssize_t sent = send(socket, bytes, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        bytes += sent;
        length -= (size_t)sent;
    }
    return true;
}

static bool receive_all(int socket, void *data, size_t length) {
    char *bytes = data;
    while (length > 0) {
        struct pollfd wait = {.fd = socket, .events = POLLIN};
        int ready = poll(&wait, 1, READY_TIMEOUT_MS);
        if (ready < 0 && errno == EINTR) continue;
        ssize_t got = ready > 0 ? recv(socket, bytes, length, 0) : 0;
        if (got <= 0) return false;
        bytes += got;
        length -= (size_t)got;
    }
    return true;
}

static harpe_status hand_over(int socket, const char *program, const harpe_guarded_gpu *gpus,
                              size_t count, harpe_error *error) {
    harpe_guard_header header = {.magic = HARPE_GUARD_MAGIC,
                                 .version = HARPE_GUARD_VERSION,
                                 .gpu_size = sizeof *gpus,
                                 .gpu_count = (uint32_t)count};
    harpe_driver_library_of(gpus[0].uuid, header.library_path);
    harpe_error answer;
    if (!send_all(socket, &header, sizeof header) ||
        !send_all(socket, gpus, count * sizeof *gpus) ||
        !receive_all(socket, &answer, sizeof answer)) {
        return harpe_fail(error, HARPE_IO_ERROR,
                          "the power limit guard '%.300s' did not start: is it of this version of "
                          "Harpe? HARPE_PROGRAM names another",
                          program);
    }
    if (answer.status != HARPE_OK) {
        answer.message[sizeof answer.message - 1] = '\0';
        return harpe_fail(error, answer.status, "power limit guard: %s", answer.message);
    }
    return HARPE_OK;
}

harpe_status harpe_guard_start(const harpe_guarded_gpu *gpus, size_t count, harpe_guard **out,
                               harpe_error *error) {
    int sockets[2] = {-1, -1};
    char *program = NULL;
    harpe_guard *guard = harpe_calloc(1, sizeof *guard);
    if (!guard) return harpe_fail_memory(error);
    harpe_status status = find_program(&program, error);
    if (status == HARPE_OK && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
        status = harpe_fail_errno(error, errno, "starting the power limit guard");
    }
    if (status == HARPE_OK) {
        status = spawn_detached(program, sockets[1], error);
        close(sockets[1]);
    }
    if (status == HARPE_OK) {
        status = hand_over(sockets[0], program, gpus, count, error);
    }
    free(program);
    if (status != HARPE_OK) {
        if (sockets[0] >= 0) {
            close(sockets[0]);
        }
        free(guard);
        return status;
    }
    guard->socket = sockets[0];
    *out = guard;
    return HARPE_OK;
}

void harpe_guard_stop(harpe_guard *guard, bool restored) {
    if (!guard) return;
    if (restored) {
        char byte = HARPE_GUARD_RESTORED;
        (void)send_all(guard->socket, &byte, 1);
    }
    close(guard->socket);
    free(guard);
}
