/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the chooser of `harpe tune` in virtual time. `bench/tune` starts it and prints tables.
 *
 *   bench_tune workloads [--grid MHZ] [--trials N] < POINTS    20 measured workloads
 *   bench_tune random [--trials N] [--odd SHARE] [--seed N]
 *   bench_tune phases [--trials N] [--phase SECONDS]
 *   bench_tune pairs [--trials N] [--phase SECONDS] < POINTS   two workloads in turns
 *
 * POINTS has a line "NAME STEP_S POWER_W COUNT", then COUNT lines "MHZ TIME POWER" with shares of
 * those at the highest clock. Prints one line of JSON for each trial. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "../tests/tune/simulated_program.h"

typedef struct outcome {
    const char *way;
    int mhz[PROGRAM_PHASES_MAX], best_mhz[PROGRAM_PHASES_MAX];
    double slowdown[PROGRAM_PHASES_MAX], saved[PROGRAM_PHASES_MAX], best[PROGRAM_PHASES_MAX];
    int trials;
    double settled_s;
    harpe_tuning_report report;
} outcome;

static int grid(int *clocks, int highest, int lowest, int step) {
    int count = 0;
    for (int mhz = highest; mhz >= lowest && count < CLOCKS_MAX; mhz -= step)
        clocks[count++] = mhz;
    return count;
}

/* Runs a program with a chooser for a time, and writes what was chosen in each of its phases. */
static outcome run_trial(program *of, const int *clocks, size_t count, double run_s,
                         double max_slowdown) {
    harpe_chooser_options options = {
        .range[HARPE_TUNE_CLOCK] = {clocks, count},
        .max_slowdown = max_slowdown,
    };
    harpe_chooser *chooser = NULL;
    harpe_error error;
    if (harpe_chooser_new(&options, &chooser, &error) != HARPE_OK) {
        fprintf(stderr, "bench_tune: %s\n", error.message);
        exit(1);
    }
    outcome out = {.way = "harpe tune"};
    static double held_s[PROGRAM_PHASES_MAX][CLOCKS_MAX]; /* in the last third */
    memset(held_s, 0, sizeof held_s);
    int current = clocks[0];
    draw_step(of);
    while (of->now_s < run_s) {
        int phase = phase_of(of);
        double begin_s = of->now_s;
        run_slice(of, chooser, &current, clocks[0]);
        harpe_tuning_report report = {.phase = HARPE_TUNING_WAITING};
        harpe_chooser_report(chooser, &report);
        if (report.phase == HARPE_TUNING_SETTLED && out.settled_s == 0) out.settled_s = of->now_s;
        if (of->now_s < run_s * 2 / 3) continue;
        for (size_t i = 0; i < count; i++)
            if (clocks[i] == report.clock_mhz) held_s[phase][i] += of->now_s - begin_s;
    }
    for (int phase = 0; phase < of->phases; phase++)
        for (size_t i = 0, most = 0; i < count; i++)
            if (held_s[phase][i] > held_s[phase][most] || i == 0) {
                most = i;
                out.mhz[phase] = clocks[i];
            }
    harpe_chooser_report(chooser, &out.report);
    out.trials = out.report.trials;
    for (int i = 0; i < of->phases; i++) {
        const law *here = &of->laws[i];
        if (out.report.phase == HARPE_TUNING_UNMEASURABLE || out.mhz[i] == 0)
            out.mhz[i] = clocks[0];
        if (of->ignores || of->has_stopped) out.mhz[i] = clocks[0];
        out.best_mhz[i] = of->ignores ? clocks[0] : best_clock(here, clocks, count, max_slowdown);
        out.slowdown[i] = law_time(here, out.mhz[i], clocks[0]) - 1;
        out.saved[i] = 1 - energy_ratio(here, out.mhz[i], clocks[0]);
        out.best[i] = 1 - energy_ratio(here, out.best_mhz[i], clocks[0]);
    }
    harpe_chooser_free(chooser);
    return out;
}

static void print_outcome(const char *name, uint64_t seed, const program *of, const outcome *out) {
    printf(
        "{\"way\": \"%s\", \"name\": \"%s\", \"seed\": %llu, \"trials\": %d, \"settled_s\": %.1f, "
        "\"worst_minute\": %.5f, \"told_minute\": %.5f, \"used\": %.5f, \"reason\": \"%s\", "
        "\"step_s\": %.4f, "
        "\"noise\": %.4f, \"ignores\": %d, \"odd\": %d, \"phase_s\": %.1f, \"told_phases\": %d, "
        "\"phases\": [",
        out->way, name, (unsigned long long)seed, out->trials, out->settled_s, of->worst_minute,
        out->report.slowest_minute,
        of->highest_total_j > 0 ? of->energy_j / of->highest_total_j : 0,
        out->report.reason ? out->report.reason : "", of->laws[0].step_s, of->noise, of->ignores,
        of->is_odd, of->phases > 1 ? of->phase_s : 0.0, out->report.program_phases);
    for (int i = 0; i < of->phases; i++)
        printf("%s{\"mhz\": %d, \"best_mhz\": %d, \"slowdown\": %.5f, \"saved\": %.5f, "
               "\"best\": %.5f}",
               i > 0 ? ", " : "", out->mhz[i], out->best_mhz[i], out->slowdown[i], out->saved[i],
               out->best[i]);
    printf("]}\n");
}

