/* SPDX-License-Identifier: Apache-2.0 */
/* The memory through which a training program tells `harpe power-limit run` where its steps are.
 * mark.c is the program's side, src/cli/power_limit_marks.c the runner's. Counts in shared memory
 * are exact no matter how rarely the runner reads them, and writing them needs no descriptor. */
#ifndef HARPE_POWERLIMIT_MARK_H
#define HARPE_POWERLIMIT_MARK_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

/* What the runner sets for its command. */
#define HARPE_MARK_LINES_VARIABLE "HARPE_STEP_FD"      /* a pipe for lines: its descriptor */
#define HARPE_MARK_PIPE_VARIABLE "HARPE_STEP_PIPE"     /* that pipe's "<device>:<inode>" */
#define HARPE_MARK_MEMORY_VARIABLE "HARPE_STEP_MEMORY" /* "<descriptor>:<device>:<inode>" */

#define HARPE_MARK_MAGIC UINT64_C(0x316b72616d707268) /* changes with the layout */

enum { HARPE_MARK_EPOCHS = 1024 };

/* A sealed memfd that cannot shrink. Everything starts as 0. The program only adds; the runner
 * reads and resets is_parked. */
typedef struct harpe_mark_board {
    uint64_t magic;
    alignas(64) _Atomic uint64_t steps;
    _Atomic uint64_t epochs;
    _Atomic uint32_t bell;                  /* changes with every mark */
    alignas(64) _Atomic uint32_t is_parked; /* the futex that the runner waits on */
    /* How many steps had been marked when epoch i ended, at i modulo their count. */
    alignas(64) _Atomic uint64_t steps_at_epoch[HARPE_MARK_EPOCHS];
} harpe_mark_board;

#endif
