/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of `harpe fleet` that have words and options of their own. Each gets argv[0] = "harpe
 * fleet ACTION" and returns the exit code. */
#ifndef HARPE_CLI_FLEET_FLEET_ACTIONS_H
#define HARPE_CLI_FLEET_FLEET_ACTIONS_H

/* harpe fleet token add|list|remove (fleet_token.c) */
int harpe_fleet_token_command(int argc, char **argv);
/* harpe fleet status, budget, group, job, load, member, event, prices, audit (fleet_server.c) */
int harpe_fleet_server_command(int argc, char **argv);

#endif
