/* SPDX-License-Identifier: Apache-2.0 */
/* What the actions of `harpe fleet` share. */
#ifndef HARPE_CLI_FLEET_FLEET_COMMANDS_H
#define HARPE_CLI_FLEET_FLEET_COMMANDS_H

#include <jansson.h>
#include <stdbool.h>

#include <harpe/status.h>

#include "fleet/fleet_file.h"

/* Exit status for budgets that cannot hold, and for an event that cannot be met. */
#define HARPE_FLEET_EXIT_INFEASIBLE 3

typedef struct harpe_fleet_arguments {
    const char *path, *prices_path, *output_path;
    double at_s;
    bool json, force;
} harpe_fleet_arguments;

/* Run `harpe fleet solve` and `harpe fleet simulate`. `*exit_code` is set on success. */
harpe_status harpe_fleet_solve_action(const harpe_fleet_arguments *arguments,
                                      const harpe_fleet_file *file, int *exit_code,
                                      harpe_error *error);
harpe_status harpe_fleet_simulate_action(const harpe_fleet_arguments *arguments,
                                         const harpe_fleet_file *file, int *exit_code,
                                         harpe_error *error);

#endif
