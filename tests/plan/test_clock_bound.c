/* SPDX-License-Identifier: Apache-2.0 */
/* The lower bound of plans whose clocks change late, hold for a minimum time or change at a cost.
 * On small problems it is compared with all plans, which this file runs and judges with code of its
 * own. On larger ones no plan of the planner is below it. Without latency it is the relaxation's.
 */
#include "test.h"

#include "plan/clocks_internal.h"

#include "search_parts.h"

#define MOST_INSTRUCTIONS 32
#define ROUNDING 1e-9
#define TIMES 3
#define LEAST_CLOSED 0.47 /* of the distance between the relaxation and the best plans, in all */
/* How far above the relaxation a bound without latency can be: only clocks that are too slow for
 * the time are left out. */
#define MOST_ABOVE 0.01

/* ---- Problems -------------------------------------------------------------------------------- */

typedef struct shape {
    int ranks, microbatches, clocks;
} shape;

/* The clocks of a stage. Some profiles lack a clock for one instruction, so that a rank may have no
 * clock in common, and in some an instruction runs at any clock. */
static void add_rows(test_random *random, test_rows *rows, int stage, const char *name, int clocks,
                     const double *latency_s) {
    double base_s = random_between(random, 0.03, 0.1), base_w = random_between(random, 200, 320);
    double slope = random_between(random, 0.05, 0.3);
    int lacking = random_int(random, 0, 9), kind = random_int(random, 0, 9);
    if (kind == 0) {
        add_row(rows, stage, name, 0, base_s, base_w * base_s);
        return;
    }
    for (int k = 0; k < clocks; k++) {
        double stretch = 1 + slope * random_between(random, 0.7, 1.3) * k;
        double energy_j = base_w * base_s * (0.6 + 0.4 / (stretch * stretch * stretch));
        if (clocks > 2 && k == lacking) continue;
        add_row(rows, stage, name, 1410 - 60 * k, base_s * stretch, energy_j);
        if (latency_s) rows->rows[rows->count - 1].switch_latency_s = latency_s[k];
    }
}

/* Creates a problem. Half of them have several powers of waits, some have delays. */
static harpe_problem *random_clocks(test_random *random,
                                    const harpe_schedule_options *schedule_options, int clocks,
                                    const double *latency_s) {
    owned_rows rows = {0};
    owned_schedule schedule = schedule_of(schedule_options);
    for (int s = 0; s < schedule_options->ranks; s++) {
        add_rows(random, &rows, s, "forward", clocks, latency_s);
        add_rows(random, &rows, s, "backward", clocks, latency_s);
    }
    owned_profile profile = profile_of(&rows);
    double blocking_w = random_int(random, 0, 2) * 45.0;
    const harpe_wait_power powers[] = {{-1, "forward", random_between(random, 20, 200)},
                                       {-1, "backward", random_between(random, 20, 200)},
                                       {-1, "end", random_between(random, 0, 100)}};
    harpe_problem_options options = {.blocking_power_w = &blocking_w,
                                     .blocking_power_count = 1,
                                     .overhead_power_w = random_int(random, 0, 1) * 100.0};
    if (random_int(random, 0, 3) == 0) {
        options.blocking_power_count = 0;
        options.wait_powers = powers;
        options.wait_power_count = 3;
    }
    return problem_of(profile, schedule, &options);
}

/* ---- Plans ----------------------------------------------------------------------------------- */

typedef struct outcome {
    double time_s, energy_j; /* with that of the changes */
    bool holds;
} outcome;

static double latency_of(const harpe_problem *problem, const harpe_clock_switch *cost, int rank,
                         int mhz) {
    if (!cost->takes_profile) return cost->latency_s;
    return harpe_problem_switch_latency_s(problem, rank, mhz);
}

/* Adds the changes of a rank: their energy, and whether the clock before each held. */
static void add_changes(const harpe_problem *problem, const harpe_clock_switch *cost, int rank,
                        const int *mhz, const double *start_s, outcome *out) {
    size_t first = problem->rank_offset[rank], end = problem->rank_offset[rank + 1];
    double changed_s[MOST_INSTRUCTIONS];
    int changed_mhz[MOST_INSTRUCTIONS], count = 0, clock_mhz = 0;
    for (size_t i = first; i < end; i++)
        if (mhz[i] != 0) clock_mhz = mhz[i]; /* that of the iteration before */
    for (size_t i = first; i < end; i++) {
        if (mhz[i] == 0 || mhz[i] == clock_mhz) continue;
        changed_s[count] = start_s[i];
        changed_mhz[count++] = clock_mhz = mhz[i];
    }
    out->energy_j += cost->energy_j * count;
    for (int k = 0; k < count; k++) {
        double since_s = k > 0 ? changed_s[k - 1] : changed_s[count - 1] - out->time_s;
        double needed_s =
            fmax(cost->minimum_dwell_s, latency_of(problem, cost, rank, changed_mhz[k]));
        if (changed_s[k] - since_s < needed_s) out->holds = false;
    }
}

