/* SPDX-License-Identifier: Apache-2.0 */
/* Learns the curves of each replica's GPUs, and compares them. The noise of a GPU's time is
 * measured from round to round, because GPUs differ for a moment in ways that the spread within a
 * round does not show. */
#include "server/scheduler/perseus/explorer_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "server/scheduler/builtin.h"

/* Before any round shows the noise: an assumption, which counts as two values. */
#define USUAL_NOISE 0.01
#define USUAL_FREEDOM 2.0
#define FREEDOM_MAX 400.0
/* The curves forget older rounds, so that more rounds do not make a mean more certain. */
#define ROUNDS_MAX 25.0
/* Smaller differences are not worth a plan. */
#define TIME_MIN 0.01
#define ENERGY_MIN 0.05
/* A difference ends below this share of its threshold. */
#define END_SHARE 0.5
/* A measurement at one clock that differs more from the GPU's factor is no noise. */
#define CLOCK_MIN 0.005
#define CLOCK_ERRORS 3.0
/* Rounds in a row until a change is certain. A GPU that changes to and fro needs more. */
enum { STREAK = 2, PATIENCE_MAX = 6, CALM_ROUNDS = 32 };

enum { TIME, ENERGY, QUANTITIES };

/* ---- Making it ------------------------------------------------------------------------------- */

static harpe_clock_curve *curve_at(const harpe_replica_curves *self, int replica, int entry) {
    return &self->curves[(size_t)replica * self->pipeline->entry_count + (size_t)entry];
}

static double *change_at(const harpe_replica_curves *self, int replica, int entry) {
    return &self->change[QUANTITIES *
                         ((size_t)replica * self->pipeline->entry_count + (size_t)entry)];
}

void harpe_replica_curves_free(harpe_replica_curves *self) {
    if (!self) return;
    size_t count = (size_t)self->replica_count * self->pipeline->entry_count;
    for (size_t i = 0; self->curves && i < count; i++)
        harpe_clock_curve_free(&self->curves[i]);
    free(self->curves);
    free(self->change);
    free(self->gpus);
    free(self);
}

static bool make_curves(harpe_replica_curves *self, const harpe_explorer *explorer) {
    for (int r = 0; r < self->replica_count; r++)
        for (size_t e = 0; e < self->pipeline->entry_count; e++) {
            const harpe_clock_curve *shared = &explorer->entries[e].curve;
            if (!harpe_clock_curve_init(curve_at(self, r, (int)e), shared->mhz, shared->count))
                return false;
        }
    return true;
}

harpe_status harpe_replica_curves_new(const harpe_online_pipeline *pipeline,
                                      const harpe_explorer *explorer, int replica_count,
                                      harpe_replica_curves **out, harpe_error *error) {
    harpe_replica_curves *self = harpe_calloc(1, sizeof *self);
    if (!self) return harpe_fail_memory(error);
    size_t replicas = (size_t)replica_count, ranks = (size_t)pipeline->rank_count;
    size_t curves = replicas * pipeline->entry_count;
    self->pipeline = pipeline;
    self->replica_count = replica_count;
    self->rank_count = pipeline->rank_count;
    self->curves = harpe_calloc(curves, sizeof *self->curves);
    self->change = harpe_calloc(QUANTITIES * curves, sizeof *self->change);
    self->gpus = harpe_calloc(replicas * ranks, sizeof *self->gpus);
    self->time_noise = self->energy_noise =
        (harpe_explorer_noise){USUAL_FREEDOM * USUAL_NOISE * USUAL_NOISE, USUAL_FREEDOM};
    bool is_made = self->curves && self->change && self->gpus;
    if (!is_made || !make_curves(self, explorer)) {
        harpe_replica_curves_free(self);
        return harpe_fail_memory(error);
    }
    *out = self;
    return HARPE_OK;
}

/* ---- Noise ----------------------------------------------------------------------------------- */

static void add_noise(harpe_explorer_noise *noise, double squares, double freedom) {
    if (noise->freedom > FREEDOM_MAX) {
        noise->squares *= FREEDOM_MAX / noise->freedom;
        noise->freedom = FREEDOM_MAX;
    }
    noise->squares += squares;
    noise->freedom += freedom;
}

