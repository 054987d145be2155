/* SPDX-License-Identifier: Apache-2.0 */
/* Replays the requests of two LLM services on an emulated H100 in virtual time, with and without
 * the node agent's rule "idle", and prints energy and latency as a table in Markdown.
 *
 *   bench_idle [--quick]
 *
 * The arrivals and numbers of tokens come from the traces in $HARPE_DATA/azure_llm or in
 * ../shared/data/azure_llm. The traces are of services with many GPUs, so this GPU gets only each
 * k-th request. The server is simple: while requests wait, it computes their prompts, at most
 * PROMPT_TOKENS at once; otherwise it computes one token for each request that runs. The times are
 * assumptions for a model with 8e9 parameters of 16 bits:
 *
 *   prompts  40 us for each token (2 x 8e9 FLOP at 400 TFLOPS), 90 % of it compute
 *   a token  8 ms (16 GB at 3.35 TB/s, and the host), and 0.05 ms for each request, 25 % compute
 *
 * A call that locks the clock takes 5 ms, and the clock changes 20 ms later; both were measured on
 * a V100. Readings of the emulated GPU have no delay. In the rows "late" and "once a second", a
 * loop replaces the agent and uses the agent's decision. In the rows "late", the loop sees a power
 * that is renewed every 100 ms, as on an H100, and a utilisation that is renewed every 1/6 s. In
 * the rows "once a second", the loop looks at the GPU only once a second. */
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <harpe/gpu.h>

#include "agent/agent.h"
#include "agent/agent_internal.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/platform.h"
#include "base/wait.h"
#include "gpu/gpus.h"
#include "gpu/saved_settings.h"
#include "world/world.h"

#define EMULATOR HARPE_BINARY_DIR "/emulator/libnvidia-ml.so.1"
#define MS INT64_C(1000000)
#define SECOND INT64_C(1000000000)
#define PROMPT_S 40e-6
#define PROMPT_SHARE 0.9
#define STEP_S 8e-3
#define STEP_REQUEST_S 0.05e-3
#define STEP_SHARE 0.25
#define POWER_NS (100 * MS)
#define USE_NS (SECOND / 6)
#define REST_S 60 /* after the last request, for an equal time in all rows */
#define PHYSICS "{\"switch_call_s\": 0.005, \"switch_latency_s\": 0.02}"

enum { PROMPT_TOKENS = 8192, BATCH = 64, REQUESTS_MAX = 20000 };

/* ---- Requests -------------------------------------------------------------------------------- */

typedef struct request {
    double at_s;
    int prompt_tokens, tokens;
    int left; /* tokens that are not computed yet */
    double latency_s;
} request;

typedef struct request_trace {
    const char *file, *name;
    int every; /* this GPU gets each `every`th request */
    request *requests;
    int count;
} request_trace;

static double seconds_of(const char *text) {
    int day = 0, hour = 0, minute = 0;
    double second = 0;
    if (sscanf(text, "%*d-%*d-%d %d:%d:%lf", &day, &hour, &minute, &second) != 4) return NAN;
    return ((day * 24.0 + hour) * 60 + minute) * 60 + second;
}

/* Reads the trace. Returns false if there is no such file. */
static bool read_trace(request_trace *self) {
    const char *data = getenv("HARPE_DATA");
    char line[256], path[512];
    int row = 0;
    (void)snprintf(path, sizeof path, "%s/azure_llm/%s", data ? data : "../shared/data",
                   self->file);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    self->requests = calloc(REQUESTS_MAX, sizeof *self->requests);
    double first_s = NAN;
    while (fgets(line, sizeof line, file) && self->count < REQUESTS_MAX) {
        const char *comma = strchr(line, ',');
        request one = {.at_s = seconds_of(line)};
        if (!comma || isnan(one.at_s) ||
            sscanf(comma, ",%d,%d", &one.prompt_tokens, &one.tokens) != 2)
            continue;
        if (isnan(first_s)) first_s = one.at_s;
        one.at_s -= first_s;
        if (one.tokens < 1) one.tokens = 1;
        if (row++ % self->every == 0) self->requests[self->count++] = one;
    }
    (void)fclose(file);
    return self->count > 0;
}

/* ---- A case ---------------------------------------------------------------------------------- */

typedef enum way { AGENT, LATE, ONCE_A_SECOND } way;

typedef struct scenario {
    const request_trace *trace;
    way way;
    double after_s; /* 0: the rule is off */
    int mhz;
} scenario;

typedef struct result {
    double energy_j, busy_s, held_s, span_s;
    double p50_s, p95_s, p99_s;
    uint64_t holds;
} result;

