/* SPDX-License-Identifier: Apache-2.0 */
/* A machine's GPUs as a training process counts them: opening a back-end, mapping indices, reading.
 * Stands between the vendors' tables of functions and everything that measures. Changes nothing on
 * a GPU; settings.c does.
 *
 * Order: the driver's own order may change between boots (NVML's documentation), so GPUs are sorted
 * by PCI address first. CUDA's default, FASTEST_FIRST, is a heuristic that is not documented; it is
 * taken to be PCI order as well, which holds when all GPUs are one model. For a mixture where an
 * index decides, the caller's log gets a warning. */
#include "gpu/gpus.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

/* ---- Telling ------------------------------------------------------------------------------ */

static void warn(const harpe_log *log, const char *line) {
    if (log->write) {
        log->write(log->user, HARPE_LOG_WARNING, line);
    }
}

static harpe_status fail_code(const harpe_backend *backend, int code, const char *what,
                              harpe_error *error) {
    harpe_status status = HARPE_DRIVER_ERROR;
    const char *name = "";
    const char *advice = "";
    backend->explain(code, &status, &name, &advice);
    if (status == HARPE_OK) status = HARPE_DRIVER_ERROR; /* a code that failed is no success */
    (void)harpe_fail(error, status, "%s: %s (%d): %s", what, name, code, advice);
    if (error) error->vendor_code = code;
    return status;
}

harpe_status harpe_gpus_fail(const harpe_gpus *gpus, const harpe_gpu *gpu, int code,
                             const char *what, harpe_error *error) {
    char text[256];
    snprintf(text, sizeof text, "GPU %d (%s): %s", gpu->info.index, gpu->info.name, what);
    return fail_code(gpus->backend, code, text, error);
}

harpe_status harpe_gpus_find(const harpe_gpus *gpus, int gpu, harpe_gpu **out, harpe_error *error) {
    if (gpu < 0 || gpu >= gpus->count)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "there is no GPU %d; %d are visible, counted from 0", gpu, gpus->count);
    *out = &gpus->gpus[gpu];
    return HARPE_OK;
}

/* ---- Finding ------------------------------------------------------------------------------ */

static int compare_devices(const void *a, const void *b) {
    const harpe_backend_device *one = a;
    const harpe_backend_device *other = b;
    int order = harpe_pci_address_compare(&one->pci, &other->pci);
    return order ? order
                 : (one->driver_index > other->driver_index) -
                       (one->driver_index < other->driver_index);
}

/* All GPUs of the machine in PCI order. One that cannot be reached (lost, or closed to this process
 * by a cgroup) is left out with a warning, as CUDA leaves it out. */
static harpe_status list_devices(harpe_gpus *gpus, harpe_backend_device **out, size_t *out_count,
                                 harpe_error *error) {
    const harpe_backend *backend = gpus->backend;
    int driver_count = 0;
    int code = backend->device_count(gpus->state, &driver_count);
    if (code) return fail_code(backend, code, "cannot count GPUs", error);
    harpe_backend_device *devices = harpe_calloc((size_t)driver_count, sizeof *devices);
    if (!devices) return harpe_fail_memory(error);
    size_t count = 0;
    harpe_error reason = {.message = "the driver is loaded but finds no GPU (see 'lspci')"};
    harpe_status status = HARPE_UNAVAILABLE;
    for (int i = 0; i < driver_count; i++) {
        code = backend->device(gpus->state, i, &devices[count]);
        if (code == 0) {
            count++;
            continue;
        }
        char what[64];
        snprintf(what, sizeof what, "the driver's GPU %d cannot be used", i);
        status = fail_code(backend, code, what, &reason);
        warn(&gpus->log, reason.message);
    }
    if (count == 0) {
        free(devices);
        status = harpe_fail(error, status, "%s", reason.message);
        if (error) error->vendor_code = reason.vendor_code;
        return status;
    }
    qsort(devices, count, sizeof *devices, compare_devices);
    gpus->driver_count = driver_count;
    *out = devices;
    *out_count = count;
    return HARPE_OK;
}

static void warn_about_order(const harpe_gpus *gpus, const harpe_backend_device *devices,
                             size_t count) {
    for (size_t i = 1; i < count; i++) {
        if (strcmp(devices[i].name, devices[0].name) == 0) continue;
        warn(&gpus->log, "GPUs of several models: which one is index 0 depends on CUDA's own idea "
                         "of speed; set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID");
        return;
    }
}

static const char *option_or_variable(const char *option, const char *variable) {
    return option ? option : getenv(variable);
}

