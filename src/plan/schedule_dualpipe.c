/* SPDX-License-Identifier: Apache-2.0 */
/* DualPipe and DualPipe-V as the runtime of DeepSeek-AI runs them (github.com/deepseek-ai/DualPipe,
 * dualpipe.py and dualpipev.py, 2025). The lists are those of torch's DualPipe-V, which is here
 * too. In DualPipe two copies of the model run in opposite directions: rank r holds stage r for the
 * first half of the microbatches, which enter at rank 0, and stage N-1-r for the second half, which
 * enter at the last rank.
 *
 * The runtime collects sends and receives, and starts them as one batch before the next
 * instruction, which waits for the whole batch (batch_isend_irecv). A transfer takes place when
 * both ranks have started the batch that contains it. An instruction therefore waits, for each
 * transfer of the batch before it, for the instruction that is before the batch on the other rank:
 * for its own input, for input of a later instruction that is received early, and for the other
 * rank to take what this rank sends. The transfers themselves take no time. */
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/schedule.h"

typedef struct harpe_dualpipe_place {
    int depth;        /* ranks from an end of the pipeline to the fold */
    int position;     /* ranks between this one and the end, 0 to depth - 1 */
    int down, up;     /* the rank's stage on the way to the fold, and after it */
    int microbatches; /* that enter at one end */
} harpe_dualpipe_place;

/* Returns the number of steps in which both a forward of `down` with a backward of `up`, and a
 * forward of `up` with a backward of `down` run. At least 1. */
static inline int harpe_dualpipe_steady_steps(const harpe_dualpipe_place *place) {
    return place->microbatches - 2 * place->depth + place->position + 1;
}

/* ---- DualPipe-V ------------------------------------------------------------------------------ */

/* DualPipe-V, the V-shaped half of DeepSeek-AI's DualPipe (DeepSeek-V3 technical report, arXiv
 * 2412.19437, section 3.2.1). The stages go down the ranks and up again: rank r owns stage r and
 * stage 2N-1-r. In the steady state, a forward of one stage overlaps with a full backward of the
 * other. The backward is split only if a weight half fills a bubble. An instruction waits only for
 * those that make its input, as in torch (ScheduleDualPipeV). schedule_dualpipe.c has the same
 * lists with the dependencies of DeepSeek-AI's own runtime, and DualPipe itself. */

/* Refuses fewer than two microbatches per rank. */
static harpe_status dualpipe_check(const harpe_schedule_shape *shape, harpe_error *error) {
    if (shape->microbatches >= 2 * shape->ranks) return HARPE_OK;
    return harpe_fail(
        error, HARPE_INVALID_ARGUMENT,
        "DualPipe schedules need at least %d microbatches on %d ranks (two per rank), "
        "not %d",
        2 * shape->ranks, shape->ranks, shape->microbatches);
}

static void list_warm_up(harpe_schedule_builder *builder, const harpe_dualpipe_place *place) {
    int ranks_behind = place->depth - 1 - place->position;
    for (int i = 0; i < 2 * ranks_behind; i++)
        harpe_schedule_run(builder, HARPE_FORWARD, place->down);
    for (int i = 0; i < place->position + 1; i++) {
        harpe_schedule_run(builder, HARPE_FORWARD, place->down);
        harpe_schedule_run(builder, HARPE_FORWARD, place->up);
    }
    for (int i = 0; i < ranks_behind; i++) {
        harpe_schedule_run(builder, HARPE_BACKWARD_INPUT, place->up);
        harpe_schedule_run(builder, HARPE_BACKWARD_WEIGHT, place->up);
        harpe_schedule_run(builder, HARPE_FORWARD, place->up);
    }
}

static void list_steady_state(harpe_schedule_builder *builder, const harpe_dualpipe_place *place) {
    for (int i = 0; i < harpe_dualpipe_steady_steps(place); i++) {
        if (i == 0 && place->position == place->depth - 1) {
            /* Not overlapped, so that the forward need not wait for the gradient that the backward
             * needs. */
            harpe_schedule_run(builder, HARPE_FORWARD, place->down);
            harpe_schedule_run(builder, HARPE_BACKWARD, place->up);
        } else {
            harpe_schedule_run_overlapped(builder, place->down, place->up);
        }
        harpe_schedule_run_overlapped(builder, place->up, place->down);
    }
    for (int i = 0; i < place->depth - 1 - place->position; i++) {
        harpe_schedule_run(builder, HARPE_BACKWARD, place->up);
        harpe_schedule_run_overlapped(builder, place->up, place->down);
    }
}

