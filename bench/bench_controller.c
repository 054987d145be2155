/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the frequency controller: how long a call takes the training thread, how long a clock
 * request takes to reach the driver, and how much processor time the controller's process uses. Run
 * it under `harpe emulate`, on a machine with a free core. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <harpe/frequency_controller.h>

#include "base/clock.h"
#include "client/control.h"

enum { CALLS = 1000000, SPACED_CALLS = 20000, WRITES = 2000 };
#define SPACING_NS 200000
#define WRITE_SPACING_NS 2000000

static uint32_t took_ns[CALLS];

static int compare(const void *a, const void *b) {
    uint32_t one = *(const uint32_t *)a;
    uint32_t other = *(const uint32_t *)b;
    return (one > other) - (one < other);
}

/* Waits without sleeping. A training thread is also busy between two calls. */
static void spin_until(int64_t end_ns) {
    while (harpe_clock_ns() < end_ns) {
    }
}

/* Returns the processor time of the controller's process so far, in s; 0 if it cannot be read. */
static double process_cpu_s(const harpe_frequency_controller *controller) {
    char path[64];
    char line[1024] = "";
    unsigned long user = 0;
    unsigned long system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)atomic_load(&controller->process));
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    const char *fields = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    (void)fclose(file);
    if (!fields ||
        sscanf(fields, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", /* NOLINT */
               &user, &system) != 2)
        return 0;
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static harpe_frequency_controller *start(harpe_gpus *gpus, double dwell_s) {
    harpe_frequency_controller_options options = {.gpus = gpus, .minimum_dwell_s = dwell_s};
    harpe_frequency_controller *controller = NULL;
    harpe_error error;
    if (harpe_frequency_controller_start(&options, &controller, &error) != HARPE_OK) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    harpe_frequency_controller_set(controller, 1200); /* wakes the controller */
    spin_until(harpe_clock_ns() + 20000000);
    return controller;
}

static void print_row(const char *what, int calls) {
    qsort(took_ns, (size_t)calls, sizeof *took_ns, compare);
    printf("%-34s %8d  %6u %6u %7u %8u", what, calls, took_ns[calls / 2], took_ns[calls / 100 * 99],
           took_ns[calls / 1000 * 999], took_ns[calls - 1]);
}

/* Measures how long each of `calls` calls of set takes, and prints a row. If `controller` is NULL,
 * it measures two readings of the clock without a call between them. */
static void time_calls(const char *what, harpe_frequency_controller *controller, int calls,
                       bool is_changing, int64_t spacing_ns) {
    uint64_t wakes = controller ? atomic_load(&controller->slot->wakes) : 0;
    for (int i = 0; i < calls; i++) {
        if (spacing_ns > 0) spin_until(harpe_clock_ns() + spacing_ns);
        int mhz = is_changing ? 600 + 15 * (i % 40) : 1200;
        int64_t before_ns = harpe_clock_ns();
        if (controller) harpe_frequency_controller_set(controller, mhz);
        took_ns[i] = (uint32_t)(harpe_clock_ns() - before_ns);
    }
    print_row(what, calls);
    if (controller) printf("  %" PRIu64, atomic_load(&controller->slot->wakes) - wakes);
    printf("\n");
}

/* Measures the begin and the end of an instruction with a position, as for a GPU whose clock
 * changes late. The controller on a GPU that obeys at once resets wants_ends from time to time. */
static void time_positions(const char *what, harpe_frequency_controller *controller, int calls,
                           bool has_end) {
    uint64_t wakes = atomic_load(&controller->slot->wakes);
    for (int i = 0; i < calls; i++) {
        int mhz = 600 + 15 * (i % 40);
        atomic_store(&controller->slot->wants_ends, 1);
        if (has_end) harpe_controller_begin_instruction(controller, mhz, 1, (uint32_t)i % 64);
        int64_t before_ns = harpe_clock_ns();
        if (has_end)
            harpe_controller_end_instruction(controller);
        else
            harpe_controller_begin_instruction(controller, mhz, 1, (uint32_t)i % 64);
        took_ns[i] = (uint32_t)(harpe_clock_ns() - before_ns);
    }
    print_row(what, calls);
    printf("  %" PRIu64 "\n", atomic_load(&controller->slot->wakes) - wakes);
}

static void measure_calls(harpe_gpus *gpus) {
    harpe_frequency_controller *controller = start(gpus, 0);
    printf("ns on the training thread             calls  median    p99   p99.9      max  wakes\n");
    time_calls("the clock alone, read twice", NULL, CALLS, false, 0);
    time_calls("set, the same frequency", controller, CALLS, false, 0);
    time_calls("set, changing", controller, CALLS, true, 0);
    time_calls("set, the same, every 0.2 ms", controller, SPACED_CALLS, false, SPACING_NS);
    time_calls("set, changing, every 0.2 ms", controller, SPACED_CALLS, true, SPACING_NS);
    time_positions("begin at a position, changing", controller, CALLS, false);
    time_positions("end at a position", controller, CALLS, true);
    harpe_frequency_controller_stop(controller);
}

/* Sends `writes` clock requests, one every `spacing_ns`, and prints the time until the driver is
 * called and the controller's share of a core. */
static void measure_writes(const char *what, harpe_frequency_controller *controller, int writes,
                           int64_t spacing_ns) {
    double cpu_s = process_cpu_s(controller);
    int64_t start_ns = harpe_clock_ns();
    for (int i = 0; i < writes; i++) {
        harpe_frequency_controller_set(controller, 600 + 15 * (i % 40));
        spin_until(start_ns + (i + 1) * spacing_ns);
    }
    double real_s = (double)(harpe_clock_ns() - start_ns) * 1e-9;
    double share = (process_cpu_s(controller) - cpu_s) / real_s;
    harpe_frequency_controller_counts counts = harpe_frequency_controller_count(controller);
    printf("%s: %" PRIu64 " writes; from set to the driver call median %.1f us, p99 %.1f us, max "
           "%.1f us; %.1f %% of a core\n",
           what, counts.written, counts.latency_median_s * 1e6, counts.latency_p99_s * 1e6,
           counts.latency_maximum_s * 1e6, share * 100);
}

static void measure_controller(harpe_gpus *gpus) {
    harpe_frequency_controller *controller = start(gpus, -1);
    measure_writes("a clock request every 2 ms, no dwell time", controller, WRITES,
                   WRITE_SPACING_NS);
    harpe_frequency_controller_stop(controller);
    controller = start(gpus, 0);
    measure_writes("a clock request every 20 ms, dwell time of 10 ms", controller, WRITES / 10,
                   10 * (int64_t)WRITE_SPACING_NS);
    sleep(2); /* the controller stops polling */
    double cpu_s = process_cpu_s(controller);
    sleep(2);
    printf("no clock requests: %.1f %% of a core\n", (process_cpu_s(controller) - cpu_s) / 2 * 100);
    harpe_frequency_controller_stop(controller);
}

int main(void) {
    harpe_gpus *gpus = NULL;
    harpe_error error;
    if (harpe_gpus_open(NULL, &gpus, &error) != HARPE_OK) {
        printf("not measured: %s\n", error.message);
        return 0;
    }
    measure_calls(gpus);
    measure_controller(gpus);
    harpe_gpus_close(gpus);
    return 0;
}
