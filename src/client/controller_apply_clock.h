/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's thread that carries out clock requests. Private to the controller's process. */
#ifndef HARPE_CLIENT_CONTROLLER_APPLY_CLOCK_H
#define HARPE_CLIENT_CONTROLLER_APPLY_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/controller.h"
#include "client/controller_gpu.h"
#include "client/controller_obedience.h"

/* Belongs to the thread while the thread runs. */
typedef struct harpe_clock_thread {
    const harpe_controller_header *header;
    harpe_controller_slot *slot;
    harpe_controller_changes *changes;
    harpe_obedience *obedience;
    harpe_controller_gpu gpu; /* the thread's own handle */
    uint32_t current_mhz;     /* locked clock; 0: not known */
    _Atomic bool is_over;     /* see harpe_controller_stop_clock_thread */
    _Atomic bool has_ended;
    harpe_status status; /* result of resetting the clocks */
    harpe_error error;
} harpe_clock_thread;

/* Carries out requests until is_over, then resets the clocks. The argument is a harpe_clock_thread.
 * Returns NULL. */
void *harpe_controller_apply_clocks(void *clock_thread);

/* Makes the thread ignore further requests. Called from another thread. */
void harpe_controller_stop_clock_thread(harpe_clock_thread *clock_thread);

#endif
