/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the planner. Any bytes are read as a small planning problem: the options of a few stages,
 * and the choice of plans. Some problems are degenerate. The planner must solve every problem that
 * it accepts, and the library's checker must accept the frontier and the plans. The power of each
 * plan must be plausible. A refused problem must have an error of one line.
 *
 * The bytes, in order: schedule, ranks, microbatches, extras (see below), blocking power, units,
 * cost model, choice of plans, number of plans. For every (stage, instruction) that the schedule
 * runs, the number of options and two or three bytes for each option follow. Missing bytes count as
 * 0. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/plan.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    RANKS_MAX = 4,
    MICROBATCHES_MAX = 6,
    OPTIONS_MAX = 6,
    ROWS_MAX = 1024,
    TIMES_MAX = 5,
    VERTICES_MAX = 60,
};

/* Bits of the extras byte. */
enum {
    HAS_PROLOGUE = 1,
    HAS_EPILOGUE = 2,
    KEEPS_PAIRS = 4,
    POWER_OF_EACH_RANK = 8,
    IS_WILD = 16, /* each option's time has a separate power of ten as a factor */
    HAS_THREE_CHUNKS = 32,
    HAS_OVERHEAD = 64,
};

typedef struct input {
    const uint8_t *data;
    size_t left;
} input;

typedef struct instance {
    input in;
    uint8_t extras, units, cost_model, choice, how_many;
    double blocking_w[RANKS_MAX];
    harpe_schedule *schedule;
    harpe_profile *profile;
    harpe_problem *problem;
    harpe_measurement rows[ROWS_MAX];
    size_t row_count;
} instance;

static void require(bool holds) {
    if (!holds) abort();
}

static void require_ok(harpe_status status, const harpe_error *error) {
    if (status == HARPE_OK) return;
    fprintf(stderr, "%s: %s\n", harpe_status_name(status), error->message);
    abort();
}

/* Checks a failure: its status is one of the two expected ones, its message is one line, and there
 * is no result. */
static void require_told(harpe_status status, const harpe_error *error, const void *out) {
    require(status == HARPE_INVALID_INPUT || status == HARPE_LIMIT_EXCEEDED);
    require(error->status == status && error->message[0] != '\0');
    require(!strchr(error->message, '\n') && !out);
}

static uint8_t take(input *in) {
    if (in->left == 0) return 0;
    in->left--;
    return *in->data++;
}

/* ---- Making ---------------------------------------------------------------------------------- */

static void make_schedule(instance *it) {
    static const char *const before[] = {"load", NULL};
    static const char *const after[] = {"reduce", "step", NULL};
    int kinds = 0;
    while (harpe_schedule_name_at(kinds))
        kinds++;
    harpe_schedule_options options = {.name = harpe_schedule_name_at(take(&it->in) % kinds)};
    options.ranks = 1 + take(&it->in) % RANKS_MAX;
    options.microbatches = 1 + take(&it->in) % MICROBATCHES_MAX;
    it->extras = take(&it->in);
    options.prologue = it->extras & HAS_PROLOGUE ? before : NULL;
    options.epilogue = it->extras & HAS_EPILOGUE ? after : NULL;
    if (strcmp(options.name, "interleaved-1f1b") == 0) {
        options.chunks = it->extras & HAS_THREE_CHUNKS ? 3 : 2;
        options.microbatches =
            (options.microbatches + options.ranks - 1) / options.ranks * options.ranks;
    }
    if (strcmp(options.name, "dualpipe") == 0) {
        options.ranks = options.ranks < 2 ? 2 : options.ranks / 2 * 2;
        options.microbatches += options.microbatches % 2;
    }
    if (strncmp(options.name, "dualpipe", 8) == 0 && options.microbatches < 2 * options.ranks)
        options.microbatches = 2 * options.ranks;
    require(harpe_schedule_new(&options, &it->schedule, NULL) == HARPE_OK);
}

static double power_of_ten(int exponent) { return pow(10, exponent); }

/* The unit of time is between 1 ns and 10 s, and the unit of power between 1 mW and 1 MW. */
static double time_unit_s(const instance *it) { return power_of_ten(it->units % 11 - 9); }
static double power_unit_w(const instance *it) { return power_of_ten(it->units / 11 % 10 - 3); }

