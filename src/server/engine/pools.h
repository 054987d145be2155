/* SPDX-License-Identifier: Apache-2.0 */
/* The server's pools of workers. Each kind of work has its own pool, so that it does not wait for
 * another kind. */
#ifndef HARPE_SERVER_ENGINE_POOLS_H
#define HARPE_SERVER_ENGINE_POOLS_H

#include "http/workers.h"

typedef enum harpe_pool {
    HARPE_POOL_DECODE,   /* bodies of requests */
    HARPE_POOL_STORE,    /* reads from the store, and the looks of src/server/lead */
    HARPE_POOL_SCHEDULE, /* schedulers that compute little, or that wait for another program */
    HARPE_POOL_PLAN,     /* schedulers that compute plans; their threads have a lower priority */
    HARPE_POOL_DUMP,     /* files for people */
    HARPE_POOL_FLEET,    /* splits of power budgets */
    HARPE_POOL_TOKENS,   /* the file of tokens */
    HARPE_POOL_AUDIT,    /* the audit log */
    HARPE_POOL_COUNT,
} harpe_pool;

/* For harpe_workers_new. The subject of each piece of work is the id of its job, or a path. */
extern const harpe_pool_kind harpe_pools[HARPE_POOL_COUNT + 1];

#endif
