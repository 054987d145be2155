/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the plans of all replicas of a job, and writes their files into a directory. */
#ifndef HARPE_CLI_PLAN_REPLICA_OUTPUT_H
#define HARPE_CLI_PLAN_REPLICA_OUTPUT_H

#include <jansson.h>

#include "base/directory.h"
#include "cli/plan/plan_replicas.h"

#define HARPE_REPLICAS_FILE_NAME "replicas.csv"
#define HARPE_JOB_FILE_NAME "job.py"

/* Writes job.py, a plan file for each replica, replicas.csv, bound.csv and plan.json. */
harpe_status harpe_replica_output_write(const harpe_replica_command *command,
                                        const harpe_replica_result *result,
                                        harpe_directory *directory, json_t *arguments,
                                        harpe_error *error);

/* Prints the result, for people or as JSON. `arguments` is released. */
harpe_status harpe_replica_output_print(const harpe_replica_command *command,
                                        const harpe_replica_result *result, json_t *arguments,
                                        harpe_error *error);

#endif
