/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules from the CSV of torch.distributed.pipelining: the accepted files, that every written
 * built-in schedule reads back unchanged, and the error line for each bad file. */
#include "test.h"

#include <harpe/schedule.h>

#include "base/scratch.h"
#include "base/text.h"
#include "plan/schedule.h"

#include "instances.h"

#define CELL \
    "expected a cell such as 0F3, 1B0, 2I1, 2W1, (0F7;7B3)OVERLAP_F_B, 0F3:name, 1F0+0.002, " \
    ":name or BARRIER"

static harpe_schedule *read_text(const char *text) {
    harpe_schedule *schedule = NULL;
    assert_works(harpe_schedule_parse_csv(text, strlen(text), "s.csv", &schedule, &failure));
    return schedule;
}

static void expect_status(const char *text, harpe_status status, const char *message) {
    harpe_schedule *schedule = NULL;
    assert_int_equal(harpe_schedule_parse_csv(text, strlen(text), "s.csv", &schedule, &failure),
                     status);
    assert_null(schedule);
    assert_int_equal(failure.status, status);
    assert_string_equal(failure.message, message);
}

static void expect_bad(const char *text, const char *message) {
    expect_status(text, HARPE_INVALID_INPUT, message);
}

static void expect_action(const harpe_action *action, harpe_operation operation, int stage,
                          int microbatch) {
    assert_int_equal(action->operation, operation);
    assert_int_equal(action->stage, stage);
    assert_int_equal(action->microbatch, microbatch);
}

/* ---- Accepted files -------------------------------------------------------------------------- */

TEST(reads_1f1b_with_idle_cells) {
    owned_schedule schedule = read_text("0F0,0F1,,,0B0,,0B1\n,1F0,1B0,1F1,1B1,,\n");
    assert_string_equal(harpe_schedule_name(schedule), "file");
    assert_int_equal(harpe_schedule_rank_count(schedule), 2);
    assert_int_equal(harpe_schedule_stage_count(schedule), 2);
    assert_int_equal(harpe_schedule_microbatch_count(schedule), 2);
    assert_int_equal(harpe_schedule_instruction_count(schedule), 8);
    size_t count;
    const harpe_instruction *list = harpe_schedule_rank(schedule, 1, &count);
    assert_int_equal(count, 4);
    expect_action(&list[0].actions[0], HARPE_FORWARD, 1, 0);
    expect_action(&list[1].actions[0], HARPE_BACKWARD, 1, 0);
    expect_action(&list[3].actions[0], HARPE_BACKWARD, 1, 1);
    assert_string_equal(list[0].name, "forward");
    assert_string_equal(list[1].name, "backward");
}

TEST(reads_split_backwards_and_overlapped_pairs) {
    owned_schedule schedule =
        read_text("0F0,1F0,(0F1;1B0)OVERLAP_F_B,(1F1;0I0)OVERLAP_F_B,0W0,1I1,1W1,0B1\n");
    assert_int_equal(harpe_schedule_stage_count(schedule), 2);
    size_t count;
    const harpe_instruction *list = harpe_schedule_rank(schedule, 0, &count);
    assert_int_equal(count, 8);
    assert_string_equal(list[2].name, "overlap_f_b");
    assert_int_equal(list[2].action_count, 2);
    expect_action(&list[2].actions[0], HARPE_FORWARD, 0, 1);
    expect_action(&list[2].actions[1], HARPE_BACKWARD, 1, 0);
    expect_action(&list[3].actions[1], HARPE_BACKWARD_INPUT, 0, 0);
    assert_string_equal(list[4].name, "backward_weight");
    assert_string_equal(list[5].name, "backward_input");
}

