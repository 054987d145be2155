/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules of a hostile or mistaken server: clocks that the GPU does not offer, and clocks below
 * the lowest one of the job. The rank refuses such a schedule as a whole and runs at its highest
 * clock. test_schedule_check.c tests the rule itself. */
#include "client/told_server.h"

#define REFUSED "is refused"
#define ALLOWED_MHZ 1200

/* Writes a schedule of step_of_4 whose third instruction has another clock. */
static const char *write_schedule(char text[256], int others_mhz, int third_mhz) {
    snprintf(text, 256,
             "{\"rank\":0,\"frequencies\":[[\"forward\",%d],[\"forward\",0],[\"backward\",%d],"
             "[\"backward\",%d]]}",
             others_mhz, third_mhz, others_mhz);
    return text;
}

static void assert_has_no_result(told_server *one, training *rank) {
    AT_END(harpe_profiling_result_free) harpe_profiling_result result = {0};
    one->schedule_status = 0; /* the next request is held */
    WAIT_UNTIL(rank, look(rank).state == HARPE_PFO_WAITING);
    assert_works(harpe_profiling_result_parse(one->result, strlen(one->result), &result, &failure));
    assert_int_equal(result.iteration_time_count, 0);
}

static void assert_is_refused(told_server *one, training *rank, const char *line) {
    int results = one->results;
    WAIT_UNTIL(rank, count_lines(rank, line) == 1);
    /* The job goes on: this rank answers each round, and has no result. */
    WAIT_UNTIL(rank, one->results >= results + 2);
    assert_trains_on(rank);
    WAIT_UNTIL(rank, clock_mhz(0) == HIGHEST_MHZ);
    assert_int_equal(count_lines(rank, REFUSED), 1);
    assert_int_equal(count_warnings(rank), 1);
}

WORLD_TEST(a_clock_that_the_gpu_does_not_offer_is_refused) {
    static const int clocks_mhz[] = {1,    5,    209,  999,        1000, 1001,
                                     1003, 1411, 9999, 2147483647, -900};
    for (size_t i = 0; i < sizeof clocks_mhz / sizeof clocks_mhz[0]; i++) {
        char schedule[256], line[64];
        told_server one = {.schedule_status = 200,
                           .schedule = write_schedule(schedule, ALLOWED_MHZ, clocks_mhz[i])};
        harpe_pipeline_timeouts timeouts = long_timeouts();
        training *rank = start_at(&one, &timeouts);
        snprintf(line, sizeof line, "'backward' (instruction 3 of 4) is to run at %d MHz,",
                 clocks_mhz[i]);
        assert_is_refused(&one, rank, line);
        assert_int_equal(count_lines(rank, "81 clocks of its GPU, from 210 to 1410 MHz"), 1);
        assert_int_equal(look(rank).controller.written, 0);
        assert_has_no_result(&one, rank);
        end_at(&one, rank);
    }
}

WORLD_TEST(a_refused_schedule_ends_an_earlier_one) {
    char good[256], bad[256];
    told_server one = {.schedule_status = 200, .schedule = write_schedule(good, 900, 900)};
    harpe_pipeline_timeouts timeouts = long_timeouts();
    training *rank = start_at(&one, &timeouts);
    WAIT_UNTIL(rank, clock_mhz(0) == 900);
    assert_int_equal(count_warnings(rank), 0);
    one.schedule = write_schedule(bad, 900, 5);
    assert_is_refused(&one, rank, "is to run at 5 MHz");
    one.schedule = good;
    WAIT_UNTIL(rank, clock_mhz(0) == 900);
    WAIT_UNTIL(rank, count_lines(rank, "has allowed clocks again") == 1);
    /* The next refusal comes within a minute, so it has no line. */
    one.schedule = bad;
    WAIT_UNTIL(rank, clock_mhz(0) == HIGHEST_MHZ);
    assert_int_equal(count_warnings(rank), 1);
    end_at(&one, rank);
}

/* Trains with a lowest clock of 600 MHz from the options, or else from the environment. */
static void train_with_lowest_clock(bool from_options) {
    char schedule[256];
    told_server one = {.schedule_status = 200,
                       .schedule = write_schedule(schedule, ALLOWED_MHZ, 585)};
    harpe_pipeline_timeouts timeouts = long_timeouts();
    start_told(&one);
    training *rank = new_training(TOLD_URL, 0, 1);
    setenv("HARPE_LOWEST_CLOCK_MHZ", from_options ? "300" : "600", 1);
    if (from_options) rank->options.lowest_clock_mhz = 600;
    construct_with(rank, &timeouts);
    unsetenv("HARPE_LOWEST_CLOCK_MHZ");
    rank->thread = start_thread(train, rank);
    assert_is_refused(&one, rank, "585 MHz, but the lowest clock of this job is 600 MHz");
    assert_non_null(strstr(one.registration, "600"));
    assert_null(strstr(one.registration, "585"));
    char allowed[256];
    one.schedule = write_schedule(allowed, 600, 600);
    WAIT_UNTIL(rank, clock_mhz(0) == 600);
    end_at(&one, rank);
}

WORLD_TEST(a_clock_below_the_lowest_one_of_the_job_is_refused) {
    train_with_lowest_clock(true);
    train_with_lowest_clock(false);
}

WORLD_TEST(a_lowest_clock_that_makes_no_sense_is_an_error) {
    static const char *const texts[] = {"0", "-1", "10001", "600 MHz", "99999999999"};
    training *rank = new_training(NOBODY, 0, 1);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        setenv("HARPE_LOWEST_CLOCK_MHZ", texts[i], 1);
        assert_refuses(harpe_pipeline_frequency_new(&rank->options, &rank->optimizer, &failure),
                       HARPE_INVALID_ARGUMENT, "HARPE_LOWEST_CLOCK_MHZ must be from 1 to 10000");
        assert_says(&failure, texts[i]);
    }
    unsetenv("HARPE_LOWEST_CLOCK_MHZ");
    rank->options.lowest_clock_mhz = -600;
    assert_refuses(harpe_pipeline_frequency_new(&rank->options, &rank->optimizer, &failure),
                   HARPE_INVALID_ARGUMENT, "lowest_clock_mhz must be from 1 to 10000");
    rank->options.lowest_clock_mhz = HIGHEST_MHZ + 1; /* above all clocks of this GPU */
    rank->options.is_strict = true;
    assert_refuses(harpe_pipeline_frequency_new(&rank->options, &rank->optimizer, &failure),
                   HARPE_INVALID_ARGUMENT, "the GPU's highest clock is 1410 MHz");
    free(rank);
}
