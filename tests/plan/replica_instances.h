/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of several replicas for tests: random profiles of each GPU, which share nothing but the
 * instructions. */
#ifndef HARPE_TESTS_PLAN_REPLICA_INSTANCES_H
#define HARPE_TESTS_PLAN_REPLICA_INSTANCES_H

#include <harpe/replicas.h>

#include "instances.h"
#include "plan/replica_internal.h"

typedef struct test_job {
    harpe_schedule *schedule;
    harpe_replica_profiles *profiles;
    double blocking_w;
    harpe_problem_options options; /* its blocking power points to blocking_w */
} test_job;

static inline void test_job_free(test_job *job) {
    harpe_schedule_free(job->schedule);
    harpe_replica_profiles_free(job->profiles);
    free(job);
}

OWNER(test_job)
OWNER(harpe_replica_profiles)
OWNER(harpe_replica_plans)

#define owned_job OWNED(test_job)
#define owned_replica_profiles OWNED(harpe_replica_profiles)
#define owned_replica_plans OWNED(harpe_replica_plans)

/* Gives the rows of a GPU a blocking power of its own. */
static inline void set_powers(test_rows *rows, double power_w) {
    for (size_t i = 0; i < rows->count; i++)
        rows->rows[i].blocking_power_w = power_w;
}

/* Gives a job the profiles of its GPUs, which it takes over. */
static inline void take_profiles(test_job *job, harpe_profile **gpus, int replicas, int peers) {
    assert_works(harpe_replica_profiles_new((const harpe_profile *const *)gpus, replicas, peers,
                                            &job->profiles, &failure));
    for (int g = 0; g < replicas * peers; g++)
        harpe_profile_free(gpus[g]);
}

/* Makes a job of two replicas with one GPU each. */
static inline test_job *job_of_two(harpe_profile **gpus, int microbatches) {
    test_job *job = calloc(1, sizeof *job);
    job->schedule = schedule_1f1b(1, microbatches);
    take_profiles(job, gpus, 2, 1);
    return job;
}

/* Makes a job with a shape for each GPU's profile. Often every GPU has its own blocking power. */
static inline test_job *job_of(const harpe_schedule_options *how, int replicas, int peers,
                               const test_profile_shape *shape, test_random *random) {
    test_job *job = calloc(1, sizeof *job);
    harpe_profile *gpus[64];
    if (!job) abort();
    job->schedule = schedule_of(how);
    bool has_own_powers = random_int(random, 0, 1);
    job->blocking_w = random_between(random, 0, 150);
    if (!has_own_powers) {
        job->options.blocking_power_w = &job->blocking_w;
        job->options.blocking_power_count = 1;
    }
    job->options.overhead_power_w = random_overhead_w(random, 1);
    for (int g = 0; g < replicas * peers; g++) {
        test_rows rows = make_rows(job->schedule, shape, random);
        if (has_own_powers) set_powers(&rows, random_between(random, 20, 150));
        gpus[g] = profile_of(&rows);
        free(rows.rows);
    }
    take_profiles(job, gpus, replicas, peers);
    return job;
}

/* Makes a job of GPUs that differ by factors. */
static inline test_job *varied_job(int stages, int microbatches, const harpe_variability *how) {
    test_job *job = calloc(1, sizeof *job);
    owned_profile base = NULL;
    if (!job) abort();
    harpe_synth_options options = {.stages = stages, .imbalance = stages > 1 ? 1.1 : 1, .seed = 3};
    assert_works(harpe_profile_synthesize(&options, &base, &job->blocking_w, &failure));
    job->schedule = schedule_1f1b(stages, microbatches);
    assert_works(harpe_replica_profiles_vary(base, job->blocking_w, how, &job->profiles, &failure));
    return job;
}

static inline harpe_replica_plans *plans_of(const test_job *job,
                                            const harpe_replica_request *request) {
    harpe_replica_plans *plans = NULL;
    assert_works(harpe_replica_plans_new(job->profiles, job->schedule, &job->options, request, NULL,
                                         &plans, &failure));
    return plans;
}

#endif
