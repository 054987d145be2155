/* SPDX-License-Identifier: Apache-2.0 */
/* Solves a problem for `harpe plan`, makes a row for every plan, compares the rows with the plans
 * with one clock, and selects the rows of the summary. Other files print and write the result. Also
 * reads a plan directory for `harpe choose`, and checks for `harpe plan --force` whether a
 * directory is a plan directory. */
#include <dirent.h>
#include <math.h>

#include "base/file.h"
#include "cli/plan/plan_internal.h"
#include "plan/plans.h"
#include "plan/problem.h"

#define SMALL_SLOWDOWN 1.05
/* Measured iteration times vary by more than this, so a plan that is faster by less is of no use.
 */
#define NO_SLOWDOWN 1.001
/* The number of vertices of the frontier for which --verify solves the problem a second time. */
#define VERIFY_SAMPLES 64
/* Rounding may make a dwell time, which is a sum, too short by this share. */
#define ROUNDING 1e-9
#define PLAN_JSON_LIMIT_BYTES ((size_t)256 << 20)
#define BOUND_LIMIT_BYTES ((size_t)1 << 30)
#define BOUND_HEADER "time_s,lower_bound_j,marginal_w\n"

static const char *const key_labels[HARPE_KEY_COUNT] = {
    [HARPE_KEY_ALL_MAXIMUM] = "all at maximum frequency",
    [HARPE_KEY_FASTEST] = "fastest, within 0.1 %",
    [HARPE_KEY_SMALL_SLOWDOWN] = "within 1.05x",
    [HARPE_KEY_MINIMUM_ENERGY] = "minimum energy",
};

/* ---- Plans with one clock -------------------------------------------------------------------- */

/* Makes the rows of a problem. A graph has none. Free with harpe_one_clock_rows_free. */
static harpe_status make_one_clock_rows(const harpe_problem *problem,
                                        const harpe_frontier *frontier,
                                        const harpe_plan *all_maximum, harpe_one_clock_rows *out,
                                        harpe_error *error) {
    harpe_plan_set *plans = NULL;
    *out = (harpe_one_clock_rows){0};
    if (problem->graph) return HARPE_OK;
    harpe_status status = harpe_plan_set_one_clock(problem, &plans, error);
    if (status != HARPE_OK) return status;
    size_t count = harpe_plan_set_count(plans), vertex_count = 0;
    harpe_frontier_row *rows = harpe_calloc(count, sizeof *rows);
    double fastest_s = harpe_frontier_vertices(frontier, &vertex_count)[0].time_s;
    for (size_t i = 0; rows && i < count; i++) {
        harpe_plan plan = *harpe_plan_set_at(plans, i);
        /* Rounding may make a time shorter than the fastest. */
        plan.lower_bound_j = harpe_frontier_bound_at(frontier, fmax(plan.time_s, fastest_s));
        rows[i] = harpe_frontier_row_of(&plan, -1, all_maximum);
        rows[i].one_clock_mhz = harpe_plan_one_clock_mhz(problem, plan.frequency_mhz);
    }
    harpe_plan_set_free(plans);
    if (!rows) return harpe_fail_memory(error);
    *out = (harpe_one_clock_rows){rows, count, all_maximum->time_s};
    for (size_t i = 0; i < count; i++)
        (void)harpe_one_clock_compare(out, rows[i].time_s, &rows[i]);
    return HARPE_OK;
}

void harpe_one_clock_rows_free(harpe_one_clock_rows *of) {
    free(of->rows);
    *of = (harpe_one_clock_rows){0};
}

const harpe_frontier_row *harpe_one_clock_compare(const harpe_one_clock_rows *of, double most_s,
                                                  harpe_frontier_row *row) {
    const harpe_frontier_row *best =
        harpe_frontier_rows_within(of->rows, of->count, fmax(most_s, of->highest_s));
    row->one_clock_energy_j = best ? best->energy_j : 0;
    return best;
}

