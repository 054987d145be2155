/* SPDX-License-Identifier: Apache-2.0 */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/platform.h"

pid_t harpe_process_self(void) {
    return harpe_platform_in_use ? harpe_platform_in_use->self() : getpid();
}

/* Reads a field of /proc/PID/stat. Counts from the end of the name, which may contain any
 * character. Field 3 is the state, and field 22 is the time of the start. */
uint64_t harpe_process_started(pid_t process) {
    char path[32], text[1024];
    if (harpe_platform_in_use) return harpe_platform_in_use->started(process);
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", (long)process);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    (void)close(file);
    text[length > 0 ? length : 0] = '\0';
    const char *field = strrchr(text, ')');
    if (!field || field[1] != ' ' || field[2] == 'Z' || field[2] == 'X') return 0;
    for (int i = 2; field && i < 22; i++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field + 1, NULL, 10) : 0;
}

int harpe_process_open(pid_t process) {
    if (harpe_platform_in_use) return harpe_platform_in_use->open_process(process);
    return (int)syscall(SYS_pidfd_open, process, 0);
}

int harpe_process_signal(int pidfd, int signal_number) {
    if (!harpe_platform_in_use)
        return (int)syscall(SYS_pidfd_send_signal, pidfd, signal_number, NULL, 0);
    if (harpe_platform_in_use->signal_process(pidfd, signal_number)) return 0;
    errno = ESRCH;
    return -1;
}

int harpe_process_take_descriptor(int pidfd, int number) {
    if (harpe_platform_in_use) return harpe_platform_in_use->take_descriptor(pidfd, number);
    return (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
}

void harpe_process_read(pid_t process, const char *file, char *text, size_t size) {
    char path[64];
    if (harpe_platform_in_use) {
        harpe_platform_in_use->describe(process, file, text, size);
        return;
    }
    (void)snprintf(path, sizeof path, "/proc/%ld/%s", (long)process, file);
    int opened = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = opened >= 0 ? read(opened, text, size - 1) : -1;
    if (opened >= 0) (void)close(opened);
    text[got > 0 ? got : 0] = '\0';
}

int harpe_process_signals(const sigset_t *signals) {
    if (!harpe_platform_in_use) {
        errno = pthread_sigmask(SIG_BLOCK, signals, NULL);
        return errno ? -1 : signalfd(-1, signals, SFD_NONBLOCK | SFD_CLOEXEC);
    }
    return fcntl(harpe_platform_in_use->signals(), F_DUPFD_CLOEXEC, 0);
}

int harpe_process_connect(int socket, const struct sockaddr *address, socklen_t length) {
    if (harpe_platform_in_use) harpe_platform_in_use->introduce(socket);
    return connect(socket, address, length);
}

bool harpe_process_peer(int socket, struct ucred *out) {
    socklen_t length = sizeof *out;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, out, &length) != 0) return false;
    if (harpe_platform_in_use) harpe_platform_in_use->identify_peer(socket, out);
    return true;
}

_Noreturn void harpe_process_exit(int status) {
    if (harpe_platform_in_use) harpe_platform_in_use->exit(status);
    _exit(status);
}

void *harpe_process_map(int file, size_t size) {
    if (harpe_platform_in_use) return harpe_platform_in_use->map(file, size);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void harpe_process_unmap(void *memory, size_t size) {
    if (!memory) return;
    if (harpe_platform_in_use)
        harpe_platform_in_use->unmap(memory, size);
    else
        (void)munmap(memory, size);
}

void harpe_process_close(int descriptor) {
    if (harpe_platform_in_use) harpe_platform_in_use->disown(descriptor);
    (void)close(descriptor);
}

const char *harpe_process_world_directory(void) {
    return harpe_platform_in_use ? harpe_platform_in_use->directory() : NULL;
}

int harpe_process_holds(int descriptor) {
    if (harpe_platform_in_use && descriptor >= 0) harpe_platform_in_use->own(descriptor);
    return descriptor;
}
