/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of one job. The memory grows with the number of ranks that requests have named, and not
 * with the world_size of the job, because a client can announce millions of ranks. A tree finds a
 * rank by its number. The leaves of the tree are small blocks of ranks. A block is made when its
 * first rank is needed. The address of a rank never changes. This file does not depend on rounds or
 * on the store. */
#include "server/engine/job_ranks.h"

#include <stdlib.h>

#include "base/array.h"

enum {
    LEAF_BITS = 4, /* a block holds 16 ranks */
    NODE_BITS = 6, /* a node has 64 children */
    LEAF_RANKS = 1 << LEAF_BITS,
    NODE_CHILDREN = 1 << NODE_BITS,
};

/* Returns how many bits of a rank's number the levels below the root use. */
static int root_shift(int world_size) {
    int shift = LEAF_BITS;
    while (((world_size - 1) >> shift) > 0)
        shift += NODE_BITS;
    return shift;
}

static void *new_node(int shift) {
    return shift > LEAF_BITS ? harpe_calloc(NODE_CHILDREN, sizeof(void *))
                             : harpe_calloc(LEAF_RANKS, sizeof(harpe_rank));
}

/* Returns the number of the rank's child in a node whose shift is `shift`. */
static int child_of(int rank, int shift) { return (rank >> (shift - NODE_BITS)) % NODE_CHILDREN; }

harpe_rank *harpe_job_rank(const harpe_job *job, int rank) {
    if (rank < 0 || rank >= job->info.world_size) return NULL;
    void *node = job->ranks;
    for (int shift = root_shift(job->info.world_size); node && shift > LEAF_BITS;
         shift -= NODE_BITS)
        node = ((void **)node)[child_of(rank, shift)];
    return node ? (harpe_rank *)node + rank % LEAF_RANKS : NULL;
}

harpe_rank *harpe_job_make_rank(harpe_job *job, int rank) {
    if (rank < 0 || rank >= job->info.world_size) return NULL;
    void **place = &job->ranks;
    for (int shift = root_shift(job->info.world_size);; shift -= NODE_BITS) {
        if (!*place) *place = new_node(shift);
        if (!*place) return NULL;
        if (shift <= LEAF_BITS) return (harpe_rank *)*place + rank % LEAF_RANKS;
        place = (void **)*place + child_of(rank, shift);
    }
}

harpe_rank *harpe_job_next_rank(const harpe_job *job, int *rank) {
    int size = job->info.world_size;
    int top = root_shift(size);
    while (*rank < size) {
        void *node = job->ranks;
        int shift = top;
        for (; node && shift > LEAF_BITS; shift -= NODE_BITS)
            node = ((void **)node)[child_of(*rank, shift)];
        if (node) return (harpe_rank *)node + *rank % LEAF_RANKS;
        /* This part of the tree has no ranks. Continue with the next part. */
        int64_t next = (((int64_t)*rank >> shift) + 1) << shift;
        *rank = next < size ? (int)next : size;
    }
    return NULL;
}

harpe_rank_info *harpe_job_rank_infos(const harpe_job *job) {
    int size = job->info.world_size;
    harpe_rank_info *infos = harpe_calloc((size_t)size, sizeof *infos);
    const harpe_rank *slot;
    for (int r = 0; infos && (slot = harpe_job_next_rank(job, &r)); r++)
        infos[r] = slot->info;
    return infos;
}

static void free_node(void *node, int shift) {
    if (!node) return;
    for (int i = 0; shift > LEAF_BITS && i < NODE_CHILDREN; i++)
        free_node(((void **)node)[i], shift - NODE_BITS);
    for (int i = 0; shift <= LEAF_BITS && i < LEAF_RANKS; i++)
        harpe_rank_info_free(&((harpe_rank *)node)[i].info);
    free(node);
}

void harpe_job_free_ranks(harpe_job *job) {
    free_node(job->ranks, root_shift(job->info.world_size));
    job->ranks = NULL;
}

size_t harpe_job_coordinate(const harpe_job *job, const harpe_rank_info *rank) {
    const harpe_job_info *info = &job->info;
    return ((size_t)rank->dp_rank * (size_t)info->pp_degree + (size_t)rank->pp_rank) *
               (size_t)info->tp_degree +
           (size_t)rank->tp_rank;
}
