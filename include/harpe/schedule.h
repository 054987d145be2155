/* SPDX-License-Identifier: Apache-2.0 */
/* Pipeline schedules: which instructions each rank runs, in which order. A schedule says nothing of
 * time or energy, and nothing of dependencies: those follow from each instruction's operation,
 * stage and microbatch (see harpe_schedule_new). Immutable once made; any thread may read it. */
#ifndef HARPE_SCHEDULE_H
#define HARPE_SCHEDULE_H

#include <stddef.h>

#include <harpe/api.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

typedef struct harpe_schedule harpe_schedule;

/* What an instruction does; decides what it waits for in other instructions. v is its stage. */
typedef enum harpe_operation {
    HARPE_FORWARD = 0,          /* waits for the forward of stage v-1 */
    HARPE_BACKWARD = 1,         /* waits for the backward, of any kind, of stage v+1 */
    HARPE_BACKWARD_INPUT = 2,   /* the half of a split backward that stage v-1 waits for */
    HARPE_BACKWARD_WEIGHT = 3,  /* the other half: after its own input half, nobody waits for it */
    HARPE_RECOMPUTATION = 4,    /* after its own forward, nobody elsewhere waits for it */
    HARPE_FORWARD_BACKWARD = 5, /* recomputation fused with backward; a backward to others */
    HARPE_STANDALONE = 6, /* data loading, optimizer step: only its place in the list counts */
} harpe_operation;

/* One operation on one microbatch at one (virtual) stage. */
typedef struct harpe_action {
    harpe_operation operation;
    int stage;
    int microbatch; /* -1 for HARPE_STANDALONE */
} harpe_action;

/* One entry of a rank's list. `name` is what profiles and plan files call it. */
typedef struct harpe_instruction {
    const char *name;
    harpe_action actions[2]; /* [1] is used only by an overlapped pair, a forward and a backward */
    int action_count;        /* 1 or 2; run as one instruction when the profile has `name` for
                                actions[0].stage, one after the other otherwise */
} harpe_instruction;

/* Parameters of a built-in schedule. Zero-initialise, then set what matters. */
typedef struct harpe_schedule_options {
    const char *name;            /* one of harpe_schedule_names(); NULL: "1f1b" */
    int ranks;                   /* pipeline ranks (GPUs in a row), >= 1 */
    int microbatches;            /* >= 1 */
    int chunks;                  /* stages per rank where a schedule has several; 0: its default */
    const char *const *prologue; /* NULL-terminated names of standalone instructions that every */
    const char *const *epilogue; /* rank runs first / last; NULL for none */
} harpe_schedule_options;

/* Builds a schedule by name: "1f1b", "early-recomputation-1f1b", "gpipe", "interleaved-1f1b",
 * "zb-h1", "zb-v", "dualpipe-v". At most 4096 ranks, 1,000,000 microbatches and 50,000,000
 * instructions; interleaved-1f1b needs a multiple of the ranks as microbatches, dualpipe-v two per
 * rank or more. Free with harpe_schedule_free. */
HARPE_API harpe_status harpe_schedule_new(const harpe_schedule_options *options,
                                          harpe_schedule **out, harpe_error *error);

/* Reads the compute-only CSV that torch.distributed.pipelining writes: a row per rank, cells such
 * as 0F3, 2I1, 2W1, 1B0, (0F7;7B3)OVERLAP_F_B, empty = idle. Refuses a stage on two ranks, an
 * action twice or missing, and an order that can never finish. At most 256 MiB, 4096 ranks,
 * 10,000,000 cells. */
HARPE_API harpe_status harpe_schedule_read_csv(const char *path, harpe_schedule **out,
                                               harpe_error *error);
HARPE_API harpe_status harpe_schedule_parse_csv(const char *text, size_t length, const char *name,
                                                harpe_schedule **out, harpe_error *error);

HARPE_API void harpe_schedule_free(harpe_schedule *schedule);

/* "1f1b", ... or "file". */
HARPE_API const char *harpe_schedule_name(const harpe_schedule *schedule);
HARPE_API int harpe_schedule_rank_count(const harpe_schedule *schedule);
HARPE_API int harpe_schedule_stage_count(const harpe_schedule *schedule);
HARPE_API int harpe_schedule_microbatch_count(const harpe_schedule *schedule);
/* Number of instructions of all ranks. */
HARPE_API size_t harpe_schedule_instruction_count(const harpe_schedule *schedule);
/* One rank's instructions in order; `*count` receives how many. Valid while the schedule lives. */
HARPE_API const harpe_instruction *harpe_schedule_rank(const harpe_schedule *schedule, int rank,
                                                       size_t *count);

/* Built-in schedules, for help texts and loops; index from 0, NULL past the last. */
HARPE_API const char *harpe_schedule_name_at(int index);
HARPE_API const char *harpe_schedule_description_at(int index);

HARPE_END_DECLS

#endif
