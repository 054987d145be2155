/* SPDX-License-Identifier: Apache-2.0 */
/* The built-in schedules: their lists, that all are complete and can finish, their length if every
 * instruction takes one unit, and the number of activations that they hold. */
#include "test.h"

#include <harpe/profile.h>
#include <harpe/schedule.h>

#include "plan/dag.h"
#include "plan/schedule.h"

#include "instances.h"

/* ---- Help ------------------------------------------------------------------------------------ */

static harpe_schedule *make(const char *name, int ranks, int microbatches, int chunks) {
    harpe_schedule_options options = {
        .name = name, .ranks = ranks, .microbatches = microbatches, .chunks = chunks};
    harpe_schedule *schedule = NULL;
    if (harpe_schedule_new(&options, &schedule, &failure) != HARPE_OK)
        fail_msg("%s, %d ranks, %d microbatches: %s", name, ranks, microbatches, failure.message);
    return schedule;
}

static void expect_refusal(const harpe_schedule_options *options, harpe_status status,
                           const char *part) {
    harpe_schedule *schedule = NULL;
    assert_refuses(harpe_schedule_new(options, &schedule, &failure), status, part);
    assert_null(schedule);
}

/* Returns one rank's list as "0F0 0B0 ...", with R for a recomputation and X for forward_backward.
 */
static void expect_rank(const harpe_schedule *schedule, int rank, const char *expected) {
    static const char letters[] = "FBIWRXS";
    char text[4096] = "";
    size_t length = 0;
    size_t count;
    const harpe_instruction *list = harpe_schedule_rank(schedule, rank, &count);
    for (size_t i = 0; i < count; i++) {
        for (int a = 0; a < list[i].action_count; a++) {
            const harpe_action *action = &list[i].actions[a];
            length +=
                (size_t)snprintf(text + length, sizeof text - length, "%s%d%c%d",
                                 a > 0   ? "+"
                                 : i > 0 ? " "
                                         : "",
                                 action->stage, letters[action->operation], action->microbatch);
        }
    }
    assert_string_equal(text, expected);
}

static void build_dag(const harpe_schedule *schedule, harpe_dag *dag) {
    int ranks = harpe_schedule_rank_count(schedule);
    const harpe_instruction **lists = calloc((size_t)ranks, sizeof *lists);
    owned_array size_t *counts = calloc((size_t)ranks, sizeof *counts);
    assert_non_null(lists);
    assert_non_null(counts);
    for (int rank = 0; rank < ranks; rank++)
        lists[rank] = harpe_schedule_rank(schedule, rank, &counts[rank]);
    if (harpe_dag_build(lists, counts, ranks, schedule->waits, schedule->wait_count, dag,
                        &failure) != HARPE_OK)
        fail_msg("%s, %d ranks, %d microbatches: %s", harpe_schedule_name(schedule), ranks,
                 harpe_schedule_microbatch_count(schedule), failure.message);
    free(lists);
}

/* Returns the end of the last instruction if each takes units[operation] units. A pair takes the
 * sum of its two. */
static int makespan(const harpe_schedule *schedule, const int units[7]) {
    AT_END(harpe_dag_clear) harpe_dag dag;
    build_dag(schedule, &dag);
    size_t nodes = (size_t)dag.node_count;
    owned_array int *length = calloc(nodes, sizeof *length);
    owned_array int *end = calloc(nodes, sizeof *end);
    owned_array int *first = calloc(nodes + 1, sizeof *first);
    assert_true(length && end && first);
    size_t node = 0;
    for (int rank = 0; rank < harpe_schedule_rank_count(schedule); rank++) {
        size_t count;
        const harpe_instruction *list = harpe_schedule_rank(schedule, rank, &count);
        for (size_t i = 0; i < count; i++, node++)
            for (int a = 0; a < list[i].action_count; a++)
                length[node] += units[list[i].actions[a].operation];
    }
    assert_int_equal(node, nodes);
    for (int32_t a = 0; a < dag.arc_count; a++)
        first[dag.arc_to[a] + 1]++;
    for (size_t i = 0; i < nodes; i++)
        first[i + 1] += first[i];
    int last = 0;
    for (size_t i = 0; i < nodes; i++) {
        int32_t at = dag.topological_order[i];
        for (int a = first[at]; a < first[at + 1]; a++) {
            assert_int_equal(dag.arc_to[a], at); /* arcs are grouped by their end */
            if (end[dag.arc_from[a]] > end[at]) end[at] = end[dag.arc_from[a]];
        }
        end[at] += length[at];
        if (end[at] > last) last = end[at];
    }
    return last;
}

