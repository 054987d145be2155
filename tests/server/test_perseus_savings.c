/* SPDX-License-Identifier: Apache-2.0 */
/* The savings that Perseus reports, compared with the true savings of the simulated pipeline: with
 * noise, with all kinds of drift, with stragglers, and without any savings. */
#include "test.h"

#include "server/simulated_pipeline.h"

/* ---- The truth ------------------------------------------------------------------------------- */

typedef struct truth {
    double time_s, energy_j; /* of an iteration, without noise */
} truth;

/* Time and energy of a plan under the present true properties of the pipeline. */
static truth truth_of(const simulated_pipeline *s, const harpe_plan *plan) {
    double waiting_w = s->blocking_power_w * s->job.world_size;
    double time_s = fmax(plan->time_s * s->time_factor, s->straggler_time_s);
    double busy_j = waiting_w * plan->time_s - plan->blocking_energy_j;
    return (truth){time_s + s->outside_time_s, plan->compute_energy_j * s->energy_factor +
                                                   waiting_w * time_s - s->time_factor * busy_j +
                                                   s->outside_energy_j};
}

/* The true savings of a job, summed over its iterations. */
typedef struct ledger {
    truth saved, highest;
} ledger;

static bool is_highest(const truth *ran, const truth *highest) {
    return ran->time_s == highest->time_s && ran->energy_j == highest->energy_j;
}

static void true_round(simulated_pipeline *s, ledger *into) {
    one_round(s);
    harpe_plan all = simulated_highest(s, s->problem);
    truth highest = truth_of(s, &all), ran = truth_of(s, &s->ran);
    into->highest.time_s += SIMULATED_ITERATIONS * highest.time_s;
    into->highest.energy_j += SIMULATED_ITERATIONS * highest.energy_j;
    if (is_highest(&ran, &highest)) return;
    into->saved.time_s += SIMULATED_ITERATIONS * (highest.time_s - ran.time_s);
    into->saved.energy_j += SIMULATED_ITERATIONS * (highest.energy_j - ran.energy_j);
}

/* ---- Reported savings ------------------------------------------------------------------------ */

typedef struct claim {
    double energy_j, energy_uncertainty_j, time_s, time_uncertainty_s;
    bool is_energy_significant, is_time_significant;
} claim;

static claim claim_of(simulated_pipeline *s) {
    json_t *json = frontier(s);
    const json_t *saved = json_object_get(json, "saved");
    claim found = {number_of(s, "saved", "energy"),
                   number_of(s, "saved", "energy_uncertainty"),
                   number_of(s, "saved", "time"),
                   number_of(s, "saved", "time_uncertainty"),
                   json_is_true(json_object_get(saved, "energy_is_significant")),
                   json_is_true(json_object_get(saved, "time_is_significant"))};
    json_decref(json);
    return found;
}

/* ---- A family of jobs ------------------------------------------------------------------------ */

typedef struct story {
    const char *name;
    double time_factor, energy_factor, throttle, outside, told_slowdown, untold_slowdown;
    int throttled_stage, stall_rounds;
    bool is_slow_plan; /* nothing runs at the highest clock */
} story;

static const story STORIES[] = {
    {.name = "nothing happens"},
    {.name = "time drifts a little", .time_factor = 1.02},
    {.name = "time drifts", .time_factor = 1.1},
    {.name = "time falls", .time_factor = 0.93},
    {.name = "energy drifts a little", .energy_factor = 1.03},
    {.name = "energy drifts", .energy_factor = 1.12},
    {.name = "energy falls", .energy_factor = 0.9},
    {.name = "both drift", .time_factor = 1.08, .energy_factor = 1.08},
    {.name = "both drift apart", .time_factor = 1.12, .energy_factor = 0.93},
    {.name = "first stage is slow", .throttle = 1.12, .throttled_stage = 0},
    {.name = "another stage is slow", .throttle = 1.15, .throttled_stage = 2},
    {.name = "last stage is slow", .throttle = 1.08, .throttled_stage = 3},
    {.name = "too much to correct", .time_factor = 1.4},
    {.name = "the rest takes longer", .outside = 0.1},
    {.name = "the rest takes a little longer", .outside = 0.03},
    {.name = "a straggler that was told of", .told_slowdown = 1.2},
    {.name = "a straggler that nobody told of", .untold_slowdown = 1.15},
    {.name = "a slow plan", .is_slow_plan = true},
    {.name = "a slow plan, time drifts", .time_factor = 1.1, .is_slow_plan = true},
    {.name = "a slow plan, energy drifts", .energy_factor = 0.93, .is_slow_plan = true},
    {.name = "a stall of two rounds", .time_factor = 1.06, .stall_rounds = 2},
    {.name = "a stall outside of two rounds", .outside = 0.08, .stall_rounds = 2},
};
enum { STORY_COUNT = sizeof STORIES / sizeof STORIES[0] };

