/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of GPUs before Harpe changes them, and restoring them. Whoever changes a GPU takes a
 * holding of it. The holding records the settings on disk before the first change, and restores
 * them. */
#ifndef HARPE_GPU_SAVED_SETTINGS_H
#define HARPE_GPU_SAVED_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/gpu.h>
#include <harpe/status.h>

#include "gpu/settings.h"

/* What one holder of a GPU may change. A GPU has at most one holder for each kind. */
typedef enum harpe_saved_settings_kind {
    HARPE_SAVED_CLOCKS = 0, /* clocks; of a frequency controller also the power limit */
    HARPE_SAVED_POWER = 1,  /* power limit and persistence mode */
    HARPE_SAVED_KINDS,
} harpe_saved_settings_kind;

/* Returns the name of a kind in files and messages: "clocks" or "power". */
const char *harpe_saved_settings_kind_name(harpe_saved_settings_kind kind);
/* Finds a kind by its name. Returns false if there is none; `name` may be NULL. */
bool harpe_saved_settings_kind_find(const char *name, harpe_saved_settings_kind *out);

/* Where zeusd is. Both members "": there is no zeusd. */
typedef struct harpe_zeusd_place {
    char socket[108]; /* path, of the size of sun_path in sockaddr_un */
    char host_port[300];
} harpe_zeusd_place;

/* The clock locks that a GPU has when no job uses it. A highest clock of 0 means that there is no
 * such lock. The driver cannot report locks, so an administrator writes them into the configuration
 * of the node agent. */
typedef struct harpe_default_locks {
    uint32_t graphics_minimum_mhz, graphics_maximum_mhz;
    uint32_t memory_minimum_mhz, memory_maximum_mhz;
} harpe_default_locks;

/* The settings to restore on one GPU, and the process for which they were changed. */
typedef struct harpe_saved_settings {
    harpe_saved_settings_kind kind;
    char uuid[96];
    uint32_t power_limit_mw; /* 0: leave it alone */
    int32_t persistence;     /* 0, 1, or -1: leave it alone */
    bool resets_clocks;      /* true: reset the clocks, or lock them as in `locks` */
    /* True: the driver has locked this clock, so it can reset it. False: it is not known. */
    bool locks_graphics, locks_memory;
    harpe_default_locks locks;
    /* The zeusd that changed the settings. None: the driver changed them. A record never contains
     * the token for zeusd. */
    harpe_zeusd_place zeusd;
    int64_t trainer; /* process for which the settings were changed */
    bool yields;     /* the record is of a lock that yields (harpe_gpu_lock_yielding) */
} harpe_saved_settings;

static inline bool harpe_zeusd_is_given(const harpe_zeusd_place *place) {
    return place->socket[0] != '\0' || place->host_port[0] != '\0';
}

/* ---- Records --------------------------------------------------------------------------------- */

/* A record as a file. The node agent uses this part too. */

enum { HARPE_SAVED_NAME_SIZE = 128, HARPE_SAVED_CLUSTER_SIZE = 192 };

/* Identifies a process, so that a later process with the same number is not confused with it. */
typedef struct harpe_process_identity {
    int64_t process;
    uint64_t start_ticks; /* since boot; 0: not known */
    uint64_t namespace;   /* inode of the namespace of process numbers */
} harpe_process_identity;

/* A record as stored in its file. */
typedef struct harpe_saved_settings_record {
    harpe_saved_settings state;
    harpe_process_identity trainer;
    int64_t noted_ns;                       /* time of the record, by CLOCK_BOOTTIME */
    char boot[64];                          /* the machine's boot_id */
    char cluster[HARPE_SAVED_CLUSTER_SIZE]; /* cluster of emulated GPUs; "": real GPUs */
} harpe_saved_settings_record;

/* Opens the directory and writes its descriptor to `*out`. If the directory is missing, makes it if
 * `may_make` is true, and otherwise fails with HARPE_NOT_FOUND. */
