/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs: finding them, reading their power and energy, setting their clocks and power limits, and
 * putting back what was found. One interface over vendor back-ends; the vendor's library is opened
 * at run time, so a machine without GPUs runs everything else.
 *
 * Units at this layer are the drivers': mW, mJ, MHz. Functions take the index that the training
 * process sees (CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER applied; for AMD GPUs
 * ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES), from 0. NVIDIA's library is looked for first, then
 * AMD's ($HARPE_AMDSMI_LIBRARY, else libamd_smi.so).
 *
 * A harpe_gpus may be used from several threads at once. Every call may take as long as the driver
 * takes (reads some microseconds, sets 10 to 20 ms). Errors: HARPE_PERMISSION_DENIED (with advice),
 * HARPE_NOT_SUPPORTED, HARPE_GPU_LOST, HARPE_INVALID_ARGUMENT, HARPE_DRIVER_ERROR; vendor_code has
 * the driver's own code and the message its text and the GPU's index. */
#ifndef HARPE_GPU_H
#define HARPE_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/api.h>
#include <harpe/callback.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

typedef struct harpe_gpus harpe_gpus;

/* Zero-initialise, then set what matters. */
typedef struct harpe_gpus_options {
    const char
        *library_path; /* NULL: $HARPE_NVML_LIBRARY, else libnvidia-ml.so.1, libnvidia-ml.so */
    const char *visible_devices; /* NULL: $CUDA_VISIBLE_DEVICES; "all": every GPU of the machine */
    const char *device_order;    /* NULL: $CUDA_DEVICE_ORDER; "FASTEST_FIRST" or "PCI_BUS_ID" */
    harpe_log log;
} harpe_gpus_options;

typedef struct harpe_gpu_info {
    int index;        /* as the training process counts */
    int driver_index; /* as the driver counts */
    char name[96];
    char uuid[96];
    char pci_bus_id[32];
} harpe_gpu_info;

/* Opens the back-end and finds the visible GPUs. Fails with HARPE_UNAVAILABLE when there is no
 * driver library, driver or GPU, and with HARPE_INVALID_INPUT when CUDA_VISIBLE_DEVICES names
 * something that has no power of its own (a MIG instance). Close with harpe_gpus_close. */
HARPE_API harpe_status harpe_gpus_open(const harpe_gpus_options *options, harpe_gpus **out,
                                       harpe_error *error);
/* Does not restore anything by itself; see harpe_gpus_restore. */
HARPE_API void harpe_gpus_close(harpe_gpus *gpus);

HARPE_API int harpe_gpus_count(const harpe_gpus *gpus);
HARPE_API const harpe_gpu_info *harpe_gpu_info_at(const harpe_gpus *gpus, int gpu);
HARPE_API const char *harpe_gpus_backend_name(const harpe_gpus *gpus);   /* "nvml", "amdsmi" */
HARPE_API const char *harpe_gpus_driver_version(const harpe_gpus *gpus); /* "" when unknown */
/* True when the driver library is Harpe's emulator. */
HARPE_API bool harpe_gpus_are_emulated(const harpe_gpus *gpus);
/* Monotonic time in ns as the GPUs live it: CLOCK_MONOTONIC, or the emulator's scaled time. */
HARPE_API int64_t harpe_gpus_clock_ns(const harpe_gpus *gpus);

/* HARPE_OK when all visible GPUs are one model; otherwise HARPE_INVALID_INPUT naming them. */
HARPE_API harpe_status harpe_gpus_check_same_model(const harpe_gpus *gpus, harpe_error *error);

/* ---- Reading ---- */
HARPE_API harpe_status harpe_gpu_power_limit_range(harpe_gpus *gpus, int gpu, uint32_t *minimum_mw,
                                                   uint32_t *maximum_mw, harpe_error *error);
HARPE_API harpe_status harpe_gpu_power_limit(harpe_gpus *gpus, int gpu, uint32_t *limit_mw,
                                             harpe_error *error);
HARPE_API harpe_status harpe_gpu_default_power_limit(harpe_gpus *gpus, int gpu, uint32_t *limit_mw,
                                                     harpe_error *error);
/* The limit in force: the lowest of the limit that was set and of limits that are not set through
 * the driver (by the board's controller, or over the network). Equal to harpe_gpu_power_limit if
 * the driver does not report it. */
HARPE_API harpe_status harpe_gpu_enforced_power_limit(harpe_gpus *gpus, int gpu, uint32_t *limit_mw,
                                                      harpe_error *error);
HARPE_API harpe_status harpe_gpu_persistence_mode(harpe_gpus *gpus, int gpu, bool *is_enabled,
                                                  harpe_error *error);
