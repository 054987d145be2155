/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a frequency controller in a world: however the trainer, the controller, or both end,
 * the GPU's settings are restored and nothing is left behind. test_controller.py has what needs
 * real processes, and zeusd. */
#include "world/in_world.h"

#include <stdio.h>
#include <string.h>

#include <harpe/frequency_controller.h>

#include "gpu/saved_settings.h"

enum { IDLE_MHZ = 210, HIGHEST_MHZ = 1740, FOUND_MW = 231000, TAKEN_MW = 300000 };

/* A process that has started its controller. It carries out orders. */
typedef struct trainer {
    int gpu;
    bool trains; /* sets clocks all the time */
    pid_t process;
    bool has_started;
    harpe_frequency_controller *controller;
    harpe_status status; /* of the start, or of the last order */
    harpe_error error;
    void (*order)(struct trainer *self); /* NULL: none */
    int mhz;                             /* for the order */
} trainer;

static harpe_gpus *gpus; /* of the test */

static int run_trainer(void *user) {
    trainer *self = user;
    harpe_frequency_controller_options options = {.gpu = self->gpu, .minimum_dwell_s = -1};
    self->status = harpe_gpus_open(NULL, &options.gpus, &self->error);
    if (self->status == HARPE_OK)
        self->status = harpe_frequency_controller_start(&options, &self->controller, &self->error);
    self->has_started = true;
    if (self->status != HARPE_OK) {
        harpe_gpus_close(options.gpus);
        return 1;
    }
    for (int i = 0;; i++) { /* until it is killed */
        if (self->trains) harpe_frequency_controller_set(self->controller, 300 + 15 * (i % 90));
        if (self->order) self->order(self);
        self->order = NULL;
        pause_s(0.0005);
    }
}

static void start(trainer *self) {
    self->has_started = false;
    self->process = harpe_world_start("trainer", run_trainer, self);
}

static void tell(trainer *self, void (*order)(trainer *self)) {
    self->order = order;
    WAIT_FOR(!self->order);
}

static void set(trainer *self) { harpe_frequency_controller_set(self->controller, self->mhz); }
static void check(trainer *self) {
    self->status = harpe_frequency_controller_check(self->controller, &self->error);
}
static void restart(trainer *self) {
    self->status = harpe_frequency_controller_restart(self->controller, &self->error);
}
static void stop(trainer *self) {
    harpe_frequency_controller_stop(self->controller);
    self->controller = NULL;
}

/* ---- The GPUs -------------------------------------------------------------------------------- */

typedef struct gpu_state {
    uint32_t mhz, memory_mhz, limit_mw;
    bool persistence;
} gpu_state;
static gpu_state found;

static gpu_state state_of(int gpu) {
    gpu_state now = {0};
    assert_int_equal(harpe_gpu_current_clocks(gpus, gpu, &now.mhz, &now.memory_mhz, NULL), 0);
    assert_int_equal(harpe_gpu_power_limit(gpus, gpu, &now.limit_mw, NULL), 0);
    assert_int_equal(harpe_gpu_persistence_mode(gpus, gpu, &now.persistence, NULL), 0);
    return now;
}

static bool is_back(void) {
    gpu_state now = state_of(0);
    return now.mhz == found.mhz && now.memory_mhz == found.memory_mhz &&
           now.limit_mw == found.limit_mw && now.persistence == found.persistence;
}

static uint32_t clock_mhz(void) { return state_of(0).mhz; }

static bool has_record(void) {
    harpe_saved_settings record;
    return harpe_saved_settings_find(gpus, 0, HARPE_SAVED_CLOCKS, &record, NULL);
}

static void assert_restored(void) {
    WAIT_FOR(is_back());
    WAIT_FOR(find_controller() < 0);
    assert_true(is_back());
    assert_false(has_record());
}

static void begin(void) {
    use_faults("");
    assert_works(harpe_gpus_open(NULL, &gpus, &failure));
    assert_works(harpe_gpu_set_power_limit(gpus, 0, FOUND_MW, &failure));
    found = state_of(0);
    assert_int_equal(found.mhz, IDLE_MHZ);
}

/* Checks that the GPUs are restored at the end of every test. */
static void end(void) {
    assert_restored();
    harpe_gpus_close(gpus);
}

static const world_machine machine = {.gpus = "2xA40", .begin = begin, .end = end};

/* Starts a trainer on GPU 0, waits until it has the GPU, and lets it set 1200 MHz. */
static void start_at_1200(trainer *self) {
    *self = (trainer){.mhz = 1200};
    start(self);
    WAIT_FOR(self->has_started);
    if (self->status != HARPE_OK) fail_msg("%s", self->error.message);
    gpu_state now = state_of(0);
    assert_int_equal(now.mhz, HIGHEST_MHZ);
    assert_int_equal(now.limit_mw, TAKEN_MW);
    tell(self, set);
    WAIT_FOR(clock_mhz() == 1200);
}

static void kill_controller(void) {
    pid_t controller = find_controller();
    assert_true(controller > 0);
    harpe_world_kill(controller);
}

