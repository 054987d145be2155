/* SPDX-License-Identifier: Apache-2.0 */
/* Families of jobs whose times break the law that an exploration assumes: a lower clock takes no
 * less time, and no more than the ratio of the clocks. Times that were measured on GPUs break it a
 * little. Part of explored_job.h. */
#ifndef HARPE_TESTS_SERVER_EXPLORED_LAW_H
#define HARPE_TESTS_SERVER_EXPLORED_LAW_H

#include <string.h>

#include <harpe/profile.h>

#include "explored_gpu.h"

typedef enum explored_law_kind {
    EXPLORED_LAWFUL,
    EXPLORED_VARIED,   /* each clock's time varies by itself */
    EXPLORED_STEPPED,  /* neighbouring clocks take the same time, and then it jumps */
    EXPLORED_WAVY,     /* the time rises and falls over the clock */
    EXPLORED_STEEP,    /* below a clock, the time rises faster than the clock falls */
    EXPLORED_OUTLYING, /* some clocks take much more or much less time */
    EXPLORED_LAWS
} explored_law_kind;

typedef struct explored_law {
    explored_law_kind kind;
    double amount;  /* 0.01: times differ from the law by about 1 % */
    bool is_shared; /* all stages differ at the same clocks */
} explored_law;

static const char *const explored_law_names[EXPLORED_LAWS] = {"lawful", "varied", "stepped",
                                                              "wavy",   "steep",  "outlying"};

/* What one instruction draws. */
typedef struct explored_bend {
    explored_law law;
    uint64_t random;
    double knee, phase, period;
} explored_bend;

static inline explored_bend explored_bend_of(explored_law law, uint64_t seed) {
    explored_bend bend = {.law = law, .random = seed};
    bend.knee = explored_draw_uniform(&bend.random, 0.7, 0.98);
    bend.phase = explored_draw_uniform(&bend.random, 0, 6.28);
    bend.period = explored_draw_uniform(&bend.random, 2, 8);
    return bend;
}

/* Returns the clock whose time a clock has: the first of its group. */
static inline size_t explored_step_of(const explored_bend *bend, const harpe_profile_point *points,
                                      size_t c) {
    double width = 1 + 3 * bend->law.amount;
    size_t first = 0;
    for (size_t i = 1; i <= c; i++)
        if (points[first].frequency_mhz > width * points[i].frequency_mhz) first = i;
    return first;
}

/* Returns the time of a clock divided by its time without the break. */
static inline double explored_bend_at(explored_bend *bend, const harpe_profile_point *points,
                                      size_t c) {
    double x = (double)points[c].frequency_mhz / points[0].frequency_mhz, a = bend->law.amount;
    switch (bend->law.kind) {
    case EXPLORED_VARIED: return 1 + a * explored_draw_normal(&bend->random);
    case EXPLORED_STEPPED:
        return points[explored_step_of(bend, points, c)].time_s / points[c].time_s;
    case EXPLORED_WAVY: return 1 + a * sin(bend->phase + 6.2832 * (double)c / bend->period);
    case EXPLORED_STEEP: return x < bend->knee ? pow(bend->knee / x, 5 * a) : 1;
    case EXPLORED_OUTLYING: {
        double chance = explored_draw_uniform(&bend->random, 0, 1);
        double size = a * explored_draw_uniform(&bend->random, 2, 5);
        return chance < 0.08 ? 1 + size : chance < 0.12 ? 1 - size : 1;
    }
    default: return 1;
    }
}

/* Makes the profile of a job that breaks the law. The power of each clock is kept. The caller frees
 * both profiles. */
static inline harpe_status explored_break_law(const harpe_profile *lawful, explored_law law,
                                              uint64_t seed, harpe_profile **out,
                                              harpe_error *error) {
    size_t entries = harpe_profile_entry_count(lawful), count = 0;
    harpe_measurement *rows = calloc(entries * EXPLORED_CLOCKS_MAX, sizeof *rows);
    if (!rows) abort();
    for (size_t e = 0; e < entries; e++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(lawful, e);
        uint64_t own = seed * 31 + (entry->instruction[0] == 'f') + 2 * (uint64_t)entry->stage;
        if (law.is_shared) own = seed * 31;
        explored_bend bend = explored_bend_of(law, own * 7919);
        for (size_t c = 0; c < entry->point_count; c++) {
            const harpe_profile_point *point = &entry->points[c];
            double factor = explored_bend_at(&bend, entry->points, c);
            rows[count++] = (harpe_measurement){.stage = entry->stage,
                                                .rank = -1,
                                                .instruction = entry->instruction,
                                                .frequency_mhz = point->frequency_mhz,
                                                .time_s = point->time_s * factor,
                                                .energy_j = point->energy_j * factor,
                                                .gpu_count = 1};
        }
    }
    harpe_status status = harpe_profile_new(rows, count, out, error);
    free(rows);
    return status;
}

/* Draws how a job breaks the law. */
static inline explored_law explored_any_law(uint64_t seed) {
    uint64_t random = seed * 104729 + 5;
    explored_law law = {.kind = (explored_law_kind)(EXPLORED_VARIED + seed % (EXPLORED_LAWS - 1))};
    law.amount = explored_draw_uniform(&random, 0.005, 0.03);
    law.is_shared = explored_draw_uniform(&random, 0, 1) < 0.5;
    return law;
}

#endif
