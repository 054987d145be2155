/* SPDX-License-Identifier: Apache-2.0 */
/* What the fleet has in flight: notes on their way to the store, and calls to the engine. */
#ifndef HARPE_SERVER_FLEET_STEERING_WORK_H
#define HARPE_SERVER_FLEET_STEERING_WORK_H

#include "server/fleet/notes.h"
#include "server/fleet/steering_state.h"

/* Called when a note is on disk or could not be stored. `call` may be NULL. */
typedef void harpe_note_stored(harpe_steering *self, const harpe_fleet_note *note, harpe_call *call,
                               harpe_status status, const harpe_error *error);

/* Stores a note and takes it over. The call, if there is one, is answered by `stored`, or with 503
 * if memory runs out. */
void harpe_steering_store(harpe_steering *self, harpe_fleet_note *note, harpe_call *call,
                          harpe_note_stored *stored);
/* Removes a note from the store. */
void harpe_steering_erase(harpe_steering *self, const char *prefix, const char *id);
void harpe_steering_keep_event(harpe_steering *self, harpe_fleet_event *event);
/* Stores the energy: the sums of the fleet with the accounts of the jobs. */
void harpe_steering_keep_energy(harpe_steering *self);
/* Stores history and energy. */
void harpe_steering_keep_sums(harpe_steering *self);

/* Gives the caps that were decided to their members: stores them, and then sends them. */
void harpe_steering_send_commands(harpe_steering *self);
/* Reads the frontiers of the jobs whose plans are not known. */
void harpe_steering_read_plans(harpe_steering *self, harpe_fleet_now now);

/* The client of the call is gone. */
void harpe_steering_drop_call(harpe_steering *self, const harpe_call *call);
bool harpe_steering_has_no_work(const harpe_steering *self);
/* Frees all work. Nothing of it may run any more. */
void harpe_steering_drop_work(harpe_steering *self);

#endif
