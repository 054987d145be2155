/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out from the kernel which process has connected. */
#include "agent/peer.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/process.h"
#include "base/unix_socket.h"
#include "base/wait.h"

enum { CGROUPS_SIZE = 8192, STATUS_SIZE = 8192 };

/* ---- Job ------------------------------------------------------------------------------------- */

/* Finds the number of a Slurm job. Slurm gives a job the cgroup "job_12", with a cgroup for each
 * step below it. */
static bool find_slurm_job(const char *cgroups, char job[HARPE_PEER_TEXT]) {
    const char *found = strstr(cgroups, "slurm") ? strstr(cgroups, "/job_") : NULL;
    size_t digits = found ? strspn(found + 5, "0123456789") : 0;
    if (digits == 0 || digits > 20) return false;
    (void)snprintf(job, HARPE_PEER_TEXT, "Slurm job %.*s", (int)digits, found + 5);
    return true;
}

/* Finds the UID of a pod. Kubernetes names the cgroup of a pod "pod<uid>". With systemd the name is
 * "kubepods-<class>-pod<uid>.slice", and the UID has '_' instead of '-'. */
static bool find_pod(const char *cgroups, char job[HARPE_PEER_TEXT]) {
    const char *found = strstr(cgroups, "kubepods");
    while ((found = found ? strstr(found + 1, "pod") : NULL)) {
        const char *uid = found + 3;
        size_t length = strspn(uid, "0123456789abcdefABCDEF-_");
        if (length < 32 || length > 40) continue;
        (void)snprintf(job, HARPE_PEER_TEXT, "pod %.*s", (int)length, uid);
        for (char *c = job; *c; c++)
            if (*c == '_') *c = '-';
        return true;
    }
    return false;
}

void harpe_peer_parse_job(const char *cgroups, char job[HARPE_PEER_TEXT]) {
    if (!find_slurm_job(cgroups, job) && !find_pod(cgroups, job)) job[0] = '\0';
}

void harpe_peer_note_job(harpe_peer *peer, const char *slurm_job) {
    size_t digits = slurm_job ? strspn(slurm_job, "0123456789") : 0;
    if (peer->job[0] || digits == 0 || digits > 20 || slurm_job[digits]) return;
    (void)snprintf(peer->job, sizeof peer->job, "Slurm job %s (as it says)", slurm_job);
}

/* Reads the name of the program. Replaces control characters, which could disturb a log, and
 * characters that surround the name in messages. */
static void read_command(pid_t process, char *text, size_t size) {
    harpe_process_read(process, "comm", text, size);
    text[strcspn(text, "\n")] = '\0';
    for (char *c = text; *c; c++)
        if (!isprint((unsigned char)*c) || strchr(",()", *c)) *c = '?';
}

static void read_job(pid_t process, char job[HARPE_PEER_TEXT]) {
    char *cgroups = malloc(CGROUPS_SIZE);
    job[0] = '\0';
    if (!cgroups) return;
    harpe_process_read(process, "cgroup", cgroups, CGROUPS_SIZE);
    harpe_peer_parse_job(cgroups, job);
    free(cgroups);
}

/* ---- Privilege ------------------------------------------------------------------------------- */

bool harpe_peer_parse_capabilities(const char *status, uint64_t *capabilities) {
    static const char name[] = "\nCapEff:\t";
    const char *found = strstr(status, name);
    char *end = NULL;
    if (!found || !isxdigit((unsigned char)found[strlen(name)])) return false;
    *capabilities = strtoull(found + strlen(name), &end, 16);
    return *end == '\n';
}

static bool read_capabilities(pid_t process, uint64_t *capabilities) {
    char *text = malloc(STATUS_SIZE);
    if (!text) return false;
    harpe_process_read(process, "status", text, STATUS_SIZE);
    bool is_read = harpe_peer_parse_capabilities(text, capabilities);
    free(text);
    return is_read;
}

bool harpe_peer_may_administer(const harpe_peer *peer, uint64_t needed) {
    uint64_t others = 0;
    if (peer->user != 0 && peer->user != geteuid()) return false;
    if (!read_capabilities(peer->process, &others)) return false;
    return (needed & ~others) == 0 && !harpe_peer_has_ended(peer);
}

/* ---- Process --------------------------------------------------------------------------------- */

harpe_status harpe_peer_open(int socket, harpe_peer *out, harpe_error *error) {
    struct ucred peer;
    *out = (harpe_peer){.pidfd = -1};
    if (!harpe_process_peer(socket, &peer))
        return harpe_fail_errno(error, errno, "learning which process has connected");
    if (peer.pid <= 0)
        return harpe_fail(error, HARPE_PERMISSION_DENIED,
                          "the node agent does not see your process: it must run in the host's "
                          "namespace of process numbers (hostPID)");
    out->process = peer.pid;
    out->user = peer.uid;
    out->group = peer.gid;
    out->pidfd = harpe_unix_peer_pidfd(socket);
    if (out->pidfd < 0 || harpe_peer_has_ended(out)) {
        harpe_peer_close(out);
        return harpe_fail(error, HARPE_NOT_FOUND, "the process that asked has ended");
    }
    read_command(out->process, out->command, sizeof out->command);
    read_job(out->process, out->job);
    return HARPE_OK;
}

void harpe_peer_close(harpe_peer *peer) {
    if (peer->pidfd >= 0) close(peer->pidfd);
    peer->pidfd = -1;
}

size_t harpe_peer_groups(int socket, gid_t groups[HARPE_PEER_GROUPS]) {
    return harpe_unix_peer_groups(socket, groups, HARPE_PEER_GROUPS);
}

bool harpe_peer_has_ended(const harpe_peer *peer) {
    return harpe_events_now(peer->pidfd, POLLIN) != 0;
}
