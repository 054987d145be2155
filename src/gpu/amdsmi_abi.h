/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the part of AMD SMI's binary interface that Harpe uses, written from its public
 * documentation: amdsmi.h of versions 25 (ROCm 6.4) and 26 (ROCm 7). Names, values and layouts are
 * AMD's.
 *
 * Only the parts that are the same in both versions are declared. Some structures are longer in the
 * library, because AMD extends them or Harpe does not need their end. This file declares such a
 * structure up to the last member that Harpe reads, followed by spare room, so the library never
 * writes past its end. Version 24 and older versions have a different amdsmi_power_info_t and are
 * refused. */
#ifndef HARPE_GPU_AMDSMI_ABI_H
#define HARPE_GPU_AMDSMI_ABI_H

#include <stdbool.h>
#include <stdint.h>

enum { AMDSMI_VERSION_OLDEST = 25, AMDSMI_VERSION_NEWEST = 26 };

typedef uint32_t amdsmi_status_t; /* an enum whose values need 32 unsigned bits */

enum {
    AMDSMI_STATUS_SUCCESS = 0,
    AMDSMI_STATUS_INVAL = 1,
    AMDSMI_STATUS_NOT_SUPPORTED = 2,
    AMDSMI_STATUS_NOT_YET_IMPLEMENTED = 3,
    AMDSMI_STATUS_FAIL_LOAD_MODULE = 4,
    AMDSMI_STATUS_FAIL_LOAD_SYMBOL = 5,
    AMDSMI_STATUS_DRM_ERROR = 6,
    AMDSMI_STATUS_API_FAILED = 7,
    AMDSMI_STATUS_TIMEOUT = 8,
    AMDSMI_STATUS_RETRY = 9,
    AMDSMI_STATUS_NO_PERM = 10,
    AMDSMI_STATUS_IO = 12,
    AMDSMI_STATUS_FILE_ERROR = 14,
    AMDSMI_STATUS_OUT_OF_RESOURCES = 15,
    AMDSMI_STATUS_INPUT_OUT_OF_BOUNDS = 17,
    AMDSMI_STATUS_INIT_ERROR = 18,
    AMDSMI_STATUS_BUSY = 30,
    AMDSMI_STATUS_NOT_FOUND = 31,
    AMDSMI_STATUS_NOT_INIT = 32,
    AMDSMI_STATUS_DRIVER_NOT_LOADED = 34,
    AMDSMI_STATUS_NO_DATA = 40,
    AMDSMI_STATUS_INSUFFICIENT_SIZE = 41,
    AMDSMI_STATUS_UNEXPECTED_DATA = 43,
    AMDSMI_STATUS_SETTING_UNAVAILABLE = 55,
};

enum { AMDSMI_INIT_AMD_GPUS = 2 };

typedef enum amdsmi_clk_type_t {
    AMDSMI_CLK_TYPE_SYS = 0, /* graphics */
    AMDSMI_CLK_TYPE_MEM = 4,
} amdsmi_clk_type_t;

typedef enum amdsmi_clk_limit_type_t {
    AMDSMI_CLK_LIMIT_MIN = 0,
    AMDSMI_CLK_LIMIT_MAX = 1,
} amdsmi_clk_limit_type_t;

typedef enum amdsmi_dev_perf_level_t { AMDSMI_DEV_PERF_LEVEL_AUTO = 0 } amdsmi_dev_perf_level_t;

typedef enum amdsmi_temperature_type_t {
    AMDSMI_TEMPERATURE_TYPE_EDGE = 0,
    AMDSMI_TEMPERATURE_TYPE_HOTSPOT = 1,
} amdsmi_temperature_type_t;

typedef enum amdsmi_temperature_metric_t { AMDSMI_TEMP_CURRENT = 0 } amdsmi_temperature_metric_t;

typedef void *amdsmi_socket_handle;
typedef void *amdsmi_processor_handle;

/* Version 25: year (25), major, minor, release; version 26: major (26), minor, release. */
typedef struct amdsmi_version_t {
    uint32_t first, second, third, fourth;
    const char *build;
    uint64_t room[8];
} amdsmi_version_t;

typedef union amdsmi_bdf_t {
    struct {
        uint64_t function_number : 3;
        uint64_t device_number : 5;
        uint64_t bus_number : 8;
        uint64_t domain_number : 48;
    } bdf;
    uint64_t as_uint;
} amdsmi_bdf_t;

typedef struct amdsmi_asic_info_t {
    char market_name[256];
    uint64_t room[256];
} amdsmi_asic_info_t;

typedef struct amdsmi_enumeration_info_t {
    uint32_t drm_render, drm_card;
    uint32_t hsa_id, hip_id; /* the GPU's numbers in ROCm and HIP */
    char hip_uuid[256];      /* "GPU-" and 16 hexadecimal digits */
    uint64_t room[64];
} amdsmi_enumeration_info_t;

/* uW. */
typedef struct amdsmi_power_cap_info_t {
    uint64_t power_cap, default_power_cap;
    uint64_t dpm_cap;
    uint64_t min_power_cap, max_power_cap;
    uint64_t room[32];
} amdsmi_power_cap_info_t;

/* In W; 0xffff or 0xffffffff if the GPU does not report the value. */
typedef struct amdsmi_power_info_t {
    uint64_t socket_power;
    uint32_t current_socket_power; /* MI300 and newer */
    uint32_t average_socket_power; /* MI200 and older, Radeon */
    uint64_t room[64];
} amdsmi_power_info_t;

/* MHz. */
typedef struct amdsmi_clk_info_t {
    uint32_t clk, min_clk, max_clk;
    uint64_t room[16];
} amdsmi_clk_info_t;

enum { AMDSMI_MAX_NUM_FREQUENCIES = 33 };

typedef struct amdsmi_frequencies_t {
    bool has_deep_sleep; /* if true, the first frequency is that of deep sleep */
    uint32_t num_supported;
    uint32_t current;
    uint64_t frequency[AMDSMI_MAX_NUM_FREQUENCIES]; /* Hz in the library, although its documents
                                                     * say MHz */
    uint64_t room[32];
} amdsmi_frequencies_t;

#endif
