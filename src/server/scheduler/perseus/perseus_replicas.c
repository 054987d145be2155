/* SPDX-License-Identifier: Apache-2.0 */
/* Learns the curves of each replica's GPUs, compares the GPUs of a stage, makes plans for replicas
 * that differ, and says what these plans change for the watch and the savings. The tensor parallel
 * GPUs of one stage and replica work in step and count as one GPU. The noise of a GPU's time is
 * measured from round to round, because GPUs differ for a moment in ways that the spread within a
 * round does not show.
 *
 * There is one class of plans for all replicas that are as usual, and one for each replica that
 * differs. A class has the profile of its members: the longest times, and the mean energies.
 * Planning takes time for each class, so the number of classes is limited. Replicas beyond it join
 * the class of those that are as usual, whose profile has the longest times of its members: its
 * plans stay safe. docs/online.md ("Replicas that differ") has the tests and their certainty. */
#include "server/scheduler/perseus/perseus_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "plan/replica_classes.h"
#include "server/scheduler/builtin.h"

enum { CLASSES_MAX = 16 };
/* If a job has more replicas, all of them run the shared plan, because their curves would make the
 * stored state too large. */
enum { REPLICAS_MAX = 64 };

/* The probability that equal GPUs seem to differ in one comparison of all GPUs. */
#define FALSE_ALARM 0.001
/* The noise that is assumed before any round has shown it. The assumption counts as two values. */
#define USUAL_NOISE 0.01
#define USUAL_FREEDOM 2.0
#define FREEDOM_MAX 400.0
/* The curves forget older rounds, so that more rounds do not make a mean more certain. */
#define ROUNDS_MAX 25.0
/* Smaller differences are not worth a plan. */
#define TIME_MIN 0.01
#define ENERGY_MIN 0.05
/* A GPU that differs does so until its difference is below this share of the threshold. */
#define END_SHARE 0.5
/* If a measurement at one clock differs from the GPU's factor by more, the cause is not noise. */
#define CLOCK_MIN 0.005
#define CLOCK_ERRORS 3.0
/* Rounds in a row until a change is certain; more for a GPU that becomes slower again and again. */
enum { STREAK = 2, PATIENCE_MAX = 6, CALM_ROUNDS = 32 };

/* Times that differ by less are taken as equal, because additions round them. */
#define ROUNDING 1e-9
/* The plans of faster replicas end before the slowest replica: this number of standard errors
 * earlier, but at most this share of its time. */
#define MARGIN_ERRORS 2.0
#define MARGIN_MAX 0.01

/* New plans are made when a GPU's time has moved by this share since the last ones. */
#define MOVED 0.005

enum { TIME, ENERGY, QUANTITIES };

/* The GPUs of one stage of one replica. */
typedef struct replica_gpu {
    double rounds;   /* number of rounds at known clocks since the GPU's last change */
    int streak;      /* number of rounds in a row in which the GPU was clearly slower than before;
                      * negative: faster */
    bool differs;    /* the GPU differs from those of the same stage in the other replicas */
    double time_log; /* log of: the GPU's time divided by that of the other replicas' GPUs */
    double planned_log; /* time_log for which the present plans of replicas were made */
    double energy_log;  /* log of: the GPU's energy divided by that of the other replicas' GPUs */
    /* Logs of: time and energy in the last round divided by those of the curve. */
    double round_log[QUANTITIES];
    bool is_round_known;    /* round_log was measured */
    double sum[QUANTITIES]; /* of all instructions, at the clocks at which GPUs are compared */
} replica_gpu;

/* One (stage, instruction) of one replica. */
typedef struct replica_entry {
    harpe_clock_curve curve;
    double change[QUANTITIES]; /* logs of the last round's change */
} replica_entry;

/* The results of one replica in a round: its runs at each clock. */
typedef struct replica_runs {
    harpe_online_clock_runs *runs;
    size_t count;
} replica_runs;

typedef struct replica_class {
    harpe_online_plans *plans;
    size_t chosen;
    double margin; /* the uncertainty of its time, a share */
} replica_class;

typedef struct replica_classes {
    harpe_replica_classes of;
    replica_class *list; /* [of.count]; NULL: all replicas run the shared plan */
    double fastest_s;    /* the shortest time of the slowest class */
    double waiting_w;    /* of all GPUs of a replica while they wait */
} replica_classes;

struct harpe_perseus_replicas {
    const harpe_online_pipeline *pipeline;
    const harpe_explorer *explorer;
    int replica_count, rank_count; /* rank_count: pipeline ranks */
    replica_entry *entries;        /* [replica][entry] */
    replica_gpu *gpus;             /* [replica][pipeline rank] */
    /* The pooled variances of a GPU's time and energy from round to round, and of runs. */
    harpe_noise time_noise, energy_noise, run_noise;
    int patience; /* doubles the rounds after which a GPU counts as slower */
    double calm;  /* rounds since the patience changed */

    replica_classes classes;
    uint64_t plans_number; /* of the shared plans at that time */
    json_t *planned;       /* the curves for which the classes were made, as saved */
    bool has_failed;       /* the last attempt to make classes failed */
    bool is_stale;         /* a GPU has changed, and the classes are not yet made again */
    /* The clocks of this round: [replica][instruction]. */
    bool runs_own;
    int *ran_mhz, *real_mhz;      /* requested clocks; clocks in fact, 0: not known */
    int *shared_mhz, *lowest_mhz; /* [instruction] */
    harpe_online_mean gain;
};

/* ---- Making it ------------------------------------------------------------------------------- */

