/* SPDX-License-Identifier: Apache-2.0 */
/* Repeats an attempt for `--every`. A service manager may run the command: the command stays in the
 * foreground, prints one line for each change of state, and exits with 0 after a signal. */
#include "cli/fleet/fleet_repeat.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/terminal_progress.h"
#include "cli/command.h"

#define RETRY_S 60.0 /* the longest time after a failure */

/* What the log compares to tell whether a failure is new. Messages contain times and counts, which
 * differ between attempts. */
typedef struct failure {
    int step;
    harpe_status status;
    int code; /* HTTP status or errno; 0: none */
} failure;

typedef struct state {
    bool has_worked; /* an attempt */
    bool has_failed; /* the last attempt */
    failure last;
} state;

static bool are_equal(const failure *a, const failure *b) {
    return a->step == b->step && a->status == b->status && a->code == b->code;
}

static void tell_success(const harpe_fleet_repeat *repeat, state *now) {
    if (!now->has_worked || now->has_failed)
        harpe_command_say("harpe fleet", now->has_worked ? repeat->works_again : repeat->works);
    now->has_worked = true;
    now->has_failed = false;
}

static void tell_failure(const harpe_fleet_repeat *repeat, state *now, int step,
                         const harpe_error *error) {
    const failure one = {step, error->status, error->vendor_code};
    char line[2 * HARPE_ERROR_MESSAGE_SIZE];
    if (!now->has_failed || !are_equal(&now->last, &one)) {
        (void)snprintf(line, sizeof line, "%s; %s", error->message, repeat->meanwhile);
        harpe_command_say("harpe fleet", line);
    }
    now->has_failed = true;
    now->last = one;
}

/* Sleeps until a signal comes or the time has passed. Signals are blocked between the check and the
 * sleep, so that none is missed. */
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
        int step = 0;
        harpe_status status = repeat->attempt(repeat->user, &step, error);
        if (harpe_terminal_progress_signal()) break;
        bool is_final = status == HARPE_PERMISSION_DENIED ||
                        (status == HARPE_INVALID_ARGUMENT && !now.has_worked);
        if (is_final) return status;
        if (status == HARPE_OK)
            tell_success(repeat, &now);
        else
            tell_failure(repeat, &now, step, error);
        wait_for(status == HARPE_OK ? repeat->every_s : fmin(repeat->every_s, RETRY_S));
    }
    return HARPE_OK;
}
