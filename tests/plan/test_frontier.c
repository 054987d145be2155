/* SPDX-License-Identifier: Apache-2.0 */
/* The exact frontier, compared with three independent results: a third-party LP solver on
 * dependencies that this file derives from the schedule's definition, the enumeration of all plans
 * of tiny instances, and examples computed by hand. Then general properties of frontiers.
 * test_wait_power.c compares the bound with all plans, test_plan_set.c tests plans, and
 * test_verify.c tests the checker. */
#include "test.h"

#include "plan/solver.h"

#include "instances.h"
#include "relaxation_lp.h"

static double fastest_s(const harpe_frontier *frontier) {
    size_t count = 0;
    return harpe_frontier_vertices(frontier, &count)[0].time_s;
}

/* The planner counts whole microwatts and picoseconds. That is far below what can be measured, but
 * not below 1e-9 of all values that CHARACTER_WILD creates. */
static double resolution_j(const harpe_problem *problem, const harpe_frontier *frontier) {
    size_t count = 0;
    double steepest_w = harpe_frontier_vertices(frontier, &count)[0].marginal_w, sum_j = 0;
    for (int32_t i = 0; i < problem->instruction_count; i++) {
        const harpe_option_list *list = &harpe_problem_choice(problem, i)->list;
        double stretch_s = list->curve_time_s[list->curve_count - 1] - list->curve_time_s[0];
        sum_j += 1e-6 * stretch_s + 1e-12 * steepest_w;
    }
    return sum_j;
}

/* Checks the properties of every frontier. */
static void assert_well_formed(const harpe_problem *problem, const harpe_frontier *frontier) {
    size_t count = 0;
    const harpe_frontier_vertex *v = harpe_frontier_vertices(frontier, &count);
    assert_true(count >= 1);
    double every_second_w = problem->total_blocking_power_w + problem->overhead_power_w;
    for (size_t i = 0; i < count; i++) {
        assert_true(v[i].time_s > 0 && isfinite(v[i].lower_bound_j) && v[i].marginal_w >= 0);
        assert_true(fabs(harpe_frontier_bound_at(frontier, v[i].time_s) - v[i].lower_bound_j) <=
                    1e-12 * v[0].lower_bound_j);
        if (i == 0) continue;
        assert_true(v[i].time_s > v[i - 1].time_s);
        assert_true(v[i].lower_bound_j < v[i - 1].lower_bound_j);
        assert_true(v[i].marginal_w > every_second_w - 1e-6);
        assert_true(i == 1 ? v[i].marginal_w == v[0].marginal_w
                           : v[i].marginal_w < v[i - 1].marginal_w);
        double slope_w =
            (v[i - 1].lower_bound_j - v[i].lower_bound_j) / (v[i].time_s - v[i - 1].time_s);
        double resolution_w = 1e-9 * v[0].lower_bound_j / (v[i].time_s - v[i - 1].time_s);
        assert_true(fabs(slope_w - (v[i].marginal_w - every_second_w)) <=
                    1e-6 * v[i].marginal_w + resolution_w);
    }
}

/* ---- An independent LP ----------------------------------------------------------------------- */

#ifdef HARPE_HAVE_CLP

static const harpe_option_list *list_of(const harpe_problem *problem, int stage,
                                        const char *instruction) {
    for (size_t i = 0; i < harpe_problem_option_list_count(problem); i++) {
        const harpe_option_list *list = harpe_problem_option_list_at(problem, i);
        if (list->stage == stage && strcmp(list->instruction, instruction) == 0) return list;
    }
    fail_msg("no options for '%s' of stage %d", instruction, stage);
    return NULL;
}

/* 1F1B from its definition: stage s starts with min(M, N - 1 - s) forwards, then runs one forward
 * and one backward in turn, then the remaining backwards. F(s, m) is number s * 2M + m, B(s, m) is
 * s * 2M + M + m. */
