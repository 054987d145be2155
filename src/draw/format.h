/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and names as a reader wants to see them: a unit that fits, few digits, '.' whatever the
 * locale. Buffers are the caller's; every function returns its buffer, always NUL-terminated. */
#ifndef HARPE_DRAW_FORMAT_H
#define HARPE_DRAW_FORMAT_H

#include <stddef.h>

#define HARPE_NUMBER_SIZE 40 /* room for any formatted number with its unit */

typedef struct harpe_unit {
    const char *name;
    double per_si; /* multiply the SI value by this */
} harpe_unit;

/* s or ms; J, kJ or MJ: so that `largest_value` has few digits. */
harpe_unit harpe_time_unit(double largest_s);
harpe_unit harpe_energy_unit(double largest_j);

/* `decimals` 0 .. 9 digits behind the point; a very large number in scientific form. */
char *harpe_format_fixed(char buffer[HARPE_NUMBER_SIZE], double value, int decimals);
/* The same without trailing zeros: "1.5", "2"; minus is an ASCII '-'. For coordinates. */
char *harpe_format_compact(char buffer[HARPE_NUMBER_SIZE], double value, int decimals);
/* About four significant digits and the unit: "4.331 s", "45.23 kJ". */
char *harpe_format_time(char buffer[HARPE_NUMBER_SIZE], double seconds);
char *harpe_format_energy(char buffer[HARPE_NUMBER_SIZE], double joules);
/* One decimal and a sign-free number: "12.3 %". Two decimals below 1 %. */
char *harpe_format_percent(char buffer[HARPE_NUMBER_SIZE], double percent);

/* Copies `text`, with invalid UTF-8 replaced by '?' and control characters by spaces; cut with an
 * ellipsis when it does not fit. size >= 4. NULL reads as "". */
char *harpe_clean_text(char *buffer, size_t size, const char *text);

#endif
