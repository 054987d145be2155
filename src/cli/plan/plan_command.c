/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe plan`: makes a directory of frequency plans from a profile. This file reads the flags,
 * calls the steps and cleans up. The output path stays unchanged until all files are complete. */
#include "cli/plan/plan_internal.h"

#define PLAN_COUNT_MAX 100000
#define POWER_MAX_W 1e12

static void read_plans(void *into, struct argp_state *state, const char *flag, char *text) {
    harpe_plan_arguments *arguments = into;
    arguments->plans = text;
    arguments->plans_given = true;
    arguments->with_plans = strcmp(text, "none") != 0;
    arguments->request.choice = HARPE_PLANS_SPREAD;
    arguments->request.count = 0;
    if (strcmp(text, "all") == 0) {
        arguments->request.choice = HARPE_PLANS_ALL;
        return;
    }
    if (strcmp(text, "fastest") == 0) {
        static const double shortest_s = 0;
        arguments->request.choice = HARPE_PLANS_AT;
        arguments->request.times_s = &shortest_s;
        arguments->request.time_count = 1;
        return;
    }
    if (!arguments->with_plans) return;
    if (text[strspn(text, "0123456789")] != '\0' || *text == '\0')
        harpe_flag_fail(state, "%s: expected all, fastest, none or a number, found '%s'", flag,
                        text);
    arguments->request.count = harpe_flag_int(state, flag, text, 1, PLAN_COUNT_MAX);
}

/* Reads watts, or a percentage of the mean power. */
static void read_swing(void *into, struct argp_state *state, const char *flag, char *text) {
    harpe_plan_request *request = into;
    size_t length = strlen(text);
    char number[32];
    request->max_swing_w = request->max_swing_share = 0;
    if (length == 0 || text[length - 1] != '%' || length > sizeof number) {
        request->max_swing_w = harpe_flag_double(state, flag, text, 0, POWER_MAX_W, true);
        return;
    }
    snprintf(number, sizeof number, "%.*s", (int)length - 1, text);
    request->max_swing_share = harpe_flag_double(state, flag, number, 0, 1000, true) / 100;
}

static void read_latency(void *into, struct argp_state *state, const char *flag, char *text) {
    harpe_plan_arguments *arguments = into;
    harpe_flag_switch_latency(state, flag, text, &arguments->input,
                              &arguments->request.clock_switch);
}

static void refuse_effort(void *into, struct argp_state *state, const char *flag, char *text) {
    (void)into, (void)text;
    harpe_flag_fail(state,
                    "%s is gone: plans near the fastest are now always improved, by a fixed amount "
                    "of work; leave it out",
                    flag);
}

static const harpe_flag flags[] = {
    {"graph", 0, "FILE",
     "Plan a graph of activities (JSON, see harpe-graph(5)) instead of a profile with a schedule",
     1, HARPE_INTO(harpe_plan_arguments, input.graph_path)},
    {.help = "The answer:", .group = 4},
    {"output-dir", 'o', "DIR",
     "Directory to create, completely or not at all (see harpe-plan(5)); required unless "
     "--bound-only or --export-graph",
     4, HARPE_INTO(harpe_plan_arguments, output_directory)},
    {"export-graph", 0, "FILE",
     "Write the pipeline as a graph (see harpe-graph(5)); without --output-dir and --bound-only, "
     "nothing else is done",
     4, HARPE_INTO(harpe_plan_arguments, export_path)},
    {"force", 'f', NULL, "Replace an existing plan directory or graph", 4,
     HARPE_INTO(harpe_plan_arguments, force)},
    {"plans", 0, "all|N|fastest|none",
     "Plans to make: one for each vertex of the frontier, about N (default 100), the fastest, or "
     "none",
     4, .read = read_plans},
    {"effort", 0, "SECONDS", NULL, 4, .read = refuse_effort, .how = OPTION_HIDDEN},
    {"threads", 0, "N",
     "Make plans on at most N threads (default: all cores); the plans do not depend on it", 4,
     HARPE_INTO(harpe_plan_arguments, request.threads), 1, 4096},
    {"min-dwell", 0, "S", "Make plans in which each clock holds for at least S seconds (default 0)",
     4, HARPE_INTO(harpe_plan_arguments, request.clock_switch.minimum_dwell_s), 0, 3600},
    {"switch-latency", 0, "S|FILE",
     "Seconds from the request to the new clock, 'profile' for those of the profile, or a file of "
     "'harpe profile switch'; each change can be requested in time (default 0)",
     4, .read = read_latency},
    {"switch-energy", 0, "J",
     "Energy of one change of clock; changes that save less are removed (default 0)", 4,
     HARPE_INTO(harpe_plan_arguments, request.clock_switch.energy_j), 0, 1e6},
    {"max-peak-power", 0, "W", "Make plans that never draw more than W watts", 4,
     HARPE_INTO(harpe_plan_arguments, request.max_peak_power_w), 0, POWER_MAX_W, .is_above = true},
    {"max-swing", 0, "W|%",
     "Make plans whose power oscillates by at most W watts, or a percentage of its mean ('5%'), "
     "from peak to peak, at 0.1 to 20 Hz. With --replicas, your job must delay the replicas that "
     "begin later (start_s)",
     4, HARPE_READ(read_swing, harpe_plan_arguments, request)},
    {"bound-only", 0, NULL, "Compute and write the lower bound (bound.csv) and nothing else", 4,
     HARPE_INTO(harpe_plan_arguments, bound_only)},
    {"verify", 0, NULL, "Verify frontier and plans with independent code", 4,
     HARPE_INTO(harpe_plan_arguments, verify)},
    {"no-pictures", 0, NULL, "Leave out pictures and report.html", 4,
     HARPE_INTO(harpe_plan_arguments, no_pictures)},
    {"json", 'j', NULL, "Print the summary as one JSON object", 4,
     HARPE_INTO(harpe_plan_arguments, json)},
    {"quiet", 'q', NULL, "Show no progress and no notes on stderr", 4,
     HARPE_INTO(harpe_plan_arguments, quiet)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags},
              {.flags = harpe_problem_flags, .at = offsetof(harpe_plan_arguments, input)},
              {.flags = harpe_replica_flags, .at = offsetof(harpe_plan_arguments, replicas)}},
    .refusal = "is not a flag; files are given as --inst-profile FILE",
    .about =
        "Compute the exact time-energy frontier of a training pipeline, and frequency plans along "
        "it.\vExample:\n  harpe plan --inst-profile profile.csv --num-mbs 32 --p2p-power 84 \\\n   "
        "   --output-dir plans\n  harpe plan --graph job.json --output-dir plans\n"
        "  harpe plan --inst-profile gpus.csv --replicas --num-mbs 32 -o plans\n\n"
        "See also: man harpe-plan",
    .more_help = harpe_problem_more_help,
};

static bool only_exports(const harpe_plan_arguments *arguments) {
    return arguments->export_path && !arguments->output_directory && !arguments->bound_only;
}

static bool has_switch(const harpe_plan_arguments *arguments) {
    const harpe_clock_switch *change = &arguments->request.clock_switch;
    return change->minimum_dwell_s > 0 || change->latency_s > 0 || change->energy_j > 0 ||
           change->takes_profile;
}

/* Refuses flags that plans for each GPU do not support: these plans are made for one time, and each
 * of their instructions has its own clock. */
static void check_replicas(const struct argp_state *state, const harpe_plan_arguments *arguments) {
    const char *flag = arguments->input.graph_path           ? "--graph"
                       : arguments->export_path              ? "--export-graph"
                       : arguments->bound_only               ? "--bound-only"
                       : arguments->plans_given              ? "--plans"
                       : has_switch(arguments)               ? "--min-dwell and costs of changes"
                       : arguments->input.gpus_per_stage > 0 ? "--gpus-per-stage"
                       : arguments->input.cost_model != HARPE_COST_HULL ? "--cost-model"
                                                                        : NULL;
    if (flag)
        harpe_flag_fail(state, "--replicas and %s cannot be used together: leave one of them out",
                        flag);
}

static void check_complete(const struct argp_state *state, const harpe_plan_arguments *arguments) {
    if (harpe_replica_input_is_given(&arguments->replicas)) check_replicas(state, arguments);
    if (!arguments->bound_only && !arguments->output_directory && !arguments->export_path)
        harpe_flag_fail(state, "--output-dir is missing: name the directory to create");
    if (!arguments->input.graph_path) return;
    if (arguments->export_path)
        harpe_flag_fail(state, "--graph and --export-graph: a graph is not exported again");
    if (has_switch(arguments))
        harpe_flag_fail(
            state,
            "--graph: --min-dwell, --switch-latency and --switch-energy are for pipelines only");
}

/* ---- The output directory -------------------------------------------------------------------- */

harpe_status harpe_plan_open_output(const harpe_plan_arguments *arguments,
                                    harpe_directory *directory, harpe_error *error) {
    const char *path = arguments->output_directory;
    if (arguments->force) {
        harpe_status status = harpe_plan_directory_check_replaceable(path, error);
        if (status != HARPE_OK) return status;
    }
    harpe_error reason;
    harpe_status status = harpe_directory_open(directory, path, arguments->force, &reason);
    if (status == HARPE_ALREADY_EXISTS && !arguments->force)
        return harpe_fail(error, status, "%s (choose another directory, or --force to replace it)",
                          reason.message);
    if (status != HARPE_OK) *error = reason;
    return status;
}

static json_t *arguments_json(const harpe_plan_arguments *arguments) {
    json_t *object = harpe_problem_input_arguments(&arguments->input);
    json_object_set_new(object, "plans", json_string(arguments->plans));
    json_object_set_new(object, "bound_only", json_boolean(arguments->bound_only));
    const harpe_clock_switch *change = &arguments->request.clock_switch;
    json_object_set_new(object, "min_dwell_s", json_real(change->minimum_dwell_s));
    const char *table = arguments->input.switch_table_path;
    json_object_set_new(object, "switch_latency_s",
                        table                   ? harpe_command_json_text(table)
                        : change->takes_profile ? json_string("profile")
                                                : json_real(change->latency_s));
    json_object_set_new(object, "switch_energy_j", json_real(change->energy_j));
    json_object_update_new(object, harpe_plan_limits_json(&arguments->request));
    return object;
}

harpe_status harpe_plan_commit_output(const harpe_plan_arguments *arguments,
                                      harpe_directory *directory, harpe_status status,
                                      harpe_error *error) {
    if (status == HARPE_OK) status = harpe_command_check_signal(error);
    /* Checked again, because another process may have created something there during the
     * planning. */
    if (status == HARPE_OK && arguments->force)
        status = harpe_plan_directory_check_replaceable(arguments->output_directory, error);
    return status == HARPE_OK ? harpe_directory_commit(directory, error) : status;
}

static harpe_status write_output(const harpe_plan_arguments *arguments,
                                 const harpe_plan_result *result, harpe_directory *directory,
                                 harpe_error *error) {
    const harpe_problem_input *input = &arguments->input;
    json_t *of_plans = arguments->bound_only ? NULL : arguments_json(arguments);
    harpe_status status = harpe_plan_output_write(directory, input, result, of_plans, error);
    if (status == HARPE_OK && !arguments->bound_only && !arguments->no_pictures)
        status = harpe_plan_output_pictures(directory, arguments, result, error);
    return harpe_plan_commit_output(arguments, directory, status, error);
}

/* ---- The steps ------------------------------------------------------------------------------- */

static harpe_status print_export(const harpe_plan_arguments *arguments, harpe_error *error) {
    if (arguments->json)
        return harpe_command_print_json(
            json_pack("{s:o, s:o}", "graph", harpe_command_json_text(arguments->export_path),
                      "problem", harpe_problem_input_json(&arguments->input)),
            error);
    harpe_problem_input_print(&arguments->input);
    printf("Written: %s%s%s\n", harpe_bold_start(), arguments->export_path, harpe_bold_end());
    return HARPE_OK;
}

/* Writes the problem of a pipeline as a graph. */
static harpe_status export_graph(const harpe_plan_arguments *arguments, harpe_error *error) {
    harpe_graph *graph = NULL;
    harpe_status status =
        harpe_command_check_output(arguments->export_path, arguments->force, error);
    if (status == HARPE_OK)
        status = harpe_graph_of_problem(arguments->input.problem, &graph, error);
    if (status == HARPE_OK) status = harpe_graph_write_json(graph, arguments->export_path, error);
    harpe_graph_free(graph);
    return status;
}

static harpe_status solve(harpe_plan_arguments *arguments, const harpe_progress *progress,
                          harpe_plan_result *result, harpe_error *error) {
    harpe_status status = harpe_problem_input_load(&arguments->input, error);
    if (status == HARPE_OK && only_exports(arguments)) return export_graph(arguments, error);
    if (status == HARPE_OK) status = harpe_command_check_signal(error);
    bool with_plans = arguments->with_plans && !arguments->bound_only;
    if (status == HARPE_OK)
        status = harpe_plan_result_solve(arguments->input.problem, &arguments->request, with_plans,
                                         progress, result, error);
    if (status == HARPE_OK && arguments->verify)
        status = harpe_plan_result_verify(arguments->input.problem, result, error);
    return status == HARPE_OK && arguments->export_path ? export_graph(arguments, error) : status;
}

static harpe_status print_result(const harpe_plan_arguments *arguments,
                                 const harpe_plan_result *result, harpe_error *error) {
    const char *directory = arguments->output_directory;
    if (only_exports(arguments)) return print_export(arguments, error);
    bool has_report = directory && result->row_count > 0 && !arguments->no_pictures;
    if (!arguments->json) {
        harpe_plan_summary_print(&arguments->input, result, directory, has_report);
        return HARPE_OK;
    }
    json_t *object = harpe_plan_result_json(&arguments->input, result, arguments_json(arguments));
    json_object_set_new(object, "output_dir", harpe_command_json_text(directory));
    return harpe_command_print_json(object, error);
}

/* Copies the command line as the user typed it, because argp changes the order of argv. If there is
 * no memory for the copy, the report has no command line. */
static void keep_command_line(harpe_plan_arguments *arguments, int argc, char **argv) {
    size_t length = (size_t)argc + 1;
    arguments->command_line = harpe_calloc(length, sizeof *arguments->command_line);
    if (!arguments->command_line) return;
    arguments->command_line_length = length;
    arguments->command_line[0] = "harpe";
    arguments->command_line[1] = "plan";
    for (size_t i = 2; i < length; i++)
        arguments->command_line[i] = argv[i - 1];
}

static int finish_command(harpe_plan_arguments *arguments, harpe_status status,
                          harpe_error *error) {
    harpe_problem_input_free(&arguments->input);
    free(arguments->replicas.more_paths);
    free(arguments->command_line);
    /* An interruption has the same message wherever it was noticed. */
    if (status == HARPE_INTERRUPTED) (void)harpe_command_check_signal(error);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("plan", error);
}

int harpe_plan_command(int argc, char **argv) {
    harpe_plan_arguments arguments = {.input = harpe_problem_input_defaults,
                                      .replicas = {.smooth = -1},
                                      .plans = "100",
                                      .with_plans = true};
    keep_command_line(&arguments, argc, argv);
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &arguments);
    harpe_replica_input_check(&arguments.replicas, &state);
    harpe_problem_input_check(&arguments.input, &state);
    check_complete(&state, &arguments);
    harpe_error error;
    if (harpe_replica_input_is_given(&arguments.replicas)) {
        harpe_status status = harpe_plan_replicas(&arguments, &error);
        return finish_command(&arguments, status, &error);
    }
    harpe_terminal_progress terminal;
    harpe_progress progress = harpe_terminal_progress_start(&terminal, arguments.quiet);
    harpe_directory directory = {0};
    harpe_plan_result result = {0};
    harpe_status status = HARPE_OK;
    if (arguments.output_directory) status = harpe_plan_open_output(&arguments, &directory, &error);
    if (status == HARPE_OK) status = solve(&arguments, &progress, &result, &error);
    if (status == HARPE_OK && arguments.output_directory)
        status = write_output(&arguments, &result, &directory, &error);
    harpe_terminal_progress_clear(&terminal);
    harpe_directory_abort(&directory);
    if (status == HARPE_OK && !arguments.quiet)
        harpe_command_print_notes("plan", harpe_plan_notes(&arguments.input, result.dwell_note));
    if (status == HARPE_OK) status = print_result(&arguments, &result, &error);
    harpe_plan_result_free(&result);
    return finish_command(&arguments, status, &error);
}
