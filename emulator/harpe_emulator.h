/* SPDX-License-Identifier: Apache-2.0 */
/* The emulator's own API, beside NVML's: how a simulated training rank says that a GPU is busy. The
 * functions are exported by the emulated libnvidia-ml.so.1 and looked up with dlsym; a real driver
 * library does not have them. GPUs are named by NVML index. Any thread, any process of the machine
 * that names the same cluster. Return 0, or an NVML error code. */
#ifndef HARPE_EMULATOR_H
#define HARPE_EMULATOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Emulated monotonic time in ns; runs HARPE_EMULATOR_TIME_SCALE times as fast as the real clock. */
int64_t harpe_emulator_now_ns(void);

/* Keeps the GPU busy with work that takes `full_speed_s` emulated seconds at the highest clock, of
 * which `compute_share` (0..1) scales with the clock; blocks until it is done (or lost), at
 * whatever clocks and power limits hold on the way. `elapsed_s` (may be NULL) receives emulated
 * seconds. */
int harpe_emulator_work(unsigned int gpu, double full_speed_s, double compute_share,
                        double *elapsed_s);

/* The same for a row of a measured profile (HARPE_EMULATOR_PROFILE, stage, instruction): takes the
 * time and draws the power measured at the clock that holds. */
int harpe_emulator_instruction(unsigned int gpu, int stage, const char *instruction,
                               double *elapsed_s);

/* The same as a training host has it that enqueues its kernels ahead of time: the work was ready at
 * `ready_ns` (emulated; 0: at once) and starts then, or when the GPU's previous work ended,
 * although the caller comes later; the GPU's energy is put right for the time made up. Likewise a
 * clock that is set up to 1 s of real time after the work was put holds from the work's start (plus
 * what the fault slow_set says). Between such works the GPU waits for a peer. `slowdown` (1: none):
 * a throttled GPU, at a clock at which everything takes at least that many times as long as at the
 * highest. A power limit at its default does not count: the profile was measured under one.
 * `finished_ns` (may be NULL) receives the exact end. */
int harpe_emulator_instruction_at(unsigned int gpu, int stage, const char *instruction,
                                  double slowdown, int64_t ready_ns, int64_t *finished_ns);

/* The same for a caller that knows that another process will set a clock but has not yet had
 * processor time. Work that is done does not end before `is_held(user)` returns 0. A clock that is
 * set until then, and at most 1 s of real time after the work was given to the GPU, holds from the
 * start of the work. `is_held` (NULL: it does not wait) is called in this thread, every 0.2 ms once
 * the work is done, and may make other calls on the GPU. */
int harpe_emulator_instruction_held(unsigned int gpu, int stage, const char *instruction,
                                    double slowdown, int64_t ready_ns, int (*is_held)(void *user),
                                    void *user, int64_t *finished_ns);

/* Opens a context on the GPU for this process, as a program does when it first uses CUDA. The
 * process is listed among the GPU's processes with that much memory (0: the amount of a context; at
 * most half of the GPU's memory) until it exits or closes the context. Work and waiting open a
 * context too. A second call can only raise the amount. */
int harpe_emulator_open_context(unsigned int gpu, uint64_t memory_bytes);
int harpe_emulator_close_context(unsigned int gpu);

/* Energy in J that the GPU (on a GH200 the module) has drawn until a moment of the recent past
 * (some seconds; not before the last works began) since its cluster was made: exact where the
 * driver's counter moves in steps. A moment ahead counts as now. */
int harpe_emulator_energy(unsigned int gpu, int64_t at_ns, double *energy_j);

/* The GPU waits for a peer (blocking power) from now on, until work comes or `waiting` is 0. */
int harpe_emulator_wait(unsigned int gpu, int waiting);

/* How many set calls the GPU has obeyed since its cluster was made, whoever made them: of the power
 * limit; of clocks, locked or reset; of the persistence mode. Any pointer may be NULL. */
int harpe_emulator_write_count(unsigned int gpu, uint64_t *power_limit, uint64_t *clocks,
                               uint64_t *persistence);

/* The identity of the cluster: "<name>@<time when it was made>". A cluster that is made again under
 * the same name has another identity. NVML_ERROR_INSUFFICIENT_SIZE if `size` is too small. */
int harpe_emulator_identity(char *text, unsigned int size);

/* Do HARPE_EMULATOR_CLUSTER, _GPUS, _TIME_SCALE, _NOISE, _SEED and _FAULTS make sense? 0, or an
 * NVML error code and one line in `message` that names the wrong variable and the reason. Attaches
 * to nothing. */
int harpe_emulator_check(char *message, unsigned int size);

#ifdef __cplusplus
}
#endif

#endif
