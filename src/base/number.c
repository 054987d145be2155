/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers read strictly: the whole text must be one number in plain decimal notation, whatever the
 * locale. What a number means, and which range it may have, is for its reader to say. */
#include "base/text.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_NUMBER = 400 }; /* bytes; the exact decimal form of no measured value comes near */

/* Beyond 2^53 a double no longer tells neighbouring integers apart. */
static const double largest_exact_integer = 9007199254740992.0;

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static size_t skip_digits(const char *text, size_t length, size_t at) {
    while (at < length && is_digit(text[at])) {
        at++;
    }
    return at;
}

static size_t skip_sign(const char *text, size_t length, size_t at) {
    return at < length && (text[at] == '+' || text[at] == '-') ? at + 1 : at;
}

/* [+-] digits [. digits] [e [+-] digits], with a digit before or after the point. strtod() alone
 * would also take white space, "inf", "nan" and hexadecimal. */
static bool is_decimal_number(const char *text, size_t length) {
    size_t start = skip_sign(text, length, 0);
    size_t at = skip_digits(text, length, start);
    size_t digits = at - start;
    if (at < length && text[at] == '.') {
        size_t after_point = skip_digits(text, length, at + 1);
        digits += after_point - (at + 1);
        at = after_point;
    }
    if (digits == 0) {
        return false;
    }
    if (at < length && (text[at] == 'e' || text[at] == 'E')) {
        size_t exponent = skip_sign(text, length, at + 1);
        at = skip_digits(text, length, exponent);
        if (at == exponent) {
            return false;
        }
    }
    return at == length;
}

bool harpe_parse_double(const char *text, size_t length, double *value) {
    char copy[LONGEST_NUMBER + 1];
    if (length > LONGEST_NUMBER || !is_decimal_number(text, length)) {
        return false;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';

    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale) {
        return false;
    }
    int saved_errno = errno;
    errno = 0;
    double number = strtod_l(copy, NULL, c_locale);
    bool is_out_of_range = errno == ERANGE && (number == 0.0 || !isfinite(number));
    errno = saved_errno;
    freelocale(c_locale);
    if (is_out_of_range) {
        return false;
    }
    *value = number;
    return true;
}

bool harpe_parse_int(const char *text, size_t length, int64_t *value) {
    size_t start = skip_sign(text, length, 0);
    if (start == length || skip_digits(text, length, start) != length) {
        return false;
    }
    bool is_negative = text[0] == '-';
    int64_t number = 0;
    for (size_t at = start; at < length; at++) {
        int64_t digit = text[at] - '0';
        /* Negative numbers are built downwards: INT64_MIN has no positive counterpart. */
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, is_negative ? -digit : digit, &number)) {
            return false;
        }
    }
    *value = number;
    return true;
}

bool harpe_parse_int_like(const char *text, size_t length, int64_t *value) {
    double number;
    if (harpe_parse_int(text, length, value)) {
        return true;
    }
    if (!harpe_parse_double(text, length, &number) || fabs(number) > largest_exact_integer ||
        number != trunc(number)) {
        return false;
    }
    *value = (int64_t)number;
    return true;
}