static void begin_story(simulated_pipeline *s, const story *it) {
    harpe_plan all = simulated_highest(s, s->problem);
    if (it->time_factor > 0) s->time_factor = it->time_factor;
    if (it->energy_factor > 0) s->energy_factor = it->energy_factor;
    if (it->throttle > 0) simulated_throttle(s, it->throttled_stage, it->throttle);
    s->outside_time_s = it->outside * all.time_s;
    s->outside_energy_j = it->outside * all.energy_j;
    if (it->told_slowdown > 0) {
        s->straggler_time_s = it->told_slowdown * all.time_s;
        ask_for(s, HARPE_JOB_REQUEST_ITERATION_TIME, s->straggler_time_s);
    }
    if (it->untold_slowdown > 0) s->straggler_time_s = it->untold_slowdown * all.time_s;
}

static void end_story(simulated_pipeline *s) {
    s->time_factor = s->energy_factor = 1;
    s->outside_time_s = s->outside_energy_j = 0;
}

typedef struct coverage {
    int claims, energy_misses, time_misses;
    double worst; /* distance of the truth from the interval, in half-widths */
    double energy_width, time_width;
} coverage;

static void judge(simulated_pipeline *s, const ledger *real, coverage *into, const char *name,
                  double noise, int seed) {
    claim said = claim_of(s);
    assert_true(isfinite(said.energy_uncertainty_j) && isfinite(said.time_uncertainty_s));
    double energy = fabs(said.energy_j - real->saved.energy_j) / said.energy_uncertainty_j;
    double time = fabs(-said.time_s - real->saved.time_s) / said.time_uncertainty_s;
    into->claims++;
    into->energy_misses += energy > 1;
    into->time_misses += time > 1;
    into->worst = fmax(into->worst, fmax(energy, time));
    into->energy_width += said.energy_uncertainty_j / real->highest.energy_j;
    into->time_width += said.time_uncertainty_s / real->highest.time_s;
    if (energy > 1 || time > 1)
        printf("  miss: %s, noise %g %%, seed %d: energy %.2f, time %.2f half-widths\n", name,
               100 * noise, seed, energy, time);
}

static void tell_story(const story *it, double noise, int seed, int quiet_rounds, int rounds,
                       coverage *into) {
    simulated_pipeline *s = simulate(4, 1, 1, all_trials() ? 8 : 4, NULL);
    ledger real = {{0, 0}, {0, 0}};
    s->noise = noise;
    s->random += (uint64_t)seed * 0x9E3779B97F4A7C15U;
    char args[80];
    (void)snprintf(args, sizeof args, "{\"plans\": %d, \"frequency_stride\": 3%s}",
                   all_trials() ? 20 : 4, it->is_slow_plan ? ", \"slowdown\": 1.15" : "");
    start(s, "Perseus", args);
    while (!is_in_phase(s, "plan"))
        true_round(s, &real);
    for (int i = 0; i < quiet_rounds; i++)
        true_round(s, &real);
    begin_story(s, it);
    for (int i = 0; i < rounds; i++) {
        if (it->stall_rounds > 0 && i == it->stall_rounds) end_story(s);
        true_round(s, &real);
    }
    judge(s, &real, into, it->name, noise, seed);
    simulated_free(s);
}

TEST(the_interval_contains_the_truth) {
    static const double noises[] = {0, 0.003, 0.03, 0.001, 0.01};
    int kinds = all_trials() ? (int)(sizeof noises / sizeof noises[0]) : 2;
    int seeds = test_trials(1), misses = 0, claims = 0;
    for (int n = 0; n < kinds; n++) {
        for (int i = 0; i < STORY_COUNT; i++) {
            if (!all_trials() && (i + n) % 2 == 0) continue;
            coverage found = {0};
            for (int seed = 0; seed < (noises[n] > 0 ? seeds : 1); seed++) {
                tell_story(&STORIES[i], noises[n], seed, 5, 12, &found);
                tell_story(&STORIES[i], noises[n], seed + 1000, 0, 12, &found);
            }
            printf("noise %4.1f %%, %-32s energy +- %5.2f %%, time +- %5.2f %%; worst %.2f\n",
                   100 * noises[n], STORIES[i].name, 100 * found.energy_width / found.claims,
                   100 * found.time_width / found.claims, found.worst);
            misses += found.energy_misses + found.time_misses;
            claims += 2 * found.claims;
            assert_true(found.worst < 2);
        }
    }
    printf("%d of %d intervals do not contain the truth\n", misses, claims);
    assert_true(misses <= 0.05 * claims);
}

