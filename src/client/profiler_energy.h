/* SPDX-License-Identifier: Apache-2.0 */
/* Steps and a curve of energy become powers: one per instruction and frequency, one for waiting
 * inside of steps, one for what lies between steps. Pure arithmetic over what the profiler's thread
 * gathered. */
#ifndef HARPE_CLIENT_PROFILER_ENERGY_H
#define HARPE_CLIENT_PROFILER_ENERGY_H

#include "client/energy_curve.h"
#include "client/power_fit.h"
#include "client/profiler_steps.h"

/* Unknowns of the fit. */
enum { HARPE_COLUMN_WAITING = 0, HARPE_COLUMN_OUTSIDE, HARPE_COLUMN_FIRST_KEY };

/* All that was seen of some steps. Zero-initialise. */
typedef struct harpe_power_model {
    harpe_power_fit fit;
    double *time_s; /* spent on each key, ever */
    size_t *runs;
    size_t key_count;
} harpe_power_model;

/* Adds steps (in the order of time), between whose first beginning and last end the curve may have
 * gaps outside of steps. `curve` NULL: times alone. False: out of memory; then some may be added.
 */
bool harpe_power_model_add(harpe_power_model *model, const harpe_step *steps, size_t count,
                           const harpe_energy_curve *curve, size_t key_count);
bool harpe_power_model_copy(const harpe_power_model *from, harpe_power_model *to);
void harpe_power_model_clear(harpe_power_model *model);

/* Powers by column: HARPE_COLUMN_FIRST_KEY + key_count of them, to be freed; NULL: out of memory.
 */
double *harpe_power_model_solve(const harpe_power_model *model, size_t key_count);

/* What the curve says that each of `steps` used. Between two points of the curve the energy is
 * shared out as the powers suggest. The curve must cover every step. False: out of memory. */
bool harpe_step_energies(const harpe_step *steps, size_t count, const harpe_energy_curve *curve,
                         const double *power_w, size_t key_count, double *energy_j);

#endif