static relaxation relaxation_of_1f1b(const harpe_problem *problem, int stages, int microbatches,
                                     double blocking_power_w) {
    int n = 2 * stages * microbatches;
    relaxation r = relaxation_new(n, 3 * n, blocking_power_w);
    for (int s = 0; s < stages; s++) {
        int forward = s * 2 * microbatches, backward = forward + microbatches, previous = -1;
        int warm_up = stages - 1 - s < microbatches ? stages - 1 - s : microbatches;
        int forwards = 0, backwards = 0;
        for (int i = 0; i < 2 * microbatches; i++) {
            bool is_forward = forwards < microbatches && forwards - backwards <= warm_up;
            int next = is_forward ? forward + forwards++ : backward + backwards++;
            if (previous >= 0) relaxation_arc(&r, previous, next);
            previous = next;
        }
        for (int m = 0; m < microbatches; m++) {
            r.list_of[forward + m] = list_of(problem, s, "forward");
            r.list_of[backward + m] = list_of(problem, s, "backward");
            if (s + 1 < stages) {
                relaxation_arc(&r, forward + m, forward + 2 * microbatches + m);
                relaxation_arc(&r, backward + 2 * microbatches + m, backward + m);
            } else {
                relaxation_arc(&r, forward + m, backward + m);
            }
        }
    }
    return r;
}

/* Returns the longest path with every instruction at its fastest. */
static double shortest_time_s(const relaxation *r) {
    owned_array double *end_s = calloc((size_t)r->instruction_count, sizeof *end_s);
    double longest_s = 0;
    for (int i = 0; i < r->instruction_count; i++)
        end_s[i] = r->list_of[i]->curve_time_s[0];
    for (bool changed = true; changed;) {
        changed = false;
        for (int a = 0; a < r->arc_count; a++) {
            int to = r->arc_to[a];
            double end = end_s[r->arc_from[a]] + r->list_of[to]->curve_time_s[0];
            if (end <= end_s[to]) continue;
            end_s[to] = end;
            changed = true;
        }
    }
    for (int i = 0; i < r->instruction_count; i++)
        longest_s = fmax(longest_s, end_s[i]);
    return longest_s;
}

static void assert_matches_lp(const harpe_problem *problem, const relaxation *r, int samples,
                              test_random *random) {
    owned_frontier frontier = frontier_of(problem);
    assert_well_formed(problem, frontier);
    assert_near(fastest_s(frontier), shortest_time_s(r), 1e-9);
    owned_relaxation_lp lp = relaxation_lp_new(r);
    assert_bound_is_optimum(frontier, &lp, samples, random, resolution_j(problem, frontier));
}

TEST(frontier_matches_lp_optimum) {
    test_random random = {1};
    for (int trial = 0; trial < test_trials(400); trial++) {
        test_profile_shape shape = random_shape(&random);
        int stages = random_int(&random, 1, 4), microbatches = random_int(&random, 1, 6);
        harpe_schedule_options options = {.ranks = stages, .microbatches = microbatches};
        owned_schedule schedule = schedule_of(&options);
        owned_rows rows = make_rows(schedule, &shape, &random);
        double blocking_w = random_blocking_w(&random, shape.power_scale);
        owned_problem problem = problem_from_rows(&rows, &options, blocking_w);
        owned_relaxation r = relaxation_of_1f1b(problem, stages, microbatches, stages * blocking_w);
        assert_int_equal(r.instruction_count, harpe_problem_instruction_count(problem));
        assert_matches_lp(problem, &r, 4, &random);
    }
}

TEST(frontier_matches_lp_optimum_on_every_schedule) {
    test_random random = {2};
    static const char *const before[] = {"load", NULL}, *const after[] = {"reduce", "step", NULL};
    for (int trial = 0; trial < test_trials(10); trial++) {
        const char *name;
        for (int k = 0; (name = harpe_schedule_name_at(k)); k++) {
            harpe_schedule_options options =
                shape_for(name, random_int(&random, 1, 3), random_int(&random, 1, 4));
            if (strcmp(name, "interleaved-1f1b") == 0) options.chunks = random_int(&random, 2, 3);
            options.prologue = trial % 3 == 0 ? before : NULL;
            options.epilogue = trial % 2 == 0 ? after : NULL;
            owned_problem problem = random_problem(&options, &random);
            owned_relaxation r = relaxation_of(problem);
            assert_matches_lp(problem, &r, 3, &random);
        }
    }
}

