/* SPDX-License-Identifier: Apache-2.0 */
/* Formats a job's energy, savings, power, phase and plan as text, from "figures" in a server's
 * JSON. Figures that a server does not send are shown as '-'. */
#ifndef HARPE_CLI_JOB_FIGURES_H
#define HARPE_CLI_JOB_FIGURES_H

#include <jansson.h>

#include "base/format.h"
#include "base/number_print.h"
#include "base/text.h"

/* The cells of a row, in this order: phase, energy, saved, power, time lost, and what the plan
 * saves against one clock for all GPUs. */
enum { HARPE_JOB_CELLS = 6, HARPE_JOB_CELL_SIZE = HARPE_NUMBER_SIZE };
void harpe_job_figures_cells(const json_t *job, char cells[HARPE_JOB_CELLS][HARPE_JOB_CELL_SIZE]);
/* Return a number, or 0 if it is missing; and an uncertainty, or INFINITY if it is not known. */
double harpe_job_number_of(const json_t *object, const char *name);
double harpe_job_uncertainty_of(const json_t *object, const char *name);
/* Appends "42.480 kJ +- 0.089 kJ": the uncertainty has two significant digits, and the value ends
 * at the same place, but has at most six digits. `uncertainty` INFINITY: not known. */
void harpe_job_append_within(harpe_text *text, double value, double uncertainty, harpe_unit unit);
/* Appends the lines with figures to the page of one job. */
void harpe_job_figures_lines(const json_t *job, harpe_text *text);
/* Appends the text after the state in a line of progress, such as ", plan 3, 677.0 W, saved 13.9 %
 * +- 0.1 %". */
void harpe_job_figures_progress(const json_t *job, harpe_text *text);

#endif
