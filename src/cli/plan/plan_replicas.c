/* SPDX-License-Identifier: Apache-2.0 */
/* Plans all pipeline replicas of a job: reads the flags and the profiles of the GPUs, and makes the
 * plans. replica_output.c prints and writes them. */
#include "cli/plan/plan_replicas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "cli/command.h"

#define TIME_MAX_S 1e9
#define SLOWDOWN_MAX 1e6
#define USUAL_DEVIATION 0.03

/* ---- Flags ----------------------------------------------------------------------------------- */

enum flag { FLAG_REPLICAS = 0x300, FLAG_REPLICA, FLAG_TIME, FLAG_SLOWDOWN, FLAG_SMOOTH };

static const struct argp_option flags[] = {
    {NULL, 0, NULL, 0, "A plan for each GPU of a data or tensor parallel job:", 3},
    {"replicas", FLAG_REPLICAS, NULL, 0,
     "The profile has the columns replica and gpu: it is of all GPUs of all pipeline replicas", 3},
    {"replica", FLAG_REPLICA, "FILE", 0,
     "The profile of a further pipeline replica; give it once for each replica but the first, "
     "whose "
     "profile is --inst-profile",
     3},
    {"time", FLAG_TIME, "S", 0,
     "An iteration of the job may take S seconds (default: the shortest time of the slowest "
     "replica)",
     3},
    {"slowdown", FLAG_SLOWDOWN, "X", 0,
     "An iteration of the job may take X times the shortest time of the slowest replica", 3},
    {"smooth", FLAG_SMOOTH, "X", OPTION_ARG_OPTIONAL,
     "Remove noise from the profiles: GPUs that differ by the same factor at all clocks, up to a "
     "standard deviation of X (default 0.03), are taken to differ by this factor alone",
     3},
    {0},
};

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    harpe_replica_input *input = state->input;
    switch (key) {
    case ARGP_KEY_INIT: input->smooth = -1; return 0;
    case FLAG_REPLICAS: input->has_columns = true; return 0;
    case FLAG_REPLICA:
        if (!HARPE_ARRAY_RESERVE(input->more_paths, input->more_capacity, input->more_count + 1))
            harpe_flag_fail(state, "out of memory");
        input->more_paths[input->more_count++] = argument;
        return 0;
    case FLAG_TIME:
        input->time_s = harpe_flag_double_above(state, "--time", argument, 0, TIME_MAX_S);
        return 0;
    case FLAG_SLOWDOWN:
        input->slowdown = harpe_flag_double(state, "--slowdown", argument, 1, SLOWDOWN_MAX);
        return 0;
    case FLAG_SMOOTH:
        input->smooth =
            argument ? harpe_flag_double(state, "--smooth", argument, 0, 1) : USUAL_DEVIATION;
        return 0;
    case ARGP_KEY_END:
        if (input->has_columns && input->more_count > 0)
            harpe_flag_fail(state, "--replicas and --replica: give one file with the column "
                                   "replica, or a file for each replica");
        if (input->time_s > 0 && input->slowdown > 0)
            harpe_flag_fail(state, "--time and --slowdown: give one of them");
        if (!harpe_replica_input_is_given(input) &&
            (input->time_s > 0 || input->slowdown > 0 || input->smooth >= 0))
            harpe_flag_fail(state, "--time, --slowdown and --smooth need --replicas or --replica");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

const struct argp harpe_replica_argp = {.options = flags, .parser = parse_flag};

bool harpe_replica_input_is_given(const harpe_replica_input *replicas) {
    return replicas->has_columns || replicas->more_count > 0;
}

void harpe_replica_input_free(harpe_replica_input *replicas) { free(replicas->more_paths); }

/* ---- Profiles -------------------------------------------------------------------------------- */

/* Without --p2p-power, every GPU must have its blocking power. */
static harpe_status check_blocking_power(const harpe_problem_input *input,
                                         const harpe_replica_profiles *profiles,
                                         harpe_error *error) {
    if (input->blocking_power_w) return HARPE_OK;
    int replicas = harpe_replica_profiles_replica_count(profiles);
    for (int r = 0; r < replicas; r++) {
        for (int g = 0; g < harpe_replica_profiles_peer_count(profiles); g++) {
            const harpe_profile *gpu = harpe_replica_profiles_at(profiles, r, g);
            for (int s = 0; s < harpe_profile_stage_count(gpu); s++)
                if (harpe_profile_blocking_power_w(gpu, s) <= 0)
                    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                                      "--p2p-power is missing, and the profile has no "
                                      "blocking_power for stage %d, gpu %d of replica %d: give the "
                                      "watts that one GPU draws while it waits for its neighbour",
                                      s, g, r);
        }
    }
    return HARPE_OK;
}

/* Checks the profiles. Then prints the warnings about the first GPU that has some. `files` are the
 * profiles of the replicas as they were read; NULL: those of `read`. */
