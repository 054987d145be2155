/* SPDX-License-Identifier: Apache-2.0 */
/* Tests texts that grow, and the reading and writing of numbers: which texts are numbers, which are
 * not, and that a locale with a decimal comma changes nothing. */
#include "test.h"

#include <float.h>
#include <locale.h>
#include <math.h>

#include "base/number.h"
#include "base/text.h"

static bool parse_double(const char *text, double *value) {
    return harpe_parse_double(text, strlen(text), value);
}

static bool parse_int(const char *text, int64_t *value) {
    return harpe_parse_int(text, strlen(text), value);
}

static bool parse_int_like(const char *text, int64_t *value) {
    return harpe_parse_int_like(text, strlen(text), value);
}

static const char *number_text(double value) {
    static char copy[64];
    AT_END(harpe_text_free) harpe_text text = {0};
    harpe_text_number(&text, value);
    assert_false(text.failed);
    snprintf(copy, sizeof copy, "%s", text.data);
    return copy;
}

TEST(text_grows_and_stays_terminated) {
    harpe_text text = {0};
    for (int i = 0; i < 1000; i++) {
        harpe_text_append(&text, "abcdef", 3);
        harpe_text_printf(&text, "%d", i % 10);
    }
    assert_false(text.failed);
    assert_int_equal(text.length, 4000);
    assert_int_equal(strlen(text.data), 4000);
    assert_memory_equal(text.data + 3996, "abc9", 5);
    harpe_text_free(&text);
    assert_null(text.data);
}

TEST(appending_nothing_gives_an_empty_text) {
    AT_END(harpe_text_free) harpe_text text = {0};
    harpe_text_append(&text, NULL, 0);
    assert_string_equal(text.data, "");
    harpe_text_free(&text);
}

TEST(failure_is_remembered_and_keeps_the_text) {
    AT_END(harpe_text_free) harpe_text text = {0};
    harpe_text_append(&text, "abc", 3);
    harpe_text_append(&text, "x", SIZE_MAX - 2);
    assert_true(text.failed);
    harpe_text_append(&text, "def", 3);
    harpe_text_printf(&text, "%d", 1);
    harpe_text_number(&text, 1.5);
    assert_true(text.failed);
    assert_string_equal(text.data, "abc");
}

TEST(html_characters_are_escaped) {
    AT_END(harpe_text_free) harpe_text text = {0};
    harpe_text_html(&text, "<a href=\"x\">'&amp;'</a>");
    assert_string_equal(text.data, "&lt;a href=&quot;x&quot;&gt;&#39;&amp;amp;&#39;&lt;/a&gt;");
    harpe_text_free(&text);
    harpe_text_html(&text, "");
    assert_string_equal(text.data, "");
}

TEST(numbers_are_written_short) {
    assert_string_equal(number_text(0.1), "0.1");
    assert_string_equal(number_text(1410), "1410");
    assert_string_equal(number_text(0.1 + 0.2), "0.30000000000000004");
    assert_string_equal(number_text(-2.5e-7), "-2.5e-07");
    assert_string_equal(number_text(0), "0");
    assert_string_equal(number_text(1e300), "1e+300");
}

TEST(numbers_are_read_back_as_written) {
    const double edges[] = {DBL_MAX,   -DBL_MAX, DBL_MIN, DBL_TRUE_MIN, DBL_EPSILON,
                            1.0 / 3.0, 5e-324,   0.1,     1e23,         123456789012345678.0};
    double back = 0;
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        assert_true(parse_double(number_text(edges[i]), &back));
        assert_true(back == edges[i]);
    }
    uint64_t random = 88172645463325252ULL;
    for (int i = 0; i < 20000; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        double value;
        memcpy(&value, &random, sizeof value);
        if (!isfinite(value)) continue;
        assert_true(parse_double(number_text(value), &back));
        assert_true(back == value);
    }
}

TEST(plain_decimal_numbers_are_read) {
    const struct {
        const char *text;
        double value;
    } good[] = {{"0", 0},      {"-0", 0},          {"1.", 1},       {".5", .5},
                {"+1.5", 1.5}, {"1e3", 1000},      {"1E-3", 0.001}, {"1e+3", 1000},
                {"007", 7},    {"1e-320", 1e-320}, {"-.5e1", -5}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        double value = 42;
        assert_true(parse_double(good[i].text, &value));
        assert_true(value == good[i].value);
    }
}

