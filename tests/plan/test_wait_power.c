/* SPDX-License-Identifier: Apache-2.0 */
/* Blocking powers of kinds of waits: the evaluation compared with a simulation of each rank, the
 * bound compared with all plans of small problems and with a linear program, and files of powers.
 */
#include "test.h"

#include <harpe/graph.h>

#include "plan/solver.h"

#include "instances.h"
#include "relaxation_lp.h"

OWNER(harpe_wait_powers)

#define INSTRUCTIONS_MAX 12
#define PLANS_MAX 3000
#define ROWS_MAX 64

/* ---- Random powers --------------------------------------------------------------------------- */

typedef struct power_rows {
    harpe_wait_power rows[ROWS_MAX];
    size_t count;
    double usual_w; /* of kinds without a row */
} power_rows;

static bool has_wait(const power_rows *powers, int rank, const char *wait) {
    for (size_t i = 0; i < powers->count; i++)
        if (powers->rows[i].rank == rank && strcmp(powers->rows[i].wait, wait) == 0) return true;
    return false;
}

static void add_power(power_rows *powers, int rank, const char *wait, double power_w) {
    if (powers->count == ROWS_MAX || has_wait(powers, rank, wait)) return;
    powers->rows[powers->count++] = (harpe_wait_power){rank, wait, power_w};
}

/* Gives some kinds of waits a power, for all ranks or for one. */
static power_rows random_powers(const harpe_schedule *schedule, test_random *random,
                                double power_scale) {
    power_rows powers = {.usual_w = random_blocking_w(random, power_scale)};
    for (int rank = 0; rank < harpe_schedule_rank_count(schedule); rank++) {
        size_t count = 0;
        const harpe_instruction *list = harpe_schedule_rank(schedule, rank, &count);
        for (size_t i = 0; i < count; i++) {
            if (list[i].action_count > 1 || random_int(random, 0, 4) > 0) continue;
            int for_rank = random_int(random, 0, 1) ? rank : -1;
            add_power(&powers, for_rank, list[i].name, random_blocking_w(random, power_scale));
        }
        if (random_int(random, 0, 1))
            add_power(&powers, rank, HARPE_WAIT_END, random_blocking_w(random, power_scale));
    }
    if (random_int(random, 0, 1))
        add_power(&powers, -1, HARPE_WAIT_END, random_blocking_w(random, power_scale));
    if (random_int(random, 0, 3) == 0)
        add_power(&powers, 0, "", random_blocking_w(random, power_scale));
    return powers;
}

/* Returns the power of a wait according to the rows, by the rule in harpe/plan.h. */
static double power_of(const power_rows *powers, int rank, const char *wait) {
    const struct {
        int rank;
        const char *wait;
    } order[] = {{rank, wait}, {-1, wait}, {rank, ""}, {-1, ""}};
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < powers->count; i++)
            if (powers->rows[i].rank == order[k].rank &&
                strcmp(powers->rows[i].wait, order[k].wait) == 0)
                return powers->rows[i].power_w;
    return powers->usual_w;
}

static harpe_problem *problem_with_powers(const harpe_profile *profile,
                                          const harpe_schedule *schedule, const power_rows *powers,
                                          double overhead_w, int gpus) {
    return problem_of(profile, schedule,
                      &(harpe_problem_options){.blocking_power_w = &powers->usual_w,
                                               .blocking_power_count = 1,
                                               .overhead_power_w = overhead_w,
                                               .gpus_per_stage = gpus,
                                               .wait_powers = powers->rows,
                                               .wait_power_count = powers->count});
}

static harpe_problem *random_wait_problem(const harpe_schedule_options *options,
                                          test_random *random, power_rows *powers, int gpus) {
    test_profile_shape shape = random_shape(random);
    owned_schedule schedule = schedule_of(options);
    owned_rows rows = make_rows(schedule, &shape, random);
    owned_profile profile = profile_of(&rows);
    *powers = random_powers(schedule, random, shape.power_scale);
    double overhead_w = random_overhead_w(random, shape.power_scale);
    return problem_with_powers(profile, schedule, powers, overhead_w, gpus);
}

