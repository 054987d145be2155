/* SPDX-License-Identifier: Apache-2.0 */
/* Shows progress and handles interruption for command-line programs. It turns signals into the
 * answer "stop" of a progress callback, and draws one line on a terminal. It is not part of
 * libharpe. A stopped function does its own cleanup. */
#include "base/terminal_progress.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

static const int64_t first_draw_delay_ns = 300000000; /* fast work shows no progress */
static const int64_t draw_interval_ns = 100000000;

/* This global is mutable because a signal handler cannot pass data in another way. */
static volatile sig_atomic_t stop_signal = 0;

static void remember_signal(int number) { stop_signal = number; }

/* Installs the handler. The first signal asks for a clean stop, and a second one of the same
 * kind kills the process as usual. A signal that the caller ignores (nohup, background jobs)
 * stays ignored. */
static void catch_signal(int number) {
    struct sigaction current;
    if (sigaction(number, NULL, &current) == 0 && current.sa_handler == SIG_IGN) return;
    struct sigaction action = {0};
    action.sa_handler = remember_signal;
    action.sa_flags = (int)(SA_RESETHAND | SA_RESTART);
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(number, &action, NULL);
}

static void draw(harpe_terminal_progress *state, const char *phase, double fraction) {
    int64_t now_ns = harpe_clock_ns();
    bool is_the_end = fraction >= 1.0 && state->drawn; /* true: complete the line that was drawn */
    if (now_ns < state->next_draw_ns && !is_the_end) return;
    double percent = fraction >= 1.0 ? 100.0 : fraction > 0.0 ? fraction * 100.0 : 0.0;
    (void)fprintf(stderr, "\r\033[K%.40s", phase ? phase : "working");
    if (fraction >= 0) (void)fprintf(stderr, " %3d %%", (int)percent);
    (void)fflush(stderr);
    state->drawn = true;
    state->next_draw_ns = now_ns + draw_interval_ns;
}

static bool report(void *user, const char *phase, double fraction) {
    harpe_terminal_progress *state = user;
    if (state->visible) draw(state, phase, fraction);
    return stop_signal == 0;
}

static bool stderr_is_a_capable_terminal(void) {
    const char *terminal = getenv("TERM");
    return isatty(STDERR_FILENO) != 0 && terminal && strcmp(terminal, "dumb") != 0;
}

harpe_progress harpe_terminal_progress_start(harpe_terminal_progress *state, bool quiet) {
    *state = (harpe_terminal_progress){
        .visible = !quiet && stderr_is_a_capable_terminal(),
        .next_draw_ns = harpe_clock_ns() + first_draw_delay_ns,
    };
    catch_signal(SIGINT);
    catch_signal(SIGTERM);
    catch_signal(SIGHUP);
    return (harpe_progress){.report = report, .user = state};
}

void harpe_terminal_progress_clear(harpe_terminal_progress *state) {
    if (state->drawn) {
        (void)fputs("\r\033[K", stderr);
        (void)fflush(stderr);
        state->drawn = false;
    }
}

int harpe_terminal_progress_signal(void) { return (int)stop_signal; }
