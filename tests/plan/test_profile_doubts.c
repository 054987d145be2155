/* SPDX-License-Identifier: Apache-2.0 */
/* Warnings about rows of a profile: wrong units and wrong digits are found, and no sound row is
 * doubted. The curves come from simple laws, from harpe_profile_synthesize and from real GPUs. */
#include "test.h"

#include <math.h>
#include <unistd.h>

#include <harpe/plan.h>
#include <harpe/profile.h>

#include "base/scratch.h"
#include "plan/problem.h"

#include "instances.h"

/* Adds a curve of `clocks` clocks from 1410 MHz down, `step_mhz` apart. Above `limit_mhz` the GPU's
 * power limit holds the clock. */
static void add_curve(test_rows *r, const char *name, int clocks, int step_mhz,
                      double compute_share, int limit_mhz) {
    for (int k = 0; k < clocks; k++) {
        int mhz = 1410 - k * step_mhz, real_mhz = mhz < limit_mhz ? mhz : limit_mhz;
        double share = real_mhz / 1410.0;
        double time_s = 0.05 * (compute_share / share + 1 - compute_share);
        add_row(r, 0, name, mhz, time_s, time_s * (90 + 310 * pow(share, 2.5)));
    }
}

static void assert_no_warning(const harpe_profile *profile) {
    if (harpe_profile_warning_at(profile, 0)) fail_msg("%s", harpe_profile_warning_at(profile, 0));
}

/* Checks the warnings of a text: the one at `index` contains `expected`; NULL: there is none. */
static void assert_warning(const char *text, size_t index, const char *expected) {
    owned_profile profile = NULL;
    assert_works(harpe_profile_parse_csv(text, strlen(text), "p.csv", &profile, &failure));
    const char *found = harpe_profile_warning_at(profile, index);
    if (!expected != !found || (expected && !strstr(found, expected)))
        fail_msg("expected '%s', got '%s'", expected ? expected : "", found ? found : "");
}

#define HEADER "stage,instruction,frequency,time,energy\n"

