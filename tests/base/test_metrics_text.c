/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of Prometheus' text format. tests/server/test_metrics.py and
 * tests/agent/test_metrics.py check whole pages with promtool. */
#include "test.h"

#include <math.h>

#include "base/text.h"

static void check_label(const char *value, const char *expected) {
    AT_END(harpe_text_free) harpe_text text = {0};
    harpe_metrics_text_label(&text, "name", value);
    assert_false(text.failed);
    assert_string_equal(text.data, expected);
}

TEST(labels_are_escaped) {
    check_label("", "name=\"\"");
    check_label("plain text, {braces}", "name=\"plain text, {braces}\"");
    check_label("a\"b\\c\nd", "name=\"a\\\"b\\\\c\\nd\"");
    check_label("\\n", "name=\"\\\\n\"");
}

TEST(characters_of_utf_8_stay) {
    check_label("\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80 \xED\x9F\xBF \xF4\x8F\xBF\xBF",
                "name=\"\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80 \xED\x9F\xBF \xF4\x8F\xBF\xBF\"");
}

TEST(other_bytes_are_replaced) {
    check_label("a\xFFz", "name=\"a?z\"");
    check_label("a\xC3", "name=\"a?\"");              /* ends in a character */
    check_label("a\xE2\x82", "name=\"a??\"");         /* ends in a character */
    check_label("\xE2\"", "name=\"?\\\"\"");          /* the quote is still escaped */
    check_label("\xC0\xAF", "name=\"??\"");           /* too long for its character */
    check_label("\xE0\x80\xAF", "name=\"???\"");      /* too long for its character */
    check_label("\xF0\x80\x80\xAF", "name=\"????\""); /* too long for its character */
    check_label("\xED\xA0\x80", "name=\"???\"");      /* a surrogate */
    check_label("\xF4\x90\x80\x80", "name=\"????\""); /* above U+10FFFF */
    check_label("\x80", "name=\"?\"");
}

static void check_value(double value, const char *expected) {
    AT_END(harpe_text_free) harpe_text text = {0};
    harpe_metrics_text_value(&text, value);
    assert_string_equal(text.data, expected);
}

TEST(numbers_have_their_notation) {
    check_value(0, " 0\n");
    check_value(0.1, " 0.1\n");
    check_value(1410e6, " 1410000000\n");
    check_value(INFINITY, " +Inf\n");
    check_value(-INFINITY, " -Inf\n");
    check_value(NAN, " NaN\n");
}

TEST(a_head_has_help_and_type) {
    AT_END(harpe_text_free) harpe_text text = {0};
    harpe_metrics_text_head(&text, "harpe_x_total", "counter", "What it counts.");
    assert_string_equal(text.data,
                        "# HELP harpe_x_total What it counts.\n# TYPE harpe_x_total counter\n");
}
