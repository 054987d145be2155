/* SPDX-License-Identifier: Apache-2.0 */
/* Changes settings for nvidia-smi: power limits, locked clocks, persistence mode, compute mode. The
 * caller has already checked that the library is the emulator's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "smi.h"

static int finish(nvmlReturn_t code) {
    printf("%s\n",
           code == NVML_SUCCESS ? "All done." : "Terminating early due to previous errors.");
    return code == NVML_SUCCESS ? SMI_OK : smi_exit_status(code);
}

static void tell_failure(const char *what, const smi_gpu *gpu, nvmlReturn_t code) {
    printf("%s for GPU %s: %s\n", what, gpu->pci.busId, smi_error_text(code));
}

/* Calls a function of NVML that sets one number. */
static nvmlReturn_t set_number(const smi_gpu *gpu, const char *function, unsigned int value) {
    nvmlReturn_t (*call)(nvmlDevice_t, unsigned int) = NULL;
    *(void **)&call = smi_function(function);
    return call ? call(gpu->device, value) : NVML_ERROR_FUNCTION_NOT_FOUND;
}

/* ---- Power limit ----------------------------------------------------------------------------- */

static nvmlReturn_t set_limit(const smi_gpu *gpu, double watts) {
    unsigned int before_mw = 0, minimum_mw = 0, maximum_mw = 0;
    unsigned int limit_mw = (unsigned int)lround(watts * 1e3);
    nvmlReturn_t code =
        smi_get_two(gpu, "nvmlDeviceGetPowerManagementLimitConstraints", &minimum_mw, &maximum_mw);
    if (code == NVML_SUCCESS && (limit_mw < minimum_mw || limit_mw > maximum_mw)) {
        printf("Provided power limit %.2f W is not a valid power limit which should be between "
               "%.2f W and %.2f W for GPU %s\n",
               watts, minimum_mw / 1e3, maximum_mw / 1e3, gpu->pci.busId);
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    (void)smi_get_number(gpu, "nvmlDeviceGetPowerManagementLimit", &before_mw);
    if (code == NVML_SUCCESS) code = set_number(gpu, "nvmlDeviceSetPowerManagementLimit", limit_mw);
    if (code == NVML_SUCCESS) {
        printf("Power limit for GPU %s was set to %.2f W from %.2f W.\n", gpu->pci.busId, watts,
               before_mw / 1e3);
    } else {
        tell_failure("Unable to set power limit", gpu, code);
    }
    return code;
}

int smi_set_power_limit(const smi_gpus *gpus, const char *text) {
    char *end = NULL;
    double watts = strtod(text, &end);
    if (end == text || *end != '\0' || !(watts > 0 && watts < 1e6)) {
        printf("Invalid power limit: %s. A number of watts is expected.\n", text);
        return SMI_BAD_ARGUMENT;
    }
    nvmlReturn_t code = NVML_SUCCESS;
    for (unsigned int i = 0; i < gpus->count && code == NVML_SUCCESS; i++)
        code = set_limit(&gpus->gpu[i], watts);
    return finish(code);
}

/* ---- Switches -------------------------------------------------------------------------------- */

static int parse_switch(const char *text, int highest) {
    static const char *const modes[] = {"0", "1", "2", "3"};
    if (strcasecmp(text, "DISABLED") == 0) return 0;
    if (strcasecmp(text, "ENABLED") == 0) return 1;
    for (int i = 0; i <= highest; i++)
        if (strcmp(text, modes[i]) == 0) return i;
    return -1;
}

int smi_set_persistence(const smi_gpus *gpus, const char *text) {
    int mode = parse_switch(text, 1);
    if (mode < 0) {
        printf("Invalid persistence mode: %s. 0 or 1 is expected.\n", text);
        return SMI_BAD_ARGUMENT;
    }
    const char *name = mode ? "Enabled" : "Disabled";
    nvmlReturn_t code = NVML_SUCCESS;
    for (unsigned int i = 0; i < gpus->count && code == NVML_SUCCESS; i++) {
        const smi_gpu *gpu = &gpus->gpu[i];
        unsigned int before = 2;
        (void)smi_get_number(gpu, "nvmlDeviceGetPersistenceMode", &before);
        if (before == (unsigned int)mode) {
            printf("Persistence mode is already %s for GPU %s.\n", name, gpu->pci.busId);
            continue;
        }
        code = set_number(gpu, "nvmlDeviceSetPersistenceMode", (unsigned int)mode);
        if (code == NVML_SUCCESS)
            printf("%s persistence mode for GPU %s.\n", name, gpu->pci.busId);
        else
            tell_failure("Unable to set persistence mode", gpu, code);
    }
    return finish(code);
}

int smi_set_compute_mode(const smi_gpus *gpus, const char *text) {
    int mode = parse_switch(text, 3);
    if (mode < 0) {
        printf("Invalid compute mode: %s. 0, 2 or 3 is expected.\n", text);
        return SMI_BAD_ARGUMENT;
    }
    nvmlReturn_t code = NVML_SUCCESS;
    for (unsigned int i = 0; i < gpus->count && code == NVML_SUCCESS; i++) {
        const smi_gpu *gpu = &gpus->gpu[i];
        code = set_number(gpu, "nvmlDeviceSetComputeMode", (unsigned int)mode);
        if (code == NVML_SUCCESS) {
            printf("Set compute mode to %s for GPU %s.\n", SMI_VALUE(gpu, "compute_mode"),
                   gpu->pci.busId);
        } else {
            tell_failure("Unable to set the compute mode", gpu, code);
        }
    }
    return finish(code);
}

/* ---- Clocks ---------------------------------------------------------------------------------- */

/* Parses "1000,1200", or one clock for both. */
static bool parse_range(const char *text, unsigned int *minimum, unsigned int *maximum) {
    char *end = NULL;
    unsigned long first = strtoul(text, &end, 10), second = first;
    if (end == text || first > 100000) return false;
    if (*end == ',') {
        const char *rest = end + 1;
        second = strtoul(rest, &end, 10);
        if (end == rest || second > 100000) return false;
    }
    *minimum = (unsigned int)first;
    *maximum = (unsigned int)second;
    return *end == '\0';
}

static nvmlReturn_t lock_or_reset(const smi_gpu *gpu, const char *range, unsigned int minimum,
                                  unsigned int maximum, bool is_memory) {
    if (!range) {
        nvmlReturn_t (*reset)(nvmlDevice_t) = NULL;
        *(void **)&reset = smi_function(is_memory ? "nvmlDeviceResetMemoryLockedClocks"
                                                  : "nvmlDeviceResetGpuLockedClocks");
        return reset ? reset(gpu->device) : NVML_ERROR_FUNCTION_NOT_FOUND;
    }
    nvmlReturn_t (*lock)(nvmlDevice_t, unsigned int, unsigned int) = NULL;
    *(void **)&lock = smi_function(is_memory ? "nvmlDeviceSetMemoryLockedClocks"
                                             : "nvmlDeviceSetGpuLockedClocks");
    return lock ? lock(gpu->device, minimum, maximum) : NVML_ERROR_FUNCTION_NOT_FOUND;
}

int smi_lock_clocks(const smi_gpus *gpus, const char *range, bool is_memory) {
    unsigned int minimum = 0, maximum = 0;
    const char *kind = is_memory ? "Memory" : "GPU";
    const char *name = is_memory ? "mem" : "gpu";
    if (range && !parse_range(range, &minimum, &maximum)) {
        printf("Invalid clocks: %s. A clock in MHz or \"minimum,maximum\" is expected.\n", range);
        return SMI_BAD_ARGUMENT;
    }
    nvmlReturn_t code = NVML_SUCCESS;
    for (unsigned int i = 0; i < gpus->count && code == NVML_SUCCESS; i++) {
        const smi_gpu *gpu = &gpus->gpu[i];
        code = lock_or_reset(gpu, range, minimum, maximum, is_memory);
        if (code != NVML_SUCCESS) {
            char what[64];
            snprintf(what, sizeof what, "Unable to %s %s locked clocks", range ? "set" : "reset",
                     is_memory ? "memory" : "GPU");
            tell_failure(what, gpu, code);
        } else if (range) {
            printf("%s clocks set to \"(%sClkMin %u, %sClkMax %u)\" for GPU %s\n", kind, name,
                   minimum, name, maximum, gpu->pci.busId);
        } else {
            printf("%s clocks reset for GPU %s\n", kind, gpu->pci.busId);
        }
    }
    return finish(code);
}
