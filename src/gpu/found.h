/* SPDX-License-Identifier: Apache-2.0 */
/* Claims on GPUs, and what was found on them before they were changed, in files. A record is
 * written before the first change and removed once everything is put back. If every process that
 * could put it back was killed, the record remains, and the next start of Harpe puts the GPU back.
 *
 * The files are in a directory that only their owner can write: /run/harpe for root,
 * $XDG_RUNTIME_DIR/harpe for others (if these cannot be used, /dev/shm/harpe-<uid>), and
 * /dev/shm/harpe-emulated-<uid> for emulated GPUs, beside their memory. All of these are gone after
 * a restart of the machine, as are the settings of its GPUs. */
#ifndef HARPE_GPU_FOUND_H
#define HARPE_GPU_FOUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/gpu.h>

typedef enum harpe_found_kind {
    HARPE_FOUND_POWER = 0,  /* of the power limit optimizer */
    HARPE_FOUND_CLOCKS = 1, /* of a frequency controller */
    HARPE_FOUND_KINDS,
} harpe_found_kind;

enum { HARPE_FOUND_SOCKET_SIZE = 108 }; /* sockaddr_un's */

/* What is to be put back on one GPU, and for whom it was changed. */
typedef struct harpe_found_state {
    harpe_found_kind kind;
    char uuid[96];
    uint32_t power_limit_mw;                    /* 0: leave it alone */
    int32_t persistence;                        /* 0, 1, or -1: leave it alone */
    bool resets_clocks;                         /* graphics and memory */
    char zeusd_socket[HARPE_FOUND_SOCKET_SIZE]; /* "": through the driver */
    int64_t trainer;                            /* process that the change is for */
} harpe_found_state;

/* ---- Claims --------------------------------------------------------------------------------- */

typedef struct harpe_found_claim harpe_found_claim;

typedef struct harpe_found_claim_options {
    harpe_found_kind kind;
    pid_t trainer;                /* the claim is made for this process */
    double patience_s;            /* how long to wait for another process that has the GPU */
    bool (*gives_up)(void *user); /* may be NULL; asked every 10 ms while waiting */
    void *user;
} harpe_found_claim_options;

/* Claims the GPU for this process until harpe_found_release or the end of the process. `*earlier`
 * receives the record of another process for the same trainer; its uuid is "" if there is none. If
 * a dead job left the GPU changed, the GPU is put back first. HARPE_ALREADY_EXISTS: another job has
 * the GPU; HARPE_INTERRUPTED: gives_up. */
harpe_status harpe_found_claim_gpu(harpe_gpus *gpus, int gpu,
                                   const harpe_found_claim_options *options,
                                   harpe_found_claim **out, harpe_found_state *earlier,
                                   harpe_error *error);
/* Before the first change. Fills in uuid, kind and trainer. */
harpe_status harpe_found_note(harpe_found_claim *claim, const harpe_found_state *state,
                              harpe_error *error);
/* Ends the claim; NULL is allowed. `is_restored`: the record goes as well. */
void harpe_found_release(harpe_found_claim *claim, bool is_restored);

/* The record of a GPU that this process (the trainer) has put back itself, when the process that
 * claimed it is dead. */
void harpe_found_forget(harpe_gpus *gpus, int gpu, harpe_found_kind kind);

/* ---- What dead jobs have left --------------------------------------------------------------- */

typedef enum harpe_found_outcome {
    HARPE_FOUND_RESTORED,  /* with `is_dry`: would be */
    HARPE_FOUND_FAILED,    /* the error says why; the record stays */
    HARPE_FOUND_IN_USE,    /* its job is alive */
    HARPE_FOUND_ELSEWHERE, /* no GPU that this process sees; the record stays */
    HARPE_FOUND_VOID,      /* from an earlier start of the machine or cluster: record removed */
} harpe_found_outcome;

typedef struct harpe_found_recovery {
    bool is_dry; /* change nothing */
    /* Puts a GPU back through the state's zeusd_socket. NULL: such records stay. */
    harpe_status (*through_zeusd)(harpe_gpus *gpus, int gpu, const harpe_found_state *state,
                                  harpe_error *error);
    /* Called once for each record; `info` is NULL when there is no such GPU. May be NULL. */
    void (*report)(void *user, const harpe_found_state *state, const harpe_gpu_info *info,
                   harpe_found_outcome outcome, const harpe_error *error);
    void *user;
} harpe_found_recovery;

/* Processes all records of this user for the machine of `gpus` (real or emulated), newest first.
 * Looks at all GPUs, not only the visible ones. Needs only a few file operations if there are no
 * records. Returns the first failure, but continues with the other records. */
harpe_status harpe_found_recover(const harpe_gpus *gpus, const harpe_found_recovery *how,
                                 harpe_error *error);

/* For `report` in a process without standard error: writes to the system's log. */
void harpe_found_report_to_syslog(void *user, const harpe_found_state *state,
                                  const harpe_gpu_info *info, harpe_found_outcome outcome,
                                  const harpe_error *error);

/* "power limit 231 W, persistence mode off": what is put back, for people. */
void harpe_found_describe(const harpe_found_state *state, char *text, size_t size);

#endif
