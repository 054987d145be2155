/* SPDX-License-Identifier: Apache-2.0 */
/* Job ids: their form, and that no metadata makes an id dangerous as a path or in a URL. */
#include "test.h"

#include <time.h>

#include "pfo/metadata.h"

static void expect_id(const char *metadata, const char *scheduler, int repetition,
                      const char *expected) {
    harpe_job_info job = {"", 4, 2, 1, 8, metadata, NULL};
    struct tm local = {.tm_year = 123,
                       .tm_mon = 6,
                       .tm_mday = 5,
                       .tm_hour = 9,
                       .tm_min = 8,
                       .tm_sec = 7,
                       .tm_isdst = -1};
    owned_array char *id = harpe_job_id_make(&job, scheduler, mktime(&local), repetition);
    assert_non_null(id);
    assert_string_equal(id, expected);
    assert_true(harpe_job_id_is_valid(id));
}

TEST(an_id_tells_time_degrees_scheduler_and_metadata) {
    expect_id(NULL, "PointSolution", 1, "2023-07-05-09-08-07+dp2+pp4+tp1+PointSolution");
    expect_id("", "PointSolution", 2, "2023-07-05-09-08-07.2+dp2+pp4+tp1+PointSolution");
    expect_id("bert-1.3b_mb=32,a@b:c", "A", 13,
              "2023-07-05-09-08-07.13+dp2+pp4+tp1+A+bert-1.3b_mb=32,a@b:c");
    /* The id leaves out the words that the client adds. */
    expect_id("user=ann slurm_job=7 node=n1 nodes=2", "A", 1, "2023-07-05-09-08-07+dp2+pp4+tp1+A");
    expect_id("bert superuser=1 user=ann node=n1 end", "A", 1,
              "2023-07-05-09-08-07+dp2+pp4+tp1+A+bert_superuser=1_end");
}

TEST(what_could_lead_astray_becomes_underscores) {
    expect_id("../../etc/pass wd\n%2F+\\", "/x/y.so", 1,
              "2023-07-05-09-08-07+dp2+pp4+tp1+_x_y.so+.._.._etc_pass_wd__2F__");
    expect_id("\xC3\xA9\xE2\x82\xAC!", "program:a b", 1,
              "2023-07-05-09-08-07+dp2+pp4+tp1+program:a_b+___");
}

TEST(long_parts_are_cut) {
    char metadata[1000];
    memset(metadata, 'm', sizeof metadata - 1);
    metadata[sizeof metadata - 1] = '\0';
    harpe_job_info job = {"", 2147483647, 2147483647, 2147483647, 1, metadata, NULL};
    char *id = harpe_job_id_make(&job, metadata, 0, 2147483647);
    assert_non_null(id);
    assert_int_equal(strspn(strrchr(id, '+') + 1, "m"), 128);
    assert_int_equal(strlen(strrchr(id, '+') + 1), 128);
    assert_true(harpe_job_id_is_valid(id));
    free(id);
    owned_array char *far_away = harpe_job_id_make(&job, "S", (time_t)INT64_MAX, 1);
    assert_true(harpe_job_id_is_valid(far_away));
}

TEST(only_ids_of_ours_are_valid) {
    static const char *const bad[] = {"",     ".",     "..",       ".hidden", "a/b",  "a\\b", "a b",
                                      "a\nb", "a%2Fb", "\xC3\xA9", "a;b",     "a\"b", "~",    "*"};
    char text[600];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (harpe_job_id_is_valid(bad[i])) fail_msg("'%s' is valid", bad[i]);
    assert_true(harpe_job_id_is_valid("a"));
    assert_true(harpe_job_id_is_valid("A..-+_:=,@9"));
    memset(text, 'x', sizeof text);
    text[512] = '\0';
    assert_true(harpe_job_id_is_valid(text));
    text[512] = 'x';
    text[513] = '\0';
    assert_false(harpe_job_id_is_valid(text));
}
