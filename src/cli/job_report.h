/* SPDX-License-Identifier: Apache-2.0 */
/* Formats the report of a job as text, from "report" in a server's JSON: the baseline of the
 * savings, spoiled rounds, steps as planned, energy counters and energy per token. */
#ifndef HARPE_CLI_JOB_REPORT_H
#define HARPE_CLI_JOB_REPORT_H

#include <jansson.h>

#include "base/text.h"

/* Appends all lines of the report to the page of one job. Appends none if the server sends no
 * report. */
void harpe_job_report_lines(const json_t *job, harpe_text *text);
/* Does the same with only the lines about rounds and steps. */
void harpe_job_report_conduct(const json_t *job, harpe_text *text);

#endif
