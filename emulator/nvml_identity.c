/* SPDX-License-Identifier: Apache-2.0 */
/* NVML calls that identify a GPU: name, UUID, PCI address, architecture, and modes that an emulated
 * GPU has or lacks. These values never change. */
#include <stdio.h>
#include <string.h>

#include "call.h"

static nvmlReturn_t put_text(emulator_call *call, const char *text, char *to, unsigned int length) {
    if (strlen(text) >= length) return emulator_end(call, NVML_ERROR_INSUFFICIENT_SIZE);
    memcpy(to, text, strlen(text) + 1);
    return emulator_end(call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetName, nvmlDevice_t device, char *name, unsigned int length) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_IDENTITY, EMULATOR_READ, name);
    if (result != NVML_SUCCESS) return result;
    return put_text(&call, call.model->name, name, length);
}

/* MIG instances. A handle is the address of one of these bytes. Only the UUID of an instance can be
 * read. The other calls do not know its handle. */
enum { MIG_DEVICES = 2, MIG_DEVICES_MAX = 7 };
static char mig_handles[EMULATOR_GPU_MAX * MIG_DEVICES];

static bool find_mig_device(nvmlDevice_t device, unsigned int *index) {
    uintptr_t offset = (uintptr_t)device - (uintptr_t)mig_handles;
    if (offset >= sizeof mig_handles) return false;
    *index = (unsigned int)offset;
    return true;
}

static bool has_mig_devices(const emulator_call *call) {
    bool has_mig = call->model->compute_major >= 8 && call->model->compute_minor == 0;
    return has_mig && call->faults.has_mig;
}

/* "MIG-" and the digits of the GPU's UUID, of which the last is replaced. */
static nvmlReturn_t put_mig_uuid(unsigned int index, char *uuid, unsigned int length) {
    emulator_call call;
    char text[sizeof call.gpu->uuid];
    nvmlDevice_t gpu = emulator_handle(index / MIG_DEVICES);
    nvmlReturn_t result = emulator_begin(&call, gpu, EMULATOR_IDENTITY, EMULATOR_READ, uuid);
    if (result != NVML_SUCCESS) return result;
    (void)snprintf(text, sizeof text, "MIG%s", call.gpu->uuid + 3);
    text[strlen(text) - 1] = (char)('0' + index % MIG_DEVICES);
    return put_text(&call, text, uuid, length);
}

NVML_CALL(nvmlDeviceGetUUID, nvmlDevice_t device, char *uuid, unsigned int length) {
    emulator_call call;
    unsigned int mig_device = 0;
    if (find_mig_device(device, &mig_device)) return put_mig_uuid(mig_device, uuid, length);
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_IDENTITY, EMULATOR_READ, uuid);
    if (result != NVML_SUCCESS) return result;
    return put_text(&call, call.gpu->uuid, uuid, length);
}

NVML_CALL(nvmlDeviceGetVbiosVersion, nvmlDevice_t device, char *version, unsigned int length) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_IDENTITY, EMULATOR_READ, version);
    if (result != NVML_SUCCESS) return result;
    return put_text(&call, "00.00.00.00.01", version, length);
}

/* ---- PCI ------------------------------------------------------------------------------------- */

NVML_CALL(nvmlDeviceGetPciInfo_v3, nvmlDevice_t device, nvmlPciInfo_t *pci) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_IDENTITY, EMULATOR_READ, pci);
    if (result != NVML_SUCCESS) return result;
    memset(pci, 0, sizeof *pci);
    pci->domain = call.gpu->pci_domain;
    pci->bus = call.gpu->pci_bus;
    pci->pciDeviceId = call.model->pci_device_id;
    pci->pciSubSystemId = call.model->pci_subsystem_id;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:00.0", pci->domain & 0xffff,
             pci->bus & 0xff);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:00.0", pci->domain, pci->bus & 0xff);
    return emulator_end(&call, NVML_SUCCESS);
}

/* The older layout ends after pciSubSystemId, with four reserved words. */
typedef struct pci_info_v2 {
    char bus_id[16];
    unsigned int domain, bus, device, pci_device_id, pci_subsystem_id, reserved[4];
} pci_info_v2;

NVML_CALL(nvmlDeviceGetPciInfo_v2, nvmlDevice_t device, pci_info_v2 *pci) {
    nvmlPciInfo_t full;
    nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, pci ? &full : NULL);
    if (result != NVML_SUCCESS) return result;
    memset(pci, 0, sizeof *pci);
    memcpy(pci->bus_id, full.busIdLegacy, sizeof pci->bus_id);
    pci->domain = full.domain;
    pci->bus = full.bus;
    pci->pci_device_id = full.pciDeviceId;
    pci->pci_subsystem_id = full.pciSubSystemId;
    return NVML_SUCCESS;
}

