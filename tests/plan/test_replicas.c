/* SPDX-License-Identifier: Apache-2.0 */
/* Plans for all replicas of a job: tiny jobs against all plans that there are, bounds against an
 * LP, and the properties that users rely on. */
#include "test.h"

#include "base/scratch.h"
#include "replica_instances.h"

#include "relaxation_lp.h"

/* ---- All plans of a tiny job ----------------------------------------------------------------- */

#define MOST_INSTRUCTIONS 8

/* One replica of a 1F1B pipeline of 2 stages, with all clocks of all peers of an instruction. */
typedef struct tiny {
    int count, peers;
    harpe_action action[MOST_INSTRUCTIONS];
    int first_of_rank[3];
    const harpe_profile_entry *entry[MOST_INSTRUCTIONS][2]; /* [instruction][peer] */
    double power_w[2][2];                                   /* [stage][peer] */
    double overhead_w;
} tiny;

static tiny tiny_of(const test_job *job, int replica) {
    tiny t = {.peers = harpe_replica_profiles_peer_count(job->profiles),
              .overhead_w = job->options.overhead_power_w};
    for (int rank = 0; rank < 2; rank++) {
        size_t count = 0;
        const harpe_instruction *list = harpe_schedule_rank(job->schedule, rank, &count);
        for (size_t i = 0; i < count; i++) {
            t.action[t.count] = list[i].actions[0];
            for (int g = 0; g < t.peers; g++)
                t.entry[t.count][g] = harpe_profile_find(
                    harpe_replica_profiles_at(job->profiles, replica, g), rank, list[i].name);
            t.count++;
        }
        t.first_of_rank[rank + 1] = t.count;
        for (int g = 0; g < t.peers; g++)
            t.power_w[rank][g] =
                job->options.blocking_power_w
                    ? job->blocking_w
                    : harpe_profile_blocking_power_w(
                          harpe_replica_profiles_at(job->profiles, replica, g), rank);
    }
    return t;
}

/* Returns true if b waits for a: the one before it in its rank, or the same microbatch next door.
 */
static bool waits_for(const tiny *t, int b, int a) {
    const harpe_action *of = &t->action[b], *by = &t->action[a];
    if (a == b) return false;
    if (a + 1 == b && of->stage == by->stage) return true;
    if (of->microbatch != by->microbatch) return false;
    if (of->operation == HARPE_FORWARD)
        return by->operation == HARPE_FORWARD && by->stage == of->stage - 1;
    return by->operation == HARPE_BACKWARD ? by->stage == of->stage + 1 : by->stage == of->stage;
}

static double longest_path_s(const tiny *t, const double *time_s) {
    double end_s[MOST_INSTRUCTIONS] = {0}, longest_s = 0;
    for (int round = 0; round < t->count; round++)
        for (int b = 0; b < t->count; b++) {
            double start_s = 0;
            for (int a = 0; a < t->count; a++)
                if (waits_for(t, b, a)) start_s = fmax(start_s, end_s[a]);
            end_s[b] = start_s + time_s[b];
        }
    for (int b = 0; b < t->count; b++)
        longest_s = fmax(longest_s, end_s[b]);
    return longest_s;
}

/* Takes the combination with a number for an instruction. Adds the energy beyond waiting. */
static double take(const tiny *t, int instruction, size_t *number, double *effective_j) {
    double longest_s = 0;
    for (int g = 0; g < t->peers; g++) {
        const harpe_profile_entry *entry = t->entry[instruction][g];
        const harpe_profile_point *point = &entry->points[*number % entry->point_count];
        *number /= entry->point_count;
        longest_s = fmax(longest_s, point->time_s);
        *effective_j +=
            point->energy_j - t->power_w[t->action[instruction].stage][g] * point->time_s;
    }
    return longest_s;
}

static size_t plan_count(const tiny *t) {
    size_t total = 1;
    for (int i = 0; i < t->count; i++)
        for (int g = 0; g < t->peers; g++)
            total *= t->entry[i][g]->point_count;
    return total;
}

static double all_power_w(const tiny *t) {
    double sum_w = t->overhead_w;
    for (int stage = 0; stage < 2; stage++)
        for (int g = 0; g < t->peers; g++)
            sum_w += t->power_w[stage][g];
    return sum_w;
}

