/* SPDX-License-Identifier: Apache-2.0 */
/* A powercap tree in a scratch directory. The test moves its counters. */
#ifndef HARPE_TESTS_FAKE_RAPL_H
#define HARPE_TESTS_FAKE_RAPL_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/scratch.h"

/* `zone` is a path below `root` such as "intel-rapl:0" or "intel-rapl:0/intel-rapl:0:1". */
static inline void fake_counter(const char *root, const char *zone, uint64_t energy_uj) {
    char path[256];
    char line[32];
    snprintf(path, sizeof path, "%s/%s/energy_uj", root, zone);
    snprintf(line, sizeof line, "%" PRIu64 "\n", energy_uj);
    put_file(path, line);
}

static inline void fake_zone(const char *root, const char *zone, const char *name,
                             uint64_t range_uj) {
    char path[256];
    char line[64];
    snprintf(path, sizeof path, "%s/%s", root, zone);
    if (mkdir(path, 0755) != 0) abort();
    snprintf(path, sizeof path, "%s/%s/name", root, zone);
    snprintf(line, sizeof line, "%s\n", name);
    put_file(path, line);
    snprintf(path, sizeof path, "%s/%s/max_energy_range_uj", root, zone);
    snprintf(line, sizeof line, "%" PRIu64 "\n", range_uj);
    put_file(path, line);
    fake_counter(root, zone, 0);
}

#define FAKE_RANGE_UJ UINT64_C(262143328850)
#define FAKE_DRAM_ZONE "intel-rapl:1/intel-rapl:1:1"

/* Creates two packages, the second with DRAM, and a board and cores, which are neither. */
static inline void fake_machine(const char *root) {
    fake_zone(root, "intel-rapl:0", "package-0", FAKE_RANGE_UJ);
    fake_zone(root, "intel-rapl:0/intel-rapl:0:0", "core", FAKE_RANGE_UJ);
    fake_zone(root, "intel-rapl:1", "package-1", FAKE_RANGE_UJ);
    fake_zone(root, "intel-rapl:1/intel-rapl:1:0", "uncore", FAKE_RANGE_UJ);
    fake_zone(root, FAKE_DRAM_ZONE, "dram", 65712999613);
    fake_zone(root, "intel-rapl:2", "psys", FAKE_RANGE_UJ);
}

#endif
