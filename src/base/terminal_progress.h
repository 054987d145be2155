/* SPDX-License-Identifier: Apache-2.0 */
/* Progress on stderr for command-line programs: one line, rewritten, only on a terminal, and a
 * clean stop on SIGINT, SIGTERM and SIGHUP. */
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

/* Installs the signal handlers and returns callbacks that draw (unless `quiet` or stderr is no
 * terminal; a fraction below 0 is not known and not shown) and that return false once a signal has
 * come. One per program. */
harpe_progress harpe_terminal_progress_start(harpe_terminal_progress *state, bool quiet);
void harpe_terminal_progress_clear(harpe_terminal_progress *state); /* wipes the line */
/* The signal that asked to stop, or 0. */
int harpe_terminal_progress_signal(void);

#endif