static double deviation_of(const harpe_explorer_noise *noise) {
    return noise->freedom > 0 ? sqrt(noise->squares / noise->freedom) : USUAL_NOISE;
}

/* Returns the number of standard errors that a difference must exceed. A normal value exceeds z
 * standard deviations with a probability of at most exp(-z^2 / 2). */
static double errors_of(const harpe_replica_curves *self) {
    double gpus = (double)self->replica_count * self->rank_count;
    return sqrt(2 * log(gpus / HARPE_REPLICA_FALSE_ALARM));
}

double harpe_replica_curves_error(const harpe_replica_curves *self, int replica, int rank) {
    const harpe_replica_gpu *gpu = harpe_replica_gpu_at(self, replica, rank);
    return deviation_of(&self->time_noise) / sqrt(fmax(1, gpu->rounds));
}

/* ---- A round --------------------------------------------------------------------------------- */

/* Sums of a GPU, or of an entry, over the runs whose clock is known. */
typedef struct sums {
    double measured[QUANTITIES], expected[QUANTITIES];
} sums;

static void add_run(sums *to, const harpe_online_clock_runs *runs, const harpe_clock_point *known) {
    double count = (double)runs->run_count;
    to->measured[TIME] += count * runs->mean.time_s;
    to->measured[ENERGY] += count * runs->mean.energy_j;
    to->expected[TIME] += count * known->time_s;
    to->expected[ENERGY] += count * known->energy_j;
}

static double log_of(const sums *sum, int quantity) {
    return sum->expected[quantity] > 0 ? log(sum->measured[quantity] / sum->expected[quantity]) : 0;
}

static sums sum_entry(const harpe_replica_curves *self, const harpe_replica_runs *round,
                      int replica, int entry) {
    sums sum = {0};
    const harpe_clock_curve *curve = curve_at(self, replica, entry);
    for (size_t k = 0; k < round->count; k++) {
        const harpe_online_clock_runs *runs = &round->runs[k];
        if (runs->entry != entry || !(runs->mean.time_s > 0)) continue;
        size_t i = harpe_clock_curve_find(curve, runs->frequency_mhz);
        if (i < curve->count && curve->points[i].weight > 0) add_run(&sum, runs, &curve->points[i]);
    }
    return sum;
}

/* Finds the change of each GPU and of each of its instructions since their curves. `energy_log`
 * receives that of the energies, one per replica. */
static void find_changes(harpe_replica_curves *self, const harpe_replica_runs *round, int rank,
                         double *energy_log) {
    for (int r = 0; r < self->replica_count; r++) {
        harpe_replica_gpu *gpu = harpe_replica_gpu_at(self, r, rank);
        sums all = {0};
        for (size_t e = 0; e < self->pipeline->entry_count; e++) {
            if (self->pipeline->entries[e].pipeline_rank != rank) continue;
            sums own = sum_entry(self, &round[r], r, (int)e);
            for (int q = 0; q < QUANTITIES; q++) {
                change_at(self, r, (int)e)[q] = log_of(&own, q);
                all.measured[q] += own.measured[q];
                all.expected[q] += own.expected[q];
            }
        }
        gpu->is_round_known = all.expected[TIME] > 0;
        gpu->round_log = log_of(&all, TIME);
        energy_log[r] = log_of(&all, ENERGY);
    }
}

static int rounds_to_change(const harpe_replica_curves *self, int streak) {
    return streak > 0 ? STREAK << self->patience : STREAK;
}

/* Counts the rounds in a row in which a GPU has clearly another time. Returns true if it has
 * changed for certain. */
static bool count_streak(const harpe_replica_curves *self, harpe_replica_gpu *gpu) {
    double error = deviation_of(&self->time_noise) * sqrt(1 + 1 / fmax(1, gpu->rounds));
    double threshold = fmax(TIME_MIN, errors_of(self) * error);
    bool is_clear = gpu->is_round_known && gpu->rounds > 0 && fabs(gpu->round_log) > threshold;
    if (!is_clear)
        gpu->streak = 0;
    else if (gpu->round_log > 0)
        gpu->streak = gpu->streak > 0 ? gpu->streak + 1 : 1;
    else
        gpu->streak = gpu->streak < 0 ? gpu->streak - 1 : -1;
    return abs(gpu->streak) >= rounds_to_change(self, gpu->streak);
}

