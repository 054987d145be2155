/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe profile`: measures the power of a GPU that waits for its peer (p2p), measures how long a
 * GPU takes to change its clock (switch), and makes a profile from a server's dumps (convert). This
 * file reads the flags. */
#include <stdio.h>
#include <string.h>

#include "base/terminal_progress.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/profile/profile_command_convert.h"
#include "cli/profile/profile_command_p2p.h"
#include "cli/profile/profile_command_switch.h"

enum flag { FLAG_PEER = 0x600, FLAG_TORCH, FLAG_PYTHON, FLAG_CLOCKS, FLAG_SPREAD };

static int finish(harpe_status status, const harpe_error *error) {
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("profile", error);
}

/* ---- p2p ------------------------------------------------------------------------------------- */

static const struct argp_option p2p_flags[] = {
    {"gpu", 'g', "N", 0, "The GPU that waits (default 0)", 1},
    {"peer", FLAG_PEER, "N", 0, "The GPU for which it waits (default: the next GPU)", 1},
    {"duration", 'd', "S", 0, "How long to measure (default 60)", 1},
    {"torch", FLAG_TORCH, NULL, 0, "Use PyTorch on emulated GPUs too", 1},
    {"python", FLAG_PYTHON, "PROGRAM", 0, "A Python interpreter with PyTorch (default python3)", 1},
    {NULL, 0, NULL, 0, "Output:", 2},
    {"json", 'j', NULL, 0, "Print JSON", 2},
    {0},
};

static error_t parse_p2p_flag(int key, char *argument, struct argp_state *state) {
    harpe_p2p_request *request = state->input;
    switch (key) {
    case 'g': request->gpu = harpe_flag_int(state, "--gpu", argument, 0, 4095); return 0;
    case FLAG_PEER: request->peer = harpe_flag_int(state, "--peer", argument, 0, 4095); return 0;
    case 'd':
        request->duration_s = harpe_flag_double(state, "--duration", argument, 0.1, 86400);
        return 0;
    case FLAG_TORCH: request->with_torch = true; return 0;
    case FLAG_PYTHON: request->python = argument; return 0;
    case 'j': request->json = true; return 0;
    case ARGP_KEY_ARG: harpe_flag_fail(state, "'%s' is not a flag", argument);
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp p2p_parser = {
    .options = p2p_flags,
    .parser = parse_p2p_flag,
    .doc = "Measure the power of a GPU that is blocked on a peer: --p2p-power of harpe plan."
           "\vOn real GPUs two processes of PyTorch (torch.distributed, NCCL) take part; emulated "
           "GPUs need none.\n\nExamples:\n"
           "  harpe profile p2p\n"
           "  harpe emulate --gpus 2xA100 -- harpe profile p2p --duration 5\n\n"
           "See also: man harpe-profile",
};

static int run_p2p(int argc, char **argv) {
    harpe_p2p_request request = {.peer = -1, .duration_s = 60, .python = "python3"};
    argp_parse(&p2p_parser, argc, argv, 0, NULL, &request);
    harpe_error error;
    return finish(harpe_profile_p2p(&request, &error), &error);
}

/* ---- convert --------------------------------------------------------------------------------- */

static const struct argp_option convert_flags[] = {
    {"output", 'o', "FILE", 0, "Where to write the CSV (default: standard output)", 1},
    {"force", 'f', NULL, 0, "Replace an existing file", 1},
    {"json", 'j', NULL, 0, "Print a summary as JSON (needs --output)", 1},
    {0},
};

static error_t parse_convert_flag(int key, char *argument, struct argp_state *state) {
    harpe_convert_request *request = state->input;
    switch (key) {
    case 'o': request->output_path = argument; return 0;
    case 'f': request->force = true; return 0;
    case 'j': request->json = true; return 0;
    case ARGP_KEY_ARG:
        if (request->directory) harpe_flag_fail(state, "one directory at a time: '%s'", argument);
        request->directory = argument;
        return 0;
    case ARGP_KEY_END:
        if (!request->directory)
            harpe_flag_fail(state, "expected the directory with the server's dump of a job");
        if (request->json && !request->output_path)
            harpe_flag_fail(state, "--json needs --output: standard output cannot hold both");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp convert_parser = {
    .options = convert_flags,
    .parser = parse_convert_flag,
    .args_doc = "DIRECTORY",
    .doc = "Make a profile from the server's dump of a job: ranks.json, K.sched.json, "
           "K.prof.json.\vExample:\n  harpe profile convert "
           "dump/2026-01-31-12-00-00+dp1+pp4+tp1+Perseus --output profile.csv\n\nSee also: man "
           "harpe-profile",
};

static int run_convert(int argc, char **argv) {
    harpe_convert_request request = {0};
    argp_parse(&convert_parser, argc, argv, 0, NULL, &request);
    harpe_error error;
    return finish(harpe_profile_convert(&request, &error), &error);
}

/* ---- switch ---------------------------------------------------------------------------------- */

static const struct argp_option switch_flags[] = {
    {"gpu", 'g', "GPU", 0, "The GPU to measure: number, UUID or PCI address (default 0)", 1},
    {"clocks", FLAG_CLOCKS, "MHZ[,MHZ...]", 0, "The clocks to measure", 1},
    {"spread", FLAG_SPREAD, "N", 0, "So many clocks, evenly spread (default 8)", 1},
    {"repetitions", 'r', "N", 0, "Changes to each clock (default 7)", 1},
    {NULL, 0, NULL, 0, "Output:", 2},
    {"output", 'o', "FILE", 0, "Write the result as CSV", 2},
    {"force", 'f', NULL, 0, "Replace an existing file", 2},
    {"json", 'j', NULL, 0, "Print JSON", 2},
    {0},
};

static void read_clocks(harpe_switch_request *request, const struct argp_state *state, char *text) {
    char *rest = NULL;
    request->clock_count = 0;
    for (char *one = strtok_r(text, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        if (request->clock_count == HARPE_SWITCH_REQUEST_CLOCKS)
            harpe_flag_fail(state, "--clocks: more than %d clocks", HARPE_SWITCH_REQUEST_CLOCKS);
        request->clock_mhz[request->clock_count++] =
            harpe_flag_int(state, "--clocks", one, 1, 65535);
    }
    if (request->clock_count < 2) harpe_flag_fail(state, "--clocks: at least two are needed");
}

static error_t parse_switch_flag(int key, char *argument, struct argp_state *state) {
    harpe_switch_request *request = state->input;
    switch (key) {
    case 'g': request->gpu_name = argument; return 0;
    case FLAG_CLOCKS: read_clocks(request, state, argument); return 0;
    case FLAG_SPREAD:
        request->spread_count =
            harpe_flag_int(state, "--spread", argument, 2, HARPE_SWITCH_REQUEST_CLOCKS);
        return 0;
    case 'r':
        request->repetitions = harpe_flag_int(state, "--repetitions", argument, 1, 1000);
        return 0;
    case 'o': request->output_path = argument; return 0;
    case 'f': request->force = true; return 0;
    case 'j': request->json = true; return 0;
    case ARGP_KEY_ARG:
        request->command = &state->argv[state->next - 1];
        state->next = state->argc;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp switch_parser = {
    .options = switch_flags,
    .parser = parse_switch_flag,
    .args_doc = "[-- COMMAND [ARG...]]",
    .doc = "Measure how long a GPU takes to change its clock, for several new clocks. The GPU is "
           "restored afterwards.\vCOMMAND keeps a real GPU busy; emulated GPUs need none.\n\n"
           "Examples:\n"
           "  harpe profile switch --output switch.csv -- python3 matmul.py\n"
           "  harpe emulate --physics real -- harpe profile switch\n\n"
           "See also: man harpe-profile",
};

static int run_switch(int argc, char **argv) {
    harpe_switch_request request = {.spread_count = 8, .repetitions = 7};
    argp_parse(&switch_parser, argc, argv, ARGP_IN_ORDER, NULL, &request);
    harpe_error error;
    return finish(harpe_profile_switch(&request, &error), &error);
}

/* ---- Which ----------------------------------------------------------------------------------- */

static error_t parse_word(int key, char *argument, struct argp_state *state) {
    static const char *const words[] = {"p2p", "switch", "convert", NULL};
    switch (key) {
    case ARGP_KEY_ARG:
        *(int *)state->input = harpe_flag_choice(state, "what to do", argument, words);
        state->next = state->argc;
        return 0;
    case ARGP_KEY_END:
        if (*(int *)state->input < 0)
            harpe_flag_fail(state,
                            "expected 'p2p', 'switch' or 'convert'; see 'harpe profile --help'");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp word_parser = {
    .parser = parse_word,
    .args_doc =
        "p2p [OPTION...]\nswitch [OPTION...] [-- COMMAND [ARG...]]\nconvert DIRECTORY [OPTION...]",
    .doc =
        "Measure the power of a GPU that waits for a peer (p2p), measure how long a GPU takes to "
        "change its clock (switch), or make a profile from a server's dump of a job "
        "(convert).\vMore: harpe profile p2p --help, harpe profile switch --help, harpe profile "
        "convert --help, man harpe-profile",
};

int harpe_profile_command(int argc, char **argv) {
    int word = -1;
    argp_parse(&word_parser, argc, argv, ARGP_IN_ORDER, NULL, &word);
    static char names[][24] = {"harpe profile p2p", "harpe profile switch",
                               "harpe profile convert"};
    static int (*const runs[])(int, char **) = {run_p2p, run_switch, run_convert};
    argv[1] = names[word];
    harpe_terminal_progress terminal;
    (void)harpe_terminal_progress_start(&terminal, true);
    return runs[word](argc - 1, argv + 1);
}
