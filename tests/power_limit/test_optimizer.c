/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine with a scripted device and with measured logs: the order of set calls, faults
 * at any call, ranks in lock step. */
#include "test.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "power_limit/measured_logs.h"
#include "power_limit/meeting.h"

/* ---- A scripted device ----------------------------------------------------------------------- */

typedef enum call { CALL_SET, CALL_BEGIN, CALL_END, CALL_CHECK, CALL_NONE } call;

typedef struct scripted {
    harpe_power_limit_device device;
    harpe_power_limit_options options;
    int sets_w[256];
    int set_count;
    int restores, windows_open, errors_logged, warnings_logged;
    call failing; /* which call fails */
    int fail_at;  /* the index of the failing call, from 0 */
    int calls[4];
    bool restore_fails;
    char last_error[2048];
    double energy_factor; /* NaN or 0: impossible numbers */
    char last_window[64];
    /* For the limit in force. */
    int outside_w;  /* a limit from elsewhere; 0: none */
    int multiple_w; /* the driver rounds up to multiples of this; 0: it does not round */
    int in_force_calls;
    int change_at; /* at the call of this number, `outside_w` becomes `changed_w` */
    int changed_w;
    int raised_at; /* from the call of this number on, another program has raised the limit */
    char last_warning[512];
} scripted;

static harpe_status fault(scripted *self, call which, harpe_error *error) {
    if (self->calls[which]++ != self->fail_at || which != self->failing) return HARPE_OK;
    if (error) {
        error->status = HARPE_GPU_LOST;
        snprintf(error->message, sizeof error->message, "GPU 0 is lost");
    }
    return HARPE_GPU_LOST;
}

static harpe_status set_limit(void *user, int limit_w, harpe_error *error) {
    scripted *self = user;
    if (fault(self, CALL_SET, error) != HARPE_OK) return HARPE_GPU_LOST;
    assert_true(self->set_count < 256);
    self->sets_w[self->set_count++] = limit_w;
    return HARPE_OK;
}

static harpe_status begin_window(void *user, const char *name, harpe_error *error) {
    scripted *self = user;
    if (fault(self, CALL_BEGIN, error) != HARPE_OK) return HARPE_GPU_LOST;
    assert_int_equal(self->windows_open, 0);
    self->windows_open++;
    snprintf(self->last_window, sizeof self->last_window, "%s", name);
    return HARPE_OK;
}

static harpe_status end_window(void *user, const char *name, bool cancel, double *energy_j,
                               double *time_s, harpe_error *error) {
    scripted *self = user;
    assert_string_equal(name, self->last_window);
    assert_int_equal(self->windows_open, 1);
    self->windows_open--;
    if (fault(self, CALL_END, error) != HARPE_OK) return HARPE_GPU_LOST;
    if (cancel) return HARPE_OK;
    int limit_w = self->sets_w[self->set_count - 1];
    *energy_j = (1000 + limit_w) * self->energy_factor;
    *time_s = 10 + 100.0 / limit_w;
    return HARPE_OK;
}

static harpe_status restore(void *user, harpe_error *error) {
    scripted *self = user;
    self->restores++;
    if (!self->restore_fails) return HARPE_OK;
    if (error) snprintf(error->message, sizeof error->message, "GPU 0 stays as it is");
    return HARPE_PERMISSION_DENIED;
}

static harpe_status check_window(void *user, harpe_error *error) {
    scripted *self = user;
    assert_int_equal(self->windows_open, 1);
    return fault(self, CALL_CHECK, error);
}

static void write_log(void *user, harpe_log_level level, const char *line) {
    scripted *self = user;
    assert_null(strchr(line, '\n'));
    if (level == HARPE_LOG_ERROR) {
        self->errors_logged++;
        snprintf(self->last_error, sizeof self->last_error, "%s", line);
    }
    self->warnings_logged += level == HARPE_LOG_WARNING;
    if (level == HARPE_LOG_WARNING)
        snprintf(self->last_warning, sizeof self->last_warning, "%s", line);
}

static harpe_status limit_in_force(void *user, int *limit_w, int *gpu, harpe_error *error) {
    scripted *self = user;
    int at = self->in_force_calls++;
    if (self->raised_at > 0 && at >= self->raised_at) {
        if (error) snprintf(error->message, sizeof error->message, "GPU 1: it is raised");
        return HARPE_DRIVER_ERROR;
    }
    if (self->change_at > 0 && at >= self->change_at) self->outside_w = self->changed_w;
    int multiple_w = self->multiple_w ? self->multiple_w : 1;
    int made_w = (self->sets_w[self->set_count - 1] + multiple_w - 1) / multiple_w * multiple_w;
    *limit_w = self->outside_w && self->outside_w < made_w ? self->outside_w : made_w;
    *gpu = 1;
    return HARPE_OK;
}

