/* SPDX-License-Identifier: Apache-2.0 */
/* The frequency controller in a world: which clock requests reach the emulated GPU,
 * which do not, and how they are counted. test_controller_start.c tests its start,
 * test_controller.py its end. */
#include "client/controller_world.h"

static const world_machine machine = {.gpus = "2xA40", .begin = begin, .end = end};
static const world_machine fast = {
    .gpus = "2xA40", .time_scale = "1000", .begin = begin, .end = end};

static void wait_for_clock(int gpu, int mhz) { WAIT_FOR(clock_mhz(gpu) == mhz); }

/* Returns the counts after every clock request has been handled. */
static harpe_frequency_controller_counts settled(void) {
    harpe_frequency_controller_counts counts;
    do {
        pause_s(0.001);
        counts = harpe_frequency_controller_count(controller);
    } while (counts.clock_requests !=
             counts.written + counts.skipped + counts.superseded + counts.failed);
    return counts;
}

static void wait_until_parked(void) { WAIT_FOR(atomic_load(&controller->slot->is_parked)); }

/* ---- Requests -------------------------------------------------------------------------------- */

TEST(a_request_is_one_word_of_time_and_frequency) {
    int64_t now_ns = INT64_C(0x123456789ABCDEF0);
    uint64_t request = harpe_clock_request_make(now_ns, 1410);
    assert_int_equal(harpe_clock_request_mhz(request), 1410);
    assert_int_equal(harpe_clock_request_age_ns(request, now_ns), 0);
    assert_int_equal(harpe_clock_request_age_ns(request, now_ns + 12345), 12345);
    /* The 48 bits of the time may have wrapped round. */
    int64_t edge_ns = (INT64_C(1) << 48) - 100;
    assert_int_equal(
        harpe_clock_request_age_ns(harpe_clock_request_make(edge_ns, 1), edge_ns + 250), 250);
    assert_int_equal(harpe_clock_request_mhz(harpe_clock_request_make(now_ns, -5)), 0);
    assert_int_equal(harpe_clock_request_mhz(harpe_clock_request_make(now_ns, 1000000)), 0xFFFF);
}

WORLD_TEST(starts_at_the_highest_clocks_of_its_own_gpu_only) {
    uint32_t memory_mhz = 0;
    start((harpe_frequency_controller_options){.gpu = 1});
    assert_int_equal(clock_mhz(1), 1740);
    assert_works(harpe_gpu_current_clocks(gpus, 1, NULL, &memory_mhz, &failure));
    assert_int_equal(memory_mhz, 7251);
    assert_int_equal(clock_mhz(0), 210);
    harpe_frequency_controller_set(controller, 900);
    wait_for_clock(1, 900);
    assert_int_equal(clock_mhz(0), 210);
}

WORLD_TEST(the_same_frequency_is_set_once_and_0_leaves_it_alone) {
    start((harpe_frequency_controller_options){.minimum_dwell_s = -1});
    const int requests[] = {1740, 1200, 1200, 0, 1200, 600, 0};
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        harpe_frequency_controller_set(controller, requests[i]);
        (void)settled();
    }
    harpe_frequency_controller_counts counts = settled();
    assert_int_equal(counts.clock_requests, 7);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    assert_int_equal(counts.wishes, 7); /* the old name */
#pragma GCC diagnostic pop
    assert_int_equal(counts.written, 2);
    assert_int_equal(counts.skipped, 5);
    assert_int_equal(counts.superseded, 0);
    assert_int_equal(counts.failed, 0);
    assert_int_equal(clock_mhz(0), 600);
    assert_true(counts.latency_median_s >= 0);
    assert_true(counts.latency_median_s <= counts.latency_maximum_s);
}

WORLD_TEST(writes_keep_their_distance_and_the_latest_request_wins) {
    start((harpe_frequency_controller_options){.minimum_dwell_s = 0.1});
    double start_s = harpe_clock_s();
    for (int i = 0; i < 300; i++) {
        harpe_frequency_controller_set(controller, 300 + 15 * (i % 50));
        pause_s(0.001);
    }
    harpe_frequency_controller_set(controller, 1500);
    wait_for_clock(0, 1500);
    harpe_frequency_controller_counts counts = settled();
    double took_s = harpe_clock_s() - start_s;
    assert_true(counts.written >= 3);
    assert_true((double)counts.written <= took_s / 0.1 + 2);
    assert_true(counts.superseded > 200);
}

