/* SPDX-License-Identifier: Apache-2.0 */
/* Measures plans for each GPU: how long they take, and what they save. GPUs are drawn whose speed
 * and power differ. One set of profiles is the truth, another has noise and is what a planner
 * knows. The plans made from the noisy profiles, and one plan for all GPUs, are evaluated with the
 * truth, beside the plans of an oracle that knows the truth. bench/search/replicas.py starts this
 * program.
 *
 * Flags: --profile FILE (default: synthetic) --stages N --microbatches M --blocking W --replicas R
 * --peers K --speed SD --power SD --outliers SHARE --noise SD --seed N --slowdown X --threads N
 * --smooth SD */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <harpe/replicas.h>

#include "bench_case.h"

typedef struct arguments {
    const char *profile_path;
    int stages, microbatches, threads;
    double blocking_power_w, slowdown, smooth;
    harpe_variability how;
} arguments;

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double processor_s(void) { return (double)clock() / CLOCKS_PER_SEC; }

static void set(arguments *a, int flag, double value) {
    switch (flag) {
    case 'n': a->stages = (int)value; break;
    case 'm': a->microbatches = (int)value; break;
    case 'w': a->blocking_power_w = value; break;
    case 'r': a->how.replica_count = (int)value; break;
    case 'k': a->how.peer_count = (int)value; break;
    case 's': a->how.speed_deviation = value; break;
    case 'p': a->how.power_deviation = value; break;
    case 'o': a->how.outlier_share = value; break;
    case 'z': a->how.noise = value; break;
    case 'd': a->how.seed = (uint64_t)value; break;
    case 'f': a->smooth = value; break;
    case 'x': a->slowdown = value; break;
    default: a->threads = (int)value; break;
    }
}

static arguments arguments_from_flags(int argc, char **argv) {
    static const struct option flags[] = {
        {"profile", required_argument, NULL, 'i'},
        {"stages", required_argument, NULL, 'n'},
        {"microbatches", required_argument, NULL, 'm'},
        {"blocking", required_argument, NULL, 'w'},
        {"replicas", required_argument, NULL, 'r'},
        {"peers", required_argument, NULL, 'k'},
        {"speed", required_argument, NULL, 's'},
        {"power", required_argument, NULL, 'p'},
        {"outliers", required_argument, NULL, 'o'},
        {"noise", required_argument, NULL, 'z'},
        {"seed", required_argument, NULL, 'd'},
        {"slowdown", required_argument, NULL, 'x'},
        {"threads", required_argument, NULL, 't'},
        {"smooth", required_argument, NULL, 'f'},
        {NULL, 0, NULL, 0},
    };
    arguments a = {.stages = 8, .microbatches = 24, .slowdown = 1, .blocking_power_w = -1};
    a.how = (harpe_variability){.replica_count = 8, .peer_count = 1};
    for (int flag; (flag = getopt_long(argc, argv, "", flags, NULL)) != -1;) {
        if (flag == '?') exit(2);
        if (flag == 'i')
            a.profile_path = optarg;
        else
            set(&a, flag, strtod(optarg, NULL));
    }
    return a;
}

static harpe_profile *base_profile(arguments *a) {
    harpe_error error;
    harpe_profile *profile = NULL;
    double blocking_w = 0;
    if (a->profile_path) {
        bench_require(harpe_profile_read_csv(a->profile_path, &profile, &error), &error);
        a->stages = harpe_profile_stage_count(profile);
    } else {
        harpe_synth_options options = {
            .stages = a->stages, .imbalance = a->stages > 1 ? 1.1 : 1, .seed = a->how.seed + 1};
        bench_require(harpe_profile_synthesize(&options, &profile, &blocking_w, &error), &error);
    }
    if (a->blocking_power_w < 0) a->blocking_power_w = blocking_w;
    return profile;
}

static harpe_replica_profiles *vary(const harpe_profile *base, const arguments *a, double noise) {
    harpe_error error;
    harpe_replica_profiles *profiles = NULL;
    harpe_variability how = a->how;
    how.noise = noise;
    how.noise_seed = how.seed + 77;
    bench_require(harpe_replica_profiles_vary(base, a->blocking_power_w, &how, &profiles, &error),
                  &error);
    return profiles;
}

static harpe_replica_profiles *smooth(harpe_replica_profiles *noisy, double most_deviation) {
    harpe_error error;
    harpe_replica_profiles *profiles = NULL;
    bench_require(harpe_replica_profiles_smooth(noisy, most_deviation, &profiles, &error), &error);
    harpe_replica_profiles_free(noisy);
    return profiles;
}

