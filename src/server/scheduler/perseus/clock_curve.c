/* SPDX-License-Identifier: Apache-2.0 */
/* The model of a curve. Observed clocks have their means. Between two observed clocks the time is
 * interpolated over 1 / clock, and the power over the clock. Below the lowest observed clock, the
 * curve continues as it fell before, or, after a single observation, with a usual slope. Bounds
 * from the rules of physics correct all values, but observed ones only within their errors. */
#include "server/scheduler/perseus/explorer_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "server/scheduler/builtin.h"

/* Older observations lose weight beyond this number of runs, so that a slow change is followed. */
#define WEIGHT_MAX 4000.0
/* The bounds are this number of standard errors from the mean. */
#define BOUND_ERRORS 2.0
/* Differences between rounds that the noise within a round does not show. */
#define ERROR_MIN 0.0002
/* Assumptions for an instruction of which only the highest clock was observed: the part of the time
 * that scales with the clock, and the exponent of the power above the waiting power. */
#define USUAL_COMPUTE_SHARE 0.8
#define USUAL_EXPONENT 2.0
#define EXPONENT_MAX 3.0
/* A clock whose time differs from that of the highest clock by less than this number of standard
 * errors, and by less than this share, counts as equally fast. */
#define EQUAL_ERRORS 2.0
#define EQUAL_MAX 0.003

/* Misfits count only beyond this number of times the variance that noise explains. */
#define MISFIT_NOISE 2.0

bool harpe_clock_curve_init(harpe_clock_curve *curve, const int *mhz, size_t count) {
    *curve = (harpe_clock_curve){mhz, count, harpe_calloc(count, sizeof *curve->points)};
    return curve->points != NULL;
}

void harpe_clock_curve_free(harpe_clock_curve *curve) {
    free(curve->points);
    curve->points = NULL;
}

void harpe_clock_curve_forget(harpe_clock_curve *curve) {
    memset(curve->points, 0, curve->count * sizeof *curve->points);
}

size_t harpe_clock_curve_find(const harpe_clock_curve *curve, int mhz) {
    size_t i = 0;
    while (i < curve->count && curve->mhz[i] != mhz)
        i++;
    return i;
}

/* ---- Observations ---------------------------------------------------------------------------- */

static void add(harpe_clock_point *point, double time_s, double energy_j, double weight) {
    point->weight = fmin(point->weight + weight, WEIGHT_MAX);
    point->time_s += (time_s - point->time_s) * weight / point->weight;
    point->energy_j += (energy_j - point->energy_j) * weight / point->weight;
}

static const harpe_clock_share *largest_of(const harpe_clock_share *shares, size_t count) {
    const harpe_clock_share *largest = shares;
    for (size_t i = 1; i < count; i++)
        if (shares[i].share > largest->share) largest = &shares[i];
    return largest;
}

void harpe_clock_curve_observe(harpe_clock_curve *curve, const harpe_clock_share *shares,
                               size_t share_count, double time_s, double energy_j, double weight,
                               double noise) {
    if (share_count == 0 || !(time_s > 0) || !(energy_j > 0) || !(weight > 0)) return;
    const harpe_clock_share *main = largest_of(shares, share_count);
    if (share_count == 1) {
        add(&curve->points[main->clock], time_s, energy_j, weight);
        return;
    }
    harpe_clock_estimate *known = harpe_calloc(curve->count, sizeof *known);
    if (!known || main->share < 0.5 || !harpe_clock_curve_estimate(curve, noise, 0, known)) {
        free(known);
        return;
    }
    /* The run is one piece of work. A part s of its time at a clock at which the whole run takes t
     * does s * time / t of the work. */
    double work = 1, left_j = energy_j;
    for (size_t i = 0; i < share_count; i++) {
        const harpe_clock_estimate *there = &known[shares[i].clock];
        if (shares[i].clock == main->clock) continue;
        work -= shares[i].share * time_s / there->time_s;
        left_j -= shares[i].share * time_s * there->energy_j / there->time_s;
    }
    free(known);
    if (!(work > 0) || !(left_j > 0)) return;
    add(&curve->points[main->clock], main->share * time_s / work, left_j / work,
        weight * main->share * main->share);
}

/* ---- Estimates ------------------------------------------------------------------------------- */

static double error_of(const harpe_clock_point *point, double noise) {
    if (!(point->weight > 0)) return INFINITY;
    return sqrt(noise * noise / point->weight + ERROR_MIN * ERROR_MIN);
}

/* Finds the bounds of the time of every clock. A clock above gives t(f) <= t(g) g / f and
 * t(f) >= t(g); a clock below gives t(f) <= t(g) and t(f) >= t(g) g / f. */
