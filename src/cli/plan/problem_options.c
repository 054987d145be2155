/* SPDX-License-Identifier: Apache-2.0 */
/* The flags that describe a planning problem, and the problem made from them. The range of each
 * value is checked while the command line is read, before any file is opened. The library checks
 * the values that depend on files (for example the number of stages). */
#include "cli/plan/plan_internal.h"
#include "plan/problem.h"
#include "plan/schedule.h"

#define BLOCKING_POWER_MAX_W 1e5
#define DEFAULT_SCHEDULE "1f1b"
#define OVERHEAD_POWER_MAX_W 1e9
#define TRANSFER_TIME_MAX_S 1e6
#define DEFAULT_UNIT_TIME_S 0.001
#define DEFAULT_NOISE_FACTOR 0.95
#define MEMORY_LIMIT_MAX_GIB 65536
#define GPUS_PER_STAGE_MAX 65536

/* ---- Flags ----------------------------------------------------------------------------------- */

/* Splits "a,b" into a NULL-terminated list with its texts in one allocation. */
static char **split_names(const struct argp_state *state, const char *flag, const char *text) {
    size_t count = 1;
    for (const char *c = text; *c; c++)
        count += *c == ',';
    char **names = harpe_calloc(count + 1, sizeof *names);
    char *copy = strdup(text);
    if (!names || !copy) harpe_flag_fail(state, "out of memory");
    char *rest = copy;
    for (size_t i = 0; i < count; i++) {
        names[i] = strsep(&rest, ",");
        if (!*names[i])
            harpe_flag_fail(state, "%s: expected names separated by commas, found '%s'", flag,
                            text);
    }
    return names;
}

static void free_names(char **names) {
    if (names) {
        free(names[0]);
        free(names);
    }
}

static void read_names(void *into, struct argp_state *state, const char *flag, char *text) {
    char ***names = into;
    free_names(*names);
    *names = split_names(state, flag, text);
}

static void read_blocking_power(void *into, struct argp_state *state, const char *flag,
                                char *text) {
    harpe_problem_input *input = into;
    char **parts = split_names(state, flag, text);
    size_t count = 0;
    while (parts[count])
        count++;
    double *values = harpe_calloc(count, sizeof *values);
    if (!values) harpe_flag_fail(state, "out of memory");
    for (size_t i = 0; i < count; i++)
        values[i] = harpe_flag_double(state, flag, parts[i], 0, BLOCKING_POWER_MAX_W, false);
    free_names(parts);
    free(input->blocking_power_w);
    input->blocking_power_w = values;
    input->blocking_power_count = count;
}

/* Reads a schedule's name. A name that is not built in is a file if it looks like a file, and
 * otherwise a mistyped name. */
static void read_schedule(void *into, struct argp_state *state, const char *flag, char *text) {
    harpe_problem_input *input = into;
    const char *names[64] = {NULL};
    bool is_built_in = false;
    for (int i = 0; i < 63 && harpe_schedule_name_at(i); i++) {
        names[i] = harpe_schedule_name_at(i);
        is_built_in = is_built_in || strcmp(names[i], text) == 0;
    }
    if (!is_built_in && !strpbrk(text, "./")) {
        const char *closest = harpe_closest_name(text, names);
        if (closest)
            harpe_flag_fail(state, "%s: there is no schedule '%s'; did you mean '%s'?", flag, text,
                            closest);
        (void)harpe_flag_choice(state, flag, text, names);
    }
    input->schedule_name = text;
    input->schedule_is_file = !is_built_in;
}

static void read_memory_limit(void *into, struct argp_state *state, const char *flag, char *text) {
    *(uint64_t *)into = (uint64_t)harpe_flag_int(state, flag, text, 1, MEMORY_LIMIT_MAX_GIB) << 30;
}

static const char *const cost_models[] = {"hull", "exponential", NULL};

