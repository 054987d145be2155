/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of nvml_unsupported.h. After nvmlInit each of them returns NVML_ERROR_NOT_SUPPORTED,
 * whatever its arguments are. The functions are defined without arguments. The calling conventions
 * of x86-64 and AArch64 permit this. */
#include "call.h"

static nvmlReturn_t answer(void) {
    emulator_cluster *cluster;
    nvmlReturn_t result = emulator_enter(&cluster, NULL);
    if (result != NVML_SUCCESS) return result;
    emulator_leave();
    return NVML_ERROR_NOT_SUPPORTED;
}

#define UNSUPPORTED(name) \
    NVML_CALL(name, void) { return answer(); }
#include "nvml_unsupported.h"