static void find_bounds(const harpe_clock_curve *curve, harpe_clock_estimate *out) {
    double slowest_cycles = INFINITY, lower_s = 0;
    for (size_t i = 0; i < curve->count; i++) {
        const harpe_clock_point *point = &curve->points[i];
        if (point->weight > 0) {
            double margin = BOUND_ERRORS * out[i].error;
            slowest_cycles = fmin(slowest_cycles, point->time_s * (1 + margin) * curve->mhz[i]);
            lower_s = fmax(lower_s, point->time_s * (1 - margin));
        }
        out[i].upper_s = slowest_cycles / curve->mhz[i];
        out[i].lower_s = lower_s;
    }
    double upper_s = INFINITY, least_cycles = 0;
    for (size_t i = curve->count; i-- > 0;) {
        const harpe_clock_point *point = &curve->points[i];
        if (point->weight > 0) {
            double margin = BOUND_ERRORS * out[i].error;
            upper_s = fmin(upper_s, point->time_s * (1 + margin));
            least_cycles = fmax(least_cycles, point->time_s * (1 - margin) * curve->mhz[i]);
        }
        out[i].upper_s = fmin(out[i].upper_s, upper_s);
        out[i].lower_s = fmin(fmax(out[i].lower_s, least_cycles / curve->mhz[i]), out[i].upper_s);
        if (!(point->weight > 0)) continue;
        /* The rules correct no more than the noise, and not at all at the highest clock, which has
         * the most runs: every limit rests on it. */
        double margin = i > 0 ? BOUND_ERRORS * out[i].error : 0;
        out[i].upper_s = fmax(out[i].upper_s, point->time_s * (1 - margin));
        out[i].lower_s = fmin(out[i].lower_s, point->time_s * (1 + margin));
    }
}

/* Returns the index of the next observed clock below `from`, or curve->count. */
static size_t next_observed(const harpe_clock_curve *curve, size_t from) {
    size_t i = from + 1;
    while (i < curve->count && !(curve->points[i].weight > 0))
        i++;
    return i;
}

static double power_of(const harpe_clock_point *point) { return point->energy_j / point->time_s; }

/* The part of the curve below its lowest observed clock. */
typedef struct tail {
    double slope;    /* of the time over highest clock / clock */
    double exponent; /* of the power above `floor_w` over the clock */
    double floor_w;
} tail;

static tail tail_of(const harpe_clock_curve *curve, size_t above, size_t last, double waiting_w) {
    const harpe_clock_point *low = &curve->points[last];
    double compute_s = low->time_s * curve->mhz[last] / curve->mhz[0];
    double low_w = power_of(low);
    tail t = {USUAL_COMPUTE_SHARE * compute_s, USUAL_EXPONENT, fmin(waiting_w, 0.8 * low_w)};
    if (above == last) return t;
    const harpe_clock_point *high = &curve->points[above];
    double from = (double)curve->mhz[0] / curve->mhz[above];
    double to = (double)curve->mhz[0] / curve->mhz[last];
    t.slope = fmin(fmax((low->time_s - high->time_s) / (to - from), 0), compute_s);
    double ratio = (power_of(high) - t.floor_w) / (low_w - t.floor_w);
    double exponent = log(fmax(ratio, 1)) / log(to / from);
    t.exponent = fmin(fmax(exponent, 1), EXPONENT_MAX);
    return t;
}

/* Where a clock is between two others: 0 at the higher one, 1 at the lower one. */
typedef struct position {
    double time, power; /* over 1 / clock, and over the clock */
} position;

static position position_of(const harpe_clock_curve *curve, size_t i, size_t high, size_t low) {
    double from = 1.0 / curve->mhz[high], to = 1.0 / curve->mhz[low];
    return (position){(1.0 / curve->mhz[i] - from) / (to - from),
                      (double)(curve->mhz[high] - curve->mhz[i]) /
                          (curve->mhz[high] - curve->mhz[low])};
}

static double between(double from, double to, double share) { return from + share * (to - from); }

static void fill_between(const harpe_clock_curve *curve, size_t high, size_t low,
                         harpe_clock_estimate *out) {
    const harpe_clock_point *a = &curve->points[high], *b = &curve->points[low];
    for (size_t i = high + 1; i < low; i++) {
        position at = position_of(curve, i, high, low);
        out[i].time_s = between(out[high].time_s, out[low].time_s, at.time);
        out[i].energy_j = between(power_of(a), power_of(b), at.power); /* a power until finish */
    }
}

static void fill_below(const harpe_clock_curve *curve, size_t above, size_t last, double waiting_w,
                       harpe_clock_estimate *out) {
    const harpe_clock_point *low = &curve->points[last];
    tail t = tail_of(curve, above, last, waiting_w);
    for (size_t i = last + 1; i < curve->count; i++) {
        double further =
            (double)curve->mhz[0] / curve->mhz[i] - (double)curve->mhz[0] / curve->mhz[last];
        double ratio = (double)curve->mhz[i] / curve->mhz[last];
        out[i].time_s = out[last].time_s + t.slope * further;
        out[i].energy_j = t.floor_w + (power_of(low) - t.floor_w) * pow(ratio, t.exponent);
    }
}

/* Brings the times of the observed clocks into their bounds. A lower clock that is known well
 * corrects the higher ones that are not. */