/* Tries all plans. Returns the least energy of an iteration of `time_s`, and writes the shortest
 * time. */
static double best_of_all_j(const tiny *t, double time_s, double *shortest_s) {
    double best_j = INFINITY;
    *shortest_s = INFINITY;
    for (size_t plan = 0; plan < plan_count(t); plan++) {
        size_t number = plan;
        double times_s[MOST_INSTRUCTIONS], effective_j = 0;
        for (int i = 0; i < t->count; i++)
            times_s[i] = take(t, i, &number, &effective_j);
        double takes_s = longest_path_s(t, times_s);
        *shortest_s = fmin(*shortest_s, takes_s);
        if (takes_s <= time_s * (1 + 1e-9)) best_j = fmin(best_j, effective_j);
    }
    return best_j + all_power_w(t) * time_s;
}

/* Compares the plans of a job with the best ones. Counts the replicas whose plan is the best. */
static void check_tiny(const test_job *job, double slowdown, int *best_count, int *count) {
    owned_replica_plans plans =
        plans_of(job, &(harpe_replica_request){.slowdown = slowdown, .threads = 1});
    harpe_replica_job of = harpe_replica_plans_job(plans);
    double shortest_s = 0, slowest_s = 0;
    for (int r = 0; r < of.replica_count; r++) {
        tiny t = tiny_of(job, r);
        const harpe_replica_plan *plan = harpe_replica_plans_at(plans, r);
        double best_j = best_of_all_j(&t, of.own.time_s, &shortest_s);
        slowest_s = fmax(slowest_s, shortest_s);
        double scale_j = fabs(best_j) + all_power_w(&t) * of.own.time_s;
        assert_near(plan->fastest_s, shortest_s, 1e-9);
        assert_true(plan->time_s <= of.own.time_s);
        assert_true(plan->energy_j >= best_j - 1e-9 * scale_j);
        assert_true(plan->lower_bound_j <= best_j + 1e-9 * scale_j);
        assert_true(plan->energy_j <= best_j + 0.05 * scale_j);
        *best_count += plan->energy_j <= best_j + 1e-9 * scale_j;
        ++*count;
    }
    assert_near(of.fastest_s, slowest_s, 1e-9);
    assert_true(of.own.time_s <= slowdown * slowest_s * (1 + 1e-9));
}

TEST(tiny_jobs_have_the_best_of_all_plans) {
    test_random random = {41};
    int best = 0, count = 0;
    for (int trial = 0; trial < test_trials(60); trial++) {
        int peers = random_int(&random, 1, 2);
        test_profile_shape shape = {.character = (test_character)random_int(&random, 0, 4),
                                    .fewest_options = 1,
                                    .most_options = peers == 1 ? 3 : 2};
        harpe_schedule_options how = {.ranks = 2, .microbatches = random_int(&random, 1, 2)};
        if (peers == 2) how.microbatches = 1;
        owned_job job = job_of(&how, 2, peers, &shape, &random);
        check_tiny(job, 1 + 0.25 * random_int(&random, 0, 4), &best, &count);
    }
    assert_true(best >= 0.9 * count);
}

/* ---- Bounds ---------------------------------------------------------------------------------- */

#ifdef HARPE_HAVE_CLP

static double lp_bound_j(const harpe_problem *problem, double time_s) {
    owned_relaxation r = relaxation_of(problem);
    r.blocking_power_w = 0; /* waiting has no price in the LP */
    owned_relaxation_lp lp = relaxation_lp_new(&r);
    return relaxation_lp_energy_j(&lp, time_s) + harpe_problem_iteration_power_w(problem) * time_s;
}

/* The bound of a job is the sum of the optima of the replicas' LPs, also where a replica alone
 * would end its iteration. */
