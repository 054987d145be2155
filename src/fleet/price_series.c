/* SPDX-License-Identifier: Apache-2.0 */
/* Parses a moment and a series of prices: a text in memory, in CSV or JSON. A moment is a number of
 * seconds since 1970 or a time of ISO 8601; one without an offset from UTC is refused, because the
 * sender's time zone is not known. */
#include "fleet/fleet_tools.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "base/array.h"
#include "base/csv.h"
#include "base/error.h"
#include "base/format.h"
#include "base/number.h"

/* ---- Moments --------------------------------------------------------------------------------- */

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

/* ---- Series ---------------------------------------------------------------------------------- */

#define PER_KWH_MAX 1e6
#define TIME_MAX 1e9

typedef struct draft {
    harpe_price_series out;
    size_t capacity;
    const char *name;
} draft;

static harpe_status add(draft *self, harpe_fleet_file_price price, harpe_error *error) {
    harpe_price_series *out = &self->out;
    if (out->count == HARPE_PRICE_SERIES_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s: more than %d prices", self->name,
                          HARPE_PRICE_SERIES_MAX);
    if (!HARPE_ARRAY_RESERVE(out->prices, self->capacity, out->count + 1))
        return harpe_fail_memory(error);
    out->prices[out->count++] = price;
    return HARPE_OK;
}

static bool is_later(const draft *self, double from_s) {
    return self->out.count == 0 || from_s > self->out.prices[self->out.count - 1].from_s;
}

static harpe_status finish(draft *self, harpe_status status, harpe_price_series *out,
                           harpe_error *error) {
    if (status == HARPE_OK && self->out.count == 0)
        status = harpe_fail(error, HARPE_INVALID_INPUT, "%s: has no price", self->name);
    if (status == HARPE_OK)
        *out = self->out;
    else
        harpe_price_series_free(&self->out);
    return status;
}

harpe_fleet_price harpe_price_at(const harpe_fleet_file_price *prices, size_t count, double at_s,
                                 double carbon_per_kg, double value_per_s) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (prices[middle].from_s <= at_s)
            low = middle + 1;
        else
            high = middle;
    }
    if (count == 0) return (harpe_fleet_price){0};
    const harpe_fleet_file_price *price = &prices[low > 0 ? low - 1 : 0];
    return (harpe_fleet_price){.energy_per_kwh = price->energy_per_kwh,
                               .carbon_g_per_kwh = price->carbon_g_per_kwh,
                               .carbon_per_kg = carbon_per_kg,
                               .value_per_s = value_per_s};
}

void harpe_price_series_free(harpe_price_series *series) {
    free(series->prices);
    *series = (harpe_price_series){0};
}

/* ---- CSV ------------------------------------------------------------------------------------- */

enum { COLUMN_TIME, COLUMN_AT, COLUMN_PRICE, COLUMN_CARBON, COLUMNS };

static const char *const column_names[COLUMNS] = {"time_s", "at", "price_per_kwh",
                                                  "carbon_g_per_kwh"};

typedef struct csv_reader {
    draft series;
    harpe_csv csv;
    size_t columns[COLUMNS]; /* index of each column; SIZE_MAX: the file does not have it */
    size_t width;            /* number of columns in the first line */
} csv_reader;

static int column_named(const harpe_csv_field *field) {
    int c = 0;
    while (c < COLUMNS && (strlen(column_names[c]) != field->length ||
                           memcmp(column_names[c], field->text, field->length) != 0))
        c++;
    return c;
}

