/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the monitor that other parts of this project need beyond the public API: energy
 * counters, CPU energy, a background thread, and monitors over any source. */
#ifndef HARPE_MONITOR_MONITOR_H
#define HARPE_MONITOR_MONITOR_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/gpu.h>
#include <harpe/monitor.h>
#include <harpe/status.h>

#include "base/possible.h"

/* ---- Energy counters ------------------------------------------------------------------------- */

/* Energy counters of GPUs, and the source from which counters are read. A source is a small table
 * of functions over harpe_gpus, so that tests can replace GPUs and time by scripts. Indices of GPUs
 * are those of the training process. A source keeps no state and converts no units.
 *
 * Each value of a counter is judged. A value is impossible if it is lower than the last one, or if
 * the GPU cannot use so much energy in the time since then. An impossible value is read again. If
 * the next values are impossible too, the counter has restarted or jumped. This is a break: the
 * energy that was used around it is not known. */

/* All functions may be called from several threads at once. */
typedef struct harpe_energy_source {
    void *user;
    int (*count)(void *user);
    int64_t (*clock_ns)(void *user); /* monotonic, in the time of the GPUs */
    harpe_status (*energy_mj)(void *user, int gpu, uint64_t *energy_mj, harpe_error *error);
    harpe_status (*power_mw)(void *user, int gpu, uint32_t *power_mw, harpe_error *error);
    double (*highest_w)(void *user, int gpu); /* NULL: HARPE_GPU_HIGHEST_W */
} harpe_energy_source;

/* Returns a power that the GPU never draws for as long as a counter shows. */
double harpe_energy_source_highest_w(const harpe_energy_source *source, int gpu);

/* Returns the source of real GPUs. `gpus` NULL: no GPUs and CLOCK_MONOTONIC. */
harpe_energy_source harpe_energy_source_of_gpus(harpe_gpus *gpus);

/* Returns the length of the pause after sample number `count`, in periods: 0.5 to 1.5, spread
 * evenly. Training steps are periodic, and samples with a fixed period could always hit the same
 * part of a step. */
double harpe_sample_periods(uint64_t count);

/* The past of a counter. Initialise with zeros, except the lock. */
typedef struct harpe_counter {
    pthread_mutex_t lock; /* guards all members below; not held during driver calls */
    struct harpe_counter_past {
        bool is_known;
        uint64_t latest_mj;   /* the highest value since the last break */
        int64_t moved_ns;     /* when this value was first read */
        uint64_t anchor_mj;   /* a value of some seconds ago, and its time. They bound the mean */
        int64_t anchor_ns;    /* power if the times between two readings are too short for this */
        uint64_t left_out_mj; /* added to each value, modulo 2^64, so that breaks do not count */
        unsigned breaks;
        uint64_t from_mj, to_mj; /* the values before and after the last break */
    } past;
} harpe_counter;

typedef struct harpe_counter_reading {
    uint64_t energy_mj; /* never falls; does not include the energy of breaks */
    unsigned breaks;    /* the number of breaks before this value */
} harpe_counter_reading;

/* Reads the counter of a GPU of the source. `now_ns` is the source's time, read before the call.
 * Several threads may call this function at once. */
harpe_status harpe_counter_read(harpe_counter *counter, const harpe_energy_source *source, int gpu,
                                int64_t now_ns, harpe_counter_reading *out, harpe_error *error);

/* Reads the counter of a GPU of `gpus`, and writes only the energy. */
harpe_status harpe_counter_read_energy(harpe_counter *counter, harpe_gpus *gpus, int gpu,
                                       uint64_t *energy_mj, harpe_error *error);

/* Fails with HARPE_DRIVER_ERROR, and says what the counter did at its last break. */
harpe_status harpe_counter_fail(harpe_counter *counter, int gpu, harpe_error *error);

/* ---- Background thread ----------------------------------------------------------------------- */

/* A background thread that calls a function repeatedly until it is stopped. The power sampler and
 * the check for RAPL wraps use it. */

typedef struct harpe_ticker harpe_ticker;

/* Calls `tick` at once, and then again after the number of ns that each call returned. The thread
 * takes no signals. */
harpe_status harpe_ticker_start(int64_t (*tick)(void *user), void *user, harpe_ticker **out,
                                harpe_error *error);
/* Waits for a running tick and frees the ticker. In a forked child, which has no thread, only frees
 * the ticker. */
void harpe_ticker_stop(harpe_ticker *ticker);
/* Returns false in a forked child, where the thread does not exist and locks may be held by a
 * thread that is gone. */
bool harpe_ticker_is_ours(const harpe_ticker *ticker);

/* ---- CPU energy ------------------------------------------------------------------------------ */

/* Reads the energy of CPU packages and their DRAM from the kernel's powercap tree (Intel and AMD
 * RAPL). Counters wrap after some minutes of full power. A thread wakes every few minutes, so no
 * wrap is missed. */

#define HARPE_RAPL_DEFAULT_PATH "/sys/class/powercap"
enum { HARPE_RAPL_PACKAGES_MAX = 64, HARPE_RAPL_NAME_SIZE = 32 };

typedef struct harpe_rapl harpe_rapl;

/* A reading in uJ since harpe_rapl_open, corrected for wraps. Restarts of a counter are counted. If
 * two readings have different counts of restarts, the energy between them is unknown. A counter
 * that has gone back has wrapped, but counts as restarted in two cases: max_energy_range_uj does
 * not tell where the counter wraps, or the wrap would be more energy than HARPE_CPU_HIGHEST_W
 * allows. A counter that has risen by more energy than HARPE_CPU_HIGHEST_W allows also counts as
 * restarted. */
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
/* Returns the number of zones that show the same counter as another zone. Such a counter is counted
 * once. */
size_t harpe_rapl_mirror_count(const harpe_rapl *rapl);
bool harpe_rapl_has_dram(const harpe_rapl *rapl, size_t package);

/* Reads all counters. Fails with HARPE_NOT_SUPPORTED in a forked child. Any thread may call this
 * function. */
harpe_status harpe_rapl_read(harpe_rapl *rapl, harpe_rapl_reading *reading, harpe_error *error);

/* ---- Monitors -------------------------------------------------------------------------------- */

/* Does what harpe_monitor_new does, but reads from `source` and ignores `options->gpus`. */
harpe_status harpe_monitor_new_on(const harpe_monitor_options *options,
                                  const harpe_energy_source *source, harpe_monitor **out,
                                  harpe_error *error);

size_t harpe_monitor_cpu_count(const harpe_monitor *monitor);
const char *harpe_monitor_cpu_name(const harpe_monitor *monitor, size_t cpu); /* "package-0" */
bool harpe_monitor_is_sampled(const harpe_monitor *monitor); /* true if a GPU has no counter */

/* Returns the measurement of the window so far. The window stays open. */
harpe_status harpe_monitor_peek(harpe_monitor *monitor, const char *name,
                                harpe_window_measurement *out, harpe_error *error);

#endif