TEST(frontier_matches_lp_optimum_with_a_blocking_power_for_each_rank) {
    test_random random = {3};
    for (int trial = 0; trial < test_trials(30); trial++) {
        double blocking_w[3] = {0, random_between(&random, 0, 200),
                                random_between(&random, 0, 400)};
        harpe_schedule_options options = {.ranks = 3, .microbatches = random_int(&random, 1, 4)};
        owned_schedule schedule = schedule_of(&options);
        test_profile_shape shape = random_shape(&random);
        owned_rows rows = make_rows(schedule, &shape, &random);
        owned_profile profile = profile_of(&rows);
        owned_problem problem = problem_of(
            profile, schedule,
            &(harpe_problem_options){.blocking_power_w = blocking_w, .blocking_power_count = 3});
        owned_relaxation r = relaxation_of_1f1b(problem, 3, options.microbatches,
                                                blocking_w[0] + blocking_w[1] + blocking_w[2]);
        assert_matches_lp(problem, &r, 3, &random);
    }
}

static void assert_measured_match_lp(int microbatches, harpe_cost_model cost_model, int samples) {
    test_random random = {(uint64_t)microbatches};
    for (int i = 0; i < MEASURED_PROFILE_COUNT; i++) {
        owned_problem problem =
            measured_problem(i, microbatches, (harpe_problem_options){.cost_model = cost_model});
        owned_relaxation r = relaxation_of_1f1b(problem, 8, microbatches, 8 * MEASURED_BLOCKING_W);
        assert_matches_lp(problem, &r, samples, &random);
    }
}

TEST(frontier_matches_lp_optimum_on_measured_profiles) {
    assert_measured_match_lp(all_trials() ? 12 : 6, HARPE_COST_HULL, 2);
    if (all_trials()) assert_measured_match_lp(24, HARPE_COST_HULL, 1);
}

TEST(frontier_of_exponential_curves_matches_lp_optimum) {
    assert_measured_match_lp(4, HARPE_COST_EXPONENTIAL, 2);
}

#endif

/* ---- All plans of tiny instances ------------------------------------------------------------- */

#define BRUTE_INSTRUCTIONS_MAX 8
#define BRUTE_OPTIONS_MAX 3
#define BRUTE_PLANS_MAX 6561 /* 3^8 */

typedef struct enumeration {
    const harpe_problem *problem;
    size_t count;
    double time_s[BRUTE_PLANS_MAX], energy_j[BRUTE_PLANS_MAX];
} enumeration;

/* Tries every combination of measured points, including those that are not Pareto-optimal. */
static void enumerate(const harpe_problem *problem, enumeration *out) {
    int n = problem->instruction_count;
    size_t digit[BRUTE_INSTRUCTIONS_MAX] = {0};
    assert_true(n <= BRUTE_INSTRUCTIONS_MAX);
    out->problem = problem;
    out->count = 0;
    do {
        double point_s[BRUTE_INSTRUCTIONS_MAX], start_s[BRUTE_INSTRUCTIONS_MAX], energy_j = 0;
        for (int i = 0; i < n; i++) {
            const harpe_choice *choice = harpe_problem_choice(problem, i);
            point_s[i] = choice->points[digit[i]].time_s;
            energy_j += choice->points[digit[i]].energy_j - choice->blocking_power_w * point_s[i];
        }
        double time_s = simulate_times(problem, point_s, start_s);
        double every_second_w = problem->total_blocking_power_w + problem->overhead_power_w;
        out->time_s[out->count] = time_s;
        out->energy_j[out->count++] = energy_j + every_second_w * time_s;
    } while (next_plan(problem, digit));
}

