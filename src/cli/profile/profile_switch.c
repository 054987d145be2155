/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe profile switch`: keeps a GPU busy, asks the frequency controller for clocks, and reads the
 * clock until it has changed. The controller is a process of its own that restores the GPU when
 * this process ends, however it ends. A thread gives work to an emulated GPU again and again. On a
 * real GPU, a command of the user runs in a process group of its own, which gets SIGTERM at the
 * end, and SIGKILL if it does not end soon. */
#include <dlfcn.h>
#include <math.h>
#include <sys/wait.h>

#include <harpe/frequency_controller.h>

#include "base/clock.h"
#include "base/wait.h"
#include "cli/cli.h"
#include "client/switch_learning.h"
#include "gpu/gpus.h"

enum { CLOCKS_MAX = 64 };

typedef struct switch_request {
    const char *gpu_name;      /* as a user names it (cli/cli.h); NULL: GPU 0 */
    int clock_mhz[CLOCKS_MAX]; /* the clocks to measure */
    int clock_count;
    int spread_count; /* if no clocks are given: so many, evenly spread over those of the GPU */
    int repetitions;  /* for each clock */
    const char *output_path; /* NULL: no CSV */
    char **command;          /* keeps a real GPU busy; NULL: none */
    bool force, json;
} switch_request;

typedef struct busy_gpu {
    int (*work)(unsigned int gpu, double full_speed_s, double compute_share, double *elapsed_s);
    void *library;
    unsigned int gpu;
    pthread_t thread;
    bool has_thread;
    atomic_bool is_over;
    pid_t child;         /* 0: none */
    const char *program; /* of the child */
} busy_gpu;

#define WORK_S 0.1 /* of one piece of work, in GPU time */
#define COMPUTE_SHARE 0.8

enum { END_TRIES = 300, END_TRY_NS = 10000000 };

static void *work(void *user) {
    busy_gpu *busy = user;
    while (!atomic_load(&busy->is_over))
        if (busy->work(busy->gpu, WORK_S, COMPUTE_SHARE, NULL) != 0) break;
    return NULL;
}

static harpe_status start_work(busy_gpu *busy, const harpe_gpus *gpus, int gpu,
                               harpe_error *error) {
    const char *path = harpe_gpus_library_path(gpus);
    busy->gpu = (unsigned int)harpe_gpu_info_at(gpus, gpu)->driver_index;
    busy->library = *path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *address = busy->library ? dlsym(busy->library, "harpe_emulator_work") : NULL;
    memcpy(&busy->work, &address, sizeof busy->work);
    if (!busy->work)
        return harpe_fail(
            error, HARPE_DRIVER_ERROR,
            "GPU %d: the emulator could not make it busy; is %s the emulator of this version?", gpu,
            *path ? path : "the driver library");
    int result = harpe_thread_start(&busy->thread, "harpe-work", work, busy);
    busy->has_thread = result == 0;
    return result == 0 ? HARPE_OK : harpe_fail_errno(error, result, "starting a thread");
}

static harpe_status start_command(busy_gpu *busy, char **command, harpe_error *error) {
    sigset_t none;
    (void)sigemptyset(&none);
    int code = harpe_command_spawn(command, NULL, &none, &busy->child);
    if (code != 0) {
        busy->child = 0;
        return harpe_fail_errno(error, code, "cannot run '%s'", command[0]);
    }
    busy->program = command[0];
    (void)setpgid(busy->child, busy->child); /* fails if the child is too fast; then the child alone
                                              * gets the signals */
    return HARPE_OK;
}

/* Starts the work. `command` may be NULL for an emulated GPU. */
static harpe_status start_busy(busy_gpu *busy, harpe_gpus *gpus, int gpu, char **command,
                               harpe_error *error) {
    *busy = (busy_gpu){.child = 0};
    if (command) return start_command(busy, command, error);
    if (harpe_gpus_are_emulated(gpus)) return start_work(busy, gpus, gpu, error);
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "a GPU without work may lower its clock: give a command that keeps GPU %d "
                      "busy, as in 'harpe profile switch -- COMMAND'",
                      gpu);
}

/* Fails if the command has ended. */
static harpe_status check_busy(busy_gpu *busy, harpe_error *error) {
    if (busy->child == 0 || waitpid(busy->child, NULL, WNOHANG) == 0) return HARPE_OK;
    busy->child = 0;
    return harpe_fail(
        error, HARPE_UNAVAILABLE,
        "'%s' ended before the measurement; it must keep the GPU busy until it is stopped",
        busy->program);
}

static void signal_child(const busy_gpu *busy, int signal) {
    if (kill(-busy->child, signal) != 0) (void)kill(busy->child, signal);
}

static void stop_command(busy_gpu *busy) {
    signal_child(busy, SIGTERM);
    for (int i = 0; i < END_TRIES; i++) {
        if (waitpid(busy->child, NULL, WNOHANG) != 0) return;
        harpe_sleep_ns(END_TRY_NS);
    }
    signal_child(busy, SIGKILL);
    (void)waitpid(busy->child, NULL, 0);
}

/* Ends the work, and all processes of the command's process group. */
static void stop_busy(busy_gpu *busy) {
    atomic_store(&busy->is_over, true);
    if (busy->has_thread) harpe_thread_join(busy->thread);
    if (busy->library) (void)dlclose(busy->library);
    if (busy->child > 0) stop_command(busy);
    *busy = (busy_gpu){.child = 0};
}

#define SAMPLE_NS 100000   /* real time between two looks at the clock */
#define HOLD_S 0.05        /* GPU time at a clock before the next change */
#define CHANGE_LIMIT_S 2.0 /* longest change, in GPU time */
#define REAL_LIMIT_S 10.0  /* for a change and a call, in real time */
#define CLOSE_S 0.001      /* distance of samples that is close enough for every latency */
#define CLOSE_SHARE 0.2    /* or this share of the latency */

enum { MOST_REPETITIONS = 1000, TRIES = 3 };

typedef struct measured_clock {
    int mhz;
    int samples;
    double latency_s[MOST_REPETITIONS], call_s[MOST_REPETITIONS];
} measured_clock;

typedef struct trial {
    const switch_request *request;
    int gpu;
    harpe_gpus *gpus;
    harpe_frequency_controller *controller;
    busy_gpu busy;
    measured_clock *clocks;
    int clock_count;
    int left_out; /* changes that did not come, or that were not seen closely enough */
} trial;

static double now_s(const trial *self) { return (double)harpe_gpus_clock_ns(self->gpus) * 1e-9; }

/* ---- One change ------------------------------------------------------------------------------ */

static uint64_t handled(const trial *self) {
    harpe_frequency_controller_counts counts = harpe_frequency_controller_count(self->controller);
    return counts.written + counts.skipped + counts.superseded + counts.failed;
}

/* A change of clock. Times are GPU time since the request; below 0: not seen. */
typedef struct seen_change {
    double call_s;
    double before_s, after_s; /* the last sample with another clock, and the first with this one */
} seen_change;

static harpe_status check(trial *self, harpe_error *error) {
    harpe_status status = harpe_frequency_controller_check(self->controller, error);
    if (status == HARPE_OK) status = check_busy(&self->busy, error);
    return status == HARPE_OK ? harpe_command_check_signal(error) : status;
}

/* Requests a clock, and waits until the call has returned and the GPU has the clock. */
static harpe_status change_clock(trial *self, int mhz, seen_change *seen, harpe_error *error) {
    uint64_t before = handled(self);
    double real_end_s = harpe_clock_s() + REAL_LIMIT_S;
    double asked_s = now_s(self), at_s = 0;
    *seen = (seen_change){.call_s = -1, .before_s = -1, .after_s = -1};
    harpe_frequency_controller_set(self->controller, mhz);
    while ((seen->call_s < 0 || seen->after_s < 0) && harpe_clock_s() < real_end_s &&
           (at_s < CHANGE_LIMIT_S || seen->call_s < 0)) {
        uint32_t held_mhz = 0;
        harpe_status status =
            harpe_gpu_current_clocks(self->gpus, self->gpu, &held_mhz, NULL, error);
        if (status == HARPE_OK) status = check(self, error);
        if (status != HARPE_OK) return status;
        at_s = now_s(self) - asked_s;
        if (seen->call_s < 0 && handled(self) != before) seen->call_s = at_s;
        if (!harpe_switch_is_same(held_mhz, (uint32_t)mhz))
            seen->before_s = at_s;
        else if (seen->after_s < 0)
            seen->after_s = at_s;
        harpe_sleep_ns(SAMPLE_NS);
    }
    return HARPE_OK;
}

static harpe_status hold(trial *self, harpe_error *error) {
    double end_s = now_s(self) + HOLD_S;
    harpe_status status = HARPE_OK;
    while (status == HARPE_OK && now_s(self) < end_s) {
        harpe_sleep_ns(10 * SAMPLE_NS);
        status = check(self, error);
    }
    return status;
}

/* Records a change if it was seen closely enough. */
static bool record(measured_clock *clock, const seen_change *seen) {
    if (seen->call_s < 0 || seen->after_s < 0) return false;
    double before_s = seen->before_s > 0 ? seen->before_s : 0;
    double latency_s = (before_s + seen->after_s) / 2;
    double apart_s = seen->after_s - before_s;
    if (apart_s > CLOSE_S && apart_s > CLOSE_SHARE * latency_s) return false;
    clock->latency_s[clock->samples] = latency_s;
    clock->call_s[clock->samples++] = seen->call_s;
    return true;
}

static harpe_status measure_once(trial *self, int from, int to, harpe_error *error) {
    seen_change seen;
    for (int i = 0; i < TRIES; i++) {
        harpe_status status = change_clock(self, self->clocks[from].mhz, &seen, error);
        if (status == HARPE_OK) status = hold(self, error);
        if (status == HARPE_OK) status = change_clock(self, self->clocks[to].mhz, &seen, error);
        if (status != HARPE_OK) return status;
        if (record(&self->clocks[to], &seen)) return hold(self, error);
    }
    self->left_out++;
    return HARPE_OK;
}

/* Changes to each clock from all other clocks in turn. */
static harpe_status measure(trial *self, harpe_error *error) {
    harpe_status status = HARPE_OK;
    int count = self->clock_count;
    for (int turn = 0; turn < self->request->repetitions; turn++)
        for (int to = 0; to < count && status == HARPE_OK; to++)
            status = measure_once(self, (to + 1 + turn % (count - 1)) % count, to, error);
    for (int i = 0; i < count && status == HARPE_OK; i++)
        if (self->clocks[i].samples == 0)
            status =
                harpe_fail(error, HARPE_UNAVAILABLE,
                           "GPU %d: no change to %d MHz was seen; it may be limited by its power, "
                           "its temperature or an administrator, or this machine is too busy",
                           self->gpu, self->clocks[i].mhz);
    return status;
}

/* ---- Clocks ---------------------------------------------------------------------------------- */

static harpe_status check_given(const trial *self, const uint32_t *clocks, size_t count,
                                harpe_error *error) {
    const switch_request *request = self->request;
    for (int i = 0; i < request->clock_count; i++) {
        bool is_known = false;
        for (size_t k = 0; k < count; k++)
            is_known = is_known || clocks[k] == (uint32_t)request->clock_mhz[i];
        for (int k = 0; k < i; k++)
            if (request->clock_mhz[k] == request->clock_mhz[i])
                return harpe_fail(error, HARPE_INVALID_ARGUMENT, "--clocks: %d MHz twice",
                                  request->clock_mhz[i]);
        if (!is_known)
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "--clocks: GPU %d does not offer %d MHz, only %u to %u MHz in steps",
                              self->gpu, request->clock_mhz[i], clocks[count - 1], clocks[0]);
    }
    return HARPE_OK;
}

static harpe_status choose_clocks(trial *self, harpe_error *error) {
    const switch_request *request = self->request;
    uint32_t memory_mhz;
    uint32_t *clocks = NULL;
    size_t count = 0;
    harpe_status status =
        harpe_gpus_full_speed_clocks(self->gpus, self->gpu, &memory_mhz, &clocks, &count, error);
    if (status != HARPE_OK) return status;
    status = check_given(self, clocks, count, error);
    int wanted = request->clock_count > 0 ? request->clock_count : request->spread_count;
    if (request->clock_count == 0 && (size_t)wanted > count) wanted = (int)count;
    if (status == HARPE_OK && wanted < 2)
        status = harpe_fail(error, HARPE_INVALID_ARGUMENT, "GPU %d: at least two clocks are needed",
                            self->gpu);
    if (status == HARPE_OK) {
        self->clocks = calloc((size_t)wanted, sizeof *self->clocks);
        if (!self->clocks) status = harpe_fail_memory(error);
    }
    for (int i = 0; i < wanted && status == HARPE_OK; i++) {
        size_t spread = (size_t)i * (count - 1) / (size_t)(wanted - 1);
        self->clocks[i].mhz =
            request->clock_count > 0 ? request->clock_mhz[i] : (int)clocks[spread];
        self->clock_count++;
    }
    free(clocks);
    return status;
}

/* ---- The result ------------------------------------------------------------------------------ */

typedef struct summary {
    double latency_s, latency_p95_s, call_s;
} summary;

static summary summarize(measured_clock *clock) {
    int count = clock->samples;
    double latency_s = harpe_median(clock->latency_s, (size_t)count);
    return (summary){.latency_s = latency_s,
                     .latency_p95_s = clock->latency_s[(int)ceil(0.95 * count) - 1],
                     .call_s = harpe_median(clock->call_s, (size_t)count)};
}

static harpe_status write_csv(trial *self, harpe_error *error) {
    harpe_text text = {0};
    const char *name = harpe_gpu_info_at(self->gpus, self->gpu)->name;
    harpe_text_printf(&text, "gpu,frequency,latency_s,latency_p95_s,call_s,samples\n");
    for (int i = 0; i < self->clock_count; i++) {
        summary one = summarize(&self->clocks[i]);
        harpe_text_printf(&text, "%s,%d,%.6f,%.6f,%.6f,%d\n", name, self->clocks[i].mhz,
                          one.latency_s, one.latency_p95_s, one.call_s, self->clocks[i].samples);
    }
    return harpe_command_write(self->request->output_path, &text, error);
}

static harpe_status print_json(trial *self, harpe_error *error) {
    const harpe_gpu_info *info = harpe_gpu_info_at(self->gpus, self->gpu);
    json_t *rows = json_array();
    for (int i = 0; i < self->clock_count; i++) {
        summary one = summarize(&self->clocks[i]);
        json_array_append_new(rows, json_pack("{s:i, s:f, s:f, s:f, s:i}", "frequency_mhz",
                                              self->clocks[i].mhz, "latency_s", one.latency_s,
                                              "latency_p95_s", one.latency_p95_s, "call_s",
                                              one.call_s, "samples", self->clocks[i].samples));
    }
    json_t *object =
        json_pack("{s:i, s:o, s:b, s:i, s:o}", "gpu", self->gpu, "name",
                  harpe_command_json_text(info->name), "emulated",
                  harpe_gpus_are_emulated(self->gpus), "left_out", self->left_out, "clocks", rows);
    return harpe_command_print_json(object, error);
}

static void print_table(trial *self) {
    const harpe_gpu_info *info = harpe_gpu_info_at(self->gpus, self->gpu);
    printf("Changes of the clock of GPU %d (%s%s), from the request on:\n", self->gpu, info->name,
           harpe_gpus_are_emulated(self->gpus) ? ", emulated" : "");
    printf("%s%6s %10s %10s %10s %8s%s\n", harpe_bold_start(), "MHz", "median ms", "p95 ms",
           "call ms", "samples", harpe_bold_end());
    for (int i = 0; i < self->clock_count; i++) {
        summary one = summarize(&self->clocks[i]);
        printf("%6d %10.1f %10.1f %10.1f %8d\n", self->clocks[i].mhz, one.latency_s * 1e3,
               one.latency_p95_s * 1e3, one.call_s * 1e3, self->clocks[i].samples);
    }
    if (self->left_out > 0)
        printf("Left out: %d changes that were not seen closely enough.\n", self->left_out);
}

static harpe_status tell_result(trial *self, harpe_error *error) {
    harpe_status status = self->request->output_path ? write_csv(self, error) : HARPE_OK;
    if (status != HARPE_OK || self->request->json)
        return status != HARPE_OK ? status : print_json(self, error);
    print_table(self);
    return HARPE_OK;
}

/* ---- The measurement ------------------------------------------------------------------------- */

static harpe_status start(trial *self, harpe_error *error) {
    const switch_request *request = self->request;
    harpe_gpu_names names = harpe_gpu_names_ask(self->gpus, NULL);
    harpe_status status = harpe_gpu_names_find(
        &names, "--gpu", request->gpu_name ? request->gpu_name : "0", &self->gpu, error);
    harpe_gpu_names_free(&names);
    if (status != HARPE_OK) return status;
    status = harpe_command_check_output(request->output_path, request->force, error);
    if (status == HARPE_OK) status = choose_clocks(self, error);
    if (status != HARPE_OK) return status;
    harpe_frequency_controller_options how = {.gpus = self->gpus,
                                              .gpu = self->gpu,
                                              .minimum_dwell_s = -1,
                                              .poll_interval_s = -1,
                                              .log = harpe_command_log("harpe profile")};
    status = harpe_frequency_controller_start(&how, &self->controller, error);
    if (status != HARPE_OK) return status;
    return start_busy(&self->busy, self->gpus, self->gpu, request->command, error);
}

static harpe_status run(const switch_request *request, harpe_error *error) {
    trial self = {.request = request};
    harpe_status status = harpe_gpus_open(NULL, &self.gpus, error);
    if (status != HARPE_OK) return status;
    status = start(&self, error);
    if (status == HARPE_OK) status = measure(&self, error);
    stop_busy(&self.busy);
    harpe_frequency_controller_stop(self.controller);
    if (status == HARPE_OK) status = tell_result(&self, error);
    harpe_gpus_close(self.gpus);
    free(self.clocks);
    return status;
}

/* ---- The command ----------------------------------------------------------------------------- */

static void read_clocks(void *into, struct argp_state *state, const char *flag, char *text) {
    switch_request *request = into;
    char *rest = NULL;
    request->clock_count = 0;
    for (char *one = strtok_r(text, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        if (request->clock_count == CLOCKS_MAX)
            harpe_flag_fail(state, "%s: more than %d clocks", flag, CLOCKS_MAX);
        request->clock_mhz[request->clock_count++] = harpe_flag_int(state, flag, one, 1, 65535);
    }
    if (request->clock_count < 2) harpe_flag_fail(state, "%s: at least two are needed", flag);
}

static const harpe_flag flags[] = {
    {"gpu", 'g', "GPU", "The GPU to measure: number, UUID or PCI address (default 0)", 1,
     HARPE_INTO(switch_request, gpu_name)},
    {"clocks", 0, "MHZ[,MHZ...]", "The clocks to measure", 1, .read = read_clocks},
    {"spread", 0, "N", "So many clocks, evenly spread (default 8)", 1,
     HARPE_INTO(switch_request, spread_count), 2, CLOCKS_MAX},
    {"repetitions", 'r', "N", "Changes to each clock (default 7)", 1,
     HARPE_INTO(switch_request, repetitions), 1, 1000},
    {.help = "Output:", .group = 2},
    {"output", 'o', "FILE", "Write the result as CSV", 2, HARPE_INTO(switch_request, output_path)},
    {"force", 'f', NULL, "Replace an existing file", 2, HARPE_INTO(switch_request, force)},
    {"json", 'j', NULL, "Print JSON", 2, HARPE_INTO(switch_request, json)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags}},
    .command = offsetof(switch_request, command),
    .forms = "[-- COMMAND [ARG...]]",
    .about = "Measure how long a GPU takes to change its clock, for several new clocks. The GPU is "
             "restored afterwards.\vCOMMAND keeps a real GPU busy; emulated GPUs need none.\n\n"
             "Examples:\n"
             "  harpe profile switch --output switch.csv -- python3 matmul.py\n"
             "  harpe emulate --physics real -- harpe profile switch\n\n"
             "See also: man harpe-profile",
};

int harpe_profile_switch_command(int argc, char **argv) {
    switch_request request = {.spread_count = 8, .repetitions = 7};
    (void)harpe_command_line_read(&command_line, argc, argv, &request);
    harpe_error error;
    harpe_status status = run(&request, &error);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("profile", &error);
}
