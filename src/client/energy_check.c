/* SPDX-License-Identifier: Apache-2.0 */
/* Sums up both energies and their uncertainty. The power of training varies within each step, so
 * the integral is a mean over samples: its standard error is the standard deviation of the samples
 * divided by the square root of the number of connected ones. The counter changes
 * every 10 to 100 ms, and not every change is known, so the energy at the first and the last sample
 * of a stretch is uncertain.
 *
 * A busy machine delays samples, and often until the GPU waits. A delayed sample shows another
 * power than an undelayed one if the power has changed meanwhile. Power changes with instructions,
 * which last LONG_NS or more. So a sample that is late by d is wrong with a probability of at most
 * d / LONG_NS, and by at most the difference between the highest and the lowest power. All these
 * errors may have the same sign, so more samples do not make their sum smaller. */
#include "client/profiler_internal.h"

#include <math.h>

#define PERIOD_NS INT64_C(100000000)
/* Samples that are further apart are not connected. */
#define GAP_NS INT64_C(200000000)
#define LONG_NS INT64_C(10000000) /* an assumption: instructions of large models last longer */

enum { LEAST_INTERVALS = 20 };
static const double quantile_95 = 1.96; /* of the normal distribution, both sides */

int64_t harpe_energy_check_delay_ns(const harpe_energy_check *check, int64_t now_ns) {
    if (!check->has_sample) return 0;
    double periods = harpe_sample_periods((uint64_t)check->samples);
    return check->sampled_ns + (int64_t)(periods * (double)PERIOD_NS) - now_ns;
}

void harpe_energy_check_break(harpe_energy_check *check) {
    if (check->has_sample) check->edges_j2 += check->edge_j2;
    check->has_sample = false;
}

void harpe_energy_check_add(harpe_energy_check *check, int64_t now_ns, int64_t late_ns,
                            double power_w, int64_t changed_ns, int64_t blur_ns, double counter_j) {
    if (check->has_sample && now_ns <= check->sampled_ns) return;
    double own_share = fmin(1, fmax(0, (double)late_ns) / (double)LONG_NS);
    if (check->has_sample && now_ns - check->sampled_ns > GAP_NS) harpe_energy_check_break(check);
    double since_s = (double)(now_ns - changed_ns) * 1e-9;
    double energy_j = counter_j + power_w * since_s;
    double edge_j = power_w * (since_s + (double)blur_ns * 1e-9) / sqrt(3);
    if (check->has_sample) {
        double length_s = (double)(now_ns - check->sampled_ns) * 1e-9;
        check->intervals++;
        check->late += 0.5 * (check->wrong_share + own_share);
        check->time_s += length_s;
        check->power_j += 0.5 * (check->sampled_w + power_w) * length_s;
        check->counter_j += energy_j - check->sampled_j;
    } else {
        check->edges_j2 += edge_j * edge_j;
    }
    check->has_sample = true;
    check->sampled_ns = now_ns;
    check->sampled_w = power_w;
    check->wrong_share = own_share;
    check->sampled_j = energy_j;
    check->edge_j2 = edge_j * edge_j;
    check->most_w = check->samples > 0 ? fmax(check->most_w, power_w) : power_w;
    check->least_w = check->samples > 0 ? fmin(check->least_w, power_w) : power_w;
    check->samples++;
    check->sum_w += power_w;
    check->sum_w2 += power_w * power_w;
}

harpe_energy_comparison harpe_energy_check_compare(const harpe_energy_check *check) {
    double n = check->samples;
    if (check->intervals < LEAST_INTERVALS || !(check->power_j > 0) || !(check->counter_j > 0))
        return (harpe_energy_comparison){0};
    double mean_w = check->sum_w / n;
    double variance_w2 = fmax(0, check->sum_w2 / n - mean_w * mean_w) * n / (n - 1);
    double power_j2 = check->time_s * check->time_s * variance_w2 / check->intervals;
    double edges_j2 = check->edges_j2 + (check->has_sample ? check->edge_j2 : 0);
    double late_j =
        check->late / check->intervals * check->time_s * (check->most_w - check->least_w);
    return (harpe_energy_comparison){check->counter_j, check->power_j,
                                     late_j + quantile_95 * sqrt(power_j2 + edges_j2), late_j};
}
