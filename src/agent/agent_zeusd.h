/* SPDX-License-Identifier: Apache-2.0 */
/* zeusd's routes as a part of the node agent: the rules of the agent apply to them. */
#ifndef HARPE_AGENT_AGENT_ZEUSD_H
#define HARPE_AGENT_AGENT_ZEUSD_H

#include <jansson.h>

#include <harpe/gpu.h>
#include <harpe/status.h>

#include "agent/agent.h"
#include "agent/policy.h"
#include "agent/samples.h"
#include "http/workers.h"
#include "lease/lease.h"

typedef struct harpe_agent_zeusd harpe_agent_zeusd;

typedef struct harpe_agent_zeusd_context {
    harpe_loop *loop;
    harpe_workers *workers;
    harpe_gpus *gpus;
    harpe_agent_samples *samples;
    const harpe_agent_policy *policy;
    int read_pool, write_pool, restore_pool; /* numbers of the pools */
    void (*drop)(void *user, int socket);    /* as in harpe_http_options */
    void *drop_user;
} harpe_agent_zeusd_context;

/* Starts the routes that the options name. Writes NULL if the options name none. The objects of
 * `context` must outlive the result. */
harpe_status harpe_agent_zeusd_new(const harpe_agent_options *options,
                                   const harpe_agent_zeusd_context *context,
                                   harpe_agent_zeusd **out, harpe_error *error);
/* Restores what clients of zeusd's routes hold on a GPU (-1: on all GPUs). Returns the number of
 * holders. Does not wait until the settings are restored. `zeusd` may be NULL. */
int harpe_agent_zeusd_end(harpe_agent_zeusd *zeusd, int gpu);
/* Fails with HARPE_ALREADY_EXISTS and a line that names the holder if a client of zeusd's routes
 * holds this control of the GPU. `zeusd` may be NULL. */
harpe_status harpe_agent_zeusd_check_free(harpe_agent_zeusd *zeusd, int gpu,
                                          harpe_lease_control control, harpe_error *error);
/* Lists the clients that hold settings as a JSON array. If `user` is not -1, lists only the clients
 * of this user. `zeusd` may be NULL. */
json_t *harpe_agent_zeusd_show(harpe_agent_zeusd *zeusd, int64_t user);
/* Watches a process for which an earlier agent has changed settings, and restores them when the
 * process ends. `zeusd` may be NULL. */
void harpe_agent_zeusd_recover_after(harpe_agent_zeusd *zeusd, int64_t process);
/* The agent calls these functions in this order when it ends. It calls the last two after
 * harpe_workers_close, and the last one only if harpe_workers_close returned true. NULL is allowed.
 */
void harpe_agent_zeusd_stop_accepting(harpe_agent_zeusd *zeusd);
harpe_status harpe_agent_zeusd_put_back(harpe_agent_zeusd *zeusd, harpe_error *error);
void harpe_agent_zeusd_free(harpe_agent_zeusd *zeusd);

#endif
