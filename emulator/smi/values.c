/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU properties that nvidia-smi can query, one row each: names, unit, and the NVML call that
 * returns the value. Names and units are those of `nvidia-smi --help-query-gpu`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "smi.h"

/* The ways to read and show a value. */
typedef enum property_kind {
    AS_NUMBER,    /* function(device, &number) */
    AS_NUMBER_OF, /* function(device, detail, &number) */
    AS_FIRST,     /* function(device, &first, &second) */
    AS_SECOND,
    AS_TEXT,       /* function(device, text, size) */
    AS_MILLIWATTS, /* like AS_NUMBER, shown in W */
    AS_FIRST_MILLIWATTS,
    AS_SECOND_MILLIWATTS,
    AS_FIELD_MILLIWATTS, /* the field value `detail`, in scope `scope` */
    AS_FIELD,
    AS_SWITCH,        /* Enabled or Disabled */
    AS_FIRST_SWITCH,  /* Enabled or Disabled, from the first of two outputs */
    AS_SECOND_SWITCH, /* Enabled or Disabled, from the second of two outputs */
    AS_REASON,        /* a bit of the clock event reasons: Active or Not Active */
    AS_REASON_BITS,
    AS_MEMORY, /* number `detail` of nvmlMemory_v2_t */
    AS_SPECIAL,
    AS_NOTHING, /* not known to the emulator */
} property_kind;

enum special {
    SPECIAL_TIMESTAMP,
    SPECIAL_DRIVER_VERSION,
    SPECIAL_COUNT,
    SPECIAL_BUS_ID,
    SPECIAL_DOMAIN,
    SPECIAL_BUS,
    SPECIAL_DEVICE,
    SPECIAL_DEVICE_ID,
    SPECIAL_SUBSYSTEM_ID,
    SPECIAL_COMPUTE_CAPABILITY,
    SPECIAL_COMPUTE_MODE,
    SPECIAL_PSTATE,
    SPECIAL_ECC_ERRORS,
    SPECIAL_POWER,
};

struct smi_property {
    const char *name, *short_name; /* NULL: there is no short name */
    const char *unit;              /* "" */
    property_kind kind;
    const char *function;
    unsigned long long detail;
    unsigned int scope;
};

#define LIMITS "nvmlDeviceGetPowerManagementLimitConstraints"
#define MODULE NVML_POWER_SCOPE_MODULE
#define REASON(name, bit) \
    { "clocks_event_reasons." name, "clocks_throttle_reasons." name, "", AS_REASON, NULL, bit, 0 }
#define NO_ERRORS(name) \
    { "ecc.errors." name, NULL, "", AS_SPECIAL, NULL, SPECIAL_ECC_ERRORS, 0 }

