/* SPDX-License-Identifier: Apache-2.0 */
/* Prints and writes the plans of all replicas of a job. */
#include "cli/plan/replica_output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/version.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/plan/plan_directory.h"
#include "plan/frontier_file.h"

#define JSON_DIGITS 15
/* Points of bound.csv. */
#define BOUND_POINTS 200

static double gap_percent(double energy_j, double bound_j) {
    return 100 * (energy_j - bound_j) / fabs(bound_j);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *total_json(harpe_replica_total total, harpe_replica_total reference) {
    return json_pack("{s:f, s:f, s:f, s:f}", "time_s", total.time_s, "energy_j", total.energy_j,
                     "slowdown_percent", 100 * (total.time_s / reference.time_s - 1),
                     "savings_percent", 100 * (1 - total.energy_j / reference.energy_j));
}

static double worst_gap_percent(const harpe_replica_plans *plans) {
    double worst = 0;
    for (int r = 0; r < harpe_replica_plans_job(plans).replica_count; r++) {
        const harpe_replica_plan *plan = harpe_replica_plans_at(plans, r);
        worst = fmax(worst, gap_percent(plan->energy_j, plan->lower_bound_j));
    }
    return worst;
}

static json_t *summary_json(const harpe_replica_result *result) {
    harpe_replica_job job = harpe_replica_plans_job(result->plans);
    bool has_one_plan = job.one_plan.time_s > 0;
    return json_pack(
        "{s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:i, s:i, s:i, s:i, s:i, s:f, s:b}",
        "all_maximum", total_json(job.all_maximum, job.all_maximum), "one_plan",
        has_one_plan ? total_json(job.one_plan, job.all_maximum) : json_null(), "own_plans",
        total_json(job.own, job.all_maximum), "lower_bound_j", job.lower_bound_j, "gap_percent",
        gap_percent(job.own.energy_j, job.lower_bound_j), "worst_gap_percent",
        worst_gap_percent(result->plans), "fastest_s", job.fastest_s, "minimum_energy_s",
        job.minimum_energy_s, "replicas", job.replica_count, "gpus_per_stage", job.peer_count,
        "ranks", job.rank_count, "distinct_replicas", job.distinct_count, "slowest_replica",
        job.slowest_replica, "seconds", result->seconds, "verified", result->verified);
}

static json_t *replica_json(const harpe_replica_plans *plans, int replica) {
    const harpe_replica_plan *plan = harpe_replica_plans_at(plans, replica);
    return json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:i}", "replica", replica, "start_s",
                     plan->start_s, "time_s", plan->time_s, "energy_j", plan->energy_j,
                     "lower_bound_j", plan->lower_bound_j, "gap_percent",
                     gap_percent(plan->energy_j, plan->lower_bound_j), "fastest_s", plan->fastest_s,
                     "same_as", plan->same_as);
}

/* Takes over `arguments`. */
static json_t *result_json(const harpe_replica_command *command, const harpe_replica_result *result,
                           json_t *arguments) {
    json_t *replicas = json_array();
    for (int r = 0; r < harpe_replica_plans_job(result->plans).replica_count; r++)
        json_array_append_new(replicas, replica_json(result->plans, r));
    const harpe_schedule *schedule = command->input->schedule;
    return json_pack("{s:s, s:s, s:o, s:o, s:{s:s, s:i, s:i}, s:o, s:o}", "program",
                     HARPE_PLAN_JSON_PROGRAM, "version", harpe_version(), "arguments", arguments,
                     "profile", harpe_command_json_text(command->input->profile_path), "problem",
                     "schedule", harpe_schedule_name(schedule), "stages",
                     harpe_schedule_stage_count(schedule), "microbatches",
                     harpe_schedule_microbatch_count(schedule), "summary", summary_json(result),
                     "replicas", replicas);
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* Writes a finished text and frees it. */
static harpe_status write_text(harpe_directory *directory, const char *name, harpe_text *text,
                               harpe_error *error) {
    harpe_status status =
        text->failed ? harpe_fail_memory(error)
                     : harpe_directory_write(directory, name, text->data, text->length, error);
    harpe_text_free(text);
    return status;
}

static harpe_status write_replicas_csv(const harpe_replica_plans *plans, harpe_directory *directory,
                                       harpe_error *error) {
    harpe_text text = {0};
    harpe_text_printf(&text, "replica,time_s,energy_j,lower_bound_j,gap_percent,fastest_s,same_as,"
                             "start_s,plan\n");
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
    return write_text(directory, HARPE_REPLICAS_FILE_NAME, &text, error);
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
        status = write_text(directory, HARPE_BOUND_FILE_NAME, &text, error);
    }
    free(points);
    return status;
}

