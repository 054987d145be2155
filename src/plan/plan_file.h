/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a plan file, for callers that place it themselves (a plan directory under
 * construction). Reading, matching and writing to a path are public: see harpe/plan.h. */
#ifndef HARPE_PLAN_PLAN_FILE_H
#define HARPE_PLAN_PLAN_FILE_H

#include <harpe/plan.h>

#include "base/text.h"

/* Name of plan `number`'s file in a plan directory, for snprintf. */
#define HARPE_PLAN_FILE_NAME_FORMAT "freqs_pipeline_%05d.py"

/* Appends what harpe_plan_file_write writes; check text->failed after. */
void harpe_plan_file_format(harpe_text *text, const harpe_problem *problem, const harpe_plan *plan,
                            int number, double cost_change_j);

#endif
