/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction profiler measures the time and energy of each instruction of a training step
 * without stopping the training. The training thread records time stamps. A thread of the profiler
 * reads the GPU's energy counter, mostly when it is about to change. An instruction is often
 * shorter than the interval at which the counter changes, so one instruction's energy cannot be
 * read from the counter. Instead, the profiler uses the counter's values over many steps: it
 * estimates the power of each instruction at each frequency, and the power while the GPU waits, so
 * that the powers agree best with the counter (docs/training.md). */
#ifndef HARPE_INSTRUCTION_PROFILER_H
#define HARPE_INSTRUCTION_PROFILER_H

#include <stddef.h>
#include <stdint.h>

#include <harpe/api.h>
#include <harpe/callback.h>
#include <harpe/gpu.h>
#include <harpe/pfo.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

typedef struct harpe_instruction_profiler harpe_instruction_profiler;

/* Initialise with zeros, then set the members that you need. */
typedef struct harpe_instruction_profiler_options {
    harpe_gpus *gpus; /* must outlive the profiler; NULL: times only, energies are 0 */
    int gpu;
    /* Time between two readings of the energy counter until the profiler knows how often the
     * counter changes. Without a counter: time between two samples of power. In s of GPU time; 0:
     * 0.01 */
    double sample_period_s;
    size_t event_capacity; /* time stamps that may wait for the profiler's thread; 0: 65536 */
    harpe_log log;
} harpe_instruction_profiler_options;

HARPE_API harpe_status
harpe_instruction_profiler_new(const harpe_instruction_profiler_options *options,
                               harpe_instruction_profiler **out, harpe_error *error);
HARPE_API void harpe_instruction_profiler_free(harpe_instruction_profiler *profiler);

/* ---- Training thread ------------------------------------------------------------------------- */

/* Each of these functions records one time stamp. They do not block and make no system call. */

/* Begins a step, which is one iteration. `series` is a number that the caller gives to steps that
 * belong together, for example to those of a round. Instructions outside a step are ignored. The
 * profiler drops a whole step if there is no room for its time stamps, or if the step ends before
 * its last instruction has ended. */
HARPE_API void harpe_instruction_profiler_begin_step(harpe_instruction_profiler *profiler,
                                                     int64_t series);
HARPE_API void harpe_instruction_profiler_end_step(harpe_instruction_profiler *profiler);
/* Drops the current step because it was not a training step. */
HARPE_API void harpe_instruction_profiler_cancel_step(harpe_instruction_profiler *profiler);
/* Begins an instruction. `instruction` is its name; the profiler compares the text, and copies a
 * name that is new. It accepts 64 names of 64 bytes each. NULL: "unnamed". `frequency_mhz` is the
 * requested clock in MHz; 0: unknown. */
HARPE_API void harpe_instruction_profiler_begin(harpe_instruction_profiler *profiler,
                                                const char *instruction, int frequency_mhz);
HARPE_API void harpe_instruction_profiler_end(harpe_instruction_profiler *profiler);

/* ---- Other threads --------------------------------------------------------------------------- */

/* The profiler keeps a step until the caller takes it. If the kept steps have more than a million
 * instructions, the older half is dropped and counts only in the profile that _write_csv writes. A
 * profiler does not work in a child of fork(): there it has no steps, and _take returns
 * HARPE_NOT_SUPPORTED. The child may free it. */

/* Returns the number of steps of `series` that have ended and whose energy is known. The energy of
 * a step is known when the counter has been read after its end. */
HARPE_API size_t harpe_instruction_profiler_step_count(harpe_instruction_profiler *profiler,
                                                       int64_t series);
/* Returns the first `steps` steps of `series` as one result of `rank`, and removes all steps of
 * `series` and of older series. Fails with HARPE_NOT_FOUND if there are fewer steps. The energy of
 * a step comes from the counter's values. The energy of an instruction is its duration times its
 * power, which is fitted to all steps of the result. */
HARPE_API harpe_status harpe_instruction_profiler_take(harpe_instruction_profiler *profiler,
                                                       int64_t series, size_t steps, int rank,
                                                       harpe_profiling_result *out,
                                                       harpe_error *error);
/* Writes everything that was measured since the start as a profile. The profile has one row for
 * each pair of instruction and frequency. Each row contains `stage`, and also `rank` if `rank` is
 * >= 0. The function writes the whole file or none. */
HARPE_API harpe_status harpe_instruction_profiler_write_csv(harpe_instruction_profiler *profiler,
                                                            int stage, int rank, const char *path,
                                                            harpe_error *error);
/* Returns the fitted power in W while a step runs no instruction. NaN: the power is not known
 * yet. */
HARPE_API double harpe_instruction_profiler_waiting_power_w(harpe_instruction_profiler *profiler);

HARPE_END_DECLS

#endif
