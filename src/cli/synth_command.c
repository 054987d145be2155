/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe synth`: makes a synthetic but physically plausible profile, for people who have none yet.
 * This file reads flags and writes output; the library contains the model. */
#include <harpe/profile.h>
#include <harpe/replicas.h>

#include "cli/cli.h"
#include "plan/profiles.h"

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

static bool has_job(const synth_arguments *arguments) {
    return arguments->job.replica_count > 0 || arguments->job.peer_count > 0;
}

/* ---- Flags ----------------------------------------------------------------------------------- */

static const harpe_flag flags[] = {
    {"gpu", 'g', "MODEL", "GPU model (default A100; models below)", 1,
     HARPE_READ(harpe_gpu_model_read, synth_arguments, options.gpu_model)},
    {"stages", 'n', "N", "Pipeline stages (default 8)", 1,
     HARPE_INTO(synth_arguments, options.stages), 1, STAGES_MAX},
    {"num-stages", .how = OPTION_ALIAS, .group = 1},
    {"imbalance", 0, "X",
     "Work of the slowest stage divided by the mean (default 1.1; 1: perfectly even)", 1,
     HARPE_INTO(synth_arguments, options.imbalance), 1, 10},
    {"noise", 0, "X", "Relative standard deviation of each number (default 0.003; 0 to 0.2)", 1,
     HARPE_INTO(synth_arguments, options.noise), 0, 0.2},
    {"seed", 0, "N", "The same seed makes the same profile everywhere (default 1)", 1,
     HARPE_INTO(synth_arguments, options.seed), 0, INT32_MAX},
    {"forward-time", 0, "S", "Mean time of a forward at the highest frequency (default 0.05)", 1,
     HARPE_INTO(synth_arguments, options.forward_time_s), 0, 3600, .is_above = true},
    {"split-backward", 0, NULL,
     "Also backward_input and backward_weight, for zero-bubble schedules", 1,
     HARPE_INTO(synth_arguments, options.split_backward)},
    {.help = "GPUs that differ (columns replica and gpu, for harpe plan --replicas):", .group = 2},
    {"replicas", 0, "R", "Pipeline replicas of a data parallel job", 2,
     HARPE_INTO(synth_arguments, job.replica_count), 1, HARPE_REPLICAS_MAX},
    {"gpus-per-stage", 0, "K", "Tensor parallel GPUs of each stage (default 1)", 2,
     HARPE_INTO(synth_arguments, job.peer_count), 1, HARPE_REPLICAS_MAX},
    {"variability", 0, "X",
     "Relative standard deviation of the GPUs' speed and power (default 0.08; 0 to 0.3)", 2,
     HARPE_INTO(synth_arguments, job.speed_deviation), 0, 0.3},
    {"outliers", 0, "X", "Share of GPUs that are up to 1.5 times as slow (default 0)", 2,
     HARPE_INTO(synth_arguments, job.outlier_share), 0, 1},
    {.help = "Output:", .group = 3},
    {"output", 'o', "FILE", "Where to write the CSV (default: standard output)", 3,
     HARPE_INTO(synth_arguments, output_path)},
    {"force", 'f', NULL, "Replace an existing file", 3, HARPE_INTO(synth_arguments, force)},
    {"json", 'j', NULL, "Print a summary as JSON (needs --output)", 3,
     HARPE_INTO(synth_arguments, json)},
    {"quiet", 'q', NULL, "Print no hint about the blocking power on stderr", 3,
     HARPE_INTO(synth_arguments, quiet)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags}},
    .refusal = "is not a flag; the file to write is --output FILE",
    .about = "Make a synthetic profile that looks like a measured one, to try Harpe without a "
             "GPU.\vExamples:\n  harpe synth --stages 8 --output profile.csv\n"
             "  harpe synth --stages 8 --replicas 4 --output gpus.csv\n\nSee also: man harpe-synth",
    .more_help = harpe_gpu_models_help,
};

static void check_usage(const synth_arguments *arguments, const struct argp_state *state) {
    const harpe_variability *job = &arguments->job;
    if (arguments->json && !arguments->output_path)
        harpe_flag_fail(state, "--json needs --output: standard output cannot hold both");
    if (has_job(arguments) && !arguments->output_path)
        harpe_flag_fail(state, "--replicas and --gpus-per-stage need --output FILE");
    if (!has_job(arguments) && (job->speed_deviation >= 0 || job->outlier_share > 0))
        harpe_flag_fail(state, "--variability and --outliers need --replicas or --gpus-per-stage");
}

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
    harpe_text text = {0};
    if (arguments->output_path)
        return harpe_profile_write_csv(profile, arguments->output_path, error);
    harpe_profile_print_csv(profile, &text);
    return harpe_command_write(NULL, &text, error);
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
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &arguments);
    check_usage(&arguments, &state);
    if (arguments.options.imbalance <= 0)
        arguments.options.imbalance = arguments.options.stages == 1 ? 1 : DEFAULT_IMBALANCE;
    harpe_command_catch_signals();
    harpe_error error;
    harpe_status status = synthesize(&arguments, &error);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("synth", &error);
}
