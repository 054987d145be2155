/* SPDX-License-Identifier: Apache-2.0 */
/* Compares counters with integrated power on synthetic power curves with known energies: correct
 * counters agree in about 95 of 100 cases, and wrong ones are found. */
#include "test.h"

#include <math.h>

#include "client/profiler_internal.h"

/* A training whose steps have a busy part and a waiting part. */
typedef struct training {
    double step_s, busy_share, busy_w, waiting_w;
    double counter_period_s, counter_factor;
} training;

static double power_of(const training *one, double time_s) {
    return fmod(time_s, one->step_s) < one->busy_share * one->step_s ? one->busy_w : one->waiting_w;
}

static double energy_of(const training *one, double time_s) {
    double steps = floor(time_s / one->step_s), rest_s = time_s - steps * one->step_s;
    double busy_s = one->busy_share * one->step_s;
    double step_j = busy_s * one->busy_w + (one->step_s - busy_s) * one->waiting_w;
    return steps * step_j + fmin(rest_s, busy_s) * one->busy_w +
           fmax(0, rest_s - busy_s) * one->waiting_w;
}

/* Reads, later than planned. */
static void look(harpe_energy_check *check, const training *one, double now_s, double late_s) {
    int64_t now_ns = (int64_t)(now_s * 1e9);
    if (harpe_energy_check_delay_ns(check, now_ns) > 0) return;
    double changed_s = floor(now_s / one->counter_period_s) * one->counter_period_s;
    harpe_energy_check_add(check, now_ns, (int64_t)(late_s * 1e9), power_of(one, now_s),
                           (int64_t)(changed_s * 1e9), 5000000,
                           one->counter_factor * energy_of(one, changed_s));
}

/* Looks every 10 ms, as the profiler does. */
static void watch(harpe_energy_check *check, const training *one, double from_s, double to_s) {
    for (double now_s = from_s; now_s < to_s; now_s += 0.01)
        look(check, one, now_s, 0);
}

static training random_training(double counter_factor) {
    static const double periods_s[] = {0.02, 0.05, 0.1};
    return (training){.step_s = 0.05 + 1.5 * drand48(),
                      .busy_share = 0.1 + 0.9 * drand48(),
                      .busy_w = 200 + 500 * drand48(),
                      .waiting_w = 60 + 100 * drand48(),
                      .counter_period_s = periods_s[rand() % 3],
                      .counter_factor = counter_factor};
}

static bool differs(const harpe_energy_comparison *got) {
    return fabs(got->counter_j - got->power_j) > got->uncertainty_j;
}

TEST(correct_counters_agree) {
    enum { TRIALS = 400 };
    int alarms = 0;
    srand48(3);
    srand(3);
    for (int i = 0; i < TRIALS; i++) {
        training one = random_training(1);
        harpe_energy_check check = {0};
        double from_s = 100 * drand48(), length_s = 5 + 300 * drand48();
        watch(&check, &one, from_s, from_s + length_s);
        harpe_energy_comparison got = harpe_energy_check_compare(&check);
        assert_true(got.counter_j > 0 && got.power_j > 0 && got.uncertainty_j > 0);
        alarms += differs(&got);
    }
    assert_in_range(alarms, 0, TRIALS / 20);
}

/* A busy machine runs the thread late, and most often when the training waits. Then late samples
 * show too little power. That is no fault of the counter, whether they are late by one or by a
 * hundred ms. */
TEST(late_samples_are_no_fault_of_the_counter) {
    int alarms = 0;
    srand48(5);
    srand(5);
    for (int i = 0; i < 200; i++) {
        training one = random_training(1);
        harpe_energy_check check = {0};
        double late_share = 0.1 + 0.9 * drand48(), latest_s = pow(10, -3 + 2 * drand48());
        one.step_s += 0.1; /* its parts are 10 ms long, or longer */
        for (double due_s = 3; due_s < 200; due_s += 0.01) {
            double busy_until_s =
                floor(due_s / one.step_s) * one.step_s + one.busy_share * one.step_s;
            bool is_late = drand48() < late_share && busy_until_s > due_s &&
                           busy_until_s + 0.0001 < due_s + latest_s;
            /* The thread is also late when nothing changes meanwhile. */
            double late_s = is_late                  ? busy_until_s + 0.0001 - due_s
                            : drand48() < late_share ? latest_s * drand48()
                                                     : 0;
            if (!is_late && power_of(&one, due_s + late_s) != power_of(&one, due_s)) late_s = 0;
            look(&check, &one, due_s + late_s, late_s);
            due_s += late_s;
        }
        harpe_energy_comparison got = harpe_energy_check_compare(&check);
        alarms += differs(&got);
    }
    assert_in_range(alarms, 0, 10);
}

TEST(wrong_counters_are_found) {
    srand48(4);
    srand(4);
    for (int i = 0; i < 100; i++) {
        training one = random_training(i % 2 ? 1.25 : 0.8);
        harpe_energy_check check = {0};
        watch(&check, &one, 7, 1207);
        harpe_energy_comparison got = harpe_energy_check_compare(&check);
        assert_true(differs(&got));
        assert_true(fabs(got.counter_j / got.power_j - one.counter_factor) <
                    0.02 + got.uncertainty_j / got.power_j);
    }
}

TEST(too_little_says_nothing) {
    harpe_energy_check check = {0};
    harpe_energy_comparison got = harpe_energy_check_compare(&check);
    assert_true(got.counter_j == 0 && got.power_j == 0 && got.uncertainty_j == 0);
    training one = {0.5, 0.5, 300, 80, 0.1, 1};
    watch(&check, &one, 0, 0.5);
    got = harpe_energy_check_compare(&check);
    assert_true(got.counter_j == 0 && got.power_j == 0);
}

/* A late sample, or a counter that restarts, leaves out its time and nothing else. */
TEST(gaps_are_left_out) {
    training one = {0.7, 0.6, 400, 90, 0.05, 1};
    harpe_energy_check check = {0};
    for (int i = 0; i < 40; i++) {
        watch(&check, &one, 10.0 * i, 10.0 * i + 4); /* 6 s without samples */
        if (i % 2) harpe_energy_check_break(&check);
    }
    assert_true(check.time_s > 40 * 3.7 && check.time_s < 40 * 4);
    harpe_energy_comparison got = harpe_energy_check_compare(&check);
    assert_false(differs(&got));
    assert_true(fabs(got.counter_j / got.power_j - 1) < 0.03);
}
