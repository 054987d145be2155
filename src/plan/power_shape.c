/* SPDX-License-Identifier: Apache-2.0 */
/* The power of a whole pipeline over an iteration: its peak, and its strongest oscillation in the
 * band that power grids object to. An instruction draws its measured energy divided by its time,
 * and a rank that waits draws its blocking power, so the power is a step function of time. Both
 * results are exact for this function. Power that changes inside of an instruction is not known. */
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/evaluate.h"

/* A band that contains the modes between areas of a grid and the slower modes of turbine shafts.
 * Components of a load close to such a mode do damage: Choukse et al., Power Stabilization for AI
 * Training Datacenters, 2025, arXiv 2508.14318. */
#define BAND_LOW_HZ 0.1
#define BAND_HIGH_HZ 20.0
/* The most harmonics that are examined. It is reached if an iteration takes 1000 s. */
#define HARMONICS_MAX 20000
/* A swing below this share of the peak is a rounding error. */
#define ROUNDING 1e-9
/* Moments that differ by less than this share of the iteration are the same moment. */
#define SLACK 1e-11
#define TWO_PI 6.28318530717958647692

/* A change of the power at a moment of the iteration. */
typedef struct power_step {
    double time_s;
    double change_w;
} power_step;

typedef struct power_steps {
    power_step *items;
    size_t count;
    double waiting_w; /* power if all ranks wait */
    double iteration_s;
} power_steps;

static int compare_times(const void *a, const void *b) {
    const power_step *x = a, *y = b;
    return (x->time_s > y->time_s) - (x->time_s < y->time_s);
}

/* Joins steps at the same moment. The times of different ranks are sums of different numbers, and
 * may differ in their last digits. Steps at the end of the iteration become one step at its start,
 * which is at the end of the list. */
static void join_steps(power_steps *steps) {
    double slack_s = SLACK * steps->iteration_s;
    size_t kept = 0;
    power_step at_end = {0};
    for (size_t i = 0; i < steps->count; i++) {
        power_step *step = &steps->items[i];
        if (step->time_s >= steps->iteration_s - slack_s)
            at_end.change_w += step->change_w;
        else if (kept > 0 && step->time_s <= steps->items[kept - 1].time_s + slack_s)
            steps->items[kept - 1].change_w += step->change_w;
        else
            steps->items[kept++] = *step;
    }
    steps->items[kept++] = at_end; /* list_steps has left room for it */
    steps->count = kept;
}

static void add_wait(power_steps *steps, double from_s, double until_s, double saving_w) {
    if (saving_w <= 0 || until_s <= from_s) return;
    steps->items[steps->count++] = (power_step){from_s, -saving_w};
    steps->items[steps->count++] = (power_step){until_s, saving_w};
}

/* Lowers the power during waits of cheaper kinds. */
static void add_waits(const harpe_problem *problem, const harpe_profile_point *const *points,
                      const double *start_s, power_steps *steps) {
    for (int rank = 0; rank < problem->rank_count; rank++) {
        double end_s = 0;
        for (size_t i = problem->rank_offset[rank]; i < problem->rank_offset[rank + 1]; i++) {
            add_wait(steps, end_s, start_s[i], problem->wait_saving_w[i]);
            end_s = start_s[i] + points[i]->time_s;
        }
        add_wait(steps, end_s, steps->iteration_s, problem->end_saving_w[rank]);
    }
}

/* Lists the steps, earliest first. An instruction without duration has no power. */
static harpe_status list_steps(const harpe_problem *problem, const int *frequency_mhz,
                               power_steps *steps, harpe_error *error) {
    size_t count = (size_t)problem->instruction_count;
    const harpe_profile_point **points = harpe_calloc(count, sizeof *points);
    double *start_s = harpe_calloc(count, sizeof *start_s);
    size_t ranks = (size_t)problem->rank_count; /* items: instructions, waits, the end */
    steps->items = harpe_calloc(4 * count + 2 * ranks + 1, sizeof *steps->items);
    harpe_status status = points && start_s && steps->items ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK)
        status = harpe_evaluate_find_points(problem, frequency_mhz, points, error);
    if (status == HARPE_OK) {
        steps->iteration_s = harpe_evaluate_points(problem, points, start_s).time_s;
        steps->waiting_w = harpe_problem_iteration_power_w(problem);
        steps->count = 2 * count;
        for (size_t i = 0; i < count; i++) {
            double waiting_w = harpe_problem_choice(problem, (int32_t)i)->blocking_power_w;
            double time_s = points[i]->time_s;
            double change_w = time_s > 0 ? points[i]->energy_j / time_s - waiting_w : 0;
            steps->items[2 * i] = (power_step){start_s[i], change_w};
            steps->items[2 * i + 1] = (power_step){start_s[i] + time_s, -change_w};
        }
        if (harpe_problem_has_any_wait_kinds(problem)) add_waits(problem, points, start_s, steps);
        qsort(steps->items, steps->count, sizeof *steps->items, compare_times);
    }
    free(points);
    free(start_s);
    return status;
}

