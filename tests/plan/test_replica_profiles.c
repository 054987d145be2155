/* SPDX-License-Identifier: Apache-2.0 */
/* The profiles of all GPUs of a job: reading and writing, variation, and the removal of noise. */
#include "test.h"

#include "base/scratch.h"
#include "plan/replica_internal.h"
#include "replica_instances.h"

static harpe_status parse(const char *text, harpe_replica_profiles **out, harpe_error *error) {
    return harpe_replica_profiles_parse_csv(text, strlen(text), "gpus.csv", out, error);
}

/* ---- Reading --------------------------------------------------------------------------------- */

TEST(rows_belong_to_their_gpus) {
    static const char text[] =
        "gpu,time,energy,frequency,stage,instruction,replica,blocking_power\n"
        "1,0.11,21,1400,0,forward,0,61\n"
        "0,0.10,20,1400,0,forward,0,60\n"
        "0,0.20,30,1300,0,forward,1,70\n"
        "1,0.21,31,1300,0,forward,1,71\n"
        "0,0.202,30,1300,0,forward,1,70\n";
    owned_replica_profiles profiles = NULL;
    assert_works(parse(text, &profiles, &failure));
    assert_int_equal(harpe_replica_profiles_replica_count(profiles), 2);
    assert_int_equal(harpe_replica_profiles_peer_count(profiles), 2);
    static const double times[2][2] = {{0.10, 0.11}, {0.201, 0.21}}; /* a repeat is averaged */
    for (int r = 0; r < 2; r++)
        for (int g = 0; g < 2; g++) {
            const harpe_profile *gpu = harpe_replica_profiles_at(profiles, r, g);
            const harpe_profile_entry *entry = harpe_profile_find(gpu, 0, "forward");
            assert_int_equal(entry->point_count, 1);
            assert_near(entry->points[0].time_s, times[r][g], 1e-12);
            assert_near(harpe_profile_blocking_power_w(gpu, 0), 60 + 10 * r + g, 1e-12);
            assert_int_equal(harpe_profile_gpu_count(gpu, 0), 1);
        }
    assert_null(harpe_replica_profiles_at(profiles, 2, 0));
    assert_null(harpe_replica_profiles_at(profiles, 0, -1));
}

TEST(names_of_other_tools_are_accepted) {
    for (int is_peer = 0; is_peer < 2; is_peer++) {
        owned_replica_profiles profiles = NULL;
        const char *text = is_peer ? "stage,instruction,frequency,time,energy,tp_rank\n"
                                     "0,f,1,1,1,1\n0,f,1,1,1,0\n"
                                   : "stage,instruction,frequency,time,energy,dp_rank\n"
                                     "0,f,1,1,1,0\n0,f,1,1,1,1\n";
        assert_int_equal(parse(text, &profiles, NULL), HARPE_OK);
        assert_int_equal(harpe_replica_profiles_replica_count(profiles), is_peer ? 1 : 2);
        assert_int_equal(harpe_replica_profiles_peer_count(profiles), is_peer ? 2 : 1);
    }
}

#define HEADER "replica,gpu,stage,instruction,frequency,time,energy\n"

