/* SPDX-License-Identifier: Apache-2.0 */
/* Stands between the routes and the engine and decides where a call is handled. A server that is
 * alone with its store hands every call on. Of several servers on one PostgreSQL one leads: it has
 * the engine, with all jobs; the others send it their clients' calls by mail and pass its answers
 * on. When it is lost, another one loads the jobs from the store, goes on as after a restart, and
 * is asked anew for whatever has not been answered: clients of the others do not notice.
 *
 * One leader rather than an owner for each job: a single server carries more ranks than there are
 * GPUs in one place, so what several are for is that one may be lost; and so ids of jobs, lists,
 * limits and eviction are as with one server. What is spread is connections, HTTP and TLS. */
#ifndef HARPE_SERVER_PEERS_H
#define HARPE_SERVER_PEERS_H

#include "server/jobs.h"

typedef struct harpe_peers harpe_peers;

/* Where the store is this server's alone, loads every job, and blocks meanwhile. Pointers in
 * `engine` stay valid until free. */
harpe_status harpe_peers_new(const harpe_jobs_options *engine, harpe_peers **out,
                             harpe_error *error);
/* The order at the end: harpe_peers_stop, harpe_workers_free, harpe_store_close, then this. */
void harpe_peers_free(harpe_peers *peers);

/* As harpe_jobs_handle, _forget and _delivered. `call` was answered, with `round`, by whichever
 * server. */
void harpe_peers_handle(harpe_peers *peers, harpe_call *call);
void harpe_peers_forget(harpe_peers *peers, harpe_call *call);
void harpe_peers_delivered(harpe_peers *peers, const harpe_call *call, int64_t round,
                           bool has_arrived);

/* As harpe_jobs_stop and harpe_jobs_are_idle. */
void harpe_peers_stop(harpe_peers *peers);
bool harpe_peers_are_idle(const harpe_peers *peers);

/* What keeps calls from being answered just now, as one line: no server leads, or this one has lost
 * the database. NULL: nothing; always where the store is this server's alone. */
const char *harpe_peers_fault(const harpe_peers *peers);

/* NULL while another server leads. */
const harpe_jobs *harpe_peers_jobs(const harpe_peers *peers);

#endif