WORLD_TEST_OF(dwell_time_is_gpu_time, fast) {
    start((harpe_frequency_controller_options){.minimum_dwell_s = 100});
    pause_s(1);                       /* the controller compares the clocks */
    double start_s = harpe_clock_s(); /* before the write from which the dwell time counts */
    harpe_frequency_controller_set(controller, 600);
    wait_for_clock(0, 600);
    harpe_frequency_controller_set(controller, 900);
    wait_for_clock(0, 900);
    double took_s = harpe_clock_s() - start_s;
    assert_true(took_s > 0.098 && took_s < 0.11); /* a tenth of a second */
}

/* ---- Sleeping -------------------------------------------------------------------------------- */

static uint64_t wakes(void) { return atomic_load(&controller->slot->wakes); }

WORLD_TEST(an_idle_controller_sleeps_and_one_request_wakes_it) {
    start((harpe_frequency_controller_options){.minimum_dwell_s = -1});
    wait_until_parked();
    uint64_t first = wakes();
    harpe_frequency_controller_set(controller, 600);
    wait_for_clock(0, 600);
    for (int i = 0; i < 200; i++) {
        harpe_frequency_controller_set(controller, i % 2 ? 600 : 900);
        pause_s(0.001);
    }
    assert_int_equal(wakes(), first + 1);
    uint64_t before = wakes();
    wait_until_parked(); /* a second later */
    harpe_frequency_controller_set(controller, 1200);
    wait_for_clock(0, 1200);
    assert_int_equal(wakes(), before + 1);
}

WORLD_TEST(a_controller_that_is_not_to_poll_is_woken_each_time) {
    start((harpe_frequency_controller_options){.minimum_dwell_s = -1, .poll_interval_s = -1});
    for (int i = 0; i < 50; i++) {
        wait_until_parked();
        harpe_frequency_controller_set(controller, 300 + 15 * i);
        wait_for_clock(0, 300 + 15 * i);
    }
    assert_int_equal(atomic_load(&controller->slot->wakes), 50);
    assert_int_equal(settled().written, 50);
}

/* ---- Obedience ------------------------------------------------------------------------------- */

static harpe_frequency_controller_obedience obeys(void) {
    return harpe_frequency_controller_obeys(controller);
}

static void assert_holds(int mhz) {
    WAIT_FOR(obeys().held_mhz == mhz);
    uint64_t looks = obeys().looks;
    WAIT_FOR(obeys().looks >= looks + 3);
    assert_int_equal(obeys().held_mhz, mhz);
}