static harpe_schedule_options small_shape(test_random *random) {
    static const struct {
        int ranks, microbatches;
    } shapes[] = {{1, 2}, {1, 4}, {2, 1}, {2, 2}, {2, 3}, {3, 1}, {3, 2}, {4, 1}};
    int k = random_int(random, 0, 7);
    return (harpe_schedule_options){.ranks = shapes[k].ranks,
                                    .microbatches = shapes[k].microbatches};
}

/* ---- A simulation ---------------------------------------------------------------------------- */

/* Computes when each instruction runs, and then adds up the energy of each rank. Returns that of
 * the whole iteration. */
static double simulate(const harpe_problem *problem, const power_rows *powers, int gpus,
                       const harpe_profile_point *const *point, double *start_s, double *time_s) {
    size_t n = harpe_problem_instruction_count(problem), i = 0;
    owned_array double *point_s = calloc(n, sizeof *point_s);
    double energy_j = 0;
    for (size_t k = 0; k < n; k++) {
        point_s[k] = point[k]->time_s;
        energy_j += point[k]->energy_j;
    }
    *time_s = simulate_times(problem, point_s, start_s);
    for (int rank = 0; rank < harpe_problem_rank_count(problem); rank++) {
        double idle_since_s = 0;
        for (size_t k = 0; k < harpe_problem_rank_length(problem, rank); k++, i++) {
            const char *name = harpe_problem_instruction_name(problem, rank, k);
            energy_j += gpus * power_of(powers, rank, name) * (start_s[i] - idle_since_s);
            idle_since_s = start_s[i] + point_s[i];
        }
        energy_j += gpus * power_of(powers, rank, HARPE_WAIT_END) * (*time_s - idle_since_s);
    }
    return energy_j + problem->overhead_power_w * *time_s;
}

static double size_of(const harpe_problem *problem, double energy_j, double time_s) {
    return 1e-6 + fabs(energy_j) + harpe_problem_iteration_power_w(problem) * time_s;
}

TEST(evaluation_matches_the_simulation) {
    test_random random = {71};
    int with_kinds = 0;
    for (int trial = 0; trial < test_trials(300); trial++) {
        const char *name = harpe_schedule_name_at(trial % 9);
        harpe_schedule_options options =
            shape_for(name, random_int(&random, 1, 4), random_int(&random, 1, 6));
        power_rows powers;
        int gpus = random_int(&random, 1, 3);
        owned_problem problem = random_wait_problem(&options, &random, &powers, gpus);
        with_kinds += harpe_problem_has_any_wait_kinds(problem);
        size_t n = harpe_problem_instruction_count(problem);
        owned_array int *mhz = calloc(n, sizeof *mhz);
        const harpe_profile_point **point = calloc(n, sizeof *point);
        for (size_t i = 0; i < n; i++) {
            const harpe_choice *choice = harpe_problem_choice(problem, (int32_t)i);
            point[i] = &choice->points[random_int(&random, 0, (int)choice->point_count - 1)];
            mhz[i] = point[i]->frequency_mhz;
        }
        owned_array double *start_s = calloc(2 * n, sizeof *start_s);
        double time_s, *found_s = start_s + n;
        double energy_j = simulate(problem, &powers, gpus, point, start_s, &time_s);
        harpe_plan plan;
        assert_works(harpe_plan_evaluate(problem, mhz, &plan, found_s, &failure));
        assert_near(plan.time_s, time_s, 1e-12);
        for (size_t i = 0; i < n; i++)
            assert_near(found_s[i], start_s[i], 1e-12);
        double gpu_energy_j = plan.compute_energy_j + plan.blocking_energy_j;
        assert_near(plan.overhead_energy_j, problem->overhead_power_w * plan.time_s, 1e-12);
        assert_near(plan.average_power_w,
                    gpu_energy_j / plan.time_s / (gpus * harpe_problem_rank_count(problem)), 1e-12);
        assert_true(fabs(plan.energy_j - energy_j) <= 1e-12 * size_of(problem, energy_j, time_s));
        assert_near(plan.energy_j, gpu_energy_j + plan.overhead_energy_j, 1e-12);
        free(point);
    }
    assert_true(with_kinds > test_trials(300) / 3);
}

