/* SPDX-License-Identifier: Apache-2.0 */
/* Plans all pipeline replicas of a job: reads the flags and the profiles of the GPUs, makes the
 * plans, and prints and writes them. */
#include <math.h>

#include <harpe/version.h>

#include "base/clock.h"
#include "cli/plan/plan_internal.h"

#define TIME_MAX_S 1e9
#define SLOWDOWN_MAX 1e6
#define USUAL_DEVIATION 0.03
#define BOUND_POINTS 200 /* of bound.csv */

/* ---- Flags ----------------------------------------------------------------------------------- */

static void add_replica(void *into, struct argp_state *state, const char *flag, char *text) {
    harpe_replica_input *input = into;
    if (!HARPE_ARRAY_RESERVE(input->more_paths, input->more_capacity, input->more_count + 1))
        harpe_flag_fail(state, "%s: out of memory", flag);
    input->more_paths[input->more_count++] = text;
}

static void read_smooth(void *into, struct argp_state *state, const char *flag, char *text) {
    *(double *)into = text ? harpe_flag_double(state, flag, text, 0, 1, false) : USUAL_DEVIATION;
}

const harpe_flag harpe_replica_flags[] = {
    {.help = "A plan for each GPU of a data or tensor parallel job:", .group = 3},
    {"replicas", 0, NULL,
     "The profile has the columns replica and gpu: it is of all GPUs of all pipeline replicas", 3,
     HARPE_INTO(harpe_replica_input, has_columns)},
    {"replica", 0, "FILE",
     "The profile of a further pipeline replica; give it once for each replica but the first, "
     "whose profile is --inst-profile",
     3, .read = add_replica},
    {"time", 0, "S",
     "An iteration of the job may take S seconds (default: the shortest time of the slowest "
     "replica)",
     3, HARPE_INTO(harpe_replica_input, time_s), 0, TIME_MAX_S, .is_above = true},
    {"slowdown", 0, "X",
     "An iteration of the job may take X times the shortest time of the slowest replica", 3,
     HARPE_INTO(harpe_replica_input, slowdown), 1, SLOWDOWN_MAX},
    {"smooth", 0, "X",
     "Remove noise from the profiles: GPUs that differ by the same factor at all clocks, up to a "
     "standard deviation of X (default 0.03), are taken to differ by this factor alone",
     3, HARPE_READ(read_smooth, harpe_replica_input, smooth), .how = OPTION_ARG_OPTIONAL},
    {0},
};

void harpe_replica_input_check(const harpe_replica_input *input, const struct argp_state *state) {
    if (input->has_columns && input->more_count > 0)
        harpe_flag_fail(state, "--replicas and --replica: give one file with the column replica, "
                               "or a file for each replica");
    if (input->time_s > 0 && input->slowdown > 0)
        harpe_flag_fail(state, "--time and --slowdown: give one of them");
    if (!harpe_replica_input_is_given(input) &&
        (input->time_s > 0 || input->slowdown > 0 || input->smooth >= 0))
        harpe_flag_fail(state, "--time, --slowdown and --smooth need --replicas or --replica");
}

bool harpe_replica_input_is_given(const harpe_replica_input *replicas) {
    return replicas->has_columns || replicas->more_count > 0;
}

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

/* Checks the profiles, and then prints the warnings about the first GPU that has any. `files`: the
 * profiles with the warnings; NULL: those in `read`. */
