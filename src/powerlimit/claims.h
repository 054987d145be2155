/* SPDX-License-Identifier: Apache-2.0 */
/* Claims on the GPUs whose power limits will change, with the saved settings of each
 * (gpu/saved_settings.h). The guard holds the claims. If there is no guard, the trainer holds them.
 * Private to src/powerlimit. */
#ifndef HARPE_POWERLIMIT_CLAIMS_H
#define HARPE_POWERLIMIT_CLAIMS_H

#include <sys/types.h>

#include "gpu/saved_settings.h"
#include "powerlimit/guard.h"

typedef struct harpe_power_claim {
    harpe_gpu_claim *claim; /* NULL: released */
    bool is_continued;      /* an earlier process for the same trainer has recorded settings */
} harpe_power_claim;

typedef struct harpe_power_claims {
    harpe_power_claim *each;
    size_t count;
} harpe_power_claims;

/* Claims the GPUs with these indices for the trainer. First restores settings that dead jobs have
 * left changed. Then reads the settings into each of `saved` that has none yet, and records them.
 * `gives_up` may be NULL. After a failure nothing is claimed. */
harpe_status harpe_power_claims_take(harpe_gpus *gpus, const int *indices, harpe_guarded_gpu *saved,
                                     size_t count, pid_t trainer, bool (*gives_up)(void *user),
                                     harpe_power_claims *out, harpe_error *error);
/* Releases the claim on the i-th GPU of `saved`. `restored` is true if the GPU has its saved
 * settings again. */
void harpe_power_claims_release_one(harpe_power_claims *claims, size_t i, bool restored);
/* Releases the remaining claims. `restored` is true if these GPUs have their saved settings
 * again. */
void harpe_power_claims_release(harpe_power_claims *claims, bool restored);

#endif