TEST(bound_is_the_sum_of_the_optima_of_lps) {
    test_random random = {5};
    for (int trial = 0; trial < test_trials(12); trial++) {
        harpe_schedule_options how = {.ranks = 3, .microbatches = random_int(&random, 1, 4)};
        test_profile_shape shape = {.fewest_options = 2, .most_options = 6};
        owned_job job = job_of(&how, 2, random_int(&random, 1, 2), &shape, &random);
        owned_replica_plans plans = plans_of(job, NULL);
        harpe_replica_job of = harpe_replica_plans_job(plans);
        for (int k = 0; k < 6; k++) {
            double time_s = of.fastest_s * (1 + 1e-7 + 0.12 * k), sum_j = 0;
            for (int replica = 0; replica < 2; replica++) {
                AT_END(harpe_replica_problem_clear) harpe_replica_problem problem;
                harpe_replica_source source = {job->profiles, job->schedule, &job->options};
                assert_works(harpe_replica_problem_new(&source, replica, &problem, &failure));
                sum_j += lp_bound_j(problem.problem, time_s);
            }
            assert_near(harpe_replica_plans_bound_at(plans, time_s), sum_j, 1e-6);
        }
    }
}

#endif

TEST(bound_is_lowest_at_the_time_of_least_energy) {
    harpe_variability how = {
        .replica_count = 5, .speed_deviation = 0.08, .power_deviation = 0.08, .seed = 4};
    owned_job job = varied_job(4, 8, &how);
    owned_replica_plans plans = plans_of(job, NULL);
    harpe_replica_job of = harpe_replica_plans_job(plans);
    double least_j = harpe_replica_plans_bound_at(plans, of.minimum_energy_s);
    assert_true(of.minimum_energy_s > of.fastest_s);
    for (int k = -20; k <= 20; k++) {
        double time_s = of.minimum_energy_s * (1 + 0.01 * k);
        assert_true(harpe_replica_plans_bound_at(plans, time_s) >= least_j);
    }
    assert_true(isinf(harpe_replica_plans_bound_at(plans, 0.99 * of.fastest_s)));
    harpe_frontier_vertex points[50];
    assert_works(harpe_replica_plans_frontier(plans, 50, points, &failure));
    assert_near(points[0].time_s, of.fastest_s, 1e-12);
    assert_near(points[49].lower_bound_j, least_j, 1e-12);
    for (int k = 1; k < 50; k++) {
        assert_true(points[k].lower_bound_j <= points[k - 1].lower_bound_j);
        assert_true(points[k].marginal_w <= points[k - 1].marginal_w * (1 + 1e-12));
    }
}

/* ---- Properties ------------------------------------------------------------------------------ */

/* A replica that is ready long before the others uses all of their time, also beyond the time at
 * which it would need the least energy alone. */
TEST(fast_replica_is_slower_than_alone) {
    test_rows rows = {0};
    harpe_profile *gpus[2];
    for (int slow = 0; slow < 2; slow++) {
        rows.count = 0;
        for (int k = 0; k < 10; k++) {
            double stretch = (1 + slow) * (1 + 0.1 * k);
            add_row(&rows, 0, "forward", 1400 - 10 * k, 0.1 * stretch, 40 - 6 * k + 0.36 * k * k);
            add_row(&rows, 0, "backward", 1400 - 10 * k, 0.2 * stretch, 80 - 12 * k + 0.72 * k * k);
        }
        set_powers(&rows, 30);
        gpus[slow] = profile_of(&rows);
    }
    free(rows.rows);
    owned_job job = job_of_two(gpus, 3);
    owned_replica_plans plans = plans_of(job, NULL);
    owned_problem alone =
        problem_of(harpe_replica_profiles_at(job->profiles, 0, 0), job->schedule, NULL);
    owned_frontier frontier = NULL;
    size_t count = 0;
    assert_works(harpe_frontier_new(alone, NULL, &frontier, &failure));
    const harpe_frontier_vertex *v = harpe_frontier_vertices(frontier, &count);
    const harpe_replica_plan *fast = harpe_replica_plans_at(plans, 0);
    assert_near(harpe_replica_plans_job(plans).own.time_s, 1.8, 1e-9);
    assert_true(fast->time_s > 1.05 * v[count - 1].time_s);
    assert_true(fast->time_s <= 1.8 * (1 + 1e-12));
    double waits_j = 30 * (1.8 - v[count - 1].time_s);
    assert_true(fast->energy_j < v[count - 1].lower_bound_j + waits_j);
}

