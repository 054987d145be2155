/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers written with the fewest digits that read back as the same double, as "%.15g", "%.16g" or
 * "%.17g" print them, in any locale. What is measured lies in a range where that is quick: results
 * of a round are hundreds of such numbers. Reading is number.c. */
#include "base/text.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* 15 digits always survive from text to double, 17 always from double to text. */
enum { FEWEST_DIGITS = 15, MOST_DIGITS = 17 };

static bool reads_back(const char *number, size_t length, double value) {
    double read;
    return harpe_parse_double(number, length, &read) && read == value;
}

/* ---- Slowly: any number ------------------------------------------------------------------- */

static size_t print_slowly(char into[HARPE_NUMBER_SIZE], double value) {
    /* The thread's locale, not the process's: other threads do not notice. */
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale) {
        into[0] = '\0';
        return 0;
    }
    locale_t previous = uselocale(c_locale);
    size_t length = 0;
    for (int digits = FEWEST_DIGITS; digits <= MOST_DIGITS; digits++) {
        length = (size_t)snprintf(into, HARPE_NUMBER_SIZE, "%.*g", digits, value);
        if (reads_back(into, length, value)) break;
    }
    (void)uselocale(previous);
    freelocale(c_locale);
    return length;
}

/* ---- Quickly: 1e-4 up to 1e15 --------------------------------------------------------------- */

#if LDBL_MANT_DIG == 64

enum { SMALLEST_EXPONENT = -4, POWER_COUNT = 21 };

static const long double powers[POWER_COUNT] = {1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,
                                                1e7L,  1e8L,  1e9L,  1e10L, 1e11L, 1e12L, 1e13L,
                                                1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L};

/* The first `count` digits as an integer, rounded. One rounded product has an error of at most 0.01
 * in it: so close to half way nothing is decided here. */
static bool first_digits(double magnitude, int exponent, int count, uint64_t *digits) {
    long double scaled = (long double)magnitude * powers[count - 1 - exponent];
    *digits = (uint64_t)scaled;
    long double rest = scaled - (long double)*digits;
    if (rest > 0.49L && rest < 0.51L) return false;
    *digits += rest > 0.5L;
    return *digits < (uint64_t)powers[count];
}

/* `digits`, whose first one stands for 10^exponent, without zeros at the end. */
static size_t write_digits(char *into, uint64_t digits, int count, int exponent) {
    char reversed[MOST_DIGITS] = {0};
    char *at = into;
    int trailing = 0;
    for (int i = 0; i < count; i++, digits /= 10) {
        reversed[i] = (char)('0' + digits % 10);
        trailing += trailing == i && reversed[i] == '0';
    }
    for (int place = exponent < 0 ? 0 : exponent; place >= 0 || count > trailing; place--) {
        if (place == -1) *at++ = '.';
        *at++ = place > exponent || count == 0 ? '0' : reversed[--count];
    }
    *at = '\0';
    return (size_t)(at - into);
}

static size_t print_quickly(char into[HARPE_NUMBER_SIZE], double value) {
    double magnitude = fabs(value);
    if (!(magnitude >= 1e-4 && magnitude < 1e15)) return 0;
    int exponent = SMALLEST_EXPONENT;
    while (exponent < 0 ? (long double)magnitude * powers[-exponent - 1] >= 1
                        : (long double)magnitude >= powers[exponent + 1]) {
        exponent++;
    }
    size_t sign = value < 0 ? 1 : 0;
    into[0] = '-';
    for (int count = FEWEST_DIGITS; count <= MOST_DIGITS; count++) {
        uint64_t digits;
        if (!first_digits(magnitude, exponent, count, &digits)) return 0;
        size_t length = write_digits(into + sign, digits, count, exponent);
        if (reads_back(into + sign, length, magnitude)) return sign + length;
    }
    return 0;
}

#else

static size_t print_quickly(char into[HARPE_NUMBER_SIZE], double value) {
    (void)into;
    (void)value;
    return 0;
}

#endif

size_t harpe_print_number(char into[HARPE_NUMBER_SIZE], double value) {
    size_t length = print_quickly(into, value);
    return length > 0 ? length : print_slowly(into, value);
}
