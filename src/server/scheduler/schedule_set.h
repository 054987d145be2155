/* SPDX-License-Identifier: Apache-2.0 */
/* The schedules of one round. A scheduler writes them into the set with a writer. The set owns all
 * instructions. The harpe_frequency_schedules point to these instructions. */
#ifndef HARPE_SERVER_SCHEDULER_SCHEDULE_SET_H
#define HARPE_SERVER_SCHEDULER_SCHEDULE_SET_H

#include <stddef.h>

#include <harpe/scheduler.h>

typedef struct harpe_schedule_set harpe_schedule_set;

/* Makes a set with `rank_count` empty schedules. Returns NULL if memory runs out. */
harpe_schedule_set *harpe_schedule_set_new(int rank_count);
void harpe_schedule_set_free(harpe_schedule_set *set);
/* Returns the writer with which a scheduler appends to this set. */
harpe_schedule_writer *harpe_schedule_set_writer(harpe_schedule_set *set);
/* Returns one schedule per rank, valid until the set changes. */
const harpe_frequency_schedule *harpe_schedule_set_schedules(harpe_schedule_set *set);
/* Returns the number of instructions of all ranks. */
size_t harpe_schedule_set_instruction_count(const harpe_schedule_set *set);

#endif