harpe_labelled_row harpe_one_clock_labelled(const harpe_frontier_row *row) {
    harpe_labelled_row labelled = {.row = *row};
    if (row->one_clock_mhz > 0)
        snprintf(labelled.label, sizeof labelled.label, "one clock, %d MHz", row->one_clock_mhz);
    else
        snprintf(labelled.label, sizeof labelled.label, "one clock: none saves");
    return labelled;
}

/* ---- Clocks that hold too briefly ------------------------------------------------------------ */

typedef struct dwell_search {
    const harpe_problem *problem;
    double needed_s;
    double *dwell_s;   /* [rank]: of the present plan */
    size_t plan_count; /* plans with a clock that holds too briefly */
    int rank;          /* the first of their ranks; -1: none */
    double shortest_s; /* of all ranks and plans */
} dwell_search;

static harpe_status look_at(dwell_search *s, const harpe_plan *plan, harpe_error *error) {
    bool is_short = false;
    harpe_status status =
        harpe_switching_dwells(s->problem, plan->frequency_mhz, s->dwell_s, error);
    if (status != HARPE_OK) return status;
    for (int rank = 0; rank < harpe_problem_rank_count(s->problem); rank++) {
        if (s->dwell_s[rank] >= s->needed_s * (1 - ROUNDING)) continue;
        is_short = true;
        if (s->rank < 0 || rank < s->rank) s->rank = rank;
        s->shortest_s = fmin(s->shortest_s, s->dwell_s[rank]);
    }
    s->plan_count += is_short ? 1 : 0;
    return HARPE_OK;
}

/* Writes a sentence that names the first rank whose clock holds too briefly in a plan, or NULL if
 * all clocks hold. The planner leaves such clocks only on ranks whose instructions have no clock in
 * common. */
