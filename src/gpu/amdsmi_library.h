/* SPDX-License-Identifier: Apache-2.0 */
/* The AMD SMI library as a table of functions, opened at run time, and the mapping of its error
 * codes to Harpe's. */
#ifndef HARPE_GPU_AMDSMI_LIBRARY_H
#define HARPE_GPU_AMDSMI_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

#include "base/wait.h"
#include "gpu/amdsmi_abi.h"

/* Required functions are never NULL; the table in amdsmi_library.c lists them. */
typedef struct harpe_amdsmi {
    void *library;
    amdsmi_status_t (*init)(uint64_t flags);
    amdsmi_status_t (*shut_down)(void);
    amdsmi_status_t (*lib_version)(amdsmi_version_t *version);
    amdsmi_status_t (*sockets)(uint32_t *count, amdsmi_socket_handle *sockets);
    amdsmi_status_t (*processors)(amdsmi_socket_handle socket, uint32_t *count,
                                  amdsmi_processor_handle *processors);
    amdsmi_status_t (*bdf)(amdsmi_processor_handle gpu, amdsmi_bdf_t *bdf);
    amdsmi_status_t (*uuid)(amdsmi_processor_handle gpu, unsigned int *length, char *uuid);
    amdsmi_status_t (*asic_info)(amdsmi_processor_handle gpu, amdsmi_asic_info_t *info);
    amdsmi_status_t (*enumeration)(amdsmi_processor_handle gpu, amdsmi_enumeration_info_t *info);
    amdsmi_status_t (*power_cap)(amdsmi_processor_handle gpu, uint32_t sensor,
                                 amdsmi_power_cap_info_t *info);
    amdsmi_status_t (*set_power_cap)(amdsmi_processor_handle gpu, uint32_t sensor, uint64_t cap_uw);
    amdsmi_status_t (*frequencies)(amdsmi_processor_handle gpu, amdsmi_clk_type_t type,
                                   amdsmi_frequencies_t *out);
    amdsmi_status_t (*clock)(amdsmi_processor_handle gpu, amdsmi_clk_type_t type,
                             amdsmi_clk_info_t *info);
    amdsmi_status_t (*set_clock_limit)(amdsmi_processor_handle gpu, amdsmi_clk_type_t type,
                                       amdsmi_clk_limit_type_t limit, uint64_t mhz);
    amdsmi_status_t (*set_level)(amdsmi_processor_handle gpu, amdsmi_dev_perf_level_t level);
    amdsmi_status_t (*power)(amdsmi_processor_handle gpu, amdsmi_power_info_t *info);
    amdsmi_status_t (*energy)(amdsmi_processor_handle gpu, uint64_t *count, float *resolution_uj,
                              uint64_t *time_ns);
    amdsmi_status_t (*temperature)(amdsmi_processor_handle gpu, amdsmi_temperature_type_t sensor,
                                   amdsmi_temperature_metric_t metric, int64_t *celsius);
} harpe_amdsmi;

/* Opens the library (NULL: $HARPE_AMDSMI_LIBRARY, or else the usual places) and looks up its
 * functions. Does not call amdsmi_init. HARPE_NOT_FOUND: there is no AMD SMI library. */
harpe_status harpe_amdsmi_open(const char *path, harpe_amdsmi *out, harpe_error *error);
void harpe_amdsmi_close(harpe_amdsmi *amdsmi);

/* Guards all calls of the process, because the library is not thread-safe before ROCm 7.2. */
extern pthread_mutex_t harpe_amdsmi_mutex;

/* Calls a function that the library may lack. If the library lacks it, `*code` becomes
 * AMDSMI_STATUS_FAIL_LOAD_SYMBOL. */
#define HARPE_AMDSMI_CALL(code, amdsmi, function, ...) \
    do { \
        *(code) = AMDSMI_STATUS_FAIL_LOAD_SYMBOL; \
        if ((amdsmi)->function) { \
            harpe_lock(&harpe_amdsmi_mutex); \
            *(code) = (int)(amdsmi)->function(__VA_ARGS__); \
            harpe_unlock(&harpe_amdsmi_mutex); \
        } \
    } while (0)

/* Explains an error code, as `explain` of a harpe_backend does. */
void harpe_amdsmi_explain(int code, harpe_status *status, const char **name, const char **advice);

/* ---- Clocks ---------------------------------------------------------------------------------- */

/* Lists the clocks of an AMD GPU and locks them with AMD's pair of limits. Functions return AMD
 * SMI's codes. */

typedef enum harpe_amdsmi_clock {
    HARPE_AMDSMI_GRAPHICS,
    HARPE_AMDSMI_MEMORY,
    HARPE_AMDSMI_CLOCKS,
} harpe_amdsmi_clock;

/* The two limits of one clock as Harpe has set them. */
typedef struct harpe_amdsmi_limits {
    bool is_set;
    uint32_t minimum_mhz, maximum_mhz;
} harpe_amdsmi_limits;

/* The struct behind a back-end's handle. The GPU's mutex in settings.c guards its limits. */
typedef struct harpe_amdsmi_gpu {
    const harpe_amdsmi *amdsmi;
    amdsmi_processor_handle processor;
    bool are_limits_known; /* true: only these limits hold */
    harpe_amdsmi_limits limits[HARPE_AMDSMI_CLOCKS];
} harpe_amdsmi_gpu;

/* Reads the clocks into an allocated list, in any order. */
int harpe_amdsmi_read_clocks(const harpe_amdsmi_gpu *gpu, amdsmi_clk_type_t type, uint32_t **out,
                             size_t *out_count);

int harpe_amdsmi_lock_clocks(harpe_amdsmi_gpu *gpu, harpe_amdsmi_clock clock, uint32_t minimum_mhz,
                             uint32_t maximum_mhz);
int harpe_amdsmi_reset_clocks(harpe_amdsmi_gpu *gpu, harpe_amdsmi_clock clock);

#endif
