/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA GPUs through NVML, whose functions are found at run time, so the build needs nothing from
 * NVIDIA. This file writes frequencies to a GPU and reads its energy counter. settings.c skips,
 * counts and remembers writes. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/status.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "gpu/backend.h"
#include "gpu/nvml_abi.h"

/* Required functions are never NULL; the table in this file lists them. */
typedef struct harpe_nvml {
    void *library;
    nvmlReturn_t (*init)(void);
    nvmlReturn_t (*shutdown)(void);
    nvmlReturn_t (*driver_version)(char *text, unsigned int length);
    nvmlReturn_t (*count)(unsigned int *count);
    nvmlReturn_t (*handle)(unsigned int index, nvmlDevice_t *device);
    nvmlReturn_t (*handle_of_uuid)(const char *uuid, nvmlDevice_t *device);
    nvmlReturn_t (*index)(nvmlDevice_t device, unsigned int *index);
    nvmlReturn_t (*name)(nvmlDevice_t device, char *text, unsigned int length);
    nvmlReturn_t (*uuid)(nvmlDevice_t device, char *text, unsigned int length);
    nvmlReturn_t (*pci_info)(nvmlDevice_t device, nvmlPciInfo_t *info);
    nvmlReturn_t (*mig_mode)(nvmlDevice_t device, unsigned int *current, unsigned int *pending);
    nvmlReturn_t (*mig_count)(nvmlDevice_t device, unsigned int *maximum);
    nvmlReturn_t (*mig_device)(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig_device);
    nvmlReturn_t (*architecture)(nvmlDevice_t device, unsigned int *architecture);
    nvmlReturn_t (*limit_range)(nvmlDevice_t device, unsigned int *minimum, unsigned int *maximum);
    nvmlReturn_t (*limit)(nvmlDevice_t device, unsigned int *limit);
    nvmlReturn_t (*default_limit)(nvmlDevice_t device, unsigned int *limit);
    nvmlReturn_t (*enforced_limit)(nvmlDevice_t device, unsigned int *limit);
    nvmlReturn_t (*set_limit)(nvmlDevice_t device, unsigned int limit);
    nvmlReturn_t (*persistence)(nvmlDevice_t device, nvmlEnableState_t *mode);
    nvmlReturn_t (*set_persistence)(nvmlDevice_t device, nvmlEnableState_t mode);
    nvmlReturn_t (*memory_clocks)(nvmlDevice_t device, unsigned int *count, unsigned int *clocks);
    nvmlReturn_t (*graphics_clocks)(nvmlDevice_t device, unsigned int memory, unsigned int *count,
                                    unsigned int *clocks);
    nvmlReturn_t (*clock)(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz);
    nvmlReturn_t (*lock_graphics)(nvmlDevice_t device, unsigned int minimum, unsigned int maximum);
    nvmlReturn_t (*reset_graphics)(nvmlDevice_t device);
    nvmlReturn_t (*lock_memory)(nvmlDevice_t device, unsigned int minimum, unsigned int maximum);
    nvmlReturn_t (*reset_memory)(nvmlDevice_t device);
    nvmlReturn_t (*power)(nvmlDevice_t device, unsigned int *power);
    nvmlReturn_t (*fields)(nvmlDevice_t device, int count, nvmlFieldValue_t *values);
    nvmlReturn_t (*energy)(nvmlDevice_t device, unsigned long long *energy);
    nvmlReturn_t (*temperature_v)(nvmlDevice_t device, nvmlTemperature_v1_t *temperature);
    nvmlReturn_t (*temperature)(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                unsigned int *celsius);
    nvmlReturn_t (*reasons)(nvmlDevice_t device, unsigned long long *reasons);
    nvmlReturn_t (*utilization)(nvmlDevice_t device, nvmlUtilization_t *rates);
    nvmlReturn_t (*processes)(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *list);
    int64_t (*emulator_now_ns)(void);
    int (*emulator_identity)(char *text, unsigned int size);
} harpe_nvml;

