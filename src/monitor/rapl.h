/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the energy of CPU packages and their DRAM from the kernel's powercap tree (Intel and AMD
 * RAPL). Counters wrap after some minutes of full power. A thread wakes every few minutes, so no
 * wrap is missed. */
#ifndef HARPE_MONITOR_RAPL_H
#define HARPE_MONITOR_RAPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

#define HARPE_RAPL_DEFAULT_PATH "/sys/class/powercap"
enum { HARPE_RAPL_PACKAGES_MAX = 64, HARPE_RAPL_NAME_SIZE = 32 };

typedef struct harpe_rapl harpe_rapl;

/* A reading in uJ since harpe_rapl_open, corrected for wraps. Restarts of a counter are counted,
 * and the energy between two readings with different counts is unknown. A counter that has gone
 * back counts as restarted if max_energy_range_uj does not tell where the counter wraps, or if a
 * wrap would be more energy than HARPE_CPU_HIGHEST_W allows, and so does a counter that has jumped
 * further than this. */
typedef struct harpe_rapl_reading {
    int64_t time_ns; /* harpe_clock_ns after the reading */
    uint64_t package_uj[HARPE_RAPL_PACKAGES_MAX];
    uint64_t dram_uj[HARPE_RAPL_PACKAGES_MAX]; /* 0 for a package without DRAM zone */
    unsigned package_restarts[HARPE_RAPL_PACKAGES_MAX];
    unsigned dram_restarts[HARPE_RAPL_PACKAGES_MAX];
} harpe_rapl_reading;

/* Opens the counters. `path` NULL: HARPE_RAPL_DEFAULT_PATH. Fails with HARPE_UNAVAILABLE if there
 * is no package, and with HARPE_PERMISSION_DENIED (with advice) if the counters may not be read;
 * since Linux 5.10 only root may. */
harpe_status harpe_rapl_open(const char *path, harpe_rapl **out, harpe_error *error);
void harpe_rapl_close(harpe_rapl *rapl);

size_t harpe_rapl_package_count(const harpe_rapl *rapl); /* 0 for NULL */
const char *harpe_rapl_package_name(const harpe_rapl *rapl, size_t package);
/* Returns the number of zones that show the counter of another die and count once with it. */
size_t harpe_rapl_mirror_count(const harpe_rapl *rapl);
bool harpe_rapl_has_dram(const harpe_rapl *rapl, size_t package);

/* Reads all counters. Fails with HARPE_NOT_SUPPORTED in a forked child. Any thread may call it. */
harpe_status harpe_rapl_read(harpe_rapl *rapl, harpe_rapl_reading *reading, harpe_error *error);

#endif
