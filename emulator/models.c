/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU models that can be emulated. Clock ranges, steps, memory clocks and power limits come
 * from NVIDIA's data sheets and from `nvidia-smi -q -d SUPPORTED_CLOCKS,POWER`. The division into
 * static and dynamic power, the knee, and the idle and blocking power are plausible numbers chosen
 * for this model, not measurements, unless a comment says so. They equal those of `harpe synth`, so
 * that profiles of `harpe synth` agree with the emulator. */
#include "models.h"

#include <math.h>
#include <strings.h>

#include "gpu/nvml_abi.h"

/* Power that the memory saves at its lowest clock, as a share of static power. */
#define MEMORY_SHARE_OF_STATIC 0.2

enum { BRAND_TESLA = 2, BRAND_NVIDIA = 14 };
#define GIB (UINT64_C(1) << 30)

/* What the models of an architecture, or with one chip, share. In a row, what is left out is 0 or
 * false. */
/* clang-format off */
#define AMPERE \
    .architecture = NVML_DEVICE_ARCH_AMPERE, \
    .compute_major = 8, \
    .brand = BRAND_NVIDIA, \
    .pcie_generation = 4, \
    .workload_speed = 1, \
    .host_speed = 1, \
    .base_half_mhz = 2 * 210, \
    .step_half_mhz = 2 * 15, \
    .locks_memory_clocks = true, \
    .energy_step_s = 0.050, \
    .sensor_period_s = 0.100

#define GA100 \
    AMPERE, \
    .core_count = 6912, \
    .memory_bus_bits = 5120, \
    .highest_mhz = 1410, \
    .memory_clock_count = 1, \
    .averages_power = false

#define GH100 \
    .architecture = NVML_DEVICE_ARCH_HOPPER, \
    .compute_major = 9, \
    .brand = BRAND_NVIDIA, \
    .core_count = 16896, \
    .pcie_generation = 5, \
    .knee = 0.72, \
    .knee_voltage = 0.73, \
    .workload_speed = 2.27, /* fitted: docs/emulator.md */ \
    .host_speed = 1.87, \
    .workload_power = 2.02, \
    .limit_share = 1, \
    .step_half_mhz = 2 * 15, \
    .highest_mhz = 1980, \
    .idle_memory_mhz = 2619, \
    .locks_memory_clocks = true, \
    .averages_power = true, \
    .memory_share = 0.2, \
    .energy_step_s = 0.100, \
    .sensor_period_s = 0.100
/* clang-format on */

static const emulator_model models[] = {
    {
        .key = "V100",
        .name = "Tesla V100-SXM2-32GB",
        .architecture = NVML_DEVICE_ARCH_VOLTA,
        .compute_major = 7,
        .pci_device_id = 0x1db510de,
        .pci_subsystem_id = 0x124910de,
        .brand = BRAND_TESLA,
        .core_count = 5120,
        .memory_bus_bits = 4096,
        .pcie_generation = 3,
        .memory_bytes = 32 * GIB,
        .static_w = 71,
        .dynamic_w = 215,
        .blocking_w = 61,
        .idle_w = 42,
        .loaded_idle_w = 58,
        .knee = 0.74,
        .knee_voltage = 0.76,
        .workload_speed = 1,
        .host_speed = 1,
        .workload_power = 0.953,
        .limit_share = 1,
        .limit_minimum_mw = 150000,
        .limit_maximum_mw = 300000,
        .base_half_mhz = 2 * 135,
        .step_half_mhz = 15, /* 7 and 8 MHz */
        .highest_mhz = 1530,
        .idle_memory_mhz = 877,
        .memory_clock_count = 1,
        .memory_mhz = {877},
        .energy_step_s = 0.020,
        .sensor_period_s = 0.020,
    },
    {
        .key = "A40",
        .name = "NVIDIA A40",
        AMPERE,
        .compute_minor = 6,
        .pci_device_id = 0x223510de,
        .pci_subsystem_id = 0x145a10de,
        .core_count = 10752,
        .memory_bus_bits = 384,
        .memory_bytes = 48 * GIB,
        .static_w = 86,
        .dynamic_w = 203,
        .blocking_w = 76,
        .idle_w = 31,
        .loaded_idle_w = 72,
        .knee = 0.75,
        .knee_voltage = 0.74,
        .workload_power = 0.963,
        .limit_share = 1,
        .limit_minimum_mw = 100000,
        .limit_maximum_mw = 300000,
        .highest_mhz = 1740,
        .idle_memory_mhz = 405,
        .memory_clock_count = 5,
        .memory_mhz = {7251, 6251, 5001, 810, 405},
        .averages_power = true,
    },
    {
        .key = "A100",
        .name = "NVIDIA A100-SXM4-80GB",
        GA100,
        .pci_device_id = 0x20b210de,
        .pci_subsystem_id = 0x147f10de,
        .memory_bytes = 80 * GIB,
        .static_w = 98,
        .dynamic_w = 290,
        .blocking_w = 84,
        .idle_w = 62,
        .loaded_idle_w = 83,
        .knee = 0.76,
        .knee_voltage = 0.75,
        .workload_power = 1.29,
        .limit_share = 1,
        .limit_minimum_mw = 100000,
        .limit_maximum_mw = 400000,
        .idle_memory_mhz = 1593,
        .memory_mhz = {1593},
    },
    {
        .key = "A100-PCIe",
        .name = "NVIDIA A100-PCIE-40GB",
        GA100,
        .pci_device_id = 0x20f110de,
        .pci_subsystem_id = 0x145f10de,
        .memory_bytes = 40 * GIB,
        /* Measured (EnergAIzer): the voltage, idle power, the share of the limit, and the medians
         * of static and dynamic power of workloads that fill the GPU. */
        .static_w = 49,
        .dynamic_w = 251,
        .blocking_w = 70,
        .idle_w = 44.5,
        .loaded_idle_w = 67.3,
        .knee = 0.728,
        .knee_voltage = 0.776,
        .workload_power = 1,
        .limit_share = 0.963,
        .limit_minimum_mw = 150000,
        .limit_maximum_mw = 250000,
        .idle_memory_mhz = 1215,
        .memory_mhz = {1215},
    },
    {
        .key = "H100",
        .name = "NVIDIA H100 80GB HBM3",
        GH100,
        .pci_device_id = 0x233010de,
        .pci_subsystem_id = 0x16c110de,
        .memory_bus_bits = 5120,
        .memory_bytes = 80 * GIB,
        .static_w = 141,
        .dynamic_w = 535,
        .blocking_w = 115,
        .idle_w = 71,
        .loaded_idle_w = 130, /* measured: docs/gpu.md */
        .limit_minimum_mw = 200000,
        .limit_maximum_mw = 700000,
        .base_half_mhz = 2 * 210,
        .memory_clock_count = 2,
        .memory_mhz = {2619, 1593},
    },
    {
        .key = "GH200",
        .name = "NVIDIA GH200 480GB",
        GH100,
        .pci_device_id = 0x234210de,
        .pci_subsystem_id = 0x16eb10de,
        .memory_bus_bits = 6144,
        .memory_bytes = 96 * GIB,
        .static_w = 148,
        .dynamic_w = 560,
        .blocking_w = 121,
        .idle_w = 78,
        .loaded_idle_w = 140,
        .limit_minimum_mw = 100000,
        .limit_maximum_mw = 900000,
        .base_half_mhz = 2 * 345,
        .memory_clock_count = 1,
        .memory_mhz = {2619},
        .module_rest_w = 84, /* Grace and its memory */
        .module_limit_minimum_mw = 450000,
        .module_limit_maximum_mw = 1000000,
    },
};
enum { MODEL_COUNT = sizeof models / sizeof models[0] };

