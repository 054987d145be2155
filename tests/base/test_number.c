/* SPDX-License-Identifier: Apache-2.0 */
/* Fast conversion of numbers: the result always equals that of strtod(), for every way to print a
 * number, and for numbers very close to the middle between two doubles. */
#include "test.h"

#include <math.h>

#include "base/number.h"

enum { RANDOM_DOUBLES = 100000 }; /* if all trials are made */

static uint64_t next_random(void) {
    static uint64_t state = 88172645463325252ULL;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Scans from memory of exactly that size, so that a read past the end is detected. */
static size_t scan(const char *text, size_t length, double *value, bool *is_integer) {
    owned_array char *exact = malloc(length > 0 ? length : 1);
    assert_non_null(exact);
    memcpy(exact, text, length);
    size_t scanned = harpe_scan_number(exact, length, value, is_integer);
    return scanned;
}

static void check_same_as_strtod(const char *text) {
    double expected = strtod(text, NULL);
    double scanned = -1;
    double parsed = -1;
    bool is_integer;
    size_t length = strlen(text);
    if (scan(text, length, &scanned, &is_integer) != length ||
        memcmp(&scanned, &expected, sizeof expected) != 0)
        fail_msg("scanned '%s' as %a, strtod gives %a", text, scanned, expected);
    bool is_zero = strcspn(text, "123456789") >= strcspn(text, "e");
    bool is_in_range = isfinite(expected) && (expected != 0 || is_zero);
    if (harpe_parse_double(text, length, &parsed) != is_in_range ||
        (is_in_range && memcmp(&parsed, &expected, sizeof expected) != 0))
        fail_msg("parsed '%s' as %a, strtod gives %a", text, parsed, expected);
}

static void check_all_forms(double value) {
    static const int digits[] = {17, 16, 15, 6, 19, 25};
    char text[400];
    for (size_t i = 0; i < sizeof digits / sizeof *digits; i++) {
        (void)snprintf(text, sizeof text, "%.*g", digits[i], value);
        check_same_as_strtod(text);
    }
    (void)snprintf(text, sizeof text, "%.17e", value);
    check_same_as_strtod(text);
    (void)snprintf(text, sizeof text, "%.3f", value);
    check_same_as_strtod(text);
}

TEST(any_double_reads_as_with_strtod) {
    for (int i = 0; i < few_trials(RANDOM_DOUBLES / 2); i++) {
        uint64_t bits = next_random();
        double value;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value)) check_all_forms(value);
    }
}

TEST(measured_magnitudes_read_as_with_strtod) {
    for (int i = 0; i < few_trials(RANDOM_DOUBLES); i++) {
        double value = ldexp((double)next_random(), -64 + (int)(next_random() % 90) - 45);
        check_all_forms(next_random() % 2 ? value : -value);
    }
}

/* Digits of the exact middle between neighbouring doubles, truncated, and changed in the last
 * digit. */
TEST(middles_between_doubles_read_as_with_strtod) {
    char text[400];
    for (int i = 0; i < few_trials(RANDOM_DOUBLES); i++) {
        uint64_t mantissa = (next_random() >> 11 | 1ULL << 52) & ((1ULL << 53) - 1);
        int exponent = (int)(next_random() % 140) - 120;
        long double middle = ldexpl((long double)mantissa + 0.5L, exponent);
        for (int digits = 17; digits <= 22; digits++) {
            (void)snprintf(text, sizeof text, "%.*Lg", digits, middle);
            check_same_as_strtod(text);
            char *last = text + strcspn(text, "e") - 1;
            *last = (char)(*last == '9' ? '8' : *last == '.' ? '.' : *last + 1);
            if (*last != '.') check_same_as_strtod(text);
        }
    }
}

TEST(integers_read_as_with_strtod) {
    char text[64];
    for (int i = 0; i < few_trials(RANDOM_DOUBLES); i++) {
        uint64_t value = next_random() >> (next_random() % 64);
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)value);
        check_same_as_strtod(text);
        (void)snprintf(text, sizeof text, "-%llue%d", (unsigned long long)value,
                       (int)(next_random() % 80) - 40);
        check_same_as_strtod(text);
    }
}