TEST(anything_else_is_no_number) {
    const char *bad[] = {"",       " ",        " 1",    "1 ",  "nan",   "NaN",   "inf",
                         "-inf",   "infinity", "0x10",  "1e",  "1e+",   ".",     "-",
                         "+",      "+-1",      "e5",    "1,5", "1.2.3", "1_000", "1e999",
                         "-1e999", "1e-999",   "0x1p3", "1f",  "१"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double value = 42;
        assert_false(parse_double(bad[i], &value));
        assert_true(value == 42);
    }
}

TEST(only_the_given_length_is_read) {
    double value;
    int64_t whole;
    assert_true(harpe_parse_double("1.5e7", 3, &value));
    assert_true(value == 1.5);
    assert_true(harpe_parse_int("12345", 2, &whole));
    assert_int_equal(whole, 12);
    assert_false(harpe_parse_double("1\0002", 3, &value));
}

TEST(absurdly_long_number_is_refused) {
    char text[100000];
    double value = 42;
    memset(text, '1', sizeof text);
    assert_false(harpe_parse_double(text, sizeof text, &value));
    assert_true(harpe_parse_double(text, 300, &value));
}

TEST(whole_numbers_keep_to_their_range) {
    int64_t value = 0;
    assert_true(parse_int("9223372036854775807", &value));
    assert_true(value == INT64_MAX);
    assert_true(parse_int("-9223372036854775808", &value));
    assert_true(value == INT64_MIN);
    assert_true(parse_int("+007", &value));
    assert_int_equal(value, 7);
    const char *bad[] = {"9223372036854775808",
                         "-9223372036854775809",
                         "99999999999999999999",
                         "",
                         "-",
                         "+",
                         "1.0",
                         "1e3",
                         " 1",
                         "1 ",
                         "0x1",
                         "--1"};
    value = 42;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(parse_int(bad[i], &value));
        assert_int_equal(value, 42);
    }
}

TEST(whole_number_may_look_like_a_decimal) {
    int64_t value = 0;
    assert_true(parse_int_like("1410.0", &value));
    assert_int_equal(value, 1410);
    assert_true(parse_int_like("1.41e3", &value));
    assert_int_equal(value, 1410);
    assert_true(parse_int_like("-3", &value));
    assert_int_equal(value, -3);
    value = 42;
    assert_false(parse_int_like("1410.5", &value));
    assert_false(parse_int_like("1e300", &value));
    /* A double cannot represent every whole number of this size. */
    assert_false(parse_int_like("1e16", &value));
    assert_false(parse_int_like("nan", &value));
    assert_int_equal(value, 42);
}

/* Switches to a locale that writes 1,5, which this function makes, with the codes of ASCII: an
 * empty system has neither locales nor character maps. Returns false if the C library cannot. */
static bool set_comma_locale(void) {
    char folder[] = "/tmp/harpe-locale-XXXXXX", path[64], command[256];
    if (!mkdtemp(folder)) return false;
    snprintf(path, sizeof path, "%s/codes", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("<code_set_name> ANSI_X3.4-1968\n<comment_char> %\n<escape_char> /\nCHARMAP\n", file);
    for (int code = 0; code < 128; code++)
        fprintf(file, "<U%04X> /x%02x name\n", (unsigned)code, (unsigned)code);
    fputs("END CHARMAP\n", file);
    assert_int_equal(fclose(file), 0);
    snprintf(path, sizeof path, "%s/source", folder);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs("LC_NUMERIC\ndecimal_point \"<U002C>\"\nthousands_sep \"\"\ngrouping -1\n"
          "END LC_NUMERIC\n",
          file);
    assert_int_equal(fclose(file), 0);
    /* Its status tells of the other categories, which are missing. */
    snprintf(command, sizeof command,
             "cd %s && localedef -c -i source -f ./codes ./comma >/dev/null 2>&1", folder);
    bool is_set =
        system(command) >= 0 && setenv("LOCPATH", folder, 1) == 0 && setlocale(LC_ALL, "comma");
    unsetenv("LOCPATH");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) == 0 && is_set;
}

TEST(comma_locale_changes_nothing) {
    if (!set_comma_locale()) skip_because("missing: localedef");
    char control[16];
    snprintf(control, sizeof control, "%.1f", 1.5);
    assert_string_equal(control, "1,5");

    double value = 0;
    assert_true(parse_double("1.5", &value));
    assert_true(value == 1.5);
    assert_false(parse_double("1,5", &value));
    assert_string_equal(number_text(0.25), "0.25");
    harpe_text text = {0};
    harpe_text_printf(&text, "%.2f", 1234.5);
    assert_string_equal(text.data, "1234.50");
    harpe_text_free(&text);

    snprintf(control, sizeof control, "%.1f", 1.5);
    assert_string_equal(control, "1,5"); /* the caller's locale is unchanged */
    setlocale(LC_ALL, "C");
}