static harpe_status check(const harpe_plan_arguments *command, const harpe_replica_profiles *read,
                          harpe_profile *const *files, harpe_error *error) {
    harpe_status status = check_blocking_power(&command->input, read, error);
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

/* Reads a profile for each replica, which then has one GPU for each stage. */
static harpe_status read_files(const harpe_plan_arguments *command, harpe_replica_profiles **out,
                               harpe_error *error) {
    const harpe_replica_input *replicas = &command->replicas;
    size_t count = replicas->more_count + 1;
    harpe_profile **profiles = harpe_calloc(count, sizeof(harpe_profile *));
    if (!profiles) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    for (size_t r = 0; r < count && status == HARPE_OK; r++) {
        const char *path = r == 0 ? command->input.profile_path : replicas->more_paths[r - 1];
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

static harpe_status read_profiles(const harpe_plan_arguments *command, harpe_replica_profiles **out,
                                  harpe_error *error) {
    harpe_replica_profiles *read = NULL;
    harpe_status status = HARPE_OK;
    if (command->replicas.has_columns) {
        status = harpe_replica_profiles_read_csv(command->input.profile_path, &read, error);
        if (status == HARPE_OK) status = check(command, read, NULL, error);
    } else {
        status = read_files(command, &read, error);
    }
    if (status == HARPE_OK && command->replicas.smooth >= 0) {
        harpe_replica_profiles *smooth = NULL;
        status = harpe_replica_profiles_smooth(read, command->replicas.smooth, &smooth, error);
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

/* Makes the schedule for the profile of the first GPU. `input` owns the schedule. */
static harpe_status make_schedule(harpe_problem_input *input,
                                  const harpe_replica_profiles *profiles, harpe_error *error) {
    harpe_profile *borrowed = (harpe_profile *)harpe_replica_profiles_at(profiles, 0, 0);
    input->profile = borrowed;
    harpe_status status = harpe_problem_input_schedule(input, error);
    input->profile = NULL;
    return status;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

/* What is known after planning. */
typedef struct replica_result {
    harpe_replica_profiles *profiles;
    harpe_replica_plans *plans;
    double seconds; /* of the planning */
    bool verified;
} replica_result;

/* Reads the profiles, and makes the plans. */
static harpe_status make_result(harpe_plan_arguments *command, const harpe_progress *progress,
                                replica_result *result, harpe_error *error) {
    harpe_problem_input *input = &command->input;
    harpe_replica_request request = {.time_s = command->replicas.time_s,
                                     .slowdown = command->replicas.slowdown,
                                     .threads = command->request.threads,
                                     .max_peak_power_w = command->request.max_peak_power_w,
                                     .max_swing_w = command->request.max_swing_w,
                                     .max_swing_share = command->request.max_swing_share};
    harpe_status status = HARPE_OK;
    if (input->wait_powers_path)
        status = harpe_fail(
            error, HARPE_INVALID_ARGUMENT,
            "--wait-powers: plans for each GPU know one power for all waits; leave it out");
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

static double gap_percent(double energy_j, double bound_j) {
    return 100 * (energy_j - bound_j) / fabs(bound_j);
}

/* Returns the row of a total. It is compared with the highest clocks, and with one clock for all
 * GPUs. */
static harpe_frontier_row row_of(const harpe_plan_arguments *command, const replica_result *result,
                                 harpe_replica_total total) {
    harpe_replica_job job = harpe_replica_plans_job(result->plans);
    double gpus = (double)job.replica_count * job.rank_count * job.peer_count;
    const harpe_plan highest = {.time_s = job.all_maximum.time_s,
                                .energy_j = job.all_maximum.energy_j};
    harpe_plan plan = {
        .time_s = total.time_s,
        .energy_j = total.energy_j,
        .lower_bound_j = harpe_replica_plans_bound_at(result->plans, total.time_s),
        .overhead_energy_j = command->input.overhead_power_w * job.replica_count * total.time_s,
    };
    plan.average_power_w = (plan.energy_j - plan.overhead_energy_j) / (plan.time_s * gpus);
    harpe_frontier_row row = harpe_frontier_row_of(&plan, -1, &highest);
    int mhz;
    row.one_clock_energy_j =
        harpe_replica_plans_one_clock(result->plans, total.time_s, &mhz).energy_j;
    return row;
}

/* Returns the row of the best clock for all GPUs within a time. */
static harpe_labelled_row one_clock_of(const harpe_plan_arguments *command,
                                       const replica_result *result, double most_s) {
    int mhz;
    harpe_replica_total total = harpe_replica_plans_one_clock(result->plans, most_s, &mhz);
    harpe_frontier_row row = row_of(command, result, total);
    row.one_clock_mhz = mhz;
    return harpe_one_clock_labelled(&row);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *total_json(const harpe_plan_arguments *command, const replica_result *result,
                          harpe_replica_total total) {
    const harpe_frontier_row row = row_of(command, result, total);
    return harpe_row_json(&row);
}

static double worst_gap_percent(const harpe_replica_plans *plans) {
    double worst = 0;
    for (int r = 0; r < harpe_replica_plans_job(plans).replica_count; r++) {
        const harpe_replica_plan *plan = harpe_replica_plans_at(plans, r);
        worst = fmax(worst, gap_percent(plan->energy_j, plan->lower_bound_j));
    }
    return worst;
}

static json_t *summary_json(const harpe_plan_arguments *command, const replica_result *result) {
    harpe_replica_job job = harpe_replica_plans_job(result->plans);
    bool has_one_plan = job.one_plan.time_s > 0;
    const harpe_labelled_row as_fast = one_clock_of(command, result, 0);
    const harpe_labelled_row within = one_clock_of(command, result, job.own.time_s);
    return json_pack(
        "{s:o, s:{s:o, s:o}, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:i, s:i, s:i, s:i, s:i, s:f, s:b, "
        "s:o}",
        "all_maximum", total_json(command, result, job.all_maximum), "one_clock", "all_maximum",
        harpe_row_json(&as_fast.row), "own_plans", harpe_row_json(&within.row), "one_plan",
        has_one_plan ? total_json(command, result, job.one_plan) : json_null(), "own_plans",
        total_json(command, result, job.own), "lower_bound_j", job.lower_bound_j, "gap_percent",
        gap_percent(job.own.energy_j, job.lower_bound_j), "worst_gap_percent",
        worst_gap_percent(result->plans), "fastest_s", job.fastest_s, "minimum_energy_s",
        job.minimum_energy_s, "replicas", job.replica_count, "gpus_per_stage", job.peer_count,
        "ranks", job.rank_count, "distinct_replicas", job.distinct_count, "slowest_replica",
        job.slowest_replica, "seconds", result->seconds, "verified", result->verified,
        "power_limits", harpe_plan_kept_limits_json(&command->request));
}

static json_t *replica_json(const harpe_replica_plans *plans, int replica) {
    const harpe_replica_plan *plan = harpe_replica_plans_at(plans, replica);
    return json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:i}", "replica", replica, "start_s",
                     plan->start_s, "time_s", plan->time_s, "energy_j", plan->energy_j,
                     "lower_bound_j", plan->lower_bound_j, "gap_percent",
                     gap_percent(plan->energy_j, plan->lower_bound_j), "fastest_s", plan->fastest_s,
                     "same_as", plan->same_as);
}

/* Returns an object that owns `arguments`. */
static json_t *result_json(const harpe_plan_arguments *command, const replica_result *result,
                           json_t *arguments) {
    json_t *replicas = json_array();
    for (int r = 0; r < harpe_replica_plans_job(result->plans).replica_count; r++)
        json_array_append_new(replicas, replica_json(result->plans, r));
    const harpe_schedule *schedule = command->input.schedule;
    return json_pack("{s:s, s:s, s:o, s:o, s:{s:s, s:i, s:i}, s:o, s:o}", "program",
                     HARPE_PLAN_JSON_PROGRAM, "version", harpe_version(), "arguments", arguments,
                     "profile", harpe_command_json_text(command->input.profile_path), "problem",
                     "schedule", harpe_schedule_name(schedule), "stages",
                     harpe_schedule_stage_count(schedule), "microbatches",
                     harpe_schedule_microbatch_count(schedule), "summary",
                     summary_json(command, result), "replicas", replicas);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static harpe_status write_replicas_csv(const harpe_replica_plans *plans, harpe_directory *directory,
                                       harpe_error *error) {
    harpe_text text = {0};
    harpe_text_printf(
        &text,
        "replica,time_s,energy_j,lower_bound_j,gap_percent,fastest_s,same_as,start_s,plan\n");
    for (int r = 0; r < harpe_replica_plans_job(plans).replica_count; r++) {
        const harpe_replica_plan *plan = harpe_replica_plans_at(plans, r);
        double numbers[] = {plan->time_s, plan->energy_j, plan->lower_bound_j,
                            gap_percent(plan->energy_j, plan->lower_bound_j), plan->fastest_s};
        harpe_text_printf(&text, "%d", r);
        for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) {
            harpe_text_append(&text, ",", 1);
            harpe_text_number(&text, numbers[k]);
        }
        harpe_text_printf(&text, ",%d,", plan->same_as);
        harpe_text_number(&text, plan->start_s);
        harpe_text_printf(&text, ",replica_%05d.py\n", plan->same_as);
    }
    return harpe_plan_write_text(directory, "replicas.csv", &text, HARPE_OK, error);
}

static harpe_status write_bound(const harpe_replica_plans *plans, harpe_directory *directory,
                                harpe_error *error) {
    harpe_frontier_vertex *points = harpe_calloc(BOUND_POINTS, sizeof *points);
    if (!points) return harpe_fail_memory(error);
    harpe_text text = {0};
    harpe_status status = harpe_replica_plans_frontier(plans, BOUND_POINTS, points, error);
    harpe_replica_job job = harpe_replica_plans_job(plans);
    if (status == HARPE_OK) {
        /* If a longer iteration saves nothing, all points are the same. */
        size_t count = job.minimum_energy_s > job.fastest_s ? BOUND_POINTS : 1;
        harpe_bound_csv_format(&text, points, count);
        status = harpe_plan_write_text(directory, HARPE_BOUND_FILE_NAME, &text, HARPE_OK, error);
    }
    free(points);
    return status;
}

/* Writes the plan file of a replica, or of the whole job (-1). */
static harpe_status write_plan(const harpe_replica_plans *plans, int replica,
                               const harpe_directory *directory, harpe_error *error) {
    char name[64] = "job.py";
    if (replica >= 0) (void)snprintf(name, sizeof name, "replica_%05d.py", replica);
    char *path = harpe_directory_path(directory, name);
    if (!path) return harpe_fail_memory(error);
    harpe_status status = replica < 0 ? harpe_replica_plans_write(plans, path, error)
                                      : harpe_replica_plans_write_one(plans, replica, path, error);
    free(path);
    return status;
}

static harpe_status write_plans(const harpe_replica_plans *plans, const harpe_directory *directory,
                                harpe_error *error) {
    harpe_status status = write_plan(plans, -1, directory, error);
    int count = harpe_replica_plans_job(plans).replica_count;
    for (int r = 0; r < count && status == HARPE_OK; r++) {
        if (harpe_replica_plans_at(plans, r)->same_as != r) continue;
        status = write_plan(plans, r, directory, error);
        if (status == HARPE_OK) status = harpe_command_check_signal(error);
    }
    return status;
}

/* Writes all files. */
static harpe_status write_output(const harpe_plan_arguments *command, const replica_result *result,
                                 harpe_directory *directory, json_t *arguments,
                                 harpe_error *error) {
    json_t *object = result_json(command, result, arguments);
    harpe_status status = harpe_plan_write_json(directory, object, error);
    if (status == HARPE_OK) status = write_replicas_csv(result->plans, directory, error);
    if (status == HARPE_OK) status = write_bound(result->plans, directory, error);
    if (status == HARPE_OK) status = write_plans(result->plans, directory, error);
    return status;
}

/* ---- Printing -------------------------------------------------------------------------------- */

static void print_rows(const harpe_plan_arguments *command, const replica_result *result) {
    harpe_replica_job job = harpe_replica_plans_job(result->plans);
    harpe_replica_total bound = {job.own.time_s, job.lower_bound_j};
    harpe_labelled_row rows[6] = {
        {"all at maximum frequency", row_of(command, result, job.all_maximum)},
        one_clock_of(command, result, 0),
        one_clock_of(command, result, job.own.time_s)};
    size_t count = rows[1].row.one_clock_mhz == rows[2].row.one_clock_mhz ? 2 : 3;
    if (job.one_plan.time_s > 0)
        rows[count++] =
            (harpe_labelled_row){"one plan for all GPUs", row_of(command, result, job.one_plan)};
    rows[count++] = (harpe_labelled_row){"a plan for each GPU", row_of(command, result, job.own)};
    rows[count++] =
        (harpe_labelled_row){"a plan for each GPU (bound)", row_of(command, result, bound)};
    harpe_rows_print(rows, count);
}

static void print_people(const harpe_plan_arguments *command, const replica_result *result) {
    harpe_replica_job job = harpe_replica_plans_job(result->plans);
    const harpe_schedule *schedule = command->input.schedule;
    long gpus = (long)job.replica_count * job.rank_count * job.peer_count;
    int stages = harpe_schedule_stage_count(schedule);
    int microbatches = harpe_schedule_microbatch_count(schedule);
    printf("%s%s%s: %d replica%s x %d stage%s x %d GPU%s (%ld GPUs) x %d microbatch%s, schedule "
           "%s\n\n",
           harpe_bold_start(), harpe_plan_name_of(command->input.profile_path), harpe_bold_end(),
           job.replica_count, job.replica_count == 1 ? "" : "s", stages, stages == 1 ? "" : "s",
           job.peer_count, job.peer_count == 1 ? "" : "s", gpus, microbatches,
           microbatches == 1 ? "" : "es", harpe_schedule_name(schedule));
    print_rows(command, result);
    printf("\n%d replica%s, %d different, planned in %s s: %.3f %% (worst %.3f %%) above the "
           "bound%s\n",
           job.replica_count, job.replica_count == 1 ? "" : "s", job.distinct_count,
           HARPE_DIGITS(result->seconds, 3), gap_percent(job.own.energy_j, job.lower_bound_j),
           worst_gap_percent(result->plans), result->verified ? "; verified" : "");
    printf("Slowest replica: %d, at least %s s\n", job.slowest_replica,
           HARPE_DIGITS(job.fastest_s, 4));
    printf("Written: %s%s%s\n", harpe_bold_start(), command->output_directory, harpe_bold_end());
    harpe_plan_limits_print(&command->request);
    int later = 0;
    for (int r = 0; r < job.replica_count; r++)
        later += harpe_replica_plans_at(result->plans, r)->start_s > 0;
    if (later > 0)
        printf("Replicas that must begin later: %d (start_s in replicas.csv). Nothing in Harpe "
               "delays them: your training job must.\n",
               later);
}

/* Prints the result, for people or as JSON. `arguments` is released. */
static harpe_status print_result(const harpe_plan_arguments *command, const replica_result *result,
                                 json_t *arguments, harpe_error *error) {
    if (command->json) {
        json_t *object = result_json(command, result, arguments);
        json_object_set_new(object, "output_dir",
                            harpe_command_json_text(command->output_directory));
        return harpe_command_print_json(object, error);
    }
    json_decref(arguments);
    print_people(command, result);
    return HARPE_OK;
}

/* ---- The command ----------------------------------------------------------------------------- */

static json_t *arguments_json(const harpe_plan_arguments *arguments) {
    const harpe_replica_input *replicas = &arguments->replicas;
    json_t *object = harpe_problem_input_arguments(&arguments->input);
    json_t *more = json_array();
    for (size_t i = 0; i < replicas->more_count; i++)
        json_array_append_new(more, harpe_command_json_text(replicas->more_paths[i]));
    json_object_set_new(object, "replicas", json_boolean(replicas->has_columns));
    json_object_set_new(object, "replica", more);
    json_object_set_new(object, "time_s", json_real(replicas->time_s));
    json_object_set_new(object, "slowdown", json_real(replicas->slowdown));
    json_object_set_new(object, "smooth",
                        replicas->smooth < 0 ? json_null() : json_real(replicas->smooth));
    json_object_update_new(object, harpe_plan_limits_json(&arguments->request));
    return object;
}

harpe_status harpe_plan_replicas(harpe_plan_arguments *arguments, harpe_error *error) {
    harpe_terminal_progress terminal;
    harpe_progress progress = harpe_terminal_progress_start(&terminal, arguments->quiet);
    harpe_directory directory = {0};
    replica_result result = {0};
    harpe_status status = harpe_plan_open_output(arguments, &directory, error);
    if (status == HARPE_OK) status = make_result(arguments, &progress, &result, error);
    if (status == HARPE_OK) {
        status = write_output(arguments, &result, &directory, arguments_json(arguments), error);
        status = harpe_plan_commit_output(arguments, &directory, status, error);
    }
    harpe_terminal_progress_clear(&terminal);
    harpe_directory_abort(&directory);
    if (status == HARPE_OK)
        status = print_result(arguments, &result, arguments_json(arguments), error);
    harpe_replica_plans_free(result.plans);
    harpe_replica_profiles_free(result.profiles);
    return status;
}
