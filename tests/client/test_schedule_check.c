/* SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "client/optimizer_internal.h"

static const int offered_mhz[] = {1410, 1395, 900, 210};
static const harpe_allowed_clocks known = {offered_mhz, 4, 0};
static const harpe_allowed_clocks unknown = {NULL, 0, 0};

static harpe_status check_last(const harpe_allowed_clocks *allowed, int mhz, harpe_error *error) {
    harpe_scheduled_instruction instructions[] = {{"forward", 1395}, {"backward", mhz}};
    harpe_frequency_schedule schedule = {.instructions = instructions, .instruction_count = 2};
    return harpe_schedule_check(&schedule, allowed, error);
}

static void assert_refused(const harpe_allowed_clocks *allowed, int mhz, const char *text) {
    assert_refuses(check_last(allowed, mhz, &failure), HARPE_INVALID_INPUT, text);
}

TEST(each_offered_clock_and_0_are_allowed) {
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(check_last(&known, offered_mhz[i], NULL), HARPE_OK);
    assert_int_equal(check_last(&known, 0, NULL), HARPE_OK);
    assert_works(harpe_schedule_check(&(harpe_frequency_schedule){0}, &known, &failure));
}

TEST(other_clocks_are_refused) {
    static const int others_mhz[] = {INT32_MIN, -1, 1, 209, 211, 1396, 1411, INT32_MAX};
    for (size_t i = 0; i < sizeof others_mhz / sizeof others_mhz[0]; i++)
        assert_refused(&known, others_mhz[i], "4 clocks of its GPU, from 210 to 1410 MHz");
    assert_refused(&known, 999, "'backward' (instruction 2 of 2) is to run at 999 MHz");
    assert_refused(&(harpe_allowed_clocks){offered_mhz, 1, 0}, 900, "1 clock of its GPU, 1410 MHz");
}

TEST(a_gpu_without_a_list_has_possible_clocks) {
    assert_int_equal(check_last(&unknown, 1, NULL), HARPE_OK);
    assert_int_equal(check_last(&unknown, 10000, NULL), HARPE_OK);
    assert_refused(&unknown, 10001, "a clock is from 1 to 10000 MHz");
    assert_refused(&unknown, -1, "a clock is from 1 to 10000 MHz");
}

TEST(the_lowest_clock_of_the_job_holds_with_and_without_a_list) {
    const harpe_allowed_clocks both[] = {{offered_mhz, 4, 900}, {NULL, 0, 900}};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(check_last(&both[i], 900, NULL), HARPE_OK);
        assert_int_equal(check_last(&both[i], 0, NULL), HARPE_OK);
        assert_refused(&both[i], 210, "the lowest clock of this job is 900 MHz");
    }
}
