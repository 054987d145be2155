/* SPDX-License-Identifier: Apache-2.0 */
/* The rule "idle" of the node agent: its reader, its decisions, and the agent with emulated GPUs in
 * virtual time. */
#include "world/in_world.h"

#include <inttypes.h>
#include <signal.h>

#include <harpe/frequency_controller.h>

#include "agent/agent.h"
#include "agent/agent_internal.h"
#include "base/process.h"
#include "gpu/saved_settings.h"

#define SECOND INT64_C(1000000000)
#define MS INT64_C(1000000)

/* ---- The reader ------------------------------------------------------------------------------ */

static const harpe_gpu_info first = {.uuid = "GPU-1", .pci_bus_id = "00000000:07:00.0"};
static const harpe_gpu_info second = {.uuid = "GPU-2", .pci_bus_id = "00000000:0A:00.0"};

TEST(the_rule_is_read) {
    static const struct {
        const char *rules;
        uint32_t first_mhz, second_mhz;
        double first_s;
    } rows[] = {
        {"", 0, 0, 0},
        {"idle = clock 345 after 5", 345, 345, 5},
        {"idle = all clock 345 after 0.25 # night", 345, 345, 0.25},
        {"idle = clock 345 after 5\nidle = GPU-2 off", 345, 0, 5},
        {"idle = 07:00.0 clock 600 after 9\nidle = clock 345 after 5", 600, 345, 9},
        {"idle = clock 345 after 5\nidle = all off", 0, 0, 0},
        {"idle = GPU-2\tclock 300 after 1e3", 0, 300, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        harpe_agent_policy policy;
        harpe_error error = {.message = ""};
        if (harpe_agent_policy_parse(rows[i].rules, strlen(rows[i].rules), "x", &policy, &error) !=
            HARPE_OK)
            fail_msg("%s", error.message);
        harpe_idle_rule rule = harpe_agent_policy_idle(&policy, &first);
        assert_int_equal(rule.clock_mhz, rows[i].first_mhz);
        assert_int_equal(rule.after_ns, (int64_t)(rows[i].first_s * 1e9));
        assert_int_equal(harpe_agent_policy_idle(&policy, &second).clock_mhz, rows[i].second_mhz);
        harpe_agent_policy_clear(&policy);
    }
}

TEST(a_wrong_rule_is_refused) {
    static const char *const rows[] = {
        "",
        "clock",
        "clock 345",
        "clock 345 after",
        "clock 345 5",
        "clock 0 after 5",
        "clock -1 after 5",
        "clock 345.5 after 5",
        "clock 100001 after 5",
        "clock 345 after 0",
        "clock 345 after 0.09",
        "clock 345 after -1",
        "clock 345 after nan",
        "clock 345 after inf",
        "clock 345 after 1000001",
        "clock 345 after 5 s",
        "0 clock 345 after 5",
        "all",
        "all on",
        "all clock 345 after 5 6",
        "limit 345 after 5",
        "off off off",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[128];
        harpe_agent_policy policy;
        harpe_error error = {.message = ""};
        (void)snprintf(text, sizeof text, "idle = %s", rows[i]);
        if (harpe_agent_policy_parse(text, strlen(text), "x", &policy, &error) == HARPE_OK)
            fail_msg("'%s' is taken", text);
        assert_non_null(strstr(error.message, "x: line 1: idle: expected [GPU] clock MHZ after"));
    }
}

/* ---- The decision ---------------------------------------------------------------------------- */

/* Looks at a GPU that works at random, and follows the steps. */
static void decide(void) {
    const harpe_idle_rule rule = {300, (int64_t)(harpe_world_draw(80) + 1) * SECOND / 10};
    const uint32_t idle_mw = 40000 + (uint32_t)harpe_world_draw(90000);
    harpe_idle_state state = {.is_held = false};
    int64_t now_ns = 1 + (int64_t)harpe_world_draw(1000);
    int64_t used_ns = now_ns;
    for (int i = 0; i < 400; i++) {
        bool works = harpe_world_draw(state.is_held ? 20 : 60) == 0;
        bool is_told = harpe_world_draw(2); /* by the utilisation, or by the power alone */
        bool is_used = works && (is_told || !state.is_held);
        uint32_t power_mw = idle_mw + (uint32_t)harpe_world_draw(4000) + works * 15000;
        bool was_held = state.is_held;
        bool knows_power = state.floor_mw > 0 && state.floor_mw < idle_mw + 4000;
        harpe_idle_step step = harpe_idle_take(&state, &rule, is_used, power_mw, now_ns);
        if (works && !was_held) used_ns = now_ns;
        if (was_held && works && (is_used || knows_power)) assert_int_equal(step, HARPE_IDLE_FREE);
        if (was_held && !works) assert_int_equal(step, HARPE_IDLE_STAY);
        if (!was_held) {
            bool is_due = now_ns - used_ns >= rule.after_ns;
            assert_int_equal(step, is_due ? HARPE_IDLE_HOLD : HARPE_IDLE_STAY);
        }
        if (step == HARPE_IDLE_HOLD) state = (harpe_idle_state){.is_held = true};
        if (step == HARPE_IDLE_FREE) {
            state = (harpe_idle_state){.is_held = false};
            used_ns = now_ns + MS; /* the next look begins to count */
        }
        int64_t pause_ns = harpe_idle_pause_ns(&state, &rule, now_ns);
        assert_true(pause_ns > 0 && pause_ns <= (state.is_held ? 20 * MS : SECOND));
        assert_true(state.is_held || pause_ns <= rule.after_ns / 2);
        now_ns += step == HARPE_IDLE_FREE ? MS : pause_ns;
    }
}

static void decide_at_random(void *user) {
    for (int i = 0; i < *(int *)user; i++)
        decide();
}

TEST(a_gpu_is_held_after_the_time_and_freed_at_the_first_sign) {
    int trials = few_trials(500);
    harpe_world_options options = {.seed = 3};
    harpe_error error = {.message = ""};
    if (harpe_world_run(&options, decide_at_random, &trials, &error) != HARPE_OK)
        fail_msg("%s", error.message);
}

TEST(a_gpu_that_must_be_freed_stays_so) {
    const harpe_idle_rule rule = {300, SECOND};
    harpe_idle_state held = {.is_held = true};
    assert_int_equal(harpe_idle_take(&held, &rule, false, 50000, 1), HARPE_IDLE_STAY);
    assert_int_equal(harpe_idle_take(&held, &rule, false, 54000, 2), HARPE_IDLE_STAY);
    assert_int_equal(harpe_idle_take(&held, &rule, false, 0, 3), HARPE_IDLE_STAY);
    assert_int_equal(harpe_idle_take(&held, &rule, false, 56000, 4), HARPE_IDLE_FREE);
    assert_int_equal(harpe_idle_take(&held, &rule, false, 50000, 5), HARPE_IDLE_FREE);
}

TEST(a_gpu_is_not_held_before_its_time) {
    const harpe_idle_rule rule = {300, SECOND};
    harpe_idle_state free_gpu = {.not_before_ns = 9 * SECOND};
    for (int64_t at_s = 1; at_s < 9; at_s++) {
        assert_int_equal(harpe_idle_take(&free_gpu, &rule, false, 0, at_s * SECOND),
                         HARPE_IDLE_STAY);
        assert_int_equal(harpe_idle_pause_ns(&free_gpu, &rule, at_s * SECOND), SECOND / 2);
    }
    assert_int_equal(harpe_idle_take(&free_gpu, &rule, false, 0, 9 * SECOND), HARPE_IDLE_HOLD);
}

/* ---- The agent ------------------------------------------------------------------------------- */

enum { LOW_MHZ = 345, HIGHEST_MHZ = 1410 };

/* A look, the claim and the driver call; on the machine `slow` 25 ms more. */
#define BACK_NS (25 * MS)
#define SLOW_NS (25 * MS)

static harpe_gpus *gpus;
static pid_t agent;
static bool is_ready;

static uint32_t clock_of(unsigned gpu) {
    int (*read)(unsigned gpu, uint32_t *current_mhz, uint32_t *next_mhz, int64_t *next_ns);
    uint32_t mhz = 0;
    *(void **)&read = dlsym(world_test_now->library, "harpe_emulator_clock");
    assert_int_equal(read(gpu, &mhz, NULL, NULL), 0);
    return mhz;
}

static void open_context(void) {
    int (*open)(unsigned gpu, uint64_t memory_bytes);
    *(void **)&open = dlsym(world_test_now->library, "harpe_emulator_open_context");
    assert_int_equal(open(0, 0), 0);
}

/* Works on GPU 0. `user` is the time at the highest clock, in s. */
static void *work(void *user) {
    int (*run)(unsigned gpu, double full_speed_s, double share, double *elapsed_s);
    *(void **)&run = dlsym(world_test_now->library, "harpe_emulator_work");
    (void)run(0, *(double *)user, 0.5, NULL);
    return NULL;
}

static int run_job(void *user) {
    (void)user;
    open_context();
    harpe_sleep_ns(INT64_MAX / 4);
    return 0;
}

static void note_line(void *user, harpe_log_level level, const char *line) {
    (void)user, (void)level;
    if (strncmp(line, "lends ", 6) == 0) is_ready = true;
}

static int run_agent(void *user) {
    char config[128], socket[128];
    harpe_error error = {.message = ""};
    (void)user;
    (void)snprintf(config, sizeof config, "%s/agent.conf", world_test_now->files->root);
    (void)snprintf(socket, sizeof socket, "%s/agent.sock", world_test_now->files->root);
    harpe_agent_options options = {
        .socket = socket, .config = config, .is_enclosed = true, .log = {note_line, NULL}};
    harpe_status status = harpe_agent_run(&options, &error);
    if (status != HARPE_OK) fprintf(stderr, "%s\n", error.message);
    return (int)status;
}

static void start_agent(void) {
    is_ready = false;
    agent = harpe_world_start("agent", run_agent, NULL);
    WAIT_FOR(is_ready);
}

static void start_agent_with(const char *rules) {
    put_file(scratch_path(world_test_now->files, "agent.conf"), rules);
    start_agent();
}

static void signal_agent(void) {
    int pidfd = harpe_process_open(agent);
    if (pidfd < 0) return; /* it has ended */
    assert_int_equal(harpe_process_signal(pidfd, SIGTERM), 0);
    (void)close(pidfd);
}

static void stop_agent(void) {
    signal_agent();
    assert_true(harpe_world_await(agent, harpe_clock_ns() + 60 * SECOND));
    assert_int_equal(harpe_world_exit_status(agent), 0);
}

static void stop_agent_at(uint32_t mhz) {
    stop_agent();
    assert_int_equal(clock_of(0), mhz);
}

/* Starts an agent, and waits until it holds the clock of a GPU without work. */
static void hold_idle_gpu(const char *rules) {
    open_context();
    start_agent_with(rules);
    WAIT_FOR(clock_of(0) == LOW_MHZ);
}

static bool has_record(void) {
    harpe_saved_settings record;
    return harpe_saved_settings_find(gpus, 0, HARPE_SAVED_CLOCKS, &record, NULL);
}

static void begin(void) {
    use_faults("");
    assert_int_equal(harpe_gpus_open(NULL, &gpus, NULL), HARPE_OK);
}

static void end(void) { harpe_gpus_close(gpus); }

static const world_machine machine = {.gpus = "1xA100",
                                      .begin = begin,
                                      .end = end,
                                      .program = {HARPE_RECEIVER_ARGUMENT, harpe_receiver_main}};

WORLD_TEST(a_loaded_gpu_without_work_is_held) {
    double work_s = 0.4;
    start_agent_with("idle = clock 350 after 2\n");
    pause_s(10);
    assert_false(has_record()); /* nobody has a context */
    open_context();
    assert_int_equal(clock_of(0), HIGHEST_MHZ);
    work(&work_s);
    int64_t ended_ns = harpe_clock_ns();
    WAIT_FOR(clock_of(0) == LOW_MHZ);
    int64_t after_ns = harpe_clock_ns() - ended_ns;
    /* The utilisation is of the last second, and a GPU in use is looked at once a second. */
    assert_true(after_ns >= 2 * SECOND && after_ns <= 4 * SECOND + 200 * MS);
    assert_true(has_record());
    for (int i = 0; i < 3; i++) {
        pthread_t worker = start_thread(work, &work_s);
        int64_t begun_ns = harpe_clock_ns();
        WAIT_FOR(clock_of(0) == HIGHEST_MHZ);
        assert_true(harpe_clock_ns() - begun_ns <= BACK_NS);
        harpe_thread_join(worker);
        assert_int_equal(clock_of(0), HIGHEST_MHZ);
        WAIT_FOR(clock_of(0) == LOW_MHZ);
    }
    stop_agent_at(HIGHEST_MHZ);
    assert_false(has_record());
}

WORLD_TEST(a_gpu_is_freed_when_its_last_process_ends) {
    pid_t job = harpe_world_start("job", run_job, NULL);
    start_agent_with("idle = clock 345 after 1\n");
    WAIT_FOR(has_record());
    harpe_world_kill(job);
    WAIT_FOR(!has_record());
    stop_agent();
}

/* Takes the clock as a trainer does, without the agent or with it, and gives it back. */
static void hold_clock(int mhz, double time_s) {
    harpe_frequency_controller_options options = {.gpus = gpus};
    harpe_frequency_controller *controller = NULL;
    harpe_error error = {.message = ""};
    int64_t begun_ns = harpe_clock_ns();
    if (harpe_frequency_controller_start(&options, &controller, &error) != HARPE_OK)
        fail_msg("%s", error.message);
    harpe_frequency_controller_set(controller, mhz);
    WAIT_FOR(clock_of(0) == (uint32_t)mhz);
    assert_true(harpe_clock_ns() - begun_ns < 500 * MS);
    for (int64_t end_ns = harpe_clock_ns() + (int64_t)(time_s * 1e9); harpe_clock_ns() < end_ns;
         harpe_sleep_ns(7 * MS))
        assert_int_equal(clock_of(0), mhz);
    harpe_frequency_controller_stop(controller);
    assert_int_equal(clock_of(0), HIGHEST_MHZ);
}

WORLD_TEST(whoever_claims_the_gpu_gets_it_at_once) {
    open_context();
    start_agent_with("idle = clock 345 after 1\nallow_users = *\n");
    for (int with_agent = 0; with_agent <= 1; with_agent++) {
        WAIT_FOR(clock_of(0) == LOW_MHZ);
        if (with_agent) setenv("HARPE_AGENT_SOCKET", scratch_path(files, "agent.sock"), 1);
        hold_clock(900, 5);
        hold_clock(LOW_MHZ + 15, 3);
        unsetenv("HARPE_AGENT_SOCKET");
    }
    WAIT_FOR(clock_of(0) == LOW_MHZ);
    stop_agent_at(HIGHEST_MHZ);
}

WORLD_TEST(a_gpu_whose_power_limit_is_held_is_left_alone) {
    harpe_holding_options options = {.kind = HARPE_SAVED_POWER, .trainer = harpe_process_self()};
    harpe_holding *holding = NULL;
    hold_idle_gpu("idle = clock 345 after 1\n");
    assert_int_equal(harpe_holding_take(gpus, 0, &options, &holding, NULL), HARPE_OK);
    holding->record.state.power_limit_mw = 400000;
    assert_int_equal(harpe_holding_save(holding, NULL), HARPE_OK);
    pause_s(1.1);
    for (int i = 0; i < 100; i++, pause_s(0.05))
        assert_int_equal(clock_of(0), HIGHEST_MHZ);
    harpe_holding_release(holding);
    WAIT_FOR(clock_of(0) == LOW_MHZ);
    stop_agent();
}

WORLD_TEST(a_clock_that_somebody_has_locked_stays) {
    open_context();
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 0, 1200, 1200, NULL), HARPE_OK);
    start_agent_with("idle = clock 345 after 0.5\n");
    for (int i = 0; i < 100; i++, pause_s(0.1))
        assert_int_equal(clock_of(0), 1200);
    stop_agent_at(1200);
    /* The administrator's own lock is known, and comes back. */
    start_agent_with("idle = clock 345 after 0.5\ndefault_locked_clocks = all 210 1200\n");
    WAIT_FOR(clock_of(0) == LOW_MHZ);
    stop_agent_at(1200);
}

