/* SPDX-License-Identifier: Apache-2.0 */
/* Plans whose clocks change late: the exact evaluation agrees with hand computations and with a
 * simulation in small steps of time that shares no code with it. */
#include "test.h"

#include "instances.h"
#include "plan/clocks_internal.h"
#include "plan/plans.h"

static harpe_late_plan late_of(const harpe_problem *problem, const int *mhz,
                               const harpe_clock_switch *cost, double lead_s,
                               harpe_late_instruction *parts) {
    harpe_late_plan late;
    assert_works(harpe_plan_evaluate_late(problem, mhz, cost, lead_s, &late, parts, &failure));
    assert_true(late.is_steady);
    return late;
}

TEST(changes_in_time_cost_nothing) {
    owned_problem problem = one_rank();
    const int mhz[] = {1000, 1400, 1000, 1400};
    harpe_late_instruction parts[4];
    /* Each clock holds for 2 s. */
    harpe_late_plan late =
        late_of(problem, mhz, &(harpe_clock_switch){.latency_s = 2}, INFINITY, parts);
    assert_near(late.time_s, 8, 1e-12);
    assert_near(late.energy_j, 2000, 1e-12);
    assert_int_equal(late.request_count, 4);
    assert_int_equal(late.late_count, 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(parts[i].first_mhz, mhz[i]);
        assert_int_equal(parts[i].last_mhz, mhz[i]);
        assert_near(parts[i].start_s, 2. * i, 1e-12);
    }
}

TEST(late_changes_split_an_instruction) {
    owned_problem problem = one_rank();
    const harpe_clock_switch cost = {.latency_s = 0.5, .energy_j = 10};
    const int mhz[] = {1000, 1400, 1000, 1400};
    harpe_late_instruction parts[4];
    harpe_late_plan late = late_of(problem, mhz, &cost, 0, parts);
    assert_near(late.time_s, 2 * (0.5 + 1 + 0.5 + 2 * 5. / 6), 1e-12);
    assert_int_equal(parts[0].first_mhz, 1400);
    assert_int_equal(parts[0].last_mhz, 1000);
    assert_near(parts[0].first_share, 0.5, 1e-12);
    assert_near(parts[1].first_share, 1. / 6, 1e-12);
    assert_int_equal(late.late_count, 4);
    /* A lead of 0.4 s leaves 0.1 s. */
    late = late_of(problem, mhz, &cost, 0.4, parts);
    assert_near(parts[0].first_share, 0.1, 1e-12);
}

/* The change at B0 needs 2.5 s after that before it, which is at F0, 2 s earlier: it is 0.5 s late.
 * The change at F0 comes in time. */
TEST(requests_wait_for_the_change_before) {
    owned_problem problem = one_rank();
    const int mhz[] = {1000, 1400, 1400, 1400};
    harpe_late_instruction parts[4];
    harpe_late_plan late =
        late_of(problem, mhz, &(harpe_clock_switch){.latency_s = 2.5}, INFINITY, parts);
    assert_int_equal(parts[0].first_mhz, 1000);
    assert_near(parts[0].first_share, 1, 1e-12);
    assert_near(parts[1].first_share, 0.5 / 3, 1e-12);
    assert_near(late.time_s, 2 + 0.5 + 2 * (1 - 0.5 / 3) + 1 + 2, 1e-12);
    /* A change that takes longer than its instruction is replaced before it takes effect. */
    late = late_of(problem, mhz, &(harpe_clock_switch){.latency_s = 3}, 0, parts);
    assert_int_equal(parts[0].last_mhz, 1400);
    assert_near(late.time_s, 1 + 2 + 1 + 2, 1e-12);
    assert_int_equal(late.request_count, 2);
    assert_int_equal(late.late_count, 1);
}

TEST(instructions_without_a_clock_keep_the_present_one) {
    owned_problem problem = one_rank();
    harpe_late_instruction parts[4];
    harpe_late_plan late =
        late_of(problem, (int[]){1000, 0, 0, 0}, &(harpe_clock_switch){.latency_s = 1}, 0, parts);
    assert_near(late.time_s, 2 + 3 + 2 + 3, 1e-12);
    late = late_of(problem, (int[]){0, 0, 0, 0}, NULL, 0, parts);
    assert_near(late.time_s, 6, 1e-12);
    assert_int_equal(parts[3].last_mhz, 1400);
}

