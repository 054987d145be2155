/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the report of a simulated training run. */
#ifndef HARPE_CLI_SIM_TRAIN_SIM_REPORT_H
#define HARPE_CLI_SIM_TRAIN_SIM_REPORT_H

#include "sim/launcher.h"

/* Prints a table, or JSON with --json. */
harpe_status harpe_sim_print_report(const harpe_sim_run *run, harpe_error *error);

#endif
