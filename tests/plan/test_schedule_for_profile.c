/* SPDX-License-Identifier: Apache-2.0 */
/* Tests harpe_schedule_for_profile: the number of ranks that it derives from the profile, and its
 * refusal of settings that contradict the profile or a schedule file. To find the right number of
 * ranks in another way, the test tries all numbers with harpe_schedule_new. */
#include "test.h"

#include <unistd.h>

#include "base/scratch.h"
#include "instances.h"
#include "plan/schedule.h"

static harpe_profile *profile_of_stages(int stages) {
    owned_rows rows = {0};
    for (int s = 0; s < stages; s++) {
        add_row(&rows, s, "forward", 1400, 0.1, 15);
        add_row(&rows, s, "backward", 1400, 0.2, 30);
    }
    return profile_of(&rows);
}

static void assert_refused(const harpe_profile *profile, const harpe_schedule_request *request,
                           harpe_status status, const char *expected) {
    harpe_schedule *schedule = NULL;
    assert_refuses(harpe_schedule_for_profile(profile, request, &schedule, &failure), status,
                   expected);
    assert_null(schedule);
    assert_int_equal(harpe_schedule_for_profile(profile, request, &schedule, NULL), status);
}

/* ---- Built in -------------------------------------------------------------------------------- */

/* Finds the number of ranks with which the schedule has `stages` stages, and returns 0 if there is
 * no such number. Sets `*is_known` to false if no number of ranks gives a schedule with these
 * chunks. */
static int ranks_by_trial(harpe_schedule_options options, int stages, bool *is_known) {
    int found = 0;
    *is_known = false;
    for (options.ranks = 1; options.ranks <= stages; options.ranks++) {
        owned_schedule schedule = NULL;
        options.microbatches = 2 * options.ranks; /* every built-in schedule accepts this */
        if (harpe_schedule_new(&options, &schedule, NULL) != HARPE_OK) continue;
        *is_known = true;
        if (harpe_schedule_stage_count(schedule) == stages) found = options.ranks;
    }
    return found;
}

static void check_built_in(const char *name, int stages, int chunks) {
    harpe_schedule_request request = {.options = {.name = name, .chunks = chunks}};
    bool is_known = false;
    int expected = ranks_by_trial(request.options, stages, &is_known);
    owned_profile profile = profile_of_stages(stages);
    harpe_schedule *schedule = NULL;
    request.options.microbatches = 2 * (expected > 0 ? expected : 1);
    if (strcmp(name, "dualpipe") == 0 && stages % 2 != 0 && chunks <= 1) {
        assert_refused(profile, &request, HARPE_INVALID_ARGUMENT, "an even number of ranks");
    } else if (!is_known) {
        assert_refused(profile, &request, HARPE_INVALID_ARGUMENT, "per rank, not");
    } else if (expected == 0) {
        assert_refused(profile, &request, HARPE_INVALID_INPUT, "which cannot be divided");
    } else {
        assert_works(harpe_schedule_for_profile(profile, &request, &schedule, &failure));
        assert_string_equal(harpe_schedule_name(schedule), name);
        assert_int_equal(harpe_schedule_rank_count(schedule), expected);
        assert_int_equal(harpe_schedule_stage_count(schedule), stages);
        assert_int_equal(harpe_schedule_microbatch_count(schedule), 2 * expected);
        harpe_schedule_free(schedule);
    }
}

TEST(ranks_are_those_that_the_profile_has_stages_for) {
    for (int kind = 0; harpe_schedule_name_at(kind); kind++) {
        for (int stages = 1; stages <= 13; stages++)
            for (int chunks = 0; chunks <= 5; chunks++)
                check_built_in(harpe_schedule_name_at(kind), stages, chunks);
    }
}

TEST(the_default_is_1f1b) {
    owned_profile profile = profile_of_stages(3);
    owned_schedule schedule = NULL;
    harpe_schedule_request request = {.options = {.microbatches = 1}};
    assert_works(harpe_schedule_for_profile(profile, &request, &schedule, &failure));
    assert_string_equal(harpe_schedule_name(schedule), "1f1b");
    assert_int_equal(harpe_schedule_rank_count(schedule), 3);
}

