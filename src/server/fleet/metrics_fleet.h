/* SPDX-License-Identifier: Apache-2.0 */
/* The fleet in Prometheus' text format. */
#ifndef HARPE_SERVER_FLEET_METRICS_FLEET_H
#define HARPE_SERVER_FLEET_METRICS_FLEET_H

#include "base/text.h"
#include "server/fleet/fleet_state.h"

/* Appends nothing if no budget, event or price is set. */
void harpe_fleet_metrics(const harpe_fleet_state *state, harpe_fleet_now now, harpe_text *text);

#endif
