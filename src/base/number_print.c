/* SPDX-License-Identifier: Apache-2.0 */
/* Writes numbers with the fewest digits that read back as the same double, as "%.15g", "%.16g" or
 * "%.17g" print them, in any locale. The C library prints the digits. number.c reads numbers. */
#include "base/number_print.h"

#include <locale.h>
#include <stdio.h>

#include "base/number.h"

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
