/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe tune`: runs any command, or watches one that runs already, and lets the library find its
 * clock and power limit. This file reads the flags, runs the command, and passes its exit status
 * on. Whatever happens to the tuning, the command runs. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <harpe/tune.h>

#include "base/error.h"
#include "base/number.h"
#include "base/process.h"
#include "base/text.h"
#include "base/wait.h"
#include "cli/commands.h"
#include "cli/marked_command.h"
#include "cli/python_hook.h"
#include "cli/tune/tune_command_internal.h"
#include "tune/tune_internal.h"

#define NAME "harpe tune"
#define TICK_NS INT64_C(1000000000)

enum { ENVIRONMENT_SIZE = 1 << 17 };

/* ---- Flags ----------------------------------------------------------------------------------- */

typedef struct tune_arguments {
    harpe_tuning_options options;
    harpe_tune_prices prices;
    bool has_eta, wants_json;
    char latency_name[256];
    const char *gpus, *expression;
    int attached; /* process; 0: none */
    char **command;
} tune_arguments;

static void read_selector(void *into, struct argp_state *state, const char *flag, char *text) {
    harpe_tuning_options *options = into;
    static const char *const names[] = {"max-slowdown", "energy", "time", "zeus-cost", NULL};
    static const harpe_tuning_aim aims[] = {HARPE_TUNING_ENERGY, HARPE_TUNING_ENERGY,
                                            HARPE_TUNING_TIME, HARPE_TUNING_COST};
    int choice = harpe_flag_choice(state, flag, text, names);
    options->aim = aims[choice];
    if (choice > 0 && options->max_slowdown <= 0) options->max_slowdown = INFINITY;
}

static void read_knobs(void *into, struct argp_state *state, const char *flag, char *text) {
    harpe_tuning_options *options = into;
    bool clock = strcmp(text, "clock") == 0;
    bool limit = strcmp(text, "limit") == 0;
    bool both = strcmp(text, "clock,limit") == 0 || strcmp(text, "limit,clock") == 0;
    if (!clock && !limit && !both)
        harpe_flag_fail(state, "%s: expected clock, limit, or clock,limit, found '%.100s'", flag,
                        text);
    options->tunes_clock = clock || both;
    options->tunes_limit = limit || both;
}

/* Reads HISTOGRAM:SECONDS. The name may contain colons. */
static void read_latency(void *into, struct argp_state *state, const char *flag, char *text) {
    tune_arguments *arguments = into;
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    if (length == 0 || length >= sizeof arguments->latency_name)
        harpe_flag_fail(state, "%s: expected HISTOGRAM:SECONDS, found '%.100s'", flag, text);
    memcpy(arguments->latency_name, text, length);
    arguments->options.latency_name = arguments->latency_name;
    arguments->options.latency_p95_s = harpe_flag_double_above(state, flag, colon + 1, 0, 1e9);
}

static const harpe_flag flags[] = {
    {.help = "What is tuned:", .group = 1},
    {"attach", 0, "PID", "Tune for this process, which runs already", 1,
     HARPE_INTO(tune_arguments, attached), 1, INT32_MAX},
    {"gpu", 0, "LIST", "Tune these GPUs, such as 0,1 (default: all visible ones)", 1,
     HARPE_INTO(tune_arguments, gpus)},
    {"knob", 0, "LIST", "clock (default), limit, or clock,limit", 1,
     HARPE_READ(read_knobs, tune_arguments, options)},
    {"dry-run", 0, NULL, "Change nothing, and estimate what could be saved", 1,
     HARPE_INTO(tune_arguments, options.is_dry)},
    {.help = "Choice of the best setting:", .group = 2},
    {"max-slowdown", 0, "X",
     "At most this share more time per unit of work, such as 0.05 for 5 % (default 0.02)", 2,
     HARPE_INTO(tune_arguments, options.max_slowdown), 0, 1, .is_above = true},
    {"selector", 0, "NAME",
     "max-slowdown (default): least energy within --max-slowdown; energy: least energy; time: "
     "least time; zeus-cost: lowest weighted cost of energy and time",
     2, HARPE_READ(read_selector, tune_arguments, options)},
    {"eta", 0, "X", "zeus-cost: 0 is all time, 1 all energy (default 0.5)", 2,
     HARPE_INTO(tune_arguments, options.eta), 0, 1, .given = offsetof(tune_arguments, has_eta)},
    {.help = "How work is measured, if the program marks no steps (default: by the period of its "
             "power):",
     .group = 3},
    {"rate-url", 0, "URL", "Page of metrics in Prometheus' format", 3,
     HARPE_INTO(tune_arguments, options.rate_url)},
    {"rate", 0, "NAME",
     "Counter of this page, such as vllm:generation_tokens_total; labels: NAME{a=\"b\"}", 3,
     HARPE_INTO(tune_arguments, options.rate_name)},
    {"latency-p95", 0, "HISTOGRAM:SECONDS",
     "A setting is too slow if the 95th percentile of this histogram of the page is longer", 3,
     .read = read_latency},
    {"rate-file", 0, "FILE", "File with a number, the work so far", 3,
     HARPE_INTO(tune_arguments, options.rate_file)},
    {"rate-regex", 0, "RE",
     "Lines of the command's output; the first group is the work so far, else each line counts one",
     3, HARPE_INTO(tune_arguments, expression)},
    {.help = "Result:", .group = 4},
    {"save", 0, "FILE",
     "Check the result of an earlier run in this file first, and write the result to it", 4,
     HARPE_INTO(tune_arguments, options.save_path)},
    {"energy-price", 0, "P", "Also print what was saved at P for a kWh", 4,
     HARPE_INTO(tune_arguments, prices.per_kwh), 0, 1e9},
    {"carbon", 0, "G", "Also print the carbon that was saved: G grams of CO2 per kWh", 4,
     HARPE_INTO(tune_arguments, prices.carbon_g_per_kwh), 0, 1e9},
    {"json", 'j', NULL, "At the end print one JSON object on standard output", 4,
     HARPE_INTO(tune_arguments, wants_json)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags}},
    .command = offsetof(tune_arguments, command),
    .forms = "-- CMD [ARG...]",
    .about =
        "Run any command unchanged, and find the GPU clock with which it needs the least energy "
        "and is hardly slower. Settings are compared with the highest one in turns; at the end "
        "the GPUs are restored.\vExamples:\n  harpe tune -- python train.py\n  harpe tune --gpu 0 "
        "--rate-url http://127.0.0.1:8000/metrics \\\n      --rate "
        "vllm:generation_tokens_total\n\nSee also: man harpe-tune",
};

static void check_complete(const struct argp_state *state, const tune_arguments *arguments) {
    const harpe_tuning_options *options = &arguments->options;
    int sources = (options->rate_url != NULL) + (options->rate_file != NULL) +
                  (arguments->expression != NULL);
    if (!arguments->command && !arguments->attached && !arguments->gpus)
        harpe_flag_fail(state, "the command is missing: harpe tune -- CMD; or name what runs "
                               "already with --attach PID or --gpu LIST");
    if (arguments->command && arguments->attached)
        harpe_flag_fail(state, "--attach and a command exclude each other");
    if (!options->rate_url != !options->rate_name)
        harpe_flag_fail(state, "--rate-url and --rate belong together");
    if (sources > 1)
        harpe_flag_fail(state, "--rate-url, --rate-file and --rate-regex exclude each other");
    if (options->latency_name && !options->rate_url)
        harpe_flag_fail(state, "--latency-p95 needs --rate-url");
    if (arguments->expression && !arguments->command)
        harpe_flag_fail(state, "--rate-regex needs a command, whose output it reads");
    if (options->save_path && !*options->save_path)
        harpe_flag_fail(state, "--save: the name of the file is empty");
    if (arguments->has_eta && options->aim != HARPE_TUNING_COST)
        harpe_flag_fail(state, "--eta needs --selector zeus-cost");
}

/* ---- The tuning ------------------------------------------------------------------------------ */

typedef struct tune_run {
    tune_arguments arguments;
    harpe_gpus *gpus;     /* NULL: they cannot be used */
    harpe_tuning *tuning; /* NULL: the program runs untuned */
    harpe_tuning_report report;
    harpe_tune_live live;
    harpe_tune_output output;
    harpe_marked_command child;
} tune_run;

static void write_log(void *user, harpe_log_level level, const char *line) {
    tune_run *run = user;
    if (level < HARPE_LOG_INFO) return;
    harpe_tune_live_clear(&run->live);
    harpe_command_say(NAME, line);
}

static void draw(void *user) {
    tune_run *run = user;
    if (!run->tuning) return;
    harpe_tune_get_report(run->tuning, &run->report);
    harpe_tune_live_draw(&run->live, &run->report);
}

/* Reads the GPUs that a running process sees from its environment. NULL: all. Fails if the process
 * is another user's, because the other GPUs are not its own. */
static harpe_status find_gpus_of(int process, char *environment, size_t size, const char **gpus,
                                 harpe_error *error) {
    static const char name[] = "CUDA_VISIBLE_DEVICES=";
    /* harpe_process_read ends the text at its first NUL, so the variables are read here. */
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", process);
    FILE *file = fopen(path, "re");
    if (!file)
        return harpe_fail(
            error, HARPE_PERMISSION_DENIED,
            "--attach %d: which GPUs it uses cannot be read (%s): name them with --gpu", process,
            strerror(errno));
    size_t length = fread(environment, 1, size - 1, file);
    (void)fclose(file);
    environment[length] = '\0';
    for (char *at = environment; at < environment + length; at += strlen(at) + 1)
        if (strncmp(at, name, sizeof name - 1) == 0) *gpus = at + sizeof name - 1;
    return HARPE_OK;
}

/* Starts the tuning. If only the GPUs cannot be used, says so, and succeeds without. */
static harpe_status start_tuning(tune_run *run, harpe_error *error) {
    static char environment[ENVIRONMENT_SIZE];
    tune_arguments *arguments = &run->arguments;
    harpe_gpus_options gpu_options = {.visible_devices = arguments->gpus};
    harpe_status status = HARPE_OK;
    if (!arguments->gpus && arguments->attached)
        status = find_gpus_of(arguments->attached, environment, sizeof environment,
                              &gpu_options.visible_devices, error);
    if (status != HARPE_OK) return status;
    arguments->options.log = (harpe_log){write_log, run};
    harpe_error reason;
    status = harpe_gpus_open(&gpu_options, &run->gpus, &reason);
    if (status == HARPE_OK) {
        harpe_tune_sources sources = {
            .marks = arguments->command ? run->child.step_signals.shared : NULL,
            .output = arguments->expression ? &run->output.count : NULL,
        };
        arguments->options.gpus = run->gpus;
        status = harpe_tune_start_with(&arguments->options, &sources, &run->tuning, &reason);
        if (harpe_marked_command_is_users_mistake(status))
            return harpe_fail(error, status, "%s", reason.message);
    }
    if (status != HARPE_OK)
        fprintf(stderr, NAME ": the program runs untuned: %s\n", reason.message);
    return HARPE_OK;
}

static void stop_tuning(tune_run *run) {
    harpe_tune_stop(run->tuning, &run->report);
    harpe_gpus_close(run->gpus);
    harpe_tune_live_clear(&run->live);
}

/* Prints the report. A command's status passes in any case. */
static int tell(tune_run *run, int code) {
    const tune_arguments *arguments = &run->arguments;
    harpe_error error;
    if (!run->tuning) return code;
    if (!arguments->wants_json) {
        harpe_tune_report_print(&run->report, &arguments->prices, arguments->options.is_dry);
        return code;
    }
    if (harpe_tune_report_print_json(&run->report, &arguments->prices, &error) == HARPE_OK &&
        harpe_command_flush(&error) == HARPE_OK)
        return code;
    int failure = harpe_command_fail("tune", &error);
    /* Otherwise the failure would be told, and change the status, again at exit. */
    return freopen("/dev/null", "w", stdout) && arguments->command ? code : failure;
}

/* ---- A command ------------------------------------------------------------------------------- */

static harpe_status start_child(tune_run *run, harpe_error *error) {
    posix_spawn_file_actions_t actions;
    bool reads_output = run->arguments.expression != NULL;
    posix_spawn_file_actions_init(&actions);
    if (reads_output) harpe_tune_output_pass(&run->output, &actions);
    harpe_status status =
        harpe_marked_command_start(&run->child, run->arguments.command, &actions, error);
    posix_spawn_file_actions_destroy(&actions);
    harpe_error reason;
    if (status == HARPE_OK && reads_output &&
        harpe_tune_output_follow(&run->output, &reason) != HARPE_OK)
        fprintf(stderr, NAME ": the output is not read: %s\n", reason.message);
    return status;
}

/* Lets Python processes of the command count what their frameworks do, if nothing else is named. */
static void install_hook(const tune_arguments *arguments) {
    const harpe_tuning_options *options = &arguments->options;
    if (options->rate_url || options->rate_file || arguments->expression) return;
    if (harpe_python_hook_install(NAME)) (void)setenv("HARPE_TUNE", "1", 1);
}

static int run_child(tune_run *run) {
    const harpe_marks marks = {.program = NAME, .tick = draw, .tick_ns = TICK_NS, .user = run};
    const tune_arguments *arguments = &run->arguments;
    harpe_error error;
    harpe_status status = HARPE_OK;
    /* The processes that copy are forked before there are threads. */
    if (arguments->expression)
        status = harpe_tune_output_open(&run->output, arguments->expression, &error);
    if (status == HARPE_OK) status = harpe_marked_command_prepare(&run->child, &marks, &error);
    if (status == HARPE_OK) install_hook(arguments);
    if (status == HARPE_OK) status = start_tuning(run, &error);
    if (status != HARPE_OK) return harpe_command_fail("tune", &error);
    if (start_child(run, &error) != HARPE_OK) {
        stop_tuning(run);
        return harpe_command_fail_to_run("tune", arguments->command[0], error.vendor_code);
    }
    harpe_marked_command_follow(&run->child);
    if (arguments->expression) harpe_tune_output_close(&run->output);
    stop_tuning(run);
    harpe_marked_command_close(&run->child);
    return tell(run, harpe_command_exit_code(run->child.wait_code));
}

/* ---- What runs already ----------------------------------------------------------------------- */

/* Waits for the end of the process, or for a signal that asks this program to end. */
static void wait_for_end(tune_run *run, int pidfd, int signals) {
    struct pollfd ways[] = {{.fd = signals, .events = POLLIN}, {.fd = pidfd, .events = POLLIN}};
    for (;;) {
        if (harpe_poll(ways, 2, TICK_NS) < 0) continue;
        if (ways[0].revents || ways[1].revents) return;
        draw(run);
    }
}

static int run_attached(tune_run *run) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, 0};
    harpe_error error;
    sigset_t mask, before;
    int attached = run->arguments.attached;
    harpe_status status = HARPE_OK;
    int pidfd = attached ? harpe_process_open(attached) : -1;
    if (attached && pidfd < 0) status = harpe_fail_errno(&error, errno, "--attach %d", attached);
    harpe_command_block(numbers, &mask, &before);
    int signals = harpe_process_signals(&mask);
    if (status == HARPE_OK && signals < 0) status = harpe_fail_errno(&error, errno, "signals");
    if (status == HARPE_OK) status = start_tuning(run, &error);
    if (status != HARPE_OK) return harpe_command_fail("tune", &error);
    if (!run->tuning) return HARPE_EXIT_FAILURE;
    wait_for_end(run, pidfd, signals);
    stop_tuning(run);
    return tell(run, HARPE_EXIT_OK);
}

int harpe_tune_command(int argc, char **argv) {
    static tune_run run = {
        .arguments = {.options = {.tunes_clock = true, .eta = 0.5}, .prices = {NAN, NAN}}};
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &run.arguments);
    check_complete(&state, &run.arguments);
    return run.arguments.command ? run_child(&run) : run_attached(&run);
}
