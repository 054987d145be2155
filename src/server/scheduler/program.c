/* SPDX-License-Identifier: Apache-2.0 */
/* A scheduler that is another program, in any language. It exchanges JSON lines with the server
 * through its standard input and output. Its standard error goes to the standard error of the
 * server. The server sends {"init": ...} first, and {"observe": [...]} after each round. The
 * program answers each line with one line {"schedules": [...]} or {"error": "..."} within a time
 * limit. If an answer has no schedules, or has "finished": true, the last schedules are used in all
 * later rounds. A program that dies or does not answer is lost. The server can start a new process,
 * which gets the results of all rounds again (src/server/engine/turns.c).
 *
 * The server starts a supervisor for each program, and connects it with non-blocking pipes. A
 * socket (the leash) tells the supervisor to end the program. supervisor.c is the other side. */
#include "server/scheduler/hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/helper_process.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/number.h"
#include "base/process.h"
#include "base/text.h"
#include "base/wait.h"
#include "server/scheduler/builtin.h"

enum {
    /* Limits of an answer, in bytes: for an answer without ranks, additionally for each rank, and
     * for any answer. */
    LINE_LIMIT_BYTES = 4 << 20,
    LINE_LIMIT_RANK_BYTES = 1 << 20,
    LINE_LIMIT_MAX_BYTES = 256 << 20,
    READ_BYTES = 1 << 16,
    HOW_SIZE = 700,
    END_TIMEOUT_MS = 2000,  /* from the end of a program's output to its own end */
    HIGH_DESCRIPTOR = 10,   /* higher than all descriptors of a supervisor */
    REPORT_LIMIT_MS = 2000, /* time for a killed program to end */
};

typedef struct harpe_child {
    harpe_children *all;
    const char *job_id;       /* belongs to the owner; "" if the child has no job */
    struct harpe_child *next; /* in `all` while it runs */
    int leash;                /* socket to its supervisor; -1: not running */
    int input, output;        /* its standard input and output; -1: not running */
} harpe_child;

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

