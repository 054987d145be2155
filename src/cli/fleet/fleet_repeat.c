/* SPDX-License-Identifier: Apache-2.0 */
/* Repeats an attempt for `--every`. A service manager may run it: it stays in the foreground, logs
 * one line for each change of state, and ends with 0 after a signal. */
#include "cli/fleet/fleet_repeat.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/terminal_progress.h"
#include "cli/command.h"

#define RETRY_S 60.0 /* the longest time after a failure */

typedef struct state {
    bool has_worked, has_failed; /* has_failed: the last attempt */
    char failure[HARPE_ERROR_MESSAGE_SIZE];
} state;

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Returns true if two messages say the same. Times and counts differ from attempt to attempt, but
 * the status of an answer matters. */
static bool is_same(const char *a, const char *b) {
    static const char before[] = "answered ";
    for (const char *start = a; *a && *b; a++, b++) {
        bool is_status = (size_t)(a - start) >= sizeof before - 1 &&
                         strncmp(a - (sizeof before - 1), before, sizeof before - 1) == 0;
        if (is_digit(*a) && is_digit(*b) && !is_status) {
            a += strspn(a, "0123456789") - 1;
            b += strspn(b, "0123456789") - 1;
        } else if (*a != *b || (is_status && strtol(a, NULL, 10) != strtol(b, NULL, 10))) {
            return false;
        }
    }
    return *a == *b;
}

static void tell(const harpe_fleet_repeat *repeat, state *now, harpe_status status,
                 const harpe_error *error) {
    char line[2 * HARPE_ERROR_MESSAGE_SIZE];
    if (status == HARPE_OK) {
        if (!now->has_worked || now->has_failed)
            harpe_command_say("harpe fleet", now->has_worked ? repeat->works_again : repeat->works);
        now->has_worked = true;
        now->has_failed = false;
        return;
    }
    if (!now->has_failed || !is_same(now->failure, error->message)) {
        (void)snprintf(line, sizeof line, "%s; %s", error->message, repeat->meanwhile);
        harpe_command_say("harpe fleet", line);
    }
    now->has_failed = true;
    (void)snprintf(now->failure, sizeof now->failure, "%s", error->message);
}

/* Sleeps until a signal, or for so many seconds. The signals are blocked between the look and the
 * sleep, so none is missed. */
static void wait_for(double seconds) {
    sigset_t all, before;
    int64_t end_ns = harpe_clock_ns() + (int64_t)(seconds * 1e9);
    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, &before);
    for (int64_t left_ns = end_ns - harpe_clock_ns();
         left_ns > 0 && !harpe_terminal_progress_signal(); left_ns = end_ns - harpe_clock_ns()) {
        const struct timespec left = {left_ns / 1000000000, left_ns % 1000000000};
        (void)ppoll(NULL, 0, &left, &before);
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
}

harpe_status harpe_fleet_repeat_run(const harpe_fleet_repeat *repeat, harpe_error *error) {
    state now = {.has_worked = false};
    while (!harpe_terminal_progress_signal()) {
        harpe_status status = repeat->attempt(repeat->user, error);
        if (harpe_terminal_progress_signal()) break;
        bool is_final = status == HARPE_PERMISSION_DENIED ||
                        (status == HARPE_INVALID_ARGUMENT && !now.has_worked);
        if (is_final) return status;
        tell(repeat, &now, status, error);
        wait_for(status == HARPE_OK ? repeat->every_s : fmin(repeat->every_s, RETRY_S));
    }
    return HARPE_OK;
}
