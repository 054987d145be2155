/* SPDX-License-Identifier: Apache-2.0 */
/* No set of plans is worse than what a user finds without a planner: one clock for all GPUs, or one
 * clock for each rank from a descent that only evaluates plans. Random pipelines and odd profiles,
 * with and without cost of changes, and few plans or many. The times, energies and changes of all
 * plans are those of a simulation of its own. */
#include "test.h"

#include "instances.h"

#define MOST_RANKS 6
#define MOST_CLOCKS 128
#define MOST_INSTRUCTIONS 320
/* Problems up to this size are planned with each number of plans, if all trials are made. */
#define SMALL_INSTRUCTIONS 60
#define ROUNDING 1e-9
/* A user chooses the plan with the least energy among those that take this much longer than the
 * highest clocks. */
static const double slowdowns[] = {0, 0.001, 0.01, 0.02, 0.05};
#define SLOWDOWN_COUNT (sizeof slowdowns / sizeof slowdowns[0])
/* Plans of a set; 0: one for each of the slowdowns. */
static const int plan_counts[] = {1, 2, 5, 14, 40, 0};
#define PLAN_COUNTS (sizeof plan_counts / sizeof plan_counts[0])

/* A profile, a schedule, and what the simulation knows of them. */
typedef struct instance {
    int trial;
    harpe_profile *profile;
    harpe_schedule *schedule;
    harpe_problem *problem;
    double blocking_w, overhead_w;
    harpe_clock_switch cost;
    size_t count;
    int (*waits)[2];                         /* [count]: instructions of any rank; -1: none */
    const harpe_profile_entry **entries;     /* [count] */
    int clocks[MOST_RANKS + 1][MOST_CLOCKS]; /* that all of a rank's instructions have, the highest
                                              * first; the last list: those of all ranks */
    int clock_count[MOST_RANKS + 1];
    int *mhz; /* [count]: scratch */
    double *start_s;
} instance;

/* ---- Profiles -------------------------------------------------------------------------------- */

typedef enum oddity {
    ODD_NONE,
    ODD_FEW_CLOCKS,
    ODD_CLOCKS_MISSING,
    ODD_SLOWER_AT_THE_TOP, /* the highest clocks are slower than others, and times have noise */
    ODD_TINY,              /* some instructions are a thousand times shorter */
    ODD_UNEQUAL,           /* stages differ by up to a factor of four */
    ODD_COUNT,
} oddity;

static bool is_kept(oddity kind, size_t place, test_random *random) {
    if (kind == ODD_FEW_CLOCKS) return place % 12 == 0;
    if (kind == ODD_CLOCKS_MISSING) return place == 20 || random_int(random, 0, 9) > 0;
    return true;
}

/* Copies the rows of a synthetic profile, and changes them. */
static test_rows odd_rows(const harpe_profile *profile, oddity kind, test_random *random) {
    test_rows rows = {0};
    double stage_factor = 1;
    for (size_t e = 0; e < harpe_profile_entry_count(profile); e++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(profile, e);
        bool is_new = e == 0 || harpe_profile_entry_at(profile, e - 1)->stage != entry->stage;
        if (kind == ODD_UNEQUAL && is_new) stage_factor = random_between(random, 0.5, 2);
        double factor = stage_factor;
        if (kind == ODD_TINY && random_int(random, 0, 2) == 0) factor = 0.001;
        double top = kind == ODD_SLOWER_AT_THE_TOP ? random_between(random, 1, 1.05) : 1;
        int top_count = random_int(random, 1, 5);
        for (size_t p = 0; p < entry->point_count; p++) {
            const harpe_profile_point *point = &entry->points[p];
            double slower = (int)p < top_count ? top : 1;
            if (is_kept(kind, p, random))
                add_row(&rows, entry->stage, entry->instruction, point->frequency_mhz,
                        point->time_s * factor * slower, point->energy_j * factor);
        }
    }
    return rows;
}

static harpe_profile *make_profile(int stages, test_random *random) {
    static const char *const models[] = {"A100", "H100", "A40", "V100"};
    harpe_synth_options options = {.gpu_model = models[random_int(random, 0, 3)],
                                   .stages = stages,
                                   .imbalance = stages > 1 ? random_between(random, 1, 1.2) : 1,
                                   .noise = random_int(random, 0, 2) * 0.005,
                                   .seed = random_bits(random),
                                   .forward_time_s = 0.002 * random_int(random, 1, 50),
                                   .split_backward = true};
    harpe_profile *profile = NULL;
    assert_works(harpe_profile_synthesize(&options, &profile, NULL, &failure));
    owned_rows rows = odd_rows(profile, (oddity)random_int(random, 0, ODD_COUNT - 1), random);
    harpe_profile *odd = profile_of(&rows);
    harpe_profile_free(profile); /* the rows have its names */
    return odd;
}

