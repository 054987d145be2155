/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the heartbeats that the message queue has read of the other servers. Finds servers whose
 * heartbeat has stopped, and servers that are no longer in the table. Private to the message queue.
 */
#ifndef HARPE_SERVER_CLUSTER_HEARTBEATS_H
#define HARPE_SERVER_CLUSTER_HEARTBEATS_H

#include "server/cluster/cluster_sql.h"

typedef struct harpe_last_heartbeat {
    int64_t id, heartbeat;
    int64_t seen_ns; /* when this value of `heartbeat` was first seen */
} harpe_last_heartbeat;

/* Zero-initialise. */
typedef struct harpe_heartbeats {
    harpe_last_heartbeat *last;
    size_t count, capacity;
} harpe_heartbeats;

/* Begins to watch the server `id`, which harpe_heartbeats_take_gone returns when it is gone.
 * Returns false when out of memory. */
bool harpe_heartbeats_note(harpe_heartbeats *heartbeats, int64_t id);
/* Returns true if the server was dead at `asked_ns` (harpe_clock_ns), when `row` was requested. */
bool harpe_heartbeats_check_dead(harpe_heartbeats *heartbeats, const harpe_heartbeat_row *row,
                                 int64_t asked_ns);
/* Gives every server its full time for the next heartbeat again. Call it when the database did not
 * answer for a while. */
void harpe_heartbeats_restart(harpe_heartbeats *heartbeats);
/* Returns a watched server that is not in `heartbeat`, and stops watching it. Returns 0 if there is
 * none. */
int64_t harpe_heartbeats_take_gone(harpe_heartbeats *heartbeats, const harpe_heartbeat *heartbeat);
void harpe_heartbeats_free(harpe_heartbeats *heartbeats); /* leaves it empty and usable */

#endif