static void script(scripted *self, int minimum_w, int maximum_w) {
    *self = (scripted){.failing = CALL_NONE, .energy_factor = 1};
    self->device = (harpe_power_limit_device){.user = self,
                                              .gpu_count = 1,
                                              .minimum_w = minimum_w,
                                              .maximum_w = maximum_w,
                                              .set_limit = set_limit,
                                              .begin_window = begin_window,
                                              .end_window = end_window,
                                              .restore = restore,
                                              .check_window = check_window,
                                              .limit_in_force = limit_in_force};
    self->options = (harpe_power_limit_options){
        .wait_steps = -1, .warmup_steps = -1, .profile_steps = -1, .log = {write_log, self}};
}

static int make_script(void **state) {
    static scripted self;
    script(&self, 100, 200);
    *state = &self;
    return 0;
}

/* A test with a script for limits from 100 to 200 W. */
#define SCRIPTED_TEST(name) TEST_ON(name, scripted *self, make_script, NULL)

OWNER(harpe_power_limit_optimizer)
#define owned_optimizer OWNED(harpe_power_limit_optimizer)

static harpe_power_limit_optimizer *construct(const harpe_power_limit_device *device,
                                              const harpe_power_limit_options *options) {
    harpe_power_limit_optimizer *optimizer = NULL;
    assert_works(harpe_power_limit_optimizer_new(device, options, &optimizer, &failure));
    return optimizer;
}

OWNER(harpe_power_limit_replay)
#define owned_replay OWNED(harpe_power_limit_replay)

static harpe_power_limit_optimizer *begin(const scripted *self) {
    return construct(&self->device, &self->options);
}

static void run_steps(harpe_power_limit_optimizer *optimizer, int count) {
    for (int i = 0; i < count; i++) {
        harpe_power_limit_on_step_begin(optimizer);
        harpe_power_limit_on_step_end(optimizer);
    }
}

static void assert_sets(const int *sets_w, size_t count, const char *expected) {
    char text[4096] = "";
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        length +=
            (size_t)snprintf(text + length, sizeof text - length, "%s%d", i ? " " : "", sets_w[i]);
    }
    assert_string_equal(text, expected);
}

static void assert_state(const harpe_power_limit_optimizer *optimizer,
                         harpe_power_limit_phase phase, int power_limit_w, int steps) {
    harpe_power_limit_state state = harpe_power_limit_get_state(optimizer);
    assert_int_equal(state.phase, phase);
    assert_int_equal(state.power_limit_w, power_limit_w);
    assert_int_equal(state.steps, steps);
}

/* ---- The order of things --------------------------------------------------------------------- */

SCRIPTED_TEST(the_state_tells_phase_limit_and_steps) {
    script(self, 150, 200);
    self->options.selector = harpe_selector_energy();
    harpe_power_limit_optimizer *optimizer = begin(self);
    assert_state(optimizer, HARPE_POWER_LIMIT_READY, 200, 2);
    run_steps(optimizer, 2);
    assert_state(optimizer, HARPE_POWER_LIMIT_WARMUP, 200, 10);
    run_steps(optimizer, 9);
    assert_state(optimizer, HARPE_POWER_LIMIT_WARMUP, 200, 1);
    run_steps(optimizer, 1);
    assert_state(optimizer, HARPE_POWER_LIMIT_PROFILING, 200, 40);
    run_steps(optimizer, 50);
    assert_state(optimizer, HARPE_POWER_LIMIT_PROFILING, 175, 40);
    harpe_power_limit_on_epoch_end(optimizer);
    assert_state(optimizer, HARPE_POWER_LIMIT_READY, 175, 1);
    run_steps(optimizer, 101);
    assert_state(optimizer, HARPE_POWER_LIMIT_DONE, 150, 0);
    harpe_power_limit_optimizer_free(optimizer);
    assert_state(NULL, HARPE_POWER_LIMIT_FAILED, 0, 0);
}

SCRIPTED_TEST(one_epoch_tries_every_limit_then_holds_the_optimum) {
    self->options.selector = harpe_selector_energy();
    harpe_power_limit_optimizer *optimizer = begin(self);
    assert_int_equal(harpe_power_limit_current_w(optimizer), 200);
    run_steps(optimizer, 2 + 5 * 50 - 1);
    assert_false(harpe_power_limit_is_done(optimizer));
    assert_int_equal(harpe_power_limit_optimum_w(optimizer), 0);
    run_steps(optimizer, 1);
    assert_true(harpe_power_limit_is_done(optimizer));
    assert_int_equal(harpe_power_limit_optimum_w(optimizer), 100);
    harpe_power_limit_on_epoch_end(optimizer);
    run_steps(optimizer, 500);
    assert_sets(self->sets_w, (size_t)self->set_count, "200 175 150 125 100");
    assert_string_equal(self->last_window, "__GlobalPowerLimitOptimizer_100");
    size_t count = 0;
    const harpe_power_limit_measurement *all = harpe_power_limit_measurements(optimizer, &count);
    assert_int_equal(count, 5);
    assert_int_equal(all[4].power_limit_w, 100);
    assert_true(all[4].time_s == 11);
    assert_int_equal(self->restores, 0);
    harpe_power_limit_optimizer_free(optimizer);
    assert_int_equal(self->restores, 1);
    assert_int_equal(self->errors_logged, 0);
}

