/* SPDX-License-Identifier: Apache-2.0 */
/* Fits the power of each instruction to measured energies: least squares with a prior, solved by
 * normal equations and a Cholesky factorization.
 *
 * The energy of a row is uncertain because the length of the row is uncertain (blur). This error is
 * the blur times the typical difference between two powers. The prior says that each power differs
 * from the mean power by about the typical difference. Powers are measured in units of this
 * difference, so the prior adds 1 to each element of the diagonal. With the data of thirty steps,
 * the prior changes the result only for instructions that the data cannot tell apart. */
#include "client/power_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* The smallest error of a row's length in seconds. Calls, wake-ups and the driver take time. */
static const double least_blur_s = 1e-4;

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Makes room for `count` unknowns. Copies the whole matrix to a new layout; this is rarely
 * needed. */
static bool make_room(harpe_power_fit *fit, size_t count) {
    if (count <= fit->capacity) return true;
    size_t capacity = fit->capacity < 8 ? 8 : fit->capacity * 2;
    capacity = capacity < count ? count : capacity;
    double *right = harpe_calloc(capacity, sizeof *right);
    double *normal = right ? harpe_calloc(capacity, capacity * sizeof *normal) : NULL;
    if (!normal) {
        free(right);
        return false;
    }
    for (size_t i = 0; i < fit->count; i++) {
        right[i] = fit->right[i];
        memcpy(normal + i * capacity, fit->normal + i * fit->capacity, (i + 1) * sizeof *normal);
    }
    free(fit->right);
    free(fit->normal);
    fit->right = right;
    fit->normal = normal;
    fit->capacity = capacity;
    return true;
}

bool harpe_power_fit_add(harpe_power_fit *fit, const size_t *columns, size_t length,
                         const double *time_s, double energy_j, double blur_s) {
    size_t count = fit->count;
    for (size_t i = 0; i < length; i++)
        count = columns[i] >= count ? columns[i] + 1 : count;
    if (!make_room(fit, count)) return false;
    fit->count = count;
    double weight = 1 / (least_blur_s * least_blur_s + blur_s * blur_s);
    fit->energy_j += weight * energy_j;
    for (size_t i = 0; i < length; i++) {
        size_t a = columns[i];
        fit->time_s += weight * time_s[a];
        fit->right[a] += weight * time_s[a] * energy_j;
        for (size_t k = 0; k < length; k++) {
            size_t b = columns[k];
            if (b <= a) fit->normal[a * fit->capacity + b] += weight * time_s[a] * time_s[b];
        }
    }
    return true;
}

bool harpe_power_fit_copy(const harpe_power_fit *from, harpe_power_fit *to) {
    harpe_power_fit copy = {0};
    if (!make_room(&copy, from->count)) return false;
    copy.count = from->count;
    copy.energy_j = from->energy_j;
    copy.time_s = from->time_s;
    for (size_t i = 0; i < from->count; i++) {
        copy.right[i] = from->right[i];
        memcpy(copy.normal + i * copy.capacity, from->normal + i * from->capacity,
               (i + 1) * sizeof *copy.normal);
    }
    *to = copy;
    return true;
}

void harpe_power_fit_clear(harpe_power_fit *fit) {
    free(fit->normal);
    free(fit->right);
    *fit = (harpe_power_fit){0};
}

/* ---- Solving --------------------------------------------------------------------------------- */

static double diagonal(const harpe_power_fit *fit, size_t i) {
    return fit->normal[i * fit->capacity + i];
}

bool harpe_power_fit_knows(const harpe_power_fit *fit, size_t column) {
    return column < fit->count && diagonal(fit, column) > 1;
}

/* Solves matrix * x = right. Writes x to `right`, and the Cholesky factor L, for which
 * matrix = L L', to the lower triangle of `matrix`. The prior has added 1 to the diagonal, so every
 * pivot is at least 1; a pivot that rounding errors have made smaller is set to 1. */
static void solve_cholesky(double *matrix, double *right, size_t n) {
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j <= i; j++) {
            double sum = matrix[i * n + j];
            for (size_t k = 0; k < j; k++)
                sum -= matrix[i * n + k] * matrix[j * n + k];
            matrix[i * n + j] = i > j ? sum / matrix[j * n + j] : sqrt(sum > 1 ? sum : 1);
        }
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++)
            right[i] -= matrix[i * n + k] * right[k];
        right[i] /= matrix[i * n + i];
    }
    for (size_t i = n; i-- > 0;) {
        for (size_t k = i + 1; k < n; k++)
            right[i] -= matrix[k * n + i] * right[k];
        right[i] /= matrix[i * n + i];
    }
}

/* Fills in the matrix and the right side for the differences from the mean power. */
static void set_up(const harpe_power_fit *fit, const size_t *named, size_t n, double mean_w,
                   double *matrix, double *right) {
    for (size_t i = 0; i < n; i++) {
        right[i] = fit->right[named[i]];
        for (size_t k = 0; k < n; k++) {
            size_t high = named[i > k ? i : k], low = named[i > k ? k : i];
            double entry = fit->normal[high * fit->capacity + low];
            right[i] -= entry * mean_w;
            if (k <= i) matrix[i * n + k] = entry + (i == k ? 1 : 0);
        }
    }
}

bool harpe_power_fit_solve(const harpe_power_fit *fit, size_t count, double *power_w) {
    size_t *named = harpe_calloc(fit->count, sizeof *named);
    size_t n = 0;
    for (size_t i = 0; named && i < fit->count && i < count; i++)
        if (diagonal(fit, i) > 0) named[n++] = i;
    double *right = harpe_calloc(n, sizeof *right);
    double *matrix = harpe_calloc(n, (n > 0 ? n : 1) * sizeof *matrix);
    bool is_solved = named && right && matrix;
    if (is_solved) {
        double mean_w = fit->time_s > 0 ? fit->energy_j / fit->time_s : 0;
        set_up(fit, named, n, mean_w, matrix, right);
        solve_cholesky(matrix, right, n);
        for (size_t i = 0; i < count; i++)
            power_w[i] = mean_w;
        for (size_t i = 0; i < n; i++)
            power_w[named[i]] = fmax(0, mean_w + right[i]);
    }
    free(named);
    free(right);
    free(matrix);
    return is_solved;
}