/* Clocks, highest first. `*clocks_mhz` is to be freed with free(). */
HARPE_API harpe_status harpe_gpu_memory_clocks(harpe_gpus *gpus, int gpu, uint32_t **clocks_mhz,
                                               size_t *count, harpe_error *error);
HARPE_API harpe_status harpe_gpu_graphics_clocks(harpe_gpus *gpus, int gpu, uint32_t memory_mhz,
                                                 uint32_t **clocks_mhz, size_t *count,
                                                 harpe_error *error);
/* Current clocks; either pointer may be NULL. */
HARPE_API harpe_status harpe_gpu_current_clocks(harpe_gpus *gpus, int gpu, uint32_t *graphics_mhz,
                                                uint32_t *memory_mhz, harpe_error *error);
HARPE_API harpe_status harpe_gpu_instant_power(harpe_gpus *gpus, int gpu, uint32_t *power_mw,
                                               harpe_error *error);
HARPE_API harpe_status harpe_gpu_average_power(harpe_gpus *gpus, int gpu, uint32_t *power_mw,
                                               harpe_error *error);

/* What a GPU's energy covers. */
typedef enum harpe_energy_scope {
    HARPE_ENERGY_OF_GPU = 0,    /* the GPU and its memory */
    HARPE_ENERGY_OF_MODULE = 1, /* GPU, CPU and memory of a superchip such as GH200 */
} harpe_energy_scope;
/* HARPE_ENERGY_OF_GPU for an index that does not exist. Powers are those of the GPU in both cases,
 * except harpe_gpu_module_power. */
HARPE_API harpe_energy_scope harpe_gpu_energy_scope(const harpe_gpus *gpus, int gpu);
/* The present power of the module that the GPU is part of. HARPE_NOT_SUPPORTED if
 * harpe_gpu_energy_scope is HARPE_ENERGY_OF_GPU. */
HARPE_API harpe_status harpe_gpu_module_power(harpe_gpus *gpus, int gpu, uint32_t *power_mw,
                                              harpe_error *error);
/* Energy since the driver was loaded. It covers what harpe_gpu_energy_scope says.
 * HARPE_NOT_SUPPORTED before Volta. */
HARPE_API harpe_status harpe_gpu_total_energy(harpe_gpus *gpus, int gpu, uint64_t *energy_mj,
                                              harpe_error *error);
HARPE_API harpe_status harpe_gpu_temperature(harpe_gpus *gpus, int gpu, uint32_t *celsius,
                                             harpe_error *error);
/* The driver's bit set of clock event (throttle) reasons. */
HARPE_API harpe_status harpe_gpu_throttle_reasons(harpe_gpus *gpus, int gpu, uint64_t *reasons,
                                                  harpe_error *error);

/* ---- Setting (most need root). A set that would change nothing is skipped and counted. ---- */
HARPE_API harpe_status harpe_gpu_set_power_limit(harpe_gpus *gpus, int gpu, uint32_t limit_mw,
                                                 harpe_error *error);
HARPE_API harpe_status harpe_gpu_set_persistence_mode(harpe_gpus *gpus, int gpu, bool is_enabled,
                                                      harpe_error *error);
HARPE_API harpe_status harpe_gpu_lock_graphics_clocks(harpe_gpus *gpus, int gpu,
                                                      uint32_t minimum_mhz, uint32_t maximum_mhz,
                                                      harpe_error *error);
HARPE_API harpe_status harpe_gpu_reset_graphics_clocks(harpe_gpus *gpus, int gpu,
                                                       harpe_error *error);
HARPE_API harpe_status harpe_gpu_lock_memory_clocks(harpe_gpus *gpus, int gpu, uint32_t minimum_mhz,
                                                    uint32_t maximum_mhz, harpe_error *error);
HARPE_API harpe_status harpe_gpu_reset_memory_clocks(harpe_gpus *gpus, int gpu, harpe_error *error);

/* Puts every GPU that was changed through `gpus` back: power limit and persistence mode to what was
 * found before the first change, locked clocks reset (there is no call that reads a lock back).
 * Goes on past failures; returns the first. Safe to call at any time; a second call does nothing.
 */
HARPE_API harpe_status harpe_gpus_restore(harpe_gpus *gpus, harpe_error *error);

/* How often the driver was asked to change something, and how often that was skipped as a no-op. */
typedef struct harpe_gpu_writes {
    uint64_t written, skipped, failed;
} harpe_gpu_writes;
HARPE_API harpe_gpu_writes harpe_gpu_write_count(const harpe_gpus *gpus, int gpu);

HARPE_END_DECLS

#endif
