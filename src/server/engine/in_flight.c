/* SPDX-License-Identifier: Apache-2.0 */
/* The list of everything that is in flight. */
#include "server/engine/in_flight.h"

void harpe_in_flight_add(harpe_jobs *jobs, harpe_in_flight *entry,
                         void (*drop)(harpe_in_flight *self)) {
    entry->drop = drop;
    entry->previous = NULL;
    entry->following = jobs->in_flight;
    if (entry->following) entry->following->previous = entry;
    jobs->in_flight = entry;
}

void harpe_in_flight_remove(harpe_jobs *jobs, harpe_in_flight *entry) {
    if (entry->previous)
        entry->previous->following = entry->following;
    else
        jobs->in_flight = entry->following;
    if (entry->following) entry->following->previous = entry->previous;
}