/* The oldest layout has no subsystem id: the reserved words follow pciDeviceId. */
typedef struct pci_info_v1 {
    char bus_id[16];
    unsigned int domain, bus, device, pci_device_id;
} pci_info_v1;

NVML_CALL(nvmlDeviceGetPciInfo, nvmlDevice_t device, pci_info_v1 *pci) {
    nvmlPciInfo_t full;
    nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, pci ? &full : NULL);
    if (result != NVML_SUCCESS) return result;
    memset(pci, 0, sizeof *pci);
    memcpy(pci->bus_id, full.busIdLegacy, sizeof pci->bus_id);
    pci->domain = full.domain;
    pci->bus = full.bus;
    pci->pci_device_id = full.pciDeviceId;
    return NVML_SUCCESS;
}

/* ---- Single numbers -------------------------------------------------------------------------- */

typedef enum number {
    NUMBER_INDEX,
    NUMBER_MINOR,
    NUMBER_ARCHITECTURE,
    NUMBER_BRAND,
    NUMBER_CORES,
    NUMBER_BUS_WIDTH,
    NUMBER_PCIE_GENERATION,
    NUMBER_PCIE_WIDTH,
    NUMBER_ZERO,
} number;

static nvmlReturn_t get_number(nvmlDevice_t device, number which, unsigned int *value) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_IDENTITY, EMULATOR_READ, value);
    if (result != NVML_SUCCESS) return result;
    const emulator_model *model = call.model;
    const unsigned int values[] = {
        [NUMBER_INDEX] = emulator_number_of(call.index),
        [NUMBER_MINOR] = call.index,
        [NUMBER_ARCHITECTURE] = model->architecture,
        [NUMBER_BRAND] = model->brand,
        [NUMBER_CORES] = model->core_count,
        [NUMBER_BUS_WIDTH] = model->memory_bus_bits,
        [NUMBER_PCIE_GENERATION] = model->pcie_generation,
        [NUMBER_PCIE_WIDTH] = 16,
        [NUMBER_ZERO] = 0,
    };
    *value = values[which];
    return emulator_end(&call, NVML_SUCCESS);
}

#define NUMBER_CALL(name, which) \
    NVML_CALL(name, nvmlDevice_t device, unsigned int *value) { \
        return get_number(device, which, value); \
    }

NUMBER_CALL(nvmlDeviceGetIndex, NUMBER_INDEX)
NUMBER_CALL(nvmlDeviceGetMinorNumber, NUMBER_MINOR)
NUMBER_CALL(nvmlDeviceGetArchitecture, NUMBER_ARCHITECTURE)
NUMBER_CALL(nvmlDeviceGetBrand, NUMBER_BRAND)
NUMBER_CALL(nvmlDeviceGetNumGpuCores, NUMBER_CORES)
NUMBER_CALL(nvmlDeviceGetMemoryBusWidth, NUMBER_BUS_WIDTH)
NUMBER_CALL(nvmlDeviceGetMaxPcieLinkGeneration, NUMBER_PCIE_GENERATION)
NUMBER_CALL(nvmlDeviceGetGpuMaxPcieLinkGeneration, NUMBER_PCIE_GENERATION)
NUMBER_CALL(nvmlDeviceGetCurrPcieLinkGeneration, NUMBER_PCIE_GENERATION)
NUMBER_CALL(nvmlDeviceGetMaxPcieLinkWidth, NUMBER_PCIE_WIDTH)
NUMBER_CALL(nvmlDeviceGetCurrPcieLinkWidth, NUMBER_PCIE_WIDTH)
NUMBER_CALL(nvmlDeviceGetPcieReplayCounter, NUMBER_ZERO)
NUMBER_CALL(nvmlDeviceGetMultiGpuBoard, NUMBER_ZERO)
NUMBER_CALL(nvmlDeviceGetDisplayMode, NUMBER_ZERO)
NUMBER_CALL(nvmlDeviceGetDisplayActive, NUMBER_ZERO)
NUMBER_CALL(nvmlDeviceIsMigDeviceHandle, NUMBER_ZERO)

NVML_CALL(nvmlDeviceGetCudaComputeCapability, nvmlDevice_t device, int *major, int *minor) {
    emulator_call call;
    nvmlReturn_t result =
        emulator_begin(&call, device, EMULATOR_IDENTITY, EMULATOR_READ, minor ? major : NULL);
    if (result != NVML_SUCCESS) return result;
    *major = (int)call.model->compute_major;
    *minor = (int)call.model->compute_minor;
    return emulator_end(&call, NVML_SUCCESS);
}

/* ---- Switches -------------------------------------------------------------------------------- */

