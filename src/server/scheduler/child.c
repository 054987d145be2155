/* SPDX-License-Identifier: Apache-2.0 */
/* The server's side of a supervisor. The server starts the supervisor with non-blocking pipes, and
 * ends it through a socket (the leash). program.c exchanges the messages with the program. */
#include "server/scheduler/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/helper_process.h"
#include "base/process.h"
#include "base/text.h"
#include "base/wait.h"
#include "server/scheduler/supervisor.h"

enum {
    HIGH_DESCRIPTOR = 10,   /* higher than all descriptors of a supervisor */
    REPORT_LIMIT_MS = 2000, /* time for a killed program to end */
};

typedef struct harpe_cancelled {
    struct harpe_cancelled *next;
    char job_id[];
} harpe_cancelled;

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* ---- All of them ----------------------------------------------------------------------------- */

void harpe_children_init(harpe_children *children) {
    *children = (harpe_children){.first = NULL};
    pthread_mutex_init(&children->mutex, NULL);
}

void harpe_children_destroy(harpe_children *children) {
    for (harpe_cancelled *next, *one = children->cancelled; one; one = next) {
        next = one->next;
        free(one);
    }
    pthread_mutex_destroy(&children->mutex);
}

/* Call it with the mutex locked. A thread that waits for the child notices that the leash is
 * closed, even if the supervisor does not answer. */
