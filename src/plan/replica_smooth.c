/* SPDX-License-Identifier: Apache-2.0 */
/* Removes noise from the profiles of GPUs of one model. If such GPUs differ by factors, the
 * logarithm of a time is the sum of a number for the GPU and one for the clock, and both are means
 * over many measurements (a two-way analysis of variance without interaction). The same holds for
 * energies. An instruction whose measurements do not fit this model is left alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/replica_profiles.h"

/* If GPUs lack clocks, the two kinds of means depend on each other and are repeated. */
#define ROUNDS 50
#define CONVERGED 1e-12
/* Fewer GPUs or clocks say nothing about noise. */
#define FEWEST 3

/* The measurements of one instruction on all GPUs. NAN: not measured. */
typedef struct table {
    size_t gpu_count, clock_count;
    int *mhz;      /* [clock]: sorted, highest first */
    double *value; /* [gpu * clock_count + clock]: logarithms */
    double *of_gpu, *of_clock;
} table;

/* ---- The model ------------------------------------------------------------------------------- */

/* Moves the mean of what `other` leaves into `into`. Returns the largest change. */
static double fit_means(const table *t, bool by_gpu, double *into, const double *other) {
    size_t outer = by_gpu ? t->gpu_count : t->clock_count;
    size_t inner = by_gpu ? t->clock_count : t->gpu_count;
    double change = 0;
    for (size_t a = 0; a < outer; a++) {
        double sum = 0;
        size_t count = 0;
        for (size_t b = 0; b < inner; b++) {
            double value = t->value[by_gpu ? a * t->clock_count + b : b * t->clock_count + a];
            if (isnan(value)) continue;
            sum += value - other[b];
            count++;
        }
        double mean = count > 0 ? sum / (double)count : 0;
        change = fmax(change, fabs(mean - into[a]));
        into[a] = mean;
    }
    return change;
}

/* Returns the standard deviation of the measurements from the model. */
static double fit(table *t) {
    memset(t->of_gpu, 0, t->gpu_count * sizeof *t->of_gpu);
    memset(t->of_clock, 0, t->clock_count * sizeof *t->of_clock);
    for (int round = 0; round < ROUNDS; round++) {
        double change = fit_means(t, true, t->of_gpu, t->of_clock);
        change = fmax(change, fit_means(t, false, t->of_clock, t->of_gpu));
        if (change < CONVERGED) break;
    }
    double sum = 0;
    size_t count = 0;
    for (size_t g = 0; g < t->gpu_count; g++) {
        for (size_t c = 0; c < t->clock_count; c++) {
            double value = t->value[g * t->clock_count + c];
            if (isnan(value)) continue;
            double difference = value - t->of_gpu[g] - t->of_clock[c];
            sum += difference * difference;
            count++;
        }
    }
    size_t parameters = t->gpu_count + t->clock_count - 1;
    return count > parameters ? sqrt(sum / (double)(count - parameters)) : INFINITY;
}

/* ---- One instruction ------------------------------------------------------------------------- */

static int compare_clocks(const void *left, const void *right) {
    int a = *(const int *)left, b = *(const int *)right;
    return (a < b) - (a > b);
}

static size_t clock_index(const table *t, int mhz) {
    const int *found = bsearch(&mhz, t->mhz, t->clock_count, sizeof *t->mhz, compare_clocks);
    return (size_t)(found - t->mhz);
}

/* The profile's own entry, which the maker of the profile may change. */
static harpe_profile_point *points_of(const harpe_replica_profiles *profiles, size_t gpu,
                                      size_t entry, size_t *count) {
    const harpe_profile_entry *of = harpe_profile_entry_at(profiles->gpus[gpu], entry);
    *count = of->point_count;
    return (harpe_profile_point *)of->points;
}

static void table_clear(table *t) {
    free(t->mhz);
    free(t->value);
    free(t->of_gpu);
    free(t->of_clock);
    memset(t, 0, sizeof *t);
}

