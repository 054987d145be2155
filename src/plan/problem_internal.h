/* SPDX-License-Identifier: Apache-2.0 */
/* What the instructions and waits of a problem cost. Private to src/plan. */
#ifndef HARPE_PLAN_PROBLEM_INTERNAL_H
#define HARPE_PLAN_PROBLEM_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/plan.h>
#include <harpe/profile.h>

/* ---- Options and curves ---------------------------------------------------------------------- */

/* From the measured points of a (stage, instruction) to its options, and from these to the convex
 * decreasing curve that the relaxation uses. */

/* Finds the Pareto-optimal points in (time, effective energy), fastest first: time strictly
 * increases, and effective energy strictly decreases. If points are equal, the point with the
 * lowest frequency is kept. Sets is_on_hull for the corners of the lower convex hull. The first and
 * the last option are always corners. Collinear points between two corners are not corners.
 * `*options` receives 1 to point_count options; the caller frees it with free(). */
harpe_status harpe_options_from_points(const harpe_profile_point *points, size_t point_count,
                                       double blocking_power_w, harpe_option **options,
                                       size_t *option_count, harpe_error *error);

/* A convex, strictly decreasing, piecewise linear curve, fastest point first. Its slopes strictly
 * increase towards 0. The owner frees time_s and effective_energy_j with free(). */
typedef struct harpe_curve {
    size_t count; /* >= 1 */
    double *time_s;
    double *effective_energy_j;
} harpe_curve;

/* Makes the curve that follows the lower convex hull of the options. */
harpe_status harpe_curve_from_hull(const harpe_option *options, size_t option_count,
                                   harpe_curve *out, harpe_error *error);

/* Fits a*exp(b*t)+c (a > 0, b < 0) to the *energy* of the Pareto points of (time, energy), converts
 * it to effective energy, and samples it every unit_time_s (0: 0.001) from the fastest to the
 * slowest option, including both. If fewer than 4 Pareto points remain, noise_factor (0: 0.95)
 * relaxes the filter: it then drops a point p only if a strictly faster point needs less than
 * noise_factor times the energy of p.
 *
 * No curve can be fitted to fewer than 3 distinct times, to a single option, or to energies that do
 * not fall with the time. The function then uses the hull and sets *fitted to false. `coefficients`
 * receives a, b and c (time in s, energy in J), or zeros if no curve is fitted. Fails with
 * HARPE_LIMIT_EXCEEDED for more than 20,000 steps. */
harpe_status harpe_curve_from_exponential(const harpe_profile_point *points, size_t point_count,
                                          const harpe_option *options, size_t option_count,
                                          double blocking_power_w, double unit_time_s,
                                          double noise_factor, harpe_curve *out, bool *fitted,
                                          double coefficients[3], harpe_error *error);

void harpe_curve_clear(harpe_curve *curve);

/* ---- Powers of waits ------------------------------------------------------------------------- */

/* Finds the blocking power of each wait among the rows that a caller gives for ranks and kinds of
 * waits. A wait is the time between two instructions of a rank, before its first, or after its
 * last. problem.c keeps the powers. */

/* The instructions of all ranks, and the powers of their waits. */
typedef struct harpe_waits {
    int rank_count;
    const size_t *rank_offset;             /* [rank_count + 1]: first instruction of each rank */
    const harpe_instruction *instructions; /* of all ranks, rank 0 first */
    const double *usual_w; /* [rank_count]: power of one GPU in kinds of waits without a row */
    /* Written by harpe_wait_powers_find, for one GPU: the power of the wait that ends with each
     * instruction, and of the wait after each rank's last instruction. */
    double *power_w; /* [rank_offset[rank_count]] */
    double *end_w;   /* [rank_count] */
} harpe_waits;

/* Fills in the powers. Fails with HARPE_INVALID_ARGUMENT if a row is wrong, is there twice, or is
 * for a wait that its ranks do not have. O(instructions * names of a rank). */
harpe_status harpe_wait_powers_find(const harpe_wait_power *rows, size_t row_count,
                                    const harpe_waits *waits, harpe_error *error);

#endif