/* clang-format off */
static const smi_property properties[] = {
    {"timestamp", NULL, "", AS_SPECIAL, NULL, SPECIAL_TIMESTAMP, 0},
    {"driver_version", NULL, "", AS_SPECIAL, NULL, SPECIAL_DRIVER_VERSION, 0},
    {"count", NULL, "", AS_SPECIAL, NULL, SPECIAL_COUNT, 0},
    {"name", "gpu_name", "", AS_TEXT, "nvmlDeviceGetName", 0, 0},
    {"serial", "gpu_serial", "", AS_TEXT, "nvmlDeviceGetSerial", 0, 0},
    {"uuid", "gpu_uuid", "", AS_TEXT, "nvmlDeviceGetUUID", 0, 0},
    {"pci.bus_id", "gpu_bus_id", "", AS_SPECIAL, NULL, SPECIAL_BUS_ID, 0},
    {"pci.domain", NULL, "", AS_SPECIAL, NULL, SPECIAL_DOMAIN, 0},
    {"pci.bus", NULL, "", AS_SPECIAL, NULL, SPECIAL_BUS, 0},
    {"pci.device", NULL, "", AS_SPECIAL, NULL, SPECIAL_DEVICE, 0},
    {"pci.device_id", NULL, "", AS_SPECIAL, NULL, SPECIAL_DEVICE_ID, 0},
    {"pci.sub_device_id", NULL, "", AS_SPECIAL, NULL, SPECIAL_SUBSYSTEM_ID, 0},
    {"pcie.link.gen.current", NULL, "", AS_NUMBER, "nvmlDeviceGetCurrPcieLinkGeneration", 0, 0},
    {"pcie.link.gen.gpucurrent", NULL, "", AS_NUMBER, "nvmlDeviceGetCurrPcieLinkGeneration", 0, 0},
    {"pcie.link.gen.max", NULL, "", AS_NUMBER, "nvmlDeviceGetMaxPcieLinkGeneration", 0, 0},
    {"pcie.link.gen.gpumax", NULL, "", AS_NUMBER, "nvmlDeviceGetGpuMaxPcieLinkGeneration", 0, 0},
    {"pcie.link.gen.hostmax", NULL, "", AS_NOTHING, NULL, 0, 0},
    {"pcie.link.width.current", NULL, "", AS_NUMBER, "nvmlDeviceGetCurrPcieLinkWidth", 0, 0},
    {"pcie.link.width.max", NULL, "", AS_NUMBER, "nvmlDeviceGetMaxPcieLinkWidth", 0, 0},
    {"index", NULL, "", AS_NUMBER, "nvmlDeviceGetIndex", 0, 0},
    {"minor_number", NULL, "", AS_NUMBER, "nvmlDeviceGetMinorNumber", 0, 0},
    {"display_mode", NULL, "", AS_SWITCH, "nvmlDeviceGetDisplayMode", 0, 0},
    {"display_attached", NULL, "", AS_NOTHING, NULL, 0, 0},
    {"display_active", NULL, "", AS_SWITCH, "nvmlDeviceGetDisplayActive", 0, 0},
    {"persistence_mode", NULL, "", AS_SWITCH, "nvmlDeviceGetPersistenceMode", 0, 0},
    {"accounting.mode", NULL, "", AS_NOTHING, NULL, 0, 0},
    {"accounting.buffer_size", NULL, "", AS_NOTHING, NULL, 0, 0},
    {"driver_model.current", NULL, "", AS_NOTHING, NULL, 0, 0},
    {"driver_model.pending", NULL, "", AS_NOTHING, NULL, 0, 0},
    {"vbios_version", NULL, "", AS_TEXT, "nvmlDeviceGetVbiosVersion", 0, 0},
    {"inforom.img", "inforom.image", "", AS_NOTHING, NULL, 0, 0},
    {"inforom.oem", NULL, "", AS_NOTHING, NULL, 0, 0},
    {"inforom.ecc", NULL, "", AS_NOTHING, NULL, 0, 0},
    {"inforom.pwr", "inforom.power", "", AS_NOTHING, NULL, 0, 0},
    {"gom.current", "gpu_operation_mode.current", "", AS_NOTHING, NULL, 0, 0},
    {"gom.pending", "gpu_operation_mode.pending", "", AS_NOTHING, NULL, 0, 0},
    {"fan.speed", NULL, "%", AS_NUMBER, "nvmlDeviceGetFanSpeed", 0, 0},
    {"pstate", NULL, "", AS_SPECIAL, NULL, SPECIAL_PSTATE, 0},
    {"clocks_event_reasons.supported", "clocks_throttle_reasons.supported", "", AS_REASON_BITS,
     "nvmlDeviceGetSupportedClocksEventReasons", 0, 0},
    {"clocks_event_reasons.active", "clocks_throttle_reasons.active", "", AS_REASON_BITS,
     "nvmlDeviceGetCurrentClocksEventReasons", 0, 0},
    REASON("gpu_idle", nvmlClocksEventReasonGpuIdle),
    REASON("applications_clocks_setting", nvmlClocksEventReasonApplicationsClocksSetting),
    REASON("sw_power_cap", nvmlClocksEventReasonSwPowerCap),
    REASON("hw_slowdown", nvmlClocksThrottleReasonHwSlowdown),
    REASON("hw_thermal_slowdown", nvmlClocksThrottleReasonHwThermalSlowdown),
    REASON("hw_power_brake_slowdown", nvmlClocksThrottleReasonHwPowerBrakeSlowdown),
    REASON("sw_thermal_slowdown", nvmlClocksEventReasonSwThermalSlowdown),
    REASON("sync_boost", nvmlClocksEventReasonSyncBoost),
    {"memory.total", NULL, "MiB", AS_MEMORY, NULL, offsetof(nvmlMemory_v2_t, total), 0},
    {"memory.reserved", NULL, "MiB", AS_MEMORY, NULL, offsetof(nvmlMemory_v2_t, reserved), 0},
    {"memory.used", NULL, "MiB", AS_MEMORY, NULL, offsetof(nvmlMemory_v2_t, used), 0},
    {"memory.free", NULL, "MiB", AS_MEMORY, NULL, offsetof(nvmlMemory_v2_t, free), 0},
    {"compute_cap", NULL, "", AS_SPECIAL, NULL, SPECIAL_COMPUTE_CAPABILITY, 0},
    {"compute_mode", NULL, "", AS_SPECIAL, NULL, SPECIAL_COMPUTE_MODE, 0},
    {"utilization.gpu", NULL, "%", AS_FIRST, "nvmlDeviceGetUtilizationRates", 0, 0},
    {"utilization.memory", NULL, "%", AS_SECOND, "nvmlDeviceGetUtilizationRates", 0, 0},
    {"utilization.encoder", NULL, "%", AS_FIRST, "nvmlDeviceGetEncoderUtilization", 0, 0},
    {"utilization.decoder", NULL, "%", AS_FIRST, "nvmlDeviceGetDecoderUtilization", 0, 0},
    {"utilization.jpeg", NULL, "%", AS_FIRST, "nvmlDeviceGetJpgUtilization", 0, 0},
    {"utilization.ofa", NULL, "%", AS_FIRST, "nvmlDeviceGetOfaUtilization", 0, 0},
    {"encoder.stats.sessionCount", NULL, "", AS_NOTHING, NULL, 0, 0},
    {"encoder.stats.averageFps", NULL, "", AS_NOTHING, NULL, 0, 0},
    {"encoder.stats.averageLatency", NULL, "", AS_NOTHING, NULL, 0, 0},
    {"ecc.mode.current", NULL, "", AS_FIRST_SWITCH, "nvmlDeviceGetEccMode", 0, 0},
    {"ecc.mode.pending", NULL, "", AS_SECOND_SWITCH, "nvmlDeviceGetEccMode", 0, 0},
    NO_ERRORS("corrected.volatile.total"),
    NO_ERRORS("corrected.aggregate.total"),
    NO_ERRORS("uncorrected.volatile.total"),
    NO_ERRORS("uncorrected.aggregate.total"),
    {"retired_pages.pending", NULL, "", AS_NOTHING, NULL, 0, 0},
    {"retired_pages.sbe", "retired_pages.single_bit_ecc.count", "", AS_NOTHING, NULL, 0, 0},
    {"retired_pages.dbe", "retired_pages.double_bit.count", "", AS_NOTHING, NULL, 0, 0},
    {"temperature.gpu", NULL, "", AS_NUMBER_OF, "nvmlDeviceGetTemperature", 0, 0},
    {"temperature.gpu.tlimit", NULL, "", AS_NOTHING, NULL, 0, 0},
    {"temperature.memory", NULL, "", AS_FIELD, NULL, 82, 0},
    {"power.management", NULL, "", AS_SWITCH, "nvmlDeviceGetPowerManagementMode", 0, 0},
    {"power.draw", NULL, "W", AS_SPECIAL, NULL, SPECIAL_POWER, 0},
    {"power.draw.average", NULL, "W", AS_FIELD_MILLIWATTS, NULL, NVML_FI_DEV_POWER_AVERAGE, 0},
    {"power.draw.instant", NULL, "W", AS_FIELD_MILLIWATTS, NULL, NVML_FI_DEV_POWER_INSTANT, 0},
    {"power.limit", NULL, "W", AS_MILLIWATTS, "nvmlDeviceGetPowerManagementLimit", 0, 0},
    {"enforced.power.limit", NULL, "W", AS_MILLIWATTS, "nvmlDeviceGetEnforcedPowerLimit", 0, 0},
    {"power.default_limit", NULL, "W", AS_MILLIWATTS, "nvmlDeviceGetPowerManagementDefaultLimit",
     0, 0},
    {"power.min_limit", NULL, "W", AS_FIRST_MILLIWATTS, LIMITS, 0, 0},
    {"power.max_limit", NULL, "W", AS_SECOND_MILLIWATTS, LIMITS, 0, 0},
    {"memory.power.draw.average", NULL, "W", AS_FIELD_MILLIWATTS, NULL, NVML_FI_DEV_POWER_AVERAGE,
     NVML_POWER_SCOPE_MEMORY},
    {"memory.power.draw.instant", NULL, "W", AS_FIELD_MILLIWATTS, NULL, NVML_FI_DEV_POWER_INSTANT,
     NVML_POWER_SCOPE_MEMORY},
    {"module.power.draw.average", NULL, "W", AS_FIELD_MILLIWATTS, NULL, NVML_FI_DEV_POWER_AVERAGE,
     MODULE},
    {"module.power.draw.instant", NULL, "W", AS_FIELD_MILLIWATTS, NULL, NVML_FI_DEV_POWER_INSTANT,
     MODULE},
    {"module.power.limit", NULL, "W", AS_FIELD_MILLIWATTS, NULL, NVML_FI_DEV_POWER_REQUESTED_LIMIT,
     MODULE},
    {"module.enforced.power.limit", NULL, "W", AS_FIELD_MILLIWATTS, NULL,
     NVML_FI_DEV_POWER_CURRENT_LIMIT, MODULE},
    {"module.power.default_limit", NULL, "W", AS_FIELD_MILLIWATTS, NULL,
     NVML_FI_DEV_POWER_DEFAULT_LIMIT, MODULE},
    {"module.power.min_limit", NULL, "W", AS_FIELD_MILLIWATTS, NULL, NVML_FI_DEV_POWER_MIN_LIMIT,
     MODULE},
    {"module.power.max_limit", NULL, "W", AS_FIELD_MILLIWATTS, NULL, NVML_FI_DEV_POWER_MAX_LIMIT,
     MODULE},
    {"clocks.current.graphics", "clocks.gr", "MHz", AS_NUMBER_OF, "nvmlDeviceGetClockInfo", 0, 0},
    {"clocks.current.sm", "clocks.sm", "MHz", AS_NUMBER_OF, "nvmlDeviceGetClockInfo", 1, 0},
    {"clocks.current.memory", "clocks.mem", "MHz", AS_NUMBER_OF, "nvmlDeviceGetClockInfo", 2, 0},
    {"clocks.current.video", "clocks.video", "MHz", AS_NUMBER_OF, "nvmlDeviceGetClockInfo", 3, 0},
    {"clocks.applications.graphics", "clocks.applications.gr", "MHz", AS_NUMBER_OF,
     "nvmlDeviceGetApplicationsClock", 0, 0},
    {"clocks.applications.memory", "clocks.applications.mem", "MHz", AS_NUMBER_OF,
     "nvmlDeviceGetApplicationsClock", 2, 0},
    {"clocks.default_applications.graphics", "clocks.default_applications.gr", "MHz", AS_NUMBER_OF,
     "nvmlDeviceGetDefaultApplicationsClock", 0, 0},
    {"clocks.default_applications.memory", "clocks.default_applications.mem", "MHz", AS_NUMBER_OF,
     "nvmlDeviceGetDefaultApplicationsClock", 2, 0},
    {"clocks.max.graphics", "clocks.max.gr", "MHz", AS_NUMBER_OF, "nvmlDeviceGetMaxClockInfo", 0, 0},
    {"clocks.max.sm", NULL, "MHz", AS_NUMBER_OF, "nvmlDeviceGetMaxClockInfo", 1, 0},
    {"clocks.max.memory", "clocks.max.mem", "MHz", AS_NUMBER_OF, "nvmlDeviceGetMaxClockInfo", 2, 0},
    {"clocks.max.video", NULL, "MHz", AS_NUMBER_OF, "nvmlDeviceGetMaxClockInfo", 3, 0},
    {"mig.mode.current", NULL, "", AS_FIRST_SWITCH, "nvmlDeviceGetMigMode", 0, 0},
    {"mig.mode.pending", NULL, "", AS_SECOND_SWITCH, "nvmlDeviceGetMigMode", 0, 0},
};
/* clang-format on */
enum { PROPERTY_COUNT = sizeof properties / sizeof properties[0] };

