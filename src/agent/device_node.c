/* SPDX-License-Identifier: Apache-2.0 */
/* The device node of a GPU. A process may use the GPU if it can open the node for reading and
 * writing. The node's file permissions, and the process's mount namespace and device cgroup,
 * decide whether it can. */
#include "agent/device_node.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

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
