/* SPDX-License-Identifier: Apache-2.0 */
/* A scheduler under test with a small job and a directory of its own, and no processes left behind.
 * */
#ifndef HARPE_TESTS_SERVER_SCHEDULER_WORLD_H
#define HARPE_TESTS_SERVER_SCHEDULER_WORLD_H

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/scheduler/scheduler_host.h"

enum { RANKS_MAX = 8, TIMEOUT_S = 120 };

typedef struct world {
    char directory[PATH_MAX / 4];
    char path[PATH_MAX / 2];
    int warnings;
    harpe_job_info job;
    harpe_rank_info ranks[RANKS_MAX];
    harpe_scheduler_kind *kind;
    harpe_scheduler *scheduler;
    const harpe_frequency_schedule *schedules;
    harpe_error error;
} world;

static inline void count_warnings(void *user, harpe_log_level level, const char *line) {
    world *w = user;
    if (level == HARPE_LOG_WARNING && *line) w->warnings++;
}

static const int CLOCKS[] = {1410, 1200, 990};

static inline void make_job(world *w, int dp, int pp, int tp) {
    w->job = (harpe_job_info){"job", pp, dp, tp, pp * dp * tp, NULL, NULL};
    for (int r = 0; r < w->job.world_size; r++) {
        w->ranks[r] = (harpe_rank_info){.rank = r,
                                        .dp_rank = r / (pp * tp),
                                        .pp_rank = r / tp % pp,
                                        .tp_rank = r % tp,
                                        .available_frequencies_mhz = CLOCKS,
                                        .available_frequency_count = 3};
    }
}

static inline int set_up(void **state) {
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    snprintf(w->directory, sizeof w->directory, "/tmp/harpe-schedulers-XXXXXX");
    assert_non_null(mkdtemp(w->directory));
    make_job(w, 1, 2, 1);
    *state = w;
    return 0;
}

static inline void close_scheduler(world *w) {
    harpe_scheduler_free(w->scheduler);
    harpe_scheduler_kind_close(w->kind);
    w->scheduler = NULL;
    w->kind = NULL;
}

static inline int tear_down(void **state) {
    world *w = *state;
    close_scheduler(w);
    DIR *directory = opendir(w->directory);
    for (const struct dirent *entry; (entry = readdir(directory));)
        (void)unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
    rmdir(w->directory);
    free(w);
    /* Checks that neither a zombie nor a running child is left. */
    int left = waitpid(-1, NULL, WNOHANG);
    return left == -1 && errno == ECHILD ? 0 : -1;
}

static inline harpe_status open_kind(world *w, const char *name, const char *args, int timeout_s) {
    harpe_log log = {count_warnings, w};
    return harpe_scheduler_kind_open(name, args, "{}", timeout_s, log, &w->kind, &w->error);
}

static inline harpe_status new_scheduler(world *w) {
    return harpe_scheduler_new(w->kind, &w->job, w->ranks, NULL, &w->scheduler, &w->error);
}

#define must(w, call) \
    do { \
        if ((call) != HARPE_OK) fail_msg("%s", (w)->error.message); \
    } while (0)

static inline void start(world *w, const char *name, const char *args) {
    must(w, open_kind(w, name, args, TIMEOUT_S));
    must(w, new_scheduler(w));
}

static inline void next(world *w) {
    must(w, harpe_scheduler_next(w->scheduler, &w->schedules, &w->error));
}

static inline void assert_told(const world *w, const char *part) {
    assert_null(strchr(w->error.message, '\n'));
    if (!strstr(w->error.message, part))
        fail_msg("expected: ...%s...\nfound: %s", part, w->error.message);
}

static inline const char *write_file(world *w, const char *name, const char *text) {
    snprintf(w->path, sizeof w->path, "%s/%s", w->directory, name);
    FILE *file = fopen(w->path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    return w->path;
}

/* Lets every rank report one iteration of this energy. */
static inline harpe_status report(world *w, double energy_j) {
    static const double time_s = 1;
    harpe_profiling_result results[RANKS_MAX] = {0};
    for (int r = 0; r < w->job.world_size; r++) {
        results[r].rank = r;
        results[r].iteration_time_s = &time_s;
        results[r].iteration_energy_j = &energy_j;
        results[r].iteration_time_count = results[r].iteration_energy_count = 1;
    }
    return harpe_scheduler_observe(w->scheduler, results, (size_t)w->job.world_size, &w->error);
}

static inline void assert_all_at(const world *w, int frequency_mhz) {
    for (int r = 0; r < w->job.world_size; r++) {
        assert_int_equal(w->schedules[r].rank, r);
        assert_true(w->schedules[r].instruction_count > 0);
        for (size_t i = 0; i < w->schedules[r].instruction_count; i++)
            assert_int_equal(w->schedules[r].instructions[i].frequency_mhz, frequency_mhz);
    }
}

static inline void start_python(world *w, const char *prefix, const char *source, int timeout_s) {
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%sprogram:python3 %s %s/said", prefix,
             write_file(w, "program.py", source), w->directory);
    must(w, open_kind(w, name, "{}", timeout_s));
}

static inline void read_said(const world *w, char *text, size_t size) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/said", w->directory);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
}

#define SCHEDULER_TEST(name) TEST_ON(name, world *w, set_up, tear_down)

#endif
