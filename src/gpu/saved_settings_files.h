/* SPDX-License-Identifier: Apache-2.0 */
/* The files behind saved_settings.c: the directory, the locks, and records as text. Private to
 * src/gpu. */
#ifndef HARPE_GPU_SAVED_SETTINGS_FILES_H
#define HARPE_GPU_SAVED_SETTINGS_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/status.h>

#include "gpu/saved_settings_state.h"

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

/* Locks "<name>.lock". Returns -1 with errno EWOULDBLOCK if another process has the lock. The lock
 * ends with the process. */
int harpe_saved_settings_lock(int directory, const char *name);
/* Removes the lock's file and closes it. The caller holds the lock. */
void harpe_saved_settings_unlock(int directory, const char *name, int lock);

/* Reads a record. HARPE_NOT_FOUND: there is no record. HARPE_INVALID_INPUT: the file is not a
 * record of Harpe. */
harpe_status harpe_saved_settings_read(int directory, const char *name,
                                       harpe_saved_settings_record *out, harpe_error *error);
/* Writes the record completely or not at all. */
harpe_status harpe_saved_settings_write(int directory, const char *name,
                                        const harpe_saved_settings_record *record,
                                        harpe_error *error);
void harpe_saved_settings_remove(int directory, const char *name);

/* Lists the names of all records. The caller frees the list with free(). */
harpe_status harpe_saved_settings_list(int directory, char (**out)[HARPE_SAVED_NAME_SIZE],
                                       size_t *count, harpe_error *error);

harpe_process_identity harpe_process_identify(pid_t process);
/* Returns true if the process is alive. Returns false for a process that has ended and has not
 * been waited for, and for a process of another namespace of process numbers, which cannot be
 * examined. */
bool harpe_process_is_alive(const harpe_process_identity *identity);
void harpe_saved_settings_read_boot(char boot[64]);

#endif
