/* SPDX-License-Identifier: Apache-2.0 */
/* AMD GPUs through AMD SMI. This file finds its functions at run time, locks clocks, and converts
 * AMD's units (uW, energy counts) to Harpe's. settings.c skips and counts writes. Tested against a
 * scripted library, not yet on a GPU. */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/status.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/wait.h"
#include "gpu/amdsmi_abi.h"
#include "gpu/backend.h"

/* Required functions are never NULL; the table in this file lists them. */
typedef struct harpe_amdsmi {
    void *library;
    amdsmi_status_t (*init)(uint64_t flags);
    amdsmi_status_t (*shut_down)(void);
    amdsmi_status_t (*lib_version)(amdsmi_version_t *version);
    amdsmi_status_t (*sockets)(uint32_t *count, amdsmi_socket_handle *sockets);
    amdsmi_status_t (*processors)(amdsmi_socket_handle socket, uint32_t *count,
                                  amdsmi_processor_handle *processors);
    amdsmi_status_t (*bdf)(amdsmi_processor_handle gpu, amdsmi_bdf_t *bdf);
    amdsmi_status_t (*uuid)(amdsmi_processor_handle gpu, unsigned int *length, char *uuid);
    amdsmi_status_t (*asic_info)(amdsmi_processor_handle gpu, amdsmi_asic_info_t *info);
    amdsmi_status_t (*enumeration)(amdsmi_processor_handle gpu, amdsmi_enumeration_info_t *info);
    amdsmi_status_t (*power_cap)(amdsmi_processor_handle gpu, uint32_t sensor,
                                 amdsmi_power_cap_info_t *info);
    amdsmi_status_t (*set_power_cap)(amdsmi_processor_handle gpu, uint32_t sensor, uint64_t cap_uw);
    amdsmi_status_t (*frequencies)(amdsmi_processor_handle gpu, amdsmi_clk_type_t type,
                                   amdsmi_frequencies_t *out);
    amdsmi_status_t (*clock)(amdsmi_processor_handle gpu, amdsmi_clk_type_t type,
                             amdsmi_clk_info_t *info);
    amdsmi_status_t (*set_clock_limit)(amdsmi_processor_handle gpu, amdsmi_clk_type_t type,
                                       amdsmi_clk_limit_type_t limit, uint64_t mhz);
    amdsmi_status_t (*set_level)(amdsmi_processor_handle gpu, amdsmi_dev_perf_level_t level);
    amdsmi_status_t (*power)(amdsmi_processor_handle gpu, amdsmi_power_info_t *info);
    amdsmi_status_t (*energy)(amdsmi_processor_handle gpu, uint64_t *count, float *resolution_uj,
                              uint64_t *time_ns);
    amdsmi_status_t (*temperature)(amdsmi_processor_handle gpu, amdsmi_temperature_type_t sensor,
                                   amdsmi_temperature_metric_t metric, int64_t *celsius);
} harpe_amdsmi;

/* Guards all calls of the process, because the library is not thread-safe before ROCm 7.2. */
static pthread_mutex_t amdsmi_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Calls a function that the library may lack. If the library lacks it, `*code` becomes
 * AMDSMI_STATUS_FAIL_LOAD_SYMBOL. */
#define HARPE_AMDSMI_CALL(code, amdsmi, function, ...) \
    do { \
        *(code) = AMDSMI_STATUS_FAIL_LOAD_SYMBOL; \
        if ((amdsmi)->function) { \
            harpe_lock(&amdsmi_mutex); \
            *(code) = (int)(amdsmi)->function(__VA_ARGS__); \
            harpe_unlock(&amdsmi_mutex); \
        } \
    } while (0)

/* ---- One GPU's clocks ------------------------------------------------------------------------ */

/* Lists the clocks of an AMD GPU and locks them with AMD's pair of limits. Functions return AMD
 * SMI's codes. */

typedef enum harpe_amdsmi_clock {
    HARPE_AMDSMI_GRAPHICS,
    HARPE_AMDSMI_MEMORY,
    HARPE_AMDSMI_CLOCKS,
} harpe_amdsmi_clock;

