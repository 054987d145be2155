/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of the online schedulers. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_ARGS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_ARGS_H

#include <jansson.h>
#include <stdbool.h>

#include "server/scheduler/perseus/online_pipeline.h"

typedef struct harpe_perseus_args {
    json_t *json; /* owns the texts below */
    harpe_online_schedule schedule;
    const char **prologue, **epilogue; /* of the schedule, owned */
    const char *profile_path;          /* NULL: in the job's directory */
    int num_microbatches;              /* 0: they are counted */
    bool learns_by_sweep;              /* false: by exploration */
    double exploration_slowdown;       /* the most additional time of an exploration, a share */
    int frequency_stride, rises_to_stop, plans, rounds_to_drift;
    double blocking_power_w;       /* per GPU; negative: it is measured, or see blocking_powers */
    const json_t *blocking_powers; /* a number for each pipeline rank; NULL: not given */
    double slowdown, drift_tolerance;
} harpe_perseus_args;

/* Reads arguments. If `plans` is true, also accepts the arguments for planning, which
 * InstructionProfiler does not have. Free with harpe_perseus_args_free. */
harpe_status harpe_perseus_args_read(const char *scheduler, bool plans, const char *args_json,
                                     harpe_perseus_args *out, harpe_error *error);
void harpe_perseus_args_free(harpe_perseus_args *args);
/* Checks that arguments with a value for each pipeline rank fit a job. */
harpe_status harpe_perseus_args_check_ranks(const char *scheduler, const harpe_perseus_args *args,
                                            int pipeline_ranks, harpe_error *error);
/* Returns true if the blocking power is given. */
bool harpe_perseus_args_have_blocking_power(const harpe_perseus_args *args);
/* Returns the blocking power that is given for a pipeline rank, per GPU. */
double harpe_perseus_args_blocking_power_w(const harpe_perseus_args *args, int pipeline_rank);
/* The function check_args of a harpe_scheduler_class. */
harpe_status harpe_perseus_args_check(const char *scheduler, bool plans, const char *args_json,
                                      harpe_error *error);

#endif
