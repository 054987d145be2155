/* SPDX-License-Identifier: Apache-2.0 */
/* How schedules are made: the table of built-ins and the builder that a generator writes its ranks'
 * lists with. To add one: a file schedule_<name>.c that defines a harpe_schedule_kind, and its row
 * in HARPE_SCHEDULE_KINDS. Knows nothing of time, energy or dependencies. */
#ifndef HARPE_PLAN_SCHEDULE_H
#define HARPE_PLAN_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/schedule.h>

#include "base/array.h"

#define HARPE_RANKS_MAX 4096
#define HARPE_MICROBATCHES_MAX 1000000
#define HARPE_SCHEDULE_INSTRUCTIONS_MAX 50000000 /* of a built-in schedule, all ranks together */
#define HARPE_STANDALONE_NAMES_MAX 64            /* in a prologue or an epilogue */

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
    harpe_arena names; /* of standalone instructions */
};

/* ---- Builder: appends to one rank's list at a time, rank 0 first -------------------------------
 * `failed` stays set after the first allocation that failed, so one check at the end is enough. */

/* The microbatch that comes next at a stage, for each kind of work. */
typedef struct harpe_stage_progress {
    int forward;
    int backward; /* of any kind */
    int weight;
    int recomputation;
} harpe_stage_progress;

typedef struct harpe_schedule_builder {
    harpe_schedule *schedule;
    harpe_stage_progress *progress; /* one per stage; NULL when only harpe_schedule_add is used */
    size_t oldest_input;            /* see harpe_schedule_run_oldest_weight */
    bool failed;
} harpe_schedule_builder;

/* `stage_count` may be 0 where only harpe_schedule_add is used. End with either _finish, which
 * hands the schedule out, or _abort. */
harpe_status harpe_schedule_builder_start(harpe_schedule_builder *builder, const char *name,
                                          int stage_count, int microbatch_count,
                                          harpe_error *error);
harpe_status harpe_schedule_builder_finish(harpe_schedule_builder *builder, harpe_schedule **out,
                                           harpe_error *error);
void harpe_schedule_builder_abort(harpe_schedule_builder *builder);

/* Appends any instruction to the current rank's list. */
void harpe_schedule_add(harpe_schedule_builder *builder, const harpe_instruction *instruction);
/* The current rank's list is complete; the next rank's begins. */
void harpe_schedule_end_rank(harpe_schedule_builder *builder);

/* Appends `operation` on the microbatch that comes next at `stage`: in every schedule here a stage
 * takes its microbatches in order. Microbatches past the last are left out, so a generator may list
 * a longer schedule than was asked for. */
void harpe_schedule_run(harpe_schedule_builder *builder, harpe_operation operation, int stage);
/* A forward and a full backward, overlapped; neither past the last microbatch. */
void harpe_schedule_run_overlapped(harpe_schedule_builder *builder, int forward_stage,
                                   int backward_stage);
/* The weight half of the rank's oldest split backward that has not had it yet, if there is one. */
void harpe_schedule_run_oldest_weight(harpe_schedule_builder *builder);

/* "forward", "backward_input", ...; NULL for HARPE_STANDALONE, which has no fixed name. */
const char *harpe_operation_name(harpe_operation operation);
#define HARPE_OVERLAPPED_NAME "overlap_f_b"

/* ---- Built-in schedules ------------------------------------------------------------------- */

typedef struct harpe_schedule_shape {
    int ranks;
    int microbatches;
    int chunks; /* stages per rank */
} harpe_schedule_shape;

typedef struct harpe_schedule_kind {
    const char *name;
    const char *description; /* one line for help texts, no full stop */
    int default_chunks;
    int minimum_chunks;
    int maximum_chunks;
    int instructions_per_microbatch; /* at most, at one stage */
    /* Refuses shapes that the schedule is not defined for; NULL: there are none. */
    harpe_status (*check)(const harpe_schedule_shape *shape, harpe_error *error);
    /* Lists the instructions of one rank in order. */
    void (*list_rank)(harpe_schedule_builder *builder, const harpe_schedule_shape *shape, int rank);
} harpe_schedule_kind;

/* The table, in the order of help texts. */
#define HARPE_SCHEDULE_KINDS(ROW) \
    ROW(harpe_schedule_1f1b) \
    ROW(harpe_schedule_early_recomputation) \
    ROW(harpe_schedule_gpipe) \
    ROW(harpe_schedule_interleaved) \
    ROW(harpe_schedule_zero_bubble_h1) \
    ROW(harpe_schedule_zb_v) \
    ROW(harpe_schedule_dualpipe_v)

#define HARPE_DECLARE_SCHEDULE_KIND(kind) extern const harpe_schedule_kind kind;
HARPE_SCHEDULE_KINDS(HARPE_DECLARE_SCHEDULE_KIND)

#endif
