/* SPDX-License-Identifier: Apache-2.0 */
/* The emulator's own API, in addition to NVML. A simulated training rank uses it to make a GPU
 * busy. The emulated libnvidia-ml.so.1 exports these functions, and programs look them up with
 * dlsym; a real driver library does not have them. GPUs are identified by their NVML index. Any
 * thread of any process that names the same cluster may call them. They return 0 or an NVML error
 * code. */
#ifndef HARPE_EMULATOR_H
#define HARPE_EMULATOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the emulated monotonic time in ns. It runs HARPE_EMULATOR_TIME_SCALE times as fast as the
 * real clock. */
int64_t harpe_emulator_now_ns(void);

/* Keeps the GPU busy with work that takes `full_speed_s` emulated seconds at the highest clock. The
 * part `compute_share` (0..1) of this time scales with the clock. Blocks until the work is done or
 * the GPU is lost. Clocks and power limits may change meanwhile. `elapsed_s` (may be NULL) receives
 * the emulated seconds that the work took. */
int harpe_emulator_work(unsigned int gpu, double full_speed_s, double compute_share,
                        double *elapsed_s);

/* Runs one iteration of a workload that was measured on real GPUs (docs/emulator.md), such as
 * "gpt2-bf16-b8-s128". `name` NULL: the first workload of HARPE_EMULATOR_WORKLOAD. The iteration
 * has the time and power that were measured at the GPU's current clock. `stretch` (0.01 to 100)
 * multiplies the time. The iteration starts at the emulated time `ready_ns` (such as the end of the
 * iteration before; 0: now), or at the end of the GPU's previous work if that is later.
 * `*finished_ns` receives the end of the iteration; `finished_ns` may be NULL. Returns
 * NVML_ERROR_NOT_FOUND if there is no such workload. */
int harpe_emulator_workload_step(unsigned int gpu, const char *name, double stretch,
                                 int64_t ready_ns, int64_t *finished_ns);

/* Returns the name of the workload with this index, or NULL after the last workload. */
const char *harpe_emulator_workload_name(unsigned int index);

/* Keeps the GPU busy with an instruction of the measured profile HARPE_EMULATOR_PROFILE. The
 * instruction takes the time, and draws the power, that were measured at the GPU's current
 * clock. */
int harpe_emulator_instruction(unsigned int gpu, int stage, const char *instruction,
                               double *elapsed_s);

/* Runs an instruction for a training host that enqueues its kernels ahead of time. The work was
 * ready at `ready_ns` (emulated; 0: now). The work starts at that time or at the end of the GPU's
 * previous work, whichever is later. If this function is called after the start, the GPU's energy
 * is corrected. A clock that is set at most 1 s of real time after this call began also applies
 * from the start of the work, plus the delay of the fault slow_set. Between such works the GPU
 * waits for a peer. `slowdown` above 1 emulates a GPU that is throttled to a lower clock: the work
 * takes at least `slowdown` times as long as at the highest clock. A power limit at its default
 * slows nothing, because the profile was measured under that limit. `finished_ns` (may be NULL)
 * receives the exact end. */
int harpe_emulator_instruction_at(unsigned int gpu, int stage, const char *instruction,
                                  double slowdown, int64_t ready_ns, int64_t *finished_ns);

/* Runs an instruction like harpe_emulator_instruction_at, and returns only when the work is done
 * and `is_held(user)` returns 0. Use it if another process will set a clock for this work but may
 * not have had processor time yet. A clock that is set before the function returns, and at most 1 s
 * of real time after the call began, applies from the start of the work. When the work is done,
 * this thread calls `is_held` every 0.2 ms; `is_held` may make other calls on the GPU. If `is_held`
 * is NULL, does not wait for it. */
int harpe_emulator_instruction_held(unsigned int gpu, int stage, const char *instruction,
                                    double slowdown, int64_t ready_ns, int (*is_held)(void *user),
                                    void *user, int64_t *finished_ns);