TEST(reads_files_from_any_system) {
    owned_schedule schedule = read_text("\xEF\xBB\xBF\"0F0\", 0B0 , ,\"\"\r\n,1F0,1B0\r\n\r\n\n");
    assert_int_equal(harpe_schedule_rank_count(schedule), 2);
    assert_int_equal(harpe_schedule_instruction_count(schedule), 4);
    harpe_schedule_free(schedule);
    schedule = read_text("0F0,0B0");
    assert_int_equal(harpe_schedule_rank_count(schedule), 1);
}

/* Writes a schedule in the file's form. Returns false if the form lacks one of its operations. */
static bool write_csv(const harpe_schedule *schedule, harpe_text *text) {
    static const char letters[] = {[HARPE_FORWARD] = 'F',
                                   [HARPE_BACKWARD] = 'B',
                                   [HARPE_BACKWARD_INPUT] = 'I',
                                   [HARPE_BACKWARD_WEIGHT] = 'W'};
    for (int rank = 0; rank < harpe_schedule_rank_count(schedule); rank++) {
        size_t count;
        const harpe_instruction *list = harpe_schedule_rank(schedule, rank, &count);
        for (size_t i = 0; i < count; i++) {
            const harpe_action *action = list[i].actions;
            if (action->operation > HARPE_BACKWARD_WEIGHT) return false;
            const char *separator = i > 0 ? "," : "";
            if (list[i].action_count == 1) {
                harpe_text_printf(text, "%s%d%c%d", separator, action->stage,
                                  letters[action->operation], action->microbatch);
            } else {
                harpe_text_printf(text, "%s(%dF%d;%dB%d)OVERLAP_F_B", separator, action[0].stage,
                                  action[0].microbatch, action[1].stage, action[1].microbatch);
            }
        }
        harpe_text_append(text, "\r\n", 2);
    }
    return true;
}

static void expect_same(const harpe_schedule *left, const harpe_schedule *right) {
    assert_int_equal(harpe_schedule_rank_count(left), harpe_schedule_rank_count(right));
    assert_int_equal(harpe_schedule_stage_count(left), harpe_schedule_stage_count(right));
    assert_int_equal(harpe_schedule_microbatch_count(left), harpe_schedule_microbatch_count(right));
    for (int rank = 0; rank < harpe_schedule_rank_count(left); rank++) {
        size_t left_count, right_count;
        const harpe_instruction *a = harpe_schedule_rank(left, rank, &left_count);
        const harpe_instruction *b = harpe_schedule_rank(right, rank, &right_count);
        assert_int_equal(left_count, right_count);
        for (size_t i = 0; i < left_count; i++) {
            assert_string_equal(a[i].name, b[i].name);
            assert_int_equal(a[i].action_count, b[i].action_count);
            for (int k = 0; k < a[i].action_count; k++) {
                expect_action(&b[i].actions[k], a[i].actions[k].operation, a[i].actions[k].stage,
                              a[i].actions[k].microbatch);
            }
        }
    }
}

/* The order of a runtime of torch.distributed.pipelining (2 ranks, 2 microbatches, split
 * backwards), in the form that has all actions. */
TEST(leaves_out_communication) {
    owned_schedule with =
        read_text("0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0I0,0WAIT_SEND_F0,0RECV_B1,0W0,0B1,"
                  "0WAIT_SEND_F1,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD\r\n"
                  "1UNSHARD,1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD,"
                  "1WAIT_REDUCE_GRAD,1RESHARD,1WAIT_SEND_B0,1WAIT_SEND_B1\r\n");
    owned_schedule without = read_text("0F0,0F1,0I0,0W0,0B1\n1F0,1B0,1F1,1B1\n");
    expect_same(with, without);
}

