/* SPDX-License-Identifier: Apache-2.0 */
/* The profile of each GPU of a job: makes, smooths, copies, compares and writes them, and makes
 * them from the rows of one CSV file, which profile_csv.c reads. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "plan/profiles.h"
#include "plan/replica_internal.h"
#include "plan/synth.h"

/* ---- Smoothing ------------------------------------------------------------------------------- */

/* Removes noise from the profiles of GPUs of one model. If such GPUs differ by factors, the
 * logarithm of a time is the sum of a number for the GPU and one for the clock, and both are means
 * over many measurements (a two-way analysis of variance without interaction). The same holds for
 * energies. An instruction whose measurements do not fit this model is left alone. */

/* If GPUs lack clocks, the two kinds of means depend on each other and are repeated. */
#define ROUNDS 50
#define CONVERGED 1e-12
/* Fewer GPUs or clocks say nothing about noise. */
#define FEWEST 3

/* The measurements of one instruction on all GPUs. NAN: not measured. */
typedef struct table {
    harpe_arena arena;
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

static harpe_status table_init(table *t, const harpe_replica_profiles *profiles, size_t entry,
                               harpe_error *error) {
    size_t total = 0, count = 0, kept = 0;
    *t = (table){.gpu_count = (size_t)profiles->replica_count * (size_t)profiles->peer_count};
    for (size_t g = 0; g < t->gpu_count; g++, total += count)
        (void)points_of(profiles, g, entry, &count);
    t->mhz = harpe_arena_alloc(&t->arena, total, sizeof *t->mhz);
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
    t->of_gpu = harpe_arena_alloc(&t->arena, t->gpu_count, sizeof *t->of_gpu);
    t->of_clock = harpe_arena_alloc(&t->arena, kept, sizeof *t->of_clock);
    t->value = harpe_arena_alloc(&t->arena, t->gpu_count, kept * sizeof *t->value);
    return t->arena.has_failed ? harpe_fail_memory(error) : HARPE_OK;
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
        harpe_arena_free(&t.arena);
    }
    if (status != HARPE_OK) {
        harpe_replica_profiles_free(made);
        return status;
    }
    *out = made;
    return HARPE_OK;
}

/* ---- Making ---------------------------------------------------------------------------------- */

/* Makes profiles without any GPU. */
static harpe_status begin_profiles(int replica_count, int peer_count, harpe_replica_profiles **out,
                                   harpe_error *error) {
    if (replica_count < 1 || replica_count > HARPE_REPLICAS_MAX || peer_count < 1 ||
        peer_count > HARPE_REPLICAS_MAX)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "a job has 1 to %d replicas, and each stage 1 to %d GPUs; not %d and %d",
                          HARPE_REPLICAS_MAX, HARPE_REPLICAS_MAX, replica_count, peer_count);
    size_t count = (size_t)replica_count * (size_t)peer_count;
    if (count > HARPE_REPLICA_GPUS_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "%zu GPUs in each stage of all replicas, at most %zu are possible", count,
                          HARPE_REPLICA_GPUS_MAX);
    harpe_replica_profiles *profiles = harpe_calloc(1, sizeof *profiles);
    if (!profiles) return harpe_fail_memory(error);
    profiles->replica_count = replica_count;
    profiles->peer_count = peer_count;
    profiles->gpus = harpe_calloc(count, sizeof(harpe_profile *));
    if (!profiles->gpus) {
        free(profiles);
        return harpe_fail_memory(error);
    }
    *out = profiles;
    return HARPE_OK;
}

/* Checks that all GPUs have the same stages and instructions. Errors begin with `name` if it is not
 * NULL. */
