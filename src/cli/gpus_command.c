/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe gpus`: what GPUs are there, what can be measured and set on them, and what to do about
 * what cannot. Its flags and its order of events; it never changes a setting. */
#include <stdio.h>

#include <harpe/gpu.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/gpus_doctor.h"
#include "cli/gpus_facts.h"
#include "cli/gpus_view.h"

typedef struct gpus_arguments {
    bool json;
    bool all;
} gpus_arguments;

/* ---- Flags -------------------------------------------------------------------------------- */

static const struct argp_option flags[] = {
    {"all", 'a', NULL, 0, "Every GPU of the machine, whatever CUDA_VISIBLE_DEVICES says", 0},
    {"json", 'j', NULL, 0, "Print one JSON object", 0},
    {0},
};

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    gpus_arguments *arguments = state->input;
    switch (key) {
    case 'a': arguments->all = true; return 0;
    case 'j': arguments->json = true; return 0;
    case ARGP_KEY_ARG: harpe_flag_fail(state, "unexpected argument '%s'", argument);
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argument_parser = {
    .options = flags,
    .parser = parse_flag,
    .doc = "Show the GPUs: limits, clocks, power, the energy counter, permissions, and what to do "
           "about what is wrong. Changes nothing; takes half a second."
           "\vExample:\n  harpe gpus --json\n\nSee also: man harpe-gpus",
};

/* ---- The command -------------------------------------------------------------------------- */

static void print_warning(void *user, harpe_log_level level, const char *line) {
    (void)user;
    if (level >= HARPE_LOG_WARNING) {
        fprintf(stderr, "harpe gpus: warning: %s\n", line);
    }
}

static harpe_status show(harpe_gpus *gpus, bool is_json, harpe_error *error) {
    harpe_machine_facts machine = {0};
    harpe_status status = harpe_machine_facts_read(gpus, &machine, error);
    if (status != HARPE_OK) return status;
    json_t *problems = harpe_gpus_diagnose(&machine);
    if (!problems) {
        status = harpe_fail_memory(error);
    } else if (is_json) {
        status = harpe_gpus_print_json(&machine, problems, error);
    } else {
        harpe_gpus_print_text(&machine, problems);
    }
    json_decref(problems);
    harpe_machine_facts_free(&machine);
    return status;
}

int harpe_gpus_command(int argc, char **argv) {
    gpus_arguments arguments = {0};
    argp_parse(&argument_parser, argc, argv, 0, NULL, &arguments);
    harpe_error error;
    harpe_gpus *gpus = NULL;
    harpe_gpus_options options = {.visible_devices = arguments.all ? "all" : NULL,
                                  .log = {.write = print_warning}};
    harpe_status status = harpe_gpus_open(&options, &gpus, &error);
    if (status == HARPE_OK) status = show(gpus, arguments.json, &error);
    harpe_gpus_close(gpus);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("gpus", &error);
}