TEST(every_built_in_comes_back_as_it_was_written) {
    int compared = 0;
    int k = 0;
    for (; harpe_schedule_name_at(k); k++) {
        for (int ranks = 1; ranks <= 5; ranks++) {
            for (int microbatches = 1; microbatches <= 12; microbatches++) {
                harpe_schedule_options options = {.name = harpe_schedule_name_at(k),
                                                  .ranks = ranks,
                                                  .microbatches = microbatches};
                owned_schedule schedule = NULL;
                if (harpe_schedule_new(&options, &schedule, NULL) != HARPE_OK) continue;
                owned_text text = {0};
                if (write_csv(schedule, &text)) {
                    owned_schedule back = read_text(text.data);
                    expect_same(schedule, back);
                    compared++;
                }
            }
        }
    }
    assert_in_range(compared, 4 * 60, k * 60);
}

/* ---- Beyond torch's form --------------------------------------------------------------------- */

TEST(reads_recomputations_and_names) {
    owned_schedule schedule = read_text(
        ":load,0F0:forward_moe,1F0,(0F1;1B0)OVERLAP_F_B:pair,0R0,0B0:b.moe,1F1:forward_moe,"
        "1R1,1I1,1W1,0B1,:optimizer\n");
    assert_int_equal(harpe_schedule_stage_count(schedule), 2);
    assert_int_equal(harpe_schedule_microbatch_count(schedule), 2);
    static const char *const names[] = {
        "load",           "forward_moe",     "forward",     "pair",
        "recomputation",  "b.moe",           "forward_moe", "recomputation",
        "backward_input", "backward_weight", "backward",    "optimizer"};
    size_t count;
    const harpe_instruction *list = harpe_schedule_rank(schedule, 0, &count);
    assert_int_equal(count, 12);
    for (size_t i = 0; i < count; i++)
        assert_string_equal(list[i].name, names[i]);
    assert_ptr_equal(list[1].name, list[6].name);
    expect_action(&list[0].actions[0], HARPE_STANDALONE, 0, -1);
    expect_action(&list[1].actions[0], HARPE_FORWARD, 0, 0);
    expect_action(&list[3].actions[1], HARPE_BACKWARD, 1, 0);
    expect_action(&list[4].actions[0], HARPE_RECOMPUTATION, 0, 0);
}

TEST(standalone_instructions_belong_to_the_lowest_stage) {
    owned_schedule schedule = read_text("0F0,1F1,1B1,0B0\n:a,1F0,0F1,1B0,0B1,:b\n");
    size_t count;
    const harpe_instruction *list = harpe_schedule_rank(schedule, 1, &count);
    expect_action(&list[0].actions[0], HARPE_STANDALONE, 0, -1);
    expect_action(&list[5].actions[0], HARPE_STANDALONE, 0, -1);
    harpe_schedule_free(schedule);
    schedule = read_text("0F0,0B0\n1F0,1B0,:a\n");
    expect_action(&harpe_schedule_rank(schedule, 1, &count)[2].actions[0], HARPE_STANDALONE, 1, -1);
}

TEST(reads_a_stage_on_two_ranks) {
    owned_schedule schedule = read_text("0F0,1F1,1B1,0B0\n0F1,1F0,1B0,0B1\n");
    assert_int_equal(harpe_schedule_rank_count(schedule), 2);
    assert_int_equal(harpe_schedule_stage_count(schedule), 2);
    assert_int_equal(harpe_schedule_microbatch_count(schedule), 2);
}

/* All of what is before a barrier ends before anything behind it starts. */
TEST(barriers_wait_for_all_ranks) {
    owned_schedule schedule = read_text("0F0,0F1,BARRIER,0B0,0B1,BARRIER,:step\n"
                                        "1F0,BARRIER,1F1,1B0,1B1,BARRIER,:step\n");
    static const harpe_wait expected[] = {{5, 2}, {8, 4}, {1, 6}, {3, 9}};
    assert_int_equal(schedule->wait_count, 4);
    for (size_t w = 0; w < 4; w++) {
        assert_int_equal(schedule->waits[w].before, expected[w].before);
        assert_int_equal(schedule->waits[w].after, expected[w].after);
    }
    harpe_schedule_free(schedule);
    schedule = read_text("BARRIER,0F0,0B0,BARRIER,BARRIER\nBARRIER,1F0,1B0,BARRIER,BARRIER\n");
    assert_int_equal(schedule->wait_count, 0); /* nothing is before or behind */
}