const harpe_flag harpe_problem_flags[] = {
    {.help = "The problem:", .group = 1},
    {"inst-profile", 'i', "FILE",
     "Measured time and energy of every instruction (CSV, see harpe-profile(5)); required", 1,
     HARPE_INTO(harpe_problem_input, profile_path)},
    {"num-mbs", 'm', "M", "Microbatches in one iteration; required unless the schedule is a file",
     1, HARPE_INTO(harpe_problem_input, microbatches), 1, HARPE_MICROBATCHES_MAX},
    {"num-stages", 'n', "N", "Pipeline stages (default: as many as the profile has)", 1,
     HARPE_INTO(harpe_problem_input, ranks), 1, HARPE_RANKS_MAX},
    {"gpus-per-stage", 0, "N",
     "Number of GPUs whose energy each row of the profile contains, if the profile has no column "
     "rank or gpus (default 1)",
     1, HARPE_INTO(harpe_problem_input, gpus_per_stage), 1, GPUS_PER_STAGE_MAX},
    {"p2p-power", 'p', "W[,W...]",
     "Blocking power: watts that one GPU draws while it waits for its neighbour; one number, or "
     "one per pipeline rank; required unless the profile has the column blocking_power",
     1, .read = read_blocking_power},
    {"wait-powers", 0, "FILE",
     "Blocking power of each kind of wait (CSV with the columns rank, wait and blocking_power); "
     "kinds without a row have the power of their rank",
     1, HARPE_INTO(harpe_problem_input, wait_powers_path)},
    {"overhead-power", 0, "W",
     "Watts that all machines of the pipeline draw outside of their GPUs; energies are then those "
     "of whole machines (default 0)",
     1, HARPE_INTO(harpe_problem_input, overhead_power_w), 0, OVERHEAD_POWER_MAX_W},
    {"transfer-time", 0, "S",
     "Seconds from the end of an instruction to the start of one of another rank that waits for it "
     "(default 0)",
     1, HARPE_INTO(harpe_problem_input, transfer_time_s), 0, TRANSFER_TIME_MAX_S},
    {"schedule", 's', "NAME|FILE",
     "Pipeline schedule by name (default 1f1b; names below), or a CSV file of "
     "torch.distributed.pipelining",
     1, .read = read_schedule},
    {"chunks", 0, "K", "Model chunks of each rank, if there are several", 1,
     HARPE_INTO(harpe_problem_input, chunks), 1, HARPE_STAGE_MAX + 1},
    {"microbatch-group-size", 0, "G",
     "interleaved-1f1b: microbatches that a rank runs on a chunk before it goes on to the next "
     "chunk (default: as torch and Megatron choose it)",
     1, HARPE_INTO(harpe_problem_input, group_size), 1, HARPE_MICROBATCHES_MAX},
    {"overlap-moe-expert-parallel-comm", 0, NULL,
     "interleaved-1f1b, and 1f1b on one rank: one more forward in the warm-up, then forwards that "
     "overlap with backwards, as in Megatron",
     1, HARPE_INTO(harpe_problem_input, overlaps_moe_expert_parallel_comm)},
    {"prologue", 0, "A,B", "Instructions that every rank runs first, for example dataload", 1,
     HARPE_READ(read_names, harpe_problem_input, prologue)},
    {"epilogue", 0, "A,B", "Instructions that every rank runs last, for example optimizer", 1,
     HARPE_READ(read_names, harpe_problem_input, epilogue)},
    {.help = "The relaxation:", .group = 2},
    {"cost-model", 0, "NAME",
     "hull (default): the measured points themselves; exponential: a fitted curve", 2,
     HARPE_INTO(harpe_problem_input, cost_model), .names = cost_models},
    {"unit-time", 0, "S", "Sampling interval of the exponential model in s (default 0.001)", 2,
     HARPE_INTO(harpe_problem_input, unit_time_s), 1e-6, 3600},
    {"noise-factor", 0, "X",
     "Relaxed Pareto filter if the exponential model has fewer than 4 points (default 0.95)", 2,
     HARPE_INTO(harpe_problem_input, noise_factor), 0, 1, .is_above = true},
    {"memory-limit", 0, "GIB", "Refuse larger problems (default 4)", 2,
     HARPE_READ(read_memory_limit, harpe_problem_input, memory_limit_bytes)},
    {0},
};

