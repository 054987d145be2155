/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's thread that obeys wishes. Private to the controller's process. */
#ifndef HARPE_CLIENT_CONTROLLER_OBEY_H
#define HARPE_CLIENT_CONTROLLER_OBEY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/controller.h"
#include "client/controller_gpu.h"

/* Belongs to the thread from its start until it has ended. */
typedef struct harpe_obedience {
    const harpe_controller_header *header;
    harpe_controller_slot *slot;
    harpe_controller_gpu gpu; /* the thread's own way to it */
    uint32_t current_mhz;     /* locked; 0: not known */
    _Atomic bool is_over;     /* see harpe_controller_obey_no_more */
    _Atomic bool has_ended;
    harpe_status status; /* of resetting the clocks */
    harpe_error error;
} harpe_obedience;

/* Obeys until is_over, then resets the clocks. To be given a harpe_obedience; returns NULL. */
void *harpe_controller_obey(void *obedience);

/* From another thread: no further wish is obeyed. */
void harpe_controller_obey_no_more(harpe_obedience *obedience);

#endif
