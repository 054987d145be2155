/* SPDX-License-Identifier: Apache-2.0 */
/* NVML calls about the use of a GPU: utilisation, memory, processes, samples. A process is listed
 * from the moment of its first work, or of the opening of a context, until it exits. The GPU's
 * memory has no contents: each context and each work occupies a fixed amount. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "call.h"
#include "sensor.h"

#define RESERVED_BYTES (UINT64_C(512) << 20)
#define BAR1_BYTES (UINT64_C(128) << 30)

NVML_CALL(nvmlDeviceGetUtilizationRates, nvmlDevice_t device, nvmlUtilization_t *rates) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_LOAD, EMULATOR_READ, rates);
    if (result != NVML_SUCCESS) return result;
    emulator_operation operation = emulator_operate(call.state, &call.chip);
    double share = emulator_busy_share(call.state, operation.is_busy);
    /* A GPU that waits in a collective operation runs a kernel, so its utilisation is 100 %. */
    rates->gpu = operation.is_waiting ? 100 : (unsigned int)lround(100.0 * share);
    rates->memory = (unsigned int)lround(40.0 * share);
    return emulator_end(&call, NVML_SUCCESS);
}

/* Removes processes that have exited, before a call that shows the memory of processes. That call
 * handles faults and failures. */
static void bury_contexts(nvmlDevice_t device) {
    emulator_cluster *cluster;
    emulator_faults faults;
    unsigned int index;
    if (emulator_enter(&cluster, &faults) != NVML_SUCCESS) return;
    if (emulator_handle_index(device, cluster, &index))
        (void)emulator_bury_contexts(cluster, index, faults.energy_step_s);
    emulator_leave();
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static uint64_t used_memory(const emulator_state *state, const emulator_model *model) {
    uint64_t used = 0;
    for (unsigned int i = 0; i < EMULATOR_CONTEXT_MAX; i++)
        used += state->context[i].memory_b;
    for (unsigned int i = 0; i < EMULATOR_WORK_MAX; i++)
        used += state->work[i].used_memory_b;
    uint64_t most = model->memory_bytes - RESERVED_BYTES;
    return used < most ? used : most;
}

NVML_CALL(nvmlDeviceGetMemoryInfo, nvmlDevice_t device, nvmlMemory_t *memory) {
    emulator_call call;
    bury_contexts(device);
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_LOAD, EMULATOR_READ, memory);
    if (result != NVML_SUCCESS) return result;
    memory->total = call.model->memory_bytes;
    memory->used = used_memory(call.state, call.model) + RESERVED_BYTES;
    memory->free = memory->total - memory->used;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetMemoryInfo_v2, nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    emulator_call call;
    bury_contexts(device);
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_LOAD, EMULATOR_READ, memory);
    if (result != NVML_SUCCESS) return result;
    if (memory->version != nvmlMemory_v2)
        return emulator_end(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    memory->total = call.model->memory_bytes;
    memory->reserved = RESERVED_BYTES;
    memory->used = used_memory(call.state, call.model);
    memory->free = memory->total - memory->used - memory->reserved;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetBAR1MemoryInfo, nvmlDevice_t device, nvmlMemory_t *memory) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_LOAD, EMULATOR_READ, memory);
    if (result != NVML_SUCCESS) return result;
    memory->total = BAR1_BYTES;
    memory->used = UINT64_C(1) << 20;
    memory->free = memory->total - memory->used;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetPcieThroughput, nvmlDevice_t device, unsigned int counter,
          unsigned int *kb_per_s) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_LOAD, EMULATOR_READ, kb_per_s);
    if (result != NVML_SUCCESS) return result;
    if (counter > 1) return emulator_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    *kb_per_s = 0;
    return emulator_end(&call, NVML_SUCCESS);
}

/* ---- Processes ------------------------------------------------------------------------------- */

typedef struct process_list {
    unsigned int count;
    nvmlProcessInfo_t process[EMULATOR_CONTEXT_MAX + EMULATOR_WORK_MAX + 1];
} process_list;

static void add_process(process_list *list, const emulator_owner *owner, uint64_t bytes) {
    for (unsigned int i = 0; i < list->count; i++) {
        if (list->process[i].pid == (unsigned int)owner->pid) {
            list->process[i].usedGpuMemory += bytes;
            return;
        }
    }
    list->process[list->count++] = (nvmlProcessInfo_t){
        .pid = (unsigned int)owner->pid,
        .usedGpuMemory = bytes,
        .gpuInstanceId = UINT32_MAX,
        .computeInstanceId = UINT32_MAX,
    };
}

static void list_processes(const emulator_state *state, process_list *list) {
    list->count = 0;
    for (unsigned int i = 0; i < EMULATOR_CONTEXT_MAX; i++)
        if (state->context[i].owner.pid != 0)
            add_process(list, &state->context[i].owner, state->context[i].memory_b);
    for (unsigned int i = 0; i < EMULATOR_WORK_MAX; i++)
        if (state->work[i].id != 0)
            add_process(list, &state->work[i].owner, state->work[i].used_memory_b);
    if (state->is_waiting) add_process(list, &state->waiting_owner, 0);
}

/* Fills in a list of processes. A caller calls twice: first to learn the number, then to get the
 * list. `size` is the size of the caller's struct; the oldest struct ends after usedGpuMemory. */