/* Works like harpe_emulator_instruction_at, but ignores a lock of the clocks: the instruction runs
 * at the highest clock that the power limit and the temperature allow. NVML still reports the
 * locked clock, so a process that sets clocks does not notice the instruction. A simulation calls
 * this function to measure a job without an optimizer while an optimizer keeps the clocks locked.
 */
int harpe_emulator_instruction_unlocked(unsigned int gpu, int stage, const char *instruction,
                                        int64_t ready_ns, int64_t *finished_ns);

/* Opens a context on the GPU for this process, as a program does when it first uses CUDA. Until the
 * process exits or closes the context, the list of the GPU's processes has this process with
 * `memory_bytes` of memory (0: the amount of a CUDA context; at most half of the GPU's memory).
 * Work and waiting also open a context. A second call can only raise the amount of memory. An idle
 * GPU with a context keeps its highest clock and draws more power. */
int harpe_emulator_open_context(unsigned int gpu, uint64_t memory_bytes);
int harpe_emulator_close_context(unsigned int gpu);

/* Computes the energy in J that the GPU (on a GH200: the module) has drawn from the creation of its
 * cluster until `at_ns`. This time must be in the last few seconds, and not before the last works
 * began; a time in the future counts as now. The value is exact, whereas the driver's counter
 * changes in steps. */
int harpe_emulator_energy(unsigned int gpu, int64_t at_ns, double *energy_j);

/* Makes the GPU wait for a peer, at blocking power, until work comes or `waiting` is 0. */
int harpe_emulator_wait(unsigned int gpu, int waiting);

/* Returns the numbers of calls that have changed settings of the GPU since its cluster was created,
 * by all processes: calls that set the power limit, that lock or reset clocks, and that set the
 * persistence mode. Refused calls do not count. Any pointer may be NULL. */
int harpe_emulator_write_count(unsigned int gpu, uint64_t *power_limit, uint64_t *clocks,
                               uint64_t *persistence);

/* Reads the true graphics clock of the GPU: the present one, and the next that a call has already
 * asked for. `next_mhz` and `next_ns` (emulated time of the transition) are 0 if no change is
 * pending. Any pointer may be NULL. */
int harpe_emulator_clock(unsigned int gpu, uint32_t *current_mhz, uint32_t *next_mhz,
                         int64_t *next_ns);

/* Sets the emulated time at which calls that lock clocks of the GPU count as made. This holds for
 * the calls of all processes, until the next call of this function. A simulated host uses this
 * function after a busy machine has delayed its call. A time in the future counts as now, and 0
 * stands for the real times of the calls. If the new clock comes in the past, the GPU's only
 * enqueued work, or its wait, is computed again. The function has an effect only if the physics of
 * the GPU has a switch_call_s or a switch_latency_s. */
int harpe_emulator_calls_at(unsigned int gpu, int64_t at_ns);

/* Writes the UUID of a GPU, as nvmlDeviceGetUUID does. Returns NVML_ERROR_INSUFFICIENT_SIZE if
 * `size` is too small. */
int harpe_emulator_uuid(unsigned int gpu, char *text, unsigned int size);

/* Writes the identity of the cluster, "<name>@<time of its creation>". A cluster that is created
 * again under the same name has another identity. Returns NVML_ERROR_INSUFFICIENT_SIZE if `size` is
 * too small. */
int harpe_emulator_identity(char *text, unsigned int size);

/* Checks HARPE_EMULATOR_CLUSTER, _GPUS, _TIME_SCALE, _NOISE, _SEED, _PHYSICS, _WORKLOAD and
 * _FAULTS. Returns 0, or an NVML error code with one line in `message` that names the wrong
 * variable and the reason. Does not attach to a cluster. */
int harpe_emulator_check(char *message, unsigned int size);

#ifdef __cplusplus
}
#endif

#endif
