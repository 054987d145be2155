/* SPDX-License-Identifier: Apache-2.0 */
/* PointSolution hands out the schedules of one plan file in all rounds. The file is read when the
 * job starts, so a plan can be replaced between jobs. `PointSolution3D` is PointSolution with the
 * 3D wrapper. */
#include <stdlib.h>
#include <string.h>

#include <harpe/plan.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "server/scheduler/builtin.h"

typedef struct point_solution {
    harpe_plan_file *plan;
    int rank_count;
} point_solution;

static const harpe_scheduler_argument ARGUMENTS[] = {{"solution_path", true, false, 0},
                                                     {NULL, false, false, 0}};

static harpe_status read_plan(const char *args_json, harpe_plan_file **plan, char **path,
                              harpe_error *error) {
    json_t *args;
    harpe_status status =
        harpe_scheduler_args_read("PointSolution", args_json, ARGUMENTS, &args, error);
    if (status != HARPE_OK) return status;
    char *file = strdup(json_string_value(json_object_get(args, "solution_path")));
    json_decref(args);
    if (!file) return harpe_fail_memory(error);
    size_t length = strlen(file);
    if (length < 3 || strcmp(file + length - 3, ".py") != 0) {
        status = harpe_fail(error, HARPE_INVALID_ARGUMENT,
                            "solution_path: '%.200s' must end in .py (a plan file such as harpe "
                            "choose writes)",
                            file);
    } else {
        status = harpe_file_check_regular(file, error);
        if (status == HARPE_OK) status = harpe_plan_file_read(file, plan, error);
    }
    if (status != HARPE_OK) {
        free(file);
        return status;
    }
    *path = file;
    return HARPE_OK;
}

static harpe_status check_args(const char *args_json, harpe_error *error) {
    harpe_plan_file *plan;
    char *path;
    harpe_status status = read_plan(args_json, &plan, &path, error);
    if (status != HARPE_OK) return status;
    harpe_plan_file_free(plan);
    free(path);
    return HARPE_OK;
}

static harpe_status create(const harpe_scheduler_job *job, void **state, harpe_error *error) {
    harpe_plan_file *plan;
    char *path;
    harpe_status status = read_plan(job->args_json, &plan, &path, error);
    if (status != HARPE_OK) return status;
    int lists = harpe_plan_file_rank_count(plan);
    point_solution *solution = NULL;
    if (lists != job->job->world_size) {
        status = harpe_fail(error, HARPE_INVALID_INPUT,
                            "%.200s holds %d lists of instructions, but this job needs %d (one per "
                            "rank; per stage with PointSolution3D): serve a plan made for it",
                            path, lists, job->job->world_size);
    } else if (!(solution = harpe_calloc(1, sizeof *solution))) {
        status = harpe_fail_memory(error);
    }
    free(path);
    if (status != HARPE_OK) {
        harpe_plan_file_free(plan);
        return status;
    }
    *solution = (point_solution){plan, lists};
    *state = solution;
    return HARPE_OK;
}

static harpe_status next_schedule(void *state, harpe_schedule_writer *writer, harpe_error *error) {
    const point_solution *solution = state;
    for (int rank = 0; rank < solution->rank_count; rank++) {
        size_t count;
        const harpe_plan_file_entry *entries = harpe_plan_file_rank(solution->plan, rank, &count);
        for (size_t i = 0; i < count; i++) {
            harpe_status status =
                writer->add(writer, rank, entries[i].instruction, entries[i].frequency_mhz, error);
            if (status != HARPE_OK) return status;
        }
    }
    return HARPE_OK;
}

static void destroy(void *state) {
    point_solution *solution = state;
    harpe_plan_file_free(solution->plan);
    free(solution);
}

static bool is_finished(const void *state) {
    (void)state;
    return true;
}

const harpe_scheduler_class harpe_point_solution = {
    .abi = HARPE_SCHEDULER_ABI,
    .name = "PointSolution",
    .check_args = check_args,
    .create = create,
    .next_schedule = next_schedule,
    .destroy = destroy,
    .is_finished = is_finished,
};
