/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the clocks of a schedule that a server has sent. A schedule with one clock that the job
 * may not have is refused as a whole, because its other clocks belong to the same plan. */
#ifndef HARPE_CLIENT_SCHEDULE_CHECK_H
#define HARPE_CLIENT_SCHEDULE_CHECK_H

#include <stddef.h>

#include <harpe/pfo.h>

/* The clocks that a job may have. */
typedef struct harpe_allowed_clocks {
    const int *clocks_mhz; /* highest first: the clocks that the rank has registered */
    size_t count;          /* 0: not known */
    int lowest_mhz;        /* the job's own lowest clock; 0: none */
} harpe_allowed_clocks;

/* Returns HARPE_OK if each instruction has an allowed clock or 0, which leaves the clock as it is.
 * If the clocks are not known, a clock must be one that a GPU can have (base/possible.h). Otherwise
 * fails with HARPE_INVALID_INPUT and names the first instruction whose clock is not allowed. Takes
 * time proportional to instructions * log(clocks). */
harpe_status harpe_schedule_check(const harpe_frequency_schedule *schedule,
                                  const harpe_allowed_clocks *allowed, harpe_error *error);

#endif
