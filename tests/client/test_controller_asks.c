/* SPDX-License-Identifier: Apache-2.0 */
/* What the controller tells the trainer of its requests to the driver: failed ones, those after a
 * restart, and whether anybody learns how long changes take. With emulated GPUs. */
#include "client/controller_world.h"

#include <errno.h>

#include "base/platform.h"
#include "client/control.h"

enum { HIGHEST_MHZ = 1410 };

static const world_machine machine = {
    .gpus = "1xA100", .time_scale = "20", .begin = begin, .end = end};

static const harpe_frequency_controller_options at_once = {.minimum_dwell_s = -1};

/* Waits until the last noted request has a clock. Returns the number of requests. */
static size_t wait_for_ask(harpe_clock_ask *asks, uint32_t mhz) {
    bool has_lost;
    size_t count;
    WAIT_FOR((count = harpe_clock_asks_copy(controller->slot, asks, &has_lost)) > 0 &&
             asks[count - 1].mhz == mhz);
    return count;
}

/* Waits until the process has carried out a request and will not begin it again. */
static void wait_until_taken(void) { WAIT_FOR(atomic_load(&controller->slot->taken) != 0); }

/* ---- Tests ----------------------------------------------------------------------------------- */

WORLD_TEST(a_request_that_failed_is_followed_by_no_clock) {
    static harpe_clock_ask asks[HARPE_CONTROLLER_ASKS];
    start(at_once);
    harpe_frequency_controller_set(controller, 1200);
    assert_int_equal(wait_for_ask(asks, 1200), 1);
    wait_until_taken(); /* or it fails, too */
    use_faults("no_permission");
    harpe_frequency_controller_set(controller, 900);
    assert_int_equal(wait_for_ask(asks, 0), 3);
    assert_int_equal(asks[1].mhz, 900);
    assert_int_equal(asks[2].asked_us, asks[1].asked_us);
    use_faults("");
    harpe_frequency_controller_set(controller, 600);
    assert_true(wait_for_ask(asks, 600) >= 4);
}

WORLD_TEST(a_new_process_sets_the_highest_clock) {
    static harpe_clock_ask asks[HARPE_CONTROLLER_ASKS];
    start(at_once);
    assert_int_equal(atomic_load(&controller->slot->ask_count), 0);
    harpe_frequency_controller_set(controller, 1200);
    assert_int_equal(wait_for_ask(asks, 1200), 1);
    wait_until_taken(); /* or the new process carries it out after the highest clock */
    harpe_world_kill(find_controller());
    WAIT_FOR(harpe_frequency_controller_has_died(controller));
    assert_works(harpe_frequency_controller_restart(controller, &failure));
    assert_true(wait_for_ask(asks, HIGHEST_MHZ) >= 2);
    assert_true(atomic_load(&controller->slot->learns_switches) != 0);
}

static int start_no_thread(pthread_t *thread, const char *name, void *(*run)(void *user),
                           void *user) {
    (void)thread;
    (void)name;
    (void)run;
    (void)user;
    return EAGAIN;
}

static void start_without_thread(harpe_obedience *obedience, harpe_controller_slot *slot,
                                 const harpe_controller_gpu *gpu) {
    const harpe_platform *usual = harpe_platform_in_use;
    harpe_platform without = *usual;
    without.start_thread = start_no_thread;
    harpe_platform_in_use = &without;
    harpe_obedience_start(obedience, slot, gpu);
    harpe_platform_in_use = usual;
}

