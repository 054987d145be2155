/* SPDX-License-Identifier: Apache-2.0 */
/* A scheduler made for a version of the interface that does not exist yet: only its version may be
 * looked at. */
#include <harpe/scheduler.h>

const harpe_scheduler_class *harpe_scheduler_entry(void);

const harpe_scheduler_class *harpe_scheduler_entry(void) {
    static const harpe_scheduler_class later = {.abi = HARPE_SCHEDULER_ABI + 1, .name = "later"};
    return &later;
}
