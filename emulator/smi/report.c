/* SPDX-License-Identifier: Apache-2.0 */
/* `nvidia-smi -q` and `-q -x`: print all properties of each GPU, as indented text or as XML. One
 * pass over sections and items writes both forms. Elements have the names that NVIDIA's program
 * uses. Properties that the emulator lacks are omitted, or have the value N/A. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "smi.h"

typedef struct report {
    FILE *out;
    bool is_xml;
    int depth;
    const char *sections; /* NULL: all */
    const char *tags[8];  /* names of the open sections */
} report;

/* ---- Text and XML ---------------------------------------------------------------------------- */

static void indent(const report *to) {
    for (int i = 0; i < to->depth; i++)
        fputs(to->is_xml ? "\t" : "    ", to->out);
}

static void put_escaped(const char *text, FILE *out) {
    for (const char *c = text; *c; c++) {
        switch (*c) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        default: fputc((unsigned char)*c < 0x20 ? '?' : *c, out);
        }
    }
}

static void open_section(report *to, const char *title, const char *tag) {
    indent(to);
    fprintf(to->out, to->is_xml ? "<%s>\n" : "%s\n", to->is_xml ? tag : title);
    to->tags[to->depth++] = tag;
}

static void close_section(report *to) {
    to->depth--;
    if (!to->is_xml) return;
    indent(to);
    fprintf(to->out, "</%s>\n", to->tags[to->depth]);
}

static void put_item(const report *to, const char *title, const char *tag, const char *value) {
    indent(to);
    if (to->is_xml) {
        fprintf(to->out, "<%s>", tag);
        put_escaped(value, to->out);
        fprintf(to->out, "</%s>\n", tag);
    } else {
        fprintf(to->out, "%-*s : %s\n", 41 - 4 * to->depth, title, value);
    }
}

/* Writes a property of values.c. */
static void put(const report *to, const smi_gpu *gpu, const char *title, const char *tag,
                const char *property) {
    put_item(to, title, tag, SMI_VALUE(gpu, property));
}

