/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the cost of `harpe serve`: job set-up, rounds, memory of held ranks, and the reception
 * of results, with a store on disk. It starts a new server for every run, and plays all ranks of a
 * job from one epoll thread with one persistent connection for each rank. It ends even if the
 * server hangs. With --brief it measures only what every server of the published protocol has, so
 * that another program can take the place of `harpe serve` (bench/peers/published_server). */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "bench_case.h"
#include "bench_server_load.h"

enum { RUNS_MAX = 25, RESULT_RANKS = 1024, HELD_RANKS = 8192, REAL_MAX = 16 };
enum { RESULT_ROUNDS = 12, BRIEF_ROUNDS = 2, REAL_ROUNDS = 3, ITERATIONS = 5, MICROBATCHES = 32 };

typedef enum measure {
    SET_UP_64,
    SET_UP_1024,
    SET_UP_8192,
    CONNECT_8192,
    SET_UP_CPU,
    SET_UP_CHANGES,
    SET_UP_BATCHES,
    ROUND_8192,
    MEMORY,
    RESULTS,
    RESULTS_WITH_ROUNDS,
    RESULTS_CPU,
    RESULTS_BATCHES,
    REAL_RESULTS,
    REAL_RESULTS_CPU,
    BRIEF_CPU,
    BRIEF_MEMORY,
    MEASURES
} measure;

typedef struct samples {
    const char *key, *what, *target;
    int count;
    double values[RUNS_MAX];
} samples;

static samples all_samples[MEASURES] = {
    [SET_UP_64] = {.key = "set_up_64_ms", .what = "job set-up, 64 ranks, ms", .target = "<= 15"},
    [SET_UP_1024] = {.key = "set_up_1024_ms",
                     .what = "job set-up, 1024 ranks, ms",
                     .target = "<= 80"},
    [SET_UP_8192] = {.key = "set_up_8192_ms",
                     .what = "job set-up, 8192 ranks, ms",
                     .target = "<= 800"},
    [CONNECT_8192] = {.key = "connect_8192_ms", .what = "  connecting before it, ms", .target = ""},
    [SET_UP_CPU] = {.key = "set_up_8192_cpu_ms",
                    .what = "  processor time of the server, ms",
                    .target = ""},
    [SET_UP_CHANGES] = {.key = "set_up_8192_changes", .what = "  records stored", .target = ""},
    [SET_UP_BATCHES] = {.key = "set_up_8192_batches",
                        .what = "  transactions (one fsync each)",
                        .target = ""},
    [ROUND_8192] = {.key = "round_8192_ms",
                    .what = "round, 8192 ranks, last ask to last answer, ms",
                    .target = "<= 500"},
    [MEMORY] = {.key = "held_rank_kib", .what = "memory of a held rank, KiB", .target = "<= 8"},
    [RESULTS] = {.key = "results_per_s", .what = "results of 5 x 32, per s", .target = ">= 15000"},
    [RESULTS_WITH_ROUNDS] = {.key = "results_with_rounds_per_s",
                             .what = "  with the rounds between, per s",
                             .target = ""},
    [RESULTS_CPU] = {.key = "result_cpu_us",
                     .what = "  processor time of the server each, us",
                     .target = ""},
    [RESULTS_BATCHES] = {.key = "result_batches", .what = "  transactions", .target = ""},
    [REAL_RESULTS] = {.key = "real_results_per_s",
                      .what = "measured results (70 KB), per s",
                      .target = ""},
    [REAL_RESULTS_CPU] = {.key = "real_result_cpu_us",
                          .what = "  processor time of the server each, us",
                          .target = ""},
    [BRIEF_CPU] = {.key = "set_up_1024_cpu_ms",
                   .what = "  processor time of the server, ms",
                   .target = ""},
    [BRIEF_MEMORY] = {.key = "rank_kib", .what = "  memory of a rank after it, KiB", .target = ""},
};

