/* SPDX-License-Identifier: Apache-2.0 */
/* The process at the other end of a Unix-domain socket: its number, user and job. The kernel
 * reports the number and the user. The pidfd of the process shows when the process ends. */
#ifndef HARPE_AGENT_PEER_H
#define HARPE_AGENT_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/status.h>

enum { HARPE_PEER_GROUPS = 256, HARPE_PEER_TEXT = 96 };

typedef struct harpe_peer {
    pid_t process; /* its number in the process namespace of this process */
    uid_t user;
    gid_t group;
    int pidfd;                 /* -1: not open */
    char command[32];          /* name of its program, at most 15 characters of it */
    char job[HARPE_PEER_TEXT]; /* "Slurm job 12", "pod 0123...", or ""; "... (as it says)" if only
                                * the process itself says so */
} harpe_peer;

/* Describes the process that has connected to `socket`. Fails with HARPE_PERMISSION_DENIED if this
 * process cannot see the other process, and with HARPE_NOT_FOUND if the other process has ended.
 * The caller closes the result with harpe_peer_close. */
harpe_status harpe_peer_open(int socket, harpe_peer *out, harpe_error *error);
void harpe_peer_close(harpe_peer *peer);

/* Writes the groups of the process that has connected to `socket`, at most HARPE_PEER_GROUPS.
 * Returns their number. */
size_t harpe_peer_groups(int socket, gid_t groups[HARPE_PEER_GROUPS]);

bool harpe_peer_has_ended(const harpe_peer *peer);

/* Returns true if the process runs as root or as the user of this process, and has all capabilities
 * `needed`, a bit for each. Root in a container has fewer capabilities. */
bool harpe_peer_may_administer(const harpe_peer *peer, uint64_t needed);

/* Finds the effective capabilities in the text of /proc/PID/status. */
bool harpe_peer_parse_capabilities(const char *status, uint64_t *capabilities);

/* Finds the job in the text of /proc/PID/cgroup. `job` becomes "" if there is none. */
void harpe_peer_parse_job(const char *cgroups, char job[HARPE_PEER_TEXT]);

/* Notes the Slurm job that the process itself names, if the kernel reports no job; the kernel
 * reports none if Slurm does not use cgroups. The process can write any number, so the number is
 * only for people. Does nothing if `slurm_job` is NULL or not the number of a job. */
void harpe_peer_note_job(harpe_peer *peer, const char *slurm_job);

#endif
