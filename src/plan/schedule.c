/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule object and its builder. Makes a built-in schedule from its name. Each built-in
 * schedule has a file schedule_*.c, which contains the order of its instructions. schedule_csv.c
 * reads schedules from files. */
#include "plan/schedule.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/profile.h>

#include "base/array.h"
#include "base/error.h"
#include "base/text.h"

#define KIND_POINTER(kind) &kind,
static const harpe_schedule_kind *const kinds[] = {HARPE_SCHEDULE_KINDS(KIND_POINTER)};
#define KIND_COUNT ((int)(sizeof kinds / sizeof kinds[0]))

static const char *const operation_names[] = {
    [HARPE_FORWARD] = "forward",
    [HARPE_BACKWARD] = "backward",
    [HARPE_BACKWARD_INPUT] = "backward_input",
    [HARPE_BACKWARD_WEIGHT] = "backward_weight",
    [HARPE_RECOMPUTATION] = "recomputation",
    [HARPE_FORWARD_BACKWARD] = "forward_backward",
    [HARPE_STANDALONE] = NULL,
};

const char *harpe_operation_name(harpe_operation operation) { return operation_names[operation]; }

char harpe_operation_letter(harpe_operation operation) { return "FBIWRB?"[operation]; }

/* ---- Builder --------------------------------------------------------------------------------- */

harpe_status harpe_schedule_builder_start(harpe_schedule_builder *builder, const char *name,
                                          int stage_count, int microbatch_count,
                                          harpe_error *error) {
    *builder = (harpe_schedule_builder){0};
    builder->schedule = harpe_calloc(1, sizeof *builder->schedule);
    builder->progress = harpe_calloc((size_t)stage_count, sizeof *builder->progress);
    harpe_schedule *schedule = builder->schedule;
    if (!schedule || !builder->progress ||
        !HARPE_ARRAY_RESERVE(schedule->rank_start, schedule->rank_start_capacity, 1)) {
        harpe_schedule_builder_abort(builder);
        return harpe_fail_memory(error);
    }
    schedule->rank_start[0] = 0;
    schedule->name = name;
    schedule->stage_count = stage_count;
    schedule->microbatch_count = microbatch_count;
    return HARPE_OK;
}

static int compare_waits(const void *left, const void *right) {
    const harpe_wait *a = left, *b = right;
    if (a->after != b->after) return a->after < b->after ? -1 : 1;
    return (a->before > b->before) - (a->before < b->before);
}

/* Also leaves out repetitions. */
static void sort_waits(harpe_schedule *schedule) {
    size_t kept = 0;
    if (schedule->wait_count == 0) return;
    qsort(schedule->waits, schedule->wait_count, sizeof *schedule->waits, compare_waits);
    for (size_t i = 0; i < schedule->wait_count; i++)
        if (kept == 0 || compare_waits(&schedule->waits[kept - 1], &schedule->waits[i]) != 0)
            schedule->waits[kept++] = schedule->waits[i];
    schedule->wait_count = kept;
}

harpe_status harpe_schedule_builder_finish(harpe_schedule_builder *builder, harpe_schedule **out,
                                           harpe_error *error) {
    if (builder->failed) {
        harpe_schedule_builder_abort(builder);
        return harpe_fail_memory(error);
    }
    sort_waits(builder->schedule);
    *out = builder->schedule;
    builder->schedule = NULL;
    harpe_schedule_builder_abort(builder);
    return HARPE_OK;
}

void harpe_schedule_builder_abort(harpe_schedule_builder *builder) {
    harpe_schedule_free(builder->schedule);
    free(builder->progress);
    *builder = (harpe_schedule_builder){0};
}

void harpe_schedule_add(harpe_schedule_builder *builder, const harpe_instruction *instruction) {
    harpe_schedule *schedule = builder->schedule;
    if (!HARPE_ARRAY_RESERVE(schedule->instructions, schedule->instruction_capacity,
                             schedule->instruction_count + 1)) {
        builder->failed = true;
        return;
    }
    schedule->instructions[schedule->instruction_count++] = *instruction;
}

