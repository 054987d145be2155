/* SPDX-License-Identifier: Apache-2.0 */
/* Takes claims on GPUs for the power limit optimizer: one after the other, all or none. It changes
 * a GPU only to put back what a dead job has left. */
#include "powerlimit/claims.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"

#define PATIENCE_S 10.0

/* The present settings count as those that were found, unless an earlier process for the same
 * trainer has recorded other ones. */
static harpe_status look(harpe_gpus *gpus, int gpu, const harpe_found_state *earlier,
                         harpe_guarded_gpu *found, harpe_error *error) {
    if (found->is_found) return HARPE_OK;
    if (earlier->uuid[0]) {
        found->limit_mw = earlier->power_limit_mw;
        found->persistence = earlier->persistence;
    } else {
        bool is_enabled = false;
        harpe_status status = harpe_gpu_power_limit(gpus, gpu, &found->limit_mw, error);
        if (status != HARPE_OK) return status;
        bool is_known = harpe_gpu_persistence_mode(gpus, gpu, &is_enabled, NULL) == HARPE_OK;
        found->persistence = is_known ? is_enabled : -1;
    }
    found->is_found = 1;
    return HARPE_OK;
}

static harpe_status take_one(harpe_gpus *gpus, int gpu, const harpe_found_claim_options *options,
                             harpe_guarded_gpu *found, harpe_found_claim **out,
                             harpe_error *error) {
    harpe_found_claim *claim = NULL;
    harpe_found_state earlier;
    harpe_status status = harpe_found_claim_gpu(gpus, gpu, options, &claim, &earlier, error);
    if (status != HARPE_OK) return status;
    status = look(gpus, gpu, &earlier, found, error);
    if (status == HARPE_OK) {
        harpe_found_state state = {.power_limit_mw = found->limit_mw,
                                   .persistence = found->persistence};
        status = harpe_found_note(claim, &state, error);
    }
    if (status != HARPE_OK) {
        harpe_found_release(claim, !earlier.uuid[0]);
        return status;
    }
    *out = claim;
    return HARPE_OK;
}

harpe_status harpe_power_claims_take(harpe_gpus *gpus, const int *indices, harpe_guarded_gpu *found,
                                     size_t count, pid_t trainer, bool (*gives_up)(void *user),
                                     harpe_power_claims *out, harpe_error *error) {
    harpe_found_claim_options options = {.kind = HARPE_FOUND_POWER,
                                         .trainer = trainer,
                                         .patience_s = PATIENCE_S,
                                         .gives_up = gives_up};
    harpe_found_recovery recovery = {.report = harpe_found_report_to_syslog};
    harpe_power_claims claims = {.each = harpe_calloc(count, sizeof *claims.each)};
    if (!claims.each) return harpe_fail_memory(error);
    /* A failure on another GPU does not concern this job; the claim reports a failure on its own
     * GPUs. */
    (void)harpe_found_recover(gpus, &recovery, NULL);
    harpe_status status = HARPE_OK;
    while (status == HARPE_OK && claims.count < count) {
        size_t i = claims.count;
        status = take_one(gpus, indices[i], &options, &found[i], &claims.each[i], error);
        if (status == HARPE_OK) claims.count++;
    }
    if (status != HARPE_OK) {
        harpe_power_claims_release(&claims, true); /* nothing has been changed */
        return status;
    }
    *out = claims;
    return HARPE_OK;
}

void harpe_power_claims_release(harpe_power_claims *claims, bool restored) {
    for (size_t i = 0; i < claims->count; i++) {
        harpe_found_release(claims->each[i], restored);
    }
    free(claims->each);
    *claims = (harpe_power_claims){0};
}
