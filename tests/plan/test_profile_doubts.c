/* SPDX-License-Identifier: Apache-2.0 */
/* Warnings about rows of a profile: wrong units and wrong digits are found, and no sound row is
 * doubted. The curves come from simple laws, from harpe_profile_synthesize and from real GPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <harpe/profile.h>

#include "skip.h"
#include "trials.h"

enum { ROWS_MAX = 1024 };

typedef struct rows {
    harpe_measurement items[ROWS_MAX];
    size_t count;
} rows;

/* Adds a curve of `clocks` clocks from 1410 MHz down, `step_mhz` apart. Above `limit_mhz` the GPU's
 * power limit holds the clock. */
static void add_curve(rows *r, const char *name, int clocks, int step_mhz, double compute_share,
                      int limit_mhz) {
    for (int k = 0; k < clocks; k++) {
        int mhz = 1410 - k * step_mhz, real_mhz = mhz < limit_mhz ? mhz : limit_mhz;
        double share = real_mhz / 1410.0;
        double time_s = 0.05 * (compute_share / share + 1 - compute_share);
        r->items[r->count++] =
            (harpe_measurement){.rank = -1,
                                .instruction = name,
                                .frequency_mhz = mhz,
                                .time_s = time_s,
                                .energy_j = time_s * (90 + 310 * pow(share, 2.5))};
    }
}

static harpe_profile *profile_of(const rows *r) {
    harpe_profile *profile = NULL;
    harpe_error error;
    if (harpe_profile_new(r->items, r->count, &profile, &error) != HARPE_OK)
        fail_msg("%s", error.message);
    return profile;
}

static void assert_no_warning(const harpe_profile *profile) {
    if (harpe_profile_warning_at(profile, 0)) fail_msg("%s", harpe_profile_warning_at(profile, 0));
}

/* Checks the warnings of a text: the one at `index` contains `expected`; NULL: there is none. */
static void assert_warning(const char *text, size_t index, const char *expected) {
    harpe_profile *profile = NULL;
    assert_int_equal(harpe_profile_parse_csv(text, strlen(text), "p.csv", &profile, NULL),
                     HARPE_OK);
    const char *found = harpe_profile_warning_at(profile, index);
    if (!expected != !found || (expected && !strstr(found, expected)))
        fail_msg("expected '%s', got '%s'", expected ? expected : "", found ? found : "");
    harpe_profile_free(profile);
}

#define HEADER "stage,instruction,frequency,time,energy\n"

static void powers_in_other_units_are_told(void **state) {
    (void)state;
    assert_warning(
        HEADER "0,f,1410,0.05,20000\n", 0,
        "p.csv:2: stage 0 'f' at 1410 MHz: 400000 W on a GPU, more than any GPU draws; if "
        "the energies are in mJ, it is 400 W; if it is a sum over several GPUs, give their "
        "number as gpus");
    assert_warning(
        HEADER "0,f,1410,50,20\n", 0,
        "p.csv:2: stage 0 'f' at 1410 MHz: 0.4 W on a GPU, less than any GPU draws; if the "
        "times are in ms or the energies in kJ, it is 400 W, if the energies are in Wh, it "
        "is 1440 W");
    assert_warning(HEADER "0,f,1410,50000,20\n", 0, "in us or the energies in MJ, it is 400 W");
    assert_warning(HEADER "0,f,1410,0.05,0.02\n", 0, "in ms or the energies in kJ, it is 400 W");
    assert_warning(HEADER "0,f,1410,0.05,2e7\n", 0, "the energies are in uJ, it is 400 W");
    assert_warning(HEADER "0,f,1410,3600,0.4\n", 0, "the energies are in kWh, it is 400 W");
    assert_warning(HEADER "0,f,1410,0.05,280\n", 0,
                   "5600 W on a GPU, more than any GPU draws; if it");
    assert_warning(HEADER "0,f,1410,0.05,149\n0,b,1410,1,5.1\n", 0, NULL);
    assert_warning("stage,instruction,frequency,time,energy,gpus\n0,f,1410,0.05,280,8\n", 0, NULL);
    assert_warning("stage,instruction,frequency,time,energy,gpus\n0,f,1410,0.05,1,8\n", 0,
                   "2.5 W on a GPU");
}

static void warnings_are_few(void **state) {
    (void)state;
    const char *text =
        HEADER "0,f,1410,1,1\n0,f,1400,1,1\n0,f,1390,1,1\n0,f,1380,1,1\n0,f,1370,1,1\n";
    assert_warning(text, 1, "p.csv:3: ");
    assert_warning(text, 2, "(and 2 more rows)");
    assert_warning(text, 3, NULL);
}

static void a_slip_names_its_line_and_the_next_one(void **state) {
    (void)state;
    assert_warning(
        HEADER "0,f,1410,0.05,20\n0,f,1395,0.505,19.8\n0,f,1380,0.051,19.7\n", 0,
        "p.csv:3: stage 0 'f' at 1395 MHz: the time 0.505 s is about 9.9 times too high beside "
        "0.05 s at 1410 MHz (line 2)");
    assert_warning(
        HEADER "0,f,1410,0.05,1.9\n0,f,1395,0.0505,19.8\n0,f,1380,0.051,19.7\n", 0,
        "p.csv:2: stage 0 'f' at 1410 MHz: the energy 1.9 J is about 10 times too low beside "
        "19.8 J at 1395 MHz (line 3)");
    assert_warning(
        HEADER "0,f,1410,0.05,20\n0,f,1395,0.0505,19800\n0,f,1380,0.051,19.7\n", 0,
        "973 times too high beside 20 J at 1410 MHz (line 2): 392079 W on a GPU, more than any "
        "GPU draws; if the energies are in mJ, it is 392.1 W");
}

