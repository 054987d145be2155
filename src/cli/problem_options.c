/* SPDX-License-Identifier: Apache-2.0 */
/* The flags that describe a planning problem, and the problem made from them. Values are checked
 * while the command line is read, before any file is; what only the files can tell (stages that do
 * not fit) is checked while loading. */
#include "cli/problem_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "cli/command.h"
#include "plan/problem.h"
#include "plan/schedule.h"

#define BLOCKING_POWER_MAX_W 1e5
#define DEFAULT_UNIT_TIME_S 0.001
#define DEFAULT_NOISE_FACTOR 0.95
#define MEMORY_LIMIT_MAX_GIB 65536
#define GPUS_PER_STAGE_MAX 65536

/* ---- Flags -------------------------------------------------------------------------------- */

enum flag {
    FLAG_PROFILE = 'i',
    FLAG_MICROBATCHES = 'm',
    FLAG_STAGES = 'n',
    FLAG_POWER = 'p',
    FLAG_SCHEDULE = 's',
    FLAG_CHUNKS = 0x100,
    FLAG_PROLOGUE,
    FLAG_EPILOGUE,
    FLAG_COST_MODEL,
    FLAG_UNIT_TIME,
    FLAG_NOISE_FACTOR,
    FLAG_MEMORY_LIMIT,
    FLAG_GPUS,
};

static const struct argp_option flags[] = {
    {NULL, 0, NULL, 0, "The problem:", 1},
    {"inst-profile", FLAG_PROFILE, "FILE", 0,
     "Measured time and energy of every instruction (CSV, see harpe-profile(5)); required", 1},
    {"num-mbs", FLAG_MICROBATCHES, "M", 0,
     "Microbatches in one iteration; required unless the schedule is a file", 1},
    {"num-stages", FLAG_STAGES, "N", 0, "Pipeline stages (default: as many as the profile has)", 1},
    {"gpus-per-stage", FLAG_GPUS, "N", 0,
     "GPUs whose energy each row of the profile adds up, where the profile does not say it by a "
     "column rank or gpus (default 1)",
     1},
    {"p2p-power", FLAG_POWER, "W[,W...]", 0,
     "Blocking power: watts that one GPU draws while it waits for its neighbour; one number, or "
     "one "
     "per pipeline rank; required",
     1},
    {"schedule", FLAG_SCHEDULE, "NAME|FILE", 0,
     "Pipeline schedule by name (default 1f1b; names below), or a CSV file of "
     "torch.distributed.pipelining",
     1},
    {"chunks", FLAG_CHUNKS, "K", 0, "Model chunks per rank, where the schedule has several", 1},
    {"prologue", FLAG_PROLOGUE, "A,B", 0,
     "Instructions that every rank runs first, for example dataload", 1},
    {"epilogue", FLAG_EPILOGUE, "A,B", 0,
     "Instructions that every rank runs last, for example optimizer", 1},
    {NULL, 0, NULL, 0, "The relaxation:", 2},
    {"cost-model", FLAG_COST_MODEL, "NAME", 0,
     "hull (default): the measured points themselves; exponential: a fitted curve", 2},
    {"unit-time", FLAG_UNIT_TIME, "S", 0, "Exponential model's grid in s (default 0.001)", 2},
    {"noise-factor", FLAG_NOISE_FACTOR, "X", 0,
     "Looser Pareto filter where the exponential model has fewer than 4 points (default 0.95)", 2},
    {"memory-limit", FLAG_MEMORY_LIMIT, "GIB", 0, "Refuse larger problems (default 4)", 2},
    {0},
};

static harpe_problem_input *input_of(const struct argp_state *state) { return state->input; }

/* Splits "a,b" into a NULL-terminated list with its texts in one allocation. */
static char **split_names(const struct argp_state *state, const char *flag, const char *text) {
    size_t count = 1;
    for (const char *c = text; *c; c++) {
        count += *c == ',';
    }
    char **names = harpe_calloc(count + 1, sizeof *names);
    char *copy = strdup(text);
    if (!names || !copy) {
        harpe_flag_fail(state, "out of memory");
    }
    char *rest = copy;
    for (size_t i = 0; i < count; i++) {
        names[i] = strsep(&rest, ",");
        if (!*names[i]) {
            harpe_flag_fail(state, "%s: expected names separated by commas, found '%s'", flag,
                            text);
        }
    }
    return names;
}

