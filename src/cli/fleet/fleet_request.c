/* SPDX-License-Identifier: Apache-2.0 */
/* The table of actions on a server's fleet, and the bodies of their requests. */
#include "cli/fleet/fleet_request.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "cli/fleet/fleet_feed.h"
#include "fleet/moment.h"

#define BIT(option) (1U << HARPE_FLEET_##option)

const harpe_fleet_option harpe_fleet_options[HARPE_FLEET_OPTION_COUNT] = {
    [HARPE_FLEET_GROUP] = {"group", "group", HARPE_FLEET_SHAPE_TEXT, 0, 0},
    [HARPE_FLEET_MARGIN] = {"margin", "margin", HARPE_FLEET_SHAPE_NUMBER, 0, 0.99},
    [HARPE_FLEET_OVERHEAD] = {"overhead", "overhead", HARPE_FLEET_SHAPE_NUMBER, 1, 10},
    [HARPE_FLEET_PARENT] = {"parent", "parent", HARPE_FLEET_SHAPE_TEXT, 0, 0},
    [HARPE_FLEET_WEIGHT] = {"weight", "weight", HARPE_FLEET_SHAPE_NUMBER, 0, 1e12},
    [HARPE_FLEET_MAX_SLOWDOWN] = {"max-slowdown", "max_slowdown", HARPE_FLEET_SHAPE_NUMBER, 1, 1e9},
    [HARPE_FLEET_PRIORITY] = {"priority", "priority", HARPE_FLEET_SHAPE_NUMBER, -1e6, 1e6},
    [HARPE_FLEET_WATTS] = {"watts", "watts", HARPE_FLEET_SHAPE_NUMBER, 0, 1e12},
    [HARPE_FLEET_SHARE] = {"share", "share", HARPE_FLEET_SHAPE_NUMBER, 0, 1},
    [HARPE_FLEET_FOR] = {"for", "duration_s", HARPE_FLEET_SHAPE_NUMBER, 1, 1e9},
    [HARPE_FLEET_FROM] = {"from", "from", HARPE_FLEET_SHAPE_TEXT, 0, 1e11},
    [HARPE_FLEET_NOTICE] = {"notice", "notice_s", HARPE_FLEET_SHAPE_NUMBER, 0, 1e9},
    [HARPE_FLEET_RAMP] = {"ramp", "ramp_s", HARPE_FLEET_SHAPE_NUMBER, 0, 1e7},
    [HARPE_FLEET_NOTE] = {"note", "note", HARPE_FLEET_SHAPE_TEXT, 0, 0},
    [HARPE_FLEET_EXCEED] = {"exceed-slowdown", "may_exceed_slowdown", HARPE_FLEET_SHAPE_SWITCH, 0,
                            0},
    [HARPE_FLEET_CURRENCY] = {"currency", "currency", HARPE_FLEET_SHAPE_TEXT, 0, 0},
    [HARPE_FLEET_CARBON_PRICE] = {"carbon-price", "carbon_per_kg", HARPE_FLEET_SHAPE_NUMBER, 0,
                                  1e6},
    [HARPE_FLEET_TIME_VALUE] = {"time-value", "value_per_s", HARPE_FLEET_SHAPE_NUMBER, 1e-9, 1e6},
    [HARPE_FLEET_LIMIT] = {"limit", "limit", HARPE_FLEET_SHAPE_NUMBER, 0, 10000},
    [HARPE_FLEET_EVERY] = {"every", NULL, HARPE_FLEET_SHAPE_NUMBER, 1, 1e6},
    [HARPE_FLEET_FEED_CA_FILE] = {"feed-ca-file", NULL, HARPE_FLEET_SHAPE_TEXT, 0, 0},
};

enum {
    OF_EVENT = BIT(WATTS) | BIT(SHARE) | BIT(FOR) | BIT(FROM) | BIT(NOTICE) | BIT(RAMP) |
               BIT(NOTE) | BIT(GROUP) | BIT(EXCEED),
    OF_JOB = BIT(GROUP) | BIT(WEIGHT) | BIT(MAX_SLOWDOWN) | BIT(PRIORITY),
    OF_PRICES =
        BIT(CURRENCY) | BIT(CARBON_PRICE) | BIT(TIME_VALUE) | BIT(EVERY) | BIT(FEED_CA_FILE),
};

const harpe_fleet_action harpe_fleet_actions[] = {
    {"status", NULL, {NULL}, 0, 0, "GET", "/fleet"},
    {"budget", NULL, {NULL}, 0, 0, "GET", "/fleet"},
    {"budget",
     "set",
     {"WATTS"},
     BIT(GROUP) | BIT(MARGIN) | BIT(OVERHEAD),
     0,
     "PUT",
     "/fleet/budget"},
    {"budget", "remove", {NULL}, BIT(GROUP), 0, "DELETE", "/fleet/budget"},
    {"group", NULL, {NULL}, 0, 0, "GET", "/fleet"},
    {"group", "set", {"NAME"}, BIT(PARENT), 0, "PUT", "/fleet/groups/"},
    {"group", "remove", {"NAME"}, 0, 0, "DELETE", "/fleet/groups/"},
    {"job", NULL, {NULL}, 0, 0, "GET", "/fleet"},
    {"job", "set", {"ID"}, OF_JOB, OF_JOB, "PUT", "/fleet/jobs/"},
    {"load", "set", {"NAME", "WATTS"}, BIT(GROUP), 0, "PUT", "/fleet/loads/"},
    {"load", "remove", {"NAME"}, 0, 0, "DELETE", "/fleet/loads/"},
    {"member", "remove", {"NAME"}, 0, 0, "DELETE", "/fleet/members/"},
    {"event", NULL, {NULL}, 0, 0, "GET", "/fleet"},
    {"event", "add", {NULL}, OF_EVENT, BIT(WATTS) | BIT(SHARE), "POST", "/fleet/events"},
    {"event", "cancel", {"ID"}, 0, 0, "DELETE", "/fleet/events/"},
    {"prices", NULL, {NULL}, 0, 0, "GET", "/fleet"},
    {"prices", "set", {HARPE_FLEET_SOURCE}, OF_PRICES | BIT(FROM), 0, "PUT", "/fleet/prices"},
    {"prices", "remove", {NULL}, 0, 0, "DELETE", "/fleet/prices"},
    {"audit", NULL, {NULL}, BIT(LIMIT), 0, "GET", "/fleet/audit"},
    {0},
};

