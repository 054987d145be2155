/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction profiler: time and energy of each instruction of a training step, without
 * stopping the training. The training thread leaves time stamps; a thread of the profiler's own
 * reads the GPU's energy counter all the time. One instruction is often shorter than the counter's
 * step, so energies are never read off one window: they are fitted, as one power per (instruction,
 * frequency) and one for waiting, to everything that the counter showed over many steps
 * (docs/training.md). */
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

/* Zero-initialise, then set what matters. */
typedef struct harpe_instruction_profiler_options {
    harpe_gpus *gpus; /* must outlive the profiler; NULL: times only, energies are 0 */
    int gpu;
    double sample_period_s; /* between looks at the energy counter, GPU time; 0: 0.01 */
    size_t event_capacity;  /* time stamps that wait to be looked at; 0: 65536 */
    harpe_log log;
} harpe_instruction_profiler_options;

HARPE_API harpe_status
harpe_instruction_profiler_new(const harpe_instruction_profiler_options *options,
                               harpe_instruction_profiler **out, harpe_error *error);
HARPE_API void harpe_instruction_profiler_free(harpe_instruction_profiler *profiler);

/* ---- Training thread: each leaves one time stamp; never blocks, no system call --------------- */

/* `series` is the caller's number for steps that belong together (a round); a step is one
 * iteration. Instructions outside of a step are ignored. A step whose time stamps found no room, or
 * that ends inside an instruction, is dropped as a whole. */
HARPE_API void harpe_instruction_profiler_begin_step(harpe_instruction_profiler *profiler,
                                                     int64_t series);
HARPE_API void harpe_instruction_profiler_end_step(harpe_instruction_profiler *profiler);
/* Gives the step up: it was no training step. */
HARPE_API void harpe_instruction_profiler_cancel_step(harpe_instruction_profiler *profiler);
/* `instruction` is compared by its text and copied when new (at most 64 names, of 64 bytes each);
 * NULL: "unnamed".
 * `frequency_mhz`: what it was asked to run at; 0: unknown. */
HARPE_API void harpe_instruction_profiler_begin(harpe_instruction_profiler *profiler,
                                                const char *instruction, int frequency_mhz);
HARPE_API void harpe_instruction_profiler_end(harpe_instruction_profiler *profiler);

/* ---- Other threads --------------------------------------------------------------------------- */

/* Steps wait until they are taken; beyond a million instructions the oldest half of them stays in
 * the profile only. A profiler does not survive fork(): the child has no steps, takes nothing
 * (HARPE_NOT_SUPPORTED), and can free it. */

/* Whole steps of `series` whose energy is known too (the counter has passed their end). */
HARPE_API size_t harpe_instruction_profiler_step_count(harpe_instruction_profiler *profiler,
                                                       int64_t series);
/* The first `steps` steps of `series` as one result of `rank`, and forgets all steps of `series`
 * and older ones. HARPE_NOT_FOUND when there are fewer. Energies: of a step, as the counter showed;
 * of its instructions, power fitted over all steps of the result times their duration. */
HARPE_API harpe_status harpe_instruction_profiler_take(harpe_instruction_profiler *profiler,
                                                       int64_t series, size_t steps, int rank,
                                                       harpe_profiling_result *out,
                                                       harpe_error *error);
/* Everything seen since the start as a profile: one row per (instruction, frequency), with `stage`
 * and, when >= 0, `rank`. The file is written whole or not at all. */
HARPE_API harpe_status harpe_instruction_profiler_write_csv(harpe_instruction_profiler *profiler,
                                                            int stage, int rank, const char *path,
                                                            harpe_error *error);
/* Fitted power while no instruction ran in a step, in W; NaN: not known yet. */
HARPE_API double harpe_instruction_profiler_waiting_power_w(harpe_instruction_profiler *profiler);

HARPE_END_DECLS

#endif
