/* SPDX-License-Identifier: Apache-2.0 */
/* Synthesised profiles are physically plausible, have the requested imbalance and noise, and are
 * the same every time. There is no comparison with real GPUs. */
#include "test.h"

#include <math.h>

#include <harpe/profile.h>

#include "instances.h"

static const harpe_synth_options usual = {.stages = 8, .imbalance = 1.2, .seed = 1};

static harpe_profile *make(harpe_synth_options options, double *blocking_power_w) {
    harpe_profile *profile = NULL;
    assert_works(harpe_profile_synthesize(&options, &profile, blocking_power_w, &failure));
    return profile;
}

static void assert_refused(harpe_synth_options options, harpe_status status, const char *expected) {
    harpe_profile *profile = NULL;
    double blocking_power_w = -1;
    assert_int_equal(harpe_profile_synthesize(&options, &profile, &blocking_power_w, &failure),
                     status);
    assert_string_equal(failure.message, expected);
    assert_null(profile);
    assert_true(blocking_power_w == -1);
}

/* Returns the index of the point with the least energy - waiting_w * time. */
static size_t cheapest(const harpe_profile_entry *entry, double waiting_w) {
    size_t best = 0;
    for (size_t i = 1; i < entry->point_count; i++) {
        const harpe_profile_point *a = &entry->points[i], *b = &entry->points[best];
        if (a->energy_j - waiting_w * a->time_s < b->energy_j - waiting_w * b->time_s) best = i;
    }
    return best;
}

TEST(every_model_is_physically_sensible) {
    static const double power_limit_w[] = {300, 300, 400, 700};
    static const int max_mhz[] = {1530, 1740, 1410, 1980};
    const char *const *models = harpe_synth_gpu_models();
    size_t count = 0;
    for (; models[count]; count++) {
        harpe_synth_options options = usual;
        options.gpu_model = models[count];
        double blocking_w = 0;
        owned_profile profile = make(options, &blocking_w);
        assert_true(blocking_w > 30 && blocking_w < power_limit_w[count] / 2);
        for (size_t i = 0; i < harpe_profile_entry_count(profile); i++) {
            const harpe_profile_entry *entry = harpe_profile_entry_at(profile, i);
            const harpe_profile_point *points = entry->points;
            size_t last = entry->point_count - 1;
            assert_int_equal(points[0].frequency_mhz, max_mhz[count]);
            assert_true(points[last].frequency_mhz >= 0.6 * max_mhz[count]);
            assert_true(points[last].frequency_mhz < 0.62 * max_mhz[count]);
            double power_w = points[0].energy_j / points[0].time_s;
            assert_true(power_w > 0.9 * power_limit_w[count] && power_w < power_limit_w[count]);
            for (size_t k = 1; k <= last; k++) {
                assert_true(points[k].time_s > points[k - 1].time_s);
                assert_true(points[k].energy_j / points[k].time_s <
                            points[k - 1].energy_j / points[k - 1].time_s);
            }
            /* Less than proportional to the clock, because memory does not slow down with it. */
            assert_true(points[last].time_s / points[0].time_s <
                        (double)points[0].frequency_mhz / points[last].frequency_mhz);
            assert_in_range(cheapest(entry, 0), 1, last - 1);
        }
    }
    assert_int_equal(count, 4);
}

TEST(some_lowest_clocks_are_a_waste_even_while_waiting) {
    const char *const *models = harpe_synth_gpu_models();
    for (size_t i = 0; models[i]; i++) {
        harpe_synth_options options = usual;
        options.gpu_model = models[i];
        double blocking_w = 0;
        owned_profile profile = make(options, &blocking_w);
        const harpe_profile_entry *forward = harpe_profile_find(profile, 0, "forward");
        const harpe_profile_entry *backward = harpe_profile_find(profile, 0, "backward");
        assert_in_range(cheapest(forward, blocking_w), 1, forward->point_count - 2);
        assert_true(cheapest(backward, blocking_w) > cheapest(forward, blocking_w));
    }
}

