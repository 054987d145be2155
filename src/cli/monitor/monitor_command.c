/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe monitor`: measures time, energy and power of a command, or shows live values. This file
 * reads the flags, opens the devices, runs a command inside an energy window and prints the result.
 * Missing GPUs are not a failure if something else can be measured. monitor_live.c shows live
 * values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/number.h"
#include "cli/cli.h"
#include "cli/monitor/monitor_internal.h"
#include "monitor/monitor.h"

/* ---- Opening --------------------------------------------------------------------------------- */

/* Reads "0,2". The monitor checks whether the GPUs exist. */
static harpe_status parse_gpus(const char *list, harpe_monitor_session *session,
                               harpe_error *error) {
    size_t capacity = 0;
    for (const char *cursor = list;; cursor++) {
        size_t length = strcspn(cursor, ",");
        int64_t index = -1;
        if (!harpe_parse_int(cursor, length, &index) || index < 0 || index > 4095) {
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "--gpus: expected GPU indices such as 0,2, found '%.100s'", list);
        }
        if (!HARPE_ARRAY_RESERVE(session->gpu_indices, capacity, session->gpu_count + 1))
            return harpe_fail_memory(error);
        session->gpu_indices[session->gpu_count++] = (int)index;
        cursor += length;
        if (*cursor == '\0') return HARPE_OK;
    }
}

static harpe_status open_gpus(const harpe_monitor_request *request, harpe_monitor_session *session,
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

static harpe_status fail_nothing(const harpe_monitor_request *request, const harpe_error *no_gpu,
                                 harpe_error *error) {
    return harpe_fail(error, HARPE_UNAVAILABLE,
                      "nothing to measure: %.600s; CPU energy %s. To try without a GPU: harpe "
                      "emulate -- harpe monitor ...",
                      no_gpu->message,
                      request->no_cpu ? "was not asked for" : "cannot be read either");
}

harpe_status harpe_monitor_session_open(const harpe_monitor_request *request, const char *log_path,
                                        harpe_monitor_session *session, harpe_error *error) {
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

void harpe_monitor_session_close(harpe_monitor_session *session) {
    harpe_monitor_free(session->monitor);
    if (session->gpus) harpe_gpus_close(session->gpus);
    free(session->gpu_indices);
    *session = (harpe_monitor_session){0};
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

static bool covers_module(const harpe_monitor_session *session, int gpu) {
    return session->gpus && harpe_gpu_energy_scope(session->gpus, gpu) == HARPE_ENERGY_OF_MODULE;
}

void harpe_monitor_summary_print(FILE *stream, const harpe_monitor_session *session,
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
    if (measurement->gpu_count + measurement->cpu_count > 1) {
        print_row(stream, "total", "", measurement->total_gpu_energy_j + total_cpu_j(measurement),
                  time_s);
    }
}

static json_t *summary_json(const harpe_monitor_session *session,
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
    for (size_t i = 0; i < measurement->cpu_count; i++) {
        json_array_append_new(
            cpus, json_pack("{s:i, s:o, s:f, s:o}", "index", (int)i, "name",
                            harpe_command_json_text(harpe_monitor_cpu_name(session->monitor, i)),
                            "energy_j", measurement->cpu_energy_j[i], "dram_energy_j",
                            harpe_command_json_number(measurement->dram_energy_j[i])));
    }
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

static harpe_status report(const harpe_monitor_request *request,
                           const harpe_monitor_session *session,
                           const harpe_window_measurement *measurement, int exit_code,
                           harpe_error *error) {
    if (!request->json) {
        fputs("harpe monitor: ", stderr);
        harpe_monitor_summary_print(stderr, session, measurement);
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
static int measure(const harpe_monitor_request *request) {
    harpe_error error;
    harpe_monitor_session session = {0};
    harpe_window_measurement measurement = {0};
    char name[WINDOW_NAME_SIZE];
    int exit_code = HARPE_EXIT_OK;
    bool to_stdout = request->csv_path && strcmp(request->csv_path, "-") == 0;
    const char *log_path = to_stdout ? "/dev/stdout" : request->csv_path;
    harpe_status status = harpe_monitor_session_open(request, log_path, &session, &error);
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
    harpe_monitor_session_close(&session);
    if (status == HARPE_OK) return exit_code;
    int failed = harpe_command_fail("monitor", &error);
    /* If the command has failed too, the user gets the command's exit code. */
    return exit_code != HARPE_EXIT_OK ? exit_code : failed;
}

/* ---- Flags ----------------------------------------------------------------------------------- */

#define WHAT "energy, power, or a command after '--'"

/* Reads a mode, or the first word of the command. A command after '--' needs no mode, because the
 * mode of a command is always energy. */
static void read_word(void *into, struct argp_state *state, const char *flag, char *word) {
    harpe_monitor_request *request = into;
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
     HARPE_INTO(harpe_monitor_request, gpus)},
    {"no-cpu", 0, NULL, "Do not measure the CPUs", 1, HARPE_INTO(harpe_monitor_request, no_cpu)},
    {"rapl-path", 0, "DIR", "Directory of the CPUs' counters (default: /sys/class/powercap)", 1,
     HARPE_INTO(harpe_monitor_request, rapl_path)},
    {"interval", 'i', "S", "Live: seconds between readings (default 1)", 2,
     HARPE_INTO(harpe_monitor_request, interval_s), 0.01, 86400,
     .given = offsetof(harpe_monitor_request, has_live_flag)},
    {"duration", 'd', "S", "Live: stop after S seconds", 2,
     HARPE_INTO(harpe_monitor_request, duration_s), 0, 1e7, .is_above = true,
     .given = offsetof(harpe_monitor_request, has_live_flag)},
    {.help = "Output:", .group = 3},
    {"csv", 0, "FILE", "Also write CSV; '-' is standard output", 3,
     HARPE_INTO(harpe_monitor_request, csv_path)},
    {"json", 'j', NULL, "Print JSON: one object; live, one per line and interval", 3,
     HARPE_INTO(harpe_monitor_request, json)},
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

static void check_usage(const harpe_monitor_request *request, const struct argp_state *state) {
    if (!request->has_mode) harpe_flag_fail(state, "expected " WHAT "; see 'harpe monitor --help'");
    if (request->command && !request->energy) {
        harpe_flag_fail(state, "a command is measured by 'harpe monitor -- %.40s ...'",
                        request->command[0]);
    }
    if (request->command && request->has_live_flag)
        harpe_flag_fail(state, "--interval and --duration are for live display, not for a command");
    if (request->json && request->csv_path && strcmp(request->csv_path, "-") == 0)
        harpe_flag_fail(state, "--json and --csv - cannot both go to standard output");
}

int harpe_monitor_command(int argc, char **argv) {
    harpe_monitor_request request = {.interval_s = 1};
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &request);
    check_usage(&request, &state);
    return request.command ? measure(&request) : harpe_monitor_live(&request);
}