TEST(bad_arguments_are_refused) {
    owned_problem problem = one_rank();
    harpe_late_plan late;
    const int mhz[] = {1000, 1400, 1400, 1400};
    assert_int_equal(harpe_plan_evaluate_late(problem, mhz, NULL, -1, &late, NULL, &failure),
                     HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_plan_evaluate_late(problem, mhz, NULL, NAN, &late, NULL, &failure),
                     HARPE_INVALID_ARGUMENT);
    assert_refuses(harpe_plan_evaluate_late(problem, mhz,
                                            &(harpe_clock_switch){.takes_profile = true}, 0, &late,
                                            NULL, &failure),
                   HARPE_INVALID_ARGUMENT, "switch_latency");
    assert_int_equal(
        harpe_plan_evaluate_late(problem, (int[]){7, 0, 0, 0}, NULL, 0, &late, NULL, &failure),
        HARPE_INVALID_INPUT);
}

/* ---- A simulation in small steps ------------------------------------------------------------- */

/* The simulated controller reads the schedule of the steady iteration: it asks for a clock a fixed
 * time before it saw the instruction begin in the iteration before. */

#define STEP_S 2e-4
#define STEPS_MOST 4000000

typedef struct sim_rank {
    size_t next;       /* instruction that runs or comes next */
    bool is_running;   /* `next` runs */
    double done;       /* share of its work */
    int clock, target; /* MHz */
    double effect_s;   /* when the target holds */
    int asked;         /* last requested */
    size_t looked_at;  /* the controller has dealt with all instructions before this one */
} sim_rank;

typedef struct simulation {
    const harpe_problem *problem;
    const int *mhz;
    const harpe_clock_switch *cost;
    double lead_s;
    sim_rank ranks[8];
    double seen_start_s[512]; /* of the iteration before */
    double start_s[512], end_s[512];
    bool is_done[512];
    double energy_j[512];
} simulation;

static double sim_latency_s(const simulation *s, int rank, int mhz) {
    return s->cost->takes_profile ? harpe_problem_switch_latency_s(s->problem, rank, mhz)
                                  : s->cost->latency_s;
}

static const harpe_profile_point *sim_point(const simulation *s, size_t i, int mhz) {
    const harpe_choice *choice = harpe_problem_choice(s->problem, (int32_t)i);
    for (size_t p = 0; p < choice->point_count; p++)
        if (choice->points[p].frequency_mhz == mhz) return &choice->points[p];
    fail();
    return NULL;
}

/* Asks for the clock of the next instruction that needs another one, if it is time. */
static void sim_control(simulation *s, int number, double now_s) {
    sim_rank *r = &s->ranks[number];
    size_t end = s->problem->rank_offset[number + 1];
    for (; r->looked_at < end; r->looked_at++) {
        size_t i = r->looked_at;
        if (s->mhz[i] == 0 || s->mhz[i] == r->asked) continue;
        double latency_s = sim_latency_s(s, number, s->mhz[i]);
        bool is_pending = now_s < r->effect_s - STEP_S / 2;
        bool has_begun = r->next > i || (r->next == i && r->is_running);
        bool is_early = now_s >= s->seen_start_s[i] - fmin(s->lead_s, latency_s) - STEP_S / 2;
        if (!has_begun && (!is_early || is_pending)) return;
        r->asked = r->target = s->mhz[i];
        r->effect_s = now_s + latency_s;
    }
}

static bool sim_may_begin(const simulation *s, size_t i) {
    const harpe_dag *dag = &s->problem->dag;
    for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++)
        if (!s->is_done[dag->arc_from[a]]) return false;
    return true;
}

/* Simulates one iteration. Returns its length. */
static double sim_iterate(simulation *s) {
    int ranks = s->problem->rank_count;
    size_t left = (size_t)s->problem->instruction_count;
    memset(s->is_done, 0, sizeof s->is_done);
    memset(s->energy_j, 0, sizeof s->energy_j);
    for (int r = 0; r < ranks; r++) {
        s->ranks[r].next = s->ranks[r].looked_at = s->problem->rank_offset[r];
        s->ranks[r].is_running = false;
    }
    double now_s = 0;
    for (int step = 0; left > 0; step++) {
        assert_true(step < STEPS_MOST);
        now_s = step * STEP_S;
        for (int n = 0; n < ranks; n++) {
            sim_rank *r = &s->ranks[n];
            if (r->next < s->problem->rank_offset[n + 1] && !r->is_running &&
                sim_may_begin(s, r->next)) {
                r->is_running = true;
                r->done = 0;
                s->start_s[r->next] = now_s;
            }
        }
        for (int n = 0; n < ranks; n++) {
            sim_rank *r = &s->ranks[n];
            if (now_s >= r->effect_s - STEP_S / 2) r->clock = r->target;
            sim_control(s, n, now_s);
            if (now_s >= r->effect_s - STEP_S / 2) r->clock = r->target;
        }
        for (int n = 0; n < ranks; n++) {
            sim_rank *r = &s->ranks[n];
            if (!r->is_running) continue;
            const harpe_profile_point *point = sim_point(s, r->next, r->clock);
            double part = fmin(STEP_S / point->time_s, 1 - r->done);
            r->done += part;
            s->energy_j[r->next] += part * point->energy_j;
            if (r->done < 1 - 1e-9) continue;
            s->is_done[r->next] = true;
            s->end_s[r->next] = now_s + part * point->time_s;
            r->is_running = false;
            r->next++;
            left--;
        }
    }
    double length_s = now_s + STEP_S;
    memcpy(s->seen_start_s, s->start_s, sizeof s->seen_start_s);
    for (int n = 0; n < ranks; n++)
        s->ranks[n].effect_s -= length_s;
    return length_s;
}

