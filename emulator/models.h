/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU models that can be emulated: a table of public facts (names, clocks, power limits) and of
 * the constants of the power model. The table is constant. The physics is in physics.c. */
#ifndef HARPE_EMULATOR_MODELS_H
#define HARPE_EMULATOR_MODELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EMULATOR_MEMORY_CLOCK_MAX = 5 };

typedef struct emulator_model {
    const char *key;  /* name in HARPE_EMULATOR_GPUS, such as "A100" */
    const char *name; /* the result of nvmlDeviceGetName */
    unsigned int architecture, compute_major, compute_minor;
    unsigned int pci_device_id, pci_subsystem_id;
    unsigned int brand; /* nvmlBrandType_t */
    unsigned int core_count, memory_bus_bits, pcie_generation;
    uint64_t memory_bytes;
    /* Power model, in W; see docs/emulator.md. */
    double static_w, dynamic_w; /* their sum is the power of a busy GPU at the highest clock */
    double blocking_w;
    double idle_w;             /* idle, at the lowest clock */
    double loaded_idle_w;      /* idle with a context, at the highest clock */
    double knee, knee_voltage; /* knee as a share of the highest clock; V(knee) / V(highest) */
    /* The GPU's speed, the speed of its host, and the power of the busy GPU with a workload of
     * workloads.h, relative to an A100-PCIE-40GB. */
    double workload_speed, host_speed, workload_power;
    double limit_share; /* share of the power limit that a GPU at its limit draws */
    unsigned int limit_minimum_mw, limit_maximum_mw; /* the default is the maximum */
    /* Supported clock k is (base_half_mhz + k * step_half_mhz) / 2 MHz, rounded down. */
    unsigned int base_half_mhz, step_half_mhz, highest_mhz;
    unsigned int idle_memory_mhz;
    unsigned int memory_clock_count;
    unsigned int memory_mhz[EMULATOR_MEMORY_CLOCK_MAX]; /* highest first */
    bool locks_memory_clocks;                           /* Ampere and newer models */
    bool averages_power;    /* nvmlDeviceGetPowerUsage returns an average over 1 s */
    double memory_share;    /* share of the memory in the power; 0: the driver does not report it */
    double energy_step_s;   /* interval between changes of the energy counter */
    double sensor_period_s; /* interval between new values of the power sensor */
    /* power of the rest of the module; 0: the GPU is not part of a module */
    double module_rest_w;
    unsigned int module_limit_minimum_mw, module_limit_maximum_mw;
} emulator_model;

/* Returns the model with this index, or NULL after the end of the table. */
const emulator_model *emulator_model_at(unsigned int index);
/* Returns the index of the model called `key` (`length` bytes, any case), or -1. */
int emulator_model_find(const char *key, size_t length);

unsigned int emulator_clock_count(const emulator_model *model);
/* Returns a supported graphics clock. Index 0 is the highest. */
unsigned int emulator_clock_mhz(const emulator_model *model, unsigned int index);
/* Returns the index of the highest supported clock that is at most `mhz`. If there is none, returns
 * the index of the lowest clock. */
unsigned int emulator_clock_index(const emulator_model *model, unsigned int mhz);

/* Returns the power of a busy GPU of the model. `memory` is the memory clock as a share of the
 * highest. */
double emulator_model_power_w(const emulator_model *model, double clock_mhz, double memory);
/* Returns the switching power at a clock, as a share of that at the highest: x (V/V1)^2. */
double emulator_switching(const emulator_model *model, double clock_mhz);
/* Returns the power of a GPU of the model that does nothing at a clock. */
double emulator_model_idle_w(const emulator_model *model, double clock_mhz);

#endif