WORLD_TEST(no_clock_is_raised) {
    open_context();
    start_agent_with("idle = clock 345 after 0.5\ndefault_locked_clocks = all 210 300\n");
    assert_int_equal(harpe_gpu_lock_graphics_clocks(gpus, 0, 210, 300, NULL), HARPE_OK);
    for (int i = 0; i < 100; i++, pause_s(0.1))
        assert_int_equal(clock_of(0), 300);
    assert_false(has_record());
    stop_agent();
}

WORLD_TEST(a_killed_agents_hold_is_put_back) {
    hold_idle_gpu("idle = clock 345 after 0.5\n");
    harpe_world_kill(agent);
    assert_int_equal(clock_of(0), LOW_MHZ);
    start_agent();
    assert_int_equal(clock_of(0), HIGHEST_MHZ);
    WAIT_FOR(clock_of(0) == LOW_MHZ);
    harpe_world_kill(agent);
    const harpe_saved_settings_recovery how = {.is_dry = false}; /* harpe gpus --restore */
    assert_int_equal(harpe_saved_settings_recover(gpus, &how, NULL), HARPE_OK);
    assert_int_equal(clock_of(0), HIGHEST_MHZ);
    start_agent();
    WAIT_FOR(clock_of(0) == LOW_MHZ);
    harpe_world_kill(agent);
    hold_clock(900, 1);
}

