/* SPDX-License-Identifier: Apache-2.0 */
/* Our own AMD SMI library with three GPUs, for tests: it answers from a script, records the set
 * calls in order, and detects overlapping calls. The first two GPUs are of one model, and HIP
 * counts them in the opposite order. The third is half of a two-die GPU, which has no power cap and
 * no energy counter. */
#include "gpu/scripted_amdsmi.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/amdsmi_abi.h"

enum { GPUS = 3 };

typedef struct gpu {
    const char *name;
    uint32_t bus, hip_id;
    uint64_t cap_uw;
    uint32_t instant_w, average_w;
    uint64_t energy_count;
} gpu;

static gpu gpus[GPUS] = {{"AMD Instinct MI300X", 0xc1, 1, 750000000, 512, 0xffff, 1000000},
                         {"AMD Instinct MI300X", 0x05, 0, 750000000, 433, 0xffff, 2000000},
                         {"AMD Instinct MI250X", 0xd2, 2, 0, 0xffff, 90, 0}};
static atomic_bool is_inside;

scripted_amdsmi scripted;

/* Every exported call runs between these two. */
static void enter(void) {
    if (atomic_exchange(&is_inside, true)) scripted.overlaps++;
}

static amdsmi_status_t leave(amdsmi_status_t status) {
    atomic_store(&is_inside, false);
    return status;
}