/* Learns the noise from how the replicas differ. Changes of all replicas cancel out, and GPUs that
 * may just have changed do not count. */
static void learn_noise(harpe_replica_curves *self, int rank, const double *energy_log) {
    double count = 0, sum[QUANTITIES] = {0}, squares[QUANTITIES] = {0};
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < self->replica_count; r++) {
            const harpe_replica_gpu *gpu = harpe_replica_gpu_at(self, r, rank);
            double logs[QUANTITIES] = {gpu->round_log, energy_log[r]};
            if (!gpu->is_round_known || gpu->streak != 0) continue;
            count += pass == 0;
            for (int q = 0; q < QUANTITIES; q++) {
                double from_mean = logs[q] - sum[q] / fmax(1, count);
                if (pass == 0)
                    sum[q] += logs[q];
                else
                    squares[q] += from_mean * from_mean;
            }
        }
    if (count < 2) return;
    add_noise(&self->time_noise, squares[TIME], count - 1);
    add_noise(&self->energy_noise, squares[ENERGY], count - 1);
}

/* Moves the whole curves of a GPU: what was measured at some clocks holds for all. */
static void move_curves(harpe_replica_curves *self, int replica, int rank) {
    for (size_t e = 0; e < self->pipeline->entry_count; e++) {
        if (self->pipeline->entries[e].pipeline_rank != rank) continue;
        harpe_clock_curve *curve = curve_at(self, replica, (int)e);
        const double *change = change_at(self, replica, (int)e);
        for (size_t i = 0; i < curve->count; i++) {
            curve->points[i].time_s *= exp(change[TIME]);
            curve->points[i].energy_j *= exp(change[ENERGY]);
        }
    }
    harpe_replica_gpu *gpu = harpe_replica_gpu_at(self, replica, rank);
    gpu->rounds = 0; /* learn() counts this round */
    gpu->streak = 0;
    gpu->is_round_known = false; /* a change is no noise */
}

static void learn(harpe_replica_curves *self, const harpe_replica_runs *round, int replica,
                  int rank) {
    for (size_t k = 0; k < round->count; k++) {
        const harpe_online_clock_runs *runs = &round->runs[k];
        if (self->pipeline->entries[runs->entry].pipeline_rank != rank) continue;
        harpe_clock_curve *curve = curve_at(self, replica, runs->entry);
        harpe_clock_share share = {harpe_clock_curve_find(curve, runs->frequency_mhz), 1};
        if (share.clock == curve->count) continue;
        double weight = (double)(runs->run_count * runs->iteration_count);
        harpe_clock_curve_observe(curve, &share, 1, runs->mean.time_s, runs->mean.energy_j, weight,
                                  0);
        if (runs->iteration_count > 2 && runs->spread > 0)
            add_noise(&self->run_noise, runs->spread * runs->spread * weight, weight);
    }
    harpe_replica_gpu *gpu = harpe_replica_gpu_at(self, replica, rank);
    if (gpu->rounds < ROUNDS_MAX) gpu->rounds++;
}

bool harpe_replica_curves_observe(harpe_replica_curves *self, const harpe_replica_runs *round) {
    bool has_changed = false, has_slowed = false;
    double *energy_log = harpe_calloc((size_t)self->replica_count, sizeof *energy_log);
    if (!energy_log) return false; /* the round is not used */
    if (self->patience > 0 && ++self->calm > (double)(CALM_ROUNDS << self->patience)) {
        self->patience--;
        self->calm = 0;
    }
    for (int p = 0; p < self->rank_count; p++) {
        find_changes(self, round, p, energy_log);
        for (int r = 0; r < self->replica_count; r++) {
            harpe_replica_gpu *gpu = harpe_replica_gpu_at(self, r, p);
            bool is_certain = count_streak(self, gpu);
            has_slowed = has_slowed || (is_certain && gpu->streak > 0);
            if (is_certain) move_curves(self, r, p);
            has_changed = has_changed || is_certain;
            if (gpu->streak == 0) learn(self, &round[r], r, p);
        }
        learn_noise(self, p, energy_log);
    }
    free(energy_log);
    if (has_slowed && self->patience < PATIENCE_MAX) {
        self->patience++; /* not before: all GPUs of a round need the same number of rounds */
        self->calm = 0;
    }
    return has_changed;
}