WORLD_TEST(a_driver_that_fails_is_asked_again) {
    double work_s = 3;
    hold_idle_gpu("idle = clock 345 after 0.5\n");
    use_faults("no_permission");
    pthread_t worker = start_thread(work, &work_s);
    pause_s(1);
    assert_int_equal(clock_of(0), LOW_MHZ);
    assert_true(has_record());
    use_faults("");
    pause_s(0.03);
    assert_int_equal(clock_of(0), HIGHEST_MHZ);
    harpe_thread_join(worker);
    use_faults("no_permission");
    pause_s(30);
    assert_int_equal(clock_of(0), HIGHEST_MHZ);
    assert_false(has_record());
    use_faults("");
    pause_s(20); /* a minute after a refusal */
    assert_int_equal(clock_of(0), HIGHEST_MHZ);
    WAIT_FOR(clock_of(0) == LOW_MHZ);
    use_faults("no_permission");
    signal_agent();
    pause_s(1);
    assert_true(harpe_world_is_alive(agent));
    use_faults("");
    stop_agent_at(HIGHEST_MHZ);
}

static const world_machine slow = {.gpus = "1xA100",
                                   .physics =
                                       "{\"switch_call_s\": 0.005, \"switch_latency_s\": 0.02}",
                                   .begin = begin,
                                   .end = end};

