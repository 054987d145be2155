/* SPDX-License-Identifier: Apache-2.0 */
/* NVML calls about clocks: supported clocks, current clocks, locking and unlocking. */
#include <stdlib.h>

#include "base/clock.h"
#include "call.h"
#include "profile_clocks.h"
#include "switching.h"
#include "variety.h"
#include "world.h"

/* ---- Supported clocks: the two-call lists ---------------------------------------------------- */

NVML_CALL(nvmlDeviceGetSupportedMemoryClocks, nvmlDevice_t device, unsigned int *count,
          unsigned int *clocks) {
    emulator_call call;
    nvmlReturn_t result =
        emulator_begin(&call, device, EMULATOR_SUPPORTED_CLOCKS, EMULATOR_READ, count);
    if (result != NVML_SUCCESS) return result;
    unsigned int room = *count;
    *count = call.model->memory_clock_count;
    if (room < *count || !clocks) return emulator_end(&call, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned int i = 0; i < *count; i++)
        clocks[i] = call.model->memory_mhz[i];
    return emulator_end(&call, NVML_SUCCESS);
}

static bool is_memory_clock(const emulator_model *model, unsigned int mhz) {
    for (unsigned int i = 0; i < model->memory_clock_count; i++)
        if (model->memory_mhz[i] == mhz) return true;
    return false;
}

NVML_CALL(nvmlDeviceGetSupportedGraphicsClocks, nvmlDevice_t device, unsigned int memory_mhz,
          unsigned int *count, unsigned int *clocks) {
    emulator_call call;
    nvmlReturn_t result =
        emulator_begin(&call, device, EMULATOR_SUPPORTED_CLOCKS, EMULATOR_READ, count);
    if (result != NVML_SUCCESS) return result;
    if (!is_memory_clock(call.model, memory_mhz)) return emulator_end(&call, NVML_ERROR_NOT_FOUND);
    const char *profile = getenv("HARPE_EMULATOR_PROFILE");
    unsigned int room = *count;
    *count = emulator_offered_clocks(call.model, profile, NULL);
    if (room < *count || !clocks) return emulator_end(&call, NVML_ERROR_INSUFFICIENT_SIZE);
    (void)emulator_offered_clocks(call.model, profile, clocks);
    return emulator_end(&call, NVML_SUCCESS);
}

/* ---- Clocks that hold ------------------------------------------------------------------------ */

static nvmlReturn_t current_clock(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_CLOCKS, EMULATOR_READ, mhz);
    if (result != NVML_SUCCESS) return result;
    if ((unsigned int)type > NVML_CLOCK_VIDEO)
        return emulator_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    emulator_operation operation = emulator_operate(call.state, &call.chip);
    *mhz = type == NVML_CLOCK_MEM ? operation.memory_mhz : operation.graphics_mhz;
    return emulator_end(&call, NVML_SUCCESS);
}

static nvmlReturn_t highest_clock(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_CLOCKS, EMULATOR_READ, mhz);
    if (result != NVML_SUCCESS) return result;
    if ((unsigned int)type > NVML_CLOCK_VIDEO)
        return emulator_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    *mhz = type == NVML_CLOCK_MEM ? call.model->memory_mhz[0] : call.model->highest_mhz;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetClockInfo, nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
    return current_clock(device, type, mhz);
}

NVML_CALL(nvmlDeviceGetMaxClockInfo, nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
    return highest_clock(device, type, mhz);
}

NVML_CALL(nvmlDeviceGetMaxCustomerBoostClock, nvmlDevice_t device, nvmlClockType_t type,
          unsigned int *mhz) {
    return highest_clock(device, type, mhz);
}

NVML_CALL(nvmlDeviceGetApplicationsClock, nvmlDevice_t device, nvmlClockType_t type,
          unsigned int *mhz) {
    return highest_clock(device, type, mhz);
}

NVML_CALL(nvmlDeviceGetDefaultApplicationsClock, nvmlDevice_t device, nvmlClockType_t type,
          unsigned int *mhz) {
    return highest_clock(device, type, mhz);
}

NVML_CALL(nvmlDeviceGetClock, nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t which,
          unsigned int *mhz) {
    if (which == NVML_CLOCK_ID_CURRENT) return current_clock(device, type, mhz);
    return highest_clock(device, type,
                         (unsigned int)which <= NVML_CLOCK_ID_CUSTOMER_BOOST_MAX ? mhz : NULL);
}

NVML_CALL(nvmlDeviceGetPerformanceState, nvmlDevice_t device, nvmlPstates_t *state) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_CLOCKS, EMULATOR_READ, state);
    if (result != NVML_SUCCESS) return result;
    emulator_operation operation = emulator_operate(call.state, &call.chip);
    bool is_slow = operation.memory_mhz < call.model->memory_mhz[0] && !operation.is_busy;
    *state = is_slow ? (nvmlPstates_t)8 : NVML_PSTATE_0;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetPowerState, nvmlDevice_t device, nvmlPstates_t *state) {
    return nvmlDeviceGetPerformanceState(device, state);
}

