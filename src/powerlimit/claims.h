/* SPDX-License-Identifier: Apache-2.0 */
/* Claims on the GPUs whose power limits are to be changed, with what was found on each
 * (gpu/found.h). Held by the guard, or by the trainer where there is none. Private to
 * src/powerlimit. */
#ifndef HARPE_POWERLIMIT_CLAIMS_H
#define HARPE_POWERLIMIT_CLAIMS_H

#include <sys/types.h>

#include "gpu/found.h"
#include "powerlimit/guard.h"

typedef struct harpe_power_claims {
    harpe_found_claim **each;
    size_t count;
} harpe_power_claims;

/* Claims the GPUs with these indices for the trainer. Puts back what dead jobs have left, then
 * reads what is there into each of `found` that is not found yet, and notes it. `gives_up` may be
 * NULL. On failure nothing is claimed. */
harpe_status harpe_power_claims_take(harpe_gpus *gpus, const int *indices, harpe_guarded_gpu *found,
                                     size_t count, pid_t trainer, bool (*gives_up)(void *user),
                                     harpe_power_claims *out, harpe_error *error);
/* `restored`: the GPUs are as they were found. */
void harpe_power_claims_release(harpe_power_claims *claims, bool restored);

#endif