harpe_status harpe_saved_settings_open_directory(bool is_emulated, bool may_make, int *out,
                                                 harpe_error *error);

/* Writes the name of a record: "<uuid>.power" or "<uuid>.clocks". */
void harpe_saved_settings_name(const char *uuid, harpe_saved_settings_kind kind,
                               char name[HARPE_SAVED_NAME_SIZE]);

harpe_process_identity harpe_process_identify(pid_t process);
/* Returns true if the process is alive. Returns false for a process that has ended and has not
 * been waited for, and for a process of another namespace of process numbers, which cannot be
 * examined. */
bool harpe_process_is_alive(const harpe_process_identity *identity);

/* ---- Directory ------------------------------------------------------------------------------- */

/* Claims on GPUs, and files that record their settings before Harpe changes them. A record is
 * written before the first change and removed after everything is restored. If every process that
 * could restore a GPU was killed, the record remains, and the next start of Harpe restores the
 * GPU.
 *
 * Only the owner of the directory with the files can write there. It is
 *   /run/harpe                     for root,
 *   $XDG_RUNTIME_DIR/harpe         for other users,
 *   /dev/shm/harpe-<uid>           if that directory cannot be used,
 *   /dev/shm/harpe-emulated-<uid>  for emulated GPUs.
 * A restart of the machine empties all of these directories. It also resets the GPUs' settings. */

/* ---- Restoring ------------------------------------------------------------------------------- */

/* Changes a setting in another way than harpe_gpu_set, such as through zeusd. */
typedef harpe_status harpe_setter(void *user, harpe_setting setting, harpe_setting_value value,
                                  harpe_error *error);

enum { HARPE_ALL_SETTINGS = (1 << HARPE_SETTINGS) - 1 };

/* Initialise it with zeros, then set the fields that you need. */
typedef struct harpe_restoration {
    harpe_gpus *gpus;
    int gpu;
    harpe_saved_settings *state;
    unsigned which;    /* set of 1 << harpe_setting */
    double try_for_s;  /* how long failed calls are tried again */
    harpe_setter *set; /* NULL: harpe_gpu_set */
    /* Called before each attempt; may change `state`. Returns false if another process is about to
     * change the GPU. Then no attempt is made until it returns true or `try_for_s` is over. May be
     * NULL. */
    bool (*revise)(void *user, harpe_saved_settings *state);
    void *user; /* passed to `set` and `revise` */
} harpe_restoration;

/* Restores a GPU. This function has the rules that hold for everything that restores settings:
 *   - Clocks come first, and a failure does not keep the other settings from being restored.
 *   - Failed calls are tried again every 20 ms for `try_for_s`, and at least twice, because a
 *     driver call may fail once. A lost GPU is not tried again: it returns only after a reset,
 *     which gives it its default settings. Its record stays until then.
 *   - Power limit and persistence mode are read after they are set, until three checks in a row
 *     find the saved values, because an earlier call of the job may take effect late. After
 *     `try_for_s`, one check suffices, and a setting that must be set twice is a failure.
 *   - HARPE_NOT_SUPPORTED is no failure for a clock that the driver has never locked. For any other
 *     setting it is one, because drivers sometimes deny for a moment what they have done before.
 * Returns the failure that came first in the last attempt. Changes no record. */
harpe_status harpe_restore(const harpe_restoration *how, harpe_error *error);

/* Finds the saved value of a setting. Returns false if the setting is to be left alone. */
bool harpe_saved_settings_value(const harpe_saved_settings *state, harpe_setting setting,
                                harpe_setting_value *out);

/* ---- Holdings -------------------------------------------------------------------------------- */

/* A GPU of which this process may change one kind of setting. Other processes cannot take it until
 * harpe_holding_release or the end of this process. */
