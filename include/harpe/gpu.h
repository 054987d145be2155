/* SPDX-License-Identifier: Apache-2.0 */
/* Finds GPUs, reads their power and energy, sets their clocks and power limits, and restores their
 * settings. There is one interface for several vendors. Harpe opens the vendor's library at run
 * time, so the other parts of Harpe also run on a machine without GPUs.
 *
 * This layer uses the drivers' units: mW, mJ, MHz. Functions take the index of a GPU in the
 * training process. This index starts at 0 and follows CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER
 * (for AMD GPUs, ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES). Harpe looks for NVIDIA's library
 * first, then for AMD's ($HARPE_AMDSMI_LIBRARY, or else libamd_smi.so).
 *
 * Several threads may use one harpe_gpus at once. A call takes as long as the driver takes: some
 * microseconds for a read, 10 to 20 ms for a set. Functions fail with HARPE_PERMISSION_DENIED
 * (with advice), HARPE_NOT_SUPPORTED, HARPE_GPU_LOST, HARPE_INVALID_ARGUMENT or
 * HARPE_DRIVER_ERROR. vendor_code contains the driver's own code. The message contains the
 * driver's text and the GPU's index. */
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

/* Initialise with zeros, then set the members that you need. */
typedef struct harpe_gpus_options {
    const char
        *library_path; /* NULL: $HARPE_NVML_LIBRARY, else libnvidia-ml.so.1, libnvidia-ml.so */
    const char *visible_devices; /* NULL: $CUDA_VISIBLE_DEVICES; "all": every GPU of the machine */
    const char *device_order;    /* NULL: $CUDA_DEVICE_ORDER; "FASTEST_FIRST" or "PCI_BUS_ID" */
    harpe_log log;
} harpe_gpus_options;

typedef struct harpe_gpu_info {
    int index;        /* the GPU's index in the training process */
    int driver_index; /* the GPU's index in the driver */
    char name[96];
    char uuid[96];
    char pci_bus_id[32];
} harpe_gpu_info;

/* Opens the back-end and finds the visible GPUs. Fails with HARPE_UNAVAILABLE if there is no driver
 * library, driver or GPU, and if CUDA_VISIBLE_DEVICES names a MIG instance, which has no power or
 * energy of its own. Free with harpe_gpus_close. */
HARPE_API harpe_status harpe_gpus_open(const harpe_gpus_options *options, harpe_gpus **out,
                                       harpe_error *error);
/* Frees the handle. Does not restore settings; see harpe_gpus_restore. */
HARPE_API void harpe_gpus_close(harpe_gpus *gpus);

HARPE_API int harpe_gpus_count(const harpe_gpus *gpus);
HARPE_API const harpe_gpu_info *harpe_gpu_info_at(const harpe_gpus *gpus, int gpu);
HARPE_API const char *harpe_gpus_backend_name(const harpe_gpus *gpus);   /* "nvml", "amdsmi" */
HARPE_API const char *harpe_gpus_driver_version(const harpe_gpus *gpus); /* "" when unknown */
/* Returns true if the driver library is Harpe's emulator. */
HARPE_API bool harpe_gpus_are_emulated(const harpe_gpus *gpus);
/* Returns the monotonic time of the GPUs in ns: CLOCK_MONOTONIC, or the emulator's scaled time. */
HARPE_API int64_t harpe_gpus_clock_ns(const harpe_gpus *gpus);

/* Returns HARPE_OK if all visible GPUs are the same model, or else HARPE_INVALID_INPUT with
 * their names. */
HARPE_API harpe_status harpe_gpus_check_same_model(const harpe_gpus *gpus, harpe_error *error);

/* ---- Reading --------------------------------------------------------------------------------- */
HARPE_API harpe_status harpe_gpu_power_limit_range(harpe_gpus *gpus, int gpu, uint32_t *minimum_mw,
                                                   uint32_t *maximum_mw, harpe_error *error);
HARPE_API harpe_status harpe_gpu_power_limit(harpe_gpus *gpus, int gpu, uint32_t *limit_mw,
                                             harpe_error *error);
HARPE_API harpe_status harpe_gpu_default_power_limit(harpe_gpus *gpus, int gpu, uint32_t *limit_mw,
                                                     harpe_error *error);
