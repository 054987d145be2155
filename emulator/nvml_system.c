/* SPDX-License-Identifier: Apache-2.0 */
/* NVML calls that concern no GPU or that find a GPU: initialisation and shutdown, versions, error
 * texts, handles. */
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "call.h"
#include "world.h"

#define DRIVER_VERSION "570.86.15"
#define NVML_VERSION "12.570.86.15"
#define CUDA_VERSION 12080

/* ---- Start and end --------------------------------------------------------------------------- */

/* PyTorch counts CUDA devices with the oldest nvmlInit and the next nvmlDeviceGetCount_v2
 * (torch/cuda/__init__.py, _raw_device_count_nvml). It cannot compute on emulated GPUs, so that it
 * counts none, unless HARPE_EMULATOR_TORCH is 1. All other code of the same process finds them. */
static _Thread_local bool torch_counts;

static int is_of_torch(struct dl_phdr_info *info, size_t size, void *user) {
    (void)size;
    (void)user;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash ? slash + 1 : info->dlpi_name;
    return strncmp(name, "libtorch_python.", strlen("libtorch_python.")) == 0;
}

static bool is_hidden_from_torch(void) {
    const char *asked = getenv("HARPE_EMULATOR_TORCH");
    return !(asked && strcmp(asked, "1") == 0) && dl_iterate_phdr(is_of_torch, NULL) != 0;
}

NVML_CALL(nvmlInit_v2, void) { return emulator_initialize(); }
NVML_CALL(nvmlInit, void) {
    torch_counts = is_hidden_from_torch();
    return emulator_initialize();
}
NVML_CALL(nvmlInitWithFlags, unsigned int flags) {
    (void)flags;
    return emulator_initialize();
}
NVML_CALL(nvmlShutdown, void) { return emulator_shut_down(); }

/* ---- Texts ----------------------------------------------------------------------------------- */

