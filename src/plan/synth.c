/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a physically plausible profile for people who have no GPU: a simple model of time and power
 * as functions of frequency, stages of uneven size, and measurement noise. The rest of the planner
 * does not know whether a profile comes from this file.
 *
 * The model, with x = frequency / highest frequency:
 *
 *     time(x)  = t_max * (c / x + 1 - c)      the compute share c scales with the clock, waiting
 *                                             for memory does not (as in roofline models)
 *     power(x) = static + dynamic * x * (V(x) / V(1))^2      switching power of CMOS: C * V^2 * f
 *     V(x)/V(1) = flat below a knee, then rising in a straight line to 1 at x = 1
 *     energy   = power * time
 *
 * Clock ranges, clock steps and power limits are those of NVIDIA's data sheets and of
 * `nvidia-smi -q -d SUPPORTED_CLOCKS`. The split of power into static and dynamic, the knee and the
 * blocking powers are plausible numbers chosen for this model, not measurements. Full load stays a
 * little below the power limit. Static power is a little above the blocking power, so very low
 * clocks waste energy, as in measured profiles. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/profile.h>

#include "base/array.h"
#include "base/error.h"
#include "base/text.h"
#include "plan/synth.h"

#define SYNTH_STAGE_MAX 4096
#define NOISE_MAX 0.2
#define FORWARD_TIME_MIN_S 1e-4
#define FORWARD_TIME_MAX_S 1e3
#define LOWEST_SHARE \
    0.6 /* of the highest clock; lower clocks need more energy again, so they are not profiled */
#define MODEL_COUNT 4

typedef struct gpu_model {
    double static_w, dynamic_w; /* at full load; their sum is just below the power limit */
    double blocking_w;          /* while the GPU waits for its neighbour */
    double knee;                /* x below which voltage is constant */
    double knee_voltage;        /* V(knee) / V(1) */
    /* Supported clock k is (base_half_mhz + k * step_half_mhz) / 2 MHz, rounded down. This gives
     * V100's steps of 7 and 8 MHz (1530, 1522, 1515, 1507, ...), and steps of 15 MHz for its
     * successors. */
    int base_half_mhz, step_half_mhz, max_mhz;
} gpu_model;

static const char *const model_names[MODEL_COUNT + 1] = {"V100", "A40", "A100", "H100", NULL};

static const gpu_model models[MODEL_COUNT] = {
    /* V100 SXM2: 135-1530 MHz, 300 W */
    {71, 215, 61, 0.74, 0.76, 2 * 135, 15, 1530},
    /* A40: 210-1740 MHz, 300 W */
    {86, 203, 76, 0.75, 0.74, 2 * 210, 30, 1740},
    /* A100 SXM4: 210-1410 MHz, 400 W */
    {98, 290, 84, 0.76, 0.75, 2 * 210, 30, 1410},
    /* H100 SXM5: 210-1980 MHz, 700 W */
    {141, 535, 115, 0.72, 0.73, 2 * 210, 30, 1980},
};

/* The instructions and their parts; times are relative to forward. */
typedef struct instruction_model {
    const char *name;
    double relative_time;
    double compute_share;
    bool is_split; /* present only with split_backward */
} instruction_model;

static const instruction_model instructions[] = {
    {"forward", 1.0, 0.84, false},
    {"backward", 1.95, 0.78, false},
    {"backward_input", 1.95 * 0.55, 0.77, true},
    {"backward_weight", 1.95 * 0.45, 0.80, true},
};
#define INSTRUCTION_COUNT (sizeof instructions / sizeof instructions[0])

const char *const *harpe_synth_gpu_models(void) { return model_names; }

/* ---- Random numbers, the same on every machine ----------------------------------------------- */

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

uint64_t harpe_synth_random_stream(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
    uint64_t state = seed;
    state = next_random(&state) ^ a;
    state = next_random(&state) ^ b;
    state = next_random(&state) ^ c;
    return next_random(&state);
}

/* The sum of twelve uniform numbers minus 6 has mean 0 and variance 1. The Box-Muller method would
 * need a logarithm and a cosine, which differ between C libraries. The sum is computed in whole
 * numbers, which are exact. */
double harpe_synth_random_normal(uint64_t *state) {
    int64_t sum = 0;
    for (int i = 0; i < 12; i++)
        sum += (int64_t)(next_random(state) >> 32);
    double normal = (double)(sum - 6 * ((int64_t)1 << 32)) / 4294967296.0;
    return fmin(fmax(normal, -4.0), 4.0);
}