TEST(missing_and_wrong_numbers_are_refused) {
    owned_profile profile = profile_of_stages(5);
    harpe_schedule *schedule = NULL;
    assert_refused(profile, &(harpe_schedule_request){.options = {.ranks = 0}},
                   HARPE_INVALID_ARGUMENT, "the number of microbatches is missing");
    for (int microbatches = -3; microbatches < 0; microbatches++)
        assert_refused(profile,
                       &(harpe_schedule_request){.options = {.microbatches = microbatches}},
                       HARPE_INVALID_ARGUMENT, "microbatches must be 1 to");
    assert_refused(profile, &(harpe_schedule_request){.options = {.microbatches = 1000001}},
                   HARPE_INVALID_ARGUMENT, "microbatches must be 1 to");
    assert_refused(profile, &(harpe_schedule_request){.options = {.ranks = -1, .microbatches = 2}},
                   HARPE_INVALID_ARGUMENT, "(stages) must be 1 to 4096, not -1");
    assert_refused(profile,
                   &(harpe_schedule_request){.options = {.ranks = INT32_MAX, .microbatches = 2}},
                   HARPE_INVALID_ARGUMENT, "(stages) must be 1 to 4096");
    assert_refused(profile,
                   &(harpe_schedule_request){.options = {.name = "2f2b", .microbatches = 2}},
                   HARPE_INVALID_ARGUMENT, "unknown schedule '2f2b'");
    assert_refused(profile, &(harpe_schedule_request){.options = {.chunks = -1, .microbatches = 2}},
                   HARPE_INVALID_ARGUMENT, "per rank, not -1");
    assert_refused(NULL, &(harpe_schedule_request){.options = {.microbatches = 2}},
                   HARPE_INVALID_ARGUMENT, "needs a profile");
    assert_int_equal(harpe_schedule_for_profile(profile, NULL, &schedule, NULL),
                     HARPE_INVALID_ARGUMENT);
}

/* The schedule must be refused before it is created, but the test cannot see whether it was. It
 * checks that every schedule that is refused here is also too large for harpe_problem_new. */
TEST(a_schedule_too_large_to_plan_is_refused) {
    owned_profile profile = profile_of_stages(7);
    for (int microbatches = 1; microbatches <= 4096; microbatches *= 8) {
        for (uint64_t limit = 1 << 12; limit <= (uint64_t)1 << 26; limit *= 4) {
            harpe_schedule_request request = {.options = {.microbatches = microbatches},
                                              .memory_limit_bytes = limit};
            owned_schedule schedule = NULL;
            harpe_status status =
                harpe_schedule_for_profile(profile, &request, &schedule, &failure);
            if (status != HARPE_OK) {
                assert_int_equal(status, HARPE_LIMIT_EXCEEDED);
                assert_says(&failure, "MiB: plan fewer microbatches, or raise");
                request.memory_limit_bytes = 0;
                assert_works(harpe_schedule_for_profile(profile, &request, &schedule, &failure));
                harpe_problem *problem = NULL;
                harpe_problem_options options = {.memory_limit_bytes = limit};
                assert_int_equal(harpe_problem_new(profile, schedule, &options, &problem, NULL),
                                 HARPE_LIMIT_EXCEEDED);
            }
        }
    }
    assert_refused(
        profile,
        &(harpe_schedule_request){.options = {.microbatches = 4096}, .memory_limit_bytes = 1 << 20},
        HARPE_LIMIT_EXCEEDED, "57344 instructions need about");
}

/* ---- From a file ----------------------------------------------------------------------------- */

/* Writes a schedule in which a microbatch begins when the one before it has gone through all ranks.
 */