static const world_machine careless = {.gpus = "1xA100",
                                       .physics = "{\"switch_call_s\": 0.005, "
                                                  "\"switch_latency_s\": 0.02, "
                                                  "\"lock_ignored\": 0.1}",
                                       .begin = begin,
                                       .end = end};

WORLD_TEST_OF(a_driver_that_ignores_a_call_is_asked_again, careless) {
    double work_s = 1;
    int held = 0;
    open_context();
    start_agent_with("idle = clock 345 after 0.2\n");
    for (int i = 0; i < 40; i++) {
        pause_s(1.6);
        held += clock_of(0) == LOW_MHZ;
        pthread_t worker = start_thread(work, &work_s);
        pause_s(0.4); /* a call that is ignored costs 0.1 s */
        assert_int_equal(clock_of(0), HIGHEST_MHZ);
        harpe_thread_join(worker);
    }
    assert_true(held > 20);
    stop_agent();
}

WORLD_TEST(a_lost_gpu_is_free_when_it_returns) {
    hold_idle_gpu("idle = clock 345 after 0.2\n");
    use_faults("lost_after=0,returns_after=3");
    pause_s(2);
    assert_true(has_record());
    pause_s(2);
    use_faults("");
    open_context(); /* the reset has ended it */
    assert_int_equal(clock_of(0), HIGHEST_MHZ);
    WAIT_FOR(clock_of(0) == LOW_MHZ);
    use_faults("lost_after=0,returns_after=3");
    stop_agent();
    assert_true(has_record());
}

