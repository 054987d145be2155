/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the options of an instruction, and their lower convex hull. It is the default cost model:
 * the relaxation may choose any duration along this curve. The other model is a fitted curve. */
#include "plan/problem_internal.h"

#include <cminpack.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"

/* ---- The convex hull ------------------------------------------------------------------------- */

/* Rounding moves a point by about 1e-16 of the energies from which it was computed. A point that
 * lies below the chord of its neighbours by more than this share of the energies is a real corner:
 * the slopes on its two sides differ by more than their rounding errors. */
#define COLLINEAR_SHARE 1e-12

static double slope(const harpe_option *from, const harpe_option *to) {
    return (to->effective_energy_j - from->effective_energy_j) / (to->time_s - from->time_s);
}

static bool is_corner(const harpe_option *a, const harpe_option *b, const harpe_option *c,
                      double tolerance_j) {
    double share = (b->time_s - a->time_s) / (c->time_s - a->time_s);
    double chord_j =
        a->effective_energy_j + share * (c->effective_energy_j - a->effective_energy_j);
    return chord_j - b->effective_energy_j > tolerance_j && slope(a, b) < slope(b, c);
}

static double collinear_tolerance_j(const harpe_option *options, size_t option_count) {
    double largest_j = 0;
    for (size_t i = 0; i < option_count; i++) {
        double waiting_j = options[i].energy_j - options[i].effective_energy_j;
        largest_j = fmax(largest_j, fabs(options[i].energy_j) + fabs(waiting_j));
    }
    return COLLINEAR_SHARE * largest_j;
}

/* Finds the corners of the options' lower convex hull with the lower half of Andrew's monotone
 * chain, as indices in `corners` (room for option_count). Returns their number; the first and the
 * last option are always corners. Options must be in the order of harpe_options_from_points.
 * O(option_count). */
static size_t hull_corners(const harpe_option *options, size_t option_count, size_t *corners) {
    double tolerance_j = collinear_tolerance_j(options, option_count);
    size_t count = 0;
    for (size_t i = 0; i < option_count; i++) {
        while (count >= 2 && !is_corner(&options[corners[count - 2]], &options[corners[count - 1]],
                                        &options[i], tolerance_j))
            count--;
        corners[count++] = i;
    }
    return count;
}

/* ---- Options --------------------------------------------------------------------------------- */

/* Makes options from measured points: subtracts from each point the energy of waiting for the same
 * time (effective energy), and keeps the points that no other point beats. */

#define BLOCKING_POWER_MAX_W 1e9

/* Orders options by time, then by energy, then by frequency. */
static int compare_options(const void *left, const void *right) {
    const harpe_option *a = left, *b = right;
    if (a->time_s != b->time_s) return a->time_s < b->time_s ? -1 : 1;
    if (a->effective_energy_j != b->effective_energy_j)
        return a->effective_energy_j < b->effective_energy_j ? -1 : 1;
    return (a->frequency_mhz > b->frequency_mhz) - (a->frequency_mhz < b->frequency_mhz);
}

/* Moves the options that are cheaper than every faster option to the front of the sorted array. */
static size_t keep_pareto(harpe_option *options, size_t count) {
    size_t kept = 1;
    for (size_t i = 1; i < count; i++)
        if (options[i].effective_energy_j < options[kept - 1].effective_energy_j)
            options[kept++] = options[i];
    return kept;
}

harpe_status harpe_options_from_points(const harpe_profile_point *points, size_t point_count,
                                       double blocking_power_w, harpe_option **options,
                                       size_t *option_count, harpe_error *error) {
    /* How long it takes where the clock is left alone depends on the clock that the GPU has. */
    if (point_count > 1 && points[point_count - 1].frequency_mhz == 0) point_count--;
    if (point_count == 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "an instruction needs at least one point");
    if (!(blocking_power_w >= 0 && blocking_power_w <= BLOCKING_POWER_MAX_W))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "blocking power must be 0 to %g W, not %g",
                          BLOCKING_POWER_MAX_W, blocking_power_w);
    harpe_option *made = harpe_calloc(point_count, sizeof *made);
    size_t *corners = harpe_calloc(point_count, sizeof *corners);
    if (!made || !corners) {
        free(made);
        free(corners);
        return harpe_fail_memory(error);
    }
    for (size_t i = 0; i < point_count; i++) {
        made[i] = (harpe_option){
            .frequency_mhz = points[i].frequency_mhz,
            .time_s = points[i].time_s,
            .energy_j = points[i].energy_j,
            .effective_energy_j = points[i].energy_j - blocking_power_w * points[i].time_s,
        };
    }
    qsort(made, point_count, sizeof *made, compare_options);
    size_t kept = keep_pareto(made, point_count);
    size_t corner_count = hull_corners(made, kept, corners);
    for (size_t i = 0; i < corner_count; i++)
        made[corners[i]].is_on_hull = true;
    free(corners);
    *options = made;
    *option_count = kept;
    return HARPE_OK;
}

