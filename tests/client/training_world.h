/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of the optimizer's tests, in a world: emulated GPUs, a real server with its store
 * on a disk in memory, and training loops that record every log line and the longest duration of a
 * call. Waits end after LIMIT_S of virtual time. */
#ifndef HARPE_TESTS_CLIENT_TRAINING_WORLD_H
#define HARPE_TESTS_CLIENT_TRAINING_WORLD_H

#include "world/in_world.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <harpe/pipeline_frequency.h>

#include "base/process.h"
#include "client/optimizer_internal.h"
#include "pfo/settings.h"
#include "server/server.h"
#include "world/disk.h"

enum { LIMIT_S = 120, MAX_RANKS = 4, MAX_LINES = 64, LOWEST_MHZ = 210, HIGHEST_MHZ = 1410 };

#define NOBODY "http://127.0.0.1:9" /* no server listens there */

static const world_machine machine = {.gpus = "4xA100", .time_scale = "20"};

/* ---- GPUs ------------------------------------------------------------------------------------ */

static inline int clock_mhz(int gpu) {
    harpe_gpus *gpus = NULL;
    harpe_gpus_options all = {.visible_devices = "all"};
    uint32_t graphics_mhz = 0;
    assert_int_equal(harpe_gpus_open(&all, &gpus, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_current_clocks(gpus, gpu, &graphics_mhz, NULL, NULL), HARPE_OK);
    harpe_gpus_close(gpus);
    return (int)graphics_mhz;
}

/* An idle GPU whose clock is not locked is at its lowest clock. A locked GPU is not. */
static inline bool clocks_are_back(int gpu) { return clock_mhz(gpu) == LOWEST_MHZ; }

/* ---- Server ---------------------------------------------------------------------------------- */

/* Stays until the end of its world. */
typedef struct server {
    const char *folder, *store;
    const char *const (*more)[2]; /* further settings, with a NULL name at the end; NULL: none */
    char url[64];
    harpe_disk *disk;
    pid_t process;
    harpe_server *running;
} server;

static inline bool accept_socket(void *user, int socket) {
    return harpe_server_adopt(((server *)user)->running, socket);
}

static inline int run_server(void *user) {
    server *one = user;
    char store[64], arguments[128];
    harpe_settings settings;
    snprintf(store, sizeof store, "world:%s/jobs.db", one->store);
    snprintf(arguments, sizeof arguments, "{\"solution_path\":\"%s/plan.py\"}", one->folder);
    const char *const usual[][2] = {{"store", store},        {"scheduler", "PointSolution"},
                                    {"dump_data", "false"},  {"scheduler_args", arguments},
                                    {"worker_threads", "2"}, {NULL, NULL}};
    const char *const(*lists[])[2] = {usual, one->more};
    assert_int_equal(harpe_settings_init(&settings, NULL), HARPE_OK);
    for (int list = 0; list < 2; list++)
        for (int i = 0; lists[list] && lists[list][i][0]; i++)
            assert_int_equal(harpe_settings_set(&settings, lists[list][i][0], lists[list][i][1],
                                                HARPE_FROM_FLAG, "test", NULL),
                             HARPE_OK);
    assert_works(harpe_server_new_enclosed(&settings, (harpe_log){0}, &one->running, &failure));
    assert_true(harpe_transport_serve(one->url, harpe_process_self(), accept_socket, one));
    return harpe_server_run(one->running, NULL) != HARPE_OK;
}

static inline void restart_server(server *one) {
    one->process = harpe_world_start("server", run_server, one);
}

static inline void kill_server(server *one) {
    harpe_world_kill(one->process);
    harpe_disk_abandon(one->disk, one->process);
}

/* Gives a server another store, which is empty. */
static inline void empty_store(server *one, const char *name) {
    one->store = name;
    assert_non_null(one->disk = harpe_disk_new(name, 1));
}

static inline server *start_server_with(const scratch *files, const char *const (*more)[2]) {
    server *one = calloc(1, sizeof *one);
    assert_non_null(one);
    *one = (server){.folder = files->root, .more = more, .url = "http://127.0.0.1:7787"};
    empty_store(one, "first");
    restart_server(one);
    return one;
}

/* ---- A training loop ------------------------------------------------------------------------- */

static const char *const step_of_4[] = {"forward", "forward", "backward", "backward"};

/* Writes a plan: one forward, one backward, and so on at these clocks for rank 0, and at lower
 * clocks for further ranks. */
static inline void write_plan(const char *folder, int ranks) {
    char path[512];
    snprintf(path, sizeof path, "%s/plan.py", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("[", file);
    for (int r = 0; r < ranks; r++) {
        fprintf(file, "[('forward', %d), ('forward', 0), ('backward', %d), ('backward', 1410)],\n",
                1200 - 15 * r, 1305 - 15 * r);
    }
    fputs("]\n", file);
    fclose(file);
}

/* Writes such a plan, and starts a server that follows it. */
static inline server *start_server(const scratch *files, int ranks) {
    write_plan(files->root, ranks);
    return start_server_with(files, NULL);
}

typedef struct training {
    harpe_pipeline_frequency_options options;
    harpe_pipeline_frequency_optimizer *optimizer;
    harpe_training_callback callback;
    pthread_t thread;
    atomic_bool is_over;
    const char *const *step; /* names of a step's instructions */
    size_t step_length;
    int evaluate_every; /* steps; 0: never */
    bool has_waited;    /* in a call */
    int line_count;
    char lines[MAX_LINES][512];
    harpe_log_level levels[MAX_LINES];
} training;

static inline void keep_line(void *user, harpe_log_level level, const char *line) {
    training *one = user;
    if (level < HARPE_LOG_INFO) return;
    if (one->line_count < MAX_LINES) {
        one->levels[one->line_count] = level;
        snprintf(one->lines[one->line_count++], sizeof one->lines[0], "%s", line);
    }
}

/* Returns the number of lines that contain `text`. */
static inline int count_lines(training *one, const char *text) {
    int count = 0;
    for (int i = 0; i < one->line_count; i++)
        count += strstr(one->lines[i], text) != NULL;
    return count;
}

static inline int count_warnings(training *one) {
    int count = 0;
    for (int i = 0; i < one->line_count; i++)
        count += one->levels[i] >= HARPE_LOG_WARNING;
    return count;
}

static inline void print_lines(training *one) {
    for (int i = 0; i < one->line_count; i++)
        print_message("  %s\n", one->lines[i]);
}

/* The training thread must never wait for a server, a driver or another thread. */
#define TIMED(one, call) \
    do { \
        int64_t begin_ns = harpe_clock_ns(); \
        call; \
        (one)->has_waited |= harpe_clock_ns() > begin_ns; \
    } while (0)

static inline void run_step(training *one, const char *const *names, size_t count) {
    harpe_pipeline_frequency_optimizer *optimizer = one->optimizer;
    TIMED(one, harpe_pipeline_frequency_on_step_begin(optimizer));
    for (size_t i = 0; i < count; i++) {
        TIMED(one, harpe_pipeline_frequency_on_instruction_begin(optimizer, names[i]));
        pause_s(0.001);
        TIMED(one, harpe_pipeline_frequency_on_instruction_end(optimizer, names[i]));
    }
    TIMED(one, harpe_pipeline_frequency_on_step_end(optimizer));
}

static inline void *train(void *user) {
    static const char *const evaluation[] = {"forward", "forward", "forward"};
    training *one = user;
    for (int step = 1; !atomic_load(&one->is_over); step++) {
        run_step(one, one->step, one->step_length);
        if (one->evaluate_every && step % one->evaluate_every == 0) run_step(one, evaluation, 3);
    }
    return NULL;
}

/* Starts rank `rank` of `ranks`, with one pipeline stage each, on GPU `rank`. */
static inline training *new_training(const char *server_url, int rank, int ranks) {
    training *one = calloc(1, sizeof *one);
    assert_non_null(one);
    one->step = step_of_4;
    one->step_length = 4;
    one->options = (harpe_pipeline_frequency_options){.rank = rank,
                                                      .pp_rank = rank,
                                                      .pp_degree = ranks,
                                                      .dp_degree = 1,
                                                      .tp_degree = 1,
                                                      .world_size = ranks,
                                                      .device_id = rank,
                                                      .server_url = server_url,
                                                      .job_key = "test job",
                                                      .iterations = 2,
                                                      .warmup_iterations = -1,
                                                      .log = {keep_line, one}};
    return one;
}

/* The usual times, but for pauses that a test would wait for. */
static inline harpe_pipeline_timeouts short_pauses(void) {
    harpe_pipeline_timeouts times = harpe_pipeline_usual_timeouts;
    times.meeting_s = 0.2;
    times.first_pause_s = 0.01;
    times.longest_pause_s = 0.05;
    times.first_controller_pause_s = 0.05;
    return times;
}

static inline void construct_with(training *one, const harpe_pipeline_timeouts *times) {
    assert_works(harpe_pipeline_new_with(&one->options, times, &one->optimizer, &failure));
}

static inline void construct(training *one) {
    harpe_pipeline_timeouts times = short_pauses();
    construct_with(one, &times);
}

/* Constructs the optimizer, and begins to train. */
static inline void begin_training(training *one) {
    construct(one);
    one->thread = start_thread(train, one);
}

static inline training *start_training(const char *server_url, int rank, int ranks) {
    training *one = new_training(server_url, rank, ranks);
    begin_training(one);
    return one;
}

static inline void stop_steps(training *one) {
    atomic_store(&one->is_over, true);
    if (one->thread) harpe_thread_join(one->thread);
    one->thread = 0;
}

/* Checks the properties that every training must have, whatever happened. */
static inline void end_training(training *one) {
    stop_steps(one);
    harpe_pipeline_frequency_free(one->optimizer);
    assert_false(one->has_waited);
    WAIT_FOR(clocks_are_back(one->options.device_id));
    free(one);
}

/* Stops the steps, and ends a training whose log has this many warnings. */
static inline void end_with_warnings(training *one, int warnings) {
    stop_steps(one);
    if (count_warnings(one) != warnings) print_lines(one);
    assert_int_equal(count_warnings(one), warnings);
    end_training(one);
}

static inline harpe_pipeline_frequency_status look(training *one) {
    return harpe_pipeline_frequency_get_status(one->optimizer);
}

static inline void assert_reaches_round(training *one, int64_t round) {
    harpe_error error;
    harpe_status status =
        harpe_pipeline_frequency_wait_for_round(one->optimizer, round, LIMIT_S, &error);
    if (status != HARPE_OK) {
        print_error("%s\n", error.message);
        print_lines(one);
    }
    assert_int_equal(status, HARPE_OK);
}

/* Waits until the condition is true. Fails with `what` if it never is. */
#define WAIT_UNTIL(one, condition) \
    do { \
        int64_t wait_end_ns = harpe_clock_ns() + (int64_t)LIMIT_S * 1000000000; \
        while (!(condition) && harpe_clock_ns() < wait_end_ns) \
            pause_s(0.02); \
        if (!(condition)) print_lines(one); \
        assert_true(condition); \
    } while (0)

/* Checks that steps go on. */
static inline void assert_trains_on(training *one) {
    uint64_t before = look(one).steps;
    WAIT_UNTIL(one, look(one).steps > before + 3);
}

#endif