typedef struct harpe_holding {
    harpe_gpus *gpus;
    int gpu;
    /* record.state has the settings to restore. They are those of another process for the same
     * trainer, if there is a record of it. The caller of harpe_holding_take adds others, and calls
     * harpe_holding_save. */
    harpe_saved_settings_record record;
    bool is_continued; /* there was a record of such a process */
    unsigned changed;  /* set of 1 << harpe_setting: these may differ from record.state */
    harpe_setter *set;
    void *user;
    int directory, lock; /* these belong to saved_settings.c */
    char name[HARPE_SAVED_NAME_SIZE];
} harpe_holding;

typedef struct harpe_holding_options {
    harpe_saved_settings_kind kind;
    pid_t trainer;                /* process for which the GPU is changed */
    double timeout_s;             /* how long to wait for another process that has the GPU */
    bool (*gives_up)(void *user); /* asked every 10 ms while waiting; may be NULL */
    harpe_setter *set;            /* as in harpe_restoration */
    void *user;                   /* passed to `gives_up` and `set` */
    bool yields; /* the holding is for a lock that yields (harpe_gpu_lock_yielding) */
} harpe_holding_options;

/* Takes a GPU. If a dead job has left settings of this kind changed, restores them first. If a lock
 * that yields is in force, unlocks the clock first. Fails with HARPE_ALREADY_EXISTS if another job
 * has the GPU, or if it cannot be restored, and with HARPE_INTERRUPTED if `gives_up` returned
 * true. */
harpe_status harpe_holding_take(harpe_gpus *gpus, int gpu, const harpe_holding_options *options,
                                harpe_holding **out, harpe_error *error);
/* Writes record.state to disk. Call it before the first change. */
harpe_status harpe_holding_save(harpe_holding *holding, harpe_error *error);
/* Changes a setting whose value is saved already, and adds it to `changed`, unless the driver
 * refuses the call: after any other failure, the call may still take effect. Notes in the record
 * which clocks the driver has locked. */
harpe_status harpe_holding_set(harpe_holding *holding, harpe_setting setting,
                               harpe_setting_value value, harpe_error *error);
/* Restores the settings in `changed`. */
harpe_status harpe_holding_restore(harpe_holding *holding, double try_for_s, harpe_error *error);
/* Ends the holding. Removes the record if nothing is changed. NULL is allowed. */
void harpe_holding_release(harpe_holding *holding);

/* Reads the record of a GPU. Returns false if there is no readable record. `*is_in_use` becomes
 * true if the process for which the settings were changed still runs. `is_in_use` may be NULL.
 * Takes no lock. */
bool harpe_saved_settings_find(const harpe_gpus *gpus, int gpu, harpe_saved_settings_kind kind,
                               harpe_saved_settings *out, bool *is_in_use);

/* Returns true if settings are changed although the process for which they were changed has ended,
 * and no process holds the record to restore them. `*trainer` receives the number of the process.
 * Returns false for settings that were changed through zeusd, and for a process of another
 * namespace of process numbers, which may run. */
bool harpe_saved_settings_are_left(const harpe_gpus *gpus, int gpu, harpe_saved_settings_kind kind,
                                   int64_t *trainer);

/* ---- A lock that yields ---------------------------------------------------------------------- */

/* Locks the graphics clock. The lock ends with harpe_gpu_unlock_yielding, or when another process
 * claims the clocks of the GPU: this claim unlocks the clock. While the lock is in force, there is
 * a record but no claim. If this process is killed, the record makes sure that the GPU is restored.
 * `after` has the locks that the GPU gets when this lock ends. Fails with HARPE_ALREADY_EXISTS if
 * another process has claimed the clocks, and with HARPE_PERMISSION_DENIED if the record cannot be
 * written. If the driver refuses the lock (harpe_gpu_refused), the clock is not locked. After any
 * other failure, the clock may be locked. */
harpe_status harpe_gpu_lock_yielding(harpe_gpus *gpus, int gpu, uint32_t mhz,
                                     const harpe_default_locks *after, harpe_error *error);