static replica_entry *entry_at(const harpe_perseus_replicas *own, int replica, int entry) {
    return &own->entries[(size_t)replica * own->pipeline->entry_count + (size_t)entry];
}

static replica_gpu *gpu_at(const harpe_perseus_replicas *own, int replica, int rank) {
    return &own->gpus[(size_t)replica * (size_t)own->rank_count + (size_t)rank];
}

static size_t entry_count(const harpe_perseus_replicas *own) {
    return (size_t)own->replica_count * own->pipeline->entry_count;
}

static size_t gpu_count(const harpe_perseus_replicas *own) {
    return (size_t)own->replica_count * (size_t)own->rank_count;
}

static void clear_classes(replica_classes *self) {
    for (int c = 0; self->list && c < self->of.count; c++)
        harpe_online_plans_free(self->list[c].plans);
    harpe_replica_classes_clear(&self->of);
    free(self->list);
    *self = (replica_classes){.list = NULL};
}

static void drop_classes(harpe_perseus_replicas *own) {
    clear_classes(&own->classes);
    json_decref(own->planned);
    own->planned = NULL;
}

void harpe_perseus_replicas_free(harpe_perseus_replicas *own) {
    if (!own) return;
    drop_classes(own);
    for (size_t i = 0; own->entries && i < entry_count(own); i++)
        harpe_clock_curve_free(&own->entries[i].curve);
    free(own->entries);
    free(own->gpus);
    free(own->ran_mhz);
    free(own);
}

static bool make_curves(harpe_perseus_replicas *own) {
    for (size_t i = 0; i < entry_count(own); i++) {
        const harpe_clock_curve *shared =
            &own->explorer->entries[i % own->pipeline->entry_count].curve;
        if (!harpe_clock_curve_init(&own->entries[i].curve, shared->mhz, shared->count))
            return false;
    }
    return true;
}

/* Frees self->replicas, and makes new ones for the present pipeline. self->replicas stays NULL if
 * the job makes no plans, has only one replica, or has more than REPLICAS_MAX. */
static harpe_status new_replicas(harpe_perseus *self, harpe_error *error) {
    int count = self->job->job->dp_degree;
    size_t instructions = self->pipeline->instruction_count;
    harpe_perseus_replicas_free(self->replicas);
    self->replicas = NULL;
    if (!self->makes_plans || count < 2 || count > REPLICAS_MAX) return HARPE_OK;
    harpe_perseus_replicas *own = harpe_calloc(1, sizeof *own);
    if (!own) return harpe_fail_memory(error);
    *own = (harpe_perseus_replicas){.pipeline = self->pipeline,
                                    .explorer = self->explorer,
                                    .replica_count = count,
                                    .rank_count = self->pipeline->rank_count};
    own->time_noise = own->energy_noise =
        (harpe_noise){USUAL_FREEDOM * USUAL_NOISE * USUAL_NOISE, USUAL_FREEDOM};
    own->entries = harpe_calloc(entry_count(own), sizeof *own->entries);
    own->gpus = harpe_calloc(gpu_count(own), sizeof *own->gpus);
    own->ran_mhz = harpe_calloc(2 * ((size_t)count + 1) * instructions, sizeof *own->ran_mhz);
    if (!own->entries || !own->gpus || !own->ran_mhz || !make_curves(own)) {
        harpe_perseus_replicas_free(own);
        return harpe_fail_memory(error);
    }
    own->real_mhz = own->ran_mhz + (size_t)count * instructions;
    own->shared_mhz = own->real_mhz + (size_t)count * instructions;
    own->lowest_mhz = own->shared_mhz + instructions;
    self->replicas = own;
    return HARPE_OK;
}

/* ---- Noise ----------------------------------------------------------------------------------- */

static void add_noise(harpe_noise *noise, double squares, double freedom) {
    if (noise->freedom > FREEDOM_MAX) {
        noise->squares *= FREEDOM_MAX / noise->freedom;
        noise->freedom = FREEDOM_MAX;
    }
    noise->squares += squares;
    noise->freedom += freedom;
}

static double deviation_of(const harpe_noise *noise) {
    return noise->freedom > 0 ? sqrt(noise->squares / noise->freedom) : USUAL_NOISE;
}

/* Returns the number of standard errors that a difference must exceed. A normal value exceeds z
 * standard deviations with a probability of at most exp(-z^2 / 2). */
static double errors_of(const harpe_perseus_replicas *self) {
    double gpus = (double)self->replica_count * self->rank_count;
    return sqrt(2 * log(gpus / FALSE_ALARM));
}

/* Returns the relative standard error of a GPU's time. */
static double error_of(const harpe_perseus_replicas *self, const replica_gpu *gpu) {
    return deviation_of(&self->time_noise) / sqrt(fmax(1, gpu->rounds));
}

/* ---- A round --------------------------------------------------------------------------------- */

/* Sums of a GPU, or of an entry, over the runs whose clock is known. */
typedef struct sums {
    double measured[QUANTITIES], expected[QUANTITIES];
} sums;

static double log_of(const sums *sum, int quantity) {
    return sum->expected[quantity] > 0 ? log(sum->measured[quantity] / sum->expected[quantity]) : 0;
}

