/* SPDX-License-Identifier: Apache-2.0 */
/* The terms of a lease: the limits within which the holder may set the GPU, and the clock locks
 * that the GPU gets at the end. The node agent passes them to the helper process of the lease. */
#ifndef HARPE_LEASE_LEASE_TERMS_H
#define HARPE_LEASE_LEASE_TERMS_H

#include <stdint.h>

#include "gpu/saved_settings_state.h"

/* A limit of 0 means that there is no limit. */
typedef struct harpe_lease_terms {
    uint32_t is_lease; /* 0: no lease, and no other member is used */
    uint32_t lowest_mhz, highest_mhz;
    uint32_t lowest_mw, highest_mw;
    int64_t shortest_change_ns; /* shortest real time between two changes */
    harpe_default_locks locks;
} harpe_lease_terms;

#endif