void harpe_schedule_end_rank(harpe_schedule_builder *builder) {
    harpe_schedule *schedule = builder->schedule;
    size_t next_rank = (size_t)schedule->rank_count + 1;
    if (!HARPE_ARRAY_RESERVE(schedule->rank_start, schedule->rank_start_capacity, next_rank + 1)) {
        builder->failed = true;
        return;
    }
    schedule->rank_start[next_rank] = schedule->instruction_count;
    schedule->rank_count++;
    builder->oldest_input = schedule->instruction_count;
}

void harpe_schedule_add_wait(harpe_schedule_builder *builder, size_t before, size_t after) {
    harpe_schedule *schedule = builder->schedule;
    if (!HARPE_ARRAY_RESERVE(schedule->waits, schedule->wait_capacity, schedule->wait_count + 1)) {
        builder->failed = true;
        return;
    }
    schedule->waits[schedule->wait_count++] = (harpe_wait){(int32_t)before, (int32_t)after};
}

harpe_status harpe_schedule_set_barrier_waits(harpe_schedule *schedule, harpe_error *error) {
    size_t ranks = (size_t)schedule->rank_count, per_rank = schedule->barrier_count / ranks;
    if (!HARPE_ARRAY_RESERVE(schedule->waits, schedule->wait_capacity, per_rank * ranks * ranks))
        return harpe_fail_memory(error);
    schedule->wait_count = 0;
    for (size_t k = 0; k < per_rank; k++) {
        for (size_t to = 0; to < ranks; to++) {
            size_t after = schedule->barriers[to * per_rank + k];
            if (after == schedule->rank_start[to + 1]) continue;
            for (size_t from = 0; from < ranks; from++) {
                size_t before = schedule->barriers[from * per_rank + k];
                if (from != to && before > schedule->rank_start[from])
                    schedule->waits[schedule->wait_count++] =
                        (harpe_wait){(int32_t)before - 1, (int32_t)after};
            }
        }
    }
    sort_waits(schedule);
    return HARPE_OK;
}

void harpe_schedule_begin_at(harpe_schedule_builder *builder, int stage, int microbatch) {
    builder->progress[stage] =
        (harpe_stage_progress){microbatch, microbatch, microbatch, microbatch};
}

/* Returns the microbatch that `operation` takes next at `stage`, and advances to the one after
 * it. */
static int take_microbatch(harpe_schedule_builder *builder, harpe_operation operation, int stage) {
    harpe_stage_progress *next = &builder->progress[stage];
    switch (operation) {
    case HARPE_FORWARD: return next->forward++;
    case HARPE_BACKWARD_WEIGHT: return next->weight++;
    case HARPE_RECOMPUTATION: return next->recomputation++;
    case HARPE_BACKWARD:
        /* A full backward includes the weight half. (No schedule runs a full backward while a
         * weight half of the same stage is outstanding.) */
        next->weight = next->backward + 1;
        return next->backward++;
    case HARPE_FORWARD_BACKWARD: next->recomputation = next->backward + 1; return next->backward++;
    case HARPE_BACKWARD_INPUT: return next->backward++;
    case HARPE_STANDALONE: break;
    }
    return -1;
}

void harpe_schedule_run(harpe_schedule_builder *builder, harpe_operation operation, int stage) {
    int microbatch = take_microbatch(builder, operation, stage);
    if (microbatch >= builder->schedule->microbatch_count) return;
    harpe_instruction instruction = {
        .name = harpe_operation_name(operation),
        .actions = {{operation, stage, microbatch}},
        .action_count = 1,
    };
    harpe_schedule_add(builder, &instruction);
}