/* ---- Points ---------------------------------------------------------------------------------- */

/* Finds the mean logs of a replica's time and energy relative to those of all replicas. */
static bool find_factor(const harpe_clock_curve *curve, const harpe_explorer_entry *list,
                        double *factor) {
    double weights = 0, sum[QUANTITIES] = {0};
    for (size_t k = 0; k < list->count; k++) {
        const harpe_profile_point *swept = &list->points[k];
        size_t i = harpe_clock_curve_find(curve, swept->frequency_mhz);
        if (i == curve->count || !(curve->points[i].weight > 0)) continue;
        weights += curve->points[i].weight;
        sum[TIME] += curve->points[i].weight * log(curve->points[i].time_s / swept->time_s);
        sum[ENERGY] += curve->points[i].weight * log(curve->points[i].energy_j / swept->energy_j);
    }
    for (int q = 0; q < QUANTITIES; q++)
        factor[q] = weights > 0 ? sum[q] / weights : 0;
    return weights > 0;
}

/* Returns true if the own measurement at a clock is not what the factor says. It may come from a
 * single round. */
static bool is_other(double own, double by_factor, double weight,
                     const harpe_explorer_noise *round_noise,
                     const harpe_explorer_noise *run_noise) {
    double error = hypot(deviation_of(round_noise), deviation_of(run_noise) / sqrt(weight));
    return fabs(log(own / by_factor)) > fmax(CLOCK_MIN, CLOCK_ERRORS * error);
}

bool harpe_replica_curves_point(const harpe_replica_curves *self, const harpe_explorer *explorer,
                                int replica, int entry, int frequency_mhz,
                                harpe_profile_point *out) {
    const harpe_explorer_entry *list = &explorer->entries[entry];
    const harpe_clock_curve *curve = curve_at(self, replica, entry);
    size_t k = 0;
    while (k < list->count && list->points[k].frequency_mhz != frequency_mhz)
        k++;
    if (k == list->count) return false;
    double factor[QUANTITIES];
    *out = list->points[k];
    if (!find_factor(curve, list, factor)) {
        out->energy_j /= self->replica_count;
        return true;
    }
    size_t i = harpe_clock_curve_find(curve, frequency_mhz);
    const harpe_clock_point *own = i < curve->count ? &curve->points[i] : NULL;
    out->time_s *= exp(factor[TIME]);
    out->energy_j *= exp(factor[ENERGY]);
    if (!own || !(own->weight > 0)) return true;
    if (is_other(own->time_s, out->time_s, own->weight, &self->time_noise, &self->run_noise))
        out->time_s = own->time_s;
    if (is_other(own->energy_j, out->energy_j, own->weight, &self->energy_noise, &self->run_noise))
        out->energy_j = own->energy_j;
    return true;
}

/* ---- Comparing ------------------------------------------------------------------------------- */

/* Returns the median; of an even number of values, the lower of the two in the middle. */
static double lower_median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, harpe_compare_doubles);
    return values[(count - 1) / 2];
}

/* Sums the times and energies of all instructions of a GPU at these clocks. */
static bool sum_gpu(const harpe_replica_curves *self, const harpe_explorer *explorer, int replica,
                    int rank, const int *frequency_mhz, double *sum) {
    const harpe_online_pipeline *pipeline = self->pipeline;
    sum[TIME] = sum[ENERGY] = 0;
    for (size_t i = pipeline->rank_offset[rank]; i < pipeline->rank_offset[rank + 1]; i++) {
        harpe_profile_point point;
        if (!harpe_replica_curves_point(self, explorer, replica, pipeline->entry_of[i],
                                        frequency_mhz[i], &point))
            return false;
        sum[TIME] += point.time_s;
        sum[ENERGY] += point.energy_j;
    }
    return true;
}

static bool is_beyond(const harpe_replica_gpu *gpu, double difference, double minimum,
                      double error) {
    double threshold = fmax(minimum, error);
    return fabs(difference) > (gpu->differs ? END_SHARE : 1) * threshold;
}

