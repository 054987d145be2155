/* SPDX-License-Identifier: Apache-2.0 */
/* Gives each data parallel replica a plan of its own if the GPUs of the replicas differ. An
 * iteration of the job ends when the slowest replica is ready, so the plans of the faster replicas
 * may take as long. While no difference is significant, all replicas run the shared plan. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_REPLICAS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_REPLICAS_H

#include <jansson.h>

#include "server/scheduler/perseus/online_round.h"
#include "server/scheduler/perseus/perseus_job.h"

/* Replaces `self->replicas` by new ones for the present pipeline and sweep. They are NULL if the
 * job makes no plans, or has one replica or too many. */
harpe_status harpe_perseus_replicas_new(harpe_perseus *self, harpe_error *error);
void harpe_perseus_replicas_free(harpe_perseus_replicas *own);

/* Chooses the plans of the round that begins. `shared_mhz` are the clocks of the shared plan; NULL:
 * all replicas run the same clocks in this round. */
harpe_status harpe_perseus_replicas_begin_round(harpe_perseus *self, const int *shared_mhz,
                                                harpe_error *error);
/* Returns the clocks of a replica in this round, one for each instruction. Returns NULL if the
 * replica runs the clocks of the shared plan. */
const int *harpe_perseus_replicas_clocks(const harpe_perseus *self, int replica);
/* Returns the lowest clock of each instruction over all replicas in this round. Returns NULL if all
 * replicas run the same clocks. */
const int *harpe_perseus_replicas_lowest(const harpe_perseus *self);
/* Compares the plans of this round with the shared plan. Returns the differences of an iteration's
 * time (in s) and energy (in J): those with the plans of this round, minus those with the shared
 * plan on all replicas. */
harpe_online_mean harpe_perseus_replicas_gain(const harpe_perseus *self);

/* Learns from the results of a round. `frequency_mhz` has the clocks of the shared plan. If
 * replicas ran clocks of their own, this function replaces the entries of `round` by the times and
 * energies that it expects at the clocks of the shared plan. */
harpe_status harpe_perseus_replicas_observe(harpe_perseus *self, const int *frequency_mhz,
                                            harpe_online_round *round, harpe_error *error);
/* Call it after each round. If the replicas differ, it makes plans for each of them, unless the
 * present ones still fit. If the replicas no longer differ, it removes these plans. If it cannot
 * make plans, it logs the reason once, all replicas run the shared plan, and the next call tries
 * again. */
void harpe_perseus_replicas_plan(harpe_perseus *self);

json_t *harpe_perseus_replicas_save(const harpe_perseus *self);
/* Reads what harpe_perseus_replicas_save wrote. Returns false if the data does not fit the job.
 * After a restart, call it when the shared plans exist again. */
bool harpe_perseus_replicas_load(harpe_perseus *self, const json_t *json);
/* Returns the replicas as a member of the frontier's JSON. */
json_t *harpe_perseus_replicas_show(const harpe_perseus *self);

#endif
