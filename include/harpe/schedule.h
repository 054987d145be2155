/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline schedule lists the instructions of each rank in their order. It contains no times and
 * no energies. Dependencies follow from each instruction's operation, stage and microbatch (see
 * harpe_operation). Some schedules have further dependencies, which harpe_problem_new knows. A
 * schedule does not change after it is made, and any thread may read it. */
#ifndef HARPE_SCHEDULE_H
#define HARPE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/api.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

typedef struct harpe_schedule harpe_schedule;

/* The operation of an instruction of stage v. Each comment says for which instructions of the same
 * microbatch the instruction waits. */
typedef enum harpe_operation {
    HARPE_FORWARD = 0,          /* waits for the forward of stage v-1 */
    HARPE_BACKWARD = 1,         /* waits for the forward of stage v, its recomputation if there is
                                 * one, and the backward, of any kind, of stage v+1 */
    HARPE_BACKWARD_INPUT = 2,   /* the first half of a split backward. It waits as a backward does,
                                 * and stage v-1 waits for it */
    HARPE_BACKWARD_WEIGHT = 3,  /* the second half. It waits for the first half of stage v, and no
                                 * instruction waits for it */
    HARPE_RECOMPUTATION = 4,    /* waits for the forward of stage v; no other stage waits for it */
    HARPE_FORWARD_BACKWARD = 5, /* a recomputation and a backward in one instruction. It waits as a
                                 * backward does, and stage v-1 waits for it */
    HARPE_STANDALONE = 6,       /* loads data or runs the optimizer. It waits only for the
                                 * instruction before it in the list */
} harpe_operation;

/* One operation on one microbatch at one (virtual) stage. */
typedef struct harpe_action {
    harpe_operation operation;
    int stage;
    int microbatch; /* -1 for HARPE_STANDALONE */
} harpe_action;

/* One entry of a rank's list. `name` is its name in profiles and plan files. */
typedef struct harpe_instruction {
    const char *name;
    harpe_action actions[2]; /* [1] is used only by an overlapped pair of a forward and a
                              * backward */
    int action_count;        /* 1 or 2. Two actions are planned as one instruction if the
                              * profile has `name` for actions[0].stage; otherwise one runs after
                              * the other */
    double lag_s; /* each instruction of another rank for which this one waits must have ended so
                   * many seconds before; 0: transfers take no time */
} harpe_instruction;

/* Parameters of a built-in schedule. Initialise with zeros, then set the members that you need. */
typedef struct harpe_schedule_options {
    const char *name;            /* a name from harpe_schedule_name_at(); NULL: "1f1b" */
    int ranks;                   /* pipeline ranks (GPUs in a row), >= 1 */
    int microbatches;            /* >= 1 */
    int chunks;                  /* stages per rank if the schedule has several; 0: its default */
    const char *const *prologue; /* names of standalone instructions that every rank runs first,
                                  * ended by NULL; NULL: none */
    const char *const *epilogue; /* names of standalone instructions that every rank runs last; as
                                  * above */
    int microbatch_group_size;   /* interleaved-1f1b: microbatches that a rank runs at one of its
                                  * stages before it goes on to the next stage (Megatron's
                                  * microbatch_group_size_per_vp_stage). At least the number of
                                  * ranks, at most that of the microbatches, and the last group must
                                  * not be smaller than the number of ranks. 0: the size that torch
                                  * uses, which is the number of ranks if that divides the number of
                                  * microbatches */
    bool overlaps_moe_expert_parallel_comm; /* interleaved-1f1b, and 1f1b on one rank: each rank
                                             * runs one more forward before its first backward, and
                                             * then each forward overlaps with a backward
                                             * (Megatron's overlap_moe_expert_parallel_comm) */
} harpe_schedule_options;

/* Builds a schedule by name; harpe_schedule_name_at gives the names. Accepts at most 4096 ranks,
 * 1,000,000 microbatches and 50,000,000 instructions. interleaved-1f1b without a
 * microbatch_group_size runs M microbatches on N ranks in max(1, M / N) groups of the same size
 * (M / N is rounded down), and refuses an M that the number of groups does not divide. The DualPipe
 * schedules need at least two microbatches per rank, and "dualpipe" an even number of ranks and of
 * microbatches. Free with harpe_schedule_free. */
HARPE_API harpe_status harpe_schedule_new(const harpe_schedule_options *options,
                                          harpe_schedule **out, harpe_error *error);

/* Reads a schedule from the CSV that torch.distributed.pipelining writes. Each row has the actions
 * of a rank, one in each cell, such as 0F3, 2I1, 2W1, 1B0 and (0F7;7B3)OVERLAP_F_B. In an empty
 * cell the rank is idle. Cells of communication, such as 0SEND_F3 or 2UNSHARD, are left out.
 * Harpe's own cells are 0R3 (a recomputation), 0F3:name (the instruction has this name in the
 * profile), :name (a standalone instruction) and BARRIER (of all ranks). The function refuses a
 * microbatch that passes a stage on two ranks, an action that is repeated or missing, and an order
 * in which some instruction waits forever. It accepts at most 256 MiB, 4096 ranks and 10,000,000
 * instructions. Error messages contain `path`, or `name` for a text in memory. */
HARPE_API harpe_status harpe_schedule_read_csv(const char *path, harpe_schedule **out,
                                               harpe_error *error);
HARPE_API harpe_status harpe_schedule_parse_csv(const char *text, size_t length, const char *name,
                                                harpe_schedule **out, harpe_error *error);

HARPE_API void harpe_schedule_free(harpe_schedule *schedule);

/* Returns the name of a built-in schedule, such as "1f1b", or "file". */
HARPE_API const char *harpe_schedule_name(const harpe_schedule *schedule);
HARPE_API int harpe_schedule_rank_count(const harpe_schedule *schedule);
HARPE_API int harpe_schedule_stage_count(const harpe_schedule *schedule);
HARPE_API int harpe_schedule_microbatch_count(const harpe_schedule *schedule);
/* Returns the number of instructions of all ranks. */
HARPE_API size_t harpe_schedule_instruction_count(const harpe_schedule *schedule);
/* Returns the instructions of one rank in their order, and their number in `*count`. The array is
 * valid until the schedule is freed. */
HARPE_API const harpe_instruction *harpe_schedule_rank(const harpe_schedule *schedule, int rank,
                                                       size_t *count);

/* Return the name and the description of a built-in schedule. The first index is 0. NULL: there is
 * no schedule with this index. */
HARPE_API const char *harpe_schedule_name_at(int index);
HARPE_API const char *harpe_schedule_description_at(int index);

HARPE_END_DECLS

#endif