typedef struct replayed_case {
    const scenario *scenario;
    result *result;
    char folder[64], config[128], socket[128];
    harpe_gpus *gpus;
    bool is_agent_ready, is_over;
    int (*work)(unsigned gpu, double full_speed_s, double compute_share, double *elapsed_s);
    int (*energy)(unsigned gpu, int64_t at_ns, double *energy_j);
    int (*open_context)(unsigned gpu, uint64_t memory_bytes);
    int (*clock)(unsigned gpu, uint32_t *current_mhz, uint32_t *next_mhz, int64_t *next_ns);
    int64_t (*now_ns)(void);
    void (*use_platform)(const harpe_platform *platform);
} replayed_case;

static void note_line(void *user, harpe_log_level level, const char *line) {
    replayed_case *self = user;
    (void)level;
    if (strncmp(line, "lends ", 6) == 0) self->is_agent_ready = true;
}

static int run_agent(void *user) {
    replayed_case *self = user;
    harpe_agent_options options = {.socket = self->socket,
                                   .config = self->config,
                                   .is_enclosed = true,
                                   .log = {note_line, self}};
    return (int)harpe_agent_run(&options, NULL);
}

/* ---- Other ways to hold the clock ------------------------------------------------------------ */

/* A reading that changes only once in each period. */
typedef struct stepped {
    int64_t period;
    uint32_t value;
} stepped;

static uint32_t renew(stepped *self, int64_t now_ns, int64_t period_ns, uint32_t value) {
    if (self->period != now_ns / period_ns) self->value = value;
    self->period = now_ns / period_ns;
    return self->value;
}

static int watch(void *user) {
    replayed_case *self = user;
    const scenario *row = self->scenario;
    const harpe_idle_rule rule = {(uint32_t)row->mhz, (int64_t)(row->after_s * 1e9)};
    const harpe_default_locks none = {0};
    harpe_idle_state state = {.is_held = false};
    stepped use = {-1, 0}, power = {-1, 0};
    while (true) {
        int64_t pause_ns = harpe_idle_pause_ns(&state, &rule, harpe_clock_ns());
        harpe_sleep_ns(row->way == ONCE_A_SECOND ? SECOND : pause_ns);
        int64_t now_ns = harpe_clock_ns();
        uint32_t percent = 0, power_mw = 0;
        (void)harpe_gpu_utilization(self->gpus, 0, &percent, NULL);
        (void)harpe_gpu_instant_power(self->gpus, 0, &power_mw, NULL);
        if (row->way == LATE) {
            percent = renew(&use, now_ns, USE_NS, percent);
            power_mw = renew(&power, now_ns, POWER_NS, power_mw);
        }
        harpe_idle_step step = harpe_idle_take(&state, &rule, percent > 0, power_mw, now_ns);
        if (step == HARPE_IDLE_STAY) continue;
        bool is_held = step == HARPE_IDLE_HOLD;
        if (is_held)
            (void)harpe_gpu_lock_yielding(self->gpus, 0, rule.clock_mhz, &none, NULL);
        else
            (void)harpe_gpu_unlock_yielding(self->gpus, 0, rule.clock_mhz, &none, NULL);
        state = (harpe_idle_state){.is_held = is_held};
    }
    return 0;
}

/* ---- The server ------------------------------------------------------------------------------ */

typedef struct llm_server {
    request *requests;
    int count;
    int arrived, begun, done; /* numbers of requests; they begin in the order of their arrival */
    request *running[BATCH];
    int running_count;
    int64_t begun_ns;
} llm_server;

static double now_s(const llm_server *self) {
    return 1e-9 * (double)(harpe_clock_ns() - self->begun_ns);
}

static void take_arrivals(llm_server *self) {
    while (self->arrived < self->count && self->requests[self->arrived].at_s <= now_s(self))
        self->arrived++;
}

/* Counts one token of each running request from `first` on, and removes complete requests. */
static void count_tokens(llm_server *self, int first) {
    int kept = first;
    for (int i = first; i < self->running_count; i++) {
        request *one = self->running[i];
        if (--one->left > 0) {
            self->running[kept++] = one;
            continue;
        }
        one->latency_s = now_s(self) - one->at_s;
        self->done++;
    }
    self->running_count = kept;
}

static double compute_prompts(llm_server *self, const replayed_case *replay) {
    int first = self->running_count, tokens = 0;
    while (self->begun < self->arrived && self->running_count < BATCH) {
        request *one = &self->requests[self->begun];
        if (tokens > 0 && tokens + one->prompt_tokens > PROMPT_TOKENS) break;
        tokens += one->prompt_tokens;
        one->left = one->tokens;
        self->running[self->running_count++] = one;
        self->begun++;
    }
    double elapsed_s = 0;
    (void)replay->work(0, PROMPT_S * (tokens > 0 ? tokens : 1), PROMPT_SHARE, &elapsed_s);
    count_tokens(self, first);
    return elapsed_s;
}

