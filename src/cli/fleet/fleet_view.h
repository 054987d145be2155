/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the server's answers about its fleet as tables for people. */
#ifndef HARPE_CLI_FLEET_FLEET_VIEW_H
#define HARPE_CLI_FLEET_FLEET_VIEW_H

#include <jansson.h>

/* These print parts of the answer to GET /fleet. `columns`: the width of the terminal; 0: not
 * limited. */
void harpe_fleet_print_status(const json_t *fleet, int columns);
void harpe_fleet_print_budgets(const json_t *fleet);
void harpe_fleet_print_groups(const json_t *fleet);
void harpe_fleet_print_jobs(const json_t *fleet, int columns);
void harpe_fleet_print_events(const json_t *fleet);
void harpe_fleet_print_prices(const json_t *fleet);
/* Prints the answer to POST /fleet/events. */
void harpe_fleet_print_promise(const json_t *answer);
/* Prints the answer to GET /fleet/audit. */
void harpe_fleet_print_audit(const json_t *records);
/* Prints what is missing for a budget, if something is. */
void harpe_fleet_print_missing(const json_t *answer);

#endif
