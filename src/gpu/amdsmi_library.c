/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and opens AMD SMI, and looks up its functions with a table. Another table explains its
 * error codes. backend_amdsmi.c calls the functions that act on a GPU. */
#include "gpu/amdsmi_library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/trust.h"

pthread_mutex_t harpe_amdsmi_mutex = PTHREAD_MUTEX_INITIALIZER;

/* ---- Functions ------------------------------------------------------------------------------- */

typedef struct amdsmi_symbol {
    const char *name;
    bool is_required;
    size_t offset; /* in harpe_amdsmi */
} amdsmi_symbol;

#define REQUIRED(member, name) \
    { name, true, offsetof(harpe_amdsmi, member) }
#define OPTIONAL(member, name) \
    { name, false, offsetof(harpe_amdsmi, member) }

static const amdsmi_symbol symbols[] = {
    REQUIRED(init, "amdsmi_init"),
    REQUIRED(shut_down, "amdsmi_shut_down"),
    REQUIRED(lib_version, "amdsmi_get_lib_version"),
    REQUIRED(sockets, "amdsmi_get_socket_handles"),
    REQUIRED(processors, "amdsmi_get_processor_handles"),
    REQUIRED(bdf, "amdsmi_get_gpu_device_bdf"),
    REQUIRED(uuid, "amdsmi_get_gpu_device_uuid"),
    REQUIRED(asic_info, "amdsmi_get_gpu_asic_info"),
    OPTIONAL(enumeration, "amdsmi_get_gpu_enumeration_info"),
    OPTIONAL(power_cap, "amdsmi_get_power_cap_info"),
    OPTIONAL(set_power_cap, "amdsmi_set_power_cap"),
    OPTIONAL(frequencies, "amdsmi_get_clk_freq"),
    OPTIONAL(clock, "amdsmi_get_clock_info"),
    OPTIONAL(set_clock_limit, "amdsmi_set_gpu_clk_limit"),
    OPTIONAL(set_level, "amdsmi_set_gpu_perf_level"),
    OPTIONAL(power, "amdsmi_get_power_info"),
    OPTIONAL(energy, "amdsmi_get_energy_count"),
    OPTIONAL(temperature, "amdsmi_get_temp_metric"),
};

static harpe_status look_up(void *library, harpe_amdsmi *amdsmi, harpe_error *error) {
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address && symbols[i].is_required)
            return harpe_fail(
                error, HARPE_UNAVAILABLE,
                "the driver library lacks %s: it is not an AMD SMI library, or is older than "
                "ROCm 6.4",
                symbols[i].name);
        /* Copied as bytes, because ISO C does not convert between object and function pointers. */
        memcpy((char *)amdsmi + symbols[i].offset, &address, sizeof address);
    }
    return HARPE_OK;
}

/* ---- The library ----------------------------------------------------------------------------- */

/* The loader often does not search ROCm's folder. */
static const char *const library_names[] = {"libamd_smi.so.26", "libamd_smi.so.25", "libamd_smi.so",
                                            "/opt/rocm/lib/libamd_smi.so", NULL};

static harpe_status open_library(const char *path, void **library, harpe_error *error) {
    const char *chosen = path ? path : harpe_trusted_file_variable("HARPE_AMDSMI_LIBRARY", NULL);
    if (chosen && *chosen) {
        *library = dlopen(chosen, RTLD_NOW | RTLD_LOCAL);
        if (*library) return HARPE_OK;
        const char *reason = dlerror();
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "cannot open the AMD SMI library that %s names: %s",
                          path ? "the caller" : "HARPE_AMDSMI_LIBRARY", reason ? reason : chosen);
    }
    for (size_t i = 0; library_names[i]; i++) {
        *library = dlopen(library_names[i], RTLD_NOW | RTLD_LOCAL);
        if (*library) return HARPE_OK;
    }
    return harpe_fail(error, HARPE_NOT_FOUND,
                      "no AMD SMI library (libamd_smi.so): install ROCm 6.4 or newer");
}

harpe_status harpe_amdsmi_open(const char *path, harpe_amdsmi *out, harpe_error *error) {
    harpe_amdsmi amdsmi = {0};
    harpe_status status = open_library(path, &amdsmi.library, error);
    if (status == HARPE_OK) status = look_up(amdsmi.library, &amdsmi, error);
    if (status != HARPE_OK) {
        harpe_amdsmi_close(&amdsmi);
        return status;
    }
    *out = amdsmi;
    return HARPE_OK;
}