/* Lists the drain. In the first loop, the last `position` + 1 backwards run only their input
 * halves. Their weight halves are placed between the remaining backwards and at the end. */
static void list_drain(harpe_schedule_builder *builder, const harpe_dualpipe_place *place) {
    for (int i = 0; i < 2 * (place->position + 1); i++) {
        harpe_operation operation = i < place->position + 1 ? HARPE_BACKWARD : HARPE_BACKWARD_INPUT;
        harpe_schedule_run(builder, operation, i % 2 == 0 ? place->up : place->down);
    }
    for (int i = 0; i < place->depth - 1 - place->position; i++) {
        harpe_schedule_run_oldest_weight(builder);
        harpe_schedule_run(builder, HARPE_BACKWARD_INPUT, place->down);
    }
    for (int i = 0; i < place->position + 1; i++)
        harpe_schedule_run_oldest_weight(builder);
}

/* Lists a rank. */
static void dualpipe_list(harpe_schedule_builder *builder, const harpe_dualpipe_place *place) {
    list_warm_up(builder, place);
    list_steady_state(builder, place);
    list_drain(builder, place);
}

static void list_dualpipe_v(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                            int rank) {
    harpe_dualpipe_place place = {.depth = shape->ranks,
                                  .position = rank,
                                  .down = rank,
                                  .up = 2 * shape->ranks - 1 - rank,
                                  .microbatches = shape->microbatches};
    dualpipe_list(builder, &place);
}

const harpe_schedule_kind harpe_schedule_dualpipe_v = {
    .name = "dualpipe-v",
    .description = "DualPipe-V: two stages per rank, in a V, forwards overlapping backwards",
    .default_chunks = 2,
    .minimum_chunks = 2,
    .maximum_chunks = 2,
    .instructions_per_microbatch = 3,
    .check = dualpipe_check,
    .list_rank = list_dualpipe_v,
};

/* ---- DualPipe -------------------------------------------------------------------------------- */

/* What a rank sends or receives: outputs (F) and gradients (B) of its stage on the way down (0) and
 * on the way up (1). F0 and B1 flow towards the fold, F1 and B0 away from it. */
typedef enum flow { F0, F1, B0, B1, FLOWS } flow;

static bool is_inward(flow what) { return what == F0 || what == B1; }

/* The batches of one rank. Batch k is the one before the rank's k-th instruction. The n-th send of
 * a flow belongs to the n-th receive of the other rank. */
typedef struct trace {
    int32_t *sends[FLOWS], *receives[FLOWS]; /* [microbatches] batch of the n-th */
    int send_count[FLOWS], receive_count[FLOWS];
    int32_t batch;
} trace;

static void send(trace *t, flow what) { t->sends[what][t->send_count[what]++] = t->batch; }
static void receive(trace *t, flow what) { t->receives[what][t->receive_count[what]++] = t->batch; }
static void run(trace *t) { t->batch++; }

static void receive_run_send(trace *t, flow what) {
    receive(t, what);
    run(t);
    send(t, what);
}

/* A forward and a backward, overlapped. */
static void receive_run_send_pair(trace *t, flow forward, flow backward) {
    receive(t, forward);
    receive(t, backward);
    run(t);
    send(t, forward);
    send(t, backward);
}

/* The two forwards of the warm-up. The runtime keeps the output of the first until after the
 * second, except in the middle of DualPipe, where the other middle rank needs it at once. Before
 * the second forward runs, the runtime posts the receive for the first forward after these two. */
static void trace_forwards(trace *t, bool is_innermost, bool is_last) {
    run(t);
    if (is_innermost) send(t, F0);
    receive(t, F0);
    receive(t, F1);
    run(t);
    if (!is_innermost || !is_last) send(t, F1);
    if (!is_innermost) send(t, F0);
}