static void free_names(char **names) {
    if (names) {
        free(names[0]);
        free(names);
    }
}

static void parse_blocking_power(const struct argp_state *state, const char *text) {
    harpe_problem_input *input = input_of(state);
    char **parts = split_names(state, "--p2p-power", text);
    size_t count = 0;
    while (parts[count]) {
        count++;
    }
    double *values = harpe_calloc(count, sizeof *values);
    if (!values) {
        harpe_flag_fail(state, "out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        values[i] = harpe_flag_double(state, "--p2p-power", parts[i], 0, BLOCKING_POWER_MAX_W);
    }
    free_names(parts);
    free(input->blocking_power_w);
    input->blocking_power_w = values;
    input->blocking_power_count = count;
}

/* A name that is not built in is a file when it looks like one, else a mistyped name. */
static void parse_schedule(const struct argp_state *state, const char *text) {
    harpe_problem_input *input = input_of(state);
    const char *names[64] = {NULL};
    bool is_built_in = false;
    for (int i = 0; i < 63 && harpe_schedule_name_at(i); i++) {
        names[i] = harpe_schedule_name_at(i);
        is_built_in = is_built_in || strcmp(names[i], text) == 0;
    }
    if (!is_built_in && !strpbrk(text, "./")) {
        const char *closest = harpe_closest_name(text, names);
        if (closest) {
            harpe_flag_fail(state, "--schedule: there is no schedule '%s'; did you mean '%s'?",
                            text, closest);
        }
        (void)harpe_flag_choice(state, "--schedule", text, names);
    }
    input->schedule_name = text;
    input->schedule_is_file = !is_built_in;
}

static void check_complete(const struct argp_state *state) {
    const harpe_problem_input *input = input_of(state);
    if (!input->profile_path || !*input->profile_path) {
        harpe_flag_fail(state, "--inst-profile is missing: name the CSV file with each "
                               "instruction's time and energy ('harpe synth' makes one to try)");
    }
    if (input->microbatches == 0 && !input->schedule_is_file) {
        harpe_flag_fail(state, "--num-mbs is missing: say how many microbatches an iteration has");
    }
    if (!input->blocking_power_w) {
        harpe_flag_fail(state,
                        "--p2p-power is missing: give the watts that one GPU draws while it waits "
                        "for its neighbour (measure it on a blocked receive; an A100 draws 70 to "
                        "85 W; 0 leaves waiting out of the sum)");
    }
    if (input->schedule_is_file && (input->chunks || input->prologue || input->epilogue)) {
        harpe_flag_fail(state, "--chunks, --prologue and --epilogue do not go with a schedule "
                               "file, which says itself what each rank runs");
    }
}

static error_t parse_relaxation_flag(int key, char *argument, struct argp_state *state) {
    static const char *const models[] = {"hull", "exponential", NULL};
    harpe_problem_input *input = input_of(state);
    switch (key) {
    case FLAG_COST_MODEL:
        input->cost_model =
            (harpe_cost_model)harpe_flag_choice(state, "--cost-model", argument, models);
        return 0;
    case FLAG_UNIT_TIME:
        input->unit_time_s = harpe_flag_double(state, "--unit-time", argument, 1e-6, 3600);
        return 0;
    case FLAG_NOISE_FACTOR:
        input->noise_factor = harpe_flag_double_above(state, "--noise-factor", argument, 0, 1);
        return 0;
    case FLAG_MEMORY_LIMIT:
        input->memory_limit_bytes =
            (uint64_t)harpe_flag_int(state, "--memory-limit", argument, 1, MEMORY_LIMIT_MAX_GIB)
            << 30;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    harpe_problem_input *input = input_of(state);
    switch (key) {
    case ARGP_KEY_INIT:
        input->schedule_name = "1f1b";
        input->unit_time_s = DEFAULT_UNIT_TIME_S;
        input->noise_factor = DEFAULT_NOISE_FACTOR;
        return 0;
    case ARGP_KEY_END: check_complete(state); return 0;
    case FLAG_PROFILE: input->profile_path = argument; return 0;
    case FLAG_MICROBATCHES:
        input->microbatches =
            harpe_flag_int(state, "--num-mbs", argument, 1, HARPE_MICROBATCHES_MAX);
        return 0;
    case FLAG_STAGES:
        input->ranks = harpe_flag_int(state, "--num-stages", argument, 1, HARPE_RANKS_MAX);
        return 0;
    case FLAG_GPUS:
        input->gpus_per_stage =
            harpe_flag_int(state, "--gpus-per-stage", argument, 1, GPUS_PER_STAGE_MAX);
        return 0;
    case FLAG_CHUNKS:
        input->chunks = harpe_flag_int(state, "--chunks", argument, 1, HARPE_STAGE_MAX + 1);
        return 0;
    case FLAG_POWER: parse_blocking_power(state, argument); return 0;
    case FLAG_SCHEDULE: parse_schedule(state, argument); return 0;
    case FLAG_PROLOGUE:
        free_names(input->prologue);
        input->prologue = split_names(state, "--prologue", argument);
        return 0;
    case FLAG_EPILOGUE:
        free_names(input->epilogue);
        input->epilogue = split_names(state, "--epilogue", argument);
        return 0;
    default: return parse_relaxation_flag(key, argument, state);
    }
}

enum { HELP_NAME_WIDTH = 26, HELP_WIDTH = 78 };

/* One schedule's name and description; lines after the first start below the description. */
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

/* Adds the schedules' names to --help. */
static char *extend_help(int key, const char *text, void *input) {
    (void)input;
    if (key != ARGP_KEY_HELP_EXTRA) {
        return (char *)text;
    }
    harpe_text help = {0};
    harpe_text_printf(&help, "Schedules:\n");
    for (int i = 0; harpe_schedule_name_at(i); i++) {
        append_schedule_help(&help, harpe_schedule_name_at(i), harpe_schedule_description_at(i));
    }
    return help.data; /* argp frees it */
}

const struct argp harpe_problem_argp = {
    .options = flags,
    .parser = parse_flag,
    .help_filter = extend_help,
};

/* ---- Loading ------------------------------------------------------------------------------ */

static harpe_schedule_options schedule_options(const harpe_problem_input *input) {
    return (harpe_schedule_options){
        .name = input->schedule_name,
        .ranks = input->ranks,
        .microbatches = input->microbatches,
        .chunks = input->chunks,
        .prologue = (const char *const *)input->prologue,
        .epilogue = (const char *const *)input->epilogue,
    };
}

/* How many stages a rank has in the schedule: asked of the smallest schedule of its kind. */
static harpe_status find_chunks(const harpe_problem_input *input, int *chunks, harpe_error *error) {
    harpe_schedule_options options = schedule_options(input);
    options.ranks = 1;
    options.microbatches = 2;
    harpe_schedule *smallest = NULL;
    harpe_status status = harpe_schedule_new(&options, &smallest, error);
    if (status == HARPE_OK) {
        *chunks = harpe_schedule_stage_count(smallest);
        harpe_schedule_free(smallest);
    }
    return status;
}

/* The library's refusal of what is too large, with what can be done about it here. */
static harpe_status check_memory(const harpe_problem_input *input, uint64_t instructions,
                                 harpe_error *error) {
    harpe_error reason;
    if (harpe_problem_check_size(instructions, input->memory_limit_bytes, &reason) == HARPE_OK) {
        return HARPE_OK;
    }
    bool is_possible = harpe_problem_check_size(instructions, UINT64_MAX, NULL) == HARPE_OK;
    return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s%s", reason.message,
                      is_possible ? ", or raise --memory-limit" : "");
}

/* A schedule that cannot be planned anyway is not made: it alone may be gigabytes. A forward and a
 * backward for each stage and microbatch is the least it can have; an overlapped pair is one. */
static harpe_status check_schedule_size(const harpe_problem_input *input, int stages,
                                        harpe_error *error) {
    uint64_t pairs = (uint64_t)stages * (uint64_t)input->microbatches;
    bool is_too_large =
        harpe_problem_check_size(pairs, input->memory_limit_bytes, NULL) != HARPE_OK;
    return is_too_large ? check_memory(input, 2 * pairs, error) : HARPE_OK;
}

static harpe_status build_schedule(harpe_problem_input *input, harpe_error *error) {
    int profile_stages = harpe_profile_stage_count(input->profile);
    int chunks = 0;
    harpe_status status = find_chunks(input, &chunks, error);
    if (status != HARPE_OK) {
        return status;
    }
    harpe_schedule_options options = schedule_options(input);
    if (options.ranks == 0) {
        options.ranks = profile_stages / chunks;
        if (profile_stages % chunks != 0) {
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s has %d stages, which cannot be shared out by %d to a rank as %s "
                              "needs",
                              input->profile_path, profile_stages, chunks, input->schedule_name);
        }
    }
    status = check_schedule_size(input, options.ranks * chunks, error);
    return status == HARPE_OK ? harpe_schedule_new(&options, &input->schedule, error) : status;
}

