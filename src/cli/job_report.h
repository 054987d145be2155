/* SPDX-License-Identifier: Apache-2.0 */
/* Formats what a server's JSON says of a job as text: "figures" (energy, savings, power, phase and
 * plan; those that a server does not send are shown as '-'), and "report" (the baseline of the
 * savings, spoiled rounds, steps as planned, energy counters and energy per token). */
#ifndef HARPE_CLI_JOB_REPORT_H
#define HARPE_CLI_JOB_REPORT_H

#include <jansson.h>

#include "base/number.h"
#include "base/text.h"

/* The cells of a row, in this order: phase, energy, saved, power, time lost, and what the plan
 * saves against one clock for all GPUs. */
enum { HARPE_JOB_CELLS = 6, HARPE_JOB_CELL_SIZE = HARPE_NUMBER_SIZE };
void harpe_job_figures_cells(const json_t *job, char cells[HARPE_JOB_CELLS][HARPE_JOB_CELL_SIZE]);
/* Appends the text after the state in a line of progress, such as ", plan 3, 677.0 W, saved 13.9 %
 * +- 0.1 %". */
void harpe_job_figures_progress(const json_t *job, harpe_text *text);

/* Appends the lines with figures, and those of the report, to the page of one job. Appends none of
 * those that the server does not send. */
void harpe_job_report_lines(const json_t *job, harpe_text *text);
/* Does the same with only the lines about rounds and steps. */
void harpe_job_report_conduct(const json_t *job, harpe_text *text);

#endif
