/* SPDX-License-Identifier: Apache-2.0 */
/* Results that cannot be created because memory is short (the linker wraps the profiler, which
 * refuses on demand), or because a round requests more steps than the profiler stores. The log
 * reports this once, the rank reports the data that it has, and the job's round goes on, on a real
 * server. */
#include "client/profiler_internal.h"
#include "client/training_world.h"

#define NO_RESULT "a result cannot be made"
#define NOTHING "reports that it has no result"

/* ---- A profiler that refuses ----------------------------------------------------------------- */

harpe_status __real_harpe_instruction_profiler_take(harpe_instruction_profiler *profiler,
                                                    int64_t series, size_t steps, int rank,
                                                    harpe_profiling_result *out,
                                                    harpe_error *error);
harpe_status __wrap_harpe_instruction_profiler_take(harpe_instruction_profiler *profiler,
                                                    int64_t series, size_t steps, int rank,
                                                    harpe_profiling_result *out,
                                                    harpe_error *error);

static atomic_size_t most_steps; /* rank 0 has no memory for more */
static atomic_int refused;
static atomic_size_t taken;           /* steps of the last result */
static _Atomic int64_t refused_ns[5]; /* times of the first refusals */

harpe_status __wrap_harpe_instruction_profiler_take(harpe_instruction_profiler *profiler,
                                                    int64_t series, size_t steps, int rank,
                                                    harpe_profiling_result *out,
                                                    harpe_error *error) {
    if (rank == 0 && steps > atomic_load(&most_steps)) {
        int before = atomic_load(&refused);
        if (before < 5) atomic_store(&refused_ns[before], harpe_clock_ns());
        atomic_fetch_add(&refused, 1);
        if (error) snprintf(error->message, sizeof error->message, "out of memory");
        return HARPE_OUT_OF_MEMORY;
    }
    harpe_status status =
        __real_harpe_instruction_profiler_take(profiler, series, steps, rank, out, error);
    if (status == HARPE_OK && rank == 0) atomic_store(&taken, steps);
    return status;
}

static void refuse_above(size_t steps) {
    atomic_store(&refused, 0);
    atomic_store(&taken, 0);
    atomic_store(&most_steps, steps);
}

/* ---- Trainings ------------------------------------------------------------------------------- */

static training *start_with(const char *url, int rank, int ranks, int iterations,
                            const harpe_pipeline_timeouts *timeouts) {
    training *one = new_training(url, rank, ranks);
    one->options.iterations = iterations;
    construct_with(one, timeouts);
    one->thread = start_thread(train, one);
    return one;
}

WORLD_TEST(a_result_that_is_too_large_for_memory_is_sent_with_fewer_steps) {
    harpe_pipeline_timeouts timeouts = short_pauses();
    timeouts.report_s = 1000;
    server *one = start_server(files, 2);
    refuse_above(2);
    training *ranks[] = {start_with(one->url, 0, 2, 8, &timeouts),
                         start_with(one->url, 1, 2, 8, &timeouts)};
    assert_reaches_round(ranks[0], 1);
    assert_reaches_round(ranks[1], 1);
    assert_true(atomic_load(&refused) >= 2); /* of 8 and of 4 steps */
    assert_int_equal(atomic_load(&taken), 2);
    assert_true(count_lines(ranks[0], NO_RESULT) >= 1);
    assert_true(count_lines(ranks[0], NO_RESULT) <= look(ranks[0]).round + 1);
    assert_int_equal(count_lines(ranks[0], NOTHING), 0);
    assert_int_equal(count_warnings(ranks[1]), 0);
    end_training(ranks[0]);
    end_training(ranks[1]);
}

WORLD_TEST(a_result_that_cannot_be_made_at_all_does_not_hold_the_round) {
    harpe_pipeline_timeouts timeouts = short_pauses();
    timeouts.report_s = 0.3;
    server *one = start_server(files, 2);
    refuse_above(0);
    training *ranks[] = {start_with(one->url, 0, 2, 2, &timeouts),
                         start_with(one->url, 1, 2, 2, &timeouts)};
    assert_reaches_round(ranks[1], 1);
    assert_true(count_lines(ranks[0], NO_RESULT) >= 1);
    assert_true(count_lines(ranks[0], NOTHING) >= 1);
    assert_int_equal(count_warnings(ranks[1]), 0);
    refuse_above(SIZE_MAX); /* memory is available again */
    int64_t round = look(ranks[0]).round;
    assert_reaches_round(ranks[0], round + 2);
    int lines = count_warnings(ranks[0]);
    assert_reaches_round(ranks[0], look(ranks[0]).round + 2);
    assert_int_equal(count_warnings(ranks[0]), lines);
    end_training(ranks[0]);
    end_training(ranks[1]);
}

WORLD_TEST(it_is_tried_again_with_pauses_that_grow) {
    harpe_pipeline_timeouts timeouts = short_pauses();
    timeouts.report_s = 1000;
    server *one = start_server(files, 1);
    refuse_above(0);
    timeouts.first_pause_s = 0.04;
    timeouts.longest_pause_s = 0.16;
    training *rank = start_with(one->url, 0, 1, 2, &timeouts);
    WAIT_UNTIL(rank, atomic_load(&refused) >= 5);
    static const double pauses_s[] = {0.04, 0.08, 0.16, 0.16}; /* at least the half of each */
    for (int i = 0; i < 4; i++) {
        int64_t pause_ns = atomic_load(&refused_ns[i + 1]) - atomic_load(&refused_ns[i]);
        assert_true((double)pause_ns >= pauses_s[i] / 2 * 1e9);
    }
    assert_int_equal(count_lines(rank, NO_RESULT), 1);
    assert_trains_on(rank);
    end_training(rank); /* and ends at once */
}

/* ---- More steps than are kept ---------------------------------------------------------------- */

enum { LONG_STEP = 40, KEPT_STEPS = 250 };

static void *train_without_pause(void *user) {
    training *one = user;
    while (!atomic_load(&one->is_over)) {
        harpe_pipeline_frequency_on_step_begin(one->optimizer);
        for (int i = 0; i < LONG_STEP; i++) {
            harpe_pipeline_frequency_on_instruction_begin(one->optimizer, "forward");
            harpe_pipeline_frequency_on_instruction_end(one->optimizer, "forward");
        }
        harpe_pipeline_frequency_on_step_end(one->optimizer);
        pause_s(0.001);
    }
    return NULL;
}

WORLD_TEST(a_round_of_more_steps_than_are_kept_reports_those_that_are) {
    char plan[LONG_STEP * 20 + 10] = "[[";
    for (int i = 0; i < LONG_STEP; i++)
        strcat(plan, "('forward', 1410),");
    put_file(scratch_path(files, "plan.py"), strcat(plan, "]]\n"));
    server *one = start_server_with(files, NULL);
    refuse_above(SIZE_MAX);
    training *rank = new_training(one->url, 0, 1);
    rank->options.iterations = 100000;
    construct(rank);
    harpe_instruction_profiler *profiler = rank->optimizer->profiler;
    assert_int_equal(profiler->kept_spans_max, 1000000);
    profiler->kept_spans_max = (size_t)KEPT_STEPS * LONG_STEP;
    rank->thread = start_thread(train_without_pause, rank);
    assert_reaches_round(rank, 1);
    assert_in_range(atomic_load(&taken), 50, KEPT_STEPS + 10);
    assert_int_equal(count_lines(rank, "fewer steps than iterations asks for"), 1);
    end_training(rank);
}