/* The two limits of one clock as Harpe has set them. */
typedef struct harpe_amdsmi_limits {
    bool is_set;
    uint32_t minimum_mhz, maximum_mhz;
} harpe_amdsmi_limits;

/* The struct behind a back-end's handle. The GPU's mutex in settings.c guards its limits. */
typedef struct harpe_amdsmi_gpu {
    const harpe_amdsmi *amdsmi;
    amdsmi_processor_handle processor;
    bool are_limits_known; /* true: only these limits hold */
    harpe_amdsmi_limits limits[HARPE_AMDSMI_CLOCKS];
} harpe_amdsmi_gpu;

/* ---- The library ----------------------------------------------------------------------------- */

/* Finds and opens AMD SMI, and looks up its functions with a table. Another table explains its
 * error codes. */

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

/* ---- Opening the library --------------------------------------------------------------------- */

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

static void amdsmi_close(harpe_amdsmi *amdsmi) {
    if (amdsmi->library) dlclose(amdsmi->library);
    amdsmi->library = NULL;
}

/* Opens the library (NULL: $HARPE_AMDSMI_LIBRARY, or else the usual places) and looks up its
 * functions. Does not call amdsmi_init. HARPE_NOT_FOUND: there is no AMD SMI library. */
static harpe_status amdsmi_open(const char *path, harpe_amdsmi *out, harpe_error *error) {
    harpe_amdsmi amdsmi = {0};
    harpe_status status = open_library(path, &amdsmi.library, error);
    if (status == HARPE_OK) status = look_up(amdsmi.library, &amdsmi, error);
    if (status != HARPE_OK) {
        amdsmi_close(&amdsmi);
        return status;
    }
    *out = amdsmi;
    return HARPE_OK;
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

/* Explains an error code, as `explain` of a harpe_backend does. */
static void amdsmi_explain(int code, harpe_status *status, const char **name, const char **advice) {
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

/* Since MI200 the graphics clock accepts any frequency of a range; see amdsmi_read_clocks. */
enum { RANGE_STEP_MHZ = 25, RANGE_LEVELS = 3, CLOCK_MAX_MHZ = 100000 };

static const amdsmi_clk_type_t types[HARPE_AMDSMI_CLOCKS] = {AMDSMI_CLK_TYPE_SYS,
                                                             AMDSMI_CLK_TYPE_MEM};

/* ---- Lists ----------------------------------------------------------------------------------- */

static uint32_t megahertz(uint64_t frequency) {
    return (uint32_t)(frequency >= 1000000 ? frequency / 1000000 : frequency);
}

/* Reads the list of clocks. If the graphics clock accepts any frequency of a range, the driver
 * lists only the two ends and the current clock between them. In this case, the returned list
 * contains the range in steps. The list is allocated, in any order. */
static int amdsmi_read_clocks(const harpe_amdsmi_gpu *gpu, amdsmi_clk_type_t type, uint32_t **out,
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
static int amdsmi_reset_clocks(harpe_amdsmi_gpu *gpu, harpe_amdsmi_clock clock) {
    harpe_amdsmi_clock other =
        clock == HARPE_AMDSMI_GRAPHICS ? HARPE_AMDSMI_MEMORY : HARPE_AMDSMI_GRAPHICS;
    harpe_amdsmi_limits kept = gpu->limits[other];
    int code = free_clocks(gpu);
    if (code || !kept.is_set) return code;
    return write_limits(gpu, other, kept.minimum_mhz, kept.maximum_mhz);
}

/* Locks a clock. First frees limits that another program has set. If one of the two limits is
 * refused, there is no lock. */
static int amdsmi_lock_clocks(harpe_amdsmi_gpu *gpu, harpe_amdsmi_clock clock, uint32_t minimum_mhz,
                              uint32_t maximum_mhz) {
    int code = gpu->are_limits_known ? AMDSMI_STATUS_SUCCESS : amdsmi_reset_clocks(gpu, clock);
    if (code) return code;
    code = write_limits(gpu, clock, minimum_mhz, maximum_mhz);
    if (code) (void)amdsmi_reset_clocks(gpu, clock);
    return code;
}

/* ---- AMD GPUs -------------------------------------------------------------------------------- */

enum { GPUS_MAX = 1024, SENSOR = 0 };

/* ---- State ----------------------------------------------------------------------------------- */

typedef struct amdsmi_state {
    harpe_amdsmi amdsmi;
    int gpu_count;
    harpe_amdsmi_gpu *gpus;
} amdsmi_state;

/* ---- Opening --------------------------------------------------------------------------------- */

static harpe_status fail_start(const char *what, int code, harpe_error *error) {
    harpe_status status = HARPE_DRIVER_ERROR;
    const char *name = NULL;
    const char *advice = NULL;
    amdsmi_explain(code, &status, &name, &advice);
    (void)harpe_fail(error, status, "%s: %s (%d): %s", what, name, code, advice);
    if (error) error->vendor_code = code;
    return status;
}

static harpe_status check_version(const harpe_amdsmi *amdsmi, harpe_error *error) {
    amdsmi_version_t version = {0};
    int code = 0;
    HARPE_AMDSMI_CALL(&code, amdsmi, lib_version, &version);
    if (code) return fail_start("cannot read AMD SMI's version", code, error);
    if (version.first >= AMDSMI_VERSION_OLDEST && version.first <= AMDSMI_VERSION_NEWEST)
        return HARPE_OK;
    return harpe_fail(error, HARPE_UNAVAILABLE,
                      "AMD SMI %" PRIu32
                      " is not known to this version of Harpe, which needs %d or "
                      "%d (ROCm 6.4 to 7)",
                      version.first, AMDSMI_VERSION_OLDEST, AMDSMI_VERSION_NEWEST);
}

/* Appends the GPUs of a socket. */
static int list_socket(amdsmi_state *state, amdsmi_socket_handle socket) {
    amdsmi_processor_handle processors[64];
    uint32_t count = sizeof processors / sizeof processors[0];
    int code = 0;
    HARPE_AMDSMI_CALL(&code, &state->amdsmi, processors, socket, &count, processors);
    if (code) return code;
    for (uint32_t i = 0; i < count && state->gpu_count < GPUS_MAX; i++) {
        state->gpus[state->gpu_count++] =
            (harpe_amdsmi_gpu){.amdsmi = &state->amdsmi, .processor = processors[i]};
    }
    return AMDSMI_STATUS_SUCCESS;
}

static int list_gpus(amdsmi_state *state, amdsmi_socket_handle *sockets) {
    uint32_t count = GPUS_MAX;
    int code = 0;
    HARPE_AMDSMI_CALL(&code, &state->amdsmi, sockets, &count, sockets);
    for (uint32_t i = 0; i < count && i < GPUS_MAX && !code; i++)
        code = list_socket(state, sockets[i]);
    return code;
}

static harpe_status find_gpus(amdsmi_state *state, harpe_error *error) {
    amdsmi_socket_handle *sockets = harpe_calloc(GPUS_MAX, sizeof *sockets);
    state->gpus = harpe_calloc(GPUS_MAX, sizeof *state->gpus);
    harpe_status status = HARPE_OK;
    if (!sockets || !state->gpus) {
        status = harpe_fail_memory(error);
    } else {
        int code = list_gpus(state, sockets);
        if (code) status = fail_start("cannot list AMD GPUs", code, error);
    }
    free(sockets);
    return status;
}

static void close_state(void *opened) {
    amdsmi_state *state = opened;
    harpe_lock(&amdsmi_mutex);
    (void)state->amdsmi.shut_down();
    harpe_unlock(&amdsmi_mutex);
    amdsmi_close(&state->amdsmi);
    free(state->gpus);
    free(state);
}

static harpe_status open_state(const char *library_path, void **out, harpe_error *error) {
    amdsmi_state *state = calloc(1, sizeof *state);
    if (!state) return harpe_fail_memory(error);
    harpe_status status = amdsmi_open(library_path, &state->amdsmi, error);
    if (status != HARPE_OK) {
        free(state);
        return status;
    }
    int code = 0;
    HARPE_AMDSMI_CALL(&code, &state->amdsmi, init, AMDSMI_INIT_AMD_GPUS);
    if (code) {
        amdsmi_close(&state->amdsmi);
        free(state);
        return fail_start("cannot start AMD SMI", code, error);
    }
    status = check_version(&state->amdsmi, error);
    if (status == HARPE_OK) status = find_gpus(state, error);
    if (status != HARPE_OK) {
        close_state(state);
        return status;
    }
    *out = state;
    return HARPE_OK;
}

static void *library(const void *state) { return ((const amdsmi_state *)state)->amdsmi.library; }

static const char *driver_version(const void *state) {
    (void)state;
    return "";
}

static bool is_emulated(const void *state) {
    (void)state;
    return false;
}

static int64_t clock_ns(const void *state) {
    (void)state;
    return harpe_clock_ns();
}

/* ---- Devices --------------------------------------------------------------------------------- */

static int device_count(void *state, int *count) {
    *count = ((amdsmi_state *)state)->gpu_count;
    return AMDSMI_STATUS_SUCCESS;
}

/* Reads UUID and order as HIP reports them, if the library provides them, because
 * ROCR_VISIBLE_DEVICES uses these. */
static int identify(const harpe_amdsmi_gpu *gpu, harpe_backend_device *out) {
    amdsmi_enumeration_info_t info;
    memset(&info, 0, sizeof info);
    int code = 0;
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, enumeration, gpu->processor, &info);
    if (code == AMDSMI_STATUS_SUCCESS) {
        snprintf(out->uuid, sizeof out->uuid, "%.90s", info.hip_uuid);
        out->rank = info.hip_id;
        if (out->uuid[0]) return code;
    }
    unsigned int length = sizeof out->uuid;
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, uuid, gpu->processor, &length, out->uuid);
    out->uuid[sizeof out->uuid - 1] = '\0';
    return code;
}

static int find_device(void *opened, int driver_index, harpe_backend_device *out) {
    amdsmi_state *state = opened;
    if (driver_index < 0 || driver_index >= state->gpu_count) return AMDSMI_STATUS_INVAL;
    harpe_amdsmi_gpu *gpu = &state->gpus[driver_index];
    harpe_backend_device found = {.driver_index = driver_index, .handle = gpu};
    amdsmi_asic_info_t asic;
    memset(&asic, 0, sizeof asic);
    amdsmi_bdf_t bdf = {0};
    int code = 0;
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, asic_info, gpu->processor, &asic);
    if (code) return code;
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, bdf, gpu->processor, &bdf);
    if (code) return code;
    code = identify(gpu, &found);
    if (code) return code;
    snprintf(found.name, sizeof found.name, "%.90s", asic.market_name);
    found.pci = (harpe_pci_address){(unsigned)bdf.bdf.domain_number, (unsigned)bdf.bdf.bus_number,
                                    (unsigned)bdf.bdf.device_number};
    *out = found;
    return AMDSMI_STATUS_SUCCESS;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Reads the power cap. The second half of a two-die GPU has no cap of its own: all its values are
 * 0. */