/* Compares one GPU with the median of the replicas. */
static bool compare_gpu(harpe_replica_curves *self, int replica, int rank, const double *sum,
                        const double *median) {
    harpe_replica_gpu *gpu = harpe_replica_gpu_at(self, replica, rank);
    double errors = errors_of(self) * sqrt(2 / fmax(1, gpu->rounds));
    gpu->time_log = log(sum[TIME] / median[TIME]);
    gpu->energy_log = log(sum[ENERGY] / median[ENERGY]);
    gpu->differs =
        is_beyond(gpu, gpu->time_log, TIME_MIN, errors * deviation_of(&self->time_noise)) ||
        is_beyond(gpu, gpu->energy_log, ENERGY_MIN, errors * deviation_of(&self->energy_noise));
    return gpu->differs;
}

bool harpe_replica_curves_compare(harpe_replica_curves *self, const harpe_explorer *explorer,
                                  const int *frequency_mhz) {
    size_t count = (size_t)self->replica_count;
    double *sum = harpe_calloc(3 * QUANTITIES * count, sizeof *sum), *sorted = NULL;
    bool any = false, is_known = sum != NULL;
    if (sum) sorted = sum + QUANTITIES * count;
    for (int p = 0; p < self->rank_count && is_known; p++) {
        double median[QUANTITIES];
        for (int r = 0; r < self->replica_count && is_known; r++)
            is_known = sum_gpu(self, explorer, r, p, frequency_mhz, &sum[QUANTITIES * r]);
        for (int q = 0; q < QUANTITIES && is_known; q++) {
            for (int r = 0; r < self->replica_count; r++)
                sorted[r] = sum[QUANTITIES * r + q];
            median[q] = lower_median(sorted, self->replica_count);
        }
        for (int r = 0; r < self->replica_count && is_known; r++)
            any = compare_gpu(self, r, p, &sum[QUANTITIES * r], median) || any;
    }
    free(sum);
    return any;
}

/* ---- The stored state ------------------------------------------------------------------------ */

static const harpe_stored_member GPU_MEMBERS[] = {
    HARPE_STORED(harpe_replica_gpu, rounds, 0, ROUNDS_MAX),
    HARPE_STORED(harpe_replica_gpu, streak, -1e6, 1e6),
    HARPE_STORED(harpe_replica_gpu, differs, 0, 1),
};
static const harpe_stored GPU = HARPE_STORED_TABLE(harpe_replica_gpu, GPU_MEMBERS);

static const harpe_stored_member MEMBERS[] = {
    HARPE_STORED_DOUBLES(harpe_replica_curves, time_noise, HARPE_STORED_COUNT),
    HARPE_STORED_DOUBLES(harpe_replica_curves, energy_noise, HARPE_STORED_COUNT),
    HARPE_STORED_DOUBLES(harpe_replica_curves, run_noise, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_replica_curves, patience, 0, PATIENCE_MAX),
    HARPE_STORED(harpe_replica_curves, calm, HARPE_STORED_COUNT),
};
static const harpe_stored TABLE = HARPE_STORED_TABLE(harpe_replica_curves, MEMBERS);

static size_t curve_count(const harpe_replica_curves *self) {
    return (size_t)self->replica_count * self->pipeline->entry_count;
}

static size_t gpu_count(const harpe_replica_curves *self) {
    return (size_t)self->replica_count * (size_t)self->rank_count;
}

json_t *harpe_replica_curves_save(const harpe_replica_curves *self) {
    json_t *json = harpe_stored_save(&TABLE, self);
    json_t *curves = json_array();
    for (size_t i = 0; i < curve_count(self); i++)
        harpe_stored_append(&curves, harpe_clock_curve_save(&self->curves[i]));
    harpe_stored_add(&json, "curves", curves);
    harpe_stored_add(&json, "gpus", harpe_stored_save_rows(&GPU, self->gpus, gpu_count(self)));
    return json;
}

bool harpe_replica_curves_load(harpe_replica_curves *self, const json_t *json) {
    const json_t *curves = json_object_get(json, "curves");
    bool is_good = json_array_size(curves) == curve_count(self);
    for (size_t i = 0; i < curve_count(self) && is_good; i++)
        is_good = harpe_clock_curve_load(&self->curves[i], json_array_get(curves, i));
    return is_good && harpe_stored_load(&TABLE, self, json) &&
           harpe_stored_load_rows(&GPU, self->gpus, gpu_count(self), json_object_get(json, "gpus"));
}