static void kill_child(const harpe_child *child) {
    (void)send(child->leash, HARPE_SUPERVISOR_KILL, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(child->leash, SHUT_RDWR);
}

void harpe_children_kill(harpe_children *children) {
    harpe_lock(&children->mutex);
    children->is_over = true;
    for (const harpe_child *child = children->first; child; child = child->next)
        kill_child(child);
    harpe_unlock(&children->mutex);
}

void harpe_children_cancel(harpe_children *children, const char *job_id) {
    size_t size = strlen(job_id) + 1;
    harpe_cancelled *cancelled = malloc(sizeof *cancelled + size);
    harpe_lock(&children->mutex);
    if (cancelled) { /* NULL: a child that is now being started runs until it answers */
        memcpy(cancelled->job_id, job_id, size);
        cancelled->next = children->cancelled;
        children->cancelled = cancelled;
    }
    for (const harpe_child *child = children->first; child; child = child->next)
        if (strcmp(child->job_id, job_id) == 0) kill_child(child);
    harpe_unlock(&children->mutex);
}

void harpe_children_forget(harpe_children *children, const char *job_id) {
    harpe_lock(&children->mutex);
    for (harpe_cancelled **at = &children->cancelled; *at;) {
        harpe_cancelled *one = *at;
        if (strcmp(one->job_id, job_id) == 0) {
            *at = one->next;
            free(one);
        } else {
            at = &one->next;
        }
    }
    harpe_unlock(&children->mutex);
}

/* Call it with the mutex locked. */
static bool is_refused(const harpe_child *self) {
    if (self->all->is_over) return true;
    for (const harpe_cancelled *one = self->all->cancelled; one; one = one->next)
        if (strcmp(one->job_id, self->job_id) == 0) return true;
    return false;
}

bool harpe_child_is_refused(const harpe_child *self) {
    harpe_lock(&self->all->mutex);
    bool refused = is_refused(self);
    harpe_unlock(&self->all->mutex);
    return refused;
}

/* Call it with the mutex locked. */
static void enter(harpe_child *self) {
    self->previous = NULL;
    self->next = self->all->first;
    if (self->next) self->next->previous = self;
    self->all->first = self;
}

static void leave(harpe_child *self) {
    harpe_lock(&self->all->mutex);
    if (self->previous)
        self->previous->next = self->next;
    else
        self->all->first = self->next;
    if (self->next) self->next->previous = self->previous;
    harpe_unlock(&self->all->mutex);
}

/* ---- The end of one -------------------------------------------------------------------------- */

void harpe_child_init(harpe_child *self, harpe_children *all, const char *job_id) {
    *self = (harpe_child){.all = all, .job_id = job_id, .leash = -1, .input = -1, .output = -1};
}

bool harpe_child_is_running(const harpe_child *self) { return self->leash >= 0; }

void harpe_child_stop(harpe_child *self) {
    close_fd(&self->input);
    close_fd(&self->output);
    if (self->leash < 0) return;
    leave(self);
    close_fd(&self->leash);
}

static void describe(const harpe_supervisor_report *report, bool was_killed, char *how,
                     size_t size) {
    harpe_text text = {0};
    int wait_status = report->wait_status;
    if (WIFSIGNALED(wait_status) && was_killed && WTERMSIG(wait_status) == SIGKILL)
        harpe_text_printf(&text, "%s", "");
    else if (WIFSIGNALED(wait_status))
        harpe_text_printf(&text, "signal %d (%s)", WTERMSIG(wait_status),
                          sigdescr_np(WTERMSIG(wait_status)));
    else
        harpe_text_printf(&text, "exit status %d", WEXITSTATUS(wait_status));
    if (text.length > 0 && *report->last_line) harpe_text_printf(&text, ": %s", report->last_line);
    (void)snprintf(how, size, "%s", text.data && !text.failed ? text.data : "");
    harpe_text_free(&text);
}

void harpe_child_end(harpe_child *self, int timeout_ms, char *how, size_t size) {
    harpe_supervisor_report report;
    struct pollfd event = {.fd = self->leash, .events = POLLIN};
    *how = '\0';
    if (self->leash < 0) return;
    bool is_reported = harpe_poll(&event, 1, timeout_ms * INT64_C(1000000)) > 0;
    if (!is_reported) {
        (void)send(self->leash, HARPE_SUPERVISOR_KILL, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        close_fd(&self->input);
        close_fd(&self->output);
        (void)harpe_poll(&event, 1, REPORT_LIMIT_MS * INT64_C(1000000));
    }
    ssize_t count = recv(self->leash, &report, sizeof report, MSG_DONTWAIT);
    if (count == (ssize_t)sizeof report) {
        report.last_line[sizeof report.last_line - 1] = '\0';
        report.last_line[harpe_cut_length(report.last_line, sizeof report.last_line - 2)] = '\0';
        describe(&report, !is_reported, how, size);
    }
    harpe_child_stop(self);
}

/* ---- The start of one ------------------------------------------------------------------------ */

/* The descriptors that a supervisor gets: ends of pipes and of the leash, and a pidfd of the
 * server.
 */
typedef struct handed {
    int input, output, leash, server;
} handed;

static int moved_up(int *fd) {
    int moved = fcntl(*fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    close_fd(fd);
    return moved;
}

static int spawn(const char *program, const char *command, const handed *given, pid_t *process) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGCHLD);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, given->input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, given->output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, given->leash, HARPE_SUPERVISOR_LEASH);
    if (given->server >= 0)
        posix_spawn_file_actions_adddup2(&actions, given->server, HARPE_SUPERVISOR_SERVER);
    posix_spawn_file_actions_addclosefrom_np(
        &actions, given->server >= 0 ? HARPE_SUPERVISOR_SERVER + 1 : HARPE_SUPERVISOR_SERVER);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    char *const arguments[] = {"harpe", HARPE_SUPERVISOR_ARGUMENT, (char *)command, NULL};
    int problem = posix_spawn(process, program, &actions, &attributes, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return problem;
}

/* Holds the mutex until the child is in the list, so that harpe_children_kill also kills this
 * child. */
static int spawn_and_enter(harpe_child *self, const char *program, const char *command,
                           const handed *given) {
    pid_t process = 0;
    int outcome = 0;
    harpe_lock(&self->all->mutex);
    int problem = is_refused(self) ? ECANCELED : spawn(program, command, given, &process);
    if (!problem) enter(self);
    harpe_unlock(&self->all->mutex);
    if (problem) return problem;
    /* The supervisor forks at once, and its first process, which is a child of this process,
     * ends. */
    pid_t waited;
    while ((waited = waitpid(process, &outcome, 0)) < 0 && errno == EINTR)
        continue;
    if (waited == process && outcome != 0) {
        leave(self);
        return EAGAIN;
    }
    return 0;
}

static int start(harpe_child *self, const char *program, const char *command) {
    int to[2] = {-1, -1}, from[2] = {-1, -1}, leash[2] = {-1, -1};
    int server = harpe_process_open(harpe_process_self());
    int problem = 0;
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, leash))
        problem = errno;
    handed given = {moved_up(&to[0]), moved_up(&from[1]), moved_up(&leash[1]), moved_up(&server)};
    if (!problem && (given.input < 0 || given.output < 0 || given.leash < 0)) problem = EMFILE;
    self->leash = leash[0];
    if (!problem) problem = spawn_and_enter(self, program, command, &given);
    close_fd(&given.input);
    close_fd(&given.output);
    close_fd(&given.leash);
    close_fd(&given.server);
    if (problem) {
        close_fd(&to[1]);
        close_fd(&from[0]);
        close_fd(&self->leash);
        return problem;
    }
    (void)fcntl(to[1], F_SETFL, O_NONBLOCK);
    (void)fcntl(from[0], F_SETFL, O_NONBLOCK);
    self->input = to[1];
    self->output = from[0];
    return 0;
}

harpe_status harpe_child_start(harpe_child *self, const char *command, harpe_error *error) {
    char *program = NULL;
    harpe_status status =
        harpe_helper_process_program("the supervisor of scheduler programs", &program, error);
    if (status != HARPE_OK) return status;
    int problem = start(self, program, command);
    free(program);
    if (!problem) return HARPE_OK;
    return harpe_fail_errno(error, problem, "cannot start the scheduler program '%.200s'", command);
}