static int read_cap(void *handle, amdsmi_power_cap_info_t *info) {
    const harpe_amdsmi_gpu *gpu = handle;
    memset(info, 0, sizeof *info);
    int code = 0;
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, power_cap, gpu->processor, SENSOR, info);
    if (!code && info->max_power_cap == 0) code = AMDSMI_STATUS_NOT_SUPPORTED;
    return code;
}

static uint32_t milliwatts(uint64_t microwatts) {
    uint64_t value = microwatts / 1000;
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

static int power_limit_range(void *handle, uint32_t *minimum_mw, uint32_t *maximum_mw) {
    amdsmi_power_cap_info_t info;
    int code = read_cap(handle, &info);
    if (code) return code;
    *minimum_mw = milliwatts(info.min_power_cap);
    *maximum_mw = milliwatts(info.max_power_cap);
    return AMDSMI_STATUS_SUCCESS;
}

static int power_limit(void *handle, uint32_t *limit_mw) {
    amdsmi_power_cap_info_t info;
    int code = read_cap(handle, &info);
    if (!code) *limit_mw = milliwatts(info.power_cap);
    return code;
}

static int default_power_limit(void *handle, uint32_t *limit_mw) {
    amdsmi_power_cap_info_t info;
    int code = read_cap(handle, &info);
    if (!code) *limit_mw = milliwatts(info.default_power_cap);
    return code;
}

/* Reports persistence mode as on, because AMD's driver has no such mode and stays loaded. */
static int persistence_mode(void *handle, bool *is_enabled) {
    (void)handle;
    (void)is_enabled;
    return AMDSMI_STATUS_NOT_SUPPORTED;
}

static int memory_clocks(void *handle, uint32_t **clocks_mhz, size_t *count) {
    return amdsmi_read_clocks(handle, AMDSMI_CLK_TYPE_MEM, clocks_mhz, count);
}

/* Lists the graphics clocks, which are the same for every memory clock. */
static int graphics_clocks(void *handle, uint32_t memory_mhz, uint32_t **clocks_mhz,
                           size_t *count) {
    (void)memory_mhz;
    return amdsmi_read_clocks(handle, AMDSMI_CLK_TYPE_SYS, clocks_mhz, count);
}

static int current_clock(void *handle, amdsmi_clk_type_t type, uint32_t *mhz) {
    const harpe_amdsmi_gpu *gpu = handle;
    amdsmi_clk_info_t info;
    memset(&info, 0, sizeof info);
    int code = 0;
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, clock, gpu->processor, type, &info);
    if (!code) *mhz = info.clk;
    return code;
}

