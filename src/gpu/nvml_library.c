/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and opens NVML, and looks up its functions with a table. backend_nvml.c calls the
 * functions that act on a GPU. */
#include "gpu/nvml_library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "gpu/nvml_abi.h"

/* ---- Functions ------------------------------------------------------------------------------- */

typedef struct nvml_symbol {
    const char *name;
    const char *older_name; /* tried if the first is missing; the arguments that Harpe uses are the
                             * same */
    bool is_required;
    size_t offset; /* in harpe_nvml */
} nvml_symbol;

#define REQUIRED(member, name, older_name) \
    { name, older_name, true, offsetof(harpe_nvml, member) }
#define OPTIONAL(member, name, older_name) \
    { name, older_name, false, offsetof(harpe_nvml, member) }

static const nvml_symbol symbols[] = {
    REQUIRED(init, "nvmlInit_v2", "nvmlInit"),
    REQUIRED(shutdown, "nvmlShutdown", NULL),
    REQUIRED(count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"),
    REQUIRED(handle, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"),
    REQUIRED(name, "nvmlDeviceGetName", NULL),
    REQUIRED(uuid, "nvmlDeviceGetUUID", NULL),
    /* The older struct is shorter, but domain, bus and device are at the same offsets. */
    REQUIRED(pci_info, "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"),
    OPTIONAL(handle_of_uuid, "nvmlDeviceGetHandleByUUID", NULL),
    OPTIONAL(index, "nvmlDeviceGetIndex", NULL),
    OPTIONAL(driver_version, "nvmlSystemGetDriverVersion", NULL),
    OPTIONAL(mig_mode, "nvmlDeviceGetMigMode", NULL),
    OPTIONAL(mig_count, "nvmlDeviceGetMaxMigDeviceCount", NULL),
    OPTIONAL(mig_device, "nvmlDeviceGetMigDeviceHandleByIndex", NULL),
    OPTIONAL(architecture, "nvmlDeviceGetArchitecture", NULL),
    OPTIONAL(limit_range, "nvmlDeviceGetPowerManagementLimitConstraints", NULL),
    OPTIONAL(limit, "nvmlDeviceGetPowerManagementLimit", NULL),
    OPTIONAL(default_limit, "nvmlDeviceGetPowerManagementDefaultLimit", NULL),
    OPTIONAL(enforced_limit, "nvmlDeviceGetEnforcedPowerLimit", NULL),
    OPTIONAL(set_limit, "nvmlDeviceSetPowerManagementLimit", NULL),
    OPTIONAL(persistence, "nvmlDeviceGetPersistenceMode", NULL),
    OPTIONAL(set_persistence, "nvmlDeviceSetPersistenceMode", NULL),
    OPTIONAL(memory_clocks, "nvmlDeviceGetSupportedMemoryClocks", NULL),
    OPTIONAL(graphics_clocks, "nvmlDeviceGetSupportedGraphicsClocks", NULL),
    OPTIONAL(clock, "nvmlDeviceGetClockInfo", NULL),
    OPTIONAL(lock_graphics, "nvmlDeviceSetGpuLockedClocks", NULL),
    OPTIONAL(reset_graphics, "nvmlDeviceResetGpuLockedClocks", NULL),
    OPTIONAL(lock_memory, "nvmlDeviceSetMemoryLockedClocks", NULL),
    OPTIONAL(reset_memory, "nvmlDeviceResetMemoryLockedClocks", NULL),
    OPTIONAL(power, "nvmlDeviceGetPowerUsage", NULL),
    OPTIONAL(fields, "nvmlDeviceGetFieldValues", NULL),
    OPTIONAL(energy, "nvmlDeviceGetTotalEnergyConsumption", NULL),
    OPTIONAL(temperature_v, "nvmlDeviceGetTemperatureV", NULL),
    OPTIONAL(temperature, "nvmlDeviceGetTemperature", NULL), /* deprecated; for older drivers */
    OPTIONAL(reasons, "nvmlDeviceGetCurrentClocksEventReasons",
             "nvmlDeviceGetCurrentClocksThrottleReasons"),
    OPTIONAL(utilization, "nvmlDeviceGetUtilizationRates", NULL),
    /* Older versions have other structs. Harpe passes none. */
    OPTIONAL(processes, "nvmlDeviceGetComputeRunningProcesses_v3",
             "nvmlDeviceGetComputeRunningProcesses_v2"),
    /* Only Harpe's emulator has these functions. */
    OPTIONAL(emulator_now_ns, "harpe_emulator_now_ns", NULL),
    OPTIONAL(emulator_identity, "harpe_emulator_identity", NULL),
};

static harpe_status look_up(void *library, harpe_nvml *nvml, harpe_error *error) {
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address && symbols[i].older_name) address = dlsym(library, symbols[i].older_name);
        if (!address && symbols[i].is_required)
            return harpe_fail(error, HARPE_NOT_FOUND,
                              "the driver library lacks %s: it is not an NVML library, or the "
                              "driver is too old",
                              symbols[i].name);
        /* Copied as bytes, because ISO C does not convert between object and function pointers. */
        memcpy((char *)nvml + symbols[i].offset, &address, sizeof address);
    }
    return HARPE_OK;
}