/* A random 1F1B problem with times that are multiples of 10 steps. */
static harpe_problem *job_of_steps(test_random *random, int ranks, int microbatches) {
    owned_rows rows = {0};
    for (int stage = 0; stage < ranks; stage++) {
        for (int k = 0; k < 2; k++) {
            int steps = random_int(random, 30, 120);
            for (int c = 0; c < 3; c++) {
                double time_s = 10 * STEP_S * (steps + c * random_int(random, 3, 12));
                double watts = 300 - 60 * c;
                add_row(&rows, stage, k == 0 ? "forward" : "backward", 1400 - 200 * c, time_s,
                        watts * time_s);
                rows.rows[rows.count - 1].switch_latency_s = 10 * STEP_S * (5 + 15 * c);
            }
        }
    }
    return problem_1f1b(&rows, ranks, microbatches, 50);
}

static void simulate(const harpe_problem *problem, const int *mhz, const harpe_clock_switch *cost,
                     double lead_s, harpe_late_plan *out, double *start_s) {
    simulation s = {.problem = problem, .mhz = mhz, .cost = cost, .lead_s = lead_s};
    harpe_late_instruction parts[512];
    harpe_late_plan ignored;
    /* The controller begins with any schedule; that of the fastest plan will do. */
    assert_works(harpe_plan_evaluate_late(problem, problem->maximum_frequency_mhz, cost, 0,
                                          &ignored, parts, &failure));
    for (size_t i = 0; i < (size_t)problem->instruction_count; i++)
        s.seen_start_s[i] = parts[i].start_s;
    for (int r = 0; r < problem->rank_count; r++) {
        int last = mhz[problem->rank_offset[r + 1] - 1];
        s.ranks[r] = (sim_rank){.clock = last, .target = last, .asked = last, .effect_s = -1e9};
    }
    for (int k = 0; k < 40; k++)
        out->time_s = sim_iterate(&s);
    out->energy_j = 0;
    for (size_t i = 0; i < (size_t)problem->instruction_count; i++) {
        out->energy_j += s.energy_j[i] - 50 * (s.end_s[i] - s.start_s[i]);
        start_s[i] = s.start_s[i];
    }
    out->energy_j += 50 * problem->rank_count * out->time_s;
}

TEST(evaluation_agrees_with_a_simulation) {
    test_random random = {.state = 7};
    int late_instructions = 0;
    for (int trial = 0; trial < 24; trial++) {
        int ranks = random_int(&random, 1, 4), microbatches = random_int(&random, 1, 6);
        owned_problem problem = job_of_steps(&random, ranks, microbatches);
        int mhz[512], clock = 1400;
        for (size_t i = 0; i < (size_t)problem->instruction_count; i++) {
            if (random_int(&random, 0, 2) == 0) clock = 1400 - 200 * random_int(&random, 0, 2);
            mhz[i] = clock;
        }
        harpe_clock_switch cost = {.latency_s = 10 * STEP_S * random_int(&random, 0, 80)};
        if (trial % 3 == 0) cost = (harpe_clock_switch){.takes_profile = true};
        double lead_s = trial % 2 == 0 ? 0 : trial % 4 == 1 ? INFINITY : 30 * STEP_S;
        harpe_late_instruction parts[512];
        harpe_late_plan late, simulated;
        assert_works(harpe_plan_evaluate_late(problem, mhz, &cost, lead_s, &late, parts, &failure));
        double start_s[512];
        simulate(problem, mhz, &cost, lead_s, &simulated, start_s);
        double steps_s = 2 * STEP_S * problem->instruction_count;
        assert_true(late.is_steady);
        assert_true(fabs(simulated.time_s - late.time_s) <= steps_s);
        assert_true(fabs(simulated.energy_j - late.energy_j) <= 400 * ranks * steps_s);
        for (size_t i = 0; i < (size_t)problem->instruction_count; i++)
            assert_true(fabs(parts[i].start_s - start_s[i]) <= steps_s);
        late_instructions += (int)late.late_count;
    }
    assert_true(late_instructions > 50);
}

/* ---- Plans ----------------------------------------------------------------------------------- */

/* Makes plans of a random job, and checks that no change of them comes late. Returns the saving of
 * the fastest plan against the highest clocks. */