static int current_graphics_clock(void *handle, uint32_t *mhz) {
    return current_clock(handle, AMDSMI_CLK_TYPE_SYS, mhz);
}

static int current_memory_clock(void *handle, uint32_t *mhz) {
    return current_clock(handle, AMDSMI_CLK_TYPE_MEM, mhz);
}

static int read_power(void *handle, amdsmi_power_info_t *info) {
    const harpe_amdsmi_gpu *gpu = handle;
    memset(info, 0, sizeof *info);
    int code = 0;
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, power, gpu->processor, info);
    return code;
}

static bool is_told(uint32_t watts) { return watts < 0xffff; }

static int average_power(void *handle, uint32_t *power_mw) {
    amdsmi_power_info_t info;
    int code = read_power(handle, &info);
    if (!code && !is_told(info.average_socket_power)) code = AMDSMI_STATUS_NOT_SUPPORTED;
    if (!code) *power_mw = info.average_socket_power * 1000;
    return code;
}

/* Reads the power. GPUs before MI300 report only an average; for them, returns the average. */
static int instant_power(void *handle, uint32_t *power_mw) {
    amdsmi_power_info_t info;
    int code = read_power(handle, &info);
    if (code) return code;
    bool is_instant = is_told(info.current_socket_power) && info.current_socket_power > 0;
    uint32_t watts = is_instant ? info.current_socket_power : info.average_socket_power;
    if (!is_told(watts)) return AMDSMI_STATUS_NOT_SUPPORTED;
    *power_mw = watts * 1000;
    return AMDSMI_STATUS_SUCCESS;
}