static int choose_first(void *user, const harpe_power_limit_measurement *all, size_t count) {
    (void)all;
    *(size_t *)user = count;
    return 1;
}

static int choose_nothing(void *user, const harpe_power_limit_measurement *all, size_t count) {
    (void)user;
    (void)all;
    return (int)count; /* after the last */
}

SCRIPTED_TEST(the_users_selector_is_asked) {
    script(self, 100, 150);
    size_t seen = 0;
    self->options.selector = (harpe_power_limit_selector){choose_first, &seen};
    owned_optimizer optimizer = begin(self);
    run_steps(optimizer, 200);
    assert_int_equal(seen, 3);
    assert_int_equal(harpe_power_limit_optimum_w(optimizer), 125);
    harpe_power_limit_optimizer_free(optimizer);
    script(self, 100, 150);
    self->options.selector = (harpe_power_limit_selector){choose_nothing, NULL};
    optimizer = begin(self);
    run_steps(optimizer, 200);
    assert_int_equal(harpe_power_limit_optimum_w(optimizer), 150);
    assert_int_equal(self->warnings_logged, 1);
}

SCRIPTED_TEST(leaving_in_mid_window_closes_it_and_restores) {
    harpe_power_limit_optimizer *optimizer = construct(&self->device, NULL);
    run_steps(optimizer, 20);
    assert_int_equal(self->windows_open, 1);
    harpe_power_limit_optimizer_free(optimizer);
    assert_int_equal(self->windows_open, 0);
    assert_int_equal(self->restores, 1);
    harpe_power_limit_optimizer_free(NULL);
    harpe_power_limit_on_step_begin(NULL);
    harpe_power_limit_on_epoch_end(NULL);
    assert_false(harpe_power_limit_is_done(NULL));
}

/* ---- Measured logs --------------------------------------------------------------------------- */

/* Runs to the end. `epoch_steps` 0: epochs never end. Returns false if it is not done after 300
 * epochs. */
static bool replay_to_the_end(harpe_power_limit_replay *replay, harpe_power_limit_options options,
                              int epoch_steps, int *optimum_w) {
    owned_optimizer optimizer = construct(harpe_power_limit_replay_device(replay), &options);
    for (int step = 1; step <= 100000 && !harpe_power_limit_is_done(optimizer); step++) {
        harpe_power_limit_on_step_begin(optimizer);
        if (epoch_steps > 0 && step % epoch_steps == 0) {
            if (step / epoch_steps > 300) break;
            harpe_power_limit_on_epoch_end(optimizer);
        }
    }
    bool done = harpe_power_limit_is_done(optimizer);
    *optimum_w = harpe_power_limit_optimum_w(optimizer);
    assert_false(harpe_power_limit_has_failed(optimizer));
    return done;
}

static const harpe_power_limit_options by_default = {
    .wait_steps = -1, .warmup_steps = -1, .profile_steps = -1};

static void check_sequence(int epoch_steps, const char *expected) {
    owned_replay replay = open_measured_log("V100+resnet18+gpu0.csv");
    int optimum_w = 0;
    assert_true(replay_to_the_end(replay, by_default, epoch_steps, &optimum_w));
    size_t count = 0;
    const int *sets_w = harpe_power_limit_replay_sets(replay, &count);
    assert_sets(sets_w, count, expected);
    assert_int_equal(optimum_w, 150);
}

TEST(a_measured_log_gives_the_published_sequence) {
    check_sequence(1000, "250 225 200 175 150 125 100 150");
}

TEST(epoch_ends_interrupt_and_the_limit_is_tried_again) {
    check_sequence(190, "250 225 200 175 250 175 150 125 100 250 100 150");
}

typedef struct expected_optimum {
    char selector; /* c(ost), t(ime), e(nergy), s(lowdown) */
    double parameter;
    int optimum_w;
} expected_optimum;