TEST(equal_replicas_share_a_plan) {
    harpe_variability how = {.replica_count = 3, .speed_deviation = 0.08, .seed = 9};
    owned_job three = varied_job(3, 4, &how);
    const harpe_profile *gpus[6];
    static const int of[] = {0, 1, 0, 2, 1, 0};
    for (int r = 0; r < 6; r++)
        gpus[r] = harpe_replica_profiles_at(three->profiles, of[r], 0);
    owned_job six = calloc(1, sizeof *six);
    six->schedule = schedule_1f1b(3, 4);
    assert_works(harpe_replica_profiles_new(gpus, 6, 1, &six->profiles, &failure));
    harpe_replica_plans *a = plans_of(three, NULL), *b = plans_of(six, NULL);
    static const int same_as[] = {0, 1, 0, 3, 1, 0};
    assert_int_equal(harpe_replica_plans_job(b).distinct_count, 3);
    double sum_j = 0;
    for (int r = 0; r < 6; r++) {
        assert_int_equal(harpe_replica_plans_at(b, r)->same_as, same_as[r]);
        assert_near(harpe_replica_plans_at(b, r)->energy_j,
                    harpe_replica_plans_at(a, of[r])->energy_j, 1e-12);
        sum_j += harpe_replica_plans_at(b, r)->energy_j;
    }
    assert_near(harpe_replica_plans_job(b).own.energy_j, sum_j, 1e-12);
    harpe_replica_plans_free(a);
    harpe_replica_plans_free(b);
}

TEST(plans_do_not_depend_on_the_threads) {
    harpe_variability how = {
        .replica_count = 6, .peer_count = 2, .speed_deviation = 0.1, .seed = 2};
    owned_job job = varied_job(3, 6, &how);
    owned_replica_plans one = plans_of(job, &(harpe_replica_request){.threads = 1});
    owned_replica_plans many = plans_of(job, &(harpe_replica_request){.threads = 4});
    for (int r = 0; r < 6; r++)
        for (int rank = 0; rank < 3; rank++)
            for (int peer = 0; peer < 2; peer++) {
                size_t count = 0, other = 0;
                const int *a = harpe_replica_plans_frequencies(one, r, rank, peer, &count);
                const int *b = harpe_replica_plans_frequencies(many, r, rank, peer, &other);
                assert_int_equal(count, 12);
                assert_int_equal(other, 12);
                assert_memory_equal(a, b, count * sizeof *a);
            }
}

/* Replicas planned one by one for the same time need at least as much as together, one plan for all
 * needs more, and verification agrees. */
TEST(plans_for_each_gpu_need_less_than_one_plan) {
    for (uint64_t seed = 1; seed <= 6; seed++) {
        harpe_variability how = {.replica_count = 4,
                                 .peer_count = 1 + (int)(seed % 2),
                                 .speed_deviation = 0.08,
                                 .power_deviation = 0.08,
                                 .outlier_share = seed > 4 ? 0.1 : 0,
                                 .seed = seed};
        owned_job job = varied_job(4, 8, &how);
        owned_replica_plans plans = plans_of(job, NULL);
        harpe_replica_job of = harpe_replica_plans_job(plans);
        assert_works(harpe_replica_plans_verify(plans, job->profiles, job->schedule, &job->options,
                                                &failure));
        assert_near(of.own.time_s, of.fastest_s, 1e-9);
        assert_near(of.all_maximum.time_s, of.fastest_s, 1e-9);
        assert_true(of.one_plan.time_s >= of.own.time_s * (1 - 1e-9));
        assert_true(of.own.energy_j < 0.99 * of.one_plan.energy_j);
        assert_true(of.one_plan.energy_j < of.all_maximum.energy_j);
        assert_true(of.own.energy_j <= 1.01 * of.lower_bound_j);
        harpe_replica_total again;
        assert_works(harpe_replica_plans_evaluate(plans, HARPE_REPLICA_ONE_PLAN, job->profiles,
                                                  job->schedule, &job->options, &again, &failure));
        assert_near(again.energy_j, of.one_plan.energy_j, 1e-12);
        assert_near(again.time_s, of.one_plan.time_s, 1e-12);
    }
}

/* One replica with one peer is a pipeline, whose plans with one clock are known. GPUs without a
 * clock in common, and a clock that one of them lacks, have no such plan. */
