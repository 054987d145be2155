/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe fleet`: reads the flags and the file, and calls an action. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/terminal_progress.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/fleet/fleet_actions.h"
#include "cli/fleet/fleet_commands.h"
#include "fleet/fleet_json.h"

enum { ACTION_NONE = -1, ACTION_SOLVE = 0, ACTION_SIMULATE };

typedef struct parsing {
    harpe_fleet_arguments arguments;
    int action;
    bool has_at;
} parsing;

enum { FLAG_AT = 256, FLAG_PRICES };

static const struct argp_option flags[] = {
    {"at", FLAG_AT, "SECONDS", 0, "solve: the moment, with its jobs, events and price (default 0)",
     1},
    {"prices", FLAG_PRICES, "FILE", 0, "Read the prices from a CSV file", 1},
    {NULL, 0, NULL, 0, "Output:", 2},
    {"output", 'o', "FILE", 0, "simulate: draw the power against the budget (.svg)", 2},
    {"force", 'f', NULL, 0, "simulate: replace an existing picture", 2},
    {"json", 'j', NULL, 0, "Print JSON", 2},
    {0},
};

/* Those after simulate have options of their own. */
static const char *const actions[] = {"solve", "simulate", "status", "budget", "group",
                                      "job",   "load",     "member", "event",  "prices",
                                      "audit", "token",    NULL};

static void finish(const parsing *p, struct argp_state *state) {
    if (p->action == ACTION_NONE)
        harpe_flag_fail(state, "an action is missing: solve or simulate, or status, budget, group, "
                               "job, load, member, event, prices, audit or token");
    if (p->action > ACTION_SIMULATE)
        harpe_flag_fail(state, "%s must be the first word", actions[p->action]);
    if (!p->arguments.path) harpe_flag_fail(state, "the fleet's file is missing");
    if (p->action != ACTION_SOLVE && p->has_at) harpe_flag_fail(state, "--at is only for solve");
    if (p->action != ACTION_SIMULATE && p->arguments.output_path)
        harpe_flag_fail(state, "--output is only for simulate");
    if (p->arguments.force && !p->arguments.output_path)
        harpe_flag_fail(state, "--force is only for --output");
}

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    parsing *p = state->input;
    switch (key) {
    case FLAG_AT:
        p->arguments.at_s = harpe_flag_double(state, "--at", argument, 0, 1e9);
        p->has_at = true;
        return 0;
    case FLAG_PRICES: p->arguments.prices_path = argument; return 0;
    case 'o': p->arguments.output_path = argument; return 0;
    case 'f': p->arguments.force = true; return 0;
    case 'j': p->arguments.json = true; return 0;
    case ARGP_KEY_ARG:
        if (p->action == ACTION_NONE)
            p->action = harpe_flag_choice(state, "ACTION", argument, actions);
        else if (!p->arguments.path)
            p->arguments.path = argument;
        else
            harpe_flag_fail(state, "one file is enough; what is '%s'?", argument);
        return 0;
    case ARGP_KEY_END: finish(p, state); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argument_parser = {
    .options = flags,
    .parser = parse_flag,
    .args_doc =
        "solve FILE\nsimulate FILE\nstatus|budget|group|job|load|member|event|prices|audit|token",
    .doc =
        "Split a power budget over many jobs, so that they lose least time, or simulate a day of "
        "such a fleet.\vExamples:\n  harpe fleet solve fleet.json\n  harpe fleet simulate "
        "fleet.json --output day.svg\n  harpe fleet budget set 60000\n  harpe fleet event "
        "--help\n\nSee also: man harpe-fleet, man 5 harpe-fleet",
};

/* Runs an action that has options of its own, and returns true. */
static bool run_other(int argc, char **argv, int *exit_code) {
    static char name[40];
    for (int i = ACTION_SIMULATE + 1; argc > 1 && actions[i]; i++) {
        if (strcmp(argv[1], actions[i]) != 0) continue;
        (void)snprintf(name, sizeof name, "harpe fleet %s", actions[i]);
        argv[1] = name;
        *exit_code = strcmp(actions[i], "token") == 0
                         ? harpe_fleet_token_command(argc - 1, argv + 1)
                         : harpe_fleet_server_command(argc - 1, argv + 1);
        return true;
    }
    return false;
}

int harpe_fleet_command(int argc, char **argv) {
    int other;
    if (run_other(argc, argv, &other)) return other;
    parsing p = {.action = ACTION_NONE};
    argp_parse(&argument_parser, argc, argv, 0, NULL, &p);
    harpe_fleet_file file = {.job_count = 0};
    harpe_error error;
    int exit_code = HARPE_EXIT_OK;
    harpe_terminal_progress terminal;
    (void)harpe_terminal_progress_start(&terminal, true);
    harpe_status status = harpe_fleet_file_read(p.arguments.path, &file, &error);
    if (status == HARPE_OK && p.arguments.prices_path)
        status = harpe_fleet_file_read_prices(&file, p.arguments.prices_path, &error);
    if (status == HARPE_OK && p.action == ACTION_SOLVE)
        status = harpe_fleet_solve_action(&p.arguments, &file, &exit_code, &error);
    else if (status == HARPE_OK)
        status = harpe_fleet_simulate_action(&p.arguments, &file, &exit_code, &error);
    harpe_fleet_file_free(&file);
    return status == HARPE_OK ? exit_code : harpe_command_fail("fleet", &error);
}
