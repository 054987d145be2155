/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates work for the emulator's own API (harpe_emulator.h). Work is part of the shared state,
 * so that a change of clocks or limits by any process affects it. The caller sleeps until its work
 * is done. It wakes up when the state changes, and regularly to send a heartbeat. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "call.h"
#include "profile_points.h"
#include "variety.h"
#include "workloads.h"
#include "world.h"

#pragma GCC visibility push(default)
#include "harpe_emulator.h"
#pragma GCC visibility pop

#define WORK_MEMORY_BYTES (UINT64_C(8) << 30)
#define CONTEXT_MEMORY_BYTES (UINT64_C(448) << 20) /* of a CUDA context: hundreds of MiB */
#define WORK_MAX_S 1e6
#define SLOWDOWN_MAX 1000
#define STRETCH_MIN 0.01
#define STRETCH_MAX 100
#define HELD_NS 200000 /* real time between two calls of `is_held` */

typedef struct work_order {
    emulator_cluster *cluster;
    emulator_faults faults;
    unsigned int gpu, slot;
    uint64_t id;
    int64_t started_ns, finished_ns;
    bool is_enqueued;
    int64_t ready_ns;           /* 0: the work starts now */
    int (*is_held)(void *user); /* NULL: the call returns when the work is done */
    void *user;
    bool is_listed; /* the process has a context */
} work_order;

int64_t harpe_emulator_now_ns(void) {
    emulator_cluster *cluster;
    if (emulator_enter_always(&cluster, NULL) != NVML_SUCCESS) return harpe_clock_ns();
    int64_t now_ns = emulator_now_ns(cluster);
    emulator_leave();
    return now_ns;
}

