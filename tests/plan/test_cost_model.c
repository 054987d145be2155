/* SPDX-License-Identifier: Apache-2.0 */
/* Both curves of the relaxation: the hull and the exponential fit. The points have a known truth,
 * or are noisy, linear, flat or too few, or come from measured profiles if they are available. */
#include "test.h"

#include <math.h>

#include "plan/problem_internal.h"

#include "instances.h"

#define POINTS_MAX 60

typedef struct made_curve {
    harpe_option *options;
    size_t option_count;
    harpe_curve curve;
    bool fitted;
    double coefficients[3];
} made_curve;

static void clear(made_curve *made) {
    free(made->options);
    harpe_curve_clear(&made->curve);
}
#define owned_curve AT_END(clear) made_curve

static void assert_valid(const made_curve *made) {
    const harpe_curve *curve = &made->curve;
    double last_slope = -INFINITY;
    assert_true(curve->count >= 1);
    assert_true(curve->time_s[0] == made->options[0].time_s);
    for (size_t i = 1; i < curve->count; i++) {
        assert_true(curve->time_s[i] > curve->time_s[i - 1]);
        double slope = (curve->effective_energy_j[i] - curve->effective_energy_j[i - 1]) /
                       (curve->time_s[i] - curve->time_s[i - 1]);
        assert_true(slope < 0);
        assert_true(slope > last_slope);
        last_slope = slope;
    }
}

static made_curve fit(const harpe_profile_point *points, size_t count, double blocking_w,
                      double unit_time_s, double noise_factor) {
    made_curve made = {0};
    harpe_status status = harpe_options_from_points(points, count, blocking_w, &made.options,
                                                    &made.option_count, &failure);
    if (status == HARPE_OK)
        status = harpe_curve_from_exponential(points, count, made.options, made.option_count,
                                              blocking_w, unit_time_s, noise_factor, &made.curve,
                                              &made.fitted, made.coefficients, &failure);
    if (status != HARPE_OK) fail_msg("%s", failure.message);
    assert_valid(&made);
    return made;
}

static double random_share(void) { return (double)rand() / RAND_MAX; }

/* ---- Hull ------------------------------------------------------------------------------------ */

TEST(hull_curve_is_the_corners_of_the_options) {
    srand(11);
    for (int round = 0; round < 1000; round++) {
        harpe_profile_point points[POINTS_MAX];
        size_t count = (size_t)(1 + rand() % POINTS_MAX);
        for (size_t i = 0; i < count; i++)
            points[i] = (harpe_profile_point){(int)i, 1 + random_share(), 5 + random_share()};
        owned_curve made = {0};
        assert_works(harpe_options_from_points(points, count, 3, &made.options, &made.option_count,
                                               &failure));
        assert_works(harpe_curve_from_hull(made.options, made.option_count, &made.curve, &failure));
        assert_valid(&made);
        size_t corner = 0;
        for (size_t i = 0; i < made.option_count; i++) {
            if (!made.options[i].is_on_hull) continue;
            assert_true(made.curve.time_s[corner] == made.options[i].time_s);
            assert_true(made.curve.effective_energy_j[corner] ==
                        made.options[i].effective_energy_j);
            corner++;
        }
        assert_int_equal(corner, made.curve.count);
    }
}

TEST(hull_of_nothing_is_refused) {
    AT_END(harpe_curve_clear) harpe_curve curve = {0};
    assert_int_equal(harpe_curve_from_hull(NULL, 0, &curve, NULL), HARPE_INVALID_ARGUMENT);
    assert_null(curve.time_s);
    harpe_curve_clear(NULL);
}

/* ---- Exponential ----------------------------------------------------------------------------- */

static size_t exponential_points(double a, double b, double c, double noise,
                                 harpe_profile_point *points) {
    const size_t count = 38;
    for (size_t i = 0; i < count; i++) {
        double time_s = 0.05 * (1 + 0.6 * (double)i / (double)(count - 1));
        double factor = 1 + noise * (random_share() - 0.5);
        points[i] =
            (harpe_profile_point){1410 - 15 * (int)i, time_s, (a * exp(b * time_s) + c) * factor};
    }
    return count;
}

