/* SPDX-License-Identifier: Apache-2.0 */
/* The memory through which a training program reports its steps to `harpe power-limit run`.
 * step_signal.c is the program's side, and src/cli/marked_command.c is the runner's.
 * Counts in shared memory are exact even if the runner reads them rarely. The program needs no
 * descriptor to write them. */
#ifndef HARPE_POWERLIMIT_STEP_SIGNAL_H
#define HARPE_POWERLIMIT_STEP_SIGNAL_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Environment variables that the runner sets for its command. */
#define HARPE_STEP_LINES_VARIABLE "HARPE_STEP_FD"  /* descriptor of a pipe for lines */
#define HARPE_STEP_PIPE_VARIABLE "HARPE_STEP_PIPE" /* that pipe's "<device>:<inode>" */
/* "<descriptor>:<device>:<inode>:<the runner's process>" */
#define HARPE_STEP_MEMORY_VARIABLE "HARPE_STEP_MEMORY"

#define HARPE_STEP_MEMORY_FILE "harpe-step-signals" /* name of the memfd */

#define HARPE_STEP_MEMORY_MAGIC UINT64_C(0x316b72616d707268) /* changes when the layout changes */

enum { HARPE_STEP_EPOCHS = 1024 };

/* A sealed memfd that cannot shrink. All members start at 0. The program only adds to them, and
 * sets the source. The runner reads them and resets is_parked. If the source changes, earlier steps
 * were other units of work. */
typedef struct harpe_step_memory {
    uint64_t magic;
    alignas(64) _Atomic uint64_t steps;
    _Atomic uint64_t epochs;
    _Atomic uint32_t bell;                  /* incremented by every signal */
    _Atomic uint32_t source;                /* harpe_step_source that `steps` counts; 0: none yet */
    alignas(64) _Atomic uint32_t is_parked; /* the futex on which the runner waits */
    /* The number of steps signalled when epoch i ended, at index i modulo their count. */
    alignas(64) _Atomic uint64_t steps_at_epoch[HARPE_STEP_EPOCHS];
} harpe_step_memory;

/* Returns the memory of this process, which it makes if no runner has given one. It is never freed.
 * Returns NULL if memory runs out. Marks of this process then count in it. `*is_runners` becomes
 * true for the memory of a runner, who alone may wait for its marks. */
harpe_step_memory *harpe_step_memory_own(bool *is_runners);
/* Counts so many steps at once in a memory, and wakes the runner. */
void harpe_step_memory_add(harpe_step_memory *shared, uint64_t steps);
/* Does the same in the memory of this process; does nothing if it has none. */
void harpe_step_memory_count(uint64_t steps);

#endif