static nvmlReturn_t get_processes(nvmlDevice_t device, unsigned int *count, void *out,
                                  size_t size) {
    emulator_call call;
    bury_contexts(device);
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_LOAD, EMULATOR_READ, count);
    if (result != NVML_SUCCESS) return result;
    process_list list;
    list_processes(call.state, &list);
    unsigned int room = *count;
    *count = list.count;
    if (list.count > 0 && (room < list.count || !out))
        return emulator_end(&call, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned int i = 0; i < list.count; i++)
        memcpy((char *)out + i * size, &list.process[i], size);
    return emulator_end(&call, NVML_SUCCESS);
}

static nvmlReturn_t get_no_processes(nvmlDevice_t device, unsigned int *count) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_LOAD, EMULATOR_READ, count);
    if (result != NVML_SUCCESS) return result;
    *count = 0;
    return emulator_end(&call, NVML_SUCCESS);
}

#define COMPUTE_CALL(name, size) \
    NVML_CALL(name, nvmlDevice_t device, unsigned int *count, void *processes) { \
        return get_processes(device, count, processes, size); \
    }
#define GRAPHICS_CALL(name) \
    NVML_CALL(name, nvmlDevice_t device, unsigned int *count, void *processes) { \
        (void)processes; \
        return get_no_processes(device, count); \
    }

COMPUTE_CALL(nvmlDeviceGetComputeRunningProcesses, 16)
COMPUTE_CALL(nvmlDeviceGetComputeRunningProcesses_v2, sizeof(nvmlProcessInfo_t))
COMPUTE_CALL(nvmlDeviceGetComputeRunningProcesses_v3, sizeof(nvmlProcessInfo_t))
GRAPHICS_CALL(nvmlDeviceGetGraphicsRunningProcesses)
GRAPHICS_CALL(nvmlDeviceGetGraphicsRunningProcesses_v2)
GRAPHICS_CALL(nvmlDeviceGetGraphicsRunningProcesses_v3)
GRAPHICS_CALL(nvmlDeviceGetMPSComputeRunningProcesses)
GRAPHICS_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v2)
GRAPHICS_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3)

/* ---- Engines that do nothing ----------------------------------------------------------------- */

static nvmlReturn_t get_engine(nvmlDevice_t device, unsigned int *utilization,
                               unsigned int *period_us) {
    emulator_call call;
    nvmlReturn_t result =
        emulator_begin(&call, device, EMULATOR_LOAD, EMULATOR_READ, period_us ? utilization : NULL);
    if (result != NVML_SUCCESS) return result;
    *utilization = 0;
    *period_us = 167000;
    return emulator_end(&call, NVML_SUCCESS);
}

#define ENGINE_CALL(name) \
    NVML_CALL(name, nvmlDevice_t device, unsigned int *utilization, unsigned int *period_us) { \
        return get_engine(device, utilization, period_us); \
    }

ENGINE_CALL(nvmlDeviceGetEncoderUtilization)
ENGINE_CALL(nvmlDeviceGetDecoderUtilization)
ENGINE_CALL(nvmlDeviceGetJpgUtilization)
ENGINE_CALL(nvmlDeviceGetOfaUtilization)

/* ---- Samples --------------------------------------------------------------------------------- */

/* An nvmlSample_t, and the supported values of nvmlSamplingType_t. */
typedef struct sample {
    unsigned long long timestamp_us;
    nvmlValue_t value;
} sample;
enum {
    SAMPLES_POWER,
    SAMPLES_GPU_UTILIZATION,
    SAMPLES_MEMORY_UTILIZATION,
    SAMPLES_ENCODER,
    SAMPLES_DECODER,
    SAMPLES_GRAPHICS_CLOCK,
    SAMPLES_MEMORY_CLOCK,
    SAMPLES_KIND_COUNT,
};

/* The emulator stores no samples, so the list has one entry: the present value. */
NVML_CALL(nvmlDeviceGetSamples, nvmlDevice_t device, unsigned int kind,
          unsigned long long last_seen_us, nvmlValueType_t *type, unsigned int *count,
          sample *samples) {
    (void)last_seen_us;
    emulator_call call;
    nvmlReturn_t result =
        emulator_begin(&call, device, EMULATOR_LOAD, EMULATOR_READ, type ? count : NULL);
    if (result != NVML_SUCCESS) return result;
    if (kind >= SAMPLES_KIND_COUNT) return emulator_end(&call, NVML_ERROR_NOT_SUPPORTED);
    bool has_room = !samples || *count > 0;
    *count = 1;
    *type = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (!samples || !has_room)
        return emulator_end(&call, has_room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE);
    emulator_operation operation = emulator_operate(call.state, &call.chip);
    double share = emulator_busy_share(call.state, operation.is_busy);
    const double values[SAMPLES_KIND_COUNT] = {
        [SAMPLES_POWER] = emulator_sensor_mw(call.cluster, call.index, EMULATOR_SENSOR_INSTANT,
                                             operation.power_w, call.state->now_ns),
        [SAMPLES_GPU_UTILIZATION] = operation.is_waiting ? 100.0 : 100.0 * share,
        [SAMPLES_MEMORY_UTILIZATION] = 40.0 * share,
        [SAMPLES_GRAPHICS_CLOCK] = operation.graphics_mhz,
        [SAMPLES_MEMORY_CLOCK] = operation.memory_mhz,
    };
    memset(samples, 0, sizeof *samples);
    samples->timestamp_us = (unsigned long long)harpe_clock_wall_ns() / 1000;
    samples->value.uiVal = (unsigned int)lround(values[kind]);
    return emulator_end(&call, NVML_SUCCESS);
}
