/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe monitor`: measures time, energy and power of a command inside an energy window, or shows
 * live values. Missing GPUs are not a failure if something else can be measured. Live, it takes
 * readings at a fixed interval until Ctrl-C, q or --duration, shows them as frames on a terminal or
 * as lines elsewhere, then prints a summary. Values that a driver does not report stay NaN and are
 * shown as "-", as an empty field, or as null, never as 0. */
#include <math.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <harpe/monitor.h>

#include "base/clock.h"
#include "base/wait.h"
#include "cli/cli.h"
#include "monitor/monitor.h"

typedef struct monitor_request {
    bool energy;      /* else power */
    const char *gpus; /* "0,2"; NULL: all */
    double interval_s;
    double duration_s;    /* 0: until stopped */
    const char *csv_path; /* "-": stdout; NULL: none */
    bool json, no_cpu;
    bool has_mode, has_live_flag; /* the words and flags that were given */
    const char *rapl_path;        /* NULL: the kernel's */
    char **command;               /* NULL: live */
} monitor_request;

typedef struct monitor_session {
    harpe_gpus *gpus; /* NULL: no GPU on this machine */
    int *gpu_indices;
    size_t gpu_count;
    harpe_monitor *monitor;
    size_t cpu_count;
} monitor_session;

/* ---- Opening --------------------------------------------------------------------------------- */

/* Reads a list of numbers of GPUs, such as "0,2". The monitor checks later whether these GPUs
 * exist. */
static harpe_status parse_gpus(const char *list, monitor_session *session, harpe_error *error) {
    size_t capacity = 0;
    for (const char *cursor = list;; cursor++) {
        size_t length = strcspn(cursor, ",");
        int64_t index = -1;
        if (!harpe_parse_int(cursor, length, &index) || index < 0 || index > 4095)
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "--gpus: expected GPU indices such as 0,2, found '%.100s'", list);
        if (!HARPE_ARRAY_RESERVE(session->gpu_indices, capacity, session->gpu_count + 1))
            return harpe_fail_memory(error);
        session->gpu_indices[session->gpu_count++] = (int)index;
        cursor += length;
        if (*cursor == '\0') return HARPE_OK;
    }
}

static harpe_status open_gpus(const monitor_request *request, monitor_session *session,
                              harpe_error *reason) {
    harpe_gpus_options options = {.log = harpe_command_log("harpe monitor")};
    harpe_status status = harpe_gpus_open(&options, &session->gpus, reason);
    if (status != HARPE_OK) return status;
    if (request->gpus) return parse_gpus(request->gpus, session, reason);
    session->gpu_count = (size_t)harpe_gpus_count(session->gpus);
    session->gpu_indices = harpe_calloc(session->gpu_count, sizeof *session->gpu_indices);
    if (!session->gpu_indices) return harpe_fail_memory(reason);
    for (size_t i = 0; i < session->gpu_count; i++)
        session->gpu_indices[i] = (int)i;
    return HARPE_OK;
}

static harpe_status fail_nothing(const monitor_request *request, const harpe_error *no_gpu,
                                 harpe_error *error) {
    return harpe_fail(error, HARPE_UNAVAILABLE,
                      "nothing to measure: %.600s; CPU energy %s. To try without a GPU: harpe "
                      "emulate -- harpe monitor ...",
                      no_gpu->message,
                      request->no_cpu ? "was not asked for" : "cannot be read either");
}

/* Opens a session that was initialised with zeros. Close it also after a failure. Without a GPU,
 * prints a note on stderr and continues if CPUs can be measured. If `log_path` is NULL, writes no
 * log of windows. */
static harpe_status open_session(const monitor_request *request, const char *log_path,
                                 monitor_session *session, harpe_error *error) {
    harpe_error no_gpu = {.status = HARPE_OK};
    harpe_status status = open_gpus(request, session, &no_gpu);
    bool has_gpus = status == HARPE_OK;
    if (!has_gpus && (status != HARPE_UNAVAILABLE || request->gpus))
        return harpe_fail(error, status, "%s", no_gpu.message);
    harpe_monitor_options options = {
        .gpus = session->gpus,
        .gpu_indices = session->gpu_indices,
        .gpu_count = session->gpu_count,
        .with_cpu = !request->no_cpu,
        .rapl_path = request->rapl_path,
        .log_path = log_path,
        .log = harpe_command_log("harpe monitor"),
    };
    status = harpe_monitor_new(&options, &session->monitor, error);
    if (status != HARPE_OK) return status;
    session->cpu_count = harpe_monitor_cpu_count(session->monitor);
    if (!has_gpus && session->cpu_count == 0) return fail_nothing(request, &no_gpu, error);
    if (!has_gpus)
        fprintf(stderr, "harpe monitor: no GPU, only CPUs are measured: %s\n", no_gpu.message);
    return HARPE_OK;
}

static void close_session(monitor_session *session) {
    harpe_monitor_free(session->monitor);
    if (session->gpus) harpe_gpus_close(session->gpus);
    free(session->gpu_indices);
    *session = (monitor_session){0};
}

/* ---- The result ------------------------------------------------------------------------------ */

static double total_cpu_j(const harpe_window_measurement *measurement) {
    double energy_j = 0;
    for (size_t i = 0; i < measurement->cpu_count; i++) {
        double dram_j = measurement->dram_energy_j[i];
        energy_j += measurement->cpu_energy_j[i] + (isnan(dram_j) ? 0 : dram_j);
    }
    return energy_j;
}

static void print_row(FILE *stream, const char *label, const char *name, double energy_j,
                      double time_s) {
    fprintf(stream, "  %-8s%-32.32s%14.3f J", label, name, energy_j);
    if (time_s > 0) fprintf(stream, "%11.1f W", energy_j / time_s);
    fputc('\n', stream);
}

static bool covers_module(const monitor_session *session, int gpu) {
    return session->gpus && harpe_gpu_energy_scope(session->gpus, gpu) == HARPE_ENERGY_OF_MODULE;
}

/* Prints time, energy and average power as a small table. */
static void print_summary(FILE *stream, const monitor_session *session,
                          const harpe_window_measurement *measurement) {
    double time_s = measurement->time_s;
    bool is_emulated = session->gpus && harpe_gpus_are_emulated(session->gpus);
    char label[32];
    fprintf(stream, "%.3f s%s\n", time_s, is_emulated ? " (emulated GPUs)" : "");
    for (size_t i = 0; i < measurement->gpu_count; i++) {
        snprintf(label, sizeof label, "GPU %d", measurement->gpu_index[i]);
        const harpe_gpu_info *info = harpe_gpu_info_at(session->gpus, measurement->gpu_index[i]);
        print_row(stream, label, info ? info->name : "", measurement->gpu_energy_j[i], time_s);
        if (covers_module(session, measurement->gpu_index[i]))
            fprintf(stream, "         (that of the whole module, CPU included)\n");
    }
    for (size_t i = 0; i < measurement->cpu_count; i++) {
        snprintf(label, sizeof label, "CPU %zu", i);
        print_row(stream, label, harpe_monitor_cpu_name(session->monitor, i),
                  measurement->cpu_energy_j[i], time_s);
        if (!isnan(measurement->dram_energy_j[i]))
            print_row(stream, "", "dram", measurement->dram_energy_j[i], time_s);
    }
    if (measurement->gpu_count + measurement->cpu_count > 1)
        print_row(stream, "total", "", measurement->total_gpu_energy_j + total_cpu_j(measurement),
                  time_s);
}

static json_t *summary_json(const monitor_session *session,
                            const harpe_window_measurement *measurement) {
    json_t *gpus = json_array();
    json_t *cpus = json_array();
    double time_s = measurement->time_s;
    for (size_t i = 0; i < measurement->gpu_count; i++) {
        const harpe_gpu_info *info = harpe_gpu_info_at(session->gpus, measurement->gpu_index[i]);
        double energy_j = measurement->gpu_energy_j[i];
        json_array_append_new(
            gpus, json_pack("{s:i, s:o, s:s, s:f, s:o}", "index", measurement->gpu_index[i], "name",
                            harpe_command_json_text(info ? info->name : ""), "energy_scope",
                            covers_module(session, measurement->gpu_index[i]) ? "module" : "gpu",
                            "energy_j", energy_j, "average_power_w",
                            time_s > 0 ? json_real(energy_j / time_s) : json_null()));
    }
    for (size_t i = 0; i < measurement->cpu_count; i++)
        json_array_append_new(
            cpus, json_pack("{s:i, s:o, s:f, s:o}", "index", (int)i, "name",
                            harpe_command_json_text(harpe_monitor_cpu_name(session->monitor, i)),
                            "energy_j", measurement->cpu_energy_j[i], "dram_energy_j",
                            harpe_command_json_number(measurement->dram_energy_j[i])));
    double cpu_j = total_cpu_j(measurement);
    return json_pack("{s:f, s:b, s:o, s:o, s:f, s:f, s:f}", "time_s", time_s, "emulated",
                     session->gpus && harpe_gpus_are_emulated(session->gpus), "gpus", gpus, "cpus",
                     cpus, "gpu_energy_j", measurement->total_gpu_energy_j, "cpu_energy_j", cpu_j,
                     "total_energy_j", measurement->total_gpu_energy_j + cpu_j);
}

/* ---- A command ------------------------------------------------------------------------------- */

enum { WINDOW_NAME_SIZE = 256 };

static int run_command(char **command) {
    static const int numbers[] = {SIGCHLD, SIGINT, SIGQUIT, SIGTERM, SIGHUP, 0};
    sigset_t waited, before;
    signal(SIGCHLD, SIG_DFL); /* if SIGCHLD were ignored, the exit status would be lost */
    harpe_command_block(numbers, &waited, &before);
    int exit_code = harpe_command_run("monitor", command, &waited, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return exit_code;
}

/* Makes the window's name in the log: the command line, cut to a readable length. */
static void name_window(char **command, char *name) {
    size_t length = 0;
    name[0] = '\0';
    for (char **word = command; *word && length + 1 < WINDOW_NAME_SIZE; word++) {
        int added = snprintf(name + length, WINDOW_NAME_SIZE - length, "%s%s",
                             word == command ? "" : " ", *word);
        length += added > 0 ? (size_t)added : 0;
    }
}

static harpe_status report(const monitor_request *request, const monitor_session *session,
                           const harpe_window_measurement *measurement, int exit_code,
                           harpe_error *error) {
    if (!request->json) {
        fputs("harpe monitor: ", stderr);
        print_summary(stderr, session, measurement);
        return HARPE_OK;
    }
    json_t *object = summary_json(session, measurement);
    json_t *words = json_array();
    for (char **word = request->command; *word; word++)
        json_array_append_new(words, harpe_command_json_text(*word));
    json_object_set_new(object, "command", words);
    json_object_set_new(object, "exit_status", json_integer(exit_code));
    return harpe_command_print_json(object, error);
}

/* Measures the command of the request. Returns the program's exit code. */
static int measure(const monitor_request *request) {
    harpe_error error;
    monitor_session session = {0};
    harpe_window_measurement measurement = {0};
    char name[WINDOW_NAME_SIZE];
    int exit_code = HARPE_EXIT_OK;
    bool to_stdout = request->csv_path && strcmp(request->csv_path, "-") == 0;
    const char *log_path = to_stdout ? "/dev/stdout" : request->csv_path;
    harpe_status status = open_session(request, log_path, &session, &error);
    if (status != HARPE_OK) goto done;
    name_window(request->command, name);
    status = harpe_monitor_begin(session.monitor, name, false, &error);
    if (status != HARPE_OK) goto done;
    exit_code = run_command(request->command);
    status = harpe_monitor_end(session.monitor, name, false, &measurement, &error);
    if (status != HARPE_OK) goto done;
    status = report(request, &session, &measurement, exit_code, &error);
done:
    harpe_window_measurement_clear(&measurement);
    close_session(&session);
    if (status == HARPE_OK) return exit_code;
    int failed = harpe_command_fail("monitor", &error);
    /* If the command has failed too, the user gets the command's exit code. */
    return exit_code != HARPE_EXIT_OK ? exit_code : failed;
}

enum { HISTORY = 64 };

/* Present values of a GPU or CPU; NaN or 0 if they are not known. */
typedef struct device_view {
    double power_w, average_w; /* average: over the last interval; a CPU has only this */
    double limit_w;
    double energy_j, dram_energy_j; /* since the start; DRAM: NaN if there is no DRAM counter */
    uint32_t graphics_mhz, memory_mhz, celsius;
    double history_w[HISTORY]; /* of a GPU; latest first */
    size_t history_count;
} device_view;

typedef struct monitor_view {
    bool energy; /* true: show energy; false: show power */
    bool is_utf8, has_colours;
    double unix_time_s, time_s;
    device_view *devices; /* the GPUs, and then the CPUs */
} monitor_view;

/* ---- Live: reading --------------------------------------------------------------------------- */

static bool locale_is_utf8(void) {
    const char *names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

static size_t device_count(const monitor_session *session) {
    return session->gpu_count + session->cpu_count;
}

/* Returns the number of a device among the GPUs or CPUs. */
static int number_of(const monitor_session *session, size_t device) {
    return device < session->gpu_count ? session->gpu_indices[device]
                                       : (int)(device - session->gpu_count);
}

static void read_gpu(harpe_gpus *gpus, int index, device_view *gpu) {
    uint32_t power_mw = 0, limit_mw = 0;
    gpu->power_w = gpu->limit_w = gpu->dram_energy_j = NAN;
    gpu->graphics_mhz = gpu->memory_mhz = gpu->celsius = 0;
    if (harpe_gpu_instant_power(gpus, index, &power_mw, NULL) == HARPE_OK)
        gpu->power_w = power_mw / 1e3;
    if (harpe_gpu_power_limit(gpus, index, &limit_mw, NULL) == HARPE_OK)
        gpu->limit_w = limit_mw / 1e3;
    (void)harpe_gpu_current_clocks(gpus, index, &gpu->graphics_mhz, &gpu->memory_mhz, NULL);
    (void)harpe_gpu_temperature(gpus, index, &gpu->celsius, NULL);
}

/* Stores the energy since the start, and computes the average power since the last reading. */
static void set_energy(device_view *device, double energy_j, double interval_s) {
    device->average_w = interval_s > 0 ? (energy_j - device->energy_j) / interval_s : (double)NAN;
    device->energy_j = energy_j;
}

static double shown_w(const monitor_view *view, const device_view *device) {
    return view->energy ? device->average_w : device->power_w;
}

/* Takes a reading. `window` has been open since the start. */
static harpe_status update(monitor_session *session, const char *window, monitor_view *view,
                           harpe_error *error) {
    harpe_window_measurement now = {0};
    harpe_status status = harpe_monitor_peek(session->monitor, window, &now, error);
    if (status != HARPE_OK) return status;
    double interval_s = now.time_s - view->time_s;
    view->unix_time_s = harpe_clock_wall_s();
    view->time_s = now.time_s;
    for (size_t i = 0; i < session->gpu_count; i++) {
        device_view *gpu = &view->devices[i];
        double *history_w = gpu->history_w;
        read_gpu(session->gpus, session->gpu_indices[i], gpu);
        set_energy(gpu, now.gpu_energy_j[i], interval_s);
        memmove(history_w + 1, history_w, (HISTORY - 1) * sizeof *history_w);
        history_w[0] = shown_w(view, gpu);
        if (gpu->history_count < HISTORY) gpu->history_count++;
    }
    for (size_t i = 0; i < session->cpu_count; i++) {
        device_view *cpu = &view->devices[session->gpu_count + i];
        set_energy(cpu, now.cpu_energy_j[i], interval_s);
        cpu->power_w = cpu->average_w;
        cpu->dram_energy_j = now.dram_energy_j[i];
    }
    harpe_window_measurement_clear(&now);
    return HARPE_OK;
}

typedef struct totals {
    double power_w, energy_j;
} totals;

/* Adds up all devices. If the power of one GPU is unknown, the sum is unknown. */
static totals add_up(const monitor_session *session, const monitor_view *view) {
    totals sum = {0};
    for (size_t i = 0; i < device_count(session); i++) {
        const device_view *device = &view->devices[i];
        sum.power_w += shown_w(view, device);
        sum.energy_j += device->energy_j;
        sum.energy_j += isnan(device->dram_energy_j) ? 0 : device->dram_energy_j;
    }
    return sum;
}

/* ---- Live: a frame on a terminal ------------------------------------------------------------- */

enum { NAME_COLUMNS_MIN = 10, NAME_COLUMNS_MAX = 28, SPARK_MIN = 8, FIXED_COLUMNS = 52 };

static void append_number(harpe_text *text, int digits, double value, int width) {
    char number[32];
    snprintf(number, sizeof number, "%.*f", digits, value);
    harpe_text_printf(text, "%*s", width, isnan(value) ? "-" : number);
}

static void append_count(harpe_text *text, uint32_t value, int width) {
    append_number(text, 0, value ? (double)value : (double)NAN, width);
}

static void append_energy(harpe_text *text, double energy_j) {
    bool is_large = energy_j >= 1e6;
    append_number(text, is_large ? 3 : 1, is_large ? energy_j / 1e6 : energy_j, 10);
    harpe_text_printf(text, is_large ? " MJ" : " J ");
}

/* Ends a line and deletes the rest of the previous frame's line. */
static void end_line(harpe_text *text) { harpe_text_printf(text, "\033[K\n"); }

static const char *colour_of(double share) {
    return share >= 0.95 ? "\033[31m" : share >= 0.7 ? "\033[33m" : "\033[32m";
}

/* Appends a small chart of the power in the last intervals, as a share of the power limit. The
 * latest interval is at the right. */
static void append_spark(const monitor_view *view, const device_view *gpu, int columns,
                         harpe_text *text) {
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const letters[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
    double scale_w = isnan(gpu->limit_w) || gpu->limit_w <= 0 ? 300 : gpu->limit_w;
    double latest = gpu->history_count ? gpu->history_w[0] / scale_w : 0;
    if (view->has_colours) harpe_text_printf(text, "%s", colour_of(latest));
    for (int age = columns - 1; age >= 0; age--) {
        double power_w = (size_t)age < gpu->history_count ? gpu->history_w[age] : (double)NAN;
        int level = isnan(power_w) ? -1 : (int)(power_w / scale_w * 8);
        level = level > 7 ? 7 : level;
        const char *mark = level < 0 ? " " : view->is_utf8 ? blocks[level] : letters[level];
        harpe_text_append(text, mark, strlen(mark));
    }
    if (view->has_colours) harpe_text_printf(text, "\033[0m");
}

typedef struct frame_layout {
    int name_columns, spark_columns; /* spark 0: no room */
} frame_layout;

static frame_layout lay_out(int columns) {
    frame_layout layout = {NAME_COLUMNS_MIN, 0};
    int spare = columns - FIXED_COLUMNS - NAME_COLUMNS_MIN;
    if (spare >= SPARK_MIN + 1) {
        layout.spark_columns = SPARK_MIN;
        spare -= SPARK_MIN + 1;
        int name_more = spare < NAME_COLUMNS_MAX - NAME_COLUMNS_MIN
                            ? spare
                            : NAME_COLUMNS_MAX - NAME_COLUMNS_MIN;
        layout.name_columns += name_more;
        spare -= name_more;
        layout.spark_columns += spare;
    }
    if (layout.spark_columns > HISTORY) layout.spark_columns = HISTORY;
    return layout;
}

/* Appends a name from the driver, cut or filled with blanks to this number of columns. Characters
 * that are not printable ASCII become "?", because they could control the terminal. */
static void append_name(harpe_text *text, const char *name, int columns) {
    for (int i = 0; i < columns; i++) {
        char c = *name ? *name++ : ' ';
        harpe_text_printf(text, "%c", c >= ' ' && c <= '~' ? c : '?');
    }
}

/* Returns the name of the GPU without "NVIDIA " at its beginning. */
static const char *short_name(const harpe_gpu_info *info) {
    static const char vendor[] = "NVIDIA ";
    if (!info) return "";
    bool has_vendor = strncmp(info->name, vendor, sizeof vendor - 1) == 0;
    return has_vendor ? info->name + sizeof vendor - 1 : info->name;
}

static void append_gpu(const monitor_session *session, const monitor_view *view, size_t i,
                       const frame_layout *layout, harpe_text *text) {
    const device_view *gpu = &view->devices[i];
    int index = session->gpu_indices[i];
    const harpe_gpu_info *info = harpe_gpu_info_at(session->gpus, index);
    harpe_text_printf(text, "%3d ", index);
    append_name(text, short_name(info), layout->name_columns);
    append_number(text, 1, shown_w(view, gpu), 8);
    append_number(text, 0, gpu->limit_w, 7);
    append_count(text, gpu->graphics_mhz, 7);
    append_count(text, gpu->memory_mhz, 7);
    append_count(text, gpu->celsius, 5);
    harpe_text_append(text, " ", 1);
    append_energy(text, gpu->energy_j);
    if (layout->spark_columns > 0) {
        harpe_text_append(text, " ", 1);
        append_spark(view, gpu, layout->spark_columns, text);
    }
    end_line(text);
}

static void append_other(const char *label, double power_w, double energy_j,
                         const frame_layout *layout, harpe_text *text) {
    append_name(text, label, 4 + layout->name_columns);
    append_number(text, 1, power_w, 8);
    harpe_text_printf(text, "%27s", "");
    append_energy(text, energy_j);
    end_line(text);
}

static void append_heading(const monitor_session *session, const monitor_view *view,
                           const frame_layout *layout, harpe_text *text) {
    bool is_emulated = session->gpus && harpe_gpus_are_emulated(session->gpus);
    harpe_text_printf(text, "%sharpe monitor %s%s  %s%.0f s   q: quit", harpe_bold_start(),
                      view->energy ? "energy" : "power", harpe_bold_end(),
                      is_emulated ? "emulated GPUs  " : "", view->time_s);
    end_line(text);
    harpe_text_printf(text, "%s%3s %-*.*s%8s%7s%7s%7s%5s%11s  ", harpe_bold_start(), "GPU",
                      layout->name_columns, layout->name_columns, "name",
                      view->energy ? "W mean" : "W now", "limit", "MHz", "memory", "C", "energy");
    if (layout->spark_columns > 0) harpe_text_printf(text, " %.*s", layout->spark_columns, "power");
    harpe_text_printf(text, "%s", harpe_bold_end());
    end_line(text);
}

/* Appends a frame for the size of the terminal. */
static void append_frame(const monitor_session *session, const monitor_view *view,
                         harpe_text *text) {
    struct winsize size = {0};
    bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    frame_layout layout = lay_out(is_known ? size.ws_col : 80);
    /* Not for devices: the heading (2), "and N more GPUs", the total, and an empty last line. */
    int room = (is_known ? size.ws_row : 24) - 5;
    size_t shown = session->gpu_count;
    if (room < 1) room = 1;
    if (shown > (size_t)room) shown = (size_t)room;
    harpe_text_printf(text, "\033[H");
    append_heading(session, view, &layout, text);
    for (size_t i = 0; i < shown; i++)
        append_gpu(session, view, i, &layout, text);
    if (shown < session->gpu_count) {
        harpe_text_printf(text, "    and %zu more GPUs", session->gpu_count - shown);
        end_line(text);
    }
    for (size_t i = 0; i < session->cpu_count && shown + i < (size_t)room; i++) {
        char label[64];
        snprintf(label, sizeof label, "CPU %s", harpe_monitor_cpu_name(session->monitor, i));
        const device_view *cpu = &view->devices[session->gpu_count + i];
        append_other(label, cpu->average_w, cpu->energy_j, &layout, text);
    }
    totals sum = add_up(session, view);
    append_other("total", sum.power_w, sum.energy_j, &layout, text);
    harpe_text_printf(text, "\033[J");
}

/* ---- Live: lines for files and programs ------------------------------------------------------ */

static void append_line(const monitor_session *session, const monitor_view *view,
                        harpe_text *text) {
    const char *unit = view->energy ? "J" : "W";
    harpe_text_printf(text, "%10.3f s", view->time_s);
    for (size_t i = 0; i < device_count(session); i++) {
        const device_view *device = &view->devices[i];
        harpe_text_printf(text, "  %s %d", i < session->gpu_count ? "GPU" : "CPU",
                          number_of(session, i));
        append_number(text, 1, view->energy ? device->energy_j : device->power_w, 8);
        harpe_text_printf(text, " %s", unit);
    }
    totals sum = add_up(session, view);
    harpe_text_printf(text, "  total");
    append_number(text, 1, view->energy ? sum.energy_j : sum.power_w, 8);
    harpe_text_printf(text, " %s\n", unit);
}

static void append_csv_header(const monitor_session *session, const monitor_view *view,
                              harpe_text *text) {
    const char *what = view->energy ? "energy" : "power";
    harpe_text_printf(text, "time,elapsed_time");
    for (size_t i = 0; i < device_count(session); i++)
        harpe_text_printf(text, ",%s%d_%s", i < session->gpu_count ? "gpu" : "cpu",
                          number_of(session, i), what);
    harpe_text_append(text, "\n", 1);
}

/* Appends a field, which is empty if the value is unknown. */
static void append_field(harpe_text *text, double value) {
    harpe_text_append(text, ",", 1);
    if (!isnan(value)) harpe_text_number(text, value);
}

static void append_csv(const monitor_session *session, const monitor_view *view, harpe_text *text) {
    harpe_text_number(text, view->unix_time_s);
    append_field(text, view->time_s);
    for (const device_view *device = view->devices; device < view->devices + device_count(session);
         device++)
        append_field(text, view->energy ? device->energy_j : device->power_w);
    harpe_text_append(text, "\n", 1);
}

static json_t *count_or_null(uint32_t value) {
    return value ? json_integer((json_int_t)value) : json_null();
}

static json_t *view_json(const monitor_session *session, const monitor_view *view) {
    json_t *gpus = json_array();
    json_t *cpus = json_array();
    for (size_t i = 0; i < session->gpu_count; i++) {
        const device_view *gpu = &view->devices[i];
        int index = session->gpu_indices[i];
        const char *scope = harpe_gpu_energy_scope(session->gpus, index) == HARPE_ENERGY_OF_MODULE
                                ? "module"
                                : "gpu";
        json_array_append_new(
            gpus,
            json_pack("{s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:f}", "index", index,
                      "energy_scope", scope, "power_w", harpe_command_json_number(gpu->power_w),
                      "average_power_w", harpe_command_json_number(gpu->average_w), "power_limit_w",
                      harpe_command_json_number(gpu->limit_w), "graphics_clock_mhz",
                      count_or_null(gpu->graphics_mhz), "memory_clock_mhz",
                      count_or_null(gpu->memory_mhz), "temperature_c", count_or_null(gpu->celsius),
                      "energy_j", gpu->energy_j));
    }
    for (size_t i = 0; i < session->cpu_count; i++) {
        const device_view *cpu = &view->devices[session->gpu_count + i];
        json_array_append_new(
            cpus, json_pack("{s:i, s:o, s:f, s:o}", "index", (int)i, "average_power_w",
                            harpe_command_json_number(cpu->average_w), "energy_j", cpu->energy_j,
                            "dram_energy_j", harpe_command_json_number(cpu->dram_energy_j)));
    }
    totals sum = add_up(session, view);
    return json_pack("{s:f, s:f, s:o, s:o, s:o, s:f}", "time", view->unix_time_s, "elapsed_time_s",
                     view->time_s, "gpus", gpus, "cpus", cpus, "total_power_w",
                     harpe_command_json_number(sum.power_w), "total_energy_j", sum.energy_j);
}

static const char *const window_name = "live";
static const int64_t slice_ns = 100000000; /* longest time between two looks for a signal */

typedef struct live_run {
    const monitor_request *request;
    monitor_session session;
    monitor_view view;
    harpe_text text; /* buffer reused for every frame */
    FILE *csv;       /* NULL: none */
    bool is_display; /* frames on a terminal */
    bool has_keys;   /* stdin delivers single keys */
    struct termios before;
} live_run;

/* ---- Live: the terminal ---------------------------------------------------------------------- */

/* Switches to the alternate screen, which keeps the user's text. Lines that are too wide are cut,
 * not wrapped. Ctrl-Z is disabled, because it would leave the terminal in a wrong state. */
static void enter_display(live_run *live) {
    fputs("\033[?1049h\033[?25l\033[?7l\033[2J", stdout);
    live->has_keys = isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp() &&
                     tcgetattr(STDIN_FILENO, &live->before) == 0;
    if (live->has_keys) {
        struct termios keys = live->before;
        keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        keys.c_cc[VMIN] = 0;
        keys.c_cc[VTIME] = 0;
        keys.c_cc[VSUSP] = _POSIX_VDISABLE;
        tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    }
}

static void leave_display(live_run *live) {
    if (!live->is_display) return;
    if (live->has_keys) tcsetattr(STDIN_FILENO, TCSANOW, &live->before);
    fputs("\033[?7h\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    live->is_display = false;
}

static bool quit_was_pressed(const live_run *live) {
    char keys[16];
    if (!live->has_keys) return false;
    ssize_t count = read(STDIN_FILENO, keys, sizeof keys);
    for (ssize_t i = 0; i < count; i++)
        if (keys[i] == 'q' || keys[i] == 'Q') return true;
    return false;
}

/* ---- Live: output ---------------------------------------------------------------------------- */

static harpe_status write_text(live_run *live, FILE *stream, harpe_error *error) {
    if (live->text.failed) return harpe_fail_memory(error);
    errno = 0;
    fwrite(live->text.data, 1, live->text.length, stream);
    live->text.length = 0;
    if (fflush(stream) != 0 || ferror(stream)) {
        bool is_csv = stream == live->csv && live->csv != stdout;
        return harpe_fail_errno(error, errno ? errno : EIO, "writing %s",
                                is_csv ? live->request->csv_path : "standard output");
    }
    return HARPE_OK;
}

static harpe_status append_json(live_run *live, harpe_error *error) {
    json_t *value = view_json(&live->session, &live->view);
    char *line = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(value);
    if (!line) return harpe_fail_memory(error);
    harpe_text_printf(&live->text, "%s\n", line);
    free(line);
    return HARPE_OK;
}

static harpe_status show(live_run *live, harpe_error *error) {
    harpe_status status = HARPE_OK;
    if (live->csv) {
        append_csv(&live->session, &live->view, &live->text);
        status = write_text(live, live->csv, error);
    }
    if (status != HARPE_OK || live->csv == stdout) return status;
    if (live->request->json)
        status = append_json(live, error);
    else if (live->is_display)
        append_frame(&live->session, &live->view, &live->text);
    else
        append_line(&live->session, &live->view, &live->text);
    return status == HARPE_OK ? write_text(live, stdout, error) : status;
}

static harpe_status open_csv(live_run *live, harpe_error *error) {
    const char *path = live->request->csv_path;
    if (!path) return HARPE_OK;
    live->csv = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    if (!live->csv) return harpe_fail_errno(error, errno, "opening %s", path);
    append_csv_header(&live->session, &live->view, &live->text);
    return write_text(live, live->csv, error);
}

static harpe_status close_csv(live_run *live, harpe_error *error) {
    FILE *csv = live->csv;
    live->csv = NULL;
    if (!csv || csv == stdout || fclose(csv) == 0) return HARPE_OK;
    return harpe_fail_errno(error, errno, "writing %s", live->request->csv_path);
}

/* ---- Live: timing ---------------------------------------------------------------------------- */

/* Waits until `wake_ns`. Returns false if the program is to stop. It waits in short slices, so a
 * signal that arrives just before harpe_poll() is noticed soon. */
static bool wait_until(live_run *live, int64_t wake_ns) {
    for (;;) {
        int64_t left_ns = wake_ns - harpe_clock_ns();
        if (harpe_terminal_progress_signal() || quit_was_pressed(live)) return false;
        if (left_ns <= 0) return true;
        struct pollfd keys = {.fd = live->has_keys ? STDIN_FILENO : -1, .events = POLLIN};
        (void)harpe_poll(&keys, 1, left_ns < slice_ns ? left_ns : slice_ns);
        if (keys.revents & (POLLHUP | POLLERR | POLLNVAL)) live->has_keys = false;
    }
}

static harpe_status run(live_run *live, harpe_error *error) {
    const monitor_request *request = live->request;
    int64_t start_ns = harpe_clock_ns();
    int64_t interval_ns = (int64_t)(request->interval_s * 1e9);
    int64_t end_ns =
        request->duration_s > 0 ? start_ns + (int64_t)(request->duration_s * 1e9) : INT64_MAX;
    int64_t wake_ns = start_ns;
    for (;;) {
        /* If the driver was slow or the process was stopped, readings that are overdue are
         * skipped. */
        int64_t now_ns = harpe_clock_ns();
        wake_ns += interval_ns * (1 + (now_ns > wake_ns ? (now_ns - wake_ns) / interval_ns : 0));
        bool is_last = wake_ns >= end_ns;
        if (!wait_until(live, is_last ? end_ns : wake_ns)) return HARPE_OK;
        harpe_status status = update(&live->session, window_name, &live->view, error);
        if (status == HARPE_OK) status = show(live, error);
        if (status != HARPE_OK || is_last) return status;
    }
}

static harpe_status start(live_run *live, harpe_error *error) {
    const monitor_request *request = live->request;
    harpe_status status = open_session(request, NULL, &live->session, error);
    if (status != HARPE_OK) return status;
    live->view = (monitor_view){
        .energy = request->energy,
        .is_utf8 = locale_is_utf8(),
        .has_colours = *harpe_bold_start() != '\0',
        .devices = harpe_calloc(device_count(&live->session), sizeof *live->view.devices),
    };
    if (!live->view.devices) return harpe_fail_memory(error);
    status = open_csv(live, error);
    if (status != HARPE_OK) return status;
    status = harpe_monitor_begin(live->session.monitor, window_name, false, error);
    if (status != HARPE_OK) return status;
    const char *terminal = getenv("TERM");
    live->is_display = !request->json && live->csv != stdout && isatty(STDOUT_FILENO) && terminal &&
                       *terminal && strcmp(terminal, "dumb") != 0;
    if (live->is_display) enter_display(live);
    return HARPE_OK;
}

/* Prints the summary for people, unless a program reads the output. */
static harpe_status summarize(live_run *live, harpe_error *error) {
    harpe_window_measurement measurement = {0};
    harpe_status status =
        harpe_monitor_end(live->session.monitor, window_name, false, &measurement, error);
    if (status == HARPE_OK && !live->request->json && live->csv != stdout)
        print_summary(stdout, &live->session, &measurement);
    harpe_window_measurement_clear(&measurement);
    return status;
}

/* Shows live values until the end of the request's time, or until a signal arrives. Returns the
 * program's exit code. */
static int show_live(const monitor_request *request) {
    harpe_error error;
    harpe_error close_error;
    live_run live = {.request = request};
    harpe_command_catch_signals();
    harpe_status status = start(&live, &error);
    if (status == HARPE_OK) status = run(&live, &error);
    leave_display(&live);
    if (status == HARPE_OK) status = summarize(&live, &error);
    if (close_csv(&live, &close_error) != HARPE_OK && status == HARPE_OK) {
        status = close_error.status;
        error = close_error;
    }
    harpe_text_free(&live.text);
    free(live.view.devices);
    close_session(&live.session);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("monitor", &error);
}

/* ---- Flags ----------------------------------------------------------------------------------- */

#define WHAT "energy, power, or a command after '--'"

/* Reads a mode, or the first word of the command. A command after '--' needs no mode, because the
 * mode of a command is always energy. */
static void read_word(void *into, struct argp_state *state, const char *flag, char *word) {
    monitor_request *request = into;
    (void)flag;
    bool is_energy = strcmp(word, "energy") == 0;
    if (!request->has_mode && (is_energy || strcmp(word, "power") == 0)) {
        request->energy = is_energy;
        request->has_mode = true;
        return;
    }
    if (!request->has_mode && !state->quoted)
        harpe_flag_fail(state, "what to monitor: expected " WHAT ", found '%.40s'", word);
    if (!request->has_mode) request->energy = request->has_mode = true;
    request->command = &state->argv[state->next - 1];
    state->next = state->argc;
}

static const harpe_flag words[] = {{"WORD", .read = read_word}, {0}};

static const harpe_flag flags[] = {
    {"gpus", 'g', "LIST", "GPUs to watch, such as 0,2 (default: all visible)", 1,
     HARPE_INTO(monitor_request, gpus)},
    {"no-cpu", 0, NULL, "Do not measure the CPUs", 1, HARPE_INTO(monitor_request, no_cpu)},
    {"rapl-path", 0, "DIR", "Directory of the CPUs' counters (default: /sys/class/powercap)", 1,
     HARPE_INTO(monitor_request, rapl_path)},
    {"interval", 'i', "S", "Live: seconds between readings (default 1)", 2,
     HARPE_INTO(monitor_request, interval_s), 0.01, 86400,
     .given = offsetof(monitor_request, has_live_flag)},
    {"duration", 'd', "S", "Live: stop after S seconds", 2, HARPE_INTO(monitor_request, duration_s),
     0, 1e7, .is_above = true, .given = offsetof(monitor_request, has_live_flag)},
    {.help = "Output:", .group = 3},
    {"csv", 0, "FILE", "Also write CSV; '-' is standard output", 3,
     HARPE_INTO(monitor_request, csv_path)},
    {"json", 'j', NULL, "Print JSON: one object; live, one per line and interval", 3,
     HARPE_INTO(monitor_request, json)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags}},
    .words = words,
    .is_in_order = true,
    .forms = "[energy] -- COMMAND [ARG...]\nenergy\npower",
    .about = "Measure the time and energy of a command, or show the energy and power of GPUs and "
             "CPUs live.\vExamples:\n  harpe monitor -- python train.py\n  harpe monitor power\n  "
             "harpe emulate --gpus 4xA100 -- harpe monitor power\n\nSee also: man harpe-monitor",
};

static void check_usage(const monitor_request *request, const struct argp_state *state) {
    if (!request->has_mode) harpe_flag_fail(state, "expected " WHAT "; see 'harpe monitor --help'");
    if (request->command && !request->energy)
        harpe_flag_fail(state, "a command is measured by 'harpe monitor -- %.40s ...'",
                        request->command[0]);
    if (request->command && request->has_live_flag)
        harpe_flag_fail(state, "--interval and --duration are for live display, not for a command");
    if (request->json && request->csv_path && strcmp(request->csv_path, "-") == 0)
        harpe_flag_fail(state, "--json and --csv - cannot both go to standard output");
}

int harpe_monitor_command(int argc, char **argv) {
    monitor_request request = {.interval_s = 1};
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &request);
    check_usage(&request, &state);
    return request.command ? measure(&request) : show_live(&request);
}