static void check_optimum(const char *log, const expected_optimum *expected) {
    owned_replay replay = open_measured_log(log);
    harpe_power_limit_options options = by_default;
    harpe_selector_parameters parameters = {.eta = expected->parameter,
                                            .world_size =
                                                harpe_power_limit_replay_device(replay)->gpu_count,
                                            .maximum_slowdown = expected->parameter};
    harpe_status status = HARPE_OK;
    switch (expected->selector) {
    case 'c': status = harpe_selector_zeus_cost(&parameters, &options.selector, NULL); break;
    case 's': status = harpe_selector_max_slowdown(&parameters, &options.selector, NULL); break;
    default:
        options.selector =
            expected->selector == 't' ? harpe_selector_time() : harpe_selector_energy();
    }
    assert_int_equal(status, HARPE_OK);
    int optimum_w = 0;
    assert_true(replay_to_the_end(replay, options, 0, &optimum_w));
    assert_int_equal(optimum_w, expected->optimum_w);
}

TEST(measured_logs_give_the_published_optima) {
    static const expected_optimum v100[] = {{'c', 0, 250},    {'c', 0.25, 150}, {'c', 0.5, 150},
                                            {'c', 0.75, 150}, {'c', 1, 125},    {'t', 0, 250},
                                            {'e', 0, 125},    {'s', 1.0, 250},  {'s', 1.1, 150},
                                            {'s', 1.2, 125},  {'s', 2, 100}};
    static const expected_optimum a40[] = {{'c', 0, 275},    {'c', 0.25, 275}, {'c', 0.5, 300},
                                           {'c', 0.75, 300}, {'c', 1, 100},    {'t', 0, 275},
                                           {'s', 1.0, 275}};
    for (size_t i = 0; i < sizeof v100 / sizeof v100[0]; i++)
        check_optimum("V100+resnet18+gpu0.csv", &v100[i]);
    for (size_t i = 0; i < sizeof a40 / sizeof a40[0]; i++)
        check_optimum("A40+resnet18+gpu0,1,2,3.csv", &a40[i]);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static void check_fault(call failing, int fail_at) {
    scripted self;
    script(&self, 100, 200);
    self.failing = failing;
    self.fail_at = fail_at;
    harpe_power_limit_optimizer *optimizer = begin(&self);
    for (int step = 1; step <= 600; step++) {
        harpe_power_limit_on_step_begin(optimizer);
        if (step % 190 == 0) harpe_power_limit_on_epoch_end(optimizer);
    }
    assert_true(harpe_power_limit_has_failed(optimizer));
    assert_false(harpe_power_limit_is_done(optimizer));
    assert_int_equal(harpe_power_limit_current_w(optimizer), 0);
    assert_int_equal(self.errors_logged, 1);
    assert_int_equal(self.restores, 1);
    assert_int_equal(self.windows_open, 0);
    int calls = self.calls[0] + self.calls[1] + self.calls[2] + self.calls[3];
    run_steps(optimizer, 300);
    assert_int_equal(calls, self.calls[0] + self.calls[1] + self.calls[2] + self.calls[3]);
    harpe_power_limit_optimizer_free(optimizer);
    assert_int_equal(self.restores, 1);
}

TEST(a_fault_is_told_once_and_everything_is_put_back) {
    for (int at = 1; at < 7; at++) /* set call 0 is that of the constructor */
        check_fault(CALL_SET, at);
    for (int at = 0; at < 5; at++) {
        check_fault(CALL_BEGIN, at);
        check_fault(CALL_END, at);
        check_fault(CALL_CHECK, at * 30);
    }
}

SCRIPTED_TEST(a_fault_that_also_keeps_limits_from_being_put_back_is_one_line) {
    self->failing = CALL_SET;
    self->fail_at = 2;
    self->restore_fails = true;
    harpe_power_limit_optimizer *optimizer = begin(self);
    run_steps(optimizer, 300);
    assert_int_equal(self->errors_logged, 1);
    assert_non_null(strstr(self->last_error, "GPU 0 is lost"));
    assert_non_null(strstr(self->last_error, "GPU 0 stays as it is"));
    assert_null(strstr(self->last_error, "limits are restored"));
    harpe_power_limit_optimizer_free(optimizer);
    assert_int_equal(self->errors_logged, 1);
}

/* Every step checks an open window, except those that begin and end it. */
SCRIPTED_TEST(every_step_of_a_window_is_checked) {
    owned_optimizer optimizer = begin(self);
    run_steps(optimizer, 2 + 10 + 20);
    assert_int_equal(self->calls[CALL_CHECK], 20);
    run_steps(optimizer, 300);
    assert_int_equal(self->calls[CALL_CHECK], 5 * 39);
    harpe_power_limit_optimizer_free(optimizer);
    script(self, 100, 200);
    self->device.check_window = NULL; /* a device need not have this function */
    optimizer = begin(self);
    run_steps(optimizer, 300);
    assert_true(harpe_power_limit_is_done(optimizer));
}

SCRIPTED_TEST(a_first_set_that_fails_is_the_constructors_error) {
    self->failing = CALL_SET;
    harpe_power_limit_optimizer *optimizer = NULL;
    assert_int_equal(harpe_power_limit_optimizer_new(&self->device, NULL, &optimizer, &failure),
                     HARPE_GPU_LOST);
    assert_null(optimizer);
    assert_string_equal(failure.message, "GPU 0 is lost");
    assert_int_equal(self->restores, 1);
}

TEST(numbers_that_cannot_be_true_are_never_recorded) {
    const double factors[] = {0, -1, (double)NAN, (double)INFINITY};
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        scripted self;
        script(&self, 100, 200);
        self.energy_factor = factors[i];
        owned_optimizer optimizer = begin(&self);
        run_steps(optimizer, 600);
        size_t count = 1;
        (void)harpe_power_limit_measurements(optimizer, &count);
        assert_int_equal(count, 0);
        assert_true(harpe_power_limit_has_failed(optimizer));
        assert_int_equal(self.restores, 1);
    }
}

