/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and opens NVML, and looks up its functions with a table. backend_nvml.c calls the functions
 * that act on a GPU. */
#include "gpu/nvml_library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/trust.h"

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
