/* SPDX-License-Identifier: Apache-2.0 */
/* Stands between the routes and the engine and decides where a call is handled. A server that is
 * alone with its store passes every call to its engine. Of several servers on one PostgreSQL
 * database, one server leads. The leader has the engine, with all jobs. The other servers send
 * their clients' calls to the leader in messages, and pass the leader's answers to their clients.
 * When the leader is lost, another server loads the jobs from the store and continues as after a
 * restart. The remaining servers send the calls that were not answered to this new leader, so their
 * clients do not notice the change.
 *
 * There is one leader for all jobs and not an owner for each job, because a single server can serve
 * more ranks than one site has GPUs. The other servers exist for the case that a server is lost. So
 * job ids, lists, limits and eviction work as with one server. Connections, HTTP and TLS are spread
 * over all servers. */
#ifndef HARPE_SERVER_CLUSTER_PEERS_H
#define HARPE_SERVER_CLUSTER_PEERS_H

#include "server/engine/jobs.h"
#include "server/fleet/steering.h"

typedef struct harpe_peers harpe_peers;

/* Makes the peers. If the store belongs to this server alone, loads every job and blocks meanwhile.
 * Pointers in `engine` must stay valid until harpe_peers_free. */
harpe_status harpe_peers_new(const harpe_jobs_options *engine, harpe_peers **out,
                             harpe_error *error);
/* Frees the peers. The order at the end is harpe_peers_stop, harpe_workers_free, harpe_store_close,
 * harpe_peers_free. */
void harpe_peers_free(harpe_peers *peers);

/* These work like harpe_jobs_handle, harpe_jobs_forget and harpe_jobs_delivered. `round` is the
 * round of the schedule with which this server, or the leader, has answered `call`. */
void harpe_peers_handle(harpe_peers *peers, harpe_call *call);
void harpe_peers_forget(harpe_peers *peers, harpe_call *call);
void harpe_peers_delivered(harpe_peers *peers, const harpe_call *call, int64_t round,
                           bool has_arrived);

/* These work like harpe_jobs_stop and harpe_jobs_are_idle. */
void harpe_peers_stop(harpe_peers *peers);
bool harpe_peers_are_idle(const harpe_peers *peers);

/* Returns one line that says why no calls are answered now: no server leads, or this server has
 * lost the database. Returns NULL if calls are answered. This is always so if the store belongs to
 * this server alone. */
const char *harpe_peers_fault(const harpe_peers *peers);

/* Returns the engine's jobs, or NULL while this server does not lead. */
const harpe_jobs *harpe_peers_jobs(const harpe_peers *peers);
/* Returns the fleet of these jobs, or NULL while this server does not lead. */
const harpe_steering *harpe_peers_steering(const harpe_peers *peers);

#endif
