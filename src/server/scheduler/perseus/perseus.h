/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of an online scheduler, as functions of a harpe_scheduler_class. Perseus and
 * InstructionProfiler share them. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/scheduler.h>

harpe_status harpe_perseus_create(const harpe_scheduler_job *job, const char *name,
                                  bool makes_plans, void **state, harpe_error *error);
harpe_status harpe_perseus_next(void *state, harpe_schedule_writer *writer, harpe_error *error);
harpe_status harpe_perseus_observe(void *state, const harpe_profiling_result *results, size_t count,
                                   harpe_error *error);
void harpe_perseus_destroy(void *state);

#endif