/* Writes the plan file of a replica, or of the whole job (-1). */
static harpe_status write_plan(const harpe_replica_plans *plans, int replica,
                               const harpe_directory *directory, harpe_error *error) {
    char name[64] = HARPE_JOB_FILE_NAME;
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

static harpe_status write_json(const harpe_replica_command *command,
                               const harpe_replica_result *result, json_t *arguments,
                               harpe_directory *directory, harpe_error *error) {
    json_t *object = result_json(command, result, arguments);
    char *text =
        object ? json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(JSON_DIGITS)) : NULL;
    json_decref(object);
    if (!text) return harpe_fail_memory(error);
    harpe_status status =
        harpe_directory_write(directory, HARPE_PLAN_JSON_NAME, text, strlen(text), error);
    free(text);
    return status;
}

harpe_status harpe_replica_output_write(const harpe_replica_command *command,
                                        const harpe_replica_result *result,
                                        harpe_directory *directory, json_t *arguments,
                                        harpe_error *error) {
    harpe_status status = write_json(command, result, arguments, directory, error);
    if (status == HARPE_OK) status = write_replicas_csv(result->plans, directory, error);
    if (status == HARPE_OK) status = write_bound(result->plans, directory, error);
    if (status == HARPE_OK) status = write_plans(result->plans, directory, error);
    return status;
}

/* ---- Printing -------------------------------------------------------------------------------- */

static const char *file_name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Returns a percentage for printing; rounding errors have no sign. */
static double percent(double share) {
    double value = 100 * share;
    return fabs(value) < 0.005 ? 0 : value;
}

static void print_total(const char *label, harpe_replica_total total,
                        harpe_replica_total reference) {
    printf("  %-28s %10s s %12s J %8.2f %% %8.2f %%\n", label, HARPE_DIGITS(total.time_s, 4),
           HARPE_DIGITS(total.energy_j, 6), percent(total.time_s / reference.time_s - 1),
           percent(1 - total.energy_j / reference.energy_j));
}

static void print_people(const harpe_replica_command *command, const harpe_replica_result *result) {
    harpe_replica_job job = harpe_replica_plans_job(result->plans);
    const harpe_schedule *schedule = command->input->schedule;
    long gpus = (long)job.replica_count * job.rank_count * job.peer_count;
    int stages = harpe_schedule_stage_count(schedule);
    int microbatches = harpe_schedule_microbatch_count(schedule);
    printf("%s%s%s: %d replica%s x %d stage%s x %d GPU%s (%ld GPUs) x %d microbatch%s, schedule "
           "%s\n\n",
           harpe_bold_start(), file_name_of(command->input->profile_path), harpe_bold_end(),
           job.replica_count, job.replica_count == 1 ? "" : "s", stages, stages == 1 ? "" : "s",
           job.peer_count, job.peer_count == 1 ? "" : "s", gpus, microbatches,
           microbatches == 1 ? "" : "es", harpe_schedule_name(schedule));
    printf("%s%42s %14s %10s %10s%s\n", harpe_bold_start(), "time", "energy", "slowdown", "savings",
           harpe_bold_end());
    print_total("all at maximum frequency", job.all_maximum, job.all_maximum);
    if (job.one_plan.time_s > 0)
        print_total("one plan for all GPUs", job.one_plan, job.all_maximum);
    print_total("a plan for each GPU", job.own, job.all_maximum);
    print_total("a plan for each GPU (bound)",
                (harpe_replica_total){job.own.time_s, job.lower_bound_j}, job.all_maximum);
    printf("\n%d replica%s, %d different, planned in %s s: %.3f %% (worst %.3f %%) above the "
           "bound%s\n",
           job.replica_count, job.replica_count == 1 ? "" : "s", job.distinct_count,
           HARPE_DIGITS(result->seconds, 3), gap_percent(job.own.energy_j, job.lower_bound_j),
           worst_gap_percent(result->plans), result->verified ? "; verified" : "");
    printf("Slowest replica: %d, at least %s s\n", job.slowest_replica,
           HARPE_DIGITS(job.fastest_s, 4));
    if (command->output_directory)
        printf("Written: %s%s%s\n", harpe_bold_start(), command->output_directory,
               harpe_bold_end());
}

harpe_status harpe_replica_output_print(const harpe_replica_command *command,
                                        const harpe_replica_result *result, json_t *arguments,
                                        harpe_error *error) {
    if (command->json) {
        json_t *object = result_json(command, result, arguments);
        json_object_set_new(object, "output_dir",
                            command->output_directory
                                ? harpe_command_json_text(command->output_directory)
                                : json_null());
        return harpe_command_print_json(object, error);
    }
    json_decref(arguments);
    print_people(command, result);
    return HARPE_OK;
}