static harpe_status read_schedule(harpe_problem_input *input, harpe_error *error) {
    harpe_schedule *schedule = NULL;
    harpe_status status = harpe_schedule_read_csv(input->schedule_name, &schedule, error);
    if (status != HARPE_OK) {
        return status;
    }
    input->schedule = schedule;
    int microbatches = harpe_schedule_microbatch_count(schedule);
    int ranks = harpe_schedule_rank_count(schedule);
    if (input->microbatches && input->microbatches != microbatches) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "--num-mbs %d, but %s has %d microbatches (leave the flag out)",
                          input->microbatches, input->schedule_name, microbatches);
    }
    if (input->ranks && input->ranks != ranks) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "--num-stages %d, but %s has %d ranks (leave the flag out)", input->ranks,
                          input->schedule_name, ranks);
    }
    return HARPE_OK;
}

static harpe_status check_blocking_power(const harpe_problem_input *input, harpe_error *error) {
    int ranks = harpe_schedule_rank_count(input->schedule);
    size_t given = input->blocking_power_count;
    if (given == 1 || given == (size_t)ranks) {
        return HARPE_OK;
    }
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "--p2p-power: %zu values for %d ranks; give one, or one for each rank", given,
                      ranks);
}

harpe_status harpe_problem_input_load(harpe_problem_input *input, harpe_error *error) {
    harpe_status status = harpe_profile_read_csv(input->profile_path, &input->profile, error);
    if (status == HARPE_OK) {
        status =
            input->schedule_is_file ? read_schedule(input, error) : build_schedule(input, error);
    }
    if (status == HARPE_OK) {
        status = check_blocking_power(input, error);
    }
    if (status == HARPE_OK) {
        status = check_memory(input, harpe_schedule_instruction_count(input->schedule), error);
    }
    if (status != HARPE_OK) {
        return status;
    }
    harpe_error reason;
    harpe_problem_options options = {
        .blocking_power_w = input->blocking_power_w,
        .blocking_power_count = input->blocking_power_count,
        .cost_model = input->cost_model,
        .unit_time_s = input->unit_time_s,
        .noise_factor = input->noise_factor,
        .memory_limit_bytes = input->memory_limit_bytes,
        .gpus_per_stage = input->gpus_per_stage,
    };
    status = harpe_problem_new(input->profile, input->schedule, &options, &input->problem, &reason);
    if (status == HARPE_OK) {
        return status;
    }
    return harpe_fail(error, status, "%s: %s", input->profile_path, reason.message);
}