/* Runs a plan. `number` is the place of each instruction's point. */
static outcome outcome_of(const harpe_problem *problem, const harpe_clock_switch *cost,
                          const size_t *number) {
    double time_s[MOST_INSTRUCTIONS + 64], start_s[MOST_INSTRUCTIONS + 64];
    int mhz[MOST_INSTRUCTIONS];
    outcome out = {.holds = true};
    size_t own = harpe_problem_instruction_count(problem);
    for (int32_t i = 0; i < problem->instruction_count; i++) {
        const harpe_profile_point *points = harpe_problem_choice(problem, i)->points;
        const harpe_profile_point *point = (size_t)i < own ? &points[number[i]] : points;
        time_s[i] = point->time_s;
        out.energy_j += point->energy_j;
        if ((size_t)i < own) mhz[i] = point->frequency_mhz;
    }
    out.time_s = simulate_times(problem, time_s, start_s);
    out.energy_j += problem->overhead_power_w * out.time_s;
    for (int rank = 0; rank < problem->rank_count; rank++) {
        double free_s = 0;
        size_t first = problem->rank_offset[rank], end = problem->rank_offset[rank + 1];
        for (size_t i = first; i <= end; i++) {
            double until_s = i < end ? start_s[i] : out.time_s;
            out.energy_j +=
                harpe_problem_wait_power_w(problem, rank, i - first) * (until_s - free_s);
            if (i < end) free_s = start_s[i] + time_s[i];
        }
        add_changes(problem, cost, rank, mhz, start_s, &out);
    }
    return out;
}

/* ---- All plans of small problems ------------------------------------------------------------- */

typedef struct claims {
    double relaxed_j[TIMES], bound_j[TIMES], least_j[TIMES], time_s[TIMES];
    harpe_frontier *frontier;
} claims;

/* Makes the bounds of some times. */
static void make_bounds(const harpe_problem *problem, const harpe_clock_switch *cost,
                        test_random *random, claims *out) {
    AT_END(harpe_walk_clear) harpe_walk walk;
    AT_END(harpe_clock_bound_clear) harpe_clock_bound bound;
    assert_works(harpe_walk_begin(&walk, problem, NULL, &failure));
    assert_works(harpe_clock_bound_init(&bound, problem, cost, &walk.network, &failure));
    for (int k = 0; k < TIMES; k++) {
        double share = random_between(random, 0, 1) / (k + 1);
        int64_t time_ps =
            walk.fastest_ps + (int64_t)(share * (double)(walk.solver.time_ps - walk.fastest_ps));
        assert_works(harpe_walk_to(&walk, time_ps, &failure));
        double time_s = (double)walk.solver.time_ps / HARPE_PS_PER_S;
        if (k == 0 && random_int(random, 0, 1)) time_s *= 1.1;
        out->time_s[k] = time_s;
        out->least_j[k] = INFINITY;
        out->relaxed_j[k] = harpe_walk_bound_j(&walk, (double)walk.solver.time_ps / HARPE_PS_PER_S);
        assert_works(harpe_clock_bound_add(&bound, &walk, time_s, &failure));
    }
    assert_works(harpe_walk_finish(&walk, walk.fastest_ps, &out->frontier, &failure));
    for (int k = 0; k < TIMES; k++)
        out->bound_j[k] = harpe_frontier_bound_at(out->frontier, out->time_s[k]);
}

static double noise_j(const harpe_problem *problem, double time_s) {
    return ROUNDING * (1 + harpe_problem_iteration_power_w(problem) * time_s);
}

/* Compares all plans with the bound at their times. */
static void compare_all(const harpe_problem *problem, const harpe_clock_switch *cost, claims *c) {
    size_t number[MOST_INSTRUCTIONS] = {0};
    do {
        outcome o = outcome_of(problem, cost, number);
        double bound_j = o.holds ? harpe_frontier_bound_at(c->frontier, o.time_s) : -INFINITY;
        if (o.energy_j < bound_j - noise_j(problem, o.time_s))
            fail_msg("a plan of %.9f s needs %.9f J, the bound says %.9f J", o.time_s, o.energy_j,
                     bound_j);
        for (int k = 0; k < TIMES && o.holds; k++)
            if (o.time_s <= c->time_s[k] * (1 + 1e-12))
                c->least_j[k] = fmin(c->least_j[k], o.energy_j);
    } while (next_plan(problem, number));
}

