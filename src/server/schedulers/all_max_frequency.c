/* SPDX-License-Identifier: Apache-2.0 */
/* AllMaxFrequency: every instruction at the highest clock that its rank offers. What a job runs
 * without an optimizer, for comparison; data and tensor parallel jobs need no wrapper. */
#include <stdlib.h>

#include <harpe/schedule.h>

#include "base/array.h"
#include "base/error.h"
#include "server/schedulers/builtin.h"

typedef struct all_max_frequency {
    harpe_schedule *schedule;
    const harpe_scheduler_job *job;
} all_max_frequency;

enum { MICROBATCHES_MAX = 1000000 };

static const harpe_scheduler_argument ARGUMENTS[] = {
    {"num_microbatches", false, false, MICROBATCHES_MAX},
    {"schedule", true, true, 0},
    {NULL, false, false, 0},
};

static harpe_status make_schedule(const char *args_json, int stages, harpe_schedule **out,
                                  harpe_error *error) {
    json_t *args;
    harpe_status status =
        harpe_scheduler_args_read("AllMaxFrequency", args_json, ARGUMENTS, &args, error);
    if (status) return status;
    const json_t *microbatches = json_object_get(args, "num_microbatches");
    harpe_schedule_options options = {
        .name = json_string_value(json_object_get(args, "schedule")),
        .ranks = stages,
        .microbatches = (int)json_integer_value(microbatches),
    };
    status = harpe_schedule_new(&options, out, error);
    json_decref(args);
    return status;
}

/* How many stages a job will have is not known at start: the name of the schedule can be checked
 * with any number that divides the microbatches. */
static harpe_status check_args(const char *args_json, harpe_error *error) {
    harpe_schedule *schedule;
    harpe_status status = make_schedule(args_json, 1, &schedule, error);
    if (status) return status;
    harpe_schedule_free(schedule);
    return HARPE_OK;
}

static harpe_status create(const harpe_scheduler_job *job, void **state, harpe_error *error) {
    harpe_schedule *schedule;
    harpe_status status = make_schedule(job->args_json, job->job->pp_degree, &schedule, error);
    if (status) return status;
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
    int found = 0; /* 0 MHz: leave the clock alone */
    for (size_t i = 0; i < rank->available_frequency_count; i++) {
        if (rank->available_frequencies_mhz[i] > found) found = rank->available_frequencies_mhz[i];
    }
    return found;
}

static harpe_status next_schedule(void *state, harpe_schedule_writer *writer, harpe_error *error) {
    const all_max_frequency *all = state;
    for (int r = 0; r < all->job->job->world_size; r++) {
        const harpe_rank_info *rank = &all->job->ranks[r];
        int frequency_mhz = highest(rank);
        size_t count;
        const harpe_instruction *list = harpe_schedule_rank(all->schedule, rank->pp_rank, &count);
        for (size_t i = 0; i < count; i++) {
            harpe_status status =
                writer->add(writer, rank->rank, list[i].name, frequency_mhz, error);
            if (status) return status;
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
    .check_args = check_args,
    .create = create,
    .next_schedule = next_schedule,
    .destroy = destroy,
    .is_finished = is_finished,
};