NVML_CALL(nvmlDeviceGetPersistenceMode, nvmlDevice_t device, nvmlEnableState_t *mode) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_PERSISTENCE, EMULATOR_READ, mode);
    if (result != NVML_SUCCESS) return result;
    *mode = call.state->persistence ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceSetPersistenceMode, nvmlDevice_t device, nvmlEnableState_t mode) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_PERSISTENCE, EMULATOR_SET, device);
    if (result != NVML_SUCCESS) return result;
    if ((unsigned int)mode > NVML_FEATURE_ENABLED)
        return emulator_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    call.state->persistence = mode;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetComputeMode, nvmlDevice_t device, nvmlComputeMode_t *mode) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_IDENTITY, EMULATOR_READ, mode);
    if (result != NVML_SUCCESS) return result;
    *mode = (nvmlComputeMode_t)call.state->compute_mode;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceSetComputeMode, nvmlDevice_t device, nvmlComputeMode_t mode) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_IDENTITY, EMULATOR_SET, device);
    if (result != NVML_SUCCESS) return result;
    if ((unsigned int)mode > NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
        return emulator_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    call.state->compute_mode = mode;
    return emulator_end(&call, NVML_SUCCESS);
}

/* Without the fault "mig", MIG is off on models that support it (A100, H100). */
NVML_CALL(nvmlDeviceGetMigMode, nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    emulator_call call;
    nvmlReturn_t result =
        emulator_begin(&call, device, EMULATOR_IDENTITY, EMULATOR_READ, pending ? current : NULL);
    if (result != NVML_SUCCESS) return result;
    bool has_mig = call.model->compute_major >= 8 && call.model->compute_minor == 0;
    if (!has_mig) return emulator_end(&call, NVML_ERROR_NOT_SUPPORTED);
    *current = *pending = call.faults.has_mig ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetMaxMigDeviceCount, nvmlDevice_t device, unsigned int *count) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_IDENTITY, EMULATOR_READ, count);
    if (result != NVML_SUCCESS) return result;
    *count = has_mig_devices(&call) ? MIG_DEVICES_MAX : 0;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetMigDeviceHandleByIndex, nvmlDevice_t device, unsigned int index,
          nvmlDevice_t *mig_device) {
    emulator_call call;
    nvmlReturn_t result =
        emulator_begin(&call, device, EMULATOR_IDENTITY, EMULATOR_READ, mig_device);
    if (result != NVML_SUCCESS) return result;
    if (!has_mig_devices(&call)) return emulator_end(&call, NVML_ERROR_NOT_SUPPORTED);
    if (index >= MIG_DEVICES_MAX) return emulator_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (index >= MIG_DEVICES) return emulator_end(&call, NVML_ERROR_NOT_FOUND);
    *mig_device = (nvmlDevice_t)(void *)&mig_handles[call.index * MIG_DEVICES + index];
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetEccMode, nvmlDevice_t device, nvmlEnableState_t *current,
          nvmlEnableState_t *pending) {
    emulator_call call;
    nvmlReturn_t result =
        emulator_begin(&call, device, EMULATOR_IDENTITY, EMULATOR_READ, pending ? current : NULL);
    if (result != NVML_SUCCESS) return result;
    *current = *pending = NVML_FEATURE_ENABLED;
    return emulator_end(&call, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceGetTotalEccErrors, nvmlDevice_t device, unsigned int type, unsigned int counter,
          unsigned long long *count) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_IDENTITY, EMULATOR_READ, count);
    if (result != NVML_SUCCESS) return result;
    if (type > 1 || counter > 1) return emulator_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    return emulator_end(&call, NVML_SUCCESS);
}

/* A superchip: GPU and CPU on one module, with a link between the chips. */
NVML_CALL(nvmlDeviceGetC2cModeInfoV, nvmlDevice_t device, nvmlC2cModeInfo_v1_t *info) {
    emulator_call call;
    nvmlReturn_t result = emulator_begin(&call, device, EMULATOR_IDENTITY, EMULATOR_READ, info);
    if (result != NVML_SUCCESS) return result;
    if (call.model->module_rest_w <= 0) return emulator_end(&call, NVML_ERROR_NOT_SUPPORTED);
    if (info->version != nvmlC2cModeInfo_v1)
        return emulator_end(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    info->isC2cEnabled = 1;
    return emulator_end(&call, NVML_SUCCESS);
}

/* ---- Neighbours ------------------------------------------------------------------------------ */

/* All GPUs are below one host bridge, so two GPUs have the level NVML_TOPOLOGY_HOSTBRIDGE (30). A
 * GPU and itself have the level internal (0). */
NVML_CALL(nvmlDeviceGetTopologyCommonAncestor, nvmlDevice_t device1, nvmlDevice_t device2,
          unsigned int *level) {
    unsigned int first, second;
    nvmlReturn_t result = get_number(device1, NUMBER_MINOR, level ? &first : NULL);
    if (result != NVML_SUCCESS) return result;
    result = get_number(device2, NUMBER_MINOR, &second);
    if (result != NVML_SUCCESS) return result;
    *level = first == second ? 0 : 30;
    return NVML_SUCCESS;
}
