/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and reads the output of a command. For each stream, a process reads what the command
 * writes, writes it to the real stream, and then offers it to this program through a pipe that
 * never blocks. If this program does not keep up, it misses lines; the command misses nothing. */
#include "cli/tune/tune_command_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/number.h"
#include "base/process.h"
#include "base/wait.h"

#define CLOSE_NS INT64_C(2000000000)

enum { PIPE_SIZE = 1 << 20, CHUNK = 1 << 16 };

/* ---- The copying process --------------------------------------------------------------------- */

/* Writes all bytes, also if somebody has made the stream non-blocking. Returns false if nobody
 * reads it any more. */
static bool write_whole(int stream, const char *bytes, size_t count) {
    while (count > 0) {
        ssize_t done = write(stream, bytes, count);
        if (done > 0) {
            bytes += done;
            count -= (size_t)done;
        } else if (done < 0 && errno == EAGAIN) {
            struct pollfd ready = {.fd = stream, .events = POLLOUT};
            (void)harpe_poll(&ready, 1, -1);
        } else if (done == 0 || errno != EINTR) {
            return false;
        }
    }
    return true;
}

/* Copies until the command has closed its end. Signals of the terminal and of a batch system are
 * the command's matter. */
static _Noreturn void copy(int from, int to, int offer) {
    static const int ignored[] = {SIGINT,  SIGQUIT, SIGTERM, SIGHUP,
                                  SIGTSTP, SIGPIPE, SIGUSR1, SIGUSR2};
    static char bytes[CHUNK];
    int other = to == STDOUT_FILENO ? STDERR_FILENO : STDOUT_FILENO;
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    /* It keeps nothing open but these three. */
    (void)dup2(from, STDIN_FILENO);
    (void)dup2(offer, other);
    (void)close_range(3, ~0U, 0);
    for (;;) {
        ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0 || !write_whole(to, bytes, (size_t)got)) break;
        (void)!write(other, bytes, (size_t)got);
    }
    harpe_process_exit(0);
}

static harpe_status start_copying(harpe_output_stream *stream, int to, harpe_error *error) {
    int written[2], offered[2];
    /* After a failure, this program ends. */
    if (pipe2(written, O_CLOEXEC) != 0 || pipe2(offered, O_CLOEXEC | O_NONBLOCK) != 0)
        return harpe_fail_errno(error, errno, "a pipe for the command's output");
    (void)fcntl(offered[1], F_SETPIPE_SZ, PIPE_SIZE); /* it may stay smaller */
    pid_t process = fork();
    if (process == 0) copy(written[0], to, offered[1]);
    int failure = errno;
    (void)close(written[0]);
    (void)close(offered[1]);
    stream->command_end = written[1];
    stream->copies = offered[0];
    return process > 0 ? HARPE_OK
                       : harpe_fail_errno(error, failure, "a process for the command's output");
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Counts a line that matches. The first group of the expression is the work so far, if it is a
 * number. */
static void take_line(harpe_tune_output *output, harpe_output_stream *stream) {
    regmatch_t found[2] = {{-1, -1}, {-1, -1}};
    double number = 0;
    uint64_t bits;
    stream->line[stream->length] = '\0';
    stream->length = 0;
    if (regexec(&output->expression, stream->line, 2, found, 0) != 0) return;
    atomic_fetch_add(&output->count.matches, 1);
    if (found[1].rm_so < 0 ||
        !harpe_parse_double(stream->line + found[1].rm_so,
                            (size_t)(found[1].rm_eo - found[1].rm_so), &number))
        return;
    memcpy(&bits, &number, sizeof bits);
    atomic_store(&output->count.number, bits);
    atomic_store(&output->count.has_number, true);
}

/* Cuts what was read into lines. A carriage return ends one too, because bars of progress use it.
 */
static void take_bytes(harpe_tune_output *output, harpe_output_stream *stream, const char *bytes,
                       size_t count) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i] == '\n' || bytes[i] == '\r')
            take_line(output, stream);
        else if (stream->length < HARPE_OUTPUT_LINE - 1)
            stream->line[stream->length++] = bytes[i] ? bytes[i] : ' ';
}

static void *read_lines(void *user) {
    harpe_tune_output *output = user;
    static char bytes[CHUNK];
    struct pollfd ways[HARPE_OUTPUT_STREAMS];
    int open_count = HARPE_OUTPUT_STREAMS;
    for (int i = 0; i < HARPE_OUTPUT_STREAMS; i++)
        ways[i] = (struct pollfd){.fd = output->streams[i].copies, .events = POLLIN};
    while (open_count > 0) {
        if (harpe_poll(ways, HARPE_OUTPUT_STREAMS, -1) < 0) continue;
        for (int i = 0; i < HARPE_OUTPUT_STREAMS; i++) {
            if (ways[i].fd < 0 || !ways[i].revents) continue;
            ssize_t got = read(ways[i].fd, bytes, sizeof bytes);
            if (got > 0) take_bytes(output, &output->streams[i], bytes, (size_t)got);
            if (got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN))) continue;
            ways[i].fd = -1;
            open_count--;
        }
    }
    atomic_store(&output->has_ended, 1);
    harpe_wake(&output->has_ended);
    return NULL;
}

/* ---- Start and end --------------------------------------------------------------------------- */

harpe_status harpe_tune_output_open(harpe_tune_output *output, const char *expression,
                                    harpe_error *error) {
    char reason[256];
    harpe_status status = HARPE_OK;
    int failure = regcomp(&output->expression, expression, REG_EXTENDED);
    if (failure) {
        (void)regerror(failure, &output->expression, reason, sizeof reason);
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "--rate-regex '%.200s': %s", expression,
                          reason);
    }
    for (int i = 0; status == HARPE_OK && i < HARPE_OUTPUT_STREAMS; i++)
        status = start_copying(&output->streams[i], i == 0 ? STDOUT_FILENO : STDERR_FILENO, error);
    return status;
}

void harpe_tune_output_pass(const harpe_tune_output *output, posix_spawn_file_actions_t *actions) {
    posix_spawn_file_actions_adddup2(actions, output->streams[0].command_end, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(actions, output->streams[1].command_end, STDERR_FILENO);
}

harpe_status harpe_tune_output_follow(harpe_tune_output *output, harpe_error *error) {
    for (int i = 0; i < HARPE_OUTPUT_STREAMS; i++)
        (void)close(output->streams[i].command_end);
    int failure = harpe_thread_start(&output->thread, "harpe-output", read_lines, output);
    if (failure) return harpe_fail_errno(error, failure, "a thread for the command's output");
    output->has_thread = true;
    return HARPE_OK;
}

void harpe_tune_output_close(harpe_tune_output *output) {
    if (!output->has_thread) return;
    (void)harpe_wait_while(&output->has_ended, 0, CLOSE_NS);
    /* A process that the command has left behind may keep the output open for long; then the thread
     * ends with this process. */
    if (atomic_load(&output->has_ended)) harpe_thread_join(output->thread);
}