static harpe_status check_same_instructions(const harpe_replica_profiles *profiles,
                                            const char *name, harpe_error *error) {
    const harpe_profile *first = profiles->gpus[0];
    size_t entries = harpe_profile_entry_count(first);
    size_t count = (size_t)profiles->replica_count * (size_t)profiles->peer_count;
    for (size_t g = 1; g < count; g++) {
        const harpe_profile *other = profiles->gpus[g];
        /* Whichever of the two has an entry more lends it to the message. */
        bool has_more = harpe_profile_entry_count(other) > entries;
        const harpe_profile *from = has_more ? other : first, *in = has_more ? first : other;
        for (size_t e = 0; e < harpe_profile_entry_count(from); e++) {
            const harpe_profile_entry *entry = harpe_profile_entry_at(from, e);
            if (harpe_profile_find(in, entry->stage, entry->instruction)) continue;
            size_t lacking = has_more ? 0 : g, having = has_more ? g : 0;
            size_t peers = (size_t)profiles->peer_count;
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s%sgpu %zu of replica %zu has no '%s' for stage %d, but gpu %zu of "
                              "replica %zu has: measure it on every GPU",
                              name ? name : "", name ? ": " : "", lacking % peers, lacking / peers,
                              entry->instruction, entry->stage, having % peers, having / peers);
        }
    }
    return HARPE_OK;
}

/* Makes a profile of one GPU from the rows of another profile. `change` (may be NULL) may change
 * time, energy and blocking power of each row. */
static harpe_status replica_profile_copy(const harpe_profile *from,
                                         void (*change)(void *user, harpe_measurement *row),
                                         void *user, harpe_profile **out, harpe_error *error) {
    size_t count = harpe_profile_measurements(from, NULL);
    harpe_measurement *rows = harpe_calloc(count, sizeof *rows);
    if (!rows) return harpe_fail_memory(error);
    (void)harpe_profile_measurements(from, rows);
    for (size_t k = 0; k < count && change; k++)
        change(user, &rows[k]);
    harpe_status status = harpe_profile_new(rows, count, out, error);
    free(rows);
    return status;
}

static harpe_status check_one_gpu(const harpe_profile *profile, size_t index, harpe_error *error) {
    for (int stage = 0; stage < harpe_profile_stage_count(profile); stage++)
        if (harpe_profile_gpu_count(profile, stage) != 1)
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "profile %zu has %d GPUs in stage %d: give each GPU a profile of its "
                              "own",
                              index, harpe_profile_gpu_count(profile, stage), stage);
    return HARPE_OK;
}

harpe_status harpe_replica_profiles_new(const harpe_profile *const *profiles, int replica_count,
                                        int peer_count, harpe_replica_profiles **out,
                                        harpe_error *error) {
    if (!profiles || !out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "profiles of replicas need profiles and a place for the result");
    harpe_replica_profiles *made = NULL;
    harpe_status status = begin_profiles(replica_count, peer_count, &made, error);
    if (status != HARPE_OK) return status;
    size_t count = (size_t)replica_count * (size_t)peer_count;
    for (size_t g = 0; g < count && status == HARPE_OK; g++) {
        status = check_one_gpu(profiles[g], g, error);
        if (status == HARPE_OK)
            status = replica_profile_copy(profiles[g], NULL, NULL, &made->gpus[g], error);
    }
    if (status == HARPE_OK) status = check_same_instructions(made, NULL, error);
    if (status != HARPE_OK) {
        harpe_replica_profiles_free(made);
        return status;
    }
    *out = made;
    return HARPE_OK;
}

void harpe_replica_profiles_free(harpe_replica_profiles *profiles) {
    if (!profiles) return;
    size_t count = (size_t)profiles->replica_count * (size_t)profiles->peer_count;
    for (size_t g = 0; g < count; g++)
        harpe_profile_free(profiles->gpus[g]);
    free(profiles->gpus);
    free(profiles);
}

/* ---- Reading --------------------------------------------------------------------------------- */

int harpe_replica_profiles_replica_count(const harpe_replica_profiles *profiles) {
    return profiles->replica_count;
}

int harpe_replica_profiles_peer_count(const harpe_replica_profiles *profiles) {
    return profiles->peer_count;
}

