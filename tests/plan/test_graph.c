/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: examples computed by hand, random graphs compared with the enumeration of all plans and
 * with a third-party LP solver, pipelines compared with their own graphs, and bad input. The
 * oracles use the graph as the caller states it, and not the planner's instructions. */
#include "test.h"

#include <harpe/graph.h>

#include "base/text.h"
#include "plan/graphs.h"
#include "plan/problem.h"

#include "instances.h"
#include "relaxation_lp.h"

static harpe_graph *graph_of_text(const char *text) {
    harpe_graph *graph = NULL;
    assert_works(harpe_graph_parse_json(text, strlen(text), "test", &graph, &failure));
    return graph;
}

static harpe_problem *problem_of_graph(const harpe_graph *graph, double overhead_w) {
    harpe_problem *problem = NULL;
    harpe_problem_options options = {.overhead_power_w = overhead_w};
    assert_works(harpe_problem_of_graph(graph, &options, &problem, &failure));
    return problem;
}

/* The solution of a problem, with all plans at vertices. */
typedef struct solution {
    harpe_problem *problem;
    harpe_frontier *frontier;
    harpe_plan_set *plans;
    harpe_graph_run *runs; /* room for one plan */
} solution;

static solution solve_with_overhead(const harpe_graph *graph, double overhead_w,
                                    const harpe_plan_request *request) {
    solution s = {.problem = problem_of_graph(graph, overhead_w)};
    assert_works(harpe_plan_set_new(s.problem, request, NULL, &s.frontier, &s.plans, &failure));
    assert_works(harpe_frontier_verify(s.problem, s.frontier, 0, &failure));
    assert_works(harpe_plan_set_verify(s.problem, s.frontier, s.plans, &failure));
    s.runs = calloc(harpe_graph_activity_count(graph), sizeof *s.runs);
    return s;
}

static solution solve(const harpe_graph *graph, const harpe_plan_request *request) {
    return solve_with_overhead(graph, 0, request);
}

static void solution_clear(solution *s) {
    free(s->runs);
    harpe_plan_set_free(s->plans);
    harpe_frontier_free(s->frontier);
    harpe_problem_free(s->problem);
}
#define owned_solution AT_END(solution_clear) solution

static void read_runs(const solution *s, const harpe_plan *plan) {
    assert_works(harpe_graph_runs(s->problem, plan->frequency_mhz, s->runs, &failure));
}

static const harpe_plan_request all_plans = {.choice = HARPE_PLANS_ALL};

/* ---- By hand --------------------------------------------------------------------------------- */

/* One GPU runs a (0.1 s, or 0.2 s at lower energy), and sends for 0.05 s. After a lag of 0.01 s
 * another GPU runs b. Beside them, c on a third resource takes 0.1 s and may not start before 0.3
 * s, so the iteration takes 0.4 s at least and a has slack. */
static const char by_hand[] =
    "{\"resources\": [{\"name\": \"gpu0\", \"blocking_power\": 10}, {\"name\": \"gpu1\"},"
    "               {\"name\": \"gpu2\", \"blocking_power\": 5}],"
    " \"activities\": ["
    "  {\"name\": \"b\", \"resource\": \"gpu1\", \"after\": [{\"name\": \"send\", \"lag\": 0.01}],"
    "   \"options\": [{\"time\": 0.1, \"energy\": 30, \"frequency\": 1400}]},"
    "  {\"name\": \"send\", \"after\": [\"a\"], \"time\": 0.05},"
    "  {\"name\": \"a\", \"resource\": \"gpu0\","
    "   \"options\": [{\"time\": 0.2, \"energy\": 20, \"frequency\": 700},"
    "                 {\"time\": 0.1, \"energy\": 40, \"frequency\": 1400}]},"
    "  {\"name\": \"c\", \"resource\": \"gpu2\", \"release\": 0.3, \"time\": 0.1}]}";

TEST(example_has_the_plan_computed_by_hand) {
    owned_graph graph = graph_of_text(by_hand);
    owned_solution s = solve(graph, &all_plans);
    assert_int_equal(harpe_plan_set_count(s.plans), 1);
    const harpe_plan *plan = harpe_plan_set_at(s.plans, 0);
    assert_near(plan->time_s, 0.4, 1e-12);
    /* a 20 J, b 30 J, c waits for 0.1 s at 5 W; gpu0 waits for 0.2 s at 10 W, gpu2 for 0.3 s. */
    assert_near(plan->energy_j, 20 + 30 + 0.5 + 2 + 1.5, 1e-9);
    assert_near(plan->lower_bound_j, plan->energy_j, 1e-9);
    read_runs(&s, plan);
    const harpe_graph_run expected[] = {
        {0, 1400, 0.26, 0.04}, {-1, 0, 0.2, 0.04}, {0, 700, 0, 0.04}, {-1, 0, 0.3, 0}};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(s.runs[i].option, expected[i].option);
        assert_near(s.runs[i].frequency_mhz, expected[i].frequency_mhz, 0);
        assert_near(s.runs[i].start_s, expected[i].start_s, 1e-9);
        assert_near(s.runs[i].slack_s, expected[i].slack_s, 1e-9);
    }
}

