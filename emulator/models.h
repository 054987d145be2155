/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU models that can be emulated: a table of public facts (names, clocks, power limits) and of
 * the constants of the power model. Nothing here changes; the physics is in physics.c. */
#ifndef HARPE_EMULATOR_MODELS_H
#define HARPE_EMULATOR_MODELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EMULATOR_MEMORY_CLOCK_MAX = 5 };

typedef struct emulator_model {
    const char *key;  /* "A100", as HARPE_EMULATOR_GPUS names it */
    const char *name; /* as nvmlDeviceGetName tells it */
    unsigned int architecture, compute_major, compute_minor;
    unsigned int pci_device_id, pci_subsystem_id;
    unsigned int brand; /* nvmlBrandType_t */
    unsigned int core_count, memory_bus_bits, pcie_generation;
    uint64_t memory_bytes;
    /* Power model, in W; see docs/emulator.md. */
    double static_w, dynamic_w; /* busy at the highest clock: their sum */
    double blocking_w, idle_w;
    double knee, knee_voltage; /* share of the highest clock; V(knee) / V(highest) */
    unsigned int limit_minimum_mw, limit_maximum_mw, limit_default_mw;
    /* Supported clock k is (base_half_mhz + k * step_half_mhz) / 2 MHz, rounded down. */
    unsigned int base_half_mhz, step_half_mhz, highest_mhz;
    unsigned int idle_memory_mhz;
    unsigned int memory_clock_count;
    unsigned int memory_mhz[EMULATOR_MEMORY_CLOCK_MAX]; /* highest first */
    bool locks_memory_clocks;                           /* Ampere and newer */
    bool averages_power;    /* over 1 s, which is what nvmlDeviceGetPowerUsage gives */
    double memory_share;    /* the memory's share of the power; 0: the driver does not report it */
    double energy_step_s;   /* the energy counter moves this often */
    double sensor_period_s; /* the power sensor gives a new value this often */
    double module_rest_w;   /* power of a module without the GPU's; 0: no module */
    unsigned int module_limit_minimum_mw, module_limit_maximum_mw;
} emulator_model;

const emulator_model *emulator_model_at(unsigned int index); /* NULL beyond the end */
/* Index of the model called `key` (length bytes, any case), or -1. */
int emulator_model_find(const char *key, size_t length);

unsigned int emulator_clock_count(const emulator_model *model);
/* Supported graphics clocks, index 0 the highest. */
unsigned int emulator_clock_mhz(const emulator_model *model, unsigned int index);
/* Index of the highest supported clock that is at most `mhz` (the lowest clock's when none is). */
unsigned int emulator_clock_index(const emulator_model *model, unsigned int mhz);

#endif