typedef struct flags {
    int trials, step_mhz;
    uint64_t seed;
    double odd, phase_s, noise;
} flags;

static bool read_law(law *out, char name[128]) {
    *out = (law){.throttled = 1};
    if (scanf("%127s %lf %lf %zu", name, &out->step_s, &out->power_w, &out->points) != 4)
        return false;
    if (out->points < 2 || out->points > LAW_POINTS_MAX) return false;
    for (size_t i = 0; i < out->points; i++)
        if (scanf("%lf %lf %lf", &out->mhz[i], &out->time[i], &out->power[i]) != 3) return false;
    return true;
}

/* ---- Other ways ------------------------------------------------------------------------------ */

/* Measures 40 steps, as the power limit optimizer does, in shares of the true values. */
static double measured_share(program *of) {
    double sum = 0;
    for (int i = 0; i < 40; i++)
        sum += exp(of->noise * random_normal(of));
    return sum / 40;
}

static outcome outcome_at(const law *of, const int *clocks, size_t count, double time,
                          double energy) {
    int best_mhz = best_clock(of, clocks, count, 0.02);
    outcome out = {.best_mhz = {best_mhz}};
    out.slowdown[0] = time - 1;
    out.saved[0] = 1 - energy;
    out.best[0] = 1 - energy_ratio(of, best_mhz, clocks[0]);
    return out;
}

static outcome outcome_at_clock(const law *of, const int *clocks, size_t count, int mhz) {
    outcome out = outcome_at(of, clocks, count, law_time(of, mhz, clocks[0]),
                             energy_ratio(of, mhz, clocks[0]));
    out.mhz[0] = mhz;
    return out;
}

/* Measures each limit in steps of 25 W, then takes the one of least energy that is fast enough. A
 * limit holds the highest clock whose power is below it. */
static outcome power_limits(program *of, const int *clocks, size_t count) {
    const law *measured = &of->laws[0];
    double best_time = 1, best_energy = 1, least = INFINITY, fastest = 0;
    int trials = 0;
    for (int limit_w = 250; limit_w >= 100; limit_w -= 25, trials++) {
        double mhz = clocks[0];
        while (mhz > clocks[count - 1] &&
               measured->power_w * law_power(measured, mhz, clocks[0]) > limit_w)
            mhz--;
        double time = law_time(measured, mhz, clocks[0]);
        double energy = energy_ratio(measured, mhz, clocks[0]);
        double seen = measured_share(of);
        if (trials == 0) fastest = time * seen;
        if (time * seen > 1.02 * fastest || energy * seen >= least) continue;
        least = energy * seen;
        best_time = time;
        best_energy = energy;
    }
    outcome out = outcome_at(measured, clocks, count, best_time, best_energy);
    out.way = "power limit optimizer";
    out.trials = trials;
    return out;
}

/* Halves the range of clocks, and believes each measurement. */
static outcome bisection(program *of, const int *clocks, size_t count) {
    const law *measured = &of->laws[0];
    double highest = measured_share(of);
    size_t fast = 0, slow = count;
    int trials = 0;
    for (; slow - fast > 1; trials++) {
        size_t middle = (fast + slow) / 2;
        bool is_fast =
            law_time(measured, clocks[middle], clocks[0]) * measured_share(of) <= 1.02 * highest;
        *(is_fast ? &fast : &slow) = middle;
    }
    outcome out = outcome_at_clock(measured, clocks, count, clocks[fast]);
    out.way = "bisection";
    out.trials = trials;
    return out;
}

static void print_others(const char *name, uint64_t seed, program *of, const int *clocks,
                         size_t count) {
    outcome ways[3] = {power_limits(of, clocks, count), bisection(of, clocks, count),
                       /* Of the lower clocks, only this one is fast enough for all workloads. */
                       outcome_at_clock(&of->laws[0], clocks, count, 1320)};
    ways[2].way = "one clock, 1320 MHz";
    of->worst_minute = -1;
    for (int i = 0; i < 3; i++)
        print_outcome(name, seed, of, &ways[i]);
}