/* ---- Instances ------------------------------------------------------------------------------- */

static harpe_schedule *draw_schedule(test_random *random) {
    static const char *const names[] = {"1f1b", "interleaved-1f1b", "gpipe", "zb-h1", "zb-v"};
    int most_ranks = all_trials() ? MOST_RANKS : 3;
    int most_microbatches = all_trials() ? 40 : 4;
    harpe_schedule_options options = {.name = names[random_int(random, 0, 4)],
                                      .ranks = random_int(random, 2, most_ranks),
                                      .microbatches = random_int(random, 2, most_microbatches)};
    if (strcmp(options.name, "interleaved-1f1b") == 0) {
        options.chunks = random_int(random, 2, all_trials() ? 4 : 2);
        int groups = options.microbatches / options.ranks / options.chunks;
        options.microbatches = options.ranks * (groups > 1 ? groups : 1);
    }
    return schedule_of(&options);
}

static harpe_schedule *make_schedule(test_random *random) {
    for (;;) {
        harpe_schedule *schedule = draw_schedule(random);
        if (harpe_schedule_instruction_count(schedule) <= MOST_INSTRUCTIONS) return schedule;
        harpe_schedule_free(schedule);
    }
}

/* Draws what a change costs: nothing, a latency, a dwell time, energy, or several of these. */
static harpe_clock_switch random_cost(const harpe_profile *profile, test_random *random) {
    static const double latencies_s[] = {0, 0, 0.005, 0.025, 0.1};
    harpe_clock_switch cost = {.latency_s = latencies_s[random_int(random, 0, 4)]};
    const harpe_profile_point *point = harpe_profile_entry_at(profile, 0)->points;
    if (random_int(random, 0, 2) == 0)
        cost.minimum_dwell_s = point->time_s * random_between(random, 0.5, 20);
    if (random_int(random, 0, 2) == 0)
        cost.energy_j = point->energy_j * random_between(random, 0.001, 0.2);
    return cost;
}

/* Returns the number of the operation among those that wait for each other. */
static int kind_of(harpe_operation operation) {
    return operation == HARPE_FORWARD ? 0 : operation == HARPE_BACKWARD_WEIGHT ? 2 : 1;
}

typedef struct action_index {
    int *found; /* [kind][stage][microbatch] */
    int stages, microbatches;
} action_index;

static int *action_at(const action_index *index, int kind, int stage, int microbatch) {
    return &index->found[(kind * index->stages + stage) * index->microbatches + microbatch];
}

static void add_waits(instance *in, const action_index *index, int i, const harpe_action *action) {
    int stage = action->stage, microbatch = action->microbatch, kind = kind_of(action->operation);
    in->waits[i][0] = in->waits[i][1] = -1;
    if (kind == 0 && stage > 0) in->waits[i][0] = *action_at(index, 0, stage - 1, microbatch);
    if (kind == 1) in->waits[i][0] = *action_at(index, 0, stage, microbatch);
    if (kind == 1 && stage + 1 < index->stages)
        in->waits[i][1] = *action_at(index, 1, stage + 1, microbatch);
    if (kind == 2) in->waits[i][0] = *action_at(index, 1, stage, microbatch);
}

/* Finds what each instruction waits for, from the rules of harpe_operation, and its rows. */
static void find_waits(instance *in) {
    action_index index = {.stages = harpe_schedule_stage_count(in->schedule),
                          .microbatches = harpe_schedule_microbatch_count(in->schedule)};
    index.found = harpe_calloc((size_t)(3 * index.stages * index.microbatches), sizeof(int));
    assert_non_null(index.found);
    for (int pass = 0; pass < 2; pass++) {
        int i = 0;
        for (int r = 0; r < harpe_schedule_rank_count(in->schedule); r++) {
            size_t length = 0;
            const harpe_instruction *list = harpe_schedule_rank(in->schedule, r, &length);
            for (size_t k = 0; k < length; k++, i++) {
                const harpe_action *action = &list[k].actions[0];
                in->entries[i] = harpe_profile_find(in->profile, action->stage, list[k].name);
                if (pass == 0)
                    *action_at(&index, kind_of(action->operation), action->stage,
                               action->microbatch) = i;
                else
                    add_waits(in, &index, i, action);
            }
        }
    }
    free(index.found);
}