TEST(reference_is_the_highest_frequency) {
    owned_graph graph = graph_of_text(by_hand);
    owned_problem problem = problem_of_graph(graph, 0);
    harpe_plan maximum = maximum_of(problem);
    assert_near(maximum.energy_j, 40 + 30 + 0.5 + 10 * 0.3 + 5 * 0.3, 1e-9);
}

TEST(reference_without_frequencies_is_the_fastest_option) {
    owned_graph graph = graph_of_text("{\"activities\": [{\"name\": \"a\", \"options\": ["
                                      "{\"time\": 3, \"energy\": 1}, {\"time\": 1, \"energy\": 9},"
                                      "{\"time\": 2, \"energy\": 4}]}]}");
    owned_solution s = solve(graph, &all_plans);
    harpe_plan maximum = maximum_of(s.problem);
    assert_near(maximum.time_s, 1, 1e-12);
    assert_int_equal(harpe_plan_set_count(s.plans), 3);
    static const int expected[] = {1, 2, 0}; /* fastest first */
    for (size_t i = 0; i < 3; i++) {
        read_runs(&s, harpe_plan_set_at(s.plans, i));
        assert_int_equal(s.runs[0].option, expected[i]);
    }
}

/* An activity without energy draws what its resource draws while it waits. */
TEST(fixed_time_without_energy_costs_waiting) {
    owned_graph graph = graph_of_text(
        "{\"resources\": [{\"name\": \"r\", \"blocking_power\": 7}], \"activities\": ["
        "{\"name\": \"wait\", \"resource\": \"r\", \"time\": 2}]}");
    owned_solution s = solve(graph, &all_plans);
    assert_near(harpe_plan_set_at(s.plans, 0)->energy_j, 14, 1e-9);
}

/* ---- Random graphs --------------------------------------------------------------------------- */

enum { ACTIVITIES_MAX = 12, OPTIONS_MAX = 3, RESOURCES_MAX = 3 };

typedef struct random_graph {
    harpe_graph_resource resources[RESOURCES_MAX];
    int resource_count, count;
    harpe_graph_activity activities[ACTIVITIES_MAX];
    char names[ACTIVITIES_MAX][16];
    harpe_graph_option options[ACTIVITIES_MAX][OPTIONS_MAX];
    harpe_graph_wait waits[ACTIVITIES_MAX][ACTIVITIES_MAX];
    int from[ACTIVITIES_MAX][ACTIVITIES_MAX]; /* indices of the waits */
} random_graph;

static void random_work(random_graph *g, int i, test_random *random) {
    harpe_graph_activity *a = &g->activities[i];
    double base_s = random_between(random, 0.05, 1), base_w = random_between(random, 50, 300);
    if (random_int(random, 0, 4) == 0) {
        a->time_s = random_int(random, 0, 2) == 0 ? 0 : base_s;
        a->energy_j = random_int(random, 0, 1) == 0 ? -1 : base_w * a->time_s;
        return;
    }
    bool has_ties = random_int(random, 0, 3) == 0;
    a->options = g->options[i];
    a->option_count = (size_t)random_int(random, 1, OPTIONS_MAX);
    for (size_t k = 0; k < a->option_count; k++) {
        double stretch =
            has_ties ? 1 + (double)random_int(random, 0, 1) : random_between(random, 1, 2);
        g->options[i][k] = (harpe_graph_option){
            .time_s = base_s * stretch,
            .energy_j = base_w * base_s * (has_ties ? 1 : random_between(random, 0.5, 1.5)) /
                        (stretch * stretch),
            .frequency_mhz = random_int(random, 0, 1) == 0 ? 0 : random_int(random, 1, 3) * 100,
        };
    }
}

/* Activity i may wait for activities before it. Neighbours on a resource are always ordered. */
static void random_waits(random_graph *g, int i, int last_on_resource, test_random *random) {
    harpe_graph_activity *a = &g->activities[i];
    a->waits = g->waits[i];
    for (int j = 0; j < i; j++) {
        if (j != last_on_resource && random_int(random, 0, 3) > 0) continue;
        double lag_s = random_int(random, 0, 2) == 0 ? random_between(random, 0, 0.5) : 0;
        g->from[i][a->wait_count] = j;
        g->waits[i][a->wait_count++] = (harpe_graph_wait){g->names[j], lag_s};
    }
}