static harpe_status make_dwell_note(const harpe_problem *problem, const harpe_plan_set *plans,
                                    const harpe_clock_switch *cost, char **note,
                                    harpe_error *error) {
    dwell_search s = {.problem = problem,
                      .needed_s = fmax(cost->minimum_dwell_s, cost->latency_s),
                      .rank = -1,
                      .shortest_s = INFINITY};
    harpe_status status = HARPE_OK;
    size_t count = harpe_plan_set_count(plans);
    *note = NULL;
    if (s.needed_s <= 0) return HARPE_OK;
    s.dwell_s = harpe_calloc((size_t)harpe_problem_rank_count(problem), sizeof *s.dwell_s);
    if (!s.dwell_s) return harpe_fail_memory(error);
    for (size_t k = 0; status == HARPE_OK && k < count; k++)
        status = look_at(&s, harpe_plan_set_at(plans, k), error);
    free(s.dwell_s);
    if (status != HARPE_OK || s.rank < 0) return status;
    harpe_text text = {0};
    harpe_text_printf(
        &text,
        "in %zu of %zu plans a clock holds for less than %s s (the shortest: %s s): the "
        "instructions of rank %d have no clock in common; measure them at the same clocks",
        s.plan_count, count, HARPE_DIGITS(s.needed_s, 4), HARPE_DIGITS(s.shortest_s, 4), s.rank);
    if (text.failed) {
        harpe_text_free(&text);
        return harpe_fail_memory(error);
    }
    *note = text.data;
    return HARPE_OK;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Returns the frontier's lower bound at a time. The time may be below the fastest vertex by a
 * rounding error. */
static double bound_at(const harpe_frontier *frontier, double time_s) {
    double bound_j = harpe_frontier_bound_at(frontier, time_s);
    size_t count = 0;
    return isfinite(bound_j) ? bound_j : harpe_frontier_vertices(frontier, &count)[0].lower_bound_j;
}

const harpe_plan *harpe_plan_result_plan(const harpe_plan_result *result,
                                         const harpe_frontier_row *row) {
    if (!result->plans || row->plan < 0) return NULL;
    /* Plan 0 is the slowest plan. In the set, index 0 is the fastest plan. */
    return harpe_plan_set_at(result->plans, result->row_count - 1 - (size_t)row->plan);
}

harpe_frontier_row harpe_plan_result_row(const harpe_problem *problem, double change_j,
                                         const harpe_plan *plan, int number,
                                         const harpe_plan *all_maximum) {
    harpe_plan with = *plan;
    double changes_j =
        change_j > 0 ? change_j * (double)harpe_evaluate_changes(problem, plan->frequency_mhz) : 0;
    with.energy_j += changes_j;
    with.lower_bound_j += changes_j;
    harpe_frontier_row row = harpe_frontier_row_of(&with, number, all_maximum);
    row.change_energy_j = changes_j;
    return row;
}

harpe_status harpe_plan_result_add_power(const harpe_problem *problem, const int *frequency_mhz,
                                         harpe_frontier_row *row, harpe_error *error) {
    harpe_power_shape shape;
    harpe_status status = harpe_plan_power_shape(problem, frequency_mhz, &shape, error);
    if (status != HARPE_OK) return status;
    row->peak_power_w = shape.peak_w;
    row->swing_w = shape.swing_w;
    row->swing_hz = shape.swing_hz;
    return HARPE_OK;
}

static harpe_status make_rows(const harpe_problem *problem, harpe_plan_result *result,
                              harpe_error *error) {
    size_t count = harpe_plan_set_count(result->plans);
    result->rows = harpe_calloc(count, sizeof *result->rows);
    if (!result->rows) return harpe_fail_memory(error);
    result->row_count = count;
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < count && status == HARPE_OK; i++) {
        const harpe_plan *plan = harpe_plan_set_at(result->plans, i);
        harpe_frontier_row *row = &result->rows[i];
        *row = harpe_plan_result_row(problem, result->request.clock_switch.energy_j, plan,
                                     (int)(count - 1 - i), &result->all_maximum);
        status = harpe_plan_result_add_power(problem, plan->frequency_mhz, row, error);
    }
    return status;
}

const harpe_frontier_row *harpe_plan_result_within(const harpe_plan_result *result, double time_s) {
    const harpe_frontier_row *best =
        harpe_frontier_rows_within(result->rows, result->row_count, time_s);
    return best ? best : &result->rows[0];
}

/* Returns a row with the lower bound at `time_s`. The row does not describe a plan. */
static harpe_frontier_row bound_row(const harpe_problem *problem, const harpe_plan_result *result,
                                    double time_s) {
    double bound_j = bound_at(result->frontier, time_s);
    double overhead_j = problem->overhead_power_w * time_s;
    harpe_plan bound = {
        .time_s = time_s,
        .energy_j = bound_j,
        .lower_bound_j = bound_j,
        .average_power_w = (bound_j - overhead_j) / (time_s * problem->total_gpu_count),
        .overhead_energy_j = overhead_j,
    };
    return harpe_frontier_row_of(&bound, -1, &result->all_maximum);
}

