/* SPDX-License-Identifier: Apache-2.0 */
/* What every test in C needs: cmocka with the headers that it needs and the usual ones, how to skip
 * a test, and how many trials a test makes. */
#ifndef HARPE_TESTS_TEST_H
#define HARPE_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Skips a test and says why. The reason is a format and its arguments. It begins with what the test
 * lacks: data:      measured data hardware:  a GPU, a driver, or a feature of the kernel root:
 * root, or a user who is not root missing:   a program or a library that could be installed */
#define skip_because(...) \
    do { \
        print_message("skipped: " __VA_ARGS__); \
        print_message("\n"); \
        skip(); \
    } while (0)

/* ---- Trials ---------------------------------------------------------------------------------- */

/* A test of ./check may need 2 s of a processor, so a test whose trials take long makes a few of
 * them. If the environment has HARPE_TEST_SCALE=1, every test makes all its trials; with
 * HARPE_TEST_SCALE=20, it makes twenty times as many. */

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