/* ---- The library ----------------------------------------------------------------------------- */

static const char *const library_names[] = {"libnvidia-ml.so.1", "libnvidia-ml.so", NULL};

/* "libnvidia-ml.so.1: cannot open shared object file: No such file or directory" */
static harpe_status open_library(const char *path, void **library, harpe_error *error) {
    const char *chosen = path ? path : harpe_trusted_file_variable("HARPE_NVML_LIBRARY", NULL);
    if (chosen && *chosen) {
        *library = dlopen(chosen, RTLD_NOW | RTLD_LOCAL);
        if (*library) return HARPE_OK;
        const char *reason = dlerror();
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "cannot open the NVML library that %s names: %s",
                          path ? "the caller" : "HARPE_NVML_LIBRARY", reason ? reason : chosen);
    }
    const char *reason = NULL;
    for (size_t i = 0; library_names[i]; i++) {
        *library = dlopen(library_names[i], RTLD_NOW | RTLD_LOCAL);
        if (*library) return HARPE_OK;
        reason = dlerror();
    }
    return harpe_fail(error, HARPE_NOT_FOUND,
                      "no NVIDIA driver library (%s): install the NVIDIA driver, start the "
                      "container with --gpus all, or try emulated GPUs with 'harpe emulate'",
                      reason ? reason : library_names[0]);
}

harpe_status harpe_nvml_open(const char *path, harpe_nvml *out, harpe_error *error) {
    harpe_nvml nvml = {0};
    harpe_status status = open_library(path, &nvml.library, error);
    if (status == HARPE_OK) status = look_up(nvml.library, &nvml, error);
    if (status != HARPE_OK) {
        harpe_nvml_close(&nvml);
        return status;
    }
    *out = nvml;
    return HARPE_OK;
}

void harpe_nvml_close(harpe_nvml *nvml) {
    if (nvml->library) dlclose(nvml->library);
    nvml->library = NULL;
}

/* ---- Error codes ----------------------------------------------------------------------------- */

/* Maps NVML's error codes to Harpe's with one table of status, name and advice. The back-end uses
 * it for every failed call. */

typedef struct nvml_error {
    int code;
    harpe_status status;
    const char *name;
    const char *advice;
} nvml_error;