TEST(clocks_are_those_of_the_drivers) {
    harpe_synth_options options = usual;
    owned_profile profile = make(options, NULL);
    const harpe_profile_entry *entry = harpe_profile_entry_at(profile, 0);
    assert_int_equal(entry->point_count, 38); /* as in measured profiles of A100 */
    assert_int_equal(entry->points[1].frequency_mhz, 1395);
    assert_int_equal(entry->points[37].frequency_mhz, 855);
    harpe_profile_free(profile);

    static const int v100[] = {1530, 1522, 1515, 1507, 1500};
    options.gpu_model = "V100";
    profile = make(options, NULL);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(harpe_profile_entry_at(profile, 0)->points[i].frequency_mhz, v100[i]);
}

TEST(imbalance_is_what_was_asked_for) {
    static const int stages[] = {1, 2, 3, 8, 64};
    static const double imbalances[] = {1, 1.05, 1.5, 1.9, 7.3};
    for (size_t s = 0; s < 5; s++) {
        for (size_t k = 0; k < 5; k++) {
            if (imbalances[k] > 0.9 * stages[s] + 0.1) continue;
            harpe_synth_options options = {
                .stages = stages[s], .imbalance = imbalances[k], .seed = 17 * s + k};
            owned_profile profile = make(options, NULL);
            double sum_s = 0, slowest_s = 0;
            for (int stage = 0; stage < stages[s]; stage++) {
                double time_s = harpe_profile_find(profile, stage, "forward")->points[0].time_s;
                sum_s += time_s;
                slowest_s = fmax(slowest_s, time_s);
            }
            assert_true(fabs(sum_s / stages[s] - 0.050) < 1e-8);
            assert_true(fabs(slowest_s / (sum_s / stages[s]) - imbalances[k]) < 1e-6);
            double last_s = harpe_profile_find(profile, stages[s] - 1, "forward")->points[0].time_s;
            assert_true(last_s == slowest_s);
        }
    }
}

TEST(backward_takes_about_twice_as_long) {
    harpe_synth_options options = usual;
    options.forward_time_s = 0.2;
    options.imbalance = 1;
    owned_profile profile = make(options, NULL);
    assert_int_equal(harpe_profile_entry_count(profile), 16);
    double forward_s = harpe_profile_find(profile, 3, "forward")->points[0].time_s;
    double backward_s = harpe_profile_find(profile, 3, "backward")->points[0].time_s;
    assert_true(fabs(forward_s - 0.2) < 1e-9);
    assert_true(backward_s > 1.8 * forward_s && backward_s < 2.2 * forward_s);
}

TEST(split_backward_adds_halves_and_changes_nothing_else) {
    harpe_synth_options options = usual;
    options.noise = 0.02;
    owned_profile whole = make(options, NULL);
    options.split_backward = true;
    owned_profile split = make(options, NULL);
    assert_int_equal(harpe_profile_entry_count(split), 32);
    for (size_t i = 0; i < harpe_profile_entry_count(whole); i++) {
        const harpe_profile_entry *a = harpe_profile_entry_at(whole, i);
        const harpe_profile_entry *b = harpe_profile_find(split, a->stage, a->instruction);
        assert_memory_equal(a->points, b->points, a->point_count * sizeof *a->points);
    }
    double whole_s = harpe_profile_find(split, 2, "backward")->points[0].time_s;
    double input_s = harpe_profile_find(split, 2, "backward_input")->points[0].time_s;
    double weight_s = harpe_profile_find(split, 2, "backward_weight")->points[0].time_s;
    assert_true(input_s > weight_s);
    assert_true(fabs(input_s + weight_s - whole_s) < 0.1 * whole_s);
}

