/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of every driver call. NVML's interface is global (nvmlInit returns no handle), so this
 * file contains the one global object of a process: `process`. State that processes share is in
 * cluster.c. */
#include "call.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profile_clocks.h"
#include "profile_points.h"
#include "world.h"

#define FAULTS_FILE_MAX 4096

static struct {
    pthread_mutex_t mutex;
    /* the emulator's own API has attached this process, which stays attached until shutdown */
    bool is_sticky;
    int init_count;            /* calls of nvmlInit minus calls of nvmlShutdown */
    int users;                 /* calls in progress */
    emulator_cluster *cluster; /* NULL: not attached */
    int fd;
    emulator_faults environment_faults, faults;
    /* a copy, because other threads may change the environment during a call */
    char faults_path[PATH_MAX];
    struct stat faults_file; /* of the faults file when read; st_ino 0: no file */
    int64_t armed_ns;        /* when the faults took effect */
    int64_t calls[EMULATOR_GPU_MAX];
    bool has_restarted[EMULATOR_GPU_MAX];
    /* GPU indices in the order of the driver's numbers; set when the process initialises */
    unsigned int numbered[EMULATOR_GPU_MAX], numbered_count;
} process = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- Faults ---------------------------------------------------------------------------------- */

static void put_in_force(const emulator_faults *faults) {
    process.faults = *faults;
    process.armed_ns = emulator_now_ns(process.cluster);
    memset(process.calls, 0, process.cluster->gpu_count * sizeof process.calls[0]);
    memset(process.has_restarted, 0, process.cluster->gpu_count * sizeof process.has_restarted[0]);
}

static bool is_same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Reads the faults file if it has changed. The faults in the file replace those in the environment.
 * If the file is removed, the faults in the environment apply again. */
