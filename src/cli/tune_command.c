/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe tune`: runs any command, or watches one that runs already, and lets the library find its
 * clock and power limit. This file reads the flags, runs the command, reads its output if the user
 * wants, passes its exit status on, and prints a report. Whatever happens to the tuning, the
 * command runs. */
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <regex.h>

#include <harpe/tune.h>

#include "base/process.h"
#include "base/wait.h"
#include "cli/cli.h"
#include "tune/tune_internal.h"

#define NAME "harpe tune"
#define TICK_NS INT64_C(1000000000)
#define CLOSE_NS INT64_C(2000000000)

enum { ENVIRONMENT_SIZE = 1 << 17, PIPE_SIZE = 1 << 20, CHUNK = 1 << 16 };

/* Copies and reads the output of a command, for --rate-regex. For each stream, a process reads what
 * the command writes, writes it to the real stream, and then offers it to this program through a
 * pipe that never blocks. If this program does not keep up, it misses lines; the command misses
 * nothing. */
enum { OUTPUT_STREAMS = 2, OUTPUT_LINE = 4096 };

/* Standard output or standard error of the command. */
typedef struct output_stream {
    int command_end; /* the command writes here */
    int copies;      /* what the command has written, as far as it was read in time */
    char line[OUTPUT_LINE];
    size_t length;
} output_stream;

typedef struct tune_output {
    regex_t expression;
    harpe_output_count count;
    output_stream streams[OUTPUT_STREAMS];
    pthread_t thread;
    bool has_thread;
    _Atomic uint32_t has_ended; /* the command and all that it started have closed their output */
} tune_output;

/* ---- The output: copying --------------------------------------------------------------------- */

/* Writes all bytes, also if somebody has made the stream non-blocking. Returns false if nobody
 * reads it any more. */
static bool write_whole(int stream, const char *bytes, size_t count) {
    while (count > 0) {
        ssize_t done = write(stream, bytes, count);
        if (done > 0) {
            bytes += done;
            count -= (size_t)done;
        } else if (done < 0 && errno == EAGAIN) {
            struct pollfd ready = {.fd = stream, .events = POLLOUT};
            (void)harpe_poll(&ready, 1, -1);
        } else if (done == 0 || errno != EINTR) {
            return false;
        }
    }
    return true;
}

/* Copies until the command has closed its end. Signals of the terminal and of a batch system are
 * the command's matter. */
static _Noreturn void copy(int from, int to, int offer) {
    static const int ignored[] = {SIGINT,  SIGQUIT, SIGTERM, SIGHUP,
                                  SIGTSTP, SIGPIPE, SIGUSR1, SIGUSR2};
    static char bytes[CHUNK];
    int other = to == STDOUT_FILENO ? STDERR_FILENO : STDOUT_FILENO;
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    /* It keeps nothing open but these three. */
    (void)dup2(from, STDIN_FILENO);
    (void)dup2(offer, other);
    (void)close_range(3, ~0U, 0);
    for (;;) {
        ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0 || !write_whole(to, bytes, (size_t)got)) break;
        (void)!write(other, bytes, (size_t)got);
    }
    harpe_process_exit(0);
}

static harpe_status start_copying(output_stream *stream, int to, harpe_error *error) {
    int written[2], offered[2];
    /* After a failure, this program ends. */
    if (pipe2(written, O_CLOEXEC) != 0 || pipe2(offered, O_CLOEXEC | O_NONBLOCK) != 0)
        return harpe_fail_errno(error, errno, "a pipe for the command's output");
    (void)fcntl(offered[1], F_SETPIPE_SZ, PIPE_SIZE); /* it may stay smaller */
    pid_t process = fork();
    if (process == 0) copy(written[0], to, offered[1]);
    int failure = errno;
    (void)close(written[0]);
    (void)close(offered[1]);
    stream->command_end = written[1];
    stream->copies = offered[0];
    return process > 0 ? HARPE_OK
                       : harpe_fail_errno(error, failure, "a process for the command's output");
}

/* ---- The output: reading --------------------------------------------------------------------- */

/* Counts a line that matches. The first group of the expression is the work so far, if it is a
 * number. */
static void take_line(tune_output *output, output_stream *stream) {
    regmatch_t found[2] = {{-1, -1}, {-1, -1}};
    double number = 0;
    uint64_t bits;
    stream->line[stream->length] = '\0';
    stream->length = 0;
    if (regexec(&output->expression, stream->line, 2, found, 0) != 0) return;
    atomic_fetch_add(&output->count.matches, 1);
    if (found[1].rm_so < 0 ||
        !harpe_parse_double(stream->line + found[1].rm_so,
                            (size_t)(found[1].rm_eo - found[1].rm_so), &number))
        return;
    memcpy(&bits, &number, sizeof bits);
    atomic_store(&output->count.number, bits);
    atomic_store(&output->count.has_number, true);
}

/* Cuts what was read into lines. A carriage return ends one too, because bars of progress use it.
 */
static void take_bytes(tune_output *output, output_stream *stream, const char *bytes,
                       size_t count) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i] == '\n' || bytes[i] == '\r')
            take_line(output, stream);
        else if (stream->length < OUTPUT_LINE - 1)
            stream->line[stream->length++] = bytes[i] ? bytes[i] : ' ';
}

static void *read_lines(void *user) {
    tune_output *output = user;
    static char bytes[CHUNK];
    struct pollfd ways[OUTPUT_STREAMS];
    int open_count = OUTPUT_STREAMS;
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        ways[i] = (struct pollfd){.fd = output->streams[i].copies, .events = POLLIN};
    while (open_count > 0) {
        if (harpe_poll(ways, OUTPUT_STREAMS, -1) < 0) continue;
        for (int i = 0; i < OUTPUT_STREAMS; i++) {
            if (ways[i].fd < 0 || !ways[i].revents) continue;
            ssize_t got = read(ways[i].fd, bytes, sizeof bytes);
            if (got > 0) take_bytes(output, &output->streams[i], bytes, (size_t)got);
            if (got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN))) continue;
            ways[i].fd = -1;
            open_count--;
        }
    }
    atomic_store(&output->has_ended, 1);
    harpe_wake(&output->has_ended);
    return NULL;
}

/* ---- The output: start and end --------------------------------------------------------------- */

/* Compiles a POSIX extended regular expression, and starts the processes that copy. Call it before
 * any thread is started. Fails with HARPE_INVALID_ARGUMENT for a wrong expression. */
static harpe_status tune_output_open(tune_output *output, const char *expression,
                                     harpe_error *error) {
    char reason[256];
    harpe_status status = HARPE_OK;
    int failure = regcomp(&output->expression, expression, REG_EXTENDED);
    if (failure) {
        (void)regerror(failure, &output->expression, reason, sizeof reason);
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "--rate-regex '%.200s': %s", expression,
                          reason);
    }
    for (int i = 0; status == HARPE_OK && i < OUTPUT_STREAMS; i++)
        status = start_copying(&output->streams[i], i == 0 ? STDOUT_FILENO : STDERR_FILENO, error);
    return status;
}

/* Adds the command's streams to what it gets at its start. */
static void tune_output_pass(const tune_output *output, posix_spawn_file_actions_t *actions) {
    posix_spawn_file_actions_adddup2(actions, output->streams[0].command_end, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(actions, output->streams[1].command_end, STDERR_FILENO);
}

/* Reads lines on a thread of its own. Call it after the command has started. */
static harpe_status tune_output_follow(tune_output *output, harpe_error *error) {
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        (void)close(output->streams[i].command_end);
    int failure = harpe_thread_start(&output->thread, "harpe-output", read_lines, output);
    if (failure) return harpe_fail_errno(error, failure, "a thread for the command's output");
    output->has_thread = true;
    return HARPE_OK;
}

static void tune_output_close(tune_output *output) {
    if (!output->has_thread) return;
    (void)harpe_wait_while(&output->has_ended, 0, CLOSE_NS);
    /* A process that the command has left behind may keep the output open for long; then the thread
     * ends with this process. */
    if (atomic_load(&output->has_ended)) harpe_thread_join(output->thread);
}

/* ---- The report ------------------------------------------------------------------------------ */

/* Every saving stands beside its uncertainty, and one that could be noise is called so. */

/* Prices that the user has given; NaN: none. */
typedef struct tune_prices {
    double per_kwh, carbon_g_per_kwh;
} tune_prices;

/* The line that is rewritten while the program runs. Initialise with zeros. */
typedef struct tune_live {
    _Atomic bool is_drawn;             /* any thread may clear the line */
    double last_time_s, last_energy_j; /* for the power since the last line */
} tune_live;

static const char *const phase_names[] = {
    [HARPE_TUNING_WAITING] = "waiting",
    [HARPE_TUNING_MEASURING] = "measuring",
    [HARPE_TUNING_TRYING] = "trying",
    [HARPE_TUNING_SETTLED] = "settled",
    [HARPE_TUNING_UNMEASURABLE] = "unmeasurable",
    [HARPE_TUNING_STOPPED] = "stopped",
};

static const char unrestored[] =
    "a GPU could not be restored, or it is not known whether it is: run 'harpe gpus --restore'";

/* Appends a setting, such as "1185 MHz, 300 W". */
static void append_setting(harpe_text *text, int clock_mhz, int limit_w) {
    if (clock_mhz > 0) harpe_text_printf(text, "%d MHz", clock_mhz);
    if (limit_w > 0) harpe_text_printf(text, "%s%d W", clock_mhz > 0 ? ", " : "", limit_w);
    if (clock_mhz <= 0 && limit_w <= 0) harpe_text_printf(text, "the settings that were found");
}

/* Appends "23.1 % (+- 0.6 %) less energy". */
static void append_change(harpe_text *text, double less, double uncertain, const char *of_what) {
    harpe_text_printf(text, "%.1f %% (+- %.1f %%) %s %s", fabs(less) * 100, uncertain * 100,
                      less >= 0 ? "less" : "more", of_what);
}

/* ---- The live line --------------------------------------------------------------------------- */

/* Draws the line if standard error is a terminal. */
static void tune_live_draw(tune_live *live, const harpe_tuning_report *report) {
    if (!isatty(STDERR_FILENO)) return;
    harpe_text text = {0};
    double passed_s = report->time_s - live->last_time_s;
    harpe_text_printf(&text, "\r\033[K" NAME ": %s", phase_names[report->phase]);
    if (report->now_mhz > 0 || report->now_w > 0) {
        harpe_text_printf(&text, ", ");
        append_setting(&text, report->now_mhz, report->now_w);
    }
    if (passed_s > 0)
        harpe_text_printf(&text, ", %s",
                          HARPE_POWER((report->energy_j - live->last_energy_j) / passed_s));
    if (report->chosen_j_per_work > 0)
        harpe_text_printf(&text, ", %s per unit", HARPE_ENERGY(report->chosen_j_per_work));
    if (report->trials > 0)
        harpe_text_printf(&text, ", saved %.1f %% +- %.1f %%", report->saved * 100,
                          report->saved_error * 100);
    if (text.data) fputs(text.data, stderr);
    harpe_text_free(&text);
    live->is_drawn = true;
    live->last_time_s = report->time_s;
    live->last_energy_j = report->energy_j;
}

static void tune_live_clear(tune_live *live) {
    if (atomic_exchange(&live->is_drawn, false)) fputs("\r\033[K", stderr);
}

/* ---- The report at the end ------------------------------------------------------------------- */

static double saved_kwh(const harpe_tuning_report *report) {
    return (report->highest_j - report->used_j) / HARPE_JOULES_PER_KWH;
}

static void append_work(harpe_text *text, const harpe_tuning_report *report) {
    bool has_energy = report->energy_j > 0;
    harpe_text_printf(text, NAME ": ");
    if (report->meter)
        harpe_text_printf(text, "%s units of work, measured by %s%s", HARPE_DIGITS(report->work, 6),
                          report->meter, has_energy ? ", in " : "");
    if (has_energy)
        harpe_text_printf(text, "%s with %s kWh", HARPE_TIME(report->time_s),
                          HARPE_DIGITS(report->energy_j / HARPE_JOULES_PER_KWH, 4));
    else
        harpe_text_printf(text, "%sthe energy is not known", report->meter ? "; " : "");
    if (report->work > 0 && has_energy)
        harpe_text_printf(text, ", %s per unit", HARPE_ENERGY(report->energy_j / report->work));
    harpe_text_printf(text, "\n");
}

static void append_choice(harpe_text *text, const harpe_tuning_report *report) {
    bool is_settled = report->phase == HARPE_TUNING_SETTLED;
    harpe_text_printf(text, NAME ": %s ", is_settled ? "chosen:" : "not settled yet; best so far:");
    append_setting(text, report->clock_mhz, report->limit_w);
    if (report->highest_j_per_work > 0 && report->saved_error > 0) {
        harpe_text_printf(text, "; against the highest setting, measured in turns (%d trial%s): ",
                          report->trials, report->trials == 1 ? "" : "s");
        append_change(text, report->saved, report->saved_error, "energy per unit");
        if (report->is_noise) harpe_text_printf(text, ", which could be noise");
        harpe_text_printf(text, ", ");
        append_change(text, -report->slowdown, report->slowdown_error, "time");
        harpe_text_printf(text, ", at most about %.1f %% in a minute",
                          report->slowest_minute * 100);
        harpe_text_printf(text, "; %s and then %s per unit",
                          HARPE_ENERGY(report->highest_j_per_work),
                          HARPE_ENERGY(report->chosen_j_per_work));
    } else if (is_settled && report->trials > 0) {
        harpe_text_printf(text,
                          ", the highest setting: of those tried (%d trial%s), it is the best",
                          report->trials, report->trials == 1 ? "" : "s");
    } else if (is_settled) {
        harpe_text_printf(text, ", the highest setting: no other one could be tried");
    }
    harpe_text_printf(text, "\n");
}

static void append_money(harpe_text *text, const harpe_tuning_report *report,
                         const tune_prices *prices) {
    double kwh = saved_kwh(report);
    /* As if all work were done at the chosen setting; 0: not known. */
    double error_kwh = report->saved_error * report->highest_j / HARPE_JOULES_PER_KWH;
    double carbon_kg = kwh * prices->carbon_g_per_kwh / HARPE_GRAMS_PER_KG;
    harpe_text_printf(text, NAME ": saved so far: %s kWh", HARPE_DIGITS(kwh, 3));
    if (error_kwh > 0) harpe_text_printf(text, " (+- %s kWh)", HARPE_DIGITS(error_kwh, 2));
    if (!(error_kwh > 0) || fabs(kwh) <= error_kwh)
        harpe_text_printf(text, ", which could be noise");
    if (!isnan(prices->per_kwh))
        harpe_text_printf(text, ", %s for energy", HARPE_DIGITS(kwh * prices->per_kwh, 3));
    if (!isnan(carbon_kg)) harpe_text_printf(text, ", %s kg of CO2", HARPE_DIGITS(carbon_kg, 3));
    harpe_text_printf(text, "\n");
}

/* Says why there is no choice. */
static void append_reason(harpe_text *text, const harpe_tuning_report *report) {
    harpe_text_printf(text, NAME ": %s: %s; %s\n",
                      report->phase == HARPE_TUNING_STOPPED ? "no setting was chosen"
                                                            : "cannot measure this program",
                      report->reason,
                      report->is_unrestored ? unrestored
                      : report->is_restored ? "the GPUs are as they were found"
                                            : "the GPUs were not changed");
}

static void append_dry(harpe_text *text, const harpe_tuning_report *report) {
    harpe_text_printf(text, NAME ": nothing was changed (--dry-run)");
    if (report->guess_high > 0)
        harpe_text_printf(text,
                          "; guessed from the power alone: a lower clock saves %.0f %% at 2 %% "
                          "more time (19 of 20 measured programs: %.0f to %.0f %%)",
                          report->saved * 100, report->guess_low * 100, report->guess_high * 100);
    harpe_text_printf(text, "\n");
}

/* Prints the report at the end to standard error. */
static void tune_report_print(const harpe_tuning_report *report, const tune_prices *prices,
                              bool is_dry) {
    harpe_text text = {0};
    append_work(&text, report);
    bool is_chosen = report->phase == HARPE_TUNING_MEASURING ||
                     report->phase == HARPE_TUNING_TRYING || report->phase == HARPE_TUNING_SETTLED;
    if (is_dry)
        append_dry(&text, report);
    else if (is_chosen)
        append_choice(&text, report);
    else
        append_reason(&text, report);
    if (!is_dry && report->highest_j > 0) append_money(&text, report, prices);
    if (is_chosen && (report->is_restored || report->is_unrestored))
        harpe_text_printf(&text, NAME ": %s\n",
                          report->is_unrestored ? unrestored : "the GPUs are as they were found");
    if (text.data) fputs(text.data, stderr);
    harpe_text_free(&text);
}

/* Adds a number, or null if it is not known. */
static void put(json_t *object, const char *key, bool is_known, double value) {
    (void)json_object_set_new(object, key,
                              is_known ? harpe_command_json_number(value) : json_null());
}

/* Prints it as one JSON object to standard output. */
static harpe_status tune_report_print_json(const harpe_tuning_report *report,
                                           const tune_prices *prices, harpe_error *error) {
    bool is_compared = report->saved_error > 0;
    bool is_guessed = report->guess_high > 0;
    bool has_totals = report->highest_j > 0, has_energy = report->energy_j > 0;
    json_t *object =
        json_pack("{s:s, s:s?, s:s?, s:i, s:i, s:i, s:b, s:f, s:b, s:b}", "phase",
                  phase_names[report->phase], "meter", report->meter, "reason", report->reason,
                  "clock_mhz", report->clock_mhz, "power_limit_w", report->limit_w, "trials",
                  report->trials, "is_noise", report->is_noise, "work", report->work, "is_restored",
                  report->is_restored, "is_unrestored", report->is_unrestored);
    put(object, "time_s", has_energy, report->time_s);
    put(object, "energy_j", has_energy, report->energy_j);
    put(object, "saved", is_compared || is_guessed, report->saved);
    put(object, "saved_error", is_compared, report->saved_error);
    put(object, "guess_low", is_guessed, report->guess_low);
    put(object, "guess_high", is_guessed, report->guess_high);
    put(object, "slowdown", is_compared, report->slowdown);
    put(object, "slowdown_error", is_compared, report->slowdown_error);
    put(object, "slowest_minute", is_compared, report->slowest_minute);
    put(object, "highest_j_per_unit", is_compared, report->highest_j_per_work);
    put(object, "chosen_j_per_unit", is_compared, report->chosen_j_per_work);
    put(object, "highest_s_per_unit", is_compared, report->highest_s_per_work);
    put(object, "chosen_s_per_unit", is_compared, report->chosen_s_per_work);
    put(object, "latency_p95_s", report->latency_p95_s > 0, report->latency_p95_s);
    put(object, "saved_j", has_totals, report->highest_j - report->used_j);
    put(object, "saved_cost", has_totals, saved_kwh(report) * prices->per_kwh);
    put(object, "saved_carbon_g", has_totals, saved_kwh(report) * prices->carbon_g_per_kwh);
    return harpe_command_print_json(object, error);
}

/* ---- Flags ----------------------------------------------------------------------------------- */

typedef struct tune_arguments {
    harpe_tuning_options options;
    tune_prices prices;
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
    arguments->options.latency_p95_s = harpe_flag_double(state, flag, colon + 1, 0, 1e9, true);
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
    .about = "Run any command unchanged, and find the GPU clock with which it needs the least "
             "energy and is hardly slower. Settings are compared with the highest one in turns; at "
             "the end the GPUs are restored.\vExamples:\n  harpe tune -- python train.py\n  harpe "
             "tune --gpu 0 --rate-url http://127.0.0.1:8000/metrics \\\n      --rate "
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
    tune_live live;
    tune_output output;
    harpe_marked_command child;
} tune_run;

static void write_log(void *user, harpe_log_level level, const char *line) {
    tune_run *run = user;
    if (level < HARPE_LOG_INFO) return;
    tune_live_clear(&run->live);
    harpe_command_say(NAME, line);
}

static void draw(void *user) {
    tune_run *run = user;
    if (!run->tuning) return;
    harpe_tune_get_report(run->tuning, &run->report);
    tune_live_draw(&run->live, &run->report);
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
    tune_live_clear(&run->live);
}

/* Prints the report. A command's status passes in any case. */
static int tell(tune_run *run, int code) {
    const tune_arguments *arguments = &run->arguments;
    harpe_error error;
    if (!run->tuning) return code;
    if (!arguments->wants_json) {
        tune_report_print(&run->report, &arguments->prices, arguments->options.is_dry);
        return code;
    }
    if (tune_report_print_json(&run->report, &arguments->prices, &error) == HARPE_OK &&
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
    if (reads_output) tune_output_pass(&run->output, &actions);
    harpe_status status =
        harpe_marked_command_start(&run->child, run->arguments.command, &actions, error);
    posix_spawn_file_actions_destroy(&actions);
    harpe_error reason;
    if (status == HARPE_OK && reads_output && tune_output_follow(&run->output, &reason) != HARPE_OK)
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
        status = tune_output_open(&run->output, arguments->expression, &error);
    if (status == HARPE_OK) status = harpe_marked_command_prepare(&run->child, &marks, &error);
    if (status == HARPE_OK) install_hook(arguments);
    if (status == HARPE_OK) status = start_tuning(run, &error);
    if (status != HARPE_OK) return harpe_command_fail("tune", &error);
    if (start_child(run, &error) != HARPE_OK) {
        stop_tuning(run);
        return harpe_command_fail_to_run("tune", arguments->command[0], error.vendor_code);
    }
    harpe_marked_command_follow(&run->child);
    if (arguments->expression) tune_output_close(&run->output);
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
