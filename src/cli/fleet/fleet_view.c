/* SPDX-License-Identifier: Apache-2.0 */
/* Formats the state of a server's fleet. Texts may come from other machines, so their control
 * characters are replaced, and long texts are cut. A JSON member that is missing or null is shown
 * as "-". */
#include <stdarg.h>
#include <time.h>

#include "cli/cli.h"

enum { WIDE_COLUMNS = 118 }; /* the width of the whole table of jobs */

typedef struct cell {
    char text[96];
} cell;

/* ---- Fields ---------------------------------------------------------------------------------- */

static const json_t *at(const json_t *object, const char *name) {
    return json_object_get(object, name);
}

static double number(const json_t *object, const char *name) {
    return json_number_value(at(object, name));
}

static cell dash(void) { return (cell){"-"}; }

static cell text(const json_t *object, const char *name, size_t limit) {
    const char *value = json_string_value(at(object, name));
    cell out = dash();
    if (!value || !*value) return out;
    (void)harpe_clean_text(out.text, limit + 1 < sizeof out.text ? limit + 1 : sizeof out.text,
                           value);
    return out;
}

static cell group(const json_t *object, size_t limit) {
    cell out = text(object, "group", limit);
    if (strcmp(out.text, "-") == 0) (void)snprintf(out.text, sizeof out.text, "whole fleet");
    return out;
}

static cell power(const json_t *object, const char *name) {
    cell out = dash();
    if (json_is_number(at(object, name)))
        (void)snprintf(out.text, sizeof out.text, "%s", HARPE_POWER(number(object, name)));
    return out;
}

static cell digits(const json_t *object, const char *name, int significant) {
    cell out = dash();
    if (json_is_number(at(object, name)))
        (void)snprintf(out.text, sizeof out.text, "%s",
                       HARPE_DIGITS(number(object, name), significant));
    return out;
}

/* Formats a member of `amounts` and the currency that `currency_of` has. Without a currency,
 * formats only the amount. */
static cell money(const json_t *amounts, const char *name, int significant,
                  const json_t *currency_of) {
    cell amount = digits(amounts, name, significant), currency = text(currency_of, "currency", 12);
    cell out = amount;
    if (strcmp(currency.text, "-") != 0)
        (void)snprintf(out.text, sizeof out.text, "%.40s %.40s", amount.text, currency.text);
    return out;
}

static cell duration(const json_t *object, const char *name) {
    cell out = dash();
    if (json_is_number(at(object, name)))
        (void)snprintf(out.text, sizeof out.text, "%s s", HARPE_DIGITS(number(object, name), 4));
    return out;
}

/* Formats a time of day in UTC: "2026-11-25 21:30:05". */
static cell moment(const json_t *object, const char *name) {
    cell out = dash();
    double seconds = number(object, name);
    time_t whole = (time_t)seconds;
    struct tm utc;
    if (json_is_number(at(object, name)) && seconds >= 0 && seconds < 1e11 &&
        gmtime_r(&whole, &utc))
        (void)strftime(out.text, sizeof out.text, "%Y-%m-%d %H:%M:%S", &utc);
    return out;
}

static void HARPE_PRINTF(1, 2) heading(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("%s", harpe_bold_start());
    (void)vprintf(format, arguments);
    printf("%s\n", harpe_bold_end());
    va_end(arguments);
}

/* ---- Tables ---------------------------------------------------------------------------------- */

static void print_budgets(const json_t *fleet) {
    size_t i;
    const json_t *budget;
    heading("%-16s %9s %7s %8s %9s %9s %9s %9s %9s", "budget", "watts", "margin", "overhead",
            "limit", "planned", "measured", "counted", "at least");
    json_array_foreach(at(fleet, "budgets"), i, budget) {
        printf("%-16s %9s %7s %8s %9s %9s %9s %9s %9s%s\n", group(budget, 16).text,
               power(budget, "now_watts").text, digits(budget, "margin", 4).text,
               digits(budget, "overhead", 4).text, power(budget, "limit_w").text,
               power(budget, "power_w").text, power(budget, "measured_w").text,
               power(budget, "counted_w").text, power(budget, "least_w").text,
               number(budget, "missing_w") > 0 ? "  too small" : "");
        if (number(budget, "missing_w") > 0)
            printf("  %s are missing\n", power(budget, "missing_w").text);
    }
}

static void print_groups(const json_t *fleet) {
    size_t i;
    const json_t *row;
    heading("%-32s %s", "group", "inside");
    json_array_foreach(at(fleet, "groups"), i, row) {
        cell parent = text(row, "parent", 40);
        printf("%-32s %s\n", text(row, "name", 32).text,
               strcmp(parent.text, "-") == 0 ? "whole fleet" : parent.text);
    }
}

static cell plan_of(const json_t *job) {
    cell out = dash();
    if (json_is_integer(at(job, "plan")))
        (void)snprintf(out.text, sizeof out.text, "%d/%d", (int)number(job, "plan"),
                       (int)number(job, "plans"));
    return out;
}

