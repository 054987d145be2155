/* SPDX-License-Identifier: Apache-2.0 */
/* Makes schedules: the table of built-in schedules, and the builder with which they write the list
 * of each rank. To add a schedule, write a file schedule_<name>.c that defines a
 * harpe_schedule_kind, and add its row to HARPE_SCHEDULE_KINDS. Schedules do not contain times,
 * energies or dependencies. */
#ifndef HARPE_PLAN_SCHEDULE_H
#define HARPE_PLAN_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/schedule.h>

#include "base/array.h"
#include "plan/dag.h"

#define HARPE_RANKS_MAX 4096
#define HARPE_MICROBATCHES_MAX 1000000
#define HARPE_SCHEDULE_INSTRUCTIONS_MAX \
    50000000                          /* limit for a built-in schedule, all ranks \
                                       * together */
#define HARPE_STANDALONE_NAMES_MAX 64 /* limit for a prologue or an epilogue */

struct harpe_schedule {
    const char *name;
    int rank_count;
    int stage_count;
    int microbatch_count;
    size_t *rank_start; /* rank r's list is instructions[rank_start[r] .. rank_start[r + 1] - 1] */
    size_t rank_start_capacity;
    harpe_instruction *instructions;
    size_t instruction_count;
    size_t instruction_capacity;
    harpe_wait *waits; /* between indices of `instructions`, sorted by `after`, then by `before` */
    size_t wait_count, wait_capacity;
    /* The barriers of a file, which then has no other waits. Those of rank 0 in their order, then
     * of rank 1, ...: number of instructions of all ranks before it. */
    size_t *barriers;
    size_t barrier_count, barrier_capacity;
    harpe_arena names; /* of standalone instructions */
};

/* ---- Builder: appends to one rank's list at a time, rank 0 first ----------------------------- */
/* `failed` stays true after the first failed allocation, so it is enough to check it once at the
 * end. */

/* The next microbatch at a stage, for each kind of work. */
typedef struct harpe_stage_progress {
    int forward;
    int backward; /* of any kind */
    int weight;
    int recomputation;
} harpe_stage_progress;

typedef struct harpe_schedule_builder {
    harpe_schedule *schedule;
    harpe_stage_progress *progress; /* one per stage; NULL if only harpe_schedule_add is used */
    size_t oldest_input;            /* see harpe_schedule_run_oldest_weight */
    bool failed;
} harpe_schedule_builder;

/* Starts a schedule. `stage_count` may be 0 if only harpe_schedule_add is used. In the end call
 * _finish, which returns the schedule, or _abort. */
harpe_status harpe_schedule_builder_start(harpe_schedule_builder *builder, const char *name,
                                          int stage_count, int microbatch_count,
                                          harpe_error *error);
harpe_status harpe_schedule_builder_finish(harpe_schedule_builder *builder, harpe_schedule **out,
                                           harpe_error *error);
void harpe_schedule_builder_abort(harpe_schedule_builder *builder);

/* Appends any instruction to the current rank's list. */
void harpe_schedule_add(harpe_schedule_builder *builder, const harpe_instruction *instruction);
/* Adds a dependency that does not follow from the operations: the instruction with the index
 * `after` (counted over all ranks) starts when `before` has ended. Waits may be added in any order,
 * and more than once. */
void harpe_schedule_add_wait(harpe_schedule_builder *builder, size_t before, size_t after);
/* Makes the waits those of the barriers, of which each rank has the same number: what follows one
 * on a rank waits for what precedes it on every other rank. On failure the waits are unchanged. */
harpe_status harpe_schedule_set_barrier_waits(harpe_schedule *schedule, harpe_error *error);
/* Ends the current rank's list and begins the list of the next rank. */
void harpe_schedule_end_rank(harpe_schedule_builder *builder);

/* Sets the next microbatch at a stage, for all kinds of work. The first is 0. */
void harpe_schedule_begin_at(harpe_schedule_builder *builder, int stage, int microbatch);
/* Appends `operation` on the next microbatch at `stage`. In every built-in schedule, a stage takes
 * its microbatches in order. If there is no microbatch left, appends nothing, so a built-in
 * schedule may list more microbatches than requested. */