TEST(reads_lags) {
    owned_schedule schedule = read_text("0F0,0B0+0.5,:step\n1F0:first+1e-3,1B0:b.x-y+0,:step+2\n");
    static const double lags_s[] = {0, 0.5, 0, 1e-3, 0, 2};
    static const char *const names[] = {"forward", "backward", "step", "first", "b.x-y", "step"};
    for (size_t i = 0; i < 6; i++) {
        assert_true(schedule->instructions[i].lag_s == lags_s[i]);
        assert_string_equal(schedule->instructions[i].name, names[i]);
    }
    assert_true(harpe_schedule_has_lag(schedule));
    harpe_schedule_free(schedule);
    schedule = read_text("0F0,(0F1;0B0)OVERLAP_F_B+0.25,0B1\n");
    assert_true(schedule->instructions[1].lag_s == 0.25);
    harpe_schedule_free(schedule);
    schedule = read_text("0F0,0B0+0\n");
    assert_false(harpe_schedule_has_lag(schedule));
}

TEST(refuses_lags_that_are_none) {
    static const char *const bad[] = {"0F0+",    "0F0+x",  "0F0+-1",  "0F0+1.1e6",
                                      "0F0+nan", "0F0+1s", "0F0+1+1", "0F0+ 1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[40], message[160];
        (void)snprintf(text, sizeof text, "%s,0B0\n", bad[i]);
        (void)snprintf(message, sizeof message,
                       "s.csv:1:1: after the plus sign is no time between 0 and 1000000 s (found "
                       "'%s')",
                       bad[i]);
        expect_bad(text, message);
    }
    expect_bad("0F0,BARRIER+1,0B0\n", "s.csv:1:5: " CELL " (found 'BARRIER+1')");
    expect_bad("+1\n", "s.csv:1:1: " CELL " (found '+1')");
}

TEST(refuses_names_and_barriers_that_are_none) {
    const char *name =
        "after the colon is no instruction name (1 to 63 letters, digits or _ . : -)";
    char message[256];
    (void)snprintf(message, sizeof message, "s.csv:1:1: %s (found '0F0:')", name);
    expect_bad("0F0:,0B0", message);
    (void)snprintf(message, sizeof message, "s.csv:1:5: %s (found ':')", name);
    expect_bad("0F0,:,0B0", message);
    (void)snprintf(message, sizeof message, "s.csv:1:1: %s (found ':two words')", name);
    expect_bad(":two words,0F0,0B0", message);
    expect_bad(":forward,0F0,0B0", "s.csv:1:1: 'forward' is a pipeline instruction, which needs a "
                                   "cell such as 0F3 (found ':forward')");
    expect_bad("0F0,barrier,0B0", "s.csv:1:5: " CELL " (found 'barrier')");
    expect_bad("0F0,BARRIER,0B0\n1F0,1B0\n", "s.csv:2: rank 1 has 0 barriers, but rank 0 has 1; a "
                                             "barrier is one of all ranks");
    expect_bad(":a,BARRIER\n", "s.csv:1: rank 0 has nothing to do: no cell has a computation");
    expect_bad(
        "0F0,0B0,BARRIER\nBARRIER,1F0,1B0\n",
        "s.csv: the order can never finish: rank 0's backward 0B0 waits for rank 1's backward "
        "1B0, which comes after rank 1's forward 1F0, which waits for rank 0's backward 0B0");
    expect_bad("0R0", "s.csv: stage 0 (rank 0) has no forward (F) for microbatch 0");
    owned_text text = {0};
    for (int i = 0; i < 65; i++)
        harpe_text_printf(&text, ":n%d,", i);
    harpe_text_printf(&text, "0F0,0B0\n");
    expect_bad(text.data, "s.csv:1:311: more than 64 names (found ':n64')");
    harpe_text_free(&text);
    for (int rank = 0; rank < 2001; rank++)
        harpe_text_printf(&text, "%dF0,BARRIER,%dB0\n", rank, rank);
    expect_status(text.data, HARPE_LIMIT_EXCEEDED,
                  "s.csv: 1 barriers of 2001 ranks are more than 4000000 dependencies");
}

