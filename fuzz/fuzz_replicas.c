/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of the profiles of all GPUs of a job, and the plans made from them. For any
 * bytes, the result is an error of one printable line, or profiles whose plans pass verification.
 * Only small jobs are planned. Uses no files. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/replicas.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static size_t count_points(const harpe_replica_profiles *profiles) {
    size_t count = 0;
    for (int r = 0; r < harpe_replica_profiles_replica_count(profiles); r++)
        for (int g = 0; g < harpe_replica_profiles_peer_count(profiles); g++) {
            const harpe_profile *gpu = harpe_replica_profiles_at(profiles, r, g);
            require(gpu && harpe_profile_entry_count(gpu) > 0);
            for (size_t e = 0; e < harpe_profile_entry_count(gpu); e++)
                count += harpe_profile_entry_at(gpu, e)->point_count;
        }
    return count;
}

static void plan(const harpe_replica_profiles *profiles) {
    int stages = harpe_profile_stage_count(harpe_replica_profiles_at(profiles, 0, 0));
    if (stages > 4 || count_points(profiles) > 200) return;
    harpe_schedule *schedule = NULL;
    harpe_schedule_options shape = {.ranks = stages, .microbatches = 3};
    require(harpe_schedule_new(&shape, &schedule, NULL) == HARPE_OK);
    harpe_replica_plans *plans = NULL;
    harpe_error error = {.message = ""};
    harpe_replica_request request = {.slowdown = 1.05, .threads = 1};
    harpe_status status =
        harpe_replica_plans_new(profiles, schedule, NULL, &request, NULL, &plans, &error);
    require((status == HARPE_OK) == (plans != NULL));
    if (plans) {
        harpe_replica_job job = harpe_replica_plans_job(plans);
        require(job.own.time_s <= 1.05 * job.fastest_s * (1 + 1e-9));
        require(harpe_replica_plans_verify(plans, profiles, schedule, NULL, &error) == HARPE_OK);
    } else {
        require(error.status == status && !strpbrk(error.message, "\n\r\x1B"));
    }
    harpe_replica_plans_free(plans);
    harpe_schedule_free(schedule);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    harpe_replica_profiles *profiles = NULL, *smooth = NULL;
    harpe_error error = {.message = ""};
    harpe_status status =
        harpe_replica_profiles_parse_csv((const char *)data, size, "fuzz.csv", &profiles, &error);
    if (status != HARPE_OK) {
        require(!profiles);
        require(error.status == status);
        require(strncmp(error.message, "fuzz.csv", strlen("fuzz.csv")) == 0);
        require(!strpbrk(error.message, "\n\r\x1B"));
        return 0;
    }
    plan(profiles);
    require(harpe_replica_profiles_smooth(profiles, 0.5, &smooth, &error) == HARPE_OK);
    require(harpe_replica_profiles_replica_count(smooth) ==
            harpe_replica_profiles_replica_count(profiles));
    harpe_replica_profiles_free(smooth);
    harpe_replica_profiles_free(profiles);
    return 0;
}
