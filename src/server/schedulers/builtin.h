/* SPDX-License-Identifier: Apache-2.0 */
/* The schedulers that come with Harpe, each one file and one row in the list of scheduler_host.c,
 * and those that make a scheduler of something else. */
#ifndef HARPE_SERVER_SCHEDULERS_BUILTIN_H
#define HARPE_SERVER_SCHEDULERS_BUILTIN_H

#include <harpe/scheduler.h>

extern const harpe_scheduler_class harpe_point_solution;    /* a plan file for the whole job */
extern const harpe_scheduler_class harpe_point_solution_3d; /* the same plan file per stage */
extern const harpe_scheduler_class harpe_all_max_frequency;

#endif
