/* SPDX-License-Identifier: Apache-2.0 */
/* The number of microbatches that Perseus counts in the reports of ranks whose iterations differ.
 */
#include "test.h"

#include "server/simulated_pipeline.h"

enum { ITERATIONS_MAX = 16, RUNS_MAX = 64 };

typedef struct reported_rank {
    size_t forwards[ITERATIONS_MAX], backwards[ITERATIONS_MAX], offsets[ITERATIONS_MAX];
    double values[RUNS_MAX], iterations[ITERATIONS_MAX];
    harpe_breakdown breakdowns[2];
} reported_rank;

/* "9/9 8/8 7": forwards and backwards of each iteration; without "/": only forwards. */
static harpe_profiling_result report(const char *text, int rank, reported_rank *out) {
    size_t count = 0;
    bool has_backwards = strchr(text, '/') != NULL;
    for (char *end; *text; text = *end ? end + 1 : end) {
        assert_true(count < ITERATIONS_MAX);
        out->forwards[count] = strtoul(text, &end, 10);
        if (*end == '/') out->backwards[count] = strtoul(end + 1, &end, 10);
        assert_true(*end == ' ' || *end == '\0');
        count++;
    }
    for (int i = 0; i < RUNS_MAX; i++)
        out->values[i] = 0.1;
    for (int i = 0; i < ITERATIONS_MAX; i++)
        out->iterations[i] = 2;
    out->breakdowns[0] =
        (harpe_breakdown){"forward", count, out->forwards, out->offsets, out->values};
    out->breakdowns[1] =
        (harpe_breakdown){"backward", count, out->backwards, out->offsets, out->values};
    size_t breakdowns = count == 0 ? 0 : has_backwards ? 2 : 1;
    return (harpe_profiling_result){rank,      out->iterations, count,      out->iterations,
                                    count,     out->breakdowns, breakdowns, out->breakdowns,
                                    breakdowns};
}

/* Runs one round in which the ranks report this. */
static harpe_status round_of(simulated_pipeline *s, const char *const *ranks) {
    reported_rank reported[SIMULATED_RANKS_MAX] = {0};
    next(s);
    for (int r = 0; r < s->job.world_size; r++)
        s->results[r] = report(ranks[r], r, &reported[r]);
    return observe(s);
}

/* Returns the microbatches of the next schedule, or 0 if the ranks are asked again. */
static size_t counted(const char *args, int pp, int dp, const char *const *ranks) {
    simulated_pipeline *s = simulate(pp, dp, 1, 8, NULL);
    start(s, "Perseus", args);
    must(s, round_of(s, ranks));
    next(s);
    size_t runs = s->schedules[0].instruction_count;
    for (int r = 1; r < s->job.world_size; r++)
        assert_int_equal(s->schedules[r].instruction_count, runs);
    simulated_free(s);
    return runs / 2;
}

#define COUNTED(pp, dp, ...) counted("{}", pp, dp, (const char *[]){__VA_ARGS__})

TEST(a_first_iteration_with_one_more_does_not_count) {
    assert_int_equal(COUNTED(2, 1, "9/9 8/8 8/8", "9/9 8/8 8/8"), 8);
    assert_int_equal(COUNTED(2, 1, "9/8 8/8 8/8 8/8 8/8", "9/8 8/8 8/8 8/8 8/8"), 8);
    assert_int_equal(COUNTED(1, 1, "13/13 12/12 12/12"), 12);
    assert_int_equal(COUNTED(1, 1, "1/1 2/2 2/2"), 2);
    assert_int_equal(COUNTED(1, 1, "9 8 8"), 8);
}

TEST(ranks_that_measured_other_iterations_agree_by_their_majority) {
    assert_int_equal(COUNTED(2, 1, "9/9 8/8 8/8", "8/8 8/8 8/8"), 8);
    assert_int_equal(COUNTED(2, 2, "9/9 8/8", "8/8 8/8", "8/8 8/8", "9/9 8/8"), 8);
    assert_int_equal(COUNTED(4, 1, "8/8", "8/8", "9/9", "8/8"), 8);
    assert_int_equal(COUNTED(4, 1, "9/9", "8/8", "8/8", "8/8"), 8);
    assert_int_equal(COUNTED(2, 1, "7/7", "7/7 7/7 7/7 7/7"), 7);
}

