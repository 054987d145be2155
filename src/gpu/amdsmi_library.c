/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and opens AMD SMI, and looks up its functions with a table. Another table explains its
 * error codes. backend_amdsmi.c calls the functions that act on a GPU. */
#include "gpu/amdsmi_library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"

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

/* ---- Clocks ---------------------------------------------------------------------------------- */

/* Locks the clocks of AMD GPUs. In AMD's interface each clock has two limits, written by two calls,
 * and one call frees all clocks. From these calls this code makes one lock for each clock. Each
 * lock can be reset on its own. */

/* Since MI200 the graphics clock accepts any frequency of a range; see harpe_amdsmi_read_clocks. */
enum { RANGE_STEP_MHZ = 25, RANGE_LEVELS = 3, CLOCK_MAX_MHZ = 100000 };

static const amdsmi_clk_type_t types[HARPE_AMDSMI_CLOCKS] = {AMDSMI_CLK_TYPE_SYS,
                                                             AMDSMI_CLK_TYPE_MEM};

/* ---- Lists ----------------------------------------------------------------------------------- */

static uint32_t megahertz(uint64_t frequency) {
    return (uint32_t)(frequency >= 1000000 ? frequency / 1000000 : frequency);
}

/* Reads the list of clocks. If the graphics clock accepts any frequency of a range, the driver
 * lists only the two ends and the current clock between them. In this case, the returned list
 * contains the range in steps. */
int harpe_amdsmi_read_clocks(const harpe_amdsmi_gpu *gpu, amdsmi_clk_type_t type, uint32_t **out,
                             size_t *out_count) {
    amdsmi_frequencies_t listed;
    memset(&listed, 0, sizeof listed);
    int code = 0;
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, frequencies, gpu->processor, type, &listed);
    if (code) return code;
    uint32_t first = listed.has_deep_sleep ? 1 : 0;
    if (listed.num_supported <= first || listed.num_supported > AMDSMI_MAX_NUM_FREQUENCIES)
        return AMDSMI_STATUS_NOT_SUPPORTED;
    uint32_t lowest = UINT32_MAX;
    uint32_t highest = 0;
    for (uint32_t i = first; i < listed.num_supported; i++) {
        uint32_t mhz = megahertz(listed.frequency[i]);
        lowest = mhz < lowest ? mhz : lowest;
        highest = mhz > highest ? mhz : highest;
    }
    if (highest > CLOCK_MAX_MHZ) return AMDSMI_STATUS_UNEXPECTED_DATA;
    bool is_range = type == AMDSMI_CLK_TYPE_SYS && listed.num_supported - first <= RANGE_LEVELS;
    size_t count = listed.num_supported - first;
    if (is_range) count = (highest - lowest + RANGE_STEP_MHZ - 1) / RANGE_STEP_MHZ + 1;
    uint32_t *clocks = harpe_calloc(count, sizeof *clocks);
    if (!clocks) return AMDSMI_STATUS_OUT_OF_RESOURCES;
    for (size_t i = 0; i < count; i++) {
        uint32_t below = (uint32_t)i * RANGE_STEP_MHZ;
        clocks[i] = !is_range                  ? megahertz(listed.frequency[first + i])
                    : below < highest - lowest ? highest - below
                                               : lowest;
    }
    *out = clocks;
    *out_count = count;
    return AMDSMI_STATUS_SUCCESS;
}

/* ---- Locks ----------------------------------------------------------------------------------- */

/* Frees all clocks of the GPU, because AMD has no call that frees a single clock. */
static int free_clocks(harpe_amdsmi_gpu *gpu) {
    int code = 0;
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, set_level, gpu->processor, AMDSMI_DEV_PERF_LEVEL_AUTO);
    gpu->are_limits_known = code == AMDSMI_STATUS_SUCCESS;
    if (gpu->are_limits_known) memset(gpu->limits, 0, sizeof gpu->limits);
    return code;
}

/* Writes the two limits in an order that never puts the minimum above the maximum: first the
 * maximum if the new range is above the old one, and first the minimum otherwise. For this, Harpe
 * must know the old range. */
static int write_limits(harpe_amdsmi_gpu *gpu, harpe_amdsmi_clock clock, uint32_t minimum_mhz,
                        uint32_t maximum_mhz) {
    harpe_amdsmi_limits *limits = &gpu->limits[clock];
    bool is_above = limits->is_set && minimum_mhz > limits->maximum_mhz;
    int code = 0;
    gpu->are_limits_known = false; /* until both are written */
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, set_clock_limit, gpu->processor, types[clock],
                      is_above ? AMDSMI_CLK_LIMIT_MAX : AMDSMI_CLK_LIMIT_MIN,
                      is_above ? maximum_mhz : minimum_mhz);
    if (code) return code;
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, set_clock_limit, gpu->processor, types[clock],
                      is_above ? AMDSMI_CLK_LIMIT_MIN : AMDSMI_CLK_LIMIT_MAX,
                      is_above ? minimum_mhz : maximum_mhz);
    if (code) return code;
    gpu->are_limits_known = true;
    *limits = (harpe_amdsmi_limits){true, minimum_mhz, maximum_mhz};
    return AMDSMI_STATUS_SUCCESS;
}

/* Frees all clocks, then locks the other clock again if it was locked. */
int harpe_amdsmi_reset_clocks(harpe_amdsmi_gpu *gpu, harpe_amdsmi_clock clock) {
    harpe_amdsmi_clock other =
        clock == HARPE_AMDSMI_GRAPHICS ? HARPE_AMDSMI_MEMORY : HARPE_AMDSMI_GRAPHICS;
    harpe_amdsmi_limits kept = gpu->limits[other];
    int code = free_clocks(gpu);
    if (code || !kept.is_set) return code;
    return write_limits(gpu, other, kept.minimum_mhz, kept.maximum_mhz);
}

/* Locks a clock. First frees limits that another program has set. If one of the two limits is
 * refused, there is no lock. */
int harpe_amdsmi_lock_clocks(harpe_amdsmi_gpu *gpu, harpe_amdsmi_clock clock, uint32_t minimum_mhz,
                             uint32_t maximum_mhz) {
    int code =
        gpu->are_limits_known ? AMDSMI_STATUS_SUCCESS : harpe_amdsmi_reset_clocks(gpu, clock);
    if (code) return code;
    code = write_limits(gpu, clock, minimum_mhz, maximum_mhz);
    if (code) (void)harpe_amdsmi_reset_clocks(gpu, clock);
    return code;
}
