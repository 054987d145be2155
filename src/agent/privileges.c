/* SPDX-License-Identifier: Apache-2.0 */
/* Gives up the privileges that the agent and its helper processes do not need, whatever has started
 * the agent. It makes the system calls itself, because libcap would be one more library in a
 * process of root. SECURITY.md gives the reason for what is kept. */
#include "agent/privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

/* NVIDIA's driver lets a process change clocks and power limits if it has this capability. */
#define KEPT (UINT64_C(1) << CAP_SYS_ADMIN)

typedef struct __user_cap_data_struct capability_words[_LINUX_CAPABILITY_U32S_3];

static bool is_kept(int capability) { return (KEPT >> capability) & 1; }

static uint64_t joined(uint32_t low, uint32_t high) { return low | (uint64_t)high << 32; }

/* Takes the capabilities that are not kept out of the bounding set, so that a program that root
 * starts does not get them back, and out of the ambient set. A process without CAP_SETPCAP cannot
 * change its bounding set. Then PR_SET_NO_NEW_PRIVS alone has this effect. */
static void limit_programs(void) {
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++) {
        if (is_kept(capability)) continue;
        (void)prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
        (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_LOWER, capability, 0, 0);
    }
}

harpe_status harpe_privileges_drop(uint64_t *before, harpe_error *error) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    capability_words words;
    if (syscall(SYS_capget, &header, words) != 0)
        return harpe_fail_errno(error, errno, "reading the agent's capabilities");
    uint64_t effective = joined(words[0].effective, words[1].effective);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return harpe_fail_errno(error, errno, "giving up new privileges");
    limit_programs();
    for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
        uint32_t kept = (uint32_t)(KEPT >> (32 * i));
        words[i].effective &= kept;
        words[i].permitted &= kept;
        words[i].inheritable &= kept;
    }
    if (syscall(SYS_capset, &header, words) != 0)
        return harpe_fail_errno(error, errno, "giving up capabilities");
    *before = effective;
    return HARPE_OK;
}
