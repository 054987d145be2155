/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe evaluate`: computes the time and energy of plan files according to a profile, and their
 * distance from the lower bound. The files may come from other tools. It makes no plans. */
#include <dirent.h>
#include <math.h>
#include <sys/stat.h>

#include <harpe/version.h>

#include "cli/plan/plan_internal.h"
#include "plan/plans.h"
#include "plan/solver.h"

#define PLAN_FILE_COUNT_MAX 1000000
#define SOLVING_SHARE 0.9 /* share of the progress shown; the rest is for evaluating the files */

typedef struct path_list {
    char **paths;
    size_t count;
    size_t capacity;
} path_list;

typedef struct evaluate_arguments {
    harpe_problem_input input;
    path_list given; /* files and directories, not owned */
    harpe_clock_switch change;
    double lead_s;
    bool json;
    bool quiet;
} evaluate_arguments;

/* ---- Flags ----------------------------------------------------------------------------------- */

/* Adds a path, which is NULL if there was no memory for it. */
static bool add_path(path_list *list, char *path) {
    if (!path || !HARPE_ARRAY_RESERVE(list->paths, list->capacity, list->count + 1)) return false;
    list->paths[list->count++] = path;
    return true;
}

static void read_plan(void *into, struct argp_state *state, const char *flag, char *text) {
    evaluate_arguments *arguments = into;
    if (!add_path(&arguments->given, text)) harpe_flag_fail(state, "%s: out of memory", flag);
}

static void read_latency(void *into, struct argp_state *state, const char *flag, char *text) {
    evaluate_arguments *arguments = into;
    harpe_flag_switch_latency(state, flag, text, &arguments->input, &arguments->change);
}

/* A shell may expand --plan x?.py to several words. */
static const harpe_flag words[] = {{"FILE", .read = read_plan}, {0}};

static const harpe_flag flags[] = {
    {.help = "The plans:", .group = 3},
    {"plan", 'P', "FILE",
     "A plan file, or a directory whose *.py files are evaluated; may be given several times", 3,
     .read = read_plan},
    {"switch-latency", 0, "S|FILE",
     "Seconds from the request to the new clock, 'profile' for those of the profile, or a file of "
     "'harpe profile switch' (default 0)",
     3, .read = read_latency},
    {"switch-lead", 0, "S",
     "The controller asks for a clock up to S seconds before its instruction begins (default: as "
     "much earlier as the change takes)",
     3, HARPE_INTO(evaluate_arguments, lead_s), 0, 3600},
    {"switch-energy", 0, "J", "Energy of one change of clock (default 0)", 3,
     HARPE_INTO(evaluate_arguments, change.energy_j), 0, 1e6},
    {"json", 'j', NULL, "Print one JSON object", 3, HARPE_INTO(evaluate_arguments, json)},
    {"quiet", 'q', NULL, "Show no progress and no notes on stderr", 3,
     HARPE_INTO(evaluate_arguments, quiet)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags},
              {.flags = harpe_problem_flags, .at = offsetof(evaluate_arguments, input)}},
    .words = words,
    .forms = "[FILE...]",
    .about = "Compute the time, energy and power of plan files from a profile, and compare them "
             "with the lower bound at that time and with maximum frequency everywhere.\vExample:\n "
             " harpe evaluate --inst-profile profile.csv --num-mbs 32 --p2p-power 84 \\\n      "
             "--plan freqs_pipeline_00042.py\n\nSee also: man harpe-evaluate",
    .more_help = harpe_problem_more_help,
};

/* ---- Which files ----------------------------------------------------------------------------- */

static int is_plan_name(const struct dirent *entry) {
    const char *dot = strrchr(entry->d_name, '.');
    return entry->d_name[0] != '.' && dot && strcmp(dot, ".py") == 0;
}

/* Adds a path that the list then owns. */
static harpe_status add_file(path_list *files, char *path, harpe_error *error) {
    if (add_path(files, path)) return HARPE_OK;
    free(path);
    return harpe_fail_memory(error);
}

/* Adds all *.py files of a directory, by name. */
static harpe_status add_directory(path_list *files, const char *directory, harpe_error *error) {
    struct dirent **entries = NULL;
    int count = scandir(directory, &entries, is_plan_name, alphasort);
    if (count < 0) return harpe_fail_errno(error, errno, "%s", directory);
    harpe_status status = HARPE_OK;
    if (count == 0)
        status = harpe_fail(error, HARPE_NOT_FOUND, "%s: no plan files (*.py) in it", directory);
    for (int i = 0; i < count; i++) {
        if (status == HARPE_OK)
            status = add_file(files, harpe_path_join(directory, "/", entries[i]->d_name), error);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static harpe_status list_files(const path_list *given, path_list *files, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < given->count && status == HARPE_OK; i++) {
        struct stat info;
        if (stat(given->paths[i], &info) == 0 && S_ISDIR(info.st_mode))
            status = add_directory(files, given->paths[i], error);
        else
            status = add_file(files, strdup(given->paths[i]), error);
    }
    return status;
}

static void free_files(path_list *files) {
    for (size_t i = 0; i < files->count; i++)
        free(files->paths[i]);
    free(files->paths);
}

/* ---- Evaluating ------------------------------------------------------------------------------ */

typedef struct evaluation {
    path_list files;
    harpe_plan_result bound;    /* no plans */
    harpe_arena arena;          /* of the arrays below */
    int *frequency_mhz;         /* of the present plan */
    harpe_labelled_row *rows;   /* `reference_count` rows to compare with, then the files */
    size_t reference_count;     /* the highest clocks, and one clock that is as fast */
    harpe_switching *switching; /* of the files */
    harpe_late_plan *late;      /* of the files, with a controller that looks ahead */
} evaluation;

static harpe_status evaluate_file(const evaluate_arguments *arguments, evaluation *e, size_t index,
                                  harpe_error *error) {
    const harpe_problem *problem = arguments->input.problem;
    const char *path = e->files.paths[index];
    harpe_labelled_row *out = &e->rows[e->reference_count + index];
    harpe_plan_file *file = NULL;
    harpe_status status = harpe_plan_file_read(path, &file, error);
    if (status != HARPE_OK) return status;
    harpe_plan plan = {0};
    status = harpe_plan_file_match(file, problem, e->frequency_mhz, error);
    harpe_plan_file_free(file);
    if (status == HARPE_OK)
        status = harpe_plan_evaluate(problem, e->frequency_mhz, &plan, NULL, error);
    if (status == HARPE_OK)
        status = harpe_plan_switching(problem, e->frequency_mhz, &arguments->change,
                                      &e->switching[index], error);
    if (status == HARPE_OK)
        status = harpe_plan_evaluate_late(problem, e->frequency_mhz, &arguments->change,
                                          arguments->lead_s, &e->late[index], NULL, error);
    if (status != HARPE_OK) return status;
    /* The frontier bounds plans whose clocks hold as long as a change takes. Other plans have the
     * bound of the relaxation. */
    const harpe_switching *switching = &e->switching[index];
    bool holds = switching->clock_writes == 0 ||
                 switching->shortest_dwell_s * (1 + 1e-9) >=
                     harpe_clock_switch_longest_s(problem, &arguments->change);
    size_t vertices = 0;
    harpe_plan within = plan; /* rounding may make a time shorter than the fastest */
    within.time_s =
        fmax(plan.time_s, harpe_frontier_vertices(e->bound.frontier, &vertices)[0].time_s);
    plan.lower_bound_j = holds ? harpe_frontier_bound_of(e->bound.frontier, problem, &within)
                               : harpe_frontier_relaxed_at(e->bound.frontier, within.time_s);
    out->row = harpe_plan_result_row(problem, arguments->change.energy_j, &plan, -1,
                                     &e->bound.all_maximum);
    (void)harpe_one_clock_compare(&e->bound.one_clock, plan.time_s, &out->row);
    status = harpe_plan_result_add_power(problem, e->frequency_mhz, &out->row, error);
    if (status != HARPE_OK) return status;
    snprintf(out->label, sizeof out->label, "%s", harpe_plan_name_of(path));
    return HARPE_OK;
}

static harpe_status solve_bound(const evaluate_arguments *arguments, const harpe_progress *progress,
                                evaluation *e, harpe_error *error) {
    const harpe_problem *problem = arguments->input.problem;
    const harpe_plan_request request = {.clock_switch = arguments->change};
    harpe_status status =
        harpe_plan_result_solve(problem, &request, false, progress, &e->bound, error);
    if (status != HARPE_OK) return status;
    size_t instructions = harpe_problem_instruction_count(problem);
    e->frequency_mhz = harpe_arena_alloc(&e->arena, instructions, sizeof *e->frequency_mhz);
    e->rows = harpe_arena_alloc(&e->arena, e->files.count + 2, sizeof *e->rows);
    e->switching = harpe_arena_alloc(&e->arena, e->files.count, sizeof *e->switching);
    e->late = harpe_arena_alloc(&e->arena, e->files.count, sizeof *e->late);
    if (e->arena.has_failed) return harpe_fail_memory(error);
    const harpe_frontier_row *one_clock = e->bound.key_one_clock[HARPE_KEY_ALL_MAXIMUM];
    e->rows[e->reference_count++] = e->bound.key_rows[HARPE_KEY_ALL_MAXIMUM];
    if (one_clock) e->rows[e->reference_count++] = harpe_one_clock_labelled(one_clock);
    return HARPE_OK;
}

/* Reports the progress of solving as a part of the whole. */
static bool report_solving(void *user, const char *phase, double fraction) {
    const harpe_progress *whole = user;
    return whole->report(whole->user, phase, SOLVING_SHARE * fraction);
}

static harpe_status evaluate(evaluate_arguments *arguments, harpe_progress *progress, evaluation *e,
                             harpe_error *error) {
    harpe_status status = list_files(&arguments->given, &e->files, error);
    if (status == HARPE_OK && e->files.count > PLAN_FILE_COUNT_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%zu plan files; at most %d are evaluated",
                          e->files.count, PLAN_FILE_COUNT_MAX);
    if (status == HARPE_OK) status = harpe_problem_input_load(&arguments->input, error);
    if (status == HARPE_OK) {
        harpe_progress solving = {.report = report_solving, .user = progress};
        status = solve_bound(arguments, &solving, e, error);
    }
    for (size_t i = 0; i < e->files.count && status == HARPE_OK; i++) {
        double share = (double)(i + 1) / (double)e->files.count;
        status = evaluate_file(arguments, e, i, error);
        if (status == HARPE_OK && !progress->report(progress->user, "evaluating",
                                                    SOLVING_SHARE + (1 - SOLVING_SHARE) * share))
            return harpe_command_check_signal(error);
    }
    return status;
}

/* ---- Telling --------------------------------------------------------------------------------- */

static bool changes_are_free(const evaluate_arguments *arguments) {
    const harpe_clock_switch *change = &arguments->change;
    return !change->takes_profile && change->latency_s <= 0 && change->energy_j <= 0;
}

static void add_switching(json_t *row, const harpe_switching *switching,
                          const harpe_late_plan *late, bool is_free) {
    json_object_set_new(row, "clock_writes", json_integer((json_int_t)switching->clock_writes));
    json_object_set_new(row, "shortest_dwell_s",
                        switching->clock_writes > 0 ? json_real(switching->shortest_dwell_s)
                                                    : json_null());
    if (is_free) return;
    json_object_set_new(row, "time_with_switching_s", json_real(switching->time_s));
    json_object_set_new(row, "energy_with_switching_j", json_real(switching->energy_j));
    json_object_set_new(row, "time_asking_ahead_s", json_real(late->time_s));
    json_object_set_new(row, "energy_asking_ahead_j", json_real(late->energy_j));
    json_object_set_new(row, "late_instructions", json_integer((json_int_t)late->late_count));
    json_object_set_new(row, "is_steady", json_boolean(late->is_steady));
}

/* Prints the same plans again, with the number and the cost of their changes of clock. */
static void print_switching(const evaluate_arguments *arguments, const evaluation *e) {
    bool is_free = changes_are_free(arguments);
    const harpe_labelled_row *rows = &e->rows[e->reference_count];
    int width = harpe_rows_label_width(rows, e->files.count);
    printf("\n%s  %-*s %13s %15s%s%s\n", harpe_bold_start(), width, "", "clock writes",
           "shortest dwell",
           is_free ? "" : "        asking at the start: time, energy  asking ahead: time, energy",
           harpe_bold_end());
    for (size_t i = 0; i < e->files.count; i++) {
        const harpe_switching *switching = &e->switching[i];
        printf("  %-*s %13zu", width, rows[i].label, switching->clock_writes);
        if (switching->clock_writes > 0)
            printf(" %12.1f ms", switching->shortest_dwell_s * 1e3);
        else
            printf(" %15s", "-");
        if (!is_free) {
            const harpe_late_plan *late = &e->late[i];
            printf(" %22.*f s %14.1f J %12.*f s %11.1f J", harpe_row_decimals(switching->time_s, 4),
                   switching->time_s, switching->energy_j, harpe_row_decimals(late->time_s, 4),
                   late->time_s, late->energy_j);
        }
        printf("\n");
    }
}

static harpe_status print_json(const evaluate_arguments *arguments, const evaluation *e,
                               harpe_error *error) {
    json_t *plans = json_array();
    for (size_t i = 0; i < e->files.count; i++) {
        json_t *row = harpe_row_json(&e->rows[e->reference_count + i].row);
        json_object_set_new(row, "file", harpe_command_json_text(e->files.paths[i]));
        add_switching(row, &e->switching[i], &e->late[i], changes_are_free(arguments));
        json_array_append_new(plans, row);
    }
    json_t *object = json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "program", "harpe", "version", harpe_version(),
        "arguments", harpe_problem_input_arguments(&arguments->input), "problem",
        harpe_problem_input_json(&arguments->input), "all_maximum", harpe_row_json(&e->rows[0].row),
        "one_clock", e->reference_count > 1 ? harpe_row_json(&e->rows[1].row) : json_null(),
        "plans", plans, "notes", harpe_plan_notes(&arguments->input, NULL));
    return harpe_command_print_json(object, error);
}

static harpe_status print_result(const evaluate_arguments *arguments, const evaluation *e,
                                 harpe_error *error) {
    if (arguments->json) return print_json(arguments, e, error);
    harpe_problem_input_print(&arguments->input);
    printf("\n");
    harpe_rows_print(e->rows, e->reference_count + e->files.count);
    print_switching(arguments, e);
    printf("\n");
    harpe_rows_print_power(e->rows, e->reference_count + e->files.count);
    return HARPE_OK;
}

int harpe_evaluate_command(int argc, char **argv) {
    evaluate_arguments arguments = {.input = harpe_problem_input_defaults, .lead_s = INFINITY};
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &arguments);
    harpe_problem_input_check(&arguments.input, &state);
    if (arguments.given.count == 0)
        harpe_flag_fail(&state, "--plan is missing: name a plan file to evaluate");
    harpe_terminal_progress terminal;
    harpe_progress progress = harpe_terminal_progress_start(&terminal, arguments.quiet);
    evaluation e = {0};
    harpe_error error;
    harpe_status status = evaluate(&arguments, &progress, &e, &error);
    harpe_terminal_progress_clear(&terminal);
    if (status == HARPE_OK && !arguments.quiet)
        harpe_command_print_notes("evaluate", harpe_plan_notes(&arguments.input, NULL));
    if (status == HARPE_OK)
        status = print_result(&arguments, &e, &error);
    else if (status == HARPE_INTERRUPTED)
        (void)harpe_command_check_signal(&error);
    harpe_plan_result_free(&e.bound);
    harpe_arena_free(&e.arena);
    free_files(&e.files);
    free(arguments.given.paths);
    harpe_problem_input_free(&arguments.input);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("evaluate", &error);
}