static int total_energy(void *handle, uint64_t *energy_mj) {
    const harpe_amdsmi_gpu *gpu = handle;
    uint64_t count = 0;
    uint64_t time_ns = 0;
    float resolution_uj = 0;
    int code = 0;
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, energy, gpu->processor, &count, &resolution_uj, &time_ns);
    if (!code && !(resolution_uj > 0 && resolution_uj < 1e6f)) code = AMDSMI_STATUS_NOT_SUPPORTED;
    double energy = (double)count * (double)resolution_uj / 1e3;
    if (!code && energy >= 0x1p63) code = AMDSMI_STATUS_UNEXPECTED_DATA;
    if (!code) *energy_mj = (uint64_t)energy;
    return code;
}

/* Reads the temperature. Data-centre GPUs have no edge sensor, and older GPUs have no hot-spot
 * sensor. */
static int temperature(void *handle, uint32_t *celsius) {
    const harpe_amdsmi_gpu *gpu = handle;
    int64_t value = 0;
    int code = 0;
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, temperature, gpu->processor,
                      AMDSMI_TEMPERATURE_TYPE_HOTSPOT, AMDSMI_TEMP_CURRENT, &value);
    if (code) {
        HARPE_AMDSMI_CALL(&code, gpu->amdsmi, temperature, gpu->processor,
                          AMDSMI_TEMPERATURE_TYPE_EDGE, AMDSMI_TEMP_CURRENT, &value);
    }
    if (!code && (value < 0 || value > 1000)) code = AMDSMI_STATUS_UNEXPECTED_DATA;
    if (!code) *celsius = (uint32_t)value;
    return code;
}