TEST(bad_values_are_refused) {
    const struct {
        harpe_power_limit_options options;
        int minimum_w, gpu_count;
    } cases[] = {
        {{.profile_steps = 1, .wait_steps = -2}, 100, 1},
        {{.profile_steps = 1, .warmup_steps = -2}, 100, 1},
        {{.profile_steps = 0}, 100, 1},
        {{.profile_steps = 1, .step_w = -25}, 100, 1},
        {{.profile_steps = 1, .world_size = -1}, 100, 1},
        {{.profile_steps = 1}, 0, 1},
        {{.profile_steps = 1}, 201, 1},
        {{.profile_steps = 1}, 100, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scripted self;
        script(&self, cases[i].minimum_w, 200);
        self.device.gpu_count = cases[i].gpu_count;
        harpe_power_limit_optimizer *optimizer = NULL;
        assert_int_equal(
            harpe_power_limit_optimizer_new(&self.device, &cases[i].options, &optimizer, NULL),
            HARPE_INVALID_ARGUMENT);
        assert_null(optimizer);
        assert_int_equal(self.set_count, 0);
    }
    assert_int_equal(harpe_power_limit_optimizer_new(NULL, NULL, NULL, NULL),
                     HARPE_INVALID_ARGUMENT);
}

/* ---- Limits that are not in force ------------------------------------------------------------ */

static void assert_measured(const harpe_power_limit_optimizer *optimizer, const char *expected) {
    int limits_w[64];
    size_t count = 0;
    const harpe_power_limit_measurement *all = harpe_power_limit_measurements(optimizer, &count);
    for (size_t i = 0; i < count; i++)
        limits_w[i] = all[i].power_limit_w;
    assert_sets(limits_w, count, expected);
}

static void check_outside_limit(int outside_w, const char *expected) {
    scripted self;
    script(&self, 100, 200);
    self.outside_w = outside_w;
    self.options.selector = harpe_selector_time();
    owned_optimizer optimizer = begin(&self);
    bool is_lower = outside_w < 200;
    int highest_w = is_lower ? outside_w : 200;
    assert_state(optimizer, HARPE_POWER_LIMIT_READY, highest_w, 2);
    assert_int_equal(harpe_power_limit_current_w(optimizer), highest_w);
    assert_int_equal(self.warnings_logged, is_lower);
    if (is_lower) assert_non_null(strstr(self.last_warning, "GPU 1 is limited to"));
    for (int step = 1; step <= 600; step++) {
        harpe_power_limit_on_step_begin(optimizer);
        if (step % 190 == 0) harpe_power_limit_on_epoch_end(optimizer);
    }
    assert_true(harpe_power_limit_is_done(optimizer));
    assert_measured(optimizer, expected);
    assert_int_equal(harpe_power_limit_optimum_w(optimizer), highest_w);
    assert_int_equal(self.errors_logged, 0);
}

TEST(limits_above_another_limit_are_one) {
    check_outside_limit(1000, "200 175 150 125 100");
    check_outside_limit(200, "200 175 150 125 100");
    check_outside_limit(199, "199 175 150 125 100");
    check_outside_limit(195, "195 175 150 125 100");
    check_outside_limit(175, "175 150 125 100");
    check_outside_limit(160, "160 150 125 100");
    check_outside_limit(101, "101 100");
    check_outside_limit(100, "100");
}

SCRIPTED_TEST(no_limit_has_an_effect_below_the_range) {
    self->outside_w = 90;
    harpe_power_limit_optimizer *optimizer = NULL;
    assert_refuses(harpe_power_limit_optimizer_new(&self->device, NULL, &optimizer, &failure),
                   HARPE_UNAVAILABLE, "GPU 1");
    assert_null(optimizer);
    assert_says(&failure, "90 W");
    assert_int_equal(self->restores, 1);
}

/* The device is asked once when the first limit is set, and at each step of a window. */
TEST(a_limit_that_stops_being_in_force_stops_the_optimizer) {
    for (int at = 1; at < 5 * 42; at++) {
        for (int is_raised = 0; is_raised < 2; is_raised++) {
            scripted self;
            script(&self, 100, 200);
            if (is_raised) self.raised_at = at;
            if (!is_raised) self.change_at = at;
            self.changed_w = 90;
            owned_optimizer optimizer = begin(&self);
            run_steps(optimizer, 2 + 5 * 50);
            size_t count = 0;
            (void)harpe_power_limit_measurements(optimizer, &count);
            assert_int_equal(count, (at - 1) / 41 < 5 ? (at - 1) / 41 : 5);
            bool has_failed = at <= 5 * 41 + 1; /* the last time: when the best limit is set */
            assert_int_equal(harpe_power_limit_has_failed(optimizer), has_failed);
            assert_int_equal(self.errors_logged, has_failed);
            if (has_failed)
                assert_non_null(strstr(self.last_error, is_raised ? "is raised" : "only 90 W"));
            assert_int_equal(self.restores, has_failed);
            assert_int_equal(self.windows_open, 0);
        }
    }
}

SCRIPTED_TEST(a_limit_that_comes_down_in_the_end_stops_the_optimizer) {
    char path[] = "/tmp/harpe-optimizer-XXXXXX";
    close(mkstemp(path));
    unlink(path);
    self->change_at = 5 * 41; /* at the last limit, whose window does not show it */
    self->changed_w = 150;
    self->options.selector = harpe_selector_time(); /* 200 W */
    self->options.profile_path = path;
    owned_optimizer optimizer = begin(self);
    run_steps(optimizer, 300);
    assert_true(harpe_power_limit_has_failed(optimizer));
    assert_int_equal(harpe_power_limit_optimum_w(optimizer), 0);
    assert_non_null(strstr(self->last_error, "set to 200 W, but only 150 W are in force"));
    assert_int_equal(access(path, F_OK), -1);
}

SCRIPTED_TEST(limits_that_a_driver_rounds_alike_are_one) {
    script(self, 180, 200);
    self->multiple_w = 5;
    self->options.step_w = 3;
    self->options.selector = harpe_selector_energy();
    owned_optimizer optimizer = begin(self);
    run_steps(optimizer, 2 + 8 * 50);
    assert_true(harpe_power_limit_is_done(optimizer));
    assert_measured(optimizer, "200 195 190 185 180");
}

SCRIPTED_TEST(a_raised_limit_is_noticed_after_the_optimum_is_set) {
    script(self, 200, 200);
    self->raised_at = 43; /* 41 in the window, and 1 when the limit is set */
    owned_optimizer optimizer = begin(self);
    run_steps(optimizer, 52);
    assert_true(harpe_power_limit_is_done(optimizer));
    run_steps(optimizer, 1);
    assert_true(harpe_power_limit_has_failed(optimizer));
    assert_false(harpe_power_limit_is_done(optimizer));
    assert_int_equal(self->errors_logged, 1);
    assert_int_equal(self->restores, 1);
    harpe_power_limit_optimizer_free(optimizer);
    script(self, 200, 200);
    optimizer = begin(self);
    run_steps(optimizer, 1000); /* it is not asked at each step */
    assert_true(self->in_force_calls < 100);
    self->outside_w = 150; /* the job still draws no more than its limit */
    run_steps(optimizer, 1000);
    assert_true(harpe_power_limit_is_done(optimizer));
}

/* ---- Profiles -------------------------------------------------------------------------------- */

SCRIPTED_TEST(a_saved_profile_is_used_at_once) {
    char folder[] = "/tmp/harpe-optimizer-XXXXXX";
    char path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/p.json", folder);
    self->options.selector = harpe_selector_energy();
    self->options.profile_path = path;
    self->options.device_model = "A model";
    harpe_power_limit_optimizer *optimizer = begin(self);
    run_steps(optimizer, 300);
    assert_true(harpe_power_limit_is_done(optimizer));
    harpe_power_limit_optimizer_free(optimizer);
    self->set_count = 0;
    optimizer = begin(self);
    assert_true(harpe_power_limit_is_done(optimizer));
    assert_sets(self->sets_w, (size_t)self->set_count, "100");
    harpe_power_limit_optimizer_free(optimizer);
    self->set_count = 0;
    self->options.device_model = "Another model";
    harpe_power_limit_optimizer *none = NULL;
    assert_int_equal(harpe_power_limit_optimizer_new(&self->device, &self->options, &none, NULL),
                     HARPE_INVALID_INPUT);
    assert_int_equal(self->set_count, 0);
    unlink(path);
    rmdir(folder);
}

static void check_profile_below(int outside_w, const char *sets, const char *measured) {
    char path[] = "/tmp/harpe-optimizer-XXXXXX";
    static const char text[] = "{\"measurements\":["
                               "{\"power_limit\":200,\"energy\":9,\"time\":1},"
                               "{\"power_limit\":150,\"energy\":8,\"time\":2},"
                               "{\"power_limit\":125,\"energy\":7,\"time\":3}]}";
    int file = mkstemp(path);
    assert_int_equal(write(file, text, sizeof text - 1), sizeof text - 1);
    close(file);
    scripted self;
    script(&self, 100, 200);
    self.outside_w = outside_w;
    self.options.selector = harpe_selector_time();
    self.options.profile_path = path;
    owned_optimizer optimizer = begin(&self);
    assert_int_equal(harpe_power_limit_is_done(optimizer), *measured != '\0');
    assert_sets(self.sets_w, (size_t)self.set_count, sets);
    assert_measured(optimizer, measured);
    run_steps(optimizer, 300);
    assert_true(harpe_power_limit_is_done(optimizer));
    assert_int_equal(harpe_power_limit_optimum_w(optimizer), self.sets_w[self.set_count - 1]);
    unlink(path);
}

/* A profile may be older than the limit that something else sets. */
TEST(loaded_limits_above_another_limit_are_not_used) {
    check_profile_below(0, "200", "200 150 125");
    check_profile_below(150, "200 150", "150 125");
    check_profile_below(140, "200 125", "125");
    check_profile_below(110, "200 110", "");
}

SCRIPTED_TEST(a_profile_that_cannot_be_saved_is_only_a_warning) {
    self->options.profile_path = "/nowhere/at/all/p.json";
    owned_optimizer optimizer = begin(self);
    run_steps(optimizer, 300);
    assert_true(harpe_power_limit_is_done(optimizer));
    assert_int_equal(self->warnings_logged, 1);
    assert_int_equal(self->restores, 0);
}

/* ---- Ranks ----------------------------------------------------------------------------------- */

enum { RANKS = 4 };

typedef struct rank {
    scripted self;
    harpe_status constructed;
    bool done, failed;
    int optimum_w;
    size_t measurement_count;
    harpe_power_limit_measurement measurements[16];
    harpe_power_limit_optimizer *optimizer;
} rank;

static void *run_rank(void *argument) {
    rank *one = argument;
    one->constructed = harpe_power_limit_optimizer_new(&one->self.device, &one->self.options,
                                                       &one->optimizer, NULL);
    if (one->constructed != HARPE_OK) return NULL;
    for (int step = 1; step <= 600; step++) {
        harpe_power_limit_on_step_begin(one->optimizer);
        if (step % 190 == 0) harpe_power_limit_on_epoch_end(one->optimizer);
    }
    const harpe_power_limit_measurement *found =
        harpe_power_limit_measurements(one->optimizer, &one->measurement_count);
    memcpy(one->measurements, found, one->measurement_count * sizeof *found);
    one->done = harpe_power_limit_is_done(one->optimizer);
    one->failed = harpe_power_limit_has_failed(one->optimizer);
    one->optimum_w = harpe_power_limit_optimum_w(one->optimizer);
    harpe_power_limit_optimizer_free(one->optimizer);
    return NULL;
}

static rank ranks[RANKS];
static meeting meeting_of_all;

static void prepare_ranks(void) {
    begin_meeting(&meeting_of_all, RANKS);
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (rank){.constructed = HARPE_OK};
        script(&ranks[i].self, 100, 200);
        ranks[i].self.options.all_reduce = all_reduce;
        ranks[i].self.options.all_reduce_user = &meeting_of_all;
    }
}