static amdsmi_status_t set(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Records a set call, also in the file that SCRIPTED_AMDSMI_LOG names. */
static amdsmi_status_t set(const char *format, ...) {
    char line[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    size_t used = strlen(scripted.sets);
    snprintf(scripted.sets + used, sizeof scripted.sets - used, "%s\n", line);
    const char *path = getenv("SCRIPTED_AMDSMI_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (log) {
        fprintf(log, "%s\n", line);
        fclose(log);
    }
    bool is_refused = ++scripted.set_count == scripted.refused_set || scripted.refuses_all_sets;
    return is_refused ? scripted.refusal : AMDSMI_STATUS_SUCCESS;
}

static int index_of(const gpu *which) { return (int)(which - gpus); }

/* ---- The machine ----------------------------------------------------------------------------- */

amdsmi_status_t amdsmi_init(uint64_t flags);
amdsmi_status_t amdsmi_shut_down(void);
amdsmi_status_t amdsmi_get_lib_version(amdsmi_version_t *version);
amdsmi_status_t amdsmi_get_socket_handles(uint32_t *count, amdsmi_socket_handle *sockets);
amdsmi_status_t amdsmi_get_processor_handles(amdsmi_socket_handle socket, uint32_t *count,
                                             amdsmi_processor_handle *processors);

amdsmi_status_t amdsmi_init(uint64_t flags) {
    enter();
    scripted.starts++;
    return leave(flags == AMDSMI_INIT_AMD_GPUS ? AMDSMI_STATUS_SUCCESS : AMDSMI_STATUS_INVAL);
}

amdsmi_status_t amdsmi_shut_down(void) {
    enter();
    scripted.starts--;
    return leave(AMDSMI_STATUS_SUCCESS);
}

amdsmi_status_t amdsmi_get_lib_version(amdsmi_version_t *version) {
    enter();
    version->first = scripted.version ? scripted.version : 26;
    return leave(AMDSMI_STATUS_SUCCESS);
}

/* Two sockets: the first has one GPU, the second has two. */
amdsmi_status_t amdsmi_get_socket_handles(uint32_t *count, amdsmi_socket_handle *sockets) {
    enter();
    if (*count < 2) return leave(AMDSMI_STATUS_INSUFFICIENT_SIZE);
    sockets[0] = &gpus[0];
    sockets[1] = &gpus[1];
    *count = 2;
    return leave(AMDSMI_STATUS_SUCCESS);
}

amdsmi_status_t amdsmi_get_processor_handles(amdsmi_socket_handle socket, uint32_t *count,
                                             amdsmi_processor_handle *processors) {
    enter();
    gpu *first = socket;
    *count = first == &gpus[0] ? 1 : 2;
    for (uint32_t i = 0; i < *count; i++)
        processors[i] = first + i;
    return leave(AMDSMI_STATUS_SUCCESS);
}

/* ---- Names ----------------------------------------------------------------------------------- */

amdsmi_status_t amdsmi_get_gpu_device_bdf(amdsmi_processor_handle handle, amdsmi_bdf_t *bdf);
amdsmi_status_t amdsmi_get_gpu_device_uuid(amdsmi_processor_handle handle, unsigned int *length,
                                           char *uuid);
amdsmi_status_t amdsmi_get_gpu_asic_info(amdsmi_processor_handle handle, amdsmi_asic_info_t *info);
amdsmi_status_t amdsmi_get_gpu_enumeration_info(amdsmi_processor_handle handle,
                                                amdsmi_enumeration_info_t *info);

amdsmi_status_t amdsmi_get_gpu_device_bdf(amdsmi_processor_handle handle, amdsmi_bdf_t *bdf) {
    enter();
    bdf->as_uint = (uint64_t)((const gpu *)handle)->bus << 8;
    return leave(AMDSMI_STATUS_SUCCESS);
}

amdsmi_status_t amdsmi_get_gpu_device_uuid(amdsmi_processor_handle handle, unsigned int *length,
                                           char *uuid) {
    enter();
    snprintf(uuid, *length, "unused-%d", index_of(handle));
    return leave(AMDSMI_STATUS_SUCCESS);
}

amdsmi_status_t amdsmi_get_gpu_asic_info(amdsmi_processor_handle handle, amdsmi_asic_info_t *info) {
    enter();
    snprintf(info->market_name, sizeof info->market_name, "%s", ((const gpu *)handle)->name);
    return leave(AMDSMI_STATUS_SUCCESS);
}

amdsmi_status_t amdsmi_get_gpu_enumeration_info(amdsmi_processor_handle handle,
                                                amdsmi_enumeration_info_t *info) {
    enter();
    const gpu *which = handle;
    info->hip_id = which->hip_id;
    snprintf(info->hip_uuid, sizeof info->hip_uuid, "GPU-%02x00000000000000", which->bus);
    return leave(AMDSMI_STATUS_SUCCESS);
}

/* ---- Reading --------------------------------------------------------------------------------- */

amdsmi_status_t amdsmi_get_power_cap_info(amdsmi_processor_handle handle, uint32_t sensor,
                                          amdsmi_power_cap_info_t *info);
amdsmi_status_t amdsmi_get_clk_freq(amdsmi_processor_handle handle, amdsmi_clk_type_t type,
                                    amdsmi_frequencies_t *out);
amdsmi_status_t amdsmi_get_clock_info(amdsmi_processor_handle handle, amdsmi_clk_type_t type,
                                      amdsmi_clk_info_t *info);
amdsmi_status_t amdsmi_get_power_info(amdsmi_processor_handle handle, amdsmi_power_info_t *info);
amdsmi_status_t amdsmi_get_energy_count(amdsmi_processor_handle handle, uint64_t *count,
                                        float *resolution_uj, uint64_t *time_ns);
amdsmi_status_t amdsmi_get_temp_metric(amdsmi_processor_handle handle,
                                       amdsmi_temperature_type_t sensor,
                                       amdsmi_temperature_metric_t metric, int64_t *celsius);

amdsmi_status_t amdsmi_get_power_cap_info(amdsmi_processor_handle handle, uint32_t sensor,
                                          amdsmi_power_cap_info_t *info) {
    enter();
    const gpu *which = handle;
    if (sensor != 0) return leave(AMDSMI_STATUS_INVAL);
    info->power_cap = which->cap_uw;
    info->min_power_cap = 0;
    info->default_power_cap = which->cap_uw ? 750000000 : 0;
    info->max_power_cap = which->cap_uw ? 750000000 : 0;
    return leave(AMDSMI_STATUS_SUCCESS);
}

amdsmi_status_t amdsmi_get_clk_freq(amdsmi_processor_handle handle, amdsmi_clk_type_t type,
                                    amdsmi_frequencies_t *out) {
    static const uint64_t range[] = {132, 1410, 2100};
    static const uint64_t levels[] = {300, 500, 800, 1200, 1700};
    static const uint64_t memory[] = {29, 900, 1100, 1300}; /* the first is deep sleep */
    enter();
    (void)handle;
    const uint64_t *from = type == AMDSMI_CLK_TYPE_MEM ? memory
                           : scripted.has_levels       ? levels
                                                       : range;
    out->has_deep_sleep = from == memory;
    out->num_supported = from == memory ? 4 : from == levels ? 5 : 3;
    for (uint32_t i = 0; i < out->num_supported; i++)
        out->frequency[i] = from[i] * 1000000;
    return leave(AMDSMI_STATUS_SUCCESS);
}

amdsmi_status_t amdsmi_get_clock_info(amdsmi_processor_handle handle, amdsmi_clk_type_t type,
                                      amdsmi_clk_info_t *info) {
    enter();
    (void)handle;
    info->clk = type == AMDSMI_CLK_TYPE_MEM ? 1300 : 1410;
    return leave(AMDSMI_STATUS_SUCCESS);
}

amdsmi_status_t amdsmi_get_power_info(amdsmi_processor_handle handle, amdsmi_power_info_t *info) {
    enter();
    const gpu *which = handle;
    info->current_socket_power = scripted.power_w ? scripted.power_w - 1 : which->instant_w;
    info->average_socket_power = which->average_w;
    return leave(AMDSMI_STATUS_SUCCESS);
}

amdsmi_status_t amdsmi_get_energy_count(amdsmi_processor_handle handle, uint64_t *count,
                                        float *resolution_uj, uint64_t *time_ns) {
    enter();
    const gpu *which = handle;
    if (which->energy_count == 0) return leave(AMDSMI_STATUS_NOT_SUPPORTED);
    *count = which->energy_count;
    *resolution_uj = 15.5F;
    *time_ns = 1;
    return leave(AMDSMI_STATUS_SUCCESS);
}

/* The hottest spot of the first two GPUs, the edge of the third. */
amdsmi_status_t amdsmi_get_temp_metric(amdsmi_processor_handle handle,
                                       amdsmi_temperature_type_t sensor,
                                       amdsmi_temperature_metric_t metric, int64_t *celsius) {
    enter();
    bool has_sensor = (index_of(handle) == 2) == (sensor == AMDSMI_TEMPERATURE_TYPE_EDGE);
    if (metric != AMDSMI_TEMP_CURRENT || !has_sensor) return leave(AMDSMI_STATUS_NOT_SUPPORTED);
    *celsius = sensor == AMDSMI_TEMPERATURE_TYPE_EDGE ? 41 : 63;
    return leave(AMDSMI_STATUS_SUCCESS);
}

/* ---- Setting --------------------------------------------------------------------------------- */

amdsmi_status_t amdsmi_set_power_cap(amdsmi_processor_handle handle, uint32_t sensor,
                                     uint64_t cap_uw);
amdsmi_status_t amdsmi_set_gpu_clk_limit(amdsmi_processor_handle handle, amdsmi_clk_type_t type,
                                         amdsmi_clk_limit_type_t limit, uint64_t mhz);
amdsmi_status_t amdsmi_set_gpu_perf_level(amdsmi_processor_handle handle,
                                          amdsmi_dev_perf_level_t level);

amdsmi_status_t amdsmi_set_power_cap(amdsmi_processor_handle handle, uint32_t sensor,
                                     uint64_t cap_uw) {
    enter();
    gpu *which = handle;
    amdsmi_status_t status = set("%d cap %" PRIu32 " %" PRIu64, index_of(which), sensor, cap_uw);
    if (status == AMDSMI_STATUS_SUCCESS && cap_uw > 750000000)
        status = AMDSMI_STATUS_INPUT_OUT_OF_BOUNDS;
    if (status == AMDSMI_STATUS_SUCCESS && !scripted.ignores_caps) which->cap_uw = cap_uw;
    return leave(status);
}

amdsmi_status_t amdsmi_set_gpu_clk_limit(amdsmi_processor_handle handle, amdsmi_clk_type_t type,
                                         amdsmi_clk_limit_type_t limit, uint64_t mhz) {
    enter();
    return leave(set("%d %s %s %" PRIu64, index_of(handle),
                     type == AMDSMI_CLK_TYPE_MEM ? "memory" : "graphics",
                     limit == AMDSMI_CLK_LIMIT_MIN ? "min" : "max", mhz));
}

amdsmi_status_t amdsmi_set_gpu_perf_level(amdsmi_processor_handle handle,
                                          amdsmi_dev_perf_level_t level) {
    enter();
    return leave(set("%d level %d", index_of(handle), (int)level));
}
