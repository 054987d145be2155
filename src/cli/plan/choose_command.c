/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe choose`: picks one plan from a plan directory by a criterion, for example a time, a power,
 * a straggler or a price. This file reads the flags and prints the choice. It does not solve a
 * planning problem, and runs nothing. */
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
#include "cli/plan/choose_plan.h"
#include "cli/plan/graph_plan_file.h"
#include "cli/rows.h"
#include "plan/plan_file.h"

#define TIME_MAX_S 1e9
#define POWER_MAX_W 1e12
#define OVERHEAD_POWER_MAX_W 1e9
#define PRICE_MAX 1e9
#define CARBON_MAX_G_PER_KWH 1e5
#define DEFAULT_ITERATIONS 1000

enum flag {
    FLAG_TIME = 0x300,
    FLAG_DEADLINE,
    FLAG_SLOWDOWN,
    FLAG_STRAGGLER,
    FLAG_POWER_CAP,
    FLAG_MINIMUM_ENERGY,
    FLAG_ENERGY_PRICE,
    FLAG_GPU_HOUR_PRICE,
    FLAG_CARBON,
    FLAG_CARBON_PRICE,
    FLAG_ITERATIONS,
    FLAG_PEAK_LIMIT,
    FLAG_SWING_LIMIT,
    FLAG_OVERHEAD,
};

typedef struct choose_arguments {
    const char *directory;
    harpe_choose_request request;
    const char *criterion_flag; /* NULL: none yet */
    bool has_energy_price, has_gpu_hour_price, has_carbon_price;
    double overhead_power_w; /* negative: the directory's */
    bool json;
} choose_arguments;

/* ---- Flags ----------------------------------------------------------------------------------- */

static const struct argp_option flags[] = {
    {NULL, 0, NULL, 0, "The criterion, at most one of:", 1},
    {"time", FLAG_TIME, "S", 0, "The slowest plan that takes at most S seconds", 1},
    {"deadline", FLAG_DEADLINE, "S", 0, "The plan of least energy that takes at most S seconds", 1},
    {"max-slowdown", FLAG_SLOWDOWN, "X", 0,
     "The plan of least energy that takes at most X times as long as maximum frequency", 1},
    {"straggler", FLAG_STRAGGLER, "X", 0,
     "The rest of the job takes X times as long as this pipeline's fastest plan: the plan of least "
     "energy that does not delay it",
     1},
    {"power-cap", FLAG_POWER_CAP, "W", 0,
     "The fastest plan that draws at most W watts per GPU on average", 1},
    {"min-energy", FLAG_MINIMUM_ENERGY, NULL, 0, "The plan of least energy", 1},
    {NULL, 0, NULL, 0,
     "Prices, in any currency. The plan of least cost is chosen, within --deadline or "
     "--max-slowdown if given:",
     2},
    {"energy-price", FLAG_ENERGY_PRICE, "P", 0, "Price of a kWh", 2},
    {"gpu-hour-price", FLAG_GPU_HOUR_PRICE, "P", 0, "Value of one GPU for an hour", 2},
    {"carbon", FLAG_CARBON, "G", 0, "Also print the carbon: G grams of CO2 per kWh", 2},
    {"carbon-price", FLAG_CARBON_PRICE, "P", 0,
     "Add carbon to the cost, at P for 1000 kg of CO2 (default 0)", 2},
    {"iterations", FLAG_ITERATIONS, "N", 0, "Print the costs of N iterations (default 1000)", 2},
    {NULL, 0, NULL, 0,
     "Limits on the power of the whole pipeline. Without a criterion, the fastest plan within "
     "them is chosen:",
     3},
    {"max-peak-power", FLAG_PEAK_LIMIT, "W", 0, "Only plans that never draw more than W watts", 3},
    {"max-swing", FLAG_SWING_LIMIT, "W", 0,
     "Only plans whose power oscillates by at most W watts, from peak to peak, at 0.1 to 20 Hz", 3},
    {NULL, 0, NULL, 0, "Energy:", 4},
    {"overhead-power", FLAG_OVERHEAD, "W", 0,
     "Watts that all machines of the pipeline draw outside of their GPUs (default: the number that "
     "harpe plan had)",
     4},
    {NULL, 0, NULL, 0, "Output:", 5},
    {"json", 'j', NULL, 0, "Print one JSON object", 5},
    {0},
};

static void set_criterion(const struct argp_state *state, harpe_criterion criterion,
                          const char *flag, const char *text, double minimum, double maximum) {
    choose_arguments *arguments = state->input;
    if (arguments->criterion_flag)
        harpe_flag_fail(state, "%s and %s: give only one", arguments->criterion_flag, flag);
    arguments->request.criterion = criterion;
    arguments->criterion_flag = flag;
    if (!text) return;
    arguments->request.value = minimum > 0
                                   ? harpe_flag_double(state, flag, text, minimum, maximum)
                                   : harpe_flag_double_above(state, flag, text, minimum, maximum);
}

/* Refuses prices that do not belong together. With one price alone, the answer would always be the
 * fastest plan or the plan of least energy. */
static void check_prices(const struct argp_state *state) {
    choose_arguments *arguments = state->input;
    harpe_prices *prices = &arguments->request.prices;
    prices->are_given = arguments->has_energy_price && arguments->has_gpu_hour_price;
    if (arguments->has_energy_price != arguments->has_gpu_hour_price)
        harpe_flag_fail(state, "--energy-price and --gpu-hour-price: give both; 0 is allowed");
    if (arguments->has_carbon_price && !prices->has_carbon)
        harpe_flag_fail(state, "--carbon-price needs --carbon, the grams of CO2 per kWh");
    if (arguments->has_carbon_price && !prices->are_given)
        harpe_flag_fail(state, "--carbon-price needs --energy-price and --gpu-hour-price");
    if (prices->iterations > 0 && !prices->are_given && !prices->has_carbon)
        harpe_flag_fail(state, "--iterations is for costs: give prices or --carbon");
    if (prices->iterations == 0) prices->iterations = DEFAULT_ITERATIONS;
    harpe_criterion criterion = arguments->request.criterion;
    bool fits = criterion == HARPE_CHOOSE_NOTHING || criterion == HARPE_CHOOSE_DEADLINE ||
                criterion == HARPE_CHOOSE_SLOWDOWN;
    if (prices->are_given && !fits) {
        harpe_flag_fail(state,
                        "--energy-price and %s: give only one; --deadline and --max-slowdown go "
                        "with prices",
                        arguments->criterion_flag);
    }
}

static void check_complete(const struct argp_state *state) {
    choose_arguments *arguments = state->input;
    if (!arguments->directory)
        harpe_flag_fail(state, "the plan directory is missing: harpe choose DIR --min-energy");
    check_prices(state);
    if (arguments->criterion_flag) return;
    if (arguments->request.prices.are_given) {
        arguments->request.criterion = HARPE_CHOOSE_BEST;
        arguments->criterion_flag = "--cost";
    } else if (harpe_choose_has_limits(&arguments->request)) {
        arguments->request.criterion = HARPE_CHOOSE_FASTEST;
        arguments->criterion_flag = "--fastest";
    } else if (access(arguments->directory, F_OK) != 0) {
        harpe_flag_fail(state, "%s: %s", arguments->directory, strerror(errno));
    } else {
        harpe_flag_fail(state, "the criterion is missing: give --time, --deadline, --max-slowdown, "
                               "--straggler, --power-cap, --min-energy, prices or limits on power");
    }
}

static error_t parse_price(int key, const char *argument, struct argp_state *state) {
    choose_arguments *arguments = state->input;
    harpe_prices *prices = &arguments->request.prices;
    switch (key) {
    case FLAG_ENERGY_PRICE:
        prices->energy_price = harpe_flag_double(state, "--energy-price", argument, 0, PRICE_MAX);
        arguments->has_energy_price = true;
        return 0;
    case FLAG_GPU_HOUR_PRICE:
        prices->gpu_hour_price =
            harpe_flag_double(state, "--gpu-hour-price", argument, 0, PRICE_MAX);
        arguments->has_gpu_hour_price = true;
        return 0;
    case FLAG_CARBON:
        prices->carbon_g_per_kwh =
            harpe_flag_double(state, "--carbon", argument, 0, CARBON_MAX_G_PER_KWH);
        prices->has_carbon = true;
        return 0;
    case FLAG_CARBON_PRICE:
        prices->carbon_price = harpe_flag_double(state, "--carbon-price", argument, 0, PRICE_MAX);
        arguments->has_carbon_price = true;
        return 0;
    case FLAG_ITERATIONS:
        prices->iterations = harpe_flag_int(state, "--iterations", argument, 1, INT32_MAX);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    choose_arguments *arguments = state->input;
    harpe_choose_request *request = &arguments->request;
    switch (key) {
    case ARGP_KEY_INIT:
        request->peak_limit_w = request->swing_limit_w = INFINITY;
        arguments->overhead_power_w = -1;
        return 0;
    case FLAG_TIME:
        set_criterion(state, HARPE_CHOOSE_SLOWEST, "--time", argument, 0, TIME_MAX_S);
        return 0;
    case FLAG_DEADLINE:
        set_criterion(state, HARPE_CHOOSE_DEADLINE, "--deadline", argument, 0, TIME_MAX_S);
        return 0;
    case FLAG_SLOWDOWN:
        set_criterion(state, HARPE_CHOOSE_SLOWDOWN, "--max-slowdown", argument, 0, 1e6);
        if (request->value < 1)
            harpe_flag_fail(state,
                            "--max-slowdown %s: X is a factor of at least 1; %g %% slower is %g",
                            argument, 100 * request->value, 1 + request->value);
        return 0;
    case FLAG_STRAGGLER:
        set_criterion(state, HARPE_CHOOSE_STRAGGLER, "--straggler", argument, 1, 1e6);
        return 0;
    case FLAG_POWER_CAP:
        set_criterion(state, HARPE_CHOOSE_POWER_CAP, "--power-cap", argument, 0, 1e6);
        return 0;
    case FLAG_MINIMUM_ENERGY:
        set_criterion(state, HARPE_CHOOSE_BEST, "--min-energy", NULL, 0, 0);
        return 0;
    case FLAG_PEAK_LIMIT:
        request->peak_limit_w =
            harpe_flag_double_above(state, "--max-peak-power", argument, 0, POWER_MAX_W);
        return 0;
    case FLAG_SWING_LIMIT:
        request->swing_limit_w = harpe_flag_double(state, "--max-swing", argument, 0, POWER_MAX_W);
        return 0;
    case FLAG_OVERHEAD:
        arguments->overhead_power_w =
            harpe_flag_double(state, "--overhead-power", argument, 0, OVERHEAD_POWER_MAX_W);
        return 0;
    case 'j': arguments->json = true; return 0;
    case ARGP_KEY_ARG:
        if (arguments->directory) {
            harpe_flag_fail(state, "only one plan directory is allowed, and '%s' is a second one",
                            argument);
        }
        arguments->directory = argument;
        return 0;
    case ARGP_KEY_END: check_complete(state); return 0;
    default: return parse_price(key, argument, state);
    }
}

static const struct argp argument_parser = {
    .options = flags,
    .parser = parse_flag,
    .args_doc = "DIR",
    .doc = "Choose one plan from a directory made by harpe plan, and print its numbers and its "
           "file.\vExamples:\n  harpe choose plans --max-slowdown 1.05\n  harpe choose plans "
           "--energy-price 0.12 --gpu-hour-price 2\n\nSee also: man harpe-choose",
};

/* ---- Telling --------------------------------------------------------------------------------- */

enum { TOLD_MAX = 6 };

typedef struct told_rows {
    harpe_labelled_row rows[TOLD_MAX];
    size_t count;
} told_rows;

static void tell_row(told_rows *told, const harpe_frontier_row *row, const char *note) {
    harpe_labelled_row *to = &told->rows[told->count++];
    to->row = *row;
    if (row->plan < 0)
        snprintf(to->label, sizeof to->label, "%s", note);
    else
        snprintf(to->label, sizeof to->label, "plan %d%s", row->plan, note);
}

/* Lists the rows to print, in this order: the highest clocks, the plans that the choice is compared
 * with, the best plan with one clock within the same time, and the choice. */
static told_rows list_rows(const choose_arguments *arguments, const harpe_plan_directory *plans,
                           const harpe_chosen *chosen) {
    told_rows told = {.count = 0};
    tell_row(&told, &plans->all_maximum, "all at maximum frequency");
    if (chosen->as_fast_one_clock)
        told.rows[told.count++] = harpe_one_clock_labelled(chosen->as_fast_one_clock);
    bool has_costs = arguments->request.prices.are_given || arguments->request.prices.has_carbon;
    if (has_costs && chosen->fastest != chosen->row && chosen->fastest != chosen->unlimited)
        tell_row(&told, chosen->fastest, ", the fastest");
    if (chosen->unlimited != chosen->row) tell_row(&told, chosen->unlimited, ", without limits");
    if (chosen->one_clock != chosen->as_fast_one_clock)
        told.rows[told.count++] = harpe_one_clock_labelled(chosen->one_clock);
    tell_row(&told, chosen->row, "");
    return told;
}

static void print_difference(const char *what, double now, double before, const char *unit) {
    double percent = before > 0 ? 100 * (now - before) / before : 0;
    printf("%s %+.*f%s (%+.2f %%)", what, harpe_row_decimals(before, 5), now - before, unit,
           percent);
}

/* Prints by how much the choice differs from another plan. */
static void print_comparison(const harpe_prices *prices, const harpe_frontier_row *row,
                             const harpe_frontier_row *other, const char *which) {
    printf("\nAgainst plan %d, %s: ", other->plan, which);
    print_difference("time", row->time_s, other->time_s, " s");
    print_difference(", energy", row->energy_j, other->energy_j, " J");
    if (prices->are_given) {
        double before = harpe_cost_of(prices, other).total;
        print_difference(", cost", prices->iterations * harpe_cost_of(prices, row).total,
                         prices->iterations * before, "");
    }
    printf(".\n");
}

static void print_choice(const choose_arguments *arguments, const harpe_plan_directory *plans,
                         const harpe_chosen *chosen, const char *path) {
    const harpe_choose_request *request = &arguments->request;
    told_rows told = list_rows(arguments, plans, chosen);
    harpe_rows_print(told.rows, told.count);
    if (harpe_choose_has_limits(request)) {
        printf("\n");
        harpe_rows_print_power(told.rows, told.count);
    }
    if (request->prices.are_given || request->prices.has_carbon) {
        printf("\n");
        harpe_costs_print(&request->prices, told.rows, told.count);
    }
    bool is_priced = request->prices.are_given;
    if (harpe_choose_has_limits(request) && chosen->unlimited == chosen->row)
        printf("\nWithout the limits on power the choice is the same.\n");
    if (is_priced && chosen->row != chosen->fastest)
        print_comparison(&request->prices, chosen->row, chosen->fastest, "the fastest");
    if (chosen->unlimited != chosen->row && !(is_priced && chosen->unlimited == chosen->fastest)) {
        print_comparison(&request->prices, chosen->row, chosen->unlimited,
                         "the choice without limits");
    }
    if (request->criterion == HARPE_CHOOSE_STRAGGLER) {
        printf("\nThe straggler ends at %s s: %s J with the waiting until then (%s J).\n",
               HARPE_DIGITS(chosen->iteration_s, 6),
               HARPE_DIGITS(chosen->row->energy_j + chosen->waiting_j, 6),
               HARPE_DIGITS(chosen->waiting_j, 6));
    }
    printf("\n%s\n", path);
}

/* Returns the row as an object, with its costs if there are any. */
static json_t *row_with_costs(const harpe_prices *prices, const harpe_frontier_row *row) {
    json_t *object = harpe_row_json(row);
    if (prices->are_given || prices->has_carbon)
        json_object_set_new(object, "cost", harpe_cost_json(prices, row));
    return object;
}

static harpe_status print_choice_json(const choose_arguments *arguments,
                                      const harpe_plan_directory *plans, const harpe_chosen *chosen,
                                      const char *path, harpe_error *error) {
    const harpe_choose_request *request = &arguments->request;
    const harpe_prices *prices = &request->prices;
    json_t *object = row_with_costs(prices, chosen->row);
    json_object_set_new(object, "path", harpe_command_json_text(path));
    json_object_set_new(object, "chosen_by", json_string(arguments->criterion_flag + 2));
    if (prices->are_given || prices->has_carbon) {
        json_object_set_new(object, "gpus", json_integer(prices->gpu_count));
        json_object_set_new(object, "all_maximum", row_with_costs(prices, &plans->all_maximum));
        json_object_set_new(object, "fastest", row_with_costs(prices, chosen->fastest));
    }
    if (chosen->one_clock)
        json_object_set_new(object, "one_clock",
                            json_pack("{s:o, s:o}", "all_maximum",
                                      row_with_costs(prices, chosen->as_fast_one_clock), "plan",
                                      row_with_costs(prices, chosen->one_clock)));
    if (harpe_choose_has_limits(request))
        json_object_set_new(object, "without_limits", row_with_costs(prices, chosen->unlimited));
    if (request->criterion == HARPE_CHOOSE_STRAGGLER) {
        json_object_set_new(object, "iteration_time_s", json_real(chosen->iteration_s));
        json_object_set_new(object, "waiting_energy_j", json_real(chosen->waiting_j));
        json_object_set_new(object, "iteration_energy_j",
                            json_real(chosen->row->energy_j + chosen->waiting_j));
    }
    return harpe_command_print_json(object, error);
}

/* Finds the file of the chosen plan. The caller frees `*path`. */
static harpe_status find_file(const choose_arguments *arguments, const harpe_plan_directory *plans,
                              const harpe_chosen *chosen, char **path, harpe_error *error) {
    char name[64];
    if (plans->is_of_graph)
        snprintf(name, sizeof name, HARPE_GRAPH_PLAN_FILE_NAME_FORMAT, chosen->row->plan);
    else
        snprintf(name, sizeof name, HARPE_PLAN_FILE_NAME_FORMAT, chosen->row->plan);
    harpe_status status = harpe_plan_directory_join(arguments->directory, name, path, error);
    if (status == HARPE_OK && access(*path, R_OK) != 0)
        status = harpe_fail(error, HARPE_NOT_FOUND, "%s: the chosen plan's file is missing", *path);
    return status;
}

int harpe_choose_command(int argc, char **argv) {
    choose_arguments arguments = {0};
    argp_parse(&argument_parser, argc, argv, 0, NULL, &arguments);
    harpe_plan_directory plans = {0};
    harpe_chosen chosen = {0};
    char *path = NULL;
    harpe_error error;
    harpe_status status = harpe_plan_directory_read(arguments.directory, &plans, &error);
    arguments.request.prices.gpu_count = plans.gpu_count;
    if (status == HARPE_OK && arguments.overhead_power_w >= 0)
        harpe_plan_directory_set_overhead(&plans, arguments.overhead_power_w);
    if (status == HARPE_OK) status = harpe_choose(&arguments.request, &plans, &chosen, &error);
    if (status == HARPE_OK) status = find_file(&arguments, &plans, &chosen, &path, &error);
    if (status == HARPE_OK && arguments.json)
        status = print_choice_json(&arguments, &plans, &chosen, path, &error);
    else if (status == HARPE_OK)
        print_choice(&arguments, &plans, &chosen, path);
    free(path);
    harpe_plan_directory_free(&plans);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("choose", &error);
}