static cell slowdown_of(const json_t *job) {
    cell out = dash();
    if (json_is_number(at(job, "slowdown")))
        (void)harpe_format_fixed(out.text, number(job, "slowdown"), 3);
    return out;
}

/* Prints the job's whole id in a line of its own, because `harpe fleet job set` needs the id.
 * Prints nothing if the first cell of the row (`shown`) is the id. */
static void print_id(const json_t *job, const char *shown) {
    char clean[1024];
    const char *id = json_string_value(at(job, "job_id"));
    if (!id || !*id) return;
    (void)harpe_clean_text(clean, sizeof clean, id);
    if (strcmp(clean, shown) != 0) printf("    %s\n", clean);
}

/* Prints the row of a job and its id. On a narrow terminal, the row has two lines. */
static void print_job(const json_t *job, bool is_wide) {
    const char *label = json_string_value(at(job, "name"));
    cell name = text(job, label && *label ? "name" : "job_id", is_wide ? 32 : 78);
    if (is_wide)
        printf("%-32s ", name.text);
    else
        printf("%s\n  ", name.text);
    printf("%-12s %-12s %7s %9s %9s %8s", text(job, "group", 12).text, text(job, "state", 12).text,
           plan_of(job).text, power(job, "planned_w").text, power(job, "measured_w").text,
           slowdown_of(job).text);
    if (is_wide)
        printf(" %9s %11s", power(job, "counted_w").text, digits(job, "gain_per_kw", 4).text);
    puts("");
    print_id(job, name.text);
    cell reason = text(job, "reason", 74);
    if (strcmp(reason.text, "-") != 0) printf("    %s\n", reason.text);
}

static void print_jobs(const json_t *fleet) {
    int columns = harpe_command_columns();
    bool is_wide = columns == 0 || columns >= WIDE_COLUMNS;
    heading(is_wide ? "%-32s %-12s %-12s %7s %9s %9s %8s%s" : "%s\n  %-12s %-12s %7s %9s %9s %8s%s",
            "job", "group", "state", "plan", "planned", "measured", "slowdown",
            is_wide ? "   counted gain per kW" : "");
    size_t i;
    const json_t *job;
    json_array_foreach(at(fleet, "jobs"), i, job) print_job(job, is_wide);
    double total = number(fleet, "jobs_total");
    if (total > (double)json_array_size(at(fleet, "jobs")))
        printf("%.0f jobs more\n", total - (double)json_array_size(at(fleet, "jobs")));
}

static cell less_of(const json_t *event) {
    cell out = dash();
    if (number(event, "watts") > 0)
        out = power(event, "watts");
    else if (number(event, "share") > 0)
        (void)harpe_format_percent(out.text, 100 * number(event, "share"));
    return out;
}

/* Prints the result of an event that has begun. */
static void print_result(const json_t *event) {
    cell state = text(event, "state", 16);
    double breaches = number(event, "breaches");
    bool is_reached = json_is_number(at(event, "reached_at"));
    bool is_judged = json_is_number(at(event, "highest_w"));
    if (!is_reached && !is_judged && strcmp(state.text, "over") != 0) return;
    printf("      %s%s", is_reached ? "reached at " : "not reached",
           is_reached ? moment(event, "reached_at").text : "");
    if (is_judged) printf(", then %s at most", power(event, "highest_w").text);
    if (breaches > 0)
        printf(", exceeded %.0f %s", breaches, breaches == 1 ? "time" : "times");
    else if (!is_judged && strcmp(state.text, "active") != 0)
        printf(", not judged: shorter than the time to follow");
    puts("");
}

static void print_events(const json_t *fleet) {
    size_t i;
    const json_t *event;
    heading("%5s %-14s %-19s %9s %9s %-9s %9s", "event", "group", "from (UTC)", "for", "less",
            "state", "promised");
    json_array_foreach(at(fleet, "events"), i, event) {
        printf("%5.0f %-14s %-19s %9s %9s %-9s %9s\n", number(event, "id"), group(event, 14).text,
               moment(event, "from").text, duration(event, "duration_s").text, less_of(event).text,
               text(event, "state", 9).text, power(event, "promised_w").text);
        if (number(event, "missing_w") > 0)
            printf("      %s are missing: the jobs cannot draw so little\n",
                   power(event, "missing_w").text);
        print_result(event);
    }
}

