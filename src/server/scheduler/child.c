/* SPDX-License-Identifier: Apache-2.0 */
/* The server's side of a supervisor. The server starts the supervisor with non-blocking pipes, and
 * ends it through a socket (the leash). program.c exchanges the messages with the program. */
#include "server/scheduler/hosts.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/helper_process.h"
#include "base/process.h"
#include "base/text.h"
#include "base/wait.h"

/* ---- The server's side ----------------------------------------------------------------------- */

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
    int status = report->wait_status, number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    const char *before = *report->last_line ? ": " : "";
    if (number == SIGKILL && was_killed) return;
    if (number > 0)
        (void)snprintf(how, size, "signal %d (%s)%s%s", number, sigdescr_np(number), before,
                       report->last_line);
    else
        (void)snprintf(how, size, "exit status %d%s%s", WEXITSTATUS(status), before,
                       report->last_line);
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

/* ---- The supervisor -------------------------------------------------------------------------- */

/* A supervisor is the parent of its program. It is also a subreaper for all processes that the
 * program starts: when such a process loses its parent, it becomes a child of the supervisor, even
 * if it has left the process group and the session. So the supervisor finds all of these processes
 * in /proc. A process id is not used again before the supervisor has waited for the child, so it
 * never kills a wrong process. The kernel sends a signal to the program when the thread that
 * started it ends. The supervisor has only one thread, so this happens only when the supervisor
 * itself ends.
 *
 * The supervisor passes the program's standard error on to the server's. It keeps the last line for
 * the report, and drops output above a limit. */

enum {
    GRACE_MS = 300,         /* between the end of the program's input and SIGKILL */
    KILL_LIMIT_MS = 10000,  /* the longest wait for killed processes */
    KILL_STEP_MS = 20,      /* between two searches for new processes */
    WRITE_LIMIT_MS = 200,   /* for one write to a log that accepts nothing */
    ERROR_BYTES_MAX = 4096, /* for one read or write */
    /* The limits of the program's standard error: bytes in a burst, and bytes per second. */
    ERROR_BURST_BYTES = 1 << 20,
    ERROR_BYTES_PER_S = 64 << 10,
};

typedef struct supervisor {
    pid_t program; /* also its process group */
    int errors;    /* the program's standard error; -1: it has ended */
    int signals;   /* signalfd of SIGCHLD */
    bool has_ended;
    int64_t end_ns; /* time at which the program is killed; 0: not set */
    harpe_supervisor_report report;
    char line[HARPE_SUPERVISOR_LINE_SIZE]; /* the line that is being received, cut to this size */
    size_t line_length;
    double budget_bytes; /* of standard error */
    int64_t budget_ns;   /* time of the last update of the budget */
    size_t left_out_bytes;
} supervisor;

/* ---- Standard error -------------------------------------------------------------------------- */

static void interrupt_write(int number) { (void)number; }

/* Writes to the server's standard error. Gives up after a short time, because the supervisor must
 * not block if nobody reads the log. */
static void write_error(const char *bytes, size_t length) {
    const struct itimerval limit = {.it_value.tv_usec = WRITE_LIMIT_MS * 1000,
                                    .it_interval.tv_usec = WRITE_LIMIT_MS * 1000};
    const struct itimerval none = {0};
    (void)setitimer(ITIMER_REAL, &limit, NULL);
    while (length > 0) {
        ssize_t written = write(STDERR_FILENO, bytes, length);
        if (written <= 0) break;
        bytes += written;
        length -= (size_t)written;
    }
    (void)setitimer(ITIMER_REAL, &none, NULL);
}

static void remember(supervisor *self, const char *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != '\n') {
            if (self->line_length < sizeof self->line - 1)
                self->line[self->line_length++] = bytes[i];
            continue;
        }
        while (self->line_length > 0 && isspace((unsigned char)self->line[self->line_length - 1]))
            self->line_length--;
        self->line[self->line_length] = '\0';
        if (self->line_length > 0)
            memcpy(self->report.last_line, self->line, self->line_length + 1);
        self->line_length = 0;
    }
}