void harpe_schedule_run_overlapped(harpe_schedule_builder *builder, int forward_stage,
                                   int backward_stage) {
    harpe_instruction instruction = {
        .name = HARPE_OVERLAPPED_NAME,
        .actions = {{HARPE_FORWARD, forward_stage,
                     take_microbatch(builder, HARPE_FORWARD, forward_stage)},
                    {HARPE_BACKWARD, backward_stage,
                     take_microbatch(builder, HARPE_BACKWARD, backward_stage)}},
        .action_count = 2,
    };
    harpe_schedule_add(builder, &instruction);
}

void harpe_schedule_run_oldest_weight(harpe_schedule_builder *builder) {
    const harpe_schedule *schedule = builder->schedule;
    for (size_t i = builder->oldest_input; i < schedule->instruction_count; i++) {
        const harpe_action *action = &schedule->instructions[i].actions[0];
        if (action->operation != HARPE_BACKWARD_INPUT) continue;
        if (action->microbatch < builder->progress[action->stage].weight) continue;
        builder->oldest_input = i + 1;
        harpe_schedule_run(builder, HARPE_BACKWARD_WEIGHT, action->stage);
        return;
    }
    builder->oldest_input = schedule->instruction_count;
}

/* ---- Built-ins ------------------------------------------------------------------------------- */

static harpe_status find_kind(const char *name, const harpe_schedule_kind **out,
                              harpe_error *error) {
    harpe_text names = {0};
    for (int i = 0; i < KIND_COUNT; i++) {
        if (strcmp(kinds[i]->name, name) == 0) {
            *out = kinds[i];
            harpe_text_free(&names);
            return HARPE_OK;
        }
        harpe_text_printf(&names, "%s%s", i > 0 ? ", " : "", kinds[i]->name);
    }
    harpe_status status =
        harpe_fail(error, HARPE_INVALID_ARGUMENT, "unknown schedule '%.100s'; built in are %s",
                   name, names.failed ? "1f1b and others" : names.data);
    harpe_text_free(&names);
    return status;
}

bool harpe_is_instruction_name(const char *name, size_t length) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_.:-";
    if (!name || length == 0 || length > HARPE_INSTRUCTION_NAME_MAX) return false;
    for (size_t i = 0; i < length; i++)
        if (!memchr(allowed, name[i], sizeof allowed - 1)) return false;
    return true;
}

static bool is_operation_name(const char *name) {
    for (size_t i = 0; i < sizeof operation_names / sizeof operation_names[0]; i++)
        if (operation_names[i] && strcmp(operation_names[i], name) == 0) return true;
    return strcmp(name, HARPE_OVERLAPPED_NAME) == 0;
}

/* Checks a prologue or an epilogue. `*count` receives the number of its names. */
static harpe_status check_standalone(const char *const *names, const char *what, size_t *count,
                                     harpe_error *error) {
    *count = 0;
    for (; names && names[*count]; ++*count) {
        const char *name = names[*count];
        if (*count == HARPE_STANDALONE_NAMES_MAX)
            return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s: more than %d instructions", what,
                              HARPE_STANDALONE_NAMES_MAX);
        if (!harpe_is_instruction_name(name, strlen(name)))
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "%s: '%.100s' is not an instruction name (1 to %d letters, digits or "
                              "_ . : -)",
                              what, name, HARPE_INSTRUCTION_NAME_MAX);
        if (is_operation_name(name))
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "%s: '%s' is a pipeline instruction; choose another name", what,
                              name);
    }
    return HARPE_OK;
}

/* Refuses settings that the schedule does not have. */
static harpe_status check_settings(const harpe_schedule_kind *kind,
                                   const harpe_schedule_shape *shape, harpe_error *error) {
    if (shape->group_size < 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the microbatch group size must be at least 1, or 0 for the default, not "
                          "%d",
                          shape->group_size);
    if (shape->group_size != 0 && !kind->takes_group_size)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "schedule %s has no groups of microbatches: leave the microbatch group "
                          "size out, or choose interleaved-1f1b",
                          kind->name);
    if (shape->overlaps_expert_comm && !kind->takes_overlap)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "schedule %s cannot overlap expert communication: choose "
                          "interleaved-1f1b, or 1f1b on one rank",
                          kind->name);
    return kind->check ? kind->check(shape, error) : HARPE_OK;
}