static const int unit_times[7] = {1, 1, 1, 1, 1, 1, 1};
static const int split_unit_times[7] = {1, 2, 1, 1, 1, 3, 1}; /* a whole backward is two halves */

/* Returns the largest number of activations that a rank holds, from a forward to the end of
 * `release` or of a whole backward. */
static int peak_activations(const harpe_schedule *schedule, int rank, harpe_operation release) {
    size_t count;
    const harpe_instruction *list = harpe_schedule_rank(schedule, rank, &count);
    int held = 0;
    int peak = 0;
    for (size_t i = 0; i < count; i++) {
        for (int a = 0; a < list[i].action_count; a++) {
            harpe_operation operation = list[i].actions[a].operation;
            held += operation == HARPE_FORWARD;
            if (held > peak) peak = held;
            held -= operation == release || operation == HARPE_BACKWARD;
        }
    }
    assert_int_equal(held, 0);
    return peak;
}

/* Checks that every microbatch passes a stage on one rank, and that it has one forward, one whole
 * or split backward, and at most one recomputation, which needs a backward of its own. */
static void expect_whole(const harpe_schedule *schedule) {
    int stages = harpe_schedule_stage_count(schedule);
    int microbatches = harpe_schedule_microbatch_count(schedule);
    size_t pairs = (size_t)stages * (size_t)microbatches;
    unsigned char(*times)[7] = calloc(pairs, sizeof *times);
    owned_array int *owner = calloc(pairs, sizeof *owner);
    assert_true(times && owner);
    size_t total = 0;
    for (int rank = 0; rank < harpe_schedule_rank_count(schedule); rank++) {
        size_t count;
        const harpe_instruction *list = harpe_schedule_rank(schedule, rank, &count);
        total += count;
        for (size_t i = 0; i < count; i++) {
            assert_non_null(list[i].name);
            for (int a = 0; a < list[i].action_count; a++) {
                const harpe_action *action = &list[i].actions[a];
                assert_in_range(action->stage, 0, stages - 1);
                assert_in_range(action->microbatch, 0, microbatches - 1);
                int pair = action->stage * microbatches + action->microbatch;
                assert_true(owner[pair] == 0 || owner[pair] == rank + 1);
                owner[pair] = rank + 1;
                times[pair][action->operation]++;
            }
        }
    }
    assert_int_equal(total, harpe_schedule_instruction_count(schedule));
    for (size_t i = 0; i < pairs; i++) {
        assert_int_equal(times[i][HARPE_FORWARD], 1);
        assert_int_equal(times[i][HARPE_BACKWARD] + times[i][HARPE_BACKWARD_INPUT] +
                             times[i][HARPE_FORWARD_BACKWARD],
                         1);
        assert_int_equal(times[i][HARPE_BACKWARD_WEIGHT], times[i][HARPE_BACKWARD_INPUT]);
        assert_in_range(times[i][HARPE_RECOMPUTATION], 0, times[i][HARPE_BACKWARD]);
        assert_int_equal(times[i][HARPE_STANDALONE], 0);
    }
    free(times);
}

/* Calls `check` for every built-in schedule and every shape of a grid for which it is defined. */
static void for_all_built_ins(void (*check)(const harpe_schedule *schedule)) {
    static const int microbatch_counts[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 33};
    for (int k = 0; harpe_schedule_name_at(k); k++) {
        int made = 0;
        for (int ranks = 1; ranks <= 9; ranks++) {
            for (size_t m = 0; m < sizeof microbatch_counts / sizeof *microbatch_counts; m++) {
                for (int chunks = 0; chunks <= 4; chunks++) {
                    harpe_schedule_options options = {.name = harpe_schedule_name_at(k),
                                                      .ranks = ranks,
                                                      .microbatches = microbatch_counts[m],
                                                      .chunks = chunks};
                    harpe_schedule *schedule = NULL;
                    if (harpe_schedule_new(&options, &schedule, NULL) != HARPE_OK) continue;
                    check(schedule);
                    harpe_schedule_free(schedule);
                    made++;
                }
            }
        }
        assert_in_range(made, 28, 9999);
    }
}

