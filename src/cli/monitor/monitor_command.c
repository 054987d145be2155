/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe monitor`: measures time, energy and power of a command, or shows live values. This file
 * reads the flags. monitor_measure.c measures a command, and monitor_live.c shows live values. */
#include <string.h>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/monitor/monitor_live.h"
#include "cli/monitor/monitor_measure.h"
#include "cli/monitor/monitor_session.h"

enum flag {
    FLAG_GPUS = 'g',
    FLAG_INTERVAL = 'i',
    FLAG_DURATION = 'd',
    FLAG_JSON = 'j',
    FLAG_CSV = 0x500,
    FLAG_NO_CPU,
    FLAG_RAPL_PATH,
};

static const struct argp_option flags[] = {
    {"gpus", FLAG_GPUS, "LIST", 0, "GPUs to watch, such as 0,2 (default: all visible)", 1},
    {"no-cpu", FLAG_NO_CPU, NULL, 0, "Do not measure the CPUs", 1},
    {"rapl-path", FLAG_RAPL_PATH, "DIR", 0,
     "Directory of the CPUs' counters (default: /sys/class/powercap)", 1},
    {"interval", FLAG_INTERVAL, "S", 0, "Live: seconds between readings (default 1)", 2},
    {"duration", FLAG_DURATION, "S", 0, "Live: stop after S seconds", 2},
    {NULL, 0, NULL, 0, "Output:", 3},
    {"csv", FLAG_CSV, "FILE", 0, "Also write CSV; '-' is standard output", 3},
    {"json", FLAG_JSON, NULL, 0, "Print JSON: one object; live, one per line and interval", 3},
    {0},
};

#define WHAT "energy, power, or a command after '--'"

/* A command after '--' needs no mode before it: only its energy is measured. */
static void parse_word(harpe_monitor_request *request, bool *has_mode, const char *word,
                       struct argp_state *state) {
    bool is_energy = strcmp(word, "energy") == 0;
    if (!*has_mode && (is_energy || strcmp(word, "power") == 0)) {
        request->energy = is_energy;
        *has_mode = true;
        return;
    }
    if (!*has_mode && !state->quoted)
        harpe_flag_fail(state, "what to monitor: expected " WHAT ", found '%.40s'", word);
    if (!*has_mode) request->energy = *has_mode = true;
    request->command = &state->argv[state->next - 1];
    state->next = state->argc;
}

typedef struct monitor_arguments {
    harpe_monitor_request request;
    bool has_mode;
    bool has_live_flag;
} monitor_arguments;

static void check(const monitor_arguments *arguments, struct argp_state *state) {
    const harpe_monitor_request *request = &arguments->request;
    if (!arguments->has_mode)
        harpe_flag_fail(state, "expected " WHAT "; see 'harpe monitor --help'");
    if (request->command && !request->energy) {
        harpe_flag_fail(state, "a command is measured by 'harpe monitor -- %.40s ...'",
                        request->command[0]);
    }
    if (request->command && arguments->has_live_flag)
        harpe_flag_fail(state, "--interval and --duration are for live display, not for a command");
    if (request->json && request->csv_path && strcmp(request->csv_path, "-") == 0)
        harpe_flag_fail(state, "--json and --csv - cannot both go to standard output");
}

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    monitor_arguments *arguments = state->input;
    harpe_monitor_request *request = &arguments->request;
    switch (key) {
    case FLAG_GPUS: request->gpus = argument; return 0;
    case FLAG_NO_CPU: request->no_cpu = true; return 0;
    case FLAG_RAPL_PATH: request->rapl_path = argument; return 0;
    case FLAG_INTERVAL:
        request->interval_s = harpe_flag_double(state, "--interval", argument, 0.01, 86400);
        arguments->has_live_flag = true;
        return 0;
    case FLAG_DURATION:
        request->duration_s = harpe_flag_double_above(state, "--duration", argument, 0, 1e7);
        arguments->has_live_flag = true;
        return 0;
    case FLAG_CSV: request->csv_path = argument; return 0;
    case FLAG_JSON: request->json = true; return 0;
    case ARGP_KEY_ARG: parse_word(request, &arguments->has_mode, argument, state); return 0;
    case ARGP_KEY_END: check(arguments, state); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argument_parser = {
    .options = flags,
    .parser = parse_flag,
    .args_doc = "[energy] -- COMMAND [ARG...]\nenergy\npower",
    .doc =
        "Measure the time and energy of a command, or show the energy and power of GPUs and CPUs "
        "live.\vExamples:\n  harpe monitor -- python train.py\n  harpe monitor power\n  "
        "harpe emulate --gpus 4xA100 -- harpe monitor power\n\nSee also: man harpe-monitor",
};

int harpe_monitor_command(int argc, char **argv) {
    monitor_arguments arguments = {.request = {.interval_s = 1}};
    error_t failed = argp_parse(&argument_parser, argc, argv, ARGP_IN_ORDER, NULL, &arguments);
    if (failed) return HARPE_EXIT_USAGE;
    const harpe_monitor_request *request = &arguments.request;
    return request->command ? harpe_monitor_measure(request) : harpe_monitor_live(request);
}