static harpe_status read_header(csv_reader *r, harpe_error *error) {
    bool has_record = false;
    harpe_status status = harpe_csv_next(&r->csv, &has_record, error);
    if (status != HARPE_OK) return status;
    for (int c = 0; c < COLUMNS; c++)
        r->columns[c] = SIZE_MAX;
    for (size_t i = 0; has_record && i < r->csv.field_count; i++) {
        int c = column_named(&r->csv.fields[i]);
        if (c == COLUMNS || r->columns[c] != SIZE_MAX) {
            return harpe_csv_fail(
                &r->csv, i, error,
                "the columns are time_s (or at), price_per_kwh and carbon_g_per_kwh");
        }
        r->columns[c] = i;
    }
    r->width = r->csv.field_count;
    bool has_time = r->columns[COLUMN_TIME] != SIZE_MAX;
    r->series.out.is_of_day = r->columns[COLUMN_AT] != SIZE_MAX;
    if (has_time != r->series.out.is_of_day && r->columns[COLUMN_PRICE] != SIZE_MAX)
        return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s: the first line must name the columns time_s and price_per_kwh, or at "
                      "and price_per_kwh",
                      r->csv.name);
}

/* Reads the field of a row that belongs to one column. Leaves `*value` as it is if the file does
 * not have the column. */
static harpe_status read_column(const csv_reader *r, int column, double *value,
                                harpe_error *error) {
    size_t i = r->columns[column];
    double most = column == COLUMN_TIME ? TIME_MAX : PER_KWH_MAX;
    double least = column == COLUMN_PRICE ? -PER_KWH_MAX : 0;
    if (i == SIZE_MAX) return HARPE_OK;
    if (i >= r->csv.field_count)
        return harpe_csv_fail(&r->csv, 0, error, "%s is missing", column_names[column]);
    if (column == COLUMN_AT) {
        if (harpe_moment_read(r->csv.fields[i].text, r->csv.fields[i].length, value))
            return HARPE_OK;
        return harpe_csv_fail(&r->csv, i, error,
                              "at must be seconds since 1970, or a time such as "
                              "2026-11-26T06:00Z or 2026-11-26T07:00+01:00");
    }
    harpe_status status = harpe_csv_double(&r->csv, i, column_names[column], value, error);
    if (status != HARPE_OK || (*value >= least && *value <= most)) return status;
    return harpe_csv_fail(&r->csv, i, error, "%s must be %s .. %s", column_names[column],
                          least < 0 ? "-1e6" : "0", column == COLUMN_TIME ? "1e9" : "1e6");
}

static harpe_status read_row(csv_reader *r, harpe_error *error) {
    double values[COLUMNS] = {0};
    int time = r->series.out.is_of_day ? COLUMN_AT : COLUMN_TIME;
    if (r->csv.field_count > r->width)
        return harpe_csv_fail(&r->csv, r->width, error,
                              "more fields than columns: numbers have a decimal point, and no "
                              "comma");
    for (int c = 0; c < COLUMNS; c++) {
        harpe_status status = read_column(r, c, &values[c], error);
        if (status != HARPE_OK) return status;
    }
    if (!is_later(&r->series, values[time]))
        return harpe_csv_fail(&r->csv, r->columns[time], error, "%s must grow from row to row",
                              column_names[time]);
    return add(&r->series,
               (harpe_fleet_file_price){values[time], values[COLUMN_PRICE], values[COLUMN_CARBON]},
               error);
}

