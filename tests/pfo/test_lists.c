/* SPDX-License-Identifier: Apache-2.0 */
/* Dumped lists: they are written whole, read the same, and refused with file and place. The planner
 * can read the profile CSV of offline results. */
#include "test.h"

#include <harpe/profile.h>

#include "../base/scratch.h"
#include "pfo/models.h"

OWNER(harpe_profile)

static const harpe_frequency_value times[] = {{1410, 0.1}, {1200, 0.125}, {210, 1.0 / 3}};
static const harpe_frequency_value energies[] = {{210, 9}, {1410, 20.5}, {1200, 15}};

SCRATCH_TEST(ranks_read_as_they_were_saved) {
    const char *path = scratch_path(s, "ranks.json");
    static const int frequencies[] = {1410, 210};
    const harpe_rank_info saved[] = {{0, 0, 0, 0, frequencies, 2}, {1, 0, 1, 0, NULL, 0}};
    harpe_rank_info *ranks = NULL;
    size_t count = 0;
    assert_works(harpe_ranks_save(path, saved, 2, &failure));
    assert_works(harpe_ranks_load(path, &ranks, &count, &failure));
    assert_int_equal(count, 2);
    assert_true(harpe_rank_info_equal(&saved[0], &ranks[0]));
    assert_true(harpe_rank_info_equal(&saved[1], &ranks[1]));
    harpe_ranks_free(ranks, count);
    harpe_ranks_free(NULL, 0);
    assert_int_equal(entry_count(((scratch *)s)->root), 1);
}

SCRATCH_TEST(schedules_and_results_read_as_they_were_saved) {
    const char *path = scratch_path(s, "list.json");
    static const harpe_scheduled_instruction instructions[] = {{"forward", 1410}, {"b", 0}};
    const harpe_frequency_schedule schedules[] = {{0, instructions, 2, true}, {1, NULL, 0, false}};
    static const double values[] = {0.1, 2, 1e-9};
    static const size_t counts[] = {1, 2};
    static const size_t offsets[] = {2, 0};
    const harpe_breakdown breakdown = {"forward", 2, counts, offsets, values};
    const harpe_profiling_result results[] = {{3, values, 3, values, 1, &breakdown, 1, NULL, 0}};
    harpe_frequency_schedule *read_schedules = NULL;
    harpe_profiling_result *read_results = NULL;
    size_t count = 0;
    assert_works(harpe_schedules_save(path, schedules, 2, &failure));
    assert_works(harpe_schedules_load(path, &read_schedules, &count, &failure));
    assert_int_equal(count, 2);
    assert_string_equal(read_schedules[0].instructions[1].instruction, "b");
    assert_int_equal(read_schedules[1].instruction_count, 0);
    assert_true(read_schedules[0].is_trial && !read_schedules[1].is_trial);
    harpe_schedules_free(read_schedules, count);

    assert_works(harpe_profiling_results_save(path, results, 1, &failure));
    assert_true(file_holds(path, "[{\"rank\":3,\"iter_time\":[0.1,2,1e-09],\"iter_energy\":[0.1],"
                                 "\"time_breakdown\":{\"forward\":[[1e-09],[0.1,2]]},"
                                 "\"energy_breakdown\":{}}]\n"));
    assert_works(harpe_profiling_results_load(path, &read_results, &count, &failure));
    assert_int_equal(count, 1);
    assert_true(read_results[0].time_breakdown[0].values[2] == 2);
    harpe_profiling_results_free(read_results, count);
}

SCRATCH_TEST(an_empty_list_is_a_list) {
    const char *path = scratch_path(s, "empty.json");
    harpe_rank_info *ranks = NULL;
    size_t count = 7;
    assert_works(harpe_ranks_save(path, NULL, 0, &failure));
    assert_works(harpe_ranks_load(path, &ranks, &count, &failure));
    assert_int_equal(count, 0);
    harpe_ranks_free(ranks, count);
}

