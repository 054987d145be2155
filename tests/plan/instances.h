/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs of the planner's tests: random profiles of many characters, fitted to any schedule,
 * and measured profiles if they are available. The same seed gives the same instance on every
 * machine. Also what several tests check, and a simulation of plans. */
#ifndef HARPE_TESTS_PLAN_INSTANCES_H
#define HARPE_TESTS_PLAN_INSTANCES_H

#include "test.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <harpe/graph.h>
#include <harpe/plan.h>

#include "base/array.h"
#include "base/text.h"
#include "plan/problem.h"

/* ---- What tests make, freed at the end of the scope (test.h) --------------------------------- */

OWNER(harpe_profile)
OWNER(harpe_schedule)
OWNER(harpe_problem)
OWNER(harpe_frontier)
OWNER(harpe_plan_set)
OWNER(harpe_plan_file)
OWNER(harpe_graph)

#define owned_profile OWNED(harpe_profile)
#define owned_schedule OWNED(harpe_schedule)
#define owned_problem OWNED(harpe_problem)
#define owned_frontier OWNED(harpe_frontier)
#define owned_plan_set OWNED(harpe_plan_set)
#define owned_plan_file OWNED(harpe_plan_file)
#define owned_graph OWNED(harpe_graph)
#define owned_text AT_END(harpe_text_free) harpe_text

/* ---- Checks ---------------------------------------------------------------------------------- */

/* Checks that two numbers agree to a fraction of the larger one. */
static inline bool nearly(double a, double b, double relative) {
    return fabs(a - b) <= relative * fmax(fabs(a), fabs(b));
}

#define assert_near(a, b, relative) \
    do { \
        double assert_near_a = (a), assert_near_b = (b); \
        if (!nearly(assert_near_a, assert_near_b, relative)) \
            fail_msg("%.12g is not %.12g", assert_near_a, assert_near_b); \
    } while (0)

/* ---- Random numbers -------------------------------------------------------------------------- */

typedef struct test_random {
    uint64_t state;
} test_random;