static const harpe_profile_point *point_at(const harpe_profile_entry *entry, int mhz) {
    for (size_t p = 0; p < entry->point_count; p++)
        if (entry->points[p].frequency_mhz == mhz) return &entry->points[p];
    return NULL;
}

/* Lists the clocks that all instructions from `first` to `end` were measured at. */
static int list_clocks(const instance *in, size_t first, size_t end, int *mhz) {
    int count = 0;
    for (size_t p = 0; p < in->entries[first]->point_count; p++) {
        int one_mhz = in->entries[first]->points[p].frequency_mhz;
        size_t i = first;
        while (i < end && point_at(in->entries[i], one_mhz))
            i++;
        if (i == end && count < MOST_CLOCKS) mhz[count++] = one_mhz;
    }
    return count;
}

static instance make_instance(int trial) {
    static const double overheads_w[] = {0, 0, 300};
    test_random random = {.state = 90000 + (uint64_t)trial};
    instance in = {.trial = trial, .schedule = make_schedule(&random)};
    in.profile = make_profile(harpe_schedule_stage_count(in.schedule), &random);
    in.blocking_w = random_int(&random, 0, 4) == 0 ? 0 : random_between(&random, 40, 130);
    in.overhead_w = overheads_w[random_int(&random, 0, 2)];
    in.problem = problem_of(in.profile, in.schedule,
                            &(harpe_problem_options){.blocking_power_w = &in.blocking_w,
                                                     .blocking_power_count = 1,
                                                     .overhead_power_w = in.overhead_w});
    in.cost = random_cost(in.profile, &random);
    in.count = harpe_problem_instruction_count(in.problem);
    in.waits = harpe_calloc(in.count, sizeof *in.waits);
    in.entries = harpe_calloc(in.count, sizeof *in.entries);
    in.mhz = harpe_calloc(in.count, sizeof *in.mhz);
    in.start_s = harpe_calloc(in.count, sizeof *in.start_s);
    find_waits(&in);
    size_t first = 0;
    int ranks = harpe_problem_rank_count(in.problem);
    for (int r = 0; r < ranks; first += harpe_problem_rank_length(in.problem, r), r++)
        in.clock_count[r] =
            list_clocks(&in, first, first + harpe_problem_rank_length(in.problem, r), in.clocks[r]);
    in.clock_count[MOST_RANKS] = list_clocks(&in, 0, in.count, in.clocks[MOST_RANKS]);
    return in;
}

static void free_instance(instance *in) {
    harpe_problem_free(in->problem);
    harpe_schedule_free(in->schedule);
    harpe_profile_free(in->profile);
    free(in->waits);
    free(in->entries);
    free(in->mhz);
    free(in->start_s);
}

/* ---- Simulation ------------------------------------------------------------------------------ */

static double end_of(const instance *in, int i, const int *mhz) {
    return i < 0 ? 0 : in->start_s[i] + point_at(in->entries[i], mhz[i])->time_s;
}

/* Runs an iteration: each rank starts its next instruction as soon as those that it waits for have
 * ended. Writes `start_s`, and returns time and energy without the energy of changes. */
static harpe_plan simulate(const instance *in, const int *mhz) {
    int ranks = harpe_problem_rank_count(in->problem);
    harpe_plan done = {0};
    for (size_t i = 0; i < in->count; i++)
        in->start_s[i] = -1;
    for (size_t left = in->count; left > 0;) {
        size_t before = left;
        int first = 0;
        for (int r = 0; r < ranks; r++) {
            int end = first + (int)harpe_problem_rank_length(in->problem, r);
            double now_s = 0;
            for (int i = first; i < end; now_s = end_of(in, i, mhz), i++) {
                const int *waits = in->waits[i];
                if (in->start_s[i] >= 0) continue;
                if ((waits[0] >= 0 && in->start_s[waits[0]] < 0) ||
                    (waits[1] >= 0 && in->start_s[waits[1]] < 0))
                    break;
                in->start_s[i] =
                    fmax(now_s, fmax(end_of(in, waits[0], mhz), end_of(in, waits[1], mhz)));
                const harpe_profile_point *point = point_at(in->entries[i], mhz[i]);
                done.energy_j += point->energy_j - in->blocking_w * point->time_s;
                done.time_s = fmax(done.time_s, end_of(in, i, mhz));
                left--;
            }
            first = end;
        }
        assert_true(left < before);
    }
    done.energy_j += (in->blocking_w * ranks + in->overhead_w) * done.time_s;
    return done;
}

