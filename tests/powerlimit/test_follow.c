/* SPDX-License-Identifier: Apache-2.0 */
/* The power limit optimizer in a fleet: a scripted device, a scripted server, one rank or several.
 * The limits that are set, and that no step waits for the server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "powerlimit/fleet_server.h"
#include "powerlimit/optimizer_internal.h"

/* Short times, so that the tests are short. */
static const harpe_power_member_times quick = {
    .report_s = 0.02, .answer_s = 1, .retry_s = 0.05, .refused_s = 0.05, .leave_s = LIMIT_S};

enum { RANKS = 3, GPUS = 2, STEPS_OF_PROFILE = 8 };

/* ---- A rank ---------------------------------------------------------------------------------- */

typedef struct rank {
    harpe_power_limit_device device;
    harpe_power_limit_options options;
    harpe_power_limit_optimizer *optimizer;
    int set_count, limit_w; /* of the device */
    int fails_at_w;         /* a limit that cannot be set; 0: none */
    double seconds;         /* time of a measurement */
    int restores;
    char last_error[512];
} rank;

static harpe_status set_limit(void *user, int limit_w, harpe_error *error) {
    rank *self = user;
    if (limit_w == self->fails_at_w) {
        if (error) snprintf(error->message, sizeof error->message, "GPU 0 is lost");
        return HARPE_GPU_LOST;
    }
    self->limit_w = limit_w;
    self->set_count++;
    return HARPE_OK;
}

static harpe_status begin_window(void *user, const char *name, harpe_error *error) {
    (void)user;
    (void)name;
    (void)error;
    return HARPE_OK;
}

/* Both GPUs draw their limit. */
static harpe_status end_window(void *user, const char *name, bool cancel, double *energy_j,
                               double *time_s, harpe_error *error) {
    (void)name;
    (void)error;
    rank *self = user;
    if (cancel) return HARPE_OK;
    *time_s = self->seconds * (1 + 20.0 / self->limit_w);
    *energy_j = GPUS * self->limit_w * *time_s;
    return HARPE_OK;
}

static harpe_status restore(void *user, harpe_error *error) {
    (void)error;
    rank *self = user;
    self->restores++;
    return HARPE_OK;
}

static harpe_status mean_power(void *user, double *power_w, harpe_error *error) {
    (void)user;
    (void)error;
    *power_w = 123;
    return HARPE_OK;
}

static void write_log(void *user, harpe_log_level level, const char *line) {
    rank *self = user;
    if (level == HARPE_LOG_ERROR) snprintf(self->last_error, sizeof self->last_error, "%s", line);
}

/* ---- Several ranks --------------------------------------------------------------------------- */

typedef struct meeting {
    pthread_barrier_t barrier;
    pthread_mutex_t lock;
    double values[16];
    int arrived;
} meeting;

static harpe_status all_reduce(void *user, double *values, size_t count, bool maximum,
                               harpe_error *error) {
    (void)error;
    meeting *all = user;
    pthread_mutex_lock(&all->lock);
    bool is_first = all->arrived++ == 0;
    for (size_t i = 0; i < count; i++) {
        double more = maximum ? (values[i] > all->values[i] ? values[i] : all->values[i])
                              : all->values[i] + values[i];
        all->values[i] = is_first ? values[i] : more;
    }
    pthread_mutex_unlock(&all->lock);
    pthread_barrier_wait(&all->barrier);
    memcpy(values, all->values, count * sizeof *values);
    if (pthread_barrier_wait(&all->barrier) == PTHREAD_BARRIER_SERIAL_THREAD) all->arrived = 0;
    pthread_barrier_wait(&all->barrier);
    return HARPE_OK;
}

static void prepare(rank *self, const harpe_power_limit_fleet *fleet) {
    *self = (rank){.seconds = 8e4};
    self->device = (harpe_power_limit_device){.user = self,
                                              .gpu_count = GPUS,
                                              .minimum_w = 100,
                                              .maximum_w = 300,
                                              .set_limit = set_limit,
                                              .begin_window = begin_window,
                                              .end_window = end_window,
                                              .restore = restore,
                                              .mean_power = mean_power};
    self->options = (harpe_power_limit_options){.warmup_steps = 1,
                                                .profile_steps = STEPS_OF_PROFILE,
                                                .step_w = 50,
                                                .selector = harpe_selector_time(),
                                                .log = {write_log, self},
                                                .fleet = fleet};
}