const harpe_problem_input harpe_problem_input_defaults = {.schedule_name = DEFAULT_SCHEDULE,
                                                          .unit_time_s = DEFAULT_UNIT_TIME_S,
                                                          .noise_factor = DEFAULT_NOISE_FACTOR};

/* Refuses flags that describe a pipeline, because a graph describes itself. */
static void check_graph_alone(const harpe_problem_input *input, const struct argp_state *state) {
    const char *flag = input->profile_path          ? "--inst-profile"
                       : input->microbatches > 0    ? "--num-mbs"
                       : input->ranks > 0           ? "--num-stages"
                       : input->gpus_per_stage      ? "--gpus-per-stage"
                       : input->blocking_power_w    ? "--p2p-power"
                       : input->wait_powers_path    ? "--wait-powers"
                       : input->chunks > 0          ? "--chunks"
                       : input->group_size > 0      ? "--microbatch-group-size"
                       : input->prologue            ? "--prologue"
                       : input->transfer_time_s > 0 ? "--transfer-time"
                       : input->epilogue            ? "--epilogue"
                                                    : NULL;
    if (!flag && input->overlaps_moe_expert_parallel_comm)
        flag = "--overlap-moe-expert-parallel-comm";
    if (!flag && strcmp(input->schedule_name, DEFAULT_SCHEDULE) != 0) flag = "--schedule";
    if (flag) harpe_flag_fail(state, "--graph and %s: a graph needs no %s", flag, flag);
}

void harpe_problem_input_check(const harpe_problem_input *input, const struct argp_state *state) {
    if (input->graph_path) {
        check_graph_alone(input, state);
        return;
    }
    if (!input->profile_path || !*input->profile_path)
        harpe_flag_fail(state, "--inst-profile is missing: name the CSV file with each "
                               "instruction's time and energy ('harpe synth' makes one to try)");
    if (input->microbatches == 0 && !input->schedule_is_file)
        harpe_flag_fail(state,
                        "--num-mbs is missing: give the number of microbatches in an iteration");
}

enum { HELP_NAME_WIDTH = 26, HELP_WIDTH = 78 };

/* Appends one schedule's name and description. Lines after the first start below the
 * description. */
static void append_schedule_help(harpe_text *help, const char *name, const char *description) {
    harpe_text_printf(help, "  %-*s", HELP_NAME_WIDTH, name);
    size_t column = 2 + HELP_NAME_WIDTH;
    while (*description) {
        size_t word = strcspn(description, " ");
        if (column + 1 + word > HELP_WIDTH) {
            harpe_text_printf(help, "\n%*s", 2 + HELP_NAME_WIDTH, "");
            column = 2 + HELP_NAME_WIDTH;
        }
        harpe_text_printf(help, " %.*s", (int)word, description);
        column += 1 + word;
        description += word + strspn(description + word, " ");
    }
    harpe_text_printf(help, "\n");
}

void harpe_problem_more_help(harpe_text *text) {
    harpe_text_printf(text, "Schedules:\n");
    for (int i = 0; harpe_schedule_name_at(i); i++)
        append_schedule_help(text, harpe_schedule_name_at(i), harpe_schedule_description_at(i));
}

/* ---- Loading --------------------------------------------------------------------------------- */

