/* SPDX-License-Identifier: Apache-2.0 */
/* Pareto options: compares the sweep with a check of all pairs and, for the hull, of all triples,
 * on random, noisy, linear and degenerate points. */
#include "test.h"

#include <math.h>

#include "plan/problem_internal.h"

#define POINTS_MAX 40

typedef struct made_options {
    harpe_option *items;
    size_t count;
} made_options;

static void options_clear(made_options *options) { free(options->items); }

static made_options make(const harpe_profile_point *points, size_t count, double blocking_w) {
    made_options options = {0};
    assert_works(harpe_options_from_points(points, count, blocking_w, &options.items,
                                           &options.count, &failure));
    return options;
}

static double effective(const harpe_profile_point *point, double blocking_w) {
    return point->energy_j - blocking_w * point->time_s;
}

/* Returns true if another point beats this point, or equals it at a lower frequency. */
static bool is_beaten(const harpe_profile_point *points, size_t count, size_t index,
                      double blocking_w) {
    double time_s = points[index].time_s, effective_j = effective(&points[index], blocking_w);
    for (size_t k = 0; k < count; k++) {
        double other_s = points[k].time_s, other_j = effective(&points[k], blocking_w);
        if (other_s > time_s || other_j > effective_j) continue;
        if (other_s < time_s || other_j < effective_j ||
            points[k].frequency_mhz < points[index].frequency_mhz)
            return true;
    }
    return false;
}

/* Checks that the options are exactly the unbeaten points. */
static void assert_pareto(const harpe_profile_point *points, size_t count, double blocking_w,
                          const made_options *options) {
    size_t unbeaten = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_beaten(points, count, i, blocking_w)) continue;
        unbeaten++;
        size_t found = 0;
        for (size_t k = 0; k < options->count; k++) {
            const harpe_option *option = &options->items[k];
            found += option->frequency_mhz == points[i].frequency_mhz &&
                     option->time_s == points[i].time_s && option->energy_j == points[i].energy_j &&
                     option->effective_energy_j == effective(&points[i], blocking_w);
        }
        assert_int_equal(found, 1);
    }
    assert_int_equal(unbeaten, options->count);
    for (size_t i = 1; i < options->count; i++) {
        assert_true(options->items[i].time_s > options->items[i - 1].time_s);
        assert_true(options->items[i].effective_energy_j <
                    options->items[i - 1].effective_energy_j);
    }
}

/* Returns the distance of an option below the lowest chord over it. A negative distance means that
 * it is above a chord and not on the hull. +infinity for the first and the last. */
static double depth_below_chords(const made_options *options, size_t index) {
    double depth_j = INFINITY;
    const harpe_option *items = options->items;
    for (size_t a = 0; a < index; a++) {
        for (size_t b = index + 1; b < options->count; b++) {
            double share =
                (items[index].time_s - items[a].time_s) / (items[b].time_s - items[a].time_s);
            double chord_j =
                items[a].effective_energy_j * (1 - share) + items[b].effective_energy_j * share;
            depth_j = fmin(depth_j, chord_j - items[index].effective_energy_j);
        }
    }
    return depth_j;
}

static void assert_hull(const made_options *options) {
    double last_slope = -INFINITY;
    size_t last = 0;
    assert_true(options->items[0].is_on_hull);
    assert_true(options->items[options->count - 1].is_on_hull);
    double scale_j = fabs(options->items[0].energy_j) + fabs(options->items[0].effective_energy_j);
    for (size_t i = 0; i < options->count; i++) {
        double depth_j = depth_below_chords(options, i);
        if (depth_j > 1e-10 * scale_j) assert_true(options->items[i].is_on_hull);
        if (depth_j < -1e-10 * scale_j) assert_false(options->items[i].is_on_hull);
        if (i == 0 || !options->items[i].is_on_hull) continue;
        double slope =
            (options->items[i].effective_energy_j - options->items[last].effective_energy_j) /
            (options->items[i].time_s - options->items[last].time_s);
        assert_true(slope > last_slope && slope < 0);
        last_slope = slope;
        last = i;
    }
}

