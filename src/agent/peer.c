/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent learns of a client: from the kernel, which process has connected; how often its
 * user may ask; and the device node of a GPU. A process may use the GPU if it can open the node for
 * reading and writing. The node's file permissions, and the process's mount namespace and device
 * cgroup, decide whether it can. */
#include "agent/agent_internal.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"

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

/* ---- Rates ----------------------------------------------------------------------------------- */

#define BURST 4

static harpe_agent_rate *find(harpe_agent_rates *rates, uid_t user) {
    harpe_agent_rate *oldest = &rates->users[0];
    for (int i = 0; i < HARPE_AGENT_RATE_USERS; i++) {
        harpe_agent_rate *rate = &rates->users[i];
        if (rate->credit.at_ns != 0 && rate->user == user) return rate;
        if (rate->credit.at_ns < oldest->credit.at_ns) oldest = rate;
    }
    *oldest = (harpe_agent_rate){.user = user};
    return oldest;
}

bool harpe_agent_rates_allow(harpe_agent_rates *rates, uid_t user, double per_second,
                             int64_t now_ns) {
    return per_second <= 0 || harpe_credit_take(&find(rates, user)->credit, BURST * per_second + 1,
                                                per_second, now_ns);
}

/* ---- The device node of a GPU ---------------------------------------------------------------- */

/* Returns the PCI address as the kernel writes it: "0000:07:00.0". The driver writes the domain
 * with eight digits. */
static void kernel_address(const char *pci_bus_id, char *out, size_t size) {
    const char *colon = strchr(pci_bus_id, ':');
    size_t domain = colon ? (size_t)(colon - pci_bus_id) : 0;
    (void)snprintf(out, size, "%s", domain > 4 ? pci_bus_id + (domain - 4) : pci_bus_id);
    for (char *c = out; *c; c++)
        *c = (char)tolower((unsigned char)*c);
}

/* Reads the minor number of an NVIDIA GPU from the kernel module's file. */
static bool nvidia_node(const char *address, char *path, size_t size) {
    char file[128];
    char *text = NULL;
    size_t length = 0;
    (void)snprintf(file, sizeof file, "/proc/driver/nvidia/gpus/%s/information", address);
    if (harpe_file_read(file, 4096, &text, &length, NULL) != HARPE_OK) return false;
    const char *found = strstr(text, "Device Minor:");
    long minor = found ? strtol(found + strlen("Device Minor:"), NULL, 10) : -1;
    free(text);
    if (minor < 0) return false;
    (void)snprintf(path, size, "/dev/nvidia%ld", minor);
    return true;
}

static bool amd_node(const char *address, char *path, size_t size) {
    char link[128];
    (void)snprintf(link, sizeof link, "/dev/dri/by-path/pci-%s-render", address);
    char *real = realpath(link, NULL);
    if (!real) return false;
    (void)snprintf(path, size, "%s", real);
    free(real);
    return true;
}

bool harpe_agent_device_node(const harpe_agent_policy *policy, const harpe_gpus *gpus, int gpu,
                             char *path, size_t size) {
    const harpe_gpu_info *info = harpe_gpu_info_at(gpus, gpu);
    char address[sizeof info->pci_bus_id];
    if (policy->device_directory[0]) {
        (void)snprintf(path, size, "%s/nvidia%d", policy->device_directory, info->driver_index);
        return true;
    }
    if (harpe_gpus_are_emulated(gpus)) return false;
    kernel_address(info->pci_bus_id, address, sizeof address);
    /* If no node is found, names a file that no process can open for writing. Then no process gets
     * the GPU. The driver's index does not name a node: the node of another GPU can have it. */
    if (!nvidia_node(address, path, size) && !amd_node(address, path, size))
        (void)snprintf(path, size, "/proc/driver/nvidia/gpus/%s/information", address);
    return true;
}

void harpe_agent_examine_node(int descriptor, harpe_agent_node_proof *out) {
    int flags = descriptor >= 0 ? fcntl(descriptor, F_GETFL) : -1;
    out->is_open = flags >= 0 && (flags & O_ACCMODE) == O_RDWR && !(flags & O_PATH) &&
                   fstat(descriptor, &out->status) == 0;
}

harpe_status harpe_agent_check_node(const char *path, const harpe_agent_node_proof *proof,
                                    harpe_error *error) {
    struct stat given = proof->status;
    struct stat node;
    if (!proof->is_open)
        return harpe_fail(error, HARPE_PERMISSION_DENIED,
                          "the request has no open descriptor of '%s', which proves that the "
                          "process may use the GPU",
                          path);
    if (stat(path, &node) != 0)
        return harpe_fail_errno(error, errno, "the GPU's device node '%s'", path);
    bool is_same = S_ISCHR(node.st_mode)
                       ? S_ISCHR(given.st_mode) && given.st_rdev == node.st_rdev
                       : given.st_dev == node.st_dev && given.st_ino == node.st_ino;
    if (is_same) return HARPE_OK;
    return harpe_fail(error, HARPE_PERMISSION_DENIED,
                      "the descriptor of the request is not that of '%s', so it does not prove "
                      "that the process may use the GPU",
                      path);
}
