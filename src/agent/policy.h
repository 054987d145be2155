/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the node agent: who may change GPUs, and within which limits. They come from a file
 * of lines "name = value"; docs/agent.md lists them. */
#ifndef HARPE_AGENT_POLICY_H
#define HARPE_AGENT_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/gpu.h>
#include <harpe/status.h>

#include "lease/lease.h"

#define HARPE_AGENT_CONFIG_PATH "/etc/harpe/agent.conf"

enum { HARPE_AGENT_DIRECTORY_SIZE = 256 };

/* Locks of the administrator for one GPU. */
typedef struct harpe_agent_lock_rule {
    char gpu[96]; /* UUID, PCI address or "all" */
    harpe_default_locks locks;
} harpe_agent_lock_rule;

/* A limit of 0 means that there is no limit. */
typedef struct harpe_agent_policy {
    bool allows_everybody;
    uid_t *users;
    size_t user_count, user_capacity;
    gid_t *groups;
    size_t group_count, group_capacity;
    /* Users who may change GPUs through zeusd's routes. Clients of these routes do not prove that
     * they may use a GPU. */
    bool zeusd_allows_everybody;
    uid_t *zeusd_users;
    size_t zeusd_user_count, zeusd_user_capacity;
    bool shows_others; /* everybody may read the leases of other users */
    uint32_t lowest_clock_mhz, highest_clock_mhz;
    uint32_t lowest_power_limit_w, highest_power_limit_w;
    double changes_per_second; /* for each lease; 0: no limit */
    double leases_per_second;  /* for each user, after a burst of four times as many; 0: no limit */
    char device_directory[HARPE_AGENT_DIRECTORY_SIZE]; /* "": the driver's device nodes */
    harpe_agent_lock_rule *locks;
    size_t lock_count, lock_capacity;
} harpe_agent_policy;

/* Reads the rules. `path` NULL: HARPE_AGENT_CONFIG_PATH if there is such a file, or else the
 * defaults, which allow only root and this process's user. Fails with HARPE_INVALID_INPUT and a
 * line that names the file, the line's number and the fault. */
harpe_status harpe_agent_policy_read(const char *path, harpe_agent_policy *out, harpe_error *error);
/* Reads the rules from `length` bytes of text. `name` is the file's name in messages. */
harpe_status harpe_agent_policy_parse(const char *text, size_t length, const char *name,
                                      harpe_agent_policy *out, harpe_error *error);
void harpe_agent_policy_clear(harpe_agent_policy *policy);

/* Returns true if a name in the rules ("all", a UUID or a PCI address) means the GPU. The domain of
 * a PCI address may have four or eight digits. */
bool harpe_agent_policy_names_gpu(const char *name, const harpe_gpu_info *gpu);

/* Returns true if the rules allow a process with this user and these groups. Root and this
 * process's user are always allowed. */
bool harpe_agent_policy_allows(const harpe_agent_policy *policy, uid_t user, const gid_t *groups,
                               size_t group_count);

/* Returns true if the rules allow a user to change GPUs through zeusd's routes. */
bool harpe_agent_policy_allows_zeusd(const harpe_agent_policy *policy, uid_t user);

/* Returns the terms of a lease of the GPU. */
harpe_lease_terms harpe_agent_policy_terms(const harpe_agent_policy *policy,
                                           const harpe_gpu_info *gpu);

#endif