static void make_random_graph(random_graph *g, int most, test_random *random) {
    *g = (random_graph){.resource_count = random_int(random, 0, RESOURCES_MAX),
                        .count = random_int(random, 1, most)};
    static const char *const resource_names[] = {"gpu 0", "gpu \"1\"", "µ\\2"};
    int last[RESOURCES_MAX] = {-1, -1, -1};
    for (int r = 0; r < g->resource_count; r++) {
        double power_w = random_int(random, 0, 2) == 0 ? 0 : random_between(random, 1, 150);
        g->resources[r] = (harpe_graph_resource){resource_names[r], power_w};
    }
    for (int i = 0; i < g->count; i++) {
        (void)snprintf(g->names[i], sizeof g->names[i], "n%d", i);
        int resource = random_int(random, -1, g->resource_count - 1);
        g->activities[i] = (harpe_graph_activity){.name = g->names[i]};
        if (resource >= 0) g->activities[i].resource = resource_names[resource];
        if (random_int(random, 0, 4) == 0)
            g->activities[i].release_s = random_between(random, 0, 2);
        random_work(g, i, random);
        random_waits(g, i, resource >= 0 ? last[resource] : -1, random);
        if (resource >= 0) last[resource] = i;
    }
}

/* Gives some activities deadlines that the fastest options meet. */
static void add_deadlines(random_graph *g, test_random *random) {
    double end_s[ACTIVITIES_MAX];
    for (int i = 0; i < g->count; i++) {
        harpe_graph_activity *a = &g->activities[i];
        double fastest_s = a->option_count > 0 ? INFINITY : a->time_s;
        for (size_t k = 0; k < a->option_count; k++)
            fastest_s = fmin(fastest_s, a->options[k].time_s);
        end_s[i] = a->release_s;
        for (size_t k = 0; k < a->wait_count; k++)
            end_s[i] = fmax(end_s[i], end_s[g->from[i][k]] + a->waits[k].lag_s);
        end_s[i] += fastest_s;
        if (random_int(random, 0, 2) > 0 || end_s[i] == 0) continue;
        a->deadline_s =
            end_s[i] * (random_int(random, 0, 3) == 0 ? 1 : random_between(random, 1, 1.6));
    }
}

/* Makes the planner's graph. The activities are given in another order than that of the waits. */
static harpe_graph *graph_of_random(const random_graph *g, test_random *random) {
    harpe_graph_activity shuffled[ACTIVITIES_MAX];
    memcpy(shuffled, g->activities, sizeof shuffled);
    for (int i = g->count - 1; i > 0; i--) {
        int other = random_int(random, 0, i);
        harpe_graph_activity kept = shuffled[i];
        shuffled[i] = shuffled[other];
        shuffled[other] = kept;
    }
    harpe_graph *graph = NULL;
    harpe_status status = harpe_graph_new(g->resources, (size_t)g->resource_count, shuffled,
                                          (size_t)g->count, &graph, &failure);
    bool is_empty = strstr(failure.message, "no activity that takes");
    if (status != HARPE_OK && !is_empty) fail_msg("%s", failure.message);
    return graph; /* NULL: no activity takes time */
}

/* Returns the option of an activity of fixed time, too. */
static harpe_graph_option option_of(const random_graph *g, int i, int option) {
    const harpe_graph_activity *a = &g->activities[i];
    if (a->option_count > 0) return a->options[option];
    double power_w = 0;
    for (int r = 0; r < g->resource_count; r++)
        if (a->resource == g->resources[r].name) power_w = g->resources[r].blocking_power_w;
    return (harpe_graph_option){a->time_s, a->energy_j < 0 ? power_w * a->time_s : a->energy_j, 0};
}

/* Runs the graph as it is stated, with everything as early as possible. */
static harpe_plan run(const random_graph *g, const int *option, double *start_s) {
    harpe_plan plan = {0};
    double busy_j = 0, power_w = 0;
    for (int i = 0; i < g->count; i++) {
        const harpe_graph_activity *a = &g->activities[i];
        start_s[i] = a->release_s;
        for (size_t k = 0; k < a->wait_count; k++) {
            int j = g->from[i][k];
            double ready_s = start_s[j] + option_of(g, j, option[j]).time_s + a->waits[k].lag_s;
            start_s[i] = fmax(start_s[i], ready_s);
        }
        harpe_graph_option chosen = option_of(g, i, option[i]);
        plan.time_s = fmax(plan.time_s, start_s[i] + chosen.time_s);
        plan.energy_j += chosen.energy_j;
        for (int r = 0; r < g->resource_count; r++)
            if (a->resource == g->resources[r].name)
                busy_j += g->resources[r].blocking_power_w * chosen.time_s;
    }
    for (int r = 0; r < g->resource_count; r++)
        power_w += g->resources[r].blocking_power_w;
    plan.energy_j += power_w * plan.time_s - busy_j;
    return plan;
}