/* Tells the supervisor to kill the program. A thread that waits for the program then sees that the
 * leash is closed, even if the supervisor does not answer. The caller holds the mutex. */
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
    if (cancelled) { /* NULL: a program that is being started now runs until it answers */
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

/* Returns true if the server starts no more programs at all, or no more for the child's job. */
static bool is_child_refused(const harpe_child *self) {
    harpe_lock(&self->all->mutex);
    bool refused = is_refused(self);
    harpe_unlock(&self->all->mutex);
    return refused;
}

static void leave(harpe_child *self) {
    harpe_lock(&self->all->mutex);
    harpe_child **at = &self->all->first;
    while (*at != self)
        at = &(*at)->next;
    *at = self->next;
    harpe_unlock(&self->all->mutex);
}

/* ---- The end of one -------------------------------------------------------------------------- */

/* Closes the program's input and the leash, and returns without waiting. A short time later, the
 * supervisor kills those processes of the program that still run. Does nothing if no program runs.
 */
static void stop_child(harpe_child *self) {
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

/* Waits until the program has ended, for at most `timeout_ms`. Then kills it and waits until it has
 * ended. Describes the end in `how`: "exit status 3" or "signal 11 (Segmentation fault)", and then
 * a colon and the last line of the program's standard error. `how` is "" if this function killed
 * the program, or if the cause of the end is not known. */
static void end_child(harpe_child *self, int timeout_ms, char *how, size_t size) {
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
    stop_child(self);
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
    if (!problem) {
        self->next = self->all->first;
        self->all->first = self;
    }
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

static int connect_child(harpe_child *self, const char *program, const char *command) {
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

/* Runs `command` with sh -c. */
static harpe_status start_child(harpe_child *self, const char *command, harpe_error *error) {
    char *program = NULL;
    harpe_status status =
        harpe_helper_process_program("the supervisor of scheduler programs", &program, error);
    if (status != HARPE_OK) return status;
    int problem = connect_child(self, program, command);
    free(program);
    if (!problem) return HARPE_OK;
    return harpe_fail_errno(error, problem, "cannot start the scheduler program '%.200s'", command);
}

/* ---- Programs -------------------------------------------------------------------------------- */

typedef struct program {
    const harpe_scheduler_job *job; /* NULL: the process only examines a shared object */
    const char *command;
    const char *what; /* "scheduler program", for messages */
    const char *name; /* the program, the class or the file, for messages */
    int timeout_s;
    bool is_library; /* a process of library_host.c */
    harpe_child child;
    json_t *schedules; /* the list in the last answer; NULL: it had none */
    bool is_finished;
} program;

/* ---- One question, one answer ---------------------------------------------------------------- */

static harpe_status fail_died(program *self, harpe_error *error) {
    char how[HOW_SIZE];
    end_child(&self->child, END_TIMEOUT_MS, how, sizeof how);
    return harpe_fail(error, HARPE_IO_ERROR, "the %s '%.200s' ended without an answer%s%s%s",
                      self->what, self->name, *how ? " (" : ": see its standard error", how,
                      *how ? ")" : "");
}

static harpe_status fail_lines(const program *self, harpe_error *error) {
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "the %s '%.200s' answered one question with more than one line", self->what,
                      self->name);
}

static harpe_status wait_for(program *self, int fd, short events, int64_t deadline_ns,
                             harpe_error *error) {
    for (;;) {
        int64_t left_ns = deadline_ns - harpe_clock_ns();
        /* If the leash is closed, the program or its supervisor was killed. */
        struct pollfd ready[] = {{.fd = fd, .events = events},
                                 {.fd = self->child.leash, .events = POLLIN}};
        int count = left_ns > 0 ? harpe_poll(ready, 2, left_ns) : 0;
        if (count > 0 && ready[0].revents) return HARPE_OK;
        if (count > 0) return fail_died(self, error);
        if (count < 0 && errno == EINTR) continue;
        return harpe_fail(error, HARPE_IO_ERROR, "the %s '%.200s' did not answer within %d s",
                          self->what, self->name, self->timeout_s);
    }
}

/* Writes without causing SIGPIPE, so the process's action for this signal does not matter. */
static ssize_t write_quietly(int fd, const char *bytes, size_t length) {
    sigset_t pipe_signal, before, pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    sigpending(&pending);
    ssize_t written = write(fd, bytes, length);
    int problem = errno;
    if (written < 0 && problem == EPIPE && !sigismember(&pending, SIGPIPE)) {
        const struct timespec now = {0};
        while (sigtimedwait(&pipe_signal, NULL, &now) < 0 && errno == EINTR)
            continue;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = problem;
    return written;
}

static harpe_status send_line(program *self, const char *line, size_t length, int64_t deadline_ns,
                              harpe_error *error) {
    while (length > 0) {
        harpe_status status = wait_for(self, self->child.input, POLLOUT, deadline_ns, error);
        if (status != HARPE_OK) return status;
        ssize_t written = write_quietly(self->child.input, line, length);
        if (written < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (written < 0) return fail_died(self, error);
        line += written;
        length -= (size_t)written;
    }
    return HARPE_OK;
}

/* Returns the longest line that is accepted. It grows with the number of ranks. Without a limit, a
 * program that never ends its line could use up the server's memory. */
static size_t line_limit(const program *self) {
    size_t ranks = self->job ? (size_t)self->job->job->world_size : 0;
    size_t limit = ranks * LINE_LIMIT_RANK_BYTES + LINE_LIMIT_BYTES;
    return limit < LINE_LIMIT_MAX_BYTES ? limit : LINE_LIMIT_MAX_BYTES;
}

/* Reads one line into `line`, without its newline. */
static harpe_status read_line(program *self, harpe_text *line, int64_t deadline_ns,
                              harpe_error *error) {
    char bytes[READ_BYTES];
    for (;;) {
        harpe_status status = wait_for(self, self->child.output, POLLIN, deadline_ns, error);
        if (status != HARPE_OK) return status;
        ssize_t count = read(self->child.output, bytes, sizeof bytes);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (count <= 0) return fail_died(self, error);
        const char *end = memchr(bytes, '\n', (size_t)count);
        if (end && end + 1 != bytes + count) return fail_lines(self, error);
        harpe_text_append(line, bytes, end ? (size_t)(end - bytes) : (size_t)count);
        if (line->failed) return harpe_fail_memory(error);
        if (line->length > line_limit(self))
            return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                              "the %s '%.200s' answered with a line of more than "
                              "%zu MiB",
                              self->what, self->name, line_limit(self) >> 20);
        if (end) return HARPE_OK;
    }
}

/* Fails with the program's message as one line. The message may be a stack trace. */
static harpe_status fail_as_said(const char *said, harpe_status status, harpe_error *error) {
    char *line = strdup(said);
    if (!line) return harpe_fail_memory(error);
    size_t length = 0;
    for (const char *from = line; *from; from++) {
        bool is_space = (unsigned char)*from <= ' ' || *from == 0x7F;
        if (is_space && (length == 0 || line[length - 1] == ' ')) continue;
        line[length++] = is_space ? ' ' : *from;
    }
    while (length > 0 && line[length - 1] == ' ')
        length--;
    line[length] = '\0';
    harpe_clean_in_place(line); /* before the line is cut, because this can make it shorter */
    (void)harpe_fail(error, status, "%s",
                     length > 0 ? line : "the scheduler program did not say what is wrong");
    free(line);
    return status;
}

/* Parses an answer. An error that the program reports is final. The question is not asked again. */
static harpe_status parse_answer(program *self, const harpe_text *line, json_t **out,
                                 harpe_error *error) {
    json_error_t problem;
    json_t *answer = json_loadb(line->data ? line->data : "", line->length, 0, &problem);
    const json_t *said = json_object_get(answer, "error");
    if (json_is_object(answer) && !json_is_string(said)) {
        *out = answer;
        return HARPE_OK;
    }
    harpe_status status = HARPE_INVALID_INPUT;
    if (json_is_object(answer)) {
        json_int_t number = json_integer_value(json_object_get(answer, "status"));
        bool is_status = number > HARPE_OK && number <= HARPE_UNAVAILABLE;
        status = is_status ? (harpe_status)number : HARPE_INFEASIBLE;
        status = fail_as_said(json_string_value(said), status, error);
    } else {
        (void)harpe_fail(error, status,
                         "the %s '%.200s' answered with something that is not a JSON object: "
                         "%.100s",
                         self->what, self->name, line->data ? line->data : "(an empty line)");
    }
    json_decref(answer);
    return status;
}

static harpe_status take_schedules(program *self, const json_t *answer, harpe_error *error) {
    json_t *schedules = json_object_get(answer, "schedules");
    if (schedules && !json_is_array(schedules))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "the %s '%.200s' answered with schedules that are not a list", self->what,
                          self->name);
    json_decref(self->schedules);
    self->schedules = json_array_size(schedules) > 0 ? json_incref(schedules) : NULL;
    self->is_finished = !self->schedules || json_is_true(json_object_get(answer, "finished"));
    if (self->is_finished) stop_child(&self->child); /* no more questions follow */
    return HARPE_OK;
}

static harpe_status ask_once(program *self, const char *question, size_t length, harpe_text *answer,
                             harpe_error *error) {
    if (self->child.leash < 0) return fail_died(self, error);
    if (harpe_events_now(self->child.output, POLLIN) & POLLIN) return fail_lines(self, error);
    int64_t deadline_ns = harpe_clock_ns() + (int64_t)self->timeout_s * 1000000000;
    harpe_status status = send_line(self, question, length, deadline_ns, error);
    return status != HARPE_OK ? status : read_line(self, answer, deadline_ns, error);
}

/* ---- Questions ------------------------------------------------------------------------------- */

/* Asks a question, and frees it. */
static harpe_status ask(program *self, harpe_text *question, json_t **answer, harpe_error *error) {
    harpe_text said = {0};
    harpe_text_append(question, "\n", 1);
    harpe_status status = question->failed
                              ? harpe_fail_memory(error)
                              : ask_once(self, question->data, question->length, &said, error);
    if (status != HARPE_OK && !question->failed) {
        char how[HOW_SIZE];
        end_child(&self->child, 0, how, sizeof how);
    }
    if (status == HARPE_OK) status = parse_answer(self, &said, answer, error);
    harpe_text_free(question);
    harpe_text_free(&said);
    return status;
}

/* Appends a JSON text, and frees it. The line fails if `json` is NULL or if `status`, the result of
 * making the text, is a failure. */
static void append_json(harpe_text *line, const char *before, harpe_status status, char *json) {
    harpe_text_append(line, before, strlen(before));
    if (status == HARPE_OK && json) harpe_text_append(line, json, strlen(json));
    line->failed = line->failed || status != HARPE_OK || !json;
    free(json);
}

/* A text of a setting may have more than one line. */
static void append_setting(harpe_text *line, const char *before, const char *setting) {
    json_t *value = json_loads(setting, 0, NULL);
    append_json(line, before, HARPE_OK, json_dumps(value, JSON_COMPACT));
    json_decref(value);
}

static harpe_text init_question(const harpe_scheduler_job *job, const char *directory) {
    harpe_text line = {0};
    char *json = NULL;
    harpe_status status = harpe_job_info_format(job->job, &json, NULL);
    append_json(&line, "{\"init\":{\"job_info\":", status, json);
    for (int r = 0; r < job->job->world_size && !line.failed; r++) {
        status = harpe_rank_info_format(&job->ranks[r], &json, NULL);
        append_json(&line, r == 0 ? ",\"rank_infos\":[" : ",", status, json);
    }
    append_setting(&line, "],\"settings\":", job->settings_json);
    append_setting(&line, ",\"args\":", job->args_json);
    if (directory) harpe_json_string(&line, ",\"directory\":", directory);
    harpe_text_append(&line, "}}", 2);
    return line;
}

static harpe_text observe_question(const harpe_profiling_result *results, size_t count) {
    harpe_text line = {0};
    for (size_t r = 0; r < count && !line.failed; r++) {
        char *json = NULL;
        harpe_status status = harpe_profiling_result_format(&results[r], &json, NULL);
        append_json(&line, r == 0 ? "{\"observe\":[" : ",", status, json);
    }
    harpe_text_append(&line, "]}", 2);
    return line;
}

static void pass_log(const program *self, const json_t *answer) {
    size_t index;
    const json_t *entry;
    if (!self->job) return;
    json_array_foreach(json_object_get(answer, "log"), index, entry) {
        json_int_t level = json_integer_value(json_array_get(entry, 0));
        const char *line = json_string_value(json_array_get(entry, 1));
        bool is_level = level >= HARPE_LOG_DEBUG && level <= HARPE_LOG_ERROR;
        if (line)
            harpe_log_line(&self->job->log, is_level ? (harpe_log_level)level : HARPE_LOG_INFO,
                           "%s", line);
    }
}

/* Asks a shared object. The caller frees the answer. If the answer is an error, returns it. */
static harpe_status ask_library(const void *state, harpe_text question, json_t **answer,
                                harpe_error *error) {
    program *self = (program *)state; /* the server sees no change of it */
    harpe_status status = ask(self, &question, answer, error);
    if (status != HARPE_OK) return status;
    pass_log(self, *answer);
    const json_t *finished = json_object_get(*answer, "finished");
    if (finished) self->is_finished = json_is_true(finished);
    return HARPE_OK;
}

/* Asks a question whose answer only changes the state. */
static harpe_status tell(program *self, harpe_text question, harpe_error *error) {
    json_t *answer = NULL;
    harpe_status status = self->is_library ? ask_library(self, question, &answer, error)
                                           : ask(self, &question, &answer, error);
    if (status == HARPE_OK && !self->is_library) status = take_schedules(self, answer, error);
    json_decref(answer);
    return status;
}

/* ---- The process of a job -------------------------------------------------------------------- */

static void free_program(program *self) {
    stop_child(&self->child);
    json_decref(self->schedules);
    free(self);
}

static harpe_status new_program(const program *from, harpe_children *children, const char *job_id,
                                program **out, harpe_error *error) {
    program *self = harpe_calloc(1, sizeof *self);
    if (!self) return harpe_fail_memory(error);
    *self = *from;
    self->child =
        (harpe_child){.all = children, .job_id = job_id, .leash = -1, .input = -1, .output = -1};
    harpe_status status = start_child(&self->child, self->command, error);
    if (status != HARPE_OK)
        free_program(self);
    else
        *out = self;
    return status;
}

static void destroy(void *state) { free_program(state); }

static harpe_status start(const harpe_scheduler_job *job, bool is_library, void **state,
                          harpe_error *error) {
    const harpe_host_job *host = (const harpe_host_job *)job;
    program *self;
    const program constants = {.job = job,
                               .command = host->command,
                               .what = host->what,
                               .name = host->name,
                               .timeout_s = host->timeout_s,
                               .is_library = is_library};
    harpe_status status = new_program(&constants, host->children, host->job_id, &self, error);
    if (status != HARPE_OK) return status;
    status = tell(self, init_question(job, is_library ? job->directory : NULL), error);
    if (status != HARPE_OK) {
        free_program(self);
        return status;
    }
    *state = self;
    return HARPE_OK;
}

static harpe_status observe(void *state, const harpe_profiling_result *results, size_t count,
                            harpe_error *error) {
    return tell(state, observe_question(results, count), error);
}

/* ---- A program ------------------------------------------------------------------------------- */

static harpe_status check_args(const char *args_json, harpe_error *error) {
    json_t *args = json_loads(args_json, JSON_REJECT_DUPLICATES, NULL);
    bool is_object = json_is_object(args);
    json_decref(args);
    if (is_object) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT, "scheduler_args: must be a JSON object");
}

static harpe_status create(const harpe_scheduler_job *job, void **state, harpe_error *error) {
    return start(job, false, state, error);
}

static harpe_status write_schedule(const json_t *schedule, harpe_schedule_writer *writer,
                                   harpe_error *error) {
    char *text = json_dumps(schedule, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text) return harpe_fail_memory(error);
    harpe_frequency_schedule parsed;
    harpe_status status = harpe_frequency_schedule_parse(text, strlen(text), &parsed, error);
    free(text);
    if (status != HARPE_OK) return status;
    if (parsed.is_trial) writer->mark_trial(writer);
    for (size_t i = 0; i < parsed.instruction_count && status == HARPE_OK; i++)
        status = writer->add(writer, parsed.rank, parsed.instructions[i].instruction,
                             parsed.instructions[i].frequency_mhz, error);
    harpe_frequency_schedule_free(&parsed);
    return status;
}

static harpe_status write_schedules(const json_t *schedules, harpe_schedule_writer *writer,
                                    harpe_error *error) {
    size_t index;
    const json_t *schedule;
    json_array_foreach(schedules, index, schedule) {
        harpe_status status = write_schedule(schedule, writer, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

static harpe_status next_schedule(void *state, harpe_schedule_writer *writer, harpe_error *error) {
    return write_schedules(((const program *)state)->schedules, writer, error);
}

bool harpe_program_is_running(const void *state) {
    return ((const program *)state)->child.leash >= 0;
}

bool harpe_program_is_lost(const void *state) {
    const program *self = state;
    return self->child.leash < 0 && !is_child_refused(&self->child);
}

static bool is_finished(const void *state) {
    const program *self = state;
    return self->is_finished;
}

const harpe_scheduler_class harpe_program_scheduler = {
    .abi = HARPE_SCHEDULER_ABI,
    .name = "Program",
    .check_args = check_args,
    .create = create,
    .next_schedule = next_schedule,
    .observe = observe,
    .destroy = destroy,
    .is_finished = is_finished,
};

/* ---- States of shared objects ---------------------------------------------------------------- */

char *harpe_library_to_hex(const char *bytes, size_t length) {
    char *hex = malloc(2 * length + 1);
    if (hex) harpe_hex_put(hex, bytes, length);
    return hex;
}

char *harpe_library_from_hex(const char *hex, size_t *length) {
    size_t digits = strlen(hex);
    char *bytes = digits % 2 == 0 ? malloc(digits / 2 + 1) : NULL;
    if (!bytes) return NULL;
    if (!harpe_hex_take(hex, bytes, digits / 2)) {
        free(bytes);
        return NULL;
    }
    bytes[digits / 2] = '\0';
    *length = digits / 2;
    return bytes;
}

/* ---- Asking a shared object ------------------------------------------------------------------ */

/* Asks a question and returns the "text" of the answer, to be freed with free(). */
static harpe_status ask_library_text(const void *state, harpe_text question, char **text,
                                     harpe_error *error) {
    json_t *answer = NULL;
    harpe_status status = ask_library(state, question, &answer, error);
    if (status != HARPE_OK) return status;
    const char *said = json_string_value(json_object_get(answer, "text"));
    char *copy = said ? strdup(said) : NULL;
    json_decref(answer);
    if (!copy) return harpe_fail_memory(error);
    *text = copy;
    return HARPE_OK;
}

/* ---- The class of a shared object ------------------------------------------------------------ */

/* Returns the question {"NAME": VALUE}. */
static harpe_text question_of(const char *name, const char *value) {
    harpe_text line = {0};
    harpe_text_printf(&line, "{\"%s\":", name);
    harpe_text_append(&line, value, strlen(value));
    harpe_text_append(&line, "}", 1);
    return line;
}

static harpe_status library_create(const harpe_scheduler_job *job, void **state,
                                   harpe_error *error) {
    return start(job, true, state, error);
}

static harpe_status library_next_schedule(void *state, harpe_schedule_writer *writer,
                                          harpe_error *error) {
    json_t *answer = NULL;
    harpe_status status = ask_library(state, question_of("next", "true"), &answer, error);
    if (status != HARPE_OK) return status;
    status = write_schedules(json_object_get(answer, "schedules"), writer, error);
    json_decref(answer);
    return status;
}

static harpe_status library_save(const void *state, char **text, size_t *length,
                                 harpe_error *error) {
    char *hex;
    harpe_status status = ask_library_text(state, question_of("save", "true"), &hex, error);
    if (status != HARPE_OK) return status;
    char *bytes = harpe_library_from_hex(hex, length);
    free(hex);
    if (!bytes) return harpe_fail_memory(error);
    *text = bytes;
    return HARPE_OK;
}

static harpe_status library_load(void *state, const char *text, size_t length, harpe_error *error) {
    harpe_text question = {0};
    append_json(&question, "{\"load\":\"", HARPE_OK, harpe_library_to_hex(text, length));
    harpe_text_append(&question, "\"}", 2);
    return tell(state, question, error);
}

static harpe_status library_job_request(void *state, harpe_scheduler_job_request request,
                                        double value, harpe_error *error) {
    harpe_text question = {0};
    harpe_text_printf(&question, "{\"job_request\":[%d,", (int)request);
    harpe_text_number(&question, value);
    harpe_text_append(&question, "]}", 2);
    return tell(state, question, error);
}

static harpe_status library_frontier(const void *state, char **json, harpe_error *error) {
    return ask_library_text(state, question_of("frontier", "true"), json, error);
}

static harpe_status library_pipeline(const void *state, int64_t number, char **json,
                                     harpe_error *error) {
    char text[24];
    (void)snprintf(text, sizeof text, "%lld", (long long)number);
    return ask_library_text(state, question_of("pipeline", text), json, error);
}

/* ---- Examining a shared object --------------------------------------------------------------- */

static bool has(const json_t *answer, const char *function) {
    return json_is_true(json_object_get(answer, function));
}

/* Returns the class. The class has an optional function only if the shared object has the
 * function. */
static harpe_scheduler_class class_of(const json_t *answer, const char *name) {
    return (harpe_scheduler_class){
        .abi = HARPE_SCHEDULER_ABI,
        .name = name,
        .create = library_create,
        .next_schedule = library_next_schedule,
        .observe = has(answer, "observe") ? observe : NULL,
        .destroy = destroy,
        .is_finished = has(answer, "is_finished") ? is_finished : NULL,
        .save = has(answer, "save") ? library_save : NULL,
        .load = has(answer, "load") ? library_load : NULL,
        .job_request = has(answer, "job_request") ? library_job_request : NULL,
        .frontier = has(answer, "frontier") ? library_frontier : NULL,
        .pipeline = has(answer, "pipeline") ? library_pipeline : NULL,
    };
}

harpe_status harpe_library_look(const char *command, const char *path, const char *args_json,
                                int timeout_s, harpe_children *children,
                                harpe_scheduler_class *class, char **name, harpe_error *error) {
    json_t *answer = NULL;
    program constants = {
        .command = command, .what = "scheduler library", .name = path, .timeout_s = timeout_s};
    program *self;
    harpe_status status = new_program(&constants, children, "", &self, error);
    if (status != HARPE_OK) return status;
    harpe_text question = {0};
    harpe_json_string(&question, "{\"check\":", args_json);
    harpe_text_append(&question, "}", 1);
    status = ask_library(self, question, &answer, error);
    if (status == HARPE_OK) {
        const char *said = json_string_value(json_object_get(answer, "name"));
        *name = said ? strdup(said) : NULL;
        *class = class_of(answer, *name);
        if (!*name) status = harpe_fail_memory(error);
    }
    json_decref(answer);
    free_program(self);
    return status;
}

/* ---- Names ----------------------------------------------------------------------------------- */

bool harpe_scheduler_is_good_name(const char *name) {
    if (!name || !*name || strlen(name) > HARPE_SCHEDULER_NAME_MAX) return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
           strlen(name);
}
