/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts what a simulated job does with a plan file that the user gives: one list of instructions
 * for each stage, or one for each GPU. */
#ifndef HARPE_SIM_GIVEN_PLAN_H
#define HARPE_SIM_GIVEN_PLAN_H

#include <harpe/plan.h>

#include "sim/options.h"

/* Reads options->plan_path, and evaluates it with the problem of one pipeline. Writes time and
 * energy of the whole job. Errors name the file. */
harpe_status harpe_sim_predict_given(const harpe_sim_options *options, const harpe_problem *problem,
                                     double *time_s, double *energy_j, harpe_error *error);

#endif
