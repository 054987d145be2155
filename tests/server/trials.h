/* SPDX-License-Identifier: Apache-2.0 */
/* How many trials a test makes. HARPE_TEST_SCALE multiplies them. */
#ifndef HARPE_TESTS_SERVER_TRIALS_H
#define HARPE_TESTS_SERVER_TRIALS_H

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TRIALS_ARE_SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TRIALS_ARE_SLOW 1
#endif
#endif
#ifndef TRIALS_ARE_SLOW
#define TRIALS_ARE_SLOW 0
#endif

/* Returns HARPE_TEST_SCALE, or 1. */
static inline int trial_scale(void) {
    const char *text = getenv("HARPE_TEST_SCALE");
    int scale = text ? atoi(text) : 1;
    return scale > 0 ? scale : 1;
}

/* Returns the number of trials of a test that usually makes `usual`. A sanitizer looks for errors
 * of memory and threads, not for rare values, and makes a trial some ten times slower. Two trials
 * are enough, because tests choose variants by the trial's number. */
static inline int trials(int usual) {
    return (TRIALS_ARE_SLOW && usual > 2 ? 2 : usual) * trial_scale();
}

#endif