void harpe_problem_input_free(harpe_problem_input *input) {
    harpe_problem_free(input->problem);
    harpe_schedule_free(input->schedule);
    harpe_profile_free(input->profile);
    free(input->blocking_power_w);
    free_names(input->prologue);
    free_names(input->epilogue);
    *input = (harpe_problem_input){0};
}

/* ---- Telling ------------------------------------------------------------------------------ */

double harpe_problem_input_blocking_power_w(const harpe_problem_input *input, int rank) {
    return input->blocking_power_w[input->blocking_power_count == 1 ? 0 : rank];
}

double harpe_problem_input_total_blocking_power_w(const harpe_problem_input *input) {
    double total_w = 0;
    for (int rank = 0; rank < harpe_problem_rank_count(input->problem); rank++) {
        total_w += harpe_problem_gpu_count(input->problem, rank) *
                   harpe_problem_input_blocking_power_w(input, rank);
    }
    return total_w;
}

static json_t *names_json(char **names) {
    json_t *list = json_array();
    for (; names && *names; names++) {
        json_array_append_new(list, json_string(*names));
    }
    return list;
}

static json_t *numbers_json(const double *values, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(list, json_real(values[i]));
    }
    return list;
}

static const char *cost_model_name(harpe_cost_model model) {
    return model == HARPE_COST_EXPONENTIAL ? "exponential" : "hull";
}