TEST(known_coefficients_are_found) {
    static const double bends[] = {-1, -20, -100, -400};
    for (size_t i = 0; i < 4; i++) {
        harpe_profile_point points[POINTS_MAX];
        double a = 10 * exp(-bends[i] * 0.05); /* falls by up to 10 J */
        size_t count = exponential_points(a, bends[i], 14, 0, points);
        owned_curve made = fit(points, count, 80, 0.001, 0.95);
        assert_true(made.fitted);
        assert_true(fabs(made.coefficients[1] / bends[i] - 1) < 1e-3);
        assert_true(fabs(made.coefficients[0] / a - 1) < 1e-3);
        assert_true(fabs(made.coefficients[2] - 14) < 1e-2);
        for (size_t k = 0; k < made.curve.count; k++) {
            double time_s = made.curve.time_s[k];
            double truth_j = a * exp(bends[i] * time_s) + 14 - 80 * time_s;
            assert_true(fabs(made.curve.effective_energy_j[k] - truth_j) < 1e-6);
        }
    }
}

TEST(noise_is_smoothed) {
    srand(5);
    for (int round = 0; round < 200; round++) {
        harpe_profile_point points[POINTS_MAX];
        double a = 10 * exp(60 * 0.05);
        size_t count = exponential_points(a, -60, 14, 0.02, points);
        owned_curve made = fit(points, count, 80, 0.001, 0.95);
        assert_true(made.fitted);
        assert_true(made.coefficients[0] > 0 && made.coefficients[1] < 0);
        for (size_t k = 0; k < made.curve.count; k++) {
            double time_s = made.curve.time_s[k];
            double truth_j = a * exp(-60 * time_s) + 14 - 80 * time_s;
            /* Pareto points are those that noise has made cheap: below the truth, but within the
             * noise. */
            assert_true(fabs(made.curve.effective_energy_j[k] - truth_j) < 0.03 * 24);
        }
    }
}

TEST(no_start_nearby_gives_a_better_fit) {
    srand(9);
    for (int round = 0; round < 100; round++) {
        harpe_profile_point points[POINTS_MAX];
        size_t count =
            exponential_points(4 + 20 * random_share(), -5 - 100 * random_share(), 14, 0, points);
        /* Falls strictly despite the noise, so that all points are fitted. */
        for (size_t i = 1; i < count; i++)
            points[i].energy_j = points[i - 1].energy_j - 0.3 * random_share() / (double)i - 1e-6;
        owned_curve made = fit(points, count, 0, 0.001, 0.95);
        assert_true(made.fitted);
        double best = 0;
        for (int trial = 0; trial <= 300; trial++) {
            double change[3] = {1, 1, 0};
            for (int k = 0; k < 3 && trial > 0; k++)
                change[k] += 0.02 * (random_share() - 0.5);
            double squares = 0;
            for (size_t i = 0; i < count; i++) {
                /* Rotates about the first point. The parameter a alone would move everything. */
                double from_start_s = points[i].time_s - points[0].time_s;
                double height_j =
                    made.coefficients[0] * exp(made.coefficients[1] * points[0].time_s);
                double fitted_j =
                    height_j * change[0] * exp(made.coefficients[1] * change[1] * from_start_s) +
                    made.coefficients[2] + change[2] - height_j * (change[0] - 1);
                squares += (fitted_j - points[i].energy_j) * (fitted_j - points[i].energy_j);
            }
            if (trial == 0) best = squares;
            assert_true(squares >= best * (1 - 1e-9));
        }
    }
}

