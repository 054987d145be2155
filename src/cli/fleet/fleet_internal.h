/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `harpe fleet` share. */
#ifndef HARPE_CLI_FLEET_FLEET_INTERNAL_H
#define HARPE_CLI_FLEET_FLEET_INTERNAL_H

#include <jansson.h>

/* Exit status for budgets that cannot hold, and for an event that cannot be met. */
#define HARPE_FLEET_EXIT_INFEASIBLE 3

/* The actions on a server, which have words and options of their own: status, budget, group, job,
 * load, member, event, prices, audit. Gets argv[0] = "harpe fleet ACTION"; returns the exit code.
 */
int harpe_fleet_server_command(int argc, char **argv);

/* Prints a server's answer for people. `noun` and `method`: of the action and its request. */
void harpe_fleet_print_answer(const char *noun, const char *method, const json_t *answer);

#endif
