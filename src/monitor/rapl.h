/* SPDX-License-Identifier: Apache-2.0 */
/* Energy of CPU packages and their DRAM from the kernel's powercap tree (Intel and AMD RAPL).
 * Counters wrap after some minutes of full power; a thread that wakes every few minutes makes sure
 * that no wrap is missed. */
#ifndef HARPE_MONITOR_RAPL_H
#define HARPE_MONITOR_RAPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

#define HARPE_RAPL_DEFAULT_PATH "/sys/class/powercap"
enum { HARPE_RAPL_PACKAGES_MAX = 64, HARPE_RAPL_NAME_SIZE = 32 };

typedef struct harpe_rapl harpe_rapl;

/* A reading, in uJ since harpe_rapl_open, wraps taken out. */
typedef struct harpe_rapl_reading {
    uint64_t package_uj[HARPE_RAPL_PACKAGES_MAX];
    uint64_t dram_uj[HARPE_RAPL_PACKAGES_MAX]; /* 0 where there is none */
} harpe_rapl_reading;

/* `path` NULL: HARPE_RAPL_DEFAULT_PATH. HARPE_UNAVAILABLE when there is no package;
 * HARPE_PERMISSION_DENIED, with advice, when the counters may not be read (only root may since
 * Linux 5.10). */
harpe_status harpe_rapl_open(const char *path, harpe_rapl **out, harpe_error *error);
void harpe_rapl_close(harpe_rapl *rapl);

size_t harpe_rapl_package_count(const harpe_rapl *rapl); /* 0 for NULL */
const char *harpe_rapl_package_name(const harpe_rapl *rapl, size_t package);
bool harpe_rapl_has_dram(const harpe_rapl *rapl, size_t package);

/* Any thread. HARPE_NOT_SUPPORTED in a forked child. */
harpe_status harpe_rapl_read(harpe_rapl *rapl, harpe_rapl_reading *reading, harpe_error *error);

#endif
