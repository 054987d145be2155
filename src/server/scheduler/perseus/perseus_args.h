/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of the online schedulers. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_ARGS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_ARGS_H

#include <jansson.h>
#include <stdbool.h>

#include <harpe/status.h>

typedef struct harpe_perseus_args {
    json_t *json;                        /* owns the texts below */
    const char *schedule, *schedule_csv; /* at most one is set; both NULL: 1f1b */
    const char *profile_path;            /* NULL: in the job's directory */
    int num_microbatches;                /* 0: they are counted */
    int frequency_stride, rises_to_stop, plans, rounds_to_drift;
    double blocking_power_w; /* per GPU; negative: it is measured */
    double slowdown, drift_tolerance;
} harpe_perseus_args;

/* Reads arguments. If `plans` is true, also accepts the arguments for planning, which
 * InstructionProfiler does not have. Free with harpe_perseus_args_free. */
harpe_status harpe_perseus_args_read(const char *scheduler, bool plans, const char *args_json,
                                     harpe_perseus_args *out, harpe_error *error);
void harpe_perseus_args_free(harpe_perseus_args *args);
/* The function check_args of a harpe_scheduler_class. */
harpe_status harpe_perseus_args_check(const char *scheduler, bool plans, const char *args_json,
                                      harpe_error *error);

#endif
