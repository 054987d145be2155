/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe plan` for all pipeline replicas of a job: the flags, and the steps. */
#ifndef HARPE_CLI_PLAN_PLAN_REPLICAS_H
#define HARPE_CLI_PLAN_PLAN_REPLICAS_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

#include <harpe/replicas.h>

#include "base/directory.h"
#include "cli/plan/problem_options.h"

/* Initialise with zeros. The argp parser fills it in. */
typedef struct harpe_replica_input {
    bool has_columns;        /* --replicas: the profile is of all GPUs */
    const char **more_paths; /* --replica: profiles of further replicas; the array is owned */
    size_t more_count, more_capacity;
    double time_s;   /* 0: not given */
    double slowdown; /* 0: not given */
    double smooth;   /* the most deviation; below 0: not given */
} harpe_replica_input;

/* A child parser whose input is a harpe_replica_input. */
extern const struct argp harpe_replica_argp;

/* Returns true if the command plans replicas. */
bool harpe_replica_input_is_given(const harpe_replica_input *replicas);
void harpe_replica_input_free(harpe_replica_input *replicas);

/* What the command has besides. */
typedef struct harpe_replica_command {
    harpe_problem_input *input;
    const harpe_replica_input *replicas;
    const harpe_plan_request *limits; /* on power */
    const char *output_directory;
    int threads;
    bool verify, json, quiet;
} harpe_replica_command;

/* Everything that is known after planning. Initialise with zeros. */
typedef struct harpe_replica_result {
    harpe_replica_profiles *profiles;
    harpe_replica_plans *plans;
    double seconds; /* of the planning */
    bool verified;
} harpe_replica_result;

/* Reads the profiles, and makes the plans. */
harpe_status harpe_replica_result_make(const harpe_replica_command *command,
                                       const harpe_progress *progress, harpe_replica_result *result,
                                       harpe_error *error);
void harpe_replica_result_free(harpe_replica_result *result);

#endif
