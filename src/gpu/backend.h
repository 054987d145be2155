/* SPDX-License-Identifier: Apache-2.0 */
/* The interface that a GPU vendor implements: one const table of functions per vendor, in one file,
 * and a row in harpe_backends (gpus.c). gpus.c and settings.c do the work that does not depend
 * on the vendor: they map indices, skip and count calls, and restore settings. */
#ifndef HARPE_GPU_BACKEND_H
#define HARPE_GPU_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/gpu.h>
#include <harpe/status.h>

#include "gpu/visible.h"

/* The settings that Harpe changes, in the order in which they are restored. A locked clock slows
 * down the next user of the GPU, so the clocks come first. */
typedef enum harpe_setting {
    HARPE_SET_GRAPHICS_CLOCKS,
    HARPE_SET_MEMORY_CLOCKS,
    HARPE_SET_POWER_LIMIT,
    HARPE_SET_PERSISTENCE,
    HARPE_SETTINGS,
} harpe_setting;

/* The value of a setting. Clocks: the lowest and the highest clock of a lock in MHz, or zeros if
 * there is no lock. Power limit: `low` in mW. Persistence mode: `low` is 0 or 1. */
typedef struct harpe_setting_value {
    uint32_t low, high;
} harpe_setting_value;

/* A GPU as the driver reports it. The back-end owns `handle`, which lives as long as the back-end's
 * state. */
typedef struct harpe_backend_device {
    void *handle;
    int driver_index;
    char name[96];
    char uuid[96];
    uint32_t rank; /* position in the vendor's order; if all are equal, PCI addresses decide */
    harpe_pci_address pci;
    bool is_mig_enabled;
    bool is_module; /* true if total_energy covers a module of GPU and CPU */
} harpe_backend_device;

/* An environment variable that chooses GPUs, and a second variable that is read if the first is not
 * set. */
typedef struct harpe_visible_variable {
    const char *name;
    const char *other_name; /* NULL: none */
} harpe_visible_variable;

/* The MIG instances of a GPU. They have no power, clocks or energy of their own. */
enum { HARPE_MIG_DEVICES_MAX = 8 }; /* GPUs have at most 7 */
typedef struct harpe_mig_devices {
    int count;
    char uuids[HARPE_MIG_DEVICES_MAX][96];
} harpe_mig_devices;

/* Device functions return the vendor's own code, 0 for success, and leave outputs unchanged on
 * failure. `explain` maps a code to a status, a name and advice. Several threads may call the
 * functions at once. If a vendor's library is not thread-safe, its back-end locks it. */
typedef struct harpe_backend {
    const char *name;
    /* The variables that decide which GPUs a process sees. Each variable chooses among the GPUs
     * that the previous variable has left. */
    harpe_visible_variable visible_devices[3]; /* a NULL name marks the end */
    const char *device_order_variable;         /* NULL: this vendor has no such variable */
    const char *library_variable;              /* names the library file to open */
    bool needs_root;                           /* changes need the user root; CAP_SYS_ADMIN is not
                                                * enough */

    /* Opens the vendor's library (NULL: in its usual places) and initialises it. HARPE_NOT_FOUND:
     * there is no such library, or it is another vendor's. */
    harpe_status (*open)(const char *library_path, void **state, harpe_error *error);
    void (*close)(void *state);
    void *(*library)(const void *state);              /* handle from dlopen */
    const char *(*driver_version)(const void *state); /* "" when unknown */
    bool (*is_emulated)(const void *state);
    /* Writes the identity of the cluster of emulated GPUs. Returns false if it is not known. NULL:
     * never known. */
    bool (*emulated_identity)(const void *state, char *text, size_t size);
    int64_t (*clock_ns)(const void *state);
    void (*explain)(int code, harpe_status *status, const char **name, const char **advice);

    int (*device_count)(void *state, int *count);
    int (*device)(void *state, int driver_index, harpe_backend_device *out);
    /* Finds the GPU that has this UUID. NULL: only a look at all GPUs finds it. */
    int (*index_of)(void *state, const char *uuid, int *driver_index);

    int (*power_limit_range)(void *handle, uint32_t *minimum_mw, uint32_t *maximum_mw);
    int (*power_limit)(void *handle, uint32_t *limit_mw);
    int (*default_power_limit)(void *handle, uint32_t *limit_mw);
    int (*enforced_power_limit)(void *handle, uint32_t *limit_mw); /* NULL: power_limit */
    int (*persistence_mode)(void *handle, bool *is_enabled);
    /* These two functions allocate the lists. The clocks are in any order. */
    int (*memory_clocks)(void *handle, uint32_t **clocks_mhz, size_t *count);
    int (*graphics_clocks)(void *handle, uint32_t memory_mhz, uint32_t **clocks_mhz, size_t *count);
    int (*current_graphics_clock)(void *handle, uint32_t *mhz);
    int (*current_memory_clock)(void *handle, uint32_t *mhz);
    int (*instant_power)(void *handle, uint32_t *power_mw);
    int (*average_power)(void *handle, uint32_t *power_mw);
    int (*module_power)(void *handle, uint32_t *power_mw); /* NULL: this vendor has no modules */
    int (*total_energy)(void *handle, uint64_t *energy_mj);
    int (*temperature)(void *handle, uint32_t *celsius);
    int (*throttle_reasons)(void *handle, uint64_t *reasons);
    int (*utilization)(void *handle, uint32_t *percent);      /* NULL: not known */
    int (*process_count)(void *handle, uint32_t *count);      /* NULL: not known */
    int (*mig_mode)(void *handle, bool *is_enabled);          /* NULL: this vendor has no MIG */
    int (*mig_devices)(void *handle, harpe_mig_devices *out); /* NULL: the same */

    int (*set_power_limit)(void *handle, uint32_t limit_mw);
    int (*set_persistence_mode)(void *handle, bool is_enabled);
    int (*lock_graphics_clocks)(void *handle, uint32_t minimum_mhz, uint32_t maximum_mhz);
    int (*reset_graphics_clocks)(void *handle);
    int (*lock_memory_clocks)(void *handle, uint32_t minimum_mhz, uint32_t maximum_mhz);
    int (*reset_memory_clocks)(void *handle);
} harpe_backend;

extern const harpe_backend harpe_backend_nvml;
extern const harpe_backend harpe_backend_amdsmi;

/* All back-ends in the order in which they are tried, with NULL at the end. */
extern const harpe_backend *const harpe_backends[];

#endif