SCRATCH_TEST(reads_a_file_by_path) {
    const char *path = scratch_path(s, "s.csv");
    owned_schedule schedule = NULL;
    put_file(path, "0F0,0B0\n");
    assert_works(harpe_schedule_read_csv(path, &schedule, &failure));
    harpe_schedule_free(schedule);
    schedule = NULL;
    put_file(path, "0F0,0B0\nx");
    assert_refuses(harpe_schedule_read_csv(path, &schedule, &failure), HARPE_INVALID_INPUT, path);
    path = scratch_path(s, "missing");
    assert_refuses(harpe_schedule_read_csv(path, &schedule, &failure), HARPE_NOT_FOUND, path);
    assert_null(schedule);
}

/* ---- Refused files --------------------------------------------------------------------------- */

TEST(files_that_are_no_schedule_are_refused_where_they_are_none) {
    static const char *const cases[][2] = {
        /* cells that are none */
        {"0F0,0B0\n,1F0,nonsense\n", "s.csv:2:6: " CELL " (found 'nonsense')"},
        {"F0", "s.csv:1:1: " CELL " (found 'F0')"},
        {"0F", "s.csv:1:1: " CELL " (found '0F')"},
        {"0", "s.csv:1:1: " CELL " (found '0')"},
        {"0f0", "s.csv:1:1: " CELL " (found '0f0')"},
        {"0Q0", "s.csv:1:1: " CELL " (found '0Q0')"},
        {"0F0x", "s.csv:1:1: " CELL " (found '0F0x')"},
        {"-1F0", "s.csv:1:1: " CELL " (found '-1F0')"},
        {"0F-1", "s.csv:1:1: " CELL " (found '0F-1')"},
        {"0F0.5", "s.csv:1:1: " CELL " (found '0F0.5')"},
        {"0F99999999999999999999", "s.csv:1:1: " CELL " (found '0F99999999999999999999')"},
        {"65536F0", "s.csv:1:1: stage: at most 65535 is supported (found '65536F0')"},
        {"0F1000000", "s.csv:1:1: microbatch: at most 999999 is supported (found '0F1000000')"},
        /* pairs that are none */
        {"(0F0;0B0)", "s.csv:1:1: " CELL " (found '(0F0;0B0)')"},
        {"(0F0)OVERLAP_F_B", "s.csv:1:1: " CELL " (found '(0F0)OVERLAP_F_B')"},
        {"(0F0;0B0)OVERLAP_F_B2", "s.csv:1:1: " CELL " (found '(0F0;0B0)OVERLAP_F_B2')"},
        {"(0B0;0F1)OVERLAP_F_B",
         "s.csv:1:1: an overlapped pair is a forward (F) and then a backward (B or I) "
         "(found '(0B0;0F1)OVERLAP_F_B')"},
        {"(0F0;0W0)OVERLAP_F_B",
         "s.csv:1:1: an overlapped pair is a forward (F) and then a backward (B or I) "
         "(found '(0F0;0W0)OVERLAP_F_B')"},
        /* actions that it does not know */
        {"0F0,0FORWARD0", "s.csv:1:5: " CELL " (found '0FORWARD0')"},
        {"0SEND_F0x", "s.csv:1:1: " CELL " (found '0SEND_F0x')"},
        {"0SEND_F-1", "s.csv:1:1: " CELL " (found '0SEND_F-1')"},
        {"0SEND", "s.csv:1:1: " CELL " (found '0SEND')"},
        {"SEND_F0", "s.csv:1:1: " CELL " (found 'SEND_F0')"},
        {"0_", "s.csv:1:1: " CELL " (found '0_')"},
        {"(0SEND_F0;0B0)OVERLAP_F_B", "s.csv:1:1: " CELL " (found '(0SEND_F0;0B0)OVERLAP_F_B')"},
        /* ranks with nothing to do */
        {"0F0,0B0\n\n,1F0,1B0\n", "s.csv:2: rank 1 has nothing to do: the line is empty"},
        {"\n0F0,0B0\n", "s.csv:1: rank 0 has nothing to do: the line is empty"},
        {"0F0,0B0\n,,\n", "s.csv:2: rank 1 has nothing to do: no cell has a computation"},
        {"0UNSHARD\n", "s.csv:1: rank 0 has nothing to do: no cell has a computation"},
        /* wrong owners of stages */
        {"0F0,0B0\n,0F1,0B0\n", "s.csv:2:6: 0B0 comes a second time; every action runs once"},
        {"0F0\n0B0,0F1,0B1\n",
         "s.csv:2:1: rank 0 runs microbatch 0 at stage 0 already; a microbatch passes a stage "
         "on one rank"},
        {"0F0,0B0\n2F0,2B0\n",
         "s.csv: stage 1 is missing: no rank runs it, though there is a stage 2"},
        /* actions twice */
        {"0F0,0B0,\n,1F0,1B0,1F0\n", "s.csv:2:10: 1F0 comes a second time; every action runs once"},
        {"0F0,0F1,(0F1;0B0)OVERLAP_F_B,0B1",
         "s.csv:1:9: 0F1 comes a second time; every action runs once"},
        /* incomplete microbatches */
        {"0F0,0F1,0B1",
         "s.csv: stage 0 (rank 0) has a forward (F) but no backward (B, or I and W) for "
         "microbatch 0"},
        {"0F0,0B0\n1F0,1B0,1W0",
         "s.csv: stage 1 (rank 1) has both a whole backward (B) and half of one (I or W) for "
         "microbatch 0"},
        {"0F0,0I0", "s.csv: stage 0 (rank 0) has the input half of the backward (I) but no "
                    "weight half (W) for microbatch 0"},
        {"0F0,0W0", "s.csv: stage 0 (rank 0) has the weight half of the backward (W) but no "
                    "input half (I) for microbatch 0"},
        {"0B0", "s.csv: stage 0 (rank 0) has no forward (F) for microbatch 0"},
        {"0F0,0B0,0F1,0B1\n1F0,1B0", "s.csv: stage 1 (rank 1) has no forward (F) for microbatch 1"},
        {"0F0,0B0,0F9,0B9", "s.csv: stage 0 does nothing for microbatch 1, though stages run "
                            "up to 0 and microbatches up to 9"},
        /* an order that cannot finish */
        {"0F0,0F1,0B0,0B1\n1F1,1B1,1F0,1B0\n2F0,2B0,2F1,2B1\n",
         "s.csv: the order can never finish: rank 1's backward 1B1 waits for rank "
         "2's backward 2B1, which comes after rank 2's forward 2F0, which waits for rank 1's "
         "forward 1F0, which comes after rank 1's backward 1B1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_bad(cases[i][0], cases[i][1]);
}

TEST(refuses_files_without_a_schedule) {
    const char *message = "s.csv: the schedule is empty; expected one line per rank with cells "
                          "such as 0F3,1B0";
    expect_bad("", message);
    expect_bad("\n\r\n  \n", message);
    expect_bad("\xEF\xBB\xBF", message);
}

TEST(refuses_more_ranks_than_supported) {
    owned_text text = {0};
    for (int rank = 0; rank <= 4096; rank++)
        harpe_text_printf(&text, "%dF0,%dB0\n", rank, rank);
    expect_status(text.data, HARPE_LIMIT_EXCEEDED, "s.csv:4097: more than 4096 ranks");
}
