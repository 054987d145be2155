/* SPDX-License-Identifier: Apache-2.0 */
/* The profile file: files of the published tool and of Harpe are read, and impossible values are
 * refused. */
#include "test.h"

#include "base/scratch.h"
#include "power_limit/profile_file.h"

static harpe_status parse(const char *text, harpe_power_limit_profile *out, harpe_error *error) {
    return harpe_power_limit_profile_parse(text, strlen(text), "p.json", out, error);
}

TEST(the_published_file_is_read) {
    AT_END(harpe_power_limit_profile_clear) harpe_power_limit_profile profile = {0};
    assert_int_equal(
        parse("{\"measurements\":[{\"power_limit\":225,\"energy\":1832.896,\"time\":10.7},"
              "{\"power_limit\":250,\"energy\":1900.3,\"time\":9.99}]}",
              &profile, NULL),
        HARPE_OK);
    assert_int_equal(profile.count, 2);
    assert_int_equal(profile.measurements[0].power_limit_w, 250); /* highest first */
    assert_true(profile.measurements[0].energy_j == 1900.3);
    assert_true(profile.measurements[1].time_s == 10.7);
    assert_null(profile.device_model);
    assert_works(harpe_power_limit_profile_check(&profile, "p", "any", 100, 250, &failure));
}

SCRATCH_TEST(what_is_written_reads_the_same) {
    const char *path = scratch_path(s, "p.json");
    harpe_power_limit_measurement measured[] = {{250, 1.0 / 3, 9.991050186916254},
                                                {100, 1e-9, 1e9}};
    char model[] = "Odd \"GPU\" \\ 1\n";
    harpe_power_limit_profile written = {measured, 2, model, 100, 250};
    AT_END(harpe_power_limit_profile_clear) harpe_power_limit_profile read = {0};
    assert_works(harpe_power_limit_profile_write(path, &written, &failure));
    assert_works(harpe_power_limit_profile_read(path, &read, &failure));
    assert_int_equal(read.count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(read.measurements[i].power_limit_w, measured[i].power_limit_w);
        assert_true(read.measurements[i].energy_j == measured[i].energy_j);
        assert_true(read.measurements[i].time_s == measured[i].time_s);
    }
    assert_int_equal(read.minimum_w, 100);
    assert_int_equal(read.maximum_w, 250);
    assert_string_equal(read.device_model, "Odd \"GPU\" \\ 1?");
    assert_works(harpe_power_limit_profile_check(&read, "p", model, 100, 250, &failure));
}

TEST(a_profile_of_another_gpu_is_refused) {
    AT_END(harpe_power_limit_profile_clear) harpe_power_limit_profile profile = {0};
    assert_int_equal(parse("{\"measurements\":[{\"power_limit\":200,\"energy\":1,\"time\":1}],"
                           "\"device_model\":\"A\",\"minimum_w\":100,\"maximum_w\":250}",
                           &profile, NULL),
                     HARPE_OK);
    assert_works(harpe_power_limit_profile_check(&profile, "p", "A", 100, 250, &failure));
    assert_works(harpe_power_limit_profile_check(&profile, "p", NULL, 100, 250, &failure));
    assert_refuses(harpe_power_limit_profile_check(&profile, "p", "B", 100, 250, &failure),
                   HARPE_INVALID_INPUT, "'A'");
    assert_int_equal(harpe_power_limit_profile_check(&profile, "p", "A", 100, 300, &failure),
                     HARPE_INVALID_INPUT);
    profile.minimum_w = profile.maximum_w = 0;
    assert_int_equal(harpe_power_limit_profile_check(&profile, "p", "A", 100, 199, &failure),
                     HARPE_INVALID_INPUT);
}

TEST(bad_files_are_refused_in_one_line) {
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"measurements\":[]}",
        "{\"measurements\":{}}",
        "{\"measurements\":[1]}",
        "{\"measurements\":[{\"power_limit\":100,\"energy\":1}]}",
        "{\"measurements\":[{\"power_limit\":100,\"energy\":1,\"time\":0}]}",
        "{\"measurements\":[{\"power_limit\":100,\"energy\":-1,\"time\":1}]}",
        "{\"measurements\":[{\"power_limit\":100,\"energy\":\"1\",\"time\":1}]}",
        "{\"measurements\":[{\"power_limit\":100.5,\"energy\":1,\"time\":1}]}",
        "{\"measurements\":[{\"power_limit\":1e300,\"energy\":1,\"time\":1}]}",
        "{\"measurements\":[{\"power_limit\":0,\"energy\":1,\"time\":1}]}",
        "{\"measurements\":[{\"power_limit\":100,\"energy\":NaN,\"time\":1}]}",
        ("{\"measurements\":[{\"power_limit\":9,\"energy\":1,\"time\":1},"
         "{\"power_limit\":9,\"energy\":1,\"time\":1}]}"),
        "{\"measurements\":[{\"power_limit\":9,\"energy\":1,\"time\":1}],\"device_model\":1}",
        "{\"measurements\":[{\"power_limit\":9,\"energy\":1,\"time\":1}],\"minimum_w\":-1}",
        "{\"measurements\":[{\"power_limit\":9,\"energy\":1,\"time\":1}],\"maximum_w\":1.5}",
        "{\"measurements\":[{\"power_limit\":9,\"energy\":1,\"time\":1}]",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        harpe_power_limit_profile profile = {0};
        if (parse(bad[i], &profile, &failure) != HARPE_INVALID_INPUT)
            fail_msg("accepted: %s", bad[i]);
        assert_int_equal(strncmp(failure.message, "p.json:", 7), 0);
        assert_null(strchr(failure.message, '\n'));
        assert_null(profile.measurements);
    }
}

TEST(a_missing_file_is_not_found) {
    harpe_power_limit_profile profile = {0};
    assert_int_equal(harpe_power_limit_profile_read("/nowhere/at/all.json", &profile, NULL),
                     HARPE_NOT_FOUND);
    harpe_power_limit_profile_clear(NULL);
}
