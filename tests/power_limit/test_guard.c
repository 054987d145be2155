/* SPDX-License-Identifier: Apache-2.0 */
/* The guard in a world: it restores limits however the trainer ends, and only then. The trainer,
 * the guard, or both are killed between any two turns. test_guard.py has what needs real
 * processes. */
#include "power_limit/emulated_training.h"

enum { DOOMED_MAX = 2 };

static pid_t doomed[DOOMED_MAX];
static int doomed_count;
static uint64_t doomed_turns;

static void count_turn(void *user) {
    (void)user;
    if (doomed_count == 0 || doomed_turns-- > 0) return;
    for (int i = 0; i < doomed_count; i++)
        harpe_world_kill(doomed[i]);
    doomed_count = 0;
}

/* Kills them after so many turns, and waits for it. */
static void kill_after(uint64_t turns, pid_t first, pid_t second) {
    doomed[0] = first;
    doomed[1] = second;
    doomed_turns = turns;
    doomed_count = second > 0 ? 2 : 1;
    harpe_world_on_step(count_turn, NULL);
    WAIT_FOR(doomed_count == 0);
    harpe_world_on_step(NULL, NULL);
}

static void kill_now(pid_t process) {
    assert_true(process > 0);
    harpe_world_kill(process);
}

/* Returns a trainer that has changed its GPUs. */
static pid_t start_changing(void) {
    start_training(1000, (planned_fault){0});
    WAIT_FOR(training.is_training && !are_all_back());
    if (training.line_count) fail_msg("%s", training.line);
    return training.process;
}

/* Returns the guard that has replaced `old` and has recorded the settings. */
static pid_t another_guard(pid_t old) {
    WAIT_FOR(find_guard() > 0 && find_guard() != old);
    pause_s(1);
    return find_guard();
}

/* `harpe gpus --restore` */
static void restore_by_hand(void) {
    harpe_saved_settings_recovery how = {.most_records = 0};
    assert_works(harpe_saved_settings_recover(gpus, &how, &failure));
}

WORLD_TEST(a_killed_trainer_s_limits_come_back) {
    int changed = 0;
    for (int i = 0; i < 12; i++) {
        use_faults(i % 4 == 0 ? "slow_set=200" : "");
        start_training(1000, (planned_fault){0});
        if (i % 3) WAIT_FOR(training.is_training);
        kill_after(harpe_world_draw(i % 3 ? 200 : 60), training.process, 0);
        changed += !are_all_back();
        assert_restored();
    }
    assert_true(changed > 3);
}

WORLD_TEST(whatever_order_they_die_in_the_limits_come_back) {
    for (int i = 0; i < 12; i++) {
        use_faults(i % 4 == 0 ? "slow_set=200" : "");
        start_training(1000, (planned_fault){0});
        WAIT_FOR(training.is_training);
        pid_t guard = find_guard();
        if (i % 3 == 0) { /* the guard first; the trainer may have started another */
            kill_after(harpe_world_draw(100), guard, 0);
            pause_s(0.1 * (double)harpe_world_draw(20));
            kill_after(harpe_world_draw(100), training.process, 0);
        } else {
            kill_after(harpe_world_draw(100), i % 3 == 1 ? guard : training.process,
                       i % 3 == 1 ? training.process : guard);
        }
        WAIT_FOR(find_guard() < 0);
        restore_by_hand();
        assert_restored();
    }
}

WORLD_TEST(killed_guards_are_replaced) {
    pid_t trainer = start_changing(), guard = find_guard();
    for (int i = 0; i < 4; i++) {
        kill_now(guard);
        guard = another_guard(guard);
        assert_true(has_record());
    }
    kill_now(trainer);
    assert_restored();
}

WORLD_TEST_OF(next_start_knows_what_was_found, one_v100) {
    for (int i = 0; i < 2; i++) {
        pid_t trainer = start_changing();
        kill_after(0, find_guard(), trainer);
        pause_s(2);
        assert_false(are_all_back());
        assert_true(has_record());
    }
    kill_now(start_changing());
    assert_restored();
}

/* ---- The guard takes long, or fails ---------------------------------------------------------- */

/* Kills a trainer while the driver has a fault. Returns the exit status of the guard. */
static int end_with(const char *faults) {
    pid_t trainer = start_changing(), guard = find_guard();
    use_faults(faults);
    kill_now(trainer);
    assert_true(harpe_world_await(guard, INT64_MAX));
    use_faults("");
    return harpe_world_exit_status(guard);
}

WORLD_TEST(a_limit_that_comes_back_late_is_back) {
    assert_int_equal(end_with("slow_set=32000"), 0); /* longer than a guard tries again */
    assert_restored();
}

WORLD_TEST(a_limit_that_never_comes_back_is_a_failure) {
    assert_int_equal(end_with("no_permission"), EXIT_FAILURE);
    assert_false(are_all_back());
    assert_true(has_record());
    restore_by_hand();
    assert_restored();
}

/* A record is removed with its restored setting, for each GPU separately. */
WORLD_TEST_OF(a_lost_gpu_keeps_its_record, three_v100) {
    static const char *const faults[] = {"lost_after=1@0", "lost_after=1@1", "lost_after=1@2"};
    for (int lost = 0; lost < 3; lost++) {
        pid_t trainer = start_changing(), guard = find_guard();
        use_faults(faults[lost]);
        kill_now(trainer);
        assert_true(harpe_world_await(guard, INT64_MAX));
        assert_int_equal(harpe_world_exit_status(guard), EXIT_FAILURE);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(has_record_of(i), i == lost);
            if (i != lost) assert_true(is_back(i));
        }
        use_faults("returns_after=0");
        restore_by_hand();
        assert_restored();
    }
}

WORLD_TEST(a_second_optimizer_on_the_same_gpus_is_refused) {
    pid_t first = start_changing();
    start_training(1, (planned_fault){0});
    assert_true(harpe_world_await(training.process, INT64_MAX));
    assert_int_equal(training.line_count, 1);
    assert_non_null(strstr(training.line, "has another power limit optimizer"));
    assert_false(are_all_back());
    kill_now(first);
    assert_restored();
}