harpe_status harpe_problem_input_schedule(harpe_problem_input *input, harpe_error *error) {
    harpe_schedule_request request = {
        .options = {.name = input->schedule_is_file ? NULL : input->schedule_name,
                    .ranks = input->ranks,
                    .microbatches = input->microbatches,
                    .chunks = input->chunks,
                    .microbatch_group_size = input->group_size,
                    .overlaps_moe_expert_parallel_comm = input->overlaps_moe_expert_parallel_comm,
                    .prologue = (const char *const *)input->prologue,
                    .epilogue = (const char *const *)input->epilogue},
        .path = input->schedule_is_file ? input->schedule_name : NULL,
        .memory_limit_bytes = input->memory_limit_bytes,
    };
    return harpe_schedule_for_profile(input->profile, &request, &input->schedule, error);
}

/* Returns the options that are the same for a pipeline and a graph. */
static harpe_problem_options options_of(const harpe_problem_input *input) {
    return (harpe_problem_options){
        .cost_model = input->cost_model,
        .unit_time_s = input->unit_time_s,
        .noise_factor = input->noise_factor,
        .memory_limit_bytes = input->memory_limit_bytes,
        .overhead_power_w = input->overhead_power_w,
    };
}

harpe_problem_options harpe_problem_input_options(const harpe_problem_input *input) {
    harpe_problem_options options = options_of(input);
    options.blocking_power_w = input->blocking_power_w;
    options.blocking_power_count = input->blocking_power_count;
    options.gpus_per_stage = input->gpus_per_stage;
    options.transfer_time_s = input->transfer_time_s;
    if (input->wait_powers)
        options.wait_powers = harpe_wait_powers_rows(input->wait_powers, &options.wait_power_count);
    options.wait_powers_name = input->wait_powers_path;
    return options;
}

/* Makes the problem. Adds the profile's name to an error that concerns the profile. */
static harpe_status make_problem(harpe_problem_input *input, harpe_error *error) {
    harpe_error reason;
    harpe_problem_options options = harpe_problem_input_options(input);
    harpe_status status =
        harpe_problem_new(input->profile, input->schedule, &options, &input->problem, &reason);
    if (status == HARPE_OK) return HARPE_OK;
    const char *waits = input->wait_powers_path;
    bool is_of_waits = waits && strncmp(reason.message, waits, strlen(waits)) == 0;
    bool is_of_profile = status == HARPE_INVALID_INPUT && !is_of_waits;
    return harpe_fail(error, status, "%s%s%s", is_of_profile ? input->profile_path : "",
                      is_of_profile ? ": " : "", reason.message);
}

/* Returns true if a row is for all ranks and all kinds of waits. */
static bool has_usual_power(const harpe_problem_input *input) {
    size_t count = 0;
    const harpe_wait_power *rows =
        input->wait_powers ? harpe_wait_powers_rows(input->wait_powers, &count) : NULL;
    for (size_t i = 0; i < count; i++)
        if (rows[i].rank < 0 && !*rows[i].wait) return true;
    return false;
}

/* Checks that there is a blocking power: from --p2p-power, or in the file of wait powers for all
 * ranks, or in the profile for every stage. */
static harpe_status check_blocking_power(const harpe_problem_input *input, harpe_error *error) {
    if (input->blocking_power_w || has_usual_power(input)) return HARPE_OK;
    for (int stage = 0; stage < harpe_profile_stage_count(input->profile); stage++) {
        if (harpe_profile_blocking_power_w(input->profile, stage) > 0) continue;
        return harpe_fail(
            error, HARPE_INVALID_ARGUMENT,
            "--p2p-power is missing, and the profile has no blocking_power for stage %d: give the "
            "watts that one GPU draws while it waits for its neighbour (measure it on a blocked "
            "receive; an A100 draws 70 to 85 W; 0 leaves waiting out of the sum)",
            stage);
    }
    return HARPE_OK;
}