static bool meets_deadlines(const random_graph *g, const int *option, const double *start_s) {
    for (int i = 0; i < g->count; i++) {
        double deadline_s = g->activities[i].deadline_s;
        double end_s = start_s[i] + option_of(g, i, option[i]).time_s;
        if (deadline_s > 0 && end_s > deadline_s * (1 + 1e-9)) return false;
    }
    return true;
}

/* Advances to the next combination of options. Returns false after the last one. */
static bool next_options(const random_graph *g, int *option) {
    for (int i = 0; i < g->count; i++) {
        if ((size_t)++option[i] < g->activities[i].option_count) return true;
        option[i] = 0;
    }
    return false;
}

static size_t index_of(const harpe_graph *graph, const char *name) {
    for (size_t i = 0; i < harpe_graph_activity_count(graph); i++)
        if (strcmp(harpe_graph_activity_at(graph, i)->name, name) == 0) return i;
    fail_msg("no activity '%s'", name);
    return 0;
}

/* Runs a plan as its runs describe it, and compares times, starts and slacks. */
static void check_runs(const random_graph *g, const harpe_graph *graph, const solution *s,
                       const harpe_plan *plan) {
    double start_s[ACTIVITIES_MAX], later_s[ACTIVITIES_MAX];
    int option[ACTIVITIES_MAX];
    read_runs(s, plan);
    for (int i = 0; i < g->count; i++) {
        int found = s->runs[index_of(graph, g->names[i])].option;
        assert_int_equal(found == -1, g->activities[i].option_count == 0);
        option[i] = found < 0 ? 0 : found;
        if (found >= 0) {
            assert_near(s->runs[index_of(graph, g->names[i])].frequency_mhz,
                        g->options[i][found].frequency_mhz, 0);
        }
    }
    harpe_plan again = run(g, option, start_s);
    assert_near(again.time_s, plan->time_s, 1e-12);
    assert_near(again.energy_j, plan->energy_j, 1e-9);
    for (int i = 0; i < g->count; i++) {
        const harpe_graph_run *found = &s->runs[index_of(graph, g->names[i])];
        assert_true(fabs(found->start_s - start_s[i]) <= 1e-12 * (1 + plan->time_s));
        /* Released later by its slack, it makes nothing longer; by more, it does. */
        random_graph delayed = *g;
        delayed.activities[i].release_s = start_s[i] + found->slack_s;
        double slowed_s = run(&delayed, option, later_s).time_s;
        assert_true(slowed_s <= plan->time_s * (1 + 1e-9));
        assert_true(meets_deadlines(g, option, later_s));
        delayed.activities[i].release_s += 0.001;
        slowed_s = run(&delayed, option, later_s).time_s;
        if (meets_deadlines(g, option, later_s)) assert_near(slowed_s, plan->time_s + 0.001, 1e-9);
    }
}

static void check_enumeration(uint64_t seed, bool has_deadlines, int trials) {
    test_random random = {seed};
    for (int trial = 0; trial < trials; trial++) {
        random_graph g;
        make_random_graph(&g, 7, &random);
        if (has_deadlines) add_deadlines(&g, &random);
        owned_graph graph = graph_of_random(&g, &random);
        if (!graph) continue;
        owned_solution s = solve(graph, &all_plans);
        int option[ACTIVITIES_MAX] = {0};
        double start_s[ACTIVITIES_MAX], fastest_s = INFINITY, least_j = INFINITY;
        do {
            harpe_plan plan = run(&g, option, start_s);
            if (!meets_deadlines(&g, option, start_s)) continue;
            double bound_j = harpe_frontier_bound_at(s.frontier, plan.time_s);
            assert_true(plan.energy_j >= bound_j * (1 - 1e-9) - 1e-9);
            fastest_s = fmin(fastest_s, plan.time_s);
            least_j = fmin(least_j, plan.energy_j);
        } while (next_options(&g, option));
        size_t count = harpe_plan_set_count(s.plans);
        assert_near(harpe_plan_set_at(s.plans, 0)->time_s, fastest_s, 1e-9);
        /* The plan of least energy is at T*, where the relaxation needs no mixture. */
        const harpe_plan *least = harpe_plan_set_at(s.plans, count - 1);
        assert_true(least->energy_j >= least_j * (1 - 1e-9) - 1e-9);
        for (size_t i = 0; i < count; i++)
            check_runs(&g, graph, &s, harpe_plan_set_at(s.plans, i));
    }
}

