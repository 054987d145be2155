/* SPDX-License-Identifier: Apache-2.0 */
/* Formats numbers and names for people: in tables, messages, logs, pictures and the report. The
 * decimal point of snprintf depends on the locale, so this file uses snprintf for integers only.
 * The exception is a number too large for an integer: snprintf writes its scientific form, and
 * this file replaces the decimal point by '.'. */
#include "base/format.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

harpe_unit harpe_time_unit(double largest_s) {
    if (largest_s < 0.5) return (harpe_unit){"ms", 1e3};
    return (harpe_unit){"s", 1.0};
}

harpe_unit harpe_energy_unit(double largest_j) {
    if (largest_j >= 1e7) return (harpe_unit){"MJ", 1e-6};
    if (largest_j >= 1e4) return (harpe_unit){"kJ", 1e-3};
    return (harpe_unit){"J", 1.0};
}

static char *format_scientific(char buffer[HARPE_NUMBER_SIZE], double value) {
    snprintf(buffer, HARPE_NUMBER_SIZE, "%.3e", value);
    for (char *at = buffer; *at; at++)
        if (!isdigit((unsigned char)*at) && !strchr("+-eE", *at) && (unsigned char)*at < 128)
            *at = isalpha((unsigned char)*at) ? *at : '.';
    return buffer;
}

char *harpe_format_fixed(char buffer[HARPE_NUMBER_SIZE], double value, int decimals) {
    static const int64_t powers[] = {1,      10,      100,      1000,      10000,
                                     100000, 1000000, 10000000, 100000000, 1000000000};
    if (decimals < 0) decimals = 0;
    if (decimals > 9) decimals = 9;
    while (decimals > 0 && fabs(value) >= 9e17 / (double)powers[decimals])
        decimals--;
    if (!(fabs(value) < 9e17)) return format_scientific(buffer, value);
    int64_t scaled = llround(fabs(value) * (double)powers[decimals]);
    const char *sign = value < 0.0 && scaled != 0 ? "-" : "";
    int64_t whole = scaled / powers[decimals];
    int64_t rest = scaled % powers[decimals];
    if (decimals == 0) {
        snprintf(buffer, HARPE_NUMBER_SIZE, "%s%" PRId64, sign, whole);
    } else {
        snprintf(buffer, HARPE_NUMBER_SIZE, "%s%" PRId64 ".%0*" PRId64, sign, whole, decimals,
                 rest);
    }
    return buffer;
}

char *harpe_format_compact(char buffer[HARPE_NUMBER_SIZE], double value, int decimals) {
    harpe_format_fixed(buffer, value, decimals);
    if (!strchr(buffer, '.') || strchr(buffer, 'e')) return buffer;
    size_t length = strlen(buffer);
    while (length > 0 && buffer[length - 1] == '0')
        buffer[--length] = '\0';
    if (length > 0 && buffer[length - 1] == '.') buffer[--length] = '\0';
    return buffer;
}

/* Returns the number of decimals with which `value` has about `significant` digits. */
static int decimals_for(double value, int significant) {
    double size = fabs(value);
    int decimals = significant - 1;
    while (size >= 10.0 && decimals > 0) {
        size /= 10.0;
        decimals--;
    }
    while (size < 1.0 && size > 0.0 && decimals < 9) {
        size *= 10.0;
        decimals++;
    }
    return decimals;
}

char *harpe_format_digits(char buffer[HARPE_NUMBER_SIZE], double value, int significant) {
    return harpe_format_compact(buffer, value, decimals_for(value, significant));
}

char *harpe_format_in(char buffer[HARPE_NUMBER_SIZE], double value, harpe_unit unit) {
    double scaled = value * unit.per_si;
    harpe_format_fixed(buffer, scaled, decimals_for(scaled, 4));
    size_t length = strlen(buffer);
    snprintf(buffer + length, HARPE_NUMBER_SIZE - length, " %s", unit.name);
    return buffer;
}

char *harpe_format_time(char buffer[HARPE_NUMBER_SIZE], double seconds) {
    return harpe_format_in(buffer, seconds, harpe_time_unit(fabs(seconds)));
}

char *harpe_format_energy(char buffer[HARPE_NUMBER_SIZE], double joules) {
    return harpe_format_in(buffer, joules, harpe_energy_unit(fabs(joules)));
}

char *harpe_format_power(char buffer[HARPE_NUMBER_SIZE], double watts) {
    bool is_large = fabs(watts) >= 1e4;
    return harpe_format_in(buffer, watts,
                           is_large ? (harpe_unit){"kW", 1e-3} : (harpe_unit){"W", 1.0});
}

char *harpe_format_percent(char buffer[HARPE_NUMBER_SIZE], double percent) {
    double size = fabs(percent);
    harpe_format_fixed(buffer, size, size < 0.95 && size >= 0.005 ? 2 : 1);
    size_t length = strlen(buffer);
    snprintf(buffer + length, HARPE_NUMBER_SIZE - length, " %%");
    return buffer;
}

char *harpe_clean_text(char *buffer, size_t size, const char *text) {
    static const char ellipsis[] = "\xe2\x80\xa6";
    const char *from = text ? text : "";
    size_t used = 0;
    size_t cut = 0; /* longest length after which an ellipsis still fits */
    while (*from) {
        size_t length;
        bool is_safe = harpe_character_is_safe(harpe_character(from, &length));
        size_t taken = is_safe ? length : 1;
        if (used + sizeof ellipsis <= size) cut = used;
        if (used + taken + 1 > size) {
            memcpy(buffer + cut, ellipsis, sizeof ellipsis);
            return buffer;
        }
        if (is_safe)
            memcpy(buffer + used, from, length);
        else
            buffer[used] = (unsigned char)*from < 0x80 ? ' ' : '?';
        used += taken;
        from += length;
    }
    buffer[used] = '\0';
    return buffer;
}
