/* SPDX-License-Identifier: Apache-2.0 */
/* The names in the file of a fleet. */
#ifndef HARPE_FLEET_FLEET_NAMES_H
#define HARPE_FLEET_FLEET_NAMES_H

#include "fleet/fleet_file.h"

/* Moves the groups that were read from "budgets" to the file, which has group 0 and room for
 * `count` more. Sets the groups of jobs and events. Fails if a name occurs twice or is not known,
 * or if an event lowers a budget that does not exist. `name` begins the error. Changes `read`. */
harpe_status harpe_fleet_file_link(harpe_fleet_file *file, const char *name,
                                   harpe_fleet_file_group *read, size_t count, harpe_error *error);

#endif