const harpe_profile *harpe_replica_profiles_at(const harpe_replica_profiles *profiles, int replica,
                                               int peer) {
    if (replica < 0 || replica >= profiles->replica_count || peer < 0 ||
        peer >= profiles->peer_count)
        return NULL;
    return profiles->gpus[(size_t)replica * (size_t)profiles->peer_count + (size_t)peer];
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static int compare_points(const harpe_profile_entry *a, const harpe_profile_entry *b) {
    if (a->point_count != b->point_count) return a->point_count < b->point_count ? -1 : 1;
    for (size_t p = 0; p < a->point_count; p++) {
        const harpe_profile_point *x = &a->points[p], *y = &b->points[p];
        int order = (x->frequency_mhz > y->frequency_mhz) - (x->frequency_mhz < y->frequency_mhz);
        if (order == 0) order = harpe_compare_doubles(&x->time_s, &y->time_s);
        if (order == 0) order = harpe_compare_doubles(&x->energy_j, &y->energy_j);
        if (order != 0) return order;
    }
    return 0;
}

/* All GPUs have the same stages and instructions. */
static int compare_gpus(const harpe_profile *one, const harpe_profile *other) {
    int order = 0;
    for (size_t e = 0; e < harpe_profile_entry_count(one) && order == 0; e++)
        order = compare_points(harpe_profile_entry_at(one, e), harpe_profile_entry_at(other, e));
    for (int s = 0; s < harpe_profile_stage_count(one) && order == 0; s++) {
        double a_w = harpe_profile_blocking_power_w(one, s);
        double b_w = harpe_profile_blocking_power_w(other, s);
        order = harpe_compare_doubles(&a_w, &b_w);
    }
    return order;
}

int harpe_replica_profiles_compare(const harpe_replica_profiles *profiles, int one, int other) {
    int order = 0;
    for (int peer = 0; peer < profiles->peer_count && order == 0; peer++)
        order = compare_gpus(harpe_replica_profiles_at(profiles, one, peer),
                             harpe_replica_profiles_at(profiles, other, peer));
    return order;
}

/* ---- Writing --------------------------------------------------------------------------------- */

harpe_status harpe_replica_profiles_write_csv(const harpe_replica_profiles *profiles,
                                              const char *path, harpe_error *error) {
    if (!profiles || !path)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "writing the profiles of replicas needs profiles and a path");
    harpe_text text = {0};
    bool with_power = true;
    for (int g = 0; g < profiles->replica_count * profiles->peer_count; g++)
        with_power = with_power && harpe_profile_has_blocking_powers(profiles->gpus[g]);
    harpe_text_printf(&text, "replica,gpu,stage,instruction,frequency,time,energy%s\n",
                      with_power ? ",blocking_power" : "");
    for (int g = 0; g < profiles->replica_count * profiles->peer_count; g++) {
        char place[32];
        (void)snprintf(place, sizeof place, "%d,%d,", g / profiles->peer_count,
                       g % profiles->peer_count);
        harpe_profile_print_rows(profiles->gpus[g], place, false, with_power, &text);
    }
    harpe_status status = text.failed ? harpe_fail_memory(error)
                                      : harpe_file_write(path, text.data, text.length, error);
    harpe_text_free(&text);
    return status;
}

/* ---- Variability ----------------------------------------------------------------------------- */

/* Makes the profiles of GPUs that differ: each GPU of each stage has a factor for its times and one
 * for its power. The factors have a normal distribution, and some GPUs are much slower. Sinha et
 * al., "Not All GPUs Are Created Equal" (2022), measured differences of 8 % on average between GPUs
 * of one model, and outliers of 1.5 times. The form of the distribution is an assumption. */

#define DEVIATION_MAX 0.3
#define NOISE_MAX 0.2
#define OUTLIER_FACTOR_MAX 10.0
#define BLOCKING_POWER_MAX_W 1e5
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
    bool has_factor = how->outlier_factor < 0 || how->outlier_factor > 0;
    const struct {
        const char *what;
        double value, least, most;
    } numbers[] = {
        {"the deviation of speed", how->speed_deviation, 0, DEVIATION_MAX},
        {"the deviation of power", how->power_deviation, 0, DEVIATION_MAX},
        {"the noise", how->noise, 0, NOISE_MAX},
        {"the share of outliers", how->outlier_share, 0, 1},
        {"the factor of outliers", has_factor ? how->outlier_factor : 1, 1, OUTLIER_FACTOR_MAX},
        {"the blocking power in W", blocking_power_w, 0, BLOCKING_POWER_MAX_W},
    };
    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++)
        if (!(numbers[k].value >= numbers[k].least && numbers[k].value <= numbers[k].most))
            return harpe_fail(error, HARPE_INVALID_ARGUMENT, "%s must be %g to %g, not %g",
                              numbers[k].what, numbers[k].least, numbers[k].most, numbers[k].value);
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
    status = begin_profiles(replicas, peers, &made, error);
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
        status = replica_profile_copy(base, change_row, &draw, &made->gpus[g], error);
    }
    if (status != HARPE_OK) {
        harpe_replica_profiles_free(made);
        return status;
    }
    *out = made;
    return HARPE_OK;
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* Makes the profiles of all GPUs of a job from the rows of one CSV file, which profile_csv.c reads.
 * profile.c aggregates the rows of each GPU. */