static void settle_observed(const harpe_clock_curve *curve, harpe_clock_estimate *out) {
    double highest_s = out[0].time_s;
    for (size_t i = 1; i < curve->count; i++) {
        if (!(curve->points[i].weight > 0)) continue;
        double error = hypot(out[i].error, out[0].error);
        double equal = fmin(EQUAL_ERRORS * error, EQUAL_MAX);
        double time_s = fmin(fmax(out[i].time_s, out[i].lower_s), out[i].upper_s);
        if (fabs(time_s - highest_s) <= highest_s * equal) time_s = highest_s;
        out[i].time_s = time_s;
    }
}

/* Brings the other times into their bounds, and computes energies from powers. The upper bound of
 * an observed time rests on its observations alone. */
static void finish(const harpe_clock_curve *curve, harpe_clock_estimate *out) {
    for (size_t i = 0; i < curve->count; i++) {
        const harpe_clock_point *point = &curve->points[i];
        double power_w = out[i].energy_j, upper_s = out[i].upper_s;
        if (point->weight > 0)
            upper_s = point->time_s * (1 + BOUND_ERRORS * out[i].error);
        else
            out[i].time_s = fmin(fmax(out[i].time_s, out[i].lower_s), out[i].upper_s);
        out[i].energy_j = power_w * out[i].time_s;
        out[i].upper_s = fmax(upper_s, out[i].time_s);
        out[i].lower_s = fmin(out[i].lower_s, out[i].time_s);
    }
}

bool harpe_clock_curve_estimate(const harpe_clock_curve *curve, double noise, double waiting_w,
                                harpe_clock_estimate *out) {
    if (curve->count == 0 || !(curve->points[0].weight > 0)) return false;
    for (size_t i = 0; i < curve->count; i++) {
        const harpe_clock_point *point = &curve->points[i];
        out[i].error = error_of(point, noise);
        out[i].time_s = point->time_s;
        out[i].energy_j = point->weight > 0 ? power_of(point) : 0;
    }
    find_bounds(curve, out);
    settle_observed(curve, out);
    size_t above = 0, last = 0;
    for (size_t low; (low = next_observed(curve, last)) < curve->count; last = low) {
        fill_between(curve, last, low, out);
        above = last;
    }
    fill_below(curve, above, last, waiting_w, out);
    finish(curve, out);
    return true;
}

/* Adds how far an observed clock is from the curve between its neighbours. */
static void add_misfit(harpe_clock_misfit *sum, const harpe_clock_curve *curve, size_t i,
                       size_t high, size_t low, double noise) {
    const harpe_clock_point *own = &curve->points[i];
    const harpe_clock_point *a = &curve->points[high], *b = &curve->points[low];
    position at = position_of(curve, i, high, low);
    double time_s = between(a->time_s, b->time_s, at.time);
    double energy_j = time_s * between(power_of(a), power_of(b), at.power);
    double time = own->time_s / time_s - 1, energy = own->energy_j / energy_j - 1;
    double variance = noise * noise *
                      (1 / own->weight + (1 - at.time) * (1 - at.time) / a->weight +
                       at.time * at.time / b->weight);
    sum->time += time * time - MISFIT_NOISE * variance;
    sum->energy += energy * energy - MISFIT_NOISE * variance;
    sum->count++;
}

void harpe_clock_curve_add_misfit(const harpe_clock_curve *curve, double noise,
                                  harpe_clock_misfit *sum) {
    size_t high = 0, i = next_observed(curve, 0);
    for (size_t low; i < curve->count && (low = next_observed(curve, i)) < curve->count; i = low) {
        add_misfit(sum, curve, i, high, low, noise);
        high = i;
    }
}

/* ---- The stored state ------------------------------------------------------------------------ */

/* An observed clock. */
typedef struct stored_point {
    int mhz;
    harpe_clock_point point;
} stored_point;

static const harpe_stored_member MEMBERS[] = {
    HARPE_STORED(stored_point, mhz, 1, 1e6),
    HARPE_STORED_DOUBLES(stored_point, point, HARPE_STORED_COUNT),
};
static const harpe_stored TABLE = HARPE_STORED_TABLE(stored_point, MEMBERS);

json_t *harpe_clock_curve_save(const harpe_clock_curve *curve) {
    json_t *list = json_array();
    for (size_t i = 0; i < curve->count; i++) {
        stored_point own = {curve->mhz[i], curve->points[i]};
        if (own.point.weight > 0) harpe_stored_append(&list, harpe_stored_save_row(&TABLE, &own));
    }
    return list;
}

bool harpe_clock_curve_load(harpe_clock_curve *curve, const json_t *saved) {
    harpe_clock_curve_forget(curve);
    for (size_t i = 0; i < json_array_size(saved); i++) {
        stored_point own;
        if (!harpe_stored_load_row(&TABLE, &own, json_array_get(saved, i))) return false;
        size_t at = harpe_clock_curve_find(curve, own.mhz);
        if (at == curve->count ||
            !(own.point.weight > 0 && own.point.time_s > 0 && own.point.energy_j > 0))
            return false;
        curve->points[at] = own.point;
    }
    return json_is_array(saved);
}
