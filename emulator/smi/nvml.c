/* SPDX-License-Identifier: Apache-2.0 */
/* Access to the emulated library: opens it, refuses any other library, finds GPUs, and calls
 * functions of NVML. There is one function for each form of NVML's calls. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "smi.h"

static void *library;

void *smi_function(const char *name) { return dlsym(library, name); }

const char *smi_error_text(nvmlReturn_t code) {
    const char *(*text)(nvmlReturn_t) = NULL;
    *(void **)&text = smi_function("nvmlErrorString");
    return text ? text(code) : "Unknown Error";
}

int smi_exit_status(nvmlReturn_t code) {
    bool is_documented = code <= NVML_ERROR_GPU_IS_LOST && code != NVML_ERROR_UNINITIALIZED;
    return is_documented ? (int)code : SMI_OTHER;
}

/* ---- Shapes of calls ------------------------------------------------------------------------- */

nvmlReturn_t smi_get_number(const smi_gpu *gpu, const char *function, unsigned int *value) {
    nvmlReturn_t (*call)(nvmlDevice_t, unsigned int *) = NULL;
    *(void **)&call = smi_function(function);
    return call ? call(gpu->device, value) : NVML_ERROR_FUNCTION_NOT_FOUND;
}

nvmlReturn_t smi_get_number_of(const smi_gpu *gpu, const char *function, unsigned int which,
                               unsigned int *value) {
    nvmlReturn_t (*call)(nvmlDevice_t, unsigned int, unsigned int *) = NULL;
    *(void **)&call = smi_function(function);
    return call ? call(gpu->device, which, value) : NVML_ERROR_FUNCTION_NOT_FOUND;
}

nvmlReturn_t smi_get_two(const smi_gpu *gpu, const char *function, unsigned int *one,
                         unsigned int *other) {
    nvmlReturn_t (*call)(nvmlDevice_t, unsigned int *, unsigned int *) = NULL;
    *(void **)&call = smi_function(function);
    return call ? call(gpu->device, one, other) : NVML_ERROR_FUNCTION_NOT_FOUND;
}

nvmlReturn_t smi_get_text(const smi_gpu *gpu, const char *function, char *text, size_t size) {
    nvmlReturn_t (*call)(nvmlDevice_t, char *, unsigned int) = NULL;
    *(void **)&call = smi_function(function);
    return call ? call(gpu->device, text, (unsigned int)size) : NVML_ERROR_FUNCTION_NOT_FOUND;
}

nvmlReturn_t smi_get_system_text(const char *function, char *text, size_t size) {
    nvmlReturn_t (*call)(char *, unsigned int) = NULL;
    *(void **)&call = smi_function(function);
    return call ? call(text, (unsigned int)size) : NVML_ERROR_FUNCTION_NOT_FOUND;
}

nvmlReturn_t smi_get_field(const smi_gpu *gpu, unsigned int field, unsigned int scope,
                           unsigned int *value) {
    nvmlReturn_t (*call)(nvmlDevice_t, int, nvmlFieldValue_t *) = NULL;
    *(void **)&call = smi_function("nvmlDeviceGetFieldValues");
    nvmlFieldValue_t got = {.fieldId = field, .scopeId = scope};
    nvmlReturn_t code = call ? call(gpu->device, 1, &got) : NVML_ERROR_FUNCTION_NOT_FOUND;
    if (code == NVML_SUCCESS) code = got.nvmlReturn;
    if (code == NVML_SUCCESS) *value = got.value.uiVal;
    return code;
}