/* The planner counts whole picoseconds. Eight instructions can add up to this error. */
#define ROUNDING_S 1e-11

/* Returns the least energy of all plans that are not slower. */
static double least_energy_j(const enumeration *all, double time_s) {
    double least_j = INFINITY;
    for (size_t p = 0; p < all->count; p++)
        if (all->time_s[p] <= time_s) least_j = fmin(least_j, all->energy_j[p]);
    return least_j;
}

static const struct {
    int ranks, microbatches;
} tiny_shapes[] = {{1, 1}, {1, 2}, {1, 4}, {2, 1}, {2, 2}, {3, 1}, {4, 1}};
#define TINY_SHAPES ((int)(sizeof tiny_shapes / sizeof tiny_shapes[0]))

static harpe_problem *tiny_problem(test_random *random) {
    int k = random_int(random, 0, TINY_SHAPES - 1);
    harpe_schedule_options options = {.ranks = tiny_shapes[k].ranks,
                                      .microbatches = tiny_shapes[k].microbatches};
    test_profile_shape shape = random_shape(random);
    shape.most_options = random_int(random, 1, BRUTE_OPTIONS_MAX);
    shape.fewest_options = random_int(random, 1, shape.most_options);
    owned_schedule schedule = schedule_of(&options);
    owned_rows rows = make_rows(schedule, &shape, random);
    double blocking_w = random_blocking_w(random, shape.power_scale);
    double overhead_w = random_overhead_w(random, shape.power_scale);
    return problem_with_overhead(&rows, &options, blocking_w, overhead_w);
}

/* The best of all plans needs exactly the energy of the bound. */
static void assert_attained(const enumeration *all, const harpe_frontier *frontier, double time_s) {
    double least_j = least_energy_j(all, time_s + ROUNDING_S);
    double low_j = harpe_frontier_bound_at(frontier, time_s + ROUNDING_S);
    double high_j = fmax(low_j, harpe_frontier_bound_at(frontier, time_s - ROUNDING_S));
    double tolerance_j = 1e-9 * least_j + resolution_j(all->problem, frontier);
    if (least_j < low_j - tolerance_j || least_j > high_j + tolerance_j)
        fail_msg("the best plan within %.12g s takes %.12g J, the bound is %.12g to %.12g J",
                 time_s, least_j, low_j, high_j);
}

/* Returns true if all relaxed durations of the walk are measured durations. */
static bool is_integral(const harpe_walk *walk, harpe_relaxed *relaxed) {
    harpe_walk_read(walk, relaxed);
    for (int32_t i = 0; i < walk->network.instruction_count; i++) {
        const harpe_network_curve *curve = &walk->network.curves[walk->network.curve_of[i]];
        bool found = relaxed->duration_ps[i] >= curve->time_ps[curve->segment_count];
        for (int32_t k = 0; k < curve->segment_count; k++)
            found = found || relaxed->duration_ps[i] == curve->time_ps[k];
        if (!found) return false;
    }
    return true;
}

TEST(bound_is_attained_where_the_relaxation_is_integral) {
    test_random random = {5};
    static enumeration all;
    int attained = 0, fractional = 0;
    for (int trial = 0; trial < test_trials(200); trial++) {
        owned_problem problem = tiny_problem(&random);
        AT_END(harpe_walk_clear) harpe_walk walk;
        int64_t duration_ps[BRUTE_INSTRUCTIONS_MAX], price_uw[BRUTE_INSTRUCTIONS_MAX];
        harpe_relaxed relaxed = {.duration_ps = duration_ps, .price_uw = price_uw};
        enumerate(problem, &all);
        owned_frontier frontier = frontier_of(problem);
        assert_works(harpe_walk_begin(&walk, problem, NULL, &failure));
        for (bool at_end = false; !at_end;) {
            at_end = walk.solver.time_ps <= walk.fastest_ps;
            double time_s = (double)walk.solver.time_ps / HARPE_PS_PER_S;
            if (is_integral(&walk, &relaxed)) {
                assert_attained(&all, frontier, time_s);
                attained++;
            } else {
                fractional++;
            }
            assert_works(harpe_walk_to_next_vertex(&walk, &failure));
            if (!at_end && walk.solver.time_ps == (int64_t)llround(time_s * HARPE_PS_PER_S))
                assert_works(harpe_walk_to(&walk, walk.fastest_ps, &failure));
        }
    }
    assert_true(attained > test_trials(200) && fractional > 0);
}

