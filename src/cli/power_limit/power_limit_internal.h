/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions for `harpe power-limit replay` and `harpe power-limit run`: the optimizer's flags,
 * and the output of its measurements (power_limit_command.c). */
#ifndef HARPE_CLI_POWER_LIMIT_POWER_LIMIT_INTERNAL_H
#define HARPE_CLI_POWER_LIMIT_POWER_LIMIT_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include <harpe/power_limit.h>

#include "cli/command.h"

/* In the order of the names of --selector. */
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
    harpe_power_limit_options options; /* without a selector until harpe_power_limit_flags_finish */
} harpe_power_limit_flags;

/* The flags, their defaults, and a check that they fit together. */
extern const harpe_flag harpe_power_limit_flag_table[];
extern const harpe_power_limit_flags harpe_power_limit_flags_defaults;
void harpe_power_limit_flags_check(const harpe_power_limit_flags *flags,
                                   const struct argp_state *state);

/* Completes `flags->options`. `flags` must not move afterwards. */
harpe_status harpe_power_limit_flags_finish(harpe_power_limit_flags *flags, int gpu_count,
                                            harpe_error *error);

/* Prints a table, highest limit first: limit, time, energy, and, if the selector computes a cost,
 * the cost. Marks the row of the optimum, and prints its savings against the highest limit. Prints
 * nothing if there are no measurements. */
void harpe_power_limit_print_table(FILE *stream, const harpe_power_limit_flags *flags,
                                   const harpe_power_limit_optimizer *optimizer);
/* Prints the result as JSON. The keys of the measurements are those of the profile file, so that
 * the output can be used as a profile. `limits`: the limits that were set; `has_failed`: a boolean.
 * Both may be NULL, and are released. */
harpe_status harpe_power_limit_print_json(const harpe_power_limit_flags *flags,
                                          const harpe_power_limit_optimizer *optimizer,
                                          json_t *limits, json_t *has_failed, int64_t steps,
                                          int64_t epochs, harpe_error *error);

/* Returns the exit code. */
int harpe_power_limit_run_command(int argc, char **argv);

#endif
