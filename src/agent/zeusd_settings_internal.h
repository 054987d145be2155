/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of zeusd_settings.h share. zeusd_changes.c makes the changes on
 * workers, and zeusd_put_back.c watches the holders on the loop. */
#ifndef HARPE_AGENT_ZEUSD_SETTINGS_INTERNAL_H
#define HARPE_AGENT_ZEUSD_SETTINGS_INTERNAL_H

#include <pthread.h>

#include "agent/zeusd_settings.h"
#include "gpu/saved_settings.h"

/* One kind of setting of one GPU, and its holder. */
typedef struct harpe_zeusd_slot {
    harpe_zeusd_settings *settings;
    int gpu;
    harpe_saved_settings_kind kind;
    char name[24]; /* for messages about work that is stuck */

    /* Held during driver calls, so only workers lock it. Protects the next members. */
    pthread_mutex_t busy;
    harpe_gpu_claim *claim; /* NULL: not held */
    harpe_saved_settings before;
    bool locks_graphics, locks_memory; /* such a lock may be set */
    int64_t recovered_ns; /* when the settings of dead jobs were last restored for this slot */

    /* Protected by settings->mutex, which is held only for moments. */
    bool is_held;
    bool is_to_end; /* an administrator ends the holding */
    pid_t process;
    uid_t uid;
    int pidfd; /* -1: not held */
    int64_t since_ns;
    uint64_t holding; /* number of this holding, from 1 */
    harpe_saved_settings shown;
    bool is_posted;
    harpe_posted posted;

    /* Of the loop's thread. */
    harpe_watch *watch;
    int watched_fd;   /* a copy of pidfd; -1: none */
    uint64_t watched; /* the holding that is watched */
    harpe_timer *again;
    int64_t pause_ms;
    bool is_working;
    harpe_work work;
    harpe_status result; /* of the work */
    bool has_put_back;
    harpe_error error;
    harpe_zeusd_held ended; /* the holder whose settings the work restores */
} harpe_zeusd_slot;

/* A process that a record of an earlier daemon names. */
typedef struct harpe_zeusd_former {
    harpe_zeusd_settings *settings;
    struct harpe_zeusd_former *next;
    pid_t process;
    int pidfd;
    harpe_watch *watch;
    harpe_timer *again;
    harpe_work work;
    bool is_working;
    harpe_status status;
    harpe_error error;
} harpe_zeusd_former;

struct harpe_zeusd_settings {
    harpe_loop *loop;
    harpe_workers *workers;
    harpe_gpus *gpus;
    harpe_zeusd_settings_options options;
    pthread_mutex_t mutex;
    harpe_zeusd_settings_counts counts; /* protected by the mutex */
    harpe_zeusd_former *formers;
    int slot_count; /* two for each GPU */
    harpe_zeusd_slot slots[];
};

/* ---- zeusd_changes.c ------------------------------------------------------------------------- */
/* Restores the settings that the slot's holder has changed. The caller holds `busy`. */
harpe_status harpe_zeusd_slot_put_back(harpe_zeusd_slot *slot, harpe_error *error);
/* Returns true if the process has ended. */
bool harpe_zeusd_has_ended(int pidfd);

/* ---- zeusd_put_back.c ------------------------------------------------------------------------ */
/* Makes the loop watch the slot's holder. Call it after each change of is_held, with the mutex
 * held. */
void harpe_zeusd_slot_post(harpe_zeusd_slot *slot);

#endif
