/* SPDX-License-Identifier: Apache-2.0 */
/* Computes powers from steps and a curve of energy: one per instruction and frequency, one for
 * waiting inside steps, and one for the time between steps. The profiler's thread has collected the
 * data before. */
#ifndef HARPE_CLIENT_PROFILER_ENERGY_H
#define HARPE_CLIENT_PROFILER_ENERGY_H

#include "client/energy_curve.h"
#include "client/power_fit.h"
#include "client/profiler_steps.h"

/* Unknowns of the fit. */
enum { HARPE_COLUMN_WAITING = 0, HARPE_COLUMN_OUTSIDE, HARPE_COLUMN_FIRST_KEY };

/* Sums over everything that was measured in some steps. Initialise with zeros. */
typedef struct harpe_power_model {
    harpe_power_fit fit;
    double *time_s; /* total time of each key */
    size_t *runs;
    size_t key_count;
} harpe_power_model;

/* Adds steps in the order of time. The curve must have no gaps in the steps; gaps between steps
 * are allowed. `curve` NULL: times only. Returns false when out of memory; some steps may then
 * have been added. */
bool harpe_power_model_add(harpe_power_model *model, const harpe_step *steps, size_t count,
                           const harpe_energy_curve *curve, size_t key_count);
bool harpe_power_model_copy(const harpe_power_model *from, harpe_power_model *to);
void harpe_power_model_clear(harpe_power_model *model);

/* Returns the powers by column: HARPE_COLUMN_FIRST_KEY + key_count of them, which the caller
 * frees; NULL: out of memory. */
double *harpe_power_model_solve(const harpe_power_model *model, size_t key_count);

/* Computes the energy of each of `steps` from the curve. The energy between two points of the
 * curve is distributed according to the powers. The curve must cover every step. Returns false
 * when out of memory. */
bool harpe_step_energies(const harpe_step *steps, size_t count, const harpe_energy_curve *curve,
                         const double *power_w, size_t key_count, double *energy_j);

#endif
