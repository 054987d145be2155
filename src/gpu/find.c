/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the GPUs of the machine, their order, and the GPUs that this process sees. Runs once, when
 * gpus.c opens a back-end.
 *
 * The driver's order may change between boots (NVML's documentation). So GPUs are sorted by PCI
 * address, or by the vendor's own rank if the driver reports one. CUDA's default order,
 * FASTEST_FIRST, is an undocumented heuristic. Harpe treats this order as PCI order, which is
 * correct if all GPUs are the same model. On a machine with different models, a warning is logged
 * if an index chooses a GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
#include "gpu/gpus_internal.h"

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
    if (code) return harpe_backend_fail(backend, code, "cannot count GPUs", error);
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
        status = harpe_backend_fail(backend, code, what, &reason);
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

/* Keeps the devices that `text` chooses, in the order of the text. */
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
        status = harpe_fail(error, HARPE_UNAVAILABLE,
                            "%s='%.80s' hides all of the machine's %zu GPUs", name, text, *count);
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
    if (option) return choose("visible_devices", option, devices, count, error);
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

harpe_status harpe_gpus_list_visible(harpe_gpus *gpus, const harpe_gpus_options *options,
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
