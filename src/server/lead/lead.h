/* SPDX-License-Identifier: Apache-2.0 */
/* Stands between the routes and the engine, and decides whether this server handles a call. A
 * server that is alone with its store passes every call to its engine. Of several servers on one
 * PostgreSQL database, one server leads: it has the engine, with all jobs. The others stand by.
 * They answer 503 and say which server leads. When the leader is lost, another server loads the
 * jobs from the store and continues as after a restart. While no server leads, calls wait for up to
 * 30 s. All functions belong to the loop's thread. */
#ifndef HARPE_SERVER_LEAD_LEAD_H
#define HARPE_SERVER_LEAD_LEAD_H

#include "server/engine/engine.h"
#include "server/fleet/steering.h"

typedef struct harpe_lead harpe_lead;

/* If the store belongs to this server alone, loads every job and blocks meanwhile. Pointers in
 * `engine` must stay valid until harpe_lead_free. */
harpe_status harpe_lead_new(const harpe_jobs_options *engine, harpe_lead **out, harpe_error *error);
/* Sets the address that other servers tell their clients while this server leads. Call it before
 * the loop runs. `listen` is the address that this server listens on; if it stands for all
 * addresses, the name of this machine takes its place. */
void harpe_lead_set_address(harpe_lead *lead, const char *listen, int port);
/* The order at the end is harpe_lead_stop, harpe_workers_free, harpe_store_close, harpe_lead_free.
 */
void harpe_lead_free(harpe_lead *lead);

/* These work like harpe_jobs_handle, harpe_jobs_forget and harpe_jobs_delivered. */
void harpe_lead_handle(harpe_lead *lead, harpe_call *call);
void harpe_lead_forget(harpe_lead *lead, harpe_call *call);
void harpe_lead_delivered(harpe_lead *lead, const harpe_call *call, int64_t round,
                          bool has_arrived);

/* These work like harpe_jobs_stop and harpe_jobs_are_idle. */
void harpe_lead_stop(harpe_lead *lead);
bool harpe_lead_is_idle(const harpe_lead *lead);

/* Returns one line that says why no server can lead: the database does not answer, or no server has
 * led for a while. Returns NULL if a server leads or is about to. */
const char *harpe_lead_fault(const harpe_lead *lead);
/* Returns one line that says which other server leads; NULL: this server leads, or none does. Valid
 * until the loop goes on. */
const char *harpe_lead_elsewhere(const harpe_lead *lead);

/* Return the engine's jobs, and the fleet of these jobs; NULL while this server does not lead. */
const harpe_jobs *harpe_lead_jobs(const harpe_lead *lead);
const harpe_steering *harpe_lead_steering(const harpe_lead *lead);

#endif
