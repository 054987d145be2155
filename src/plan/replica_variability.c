/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the profiles of GPUs that differ: each GPU of each stage has a factor for its times and one
 * for its power. The factors have a normal distribution, and some GPUs are much slower. Sinha et
 * al., "Not All GPUs Are Created Equal" (2022), measured differences of 8 % on average between GPUs
 * of one model, and outliers of 1.5 times. The form of the distribution is an assumption. */
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/replica_profiles.h"
#include "plan/synth.h"

#define DEVIATION_MAX 0.3
#define NOISE_MAX 0.2
#define OUTLIER_FACTOR_MAX 10.0
#define DEFAULT_OUTLIER_FACTOR 1.5
/* No factor is below this, whatever the deviation. */
#define LOWEST_FACTOR 0.25

/* What the rows of one GPU number are changed by. */
typedef struct gpu_draw {
    const harpe_profile *base;
    const harpe_variability *how;
    double outlier_factor;
    double blocking_power_w; /* 0: that of the base */
    uint64_t gpu;            /* number of the GPU among all peers of all replicas */
    uint64_t noise_state;
} gpu_draw;

typedef struct factors {
    double time, power;
} factors;

static double uniform(uint64_t bits) { return (double)(bits >> 11) * 0x1p-53; }

static factors draw_factors(const gpu_draw *draw, int stage) {
    const harpe_variability *how = draw->how;
    uint64_t place = (uint64_t)stage;
    uint64_t speed = harpe_synth_random_stream(how->seed, 1001, draw->gpu, place);
    uint64_t power = harpe_synth_random_stream(how->seed, 1002, draw->gpu, place);
    double time_factor = 1 + how->speed_deviation * harpe_synth_random_normal(&speed);
    double power_factor = 1 + how->power_deviation * harpe_synth_random_normal(&power);
    if (uniform(harpe_synth_random_stream(how->seed, 1003, draw->gpu, place)) <
        how->outlier_share) {
        double share = uniform(harpe_synth_random_stream(how->seed, 1004, draw->gpu, place));
        time_factor *= 1 + (draw->outlier_factor - 1) * share;
    }
    return (factors){fmax(time_factor, LOWEST_FACTOR), fmax(power_factor, LOWEST_FACTOR)};
}

static double noise_factor(gpu_draw *draw) {
    if (draw->how->noise <= 0) return 1;
    return fmax(1 + draw->how->noise * harpe_synth_random_normal(&draw->noise_state),
                LOWEST_FACTOR);
}

static void change_row(void *user, harpe_measurement *row) {
    gpu_draw *draw = user;
    factors by = draw_factors(draw, row->stage);
    double blocking_w = draw->blocking_power_w > 0 ? draw->blocking_power_w : row->blocking_power_w;
    row->time_s *= by.time * noise_factor(draw);
    row->energy_j *=
        by.time * by.power * noise_factor(draw) / harpe_profile_gpu_count(draw->base, row->stage);
    row->blocking_power_w = blocking_w * by.power;
}

static harpe_status check_variability(const harpe_variability *how, double blocking_power_w,
                                      harpe_error *error) {
    bool is_good = how->speed_deviation >= 0 && how->speed_deviation <= DEVIATION_MAX &&
                   how->power_deviation >= 0 && how->power_deviation <= DEVIATION_MAX;
    if (!is_good)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the deviations of speed and power must be 0 to %g, not %g and %g",
                          DEVIATION_MAX, how->speed_deviation, how->power_deviation);
    if (!(how->noise >= 0 && how->noise <= NOISE_MAX))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "the noise must be 0 to %g, not %g",
                          NOISE_MAX, how->noise);
    if (!(how->outlier_share >= 0 && how->outlier_share <= 1))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the share of outliers must be 0 to 1, not %g", how->outlier_share);
    bool has_factor = how->outlier_factor < 0 || how->outlier_factor > 0;
    if (has_factor && !(how->outlier_factor >= 1 && how->outlier_factor <= OUTLIER_FACTOR_MAX))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the factor of outliers must be 1 to %g, not %g", OUTLIER_FACTOR_MAX,
                          how->outlier_factor);
    if (!(blocking_power_w >= 0 && blocking_power_w <= 1e5))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the blocking power must be 0 to 100000 W, not %g W", blocking_power_w);
    return HARPE_OK;
}

harpe_status harpe_replica_profiles_vary(const harpe_profile *base, double blocking_power_w,
                                         const harpe_variability *variability,
                                         harpe_replica_profiles **out, harpe_error *error) {
    if (!base || !variability || !out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "varying a profile needs a profile, a variability and a place for the "
                          "result");
    harpe_status status = check_variability(variability, blocking_power_w, error);
    if (status != HARPE_OK) return status;
    int replicas = variability->replica_count ? variability->replica_count : 1;
    int peers = variability->peer_count ? variability->peer_count : 1;
    harpe_replica_profiles *made = NULL;
    status = harpe_replica_profiles_begin(replicas, peers, &made, error);
    if (status != HARPE_OK) return status;
    gpu_draw draw = {
        .base = base,
        .how = variability,
        .outlier_factor =
            variability->outlier_factor > 0 ? variability->outlier_factor : DEFAULT_OUTLIER_FACTOR,
        .blocking_power_w = blocking_power_w,
    };
    size_t count = (size_t)replicas * (size_t)peers;
    for (size_t g = 0; g < count && status == HARPE_OK; g++) {
        draw.gpu = g;
        draw.noise_state = harpe_synth_random_stream(variability->noise_seed, 1005, g, 0);
        status = harpe_replica_profile_copy(base, change_row, &draw, &made->gpus[g], error);
    }
    if (status != HARPE_OK) {
        harpe_replica_profiles_free(made);
        return status;
    }
    *out = made;
    return HARPE_OK;
}