/* Rounds a number to the precision of a measurement. The result is then also the same if a compiler
 * fuses a multiplication and an addition, which changes the last bit. */
static double round_to(double value, double per_unit) {
    return floor(value * per_unit + 0.5) / per_unit;
}

/* ---- Model ----------------------------------------------------------------------------------- */

static double model_power_w(const gpu_model *gpu, double x) {
    double rise = x <= gpu->knee ? 0.0 : (x - gpu->knee) / (1.0 - gpu->knee);
    double voltage = gpu->knee_voltage + (1.0 - gpu->knee_voltage) * rise;
    return gpu->static_w + gpu->dynamic_w * x * voltage * voltage;
}

double harpe_synth_stretch(double compute_share, double share_of_highest) {
    return compute_share / share_of_highest + (1.0 - compute_share);
}

/* Makes one measurement. A negative frequency_mhz never occurs. */
static harpe_measurement measure(const gpu_model *gpu, const instruction_model *instruction,
                                 int stage, int frequency_mhz, double forward_s, double noise,
                                 uint64_t random) {
    double x = (double)frequency_mhz / gpu->max_mhz;
    double stretch = harpe_synth_stretch(instruction->compute_share, x);
    double time_s = forward_s * instruction->relative_time * stretch;
    double energy_j = model_power_w(gpu, x) * time_s;
    time_s *= 1.0 + noise * harpe_synth_random_normal(&random);
    energy_j *= 1.0 + noise * harpe_synth_random_normal(&random);
    return (harpe_measurement){
        .stage = stage,
        .rank = -1,
        .instruction = instruction->name,
        .frequency_mhz = frequency_mhz,
        .time_s = round_to(time_s, 1e9),
        .energy_j = round_to(energy_j, 1e6),
    };
}

static int clock_mhz(const gpu_model *gpu, int index) {
    return (gpu->base_half_mhz + index * gpu->step_half_mhz) / 2;
}

static int last_clock(const gpu_model *gpu) {
    return (2 * gpu->max_mhz - gpu->base_half_mhz) / gpu->step_half_mhz;
}

/* Returns NULL for an unknown name. */
static const gpu_model *model_of(const char *model_name) {
    for (int i = 0; i < MODEL_COUNT; i++)
        if (strcmp(model_name, model_names[i]) == 0) return &models[i];
    return NULL;
}

bool harpe_synth_offers_clock(const char *model_name, int frequency_mhz) {
    const gpu_model *gpu = model_of(model_name);
    for (int k = 0; gpu && clock_mhz(gpu, k) <= gpu->max_mhz; k++)
        if (clock_mhz(gpu, k) == frequency_mhz) return true;
    return false;
}

bool harpe_synth_clock_at(const char *model_name, int index, harpe_synth_clock *out) {
    const gpu_model *gpu = model_of(model_name);
    if (!gpu || index < 0 || index > last_clock(gpu)) return false;
    int frequency_mhz = clock_mhz(gpu, last_clock(gpu) - index);
    double x = (double)frequency_mhz / gpu->max_mhz;
    if (frequency_mhz < LOWEST_SHARE * gpu->max_mhz) return false;
    *out = (harpe_synth_clock){frequency_mhz, x, model_power_w(gpu, x)};
    return true;
}

double harpe_synth_blocking_power_w(const char *model_name) {
    const gpu_model *gpu = model_of(model_name);
    return gpu ? gpu->blocking_w : -1;
}

/* Distributes the work of the stages, with mean 1 and maximum `imbalance`. The last stage contains
 * the language model's head and has the most work. The others share the rest in a pattern that
 * depends on the seed. Their work differs from their mean by at most half of the difference between
 * this mean and the maximum. */
static void share_work(double *work, int stages, double imbalance, uint64_t seed) {
    work[stages - 1] = imbalance;
    if (stages == 1) return;
    int others = stages - 1;
    double others_mean = (stages - imbalance) / others;
    double pattern_sum = 0, pattern_max = 0;
    for (int s = 0; s < others; s++) {
        uint64_t random = harpe_synth_random_stream(seed, 1, (uint64_t)s, 0);
        work[s] = (double)(next_random(&random) >> 40) / 16777216.0;
        pattern_sum += work[s];
    }
    for (int s = 0; s < others; s++) {
        work[s] -= pattern_sum / others;
        pattern_max = fmax(pattern_max, fabs(work[s]));
    }
    double swing = fmin(0.5 * (imbalance - others_mean), 0.3 * others_mean);
    for (int s = 0; s < others; s++)
        work[s] = others_mean + (pattern_max > 0 ? swing * work[s] / pattern_max : 0);
}