static harpe_replica_plans *plan(const harpe_replica_profiles *profiles,
                                 const harpe_schedule *schedule, const arguments *a,
                                 double time_s) {
    harpe_error error;
    harpe_replica_plans *plans = NULL;
    harpe_replica_request request = {.threads = a->threads};
    if (time_s > 0)
        request.time_s = time_s;
    else
        request.slowdown = a->slowdown;
    bench_require(harpe_replica_plans_new(profiles, schedule, NULL, &request, NULL, &plans, &error),
                  &error);
    return plans;
}

static harpe_replica_total evaluate(const harpe_replica_plans *plans, harpe_replica_clocks clocks,
                                    const harpe_replica_profiles *truth,
                                    const harpe_schedule *schedule) {
    harpe_error error;
    harpe_replica_total total;
    bench_require(
        harpe_replica_plans_evaluate(plans, clocks, truth, schedule, NULL, &total, &error), &error);
    return total;
}

static void add_total(json_t *object, const char *name, harpe_replica_total total) {
    json_object_set_new(
        object, name, json_pack("{s:f, s:f}", "time_s", total.time_s, "energy_j", total.energy_j));
}

/* Returns the largest gap of a replica's plan, relative to its bound. */
static double worst_gap(const harpe_replica_plans *plans) {
    double worst = 0;
    for (int r = 0; r < harpe_replica_plans_job(plans).replica_count; r++) {
        const harpe_replica_plan *of = harpe_replica_plans_at(plans, r);
        worst = fmax(worst, of->energy_j / of->lower_bound_j - 1);
    }
    return worst;
}

static void compare(const arguments *a, const harpe_profile *base, const harpe_schedule *schedule,
                    json_t *object) {
    harpe_replica_profiles *truth = vary(base, a, 0), *known = vary(base, a, a->how.noise);
    if (a->smooth > 0) known = smooth(known, a->smooth);
    double began_s = now_s(), began_processor_s = processor_s();
    harpe_replica_plans *plans = plan(known, schedule, a, 0);
    json_object_set_new(object, "seconds", json_real(now_s() - began_s));
    json_object_set_new(object, "processor_s", json_real(processor_s() - began_processor_s));
    harpe_replica_plans *oracle = plan(truth, schedule, a, 0);
    harpe_replica_total one = evaluate(plans, HARPE_REPLICA_ONE_PLAN, truth, schedule);
    harpe_replica_total own = evaluate(plans, HARPE_REPLICA_OWN_PLANS, truth, schedule);
    add_total(object, "all_maximum", evaluate(plans, HARPE_REPLICA_ALL_MAXIMUM, truth, schedule));
    add_total(object, "own", own);
    add_total(object, "one_plan", one);
    add_total(object, "oracle", harpe_replica_plans_job(oracle).own);
    add_total(object, "oracle_one_plan", harpe_replica_plans_job(oracle).one_plan);
    /* The oracle with the time that the one plan needs. */
    double fastest_s = harpe_replica_plans_job(oracle).fastest_s;
    harpe_replica_plans *late = plan(truth, schedule, a, fmax(one.time_s, fastest_s));
    add_total(object, "oracle_at_one_plan", harpe_replica_plans_job(late).own);
    harpe_replica_plans *same = plan(truth, schedule, a, fmax(own.time_s, fastest_s));
    add_total(object, "oracle_at_own", harpe_replica_plans_job(same).own);
    harpe_replica_job job = harpe_replica_plans_job(plans);
    json_object_set_new(object, "gap", json_real(job.own.energy_j / job.lower_bound_j - 1));
    json_object_set_new(object, "worst_gap", json_real(worst_gap(plans)));
    json_object_set_new(object, "distinct", json_integer(job.distinct_count));
    harpe_replica_plans_free(late);
    harpe_replica_plans_free(same);
    harpe_replica_plans_free(oracle);
    harpe_replica_plans_free(plans);
    harpe_replica_profiles_free(truth);
    harpe_replica_profiles_free(known);
}

int main(int argc, char **argv) {
    arguments a = arguments_from_flags(argc, argv);
    harpe_profile *base = base_profile(&a);
    harpe_error error;
    harpe_schedule *schedule = NULL;
    harpe_schedule_options shape = {.ranks = a.stages, .microbatches = a.microbatches};
    bench_require(harpe_schedule_new(&shape, &schedule, &error), &error);
    json_t *object =
        json_pack("{s:i, s:i, s:i, s:i}", "replicas", a.how.replica_count, "peers",
                  a.how.peer_count, "stages", a.stages, "microbatches", a.microbatches);
    compare(&a, base, schedule, object);
    json_object_set_new(object, "peak_memory_bytes", json_integer(bench_peak_memory_bytes()));
    bench_print(object);
    harpe_schedule_free(schedule);
    harpe_profile_free(base);
    return 0;
}
