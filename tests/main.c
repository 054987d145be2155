/* SPDX-License-Identifier: Apache-2.0 */
/* The list of a test program's tests, and its main() unless the program has one of its own. */
#include "test.h"

struct CMUnitTest listed_tests[100];
size_t listed_count;

__attribute__((weak)) int main(void) { return run_listed_tests(); }
