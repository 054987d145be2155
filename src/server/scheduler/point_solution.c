/* SPDX-License-Identifier: Apache-2.0 */
/* PointSolution hands out the schedules of one plan file in all rounds. The file is read when the
 * job starts, so a plan can be replaced between jobs. PointSolution gives list r to rank r.
 * PointSolution3D finds the list of a rank by its place in the job: the file has a list for each
 * stage, or one for each GPU, ordered by dp_rank, then pp_rank, then tp_rank. */
#include <stdbool.h>
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
    int *list_of; /* [rank] */
} point_solution;

static const harpe_scheduler_argument ARGUMENT = {"solution_path", HARPE_ARGUMENT_TEXT, 0, 0, true};

static harpe_status read_plan(const char *args_json, harpe_plan_file **plan, char **path,
                              harpe_error *error) {
    json_t *args;
    harpe_status status =
        harpe_scheduler_args_read("PointSolution", args_json, &ARGUMENT, 1, &args, error);
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

/* Returns the list of a rank if there is one for each GPU. */
static int list_of_gpu(const harpe_job_info *job, const harpe_rank_info *rank) {
    return (rank->dp_rank * job->pp_degree + rank->pp_rank) * job->tp_degree + rank->tp_rank;
}

/* Finds the list of each rank. Returns false if the file has another number of lists. */
static bool find_lists(const harpe_scheduler_job *job, bool is_3d, point_solution *solution) {
    int lists = harpe_plan_file_rank_count(solution->plan), world = job->job->world_size;
    bool is_by_stage = is_3d && lists == job->job->pp_degree;
    if (!is_by_stage && lists != world) return false;
    for (int r = 0; r < world; r++) {
        int list = is_by_stage ? job->ranks[r].pp_rank
                   : is_3d     ? list_of_gpu(job->job, &job->ranks[r])
                               : r;
        if (list < 0 || list >= lists) return false;
        solution->list_of[r] = list;
    }
    return true;
}

static harpe_status fail_lists(const harpe_scheduler_job *job, bool is_3d, const char *path,
                               const harpe_plan_file *plan, harpe_error *error) {
    int lists = harpe_plan_file_rank_count(plan);
    if (!is_3d)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%.200s holds %d lists of instructions, but this job needs %d (one per "
                          "rank; per stage with PointSolution3D): serve a plan made for it",
                          path, lists, job->job->world_size);
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%.200s holds %d lists of instructions, but this job needs %d (one per "
                      "stage) or %d (one per GPU): serve a plan made for it",
                      path, lists, job->job->pp_degree, job->job->world_size);
}

static void destroy(void *state) {
    point_solution *solution = state;
    harpe_plan_file_free(solution->plan);
    free(solution->list_of);
    free(solution);
}

static harpe_status create_for(const harpe_scheduler_job *job, bool is_3d, void **state,
                               harpe_error *error) {
    harpe_plan_file *plan;
    char *path;
    harpe_status status = read_plan(job->args_json, &plan, &path, error);
    if (status != HARPE_OK) return status;
    point_solution *solution = harpe_calloc(1, sizeof *solution);
    if (!solution) {
        harpe_plan_file_free(plan);
        free(path);
        return harpe_fail_memory(error);
    }
    *solution = (point_solution){.plan = plan, .rank_count = job->job->world_size};
    solution->list_of = harpe_calloc((size_t)solution->rank_count, sizeof *solution->list_of);
    if (!solution->list_of)
        status = harpe_fail_memory(error);
    else if (!find_lists(job, is_3d, solution))
        status = fail_lists(job, is_3d, path, plan, error);
    free(path);
    if (status != HARPE_OK) {
        destroy(solution);
        return status;
    }
    *state = solution;
    return HARPE_OK;
}

static harpe_status create(const harpe_scheduler_job *job, void **state, harpe_error *error) {
    return create_for(job, false, state, error);
}

static harpe_status create_3d(const harpe_scheduler_job *job, void **state, harpe_error *error) {
    return create_for(job, true, state, error);
}

static harpe_status next_schedule(void *state, harpe_schedule_writer *writer, harpe_error *error) {
    const point_solution *solution = state;
    for (int rank = 0; rank < solution->rank_count; rank++) {
        size_t count;
        const harpe_plan_file_entry *entries =
            harpe_plan_file_rank(solution->plan, solution->list_of[rank], &count);
        for (size_t i = 0; i < count; i++) {
            harpe_status status =
                writer->add(writer, rank, entries[i].instruction, entries[i].frequency_mhz, error);
            if (status != HARPE_OK) return status;
        }
    }
    return HARPE_OK;
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

const harpe_scheduler_class harpe_point_solution_3d = {
    .abi = HARPE_SCHEDULER_ABI,
    .name = "PointSolution3D",
    .check_args = check_args,
    .create = create_3d,
    .next_schedule = next_schedule,
    .destroy = destroy,
    .is_finished = is_finished,
};