void harpe_amdsmi_close(harpe_amdsmi *amdsmi) {
    if (amdsmi->library) dlclose(amdsmi->library);
    amdsmi->library = NULL;
}

/* ---- Error codes ----------------------------------------------------------------------------- */

typedef struct amdsmi_error {
    int code;
    harpe_status status;
    const char *name;
    const char *advice;
} amdsmi_error;

#define ROW(code, status, advice) \
    { code, status, #code, advice }

static const amdsmi_error errors[] = {
    ROW(AMDSMI_STATUS_INVAL, HARPE_INVALID_ARGUMENT,
        "the driver does not accept this value for this GPU; 'harpe gpus' shows its ranges"),
    ROW(AMDSMI_STATUS_NOT_SUPPORTED, HARPE_NOT_SUPPORTED, "this GPU or its driver cannot do it"),
    ROW(AMDSMI_STATUS_NOT_YET_IMPLEMENTED, HARPE_NOT_SUPPORTED,
        "this version of ROCm cannot do it: update ROCm"),
    ROW(AMDSMI_STATUS_FAIL_LOAD_MODULE, HARPE_UNAVAILABLE,
        "a library of ROCm is missing: reinstall ROCm"),
    ROW(AMDSMI_STATUS_FAIL_LOAD_SYMBOL, HARPE_NOT_SUPPORTED,
        "the library is too old and lacks the function: update ROCm"),
    ROW(AMDSMI_STATUS_DRM_ERROR, HARPE_DRIVER_ERROR, "the kernel driver failed; see 'dmesg'"),
    ROW(AMDSMI_STATUS_API_FAILED, HARPE_DRIVER_ERROR, "the kernel driver failed; see 'dmesg'"),
    ROW(AMDSMI_STATUS_TIMEOUT, HARPE_DRIVER_ERROR,
        "the driver did not answer in time; see 'dmesg'"),
    ROW(AMDSMI_STATUS_RETRY, HARPE_DRIVER_ERROR, "the driver is not ready; try again"),
    ROW(AMDSMI_STATUS_NO_PERM, HARPE_PERMISSION_DENIED,
        "run as root (in a container: root, with /sys writable)"),
    ROW(AMDSMI_STATUS_IO, HARPE_DRIVER_ERROR, "the kernel driver failed; see 'dmesg'"),
    ROW(AMDSMI_STATUS_FILE_ERROR, HARPE_DRIVER_ERROR,
        "a file of the driver below /sys cannot be used; see 'dmesg'"),
    ROW(AMDSMI_STATUS_OUT_OF_RESOURCES, HARPE_OUT_OF_MEMORY, "not enough memory"),
    ROW(AMDSMI_STATUS_INPUT_OUT_OF_BOUNDS, HARPE_INVALID_ARGUMENT,
        "the value is outside the GPU's range; 'harpe gpus' shows it"),
    ROW(AMDSMI_STATUS_INIT_ERROR, HARPE_UNAVAILABLE, "AMD SMI cannot start; see 'dmesg'"),
    ROW(AMDSMI_STATUS_BUSY, HARPE_DRIVER_ERROR, "the GPU is busy; try again"),
    ROW(AMDSMI_STATUS_NOT_FOUND, HARPE_NOT_FOUND, "the driver does not know it"),
    ROW(AMDSMI_STATUS_NOT_INIT, HARPE_DRIVER_ERROR,
        "AMD SMI was shut down by another part of this process"),
    ROW(AMDSMI_STATUS_DRIVER_NOT_LOADED, HARPE_UNAVAILABLE,
        "the amdgpu kernel driver is not loaded: try 'modprobe amdgpu' and see 'dmesg'"),
    ROW(AMDSMI_STATUS_NO_DATA, HARPE_DRIVER_ERROR, "there is no data yet; try again"),
    ROW(AMDSMI_STATUS_UNEXPECTED_DATA, HARPE_DRIVER_ERROR,
        "driver and library do not fit together: update both"),
    ROW(AMDSMI_STATUS_SETTING_UNAVAILABLE, HARPE_NOT_SUPPORTED,
        "this GPU does not have the setting"),
};

void harpe_amdsmi_explain(int code, harpe_status *status, const char **name, const char **advice) {
    *status = code == AMDSMI_STATUS_SUCCESS ? HARPE_OK : HARPE_DRIVER_ERROR;
    *name = "AMD SMI error";
    *advice = "unknown to this version of Harpe; see 'dmesg'";
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].code != code) continue;
        *status = errors[i].status;
        *name = errors[i].name;
        *advice = errors[i].advice;
        return;
    }
}
