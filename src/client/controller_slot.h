/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the training thread with their position in the schedule. The other functions of
 * controller_slot.c are public. */
#ifndef HARPE_CLIENT_CONTROLLER_SLOT_H
#define HARPE_CLIENT_CONTROLLER_SLOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/controller.h"

/* Work like harpe_frequency_controller_set for an instruction that begins at a position of the
 * schedule `series` (HARPE_POSITION_LOST: at none), and tell the controller that it ends. With them
 * the controller can ask for clocks before their instructions begin. An instruction at 0 MHz
 * requests no clock. For the training thread. */
void harpe_controller_begin_instruction(harpe_frequency_controller *controller, int frequency_mhz,
                                        int64_t series, uint32_t position);
void harpe_controller_end_instruction(harpe_frequency_controller *controller);
/* Returns true if the controller uses the ends of instructions, and notes without a request. */
static inline bool harpe_controller_wants_ends(const harpe_frequency_controller *controller) {
    return controller &&
           atomic_load_explicit(&controller->slot->wants_ends, memory_order_relaxed) != 0;
}

#endif
