/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of the optimizer's tests: emulated GPUs, a real `harpe serve`, and training loops
 * that record every log line and the longest duration of a call. The end of a test removes all of
 * it. Waits end after LIMIT_S. */
#ifndef HARPE_TESTS_CLIENT_TRAINING_WORLD_H
#define HARPE_TESTS_CLIENT_TRAINING_WORLD_H

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <harpe/pipeline_frequency.h>

#include "base/clock.h"
#include "base/scratch.h"
#include "client/optimizer_internal.h"

#define EMULATOR HARPE_BINARY_DIR "/emulator/libnvidia-ml.so.1"
#define PROGRAM HARPE_BINARY_DIR "/harpe"
#define TIME_SCALE "20"
/* The training thread must never wait for a server or a driver, which take seconds here. A loaded
 * machine may take the processor away for as long; such a call does not count, because only a call
 * that waits gives the processor up by itself. */
#define LONGEST_WAIT_S 0.5

enum { LIMIT_S = 120, MAX_RANKS = 4, MAX_LINES = 64, LOWEST_MHZ = 210, HIGHEST_MHZ = 1410 };

static inline void pause_s(double seconds) {
    struct timespec time = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    (void)nanosleep(&time, NULL);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

static inline void remove_cluster(void) {
    char path[160];
    snprintf(path, sizeof path, "/harpe-emulator-%u-test-training-%d", (unsigned)getuid(),
             (int)getpid());
    shm_unlink(path);
}

static inline int start_machine(void **state) {
    (void)state;
    char name[64];
    remove_cluster();
    snprintf(name, sizeof name, "test-training-%d", (int)getpid());
    setenv("HARPE_EMULATOR_CLUSTER", name, 1);
    setenv("HARPE_EMULATOR_GPUS", "4xA100", 1);
    setenv("HARPE_EMULATOR_TIME_SCALE", TIME_SCALE, 1);
    setenv("HARPE_NVML_LIBRARY", EMULATOR, 1);
    setenv("HARPE_PROGRAM", PROGRAM, 1);
    unsetenv("HARPE_EMULATOR_FAULTS");
    unsetenv("HARPE_TOKEN");
    unsetenv("ZEUSD_SOCK_PATH");
    return 0;
}

static inline int stop_machine(void **state) {
    (void)state;
    remove_cluster();
    return 0;
}

/* An idle GPU whose clock is not locked is at its lowest clock. A locked GPU is not. */
static inline bool clocks_are_back(int gpu) {
    harpe_gpus *gpus = NULL;
    harpe_gpus_options all = {.visible_devices = "all"};
    uint32_t graphics_mhz = 0;
    assert_int_equal(harpe_gpus_open(&all, &gpus, NULL), HARPE_OK);
    assert_int_equal(harpe_gpu_current_clocks(gpus, gpu, &graphics_mhz, NULL, NULL), HARPE_OK);
    harpe_gpus_close(gpus);
    return graphics_mhz == LOWEST_MHZ;
}

static inline void assert_clocks_are_back(int gpu) {
    int64_t end_ns = harpe_clock_ns() + (int64_t)LIMIT_S * 1000000000;
    while (!clocks_are_back(gpu) && harpe_clock_ns() < end_ns)
        pause_s(0.02);
    assert_true(clocks_are_back(gpu));
}

/* ---- Server ---------------------------------------------------------------------------------- */

typedef struct server {
    pid_t process;
    int port;
    char url[64];
} server;

static inline char *read_text(const char *path) {
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 1 << 16);
    if (file) {
        (void)!fread(text, 1, (1 << 16) - 1, file);
        fclose(file);
    }
    return text;
}

static inline int find_port(const char *log_path, pid_t process) {
    for (int i = 0; i < LIMIT_S * 50; i++) {
        char *text = read_text(log_path);
        const char *found = strstr(text, "listening on http");
        const char *end = found ? strchr(found, '\n') : NULL;
        const char *colon = end ? strrchr(strndupa(found, (size_t)(end - found)), ':') : NULL;
        int port = colon ? atoi(colon + 1) : 0;
        bool has_ended = waitpid(process, NULL, WNOHANG) != 0;
        if (port == 0 && has_ended) print_error("%s", text);
        free(text);
        if (port > 0 || has_ended) return port;
        pause_s(0.02);
    }
    return 0;
}

static pid_t server_process; /* the running server */

static inline void kill_server(server *one) {
    if (one->process <= 0) return;
    kill(one->process, SIGKILL);
    waitpid(one->process, NULL, 0);
    server_process = one->process = 0;
}

/* Starts a server. `arguments` are further ones, with NULL at the end; may be NULL. Port 0: any
 * free port. */