static double compute_tokens(llm_server *self, const replayed_case *replay) {
    double elapsed_s = 0;
    (void)replay->work(0, STEP_S + self->running_count * STEP_REQUEST_S, STEP_SHARE, &elapsed_s);
    count_tokens(self, 0);
    return elapsed_s;
}

/* Serves all requests. Returns the time, in s, during which the GPU computed. */
static double serve(llm_server *self, const replayed_case *replay) {
    double busy_s = 0;
    while (self->done < self->count) {
        take_arrivals(self);
        bool may_begin = self->begun < self->arrived && self->running_count < BATCH;
        if (may_begin)
            busy_s += compute_prompts(self, replay);
        else if (self->running_count > 0)
            busy_s += compute_tokens(self, replay);
        else
            harpe_sleep_ns(1 + (int64_t)(1e9 * (self->requests[self->arrived].at_s - now_s(self))));
    }
    return busy_s;
}

/* ---- The replay ------------------------------------------------------------------------------ */

static void summarize(const request_trace *trace, result *out) {
    static double latencies[REQUESTS_MAX];
    for (int i = 0; i < trace->count; i++)
        latencies[i] = trace->requests[i].latency_s;
    qsort(latencies, (size_t)trace->count, sizeof *latencies, harpe_compare_doubles);
    out->p50_s = latencies[trace->count / 2];
    out->p95_s = latencies[trace->count * 95 / 100];
    out->p99_s = latencies[trace->count * 99 / 100];
}

/* Measures the time at the rule's clock, and counts how often it begins. */
static int count_held(void *user) {
    replayed_case *self = user;
    uint32_t mhz = 0;
    for (bool was_held = false; !self->is_over; harpe_sleep_ns(20 * MS)) {
        (void)self->clock(0, &mhz, NULL, NULL);
        bool is_held = (int)mhz == self->scenario->mhz;
        self->result->held_s += is_held ? 0.02 : 0;
        self->result->holds += is_held && !was_held;
        was_held = is_held;
    }
    return 0;
}

static void run_first(void *user) {
    replayed_case *self = user;
    const scenario *row = self->scenario;
    static llm_server server;
    double before_j = 0, after_j = 0;
    self->use_platform(harpe_platform_in_use);
    (void)harpe_gpus_open(NULL, &self->gpus, NULL);
    (void)self->open_context(0, 0);
    if (row->after_s > 0) (void)harpe_world_start("counter", count_held, self);
    if (row->after_s > 0 && row->way == AGENT) {
        (void)harpe_world_start("agent", run_agent, self);
        while (!self->is_agent_ready)
            harpe_sleep_ns(MS);
    } else if (row->after_s > 0) {
        (void)harpe_world_start("watcher", watch, self);
    }
    memset(&server, 0, sizeof server);
    server.requests = row->trace->requests;
    server.count = row->trace->count;
    server.begun_ns = harpe_clock_ns();
    (void)self->energy(0, self->now_ns(), &before_j);
    self->result->busy_s = serve(&server, self);
    double end_s = server.requests[server.count - 1].at_s + REST_S;
    harpe_sleep_until(server.begun_ns + (int64_t)(end_s * 1e9));
    (void)self->energy(0, self->now_ns(), &after_j);
    self->result->energy_j = after_j - before_j;
    self->result->span_s = end_s;
    self->is_over = true;
    summarize(row->trace, self->result);
    harpe_gpus_close(self->gpus);
    self->use_platform(NULL);
}

static void find(void *library, const char *name, void *address) {
    *(void **)address = dlsym(library, name);
}

