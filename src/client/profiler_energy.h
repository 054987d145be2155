/* SPDX-License-Identifier: Apache-2.0 */
/* Computes powers from steps and a curve of energy: one per instruction and frequency, one for
 * waiting inside steps, and one for the time between steps. They are fitted by least squares. Each
 * row gives the time spent on each unknown and the total energy of that time, and the fit finds the
 * powers that explain all rows best. A power that the rows do not determine stays at the mean
 * power, so there is always an answer and never a NaN. The profiler's thread has collected the data
 * before. */
#ifndef HARPE_CLIENT_PROFILER_ENERGY_H
#define HARPE_CLIENT_PROFILER_ENERGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/energy_curve.h"

/* ---- Steps ----------------------------------------------------------------------------------- */

/* A step is a period of GPU time with the instructions that ran in it. A key identifies an
 * instruction at a frequency; it is an index into one table of all pairs seen so far. */

/* One run of an instruction, in GPU time. */
typedef struct harpe_span {
    int64_t start_ns, end_ns;
    size_t key;
} harpe_span;

typedef struct harpe_step {
    int64_t series, start_ns, end_ns;
    harpe_span *spans; /* one after the other */
    size_t span_count;
} harpe_step;

typedef struct harpe_step_key {
    int32_t frequency_mhz;
    uint8_t name; /* index of a name in the recorder */
} harpe_step_key;

typedef struct harpe_step_keys {
    harpe_step_key *items;
    size_t count, capacity;
} harpe_step_keys;

/* ---- The fit --------------------------------------------------------------------------------- */

/* Initialise with zeros. Unknowns are numbered from 0, and exist from their first use. */
typedef struct harpe_power_fit {
    size_t count, capacity;
    double *normal; /* capacity x capacity; lower triangle, weighted */
    double *right;
    double energy_j, time_s; /* sums over all rows, weighted, which give the mean power */
} harpe_power_fit;

/* Adds one row: for each c in `columns`, the time time_s[c] was spent on unknown c. `columns`
 * contains no number twice. `blur_s` is the standard error of the row's length and determines its
 * weight. When out of memory, returns false and changes nothing. */
bool harpe_power_fit_add(harpe_power_fit *fit, const size_t *columns, size_t length,
                         const double *time_s, double energy_j, double blur_s);
bool harpe_power_fit_copy(const harpe_power_fit *from, harpe_power_fit *to);
void harpe_power_fit_clear(harpe_power_fit *fit);

/* Writes `count` powers, >= 0, to `power_w`. The power of an unknown that is in no row is the mean
 * (0 without rows). Returns false when out of memory. Takes time O(n^3) for n unknowns that are in
 * rows. */
bool harpe_power_fit_solve(const harpe_power_fit *fit, size_t count, double *power_w);
/* Returns true if the rows contain this unknown. */
bool harpe_power_fit_knows(const harpe_power_fit *fit, size_t column);

/* ---- Powers of steps ------------------------------------------------------------------------- */

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
