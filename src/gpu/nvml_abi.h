/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the part of NVIDIA's management library (NVML) that Harpe uses: types, constants and
 * struct layouts with the names of its public documentation, so that both can be read side by
 * side. No function is declared, because functions are looked up at run time (backend_nvml.c) or
 * provided by the emulator. */
#ifndef HARPE_GPU_NVML_ABI_H
#define HARPE_GPU_NVML_ABI_H

#include <assert.h>
#include <stddef.h>

typedef struct nvmlDevice_st *nvmlDevice_t; /* opaque */

typedef enum nvmlReturn_t {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_ALREADY_INITIALIZED = 5,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7, /* returned by the first call of the two-call lists */
    NVML_ERROR_INSUFFICIENT_POWER = 8,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_IRQ_ISSUE = 11,
    NVML_ERROR_LIBRARY_NOT_FOUND = 12,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_CORRUPTED_INFOROM = 14,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_OPERATING_SYSTEM = 17,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_IN_USE = 19,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_NO_DATA = 21,
    NVML_ERROR_VGPU_ECC_NOT_SUPPORTED = 22,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
    NVML_ERROR_FREQ_NOT_SUPPORTED = 24,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_DEPRECATED = 26,
    NVML_ERROR_NOT_READY = 27,
    NVML_ERROR_GPU_NOT_FOUND = 28,
    NVML_ERROR_INVALID_STATE = 29,
    NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

/* ---- Texts ----------------------------------------------------------------------------------- */

enum {
    NVML_DEVICE_NAME_BUFFER_SIZE = 64,
    NVML_DEVICE_NAME_V2_BUFFER_SIZE = 96,
    NVML_DEVICE_UUID_BUFFER_SIZE = 80,
    NVML_DEVICE_UUID_V2_BUFFER_SIZE = 96,
    NVML_DEVICE_SERIAL_BUFFER_SIZE = 30,
    NVML_DEVICE_VBIOS_VERSION_BUFFER_SIZE = 32,
    NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE = 80,
    NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE = 80,
    NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE = 32,
    NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE = 16,
};

/* ---- Switches and kinds ---------------------------------------------------------------------- */

typedef enum nvmlEnableState_t {
    NVML_FEATURE_DISABLED = 0,
    NVML_FEATURE_ENABLED = 1,
} nvmlEnableState_t;

typedef enum nvmlClockType_t {
    NVML_CLOCK_GRAPHICS = 0,
    NVML_CLOCK_SM = 1,
    NVML_CLOCK_MEM = 2,
    NVML_CLOCK_VIDEO = 3,
} nvmlClockType_t;

typedef enum nvmlClockId_t {
    NVML_CLOCK_ID_CURRENT = 0,
    NVML_CLOCK_ID_APP_CLOCK_TARGET = 1,
    NVML_CLOCK_ID_APP_CLOCK_DEFAULT = 2,
    NVML_CLOCK_ID_CUSTOMER_BOOST_MAX = 3,
} nvmlClockId_t;

typedef enum nvmlTemperatureSensors_t {
    NVML_TEMPERATURE_GPU = 0,
} nvmlTemperatureSensors_t;

typedef enum nvmlTemperatureThresholds_t {
    NVML_TEMPERATURE_THRESHOLD_SHUTDOWN = 0,
    NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1,
    NVML_TEMPERATURE_THRESHOLD_MEM_MAX = 2,
    NVML_TEMPERATURE_THRESHOLD_GPU_MAX = 3,
} nvmlTemperatureThresholds_t;

typedef enum nvmlPstates_t {
    NVML_PSTATE_0 = 0, /* the fastest state; the slowest is 15 */
    NVML_PSTATE_15 = 15,
    NVML_PSTATE_UNKNOWN = 32,
} nvmlPstates_t;

typedef enum nvmlComputeMode_t {
    NVML_COMPUTEMODE_DEFAULT = 0,
    NVML_COMPUTEMODE_PROHIBITED = 2,
    NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3,
} nvmlComputeMode_t;

/* Returned by nvmlDeviceGetArchitecture. */
enum {
    NVML_DEVICE_ARCH_KEPLER = 2,
    NVML_DEVICE_ARCH_MAXWELL = 3,
    NVML_DEVICE_ARCH_PASCAL = 4,
    NVML_DEVICE_ARCH_VOLTA = 5,
    NVML_DEVICE_ARCH_TURING = 6,
    NVML_DEVICE_ARCH_AMPERE = 7,
    NVML_DEVICE_ARCH_ADA = 8,
    NVML_DEVICE_ARCH_HOPPER = 9,
    NVML_DEVICE_ARCH_BLACKWELL = 10,
};

/* nvmlDeviceGetMigMode. */
enum {
    NVML_DEVICE_MIG_DISABLE = 0,
    NVML_DEVICE_MIG_ENABLE = 1,
};

/* ---- Clock event (throttle) reasons, a bit set of unsigned long long ------------------------- */

#define nvmlClocksEventReasonNone 0x0000000000000000ULL
#define nvmlClocksEventReasonGpuIdle 0x0000000000000001ULL
#define nvmlClocksEventReasonApplicationsClocksSetting 0x0000000000000002ULL
#define nvmlClocksEventReasonSwPowerCap 0x0000000000000004ULL
#define nvmlClocksThrottleReasonHwSlowdown 0x0000000000000008ULL
#define nvmlClocksEventReasonSyncBoost 0x0000000000000010ULL
#define nvmlClocksEventReasonSwThermalSlowdown 0x0000000000000020ULL
#define nvmlClocksThrottleReasonHwThermalSlowdown 0x0000000000000040ULL
#define nvmlClocksThrottleReasonHwPowerBrakeSlowdown 0x0000000000000080ULL
#define nvmlClocksEventReasonDisplayClockSetting 0x0000000000000100ULL

/* ---- Structs --------------------------------------------------------------------------------- */

/* nvmlDeviceGetPciInfo_v3. */
typedef struct nvmlPciInfo_t {
    char busIdLegacy[NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE]; /* "0000:3b:00.0" */
    unsigned int domain;
    unsigned int bus;
    unsigned int device;
    unsigned int pciDeviceId; /* device id << 16 | vendor id (0x10de) */
    unsigned int pciSubSystemId;
    char busId[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE]; /* "00000000:3B:00.0" */
} nvmlPciInfo_t;
static_assert(sizeof(nvmlPciInfo_t) == 68, "nvmlPciInfo_t differs from the driver's");

typedef struct nvmlUtilization_t {
    unsigned int gpu; /* per cent */
    unsigned int memory;
} nvmlUtilization_t;

/* nvmlDeviceGetMemoryInfo; bytes. */
typedef struct nvmlMemory_t {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
} nvmlMemory_t;

/* nvmlDeviceGetMemoryInfo_v2; the caller sets version to nvmlMemory_v2. */
typedef struct nvmlMemory_v2_t {
    unsigned int version;
    unsigned long long total;
    unsigned long long reserved;
    unsigned long long free;
    unsigned long long used;
} nvmlMemory_v2_t;
static_assert(sizeof(nvmlMemory_v2_t) == 40, "nvmlMemory_v2_t differs from the driver's");

#define NVML_STRUCT_VERSION(type, version) \
    ((unsigned int)(sizeof(type) | ((unsigned int)(version) << 24)))
#define nvmlMemory_v2 NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)

/* nvmlDeviceGet{Compute,Graphics}RunningProcesses_v3. */
typedef struct nvmlProcessInfo_t {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
} nvmlProcessInfo_t;
static_assert(sizeof(nvmlProcessInfo_t) == 24, "nvmlProcessInfo_t differs from the driver's");

/* nvmlDeviceGetTemperatureV; the caller sets version and sensorType. */
typedef struct nvmlTemperature_v1_t {
    unsigned int version;
    nvmlTemperatureSensors_t sensorType;
    int temperature; /* degrees Celsius */
} nvmlTemperature_v1_t;
static_assert(sizeof(nvmlTemperature_v1_t) == 12, "nvmlTemperature_v1_t differs from the driver's");
#define nvmlTemperature_v1 NVML_STRUCT_VERSION(nvmlTemperature_v1_t, 1)

/* nvmlDeviceGetC2cModeInfoV; the caller sets version. */
typedef struct nvmlC2cModeInfo_v1_t {
    unsigned int version;
    unsigned int isC2cEnabled;
} nvmlC2cModeInfo_v1_t;
#define nvmlC2cModeInfo_v1 NVML_STRUCT_VERSION(nvmlC2cModeInfo_v1_t, 1)

/* ---- Field values (nvmlDeviceGetFieldValues) ------------------------------------------------- */

enum {
    NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION = 83, /* mJ since the driver was loaded */
    NVML_FI_DEV_POWER_AVERAGE = 185,           /* mW over the last second */
    NVML_FI_DEV_POWER_INSTANT = 186,           /* mW */
    NVML_FI_DEV_POWER_MIN_LIMIT = 187,         /* mW, like the next three */
    NVML_FI_DEV_POWER_MAX_LIMIT = 188,
    NVML_FI_DEV_POWER_DEFAULT_LIMIT = 189,
    NVML_FI_DEV_POWER_CURRENT_LIMIT = 190,   /* mW; the enforced limit, from any source */
    NVML_FI_DEV_ENERGY = 191,                /* mJ since the driver was loaded */
    NVML_FI_DEV_POWER_REQUESTED_LIMIT = 192, /* mW, as set by nvmlDeviceSetPowerManagementLimit */
};

/* scopeId of the fields from POWER_AVERAGE to POWER_REQUESTED_LIMIT. */
enum {
    NVML_POWER_SCOPE_GPU = 0,
    NVML_POWER_SCOPE_MODULE = 1, /* GPU and CPU of a superchip together */
    NVML_POWER_SCOPE_MEMORY = 2,
};

typedef enum nvmlValueType_t {
    NVML_VALUE_TYPE_DOUBLE = 0,
    NVML_VALUE_TYPE_UNSIGNED_INT = 1,
    NVML_VALUE_TYPE_UNSIGNED_LONG = 2,
    NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3,
    NVML_VALUE_TYPE_SIGNED_LONG_LONG = 4,
    NVML_VALUE_TYPE_SIGNED_INT = 5,
    NVML_VALUE_TYPE_UNSIGNED_SHORT = 6,
} nvmlValueType_t;

typedef union nvmlValue_t {
    double dVal;
    int siVal;
    unsigned int uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
    signed long long sllVal;
    unsigned short usVal;
} nvmlValue_t;

/* The caller sets fieldId and scopeId. Each value has its own nvmlReturn. */
typedef struct nvmlFieldValue_t {
    unsigned int fieldId;
    unsigned int scopeId;
    long long timestamp; /* us since 1970 */
    long long latencyUsec;
    nvmlValueType_t valueType;
    nvmlReturn_t nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;
static_assert(sizeof(nvmlFieldValue_t) == 40, "nvmlFieldValue_t differs from the driver's");
static_assert(offsetof(nvmlFieldValue_t, value) == 32, "nvmlFieldValue_t differs");

#endif
