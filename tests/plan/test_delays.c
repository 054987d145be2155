/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers that take time: the earliest starts and energies of random pipelines against a
 * simulation that knows no delays, the bound and the plans against the checker, all plans of small
 * instances, and the graph of a pipeline. */
#include "test.h"

#include "plan/graphs.h"
#include "plan/schedule.h"
#include "plan/search_internal.h"

#include "instances.h"

/* A pipeline with and without transfers. */
typedef struct pair {
    harpe_problem *plain, *late;
    harpe_schedule *schedule;
    double blocking_w, transfer_s;
} pair;

/* Half of the pipelines have one transfer time, the others a lag for some instructions. With
 * `with_waits`, the late one has blocking powers for kinds of waits. */
static pair random_pair(const harpe_schedule_options *options, bool with_waits,
                        test_random *random) {
    pair p = {.schedule = schedule_of(options)};
    test_profile_shape shape = random_shape(random);
    owned_rows rows = make_rows(p.schedule, &shape, random);
    owned_profile profile = profile_of(&rows);
    p.blocking_w = random_blocking_w(random, shape.power_scale);
    harpe_problem_options o = {.blocking_power_w = &p.blocking_w, .blocking_power_count = 1};
    p.plain = problem_of(profile, p.schedule, &o);
    harpe_wait_power kinds[] = {{.rank = -1, .wait = HARPE_WAIT_END, .power_w = 20},
                                {.rank = -1, .wait = "forward", .power_w = 130}};
    if (with_waits) {
        o.wait_powers = kinds;
        o.wait_power_count = 2;
    }
    bool has_lags = random_int(random, 0, 1) == 0;
    if (!has_lags || random_int(random, 0, 1) == 0)
        p.transfer_s = o.transfer_time_s = random_between(random, 1e-4, 0.05);
    for (size_t i = 0; has_lags && i < p.schedule->instruction_count; i++)
        if (random_int(random, 0, 2) == 0)
            p.schedule->instructions[i].lag_s = random_between(random, 1e-6, 0.1);
    p.late = problem_of(profile, p.schedule, &o);
    return p;
}

static void clear_pair(pair *p) {
    harpe_problem_free(p->plain);
    harpe_problem_free(p->late);
    harpe_schedule_free(p->schedule);
}

static int rank_of(const harpe_problem *problem, int32_t instruction) {
    int rank = 0;
    while (problem->rank_offset[rank + 1] <= (size_t)instruction)
        rank++;
    return rank;
}

/* Runs the pipeline without delays, and waits a lag longer for instructions of other ranks. Repeats
 * all dependencies until nothing changes. Returns the length of the iteration. No instruction of
 * these pipelines is a pair that is split, so the lists are those of the schedule. */
static double simulate(const pair *p, const double *time_s, double *start_s) {
    const harpe_dag *dag = &p->plain->dag;
    int32_t n = p->plain->instruction_count;
    double length_s = 0;
    for (int32_t i = 0; i < n; i++)
        start_s[i] = 0;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t a = 0; a < dag->arc_count; a++) {
            int32_t from = dag->arc_from[a], to = dag->arc_to[a];
            double lag_s = p->schedule->instructions[to].lag_s;
            if (lag_s <= 0) lag_s = p->transfer_s;
            if (rank_of(p->plain, from) == rank_of(p->plain, to)) lag_s = 0;
            double start = start_s[from] + time_s[from] + lag_s;
            if (start <= start_s[to]) continue;
            start_s[to] = start;
            changed = true;
        }
    }
    for (int32_t i = 0; i < n; i++)
        length_s = fmax(length_s, start_s[i] + time_s[i]);
    return length_s;
}

static bool is_whole(const harpe_problem *problem, const harpe_schedule *schedule) {
    return harpe_problem_instruction_count(problem) == harpe_schedule_instruction_count(schedule);
}