static harpe_clock_switch random_cost(test_random *random, double most_s) {
    harpe_clock_switch cost = {0};
    int kind = random_int(random, 0, 4);
    if (kind != 1) cost.minimum_dwell_s = random_between(random, 0, most_s);
    if (kind == 1 || kind == 2) cost.latency_s = random_between(random, 0, most_s);
    if (kind >= 3) cost.energy_j = random_between(random, 0, 1);
    if (kind == 4) cost.minimum_dwell_s = 0;
    return cost;
}

TEST(no_plan_is_below_the_bound) {
    static const shape shapes[] = {{1, 4, 3}, {2, 2, 3}, {2, 3, 2},
                                   {1, 3, 4}, {3, 2, 2}, {2, 2, 2}};
    test_random random = {71};
    double missing_j = 0, closed_j = 0;
    int trials = few_trials(300);
    for (int trial = 0; trial < trials; trial++) {
        const shape *s = &shapes[trial % 6];
        static const double latency_s[] = {0.15, 0.05, 0.2, 0.1};
        bool has_table = trial % 7 == 0;
        harpe_schedule_options options = {.ranks = s->ranks, .microbatches = s->microbatches};
        owned_problem problem =
            random_clocks(&random, &options, s->clocks, has_table ? latency_s : NULL);
        harpe_clock_switch cost = random_cost(&random, trial % 2 ? 0.4 : 0.15);
        if (has_table && harpe_problem_has_switch_latency(problem)) {
            cost.latency_s = 0;
            cost.takes_profile = true;
        }
        claims c = {0};
        make_bounds(problem, &cost, &random, &c);
        compare_all(problem, &cost, &c);
        for (int k = 0; k < TIMES; k++) {
            if (!isfinite(c.least_j[k])) continue;
            missing_j += c.least_j[k] - c.relaxed_j[k];
            closed_j += c.bound_j[k] - c.relaxed_j[k];
        }
        harpe_frontier_free(c.frontier);
    }
    printf("%.1f %% of the distance to the best plans is closed\n", 100 * closed_j / missing_j);
    if (trials == 300) assert_true(closed_j >= LEAST_CLOSED * missing_j);
}

/* ---- One rank with given prices -------------------------------------------------------------- */

/* Returns the cost of clocks of a rank's instructions, counted from the cut on. Runs at one clock
 * that are too short wait where that is cheapest, before an instruction of theirs or the next run;
 * the first and the last one go on beyond the cut. INFINITY: a clock was not measured. */
static double cost_of_clocks(const harpe_clock_bound *b, const harpe_rank_run *rank,
                             const int *clock) {
    const harpe_rank_clocks *s = &b->clocks;
    double sum_j = 0, run_s = 0, wait_w = INFINITY;
    bool is_first = true;
    for (int k = 0; k < rank->length; k++) {
        int i = rank->first + (k + rank->shift) % rank->length;
        size_t at = (size_t)s->problem->choice_of[i] * (size_t)s->most_clocks + (size_t)clock[k];
        if (!s->points[at]) return INFINITY;
        if (k > 0) wait_w = fmin(wait_w, b->wait_w[i]);
        if (k > 0 && clock[k] != clock[k - 1]) {
            if (!is_first && run_s < rank->hold_s) sum_j += (rank->hold_s - run_s) * wait_w;
            sum_j += rank->change_j;
            is_first = false;
            run_s = 0;
            wait_w = INFINITY;
        }
        sum_j += s->effective_j[at] + s->price_w[i] * s->point_s[at];
        run_s += s->point_s[at];
    }
    return sum_j;
}