/* ---- Parts ----------------------------------------------------------------------------------- */

static void run_workloads(const flags *chosen) {
    law read;
    char name[128];
    while (read_law(&read, name)) {
        int clocks[CLOCKS_MAX];
        int count = 0;
        if (chosen->step_mhz > 0)
            count =
                grid(clocks, (int)read.mhz[0], (int)read.mhz[read.points - 1], chosen->step_mhz);
        else
            for (size_t i = 0; i < read.points; i++)
                clocks[count++] = (int)read.mhz[i];
        for (int i = 0; i < chosen->trials; i++) {
            program of = {.random = (chosen->seed + (uint64_t)i) * 104729 + 17,
                          .phases = 1,
                          .laws = {read},
                          .noise = chosen->noise,
                          .settle_s = 0.025,
                          .tick_s = 0.1};
            outcome out = run_trial(&of, clocks, (size_t)count, 3600, 0.02);
            print_outcome(name, chosen->seed + (uint64_t)i, &of, &out);
            print_others(name, chosen->seed + (uint64_t)i, &of, clocks, (size_t)count);
        }
    }
}

/* Programs with two phases, each of which is a measured workload. The clocks are those that both
 * were measured at. */
static void run_pairs(const flags *chosen) {
    static law all[32];
    char names[32][128];
    size_t count = 0;
    while (count < 32 && read_law(&all[count], names[count]))
        count++;
    for (int i = 0; i < chosen->trials && count > 1; i++) {
        program of = {.random = (chosen->seed + (uint64_t)i) * 104729 + 17,
                      .phases = 2,
                      .phase_s = chosen->phase_s,
                      .noise = chosen->noise,
                      .settle_s = 0.025,
                      .tick_s = 0.1};
        size_t first = (size_t)(random_share(&of) * (double)count);
        size_t second = (first + 1 + (size_t)(random_share(&of) * (double)(count - 1))) % count;
        of.laws[0] = all[first];
        of.laws[1] = all[second];
        const law *fewer = all[first].points < all[second].points ? &all[first] : &all[second];
        int clocks[CLOCKS_MAX];
        for (size_t c = 0; c < fewer->points; c++)
            clocks[c] = (int)fewer->mhz[c];
        outcome out = run_trial(&of, clocks, fewer->points, 7200, 0.02);
        print_outcome(names[first], chosen->seed + (uint64_t)i, &of, &out);
    }
}

static void run_random(const flags *chosen, bool has_phases) {
    int clocks[CLOCKS_MAX];
    int count = grid(clocks, 1410, 210, 15);
    for (int i = 0; i < chosen->trials; i++) {
        uint64_t seed = chosen->seed + (uint64_t)i;
        program of = random_program(seed, chosen->odd);
        if (has_phases) {
            of.phases = 2;
            of.phase_s = chosen->phase_s;
            of.laws[0].step_s = fmin(of.laws[0].step_s, 0.5);
            of.laws[1] = random_law(&of);
            of.laws[1].step_s = of.laws[0].step_s * random_between(&of, 0.3, 3);
        }
        double run_s = fmax(5400, 2000 * of.laws[0].step_s);
        outcome out = run_trial(&of, clocks, (size_t)count, run_s, 0.02);
        print_outcome("random", seed, &of, &out);
    }
}

int main(int argc, char **argv) {
    flags chosen = {.trials = 10, .seed = 1, .phase_s = 30, .noise = 0.02, .odd = 0.2};
    const char *part = argc > 1 ? argv[1] : "";
    for (int i = 2; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";
        if (strcmp(argv[i], "--trials") == 0) chosen.trials = atoi(value);
        if (strcmp(argv[i], "--grid") == 0) chosen.step_mhz = atoi(value);
        if (strcmp(argv[i], "--seed") == 0) chosen.seed = strtoull(value, NULL, 10);
        if (strcmp(argv[i], "--odd") == 0) chosen.odd = strtod(value, NULL);
        if (strcmp(argv[i], "--phase") == 0) chosen.phase_s = strtod(value, NULL);
        if (strcmp(argv[i], "--noise") == 0) chosen.noise = strtod(value, NULL);
    }
    if (strcmp(part, "workloads") == 0)
        run_workloads(&chosen);
    else if (strcmp(part, "pairs") == 0)
        run_pairs(&chosen);
    else if (strcmp(part, "random") == 0)
        run_random(&chosen, false);
    else if (strcmp(part, "phases") == 0)
        run_random(&chosen, true);
    else {
        fprintf(stderr, "usage: bench_tune workloads|random|phases [FLAGS]; see its source\n");
        return 2;
    }
    return 0;
}
