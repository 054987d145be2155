/* SPDX-License-Identifier: Apache-2.0 */
/* Maps NVML's error codes to Harpe's with one table of status, name and advice. The back-end uses
 * it for every failed call. */
#include "gpu/nvml_errors.h"

#include <stddef.h>

#include "gpu/nvml_abi.h"

typedef struct nvml_error {
    int code;
    harpe_status status;
    const char *name;
    const char *advice;
} nvml_error;

#define ROW(code, status, advice) \
    { code, status, #code, advice }

static const nvml_error errors[] = {
    ROW(NVML_ERROR_UNINITIALIZED, HARPE_DRIVER_ERROR,
        "NVML was shut down by another part of this process"),
    ROW(NVML_ERROR_INVALID_ARGUMENT, HARPE_INVALID_ARGUMENT,
        "the driver does not accept this value for this GPU; 'harpe gpus' shows its ranges"),
    ROW(NVML_ERROR_NOT_SUPPORTED, HARPE_NOT_SUPPORTED, "this GPU or its driver cannot do it"),
    ROW(NVML_ERROR_NO_PERMISSION, HARPE_PERMISSION_DENIED,
        "run as root, or give the process CAP_SYS_ADMIN (in a container: --cap-add SYS_ADMIN), or "
        "let zeusd make the change"),
    ROW(NVML_ERROR_ALREADY_INITIALIZED, HARPE_DRIVER_ERROR, "NVML was initialised before"),
    ROW(NVML_ERROR_NOT_FOUND, HARPE_NOT_FOUND, "the driver does not know it"),
    ROW(NVML_ERROR_INSUFFICIENT_SIZE, HARPE_DRIVER_ERROR, "the driver's list kept growing"),
    ROW(NVML_ERROR_INSUFFICIENT_POWER, HARPE_DRIVER_ERROR, "check the GPU's external power cables"),
    ROW(NVML_ERROR_DRIVER_NOT_LOADED, HARPE_UNAVAILABLE,
        "the NVIDIA kernel driver is not loaded: try 'modprobe nvidia' and see 'dmesg'"),
    ROW(NVML_ERROR_TIMEOUT, HARPE_DRIVER_ERROR, "the driver did not answer in time; see 'dmesg'"),
    ROW(NVML_ERROR_IRQ_ISSUE, HARPE_DRIVER_ERROR,
        "the kernel has an interrupt problem with the GPU; see 'dmesg'"),
    ROW(NVML_ERROR_LIBRARY_NOT_FOUND, HARPE_UNAVAILABLE,
        "a library of the driver is missing: reinstall the driver, or start the container with "
        "the NVIDIA container toolkit"),
    ROW(NVML_ERROR_FUNCTION_NOT_FOUND, HARPE_NOT_SUPPORTED,
        "the driver library is too old and lacks the function: update the driver"),
    ROW(NVML_ERROR_CORRUPTED_INFOROM, HARPE_DRIVER_ERROR,
        "the GPU's information memory is damaged: ask its vendor"),
    ROW(NVML_ERROR_GPU_IS_LOST, HARPE_GPU_LOST,
        "the GPU fell off the bus: an administrator must reset it or restart the machine; see "
        "'dmesg' for its Xid"),
    ROW(NVML_ERROR_RESET_REQUIRED, HARPE_GPU_LOST,
        "the GPU must be reset first (nvidia-smi --gpu-reset)"),
    ROW(NVML_ERROR_OPERATING_SYSTEM, HARPE_DRIVER_ERROR,
        "the operating system blocks the GPU (cgroup, container); see 'dmesg'"),
    ROW(NVML_ERROR_LIB_RM_VERSION_MISMATCH, HARPE_DRIVER_ERROR,
        "the driver was updated while loaded: reload its kernel module or restart the machine"),
    ROW(NVML_ERROR_IN_USE, HARPE_DRIVER_ERROR, "the GPU is in use; stop what uses it"),
    ROW(NVML_ERROR_MEMORY, HARPE_OUT_OF_MEMORY, "not enough memory"),
    ROW(NVML_ERROR_NO_DATA, HARPE_DRIVER_ERROR, "there is no data yet; try again"),
    ROW(NVML_ERROR_VGPU_ECC_NOT_SUPPORTED, HARPE_NOT_SUPPORTED,
        "not possible on a virtual GPU with ECC"),
    ROW(NVML_ERROR_INSUFFICIENT_RESOURCES, HARPE_DRIVER_ERROR,
        "the driver ran out of something other than memory"),
    ROW(NVML_ERROR_FREQ_NOT_SUPPORTED, HARPE_INVALID_ARGUMENT,
        "the GPU does not have this frequency; 'harpe gpus' shows its range"),
    ROW(NVML_ERROR_ARGUMENT_VERSION_MISMATCH, HARPE_NOT_SUPPORTED,
        "driver and caller disagree about a version: update the driver"),
    ROW(NVML_ERROR_DEPRECATED, HARPE_NOT_SUPPORTED, "the driver no longer does this"),
    ROW(NVML_ERROR_NOT_READY, HARPE_DRIVER_ERROR, "the system is not ready yet; try again"),
    ROW(NVML_ERROR_GPU_NOT_FOUND, HARPE_UNAVAILABLE, "the driver finds no GPU"),
    ROW(NVML_ERROR_INVALID_STATE, HARPE_DRIVER_ERROR, "the GPU is in no state to do this"),
    ROW(NVML_ERROR_UNKNOWN, HARPE_DRIVER_ERROR, "the driver gives no reason; see 'dmesg'"),
};

static const nvml_error *find(int code) {
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code) return &errors[i];
    return NULL;
}

harpe_status harpe_nvml_status(int code) {
    if (code == NVML_SUCCESS) return HARPE_OK;
    const nvml_error *error = find(code);
    return error ? error->status : HARPE_DRIVER_ERROR;
}

const char *harpe_nvml_error_name(int code) {
    const nvml_error *error = find(code);
    return error ? error->name : "NVML error";
}

const char *harpe_nvml_error_advice(int code) {
    const nvml_error *error = find(code);
    return error ? error->advice : "unknown to this version of Harpe; see 'dmesg'";
}