static void forward(supervisor *self, const char *bytes, size_t length) {
    int64_t now_ns = harpe_clock_ns();
    self->budget_bytes += (double)(now_ns - self->budget_ns) / 1e9 * ERROR_BYTES_PER_S;
    if (self->budget_bytes > ERROR_BURST_BYTES) self->budget_bytes = ERROR_BURST_BYTES;
    self->budget_ns = now_ns;
    if (self->budget_bytes < (double)length) {
        self->left_out_bytes += length;
        return;
    }
    self->budget_bytes -= (double)length;
    if (self->left_out_bytes > 0) {
        char note[120];
        int count = snprintf(note, sizeof note,
                             "\nharpe: %zu bytes of a scheduler's standard error are left out\n",
                             self->left_out_bytes);
        write_error(note, (size_t)count);
        self->left_out_bytes = 0;
    }
    write_error(bytes, length);
}

/* Passes a part of the program's standard error on to the server's. Returns false if there is
 * nothing to read now. */
static bool pass_errors(supervisor *self) {
    char bytes[ERROR_BYTES_MAX];
    if (self->errors < 0) return false;
    ssize_t count = read(self->errors, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) return true;
    if (count > 0) {
        remember(self, bytes, (size_t)count);
        forward(self, bytes, (size_t)count);
        return true;
    }
    if (count < 0 && errno == EAGAIN) return false;
    (void)close(self->errors);
    self->errors = -1;
    return false;
}

/* ---- The program ----------------------------------------------------------------------------- */

/* Makes the kernel kill this process first if the machine runs out of memory. */
static void offer_memory(void) {
    int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (file < 0) return;
    (void)!write(file, "1000", 4);
    (void)close(file);
}

/* Returns the command with "exec" before it if it consists only of a path and words. The shell then
 * replaces itself by the program. Otherwise returns NULL. */
static char *without_shell(const char *command) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "/._-+=:,@% ";
    char *made = NULL;
    bool is_plain = *command == '/' && command[strspn(command, plain)] == '\0';
    if (!is_plain || asprintf(&made, "exec %s", command) < 0) return NULL;
    return made;
}

static _Noreturn void become(const char *command, int errors, pid_t parent) {
    const struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t none;
    for (int number = 1; number < NSIG; number++)
        (void)sigaction(number, &action, NULL);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    /* This prevents set-user-ID programs from changing to another user. The supervisor could not
     * kill processes of another user. */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(127);
    offer_memory();
    (void)dup2(errors, STDERR_FILENO);
    (void)close_range(STDERR_FILENO + 1, ~0U, 0);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    const char *plain = without_shell(command);
    execl("/bin/sh", "sh", "-c", plain ? plain : command, (char *)NULL);
    _exit(127);
}

static bool start_program(supervisor *self, const char *command) {
    int pipe_ends[2];
    sigset_t child;
    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &child, NULL);
    self->signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (self->signals < 0 || pipe2(pipe_ends, O_CLOEXEC) != 0) return false;
    pid_t own = harpe_process_self();
    self->program = fork();
    if (self->program == 0) become(command, pipe_ends[1], own);
    (void)close(pipe_ends[1]);
    self->errors = pipe_ends[0];
    (void)fcntl(self->errors, F_SETFL, O_NONBLOCK);
    if (self->program < 0) return false;
    (void)setpgid(self->program, self->program);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    return null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(null, STDOUT_FILENO) >= 0;
}

/* Waits for all processes that have ended. Returns false if no process is left. */
static bool reap(supervisor *self) {
    for (;;) {
        int wait_status;
        pid_t process = waitpid(-1, &wait_status, WNOHANG);
        if (process == 0) return true;
        if (process < 0 && errno == EINTR) continue;
        if (process < 0) return false;
        if (process != self->program) continue;
        self->has_ended = true;
        self->report.wait_status = wait_status;
    }
}

/* ---- The end --------------------------------------------------------------------------------- */

/* Returns the parent of a process, or 0 if the process has ended. */
static pid_t parent_of(pid_t process) {
    char text[512];
    harpe_process_read(process, "stat", text, sizeof text);
    const char *name_end = strrchr(text, ')'); /* then " STATE PARENT" */
    return name_end && strlen(name_end) > 4 ? (pid_t)strtol(name_end + 4, NULL, 10) : 0;
}

/* Kills all children of the supervisor. The children of the killed processes then become children
 * of the supervisor. */
