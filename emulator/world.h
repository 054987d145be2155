/* SPDX-License-Identifier: Apache-2.0 */
/* The emulator in a simulated world (base/platform.h). A world is one real process. All processes
 * of the world share one copy of this library, and one thread runs at a time. Another thread can
 * run only while a thread waits, and no thread waits between emulator_hold and emulator_release, or
 * between emulator_lock and emulator_unlock. Therefore the emulator locks nothing in a world, and a
 * killed thread never leaves a lock behind.
 *
 * A call takes no time, unless a fault or the physics of the GPU gives it a duration. Work ends at
 * exactly the computed time. A real host has delays, for which the emulator makes up; a world has
 * none, so the emulator does not call `is_held` of harpe_emulator.h, and a new clock holds from the
 * moment of the call. When a process has ended, the next call on its GPU ends its work. */
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
