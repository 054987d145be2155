/* SPDX-License-Identifier: Apache-2.0 */
/* Divides the time between two points of the curve among instructions. These times are the rows of
 * the fit. With the fitted powers, they also distribute the energy between the two points over
 * time. */
#include "client/profiler_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* ---- The fit --------------------------------------------------------------------------------- */

/* Fits the power of each instruction to measured energies: least squares with a prior, solved by
 * normal equations and a Cholesky factorization.
 *
 * The energy of a row is uncertain because the length of the row is uncertain (blur). This error is
 * the blur times the typical difference between two powers. The prior says that each power differs
 * from the mean power by about the typical difference. Powers are measured in units of this
 * difference, so the prior adds 1 to each element of the diagonal. With the data of thirty steps,
 * the prior changes the result only for instructions that the data cannot tell apart. */

/* The smallest error of a row's length in seconds. Calls, wake-ups and the driver take time. */
static const double least_blur_s = 1e-4;

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Makes room for `count` unknowns. Copies the whole matrix to a new layout; this is rarely
 * needed. */
static bool make_unknowns(harpe_power_fit *fit, size_t count) {
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
    if (!make_unknowns(fit, count)) return false;
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
    if (!make_unknowns(&copy, from->count)) return false;
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

/* The power between steps varies with the work (evaluation, checkpoints). This share of the time
 * between steps is added to the error of a row. */
static const double unsteady_outside_share = 0.25;

/* ---- Time spent in a period ------------------------------------------------------------------ */

/* Seconds for all columns; `touched` lists the columns that are not 0. */
typedef struct time_row {
    double *time_s;
    size_t *touched;
    size_t touched_count;
} time_row;

static void put(time_row *into, size_t column, double time_s) {
    if (time_s <= 0) return;
    if (into->time_s[column] == 0) into->touched[into->touched_count++] = column;
    into->time_s[column] += time_s;
}

static void empty(time_row *row) {
    for (size_t i = 0; i < row->touched_count; i++)
        row->time_s[row->touched[i]] = 0;
    row->touched_count = 0;
}

static bool make_row(time_row *row, size_t key_count) {
    row->time_s = harpe_calloc(HARPE_COLUMN_FIRST_KEY + key_count, sizeof *row->time_s);
    row->touched = harpe_calloc(HARPE_COLUMN_FIRST_KEY + key_count, sizeof *row->touched);
    row->touched_count = 0;
    return row->time_s && row->touched;
}

static void free_row(time_row *row) {
    free(row->time_s);
    free(row->touched);
}

static double common_s(int64_t start_ns, int64_t end_ns, int64_t from_ns, int64_t to_ns) {
    int64_t start = start_ns > from_ns ? start_ns : from_ns;
    int64_t end = end_ns < to_ns ? end_ns : to_ns;
    return end > start ? (double)(end - start) * 1e-9 : 0;
}

/* Returns the index of the first step, or span, that ends after `time_ns`. One has
 * `size` bytes, and its end at `offset`. */
static size_t first_after(const void *all, size_t size, size_t offset, size_t count,
                          int64_t time_ns) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const void *end = (const char *)all + middle * size + offset;
        if (*(const int64_t *)end <= time_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void fill_row(time_row *into, const harpe_step *steps, size_t count, int64_t from_ns,
                     int64_t to_ns) {
    double outside_s = (double)(to_ns - from_ns) * 1e-9;
    empty(into);
    size_t i = first_after(steps, sizeof *steps, offsetof(harpe_step, end_ns), count, from_ns);
    for (; i < count && steps[i].start_ns < to_ns; i++) {
        const harpe_step *step = &steps[i];
        double inside_s = common_s(step->start_ns, step->end_ns, from_ns, to_ns);
        outside_s -= inside_s;
        size_t k = first_after(step->spans, sizeof *step->spans, offsetof(harpe_span, end_ns),
                               step->span_count, from_ns);
        for (; k < step->span_count && step->spans[k].start_ns < to_ns; k++) {
            const harpe_span *span = &step->spans[k];
            double span_s = common_s(span->start_ns, span->end_ns, from_ns, to_ns);
            inside_s -= span_s;
            put(into, HARPE_COLUMN_FIRST_KEY + span->key, span_s);
        }
        put(into, HARPE_COLUMN_WAITING, inside_s);
    }
    put(into, HARPE_COLUMN_OUTSIDE, outside_s);
}

/* ---- The model ------------------------------------------------------------------------------- */

static bool make_room(harpe_power_model *model, size_t key_count) {
    if (key_count <= model->key_count) return true;
    double *time_s = harpe_realloc(model->time_s, key_count, sizeof *time_s);
    if (!time_s) return false;
    model->time_s = time_s;
    size_t *runs = harpe_realloc(model->runs, key_count, sizeof *runs);
    if (!runs) return false;
    model->runs = runs;
    for (size_t i = model->key_count; i < key_count; i++) {
        time_s[i] = 0;
        runs[i] = 0;
    }
    model->key_count = key_count;
    return true;
}

static void add_times(harpe_power_model *model, const harpe_step *step) {
    for (size_t i = 0; i < step->span_count; i++) {
        const harpe_span *span = &step->spans[i];
        model->time_s[span->key] += (double)(span->end_ns - span->start_ns) * 1e-9;
        model->runs[span->key]++;
    }
}

/* Adds the period between point `i` and the next point. */
static bool add_stretch(harpe_power_model *model, time_row *row, const harpe_step *steps,
                        size_t count, const harpe_energy_curve *curve, size_t i) {
    const harpe_curve_point *from = &curve->points[i], *to = from + 1;
    if (to->follows_gap || to->time_ns <= from->time_ns) return true;
    fill_row(row, steps, count, from->time_ns, to->time_ns);
    /* The row's length is uncertain, because the true moment of each point is anywhere within its
     * blur. A row that contains time between steps gets more blur, because power varies more
     * there. */
    double blur_s = hypot((double)from->blur_ns, (double)to->blur_ns) * 1e-9 / sqrt(3);
    blur_s = hypot(blur_s, unsteady_outside_share * row->time_s[HARPE_COLUMN_OUTSIDE]);
    return harpe_power_fit_add(&model->fit, row->touched, row->touched_count, row->time_s,
                               to->energy_j - from->energy_j, blur_s);
}

bool harpe_power_model_add(harpe_power_model *model, const harpe_step *steps, size_t count,
                           const harpe_energy_curve *curve, size_t key_count) {
    if (count == 0) return true;
    if (!make_room(model, key_count)) return false;
    for (size_t i = 0; i < count; i++)
        add_times(model, &steps[i]);
    if (!curve) return true;
    time_row row;
    bool is_added = make_row(&row, key_count);
    size_t first = harpe_energy_curve_find(curve, steps[0].start_ns);
    for (size_t i = first == SIZE_MAX ? 0 : first;
         is_added && i + 1 < curve->count && curve->points[i].time_ns < steps[count - 1].end_ns;
         i++)
        is_added = add_stretch(model, &row, steps, count, curve, i);
    free_row(&row);
    return is_added;
}

bool harpe_power_model_copy(const harpe_power_model *from, harpe_power_model *to) {
    harpe_power_model copy = {0};
    if (!make_room(&copy, from->key_count) || !harpe_power_fit_copy(&from->fit, &copy.fit)) {
        harpe_power_model_clear(&copy);
        return false;
    }
    if (from->key_count > 0) {
        memcpy(copy.time_s, from->time_s, from->key_count * sizeof *copy.time_s);
        memcpy(copy.runs, from->runs, from->key_count * sizeof *copy.runs);
    }
    *to = copy;
    return true;
}

void harpe_power_model_clear(harpe_power_model *model) {
    harpe_power_fit_clear(&model->fit);
    free(model->time_s);
    free(model->runs);
    *model = (harpe_power_model){0};
}

double *harpe_power_model_solve(const harpe_power_model *model, size_t key_count) {
    size_t count = HARPE_COLUMN_FIRST_KEY + key_count;
    double *power_w = harpe_calloc(count, sizeof *power_w);
    if (power_w && harpe_power_fit_solve(&model->fit, count, power_w)) return power_w;
    free(power_w);
    return NULL;
}

/* ---- Energies of steps ----------------------------------------------------------------------- */

typedef struct energy_shape {
    const harpe_step *steps;
    size_t count;
    const harpe_energy_curve *curve;
    const double *power_w;
    time_row row;
} energy_shape;

/* Returns the energy of a period according to the powers. */
static double modelled_j(energy_shape *shape, int64_t from_ns, int64_t to_ns) {
    time_row *row = &shape->row;
    double energy_j = 0;
    fill_row(row, shape->steps, shape->count, from_ns, to_ns);
    for (size_t i = 0; i < row->touched_count; i++)
        energy_j += row->time_s[row->touched[i]] * shape->power_w[row->touched[i]];
    return energy_j;
}

/* Returns the energy at a time between the curve's first and last point. */
static double energy_at_j(energy_shape *shape, int64_t time_ns) {
    const harpe_energy_curve *curve = shape->curve;
    size_t i = harpe_energy_curve_find(curve, time_ns);
    const harpe_curve_point *from = &curve->points[i], *to = from + 1;
    if (i + 1 == curve->count || time_ns == from->time_ns) return from->energy_j;
    double share = (double)(time_ns - from->time_ns) / (double)(to->time_ns - from->time_ns);
    double whole_j = modelled_j(shape, from->time_ns, to->time_ns);
    if (whole_j > 0) share = modelled_j(shape, from->time_ns, time_ns) / whole_j;
    return from->energy_j + share * (to->energy_j - from->energy_j);
}

bool harpe_step_energies(const harpe_step *steps, size_t count, const harpe_energy_curve *curve,
                         const double *power_w, size_t key_count, double *energy_j) {
    energy_shape shape = {.steps = steps, .count = count, .curve = curve, .power_w = power_w};
    bool has_row = make_row(&shape.row, key_count);
    for (size_t i = 0; has_row && i < count; i++)
        energy_j[i] = energy_at_j(&shape, steps[i].end_ns) - energy_at_j(&shape, steps[i].start_ns);
    free_row(&shape.row);
    return has_row;
}
