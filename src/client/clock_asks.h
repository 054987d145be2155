/* SPDX-License-Identifier: Apache-2.0 */
/* The requests to the driver in the slot: a ring that one thread of the controller writes and the
 * trainer reads. Neither waits for the other. A trainer that reads late loses the oldest ones. */
#ifndef HARPE_CLIENT_CLOCK_ASKS_H
#define HARPE_CLIENT_CLOCK_ASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/controller.h"
#include "client/switch_learning.h"

/* Adds a request, which is not older than the last one. `at_us` is GPU time, of which 48 bits are
 * kept. After a request that has failed, add one for 0 MHz at the same time: the clock is not known
 * from then on, because a call that fails may still take effect. */
void harpe_clock_asks_add(harpe_controller_slot *slot, uint64_t at_us, uint32_t mhz);

/* Copies the requests that are still there, in the order of time, to `asks`, which has room for
 * HARPE_CONTROLLER_ASKS. `*has_lost` becomes true if there were older ones. Returns the number. */
size_t harpe_clock_asks_copy(const harpe_controller_slot *slot, harpe_clock_ask *asks,
                             bool *has_lost);

#endif