/* Rank 0 waits for its backward from 0.1 to 0.4 s; rank 1 waits for its forward until 0.1 s, and at
 * the end from 0.4 s. */
TEST(a_small_iteration_by_hand) {
    const harpe_wait_power powers[] = {{-1, "forward", 300}, {-1, "backward", 50}, {1, "end", 10}};
    owned_rows rows = {0};
    for (int stage = 0; stage < 2; stage++) {
        add_row(&rows, stage, "forward", 1410, 0.1, 20);
        add_row(&rows, stage, "backward", 1410, 0.2, 40);
    }
    owned_schedule schedule = schedule_1f1b(2, 1);
    owned_profile profile = profile_of(&rows);
    owned_problem problem = problem_of(
        profile, schedule, &(harpe_problem_options){.wait_powers = powers, .wait_power_count = 3});
    harpe_plan plan = maximum_of(problem);
    harpe_power_shape shape;
    harpe_graph *graph = NULL;
    assert_near(plan.time_s, 0.6, 1e-12);
    assert_near(plan.blocking_energy_j, 30 + 15 + 2, 1e-12);
    assert_near(plan.energy_j, 120 + 47, 1e-12);
    assert_true(harpe_problem_blocking_power_w(problem, 0) == 300);
    assert_true(harpe_problem_wait_power_w(problem, 0, 0) == 300);
    assert_true(harpe_problem_wait_power_w(problem, 0, 1) == 50);
    assert_true(harpe_problem_wait_power_w(problem, 0, 2) == 0);
    assert_true(harpe_problem_wait_power_w(problem, 1, 2) == 10);
    assert_true(harpe_problem_wait_power_w(problem, 1, 3) == 0);
    assert_works(harpe_plan_power_shape(problem, plan.frequency_mhz, &shape, &failure));
    assert_near(shape.peak_w, 500, 1e-9);
    assert_int_equal(harpe_graph_of_problem(problem, &graph, NULL), HARPE_NOT_SUPPORTED);
    assert_null(graph);
}

/* ---- All plans ------------------------------------------------------------------------------- */

/* No plan, with options that are Pareto-optimal or not, is below the bound at its time. The
 * frontier and its plans pass the verification. */
TEST(no_plan_is_below_the_bound) {
    test_random random = {72};
    int compared = 0, trials = test_trials(1200);
    for (int trial = 0; trial < trials; trial++) {
        harpe_schedule_options options = small_shape(&random);
        power_rows powers;
        owned_problem problem = random_wait_problem(&options, &random, &powers, 1);
        size_t n = harpe_problem_instruction_count(problem), digit[INSTRUCTIONS_MAX] = {0};
        double plans = 1;
        for (size_t i = 0; i < n; i++)
            plans *= (double)harpe_problem_choice(problem, (int32_t)i)->point_count;
        if (n > INSTRUCTIONS_MAX || plans > PLANS_MAX) continue;
        owned_frontier frontier = frontier_of(problem);
        assert_works(harpe_frontier_verify(problem, frontier, 0, &failure));
        double shortest_s = INFINITY;
        do {
            const harpe_profile_point *point[INSTRUCTIONS_MAX];
            for (size_t k = 0; k < n; k++)
                point[k] = &harpe_problem_choice(problem, (int32_t)k)->points[digit[k]];
            double start_s[INSTRUCTIONS_MAX], time_s;
            double energy_j = simulate(problem, &powers, 1, point, start_s, &time_s);
            shortest_s = fmin(shortest_s, time_s);
            double bound_j = harpe_frontier_bound_at(frontier, time_s * (1 + 1e-12));
            if (bound_j > energy_j + 1e-8 * size_of(problem, energy_j, time_s))
                fail_msg("trial %d: a plan of %.12f s needs %.9f J, the bound is %.9f J", trial,
                         time_s, energy_j, bound_j);
            compared++;
        } while (next_plan(problem, digit));
        size_t count = 0;
        assert_near(harpe_frontier_vertices(frontier, &count)[0].time_s, shortest_s, 1e-9);
    }
    assert_true(compared > 8 * trials);
}