static harpe_status table_init(table *t, const harpe_replica_profiles *profiles, size_t entry,
                               harpe_error *error) {
    size_t total = 0, count = 0, kept = 0;
    *t = (table){.gpu_count = (size_t)profiles->replica_count * (size_t)profiles->peer_count};
    for (size_t g = 0; g < t->gpu_count; g++, total += count)
        (void)points_of(profiles, g, entry, &count);
    t->mhz = harpe_calloc(total, sizeof *t->mhz);
    if (!t->mhz) return harpe_fail_memory(error);
    total = 0;
    for (size_t g = 0; g < t->gpu_count; g++) {
        const harpe_profile_point *points = points_of(profiles, g, entry, &count);
        for (size_t p = 0; p < count; p++)
            t->mhz[total++] = points[p].frequency_mhz;
    }
    qsort(t->mhz, total, sizeof *t->mhz, compare_clocks);
    for (size_t k = 0; k < total; k++)
        if (kept == 0 || t->mhz[k] != t->mhz[kept - 1]) t->mhz[kept++] = t->mhz[k];
    t->clock_count = kept;
    size_t cells = 0;
    if (!__builtin_mul_overflow(t->gpu_count, kept, &cells))
        t->value = harpe_calloc(cells, sizeof *t->value);
    t->of_gpu = harpe_calloc(t->gpu_count, sizeof *t->of_gpu);
    t->of_clock = harpe_calloc(kept, sizeof *t->of_clock);
    return t->value && t->of_gpu && t->of_clock ? HARPE_OK : harpe_fail_memory(error);
}

static double *number_of(harpe_profile_point *point, bool is_time) {
    return is_time ? &point->time_s : &point->energy_j;
}

/* Replaces the times or the energies of one instruction if they fit the model. */
static void smooth(table *t, const harpe_replica_profiles *profiles, size_t entry, bool is_time,
                   double most_deviation) {
    size_t count = 0;
    for (size_t k = 0; k < t->gpu_count * t->clock_count; k++)
        t->value[k] = NAN;
    for (size_t g = 0; g < t->gpu_count; g++) {
        harpe_profile_point *points = points_of(profiles, g, entry, &count);
        for (size_t p = 0; p < count; p++)
            t->value[g * t->clock_count + clock_index(t, points[p].frequency_mhz)] =
                log(*number_of(&points[p], is_time));
    }
    if (!(fit(t) <= most_deviation)) return;
    for (size_t g = 0; g < t->gpu_count; g++) {
        harpe_profile_point *points = points_of(profiles, g, entry, &count);
        for (size_t p = 0; p < count; p++)
            *number_of(&points[p], is_time) =
                exp(t->of_gpu[g] + t->of_clock[clock_index(t, points[p].frequency_mhz)]);
    }
}

/* ---- Public ---------------------------------------------------------------------------------- */

harpe_status harpe_replica_profiles_smooth(const harpe_replica_profiles *profiles,
                                           double most_deviation, harpe_replica_profiles **out,
                                           harpe_error *error) {
    if (!profiles || !out || !(most_deviation >= 0 && most_deviation <= 1))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "smoothing needs profiles, a deviation of 0 to 1 and a place for the "
                          "result");
    harpe_replica_profiles *made = NULL;
    harpe_status status =
        harpe_replica_profiles_new((const harpe_profile *const *)profiles->gpus,
                                   profiles->replica_count, profiles->peer_count, &made, error);
    if (status != HARPE_OK) return status;
    for (size_t e = 0; e < harpe_profile_entry_count(made->gpus[0]) && status == HARPE_OK; e++) {
        table t;
        status = table_init(&t, made, e, error);
        if (status == HARPE_OK && t.gpu_count >= FEWEST && t.clock_count >= FEWEST) {
            smooth(&t, made, e, true, most_deviation);
            smooth(&t, made, e, false, most_deviation);
        }
        table_clear(&t);
    }
    if (status != HARPE_OK) {
        harpe_replica_profiles_free(made);
        return status;
    }
    *out = made;
    return HARPE_OK;
}