static void write_schedule(const char *path, int ranks, int microbatches) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int rank = 0; rank < ranks; rank++) {
        for (int m = 0; m < microbatches; m++) {
            for (int s = 0; s < ranks; s++)
                s == rank ? fprintf(file, "%dF%d,", rank, m) : fprintf(file, ",");
            for (int s = ranks; s-- > 0;)
                s == rank ? fprintf(file, "%dB%d,", rank, m) : fprintf(file, ",");
        }
        fprintf(file, "\n");
    }
    assert_int_equal(fclose(file), 0);
}

static void check_file(const char *path, int ranks, int microbatches) {
    static const char *const none[] = {NULL};
    owned_profile profile = profile_of_stages(ranks);
    for (int given_ranks = 0; given_ranks <= ranks + 1; given_ranks++) {
        for (int given = 0; given <= microbatches + 1; given++) {
            harpe_schedule_request request = {
                .options = {.ranks = given_ranks, .microbatches = given, .prologue = none},
                .path = path};
            owned_schedule schedule = NULL;
            char expected[64];
            if (given != 0 && given != microbatches) {
                (void)snprintf(expected, sizeof expected, "has %d microbatches, not %d: leave",
                               microbatches, given);
                assert_refused(profile, &request, HARPE_INVALID_ARGUMENT, expected);
                continue;
            }
            if (given_ranks != 0 && given_ranks != ranks) {
                (void)snprintf(expected, sizeof expected, "has %d ranks, not %d: leave", ranks,
                               given_ranks);
                assert_refused(profile, &request, HARPE_INVALID_ARGUMENT, expected);
                continue;
            }
            assert_works(harpe_schedule_for_profile(profile, &request, &schedule, &failure));
            assert_string_equal(harpe_schedule_name(schedule), "file");
            assert_int_equal(harpe_schedule_rank_count(schedule), ranks);
            assert_int_equal(harpe_schedule_microbatch_count(schedule), microbatches);
        }
    }
    harpe_schedule_options wrong[] = {{.chunks = 1},
                                      {.chunks = -1},
                                      {.chunks = 2},

                                      {.microbatches = -1},
                                      {.microbatch_group_size = 2},
                                      {.overlaps_moe_expert_parallel_comm = true}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_refused(profile, &(harpe_schedule_request){.options = wrong[i], .path = path},
                       HARPE_INVALID_ARGUMENT,
                       wrong[i].microbatches ? "not -1: leave"
                                             : "cannot be combined with a schedule file");
}

SCRATCH_TEST(a_file_answers_for_itself) {
    const char *path = scratch_path(s, "s.csv");
    for (int ranks = 1; ranks <= 5; ranks++) {
        for (int microbatches = 1; microbatches <= 3; microbatches++) {
            write_schedule(path, ranks, microbatches);
            check_file(path, ranks, microbatches);
        }
    }
    owned_profile profile = profile_of_stages(1);
    path = scratch_path(s, "missing");
    assert_refused(profile, &(harpe_schedule_request){.path = path}, HARPE_NOT_FOUND, path);
}

/* The file's own waits, between the old places of the instructions, stay between the same
 * instructions. */
SCRATCH_TEST(a_file_takes_a_prologue_and_an_epilogue) {
    const char *path = scratch_path(s, "s.csv");
    put_file(path, "2F0,0F0,BARRIER,0B0,2B0\n1F0,BARRIER,1B0\n");
    static const char *const before[] = {"load", "warm_up", NULL}, *const after[] = {"step", NULL};
    owned_profile profile = profile_of_stages(3);
    owned_schedule schedule = NULL;
    harpe_schedule_request request = {.options = {.prologue = before, .epilogue = after},
                                      .path = path};
    /* 2F0 waits for 1F0, which waits for 0F0. */
    assert_refuses(harpe_schedule_for_profile(profile, &request, &schedule, &failure),
                   HARPE_INVALID_INPUT, "can never finish");
    put_file(path, "0F0,2F0,BARRIER,2B0,0B0\n1F0,BARRIER,1B0\n");
    assert_works(harpe_schedule_for_profile(profile, &request, &schedule, &failure));
    static const char *const expected[2][8] = {
        {"load", "warm_up", "forward", "forward", "backward", "backward", "step", NULL},
        {"load", "warm_up", "forward", "backward", "step", NULL}};
    for (int rank = 0; rank < 2; rank++) {
        size_t count = 0;
        const harpe_instruction *list = harpe_schedule_rank(schedule, rank, &count);
        for (size_t i = 0; i < count; i++) {
            assert_string_equal(list[i].name, expected[rank][i]);
            if (list[i].actions[0].operation == HARPE_STANDALONE)
                assert_int_equal(list[i].actions[0].stage, rank);
        }
        assert_null(expected[rank][count]);
    }
    assert_int_equal(schedule->wait_count, 2); /* 1F0 before 2B0, and 2F0 before 1B0 */
    assert_int_equal(schedule->waits[0].before, 7 + 2);
    assert_int_equal(schedule->waits[0].after, 4);
    assert_int_equal(schedule->waits[1].before, 3);
    assert_int_equal(schedule->waits[1].after, 7 + 3);
    static const char *const bad[] = {"two words", NULL};
    request.options.epilogue = bad;
    assert_refused(profile, &request, HARPE_INVALID_ARGUMENT, "epilogue: 'two words'");
    assert_int_equal(unlink(path), 0);
}

/* Barriers at the ends of the rows, and between them. What is behind the last one waits for all
 * ranks, and so does what is behind the first one. */
SCRATCH_TEST(a_prologue_and_an_epilogue_lie_outside_of_barriers) {
    static const char *const before[] = {"load", "warm_up", NULL}, *const after[] = {"step", NULL};
    const char *path = scratch_path(s, "s.csv");
    put_file(path, "BARRIER,0F0,0B0,BARRIER\nBARRIER,1F0,1B0,BARRIER\n");
    owned_profile profile = profile_of_stages(2);
    for (int which = 0; which < 4; which++) {
        owned_schedule schedule = NULL;
        harpe_schedule_request request = {.path = path};
        if (which & 1) request.options.prologue = before;
        if (which & 2) request.options.epilogue = after;
        assert_works(harpe_schedule_for_profile(profile, &request, &schedule, &failure));
        int first = which & 1 ? 2 : 0, length = first + 2 + (which & 2 ? 1 : 0);
        const harpe_wait expected[] = {{length + first - 1, first},
                                       {length + first + 1, first + 2},
                                       {first - 1, length + first},
                                       {first + 1, length + first + 2}};
        size_t found = 0;
        for (int k = 0; k < 4; k++) {
            if (!(which & (k % 2 == 0 ? 1 : 2))) continue;
            assert_in_range(found, 0, schedule->wait_count - 1);
            assert_int_equal(schedule->waits[found].before, expected[k].before);
            assert_int_equal(schedule->waits[found++].after, expected[k].after);
        }
        assert_int_equal(schedule->wait_count, found);
    }
    assert_int_equal(unlink(path), 0);
}

/* ---- The problem made of both ---------------------------------------------------------------- */

/* Tries every combination of the schedule's and the profile's stages. A schedule with fewer stages
 * than the profile was once accepted. */
TEST(problem_wants_exactly_the_stages_of_the_profile) {
    for (int kind = 0; harpe_schedule_name_at(kind); kind++) {
        for (int ranks = 1; ranks <= 4; ranks++) {
            harpe_schedule_options options = {
                .name = harpe_schedule_name_at(kind), .ranks = ranks, .microbatches = 2 * ranks};
            if (strcmp(options.name, "dualpipe") == 0 && ranks % 2 != 0) continue;
            owned_schedule schedule = schedule_of(&options);
            for (int stages = 1; stages <= 9; stages++) {
                owned_profile profile = profile_of_stages(stages);
                owned_problem problem = NULL;
                harpe_status status =
                    harpe_problem_new(profile, schedule, NULL, &problem, &failure);
                bool says_so = status != HARPE_OK && strstr(failure.message, "but the schedule (");
                assert_int_equal(says_so, stages != harpe_schedule_stage_count(schedule));
                if (says_so) assert_int_equal(status, HARPE_INVALID_INPUT);
            }
        }
    }
}