/* ---- Nothing to save ------------------------------------------------------------------------- */

static harpe_profile *flat_profile(int frequencies) {
    harpe_measurement rows[32];
    harpe_error error = {0};
    harpe_profile *profile;
    int n = 0;
    for (int stage = 0; stage < 2; stage++)
        for (int i = 0; i < frequencies; i++) {
            rows[n++] = (harpe_measurement){stage, -1, "forward", 1500 - 100 * i, 1, 300, 1, 0, 0};
            rows[n++] = (harpe_measurement){stage, -1, "backward", 1500 - 100 * i, 2, 600, 1, 0, 0};
        }
    if (harpe_profile_new(rows, (size_t)n, &profile, &error)) fail_msg("%s", error.message);
    return profile;
}

/* Returns how often savings are reported that do not exist. */
static int false_claims(int frequencies, double noise, int seeds) {
    int claims = 0;
    for (int seed = 0; seed < seeds; seed++) {
        simulated_pipeline *s = simulate(2, 1, 1, 4, flat_profile(frequencies));
        s->noise = noise;
        s->random += (uint64_t)seed * 0x9E3779B97F4A7C15U;
        start(s, "Perseus", "{\"num_microbatches\": 4, \"rises_to_stop\": 2}");
        rounds_until(s, "plan");
        some_rounds(s, 20);
        claim said = claim_of(s);
        claims += said.is_energy_significant + said.is_time_significant;
        simulated_free(s);
    }
    printf("%d frequencies, noise %g %%: %d claims in %d jobs\n", frequencies, 100 * noise, claims,
           seeds);
    return claims;
}

TEST(plans_at_the_highest_clocks_never_save_anything) {
    for (int i = 0; i < 5; i++)
        assert_int_equal(false_claims(1, 0.0075 * i, few_trials(10)), 0);
}

/* The clocks would permit savings. Noise causes a report in one of twenty cases. */
TEST(clocks_that_make_no_difference_save_nothing) {
    int claims = 0, jobs = few_trials(20);
    assert_int_equal(false_claims(6, 0, 1), 0);
    for (int i = 1; i <= 3; i++)
        claims += false_claims(6, 0.01 * i, jobs);
    assert_true(claims <= 0.05 * 6 * jobs);
}

/* ---- The baseline ---------------------------------------------------------------------------- */

SIMULATED_TEST(the_baseline_says_when_and_how_often_it_was_measured, 4, 1, 1, 8) {
    harpe_plan all = simulated_highest(s, s->problem);
    start(s, "Perseus", "{\"plans\": 8, \"frequency_stride\": 4}");
    assert_true(isnan(number_of(s, "baseline", "time")));
    int rounds = rounds_until(s, "plan");
    some_rounds(s, 5);
    assert_close(number_of(s, "baseline", "time"), all.time_s, 1e-9);
    assert_close(number_of(s, "baseline", "energy"), truth_of(s, &all).energy_j, 1e-9);
    assert_int_equal(number_of(s, "baseline", "rounds"),
                     3); /* counting, first round of the sweep, after the sweep */
    assert_int_equal(number_of(s, "baseline", "iterations"), 3 * SIMULATED_ITERATIONS);
    json_t *json = frontier(s);
    const json_t *between = json_object_get(json_object_get(json, "baseline"), "between_rounds");
    assert_int_equal(json_integer_value(json_array_get(between, 0)), 0);
    assert_int_equal(json_integer_value(json_array_get(between, 1)), rounds - 1);
    json_decref(json);
}

/* Runs rounds, and returns how many of them ran at the highest clocks. */
static int rounds_at_highest(simulated_pipeline *s, int rounds) {
    int found = 0;
    harpe_plan all = simulated_highest(s, s->problem);
    for (int i = 0; i < rounds; i++) {
        one_round(s);
        found += s->ran.energy_j == all.energy_j;
    }
    return found;
}

/* Returns the time (0) or energy (1) of the baseline of the round `back` rounds ago; 0: none. */
static double shown_baseline(simulated_pipeline *s, size_t back, size_t which) {
    json_t *json = frontier(s);
    const json_t *measured = json_object_get(json, "measured");
    const json_t *round = json_array_get(measured, json_array_size(measured) - 1 - back);
    double value = json_number_value(json_array_get(json_object_get(round, "baseline"), which));
    json_decref(json);
    return value;
}

