/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the cost of an energy window: begin and end in Harpe itself (with counters that answer
 * at once), and with the driver library that is present (that of the emulator, through
 * HARPE_NVML_LIBRARY). */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "monitor/monitor.h"

enum { ROUNDS = 20, WINDOWS = 20000, DRIVER_WINDOWS = 2000 };

/* No new round begins after this time, because a driver may need a millisecond for a read. */
static const int64_t rounds_end_ns = 2000000000;

static int one(void *user) {
    (void)user;
    return 1;
}

static int64_t no_clock(void *user) {
    (void)user;
    return 0;
}

static harpe_status no_energy(void *user, int gpu, uint64_t *energy_mj, harpe_error *error) {
    (void)gpu, (void)error;
    *energy_mj = (*(uint64_t *)user)++;
    return HARPE_OK;
}

static harpe_status no_power(void *user, int gpu, uint32_t *power_mw, harpe_error *error) {
    (void)user, (void)gpu, (void)error;
    *power_mw = 0;
    return HARPE_OK;
}

static void pass_window(harpe_monitor *monitor) {
    harpe_window_measurement measurement = {0};
    if (harpe_monitor_begin(monitor, "step", false, NULL) != HARPE_OK ||
        harpe_monitor_end(monitor, "step", false, &measurement, NULL) != HARPE_OK) {
        fputs("a window failed\n", stderr);
        exit(1);
    }
    harpe_window_measurement_clear(&measurement);
}

/* Returns the best of several rounds. The difference from the others is the work of other programs.
 */
static double best_window_us(harpe_monitor *monitor, int windows) {
    double best_us = 1e9;
    int64_t end_ns = harpe_clock_ns() + rounds_end_ns;
    for (int round = 0; round < ROUNDS && harpe_clock_ns() < end_ns; round++) {
        int64_t start_ns = harpe_clock_ns();
        for (int i = 0; i < windows; i++)
            pass_window(monitor);
        double window_us = (double)(harpe_clock_ns() - start_ns) / 1e3 / windows;
        best_us = window_us < best_us ? window_us : best_us;
    }
    return best_us;
}

static void read_once(harpe_gpus *gpus, bool is_sampled) {
    uint64_t energy_mj = 0;
    uint32_t power_mw = 0;
    if (is_sampled)
        (void)harpe_gpu_instant_power(gpus, 0, &power_mw, NULL);
    else
        (void)harpe_gpu_total_energy(gpus, 0, &energy_mj, NULL);
}

/* Times the reads that a window makes twice: the energy counter, or the power if there is no
 * counter. */
static double best_read_us(harpe_gpus *gpus, bool is_sampled) {
    double best_us = 1e9;
    int64_t end_ns = harpe_clock_ns() + rounds_end_ns;
    for (int round = 0; round < ROUNDS && harpe_clock_ns() < end_ns; round++) {
        int64_t start_ns = harpe_clock_ns();
        for (int i = 0; i < DRIVER_WINDOWS; i++)
            read_once(gpus, is_sampled);
        double read_us = (double)(harpe_clock_ns() - start_ns) / 1e3 / DRIVER_WINDOWS;
        best_us = read_us < best_us ? read_us : best_us;
    }
    return best_us;
}

static int with_driver(void) {
    harpe_error error;
    harpe_gpus *gpus = NULL;
    harpe_monitor *monitor = NULL;
    if (harpe_gpus_open(NULL, &gpus, &error) != HARPE_OK) {
        printf("with a driver         not measured: %s\n", error.message);
        return 0;
    }
    int first = 0;
    harpe_monitor_options options = {.gpus = gpus, .gpu_indices = &first, .gpu_count = 1};
    int result = 1;
    if (harpe_monitor_new(&options, &monitor, &error) != HARPE_OK) {
        fprintf(stderr, "%s\n", error.message);
        goto done;
    }
    bool is_sampled = harpe_monitor_is_sampled(monitor);
    double read_us = best_read_us(gpus, is_sampled);
    double window_us = best_window_us(monitor, DRIVER_WINDOWS);
    printf("with %-16s %8.3f us a window, %.3f us a %s read%s\n", harpe_gpus_backend_name(gpus),
           window_us, read_us, is_sampled ? "power" : "counter",
           harpe_gpus_are_emulated(gpus) ? " (emulated)" : "");
    result = 0;
done:
    harpe_monitor_free(monitor);
    harpe_gpus_close(gpus);
    return result;
}

int main(void) {
    uint64_t counter = 0;
    harpe_energy_source source = {&counter, one, no_clock, no_energy, no_power, NULL};
    harpe_monitor_options options = {0};
    harpe_monitor *monitor = NULL;
    if (harpe_monitor_new_on(&options, &source, &monitor, NULL) != HARPE_OK) return 1;
    printf("Harpe itself          %8.3f us a window (begin + end, one GPU)\n",
           best_window_us(monitor, WINDOWS));
    harpe_monitor_free(monitor);
    return with_driver();
}