static void print_prices(const json_t *fleet) {
    const json_t *price = at(fleet, "price");
    if (!json_is_object(price)) {
        puts("no prices are set");
        return;
    }
    printf("energy %s per kWh, carbon dioxide %s g per kWh and %s per kg, ",
           money(price, "energy_per_kwh", 6, price).text, digits(price, "carbon_g_per_kwh", 6).text,
           money(price, "carbon_per_kg", 6, price).text);
    if (number(price, "value_per_s") > 0)
        printf("time %s per s\n", money(price, "value_per_s", 6, price).text);
    else
        puts("no value of time: prices change no split");
    printf("%.0f %s, set at %s UTC\n", number(price, "series"),
           number(price, "series") == 1 ? "price" : "prices", moment(price, "set_at").text);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static void print_energy(const json_t *fleet) {
    const json_t *energy = at(fleet, "energy");
    if (!json_is_number(at(energy, "used_kwh"))) return;
    printf("energy %s kWh since %s UTC, saved %s kWh +- %s kWh (against one clock: not measured)\n",
           digits(energy, "used_kwh", 5).text, moment(energy, "since").text,
           digits(energy, "saved_kwh", 5).text, digits(energy, "saved_kwh_uncertainty", 3).text);
    if (!json_is_number(at(energy, "cost"))) return;
    printf("cost %s, saved %s +- %s\n", money(energy, "cost", 6, energy).text,
           money(energy, "cost_saved", 6, energy).text,
           money(energy, "cost_saved_uncertainty", 3, energy).text);
}

/* Without a value of time, the lower bound is a bound of the weighted slowdown. With one, it is a
 * bound of the cost rate. */
static void print_objective(const json_t *fleet) {
    const json_t *price = at(fleet, "price");
    cell bound = digits(fleet, "lower_bound", 5);
    printf("weighted slowdown %s", digits(fleet, "weighted_slowdown", 5).text);
    if (number(price, "value_per_s") > 0)
        printf(", cost rate %s per s", money(fleet, "objective", 5, price).text);
    printf(", lower bound %s\n", bound.text);
    if (json_is_number(at(price, "cost_per_h")))
        printf("the measured power costs %s per h\n", money(price, "cost_per_h", 5, price).text);
}

/* These print parts of the answer to GET /fleet. `columns`: the width of the terminal; 0: not
 * limited. */
static void print_status(const json_t *fleet) {
    const json_t *sums = at(fleet, "power");
    printf("state %s at %s UTC\n", text(fleet, "state", 20).text, moment(fleet, "at").text);
    double unmeasured = number(sums, "unmeasured");
    printf("power %s measured, ", power(sums, "measured_w").text);
    if (unmeasured > 0)
        printf("%.0f %s not measured yet, ", unmeasured, unmeasured > 1 ? "jobs" : "job");
    printf("%s planned, %s counted, limit %s\n", power(sums, "planned_w").text,
           power(sums, "counted_w").text, power(sums, "limit_w").text);
    print_objective(fleet);
    print_energy(fleet);
    if (json_array_size(at(fleet, "budgets")) > 0) {
        puts("");
        print_budgets(fleet);
    }
    if (json_array_size(at(fleet, "events")) > 0) {
        puts("");
        print_events(fleet);
    }
    puts("");
    print_jobs(fleet);
}

/* Prints the answer to POST /fleet/events. */
static void print_promise(const json_t *answer) {
    printf("event %.0f: ", number(answer, "id"));
    if (number(answer, "missing_w") > 0)
        printf("cannot be met: %s promised, %s are missing\n", power(answer, "promised_w").text,
               power(answer, "missing_w").text);
    else
        printf("%s promised\n", power(answer, "promised_w").text);
}

/* Prints what is missing for a budget, if something is. */
static void print_missing(const json_t *answer) {
    if (number(answer, "missing_w") > 0)
        printf("the budget is set, but it is %s too small for what the jobs draw at least\n",
               power(answer, "missing_w").text);
}

/* Prints the answer to GET /fleet/audit. */
static void print_audit(const json_t *records) {
    size_t i;
    const json_t *record;
    heading("%-19s %-16s %-8s %6s %s", "time (UTC)", "token", "role", "status", "request");
    json_array_foreach(records, i, record) {
        printf("%-19s %-16s %-8s %6.0f %s\n", moment(record, "at").text,
               text(record, "who", 16).text, text(record, "role", 8).text, number(record, "status"),
               text(record, "what", 90).text);
        cell body = text(record, "request", 90), detail = text(record, "detail", 90);
        if (strcmp(body.text, "-") != 0) printf("  %s\n", body.text);
        if (strcmp(detail.text, "-") != 0) printf("  %s\n", detail.text);
        double left_out = number(record, "left_out");
        if (left_out > 0)
            printf("  %.0f requests of this token before it have no record\n", left_out);
    }
}

void harpe_fleet_print_answer(const char *noun, const char *method, const json_t *answer) {
    static const struct {
        const char *noun;
        void (*print)(const json_t *fleet);
    } views[] = {{"status", print_status}, {"budget", print_budgets}, {"group", print_groups},
                 {"job", print_jobs},      {"event", print_events},   {"prices", print_prices},
                 {"audit", print_audit}};
    if (strcmp(method, "POST") == 0) print_promise(answer);
    /* A change that succeeded prints nothing else. */
    if (strcmp(method, "PUT") == 0 || strcmp(method, "DELETE") == 0) print_missing(answer);
    for (size_t i = 0; strcmp(method, "GET") == 0 && i < sizeof views / sizeof *views; i++)
        if (strcmp(noun, views[i].noun) == 0) views[i].print(answer);
}
