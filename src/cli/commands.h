/* SPDX-License-Identifier: Apache-2.0 */
/* The list of the subcommands. Each of them receives argv[0] = "harpe NAME" and returns the exit
 * code. main.c calls them. */
#ifndef HARPE_CLI_COMMANDS_H
#define HARPE_CLI_COMMANDS_H

#include "cli/command.h"

int harpe_plan_command(int argc, char **argv);
int harpe_choose_command(int argc, char **argv);
int harpe_evaluate_command(int argc, char **argv);
int harpe_graph_command(int argc, char **argv);
int harpe_synth_command(int argc, char **argv);
int harpe_gpus_command(int argc, char **argv);
int harpe_agent_command(int argc, char **argv);
int harpe_emulate_command(int argc, char **argv);
int harpe_monitor_command(int argc, char **argv);
int harpe_power_limit_command(int argc, char **argv);
int harpe_fleet_command(int argc, char **argv);
int harpe_serve_command(int argc, char **argv);
int harpe_jobs_command(int argc, char **argv);
int harpe_store_command(int argc, char **argv);
int harpe_run_command(int argc, char **argv);
int harpe_profile_command(int argc, char **argv);
int harpe_profile_p2p_command(int argc, char **argv);    /* harpe profile p2p */
int harpe_profile_switch_command(int argc, char **argv); /* harpe profile switch */
int harpe_train_sim_command(int argc, char **argv);
int harpe_tune_command(int argc, char **argv);

#endif
