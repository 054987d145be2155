/* SPDX-License-Identifier: Apache-2.0 */
/* A scheduler for a future version of the interface. The server may read only its version. */
#include <harpe/scheduler.h>

const harpe_scheduler_class *harpe_scheduler_entry(void);

const harpe_scheduler_class *harpe_scheduler_entry(void) {
    static const harpe_scheduler_class later = {.abi = HARPE_SCHEDULER_ABI + 1, .name = "later"};
    return &later;
}
