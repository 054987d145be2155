/* SPDX-License-Identifier: Apache-2.0 */
/* At which clocks instructions ran, if a stage has several ranks whose reports agree or differ. */
#include "test.h"

#include <math.h>

#include "server/scheduler/perseus/online_internal.h"

enum { STAGES = 2, MICROBATCHES = 2, RUNS = 2 * MICROBATCHES, RANKS_MAX = 6, ASKED = 1200 };

/* A pipeline whose stages have the same number of ranks, as with tensor parallelism. All
 * instructions have the clock ASKED in the schedule. */
typedef struct world {
    harpe_online_pipeline *pipeline;
    size_t count;
    harpe_rank_info ranks[RANKS_MAX];
    harpe_rank_clocks clocks[RANKS_MAX];
    harpe_run_clocks runs[RANKS_MAX][RUNS];
    int asked_mhz[STAGES * RUNS], ran_mhz[STAGES * RUNS];
} world;

/* All ranks report that they ran as asked. */
static void begin(world *w, size_t ranks_of_stage) {
    const harpe_online_schedule schedule = {.name = "1f1b"};
    *w = (world){.count = STAGES * ranks_of_stage};
    assert_int_equal(harpe_online_pipeline_new(&schedule, STAGES, MICROBATCHES, &w->pipeline, NULL),
                     HARPE_OK);
    assert_int_equal(w->pipeline->instruction_count, STAGES * RUNS);
    for (int i = 0; i < STAGES * RUNS; i++)
        w->asked_mhz[i] = ASKED;
    for (size_t r = 0; r < w->count; r++) {
        w->ranks[r] = (harpe_rank_info){.rank = (int)r, .pp_rank = (int)(r / ranks_of_stage)};
        w->clocks[r] = (harpe_rank_clocks){.is_known = true, .run_count = RUNS, .runs = w->runs[r]};
    }
}

static void end(world *w) { harpe_online_pipeline_free(w->pipeline); }

/* Sets the clocks of a rank's run: `share` of its time at one clock, and the rest at another. */
static void tell(world *w, size_t rank, size_t run, int mhz, double share, int other_mhz) {
    harpe_run_clocks *told = &w->runs[rank][run];
    *told = (harpe_run_clocks){.count = 1, .parts = {{mhz, share}}};
    if (share < 1) told->parts[told->count++] = (harpe_clock_part){other_mhz, 1 - share};
}

static harpe_online_reports reports_of(const world *w) {
    return (harpe_online_reports){w->ranks, NULL, w->clocks, w->count, 0};
}

static void find_with(world *w, harpe_online_reports reports, double share_min) {
    memset(w->ran_mhz, 0xFF, sizeof w->ran_mhz);
    harpe_find_real_clocks(w->pipeline, &reports, w->asked_mhz, share_min, w->ran_mhz);
}

static void find(world *w) { find_with(w, reports_of(w), HARPE_MAIN_SHARE_MIN); }

static const harpe_run_clocks *of_run(const world *w, size_t instruction) {
    harpe_online_reports reports = reports_of(w);
    return harpe_real_clocks_of_run(w->pipeline, &reports, w->ran_mhz[instruction]);
}

static double share_of(const harpe_run_clocks *run, int mhz) {
    double share = 0;
    for (int i = 0; run && i < run->count; i++)
        if (run->parts[i].mhz == mhz) share += run->parts[i].share;
    return share;
}

TEST(runs_without_a_report_ran_as_asked) {
    world w;
    begin(&w, 2);
    find(&w);
    w.clocks[1] = (harpe_rank_clocks){0};
    find(&w);
    for (int i = 0; i < STAGES * RUNS; i++) {
        assert_int_equal(w.ran_mhz[i], ASKED);
        assert_null(of_run(&w, (size_t)i));
    }
    find_with(&w, (harpe_online_reports){w.ranks, NULL, NULL, w.count, 0}, HARPE_MAIN_SHARE_MIN);
    for (int i = 0; i < STAGES * RUNS; i++)
        assert_int_equal(w.ran_mhz[i], ASKED);
    end(&w);
}

