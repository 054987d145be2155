/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe monitor energy|power` without a command: takes readings at a fixed interval until Ctrl-C,
 * q or --duration, shows them as frames on a terminal or as lines elsewhere, then prints a
 * summary. monitor_view.c formats the readings. */
#include "cli/monitor/monitor_live.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/terminal_progress.h"
#include "base/wait.h"
#include "cli/command.h"
#include "cli/monitor/monitor_view.h"

static const char *const window_name = "live";
static const int64_t slice_ns = 100000000; /* longest time between two looks for a signal */

typedef struct live_run {
    const harpe_monitor_request *request;
    harpe_monitor_session session;
    harpe_monitor_view view;
    harpe_text text; /* buffer reused for every frame */
    FILE *csv;       /* NULL: none */
    bool is_display; /* frames on a terminal */
    bool has_keys;   /* stdin delivers single keys */
    struct termios before;
} live_run;

/* ---- The terminal ---------------------------------------------------------------------------- */

static bool stdout_is_a_capable_terminal(void) {
    const char *terminal = getenv("TERM");
    return isatty(STDOUT_FILENO) && terminal && *terminal && strcmp(terminal, "dumb") != 0;
}

/* Switches to the alternate screen, which keeps the user's text. Lines that are too wide are cut,
 * not wrapped. Ctrl-Z is disabled, because it would leave the terminal in a wrong state. */
static void enter_display(live_run *live) {
    fputs("\033[?1049h\033[?25l\033[?7l\033[2J", stdout);
    live->has_keys = isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp() &&
                     tcgetattr(STDIN_FILENO, &live->before) == 0;
    if (live->has_keys) {
        struct termios keys = live->before;
        keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        keys.c_cc[VMIN] = 0;
        keys.c_cc[VTIME] = 0;
        keys.c_cc[VSUSP] = _POSIX_VDISABLE;
        tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    }
}

static void leave_display(live_run *live) {
    if (!live->is_display) return;
    if (live->has_keys) tcsetattr(STDIN_FILENO, TCSANOW, &live->before);
    fputs("\033[?7h\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    live->is_display = false;
}

static bool quit_was_pressed(const live_run *live) {
    char keys[16];
    if (!live->has_keys) return false;
    ssize_t count = read(STDIN_FILENO, keys, sizeof keys);
    for (ssize_t i = 0; i < count; i++)
        if (keys[i] == 'q' || keys[i] == 'Q') return true;
    return false;
}

/* ---- Output ---------------------------------------------------------------------------------- */

static harpe_status write_text(live_run *live, FILE *stream, harpe_error *error) {
    if (live->text.failed) return harpe_fail_memory(error);
    errno = 0;
    fwrite(live->text.data, 1, live->text.length, stream);
    live->text.length = 0;
    if (fflush(stream) != 0 || ferror(stream)) {
        bool is_csv = stream == live->csv && live->csv != stdout;
        return harpe_fail_errno(error, errno ? errno : EIO, "writing %s",
                                is_csv ? live->request->csv_path : "standard output");
    }
    return HARPE_OK;
}

static void append_frame(live_run *live) {
    struct winsize size = {0};
    bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    harpe_monitor_view_frame(&live->session, &live->view, is_known ? size.ws_row : 24,
                             is_known ? size.ws_col : 80, &live->text);
}

static harpe_status append_json(live_run *live, harpe_error *error) {
    json_t *value = harpe_monitor_view_json(&live->session, &live->view);
    char *line = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(value);
    if (!line) return harpe_fail_memory(error);
    harpe_text_printf(&live->text, "%s\n", line);
    free(line);
    return HARPE_OK;
}

static harpe_status show(live_run *live, harpe_error *error) {
    harpe_status status = HARPE_OK;
    if (live->csv) {
        harpe_monitor_view_csv(&live->session, &live->view, &live->text);
        status = write_text(live, live->csv, error);
    }
    if (status != HARPE_OK || live->csv == stdout) return status;
    if (live->request->json)
        status = append_json(live, error);
    else if (live->is_display)
        append_frame(live);
    else
        harpe_monitor_view_line(&live->session, &live->view, &live->text);
    return status == HARPE_OK ? write_text(live, stdout, error) : status;
}

static harpe_status open_csv(live_run *live, harpe_error *error) {
    const char *path = live->request->csv_path;
    if (!path) return HARPE_OK;
    live->csv = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    if (!live->csv) return harpe_fail_errno(error, errno, "opening %s", path);
    harpe_monitor_view_csv_header(&live->session, &live->view, &live->text);
    return write_text(live, live->csv, error);
}

static harpe_status close_csv(live_run *live, harpe_error *error) {
    FILE *csv = live->csv;
    live->csv = NULL;
    if (!csv || csv == stdout || fclose(csv) == 0) return HARPE_OK;
    return harpe_fail_errno(error, errno, "writing %s", live->request->csv_path);
}

/* ---- Timing ---------------------------------------------------------------------------------- */

/* Waits until `wake_ns`. Returns false if the program is to stop. It waits in short slices, so a
 * signal that arrives just before harpe_poll() is noticed soon. */
static bool wait_until(live_run *live, int64_t wake_ns) {
    for (;;) {
        int64_t left_ns = wake_ns - harpe_clock_ns();
        if (harpe_terminal_progress_signal() || quit_was_pressed(live)) return false;
        if (left_ns <= 0) return true;
        struct pollfd keys = {.fd = live->has_keys ? STDIN_FILENO : -1, .events = POLLIN};
        (void)harpe_poll(&keys, 1, left_ns < slice_ns ? left_ns : slice_ns);
        if (keys.revents & (POLLHUP | POLLERR | POLLNVAL)) live->has_keys = false;
    }
}

static harpe_status run(live_run *live, harpe_error *error) {
    const harpe_monitor_request *request = live->request;
    int64_t start_ns = harpe_clock_ns();
    int64_t interval_ns = (int64_t)(request->interval_s * 1e9);
    int64_t end_ns =
        request->duration_s > 0 ? start_ns + (int64_t)(request->duration_s * 1e9) : INT64_MAX;
    int64_t wake_ns = start_ns;
    for (;;) {
        /* If the driver was slow or the process was stopped, readings that are overdue are
         * skipped. */
        int64_t now_ns = harpe_clock_ns();
        wake_ns += interval_ns * (1 + (now_ns > wake_ns ? (now_ns - wake_ns) / interval_ns : 0));
        bool is_last = wake_ns >= end_ns;
        if (!wait_until(live, is_last ? end_ns : wake_ns)) return HARPE_OK;
        harpe_status status =
            harpe_monitor_view_update(&live->session, window_name, &live->view, error);
        if (status == HARPE_OK) status = show(live, error);
        if (status != HARPE_OK || is_last) return status;
    }
}

static harpe_status start(live_run *live, harpe_error *error) {
    const harpe_monitor_request *request = live->request;
    harpe_status status = harpe_monitor_session_open(request, NULL, &live->session, error);
    if (status != HARPE_OK) return status;
    live->view.energy = request->energy;
    status = harpe_monitor_view_make(&live->session, &live->view, error);
    if (status != HARPE_OK) return status;
    status = open_csv(live, error);
    if (status != HARPE_OK) return status;
    status = harpe_monitor_begin(live->session.monitor, window_name, false, error);
    if (status != HARPE_OK) return status;
    live->is_display = !request->json && live->csv != stdout && stdout_is_a_capable_terminal();
    if (live->is_display) enter_display(live);
    return HARPE_OK;
}

/* Prints the summary for people, unless a program reads the output. */
static harpe_status summarize(live_run *live, harpe_error *error) {
    harpe_window_measurement measurement = {0};
    harpe_status status =
        harpe_monitor_end(live->session.monitor, window_name, false, &measurement, error);
    if (status == HARPE_OK && !live->request->json && live->csv != stdout)
        harpe_monitor_summary_print(stdout, &live->session, &measurement);
    harpe_window_measurement_clear(&measurement);
    return status;
}

int harpe_monitor_live(const harpe_monitor_request *request) {
    harpe_error error;
    harpe_error close_error;
    harpe_terminal_progress progress;
    live_run live = {.request = request};
    (void)harpe_terminal_progress_start(&progress, true);
    harpe_status status = start(&live, &error);
    if (status == HARPE_OK) status = run(&live, &error);
    leave_display(&live);
    if (status == HARPE_OK) status = summarize(&live, &error);
    if (close_csv(&live, &close_error) != HARPE_OK && status == HARPE_OK) {
        status = close_error.status;
        error = close_error;
    }
    harpe_text_free(&live.text);
    harpe_monitor_view_free(&live.view);
    harpe_monitor_session_close(&live.session);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("monitor", &error);
}
