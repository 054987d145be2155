/* SPDX-License-Identifier: Apache-2.0 */
/* A fleet over time: budgets and prices of a moment, and prices from CSV. */
#include "fleet/fleet_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"

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

/* ---- Prices from a file ---------------------------------------------------------------------- */

/* Copies the prices into the file's arena. */
static harpe_status keep_prices(harpe_fleet_file *file, const harpe_price_series *series,
                                harpe_error *error) {
    harpe_fleet_file_price *kept = harpe_arena_alloc(&file->arena, series->count, sizeof *kept);
    if (!kept) return harpe_fail_memory(error);
    memcpy(kept, series->prices, series->count * sizeof *kept);
    file->prices = kept;
    file->price_count = series->count;
    return HARPE_OK;
}

harpe_status harpe_fleet_file_read_prices(harpe_fleet_file *file, const char *path,
                                          harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_price_series series = {0};
    harpe_status status = harpe_file_read(path, HARPE_PRICE_SERIES_BYTES, &text, &length, error);
    if (status == HARPE_OK)
        status = harpe_price_series_read_csv(text, length, path, &series, error);
    if (status == HARPE_OK && series.is_of_day)
        status = harpe_fail(error, HARPE_INVALID_INPUT,
                            "%s: the times of a fleet's file count from 0: use the column time_s "
                            "instead of at",
                            path);
    if (status == HARPE_OK) status = keep_prices(file, &series, error);
    harpe_price_series_free(&series);
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