static inline server start_server(const char *folder, const char *store, int port,
                                  const char *const *arguments) {
    char text[8][512], log[512];
    const char *line[32] = {PROGRAM, "serve"};
    size_t count = 2;
    snprintf(log, sizeof log, "%s/serve-%lld.log", folder, (long long)harpe_clock_ns());
    snprintf(text[0], sizeof text[0], "--port=%d", port);
    snprintf(text[1], sizeof text[1], "--store=%s/%s", folder, store);
    snprintf(text[2], sizeof text[2], "--dump-dir=%s/dump", folder);
    snprintf(text[3], sizeof text[3], "--scheduler=PointSolution");
    snprintf(text[4], sizeof text[4], "--scheduler-args={\"solution_path\":\"%s/plan.py\"}",
             folder);
    for (int i = 0; i < 5; i++)
        line[count++] = text[i];
    while (arguments && *arguments)
        line[count++] = *arguments++;
    line[count] = NULL;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log, O_CREAT | O_WRONLY | O_APPEND,
                                     0600);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log, O_CREAT | O_WRONLY | O_APPEND,
                                     0600);
    server one = {0};
    assert_int_equal(posix_spawn(&one.process, PROGRAM, &files, NULL, (char *const *)line, environ),
                     0);
    posix_spawn_file_actions_destroy(&files);
    server_process = one.process;
    one.port = find_port(log, one.process);
    assert_int_not_equal(one.port, 0);
    snprintf(one.url, sizeof one.url, "http://127.0.0.1:%d", one.port);
    return one;
}

/* Setup and teardown of each test: a directory, and no server that survives a failure. */
static inline int make_world(void **state) { return scratch_make(state); }

static inline int remove_world(void **state) {
    kill_server(&(server){.process = server_process});
    return scratch_remove(state);
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

typedef struct training {
    harpe_pipeline_frequency_options options;
    harpe_pipeline_frequency_optimizer *optimizer;
    harpe_training_callback callback;
    pthread_t thread;
    atomic_bool is_over;
    const char *const *step; /* names of a step's instructions */
    size_t step_length;
    int evaluate_every;    /* steps; 0: never */
    double longest_wait_s; /* of a call that gave up the processor */
    pthread_mutex_t lock;  /* of the lines */
    int line_count;
    char lines[MAX_LINES][512];
    harpe_log_level levels[MAX_LINES];
} training;

static inline void keep_line(void *user, harpe_log_level level, const char *line) {
    training *one = user;
    if (level < HARPE_LOG_INFO) return;
    pthread_mutex_lock(&one->lock);
    if (one->line_count < MAX_LINES) {
        one->levels[one->line_count] = level;
        snprintf(one->lines[one->line_count++], sizeof one->lines[0], "%s", line);
    }
    pthread_mutex_unlock(&one->lock);
}

/* Returns the number of lines that contain `text`. */
static inline int count_lines(training *one, const char *text) {
    int count = 0;
    pthread_mutex_lock(&one->lock);
    for (int i = 0; i < one->line_count; i++)
        count += strstr(one->lines[i], text) != NULL;
    pthread_mutex_unlock(&one->lock);
    return count;
}

static inline int count_warnings(training *one) {
    int count = 0;
    pthread_mutex_lock(&one->lock);
    for (int i = 0; i < one->line_count; i++)
        count += one->levels[i] >= HARPE_LOG_WARNING;
    pthread_mutex_unlock(&one->lock);
    return count;
}

static inline void print_lines(training *one) {
    for (int i = 0; i < one->line_count; i++)
        print_message("  %s\n", one->lines[i]);
}

/* Returns how often the kernel has put this thread to sleep: voluntary context switches. */
static inline long waits(void) {
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_nvcsw;
}

#define TIMED(one, call) \
    do { \
        long before = waits(); \
        double begin_s = harpe_clock_s(); \
        call; \
        double took_s = harpe_clock_s() - begin_s; \
        if (waits() > before && took_s > (one)->longest_wait_s) (one)->longest_wait_s = took_s; \
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
    pthread_mutex_init(&one->lock, NULL);
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
    harpe_error error;
    harpe_status status = harpe_pipeline_new_with(&one->options, times, &one->optimizer, &error);
    if (status != HARPE_OK) print_error("%s\n", error.message);
    assert_int_equal(status, HARPE_OK);
}

static inline void construct(training *one) {
    harpe_pipeline_timeouts times = short_pauses();
    construct_with(one, &times);
}

static inline training *start_training(const char *server_url, int rank, int ranks) {
    training *one = new_training(server_url, rank, ranks);
    construct(one);
    assert_int_equal(pthread_create(&one->thread, NULL, train, one), 0);
    return one;
}

static inline void stop_steps(training *one) {
    atomic_store(&one->is_over, true);
    pthread_join(one->thread, NULL);
}

/* Checks the properties that every training must have, whatever happened. */
static inline void end_training(training *one) {
    if (one->thread) stop_steps(one);
    double begin_s = harpe_clock_s();
    harpe_pipeline_frequency_free(one->optimizer);
    assert_true(harpe_clock_s() - begin_s < LIMIT_S);
    assert_true(one->longest_wait_s < LONGEST_WAIT_S);
    assert_clocks_are_back(one->options.device_id);
    pthread_mutex_destroy(&one->lock);
    free(one);
}

/* Stops the steps, and ends a training whose log has this many warnings. */
static inline void end_with_warnings(training *one, int warnings) {
    stop_steps(one);
    one->thread = 0;
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
