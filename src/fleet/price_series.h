/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a time series of energy prices and carbon intensities from a text in CSV or JSON, and a
 * moment that a person or another program has written. */
#ifndef HARPE_FLEET_PRICE_SERIES_H
#define HARPE_FLEET_PRICE_SERIES_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/status.h>

/* The latest moment, in seconds since 1970. */
#define HARPE_MOMENT_MAX_S 1e11

/* Reads seconds since 1970, such as 1764100000.5, or a time of ISO 8601 with its offset from UTC,
 * such as 2026-11-26T06:00Z, 2026-11-26 07:00:00+01:00 or 2026-11-26T07:00:00.5+0100. Returns false
 * for another text, and for a moment before 1970 or after HARPE_MOMENT_MAX_S. */
bool harpe_moment_read(const char *text, size_t length, double *seconds);

/* The longest text, and the most prices in it. */
#define HARPE_PRICE_SERIES_BYTES ((size_t)64 << 20)
#define HARPE_PRICE_SERIES_MAX 1000000

/* Holds until the next price. */
typedef struct harpe_fleet_file_price {
    double from_s, energy_per_kwh, carbon_g_per_kwh;
} harpe_fleet_file_price;

/* Returns the price at a moment; NULL: there is none. Before the first one, the first one holds. */
const harpe_fleet_file_price *harpe_price_at(const harpe_fleet_file_price *prices, size_t count,
                                             double at_s);

typedef struct harpe_price_series {
    harpe_fleet_file_price *prices; /* by time; at least one */
    size_t count;
    bool is_of_day; /* the times are seconds since 1970; false: they count from some beginning */
} harpe_price_series;

/* Reads CSV. The columns are time_s or at, price_per_kwh and, optionally, carbon_g_per_kwh, in any
 * order. `at` is a moment. Errors begin with `name`, the line and the column. */
harpe_status harpe_price_series_read_csv(const char *text, size_t length, const char *name,
                                         harpe_price_series *out, harpe_error *error);
/* Reads CSV, or JSON if the text begins with [ or {: a list of objects with at, energy_per_kwh and,
 * optionally, carbon_g_per_kwh, or an object with such a list as its member series. */
harpe_status harpe_price_series_read(const char *text, size_t length, const char *name,
                                     harpe_price_series *out, harpe_error *error);
void harpe_price_series_free(harpe_price_series *series); /* frees the contents */

#endif