TEST(grid_has_unit_time_and_both_ends) {
    harpe_profile_point points[POINTS_MAX];
    size_t count = exponential_points(10 * exp(60 * 0.05), -60, 14, 0, points);
    owned_curve made = fit(points, count, 80, 0.0009, 0.95);
    assert_int_equal(made.curve.count, 35); /* 0.03 s / 0.9 ms = 33.3 steps */
    assert_true(made.curve.time_s[34] == made.options[made.option_count - 1].time_s);
    for (size_t i = 1; i < 34; i++)
        assert_true(fabs(made.curve.time_s[i] - made.curve.time_s[i - 1] - 0.0009) < 1e-12);
    clear(&made);
    made = fit(points, count, 80, 0.001, 0.95); /* 30 steps, without a small step at the end */
    assert_int_equal(made.curve.count, 31);
    clear(&made);
    made = fit(points, count, 80, 0, 0); /* the defaults */
    assert_int_equal(made.curve.count, 31);
    clear(&made);
    made = fit(points, count, 80, 10, 0.95);
    assert_int_equal(made.curve.count, 2);
}

TEST(too_fine_a_grid_is_refused) {
    harpe_profile_point points[POINTS_MAX];
    size_t count = exponential_points(10 * exp(60 * 0.05), -60, 14, 0, points);
    owned_curve made = fit(points, count, 80, 1.6e-6, 0.95);
    assert_true(made.curve.count > 18000);
    harpe_curve curve = {0};
    bool fitted = false;
    double coefficients[3] = {7, 7, 7};
    assert_int_equal(harpe_curve_from_exponential(points, count, made.options, made.option_count,
                                                  80, 1e-7, 0.95, &curve, &fitted, coefficients,
                                                  &failure),
                     HARPE_LIMIT_EXCEEDED);
    assert_string_equal(
        failure.message,
        "a unit time of 0.0000001 s cuts durations from 0.05 to 0.08 s into more than "
        "20000 steps; raise --unit-time to 0.0000016 or more");
    assert_null(curve.time_s);
    assert_true(coefficients[0] == 7);
}

TEST(one_and_two_points_keep_their_hull) {
    harpe_profile_point points[] = {{1410, 1, 10}, {1200, 2, 4}};
    for (size_t count = 1; count <= 2; count++) {
        owned_curve made = fit(points, count, 0, 0.001, 0.95);
        assert_false(made.fitted);
        assert_int_equal(made.curve.count, count);
        assert_true(made.curve.effective_energy_j[0] == 10);
    }
}

TEST(three_points_are_met_exactly) {
    harpe_profile_point points[] = {{1410, 0.1, 10}, {1200, 0.15, 7}, {1000, 0.2, 6}};
    owned_curve made = fit(points, 3, 0, 0.05, 0.95);
    assert_true(made.fitted);
    assert_int_equal(made.curve.count, 3);
    for (size_t i = 0; i < 3; i++)
        assert_true(fabs(made.curve.effective_energy_j[i] - points[i].energy_j) < 1e-6);
}

TEST(linear_and_concave_points_work) {
    for (int shape = 0; shape < 2; shape++) {
        harpe_profile_point points[20];
        for (int i = 0; i < 20; i++) {
            double x = i / 19.0;
            points[i] =
                (harpe_profile_point){1410 - i, 0.1 + 0.1 * x, 20 - 5 * (shape == 0 ? x : x * x)};
        }
        owned_curve made = fit(points, 20, 50, 0.001, 0.95);
        assert_true(made.fitted);
        size_t last = made.curve.count - 1;
        assert_true(fabs(made.curve.effective_energy_j[0] - (20 - 5)) < 1.5);
        assert_true(fabs(made.curve.effective_energy_j[last] - (15 - 10)) < 1.5);
    }
}

TEST(identical_points_keep_their_hull) {
    harpe_profile_point points[] = {{1410, 1, 10}, {1200, 1, 10}, {1000, 1, 10}, {800, 1, 10}};
    owned_curve made = fit(points, 4, 70, 0.001, 0.95);
    assert_false(made.fitted);
    assert_int_equal(made.curve.count, 1);
    clear(&made);
    /* There is nothing to gain except waiting: with blocking power, the slow points are options. */
    for (int i = 0; i < 4; i++)
        points[i].time_s = 1 + 0.1 * i;
    made = fit(points, 4, 70, 0.001, 0.95);
    assert_false(made.fitted);
    assert_int_equal(made.curve.count, 2);
}

