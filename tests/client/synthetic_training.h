/* SPDX-License-Identifier: Apache-2.0 */
/* A training run with known powers: steps of instructions with waiting between them, and a counter
 * that shows its energy only at intervals, read as the profiler reads a counter. All times are GPU
 * time, which passes only here. */
#ifndef HARPE_TESTS_SYNTHETIC_TRAINING_H
#define HARPE_TESTS_SYNTHETIC_TRAINING_H

#include <stdlib.h>

#include "client/profiler_internal.h"

enum { SYNTHETIC_SPANS_MAX = 64, SYNTHETIC_STEPS_MAX = 256 };

typedef struct synthetic_instruction {
    size_t key;
    double time_s, power_w;
    double waiting_s; /* after the instruction */
} synthetic_instruction;

typedef struct synthetic_training {
    const synthetic_instruction *instructions; /* of each step */
    size_t count;
    size_t steps;
    double waiting_w;
    double between_s, between_w; /* from a step to the next */
    double jitter;               /* relative deviation of each duration */
    double counter_s;            /* interval between moves of the counter */
    double late_s;               /* longest delay of a wake-up */
} synthetic_training;

typedef struct synthetic_piece {
    int64_t end_ns;
    double energy_j; /* time at its end */
} synthetic_piece;

typedef struct synthetic_run {
    synthetic_piece pieces[SYNTHETIC_STEPS_MAX * (2 * SYNTHETIC_SPANS_MAX + 2) + 4];
    size_t piece_count, at;
    harpe_step steps[SYNTHETIC_STEPS_MAX];
    harpe_span spans[SYNTHETIC_STEPS_MAX][SYNTHETIC_SPANS_MAX];
    double step_j[SYNTHETIC_STEPS_MAX]; /* the true energy */
    size_t step_count;
    harpe_energy_curve curve;
    uint64_t random;
} synthetic_run;

/* Returns a number from 0 to 1. The sequence is the same on every machine. */
static inline double synthetic_random(synthetic_run *run) {
    run->random = run->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(run->random >> 11) / 9007199254740992.0;
}

static inline synthetic_piece synthetic_last(const synthetic_run *run) {
    return run->piece_count > 0 ? run->pieces[run->piece_count - 1] : (synthetic_piece){0, 0};
}

/* Lets the GPU do this for a while. Returns the time at which it ends. */
static inline int64_t synthetic_pass(synthetic_run *run, double time_s, double power_w) {
    synthetic_piece last = synthetic_last(run);
    int64_t length_ns = (int64_t)(time_s * 1e9);
    run->pieces[run->piece_count++] = (synthetic_piece){
        last.end_ns + length_ns, last.energy_j + power_w * (double)length_ns * 1e-9};
    return last.end_ns + length_ns;
}

static inline double synthetic_energy_j(synthetic_run *run, int64_t time_ns) {
    while (run->at > 0 && run->pieces[run->at - 1].end_ns > time_ns)
        run->at--;
    while (run->at + 1 < run->piece_count && run->pieces[run->at].end_ns < time_ns)
        run->at++;
    synthetic_piece to = run->pieces[run->at];
    synthetic_piece from = run->at > 0 ? run->pieces[run->at - 1] : (synthetic_piece){0, 0};
    double share = to.end_ns > from.end_ns
                       ? (double)(time_ns - from.end_ns) / (double)(to.end_ns - from.end_ns)
                       : 0;
    return from.energy_j + share * (to.energy_j - from.energy_j);
}

static inline void synthetic_step(synthetic_run *run, const synthetic_training *training) {
    size_t index = run->step_count++;
    harpe_step *step = &run->steps[index];
    synthetic_piece start = synthetic_last(run);
    *step = (harpe_step){
        .start_ns = start.end_ns, .spans = run->spans[index], .span_count = training->count};
    for (size_t i = 0; i < training->count; i++) {
        const synthetic_instruction *what = &training->instructions[i];
        double stretch = 1 + training->jitter * (2 * synthetic_random(run) - 1);
        step->spans[i].key = what->key;
        step->spans[i].start_ns = synthetic_last(run).end_ns;
        step->spans[i].end_ns = synthetic_pass(run, what->time_s * stretch, what->power_w);
        stretch = 1 + training->jitter * (2 * synthetic_random(run) - 1);
        if (what->waiting_s > 0)
            synthetic_pass(run, what->waiting_s * stretch, training->waiting_w);
    }
    synthetic_piece end = synthetic_last(run);
    step->end_ns = end.end_ns;
    run->step_j[index] = end.energy_j - start.energy_j;
    if (training->between_s > 0) synthetic_pass(run, training->between_s, training->between_w);
}

/* Runs everything, then reads the counter as the profiler would have done. The caller frees the
 * result. */
static inline synthetic_run *synthetic_run_new(const synthetic_training *training) {
    static const double period_s = 0.01, read_s = 2e-5;
    synthetic_run *run = calloc(1, sizeof *run);
    run->random = 42;
    synthetic_pass(run, 0.5, 60);
    for (size_t i = 0; i < training->steps; i++)
        synthetic_step(run, training);
    synthetic_pass(run, 0.5, 60);
    int64_t counter_ns = (int64_t)(training->counter_s * 1e9);
    int64_t end_ns = synthetic_last(run).end_ns;
    for (int64_t now_ns = 0; now_ns < end_ns;) {
        int64_t shown_ns = now_ns / counter_ns * counter_ns;
        uint64_t counter_mj = (uint64_t)(synthetic_energy_j(run, shown_ns) * 1e3);
        harpe_energy_curve_add_counter(&run->curve, now_ns, now_ns + (int64_t)(read_s * 1e9),
                                       counter_mj);
        now_ns += (int64_t)(read_s * 1e9);
        now_ns += harpe_energy_curve_delay_ns(&run->curve, now_ns, (int64_t)(period_s * 1e9));
        now_ns += (int64_t)(training->late_s * synthetic_random(run) * 1e9);
    }
    return run;
}

static inline void synthetic_run_free(synthetic_run *run) {
    harpe_energy_curve_clear(&run->curve);
    free(run);
}

#endif