static void kill_both(const trainer *self) {
    kill_controller();
    harpe_world_kill(self->process);
}

static void leave_changed(trainer *self) {
    start_at_1200(self);
    kill_both(self);
    pause_s(2);
    assert_int_equal(clock_mhz(), 1200);
    assert_true(has_record());
}

/* ---- Restoring by hand ----------------------------------------------------------------------- */

static int restored; /* records */

static void count_restored(void *user, const harpe_saved_settings *state,
                           const harpe_gpu_info *info, harpe_saved_settings_outcome outcome,
                           const harpe_error *error) {
    (void)user;
    (void)state;
    (void)info;
    (void)error;
    restored += outcome == HARPE_SAVED_RESTORED;
}

/* What `harpe gpus --restore` does. */
static int restore_by_hand(void *user) {
    harpe_saved_settings_recovery how = {.report = count_restored};
    harpe_gpus *own = NULL;
    (void)user;
    assert_works(harpe_gpus_open(NULL, &own, &failure));
    assert_works(harpe_saved_settings_recover(own, &how, &failure));
    harpe_gpus_close(own);
    return 0;
}

/* ---- Kills ----------------------------------------------------------------------------------- */

static pid_t doomed[2];
static uint64_t doomed_turns;

static void count_turn(void *user) {
    (void)user;
    if (doomed[0] == 0 || doomed_turns-- > 0) return;
    for (int i = 0; i < 2; i++)
        if (doomed[i] > 0) harpe_world_kill(doomed[i]);
    doomed[0] = 0;
}

/* Kills one process or two after some turns. */
static void kill_soon(pid_t first, pid_t other) {
    doomed_turns = harpe_world_draw(harpe_world_draw(2) ? 20 : 200);
    doomed[1] = other;
    doomed[0] = first;
    harpe_world_on_step(count_turn, NULL);
    WAIT_FOR(doomed[0] == 0);
    harpe_world_on_step(NULL, NULL);
}

WORLD_TEST(whenever_the_trainer_dies_the_gpu_comes_back) {
    static trainer self;
    for (int i = 0; i < 20; i++) {
        use_faults(i % 4 == 0 ? "slow_set=100" : "");
        self = (trainer){.trains = true};
        start(&self);
        if (i % 5) WAIT_FOR(self.has_started && !is_back());
        kill_soon(self.process, 0);
        assert_restored();
    }
}

WORLD_TEST(whatever_order_they_die_in_the_gpu_comes_back) {
    static trainer self;
    for (int i = 0; i < 12; i++) {
        use_faults(i % 4 == 0 ? "slow_set=100" : "");
        self = (trainer){.trains = true};
        start(&self);
        WAIT_FOR(self.has_started);
        pid_t controller = find_controller();
        if (i % 3 == 0) {
            kill_soon(controller, 0);
            pause_s(1.5);
            kill_soon(self.process, 0);
        } else {
            kill_soon(i % 3 == 1 ? controller : self.process,
                      i % 3 == 1 ? self.process : controller);
        }
        WAIT_FOR(find_controller() < 0);
        (void)restore_by_hand(NULL);
        assert_restored();
    }
}

/* The call locks the clock when half of its time is over. This lock is also undone. */
WORLD_TEST(a_driver_call_that_hangs_does_not_hold_up_the_rest) {
    static trainer self;
    start_at_1200(&self);
    use_faults("slow_set=20000");
    self.mhz = 600;
    tell(&self, set);
    pause_s(2);
    use_faults("");
    harpe_world_kill(self.process);
    WAIT_FOR(is_back());
    WAIT_FOR(clock_mhz() == 600);
}

WORLD_TEST(a_trainer_that_comes_back_at_once_waits_until_all_is_put_back) {
    static trainer first, second;
    use_faults("slow_set=300");
    first = (trainer){.trains = true};
    start(&first);
    WAIT_FOR(first.has_started);
    pause_s(0.5);
    harpe_world_kill(first.process);
    use_faults("");
    start_at_1200(&second);
    pause_s(2);
    assert_int_equal(clock_mhz(), 1200);
    harpe_world_kill(second.process);
}

WORLD_TEST(a_gpu_has_one_controller) {
    static trainer first, second;
    start_at_1200(&first);
    second = (trainer){.gpu = 0};
    start(&second);
    WAIT_FOR(second.has_started);
    assert_int_equal(second.status, HARPE_ALREADY_EXISTS);
    assert_non_null(strstr(second.error.message, "GPU 0 has another frequency controller"));
    assert_int_equal(clock_mhz(), 1200);
    harpe_world_kill(first.process);
}

/* ---- The controller's end -------------------------------------------------------------------- */

