/* SPDX-License-Identifier: Apache-2.0 */
/* AMD GPUs through AMD SMI. amdsmi_library.c finds its functions at run time and locks
 * clocks, and this file converts AMD's units (uW, energy counts) to Harpe's.
 * settings.c skips and counts writes. Tested against a scripted library, not yet on a GPU. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"
#include "gpu/amdsmi_library.h"
#include "gpu/backend.h"

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
    harpe_amdsmi_explain(code, &status, &name, &advice);
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
    harpe_lock(&harpe_amdsmi_mutex);
    (void)state->amdsmi.shut_down();
    harpe_unlock(&harpe_amdsmi_mutex);
    harpe_amdsmi_close(&state->amdsmi);
    free(state->gpus);
    free(state);
}

static harpe_status open_state(const char *library_path, void **out, harpe_error *error) {
    amdsmi_state *state = calloc(1, sizeof *state);
    if (!state) return harpe_fail_memory(error);
    harpe_status status = harpe_amdsmi_open(library_path, &state->amdsmi, error);
    if (status != HARPE_OK) {
        free(state);
        return status;
    }
    int code = 0;
    HARPE_AMDSMI_CALL(&code, &state->amdsmi, init, AMDSMI_INIT_AMD_GPUS);
    if (code) {
        harpe_amdsmi_close(&state->amdsmi);
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
    return harpe_amdsmi_read_clocks(handle, AMDSMI_CLK_TYPE_MEM, clocks_mhz, count);
}

/* Lists the graphics clocks, which are the same for every memory clock. */
static int graphics_clocks(void *handle, uint32_t memory_mhz, uint32_t **clocks_mhz,
                           size_t *count) {
    (void)memory_mhz;
    return harpe_amdsmi_read_clocks(handle, AMDSMI_CLK_TYPE_SYS, clocks_mhz, count);
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
    return harpe_amdsmi_lock_clocks(handle, HARPE_AMDSMI_GRAPHICS, minimum_mhz, maximum_mhz);
}

static int reset_graphics_clocks(void *handle) {
    return harpe_amdsmi_reset_clocks(handle, HARPE_AMDSMI_GRAPHICS);
}

static int lock_memory_clocks(void *handle, uint32_t minimum_mhz, uint32_t maximum_mhz) {
    return harpe_amdsmi_lock_clocks(handle, HARPE_AMDSMI_MEMORY, minimum_mhz, maximum_mhz);
}

static int reset_memory_clocks(void *handle) {
    return harpe_amdsmi_reset_clocks(handle, HARPE_AMDSMI_MEMORY);
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
    .explain = harpe_amdsmi_explain,
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