/* Sets the number of chunks to its default if none was given, and refuses values out of range. */
static harpe_status check_chunks(const harpe_schedule_kind *kind, int *chunks, harpe_error *error) {
    if (*chunks == 0) *chunks = kind->default_chunks;
    if (*chunks >= kind->minimum_chunks && *chunks <= kind->maximum_chunks) return HARPE_OK;
    if (kind->minimum_chunks == kind->maximum_chunks)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "schedule %s has exactly %d stage%s per rank, not %d", kind->name,
                          kind->minimum_chunks, kind->minimum_chunks > 1 ? "s" : "", *chunks);
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "schedule %s needs %d to %d stages per rank, not %d", kind->name,
                      kind->minimum_chunks, kind->maximum_chunks, *chunks);
}

static harpe_status check_shape(const harpe_schedule_kind *kind, harpe_schedule_shape *shape,
                                harpe_error *error) {
    if (shape->ranks < 1 || shape->ranks > HARPE_RANKS_MAX)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the number of pipeline ranks (stages) must be 1 to %d, not %d",
                          HARPE_RANKS_MAX, shape->ranks);
    if (shape->microbatches < 1 || shape->microbatches > HARPE_MICROBATCHES_MAX)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the number of microbatches must be 1 to %d, not %d",
                          HARPE_MICROBATCHES_MAX, shape->microbatches);
    harpe_status status = check_chunks(kind, &shape->chunks, error);
    if (status != HARPE_OK) return status;
    int64_t stages = (int64_t)shape->ranks * shape->chunks;
    if (stages > HARPE_STAGE_MAX + 1)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "%d ranks with %d stages each are %lld stages; at most %d are supported",
                          shape->ranks, shape->chunks, (long long)stages, HARPE_STAGE_MAX + 1);
    return check_settings(kind, shape, error);
}

harpe_status harpe_schedule_find_chunks(const harpe_schedule_options *options, int *chunks,
                                        harpe_error *error) {
    const harpe_schedule_kind *kind = NULL;
    int found = options->chunks;
    harpe_status status = find_kind(options->name ? options->name : "1f1b", &kind, error);
    if (status == HARPE_OK) status = check_chunks(kind, &found, error);
    if (status == HARPE_OK) *chunks = found;
    return status;
}

static harpe_status check_size(const harpe_schedule_kind *kind, const harpe_schedule_shape *shape,
                               size_t standalone_count, harpe_error *error) {
    int64_t per_rank =
        (int64_t)shape->chunks * shape->microbatches * kind->instructions_per_microbatch +
        (int64_t)standalone_count;
    int64_t instructions = per_rank * shape->ranks;
    if (instructions <= HARPE_SCHEDULE_INSTRUCTIONS_MAX) return HARPE_OK;
    return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                      "%d ranks with %d microbatches need up to %lld instructions; at most %d are "
                      "supported, so ask for fewer microbatches",
                      shape->ranks, shape->microbatches, (long long)instructions,
                      HARPE_SCHEDULE_INSTRUCTIONS_MAX);
}

/* Copies `count` names and adds a NULL at the end. The schedule owns the copy. Returns NULL if
 * memory runs out. */
static const char **copy_names(harpe_schedule *schedule, const char *const *names, size_t count) {
    const char **copy = harpe_arena_alloc(&schedule->names, count + 1, sizeof *copy);
    for (size_t i = 0; copy && i < count; i++) {
        copy[i] = harpe_arena_strdup(&schedule->names, names[i], strlen(names[i]));
        if (!copy[i]) return NULL;
    }
    return copy;
}

