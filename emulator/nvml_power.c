/* SPDX-License-Identifier: Apache-2.0 */
/* NVML calls about power and temperature: limits, usage, energy, field values, temperature, clock
 * event reasons. physics.c computes the numbers. */
#include <math.h>

#include "base/clock.h"
#include "call.h"
#include "sensor.h"

static emulator_operation operate(const emulator_call *call) {
    return emulator_operate(call->state, &call->chip);
}

static unsigned int sense_mw(const emulator_call *call, emulator_sensor sensor, double power_w) {
    return emulator_sensor_mw(call->cluster, call->index, sensor, power_w, call->state->now_ns);
}

static double average_w(const emulator_call *call) {
    return emulator_average_power_w(call->state, &call->chip, operate(call).power_w);
}

static unsigned int instant_power_mw(const emulator_call *call) {
    return sense_mw(call, EMULATOR_SENSOR_INSTANT, operate(call).power_w);
}

static unsigned int average_power_mw(const emulator_call *call) {
    return sense_mw(call, EMULATOR_SENSOR_AVERAGE, average_w(call));
}

/* ---- Limits ---------------------------------------------------------------------------------- */

NVML_CALL(nvmlDeviceGetPowerManagementLimitConstraints, nvmlDevice_t device, unsigned int *minimum,
          unsigned int *maximum) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_POWER_LIMIT, EMULATOR_READ,
                                         maximum ? minimum : NULL);
    if (result != NVML_SUCCESS) return result;
    *minimum = call.model->limit_minimum_mw;
    *maximum = call.model->limit_maximum_mw;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetPowerManagementLimit, nvmlDevice_t device, unsigned int *limit) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_POWER_LIMIT, EMULATOR_READ, limit);
    if (result != NVML_SUCCESS) return result;
    *limit = call.state->power_limit_mw;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetEnforcedPowerLimit, nvmlDevice_t device, unsigned int *limit) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_POWER_LIMIT, EMULATOR_READ, limit);
    if (result != NVML_SUCCESS) return result;
    *limit = emulator_enforced_limit_mw(call.state);
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetPowerManagementDefaultLimit, nvmlDevice_t device, unsigned int *limit) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_POWER_LIMIT, EMULATOR_READ, limit);
    if (result != NVML_SUCCESS) return result;
    *limit = call.model->limit_maximum_mw;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetPowerManagementMode, nvmlDevice_t device, nvmlEnableState_t *mode) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_POWER_LIMIT, EMULATOR_READ, mode);
    if (result != NVML_SUCCESS) return result;
    *mode = NVML_FEATURE_ENABLED;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceSetPowerManagementLimit, nvmlDevice_t device, unsigned int limit) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_POWER_LIMIT, EMULATOR_SET, device);
    if (result != NVML_SUCCESS) return result;
    if (limit < call.model->limit_minimum_mw || limit > call.model->limit_maximum_mw)
        return emulator_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    double floor_mw = fmin(call.faults.limit_floor_w * 1000, call.model->limit_maximum_mw);
    call.state->power_limit_mw = (uint32_t)fmax(limit, floor_mw);
    return emulator_end(&call, NVML_SUCCESS);
}

/* nvmlPowerValue_v2_t, which the newer call for setting a limit uses. */
typedef struct power_value_v2 {
    unsigned int version, scope, value_mw;
} power_value_v2;

NVML_CALL(nvmlDeviceSetPowerManagementLimit_v2, nvmlDevice_t device, power_value_v2 *value) {
    if (value && value->version != NVML_STRUCT_VERSION(power_value_v2, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!value) return NVML_ERROR_INVALID_ARGUMENT;
    if (value->scope != NVML_POWER_SCOPE_GPU) return NVML_ERROR_NOT_SUPPORTED;
    return nvmlDeviceSetPowerManagementLimit(device, value->value_mw);
}

/* ---- Usage and energy ------------------------------------------------------------------------ */

NVML_CALL(nvmlDeviceGetPowerUsage, nvmlDevice_t device, unsigned int *power) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_POWER, EMULATOR_READ, power);
    if (result != NVML_SUCCESS) return result;
    *power = call.model->averages_power ? average_power_mw(&call) : instant_power_mw(&call);
    return emulator_end(&call, NVML_SUCCESS);
}