/* Whatever the number of clocks, their distance and the kind of work: the slip, and only it. With
 * two clocks, either may be the wrong one. */
static void one_wrong_number_is_found_at_any_clock(void **state) {
    (void)state;
    static const double factors[] = {10, 0.1, 3, 1 / 3.0, 100};
    for (int clocks = 2; clocks <= 12; clocks++)
        for (int slip = 0; slip < clocks; slip++)
            for (int variant = 0; variant < 40; variant++) {
                rows r = {0};
                double factor = factors[variant % 5];
                int step_mhz = variant % 4 < 2 ? 15 : 75;
                add_curve(&r, "b", clocks, step_mhz, 0.9, variant % 3 ? 1500 : 1350);
                add_curve(&r, "f", clocks, step_mhz, variant % 2, 1500);
                harpe_measurement *row = &r.items[slip];
                if (fabs(log(factor)) < 1.2 && (clocks == 2 || step_mhz > 15)) continue;
                *(variant / 20 ? &row->time_s : &row->energy_j) *= factor;
                harpe_profile *profile = profile_of(&r);
                char expected[24];
                (void)snprintf(expected, sizeof expected, "row %d: ", slip);
                const char *found = harpe_profile_warning_at(profile, 0);
                if (clocks == 2 && slip == 1 && found) found = harpe_profile_warning_at(profile, 1);
                if (!found || strncmp(found, expected, strlen(expected)) != 0)
                    fail_msg("%d clocks, variant %d: '%s', not %s", clocks, variant,
                             found ? found : "", expected);
                if (clocks > 2) assert_null(harpe_profile_warning_at(profile, 1));
                harpe_profile_free(profile);
            }
}

static void sound_curves_are_not_doubted(void **state) {
    (void)state;
    for (int clocks = 1; clocks <= 14; clocks++)
        for (int variant = 0; variant < 24; variant++) {
            rows r = {0};
            int step_mhz = variant % 4 < 2 ? 15 : 90;
            add_curve(&r, "f", clocks, step_mhz, variant % 3 / 2.0, variant % 5 ? 1500 : 1200);
            add_curve(&r, "left.alone", 1, 15, 1, 1500);
            r.items[r.count - 1].frequency_mhz = 0;
            harpe_profile *profile = profile_of(&r);
            assert_no_warning(profile);
            harpe_profile_free(profile);
        }
}

/* Each rank has its curve. */
static void ranks_differ(void **state) {
    (void)state;
    rows r = {0};
    for (int rank = 0; rank < 3; rank++) {
        size_t first = r.count;
        add_curve(&r, "f", 6, 15, 1, 1500);
        for (size_t i = first; i < r.count; i++) {
            r.items[i].rank = rank;
            r.items[i].time_s *= 1 + 4 * rank;
            r.items[i].energy_j *= 1 + 4 * rank;
        }
    }
    harpe_profile *profile = profile_of(&r);
    assert_no_warning(profile);
    harpe_profile_free(profile);
    r.items[8].energy_j *= 10;
    profile = profile_of(&r);
    const char *found = harpe_profile_warning_at(profile, 0);
    if (!found || strncmp(found, "row 8: ", 7) != 0) fail_msg("%s", found ? found : "none");
    assert_non_null(strstr(found, "(row 7)"));
    assert_null(harpe_profile_warning_at(profile, 1));
    harpe_profile_free(profile);
}

static void synthetic_profiles_are_not_doubted(void **state) {
    (void)state;
    for (int t = 0; t < few_trials(300); t++)
        for (const char *const *model = harpe_synth_gpu_models(); *model; model++) {
            harpe_synth_options options = {.gpu_model = *model,
                                           .stages = 1 + t % 4,
                                           .imbalance = 1,
                                           .noise = 0.01 * (t % 11),
                                           .seed = (uint64_t)t,
                                           .split_backward = t % 2};
            harpe_profile *profile = NULL;
            assert_int_equal(harpe_profile_synthesize(&options, &profile, NULL, NULL), HARPE_OK);
            assert_no_warning(profile);
            harpe_profile_free(profile);
        }
}

static void measured_profiles_are_not_doubted(void **state) {
    (void)state;
    static const char *const names[] = {"pipeline/gpt3-175b_a100.csv",
                                        "pipeline/bloom-176b_a100.csv", "synthetic/a100_4s.csv",
                                        "synthetic/a100_16s.csv"};
    const char *folder = getenv("HARPE_DATA");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/%s",
                       folder ? folder : HARPE_SOURCE_DIR "/../shared/data", names[i]);
        if (access(path, R_OK) != 0) skip_because("data: %s is not there", path);
        harpe_profile *profile = NULL;
        assert_int_equal(harpe_profile_read_csv(path, &profile, NULL), HARPE_OK);
        assert_no_warning(profile);
        harpe_profile_free(profile);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powers_in_other_units_are_told),
        cmocka_unit_test(warnings_are_few),
        cmocka_unit_test(a_slip_names_its_line_and_the_next_one),
        cmocka_unit_test(one_wrong_number_is_found_at_any_clock),
        cmocka_unit_test(sound_curves_are_not_doubted),
        cmocka_unit_test(ranks_differ),
        cmocka_unit_test(synthetic_profiles_are_not_doubted),
        cmocka_unit_test(measured_profiles_are_not_doubted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
