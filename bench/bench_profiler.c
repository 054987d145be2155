/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the cost of the instruction profiler for the training thread: the begin and the end of
 * an instruction, while the profiler's thread runs. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <harpe/instruction_profiler.h>

#include "base/clock.h"
#include "client/profiler_internal.h"

enum { STEPS = 400, INSTRUCTIONS = 64, CALLS = 2 * STEPS * INSTRUCTIONS };

static int64_t call_ns[CALLS];

static int one(void *user) {
    (void)user;
    return 1;
}

static int64_t now(void *user) {
    (void)user;
    return harpe_clock_ns();
}

/* A source of 300 W whose value changes every 50 ms. */
static harpe_status energy(void *user, int gpu, uint64_t *energy_mj, harpe_error *error) {
    (void)user, (void)gpu, (void)error;
    *energy_mj = (uint64_t)(harpe_clock_ns() / 50000000 * 15000);
    return HARPE_OK;
}

static harpe_status power(void *user, int gpu, uint32_t *power_mw, harpe_error *error) {
    (void)user, (void)gpu, (void)error;
    *power_mw = 300000;
    return HARPE_OK;
}

static int compare(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* Runs a step with other work between the calls, as in training, so that the caches do not stay
 * warm. */
static int64_t *pass_step(harpe_instruction_profiler *profiler, int64_t *call) {
    static volatile char memory[1 << 16];
    static const struct timespec moment = {.tv_nsec = 2000000};
    harpe_instruction_profiler_begin_step(profiler, 0);
    for (int i = 0; i < INSTRUCTIONS; i++) {
        int64_t start_ns = harpe_clock_ns();
        harpe_instruction_profiler_begin(profiler, i % 2 ? "backward" : "forward", 1410 - i);
        *call++ = harpe_clock_ns() - start_ns;
        for (size_t k = 0; k < sizeof memory; k += 64)
            memory[k]++;
        start_ns = harpe_clock_ns();
        harpe_instruction_profiler_end(profiler);
        *call++ = harpe_clock_ns() - start_ns;
    }
    harpe_instruction_profiler_end_step(profiler);
    nanosleep(&moment, NULL);
    return call;
}

int main(void) {
    harpe_energy_source source = {
        .count = one, .clock_ns = now, .energy_mj = energy, .power_mw = power};
    harpe_instruction_profiler_options options = {0};
    harpe_instruction_profiler *profiler = NULL;
    harpe_error error;
    if (harpe_profiler_new_on(&options, &source, true, &profiler, &error) != HARPE_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    int64_t *call = call_ns;
    for (int i = 0; i < STEPS; i++)
        call = pass_step(profiler, call);
    int64_t taken_ns = harpe_clock_ns();
    harpe_profiling_result result = {0};
    size_t steps = harpe_instruction_profiler_step_count(profiler, 0);
    bool is_taken =
        harpe_instruction_profiler_take(profiler, 0, steps, 0, &result, &error) == HARPE_OK;
    taken_ns = harpe_clock_ns() - taken_ns;
    harpe_profiling_result_free(&result);
    harpe_instruction_profiler_free(profiler);
    qsort(call_ns, CALLS, sizeof call_ns[0], compare);
    printf("begin or end of an instruction: median %lld ns, p99 %lld ns, p99.9 %lld ns, most %lld "
           "ns (%d calls; two readings of the clock included)\n",
           (long long)call_ns[CALLS / 2], (long long)call_ns[CALLS / 100 * 99],
           (long long)call_ns[CALLS / 1000 * 999], (long long)call_ns[CALLS - 1], CALLS);
    if (is_taken) {
        printf("take: %.2f ms for %zu steps of %d instructions, %d unknowns\n",
               (double)taken_ns * 1e-6, steps, INSTRUCTIONS, INSTRUCTIONS + 2);
    }
    return is_taken ? 0 : 1;
}