/* Positions in `devices` that are visible. */
static harpe_status choose_visible(const harpe_gpus *gpus, const harpe_gpus_options *options,
                                   const harpe_backend_device *devices, size_t device_count,
                                   int *indices, size_t *count, harpe_error *error) {
    const char *variable = gpus->backend->visible_devices_variable;
    const char *order =
        option_or_variable(options->device_order, gpus->backend->device_order_variable);
    const char *visible = option_or_variable(options->visible_devices, variable);
    bool is_pci_order = false;
    if (!harpe_device_order_parse(order, &is_pci_order))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: expected FASTEST_FIRST or PCI_BUS_ID, found '%.80s'",
                          gpus->backend->device_order_variable, order);
    bool is_all = options->visible_devices && strcmp(options->visible_devices, "all") == 0;
    bool index_decides = !is_all && !(visible && strncmp(visible, "GPU-", 4) == 0);
    if (!is_pci_order && index_decides) {
        warn_about_order(gpus, devices, device_count);
    }
    if (!visible || is_all) {
        for (size_t i = 0; i < device_count; i++) {
            indices[i] = (int)i;
        }
        *count = device_count;
        return HARPE_OK;
    }
    const char **uuids = harpe_calloc(device_count, sizeof *uuids);
    if (!uuids) return harpe_fail_memory(error);
    for (size_t i = 0; i < device_count; i++) {
        uuids[i] = devices[i].uuid;
    }
    size_t found = 0;
    harpe_status status = harpe_visible_parse(visible, uuids, device_count, indices, &found, error);
    free(uuids);
    if (status != HARPE_OK) return status;
    if (found == 0)
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "%s='%.80s' hides all of the machine's %zu GPUs", variable, visible,
                          device_count);
    *count = found;
    return HARPE_OK;
}

static void adopt(harpe_gpu *gpu, int index, const harpe_backend_device *device) {
    gpu->info.index = index;
    gpu->info.driver_index = device->driver_index;
    memcpy(gpu->info.name, device->name, sizeof gpu->info.name);
    memcpy(gpu->info.uuid, device->uuid, sizeof gpu->info.uuid);
    snprintf(gpu->info.pci_bus_id, sizeof gpu->info.pci_bus_id, "%08X:%02X:%02X.0",
             device->pci.domain, device->pci.bus, device->pci.device);
    gpu->handle = device->handle;
    gpu->is_mig_enabled = device->is_mig_enabled;
    pthread_mutex_init(&gpu->mutex, NULL);
}

static harpe_status find_gpus(harpe_gpus *gpus, const harpe_gpus_options *options,
                              harpe_error *error) {
    harpe_backend_device *devices = NULL;
    size_t device_count = 0;
    size_t visible_count = 0;
    harpe_status status = list_devices(gpus, &devices, &device_count, error);
    if (status != HARPE_OK) return status;
    int *indices = harpe_calloc(device_count, sizeof *indices);
    if (!indices) {
        status = harpe_fail_memory(error);
        goto done;
    }
    status = choose_visible(gpus, options, devices, device_count, indices, &visible_count, error);
    if (status != HARPE_OK) goto done;
    gpus->gpus = harpe_calloc(visible_count, sizeof *gpus->gpus);
    if (!gpus->gpus) {
        status = harpe_fail_memory(error);
        goto done;
    }
    for (size_t i = 0; i < visible_count; i++) {
        adopt(&gpus->gpus[i], (int)i, &devices[indices[i]]);
    }
    gpus->count = (int)visible_count;
done:
    free(indices);
    free(devices);
    return status;
}

/* ---- Opening ------------------------------------------------------------------------------ */

static harpe_status open_backend(const harpe_backend *backend, const harpe_gpus_options *options,
                                 harpe_gpus **out, harpe_error *error) {
    harpe_gpus *gpus = calloc(1, sizeof *gpus);
    if (!gpus) return harpe_fail_memory(error);
    gpus->backend = backend;
    gpus->log = options->log;
    harpe_status status = backend->open(options->library_path, &gpus->state, error);
    if (status == HARPE_OK) {
        status = find_gpus(gpus, options, error);
    }
    if (status != HARPE_OK) {
        harpe_gpus_close(gpus);
        return status;
    }
    *out = gpus;
    return HARPE_OK;
}

