/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how the work for one job grows with its ranks, without connections: the server's engine,
 * with its store on disk, gets the calls of all ranks of a job directly. So the job can have more
 * ranks than the files that this machine lets one process open. bench_server measures the same
 * through HTTP.
 *
 * Usage: bench_engine [RANKS ...]        (by default 4096 to 65536; every size 5 times, medians) */
#include <errno.h>
#include <ftw.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/engine/engine.h"

enum { RUNS = 5, STAGES = 8, TENSOR = 8, PHASES = 4, SIZES_MAX = 16, DIRECTORIES = 16 };

static const char *const PHASE_NAMES[PHASES] = {"register", "ask", "report", "ask again"};

/* The figures of one run. */
typedef struct sample {
    double wall_ms[PHASES], cpu_us[PHASES]; /* processor time per rank, all threads */
    double kib;                             /* per rank, when all ranks ask */
} sample;

static char directory[] = "/tmp/harpe-bench-engine-XXXXXX";
static harpe_settings settings;
static harpe_loop *loop;
static harpe_workers *workers;
static harpe_store *store;
static harpe_scheduler_kind *scheduler;
static harpe_jobs *jobs;
static char job_id[600];
static int pending;

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static void clean(void) { (void)nftw(directory, remove_one, DIRECTORIES, FTW_DEPTH | FTW_PHYS); }

_Noreturn static void fail(const char *what) {
    fprintf(stderr, "bench_engine: %s\n", what);
    clean();
    exit(EXIT_FAILURE);
}

/* ---- The engine ------------------------------------------------------------------------------ */

static void start(void) {
    static char plan[] = "/plan.py";
    char path[64], where[80], args[128];
    harpe_error error = {0};
    snprintf(path, sizeof path, "%s%s", directory, plan);
    snprintf(where, sizeof where, "sqlite:%s/harpe.db", directory);
    snprintf(args, sizeof args, "{\"solution_path\": \"%s\"}", path);
    FILE *file = fopen(path, "we");
    if (!file) fail(strerror(errno));
    for (int stage = 0; stage < STAGES; stage++) {
        fprintf(file, "%s[(\"forward\", %d), (\"backward\", 1200)]", stage ? ", " : "[",
                1410 - 15 * stage);
    }
    fputs("]\n", file);
    fclose(file);
    harpe_log log = {0};
    bool is_ready =
        !harpe_loop_new(&loop, &error) &&
        !harpe_workers_new(loop, harpe_pools, 2, &workers, &error) &&
        !harpe_store_open(where, loop, log, &store, &error) &&
        !harpe_scheduler_kind_open("PointSolution3D", args, "{}", 10, log, &scheduler, &error);
    harpe_jobs_options options = {.loop = loop,
                                  .workers = workers,
                                  .store = store,
                                  .scheduler = scheduler,
                                  .settings = &settings};
    if (!is_ready || harpe_jobs_new(&options, &jobs, &error)) fail(error.message);
}