SCRATCH_TEST(bad_files_are_refused_with_their_name_and_place) {
    const struct {
        const char *content, *message;
    } cases[] = {
        {"", ": Expecting value: line 1 column 1 (char 0)"},
        {"{}", ": value is not a valid list"},
        {"[3]", ": [0]: value is not a valid dict"},
        {"[{\"rank\":0,\"frequencies\":[]},{\"rank\":1,\"frequencies\":[[1,2],[1,\"x\"]]}]",
         ": [1].frequencies[1][1]: value is not a valid integer"},
        {"[{\"rank\":0,\"frequencies\":[]},{}]", ": [1].rank: field required (and 1 more)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = scratch_path(s, "bad.json");
        harpe_frequency_schedule *schedules = NULL;
        size_t count = 7;
        put_file(path, cases[i].content);
        assert_int_equal(harpe_schedules_load(path, &schedules, &count, &failure),
                         HARPE_INVALID_INPUT);
        assert_int_equal(strncmp(failure.message, path, strlen(path)), 0);
        assert_string_equal(failure.message + strlen(path), cases[i].message);
        assert_null(schedules);
        assert_int_equal(count, 7);
    }
    harpe_frequency_schedule *schedules = NULL;
    size_t count = 0;
    assert_int_equal(harpe_schedules_load(scratch_path(s, "missing"), &schedules, &count, NULL),
                     HARPE_NOT_FOUND);
}

SCRATCH_TEST(offline_results_read_as_they_were_saved) {
    const char *path = scratch_path(s, "offline.json");
    const harpe_offline_profiling_result saved[] = {
        {0, 0, 0, 0, times, energies, times, energies, 3, 3, 2, 0},
        {1, 0, 1, 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0}};
    harpe_offline_profiling_result *results = NULL;
    size_t count = 0;
    assert_works(harpe_offline_profiling_results_save(path, saved, 2, &failure));
    assert_works(harpe_offline_profiling_results_load(path, &results, &count, &failure));
    assert_int_equal(count, 2);
    assert_int_equal(results[0].forward_time_count, 3);
    assert_int_equal(results[0].backward_time_count, 2);
    assert_int_equal(results[0].forward_time_s[2].frequency_mhz, 210);
    assert_true(results[0].forward_time_s[2].value == 1.0 / 3);
    assert_int_equal(results[1].pp_rank, 1);
    harpe_offline_profiling_results_free(results, count);

    put_file(path, "{\"__root__\":[{\"rank\":0,\"dp_rank\":0,\"pp_rank\":0,\"tp_rank\":0,"
                   "\"forward_time\":{\"1410\":0.5},\"forward_energy\":{},\"backward_time\":{},"
                   "\"backward_energy\":{}}]}");
    assert_works(harpe_offline_profiling_results_load(path, &results, &count, &failure));
    assert_int_equal(count, 1);
    assert_int_equal(results[0].forward_time_s[0].frequency_mhz, 1410);
    harpe_offline_profiling_results_free(results, count);

    put_file(path, "[{\"rank\":0,\"dp_rank\":0,\"pp_rank\":0,\"tp_rank\":0,"
                   "\"forward_time\":{\"fast\":0.5},\"forward_energy\":{\"7\":\"x\",\"-1\":1},"
                   "\"backward_time\":{},\"backward_energy\":[]}]");
    assert_refuses(harpe_offline_profiling_results_load(path, &results, &count, &failure),
                   HARPE_INVALID_INPUT,
                   ": [0].forward_time.__key__: value is not a valid "
                   "integer (and 3 more)");
}

SCRATCH_TEST(the_csv_is_a_profile_that_the_planner_reads) {
    const char *path = scratch_path(s, "profile.csv");
    const harpe_offline_profiling_result results[] = {
        {0, 0, 0, 0, times, energies, times, energies, 3, 3, 3, 3}};
    assert_works(harpe_offline_profiling_results_write_csv(path, results, 1, &failure));
    assert_true(file_holds(path,
                           "rank,dp_rank,pp_rank,tp_rank,stage,instruction,frequency,time,energy\n"
                           "0,0,0,0,0,forward,1410,0.1,20.5\n"
                           "0,0,0,0,0,forward,1200,0.125,15\n"
                           "0,0,0,0,0,forward,210,0.3333333333333333,9\n"
                           "0,0,0,0,0,backward,1410,0.1,20.5\n"
                           "0,0,0,0,0,backward,1200,0.125,15\n"
                           "0,0,0,0,0,backward,210,0.3333333333333333,9\n"));
    OWNED(harpe_profile) profile = NULL;
    assert_works(harpe_profile_read_csv(path, &profile, &failure));
    assert_int_equal(harpe_profile_find(profile, 0, "backward")->point_count, 3);
}

SCRATCH_TEST(a_csv_needs_a_time_and_an_energy_of_each_frequency) {
    static const harpe_frequency_value twice[] = {{1410, 1}, {1410, 2}};
    const harpe_offline_profiling_result bad[] = {
        {5, 0, 0, 0, times, energies, NULL, NULL, 3, 2, 0, 0},
        {5, 0, 0, 0, NULL, energies, NULL, NULL, 0, 1, 0, 0},
        {5, 0, 0, 0, times, NULL, NULL, NULL, 1, 0, 0, 0},
        {5, 0, 0, 0, twice, twice, NULL, NULL, 2, 2, 0, 0},
        {5, 0, 0, 0, NULL, NULL, times, energies, 0, 0, 1, 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *path = scratch_path(s, "bad.csv");
        assert_refuses(harpe_offline_profiling_results_write_csv(path, &bad[i], 1, &failure),
                       HARPE_INVALID_INPUT, "rank 5: ");
        assert_false(path_exists(path));
    }
    assert_int_equal(
        harpe_offline_profiling_results_write_csv(scratch_path(s, "profile.txt"), NULL, 0, NULL),
        HARPE_INVALID_ARGUMENT);
}
