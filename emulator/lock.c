/* SPDX-License-Identifier: Apache-2.0 */
/* Locks one GPU of the emulated cluster. Several processes share the cluster. A process may be
 * stopped or killed while it holds a lock. A process therefore holds a lock only while it copies
 * the state and calculates, and makes no system call during this time. Waiting for a lock has a
 * time limit. A process changes a copy of the state, and makes the copy valid by a single store. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "base/wait.h"
#include "cluster.h"
#include "gpu/nvml_abi.h"
#include "world.h"

/* If the owner of a work sends no heartbeat for this real time, it may be dead. */
#define SILENCE_NS (3 * (int64_t)EMULATOR_HEARTBEAT_NS)

/* ---- Processes ------------------------------------------------------------------------------- */

static bool is_alive(const emulator_owner *owner) {
    return harpe_process_started(owner->pid) == owner->start_ticks;
}

static bool is_same(const emulator_owner *a, const emulator_owner *b) {
    return a->pid == b->pid && a->start_ticks == b->start_ticks;
}

emulator_owner emulator_this_process(void) {
    static _Thread_local emulator_owner self; /* reading /proc costs some microseconds */
    pid_t pid = harpe_process_self();
    if (self.pid != pid || emulator_is_in_world()) {
        self.start_ticks = harpe_process_started(pid);
        self.pid = pid;
    }
    return self;
}

/* ---- Dead processes -------------------------------------------------------------------------- */

/* Processes that own work on a GPU or make it wait, and that have not sent a heartbeat for a long
 * time; and processes that have a context, for which no heartbeats are sent. */
typedef struct silent_owners {
    /* One entry for each slot of work. 0: the slot is free, or its owner sends heartbeats. */
    uint64_t work_id[EMULATOR_WORK_MAX];
    emulator_owner work_owner[EMULATOR_WORK_MAX];
    bool is_waiting_silent, is_waiting_dead;
    emulator_owner waiting_owner;
    unsigned int context_count;
    emulator_owner context[EMULATOR_CONTEXT_MAX];
    bool are_contexts_checked;
} silent_owners;

/* Lists the owners of contexts, if contexts were not checked for `silence_ns`. Returns true if
 * there are any. */
static bool find_contexts(const emulator_state *state, int64_t silence_ns, silent_owners *silent) {
    if (harpe_clock_ns() - state->contexts_checked_ns < silence_ns) return false;
    for (unsigned int i = 0; i < EMULATOR_CONTEXT_MAX; i++)
        if (state->context[i].owner.pid != 0)
            silent->context[silent->context_count++] = state->context[i].owner;
    silent->are_contexts_checked = silent->context_count > 0;
    return silent->are_contexts_checked;
}

static bool find_silent(const emulator_state *state, int64_t silence_ns, silent_owners *silent) {
    int64_t real_ns = harpe_clock_ns();
    bool is_any = false;
    memset(silent, 0, sizeof *silent);
    for (unsigned int i = 0; i < EMULATOR_WORK_MAX; i++) {
        const emulator_work *work = &state->work[i];
        if (work->id == 0 || real_ns - work->heartbeat_ns < silence_ns) continue;
        silent->work_id[i] = work->id;
        silent->work_owner[i] = work->owner;
        is_any = true;
    }
    if (state->is_waiting && real_ns - state->waiting_checked_ns > EMULATOR_HEARTBEAT_NS) {
        silent->is_waiting_silent = true;
        silent->waiting_owner = state->waiting_owner;
        is_any = true;
    }
    return is_any;
}

/* Removes the living processes from the list. This function makes system calls, so the caller must
 * not hold the lock. */
static void keep_dead(silent_owners *silent) {
    for (unsigned int i = 0; i < EMULATOR_WORK_MAX; i++)
        if (silent->work_id[i] != 0 && is_alive(&silent->work_owner[i])) silent->work_id[i] = 0;
    silent->is_waiting_dead = silent->is_waiting_silent && !is_alive(&silent->waiting_owner);
    unsigned int dead_count = 0;
    for (unsigned int i = 0; i < silent->context_count; i++)
        if (!is_alive(&silent->context[i])) silent->context[dead_count++] = silent->context[i];
    silent->context_count = dead_count;
}

static void bury_contexts(emulator_state *state, const silent_owners *dead) {
    if (dead->are_contexts_checked) state->contexts_checked_ns = harpe_clock_ns();
    for (unsigned int k = 0; k < dead->context_count; k++)
        for (unsigned int i = 0; i < EMULATOR_CONTEXT_MAX; i++)
            if (is_same(&state->context[i].owner, &dead->context[k]))
                memset(&state->context[i], 0, sizeof state->context[i]);
}

/* Ends the work and the waiting of dead processes. Their work counts as ended one heartbeat period
 * after the last heartbeat. */
static void bury(emulator_cluster *cluster, const emulator_chip *chip, emulator_state *state,
                 const silent_owners *dead) {
    for (unsigned int i = 0; i < EMULATOR_WORK_MAX; i++) {
        emulator_work *work = &state->work[i];
        if (dead->work_id[i] == 0 || work->id != dead->work_id[i]) continue;
        emulator_advance(
            state, chip,
            emulator_from_real_ns(cluster, work->heartbeat_ns + EMULATOR_HEARTBEAT_NS));
        memset(work, 0, sizeof *work);
    }
    if (dead->is_waiting_silent && is_same(&state->waiting_owner, &dead->waiting_owner)) {
        state->waiting_checked_ns = harpe_clock_ns();
        state->is_waiting = state->is_waiting && !dead->is_waiting_dead;
    }
    bury_contexts(state, dead);
}