/* One rank had the clock that was asked for, and the other one did not. */
TEST(ranks_that_differ_say_nothing) {
    for (size_t which = 0; which < 2; which++) {
        for (int is_as_asked = 0; is_as_asked < 2; is_as_asked++) {
            world w;
            begin(&w, 2);
            if (!is_as_asked) tell(&w, which, 1, ASKED, 0.985, 1410);
            tell(&w, 1 - which, 1, 1410, 1, 0);
            tell(&w, 2 + which, 2, ASKED, 0.96, 1410);
            tell(&w, 3 - which, 2, ASKED, 0.91, 1410);
            find(&w);
            for (int i = 0; i < STAGES * RUNS; i++)
                assert_int_equal(w.ran_mhz[i], i == 1 || i == RUNS + 2 ? 0 : ASKED);
            assert_null(of_run(&w, 1));
            end(&w);
        }
    }
}

/* The times of a stage are those of its slowest rank, so the lowest clocks count. */
TEST(ranks_that_agree_have_the_lowest_clocks) {
    static const double shares[] = {0.95, 0.962, 0.94};
    static const int orders[][3] = {{0, 1, 2}, {1, 0, 2}, {2, 0, 1}, {0, 2, 1}};
    for (size_t o = 0; o < sizeof orders / sizeof orders[0]; o++) {
        world w;
        begin(&w, 3);
        for (size_t k = 0; k < 3; k++) {
            tell(&w, k, 0, ASKED, shares[orders[o][k]], 1410);
            tell(&w, k, 3, 1410, shares[orders[o][k]], ASKED);
            tell(&w, 3 + k, 1, ASKED, shares[orders[o][k]] + 0.03, 1410);
        }
        find(&w);
        assert_true(w.ran_mhz[0] < 0 && w.ran_mhz[3] < 0 && w.ran_mhz[0] != w.ran_mhz[3]);
        assert_int_equal(w.ran_mhz[RUNS + 1], ASKED);
        assert_true(fabs(share_of(of_run(&w, 0), ASKED) - 0.962) < 1e-9);
        assert_true(fabs(share_of(of_run(&w, 3), 1410) - 0.94) < 1e-9);
        end(&w);
    }
}

/* The same, if a rank reports nothing for a run, because it ran as asked. */
TEST(a_rank_that_ran_as_asked_counts) {
    for (size_t which = 0; which < 2; which++) {
        world w;
        begin(&w, 2);
        tell(&w, which, 0, ASKED, 0.979, 1410); /* the other one was slower */
        tell(&w, which, 1, ASKED, 0.979, 1005); /* this one was slower */
        tell(&w, which, 2, ASKED, 0.96, 1410);
        w.runs[2 + which][3].count = -1;
        find(&w);
        assert_int_equal(w.ran_mhz[0], ASKED);
        assert_true(w.ran_mhz[1] < 0);
        assert_ptr_equal(of_run(&w, 1), &w.runs[which][1]);
        assert_int_equal(w.ran_mhz[2], 0);
        assert_int_equal(w.ran_mhz[RUNS + 3], 0);
        end(&w);
    }
}

TEST(a_report_of_another_schedule_says_nothing) {
    world w;
    begin(&w, 2);
    w.clocks[3].run_count = RUNS - 1;
    find(&w);
    for (int i = 0; i < STAGES * RUNS; i++)
        assert_int_equal(w.ran_mhz[i], i < RUNS ? ASKED : 0);
    end(&w);
}