harpe_status harpe_gpus_open(const harpe_gpus_options *options, harpe_gpus **out,
                             harpe_error *error) {
    static const harpe_gpus_options defaults = {0};
    if (!out) return harpe_fail(error, HARPE_INVALID_ARGUMENT, "harpe_gpus_open: no output given");
    /* Of several failures, the first back-end's is told: that of the vendor most people have. */
    harpe_error *next_error = error;
    harpe_status first = HARPE_OK;
    for (size_t i = 0; harpe_backends[i]; i++) {
        harpe_status status =
            open_backend(harpe_backends[i], options ? options : &defaults, out, next_error);
        if (status == HARPE_OK) return HARPE_OK;
        if (first == HARPE_OK) first = status;
        if (status != HARPE_UNAVAILABLE) return first;
        next_error = NULL;
    }
    return first;
}

void harpe_gpus_close(harpe_gpus *gpus) {
    if (!gpus) return;
    for (int i = 0; i < gpus->count; i++) {
        pthread_mutex_destroy(&gpus->gpus[i].mutex);
    }
    if (gpus->state) {
        gpus->backend->close(gpus->state);
    }
    free(gpus->gpus);
    free(gpus);
}

/* ---- What is there ------------------------------------------------------------------------ */

int harpe_gpus_count(const harpe_gpus *gpus) { return gpus->count; }

int harpe_gpus_driver_count(const harpe_gpus *gpus) { return gpus->driver_count; }

const harpe_gpu_info *harpe_gpu_info_at(const harpe_gpus *gpus, int gpu) {
    return gpu >= 0 && gpu < gpus->count ? &gpus->gpus[gpu].info : NULL;
}

bool harpe_gpu_mig_is_enabled(const harpe_gpus *gpus, int gpu) {
    return gpu >= 0 && gpu < gpus->count && gpus->gpus[gpu].is_mig_enabled;
}

const char *harpe_gpus_backend_name(const harpe_gpus *gpus) { return gpus->backend->name; }

const char *harpe_gpus_driver_version(const harpe_gpus *gpus) {
    return gpus->backend->driver_version(gpus->state);
}

bool harpe_gpus_are_emulated(const harpe_gpus *gpus) {
    return gpus->backend->is_emulated(gpus->state);
}

int64_t harpe_gpus_clock_ns(const harpe_gpus *gpus) { return gpus->backend->clock_ns(gpus->state); }

harpe_status harpe_gpus_check_same_model(const harpe_gpus *gpus, harpe_error *error) {
    const harpe_gpu *other = NULL;
    for (int i = 1; i < gpus->count && !other; i++) {
        if (strcmp(gpus->gpus[i].info.name, gpus->gpus[0].info.name) != 0) other = &gpus->gpus[i];
    }
    if (!other) return HARPE_OK;
    harpe_text names = {0};
    for (int i = 0; i < gpus->count; i++) {
        harpe_text_printf(&names, "%s%d %s", i ? ", " : "", i, gpus->gpus[i].info.name);
    }
    harpe_status status =
        harpe_fail(error, HARPE_INVALID_INPUT,
                   "the GPUs are not all one model (%.700s): choose those of one model with %s",
                   names.data && !names.failed ? names.data : other->info.name,
                   gpus->backend->visible_devices_variable);
    harpe_text_free(&names);
    return status;
}

/* ---- Reading ------------------------------------------------------------------------------ */

/* Outputs stay untouched on failure because back-ends leave them so; a driver might not, so values
 * pass through locals here. */

#define READ_ONE(type, function, output, what) \
    do { \
        harpe_gpu *found = NULL; \
        type value = 0; \
        harpe_status status = harpe_gpus_find(gpus, gpu, &found, error); \
        if (status != HARPE_OK) return status; \
        int code = gpus->backend->function(found->handle, &value); \
        if (code) return harpe_gpus_fail(gpus, found, code, what, error); \
        *(output) = value; \
        return HARPE_OK; \
    } while (0)

harpe_status harpe_gpu_power_limit_range(harpe_gpus *gpus, int gpu, uint32_t *minimum_mw,
                                         uint32_t *maximum_mw, harpe_error *error) {
    harpe_gpu *found = NULL;
    harpe_status status = harpe_gpus_find(gpus, gpu, &found, error);
    if (status != HARPE_OK) return status;
    uint32_t minimum = 0;
    uint32_t maximum = 0;
    int code = gpus->backend->power_limit_range(found->handle, &minimum, &maximum);
    if (code) return harpe_gpus_fail(gpus, found, code, "reading the power limit's range", error);
    *minimum_mw = minimum;
    *maximum_mw = maximum;
    return HARPE_OK;
}

harpe_status harpe_gpu_power_limit(harpe_gpus *gpus, int gpu, uint32_t *limit_mw,
                                   harpe_error *error) {
    READ_ONE(uint32_t, power_limit, limit_mw, "reading the power limit");
}

harpe_status harpe_gpu_default_power_limit(harpe_gpus *gpus, int gpu, uint32_t *limit_mw,
                                           harpe_error *error) {
    READ_ONE(uint32_t, default_power_limit, limit_mw, "reading the default power limit");
}