/* In a world, where it costs no system call, every look at a GPU ends what dead processes left. */
static void bury_at_once(emulator_state *state) {
    for (unsigned int i = 0; i < state->slot_count; i++) {
        emulator_work *work = &state->work[i];
        if (work->id != 0 && !is_alive(&work->owner)) memset(work, 0, sizeof *work);
    }
    state->is_waiting = state->is_waiting && is_alive(&state->waiting_owner);
    for (unsigned int i = 0; i < EMULATOR_CONTEXT_MAX; i++) {
        emulator_context *context = &state->context[i];
        if (context->owner.pid != 0 && !is_alive(&context->owner))
            memset(context, 0, sizeof *context);
    }
}

/* ---- The lock -------------------------------------------------------------------------------- */

static nvmlReturn_t lock_until(emulator_gpu *gpu, int64_t until_wall_ns) {
    int code = harpe_lock_until(&gpu->mutex, until_wall_ns);
    if (code == EOWNERDEAD) code = pthread_mutex_consistent(&gpu->mutex);
    if (code == 0) return NVML_SUCCESS;
    return code == ETIMEDOUT ? NVML_ERROR_TIMEOUT : NVML_ERROR_UNKNOWN;
}

static emulator_state *current_state(emulator_gpu *gpu) {
    return &gpu->state[atomic_load(&gpu->current) & 1];
}

emulator_chip emulator_chip_of(const emulator_cluster *cluster, unsigned int index,
                               double energy_step_s) {
    const emulator_gpu *gpu = &cluster->gpu[index];
    const emulator_model *model = emulator_model_at(gpu->model);
    double own_s =
        gpu->effects.energy_step_s > 0 ? gpu->effects.energy_step_s : model->energy_step_s;
    return (emulator_chip){
        .model = model,
        .effects = &gpu->effects,
        .points = gpu->points,
        .energy_step_s = energy_step_s < 0 ? own_s : energy_step_s,
    };
}

/* Nothing interrupts a thread that changes the state, so it needs no copy. */
static emulator_state *look_in_world(emulator_cluster *cluster, unsigned int index,
                                     double energy_step_s) {
    emulator_chip chip = emulator_chip_of(cluster, index, energy_step_s);
    emulator_state *state = current_state(&cluster->gpu[index]);
    emulator_advance(state, &chip, emulator_now_ns(cluster));
    bury_at_once(state);
    return state;
}

/* Locks a GPU, and ends the works, the waiting and the contexts of dead processes. Checks the
 * owners that sent no heartbeat for `silence_ns`, and the owners of contexts if these were not
 * checked for `unchecked_ns`. */
static nvmlReturn_t lock_and_bury(emulator_cluster *cluster, unsigned int index,
                                  double energy_step_s, int64_t silence_ns, int64_t unchecked_ns,
                                  emulator_state **out) {
    emulator_gpu *gpu = &cluster->gpu[index];
    if (emulator_is_in_world()) {
        *out = look_in_world(cluster, index, energy_step_s);
        return NVML_SUCCESS;
    }
    emulator_chip chip = emulator_chip_of(cluster, index, energy_step_s);
    int64_t until_wall_ns = harpe_clock_wall_ns() + EMULATOR_TIMEOUT_NS;
    silent_owners dead = {0};
    nvmlReturn_t result = lock_until(gpu, until_wall_ns);
    bool is_any_silent = false;
    if (result == NVML_SUCCESS) {
        is_any_silent = find_silent(current_state(gpu), silence_ns, &dead);
        is_any_silent = find_contexts(current_state(gpu), unchecked_ns, &dead) || is_any_silent;
    }
    if (is_any_silent) {
        harpe_unlock(&gpu->mutex);
        keep_dead(&dead);
        result = lock_until(gpu, until_wall_ns);
    }
    if (result != NVML_SUCCESS) return result;
    emulator_state *state = &gpu->state[1 - (atomic_load(&gpu->current) & 1)];
    memcpy(state, current_state(gpu), sizeof *state);
    bury(cluster, &chip, state, &dead);
    emulator_advance(state, &chip, emulator_now_ns(cluster));
    *out = state;
    return NVML_SUCCESS;
}

nvmlReturn_t emulator_lock(emulator_cluster *cluster, unsigned int index, double energy_step_s,
                           emulator_state **state) {
    return lock_and_bury(cluster, index, energy_step_s, SILENCE_NS, EMULATOR_HEARTBEAT_NS, state);
}

void emulator_unlock(emulator_cluster *cluster, unsigned int index, int wake) {
    emulator_gpu *gpu = &cluster->gpu[index];
    if (!emulator_is_in_world()) {
        atomic_store(&gpu->current, 1 - (atomic_load(&gpu->current) & 1));
        harpe_unlock(&gpu->mutex);
    }
    if (wake) {
        atomic_fetch_add(&gpu->changes, 1);
        harpe_wake(&gpu->changes);
    }
}

nvmlReturn_t emulator_bury_dead(emulator_cluster *cluster, unsigned int index,
                                double energy_step_s) {
    emulator_state *state;
    nvmlReturn_t result = lock_and_bury(cluster, index, energy_step_s, 0, 0, &state);
    if (result == NVML_SUCCESS) emulator_unlock(cluster, index, 0);
    return result;
}

nvmlReturn_t emulator_bury_contexts(emulator_cluster *cluster, unsigned int index,
                                    double energy_step_s) {
    emulator_state *state;
    nvmlReturn_t result = lock_and_bury(cluster, index, energy_step_s, SILENCE_NS, 0, &state);
    if (result == NVML_SUCCESS) emulator_unlock(cluster, index, 0);
    return result;
}

void emulator_wait_for_change(emulator_gpu *gpu, uint32_t seen, int64_t real_ns) {
    if (real_ns <= 0) return;
    (void)harpe_wait_while(&gpu->changes, seen, real_ns);
}
