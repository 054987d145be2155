/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe fleet simulate`: simulates a fleet under three policies, prints what each of them costs,
 * and draws their power. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "cli/command.h"
#include "cli/fleet/fleet_commands.h"
#include "draw/draw.h"
#include "fleet/simulate.h"

#define BREACHES_SHOWN 10

typedef struct days {
    const harpe_fleet_file *file;
    harpe_fleet_day day[HARPE_FLEET_POLICY_COUNT];
} days;

static const char *const policy_names[] = {"split", "uniform cap", "stop lowest"};
static const char *const policy_keys[] = {"split", "uniform_cap", "stop_lowest"};

static const char *group_text(char *buffer, size_t size, const harpe_fleet_file *file, int group) {
    return group == 0 ? "whole fleet" : harpe_clean_text(buffer, size, file->groups[group].name);
}

/* ---- Tables ---------------------------------------------------------------------------------- */

static void print_row(const char *name, const double values[], int decimals) {
    printf("%-34s", name);
    for (int p = 0; p < HARPE_FLEET_POLICY_COUNT; p++)
        printf(" %14s", harpe_format_fixed((char[HARPE_NUMBER_SIZE]){0}, values[p], decimals));
    printf("\n");
}

/* A row of the table: a member of harpe_fleet_day, and how it is printed. */
#define ROW(name, member, factor, decimals) \
    do { \
        double row_values[HARPE_FLEET_POLICY_COUNT]; \
        for (int row_p = 0; row_p < HARPE_FLEET_POLICY_COUNT; row_p++) \
            row_values[row_p] = (double)d->day[row_p].member * (factor); \
        print_row((name), row_values, (decimals)); \
    } while (0)

static double breach_s(const harpe_fleet_day *day) {
    double sum = 0;
    for (size_t b = 0; b < day->breach_count; b++)
        sum += day->breaches[b].to_s - day->breaches[b].from_s;
    return sum;
}

static void print_table(const days *d) {
    printf("Jobs: %zu. Events: %zu. Time: %s h.\n\n", d->file->job_count, d->file->event_count,
           HARPE_DIGITS(d->file->horizon_s / 3600, 4));
    printf("%s%-34s", harpe_bold_start(), "");
    for (int p = 0; p < HARPE_FLEET_POLICY_COUNT; p++)
        printf(" %14s", policy_names[p]);
    printf("%s\n", harpe_bold_end());
    ROW("energy (MWh)", energy_j, 1 / 3.6e9, 4);
    if (d->file->price_count > 0) {
        ROW("cost of energy and carbon", cost, 1, 2);
        ROW("carbon dioxide (kg)", carbon_kg, 1, 1);
    }
    ROW("weighted slowdown", weighted_slowdown, 1, 4);
    ROW("lost time, weighted (h)", lost_s, 1 / 3600.0, 3);
    ROW("time of stopped jobs (h)", stopped_s, 1 / 3600.0, 3);
    ROW("jobs without any work done", without_work, 1, 0);
    ROW("jobs slower than they accept", too_slow, 1, 0);
    ROW("breaches of a budget", breach_count, 1, 0);
    double seconds[HARPE_FLEET_POLICY_COUNT];
    for (int p = 0; p < HARPE_FLEET_POLICY_COUNT; p++)
        seconds[p] = breach_s(&d->day[p]);
    print_row("time of breaches (s)", seconds, 1);
}

static void print_breaches(const days *d) {
    const harpe_fleet_day *day = &d->day[HARPE_FLEET_SPLIT];
    if (day->breach_count > 0) printf("\nBreaches with the split:\n");
    for (size_t b = 0; b < day->breach_count && b < BREACHES_SHOWN; b++) {
        const harpe_fleet_breach *breach = &day->breaches[b];
        char name[64];
        printf("  %-24s from %s s for %s s, up to %s above the budget\n",
               group_text(name, 25, d->file, breach->group), HARPE_DIGITS(breach->from_s, 7),
               HARPE_DIGITS(breach->to_s - breach->from_s, 4), HARPE_POWER(breach->worst_w));
    }
    if (day->breach_count > BREACHES_SHOWN)
        printf("  and %zu more (--json lists all)\n", day->breach_count - BREACHES_SHOWN);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *breaches_json(const days *d, const harpe_fleet_day *day) {
    json_t *list = json_array();
    for (size_t b = 0; b < day->breach_count; b++) {
        const harpe_fleet_breach *breach = &day->breaches[b];
        int group = breach->group;
        json_array_append_new(
            list,
            json_pack("{s:o, s:f, s:f, s:f}", "group",
                      group > 0 ? harpe_command_json_text(d->file->groups[group].name)
                                : json_null(),
                      "from_s", breach->from_s, "to_s", breach->to_s, "worst_w", breach->worst_w));
    }
    return list;
}

static json_t *jobs_json(const days *d, const harpe_fleet_day *day) {
    json_t *list = json_array();
    for (size_t j = 0; j < d->file->job_count; j++) {
        const harpe_fleet_job_day *job = &day->jobs[j];
        bool has_slowdown = job->done_s > 0;
        json_array_append_new(
            list,
            json_pack("{s:o, s:f, s:f, s:f, s:f, s:o, s:b}", "name",
                      harpe_command_json_text(d->file->jobs[j].name), "here_s", job->here_s,
                      "done_s", job->done_s, "stopped_s", job->stopped_s, "energy_j", job->energy_j,
                      "slowdown", has_slowdown ? json_real(job->here_s / job->done_s) : json_null(),
                      "is_done", job->is_done));
    }
    return list;
}

static json_t *day_json(const days *d, const harpe_fleet_day *day) {
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:I, s:o, s:o}", "energy_j",
                     day->energy_j, "cost", day->cost, "carbon_kg", day->carbon_kg,
                     "weighted_slowdown", day->weighted_slowdown, "lost_s", day->lost_s,
                     "stopped_s", day->stopped_s, "jobs_without_work",
                     (json_int_t)day->without_work, "jobs_too_slow", (json_int_t)day->too_slow,
                     "breach_s", breach_s(day), "decisions", (json_int_t)day->decisions, "breaches",
                     breaches_json(d, day), "jobs", jobs_json(d, day));
}

static harpe_status print_json(const days *d, harpe_error *error) {
    json_t *object = json_object();
    json_object_set_new(object, "horizon_s", json_real(d->file->horizon_s));
    for (int p = 0; p < HARPE_FLEET_POLICY_COUNT; p++)
        json_object_set_new(object, policy_keys[p], day_json(d, &d->day[p]));
    return harpe_command_print_json(object, error);
}

/* ---- The picture ----------------------------------------------------------------------------- */

/* The samples as a line. `first_w` is the power of the first sample, or its budget. */
static harpe_fleet_line line_of(const harpe_fleet_day *day, const double *first_w,
                                const char *label) {
    return (harpe_fleet_line){.label = label,
                              .count = day->sample_count,
                              .step = sizeof *day->samples / sizeof(double),
                              .at_s = &day->samples->at_s,
                              .power_w = first_w};
}

static harpe_fleet_band *make_bands(const harpe_fleet_file *file) {
    harpe_fleet_band *bands = harpe_calloc(file->event_count, sizeof *bands);
    for (size_t e = 0; bands && e < file->event_count; e++) {
        const harpe_fleet_file_event *event = &file->events[e];
        bands[e] = (harpe_fleet_band){event->from_s, event->from_s + event->duration_s, "event"};
    }
    return bands;
}

static harpe_status draw(const days *d, const char *path, harpe_error *error) {
    harpe_fleet_line lines[HARPE_FLEET_POLICY_COUNT];
    for (int p = 0; p < HARPE_FLEET_POLICY_COUNT; p++)
        lines[p] = line_of(&d->day[p], &d->day[p].samples->power_w, policy_names[p]);
    harpe_fleet_line budget = line_of(&d->day[0], &d->day[0].samples->budget_w, "budget");
    harpe_fleet_picture picture = {.title = "Power of the fleet and its budget",
                                   .end_s = d->file->horizon_s,
                                   .budget = d->file->groups[0].budget.watts < 0 ? NULL : &budget,
                                   .lines = lines,
                                   .line_count = HARPE_FLEET_POLICY_COUNT,
                                   .bands = make_bands(d->file),
                                   .band_count = d->file->event_count};
    if (!picture.bands) return harpe_fail_memory(error);
    harpe_text text = {0};
    harpe_status status = harpe_draw_fleet(&picture, &text, error);
    if (status == HARPE_OK) status = harpe_file_write(path, text.data, text.length, error);
    harpe_text_free(&text);
    free((void *)picture.bands);
    return status;
}

/* ---- The action ------------------------------------------------------------------------------ */

static harpe_status check_output(const harpe_fleet_arguments *arguments, harpe_error *error) {
    const char *path = arguments->output_path;
    if (!path) return HARPE_OK;
    const char *end = strrchr(path, '.');
    if (!end || strcmp(end, ".svg") != 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "--output: '%.200s' must end in .svg; rsvg-convert or a browser makes "
                          "PNG and PDF from SVG",
                          path);
    if (arguments->force || access(path, F_OK) != 0) return HARPE_OK;
    return harpe_fail(error, HARPE_ALREADY_EXISTS,
                      "%s: already exists (choose another name, or --force to replace it)", path);
}

harpe_status harpe_fleet_simulate_action(const harpe_fleet_arguments *arguments,
                                         const harpe_fleet_file *file, int *exit_code,
                                         harpe_error *error) {
    days d = {.file = file};
    harpe_status status = check_output(arguments, error);
    for (int p = 0; p < HARPE_FLEET_POLICY_COUNT && status == HARPE_OK; p++)
        status = harpe_fleet_simulate(file, arguments->path, (harpe_fleet_policy)p,
                                      harpe_command_check_signal, &d.day[p], error);
    if (status == HARPE_OK && arguments->output_path)
        status = draw(&d, arguments->output_path, error);
    if (status == HARPE_OK && arguments->json) {
        status = print_json(&d, error);
    } else if (status == HARPE_OK) {
        print_table(&d);
        print_breaches(&d);
    }
    for (int p = 0; p < HARPE_FLEET_POLICY_COUNT; p++)
        harpe_fleet_day_clear(&d.day[p]);
    *exit_code = HARPE_EXIT_OK;
    return status;
}