static void run_ranks(void) {
    pthread_t threads[RANKS];
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &ranks[i]), 0);
    for (int i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
    end_meeting(&meeting_of_all);
}

TEST(ranks_sum_energy_and_take_the_longest_time) {
    prepare_ranks();
    for (int i = 0; i < RANKS; i++)
        ranks[i].self.energy_factor = i + 1;
    run_ranks();
    for (int i = 0; i < RANKS; i++) {
        assert_true(ranks[i].done);
        assert_int_equal(ranks[i].measurement_count, 5);
        for (int k = 0; k < 5; k++) {
            assert_true(ranks[i].measurements[k].energy_j == ranks[0].measurements[k].energy_j);
            assert_true(ranks[i].measurements[k].time_s == ranks[0].measurements[k].time_s);
        }
        assert_true(ranks[i].measurements[0].energy_j == 1200.0 * (1 + 2 + 3 + 4));
        assert_int_equal(ranks[i].optimum_w, ranks[0].optimum_w);
        assert_int_equal(ranks[i].self.restores, 1);
    }
}

TEST(a_rank_that_fails_stops_all_and_hangs_none) {
    for (int which = CALL_SET; which <= CALL_CHECK; which++) {
        for (int at = 0; at < 6; at++) {
            prepare_ranks();
            ranks[2].self.failing = (call)which;
            ranks[2].self.fail_at = at;
            run_ranks();
            bool ended = ranks[2].self.calls[which] <= at; /* never reached that point */
            for (int i = 0; i < RANKS; i++) {
                bool stopped = ranks[i].constructed != HARPE_OK || ranks[i].failed;
                assert_int_equal(stopped, !ended);
                assert_int_equal(ranks[i].self.restores, 1);
                assert_int_equal(ranks[i].self.windows_open, 0);
            }
        }
    }
}