/* Stores the blocking powers of the profile as if --p2p-power had given one for each rank. */
static harpe_status take_blocking_powers(harpe_problem_input *input, harpe_error *error) {
    if (input->blocking_power_w) return HARPE_OK;
    size_t ranks = (size_t)harpe_problem_rank_count(input->problem);
    input->blocking_power_w = harpe_calloc(ranks, sizeof *input->blocking_power_w);
    if (!input->blocking_power_w) return harpe_fail_memory(error);
    input->blocking_power_count = ranks;
    for (size_t rank = 0; rank < ranks; rank++) {
        int gpus = harpe_problem_gpu_count(input->problem, (int)rank);
        input->blocking_power_w[rank] =
            harpe_problem_blocking_power_w(input->problem, (int)rank) / gpus;
    }
    return HARPE_OK;
}

void harpe_flag_switch_latency(const struct argp_state *state, const char *flag, const char *text,
                               harpe_problem_input *input, harpe_clock_switch *change) {
    size_t length = strlen(text);
    bool is_file = strchr(text, '/') || (length > 4 && strcmp(text + length - 4, ".csv") == 0);
    double number;
    input->switch_table_path = is_file ? text : NULL;
    change->takes_profile = is_file || strcmp(text, "profile") == 0;
    change->latency_s = 0;
    if (change->takes_profile) return;
    if (!harpe_parse_double(text, length, &number))
        harpe_flag_fail(state,
                        "%s: expected a number of seconds, 'profile' or a file *.csv, found '%s'",
                        flag, text);
    change->latency_s = harpe_flag_double(state, flag, text, 0, HARPE_SWITCH_LATENCY_MAX_S, false);
}

static harpe_status take_switch_table(harpe_problem_input *input, harpe_error *error) {
    if (!input->switch_table_path) return HARPE_OK;
    harpe_latencies latencies;
    harpe_status status = harpe_latencies_read_csv(input->switch_table_path, &latencies, error);
    if (status != HARPE_OK) return status;
    free(input->problem->latencies.items);
    input->problem->latencies = latencies;
    return HARPE_OK;
}

harpe_status harpe_problem_input_load(harpe_problem_input *input, harpe_error *error) {
    if (input->graph_path) {
        harpe_problem_options options = options_of(input);
        harpe_status status = harpe_graph_read_json(input->graph_path, &input->graph, error);
        return status == HARPE_OK
                   ? harpe_problem_of_graph(input->graph, &options, &input->problem, error)
                   : status;
    }
    harpe_status status = harpe_profile_read_csv(input->profile_path, &input->profile, error);
    if (status == HARPE_OK && input->wait_powers_path)
        status = harpe_wait_powers_read_csv(input->wait_powers_path, &input->wait_powers, error);
    if (status == HARPE_OK) status = check_blocking_power(input, error);
    if (status == HARPE_OK) status = harpe_problem_input_schedule(input, error);
    if (status == HARPE_OK) status = make_problem(input, error);
    if (status == HARPE_OK) status = take_switch_table(input, error);
    return status == HARPE_OK ? take_blocking_powers(input, error) : status;
}

void harpe_problem_input_free(harpe_problem_input *input) {
    harpe_problem_free(input->problem);
    harpe_graph_free(input->graph);
    harpe_schedule_free(input->schedule);
    harpe_profile_free(input->profile);
    harpe_wait_powers_free(input->wait_powers);
    free(input->blocking_power_w);
    free_names(input->prologue);
    free_names(input->epilogue);
    *input = (harpe_problem_input){0};
}

/* ---- Telling --------------------------------------------------------------------------------- */

/* Returns the blocking power of one GPU of a rank, the highest of all kinds of waits. */
static double blocking_power_w(const harpe_problem_input *input, int rank) {
    if (input->wait_powers)
        return harpe_problem_blocking_power_w(input->problem, rank) /
               harpe_problem_gpu_count(input->problem, rank);
    return input->blocking_power_w[input->blocking_power_count == 1 ? 0 : rank];
}

static json_t *names_json(char **names) {
    json_t *list = json_array();
    for (; names && *names; names++)
        json_array_append_new(list, json_string(*names));
    return list;
}

static json_t *numbers_json(const double *values, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_real(values[i]));
    return list;
}