TEST(noise_has_the_deviation_that_was_asked_for) {
    harpe_synth_options options = {.stages = 64, .imbalance = 1, .seed = 5};
    owned_profile clean = make(options, NULL);
    options.noise = 0.05;
    owned_profile noisy = make(options, NULL);
    double sum[2] = {0, 0}, squares[2] = {0, 0}, product = 0, count = 0;
    for (size_t i = 0; i < harpe_profile_entry_count(clean); i++) {
        const harpe_profile_entry *a = harpe_profile_entry_at(clean, i);
        const harpe_profile_entry *b = harpe_profile_entry_at(noisy, i);
        for (size_t k = 0; k < a->point_count; k++) {
            double time = b->points[k].time_s / a->points[k].time_s - 1;
            double energy = b->points[k].energy_j / a->points[k].energy_j - 1;
            assert_true(fabs(time) < 0.21 && fabs(energy) < 0.21);
            sum[0] += time;
            sum[1] += energy;
            squares[0] += time * time;
            squares[1] += energy * energy;
            product += time * energy;
            count++;
        }
    }
    for (int i = 0; i < 2; i++) {
        assert_true(fabs(sum[i] / count) < 0.003);
        assert_true(fabs(sqrt(squares[i] / count) - 0.05) < 0.003);
    }
    assert_true(fabs(product / count) < 0.1 * 0.05 * 0.05);
}

/* Fixed numbers: a profile that is created on another machine or later must equal this one. */
TEST(profiles_are_the_same_on_every_machine) {
    harpe_synth_options options = {.stages = 2, .imbalance = 1.1, .noise = 0.01, .seed = 42};
    owned_profile profile = make(options, NULL);
    const harpe_profile_entry *entry = harpe_profile_find(profile, 1, "backward");
    assert_true(entry->points[0].time_s == 0.106892801);
    assert_true(entry->points[0].energy_j == 42.331452);
    assert_true(entry->points[37].time_s == 0.160363925);
    assert_true(entry->points[37].energy_j == 32.171124);
}

TEST(extreme_options_work) {
    harpe_synth_options options = {.stages = 4096,
                                   .imbalance = 3686.5,
                                   .noise = 0.2,
                                   .seed = UINT64_MAX,
                                   .forward_time_s = 1e-4,
                                   .split_backward = true};
    owned_profile profile = make(options, NULL);
    assert_int_equal(harpe_profile_stage_count(profile), 4096);
    harpe_profile_free(profile);
    options = (harpe_synth_options){.stages = 1, .imbalance = 1, .forward_time_s = 1000};
    profile = make(options, NULL);
}

TEST(senseless_options_are_refused) {
#define IMBALANCE "imbalance (slowest stage over the mean) must be 1 to "
#define NOISE "noise (relative standard deviation) must be 0 to 0.2, not "
#define FORWARD "forward time must be 0.0001 to 1000 s (or 0 for the default), not "
    static const struct {
        harpe_synth_options options;
        const char *message;
    } cases[] = {
        {{.stages = 0, .imbalance = 1}, "stages must be 1 to 4096, not 0"},
        {{.stages = 4097, .imbalance = 1}, "stages must be 1 to 4096, not 4097"},
        {{.stages = 8, .imbalance = 0.9}, IMBALANCE "7.3 for 8 stages, not 0.9"},
        {{.stages = 8, .imbalance = 8}, IMBALANCE "7.3 for 8 stages, not 8"},
        {{.stages = 8, .imbalance = NAN}, IMBALANCE "7.3 for 8 stages, not nan"},
        {{.stages = 1, .imbalance = 1.5}, IMBALANCE "1 for 1 stage, not 1.5"},
        {{.stages = 8, .imbalance = 1, .noise = 0.21}, NOISE "0.21"},
        {{.stages = 8, .imbalance = 1, .noise = -0.01}, NOISE "-0.01"},
        {{.stages = 8, .imbalance = 1, .forward_time_s = -1}, FORWARD "-1"},
        {{.stages = 8, .imbalance = 1, .forward_time_s = NAN}, FORWARD "nan"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_refused(cases[i].options, HARPE_INVALID_ARGUMENT, cases[i].message);
    harpe_synth_options options = usual;
    options.gpu_model = "TPU";
    assert_refused(options, HARPE_NOT_FOUND,
                   "unknown GPU model 'TPU'; known are V100, A40, A100, H100");
    harpe_profile *profile = NULL;
    assert_int_equal(harpe_profile_synthesize(NULL, &profile, NULL, NULL), HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_profile_synthesize(&usual, NULL, NULL, NULL), HARPE_INVALID_ARGUMENT);
}
