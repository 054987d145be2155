/* SPDX-License-Identifier: Apache-2.0 */
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
#ifndef HARPE_GPU_SAVED_SETTINGS_H
#define HARPE_GPU_SAVED_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <harpe/gpu.h>

#include "gpu/saved_settings_state.h"

/* ---- Claims ---------------------------------------------------------------------------------- */

typedef struct harpe_gpu_claim harpe_gpu_claim;

typedef struct harpe_gpu_claim_options {
    harpe_saved_settings_kind kind;
    pid_t trainer;                /* process for which the GPU is claimed */
    double timeout_s;             /* how long to wait for another process that has the GPU */
    bool (*gives_up)(void *user); /* asked every 10 ms while waiting; may be NULL */
    void *user;
} harpe_gpu_claim_options;

/* Claims the GPU for this process until harpe_gpu_claim_release or the end of the process.
 * `*earlier` receives the record of another process for the same trainer; its uuid is "" if there
 * is none. If a dead job left the GPU changed, the GPU is restored first. Fails with
 * HARPE_ALREADY_EXISTS if another job has the GPU, and with HARPE_INTERRUPTED if `gives_up`
 * returned true. */
harpe_status harpe_gpu_claim_take(harpe_gpus *gpus, int gpu, const harpe_gpu_claim_options *options,
                                  harpe_gpu_claim **out, harpe_saved_settings *earlier,
                                  harpe_error *error);
/* Writes the record before the first change. Fills in uuid, kind and trainer. */
harpe_status harpe_gpu_claim_save(harpe_gpu_claim *claim, const harpe_saved_settings *state,
                                  harpe_error *error);
/* Ends the claim. If `is_restored` is true, removes the record too. NULL is allowed. */
void harpe_gpu_claim_release(harpe_gpu_claim *claim, bool is_restored);

/* Removes the record of a GPU that this process (the trainer) has restored itself. Call it if the
 * process that claimed the GPU has died. */
void harpe_saved_settings_forget(harpe_gpus *gpus, int gpu, harpe_saved_settings_kind kind);

/* Reads the record of a GPU. Returns false if there is no readable record. `*is_in_use` tells
 * whether the process runs for which the settings were changed. `is_in_use` may be NULL. Takes no
 * lock. */
bool harpe_saved_settings_find(const harpe_gpus *gpus, int gpu, harpe_saved_settings_kind kind,
                               harpe_saved_settings *out, bool *is_in_use);

/* ---- Records of dead jobs -------------------------------------------------------------------- */

typedef enum harpe_saved_settings_outcome {
    HARPE_SAVED_RESTORED,  /* restored; with `is_dry`, would be restored */
    HARPE_SAVED_FAILED,    /* restoring failed, or another process keeps the record locked, see the
                            * error; the record stays */
    HARPE_SAVED_IN_USE,    /* the job of the record is alive */
    HARPE_SAVED_ELSEWHERE, /* this process does not see the GPU; the record stays */
    HARPE_SAVED_VOID,      /* from an earlier start of the machine or cluster; the record is
                            * removed; with `is_dry`, would be removed */
} harpe_saved_settings_outcome;

typedef struct harpe_saved_settings_recovery {
    bool is_dry;         /* change nothing */
    size_t most_records; /* if there are more, none is processed; 0: without limit */
    /* Restores a GPU through the zeusd that `state` names. NULL: records that name a zeusd stay. */
    harpe_status (*through_zeusd)(harpe_gpus *gpus, int gpu, const harpe_saved_settings *state,
                                  harpe_error *error);
    /* Returns true if the record's job is over although its process may still run, as after the end
     * of a lease. Optional (NULL: false). */
    bool (*is_over)(void *user, const harpe_saved_settings *state);
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

/* Give the graphics clock and the memory clock of a GPU what they have when no job uses it: the
 * lock in `locks`, or no lock. */
harpe_status harpe_gpu_restore_graphics_clocks(harpe_gpus *gpus, int gpu,
                                               const harpe_default_locks *locks,
                                               harpe_error *error);
harpe_status harpe_gpu_restore_memory_clocks(harpe_gpus *gpus, int gpu,
                                             const harpe_default_locks *locks, harpe_error *error);

/* Writes a report to the system's log; for a process without standard error. */
void harpe_saved_settings_report_to_syslog(void *user, const harpe_saved_settings *state,
                                           const harpe_gpu_info *info,
                                           harpe_saved_settings_outcome outcome,
                                           const harpe_error *error);

/* Restores a GPU through the driver. Tries a failed call again. Returns HARPE_OK for a lost GPU,
 * because its reset clears the settings. Changes no record. */
harpe_status harpe_saved_settings_put_back(harpe_gpus *gpus, int gpu,
                                           const harpe_saved_settings *state, harpe_error *error);

/* Describes the settings to be restored, for people: "power limit 231 W, persistence mode off". */
void harpe_saved_settings_describe(const harpe_saved_settings *state, char *text, size_t size);

#endif