/* The changes of a rank's clock. */
typedef struct rank_changes {
    size_t count;
    double shortest_s; /* time between two changes; INFINITY: at most one change */
} rank_changes;

/* Looks at two iterations, because the last clock holds to the first change of the next one. */
static rank_changes changes_of(const instance *in, const int *mhz, double time_s, int first,
                               int length) {
    rank_changes found = {.shortest_s = INFINITY};
    double changed_s = -INFINITY;
    for (int k = 1; k <= 2 * length; k++) {
        int i = first + k % length, before = first + (k - 1) % length;
        if (mhz[i] == mhz[before]) continue;
        double now_s = in->start_s[i] + k / length * time_s;
        found.shortest_s = fmin(found.shortest_s, now_s - changed_s);
        changed_s = now_s;
        if (k <= length) found.count++;
    }
    return found;
}

/* Returns the energy of a plan with that of its changes, after checking its numbers and that its
 * clocks hold. A rank without a clock in common need not hold its clocks. */
static double check_plan(const instance *in, const harpe_plan *plan) {
    harpe_plan own = simulate(in, plan->frequency_mhz);
    assert_near(plan->time_s, own.time_s, ROUNDING);
    assert_near(plan->energy_j, own.energy_j, ROUNDING);
    double hold_s = fmax(in->cost.minimum_dwell_s, in->cost.latency_s) * (1 - ROUNDING);
    bool holds = true;
    size_t changes = 0;
    int first = 0;
    for (int r = 0; r < harpe_problem_rank_count(in->problem); r++) {
        int length = (int)harpe_problem_rank_length(in->problem, r);
        rank_changes of_rank = changes_of(in, plan->frequency_mhz, own.time_s, first, length);
        if (of_rank.shortest_s < hold_s && in->clock_count[r] > 0)
            fail_msg("trial %d: rank %d holds a clock for %g s, not for %g s", in->trial, r,
                     of_rank.shortest_s, hold_s);
        holds = holds && of_rank.shortest_s >= hold_s;
        changes += of_rank.count;
        first += length;
    }
    harpe_late_plan late;
    assert_works(harpe_plan_evaluate_late(in->problem, plan->frequency_mhz, &in->cost, INFINITY,
                                          &late, NULL, &failure));
    if (holds) {
        assert_int_equal(late.late_count, 0);
        assert_near(late.time_s, own.time_s, ROUNDING);
    }
    return own.energy_j + in->cost.energy_j * (double)changes;
}

/* ---- Simple plans ---------------------------------------------------------------------------- */

/* Returns the energy of the plan with one clock per rank; INFINITY: it is too slow. */
static double energy_within(instance *in, const int *clock, double most_s) {
    size_t i = 0;
    for (int r = 0; r < harpe_problem_rank_count(in->problem); r++)
        for (size_t k = 0; k < harpe_problem_rank_length(in->problem, r); k++)
            in->mhz[i++] = in->clocks[r][clock[r]];
    harpe_plan plan;
    assert_works(harpe_plan_evaluate(in->problem, in->mhz, &plan, NULL, &failure));
    return plan.time_s <= most_s ? plan.energy_j : INFINITY;
}

/* A plan with one clock per rank. */
typedef struct simple_plan {
    int clock[MOST_RANKS]; /* place in the rank's list */
    double energy_j;
} simple_plan;

static void consider(instance *in, const int *clock, double most_s, simple_plan *best) {
    for (int r = 0; r < harpe_problem_rank_count(in->problem); r++)
        if (clock[r] < 0 || clock[r] >= in->clock_count[r]) return;
    double energy_j = energy_within(in, clock, most_s);
    if (energy_j >= best->energy_j * (1 - 1e-12)) return;
    memcpy(best->clock, clock, sizeof best->clock);
    best->energy_j = energy_j;
}