TEST(plans_match_the_enumeration) { check_enumeration(11, false, test_trials(300)); }

TEST(plans_with_deadlines_match_the_enumeration) { check_enumeration(21, true, test_trials(300)); }

/* ---- An independent LP ----------------------------------------------------------------------- */

#ifdef HARPE_HAVE_CLP

static const harpe_option_list *list_of(const harpe_problem *problem, const char *name) {
    for (size_t i = 0; i < harpe_problem_option_list_count(problem); i++) {
        const harpe_option_list *list = harpe_problem_option_list_at(problem, i);
        if (strcmp(list->instruction, name) == 0) return list;
    }
    fail_msg("no options for '%s'", name);
    return NULL;
}

/* The relaxation of the graph as it is stated. The arrays are the caller's. */
typedef struct stated {
    const harpe_option_list *lists[ACTIVITIES_MAX];
    int from[ACTIVITIES_MAX * ACTIVITIES_MAX], to[ACTIVITIES_MAX * ACTIVITIES_MAX];
    double lag_s[ACTIVITIES_MAX * ACTIVITIES_MAX];
    double release_s[ACTIVITIES_MAX], deadline_s[ACTIVITIES_MAX];
} stated;

static relaxation relaxation_of_graph(const random_graph *g, const harpe_problem *problem,
                                      stated *all) {
    relaxation r = {.instruction_count = g->count,
                    .list_of = all->lists,
                    .arc_from = all->from,
                    .arc_to = all->to,
                    .lag_s = all->lag_s,
                    .release_s = all->release_s,
                    .deadline_s = all->deadline_s,
                    .blocking_power_w = problem->overhead_power_w};
    for (int i = 0; i < g->resource_count; i++)
        r.blocking_power_w += g->resources[i].blocking_power_w;
    for (int i = 0; i < g->count; i++) {
        const harpe_graph_activity *activity = &g->activities[i];
        all->lists[i] = list_of(problem, g->names[i]);
        all->release_s[i] = activity->release_s;
        all->deadline_s[i] = activity->deadline_s;
        for (size_t k = 0; k < activity->wait_count; k++) {
            all->lag_s[r.arc_count] = activity->waits[k].lag_s;
            relaxation_arc(&r, g->from[i][k], i);
        }
    }
    return r;
}

static void check_against_lp(uint64_t seed, bool has_deadlines, int trials) {
    test_random random = {seed};
    for (int trial = 0; trial < trials; trial++) {
        random_graph g;
        make_random_graph(&g, ACTIVITIES_MAX, &random);
        if (has_deadlines) add_deadlines(&g, &random);
        owned_graph graph = graph_of_random(&g, &random);
        if (!graph) continue;
        double overhead_w = trial % 3 == 0 ? random_between(&random, 0, 1000) : 0;
        owned_solution s = solve_with_overhead(graph, overhead_w, &all_plans);
        stated all;
        relaxation r = relaxation_of_graph(&g, s.problem, &all);
        owned_relaxation_lp lp = relaxation_lp_new(&r);
        assert_bound_is_optimum(s.frontier, &lp, 4, &random, 1e-6);
    }
}

TEST(frontier_matches_lp_optimum) { check_against_lp(12, false, test_trials(400)); }

TEST(frontier_with_deadlines_matches_lp_optimum) { check_against_lp(22, true, few_trials(300)); }

#endif

TEST(deadline_that_is_met_loses_no_plan) {
    owned_graph graph = graph_of_text(
        "{\"resources\": [{\"name\": \"gpu\", \"blocking_power\": 1}],"
        " \"activities\": [{\"name\": \"a\", \"resource\": \"gpu\", \"deadline\": 3,"
        " \"options\": [{\"time\": 1, \"energy\": 5}, {\"time\": 2, \"energy\": 3}]}]}");
    AT_END(solution_clear) solution s = solve(graph, &all_plans);
    assert_int_equal(harpe_plan_set_count(s.plans), 2);
    assert_near(harpe_plan_set_at(s.plans, 1)->time_s, 2, 1e-12);
}

/* ---- Pipelines ------------------------------------------------------------------------------- */