static void kill_children(void) {
    pid_t own = harpe_process_self();
    DIR *processes = opendir("/proc");
    if (!processes) return;
    for (const struct dirent *entry; (entry = readdir(processes));) {
        pid_t child = (pid_t)strtol(entry->d_name, NULL, 10);
        if (child <= 0 || parent_of(child) != own) continue;
        (void)kill(-child, SIGKILL); /* its group, if it leads one */
        (void)kill(child, SIGKILL);
    }
    (void)closedir(processes);
}

static void kill_all(supervisor *self) {
    int64_t end_ns = harpe_clock_ns() + KILL_LIMIT_MS * INT64_C(1000000);
    struct pollfd event = {.fd = self->signals, .events = POLLIN};
    if (!self->has_ended) (void)kill(-self->program, SIGKILL);
    while (reap(self) && harpe_clock_ns() < end_ns) {
        struct signalfd_siginfo taken;
        kill_children();
        (void)harpe_poll(&event, 1, KILL_STEP_MS * INT64_C(1000000));
        (void)!read(self->signals, &taken, sizeof taken);
        for (int i = 0; i < 64 && pass_errors(self); i++)
            continue;
    }
}

static void report(supervisor *self) {
    for (int i = 0; i < 1024 && pass_errors(self); i++)
        continue;
    remember(self, "\n", 1);
    (void)send(HARPE_SUPERVISOR_LEASH, &self->report, sizeof self->report,
               MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static void end_after(supervisor *self, int delay_ms) {
    int64_t end_ns = harpe_clock_ns() + delay_ms * INT64_C(1000000);
    if (self->end_ns == 0 || end_ns < self->end_ns) self->end_ns = end_ns;
}

/* Reads a message of the server. Returns false if the server has closed the leash. */
static bool listen_to_server(supervisor *self) {
    char word[16];
    ssize_t count = recv(HARPE_SUPERVISOR_LEASH, word, sizeof word, MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    end_after(self, count > 0 ? 0 : GRACE_MS);
    return count > 0;
}

/* Waits until the program has ended or must end. */
static void keep(supervisor *self, bool knows_server) {
    struct pollfd events[] = {{.fd = HARPE_SUPERVISOR_LEASH, .events = POLLIN},
                              {.fd = knows_server ? HARPE_SUPERVISOR_SERVER : -1, .events = POLLIN},
                              {.fd = self->signals, .events = POLLIN},
                              {.fd = self->errors, .events = POLLIN}};
    while (!self->has_ended) {
        int64_t left_ns = self->end_ns > 0 ? self->end_ns - harpe_clock_ns() : -1;
        if (self->end_ns > 0 && left_ns <= 0) return;
        events[3].fd = self->errors;
        if (harpe_poll(events, 4, left_ns) < 0) continue;
        if (events[0].revents && !listen_to_server(self)) events[0].fd = -1;
        if (events[1].revents & POLLIN) {
            end_after(self, GRACE_MS);
            events[1].fd = -1;
        }
        struct signalfd_siginfo taken;
        if (events[2].revents && read(self->signals, &taken, sizeof taken) > 0) (void)reap(self);
        if (events[3].revents) (void)pass_errors(self);
    }
}

int harpe_supervisor_main(int argc, char **argv) {
    if (argc != 3) return 2;
    /* The first process ends, so that the supervisor is not a child of the server, and the server
     * need not wait for its end. */
    pid_t supervisor_process = fork();
    if (supervisor_process != 0) return supervisor_process > 0 ? 0 : 1;
    (void)setsid();
    harpe_helper_process_begin();
    const struct sigaction action = {.sa_handler = interrupt_write}; /* without SA_RESTART */
    (void)sigaction(SIGALRM, &action, NULL);
    (void)prctl(PR_SET_NAME, "harpe-supervise");
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)fcntl(HARPE_SUPERVISOR_LEASH, F_SETFD, FD_CLOEXEC);
    bool knows_server = fcntl(HARPE_SUPERVISOR_SERVER, F_SETFD, FD_CLOEXEC) == 0;
    supervisor self = {
        .errors = -1, .budget_bytes = ERROR_BURST_BYTES, .budget_ns = harpe_clock_ns()};
    if (start_program(&self, argv[2])) keep(&self, knows_server);
    if (self.program > 0) kill_all(&self);
    report(&self);
    return 0;
}
