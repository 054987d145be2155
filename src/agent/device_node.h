/* SPDX-License-Identifier: Apache-2.0 */
/* The device node of a GPU, with which a process proves that it may use the GPU. */
#ifndef HARPE_AGENT_DEVICE_NODE_H
#define HARPE_AGENT_DEVICE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include <harpe/gpu.h>
#include <harpe/status.h>

#include "agent/policy.h"

/* Writes the path of the GPU's device node. Returns false if the GPU is emulated and has no device
 * node. Then no proof is needed. */
bool harpe_agent_device_node(const harpe_agent_policy *policy, const harpe_gpus *gpus, int gpu,
                             char *path, size_t size);
/* What is known of a descriptor that a client has sent. */
typedef struct harpe_agent_node_proof {
    bool is_open; /* for reading and writing */
    struct stat status;
} harpe_agent_node_proof;

/* Examines a descriptor; -1: there is none. This may take long, because the descriptor can be of a
 * file system that the client itself serves. */
void harpe_agent_examine_node(int descriptor, harpe_agent_node_proof *out);
/* Checks that the examined descriptor is of the device node at `path`, and is open for reading and
 * writing. Fails with HARPE_PERMISSION_DENIED otherwise. */
harpe_status harpe_agent_check_node(const char *path, const harpe_agent_node_proof *proof,
                                    harpe_error *error);

#endif
