/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the clocks of a schedule. A driver rounds a clock that its GPU does not offer, without a
 * word, so such a schedule would not run as it was planned. */
#include "client/schedule_check.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/possible.h"

static int compare_descending(const void *a, const void *b) {
    int one = *(const int *)a, other = *(const int *)b;
    return (one < other) - (one > other);
}

static bool is_allowed(const harpe_allowed_clocks *allowed, int mhz) {
    if (mhz == 0) return true;
    if (mhz < allowed->lowest_mhz) return false;
    if (allowed->count > 0)
        return bsearch(&mhz, allowed->clocks_mhz, allowed->count, sizeof mhz, compare_descending);
    return mhz > 0 && mhz <= HARPE_CLOCK_HIGHEST_MHZ;
}

static void describe(const harpe_allowed_clocks *allowed, int mhz, char *text, size_t size) {
    if (allowed->lowest_mhz > 0 && mhz < allowed->lowest_mhz)
        (void)snprintf(text, size, "the lowest clock of this job is %d MHz (lowest_clock_mhz)",
                       allowed->lowest_mhz);
    else if (allowed->count == 1)
        (void)snprintf(text, size, "this job may use 1 clock of its GPU, %d MHz",
                       allowed->clocks_mhz[0]);
    else if (allowed->count > 0)
        (void)snprintf(text, size, "this job may use %zu clocks of its GPU, from %d to %d MHz",
                       allowed->count, allowed->clocks_mhz[allowed->count - 1],
                       allowed->clocks_mhz[0]);
    else
        (void)snprintf(text, size, "a clock is from 1 to %d MHz", HARPE_CLOCK_HIGHEST_MHZ);
}

harpe_status harpe_schedule_check(const harpe_frequency_schedule *schedule,
                                  const harpe_allowed_clocks *allowed, harpe_error *error) {
    for (size_t i = 0; i < schedule->instruction_count; i++) {
        const harpe_scheduled_instruction *one = &schedule->instructions[i];
        if (is_allowed(allowed, one->frequency_mhz)) continue;
        char reason[128];
        describe(allowed, one->frequency_mhz, reason, sizeof reason);
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "'%.63s' (instruction %zu of %zu) is to run at %d MHz, but %s",
                          one->instruction, i + 1, schedule->instruction_count, one->frequency_mhz,
                          reason);
    }
    return HARPE_OK;
}
