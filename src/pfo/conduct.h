/* SPDX-License-Identifier: Apache-2.0 */
/* The conduct of a rank in a round: how many steps ran as planned, why others did not, and whether
 * the energy counter agrees with the power. It is an optional member of a ProfilingResult. The
 * published server and older servers ignore the member. May be called on any thread. */
#ifndef HARPE_PFO_CONDUCT_H
#define HARPE_PFO_CONDUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

/* The steps are those since the rank's previous result. */
typedef struct harpe_conduct {
    bool is_known;            /* false: the result does not say it, and all other members are 0 */
    int64_t steps;            /* steps that ran with a schedule */
    int64_t as_planned;       /* steps that fitted the schedule while the GPU had the set clocks */
    int64_t misfits;          /* steps that did not fit the schedule */
    int64_t misfits_measured; /* those of them that are in the result, because no step fits */
    int64_t disobeyed;        /* steps during which the GPU had another clock than the set one */
    int64_t lost;             /* steps whose time stamps or energies were lost */
    int64_t impossible;       /* energies that cannot be, which are in no step of the result */
    int64_t left_out;         /* steps that were to be measured and are not in the result */
    int64_t wanted_mhz, held_mhz; /* the last such pair of clocks; 0: the GPU has obeyed */
    int64_t tokens_per_step;      /* of the whole job; 0: not known */
    /* Energy since the rank's start, as the counter and as the integrated power have it for the
     * same time, the half-width of the 95 % confidence interval of their difference, and the part
     * of this half-width that late samples cause. All are 0 if the energies were not compared. */
    double counter_j, power_j, energy_uncertainty_j, late_energy_j;
} harpe_conduct;

enum { HARPE_TOKENS_MAX = 1000000000 }; /* per step */

/* Sets the member that has this name in JSON. Ignores unknown names. */
void harpe_conduct_set(harpe_conduct *conduct, const char *name, size_t length, double value);
/* Ends a conduct whose members were set. A conduct with an impossible value becomes unknown. */
void harpe_conduct_settle(harpe_conduct *conduct);
/* Replaces `*json`, the text of a result, by the same text with the conduct. */
harpe_status harpe_conduct_append(const harpe_conduct *conduct, char **json, harpe_error *error);

#endif
