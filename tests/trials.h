/* SPDX-License-Identifier: Apache-2.0 */
/* How many trials a test makes. A test of ./check may need 2 s of a processor, so a test whose
 * trials take long makes a few of them. If the environment has HARPE_TEST_SCALE=1, every test makes
 * all its trials; with HARPE_TEST_SCALE=20, it makes twenty times as many. */
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

/* Returns true if every test makes all its trials. Only then do tests check a mean or a share,
 * which need many trials, and large instances, which take long. */
static inline bool all_trials(void) { return trial_scale() > 0; }

/* Returns the number of trials of a test whose trials are short: `all`, times HARPE_TEST_SCALE. */
static inline int test_trials(int all) { return all_trials() ? all * trial_scale() : all; }

/* Returns the number of trials of a test whose trials are long: usually a tenth of `all`. A test
 * chooses its variants by the number of the trial, so the result is at least the square root. */
static inline int few_trials(int all) {
    int few = all / 10;
    if (all_trials()) return test_trials(all);
    while (few * few < all)
        few++;
    return few;
}

#endif