static harpe_status check(const harpe_replica_command *command, const harpe_replica_profiles *read,
                          harpe_profile *const *files, harpe_error *error) {
    harpe_status status = check_blocking_power(command->input, read, error);
    int peers = harpe_replica_profiles_peer_count(read);
    int count = harpe_replica_profiles_replica_count(read) * peers;
    const char *warning = NULL;
    for (int g = 0; g < count && status == HARPE_OK && !command->quiet && !warning; g++) {
        const harpe_profile *gpu =
            files ? files[g] : harpe_replica_profiles_at(read, g / peers, g % peers);
        warning = harpe_profile_warning_at(gpu, 0);
        const char *next = warning;
        for (size_t i = 1; next; next = harpe_profile_warning_at(gpu, i++))
            fprintf(stderr, "harpe plan: warning: %s\n", next);
    }
    return status;
}

/* Reads a profile for each replica. A replica has one GPU for each stage then. */
static harpe_status read_files(const harpe_replica_command *command, harpe_replica_profiles **out,
                               harpe_error *error) {
    const harpe_replica_input *replicas = command->replicas;
    size_t count = replicas->more_count + 1;
    harpe_profile **profiles = harpe_calloc(count, sizeof(harpe_profile *));
    if (!profiles) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    for (size_t r = 0; r < count && status == HARPE_OK; r++) {
        const char *path = r == 0 ? command->input->profile_path : replicas->more_paths[r - 1];
        status = harpe_profile_read_csv(path, &profiles[r], error);
        for (int s = 0; status == HARPE_OK && s < harpe_profile_stage_count(profiles[r]); s++)
            if (harpe_profile_gpu_count(profiles[r], s) > 1)
                status = harpe_fail(error, HARPE_INVALID_INPUT,
                                    "%s: stage %d has %d GPUs: give the rows of each GPU in one "
                                    "file with the columns replica and gpu, and --replicas",
                                    path, s, harpe_profile_gpu_count(profiles[r], s));
    }
    if (status == HARPE_OK)
        status = harpe_replica_profiles_new((const harpe_profile *const *)profiles, (int)count, 1,
                                            out, error);
    if (status == HARPE_OK) status = check(command, *out, profiles, error);
    for (size_t r = 0; r < count; r++)
        harpe_profile_free(profiles[r]);
    free(profiles);
    return status;
}

static harpe_status read_profiles(const harpe_replica_command *command,
                                  harpe_replica_profiles **out, harpe_error *error) {
    harpe_replica_profiles *read = NULL;
    harpe_status status = HARPE_OK;
    if (command->replicas->has_columns) {
        status = harpe_replica_profiles_read_csv(command->input->profile_path, &read, error);
        if (status == HARPE_OK) status = check(command, read, NULL, error);
    } else {
        status = read_files(command, &read, error);
    }
    if (status == HARPE_OK && command->replicas->smooth >= 0) {
        harpe_replica_profiles *smooth = NULL;
        status = harpe_replica_profiles_smooth(read, command->replicas->smooth, &smooth, error);
        harpe_replica_profiles_free(read);
        read = smooth;
    }
    if (status != HARPE_OK) {
        harpe_replica_profiles_free(read);
        return status;
    }
    *out = read;
    return HARPE_OK;
}

/* The schedule is made for the profile of the first GPU. The input owns it. */
static harpe_status make_schedule(harpe_problem_input *input,
                                  const harpe_replica_profiles *profiles, harpe_error *error) {
    harpe_profile *borrowed = (harpe_profile *)harpe_replica_profiles_at(profiles, 0, 0);
    input->profile = borrowed;
    harpe_status status = harpe_problem_input_schedule(input, error);
    input->profile = NULL;
    return status;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

harpe_status harpe_replica_result_make(const harpe_replica_command *command,
                                       const harpe_progress *progress, harpe_replica_result *result,
                                       harpe_error *error) {
    harpe_problem_input *input = command->input;
    harpe_replica_request request = {.time_s = command->replicas->time_s,
                                     .slowdown = command->replicas->slowdown,
                                     .threads = command->threads,
                                     .max_peak_power_w = command->limits->max_peak_power_w,
                                     .max_swing_w = command->limits->max_swing_w,
                                     .max_swing_share = command->limits->max_swing_share};
    harpe_status status = HARPE_OK;
    if (input->wait_powers_path)
        status = harpe_fail(error, HARPE_INVALID_ARGUMENT,
                            "--wait-powers: plans for each GPU know one power for all waits; leave "
                            "it out");
    if (status == HARPE_OK) status = read_profiles(command, &result->profiles, error);
    if (status == HARPE_OK) status = make_schedule(input, result->profiles, error);
    if (status == HARPE_OK) status = harpe_command_check_signal(error);
    if (status != HARPE_OK) return status;
    harpe_problem_options options = harpe_problem_input_options(input);
    double began_s = harpe_clock_s();
    status = harpe_replica_plans_new(result->profiles, input->schedule, &options, &request,
                                     progress, &result->plans, error);
    result->seconds = harpe_clock_s() - began_s;
    if (status != HARPE_OK || !command->verify) return status;
    status = harpe_replica_plans_verify(result->plans, result->profiles, input->schedule, &options,
                                        error);
    result->verified = status == HARPE_OK;
    return status;
}

void harpe_replica_result_free(harpe_replica_result *result) {
    harpe_replica_plans_free(result->plans);
    harpe_replica_profiles_free(result->profiles);
    *result = (harpe_replica_result){0};
}
