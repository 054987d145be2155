/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of a harpe_gpus that Harpe itself needs beyond the public header. */
#ifndef HARPE_GPU_GPUS_H
#define HARPE_GPU_GPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/gpu.h>
#include <harpe/status.h>

#include "gpu/backend.h"

/* Returns the highest memory clock, and the graphics clocks that it allows: at least one, highest
 * first. The caller frees the list with free(). */
harpe_status harpe_gpus_full_speed_clocks(harpe_gpus *gpus, int gpu, uint32_t *memory_mhz,
                                          uint32_t **graphics_mhz, size_t *count,
                                          harpe_error *error);

/* Finds three graphics clocks of the GPU: the nearest to `mhz`, the highest and the lowest. */
harpe_status harpe_gpus_nearest_clock(harpe_gpus *gpus, int gpu, uint32_t mhz,
                                      uint32_t *nearest_mhz, uint32_t *highest_mhz,
                                      uint32_t *lowest_mhz, harpe_error *error);

/* Returns the index of the GPU with this UUID, or -1. */
int harpe_gpus_find_uuid(const harpe_gpus *gpus, const char *uuid);

/* Returns a power that this GPU never draws, not even for a moment that the driver shows: twice its
 * highest power limit, or HARPE_GPU_HIGHEST_W if this limit is not known. */
double harpe_gpu_highest_w(const harpe_gpus *gpus, int gpu);

/* Returns true if changing settings needs the user root; otherwise CAP_SYS_ADMIN suffices. */
bool harpe_gpus_need_root(const harpe_gpus *gpus);

/* Returns true if the GPU was divided into MIG instances when the GPUs were opened. */
bool harpe_gpu_mig_is_enabled(const harpe_gpus *gpus, int gpu);

/* Reads whether the GPU is divided into MIG instances now. Returns HARPE_NOT_SUPPORTED for GPUs
 * without MIG. */
harpe_status harpe_gpu_mig_mode(harpe_gpus *gpus, int gpu, bool *is_enabled, harpe_error *error);

/* Lists the MIG instances of a GPU. Returns HARPE_NOT_SUPPORTED for GPUs without MIG. */
harpe_status harpe_gpu_mig_devices(harpe_gpus *gpus, int gpu, harpe_mig_devices *out,
                                   harpe_error *error);

/* Reads the utilisation: the share of time in which the GPU worked, in percent. The driver chooses
 * the period, which is 1/6 to 1 s. Returns HARPE_NOT_SUPPORTED if the driver does not report the
 * utilisation, as for a GPU with MIG and for AMD GPUs. */
harpe_status harpe_gpu_utilization(harpe_gpus *gpus, int gpu, uint32_t *percent,
                                   harpe_error *error);

/* Counts the processes that have a compute context on the GPU. Returns HARPE_NOT_SUPPORTED for AMD
 * GPUs. */
harpe_status harpe_gpu_process_count(harpe_gpus *gpus, int gpu, uint32_t *count,
                                     harpe_error *error);

/* Returns the file of the driver library that was opened, so that another process can open the
 * same file; "" if it is not known. */
const char *harpe_gpus_library_path(const harpe_gpus *gpus);

/* Writes "<name>@<creation time>" of a cluster of emulated GPUs. Returns false if this text is not
 * known. */
bool harpe_gpus_emulated_identity(const harpe_gpus *gpus, char *text, size_t size);

/* Returns true if a call on this GPU has failed because the GPU is lost, and no value of this GPU
 * was read since. Makes no driver call. */
bool harpe_gpu_is_lost(const harpe_gpus *gpus, int gpu);

/* Returns true if the GPU was lost since the GPUs were opened. Makes no driver call. */
bool harpe_gpu_was_lost(const harpe_gpus *gpus, int gpu);

/* Returns the lowest driver index of a lost GPU: a GPU that was left out when the GPUs were opened,
 * or that was lost since. INT_MAX: no GPU is lost. In a process that opens the GPUs later, each GPU
 * after the lost one may have another index. Makes no driver call. */
int harpe_gpus_first_lost(const harpe_gpus *gpus);

/* Returns the number of GPUs that the driver knows, visible or not. */
int harpe_gpus_driver_count(const harpe_gpus *gpus);

#endif
