/* SPDX-License-Identifier: Apache-2.0 */
/* Latencies that ranks report: to which clock a latency belongs, which latency counts for a clock
 * that was not measured, and how the state is stored. */
#include "test.h"

#include <math.h>

#include "server/scheduler/perseus/online_internal.h"

enum { STAGES = 2, CLOCKS_MAX = 8 };

/* Two stages with a GPU each. */
static harpe_online_latencies *make(const int *mhz, size_t count, const int *other_mhz,
                                    size_t other_count) {
    int lists[STAGES][CLOCKS_MAX];
    for (size_t i = 0; i < count; i++)
        lists[0][i] = mhz[i];
    for (size_t i = 0; i < other_count; i++)
        lists[1][i] = other_mhz[i];
    harpe_tried_clocks clocks[STAGES] = {{lists[0], count}, {lists[1], other_count}};
    harpe_online_latencies *made = harpe_online_latencies_new(clocks, STAGES);
    assert_non_null(made);
    return made;
}

/* Makes the rank of a stage report the latencies `p95_s`. The medians are half of them. */
static void take(harpe_online_latencies *self, int stage, const int *mhz, const double *p95_s,
                 size_t count) {
    harpe_clock_latency told[CLOCKS_MAX];
    harpe_rank_info rank = {.rank = stage, .pp_rank = stage};
    for (size_t i = 0; i < count; i++)
        told[i] = (harpe_clock_latency){mhz[i], 0.5 * p95_s[i], p95_s[i]};
    harpe_rank_clocks clocks = {.is_known = true, .latency_count = count, .latencies = told};
    harpe_online_latencies_take(self, &rank, &clocks, 1);
}

static void assert_planned(const harpe_online_latencies *self, int stage, int mhz, double p95_s) {
    double planned_s = harpe_online_latencies_planned_s(self, stage, mhz);
    if (fabs(planned_s - p95_s) > 1e-12)
        fail_msg("%d MHz of stage %d: %g s instead of %g s", mhz, stage, planned_s, p95_s);
}

/* Saves the state of `from` and loads it into `into`. Returns false if `into` refuses it. */
static bool load_saved(harpe_online_latencies *into, const harpe_online_latencies *from) {
    json_t *saved = harpe_online_latencies_save(from);
    assert_non_null(saved);
    bool is_loaded = harpe_online_latencies_load(into, saved);
    json_decref(saved);
    return is_loaded;
}

static const int NEAR_MHZ[] = {1530, 1522, 1515, 1507, 1500}; /* as a V100 has them */
static const double NEAR_S[] = {0.1, 0.2, 0.3, 0.4, 0.5};

static const int REVERSED_MHZ[] = {1500, 1507, 1515, 1522, 1530};
static const double REVERSED_S[] = {0.5, 0.4, 0.3, 0.2, 0.1};

static void take_near(harpe_online_latencies *self, bool is_reversed) {
    take(self, 0, is_reversed ? REVERSED_MHZ : NEAR_MHZ, is_reversed ? REVERSED_S : NEAR_S, 5);
}

TEST(clocks_that_are_close_keep_their_own_latencies) {
    for (int is_reversed = 0; is_reversed < 2; is_reversed++) {
        harpe_online_latencies *self = make(NEAR_MHZ, 5, NEAR_MHZ, 5);
        take_near(self, is_reversed == 1);
        harpe_online_latencies *loaded = make(NEAR_MHZ, 5, NEAR_MHZ, 5);
        assert_true(load_saved(loaded, self));
        for (int i = 0; i < 5; i++) {
            assert_planned(self, 0, NEAR_MHZ[i], NEAR_S[i]);
            assert_planned(loaded, 0, NEAR_MHZ[i], NEAR_S[i]);
            assert_planned(loaded, 1, NEAR_MHZ[i], NEAR_S[i]); /* of the other stage */
        }
        harpe_online_latencies_free(self);
        harpe_online_latencies_free(loaded);
    }
}

/* The server tries only some clocks, and a rank reports latencies of all its clocks. For a clock
 * that is tried, the latency of the same clock counts, or else that of the nearest clock. */
TEST(the_nearest_clock_counts) {
    static const int tried_mhz[] = {1530, 1515, 1500}, told_mhz[] = {1519, 1512, 1494};
    static const double told_s[] = {0.1, 0.2, 0.3};
    harpe_online_latencies *self = make(tried_mhz, 3, tried_mhz, 3);
    for (int is_reversed = 0; is_reversed < 2; is_reversed++) {
        take_near(self, is_reversed == 1);
        for (int i = 0; i < 3; i++)
            assert_planned(self, 0, tried_mhz[i], NEAR_S[2 * i]);
    }
    take(self, 0, told_mhz, told_s, 3);
    assert_planned(self, 0, 1530, 0.1); /* as before: 11 MHz are too far */
    assert_planned(self, 0, 1515, 0.2);
    assert_planned(self, 0, 1500, 0.3);
    assert_planned(self, 0, 1513, 0.2);
    assert_planned(self, 0, 1506, 0.3);
    harpe_online_latencies_free(self);
}

