/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the energy and the time of plans with those of the highest frequencies, and of one clock
 * for all GPUs. */
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

const harpe_report_point *harpe_report_one_clock(const harpe_report *report, double time_s) {
    const harpe_report_point *best = NULL;
    double reference_s = report->has_reference ? report->reference.time_s : 0;
    double most_s = (time_s > reference_s ? time_s : reference_s) * (1.0 + 1e-9);
    for (size_t i = 0; i < report->one_clock_count; i++) {
        const harpe_report_point *point = &report->one_clock[i];
        if (point->time_s <= most_s && (!best || point->energy_j < best->energy_j)) best = point;
    }
    return best;
}

double harpe_report_one_clock_savings(const harpe_report *report, const harpe_report_plan *plan,
                                      double time_s) {
    const harpe_report_point *other = harpe_report_one_clock(report, time_s);
    return other ? (1.0 - plan->energy_j / other->energy_j) * 100.0 : 0.0;
}

double harpe_report_slowdown(const harpe_report *report, const harpe_report_plan *plan) {
    if (!report->has_reference || report->reference.time_s <= 0.0) return 0.0;
    return (plan->time_s / report->reference.time_s - 1.0) * 100.0;
}

double harpe_report_gap(const harpe_report_plan *plan) {
    if (plan->lower_bound_j <= 0.0) return 0.0;
    return (plan->energy_j / plan->lower_bound_j - 1.0) * 100.0;
}