/* Returns true if -d names the section, or if there is no -d. */
static bool is_wanted(const report *to, const char *section) {
    for (const char *at = to->sections; at;) {
        size_t length = strcspn(at, ",");
        if (strlen(section) == length && strncasecmp(section, at, length) == 0) return true;
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    return !to->sections;
}

/* ---- Sections -------------------------------------------------------------------------------- */

/* Writes a hexadecimal number. In XML it has no 0x. */
static void put_hexadecimal(const report *to, const smi_gpu *gpu, const char *title,
                            const char *tag, const char *property) {
    const char *value = SMI_VALUE(gpu, property);
    put_item(to, title, tag, to->is_xml && strncmp(value, "0x", 2) == 0 ? value + 2 : value);
}

static void put_pci(report *to, const smi_gpu *gpu) {
    open_section(to, "PCI", "pci");
    put_hexadecimal(to, gpu, "Bus", "pci_bus", "pci.bus");
    put_hexadecimal(to, gpu, "Device", "pci_device", "pci.device");
    put_hexadecimal(to, gpu, "Domain", "pci_domain", "pci.domain");
    put_hexadecimal(to, gpu, "Device Id", "pci_device_id", "pci.device_id");
    put(to, gpu, "Bus Id", "pci_bus_id", "pci.bus_id");
    put_hexadecimal(to, gpu, "Sub System Id", "pci_sub_system_id", "pci.sub_device_id");
    close_section(to);
}

static void put_identity(report *to, const smi_gpu *gpu) {
    put(to, gpu, "Product Name", "product_name", "name");
    put_item(to, "Emulated By", "emulated_by", "Harpe's NVML emulator");
    put(to, gpu, "Display Mode", "display_mode", "display_mode");
    put(to, gpu, "Display Active", "display_active", "display_active");
    put(to, gpu, "Persistence Mode", "persistence_mode", "persistence_mode");
    open_section(to, "MIG Mode", "mig_mode");
    put(to, gpu, "Current", "current_mig", "mig.mode.current");
    put(to, gpu, "Pending", "pending_mig", "mig.mode.pending");
    close_section(to);
    put(to, gpu, "Serial Number", "serial", "serial");
    put(to, gpu, "GPU UUID", "uuid", "uuid");
    put(to, gpu, "Minor Number", "minor_number", "minor_number");
    put(to, gpu, "VBIOS Version", "vbios_version", "vbios_version");
    put_pci(to, gpu);
    put(to, gpu, "Fan Speed", "fan_speed", "fan.speed");
    put(to, gpu, "Compute Mode", "compute_mode", "compute_mode");
}

static void put_performance(report *to, const smi_gpu *gpu) {
    put(to, gpu, "Performance State", "performance_state", "pstate");
    open_section(to, "Clocks Event Reasons", "clocks_event_reasons");
    put(to, gpu, "Idle", "clocks_event_reason_gpu_idle", "clocks_event_reasons.gpu_idle");
    put(to, gpu, "Applications Clocks Setting", "clocks_event_reason_applications_clocks_setting",
        "clocks_event_reasons.applications_clocks_setting");
    put(to, gpu, "SW Power Cap", "clocks_event_reason_sw_power_cap",
        "clocks_event_reasons.sw_power_cap");
    put(to, gpu, "HW Slowdown", "clocks_event_reason_hw_slowdown",
        "clocks_event_reasons.hw_slowdown");
    put(to, gpu, "HW Thermal Slowdown", "clocks_event_reason_hw_thermal_slowdown",
        "clocks_event_reasons.hw_thermal_slowdown");
    put(to, gpu, "HW Power Brake Slowdown", "clocks_event_reason_hw_power_brake_slowdown",
        "clocks_event_reasons.hw_power_brake_slowdown");
    put(to, gpu, "Sync Boost", "clocks_event_reason_sync_boost", "clocks_event_reasons.sync_boost");
    put(to, gpu, "SW Thermal Slowdown", "clocks_event_reason_sw_thermal_slowdown",
        "clocks_event_reasons.sw_thermal_slowdown");
    close_section(to);
}

static void put_memory(report *to, const smi_gpu *gpu) {
    open_section(to, "FB Memory Usage", "fb_memory_usage");
    put(to, gpu, "Total", "total", "memory.total");
    put(to, gpu, "Reserved", "reserved", "memory.reserved");
    put(to, gpu, "Used", "used", "memory.used");
    put(to, gpu, "Free", "free", "memory.free");
    close_section(to);
}

static void put_utilization(report *to, const smi_gpu *gpu) {
    open_section(to, "Utilization", "utilization");
    put(to, gpu, "GPU", "gpu_util", "utilization.gpu");
    put(to, gpu, "Memory", "memory_util", "utilization.memory");
    put(to, gpu, "Encoder", "encoder_util", "utilization.encoder");
    put(to, gpu, "Decoder", "decoder_util", "utilization.decoder");
    put(to, gpu, "JPEG", "jpeg_util", "utilization.jpeg");
    put(to, gpu, "OFA", "ofa_util", "utilization.ofa");
    close_section(to);
}

static void put_ecc(report *to, const smi_gpu *gpu) {
    open_section(to, "ECC Mode", "ecc_mode");
    put(to, gpu, "Current", "current_ecc", "ecc.mode.current");
    put(to, gpu, "Pending", "pending_ecc", "ecc.mode.pending");
    close_section(to);
}

/* Writes a temperature. It has a unit here, but not in a query. */
static void put_temperature(report *to, const smi_gpu *gpu, const char *title, const char *tag,
                            const char *value) {
    char text[SMI_TEXT_MAX + 4];
    bool is_number = *value >= '0' && *value <= '9';
    (void)gpu;
    snprintf(text, sizeof text, "%s%s", value, is_number ? " C" : "");
    put_item(to, title, tag, text);
}

static void put_threshold(report *to, const smi_gpu *gpu, const char *title, const char *tag,
                          unsigned int which) {
    char text[32];
    unsigned int celsius = 0;
    bool is_known = smi_get_number_of(gpu, "nvmlDeviceGetTemperatureThreshold", which, &celsius) ==
                    NVML_SUCCESS;
    snprintf(text, sizeof text, "%u", celsius);
    put_temperature(to, gpu, title, tag, is_known ? text : "N/A");
}

static void put_temperatures(report *to, const smi_gpu *gpu) {
    open_section(to, "Temperature", "temperature");
    put_temperature(to, gpu, "GPU Current Temp", "gpu_temp", SMI_VALUE(gpu, "temperature.gpu"));
    put_threshold(to, gpu, "GPU Shutdown Temp", "gpu_temp_max_threshold", 0);
    put_threshold(to, gpu, "GPU Slowdown Temp", "gpu_temp_slow_threshold", 1);
    put_threshold(to, gpu, "GPU Max Operating Temp", "gpu_temp_max_gpu_threshold", 3);
    put_temperature(to, gpu, "Memory Current Temp", "memory_temp",
                    SMI_VALUE(gpu, "temperature.memory"));
    put_threshold(to, gpu, "Memory Max Operating Temp", "gpu_temp_max_mem_threshold", 2);
    close_section(to);
}

static void put_power(report *to, const smi_gpu *gpu) {
    open_section(to, "GPU Power Readings", "gpu_power_readings");
    put(to, gpu, "Power State", "power_state", "pstate");
    put(to, gpu, "Power Draw", "power_draw", "power.draw");
    put(to, gpu, "Average Power Draw", "average_power_draw", "power.draw.average");
    put(to, gpu, "Instantaneous Power Draw", "instant_power_draw", "power.draw.instant");
    put(to, gpu, "Current Power Limit", "current_power_limit", "enforced.power.limit");
    put(to, gpu, "Requested Power Limit", "requested_power_limit", "power.limit");
    put(to, gpu, "Default Power Limit", "default_power_limit", "power.default_limit");
    put(to, gpu, "Min Power Limit", "min_power_limit", "power.min_limit");
    put(to, gpu, "Max Power Limit", "max_power_limit", "power.max_limit");
    close_section(to);
    open_section(to, "GPU Memory Power Readings", "gpu_memory_power_readings");
    put(to, gpu, "Average Power Draw", "average_power_draw", "memory.power.draw.average");
    put(to, gpu, "Instantaneous Power Draw", "instant_power_draw", "memory.power.draw.instant");
    close_section(to);
    open_section(to, "Module Power Readings", "module_power_readings");
    put(to, gpu, "Average Power Draw", "average_power_draw", "module.power.draw.average");
    put(to, gpu, "Instantaneous Power Draw", "instant_power_draw", "module.power.draw.instant");
    put(to, gpu, "Current Power Limit", "current_power_limit", "module.enforced.power.limit");
    put(to, gpu, "Requested Power Limit", "requested_power_limit", "module.power.limit");
    put(to, gpu, "Default Power Limit", "default_power_limit", "module.power.default_limit");
    put(to, gpu, "Min Power Limit", "min_power_limit", "module.power.min_limit");
    put(to, gpu, "Max Power Limit", "max_power_limit", "module.power.max_limit");
    close_section(to);
}

static void put_clocks(report *to, const smi_gpu *gpu) {
    open_section(to, "Clocks", "clocks");
    put(to, gpu, "Graphics", "graphics_clock", "clocks.gr");
    put(to, gpu, "SM", "sm_clock", "clocks.sm");
    put(to, gpu, "Memory", "mem_clock", "clocks.mem");
    put(to, gpu, "Video", "video_clock", "clocks.video");
    close_section(to);
    open_section(to, "Applications Clocks", "applications_clocks");
    put(to, gpu, "Graphics", "graphics_clock", "clocks.applications.gr");
    put(to, gpu, "Memory", "mem_clock", "clocks.applications.mem");
    close_section(to);
    open_section(to, "Default Applications Clocks", "default_applications_clocks");
    put(to, gpu, "Graphics", "graphics_clock", "clocks.default_applications.gr");
    put(to, gpu, "Memory", "mem_clock", "clocks.default_applications.mem");
    close_section(to);
    open_section(to, "Max Clocks", "max_clocks");
    put(to, gpu, "Graphics", "graphics_clock", "clocks.max.gr");
    put(to, gpu, "SM", "sm_clock", "clocks.max.sm");
    put(to, gpu, "Memory", "mem_clock", "clocks.max.mem");
    put(to, gpu, "Video", "video_clock", "clocks.max.video");
    close_section(to);
}

static void put_mhz(const report *to, const char *title, const char *tag, unsigned int mhz) {
    char text[32];
    snprintf(text, sizeof text, "%u MHz", mhz);
    put_item(to, title, tag, text);
}

static void put_graphics_clocks(report *to, const smi_gpu *gpu, unsigned int memory_mhz) {
    nvmlReturn_t (*list)(nvmlDevice_t, unsigned int, unsigned int *, unsigned int *) = NULL;
    *(void **)&list = smi_function("nvmlDeviceGetSupportedGraphicsClocks");
    unsigned int clocks[SMI_CLOCK_MAX], count = SMI_CLOCK_MAX;
    if (!list || list(gpu->device, memory_mhz, &count, clocks) != NVML_SUCCESS) return;
    for (unsigned int i = 0; i < count; i++)
        put_mhz(to, "Graphics", "supported_graphics_clock", clocks[i]);
}

static void put_supported_clocks(report *to, const smi_gpu *gpu) {
    unsigned int clocks[SMI_CLOCK_MAX], count = SMI_CLOCK_MAX;
    open_section(to, "Supported Clocks", "supported_clocks");
    if (smi_get_two(gpu, "nvmlDeviceGetSupportedMemoryClocks", &count, clocks) != NVML_SUCCESS)
        count = 0;
    for (unsigned int i = 0; i < count; i++) {
        if (to->is_xml) {
            open_section(to, "", "supported_mem_clock");
            put_mhz(to, "", "value", clocks[i]);
        } else {
            put_mhz(to, "Memory", "", clocks[i]);
            to->depth++;
        }
        put_graphics_clocks(to, gpu, clocks[i]);
        if (to->is_xml)
            close_section(to);
        else
            to->depth--;
    }
    close_section(to);
}

static void put_processes(report *to, const smi_gpu *gpu) {
    nvmlProcessInfo_t processes[SMI_PROCESS_MAX];
    unsigned int count = smi_get_processes(gpu, processes);
    if (count == 0 && !to->is_xml) {
        put_item(to, "Processes", "processes", "None");
        return;
    }
    open_section(to, "Processes", "processes");
    for (unsigned int i = 0; i < count; i++) {
        char pid[16], memory[32], name[SMI_TEXT_MAX];
        snprintf(pid, sizeof pid, "%u", processes[i].pid);
        snprintf(memory, sizeof memory, "%llu MiB", processes[i].usedGpuMemory >> 20);
        smi_process_name(processes[i].pid, name, sizeof name);
        if (to->is_xml) open_section(to, "", "process_info");
        put_item(to, "GPU instance ID", "gpu_instance_id", "N/A");
        put_item(to, "Compute instance ID", "compute_instance_id", "N/A");
        put_item(to, "Process ID", "pid", pid);
        if (!to->is_xml) to->depth++;
        put_item(to, "Type", "type", "C");
        put_item(to, "Name", "process_name", name);
        put_item(to, "Used GPU Memory", "used_memory", memory);
        if (!to->is_xml) to->depth--;
        if (to->is_xml) close_section(to);
    }
    close_section(to);
}

/* ---- All of it ------------------------------------------------------------------------------- */

typedef void section_function(report *to, const smi_gpu *gpu);

static const struct {
    const char *name; /* the name for -d; NULL: shown only without -d */
    section_function *put;
} sections[] = {
    {NULL, put_identity},
    {"PERFORMANCE", put_performance},
    {"MEMORY", put_memory},
    {"UTILIZATION", put_utilization},
    {"ECC", put_ecc},
    {"TEMPERATURE", put_temperatures},
    {"POWER", put_power},
    {"CLOCK", put_clocks},
    {"SUPPORTED_CLOCKS", put_supported_clocks},
    {"PIDS", put_processes},
};
enum { SECTION_COUNT = sizeof sections / sizeof sections[0] };

static bool are_known(const char *list) {
    for (const char *at = list; at;) {
        size_t length = strcspn(at, ",");
        bool is_known = false;
        for (int i = 0; i < SECTION_COUNT; i++) {
            const char *name = sections[i].name;
            is_known =
                is_known || (name && strlen(name) == length && strncasecmp(name, at, length) == 0);
        }
        if (!is_known) return false;
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    return true;
}

static void put_gpu(report *to, const smi_gpu *gpu) {
    if (to->is_xml)
        fprintf(to->out, "\t<gpu id=\"%s\">\n", gpu->pci.busId);
    else
        fprintf(to->out, "\nGPU %s\n", gpu->pci.busId);
    to->depth = to->is_xml ? 2 : 1;
    for (int i = 0; i < SECTION_COUNT; i++) {
        bool is_given = sections[i].name ? is_wanted(to, sections[i].name) : !to->sections;
        if (is_given) sections[i].put(to, gpu);
    }
    to->depth = to->is_xml ? 1 : 0;
    if (to->is_xml) fprintf(to->out, "\t</gpu>\n");
}

static void put_head(report *to, const smi_gpus *gpus) {
    char now[64], driver[SMI_TEXT_MAX] = "", cuda[32] = "N/A", count[16];
    time_t seconds = harpe_clock_wall_whole_s();
    struct tm parts;
    int version = 0;
    nvmlReturn_t (*cuda_version)(int *) = NULL;
    *(void **)&cuda_version = smi_function("nvmlSystemGetCudaDriverVersion_v2");
    if (cuda_version && cuda_version(&version) == NVML_SUCCESS)
        snprintf(cuda, sizeof cuda, "%d.%d", version / 1000, version % 1000 / 10);
    localtime_r(&seconds, &parts);
    strftime(now, sizeof now, "%a %b %e %H:%M:%S %Y", &parts);
    (void)smi_get_system_text("nvmlSystemGetDriverVersion", driver, sizeof driver);
    snprintf(count, sizeof count, "%u", gpus->driver_count);
    put_item(to, "Timestamp", "timestamp", now);
    put_item(to, "Driver Version", "driver_version", driver);
    put_item(to, "CUDA Version", "cuda_version", cuda);
    if (!to->is_xml) fputc('\n', to->out);
    put_item(to, "Attached GPUs", "attached_gpus", count);
}

int smi_report(const smi_gpus *gpus, bool is_xml, const char *wanted, FILE *out) {
    report to = {.out = out, .is_xml = is_xml, .depth = is_xml ? 1 : 0, .sections = wanted};
    if (!are_known(wanted)) {
        printf("-d: \"%s\" is not a list of sections known here: MEMORY, UTILIZATION, ECC, "
               "TEMPERATURE, POWER, CLOCK, PIDS, PERFORMANCE, SUPPORTED_CLOCKS.\n",
               wanted);
        return SMI_BAD_ARGUMENT;
    }
    if (is_xml) {
        fprintf(out, "<?xml version=\"1.0\" ?>\n"
                     "<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n"
                     "<!-- The GPUs are emulated: this is the nvidia-smi of Harpe's NVML emulator, "
                     "not NVIDIA's. -->\n<nvidia_smi_log>\n");
    } else {
        fprintf(out, "\n==============NVSMI LOG==============\n\n");
    }
    put_head(&to, gpus);
    for (unsigned int i = 0; i < gpus->count; i++)
        put_gpu(&to, &gpus->gpu[i]);
    fprintf(out, is_xml ? "</nvidia_smi_log>\n" : "\n");
    return SMI_OK;
}
