/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the instructions that a scheduler writes, in one list for each rank. Instruction names
 * are stored separately, each normally once. */
#include "server/scheduler/hosts.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

enum {
    INSTRUCTIONS_PER_RANK_MAX = 10000000,
    NAME_LENGTH_MAX = 256,
    REMEMBERED_NAMES = 16,
};

typedef struct rank_list {
    harpe_scheduled_instruction *items;
    size_t count, capacity;
} rank_list;

struct harpe_schedule_set {
    harpe_schedule_writer writer; /* must be the first member */
    int rank_count;
    bool is_trial;
    rank_list *ranks;
    harpe_frequency_schedule *schedules;
    size_t instruction_count;
    harpe_arena names;
    /* The latest names. A schedule normally has only a few names. More names also work, but can be
     * stored more than once. */
    const char *remembered[REMEMBERED_NAMES];
    size_t next_remembered;
};

static const char *intern(harpe_schedule_set *set, const char *name, size_t length) {
    for (size_t i = 0; i < REMEMBERED_NAMES && set->remembered[i]; i++)
        if (strcmp(set->remembered[i], name) == 0) return set->remembered[i];
    const char *copy = harpe_arena_strdup(&set->names, name, length);
    if (copy) set->remembered[set->next_remembered++ % REMEMBERED_NAMES] = copy;
    return copy;
}

static harpe_status add(harpe_schedule_writer *writer, int rank, const char *instruction,
                        int frequency_mhz, harpe_error *error) {
    harpe_schedule_set *set = (harpe_schedule_set *)writer;
    if (rank < 0 || rank >= set->rank_count)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the scheduler gave an instruction to rank %d of a job of %d ranks", rank,
                          set->rank_count);
    size_t length = instruction ? strnlen(instruction, NAME_LENGTH_MAX + 1) : 0;
    if (length == 0 || length > NAME_LENGTH_MAX)
        return harpe_fail(
            error, HARPE_INVALID_ARGUMENT,
            "the scheduler gave rank %d an instruction whose name does not have 1 to %d "
            "characters",
            rank, NAME_LENGTH_MAX);
    if (frequency_mhz < 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the scheduler gave instruction %.64s of rank %d %d MHz", instruction,
                          rank, frequency_mhz);
    rank_list *list = &set->ranks[rank];
    if (list->count >= INSTRUCTIONS_PER_RANK_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "the scheduler gave rank %d more than %d instructions", rank,
                          INSTRUCTIONS_PER_RANK_MAX);
    const char *name = intern(set, instruction, length);
    if (!name || !HARPE_ARRAY_RESERVE(list->items, list->capacity, list->count + 1))
        return harpe_fail_memory(error);
    list->items[list->count++] = (harpe_scheduled_instruction){name, frequency_mhz};
    set->instruction_count++;
    return HARPE_OK;
}

static void mark_trial(harpe_schedule_writer *writer) {
    ((harpe_schedule_set *)writer)->is_trial = true;
}

harpe_schedule_set *harpe_schedule_set_new(int rank_count) {
    harpe_schedule_set *set = harpe_calloc(1, sizeof *set);
    if (!set) return NULL;
    set->writer = (harpe_schedule_writer){.add = add, .mark_trial = mark_trial};
    set->rank_count = rank_count;
    set->ranks = harpe_calloc((size_t)rank_count, sizeof *set->ranks);
    set->schedules = harpe_calloc((size_t)rank_count, sizeof *set->schedules);
    if (set->ranks && set->schedules) return set;
    harpe_schedule_set_free(set);
    return NULL;
}

void harpe_schedule_set_free(harpe_schedule_set *set) {
    if (!set) return;
    for (int r = 0; r < set->rank_count && set->ranks; r++)
        free(set->ranks[r].items);
    free(set->ranks);
    free(set->schedules);
    harpe_arena_free(&set->names);
    free(set);
}

harpe_schedule_writer *harpe_schedule_set_writer(harpe_schedule_set *set) { return &set->writer; }

const harpe_frequency_schedule *harpe_schedule_set_schedules(harpe_schedule_set *set) {
    for (int r = 0; r < set->rank_count; r++)
        set->schedules[r] =
            (harpe_frequency_schedule){r, set->ranks[r].items, set->ranks[r].count, set->is_trial};
    return set->schedules;
}

size_t harpe_schedule_set_instruction_count(const harpe_schedule_set *set) {
    return set->instruction_count;
}