TEST(every_vertex_of_a_chain_is_a_plan) {
    test_random random = {6};
    static enumeration all;
    for (int trial = 0; trial < test_trials(100); trial++) {
        test_profile_shape shape = {.character = CHARACTER_MEASURED,
                                    .fewest_options = 1,
                                    .most_options = BRUTE_OPTIONS_MAX};
        harpe_schedule_options options = {.ranks = 1, .microbatches = random_int(&random, 1, 4)};
        owned_problem problem =
            problem_of_shape(&options, &shape, &random, random_int(&random, 0, 1) * 70);
        owned_frontier frontier = frontier_of(problem);
        enumerate(problem, &all);
        size_t count = 0;
        const harpe_frontier_vertex *vertices = harpe_frontier_vertices(frontier, &count);
        for (size_t v = 0; v < count; v++)
            assert_attained(&all, frontier, vertices[v].time_s);
    }
}

TEST(plan_sets_hold_nothing_that_enumeration_refutes) {
    test_random random = {7};
    static enumeration all;
    for (int trial = 0; trial < test_trials(100); trial++) {
        owned_problem problem = tiny_problem(&random);
        owned_frontier frontier = NULL;
        harpe_plan_request request = {.choice = HARPE_PLANS_SPREAD, .count = 8};
        owned_plan_set plans = plan_set_of(problem, &request, &frontier);
        enumerate(problem, &all);
        for (size_t i = 0; i < harpe_plan_set_count(plans); i++) {
            const harpe_plan *plan = harpe_plan_set_at(plans, i);
            bool exists = false;
            for (size_t p = 0; p < all.count && !exists; p++) {
                exists = nearly(all.time_s[p], plan->time_s, 1e-12) &&
                         nearly(all.energy_j[p], plan->energy_j, 1e-12);
            }
            assert_true(exists);
            double later_s = plan->time_s + ROUNDING_S;
            assert_true(harpe_frontier_bound_at(frontier, later_s) <=
                        least_energy_j(&all, later_s) * (1 + 1e-9) +
                            resolution_j(problem, frontier));
        }
    }
}

/* ---- Worked out by hand ---------------------------------------------------------------------- */

static void add_hand_made_rows(test_rows *rows, int stages) {
    for (int stage = 0; stage < stages; stage++) {
        add_row(rows, stage, "forward", 1000, 1, 20); /* saves 8 W */
        add_row(rows, stage, "forward", 500, 2, 12);
        add_row(rows, stage, "backward", 1000, 1, 30); /* saves 10 W */
        add_row(rows, stage, "backward", 500, 3, 10);
    }
}

static void assert_vertices(const harpe_frontier *frontier, const harpe_frontier_vertex *expected,
                            size_t expected_count) {
    size_t count = 0;
    const harpe_frontier_vertex *vertices = harpe_frontier_vertices(frontier, &count);
    assert_int_equal(count, expected_count);
    for (size_t i = 0; i < count; i++) {
        assert_near(vertices[i].time_s, expected[i].time_s, 1e-12);
        assert_near(vertices[i].lower_bound_j, expected[i].lower_bound_j, 1e-12);
        assert_near(vertices[i].marginal_w, expected[i].marginal_w, 1e-9);
    }
}

