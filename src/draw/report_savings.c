/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the energy and the time of plans with those of the highest frequencies. */
#include "draw/report_savings.h"

size_t harpe_report_best_within(const harpe_report *report, double time_s) {
    size_t best = report->plan_count;
    for (size_t i = 0; i < report->plan_count; i++)
        if (report->plans[i].time_s <= time_s * (1.0 + 1e-9) &&
            (best == report->plan_count ||
             report->plans[i].energy_j < report->plans[best].energy_j))
            best = i;
    return best;
}

double harpe_report_savings(const harpe_report *report, const harpe_report_plan *plan) {
    if (!report->has_reference || report->reference.energy_j <= 0.0) return 0.0;
    return (1.0 - plan->energy_j / report->reference.energy_j) * 100.0;
}

double harpe_report_slowdown(const harpe_report *report, const harpe_report_plan *plan) {
    if (!report->has_reference || report->reference.time_s <= 0.0) return 0.0;
    return (plan->time_s / report->reference.time_s - 1.0) * 100.0;
}

double harpe_report_gap(const harpe_report_plan *plan) {
    if (plan->lower_bound_j <= 0.0) return 0.0;
    return (plan->energy_j / plan->lower_bound_j - 1.0) * 100.0;
}
