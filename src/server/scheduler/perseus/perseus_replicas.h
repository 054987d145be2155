/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of their own for data parallel replicas whose GPUs differ. An iteration of the job ends
 * when the slowest replica is ready, so the plans of the others take its time. As long as no
 * difference is significant, all replicas run the shared plan and this code changes nothing. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_REPLICAS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_REPLICAS_H

#include <jansson.h>

#include "server/scheduler/perseus/online_round.h"
#include "server/scheduler/perseus/perseus_job.h"

/* Makes the replicas of a job with several, for the present pipeline and sweep. */
harpe_status harpe_perseus_replicas_new(harpe_perseus *self, harpe_error *error);
void harpe_perseus_replicas_free(harpe_perseus_replicas *own);

/* Chooses the plans of the round that begins. `shared_mhz` are the clocks of the shared plan; NULL:
 * all replicas run the same clocks in this round. */
harpe_status harpe_perseus_replicas_begin_round(harpe_perseus *self, const int *shared_mhz,
                                                harpe_error *error);
/* Returns the clocks of a replica in this round, or NULL if it runs those of all. */
const int *harpe_perseus_replicas_clocks(const harpe_perseus *self, int replica);
/* Returns for each instruction the lowest clock of any replica in this round, or NULL if all run
 * the same clocks. */
const int *harpe_perseus_replicas_lowest(const harpe_perseus *self);
/* Returns the time and energy of an iteration with the plans of this round minus those with the
 * shared plan. */
harpe_online_mean harpe_perseus_replicas_gain(const harpe_perseus *self);

/* Learns from the results of a round. `frequency_mhz` are the clocks that all replicas ran, unless
 * they had clocks of their own. In that case the entries of `round` are replaced by what the
 * replicas would have measured at the clocks of the shared plan. */
harpe_status harpe_perseus_replicas_observe(harpe_perseus *self, const int *frequency_mhz,
                                            const harpe_profiling_result *results, size_t count,
                                            harpe_online_round *round, harpe_error *error);
/* Makes or drops plans after a round, if the replicas have changed or there are new shared plans.
 * Failures are logged; all replicas run the shared plan then. */
void harpe_perseus_replicas_plan(harpe_perseus *self);

json_t *harpe_perseus_replicas_save(const harpe_perseus *self);
/* Returns false if the data does not fit the job. Call it when there are plans again. */
bool harpe_perseus_replicas_load(harpe_perseus *self, const json_t *json);
/* Shows the replicas as a part of the frontier. */
json_t *harpe_perseus_replicas_show(const harpe_perseus *self);

#endif
