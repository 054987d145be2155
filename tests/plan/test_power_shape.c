/* SPDX-License-Identifier: Apache-2.0 */
/* The power shape: square waves whose Fourier series is known, iterations computed by hand, and
 * random plans compared with sums over a fine grid of time. */
#include "test.h"

#include "instances.h"

#define PI 3.14159265358979323846

static const harpe_schedule_options one_by_one = {.ranks = 1, .microbatches = 1};

static harpe_power_shape shape_of(const harpe_problem *problem, const int *frequency_mhz) {
    harpe_power_shape shape;
    assert_works(harpe_plan_power_shape(problem, frequency_mhz, &shape, &failure));
    return shape;
}

/* One GPU that draws `first_w` for a time and then `second_w` for a time. */
static harpe_power_shape shape_of_two(double first_w, double first_s, double second_w,
                                      double second_s, double overhead_w) {
    owned_rows rows = {0};
    add_row(&rows, 0, "forward", 1400, first_s, first_w * first_s);
    add_row(&rows, 0, "backward", 1400, second_s, second_w * second_s);
    owned_problem problem = problem_with_overhead(&rows, &one_by_one, 0, overhead_w);
    const int frequency_mhz[2] = {1400, 1400};
    return shape_of(problem, frequency_mhz);
}

/* The fundamental of a square wave is 4 / pi times its height, from peak to peak. */
TEST(a_square_wave_swings_with_its_fundamental) {
    harpe_power_shape shape = shape_of_two(400, 1, 100, 1, 0);
    assert_near(shape.peak_w, 400, 1e-12);
    assert_near(shape.swing_w, 4 / PI * 300, 1e-12);
    assert_near(shape.swing_hz, 0.5, 1e-12);
    shape = shape_of_two(100, 1, 400, 1, 1000);
    assert_near(shape.peak_w, 1400, 1e-12);
    assert_near(shape.swing_w, 4 / PI * 300, 1e-12); /* a constant power does not swing */
}

/* A pulse of a share d of the period: the k-th harmonic is 4 / (pi k) |sin(pi k d)| heights. */
TEST(a_pulse_swings_with_its_strongest_harmonic) {
    harpe_power_shape shape = shape_of_two(400, 1, 100, 3, 0);
    assert_near(shape.swing_w, 4 / PI * sin(PI / 4) * 300, 1e-12);
    assert_near(shape.swing_hz, 0.25, 1e-12);
}

/* Components below 0.1 Hz are outside of the band: of a square wave of 40 s the fundamental
 * (0.025 Hz) does not count, the third harmonic (0.075 Hz) neither, and the fifth does. */
TEST(slow_and_fast_components_are_left_out) {
    harpe_power_shape shape = shape_of_two(400, 20, 100, 20, 0);
    assert_near(shape.swing_w, 4 / (5 * PI) * 300, 1e-12);
    assert_near(shape.swing_hz, 0.125, 1e-12);
    shape = shape_of_two(400, 5, 100, 5, 0); /* exactly 0.1 Hz is in the band */
    assert_near(shape.swing_hz, 0.1, 1e-12);
    shape = shape_of_two(400, 0.025, 100, 0.025, 0); /* exactly 20 Hz too */
    assert_near(shape.swing_hz, 20, 1e-12);
    shape = shape_of_two(400, 0.02, 100, 0.02, 0); /* 25 Hz */
    assert_true(shape.swing_w == 0 && shape.swing_hz == 0);
    assert_near(shape.peak_w, 400, 1e-12);
}

TEST(constant_power_does_not_swing) {
    harpe_power_shape shape = shape_of_two(300, 0.1, 300, 0.7, 50);
    assert_true(shape.swing_w == 0 && shape.swing_hz == 0);
    assert_near(shape.peak_w, 350, 1e-12);
}

/* Rank 0: F 0 to 1 s (300 W), B 4 to 6 s (200 W). Rank 1: F 1 to 2 s (500 W), B 2 to 4 s (400 W).
 * A rank that waits draws 50 W: 350 W, 550 W, 450 W, 250 W. */
TEST(two_ranks_by_hand) {
    owned_rows rows = {0};
    add_row(&rows, 0, "forward", 1400, 1, 300);
    add_row(&rows, 0, "backward", 1400, 2, 400);
    add_row(&rows, 1, "forward", 1400, 1, 500);
    add_row(&rows, 1, "backward", 1400, 2, 800);
    owned_problem problem = problem_1f1b(&rows, 2, 1, 50);
    const int frequency_mhz[4] = {0, 0, 0, 0};
    harpe_power_shape shape = shape_of(problem, frequency_mhz);
    assert_near(shape.peak_w, 550, 1e-12);
    /* The first harmonic of boxes of 1 s. From peak to peak, a box of a sixth of the period has 4 /
     * pi sin(pi / 6) times its height. */
    static const double power_w[6] = {350, 550, 450, 450, 250, 250};
    double real = 0, imaginary = 0;
    for (int i = 0; i < 6; i++) {
        real += power_w[i] * cos(PI / 3 * i);
        imaginary += power_w[i] * sin(PI / 3 * i);
    }
    assert_near(shape.swing_w, 4 / PI * sin(PI / 6) * hypot(real, imaginary), 1e-12);
    assert_near(shape.swing_hz, 1.0 / 6, 1e-12);
}