TEST(one_clock_is_the_best_of_all_gpus) {
    harpe_variability how = {.replica_count = 1, .seed = 3};
    owned_job job = varied_job(3, 4, &how);
    owned_replica_plans plans = plans_of(job, NULL);
    owned_problem problem = NULL;
    owned_plan_set simple = NULL;
    assert_works(harpe_problem_new(harpe_replica_profiles_at(job->profiles, 0, 0), job->schedule,
                                   &job->options, &problem, &failure));
    assert_works(harpe_plan_set_one_clock(problem, &simple, &failure));
    double highest_s = harpe_replica_plans_job(plans).all_maximum.time_s;
    for (int percent = -5; percent < 60; percent += 5) {
        int mhz = -1;
        double most_s = highest_s * (1 + percent / 100.0);
        const harpe_plan *best = harpe_plan_set_within(simple, fmax(most_s, highest_s));
        harpe_replica_total found = harpe_replica_plans_one_clock(plans, most_s, &mhz);
        assert_near(found.time_s, best->time_s, 1e-9);
        assert_near(found.energy_j, best->energy_j, 1e-9);
        assert_int_equal(mhz, harpe_plan_one_clock_mhz(problem, best->frequency_mhz));
    }
}

TEST(verification_finds_wrong_numbers) {
    harpe_variability how = {.replica_count = 2, .speed_deviation = 0.1, .seed = 2};
    owned_job job = varied_job(3, 4, &how);
    owned_replica_plans plans = plans_of(job, NULL);
    harpe_replica_plan *plan = &plans->plans[1], right = *plan;
    for (int fault = 0; fault < 4; fault++) {
        *plan = right;
        if (fault == 0) plan->energy_j *= 1 - 1e-6;
        if (fault == 1) plan->time_s *= 1 + 1e-6;
        if (fault == 2) plan->lower_bound_j *= 1 - 1e-4;
        if (fault == 3) plan->lower_bound_j = 1.01 * plan->energy_j;
        assert_int_equal(harpe_replica_plans_verify(plans, job->profiles, job->schedule,
                                                    &job->options, &failure),
                         HARPE_INTERNAL);
    }
    *plan = right;
    plans->groups[1].frequency_mhz[0] = plans->groups[1].frequency_mhz[0] == 1410 ? 1200 : 1410;
    assert_int_equal(
        harpe_replica_plans_verify(plans, job->profiles, job->schedule, &job->options, &failure),
        HARPE_INTERNAL);
}

/* The lists of a plan file are in the order of replicas, ranks and peers. */
SCRATCH_TEST(plan_file_has_a_list_for_each_gpu) {
    harpe_variability how = {
        .replica_count = 2, .peer_count = 2, .speed_deviation = 0.1, .seed = 5};
    owned_job job = varied_job(3, 4, &how);
    owned_replica_plans plans = plans_of(job, NULL);
    const char *path = scratch_path(s, "plan.py");
    harpe_plan_file *file = NULL;
    assert_works(harpe_replica_plans_write(plans, path, &failure));
    assert_works(harpe_plan_file_read(path, &file, &failure));
    assert_int_equal(harpe_plan_file_rank_count(file), 12);
    for (int list = 0; list < 12; list++) {
        size_t count = 0, expected = 0;
        const harpe_plan_file_entry *entries = harpe_plan_file_rank(file, list, &count);
        const int *mhz =
            harpe_replica_plans_frequencies(plans, list / 6, list / 2 % 3, list % 2, &expected);
        assert_int_equal(count, expected);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(entries[i].frequency_mhz, mhz[i]);
            assert_string_equal(entries[i].instruction,
                                harpe_replica_plans_instruction_name(plans, list / 2 % 3, i));
        }
    }
    harpe_plan_file_free(file);
    assert_works(harpe_replica_plans_write_one(plans, 1, path, &failure));
    assert_works(harpe_plan_file_read(path, &file, &failure));
    assert_int_equal(harpe_plan_file_rank_count(file), 6);
    harpe_plan_file_free(file);
    assert_int_equal(harpe_replica_plans_write_one(plans, 2, path, NULL), HARPE_INVALID_ARGUMENT);
    (void)unlink(path);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static void assert_refused(const test_job *job, const harpe_problem_options *options,
                           const harpe_replica_request *request, harpe_status expected,
                           const char *words) {
    harpe_replica_plans *plans = NULL;
    assert_refuses(harpe_replica_plans_new(job->profiles, job->schedule, options, request, NULL,
                                           &plans, &failure),
                   expected, words);
    assert_null(plans);
}