static int throttle_reasons(void *handle, uint64_t *reasons) {
    (void)handle;
    (void)reasons;
    return AMDSMI_STATUS_NOT_SUPPORTED;
}

/* ---- Setting --------------------------------------------------------------------------------- */

static int set_power_limit(void *handle, uint32_t limit_mw) {
    const harpe_amdsmi_gpu *gpu = handle;
    int code = 0;
    HARPE_AMDSMI_CALL(&code, gpu->amdsmi, set_power_cap, gpu->processor, SENSOR,
                      (uint64_t)limit_mw * 1000);
    return code;
}

static int set_persistence_mode(void *handle, bool is_enabled) {
    (void)handle;
    (void)is_enabled;
    return AMDSMI_STATUS_NOT_SUPPORTED;
}

/* Writes a planned frequency to the GPU. */
static int lock_graphics_clocks(void *handle, uint32_t minimum_mhz, uint32_t maximum_mhz) {
    return amdsmi_lock_clocks(handle, HARPE_AMDSMI_GRAPHICS, minimum_mhz, maximum_mhz);
}

static int reset_graphics_clocks(void *handle) {
    return amdsmi_reset_clocks(handle, HARPE_AMDSMI_GRAPHICS);
}

static int lock_memory_clocks(void *handle, uint32_t minimum_mhz, uint32_t maximum_mhz) {
    return amdsmi_lock_clocks(handle, HARPE_AMDSMI_MEMORY, minimum_mhz, maximum_mhz);
}

static int reset_memory_clocks(void *handle) {
    return amdsmi_reset_clocks(handle, HARPE_AMDSMI_MEMORY);
}

/* ---- The table ------------------------------------------------------------------------------- */

const harpe_backend harpe_backend_amdsmi = {
    .name = "amdsmi",
    /* The runtime hides GPUs first. HIP then counts the remaining GPUs. */
    .visible_devices = {{"ROCR_VISIBLE_DEVICES", NULL},
                        {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}},
    .library_variable = "HARPE_AMDSMI_LIBRARY",
    .needs_root = true,
    .open = open_state,
    .close = close_state,
    .library = library,
    .driver_version = driver_version,
    .is_emulated = is_emulated,
    .clock_ns = clock_ns,
    .explain = amdsmi_explain,
    .device_count = device_count,
    .device = find_device,
    .power_limit_range = power_limit_range,
    .power_limit = power_limit,
    .default_power_limit = default_power_limit,
    .persistence_mode = persistence_mode,
    .memory_clocks = memory_clocks,
    .graphics_clocks = graphics_clocks,
    .current_graphics_clock = current_graphics_clock,
    .current_memory_clock = current_memory_clock,
    .instant_power = instant_power,
    .average_power = average_power,
    .total_energy = total_energy,
    .temperature = temperature,
    .throttle_reasons = throttle_reasons,
    .set_power_limit = set_power_limit,
    .set_persistence_mode = set_persistence_mode,
    .lock_graphics_clocks = lock_graphics_clocks,
    .reset_graphics_clocks = reset_graphics_clocks,
    .lock_memory_clocks = lock_memory_clocks,
    .reset_memory_clocks = reset_memory_clocks,
};