static void make_blocking_powers(instance *it) {
    static const double usual_w[] = {0, 1e-6, 1, 75, 100, 300, 1e5, 4096};
    for (int rank = 0; rank < RANKS_MAX; rank++) {
        bool is_new = rank == 0 || (it->extras & POWER_OF_EACH_RANK);
        it->blocking_w[rank] = is_new ? usual_w[take(&it->in) % 8] : it->blocking_w[0];
    }
}

static void add_options(instance *it, int stage, const char *name) {
    for (size_t i = 0; i < it->row_count; i++)
        if (it->rows[i].stage == stage && strcmp(it->rows[i].instruction, name) == 0) return;
    int count = 1 + take(&it->in) % OPTIONS_MAX;
    for (int i = 0; i < count; i++) {
        require(it->row_count < ROWS_MAX);
        double time_s = time_unit_s(it) * (1 + take(&it->in));
        double power_w = power_unit_w(it) * (1 + take(&it->in));
        if (it->extras & IS_WILD) time_s *= power_of_ten(take(&it->in) % 4);
        it->rows[it->row_count++] =
            (harpe_measurement){.stage = stage,
                                .rank = -1,
                                .instruction = name,
                                .frequency_mhz = 1410 - 15 * i,
                                .time_s = fmin(fmax(time_s, 1e-9), 1e6),
                                .energy_j = fmin(fmax(time_s * power_w, 1e-12), 1e9)};
    }
}

static const char *name_alone(harpe_operation operation) {
    switch (operation) {
    case HARPE_FORWARD: return "forward";
    case HARPE_BACKWARD_INPUT: return "backward_input";
    case HARPE_BACKWARD_WEIGHT: return "backward_weight";
    default: return "backward";
    }
}

static void make_profile(instance *it) {
    for (int rank = 0; rank < harpe_schedule_rank_count(it->schedule); rank++) {
        size_t count = 0;
        const harpe_instruction *list = harpe_schedule_rank(it->schedule, rank, &count);
        for (size_t i = 0; i < count; i++) {
            const harpe_action *actions = list[i].actions;
            if (list[i].action_count == 1 || (it->extras & KEEPS_PAIRS)) {
                add_options(it, actions[0].stage, list[i].name);
                continue;
            }
            add_options(it, actions[0].stage, name_alone(actions[0].operation));
            add_options(it, actions[1].stage, name_alone(actions[1].operation));
        }
    }
    require(harpe_profile_new(it->rows, it->row_count, &it->profile, NULL) == HARPE_OK);
}

static bool make_problem(instance *it) {
    int ranks = harpe_schedule_rank_count(it->schedule);
    harpe_problem_options options = {
        .blocking_power_w = it->blocking_w,
        .blocking_power_count = it->extras & POWER_OF_EACH_RANK ? (size_t)ranks : 1,
        .cost_model = it->cost_model % 4 == 3 ? HARPE_COST_EXPONENTIAL : HARPE_COST_HULL,
        .unit_time_s = time_unit_s(it),
        .overhead_power_w = it->extras & HAS_OVERHEAD ? 10 * it->blocking_w[0] + 0.5 : 0,
    };
    harpe_error error = {.message = ""};
    harpe_status status =
        harpe_problem_new(it->profile, it->schedule, &options, &it->problem, &error);
    if (status != HARPE_OK) require_told(status, &error, it->problem);
    return status == HARPE_OK;
}

/* ---- Checking -------------------------------------------------------------------------------- */

static void check_frontier(const instance *it, const harpe_frontier *frontier) {
    size_t count = 0;
    const harpe_frontier_vertex *vertices = harpe_frontier_vertices(frontier, &count);
    require(count >= 1 && vertices[0].time_s > 0);
    for (size_t i = 0; i < count; i++) {
        require(isfinite(vertices[i].lower_bound_j) && isfinite(vertices[i].marginal_w));
        require(i == 0 || vertices[i].time_s > vertices[i - 1].time_s);
    }
    harpe_error error = {.message = ""};
    require_ok(harpe_frontier_verify(it->problem, frontier, 0, &error), &error);
    require_ok(harpe_frontier_verify(it->problem, frontier, 3, &error), &error);
}

