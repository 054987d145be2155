/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of nvml_unsupported.h: each says that it is not supported, whatever it is given. Their
 * arguments are never looked at, which the calling conventions of x86-64 and AArch64 permit. */
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
