/* SPDX-License-Identifier: Apache-2.0 */
/* Does the same thing again and again until a signal ends it, and logs when it begins to fail and
 * when it works again. */
#ifndef HARPE_CLI_FLEET_FLEET_REPEAT_H
#define HARPE_CLI_FLEET_FLEET_REPEAT_H

#include <harpe/status.h>

typedef struct harpe_fleet_repeat {
    /* `*step` receives the number of the step that failed. The error's vendor_code is the HTTP
     * status or errno. */
    harpe_status (*attempt)(void *user, int *step, harpe_error *error);
    void *user;
    double every_s;
    const char *works, *works_again; /* log lines after the first success, and after a failure */
    const char *meanwhile;           /* follows the error in the log line of a failure */
} harpe_fleet_repeat;

/* Runs until SIGINT, SIGTERM or SIGHUP, and then returns HARPE_OK. Prints a line to stderr only if
 * the result is another one than before: success, or a failure of another step, with another status
 * or vendor_code. Tries again after `every_s`, after a failure at least once a minute. Returns the
 * failure if the server refuses the token. Also returns HARPE_INVALID_ARGUMENT, unless an attempt
 * has succeeded before. */
harpe_status harpe_fleet_repeat_run(const harpe_fleet_repeat *repeat, harpe_error *error);

#endif
