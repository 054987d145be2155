/* SPDX-License-Identifier: Apache-2.0 */
/* The dependency graph: its arcs, the omitted arcs, the order, and the errors for lists that cannot
 * finish. */
#include "test.h"

#include <limits.h>

#include <harpe/schedule.h>

#include "plan/dag.h"

#include "instances.h"

#define RANKS_MAX 4
#define LENGTH_MAX 16

/* Reads lists from text: one string per rank, actions "0F1" with F, B, I, W, R, X
 * (forward_backward) and S (standalone), pairs joined by '+'. */
typedef struct lists {
    harpe_instruction instructions[RANKS_MAX][LENGTH_MAX];
    const harpe_instruction *pointers[RANKS_MAX];
    size_t counts[RANKS_MAX];
    int rank_count;
} lists;

static harpe_action parse_action(const char **text) {
    static const char letters[] = "FBIWRXS";
    harpe_action action;
    char *end;
    action.stage = (int)strtol(*text, &end, 10);
    action.operation = (harpe_operation)(strchr(letters, *end) - letters);
    action.microbatch = (int)strtol(end + 1, &end, 10);
    *text = end;
    return action;
}

static void parse(lists *out, const char *const *texts) {
    static const char *const names[] = {
        "forward",       "backward",         "backward_input", "backward_weight",
        "recomputation", "forward_backward", "alone"};
    memset(out, 0, sizeof *out);
    for (; texts[out->rank_count]; out->rank_count++) {
        const char *text = texts[out->rank_count];
        size_t *count = &out->counts[out->rank_count];
        out->pointers[out->rank_count] = out->instructions[out->rank_count];
        while (*text != '\0') {
            harpe_instruction *instruction = &out->instructions[out->rank_count][(*count)++];
            instruction->actions[0] = parse_action(&text);
            instruction->action_count = 1;
            instruction->name = names[instruction->actions[0].operation];
            if (*text == '+') {
                text++;
                instruction->actions[1] = parse_action(&text);
                instruction->action_count = 2;
                instruction->name = "overlap_f_b";
            }
            text += strspn(text, " ");
        }
    }
}

static harpe_status build(const char *const *texts, harpe_dag *dag, harpe_error *error) {
    lists input;
    parse(&input, texts);
    return harpe_dag_build(input.pointers, input.counts, input.rank_count, NULL, 0, dag, error);
}

/* Checks the arcs, "0>1 0>2 ...". */
static void expect_arcs_with_waits(const char *const *texts, const harpe_wait *waits,
                                   size_t wait_count, const char *expected) {
    AT_END(harpe_dag_clear) harpe_dag dag;
    lists input;
    parse(&input, texts);
    assert_works(harpe_dag_build(input.pointers, input.counts, input.rank_count, waits, wait_count,
                                 &dag, &failure));
    char text[1024] = "";
    size_t length = 0;
    for (int32_t a = 0; a < dag.arc_count; a++) {
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%d>%d", a > 0 ? " " : "",
                                   dag.arc_from[a], dag.arc_to[a]);
    }
    assert_string_equal(text, expected);
    int32_t place[RANKS_MAX * LENGTH_MAX];
    bool is_present[RANKS_MAX * LENGTH_MAX] = {false};
    for (int32_t i = 0; i < dag.node_count; i++) {
        assert_in_range(dag.topological_order[i], 0, dag.node_count - 1);
        assert_false(is_present[dag.topological_order[i]]);
        is_present[dag.topological_order[i]] = true;
        place[dag.topological_order[i]] = i;
    }
    for (int32_t a = 0; a < dag.arc_count; a++)
        assert_true(place[dag.arc_from[a]] < place[dag.arc_to[a]]);
}

static void expect_arcs(const char *const *texts, const char *expected) {
    expect_arcs_with_waits(texts, NULL, 0, expected);
}

static void expect_failure(const char *const *texts, const char *expected) {
    harpe_dag dag = {.node_count = 99};
    assert_int_equal(build(texts, &dag, &failure), HARPE_INVALID_INPUT);
    assert_string_equal(failure.message, expected);
    assert_int_equal(dag.node_count, 99);
    assert_null(dag.arc_from);
}

/* ---- Arcs ------------------------------------------------------------------------------------ */