TEST(a_single_iteration_is_what_there_is) {
    assert_int_equal(COUNTED(2, 1, "6/6", "6/6"), 6);
    assert_int_equal(COUNTED(1, 1, "1/1"), 1);
}

TEST(evaluation_and_empty_iterations_do_not_count) {
    assert_int_equal(COUNTED(2, 1, "8/8 4/0 4/0 4/0 8/8", "8/8 4/0 4/0 4/0 8/8"), 8);
    assert_int_equal(COUNTED(2, 1, "20/0 20/0 9/9 8/8 8/8", "20/0 20/0 20/0 20/0 8/8"), 8);
    assert_int_equal(COUNTED(2, 1, "0/0 0/0 0/0 8/8", "0/0 8/8"), 8);
    assert_int_equal(COUNTED(1, 1, "4 4 8"), 4); /* without a backward the number is unknown */
}

TEST(of_as_many_the_latest_iterations_count) {
    assert_int_equal(COUNTED(2, 1, "9/9 8/8", "9/9 8/8"), 8);
    assert_int_equal(COUNTED(2, 1, "8/8 9/9", "8/8 9/9"), 9);
    assert_int_equal(COUNTED(1, 1, "8/8 8/8 9/9 9/9"), 9);
    assert_int_equal(COUNTED(1, 1, "9/9 8/8 9/9 8/8"), 8);
    assert_int_equal(COUNTED(1, 1, "3/3 5/5 4/4"), 4);
}

TEST(what_no_schedule_has_does_not_count) {
    const char *args = "{\"schedule\": \"interleaved-1f1b\"}"; /* 2 chunks a rank */
    assert_int_equal(counted(args, 2, 1, (const char *[]){"9/9 9/9 8/8", "9/9 9/9 8/8"}), 8);
}

SIMULATED_TEST(ranks_that_cannot_agree_are_asked_again, 2, 1, 1, 8) {
    start(s, "Perseus", "{}");
    must(s, round_of(s, (const char *[]){"9/9", "8/8"}));
    next(s);
    assert_int_equal(s->schedules[0].instruction_count, 0);
    must(s, round_of(s, (const char *[]){"8/8", "8/8"}));
    next(s);
    assert_int_equal(s->schedules[0].instruction_count, 16);
}

TEST(ranks_that_never_agree_or_never_report_fail_the_job) {
    const char *const never[][2] = {{"9/9", "8/8"}, {"8/8", ""}, {"", "8/8"}, {"", ""}};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        simulated_pipeline *s = simulate(2, 1, 1, 8, NULL);
        start(s, "Perseus", "{}");
        must(s, round_of(s, never[i]));
        must(s, round_of(s, never[i]));
        assert_int_equal(round_of(s, never[i]), HARPE_INVALID_INPUT);
        assert_non_null(strstr(s->error.message, "num_microbatches"));
        simulated_free(s);
    }
}

/* ---- Numbers that the job gives -------------------------------------------------------------- */

TEST(the_jobs_metadata_may_tell_the_microbatches) {
    const struct {
        const char *metadata, *args;
        size_t microbatches; /* of the first schedule; 0: microbatches are counted */
    } cases[] = {
        {"num_microbatches=4", "{}", 4},
        {"llama num_microbatches=3", "{}", 3},
        {"a=b,num_microbatches=6;c", "{}", 6},
        {"a+num_microbatches=6+b", "{}", 6},
        {"num_microbatches=4", "{\"num_microbatches\": 8}", 4},
        {"num_microbatches=x num_microbatches=5", "{}", 5},
        {"", "{\"num_microbatches\": 8}", 8},
        {NULL, "{}", 0},
        {"", "{}", 0},
        {"num_microbatches", "{}", 0},
        {"num_microbatches=", "{}", 0},
        {"num_microbatches=0", "{}", 0},
        {"num_microbatches=-4", "{}", 0},
        {"num_microbatches=4.5", "{}", 0},
        {"num_microbatches=4x", "{}", 0},
        {"num_microbatches=1000001", "{}", 0},
        {"num_microbatches=99999999999999999999", "{}", 0},
        {"xnum_microbatches=4", "{}", 0},
        {" ,;+", "{}", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        simulated_pipeline *s = simulate(2, 1, 1, 8, NULL);
        s->job.job_metadata = cases[i].metadata;
        start(s, "Perseus", cases[i].args);
        next(s);
        assert_int_equal(s->schedules[1].instruction_count, 2 * cases[i].microbatches);
        simulated_free(s);
    }
}