TEST(edges_read_as_with_strtod) {
    static const char *const edges[] = {
        "0",
        "-0",
        "0.0",
        "-0e5",
        "0e999999999999999999999",
        "1e999999999999999999999",
        "1e-999999999999999999999",
        "9007199254740992",
        "9007199254740993",
        "9007199254740993.0000000000000000000000001",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999",
        "9999999999999999999e27",
        "1e22",
        "1e23",
        "1e27",
        "1e28",
        "4.9e-324",
        "2.4703282292062327208e-324",
        "2.4703282292062328e-324",
        "2.2250738585072011e-308",
        "1.7976931348623157e308",
        "1.7976931348623159e308",
        "0.000000000000000000000000000000000000000000000000001",
        "0.00000000000000000000012345678901234567890123456789",
        "123456780000000000000000000000000000000000.5",
        "1.00000000000000011102230246251565404236316680908203125",
        "1.00000000000000011102230246251565404236316680908203124",
        "7.8459735791271921e65",
    };
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        check_same_as_strtod(edges[i]);
}

TEST(a_scan_takes_the_longest_json_number) {
    const struct {
        const char *text;
        size_t length;
        double value;
        bool is_integer;
    } cases[] = {
        {"", 0, 0, false},        {"-", 0, 0, false},       {"+1", 0, 0, false},
        {".5", 0, 0, false},      {"-.5", 0, 0, false},     {"x", 0, 0, false},
        {"01", 1, 0, true},       {"1.", 1, 1, true},       {"1.e5", 1, 1, true},
        {"1e", 1, 1, true},       {"1e+", 1, 1, true},      {"1.5e-", 3, 1.5, false},
        {"12,", 2, 12, true},     {"-12]", 3, -12, true},   {"1.25 ", 4, 1.25, false},
        {"1e2.5", 3, 100, false}, {"-0.5-", 4, -.5, false}, {"1E+2e", 4, 100, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double value = 0;
        bool is_integer = false;
        assert_int_equal(scan(cases[i].text, strlen(cases[i].text), &value, &is_integer),
                         cases[i].length);
        if (cases[i].length > 0) {
            assert_true(value == cases[i].value);
            assert_int_equal(is_integer, cases[i].is_integer);
        }
    }
}

TEST(a_number_of_many_digits_has_no_value) {
    char text[500];
    double value = 0;
    bool is_integer;
    memset(text, '1', sizeof text);
    assert_int_equal(scan(text, sizeof text, &value, &is_integer), sizeof text);
    assert_true(isnan(value) && is_integer);
    assert_int_equal(scan(text, 400, &value, &is_integer), 400);
    assert_true(isinf(value));
    text[0] = '0';
    text[1] = '.';
    assert_int_equal(scan(text, 400, &value, &is_integer), 400);
    assert_true(value == 1.0 / 9);
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void check_printed(double value) {
    char expected[64];
    char printed[HARPE_NUMBER_SIZE];
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(expected, sizeof expected, "%.*g", digits, value);
        if (strtod(expected, NULL) == value) break;
    }
    size_t length = harpe_print_number(printed, value);
    if (strcmp(printed, expected) != 0 || length != strlen(expected))
        fail_msg("%a printed as '%s', printf gives '%s'", value, printed, expected);
}

TEST(numbers_are_printed_as_by_printf) {
    static const double edges[] = {
        0,     -0.0,    1,     -1,       10,     0.1,    0.5,
        1e-4,  9.9e-5,  1e-5,  1e14,     1e15,   1e16,   123456.75,
        1e22,  1e23,    1e300, 5e-324,   0.3,    2.5e-4, 1.0 / 3,
        1e100, 1410000, 99.5,  1e-4 / 3, 9.5e14, 7e-310, 4503599627370496};
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        check_printed(edges[i]);
        check_printed(nextafter(edges[i], 1e308));
        check_printed(nextafter(edges[i], -1e308));
    }
    for (int i = 0; i < few_trials(RANDOM_DOUBLES); i++) {
        check_printed(ldexp((double)next_random(), -64 + (int)(next_random() % 90) - 30));
        check_printed((double)(next_random() % 10000000) / 1000);
        check_printed((double)(next_random() % 1000000) / 1e9);
        check_printed(-(double)(next_random() >> (next_random() % 64)));
    }
}