/* Clocks that are as close as those of a V100 are different clocks. */
TEST(a_clock_nearby_is_another_clock) {
    world w;
    begin(&w, 1);
    tell(&w, 0, 0, ASKED - 7, 1, 0);
    tell(&w, 0, 1, ASKED, 0.95, ASKED + 7);
    find(&w);
    assert_true(w.ran_mhz[0] < 0 && w.ran_mhz[1] < 0);
    assert_true(share_of(of_run(&w, 0), ASKED - 7) == 1);
    assert_true(share_of(of_run(&w, 1), ASKED) == 0.95);
    end(&w);
}

/* The explorer learns nothing from such a run; drift can be computed from it. */
TEST(a_run_without_a_main_clock_is_only_one_of_all) {
    static const double shares[] = {0.98, 0.901, 0.899, 0.5};
    world w;
    begin(&w, 2);
    for (size_t i = 0; i < RUNS; i++)
        for (size_t r = 0; r < w.count; r++)
            tell(&w, r, i, r < 2 ? ASKED : 1410, shares[i], 1005);
    find(&w);
    for (int i = 0; i < STAGES * RUNS; i++)
        assert_int_equal(w.ran_mhz[i], i == 0 ? ASKED : i % RUNS < 2 ? -i - 1 : 0);
    find_with(&w, reports_of(&w), 0);
    for (int i = 0; i < STAGES * RUNS; i++)
        assert_int_equal(w.ran_mhz[i], i == 0 ? ASKED : -i - 1);
    end(&w);
}

/* The runs of an entry at one clock are read together, and a run at several clocks by itself. */
TEST(every_run_is_read_once) {
    enum { ITERATIONS = 3 };
    static const char *const names[] = {"forward", "backward"};
    static const size_t counts[] = {2, 2, 2}, offsets[] = {0, 2, 4};
    double times[2][2 * ITERATIONS], energies[2][2 * ITERATIONS];
    harpe_breakdown lists[4];
    harpe_profiling_result results[STAGES];
    harpe_online_clock_runs *runs;
    size_t listed;
    world w;
    begin(&w, 1);
    for (int n = 0; n < 2; n++) {
        for (int i = 0; i < 2 * ITERATIONS; i++) {
            times[n][i] = 1 + n + 0.1 * (i % 2);
            energies[n][i] = 100 * times[n][i];
        }
        lists[n] = (harpe_breakdown){names[n], ITERATIONS, counts, offsets, times[n]};
        lists[2 + n] = (harpe_breakdown){names[n], ITERATIONS, counts, offsets, energies[n]};
    }
    for (int r = 0; r < STAGES; r++)
        results[r] = (harpe_profiling_result){r, NULL, 0, NULL, 0, lists, 2, lists + 2, 2};
    /* Stage 0 runs forward, forward, backward, backward; stage 1 alternates. */
    const int mhz[] = {ASKED, ASKED, 0, -4, -5, ASKED, -7, ASKED};
    const harpe_online_reports reports = {w.ranks, results, NULL, w.count, 0};
    assert_int_equal(
        harpe_online_round_read_clocks(w.pipeline, &reports, mhz, &runs, &listed, NULL), HARPE_OK);
    static const struct {
        int mhz;
        double time_s;
    } wanted[] = {{ASKED, 1.05}, {-4, 2.1}, {ASKED, 2.05}, {-5, 1}, {-7, 1.1}};
    assert_int_equal(listed, sizeof wanted / sizeof wanted[0]);
    for (size_t k = 0; k < listed; k++) {
        assert_int_equal(runs[k].frequency_mhz, wanted[k].mhz);
        assert_true(fabs(runs[k].mean.time_s - wanted[k].time_s) < 1e-9);
        assert_true(fabs(runs[k].mean.energy_j - 100 * wanted[k].time_s) < 1e-9);
        assert_int_equal(runs[k].run_count, wanted[k].mhz > 0 ? 2 : 1);
        assert_int_equal(runs[k].iteration_count, ITERATIONS);
    }
    free(runs);
    end(&w);
}

int main(void) { return run_listed_tests(); }