TEST(evaluation_matches_the_simulation) {
    test_random random = {61};
    const char *name;
    int later = 0;
    for (int trial = 0; trial < few_trials(40); trial++) {
        for (int k = 0; (name = harpe_schedule_name_at(k)); k++) {
            harpe_schedule_options options =
                shape_for(name, random_int(&random, 1, 4), random_int(&random, 1, 6));
            AT_END(clear_pair) pair p = random_pair(&options, false, &random);
            size_t n = harpe_problem_instruction_count(p.late);
            assert_int_equal(n, harpe_problem_instruction_count(p.plain));
            assert_int_equal(harpe_problem_option_list_count(p.late),
                             harpe_problem_option_list_count(p.plain));
            if (!is_whole(p.late, p.schedule)) continue;
            /* Arrays of exactly the public length, so that a read beyond it is found. */
            owned_array int *mhz = harpe_calloc(n, sizeof *mhz);
            owned_array double *time_s = harpe_calloc(n, sizeof *time_s);
            owned_array double *start_s = harpe_calloc(n, sizeof *start_s);
            owned_array double *expected_s = harpe_calloc(n, sizeof *expected_s);
            double compute_j = 0, busy_s = 0;
            for (size_t i = 0; i < n; i++) {
                const harpe_choice *choice = harpe_problem_choice(p.plain, (int32_t)i);
                const harpe_profile_point *point =
                    &choice->points[random_int(&random, 0, (int)choice->point_count - 1)];
                mhz[i] = point->frequency_mhz;
                time_s[i] = point->time_s;
                compute_j += point->energy_j;
                busy_s += point->time_s;
            }
            double length_s = simulate(&p, time_s, expected_s);
            harpe_plan plan, plain;
            assert_works(harpe_plan_evaluate(p.late, mhz, &plan, start_s, &failure));
            assert_works(harpe_plan_evaluate(p.plain, mhz, &plain, NULL, &failure));
            assert_near(plan.time_s, length_s, 1e-12);
            for (size_t i = 0; i < n; i++)
                assert_near(start_s[i], expected_s[i], 1e-12);
            assert_near(plan.compute_energy_j, compute_j, 1e-9);
            double waiting_s = options.ranks * length_s - busy_s;
            assert_true(fabs(plan.blocking_energy_j - p.blocking_w * waiting_s) <=
                        1e-9 * (1 + compute_j + p.blocking_w * options.ranks * length_s));
            later += plan.time_s > plain.time_s;
        }
    }
    assert_true(later > 20);
}

/* The search and the evaluation agree about the energy of a plan, also where a wait ends with a
 * transfer and kinds of waits have different powers. */
TEST(search_and_evaluation_agree) {
    test_random random = {64};
    for (int trial = 0; trial < few_trials(60); trial++) {
        harpe_schedule_options options = random_1f1b(&random, 4, 8);
        AT_END(clear_pair) pair p = random_pair(&options, true, &random);
        int32_t count = p.late->instruction_count;
        AT_END(harpe_assignment_clear) harpe_assignment assignment;
        assert_works(harpe_assignment_init(&assignment, p.late, &failure));
        owned_array int32_t *option = calloc((size_t)count, sizeof *option);
        owned_array int *mhz = calloc((size_t)count, sizeof *mhz);
        assert_non_null(option);
        assert_non_null(mhz);
        for (int32_t k = 0; k < count; k++)
            option[k] = random_int(&random, 0, assignment.option_count[k] - 1);
        harpe_assignment_restore(&assignment, option, INT64_MAX / 4);
        harpe_draft draft = {.option = calloc((size_t)count, sizeof *option)};
        assert_non_null(draft.option);
        harpe_draft_take(&draft, &assignment);
        harpe_assignment_frequencies(&assignment, mhz);
        harpe_plan plan;
        assert_works(harpe_plan_evaluate(p.late, mhz, &plan, NULL, &failure));
        assert_true(fabs(draft.time_s - plan.time_s) < 1e-9);
        assert_true(fabs(draft.energy_j - plan.energy_j) < 1e-6 * plan.energy_j);
        free(draft.option);
    }
}

