/* SPDX-License-Identifier: Apache-2.0 */
/* What readings of a meter mean: work, a pause, a counter that restarted, nonsense. */
#include "test.h"

#include <math.h>

#include "tune/tune_internal.h"

/* A program that finishes a unit every 0.5 s. */
static harpe_work_count running(int units) {
    harpe_work_count count = {.is_known = false};
    for (int i = 0; i <= units; i++)
        (void)harpe_work_count_take(&count, 100 + i, 0.5 * i);
    return count;
}

TEST(work_is_counted_from_the_first_reading) {
    harpe_work_count count = {.is_known = false};
    assert_int_equal(harpe_work_count_take(&count, NAN, 1), HARPE_WORK_SAME);
    assert_int_equal(harpe_work_count_take(&count, 100, 2), HARPE_WORK_SAME);
    assert_int_equal(harpe_work_count_take(&count, 100, 3), HARPE_WORK_SAME);
    assert_int_equal(harpe_work_count_take(&count, 103, 4), HARPE_WORK_ROSE);
    assert_int_equal(harpe_work_count_take(&count, NAN, 5), HARPE_WORK_SAME);
    assert_true(count.total == 3 && count.changed_s == 4);
}

TEST(a_counter_that_runs_back_is_lost) {
    harpe_work_count count = running(20);
    assert_int_equal(harpe_work_count_take(&count, 0, 10.5), HARPE_WORK_LOST);
    assert_int_equal(harpe_work_count_take(&count, 1, 11), HARPE_WORK_ROSE);
    assert_true(count.total == 21);
}

TEST(a_jump_is_lost_but_a_faster_program_is_not) {
    harpe_work_count count = running(20);
    assert_int_equal(harpe_work_count_take(&count, 130, 10.5), HARPE_WORK_ROSE);
    assert_int_equal(harpe_work_count_take(&count, 1e12, 11), HARPE_WORK_LOST);
    assert_true(count.total == 30);
}

TEST(a_pause_stands_and_a_slow_step_does_not) {
    harpe_work_count few = running(4), many = running(20);
    assert_false(harpe_work_count_stands(&few, 1000));
    assert_false(harpe_work_count_stands(&many, 11.5));
    assert_true(harpe_work_count_stands(&many, 12.5));
    /* One long pause does not become usual. */
    (void)harpe_work_count_take(&many, 121, 1000);
    assert_true(harpe_work_count_stands(&many, 1005));
}