/* Slowing down the backward saves more, so it comes first on the way from T_min. */
TEST(one_rank_by_hand) {
    owned_rows rows = {0};
    add_hand_made_rows(&rows, 1);
    owned_problem problem = problem_1f1b(&rows, 1, 1, 0);
    owned_frontier frontier = frontier_of(problem);
    assert_vertices(frontier, (harpe_frontier_vertex[]){{2, 50, 10}, {4, 30, 10}, {5, 22, 8}}, 3);
    assert_true(harpe_frontier_bound_at(frontier, 3) == 40);
    assert_true(harpe_frontier_bound_at(frontier, 4.5) == 26);
    assert_true(harpe_frontier_bound_at(frontier, 5.5) == 22);
    assert_true(harpe_frontier_bound_at(frontier, 1e9) == 22);
    assert_true(isinf(harpe_frontier_bound_at(frontier, 1.999)));
    harpe_work work = harpe_frontier_work(frontier);
    assert_true(work.pivots > 0 && work.memory_bytes > 0 && work.solve_s >= 0);
    harpe_frontier_free(NULL);
}

/* Two ranks, one microbatch: F0 F1 B1 B0 run one after the other. While one rank works, the other
 * waits at 9 W. Slowing down a forward saves 8 W but makes the other rank wait at 9 W, so it does
 * not pay. */
TEST(two_ranks_by_hand) {
    owned_rows rows = {0};
    add_hand_made_rows(&rows, 2);
    owned_problem problem = problem_1f1b(&rows, 2, 1, 9);
    owned_frontier frontier = frontier_of(problem);
    assert_vertices(frontier, (harpe_frontier_vertex[]){{4, 136, 19}, {8, 132, 19}}, 2);
}

/* ---- Properties ------------------------------------------------------------------------------ */

static test_rows rows_for_3_stages(uint64_t seed) {
    test_random random = {seed};
    owned_schedule schedule = schedule_1f1b(3, 1);
    return make_rows(schedule,
                     &(test_profile_shape){
                         .character = CHARACTER_MEASURED, .fewest_options = 2, .most_options = 6},
                     &random);
}

static void assert_same_frontier(const harpe_problem *a, const harpe_problem *b) {
    owned_frontier first = frontier_of(a);
    owned_frontier second = frontier_of(b);
    size_t count = 0, other_count = 0;
    const harpe_frontier_vertex *v = harpe_frontier_vertices(first, &count);
    const harpe_frontier_vertex *w = harpe_frontier_vertices(second, &other_count);
    assert_int_equal(count, other_count);
    assert_memory_equal(v, w, count * sizeof *v);
}

TEST(frontier_is_deterministic_and_ignores_the_order_of_rows) {
    test_random random = {8};
    static const harpe_schedule_options shape = {.ranks = 3, .microbatches = 4};
    for (int trial = 0; trial < test_trials(20); trial++) {
        owned_rows rows = rows_for_3_stages(100 + (uint64_t)trial);
        owned_problem problem = problem_from_rows(&rows, &shape, 80);
        for (size_t i = rows.count - 1; i > 0; i--) {
            size_t k = (size_t)random_int(&random, 0, (int)i);
            harpe_measurement row = rows.rows[i];
            rows.rows[i] = rows.rows[k];
            rows.rows[k] = row;
        }
        owned_problem shuffled = problem_from_rows(&rows, &shape, 80);
        assert_same_frontier(problem, problem);
        assert_same_frontier(problem, shuffled);
    }
}

TEST(names_of_instructions_do_not_matter) {
    static const char *const load[] = {"a-load", NULL}, *const other[] = {"z:load.2", NULL};
    const char *const *prologues[] = {load, other};
    harpe_problem *problems[2];
    for (int k = 0; k < 2; k++) {
        owned_rows rows = rows_for_3_stages(200);
        for (int stage = 0; stage < 3; stage++)
            add_row(&rows, stage, prologues[k][0], 0, 0.004 * (stage + 1), 0.5);
        problems[k] = problem_from_rows(
            &rows,
            &(harpe_schedule_options){.ranks = 3, .microbatches = 3, .prologue = prologues[k]}, 60);
    }
    assert_same_frontier(problems[0], problems[1]);
    harpe_problem_free(problems[0]);
    harpe_problem_free(problems[1]);
}
