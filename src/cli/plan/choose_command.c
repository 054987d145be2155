/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe choose`: picks one plan from a plan directory by a criterion, for example a time, a power,
 * a straggler or a price, among the plans within limits on their power. Each criterion excludes
 * plans, and orders those that remain. The command does not solve a planning problem, and runs
 * nothing. */
#include <math.h>

#include "cli/plan/plan_internal.h"

#define TIME_MAX_S 1e9
#define POWER_MAX_W 1e12
#define OVERHEAD_POWER_MAX_W 1e9
#define PRICE_MAX 1e9
#define CARBON_MAX_G_PER_KWH 1e5
#define DEFAULT_ITERATIONS 1000
#define S_PER_H 3600
#define G_PER_TONNE 1e6

typedef struct given_prices {
    bool are_given;        /* the prices of energy and time; `carbon_price` is 0 if they are not */
    double energy_price;   /* of a kWh */
    double gpu_hour_price; /* value of one GPU for an hour */
    double carbon_price;   /* of 1000 kg of CO2 */
    bool has_carbon;
    double carbon_g_per_kwh;
    int iterations; /* the table shows the costs of so many iterations */
    int gpu_count;  /* of all ranks; read from the plan directory */
} given_prices;

/* The costs of one iteration. */
typedef struct plan_cost {
    double energy;
    double gpu_time;
    double carbon;
    double total;
    double carbon_g; /* grams of CO2 */
} plan_cost;

typedef enum criterion_kind {
    CHOOSE_NOTHING = 0, /* no criterion is given */
    CHOOSE_SLOWEST,     /* the slowest plan within `value` seconds */
    CHOOSE_DEADLINE,    /* the best plan within `value` seconds */
    CHOOSE_SLOWDOWN,    /* the best plan within `value` times the time at highest clocks */
    CHOOSE_STRAGGLER,   /* the best plan within `value` times the fastest plan's time */
    CHOOSE_POWER_CAP,   /* the fastest plan of at most `value` watts per GPU on average */
    CHOOSE_BEST,        /* the best plan */
    CHOOSE_FASTEST,
} criterion_kind;

/* The best plan is the plan of least cost if prices are given, and otherwise that of least
 * energy. */
typedef struct choose_request {
    criterion_kind criterion;
    double value;
    double peak_limit_w; /* INFINITY: no limit */
    double swing_limit_w;
    given_prices prices;
} choose_request;

typedef struct chosen_plans {
    const harpe_frontier_row *row;
    const harpe_frontier_row *unlimited; /* the choice without the limits on power */
    const harpe_frontier_row *fastest;   /* of all plans */
    /* The best plan with one clock that is as fast as the highest clocks, and the best one within
     * the time that the choice may take. NULL: not known. */
    const harpe_frontier_row *as_fast_one_clock, *one_clock;
    double iteration_s; /* with a straggler: the end of the iteration; else the row's time */
    double waiting_j;   /* with a straggler: energy of the wait after the plan's end */
} chosen_plans;

typedef struct choose_arguments {
    const char *directory;
    choose_request request;
    const char *criterion_flag; /* NULL: none yet */
    bool has_energy_price, has_gpu_hour_price, has_carbon_price;
    double overhead_power_w; /* negative: the directory's */
    bool json;
} choose_arguments;

static bool has_limits(const choose_request *request) {
    return isfinite(request->peak_limit_w) || isfinite(request->swing_limit_w);
}

/* ---- Flags ----------------------------------------------------------------------------------- */

/* The criteria: their flags, and the least values. */
static const struct {
    const char *flag;
    criterion_kind kind;
    double minimum, maximum; /* a minimum of 0 is not allowed itself */
} criteria[] = {
    {"--time", CHOOSE_SLOWEST, 0, TIME_MAX_S},   {"--deadline", CHOOSE_DEADLINE, 0, TIME_MAX_S},
    {"--max-slowdown", CHOOSE_SLOWDOWN, 0, 1e6}, {"--straggler", CHOOSE_STRAGGLER, 1, 1e6},
    {"--power-cap", CHOOSE_POWER_CAP, 0, 1e6},   {"--min-energy", CHOOSE_BEST, 0, 0},
};

static void read_criterion(void *into, struct argp_state *state, const char *flag, char *text) {
    choose_arguments *arguments = into;
    choose_request *request = &arguments->request;
    size_t c = 0;
    while (strcmp(criteria[c].flag, flag) != 0)
        c++;
    if (arguments->criterion_flag)
        harpe_flag_fail(state, "%s and %s: give only one", arguments->criterion_flag, flag);
    request->criterion = criteria[c].kind;
    arguments->criterion_flag = criteria[c].flag;
    if (!text) return;
    double minimum = criteria[c].minimum, maximum = criteria[c].maximum;
    request->value = harpe_flag_double(state, flag, text, minimum, maximum, minimum <= 0);
    if (request->criterion == CHOOSE_SLOWDOWN && request->value < 1)
        harpe_flag_fail(state, "%s %s: X is a factor of at least 1; %g %% slower is %g", flag, text,
                        100 * request->value, 1 + request->value);
}

static const harpe_flag words[] = {{"DIR", HARPE_INTO(choose_arguments, directory)}, {0}};

static const harpe_flag flags[] = {
    {.help = "The criterion, at most one of:", .group = 1},
    {"time", 0, "S", "The slowest plan that takes at most S seconds", 1, .read = read_criterion},
    {"deadline", 0, "S", "The plan of least energy that takes at most S seconds", 1,
     .read = read_criterion},
    {"max-slowdown", 0, "X",
     "The plan of least energy that takes at most X times as long as maximum frequency", 1,
     .read = read_criterion},
    {"straggler", 0, "X",
     "The rest of the job takes X times as long as this pipeline's fastest plan: the plan of least "
     "energy that does not delay it",
     1, .read = read_criterion},
    {"power-cap", 0, "W", "The fastest plan that draws at most W watts per GPU on average", 1,
     .read = read_criterion},
    {"min-energy", 0, NULL, "The plan of least energy", 1, .read = read_criterion},
    {.help = "Prices, in any currency. The plan of least cost is chosen, within --deadline or "
             "--max-slowdown if given:",
     .group = 2},
    {"energy-price", 0, "P", "Price of a kWh", 2,
     HARPE_INTO(choose_arguments, request.prices.energy_price), 0, PRICE_MAX,
     .given = offsetof(choose_arguments, has_energy_price)},
    {"gpu-hour-price", 0, "P", "Value of one GPU for an hour", 2,
     HARPE_INTO(choose_arguments, request.prices.gpu_hour_price), 0, PRICE_MAX,
     .given = offsetof(choose_arguments, has_gpu_hour_price)},
    {"carbon", 0, "G", "Also print the carbon: G grams of CO2 per kWh", 2,
     HARPE_INTO(choose_arguments, request.prices.carbon_g_per_kwh), 0, CARBON_MAX_G_PER_KWH,
     .given = offsetof(choose_arguments, request.prices.has_carbon)},
    {"carbon-price", 0, "P", "Add carbon to the cost, at P for 1000 kg of CO2 (default 0)", 2,
     HARPE_INTO(choose_arguments, request.prices.carbon_price), 0, PRICE_MAX,
     .given = offsetof(choose_arguments, has_carbon_price)},
    {"iterations", 0, "N", "Print the costs of N iterations (default 1000)", 2,
     HARPE_INTO(choose_arguments, request.prices.iterations), 1, INT32_MAX},
    {.help = "Limits on the power of the whole pipeline. Without a criterion, the fastest plan "
             "within them is chosen:",
     .group = 3},
    {"max-peak-power", 0, "W", "Only plans that never draw more than W watts", 3,
     HARPE_INTO(choose_arguments, request.peak_limit_w), 0, POWER_MAX_W, .is_above = true},
    {"max-swing", 0, "W",
     "Only plans whose power oscillates by at most W watts, from peak to peak, at 0.1 to 20 Hz", 3,
     HARPE_INTO(choose_arguments, request.swing_limit_w), 0, POWER_MAX_W},
    {.help = "Energy:", .group = 4},
    {"overhead-power", 0, "W",
     "Watts that all machines of the pipeline draw outside of their GPUs (default: the number that "
     "harpe plan had)",
     4, HARPE_INTO(choose_arguments, overhead_power_w), 0, OVERHEAD_POWER_MAX_W},
    {.help = "Output:", .group = 5},
    {"json", 'j', NULL, "Print one JSON object", 5, HARPE_INTO(choose_arguments, json)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags}},
    .words = words,
    .refusal = "is a second plan directory, and only one is allowed",
    .forms = "DIR",
    .about = "Choose one plan from a directory made by harpe plan, and print its numbers and its "
             "file.\vExamples:\n  harpe choose plans --max-slowdown 1.05\n  harpe choose plans "
             "--energy-price 0.12 --gpu-hour-price 2\n\nSee also: man harpe-choose",
};

/* Refuses prices that do not belong together. With one price alone, the answer would always be the
 * fastest plan or the plan of least energy. */
static void check_prices(const struct argp_state *state, choose_arguments *arguments) {
    given_prices *prices = &arguments->request.prices;
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
    criterion_kind criterion = arguments->request.criterion;
    bool fits =
        criterion == CHOOSE_NOTHING || criterion == CHOOSE_DEADLINE || criterion == CHOOSE_SLOWDOWN;
    if (prices->are_given && !fits)
        harpe_flag_fail(
            state,
            "--energy-price and %s: give only one; --deadline and --max-slowdown go with prices",
            arguments->criterion_flag);
}

static void check_complete(const struct argp_state *state, choose_arguments *arguments) {
    if (!arguments->directory)
        harpe_flag_fail(state, "the plan directory is missing: harpe choose DIR --min-energy");
    check_prices(state, arguments);
    if (arguments->criterion_flag) return;
    if (arguments->request.prices.are_given) {
        arguments->request.criterion = CHOOSE_BEST;
        arguments->criterion_flag = "--cost";
    } else if (has_limits(&arguments->request)) {
        arguments->request.criterion = CHOOSE_FASTEST;
        arguments->criterion_flag = "--fastest";
    } else if (access(arguments->directory, F_OK) != 0) {
        harpe_flag_fail(state, "%s: %s", arguments->directory, strerror(errno));
    } else {
        harpe_flag_fail(state, "the criterion is missing: give --time, --deadline, --max-slowdown, "
                               "--straggler, --power-cap, --min-energy, prices or limits on power");
    }
}

/* ---- Costs ----------------------------------------------------------------------------------- */

static plan_cost cost_of(const given_prices *prices, const harpe_frontier_row *row) {
    double energy_kwh = row->energy_j / HARPE_JOULES_PER_KWH;
    double gpu_hours = prices->gpu_count * row->time_s / S_PER_H;
    plan_cost cost = {
        .energy = energy_kwh * prices->energy_price,
        .gpu_time = gpu_hours * prices->gpu_hour_price,
        .carbon_g = energy_kwh * prices->carbon_g_per_kwh,
    };
    cost.carbon = cost.carbon_g / G_PER_TONNE * prices->carbon_price;
    cost.total = cost.energy + cost.gpu_time + cost.carbon;
    return cost;
}

static void print_heading(const given_prices *prices, int width) {
    char what[64];
    snprintf(what, sizeof what, "%s of %d iteration%s", prices->are_given ? "cost" : "carbon",
             prices->iterations, prices->iterations == 1 ? "" : "s");
    printf("%s  %-*s", harpe_bold_start(), width, what);
    if (prices->are_given) printf(" %14s %14s", "energy", "GPU time");
    if (prices->carbon_price > 0) printf(" %14s", "carbon");
    if (prices->are_given) printf(" %14s", "total");
    if (prices->has_carbon) printf(" %14s", "CO2");
    printf("%s\n", harpe_bold_end());
}

static void print_costs(const given_prices *prices, const harpe_labelled_row *rows, size_t count) {
    int width = harpe_rows_label_width(rows, count), decimals = 0, carbon_decimals = 0;
    width = width > 28 ? width : 28;
    for (size_t i = 0; i < count; i++) {
        plan_cost cost = cost_of(prices, &rows[i].row);
        int for_total = harpe_row_decimals(cost.total * prices->iterations, 6);
        int for_carbon = harpe_row_decimals(cost.carbon_g / 1e3 * prices->iterations, 6);
        decimals = for_total > decimals ? for_total : decimals;
        carbon_decimals = for_carbon > carbon_decimals ? for_carbon : carbon_decimals;
    }
    print_heading(prices, width);
    for (size_t i = 0; i < count; i++) {
        plan_cost cost = cost_of(prices, &rows[i].row);
        double times = prices->iterations;
        printf("  %-*s", width, rows[i].label);
        if (prices->are_given)
            printf(" %14.*f %14.*f", decimals, times * cost.energy, decimals,
                   times * cost.gpu_time);
        if (prices->carbon_price > 0) printf(" %14.*f", decimals, times * cost.carbon);
        if (prices->are_given) printf(" %14.*f", decimals, times * cost.total);
        if (prices->has_carbon) printf(" %11.*f kg", carbon_decimals, times * cost.carbon_g / 1e3);
        printf("\n");
    }
}

static json_t *cost_json(const given_prices *prices, const harpe_frontier_row *row) {
    plan_cost cost = cost_of(prices, row);
    json_t *object = json_object();
    if (prices->are_given) {
        json_object_set_new(object, "energy", json_real(cost.energy));
        json_object_set_new(object, "gpu_time", json_real(cost.gpu_time));
        json_object_set_new(object, "carbon", json_real(cost.carbon));
        json_object_set_new(object, "total", json_real(cost.total));
    }
    if (prices->has_carbon) json_object_set_new(object, "carbon_g", json_real(cost.carbon_g));
    return object;
}

/* ---- Selecting ------------------------------------------------------------------------------- */

/* The plans to choose from, and the limits that they must keep. */
typedef struct selection {
    const choose_request *request;
    const harpe_plan_directory *plans;
    bool is_limited; /* the limits on power hold */
    double time_limit_s;
    double average_limit_w; /* per GPU */
} selection;

/* Compares with a tolerance. A plan's time is a sum, and its last digit depends on the order of
 * addition. A time that was printed as 3.926225 must find its plan. The power of a plan is such a
 * sum too. */
static bool is_within(double value, double allowed) { return value <= allowed * (1 + 1e-9); }

static bool keeps_power_limits(const choose_request *request, const harpe_frontier_row *row) {
    return is_within(row->peak_power_w, request->peak_limit_w) &&
           is_within(row->swing_w, request->swing_limit_w);
}

static bool fits(const selection *s, const harpe_frontier_row *row) {
    if (s->is_limited && !keeps_power_limits(s->request, row)) return false;
    return is_within(row->time_s, s->time_limit_s) &&
           is_within(row->average_power_w, s->average_limit_w);
}

/* Returns the value by which the criterion orders plans; the least is chosen. */
static double rank_of(const choose_request *request, const harpe_frontier_row *row) {
    switch (request->criterion) {
    case CHOOSE_SLOWEST: return -row->time_s;
    case CHOOSE_POWER_CAP:
    case CHOOSE_FASTEST: return row->time_s;
    default: break;
    }
    return request->prices.are_given ? cost_of(&request->prices, row).total : row->energy_j;
}

/* Returns NULL if no plan fits. */
static const harpe_frontier_row *select_row(const selection *s) {
    const harpe_frontier_row *best = NULL;
    for (size_t i = 0; i < s->plans->row_count; i++) {
        const harpe_frontier_row *row = &s->plans->rows[i];
        if (!fits(s, row)) continue;
        if (!best || rank_of(s->request, row) < rank_of(s->request, best)) best = row;
    }
    return best;
}

/* ---- Failures -------------------------------------------------------------------------------- */

/* Rounds up, so that the printed number can be used as a limit. */
static double rounded_up(double value, double unit) { return ceil(value / unit) * unit; }

/* Returns the row with the least value of a member; NULL: there is none. If the limits on power
 * hold, only rows that keep them count. */
static const harpe_frontier_row *least_of(const selection *s, size_t member) {
    const harpe_frontier_row *best = NULL;
    double least = INFINITY;
    for (size_t i = 0; i < s->plans->row_count; i++) {
        const harpe_frontier_row *row = &s->plans->rows[i];
        double value = *(const double *)(const void *)((const char *)row + member);
        if ((s->is_limited && !keeps_power_limits(s->request, row)) || !(value < least)) continue;
        best = row;
        least = value;
    }
    return best;
}

static harpe_status fail_power_limits(const selection *s, harpe_error *error) {
    selection all = *s;
    all.is_limited = false;
    const harpe_frontier_row *peak = least_of(&all, offsetof(harpe_frontier_row, peak_power_w));
    const harpe_frontier_row *swing = least_of(&all, offsetof(harpe_frontier_row, swing_w));
    if (!peak || !swing)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "frontier.csv has no peak and swing of power, because an older harpe "
                          "plan has written it: make the directory again");
    return harpe_fail(error, HARPE_INFEASIBLE,
                      "no plan keeps the limits on power; the lowest peak, of plan %d, is %s W, "
                      "and the smallest swing, of plan %d, is %s W",
                      peak->plan, HARPE_DIGITS(rounded_up(peak->peak_power_w, 0.01), 9),
                      swing->plan, HARPE_DIGITS(rounded_up(swing->swing_w, 0.01), 9));
}

static harpe_status fail_nothing_fits(const selection *s, harpe_error *error) {
    const char *limited = s->is_limited ? " that keeps the limits on power" : "";
    if (isfinite(s->average_limit_w)) {
        const harpe_frontier_row *least =
            least_of(s, offsetof(harpe_frontier_row, average_power_w));
        if (!least) return fail_power_limits(s, error);
        return harpe_fail(error, HARPE_INFEASIBLE,
                          "no plan%s draws at most %s W per GPU; the least, plan %d, draws %s W",
                          limited, HARPE_DIGITS(s->average_limit_w, 6), least->plan,
                          HARPE_DIGITS(rounded_up(least->average_power_w, 0.01), 9));
    }
    const harpe_frontier_row *fastest = least_of(s, offsetof(harpe_frontier_row, time_s));
    if (!fastest || !isfinite(s->time_limit_s)) return fail_power_limits(s, error);
    return harpe_fail(error, HARPE_INFEASIBLE,
                      "no plan%s takes at most %s s; the fastest, plan %d, takes %s s", limited,
                      HARPE_DIGITS(s->time_limit_s, 6), fastest->plan,
                      HARPE_DIGITS(rounded_up(fastest->time_s, 1e-6), 9));
}

/* ---- Choosing -------------------------------------------------------------------------------- */

static const harpe_frontier_row *fastest_of(const harpe_plan_directory *plans) {
    const harpe_frontier_row *best = &plans->rows[0];
    for (size_t i = 1; i < plans->row_count; i++)
        if (plans->rows[i].time_s < best->time_s) best = &plans->rows[i];
    return best;
}

/* Fills in the criterion's limit. */
static void set_limit(selection *s, const chosen_plans *chosen) {
    double value = s->request->value;
    switch (s->request->criterion) {
    case CHOOSE_SLOWEST:
    case CHOOSE_DEADLINE: s->time_limit_s = value; break;
    case CHOOSE_SLOWDOWN: s->time_limit_s = value * s->plans->all_maximum.time_s; break;
    /* A plan slower than T* needs more energy and is not chosen, so T* needs no limit. */
    case CHOOSE_STRAGGLER: s->time_limit_s = value * chosen->fastest->time_s; break;
    case CHOOSE_POWER_CAP: s->average_limit_w = value; break;
    default: break;
    }
}

/* Compares every row with the best plan with one clock of at most its time. A choice by energy
 * alone is compared with the best one within the criterion's limit of time. */
static void compare_with_one_clock(const selection *s, harpe_plan_directory *plans,
                                   chosen_plans *chosen) {
    const harpe_one_clock_rows *of = &plans->one_clock;
    bool is_by_energy =
        isfinite(s->time_limit_s) && !s->is_limited && !s->request->prices.are_given;
    double most_s = is_by_energy ? s->time_limit_s : chosen->row->time_s;
    for (size_t i = 0; i < plans->row_count; i++)
        (void)harpe_one_clock_compare(of, plans->rows[i].time_s, &plans->rows[i]);
    for (size_t i = 0; i < of->count; i++)
        (void)harpe_one_clock_compare(of, of->rows[i].time_s, &of->rows[i]);
    chosen->as_fast_one_clock = harpe_one_clock_compare(of, 0, &plans->all_maximum);
    chosen->one_clock =
        harpe_one_clock_compare(of, most_s, &plans->rows[chosen->row - plans->rows]);
}

/* Chooses a plan, and compares the rows with plans with one clock. The rows in `out` belong to
 * `plans`. If no plan fits, fails with HARPE_INFEASIBLE and names the nearest plan. */
static harpe_status choose(const choose_request *request, harpe_plan_directory *plans,
                           chosen_plans *out, harpe_error *error) {
    selection s = {
        .request = request, .plans = plans, .time_limit_s = INFINITY, .average_limit_w = INFINITY};
    chosen_plans chosen = {.fastest = fastest_of(plans)};
    set_limit(&s, &chosen);
    chosen.unlimited = select_row(&s);
    s.is_limited = has_limits(request);
    chosen.row = select_row(&s);
    if (!chosen.row) return fail_nothing_fits(&s, error);
    chosen.iteration_s = chosen.row->time_s;
    compare_with_one_clock(&s, plans, &chosen);
    if (request->criterion == CHOOSE_STRAGGLER) {
        double waiting_s = fmax(0, s.time_limit_s - chosen.row->time_s);
        chosen.iteration_s = s.time_limit_s;
        chosen.waiting_j = (plans->end_power_w + plans->overhead_power_w) * waiting_s;
    }
    *out = chosen;
    return HARPE_OK;
}

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
                           const chosen_plans *chosen) {
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
static void print_comparison(const given_prices *prices, const harpe_frontier_row *row,
                             const harpe_frontier_row *other, const char *which) {
    printf("\nAgainst plan %d, %s: ", other->plan, which);
    print_difference("time", row->time_s, other->time_s, " s");
    print_difference(", energy", row->energy_j, other->energy_j, " J");
    if (prices->are_given) {
        double before = cost_of(prices, other).total;
        print_difference(", cost", prices->iterations * cost_of(prices, row).total,
                         prices->iterations * before, "");
    }
    printf(".\n");
}

static void print_choice(const choose_arguments *arguments, const harpe_plan_directory *plans,
                         const chosen_plans *chosen, const char *path) {
    const choose_request *request = &arguments->request;
    told_rows told = list_rows(arguments, plans, chosen);
    harpe_rows_print(told.rows, told.count);
    if (has_limits(request)) {
        printf("\n");
        harpe_rows_print_power(told.rows, told.count);
    }
    if (request->prices.are_given || request->prices.has_carbon) {
        printf("\n");
        print_costs(&request->prices, told.rows, told.count);
    }
    bool is_priced = request->prices.are_given;
    if (has_limits(request) && chosen->unlimited == chosen->row)
        printf("\nWithout the limits on power the choice is the same.\n");
    if (is_priced && chosen->row != chosen->fastest)
        print_comparison(&request->prices, chosen->row, chosen->fastest, "the fastest");
    if (chosen->unlimited != chosen->row && !(is_priced && chosen->unlimited == chosen->fastest))
        print_comparison(&request->prices, chosen->row, chosen->unlimited,
                         "the choice without limits");
    if (request->criterion == CHOOSE_STRAGGLER)
        printf("\nThe straggler ends at %s s: %s J with the waiting until then (%s J).\n",
               HARPE_DIGITS(chosen->iteration_s, 6),
               HARPE_DIGITS(chosen->row->energy_j + chosen->waiting_j, 6),
               HARPE_DIGITS(chosen->waiting_j, 6));
    printf("\n%s\n", path);
}

/* Returns the row as an object, with its costs if there are any. */
static json_t *row_with_costs(const given_prices *prices, const harpe_frontier_row *row) {
    json_t *object = harpe_row_json(row);
    if (prices->are_given || prices->has_carbon)
        json_object_set_new(object, "cost", cost_json(prices, row));
    return object;
}

static harpe_status print_choice_json(const choose_arguments *arguments,
                                      const harpe_plan_directory *plans, const chosen_plans *chosen,
                                      const char *path, harpe_error *error) {
    const choose_request *request = &arguments->request;
    const given_prices *prices = &request->prices;
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
    if (has_limits(request))
        json_object_set_new(object, "without_limits", row_with_costs(prices, chosen->unlimited));
    if (request->criterion == CHOOSE_STRAGGLER) {
        json_object_set_new(object, "iteration_time_s", json_real(chosen->iteration_s));
        json_object_set_new(object, "waiting_energy_j", json_real(chosen->waiting_j));
        json_object_set_new(object, "iteration_energy_j",
                            json_real(chosen->row->energy_j + chosen->waiting_j));
    }
    return harpe_command_print_json(object, error);
}

/* Finds the file of the chosen plan. The caller frees `*path`. */
static harpe_status find_file(const choose_arguments *arguments, const harpe_plan_directory *plans,
                              const chosen_plans *chosen, char **path, harpe_error *error) {
    char name[64];
    harpe_plan_file_name(name, plans->is_of_graph, chosen->row->plan);
    harpe_status status = harpe_plan_directory_join(arguments->directory, name, path, error);
    if (status == HARPE_OK && access(*path, R_OK) != 0)
        status = harpe_fail(error, HARPE_NOT_FOUND, "%s: the chosen plan's file is missing", *path);
    return status;
}

int harpe_choose_command(int argc, char **argv) {
    choose_arguments arguments = {.request = {.peak_limit_w = INFINITY, .swing_limit_w = INFINITY},
                                  .overhead_power_w = -1};
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &arguments);
    check_complete(&state, &arguments);
    harpe_plan_directory plans = {0};
    chosen_plans chosen = {0};
    char *path = NULL;
    harpe_error error;
    harpe_status status = harpe_plan_directory_read(arguments.directory, &plans, &error);
    arguments.request.prices.gpu_count = plans.gpu_count;
    if (status == HARPE_OK && arguments.overhead_power_w >= 0)
        harpe_plan_directory_set_overhead(&plans, arguments.overhead_power_w);
    if (status == HARPE_OK) status = choose(&arguments.request, &plans, &chosen, &error);
    if (status == HARPE_OK) status = find_file(&arguments, &plans, &chosen, &path, &error);
    if (status == HARPE_OK && arguments.json)
        status = print_choice_json(&arguments, &plans, &chosen, path, &error);
    else if (status == HARPE_OK)
        print_choice(&arguments, &plans, &chosen, path);
    free(path);
    harpe_plan_directory_free(&plans);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("choose", &error);
}