static bool is_same_gpu(const harpe_profile_gpu_row *a, const harpe_profile_gpu_row *b) {
    return a->replica == b->replica && a->peer == b->peer;
}

static int compare_rows(const void *left, const void *right) {
    const harpe_profile_gpu_row *a = left, *b = right;
    if (a->replica != b->replica) return a->replica < b->replica ? -1 : 1;
    if (a->peer != b->peer) return a->peer < b->peer ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

/* Makes the profile of the GPU of rows[*first], and moves `*first` behind its rows. */
static harpe_status make_gpu(const harpe_profile_gpus *gpus, const harpe_profile_rows *all,
                             size_t *first, const char *name, harpe_profile **out,
                             harpe_error *error) {
    const harpe_profile_gpu_row *begin = &gpus->rows[*first];
    harpe_profile_rows rows = {0};
    harpe_status status = HARPE_OK;
    for (; status == HARPE_OK && *first < all->count && is_same_gpu(begin, &gpus->rows[*first]);
         ++*first)
        status = harpe_profile_rows_take(&rows, all, gpus->rows[*first].row, error);
    if (status == HARPE_OK) status = harpe_profile_rows_finish(&rows, name, out, error);
    harpe_profile_rows_clear(&rows);
    return status;
}

/* Checks that every GPU has rows, which are sorted by GPU. */
static harpe_status check_gpus(const harpe_profile_gpus *gpus, size_t row_count, const char *name,
                               harpe_error *error) {
    size_t peers = (size_t)gpus->peer_count, count = (size_t)gpus->replica_count * peers, found = 0;
    for (size_t k = 0; k < row_count; k++) {
        const harpe_profile_gpu_row *row = &gpus->rows[k];
        if (k > 0 && is_same_gpu(row, row - 1)) continue;
        if ((size_t)row->replica * peers + (size_t)row->peer != found) break;
        found++;
    }
    if (found == count) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s: gpu %zu of replica %zu has no rows; each of the %d replicas needs rows "
                      "for %d GPU%s",
                      name, found % peers, found / peers, gpus->replica_count, gpus->peer_count,
                      gpus->peer_count == 1 ? "" : "s");
}

harpe_status harpe_replica_profiles_parse_csv(const char *text, size_t length, const char *name,
                                              harpe_replica_profiles **out, harpe_error *error) {
    if (!out)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "parsing the profiles of replicas needs a place for the result");
    harpe_profile_gpus gpus = {0};
    harpe_profile_rows rows = {0};
    harpe_replica_profiles *made = NULL;
    harpe_status status = harpe_profile_csv_parse(text, length, name, &gpus, &rows, error);
    if (status == HARPE_OK) {
        qsort(gpus.rows, rows.count, sizeof *gpus.rows, compare_rows);
        status = check_gpus(&gpus, rows.count, name, error);
    }
    if (status == HARPE_OK)
        status = begin_profiles(gpus.replica_count, gpus.peer_count, &made, error);
    for (size_t g = 0, at = 0; status == HARPE_OK && at < rows.count; g++)
        status = make_gpu(&gpus, &rows, &at, name, &made->gpus[g], error);
    if (status == HARPE_OK) status = check_same_instructions(made, name, error);
    if (status == HARPE_OK)
        *out = made;
    else
        harpe_replica_profiles_free(made);
    harpe_profile_rows_clear(&rows);
    free(gpus.rows);
    return status;
}

harpe_status harpe_replica_profiles_read_csv(const char *path, harpe_replica_profiles **out,
                                             harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_profile_csv_load(path, &text, &length, error);
    if (status == HARPE_OK)
        status = harpe_replica_profiles_parse_csv(text, length, path, out, error);
    free(text);
    return status;
}
