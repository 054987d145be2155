/* SPDX-License-Identifier: Apache-2.0 */
/* The memory through which a training program reports its steps to the runner (`harpe power-limit
 * run`). step_signal.c is the program's side, and src/cli/marked_command.c is the runner's side.
 * Counts in shared memory are exact even if the runner reads them rarely. The program needs no
 * descriptor to write these counts. */
#ifndef HARPE_POWER_LIMIT_STEP_SIGNAL_H
#define HARPE_POWER_LIMIT_STEP_SIGNAL_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Environment variables that the runner sets for its command. */
#define HARPE_STEP_LINES_VARIABLE "HARPE_STEP_FD"  /* descriptor of a pipe for lines */
#define HARPE_STEP_PIPE_VARIABLE "HARPE_STEP_PIPE" /* that pipe's "<device>:<inode>" */
/* The memory: "<descriptor>:<device>:<inode>:<process id of the runner>". */
#define HARPE_STEP_MEMORY_VARIABLE "HARPE_STEP_MEMORY"

#define HARPE_STEP_MEMORY_FILE "harpe-step-signals" /* name of the memfd */

#define HARPE_STEP_MEMORY_MAGIC UINT64_C(0x316b72616d707268) /* changes when the layout changes */

enum { HARPE_STEP_EPOCHS = 1024 };

/* The content of the memory, which is a sealed memfd that cannot shrink. All members but `magic`
 * start at 0. The program adds to the counts, sets `source`, and clears `is_parked` when it wakes
 * the runner. The runner reads the counts and sets `is_parked`. After a change of `source`, a step
 * is another unit of work than before. */
typedef struct harpe_step_memory {
    uint64_t magic;
    alignas(64) _Atomic uint64_t steps;
    _Atomic uint64_t epochs;
    _Atomic uint32_t bell;                  /* incremented by every signal */
    _Atomic uint32_t source;                /* the harpe_step_source of `steps`; 0: none yet */
    alignas(64) _Atomic uint32_t is_parked; /* the futex on which the runner waits */
    /* Element i modulo HARPE_STEP_EPOCHS is the value of `steps` when epoch i ended. */
    alignas(64) _Atomic uint64_t steps_at_epoch[HARPE_STEP_EPOCHS];
} harpe_step_memory;

/* Returns the memory in which the marks of this process are counted. If no runner has given such a
 * memory, makes one. The memory is never freed. Returns NULL if the system has no memory left.
 * `*is_runners` becomes true if a runner has given the memory. Then only this runner may wait for
 * the marks. */
harpe_step_memory *harpe_step_memory_own(bool *is_runners);
/* Adds `steps` marks to a memory, or the end of an epoch, and wakes the runner. */
void harpe_step_memory_add(harpe_step_memory *shared, uint64_t steps);
void harpe_step_memory_end_epoch(harpe_step_memory *shared);
/* Adds `steps` marks to the memory that a runner has given this process, or that
 * harpe_step_memory_own has made, and wakes the runner. Does nothing if there is no such memory. */
void harpe_step_memory_count(uint64_t steps);

#endif