harpe_status harpe_price_series_read_csv(const char *text, size_t length, const char *name,
                                         harpe_price_series *out, harpe_error *error) {
    csv_reader r = {.series.name = name};
    harpe_csv_open(&r.csv, text, length, name);
    harpe_status status = read_header(&r, error);
    while (status == HARPE_OK) {
        bool has_record = false;
        status = harpe_csv_next(&r.csv, &has_record, error);
        if (status != HARPE_OK || !has_record) break;
        status = read_row(&r, error);
    }
    harpe_csv_close(&r.csv);
    return finish(&r.series, status, out, error);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static harpe_status fail_entry(const draft *self, size_t entry, const char *key, const char *what,
                               harpe_error *error) {
    char clean[64];
    return harpe_fail(error, HARPE_INVALID_INPUT, "%s: entry %zu (the first is 0): \"%s\" %s",
                      self->name, entry, harpe_clean_text(clean, sizeof clean, key), what);
}

static harpe_status read_amount(const draft *self, const json_t *object, size_t entry,
                                const char *key, double absent, double least, double *value,
                                harpe_error *error) {
    const json_t *member = json_object_get(object, key);
    *value = json_is_number(member) ? json_number_value(member) : NAN;
    if (!member || json_is_null(member)) *value = absent;
    if (*value >= least && *value <= PER_KWH_MAX) return HARPE_OK;
    return fail_entry(
        self, entry, key,
        least < 0 ? "must be a number from -1e6 to 1e6" : "must be a number from 0 to 1e6", error);
}

static bool read_moment(const json_t *member, double *seconds) {
    if (json_is_string(member))
        return harpe_moment_read(json_string_value(member), json_string_length(member), seconds);
    if (!json_is_number(member)) return false;
    double value = json_number_value(member);
    if (!(value >= 0 && value <= HARPE_MOMENT_MAX_S)) return false;
    *seconds = value;
    return true;
}

static harpe_status read_entry(draft *self, json_t *object, size_t entry, harpe_error *error) {
    harpe_fleet_file_price price;
    const char *key;
    json_t *member;
    if (!json_is_object(object))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: entry %zu (the first is 0) must be an "
                          "object with at and energy_per_kwh",
                          self->name, entry);
    json_object_foreach(object, key, member) {
        if (strcmp(key, "at") != 0 && strcmp(key, "energy_per_kwh") != 0 &&
            strcmp(key, "carbon_g_per_kwh") != 0)
            return fail_entry(self, entry, key,
                              "is not known: the members are at, energy_per_kwh and "
                              "carbon_g_per_kwh",
                              error);
    }
    if (!read_moment(json_object_get(object, "at"), &price.from_s))
        return fail_entry(self, entry, "at",
                          "must be seconds since 1970, or a time such as \"2026-11-26T06:00Z\"",
                          error);
    harpe_status status = read_amount(self, object, entry, "energy_per_kwh", NAN, -PER_KWH_MAX,
                                      &price.energy_per_kwh, error);
    if (status == HARPE_OK)
        status = read_amount(self, object, entry, "carbon_g_per_kwh", 0, 0, &price.carbon_g_per_kwh,
                             error);
    if (status == HARPE_OK && !is_later(self, price.from_s))
        return fail_entry(self, entry, "at", "must be later than that of the entry before", error);
    return status == HARPE_OK ? add(self, price, error) : status;
}

static harpe_status read_list(draft *self, const json_t *root, harpe_error *error) {
    const json_t *list = json_is_object(root) ? json_object_get(root, "series") : root;
    size_t i;
    json_t *entry;
    if (!json_is_array(list) || (json_is_object(root) && json_object_size(root) != 1))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: must be a list of prices, or an object with only the member series",
                          self->name);
    json_array_foreach(list, i, entry) {
        harpe_status status = read_entry(self, entry, i, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

static harpe_status read_json(const char *text, size_t length, const char *name,
                              harpe_price_series *out, harpe_error *error) {
    json_error_t reason;
    draft self = {.name = name, .out.is_of_day = true};
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &reason);
    if (!root)
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s:%d:%d: %s", name, reason.line,
                          reason.column, reason.text);
    harpe_status status = read_list(&self, root, error);
    json_decref(root);
    return finish(&self, status, out, error);
}

harpe_status harpe_price_series_read(const char *text, size_t length, const char *name,
                                     harpe_price_series *out, harpe_error *error) {
    static const char mark[] = "\xef\xbb\xbf"; /* the byte order mark of UTF-8 */
    size_t start = length >= 3 && memcmp(text, mark, 3) == 0 ? 3 : 0, at = start;
    while (at < length && strchr(" \t\r\n", text[at]) && text[at])
        at++;
    bool is_json = at < length && (text[at] == '[' || text[at] == '{');
    return is_json ? read_json(text + start, length - start, name, out, error)
                   : harpe_price_series_read_csv(text, length, name, out, error);
}
