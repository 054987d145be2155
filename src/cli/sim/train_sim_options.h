/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `harpe train-sim`. */
#ifndef HARPE_CLI_SIM_TRAIN_SIM_OPTIONS_H
#define HARPE_CLI_SIM_TRAIN_SIM_OPTIONS_H

#include "sim/options.h"

/* Fills in `options`. Messages of the run are printed to stderr. Prints an error and exits if the
 * command line is invalid. */
void harpe_train_sim_parse_options(int argc, char **argv, harpe_sim_options *options);

#endif
