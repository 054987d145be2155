/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe synth`: makes a synthetic but physically plausible profile, for people who have none yet.
 * This file reads flags and writes output; the library contains the model. */
#include <string.h>

#include <harpe/profile.h>
#include <harpe/replicas.h>

#include "base/error.h"
#include "base/terminal_progress.h"
#include "cli/commands.h"
#include "cli/gpu_names.h"
#include "plan/profile_csv.h"

#define STAGES_MAX 4096
#define DEFAULT_IMBALANCE 1.1
#define DEFAULT_VARIABILITY 0.08

typedef struct synth_arguments {
    harpe_synth_options options;
    harpe_variability job;   /* without replicas and peers: one profile */
    const char *output_path; /* NULL: stdout */
    bool force;
    bool json;
    bool quiet;
} synth_arguments;

enum flag {
    FLAG_GPU = 'g',
    FLAG_STAGES = 'n',
    FLAG_OUTPUT = 'o',
    FLAG_FORCE = 'f',
    FLAG_IMBALANCE = 0x400,
    FLAG_NOISE,
    FLAG_SEED,
    FLAG_FORWARD_TIME,
    FLAG_SPLIT_BACKWARD,
    FLAG_REPLICAS,
    FLAG_PEERS,
    FLAG_VARIABILITY,
    FLAG_OUTLIERS,
};

static const struct argp_option flags[] = {
    {"gpu", FLAG_GPU, "MODEL", 0, "GPU model (default A100; models below)", 1},
    {"stages", FLAG_STAGES, "N", 0, "Pipeline stages (default 8)", 1},
    {"num-stages", FLAG_STAGES, NULL, OPTION_ALIAS, NULL, 1},
    {"imbalance", FLAG_IMBALANCE, "X", 0,
     "Work of the slowest stage divided by the mean (default 1.1; 1: perfectly even)", 1},
    {"noise", FLAG_NOISE, "X", 0,
     "Relative standard deviation of each number (default 0.003; 0 to 0.2)", 1},
    {"seed", FLAG_SEED, "N", 0, "The same seed makes the same profile everywhere (default 1)", 1},
    {"forward-time", FLAG_FORWARD_TIME, "S", 0,
     "Mean time of a forward at the highest frequency (default 0.05)", 1},
    {"split-backward", FLAG_SPLIT_BACKWARD, NULL, 0,
     "Also backward_input and backward_weight, for zero-bubble schedules", 1},
    {NULL, 0, NULL, 0, "GPUs that differ (columns replica and gpu, for harpe plan --replicas):", 2},
    {"replicas", FLAG_REPLICAS, "R", 0, "Pipeline replicas of a data parallel job", 2},
    {"gpus-per-stage", FLAG_PEERS, "K", 0, "Tensor parallel GPUs of each stage (default 1)", 2},
    {"variability", FLAG_VARIABILITY, "X", 0,
     "Relative standard deviation of the GPUs' speed and power (default 0.08; 0 to 0.3)", 2},
    {"outliers", FLAG_OUTLIERS, "X", 0,
     "Share of GPUs that are up to 1.5 times as slow (default 0)", 2},
    {NULL, 0, NULL, 0, "Output:", 3},
    {"output", FLAG_OUTPUT, "FILE", 0, "Where to write the CSV (default: standard output)", 3},
    {"force", FLAG_FORCE, NULL, 0, "Replace an existing file", 3},
    {"json", 'j', NULL, 0, "Print a summary as JSON (needs --output)", 3},
    {"quiet", 'q', NULL, 0, "Print no hint about the blocking power on stderr", 3},
    {0},
};

static bool has_job(const synth_arguments *arguments) {
    return arguments->job.replica_count > 0 || arguments->job.peer_count > 0;
}

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    synth_arguments *arguments = state->input;
    harpe_synth_options *options = &arguments->options;
    harpe_variability *job = &arguments->job;
    const char *const *models = harpe_synth_gpu_models();
    const harpe_number_flag numbers[] = {
        {FLAG_STAGES, &options->stages, NULL, 1, STAGES_MAX},
        {FLAG_IMBALANCE, NULL, &options->imbalance, 1, 10},
        {FLAG_NOISE, NULL, &options->noise, 0, 0.2},
        {FLAG_REPLICAS, &job->replica_count, NULL, 1, HARPE_REPLICAS_MAX},
        {FLAG_PEERS, &job->peer_count, NULL, 1, HARPE_REPLICAS_MAX},
        {FLAG_VARIABILITY, NULL, &job->speed_deviation, 0, 0.3},
        {FLAG_OUTLIERS, NULL, &job->outlier_share, 0, 1},
        {0},
    };
    if (harpe_flag_number(state, flags, numbers, key, argument)) return 0;
    switch (key) {
    case FLAG_GPU:
        options->gpu_model = models[harpe_flag_choice(state, "--gpu", argument, models)];
        return 0;
    case FLAG_SEED:
        options->seed = (uint64_t)harpe_flag_int(state, "--seed", argument, 0, INT32_MAX);
        return 0;
    case FLAG_FORWARD_TIME:
        options->forward_time_s =
            harpe_flag_double_above(state, "--forward-time", argument, 0, 3600);
        return 0;
    case FLAG_SPLIT_BACKWARD: options->split_backward = true; return 0;
    case FLAG_OUTPUT: arguments->output_path = argument; return 0;
    case FLAG_FORCE: arguments->force = true; return 0;
    case 'j': arguments->json = true; return 0;
    case 'q': arguments->quiet = true; return 0;
    case ARGP_KEY_ARG:
        harpe_flag_fail(state, "'%s' is not a flag; the file to write is --output FILE", argument);
    case ARGP_KEY_END:
        if (arguments->json && !arguments->output_path)
            harpe_flag_fail(state, "--json needs --output: standard output cannot hold both");
        if (has_job(arguments) && !arguments->output_path)
            harpe_flag_fail(state, "--replicas and --gpus-per-stage need --output FILE");
        if (!has_job(arguments) && (job->speed_deviation >= 0 || job->outlier_share > 0))
            harpe_flag_fail(state, "--variability and --outliers need --replicas or "
                                   "--gpus-per-stage");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argument_parser = {
    .options = flags,
    .parser = parse_flag,
    .doc = "Make a synthetic profile that looks like a measured one, to try Harpe without a "
           "GPU.\vExamples:\n  harpe synth --stages 8 --output profile.csv\n"
           "  harpe synth --stages 8 --replicas 4 --output gpus.csv\n\nSee also: man "
           "harpe-synth",
    .help_filter = harpe_gpu_models_help,
};

/* ---- Output ---------------------------------------------------------------------------------- */

/* Writes the profiles of all GPUs. The noise of --noise is drawn anew for each GPU. */
static harpe_status write_job(const synth_arguments *arguments, double blocking_power_w,
                              harpe_error *error) {
    harpe_synth_options exact = arguments->options;
    harpe_variability job = arguments->job;
    harpe_profile *base = NULL;
    harpe_replica_profiles *gpus = NULL;
    exact.noise = 0;
    job.noise = arguments->options.noise;
    job.seed = job.noise_seed = arguments->options.seed;
    if (job.speed_deviation < 0) job.speed_deviation = DEFAULT_VARIABILITY;
    job.power_deviation = job.speed_deviation;
    harpe_status status = harpe_profile_synthesize(&exact, &base, NULL, error);
    if (status == HARPE_OK)
        status = harpe_replica_profiles_vary(base, blocking_power_w, &job, &gpus, error);
    if (status == HARPE_OK)
        status = harpe_replica_profiles_write_csv(gpus, arguments->output_path, error);
    harpe_replica_profiles_free(gpus);
    harpe_profile_free(base);
    return status;
}

static harpe_status write_profile(const synth_arguments *arguments, const harpe_profile *profile,
                                  harpe_error *error) {
    if (arguments->output_path)
        return harpe_profile_write_csv(profile, arguments->output_path, error);
    harpe_text text = {0};
    harpe_profile_print_csv(profile, &text);
    harpe_status status = HARPE_OK;
    if (text.failed)
        status = harpe_fail_memory(error);
    else
        fwrite(text.data, 1, text.length, stdout); /* a failure is noticed at exit */
    harpe_text_free(&text);
    return status;
}

static harpe_status print_json(const synth_arguments *arguments, const harpe_profile *profile,
                               double blocking_power_w, harpe_error *error) {
    const harpe_synth_options *options = &arguments->options;
    const harpe_variability *job = &arguments->job;
    json_t *object = json_pack(
        "{s:s, s:i, s:f, s:f, s:I, s:b, s:i, s:f, s:i, s:i, s:o}", "gpu", options->gpu_model,
        "stages", options->stages, "imbalance", options->imbalance, "noise", options->noise, "seed",
        (json_int_t)options->seed, "split_backward", options->split_backward, "entries",
        (int)harpe_profile_entry_count(profile), "blocking_power_w", blocking_power_w, "replicas",
        job->replica_count ? job->replica_count : 1, "gpus_per_stage",
        job->peer_count ? job->peer_count : 1, "output",
        harpe_command_json_text(arguments->output_path));
    return harpe_command_print_json(object, error);
}

static harpe_status synthesize(const synth_arguments *arguments, harpe_error *error) {
    harpe_profile *profile = NULL;
    double blocking_power_w = 0;
    harpe_status status =
        harpe_command_check_output(arguments->output_path, arguments->force, error);
    if (status == HARPE_OK)
        status = harpe_profile_synthesize(&arguments->options, &profile, &blocking_power_w, error);
    if (status == HARPE_OK) status = harpe_command_check_signal(error);
    if (status == HARPE_OK)
        status = has_job(arguments) ? write_job(arguments, blocking_power_w, error)
                                    : write_profile(arguments, profile, error);
    if (status == HARPE_OK && arguments->json) {
        status = print_json(arguments, profile, blocking_power_w, error);
    } else if (status == HARPE_OK && !arguments->quiet && !has_job(arguments)) {
        fflush(stdout); /* stdout and stderr may be one file; a failure is noticed at exit */
        fprintf(stderr, "Blocking power of this %s: plan with --p2p-power %g\n",
                arguments->options.gpu_model, blocking_power_w);
    }
    harpe_profile_free(profile);
    return status;
}

int harpe_synth_command(int argc, char **argv) {
    synth_arguments arguments = {
        .options = {.gpu_model = "A100", .stages = 8, .noise = 0.003, .seed = 1},
        .job = {.speed_deviation = -1}, /* not given */
    };
    argp_parse(&argument_parser, argc, argv, 0, NULL, &arguments);
    if (arguments.options.imbalance <= 0)
        arguments.options.imbalance = arguments.options.stages == 1 ? 1 : DEFAULT_IMBALANCE;
    harpe_terminal_progress terminal;
    (void)harpe_terminal_progress_start(&terminal, true);
    harpe_error error;
    harpe_status status = synthesize(&arguments, &error);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("synth", &error);
}