static harpe_status pick_key_rows(const harpe_problem *problem, harpe_plan_result *result,
                                  harpe_error *error) {
    harpe_labelled_row *keys = result->key_rows;
    double allowed_s = SMALL_SLOWDOWN * result->all_maximum.time_s;
    for (int k = 0; k < HARPE_KEY_COUNT; k++)
        snprintf(keys[k].label, sizeof keys[k].label, "%s%s", key_labels[k],
                 k > 0 && !result->plans ? " (bound)" : "");
    keys[HARPE_KEY_ALL_MAXIMUM].row =
        harpe_frontier_row_of(&result->all_maximum, -1, &result->all_maximum);
    harpe_status status = harpe_plan_result_add_power(problem, result->all_maximum.frequency_mhz,
                                                      &keys[HARPE_KEY_ALL_MAXIMUM].row, error);
    if (result->row_count > 0) {
        keys[HARPE_KEY_FASTEST].row =
            *harpe_plan_result_within(result, NO_SLOWDOWN * result->rows[0].time_s);
        keys[HARPE_KEY_SMALL_SLOWDOWN].row = *harpe_plan_result_within(result, allowed_s);
        keys[HARPE_KEY_MINIMUM_ENERGY].row = *harpe_plan_result_within(result, INFINITY);
        return status;
    }
    size_t count = 0;
    const harpe_frontier_vertex *vertices = harpe_frontier_vertices(result->frontier, &count);
    double fastest_s = vertices[0].time_s;
    double slowest_s = vertices[count - 1].time_s;
    keys[HARPE_KEY_FASTEST].row =
        bound_row(problem, result, fmin(slowest_s, NO_SLOWDOWN * fastest_s));
    keys[HARPE_KEY_SMALL_SLOWDOWN].row = bound_row(problem, result, fmin(slowest_s, allowed_s));
    keys[HARPE_KEY_MINIMUM_ENERGY].row = bound_row(problem, result, slowest_s);
    return status;
}

/* Compares the key rows, and the rows of all plans, with the plans with one clock. */
static harpe_status compare_with_one_clock(const harpe_problem *problem, harpe_plan_result *result,
                                           harpe_error *error) {
    harpe_status status = make_one_clock_rows(problem, result->frontier, &result->all_maximum,
                                              &result->one_clock, error);
    for (int k = 0; status == HARPE_OK && k < HARPE_KEY_COUNT; k++) {
        harpe_frontier_row *row = &result->key_rows[k].row;
        double most_s = k == HARPE_KEY_SMALL_SLOWDOWN ? SMALL_SLOWDOWN * result->all_maximum.time_s
                                                      : row->time_s;
        result->key_one_clock[k] = harpe_one_clock_compare(&result->one_clock, most_s, row);
    }
    for (size_t i = 0; status == HARPE_OK && i < result->row_count; i++)
        (void)harpe_one_clock_compare(&result->one_clock, result->rows[i].time_s, &result->rows[i]);
    return status;
}

harpe_status harpe_plan_result_solve(const harpe_problem *problem,
                                     const harpe_plan_request *request, bool with_plans,
                                     const harpe_progress *progress, harpe_plan_result *result,
                                     harpe_error *error) {
    harpe_plan *highest = &result->all_maximum;
    const harpe_clock_switch *change = &request->clock_switch;
    harpe_status status = harpe_plan_all_maximum(problem, highest, error);
    result->request = *request;
    if (status == HARPE_OK && with_plans) {
        status = harpe_plan_set_new(problem, request, progress, &result->frontier, &result->plans,
                                    error);
    } else if (status == HARPE_OK) {
        status = harpe_frontier_new_for(problem, change, progress, &result->frontier, error);
    }
    if (status == HARPE_OK) {
        highest->energy_j +=
            harpe_plan_result_row(problem, change->energy_j, highest, -1, highest).change_energy_j;
        highest->lower_bound_j = bound_at(result->frontier, highest->time_s);
    }
    if (status == HARPE_OK && with_plans)
        status = make_dwell_note(problem, result->plans, change, &result->dwell_note, error);
    if (status == HARPE_OK && with_plans) status = make_rows(problem, result, error);
    if (status == HARPE_OK) status = pick_key_rows(problem, result, error);
    if (status == HARPE_OK) status = compare_with_one_clock(problem, result, error);
    return status;
}

harpe_status harpe_plan_result_verify(const harpe_problem *problem, harpe_plan_result *result,
                                      harpe_error *error) {
    harpe_status status = harpe_frontier_verify(problem, result->frontier, VERIFY_SAMPLES, error);
    if (status == HARPE_OK && result->plans)
        status = harpe_plan_set_verify(problem, result->frontier, result->plans, error);
    result->verified = status == HARPE_OK;
    return status;
}