/* The first step of the steady state. Its first receive was posted in the warm-up. */
static void trace_first_step(trace *t, bool is_innermost) {
    if (is_innermost) {
        run(t);
        send(t, F1);
    }
    receive(t, B1);
    run(t);
    send(t, F0);
    send(t, B1);
    receive_run_send_pair(t, F1, B0);
}

static void trace_rank(trace *t, const harpe_dualpipe_place *place) {
    int behind = place->depth - 1 - place->position;
    bool is_innermost = behind == 0;
    for (int i = 0; i < 2 * behind; i++)
        receive_run_send(t, F0);
    receive(t, F0);
    for (int i = 0; i <= place->position; i++)
        trace_forwards(t, is_innermost, i == place->position);
    for (int i = 0; i < behind; i++) {
        receive_run_send(t, B1);
        receive(t, F1);
        run(t); /* the weight half */
        run(t);
        send(t, F1);
    }
    trace_first_step(t, is_innermost);
    for (int i = 1; i < harpe_dualpipe_steady_steps(place); i++) {
        receive_run_send_pair(t, F0, B1);
        receive_run_send_pair(t, F1, B0);
    }
    for (int i = 0; i < behind; i++) {
        receive_run_send(t, B1);
        receive_run_send_pair(t, F1, B0);
    }
    for (int i = 0; i <= place->position; i++) {
        receive_run_send(t, B1);
        receive_run_send(t, B0);
    }
    for (int i = 0; i < behind; i++) {
        run(t); /* a weight half */
        receive_run_send(t, B0);
    }
    for (int i = 0; i <= place->position; i++)
        run(t); /* weight halves */
}

/* ---- Waits ----------------------------------------------------------------------------------- */

typedef struct tracing {
    trace *traces; /* of each rank */
    int ranks;
    bool is_folded; /* DualPipe-V: the last rank hands over to itself */
} tracing;

static harpe_dualpipe_place place_of(const harpe_schedule_shape *shape, bool is_folded, int rank) {
    int last = shape->ranks - 1;
    if (is_folded)
        return (harpe_dualpipe_place){.depth = shape->ranks,
                                      .position = rank,
                                      .down = rank,
                                      .up = 2 * shape->ranks - 1 - rank,
                                      .microbatches = shape->microbatches};
    int position = rank < last - rank ? rank : last - rank;
    return (harpe_dualpipe_place){.depth = shape->ranks / 2,
                                  .position = position,
                                  .down = position,
                                  .up = last - position,
                                  .microbatches = shape->microbatches / 2};
}

/* Finds the rank with which `rank` exchanges a flow, and the name of the flow there. Returns -1 if
 * the flow begins, ends or turns round at this rank. */
static int other_rank(const tracing *t, int rank, flow what, bool is_send, flow *there) {
    static const flow beyond_the_middle[FLOWS] = {[F0] = F1, [F1] = F0, [B0] = B1, [B1] = B0};
    bool is_towards_fold = is_inward(what) == is_send;
    int depth = t->is_folded ? t->ranks : t->ranks / 2;
    bool is_mirrored = rank >= depth;
    int position = is_mirrored ? t->ranks - 1 - rank : rank;
    bool is_at_fold = is_towards_fold && position == depth - 1;
    if (!is_towards_fold && position == 0) return -1;
    if (is_at_fold && t->is_folded) return -1;
    *there = is_at_fold ? beyond_the_middle[what] : what;
    return is_towards_fold == is_mirrored ? rank - 1 : rank + 1;
}

/* Adds the waits of both ranks for one transfer: each instruction after its batch waits for the
 * instruction before the batch of the other rank. */
static void add_waits_of_transfer(harpe_schedule_builder *builder, size_t prologue_count, int from,
                                  int32_t from_batch, int to, int32_t to_batch) {
    const size_t *start = builder->schedule->rank_start;
    size_t before_send = start[from] + prologue_count + (size_t)from_batch;
    size_t before_receive = start[to] + prologue_count + (size_t)to_batch;
    if (before_send > start[from] && before_receive < start[to + 1])
        harpe_schedule_add_wait(builder, before_send - 1, before_receive);
    if (before_receive > start[to] && before_send < start[from + 1])
        harpe_schedule_add_wait(builder, before_receive - 1, before_send);
}

