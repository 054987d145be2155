/* SPDX-License-Identifier: Apache-2.0 */
/* A fast scan of a ProfilingResult, its totals, and the conduct of its rank: how many steps of the
 * round ran as planned, why others did not, and whether the energy counter agrees with the power.
 * The conduct is an optional member of a ProfilingResult. The published server and older servers
 * ignore the member. May be called on any thread. */
#ifndef HARPE_PFO_RESULT_SCAN_H
#define HARPE_PFO_RESULT_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/pfo.h>

#include "pfo/fields.h"

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

/* Returns true if it is certain that harpe_profiling_result_decode would accept the body. `*rank`
 * is then the rank. If it returns false, only harpe_profiling_result_decode can decide. The scan
 * takes less than half as long as decoding and allocates nothing. */
bool harpe_profiling_result_scan(const char *body, size_t length, int *rank);

/* The sums over the iterations of one rank. Implausible values are left out. */
typedef struct harpe_result_totals {
    size_t iterations; /* number of iterations for which a time was reported */
    double time_s, energy_j;
    harpe_conduct conduct; /* only the scan reads it; see harpe_conduct_read */
} harpe_result_totals;

/* Does the same, and adds up iter_time and iter_energy. */
bool harpe_profiling_result_scan_totals(const char *body, size_t length, int *rank,
                                        harpe_result_totals *totals);
harpe_result_totals harpe_profiling_result_totals(const harpe_profiling_result *result);

/* Returns false if `gpus` GPUs cannot have used the energy of the iterations in their time. */
bool harpe_result_totals_can_be(const harpe_result_totals *totals, int gpus);
/* Does the same for the iterations and for each instruction of a result. */
bool harpe_profiling_result_can_be(const harpe_profiling_result *result, int gpus);

/* Reads the conduct in the text of a result. It is unknown if the text has none. */
harpe_conduct harpe_conduct_read(const char *text, size_t length);
/* Returns the JSON schema of a conduct, as OpenAPI has it. The caller frees it with json_decref. */
json_t *harpe_conduct_schema(void);
/* Decodes any result, and returns its rank and totals with the conduct. Returns false, with the
 * problems, if it is not valid. */
bool harpe_profiling_result_decode_totals(const char *body, size_t length, int *rank,
                                          harpe_result_totals *totals, harpe_problems *problems);
/* Replaces `*json`, the text of a result, by the same text with the conduct. */
harpe_status harpe_conduct_append(const harpe_conduct *conduct, char **json, harpe_error *error);

#endif
