/* SPDX-License-Identifier: Apache-2.0 */
/* Formats a plan file as text, for callers that write it themselves (a plan directory under
 * construction). Reading, matching and writing to a path are public: see harpe/plan.h. */
#ifndef HARPE_PLAN_PLAN_FILE_H
#define HARPE_PLAN_PLAN_FILE_H

#include <harpe/plan.h>

#include "base/text.h"

/* Format of the file name of plan `number` in a plan directory, for snprintf. */
#define HARPE_PLAN_FILE_NAME_FORMAT "freqs_pipeline_%05d.py"

/* Appends the text of harpe_plan_file_write. Check text->failed afterwards. */
void harpe_plan_file_format(harpe_text *text, const harpe_problem *problem, const harpe_plan *plan,
                            int number, double cost_change_j);

#endif