harpe_status harpe_gpu_persistence_mode(harpe_gpus *gpus, int gpu, bool *is_enabled,
                                        harpe_error *error) {
    READ_ONE(bool, persistence_mode, is_enabled, "reading persistence mode");
}

harpe_status harpe_gpu_instant_power(harpe_gpus *gpus, int gpu, uint32_t *power_mw,
                                     harpe_error *error) {
    READ_ONE(uint32_t, instant_power, power_mw, "reading the power");
}

harpe_status harpe_gpu_average_power(harpe_gpus *gpus, int gpu, uint32_t *power_mw,
                                     harpe_error *error) {
    READ_ONE(uint32_t, average_power, power_mw, "reading the average power");
}

harpe_status harpe_gpu_total_energy(harpe_gpus *gpus, int gpu, uint64_t *energy_mj,
                                    harpe_error *error) {
    READ_ONE(uint64_t, total_energy, energy_mj, "reading the energy counter");
}

harpe_status harpe_gpu_temperature(harpe_gpus *gpus, int gpu, uint32_t *celsius,
                                   harpe_error *error) {
    READ_ONE(uint32_t, temperature, celsius, "reading the temperature");
}

harpe_status harpe_gpu_throttle_reasons(harpe_gpus *gpus, int gpu, uint64_t *reasons,
                                        harpe_error *error) {
    READ_ONE(uint64_t, throttle_reasons, reasons, "reading why clocks are throttled");
}

harpe_status harpe_gpu_current_clocks(harpe_gpus *gpus, int gpu, uint32_t *graphics_mhz,
                                      uint32_t *memory_mhz, harpe_error *error) {
    harpe_gpu *found = NULL;
    harpe_status status = harpe_gpus_find(gpus, gpu, &found, error);
    if (status != HARPE_OK) return status;
    uint32_t graphics = 0;
    uint32_t memory = 0;
    int code = 0;
    if (graphics_mhz) code = gpus->backend->current_graphics_clock(found->handle, &graphics);
    if (!code && memory_mhz) code = gpus->backend->current_memory_clock(found->handle, &memory);
    if (code) return harpe_gpus_fail(gpus, found, code, "reading the current clocks", error);
    if (graphics_mhz) *graphics_mhz = graphics;
    if (memory_mhz) *memory_mhz = memory;
    return HARPE_OK;
}

/* ---- Lists of clocks ---------------------------------------------------------------------- */

static int compare_descending(const void *a, const void *b) {
    uint32_t one = *(const uint32_t *)a;
    uint32_t other = *(const uint32_t *)b;
    return (one < other) - (one > other);
}

/* Highest first, each once. */
static size_t sort_clocks(uint32_t *clocks, size_t count) {
    qsort(clocks, count, sizeof *clocks, compare_descending);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || clocks[i] != clocks[kept - 1]) {
            clocks[kept++] = clocks[i];
        }
    }
    return kept;
}

harpe_status harpe_gpu_memory_clocks(harpe_gpus *gpus, int gpu, uint32_t **clocks_mhz,
                                     size_t *count, harpe_error *error) {
    harpe_gpu *found = NULL;
    harpe_status status = harpe_gpus_find(gpus, gpu, &found, error);
    if (status != HARPE_OK) return status;
    uint32_t *clocks = NULL;
    size_t listed = 0;
    int code = gpus->backend->memory_clocks(found->handle, &clocks, &listed);
    if (code) return harpe_gpus_fail(gpus, found, code, "listing memory clocks", error);
    *count = sort_clocks(clocks, listed);
    *clocks_mhz = clocks;
    return HARPE_OK;
}

harpe_status harpe_gpu_graphics_clocks(harpe_gpus *gpus, int gpu, uint32_t memory_mhz,
                                       uint32_t **clocks_mhz, size_t *count, harpe_error *error) {
    harpe_gpu *found = NULL;
    harpe_status status = harpe_gpus_find(gpus, gpu, &found, error);
    if (status != HARPE_OK) return status;
    uint32_t *clocks = NULL;
    size_t listed = 0;
    int code = gpus->backend->graphics_clocks(found->handle, memory_mhz, &clocks, &listed);
    if (code) {
        char what[96];
        snprintf(what, sizeof what, "listing graphics clocks at a memory clock of %u MHz",
                 memory_mhz);
        return harpe_gpus_fail(gpus, found, code, what, error);
    }
    *count = sort_clocks(clocks, listed);
    *clocks_mhz = clocks;
    return HARPE_OK;
}