/* ---- Options --------------------------------------------------------------------------------- */

static harpe_status find_model(const char *name, const gpu_model **model, harpe_error *error) {
    const char *wanted = name ? name : "A100";
    harpe_text known = {0};
    for (int i = 0; i < MODEL_COUNT; i++) {
        if (strcmp(wanted, model_names[i]) == 0) {
            *model = &models[i];
            harpe_text_free(&known);
            return HARPE_OK;
        }
        harpe_text_printf(&known, "%s%s", i > 0 ? ", " : "", model_names[i]);
    }
    harpe_status status = HARPE_NOT_FOUND;
    if (known.failed)
        status = harpe_fail_memory(error);
    else
        harpe_fail(error, status, "unknown GPU model '%.40s'; known are %s", wanted, known.data);
    harpe_text_free(&known);
    return status;
}

static harpe_status check_options(const harpe_synth_options *options, harpe_error *error) {
    if (options->stages < 1 || options->stages > SYNTH_STAGE_MAX)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "stages must be 1 to %d, not %d",
                          SYNTH_STAGE_MAX, options->stages);
    /* The other stages keep at least a tenth of the mean work. */
    double imbalance_max = 0.9 * options->stages + 0.1;
    if (!(options->imbalance >= 1.0 && options->imbalance <= imbalance_max))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "imbalance (slowest stage over the mean) must be 1 to %g for %d stage%s, "
                          "not %g",
                          imbalance_max, options->stages, options->stages == 1 ? "" : "s",
                          options->imbalance);
    if (!(options->noise >= 0.0 && options->noise <= NOISE_MAX))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "noise (relative standard deviation) must be 0 to %g, not %g", NOISE_MAX,
                          options->noise);
    double forward_s = options->forward_time_s;
    if (forward_s != 0.0 && !(forward_s >= FORWARD_TIME_MIN_S && forward_s <= FORWARD_TIME_MAX_S))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "forward time must be %g to %g s (or 0 for the default), not %g",
                          FORWARD_TIME_MIN_S, FORWARD_TIME_MAX_S, forward_s);
    return HARPE_OK;
}

/* ---- Public ---------------------------------------------------------------------------------- */

/* Writes every measurement to `rows` (NULL: only counts them). Returns their number. */
static size_t fill_rows(const harpe_synth_options *options, const gpu_model *gpu,
                        const double *work, harpe_measurement *rows) {
    double mean_s = options->forward_time_s != 0.0 ? options->forward_time_s : 0.050;
    size_t count = 0;
    for (int stage = 0; stage < options->stages; stage++) {
        for (size_t i = 0; i < INSTRUCTION_COUNT; i++) {
            if (instructions[i].is_split && !options->split_backward) continue;
            for (int k = last_clock(gpu); clock_mhz(gpu, k) >= LOWEST_SHARE * gpu->max_mhz; k--) {
                if (rows)
                    rows[count] = measure(gpu, &instructions[i], stage, clock_mhz(gpu, k),
                                          mean_s * work[stage], options->noise,
                                          harpe_synth_random_stream(options->seed, 2 + i,
                                                                    (uint64_t)stage, (uint64_t)k));
                count++;
            }
        }
    }
    return count;
}

harpe_status harpe_profile_synthesize(const harpe_synth_options *options, harpe_profile **out,
                                      double *blocking_power_w, harpe_error *error) {
    if (!options || !out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "synthesizing a profile needs options and a place for the result");
    const gpu_model *gpu = NULL;
    harpe_status status = find_model(options->gpu_model, &gpu, error);
    if (status == HARPE_OK) status = check_options(options, error);
    if (status != HARPE_OK) return status;

    size_t row_count = fill_rows(options, gpu, NULL, NULL);
    double *work = harpe_calloc((size_t)options->stages, sizeof *work);
    harpe_measurement *rows = harpe_calloc(row_count, sizeof *rows);
    if (!work || !rows) {
        status = harpe_fail_memory(error);
        goto done;
    }
    share_work(work, options->stages, options->imbalance, options->seed);
    fill_rows(options, gpu, work, rows);
    status = harpe_profile_new(rows, row_count, out, error);
    if (status == HARPE_OK && blocking_power_w) *blocking_power_w = gpu->blocking_w;
done:
    free(work);
    free(rows);
    return status;
}