static void check_power(const instance *it, const harpe_plan *plan) {
    harpe_power_shape shape;
    harpe_error error = {.message = ""};
    require_ok(harpe_plan_power_shape(it->problem, plan->frequency_mhz, &shape, &error), &error);
    require(isfinite(shape.peak_w) && shape.peak_w >= 0);
    require(isfinite(shape.swing_w) && shape.swing_w >= 0);
    require((shape.swing_w == 0 && shape.swing_hz == 0) ||
            (shape.swing_hz > 0.0999 && shape.swing_hz < 20.001));
}

static void check_plans(const instance *it, const harpe_frontier *frontier,
                        const harpe_plan_set *plans, const harpe_plan_request *request) {
    size_t count = harpe_plan_set_count(plans);
    double rounding_s = 2e-12 * (double)harpe_problem_instruction_count(it->problem);
    require(count >= 1);
    require(request->choice != HARPE_PLANS_AT || count == request->time_count);
    for (size_t i = 0; i < count; i++) {
        const harpe_plan *plan = harpe_plan_set_at(plans, i);
        harpe_error error = {.message = ""};
        require_ok(harpe_plan_verify(it->problem, frontier, plan, &error), &error);
        check_power(it, plan);
        if (request->choice == HARPE_PLANS_AT)
            require(plan->time_s <= request->times_s[i] * (1 + 1e-12) + rounding_s);
        else
            require(i == 0 || plan->time_s > plan[-1].time_s);
    }
}

/* Chooses times from T_min on. Most of them are within the frontier. */
static void choose_times(instance *it, const harpe_frontier *frontier, double *times_s) {
    size_t count = 0;
    const harpe_frontier_vertex *vertices = harpe_frontier_vertices(frontier, &count);
    double fastest_s = vertices[0].time_s, slowest_s = vertices[count - 1].time_s;
    for (int i = 0; i < TIMES_MAX; i++)
        times_s[i] = fastest_s + (slowest_s - fastest_s) * take(&it->in) / 200;
}

static void solve(instance *it) {
    harpe_frontier *frontier = NULL, *with_plans = NULL;
    harpe_plan_set *plans = NULL;
    harpe_error error = {.message = ""};
    harpe_status status = harpe_frontier_new(it->problem, NULL, &frontier, &error);
    if (status != HARPE_OK) {
        require_told(status, &error, frontier);
        return;
    }
    check_frontier(it, frontier);
    double times_s[TIMES_MAX];
    harpe_plan_request request = {.choice = (harpe_plan_choice)(it->choice % 3),
                                  .count = 1 + it->how_many % 6};
    size_t vertex_count = 0;
    (void)harpe_frontier_vertices(frontier, &vertex_count);
    if (request.choice == HARPE_PLANS_ALL && vertex_count > VERTICES_MAX)
        request.choice = HARPE_PLANS_SPREAD; /* for speed */
    if (request.choice == HARPE_PLANS_AT) {
        choose_times(it, frontier, times_s);
        request.times_s = times_s;
        request.time_count = 1 + it->how_many % TIMES_MAX;
    }
    require_ok(harpe_plan_set_new(it->problem, &request, NULL, &with_plans, &plans, &error),
               &error);
    check_frontier(it, with_plans);
    check_plans(it, with_plans, plans, &request);
    harpe_plan_set_free(plans);
    harpe_frontier_free(with_plans);
    harpe_frontier_free(frontier);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    instance *it = calloc(1, sizeof *it);
    require(it != NULL);
    it->in = (input){.data = data, .left = size};
    make_schedule(it);
    make_blocking_powers(it);
    it->units = take(&it->in);
    it->cost_model = take(&it->in);
    it->choice = take(&it->in);
    it->how_many = take(&it->in);
    make_profile(it);
    if (make_problem(it)) solve(it);
    harpe_problem_free(it->problem);
    harpe_profile_free(it->profile);
    harpe_schedule_free(it->schedule);
    free(it);
    return 0;
}