/* An integer, or null where the flag was not given. */
static json_t *given_or_null(int value) { return value ? json_integer(value) : json_null(); }

json_t *harpe_problem_input_arguments(const harpe_problem_input *input) {
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:f, s:f}", "inst_profile",
                     harpe_command_json_text(input->profile_path), "num_mbs",
                     given_or_null(input->microbatches), "num_stages", given_or_null(input->ranks),
                     "gpus_per_stage", given_or_null(input->gpus_per_stage), "p2p_power",
                     numbers_json(input->blocking_power_w, input->blocking_power_count), "schedule",
                     harpe_command_json_text(input->schedule_name), "chunks",
                     given_or_null(input->chunks), "prologue", names_json(input->prologue),
                     "epilogue", names_json(input->epilogue), "cost_model",
                     cost_model_name(input->cost_model), "unit_time", input->unit_time_s,
                     "noise_factor", input->noise_factor);
}

json_t *harpe_problem_input_json(const harpe_problem_input *input) {
    json_t *power = json_array(), *gpus = json_array();
    for (int rank = 0; rank < harpe_problem_rank_count(input->problem); rank++) {
        json_array_append_new(power, json_real(harpe_problem_input_blocking_power_w(input, rank)));
        json_array_append_new(gpus, json_integer(harpe_problem_gpu_count(input->problem, rank)));
    }
    return json_pack("{s:s, s:i, s:i, s:i, s:I, s:o, s:o}", "schedule",
                     harpe_schedule_name(input->schedule), "ranks",
                     harpe_schedule_rank_count(input->schedule), "stages",
                     harpe_schedule_stage_count(input->schedule), "microbatches",
                     harpe_schedule_microbatch_count(input->schedule), "instructions",
                     (json_int_t)harpe_problem_instruction_count(input->problem),
                     "blocking_power_w", power, "gpus", gpus);
}

static const char *file_name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void harpe_problem_input_print(const harpe_problem_input *input) {
    int stages = harpe_schedule_stage_count(input->schedule);
    int ranks = harpe_schedule_rank_count(input->schedule);
    printf("%s%s%s: %d stages", harpe_bold_start(), file_name_of(input->profile_path),
           harpe_bold_end(), stages);
    if (ranks != stages) {
        printf(" on %d ranks", ranks);
    }
    int gpus = harpe_problem_total_gpu_count(input->problem);
    if (gpus != ranks) {
        printf(" of %d GPUs in all", gpus);
    }
    printf(" x %d microbatches, schedule %s, ", harpe_schedule_microbatch_count(input->schedule),
           input->schedule_is_file ? file_name_of(input->schedule_name) : input->schedule_name);
    if (input->blocking_power_count == 1) {
        printf("blocking power %g W per GPU\n", input->blocking_power_w[0]);
    } else {
        printf("blocking power %s W in all\n",
               HARPE_DIGITS(harpe_problem_input_total_blocking_power_w(input), 6));
    }
}
