/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the blocking power of each wait among the rows that a caller gives for ranks and kinds of
 * waits. A wait is the time between two instructions of a rank, before its first, or after its
 * last. problem.c keeps the powers. */
#ifndef HARPE_PLAN_WAIT_POWER_H
#define HARPE_PLAN_WAIT_POWER_H

#include <harpe/plan.h>

/* The instructions of all ranks, and the powers of their waits. */
typedef struct harpe_waits {
    int rank_count;
    const size_t *rank_offset;             /* [rank_count + 1]: first instruction of each rank */
    const harpe_instruction *instructions; /* of all ranks, rank 0 first */
    const double *usual_w; /* [rank_count]: power of one GPU in kinds of waits without a row */
    /* Written by harpe_wait_powers_find, for one GPU: the power of the wait that ends with each
     * instruction, and of the wait after each rank's last instruction. */
    double *power_w; /* [rank_offset[rank_count]] */
    double *end_w;   /* [rank_count] */
} harpe_waits;

/* Fills in the powers. Fails with HARPE_INVALID_ARGUMENT if a row is wrong, is there twice, or is
 * for a wait that its ranks do not have. O(instructions * names of a rank). */
harpe_status harpe_wait_powers_find(const harpe_wait_power *rows, size_t row_count,
                                    const harpe_waits *waits, harpe_error *error);

#endif
