/* SPDX-License-Identifier: Apache-2.0 */
/* The table of measured workloads, and their time and power at a clock. There are 20 combinations
 * of model, precision, batch size and sequence length. All are prefill. They were measured at 10 or
 * 11 clocks of an A100-PCIE-40GB; the data is in the artifact of EnergAIzer (ISPASS 2026, MIT
 * licence). bench/workload_laws.py fits the constants of the table and prints their errors. */
#include "workloads.h"

#include <math.h>
#include <string.h>

static const emulator_workload workloads[] = {
    {"bert-large-bf16-b32-s128", 0, 21.91, 4.264, 48.9, 258.2},
    {"bert-large-bf16-b32-s512", 0, 82.06, 31.96, 65.5, 314.2},
    {"bert-large-bf16-b8-s128", 13.95, 6.931, 3.194, 46.4, 177.1},
    {"bert-large-bf16-b8-s512", 0, 26.66, 8.647, 56.2, 255.6},
    {"gpt2-bf16-b32-s128", 0, 6.867, 4.796, 66.4, 231.6},
    {"gpt2-bf16-b32-s512", 0, 33.53, 24.33, 74.1, 262.5},
    {"gpt2-bf16-b8-s128", 7.881, 1.862, 0.7853, 48.8, 251.2},
    {"gpt2-bf16-b8-s512", 0, 9.581, 6.172, 66.7, 240.7},
    {"gpt2-fp32-b32-s128", 0, 46.39, 10.18, 46.6, 252.8},
    {"gpt2-fp32-b32-s512", 0, 199.9, 48.75, 48.8, 267.2},
    {"gpt2-fp32-b8-s128", 0, 13.68, 1.037, 39.9, 250.9},
    {"gpt2-fp32-b8-s512", 0, 53.41, 12.58, 48.0, 251.4},
    {"opt-1.3b-bf16-b2-s128", 13.29, 6.404, 3.284, 47.6, 187.9},
    {"opt-1.3b-bf16-b2-s2048", 0, 134.3, 83.02, 68.2, 242.6},
    {"opt-1.3b-bf16-b8-s128", 0, 18.48, 2.019, 45.2, 264.0},
    {"opt-1.3b-bf16-b8-s2048", 0, 506.3, 331.1, 71.5, 248.2},
    {"qwen2-1.5b-bf16-b1-s128", 26.9, 4.569, 0.5179, 48.8, 251.2},
    {"qwen2-1.5b-bf16-b1-s4096", 0, 154, 89.44, 67.5, 252.7},
    {"qwen2-1.5b-bf16-b8-s128", 26.62, 21.02, 4.971, 48.0, 250.0},
    {"qwen2-1.5b-bf16-b8-s4096", 0, 85.43, 22.8, 44.6, 50.7},
};
enum { WORKLOAD_COUNT = sizeof workloads / sizeof workloads[0] };

const emulator_workload *emulator_workload_at(unsigned int index) {
    return index < WORKLOAD_COUNT ? &workloads[index] : NULL;
}

int emulator_workload_find(const char *name) {
    size_t length = strcspn(name, ",");
    for (int i = 0; i < WORKLOAD_COUNT; i++)
        if (strncmp(workloads[i].name, name, length) == 0 && workloads[i].name[length] == '\0')
            return i;
    return -1;
}

emulator_iteration emulator_workload_iterate(const emulator_workload *workload,
                                             const emulator_model *model, double clock_mhz,
                                             double memory) {
    double per_clock = model->highest_mhz / clock_mhz;
    double gpu_s = 1e-3 * (workload->compute_ms * per_clock + workload->rest_ms / memory) /
                   model->workload_speed;
    double floor_s = 1e-3 * workload->floor_ms / model->host_speed;
    double busy_w = workload->static_w + workload->dynamic_w * emulator_switching(model, clock_mhz);
    emulator_iteration iteration = {.time_s = fmax(floor_s, gpu_s)};
    iteration.activity = gpu_s / iteration.time_s;
    iteration.power_w = iteration.activity * model->workload_power * busy_w +
                        (1 - iteration.activity) * emulator_model_idle_w(model, clock_mhz);
    return iteration;
}