static unsigned long long counter_mj(emulator_call *call) {
    emulator_state *state = call->state;
    if (emulator_counter_restart_is_due(&call->faults, call->index, state->now_ns))
        state->counter_origin_mj = state->counter_mj;
    double shown_mj =
        call->faults.counter_factor * (double)(state->counter_mj - state->counter_origin_mj);
    return (unsigned long long)shown_mj;
}

NVML_CALL(nvmlDeviceGetTotalEnergyConsumption, nvmlDevice_t device, unsigned long long *energy) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_ENERGY, EMULATOR_READ, energy);
    if (result != NVML_SUCCESS) return result;
    *energy = counter_mj(&call);
    return emulator_end(&call, NVML_SUCCESS);
}

/* ---- Field values ---------------------------------------------------------------------------- */

enum { FIELD_ECC_CURRENT = 1, FIELD_MEMORY_TEMPERATURE = 82 };

static nvmlReturn_t put_unsigned(nvmlFieldValue_t *value, unsigned int number) {
    value->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    value->value.uiVal = number;
    return NVML_SUCCESS;
}

static emulator_feature field_feature(unsigned int field) {
    switch (field) {
    case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
    case NVML_FI_DEV_ENERGY: return EMULATOR_ENERGY;
    case NVML_FI_DEV_POWER_AVERAGE: return EMULATOR_AVERAGE_POWER;
    case NVML_FI_DEV_POWER_INSTANT: return EMULATOR_INSTANT_POWER;
    case FIELD_MEMORY_TEMPERATURE: return EMULATOR_TEMPERATURE;
    case NVML_FI_DEV_POWER_MIN_LIMIT:
    case NVML_FI_DEV_POWER_MAX_LIMIT:
    case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
    case NVML_FI_DEV_POWER_REQUESTED_LIMIT:
    case NVML_FI_DEV_POWER_CURRENT_LIMIT: return EMULATOR_POWER_LIMIT;
    default: return EMULATOR_IDENTITY;
    }
}

static nvmlReturn_t put_energy(emulator_call *call, nvmlFieldValue_t *value) {
    value->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    value->value.ullVal = counter_mj(call);
    return NVML_SUCCESS;
}