/* ---- Whatever happens ------------------------------------------------------------------------ */

typedef struct worker {
    double work_s;
    int64_t begun_ns; /* 0: it does not work */
    bool is_over;
} worker;

static void *work_at_random(void *user) {
    worker *self = user;
    while (!self->is_over) {
        pause_s((double)harpe_world_draw(4000) * 1e-3);
        self->work_s = (double)(harpe_world_draw(600) + 1) * 1e-3;
        self->begun_ns = harpe_clock_ns();
        work(&self->work_s);
        self->begun_ns = 0;
    }
    return NULL;
}

static void *kill_agents(void *user) {
    const worker *self = user;
    while (!self->is_over) {
        pause_s((double)harpe_world_draw(6000) * 1e-3);
        harpe_world_kill(agent);
        pause_s((double)harpe_world_draw(1000) * 1e-3);
        start_agent();
    }
    return NULL;
}

static void work_whatever_happens(void) {
    worker self = {.is_over = false};
    int held = 0;
    open_context();
    start_agent_with("idle = clock 345 after 0.3\n");
    pthread_t works = start_thread(work_at_random, &self);
    pthread_t kills = start_thread(kill_agents, &self);
    int64_t ready_ns = harpe_clock_ns();
    for (int i = 0; i < 20000; i++, harpe_sleep_ns(MS)) {
        int64_t now_ns = harpe_clock_ns();
        if (!is_ready || !harpe_world_is_alive(agent)) ready_ns = now_ns;
        const int64_t back_ns = BACK_NS + SLOW_NS;
        bool must_be_fast =
            self.begun_ns > 0 && now_ns - self.begun_ns > back_ns && now_ns - ready_ns > back_ns;
        if (must_be_fast) assert_int_equal(clock_of(0), HIGHEST_MHZ);
        held += clock_of(0) == LOW_MHZ;
    }
    self.is_over = true;
    harpe_thread_join(works);
    harpe_thread_join(kills);
    assert_true(held > 100);
    stop_agent_at(HIGHEST_MHZ);
    assert_false(has_record());
}

WORLD_TEST(the_gpu_works_at_its_clock_whatever_happens) { work_whatever_happens(); }
WORLD_TEST_OF(a_slow_gpu_works_at_its_clock_whatever_happens, slow) { work_whatever_happens(); }

/* A holder of the clock keeps it while agents are killed and the GPU is idle or works. */
WORLD_TEST(a_holder_keeps_its_clock_whatever_happens) {
    worker self = {.is_over = false};
    open_context();
    start_agent_with("idle = clock 345 after 0.2\n");
    pthread_t works = start_thread(work_at_random, &self);
    pthread_t kills = start_thread(kill_agents, &self);
    for (int i = 0; i < 12; i++) {
        hold_clock(300 + 15 * (int)harpe_world_draw(74), (double)harpe_world_draw(3000) * 1e-3);
        pause_s((double)harpe_world_draw(1500) * 1e-3);
    }
    self.is_over = true;
    harpe_thread_join(works);
    harpe_thread_join(kills);
    stop_agent_at(HIGHEST_MHZ);
    assert_false(has_record());
}