/* Changes one rank by up to three clocks, or else makes one faster and another slower. */
static bool take_step(instance *in, double most_s, simple_plan *plan) {
    int ranks = harpe_problem_rank_count(in->problem), clock[MOST_RANKS];
    simple_plan best = *plan;
    memcpy(clock, plan->clock, sizeof clock);
    for (int r = 0; r < ranks; r++) {
        for (int d = -3; d <= 3; d++) {
            clock[r] = plan->clock[r] + d;
            consider(in, clock, most_s, &best);
        }
        clock[r] = plan->clock[r];
    }
    for (int which = 0; best.energy_j >= plan->energy_j && which < ranks * ranks * 4; which++) {
        int faster = which / 4 / ranks, slower = which / 4 % ranks;
        if (faster == slower) continue;
        clock[faster] = plan->clock[faster] - 1 - which % 2;
        clock[slower] = plan->clock[slower] + 1 + which / 2 % 2;
        consider(in, clock, most_s, &best);
        clock[faster] = plan->clock[faster];
        clock[slower] = plan->clock[slower];
    }
    bool saves = best.energy_j < plan->energy_j;
    *plan = best;
    return saves;
}

static int place_of(const instance *in, int rank, int mhz) {
    int place = 0;
    while (in->clocks[rank][place] != mhz)
        place++;
    return place;
}

/* Returns the least energy within a time of all plans with one clock, and of a descent from the
 * best of them and from the highest clocks. INFINITY: none is fast enough. */
static double simple_energy_j(instance *in, double most_s) {
    int ranks = harpe_problem_rank_count(in->problem);
    simple_plan single = {.energy_j = INFINITY}, highest = {.energy_j = INFINITY};
    for (int r = 0; r < ranks; r++)
        if (in->clock_count[r] == 0) return INFINITY;
    for (int c = 0; c < in->clock_count[MOST_RANKS]; c++) {
        int clock[MOST_RANKS] = {0};
        for (int r = 0; r < ranks; r++)
            clock[r] = place_of(in, r, in->clocks[MOST_RANKS][c]);
        consider(in, clock, most_s, &single);
    }
    highest.energy_j = energy_within(in, highest.clock, most_s);
    while (take_step(in, most_s, &single) || take_step(in, most_s, &highest)) {
    }
    return fmin(single.energy_j, highest.energy_j);
}

/* ---- Comparison ------------------------------------------------------------------------------ */

/* Makes a set of plans, checks each, and writes the least energy within each time. */
static void least_of_set(const instance *in, int plan_count, const double *times_s,
                         double *least_j) {
    harpe_plan_request request = {.count = plan_count, .clock_switch = in->cost, .threads = 1};
    if (plan_count == 0) {
        request.choice = HARPE_PLANS_AT;
        request.times_s = times_s;
        request.time_count = SLOWDOWN_COUNT;
    }
    owned_plan_set plans = plan_set_of(in->problem, &request, NULL);
    for (size_t s = 0; s < SLOWDOWN_COUNT; s++)
        least_j[s] = INFINITY;
    for (size_t p = 0; p < harpe_plan_set_count(plans); p++) {
        const harpe_plan *plan = harpe_plan_set_at(plans, p);
        double energy_j = check_plan(in, plan);
        for (size_t s = 0; s < SLOWDOWN_COUNT; s++)
            if (plan->time_s <= times_s[s] * (1 + ROUNDING))
                least_j[s] = fmin(least_j[s], energy_j);
    }
}

static void check_trial(int trial) {
    AT_END(free_instance) instance in = make_instance(trial);
    harpe_plan highest = maximum_of(in.problem);
    double times_s[SLOWDOWN_COUNT], simple_j[SLOWDOWN_COUNT], least_j[SLOWDOWN_COUNT];
    for (size_t s = 0; s < SLOWDOWN_COUNT; s++) {
        times_s[s] = highest.time_s * (1 + slowdowns[s]);
        simple_j[s] = simple_energy_j(&in, times_s[s]);
    }
    for (size_t n = 0; n < PLAN_COUNTS; n++) {
        bool is_small = all_trials() && in.count <= SMALL_INSTRUCTIONS;
        if (!is_small && n != (size_t)trial % PLAN_COUNTS) continue;
        least_of_set(&in, plan_counts[n], times_s, least_j);
        for (size_t s = 0; s < SLOWDOWN_COUNT; s++) {
            if (least_j[s] <= simple_j[s] * (1 + ROUNDING)) continue;
            fail_msg("trial %d, %d plans, %g %% slower: %.9g J, one clock per rank %.9g J", trial,
                     plan_counts[n], 100 * slowdowns[s], least_j[s], simple_j[s]);
        }
    }
}

TEST(no_set_is_worse_than_one_clock_per_rank) {
    for (int trial = 0; trial < few_trials(100); trial++)
        check_trial(trial);
}
