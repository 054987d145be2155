/* SPDX-License-Identifier: Apache-2.0 */
/* Reads numbers strictly: the whole text must be one number in plain decimal notation, in any
 * locale. The caller interprets the number and checks its range. */
#include "base/number.h"

#include <errno.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LONGEST_NUMBER = 400
}; /* bytes; the exact decimal form of a measured value is much
    * shorter */

/* Above 2^53 a double cannot represent every integer. */
static const double largest_exact_integer = 9007199254740992.0;

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static size_t skip_digits(const char *text, size_t length, size_t at) {
    while (at < length && is_digit(text[at]))
        at++;
    return at;
}

static size_t skip_sign(const char *text, size_t length, size_t at) {
    return at < length && (text[at] == '+' || text[at] == '-') ? at + 1 : at;
}

/* Returns true for [+-] digits [. digits] [e [+-] digits], with at least one digit before or after
 * the point. strtod() alone would also take white space, "inf", "nan" and hexadecimal. */
static bool is_decimal_number(const char *text, size_t length) {
    size_t start = skip_sign(text, length, 0);
    size_t at = skip_digits(text, length, start);
    size_t digits = at - start;
    if (at < length && text[at] == '.') {
        size_t after_point = skip_digits(text, length, at + 1);
        digits += after_point - (at + 1);
        at = after_point;
    }
    if (digits == 0) return false;
    if (at < length && (text[at] == 'e' || text[at] == 'E')) {
        size_t exponent = skip_sign(text, length, at + 1);
        at = skip_digits(text, length, exponent);
        if (at == exponent) return false;
    }
    return at == length;
}

/* ---- From digits to a double ----------------------------------------------------------------- */

/* The number is digits * 10^exponent, if digit_count <= DIGITS_OF_64_BITS. */
typedef struct decimal {
    uint64_t digits;
    size_t digit_count; /* without leading zeros */
    int64_t exponent;
    bool is_negative;
} decimal;

enum {
    DIGITS_OF_64_BITS = 19,
    BLOCK = 8,
    EXPONENT_LIMIT = 100000, /* beyond the exponent of every double; further digits do not matter */
};

/* Counts the digits at the beginning of the next eight characters and reads their value. Handles
 * the eight bytes at once, as one 64-bit word. */
static inline size_t read_block(const char *text, uint64_t *value) {
    const uint64_t zeros = 0x3030303030303030U;
    uint64_t block;
    memcpy(&block, text, sizeof block);
    /* Borrows and carries change only bytes after the first character that is not a digit. */
    uint64_t others = ((block + 0x4646464646464646U) | (block - zeros)) & 0x8080808080808080U;
    size_t count = others ? (size_t)__builtin_ctzll(others) / 8 : BLOCK;
    if (count == 0) return 0;
    block = (block - zeros) << (BLOCK - count) * 8; /* puts zeros in front of the digits */
    block = block * 10 + (block >> 8);              /* pairs of digits, in every other byte */
    *value = ((block & 0x000000FF000000FFU) * 0x000F424000000064U +
              ((block >> 16) & 0x000000FF000000FFU) * 0x0000271000000001U) >>
             32;
    return count;
}

/* Reads digits. The callers notice an overflow from the number of digits. */
static inline size_t take_digits(const char *text, size_t length, size_t at, decimal *number) {
    static const uint64_t scale[BLOCK + 1] = {1,      10,      100,      1000,     10000,
                                              100000, 1000000, 10000000, 100000000};
    uint64_t digits = number->digits;
    if (digits == 0)
        while (at < length && text[at] == '0')
            at++;
    size_t start = at;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t block = 0;
    for (size_t count = BLOCK; count == BLOCK && length - at >= BLOCK; at += count) {
        count = read_block(text + at, &block);
        digits = count > 0 ? digits * scale[count] + block : digits;
    }
#endif
    for (; at < length && is_digit(text[at]); at++)
        digits = digits * 10 + (uint64_t)(text[at] - '0');
    number->digits = digits;
    number->digit_count += at - start;
    return at;
}

static size_t take_exponent(const char *text, size_t length, size_t at, decimal *number) {
    bool is_negative = text[at] == '-';
    int64_t exponent = 0;
    for (at = skip_sign(text, length, at); at < length && is_digit(text[at]); at++)
        if (exponent < EXPONENT_LIMIT) exponent = exponent * 10 + (text[at] - '0');
    number->exponent += is_negative ? -exponent : exponent;
    return at;
}

/* Converts a number with one operation on two exact operands, if possible. Such a result is
 * correctly rounded. With double this works for digits up to 2^53 and powers up to 10^22. The long
 * double of x86, which has 64 bits of precision, allows more. Its result is rounded a second time,
 * to double. This is harmless unless the first result lies exactly half way between two doubles. */
static bool convert_exactly(const decimal *number, double *value) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    int64_t exponent = number->exponent;
    double result;
    if (number->digit_count > DIGITS_OF_64_BITS || FLT_EVAL_METHOD != 0) return false;
    if (number->digits <= (uint64_t)largest_exact_integer && exponent >= -22 && exponent <= 22) {
        result = (double)number->digits;
        result = exponent < 0 ? result / powers[-exponent] : result * powers[exponent];
        *value = number->is_negative ? -result : result;
        return true;
    }