TEST(graph_of_a_pipeline_has_the_same_frontier_and_plans) {
    test_random random = {13};
    const char *name;
    for (int k = 0; (name = harpe_schedule_name_at(k)); k++) {
        harpe_schedule_options options = shape_for(name, 3, 4);
        owned_problem pipeline = random_problem(&options, &random);
        owned_graph graph = NULL;
        owned_frontier frontier = NULL;
        assert_works(harpe_graph_of_problem(pipeline, &graph, &failure));
        owned_plan_set plans = plan_set_of(pipeline, &all_plans, &frontier);
        owned_solution s = solve_with_overhead(graph, pipeline->overhead_power_w, &all_plans);
        size_t count = 0, again = 0;
        const harpe_frontier_vertex *a = harpe_frontier_vertices(frontier, &count);
        const harpe_frontier_vertex *b = harpe_frontier_vertices(s.frontier, &again);
        assert_int_equal(count, again);
        for (size_t i = 0; i < count; i++) {
            assert_near(a[i].time_s, b[i].time_s, 1e-12);
            assert_near(a[i].lower_bound_j, b[i].lower_bound_j, 1e-9);
        }
        harpe_plan reference = maximum_of(pipeline), graph_reference = maximum_of(s.problem);
        assert_near(reference.time_s, graph_reference.time_s, 1e-12);
        assert_near(reference.energy_j, graph_reference.energy_j, 1e-9);
        assert_near(harpe_plan_set_at(plans, 0)->time_s, harpe_plan_set_at(s.plans, 0)->time_s,
                    1e-9);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

TEST(written_graph_reads_back) {
    test_random random = {14};
    for (int trial = 0; trial < few_trials(100); trial++) {
        random_graph g;
        make_random_graph(&g, ACTIVITIES_MAX, &random);
        owned_graph graph = graph_of_random(&g, &random);
        if (!graph) continue;
        owned_text text = {0};
        owned_text again = {0};
        harpe_graph_json_format(&text, graph);
        owned_graph read = graph_of_text(text.data);
        harpe_graph_json_format(&again, read);
        assert_string_equal(text.data, again.data);
        owned_solution a = solve(graph, &all_plans);
        AT_END(solution_clear) solution b = solve(read, &all_plans);
        assert_int_equal(harpe_plan_set_count(a.plans), harpe_plan_set_count(b.plans));
        for (size_t i = 0; i < harpe_plan_set_count(a.plans); i++) {
            assert_true(harpe_plan_set_at(a.plans, i)->energy_j ==
                        harpe_plan_set_at(b.plans, i)->energy_j);
        }
    }
}

/* ---- Bad input ------------------------------------------------------------------------------- */

typedef struct bad_graph {
    const char *activities; /* the list's elements */
    const char *expected;   /* in the error's line */
} bad_graph;

#define TIME "\"time\": 1"
static const bad_graph bad_graphs[] = {
    {"{\"name\": \"a\", " TIME ", \"after\": [\"b\"]}, {\"name\": \"b\", " TIME
     ", \"after\": [\"c\"]}, {\"name\": \"c\", " TIME ", \"after\": [\"a\"]}",
     "'a' can never start: it waits for 'b', which waits for 'c', which waits for 'a'"},
    {"{\"name\": \"a\", " TIME ", \"after\": [\"a\"]}", "'a' can never start: it waits for 'a'"},
    {"{\"name\": \"a\", \"time\": -1}", "activity 'a': its time is -1, which is not between 0"},
    {"{\"name\": \"a\", \"options\": [{\"time\": -1, \"energy\": 1}]}",
     "activity 'a', option 0: its time is -1"},
    {"{\"name\": \"a\", \"options\": [{\"time\": 1, \"energy\": 1}, {\"time\": 1, \"energy\": "
     "-2}]}",
     "activity 'a', option 1: its energy is -2"},
    {"{\"name\": \"a\", \"options\": [{\"time\": 0, \"energy\": 1}]}",
     "activity 'a', option 0: its time is 0"},
    {"{\"name\": \"a\", \"options\": [{\"time\": 1, \"energy\": 1, \"frequency\": -5}]}",
     "activity 'a', option 0: its frequency is -5"},
    {"{\"name\": \"a\", \"options\": [{\"time\": 1}]}",
     "activity 'a', option 0: \"energy\" is missing"},
    {"{\"name\": \"a\", \"options\": [{\"energy\": 1}]}",
     "activity 'a', option 0: \"time\" is missing"},
    {"{\"name\": \"a\", \"options\": []}", "activity 'a': \"options\" must have at least one"},
    {"{\"name\": \"a\", \"options\": {}}", "activity 'a': \"options\" must be a list"},
    {"{\"name\": \"a\"}", "activity 'a': has neither \"options\" nor a \"time\""},
    {"{\"name\": \"a\", " TIME ", \"options\": [{\"time\": 1, \"energy\": 1}]}",
     "activity 'a': \"time\" must not stand beside \"options\""},
    {"{\"name\": \"a\", " TIME ", \"after\": [\"x\\n\"]}",
     "activity 'a' waits for 'x ', which does"},
    {"{\"name\": \"a\", " TIME ", \"resource\": \"x\"}",
     "activity 'a' is on the resource 'x', which does not exist"},
    {"{\"name\": \"a\", " TIME "}, {\"name\": \"b\", " TIME "}, {\"name\": \"a\", " TIME "}",
     "two activities have the name 'a': numbers 0 and 2"},
    {"{\"name\": \"b\", " TIME "}, {\"name\": \"a\", " TIME ", \"after\": [\"b\", \"b\"]}",
     "activity 'a' waits twice for 'b'"},
    {"{\"name\": \"b\", " TIME "}, {\"name\": \"a\", " TIME
     ", \"after\": [{\"name\": \"b\", \"lag\": -0.5}]}",
     "activity 'a': its lag is -0.5"},
    {"{\"name\": \"a\", " TIME ", \"after\": [{\"lag\": 1}]}",
     "activity 'a', entry 0 of \"after\": \"name\" is missing"},
    {"{\"name\": \"a\", " TIME ", \"after\": [7]}", "activity 'a', entry 0 of \"after\": must be"},
    {"{\"name\": \"a\", " TIME ", \"after\": \"b\"}", "activity 'a': \"after\" must be a list"},
    {"{\"name\": \"a\", " TIME ", \"release\": -1}", "activity 'a': its release is -1"},
    {"{\"name\": \"a\", " TIME ", \"deadline\": 0.5}",
     "activity 'a' cannot end at its deadline, 0.5 s: with the fastest options it ends at 1 s"},
    {"{\"name\": \"a\", " TIME ", \"deadline\": 0}", "activity 'a': \"deadline\" must be above 0"},
    {"{\"name\": \"a\", \"time\": \"1\"}", "activity 'a': \"time\" must be a number"},
    {"{\"name\": \"a\", \"tmie\": 1}", "activity 'a': \"tmie\" is not a known member"},
    {"{\"name\": \"a\", " TIME ", \"energy\": -1}",
     "activity 'a': \"energy\" must not be negative"},
    {"{" TIME "}", "activity 0 (the first is 0): \"name\" is missing"},
    {"{\"name\": \"\", " TIME "}", "activity 0 (the first is 0): its name must be a text"},
    {"{\"name\": \"a\\u0007\", " TIME "}", "activity 0 (the first is 0): its name must be a text"},
    {"{\"name\": \"a\\u0000b\", " TIME "}", "\"name\" must not contain the character 0"},
    {"5", "activity 0 (the first is 0): must be an object"},
    {"{\"name\": \"a\", \"resource\": \"gpu\", " TIME
     "}, {\"name\": \"b\", \"resource\": \"gpu\", " TIME "}",
     "activities 'a' and 'b' could run on the resource 'gpu' at the same time"},
    {"{\"name\": \"x\", " TIME "}, {\"name\": \"a\", \"resource\": \"gpu\", " TIME
     ", \"after\": [\"x\"]}, {\"name\": \"b\", \"resource\": \"gpu\", " TIME
     ", \"after\": [\"x\"]}",
     "'a' and 'b' could run on the resource 'gpu' at the same time"},
    {"{\"name\": \"a\", \"time\": 0}", "no activity that takes at least 1e-09 s"},
    {"", "no activity that takes at least 1e-09 s"},
    {"{\"name\": \"a\", \"time\": 1e7}", "activity 'a': its time is 1e+07"},
    {"{\"name\": \"a\", " TIME ", " TIME "}", "not JSON: duplicate object key"},
};

static void assert_refused(const char *text, const char *expected) {
    harpe_graph *graph = NULL;
    harpe_error error = {.message = ""};
    harpe_status status = harpe_graph_parse_json(text, strlen(text), "f.json", &graph, &error);
    if (status == HARPE_OK) fail_msg("accepted: %s", text);
    assert_int_equal(error.status, status);
    assert_null(graph);
    assert_says(&error, expected);
    assert_true(strncmp(error.message, "f.json", strlen("f.json")) == 0);
    assert_null(strpbrk(error.message, "\n\r\a"));
    assert_int_equal(harpe_graph_parse_json(text, strlen(text), "f.json", &graph, NULL), status);
}

TEST(bad_graph_is_refused_with_a_line_that_names_the_activity) {
    for (size_t i = 0; i < sizeof bad_graphs / sizeof bad_graphs[0]; i++) {
        owned_text text = {0};
        harpe_text_printf(&text,
                          "{\"resources\": [{\"name\": \"gpu\", \"blocking_power\": 1}], "
                          "\"activities\": [%s]}",
                          bad_graphs[i].activities);
        assert_refused(text.data, bad_graphs[i].expected);
    }
}

TEST(bad_document_is_refused) {
    assert_refused("", "f.json:1:0: not JSON");
    assert_refused("[]", "must be an object with a list \"activities\"");
    assert_refused("{}", "must be an object with a list \"activities\"");
    assert_refused("{\"activities\": [], \"resources\": 5}", "must be an object");
    assert_refused("{\"activities\": [], \"more\": 5}", "the graph has the member \"more\"");
    assert_refused("{\"activities\": [], \"resources\": [{\"blocking_power\": 4}]}",
                   "resource 0 (the first is 0): \"name\" is missing");
    assert_refused("{\"activities\": [], \"resources\": [{\"name\": \"g\", \"power\": 4}]}",
                   "resource 'g': \"power\" is not a known member");
    assert_refused(
        "{\"activities\": [], \"resources\": [{\"name\": \"g\", \"blocking_power\": -4}]}",
        "resource 'g': its blocking power is -4 W");
    assert_refused("{\"activities\": [], \"resources\": [{\"name\": \"g\"}, {\"name\": \"g\"}]}",
                   "two resources have the name 'g'");
}

/* Between the two activities of a resource another one may stand. */
TEST(order_on_a_resource_may_be_indirect) {
    owned_graph graph = graph_of_text(
        "{\"resources\": [{\"name\": \"g\", \"blocking_power\": 1}], \"activities\": ["
        "{\"name\": \"c\", \"resource\": \"g\", \"time\": 1, \"after\": [\"b\"]},"
        "{\"name\": \"b\", \"time\": 1, \"after\": [{\"name\": \"a\", \"lag\": 1}]},"
        "{\"name\": \"a\", \"resource\": \"g\", \"time\": 1}]}");
    owned_solution s = solve(graph, &all_plans);
    assert_near(harpe_plan_set_at(s.plans, 0)->time_s, 4, 1e-12);
    assert_near(harpe_plan_set_at(s.plans, 0)->energy_j, 4, 1e-9);
}

/* A length that is no whole number of picoseconds moves the activity beside it, which is steep: 15
 * MW between two of its options. The verification must allow for that. */
TEST(verification_allows_for_rounded_lags) {
    owned_graph graph = graph_of_text(
        "{\"activities\": [{\"name\": \"b\", \"after\": [{\"name\": \"a\", \"lag\": "
        "0.3552936243039824}], \"options\": [{\"time\": 0.09308917780452752, \"energy\": "
        "24.57259204940244}, {\"time\": 0.1151643484962262, \"energy\": 19.16431127124251}, "
        "{\"time\": 0.09308872054627353, \"energy\": 31.56702541518943}]},"
        "{\"name\": \"a\", \"time\": 0.17599216563392261}]}");
    owned_solution s = solve(graph, &all_plans);
}

TEST(changes_of_clock_are_refused) {
    owned_graph graph = graph_of_text(by_hand);
    owned_problem problem = problem_of_graph(graph, 0);
    harpe_plan_request request = {.clock_switch = {.minimum_dwell_s = 0.1}};
    harpe_plan_set *plans = NULL;
    assert_refuses(harpe_plan_set_new(problem, &request, NULL, NULL, &plans, &failure),
                   HARPE_NOT_SUPPORTED, "graph");
    harpe_graph *again = NULL;
    assert_int_equal(harpe_graph_of_problem(problem, &again, &failure), HARPE_INVALID_ARGUMENT);
    double watts = 5;
    harpe_problem_options options = {.blocking_power_w = &watts, .blocking_power_count = 1};
    harpe_problem *other = NULL;
    assert_int_equal(harpe_problem_of_graph(graph, &options, &other, &failure),
                     HARPE_INVALID_ARGUMENT);
}

TEST(runs_of_a_pipeline_are_refused) {
    test_random random = {15};
    harpe_schedule_options options = {.ranks = 2, .microbatches = 2};
    owned_problem pipeline = random_problem(&options, &random);
    harpe_graph_run runs[8];
    int frequency[8] = {0};
    assert_int_equal(harpe_graph_runs(pipeline, frequency, runs, &failure), HARPE_INVALID_ARGUMENT);
}
