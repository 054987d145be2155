/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `harpe fleet` share. */
#ifndef HARPE_CLI_FLEET_FLEET_INTERNAL_H
#define HARPE_CLI_FLEET_FLEET_INTERNAL_H

#include <jansson.h>

/* Exit status for budgets that cannot hold, and for an event that cannot be met. */
#define HARPE_FLEET_EXIT_INFEASIBLE 3

/* The actions that have words and options of their own. Each gets argv[0] = "harpe fleet ACTION"
 * and returns the exit code: token add|list|remove; status, budget, group, job, load, member,
 * event, prices, audit. */
int harpe_fleet_token_command(int argc, char **argv);
int harpe_fleet_server_command(int argc, char **argv);

/* Prints a server's answer for people. `noun` and `method`: of the action and its request. */
void harpe_fleet_print_answer(const char *noun, const char *method, const json_t *answer);

#endif
