/* SPDX-License-Identifier: Apache-2.0 */
/* A page of metrics: sums, labels and histograms, and what of it cannot be. */
#include "test.h"

#include <math.h>
#include <string.h>

#include "tune/tune_internal.h"

static const char page[] =
    "# HELP vllm:generation_tokens_total Number of generation tokens.\n"
    "# TYPE vllm:generation_tokens_total counter\n"
    "vllm:generation_tokens_total{engine=\"0\",model_name=\"a \\\"b\\\" \\\\ c\"} 100.0\n"
    "vllm:generation_tokens_total{engine=\"1\",model_name=\"m\"} 2.5e+01 1700000000000\n"
    "vllm:generation_tokens_total_more 1e9\n"
    "# EOF is not here\n"
    "steps 7\r\n"
    "not a number NaN\n"
    "broken{a=\"b 3\n"
    "lone{} 4\n"
    "nan_total NaN\n"
    "inf_total +Inf\n"
    "huge_total 1e300\n"
    "mixed_total{a=\"1\"} 5\n"
    "mixed_total{a=\"2\"} NaN\n"
    "wait_seconds_bucket{le=\"0.1\",path=\"/a\"} 10\n"
    "wait_seconds_bucket{le=\"+Inf\",path=\"/a\"} 30\n"
    "wait_seconds_bucket{le=\"0.2\",path=\"/a\"} 20\n"
    "wait_seconds_bucket{le=\"0.1\",path=\"/b\"} 1\n"
    "wait_seconds_bucket{le=\"0.2\",path=\"/b\"} 2\n"
    "wait_seconds_bucket{le=\"+Inf\",path=\"/b\"} 3";

static void assert_close(double found, double wanted, double within) {
    if (!(fabs(found - wanted) <= within)) fail_msg("%g is not %g", found, wanted);
}

static harpe_page_selector selector_of(const char *text) {
    harpe_page_selector selector;
    assert_int_equal(harpe_page_selector_parse("--rate", text, &selector, NULL), HARPE_OK);
    return selector;
}

static double sum_of(const char *text) {
    harpe_page_selector selector = selector_of(text);
    double sum = -1;
    return harpe_page_sum(page, strlen(page), &selector, &sum) ? sum : NAN;
}

TEST(samples_of_a_name_are_added) {
    assert_close(sum_of("vllm:generation_tokens_total"), 125, 0);
    assert_close(sum_of("steps"), 7, 0);
    assert_close(sum_of("lone"), 4, 0);
}

TEST(labels_select) {
    assert_close(sum_of("vllm:generation_tokens_total{engine=\"1\"}"), 25, 0);
    assert_close(sum_of("vllm:generation_tokens_total{ model_name = \"a \\\"b\\\" \\\\ c\" , }"),
                 100, 0);
    assert_true(isnan(sum_of("vllm:generation_tokens_total{engine=\"2\"}")));
    assert_true(isnan(sum_of("mixed_total{a=\"1\",b=\"\"}")));
    assert_true(isnan(sum_of("steps{engine=\"1\"}")));
    assert_close(sum_of("steps{}"), 7, 0);
}

TEST(what_cannot_be_is_no_reading) {
    assert_true(isnan(sum_of("nan_total")));
    assert_true(isnan(sum_of("inf_total")));
    assert_true(isnan(sum_of("huge_total")));
    assert_true(isnan(sum_of("mixed_total")));
    assert_close(sum_of("mixed_total{a=\"1\"}"), 5, 0);
    assert_true(isnan(sum_of("broken")));
    assert_true(isnan(sum_of("absent")));
}

TEST(wrong_selectors_are_refused) {
    static const char *const wrong[] = {"",     "1a",     "a b",       "a{",
                                        "a{b}", "a{b=c}", "a{b=\"c\"", "a{b=\"c\"}d"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        harpe_page_selector selector;
        harpe_error error;
        assert_int_equal(harpe_page_selector_parse("--rate", wrong[i], &selector, &error),
                         HARPE_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, "--rate: expected NAME"));
    }
}

TEST(a_histogram_is_read_in_order) {
    harpe_page_histogram all, one;
    harpe_page_selector selector = selector_of("wait_seconds");
    assert_true(harpe_page_read_histogram(page, strlen(page), &selector, &all));
    assert_int_equal(all.bucket_count, 3);
    assert_close(all.bound_s[1], 0.2, 0);
    assert_true(isinf(all.bound_s[2]));
    assert_close(all.count[0], 11, 0);
    assert_close(all.count[2], 33, 0);
    selector = selector_of("wait_seconds{path=\"/b\"}");
    assert_true(harpe_page_read_histogram(page, strlen(page), &selector, &one));
    assert_close(one.count[1], 2, 0);
    static const char negative[] = "wait_seconds_bucket{le=\"-0.1\"} 1\n";
    selector = selector_of("wait_seconds");
    assert_false(harpe_page_read_histogram(negative, strlen(negative), &selector, &one));
    selector = selector_of("steps");
    assert_false(harpe_page_read_histogram(page, strlen(page), &selector, &one));
}

TEST(a_percentile_is_that_of_the_slice) {
    harpe_page_histogram before = {{0.1, 0.2, INFINITY}, {100, 100, 100}, 3};
    harpe_page_histogram after = {{0.1, 0.2, INFINITY}, {150, 200, 200}, 3};
    assert_close(harpe_page_quantile_s(&before, &after, 0.5, 20), 0.1, 1e-12);
    assert_close(harpe_page_quantile_s(&before, &after, 0.95, 20), 0.19, 1e-12);
    assert_true(isnan(harpe_page_quantile_s(&before, &after, 0.95, 101)));
    assert_true(isnan(harpe_page_quantile_s(&after, &before, 0.95, 20)));
    assert_true(isnan(harpe_page_quantile_s(&after, &after, 0.95, 0)));
    after.count[2] = 300;
    assert_true(isinf(harpe_page_quantile_s(&before, &after, 0.95, 20)));
    after.bucket_count = 2;
    assert_true(isnan(harpe_page_quantile_s(&before, &after, 0.95, 20)));
}
