/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of every driver call: checks that the library is initialised and that the handle is
 * valid, applies faults, locks the GPU, runs the call, and unlocks. Also contains the state of this
 * process: its attachment to the cluster and its faults. */
#ifndef HARPE_EMULATOR_CALL_H
#define HARPE_EMULATOR_CALL_H

#include <harpe/api.h>

#include "cluster.h"
#include "faults.h"
#include "gpu/nvml_abi.h"

/* Declares and defines an exported function of NVML. */
#define NVML_CALL(name, ...) \
    HARPE_API nvmlReturn_t name(__VA_ARGS__); \
    HARPE_API nvmlReturn_t name(__VA_ARGS__)

typedef enum emulator_access { EMULATOR_READ, EMULATOR_SET } emulator_access;

typedef struct emulator_call {
    emulator_cluster *cluster;
    unsigned int index;
    emulator_gpu *gpu;
    const emulator_model *model;
    emulator_chip chip;
    emulator_state *state; /* locked, and moved to the present */
    emulator_faults faults;
    emulator_feature feature;
    emulator_access access;
    double busy_s;   /* emulated time for which the call blocks after its effect */
    bool is_changed; /* a fault has changed the state: waiting work must read the state again */
} emulator_call;

/* Begins a call on a GPU. `output` is a pointer argument that must not be NULL; pass the handle if
 * the call has no such argument. On NVML_SUCCESS the GPU is locked, and the caller must call
 * emulator_end. */
nvmlReturn_t emulator_begin(emulator_call *call, nvmlDevice_t device, emulator_feature feature,
                            emulator_access access, const void *output);
/* Unlocks the GPU and returns `result`. */
nvmlReturn_t emulator_end(emulator_call *call, nvmlReturn_t result);

/* Begins a call that concerns no GPU. The cluster stays attached until emulator_leave. */
nvmlReturn_t emulator_enter(emulator_cluster **cluster, emulator_faults *faults);
/* Begins a call of the emulator's own API. It also works before nvmlInit. */
nvmlReturn_t emulator_enter_always(emulator_cluster **cluster, emulator_faults *faults);
void emulator_leave(void);

nvmlReturn_t emulator_initialize(void);
nvmlReturn_t emulator_shut_down(void);

/* The driver's numbers of GPUs. They are the GPU indices, unless the fault leave_out_lost has left
 * GPUs out. They do not change until the process initialises again. */
unsigned int emulator_numbered_count(void);
/* Finds the GPU of a number. Returns false if there is none. */
bool emulator_numbered_gpu(unsigned int number, unsigned int *index);
/* Returns the number of a GPU, or the number of GPUs if it has none. */
unsigned int emulator_number_of(unsigned int index);

/* Returns the handle of a GPU. Handles represent GPU indices. */
nvmlDevice_t emulator_handle(unsigned int index);
/* Returns true if emulator_handle can have returned this handle. */
bool emulator_handle_index(nvmlDevice_t device, const emulator_cluster *cluster,
                           unsigned int *index);
bool emulator_counter_restart_is_due(const emulator_faults *faults, unsigned int gpu,
                                     int64_t now_ns);

#endif
