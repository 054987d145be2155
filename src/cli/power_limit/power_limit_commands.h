/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands of `harpe power-limit`. Each of them returns the exit code. */
#ifndef HARPE_CLI_POWER_LIMIT_POWER_LIMIT_COMMANDS_H
#define HARPE_CLI_POWER_LIMIT_POWER_LIMIT_COMMANDS_H

int harpe_power_limit_replay_command(int argc, char **argv);
int harpe_power_limit_run_command(int argc, char **argv);

#endif
