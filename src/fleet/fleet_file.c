/* SPDX-License-Identifier: Apache-2.0 */
/* A fleet over time: budgets and prices of a moment, and prices from CSV. */
#include "fleet/fleet_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"

#define PRICES_LIMIT_BYTES ((size_t)64 << 20)
#define PRICES_MAX 1000000

double harpe_fleet_file_watts(const harpe_fleet_file *file, int group, double at_s,
                              double known_s) {
    double watts = file->groups[group].budget.watts, less = 0;
    if (watts < 0) return -1;
    for (size_t e = 0; e < file->event_count; e++) {
        const harpe_fleet_file_event *event = &file->events[e];
        bool runs = at_s >= event->from_s && at_s < event->from_s + event->duration_s;
        if (event->group != group || !runs || event->from_s - event->notice_s > known_s) continue;
        watts *= 1 - event->share_less;
        less += event->watts_less;
    }
    return fmax(watts - less, 0);
}

harpe_fleet_price harpe_fleet_file_price_at(const harpe_fleet_file *file, double at_s) {
    if (file->price_count == 0) return (harpe_fleet_price){0};
    size_t low = 0, high = file->price_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (file->prices[middle].from_s <= at_s)
            low = middle + 1;
        else
            high = middle;
    }
    const harpe_fleet_file_price *price = &file->prices[low > 0 ? low - 1 : 0];
    return (harpe_fleet_price){.energy_per_kwh = price->energy_per_kwh,
                               .carbon_g_per_kwh = price->carbon_g_per_kwh,
                               .carbon_per_kg = file->carbon_per_kg,
                               .value_per_s = file->value_per_s};
}

void harpe_fleet_file_free(harpe_fleet_file *file) {
    harpe_arena_free(&file->arena);
    *file = (harpe_fleet_file){0};
}

/* ---- Prices from CSV ------------------------------------------------------------------------- */

typedef struct price_reader {
    harpe_csv csv;
    size_t columns[3]; /* where each column is; SIZE_MAX: it is missing */
    harpe_fleet_file_price *prices;
    size_t count, capacity;
} price_reader;

static const char *const column_names[] = {"time_s", "price_per_kwh", "carbon_g_per_kwh"};

static harpe_status read_header(price_reader *r, harpe_error *error) {
    bool has_record = false;
    harpe_status status = harpe_csv_next(&r->csv, &has_record, error);
    if (status != HARPE_OK) return status;
    for (size_t c = 0; c < 3; c++)
        r->columns[c] = SIZE_MAX;
    for (size_t i = 0; has_record && i < r->csv.field_count; i++) {
        const harpe_csv_field *field = &r->csv.fields[i];
        size_t c = 0;
        while (c < 3 && (strlen(column_names[c]) != field->length ||
                         memcmp(column_names[c], field->text, field->length) != 0))
            c++;
        if (c == 3 || r->columns[c] != SIZE_MAX) {
            return harpe_csv_fail(&r->csv, i, error,
                                  "the columns are time_s, price_per_kwh and carbon_g_per_kwh");
        }
        r->columns[c] = i;
    }
    if (r->columns[0] != SIZE_MAX && r->columns[1] != SIZE_MAX) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s: the first line must name the columns time_s and price_per_kwh",
                      r->csv.name);
}

static harpe_status read_row(price_reader *r, harpe_error *error) {
    double values[3] = {0};
    for (size_t c = 0; c < 3; c++) {
        if (r->columns[c] == SIZE_MAX) continue;
        if (r->columns[c] >= r->csv.field_count)
            return harpe_csv_fail(&r->csv, 0, error, "%s is missing", column_names[c]);
        harpe_status status =
            harpe_csv_double(&r->csv, r->columns[c], column_names[c], &values[c], error);
        if (status != HARPE_OK) return status;
        if (values[c] < 0 || values[c] > (c == 0 ? 1e9 : 1e6)) {
            return harpe_csv_fail(&r->csv, r->columns[c], error, "%s must be 0 .. %s",
                                  column_names[c], c == 0 ? "1e9" : "1e6");
        }
    }
    if (r->count > 0 && values[0] <= r->prices[r->count - 1].from_s)
        return harpe_csv_fail(&r->csv, r->columns[0], error, "time_s must grow from row to row");
    if (r->count == PRICES_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s: more than %d prices", r->csv.name,
                          PRICES_MAX);
    if (!HARPE_ARRAY_RESERVE(r->prices, r->capacity, r->count + 1)) return harpe_fail_memory(error);
    r->prices[r->count++] = (harpe_fleet_file_price){values[0], values[1], values[2]};
    return HARPE_OK;
}

