/* SPDX-License-Identifier: Apache-2.0 */
/* How many trials a test makes. Usually it makes a few of them, which takes a second or two.
 * HARPE_TEST_SCALE=1 in the environment makes all of them, and HARPE_TEST_SCALE=20 makes twenty
 * times as many. */
#ifndef HARPE_TESTS_TRIALS_H
#define HARPE_TESTS_TRIALS_H

#include <stdbool.h>
#include <stdlib.h>

/* Returns whether a test makes all its trials. What only many trials can show (a mean, a share) and
 * what takes long is tested only then. */
static inline bool all_trials(void) {
    const char *text = getenv("HARPE_TEST_SCALE");
    return text && atoi(text) > 0;
}

/* Returns how many of `all` trials a test makes: usually a tenth, but at least the square root,
 * because tests with few trials choose variants by the trial's number. */
static inline int test_trials(int all) {
    int few = all / 10;
    if (all_trials()) return all * atoi(getenv("HARPE_TEST_SCALE"));
    while (few * few < all)
        few++;
    return few;
}

#endif