static int choose_own(void *user, const harpe_power_limit_measurement *all, size_t count) {
    (void)all;
    (void)count;
    return *(int *)user;
}

TEST(ranks_that_choose_differently_hold_the_highest) {
    int choices[RANKS] = {1, 1, 2, 1};
    prepare_ranks();
    for (int i = 0; i < RANKS; i++)
        ranks[i].self.options.selector = (harpe_power_limit_selector){choose_own, &choices[i]};
    run_ranks();
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(ranks[i].optimum_w, 200);
}

TEST(ranks_with_different_settings_are_refused_together) {
    prepare_ranks();
    ranks[1].self.options.warmup_steps = 3;
    run_ranks();
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(ranks[i].constructed, HARPE_INVALID_ARGUMENT);
    prepare_ranks();
    ranks[1].self.options.profile_steps = 0; /* cannot start at all */
    run_ranks();
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(ranks[i].constructed, i == 1 ? HARPE_INVALID_ARGUMENT : HARPE_UNAVAILABLE);
}

TEST(a_profile_that_one_rank_lacks_is_used_by_none) {
    char path[] = "/tmp/harpe-ranks-XXXXXX";
    static const char text[] = "{\"measurements\":[{\"power_limit\":150,\"energy\":1,\"time\":1}]}";
    int file = mkstemp(path);
    assert_int_equal(write(file, text, sizeof text - 1), sizeof text - 1);
    close(file);
    prepare_ranks();
    for (int i = 1; i < RANKS; i++)
        ranks[i].self.options.profile_path = path;
    run_ranks();
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(ranks[i].measurement_count, 5);
        assert_int_equal(ranks[i].self.sets_w[0], 200);
    }
    unlink(path);
}