void harpe_plan_result_free(harpe_plan_result *result) {
    free(result->rows);
    harpe_one_clock_rows_free(&result->one_clock);
    free(result->dwell_note);
    harpe_plan_set_free(result->plans);
    harpe_frontier_free(result->frontier);
    *result = (harpe_plan_result){0};
}

/* ---- Plan directories ------------------------------------------------------------------------ */

/* These functions check everything that they read. A directory counts as made by harpe plan if its
 * plan.json says so. */

harpe_status harpe_plan_directory_join(const char *path, const char *name, char **out,
                                       harpe_error *error) {
    size_t length = strlen(path);
    bool has_slash = length > 0 && path[length - 1] == '/';
    *out = harpe_path_join(path, has_slash ? "" : "/", name);
    return *out ? HARPE_OK : harpe_fail_memory(error);
}

/* The relevant contents of a directory. */
typedef struct contents {
    size_t entry_count;
    bool has_plan_json, has_frontier, has_bound;
} contents;

/* Lists the relevant contents. Returns 0, or the errno if the directory cannot be opened. */
static int list_contents(const char *path, contents *found) {
    *found = (contents){.entry_count = 0};
    DIR *stream = opendir(path);
    if (!stream) return errno;
    for (struct dirent *entry = readdir(stream); entry; entry = readdir(stream)) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
        found->entry_count++;
        found->has_plan_json |= strcmp(name, HARPE_PLAN_JSON_NAME) == 0;
        found->has_frontier |= strcmp(name, HARPE_FRONTIER_FILE_NAME) == 0;
        found->has_bound |= strcmp(name, HARPE_BOUND_FILE_NAME) == 0;
    }
    closedir(stream);
    return 0;
}

/* ---- Plan directories: plan.json ------------------------------------------------------------- */

/* Parses the file and checks that harpe plan has written it. The caller releases `*out`. */
static harpe_status load_plan_json(const char *path, json_t **out, harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_file_read(path, PLAN_JSON_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    json_error_t reason;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &reason);
    free(text);
    if (!root)
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s:%d:%d: not JSON: %s", path, reason.line,
                          reason.column, reason.text);
    const char *program = json_string_value(json_object_get(root, "program"));
    if (!program || strcmp(program, HARPE_PLAN_JSON_PROGRAM) != 0) {
        json_decref(root);
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: not made by harpe plan (\"program\" is not \"%s\")", path,
                          HARPE_PLAN_JSON_PROGRAM);
    }
    *out = root;
    return HARPE_OK;
}

/* Reads a row of a plan without a file. `what` names it in messages. */
static harpe_status read_row(json_t *object, harpe_frontier_row *row, const char *path,
                             const char *what, harpe_error *error) {
    *row = (harpe_frontier_row){.plan = -1}; /* files of older versions lack some members */
    row->peak_power_w = row->swing_w = row->swing_hz = NAN;
    int failed = json_unpack(
        object, "{s:F, s:F, s:F, s:F, s:F, s:F, s:F, s:F, s:F, s?F, s?F, s?F, s?F, s?i, s?F}",
        "time_s", &row->time_s, "energy_j", &row->energy_j, "lower_bound_j", &row->lower_bound_j,
        "gap_percent", &row->gap_percent, "compute_energy_j", &row->compute_energy_j,
        "blocking_energy_j", &row->blocking_energy_j, "average_power_w", &row->average_power_w,
        "slowdown_percent", &row->slowdown_percent, "savings_percent", &row->savings_percent,
        "overhead_energy_j", &row->overhead_energy_j, "peak_power_w", &row->peak_power_w, "swing_w",
        &row->swing_w, "swing_hz", &row->swing_hz, "frequency_mhz", &row->one_clock_mhz,
        "change_energy_j", &row->change_energy_j);
    if (!failed && row->time_s > 0) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_INPUT, "%s: %s lacks a number: the file is damaged",
                      path, what);
}