WORLD_TEST(another_controller_knows_what_the_first_one_had_found) {
    static trainer self;
    start_at_1200(&self);
    for (int i = 0; i < 2; i++) {
        kill_controller();
        do
            tell(&self, check);
        while (self.status == HARPE_OK);
        assert_int_equal(self.status, HARPE_UNAVAILABLE);
        assert_non_null(strstr(self.error.message, "has died"));
        self.mhz = 600;
        tell(&self, set); /* waits */
        tell(&self, restart);
        assert_int_equal(self.status, HARPE_OK);
        WAIT_FOR(clock_mhz() == 600);
    }
    kill_both(&self);
    (void)restore_by_hand(NULL);
}

WORLD_TEST(stop_puts_back_what_a_dead_controller_left) {
    static trainer self;
    start_at_1200(&self);
    kill_controller();
    tell(&self, stop);
    assert_true(is_back());
    assert_restored();
    harpe_world_kill(self.process);
    start_at_1200(&self); /* a controller that dies while it is stopped */
    pid_t controller = find_controller();
    harpe_world_stall(controller, INT64_MAX);
    self.order = stop;
    pause_s(0.3);
    harpe_world_kill(controller);
    WAIT_FOR(!self.order);
    assert_restored();
    harpe_world_kill(self.process);
}

/* ---- Both ends ------------------------------------------------------------------------------- */

WORLD_TEST(next_start_knows_what_was_found) {
    static trainer self;
    leave_changed(&self);
    leave_changed(&self);
    start_at_1200(&self);
    harpe_world_kill(self.process);
}

WORLD_TEST(a_start_on_another_gpu_puts_this_one_back) {
    static trainer self, other;
    leave_changed(&self);
    other = (trainer){.gpu = 1};
    start(&other);
    WAIT_FOR(other.has_started);
    assert_int_equal(other.status, HARPE_OK);
    assert_true(is_back());
    harpe_world_kill(other.process);
}

WORLD_TEST(of_many_that_restore_at_once_one_does) {
    static trainer self;
    pid_t processes[8];
    leave_changed(&self);
    restored = 0;
    for (int i = 0; i < 8; i++)
        processes[i] = harpe_world_start("restore", restore_by_hand, NULL);
    for (int i = 0; i < 8; i++)
        assert_true(harpe_world_await(processes[i], INT64_MAX));
    assert_int_equal(restored, 1);
}

WORLD_TEST(a_gpu_whose_trainer_lives_is_not_touched) {
    static trainer self;
    start_at_1200(&self);
    (void)restore_by_hand(NULL);
    kill_controller();
    (void)restore_by_hand(NULL); /* the trainer may start another controller */
    assert_int_equal(clock_mhz(), 1200);
    tell(&self, restart);
    assert_int_equal(self.status, HARPE_OK);
    harpe_world_kill(self.process);
}

/* ---- The driver's faults --------------------------------------------------------------------- */

WORLD_TEST(what_the_driver_refuses_at_the_start_is_told) {
    static trainer self;
    use_faults("no_permission");
    self = (trainer){.gpu = 0};
    start(&self);
    WAIT_FOR(self.has_started);
    assert_int_equal(self.status, HARPE_PERMISSION_DENIED);
    assert_non_null(strstr(self.error.message, "run as root"));
    use_faults("not_supported=clock_locks");
    start(&self);
    WAIT_FOR(self.has_started);
    assert_int_equal(self.status, HARPE_NOT_SUPPORTED);
    use_faults("");
    assert_restored();
    use_faults("not_supported=memory_locks"); /* the memory clock is left alone */
    start(&self);
    WAIT_FOR(self.has_started);
    assert_int_equal(self.status, HARPE_OK);
    assert_int_equal(clock_mhz(), HIGHEST_MHZ);
    assert_int_equal(state_of(0).memory_mhz, found.memory_mhz);
    harpe_world_kill(self.process);
}

static harpe_frequency_controller_counts counts(const trainer *self) {
    return harpe_frequency_controller_count(self->controller);
}

WORLD_TEST(a_refusal_is_told_once_and_tried_again) {
    static trainer self;
    start_at_1200(&self);
    use_faults("no_permission");
    for (self.mhz = 600; self.mhz < 660; self.mhz += 15) {
        tell(&self, set);
        WAIT_FOR(counts(&self).failed >= (self.mhz > 600 ? 2 : 1));
        tell(&self, check);
        assert_int_equal(self.status, self.mhz > 600 ? HARPE_OK : HARPE_PERMISSION_DENIED);
    }
    assert_int_equal(clock_mhz(), 1200);
    use_faults("");
    tell(&self, set);
    WAIT_FOR(clock_mhz() == 660);
    harpe_world_kill(self.process);
}

WORLD_TEST(a_lost_gpu_does_not_keep_the_controller) {
    static trainer self;
    start_at_1200(&self);
    use_faults("lost_after=0");
    self.mhz = 900;
    tell(&self, set);
    WAIT_FOR(counts(&self).failed >= 1);
    tell(&self, check);
    assert_int_equal(self.status, HARPE_GPU_LOST);
    harpe_world_kill(self.process);
    WAIT_FOR(find_controller() < 0);
    /* After a reset, the next start restores the power limit, which is not the default. */
    use_faults("returns_after=0");
    (void)restore_by_hand(NULL);
}