TEST(instructions_wait_for_what_they_need) {
    static const struct {
        const char *texts[RANKS_MAX + 1], *arcs;
    } cases[] = {
        /* forwards go down and backwards up */
        {{"0F0 0B0", "1F0 1B0", "2F0 2B0"}, "0>1 3>1 0>2 2>3 5>3 2>4 4>5"},
        /* microbatches do not wait for each other */
        {{"0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"}, "0>1 1>2 5>2 2>3 7>3 0>4 4>5 5>6 1>6 6>7"},
        /* what the list implies is left out */
        {{"0F0 1F0 1B0 0B0"}, "0>1 1>2 2>3"},
        /* no other rank waits for recomputation */
        {{"0F0 0R0 0B0", "1F0 1X0"}, "0>1 1>2 4>2 0>3 3>4"},
        /* backward waits for recomputation on another rank */
        {{"0F0 0B0", "0R0"}, "0>1 2>1 0>2"},
        /* previous stage waits for the input half only */
        {{"0F0 0I0 0W0", "1F0 1I0 1W0"}, "0>1 4>1 1>2 0>3 3>4 4>5"},
        /* whole and split backwards mix */
        {{"0F0 0B0", "1F0 1I0 1W0", "2F0 2X0"}, "0>1 3>1 0>2 2>3 6>3 3>4 2>5 5>6"},
        /* overlapped pair waits for both sides */
        {{"0F0 0F1 0B0 0B1", "1F0 1F1+1B0 1B1"}, "0>1 1>2 5>2 2>3 6>3 0>4 4>5 1>5 5>6"},
        /* standalone instructions only keep their place */
        {{"0S-1 0F0 0B0 0S-1 0S-1", "1S-1 1F0 1B0"}, "0>1 1>2 7>2 2>3 3>4 5>6 1>6 6>7"},
        {{"0S-1", "0S-1 0S-1"}, "1>2"},
        /* empty lists make an empty graph */
        {{"", ""}, ""},
        {{NULL}, ""},
        /* no rank waits for an idle rank */
        {{"0F0 0B0", "", "1F0 1B0"}, "0>1 3>1 0>2 2>3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_arcs(cases[i].texts, cases[i].arcs);
    AT_END(harpe_dag_clear) harpe_dag dag = {0};
    harpe_dag_clear(&dag);
}

TEST(double_arcs_between_pairs_are_one) {
    /* Both halves of the second pair wait for the first pair: 1F1 for 0F1, 2B0 for 3B0. */
    const char *const texts[] = {"0F0 3F0 0F1+3B0 3F1 3B1 0B0 0B1",
                                 "1F0 2F0 1F1+2B0 2F1 2B1 1B0 1B1", NULL};
    AT_END(harpe_dag_clear) harpe_dag dag;
    assert_works(build(texts, &dag, &failure));
    int between = 0;
    for (int32_t a = 0; a < dag.arc_count; a++)
        between += dag.arc_from[a] == 2 && dag.arc_to[a] == 9;
    assert_int_equal(between, 1);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

TEST(lists_that_make_no_graph_are_refused) {
    static const struct {
        const char *texts[RANKS_MAX + 1], *message;
    } cases[] = {
        /* the same work twice */
        {{"0F0 0B0", "1F0 1B0 1F0"},
         "rank 1's forward 1F0 and rank 1's forward 1F0 do the same work: stage 1, "
         "microbatch 0"},
        {{"0F0 0B0 0I0"},
         "rank 0's backward 0B0 and rank 0's backward_input 0I0 do the same work: "
         "stage 0, microbatch 0"},
        /* missing work */
        {{"0F0", "3F0"},
         "stage 1 does nothing for microbatch 0, though stages run up to 3 and "
         "microbatches up to 0"},
        {{"0F0 0F7"},
         "stage 0 does nothing for microbatch 1, though stages run up to "
         "0 and microbatches up to 7"},
        {{"0B0", "1F0 1B0"},
         "rank 0's backward 0B0 waits for the forward of microbatch 0 at "
         "stage 0, which no rank runs"},
        {{"0F0 0B0", "1F0 1B0 1F1 1B1 1R0"},
         "rank 1's forward 1F1 waits for the forward of microbatch 1 at "
         "stage 0, which no rank runs"},
        {{"0F0 0B0", "1F0"},
         "rank 0's backward 0B0 waits for the backward of microbatch 0 at "
         "stage 1, which no rank runs"},
        {{"0F0 0B0 0W0"},
         "rank 0's backward_weight 0W0 waits for the backward_input of "
         "microbatch 0 at stage 0, which no rank runs"},
        {{"0R0"},
         "rank 0's recomputation 0R0 waits for the forward of microbatch "
         "0 at stage 0, which no rank runs"},
        /* stages and microbatches out of range */
        {{"-1F0"}, "rank 0's forward -1F0: stages run from 0 to 65535 and microbatches from 0"},
        {{"65536F0"},
         "rank 0's forward 65536F0: stages run from 0 to 65535 and microbatches from 0"},
        {{"0F-1"}, "rank 0's forward 0F-1: stages run from 0 to 65535 and microbatches from 0"},
        /* far more (stage, microbatch) pairs than memory: refused at once */
        {{"65535F2147483646"},
         "stage 0 does nothing for microbatch 0, though stages run up to 65535 "
         "and microbatches up to 2147483646"},
        /* an order that cannot finish */
        {{"0B0 0F0"},
         "the order can never finish: rank 0's backward 0B0 waits for rank "
         "0's forward 0F0, which comes after rank 0's backward 0B0"},
        {{"0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"},
         "the order can never finish: rank 0's backward 0B0 waits for rank 1's backward "
         "1B0, which comes after rank 1's forward 1F1, which waits for rank 0's forward "
         "0F1, which comes after rank 0's backward 0B0"},
        {{"0F0+0B0"},
         "the order can never finish: rank 0's overlap_f_b 0F0;0B0 waits for "
         "rank 0's overlap_f_b 0F0;0B0"},
        /* names the cycle and not who waits for it */
        {{"0F0 0B0", "1F0 1B0", "2F0 2B0", "3B0 3F0"},
         "the order can never finish: rank 3's backward 3B0 waits for rank 3's "
         "forward 3F0, which comes after rank 3's backward 3B0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_failure(cases[i].texts, cases[i].message);
}

/* ---- Size ------------------------------------------------------------------------------------ */

TEST(a_large_graph_is_built_in_linear_time) {
    harpe_schedule_options options = {.name = "zb-h1", .ranks = 64, .microbatches = 4000};
    owned_schedule schedule = NULL;
    assert_works(harpe_schedule_new(&options, &schedule, &failure));
    const harpe_instruction *rank_lists[64];
    size_t counts[64];
    for (int rank = 0; rank < 64; rank++)
        rank_lists[rank] = harpe_schedule_rank(schedule, rank, &counts[rank]);
    AT_END(harpe_dag_clear) harpe_dag dag;
    assert_works(harpe_dag_build(rank_lists, counts, 64, NULL, 0, &dag, &failure));
    assert_int_equal(dag.node_count, 64 * 4000 * 3);
    /* Neighbours, and a forward and a backward between stages. */
    assert_int_equal(dag.arc_count, 64 * (4000 * 3 - 1) + 63 * 4000 * 2);
}

/* ---- Waits ----------------------------------------------------------------------------------- */

TEST(waits_are_further_arcs) {
    const char *const texts[] = {"0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1", NULL};
    expect_arcs(texts, "0>1 1>2 5>2 2>3 7>3 0>4 4>5 5>6 1>6 6>7");
    /* 2 waits for 5 anyway, 3 comes after 1 in its list, and 0 > 6 is new. */
    const harpe_wait waits[] = {{5, 2}, {6, 2}, {1, 3}, {0, 6}};
    expect_arcs_with_waits(texts, waits, 4, "0>1 1>2 5>2 6>2 2>3 7>3 0>4 4>5 5>6 1>6 0>6 6>7");
}

TEST(a_wait_can_close_a_cycle) {
    const char *const texts[] = {"0F0 0B0", "1F0 1B0", NULL};
    const harpe_wait wait = {1, 2};
    lists input;
    parse(&input, texts);
    harpe_dag dag = {.node_count = 99};
    assert_int_equal(
        harpe_dag_build(input.pointers, input.counts, input.rank_count, &wait, 1, &dag, &failure),
        HARPE_INVALID_INPUT);
    assert_string_equal(
        failure.message,
        "the order can never finish: rank 0's backward 0B0 waits for rank 1's "
        "backward 1B0, which comes after rank 1's forward 1F0, which waits for rank "
        "0's backward 0B0");
    assert_int_equal(dag.node_count, 99);
}