/* ---- Curves ---------------------------------------------------------------------------------- */

harpe_status harpe_curve_from_hull(const harpe_option *options, size_t option_count,
                                   harpe_curve *out, harpe_error *error) {
    if (option_count == 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "a curve needs at least one option");
    harpe_curve curve = {0};
    size_t *corners = harpe_calloc(option_count, sizeof *corners);
    if (!corners) return harpe_fail_memory(error);
    curve.count = hull_corners(options, option_count, corners);
    curve.time_s = harpe_calloc(curve.count, sizeof *curve.time_s);
    curve.effective_energy_j = harpe_calloc(curve.count, sizeof *curve.effective_energy_j);
    if (!curve.time_s || !curve.effective_energy_j) {
        harpe_curve_clear(&curve);
        free(corners);
        return harpe_fail_memory(error);
    }
    for (size_t i = 0; i < curve.count; i++) {
        curve.time_s[i] = options[corners[i]].time_s;
        curve.effective_energy_j[i] = options[corners[i]].effective_energy_j;
    }
    free(corners);
    *out = curve;
    return HARPE_OK;
}

void harpe_curve_clear(harpe_curve *curve) {
    if (!curve) return;
    free(curve->time_s);
    free(curve->effective_energy_j);
    *curve = (harpe_curve){0};
}

/* ---- The exponential model ------------------------------------------------------------------- */

/* The exponential cost model: a*exp(b*t)+c is fitted by least squares to an instruction's
 * energies, converted to effective energy and sampled as a convex curve. It reduces noise but adds
 * model error. If no curve can be fitted, the hull is used. The numbers of real plans never come
 * from this model. */

#define DEFAULT_UNIT_TIME_S 0.001
#define DEFAULT_NOISE_FACTOR 0.95
#define ENOUGH_POINTS 4 /* if the Pareto front has fewer points, the filter is relaxed */
#define GRID_MAX 20000  /* steps of unit time in one curve */
#define FIT_TOLERANCE 1e-12

/* Times and energies are scaled to 0..1, where the curve is written as
 *
 *     y(x) = start - fall * (1 - exp(-bend * x)) / bend,    fall > 0, bend > 0
 *
 * `fall` is the steepness at the start. As bend approaches 0, the curve becomes a straight line, so
 * points that lie on a line do not need a very large a. The unknowns are start, log(fall) and
 * log(bend), so fall and bend are always positive. */
enum { START, LOG_FALL, LOG_BEND, UNKNOWNS };

#define LOG_FALL_LIMIT 30.0
static const double log_bend_min = -9.2; /* straight within 1e-5 of the range */
static const double log_bend_max = 4.2;  /* the curve falls within a twentieth of the range */
static const double first_bends[] = {0.05, 0.3, 1, 2, 4, 8, 16, 40};

typedef struct sample {
    double x, y; /* scaled time and energy */
} sample;

typedef struct scale {
    double time_s, time_range_s;     /* time of x = 0, and the unit of x */
    double energy_j, energy_range_j; /* energy of y = 0, and the unit of y */
} scale;

typedef struct sample_set {
    sample *items;
    size_t count;
} sample_set;

/* ---- Choosing the points to fit -------------------------------------------------------------- */

static int compare_points(const void *left, const void *right) {
    const harpe_profile_point *a = left, *b = right;
    if (a->time_s != b->time_s) return a->time_s < b->time_s ? -1 : 1;
    if (a->energy_j != b->energy_j) return a->energy_j < b->energy_j ? -1 : 1;
    return (a->frequency_mhz > b->frequency_mhz) - (a->frequency_mhz < b->frequency_mhz);
}

