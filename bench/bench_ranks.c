/* SPDX-License-Identifier: Apache-2.0 */
/* Runs many ranks in one process against one server. Each rank has the real optimizer of the
 * training side and a thread that stands in for its training loop. Checks that every rank runs
 * every round. There is no GPU; steps are pauses. bench/many_ranks starts this program and then
 * asks the server.
 *
 * Usage: bench_ranks URL RANKS ROUNDS [STEP_MS] */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <harpe/pipeline_frequency.h>

#include "base/clock.h"

enum { INSTRUCTIONS = 4, STACK_BYTES = 256 << 10 };

typedef struct rank {
    pthread_t thread;
    int number;
    int64_t skipped, steps, misfits, reconnects;
} rank;

static const char *url;
static int rank_count, round_count;
static double step_s = 0.02;
static char key[64];
static atomic_int warnings;
static pthread_barrier_t start_line;

static void on_log(void *user, harpe_log_level level, const char *line) {
    (void)user;
    if (level < HARPE_LOG_WARNING) return;
    /* there is no GPU, as each rank reports */
    if (strstr(line, "GPU") || strstr(line, "driver")) return;
    if (atomic_fetch_add(&warnings, 1) < 10) fprintf(stderr, "%s\n", line);
}

static void pause_s(double seconds) {
    struct timespec time = {.tv_nsec = (long)(seconds * 1e9)};
    (void)nanosleep(&time, NULL);
}

static void run_step(harpe_pipeline_frequency_optimizer *optimizer) {
    static const char *const names[] = {"forward", "backward"};
    harpe_pipeline_frequency_on_step_begin(optimizer);
    for (int i = 0; i < INSTRUCTIONS; i++) {
        harpe_pipeline_frequency_on_instruction_begin(optimizer, names[i % 2]);
        pause_s(step_s / INSTRUCTIONS);
        harpe_pipeline_frequency_on_instruction_end(optimizer, names[i % 2]);
    }
    harpe_pipeline_frequency_on_step_end(optimizer);
}

static void *train(void *argument) {
    rank *self = argument;
    harpe_error error;
    harpe_pipeline_frequency_optimizer *optimizer = NULL;
    harpe_pipeline_frequency_options options = {.rank = self->number,
                                                .pp_rank = self->number,
                                                .dp_degree = 1,
                                                .tp_degree = 1,
                                                .pp_degree = rank_count,
                                                .world_size = rank_count,
                                                .server_url = url,
                                                .job_key = key,
                                                .leave_clocks_alone = true,
                                                .iterations = 1,
                                                .warmup_iterations = -1,
                                                .log = {.write = on_log}};
    (void)pthread_barrier_wait(&start_line);
    if (harpe_pipeline_frequency_new(&options, &optimizer, &error)) {
        fprintf(stderr, "rank %d: %s\n", self->number, error.message);
        exit(EXIT_FAILURE);
    }
    int64_t seen = -1;
    while (seen < round_count) {
        run_step(optimizer);
        int64_t round = harpe_pipeline_frequency_get_status(optimizer).round;
        if (round > seen + 1) self->skipped += round - seen - 1;
        seen = round;
    }
    harpe_pipeline_frequency_status end = harpe_pipeline_frequency_get_status(optimizer);
    self->steps = (int64_t)end.steps;
    self->misfits = (int64_t)end.misfits;
    self->reconnects = (int64_t)end.reconnects;
    (void)pthread_barrier_wait(&start_line); /* no rank leaves while others wait for a round */
    harpe_pipeline_frequency_free(optimizer);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: bench_ranks URL RANKS ROUNDS [STEP_MS]\n");
        return 2;
    }
    url = argv[1];
    rank_count = atoi(argv[2]);
    round_count = atoi(argv[3]);
    if (argc > 4) step_s = atof(argv[4]) * 1e-3;
    (void)snprintf(key, sizeof key, "bench-%lld", (long long)harpe_clock_ns());
    rank *ranks = calloc((size_t)rank_count, sizeof *ranks);
    pthread_attr_t attributes;
    if (!ranks || pthread_attr_init(&attributes) ||
        pthread_attr_setstacksize(&attributes, STACK_BYTES) ||
        pthread_barrier_init(&start_line, NULL, (unsigned)rank_count))
        return EXIT_FAILURE;
    double began_s = harpe_clock_s();
    for (int r = 0; r < rank_count; r++) {
        ranks[r].number = r;
        if (pthread_create(&ranks[r].thread, &attributes, train, &ranks[r])) {
            fprintf(stderr, "cannot start a thread for rank %d\n", r);
            return EXIT_FAILURE;
        }
    }
    rank sum = {0};
    for (int r = 0; r < rank_count; r++) {
        (void)pthread_join(ranks[r].thread, NULL);
        sum.skipped += ranks[r].skipped;
        sum.steps += ranks[r].steps;
        sum.misfits += ranks[r].misfits;
        sum.reconnects += ranks[r].reconnects;
    }
    struct rusage use;
    (void)getrusage(RUSAGE_SELF, &use);
    printf("{\"ranks\": %d, \"rounds\": %d, \"seconds\": %.3f, \"skipped_rounds\": %lld, "
           "\"steps\": %lld, \"misfits\": %lld, \"reconnects\": %lld, \"warnings\": %d, "
           "\"processor_s\": %.2f, \"peak_mib\": %.0f}\n",
           rank_count, round_count, harpe_clock_s() - began_s, (long long)sum.skipped,
           (long long)sum.steps, (long long)sum.misfits, (long long)sum.reconnects,
           atomic_load(&warnings),
           (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
               1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec),
           (double)use.ru_maxrss / 1024);
    free(ranks);
    return sum.skipped || sum.misfits || atomic_load(&warnings) ? EXIT_FAILURE : EXIT_SUCCESS;
}
