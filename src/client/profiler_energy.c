/* SPDX-License-Identifier: Apache-2.0 */
/* Divides the time between two points of the curve among instructions. These times are the rows of
 * the fit. With the fitted powers, they also distribute the energy between the two points over
 * time. */
#include "client/profiler_energy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

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

/* Return the first step, or span, that ends after `time_ns`. */
static size_t first_step_after(const harpe_step *steps, size_t count, int64_t time_ns) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (steps[middle].end_ns <= time_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static size_t first_span_after(const harpe_step *step, int64_t time_ns) {
    size_t low = 0, high = step->span_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (step->spans[middle].end_ns <= time_ns)
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
    for (size_t i = first_step_after(steps, count, from_ns); i < count && steps[i].start_ns < to_ns;
         i++) {
        const harpe_step *step = &steps[i];
        double inside_s = common_s(step->start_ns, step->end_ns, from_ns, to_ns);
        outside_s -= inside_s;
        for (size_t k = first_span_after(step, from_ns);
             k < step->span_count && step->spans[k].start_ns < to_ns; k++) {
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
