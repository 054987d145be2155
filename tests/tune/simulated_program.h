/* SPDX-License-Identifier: Apache-2.0 */
/* A program on GPUs in virtual time, for the chooser: its laws of time and power, noise, outliers,
 * drift and phases, and what a chooser makes of it. The laws are known, so the best setting is. */
#ifndef HARPE_TESTS_TUNE_SIMULATED_PROGRAM_H
#define HARPE_TESTS_TUNE_SIMULATED_PROGRAM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tune/chooser.h"

enum { LAW_POINTS_MAX = 80, PROGRAM_PHASES_MAX = 3, CLOCKS_MAX = 160, MINUTE_BINS = 240 };

/* Time of a step and power at a clock, against the highest one, either from points or from a law:
 * time = max(1, share * (knee / clock) + 1 - share), with knee and clock as shares of the highest
 * clock; power = fixed + (1 - fixed) * clock^exponent. Above `throttled`, a share of the highest
 * clock, the power limit holds the clock. */
typedef struct law {
    double step_s, power_w;
    double knee, share, fixed, exponent, throttled;
    size_t points; /* > 0: the law is these points, with lines between them */
    double mhz[LAW_POINTS_MAX], time[LAW_POINTS_MAX], power[LAW_POINTS_MAX];
    double bump_mhz, bump; /* odd: slower by the share `bump` within 3 % of this clock */
} law;

typedef struct program {
    uint64_t random;
    law laws[PROGRAM_PHASES_MAX];
    int phases;
    double phase_s; /* time in a phase; 0: one phase */
    double noise;   /* standard deviation of a step's time, share */
    double energy_noise;
    double stall_share, stall_s; /* of steps that take longer: checkpoints, late data */
    double drift, drift_s;       /* share and period of a slow change of all times */
    int cycle;                   /* > 0: each so many steps, one takes twice as long */
    bool is_odd;                 /* breaks what the chooser assumes */
    double settle_s;             /* until a new clock is in force */
    double late_share;           /* of slices: the clock comes 0.3 s too late, unnoticed */
    int stuck_mhz;               /* > 0: lower clocks are not held; that ends the tuning */
    bool was_cut;                /* the last slice ended within a step */
    bool has_stopped;            /* the tuning; the GPU is at its highest clock */
    bool ignores;                /* no clock is held, and nobody sees it */
    double tick_s;               /* of the energy counter */
    double poll_s, close_s; /* between polls, and near a slice's end; 0: marks show the steps */
    /* State: */
    double now_s, energy_j, left; /* left: of the step that runs, share */
    double counted_j;             /* by the GPU's counter */
    double step_factor, stall_left_s, rise;
    long steps;
    double needed_s[MINUTE_BINS],
        spent_s[MINUTE_BINS]; /* the last minute in quarters of a second */
    double worst_minute, needed_total_s;
    double highest_total_j; /* of the same work at the highest clock */
} program;

