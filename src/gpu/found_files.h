/* SPDX-License-Identifier: Apache-2.0 */
/* The files behind found.c: the directory, locks, and records as text. Private to src/gpu. */
#ifndef HARPE_GPU_FOUND_FILES_H
#define HARPE_GPU_FOUND_FILES_H

#include "gpu/found.h"

enum { HARPE_FOUND_NAME_SIZE = 128, HARPE_FOUND_CLUSTER_SIZE = 192 };

/* Identifies a process, so that a later process with the same number is not mistaken for it. */
typedef struct harpe_process_identity {
    int64_t process;
    uint64_t start_ticks; /* since boot; 0: not known */
    uint64_t namespace;   /* of process numbers: inode */
} harpe_process_identity;

/* A record as it is in its file. */
typedef struct harpe_found_record {
    harpe_found_state state;
    harpe_process_identity trainer;
    int64_t noted_ns;                       /* CLOCK_BOOTTIME */
    char boot[64];                          /* the machine's boot_id */
    char cluster[HARPE_FOUND_CLUSTER_SIZE]; /* of emulated GPUs; "": real ones */
} harpe_found_record;

/* The descriptor of the directory, which is made where `may_make`; otherwise HARPE_NOT_FOUND. */
harpe_status harpe_found_open_directory(bool is_emulated, bool may_make, int *out,
                                        harpe_error *error);

/* "<uuid>.power", "<uuid>.clocks". */
void harpe_found_name(const char *uuid, harpe_found_kind kind, char name[HARPE_FOUND_NAME_SIZE]);

/* Locks "<name>.lock". -1 with errno EWOULDBLOCK: another process has it. Goes with the process. */
int harpe_found_lock(int directory, const char *name);
/* Removes the lock's file and closes it; the caller has the lock. */
void harpe_found_unlock(int directory, const char *name, int lock);

/* HARPE_NOT_FOUND: there is no record. HARPE_INVALID_INPUT: the file is not a record of Harpe. */
harpe_status harpe_found_read(int directory, const char *name, harpe_found_record *out,
                              harpe_error *error);
/* Writes the record completely or not at all. */
harpe_status harpe_found_write(int directory, const char *name, const harpe_found_record *record,
                               harpe_error *error);
void harpe_found_remove(int directory, const char *name);

/* The names of all records, to be freed with free(). */
harpe_status harpe_found_list(int directory, char (**out)[HARPE_FOUND_NAME_SIZE], size_t *count,
                              harpe_error *error);

harpe_process_identity harpe_process_identify(pid_t process);
/* Also false for a process that has ended and is not yet waited for, and for one of another
 * namespace of process numbers, which cannot be looked up. */
bool harpe_process_is_alive(const harpe_process_identity *identity);
void harpe_found_read_boot(char boot[64]);

#endif
