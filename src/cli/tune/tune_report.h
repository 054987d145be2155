/* SPDX-License-Identifier: Apache-2.0 */
/* Tells what `harpe tune` knows: a live line on a terminal, the report at the end, and JSON. */
#ifndef HARPE_CLI_TUNE_TUNE_REPORT_H
#define HARPE_CLI_TUNE_TUNE_REPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <harpe/status.h>
#include <harpe/tune.h>

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