static sums sum_entry(const harpe_perseus_replicas *self, const replica_runs *round, int replica,
                      int entry) {
    sums sum = {0};
    const harpe_clock_curve *curve = &entry_at(self, replica, entry)->curve;
    for (size_t k = 0; k < round->count; k++) {
        const harpe_online_clock_runs *runs = &round->runs[k];
        if (runs->entry != entry || !(runs->mean.time_s > 0)) continue;
        size_t i = harpe_clock_curve_find(curve, runs->frequency_mhz);
        double count = (double)runs->run_count;
        if (i == curve->count || !(curve->points[i].weight > 0)) continue;
        sum.measured[TIME] += count * runs->mean.time_s;
        sum.measured[ENERGY] += count * runs->mean.energy_j;
        sum.expected[TIME] += count * curve->points[i].time_s;
        sum.expected[ENERGY] += count * curve->points[i].energy_j;
    }
    return sum;
}

/* Finds the change of each GPU and of each of its instructions since their curves. */
static void find_changes(harpe_perseus_replicas *self, const replica_runs *round, int rank) {
    for (int r = 0; r < self->replica_count; r++) {
        replica_gpu *gpu = gpu_at(self, r, rank);
        sums all = {0};
        for (size_t e = 0; e < self->pipeline->entry_count; e++) {
            if (self->pipeline->entries[e].pipeline_rank != rank) continue;
            sums own = sum_entry(self, &round[r], r, (int)e);
            for (int q = 0; q < QUANTITIES; q++) {
                entry_at(self, r, (int)e)->change[q] = log_of(&own, q);
                all.measured[q] += own.measured[q];
                all.expected[q] += own.expected[q];
            }
        }
        gpu->is_round_known = all.expected[TIME] > 0;
        for (int q = 0; q < QUANTITIES; q++)
            gpu->round_log[q] = log_of(&all, q);
    }
}

/* Counts the rounds in a row in which the time of a GPU has clearly changed. Returns true if the
 * change is certain. */
static bool count_streak(const harpe_perseus_replicas *self, replica_gpu *gpu) {
    double error = deviation_of(&self->time_noise) * sqrt(1 + 1 / fmax(1, gpu->rounds));
    double threshold = fmax(TIME_MIN, errors_of(self) * error);
    bool is_clear =
        gpu->is_round_known && gpu->rounds > 0 && fabs(gpu->round_log[TIME]) > threshold;
    if (!is_clear)
        gpu->streak = 0;
    else if (gpu->round_log[TIME] > 0)
        gpu->streak = gpu->streak > 0 ? gpu->streak + 1 : 1;
    else
        gpu->streak = gpu->streak < 0 ? gpu->streak - 1 : -1;
    return abs(gpu->streak) >= (gpu->streak > 0 ? STREAK << self->patience : STREAK);
}

/* Learns the noise from how the replicas differ. Changes of all replicas cancel out, and GPUs that
 * may just have changed do not count. */
static void learn_noise(harpe_perseus_replicas *self, int rank) {
    double count = 0, sum[QUANTITIES] = {0}, squares[QUANTITIES] = {0};
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < self->replica_count; r++) {
            const replica_gpu *gpu = gpu_at(self, r, rank);
            if (!gpu->is_round_known || gpu->streak != 0) continue;
            count += pass == 0;
            for (int q = 0; q < QUANTITIES; q++) {
                double from_mean = gpu->round_log[q] - sum[q] / fmax(1, count);
                if (pass == 0)
                    sum[q] += gpu->round_log[q];
                else
                    squares[q] += from_mean * from_mean;
            }
        }
    if (count < 2) return;
    add_noise(&self->time_noise, squares[TIME], count - 1);
    add_noise(&self->energy_noise, squares[ENERGY], count - 1);
}

/* Applies the change that was measured at some clocks to the curves of a GPU at all clocks. */
static void move_curves(harpe_perseus_replicas *self, int replica, int rank) {
    for (size_t e = 0; e < self->pipeline->entry_count; e++) {
        if (self->pipeline->entries[e].pipeline_rank != rank) continue;
        harpe_clock_curve *curve = &entry_at(self, replica, (int)e)->curve;
        const double *change = entry_at(self, replica, (int)e)->change;
        for (size_t i = 0; i < curve->count; i++) {
            curve->points[i].time_s *= exp(change[TIME]);
            curve->points[i].energy_j *= exp(change[ENERGY]);
        }
    }
    replica_gpu *gpu = gpu_at(self, replica, rank);
    gpu->rounds = 0; /* learn_runs() counts this round */
    gpu->streak = 0;
    gpu->is_round_known = false; /* a change is no noise */
}

static void learn_runs(harpe_perseus_replicas *self, const replica_runs *round, int replica,
                       int rank) {
    for (size_t k = 0; k < round->count; k++) {
        const harpe_online_clock_runs *runs = &round->runs[k];
        if (self->pipeline->entries[runs->entry].pipeline_rank != rank) continue;
        harpe_clock_curve *curve = &entry_at(self, replica, runs->entry)->curve;
        harpe_clock_share share = {harpe_clock_curve_find(curve, runs->frequency_mhz), 1};
        if (share.clock == curve->count) continue;
        double weight = (double)(runs->run_count * runs->iteration_count);
        harpe_clock_curve_observe(curve, &share, 1, runs->mean.time_s, runs->mean.energy_j, weight,
                                  0);
        if (runs->iteration_count > 2 && runs->spread > 0)
            add_noise(&self->run_noise, runs->spread * runs->spread * weight, weight);
    }
    replica_gpu *gpu = gpu_at(self, replica, rank);
    if (gpu->rounds < ROUNDS_MAX) gpu->rounds++;
}

/* Learns from a round. `round` has the runs of each replica. Returns true if the time of a GPU has
 * changed by more than noise explains. The curves of this GPU then have the new time. */
