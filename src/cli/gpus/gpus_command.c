/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe gpus`: shows the GPUs, which values can be read and set on them, and how to solve
 * problems. This file reads the flags and calls the steps. Without --restore it never changes a
 * setting. */
#include <stdio.h>

#include <harpe/gpu.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/gpus/gpus_doctor.h"
#include "cli/gpus/gpus_facts.h"
#include "cli/gpus/gpus_restore.h"
#include "cli/gpus/gpus_view.h"

typedef struct gpus_arguments {
    bool json;
    bool all;
    bool restores;
    bool is_dry;
} gpus_arguments;

/* ---- Flags ----------------------------------------------------------------------------------- */

enum { FLAG_RESTORE = 0x700, FLAG_DRY_RUN };

static const struct argp_option flags[] = {
    {"all", 'a', NULL, 0, "Show every GPU of the machine, and ignore CUDA_VISIBLE_DEVICES", 0},
    {"json", 'j', NULL, 0, "Print one JSON object", 0},
    {"restore", FLAG_RESTORE, NULL, 0, "Restore GPUs that killed jobs have left changed", 0},
    {"dry-run", FLAG_DRY_RUN, NULL, 0, "With --restore: only print what would be restored", 0},
    {0},
};

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    gpus_arguments *arguments = state->input;
    switch (key) {
    case 'a': arguments->all = true; return 0;
    case 'j': arguments->json = true; return 0;
    case FLAG_RESTORE: arguments->restores = true; return 0;
    case FLAG_DRY_RUN: arguments->is_dry = true; return 0;
    case ARGP_KEY_ARG: harpe_flag_fail(state, "unexpected argument '%s'", argument);
    case ARGP_KEY_END:
        if (arguments->is_dry && !arguments->restores)
            harpe_flag_fail(state, "--dry-run needs --restore");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argument_parser = {
    .options = flags,
    .parser = parse_flag,
    .doc = "Show the GPUs: limits, clocks, power, the energy counter, permissions, and how to "
           "solve problems. Changes nothing, except with --restore. Takes half a "
           "second.\vExample:\n  harpe gpus --json\n\nSee also: man harpe-gpus",
};

/* ---- The command ----------------------------------------------------------------------------- */

static harpe_status show(harpe_gpus *gpus, bool is_json, harpe_error *error) {
    harpe_machine_facts machine = {0};
    harpe_status status = harpe_machine_facts_read(gpus, &machine, error);
    if (status != HARPE_OK) return status;
    json_t *problems = harpe_gpus_diagnose(&machine);
    if (problems) harpe_gpus_add_left(gpus, problems);
    if (!problems)
        status = harpe_fail_memory(error);
    else if (is_json)
        status = harpe_gpus_print_json(&machine, problems, error);
    else
        harpe_gpus_print_text(&machine, problems);
    json_decref(problems);
    harpe_machine_facts_free(&machine);
    return status;
}

int harpe_gpus_command(int argc, char **argv) {
    gpus_arguments arguments = {0};
    argp_parse(&argument_parser, argc, argv, 0, NULL, &arguments);
    harpe_error error;
    harpe_gpus *gpus = NULL;
    harpe_gpus_options options = {.visible_devices =
                                      arguments.all || arguments.restores ? "all" : NULL,
                                  .log = harpe_command_log("harpe gpus: warning")};
    harpe_status status = harpe_gpus_open(&options, &gpus, &error);
    if (status == HARPE_OK) {
        status = arguments.restores
                     ? harpe_gpus_restore_left(gpus, arguments.is_dry, arguments.json, &error)
                     : show(gpus, arguments.json, &error);
    }
    harpe_gpus_close(gpus);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("gpus", &error);
}