/* Reads the plans with one clock. They have no peak and no swing. */
static harpe_status read_one_clock(const json_t *list, harpe_plan_directory *plans,
                                   const char *path, harpe_error *error) {
    size_t count = json_array_size(list);
    harpe_one_clock_rows *of = &plans->one_clock;
    of->rows = harpe_calloc(count, sizeof *of->rows);
    if (!of->rows) return harpe_fail_memory(error);
    of->count = count;
    of->highest_s = plans->all_maximum.time_s;
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < count && status == HARPE_OK; i++) {
        status =
            read_row(json_array_get(list, i), &of->rows[i], path, "a plan of one_clock", error);
        of->rows[i].peak_power_w = of->rows[i].swing_w = of->rows[i].swing_hz = 0;
    }
    return status;
}

/* Computes the number of all GPUs, and the power of all of them. `list` contains the power of one
 * GPU of each rank, and `gpus` the number of GPUs of each rank. */
static harpe_status read_blocking_power(const json_t *list, const json_t *gpus,
                                        harpe_plan_directory *plans, const char *path,
                                        harpe_error *error) {
    double sum_w = 0, gpu_count = 0;
    size_t count = json_array_size(list);
    bool is_good = count > 0 && (!gpus || json_array_size(gpus) == count);
    for (size_t i = 0; is_good && i < count; i++) {
        const json_t *power = json_array_get(list, i);
        double number = gpus ? json_number_value(json_array_get(gpus, i)) : 1;
        is_good = json_is_number(power) && json_number_value(power) >= 0 && number >= 1;
        gpu_count += number;
        sum_w += number * json_number_value(power);
    }
    if (!is_good || gpu_count > INT32_MAX)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: problem.blocking_power_w and problem.gpus do not list every rank's "
                          "power and GPUs: the file is damaged",
                          path);
    plans->end_power_w = sum_w;
    plans->gpu_count = (int)gpu_count;
    return HARPE_OK;
}

/* Reads the values that frontier.csv lacks: the reference, and the blocking power. */
static harpe_status read_plan_json(const char *path, harpe_plan_directory *plans,
                                   harpe_error *error) {
    json_t *root = NULL;
    harpe_status status = load_plan_json(path, &root, error);
    if (status != HARPE_OK) return status;
    const json_t *summary = json_object_get(root, "summary");
    const json_t *problem = json_object_get(root, "problem");
    plans->is_of_graph = json_object_get(problem, "activities");
    status = read_row(json_object_get(summary, "all_maximum"), &plans->all_maximum, path,
                      "summary.all_maximum", error);
    if (status == HARPE_OK)
        status = read_one_clock(json_object_get(root, "one_clock"), plans, path, error);
    if (status == HARPE_OK) {
        /* end_wait_power_w exists only if kinds of waits have their own powers. */
        const json_t *at_end = json_object_get(problem, "end_wait_power_w");
        status = read_blocking_power(at_end ? at_end : json_object_get(problem, "blocking_power_w"),
                                     json_object_get(problem, "gpus"), plans, path, error);
    }
    const json_t *overhead = json_object_get(problem, "overhead_power_w"); /* not in old files */
    if (status == HARPE_OK && overhead && !(json_number_value(overhead) >= 0))
        status = harpe_fail(error, HARPE_INVALID_INPUT,
                            "%s: problem.overhead_power_w is negative: the file is damaged", path);
    plans->overhead_power_w = json_number_value(overhead);
    json_decref(root);
    return status;
}

/* ---- Plan directories: reading --------------------------------------------------------------- */

static harpe_status check_is_readable(const char *path, harpe_error *error) {
    contents found;
    int failure = list_contents(path, &found);
    if (failure != 0) return harpe_fail_errno(error, failure, "%s", path);
    if (found.has_frontier) return HARPE_OK;
    return harpe_fail(error, HARPE_NOT_FOUND,
                      "%s: %s in it; harpe plan --output-dir makes a directory to choose from",
                      path, found.has_bound ? "a lower bound but no plans" : "no frontier.csv");
}