/* Reads the limit in force, which is the lowest of several limits. One limit is set through the
 * driver. Others may come from the board's controller or over the network. If the driver does not
 * report the limit in force, reads the same limit as harpe_gpu_power_limit. */
HARPE_API harpe_status harpe_gpu_enforced_power_limit(harpe_gpus *gpus, int gpu, uint32_t *limit_mw,
                                                      harpe_error *error);
HARPE_API harpe_status harpe_gpu_persistence_mode(harpe_gpus *gpus, int gpu, bool *is_enabled,
                                                  harpe_error *error);
/* List the clocks, highest first. The caller frees `*clocks_mhz` with free(). */
HARPE_API harpe_status harpe_gpu_memory_clocks(harpe_gpus *gpus, int gpu, uint32_t **clocks_mhz,
                                               size_t *count, harpe_error *error);
HARPE_API harpe_status harpe_gpu_graphics_clocks(harpe_gpus *gpus, int gpu, uint32_t memory_mhz,
                                                 uint32_t **clocks_mhz, size_t *count,
                                                 harpe_error *error);
/* Reads the current clocks. Either pointer may be NULL. */
HARPE_API harpe_status harpe_gpu_current_clocks(harpe_gpus *gpus, int gpu, uint32_t *graphics_mhz,
                                                uint32_t *memory_mhz, harpe_error *error);
HARPE_API harpe_status harpe_gpu_instant_power(harpe_gpus *gpus, int gpu, uint32_t *power_mw,
                                               harpe_error *error);
HARPE_API harpe_status harpe_gpu_average_power(harpe_gpus *gpus, int gpu, uint32_t *power_mw,
                                               harpe_error *error);

/* The parts whose energy a GPU's energy counter includes. */
typedef enum harpe_energy_scope {
    HARPE_ENERGY_OF_GPU = 0,    /* the GPU and its memory */
    HARPE_ENERGY_OF_MODULE = 1, /* GPU, CPU and memory of a superchip such as GH200 */
} harpe_energy_scope;
/* Returns the parts that the GPU's energy counter includes; HARPE_ENERGY_OF_GPU for an index that
 * does not exist. harpe_gpu_module_power reads the power of the module. All other functions read
 * the power of the GPU alone. */
HARPE_API harpe_energy_scope harpe_gpu_energy_scope(const harpe_gpus *gpus, int gpu);
/* Reads the present power of the module to which the GPU belongs. Returns HARPE_NOT_SUPPORTED if
 * harpe_gpu_energy_scope is HARPE_ENERGY_OF_GPU. */
HARPE_API harpe_status harpe_gpu_module_power(harpe_gpus *gpus, int gpu, uint32_t *power_mw,
                                              harpe_error *error);
/* Reads the energy since the driver was loaded; see harpe_gpu_energy_scope for the parts that it
 * includes. Returns HARPE_NOT_SUPPORTED for GPUs older than Volta. */
HARPE_API harpe_status harpe_gpu_total_energy(harpe_gpus *gpus, int gpu, uint64_t *energy_mj,
                                              harpe_error *error);
HARPE_API harpe_status harpe_gpu_temperature(harpe_gpus *gpus, int gpu, uint32_t *celsius,
                                             harpe_error *error);
/* Reads the driver's bit set of clock event (throttle) reasons. */
HARPE_API harpe_status harpe_gpu_throttle_reasons(harpe_gpus *gpus, int gpu, uint64_t *reasons,
                                                  harpe_error *error);

/* ---- Setting --------------------------------------------------------------------------------- */
/* Most calls need root. A call that would change nothing is skipped and counted. */
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

/* Restores every GPU that was changed through `gpus`. The power limit and the persistence mode
 * get the values found before the first change. Locked clocks are reset, because no driver call
 * reads a lock. Continues after a failure and returns the first one. May be called at any time;
 * a second call does nothing. */
HARPE_API harpe_status harpe_gpus_restore(harpe_gpus *gpus, harpe_error *error);

/* Numbers of driver calls that changed a setting, and of calls skipped because they would change
 * nothing. */
typedef struct harpe_gpu_writes {
    uint64_t written, skipped, failed;
} harpe_gpu_writes;
HARPE_API harpe_gpu_writes harpe_gpu_write_count(const harpe_gpus *gpus, int gpu);

HARPE_END_DECLS

#endif