/* Every mode of the planner gives plans that the checker accepts. */
TEST(plans_pass_the_checker) {
    test_random random = {62};
    for (int trial = 0; trial < few_trials(60); trial++) {
        const char *name = harpe_schedule_name_at(trial % 6);
        harpe_schedule_options options =
            shape_for(name, random_int(&random, 1, 4), random_int(&random, 1, 8));
        AT_END(clear_pair) pair p = random_pair(&options, trial % 2 == 1, &random);
        harpe_plan_request request = {.count = 6, .threads = 2};
        if (trial % 3 == 2)
            request.clock_switch = (harpe_clock_switch){.minimum_dwell_s = 0.1, .energy_j = 0.5};
        owned_frontier frontier = NULL;
        owned_plan_set plans = plan_set_of(p.late, &request, &frontier);
        assert_works(harpe_frontier_verify(p.late, frontier, 5, &failure));
        assert_works(harpe_plan_set_verify(p.late, frontier, plans, &failure));
    }
}

/* The bound is nowhere above a plan, for all plans of small pipelines. */
TEST(no_plan_is_below_the_bound) {
    test_random random = {63};
    int checked = 0, trials = few_trials(60);
    for (int trial = 0; trial < trials; trial++) {
        harpe_schedule_options options = {.ranks = 2, .microbatches = random_int(&random, 1, 2)};
        AT_END(clear_pair) pair p = random_pair(&options, trial % 2 == 1, &random);
        owned_frontier frontier = frontier_of(p.late);
        int32_t n = p.plain->instruction_count;
        size_t digit[8] = {0};
        int mhz[8];
        for (int32_t i = 0; i < n;) {
            for (int32_t k = 0; k < n; k++)
                mhz[k] = harpe_problem_choice(p.plain, k)->list.options[digit[k]].frequency_mhz;
            harpe_plan plan;
            assert_works(harpe_plan_evaluate(p.late, mhz, &plan, NULL, &failure));
            double bound_j = harpe_frontier_bound_at(frontier, plan.time_s);
            double size_j = fabs(plan.energy_j) + p.blocking_w * 2 * plan.time_s;
            assert_true(bound_j <= plan.energy_j + 1e-8 * size_j);
            checked++;
            for (i = 0; i < n && ++digit[i] == harpe_problem_choice(p.plain, i)->list.option_count;
                 i++)
                digit[i] = 0;
        }
    }
    assert_true(checked > 8 * trials);
}

/* A graph has the lags of its pipeline, and the same frontier. */
TEST(the_graph_has_the_lags) {
    test_random random = {64};
    for (int trial = 0; trial < few_trials(30); trial++) {
        harpe_schedule_options options = {.ranks = random_int(&random, 2, 4),
                                          .microbatches = random_int(&random, 1, 6)};
        AT_END(clear_pair) pair p = random_pair(&options, false, &random);
        owned_graph graph = NULL;
        owned_problem problem = NULL;
        assert_works(harpe_graph_of_problem(p.late, &graph, &failure));
        assert_works(harpe_problem_of_graph(graph, NULL, &problem, &failure));
        owned_frontier one = frontier_of(p.late);
        owned_frontier other = frontier_of(problem);
        size_t count = 0;
        const harpe_frontier_vertex *vertices = harpe_frontier_vertices(one, &count);
        for (size_t v = 0; v < count; v++) {
            double size_j =
                fabs(vertices[v].lower_bound_j) + p.blocking_w * options.ranks * vertices[v].time_s;
            assert_true(fabs(harpe_frontier_bound_at(other, vertices[v].time_s) -
                             vertices[v].lower_bound_j) <= 1e-7 * (1e-3 + size_j));
        }
    }
}
