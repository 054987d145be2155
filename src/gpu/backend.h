/* SPDX-License-Identifier: Apache-2.0 */
/* What a GPU vendor must provide: one const table of functions per vendor, in one file, and a row
 * in harpe_backends (backends.c). Everything above (skipping, counting, restoring, index mapping)
 * is vendor-independent and lives in gpus.c. */
#ifndef HARPE_GPU_BACKEND_H
#define HARPE_GPU_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/gpu.h>
#include <harpe/status.h>

#include "gpu/visible.h"

/* A GPU as the driver has it. `handle` is the back-end's own and lives as long as its state. */
typedef struct harpe_backend_device {
    void *handle;
    int driver_index;
    char name[96];
    char uuid[96];
    uint32_t rank; /* place in the vendor's own order; where all have one, PCI addresses decide */
    harpe_pci_address pci;
    bool is_mig_enabled;
    bool is_module; /* of GPU and CPU: what total_energy covers */
} harpe_backend_device;

/* An environment variable that chooses GPUs, and the one that is read when it is not set. */
typedef struct harpe_visible_variable {
    const char *name;
    const char *other_name; /* NULL: none */
} harpe_visible_variable;

/* Device functions return the vendor's own code, 0 for success, and leave outputs untouched
 * otherwise; explain turns a code into a status, a name and advice. They may be called from several
 * threads at once: a vendor library that cannot stand that is locked inside its back-end. */
typedef struct harpe_backend {
    const char *name;
    /* What decides which GPUs a process sees: each chooses among those that the one before left. */
    harpe_visible_variable visible_devices[3]; /* a name of NULL ends them */
    const char *device_order_variable;         /* NULL: there is none */
    const char *library_variable;              /* names the library to open */
    bool needs_root;                           /* sets need the user root, not CAP_SYS_ADMIN */

    /* Opens the vendor's library (NULL: where it is usually found) and starts it. HARPE_NOT_FOUND:
     * there is no such library, or it is not this vendor's. */
    harpe_status (*open)(const char *library_path, void **state, harpe_error *error);
    void (*close)(void *state);
    void *(*library)(const void *state);              /* as dlopen gave it */
    const char *(*driver_version)(const void *state); /* "" when unknown */
    bool (*is_emulated)(const void *state);
    /* Which cluster of emulated GPUs this is. False, or NULL: not known. */
    bool (*emulated_identity)(const void *state, char *text, size_t size);
    int64_t (*clock_ns)(const void *state);
    void (*explain)(int code, harpe_status *status, const char **name, const char **advice);

    int (*device_count)(void *state, int *count);
    int (*device)(void *state, int driver_index, harpe_backend_device *out);

    int (*power_limit_range)(void *handle, uint32_t *minimum_mw, uint32_t *maximum_mw);
    int (*power_limit)(void *handle, uint32_t *limit_mw);
    int (*default_power_limit)(void *handle, uint32_t *limit_mw);
    int (*enforced_power_limit)(void *handle, uint32_t *limit_mw); /* NULL: power_limit */
    int (*persistence_mode)(void *handle, bool *is_enabled);
    /* Lists are allocated; any order. */
    int (*memory_clocks)(void *handle, uint32_t **clocks_mhz, size_t *count);
    int (*graphics_clocks)(void *handle, uint32_t memory_mhz, uint32_t **clocks_mhz, size_t *count);
    int (*current_graphics_clock)(void *handle, uint32_t *mhz);
    int (*current_memory_clock)(void *handle, uint32_t *mhz);
    int (*instant_power)(void *handle, uint32_t *power_mw);
    int (*average_power)(void *handle, uint32_t *power_mw);
    int (*module_power)(void *handle, uint32_t *power_mw); /* NULL: there are no modules */
    int (*total_energy)(void *handle, uint64_t *energy_mj);
    int (*temperature)(void *handle, uint32_t *celsius);
    int (*throttle_reasons)(void *handle, uint64_t *reasons);

    int (*set_power_limit)(void *handle, uint32_t limit_mw);
    int (*set_persistence_mode)(void *handle, bool is_enabled);
    int (*lock_graphics_clocks)(void *handle, uint32_t minimum_mhz, uint32_t maximum_mhz);
    int (*reset_graphics_clocks)(void *handle);
    int (*lock_memory_clocks)(void *handle, uint32_t minimum_mhz, uint32_t maximum_mhz);
    int (*reset_memory_clocks)(void *handle);
} harpe_backend;

extern const harpe_backend harpe_backend_nvml;
extern const harpe_backend harpe_backend_amdsmi;

/* All back-ends, NULL at the end, tried in order. */
extern const harpe_backend *const harpe_backends[];

#endif