TEST(powers_in_other_units_are_told) {
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

TEST(warnings_are_few) {
    const char *text =
        HEADER "0,f,1410,1,1\n0,f,1400,1,1\n0,f,1390,1,1\n0,f,1380,1,1\n0,f,1370,1,1\n";
    assert_warning(text, 1, "p.csv:3: ");
    assert_warning(text, 2, "(and 2 more rows)");
    assert_warning(text, 3, NULL);
}

TEST(a_slip_names_its_line_and_the_next_one) {
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
TEST(one_wrong_number_is_found_at_any_clock) {
    static const double factors[] = {10, 0.1, 3, 1 / 3.0, 100};
    for (int clocks = 2; clocks <= 12; clocks++)
        for (int slip = 0; slip < clocks; slip++)
            for (int variant = 0; variant < 40; variant++) {
                owned_rows r = {0};
                double factor = factors[variant % 5];
                int step_mhz = variant % 4 < 2 ? 15 : 75;
                add_curve(&r, "b", clocks, step_mhz, 0.9, variant % 3 ? 1500 : 1350);
                add_curve(&r, "f", clocks, step_mhz, variant % 2, 1500);
                harpe_measurement *row = &r.rows[slip];
                if (fabs(log(factor)) < 1.2 && (clocks == 2 || step_mhz > 15)) continue;
                *(variant / 20 ? &row->time_s : &row->energy_j) *= factor;
                owned_profile profile = profile_of(&r);
                char expected[24];
                (void)snprintf(expected, sizeof expected, "row %d: ", slip);
                const char *found = harpe_profile_warning_at(profile, 0);
                if (clocks == 2 && slip == 1 && found) found = harpe_profile_warning_at(profile, 1);
                if (!found || strncmp(found, expected, strlen(expected)) != 0)
                    fail_msg("%d clocks, variant %d: '%s', not %s", clocks, variant,
                             found ? found : "", expected);
                if (clocks > 2) assert_null(harpe_profile_warning_at(profile, 1));
            }
}

TEST(sound_curves_are_not_doubted) {
    for (int clocks = 1; clocks <= 14; clocks++)
        for (int variant = 0; variant < 24; variant++) {
            owned_rows r = {0};
            int step_mhz = variant % 4 < 2 ? 15 : 90;
            add_curve(&r, "f", clocks, step_mhz, variant % 3 / 2.0, variant % 5 ? 1500 : 1200);
            add_curve(&r, "left.alone", 1, 15, 1, 1500);
            r.rows[r.count - 1].frequency_mhz = 0;
            owned_profile profile = profile_of(&r);
            assert_no_warning(profile);
        }
}

/* Each rank has its curve. */
TEST(ranks_differ) {
    owned_rows r = {0};
    for (int rank = 0; rank < 3; rank++) {
        size_t first = r.count;
        add_curve(&r, "f", 6, 15, 1, 1500);
        for (size_t i = first; i < r.count; i++) {
            r.rows[i].rank = rank;
            r.rows[i].time_s *= 1 + 4 * rank;
            r.rows[i].energy_j *= 1 + 4 * rank;
        }
    }
    harpe_profile *profile = profile_of(&r);
    assert_no_warning(profile);
    harpe_profile_free(profile);
    r.rows[8].energy_j *= 10;
    profile = profile_of(&r);
    const char *found = harpe_profile_warning_at(profile, 0);
    if (!found || strncmp(found, "row 8: ", 7) != 0) fail_msg("%s", found ? found : "none");
    assert_non_null(strstr(found, "(row 7)"));
    assert_null(harpe_profile_warning_at(profile, 1));
    harpe_profile_free(profile);
}

TEST(synthetic_profiles_are_not_doubted) {
    for (int t = 0; t < few_trials(300); t++)
        for (const char *const *model = harpe_synth_gpu_models(); *model; model++) {
            harpe_synth_options options = {.gpu_model = *model,
                                           .stages = 1 + t % 4,
                                           .imbalance = 1,
                                           .noise = 0.01 * (t % 11),
                                           .seed = (uint64_t)t,
                                           .split_backward = t % 2};
            owned_profile profile = NULL;
            assert_works(harpe_profile_synthesize(&options, &profile, NULL, &failure));
            assert_no_warning(profile);
        }
}

TEST(measured_profiles_are_not_doubted) {
    static const char *const names[] = {"pipeline/gpt3-175b_a100.csv",
                                        "pipeline/bloom-176b_a100.csv", "synthetic/a100_4s.csv",
                                        "synthetic/a100_16s.csv"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        owned_profile profile = data_profile(names[i]);
        /* The A100 of the measured pipelines had the same time and power at its three highest
         * clocks. The synthetic ones had not. */
        if (i < 2)
            assert_non_null(strstr(harpe_profile_warning_at(profile, 0), "did not reach clocks"));
        else
            assert_no_warning(profile);
        assert_null(harpe_profile_warning_at(profile, i < 2));
    }
}

/* ---- Clocks that were not reached ------------------------------------------------------------ */

/* A repeatable number with about mean 0 and standard deviation 1. */
static double deviate(uint64_t *seed) {
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        sum += (double)(*seed >> 11) * 0x1p-53;
    }
    return sum - 6;
}

/* A GPU whose power rises with the clock as CMOS does, at a power limit. */
typedef struct law {
    double limit_w;  /* INFINITY: none */
    double waste;    /* additional power at the limit, relative */
    double level;    /* of the dynamic power */
    double compute;  /* share of the time that follows the clock */
    double launch_s; /* least time, which the clock does not change */
    double noise;    /* of times and powers, relative */
    int step_mhz, ranks, stage;
    int throttled_rank; /* -1: all */
    uint64_t seed;
} law;

static double power_at(const law *l, double share) {
    double voltage = share < 0.75 ? 0.75 : share;
    return 95 + 295 * l->level * share * voltage * voltage;
}

/* Returns the clock that the GPU has, and writes its power. */
static double reach(const law *l, double share, double limit_w, double *power_w) {
    *power_w = power_at(l, share);
    if (*power_w <= limit_w) return share;
    while (power_at(l, share) * (1 + l->waste) > limit_w)
        share -= 1e-4;
    *power_w = power_at(l, share) * (1 + l->waste);
    return share;
}

static int append_law(char *text, size_t size, const law *l, const char *name) {
    int length = 0;
    uint64_t seed = l->seed * 1000003 + (uint64_t)name[0];
    for (int rank = 0; rank < l->ranks; rank++)
        for (int mhz = 1410; mhz >= 705; mhz -= l->step_mhz) {
            bool is_limited = l->throttled_rank < 0 || l->throttled_rank == rank;
            double power_w, limit_w = is_limited ? l->limit_w : INFINITY;
            double share = reach(l, mhz / 1410.0, limit_w, &power_w);
            double time_s = 0.05 * (l->compute / share + 1 - l->compute);
            /* A GPU that waits for the host draws little meanwhile. */
            if (time_s < l->launch_s) {
                power_w = 95 + (power_w - 95) * time_s / l->launch_s;
                time_s = l->launch_s;
            }
            time_s *= 1 + l->noise * deviate(&seed);
            double energy_j = power_w * time_s * (1 + l->noise * deviate(&seed));
            length += snprintf(text + length, size - (size_t)length, "%d,%s,%d,%.9g,%.9g,%d\n",
                               l->stage, name, mhz, time_s, energy_j, l->stage + rank);
        }
    return length;
}

/* Makes a profile of two instructions, the first of them under `other`. */
static harpe_profile *profile_of_laws(const law *one, const law *other) {
    static char text[1U << 20];
    int length = snprintf(text, sizeof text, "stage,instruction,frequency,time,energy,rank\n");
    length += append_law(text + length, sizeof text - (size_t)length, one, "backward");
    length += append_law(text + length, sizeof text - (size_t)length, other, "forward");
    harpe_profile *profile = NULL;
    assert_works(harpe_profile_parse_csv(text, (size_t)length, "p.csv", &profile, &failure));
    return profile;
}

static const char *unreached(const harpe_profile *profile) {
    const char *line;
    for (size_t i = 0; (line = harpe_profile_warning_at(profile, i)); i++)
        if (strstr(line, "did not reach")) return line;
    return NULL;
}

static const law usual = {.limit_w = INFINITY,
                          .level = 1,
                          .compute = 0.9,
                          .step_mhz = 15,
                          .ranks = 1,
                          .throttled_rank = -1};

/* Whatever the limit, the noise and the distance of the clocks: the clocks from which on time and
 * power stay the same are found to within a few steps, and the fastest point stays. */
TEST(throttled_clocks_are_found) {
    int trials = few_trials(300);
    for (int t = 0; t < trials; t++) {
        law l = usual;
        l.limit_w = 230 + 10 * (t % 11);
        l.waste = t % 3 ? 0 : 0.1;
        l.noise = 0.001 * (t % 5);
        l.compute = t % 7 ? 0.9 : 0.3;
        l.step_mhz = t % 2 ? 15 : 30;
        l.seed = (uint64_t)t;
        owned_profile profile = profile_of_laws(&l, &l);
        const char *line = unreached(profile);
        if (!line) fail_msg("trial %d: %g W is not seen", t, l.limit_w);
        double power_w, at_limit = reach(&l, 1, l.limit_w, &power_w) * 1410;
        double free_mhz = 1410;
        while (power_at(&l, free_mhz / 1410) > l.limit_w)
            free_mhz -= 1;
        const harpe_profile_entry *entry = harpe_profile_find(profile, 0, "forward");
        const harpe_profile_point *top = &entry->points[entry->throttled_count];
        assert_true(entry->throttled_count < entry->point_count);
        assert_true(top->time_s <= entry->points[0].time_s);
        int above, like, highest;
        assert_int_equal(sscanf(strstr(line, "above "), "above %d", &above), 1);
        assert_int_equal(sscanf(strstr(line, "up to "), "up to %d", &highest), 1);
        assert_int_equal(sscanf(strstr(line, "those of about "), "those of about %d", &like), 1);
        assert_int_equal(highest, 1410);
        if (fabs(above - free_mhz) > 0.05 * 1410)
            fail_msg("trial %d: %s; the limit is at %g MHz", t, line, free_mhz);
        if (l.compute > 0.5 && fabs(like - at_limit) > 0.03 * 1410)
            fail_msg("trial %d: %s; as fast as %g MHz", t, line, at_limit);
    }
}

/* Work that is limited by memory or by launches has flat times, and no limit holds it. */
TEST(flat_times_alone_are_no_throttling) {
    int trials = few_trials(1000);
    for (int t = 0; t < trials; t++) {
        law l = usual, other = usual;
        l.noise = other.noise = 0.001 * (t % 11);
        l.seed = (uint64_t)t;
        other.seed = (uint64_t)t + 7777;
        l.step_mhz = other.step_mhz = t % 2 ? 15 : 45;
        l.compute = 0.1 * (t % 3);
        l.level = t % 4 ? 1 : 0.4;
        l.launch_s = t % 5 < 3 ? 0.05 * (1 + 0.1 * (t % 5)) : 0;
        owned_profile profile = profile_of_laws(&l, t % 2 ? &l : &other);
        const char *line = unreached(profile);
        if (line) fail_msg("trial %d: %s", t, line);
        assert_int_equal(harpe_profile_entry_at(profile, 0)->throttled_count, 0);
    }
}

/* One of four ranks is enough: all must have a clock. */
TEST(the_rank_is_named) {
    law l = usual;
    l.limit_w = 280;
    l.noise = 0.001;
    l.ranks = 4;
    l.throttled_rank = 2;
    owned_profile profile = profile_of_laws(&l, &l);
    const char *line = unreached(profile);
    if (!line || !strstr(line, "p.csv: rank 2: the GPU did not reach"))
        fail_msg("%s", line ? line : "none");
    assert_true(harpe_profile_find(profile, 0, "backward")->throttled_count > 0);
    harpe_profile_free(profile);
    l.throttled_rank = -1;
    profile = profile_of_laws(&l, &l);
    line = unreached(profile);
    if (!line || !strstr(line, "rank 0-3: ")) fail_msg("%s", line ? line : "none");
}

/* The synthetic GPUs have no limit. */
SCRATCH_TEST(synthetic_gpus_reach_their_clocks) {
    const char *path = scratch_path(s, "p.csv");
    for (int t = 0; t < few_trials(100); t++)
        for (const char *const *model = harpe_synth_gpu_models(); *model; model++) {
            harpe_synth_options options = {
                .gpu_model = *model, .stages = 2, .imbalance = 1, .noise = 0.01 * (t % 11)};
            options.seed = (uint64_t)t;
            owned_profile profile = NULL;
            owned_profile read = NULL;
            assert_works(harpe_profile_synthesize(&options, &profile, NULL, &failure));
            assert_works(harpe_profile_write_csv(profile, path, &failure));
            assert_works(harpe_profile_read_csv(path, &read, &failure));
            if (unreached(read)) fail_msg("%s, seed %d: %s", *model, t, unreached(read));
        }
    (void)unlink(path);
}

/* Plans whose clocks hold use no clock that was not reached, although noise makes some of these
 * look better, and none needs less than its bound. */
TEST(plans_use_clocks_that_were_reached) {
    static char text[1U << 20];
    enum { STAGES = 4 };
    for (uint64_t seed = 1; seed <= 4; seed++) {
        int length = snprintf(text, sizeof text, "stage,instruction,frequency,time,energy,rank\n");
        for (int s = 0; s < STAGES; s++) {
            law l = usual;
            l.limit_w = 300;
            l.noise = 0.002;
            l.stage = s;
            l.seed = seed * 100 + (uint64_t)s;
            length += append_law(text + length, sizeof text - (size_t)length, &l, "backward");
            length += append_law(text + length, sizeof text - (size_t)length, &l, "forward");
        }
        owned_profile profile = NULL;
        assert_works(harpe_profile_parse_csv(text, (size_t)length, "p.csv", &profile, &failure));
        assert_non_null(unreached(profile));
        const harpe_schedule_options options = {.ranks = STAGES, .microbatches = 6};
        owned_schedule schedule = NULL;
        owned_problem problem = NULL;
        assert_works(harpe_schedule_new(&options, &schedule, &failure));
        const harpe_problem_options waits = {.blocking_power_w = (const double[]){75},
                                             .blocking_power_count = 1};
        assert_works(harpe_problem_new(profile, schedule, &waits, &problem, &failure));
        const harpe_plan_request request = {
            .count = 4, .clock_switch.minimum_dwell_s = 0.1 * (double)seed, .threads = 1};
        owned_frontier frontier = NULL;
        owned_plan_set plans = plan_set_of(problem, &request, &frontier);
        assert_works(harpe_plan_set_verify(problem, frontier, plans, &failure));
        for (size_t p = 0; p < harpe_plan_set_count(plans); p++) {
            size_t count = harpe_problem_instruction_count(problem), beyond = 0, highest = 0;
            for (size_t i = 0; i < count; i++) {
                const harpe_choice *choice = harpe_problem_choice(problem, (int32_t)i);
                int mhz = harpe_plan_set_at(plans, p)->frequency_mhz[i];
                beyond += mhz > choice->points[choice->throttled_count].frequency_mhz;
                highest += mhz == choice->points[0].frequency_mhz;
            }
            /* Savings are shown against the plan at the highest clocks. */
            assert_true(beyond == 0 || highest == count);
        }
    }
}