/* ---- Lists of each schedule ------------------------------------------------------------------ */

#define CHUNKED "interleaved-1f1b"

TEST(each_schedule_has_its_lists) {
    static const struct {
        harpe_schedule_options options;
        int stages;
        const char *ranks[4]; /* NULL: not compared */
    } cases[] = {
        {{"1f1b", .ranks = 3, .microbatches = 4},
         3,
         {"0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3", "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3",
          "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3"}},
        {{NULL, .ranks = 4, .microbatches = 2},
         4,
         {"0F0 0F1 0B0 0B1", NULL, "2F0 2F1 2B0 2B1", "3F0 3B0 3F1 3B1"}},
        {{"1f1b", .ranks = 1, .microbatches = 2, .chunks = 1}, 1, {"0F0 0B0 0F1 0B1"}},
        {{"early-recomputation-1f1b", .ranks = 3, .microbatches = 4},
         3,
         {"0F0 0F1 0F2 0X0 0F3 0X1 0R2 0B2 0R3 0B3", "1F0 1F1 1X0 1F2 1X1 1F3 1X2 1R3 1B3",
          "2F0 2X0 2F1 2X1 2F2 2X2 2F3 2X3"}},
        {{"gpipe", .ranks = 2, .microbatches = 3},
         2,
         {"0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1F1 1F2 1B0 1B1 1B2"}},
        {{CHUNKED, .ranks = 2, .microbatches = 4, .chunks = 2},
         4,
         {"0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
          "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"}},
        /* The example in Megatron-Core's description of microbatch_group_size_per_vp_stage: 5
         * microbatches in groups of 3 and 2. torch divides 5 microbatches on 2 ranks into 2 groups,
         * which it cannot make equal, and refuses. */
        {{CHUNKED, .ranks = 2, .microbatches = 5, .microbatch_group_size = 3},
         4,
         {"0F0 0F1 0F2 2F0 2F1 2F2 2B0 0F3 2B1 0F4 2B2 2F3 0B0 2F4 0B1 0B2 2B3 2B4 0B3 0B4",
          "1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1F3 1B0 1F4 1B1 3F3 1B2 3F4 3B3 3B4 1B3 1B4"}},
        {{CHUNKED, .ranks = 2, .microbatches = 5, .microbatch_group_size = 3,
          .overlaps_moe_expert_parallel_comm = true},
         4,
         {"0F0 0F1 0F2 2F0 2F1 2F2 0F3+2B0 0F4+2B1 2F3+2B2 2F4+0B0 0B1 0B2 2B3 2B4 0B3 0B4",
          "1F0 1F1 1F2 3F0 3F1+3B0 3F2+3B1 1F3+3B2 1F4+1B0 3F3+1B1 3F4+1B2 3B3 3B4 1B3 1B4"}},
        {{.ranks = 1, .microbatches = 4, .overlaps_moe_expert_parallel_comm = true},
         1,
         {"0F0 0F1+0B0 0F2+0B1 0F3+0B2 0B3"}},
        {{.ranks = 1, .microbatches = 1, .overlaps_moe_expert_parallel_comm = true},
         1,
         {"0F0 0B0"}},
        {{"zb-h1", .ranks = 3, .microbatches = 4},
         3,
         {"0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3",
          "1F0 1F1 1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3",
          "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3"}},
        {{"zb-v", .ranks = 1, .microbatches = 1}, 2, {"0F0 1F0 1I0 1W0 0I0 0W0"}},
        {{"zb-v", .ranks = 2, .microbatches = 3},
         4,
         {"0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2",
          "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2"}},
        {{"dualpipe-v", .ranks = 2, .microbatches = 4},
         4,
         {"0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3+3B1 3F2+0B0 3B2 3F3+0B1 3B3 0I2 0W2 0I3 0W3",
          "1F0 2F0 1F1 2F1 1F2 2B0 2F2+1B0 1F3+2B1 2F3+1B1 2B2 1B2 2I3 1I3 2W3 1W3"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        owned_schedule schedule = NULL;
        assert_works(harpe_schedule_new(&cases[i].options, &schedule, &failure));
        assert_int_equal(harpe_schedule_rank_count(schedule), cases[i].options.ranks);
        assert_int_equal(harpe_schedule_stage_count(schedule), cases[i].stages);
        assert_int_equal(harpe_schedule_microbatch_count(schedule), cases[i].options.microbatches);
        assert_string_equal(harpe_schedule_name(schedule),
                            cases[i].options.name ? cases[i].options.name : "1f1b");
        for (int rank = 0; rank < 4; rank++)
            if (cases[i].ranks[rank]) expect_rank(schedule, rank, cases[i].ranks[rank]);
    }
}

TEST(instructions_have_the_names_of_their_actions) {
    static const struct {
        const char *schedule;
        int ranks;
        size_t place; /* on rank 0, with 4 microbatches */
        const char *name;
    } cases[] = {{"1f1b", 3, 0, "forward"},
                 {"1f1b", 3, 3, "backward"},
                 {"early-recomputation-1f1b", 3, 3, "forward_backward"},
                 {"early-recomputation-1f1b", 3, 6, "recomputation"},
                 {"early-recomputation-1f1b", 3, 7, "backward"},
                 {"zb-h1", 3, 3, "backward_input"},
                 {"zb-h1", 3, 4, "backward_weight"},
                 {"dualpipe-v", 2, 7, "overlap_f_b"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t count;
        owned_schedule schedule = make(cases[i].schedule, cases[i].ranks, 4, 0);
        const harpe_instruction *list = harpe_schedule_rank(schedule, 0, &count);
        assert_string_equal(list[cases[i].place].name, cases[i].name);
    }
}

TEST(fuses_recomputation_exactly_in_the_steady_state) {
    for (int ranks = 1; ranks <= 6; ranks++) {
        for (int microbatches = 1; microbatches <= 9; microbatches++) {
            owned_schedule schedule = make("early-recomputation-1f1b", ranks, microbatches, 0);
            for (int rank = 0; rank < ranks; rank++) {
                size_t count;
                const harpe_instruction *list = harpe_schedule_rank(schedule, rank, &count);
                for (size_t i = 0; i < count; i++) {
                    const harpe_action *action = &list[i].actions[0];
                    bool is_steady = action->microbatch + (ranks - 1 - rank) < microbatches;
                    if (action->operation == HARPE_FORWARD) continue;
                    assert_int_equal(is_steady, action->operation == HARPE_FORWARD_BACKWARD);
                    if (action->operation != HARPE_BACKWARD) continue;
                    assert_int_equal(list[i - 1].actions[0].operation, HARPE_RECOMPUTATION);
                    assert_int_equal(list[i - 1].actions[0].microbatch, action->microbatch);
                }
            }
        }
    }
}

/* Unused members and padding may differ. */
static void assert_same_lists(const harpe_instruction *a, const harpe_instruction *b,
                              size_t count) {
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(a[i].name, b[i].name);
        assert_int_equal(a[i].action_count, b[i].action_count);
        assert_memory_equal(&a[i].lag_s, &b[i].lag_s, sizeof a[i].lag_s);
        for (int k = 0; k < a[i].action_count; k++) {
            assert_int_equal(a[i].actions[k].operation, b[i].actions[k].operation);
            assert_int_equal(a[i].actions[k].stage, b[i].actions[k].stage);
            assert_int_equal(a[i].actions[k].microbatch, b[i].actions[k].microbatch);
        }
    }
}

/* torch makes max(1, M / N) groups. */
TEST(lists_interleaved_1f1b_as_torch_divides_the_microbatches) {
    owned_schedule schedule = make("interleaved-1f1b", 2, 3, 2);
    expect_rank(schedule, 0, "0F0 0F1 0F2 2F0 2F1 2F2 2B0 2B1 2B2 0B0 0B1 0B2");
    expect_rank(schedule, 1, "1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1B0 1B1 1B2");
    harpe_schedule_free(schedule);
    schedule = make("interleaved-1f1b", 4, 2, 2);
    expect_rank(schedule, 0, "0F0 0F1 4F0 4F1 4B0 4B1 0B0 0B1");
    expect_rank(schedule, 3, "3F0 3F1 7F0 7B0 7F1 7B1 3B0 3B1");
    harpe_schedule_free(schedule);
    harpe_schedule_options same = {.name = "interleaved-1f1b",
                                   .ranks = 4,
                                   .microbatches = 10,
                                   .chunks = 3,
                                   .microbatch_group_size = 5};
    owned_schedule given = NULL;
    assert_works(harpe_schedule_new(&same, &given, &failure));
    schedule = make("interleaved-1f1b", 4, 10, 3);
    for (int rank = 0; rank < 4; rank++) {
        size_t count, given_count;
        const harpe_instruction *list = harpe_schedule_rank(schedule, rank, &count);
        const harpe_instruction *other = harpe_schedule_rank(given, rank, &given_count);
        assert_int_equal(count, given_count);
        assert_same_lists(list, other, count);
    }
}

/* Rank 0 and 1 of DualPipe mirror each other: microbatches 0 and 1 enter at rank 0, and 2 and 3 at
 * rank 1. */
TEST(lists_dualpipe) {
    owned_schedule schedule = make("dualpipe", 2, 4, 0);
    assert_int_equal(harpe_schedule_stage_count(schedule), 2);
    expect_rank(schedule, 0, "0F0 1F2 0F1 1B2 1F3+0B0 1B3 0I1 0W1");
    expect_rank(schedule, 1, "0F2 1F0 0F3 1B0 1F1+0B2 1B1 0I3 0W3");
    harpe_schedule_free(schedule);
    schedule = make("dualpipe", 4, 8, 0);
    owned_schedule folded = make("dualpipe-v", 2, 4, 0);
    size_t count, folded_count;
    const harpe_instruction *list = harpe_schedule_rank(schedule, 3, &count);
    const harpe_instruction *same = harpe_schedule_rank(folded, 0, &folded_count);
    assert_int_equal(count, folded_count);
    for (size_t i = 0; i < count; i++) {
        for (int a = 0; a < same[i].action_count; a++) {
            bool is_down = same[i].actions[a].stage == 0; /* enters at the last rank */
            assert_int_equal(list[i].actions[a].stage, same[i].actions[a].stage);
            assert_int_equal(list[i].actions[a].operation, same[i].actions[a].operation);
            assert_int_equal(list[i].actions[a].microbatch,
                             same[i].actions[a].microbatch + (is_down ? 4 : 0));
        }
    }
}

/* The waits of DeepSeek's runtime only delay. tests/cli/test_dualpipe.py checks their effect. */
TEST(deepseeks_dualpipe_v_has_the_lists_of_torchs) {
    static const int uneven_times[7] = {3, 5, 2, 3, 0, 0, 0};
    int slower = 0;
    for (int ranks = 1; ranks <= 6; ranks++) {
        for (int microbatches = 2 * ranks; microbatches <= 20; microbatches++) {
            owned_schedule torchs = make("dualpipe-v", ranks, microbatches, 0);
            owned_schedule deepseeks = make("dualpipe-v-deepseek", ranks, microbatches, 0);
            size_t count = harpe_schedule_instruction_count(torchs);
            assert_int_equal(count, harpe_schedule_instruction_count(deepseeks));
            assert_same_lists(torchs->instructions, deepseeks->instructions, count);
            int least = makespan(torchs, uneven_times), length = makespan(deepseeks, uneven_times);
            assert_in_range(length, least, 2 * least);
            slower += length > least;
        }
    }
    assert_in_range(slower, 10, 999);
}

TEST(prologue_and_epilogue_stand_around_every_rank) {
    char loading[] = "dataloader:v1.2";
    const char *prologue[] = {loading, "warm-up", NULL};
    const char *epilogue[] = {"all_reduce", NULL};
    harpe_schedule_options options = {.name = "interleaved-1f1b",
                                      .ranks = 2,
                                      .microbatches = 2,
                                      .prologue = prologue,
                                      .epilogue = epilogue};
    owned_schedule schedule = NULL;
    assert_works(harpe_schedule_new(&options, &schedule, &failure));
    loading[0] = 'X'; /* the schedule has a copy of its own */
    assert_int_equal(harpe_schedule_instruction_count(schedule), 2 * (8 + 3));
    for (int rank = 0; rank < 2; rank++) {
        size_t count;
        const harpe_instruction *list = harpe_schedule_rank(schedule, rank, &count);
        assert_int_equal(count, 11);
        assert_string_equal(list[0].name, "dataloader:v1.2");
        assert_string_equal(list[1].name, "warm-up");
        assert_string_equal(list[2].name, "forward");
        assert_string_equal(list[10].name, "all_reduce");
        assert_int_equal(list[0].action_count, 1);
        assert_int_equal(list[0].actions[0].operation, HARPE_STANDALONE);
        assert_int_equal(list[0].actions[0].stage, rank);
        assert_int_equal(list[0].actions[0].microbatch, -1);
    }
    AT_END(harpe_dag_clear) harpe_dag dag;
    build_dag(schedule, &dag);
    assert_int_equal(dag.node_count, 22);
}

/* ---- Properties of all schedules ------------------------------------------------------------- */

static void expect_possible_makespan(const harpe_schedule *schedule) {
    int time = makespan(schedule, split_unit_times);
    int ranks = harpe_schedule_rank_count(schedule);
    int work = harpe_schedule_microbatch_count(schedule) * 3 *
               (harpe_schedule_stage_count(schedule) / ranks);
    /* The last rank starts ranks - 1 units late, and with two directions the middle ranks do. */
    bool has_two_directions = strcmp(harpe_schedule_name(schedule), "dualpipe") == 0;
    int late = (has_two_directions ? ranks / 2 : ranks) - 1;
    assert_in_range(time, work + late, 99999);
    assert_in_range(time, 0, 3 * work * ranks);
}

static void expect_whole_and_possible(const harpe_schedule *schedule) {
    expect_whole(schedule);
    expect_possible_makespan(schedule);
}

TEST(every_built_in_runs_every_action_once_and_can_finish) {
    for_all_built_ins(expect_whole_and_possible);
}

/* Every accepted size of the groups, with and without overlap. Also counts the accepted sizes,
 * which Megatron-Core defines: from N to M, with a last group of no or at least N microbatches. */
TEST(every_group_size_can_finish) {
    for (int ranks = 1; ranks <= 5; ranks++) {
        for (int microbatches = 1; microbatches <= 13; microbatches++) {
            for (int size = 1; size <= microbatches + 1; size++) {
                for (int overlaps = 0; overlaps <= 1; overlaps++) {
                    harpe_schedule_options options = {.name = "interleaved-1f1b",
                                                      .ranks = ranks,
                                                      .microbatches = microbatches,
                                                      .chunks = 2 + size % 2,
                                                      .microbatch_group_size = size,
                                                      .overlaps_moe_expert_parallel_comm =
                                                          overlaps == 1};
                    int last = microbatches % size;
                    bool is_megatrons =
                        size >= ranks && size <= microbatches && (last == 0 || last >= ranks);
                    bool is_torchs = size == microbatches && microbatches < ranks;
                    owned_schedule schedule = NULL;
                    harpe_status status = harpe_schedule_new(&options, &schedule, NULL);
                    assert_int_equal(status,
                                     is_megatrons || is_torchs ? HARPE_OK : HARPE_INVALID_ARGUMENT);
                    if (status == HARPE_OK) expect_whole_and_possible(schedule);
                }
            }
        }
    }
}

static void expect_length(const char *name, int ranks, int microbatches, int chunks, int units) {
    owned_schedule schedule = make(name, ranks, microbatches, chunks);
    assert_int_equal(makespan(schedule, unit_times), units);
}

TEST(makespans_are_those_of_the_papers) {
    for (int ranks = 1; ranks <= 8; ranks++) {
        for (int m = 1; m <= 20; m++) {
            expect_length("1f1b", ranks, m, 0, 2 * (m + ranks - 1));
            expect_length("gpipe", ranks, m, 0, 2 * (m + ranks - 1));
            /* Bubble (N - 1)(F + I - W), Zero Bubble, table 2. */
            if (m >= ranks) expect_length("zb-h1", ranks, m, 0, 3 * m + ranks - 1);
            if (m >= 2 * ranks) expect_length("zb-v", ranks, m, 0, 6 * m + ranks - 1);
            /* Bubble (N - 1)(F + B) / v in units of a rank's total work. */
            if (m % ranks == 0)
                expect_length("interleaved-1f1b", ranks, m, 2, 4 * m + 2 * (ranks - 1));
        }
    }
}

TEST(zero_bubble_is_never_slower_than_1f1b) {
    for (int ranks = 1; ranks <= 8; ranks++) {
        for (int microbatches = 1; microbatches <= 20; microbatches++) {
            owned_schedule plain = make("1f1b", ranks, microbatches, 0);
            owned_schedule split = make("zb-h1", ranks, microbatches, 0);
            assert_in_range(makespan(split, split_unit_times), 1,
                            makespan(plain, split_unit_times));
        }
    }
}

TEST(zb_h1_holds_no_more_than_1f1b) {
    for (int ranks = 1; ranks <= 8; ranks++) {
        for (int microbatches = 1; microbatches <= 20; microbatches++) {
            owned_schedule plain = make("1f1b", ranks, microbatches, 0);
            owned_schedule split = make("zb-h1", ranks, microbatches, 0);
            int first = peak_activations(plain, 0, HARPE_BACKWARD);
            for (int rank = 0; rank < ranks; rank++) {
                /* Waiting for a gradient: one rank after the other. Waiting for a weight half: like
                 * the first rank. */
                assert_in_range(peak_activations(split, rank, HARPE_BACKWARD_INPUT), 1,
                                peak_activations(plain, rank, HARPE_BACKWARD));
                assert_in_range(peak_activations(split, rank, HARPE_BACKWARD_WEIGHT), 1, first);
            }
        }
    }
}

TEST(v_schedules_hold_what_they_promise) {
    for (int ranks = 1; ranks <= 8; ranks++) {
        for (int microbatches = 1; microbatches <= 20; microbatches++) {
            owned_schedule zb_v = make("zb-v", ranks, microbatches, 0);
            for (int rank = 0; rank < ranks; rank++)
                assert_in_range(peak_activations(zb_v, rank, HARPE_BACKWARD_WEIGHT), 1, 2 * ranks);
            if (microbatches < 2 * ranks) continue;
            owned_schedule dualpipe_v = make("dualpipe-v", ranks, microbatches, 0);
            for (int rank = 0; rank < ranks; rank++) {
                assert_in_range(peak_activations(dualpipe_v, rank, HARPE_BACKWARD_WEIGHT), 1,
                                2 * ranks + 1);
            }
        }
    }
}

/* ---- The table, and what is refused ---------------------------------------------------------- */

static int place_of(const char *name) {
    for (int i = 0; harpe_schedule_name_at(i); i++)
        if (strcmp(harpe_schedule_name_at(i), name) == 0) return i;
    return -1;
}

/* A new row needs no change here (docs/adding-a-schedule.md). */
TEST(table_names_every_built_in) {
    static const char *const released[] = {
        "1f1b",       "early-recomputation-1f1b", "gpipe",   "interleaved-1f1b", "zb-h1", "zb-v",
        "dualpipe-v", "dualpipe-v-deepseek",      "dualpipe"};
    int count = 0;
    for (; harpe_schedule_name_at(count); count++) {
        assert_int_equal(place_of(harpe_schedule_name_at(count)), count);
        assert_in_range(strlen(harpe_schedule_description_at(count)), 10, 80);
    }
    for (size_t i = 0; i < sizeof released / sizeof *released; i++)
        assert_in_range(place_of(released[i]), 0, count - 1);
    assert_string_equal(harpe_schedule_name_at(0), released[0]); /* the default */
    assert_null(harpe_schedule_description_at(count));
    assert_null(harpe_schedule_name_at(-1));
}

TEST(settings_that_make_no_schedule_are_refused) {
    static const struct {
        harpe_schedule_options options;
        const char *message;
    } cases[] = {
        /* out of range */
        {{.ranks = 0, .microbatches = 4}, "not 0"},
        {{.ranks = -3, .microbatches = 4}, "not -3"},
        {{.ranks = 4097, .microbatches = 4}, "1 to 4096, not 4097"},
        {{.ranks = 4, .microbatches = 0}, "microbatches must be 1 to 1000000, not 0"},
        {{.ranks = 4, .microbatches = -1}, "not -1"},
        {{.ranks = 4, .microbatches = 1000001}, "not 1000001"},
        {{"2f2b", .ranks = 4, .microbatches = 8}, "unknown schedule '2f2b'; built in are 1f1b,"},
        {{"", .ranks = 4, .microbatches = 8}, "unknown schedule ''"},
        /* a shape for which the schedule is not defined */
        {{"1f1b", .ranks = 4, .microbatches = 8, .chunks = 2}, "exactly 1 stage per rank, not 2"},
        {{"1f1b", .ranks = 4, .microbatches = 8, .chunks = -1}, "not -1"},
        {{"zb-v", .ranks = 4, .microbatches = 8, .chunks = 3}, "exactly 2 stages per rank, not 3"},
        {{CHUNKED, .ranks = 4, .microbatches = 8, .chunks = 1}, "not 1"},
        {{CHUNKED, .ranks = 4, .microbatches = 11, .chunks = 2},
         "cannot divide 11 microbatches on 4 ranks into 2 equal groups: give the size"},
        {{"dualpipe-v", .ranks = 4, .microbatches = 7, .chunks = 2}, "at least 8 microbatches"},
        {{"dualpipe-v-deepseek", .ranks = 4, .microbatches = 7}, "at least 8 microbatches"},
        {{"dualpipe", .ranks = 4, .microbatches = 7},
         "an even number of ranks and of microbatches"},
        {{"dualpipe", .ranks = 4, .microbatches = 6}, "at least 8 microbatches"},
        {{"dualpipe", .ranks = 3, .microbatches = 6}, "not 3 and 6"},
        /* groups of microbatches */
        {{CHUNKED, .ranks = 4, .microbatches = 11, .microbatch_group_size = 3},
         "must be 4 to 11, not 3"},
        {{CHUNKED, .ranks = 4, .microbatches = 11, .microbatch_group_size = 12},
         "must be 4 to 11, not 12"},
        {{CHUNKED, .ranks = 4, .microbatches = 11, .microbatch_group_size = -1},
         "at least 1, or 0 for the default, not -1"},
        {{CHUNKED, .ranks = 4, .microbatches = 11, .microbatch_group_size = 4},
         "the last of 11 microbatches are a group of 3, but a group needs at least one for each of "
         "the 4 ranks"},
        {{"zb-v", .ranks = 4, .microbatches = 11, .microbatch_group_size = 4},
         "zb-v has no groups of microbatches"},
        /* overlapped communication of experts */
        {{.ranks = 2, .microbatches = 4, .overlaps_moe_expert_parallel_comm = true},
         "on one rank only, not on 2"},
        {{"gpipe", .ranks = 2, .microbatches = 4, .overlaps_moe_expert_parallel_comm = true},
         "gpipe cannot overlap expert communication"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refusal(&cases[i].options, HARPE_INVALID_ARGUMENT, cases[i].message);
    expect_refusal(&(harpe_schedule_options){.ranks = 4096, .microbatches = 1000000},
                   HARPE_LIMIT_EXCEEDED, "8192000000 instructions");
    expect_refusal(
        &(harpe_schedule_options){CHUNKED, .ranks = 4, .microbatches = 8, .chunks = 65536},
        HARPE_LIMIT_EXCEEDED, "262144 stages");
}

TEST(refuses_bad_standalone_names) {
    const char *names[] = {"ok", "two words", NULL};
    harpe_schedule_options options = {.ranks = 2, .microbatches = 2, .prologue = names};
    expect_refusal(&options, HARPE_INVALID_ARGUMENT, "prologue: 'two words'");
    names[1] = "";
    expect_refusal(&options, HARPE_INVALID_ARGUMENT, "prologue: ''");
    names[1] = "forward";
    expect_refusal(&options, HARPE_INVALID_ARGUMENT, "'forward' is a pipeline instruction");
    char name[HARPE_INSTRUCTION_NAME_MAX + 2];
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = '\0';
    names[1] = name;
    options.prologue = NULL;
    options.epilogue = names;
    expect_refusal(&options, HARPE_INVALID_ARGUMENT, "epilogue: 'aaaa");
    name[HARPE_INSTRUCTION_NAME_MAX] = '\0';
    owned_schedule schedule = NULL;
    assert_works(harpe_schedule_new(&options, &schedule, &failure));
    const char *many[HARPE_STANDALONE_NAMES_MAX + 2] = {NULL};
    for (int i = 0; i <= HARPE_STANDALONE_NAMES_MAX; i++)
        many[i] = "x";
    options.epilogue = many;
    expect_refusal(&options, HARPE_LIMIT_EXCEEDED, "more than 64");
}

TEST(accessors_tolerate_the_edges) {
    harpe_schedule_free(NULL);
    owned_schedule schedule = make("1f1b", 2, 1, 0);
    size_t count = 7;
    assert_null(harpe_schedule_rank(schedule, 2, &count));
    assert_int_equal(count, 0);
    assert_null(harpe_schedule_rank(schedule, -1, &count));
}