static void add_standalone(harpe_schedule_builder *builder, const char *const *names, int rank) {
    for (; *names; names++) {
        /* In every built-in, rank r's lowest stage is r. */
        harpe_instruction instruction = {
            .name = *names, .actions = {{HARPE_STANDALONE, rank, -1}}, .action_count = 1};
        harpe_schedule_add(builder, &instruction);
    }
}

harpe_status harpe_schedule_new(const harpe_schedule_options *options, harpe_schedule **out,
                                harpe_error *error) {
    const harpe_schedule_kind *kind = NULL;
    harpe_status status = find_kind(options->name ? options->name : "1f1b", &kind, error);
    if (status != HARPE_OK) return status;
    harpe_schedule_shape shape = {
        .ranks = options->ranks,
        .microbatches = options->microbatches,
        .chunks = options->chunks,
        .group_size = options->microbatch_group_size,
        .overlaps_expert_comm = options->overlaps_moe_expert_parallel_comm,
    };
    status = check_shape(kind, &shape, error);
    if (status != HARPE_OK) return status;
    size_t prologue_count, epilogue_count;
    status = check_standalone(options->prologue, "prologue", &prologue_count, error);
    if (status != HARPE_OK) return status;
    status = check_standalone(options->epilogue, "epilogue", &epilogue_count, error);
    if (status != HARPE_OK) return status;
    status = check_size(kind, &shape, prologue_count + epilogue_count, error);
    if (status != HARPE_OK) return status;

    harpe_schedule_builder builder;
    status = harpe_schedule_builder_start(&builder, kind->name, shape.ranks * shape.chunks,
                                          shape.microbatches, error);
    if (status != HARPE_OK) return status;
    const char **prologue = copy_names(builder.schedule, options->prologue, prologue_count);
    const char **epilogue = copy_names(builder.schedule, options->epilogue, epilogue_count);
    builder.failed = !prologue || !epilogue;
    for (int rank = 0; rank < shape.ranks && !builder.failed; rank++) {
        add_standalone(&builder, prologue, rank);
        kind->list_rank(&builder, &shape, rank);
        add_standalone(&builder, epilogue, rank);
        harpe_schedule_end_rank(&builder);
    }
    if (kind->add_waits && !builder.failed) kind->add_waits(&builder, &shape, prologue_count);
    return harpe_schedule_builder_finish(&builder, out, error);
}

bool harpe_schedule_has_lag(const harpe_schedule *schedule) {
    for (size_t i = 0; i < schedule->instruction_count; i++)
        if (schedule->instructions[i].lag_s > 0) return true;
    return false;
}

int harpe_schedule_shared_stage(const harpe_schedule *schedule, int *owner, int *other) {
    for (int rank = 0; rank < schedule->rank_count; rank++) {
        for (size_t i = schedule->rank_start[rank]; i < schedule->rank_start[rank + 1]; i++) {
            for (int a = 0; a < schedule->instructions[i].action_count; a++) {
                int stage = schedule->instructions[i].actions[a].stage;
                if (other) *other = rank;
                if (owner[stage] != 0 && owner[stage] != rank + 1) return stage;
                owner[stage] = rank + 1;
            }
        }
    }
    return -1;
}

/* ---- Surrounding lists that exist ------------------------------------------------------------ */

static int lowest_stage(const harpe_schedule *schedule, int rank) {
    int lowest = HARPE_STAGE_MAX;
    for (size_t i = schedule->rank_start[rank]; i < schedule->rank_start[rank + 1]; i++)
        for (int a = 0; a < schedule->instructions[i].action_count; a++)
            if (schedule->instructions[i].actions[a].stage < lowest)
                lowest = schedule->instructions[i].actions[a].stage;
    return lowest;
}

static harpe_instruction *put_names(harpe_instruction *at, const char **names, int stage) {
    for (; *names; names++)
        *at++ = (harpe_instruction){
            .name = *names, .actions = {{HARPE_STANDALONE, stage, -1}}, .action_count = 1};
    return at;
}

