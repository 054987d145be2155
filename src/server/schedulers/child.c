/* SPDX-License-Identifier: Apache-2.0 */
/* The process of a scheduler program: started in a process group of its own with pipes that do not
 * block, ended together with all that it started. What is said to it is program.c's business. */
#include "server/schedulers/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"

enum { GRACE_MS = 300 }; /* between the end of its input and SIGKILL */

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* ---- All of them -------------------------------------------------------------------------- */

void harpe_children_init(harpe_children *children) {
    *children = (harpe_children){.first = NULL};
    pthread_mutex_init(&children->mutex, NULL);
}

void harpe_children_destroy(harpe_children *children) { pthread_mutex_destroy(&children->mutex); }

void harpe_children_kill(harpe_children *children) {
    pthread_mutex_lock(&children->mutex);
    children->is_over = true;
    for (const harpe_child *child = children->first; child; child = child->next)
        (void)kill(-child->process, SIGKILL);
    pthread_mutex_unlock(&children->mutex);
}

/* Under the mutex. */
static void enter(harpe_child *self) {
    self->previous = NULL;
    self->next = self->all->first;
    if (self->next) self->next->previous = self;
    self->all->first = self;
}

/* Before the process is waited for: after that, another process may have its number. */
static void leave(harpe_child *self) {
    pthread_mutex_lock(&self->all->mutex);
    if (self->previous)
        self->previous->next = self->next;
    else
        self->all->first = self->next;
    if (self->next) self->next->previous = self->previous;
    pthread_mutex_unlock(&self->all->mutex);
}

/* ---- One ---------------------------------------------------------------------------------- */

void harpe_child_init(harpe_child *self, harpe_children *all) {
    *self = (harpe_child){.all = all, .input = -1, .output = -1};
}

void harpe_child_stop(harpe_child *self) {
    close_fd(&self->input);
    close_fd(&self->output);
    if (self->process <= 0) return;
    int watch = (int)syscall(SYS_pidfd_open, self->process, 0);
    struct pollfd gone = {.fd = watch, .events = POLLIN};
    if (watch >= 0) {
        (void)poll(&gone, 1, GRACE_MS);
        close(watch);
    }
    (void)kill(-self->process, SIGKILL);
    leave(self);
    while (waitpid(self->process, NULL, 0) < 0 && errno == EINTR)
        continue;
    self->process = 0;
}

static int spawn(harpe_child *self, const char *command, int input, int output) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, (short)(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                  POSIX_SPAWN_SETSIGDEF));
    char *const arguments[] = {"sh", "-c", (char *)command, NULL};
    int problem = posix_spawn(&self->process, "/bin/sh", &actions, &attributes, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (problem) self->process = 0;
    return problem;
}

harpe_status harpe_child_start(harpe_child *self, const char *command, harpe_error *error) {
    int to[2] = {-1, -1};
    int from[2] = {-1, -1};
    int problem = 0;
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) problem = errno;
    pthread_mutex_lock(&self->all->mutex);
    if (!problem && self->all->is_over) problem = ECANCELED;
    if (!problem) problem = spawn(self, command, to[0], from[1]);
    if (!problem) enter(self);
    pthread_mutex_unlock(&self->all->mutex);
    close_fd(&to[0]);
    close_fd(&from[1]);
    if (problem) {
        close_fd(&to[1]);
        close_fd(&from[0]);
        return harpe_fail_errno(error, problem, "cannot start the scheduler program '%.200s'",
                                command);
    }
    (void)fcntl(to[1], F_SETFL, O_NONBLOCK);
    (void)fcntl(from[0], F_SETFL, O_NONBLOCK);
    self->input = to[1];
    self->output = from[0];
    return HARPE_OK;
}
