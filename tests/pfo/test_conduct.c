/* SPDX-License-Identifier: Apache-2.0 */
/* The conduct in a result: it survives writing and reading, results without it are as before, and a
 * wrong conduct never spoils a result. */
#include "test.h"

#include "pfo/result_scan.h"

static const harpe_conduct SAMPLES[] = {
    {.is_known = true},
    {true, 24, 20, 2, 1, 2, 3, 7, 5, 1200, 600, 4096, 1234.5, 1230.25, 3.125, 2.5},
    {true, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1000000000, 0, 0, 0, 0},
    {true, 1000000000000, 0, 1000000000000, 0, 0, 0, 0, 0, 0, 0, 0, 1e-9, 1e14, 1e3, 1e3},
};

static void assert_equal(const harpe_conduct *a, const harpe_conduct *b) {
    assert_int_equal(a->is_known, b->is_known);
    assert_int_equal(a->steps, b->steps);
    assert_int_equal(a->as_planned, b->as_planned);
    assert_int_equal(a->misfits, b->misfits);
    assert_int_equal(a->misfits_measured, b->misfits_measured);
    assert_int_equal(a->disobeyed, b->disobeyed);
    assert_int_equal(a->lost, b->lost);
    assert_int_equal(a->impossible, b->impossible);
    assert_int_equal(a->left_out, b->left_out);
    assert_int_equal(a->wanted_mhz, b->wanted_mhz);
    assert_int_equal(a->held_mhz, b->held_mhz);
    assert_int_equal(a->tokens_per_step, b->tokens_per_step);
    assert_true(a->counter_j == b->counter_j && a->power_j == b->power_j &&
                a->energy_uncertainty_j == b->energy_uncertainty_j &&
                a->late_energy_j == b->late_energy_j);
}

static char *with_conduct(const harpe_conduct *conduct) {
    double time_s = 0.5, energy_j = 120;
    harpe_profiling_result result = {.rank = 3,
                                     .iteration_time_s = &time_s,
                                     .iteration_time_count = 1,
                                     .iteration_energy_j = &energy_j,
                                     .iteration_energy_count = 1};
    char *json = NULL;
    assert_works(harpe_profiling_result_format(&result, &json, &failure));
    assert_works(harpe_conduct_append(conduct, &json, &failure));
    return json;
}

TEST(a_conduct_survives_writing_and_reading) {
    for (size_t i = 0; i < sizeof SAMPLES / sizeof *SAMPLES; i++) {
        owned_array char *json = with_conduct(&SAMPLES[i]);
        int rank;
        harpe_result_totals totals;
        assert_true(harpe_profiling_result_scan_totals(json, strlen(json), &rank, &totals));
        assert_equal(&totals.conduct, &SAMPLES[i]);
        /* The same in a text that only the full reader accepts. */
        char odd[1024];
        snprintf(odd, sizeof odd, "{\"unknown\":null,%s", json + 1);
        assert_false(harpe_profiling_result_scan(odd, strlen(odd), &rank));
        harpe_conduct read = harpe_conduct_read(odd, strlen(odd));
        assert_equal(&read, &SAMPLES[i]);
        AT_END(harpe_profiling_result_free) harpe_profiling_result result;
        assert_works(harpe_profiling_result_parse(json, strlen(json), &result, &failure));
        assert_int_equal(result.rank, 3);
        assert_true(result.iteration_time_s[0] == 0.5);
    }
}

TEST(a_wrong_conduct_is_unknown_and_spoils_no_result) {
    static const char *const conducts[] = {
        "null",
        "7",
        "[]",
        "\"steps\"",
        "{\"steps\":-1}",
        "{\"steps\":1e99}",
        "{\"steps\":2,\"as_planned\":3}",
        "{\"steps\":2,\"disobeyed\":3}",
        "{\"misfits\":1}",
        "{\"steps\":5,\"misfits\":1,\"misfits_measured\":2}",
        "{\"steps\":\"5\"}",
        "{\"steps\":null}",
        "{\"steps\":[1]}",
        "{\"counter_energy\":-1}",
        "{\"energy_uncertainty\":1,\"late_energy\":2}",
        "{\"tokens_per_step\":1000000001}",
    };
    static const harpe_conduct unknown;
    for (size_t i = 0; i < sizeof conducts / sizeof *conducts; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{\"rank\":0,\"iter_time\":[1],\"iter_energy\":[2],\"conduct\":%s}", conducts[i]);
        harpe_conduct conduct = harpe_conduct_read(text, strlen(text));
        assert_equal(&conduct, &unknown);
        AT_END(harpe_profiling_result_free) harpe_profiling_result result;
        assert_works(harpe_profiling_result_parse(text, strlen(text), &result, &failure));
        assert_int_equal(result.iteration_time_count, 1);
    }
}

TEST(members_may_be_missing_or_new) {
    static const char text[] = "{\"rank\":0,\"iter_time\":[1],\"iter_energy\":[2],"
                               "\"conduct\":{\"steps\":4,\"later\":-8,\"as_planned\":3.0}}";
    harpe_conduct conduct = harpe_conduct_read(text, sizeof text - 1);
    assert_true(conduct.is_known);
    assert_int_equal(conduct.steps, 4);
    assert_int_equal(conduct.as_planned, 3);
    static const char without[] = "{\"rank\":0,\"iter_time\":[1],\"iter_energy\":[2]}";
    assert_false(harpe_conduct_read(without, sizeof without - 1).is_known);
    assert_false(harpe_conduct_read("", 0).is_known);
    assert_false(harpe_conduct_read("{\"conduct\"", 10).is_known);
}
