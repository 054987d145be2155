/* SPDX-License-Identifier: Apache-2.0 */
/* Repeats an attempt until a signal comes. Logs when the attempt begins to fail and when it works
 * again. */
#ifndef HARPE_CLI_FLEET_FLEET_REPEAT_H
#define HARPE_CLI_FLEET_FLEET_REPEAT_H

#include <harpe/status.h>

typedef struct harpe_fleet_repeat {
    /* `*step` always receives the number of the last step that was begun. The error's
     * vendor_code is the HTTP status or errno. */
    harpe_status (*attempt)(void *user, int *step, harpe_error *error);
    void *user;
    double every_s;
    const char *works;       /* the log line of the first success */
    const char *works_again; /* the log line of a success after a failure */
    const char *meanwhile; /* what happens until the next attempt; ends the log line of a failure */
} harpe_fleet_repeat;

/* Runs until SIGINT, SIGTERM or SIGHUP comes, and then returns HARPE_OK. Waits `every_s` between
 * two attempts, but at most a minute after a failure. Prints a line to stderr when an attempt
 * succeeds for the first time or after a failure, and when it fails, unless the attempt before
 * failed in the same step with the same status and vendor_code. Two kinds of failure end the
 * function, which returns the failure: HARPE_PERMISSION_DENIED, because the server refuses the
 * token, and HARPE_INVALID_ARGUMENT if no attempt has succeeded before. */
harpe_status harpe_fleet_repeat_run(const harpe_fleet_repeat *repeat, harpe_error *error);

#endif