static double random_share(void) { return (double)rand() / RAND_MAX; }

/* Shapes: a coarse grid (many ties), a convex curve, the same with noise, a straight line. */
static size_t random_points(int shape, harpe_profile_point *points) {
    size_t count = (size_t)(1 + rand() % POINTS_MAX);
    for (size_t i = 0; i < count; i++) {
        double x = random_share();
        double energy_j = 10 + 20 * exp(-4 * x);
        if (shape == 0) {
            x = rand() % 6 / 5.0;
            energy_j = 1 + rand() % 6;
        } else if (shape == 2) {
            energy_j *= 1 + 0.2 * (random_share() - 0.5);
        } else if (shape == 3) {
            energy_j = 30 - 20 * x;
        }
        points[i] = (harpe_profile_point){
            .frequency_mhz = 200 + (int)i, .time_s = 0.05 + 0.05 * x, .energy_j = energy_j};
    }
    return count;
}

TEST(options_are_exactly_the_unbeaten_points) {
    static const double blocking_w[] = {0, 10, 83.64, 400, 5000};
    srand(1);
    for (int round = 0; round < 4000; round++) {
        harpe_profile_point points[POINTS_MAX];
        size_t count = random_points(round % 4, points);
        double waiting_w = blocking_w[rand() % 5];
        made_options options = make(points, count, waiting_w);
        assert_pareto(points, count, waiting_w, &options);
        assert_hull(&options);
        free(options.items);
    }
}

TEST(collinear_points_are_options_but_no_corners) {
    harpe_profile_point points[POINTS_MAX];
    for (int i = 0; i < POINTS_MAX; i++)
        points[i] = (harpe_profile_point){1410 - 15 * i, 0.05 + 0.0007 * i, 23.7 - 0.1 * i};
    AT_END(options_clear) made_options options = make(points, POINTS_MAX, 83.64);
    assert_int_equal(options.count, POINTS_MAX);
    for (size_t i = 0; i < options.count; i++)
        assert_int_equal(options.items[i].is_on_hull, i == 0 || i + 1 == options.count);
}

TEST(nearly_equal_times_keep_slopes_in_order) {
    srand(3);
    for (int round = 0; round < 2000; round++) {
        harpe_profile_point points[POINTS_MAX];
        double time_s = 0.05;
        for (int i = 0; i < POINTS_MAX; i++) {
            points[i] = (harpe_profile_point){i, time_s, 20 * (1 + 1e-15 * (rand() % 1000))};
            for (int step = rand() % 4; step > 0; step--)
                time_s = nextafter(time_s, 1);
        }
        AT_END(options_clear)
        made_options options = make(points, POINTS_MAX, round % 2 ? 83.64 : 0);
        double last_slope = -INFINITY;
        const harpe_option *last = NULL;
        for (size_t i = 0; i < options.count; i++) {
            const harpe_option *option = &options.items[i];
            if (!option->is_on_hull) continue;
            if (last) {
                double slope = (option->effective_energy_j - last->effective_energy_j) /
                               (option->time_s - last->time_s);
                assert_true(slope > last_slope && slope < 0);
                last_slope = slope;
            }
            last = option;
        }
        assert_ptr_equal(last, &options.items[options.count - 1]);
    }
}

TEST(senseless_arguments_are_refused) {
    static const double bad_w[] = {-1, NAN, INFINITY, 2e9};
    harpe_profile_point point = {1410, 1, 10};
    harpe_option *options = NULL;
    size_t count = 77;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(harpe_options_from_points(&point, 1, bad_w[i], &options, &count, &failure),
                         HARPE_INVALID_ARGUMENT);
    }
    assert_int_equal(harpe_options_from_points(&point, 1, -1, &options, &count, &failure),
                     HARPE_INVALID_ARGUMENT);
    assert_string_equal(failure.message, "blocking power must be 0 to 1e+09 W, not -1");
    assert_int_equal(harpe_options_from_points(&point, 0, 0, &options, &count, NULL),
                     HARPE_INVALID_ARGUMENT);
    assert_null(options);
    assert_int_equal(count, 77);
}
