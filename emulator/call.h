/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of every driver call: is the library initialised, is the handle good, is a fault due,
 * lock, do, unlock. Also what this process holds: its attachment to the cluster and its faults. */
#ifndef HARPE_EMULATOR_CALL_H
#define HARPE_EMULATOR_CALL_H

#include <harpe/api.h>

#include "cluster.h"
#include "faults.h"
#include "gpu/nvml_abi.h"

/* Declares and defines an exported call of NVML. */
#define NVML_CALL(name, ...) \
    HARPE_API nvmlReturn_t name(__VA_ARGS__); \
    HARPE_API nvmlReturn_t name(__VA_ARGS__)

typedef enum emulator_access { EMULATOR_READ, EMULATOR_SET } emulator_access;

typedef struct emulator_call {
    emulator_cluster *cluster;
    unsigned int index;
    emulator_gpu *gpu;
    const emulator_model *model;
    emulator_state *state; /* locked, moved to now */
    emulator_faults faults;
    emulator_feature feature;
    emulator_access access;
    bool is_changed; /* by a fault: those who wait for work must look again */
} emulator_call;

/* For calls on a GPU. `output` is a pointer argument that must not be NULL (pass the handle where
 * there is none). On NVML_SUCCESS the GPU is locked: emulator_end must follow. */
nvmlReturn_t emulator_begin(emulator_call *call, nvmlDevice_t device, emulator_feature feature,
                            emulator_access access, const void *output);
/* Unlocks and returns `result`. */
nvmlReturn_t emulator_end(emulator_call *call, nvmlReturn_t result);

/* For calls that concern no GPU: the cluster, which stays attached until emulator_leave. */
nvmlReturn_t emulator_enter(emulator_cluster **cluster, emulator_faults *faults);
/* The same, for the emulator's own API: works before nvmlInit too. */
nvmlReturn_t emulator_enter_always(emulator_cluster **cluster, emulator_faults *faults);
void emulator_leave(void);

nvmlReturn_t emulator_initialize(void);
nvmlReturn_t emulator_shut_down(void);

/* Handles are GPU indices in disguise. */
nvmlDevice_t emulator_handle(unsigned int index);
/* True when the handle is one that emulator_handle could have given. */
bool emulator_handle_index(nvmlDevice_t device, const emulator_cluster *cluster,
                           unsigned int *index);
bool emulator_counter_restart_is_due(const emulator_faults *faults, unsigned int gpu,
                                     int64_t now_ns);

#endif