/* Returns an integer, or null if the flag was not given. */
static json_t *given_or_null(int value) { return value ? json_integer(value) : json_null(); }

json_t *harpe_problem_input_arguments(const harpe_problem_input *input) {
    if (input->graph_path)
        return json_pack("{s:o, s:f, s:s, s:f, s:f}", "graph",
                         harpe_command_json_text(input->graph_path), "overhead_power",
                         input->overhead_power_w, "cost_model", cost_models[input->cost_model],
                         "unit_time", input->unit_time_s, "noise_factor", input->noise_factor);
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:o, s:o, s:o, s:b, s:o, s:o, s:s, s:f, s:f}",
        "inst_profile", harpe_command_json_text(input->profile_path), "num_mbs",
        given_or_null(input->microbatches), "num_stages", given_or_null(input->ranks),
        "gpus_per_stage", given_or_null(input->gpus_per_stage), "p2p_power",
        numbers_json(input->blocking_power_w, input->blocking_power_count), "wait_powers",
        harpe_command_json_text(input->wait_powers_path), "overhead_power", input->overhead_power_w,
        "transfer_time", input->transfer_time_s, "schedule",
        harpe_command_json_text(input->schedule_name), "chunks", given_or_null(input->chunks),
        "microbatch_group_size", given_or_null(input->group_size),
        "overlap_moe_expert_parallel_comm", (int)input->overlaps_moe_expert_parallel_comm,
        "prologue", names_json(input->prologue), "epilogue", names_json(input->epilogue),
        "cost_model", cost_models[input->cost_model], "unit_time", input->unit_time_s,
        "noise_factor", input->noise_factor);
}

/* Adds the powers of kinds of waits, and the power of a GPU of each rank after its last
 * instruction.
 */
static void add_wait_powers(const harpe_problem_input *input, json_t *object) {
    size_t count = 0;
    const harpe_wait_power *rows = harpe_wait_powers_rows(input->wait_powers, &count);
    json_t *list = json_array(), *at_end = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *rank = rows[i].rank < 0 ? json_null() : json_integer(rows[i].rank);
        json_t *wait = *rows[i].wait ? json_string(rows[i].wait) : json_null();
        json_array_append_new(list, json_pack("{s:o, s:o, s:f}", "rank", rank, "wait", wait,
                                              "power_w", rows[i].power_w));
    }
    for (int rank = 0; rank < harpe_problem_rank_count(input->problem); rank++) {
        size_t length = harpe_problem_rank_length(input->problem, rank);
        double power_w = harpe_problem_wait_power_w(input->problem, rank, length);
        json_array_append_new(at_end,
                              json_real(power_w / harpe_problem_gpu_count(input->problem, rank)));
    }
    json_object_set_new(object, "wait_powers", list);
    json_object_set_new(object, "end_wait_power_w", at_end);
}

/* Returns the numbers of a graph's problem. */
static json_t *graph_json(const harpe_graph *graph, const harpe_problem *problem) {
    json_t *power = json_array(), *gpus = json_array(), *names = json_array();
    size_t resources = harpe_graph_resource_count(graph);
    for (size_t r = 0; r < resources; r++) {
        const harpe_graph_resource *resource = harpe_graph_resource_at(graph, r);
        json_array_append_new(names, harpe_command_json_text(resource->name));
        json_array_append_new(power, json_real(resource->blocking_power_w));
        json_array_append_new(gpus, json_integer(1));
    }
    if (resources == 0) { /* harpe choose needs one value */
        json_array_append_new(power, json_real(0));
        json_array_append_new(gpus, json_integer(1));
    }
    return json_pack("{s:o, s:I, s:I, s:o, s:o}", "resources", names, "activities",
                     (json_int_t)harpe_graph_activity_count(graph), "instructions",
                     (json_int_t)harpe_problem_instruction_count(problem), "blocking_power_w",
                     power, "gpus", gpus);
}

