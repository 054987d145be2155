/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the plans of a report with its reference. */
#ifndef HARPE_DRAW_REPORT_SAVINGS_H
#define HARPE_DRAW_REPORT_SAVINGS_H

#include "draw/report_contents.h"

/* Returns the index of the plan with the least energy among those that take at most `time_s`, or
 * plan_count if no plan does. */
size_t harpe_report_best_within(const harpe_report *report, double time_s);
/* Return how much less energy and how much more time a plan needs than the reference, in percent.
 * Without a reference they return 0. */
double harpe_report_savings(const harpe_report *report, const harpe_report_plan *plan);
/* Return the plan with one clock that needs the least energy within a time, or within that of the
 * reference if it is longer (NULL: there is none), and how much less energy a plan needs than this,
 * in percent. */
const harpe_report_point *harpe_report_one_clock(const harpe_report *report, double time_s);
double harpe_report_one_clock_savings(const harpe_report *report, const harpe_report_plan *plan,
                                      double time_s);
double harpe_report_slowdown(const harpe_report *report, const harpe_report_plan *plan);
double harpe_report_gap(const harpe_report_plan *plan); /* energy above the lower bound, in
                                                         * percent */

#endif