TEST(chosen_clocks_of_a_rank_cost_least) {
    test_random random = {74};
    int with_waits = 0;
    for (int trial = 0; trial < few_trials(400); trial++) {
        const harpe_schedule_options options = {.ranks = 1, .microbatches = 3};
        owned_problem problem = random_clocks(&random, &options, 3, NULL);
        AT_END(harpe_walk_clear) harpe_walk walk;
        AT_END(harpe_clock_bound_clear) harpe_clock_bound b;
        const harpe_clock_switch cost = {.minimum_dwell_s = random_between(&random, 0, 0.3),
                                         .energy_j = random_int(&random, 0, 1) * 2.0};
        assert_works(harpe_walk_begin(&walk, problem, NULL, &failure));
        assert_works(harpe_clock_bound_init(&b, problem, &cost, &walk.network, &failure));
        harpe_rank_run rank = b.clocks.ranks[0];
        b.clocks.ignores_most = true;
        b.proof.longest_s = INFINITY;
        rank.end = rank.clock_count;
        rank.shift = random_int(&random, 0, rank.length - 1);
        for (int i = 0; i < rank.length; i++) {
            b.clocks.price_w[i] = random_between(&random, 0, 800);
            b.wait_w[i] = random_between(&random, 0, 100);
            b.early_s[i] = b.tail_s[i] = 0;
        }
        double found_j = harpe_rank_clocks_choose(&b.clocks, &rank), least_j = INFINITY;
        int clock[MOST_INSTRUCTIONS] = {0}, k = 0;
        while (rank.clock_count > 0 && k < rank.length) {
            least_j = fmin(least_j, cost_of_clocks(&b, &rank, clock));
            for (k = 0; k < rank.length; clock[k++] = 0)
                if (++clock[k] < rank.clock_count) break;
        }
        if (isfinite(least_j)) assert_near(found_j, least_j, 1e-9);
        for (int i = 0; i < rank.length && isfinite(least_j); i++)
            with_waits += b.proof.wait_s[i] > 0;
    }
    assert_true(with_waits > 0);
}

/* ---- Plans of larger problems ---------------------------------------------------------------- */

/* Instructions of 2 to 100 ms, like those of jobs. */
static harpe_problem *larger_problem(test_random *random, int trial) {
    static const int shapes[][3] = {{4, 8, 1}, {2, 16, 1}, {4, 8, 2}, {3, 12, 1}};
    const int *s = shapes[trial % 4];
    owned_rows rows = {0};
    double scale = random_between(random, 0.1, 1);
    for (int stage = 0; stage < s[0] * s[2]; stage++)
        for (int b = 0; b < 2; b++)
            for (int k = 0; k < 10; k++) {
                double base_s = scale * (0.05 + 0.05 * b), stretch = 1 + 0.04 * k;
                double energy_j = 300 * base_s * (0.5 + 0.5 / (stretch * stretch * stretch));
                base_s *= 1 + 0.03 * (stage * 7 % 5);
                add_row(&rows, stage, b ? "backward" : "forward", 1410 - 60 * k, base_s * stretch,
                        energy_j);
            }
    harpe_schedule_options options = {
        .name = s[2] > 1 ? "interleaved-1f1b" : "1f1b", .ranks = s[0], .microbatches = s[1]};
    if (s[2] > 1) options.chunks = s[2];
    return problem_from_rows(&rows, &options, 80);
}

/* The corners say the whole bound, which falls and never rises. */
static void assert_corners(const harpe_frontier *frontier) {
    size_t count = 0;
    const harpe_frontier_vertex *corners = harpe_frontier_vertices(frontier, &count);
    for (size_t i = 1; i < count; i++) {
        const harpe_frontier_vertex *from = &corners[i - 1], *to = &corners[i];
        assert_true(from->time_s <= to->time_s);
        assert_true(to->lower_bound_j <= from->lower_bound_j * (1 + ROUNDING));
        double middle_s = (from->time_s + to->time_s) / 2;
        if (from->time_s < to->time_s)
            assert_near(harpe_frontier_bound_at(frontier, middle_s),
                        (from->lower_bound_j + to->lower_bound_j) / 2, 1e-9);
        assert_true(harpe_frontier_bound_at(frontier, middle_s) >=
                    harpe_frontier_relaxed_at(frontier, middle_s) * (1 - ROUNDING));
    }
}

/* Also says that the bound of plans is the frontier's, less the energy of their changes, and that a
 * frontier without plans knows the cost too. */