static bool learn_round(harpe_perseus_replicas *self, const replica_runs *round) {
    bool has_changed = false, has_slowed = false;
    if (self->patience > 0 && ++self->calm > (double)(CALM_ROUNDS << self->patience)) {
        self->patience--;
        self->calm = 0;
    }
    for (int p = 0; p < self->rank_count; p++) {
        find_changes(self, round, p);
        for (int r = 0; r < self->replica_count; r++) {
            replica_gpu *gpu = gpu_at(self, r, p);
            bool is_certain = count_streak(self, gpu);
            has_slowed = has_slowed || (is_certain && gpu->streak > 0);
            if (is_certain) move_curves(self, r, p);
            has_changed = has_changed || is_certain;
            if (gpu->streak == 0) learn_runs(self, &round[r], r, p);
        }
        learn_noise(self, p);
    }
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

/* Returns true if a GPU's own measurement at a clock clearly differs from the estimate by its
 * factor. The measurement may come from a single round. */
static bool is_other(double own, double by_factor, double weight, const harpe_noise *round_noise,
                     const harpe_noise *run_noise) {
    double error = hypot(deviation_of(round_noise), deviation_of(run_noise) / sqrt(weight));
    return fabs(log(own / by_factor)) > fmax(CLOCK_MIN, CLOCK_ERRORS * error);
}

/* Estimates time and energy of one run of an entry on a replica at a clock: the explorer's mean
 * over all replicas, times the usual ratio of this replica to the mean. If this replica was
 * measured at this clock, and the measurement clearly differs from the estimate, the result is the
 * measurement. harpe_replica_profiles_smooth removes noise in the same way. Returns false if the
 * clock was not measured. */
static bool find_point(const harpe_perseus_replicas *self, int replica, int entry,
                       int frequency_mhz, harpe_profile_point *out) {
    const harpe_explorer_entry *list = &self->explorer->entries[entry];
    const harpe_clock_curve *curve = &entry_at(self, replica, entry)->curve;
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

/* Sums the points of a GPU's instructions at these clocks, for one entry or for all (-1). Leaves
 * out clocks that were not measured; returns false if there is such a clock. */
static bool sum_points(const harpe_perseus_replicas *self, int replica, int rank, int entry,
                       const int *frequency_mhz, double sum[QUANTITIES]) {
    const harpe_online_pipeline *pipeline = self->pipeline;
    bool are_known = true;
    sum[TIME] = sum[ENERGY] = 0;
    for (size_t i = pipeline->rank_offset[rank]; i < pipeline->rank_offset[rank + 1]; i++) {
        harpe_profile_point point = {0};
        if (entry >= 0 && pipeline->entry_of[i] != entry) continue;
        are_known &= find_point(self, replica, pipeline->entry_of[i], frequency_mhz[i], &point);
        sum[TIME] += point.time_s;
        sum[ENERGY] += point.energy_j;
    }
    return are_known;
}

/* ---- Comparing ------------------------------------------------------------------------------- */

/* Returns the median of the sums of a stage's GPUs; of an even number of them, the lower of the two
 * in the middle. */
static double lower_median(const harpe_perseus_replicas *self, int rank, int quantity) {
    double sorted[REPLICAS_MAX];
    for (int r = 0; r < self->replica_count; r++)
        sorted[r] = gpu_at(self, r, rank)->sum[quantity];
    qsort(sorted, (size_t)self->replica_count, sizeof *sorted, harpe_compare_doubles);
    return sorted[(self->replica_count - 1) / 2];
}

static bool is_beyond(const replica_gpu *gpu, double difference, double minimum, double error) {
    double threshold = fmax(minimum, error);
    return fabs(difference) > (gpu->differs ? END_SHARE : 1) * threshold;
}

/* Compares the GPUs of each stage, and sets `differs` of each GPU. `frequency_mhz` has one clock
 * for each instruction. A GPU counts as different until its difference falls below half of the
 * threshold. Returns true if any GPU differs. */
static bool compare_gpus(harpe_perseus_replicas *self, const int *frequency_mhz) {
    bool any = false;
    for (int p = 0; p < self->rank_count; p++) {
        for (int r = 0; r < self->replica_count; r++)
            if (!sum_points(self, r, p, -1, frequency_mhz, gpu_at(self, r, p)->sum)) return any;
        double median_s = lower_median(self, p, TIME), median_j = lower_median(self, p, ENERGY);
        for (int r = 0; r < self->replica_count; r++) {
            replica_gpu *gpu = gpu_at(self, r, p);
            double errors = errors_of(self) * sqrt(2 / fmax(1, gpu->rounds));
            gpu->time_log = log(gpu->sum[TIME] / median_s);
            gpu->energy_log = log(gpu->sum[ENERGY] / median_j);
            gpu->differs =
                is_beyond(gpu, gpu->time_log, TIME_MIN, errors * deviation_of(&self->time_noise)) ||
                is_beyond(gpu, gpu->energy_log, ENERGY_MIN,
                          errors * deviation_of(&self->energy_noise));
            any = any || gpu->differs;
        }
    }
    return any;
}

/* ---- Classes --------------------------------------------------------------------------------- */

/* Makes one class of the replicas that are as usual, and one for each other replica. */
static harpe_status sort_into_classes(replica_classes *self, const harpe_perseus_replicas *own,
                                      harpe_error *error) {
    int like[REPLICAS_MAX], own_count = 0, usual = -1;
    for (int r = 0; r < own->replica_count; r++) {
        bool is_own = false;
        for (int p = 0; p < own->rank_count && own_count + 1 < CLASSES_MAX; p++)
            is_own = is_own || gpu_at(own, r, p)->differs;
        own_count += is_own;
        if (!is_own && usual < 0) usual = r;
        like[r] = is_own ? r : usual;
    }
    return harpe_replica_classes_init(&self->of, like, own->replica_count, error);
}

static double margin_of(const replica_classes *self, const harpe_perseus_replicas *own, int class) {
    double error = 0;
    for (size_t g = 0; g < gpu_count(own); g++)
        if (self->of.class_of[g / (size_t)own->rank_count] == class)
            error = fmax(error, error_of(own, &own->gpus[g]));
    return fmin(MARGIN_MAX, MARGIN_ERRORS * error);
}

/* ---- Profiles -------------------------------------------------------------------------------- */

static harpe_profile_point point_of_class(const harpe_perseus *job, const replica_classes *self,
                                          int class, int entry, int frequency_mhz) {
    harpe_profile_point sum = {.frequency_mhz = frequency_mhz};
    for (int r = 0; r < self->of.replica_count; r++) {
        harpe_profile_point own;
        if (self->of.class_of[r] != class ||
            !find_point(job->replicas, r, entry, frequency_mhz, &own))
            continue;
        sum.time_s = fmax(sum.time_s, own.time_s);
        sum.energy_j += own.energy_j / self->of.member_count[class];
    }
    return sum;
}

static harpe_status make_profile(const harpe_perseus *job, const replica_classes *self, int class,
                                 harpe_profile **out, harpe_error *error) {
    harpe_measurement *rows;
    size_t count, at = 0;
    harpe_status status =
        harpe_explorer_rows(job->explorer, job->job->job->tp_degree, NULL, &rows, &count, error);
    if (status != HARPE_OK) return status;
    for (size_t e = 0; e < job->pipeline->entry_count; e++)
        for (size_t k = 0; k < job->explorer->entries[e].count; k++, at++) {
            harpe_profile_point point =
                point_of_class(job, self, class, (int)e, rows[at].frequency_mhz);
            rows[at].time_s = point.time_s;
            rows[at].energy_j = point.energy_j;
        }
    status = harpe_profile_new(rows, count, out, error);
    free(rows);
    return status;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

static harpe_status plan_class(const harpe_perseus *job, replica_classes *self, int class,
                               harpe_error *error) {
    harpe_profile *profile;
    replica_class *own = &self->list[class];
    harpe_status status = make_profile(job, self, class, &profile, error);
    if (status != HARPE_OK) return status;
    status = harpe_online_plans_new(job->pipeline, profile, job->blocking_powers_w, job->args.plans,
                                    0, &own->plans, error);
    harpe_profile_free(profile);
    if (status != HARPE_OK) return status;
    own->margin = margin_of(self, job->replicas, class);
    self->fastest_s = fmax(self->fastest_s, harpe_plan_set_at(own->plans->set, 0)->time_s);
    return HARPE_OK;
}

/* ---- Choosing -------------------------------------------------------------------------------- */

static const harpe_plan *chosen_of(const replica_class *class) {
    return harpe_plan_set_at(class->plans->set, class->chosen);
}

/* Computes time and energy of the job's iteration minus those with `shared_mhz` on all replicas. */
static harpe_status gain_of_classes(const replica_classes *self, const int *shared_mhz,
                                    harpe_online_mean *out, harpe_error *error) {
    harpe_replica_run own[CLASSES_MAX], shared[CLASSES_MAX];
    for (int c = 0; c < self->of.count; c++) {
        harpe_plan plan;
        harpe_status status =
            harpe_online_plans_evaluate(self->list[c].plans, shared_mhz, &plan, error);
        if (status != HARPE_OK) return status;
        const harpe_plan *chosen = chosen_of(&self->list[c]);
        own[c] = (harpe_replica_run){chosen->time_s, chosen->energy_j, self->waiting_w};
        shared[c] = (harpe_replica_run){plan.time_s, plan.energy_j, self->waiting_w};
    }
    const int *class_of = self->of.class_of;
    harpe_replica_total with = harpe_replica_runs_total(own, class_of, self->of.replica_count);
    harpe_replica_total without =
        harpe_replica_runs_total(shared, class_of, self->of.replica_count);
    *out = (harpe_online_mean){with.time_s - without.time_s, with.energy_j - without.energy_j};
    return HARPE_OK;
}

/* ---- Clocks of a round ----------------------------------------------------------------------- */

static void find_lowest(harpe_perseus_replicas *own, size_t instructions) {
    memcpy(own->lowest_mhz, own->shared_mhz, instructions * sizeof *own->lowest_mhz);
    for (int r = 0; r < own->replica_count; r++)
        for (size_t i = 0; i < instructions; i++) {
            int mhz = own->ran_mhz[(size_t)r * instructions + i];
            if (mhz < own->lowest_mhz[i]) own->lowest_mhz[i] = mhz;
        }
}

/* Chooses the slowest plan of each class that ends within the time that the requests allow. A class
 * that is faster keeps the uncertainty of its time as a reserve. */
static void choose_plans(harpe_perseus *self) {
    replica_classes *classes = &self->replicas->classes;
    double allowed_s =
        harpe_online_allowed_s(classes->fastest_s, self->plans->undisturbed_s, self->args.slowdown,
                               &self->requests, harpe_perseus_outside(self));
    for (int c = 0; c < classes->of.count; c++) {
        replica_class *class = &classes->list[c];
        const harpe_plan_set *set = class->plans->set;
        double reserve_s = allowed_s * (1 - class->margin);
        double limit_s = fmax(reserve_s, harpe_plan_set_at(set, 0)->time_s) * (1 + ROUNDING);
        class->chosen = 0;
        while (class->chosen + 1 < harpe_plan_set_count(set) &&
               harpe_plan_set_at(set, class->chosen + 1)->time_s <= limit_s)
            class->chosen++;
    }
}

harpe_status harpe_perseus_replicas_begin_round(harpe_perseus *self, const int *shared_mhz,
                                                harpe_error *error) {
    harpe_status status = self->replicas ? HARPE_OK : new_replicas(self, error);
    harpe_perseus_replicas *own = self->replicas;
    if (status != HARPE_OK || !own) return status;
    own->runs_own = false;
    own->gain = (harpe_online_mean){0, 0};
    /* A power cap is one sum over all replicas, which the shared plans keep. */
    if (!shared_mhz || !own->classes.list || self->requests.power_cap_w > 0) return HARPE_OK;
    size_t instructions = self->pipeline->instruction_count;
    choose_plans(self);
    status = gain_of_classes(&own->classes, shared_mhz, &own->gain, error);
    if (status != HARPE_OK) return status;
    own->runs_own = true;
    memcpy(own->shared_mhz, shared_mhz, instructions * sizeof *own->shared_mhz);
    for (int r = 0; r < own->replica_count; r++)
        memcpy(own->ran_mhz + (size_t)r * instructions,
               chosen_of(&own->classes.list[own->classes.of.class_of[r]])->frequency_mhz,
               instructions * sizeof *own->ran_mhz);
    find_lowest(own, instructions);
    return HARPE_OK;
}

const int *harpe_perseus_replicas_clocks(const harpe_perseus *self, int replica) {
    const harpe_perseus_replicas *own = self->replicas;
    if (!own || !own->runs_own) return NULL;
    return own->ran_mhz + (size_t)replica * self->pipeline->instruction_count;
}

const int *harpe_perseus_replicas_lowest(const harpe_perseus *self) {
    return self->replicas && self->replicas->runs_own ? self->replicas->lowest_mhz : NULL;
}

harpe_online_mean harpe_perseus_replicas_gain(const harpe_perseus *self) {
    return self->replicas ? self->replicas->gain : (harpe_online_mean){0, 0};
}

/* ---- Results --------------------------------------------------------------------------------- */

/* Computes what a replica would have measured of one run of an entry at the clocks of the shared
 * plan. `ran_mhz` has the clocks of its `runs`. Both values are 0 if it was not measured. */
static harpe_online_mean at_shared_clocks(const harpe_perseus_replicas *own, int replica, int entry,
                                          const replica_runs *runs, const int *ran_mhz) {
    harpe_online_mean measured = {0, 0};
    double ran[QUANTITIES], shared[QUANTITIES];
    double count = (double)own->pipeline->entries[entry].run_count;
    int rank = own->pipeline->entries[entry].pipeline_rank;
    for (size_t k = 0; k < runs->count; k++) {
        if (runs->runs[k].entry != entry) continue;
        if (!(runs->runs[k].mean.time_s > 0)) return (harpe_online_mean){0, 0};
        measured.time_s += (double)runs->runs[k].run_count * runs->runs[k].mean.time_s;
        measured.energy_j += (double)runs->runs[k].run_count * runs->runs[k].mean.energy_j;
    }
    (void)sum_points(own, replica, rank, entry, ran_mhz, ran);
    (void)sum_points(own, replica, rank, entry, own->shared_mhz, shared);
    if (!(ran[TIME] > 0 && ran[ENERGY] > 0)) return (harpe_online_mean){0, 0};
    return (harpe_online_mean){measured.time_s * shared[TIME] / ran[TIME] / count,
                               measured.energy_j * shared[ENERGY] / ran[ENERGY] / count};
}

static void replace_entries(const harpe_perseus_replicas *own, const replica_runs *replicas,
                            harpe_online_round *round) {
    size_t instructions = own->pipeline->instruction_count;
    for (size_t e = 0; e < own->pipeline->entry_count; e++) {
        harpe_online_mean *mean = &round->entries[e];
        if (!(mean->time_s > 0)) continue;
        *mean = (harpe_online_mean){0, 0};
        bool is_measured = true;
        for (int r = 0; r < own->replica_count && is_measured; r++) {
            harpe_online_mean there = at_shared_clocks(own, r, (int)e, &replicas[r],
                                                       own->real_mhz + (size_t)r * instructions);
            is_measured = there.time_s > 0;
            mean->time_s = fmax(mean->time_s, there.time_s);
            mean->energy_j += there.energy_j;
        }
        if (!is_measured) *mean = (harpe_online_mean){0, 0};
    }
}

harpe_status harpe_perseus_replicas_observe(harpe_perseus *self, const int *frequency_mhz,
                                            harpe_online_round *round, harpe_error *error) {
    harpe_perseus_replicas *own = self->replicas;
    replica_runs runs[REPLICAS_MAX] = {0};
    if (!own || round->problem[0] || (!frequency_mhz && !own->runs_own)) return HARPE_OK;
    size_t instructions = own->pipeline->instruction_count;
    harpe_online_reports reports = harpe_perseus_late_reports(self);
    harpe_status status = HARPE_OK;
    for (int r = 0; r < own->replica_count && status == HARPE_OK; r++) {
        const int *asked_mhz =
            own->runs_own ? own->ran_mhz + (size_t)r * instructions : frequency_mhz;
        int *real_mhz = own->real_mhz + (size_t)r * instructions;
        reports.only_replica = r + 1;
        harpe_find_real_clocks(own->pipeline, &reports, asked_mhz, HARPE_MAIN_SHARE_MIN, real_mhz);
        for (size_t i = 0; i < instructions; i++)
            if (real_mhz[i] < 0) real_mhz[i] = 0; /* several clocks, whose shares vary */
        status = harpe_online_round_read_clocks(own->pipeline, &reports, real_mhz, &runs[r].runs,
                                                &runs[r].count, error);
    }
    if (status == HARPE_OK) {
        if (own->runs_own) replace_entries(own, runs, round);
        own->is_stale = learn_round(own, runs) || own->is_stale;
    }
    for (int r = 0; r < own->replica_count; r++)
        free(runs[r].runs);
    return status;
}

/* ---- The stored curves ----------------------------------------------------------------------- */

static const harpe_stored_member GPU_MEMBERS[] = {
    HARPE_STORED(replica_gpu, rounds, 0, ROUNDS_MAX),
    HARPE_STORED(replica_gpu, streak, -1e6, 1e6),
    HARPE_STORED(replica_gpu, differs, 0, 1),
};
static const harpe_stored GPU = HARPE_STORED_TABLE(replica_gpu, GPU_MEMBERS);

static const harpe_stored_member CURVES_MEMBERS[] = {
    HARPE_STORED_DOUBLES(harpe_perseus_replicas, time_noise, HARPE_STORED_COUNT),
    HARPE_STORED_DOUBLES(harpe_perseus_replicas, energy_noise, HARPE_STORED_COUNT),
    HARPE_STORED_DOUBLES(harpe_perseus_replicas, run_noise, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_perseus_replicas, patience, 0, PATIENCE_MAX),
    HARPE_STORED(harpe_perseus_replicas, calm, HARPE_STORED_COUNT),
};
static const harpe_stored CURVES = HARPE_STORED_TABLE(harpe_perseus_replicas, CURVES_MEMBERS);

static json_t *save_curves(const harpe_perseus_replicas *self) {
    json_t *json = harpe_stored_save(&CURVES, self);
    json_t *curves = json_array();
    for (size_t i = 0; i < entry_count(self); i++)
        harpe_stored_append(&curves, harpe_clock_curve_save(&self->entries[i].curve));
    harpe_stored_add(&json, "curves", curves);
    harpe_stored_add(&json, "gpus", harpe_stored_save_rows(&GPU, self->gpus, gpu_count(self)));
    return json;
}

/* Returns false if the data does not fit the job. */
static bool load_curves(harpe_perseus_replicas *self, const json_t *json) {
    const json_t *curves = json_object_get(json, "curves");
    bool is_good = json_array_size(curves) == entry_count(self);
    for (size_t i = 0; i < entry_count(self) && is_good; i++)
        is_good = harpe_clock_curve_load(&self->entries[i].curve, json_array_get(curves, i));
    return is_good && harpe_stored_load(&CURVES, self, json) &&
           harpe_stored_load_rows(&GPU, self->gpus, gpu_count(self), json_object_get(json, "gpus"));
}

/* ---- Planning -------------------------------------------------------------------------------- */

static void log_classes(const harpe_perseus *self) {
    const harpe_perseus_replicas *own = self->replicas;
    size_t most = 0; /* the GPU whose time differs most from the others of its stage */
    double most_log = -1;
    for (size_t g = 0; g < gpu_count(own); g++) {
        if (!own->gpus[g].differs || fabs(own->gpus[g].time_log) <= most_log) continue;
        most = g;
        most_log = fabs(own->gpus[g].time_log);
    }
    const replica_gpu *gpu = &own->gpus[most];
    harpe_perseus_log(
        self, HARPE_LOG_INFO,
        "replicas differ: on pipeline rank %d, data parallel replica %d takes %+.1f %% "
        "time and %+.1f %% energy compared with the others; %d plans for %d replicas, "
        "whose slowest takes at least %s",
        (int)most % own->rank_count, (int)most / own->rank_count, 100 * expm1(gpu->time_log),
        100 * expm1(gpu->energy_log), own->classes.of.count, own->replica_count,
        HARPE_TIME(own->classes.fastest_s));
}

/* Returns true if a GPU's relative time differs from that of the present plans. */
static bool has_moved(const harpe_perseus_replicas *own) {
    for (size_t g = 0; g < gpu_count(own); g++) {
        const replica_gpu *gpu = &own->gpus[g];
        if (fabs(gpu->time_log - gpu->planned_log) > fmax(MOVED, 2 * error_of(own, gpu)))
            return true;
    }
    return false;
}

/* Makes the classes and their plans. */
static harpe_status make_classes(harpe_perseus *self, harpe_error *error) {
    harpe_perseus_replicas *own = self->replicas;
    int gpus = own->rank_count * self->job->job->tp_degree; /* of a replica */
    replica_classes made = {.list = harpe_calloc(CLASSES_MAX, sizeof *made.list),
                            .waiting_w = self->blocking_power_w * gpus};
    json_t *planned = save_curves(own);
    harpe_status status =
        made.list && planned ? sort_into_classes(&made, own, error) : harpe_fail_memory(error);
    for (int c = 0; c < made.of.count && status == HARPE_OK; c++)
        status = plan_class(self, &made, c, error);
    if (status != HARPE_OK) {
        clear_classes(&made);
        json_decref(planned);
        return status;
    }
    drop_classes(own);
    own->classes = made;
    own->planned = planned;
    own->plans_number = self->plans_number;
    own->is_stale = false;
    for (size_t g = 0; g < gpu_count(own); g++)
        own->gpus[g].planned_log = own->gpus[g].time_log;
    choose_plans(self);
    return HARPE_OK;
}

void harpe_perseus_replicas_plan(harpe_perseus *self) {
    harpe_perseus_replicas *own = self->replicas;
    harpe_error reason = {0};
    if (!own || self->phase != HARPE_PERSEUS_PLAN || self->explores_next) return;
    const harpe_plan *shared = harpe_plan_set_at(self->plans->set, harpe_perseus_chosen(self));
    if (!compare_gpus(own, shared->frequency_mhz)) {
        own->is_stale = false;
        if (own->classes.list)
            harpe_perseus_log(self, HARPE_LOG_INFO,
                              "the replicas no longer differ: all run one plan");
        drop_classes(own);
        return;
    }
    bool is_current =
        own->classes.list && own->plans_number == self->plans_number && !own->is_stale;
    if (is_current && !has_moved(own)) return;
    bool is_made = make_classes(self, &reason) == HARPE_OK;
    if (is_made)
        log_classes(self);
    else if (!own->has_failed) /* the next rounds try again, and do not repeat the warning */
        harpe_perseus_log(self, HARPE_LOG_WARNING, "the replicas get no plans of their own: %s",
                          reason.message);
    own->has_failed = !is_made;
    if (!is_made) drop_classes(own);
}

/* ---- The stored state ------------------------------------------------------------------------ */

static const harpe_stored_member MEMBERS[] = {
    HARPE_STORED(harpe_perseus_replicas, is_stale, 0, 1),
    HARPE_STORED(harpe_perseus_replicas, runs_own, 0, 1),
    HARPE_STORED_DOUBLES(harpe_perseus_replicas, gain, HARPE_STORED_ANY),
};
static const harpe_stored TABLE = HARPE_STORED_TABLE(harpe_perseus_replicas, MEMBERS);

json_t *harpe_perseus_replicas_save(const harpe_perseus *self) {
    const harpe_perseus_replicas *own = self->replicas;
    size_t count = self->pipeline->instruction_count;
    json_t *json = harpe_stored_save(&TABLE, own);
    harpe_stored_add(&json, "curves", save_curves(own));
    if (own->planned) harpe_stored_add(&json, "planned", json_incref(own->planned));
    if (!own->runs_own) return json;
    harpe_stored_add(&json, "shared", harpe_stored_save_clocks(own->shared_mhz, count));
    harpe_stored_add(&json, "clocks",
                     harpe_stored_save_clocks(own->ran_mhz, count * (size_t)own->replica_count));
    return json;
}

bool harpe_perseus_replicas_load(harpe_perseus *self, const json_t *json) {
    if (!json) return true; /* no schedule was handed out yet, or the job has one replica */
    if (!self->replicas && new_replicas(self, NULL) != HARPE_OK) return false;
    harpe_perseus_replicas *own = self->replicas;
    size_t count = self->pipeline->instruction_count;
    const json_t *planned = json_object_get(json, "planned");
    if (!own) return true;
    /* First makes the classes again, from the curves from which they were made before. */
    if (planned && !load_curves(own, planned)) return false;
    if (planned) harpe_perseus_replicas_plan(self);
    if (!load_curves(own, json_object_get(json, "curves")) || !harpe_stored_load(&TABLE, own, json))
        return false;
    if (!own->runs_own) return true;
    if (!harpe_stored_load_clocks(own->shared_mhz, count, json_object_get(json, "shared")) ||
        !harpe_stored_load_clocks(own->ran_mhz, count * (size_t)own->replica_count,
                                  json_object_get(json, "clocks")))
        return false;
    find_lowest(own, count);
    return true;
}

/* ---- Showing --------------------------------------------------------------------------------- */

static json_t *show_replica(const harpe_perseus_replicas *own, int replica) {
    json_t *time = json_array(), *energy = json_array(), *differs = json_array();
    for (int p = 0; p < own->rank_count; p++) {
        const replica_gpu *gpu = gpu_at(own, replica, p);
        json_array_append_new(time, json_real(exp(gpu->time_log)));
        json_array_append_new(energy, json_real(exp(gpu->energy_log)));
        json_array_append_new(differs, json_boolean(gpu->differs));
    }
    json_t *plan = json_null();
    if (own->classes.list) {
        const replica_class *class = &own->classes.list[own->classes.of.class_of[replica]];
        const harpe_plan *fastest = harpe_plan_set_at(class->plans->set, 0);
        const harpe_plan *chosen = chosen_of(class);
        plan =
            json_pack("{s:f,s:f,s:f,s:i}", "time", chosen->time_s, "energy", chosen->energy_j,
                      "fastest_time", fastest->time_s, "number", own->classes.of.class_of[replica]);
    }
    return json_pack("{s:o,s:o,s:o,s:o}", "time", time, "energy", energy, "differs", differs,
                     "plan", plan);
}

json_t *harpe_perseus_replicas_show(const harpe_perseus *self) {
    const harpe_perseus_replicas *own = self->replicas;
    json_t *list = json_array();
    for (int r = 0; r < own->replica_count; r++)
        json_array_append_new(list, show_replica(own, r));
    return json_pack("{s:b,s:f,s:[f,f],s:o}", "have_own_plans", own->runs_own, "certainty",
                     1 - FALSE_ALARM, "gain", own->gain.time_s, own->gain.energy_j, "replicas",
                     list);
}
