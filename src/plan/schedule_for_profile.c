/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the schedule with which a profile is planned: a built-in schedule, or one from a file. It
 * finds the number of ranks in the profile, and refuses settings that contradict the profile or the
 * file. problem.c checks that the profile has the instructions that the schedule runs. */
#include <stdbool.h>

#include <harpe/plan.h>

#include "base/error.h"
#include "plan/problem.h"
#include "plan/schedule.h"

/* ---- From a file ----------------------------------------------------------------------------- */

static bool has_names(const char *const *names) { return names && names[0]; }

static harpe_status check_count(const char *path, const char *what, int given, int has,
                                harpe_error *error) {
    if (given == 0 || given == has) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "the schedule %s has %d %s, not %d: leave the number out", path, has, what,
                      given);
}

static harpe_status read_file(const harpe_schedule_request *request, harpe_schedule **out,
                              harpe_error *error) {
    const harpe_schedule_options *options = &request->options;
    if (options->chunks != 0 || options->microbatch_group_size != 0 ||
        options->overlaps_moe_expert_parallel_comm) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "%s: chunks, microbatch groups and overlapped communication cannot be "
                          "combined with a schedule file, which lists the instructions of each "
                          "rank",
                          request->path);
    }
    harpe_schedule *schedule = NULL;
    harpe_status status = harpe_schedule_read_csv(request->path, &schedule, error);
    if (status != HARPE_OK) return status;
    status = check_count(request->path, "microbatches", options->microbatches,
                         harpe_schedule_microbatch_count(schedule), error);
    if (status == HARPE_OK) {
        status = check_count(request->path, "ranks", options->ranks,
                             harpe_schedule_rank_count(schedule), error);
    }
    if (status == HARPE_OK && (has_names(options->prologue) || has_names(options->epilogue)))
        status = harpe_schedule_surround(schedule, options->prologue, options->epilogue, error);
    if (status != HARPE_OK) {
        harpe_schedule_free(schedule);
        return status;
    }
    *out = schedule;
    return HARPE_OK;
}

/* ---- Built-in schedules ---------------------------------------------------------------------- */

static harpe_status find_ranks(const harpe_profile *profile, harpe_schedule_options *options,
                               int chunks, harpe_error *error) {
    int stages = harpe_profile_stage_count(profile);
    if (options->ranks != 0) return HARPE_OK;
    if (stages % chunks != 0) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "the profile has %d stage%s, which cannot be divided into %d per rank, "
                          "as the schedule %s needs",
                          stages, stages == 1 ? "" : "s", chunks,
                          options->name ? options->name : "1f1b");
    }
    options->ranks = stages / chunks;
    return HARPE_OK;
}

/* Refuses a schedule that is too large to be planned. This is checked before the schedule is made,
 * because the schedule alone may need gigabytes. A schedule has at least a forward and a backward
 * for each stage and microbatch, and an overlapped pair of them is one instruction.
 * harpe_schedule_new checks numbers that are out of range. */
static harpe_status check_size(const harpe_schedule_options *options, int chunks,
                               uint64_t memory_limit_bytes, harpe_error *error) {
    bool is_in_range = options->ranks > 0 && options->ranks <= HARPE_RANKS_MAX &&
                       options->microbatches > 0 && options->microbatches <= HARPE_MICROBATCHES_MAX;
    if (!is_in_range) return HARPE_OK;
    uint64_t pairs = (uint64_t)options->ranks * (uint64_t)chunks * (uint64_t)options->microbatches;
    if (harpe_problem_check_size(pairs, memory_limit_bytes, NULL) == HARPE_OK) return HARPE_OK;
    return harpe_problem_check_size(2 * pairs, memory_limit_bytes, error);
}

static harpe_status make_built_in(const harpe_profile *profile,
                                  const harpe_schedule_request *request, harpe_schedule **out,
                                  harpe_error *error) {
    harpe_schedule_options options = request->options;
    int chunks = 0;
    if (options.microbatches == 0) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the number of microbatches is missing: say how many microbatches an "
                          "iteration has");
    }
    harpe_status status = harpe_schedule_find_chunks(&options, &chunks, error);
    if (status == HARPE_OK) status = find_ranks(profile, &options, chunks, error);
    if (status == HARPE_OK)
        status = check_size(&options, chunks, request->memory_limit_bytes, error);
    return status == HARPE_OK ? harpe_schedule_new(&options, out, error) : status;
}

harpe_status harpe_schedule_for_profile(const harpe_profile *profile,
                                        const harpe_schedule_request *request, harpe_schedule **out,
                                        harpe_error *error) {
    if (!profile || !request || !out) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "a schedule for a profile needs a profile and a request");
    }
    return request->path ? read_file(request, out, error)
                         : make_built_in(profile, request, out, error);
}