static void stop(void) {
    harpe_jobs_stop(jobs);
    harpe_workers_free(workers);
    harpe_store_close(store);
    harpe_jobs_free(jobs);
    harpe_scheduler_kind_close(scheduler);
    harpe_loop_free(loop);
    clean();
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static void answered(harpe_call *call, const harpe_call_answer *answer) {
    if (answer->http_status != 200) fail(answer->body ? answer->body : "refused");
    if (call->kind == HARPE_CALL_REGISTER_JOB)
        snprintf(job_id, sizeof job_id, "%.*s", (int)answer->length - 2, answer->body + 1);
    free(answer->body);
    free(call->job_id);
    free(call->body);
    free(call);
    if (--pending == 0) harpe_loop_stop(loop);
}

static void call_engine(harpe_call_kind kind, int rank, const char *body) {
    harpe_call *call = calloc(1, sizeof *call);
    if (!call) fail("out of memory");
    *call = (harpe_call){.kind = kind,
                         .job_id = strdup(job_id),
                         .rank = rank,
                         .round = -1,
                         .body = body ? strdup(body) : NULL,
                         .length = body ? strlen(body) : 0,
                         .answer = answered};
    harpe_jobs_handle(jobs, call);
}

/* Runs the loop until all answers have arrived. The first answers may already be there. */
static void wait_for_answers(void) {
    if (--pending > 0 && harpe_loop_run(loop, NULL)) fail("the loop ended");
    if (pending > 0) fail("answers are missing");
}

static void register_rank(int rank) {
    char body[640];
    int length = snprintf(body, sizeof body,
                          "{\"rank\": %d, \"dp_rank\": %d, \"pp_rank\": %d, \"tp_rank\": %d, "
                          "\"available_frequencies\": [1410",
                          rank, rank / (STAGES * TENSOR), rank / TENSOR % STAGES, rank % TENSOR);
    for (int mhz = 1395; mhz >= 210; mhz -= 15)
        length += snprintf(body + length, sizeof body - (size_t)length, ",%d", mhz);
    snprintf(body + length, sizeof body - (size_t)length, "]}");
    call_engine(HARPE_CALL_REGISTER_RANK, rank, body);
}

static void report(int rank) {
    char body[128];
    snprintf(body, sizeof body,
             "{\"rank\": %d, \"iter_time\": [6.8], \"iter_energy\": [900.1], "
             "\"time_breakdown\": {}, \"energy_breakdown\": {}}",
             rank);
    call_engine(HARPE_CALL_RESULT, rank, body);
}

static void ask(int rank) { call_engine(HARPE_CALL_SCHEDULE, rank, NULL); }

static double cpu_us(void) { return (double)clock() * 1e6 / CLOCKS_PER_SEC; }

static sample run(int ranks) {
    static void (*const phases[PHASES])(int rank) = {register_rank, ask, report, ask};
    char body[256];
    sample found = {0};
    start();
    double empty_kib = (double)mallinfo2().uordblks / 1024;
    snprintf(body, sizeof body,
             "{\"pp_degree\": %d, \"dp_degree\": %d, \"tp_degree\": %d, \"world_size\": %d}",
             STAGES, ranks / STAGES / TENSOR, TENSOR, ranks);
    pending = 2;
    call_engine(HARPE_CALL_REGISTER_JOB, 0, body);
    wait_for_answers();
    for (int p = 0; p < PHASES; p++) {
        double began_us = cpu_us();
        int64_t began_ns = harpe_clock_ns();
        pending = ranks + 1;
        for (int r = 0; r < ranks; r++)
            phases[p](r);
        wait_for_answers();
        found.wall_ms[p] = (double)(harpe_clock_ns() - began_ns) / 1e6;
        found.cpu_us[p] = (cpu_us() - began_us) / ranks;
    }
    found.kib = ((double)mallinfo2().uordblks / 1024 - empty_kib) / ranks;
    stop();
    return found;
}

/* ---- Results --------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *first, size_t stride) {
    double values[RUNS];
    for (int i = 0; i < RUNS; i++)
        values[i] = first[(size_t)i * stride];
    qsort(values, RUNS, sizeof *values, compare);
    return values[RUNS / 2];
}

static void print(int ranks, const sample *of) {
    size_t stride = sizeof *of / sizeof(double);
    printf("%7d", ranks);
    for (int p = 0; p < PHASES; p++)
        printf(" %9.0f %9.1f", median(&of->wall_ms[p], stride), median(&of->cpu_us[p], stride));
    printf(" %9.2f\n", median(&of->kib, stride));
}

int main(int argc, char **argv) {
    static sample samples[SIZES_MAX][RUNS];
    static const int DEFAULTS[] = {4096, 8192, 16384, 32768, 65536};
    int sizes[SIZES_MAX], count = 0;
    for (int i = 1; i < argc && count < SIZES_MAX; i++)
        sizes[count++] = atoi(argv[i]);
    for (size_t i = 0; argc == 1 && i < sizeof DEFAULTS / sizeof *DEFAULTS; i++)
        sizes[count++] = DEFAULTS[i];
    for (int i = 0; i < count; i++) {
        if (sizes[i] >= STAGES * TENSOR && sizes[i] % (STAGES * TENSOR) == 0) continue;
        fprintf(stderr, "bench_engine: RANKS is a multiple of %d\n", STAGES * TENSOR);
        return 2;
    }
    harpe_error error = {0};
    if (harpe_settings_init(&settings, &error)) fail(error.message);
    settings.dump_data = false;
    for (int r = 0; r < RUNS; r++) {
        for (int i = 0; i < count; i++) {
            memcpy(strrchr(directory, '-') + 1, "XXXXXX", 6);
            if (!mkdtemp(directory)) fail(strerror(errno));
            samples[i][r] = run(sizes[i]);
        }
    }
    printf("%7s", "ranks");
    for (int p = 0; p < PHASES; p++)
        printf(" %9s %9s", PHASE_NAMES[p], "us/rank");
    printf(" %9s\n", "KiB/rank");
    for (int i = 0; i < count; i++)
        print(sizes[i], samples[i]);
    harpe_settings_free(&settings);
    return 0;
}