static void reread_faults(void) {
    const char *path = process.faults_path;
    struct stat status;
    if (!*path) return;
    if (stat(path, &status) == -1) memset(&status, 0, sizeof status);
    if (is_same_file(&status, &process.faults_file)) return;
    process.faults_file = status;
    if (status.st_ino == 0) {
        put_in_force(&process.environment_faults);
        return;
    }
    char text[FAULTS_FILE_MAX + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t length = fd == -1 ? -1 : read(fd, text, FAULTS_FILE_MAX);
    if (fd != -1) close(fd);
    if (length < 0) return;
    text[length] = '\0';
    emulator_faults faults;
    (void)emulator_faults_parse(text, &faults);
    put_in_force(&faults);
}

/* ---- Attaching ------------------------------------------------------------------------------- */

/* A forked process continues to use the same cluster. The mutex is locked during the fork, so the
 * child's copy of `process` is consistent. Calls of other threads do not continue in the child. */
static void before_fork(void) { emulator_hold(&process.mutex); }
static void after_fork(void) { emulator_release(&process.mutex); }
static void after_fork_in_child(void) {
    process.users = 0;
    emulator_release(&process.mutex);
}

__attribute__((constructor)) static void prepare_for_forks(void) {
    (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static nvmlReturn_t attach(void) {
    if (process.cluster) return NVML_SUCCESS;
    const char *list = getenv("HARPE_EMULATOR_FAULTS");
    const char *path = getenv("HARPE_EMULATOR_FAULTS_FILE");
    if (!emulator_faults_parse(list ? list : "", &process.environment_faults))
        return NVML_ERROR_INVALID_ARGUMENT;
    int result = emulator_cluster_attach(&process.cluster, &process.fd);
    if (result != NVML_SUCCESS) return (nvmlReturn_t)result;
    (void)snprintf(process.faults_path, sizeof process.faults_path, "%s", path ? path : "");
    memset(&process.faults_file, 0, sizeof process.faults_file);
    put_in_force(&process.environment_faults);
    return NVML_SUCCESS;
}

static void detach_if_unused(void) {
    if (process.cluster && process.users == 0 && process.init_count == 0 && !process.is_sticky) {
        emulator_cluster_detach(process.cluster, process.fd);
        process.cluster = NULL;
    }
}

__attribute__((destructor)) static void detach_at_unload(void) {
    harpe_platform_in_use = NULL; /* the world may be gone */
    emulator_hold(&process.mutex);
    process.init_count = 0;
    process.is_sticky = false;
    detach_if_unused();
    emulator_release(&process.mutex);
}

/* ---- Worlds ---------------------------------------------------------------------------------- */

void harpe_emulator_use_platform(const harpe_platform *platform) {
    harpe_platform_in_use = NULL;
    emulator_hold(&process.mutex);
    process.init_count = process.users = 0;
    process.is_sticky = false;
    detach_if_unused();
    emulator_release(&process.mutex);
    emulator_forget_world();
    emulator_forget_points();
    emulator_forget_clocks();
    harpe_platform_in_use = platform;
}

bool harpe_emulator_use_faults(const char *list) {
    emulator_cluster *cluster;
    emulator_faults faults;
    bool is_good = emulator_faults_parse(list, &faults);
    if (!is_good || emulator_enter_always(&cluster, NULL) != NVML_SUCCESS) return false;
    put_in_force(&faults);
    emulator_leave();
    return true;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

static bool has_number(unsigned int index) {
    emulator_gpu *gpu = &process.cluster->gpu[index];
    return !process.faults.leaves_out_lost || !gpu->state[atomic_load(&gpu->current) & 1].is_lost;
}

static void number_gpus(void) {
    reread_faults();
    process.numbered_count = 0;
    for (unsigned int i = 0; i < process.cluster->gpu_count; i++)
        if (has_number(i)) process.numbered[process.numbered_count++] = i;
}

unsigned int emulator_numbered_count(void) { return process.numbered_count; }

bool emulator_numbered_gpu(unsigned int number, unsigned int *index) {
    if (number >= process.numbered_count) return false;
    *index = process.numbered[number];
    return true;
}

unsigned int emulator_number_of(unsigned int index) {
    unsigned int number = 0;
    while (number < process.numbered_count && process.numbered[number] != index)
        number++;
    return number;
}

/* ---- Start and end --------------------------------------------------------------------------- */

nvmlReturn_t emulator_initialize(void) {
    emulator_hold(&process.mutex);
    nvmlReturn_t result = attach();
    if (result == NVML_SUCCESS && process.init_count++ == 0) number_gpus();
    emulator_release(&process.mutex);
    return result;
}

nvmlReturn_t emulator_shut_down(void) {
    emulator_hold(&process.mutex);
    nvmlReturn_t result = process.init_count > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (result == NVML_SUCCESS && --process.init_count == 0) {
        process.is_sticky = false;
        detach_if_unused();
    }
    emulator_release(&process.mutex);
    return result;
}

static void use(emulator_cluster **cluster, emulator_faults *faults) {
    process.users++;
    reread_faults();
    *cluster = process.cluster;
    if (faults) *faults = process.faults;
}

nvmlReturn_t emulator_enter(emulator_cluster **cluster, emulator_faults *faults) {
    emulator_hold(&process.mutex);
    nvmlReturn_t result = process.init_count > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (result == NVML_SUCCESS) use(cluster, faults);
    emulator_release(&process.mutex);
    return result;
}

nvmlReturn_t emulator_enter_always(emulator_cluster **cluster, emulator_faults *faults) {
    emulator_hold(&process.mutex);
    nvmlReturn_t result = attach();
    if (result == NVML_SUCCESS) {
        process.is_sticky = true;
        use(cluster, faults);
    }
    emulator_release(&process.mutex);
    return result;
}

void emulator_leave(void) {
    emulator_hold(&process.mutex);
    process.users--;
    detach_if_unused();
    emulator_release(&process.mutex);
}

/* ---- Calls on a GPU -------------------------------------------------------------------------- */

/* A handle is the address of one of these bytes. It is therefore never NULL, and other pointers can
 * be recognised as invalid. */
static char handles[EMULATOR_GPU_MAX];

nvmlDevice_t emulator_handle(unsigned int index) { return (nvmlDevice_t)(void *)&handles[index]; }

bool emulator_handle_index(nvmlDevice_t device, const emulator_cluster *cluster,
                           unsigned int *index) {
    uintptr_t offset = (uintptr_t)device - (uintptr_t)handles;
    if (offset >= cluster->gpu_count) return false;
    *index = (unsigned int)offset;
    return true;
}

static bool is_lost_now(const emulator_call *call) {
    const emulator_faults *faults = &call->faults;
    if (faults->lost_after < 0) return false;
    if (faults->lost_gpu >= 0 && faults->lost_gpu != (int)call->index) return false;
    emulator_hold(&process.mutex);
    bool is_due = process.calls[call->index]++ == faults->lost_after;
    emulator_release(&process.mutex);
    return is_due;
}

bool emulator_counter_restart_is_due(const emulator_faults *faults, unsigned int gpu,
                                     int64_t now_ns) {
    if (faults->counter_restart_after_s < 0) return false;
    emulator_hold(&process.mutex);
    double since_s = 1e-9 * (double)(now_ns - process.armed_ns);
    bool is_due = !process.has_restarted[gpu] && since_s >= faults->counter_restart_after_s;
    process.has_restarted[gpu] = process.has_restarted[gpu] || is_due;
    emulator_release(&process.mutex);
    return is_due;
}

/* Waits for half of the delay of a slow call. It is called before and after the effect of the
 * call. */
static void be_slow(const emulator_call *call) {
    int slow_gpu = call->faults.slow_get_gpu;
    bool is_slow_get = slow_gpu < 0 || slow_gpu == (int)call->index;
    double slow_s = call->access == EMULATOR_SET ? call->faults.slow_set_s
                    : is_slow_get                ? call->faults.slow_get_s
                                                 : 0;
    if (slow_s > 0) emulator_sleep(call->cluster, slow_s / 2);
}

static void count_write(const emulator_call *call) {
    switch (call->feature) {
    case EMULATOR_POWER_LIMIT: call->state->writes.power_limit++; break;
    case EMULATOR_CLOCK_LOCKS:
    case EMULATOR_MEMORY_LOCKS: call->state->writes.clocks++; break;
    case EMULATOR_PERSISTENCE: call->state->writes.persistence++; break;
    default: break;
    }
}

nvmlReturn_t emulator_end(emulator_call *call, nvmlReturn_t result) {
    bool is_written = call->access == EMULATOR_SET && result == NVML_SUCCESS;
    if (is_written) {
        count_write(call);
        if (call->feature != EMULATOR_CLOCK_LOCKS) call->state->floor_ns = call->state->now_ns;
    }
    emulator_unlock(call->cluster, call->index, is_written || call->is_changed);
    be_slow(call);
    if (call->busy_s > 0) emulator_sleep(call->cluster, call->busy_s);
    emulator_leave();
    return result;
}

/* Applies the fault that sets a power limit from outside of the driver, as a board's controller
 * does. */
static void limit_from_outside(emulator_call *call) {
    double limit_w = call->faults.enforced_limit_w;
    if (limit_w < 0) return;
    uint32_t limit_mw = (uint32_t)(fmin(limit_w, 4e6) * 1000);
    call->is_changed = call->state->outside_limit_mw != limit_mw;
    call->state->outside_limit_mw = limit_mw;
}

/* Applies the faults that lose a GPU and return it. */
static void lose_or_return(emulator_call *call, bool is_lost_now) {
    emulator_state *state = call->state;
    double after_s = call->faults.returns_after_s;
    if (is_lost_now && !state->is_lost) {
        state->is_lost = true;
        state->lost_ns = state->now_ns;
    }
    if (!state->is_lost || after_s < 0) return;
    if (1e-9 * (double)(state->now_ns - state->lost_ns) < after_s) return;
    emulator_state_reset(state, &call->chip);
    call->is_changed = true;
}

nvmlReturn_t emulator_begin(emulator_call *call, nvmlDevice_t device, emulator_feature feature,
                            emulator_access access, const void *output) {
    nvmlReturn_t result = emulator_enter(&call->cluster, &call->faults);
    if (result != NVML_SUCCESS) return result;
    if (!emulator_handle_index(device, call->cluster, &call->index) || !output) {
        emulator_leave();
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    call->feature = feature;
    call->access = access;
    call->gpu = &call->cluster->gpu[call->index];
    call->model = emulator_model_at(call->gpu->model);
    call->chip = emulator_chip_of(call->cluster, call->index, call->faults.energy_step_s);
    call->busy_s = 0;
    bool is_lost = is_lost_now(call);
    be_slow(call);
    result = emulator_lock(call->cluster, call->index, call->faults.energy_step_s, &call->state);
    if (result != NVML_SUCCESS) {
        emulator_leave();
        return result;
    }
    call->is_changed = false;
    limit_from_outside(call);
    lose_or_return(call, is_lost);
    if (call->state->is_lost)
        result = NVML_ERROR_GPU_IS_LOST;
    else if (emulator_is_unsupported(&call->faults, feature))
        result = NVML_ERROR_NOT_SUPPORTED;
    else if (access == EMULATOR_SET && call->faults.no_permission)
        result = NVML_ERROR_NO_PERMISSION;
    return result == NVML_SUCCESS ? NVML_SUCCESS : emulator_end(call, result);
}