static inline double random_share(program *of) {
    uint64_t z = (of->random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static inline double random_between(program *of, double low, double high) {
    return low + (high - low) * random_share(of);
}

static inline double random_normal(program *of) {
    double radius = sqrt(-2 * log(1 - random_share(of)));
    return radius * cos(6.283185307179586 * random_share(of));
}

static inline double at_point(const law *of, const double *values, double mhz) {
    size_t i = 1;
    while (i + 1 < of->points && of->mhz[i] > mhz)
        i++;
    double share = (of->mhz[i - 1] - mhz) / (of->mhz[i - 1] - of->mhz[i]);
    return values[i - 1] + fmin(1, fmax(0, share)) * (values[i] - values[i - 1]);
}

/* Time of a step at a clock, against that at the highest clock. */
static inline double law_time(const law *of, double mhz, double highest_mhz) {
    if (of->points > 0) return at_point(of, of->time, mhz);
    double clock = fmin(mhz / highest_mhz, of->throttled);
    double time = fmax(1, of->share * of->knee / clock + 1 - of->share);
    double top = fmax(1, of->share * of->knee / of->throttled + 1 - of->share);
    if (fabs(mhz / of->bump_mhz - 1) < 0.03) time *= 1 + of->bump;
    return time / top;
}

static inline double law_power(const law *of, double mhz, double highest_mhz) {
    if (of->points > 0) return at_point(of, of->power, mhz);
    double clock = fmin(mhz / highest_mhz, of->throttled);
    double top = of->fixed + (1 - of->fixed) * pow(of->throttled, of->exponent);
    return (of->fixed + (1 - of->fixed) * pow(clock, of->exponent)) / top;
}

/* Returns the highest clock, at most `mhz`, at which the program draws no more than a limit. */
static inline int limited_clock(const law *of, int mhz, int highest_mhz, int limit_w) {
    while (mhz > 210 && of->power_w * law_power(of, mhz, highest_mhz) > limit_w)
        mhz -= 5;
    return mhz;
}

static inline int phase_of(const program *of) {
    if (of->phases < 2) return 0;
    return (int)(fmod(of->now_s / of->phase_s, of->phases));
}

/* ---- Running --------------------------------------------------------------------------------- */

static inline void draw_step(program *of) {
    of->left = 1;
    of->steps++;
    of->step_factor = exp(of->noise * random_normal(of));
    if (of->cycle > 0 && of->steps % of->cycle == 0) of->step_factor *= 2;
    if (random_share(of) < of->stall_share) of->stall_left_s = of->stall_s;
}

/* Runs for `time_s`, or until the step ends. Returns true if the step has ended. */
static inline bool run_program(program *of, double time_s, int mhz, int highest_mhz) {
    const law *here = &of->laws[phase_of(of)];
    bool is_stalled = of->stall_left_s > 0;
    double ratio = is_stalled ? 1 : law_time(here, mhz, highest_mhz);
    double drift = of->drift_s > 0 ? 1 + of->drift * sin(6.2832 * of->now_s / of->drift_s) : 1;
    double whole_s = here->step_s * drift * ratio * of->step_factor;
    double run_s = fmin(time_s, is_stalled ? of->stall_left_s : of->left * whole_s);
    bool has_ended = !is_stalled && run_s >= of->left * whole_s;
    if (is_stalled)
        of->stall_left_s -= run_s;
    else
        of->left -= run_s / whole_s;
    double power_w = here->power_w * (is_stalled ? 0.3 : law_power(here, mhz, highest_mhz));
    power_w *= 1 + of->energy_noise * random_normal(of);
    double tick_s = of->tick_s > 0 ? of->tick_s : 1e-3;
    double since_tick_s = fmod(of->now_s + run_s, tick_s);
    of->energy_j += run_s * power_w;
    if (since_tick_s < run_s) of->counted_j = of->energy_j - since_tick_s * power_w;
    of->highest_total_j += run_s / ratio * here->power_w * (is_stalled ? 0.3 : 1);
    for (double rest_s = run_s; rest_s > 1e-12;) {
        double piece_s = fmin(rest_s, 0.25 - fmod(of->now_s, 0.25) + 1e-9);
        size_t bin = (size_t)(of->now_s * 4) % MINUTE_BINS;
        of->spent_s[bin] += piece_s;
        of->needed_s[bin] += piece_s / ratio;
        of->now_s += piece_s;
        rest_s -= piece_s;
        size_t next = (size_t)(of->now_s * 4) % MINUTE_BINS;
        if (next == bin) continue;
        double spent_s = 0, needed_s = 0;
        for (size_t i = 0; i < MINUTE_BINS; i++) {
            spent_s += of->spent_s[i];
            needed_s += of->needed_s[i];
        }
        if (spent_s > 59) of->worst_minute = fmax(of->worst_minute, spent_s / needed_s - 1);
        of->spent_s[next] = of->needed_s[next] = 0;
    }
    if (has_ended) draw_step(of);
    return has_ended;
}

/* Runs until the next look. Returns the number of steps that have ended. */
static inline int run_until_look(program *of, double look_s, int mhz, int highest_mhz) {
    int ended = 0;
    for (double left_s = look_s; left_s > 1e-9;) {
        double begin_s = of->now_s;
        ended += run_program(of, left_s, mhz, highest_mhz);
        left_s -= of->now_s - begin_s;
        if (of->poll_s <= 0 && ended > 0) break; /* a mark wakes the reader */
    }
    if (ended > 0) of->rise = of->poll_s > 0 && of->rise > 0 ? 0.9 * of->rise + 0.1 * ended : ended;
    return ended;
}

static inline double look_after_s(const program *of, double left_s) {
    if (of->poll_s <= 0) return 0.1;
    return left_s < 1e-6 ? of->close_s : fmin(left_s, of->poll_s);
}

/* Measures the chooser's order and tells it the result. */
static inline void run_slice(program *of, harpe_chooser *chooser, int *current_mhz,
                             int highest_mhz) {
    if (of->has_stopped) {
        run_program(of, 1, highest_mhz, highest_mhz);
        return;
    }
    harpe_tune_order order = harpe_chooser_next(chooser);
    int mhz = order.setting.value[HARPE_TUNE_CLOCK];
    if (mhz == 0) mhz = highest_mhz;
    int limit_w = order.setting.value[HARPE_TUNE_LIMIT];
    if (limit_w > 0) mhz = limited_clock(&of->laws[phase_of(of)], mhz, highest_mhz, limit_w);
    if (of->stuck_mhz > 0 && mhz < of->stuck_mhz) {
        run_program(of, 0.1, of->stuck_mhz, highest_mhz);
        of->has_stopped = true;
        return;
    }
    int held_mhz = of->ignores ? highest_mhz : mhz;
    int last_mhz = *current_mhz;
    /* A slice begins with a step: that of the change, or, if a slice was cut, the next one. */
    if (of->was_cut)
        while (run_until_look(of, look_after_s(of, 0), held_mhz, highest_mhz) == 0) {
        }
    of->was_cut = true;
    double begin_s = of->now_s, begin_j = of->counted_j;
    harpe_tune_slice slice = {.work = 0};
    if (mhz != last_mhz) {
        *current_mhz = mhz;
        slice.late_s = of->settle_s;
        double late_s = of->settle_s + (random_share(of) < of->late_share ? 0.3 : 0);
        while (of->now_s - begin_s < late_s)
            slice.work += run_program(of, begin_s + late_s - of->now_s + 1e-9,
                                      of->ignores ? highest_mhz : last_mhz, highest_mhz);
    }
    double changed_s = begin_s;
    while (of->was_cut) {
        double left_s = begin_s + order.time_s - of->now_s;
        double look_s = look_after_s(of, left_s);
        bool is_close = of->poll_s <= 0 || left_s < 1e-6;
        int ended = run_until_look(of, look_s, held_mhz, highest_mhz);
        slice.work += ended;
        slice.blur_s = of->poll_s > 0 ? look_s : 0;
        if (ended > 0) changed_s = of->now_s;
        slice.time_s = of->now_s - begin_s;
        slice.rest_s = of->now_s - changed_s;
        slice.energy_j = of->counted_j - begin_j;
        slice.grain = of->rise > 0 ? of->rise : 1;
        if (ended > 0 && is_close && slice.work >= order.work && slice.time_s >= order.time_s)
            of->was_cut = false;
        else if (harpe_chooser_is_too_slow(chooser, &slice))
            break;
    }
    harpe_chooser_take(chooser, &slice);
}

/* ---- The best setting ------------------------------------------------------------------------ */

static inline double energy_ratio(const law *of, double mhz, double highest_mhz) {
    return law_time(of, mhz, highest_mhz) * law_power(of, mhz, highest_mhz);
}

/* Returns the clock of least energy among those that are slow enough by the law. */
static inline int best_clock(const law *of, const int *clocks, size_t count, double max_slowdown) {
    int best = clocks[0];
    for (size_t i = 1; i < count; i++) {
        if (law_time(of, clocks[i], clocks[0]) > 1 + max_slowdown) continue;
        if (energy_ratio(of, clocks[i], clocks[0]) < energy_ratio(of, best, clocks[0]))
            best = clocks[i];
    }
    return best;
}

/* ---- Random programs ------------------------------------------------------------------------- */

static inline law random_law(program *of) {
    law made = {.throttled = 1,
                .step_s = 0.005 * pow(4000, random_share(of)),
                .power_w = random_between(of, 100, 250)};
    double kind = random_share(of);
    made.share = kind < 0.4 ? random_between(of, 0.85, 1) : random_between(of, 0.2, 0.9);
    made.knee = kind < 0.4   ? random_between(of, 0.95, 1)   /* computing */
                : kind < 0.7 ? random_between(of, 0.5, 0.95) /* memory */
                             : random_between(of, 0.2, 0.6); /* launches */
    made.fixed = random_between(of, 0.2, 0.6);
    made.exponent = random_between(of, 1, 3);
    if (random_share(of) < 0.3) made.throttled = random_between(of, 0.75, 1);
    return made;
}

/* Makes a program from its seed: `odd` of them break what the chooser assumes. */
static inline program random_program(uint64_t seed, double odd) {
    program made = {.random = seed * 7919 + 1, .phases = 1, .tick_s = 0.02};
    made.laws[0] = random_law(&made);
    made.noise = 0.005 * pow(10, random_share(&made));
    made.energy_noise = random_between(&made, 0, 0.02);
    made.tick_s = random_between(&made, 0.02, 0.1);
    made.settle_s = random_between(&made, 0.01, 0.2);
    if (random_share(&made) < 0.3) {
        made.drift = random_between(&made, 0, 0.1);
        made.drift_s = random_between(&made, 600, 7200);
    }
    if (random_share(&made) < 0.3) {
        made.stall_share = made.laws[0].step_s / random_between(&made, 20, 600);
        made.stall_s = random_between(&made, 0.2, 5);
    }
    if (random_share(&made) < 0.2) {
        made.phases = 2 + (random_share(&made) < 0.3);
        made.phase_s = 5 * pow(120, random_share(&made));
        for (int i = 1; i < made.phases; i++) {
            made.laws[i] = random_law(&made);
            made.laws[i].step_s = made.laws[0].step_s * random_between(&made, 0.3, 3);
        }
    }
    made.is_odd = random_share(&made) < odd;
    if (!made.is_odd) return made;
    double kind = random_share(&made);
    if (kind < 0.15)
        made.ignores = true;
    else if (kind < 0.3)
        made.stuck_mhz = (int)random_between(&made, 700, 1300);
    else if (kind < 0.5)
        made.late_share = random_between(&made, 0.05, 0.5);
    else if (kind < 0.7)
        made.cycle = (int)random_between(&made, 3, 30);
    else {
        made.laws[0].bump_mhz = random_between(&made, 600, 1400);
        made.laws[0].bump = random_between(&made, 0.05, 0.3);
    }
    return made;
}

#endif
