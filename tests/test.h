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

#include <harpe/status.h>

/* Skips a test and says why. The reason is a format and its arguments. It begins with what the test
 * lacks: data:      measured data hardware:  a GPU, a driver, or a feature of the kernel root:
 * root, or a user who is not root missing:   a program or a library that could be installed */
#define skip_because(...) \
    do { \
        print_message("skipped: " __VA_ARGS__); \
        print_message("\n"); \
        skip(); \
    } while (0)

/* ---- Tests ----------------------------------------------------------------------------------- */

/* `TEST(name) { ... }` is a test. TEST_WITH() calls set_up() before it and tear_down() after it, as
 * cmocka does; NULL: nothing. TEST_ON() gives the test what set_up() has made, as its parameter. */
#define TEST(name) TEST_WITH(name, NULL, NULL)
#define TEST_WITH(name, set_up, tear_down) LISTED_TEST(name, name, set_up, tear_down, NULL)
#define TEST_ON(name, parameter, set_up, tear_down) \
    static void name##_on(parameter); \
    TEST_WITH(name, set_up, tear_down) { name##_on(*state); } \
    static void name##_on(parameter __attribute__((unused)))

/* A test that runs only if every test makes all its trials. */
#define LONG_TEST(name) LISTED_IF(all_trials(), name, name, NULL, NULL, NULL)

/* A test that cmocka runs with run(). Before main(), it is added to the list of the program. */
#define LISTED_TEST(name, run, set_up, tear_down, initial) \
    LISTED_IF(true, name, run, set_up, tear_down, initial)
#define LISTED_IF(is_listed, name, run, set_up, tear_down, initial) \
    static void name(void **state); \
    __attribute__((constructor)) static void list_##name(void) { \
        if (is_listed) \
            listed_tests[listed_count++] = \
                (struct CMUnitTest){#name, run, set_up, tear_down, initial}; \
    } \
    static void name(void **state __attribute__((unused)))

/* The tests of the program, in the order of its source file. main.c defines the list. */
extern struct CMUnitTest listed_tests[100];
extern size_t listed_count;

/* Runs the listed tests, or those that match the pattern $HARPE_TEST_FILTER. Returns the exit
 * status. A program whose tests need nothing else has the main() of main.c, which calls this. */
static inline int run_listed_tests_within(int (*set_up)(void **state),
                                          int (*tear_down)(void **state)) {
    cmocka_set_test_filter(getenv("HARPE_TEST_FILTER"));
    return _cmocka_run_group_tests("tests", listed_tests, listed_count, set_up, tear_down);
}
static inline int run_listed_tests(void) { return run_listed_tests_within(NULL, NULL); }

/* ---- Calls of the library -------------------------------------------------------------------- */

/* Where the calls of the macros below write their error. */
static harpe_error failure __attribute__((unused));

/* Checks that an error is one line that contains `text`. */
static inline void assert_says(const harpe_error *error, const char *text) {
    if (!strstr(error->message, text)) fail_msg("'%s' does not say '%s'", error->message, text);
    assert_null(strchr(error->message, '\n'));
}

/* Fails the test with the library's own message. */
#define assert_ok(call, error) \
    do { \
        harpe_status assert_ok_status = (call); \
        if (assert_ok_status != HARPE_OK) \
            fail_msg("%s: %s", harpe_status_name(assert_ok_status), (error).message); \
    } while (0)

/* Does the same for a call that writes its error into `failure`. */
#define assert_works(call) assert_ok(call, failure)

/* Checks that a call returns `expected`, and that its error, `failure`, contains `text`. */
#define assert_refuses(call, expected, text) \
    do { \
        failure = (harpe_error){.message = ""}; \
        assert_int_equal(call, expected); \
        assert_int_equal(failure.status, expected); \
        assert_says(&failure, text); \
    } while (0)

/* ---- What a test holds ----------------------------------------------------------------------- */

/* `AT_END(clear) name x = ...` calls clear(&x) at the end of the scope of x, also after `continue`
 * or `return`. An assertion that fails leaves the memory to the end of the program.
 *
 * OWNER(harpe_profile) defines the type OWNED(harpe_profile), a pointer that harpe_profile_free()
 * frees in this way. Headers give such types short names, such as owned_profile. */
#define AT_END(function) __attribute__((cleanup(function), unused))
#define OWNED(type) AT_END(type##_owned_end) type *
#define OWNER(type) \
    static inline void type##_owned_end(type **held) { type##_free(*held); }

/* The array of `owned_array double *x = calloc(...)` is freed at the end of the scope, too. */
#define owned_array AT_END(free_array)
static inline void free_array(void *held) {
    void *array;
    memcpy(&array, held, sizeof array);
    free(array);
}

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
