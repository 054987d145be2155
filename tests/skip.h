/* SPDX-License-Identifier: Apache-2.0 */
/* Skips a test and says why. Include it after cmocka.h. */
#ifndef HARPE_TESTS_SKIP_H
#define HARPE_TESTS_SKIP_H

/* The reason is a format and its arguments. It begins with what the test lacks:
 *   data:      measured data
 *   hardware:  a GPU, a driver, or a feature of the kernel
 *   root:      root, or a user who is not root
 *   missing:   a program or a library that could be installed */
#define skip_because(...) \
    do { \
        print_message("skipped: " __VA_ARGS__); \
        print_message("\n"); \
        skip(); \
    } while (0)

#endif
