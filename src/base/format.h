/* SPDX-License-Identifier: Apache-2.0 */
/* Formats numbers and names for people: with a suitable unit, few digits, and '.' in every locale.
 * The caller owns the buffers. Every function returns its buffer, which always ends in NUL. */
#ifndef HARPE_BASE_FORMAT_H
#define HARPE_BASE_FORMAT_H

#include <stddef.h>

#include "base/number.h"

typedef struct harpe_unit {
    const char *name;
    double per_si; /* factor from the SI unit to this unit */
} harpe_unit;

/* Return the unit in which the largest value has few digits: s or ms for times, and J, kJ or MJ for
 * energies. */
harpe_unit harpe_time_unit(double largest_s);
harpe_unit harpe_energy_unit(double largest_j);

/* Formats with `decimals` digits (0 .. 9) after the point. Digits beyond the precision of a
 * double are left out. A number above 9e17 has scientific form. */
char *harpe_format_fixed(char buffer[HARPE_NUMBER_SIZE], double value, int decimals);
/* Formats like harpe_format_fixed, but without trailing zeros: "1.5", "2". The minus is an ASCII
 * '-'. Used for coordinates. */
char *harpe_format_compact(char buffer[HARPE_NUMBER_SIZE], double value, int decimals);
/* Formats about `significant` significant digits without trailing zeros. All digits of the integer
 * part are written: 1.5, 16460, 0.00005. Use it instead of "%.4g", which prints 1.646e+04. */
char *harpe_format_digits(char buffer[HARPE_NUMBER_SIZE], double value, int significant);
/* Format about four significant digits and the unit: "4.331 s", "45.23 kJ", "16.46 kW". */
char *harpe_format_time(char buffer[HARPE_NUMBER_SIZE], double seconds);
char *harpe_format_energy(char buffer[HARPE_NUMBER_SIZE], double joules);
char *harpe_format_power(char buffer[HARPE_NUMBER_SIZE], double watts);
/* Formats about four significant digits and the unit that is given. */
char *harpe_format_in(char buffer[HARPE_NUMBER_SIZE], double value, harpe_unit unit);
/* Calls harpe_format_digits in an expression, such as an argument of printf. The text is valid to
 * the end of the block. */
#define HARPE_DIGITS(value, significant) \
    harpe_format_digits((char[HARPE_NUMBER_SIZE]){0}, (value), (significant))
#define HARPE_TIME(seconds) harpe_format_time((char[HARPE_NUMBER_SIZE]){0}, (seconds))
#define HARPE_ENERGY(joules) harpe_format_energy((char[HARPE_NUMBER_SIZE]){0}, (joules))
#define HARPE_POWER(watts) harpe_format_power((char[HARPE_NUMBER_SIZE]){0}, (watts))
/* Formats a percentage without a sign and with one decimal: "12.3 %". Uses two decimals below 1 %.
 */
char *harpe_format_percent(char buffer[HARPE_NUMBER_SIZE], double percent);

/* Copies `text`. Replaces ASCII control characters by spaces and other unsafe characters by '?'.
 * Cuts the text with an ellipsis if it does not fit. `size` must be at least 4. NULL is treated as
 * "". */
char *harpe_clean_text(char *buffer, size_t size, const char *text);

/* ---- Units ----------------------------------------------------------------------------------- */

#define HARPE_JOULES_PER_KWH 3.6e6
#define HARPE_GRAMS_PER_KG 1000.0

#endif