static void construct(rank *self) {
    harpe_error error = {.message = ""};
    if (harpe_optimizer_new_with(&self->device, &self->options, &quick, &self->optimizer, &error) !=
        HARPE_OK)
        fail_msg("%s", error.message);
}

static void step(rank *self, int count) {
    for (int i = 0; i < count; i++)
        harpe_power_limit_on_step_begin(self->optimizer);
}

static void measure(rank *self) {
    for (int i = 0; i < 1000 && !harpe_power_limit_is_done(self->optimizer); i++)
        step(self, 1);
    assert_true(harpe_power_limit_is_done(self->optimizer));
}

static void finish(rank *self) {
    harpe_power_limit_optimizer_free(self->optimizer);
    self->optimizer = NULL;
    assert_true(self->restores >= 1);
}

/* Trains until the limit has this value. */
static void train_until(rank *self, int limit_w) {
    for (double end_s = harpe_clock_s() + LIMIT_S; self->limit_w != limit_w;) {
        if (harpe_clock_s() > end_s)
            fail_msg("the limit stays at %d W instead of %d W", self->limit_w, limit_w);
        step(self, 1);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* ---- One rank -------------------------------------------------------------------------------- */

static void the_limit_follows_the_server(void **state) {
    (void)state;
    rank self;
    fleet_server server;
    start_fleet_server(&server);
    const harpe_power_limit_fleet fleet = {
        .server_url = server.url, .member = "m", .group = "row1", .weight = 2};
    prepare(&self, &fleet);
    construct(&self);
    wait_for_body(&server, server.declaration, &server.declared, "600"); /* 2 GPUs of 300 W */
    assert_true(fleet_text_has(&server, server.declaration, "row1"));
    set_fleet_plan(&server, 3);
    measure(&self);
    assert_int_equal(self.limit_w, 300); /* the own choice, until the server has answered */
    train_until(&self, 150);
    assert_int_equal(harpe_power_limit_optimum_w(self.optimizer), 300);
    assert_int_equal(harpe_power_limit_current_w(self.optimizer), 150);
    assert_true(harpe_power_limit_is_done(self.optimizer));
    /* Each change is reported at once, and the answer to that report is obeyed. */
    wait_for_body(&server, server.report, &server.reported, "\"plan\":3");
    set_fleet_plan(&server, 1);
    train_until(&self, 250);
    wait_for_body(&server, server.report, &server.reported, "\"plan\":1");
    finish(&self);
    assert_int_equal(fleet_count(&server, &server.removed), 1);
    stop_fleet_server(&server);
}

static void no_limit_is_higher_than_the_own_choice(void **state) {
    (void)state;
    rank self;
    fleet_server server;
    start_fleet_server(&server);
    const harpe_power_limit_fleet fleet = {.server_url = server.url, .member = "m"};
    prepare(&self, &fleet);
    harpe_selector_parameters parameters = {.maximum_slowdown = 1.1};
    assert_int_equal(harpe_selector_max_slowdown(&parameters, &self.options.selector, NULL),
                     HARPE_OK);
    construct(&self);
    measure(&self);
    int own_w = harpe_power_limit_optimum_w(self.optimizer);
    assert_in_range(own_w, 101, 299);
    wait_for_body(&server, server.declaration, &server.declared, "most_w");
    /* The server asks for the fastest plan, as it does without a budget. */
    int reported = fleet_count(&server, &server.reported);
    wait_for_fleet(&server, &server.reported, reported + 1);
    int sets = self.set_count;
    step(&self, 1000);
    assert_int_equal(self.set_count, sets);
    assert_int_equal(self.limit_w, own_w);
    finish(&self);
    stop_fleet_server(&server);
}

static void steps_do_not_wait_for_a_server_that_hangs(void **state) {
    (void)state;
    rank self;
    fleet_server server;
    start_fleet_server(&server);
    set_fleet_mode(&server, FLEET_HANGS, NULL);
    const harpe_power_limit_fleet fleet = {.server_url = server.url, .member = "m"};
    prepare(&self, &fleet);
    construct(&self);
    wait_for_fleet(&server, &server.unanswered, 1);
    measure(&self);
    step(&self, 100000);
    assert_int_equal(self.limit_w, 300);
    set_fleet_mode(&server, FLEET_SERVES, NULL);
    set_fleet_plan(&server, 4);
    train_until(&self, 100); /* after the request that hangs has ended */
    finish(&self);
    stop_fleet_server(&server);
}

static void a_fault_of_the_gpu_ends_the_steering(void **state) {
    (void)state;
    rank self;
    fleet_server server;
    start_fleet_server(&server);
    const harpe_power_limit_fleet fleet = {.server_url = server.url, .member = "m"};
    prepare(&self, &fleet);
    construct(&self);
    set_fleet_plan(&server, 2);
    measure(&self);
    train_until(&self, 200);
    self.fails_at_w = 150;
    set_fleet_plan(&server, 3);
    for (int i = 0; !harpe_power_limit_has_failed(self.optimizer); i++) {
        step(&self, 1);
        assert_true(i < LIMIT_S * 1000);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    assert_non_null(strstr(self.last_error, "GPU 0 is lost"));
    assert_int_equal(self.restores, 1);
    wait_for_body(&server, server.declaration, &server.declared, "600");
    /* The job draws power and reports it. */
    watch_fleet(&server, "\"plan\":0,\"power\":123");
    wait_for_fleet(&server, &server.seen, 1);
    finish(&self);
    assert_int_equal(fleet_count(&server, &server.removed), 1);
    stop_fleet_server(&server);
}

static void a_loaded_profile_is_declared_at_once(void **state) {
    (void)state;
    rank self;
    fleet_server server;
    char path[] = "/tmp/harpe-test-profile-XXXXXX";
    close(mkstemp(path));
    unlink(path);
    start_fleet_server(&server);
    const harpe_power_limit_fleet fleet = {.server_url = server.url, .member = "m"};
    for (int run = 0; run < 2; run++) {
        prepare(&self, run == 0 ? NULL : &fleet);
        self.options.profile_path = path;
        construct(&self);
        if (run == 0) {
            measure(&self);
        } else {
            assert_true(harpe_power_limit_is_done(self.optimizer));
            set_fleet_plan(&server, 4);
            train_until(&self, 100);
        }
        finish(&self);
    }
    unlink(path);
    stop_fleet_server(&server);
}

static void wrong_terms_make_no_optimizer(void **state) {
    (void)state;
    rank self;
    const harpe_power_limit_fleet fleet = {.server_url = "head-node"};
    prepare(&self, &fleet);
    harpe_error error = {.message = ""};
    assert_int_equal(
        harpe_power_limit_optimizer_new(&self.device, &self.options, &self.optimizer, &error),
        HARPE_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "http://HOST:PORT"));
    assert_int_equal(self.set_count, 0);
}

/* ---- Several ranks --------------------------------------------------------------------------- */

/* All ranks take the same number of steps. Each round of steps ends at a barrier. */
typedef struct crew {
    rank ranks[RANKS];
    meeting meeting;
    fleet_server server;
    harpe_power_limit_fleet fleet;
    pthread_barrier_t round;
    atomic_bool is_over;
} crew;

typedef struct hand {
    crew *crew;
    rank *rank;
} hand;

static void *work(void *argument) {
    hand *self = argument;
    construct(self->rank);
    pthread_barrier_wait(&self->crew->round);
    for (;;) {
        pthread_barrier_wait(&self->crew->round);
        if (atomic_load(&self->crew->is_over)) break;
        step(self->rank, 10);
        pthread_barrier_wait(&self->crew->round);
    }
    finish(self->rank);
    return NULL;
}

/* Lets all ranks take 10 steps. */
static void train_all(crew *all) {
    pthread_barrier_wait(&all->round);
    pthread_barrier_wait(&all->round);
}

/* `given`: to how many ranks the fleet is given. */
static void start_crew(crew *all, hand *hands, pthread_t *threads, int given) {
    memset(all, 0, sizeof *all);
    start_fleet_server(&all->server);
    all->fleet = (harpe_power_limit_fleet){.server_url = all->server.url, .member = "m"};
    pthread_barrier_init(&all->meeting.barrier, NULL, RANKS);
    pthread_mutex_init(&all->meeting.lock, NULL);
    pthread_barrier_init(&all->round, NULL, RANKS + 1);
    for (int i = 0; i < RANKS; i++) {
        prepare(&all->ranks[i], i >= RANKS - given ? &all->fleet : NULL);
        all->ranks[i].options.all_reduce = all_reduce;
        all->ranks[i].options.all_reduce_user = &all->meeting;
        all->ranks[i].seconds = STEPS_OF_PROFILE; /* a step takes a second, a meeting comes in 5 */
        hands[i] = (hand){all, &all->ranks[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &hands[i]), 0);
    }
    pthread_barrier_wait(&all->round);
}

static void end_crew(crew *all, pthread_t *threads) {
    atomic_store(&all->is_over, true);
    pthread_barrier_wait(&all->round);
    for (int i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
}

static void measure_all(crew *all) {
    for (int i = 0; i < 1000 && !harpe_power_limit_is_done(all->ranks[0].optimizer); i++)
        train_all(all);
    for (int i = 0; i < RANKS; i++)
        assert_true(harpe_power_limit_is_done(all->ranks[i].optimizer));
}

static void train_all_until(crew *all, int limit_w) {
    for (double end_s = harpe_clock_s() + LIMIT_S; all->ranks[0].limit_w != limit_w;) {
        if (harpe_clock_s() > end_s)
            fail_msg("the limit stays at %d W instead of %d W", all->ranks[0].limit_w, limit_w);
        train_all(all);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        for (int i = 1; i < RANKS; i++)
            assert_int_equal(all->ranks[i].limit_w, all->ranks[0].limit_w);
    }
}

static void check_ranks(int given) {
    static crew all;
    hand hands[RANKS];
    pthread_t threads[RANKS];
    start_crew(&all, hands, threads, given);
    fleet_server *server = &all.server;
    wait_for_body(server, server->declaration, &server->declared, "1800"); /* 6 GPUs of 300 W */
    set_fleet_plan(server, 3);
    measure_all(&all);
    train_all_until(&all, 150);
    wait_for_body(server, server->report, &server->reported, "\"plan\":3");
    watch_fleet(server, "\"power\":369"); /* three ranks of 123 W */
    for (double end_s = harpe_clock_s() + LIMIT_S; !fleet_count(server, &server->seen);) {
        assert_true(harpe_clock_s() < end_s);
        train_all(&all);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    set_fleet_plan(server, 1);
    train_all_until(&all, 250);
    end_crew(&all, threads);
    assert_int_equal(fleet_count(server, &server->removed), 1);
    stop_fleet_server(server);
}

static void one_rank_talks_and_all_follow(void **state) {
    (void)state;
    check_ranks(RANKS);
}

static void the_fleet_may_be_given_to_one_rank(void **state) {
    (void)state;
    check_ranks(1);
}

static void a_fault_of_one_rank_ends_the_steering_of_all(void **state) {
    (void)state;
    static crew all;
    hand hands[RANKS];
    pthread_t threads[RANKS];
    start_crew(&all, hands, threads, RANKS);
    fleet_server *server = &all.server;
    set_fleet_plan(server, 2);
    measure_all(&all);
    train_all_until(&all, 200);
    all.ranks[1].fails_at_w = 150;
    set_fleet_plan(server, 3);
    for (double end_s = harpe_clock_s() + LIMIT_S;
         !harpe_power_limit_has_failed(all.ranks[0].optimizer) ||
         !harpe_power_limit_has_failed(all.ranks[2].optimizer);) {
        assert_true(harpe_clock_s() < end_s);
        train_all(&all);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(all.ranks[i].restores, 1);
    wait_for_body(server, server->declaration, &server->declared, "1800");
    end_crew(&all, threads);
    stop_fleet_server(server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_limit_follows_the_server),
        cmocka_unit_test(no_limit_is_higher_than_the_own_choice),
        cmocka_unit_test(steps_do_not_wait_for_a_server_that_hangs),
        cmocka_unit_test(a_fault_of_the_gpu_ends_the_steering),
        cmocka_unit_test(a_loaded_profile_is_declared_at_once),
        cmocka_unit_test(wrong_terms_make_no_optimizer),
        cmocka_unit_test(one_rank_talks_and_all_follow),
        cmocka_unit_test(the_fleet_may_be_given_to_one_rank),
        cmocka_unit_test(a_fault_of_one_rank_ends_the_steering_of_all),
    };
    unsetenv("HARPE_TOKEN");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
