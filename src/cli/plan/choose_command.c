/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe choose`: picks one plan from a plan directory by a criterion, for example a time, a power,
 * or a straggler. It does not solve a planning problem, and runs nothing. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/plan/graph_plan_file.h"
#include "cli/plan/plan_directory.h"
#include "cli/rows.h"
#include "plan/frontier_file.h"
#include "plan/plan_file.h"

#define TIME_MAX_S 1e9

typedef enum criterion {
    CRITERION_TIME = 0x300,
    CRITERION_DEADLINE,
    CRITERION_SLOWDOWN,
    CRITERION_STRAGGLER,
    CRITERION_POWER_CAP,
    CRITERION_MINIMUM_ENERGY,
} criterion;

typedef struct choose_arguments {
    const char *directory;
    int criterion; /* 0: none yet */
    const char *criterion_flag;
    double value;
    bool json;
} choose_arguments;

typedef struct choice {
    const harpe_frontier_row *row;
    char *path;         /* path of the plan file, owned */
    double iteration_s; /* with a straggler: the end of the iteration; else the row's time */
    double waiting_j;   /* with a straggler: energy of the wait after the plan's end */
} choice;

/* ---- Flags ----------------------------------------------------------------------------------- */

static const struct argp_option flags[] = {
    {NULL, 0, NULL, 0, "Exactly one of:", 1},
    {"time", CRITERION_TIME, "S", 0, "The slowest plan that takes at most S seconds", 1},
    {"deadline", CRITERION_DEADLINE, "S", 0,
     "The plan of least energy that takes at most S seconds", 1},
    {"max-slowdown", CRITERION_SLOWDOWN, "X", 0,
     "The plan of least energy that takes at most X times as long as maximum frequency", 1},
    {"straggler", CRITERION_STRAGGLER, "X", 0,
     "The rest of the job takes X times as long as this pipeline's fastest plan: the slowest "
     "useful plan that does not delay it",
     1},
    {"power-cap", CRITERION_POWER_CAP, "W", 0,
     "The fastest plan that draws at most W watts per GPU on average", 1},
    {"min-energy", CRITERION_MINIMUM_ENERGY, NULL, 0, "The plan of least energy", 1},
    {NULL, 0, NULL, 0, "Output:", 2},
    {"json", 'j', NULL, 0, "Print one JSON object", 2},
    {0},
};

static void set_criterion(const struct argp_state *state, int key, const char *flag,
                          const char *text, double minimum, double maximum) {
    choose_arguments *arguments = state->input;
    if (arguments->criterion)
        harpe_flag_fail(state, "%s and %s: give only one", arguments->criterion_flag, flag);
    arguments->criterion = key;
    arguments->criterion_flag = flag;
    if (!text) return;
    arguments->value = minimum > 0 ? harpe_flag_double(state, flag, text, minimum, maximum)
                                   : harpe_flag_double_above(state, flag, text, minimum, maximum);
}

static void check_complete(const struct argp_state *state) {
    const choose_arguments *arguments = state->input;
    if (!arguments->directory)
        harpe_flag_fail(state, "the plan directory is missing: harpe choose DIR --min-energy");
    if (!arguments->criterion && access(arguments->directory, F_OK) != 0)
        harpe_flag_fail(state, "%s: %s", arguments->directory, strerror(errno));
    if (!arguments->criterion) {
        harpe_flag_fail(state, "the criterion is missing: give --time, --deadline, --max-slowdown, "
                               "--straggler, --power-cap or --min-energy");
    }
}

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    choose_arguments *arguments = state->input;
    switch (key) {
    case CRITERION_TIME: set_criterion(state, key, "--time", argument, 0, TIME_MAX_S); return 0;
    case CRITERION_DEADLINE:
        set_criterion(state, key, "--deadline", argument, 0, TIME_MAX_S);
        return 0;
    case CRITERION_SLOWDOWN:
        set_criterion(state, key, "--max-slowdown", argument, 0, 1e6);
        return 0;
    case CRITERION_STRAGGLER: set_criterion(state, key, "--straggler", argument, 1, 1e6); return 0;
    case CRITERION_POWER_CAP: set_criterion(state, key, "--power-cap", argument, 0, 1e6); return 0;
    case CRITERION_MINIMUM_ENERGY: set_criterion(state, key, "--min-energy", NULL, 0, 0); return 0;
    case 'j': arguments->json = true; return 0;
    case ARGP_KEY_ARG:
        if (arguments->directory) {
            harpe_flag_fail(state, "only one plan directory is allowed, and '%s' is a second one",
                            argument);
        }
        arguments->directory = argument;
        return 0;
    case ARGP_KEY_END: check_complete(state); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argument_parser = {
    .options = flags,
    .parser = parse_flag,
    .args_doc = "DIR",
    .doc =
        "Choose one plan from a directory made by harpe plan, and print its numbers and its "
        "file.\vExample:\n  harpe choose plans --max-slowdown 1.05\n\nSee also: man harpe-choose",
};

/* ---- Choosing -------------------------------------------------------------------------------- */

static const harpe_frontier_row *fastest(const harpe_plan_directory *plans) {
    const harpe_frontier_row *best = &plans->rows[0];
    for (size_t i = 1; i < plans->row_count; i++)
        if (plans->rows[i].time_s < best->time_s) best = &plans->rows[i];
    return best;
}

/* Compares with a tolerance. A plan's time is a sum, and its last digit depends on the order of
 * addition. A time that was printed as 3.926225 must find its plan. */
static bool is_within(double time_s, double allowed_s) { return time_s <= allowed_s * (1 + 1e-9); }

/* Returns NULL if no plan takes at most `time_s`. */
static const harpe_frontier_row *least_energy_within(const harpe_plan_directory *plans,
                                                     double time_s) {
    const harpe_frontier_row *best = NULL;
    for (size_t i = 0; i < plans->row_count; i++) {
        const harpe_frontier_row *row = &plans->rows[i];
        if (is_within(row->time_s, time_s) && (!best || row->energy_j < best->energy_j)) best = row;
    }
    return best;
}

static const harpe_frontier_row *slowest_within(const harpe_plan_directory *plans, double time_s) {
    const harpe_frontier_row *best = NULL;
    for (size_t i = 0; i < plans->row_count; i++) {
        const harpe_frontier_row *row = &plans->rows[i];
        if (is_within(row->time_s, time_s) && (!best || row->time_s > best->time_s)) best = row;
    }
    return best;
}

static const harpe_frontier_row *fastest_under(const harpe_plan_directory *plans, double power_w) {
    const harpe_frontier_row *best = NULL;
    for (size_t i = 0; i < plans->row_count; i++) {
        const harpe_frontier_row *row = &plans->rows[i];
        if (row->average_power_w <= power_w && (!best || row->time_s < best->time_s)) best = row;
    }
    return best;
}

/* Rounds up, so that the printed number can be used as a limit. */
static double rounded_up(double value, double unit) { return ceil(value / unit) * unit; }

static harpe_status fail_too_slow(const harpe_plan_directory *plans, double allowed_s,
                                  harpe_error *error) {
    const harpe_frontier_row *row = fastest(plans);
    return harpe_fail(
        error, HARPE_INFEASIBLE, "no plan takes at most %s s; the fastest, plan %d, takes %s s",
        HARPE_DIGITS(allowed_s, 6), row->plan, HARPE_DIGITS(rounded_up(row->time_s, 1e-6), 9));
}

static harpe_status fail_too_hungry(const harpe_plan_directory *plans, double allowed_w,
                                    harpe_error *error) {
    const harpe_frontier_row *least = &plans->rows[0];
    for (size_t i = 1; i < plans->row_count; i++)
        if (plans->rows[i].average_power_w < least->average_power_w) least = &plans->rows[i];
    return harpe_fail(error, HARPE_INFEASIBLE,
                      "no plan draws at most %s W per GPU; the least, plan %d, draws %s W",
                      HARPE_DIGITS(allowed_w, 6), least->plan,
                      HARPE_DIGITS(rounded_up(least->average_power_w, 0.01), 9));
}

/* Chooses the row for a criterion that limits the time. The criterion of least energy allows any
 * time. */
static harpe_status choose_by_time(const choose_arguments *arguments,
                                   const harpe_plan_directory *plans, choice *out,
                                   harpe_error *error) {
    double allowed_s = arguments->value;
    switch (arguments->criterion) {
    case CRITERION_TIME: out->row = slowest_within(plans, allowed_s); break;
    case CRITERION_MINIMUM_ENERGY: out->row = least_energy_within(plans, INFINITY); break;
    case CRITERION_SLOWDOWN:
        allowed_s *= plans->all_maximum.time_s;
        out->row = least_energy_within(plans, allowed_s);
        break;
    case CRITERION_STRAGGLER:
        /* The aim is least energy, so the plan is never slower than T*. */
        allowed_s *= fastest(plans)->time_s;
        out->row = least_energy_within(plans, allowed_s);
        out->iteration_s = allowed_s;
        break;
    default: out->row = least_energy_within(plans, allowed_s); break;
    }
    if (!out->row) return fail_too_slow(plans, allowed_s, error);
    return HARPE_OK;
}

static harpe_status choose(const choose_arguments *arguments, const harpe_plan_directory *plans,
                           choice *out, harpe_error *error) {
    harpe_status status = HARPE_OK;
    if (arguments->criterion == CRITERION_POWER_CAP) {
        out->row = fastest_under(plans, arguments->value);
        status = out->row ? HARPE_OK : fail_too_hungry(plans, arguments->value, error);
    } else {
        status = choose_by_time(arguments, plans, out, error);
    }
    if (status != HARPE_OK || !out->row) return status;
    if (out->iteration_s > 0) {
        double waiting_s = fmax(0, out->iteration_s - out->row->time_s);
        out->waiting_j = plans->total_blocking_power_w * waiting_s;
    } else {
        out->iteration_s = out->row->time_s;
    }
    char name[64];
    if (plans->is_of_graph)
        snprintf(name, sizeof name, HARPE_GRAPH_PLAN_FILE_NAME_FORMAT, out->row->plan);
    else
        snprintf(name, sizeof name, HARPE_PLAN_FILE_NAME_FORMAT, out->row->plan);
    status = harpe_plan_directory_join(arguments->directory, name, &out->path, error);
    if (status == HARPE_OK && access(out->path, R_OK) != 0) {
        status =
            harpe_fail(error, HARPE_NOT_FOUND, "%s: the chosen plan's file is missing", out->path);
    }
    return status;
}

/* ---- Telling --------------------------------------------------------------------------------- */

static void print_choice(const choose_arguments *arguments, const harpe_plan_directory *plans,
                         const choice *chosen) {
    harpe_labelled_row rows[2] = {
        {"all at maximum frequency", plans->all_maximum},
        {"", *chosen->row},
    };
    snprintf(rows[1].label, sizeof rows[1].label, "plan %d", chosen->row->plan);
    harpe_rows_print(rows, 2);
    if (arguments->criterion == CRITERION_STRAGGLER) {
        printf("\nThe straggler ends at %s s: %s J with the waiting until then (%s J).\n",
               HARPE_DIGITS(chosen->iteration_s, 6),
               HARPE_DIGITS(chosen->row->energy_j + chosen->waiting_j, 6),
               HARPE_DIGITS(chosen->waiting_j, 6));
    }
    printf("\n%s\n", chosen->path);
}

static harpe_status print_choice_json(const choose_arguments *arguments, const choice *chosen,
                                      harpe_error *error) {
    json_t *object = harpe_row_json(chosen->row);
    json_object_set_new(object, "path", harpe_command_json_text(chosen->path));
    json_object_set_new(object, "chosen_by", json_string(arguments->criterion_flag + 2));
    if (arguments->criterion == CRITERION_STRAGGLER) {
        json_object_set_new(object, "iteration_time_s", json_real(chosen->iteration_s));
        json_object_set_new(object, "waiting_energy_j", json_real(chosen->waiting_j));
        json_object_set_new(object, "iteration_energy_j",
                            json_real(chosen->row->energy_j + chosen->waiting_j));
    }
    return harpe_command_print_json(object, error);
}

int harpe_choose_command(int argc, char **argv) {
    choose_arguments arguments = {0};
    argp_parse(&argument_parser, argc, argv, 0, NULL, &arguments);
    harpe_plan_directory plans = {0};
    choice chosen = {0};
    harpe_error error;
    harpe_status status = harpe_plan_directory_read(arguments.directory, &plans, &error);
    if (status == HARPE_OK) status = choose(&arguments, &plans, &chosen, &error);
    if (status == HARPE_OK && arguments.json)
        status = print_choice_json(&arguments, &chosen, &error);
    else if (status == HARPE_OK)
        print_choice(&arguments, &plans, &chosen);
    free(chosen.path);
    harpe_plan_directory_free(&plans);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("choose", &error);
}