WORLD_TEST(requests_are_noted_without_the_thread_that_learns) {
    static harpe_controller_slot slot;
    static harpe_clock_ask asks[HARPE_CONTROLLER_ASKS];
    harpe_controller_gpu gpu = {.gpus = gpus};
    harpe_obedience obedience = {.slot = NULL};
    bool has_lost;
    slot = (harpe_controller_slot){0};
    harpe_obedience_start(&obedience, &slot, &gpu);
    assert_true(atomic_load(&slot.learns_switches) != 0);
    assert_true(harpe_obedience_stop(&obedience));
    harpe_obedience other = {.slot = NULL};
    start_without_thread(&other, &slot, &gpu);
    assert_int_equal(atomic_load(&slot.learns_switches), 0);
    harpe_obedience_ask(&other, 1200);
    assert_int_equal(harpe_clock_asks_copy(&slot, asks, &has_lost), 1);
    assert_int_equal(asks[0].mhz, 1200);
    assert_true(harpe_obedience_stop(&other));
}

/* The GPU has the clock already, so a watch could only learn something wrong. */
WORLD_TEST(the_clock_at_the_start_is_not_watched) {
    static harpe_controller_slot slot;
    static harpe_clock_ask asks[HARPE_CONTROLLER_ASKS];
    harpe_controller_gpu gpu = {.gpus = gpus};
    bool has_lost;
    slot = (harpe_controller_slot){0};
    for (size_t earlier = 0; earlier < 2; earlier++) {
        harpe_obedience obedience = {.slot = NULL};
        harpe_obedience_start(&obedience, &slot, &gpu);
        harpe_obedience_begin(&obedience, HIGHEST_MHZ);
        size_t count = harpe_clock_asks_copy(&slot, asks, &has_lost);
        assert_int_equal(count, earlier > 0 ? 2 : 0);
        if (earlier > 0) assert_int_equal(asks[1].mhz, HIGHEST_MHZ);
        assert_int_equal(obedience.watched, 0);
        assert_int_equal(atomic_load(&obedience.calling_mhz), 0);
        assert_int_equal(atomic_load(&obedience.count), 1);
        assert_int_equal(atomic_load(&obedience.ask_count), 1);
        harpe_obedience_ask(&obedience, 900);
        assert_int_equal(obedience.watched, 1);
        assert_true(harpe_obedience_stop(&obedience));
        slot = (harpe_controller_slot){0};
        harpe_clock_asks_add(&slot, 1, 900);
    }
}

/* Waits until the thread has compared the clock often enough to have found a difference. Returns
 * how many of these looks found one. */
static uint64_t differences_of(const harpe_controller_slot *slot) {
    uint64_t looks = atomic_load(&slot->looks), disobeyed = atomic_load(&slot->disobeyed);
    WAIT_FOR(atomic_load(&slot->looks) >= looks + 10);
    return atomic_load(&slot->disobeyed) - disobeyed;
}

/* On a busy machine, a GPU may have its new clock long before the driver call that sets it returns.
 */
WORLD_TEST(a_gpu_obeys_a_call_that_has_not_returned) {
    static harpe_controller_slot slot;
    harpe_controller_gpu gpu = {.gpus = gpus};
    harpe_obedience obedience = {.slot = NULL};
    slot = (harpe_controller_slot){0};
    let_gpu_work(0, true);
    assert_works(harpe_gpu_lock_graphics_clocks(gpus, 0, HIGHEST_MHZ, HIGHEST_MHZ, &failure));
    harpe_obedience_start(&obedience, &slot, &gpu);
    harpe_obedience_begin(&obedience, HIGHEST_MHZ);
    assert_int_equal(differences_of(&slot), 0);
    harpe_obedience_ask(&obedience, 900);
    assert_int_equal(differences_of(&slot), 0);
    assert_works(harpe_gpu_lock_graphics_clocks(gpus, 0, 900, 900, &failure));
    assert_int_equal(differences_of(&slot), 0);
    harpe_obedience_fail(&obedience); /* then it is another program that has set 900 MHz */
    assert_true(differences_of(&slot) >= 9);
    harpe_obedience_ask(&obedience, 900);
    harpe_obedience_note(&obedience, 900);
    (void)differences_of(&slot);
    assert_int_equal(differences_of(&slot), 0);
    assert_true(harpe_obedience_stop(&obedience));
}
