/* SPDX-License-Identifier: Apache-2.0 */
/* A minimal and inconvenient driver library that Harpe must support. It has only the required
 * calls, under the older names, and GPUs of two models that are not in PCI order. One GPU cannot be
 * opened. Its clock list has repeats and grows between two calls. Power limits are rounded to whole
 * watts. */
#include <stdbool.h>
#include <stdio.h>

#include "gpu/nvml_abi.h"

/* The names are NVML's. */
nvmlReturn_t nvmlInit(void);
nvmlReturn_t nvmlShutdown(void);
nvmlReturn_t nvmlDeviceGetCount(unsigned int *count);
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned int length);
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned int length);
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *info);
nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count,
                                                unsigned int *clocks);
nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *limit);
nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int limit);
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power);
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                      unsigned int *celsius);
nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *temperature);

struct nvmlDevice_st {
    unsigned int bus;
    const char *name;
    unsigned int limit_mw;
};

static struct nvmlDevice_st devices[] = {
    {0x5e, "Alpha", 300000}, {0, "Lost", 0}, {0x1a, "Beta", 300000}, {0x3b, "Alpha", 300000}};
static unsigned int list_calls;

nvmlReturn_t nvmlInit(void) { return NVML_SUCCESS; }

nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) {
    *count = sizeof devices / sizeof devices[0];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    *device = &devices[index];
    return devices[index].bus ? NVML_SUCCESS : NVML_ERROR_GPU_IS_LOST;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned int length) {
    snprintf(text, length, "%s", device->name);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned int length) {
    snprintf(text, length, "GPU-%02x", device->bus);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *info) {
    info->domain = 0;
    info->bus = device->bus;
    info->device = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count,
                                                unsigned int *clocks) {
    static const unsigned int all[] = {405, 810, 405, 1593, 810};
    (void)device;
    unsigned int total = list_calls++ == 0 ? 3 : 5; /* it has grown since it was counted */
    if (!clocks || *count < total) {
        *count = total;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    for (unsigned int i = 0; i < total; i++)
        clocks[i] = all[i];
    *count = total;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *limit) {
    *limit = device->limit_mw;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int limit) {
    device->limit_mw = limit / 1000 * 1000;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power) {
    (void)device;
    *power = 123456;
    return NVML_SUCCESS;
}

/* The deprecated call and its replacement. The replacement refuses the struct's version for one of
 * the GPUs. The two return different values, so that a test can tell which one was called. */
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                      unsigned int *celsius) {
    (void)device;
    *celsius = 41;
    return sensor == NVML_TEMPERATURE_GPU ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *temperature) {
    bool is_known = temperature->version == 0x100000c && temperature->sensorType == 0;
    if (!is_known || device == &devices[2]) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    temperature->temperature = device == &devices[3] ? -3 : 57;
    return NVML_SUCCESS;
}