/* ---- Names ----------------------------------------------------------------------------------- */

static bool is_called(const char *name, const char *wanted, size_t length) {
    return name && strlen(name) == length && memcmp(name, wanted, length) == 0;
}

const smi_property *smi_property_find(const char *name, size_t length) {
    for (size_t i = 0; i < PROPERTY_COUNT; i++)
        if (is_called(properties[i].name, name, length) ||
            is_called(properties[i].short_name, name, length))
            return &properties[i];
    return NULL;
}

void smi_property_heading(const smi_property *property, const char *name, char *text, size_t size) {
    bool has_unit = *property->unit != '\0';
    snprintf(text, size, "%s%s%s%s", name, has_unit ? " [" : "", property->unit,
             has_unit ? "]" : "");
}

void smi_property_help(FILE *stream) {
    for (size_t i = 0; i < PROPERTY_COUNT; i++) {
        const smi_property *property = &properties[i];
        fprintf(stream, "\"%s\"", property->name);
        if (property->short_name) fprintf(stream, " or \"%s\"", property->short_name);
        fprintf(stream, "%s%s%s\n", *property->unit ? ", in " : "", property->unit,
                property->kind == AS_NOTHING ? ": not known to the emulator" : "");
    }
}

/* ---- Values ---------------------------------------------------------------------------------- */