#define ROW(code, status, advice) \
    { code, status, #code, advice }

static const nvml_error errors[] = {
    ROW(NVML_ERROR_UNINITIALIZED, HARPE_DRIVER_ERROR,
        "NVML was shut down by another part of this process"),
    ROW(NVML_ERROR_INVALID_ARGUMENT, HARPE_INVALID_ARGUMENT,
        "the driver does not accept this value for this GPU; 'harpe gpus' shows its ranges"),
    ROW(NVML_ERROR_NOT_SUPPORTED, HARPE_NOT_SUPPORTED, "this GPU or its driver cannot do it"),
    ROW(NVML_ERROR_NO_PERMISSION, HARPE_PERMISSION_DENIED,
        "run as root, or give the process CAP_SYS_ADMIN (in a container: --cap-add SYS_ADMIN), or "
        "use the node agent ('harpe agent') or zeusd"),
    ROW(NVML_ERROR_ALREADY_INITIALIZED, HARPE_DRIVER_ERROR, "NVML was initialised before"),
    ROW(NVML_ERROR_NOT_FOUND, HARPE_NOT_FOUND, "the driver does not know it"),
    ROW(NVML_ERROR_INSUFFICIENT_SIZE, HARPE_DRIVER_ERROR, "the driver's list kept growing"),
    ROW(NVML_ERROR_INSUFFICIENT_POWER, HARPE_DRIVER_ERROR, "check the GPU's external power cables"),
    ROW(NVML_ERROR_DRIVER_NOT_LOADED, HARPE_UNAVAILABLE,
        "the NVIDIA kernel driver is not loaded: try 'modprobe nvidia' and see 'dmesg'"),
    ROW(NVML_ERROR_TIMEOUT, HARPE_DRIVER_ERROR, "the driver did not answer in time; see 'dmesg'"),
    ROW(NVML_ERROR_IRQ_ISSUE, HARPE_DRIVER_ERROR,
        "the kernel has an interrupt problem with the GPU; see 'dmesg'"),
    ROW(NVML_ERROR_LIBRARY_NOT_FOUND, HARPE_UNAVAILABLE,
        "a library of the driver is missing: reinstall the driver, or start the container with "
        "the NVIDIA container toolkit"),
    ROW(NVML_ERROR_FUNCTION_NOT_FOUND, HARPE_NOT_SUPPORTED,
        "the driver library is too old and lacks the function: update the driver"),
    ROW(NVML_ERROR_CORRUPTED_INFOROM, HARPE_DRIVER_ERROR,
        "the GPU's information memory is damaged: ask its vendor"),
    ROW(NVML_ERROR_GPU_IS_LOST, HARPE_GPU_LOST,
        "the GPU fell off the bus: an administrator must reset it or restart the machine; see "
        "'dmesg' for its Xid"),
    ROW(NVML_ERROR_RESET_REQUIRED, HARPE_GPU_LOST,
        "the GPU must be reset first (nvidia-smi --gpu-reset)"),
    ROW(NVML_ERROR_OPERATING_SYSTEM, HARPE_DRIVER_ERROR,
        "the operating system blocks the GPU (cgroup, container); see 'dmesg'"),
    ROW(NVML_ERROR_LIB_RM_VERSION_MISMATCH, HARPE_DRIVER_ERROR,
        "the driver was updated while loaded: reload its kernel module or restart the machine"),
    ROW(NVML_ERROR_IN_USE, HARPE_DRIVER_ERROR, "the GPU is in use; stop what uses it"),
    ROW(NVML_ERROR_MEMORY, HARPE_OUT_OF_MEMORY, "not enough memory"),
    ROW(NVML_ERROR_NO_DATA, HARPE_DRIVER_ERROR, "there is no data yet; try again"),
    ROW(NVML_ERROR_VGPU_ECC_NOT_SUPPORTED, HARPE_NOT_SUPPORTED,
        "not possible on a virtual GPU with ECC"),
    ROW(NVML_ERROR_INSUFFICIENT_RESOURCES, HARPE_DRIVER_ERROR,
        "the driver ran out of something other than memory"),
    ROW(NVML_ERROR_FREQ_NOT_SUPPORTED, HARPE_INVALID_ARGUMENT,
        "the GPU does not have this frequency; 'harpe gpus' shows its range"),
    ROW(NVML_ERROR_ARGUMENT_VERSION_MISMATCH, HARPE_NOT_SUPPORTED,
        "driver and caller disagree about a version: update the driver"),
    ROW(NVML_ERROR_DEPRECATED, HARPE_NOT_SUPPORTED, "the driver no longer does this"),
    ROW(NVML_ERROR_NOT_READY, HARPE_DRIVER_ERROR, "the system is not ready yet; try again"),
    ROW(NVML_ERROR_GPU_NOT_FOUND, HARPE_UNAVAILABLE, "the driver finds no GPU"),
    ROW(NVML_ERROR_INVALID_STATE, HARPE_DRIVER_ERROR, "the GPU is in no state to do this"),
    ROW(NVML_ERROR_UNKNOWN, HARPE_DRIVER_ERROR, "the driver gives no reason; see 'dmesg'"),
};

static const nvml_error *find(int code) {
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code) return &errors[i];
    return NULL;
}

harpe_status harpe_nvml_status(int code) {
    if (code == NVML_SUCCESS) return HARPE_OK;
    const nvml_error *error = find(code);
    return error ? error->status : HARPE_DRIVER_ERROR;
}

const char *harpe_nvml_error_name(int code) {
    const nvml_error *error = find(code);
    return error ? error->name : "NVML error";
}

const char *harpe_nvml_error_advice(int code) {
    const nvml_error *error = find(code);
    return error ? error->advice : "unknown to this version of Harpe; see 'dmesg'";
}