/* ---- The library ----------------------------------------------------------------------------- */

/* Finds and opens NVML, and looks up its functions with a table. */

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

/* ---- Opening the library --------------------------------------------------------------------- */

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

static void nvml_close(harpe_nvml *nvml) {
    if (nvml->library) dlclose(nvml->library);
    nvml->library = NULL;
}

/* Opens the library (NULL: $HARPE_NVML_LIBRARY, or else the usual places) and looks up its
 * functions. Does not call nvmlInit. HARPE_NOT_FOUND: there is no NVML library. Close with
 * nvml_close. */
static harpe_status nvml_open(const char *path, harpe_nvml *out, harpe_error *error) {
    harpe_nvml nvml = {0};
    harpe_status status = open_library(path, &nvml.library, error);
    if (status == HARPE_OK) status = look_up(nvml.library, &nvml, error);
    if (status != HARPE_OK) {
        nvml_close(&nvml);
        return status;
    }
    *out = nvml;
    return HARPE_OK;
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

/* Returns HARPE_OK for NVML_SUCCESS, and HARPE_DRIVER_ERROR for an unknown code. */
static harpe_status nvml_status(int code) {
    if (code == NVML_SUCCESS) return HARPE_OK;
    const nvml_error *error = find(code);
    return error ? error->status : HARPE_DRIVER_ERROR;
}

/* Returns "NVML_ERROR_NO_PERMISSION", for example, or "NVML error" for an unknown code. Static
 * storage. */
static const char *nvml_error_name(int code) {
    const nvml_error *error = find(code);
    return error ? error->name : "NVML error";
}

/* Returns a phrase about cause and remedy, never empty. Static storage. */
static const char *nvml_error_advice(int code) {
    const nvml_error *error = find(code);
    return error ? error->advice : "unknown to this version of Harpe; see 'dmesg'";
}

/* ---- NVIDIA GPUs ----------------------------------------------------------------------------- */

enum { DEVICES_MAX = 4096, CLOCKS_MAX = 65536, LIST_ATTEMPTS = 4 };

/* ---- State ----------------------------------------------------------------------------------- */

/* The struct behind a handle. */
typedef struct nvml_device {
    const harpe_nvml *nvml;
    nvmlDevice_t device;
    bool usage_is_average;    /* nvmlDeviceGetPowerUsage returns a 1 s average on this GPU */
    bool is_module;           /* part of a module with a CPU; the energy counter covers the
                               * module */
    bool tells_module_energy; /* NVML_FI_DEV_ENERGY has a value for the module */
} nvml_device;

typedef struct nvml_state {
    harpe_nvml nvml;
    char driver_version[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
    int device_count;
    nvml_device *devices;
} nvml_state;

static harpe_status fail_start(const char *what, int code, harpe_error *error) {
    harpe_status status = harpe_fail(error, nvml_status(code), "%s: %s (%d): %s", what,
                                     nvml_error_name(code), code, nvml_error_advice(code));
    if (error) error->vendor_code = code;
    return status;
}

static void close_state(void *opened) {
    nvml_state *state = opened;
    if (!state) return;
    if (state->devices) (void)state->nvml.shutdown();
    nvml_close(&state->nvml);
    free(state->devices);
    free(state);
}

static harpe_status start(nvml_state *state, harpe_error *error) {
    nvmlReturn_t code = state->nvml.init();
    if (code != NVML_SUCCESS) return fail_start("cannot start NVML", (int)code, error);
    unsigned int count = 0;
    code = state->nvml.count(&count);
    if (code != NVML_SUCCESS || count > DEVICES_MAX) {
        (void)state->nvml.shutdown();
        return fail_start("cannot count GPUs", code ? (int)code : NVML_ERROR_UNKNOWN, error);
    }
    state->devices = harpe_calloc(count + 1, sizeof *state->devices);
    if (!state->devices) {
        (void)state->nvml.shutdown();
        return harpe_fail_memory(error);
    }
    state->device_count = (int)count;
    if (!state->nvml.driver_version ||
        state->nvml.driver_version(state->driver_version, sizeof state->driver_version))
        state->driver_version[0] = '\0';
    state->driver_version[sizeof state->driver_version - 1] = '\0';
    return HARPE_OK;
}

static harpe_status open_state(const char *library_path, void **out, harpe_error *error) {
    nvml_state *state = calloc(1, sizeof *state);
    if (!state) return harpe_fail_memory(error);
    harpe_status status = nvml_open(library_path, &state->nvml, error);
    if (status == HARPE_OK) status = start(state, error);
    if (status != HARPE_OK) {
        close_state(state);
        return status;
    }
    *out = state;
    return HARPE_OK;
}

static void *library(const void *state) { return ((const nvml_state *)state)->nvml.library; }

static const char *driver_version(const void *state) {
    return ((const nvml_state *)state)->driver_version;
}

static bool is_emulated(const void *state) {
    return ((const nvml_state *)state)->nvml.emulator_now_ns != NULL;
}

static bool emulated_identity(const void *state, char *text, size_t size) {
    const nvml_state *opened = state;
    return opened->nvml.emulator_identity &&
           opened->nvml.emulator_identity(text, (unsigned int)size) == 0;
}

static int64_t clock_ns(const void *state) {
    const nvml_state *opened = state;
    return opened->nvml.emulator_now_ns ? opened->nvml.emulator_now_ns() : harpe_clock_ns();
}

static void explain(int code, harpe_status *status, const char **name, const char **advice) {
    *status = nvml_status(code);
    *name = nvml_error_name(code);
    *advice = nvml_error_advice(code);
}

/* ---- Devices --------------------------------------------------------------------------------- */

static int device_count(void *state, int *count) {
    *count = ((nvml_state *)state)->device_count;
    return NVML_SUCCESS;
}

/* Returns true if nvmlDeviceGetPowerUsage returns an average over 1 s. According to NVML's
 * documentation this is so from Ampere on, except on GA100 (A100, A30, A800), whose PCI device ids
 * are 0x20xx. On other GPUs it is the current power. */
static bool usage_is_average(const harpe_nvml *nvml, nvmlDevice_t device,
                             const nvmlPciInfo_t *pci) {
    unsigned int architecture = 0;
    if (!nvml->architecture || nvml->architecture(device, &architecture)) return false;
    bool is_ga100 = pci->pciDeviceId >> 24 == 0x20;
    return architecture >= NVML_DEVICE_ARCH_AMPERE && architecture < 0x10000 && !is_ga100;
}

/* Calls an optional function. The code is NVML_ERROR_FUNCTION_NOT_FOUND if the library lacks it. */
#define CALL(handle, function, ...) \
    ((handle)->nvml->function ? (int)(handle)->nvml->function((handle)->device, __VA_ARGS__) \
                              : NVML_ERROR_FUNCTION_NOT_FOUND)

/* Reads one field value. Returns the code of the call if the call failed, and otherwise the code of
 * the value. */
static int read_field(const nvml_device *gpu, unsigned int field, unsigned int scope,
                      nvmlFieldValue_t *out) {
    nvmlFieldValue_t value;
    memset(&value, 0, sizeof value);
    value.fieldId = field;
    value.scopeId = scope;
    int code = CALL(gpu, fields, 1, &value);
    if (!code) code = (int)value.nvmlReturn;
    if (!code) *out = value;
    return code;
}

/* Reads a field that contains a power. */
static int power_field(const nvml_device *gpu, unsigned int field, unsigned int scope,
                       uint32_t *power_mw) {
    nvmlFieldValue_t value;
    int code = read_field(gpu, field, scope, &value);
    if (code) return code;
    if (value.valueType != NVML_VALUE_TYPE_UNSIGNED_INT) return NVML_ERROR_NOT_SUPPORTED;
    *power_mw = value.value.uiVal;
    return NVML_SUCCESS;
}

static int module_energy_field(const nvml_device *gpu, uint64_t *energy_mj) {
    nvmlFieldValue_t value;
    int code = read_field(gpu, NVML_FI_DEV_ENERGY, NVML_POWER_SCOPE_MODULE, &value);
    if (code) return code;
    if (value.valueType != NVML_VALUE_TYPE_UNSIGNED_LONG_LONG) return NVML_ERROR_NOT_SUPPORTED;
    *energy_mj = value.value.ullVal;
    return NVML_SUCCESS;
}

/* Detects whether GPU and CPU are one module (Grace Hopper). On such a module the driver answers
 * in the module's scope, and nvmlDeviceGetTotalEnergyConsumption counts the energy of the module
 * (ml-energy/zeus pull request 172). An active link between the chips is not sufficient: a DGX
 * Spark has one, but answers only for the GPU (pull request 242 there). */
static void find_module(nvml_device *gpu) {
    uint32_t power_mw = 0;
    uint64_t energy_mj = 0;
    gpu->is_module = power_field(gpu, NVML_FI_DEV_POWER_INSTANT, NVML_POWER_SCOPE_MODULE,
                                 &power_mw) == NVML_SUCCESS &&
                     power_mw > 0;
    gpu->tells_module_energy =
        gpu->is_module && module_energy_field(gpu, &energy_mj) == NVML_SUCCESS && energy_mj > 0;
}

static int find_device(void *opened, int driver_index, harpe_backend_device *out) {
    nvml_state *state = opened;
    const harpe_nvml *nvml = &state->nvml;
    nvmlDevice_t device = NULL;
    nvmlPciInfo_t pci;
    memset(&pci, 0, sizeof pci);
    harpe_backend_device found = {.driver_index = driver_index};
    if (driver_index < 0 || driver_index >= state->device_count) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t code = nvml->handle((unsigned int)driver_index, &device);
    if (!code) code = nvml->name(device, found.name, sizeof found.name);
    if (!code) code = nvml->uuid(device, found.uuid, sizeof found.uuid);
    if (!code) code = nvml->pci_info(device, &pci);
    if (code) return (int)code;
    unsigned int mig_mode = NVML_DEVICE_MIG_DISABLE;
    unsigned int pending_mode = NVML_DEVICE_MIG_DISABLE;
    if (nvml->mig_mode && !nvml->mig_mode(device, &mig_mode, &pending_mode))
        found.is_mig_enabled = mig_mode == NVML_DEVICE_MIG_ENABLE;
    found.name[sizeof found.name - 1] = '\0';
    found.uuid[sizeof found.uuid - 1] = '\0';
    found.pci = (harpe_pci_address){pci.domain, pci.bus, pci.device};
    nvml_device *handle = &state->devices[driver_index];
    *handle = (nvml_device){
        .nvml = nvml, .device = device, .usage_is_average = usage_is_average(nvml, device, &pci)};
    find_module(handle);
    found.is_module = handle->is_module;
    found.handle = handle;
    *out = found;
    return NVML_SUCCESS;
}

static int index_of(void *opened, const char *uuid, int *driver_index) {
    const harpe_nvml *nvml = &((nvml_state *)opened)->nvml;
    nvmlDevice_t device = NULL;
    unsigned int index = 0;
    if (!nvml->handle_of_uuid || !nvml->index) return NVML_ERROR_FUNCTION_NOT_FOUND;
    nvmlReturn_t code = nvml->handle_of_uuid(uuid, &device);
    if (!code) code = nvml->index(device, &index);
    if (code) return (int)code;
    *driver_index = (int)index;
    return NVML_SUCCESS;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Returns true if the driver does not know the request; drivers report this with several codes. */
static bool is_unknown(int code) {
    return code == NVML_ERROR_NOT_SUPPORTED || code == NVML_ERROR_INVALID_ARGUMENT ||
           code == NVML_ERROR_FUNCTION_NOT_FOUND || code == NVML_ERROR_NOT_FOUND ||
           code == NVML_ERROR_ARGUMENT_VERSION_MISMATCH || code == NVML_ERROR_DEPRECATED;
}

static int power_limit_range(void *handle, uint32_t *minimum_mw, uint32_t *maximum_mw) {
    const nvml_device *gpu = handle;
    unsigned int minimum = 0;
    unsigned int maximum = 0;
    int code = CALL(gpu, limit_range, &minimum, &maximum);
    if (code) return code;
    *minimum_mw = minimum;
    *maximum_mw = maximum;
    return NVML_SUCCESS;
}

static int power_limit(void *handle, uint32_t *limit_mw) {
    const nvml_device *gpu = handle;
    return CALL(gpu, limit, limit_mw);
}

static int default_power_limit(void *handle, uint32_t *limit_mw) {
    const nvml_device *gpu = handle;
    return CALL(gpu, default_limit, limit_mw);
}

/* Reads the enforced limit. If the driver does not report it, reads the limit that was set. */
static int enforced_power_limit(void *handle, uint32_t *limit_mw) {
    const nvml_device *gpu = handle;
    int code = CALL(gpu, enforced_limit, limit_mw);
    return is_unknown(code) ? CALL(gpu, limit, limit_mw) : code;
}

static int persistence_mode(void *handle, bool *is_enabled) {
    const nvml_device *gpu = handle;
    nvmlEnableState_t mode = NVML_FEATURE_DISABLED;
    int code = CALL(gpu, persistence, &mode);
    if (code) return code;
    *is_enabled = mode == NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

/* Reads a list by NVML's two-call protocol: the first call returns the number of elements. */
typedef int (*list_function)(const nvml_device *gpu, uint32_t memory_mhz, unsigned int *count,
                             unsigned int *clocks);

static int read_list(const nvml_device *gpu, list_function list, uint32_t memory_mhz,
                     uint32_t **out, size_t *out_count) {
    unsigned int count = 0;
    int code = list(gpu, memory_mhz, &count, NULL);
    uint32_t *clocks = NULL;
    for (int i = 0; i < LIST_ATTEMPTS && code == NVML_ERROR_INSUFFICIENT_SIZE; i++) {
        if (count > CLOCKS_MAX) break;
        free(clocks);
        clocks = calloc((size_t)count + 1, sizeof *clocks);
        if (!clocks) return NVML_ERROR_MEMORY;
        code = list(gpu, memory_mhz, &count, clocks);
    }
    if (code == NVML_SUCCESS && (!clocks || count == 0)) code = NVML_ERROR_NOT_SUPPORTED;
    if (code) {
        free(clocks);
        return code;
    }
    *out = clocks;
    *out_count = count;
    return NVML_SUCCESS;
}

static int list_memory(const nvml_device *gpu, uint32_t unused, unsigned int *count,
                       unsigned int *clocks) {
    (void)unused;
    return CALL(gpu, memory_clocks, count, clocks);
}

static int list_graphics(const nvml_device *gpu, uint32_t memory_mhz, unsigned int *count,
                         unsigned int *clocks) {
    return CALL(gpu, graphics_clocks, memory_mhz, count, clocks);
}

static int memory_clocks(void *handle, uint32_t **clocks_mhz, size_t *count) {
    return read_list(handle, list_memory, 0, clocks_mhz, count);
}

static int graphics_clocks(void *handle, uint32_t memory_mhz, uint32_t **clocks_mhz,
                           size_t *count) {
    return read_list(handle, list_graphics, memory_mhz, clocks_mhz, count);
}

static int current_graphics_clock(void *handle, uint32_t *mhz) {
    const nvml_device *gpu = handle;
    return CALL(gpu, clock, NVML_CLOCK_GRAPHICS, mhz);
}

static int current_memory_clock(void *handle, uint32_t *mhz) {
    const nvml_device *gpu = handle;
    return CALL(gpu, clock, NVML_CLOCK_MEM, mhz);
}

/* Reads the current power. Drivers before 530 do not know the field NVML_FI_DEV_POWER_INSTANT. With
 * such a driver, reads nvmlDeviceGetPowerUsage. This is the current power on GPUs before Ampere and
 * on GA100, and an average over 1 s on other GPUs. */
static int instant_power(void *handle, uint32_t *power_mw) {
    const nvml_device *gpu = handle;
    int code = power_field(gpu, NVML_FI_DEV_POWER_INSTANT, NVML_POWER_SCOPE_GPU, power_mw);
    return is_unknown(code) ? CALL(gpu, power, power_mw) : code;
}

/* Reads the average power. If this fails, reads nvmlDeviceGetPowerUsage, but only if its value is
 * an average too. */
static int average_power(void *handle, uint32_t *power_mw) {
    const nvml_device *gpu = handle;
    int code = power_field(gpu, NVML_FI_DEV_POWER_AVERAGE, NVML_POWER_SCOPE_GPU, power_mw);
    return is_unknown(code) && gpu->usage_is_average ? CALL(gpu, power, power_mw) : code;
}

static int module_power(void *handle, uint32_t *power_mw) {
    const nvml_device *gpu = handle;
    if (!gpu->is_module) return NVML_ERROR_NOT_SUPPORTED;
    return power_field(gpu, NVML_FI_DEV_POWER_INSTANT, NVML_POWER_SCOPE_MODULE, power_mw);
}

/* Reads the energy. A module may have two counters. This function always reads the same counter, so
 * that two readings can be subtracted. */
static int total_energy(void *handle, uint64_t *energy_mj) {
    const nvml_device *gpu = handle;
    if (gpu->tells_module_energy) return module_energy_field(gpu, energy_mj);
    unsigned long long energy = 0;
    int code = CALL(gpu, energy, &energy);
    if (!code) *energy_mj = energy;
    return code;
}

static int temperature(void *handle, uint32_t *celsius) {
    const nvml_device *gpu = handle;
    nvmlTemperature_v1_t value = {.version = nvmlTemperature_v1,
                                  .sensorType = NVML_TEMPERATURE_GPU};
    int code = CALL(gpu, temperature_v, &value);
    if (is_unknown(code)) return CALL(gpu, temperature, NVML_TEMPERATURE_GPU, celsius);
    if (!code) *celsius = value.temperature > 0 ? (uint32_t)value.temperature : 0;
    return code;
}

static int throttle_reasons(void *handle, uint64_t *reasons) {
    const nvml_device *gpu = handle;
    unsigned long long bits = 0;
    int code = CALL(gpu, reasons, &bits);
    if (!code) *reasons = bits;
    return code;
}

static int utilization(void *handle, uint32_t *percent) {
    const nvml_device *gpu = handle;
    nvmlUtilization_t rates = {0};
    int code = CALL(gpu, utilization, &rates);
    if (!code) *percent = rates.gpu;
    return code;
}

/* Counts the processes without reading their list: a call with an empty list fails, and returns the
 * length that the list needs. */
static int process_count(void *handle, uint32_t *count) {
    const nvml_device *gpu = handle;
    unsigned int found = 0;
    int code = CALL(gpu, processes, &found, NULL);
    if (code && code != NVML_ERROR_INSUFFICIENT_SIZE) return code;
    *count = found;
    return NVML_SUCCESS;
}

static int mig_mode(void *handle, bool *is_enabled) {
    const nvml_device *gpu = handle;
    unsigned int mode = NVML_DEVICE_MIG_DISABLE;
    unsigned int pending_mode = NVML_DEVICE_MIG_DISABLE;
    int code = CALL(gpu, mig_mode, &mode, &pending_mode);
    if (!code) *is_enabled = mode == NVML_DEVICE_MIG_ENABLE;
    return code;
}

/* Lists the MIG instances. Instances of an index can be missing. */
static int mig_devices(void *handle, harpe_mig_devices *out) {
    const nvml_device *gpu = handle;
    harpe_mig_devices found = {.count = 0};
    unsigned int maximum = 0;
    int code = CALL(gpu, mig_count, &maximum);
    for (unsigned int i = 0; !code && i < maximum && found.count < HARPE_MIG_DEVICES_MAX; i++) {
        char *uuid = found.uuids[found.count];
        nvmlDevice_t device = NULL;
        if (CALL(gpu, mig_device, i, &device) != NVML_SUCCESS) continue;
        if (gpu->nvml->uuid(device, uuid, sizeof found.uuids[0]) != NVML_SUCCESS) continue;
        uuid[sizeof found.uuids[0] - 1] = '\0';
        found.count++;
    }
    if (!code) *out = found;
    return code;
}

/* ---- Setting --------------------------------------------------------------------------------- */

static int set_power_limit(void *handle, uint32_t limit_mw) {
    const nvml_device *gpu = handle;
    return CALL(gpu, set_limit, limit_mw);
}

static int set_persistence_mode(void *handle, bool is_enabled) {
    const nvml_device *gpu = handle;
    return CALL(gpu, set_persistence, is_enabled ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED);
}

/* Writes a planned frequency to the GPU. */
static int lock_graphics_clocks(void *handle, uint32_t minimum_mhz, uint32_t maximum_mhz) {
    const nvml_device *gpu = handle;
    return CALL(gpu, lock_graphics, minimum_mhz, maximum_mhz);
}

static int reset_graphics_clocks(void *handle) {
    const nvml_device *gpu = handle;
    if (!gpu->nvml->reset_graphics) return NVML_ERROR_FUNCTION_NOT_FOUND;
    return (int)gpu->nvml->reset_graphics(gpu->device);
}

static int lock_memory_clocks(void *handle, uint32_t minimum_mhz, uint32_t maximum_mhz) {
    const nvml_device *gpu = handle;
    return CALL(gpu, lock_memory, minimum_mhz, maximum_mhz);
}

static int reset_memory_clocks(void *handle) {
    const nvml_device *gpu = handle;
    if (!gpu->nvml->reset_memory) return NVML_ERROR_FUNCTION_NOT_FOUND;
    return (int)gpu->nvml->reset_memory(gpu->device);
}

/* ---- The table ------------------------------------------------------------------------------- */

const harpe_backend harpe_backend_nvml = {
    .name = "nvml",
    .visible_devices = {{"CUDA_VISIBLE_DEVICES", NULL}},
    .device_order_variable = "CUDA_DEVICE_ORDER",
    .library_variable = "HARPE_NVML_LIBRARY",
    .open = open_state,
    .close = close_state,
    .library = library,
    .driver_version = driver_version,
    .is_emulated = is_emulated,
    .emulated_identity = emulated_identity,
    .clock_ns = clock_ns,
    .explain = explain,
    .device_count = device_count,
    .device = find_device,
    .index_of = index_of,
    .power_limit_range = power_limit_range,
    .power_limit = power_limit,
    .default_power_limit = default_power_limit,
    .enforced_power_limit = enforced_power_limit,
    .persistence_mode = persistence_mode,
    .memory_clocks = memory_clocks,
    .graphics_clocks = graphics_clocks,
    .current_graphics_clock = current_graphics_clock,
    .current_memory_clock = current_memory_clock,
    .instant_power = instant_power,
    .average_power = average_power,
    .module_power = module_power,
    .total_energy = total_energy,
    .temperature = temperature,
    .throttle_reasons = throttle_reasons,
    .utilization = utilization,
    .process_count = process_count,
    .mig_mode = mig_mode,
    .mig_devices = mig_devices,
    .set_power_limit = set_power_limit,
    .set_persistence_mode = set_persistence_mode,
    .lock_graphics_clocks = lock_graphics_clocks,
    .reset_graphics_clocks = reset_graphics_clocks,
    .lock_memory_clocks = lock_memory_clocks,
    .reset_memory_clocks = reset_memory_clocks,
};