WORLD_TEST(a_gpu_that_does_not_obey_is_noticed) {
    start((harpe_frequency_controller_options){.minimum_dwell_s = -1});
    harpe_frequency_controller_set(controller, 1200);
    wait_for_clock(0, 1200);
    pause_s(1);
    assert_int_equal(obeys().looks, 0); /* a GPU without work shows nothing */
    let_gpu_work(0, true);
    assert_holds(1200);
    assert_int_equal(obeys().disobeyed, 0);
    assert_int_equal(obeys().wanted_mhz, 1200);
    /* Another program removes the lock, or sets another. */
    assert_works(harpe_gpu_reset_graphics_clocks(gpus, 0, &failure));
    assert_holds(1740);
    assert_true(obeys().disobeys);
    assert_int_equal(obeys().wanted_mhz, 1200);
    assert_works(harpe_gpu_lock_graphics_clocks(gpus, 0, 600, 600, &failure));
    assert_holds(600);
    assert_true(obeys().disobeys);
    /* The next request has effect again. */
    harpe_frequency_controller_set(controller, 900);
    assert_holds(900);
    assert_false(obeys().disobeys);
    uint64_t disobeyed = obeys().disobeyed;
    for (int i = 0; i < 90; i++) {
        harpe_frequency_controller_set(controller, 600 + 300 * (i % 3));
        pause_s(0.01);
    }
    assert_int_equal(obeys().disobeyed, disobeyed);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static void *set_all_the_time(void *argument) {
    bool *is_over = argument;
    for (int i = 0; !*is_over; i++) {
        harpe_frequency_controller_set(controller, 300 + 15 * (i % 50));
        harpe_sleep_ns(100000);
    }
    return NULL;
}

WORLD_TEST(the_controller_may_die_and_come_back_while_requests_go_on) {
    start((harpe_frequency_controller_options){.minimum_dwell_s = -1});
    assert_int_equal(harpe_frequency_controller_restart(controller, &failure),
                     HARPE_ALREADY_EXISTS);
    bool is_over = false;
    pthread_t trainer = start_thread(set_all_the_time, &is_over);
    for (int i = 0; i < 3; i++) {
        assert_works(harpe_frequency_controller_check(controller, &failure));
        harpe_world_kill(find_controller());
        WAIT_FOR(harpe_frequency_controller_check(controller, &failure) != HARPE_OK);
        assert_int_equal(failure.status, HARPE_UNAVAILABLE);
        uint64_t written = harpe_frequency_controller_count(controller).written;
        harpe_status status = harpe_frequency_controller_restart(controller, &failure);
        if (status != HARPE_OK) fail_msg("%s", failure.message);
        WAIT_FOR(harpe_frequency_controller_count(controller).written > written);
    }
    is_over = true;
    harpe_thread_join(trainer);
    harpe_frequency_controller_set(controller, 1500);
    wait_for_clock(0, 1500);
    harpe_frequency_controller_stop(controller);
    controller = NULL;
    assert_int_equal(clock_mhz(0), 210);
}

static void *give_up(void *argument) {
    pause_s(0.3);
    atomic_store((atomic_bool *)argument, true);
    return NULL;
}

/* The driver needs 1.2 s before the effect of a call, and as long after it. */
WORLD_TEST(the_end_does_not_wait_for_a_driver_that_is_slow) {
    atomic_bool gives_up = false;
    harpe_frequency_controller_options options = {.gpus = gpus};
    assert_works(
        harpe_frequency_controller_start_unless(&options, &gives_up, &controller, &failure));
    assert_true(controller->stop_s == 3);
    controller->stop_s = 0.4;
    harpe_world_kill(find_controller());
    WAIT_FOR(harpe_frequency_controller_has_died(controller));
    use_faults("slow_set=2400");
    pthread_t thread = start_thread(give_up, &gives_up);
    assert_int_equal(harpe_frequency_controller_restart(controller, &failure), HARPE_INTERRUPTED);
    harpe_thread_join(thread);
    harpe_frequency_controller_stop(controller);
    controller = NULL;
    assert_int_equal(clock_mhz(0), 1740); /* still the highest: nothing has waited for the driver */
    use_faults("");
    wait_for_clock(0, 210);
}

WORLD_TEST(what_makes_no_sense_is_refused) {
    harpe_frequency_controller *untouched = NULL;
    harpe_frequency_controller_options options = {0};
    assert_int_equal(harpe_frequency_controller_start(&options, &untouched, &failure),
                     HARPE_INVALID_ARGUMENT);
    options = (harpe_frequency_controller_options){.gpus = gpus, .gpu = 2};
    assert_int_equal(harpe_frequency_controller_start(&options, &untouched, &failure),
                     HARPE_INVALID_ARGUMENT);
    options = (harpe_frequency_controller_options){.gpus = gpus, .minimum_dwell_s = 1e300};
    assert_int_equal(harpe_frequency_controller_start(&options, &untouched, &failure),
                     HARPE_INVALID_ARGUMENT);
    assert_null(untouched);
    harpe_frequency_controller_set(NULL, 900);
    harpe_frequency_controller_stop(NULL);
    assert_works(harpe_frequency_controller_check(NULL, &failure));
    assert_int_equal(harpe_frequency_controller_count(NULL).clock_requests, 0);
}
