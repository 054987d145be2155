/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a GPU's energy counter with its integrated power, because the two may disagree
 * (https://github.com/ml-energy/zeus/issues/181). Power is sampled about ten times a second, by the
 * thread that also reads the counter. The check uses no clock, lock or driver. */
#ifndef HARPE_CLIENT_ENERGY_CHECK_H
#define HARPE_CLIENT_ENERGY_CHECK_H

#include <stdbool.h>
#include <stdint.h>

/* Initialise with zeros. */
typedef struct harpe_energy_check {
    bool has_sample;    /* the last sample, with which the next one is connected */
    double wrong_share; /* probability that the last sample is wrong because it is late */
    int64_t sampled_ns;
    double sampled_w, sampled_j;
    double edge_j2; /* square of the uncertainty of the last sample's energy */
    /* Sums over all samples and over the time between connected samples. */
    double samples, sum_w, sum_w2, least_w, most_w;
    double intervals, time_s, counter_j, power_j;
    double late;     /* sum over the intervals: 0.5 for each end that is a late sample */
    double edges_j2; /* squares of the uncertainties at the begin of each unbroken stretch */
} harpe_energy_check;

/* The energies of the same time. All are 0 if too little was sampled. */
typedef struct harpe_energy_comparison {
    double counter_j, power_j;
    double uncertainty_j; /* half-width of the 95 % confidence interval of the difference */
    double late_j;        /* the part of it that late samples cause: an error with one sign */
} harpe_energy_comparison;

/* Returns the time until the next sample; 0 or less: it is due since that time. The times between
 * samples vary, because training steps are periodic, and samples with a fixed period could always
 * hit the same part of a step. */
int64_t harpe_energy_check_delay_ns(const harpe_energy_check *check, int64_t now_ns);
/* Adds a sample of power, which was read `late_ns` later than planned. `changed_ns` is the
 * moment of the counter's latest change to `counter_j` that is known, within `blur_ns` in both
 * directions. The counter may have changed since. */
void harpe_energy_check_add(harpe_energy_check *check, int64_t now_ns, int64_t late_ns,
                            double power_w, int64_t changed_ns, int64_t blur_ns, double counter_j);
/* Ends a stretch, because the counter restarted or could not be read. */
void harpe_energy_check_break(harpe_energy_check *check);
harpe_energy_comparison harpe_energy_check_compare(const harpe_energy_check *check);

#endif