void smi_timestamp(char *text, size_t size) {
    int64_t now_ms = harpe_clock_wall_ns() / 1000000;
    time_t now_s = now_ms / 1000;
    struct tm parts;
    char seconds[64];
    localtime_r(&now_s, &parts);
    strftime(seconds, sizeof seconds, "%Y/%m/%d %H:%M:%S", &parts);
    snprintf(text, size, "%s.%03d", seconds, (int)(now_ms % 1000));
}

void smi_process_name(unsigned int pid, char *text, size_t size) {
    nvmlReturn_t (*call)(unsigned int, char *, unsigned int) = NULL;
    *(void **)&call = smi_function("nvmlSystemGetProcessName");
    if (!call || call(pid, text, (unsigned int)size) != NVML_SUCCESS)
        snprintf(text, size, "[Not Found]");
}

static nvmlReturn_t get_memory(const smi_gpu *gpu, size_t offset, unsigned int *mib) {
    nvmlReturn_t (*call)(nvmlDevice_t, nvmlMemory_v2_t *) = NULL;
    *(void **)&call = smi_function("nvmlDeviceGetMemoryInfo_v2");
    nvmlMemory_v2_t memory = {.version = nvmlMemory_v2};
    unsigned long long bytes = 0;
    nvmlReturn_t code = call ? call(gpu->device, &memory) : NVML_ERROR_FUNCTION_NOT_FOUND;
    memcpy(&bytes, (char *)&memory + offset, sizeof bytes);
    if (code == NVML_SUCCESS) *mib = (unsigned int)(bytes >> 20);
    return code;
}

