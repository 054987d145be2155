/* SPDX-License-Identifier: Apache-2.0 */
/* How many trials a test makes. A test usually needs at most two seconds: where all trials would
 * take longer, it makes a few of them. HARPE_TEST_SCALE=1 in the environment makes all trials, and
 * HARPE_TEST_SCALE=20 makes twenty times as many. */
#ifndef HARPE_TESTS_TRIALS_H
#define HARPE_TESTS_TRIALS_H

#include <stdbool.h>
#include <stdlib.h>

/* Returns HARPE_TEST_SCALE, or 0 if it is not set. */
static inline int trial_scale(void) {
    const char *text = getenv("HARPE_TEST_SCALE");
    int scale = text ? atoi(text) : 0;
    return scale > 0 ? scale : 0;
}

/* Returns whether a test makes all its trials. What only many trials can show (a mean, a share) and
 * what takes long is tested only then. */
static inline bool all_trials(void) { return trial_scale() > 0; }

/* Returns how many trials a test makes if all of them take a short time. */
static inline int test_trials(int all) { return all_trials() ? all * trial_scale() : all; }

/* The same, if all of them take long: usually a tenth, but at least the square root, because tests
 * with few trials choose variants by the trial's number. */
static inline int few_trials(int all) {
    int few = all / 10;
    if (all_trials()) return test_trials(all);
    while (few * few < all)
        few++;
    return few;
}

#endif
