/* SPDX-License-Identifier: Apache-2.0 */
/* The power limit optimizer in a fleet: a scripted device, a scripted server, one rank or several.
 * The limits that are set, and that no step waits for the server. */
#include "power_limit/fleet_server.h"
#include "power_limit/meeting.h"
#include "power_limit/optimizer.h"

/* Short times, so that the tests are short. */
static const harpe_power_member_times quick = {
    .report_s = 0.02, .answer_s = 1, .retry_s = 0.05, .refused_s = 0.05, .leave_s = LIMIT_S};

enum { RANKS = 3, GPUS = 2, STEPS_OF_PROFILE = 8 };

/* ---- A rank ---------------------------------------------------------------------------------- */

typedef struct rank {
    harpe_power_limit_device device;
    harpe_power_limit_options options;
    harpe_power_limit_optimizer *optimizer;
    harpe_power_member_times times;
    int set_count, limit_w; /* of the device */
    int fails_at_w;         /* a limit that cannot be set; 0: none */
    int outside_w;          /* the GPUs are limited to this from elsewhere; 0: they are not */
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

static harpe_status limit_in_force(void *user, int *limit_w, int *gpu, harpe_error *error) {
    (void)error;
    rank *self = user;
    bool is_lower = self->outside_w != 0 && self->outside_w < self->limit_w;
    *limit_w = is_lower ? self->outside_w : self->limit_w;
    *gpu = 0;
    return HARPE_OK;
}

static void write_log(void *user, harpe_log_level level, const char *line) {
    rank *self = user;
    if (level == HARPE_LOG_ERROR) snprintf(self->last_error, sizeof self->last_error, "%s", line);
}

static void prepare(rank *self, const harpe_power_limit_fleet *fleet) {
    *self = (rank){.times = quick, .seconds = 8e4};
    self->device = (harpe_power_limit_device){.user = self,
                                              .gpu_count = GPUS,
                                              .minimum_w = 100,
                                              .maximum_w = 300,
                                              .set_limit = set_limit,
                                              .begin_window = begin_window,
                                              .end_window = end_window,
                                              .restore = restore,
                                              .mean_power = mean_power,
                                              .limit_in_force = limit_in_force};
    self->options = (harpe_power_limit_options){.warmup_steps = 1,
                                                .profile_steps = STEPS_OF_PROFILE,
                                                .step_w = 50,
                                                .selector = harpe_selector_time(),
                                                .log = {write_log, self},
                                                .fleet = fleet};
}

static void construct(rank *self) {
    assert_works(harpe_optimizer_new_with(&self->device, &self->options, &self->times,
                                          &self->optimizer, &failure));
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

static void train(rank *self) {
    step(self, 1);
    nap();
}

/* ---- One rank -------------------------------------------------------------------------------- */

/* A job of one rank in the fleet of a server. */
typedef struct job {
    rank rank;
    fleet_server server;
    harpe_power_limit_fleet fleet;
} job;

/* Starts the server. The test may then change the options, and calls `construct`. */
static void begin(job *self) {
    start_fleet_server(&self->server);
    self->fleet = (harpe_power_limit_fleet){.server_url = self->server.url, .member = "m"};
    prepare(&self->rank, &self->fleet);
}

static void end(job *self) {
    finish(&self->rank);
    stop_fleet_server(&self->server);
}

/* Trains until the limit has this value. The message says what a test that hangs waits for. */
static void train_until(job *self, int limit_w) {
    print_message("waiting for a limit of %d W\n", limit_w);
    REPEAT_UNTIL(self->rank.limit_w == limit_w, train(&self->rank));
}

JOB_TEST(the_limit_follows_the_server) {
    self->fleet.group = "row1";
    self->fleet.weight = 2;
    construct(&self->rank);
    WAIT_FOR(strstr(server->declaration, "600")); /* 2 GPUs of 300 W */
    assert_non_null(strstr(server->declaration, "row1"));
    server->plan = 3;
    measure(&self->rank);
    assert_int_equal(self->rank.limit_w, 300); /* the own choice, until the server has answered */
    train_until(self, 150);
    assert_int_equal(harpe_power_limit_optimum_w(self->rank.optimizer), 300);
    assert_int_equal(harpe_power_limit_current_w(self->rank.optimizer), 150);
    assert_true(harpe_power_limit_is_done(self->rank.optimizer));
    /* Each change is reported at once, and the answer to that report is obeyed. */
    WAIT_FOR(strstr(server->report, "\"plan\":3"));
    server->plan = 1;
    train_until(self, 250);
    WAIT_FOR(strstr(server->report, "\"plan\":1"));
    finish(&self->rank);
    assert_int_equal(server->removed, 1);
}

JOB_TEST(no_limit_is_higher_than_the_own_choice) {
    harpe_selector_parameters parameters = {.maximum_slowdown = 1.1};
    assert_works(harpe_selector_max_slowdown(&parameters, &self->rank.options.selector, &failure));
    construct(&self->rank);
    measure(&self->rank);
    int own_w = harpe_power_limit_optimum_w(self->rank.optimizer);
    assert_in_range(own_w, 101, 299);
    WAIT_FOR(strstr(server->declaration, "most_w"));
    /* The server asks for the fastest plan, as it does without a budget. When the second report
     * comes, the member has read the answer to the first one. */
    int reported = server->reported;
    WAIT_FOR(server->reported >= reported + 2);
    int sets = self->rank.set_count;
    step(&self->rank, 1000);
    assert_int_equal(self->rank.set_count, sets);
    assert_int_equal(self->rank.limit_w, own_w);
}

JOB_TEST(steps_do_not_wait_for_a_server_that_hangs) {
    self->rank.times.answer_s = 1e5; /* a step that waited for the server would not end */
    self->rank.times.leave_s = 0.05;
    set_fleet_mode(server, FLEET_HANGS, NULL);
    construct(&self->rank);
    WAIT_FOR(server->unanswered >= 1);
    measure(&self->rank);
    step(&self->rank, 100000);
    assert_int_equal(self->rank.limit_w, 300);
}

JOB_TEST(a_fault_of_the_gpu_ends_the_steering) {
    construct(&self->rank);
    server->plan = 2;
    measure(&self->rank);
    train_until(self, 200);
    self->rank.fails_at_w = 150;
    server->plan = 3;
    REPEAT_UNTIL(harpe_power_limit_has_failed(self->rank.optimizer), train(&self->rank));
    assert_non_null(strstr(self->rank.last_error, "GPU 0 is lost"));
    assert_int_equal(self->rank.restores, 1);
    WAIT_FOR(strstr(server->declaration, "600"));
    /* The job draws power and reports it. */
    watch_fleet(server, "\"plan\":0,\"power\":123");
    WAIT_FOR(server->seen >= 1);
    finish(&self->rank);
    assert_int_equal(server->removed, 1);
}

WORLD_TEST(a_loaded_profile_is_declared_at_once) {
    job self;
    const char *path = scratch_path(files, "p.json");
    begin(&self);
    for (int run = 0; run < 2; run++) {
        prepare(&self.rank, run == 0 ? NULL : &self.fleet);
        self.rank.options.profile_path = path;
        construct(&self.rank);
        if (run == 0) {
            measure(&self.rank);
        } else {
            assert_true(harpe_power_limit_is_done(self.rank.optimizer));
            self.server.plan = 4;
            train_until(&self, 100);
        }
        finish(&self.rank);
    }
    end(&self);
}

/* The plans of a loaded profile, of which the fastest cannot run. */
WORLD_TEST(no_plan_above_another_limit_is_declared) {
    job self;
    const char *path = scratch_path(files, "p.json");
    begin(&self);
    fleet_server *server = &self.server;
    harpe_selector_parameters parameters = {.maximum_slowdown = 1.05};
    for (int run = 0; run < 2; run++) {
        prepare(&self.rank, run == 0 ? NULL : &self.fleet);
        self.rank.options.profile_path = path;
        assert_works(
            harpe_selector_max_slowdown(&parameters, &self.rank.options.selector, &failure));
        if (run == 1) self.rank.outside_w = 220;
        construct(&self.rank);
        if (run == 0) measure(&self.rank);
        assert_int_equal(harpe_power_limit_optimum_w(self.rank.optimizer), run == 0 ? 200 : 150);
        if (run == 1) {
            WAIT_FOR(strstr(server->declaration, "most_w"));
            assert_non_null(strstr(server->declaration, "\"power\":400"));
            assert_null(strstr(server->declaration, "\"power\":500"));
            assert_null(strstr(server->declaration, "\"power\":600"));
        }
        finish(&self.rank);
    }
    end(&self);
}

WORLD_TEST(wrong_terms_make_no_optimizer) {
    rank self;
    const harpe_power_limit_fleet fleet = {.server_url = "head-node"};
    prepare(&self, &fleet);
    assert_refuses(
        harpe_power_limit_optimizer_new(&self.device, &self.options, &self.optimizer, &failure),
        HARPE_INVALID_ARGUMENT, "http://HOST:PORT");
    assert_int_equal(self.set_count, 0);
}

/* ---- Several ranks --------------------------------------------------------------------------- */

/* All ranks take the same number of steps. Each round of steps ends at a barrier. */
typedef struct crew {
    rank ranks[RANKS];
    meeting meeting;
    fleet_server server;
    harpe_power_limit_fleet fleet;
    barrier round;
    bool is_over;
} crew;

typedef struct hand {
    crew *crew;
    rank *rank;
} hand;

static void *work(void *argument) {
    hand *self = argument;
    construct(self->rank);
    meet(&self->crew->round);
    for (;;) {
        meet(&self->crew->round);
        if (self->crew->is_over) break;
        step(self->rank, 10);
        meet(&self->crew->round);
    }
    finish(self->rank);
    return NULL;
}

/* Lets all ranks take 10 steps. */
static void train_all(crew *all) {
    meet(&all->round);
    meet(&all->round);
    nap();
}

/* `given`: to how many ranks the fleet is given. */
static void start_crew(crew *all, hand *hands, pthread_t *threads, int given) {
    memset(all, 0, sizeof *all);
    start_fleet_server(&all->server);
    all->fleet = (harpe_power_limit_fleet){.server_url = all->server.url, .member = "m"};
    begin_meeting(&all->meeting, RANKS);
    barrier_make(&all->round, RANKS + 1);
    for (int i = 0; i < RANKS; i++) {
        prepare(&all->ranks[i], i >= RANKS - given ? &all->fleet : NULL);
        all->ranks[i].options.all_reduce = all_reduce;
        all->ranks[i].options.all_reduce_user = &all->meeting;
        all->ranks[i].seconds = STEPS_OF_PROFILE; /* a step takes a second, a meeting comes in 5 */
        hands[i] = (hand){all, &all->ranks[i]};
        threads[i] = start_thread(work, &hands[i]);
    }
    meet(&all->round);
}

static void end_crew(crew *all, pthread_t *threads) {
    all->is_over = true;
    meet(&all->round);
    for (int i = 0; i < RANKS; i++)
        harpe_thread_join(threads[i]);
    end_meeting(&all->meeting);
}

static void measure_all(crew *all) {
    for (int i = 0; i < 1000 && !harpe_power_limit_is_done(all->ranks[0].optimizer); i++)
        train_all(all);
    for (int i = 0; i < RANKS; i++)
        assert_true(harpe_power_limit_is_done(all->ranks[i].optimizer));
}

static void train_all_alike(crew *all) {
    train_all(all);
    for (int i = 1; i < RANKS; i++)
        assert_int_equal(all->ranks[i].limit_w, all->ranks[0].limit_w);
}

static void train_all_until(crew *all, int limit_w) {
    print_message("waiting for a limit of %d W\n", limit_w);
    REPEAT_UNTIL(all->ranks[0].limit_w == limit_w, train_all_alike(all));
}

static void check_ranks(int given) {
    static crew all;
    hand hands[RANKS];
    pthread_t threads[RANKS];
    start_crew(&all, hands, threads, given);
    fleet_server *server = &all.server;
    WAIT_FOR(strstr(server->declaration, "1800")); /* 6 GPUs of 300 W */
    server->plan = 3;
    measure_all(&all);
    train_all_until(&all, 150);
    WAIT_FOR(strstr(server->report, "\"plan\":3"));
    watch_fleet(server, "\"power\":369"); /* three ranks of 123 W */
    REPEAT_UNTIL(server->seen > 0, train_all(&all));
    server->plan = 1;
    train_all_until(&all, 250);
    end_crew(&all, threads);
    assert_int_equal(server->removed, 1);
    stop_fleet_server(server);
}

WORLD_TEST(one_rank_talks_and_all_follow) { check_ranks(RANKS); }

WORLD_TEST(the_fleet_may_be_given_to_one_rank) { check_ranks(1); }

WORLD_TEST(a_fault_of_one_rank_ends_the_steering_of_all) {
    static crew all;
    hand hands[RANKS];
    pthread_t threads[RANKS];
    start_crew(&all, hands, threads, RANKS);
    fleet_server *server = &all.server;
    server->plan = 2;
    measure_all(&all);
    train_all_until(&all, 200);
    all.ranks[1].fails_at_w = 150;
    server->plan = 3;
    REPEAT_UNTIL(harpe_power_limit_has_failed(all.ranks[0].optimizer) &&
                     harpe_power_limit_has_failed(all.ranks[2].optimizer),
                 train_all(&all));
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(all.ranks[i].restores, 1);
    WAIT_FOR(strstr(server->declaration, "1800"));
    end_crew(&all, threads);
    stop_fleet_server(server);
}