#if LDBL_MANT_DIG == 64
    static const long double wide_powers[] = {1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,
                                              1e7L,  1e8L,  1e9L,  1e10L, 1e11L, 1e12L, 1e13L,
                                              1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L,
                                              1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};
    if (exponent >= -27 && exponent <= 27) {
        long double wide = (long double)number->digits;
        wide = exponent < 0 ? wide / wide_powers[-exponent] : wide * wide_powers[exponent];
        uint64_t mantissa;
        memcpy(&mantissa, &wide, sizeof mantissa);
        if ((mantissa & 0x7FF) == 0x400) return false;
        result = (double)wide;
        *value = number->is_negative ? -result : result;
        return true;
    }
#endif
    return false;
}

/* Converts a number of any length up to LONGEST_NUMBER and any exponent. Returns false if the C
 * library has no C locale. */
static bool convert_slowly(const char *text, size_t length, double *value) {
    char copy[LONGEST_NUMBER + 1];
    memcpy(copy, text, length);
    copy[length] = '\0';

    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale) return false;
    int saved_errno = errno;
    *value = strtod_l(copy, NULL, c_locale);
    errno = saved_errno;
    freelocale(c_locale);
    return true;
}

/* Converts a number. `text` has at most LONGEST_NUMBER bytes, and `number` contains its digits and
 * exponent. */
static bool convert(const char *text, size_t length, const decimal *number, double *value) {
    if (number->digits == 0 && number->digit_count == 0) {
        *value = number->is_negative ? -0.0 : 0.0;
        return true;
    }
    return convert_exactly(number, value) || convert_slowly(text, length, value);
}

/* ---- Numbers --------------------------------------------------------------------------------- */

bool harpe_parse_double(const char *text, size_t length, double *value) {
    if (length > LONGEST_NUMBER || !is_decimal_number(text, length)) return false;
    decimal number = {.is_negative = text[0] == '-'};
    size_t at = take_digits(text, length, skip_sign(text, length, 0), &number);
    if (at < length && text[at] == '.') {
        size_t after_point = at + 1;
        at = take_digits(text, length, after_point, &number);
        number.exponent = -(int64_t)(at - after_point);
    }
    if (at < length) (void)take_exponent(text, length, at + 1, &number);
    double result;
    bool is_zero = number.digit_count == 0;
    if (!convert(text, length, &number, &result) || !isfinite(result) ||
        (result == 0.0 && !is_zero))
        return false;
    *value = result;
    return true;
}

size_t harpe_scan_number(const char *text, size_t length, double *value, bool *is_integer) {
    decimal number = {.is_negative = length > 0 && text[0] == '-'};
    size_t at = number.is_negative ? 1 : 0;
    if (at == length || !is_digit(text[at])) return 0;
    at = text[at] == '0' ? at + 1 : take_digits(text, length, at, &number);
    size_t integer_end = at;
    if (length - at >= 2 && text[at] == '.' && is_digit(text[at + 1])) {
        size_t after_point = at + 1;
        at = take_digits(text, length, after_point, &number);
        number.exponent = -(int64_t)(at - after_point);
    }
    if (length - at >= 2 && (text[at] == 'e' || text[at] == 'E')) {
        size_t exponent = skip_sign(text, length, at + 1);
        if (exponent < length && is_digit(text[exponent]))
            at = take_exponent(text, length, at + 1, &number);
    }
    if (at > LONGEST_NUMBER || !convert(text, at, &number, value)) *value = NAN;
    *is_integer = at == integer_end;
    return at;
}

bool harpe_parse_int(const char *text, size_t length, int64_t *value) {
    size_t start = skip_sign(text, length, 0);
    if (start == length || skip_digits(text, length, start) != length) return false;
    bool is_negative = text[0] == '-';
    int64_t number = 0;
    for (size_t at = start; at < length; at++) {
        int64_t digit = text[at] - '0';
        /* Digits of a negative number are subtracted, because INT64_MIN has no positive
         * counterpart. */
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, is_negative ? -digit : digit, &number))
            return false;
    }
    *value = number;
    return true;
}

bool harpe_parse_int_like(const char *text, size_t length, int64_t *value) {
    double number;
    if (harpe_parse_int(text, length, value)) return true;
    if (!harpe_parse_double(text, length, &number) || fabs(number) > largest_exact_integer ||
        number != trunc(number))
        return false;
    *value = (int64_t)number;
    return true;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Writes numbers with the fewest digits that read back as the same double, as "%.15g", "%.16g" or
 * "%.17g" print them, in any locale. The C library prints the digits. */

/* A number of 15 digits stays the same when it is converted to double and back. 17 digits represent
 * every double. */
enum { FEWEST_DIGITS = 15, MOST_DIGITS = 17 };

static bool reads_back(const char *number, size_t length, double value) {
    double read;
    return harpe_parse_double(number, length, &read) && read == value;
}

size_t harpe_print_number(char into[HARPE_NUMBER_SIZE], double value) {
    /* The code changes the locale of this thread, not that of the process, so other threads are not
     * affected. */
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

/* ---- Hexadecimal digits ---------------------------------------------------------------------- */

void harpe_hex_put(char *text, const void *bytes, size_t length) {
    static const char digits[] = "0123456789abcdef";
    const unsigned char *from = bytes;
    for (size_t i = 0; i < length; i++) {
        text[2 * i] = digits[from[i] >> 4];
        text[2 * i + 1] = digits[from[i] & 15];
    }
    text[2 * length] = '\0';
}

static int value_of(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

bool harpe_hex_take(const char *text, void *bytes, size_t length) {
    unsigned char *to = bytes;
    for (size_t i = 0; i < length; i++) {
        int high = value_of(text[2 * i]), low = value_of(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        to[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}
