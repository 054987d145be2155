/* SPDX-License-Identifier: Apache-2.0 */
/* The schedules of one round while a scheduler writes them, and after. Owns every instruction; the
 * harpe_frequency_schedules point into it. */
#ifndef HARPE_SERVER_SCHEDULE_SET_H
#define HARPE_SERVER_SCHEDULE_SET_H

#include <stddef.h>

#include <harpe/scheduler.h>

typedef struct harpe_schedule_set harpe_schedule_set;

/* For `rank_count` ranks, all of them empty. NULL when out of memory. */
harpe_schedule_set *harpe_schedule_set_new(int rank_count);
void harpe_schedule_set_free(harpe_schedule_set *set);
/* What a scheduler gets; appends to this set. */
harpe_schedule_writer *harpe_schedule_set_writer(harpe_schedule_set *set);
/* One schedule per rank; valid until the set changes. */
const harpe_frequency_schedule *harpe_schedule_set_schedules(harpe_schedule_set *set);
/* Of all ranks. */
size_t harpe_schedule_set_instruction_count(const harpe_schedule_set *set);

#endif