/* Loading fails if the saved state is for other clocks, even if these clocks are close to those of
 * the job. */
TEST(a_state_of_other_clocks_is_refused) {
    static const int other_mhz[] = {1530, 1522, 1516, 1507, 1500};
    harpe_online_latencies *self = make(NEAR_MHZ, 5, NEAR_MHZ, 5);
    harpe_online_latencies *other = make(other_mhz, 5, NEAR_MHZ, 5);
    take_near(self, false);
    assert_false(load_saved(other, self));
    assert_false(harpe_online_latencies_load(other, NULL));
    harpe_online_latencies_free(self);
    harpe_online_latencies_free(other);
}

static void assert_same_answers(const harpe_online_latencies *a, const harpe_online_latencies *b,
                                const int *mhz, size_t count) {
    assert_int_equal(harpe_online_latencies_are_late(a), harpe_online_latencies_are_late(b));
    assert_int_equal(harpe_online_latencies_are_unknown(a), harpe_online_latencies_are_unknown(b));
    for (int p = 0; p < STAGES; p++) {
        for (size_t i = 0; i < count; i++) {
            assert_true(harpe_online_latencies_planned_s(a, p, mhz[i]) ==
                        harpe_online_latencies_planned_s(b, p, mhz[i]));
            assert_true(harpe_online_latencies_bound_s(a, p, mhz[i], 0.7) ==
                        harpe_online_latencies_bound_s(b, p, mhz[i], 0.7));
        }
    }
}

/* Newer reports and shorter instructions change the latencies and the clocks that are certain. A
 * state that was saved and loaded gives the same answers as before. */
TEST(answers_follow_the_reports) {
    static const int mhz[] = {1410, 1305, 1200, 1005}, others_mhz[] = {1980, 1305, 1200};
    static const double some_s[] = {0.004, 0.02}, short_s[] = {0.0003, 0.0004};
    harpe_online_latencies *self = make(mhz, 4, others_mhz, 3);
    assert_false(harpe_online_latencies_are_unknown(self) || harpe_online_latencies_are_late(self));
    take(self, 0, mhz, NULL, 0);
    assert_true(harpe_online_latencies_are_unknown(self));
    assert_true(harpe_online_latencies_bound_s(self, 0, 1410, 0.7) == 0.7);
    take(self, 0, mhz + 1, some_s, 2); /* 1305 and 1200 MHz */
    assert_true(!harpe_online_latencies_are_unknown(self) && harpe_online_latencies_are_late(self));
    assert_planned(self, 0, 1305, 0.004);
    assert_planned(self, 1, 1305, 0.004); /* from the other stage */
    assert_planned(self, 1, 1980, 0.02);  /* the longest one */
    assert_true(harpe_online_latencies_bound_s(self, 0, 1305, 0.7) == 1.25 * 0.004);
    assert_true(harpe_online_latencies_bound_s(self, 1, 1305, 0.7) == 1.25 * 0.02);
    assert_true(harpe_online_latencies_bound_s(self, 1, 1980, 0.7) == 0.7);
    harpe_online_latencies_take_time(self, 3); /* 1 % is longer than the medians */
    assert_false(harpe_online_latencies_are_late(self));
    assert_planned(self, 0, 1305, 0);
    harpe_online_latencies_take_time(self, 0);
    harpe_online_latencies_take_time(self, 0.5);
    assert_true(harpe_online_latencies_are_late(self));
    harpe_online_latencies_take_time(self, 2);
    assert_true(harpe_online_latencies_are_late(self));
    harpe_online_latencies *loaded = make(mhz, 4, others_mhz, 3);
    assert_true(load_saved(loaded, self));
    assert_same_answers(self, loaded, mhz, 4);
    take(self, 0, mhz + 1, short_s, 2); /* newer values replace older ones */
    assert_false(harpe_online_latencies_are_late(self));
    assert_true(harpe_online_latencies_bound_s(self, 1, 1305, 0.7) == 1.25 * 0.0004);
    assert_true(load_saved(loaded, self));
    assert_same_answers(self, loaded, mhz, 4);
    harpe_online_latencies_free(self);
    harpe_online_latencies_free(loaded);
}

/* The clock of a rank with one clock never changes, so no latency can become known. */
TEST(latencies_of_single_clocks_are_not_unknown) {
    static const int mhz[] = {1410, 1200};
    for (size_t count = 1; count <= 2; count++) {
        harpe_online_latencies *self = make(mhz, 1, mhz, count);
        take(self, 0, mhz, NULL, 0);
        assert_int_equal(harpe_online_latencies_are_unknown(self), count == 2);
        harpe_online_latencies *loaded = make(mhz, 1, mhz, count);
        assert_true(load_saved(loaded, self));
        assert_same_answers(self, loaded, mhz, count);
        harpe_online_latencies_free(self);
        harpe_online_latencies_free(loaded);
    }
}
