/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe fleet solve`: prints the split of one moment, as tables or JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/format.h"
#include "cli/command.h"
#include "cli/fleet/fleet_commands.h"

typedef struct solution {
    const harpe_fleet_file *file;
    harpe_fleet *fleet;
    harpe_fleet_split split;
} solution;

static const char *group_text(char *buffer, size_t size, const char *name) {
    return *name ? harpe_clean_text(buffer, size, name) : "whole fleet";
}

/* ---- Tables ---------------------------------------------------------------------------------- */

static harpe_status print_budgets(const solution *s, harpe_error *error) {
    printf("%s%-24s %12s %12s %12s %12s %14s%s\n", harpe_bold_start(), "budget", "watts",
           "jobs may draw", "jobs draw", "at least", "price per kW", harpe_bold_end());
    for (int g = 0; g < harpe_fleet_group_count(s->fleet); g++) {
        harpe_fleet_use use;
        char name[64];
        harpe_status status = harpe_fleet_use_of(s->fleet, g, &use, error);
        if (status != HARPE_OK) return status;
        printf("%-24s %12s %12s %12s %12s %14s%s\n",
               group_text(name, 25, harpe_fleet_group_name(s->fleet, g)),
               use.budget_w < 0 ? "-" : HARPE_POWER(use.budget_w),
               use.limit_w < 0 ? "-" : HARPE_POWER(use.limit_w), HARPE_POWER(use.power_w),
               HARPE_POWER(use.least_w), HARPE_DIGITS(use.price_per_w * 1e3, 4),
               use.missing_w > 0 ? "  too small" : "");
    }
    return HARPE_OK;
}

static harpe_status print_jobs(const solution *s, harpe_error *error) {
    printf("%s%-24s %-16s %6s %12s %12s %9s %14s%s\n", harpe_bold_start(), "job", "group", "plan",
           "time", "power", "slowdown", "gain per kW", harpe_bold_end());
    for (size_t j = 0; j < s->file->job_count; j++) {
        harpe_fleet_choice choice;
        char name[64], group[64];
        if (!harpe_fleet_job_name(s->fleet, (int)j)) continue;
        const harpe_fleet_file_job *job = &s->file->jobs[j];
        harpe_status status = harpe_fleet_choice_of(s->fleet, (int)j, &choice, error);
        if (status != HARPE_OK) return status;
        printf("%-24s %-16s ", harpe_clean_text(name, 25, job->name),
               job->group_name ? harpe_clean_text(group, 17, job->group_name) : "-");
        if (job->is_load) {
            printf("%6s %12s %12s\n", "load", "-", HARPE_POWER(choice.power_w));
            continue;
        }
        printf("%6zu %12s %12s %9s %14s\n", choice.plan, HARPE_TIME(choice.time_s),
               HARPE_POWER(choice.power_w),
               harpe_format_fixed((char[HARPE_NUMBER_SIZE]){0}, choice.slowdown, 4),
               HARPE_DIGITS(choice.gain_per_w * 1e3, 4));
    }
    return HARPE_OK;
}

static void print_sums(const solution *s) {
    const harpe_fleet_split *split = &s->split;
    printf("\n%zu jobs draw %s, weighted slowdown %s\n", split->job_count,
           HARPE_POWER(split->power_w), HARPE_DIGITS(split->weighted_slowdown, 6));
    if (split->objective != split->weighted_slowdown)
        printf("Cost of lost time and energy: %s per hour\n",
               HARPE_DIGITS(split->objective * 3600, 6));
    double gap = split->objective - split->lower_bound;
    if (!split->is_feasible)
        printf("No split is within the budgets\n");
    else if (split->is_optimal)
        printf("No split within the budgets is better\n");
    else
        printf("At most %s above the best (lower bound %s)\n",
               harpe_format_percent((char[HARPE_NUMBER_SIZE]){0},
                                    100 * gap / fmax(fabs(split->lower_bound), 1e-300)),
               HARPE_DIGITS(split->lower_bound, 6));
}

/* Prints one line for each budget that cannot hold. */
static harpe_status report_missing(const solution *s, const char *path, harpe_error *error) {
    for (int g = 0; g < harpe_fleet_group_count(s->fleet); g++) {
        harpe_fleet_use use;
        char name[HARPE_FLEET_NAME_MAX], line[HARPE_FLEET_NAME_MAX + 400];
        harpe_status status = harpe_fleet_use_of(s->fleet, g, &use, error);
        if (status != HARPE_OK) return status;
        if (!(use.missing_w > 0)) continue;
        const char *group = harpe_fleet_group_name(s->fleet, g);
        (void)snprintf(
            line, sizeof line,
            "the budget of %s%s%s, %s, is %s too small: its jobs draw at least %s within "
            "the slowdowns that they accept, which needs a budget of %s",
            *group ? "group '" : "the whole fleet", harpe_clean_text(name, sizeof name, group),
            *group ? "'" : "", HARPE_POWER(use.budget_w), HARPE_POWER(use.missing_w),
            HARPE_POWER(use.least_w), HARPE_POWER(use.budget_w + use.missing_w));
        char before[HARPE_ERROR_MESSAGE_SIZE];
        (void)snprintf(before, sizeof before, "harpe fleet: %s", path);
        harpe_command_say(before, line);
    }
    return HARPE_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *watts_or_null(double watts) { return watts < 0 ? json_null() : json_real(watts); }

static harpe_status budgets_json(const solution *s, json_t *list, harpe_error *error) {
    for (int g = 0; g < harpe_fleet_group_count(s->fleet); g++) {
        harpe_fleet_use use;
        harpe_status status = harpe_fleet_use_of(s->fleet, g, &use, error);
        if (status != HARPE_OK) return status;
        const char *name = harpe_fleet_group_name(s->fleet, g);
        json_array_append_new(list, json_pack("{s:o, s:o, s:o, s:f, s:f, s:f, s:f}", "group",
                                              *name ? harpe_command_json_text(name) : json_null(),
                                              "budget_w", watts_or_null(use.budget_w), "limit_w",
                                              watts_or_null(use.limit_w), "power_w", use.power_w,
                                              "least_w", use.least_w, "missing_w", use.missing_w,
                                              "price_per_w", use.price_per_w));
    }
    return HARPE_OK;
}

static harpe_status jobs_json(const solution *s, json_t *list, harpe_error *error) {
    for (size_t j = 0; j < s->file->job_count; j++) {
        harpe_fleet_choice choice;
        if (!harpe_fleet_job_name(s->fleet, (int)j)) continue;
        harpe_status status = harpe_fleet_choice_of(s->fleet, (int)j, &choice, error);
        if (status != HARPE_OK) return status;
        json_array_append_new(list,
                              json_pack("{s:o, s:I, s:f, s:f, s:f, s:f, s:f}", "name",
                                        harpe_command_json_text(s->file->jobs[j].name), "plan",
                                        (json_int_t)choice.plan, "time", choice.time_s, "power_w",
                                        choice.power_w, "slowdown", choice.slowdown, "gain_per_w",
                                        choice.gain_per_w, "price_per_w", choice.price_per_w));
    }
    return HARPE_OK;
}

static harpe_status print_json(const solution *s, harpe_error *error) {
    const harpe_fleet_split *split = &s->split;
    json_t *jobs = json_array(), *budgets = json_array();
    harpe_status status = jobs_json(s, jobs, error);
    if (status == HARPE_OK) status = budgets_json(s, budgets, error);
    if (status != HARPE_OK) {
        json_decref(jobs);
        json_decref(budgets);
        return status;
    }
    return harpe_command_print_json(
        json_pack("{s:o, s:o, s:f, s:f, s:f, s:f, s:b, s:b}", "jobs", jobs, "budgets", budgets,
                  "power_w", split->power_w, "weighted_slowdown", split->weighted_slowdown,
                  "objective", split->objective, "lower_bound", split->lower_bound, "optimal",
                  split->is_optimal, "feasible", split->is_feasible),
        error);
}

/* ---- The action ------------------------------------------------------------------------------ */

static harpe_status print_tables(const solution *s, harpe_error *error) {
    harpe_status status = print_jobs(s, error);
    if (status != HARPE_OK) return status;
    printf("\n");
    status = print_budgets(s, error);
    if (status == HARPE_OK) print_sums(s);
    return status;
}

harpe_status harpe_fleet_solve_action(const harpe_fleet_arguments *arguments,
                                      const harpe_fleet_file *file, int *exit_code,
                                      harpe_error *error) {
    solution s = {.file = file};
    harpe_status status =
        harpe_fleet_file_fleet(file, arguments->path, arguments->at_s, &s.fleet, error);
    if (status == HARPE_OK) status = harpe_fleet_solve(s.fleet, &s.split, error);
    if (status == HARPE_OK) status = harpe_fleet_verify(s.fleet, error);
    if (status == HARPE_OK)
        status = arguments->json ? print_json(&s, error) : print_tables(&s, error);
    if (status == HARPE_OK && !s.split.is_feasible) {
        *exit_code = HARPE_FLEET_EXIT_INFEASIBLE;
        status = report_missing(&s, arguments->path, error);
    }
    harpe_fleet_free(s.fleet);
    return status;
}
