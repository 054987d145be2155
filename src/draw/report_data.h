/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the data for the script of the report. */
#ifndef HARPE_DRAW_REPORT_DATA_H
#define HARPE_DRAW_REPORT_DATA_H

#include "base/text.h"
#include "draw/report_contents.h"

/* Checks that everything to which the timeline refers exists. */
harpe_status harpe_report_check_timeline(const harpe_report_timeline *timeline, harpe_error *error);
/* Writes JSON for the script. */
harpe_status harpe_report_put_data(const harpe_report *report, harpe_text *out, harpe_error *error);

#endif
