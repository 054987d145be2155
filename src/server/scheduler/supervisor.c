/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor of one scheduler program, a process between the server and the program. It is the
 * parent of its program, and a subreaper for all processes that the program starts: when such a
 * process loses its parent, it becomes a child of the supervisor, even if it has left the process
 * group and the session. So the supervisor finds all of these processes in /proc. A process id is
 * not used again before the supervisor has waited for the child, so it never kills a wrong process.
 * The kernel sends a signal to the program when the thread that started it ends. The supervisor has
 * only one thread, so this happens only when the supervisor itself ends.
 *
 * The supervisor passes the program's standard error on to the server's. It keeps the last line for
 * the report, and drops output above a limit. */
#include "server/scheduler/hosts.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/helper_process.h"
#include "base/process.h"
#include "base/wait.h"

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
