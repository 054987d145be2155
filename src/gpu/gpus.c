/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a back-end and reads from its GPUs, numbered as the training process counts them.
 * Everything that measures uses this file instead of a vendor's table of functions. settings.c
 * changes the GPUs. */
#include "gpu/gpus.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/possible.h"
#include "base/text.h"
#include "gpu/backend.h"
#include "gpu/gpus_internal.h"

/* ---- Telling --------------------------------------------------------------------------------- */

/* Fails with "<what>: NVML_ERROR_GPU_IS_LOST (15): <advice>" and the status of the code. */
static harpe_status fail_code(const harpe_backend *backend, int code, const char *what,
                              harpe_error *error) {
    harpe_status status = HARPE_DRIVER_ERROR;
    const char *name = "";
    const char *advice = "";
    backend->explain(code, &status, &name, &advice);
    if (status == HARPE_OK) status = HARPE_DRIVER_ERROR; /* a failed code must not become success */
    (void)harpe_fail(error, status, "%s: %s (%d): %s", what, name, code, advice);
    if (error) error->vendor_code = code;
    return status;
}

harpe_status harpe_gpus_fail(const harpe_gpus *gpus, harpe_gpu *gpu, int code, const char *what,
                             harpe_error *error) {
    char text[256];
    snprintf(text, sizeof text, "GPU %d (%s): %s", gpu->info.index, gpu->info.name, what);
    harpe_status status = fail_code(gpus->backend, code, text, error);
    if (status != HARPE_GPU_LOST) return status;
    atomic_store(&gpu->is_lost, true);
    atomic_store(&gpu->was_lost, true);
    return status;
}

int harpe_gpus_find_uuid(const harpe_gpus *gpus, const char *uuid) {
    for (int i = 0; i < gpus->count; i++)
        if (strcmp(gpus->gpus[i].info.uuid, uuid) == 0) return i;
    return -1;
}

harpe_status harpe_gpus_find(const harpe_gpus *gpus, int gpu, harpe_gpu **out, harpe_error *error) {
    if (gpu < 0 || gpu >= gpus->count)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "there is no GPU %d; %d are visible, counted from 0", gpu, gpus->count);
    *out = &gpus->gpus[gpu];
    return HARPE_OK;
}

/* ---- Backends -------------------------------------------------------------------------------- */

/* The table of GPU vendors, which are tried in order until one has a GPU. To add a vendor, write a
 * file backend_<vendor>.c and add a row here; nothing else changes. */

const harpe_backend *const harpe_backends[] = {
    &harpe_backend_nvml,
    &harpe_backend_amdsmi,
    NULL,
};

/* ---- Finding GPUs ---------------------------------------------------------------------------- */

/* Finds the GPUs of the machine, their order, and the GPUs that this process sees. Runs once, when
 * a back-end is opened.
 *
 * The driver's order may change between boots (NVML's documentation). So GPUs are sorted by PCI
 * address, or by the vendor's own rank if the driver reports one. CUDA's default order,
 * FASTEST_FIRST, is an undocumented heuristic. Harpe treats this order as PCI order, which is
 * correct if all GPUs are the same model. On a machine with different models, a warning is logged
 * if an index chooses a GPU. */

/* ---- Listing --------------------------------------------------------------------------------- */

static int compare_devices(const void *a, const void *b) {
    const harpe_backend_device *one = a;
    const harpe_backend_device *other = b;
    if (one->rank != other->rank) return one->rank < other->rank ? -1 : 1;
    int order = harpe_pci_address_compare(&one->pci, &other->pci);
    return order ? order
                 : (one->driver_index > other->driver_index) -
                       (one->driver_index < other->driver_index);
}

static bool is_found(const harpe_backend_device *devices, size_t count, const char *uuid) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(devices[i].uuid, uuid) == 0) return true;
    return false;
}

/* Finds the GPUs that a list names by their whole UUIDs, without a look at the others: a machine
 * may have thousands. Returns 0 if the list needs that look. */
