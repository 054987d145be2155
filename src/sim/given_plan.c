/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions for a plan file of the user; see given_plan.h. The ranks of a simulated job with the
 * same dp_rank and tp_rank are a pipeline of their own. They wait for the others at the end of the
 * step alone. */
#include "sim/given_plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

/* Copies the clocks of one list. */
static harpe_status take_list(const harpe_sim_options *options, const harpe_plan_file *file,
                              int list, const harpe_problem *problem, int rank, int *frequency_mhz,
                              harpe_error *error) {
    size_t count = 0, needed = harpe_problem_rank_length(problem, rank);
    const harpe_plan_file_entry *entries = harpe_plan_file_rank(file, list, &count);
    if (count != needed)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: list %d has %zu instructions, but stage %d runs %zu (is the number "
                          "of microbatches right?)",
                          options->plan_path, list, count, rank, needed);
    for (size_t i = 0; i < count; i++) {
        const char *name = harpe_problem_instruction_name(problem, rank, i);
        if (strcmp(entries[i].instruction, name) != 0)
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s: entry %zu of list %d is '%s', but stage %d runs '%s' there",
                              options->plan_path, i, list, entries[i].instruction, rank, name);
        frequency_mhz[i] = entries[i].frequency_mhz;
    }
    return HARPE_OK;
}

/* Evaluates the pipeline of the GPUs with these places. */
static harpe_status run_pipeline(const harpe_sim_options *options, const harpe_plan_file *file,
                                 const harpe_problem *problem, int dp_rank, int tp_rank,
                                 int *frequency_mhz, harpe_plan *out, harpe_error *error) {
    harpe_status status = HARPE_OK;
    size_t at = 0;
    for (int rank = 0; rank < options->pp && status == HARPE_OK; rank++) {
        int list = (dp_rank * options->pp + rank) * options->tp + tp_rank;
        status = take_list(options, file, list, problem, rank, frequency_mhz + at, error);
        at += harpe_problem_rank_length(problem, rank);
    }
    if (status != HARPE_OK) return status;
    harpe_error reason;
    status = harpe_plan_evaluate(problem, frequency_mhz, out, NULL, &reason);
    if (status == HARPE_OK) return HARPE_OK;
    return harpe_fail(error, status, "%s: %s", options->plan_path, reason.message);
}

/* Time and energy of the whole job. */
typedef struct total {
    double time_s, energy_j;
} total;

static double end_power_w(const harpe_problem *problem) {
    double sum_w = 0;
    for (int rank = 0; rank < harpe_problem_rank_count(problem); rank++)
        sum_w += harpe_problem_blocking_power_w(problem, rank);
    return sum_w;
}

static harpe_status predict_gpus(const harpe_sim_options *options, const harpe_plan_file *file,
                                 const harpe_problem *problem, int *frequency_mhz, total *out,
                                 harpe_error *error) {
    double waits_s = 0; /* of all pipelines until time_s */
    total job = {0};
    for (int p = 0; p < options->dp * options->tp; p++) {
        harpe_plan plan;
        harpe_status status = run_pipeline(options, file, problem, p / options->tp, p % options->tp,
                                           frequency_mhz, &plan, error);
        if (status != HARPE_OK) return status;
        if (plan.time_s > job.time_s) {
            waits_s += p * (plan.time_s - job.time_s);
            job.time_s = plan.time_s;
        } else {
            waits_s += job.time_s - plan.time_s;
        }
        job.energy_j += plan.energy_j;
    }
    job.energy_j += end_power_w(problem) * waits_s;
    *out = job;
    return HARPE_OK;
}

static harpe_status predict_stages(const harpe_sim_options *options, const harpe_plan_file *file,
                                   const harpe_problem *problem, int *frequency_mhz, total *out,
                                   harpe_error *error) {
    harpe_plan plan;
    harpe_status status = harpe_plan_file_match(file, problem, frequency_mhz, error);
    if (status == HARPE_OK)
        status = harpe_plan_evaluate(problem, frequency_mhz, &plan, NULL, error);
    if (status != HARPE_OK) return status;
    *out = (total){plan.time_s, options->dp * options->tp * plan.energy_j};
    return HARPE_OK;
}

harpe_status harpe_sim_predict_given(const harpe_sim_options *options, const harpe_problem *problem,
                                     double *time_s, double *energy_j, harpe_error *error) {
    harpe_plan_file *file = NULL;
    total job = {0};
    int *frequency_mhz =
        harpe_calloc(harpe_problem_instruction_count(problem), sizeof *frequency_mhz);
    harpe_status status = frequency_mhz ? harpe_plan_file_read(options->plan_path, &file, error)
                                        : harpe_fail_memory(error);
    if (status == HARPE_OK) {
        int lists = harpe_plan_file_rank_count(file);
        bool is_by_gpu = lists != options->pp && lists == options->dp * options->pp * options->tp;
        status = is_by_gpu ? predict_gpus(options, file, problem, frequency_mhz, &job, error)
                           : predict_stages(options, file, problem, frequency_mhz, &job, error);
    }
    harpe_plan_file_free(file);
    free(frequency_mhz);
    if (status != HARPE_OK) return status;
    *time_s = job.time_s;
    *energy_j = job.energy_j;
    return HARPE_OK;
}
