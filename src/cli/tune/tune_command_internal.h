/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `harpe tune` share. */
#ifndef HARPE_CLI_TUNE_TUNE_COMMAND_INTERNAL_H
#define HARPE_CLI_TUNE_TUNE_COMMAND_INTERNAL_H

#include <pthread.h>
#include <regex.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <harpe/status.h>
#include <harpe/tune.h>

#include "tune/tune_internal.h"

/* ---- tune_output.c: the output of a command, for --rate-regex -------------------------------- */

/* The output passes through processes of their own, which only copy it: it arrives unchanged, and
 * goes on if this program is stopped or killed. */
enum { HARPE_OUTPUT_STREAMS = 2, HARPE_OUTPUT_LINE = 4096 };

/* Standard output or standard error of the command. */
typedef struct harpe_output_stream {
    int command_end; /* the command writes here */
    int copies;      /* what the command has written, as far as it was read in time */
    char line[HARPE_OUTPUT_LINE];
    size_t length;
} harpe_output_stream;

typedef struct harpe_tune_output {
    regex_t expression;
    harpe_output_count count;
    harpe_output_stream streams[HARPE_OUTPUT_STREAMS];
    pthread_t thread;
    bool has_thread;
    _Atomic uint32_t has_ended; /* the command and all that it started have closed their output */
} harpe_tune_output;

/* Compiles a POSIX extended regular expression, and starts the processes that copy. Call it before
 * any thread is started. Fails with HARPE_INVALID_ARGUMENT for a wrong expression. */
harpe_status harpe_tune_output_open(harpe_tune_output *output, const char *expression,
                                    harpe_error *error);
/* Adds the command's streams to what it gets at its start. */
void harpe_tune_output_pass(const harpe_tune_output *output, posix_spawn_file_actions_t *actions);
/* Reads lines on a thread of its own. Call it after the command has started. */
harpe_status harpe_tune_output_follow(harpe_tune_output *output, harpe_error *error);
/* Waits a short time for the end of the output. */
void harpe_tune_output_close(harpe_tune_output *output);

/* ---- tune_report.c: a live line on a terminal, the report at the end, and JSON --------------- */

/* Prices that the user has given; NaN: none. */
typedef struct harpe_tune_prices {
    double per_kwh, carbon_g_per_kwh;
} harpe_tune_prices;

/* The line that is rewritten while the program runs. Initialise with zeros. */
typedef struct harpe_tune_live {
    _Atomic bool is_drawn;             /* any thread may clear the line */
    double last_time_s, last_energy_j; /* for the power since the last line */
} harpe_tune_live;

/* Draws the line if standard error is a terminal. */
void harpe_tune_live_draw(harpe_tune_live *live, const harpe_tuning_report *report);
void harpe_tune_live_clear(harpe_tune_live *live);

/* Prints the report at the end to standard error. */
void harpe_tune_report_print(const harpe_tuning_report *report, const harpe_tune_prices *prices,
                             bool is_dry);
/* Prints it as one JSON object to standard output. */
harpe_status harpe_tune_report_print_json(const harpe_tuning_report *report,
                                          const harpe_tune_prices *prices, harpe_error *error);

#endif