TEST(short_fronts_are_filtered_with_the_noise_factor) {
    /* The true front consists of the first two points. The others cost 2, 4 and 10 % more than the
     * second. */
    harpe_profile_point points[] = {
        {1410, 1.0, 12}, {1395, 1.1, 10}, {1380, 1.2, 10.2}, {1365, 1.3, 10.4}, {1350, 1.4, 11}};
    made_curve strict = fit(points, 5, 20, 0.1, 1);
    assert_false(strict.fitted);
    owned_curve relaxed = fit(points, 5, 20, 0.1, 0.95);
    assert_true(relaxed.fitted);
    /* Least squares over the first four points: the tail has their mean. */
    double tail_j =
        relaxed.coefficients[0] * exp(relaxed.coefficients[1] * 1.3) + relaxed.coefficients[2];
    assert_true(fabs(tail_j - 10.2) < 0.02);
    clear(&strict);
}

TEST(steep_curves_far_from_zero_time_keep_their_hull_or_fit) {
    for (int digits = 1; digits < 9; digits++) {
        harpe_profile_point points[10];
        for (int i = 0; i < 10; i++) {
            double x = i / 9.0;
            points[i] =
                (harpe_profile_point){1410 - i, 1 + x * pow(10, -digits), 10 + 5 * exp(-6 * x)};
        }
        owned_curve made = fit(points, 10, 0, 0.001, 0.95);
        assert_true(made.curve.count >= 2);
        for (int k = 0; k < 3; k++)
            assert_true(isfinite(made.coefficients[k]));
    }
}

TEST(random_points_always_give_a_valid_curve) {
    srand(21);
    static const double blocking_w[] = {0, 1, 83.64, 3000};
    for (int round = 0; round < 1500; round++) {
        harpe_profile_point points[POINTS_MAX];
        size_t count = (size_t)(1 + rand() % POINTS_MAX);
        for (size_t i = 0; i < count; i++) {
            points[i] = (harpe_profile_point){(int)i, 0.01 + 0.1 * random_share(),
                                              1 + 30 * random_share() * random_share()};
        }
        owned_curve made = fit(points, count, blocking_w[round % 4], 0.002, 0.9);
    }
}

TEST(senseless_arguments_are_refused) {
    harpe_profile_point point = {1410, 1, 10};
    harpe_option option = {.time_s = 1, .energy_j = 10, .effective_energy_j = 10};
    harpe_curve curve = {0};
    bool fitted = false;
    double coefficients[3];
    static const double bad[][2] = {{-1, 0.95}, {NAN, 0.95},  {INFINITY, 0.95},
                                    {1, -0.1},  {1, 1.00001}, {1, NAN}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(harpe_curve_from_exponential(&point, 1, &option, 1, 0, bad[i][0],
                                                      bad[i][1], &curve, &fitted, coefficients,
                                                      NULL),
                         HARPE_INVALID_ARGUMENT);
    }
    assert_int_equal(harpe_curve_from_exponential(&point, 0, &option, 1, 0, 1, 1, &curve, &fitted,
                                                  coefficients, NULL),
                     HARPE_INVALID_ARGUMENT);
    assert_null(curve.time_s);
}

/* ---- Measured data --------------------------------------------------------------------------- */

TEST(measured_profiles_are_fitted_closely) {
    for (size_t n = 0; n < MEASURED_PROFILE_COUNT; n++) {
        owned_profile profile = data_profile(measured_profiles[n]);
        for (size_t i = 0; i < harpe_profile_entry_count(profile); i++) {
            const harpe_profile_entry *entry = harpe_profile_entry_at(profile, i);
            owned_curve made = fit(entry->points, entry->point_count, 83.64, 0.001, 0.95);
            assert_true(made.fitted);
            /* Over the fitted part: up to the least energy. */
            double least_j = INFINITY;
            for (size_t k = 0; k < entry->point_count; k++) {
                const harpe_profile_point *point = &entry->points[k];
                least_j = fmin(least_j, point->energy_j);
                if (point->energy_j > least_j) continue;
                double fitted_j = made.coefficients[0] * exp(made.coefficients[1] * point->time_s) +
                                  made.coefficients[2];
                assert_true(fabs(fitted_j / point->energy_j - 1) < 0.03);
            }
        }
    }
}
