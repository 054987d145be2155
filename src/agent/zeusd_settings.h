/* SPDX-License-Identifier: Apache-2.0 */
/* Changes GPUs for clients of zeusd's routes, and restores them. It implements harpe_zeusd_ops.
 *
 * Before the first change of a client, this code claims the GPU (gpu/saved_settings.h) for the
 * client's process and records the saved settings on disk. So a change is refused if another job
 * has the GPU. If the daemon is killed, the next daemon restores the settings. There is one claim
 * for the clocks, and another one for the power limit and the persistence mode. Each claim has at
 * most one holder. Other processes are refused with a line that names the holder. The settings are
 * restored when the holder's process ends, and when the daemon stops. A client that has reset both
 * clocks no longer holds them.
 *
 * Changes of TCP clients are not restored, as in zeusd. With `no_restore`, no changes are restored.
 * All such changes are refused while another client or job has the GPU. */
#ifndef HARPE_AGENT_ZEUSD_SETTINGS_H
#define HARPE_AGENT_ZEUSD_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/zeusd_server.h"
#include "gpu/saved_settings_state.h"

typedef struct harpe_zeusd_settings harpe_zeusd_settings;

/* Initialise it with zeros, then set the fields that you need. */
typedef struct harpe_zeusd_settings_options {
    bool no_restore;
    /* Returns the clock locks that the GPU gets when its settings are restored. Called on workers.
     * NULL: no locks. */
    harpe_default_locks (*default_locks)(void *user, int gpu);
    void *user; /* passed to default_locks */
    /* Number of the pool that restores settings. It should have two threads for each GPU. The
     * server's pool for writes may be used if it has three threads for each GPU. */
    int pool;
    harpe_log log; /* called on the loop */
} harpe_zeusd_settings_options;

/* `loop`, `workers` and `gpus` must outlive the result. Call this function and the functions below
 * on the loop's thread. Workers may call the functions that harpe_zeusd_settings_ops returns. */
harpe_status harpe_zeusd_settings_new(harpe_loop *loop, harpe_workers *workers, harpe_gpus *gpus,
                                      const harpe_zeusd_settings_options *options,
                                      harpe_zeusd_settings **out, harpe_error *error);
/* Returns the functions for harpe_zeusd_server_new. They are valid until
 * harpe_zeusd_settings_free. */
harpe_zeusd_ops harpe_zeusd_settings_ops(harpe_zeusd_settings *settings);

/* Restores all settings that clients hold, when the daemon stops. Call it after
 * harpe_workers_close. Waits at most 5 s for each driver call that hangs. Continues after a failure
 * and returns the first failure. Settings that could not be restored stay recorded on disk for the
 * next start. */
harpe_status harpe_zeusd_settings_put_back(harpe_zeusd_settings *settings, harpe_error *error);
/* Frees the object and restores nothing. No work of the workers may run. NULL is allowed. */
void harpe_zeusd_settings_free(harpe_zeusd_settings *settings);

/* Waits for the end of a process and then calls harpe_saved_settings_recover on a worker. Call it
 * when the daemon starts, for each record that an earlier daemon has left for a process that still
 * runs (HARPE_SAVED_IN_USE). Does nothing if the process has ended or is watched already. */
void harpe_zeusd_settings_recover_after(harpe_zeusd_settings *settings, pid_t process);

/* Restores the settings that clients hold on a GPU (-1: on all GPUs), although these clients run.
 * Returns the number of holders. Does not wait until the settings are restored. */
int harpe_zeusd_settings_end(harpe_zeusd_settings *settings, int gpu);

/* A holder, for status and metrics. */
typedef struct harpe_zeusd_held {
    int gpu; /* index in harpe_gpus */
    harpe_saved_settings_kind kind;
    pid_t process;
    uid_t uid;
    int64_t since_ns;            /* harpe_clock_ns */
    bool is_ending;              /* harpe_zeusd_settings_end was called */
    harpe_saved_settings before; /* the saved settings */
} harpe_zeusd_held;
/* Writes at most `size` holders to `out`. Returns how many there are. Any thread may call it. */
size_t harpe_zeusd_settings_list(harpe_zeusd_settings *settings, harpe_zeusd_held *out,
                                 size_t size);

typedef struct harpe_zeusd_settings_counts {
    uint64_t put_back, failed; /* failed: attempts to restore */
} harpe_zeusd_settings_counts;
harpe_zeusd_settings_counts harpe_zeusd_settings_count(harpe_zeusd_settings *settings);

#endif
