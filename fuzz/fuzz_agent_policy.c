/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of the node agent's rules with any bytes. A refused file must have an error of
 * one line, and accepted rules must be in order. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_terms(const harpe_agent_policy *policy) {
    static const harpe_gpu_info gpu = {.uuid = "GPU-0", .pci_bus_id = "00000000:07:00.0"};
    harpe_lease_terms terms = harpe_agent_policy_terms(policy, &gpu);
    require(terms.is_lease == 1 && terms.shortest_change_ns >= 0);
    require(policy->changes_per_second == 0 || terms.shortest_change_ns > 0);
    require(terms.highest_mhz == 0 || terms.lowest_mhz <= terms.highest_mhz);
    require(terms.highest_mw == 0 || terms.lowest_mw <= terms.highest_mw);
    require(terms.locks.graphics_minimum_mhz <= terms.locks.graphics_maximum_mhz);
    require(terms.locks.memory_minimum_mhz <= terms.locks.memory_maximum_mhz);
    harpe_idle_rule idle = harpe_agent_policy_idle(policy, &gpu);
    require(idle.clock_mhz <= 100000);
    require(idle.clock_mhz == 0 ||
            (idle.after_ns >= 100000000 && idle.after_ns <= INT64_C(1000000000000000)));
    gid_t groups[] = {1, 2};
    require(harpe_agent_policy_allows(policy, 0, groups, 2));
    (void)harpe_agent_policy_allows(policy, 7, groups, 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    harpe_agent_policy policy;
    harpe_error error = {0};
    harpe_status status =
        harpe_agent_policy_parse((const char *)data, size, "fuzz", &policy, &error);
    if (status != HARPE_OK) {
        require(error.status == status && error.message[0] && !strchr(error.message, '\n'));
        return 0;
    }
    check_terms(&policy);
    harpe_agent_policy_clear(&policy);
    return 0;
}