harpe_status harpe_plan_directory_read(const char *path, harpe_plan_directory *out,
                                       harpe_error *error) {
    harpe_plan_directory plans = {0};
    char *frontier_path = NULL;
    char *json_path = NULL;
    harpe_status status = check_is_readable(path, error);
    if (status == HARPE_OK)
        status = harpe_plan_directory_join(path, HARPE_FRONTIER_FILE_NAME, &frontier_path, error);
    if (status == HARPE_OK)
        status = harpe_plan_directory_join(path, HARPE_PLAN_JSON_NAME, &json_path, error);
    if (status == HARPE_OK)
        status = harpe_frontier_csv_read(frontier_path, &plans.rows, &plans.row_count, error);
    if (status == HARPE_OK) status = read_plan_json(json_path, &plans, error);
    free(frontier_path);
    free(json_path);
    if (status != HARPE_OK) {
        harpe_plan_directory_free(&plans);
        return status;
    }
    *out = plans;
    return HARPE_OK;
}

void harpe_plan_directory_set_overhead(harpe_plan_directory *plans, double overhead_w) {
    harpe_frontier_row_set_overhead(&plans->all_maximum, overhead_w, &plans->all_maximum);
    for (size_t i = 0; i < plans->row_count; i++)
        harpe_frontier_row_set_overhead(&plans->rows[i], overhead_w, &plans->all_maximum);
    for (size_t i = 0; i < plans->one_clock.count; i++)
        harpe_frontier_row_set_overhead(&plans->one_clock.rows[i], overhead_w, &plans->all_maximum);
    plans->overhead_power_w = overhead_w;
}

void harpe_plan_directory_free(harpe_plan_directory *plans) {
    free(plans->rows);
    harpe_one_clock_rows_free(&plans->one_clock);
    *plans = (harpe_plan_directory){0};
}

/* ---- Plan directories: replacing ------------------------------------------------------------- */

static bool says_harpe(const char *path) {
    char *json_path = NULL;
    json_t *root = NULL;
    bool is_ours =
        harpe_plan_directory_join(path, HARPE_PLAN_JSON_NAME, &json_path, NULL) == HARPE_OK &&
        load_plan_json(json_path, &root, NULL) == HARPE_OK;
    json_decref(root);
    free(json_path);
    return is_ours;
}

static bool begins_like_a_bound(const char *path) {
    char *bound_path = NULL;
    char *text = NULL;
    size_t length = 0;
    bool is_ours =
        harpe_plan_directory_join(path, HARPE_BOUND_FILE_NAME, &bound_path, NULL) == HARPE_OK &&
        harpe_file_read(bound_path, BOUND_LIMIT_BYTES, &text, &length, NULL) == HARPE_OK &&
        length >= strlen(BOUND_HEADER) && memcmp(text, BOUND_HEADER, strlen(BOUND_HEADER)) == 0;
    free(text);
    free(bound_path);
    return is_ours;
}

harpe_status harpe_plan_directory_check_replaceable(const char *path, harpe_error *error) {
    contents found;
    if (list_contents(path, &found) != 0 || found.entry_count == 0) return HARPE_OK;
    /* A directory of --bound-only contains only this file, without a plan.json. */
    bool only_bound = found.has_bound && found.entry_count == 1;
    if (found.has_plan_json ? says_harpe(path) : only_bound && begins_like_a_bound(path))
        return HARPE_OK;
    return harpe_fail(error, HARPE_ALREADY_EXISTS,
                      "%s: not replaced, because it is not a plan directory (it has files, but no "
                      "%s of harpe plan): choose another directory",
                      path, HARPE_PLAN_JSON_NAME);
}