int harpe_emulator_identity(char *text, unsigned int size) {
    emulator_cluster *cluster;
    nvmlReturn_t result = emulator_enter_always(&cluster, NULL);
    if (result != NVML_SUCCESS) return (int)result;
    int length = snprintf(text, size, "%s@%lld", cluster->name, (long long)cluster->epoch_ns);
    emulator_leave();
    return length >= 0 && (unsigned int)length < size ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

int harpe_emulator_uuid(unsigned int gpu, char *text, unsigned int size) {
    emulator_cluster *cluster;
    nvmlReturn_t result = emulator_enter_always(&cluster, NULL);
    if (result != NVML_SUCCESS) return (int)result;
    if (gpu >= cluster->gpu_count)
        result = NVML_ERROR_INVALID_ARGUMENT;
    else if ((unsigned int)snprintf(text, size, "%s", cluster->gpu[gpu].uuid) >= size)
        result = NVML_ERROR_INSUFFICIENT_SIZE;
    emulator_leave();
    return (int)result;
}

/* Returns a free slot. If all slots are in use, returns the slot of finished work whose owner has
 * not asked for it for a long time. Such an owner has probably replaced itself by another
 * program. */
static unsigned int free_slot(const emulator_state *state) {
    int64_t forgotten_ns = harpe_clock_ns() - 100 * (int64_t)EMULATOR_HEARTBEAT_NS;
    unsigned int forgotten = EMULATOR_WORK_MAX;
    for (unsigned int slot = 0; slot < EMULATOR_WORK_MAX; slot++) {
        if (state->work[slot].id == 0) return slot;
        if (state->work[slot].is_done && state->work[slot].heartbeat_ns < forgotten_ns)
            forgotten = slot;
    }
    return forgotten;
}

/* ---- Contexts -------------------------------------------------------------------------------- */

/* Returns the context of a process. If the process has none, returns a free slot, or NULL if all
 * slots are in use. */
static emulator_context *find_context(emulator_state *state, const emulator_owner *owner) {
    emulator_context *found = NULL;
    for (unsigned int i = 0; i < EMULATOR_CONTEXT_MAX; i++) {
        emulator_context *context = &state->context[i];
        if (context->owner.pid == owner->pid && context->owner.start_ticks == owner->start_ticks)
            return context;
        if (context->owner.pid == 0 && !found) found = context;
    }
    return found;
}

/* Opens a context for a process. Returns false if there is no free slot. */
static bool open_context(emulator_state *state, const emulator_owner *owner, uint64_t memory_b) {
    emulator_context *context = find_context(state, owner);
    if (!context) return false;
    if (context->owner.pid == 0 || memory_b > context->memory_b) context->memory_b = memory_b;
    context->owner = *owner;
    return true;
}

/* Adds the work to the GPU's state. */
static int put(work_order *job, const emulator_work *work, const emulator_points *points) {
    emulator_owner owner = emulator_this_process();
    emulator_chip chip = emulator_chip_of(job->cluster, job->gpu, job->faults.energy_step_s);
    emulator_state *state;
    int result = (int)emulator_lock(job->cluster, job->gpu, job->faults.energy_step_s, &state);
    if (result != NVML_SUCCESS) return result;
    unsigned int slot = free_slot(state);
    if (state->is_lost || slot == EMULATOR_WORK_MAX) {
        result = state->is_lost ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_INSUFFICIENT_RESOURCES;
        emulator_unlock(job->cluster, job->gpu, 0);
        return result;
    }
    if (points) emulator_copy_points(&job->cluster->gpu[job->gpu].points[slot], points);
    int64_t now_ns = state->now_ns;
    if (job->ready_ns != 0) emulator_start_enqueued(state, &chip, job->ready_ns);
    job->slot = slot;
    if (slot >= state->slot_count) state->slot_count = slot + 1;
    job->id = ++state->works_started;
    job->started_ns = state->now_ns;
    job->is_listed = open_context(state, &owner, CONTEXT_MEMORY_BYTES);
    state->is_waiting = job->is_enqueued; /* after enqueued work the GPU waits for a peer */
    state->waiting_owner = owner;
    state->waiting_checked_ns = harpe_clock_ns();
    state->work[slot] = *work;
    state->work[slot].is_enqueued = job->is_enqueued;
    state->work[slot].started_ns = job->started_ns;
    state->work[slot].id = job->id;
    state->work[slot].owner = owner;
    state->work[slot].remaining = 1.0;
    state->work[slot].pace = emulator_draw_pace(chip.effects, job->id);
    state->work[slot].used_memory_b = WORK_MEMORY_BYTES / EMULATOR_WORK_MAX;
    state->work[slot].heartbeat_ns = state->work[slot].enqueued_ns = harpe_clock_ns();
    emulator_advance(state, &chip, now_ns);
    emulator_unlock(job->cluster, job->gpu, 1);
    return NVML_SUCCESS;
}

/* Opens the context with which the process is listed. First frees the contexts of dead processes,
 * because they may use all slots. If there is still no free slot, the process is not listed, but
 * its work continues. */
static void list_process(const work_order *job) {
    emulator_owner owner = emulator_this_process();
    double energy_step_s = job->faults.energy_step_s;
    emulator_state *state;
    if (emulator_bury_contexts(job->cluster, job->gpu, energy_step_s) != NVML_SUCCESS) return;
    if (emulator_lock(job->cluster, job->gpu, energy_step_s, &state) != NVML_SUCCESS) return;
    (void)open_context(state, &owner, CONTEXT_MEMORY_BYTES);
    emulator_unlock(job->cluster, job->gpu, 0);
}

static int start(work_order *job, const emulator_work *work, const emulator_points *points) {
    int result = put(job, work, points);
    if (result == NVML_ERROR_INSUFFICIENT_RESOURCES) {
        result = (int)emulator_bury_dead(job->cluster, job->gpu, job->faults.energy_step_s);
        if (result == NVML_SUCCESS) result = put(job, work, points);
    }
    if (result == NVML_SUCCESS && !job->is_listed) list_process(job);
    return result;
}

/* Checks the work once. Returns true if the work has ended or failed. Otherwise `*real_ns` receives
 * the longest time to sleep. Work that is done stays in its slot while `is_held` is true. */
static bool look(work_order *job, bool is_held, int *result, double *elapsed_s, int64_t *real_ns) {
    emulator_chip chip = emulator_chip_of(job->cluster, job->gpu, job->faults.energy_step_s);
    emulator_state *state;
    *result = (int)emulator_lock(job->cluster, job->gpu, job->faults.energy_step_s, &state);
    if (*result != NVML_SUCCESS) return true;
    emulator_work *work = &state->work[job->slot];
    bool is_over = true;
    if (state->is_lost || work->id != job->id) {
        *result = NVML_ERROR_GPU_IS_LOST;
    } else if (work->is_done && is_held) {
        is_over = false;
        work->heartbeat_ns = harpe_clock_ns();
        *real_ns = HELD_NS;
    } else if (work->is_done) {
        *result = NVML_SUCCESS;
        *elapsed_s = 1e-9 * (double)(work->finished_ns - work->started_ns);
        job->finished_ns = work->finished_ns;
    } else {
        is_over = false;
        work->heartbeat_ns = harpe_clock_ns();
        int64_t left_ns = llround(emulator_time_left_s(state, &chip, job->slot) * 1e9);
        int64_t next_ns = state->now_ns + (left_ns > 0 ? left_ns : 1);
        *real_ns = emulator_to_real_ns(job->cluster, next_ns) - harpe_clock_ns();
        if (*real_ns > EMULATOR_HEARTBEAT_NS && !emulator_is_in_world())
            *real_ns = EMULATOR_HEARTBEAT_NS;
    }
    if (is_over && work->id == job->id) memset(work, 0, sizeof *work);
    emulator_unlock(job->cluster, job->gpu, is_over);
    return is_over;
}

static int run(work_order *job, const emulator_work *work, const emulator_points *points,
               double *elapsed_s) {
    unsigned int gpu = job->gpu;
    int result = (int)emulator_enter_always(&job->cluster, &job->faults);
    if (result != NVML_SUCCESS) return result;
    result = gpu < job->cluster->gpu_count ? start(job, work, points) : NVML_ERROR_INVALID_ARGUMENT;
    double took_s = 0;
    while (result == NVML_SUCCESS) {
        uint32_t seen = atomic_load(&job->cluster->gpu[gpu].changes);
        int64_t real_ns = 0;
        /* This call comes before the state is read, so that the state includes the change after
         * which `is_held` returns 0. */
        bool is_held = job->is_held && !emulator_is_in_world() && job->is_held(job->user);
        if (look(job, is_held, &result, &took_s, &real_ns)) break;
        emulator_wait_for_change(&job->cluster->gpu[gpu], seen, real_ns);
    }
    emulator_leave();
    if (result == NVML_SUCCESS && elapsed_s) *elapsed_s = took_s;
    return result;
}

int harpe_emulator_work(unsigned int gpu, double full_speed_s, double compute_share,
                        double *elapsed_s) {
    /* written in this form so that NaN is refused */
    if (!(full_speed_s > 0 && full_speed_s <= WORK_MAX_S)) return NVML_ERROR_INVALID_ARGUMENT;
    if (!(compute_share >= 0 && compute_share <= 1)) return NVML_ERROR_INVALID_ARGUMENT;
    emulator_work work = {.full_speed_s = full_speed_s, .compute_share = compute_share};
    work_order job = {.gpu = gpu};
    return run(&job, &work, NULL, elapsed_s);
}

const char *harpe_emulator_workload_name(unsigned int index) {
    const emulator_workload *workload = emulator_workload_at(index);
    return workload ? workload->name : NULL;
}

int harpe_emulator_workload_step(unsigned int gpu, const char *name, double stretch,
                                 int64_t ready_ns, int64_t *finished_ns) {
    if (!name) name = getenv("HARPE_EMULATOR_WORKLOAD");
    int index = name ? emulator_workload_find(name) : -1;
    if (index < 0) return NVML_ERROR_NOT_FOUND;
    if (!(stretch >= STRETCH_MIN && stretch <= STRETCH_MAX)) return NVML_ERROR_INVALID_ARGUMENT;
    emulator_work work = {.workload = (uint32_t)index + 1, .stretch = stretch};
    work_order job = {.gpu = gpu, .ready_ns = ready_ns};
    int result = run(&job, &work, NULL, NULL);
    if (result == NVML_SUCCESS && finished_ns) *finished_ns = job.finished_ns;
    return result;
}

int harpe_emulator_instruction(unsigned int gpu, int stage, const char *instruction,
                               double *elapsed_s) {
    emulator_points points;
    int result =
        emulator_read_points(getenv("HARPE_EMULATOR_PROFILE"), stage, instruction, &points);
    if (result != NVML_SUCCESS) return result;
    emulator_work work = {.has_points = true};
    work_order job = {.gpu = gpu};
    return run(&job, &work, &points, elapsed_s);
}

static int run_instruction(work_order *job, int stage, const char *instruction, double slowdown,
                           emulator_work work, int64_t *finished_ns) {
    if (!(slowdown >= 1 && slowdown <= SLOWDOWN_MAX)) return NVML_ERROR_INVALID_ARGUMENT;
    emulator_points points;
    int result =
        emulator_read_points(getenv("HARPE_EMULATOR_PROFILE"), stage, instruction, &points);
    if (result != NVML_SUCCESS) return result;
    emulator_throttle_points(&points, slowdown);
    work.has_points = true;
    result = run(job, &work, &points, NULL);
    if (result == NVML_SUCCESS && finished_ns) *finished_ns = job->finished_ns;
    return result;
}

int harpe_emulator_instruction_held(unsigned int gpu, int stage, const char *instruction,
                                    double slowdown, int64_t ready_ns, int (*is_held)(void *user),
                                    void *user, int64_t *finished_ns) {
    work_order job = {
        .gpu = gpu, .is_enqueued = true, .ready_ns = ready_ns, .is_held = is_held, .user = user};
    return run_instruction(&job, stage, instruction, slowdown, (emulator_work){0}, finished_ns);
}

int harpe_emulator_instruction_unlocked(unsigned int gpu, int stage, const char *instruction,
                                        int64_t ready_ns, int64_t *finished_ns) {
    work_order job = {.gpu = gpu, .is_enqueued = true, .ready_ns = ready_ns};
    return run_instruction(&job, stage, instruction, 1, (emulator_work){.ignores_lock = true},
                           finished_ns);
}

int harpe_emulator_instruction_at(unsigned int gpu, int stage, const char *instruction,
                                  double slowdown, int64_t ready_ns, int64_t *finished_ns) {
    return harpe_emulator_instruction_held(gpu, stage, instruction, slowdown, ready_ns, NULL, NULL,
                                           finished_ns);
}

/* Begins a call on a GPU that is identified by its index: enters the cluster and locks the GPU. */
static int begin(unsigned int gpu, emulator_cluster **cluster, emulator_state **state) {
    emulator_faults faults;
    int result = (int)emulator_enter_always(cluster, &faults);
    if (result != NVML_SUCCESS) return result;
    result = gpu < (*cluster)->gpu_count
                 ? (int)emulator_lock(*cluster, gpu, faults.energy_step_s, state)
                 : NVML_ERROR_INVALID_ARGUMENT;
    if (result != NVML_SUCCESS) emulator_leave();
    return result;
}

static int end(unsigned int gpu, emulator_cluster *cluster) {
    emulator_unlock(cluster, gpu, 0);
    emulator_leave();
    return NVML_SUCCESS;
}

static int bury_contexts(unsigned int gpu) {
    emulator_cluster *cluster;
    emulator_faults faults;
    int result = (int)emulator_enter_always(&cluster, &faults);
    if (result != NVML_SUCCESS) return result;
    result = gpu < cluster->gpu_count
                 ? (int)emulator_bury_contexts(cluster, gpu, faults.energy_step_s)
                 : NVML_ERROR_INVALID_ARGUMENT;
    emulator_leave();
    return result;
}

int harpe_emulator_wait(unsigned int gpu, int waiting) {
    emulator_cluster *cluster;
    emulator_state *state;
    emulator_owner owner = emulator_this_process();
    int result = begin(gpu, &cluster, &state);
    if (result != NVML_SUCCESS) return result;
    (void)open_context(state, &owner, CONTEXT_MEMORY_BYTES);
    state->is_waiting = waiting != 0;
    state->waiting_owner = owner;
    state->waiting_checked_ns = harpe_clock_ns();
    return end(gpu, cluster);
}

int harpe_emulator_open_context(unsigned int gpu, uint64_t memory_bytes) {
    emulator_cluster *cluster;
    emulator_state *state;
    emulator_owner owner = emulator_this_process();
    int result = bury_contexts(gpu);
    if (result == NVML_SUCCESS) result = begin(gpu, &cluster, &state);
    if (result != NVML_SUCCESS) return result;
    uint64_t most = emulator_model_at(cluster->gpu[gpu].model)->memory_bytes / 2;
    if (state->is_lost || memory_bytes > most)
        result = state->is_lost ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_INVALID_ARGUMENT;
    else if (!open_context(state, &owner, memory_bytes > 0 ? memory_bytes : CONTEXT_MEMORY_BYTES))
        result = NVML_ERROR_INSUFFICIENT_RESOURCES;
    (void)end(gpu, cluster);
    return result;
}

int harpe_emulator_close_context(unsigned int gpu) {
    emulator_cluster *cluster;
    emulator_state *state;
    emulator_owner owner = emulator_this_process();
    int result = begin(gpu, &cluster, &state);
    if (result != NVML_SUCCESS) return result;
    emulator_context *context = find_context(state, &owner);
    if (context && context->owner.pid != 0) memset(context, 0, sizeof *context);
    return end(gpu, cluster);
}

int harpe_emulator_energy(unsigned int gpu, int64_t at_ns, double *energy_j) {
    emulator_cluster *cluster;
    emulator_state *state;
    int result = begin(gpu, &cluster, &state);
    if (result != NVML_SUCCESS) return result;
    *energy_j = emulator_energy_at_mj(state, at_ns) / 1e3;
    return end(gpu, cluster);
}

int harpe_emulator_write_count(unsigned int gpu, uint64_t *power_limit, uint64_t *clocks,
                               uint64_t *persistence) {
    emulator_cluster *cluster;
    emulator_state *state;
    int result = begin(gpu, &cluster, &state);
    if (result != NVML_SUCCESS) return result;
    if (power_limit) *power_limit = state->writes.power_limit;
    if (clocks) *clocks = state->writes.clocks;
    if (persistence) *persistence = state->writes.persistence;
    return end(gpu, cluster);
}

int harpe_emulator_clock(unsigned int gpu, uint32_t *current_mhz, uint32_t *next_mhz,
                         int64_t *next_ns) {
    emulator_cluster *cluster;
    emulator_state *state;
    int result = begin(gpu, &cluster, &state);
    if (result != NVML_SUCCESS) return result;
    emulator_chip chip = emulator_chip_of(cluster, gpu, -1);
    int64_t change_ns = emulator_next_change_ns(state);
    emulator_clock_range next = emulator_lock_in_force(state, change_ns);
    unsigned int highest_mhz = next.maximum_mhz > 0 ? next.maximum_mhz : chip.model->highest_mhz;
    bool is_pending = change_ns != INT64_MAX;
    if (current_mhz) *current_mhz = emulator_operate(state, &chip).graphics_mhz;
    if (next_mhz)
        *next_mhz = is_pending ? emulator_clock_mhz(chip.model,
                                                    emulator_clock_index(chip.model, highest_mhz))
                               : 0;
    if (next_ns) *next_ns = is_pending ? change_ns : 0;
    return end(gpu, cluster);
}

int harpe_emulator_calls_at(unsigned int gpu, int64_t at_ns) {
    emulator_cluster *cluster;
    emulator_state *state;
    int result = begin(gpu, &cluster, &state);
    if (result != NVML_SUCCESS) return result;
    state->calls_at_ns = at_ns;
    return end(gpu, cluster);
}

/* Returns true if each name in a list is a workload. Commas separate the names. */
static bool are_workloads(const char *list) {
    while (emulator_workload_find(list) >= 0) {
        list += strcspn(list, ",");
        if (*list == '\0') return true;
        list++;
    }
    return false;
}

int harpe_emulator_check(char *message, unsigned int size) {
    const char *list = getenv("HARPE_EMULATOR_FAULTS");
    char text[EMULATOR_PROBLEM_MAX];
    const char *problem = emulator_cluster_problem(text, sizeof text) ? text : NULL;
    const char *workload = getenv("HARPE_EMULATOR_WORKLOAD");
    emulator_faults faults;
    if (!problem && workload && !are_workloads(workload))
        problem = "there is no such workload; harpe emulate --workload list prints all";
    if (!problem && list && !emulator_faults_parse(list, &faults)) {
        problem =
            "a fault is unknown or its value makes no sense; known are no_permission, "
            "not_supported=WHAT, no_energy_counter, lost_after=CALLS[@GPU], "
            "returns_after=S, leave_out_lost, slow_set=MS, slow_get=MS[@GPU], energy_step=MS, "
            "counter_restart_after=S, counter_factor=F, "
            "enforced_limit=W, limit_floor=W, mig";
    }
    if (!problem) return NVML_SUCCESS;
    if (message && size > 0) snprintf(message, size, "%s", problem);
    return NVML_ERROR_INVALID_ARGUMENT;
}
