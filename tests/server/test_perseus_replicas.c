/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallel replicas whose GPUs differ: invented jobs in virtual time. Each replica gets a plan
 * of its own when the difference is significant and only then, and no iteration is longer than that
 * of the slowest replica at its highest clocks. */
#include "test.h"

#include "server/explored_job.h"

enum { REPLICAS_MAX = 8, LEARNING_MAX = 80 };

typedef struct replica_job {
    explored_job *base; /* the physics of a usual replica */
    int replicas;
    double time_factor[REPLICAS_MAX][EXPLORED_STAGES_MAX];
    double energy_factor[REPLICAS_MAX][EXPLORED_STAGES_MAX];
    int throttle_mhz[REPLICAS_MAX]; /* of all its stages; 0: not throttled */
    double run_noise;               /* of each run */
    double gpu_noise;               /* of a GPU in a round, the same for all its runs */
    double latency_s;               /* that ranks report of changes of the clock; 0: no report */
    harpe_problem *problems[REPLICAS_MAX];
    double ran_s, ran_j; /* the true iteration of the last round */
    bool runs_own;       /* the replicas had different clocks */
} replica_job;

/* ---- Physics --------------------------------------------------------------------------------- */

static const harpe_profile_point *point_at(const harpe_profile_entry *entry, int mhz) {
    for (size_t i = 0; i < entry->point_count; i++)
        if (entry->points[i].frequency_mhz == mhz) return &entry->points[i];
    fail_msg("no %d MHz", mhz);
    return NULL;
}

static void make_problem(replica_job *s, int replica) {
    static harpe_measurement rows[2 * EXPLORED_STAGES_MAX * EXPLORED_CLOCKS_MAX];
    explored_job *base = s->base;
    size_t count = 0;
    for (size_t e = 0; e < harpe_profile_entry_count(base->profile); e++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(base->profile, e);
        for (size_t i = 0; i < entry->point_count; i++) {
            int mhz = entry->points[i].frequency_mhz, limit = s->throttle_mhz[replica];
            const harpe_profile_point *point =
                point_at(entry, limit > 0 && mhz > limit ? limit : mhz);
            rows[count++] = (harpe_measurement){
                .stage = entry->stage,
                .rank = -1,
                .instruction = entry->instruction,
                .frequency_mhz = mhz,
                .time_s = point->time_s * s->time_factor[replica][entry->stage],
                .energy_j = point->energy_j * s->energy_factor[replica][entry->stage],
                .gpu_count = 1,
                .switch_latency_s = s->latency_s};
        }
    }
    harpe_profile *profile;
    must(base, harpe_profile_new(rows, count, &profile, &base->error));
    harpe_problem_free(s->problems[replica]);
    s->problems[replica] = simulated_problem_of(base, profile);
    harpe_profile_free(profile);
}

static void make_problems(replica_job *s) {
    for (int r = 0; r < s->replicas; r++)
        make_problem(s, r);
}

/* Makes a job whose replicas are equal. */
static replica_job *job_new(uint64_t seed, int replicas) {
    replica_job *s = calloc(1, sizeof *s);
    assert_non_null(s);
    do {
        if (s->base) explored_free(s->base);
        s->base = explored_sized(seed++, all_trials() ? 5 : 2, all_trials() ? 12 : 3);
    } while (s->base->clock_count < 8 || (!all_trials() && s->base->clock_count > 15));
    s->base->outside_time_s = 0;
    s->replicas = replicas;
    for (int r = 0; r < replicas; r++)
        for (int p = 0; p < EXPLORED_STAGES_MAX; p++)
            s->time_factor[r][p] = s->energy_factor[r][p] = 1;
    s->base->dp = replicas;
    simulated_make_ranks(s->base, s->base->mhz, (size_t)s->base->clock_count);
    for (int n = 0; n < s->base->job.world_size; n++) {
        s->base->ranks[n].dp_rank = n % replicas;
        s->base->ranks[n].pp_rank = n / replicas;
    }
    make_problems(s);
    return s;
}