TEST(wrong_files_are_refused_where_they_are_wrong) {
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "gpus.csv:1:1: the file is empty"},
        {"stage,instruction,frequency,time\n", "gpus.csv:1:1: missing column 'energy'"},
        {"stage,instruction,frequency,time,energy\n0,f,1,1,1\n", "missing column 'replica' or"},
        {HEADER, "gpus.csv:2:1: no rows"},
        {"replica,dp_rank,stage,instruction,frequency,time,energy\n", "gpus.csv:1:9: this column"},
        {"replica,rank,stage,instruction,frequency,time,energy\n", "in place of rank and gpus"},
        {HEADER "-1,0,0,f,1,1,1\n", "gpus.csv:2:1: replica must be a whole number from 0 to 65535"},
        {HEADER "0,65536,0,f,1,1,1\n", "gpus.csv:2:3: gpu must be a whole number"},
        {HEADER "0,0,0,f,1,0,1\n", "gpus.csv:2:11: time must"},
        {HEADER "0,0,0,f,1,1,1\n2,0,0,f,1,1,1\n", "gpu 0 of replica 1 has no rows"},
        {HEADER "0,0,0,f,1,1,1\n0,1,0,f,1,1,1\n1,0,0,f,1,1,1\n", "gpu 1 of replica 1 has no rows"},
        {HEADER "0,1,0,f,1,1,1\n", "gpu 0 of replica 0 has no rows"},
        {HEADER "0,65535,0,f,1,1,1\n65535,0,0,f,1,1,1\n", "gpu 0 of replica 0 has no rows"},
        {HEADER "0,0,0,f,1,1,1\n1,0,0,b,1,1,1\n", "gpu 0 of replica 1 has no 'f' for stage 0"},
        {HEADER "0,0,0,f,1,1,1\n1,0,0,f,1,1,1\n1,0,1,f,1,1,1\n",
         "gpu 0 of replica 0 has no 'f' for stage 1"},
        {HEADER "0,0,0,f,1,1,1\n0,0,0,f,1,2,1\n", "gpus.csv:3:1: stage 0, instruction 'f'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        harpe_replica_profiles *profiles = NULL;
        assert_refuses(parse(cases[i].text, &profiles, &failure), HARPE_INVALID_INPUT,
                       cases[i].message);
        assert_null(profiles);
    }
}

SCRATCH_TEST(written_profiles_are_read_again) {
    harpe_variability how = {
        .replica_count = 3, .peer_count = 2, .speed_deviation = 0.1, .power_deviation = 0.1};
    owned_job job = varied_job(2, 2, &how);
    const char *path = scratch_path(s, "gpus.csv");
    owned_replica_profiles again = NULL;
    assert_works(harpe_replica_profiles_write_csv(job->profiles, path, &failure));
    assert_works(harpe_replica_profiles_read_csv(path, &again, &failure));
    for (int r = 0; r < 3; r++) {
        const harpe_profile *both[] = {harpe_replica_profiles_at(job->profiles, r, 0),
                                       harpe_replica_profiles_at(job->profiles, r, 1),
                                       harpe_replica_profiles_at(again, r, 0),
                                       harpe_replica_profiles_at(again, r, 1)};
        owned_replica_profiles two = NULL;
        assert_works(harpe_replica_profiles_new(both, 2, 2, &two, &failure));
        assert_int_equal(harpe_replica_profiles_compare(two, 0, 1), 0);
    }
    assert_int_equal(harpe_replica_profiles_read_csv("/nowhere/gpus.csv", &again, &failure),
                     HARPE_NOT_FOUND);
    (void)unlink(path);
}

/* Each number of a row counts, on any GPU. */
TEST(replicas_with_other_rows_are_not_equal) {
    static const char *const rows[] = {"1400,1,20,60", "1300,1,20,60", "1400,2,20,60",
                                       "1400,1,21,60", "1400,1,20,61"};
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        char text[300];
        owned_replica_profiles two = NULL;
        (void)snprintf(text, sizeof text,
                       "replica,gpu,stage,instruction,frequency,time,energy,blocking_power\n"
                       "0,0,0,f,%s\n0,1,0,f,%s\n1,0,0,f,%s\n1,1,0,f,%s\n",
                       rows[0], rows[0], rows[0], rows[k]);
        assert_int_equal(parse(text, &two, NULL), HARPE_OK);
        int order = harpe_replica_profiles_compare(two, 0, 1);
        assert_true((order == 0) == (k == 0));
        assert_int_equal(order, -harpe_replica_profiles_compare(two, 1, 0));
    }
}

