/* SPDX-License-Identifier: Apache-2.0 */
/* A driver library that reads as the real one and refuses all changes that Harpe can make, as the
 * driver refuses them to a user without rights. bench/gpu_training uses it, so that no mistake can
 * change the GPU. It depends on libnvidia-ml.so.1, so a lookup finds the functions of this file
 * first and all others there:
 *
 *     cc -shared -x c /dev/null -Wl,-soname,libnvidia-ml.so.1 -o /tmp/libnvidia-ml.so.1
 *     cc -shared -fPIC bench/gpu_refuse.c -Wl,--no-as-needed /tmp/libnvidia-ml.so.1 -o refuse.so
 *
 * The empty library only satisfies the linker. */
enum { NO_PERMISSION = 4 }; /* nvml.h: NVML_ERROR_NO_PERMISSION */

/* The names are those of NVML. The arguments are not read. */
#define REFUSE(name) \
    int name(void); \
    int name(void) { return NO_PERMISSION; }

REFUSE(nvmlDeviceSetPowerManagementLimit)
REFUSE(nvmlDeviceSetPowerManagementLimit_v2)
REFUSE(nvmlDeviceSetPersistenceMode)
REFUSE(nvmlDeviceSetGpuLockedClocks)
REFUSE(nvmlDeviceResetGpuLockedClocks)
REFUSE(nvmlDeviceSetMemoryLockedClocks)
REFUSE(nvmlDeviceResetMemoryLockedClocks)
REFUSE(nvmlDeviceSetApplicationsClocks)
REFUSE(nvmlDeviceResetApplicationsClocks)
