/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the rules of the node agent with the machine: finds rules that cannot work here. Several
 * machines can share one file of rules, so most of these rules are reported and not refused. */
#include "agent/policy_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/policy.h"
#include "base/error.h"
#include "base/log.h"
#include "gpu/gpus.h"

typedef struct range {
    uint32_t lowest, highest;
} range;

/* Reports rules that lie outside of what a GPU offers. `what` is the end of the rules' names. */
static void check_range(const harpe_gpu_info *gpu, const char *what, const char *unit, range rules,
                        range offered, const harpe_log *log) {
    if (rules.highest > 0 && rules.highest < offered.lowest)
        harpe_log_line(log, HARPE_LOG_WARNING,
                       "GPU %d: the rule highest_%s is %u, but the lowest that the GPU offers is "
                       "%u %s",
                       gpu->driver_index, what, rules.highest, offered.lowest, unit);
    if (rules.lowest > offered.highest)
        harpe_log_line(log, HARPE_LOG_WARNING,
                       "GPU %d: the rule lowest_%s is %u, but the highest that the GPU offers is "
                       "%u %s",
                       gpu->driver_index, what, rules.lowest, offered.highest, unit);
}

static void check_gpu(const harpe_agent_policy *policy, harpe_gpus *gpus, int gpu,
                      const harpe_log *log) {
    const harpe_gpu_info *info = harpe_gpu_info_at(gpus, gpu);
    uint32_t memory_mhz = 0;
    uint32_t *clocks = NULL;
    size_t count = 0;
    range limit_mw = {0, 0};
    if (harpe_gpus_full_speed_clocks(gpus, gpu, &memory_mhz, &clocks, &count, NULL) == HARPE_OK)
        check_range(info, "clock_mhz", "MHz",
                    (range){policy->lowest_clock_mhz, policy->highest_clock_mhz},
                    (range){clocks[count - 1], clocks[0]}, log);
    free(clocks);
    if (harpe_gpu_power_limit_range(gpus, gpu, &limit_mw.lowest, &limit_mw.highest, NULL) ==
        HARPE_OK)
        check_range(info, "power_limit_w", "W",
                    (range){policy->lowest_power_limit_w, policy->highest_power_limit_w},
                    (range){limit_mw.lowest / 1000, limit_mw.highest / 1000}, log);
}

static bool is_there(const char *name, const harpe_gpus *gpus) {
    for (int gpu = 0; gpu < harpe_gpus_count(gpus); gpu++)
        if (harpe_agent_policy_names_gpu(name, harpe_gpu_info_at(gpus, gpu))) return true;
    return false;
}

harpe_status harpe_agent_policy_check(const harpe_agent_policy *policy, harpe_gpus *gpus,
                                      const harpe_log *log, harpe_error *error) {
    struct stat status;
    const char *directory = policy->device_directory;
    if (*directory && (stat(directory, &status) != 0 || !S_ISDIR(status.st_mode)))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "the rule device_directory names '%s', which is not a directory",
                          directory);
    for (size_t i = 0; i < policy->lock_count; i++)
        if (!is_there(policy->locks[i].gpu, gpus))
            harpe_log_line(log, HARPE_LOG_WARNING,
                           "the rules give a default lock to GPU '%s', which this machine does not "
                           "have",
                           policy->locks[i].gpu);
    for (int gpu = 0; gpu < harpe_gpus_count(gpus); gpu++)
        check_gpu(policy, gpus, gpu, log);
    return HARPE_OK;
}