static result run(const scenario *row) {
    result out = {.energy_j = 0};
    replayed_case self = {.scenario = row, .result = &out, .folder = "/tmp/harpe-bench-XXXXXX"};
    char text[160], physics[128], command[128];
    harpe_error error = {.message = ""};
    if (!mkdtemp(self.folder)) exit(1);
    (void)snprintf(self.config, sizeof self.config, "%s/agent.conf", self.folder);
    (void)snprintf(self.socket, sizeof self.socket, "%s/agent.sock", self.folder);
    (void)snprintf(physics, sizeof physics, "%s/physics.json", self.folder);
    (void)snprintf(text, sizeof text, "idle = clock %d after %g\n", row->mhz, row->after_s);
    (void)harpe_file_write(self.config, text, row->after_s > 0 ? strlen(text) : 0, NULL);
    (void)harpe_file_write(physics, PHYSICS, strlen(PHYSICS), NULL);
    setenv("HARPE_EMULATOR_PHYSICS", physics, 1);
    void *library = dlopen(EMULATOR, RTLD_NOW | RTLD_LOCAL);
    if (!library) exit(1);
    find(library, "harpe_emulator_use_platform", &self.use_platform);
    find(library, "harpe_emulator_work", &self.work);
    find(library, "harpe_emulator_energy", &self.energy);
    find(library, "harpe_emulator_open_context", &self.open_context);
    find(library, "harpe_emulator_clock", &self.clock);
    find(library, "harpe_emulator_now_ns", &self.now_ns);
    harpe_world_options world = {.seed = 1, .directory = self.folder};
    if (harpe_world_run(&world, run_first, &self, &error) != HARPE_OK) {
        fprintf(stderr, "bench_idle: %s\n", error.message);
        exit(1);
    }
    (void)dlclose(library);
    (void)snprintf(command, sizeof command, "rm -r %s", self.folder);
    if (system(command) != 0) exit(1);
    return out;
}

/* ---- The table ------------------------------------------------------------------------------- */

static double more(double value, double than) { return 100 * (value / than - 1); }

static void print_row(const scenario *row, const result *now, const result *without) {
    static const char *const ways[] = {"agent", "late", "once a second"};
    if (row->after_s > 0)
        printf("| %s | %s | %g s | %d MHz |", row->trace->name, ways[row->way], row->after_s,
               row->mhz);
    else
        printf("| %s | without | | |", row->trace->name);
    printf(" %.1f %% | %.1f %% | %" PRIu64 " | %.1f W | %.1f %% | %.3f s | %+.2f %% | %.3f s | "
           "%+.2f %% | %+.2f %% |\n",
           100 * now->busy_s / now->span_s, 100 * now->held_s / now->span_s, now->holds,
           now->energy_j / now->span_s, 100 * (1 - now->energy_j / without->energy_j), now->p50_s,
           more(now->p50_s, without->p50_s), now->p95_s, more(now->p95_s, without->p95_s),
           more(now->p99_s, without->p99_s));
    (void)fflush(stdout);
}

static void compare_ways(const request_trace *trace, bool is_quick) {
    const scenario rows[] = {
        {trace, AGENT, 0, 0},    {trace, AGENT, 0.5, 345},        {trace, AGENT, 1, 345},
        {trace, AGENT, 5, 345},  {trace, AGENT, 20, 345},         {trace, AGENT, 1, 705},
        {trace, AGENT, 1, 1200}, {trace, AGENT, 5, 1200},         {trace, LATE, 0.5, 345},
        {trace, LATE, 1, 345},   {trace, LATE, 5, 345},           {trace, LATE, 1, 1200},
        {trace, LATE, 5, 1200},  {trace, ONCE_A_SECOND, 0.5, 345}};
    result without = {.energy_j = 0};
    int count = is_quick ? 2 : (int)(sizeof rows / sizeof *rows);
    for (int i = 0; i < count; i++) {
        result now = run(&rows[i]);
        if (i == 0) without = now;
        print_row(&rows[i], &now, &without);
    }
}

int main(int argc, char **argv) {
    static request_trace traces[] = {
        {.file = "AzureLLMInferenceTrace_code.csv", .name = "code, 1 of 1", .every = 1},
        {.file = "AzureLLMInferenceTrace_code.csv", .name = "code, 1 of 8", .every = 8},
        {.file = "AzureLLMInferenceTrace_conv.csv", .name = "conversation, 1 of 16", .every = 16},
        {.file = "AzureLLMInferenceTrace_conv.csv", .name = "conversation, 1 of 64", .every = 64},
    };
    bool is_quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    setenv("HARPE_NVML_LIBRARY", EMULATOR, 1);
    setenv("HARPE_EMULATOR_GPUS", "1xH100", 1);
    setenv("HARPE_EMULATOR_TIME_SCALE", "1", 1);
    printf(
        "| requests | way | after | clock | GPU works | held | holds | mean power | saved | p50 | "
        "more | p95 | more | p99 more |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
        "---:|---:|---:|\n");
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++) {
        if (!read_trace(&traces[i])) {
            fprintf(stderr,
                    "bench_idle: skipped: no azure_llm/%s in $HARPE_DATA or "
                    "../shared/data\n",
                    traces[i].file);
            return 77;
        }
        compare_ways(&traces[i], is_quick);
        free(traces[i].requests);
    }
    return 0;
}
