/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the progress of command-line programs. If stderr is a terminal, one line on it shows the
 * progress and is rewritten. SIGINT, SIGTERM and SIGHUP ask for a clean stop. */
#ifndef HARPE_BASE_TERMINAL_PROGRESS_H
#define HARPE_BASE_TERMINAL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/callback.h>

typedef struct harpe_terminal_progress {
    bool visible;
    int64_t next_draw_ns;
    bool drawn;
} harpe_terminal_progress;

/* Installs the signal handlers and returns callbacks that draw progress and return false after a
 * signal. They draw nothing if `quiet` is true, if stderr is not a terminal, or if the fraction is
 * below 0 (not known). Call it at most once in a program. */
harpe_progress harpe_terminal_progress_start(harpe_terminal_progress *state, bool quiet);
void harpe_terminal_progress_clear(harpe_terminal_progress *state); /* wipes the line */
/* Returns the signal that asked to stop, or 0. */
int harpe_terminal_progress_signal(void);

#endif