static size_t find_named(const harpe_gpus *gpus, const char *text, harpe_backend_device *devices,
                         size_t room) {
    const harpe_backend *backend = gpus->backend;
    size_t count = 0;
    if (!backend->index_of) return 0;
    for (const char *cursor = text; cursor; cursor = strchr(cursor, ',')) {
        char uuid[sizeof devices->uuid];
        int driver_index = 0;
        cursor += cursor != text; /* skips the comma */
        size_t length = strcspn(cursor, ",");
        if (!harpe_visible_is_uuid(cursor, length) || count == room) return 0;
        snprintf(uuid, sizeof uuid, "%.*s", (int)length, cursor);
        if (is_found(devices, count, uuid) || backend->index_of(gpus->state, uuid, &driver_index) ||
            backend->device(gpus->state, driver_index, &devices[count]) ||
            strcmp(devices[count].uuid, uuid) != 0)
            return 0;
        count++;
    }
    return count;
}

/* Lists all GPUs of the machine in their order. A GPU that cannot be reached (lost, or closed to
 * this process by a cgroup) is left out with a warning, as CUDA does. `named` (may be NULL) is the
 * list of GPUs that the caller wants. */
static harpe_status list_devices(harpe_gpus *gpus, const char *named, harpe_backend_device **out,
                                 size_t *out_count, harpe_error *error) {
    const harpe_backend *backend = gpus->backend;
    int driver_count = 0;
    int code = backend->device_count(gpus->state, &driver_count);
    if (code) return fail_code(backend, code, "cannot count GPUs", error);
    harpe_backend_device *devices = harpe_calloc((size_t)driver_count, sizeof *devices);
    if (!devices) return harpe_fail_memory(error);
    size_t count = named ? find_named(gpus, named, devices, (size_t)driver_count) : 0;
    bool is_named = count > 0;
    harpe_error reason = {.message = "the driver is loaded but finds no GPU (see 'lspci')"};
    harpe_status status = HARPE_UNAVAILABLE;
    for (int i = 0; i < driver_count && !is_named; i++) {
        code = backend->device(gpus->state, i, &devices[count]);
        if (code == 0) {
            count++;
            continue;
        }
        char what[64];
        snprintf(what, sizeof what, "the driver's GPU %d cannot be used", i);
        status = fail_code(backend, code, what, &reason);
        if (status == HARPE_GPU_LOST && i < gpus->first_left_out) gpus->first_left_out = i;
        harpe_log_line(&gpus->log, HARPE_LOG_WARNING, "%s", reason.message);
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

/* ---- Choosing -------------------------------------------------------------------------------- */

/* Returns the text of a variable or of its substitute. `*name` receives the name of the variable
 * that was used. */
static const char *read_variable(const harpe_visible_variable *variable, const char **name) {
    *name = variable->name;
    const char *text = getenv(variable->name);
    if (text || !variable->other_name) return text;
    *name = variable->other_name;
    return getenv(variable->other_name);
}

/* Keeps the devices that `text` chooses, in the order of `text`. `text` is the value of the
 * variable `name`, or of an option if `name` is NULL. */
static harpe_status choose(const char *name, const char *text, harpe_backend_device *devices,
                           size_t *count, harpe_error *error) {
    harpe_status status = HARPE_OK;
    size_t found = 0;
    const char **uuids = harpe_calloc(*count, sizeof *uuids);
    int *indices = harpe_calloc(*count, sizeof *indices);
    harpe_backend_device *chosen = harpe_calloc(*count, sizeof *chosen);
    if (!uuids || !indices || !chosen) {
        status = harpe_fail_memory(error);
        goto done;
    }
    for (size_t i = 0; i < *count; i++)
        uuids[i] = devices[i].uuid;
    status = harpe_visible_parse(text, uuids, *count, indices, &found, error);
    if (status != HARPE_OK) goto done;
    if (found == 0) {
        status =
            name ? harpe_fail(error, HARPE_UNAVAILABLE,
                              "%s='%.80s' hides all of the machine's %zu GPUs", name, text, *count)
                 : harpe_fail(error, HARPE_UNAVAILABLE,
                              "'%.80s' names none of the machine's %zu GPUs", text, *count);
        goto done;
    }
    for (size_t i = 0; i < found; i++)
        chosen[i] = devices[indices[i]];
    memcpy(devices, chosen, found * sizeof *devices);
    *count = found;
done:
    free(chosen);
    free(indices);
    free(uuids);
    return status;
}

static harpe_status choose_all(const harpe_backend *backend, const harpe_gpus_options *options,
                               harpe_backend_device *devices, size_t *count, harpe_error *error) {
    const char *option = options->visible_devices;
    if (option && strcmp(option, "all") == 0) return HARPE_OK;
    if (option) return choose(NULL, option, devices, count, error);
    harpe_status status = HARPE_OK;
    for (size_t i = 0; backend->visible_devices[i].name && status == HARPE_OK; i++) {
        const char *name = NULL;
        const char *text = read_variable(&backend->visible_devices[i], &name);
        if (text) status = choose(name, text, devices, count, error);
    }
    return status;
}

/* ---- Order ----------------------------------------------------------------------------------- */

static void warn_about_order(const harpe_gpus *gpus, const harpe_backend_device *devices,
                             size_t count) {
    for (size_t i = 1; i < count; i++) {
        if (strcmp(devices[i].name, devices[0].name) == 0) continue;
        harpe_log_line(&gpus->log, HARPE_LOG_WARNING,
                       "the GPUs are of several models, and CUDA orders them by an estimate "
                       "of their speed; set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID");
        return;
    }
}

/* Warns if an index chooses a GPU and the order of the GPUs is uncertain. */
static harpe_status check_order(const harpe_gpus *gpus, const harpe_gpus_options *options,
                                const harpe_backend_device *devices, size_t count,
                                harpe_error *error) {
    const harpe_backend *backend = gpus->backend;
    if (!backend->device_order_variable) return HARPE_OK;
    const char *order =
        options->device_order ? options->device_order : getenv(backend->device_order_variable);
    bool is_pci_order = false;
    if (!harpe_device_order_parse(order, &is_pci_order))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: expected FASTEST_FIRST or PCI_BUS_ID, found '%.80s'",
                          backend->device_order_variable, order);
    const char *name = NULL;
    const char *visible = options->visible_devices
                              ? options->visible_devices
                              : read_variable(&backend->visible_devices[0], &name);
    bool is_index_free = visible && (strncmp(visible, "GPU-", 4) == 0 ||
                                     (options->visible_devices && strcmp(visible, "all") == 0));
    if (!is_pci_order && !is_index_free) warn_about_order(gpus, devices, count);
    return HARPE_OK;
}

/* Lists the GPUs that this process sees, in its order, and sets driver_count. The caller frees the
 * list. */
static harpe_status list_visible(harpe_gpus *gpus, const harpe_gpus_options *options,
                                 harpe_backend_device **out, size_t *out_count,
                                 harpe_error *error) {
    harpe_backend_device *devices = NULL;
    size_t count = 0;
    harpe_status status = list_devices(gpus, options->visible_devices, &devices, &count, error);
    if (!devices) return status;
    status = check_order(gpus, options, devices, count, error);
    if (status == HARPE_OK) status = choose_all(gpus->backend, options, devices, &count, error);
    if (status != HARPE_OK) {
        free(devices);
        return status;
    }
    *out = devices;
    *out_count = count;
    return HARPE_OK;
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* Power rises above the limit for moments: an H100 with a limit of 700 W showed 809 W
 * (docs/gpu.md). A module also contains a CPU and memory, which the GPU's limit does not count. */
static double highest_w_of(const harpe_backend *backend, const harpe_backend_device *device) {
    uint32_t lowest_mw = 0, highest_mw = 0;
    int code = backend->power_limit_range(device->handle, &lowest_mw, &highest_mw);
    double limit_w = code || highest_mw == 0 ? HARPE_GPU_HIGHEST_W : highest_mw * 1e-3;
    double highest_w = (device->is_module ? 4 : 2) * limit_w;
    return highest_w < HARPE_GPU_HIGHEST_W ? highest_w : HARPE_GPU_HIGHEST_W;
}

static void adopt(harpe_gpu *gpu, int index, const harpe_backend *backend,
                  const harpe_backend_device *device) {
    gpu->info.index = index;
    gpu->info.driver_index = device->driver_index;
    memcpy(gpu->info.name, device->name, sizeof gpu->info.name);
    memcpy(gpu->info.uuid, device->uuid, sizeof gpu->info.uuid);
    snprintf(gpu->info.pci_bus_id, sizeof gpu->info.pci_bus_id, "%08X:%02X:%02X.0",
             device->pci.domain, device->pci.bus, device->pci.device);
    gpu->handle = device->handle;
    gpu->is_mig_enabled = device->is_mig_enabled;
    gpu->is_module = device->is_module;
    gpu->highest_w = highest_w_of(backend, device);
    pthread_mutex_init(&gpu->mutex, NULL);
}

static harpe_status adopt_visible(harpe_gpus *gpus, const harpe_gpus_options *options,
                                  harpe_error *error) {
    harpe_backend_device *devices = NULL;
    size_t count = 0;
    harpe_status status = list_visible(gpus, options, &devices, &count, error);
    if (status != HARPE_OK) return status;
    gpus->gpus = harpe_calloc(count, sizeof *gpus->gpus);
    if (!gpus->gpus) {
        free(devices);
        return harpe_fail_memory(error);
    }
    for (size_t i = 0; i < count; i++)
        adopt(&gpus->gpus[i], (int)i, gpus->backend, &devices[i]);
    gpus->count = (int)count;
    free(devices);
    return HARPE_OK;
}

/* Returns an absolute path, because the process may change its directory. */
static char *path_of(void *library) {
    struct link_map *map = NULL;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || !map) return NULL;
    return realpath(map->l_name, NULL);
}

static harpe_status open_backend(const harpe_backend *backend, const harpe_gpus_options *options,
                                 harpe_gpus **out, harpe_error *error) {
    harpe_gpus *gpus = calloc(1, sizeof *gpus);
    if (!gpus) return harpe_fail_memory(error);
    gpus->backend = backend;
    gpus->log = options->log;
    gpus->first_left_out = INT_MAX;
    harpe_status status = backend->open(options->library_path, &gpus->state, error);
    if (status == HARPE_OK) {
        gpus->library_path = path_of(backend->library(gpus->state));
        status = adopt_visible(gpus, options, error);
    }
    if (status != HARPE_OK) {
        harpe_gpus_close(gpus);
        return status;
    }
    *out = gpus;
    return HARPE_OK;
}

/* Returns true if a variable names the library. No other library is then used. */
static bool is_asked_for(const harpe_backend *backend) {
    return harpe_trusted_file_variable(backend->library_variable, NULL) != NULL;
}

static void tell_ignored_variables(const harpe_gpus_options *options) {
    if (options->library_path) return;
    for (size_t i = 0; harpe_backends[i]; i++) {
        bool is_ignored = false;
        (void)harpe_trusted_file_variable(harpe_backends[i]->library_variable, &is_ignored);
        if (!is_ignored) continue;
        harpe_log_line(
            &options->log, HARPE_LOG_WARNING,
            "%s is ignored: its file belongs to another user, or everybody may write to it",
            harpe_backends[i]->library_variable);
    }
}

/* Chooses which failures to report. If one of the libraries exists, only the failure of that
 * library is reported. If none exists, the failures of all libraries are reported. */
static void tell(const harpe_error *failure, harpe_error *told) {
    if (told->status == HARPE_OK ||
        (told->status == HARPE_NOT_FOUND && failure->status != HARPE_NOT_FOUND)) {
        *told = *failure;
    } else if (failure->status == HARPE_NOT_FOUND && told->status == HARPE_NOT_FOUND) {
        harpe_error first = *told;
        (void)harpe_fail(told, HARPE_NOT_FOUND, "%.480s; and %.480s", first.message,
                         failure->message);
    }
}

harpe_status harpe_gpus_open(const harpe_gpus_options *options, harpe_gpus **out,
                             harpe_error *error) {
    static const harpe_gpus_options defaults = {0};
    if (!out) return harpe_fail(error, HARPE_INVALID_ARGUMENT, "harpe_gpus_open: no output given");
    harpe_error told = {.status = HARPE_OK};
    if (!options) options = &defaults;
    tell_ignored_variables(options);
    for (size_t i = 0; harpe_backends[i]; i++) {
        harpe_error failure = {.status = HARPE_OK};
        harpe_status status = open_backend(harpe_backends[i], options, out, &failure);
        if (status == HARPE_OK) return HARPE_OK;
        tell(&failure, &told);
        bool may_go_on = status == HARPE_UNAVAILABLE || status == HARPE_NOT_FOUND;
        if (!may_go_on || is_asked_for(harpe_backends[i])) break;
    }
    if (told.status == HARPE_NOT_FOUND) told.status = HARPE_UNAVAILABLE;
    if (error) *error = told;
    return told.status;
}

void harpe_gpus_close(harpe_gpus *gpus) {
    if (!gpus) return;
    for (int i = 0; i < gpus->count; i++)
        pthread_mutex_destroy(&gpus->gpus[i].mutex);
    if (gpus->state) gpus->backend->close(gpus->state);
    free(gpus->gpus);
    free(gpus->library_path);
    free(gpus);
}

/* ---- Facts about the GPUs -------------------------------------------------------------------- */

int harpe_gpus_count(const harpe_gpus *gpus) { return gpus->count; }

int harpe_gpus_driver_count(const harpe_gpus *gpus) { return gpus->driver_count; }

const harpe_gpu_info *harpe_gpu_info_at(const harpe_gpus *gpus, int gpu) {
    return gpu >= 0 && gpu < gpus->count ? &gpus->gpus[gpu].info : NULL;
}

bool harpe_gpu_mig_is_enabled(const harpe_gpus *gpus, int gpu) {
    return gpu >= 0 && gpu < gpus->count && gpus->gpus[gpu].is_mig_enabled;
}

bool harpe_gpu_is_lost(const harpe_gpus *gpus, int gpu) {
    return gpu >= 0 && gpu < gpus->count && atomic_load(&gpus->gpus[gpu].is_lost);
}

bool harpe_gpu_was_lost(const harpe_gpus *gpus, int gpu) {
    return gpu >= 0 && gpu < gpus->count && atomic_load(&gpus->gpus[gpu].was_lost);
}

int harpe_gpus_first_lost(const harpe_gpus *gpus) {
    int first = gpus->first_left_out;
    for (int gpu = 0; gpu < gpus->count; gpu++)
        if (harpe_gpu_was_lost(gpus, gpu) && gpus->gpus[gpu].info.driver_index < first)
            first = gpus->gpus[gpu].info.driver_index;
    return first;
}

const char *harpe_gpus_backend_name(const harpe_gpus *gpus) { return gpus->backend->name; }

const char *harpe_gpus_library_path(const harpe_gpus *gpus) {
    return gpus->library_path ? gpus->library_path : "";
}

const char *harpe_gpus_driver_version(const harpe_gpus *gpus) {
    return gpus->backend->driver_version(gpus->state);
}

bool harpe_gpus_need_root(const harpe_gpus *gpus) { return gpus->backend->needs_root; }

bool harpe_gpus_are_emulated(const harpe_gpus *gpus) {
    return gpus->backend->is_emulated(gpus->state);
}

bool harpe_gpus_emulated_identity(const harpe_gpus *gpus, char *text, size_t size) {
    return gpus->backend->emulated_identity &&
           gpus->backend->emulated_identity(gpus->state, text, size);
}

int64_t harpe_gpus_clock_ns(const harpe_gpus *gpus) { return gpus->backend->clock_ns(gpus->state); }

harpe_status harpe_gpus_check_same_model(const harpe_gpus *gpus, harpe_error *error) {
    const harpe_gpu *other = NULL;
    for (int i = 1; i < gpus->count && !other; i++)
        if (strcmp(gpus->gpus[i].info.name, gpus->gpus[0].info.name) != 0) other = &gpus->gpus[i];
    if (!other) return HARPE_OK;
    harpe_text names = {0};
    for (int i = 0; i < gpus->count; i++)
        harpe_text_printf(&names, "%s%d %s", i ? ", " : "", i, gpus->gpus[i].info.name);
    harpe_status status =
        harpe_fail(error, HARPE_INVALID_INPUT,
                   "the GPUs are not all one model (%.700s): choose those of one model with %s",
                   names.data && !names.failed ? names.data : other->info.name,
                   gpus->backend->visible_devices[0].name);
    harpe_text_free(&names);
    return status;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* On failure, outputs stay unchanged. A driver might change a value before it fails, so these
 * functions read into local variables first. */

#define READ_ONE(type, function, output, what) \
    do { \
        harpe_gpu *found = NULL; \
        type value = 0; \
        harpe_status status = harpe_gpus_find(gpus, gpu, &found, error); \
        if (status != HARPE_OK) return status; \
        int code = gpus->backend->function(found->handle, &value); \
        if (code) return harpe_gpus_fail(gpus, found, code, what, error); \
        atomic_store_explicit(&found->is_lost, false, memory_order_relaxed); \
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

harpe_status harpe_gpu_enforced_power_limit(harpe_gpus *gpus, int gpu, uint32_t *limit_mw,
                                            harpe_error *error) {
    if (!gpus->backend->enforced_power_limit)
        return harpe_gpu_power_limit(gpus, gpu, limit_mw, error);
    READ_ONE(uint32_t, enforced_power_limit, limit_mw, "reading the enforced power limit");
}

harpe_status harpe_gpu_persistence_mode(harpe_gpus *gpus, int gpu, bool *is_enabled,
                                        harpe_error *error) {
    READ_ONE(bool, persistence_mode, is_enabled, "reading persistence mode");
}

double harpe_gpu_highest_w(const harpe_gpus *gpus, int gpu) {
    return gpu >= 0 && gpu < gpus->count ? gpus->gpus[gpu].highest_w : HARPE_GPU_HIGHEST_W;
}

/* Some drivers answer 0 or garbage when they have no value. */
static harpe_status read_power(harpe_gpus *gpus, int gpu, int (*read)(void *, uint32_t *),
                               const char *what, uint32_t *power_mw, harpe_error *error) {
    harpe_gpu *found = NULL;
    uint32_t value_mw = 0;
    harpe_status status = harpe_gpus_find(gpus, gpu, &found, error);
    if (status != HARPE_OK) return status;
    int code = read(found->handle, &value_mw);
    if (code) return harpe_gpus_fail(gpus, found, code, what, error);
    if (value_mw == 0 || value_mw * 1e-3 > found->highest_w) {
        return harpe_fail(error, HARPE_DRIVER_ERROR,
                          "GPU %d (%s): %s: the driver says %.0f W, which this GPU cannot draw (0 "
                          "to %.0f W); the value is left out",
                          gpu, found->info.name, what, value_mw * 1e-3, found->highest_w);
    }
    *power_mw = value_mw;
    return HARPE_OK;
}

harpe_status harpe_gpu_instant_power(harpe_gpus *gpus, int gpu, uint32_t *power_mw,
                                     harpe_error *error) {
    return read_power(gpus, gpu, gpus->backend->instant_power, "reading the power", power_mw,
                      error);
}

harpe_status harpe_gpu_average_power(harpe_gpus *gpus, int gpu, uint32_t *power_mw,
                                     harpe_error *error) {
    return read_power(gpus, gpu, gpus->backend->average_power, "reading the average power",
                      power_mw, error);
}

harpe_energy_scope harpe_gpu_energy_scope(const harpe_gpus *gpus, int gpu) {
    bool is_module = gpu >= 0 && gpu < gpus->count && gpus->gpus[gpu].is_module;
    return is_module ? HARPE_ENERGY_OF_MODULE : HARPE_ENERGY_OF_GPU;
}

harpe_status harpe_gpu_module_power(harpe_gpus *gpus, int gpu, uint32_t *power_mw,
                                    harpe_error *error) {
    harpe_gpu *one = NULL;
    harpe_status found_one = harpe_gpus_find(gpus, gpu, &one, error);
    if (found_one != HARPE_OK) return found_one;
    if (!one->is_module)
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "GPU %d (%s) is not part of a module whose power the driver reports", gpu,
                          one->info.name);
    return read_power(gpus, gpu, gpus->backend->module_power, "reading the module's power",
                      power_mw, error);
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

harpe_status harpe_gpu_mig_mode(harpe_gpus *gpus, int gpu, bool *is_enabled, harpe_error *error) {
    if (!gpus->backend->mig_mode)
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "GPU %d has no MIG", gpu);
    READ_ONE(bool, mig_mode, is_enabled, "reading the MIG mode");
}

harpe_status harpe_gpu_utilization(harpe_gpus *gpus, int gpu, uint32_t *percent,
                                   harpe_error *error) {
    if (!gpus->backend->utilization)
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "GPU %d: its utilisation is not known", gpu);
    READ_ONE(uint32_t, utilization, percent, "reading the utilisation");
}

harpe_status harpe_gpu_process_count(harpe_gpus *gpus, int gpu, uint32_t *count,
                                     harpe_error *error) {
    if (!gpus->backend->process_count)
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "GPU %d: its processes are not known", gpu);
    READ_ONE(uint32_t, process_count, count, "counting the processes");
}