TEST(ranks_under_different_limits_try_what_all_have) {
    prepare_ranks();
    ranks[1].self.outside_w = 180;
    ranks[3].self.outside_w = 140;
    run_ranks();
    for (int i = 0; i < RANKS; i++) {
        assert_true(ranks[i].done);
        assert_int_equal(ranks[i].measurement_count, 3);
        assert_int_equal(ranks[i].measurements[0].power_limit_w, 140);
        assert_int_equal(ranks[i].measurements[1].power_limit_w, 125);
        assert_int_equal(ranks[i].optimum_w, ranks[0].optimum_w);
        const char *who = i == 3 ? "GPU 1 is limited" : "a GPU of another rank is limited";
        assert_non_null(strstr(ranks[i].self.last_warning, who));
    }
    prepare_ranks();
    ranks[3].self.outside_w = 198; /* so near that it could be the driver's rounding */
    run_ranks();
    for (int i = 0; i < RANKS; i++) {
        assert_true(ranks[i].done);
        assert_int_equal(ranks[i].measurements[0].power_limit_w, 198);
    }
    prepare_ranks();
    ranks[2].self.outside_w = 50;
    run_ranks();
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(ranks[i].constructed, HARPE_UNAVAILABLE);
}

TEST(a_rank_without_its_limit_stops_all) {
    for (int at = 1; at < 5 * 42; at += 20) {
        prepare_ranks();
        ranks[2].self.change_at = at;
        ranks[2].self.changed_w = 50;
        run_ranks();
        for (int i = 0; i < RANKS; i++) {
            assert_true(ranks[i].failed);
            assert_int_equal(ranks[i].self.restores, 1);
        }
    }
    prepare_ranks();
    for (int i = 0; i < RANKS; i++) {
        ranks[i].self.options.step_w = 3;
        ranks[i].self.multiple_w = i == 2 ? 5 : 0;
    }
    run_ranks();
    for (int i = 0; i < RANKS; i++) {
        assert_true(ranks[i].failed);
        assert_non_null(strstr(ranks[i].self.last_error, "round"));
    }
}