void harpe_schedule_run(harpe_schedule_builder *builder, harpe_operation operation, int stage);
/* Appends an overlapped forward and full backward. Microbatches past the last are left out. */
void harpe_schedule_run_overlapped(harpe_schedule_builder *builder, int forward_stage,
                                   int backward_stage);
/* Finds the rank's oldest split backward whose weight half is not in the list, and appends that
 * weight half. Appends nothing if there is no such backward. */
void harpe_schedule_run_oldest_weight(harpe_schedule_builder *builder);

/* Returns a stage that two ranks run, or -1. `owner` must have a zero for each stage, and receives
 * the number of the stage's rank plus 1. `*other` (may be NULL) receives the second rank of the
 * stage. */
int harpe_schedule_shared_stage(const harpe_schedule *schedule, int *owner, int *other);

/* Returns true if an instruction has a lag. */
bool harpe_schedule_has_lag(const harpe_schedule *schedule);

/* Returns true if `length` bytes may be the name of an instruction. */
bool harpe_is_instruction_name(const char *name, size_t length);

/* Adds the standalone instructions of a prologue and an epilogue (each ended by NULL; NULL: none)
 * to every rank of a schedule that was read from a file. They belong to the lowest stage of the
 * rank, and lie before and behind all barriers. On failure the schedule is unchanged. */
harpe_status harpe_schedule_surround(harpe_schedule *schedule, const char *const *prologue,
                                     const char *const *epilogue, harpe_error *error);

/* Returns "forward", "backward_input", ...; NULL for HARPE_STANDALONE, which has no fixed name. */
const char *harpe_operation_name(harpe_operation operation);
/* Returns the letter of torch.distributed.pipelining: F, B, I, W or R. */
char harpe_operation_letter(harpe_operation operation);
#define HARPE_OVERLAPPED_NAME "overlap_f_b"

/* ---- Built-in schedules ---------------------------------------------------------------------- */

typedef struct harpe_schedule_shape {
    int ranks;
    int microbatches;
    int chunks;                /* stages per rank */
    int group_size;            /* microbatch_group_size; 0: the schedule's default */
    bool overlaps_expert_comm; /* overlaps_moe_expert_parallel_comm */
} harpe_schedule_shape;

typedef struct harpe_schedule_kind {
    const char *name;
    const char *description; /* one line for help texts, without full stop */
    int default_chunks;
    int minimum_chunks;
    int maximum_chunks;
    int instructions_per_microbatch; /* highest number at one stage */
    bool takes_group_size;           /* microbatch_group_size is allowed */
    bool takes_overlap;              /* overlaps_moe_expert_parallel_comm is allowed */
    /* Refuses shapes for which the schedule is not defined; NULL: all shapes are valid. */
    harpe_status (*check)(const harpe_schedule_shape *shape, harpe_error *error);
    /* Lists the instructions of one rank in order. */
    void (*list_rank)(harpe_schedule_builder *builder, const harpe_schedule_shape *shape, int rank);
    /* Adds waits, after all lists are complete. `prologue_count` instructions that list_rank does
     * not list are at the start of each rank's list. NULL: no waits. */
    void (*add_waits)(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                      size_t prologue_count);
} harpe_schedule_kind;

/* The table, in the order of the help texts. */
#define HARPE_SCHEDULE_KINDS(ROW) \
    ROW(harpe_schedule_1f1b) \
    ROW(harpe_schedule_early_recomputation) \
    ROW(harpe_schedule_gpipe) \
    ROW(harpe_schedule_interleaved) \
    ROW(harpe_schedule_zero_bubble_h1) \
    ROW(harpe_schedule_zb_v) \
    ROW(harpe_schedule_dualpipe_v) \
    ROW(harpe_schedule_dualpipe_v_deepseek) \
    ROW(harpe_schedule_dualpipe)

/* Finds the number of stages per rank: `chunks` of the options, or the built-in's default. Fails
 * if there is no such built-in, or if it cannot have this number. */
harpe_status harpe_schedule_find_chunks(const harpe_schedule_options *options, int *chunks,
                                        harpe_error *error);

#define HARPE_DECLARE_SCHEDULE_KIND(kind) extern const harpe_schedule_kind kind;
HARPE_SCHEDULE_KINDS(HARPE_DECLARE_SCHEDULE_KIND)

/* Returns the name of an instruction with this action alone. */
const char *harpe_action_name(const harpe_action *action);

#endif
