/* SPDX-License-Identifier: Apache-2.0 */
/* Measured logs of the published optimizer, which are not part of the project. Tests that use them
 * are skipped without them. */
#ifndef HARPE_TESTS_POWERLIMIT_MEASURED_LOGS_H
#define HARPE_TESTS_POWERLIMIT_MEASURED_LOGS_H

#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#include "power_limit/replay.h"

/* Skips the test if the log does not exist. */
static inline harpe_power_limit_replay *open_measured_log(const char *name) {
    const char *data = getenv("HARPE_DATA");
    char path[1024];
    snprintf(path, sizeof path, "%s/power_limit/%s",
             data ? data : HARPE_SOURCE_DIR "/../shared/data", name);
    harpe_power_limit_replay *replay = NULL;
    harpe_error error;
    harpe_status status = harpe_power_limit_replay_open(path, &replay, &error);
    if (status == HARPE_NOT_FOUND) skip_because("data: no measured log: %s", error.message);
    assert_int_equal(status, HARPE_OK);
    return replay;
}

#endif