/* Plans of all schedules pass the verification, and are not below their bound. */
TEST(plans_of_all_schedules_are_verified) {
    test_random random = {73};
    const char *name;
    for (int k = 0; (name = harpe_schedule_name_at(k)); k++) {
        for (int trial = 0; trial < few_trials(4); trial++) {
            harpe_schedule_options options = shape_for(name, 3, 6);
            power_rows powers;
            owned_problem problem = random_wait_problem(&options, &random, &powers, 2);
            owned_frontier frontier = NULL;
            harpe_plan_request request = {.count = 8};
            owned_plan_set plans = plan_set_of(problem, &request, &frontier);
            assert_works(harpe_frontier_verify(problem, frontier, 0, &failure));
            assert_works(harpe_plan_set_verify(problem, frontier, plans, &failure));
        }
    }
}

/* ---- A linear program ------------------------------------------------------------------------ */

#ifdef HARPE_HAVE_CLP

/* Computes the times at which the instructions start and end if all points are the slowest or the
 * fastest. */
static double extreme_run(const harpe_problem *problem, bool is_slowest, double *start_s,
                          double *end_s) {
    size_t n = harpe_problem_instruction_count(problem);
    owned_array double *point_s = calloc(n, sizeof *point_s);
    for (size_t i = 0; i < n; i++) {
        const harpe_choice *choice = harpe_problem_choice(problem, (int32_t)i);
        point_s[i] = choice->points[0].time_s;
        for (size_t p = 1; p < choice->point_count; p++)
            point_s[i] = is_slowest ? fmax(point_s[i], choice->points[p].time_s)
                                    : fmin(point_s[i], choice->points[p].time_s);
    }
    double length_s = simulate_times(problem, point_s, start_s);
    for (size_t i = 0; i < n; i++)
        end_s[i] = start_s[i] + point_s[i];
    return length_s;
}

/* Fills `waits` rank by rank: one wait before each instruction, and one after the last instruction
 * of the rank. Returns the number of waits. */
static int list_waits(const harpe_problem *problem, const power_rows *powers,
                      relaxation_wait *waits) {
    size_t n = harpe_problem_instruction_count(problem);
    owned_array double *early = calloc(n * 4, sizeof *early);
    double *early_end = early + n, *late = early_end + n, *late_end = late + n;
    (void)extreme_run(problem, false, early, early_end);
    double longest_s = extreme_run(problem, true, late, late_end);
    int count = 0;
    for (int rank = 0, i = 0; rank < problem->rank_count; rank++) {
        int length = (int)harpe_problem_rank_length(problem, rank);
        double highest_w = harpe_problem_blocking_power_w(problem, rank);
        for (int k = 0; k <= length; k++) {
            bool is_end = k == length;
            const char *name =
                is_end ? HARPE_WAIT_END : harpe_problem_instruction_name(problem, rank, (size_t)k);
            waits[count++] = (relaxation_wait){.before = k == 0 ? -1 : i - 1,
                                               .after = is_end ? -1 : i,
                                               .saving_w = highest_w - power_of(powers, rank, name),
                                               .longest_s = (is_end ? longest_s : late[i]) -
                                                            (k == 0 ? 0 : early_end[i - 1])};
            if (!is_end) i++;
        }
    }
    return count;
}

