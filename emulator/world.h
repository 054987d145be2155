/* SPDX-License-Identifier: Apache-2.0 */
/* The emulator in a simulated world (base/platform.h). A world is one process, in which one thread
 * runs at a time, and whose processes share one copy of this library. A thread gives way to others
 * only while it waits, and never between emulator_hold and emulator_release, or emulator_lock and
 * emulator_unlock. So nothing is locked in a world, and a thread that is killed holds nothing.
 *
 * Calls take no time, unless a fault or the physics of the GPU says so. Work ends exactly when it
 * is computed to end. What makes up for the delays of a real host has no effect: harpe_emulator.h's
 * `is_held` is not called, and a clock holds from the moment at which it is set. The works of a
 * process that has ended end at the next call on their GPU. */
#ifndef HARPE_EMULATOR_WORLD_H
#define HARPE_EMULATOR_WORLD_H

#include <pthread.h>
#include <stdbool.h>

#include <harpe/api.h>

#include "base/platform.h"
#include "base/wait.h"

/* Begins or ends (NULL) a world. The GPUs of the world before, and all that this process knows of
 * a cluster, are forgotten. The GPUs of a world depend on the environment and the platform alone:
 * they have no file, and the name of the cluster does not matter. No call of the library may be in
 * progress. `platform` must live until the next call. */
HARPE_API void harpe_emulator_use_platform(const harpe_platform *platform);

/* Replaces the faults of HARPE_EMULATOR_FAULTS (docs/emulator.md), for all processes of the world.
 * Returns false, and changes nothing, if the list makes no sense or there are no GPUs. */
HARPE_API bool harpe_emulator_use_faults(const char *list);

static inline bool emulator_is_in_world(void) { return harpe_platform_in_use != NULL; }

/* Lock and unlock what belongs to this process. */
static inline void emulator_hold(pthread_mutex_t *mutex) {
    if (!emulator_is_in_world()) harpe_lock(mutex);
}
static inline void emulator_release(pthread_mutex_t *mutex) {
    if (!emulator_is_in_world()) harpe_unlock(mutex);
}

#endif
