/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands of `harpe profile`, each in a file of its own. They return the exit code. */
#ifndef HARPE_CLI_PROFILE_PROFILE_INTERNAL_H
#define HARPE_CLI_PROFILE_PROFILE_INTERNAL_H

int harpe_profile_p2p_command(int argc, char **argv);
int harpe_profile_switch_command(int argc, char **argv);
int harpe_profile_convert_command(int argc, char **argv);

#endif