/* Unlocks the clock that was locked at `mhz`. Does nothing if another process has claimed the GPU,
 * because the claim has unlocked the clock. Waits up to 20 ms for a process that reads the record.
 * Drivers sometimes accept the call without effect, so this function waits until the clock changes.
 * If the clock does not change within 0.1 s, the function unlocks it again, at most twice. If the
 * GPU is lost, its record stays. */
harpe_status harpe_gpu_unlock_yielding(harpe_gpus *gpus, int gpu, uint32_t mhz,
                                       const harpe_default_locks *after, harpe_error *error);
/* Returns true if a lock that yields is in force on this GPU and this process has made it. */
bool harpe_gpu_is_yielding(const harpe_gpus *gpus, int gpu);

/* ---- Records of dead jobs -------------------------------------------------------------------- */

typedef enum harpe_saved_settings_outcome {
    HARPE_SAVED_RESTORED,  /* restored; with `is_dry`, would be restored */
    HARPE_SAVED_FAILED,    /* restoring failed, or another process keeps the record locked, see the
                            * error; the record stays. Or the record is damaged; without
                            * `is_dry`, it is removed */
    HARPE_SAVED_IN_USE,    /* the job of the record is alive */
    HARPE_SAVED_ELSEWHERE, /* this process does not see the GPU; the record stays */
    HARPE_SAVED_VOID,      /* from an earlier start of the machine or cluster; the record is
                            * removed; with `is_dry`, would be removed */
} harpe_saved_settings_outcome;

typedef struct harpe_saved_settings_recovery {
    bool is_dry;         /* change nothing */
    size_t most_records; /* if there are more, none is processed; 0: without limit */
    /* Restores a GPU through the zeusd that how->state names: calls harpe_restore with a setter.
     * NULL: records that name a zeusd stay. */
    harpe_status (*through_zeusd)(harpe_restoration *how, harpe_error *error);
    /* Called at most once for each record. `info` is NULL if there is no such GPU. May be NULL. */
    void (*report)(void *user, const harpe_saved_settings *state, const harpe_gpu_info *info,
                   harpe_saved_settings_outcome outcome, const harpe_error *error);
    void *user;
} harpe_saved_settings_recovery;

/* Processes all records of this user for the machine of `gpus` (real or emulated), newest first.
 * Looks at all GPUs, not only the visible ones. Needs only a few file operations if there are no
 * records. Returns the first failure, but continues with the other records. */
harpe_status harpe_saved_settings_recover(const harpe_gpus *gpus,
                                          const harpe_saved_settings_recovery *how,
                                          harpe_error *error);

/* Does the same for one record, if it is of a job of the process `trainer`. This process may still
 * run, because only its lease has ended. `*outcome` becomes HARPE_SAVED_VOID if there is no record,
 * and HARPE_SAVED_IN_USE if the record is of another job or of a later version of Harpe. */
harpe_status harpe_saved_settings_end(const harpe_gpus *gpus, int gpu,
                                      harpe_saved_settings_kind kind, int64_t trainer,
                                      harpe_saved_settings_outcome *outcome, harpe_error *error);

/* Writes a line about a record whose job is over: its GPU is restored, or could not be restored.
 * Returns false for all other outcomes. The line has at most `size` bytes. */
bool harpe_saved_settings_tell(const harpe_saved_settings *state, const harpe_gpu_info *info,
                               harpe_saved_settings_outcome outcome, const harpe_error *error,
                               char *line, size_t size);
/* Writes this line to the system's log; for a process without standard error. */
void harpe_saved_settings_report_to_syslog(void *user, const harpe_saved_settings *state,
                                           const harpe_gpu_info *info,
                                           harpe_saved_settings_outcome outcome,
                                           const harpe_error *error);

/* Describes the settings to be restored, for people: "power limit 231 W, persistence mode off". */
void harpe_saved_settings_describe(const harpe_saved_settings *state, char *text, size_t size);

#endif