/* splitmix64 (Steele, Lea, Flood 2014). */
static inline uint64_t random_bits(test_random *random) {
    uint64_t z = (random->state += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

/* Returns a number from low to high, both included. */
static inline int random_int(test_random *random, int low, int high) {
    return low + (int)(random_bits(random) % (uint64_t)(high - low + 1));
}

static inline double random_between(test_random *random, double low, double high) {
    return low + (high - low) * ((double)(random_bits(random) >> 11) * 0x1p-53);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

typedef struct test_rows {
    harpe_measurement *rows;
    size_t count, capacity;
} test_rows;

static inline void rows_clear(test_rows *list) { free(list->rows); }
#define owned_rows AT_END(rows_clear) test_rows

static inline void add_row(test_rows *list, int stage, const char *instruction, int frequency_mhz,
                           double time_s, double energy_j) {
    if (!HARPE_ARRAY_RESERVE(list->rows, list->capacity, list->count + 1)) abort();
    list->rows[list->count++] = (harpe_measurement){.stage = stage,
                                                    .rank = -1,
                                                    .instruction = instruction,
                                                    .frequency_mhz = frequency_mhz,
                                                    .time_s = time_s,
                                                    .energy_j = energy_j};
}

static inline bool has_row(const test_rows *list, int stage, const char *instruction) {
    for (size_t i = 0; i < list->count; i++)
        if (list->rows[i].stage == stage && strcmp(list->rows[i].instruction, instruction) == 0)
            return true;
    return false;
}

/* ---- Characters of a profile ----------------------------------------------------------------- */

typedef enum test_character {
    CHARACTER_MEASURED,  /* falling and convex, with noise, like real profiles */
    CHARACTER_TIES,      /* few different times and energies: many ties and duplicates */
    CHARACTER_LINEAR,    /* every option on one straight line */
    CHARACTER_IDENTICAL, /* every option the same */
    CHARACTER_WILD,      /* no order, and factors of 1:1000 between instructions */
    CHARACTER_COUNT,
} test_character;

typedef struct test_profile_shape {
    test_character character;
    int fewest_options, most_options;
    bool stages_are_alike;
    bool keeps_pairs;    /* overlapped pairs have separate rows */
    double power_scale;  /* factor on all energies; 0: 1 */
    double single_share; /* share of the instructions that have a single option */
} test_profile_shape;

static inline double scale_or_one(double scale) { return scale > 0 ? scale : 1; }

static inline void add_option(test_rows *list, const test_profile_shape *shape, int stage,
                              const char *instruction, int index, double base_s, double base_w,
                              test_random *random) {
    double stretch = 1 + 0.05 * index, power = 1 / stretch;
    double time_s = base_s * stretch, energy_j = base_w * base_s * (0.6 + 0.4 * power * power);
    switch (shape->character) {
    case CHARACTER_MEASURED:
        time_s *= random_between(random, 0.99, 1.01);
        energy_j *= random_between(random, 0.98, 1.02);
        break;
    case CHARACTER_TIES:
        time_s = 0.010 * random_int(random, 1, 4);
        energy_j = 0.5 * random_int(random, 2, 8);
        break;
    case CHARACTER_LINEAR: energy_j = base_w * base_s * (2 - stretch); break;
    case CHARACTER_IDENTICAL:
        time_s = base_s;
        energy_j = base_w * base_s;
        break;
    case CHARACTER_WILD:
        time_s = base_s * pow(10, random_between(random, -1.5, 1.5));
        energy_j = base_w * base_s * pow(10, random_between(random, -1.5, 1.5));
        break;
    case CHARACTER_COUNT: break;
    }
    add_row(list, stage, instruction, 1410 - 15 * index, time_s,
            energy_j * scale_or_one(shape->power_scale));
}

/* Adds rows of one (stage, instruction), unless there are any. */
static inline void add_options(test_rows *list, const test_profile_shape *shape, int stage,
                               const char *instruction, test_random *random) {
    if (has_row(list, stage, instruction)) return;
    int count = random_int(random, shape->fewest_options, shape->most_options);
    if (random_between(random, 0, 1) < shape->single_share) count = 1;
    double base_s = 0.050 * random_between(random, 0.8, 1.25);
    double base_w = random_between(random, 280, 320);
    for (int i = 0; i < count; i++)
        add_option(list, shape, stage, instruction, i, base_s, base_w, random);
}

static inline const char *name_alone(const harpe_action *action) {
    switch (action->operation) {
    case HARPE_FORWARD: return "forward";
    case HARPE_BACKWARD_INPUT: return "backward_input";
    case HARPE_BACKWARD_WEIGHT: return "backward_weight";
    default: return "backward";
    }
}

/* Repeats the rows of the first stage for every stage. */
static inline void copy_first_stage(test_rows *list, int stages) {
    owned_rows first = {0};
    for (size_t i = 0; i < list->count; i++) {
        const harpe_measurement *row = &list->rows[i];
        if (row->stage == 0)
            add_row(&first, 0, row->instruction, row->frequency_mhz, row->time_s, row->energy_j);
    }
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (list->rows[i].stage == 0 || !has_row(&first, 0, list->rows[i].instruction))
            list->rows[kept++] = list->rows[i];
    list->count = kept;
    for (int stage = 1; stage < stages; stage++) {
        for (size_t i = 0; i < first.count; i++) {
            const harpe_measurement *row = &first.rows[i];
            add_row(list, stage, row->instruction, row->frequency_mhz, row->time_s, row->energy_j);
        }
    }
}

/* Creates rows for everything that a schedule runs. Free with free(rows.rows). */
static inline test_rows make_rows(const harpe_schedule *schedule, const test_profile_shape *shape,
                                  test_random *random) {
    test_rows list = {0};
    for (int rank = 0; rank < harpe_schedule_rank_count(schedule); rank++) {
        size_t count = 0;
        const harpe_instruction *instructions = harpe_schedule_rank(schedule, rank, &count);
        for (size_t i = 0; i < count; i++) {
            const harpe_instruction *instruction = &instructions[i];
            if (instruction->action_count == 1 || shape->keeps_pairs) {
                add_options(&list, shape, instruction->actions[0].stage, instruction->name, random);
                continue;
            }
            for (int a = 0; a < 2; a++) {
                const harpe_action *action = &instruction->actions[a];
                add_options(&list, shape, action->stage, name_alone(action), random);
            }
        }
    }
    if (shape->stages_are_alike) copy_first_stage(&list, harpe_schedule_stage_count(schedule));
    return list;
}

/* ---- From rows to a problem ------------------------------------------------------------------ */

static inline harpe_profile *profile_of(const test_rows *list) {
    harpe_profile *profile = NULL;
    harpe_error error = {.message = ""};
    if (harpe_profile_new(list->rows, list->count, &profile, &error) != HARPE_OK) {
        fprintf(stderr, "%s\n", error.message);
        abort();
    }
    return profile;
}

static inline harpe_schedule *schedule_of(const harpe_schedule_options *options) {
    harpe_schedule *schedule = NULL;
    harpe_error error = {.message = ""};
    if (harpe_schedule_new(options, &schedule, &error) != HARPE_OK) {
        fprintf(stderr, "%s\n", error.message);
        abort();
    }
    return schedule;
}

static inline harpe_problem *problem_of(const harpe_profile *profile,
                                        const harpe_schedule *schedule,
                                        const harpe_problem_options *options) {
    harpe_problem *problem = NULL;
    harpe_error error = {.message = ""};
    if (harpe_problem_new(profile, schedule, options, &problem, &error) != HARPE_OK) {
        fprintf(stderr, "%s\n", error.message);
        abort();
    }
    return problem;
}

/* Creates a schedule's problem from rows, with one blocking power and an overhead power. */
static inline harpe_problem *problem_with_overhead(const test_rows *list,
                                                   const harpe_schedule_options *schedule_options,
                                                   double blocking_power_w,
                                                   double overhead_power_w) {
    owned_schedule schedule = schedule_of(schedule_options);
    owned_profile profile = profile_of(list);
    return problem_of(profile, schedule,
                      &(harpe_problem_options){.blocking_power_w = &blocking_power_w,
                                               .blocking_power_count = 1,
                                               .overhead_power_w = overhead_power_w});
}

static inline harpe_problem *problem_from_rows(const test_rows *list,
                                               const harpe_schedule_options *schedule_options,
                                               double blocking_power_w) {
    return problem_with_overhead(list, schedule_options, blocking_power_w, 0);
}

/* The schedule that is usual. */
static inline harpe_schedule *schedule_1f1b(int ranks, int microbatches) {
    return schedule_of(&(harpe_schedule_options){.ranks = ranks, .microbatches = microbatches});
}

static inline harpe_problem *problem_1f1b(const test_rows *list, int ranks, int microbatches,
                                          double blocking_power_w) {
    return problem_from_rows(
        list, &(harpe_schedule_options){.ranks = ranks, .microbatches = microbatches},
        blocking_power_w);
}

static inline harpe_schedule_options random_1f1b(test_random *random, int most_ranks,
                                                 int most_microbatches) {
    int ranks = random_int(random, 1, most_ranks);
    return (harpe_schedule_options){.ranks = ranks,
                                    .microbatches = random_int(random, 1, most_microbatches)};
}

/* Returns the plan at the highest clocks. */
static inline harpe_plan maximum_of(const harpe_problem *problem) {
    harpe_plan plan;
    assert_works(harpe_plan_all_maximum(problem, &plan, &failure));
    return plan;
}

static inline harpe_frontier *frontier_of(const harpe_problem *problem) {
    harpe_frontier *frontier = NULL;
    assert_works(harpe_frontier_new(problem, NULL, &frontier, &failure));
    return frontier;
}

/* Makes plans and, unless it is NULL, their frontier. */
static inline harpe_plan_set *plan_set_of(const harpe_problem *problem,
                                          const harpe_plan_request *request,
                                          harpe_frontier **frontier) {
    harpe_plan_set *plans = NULL;
    assert_works(harpe_plan_set_new(problem, request, NULL, frontier, &plans, &failure));
    return plans;
}

/* Blocking powers for tests: none, usual powers, one close to the power of instructions, and one
 * far above it. */
static inline double random_blocking_w(test_random *random, double power_scale) {
    static const double usual_w[] = {0, 10, 70, 83.64, 200, 299, 1000};
    return usual_w[random_int(random, 0, 6)] * scale_or_one(power_scale);
}

/* Overhead powers for tests: often none, less than a GPU, and more than all GPUs together. */
static inline double random_overhead_w(test_random *random, double power_scale) {
    static const double usual_w[] = {0, 0, 0, 43.5, 600, 12000};
    return usual_w[random_int(random, 0, 5)] * scale_or_one(power_scale);
}

static inline test_profile_shape random_shape(test_random *random) {
    static const double power_scales[] = {1, 1, 1, 0.1, 30};
    int fewest = random_int(random, 1, 3);
    test_character character = (test_character)random_int(random, 0, CHARACTER_COUNT - 1);
    double power_scale = power_scales[random_int(random, 0, 4)];
    return (test_profile_shape){
        .character = character,
        .fewest_options = fewest,
        .most_options = fewest + random_int(random, 0, 1) * random_int(random, 0, 5),
        .stages_are_alike = random_int(random, 0, 2) == 0,
        .keeps_pairs = random_int(random, 0, 1) == 0,
        .power_scale = character == CHARACTER_WILD ? 1 : power_scale,
        .single_share = random_int(random, 0, 3) == 0 ? 0.3 : 0,
    };
}

/* Creates a random problem for a given schedule. */
static inline harpe_problem *random_problem(const harpe_schedule_options *schedule_options,
                                            test_random *random) {
    test_profile_shape shape = random_shape(random);
    owned_schedule schedule = schedule_of(schedule_options);
    owned_rows rows = make_rows(schedule, &shape, random);
    double blocking_w = random_blocking_w(random, shape.power_scale);
    double overhead_w = random_overhead_w(random, shape.power_scale);
    return problem_with_overhead(&rows, schedule_options, blocking_w, overhead_w);
}

/* Creates the problem of a schedule whose profile has a shape. */
static inline harpe_problem *problem_of_shape(const harpe_schedule_options *options,
                                              const test_profile_shape *shape, test_random *random,
                                              double blocking_power_w) {
    owned_schedule schedule = schedule_of(options);
    owned_rows rows = make_rows(schedule, shape, random);
    return problem_from_rows(&rows, options, blocking_power_w);
}

/* Creates a 1F1B problem whose profile is like a measured one, with `fewest` to `most` options. */
static inline harpe_problem *usual_1f1b(test_random *random, int ranks, int microbatches,
                                        int fewest, int most) {
    return problem_of_shape(&(harpe_schedule_options){.ranks = ranks, .microbatches = microbatches},
                            &(test_profile_shape){.character = CHARACTER_MEASURED,
                                                  .fewest_options = fewest,
                                                  .most_options = most},
                            random, 80);
}

/* One rank: F0 B0 F1 B1. */
static inline harpe_problem *one_rank(void) {
    owned_rows rows = {0};
    add_row(&rows, 0, "forward", 1400, 1, 300);
    add_row(&rows, 0, "forward", 1000, 2, 400);
    add_row(&rows, 0, "backward", 1400, 2, 600);
    add_row(&rows, 0, "backward", 1000, 3, 500);
    return problem_1f1b(&rows, 1, 2, 50);
}

/* Returns the smallest shape of at least these ranks and microbatches for which a schedule is
 * defined. */
static inline harpe_schedule_options shape_for(const char *schedule, int ranks, int microbatches) {
    harpe_schedule_options options = {
        .name = schedule, .ranks = ranks, .microbatches = microbatches};
    if (strcmp(schedule, "interleaved-1f1b") == 0)
        options.microbatches = (microbatches + ranks - 1) / ranks * ranks;
    if (strcmp(schedule, "dualpipe") == 0) {
        options.ranks += ranks % 2;
        options.microbatches += microbatches % 2;
    }
    if (strncmp(schedule, "dualpipe", 8) == 0 && options.microbatches < 2 * options.ranks)
        options.microbatches = 2 * options.ranks;
    return options;
}

/* ---- Measured data --------------------------------------------------------------------------- */

/* Fills in the path of a file in $HARPE_DATA (or ../shared/data beside the project). Skips the test
 * if it does not exist. */
static inline void find_data(const char *name, char *path, size_t size) {
    const char *folder = getenv("HARPE_DATA");
    int length = folder ? snprintf(path, size, "%s/%s", folder, name)
                        : snprintf(path, size, "%s/../shared/data/%s", HARPE_SOURCE_DIR, name);
    assert_true(length > 0 && (size_t)length < size);
    if (access(path, R_OK) != 0) skip_because("data: %s is not there", path);
}

/* Reads a profile of the data. Skips the test if it is missing. */
static inline harpe_profile *data_profile(const char *name) {
    char path[4096];
    find_data(name, path, sizeof path);
    harpe_profile *profile = NULL;
    assert_works(harpe_profile_read_csv(path, &profile, &failure));
    return profile;
}

#define MEASURED_BLOCKING_W 83.64
static const char *const measured_profiles[] = {"pipeline/gpt3-175b_a100.csv",
                                                "pipeline/bloom-176b_a100.csv"};
#define MEASURED_PROFILE_COUNT 2

/* Returns a measured 8-stage profile under 1F1B. Skips the test if it is missing. */
static inline harpe_problem *measured_problem(int index, int microbatches,
                                              harpe_problem_options options) {
    owned_profile profile = data_profile(measured_profiles[index]);
    double blocking_w = MEASURED_BLOCKING_W;
    options.blocking_power_w = &blocking_w;
    options.blocking_power_count = 1;
    owned_schedule schedule = schedule_1f1b(8, microbatches);
    return problem_of(profile, schedule, &options);
}

/* ---- Running plans --------------------------------------------------------------------------- */

/* These functions use only the dependencies and the measured points, not the evaluation, the
 * network or the solver. */

/* Computes when each instruction starts, by visiting all dependencies until nothing changes.
 * Returns the length of the iteration. */
static inline double simulate_times(const harpe_problem *problem, const double *time_s,
                                    double *start_s) {
    const harpe_dag *dag = &problem->dag;
    double length_s = 0;
    memset(start_s, 0, (size_t)dag->node_count * sizeof *start_s);
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t a = 0; a < dag->arc_count; a++) {
            double end_s = start_s[dag->arc_from[a]] + time_s[dag->arc_from[a]];
            if (end_s <= start_s[dag->arc_to[a]]) continue;
            start_s[dag->arc_to[a]] = end_s;
            changed = true;
        }
    }
    for (int32_t i = 0; i < dag->node_count; i++)
        length_s = fmax(length_s, start_s[i] + time_s[i]);
    return length_s;
}

/* Advances to the next combination of measured points, which may not be Pareto-optimal. Returns
 * false after the last one. */
static inline bool next_plan(const harpe_problem *problem, size_t *point) {
    for (size_t i = 0; i < harpe_problem_instruction_count(problem); i++) {
        if (++point[i] < harpe_problem_choice(problem, (int32_t)i)->point_count) return true;
        point[i] = 0;
    }
    return false;
}

#endif