const emulator_model *emulator_model_at(unsigned int index) {
    return index < MODEL_COUNT ? &models[index] : NULL;
}

int emulator_model_find(const char *key, size_t length) {
    for (int i = 0; i < MODEL_COUNT; i++)
        if (strncasecmp(models[i].key, key, length) == 0 && models[i].key[length] == '\0') return i;
    return -1;
}

unsigned int emulator_clock_count(const emulator_model *model) {
    return (2 * model->highest_mhz - model->base_half_mhz) / model->step_half_mhz + 1;
}

unsigned int emulator_clock_mhz(const emulator_model *model, unsigned int index) {
    unsigned int from_lowest = emulator_clock_count(model) - 1 - index;
    return (model->base_half_mhz + from_lowest * model->step_half_mhz) / 2;
}

unsigned int emulator_clock_index(const emulator_model *model, unsigned int mhz) {
    unsigned int highest = emulator_clock_count(model) - 1, wanted_half_mhz = 2 * mhz + 1;
    if (mhz >= model->highest_mhz) return 0;
    if (wanted_half_mhz < model->base_half_mhz) return highest;
    unsigned int from_lowest = (wanted_half_mhz - model->base_half_mhz) / model->step_half_mhz;
    return from_lowest < highest ? highest - from_lowest : 0;
}

double emulator_switching(const emulator_model *model, double clock_mhz) {
    double x = clock_mhz / model->highest_mhz;
    double rise = x <= model->knee ? 0.0 : (x - model->knee) / (1.0 - model->knee);
    double voltage = model->knee_voltage + (1.0 - model->knee_voltage) * rise;
    return x * voltage * voltage;
}

double emulator_model_power_w(const emulator_model *model, double clock_mhz, double memory) {
    double static_w = model->static_w * (1.0 - MEMORY_SHARE_OF_STATIC * (1.0 - memory));
    return static_w + model->dynamic_w * emulator_switching(model, clock_mhz);
}

/* Idle power at a clock, as a share of its rise from the lowest clock to the highest: measured on
 * an A100-PCIE-40GB and an H100 SXM (idle_power.json in the artifact of EnergAIzer, ISPASS 2026,
 * MIT licence). Between two points it is linear. */
typedef struct idle_point {
    double x, rise; /* clock as a share of the highest */
} idle_point;
static const idle_point ampere_idle[] = {
    {0.149, 0},     {0.362, 0.035}, {0.574, 0.1},   {0.723, 0.181},
    {0.809, 0.321}, {0.894, 0.516}, {0.957, 0.745}, {1, 1},
};
static const idle_point hopper_idle[] = {
    {0.182, 0},    {0.455, 0.026}, {0.576, 0.075}, {0.644, 0.178},
    {0.758, 0.52}, {0.833, 0.75},  {0.909, 0.918}, {1, 1},
};
enum { IDLE_POINT_COUNT = 8 };

double emulator_model_idle_w(const emulator_model *model, double clock_mhz) {
    bool is_hopper = model->architecture == NVML_DEVICE_ARCH_HOPPER;
    const idle_point *points = is_hopper ? hopper_idle : ampere_idle;
    double x = clock_mhz / model->highest_mhz, rise = 0;
    for (int i = 1; i < IDLE_POINT_COUNT && x > points[i - 1].x; i++) {
        double share = fmin((x - points[i - 1].x) / (points[i].x - points[i - 1].x), 1);
        rise = points[i - 1].rise + share * (points[i].rise - points[i - 1].rise);
    }
    return model->idle_w + rise * (model->loaded_idle_w - model->idle_w);
}