static const struct {
    nvmlReturn_t code;
    const char *text;
} error_texts[] = {
    {NVML_SUCCESS, "Success"},
    {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
    {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
    {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
    {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
    {NVML_ERROR_ALREADY_INITIALIZED, "Already Initialized"},
    {NVML_ERROR_NOT_FOUND, "Not Found"},
    {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
    {NVML_ERROR_INSUFFICIENT_POWER, "Insufficient External Power"},
    {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
    {NVML_ERROR_TIMEOUT, "Timeout"},
    {NVML_ERROR_IRQ_ISSUE, "Interrupt Request Issue"},
    {NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"},
    {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
    {NVML_ERROR_CORRUPTED_INFOROM, "Corrupted infoROM"},
    {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
    {NVML_ERROR_RESET_REQUIRED, "GPU requires restart"},
    {NVML_ERROR_OPERATING_SYSTEM, "The operating system has blocked the request"},
    {NVML_ERROR_LIB_RM_VERSION_MISMATCH, "Driver/library version mismatch"},
    {NVML_ERROR_IN_USE, "In use by another client"},
    {NVML_ERROR_MEMORY, "Insufficient Memory"},
    {NVML_ERROR_NO_DATA, "No data"},
    {NVML_ERROR_VGPU_ECC_NOT_SUPPORTED, "ECC is not supported by the vGPU"},
    {NVML_ERROR_INSUFFICIENT_RESOURCES, "Insufficient resources"},
    {NVML_ERROR_FREQ_NOT_SUPPORTED, "Frequency not supported"},
    {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
    {NVML_ERROR_DEPRECATED, "Deprecated"},
    {NVML_ERROR_NOT_READY, "Not ready"},
    {NVML_ERROR_GPU_NOT_FOUND, "GPU not found"},
    {NVML_ERROR_INVALID_STATE, "Invalid state"},
};

HARPE_API const char *nvmlErrorString(nvmlReturn_t result);
HARPE_API const char *nvmlErrorString(nvmlReturn_t result) {
    for (size_t i = 0; i < sizeof error_texts / sizeof error_texts[0]; i++)
        if (error_texts[i].code == result) return error_texts[i].text;
    return "Unknown Error";
}

/* Returns a text, for calls that concern no GPU. */
static nvmlReturn_t tell(const char *text, char *to, unsigned int length) {
    emulator_cluster *cluster;
    nvmlReturn_t result = emulator_enter(&cluster, NULL);
    if (result != NVML_SUCCESS) return result;
    emulator_leave();
    if (!to) return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(to, text, strlen(text) + 1);
    return NVML_SUCCESS;
}

NVML_CALL(nvmlSystemGetDriverVersion, char *version, unsigned int length) {
    return tell(DRIVER_VERSION, version, length);
}

NVML_CALL(nvmlSystemGetNVMLVersion, char *version, unsigned int length) {
    return tell(NVML_VERSION, version, length);
}

/* According to its documentation, this call works without initialisation. */
NVML_CALL(nvmlSystemGetCudaDriverVersion_v2, int *version) {
    if (!version) return NVML_ERROR_INVALID_ARGUMENT;
    *version = CUDA_VERSION;
    return NVML_SUCCESS;
}

NVML_CALL(nvmlSystemGetCudaDriverVersion, int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

NVML_CALL(nvmlSystemGetProcessName, unsigned int pid, char *name, unsigned int length) {
    char path[40], text[256];
    if (emulator_is_in_world()) return NVML_ERROR_NOT_FOUND; /* its processes have no names */
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    if (!name) return NVML_ERROR_INVALID_ARGUMENT;
    FILE *file = fopen(path, "re");
    if (!file) return NVML_ERROR_NOT_FOUND;
    size_t count = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[count] = '\0';
    if (length == 0) return NVML_ERROR_INSUFFICIENT_SIZE;
    snprintf(name, length, "%s", text); /* truncated, as by the driver */
    return NVML_SUCCESS;
}

/* ---- Finding GPUs ---------------------------------------------------------------------------- */

NVML_CALL(nvmlDeviceGetCount_v2, unsigned int *count) {
    emulator_cluster *cluster;
    bool hides = torch_counts;
    torch_counts = false;
    nvmlReturn_t result = emulator_enter(&cluster, NULL);
    if (result != NVML_SUCCESS) return result;
    if (count) *count = hides ? 0 : emulator_numbered_count();
    emulator_leave();
    return count ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

NVML_CALL(nvmlDeviceGetCount, unsigned int *count) { return nvmlDeviceGetCount_v2(count); }

NVML_CALL(nvmlDeviceGetHandleByIndex_v2, unsigned int index, nvmlDevice_t *device) {
    emulator_cluster *cluster;
    nvmlReturn_t result = emulator_enter(&cluster, NULL);
    if (result != NVML_SUCCESS) return result;
    unsigned int gpu = 0;
    if (!device || !emulator_numbered_gpu(index, &gpu))
        result = NVML_ERROR_INVALID_ARGUMENT;
    else
        *device = emulator_handle(gpu);
    emulator_leave();
    return result;
}

NVML_CALL(nvmlDeviceGetHandleByIndex, unsigned int index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

NVML_CALL(nvmlDeviceGetHandleByUUID, const char *uuid, nvmlDevice_t *device) {
    emulator_cluster *cluster;
    nvmlReturn_t result = emulator_enter(&cluster, NULL);
    if (result != NVML_SUCCESS) return result;
    result = uuid && device ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
    unsigned int gpu = 0;
    for (unsigned int i = 0; result == NVML_ERROR_NOT_FOUND && emulator_numbered_gpu(i, &gpu);
         i++) {
        if (strcmp(cluster->gpu[gpu].uuid, uuid) == 0) {
            *device = emulator_handle(gpu);
            result = NVML_SUCCESS;
        }
    }
    emulator_leave();
    return result;
}

/* Parses "[domain:]bus:device[.function]" in hexadecimal. The domain may have any number of digits.
 */
static bool parse_pci(const char *text, unsigned int *domain, unsigned int *bus,
                      unsigned int *device) {
    unsigned long part[3];
    int count = 0;
    for (;;) {
        char *end;
        part[count++] = strtoul(text, &end, 16);
        if (end == text) return false;
        text = end;
        if (*text != ':' || count == 3) break;
        text++;
    }
    if (count < 2 || (*text != '\0' && strcmp(text, ".0") != 0)) return false;
    *domain = count == 3 ? (unsigned int)part[0] : 0;
    *bus = (unsigned int)part[count - 2];
    *device = (unsigned int)part[count - 1];
    return true;
}

NVML_CALL(nvmlDeviceGetHandleByPciBusId_v2, const char *bus_id, nvmlDevice_t *device) {
    emulator_cluster *cluster;
    nvmlReturn_t result = emulator_enter(&cluster, NULL);
    if (result != NVML_SUCCESS) return result;
    unsigned int domain, bus, slot;
    if (!bus_id || !device || !parse_pci(bus_id, &domain, &bus, &slot)) {
        result = NVML_ERROR_INVALID_ARGUMENT;
    } else {
        result = NVML_ERROR_NOT_FOUND;
        unsigned int gpu = 0;
        for (unsigned int i = 0; emulator_numbered_gpu(i, &gpu); i++) {
            if (domain == cluster->gpu[gpu].pci_domain && bus == cluster->gpu[gpu].pci_bus &&
                slot == 0) {
                *device = emulator_handle(gpu);
                result = NVML_SUCCESS;
            }
        }
    }
    emulator_leave();
    return result;
}

NVML_CALL(nvmlDeviceGetHandleByPciBusId, const char *bus_id, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}
