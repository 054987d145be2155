/* SPDX-License-Identifier: Apache-2.0 */
/* AllMaxFrequency, also called HighestFrequency, runs every instruction at the highest clock of its
 * rank, as in a job without an optimizer. It serves as a reference for other schedulers. If the
 * number of microbatches is known, its schedules list all instructions. Otherwise it hands out
 * empty schedules, and the ranks run at their highest clocks. It supports data and tensor parallel
 * jobs without the 3D wrapper. */
#include <stdlib.h>

#include <harpe/schedule.h>

#include "base/array.h"
#include "base/error.h"
#include "server/scheduler/builtin.h"

typedef struct all_max_frequency {
    harpe_schedule *schedule; /* NULL: unknown */
    const harpe_scheduler_job *job;
} all_max_frequency;

enum { MICROBATCHES_MAX = HARPE_JOB_MICROBATCHES_MAX, ANY_MICROBATCHES = 8 };

static const harpe_scheduler_argument ARGUMENTS[] = {
    {"num_microbatches", HARPE_ARGUMENT_WHOLE, 1, MICROBATCHES_MAX, false},
    {"schedule", HARPE_ARGUMENT_TEXT, 0, 0, false},
};
enum { ARGUMENT_COUNT = sizeof ARGUMENTS / sizeof ARGUMENTS[0] };

/* Makes the schedule. *out is NULL if the number of microbatches is not known. `job_microbatches`
 * is 0 if the job does not give the number. */
static harpe_status make_schedule(const char *args_json, int stages, int job_microbatches,
                                  harpe_schedule **out, harpe_error *error) {
    json_t *args;
    harpe_status status = harpe_scheduler_args_read("AllMaxFrequency", args_json, ARGUMENTS,
                                                    ARGUMENT_COUNT, &args, error);
    if (status != HARPE_OK) return status;
    const json_t *microbatches = json_object_get(args, "num_microbatches");
    harpe_schedule_options options = {
        .name = json_string_value(json_object_get(args, "schedule")),
        .ranks = stages,
        .microbatches =
            job_microbatches > 0 ? job_microbatches : (int)json_integer_value(microbatches),
    };
    *out = NULL;
    if (options.microbatches > 0) status = harpe_schedule_new(&options, out, error);
    json_decref(args);
    return status;
}

/* The number of a job's stages is not known at the start of the server. The name of the schedule
 * can be checked with one stage, or with two if the schedule is not defined for one. */
static harpe_status check(const char *args_json, harpe_error *error) {
    harpe_schedule *schedule;
    harpe_status status = make_schedule(args_json, 1, 0, &schedule, NULL);
    if (status != HARPE_OK) status = make_schedule(args_json, 2, 0, &schedule, error);
    if (status != HARPE_OK) return status;
    bool is_checked = schedule != NULL;
    harpe_schedule_free(schedule);
    if (is_checked) return HARPE_OK;
    status = make_schedule(args_json, 2, ANY_MICROBATCHES, &schedule, error);
    if (status == HARPE_OK) harpe_schedule_free(schedule);
    return status;
}

static harpe_status create(const harpe_scheduler_job *job, void **state, harpe_error *error) {
    harpe_schedule *schedule;
    harpe_status status =
        make_schedule(job->args_json, job->job->pp_degree,
                      harpe_scheduler_job_microbatches(job->job), &schedule, error);
    if (status != HARPE_OK) return status;
    all_max_frequency *made = harpe_calloc(1, sizeof *made);
    if (!made) {
        harpe_schedule_free(schedule);
        return harpe_fail_memory(error);
    }
    *made = (all_max_frequency){schedule, job};
    *state = made;
    return HARPE_OK;
}

static int highest(const harpe_rank_info *rank) {
    int found = 0; /* 0 MHz: do not change the clock */
    for (size_t i = 0; i < rank->available_frequency_count; i++)
        if (rank->available_frequencies_mhz[i] > found) found = rank->available_frequencies_mhz[i];
    return found;
}

static harpe_status next_schedule(void *state, harpe_schedule_writer *writer, harpe_error *error) {
    const all_max_frequency *all = state;
    for (int r = 0; all->schedule && r < all->job->job->world_size; r++) {
        const harpe_rank_info *rank = &all->job->ranks[r];
        int frequency_mhz = highest(rank);
        size_t count;
        const harpe_instruction *list = harpe_schedule_rank(all->schedule, rank->pp_rank, &count);
        for (size_t i = 0; i < count; i++) {
            harpe_status status =
                writer->add(writer, rank->rank, list[i].name, frequency_mhz, error);
            if (status != HARPE_OK) return status;
        }
    }
    return HARPE_OK;
}

static void destroy(void *state) {
    all_max_frequency *all = state;
    harpe_schedule_free(all->schedule);
    free(all);
}

static bool is_finished(const void *state) {
    (void)state;
    return true;
}

const harpe_scheduler_class harpe_all_max_frequency = {
    .abi = HARPE_SCHEDULER_ABI,
    .name = "AllMaxFrequency",
    .check_args = check,
    .create = create,
    .next_schedule = next_schedule,
    .destroy = destroy,
    .is_finished = is_finished,
};