static double saving_of_plans(const harpe_problem *problem, const harpe_clock_switch *cost,
                              harpe_plan_set **out) {
    owned_frontier frontier = NULL;
    harpe_plan maximum = maximum_of(problem);
    const harpe_plan_request request = {.count = 5, .clock_switch = *cost};
    assert_works(harpe_plan_set_new(problem, &request, NULL, &frontier, out, &failure));
    for (size_t i = 0; i < harpe_plan_set_count(*out); i++) {
        const harpe_plan *plan = harpe_plan_set_at(*out, i);
        assert_works(harpe_plan_verify(problem, frontier, plan, &failure));
        const harpe_late_plan late = late_of(problem, plan->frequency_mhz, cost, INFINITY, NULL);
        assert_int_equal(late.late_count, 0);
        assert_near(late.time_s, plan->time_s, 1e-9);
        assert_near(late.energy_j, plan->energy_j, 1e-6);
    }
    const harpe_plan *fastest = harpe_plan_set_at(*out, 0);
    assert_true(fastest->time_s <= maximum.time_s * (1 + 1e-9));
    return maximum.energy_j - fastest->energy_j;
}

static bool are_equal(const harpe_plan_set *one, const harpe_plan_set *other,
                      const harpe_problem *problem) {
    if (harpe_plan_set_count(one) != harpe_plan_set_count(other)) return false;
    for (size_t i = 0; i < harpe_plan_set_count(one); i++)
        if (memcmp(harpe_plan_set_at(one, i)->frequency_mhz,
                   harpe_plan_set_at(other, i)->frequency_mhz,
                   harpe_problem_instruction_count(problem) * sizeof(int)) != 0)
            return false;
    return true;
}

TEST(plans_have_no_late_change) {
    test_random random = {.state = 3};
    double ideal_j = 0, late_j = 0, slowest_j = 0;
    for (int trial = 0; trial < test_trials(8); trial++) {
        owned_problem problem = job_of_steps(&random, random_int(&random, 1, 4), 8);
        harpe_plan_set *plans[4] = {NULL};
        ideal_j += saving_of_plans(problem, &(harpe_clock_switch){0}, &plans[0]);
        /* Shorter than every instruction: the same plans. */
        (void)saving_of_plans(problem, &(harpe_clock_switch){.latency_s = 1e-3}, &plans[1]);
        assert_true(are_equal(plans[0], plans[1], problem));
        late_j += saving_of_plans(problem, &(harpe_clock_switch){.takes_profile = true}, &plans[2]);
        slowest_j += saving_of_plans(problem, &(harpe_clock_switch){.latency_s = 100}, &plans[3]);
        for (size_t i = 0; i < harpe_plan_set_count(plans[3]); i++) /* longer than an iteration */
            assert_int_equal(
                late_of(problem, harpe_plan_set_at(plans[3], i)->frequency_mhz, NULL, 0, NULL)
                    .request_count,
                0);
        for (int k = 0; k < 4; k++)
            harpe_plan_set_free(plans[k]);
    }
    assert_true(slowest_j <= late_j + 1e-6 && late_j <= ideal_j + 1e-6);
    assert_true(late_j > 0.5 * ideal_j);
}

/* A plan whose changes lie badly becomes one whose changes lie well. */
TEST(changes_move_where_they_pay) {
    owned_problem problem = one_rank();
    const harpe_clock_switch cost = {.latency_s = 2};
    int mhz[4], other[] = {1400, 1400, 1400, 1400};
    /* The search finds the best of all plans whose changes come in time. */
    assert_works(harpe_change_moves_improve(problem, &cost, 8, other, 1, mhz, &failure));
    harpe_plan plan;
    assert_works(harpe_plan_evaluate(problem, mhz, &plan, NULL, &failure));
    assert_int_equal(late_of(problem, mhz, &cost, INFINITY, NULL).late_count, 0);
    double least_j = INFINITY;
    for (int which = 0; which < 16; which++) {
        for (int i = 0; i < 4; i++)
            other[i] = which >> i & 1 ? 1000 : 1400;
        harpe_plan found;
        assert_works(harpe_plan_evaluate(problem, other, &found, NULL, &failure));
        if (found.time_s > 8 + 1e-9 || late_of(problem, other, &cost, INFINITY, NULL).late_count)
            continue;
        least_j = fmin(least_j, found.energy_j);
    }
    assert_near(plan.energy_j, least_j, 1e-9);
    /* A plan whose clocks do not hold stays as it is. */
    int brief[] = {1400, 1000, 1400, 1400};
    const harpe_clock_switch slow = {.latency_s = 5};
    assert_works(harpe_change_moves_improve(problem, &slow, 8, brief, 1, mhz, &failure));
    assert_memory_equal(mhz, ((int[]){1400, 1000, 1400, 1400}), sizeof mhz);
}
