/* SPDX-License-Identifier: Apache-2.0 */
/* The NVML library as a table of functions, opened at run time. The build needs nothing from
 * NVIDIA. A function that an older driver lacks is NULL. */
#ifndef HARPE_GPU_NVML_LIBRARY_H
#define HARPE_GPU_NVML_LIBRARY_H

#include <stdint.h>

#include <harpe/status.h>

#include "gpu/nvml_abi.h"

/* Required functions are never NULL; the table in nvml_library.c lists them. */
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

/* Opens the library (NULL: $HARPE_NVML_LIBRARY, or else the usual places) and looks up its
 * functions. Does not call nvmlInit. HARPE_NOT_FOUND: there is no NVML library. Close with
 * harpe_nvml_close. */
harpe_status harpe_nvml_open(const char *path, harpe_nvml *out, harpe_error *error);
void harpe_nvml_close(harpe_nvml *nvml);

/* ---- Error codes ----------------------------------------------------------------------------- */

/* Returns HARPE_OK for NVML_SUCCESS, and HARPE_DRIVER_ERROR for an unknown code. */
harpe_status harpe_nvml_status(int code);
/* Returns "NVML_ERROR_NO_PERMISSION", for example, or "NVML error" for an unknown code. Static
 * storage. */
const char *harpe_nvml_error_name(int code);
/* Returns a phrase about cause and remedy, never empty. Static storage. */
const char *harpe_nvml_error_advice(int code);

#endif