PLANNED_TEST(a_change_is_followed_by_a_round_at_the_highest_clocks, "{\"plans\": 8}") {
    harpe_plan all = simulated_highest(s, s->problem);
    assert_int_equal(rounds_at_highest(s, 10), 0);
    s->time_factor = 1.04;
    assert_int_equal(rounds_at_highest(s, 1), 0);
    assert_true(shown_baseline(s, 0, 0) == 0); /* it waits for the round at the highest clocks */
    simulated_restart(s);
    assert_int_equal(rounds_at_highest(s, 1), 1);
    for (size_t back = 0; back < 2; back++)
        assert_close(shown_baseline(s, back, 0), 1.04 * all.time_s, 1e-9);
    assert_close(number_of(s, "baseline", "time"), 1.04 * all.time_s, 1e-9);
    assert_int_equal(number_of(s, "baseline", "rounds"), 1);
    assert_int_equal(rounds_at_highest(s, 30), 0);
}

PLANNED_TEST(a_straggler_without_a_baseline_of_its_own_counts_for_nothing, "{\"plans\": 8}") {
    harpe_plan all = simulated_highest(s, s->problem);
    claim before = claim_of(s);
    s->straggler_time_s = 1.2 * all.time_s;
    ask_for(s, HARPE_JOB_REQUEST_ITERATION_TIME, s->straggler_time_s);
    one_round(s);
    s->straggler_time_s = 0;
    ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1); /* before the round at the highest clocks */
    assert_int_equal(rounds_at_highest(s, 1), 1);
    assert_true(shown_baseline(s, 1, 0) == 0);
    assert_close(shown_baseline(s, 0, 0), all.time_s, 1e-9);
    assert_close(claim_of(s).time_s, before.time_s, 1e-9);
}

PLANNED_TEST(a_job_that_changes_all_the_time_seldom_runs_at_the_highest_clocks, "{\"plans\": 8}") {
    int highest = 0;
    for (int i = 0; i < 100; i++) {
        s->time_factor = i % 2 ? 1 : 1.04;
        highest += rounds_at_highest(s, 1);
    }
    assert_in_range(highest, 1, 10);
}

/* Under a power cap no round may take more power, so the uncertainty contains the change. */
PLANNED_TEST(a_change_under_a_power_cap_is_uncertain, "{\"plans\": 8}") {
    ask_for(s, HARPE_JOB_REQUEST_POWER_CAP, 1e6);
    some_rounds(s, 2);
    claim before = claim_of(s);
    s->time_factor = 1.04;
    assert_int_equal(rounds_at_highest(s, 10), 0);
    claim after = claim_of(s);
    double lost_s = after.time_s - before.time_s;
    assert_true(lost_s > 0 && after.time_uncertainty_s > lost_s + before.time_uncertainty_s);
    s->time_factor = 1.2; /* more than a drift of the plan: the baseline is not known */
    one_round(s);
    assert_true(shown_baseline(s, 0, 0) == 0);
    assert_close(claim_of(s).time_s, after.time_s, 1e-9);
    ask_for(s, HARPE_JOB_REQUEST_POWER_CAP, 0);
    s->time_factor = 1.04;
    one_round(s);
    ask_for(s, HARPE_JOB_REQUEST_POWER_CAP, 1e6); /* before the round at the highest clocks */
    assert_int_equal(rounds_at_highest(s, 2), 0);
    ask_for(s, HARPE_JOB_REQUEST_POWER_CAP, 0);
    assert_int_equal(rounds_at_highest(s, 4), 1);
}

/* The first round of a job may compile, connect and allocate. */
SIMULATED_TEST(a_warm_up_is_no_baseline, 4, 1, 1, 8) {
    harpe_plan all = simulated_highest(s, s->problem);
    start(s, "Perseus", "{\"plans\": 8, \"frequency_stride\": 4}");
    s->time_factor = 3;
    one_round(s);
    s->time_factor = 1;
    rounds_until(s, "plan");
    assert_close(number_of(s, "baseline", "time"), all.time_s, 1e-9);
    assert_int_equal(number_of(s, "baseline", "rounds"), 2);
}

/* Iterations that take longer for a while, and a correction for this, must not make the baseline
 * longer permanently. */
PLANNED_TEST(a_correction_for_a_stall_does_not_stay_in_the_baseline, "{\"plans\": 8}") {
    harpe_plan all = simulated_highest(s, s->problem);
    s->outside_time_s = 0.08 * all.time_s;
    some_rounds(s, 2);
    assert_logged(s, "planned again");
    s->outside_time_s = 0;
    some_rounds(s, 3);
    assert_close(shown_baseline(s, 0, 0), all.time_s, 1e-6);
    assert_close(shown_baseline(s, 0, 1), truth_of(s, &all).energy_j, 1e-6);
}

int main(void) { return run_listed_tests(); }
