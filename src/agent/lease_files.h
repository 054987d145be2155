/* SPDX-License-Identifier: Apache-2.0 */
/* The files of leases: "<uuid>.<control>.lease". Each contains one JSON object. A new agent reads
 * them to continue the leases of an agent that was killed. */
#ifndef HARPE_AGENT_LEASE_FILES_H
#define HARPE_AGENT_LEASE_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/status.h>

#include "agent/peer.h"
#include "gpu/saved_settings_files.h"
#include "lease/lease.h"

typedef struct harpe_lease_record {
    uint64_t id;
    char uuid[96];
    harpe_lease_control control;
    int64_t since_s; /* seconds since 1970 */
    harpe_process_identity holder;
    harpe_process_identity helper; /* process 0: not started, or not known */
    uid_t user;
    char command[32];
    char job[HARPE_PEER_TEXT];
} harpe_lease_record;

/* Writes the file completely or not at all. */
harpe_status harpe_lease_files_write(int directory, const harpe_lease_record *record,
                                     harpe_error *error);
void harpe_lease_files_remove(int directory, const char *uuid, harpe_lease_control control);

/* Calls `each` for each readable file, and removes the others. */
void harpe_lease_files_read(int directory,
                            void (*each)(void *user, const harpe_lease_record *record), void *user);

/* Reads a record from text. Returns false if the text is not a valid record. */
bool harpe_lease_files_parse(const char *text, size_t length, harpe_lease_record *out);

#endif
