/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a moment: seconds since 1970, or a time of ISO 8601. A time without an offset from UTC is
 * refused, because the sender's time zone is not known. */
#include "fleet/moment.h"

#include <string.h>
#include <time.h>

#include "base/number.h"

typedef struct cursor {
    const char *at, *end;
} cursor;

static bool take(cursor *c, const char *choices) {
    if (c->at == c->end || !*c->at || !strchr(choices, *c->at)) return false;
    c->at++;
    return true;
}

/* Reads exactly `digits` digits, as a number from `least` to `most`. */
static bool number(cursor *c, int digits, int least, int most, int *value) {
    *value = 0;
    for (int i = 0; i < digits; i++) {
        if (c->at == c->end || *c->at < '0' || *c->at > '9') return false;
        *value = *value * 10 + (*c->at++ - '0');
    }
    return *value >= least && *value <= most;
}

/* Reads ":00", ":00.5" or nothing. */
static bool second(cursor *c, double *seconds) {
    int whole = 0, digit;
    double part = 0.1;
    *seconds = 0;
    if (!take(c, ":")) return true;
    if (!number(c, 2, 0, 59, &whole)) return false;
    *seconds = whole;
    if (!take(c, ".")) return true;
    const char *first = c->at;
    while (number(c, 1, 0, 9, &digit)) {
        *seconds += digit * part;
        part /= 10;
    }
    return c->at > first;
}

/* Reads "Z", "+01:00" or "-0130". `*offset_s` is what the clock there is ahead of UTC. */
static bool offset(cursor *c, int *offset_s) {
    int hours, minutes;
    *offset_s = 0;
    if (take(c, "Zz")) return true;
    bool is_behind = take(c, "-");
    if (!is_behind && !take(c, "+")) return false;
    if (!number(c, 2, 0, 14, &hours)) return false;
    (void)take(c, ":");
    if (!number(c, 2, 0, 59, &minutes)) return false;
    *offset_s = (hours * 60 + minutes) * (is_behind ? -60 : 60);
    return true;
}

static bool read_date(const char *text, size_t length, double *out) {
    cursor c = {text, text + length};
    struct tm day = {0};
    double seconds;
    int offset_s;
    bool is_read = number(&c, 4, 1970, 5138, &day.tm_year) && take(&c, "-") &&
                   number(&c, 2, 1, 12, &day.tm_mon) && take(&c, "-") &&
                   number(&c, 2, 1, 31, &day.tm_mday) && take(&c, "Tt ") &&
                   number(&c, 2, 0, 23, &day.tm_hour) && take(&c, ":") &&
                   number(&c, 2, 0, 59, &day.tm_min) && second(&c, &seconds) &&
                   offset(&c, &offset_s) && c.at == c.end;
    if (!is_read) return false;
    int month = --day.tm_mon, month_day = day.tm_mday;
    day.tm_year -= 1900;
    time_t whole = timegm(&day);
    if (day.tm_mon != month || day.tm_mday != month_day) return false; /* such as 31 April */
    *out = (double)whole - offset_s + seconds;
    return true;
}

static bool is_digits(const char *text, size_t length) {
    size_t i = 0;
    while (i < length && text[i] >= '0' && text[i] <= '9')
        i++;
    return i == length;
}

bool harpe_moment_read(const char *text, size_t length, double *seconds) {
    double value;
    /* "2026" and "20261126" are dates, and no seconds since 1970. */
    if ((length == 4 || length == 8) && is_digits(text, length)) return false;
    if (!harpe_parse_double(text, length, &value) && !read_date(text, length, &value)) return false;
    if (!(value >= 0 && value <= HARPE_MOMENT_MAX_S)) return false;
    *seconds = value;
    return true;
}
