/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a few servers in an array. The times are differences of this machine's monotonic clock, so
 * the clocks of servers need not agree. The clock does not run while this machine is suspended. */
#include "server/cluster/heartbeats.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "server/cluster/lease.h"

static harpe_last_heartbeat *need_last(harpe_heartbeats *heartbeats, int64_t id) {
    for (size_t i = 0; i < heartbeats->count; i++)
        if (heartbeats->last[i].id == id) return &heartbeats->last[i];
    if (!HARPE_ARRAY_RESERVE(heartbeats->last, heartbeats->capacity, heartbeats->count + 1))
        return NULL;
    harpe_last_heartbeat *last = &heartbeats->last[heartbeats->count++];
    *last = (harpe_last_heartbeat){.id = id, .heartbeat = -1};
    return last;
}

bool harpe_heartbeats_note(harpe_heartbeats *heartbeats, int64_t id) {
    return need_last(heartbeats, id) != NULL;
}

/* A server is dead if its heartbeat has stayed the same for a long time. The time begins when an
 * answer arrives and ends when a later request is sent, because this process may have been
 * suspended between a request and its answer. */
bool harpe_heartbeats_check_dead(harpe_heartbeats *heartbeats, const harpe_heartbeat_row *row,
                                 int64_t asked_ns) {
    if (row->has_ended) return true;
    harpe_last_heartbeat *last = need_last(heartbeats, row->id);
    if (!last) return false;
    if (last->heartbeat != row->heartbeat) {
        last->heartbeat = row->heartbeat;
        last->seen_ns = harpe_clock_ns();
        return false;
    }
    return asked_ns - last->seen_ns > HARPE_HEARTBEAT_DEAD_NS;
}

void harpe_heartbeats_restart(harpe_heartbeats *heartbeats) {
    for (size_t i = 0; i < heartbeats->count; i++)
        heartbeats->last[i].seen_ns = harpe_clock_ns();
}

static bool is_among(const harpe_heartbeat *heartbeat, int64_t id) {
    for (size_t i = 0; i < heartbeat->count; i++)
        if (heartbeat->rows[i].id == id) return true;
    return false;
}

int64_t harpe_heartbeats_take_gone(harpe_heartbeats *heartbeats, const harpe_heartbeat *heartbeat) {
    for (size_t i = 0; i < heartbeats->count; i++) {
        int64_t id = heartbeats->last[i].id;
        if (is_among(heartbeat, id)) continue;
        heartbeats->last[i] = heartbeats->last[--heartbeats->count];
        return id;
    }
    return 0;
}

void harpe_heartbeats_free(harpe_heartbeats *heartbeats) {
    free(heartbeats->last);
    *heartbeats = (harpe_heartbeats){0};
}