/* ---- Locks ----------------------------------------------------------------------------------- */

/* Converts the two special values of nvmlClockLimitId_t to the clocks that they stand for. */
#define LIMIT_ID_TDP 0xffffff01U
#define LIMIT_ID_UNLIMITED 0xffffff02U

static unsigned int resolve(const emulator_model *model, unsigned int mhz) {
    return mhz == LIMIT_ID_TDP || mhz == LIMIT_ID_UNLIMITED ? model->highest_mhz : mhz;
}

/* Asks for clocks that come late. */
static void request_late_clocks(emulator_call *call, const emulator_clock_range *range) {
    int64_t called_ns = call->state->calls_at_ns;
    if (called_ns == 0 || called_ns > call->state->now_ns) called_ns = call->state->now_ns;
    call->busy_s = emulator_request_clocks(call->state, &call->chip, *range, called_ns);
}

static void set_graphics_lock(emulator_call *call, const emulator_clock_range *range) {
    if (emulator_switches_late(&call->chip))
        request_late_clocks(call, range);
    else if (!emulator_ignores_lock(call->chip.effects, call->state->clock_requests++))
        call->state->graphics_lock = *range;
}

/* Locks the clocks. If work was enqueued shortly before, a change that is not late applies from the
 * start of this work, plus the delay of a slow driver. */
static void lock_graphics_clocks(emulator_call *call, const emulator_clock_range *range) {
    int64_t now_ns = call->state->now_ns;
    double delay_s = call->faults.slow_set_s > 0 ? call->faults.slow_set_s / 2 : 0;
    if (!emulator_switches_late(&call->chip))
        emulator_start_again(call->state, &call->chip, delay_s,
                             harpe_clock_ns() -
                                 (emulator_is_in_world() ? 0 : EMULATOR_LATE_CLOCK_NS));
    set_graphics_lock(call, range);
    emulator_advance(call->state, &call->chip, now_ns);
}

NVML_CALL(nvmlDeviceSetGpuLockedClocks, nvmlDevice_t device, unsigned int minimum_mhz,
          unsigned int maximum_mhz) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_CLOCK_LOCKS, EMULATOR_SET, device);
    if (result != NVML_SUCCESS) return result;
    minimum_mhz = resolve(call.model, minimum_mhz);
    maximum_mhz = resolve(call.model, maximum_mhz);
    if (maximum_mhz == 0 || minimum_mhz > maximum_mhz)
        return emulator_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    lock_graphics_clocks(&call, &(emulator_clock_range){minimum_mhz, maximum_mhz});
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceResetGpuLockedClocks, nvmlDevice_t device) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_CLOCK_LOCKS, EMULATOR_SET, device);
    if (result != NVML_SUCCESS) return result;
    emulator_clock_range none = {0};
    set_graphics_lock(&call, &none);
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceSetMemoryLockedClocks, nvmlDevice_t device, unsigned int minimum_mhz,
          unsigned int maximum_mhz) {
    emulator_call call;
    nvmlReturn_t result =
        emulator_begin(&call, device, EMULATOR_MEMORY_LOCKS, EMULATOR_SET, device);
    if (result != NVML_SUCCESS) return result;
    if (!call.model->locks_memory_clocks) return emulator_end(&call, NVML_ERROR_NOT_SUPPORTED);
    if (maximum_mhz == 0 || minimum_mhz > maximum_mhz)
        return emulator_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    call.state->memory_lock_minimum_mhz = minimum_mhz;
    call.state->memory_lock_maximum_mhz = maximum_mhz;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceResetMemoryLockedClocks, nvmlDevice_t device) {
    emulator_call call;
    nvmlReturn_t result =
        emulator_begin(&call, device, EMULATOR_MEMORY_LOCKS, EMULATOR_SET, device);
    if (result != NVML_SUCCESS) return result;
    if (!call.model->locks_memory_clocks) return emulator_end(&call, NVML_ERROR_NOT_SUPPORTED);
    call.state->memory_lock_minimum_mhz = call.state->memory_lock_maximum_mhz = 0;
    return emulator_end(&call, NVML_SUCCESS);
}

/* The older call takes a memory clock and a graphics clock. Both must be supported exactly. */
NVML_CALL(nvmlDeviceSetApplicationsClocks, nvmlDevice_t device, unsigned int memory_mhz,
          unsigned int graphics_mhz) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_CLOCK_LOCKS, EMULATOR_SET, device);
    if (result != NVML_SUCCESS) return result;
    unsigned int index = emulator_clock_index(call.model, graphics_mhz);
    if (!is_memory_clock(call.model, memory_mhz) ||
        emulator_clock_mhz(call.model, index) != graphics_mhz)
        return emulator_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    emulator_clock_range range = {.maximum_mhz = graphics_mhz};
    set_graphics_lock(&call, &range);
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceResetApplicationsClocks, nvmlDevice_t device) {
    return nvmlDeviceResetGpuLockedClocks(device);
}
