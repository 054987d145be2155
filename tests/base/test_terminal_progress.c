/* SPDX-License-Identifier: Apache-2.0 */
/* Progress and interruption, each in a child process of its own: the output on a pseudo terminal
 * and on a pipe, and the effects of the first and the second signal. */
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/manual_clock.h"
#include "base/terminal_progress.h"

/* Runs `body` in a child whose stderr is `descriptor` (-1: unchanged). Returns its wait status. */
static int run_child(int (*body)(void), int descriptor) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (descriptor >= 0) dup2(descriptor, STDERR_FILENO);
        _exit(body());
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static int report_for_a_while(bool quiet) {
    harpe_terminal_progress state;
    harpe_progress progress = harpe_terminal_progress_start(&state, quiet);
    for (int i = 0; i <= 60; i++) {
        if (!progress.report(progress.user, "solving", i / 60.0)) return 1;
        manual_clock_pass(10000000);
    }
    harpe_terminal_progress_clear(&state);
    return 0;
}

static int report_loudly(void) { return report_for_a_while(false); }

static int report_quietly(void) { return report_for_a_while(true); }

static int report_what_has_no_known_end(void) {
    AT_END(harpe_terminal_progress_clear) harpe_terminal_progress state;
    harpe_progress progress = harpe_terminal_progress_start(&state, false);
    manual_clock_pass(400000000);
    progress.report(progress.user, "round 7", -1);
    return 0;
}

static int report_quickly(void) {
    AT_END(harpe_terminal_progress_clear) harpe_terminal_progress state;
    harpe_progress progress = harpe_terminal_progress_start(&state, false);
    progress.report(progress.user, "solving", 0.5);
    return 0;
}

/* Returns the output of `body` on a pseudo terminal with this TERM. */
static const char *drawn_on_terminal(int (*body)(void), const char *terminal) {
    static char drawn[8192];
    size_t length = 0;
    ssize_t got;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    char name[128];
    assert_true(master >= 0);
    assert_int_equal(grantpt(master), 0);
    assert_int_equal(unlockpt(master), 0);
    assert_int_equal(ptsname_r(master, name, sizeof name), 0);
    int slave = open(name, O_RDWR | O_NOCTTY);
    assert_true(slave >= 0);
    setenv("TERM", terminal, 1);
    assert_int_equal(run_child(body, slave), 0);
    close(slave); /* no process has it open any more: an error follows the last output */
    while ((got = read(master, drawn + length, sizeof drawn - 1 - length)) > 0)
        length += (size_t)got;
    drawn[length] = '\0';
    close(master);
    return drawn;
}

TEST(terminal_shows_phase_and_percent_and_is_wiped) {
    const char *drawn = drawn_on_terminal(report_loudly, "xterm");
    assert_non_null(strstr(drawn, "solving"));
    assert_non_null(strstr(drawn, " %"));
    assert_non_null(strstr(drawn, "100 %")); /* even right after another value */
    const char *end = drawn + strlen(drawn) - strlen("\r\033[K");
    assert_string_equal(end, "\r\033[K");
}

TEST(unknown_fraction_is_left_out) {
    assert_string_equal(drawn_on_terminal(report_what_has_no_known_end, "xterm"),
                        "\r\033[Kround 7\r\033[K");
}

TEST(nothing_is_drawn_where_it_would_disturb) {
    assert_string_equal(drawn_on_terminal(report_quietly, "xterm"), "");
    assert_string_equal(drawn_on_terminal(report_loudly, "dumb"), "");
    assert_string_equal(drawn_on_terminal(report_quickly, "xterm"), "");
}

TEST(pipe_stays_clean) {
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    setenv("TERM", "xterm", 1);
    assert_int_equal(run_child(report_loudly, ends[1]), 0);
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 0);
    close(ends[0]);
}

static int stop_at_first_signal(void) {
    harpe_terminal_progress state;
    harpe_progress progress = harpe_terminal_progress_start(&state, true);
    if (!progress.report(progress.user, "solving", 0) || harpe_terminal_progress_signal() != 0)
        return 1;
    raise(SIGTERM);
    if (progress.report(progress.user, "solving", 0.5)) return 2;
    return harpe_terminal_progress_signal() == SIGTERM ? 0 : 3;
}

TEST(first_signal_asks_to_stop) { assert_int_equal(run_child(stop_at_first_signal, -1), 0); }

static int insist(void) {
    harpe_terminal_progress state;
    (void)signal(SIGINT, SIG_DFL); /* a job in the background of a script ignores it */
    (void)harpe_terminal_progress_start(&state, true);
    raise(SIGINT);
    raise(SIGINT);
    return 0;
}

TEST(second_signal_kills) {
    int status = run_child(insist, -1);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGINT);
}

static int run_under_nohup(void) {
    harpe_terminal_progress state;
    signal(SIGHUP, SIG_IGN);
    harpe_progress progress = harpe_terminal_progress_start(&state, true);
    raise(SIGHUP);
    return progress.report(progress.user, "solving", 0.5) ? 0 : 1;
}

TEST(ignored_signal_stays_ignored) { assert_int_equal(run_child(run_under_nohup, -1), 0); }
