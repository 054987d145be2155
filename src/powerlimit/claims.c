/* SPDX-License-Identifier: Apache-2.0 */
/* Takes claims on GPUs for the power limit optimizer, one after the other. It takes all claims or
 * none. It changes a GPU only to restore settings that a dead job has left changed. */
#include "powerlimit/claims.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"

#define TIMEOUT_S 10.0

/* Returns the power limit that a frequency controller has found and will restore. Returns 0 if no
 * controller has changed the GPU's power limit. */
static uint32_t limit_beneath(const harpe_gpus *gpus, int gpu) {
    harpe_saved_settings found;
    return harpe_saved_settings_find(gpus, gpu, HARPE_SAVED_CLOCKS, &found, NULL)
               ? found.power_limit_mw
               : 0;
}

/* Reads the limit to restore. Reads it again if a controller has come or gone meanwhile. */
static harpe_status look_at_limit(harpe_gpus *gpus, int gpu, harpe_guarded_gpu *saved,
                                  harpe_error *error) {
    uint32_t before_mw;
    uint32_t limit_mw = 0;
    uint32_t after_mw = limit_beneath(gpus, gpu);
    do {
        before_mw = after_mw;
        harpe_status status = harpe_gpu_power_limit(gpus, gpu, &limit_mw, error);
        if (status != HARPE_OK) return status;
        after_mw = limit_beneath(gpus, gpu);
    } while (after_mw != before_mw);
    saved->limit_mw = after_mw > 0 ? after_mw : limit_mw;
    saved->controlled_mw = after_mw > 0 ? limit_mw : 0;
    return HARPE_OK;
}

/* Reads the settings to restore later. These are the present settings, unless an earlier process
 * for the same trainer or a frequency controller has recorded others. */
static harpe_status look(harpe_gpus *gpus, int gpu, const harpe_saved_settings *earlier,
                         harpe_guarded_gpu *saved, harpe_error *error) {
    if (saved->is_saved) return HARPE_OK;
    if (earlier->uuid[0]) {
        saved->limit_mw = earlier->power_limit_mw;
        saved->persistence = earlier->persistence;
        saved->controlled_mw = 0;
        if (limit_beneath(gpus, gpu) > 0)
            (void)harpe_gpu_default_power_limit(gpus, gpu, &saved->controlled_mw, NULL);
    } else {
        bool is_enabled = false;
        harpe_status status = look_at_limit(gpus, gpu, saved, error);
        if (status != HARPE_OK) return status;
        bool is_known = harpe_gpu_persistence_mode(gpus, gpu, &is_enabled, NULL) == HARPE_OK;
        saved->persistence = is_known ? is_enabled : -1;
    }
    saved->is_saved = 1;
    return HARPE_OK;
}

static harpe_status take_one(harpe_gpus *gpus, int gpu, const harpe_gpu_claim_options *options,
                             harpe_guarded_gpu *saved, harpe_power_claim *out, harpe_error *error) {
    harpe_gpu_claim *claim = NULL;
    harpe_saved_settings earlier;
    harpe_status status = harpe_gpu_claim_take(gpus, gpu, options, &claim, &earlier, error);
    if (status != HARPE_OK) return status;
    status = look(gpus, gpu, &earlier, saved, error);
    if (status == HARPE_OK) {
        harpe_saved_settings state = {.power_limit_mw = saved->limit_mw,
                                      .persistence = saved->persistence};
        status = harpe_gpu_claim_save(claim, &state, error);
    }
    if (status != HARPE_OK) {
        harpe_gpu_claim_release(claim, !earlier.uuid[0]);
        return status;
    }
    *out = (harpe_power_claim){.claim = claim, .is_continued = earlier.uuid[0] != '\0'};
    return HARPE_OK;
}

/* Releases everything. This process has changed no GPU, so the function removes only the records of
 * this process. */
static void give_up(harpe_power_claims *claims) {
    for (size_t i = 0; i < claims->count; i++)
        harpe_power_claims_release_one(claims, i, !claims->each[i].is_continued);
    harpe_power_claims_release(claims, false);
}

harpe_status harpe_power_claims_take(harpe_gpus *gpus, const int *indices, harpe_guarded_gpu *saved,
                                     size_t count, pid_t trainer, bool (*gives_up)(void *user),
                                     harpe_power_claims *out, harpe_error *error) {
    harpe_gpu_claim_options options = {.kind = HARPE_SAVED_POWER,
                                       .trainer = trainer,
                                       .timeout_s = TIMEOUT_S,
                                       .gives_up = gives_up};
    harpe_saved_settings_recovery recovery = {.report = harpe_saved_settings_report_to_syslog};
    harpe_power_claims claims = {.each = harpe_calloc(count, sizeof *claims.each)};
    if (!claims.each) return harpe_fail_memory(error);
    /* A failure on a GPU of another job does not matter here; the claim reports failures on the
     * job's own GPUs. */
    (void)harpe_saved_settings_recover(gpus, &recovery, NULL);
    harpe_status status = HARPE_OK;
    while (status == HARPE_OK && claims.count < count) {
        size_t i = claims.count;
        status = take_one(gpus, indices[i], &options, &saved[i], &claims.each[i], error);
        if (status == HARPE_OK) claims.count++;
    }
    if (status != HARPE_OK) {
        give_up(&claims);
        return status;
    }
    *out = claims;
    return HARPE_OK;
}

void harpe_power_claims_release_one(harpe_power_claims *claims, size_t i, bool restored) {
    harpe_gpu_claim_release(claims->each[i].claim, restored);
    claims->each[i].claim = NULL;
}

void harpe_power_claims_release(harpe_power_claims *claims, bool restored) {
    for (size_t i = 0; i < claims->count; i++)
        harpe_power_claims_release_one(claims, i, restored);
    free(claims->each);
    *claims = (harpe_power_claims){0};
}
