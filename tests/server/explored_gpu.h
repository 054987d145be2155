/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU in virtual time whose clock changes late, and the controller that measures this: requests
 * are carried out some time after they are made, a newer request replaces an older one, and the
 * controller learns how long changes take. Part of explored_job.h. */
#ifndef HARPE_TESTS_SERVER_EXPLORED_GPU_H
#define HARPE_TESTS_SERVER_EXPLORED_GPU_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "client/clock_shares.h"

enum { EXPLORED_CLOCKS_MAX = 96, EXPLORED_ASKS_MAX = 1 << 16 };

/* ---- Chance ---------------------------------------------------------------------------------- */

static inline double explored_draw_uniform(uint64_t *random, double from, double to) {
    uint64_t z = (*random += 0x9E3779B97F4A7C15U); /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return from + (to - from) * (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static inline double explored_draw_normal(uint64_t *random) {
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += explored_draw_uniform(random, 0, 1);
    return sum;
}

/* ---- The GPU --------------------------------------------------------------------------------- */

/* How long changes take. */
typedef struct explored_lateness {
    bool is_told; /* ranks report their clocks; otherwise changes are immediate */
    double latency_s[EXPLORED_CLOCKS_MAX]; /* medians, by target clock */
    double spread;                         /* of the logarithm of one change's latency */
    double tail_share, tail_factor;        /* some changes take up to so many times as long */
} explored_lateness;

typedef struct explored_gpu {
    explored_lateness late;
    uint64_t random;
    double now_s;         /* at the begin of the iteration, since the start */
    size_t clock, wanted; /* indices; SIZE_MAX: none yet */
    double at_s;          /* when `wanted` takes effect, in the iteration */
    harpe_clock_ask *asks;
    size_t ask_count;
    harpe_switch_table table; /* as the controller learns it */
    harpe_switch_learning learning;
} explored_gpu;

static inline bool explored_is_late(const explored_gpu *gpu) { return gpu->late.is_told; }

static inline void explored_gpu_init(explored_gpu *gpu, uint64_t seed) {
    gpu->random = seed;
    gpu->clock = gpu->wanted = SIZE_MAX;
    gpu->at_s = -INFINITY;
    gpu->asks = calloc(EXPLORED_ASKS_MAX, sizeof *gpu->asks);
    if (!gpu->asks) abort();
    harpe_switch_learning_start(&gpu->learning, &gpu->table);
}

static inline uint64_t explored_us(const explored_gpu *gpu, double at_s) {
    return (uint64_t)llround((gpu->now_s + at_s + 1) * 1e6);
}

/* A change is over. The controller has watched it, every half millisecond. */
static inline void explored_learn(explored_gpu *gpu, double at_s, int before_mhz) {
    uint64_t at_us = explored_us(gpu, at_s);
    const harpe_clock_ask *last = &gpu->asks[gpu->ask_count - 1];
    harpe_clock_ask newest[2] = {last[0], gpu->ask_count > 1 ? last[-1] : last[0]};
    size_t count = gpu->ask_count > 1 ? 2 : 1;
    if (at_us > last->asked_us + 500)
        harpe_switch_learning_sample(&gpu->learning, newest, count, at_us - 250,
                                     (uint32_t)before_mhz);
    harpe_switch_learning_sample(&gpu->learning, newest, count, at_us + 250, last->mhz);
}

/* Carries out the request that waits, if its time has come. */
static inline void explored_follow(explored_gpu *gpu, double now_s, const int *mhz) {
    if (gpu->at_s > now_s || gpu->clock == gpu->wanted) return;
    size_t before = gpu->clock;
    gpu->clock = gpu->wanted;
    if (before != SIZE_MAX && explored_is_late(gpu)) explored_learn(gpu, gpu->at_s, mhz[before]);
}

static inline void explored_ask(explored_gpu *gpu, size_t clock, double now_s, const int *mhz) {
    if (clock == gpu->wanted) return;
    double latency_s = gpu->late.latency_s[clock];
    latency_s *= exp(gpu->late.spread * explored_draw_normal(&gpu->random));
    if (explored_draw_uniform(&gpu->random, 0, 1) < gpu->late.tail_share)
        latency_s *= explored_draw_uniform(&gpu->random, 1, gpu->late.tail_factor);
    gpu->wanted = clock;
    gpu->at_s = gpu->clock == SIZE_MAX ? now_s : now_s + latency_s;
    if (gpu->ask_count == EXPLORED_ASKS_MAX) {
        gpu->ask_count /= 2;
        for (size_t i = 0; i < gpu->ask_count; i++)
            gpu->asks[i] = gpu->asks[gpu->ask_count + i];
    }
    gpu->asks[gpu->ask_count++] = (harpe_clock_ask){explored_us(gpu, now_s), (uint32_t)mhz[clock]};
}

/* What one instruction took. */
typedef struct explored_run {
    double time_s, energy_j;
} explored_run;

/* Runs an instruction that takes `at[clock]` at each clock. */
static inline explored_run explored_gpu_run(explored_gpu *gpu, size_t clock, double start_s,
                                            const explored_run *at, const int *mhz) {
    explored_follow(gpu, start_s, mhz);
    explored_ask(gpu, clock, start_s, mhz);
    explored_follow(gpu, start_s, mhz);
    const explored_run *old = &at[gpu->clock];
    double until_s = gpu->at_s - start_s;
    if (gpu->clock == gpu->wanted || until_s >= old->time_s) return *old;
    double share = until_s / old->time_s; /* of the work */
    explored_follow(gpu, gpu->at_s, mhz);
    const explored_run *new = &at[gpu->clock];
    return (explored_run){share * old->time_s + (1 - share) * new->time_s,
                          share * old->energy_j + (1 - share) * new->energy_j};
}

static inline void explored_gpu_end(explored_gpu *gpu, double iteration_s, const int *mhz) {
    explored_follow(gpu, iteration_s, mhz);
    gpu->at_s -= iteration_s;
    gpu->now_s += iteration_s;
}

/* ---- Its report ------------------------------------------------------------------------------ */

/* Writes the latencies that the controller has learnt. Returns their number. */
static inline size_t explored_latencies(const explored_gpu *gpu, harpe_clock_latency *out) {
    size_t count = 0;
    for (size_t i = 0; i < HARPE_SWITCH_TARGETS; i++) {
        harpe_switch_entry entry = harpe_switch_entry_at(&gpu->table, i);
        if (entry.mhz == 0) break;
        if (entry.samples >= 3)
            out[count++] =
                (harpe_clock_latency){(int)entry.mhz, 1e-6 * entry.median_us, 1e-6 * entry.p95_us};
    }
    return count;
}

#endif