/* ---- Bodies ---------------------------------------------------------------------------------- */

/* Reads "1764100000" or "+600", which counts from now. */
static harpe_status read_time(const char *value, double now_s, double *out, harpe_error *error) {
    bool is_relative = *value == '+';
    const char *digits = value + is_relative;
    double seconds;
    if (!harpe_parse_double(digits, strlen(digits), &seconds) || seconds < 0 ||
        seconds > HARPE_MOMENT_MAX_S)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "--from: '%.64s' is no time: give seconds since 1970, or +SECONDS from "
                          "now",
                          value);
    *out = is_relative ? now_s + seconds : seconds;
    return HARPE_OK;
}

/* Makes the series of a request. `from_s` is added to its times. */
static json_t *series_of(const harpe_price_series *read, double from_s) {
    json_t *series = json_array();
    for (size_t i = 0; i < read->count; i++) {
        const harpe_fleet_file_price *price = &read->prices[i];
        json_array_append_new(series, json_pack("{s:f, s:f, s:f}", "at", from_s + price->from_s,
                                                "energy_per_kwh", price->energy_per_kwh,
                                                "carbon_g_per_kwh", price->carbon_g_per_kwh));
    }
    return series;
}

/* Checks that it is known at which time of day each price begins. */
static harpe_status check_times(const harpe_price_series *series, const harpe_fleet_values *values,
                                harpe_error *error) {
    bool has_from = values->is_given[HARPE_FLEET_FROM];
    if (series->is_of_day && has_from)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "--from cannot be given: these prices have times of day (at)");
    if (series->is_of_day || has_from || !values->is_given[HARPE_FLEET_EVERY]) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "with --every, prices with the column time_s need --from TIME, the moment of "
                      "their time 0; or use the column at");
}

static harpe_status add_series(json_t *body, const char *source, const harpe_fleet_values *values,
                               double from_s, harpe_error *error) {
    harpe_price_series series = {0};
    harpe_status status =
        harpe_fleet_feed_read(source, values->texts[HARPE_FLEET_FEED_CA_FILE], &series, error);
    if (status == HARPE_OK) status = check_times(&series, values, error);
    if (status == HARPE_OK &&
        json_object_set_new(body, "series", series_of(&series, series.is_of_day ? 0 : from_s)) != 0)
        status = harpe_fail_memory(error);
    harpe_price_series_free(&series);
    return status;
}

static harpe_status add_word(json_t *body, const char *what, const char *word,
                             const harpe_fleet_values *values, double from_s, harpe_error *error) {
    double watts;
    if (strcmp(what, HARPE_FLEET_SOURCE) == 0) return add_series(body, word, values, from_s, error);
    if (strcmp(what, "WATTS") != 0) return HARPE_OK;
    if (!harpe_parse_double(word, strlen(word), &watts) || !(watts >= 0 && watts <= 1e12))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "WATTS: '%.64s' is not a number from 0 to 1e12", word);
    json_object_set_new(body, "watts", json_real(watts));
    return HARPE_OK;
}

static harpe_status add_option(json_t *body, int option, const harpe_fleet_values *values,
                               double from_s, harpe_error *error) {
    const harpe_fleet_option *what = &harpe_fleet_options[option];
    json_t *value = NULL;
    if (!what->member) return HARPE_OK;
    if (option == HARPE_FLEET_FROM) {
        if (json_object_get(body, "series")) return HARPE_OK; /* its times count from there */
        value = json_real(from_s);
    } else if (what->shape == HARPE_FLEET_SHAPE_TEXT) {
        value = json_string(values->texts[option]);
        if (!value)
            return harpe_fail(error, HARPE_INVALID_ARGUMENT, "--%s: is not UTF-8", what->flag);
    } else {
        value = what->shape == HARPE_FLEET_SHAPE_SWITCH ? json_true()
                                                        : json_real(values->numbers[option]);
    }
    json_object_set_new(body, what->member, value);
    return HARPE_OK;
}

harpe_status harpe_fleet_body(const harpe_fleet_action *action, const harpe_fleet_values *values,
                              const char *const *words, double now_s, char **out,
                              harpe_error *error) {
    harpe_status status = HARPE_OK;
    json_t *body = json_object();
    double from_s = now_s;
    if (values->is_given[HARPE_FLEET_FROM])
        status = read_time(values->texts[HARPE_FLEET_FROM], now_s, &from_s, error);
    for (int i = 0; i < HARPE_FLEET_WORDS_MAX && action->words[i] && status == HARPE_OK; i++)
        status = add_word(body, action->words[i], words[i], values, from_s, error);
    for (int i = 0; i < HARPE_FLEET_OPTION_COUNT && status == HARPE_OK; i++)
        if (values->is_given[i]) status = add_option(body, i, values, from_s, error);
    if (status == HARPE_OK) {
        *out = json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(15));
        if (!*out) status = harpe_fail_memory(error);
    }
    json_decref(body);
    return status;
}
