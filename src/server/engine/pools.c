/* SPDX-License-Identifier: Apache-2.0 */
/* Names and priorities of the server's pools of workers. */
#include "server/engine/pools.h"

enum { PLAN_NICENESS = 10 /* the loop and short answers have priority over plans */ };

const harpe_pool_kind harpe_pools[HARPE_POOL_COUNT + 1] = {
    [HARPE_POOL_DECODE] = {"decoding", "job", 0},
    [HARPE_POOL_STORE] = {"reading the store", "job", 0},
    [HARPE_POOL_SCHEDULE] = {"scheduler", "job", 0},
    [HARPE_POOL_PLAN] = {"planning", "job", PLAN_NICENESS},
    [HARPE_POOL_DUMP] = {"dump", "job", 0},
    [HARPE_POOL_FLEET] = {"splitting power budgets", "job", 0},
    [HARPE_POOL_TOKENS] = {"reading the tokens", "file", 0},
    [HARPE_POOL_AUDIT] = {"audit log", "file", 0},
};
