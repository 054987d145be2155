/* SPDX-License-Identifier: Apache-2.0 */
/* Takes and formats readings for `harpe monitor`. Values that a driver does not report stay NaN
 * and are shown as "-", as an empty field, or as null, never as 0. Output goes into texts, not to
 * streams. */
#include "cli/monitor/monitor_view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "cli/command.h"
#include "monitor/monitor.h"
#include "monitor/windows.h"

/* ---- Reading --------------------------------------------------------------------------------- */

static bool locale_is_utf8(void) {
    const char *names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

harpe_status harpe_monitor_view_make(const harpe_monitor_session *session, harpe_monitor_view *view,
                                     harpe_error *error) {
    view->gpus = harpe_calloc(session->gpu_count, sizeof *view->gpus);
    view->cpus = harpe_calloc(session->cpu_count, sizeof *view->cpus);
    view->is_utf8 = locale_is_utf8();
    view->has_colours = *harpe_bold_start() != '\0';
    return view->gpus && view->cpus ? HARPE_OK : harpe_fail_memory(error);
}

void harpe_monitor_view_free(harpe_monitor_view *view) {
    free(view->gpus);
    free(view->cpus);
}

static void read_gpu(harpe_gpus *gpus, int index, harpe_gpu_view *gpu) {
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

static void remember(harpe_gpu_view *gpu, double power_w) {
    memmove(gpu->history_w + 1, gpu->history_w, sizeof gpu->history_w - sizeof gpu->history_w[0]);
    gpu->history_w[0] = power_w;
    if (gpu->history_count < HARPE_VIEW_HISTORY) gpu->history_count++;
}

static double average(double now_j, double before_j, double interval_s) {
    return interval_s > 0 ? (now_j - before_j) / interval_s : (double)NAN;
}

harpe_status harpe_monitor_view_update(harpe_monitor_session *session, const char *window,
                                       harpe_monitor_view *view, harpe_error *error) {
    harpe_window_measurement now = {0};
    harpe_status status = harpe_monitor_peek(session->monitor, window, &now, error);
    if (status != HARPE_OK) return status;
    double interval_s = now.time_s - view->time_s;
    view->unix_time_s = harpe_clock_wall_s();
    view->time_s = now.time_s;
    for (size_t i = 0; i < session->gpu_count; i++) {
        harpe_gpu_view *gpu = &view->gpus[i];
        read_gpu(session->gpus, session->gpu_indices[i], gpu);
        gpu->average_w = average(now.gpu_energy_j[i], gpu->energy_j, interval_s);
        gpu->energy_j = now.gpu_energy_j[i];
        remember(gpu, view->energy ? gpu->average_w : gpu->power_w);
    }
    for (size_t i = 0; i < session->cpu_count; i++) {
        harpe_cpu_view *cpu = &view->cpus[i];
        cpu->average_w = average(now.cpu_energy_j[i], cpu->energy_j, interval_s);
        cpu->energy_j = now.cpu_energy_j[i];
        cpu->dram_energy_j = now.dram_energy_j[i];
    }
    harpe_window_measurement_clear(&now);
    return HARPE_OK;
}

static double shown_w(const harpe_monitor_view *view, const harpe_gpu_view *gpu) {
    return view->energy ? gpu->average_w : gpu->power_w;
}

typedef struct totals {
    double power_w, energy_j;
} totals;

/* Adds up all GPUs. If the power of one GPU is unknown, the sum is unknown. */
static totals add_up(const harpe_monitor_session *session, const harpe_monitor_view *view) {
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
static void append_spark(const harpe_monitor_view *view, const harpe_gpu_view *gpu, int columns,
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
    if (layout.spark_columns > HARPE_VIEW_HISTORY) layout.spark_columns = HARPE_VIEW_HISTORY;
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

static void append_gpu(const harpe_monitor_session *session, const harpe_monitor_view *view,
                       size_t i, const frame_layout *layout, harpe_text *text) {
    const harpe_gpu_view *gpu = &view->gpus[i];
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

static void append_heading(const harpe_monitor_session *session, const harpe_monitor_view *view,
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

void harpe_monitor_view_frame(const harpe_monitor_session *session, const harpe_monitor_view *view,
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

void harpe_monitor_view_line(const harpe_monitor_session *session, const harpe_monitor_view *view,
                             harpe_text *text) {
    const char *unit = view->energy ? "J" : "W";
    harpe_text_printf(text, "%10.3f s", view->time_s);
    for (size_t i = 0; i < session->gpu_count; i++) {
        const harpe_gpu_view *gpu = &view->gpus[i];
        harpe_text_printf(text, "  GPU %d", session->gpu_indices[i]);
        append_number(text, 1, view->energy ? gpu->energy_j : gpu->power_w, 8);
        harpe_text_printf(text, " %s", unit);
    }
    for (size_t i = 0; i < session->cpu_count; i++) {
        const harpe_cpu_view *cpu = &view->cpus[i];
        harpe_text_printf(text, "  CPU %zu", i);
        append_number(text, 1, view->energy ? cpu->energy_j : cpu->average_w, 8);
        harpe_text_printf(text, " %s", unit);
    }
    totals sum = add_up(session, view);
    harpe_text_printf(text, "  total");
    append_number(text, 1, view->energy ? sum.energy_j : sum.power_w, 8);
    harpe_text_printf(text, " %s\n", unit);
}

void harpe_monitor_view_csv_header(const harpe_monitor_session *session,
                                   const harpe_monitor_view *view, harpe_text *text) {
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

void harpe_monitor_view_csv(const harpe_monitor_session *session, const harpe_monitor_view *view,
                            harpe_text *text) {
    harpe_text_number(text, view->unix_time_s);
    append_field(text, view->time_s);
    for (size_t i = 0; i < session->gpu_count; i++) {
        const harpe_gpu_view *gpu = &view->gpus[i];
        append_field(text, view->energy ? gpu->energy_j : gpu->power_w);
    }
    for (size_t i = 0; i < session->cpu_count; i++) {
        const harpe_cpu_view *cpu = &view->cpus[i];
        append_field(text, view->energy ? cpu->energy_j : cpu->average_w);
    }
    harpe_text_append(text, "\n", 1);
}

static json_t *number_or_null(double value) {
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *count_or_null(uint32_t value) {
    return value ? json_integer((json_int_t)value) : json_null();
}

json_t *harpe_monitor_view_json(const harpe_monitor_session *session,
                                const harpe_monitor_view *view) {
    json_t *gpus = json_array();
    json_t *cpus = json_array();
    for (size_t i = 0; i < session->gpu_count; i++) {
        const harpe_gpu_view *gpu = &view->gpus[i];
        int index = session->gpu_indices[i];
        const char *scope = harpe_gpu_energy_scope(session->gpus, index) == HARPE_ENERGY_OF_MODULE
                                ? "module"
                                : "gpu";
        json_array_append_new(
            gpus, json_pack("{s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:f}", "index", index,
                            "energy_scope", scope, "power_w", number_or_null(gpu->power_w),
                            "average_power_w", number_or_null(gpu->average_w), "power_limit_w",
                            number_or_null(gpu->limit_w), "graphics_clock_mhz",
                            count_or_null(gpu->graphics_mhz), "memory_clock_mhz",
                            count_or_null(gpu->memory_mhz), "temperature_c",
                            count_or_null(gpu->celsius), "energy_j", gpu->energy_j));
    }
    for (size_t i = 0; i < session->cpu_count; i++) {
        const harpe_cpu_view *cpu = &view->cpus[i];
        json_array_append_new(cpus,
                              json_pack("{s:i, s:o, s:f, s:o}", "index", (int)i, "average_power_w",
                                        number_or_null(cpu->average_w), "energy_j", cpu->energy_j,
                                        "dram_energy_j", number_or_null(cpu->dram_energy_j)));
    }
    totals sum = add_up(session, view);
    return json_pack("{s:f, s:f, s:o, s:o, s:o, s:f}", "time", view->unix_time_s, "elapsed_time_s",
                     view->time_s, "gpus", gpus, "cpus", cpus, "total_power_w",
                     number_or_null(sum.power_w), "total_energy_j", sum.energy_j);
}
