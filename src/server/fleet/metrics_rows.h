/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the fleet's /metrics with a sample for each job, each event, or the prices. Also
 * appends single metrics. */
#ifndef HARPE_SERVER_FLEET_METRICS_ROWS_H
#define HARPE_SERVER_FLEET_METRICS_ROWS_H

#include "base/text.h"
#include "server/fleet/fleet_state.h"

/* Appends a metric with one sample; without a sample if the value is not finite. `currency` NULL:
 * without this label. */
void harpe_fleet_metrics_append_one(harpe_text *text, const char *name, const char *type,
                                    const char *help, const char *currency, double value);
/* Appends a gauge with one sample for each of `count` states. */
void harpe_fleet_metrics_append_states(harpe_text *text, const char *name, const char *help,
                                       const char *const *states, const double *counts,
                                       size_t count);
/* Appends the slowdown, power and marginal time of the first 1000 members with plans. */
void harpe_fleet_metrics_append_jobs(const harpe_fleet_state *state, harpe_text *text);
/* Appends how many events are in each state, and the newest 100 events that are not over. */
void harpe_fleet_metrics_append_events(const harpe_fleet_state *state, double at_s,
                                       harpe_text *text);
/* Appends the price, energy, cost and carbon dioxide. */
void harpe_fleet_metrics_append_energy(const harpe_fleet_state *state, double at_s,
                                       harpe_text *text);

#endif