TEST(bound_matches_the_linear_program) {
    test_random random = {75};
    int compared = 0, trials = test_trials(150);
    for (int trial = 0; trial < trials; trial++) {
        harpe_schedule_options options = {.name = trial % 2 ? "1f1b" : "gpipe",
                                          .ranks = random_int(&random, 1, 4),
                                          .microbatches = random_int(&random, 1, 5)};
        power_rows powers;
        owned_problem problem = random_wait_problem(&options, &random, &powers, 1);
        if (!harpe_problem_has_any_wait_kinds(problem)) continue;
        owned_frontier frontier = frontier_of(problem);
        relaxation_wait waits[64];
        owned_relaxation r = relaxation_of(problem);
        r.blocking_power_w = harpe_problem_iteration_power_w(problem);
        r.waits = waits;
        r.wait_count = list_waits(problem, &powers, waits);
        r.starts_at_once = true;
        owned_relaxation_lp lp = relaxation_lp_new(&r);
        size_t count = 0;
        const harpe_frontier_vertex *last = harpe_frontier_vertices(frontier, &count) + count - 1;
        assert_bound_is_optimum(frontier, &lp, 5, &random,
                                1e-6 * size_of(problem, 0, last->time_s));
        compared++;
    }
    assert_true(compared > trials / 4);
}

#endif

/* ---- One power for all kinds ----------------------------------------------------------------- */

static const harpe_plan_request ten_plans = {.count = 10};

TEST(equal_powers_change_nothing) {
    test_random random = {74};
    for (int trial = 0; trial < test_trials(40); trial++) {
        harpe_schedule_options options = random_1f1b(&random, 4, 6);
        test_profile_shape shape = random_shape(&random);
        owned_schedule schedule = schedule_of(&options);
        owned_rows rows = make_rows(schedule, &shape, &random);
        owned_profile profile = profile_of(&rows);
        power_rows none = {.usual_w = 83.64}, equal = {.usual_w = trial % 2 ? 83.64 : 5};
        add_power(&equal, -1, "forward", 83.64);
        add_power(&equal, 0, HARPE_WAIT_END, 83.64);
        add_power(&equal, -1, "", 83.64);
        owned_problem one = problem_with_powers(profile, schedule, &none, 0, 3);
        owned_problem other = problem_with_powers(profile, schedule, &equal, 0, 3);
        assert_false(harpe_problem_has_any_wait_kinds(other));
        harpe_frontier *frontiers[2];
        owned_plan_set a = plan_set_of(one, &ten_plans, &frontiers[0]);
        owned_plan_set b = plan_set_of(other, &ten_plans, &frontiers[1]);
        assert_int_equal(harpe_plan_set_count(a), harpe_plan_set_count(b));
        size_t n = harpe_problem_instruction_count(one);
        for (size_t i = 0; i < harpe_plan_set_count(a); i++) {
            const harpe_plan *x = harpe_plan_set_at(a, i), *y = harpe_plan_set_at(b, i);
            assert_true(x->time_s == y->time_s && x->energy_j == y->energy_j);
            assert_true(x->lower_bound_j == y->lower_bound_j);
            assert_memory_equal(x->frequency_mhz, y->frequency_mhz, n * sizeof(int));
        }
        harpe_frontier_free(frontiers[0]);
        harpe_frontier_free(frontiers[1]);
    }
}

/* ---- Bad powers ------------------------------------------------------------------------------ */