/* Drops a point p if a strictly faster point needs less than `factor` times the energy of p. If
 * points are equally fast, keeps the first, which is the cheapest. `sorted` and `kept` may be the
 * same array. With factor 1 the result is the Pareto front, except for ties. */
static size_t filter_points(const harpe_profile_point *sorted, size_t count, double factor,
                            harpe_profile_point *kept) {
    size_t kept_count = 0;
    double cheapest_j = INFINITY;
    double last_time_s = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        harpe_profile_point point = sorted[i];
        bool is_slower = point.time_s > last_time_s;
        if (is_slower && !(cheapest_j < factor * point.energy_j)) kept[kept_count++] = point;
        last_time_s = point.time_s;
        cheapest_j = fmin(cheapest_j, point.energy_j);
    }
    return kept_count;
}

/* Writes the points to fit to `kept`, which has room for point_count points. Uses a relaxed front
 * only if the true front is too short, like the published tool (lowtime). With a noise_factor of
 * 0.95, a point may cost up to about 5 % more than a faster one. */
static size_t choose_points(const harpe_profile_point *points, size_t point_count,
                            double noise_factor, harpe_profile_point *sorted,
                            harpe_profile_point *kept) {
    for (size_t i = 0; i < point_count; i++)
        sorted[i] = points[i];
    qsort(sorted, point_count, sizeof *sorted, compare_points);
    size_t count = filter_points(sorted, point_count, 1.0, kept);
    return count >= ENOUGH_POINTS ? count : filter_points(sorted, point_count, noise_factor, kept);
}

/* Scales the points. Returns false if they have only one time or one energy. */
static bool scale_points(const harpe_profile_point *points, size_t count, sample *samples,
                         scale *scaling) {
    double low_j = INFINITY, high_j = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        low_j = fmin(low_j, points[i].energy_j);
        high_j = fmax(high_j, points[i].energy_j);
    }
    *scaling = (scale){.time_s = points[0].time_s,
                       .time_range_s = points[count - 1].time_s - points[0].time_s,
                       .energy_j = low_j,
                       .energy_range_j = high_j - low_j};
    if (!(scaling->time_range_s > 0 && scaling->energy_range_j > 0)) return false;
    for (size_t i = 0; i < count; i++) {
        samples[i].x = (points[i].time_s - scaling->time_s) / scaling->time_range_s;
        samples[i].y = (points[i].energy_j - low_j) / scaling->energy_range_j;
    }
    return true;
}

/* ---- Fitting --------------------------------------------------------------------------------- */

static double clamp(double value, double low, double high) { return fmin(fmax(value, low), high); }

/* Returns the descent of the curve at x, per unit of `fall`. */
static double descent(double bend, double x) { return -expm1(-bend * x) / bend; }

static double bend_of(const double *unknowns) {
    return exp(clamp(unknowns[LOG_BEND], log_bend_min, log_bend_max));
}

static double fall_of(const double *unknowns) {
    return exp(clamp(unknowns[LOG_FALL], -LOG_FALL_LIMIT, LOG_FALL_LIMIT));
}

static double curve_y(const double *unknowns, double x) {
    return unknowns[START] - fall_of(unknowns) * descent(bend_of(unknowns), x);
}

/* Computes residuals (iflag 1) and their derivatives (iflag 2, column by column) for cminpack. */
static int residuals(void *user, int count, int unknown_count, const double *unknowns,
                     double *residual, double *jacobian, int row_stride, int iflag) {
    (void)unknown_count;
    const sample_set *set = user;
    double bend = bend_of(unknowns), fall = fall_of(unknowns);
    for (int i = 0; i < count; i++) {
        double x = set->items[i].x;
        if (iflag == 1) {
            residual[i] = curve_y(unknowns, x) - set->items[i].y;
        } else if (iflag == 2) {
            double down = descent(bend, x);
            jacobian[i + row_stride * START] = 1;
            jacobian[i + row_stride * LOG_FALL] = -fall * down;
            jacobian[i + row_stride * LOG_BEND] = -fall * (x * exp(-bend * x) - down);
        }
    }
    return 0;
}

