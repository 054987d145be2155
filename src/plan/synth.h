/* SPDX-License-Identifier: Apache-2.0 */
/* The properties of the synthetic GPUs, for programs that emulate them, and their laws of time and
 * power, for work that was not measured. */
#ifndef HARPE_PLAN_SYNTH_H
#define HARPE_PLAN_SYNTH_H

#include <stdbool.h>
#include <stdint.h>

/* Returns true if the frequency is one of the graphics clocks of the model. Returns false for an
 * unknown model. */
bool harpe_synth_offers_clock(const char *model_name, int frequency_mhz);

/* What a synthetic GPU does at one clock. */
typedef struct harpe_synth_clock {
    int frequency_mhz;
    double share_of_highest; /* of the highest clock, in 0 .. 1 */
    double power_w;          /* while it computes */
} harpe_synth_clock;

/* Returns clock number `index` of a model, the highest first: the clocks of the rows that
 * harpe_profile_synthesize makes. Returns false for an unknown model, and beyond the last clock. */
bool harpe_synth_clock_at(const char *model_name, int index, harpe_synth_clock *out);

/* Returns how many times longer work takes at a clock than at the highest clock. Of its time at the
 * highest clock, the part `compute_share` scales with the clock. */
double harpe_synth_stretch(double compute_share, double share_of_highest);

/* Returns the state of a separate random number generator for every place (a, b, c) of a profile,
 * so that additional instructions do not change the noise of the others. */
uint64_t harpe_synth_random_stream(uint64_t seed, uint64_t a, uint64_t b, uint64_t c);

/* Returns a random number with mean 0 and variance 1, limited to -4 .. 4. It is the same on every
 * machine. */
double harpe_synth_random_normal(uint64_t *state);

/* Returns the blocking power of a model, or -1 for an unknown one. */
double harpe_synth_blocking_power_w(const char *model_name);

#endif