/* Returns how many of `all` similar jobs a test makes: one, unless all trials are made. */
static int jobs(int all) { return all_trials() ? test_trials(all) : 1; }

static void job_free(replica_job *s) {
    for (int r = 0; r < s->replicas; r++)
        harpe_problem_free(s->problems[r]);
    explored_free(s->base);
    free(s);
}

static void job_start(replica_job *s, const char *more) {
    s->base->logs = getenv("HARPE_TEST_LOGS") != NULL;
    explored_start(s->base, all_trials() ? 20 : 4, more);
}

/* Returns the time of the slowest replica at its highest clocks. */
static double fastest_s(const replica_job *s) {
    double slowest_s = 0;
    for (int r = 0; r < s->replicas; r++)
        slowest_s = fmax(slowest_s, simulated_highest(s->base, s->problems[r]).time_s);
    return slowest_s;
}

static double highest_j(const replica_job *s) {
    double slowest_s = fastest_s(s), energy_j = 0;
    for (int r = 0; r < s->replicas; r++) {
        harpe_plan plan = simulated_highest(s->base, s->problems[r]);
        energy_j +=
            plan.energy_j + s->base->pp * s->base->blocking_power_w * (slowest_s - plan.time_s);
    }
    return energy_j;
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

static const harpe_frequency_schedule *schedule_of(const replica_job *s, int replica, int stage) {
    return &s->base->schedules[stage * s->replicas + replica];
}

static void read_clocks(const replica_job *s, int replica, int *frequency_mhz) {
    size_t at = 0;
    for (int p = 0; p < s->base->pp; p++) {
        const harpe_frequency_schedule *list = schedule_of(s, replica, p);
        for (size_t i = 0; i < list->instruction_count; i++)
            frequency_mhz[at++] = list->instructions[i].frequency_mhz;
    }
}

/* Computes the true iteration of the next schedules. */
static void job_next(replica_job *s) {
    explored_job *base = s->base;
    size_t count = harpe_problem_instruction_count(base->problem);
    harpe_plan plans[REPLICAS_MAX];
    int *first = calloc(count, sizeof *first);
    must(base, harpe_scheduler_next(base->scheduler, &base->schedules, &base->error));
    s->runs_own = false;
    s->ran_s = s->ran_j = 0;
    read_clocks(s, 0, first);
    for (int r = 0; r < s->replicas; r++) {
        read_clocks(s, r, base->frequency_mhz);
        s->runs_own = s->runs_own || memcmp(first, base->frequency_mhz, count * sizeof *first) != 0;
        must(base, harpe_plan_evaluate(s->problems[r], base->frequency_mhz, &plans[r], NULL,
                                       &base->error));
        s->ran_s = fmax(s->ran_s, plans[r].time_s);
    }
    for (int r = 0; r < s->replicas; r++)
        s->ran_j +=
            plans[r].energy_j + base->pp * base->blocking_power_w * (s->ran_s - plans[r].time_s);
    free(first);
}

static void write_rank(replica_job *s, int replica, int stage) {
    explored_job *base = s->base;
    int rank = stage * s->replicas + replica;
    size_t runs[2] = {(size_t)base->microbatches, (size_t)base->microbatches};
    const harpe_frequency_schedule *list = schedule_of(s, replica, stage);
    double gpu = 1 + s->gpu_noise * explored_normal(base);
    size_t first = 0;
    for (int p = 0; p < stage; p++)
        first += harpe_problem_rank_length(s->problems[replica], p);
    simulated_make_result(base, rank, base->iterations, runs);
    for (size_t k = 0; k < (size_t)base->iterations; k++) {
        size_t at[2] = {0, 0};
        simulated_write_iteration(base, rank, k, s->ran_s, s->ran_j / base->job.world_size);
        for (size_t j = 0; j < list->instruction_count; j++) {
            const harpe_profile_point *point = base->points[first + j];
            double factor = gpu * (1 + s->run_noise * explored_normal(base));
            int n = list->instructions[j].instruction[0] == 'b';
            simulated_write_run(base, rank, n, k, at[n]++, point->time_s * factor,
                                point->energy_j * factor);
        }
    }
}

/* All ranks report the same latency, and runs at the clocks that were asked for. */
static void tell_clocks(const replica_job *s) {
    explored_job *base = s->base;
    harpe_rank_clocks *told = simulated_alloc(base, (size_t)s->base->job.world_size, sizeof *told);
    for (int n = 0; n < s->base->job.world_size; n++) {
        harpe_clock_latency *latency = simulated_alloc(base, 1, sizeof *latency);
        *latency = (harpe_clock_latency){base->mhz[0], s->latency_s, s->latency_s};
        told[n] = (harpe_rank_clocks){.is_known = true, .latency_count = 1, .latencies = latency};
    }
    harpe_scheduler_tell_clocks(base->scheduler, told);
}

static void job_observe(replica_job *s) {
    explored_job *base = s->base;
    harpe_arena_free(&base->arena);
    if (s->latency_s > 0) tell_clocks(s);
    for (int r = 0; r < s->replicas; r++) {
        read_clocks(s, r, base->frequency_mhz);
        must(base, harpe_evaluate_find_points(s->problems[r], base->frequency_mhz, base->points,
                                              &base->error));
        for (int p = 0; p < base->pp; p++)
            write_rank(s, r, p);
    }
    must(base, harpe_scheduler_observe(base->scheduler, s->base->results,
                                       (size_t)s->base->job.world_size, &base->error));
}

/* Runs rounds and returns how many of them had clocks of their own for a replica. Each is at most
 * `slack` longer than the slowest replica at its highest clocks. */
static int run(replica_job *s, int rounds, double slack) {
    int own = 0;
    for (int i = 0; i < rounds; i++) {
        job_next(s);
        own += s->runs_own;
        if (s->ran_s > fastest_s(s) * (1 + slack))
            fail_msg("%s x %d: %.2f %% slower than the slowest replica", s->base->words,
                     s->replicas, 100 * (s->ran_s / fastest_s(s) - 1));
        job_observe(s);
    }
    return own;
}

/* Learns until there are plans. Returns the number of rounds with own clocks. */
static int learn(replica_job *s) {
    int own = 0, rounds = 0;
    for (; !is_in_phase(s->base, "plan"); rounds++) {
        assert_true(rounds < LEARNING_MAX);
        own += run(s, 1, 0.0101);
    }
    return own;
}

/* ---- Equal replicas -------------------------------------------------------------------------- */

TEST(one_replica_has_no_others) {
    replica_job *s = job_new(100, 1);
    job_start(s, "");
    assert_int_equal(learn(s), 0);
    json_t *json = frontier(s->base);
    assert_null(json_object_get(json, "replicas"));
    json_decref(json);
    job_free(s);
}

TEST(equal_replicas_share_a_plan) {
    static const double run_noise[] = {0.005, 0.03, 0, 0, 0.03};
    static const double gpu_noise[] = {0, 0.03, 0.01, 0, 0};
    for (int i = 0; i < jobs(3); i++) {
        replica_job *s = job_new((uint64_t)(200 + 10 * i), 2 + i % 2 * 3);
        s->run_noise = run_noise[i % 5];
        s->gpu_noise = gpu_noise[i % 5];
        job_start(s, "");
        int own = 0, rounds = 0;
        for (; !is_in_phase(s->base, "plan") && rounds < LEARNING_MAX; rounds++)
            own += run(s, 1, 0.1);
        assert_true(rounds < LEARNING_MAX);
        for (int more = 0; more < 25; more++)
            own += run(s, 1, 0.1);
        assert_int_equal(own, 0);
        job_free(s);
    }
}

/* ---- A slower replica ------------------------------------------------------------------------ */

static void slow_down(replica_job *s, int replica, double factor) {
    for (int p = 0; p < s->base->pp; p++)
        s->time_factor[replica][p] = s->energy_factor[replica][p] = factor;
    make_problem(s, replica);
}

/* Computes the energy if all replicas run the plan that replica `r` has now. */
static double energy_of_one_plan(replica_job *s, int r) {
    double slowest_s = 0, energy_j = 0;
    harpe_plan plans[REPLICAS_MAX];
    read_clocks(s, r, s->base->frequency_mhz);
    for (int i = 0; i < s->replicas; i++) {
        must(s->base, harpe_plan_evaluate(s->problems[i], s->base->frequency_mhz, &plans[i], NULL,
                                          &s->base->error));
        slowest_s = fmax(slowest_s, plans[i].time_s);
    }
    for (int i = 0; i < s->replicas; i++)
        energy_j += plans[i].energy_j +
                    s->base->pp * s->base->blocking_power_w * (slowest_s - plans[i].time_s);
    return energy_j;
}

/* The energy is less than with one plan for all; the promise of the time holds. */
static void own_plans_save(replica_job *s, int slow, double slack) {
    (void)run(s, 3, slack);
    job_next(s);
    assert_true(s->runs_own);
    double one_j = energy_of_one_plan(s, slow);
    print_message("%s x %d: %.2f %% less energy than one plan, %.2f %% less than the highest "
                  "clocks; time %+.3f %%\n",
                  s->base->words, s->replicas, 100 * (1 - s->ran_j / one_j),
                  100 * (1 - s->ran_j / highest_j(s)), 100 * (s->ran_s / fastest_s(s) - 1));
    assert_true(s->ran_j < one_j);
    assert_true(s->ran_s <= fastest_s(s) * (1 + slack));
    job_observe(s);
}

TEST(a_slower_replica_is_noticed) {
    static const double noise[] = {0, 0.003, 0.01};
    for (int i = 0; i < jobs(3); i++) {
        replica_job *s = job_new((uint64_t)(300 + 10 * i), i % 2 ? 2 : 5);
        s->run_noise = noise[i % 3];
        slow_down(s, s->replicas - 1, 1.1);
        job_start(s, i % 2 ? ", \"learning\": \"sweep\"" : "");
        int rounds = 0;
        for (; !is_in_phase(s->base, "plan"); rounds++) {
            assert_true(rounds < 2 * LEARNING_MAX);
            (void)run(s, 1, i % 2 ? 3 : 0.0101);
        }
        own_plans_save(s, s->replicas - 1, 0.005);
        job_free(s);
    }
}

LONG_TEST(replicas_slow_in_different_stages) {
    for (int i = 0; i < jobs(2); i++) {
        replica_job *s = job_new((uint64_t)(400 + 10 * i), 4);
        s->run_noise = 0.003;
        s->time_factor[1][0] = 1.08;
        s->time_factor[2][s->base->pp - 1] = 1.12;
        s->time_factor[3][s->base->pp / 2] = 0.94;
        make_problems(s);
        job_start(s, "");
        for (int rounds = 0; !is_in_phase(s->base, "plan"); rounds++) {
            assert_true(rounds < LEARNING_MAX);
            (void)run(s, 1, 0.12); /* the explorer takes the slowest GPU of each stage */
        }
        (void)run(s, 3, 0.005);
        job_next(s);
        assert_true(s->runs_own);
        assert_true(s->ran_j < highest_j(s));
        job_observe(s);
        job_free(s);
    }
}

/* On GPUs that change their clocks late, the plans of a replica take at most 0.4 % longer for it.
 */
TEST(own_plans_contain_late_changes) {
    const harpe_clock_switch late = {.takes_profile = true};
    for (int i = 0; i < jobs(2); i++) {
        replica_job *s = job_new((uint64_t)(300 + 10 * i), 3);
        s->latency_s = 0.01 * (i % 2 + 1);
        slow_down(s, 2, 1.1);
        make_problems(s);
        job_start(s, "");
        (void)learn(s);
        (void)run(s, 3, 0.005);
        job_next(s);
        assert_true(s->runs_own);
        for (int r = 0; r < s->replicas; r++) {
            harpe_late_plan plan;
            read_clocks(s, r, s->base->frequency_mhz);
            must(s->base, harpe_plan_evaluate_late(s->problems[r], s->base->frequency_mhz, &late, 0,
                                                   &plan, NULL, &s->base->error));
            print_message("%s, replica %d: late changes %+.3f %%\n", s->base->words, r,
                          100 * (plan.time_s / fastest_s(s) - 1));
            assert_true(plan.time_s <= fastest_s(s) * (1 + 0.004 + 0.001));
        }
        job_observe(s);
        job_free(s);
    }
}

/* A GPU that is throttled is as slow as its clock, but at lower clocks it is as fast as others. */
LONG_TEST(a_throttled_replica) {
    for (int i = 0; i < jobs(2); i++) {
        replica_job *s = job_new((uint64_t)(500 + 10 * i), 3);
        s->run_noise = 0.002;
        s->throttle_mhz[1] = s->base->mhz[s->base->clock_count / 5 + 1];
        make_problems(s);
        job_start(s, "");
        (void)learn(s);
        (void)run(s, 12, 0.005);
        job_free(s);
    }
}

/* ---- Changes --------------------------------------------------------------------------------- */

TEST(a_straggler_comes_and_goes) {
    for (int i = 0; i < jobs(3); i++) {
        replica_job *s = job_new((uint64_t)(600 + 10 * i), i % 2 ? 2 : 4);
        s->run_noise = i % 3 * 0.004;
        job_start(s, "");
        assert_int_equal(learn(s), 0);
        assert_int_equal(run(s, 5, 0.005), 0);
        slow_down(s, 1, 1.15);
        double slow_s = fastest_s(s);
        (void)run(s, 4, 0.01);
        own_plans_save(s, 1, 0.01);
        for (int r = 0; r < 5; r++) {
            if (r == 2) simulated_restart(s->base);
            (void)run(s, 1, 0.01);
        }
        slow_down(s, 1, 1);
        for (int r = 0; r < 3; r++) { /* it is noticed after two rounds */
            job_next(s);
            assert_true(s->ran_s <= slow_s * 1.005);
            if (r < 2) job_observe(s);
        }
        assert_false(s->runs_own);
        job_observe(s);
        (void)run(s, 6, 0.01);
        job_free(s);
    }
}

/* A change of 15 % is no noise, so that a later change of 5 % is noticed as well. */
TEST(a_large_change_hides_no_small_one) {
    replica_job *s = job_new(650, 4);
    s->run_noise = 0.002;
    job_start(s, "");
    assert_int_equal(learn(s), 0);
    assert_int_equal(run(s, 5, 0.005), 0);
    slow_down(s, 1, 1.15);
    (void)run(s, 6, 0.01);
    slow_down(s, 1, 1);
    (void)run(s, 6, 0.16);
    slow_down(s, 2, 1.05);
    /* After the first one, a slower GPU is noticed in its fourth round. */
    (void)run(s, 5, 0.06);
    job_next(s);
    assert_true(s->runs_own);
    job_observe(s);
    job_free(s);
}

/* More and more rounds are needed before a GPU counts as slower, so that the plans do not change
 * all the time. */
TEST(a_replica_that_flickers) {
    replica_job *s = job_new(700, 3);
    job_start(s, "");
    (void)learn(s);
    int changes = 0;
    bool was_own = false;
    for (int i = 0; i < 96; i++) {
        slow_down(s, 1, i / 4 % 2 ? 1.12 : 1);
        job_next(s);
        changes += s->runs_own != was_own;
        was_own = s->runs_own;
        job_observe(s);
    }
    print_message("%d changes of plans, %d of the speed\n", changes, 96 / 4 - 1);
    assert_in_range(changes, 1, 8);
    job_free(s);
}

/* ---- Energy only ----------------------------------------------------------------------------- */

TEST(energy_differs_and_time_does_not) {
    for (int i = 0; i < jobs(2); i++) {
        replica_job *s = job_new((uint64_t)(820 + 10 * i), 3);
        s->run_noise = 0.003;
        for (int p = 0; p < s->base->pp; p++)
            s->energy_factor[2][p] = 1.15;
        make_problem(s, 2);
        job_start(s, "");
        (void)learn(s);
        (void)run(s, 8, 0.005);
        json_t *json = frontier(s->base);
        const json_t *list = json_object_get(json_object_get(json, "replicas"), "replicas");
        const json_t *odd = json_array_get(list, 2);
        assert_true(json_is_true(json_array_get(json_object_get(odd, "differs"), 0)));
        double energy = json_number_value(json_array_get(json_object_get(odd, "energy"), 0));
        double time = json_number_value(json_array_get(json_object_get(odd, "time"), 0));
        int plans[3]; /* the replicas that are as usual share a plan */
        for (size_t r = 0; r < 3; r++)
            assert_int_equal(
                json_unpack(json_array_get(list, r), "{s:{s:i}}", "plan", "number", &plans[r]), 0);
        assert_true(plans[0] == plans[1] && plans[1] != plans[2]);
        assert_true(fabs(energy - 1.15) < 0.02);
        assert_true(fabs(time - 1) < 0.01);
        json_decref(json);
        job_free(s);
    }
}

/* ---- Restarts -------------------------------------------------------------------------------- */

static void check_restarts(uint64_t seed) {
    replica_job *a = job_new(seed, 3), *b = job_new(seed, 3);
    replica_job *both[] = {a, b};
    for (int i = 0; i < 2; i++) {
        both[i]->run_noise = 0.004;
        slow_down(both[i], 1, 1.08);
        job_start(both[i], "");
    }
    for (int round = 0; round < (all_trials() ? 40 : 28); round++) {
        if (round == 25)
            for (int i = 0; i < 2; i++)
                slow_down(both[i], 2, 1.2);
        job_next(a);
        job_next(b);
        assert_true(fabs(a->ran_s - b->ran_s) < 1e-9 * a->ran_s);
        assert_true(fabs(a->ran_j - b->ran_j) < 1e-6 * a->ran_j);
        if (all_trials() || round % 2 == 0) {
            simulated_restart(b->base);
            job_next(b);
        }
        job_observe(a);
        job_observe(b);
        if (all_trials() || round % 2 == 1) simulated_restart(b->base);
    }
    job_free(a);
    job_free(b);
}

TEST(a_restart_changes_nothing) {
    check_restarts(915); /* its plans depend on the round in which they are made */
    if (all_trials()) check_restarts(910);
}

/* ---- Job requests ---------------------------------------------------------------------------- */

TEST(requests_hold_for_all_replicas) {
    replica_job *s = job_new(1000, 3);
    slow_down(s, 1, 1.1);
    job_start(s, "");
    (void)learn(s);
    (void)run(s, 3, 0.005);
    double highest_s = fastest_s(s);
    ask_for(s->base, HARPE_JOB_REQUEST_PLAN_TIME, 1.1 * highest_s);
    (void)run(s, 25, 0.1001);
    job_next(s);
    assert_true(s->runs_own);
    assert_true(s->ran_s > 1.02 * highest_s);
    job_observe(s);
    must(s->base, harpe_scheduler_handle_request(s->base->scheduler, HARPE_JOB_REQUEST_PLAN_TIME, 0,
                                                 &s->base->error));
    ask_for(s->base, HARPE_JOB_REQUEST_POWER_CAP, 0.9 * s->ran_j / s->ran_s);
    job_next(s);
    assert_false(s->runs_own); /* the plans for a cap are shared */
    job_observe(s);
    job_free(s);
}

int main(void) { return run_listed_tests(); }