harpe_status harpe_gpu_mig_devices(harpe_gpus *gpus, int gpu, harpe_mig_devices *out,
                                   harpe_error *error) {
    harpe_gpu *found = NULL;
    harpe_status status = harpe_gpus_find(gpus, gpu, &found, error);
    if (status != HARPE_OK) return status;
    if (!gpus->backend->mig_devices)
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "GPU %d has no MIG", gpu);
    int code = gpus->backend->mig_devices(found->handle, out);
    if (code) return harpe_gpus_fail(gpus, found, code, "listing the MIG instances", error);
    return HARPE_OK;
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

/* ---- Lists of clocks ------------------------------------------------------------------------- */

static int compare_descending(const void *a, const void *b) {
    uint32_t one = *(const uint32_t *)a;
    uint32_t other = *(const uint32_t *)b;
    return (one < other) - (one > other);
}

/* Sorts the clocks, highest first, and removes duplicates. */
static size_t sort_clocks(uint32_t *clocks, size_t count) {
    qsort(clocks, count, sizeof *clocks, compare_descending);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || clocks[i] != clocks[kept - 1]) clocks[kept++] = clocks[i];
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

harpe_status harpe_gpus_full_speed_clocks(harpe_gpus *gpus, int gpu, uint32_t *memory_mhz,
                                          uint32_t **graphics_mhz, size_t *count,
                                          harpe_error *error) {
    uint32_t *memory = NULL, *graphics = NULL;
    size_t memory_count = 0, graphics_count = 0;
    harpe_status status = harpe_gpu_memory_clocks(gpus, gpu, &memory, &memory_count, error);
    uint32_t highest = memory_count > 0 ? memory[0] : 0;
    free(memory);
    if (status == HARPE_OK && memory_count > 0)
        status = harpe_gpu_graphics_clocks(gpus, gpu, highest, &graphics, &graphics_count, error);
    if (status != HARPE_OK) return status;
    if (graphics_count == 0) {
        free(graphics);
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "GPU %d lists no clocks",
                          harpe_gpu_info_at(gpus, gpu)->driver_index);
    }
    *memory_mhz = highest;
    *graphics_mhz = graphics;
    *count = graphics_count;
    return HARPE_OK;
}

harpe_status harpe_gpus_nearest_clock(harpe_gpus *gpus, int gpu, uint32_t mhz,
                                      uint32_t *nearest_mhz, uint32_t *highest_mhz,
                                      uint32_t *lowest_mhz, harpe_error *error) {
    uint32_t memory_mhz = 0;
    uint32_t *clocks = NULL;
    size_t count = 0;
    harpe_status status =
        harpe_gpus_full_speed_clocks(gpus, gpu, &memory_mhz, &clocks, &count, error);
    if (status != HARPE_OK) return status;
    uint32_t nearest = clocks[0];
    for (size_t i = 1; i < count; i++)
        if (labs((long)clocks[i] - (long)mhz) < labs((long)nearest - (long)mhz))
            nearest = clocks[i];
    *nearest_mhz = nearest;
    *highest_mhz = clocks[0];
    *lowest_mhz = clocks[count - 1];
    free(clocks);
    return HARPE_OK;
}