static void record(measure which, double value) {
    samples *to = &all_samples[which];
    if (to->count < RUNS_MAX) to->values[to->count++] = value;
}

static double ms_since(int64_t start_ns) { return (double)(harpe_clock_ns() - start_ns) / 1e6; }

/* ---- Requests of the ranks ------------------------------------------------------------------- */

static const char *tails[REAL_MAX]; /* the rest of a result, after {"rank": R */
static int tail_count;

/* tp changes fastest, then pp, then dp: the order of ranks in a job of 8 stages. */
static void say_rank(load_job *load, load_rank *rank) {
    char body[640];
    int r = rank->number;
    int length =
        snprintf(body, sizeof body,
                 "{\"rank\": %d, \"dp_rank\": %d, \"pp_rank\": %d, \"tp_rank\": %d, "
                 "\"available_frequencies\": [1410",
                 r, r / (LOAD_STAGES * load->tp), r / load->tp % LOAD_STAGES, r % load->tp);
    for (int mhz = 1395; mhz >= 210; mhz -= 15)
        length += snprintf(body + length, sizeof body - (size_t)length, ",%d", mhz);
    snprintf(body + length, sizeof body - (size_t)length, "]}");
    load_say(load, rank, "POST", "/register_rank/", body, "");
}

static void say_ask(load_job *load, load_rank *rank) {
    load_say(load, rank, "GET", "/schedule/", NULL, NULL);
}

static bool register_and_ask(load_job *load, load_rank *rank, int step) {
    if (step == 0) say_rank(load, rank);
    if (step == 1) say_ask(load, rank);
    return step < 2;
}

static bool ask(load_job *load, load_rank *rank, int step) {
    if (step == 0) say_ask(load, rank);
    return step < 1;
}