TEST(profiles_of_several_gpus_are_refused) {
    test_rows rows = {0};
    add_row(&rows, 0, "forward", 1400, 0.1, 20);
    rows.rows[0].gpu_count = 2;
    owned_profile profile = profile_of(&rows);
    const harpe_profile *gpus[] = {profile};
    harpe_replica_profiles *profiles = NULL;
    assert_int_equal(harpe_replica_profiles_new(gpus, 1, 1, &profiles, &failure),
                     HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_replica_profiles_new(gpus, 0, 1, &profiles, &failure),
                     HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_replica_profiles_new(gpus, HARPE_REPLICAS_MAX, HARPE_REPLICAS_MAX,
                                                &profiles, &failure),
                     HARPE_LIMIT_EXCEEDED);
    free(rows.rows);
}

/* ---- Variation ------------------------------------------------------------------------------- */

static double time_of(const harpe_replica_profiles *profiles, int replica, int peer, int stage,
                      size_t point) {
    const harpe_profile *gpu = harpe_replica_profiles_at(profiles, replica, peer);
    return harpe_profile_find(gpu, stage, "forward")->points[point].time_s;
}

/* Without noise each GPU is slower by the same factor at all clocks, and the factors have the
 * wished deviation. */
TEST(gpus_differ_by_factors) {
    harpe_variability how = {.replica_count = 400, .speed_deviation = 0.08, .seed = 6}, flat = {0};
    owned_job job = varied_job(2, 2, &how);
    owned_job base = varied_job(2, 2, &flat);
    double sum = 0, squares = 0;
    for (int r = 0; r < 400; r++)
        for (int s = 0; s < 2; s++) {
            double factor =
                time_of(job->profiles, r, 0, s, 0) / time_of(base->profiles, 0, 0, s, 0);
            assert_near(time_of(job->profiles, r, 0, s, 20),
                        factor * time_of(base->profiles, 0, 0, s, 20), 1e-12);
            sum += factor;
            squares += factor * factor;
        }
    double mean = sum / 800, deviation = sqrt(squares / 800 - mean * mean);
    assert_near(mean, 1, 0.01);
    assert_near(deviation, 0.08, 0.1);
}

TEST(outliers_are_slower) {
    harpe_variability how = {.replica_count = 500, .outlier_share = 0.1, .seed = 8}, flat = {0};
    owned_job job = varied_job(1, 1, &how);
    owned_job base = varied_job(1, 1, &flat);
    int slow = 0;
    for (int r = 0; r < 500; r++) {
        double factor = time_of(job->profiles, r, 0, 0, 0) / time_of(base->profiles, 0, 0, 0, 0);
        assert_true(factor > 1 - 1e-12 && factor <= 1.5 + 1e-12);
        slow += factor > 1.01;
    }
    assert_true(slow > 25 && slow < 75);
}

TEST(noise_does_not_change_the_gpus) {
    harpe_variability how = {.replica_count = 4, .speed_deviation = 0.08, .seed = 6};
    owned_job exact = varied_job(2, 2, &how);
    how.noise = 0.01;
    owned_job noisy = varied_job(2, 2, &how);
    for (int r = 0; r < 4; r++) {
        double ratio = 0;
        for (size_t p = 0; p < 20; p++)
            ratio += time_of(noisy->profiles, r, 0, 1, p) / time_of(exact->profiles, r, 0, 1, p);
        assert_near(ratio / 20, 1, 0.01);
    }
}

