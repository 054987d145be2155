/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe monitor energy|power` without a command: takes readings at a fixed interval until Ctrl-C,
 * q or --duration, shows them as frames on a terminal or as lines elsewhere, then prints a summary.
 * Values that a driver does not report stay NaN and are shown as "-", as an empty field, or as
 * null, never as 0. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/wait.h"
#include "cli/cli.h"
#include "cli/monitor/monitor_internal.h"
#include "monitor/monitor.h"

enum { HISTORY = 64 };

/* Present values of one GPU; NaN or 0 if the driver does not report them. */
typedef struct gpu_view {
    double power_w, limit_w, average_w; /* average: over the last interval */
    double energy_j;                    /* since the start */
    uint32_t graphics_mhz, memory_mhz, celsius;
    double history_w[HISTORY]; /* latest first */
    size_t history_count;
} gpu_view;

typedef struct cpu_view {
    double average_w, energy_j, dram_energy_j; /* DRAM: NaN if there is no DRAM counter */
} cpu_view;

typedef struct monitor_view {
    bool energy; /* true: show energy; false: show power */
    bool is_utf8, has_colours;
    double unix_time_s, time_s;
    gpu_view *gpus;
    cpu_view *cpus;
} monitor_view;

/* ---- Reading --------------------------------------------------------------------------------- */

static bool locale_is_utf8(void) {
    const char *names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

/* Makes a view. `view` must be initialised with zeros. */
static harpe_status make_view(const harpe_monitor_session *session, monitor_view *view,
                              harpe_error *error) {
    view->gpus = harpe_calloc(session->gpu_count, sizeof *view->gpus);
    view->cpus = harpe_calloc(session->cpu_count, sizeof *view->cpus);
    view->is_utf8 = locale_is_utf8();
    view->has_colours = *harpe_bold_start() != '\0';
    return view->gpus && view->cpus ? HARPE_OK : harpe_fail_memory(error);
}

static void free_view(monitor_view *view) {
    free(view->gpus);
    free(view->cpus);
}

static void read_gpu(harpe_gpus *gpus, int index, gpu_view *gpu) {
    uint32_t power_mw = 0;
    uint32_t limit_mw = 0;
    gpu->power_w = NAN;
    gpu->limit_w = NAN;
    gpu->graphics_mhz = 0;
    gpu->memory_mhz = 0;
    gpu->celsius = 0;
    if (harpe_gpu_instant_power(gpus, index, &power_mw, NULL) == HARPE_OK)
        gpu->power_w = power_mw / 1e3;
    if (harpe_gpu_power_limit(gpus, index, &limit_mw, NULL) == HARPE_OK)
        gpu->limit_w = limit_mw / 1e3;
    (void)harpe_gpu_current_clocks(gpus, index, &gpu->graphics_mhz, &gpu->memory_mhz, NULL);
    (void)harpe_gpu_temperature(gpus, index, &gpu->celsius, NULL);
}

static void remember(gpu_view *gpu, double power_w) {
    memmove(gpu->history_w + 1, gpu->history_w, sizeof gpu->history_w - sizeof gpu->history_w[0]);
    gpu->history_w[0] = power_w;
    if (gpu->history_count < HISTORY) gpu->history_count++;
}

static double average(double now_j, double before_j, double interval_s) {
    return interval_s > 0 ? (now_j - before_j) / interval_s : (double)NAN;
}

/* Takes a reading. `window` has been open since the start. */
static harpe_status update(harpe_monitor_session *session, const char *window, monitor_view *view,
                           harpe_error *error) {
    harpe_window_measurement now = {0};
    harpe_status status = harpe_monitor_peek(session->monitor, window, &now, error);
    if (status != HARPE_OK) return status;
    double interval_s = now.time_s - view->time_s;
    view->unix_time_s = harpe_clock_wall_s();
    view->time_s = now.time_s;
    for (size_t i = 0; i < session->gpu_count; i++) {
        gpu_view *gpu = &view->gpus[i];
        read_gpu(session->gpus, session->gpu_indices[i], gpu);
        gpu->average_w = average(now.gpu_energy_j[i], gpu->energy_j, interval_s);
        gpu->energy_j = now.gpu_energy_j[i];
        remember(gpu, view->energy ? gpu->average_w : gpu->power_w);
    }
    for (size_t i = 0; i < session->cpu_count; i++) {
        cpu_view *cpu = &view->cpus[i];
        cpu->average_w = average(now.cpu_energy_j[i], cpu->energy_j, interval_s);
        cpu->energy_j = now.cpu_energy_j[i];
        cpu->dram_energy_j = now.dram_energy_j[i];
    }
    harpe_window_measurement_clear(&now);
    return HARPE_OK;
}

static double shown_w(const monitor_view *view, const gpu_view *gpu) {
    return view->energy ? gpu->average_w : gpu->power_w;
}

typedef struct totals {
    double power_w, energy_j;
} totals;

/* Adds up all GPUs. If the power of one GPU is unknown, the sum is unknown. */
static totals add_up(const harpe_monitor_session *session, const monitor_view *view) {
    totals sum = {0};
    for (size_t i = 0; i < session->gpu_count; i++) {
        sum.power_w += shown_w(view, &view->gpus[i]);
        sum.energy_j += view->gpus[i].energy_j;
    }
    for (size_t i = 0; i < session->cpu_count; i++) {
        sum.power_w += view->cpus[i].average_w;
        sum.energy_j += view->cpus[i].energy_j;
        sum.energy_j += isnan(view->cpus[i].dram_energy_j) ? 0 : view->cpus[i].dram_energy_j;
    }
    return sum;
}

/* ---- A frame on a terminal ------------------------------------------------------------------- */

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
static void append_spark(const monitor_view *view, const gpu_view *gpu, int columns,
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

static void append_gpu(const harpe_monitor_session *session, const monitor_view *view, size_t i,
                       const frame_layout *layout, harpe_text *text) {
    const gpu_view *gpu = &view->gpus[i];
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

static void append_heading(const harpe_monitor_session *session, const monitor_view *view,
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

/* Appends a frame for a terminal with so many rows and columns. */
static void append_view_frame(const harpe_monitor_session *session, const monitor_view *view,
                              int rows, int columns, harpe_text *text) {
    frame_layout layout = lay_out(columns);
    int room = rows - 5; /* heading (2), total, and an empty last line */
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
        append_other(label, view->cpus[i].average_w, view->cpus[i].energy_j, &layout, text);
    }
    totals sum = add_up(session, view);
    append_other("total", sum.power_w, sum.energy_j, &layout, text);
    harpe_text_printf(text, "\033[J");
}

/* ---- Lines for files and programs ------------------------------------------------------------ */

static void append_line(const harpe_monitor_session *session, const monitor_view *view,
                        harpe_text *text) {
    const char *unit = view->energy ? "J" : "W";
    harpe_text_printf(text, "%10.3f s", view->time_s);
    for (size_t i = 0; i < session->gpu_count; i++) {
        const gpu_view *gpu = &view->gpus[i];
        harpe_text_printf(text, "  GPU %d", session->gpu_indices[i]);
        append_number(text, 1, view->energy ? gpu->energy_j : gpu->power_w, 8);
        harpe_text_printf(text, " %s", unit);
    }
    for (size_t i = 0; i < session->cpu_count; i++) {
        const cpu_view *cpu = &view->cpus[i];
        harpe_text_printf(text, "  CPU %zu", i);
        append_number(text, 1, view->energy ? cpu->energy_j : cpu->average_w, 8);
        harpe_text_printf(text, " %s", unit);
    }
    totals sum = add_up(session, view);
    harpe_text_printf(text, "  total");
    append_number(text, 1, view->energy ? sum.energy_j : sum.power_w, 8);
    harpe_text_printf(text, " %s\n", unit);
}

static void append_csv_header(const harpe_monitor_session *session, const monitor_view *view,
                              harpe_text *text) {
    const char *what = view->energy ? "energy" : "power";
    harpe_text_printf(text, "time,elapsed_time");
    for (size_t i = 0; i < session->gpu_count; i++)
        harpe_text_printf(text, ",gpu%d_%s", session->gpu_indices[i], what);
    for (size_t i = 0; i < session->cpu_count; i++)
        harpe_text_printf(text, ",cpu%zu_%s", i, what);
    harpe_text_append(text, "\n", 1);
}

/* Appends a field, which is empty if the value is unknown. */
static void append_field(harpe_text *text, double value) {
    harpe_text_append(text, ",", 1);
    if (!isnan(value)) harpe_text_number(text, value);
}

static void append_csv(const harpe_monitor_session *session, const monitor_view *view,
                       harpe_text *text) {
    harpe_text_number(text, view->unix_time_s);
    append_field(text, view->time_s);
    for (size_t i = 0; i < session->gpu_count; i++) {
        const gpu_view *gpu = &view->gpus[i];
        append_field(text, view->energy ? gpu->energy_j : gpu->power_w);
    }
    for (size_t i = 0; i < session->cpu_count; i++) {
        const cpu_view *cpu = &view->cpus[i];
        append_field(text, view->energy ? cpu->energy_j : cpu->average_w);
    }
    harpe_text_append(text, "\n", 1);
}

static json_t *count_or_null(uint32_t value) {
    return value ? json_integer((json_int_t)value) : json_null();
}

static json_t *view_json(const harpe_monitor_session *session, const monitor_view *view) {
    json_t *gpus = json_array();
    json_t *cpus = json_array();
    for (size_t i = 0; i < session->gpu_count; i++) {
        const gpu_view *gpu = &view->gpus[i];
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
        const cpu_view *cpu = &view->cpus[i];
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
    const harpe_monitor_request *request;
    harpe_monitor_session session;
    monitor_view view;
    harpe_text text; /* buffer reused for every frame */
    FILE *csv;       /* NULL: none */
    bool is_display; /* frames on a terminal */
    bool has_keys;   /* stdin delivers single keys */
    struct termios before;
} live_run;

/* ---- The terminal ---------------------------------------------------------------------------- */

static bool stdout_is_a_capable_terminal(void) {
    const char *terminal = getenv("TERM");
    return isatty(STDOUT_FILENO) && terminal && *terminal && strcmp(terminal, "dumb") != 0;
}

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

/* ---- Output ---------------------------------------------------------------------------------- */

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

static void append_frame(live_run *live) {
    struct winsize size = {0};
    bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    append_view_frame(&live->session, &live->view, is_known ? size.ws_row : 24,
                      is_known ? size.ws_col : 80, &live->text);
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
        append_frame(live);
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

/* ---- Timing ---------------------------------------------------------------------------------- */

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
    const harpe_monitor_request *request = live->request;
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
    const harpe_monitor_request *request = live->request;
    harpe_status status = harpe_monitor_session_open(request, NULL, &live->session, error);
    if (status != HARPE_OK) return status;
    live->view.energy = request->energy;
    status = make_view(&live->session, &live->view, error);
    if (status != HARPE_OK) return status;
    status = open_csv(live, error);
    if (status != HARPE_OK) return status;
    status = harpe_monitor_begin(live->session.monitor, window_name, false, error);
    if (status != HARPE_OK) return status;
    live->is_display = !request->json && live->csv != stdout && stdout_is_a_capable_terminal();
    if (live->is_display) enter_display(live);
    return HARPE_OK;
}

/* Prints the summary for people, unless a program reads the output. */
static harpe_status summarize(live_run *live, harpe_error *error) {
    harpe_window_measurement measurement = {0};
    harpe_status status =
        harpe_monitor_end(live->session.monitor, window_name, false, &measurement, error);
    if (status == HARPE_OK && !live->request->json && live->csv != stdout)
        harpe_monitor_summary_print(stdout, &live->session, &measurement);
    harpe_window_measurement_clear(&measurement);
    return status;
}

int harpe_monitor_live(const harpe_monitor_request *request) {
    harpe_error error;
    harpe_error close_error;
    harpe_terminal_progress progress;
    live_run live = {.request = request};
    (void)harpe_terminal_progress_start(&progress, true);
    harpe_status status = start(&live, &error);
    if (status == HARPE_OK) status = run(&live, &error);
    leave_display(&live);
    if (status == HARPE_OK) status = summarize(&live, &error);
    if (close_csv(&live, &close_error) != HARPE_OK && status == HARPE_OK) {
        status = close_error.status;
        error = close_error;
    }
    harpe_text_free(&live.text);
    free_view(&live.view);
    harpe_monitor_session_close(&live.session);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("monitor", &error);
}