/* Computes the best start and fall for a given bend, by linear regression on the descent. */
static void first_guess(const sample_set *set, double bend, double *unknowns) {
    double n = (double)set->count, sum_d = 0, sum_y = 0, sum_dd = 0, sum_dy = 0;
    for (size_t i = 0; i < set->count; i++) {
        double d = descent(bend, set->items[i].x), y = set->items[i].y;
        sum_d += d;
        sum_y += y;
        sum_dd += d * d;
        sum_dy += d * y;
    }
    double spread = n * sum_dd - sum_d * sum_d;
    double fall = spread > 0 ? -(n * sum_dy - sum_d * sum_y) / spread : 1;
    if (!(fall > 1e-3)) fall = 1e-3;
    unknowns[START] = (sum_y + fall * sum_d) / n;
    unknowns[LOG_FALL] = log(fall);
    unknowns[LOG_BEND] = log(bend);
}

static double squared_error(const sample_set *set, const double *unknowns) {
    double sum = 0;
    for (size_t i = 0; i < set->count; i++) {
        double difference = curve_y(unknowns, set->items[i].x) - set->items[i].y;
        sum += difference * difference;
    }
    return sum;
}

/* Runs Levenberg-Marquardt once for each initial value of bend. `best` receives the best result.
 * `*fitted` becomes true if the best result is a falling curve. */
static harpe_status fit(sample_set *set, double best[UNKNOWNS], bool *fitted, harpe_error *error) {
    int count = (int)set->count;
    int work_count = 5 * UNKNOWNS + count;
    double *memory =
        harpe_calloc((size_t)count * (1 + UNKNOWNS) + (size_t)work_count, sizeof *memory);
    if (!memory) return harpe_fail_memory(error);
    double *residual = memory, *jacobian = memory + count, *work = jacobian + UNKNOWNS * count;
    double best_error = INFINITY;
    for (size_t i = 0; i < sizeof first_bends / sizeof first_bends[0]; i++) {
        double unknowns[UNKNOWNS];
        int pivots[UNKNOWNS];
        first_guess(set, first_bends[i], unknowns);
        lmder1(residuals, set, count, UNKNOWNS, unknowns, residual, jacobian, count, FIT_TOLERANCE,
               pivots, work, work_count);
        /* The results are compared only by their error, no matter why the search ended. */
        double squares = squared_error(set, unknowns);
        if (squares < best_error) {
            best_error = squares;
            for (int k = 0; k < UNKNOWNS; k++)
                best[k] = unknowns[k];
        }
    }
    free(memory);
    double first_y = isfinite(best_error) ? curve_y(best, 0) : 0;
    *fitted = isfinite(best_error) && first_y - curve_y(best, 1) > 1e-6;
    return HARPE_OK;
}

/* ---- From the fit to a curve ----------------------------------------------------------------- */

/* Computes a, b, c in seconds and joules. Returns false if they are too large for a double (a
 * nearly vertical curve far from t = 0). */
static bool to_coefficients(const double *unknowns, const scale *scaling, double coefficients[3]) {
    double bend = bend_of(unknowns);
    double height_j = scaling->energy_range_j * fall_of(unknowns) / bend;
    coefficients[0] = height_j * exp(bend * scaling->time_s / scaling->time_range_s);
    coefficients[1] = -bend / scaling->time_range_s;
    coefficients[2] = scaling->energy_j + scaling->energy_range_j * unknowns[START] - height_j;
    return isfinite(coefficients[0]) && isfinite(coefficients[1]) && isfinite(coefficients[2]);
}

/* Samples the fitted curve between two times in `steps` intervals of at most the unit time, and
 * converts the samples to effective energy. Keeps only the hull of the samples, because rounding
 * can hide the curvature at a point. */