TEST(no_plan_of_the_planner_is_below_the_bound) {
    test_random random = {72};
    double allowed_j = 0, relaxed_j = 0, alone_j = 0;
    for (int trial = 0; trial < few_trials(9); trial++) {
        owned_problem problem = larger_problem(&random, trial);
        harpe_clock_switch cost = random_cost(&random, 0.5);
        const harpe_plan_request request = {.count = 6, .clock_switch = cost, .threads = 1};
        owned_frontier frontier = NULL;
        owned_plan_set plans = plan_set_of(problem, &request, &frontier);
        assert_works(harpe_frontier_verify(problem, frontier, 3, &failure));
        assert_works(harpe_plan_set_verify(problem, frontier, plans, &failure));
        owned_frontier alone = NULL;
        assert_works(harpe_frontier_new_for(problem, &cost, NULL, &alone, &failure));
        assert_corners(frontier);
        assert_corners(alone);
        for (size_t k = 0; k < harpe_plan_set_count(plans); k++) {
            const harpe_plan *plan = harpe_plan_set_at(plans, k);
            harpe_switching changes;
            assert_works(
                harpe_plan_switching(problem, plan->frequency_mhz, NULL, &changes, &failure));
            double changes_j = cost.energy_j * (double)changes.clock_writes;
            double bound_j = harpe_frontier_bound_at(frontier, plan->time_s);
            assert_true(plan->energy_j + changes_j >= bound_j * (1 - ROUNDING));
            assert_true(plan->lower_bound_j >= bound_j - changes_j - ROUNDING * bound_j);
            assert_true(plan->lower_bound_j >=
                        harpe_frontier_relaxed_at(frontier, plan->time_s) * (1 - ROUNDING));
            relaxed_j += harpe_frontier_relaxed_at(frontier, plan->time_s);
            allowed_j += bound_j;
            double said_j = harpe_frontier_bound_at(alone, plan->time_s);
            assert_true(plan->energy_j + changes_j >= said_j * (1 - ROUNDING));
            alone_j += said_j;
        }
    }
    printf("%.2f %% above the relaxation's bound\n", 100 * (allowed_j / relaxed_j - 1));
    assert_true(allowed_j > relaxed_j);
    assert_true(alone_j > relaxed_j + 0.5 * (allowed_j - relaxed_j));
}

/* ---- No cost --------------------------------------------------------------------------------- */

/* Without room for the plan's own time, a bound can be above the relaxation's, never below. For a
 * time that leaves room for all clocks, it is the relaxation's. */
TEST(without_latency_it_is_the_relaxations) {
    test_random random = {73};
    static const harpe_clock_switch nothing = {0};
    for (int trial = 0; trial < few_trials(16); trial++) {
        owned_problem problem = larger_problem(&random, trial);
        AT_END(harpe_walk_clear) harpe_walk walk;
        AT_END(harpe_clock_bound_clear) harpe_clock_bound bound;
        assert_works(harpe_walk_begin(&walk, problem, NULL, &failure));
        assert_works(harpe_clock_bound_init(&bound, problem, &nothing, &walk.network, &failure));
        double share = random_between(&random, 0.1, 1);
        int64_t room_ps = walk.solver.time_ps - walk.fastest_ps;
        assert_works(
            harpe_walk_to(&walk, walk.fastest_ps + (int64_t)(share * (double)room_ps), &failure));
        double time_s = (double)walk.solver.time_ps / HARPE_PS_PER_S;
        double relaxed_j = harpe_walk_bound_j(&walk, time_s);
        assert_works(harpe_clock_bound_add(&bound, &walk, time_s, &failure));
        assert_int_equal(walk.frontier.line_count, 1);
        const harpe_bound_line *line = &walk.frontier.lines[0];
        double held_j = line->at_0_j + line->slope_w * time_s;
        assert_true(held_j >= relaxed_j * (1 - ROUNDING));
        assert_true(held_j <= relaxed_j * (1 + MOST_ABOVE));
    }
}

/* A chain of one rank whose clock may not change: the bound is the least energy of one clock. */
TEST(one_rank_without_room_for_two_clocks) {
    owned_rows rows = {0};
    for (int k = 0; k < 4; k++)
        for (int b = 0; b < 2; b++)
            add_row(&rows, 0, b ? "backward" : "forward", 1410 - 60 * k, 0.1 + 0.02 * k,
                    30 - 4 * k);
    const harpe_schedule_options options = {.ranks = 1, .microbatches = 4};
    owned_problem problem = problem_from_rows(&rows, &options, 0);
    const harpe_clock_switch cost = {.latency_s = 0.5};
    const harpe_plan_request request = {.choice = HARPE_PLANS_AT,
                                        .times_s = (double[]){0.9, 0.96, 1.1},
                                        .time_count = 3,
                                        .clock_switch = cost};
    owned_frontier frontier = NULL;
    owned_plan_set plans = plan_set_of(problem, &request, &frontier);
    assert_near(harpe_frontier_bound_at(frontier, 0.9), 8 * 30, 1e-9);
    assert_near(harpe_frontier_bound_at(frontier, 0.96), 8 * 26, 1e-9);
    assert_true(harpe_frontier_bound_at(frontier, 1.1) < 8 * 26);
}