static nvmlReturn_t get_reasons(const smi_gpu *gpu, const char *function,
                                unsigned long long *reasons) {
    nvmlReturn_t (*call)(nvmlDevice_t, unsigned long long *) = NULL;
    *(void **)&call = smi_function(function);
    return call ? call(gpu->device, reasons) : NVML_ERROR_FUNCTION_NOT_FOUND;
}

static nvmlReturn_t show_pci(const smi_gpu *gpu, enum special which, char *text, size_t size) {
    const nvmlPciInfo_t *pci = &gpu->pci;
    switch (which) {
    case SPECIAL_BUS_ID: snprintf(text, size, "%s", pci->busId); break;
    case SPECIAL_DOMAIN: snprintf(text, size, "0x%04X", pci->domain); break;
    case SPECIAL_BUS: snprintf(text, size, "0x%02X", pci->bus); break;
    case SPECIAL_DEVICE: snprintf(text, size, "0x%02X", pci->device); break;
    case SPECIAL_DEVICE_ID: snprintf(text, size, "0x%08X", pci->pciDeviceId); break;
    case SPECIAL_SUBSYSTEM_ID: snprintf(text, size, "0x%08X", pci->pciSubSystemId); break;
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t show_compute_mode(const smi_gpu *gpu, char *text, size_t size) {
    static const char *const names[] = {"Default", "Exclusive_Thread", "Prohibited",
                                        "Exclusive_Process"};
    unsigned int mode = 0;
    nvmlReturn_t code = smi_get_number(gpu, "nvmlDeviceGetComputeMode", &mode);
    if (code == NVML_SUCCESS) snprintf(text, size, "%s", mode < 4 ? names[mode] : "Unknown");
    return code;
}

static nvmlReturn_t show_special(const smi_gpu *gpu, enum special which, const char *unit,
                                 char *text, size_t size) {
    nvmlReturn_t code = NVML_SUCCESS;
    unsigned int number = 0, other = 0;
    switch (which) {
    case SPECIAL_TIMESTAMP: smi_timestamp(text, size); return NVML_SUCCESS;
    case SPECIAL_DRIVER_VERSION:
        return smi_get_system_text("nvmlSystemGetDriverVersion", text, size);
    case SPECIAL_COUNT: {
        nvmlReturn_t (*count)(unsigned int *) = NULL;
        *(void **)&count = smi_function("nvmlDeviceGetCount_v2");
        code = count ? count(&number) : NVML_ERROR_FUNCTION_NOT_FOUND;
        snprintf(text, size, "%u", number);
        return code;
    }
    case SPECIAL_COMPUTE_CAPABILITY:
        code = smi_get_two(gpu, "nvmlDeviceGetCudaComputeCapability", &number, &other);
        snprintf(text, size, "%u.%u", number, other);
        return code;
    case SPECIAL_COMPUTE_MODE: return show_compute_mode(gpu, text, size);
    case SPECIAL_PSTATE:
        code = smi_get_number(gpu, "nvmlDeviceGetPerformanceState", &number);
        snprintf(text, size, "P%u", number);
        return code;
    case SPECIAL_ECC_ERRORS: snprintf(text, size, "0"); return NVML_SUCCESS;
    case SPECIAL_POWER:
        code = smi_get_number(gpu, "nvmlDeviceGetPowerUsage", &number);
        snprintf(text, size, "%.2f%s", number / 1e3, unit);
        return code;
    default: return show_pci(gpu, which, text, size);
    }
}

/* Reads one number, with the form of call that the property needs. */
static nvmlReturn_t get_value(const smi_property *property, const smi_gpu *gpu,
                              unsigned int *value) {
    unsigned int other = 0;
    unsigned int detail = (unsigned int)property->detail;
    switch (property->kind) {
    case AS_NUMBER_OF: return smi_get_number_of(gpu, property->function, detail, value);
    case AS_FIRST:
    case AS_FIRST_MILLIWATTS:
    case AS_FIRST_SWITCH: {
        unsigned int both[2] = {0, 0}; /* the members of nvmlUtilization_t, or two outputs */
        bool is_struct = strcmp(property->function, "nvmlDeviceGetUtilizationRates") == 0;
        nvmlReturn_t code = is_struct ? smi_get_number(gpu, property->function, both)
                                      : smi_get_two(gpu, property->function, &both[0], &other);
        *value = both[0];
        return code;
    }
    case AS_SECOND: {
        unsigned int both[2] = {0, 0};
        nvmlReturn_t code = smi_get_number(gpu, property->function, both);
        *value = both[1];
        return code;
    }
    case AS_SECOND_MILLIWATTS:
    case AS_SECOND_SWITCH: return smi_get_two(gpu, property->function, &other, value);
    case AS_FIELD:
    case AS_FIELD_MILLIWATTS: return smi_get_field(gpu, detail, property->scope, value);
    case AS_MEMORY: return get_memory(gpu, detail, value);
    default: return smi_get_number(gpu, property->function, value);
    }
}

static nvmlReturn_t show_reasons(const smi_property *property, const smi_gpu *gpu, char *text,
                                 size_t size) {
    unsigned long long reasons = 0;
    bool is_bit = property->kind == AS_REASON;
    nvmlReturn_t code = get_reasons(
        gpu, is_bit ? "nvmlDeviceGetCurrentClocksEventReasons" : property->function, &reasons);
    if (is_bit)
        snprintf(text, size, "%s", reasons & property->detail ? "Active" : "Not Active");
    else
        snprintf(text, size, "0x%016llX", reasons);
    return code;
}

static nvmlReturn_t show(const smi_property *property, const smi_gpu *gpu, const char *unit,
                         char *text, size_t size) {
    unsigned int value = 0;
    switch (property->kind) {
    case AS_TEXT: return smi_get_text(gpu, property->function, text, size);
    case AS_SPECIAL: return show_special(gpu, (enum special)property->detail, unit, text, size);
    case AS_REASON:
    case AS_REASON_BITS: return show_reasons(property, gpu, text, size);
    case AS_NOTHING: return NVML_ERROR_NOT_SUPPORTED;
    default: break;
    }
    nvmlReturn_t code = get_value(property, gpu, &value);
    switch (property->kind) {
    case AS_SWITCH:
    case AS_FIRST_SWITCH:
    case AS_SECOND_SWITCH: snprintf(text, size, "%s", value ? "Enabled" : "Disabled"); break;
    case AS_MILLIWATTS:
    case AS_FIRST_MILLIWATTS:
    case AS_SECOND_MILLIWATTS:
    case AS_FIELD_MILLIWATTS: snprintf(text, size, "%.2f%s", value / 1e3, unit); break;
    default: snprintf(text, size, "%u%s", value, unit); break;
    }
    return code;
}

void smi_property_value(const smi_property *property, const smi_gpu *gpu, smi_value_style style,
                        char *text, size_t size) {
    char unit[16] = "";
    if (style.with_unit && *property->unit) snprintf(unit, sizeof unit, " %s", property->unit);
    nvmlReturn_t code = show(property, gpu, unit, text, size);
    if (code == NVML_SUCCESS) return;
    bool is_missing = code == NVML_ERROR_NOT_SUPPORTED || code == NVML_ERROR_FUNCTION_NOT_FOUND;
    snprintf(text, size, style.brackets ? "[%s]" : "%s", is_missing ? "N/A" : smi_error_text(code));
}

const char *smi_value(const smi_gpu *gpu, const char *name, char *text, size_t size) {
    const smi_property *property = smi_property_find(name, strlen(name));
    smi_value_style style = {.with_unit = true, .brackets = false};
    if (property) smi_property_value(property, gpu, style, text, size);
    return text;
}
