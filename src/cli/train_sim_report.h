/* SPDX-License-Identifier: Apache-2.0 */
/* Tells how a simulated training run went. */
#ifndef HARPE_CLI_TRAIN_SIM_REPORT_H
#define HARPE_CLI_TRAIN_SIM_REPORT_H

#include "cli/train_sim_launcher.h"

/* As a table, or as JSON with --json. */
harpe_status harpe_sim_report(const harpe_sim_run *run, harpe_error *error);

#endif