static harpe_status read_rows(price_reader *r, harpe_error *error) {
    harpe_status status = read_header(r, error);
    while (status == HARPE_OK) {
        bool has_record = false;
        status = harpe_csv_next(&r->csv, &has_record, error);
        if (status != HARPE_OK || !has_record) break;
        status = read_row(r, error);
    }
    if (status == HARPE_OK && r->count == 0)
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s: has no price", r->csv.name);
    return status;
}

harpe_status harpe_fleet_file_read_prices(harpe_fleet_file *file, const char *path,
                                          harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_file_read(path, PRICES_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    price_reader r = {.count = 0};
    harpe_csv_open(&r.csv, text, length, path);
    status = read_rows(&r, error);
    if (status == HARPE_OK) {
        harpe_fleet_file_price *kept = harpe_arena_alloc(&file->arena, r.count, sizeof *kept);
        if (kept) {
            memcpy(kept, r.prices, r.count * sizeof *kept);
            file->prices = kept;
            file->price_count = r.count;
        } else {
            status = harpe_fail_memory(error);
        }
    }
    harpe_csv_close(&r.csv);
    free(r.prices);
    free(text);
    return status;
}

/* ---- The fleet of a moment ------------------------------------------------------------------- */

static harpe_status add_groups(const harpe_fleet_file *file, double at_s, harpe_fleet *fleet,
                               harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t g = 0; g < file->group_count && status == HARPE_OK; g++) {
        const harpe_fleet_file_group *group = &file->groups[g];
        harpe_fleet_budget budget = group->budget;
        int number = 0;
        if (g > 0)
            status = harpe_fleet_add_group(fleet, group->name, group->parent, &number, error);
        /* The stated budget is checked before the events make it smaller. */
        if (status == HARPE_OK) status = harpe_fleet_set_budget(fleet, (int)g, &budget, error);
        budget.watts = harpe_fleet_file_watts(file, (int)g, at_s, at_s);
        if (status == HARPE_OK) status = harpe_fleet_set_budget(fleet, (int)g, &budget, error);
    }
    return status;
}

static harpe_status add_jobs(const harpe_fleet_file *file, double at_s, harpe_fleet *fleet,
                             harpe_error *error) {
    for (size_t j = 0; j < file->job_count; j++) {
        const harpe_fleet_file_job *job = &file->jobs[j];
        harpe_fleet_job description = {.name = job->name,
                                       .group = job->group,
                                       .weight = job->weight,
                                       .max_slowdown = job->max_slowdown,
                                       .plan_count = job->plan_count,
                                       .plans = job->plans};
        int number;
        harpe_status status = harpe_fleet_add(fleet, &description, &number, error);
        if (status != HARPE_OK) return status;
    }
    /* Numbers of removed jobs would be used again, so all jobs are added first. */
    for (size_t j = 0; j < file->job_count; j++) {
        const harpe_fleet_file_job *job = &file->jobs[j];
        if (at_s >= job->arrival_s && at_s < job->end_s) continue;
        harpe_status status = harpe_fleet_remove(fleet, (int)j, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

harpe_status harpe_fleet_file_fleet(const harpe_fleet_file *file, const char *name, double at_s,
                                    harpe_fleet **out, harpe_error *error) {
    harpe_fleet *fleet = NULL;
    harpe_error reason;
    harpe_status status = harpe_fleet_new(&fleet, &reason);
    if (status == HARPE_OK) status = add_groups(file, at_s, fleet, &reason);
    if (status == HARPE_OK) status = add_jobs(file, at_s, fleet, &reason);
    if (status == HARPE_OK) {
        harpe_fleet_price price = harpe_fleet_file_price_at(file, at_s);
        status = harpe_fleet_set_price(fleet, &price, &reason);
    }
    if (status == HARPE_OK) {
        *out = fleet;
        return HARPE_OK;
    }
    harpe_fleet_free(fleet);
    return harpe_fail(error, status, "%s: %s", name, reason.message);
}