unsigned int smi_get_processes(const smi_gpu *gpu, nvmlProcessInfo_t *processes) {
    nvmlReturn_t (*call)(nvmlDevice_t, unsigned int *, nvmlProcessInfo_t *) = NULL;
    *(void **)&call = smi_function("nvmlDeviceGetComputeRunningProcesses_v3");
    unsigned int count = SMI_PROCESS_MAX;
    return call && call(gpu->device, &count, processes) == NVML_SUCCESS ? count : 0;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static int open_library(void) {
    const char *path = getenv("HARPE_NVML_LIBRARY");
    if (!path || !*path) path = "libnvidia-ml.so.1";
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("NVIDIA-SMI of Harpe's emulator: there are no emulated GPUs here (%s). Run it under "
               "'harpe emulate'.\n",
               dlerror());
        return SMI_NO_LIBRARY;
    }
    if (!smi_function("harpe_emulator_now_ns")) {
        printf("NVIDIA-SMI of Harpe's emulator: %s is not the emulator's library, and this program "
               "uses no other. Run NVIDIA's own nvidia-smi for real GPUs, or this one under 'harpe "
               "emulate'.\n",
               path);
        return SMI_NO_DRIVER;
    }
    nvmlReturn_t (*initialize)(void) = NULL;
    *(void **)&initialize = smi_function("nvmlInit_v2");
    nvmlReturn_t code = initialize ? initialize() : NVML_ERROR_FUNCTION_NOT_FOUND;
    if (code == NVML_SUCCESS) return SMI_OK;
    printf("Failed to initialize NVML: %s\n", smi_error_text(code));
    return smi_exit_status(code);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

static bool find_gpu(unsigned int index, smi_gpu *out) {
    nvmlReturn_t (*by_index)(unsigned int, nvmlDevice_t *) = NULL;
    nvmlReturn_t (*pci_info)(nvmlDevice_t, nvmlPciInfo_t *) = NULL;
    *(void **)&by_index = smi_function("nvmlDeviceGetHandleByIndex_v2");
    *(void **)&pci_info = smi_function("nvmlDeviceGetPciInfo_v3");
    *out = (smi_gpu){.index = index};
    if (by_index(index, &out->device) != NVML_SUCCESS) return false;
    if (pci_info(out->device, &out->pci) != NVML_SUCCESS)
        snprintf(out->pci.busId, sizeof out->pci.busId, "(GPU %u is lost)", index);
    return true;
}

/* Finds a GPU by its index, UUID, or PCI address in one of its two lengths. */
static bool is_named(const smi_gpu *gpu, const char *id, size_t length) {
    char wanted[SMI_TEXT_MAX], index[16], uuid[SMI_TEXT_MAX] = "";
    if (length == 0 || length >= sizeof wanted) return false;
    snprintf(wanted, sizeof wanted, "%.*s", (int)length, id);
    snprintf(index, sizeof index, "%u", gpu->index);
    (void)smi_get_text(gpu, "nvmlDeviceGetUUID", uuid, sizeof uuid);
    return strcmp(wanted, index) == 0 || strcasecmp(wanted, uuid) == 0 ||
           strcasecmp(wanted, gpu->pci.busId) == 0 || strcasecmp(wanted, gpu->pci.busIdLegacy) == 0;
}

static bool is_wanted(const smi_gpu *gpu, const char *ids) {
    if (!ids) return true;
    for (const char *id = ids; id; id = strchr(id, ',') ? strchr(id, ',') + 1 : NULL)
        if (is_named(gpu, id, strcspn(id, ","))) return true;
    return false;
}

/* Checks that every name in the list is that of a GPU. */
static bool are_all_found(const smi_gpus *gpus, const char *ids) {
    for (const char *id = ids; id; id = strchr(id, ',') ? strchr(id, ',') + 1 : NULL) {
        bool is_found = false;
        for (unsigned int i = 0; i < gpus->count; i++)
            is_found = is_found || is_named(&gpus->gpu[i], id, strcspn(id, ","));
        if (!is_found) return false;
    }
    return true;
}

int smi_open(const char *ids, smi_gpus *gpus) {
    int status = open_library();
    if (status != SMI_OK) return status;
    nvmlReturn_t (*get_count)(unsigned int *) = NULL;
    *(void **)&get_count = smi_function("nvmlDeviceGetCount_v2");
    gpus->count = 0;
    gpus->driver_count = 0;
    if (get_count) (void)get_count(&gpus->driver_count);
    for (unsigned int i = 0; i < gpus->driver_count && i < SMI_GPU_MAX; i++) {
        smi_gpu gpu;
        if (find_gpu(i, &gpu) && is_wanted(&gpu, ids)) gpus->gpu[gpus->count++] = gpu;
    }
    if (gpus->count > 0 && are_all_found(gpus, ids)) return SMI_OK;
    printf("No devices were found\n");
    return SMI_NOT_FOUND;
}