TEST(wrong_powers_are_refused) {
    static const struct {
        harpe_wait_power rows[2];
        size_t count;
        const char *says;
    } cases[] = {
        {{{-1, "fowrard", 50}}, 1, "'fowrard', but no instruction has this name (waits: forward"},
        {{{1, "optimizer", 50}}, 1, "'optimizer' of rank 1, but no instruction of this rank"},
        {{{2, "end", 50}}, 1, "for rank 2, but the ranks are 0 to 1"},
        {{{0, "end", -1}}, 1, "-1 W is not between"},
        {{{0, "end", NAN}}, 1, "nan W is not between"},
        {{{0, "a,b", 1}}, 1, "not an instruction name"},
        {{{0, "end", 1}, {0, "end", 2}}, 2, "two wait powers are for the wait 'end' of rank 0"},
        {{{-1, NULL, 1}, {-1, "", 2}}, 2, "two wait powers are for the wait ''"},
    };
    owned_schedule schedule = schedule_1f1b(2, 2);
    owned_rows rows = {0};
    for (int stage = 0; stage < 2; stage++) {
        add_row(&rows, stage, "forward", 1410, 0.1, 20);
        add_row(&rows, stage, "backward", 1410, 0.2, 40);
    }
    owned_profile profile = profile_of(&rows);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        harpe_problem *problem = NULL;
        harpe_problem_options options = {.wait_powers = cases[k].rows,
                                         .wait_power_count = cases[k].count,
                                         .wait_powers_name = "w.csv"};
        assert_refuses(harpe_problem_new(profile, schedule, &options, &problem, &failure),
                       HARPE_INVALID_INPUT, cases[k].says);
        assert_null(problem);
        assert_memory_equal(failure.message, "w.csv: ", 7);
    }
}

TEST(files_are_read) {
    static const char text[] = "rank,wait,blocking_power\n,,84\n,end,60.5\n3,forward,70\n";
    OWNED(harpe_wait_powers) powers = NULL;
    assert_works(harpe_wait_powers_parse_csv(text, strlen(text), "w.csv", &powers, &failure));
    size_t count = 0;
    const harpe_wait_power *rows = harpe_wait_powers_rows(powers, &count);
    assert_int_equal(count, 3);
    assert_int_equal(rows[0].rank, -1);
    assert_string_equal(rows[0].wait, "");
    assert_true(rows[0].power_w == 84);
    assert_string_equal(rows[1].wait, "end");
    assert_true(rows[1].power_w == 60.5);
    assert_int_equal(rows[2].rank, 3);
    harpe_wait_powers_free(NULL);
}

TEST(wrong_files_are_refused) {
    static const char *const cases[][2] = {
        {"", "w.csv:1:1: the file is empty"},
        {"wait\n", "w.csv:1:1: missing column 'blocking_power'"},
        {"blocking_power\n", "w.csv:1:1: missing column 'wait'"},
        {"wait,power\n", "w.csv:1:6: the columns of wait powers are"},
        {"wait,wait\n", "w.csv:1:6: this column is there twice"},
        {"wait,blocking_power\n", "w.csv:2:1: no rows"},
        {"wait,blocking_power\nend\n", "w.csv:2:1: expected 2 fields"},
        {"wait,blocking_power\nend,1,2\n", "w.csv:2:7: expected 2 fields"},
        {"wait,blocking_power\nend,abc\n", "w.csv:2:5: expected 0 to 100000 W"},
        {"wait,blocking_power\nend,-1\n", "w.csv:2:5: expected 0 to 100000 W"},
        {"wait,blocking_power\nend,nan\n", "w.csv:2:5: expected 0 to 100000 W"},
        {"wait,blocking_power\na b,1\n", "w.csv:2:1: expected an instruction name"},
        {"rank,wait,blocking_power\n-1,end,1\n", "w.csv:2:1: expected a rank"},
        {"wait,blocking_power\nend,1\nforward,2\nend,3\n", "w.csv:4:1: the same rank and wait as "
                                                           "in line 2"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        harpe_wait_powers *powers = NULL;
        assert_int_equal(harpe_wait_powers_parse_csv(cases[k][0], strlen(cases[k][0]), "w.csv",
                                                     &powers, &failure),
                         HARPE_INVALID_INPUT);
        assert_null(powers);
        if (strncmp(failure.message, cases[k][1], strlen(cases[k][1])) != 0)
            fail_msg("%s", failure.message);
    }
}