TEST(impossible_variations_are_refused) {
    owned_profile base = NULL;
    harpe_replica_profiles *out = NULL;
    harpe_synth_options options = {.stages = 1, .imbalance = 1};
    assert_works(harpe_profile_synthesize(&options, &base, NULL, &failure));
    const harpe_variability cases[] = {
        {.speed_deviation = 0.4}, {.speed_deviation = -1}, {.power_deviation = NAN},
        {.noise = 0.5},           {.outlier_share = 2},    {.outlier_factor = 0.5},
        {.replica_count = -1},    {.peer_count = 70000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(harpe_replica_profiles_vary(base, 50, &cases[i], &out, NULL),
                         HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_replica_profiles_vary(base, -1, &(harpe_variability){0}, &out, NULL),
                     HARPE_INVALID_ARGUMENT);
}

/* ---- Noise ----------------------------------------------------------------------------------- */

/* Returns the root of the mean square of the relative difference of all times. */
static double distance(const harpe_replica_profiles *a, const harpe_replica_profiles *b) {
    double sum = 0;
    int count = 0;
    for (int r = 0; r < harpe_replica_profiles_replica_count(a); r++)
        for (int s = 0; s < 2; s++)
            for (size_t p = 0; p < 30; p++, count++)
                sum += pow(time_of(a, r, 0, s, p) / time_of(b, r, 0, s, p) - 1, 2);
    return sqrt(sum / count);
}

TEST(smoothing_removes_noise) {
    harpe_variability how = {.replica_count = 16, .speed_deviation = 0.08, .seed = 6};
    owned_job exact = varied_job(2, 2, &how);
    how.noise = 0.01;
    owned_job noisy = varied_job(2, 2, &how);
    harpe_replica_profiles *smooth = NULL, *same = NULL;
    assert_works(harpe_replica_profiles_smooth(noisy->profiles, 0.03, &smooth, &failure));
    assert_near(distance(noisy->profiles, exact->profiles), 0.01, 0.2);
    assert_true(distance(smooth, exact->profiles) < 0.004);
    /* Noise above the limit stays, and exact profiles stay as they are. */
    harpe_replica_profiles_free(smooth);
    assert_works(harpe_replica_profiles_smooth(noisy->profiles, 0.005, &smooth, &failure));
    assert_true(distance(smooth, noisy->profiles) == 0);
    assert_works(harpe_replica_profiles_smooth(exact->profiles, 0.03, &same, &failure));
    assert_true(distance(same, exact->profiles) < 1e-9);
    assert_int_equal(harpe_replica_profiles_smooth(exact->profiles, NAN, &same, NULL),
                     HARPE_INVALID_ARGUMENT);
    harpe_replica_profiles_free(smooth);
    harpe_replica_profiles_free(same);
}

/* GPUs with different clocks are fitted as well. */
TEST(smoothing_accepts_gaps) {
    harpe_profile *gpus[5];
    test_random random = {3};
    for (int g = 0; g < 5; g++) {
        test_rows rows = {0};
        for (int k = 0; k < 12; k++)
            if ((k + g) % 3 != 0)
                add_row(&rows, 0, "forward", 1400 - 15 * k,
                        (1 + 0.1 * g) * (1 + 0.05 * k) *
                            (1 + random_between(&random, -1, 1) * 0.01),
                        100);
        gpus[g] = profile_of(&rows);
        free(rows.rows);
    }
    harpe_replica_profiles *noisy = NULL, *smooth = NULL;
    assert_works(
        harpe_replica_profiles_new((const harpe_profile *const *)gpus, 5, 1, &noisy, &failure));
    assert_works(harpe_replica_profiles_smooth(noisy, 0.03, &smooth, &failure));
    double before = 0, after = 0;
    for (int g = 0; g < 5; g++) {
        const harpe_profile_entry *a =
            harpe_profile_find(harpe_replica_profiles_at(noisy, g, 0), 0, "forward");
        const harpe_profile_entry *b =
            harpe_profile_find(harpe_replica_profiles_at(smooth, g, 0), 0, "forward");
        for (size_t p = 0; p < a->point_count; p++) {
            double truth = (1 + 0.1 * g) * (1 + 0.05 * (1400 - a->points[p].frequency_mhz) / 15);
            before += pow(a->points[p].time_s / truth - 1, 2);
            after += pow(b->points[p].time_s / truth - 1, 2);
        }
    }
    assert_true(after < 0.7 * before);
    for (int g = 0; g < 5; g++)
        harpe_profile_free(gpus[g]);
    harpe_replica_profiles_free(noisy);
    harpe_replica_profiles_free(smooth);
}
