/* SPDX-License-Identifier: Apache-2.0 */
/* Connects the replicas' curves with the job: reads each replica's results, makes plans when
 * replicas differ, and says what the plans change for the watch and the savings. There is one class
 * of plans for all replicas that are as usual, and one for each replica that differs. A class has
 * the profile of its members: the longest times, and the mean energies. Planning takes time for
 * each class, so the number of classes is limited. Replicas beyond it join the class of those that
 * are as usual, whose profile has the longest times of its members: its plans stay safe. */
#include "server/scheduler/perseus/perseus_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "plan/replica_classes.h"
#include "server/scheduler/builtin.h"
#include "server/scheduler/perseus/explorer_internal.h"

enum { CLASSES_MAX = 16 };
/* More replicas run the shared plan: their curves would make the stored state too large. */
enum { REPLICAS_MAX = 64 };

/* Times that differ by less are taken as equal, because additions round them. */
#define ROUNDING 1e-9
/* The plans of faster replicas end this number of standard errors before the slowest replica, but
 * at most so much earlier. */
#define MARGIN_ERRORS 2.0
#define MARGIN_MAX 0.01

typedef struct replica_class {
    harpe_online_plans *plans;
    size_t chosen;
    double margin; /* the uncertainty of its time, a share */
} replica_class;

typedef struct replica_classes {
    harpe_replica_classes of;
    replica_class *list; /* [of.count] */
    double fastest_s;    /* the shortest time of the slowest class */
    double waiting_w;    /* of all GPUs of a replica while they wait */
} replica_classes;

/* New plans are made when a GPU's time has moved by this share since the last ones. */
#define MOVED 0.005

struct harpe_perseus_replicas {
    harpe_replica_curves *curves;
    replica_classes *classes; /* NULL: all replicas run the shared plan */
    uint64_t plans_number;    /* of the shared plans at that time */
    json_t *planned;          /* the curves for which the classes were made, as saved */
    bool has_failed;          /* the last attempt to make classes failed */
    bool is_stale;            /* a GPU has changed, and the classes are not yet made again */
    /* The clocks of this round: [replica][instruction]. */
    bool runs_own;
    int *ran_mhz;
    int *shared_mhz, *lowest_mhz; /* [instruction] */
    harpe_online_mean gain;
};

/* ---- Classes --------------------------------------------------------------------------------- */

static void free_classes(replica_classes *self) {
    if (!self) return;
    for (int c = 0; self->list && c < self->of.count; c++)
        harpe_online_plans_free(self->list[c].plans);
    harpe_replica_classes_clear(&self->of);
    free(self->list);
    free(self);
}

static bool differs(const harpe_replica_curves *curves, int replica) {
    for (int p = 0; p < curves->rank_count; p++)
        if (harpe_replica_gpu_at(curves, replica, p)->differs) return true;
    return false;
}

/* Makes one class of the replicas that are as usual, and one for each other replica. */
static harpe_status sort_into_classes(replica_classes *self, const harpe_replica_curves *curves,
                                      harpe_error *error) {
    int like[REPLICAS_MAX], own_count = 0, usual = -1;
    for (int r = 0; r < curves->replica_count; r++) {
        bool is_own = differs(curves, r) && own_count + 1 < CLASSES_MAX;
        own_count += is_own;
        if (!is_own && usual < 0) usual = r;
        like[r] = is_own ? r : usual;
    }
    return harpe_replica_classes_init(&self->of, like, curves->replica_count, error);
}

static double margin_of(const replica_classes *self, const harpe_replica_curves *curves,
                        int class) {
    double error = 0;
    for (int r = 0; r < self->of.replica_count; r++)
        for (int p = 0; p < curves->rank_count && self->of.class_of[r] == class; p++)
            error = fmax(error, harpe_replica_curves_error(curves, r, p));
    return fmin(MARGIN_MAX, MARGIN_ERRORS * error);
}

/* ---- Profiles -------------------------------------------------------------------------------- */

