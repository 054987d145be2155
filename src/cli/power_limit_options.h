/* SPDX-License-Identifier: Apache-2.0 */
/* What `harpe power-limit replay` and `harpe power-limit run` share: the optimizer's flags, and how
 * what was measured is told. Neither runs anything. */
#ifndef HARPE_CLI_POWER_LIMIT_OPTIONS_H
#define HARPE_CLI_POWER_LIMIT_OPTIONS_H

#include <argp.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include <harpe/power_limit.h>

/* Order of the names of --selector. */
typedef enum harpe_selector_kind {
    HARPE_SELECTOR_ZEUS_COST,
    HARPE_SELECTOR_ENERGY,
    HARPE_SELECTOR_TIME,
    HARPE_SELECTOR_MAX_SLOWDOWN,
} harpe_selector_kind;

typedef struct harpe_power_limit_flags {
    harpe_selector_kind kind;
    harpe_selector_parameters parameters;
    bool has_eta, has_factor;
    harpe_power_limit_options
        options; /* without a selector, until harpe_power_limit_flags_finish */
} harpe_power_limit_flags;

/* An argp child; its input is a harpe_power_limit_flags, which it initialises. */
extern const struct argp harpe_power_limit_argp;

/* Completes `flags->options`; `flags` must stay where it is. */
harpe_status harpe_power_limit_flags_finish(harpe_power_limit_flags *flags, int gpu_count,
                                            harpe_error *error);

const char *harpe_power_limit_selector_name(const harpe_power_limit_flags *flags);

/* A table, highest limit first: limit, time, energy, cost where the selector has one; `optimum_w`
 * marked, and in words what it saves against the highest. Nothing when nothing was measured. */
void harpe_power_limit_print_table(FILE *stream, const harpe_power_limit_flags *flags,
                                   const harpe_power_limit_measurement *measurements, size_t count,
                                   int optimum_w);
/* The same as JSON: an array with the profile file's keys, so that the output is one. */
json_t *harpe_power_limit_json(const harpe_power_limit_measurement *measurements, size_t count);

int harpe_power_limit_replay_command(int argc, char **argv);
int harpe_power_limit_run_command(int argc, char **argv);

#endif