/* Returns the highest power, before steps are joined with the start of the next iteration. */
static double highest_power_w(const power_steps *steps) {
    double slack_s = SLACK * steps->iteration_s;
    double power_w = steps->waiting_w, highest_w = 0;
    for (size_t i = 0; i < steps->count; i++) {
        const power_step *step = &steps->items[i];
        power_w += step->change_w;
        bool lasts = i + 1 < steps->count && steps->items[i + 1].time_s > step->time_s + slack_s;
        if (lasts && power_w > highest_w) highest_w = power_w;
    }
    return highest_w;
}

/* Finds the strongest harmonic in the band. The k-th harmonic of a periodic step function with the
 * steps d_j at the times t_j has the amplitude |sum of d_j exp(-2 pi i k t_j / T)| / (pi k), and
 * from peak to peak twice that. */
static harpe_status find_swing(const power_steps *steps, harpe_power_shape *shape,
                               harpe_error *error) {
    double first = fmax(1, ceil(BAND_LOW_HZ * steps->iteration_s * (1 - 1e-9)));
    double last = floor(BAND_HIGH_HZ * steps->iteration_s * (1 + 1e-9));
    last = fmin(last, HARMONICS_MAX);
    double(*turn)[2] = harpe_calloc(2 * steps->count, sizeof *turn);
    if (!turn) return harpe_fail_memory(error);
    double(*vector)[2] = turn + steps->count;
    double total_w = 0; /* no harmonic is stronger than 2 / (pi k) times this sum */
    double least_w = ROUNDING * shape->peak_w;
    for (size_t j = 0; j < steps->count; j++) {
        double share = steps->items[j].time_s / steps->iteration_s;
        double before = TWO_PI * fmod(first * share, 1);
        turn[j][0] = cos(TWO_PI * share);
        turn[j][1] = sin(TWO_PI * share);
        vector[j][0] = steps->items[j].change_w * cos(before);
        vector[j][1] = steps->items[j].change_w * sin(before);
        total_w += fabs(steps->items[j].change_w);
    }
    for (int64_t k = (int64_t)first; (double)k <= last; k++) {
        double factor = 4 / TWO_PI / (double)k;
        if (factor * total_w <= least_w) break;
        double real = 0, imaginary = 0;
        for (size_t j = 0; j < steps->count; j++) {
            double x = vector[j][0], y = vector[j][1];
            real += x;
            imaginary += y;
            vector[j][0] = x * turn[j][0] - y * turn[j][1];
            vector[j][1] = x * turn[j][1] + y * turn[j][0];
        }
        double swing_w = factor * hypot(real, imaginary);
        if (swing_w <= least_w) continue;
        least_w = swing_w;
        shape->swing_w = swing_w;
        shape->swing_hz = (double)k / steps->iteration_s;
    }
    free(turn);
    return HARPE_OK;
}

harpe_status harpe_plan_power_shape(const harpe_problem *problem, const int *frequency_mhz,
                                    harpe_power_shape *out, harpe_error *error) {
    power_steps steps = {0};
    harpe_power_shape shape = {0};
    harpe_status status = list_steps(problem, frequency_mhz, &steps, error);
    if (status == HARPE_OK) {
        shape.peak_w = highest_power_w(&steps);
        join_steps(&steps);
        status = find_swing(&steps, &shape, error);
    }
    free(steps.items);
    if (status == HARPE_OK) *out = shape;
    return status;
}