static harpe_profile_point point_of_class(const harpe_perseus *job, const replica_classes *self,
                                          int class, int entry, int frequency_mhz) {
    harpe_profile_point sum = {.frequency_mhz = frequency_mhz};
    for (int r = 0; r < self->of.replica_count; r++) {
        harpe_profile_point own;
        if (self->of.class_of[r] != class ||
            !harpe_replica_curves_point(job->replicas->curves, job->explorer, r, entry,
                                        frequency_mhz, &own))
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
        harpe_explorer_rows(job->explorer, job->job->job->tp_degree, &rows, &count, error);
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
    own->margin = margin_of(self, job->replicas->curves, class);
    self->fastest_s = fmax(self->fastest_s, harpe_plan_set_at(own->plans->set, 0)->time_s);
    return HARPE_OK;
}

/* Makes the classes and their plans. Free with free_classes. */
static harpe_status new_classes(const harpe_perseus *job, replica_classes **out,
                                harpe_error *error) {
    const harpe_replica_curves *curves = job->replicas->curves;
    replica_classes *self = harpe_calloc(1, sizeof *self);
    if (!self) return harpe_fail_memory(error);
    self->list = harpe_calloc(CLASSES_MAX, sizeof *self->list);
    self->waiting_w = job->blocking_power_w * curves->rank_count * job->job->job->tp_degree;
    harpe_status status =
        self->list ? sort_into_classes(self, curves, error) : harpe_fail_memory(error);
    for (int c = 0; c < self->of.count && status == HARPE_OK; c++)
        status = plan_class(job, self, c, error);
    if (status != HARPE_OK) {
        free_classes(self);
        return status;
    }
    *out = self;
    return HARPE_OK;
}

/* ---- Choosing -------------------------------------------------------------------------------- */

static const harpe_plan *chosen_of(const replica_class *class) {
    return harpe_plan_set_at(class->plans->set, class->chosen);
}

/* Chooses the slowest plan of each class that ends within `allowed_s`. A class that is faster keeps
 * the uncertainty of its time as a reserve. */
static void choose_in_classes(replica_classes *self, double allowed_s) {
    for (int c = 0; c < self->of.count; c++) {
        replica_class *class = &self->list[c];
        const harpe_plan_set *set = class->plans->set;
        double reserve_s = allowed_s * (1 - class->margin);
        double limit_s = fmax(reserve_s, harpe_plan_set_at(set, 0)->time_s) * (1 + ROUNDING);
        class->chosen = 0;
        while (class->chosen + 1 < harpe_plan_set_count(set) &&
               harpe_plan_set_at(set, class->chosen + 1)->time_s <= limit_s)
            class->chosen++;
    }
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

static const int *clocks_of_class(const replica_classes *self, int replica) {
    return chosen_of(&self->list[self->of.class_of[replica]])->frequency_mhz;
}

/* ---- Making it ------------------------------------------------------------------------------- */

void harpe_perseus_replicas_free(harpe_perseus_replicas *own) {
    if (!own) return;
    free_classes(own->classes);
    harpe_replica_curves_free(own->curves);
    json_decref(own->planned);
    free(own->ran_mhz);
    free(own->shared_mhz);
    free(own->lowest_mhz);
    free(own);
}

/* Replaces `self->replicas` by new ones for the present pipeline. They are NULL if the
 * job makes no plans, or has one replica or too many. */
static harpe_status new_replicas(harpe_perseus *self, harpe_error *error) {
    int count = self->job->job->dp_degree;
    harpe_perseus_replicas_free(self->replicas);
    self->replicas = NULL;
    if (!self->makes_plans || count < 2 || count > REPLICAS_MAX) return HARPE_OK;
    harpe_perseus_replicas *own = harpe_calloc(1, sizeof *own);
    if (!own) return harpe_fail_memory(error);
    size_t replicas = (size_t)count, instructions = self->pipeline->instruction_count;
    harpe_status status =
        harpe_replica_curves_new(self->pipeline, self->explorer, count, &own->curves, error);
    own->ran_mhz = harpe_calloc(replicas * instructions, sizeof *own->ran_mhz);
    own->shared_mhz = harpe_calloc(instructions, sizeof *own->shared_mhz);
    own->lowest_mhz = harpe_calloc(instructions, sizeof *own->lowest_mhz);
    bool has_memory = own->ran_mhz && own->shared_mhz && own->lowest_mhz;
    if (status == HARPE_OK && !has_memory) status = harpe_fail_memory(error);
    if (status != HARPE_OK) {
        harpe_perseus_replicas_free(own);
        return status;
    }
    self->replicas = own;
    return HARPE_OK;
}

/* ---- Clocks of a round ----------------------------------------------------------------------- */

static void find_lowest(harpe_perseus_replicas *own, size_t instructions) {
    memcpy(own->lowest_mhz, own->shared_mhz, instructions * sizeof *own->lowest_mhz);
    for (int r = 0; r < own->curves->replica_count; r++)
        for (size_t i = 0; i < instructions; i++) {
            int mhz = own->ran_mhz[(size_t)r * instructions + i];
            if (mhz < own->lowest_mhz[i]) own->lowest_mhz[i] = mhz;
        }
}

/* Chooses the plan of each class by the requests. */
static void choose_plans(harpe_perseus *self) {
    replica_classes *classes = self->replicas->classes;
    choose_in_classes(classes,
                      harpe_online_allowed_s(classes->fastest_s, self->plans->undisturbed_s,
                                             self->args.slowdown, &self->requests,
                                             harpe_perseus_outside(self)));
}

harpe_status harpe_perseus_replicas_begin_round(harpe_perseus *self, const int *shared_mhz,
                                                harpe_error *error) {
    harpe_status status = self->replicas ? HARPE_OK : new_replicas(self, error);
    harpe_perseus_replicas *own = self->replicas;
    if (status != HARPE_OK || !own) return status;
    own->runs_own = false;
    own->gain = (harpe_online_mean){0, 0};
    /* A power cap is one sum over all replicas, which the shared plans keep. */
    if (!shared_mhz || !own->classes || self->requests.power_cap_w > 0) return HARPE_OK;
    size_t instructions = self->pipeline->instruction_count;
    choose_plans(self);
    status = gain_of_classes(own->classes, shared_mhz, &own->gain, error);
    if (status != HARPE_OK) return status;
    own->runs_own = true;
    memcpy(own->shared_mhz, shared_mhz, instructions * sizeof *own->shared_mhz);
    for (int r = 0; r < own->curves->replica_count; r++)
        memcpy(own->ran_mhz + (size_t)r * instructions, clocks_of_class(own->classes, r),
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

/* Reads the runs of one replica, and the clocks that it really had. Runs at several clocks, whose
 * shares vary, count as not known. */
static harpe_status read_replica(const harpe_perseus *self, int replica, const int *asked_mhz,
                                 int *ran_mhz, harpe_replica_runs *out, harpe_error *error) {
    const harpe_online_reports all = harpe_perseus_late_reports(self);
    harpe_rank_info *ranks = harpe_calloc(all.count, sizeof *ranks);
    harpe_profiling_result *results = harpe_calloc(all.count, sizeof *results);
    harpe_rank_clocks *clocks = harpe_calloc(all.count, sizeof *clocks);
    harpe_online_reports own = {ranks, results, all.clocks ? clocks : NULL, 0};
    harpe_status status = ranks && results && clocks ? HARPE_OK : harpe_fail_memory(error);
    for (size_t r = 0; r < all.count && status == HARPE_OK; r++) {
        if (all.ranks[r].dp_rank != replica) continue;
        ranks[own.count] = all.ranks[r];
        if (all.clocks) clocks[own.count] = all.clocks[r];
        results[own.count++] = all.results[r];
    }
    if (status == HARPE_OK) {
        harpe_find_real_clocks(self->pipeline, &own, asked_mhz, HARPE_MAIN_SHARE_MIN, ran_mhz);
        for (size_t i = 0; i < self->pipeline->instruction_count; i++)
            if (ran_mhz[i] < 0) ran_mhz[i] = 0;
        status = harpe_online_round_read_clocks(self->pipeline, &own, ran_mhz, &out->runs,
                                                &out->count, error);
    }
    free(ranks);
    free(results);
    free(clocks);
    return status;
}

/* Sums the points of an entry's runs at these clocks. */
static harpe_online_mean sum_points(const harpe_perseus *self, int replica, int entry,
                                    const int *frequency_mhz) {
    const harpe_online_pipeline *pipeline = self->pipeline;
    harpe_online_mean sum = {0, 0};
    int p = pipeline->entries[entry].pipeline_rank;
    for (size_t i = pipeline->rank_offset[p]; i < pipeline->rank_offset[p + 1]; i++) {
        harpe_profile_point point;
        if (pipeline->entry_of[i] != entry ||
            !harpe_replica_curves_point(self->replicas->curves, self->explorer, replica, entry,
                                        frequency_mhz[i], &point))
            continue;
        sum.time_s += point.time_s;
        sum.energy_j += point.energy_j;
    }
    return sum;
}

/* Computes what a replica would have measured of one run of an entry at the clocks of the shared
 * plan. `ran_mhz` has the clocks of its `runs`. Both values are 0 if it was not measured. */
static harpe_online_mean at_shared_clocks(const harpe_perseus *self, int replica, int entry,
                                          const harpe_replica_runs *runs, const int *ran_mhz) {
    harpe_online_mean measured = {0, 0};
    double count = (double)self->pipeline->entries[entry].run_count;
    for (size_t k = 0; k < runs->count; k++) {
        if (runs->runs[k].entry != entry) continue;
        if (!(runs->runs[k].mean.time_s > 0)) return (harpe_online_mean){0, 0};
        measured.time_s += (double)runs->runs[k].run_count * runs->runs[k].mean.time_s;
        measured.energy_j += (double)runs->runs[k].run_count * runs->runs[k].mean.energy_j;
    }
    harpe_online_mean ran = sum_points(self, replica, entry, ran_mhz);
    harpe_online_mean shared = sum_points(self, replica, entry, self->replicas->shared_mhz);
    if (!(ran.time_s > 0 && ran.energy_j > 0)) return (harpe_online_mean){0, 0};
    return (harpe_online_mean){measured.time_s * shared.time_s / ran.time_s / count,
                               measured.energy_j * shared.energy_j / ran.energy_j / count};
}

/* `ran_mhz`: [replica][instruction]. */
static void replace_entries(const harpe_perseus *self, const harpe_replica_runs *replicas,
                            const int *ran_mhz, harpe_online_round *round) {
    size_t instructions = self->pipeline->instruction_count;
    for (size_t e = 0; e < self->pipeline->entry_count; e++) {
        harpe_online_mean *mean = &round->entries[e];
        if (!(mean->time_s > 0)) continue;
        *mean = (harpe_online_mean){0, 0};
        bool is_measured = true;
        for (int r = 0; r < self->replicas->curves->replica_count && is_measured; r++) {
            harpe_online_mean own =
                at_shared_clocks(self, r, (int)e, &replicas[r], ran_mhz + (size_t)r * instructions);
            is_measured = own.time_s > 0;
            mean->time_s = fmax(mean->time_s, own.time_s);
            mean->energy_j += own.energy_j;
        }
        if (!is_measured) *mean = (harpe_online_mean){0, 0};
    }
}

harpe_status harpe_perseus_replicas_observe(harpe_perseus *self, const int *frequency_mhz,
                                            harpe_online_round *round, harpe_error *error) {
    harpe_perseus_replicas *own = self->replicas;
    if (!own || round->problem[0] || (!frequency_mhz && !own->runs_own)) return HARPE_OK;
    int replicas = own->curves->replica_count;
    size_t instructions = self->pipeline->instruction_count;
    harpe_replica_runs *runs = harpe_calloc((size_t)replicas, sizeof *runs);
    int *ran_mhz = harpe_calloc((size_t)replicas * instructions, sizeof *ran_mhz);
    harpe_status status = runs && ran_mhz ? HARPE_OK : harpe_fail_memory(error);
    for (int r = 0; r < replicas && status == HARPE_OK; r++) {
        const int *asked = harpe_perseus_replicas_clocks(self, r);
        status = read_replica(self, r, asked ? asked : frequency_mhz,
                              ran_mhz + (size_t)r * instructions, &runs[r], error);
    }
    if (status == HARPE_OK) {
        if (own->runs_own) replace_entries(self, runs, ran_mhz, round);
        own->is_stale = harpe_replica_curves_observe(own->curves, runs) || own->is_stale;
    }
    for (int r = 0; r < replicas && runs; r++)
        free(runs[r].runs);
    free(runs);
    free(ran_mhz);
    return status;
}

/* ---- Planning -------------------------------------------------------------------------------- */

/* Finds the GPU whose time differs most from the others of its stage. */
static void find_most_different(const harpe_replica_curves *curves, int *replica, int *rank) {
    double most = -1;
    for (int r = 0; r < curves->replica_count; r++)
        for (int p = 0; p < curves->rank_count; p++) {
            const harpe_replica_gpu *gpu = harpe_replica_gpu_at(curves, r, p);
            if (!gpu->differs || fabs(gpu->time_log) <= most) continue;
            most = fabs(gpu->time_log);
            *replica = r;
            *rank = p;
        }
}

static void log_classes(const harpe_perseus *self) {
    const harpe_perseus_replicas *own = self->replicas;
    int replica = 0, rank = 0;
    find_most_different(own->curves, &replica, &rank);
    const harpe_replica_gpu *gpu = harpe_replica_gpu_at(own->curves, replica, rank);
    harpe_perseus_log(
        self, HARPE_LOG_INFO,
        "replicas differ: on pipeline rank %d, data parallel replica %d takes %+.1f %% "
        "time and %+.1f %% energy compared with the others; %d plans for %d replicas, "
        "whose slowest takes at least %s",
        rank, replica, 100 * expm1(gpu->time_log), 100 * expm1(gpu->energy_log),
        own->classes->of.count, own->curves->replica_count, HARPE_TIME(own->classes->fastest_s));
}

/* Returns true if a GPU's relative time differs from that of the present plans. */
static bool has_moved(const harpe_replica_curves *curves) {
    for (int r = 0; r < curves->replica_count; r++)
        for (int p = 0; p < curves->rank_count; p++) {
            double errors = 2 * harpe_replica_curves_error(curves, r, p);
            const harpe_replica_gpu *gpu = harpe_replica_gpu_at(curves, r, p);
            if (fabs(gpu->time_log - gpu->planned_log) > fmax(MOVED, errors)) return true;
        }
    return false;
}

static void drop_classes(harpe_perseus_replicas *own) {
    free_classes(own->classes);
    own->classes = NULL;
    json_decref(own->planned);
    own->planned = NULL;
}

static harpe_status make_classes(harpe_perseus *self, harpe_error *error) {
    harpe_perseus_replicas *own = self->replicas;
    const harpe_replica_curves *curves = own->curves;
    replica_classes *made = NULL;
    harpe_status status = new_classes(self, &made, error);
    json_t *planned = status == HARPE_OK ? harpe_replica_curves_save(curves) : NULL;
    if (status == HARPE_OK && !planned) {
        free_classes(made);
        status = harpe_fail_memory(error);
    }
    if (status != HARPE_OK) return status;
    drop_classes(own);
    own->classes = made;
    own->planned = planned;
    own->plans_number = self->plans_number;
    own->is_stale = false;
    for (int g = 0; g < curves->replica_count * curves->rank_count; g++)
        curves->gpus[g].planned_log = curves->gpus[g].time_log;
    choose_plans(self);
    return HARPE_OK;
}

/* Returns true if the GPUs differ from each other. */
static bool compare(const harpe_perseus *self) {
    size_t chosen = harpe_online_plans_choose(self->plans, self->args.slowdown, &self->requests,
                                              harpe_perseus_outside(self));
    const int *mhz = harpe_plan_set_at(self->plans->set, chosen)->frequency_mhz;
    return harpe_replica_curves_compare(self->replicas->curves, self->explorer, mhz);
}

void harpe_perseus_replicas_plan(harpe_perseus *self) {
    harpe_perseus_replicas *own = self->replicas;
    harpe_error reason = {0};
    if (!own || self->phase != HARPE_PERSEUS_PLAN || self->explores_next) return;
    if (!compare(self)) {
        own->is_stale = false;
        if (own->classes)
            harpe_perseus_log(self, HARPE_LOG_INFO,
                              "the replicas no longer differ: all run one plan");
        drop_classes(own);
        return;
    }
    bool is_current = own->classes && own->plans_number == self->plans_number && !own->is_stale;
    if (is_current && !has_moved(own->curves)) return;
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
    harpe_stored_add(&json, "curves", harpe_replica_curves_save(own->curves));
    if (own->planned) harpe_stored_add(&json, "planned", json_incref(own->planned));
    if (!own->runs_own) return json;
    harpe_stored_add(&json, "shared", harpe_stored_save_clocks(own->shared_mhz, count));
    harpe_stored_add(
        &json, "clocks",
        harpe_stored_save_clocks(own->ran_mhz, count * (size_t)own->curves->replica_count));
    return json;
}

/* Makes the classes again for the curves for which they were made. */
static bool load_classes(harpe_perseus *self, const json_t *json) {
    harpe_replica_curves *curves = self->replicas->curves;
    const json_t *planned = json_object_get(json, "planned");
    if (planned && !harpe_replica_curves_load(curves, planned)) return false;
    if (planned) harpe_perseus_replicas_plan(self);
    return harpe_replica_curves_load(curves, json_object_get(json, "curves"));
}

bool harpe_perseus_replicas_load(harpe_perseus *self, const json_t *json) {
    if (!json) return true; /* no schedule was handed out yet, or the job has one replica */
    if (!self->replicas && new_replicas(self, NULL) != HARPE_OK) return false;
    harpe_perseus_replicas *own = self->replicas;
    size_t count = self->pipeline->instruction_count;
    if (!own) return true;
    if (!load_classes(self, json) || !harpe_stored_load(&TABLE, own, json)) return false;
    if (!own->runs_own) return true;
    if (!harpe_stored_load_clocks(own->shared_mhz, count, json_object_get(json, "shared")) ||
        !harpe_stored_load_clocks(own->ran_mhz, count * (size_t)own->curves->replica_count,
                                  json_object_get(json, "clocks")))
        return false;
    find_lowest(own, count);
    return true;
}

/* ---- Showing --------------------------------------------------------------------------------- */

static json_t *show_replica(const harpe_perseus_replicas *own, int replica) {
    const harpe_replica_curves *curves = own->curves;
    json_t *time = json_array(), *energy = json_array(), *differs = json_array();
    for (int p = 0; p < curves->rank_count; p++) {
        const harpe_replica_gpu *gpu = harpe_replica_gpu_at(curves, replica, p);
        json_array_append_new(time, json_real(exp(gpu->time_log)));
        json_array_append_new(energy, json_real(exp(gpu->energy_log)));
        json_array_append_new(differs, json_boolean(gpu->differs));
    }
    json_t *plan = json_null();
    if (own->classes) {
        const replica_class *class = &own->classes->list[own->classes->of.class_of[replica]];
        const harpe_plan *fastest = harpe_plan_set_at(class->plans->set, 0);
        const harpe_plan *chosen = harpe_plan_set_at(class->plans->set, class->chosen);
        plan = json_pack("{s:f,s:f,s:f,s:i}", "time", chosen->time_s, "energy", chosen->energy_j,
                         "fastest_time", fastest->time_s, "number",
                         own->classes->of.class_of[replica]);
    }
    return json_pack("{s:o,s:o,s:o,s:o}", "time", time, "energy", energy, "differs", differs,
                     "plan", plan);
}

json_t *harpe_perseus_replicas_show(const harpe_perseus *self) {
    const harpe_perseus_replicas *own = self->replicas;
    json_t *list = json_array();
    for (int r = 0; r < own->curves->replica_count; r++)
        json_array_append_new(list, show_replica(own, r));
    return json_pack("{s:b,s:f,s:[f,f],s:o}", "have_own_plans", own->runs_own, "certainty",
                     1 - HARPE_REPLICA_FALSE_ALARM, "gain", own->gain.time_s, own->gain.energy_j,
                     "replicas", list);
}