static bool report_nothing(void *user, const char *phase, double fraction) {
    (void)user;
    (void)phase;
    (void)fraction;
    return false;
}

TEST(what_cannot_be_planned_is_refused) {
    harpe_variability how = {.replica_count = 2, .speed_deviation = 0.1, .seed = 5};
    owned_job job = varied_job(4, 8, &how);
    harpe_wait_power wait = {-1, "", 50};
    assert_refused(job, &(harpe_problem_options){.wait_powers = &wait, .wait_power_count = 1}, NULL,
                   HARPE_NOT_SUPPORTED, "wait powers");
    assert_refused(job, &(harpe_problem_options){.cost_model = HARPE_COST_EXPONENTIAL}, NULL,
                   HARPE_NOT_SUPPORTED, "cost model");
    assert_refused(job, &(harpe_problem_options){.gpus_per_stage = 2}, NULL, HARPE_NOT_SUPPORTED,
                   "GPUs per stage");
    assert_refused(job, NULL, &(harpe_replica_request){.time_s = 0.1}, HARPE_INFEASIBLE,
                   "the slowest replica");
    assert_refused(job, NULL, &(harpe_replica_request){.slowdown = 0.9}, HARPE_INVALID_ARGUMENT,
                   "slowdown");
    assert_refused(job, NULL, &(harpe_replica_request){.slowdown = 1.1, .time_s = 9},
                   HARPE_INVALID_ARGUMENT, "not both");
    assert_refused(job, NULL, &(harpe_replica_request){.threads = -1}, HARPE_INVALID_ARGUMENT,
                   "threads");
    harpe_replica_plans *plans = NULL;
    harpe_progress progress = {.report = report_nothing};
    assert_int_equal(
        harpe_replica_plans_new(job->profiles, job->schedule, NULL, NULL, &progress, &plans, NULL),
        HARPE_INTERRUPTED);
    harpe_schedule_free(job->schedule);
    job->schedule =
        schedule_of(&(harpe_schedule_options){.name = "dualpipe", .ranks = 4, .microbatches = 8});
    assert_refused(job, NULL, NULL, HARPE_NOT_SUPPORTED, "runs on the ranks");
    harpe_schedule_free(job->schedule);
    job->schedule = schedule_1f1b(3, 8);
    assert_refused(job, NULL, NULL, HARPE_INVALID_INPUT, "replica 0: ");
}

/* Without common clocks there is no plan for all, and everything else is as always. */
TEST(gpus_without_common_clocks_have_no_common_plan) {
    harpe_profile *gpus[2];
    for (int g = 0; g < 2; g++) {
        test_rows rows = {0};
        for (int k = 0; k < 3; k++) {
            add_row(&rows, 0, "forward", 1400 - 10 * k - g, 0.1 + 0.01 * k, 40 - 2 * k);
            add_row(&rows, 0, "backward", 1400 - 10 * k - g, 0.2 + 0.02 * k, 80 - 4 * k);
        }
        gpus[g] = profile_of(&rows);
        free(rows.rows);
    }
    owned_job job = job_of_two(gpus, 2);
    owned_replica_plans plans = plans_of(job, NULL);
    harpe_replica_total total;
    assert_true(harpe_replica_plans_job(plans).one_plan.time_s == 0);
    int mhz = -1;
    total = harpe_replica_plans_one_clock(plans, INFINITY, &mhz);
    assert_int_equal(mhz, 0);
    assert_true(total.energy_j == harpe_replica_plans_job(plans).all_maximum.energy_j);
    assert_int_equal(harpe_replica_plans_evaluate(plans, HARPE_REPLICA_ONE_PLAN, job->profiles,
                                                  job->schedule, NULL, &total, NULL),
                     HARPE_NOT_FOUND);
}
