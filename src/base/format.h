/* SPDX-License-Identifier: Apache-2.0 */
/* Formats numbers and names for people: with a suitable unit, few digits, and '.' in every locale.
 * The caller owns the buffers. Every function returns its buffer, which always ends in NUL. */
#ifndef HARPE_BASE_FORMAT_H
#define HARPE_BASE_FORMAT_H

#include <stddef.h>

#define HARPE_NUMBER_SIZE 40 /* room for any formatted number with its unit */

typedef struct harpe_unit {
    const char *name;
    double per_si; /* multiply the SI value by this */
} harpe_unit;

/* s or ms; J, kJ or MJ: so that `largest_value` has few digits. */
harpe_unit harpe_time_unit(double largest_s);
harpe_unit harpe_energy_unit(double largest_j);

/* `decimals` is 0 .. 9 digits behind the point; digits that a double does not resolve are left out.
 * A number above 9e17 has scientific form. */
char *harpe_format_fixed(char buffer[HARPE_NUMBER_SIZE], double value, int decimals);
/* The same without trailing zeros: "1.5", "2"; minus is an ASCII '-'. For coordinates. */
char *harpe_format_compact(char buffer[HARPE_NUMBER_SIZE], double value, int decimals);
/* About that many significant digits, but all digits of the whole part, and no trailing zeros: 1.5,
 * 16460, 0.00005. Use it instead of "%.4g", which prints 1.646e+04. */
char *harpe_format_digits(char buffer[HARPE_NUMBER_SIZE], double value, int significant);
/* About four significant digits and the unit: "4.331 s", "45.23 kJ", "16.46 kW". */
char *harpe_format_time(char buffer[HARPE_NUMBER_SIZE], double seconds);
char *harpe_format_energy(char buffer[HARPE_NUMBER_SIZE], double joules);
char *harpe_format_power(char buffer[HARPE_NUMBER_SIZE], double watts);
/* The same as an expression, for an argument of printf: valid to the end of the block. */
#define HARPE_DIGITS(value, significant) \
    harpe_format_digits((char[HARPE_NUMBER_SIZE]){0}, (value), (significant))
#define HARPE_TIME(seconds) harpe_format_time((char[HARPE_NUMBER_SIZE]){0}, (seconds))
#define HARPE_ENERGY(joules) harpe_format_energy((char[HARPE_NUMBER_SIZE]){0}, (joules))
#define HARPE_POWER(watts) harpe_format_power((char[HARPE_NUMBER_SIZE]){0}, (watts))
/* One decimal and a sign-free number: "12.3 %". Two decimals below 1 %. */
char *harpe_format_percent(char buffer[HARPE_NUMBER_SIZE], double percent);

/* Copies `text`. Replaces ASCII control characters by spaces and other unsafe characters by '?'.
 * Cuts the text with an ellipsis if it does not fit. size >= 4. NULL is treated as "". */
char *harpe_clean_text(char *buffer, size_t size, const char *text);

#endif