static nvmlReturn_t get_gpu_power(emulator_call *call, nvmlFieldValue_t *value) {
    const emulator_model *model = call->model;
    switch (value->fieldId) {
    case NVML_FI_DEV_POWER_AVERAGE:
        if (!model->averages_power) return NVML_ERROR_NOT_SUPPORTED;
        return put_unsigned(value, average_power_mw(call));
    case NVML_FI_DEV_POWER_INSTANT: return put_unsigned(value, instant_power_mw(call));
    case NVML_FI_DEV_POWER_MIN_LIMIT: return put_unsigned(value, model->limit_minimum_mw);
    case NVML_FI_DEV_POWER_MAX_LIMIT: return put_unsigned(value, model->limit_maximum_mw);
    case NVML_FI_DEV_POWER_DEFAULT_LIMIT: return put_unsigned(value, model->limit_maximum_mw);
    case NVML_FI_DEV_POWER_CURRENT_LIMIT:
        return put_unsigned(value, emulator_enforced_limit_mw(call->state));
    case NVML_FI_DEV_POWER_REQUESTED_LIMIT: return put_unsigned(value, call->state->power_limit_mw);
    case NVML_FI_DEV_ENERGY: return put_energy(call, value);
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
}

/* The limit of the module cannot be changed. */
static nvmlReturn_t get_module_power(emulator_call *call, nvmlFieldValue_t *value) {
    const emulator_model *model = call->model;
    if (model->module_rest_w <= 0) return NVML_ERROR_NOT_SUPPORTED;
    unsigned int rest_mw = (unsigned int)lround(model->module_rest_w * 1000.0);
    switch (value->fieldId) {
    case NVML_FI_DEV_POWER_AVERAGE: return put_unsigned(value, average_power_mw(call) + rest_mw);
    case NVML_FI_DEV_POWER_INSTANT: return put_unsigned(value, instant_power_mw(call) + rest_mw);
    case NVML_FI_DEV_POWER_MIN_LIMIT: return put_unsigned(value, model->module_limit_minimum_mw);
    case NVML_FI_DEV_POWER_MAX_LIMIT:
    case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
    case NVML_FI_DEV_POWER_CURRENT_LIMIT:
    case NVML_FI_DEV_POWER_REQUESTED_LIMIT:
        return put_unsigned(value, model->module_limit_maximum_mw);
    case NVML_FI_DEV_ENERGY:
        return call->chip.effects->counts_gpu ? NVML_ERROR_NOT_SUPPORTED : put_energy(call, value);
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
}

/* For the memory, drivers report only the average. */
static nvmlReturn_t get_memory_power(const emulator_call *call, nvmlFieldValue_t *value) {
    double share = call->model->memory_share;
    if (share <= 0 || value->fieldId != NVML_FI_DEV_POWER_AVERAGE) return NVML_ERROR_NOT_SUPPORTED;
    return put_unsigned(value, sense_mw(call, EMULATOR_SENSOR_MEMORY, share * average_w(call)));
}

static nvmlReturn_t get_power_field(emulator_call *call, nvmlFieldValue_t *value) {
    switch (value->scopeId) {
    case NVML_POWER_SCOPE_GPU: return get_gpu_power(call, value);
    case NVML_POWER_SCOPE_MODULE: return get_module_power(call, value);
    case NVML_POWER_SCOPE_MEMORY: return get_memory_power(call, value);
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
}

static nvmlReturn_t get_field(emulator_call *call, nvmlFieldValue_t *value) {
    if (emulator_is_unsupported(&call->faults, field_feature(value->fieldId)))
        return NVML_ERROR_NOT_SUPPORTED;
    if (value->fieldId >= NVML_FI_DEV_POWER_AVERAGE &&
        value->fieldId <= NVML_FI_DEV_POWER_REQUESTED_LIMIT)
        return get_power_field(call, value);
    switch (value->fieldId) {
    case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: return put_energy(call, value);
    case FIELD_MEMORY_TEMPERATURE:
        return put_unsigned(value, (unsigned int)lround(call->state->temperature_c + 4.0));
    case FIELD_ECC_CURRENT: return put_unsigned(value, NVML_FEATURE_ENABLED);
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
}

NVML_CALL(nvmlDeviceGetFieldValues, nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    emulator_call call;
    nvmlReturn_t result =
        emulator_begin(&call, device, EMULATOR_FIELD_VALUES, EMULATOR_READ, values);
    if (result != NVML_SUCCESS) return result;
    if (count < 1) return emulator_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    int64_t now_us = harpe_clock_wall_ns() / 1000;
    for (int i = 0; i < count; i++) {
        values[i].timestamp = now_us;
        values[i].latencyUsec = 0;
        values[i].nvmlReturn = get_field(&call, &values[i]);
    }
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceClearFieldValues, nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    emulator_call call;
    nvmlReturn_t result =
        emulator_begin(&call, device, EMULATOR_FIELD_VALUES, EMULATOR_READ, values);
    if (result != NVML_SUCCESS) return result;
    for (int i = 0; i < count; i++)
        values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    return emulator_end(&call, NVML_SUCCESS);
}

/* ---- Temperature ----------------------------------------------------------------------------- */

NVML_CALL(nvmlDeviceGetTemperature, nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
          unsigned int *celsius) {
    emulator_call call;
    nvmlReturn_t result =
        emulator_begin(&call, device, EMULATOR_TEMPERATURE, EMULATOR_READ, celsius);
    if (result != NVML_SUCCESS) return result;
    if (sensor != NVML_TEMPERATURE_GPU) return emulator_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    *celsius = (unsigned int)lround(call.state->temperature_c);
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetTemperatureV, nvmlDevice_t device, nvmlTemperature_v1_t *temperature) {
    emulator_call call;
    nvmlReturn_t result =
        emulator_begin(&call, device, EMULATOR_TEMPERATURE, EMULATOR_READ, temperature);
    if (result != NVML_SUCCESS) return result;
    if (temperature->version != nvmlTemperature_v1)
        return emulator_end(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    if (temperature->sensorType != NVML_TEMPERATURE_GPU)
        return emulator_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    temperature->temperature = (int)lround(call.state->temperature_c);
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetTemperatureThreshold, nvmlDevice_t device, nvmlTemperatureThresholds_t which,
          unsigned int *celsius) {
    emulator_call call;
    nvmlReturn_t result =
        emulator_begin(&call, device, EMULATOR_TEMPERATURE, EMULATOR_READ, celsius);
    if (result != NVML_SUCCESS) return result;
    static const unsigned int thresholds_c[] = {92, 89, 95, 85};
    if ((unsigned int)which >= sizeof thresholds_c / sizeof thresholds_c[0])
        return emulator_end(&call, NVML_ERROR_NOT_SUPPORTED);
    *celsius = thresholds_c[which];
    const emulator_effects *effects = call.chip.effects;
    if (which == NVML_TEMPERATURE_THRESHOLD_SLOWDOWN && effects->thermal_slowdown_c > 0)
        *celsius = (unsigned int)effects->thermal_slowdown_c;
    if (which == NVML_TEMPERATURE_THRESHOLD_GPU_MAX && effects->thermal_limit_c > 0)
        *celsius = (unsigned int)effects->thermal_limit_c;
    return emulator_end(&call, NVML_SUCCESS);
}

/* ---- Reasons --------------------------------------------------------------------------------- */

NVML_CALL(nvmlDeviceGetCurrentClocksEventReasons, nvmlDevice_t device,
          unsigned long long *reasons) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_REASONS, EMULATOR_READ, reasons);
    if (result != NVML_SUCCESS) return result;
    emulator_operation operation = operate(&call);
    *reasons = nvmlClocksEventReasonNone;
    if (!operation.is_busy && !operation.is_waiting) *reasons |= nvmlClocksEventReasonGpuIdle;
    if (operation.is_user_capped) *reasons |= nvmlClocksEventReasonApplicationsClocksSetting;
    if (operation.is_power_capped) *reasons |= nvmlClocksEventReasonSwPowerCap;
    if (operation.is_thermally_capped) *reasons |= nvmlClocksEventReasonSwThermalSlowdown;
    if (operation.is_slowed_down)
        *reasons |= nvmlClocksThrottleReasonHwSlowdown | nvmlClocksThrottleReasonHwThermalSlowdown;
    if (operation.is_board_capped)
        *reasons |=
            nvmlClocksThrottleReasonHwSlowdown | nvmlClocksThrottleReasonHwPowerBrakeSlowdown;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetCurrentClocksThrottleReasons, nvmlDevice_t device,
          unsigned long long *reasons) {
    return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

NVML_CALL(nvmlDeviceGetSupportedClocksEventReasons, nvmlDevice_t device,
          unsigned long long *reasons) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_REASONS, EMULATOR_READ, reasons);
    if (result != NVML_SUCCESS) return result;
    *reasons = nvmlClocksEventReasonGpuIdle | nvmlClocksEventReasonApplicationsClocksSetting |
               nvmlClocksEventReasonSwPowerCap;
    if (call.chip.effects->thermal_limit_c > 0) *reasons |= nvmlClocksEventReasonSwThermalSlowdown;
    if (call.chip.effects->thermal_slowdown_c > 0)
        *reasons |= nvmlClocksThrottleReasonHwSlowdown | nvmlClocksThrottleReasonHwThermalSlowdown;
    if (call.chip.effects->outliers.share > 0)
        *reasons |=
            nvmlClocksThrottleReasonHwSlowdown | nvmlClocksThrottleReasonHwPowerBrakeSlowdown;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetSupportedClocksThrottleReasons, nvmlDevice_t device,
          unsigned long long *reasons) {
    return nvmlDeviceGetSupportedClocksEventReasons(device, reasons);
}