json_t *harpe_problem_input_json(const harpe_problem_input *input) {
    if (input->graph_path) return graph_json(input->graph, input->problem);
    json_t *power = json_array(), *gpus = json_array();
    for (int rank = 0; rank < harpe_problem_rank_count(input->problem); rank++) {
        json_array_append_new(power, json_real(blocking_power_w(input, rank)));
        json_array_append_new(gpus, json_integer(harpe_problem_gpu_count(input->problem, rank)));
    }
    json_t *object = json_pack(
        "{s:s, s:i, s:i, s:i, s:I, s:o, s:f, s:o}", "schedule",
        harpe_schedule_name(input->schedule), "ranks", harpe_schedule_rank_count(input->schedule),
        "stages", harpe_schedule_stage_count(input->schedule), "microbatches",
        harpe_schedule_microbatch_count(input->schedule), "instructions",
        (json_int_t)harpe_problem_instruction_count(input->problem), "blocking_power_w", power,
        "overhead_power_w", input->overhead_power_w, "gpus", gpus);
    if (input->wait_powers) add_wait_powers(input, object);
    return object;
}

static void describe_pipeline(const harpe_problem_input *input, harpe_text *text) {
    int stages = harpe_schedule_stage_count(input->schedule);
    int ranks = harpe_schedule_rank_count(input->schedule);
    int gpus = harpe_problem_total_gpu_count(input->problem);
    int microbatches = harpe_schedule_microbatch_count(input->schedule);
    harpe_text_printf(text, "%s: %d stage%s", harpe_plan_name_of(input->profile_path), stages,
                      stages == 1 ? "" : "s");
    if (ranks != stages) harpe_text_printf(text, " on %d rank%s", ranks, ranks == 1 ? "" : "s");
    if (gpus != ranks) harpe_text_printf(text, " of %d GPUs in all", gpus);
    harpe_text_printf(
        text, " x %d microbatch%s, schedule %s, ", microbatches, microbatches == 1 ? "" : "es",
        input->schedule_is_file ? harpe_plan_name_of(input->schedule_name) : input->schedule_name);
    if (input->wait_powers)
        harpe_text_printf(text, "blocking powers of %s",
                          harpe_plan_name_of(input->wait_powers_path));
    else if (input->blocking_power_count == 1)
        harpe_text_printf(text, "blocking power %g W per GPU", input->blocking_power_w[0]);
    else
        harpe_text_printf(text, "blocking power %s W in all",
                          HARPE_DIGITS(input->problem->total_blocking_power_w, 6));
    if (input->overhead_power_w > 0)
        harpe_text_printf(text, ", overhead power %s W", HARPE_DIGITS(input->overhead_power_w, 6));
    if (input->transfer_time_s > 0)
        harpe_text_printf(text, ", transfer time %s s", HARPE_DIGITS(input->transfer_time_s, 6));
}

void harpe_problem_input_describe(const harpe_problem_input *input, harpe_text *text) {
    if (!input->graph) {
        describe_pipeline(input, text);
        return;
    }
    size_t activities = harpe_graph_activity_count(input->graph);
    size_t resources = harpe_graph_resource_count(input->graph);
    harpe_text_printf(text, "%s: %zu activit%s on %zu resource%s, blocking power %s W in all",
                      harpe_plan_name_of(input->graph_path), activities,
                      activities == 1 ? "y" : "ies", resources, resources == 1 ? "" : "s",
                      HARPE_DIGITS(input->problem->total_blocking_power_w, 6));
}

void harpe_problem_input_print(const harpe_problem_input *input) {
    const char *path = input->graph ? input->graph_path : input->profile_path;
    int length = (int)strlen(harpe_plan_name_of(path));
    harpe_text line = {0};
    harpe_problem_input_describe(input, &line);
    if (!line.failed)
        printf("%s%.*s%s%s\n", harpe_bold_start(), length, line.data, harpe_bold_end(),
               line.data + length);
    harpe_text_free(&line);
}