static void add_waits_of_rank(harpe_schedule_builder *builder, const tracing *t,
                              size_t prologue_count, int rank) {
    const trace *own = &t->traces[rank];
    for (flow what = F0; what < FLOWS; what++) {
        flow there = what;
        int to = other_rank(t, rank, what, true, &there);
        if (to < 0) continue;
        const trace *other = &t->traces[to];
        for (int n = 0; n < own->send_count[what] && n < other->receive_count[there]; n++)
            add_waits_of_transfer(builder, prologue_count, rank, own->sends[what][n], to,
                                  other->receives[there][n]);
    }
}

static bool trace_new(trace *t, size_t microbatches) {
    for (flow what = F0; what < FLOWS; what++) {
        t->sends[what] = harpe_calloc(microbatches + 1, sizeof(int32_t));
        t->receives[what] = harpe_calloc(microbatches + 1, sizeof(int32_t));
        if (!t->sends[what] || !t->receives[what]) return false;
    }
    return true;
}

static void trace_clear(trace *t) {
    for (flow what = F0; what < FLOWS; what++) {
        free(t->sends[what]);
        free(t->receives[what]);
    }
}

static void add_waits(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                      size_t prologue_count, bool is_folded) {
    tracing t = {.ranks = shape->ranks, .is_folded = is_folded};
    t.traces = harpe_calloc((size_t)shape->ranks, sizeof *t.traces);
    if (!t.traces) {
        builder->failed = true;
        return;
    }
    for (int rank = 0; rank < shape->ranks && !builder->failed; rank++) {
        harpe_dualpipe_place place = place_of(shape, is_folded, rank);
        builder->failed = !trace_new(&t.traces[rank], (size_t)place.microbatches);
        if (!builder->failed) trace_rank(&t.traces[rank], &place);
    }
    for (int rank = 0; rank < shape->ranks && !builder->failed; rank++)
        add_waits_of_rank(builder, &t, prologue_count, rank);
    for (int rank = 0; rank < shape->ranks; rank++)
        trace_clear(&t.traces[rank]);
    free(t.traces);
}

/* ---- DualPipe-V ------------------------------------------------------------------------------ */

static void list_v_rank(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                        int rank) {
    harpe_dualpipe_place place = place_of(shape, true, rank);
    dualpipe_list(builder, &place);
}

static void add_v_waits(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                        size_t prologue_count) {
    add_waits(builder, shape, prologue_count, true);
}

const harpe_schedule_kind harpe_schedule_dualpipe_v_deepseek = {
    .name = "dualpipe-v-deepseek",
    .description = "DualPipe-V with the batched sends and receives of DeepSeek's runtime",
    .default_chunks = 2,
    .minimum_chunks = 2,
    .maximum_chunks = 2,
    .instructions_per_microbatch = 3,
    .check = dualpipe_check,
    .list_rank = list_v_rank,
    .add_waits = add_v_waits,
};

/* ---- DualPipe -------------------------------------------------------------------------------- */

static harpe_status check(const harpe_schedule_shape *shape, harpe_error *error) {
    if (shape->ranks % 2 == 0 && shape->microbatches % 2 == 0) return dualpipe_check(shape, error);
    return harpe_fail(
        error, HARPE_INVALID_ARGUMENT,
        "schedule dualpipe needs an even number of ranks and of microbatches, one half "
        "for each direction, not %d and %d",
        shape->ranks, shape->microbatches);
}

static void list_rank(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                      int rank) {
    harpe_dualpipe_place place = place_of(shape, false, rank);
    bool is_mirrored = rank >= place.depth;
    harpe_schedule_begin_at(builder, place.down, is_mirrored ? place.microbatches : 0);
    harpe_schedule_begin_at(builder, place.up, is_mirrored ? 0 : place.microbatches);
    dualpipe_list(builder, &place);
}

static void add_dualpipe_waits(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                               size_t prologue_count) {
    add_waits(builder, shape, prologue_count, false);
}

const harpe_schedule_kind harpe_schedule_dualpipe = {
    .name = "dualpipe",
    .description = "DualPipe: two pipelines of opposite directions, each stage on two ranks",
    .default_chunks = 1,
    .minimum_chunks = 1,
    .maximum_chunks = 1,
    .instructions_per_microbatch = 3,
    .check = check,
    .list_rank = list_rank,
    .add_waits = add_dualpipe_waits,
};