static void surround(harpe_schedule *schedule, harpe_instruction *into, const char **prologue,
                     const char **epilogue) {
    harpe_instruction *at = into;
    for (int rank = 0; rank < schedule->rank_count; rank++) {
        size_t start = schedule->rank_start[rank];
        size_t count = schedule->rank_start[rank + 1] - start;
        int stage = lowest_stage(schedule, rank);
        at = put_names(at, prologue, stage);
        memcpy(at, schedule->instructions + start, count * sizeof *at);
        at = put_names(at + count, epilogue, stage);
    }
}

harpe_status harpe_schedule_surround(harpe_schedule *schedule, const char *const *prologue,
                                     const char *const *epilogue, harpe_error *error) {
    size_t before, after;
    harpe_status status = check_standalone(prologue, "prologue", &before, error);
    if (status == HARPE_OK) status = check_standalone(epilogue, "epilogue", &after, error);
    if (status != HARPE_OK) return status;
    size_t added = before + after;
    size_t count = schedule->instruction_count + added * (size_t)schedule->rank_count;
    const char **first = copy_names(schedule, prologue, before);
    const char **last = copy_names(schedule, epilogue, after);
    harpe_instruction *instructions = harpe_calloc(count, sizeof *instructions);
    if (!first || !last || !instructions) {
        free(instructions);
        return harpe_fail_memory(error);
    }
    surround(schedule, instructions, first, last);
    for (int rank = 1; rank <= schedule->rank_count; rank++)
        schedule->rank_start[rank] += added * (size_t)rank;
    size_t barriers = schedule->barrier_count / (size_t)schedule->rank_count;
    for (size_t k = 0; k < schedule->barrier_count; k++)
        schedule->barriers[k] += added * (k / barriers) + before;
    free(schedule->instructions);
    schedule->instructions = instructions;
    schedule->instruction_count = schedule->instruction_capacity = count;
    return harpe_schedule_set_barrier_waits(schedule, error); /* there is room for them */
}

/* ---- Accessors ------------------------------------------------------------------------------- */

void harpe_schedule_free(harpe_schedule *schedule) {
    if (!schedule) return;
    harpe_arena_free(&schedule->names);
    free(schedule->instructions);
    free(schedule->waits);
    free(schedule->barriers);
    free(schedule->rank_start);
    free(schedule);
}

const char *harpe_schedule_name(const harpe_schedule *schedule) { return schedule->name; }

int harpe_schedule_rank_count(const harpe_schedule *schedule) { return schedule->rank_count; }

int harpe_schedule_stage_count(const harpe_schedule *schedule) { return schedule->stage_count; }

int harpe_schedule_microbatch_count(const harpe_schedule *schedule) {
    return schedule->microbatch_count;
}

size_t harpe_schedule_instruction_count(const harpe_schedule *schedule) {
    return schedule->instruction_count;
}

const harpe_instruction *harpe_schedule_rank(const harpe_schedule *schedule, int rank,
                                             size_t *count) {
    if (rank < 0 || rank >= schedule->rank_count) {
        *count = 0;
        return NULL;
    }
    size_t start = schedule->rank_start[rank];
    *count = schedule->rank_start[rank + 1] - start;
    return schedule->instructions + start;
}

const char *harpe_schedule_name_at(int index) {
    return index >= 0 && index < KIND_COUNT ? kinds[index]->name : NULL;
}

const char *harpe_schedule_description_at(int index) {
    return index >= 0 && index < KIND_COUNT ? kinds[index]->description : NULL;
}

const char *harpe_action_name(const harpe_action *action) {
    switch (action->operation) {
    case HARPE_FORWARD: return "forward";
    case HARPE_BACKWARD_INPUT: return "backward_input";
    case HARPE_BACKWARD_WEIGHT: return "backward_weight";
    default: return "backward";
    }
}