/* ---- Random plans ---------------------------------------------------------------------------- */

/* Returns the power of all ranks at a moment. */
static double power_at(const harpe_problem *problem, const harpe_profile_point *const *points,
                       const double *start_s, double time_s) {
    double power_w = problem->overhead_power_w;
    for (int r = 0; r < problem->rank_count; r++) {
        double rank_w = problem->blocking_power_w[r];
        for (size_t i = problem->rank_offset[r]; i < problem->rank_offset[r + 1]; i++) {
            bool runs = start_s[i] <= time_s && time_s < start_s[i] + points[i]->time_s;
            if (runs) rank_w = points[i]->energy_j / points[i]->time_s;
        }
        power_w += rank_w;
    }
    return power_w;
}

/* Integrates the power over a grid of time. The grid is uniform, so for a step function the error
 * of a component is at most the sum of all steps, times the width of a cell. */
static void assert_matches_grid(const harpe_problem *problem, const int *frequency_mhz) {
    enum { CELLS = 20000 };
    static double power_w[CELLS];
    size_t count = harpe_problem_instruction_count(problem);
    owned_array double *start_s = calloc(count, sizeof *start_s);
    const harpe_profile_point **points = calloc(count, sizeof *points);
    double steps_w = 0, highest_w = 0, mean_w = 0;
    harpe_plan plan;
    assert_works(harpe_plan_evaluate(problem, frequency_mhz, &plan, start_s, &failure));
    for (size_t i = 0; i < count; i++) {
        const harpe_choice *choice = harpe_problem_choice(problem, (int32_t)i);
        for (size_t p = 0; p < choice->point_count; p++)
            if (choice->points[p].frequency_mhz == frequency_mhz[i]) points[i] = &choice->points[p];
        steps_w += 2 * fabs(points[i]->energy_j / points[i]->time_s - choice->blocking_power_w);
    }
    for (int c = 0; c < CELLS; c++) {
        power_w[c] = power_at(problem, points, start_s, (c + 0.5) / CELLS * plan.time_s);
        highest_w = fmax(highest_w, power_w[c]);
        mean_w += power_w[c] / CELLS;
    }
    harpe_power_shape shape = shape_of(problem, frequency_mhz);
    double tolerance_w = 4 * steps_w / CELLS;
    assert_true(fabs(mean_w - plan.energy_j / plan.time_s) <= tolerance_w);
    assert_true(shape.peak_w >= highest_w * (1 - 1e-9));
    double strongest_w = 0;
    for (int k = 1; k <= 20 * plan.time_s * (1 + 1e-9); k++) {
        if (k < 0.1 * plan.time_s * (1 - 1e-9)) continue;
        double real = 0, imaginary = 0;
        for (int c = 0; c < CELLS; c++) {
            real += power_w[c] * cos(2 * PI * k * (c + 0.5) / CELLS);
            imaginary += power_w[c] * sin(2 * PI * k * (c + 0.5) / CELLS);
        }
        strongest_w = fmax(strongest_w, 4 * hypot(real, imaginary) / CELLS);
    }
    if (fabs(shape.swing_w - strongest_w) > tolerance_w)
        fail_msg("the swing is %.9g W, on the grid %.9g W", shape.swing_w, strongest_w);
    free(points);
}

TEST(random_plans_match_a_grid_of_time) {
    test_random random = {1};
    for (int trial = 0; trial < test_trials(20); trial++) {
        harpe_schedule_options options = random_1f1b(&random, 4, 4);
        test_profile_shape shape = random_shape(&random);
        shape.character = CHARACTER_MEASURED;
        owned_schedule schedule = schedule_of(&options);
        owned_rows rows = make_rows(schedule, &shape, &random);
        owned_problem problem = problem_with_overhead(&rows, &options, 80, 500);
        size_t count = harpe_problem_instruction_count(problem);
        owned_array int *frequency_mhz = calloc(count, sizeof *frequency_mhz);
        for (size_t i = 0; i < count; i++) {
            const harpe_choice *choice = harpe_problem_choice(problem, (int32_t)i);
            int p = random_int(&random, 0, (int)choice->point_count - 1);
            frequency_mhz[i] = choice->points[p].frequency_mhz;
        }
        assert_matches_grid(problem, frequency_mhz);
    }
}

TEST(an_unknown_frequency_leaves_the_result_unchanged) {
    owned_rows rows = {0};
    add_row(&rows, 0, "forward", 1400, 1, 300);
    add_row(&rows, 0, "backward", 1400, 1, 300);
    owned_problem problem = problem_from_rows(&rows, &one_by_one, 0);
    harpe_power_shape shape = {.peak_w = -1};
    const int frequency_mhz[2] = {1400, 1300};
    assert_int_equal(harpe_plan_power_shape(problem, frequency_mhz, &shape, NULL),
                     HARPE_INVALID_INPUT);
    assert_true(shape.peak_w == -1);
}