static bool post_result(load_job *load, load_rank *rank, int step) {
    char body[32];
    if (step > 0) return false;
    snprintf(body, sizeof body, "{\"rank\": %d", rank->number);
    load_say(load, rank, "POST", "/result/", body, tails[rank->number % tail_count]);
    return true;
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

static void append_breakdown(harpe_text *text, const char *name, double around) {
    harpe_text_printf(text, ", \"%s\": {", name);
    for (int i = 0; i < 2 * ITERATIONS; i++) {
        if (i % ITERATIONS == 0)
            harpe_text_printf(text, "%s: [", i == 0 ? "\"forward\"" : "], \"backward\"");
        harpe_text_printf(text, i % ITERATIONS ? ", [" : "[");
        for (int m = 0; m < MICROBATCHES; m++) {
            double value = around * (1 + (double)rand() / RAND_MAX / 10);
            harpe_text_printf(text, m ? ", %.17g" : "%.17g", value);
        }
        harpe_text_printf(text, "]");
    }
    harpe_text_printf(text, "]}");
}

static char *synthetic_tail(void) {
    harpe_text text = {0};
    harpe_text_printf(&text, ", \"iter_time\": [6.8, 6.8, 6.8, 6.8, 6.8], "
                             "\"iter_energy\": [900.1, 900.1, 900.1, 900.1, 900.1]");
    append_breakdown(&text, "time_breakdown", 0.07);
    append_breakdown(&text, "energy_breakdown", 19.3);
    harpe_text_printf(&text, "}");
    return text.data;
}

/* Returns the number of results of real ranks, or 0 if the data is missing. */
static int read_real_tails(char **to) {
    const char *data = getenv("HARPE_DATA");
    char path[512];
    snprintf(path, sizeof path, "%s/results/bert_a100_pp4_mb32.prof.json",
             data ? data : "../shared/data");
    json_t *list = json_load_file(path, 0, NULL);
    int count = 0;
    for (size_t i = 0; i < json_array_size(list) && count < REAL_MAX; i++) {
        json_t *result = json_array_get(list, i);
        json_object_del(result, "rank");
        char *text = json_dumps(result, JSON_REAL_PRECISION(17));
        if (!text) continue;
        text[0] = ',';
        to[count++] = text;
    }
    json_decref(list);
    return count;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

static void set_up(load_job *load, int ranks, measure which) {
    int64_t start_ns = harpe_clock_ns();
    load_connect(load, ranks);
    if (which == SET_UP_8192) record(CONNECT_8192, ms_since(start_ns));
    double cpu_s = load_server_cpu_s(load);
    start_ns = harpe_clock_ns();
    load_register_job(load);
    load_start(load, 0, ranks, register_and_ask);
    load_finish(load);
    record(which, ms_since(start_ns));
    if (which != SET_UP_8192) return;
    record(SET_UP_CPU, (load_server_cpu_s(load) - cpu_s) * 1e3);
    record(SET_UP_CHANGES, load_metric(load, "harpe_store_changes_total"));
    record(SET_UP_BATCHES, load_metric(load, "harpe_store_batches_total"));
}

/* Waits until all ranks but one are held. Then the last rank asks. */
static void one_round(load_job *load, double empty_kib) {
    static const char SHORT_RESULT[] = ", \"iter_time\": [6.8], \"iter_energy\": [900.1]}";
    int ranks = load->rank_count;
    tails[0] = SHORT_RESULT;
    tail_count = 1;
    load_start(load, 0, ranks, post_result);
    load_finish(load);
    load_start(load, 0, ranks - 1, ask);
    load_wait_metric(load, "harpe_ranks_waiting", ranks - 1);
    record(MEMORY, (load_server_kib(load) - empty_kib) / (ranks - 1));
    int64_t start_ns = harpe_clock_ns();
    load_start(load, ranks - 1, 1, ask);
    load_finish(load);
    record(ROUND_8192, ms_since(start_ns));
}

static void measure_jobs(const char *harpe) {
    static const struct {
        int ranks;
        measure which;
    } SIZES[] = {{64, SET_UP_64}, {1024, SET_UP_1024}, {HELD_RANKS, SET_UP_8192}};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        load_job *load = load_open(harpe);
        double empty_kib = load_server_kib(load);
        set_up(load, SIZES[i].ranks, SIZES[i].which);
        if (SIZES[i].ranks == HELD_RANKS) one_round(load, empty_kib);
        load_close(load);
    }
}

/* Rates count only the time in which results are sent and acknowledged. The time in between is
 * reported separately. */
static void measure_results(const char *harpe, int rounds, bool is_real) {
    load_job *load = load_open(harpe);
    load_connect(load, RESULT_RANKS);
    load_register_job(load);
    load_start(load, 0, RESULT_RANKS, register_and_ask);
    load_finish(load);
    double batches = load_metric(load, "harpe_store_batches_total");
    double cpu_s = load_server_cpu_s(load), posting_ms = 0;
    int64_t start_ns = harpe_clock_ns();
    for (int round = 0; round < rounds; round++) {
        int64_t round_ns = harpe_clock_ns();
        load_start(load, 0, RESULT_RANKS, post_result);
        load_finish(load);
        posting_ms += ms_since(round_ns);
        load_start(load, 0, RESULT_RANKS, ask);
        load_finish(load);
    }
    double results = (double)rounds * RESULT_RANKS, whole_ms = ms_since(start_ns);
    cpu_s = load_server_cpu_s(load) - cpu_s;
    record(is_real ? REAL_RESULTS : RESULTS, results / posting_ms * 1e3);
    record(is_real ? REAL_RESULTS_CPU : RESULTS_CPU, cpu_s / results * 1e6);
    if (!is_real) {
        record(RESULTS_WITH_ROUNDS, results / whole_ms * 1e3);
        record(RESULTS_BATCHES, load_metric(load, "harpe_store_batches_total") - batches);
    }
    load_close(load);
}

/* ---- Brief ----------------------------------------------------------------------------------- */

static void post_results_briefly(load_job *load) {
    double posting_ms = 0, posting_cpu_s = 0;
    for (int round = 0; round < BRIEF_ROUNDS; round++) {
        double cpu_s = load_server_cpu_s(load);
        int64_t start_ns = harpe_clock_ns();
        load_start(load, 0, load->rank_count, post_result);
        load_finish(load);
        posting_ms += ms_since(start_ns);
        posting_cpu_s += load_server_cpu_s(load) - cpu_s;
        load_start(load, 0, load->rank_count, ask);
        load_finish(load);
    }
    double results = (double)BRIEF_ROUNDS * load->rank_count;
    record(RESULTS, results / posting_ms * 1e3);
    record(RESULTS_CPU, posting_cpu_s / results * 1e6);
}

static void measure_briefly(const char *harpe, int ranks, measure which) {
    load_job *load = load_open(harpe);
    double empty_kib = load_server_kib(load), cpu_s = load_server_cpu_s(load);
    set_up(load, ranks, which);
    if (which == SET_UP_1024) {
        record(BRIEF_CPU, (load_server_cpu_s(load) - cpu_s) * 1e3);
        record(BRIEF_MEMORY, (load_server_kib(load) - empty_kib) / ranks);
        post_results_briefly(load);
    }
    load_close(load);
}

/* ---- Growth ---------------------------------------------------------------------------------- */

enum { SIZES_MAX = 16 };

/* Measures the growth of set-up with the number of ranks: medians of each quantity by size. */
typedef struct growth {
    int ranks, count;
    double connect_ms[RUNS_MAX], set_up_ms[RUNS_MAX], server_ms[RUNS_MAX], load_ms[RUNS_MAX],
        batches[RUNS_MAX], kib[RUNS_MAX];
} growth;

static double own_cpu_ms(void) { return (double)clock() * 1e3 / CLOCKS_PER_SEC; }

static void measure_growth(const char *harpe, growth *to) {
    load_job *load = load_open(harpe);
    int at = to->count++;
    double empty_kib = load_server_kib(load);
    int64_t start_ns = harpe_clock_ns();
    load_connect(load, to->ranks);
    to->connect_ms[at] = ms_since(start_ns);
    double server_s = load_server_cpu_s(load), own_ms = own_cpu_ms();
    start_ns = harpe_clock_ns();
    load_register_job(load);
    load_start(load, 0, to->ranks, register_and_ask);
    load_finish(load);
    to->set_up_ms[at] = ms_since(start_ns);
    to->load_ms[at] = own_cpu_ms() - own_ms;
    to->server_ms[at] = (load_server_cpu_s(load) - server_s) * 1e3;
    to->batches[at] = load_metric(load, "harpe_store_batches_total");
    to->kib[at] = (load_server_kib(load) - empty_kib) / to->ranks;
    load_close(load);
}

static int compare(const void *a, const void *b);

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

static void print_growth(growth *of) {
    int n = of->count;
    double set_up_ms = median(of->set_up_ms, n), server_ms = median(of->server_ms, n);
    printf("%7d %10.0f %10.0f %10.0f %9.1f %10.0f %9.1f %9.0f %9.1f\n", of->ranks,
           median(of->connect_ms, n), set_up_ms, server_ms, server_ms * 1e3 / of->ranks,
           median(of->load_ms, n), of->load_ms[n / 2] * 1e3 / of->ranks, median(of->batches, n),
           median(of->kib, n));
}

/* Each run measures all sizes, so that other work on the machine affects all of them. */
static void run_growth(const char *harpe, int runs, const char *sizes) {
    growth all[SIZES_MAX] = {0};
    int count = 0;
    for (const char *c = sizes; *c && count < SIZES_MAX; c += strspn(c, ",")) {
        char *end;
        all[count++].ranks = (int)strtol(c, &end, 10);
        if (end == c || all[count - 1].ranks < 64 || all[count - 1].ranks % 64 != 0) {
            fprintf(stderr, "bench_server: --growth wants multiples of 64, such as 4096,8192\n");
            exit(2);
        }
        c = end;
    }
    for (int run = 0; run < runs; run++)
        for (int i = 0; i < count; i++)
            measure_growth(harpe, &all[i]);
    printf("%7s %10s %10s %10s %9s %10s %9s %9s %9s\n", "ranks", "connect ms", "set-up ms",
           "server ms", "us/rank", "load ms", "us/rank", "fsyncs", "KiB/rank");
    for (int i = 0; i < count; i++)
        print_growth(&all[i]);
}

/* ---- Results --------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_table(void) {
    printf("%-48s %10s %23s %10s\n", "", "median", "min - max", "target");
    for (int i = 0; i < MEASURES; i++) {
        const samples *of = &all_samples[i];
        if (!of->count) continue;
        printf("%-48s %10.1f %10.1f - %10.1f %10s\n", of->what, of->values[of->count / 2],
               of->values[0], of->values[of->count - 1], of->target);
    }
}

static void print_json(void) {
    json_t *object = json_object();
    for (int i = 0; i < MEASURES; i++) {
        const samples *of = &all_samples[i];
        if (!of->count) continue;
        json_object_set_new(object, of->key,
                            json_pack("{s:f,s:f,s:f,s:i}", "median", of->values[of->count / 2],
                                      "min", of->values[0], "max", of->values[of->count - 1],
                                      "runs", of->count));
    }
    bench_print(object);
}

static void sort_samples(void) {
    for (int i = 0; i < MEASURES; i++)
        qsort(all_samples[i].values, (size_t)all_samples[i].count, sizeof(double), compare);
}

static void run_briefly(const char *harpe, int runs) {
    char *synthetic = synthetic_tail();
    tails[0] = synthetic;
    tail_count = 1;
    for (int run = 0; run < runs; run++) {
        measure_briefly(harpe, 64, SET_UP_64);
        measure_briefly(harpe, RESULT_RANKS, SET_UP_1024);
    }
    sort_samples();
    free(synthetic);
}

static void run_all(const char *harpe, int runs) {
    char *synthetic = synthetic_tail(), *real[REAL_MAX];
    int real_count = read_real_tails(real);
    for (int run = 0; run < runs; run++) {
        measure_jobs(harpe);
        tails[0] = synthetic;
        tail_count = 1;
        measure_results(harpe, RESULT_ROUNDS, false);
        if (!real_count) continue;
        memcpy(tails, real, (size_t)real_count * sizeof *real);
        tail_count = real_count;
        measure_results(harpe, REAL_ROUNDS, true);
    }
    sort_samples();
    free(synthetic);
    for (int i = 0; i < real_count; i++)
        free(real[i]);
}

int main(int argc, char **argv) {
    static const struct option OPTIONS[] = {
        {"json", no_argument, NULL, 'j'},        {"runs", required_argument, NULL, 'r'},
        {"harpe", required_argument, NULL, 'p'}, {"growth", required_argument, NULL, 'g'},
        {"brief", no_argument, NULL, 'b'},       {NULL, 0, NULL, 0}};
    const char *harpe = getenv("HARPE"), *sizes = NULL;
    int runs = 5, key;
    bool is_json = false, is_brief = false;
    while ((key = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
        if (key == 'j') is_json = true;
        if (key == 'r') runs = atoi(optarg);
        if (key == 'p') harpe = optarg;
        if (key == 'g') sizes = optarg;
        if (key == 'b') is_brief = true;
        if (key == '?') return 2;
    }
    if (!harpe || runs < 1 || runs > RUNS_MAX) {
        fprintf(stderr, "bench_server: --harpe PROGRAM (or HARPE) is needed, --runs is 1 to %d\n",
                RUNS_MAX);
        return 2;
    }
    if (sizes) {
        run_growth(harpe, runs, sizes);
        return 0;
    }
    is_brief ? run_briefly(harpe, runs) : run_all(harpe, runs);
    is_json ? print_json() : print_table();
    return 0;
}