static harpe_status sample_curve(const double *unknowns, const scale *scaling,
                                 const harpe_option *fastest, const harpe_option *slowest,
                                 double blocking_power_w, double unit_time_s, harpe_curve *out,
                                 harpe_error *error) {
    double steps = ceil((slowest->time_s - fastest->time_s) / unit_time_s - 1e-9);
    if (!(steps <= GRID_MAX))
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "a unit time of %s s cuts durations from %s to %s s into more than %d "
                          "steps; raise --unit-time to %s or more",
                          HARPE_DIGITS(unit_time_s, 6), HARPE_DIGITS(fastest->time_s, 6),
                          HARPE_DIGITS(slowest->time_s, 6), GRID_MAX,
                          HARPE_DIGITS(1.06 * (slowest->time_s - fastest->time_s) / GRID_MAX, 2));
    size_t step_count = steps > 1 ? (size_t)steps : 1;
    harpe_option *samples = harpe_calloc(step_count + 1, sizeof *samples);
    if (!samples) return harpe_fail_memory(error);
    size_t count = 0;
    for (size_t i = 0; i <= step_count; i++) {
        double time_s =
            i < step_count ? fastest->time_s + (double)i * unit_time_s : slowest->time_s;
        double x = (time_s - scaling->time_s) / scaling->time_range_s;
        double energy_j = scaling->energy_j + scaling->energy_range_j * curve_y(unknowns, x);
        double effective_j = energy_j - blocking_power_w * time_s;
        if (count > 0 && !(time_s > samples[count - 1].time_s &&
                           effective_j < samples[count - 1].effective_energy_j))
            continue; /* the curve is so flat that rounding hides its fall */
        samples[count++] = (harpe_option){
            .time_s = time_s, .energy_j = energy_j, .effective_energy_j = effective_j};
    }
    harpe_status status = harpe_curve_from_hull(samples, count, out, error);
    free(samples);
    return status;
}

/* Fits the points. `*fitted` becomes false if no curve can be fitted to them. */
static harpe_status fit_points(const harpe_profile_point *points, size_t point_count,
                               double noise_factor, scale *scaling, double unknowns[UNKNOWNS],
                               bool *fitted, harpe_error *error) {
    harpe_status status = HARPE_OK;
    harpe_profile_point *sorted = harpe_calloc(point_count, sizeof *sorted);
    harpe_profile_point *kept = harpe_calloc(point_count, sizeof *kept);
    sample_set set = {.items = harpe_calloc(point_count, sizeof *set.items)};
    *fitted = false;
    if (!sorted || !kept || !set.items) {
        status = harpe_fail_memory(error);
        goto done;
    }
    set.count = choose_points(points, point_count, noise_factor, sorted, kept);
    if (set.count >= UNKNOWNS && scale_points(kept, set.count, set.items, scaling))
        status = fit(&set, unknowns, fitted, error);
done:
    free(sorted);
    free(kept);
    free(set.items);
    return status;
}

harpe_status harpe_curve_from_exponential(const harpe_profile_point *points, size_t point_count,
                                          const harpe_option *options, size_t option_count,
                                          double blocking_power_w, double unit_time_s,
                                          double noise_factor, harpe_curve *out, bool *fitted,
                                          double coefficients[3], harpe_error *error) {
    if (unit_time_s == 0) unit_time_s = DEFAULT_UNIT_TIME_S;
    if (noise_factor == 0) noise_factor = DEFAULT_NOISE_FACTOR;
    if (!(unit_time_s > 0 && isfinite(unit_time_s)))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "unit time must be a positive number of seconds, not %g", unit_time_s);
    if (!(noise_factor > 0 && noise_factor <= 1))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "noise factor must be above 0 and at most 1, not %g", noise_factor);
    if (point_count == 0 || option_count == 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "a curve needs at least one point");

    scale scaling = {0};
    double unknowns[UNKNOWNS] = {0}, made[3] = {0};
    bool is_fitted = false;
    harpe_status status =
        fit_points(points, point_count, noise_factor, &scaling, unknowns, &is_fitted, error);
    if (status != HARPE_OK) return status;
    is_fitted = is_fitted && option_count > 1 && to_coefficients(unknowns, &scaling, made);
    status = is_fitted ? sample_curve(unknowns, &scaling, &options[0], &options[option_count - 1],
                                      blocking_power_w, unit_time_s, out, error)
                       : harpe_curve_from_hull(options, option_count, out, error);
    if (status != HARPE_OK) return status;
    for (int k = 0; k < 3; k++)
        coefficients[k] = is_fitted ? made[k] : 0;
    *fitted = is_fitted;
    return HARPE_OK;
}
