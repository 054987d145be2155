/* SPDX-License-Identifier: Apache-2.0 */
/* Safe exploration: random jobs in virtual time keep its promise, reach the plan of the truth, and
 * survive restarts, stragglers, power caps and changes of the job. bench/bench_explore plays many
 * more, and larger ones. */
#include "test.h"

#include "server/explored_job.h"
#include "server/scheduler/perseus/explorer_internal.h"

enum { ROUNDS_MAX = 80 };

/* The uncertainty of the measured times is in the promise as well: see docs/online.md. */
#define PROMISE 0.01
#define GOAL_MEAN 0.01

/* Makes a random job of at most so many stages and microbatches, or a small one if not all trials
 * are made. */
static explored_job *sized_job(uint64_t seed, int stages, int microbatches) {
    if (all_trials()) return explored_sized(seed, stages, microbatches);
    for (;; seed += 100000) {
        explored_job *s = explored_sized(seed, 2, 4);
        if (s->clock_count <= 15) return s;
        explored_free(s);
    }
}

static explored_job *any_job(uint64_t seed) { return sized_job(seed, EXPLORED_STAGES_MAX, 24); }

/* ---- The promise ----------------------------------------------------------------------------- */

TEST(no_round_is_slower_than_promised) {
    int jobs = all_trials() ? test_trials(10) : 2, close = 0, easy = 0;
    for (int i = 0; i < jobs; i++) {
        explored_job *s = any_job((uint64_t)(90000 + i));
        explored_start(s, 4, "");
        explored_way way = explored_go(s, ROUNDS_MAX);
        print_message("%s: %d rounds, slowest %+.2f %%, all %+.2f %%, plan %+.2f %% energy\n",
                      s->words, way.rounds, 100 * way.worst_time, 100 * way.mean_time,
                      100 * way.plan_energy);
        assert_true(is_in_phase(s, "plan"));
        assert_true(way.worst_time <= PROMISE + 1e-9);
        assert_true(way.mean_time <= GOAL_MEAN);
        assert_true(way.worst_energy <= 0);
        /* With more jitter, or with large steps between clocks, less can be known at no cost. */
        bool is_easy = s->jitter <= 0.005 && s->clock_count >= 10;
        easy += is_easy;
        close += is_easy && way.plan_energy <= 0.005 && way.plan_time <= 0.005;
        explored_free(s);
    }
    assert_true(!all_trials() || close >= 0.8 * easy);
}

/* GPUs that change their clocks late, and ranks that report it: no round breaks the promise, and
 * the plan does not either. */
TEST(late_clocks_break_no_promise) {
    int jobs = all_trials() ? test_trials(8) : 2, saving = 0;
    for (int i = 0; i < jobs; i++) {
        explored_job *s = sized_job((uint64_t)(70000 + i), 4, 7);
        explored_make_wild(s);
        explored_start(s, 4, "");
        explored_way way = explored_go(s, ROUNDS_MAX);
        print_message("%s: %d rounds, slowest %+.2f %% (%+.2f %%), plan %+.2f %% time, %+.2f %%\n",
                      s->words, way.rounds, 100 * way.worst_time, 100 * way.worst_iteration,
                      100 * way.plan_time, 100 * way.plan_energy);
        assert_true(is_in_phase(s, "plan"));
        assert_true(way.worst_time <= PROMISE + 1e-9);
        assert_true(way.worst_iteration <= 2 * PROMISE); /* a change may be slower than most */
        assert_true(way.mean_time <= GOAL_MEAN);
        assert_true(way.plan_time <= PROMISE);
        saving += s->ran.energy_j < 0.999 * s->highest.energy_j;
        explored_free(s);
    }
    assert_true(!all_trials() || saving >= 0.5 * jobs);
}

/* Jobs that were slower than promised or did not save: few clocks far apart, so that only a short
 * change fits into the promised time, and GPUs whose changes take very different times. The last
 * one learns longer than this test waits. */
TEST(odd_late_clocks_break_no_promise_and_save) {
    enum { FIRST_ROUNDS = 12 };
    static const uint64_t seeds[] = {1, 11, 1057};
    int jobs = all_trials() ? 3 : 1;
    for (int i = 0; i < jobs; i++) {
        explored_job *s = explored_random(seeds[i]);
        explored_make_wild(s);
        explored_start(s, 4, "");
        explored_way way = explored_go(s, FIRST_ROUNDS);
        print_message("%s: %d rounds, slowest %+.2f %%, energy %+.2f %%\n", s->words, way.rounds,
                      100 * way.worst_time, 100 * way.mean_energy);
        assert_true(way.worst_time <= PROMISE + 1e-9);
        assert_true(way.mean_energy < -0.001);
        explored_free(s);
    }
}

/* Without the reports, the same GPUs are slower than promised: the reports are of use. */
TEST(silent_ranks_with_late_clocks_break_the_promise) {
    double worst[2] = {0, 0};
    for (int is_silent = 0; is_silent <= 1; is_silent++) {
        for (uint64_t seed = 5; seed < (all_trials() ? 8 : 6); seed++) {
            explored_job *s = sized_job(seed, 5, 10);
            s->is_silent = is_silent == 1;
            explored_make_late(s, 0.03);
            explored_start(s, 4, "");
            worst[is_silent] = fmax(worst[is_silent], explored_go(s, ROUNDS_MAX).worst_time);
            explored_free(s);
        }
    }
    assert_true(worst[0] <= PROMISE + 1e-9 && worst[1] > 2 * PROMISE);
}

/* Ranks that report changes of no time, or of a short time, learn as well and as soon as ranks that
 * report nothing. A probe is all that differs. */
LONG_TEST(short_latencies_cost_nothing) {
    static const double latencies_s[] = {0, 0.0002};
    int jobs = few_trials(12), rounds[2] = {0, 0};
    double time = 0, energy = 0;
    for (int i = 0; i < jobs; i++) {
        for (int is_silent = 0; is_silent <= 1; is_silent++) {
            explored_job *s = explored_sized((uint64_t)(60000 + i), 4, 7);
            s->jitter = fmin(s->jitter, 0.005);
            explored_make_late(s, latencies_s[i % 2]);
            s->is_silent = is_silent == 1;
            explored_start(s, 4, "");
            explored_way way = explored_go(s, ROUNDS_MAX);
            print_message("%s: %d rounds, all %+.3f %%, plan %+.3f %% energy\n", s->words,
                          way.rounds, 100 * way.mean_time, 100 * way.plan_energy);
            assert_true(way.worst_time <= PROMISE + 1e-9);
            rounds[is_silent] += way.rounds;
            time += (is_silent ? -1 : 1) * way.mean_time;
            energy += (is_silent ? -1 : 1) * way.plan_energy;
            explored_free(s);
        }
    }
    print_message("rounds %d, silent %d; time %+.4f %%, energy %+.4f %%\n", rounds[0], rounds[1],
                  100 * time, 100 * energy);
    assert_true(rounds[0] <= 1.1 * rounds[1]);
    assert_true(time <= 0.001 * jobs && energy <= 0.002 * jobs);
}

/* A round with a probe has lower clocks. It is not a part of the baseline, unless the only round at
 * the highest clocks was a warm-up, and it is not a round at the highest clocks. */
TEST(a_probe_is_no_baseline) {
    for (int is_warm_up = 0; is_warm_up <= 1; is_warm_up++) {
        explored_job *s = sized_job(5, 5, 10);
        int highest = 0, probes = 0;
        double outside_s = s->outside_time_s, probe_j = 0;
        s->jitter = 0;
        explored_make_late(s, 0.03);
        explored_start(s, 4, "");
        double highest_s = s->highest.time_s + outside_s;
        double outside_j = s->blocking_power_w * outside_s * s->pp;
        double highest_j = s->highest.energy_j + outside_j;
        for (int round = 0; round < 4; round++) {
            s->outside_time_s = is_warm_up && round == 0 ? outside_s + highest_s : outside_s;
            explored_next(s);
            bool is_highest = explored_is_highest(s);
            if (round == 1) probe_j = s->ran.energy_j + outside_j;
            probes += round == 1 && !is_highest;
            highest += is_highest;
            explored_observe(s);
            assert_int_equal(number_of(s, "exploration", "highest_rounds"), 1);
        }
        assert_int_equal(probes, 1);
        assert_true(highest > 0 && fabs(probe_j - highest_j) > 1e-5 * highest_j);
        if (is_warm_up) {
            assert_true(number_of(s, "baseline", "time") <= (1 + PROMISE) * highest_s);
        } else {
            assert_true(fabs(number_of(s, "baseline", "time") - highest_s) <= 1e-9 * highest_s);
            assert_true(fabs(number_of(s, "baseline", "energy") - highest_j) <= 1e-9 * highest_j);
            assert_int_equal(number_of(s, "baseline", "rounds"), highest);
            assert_int_equal(number_of(s, "baseline", "iterations"), highest * s->iterations);
        }
        explored_free(s);
    }
}

/* A probe is not slower than promised if an iteration has time outside of the pipeline. */
TEST(time_outside_of_the_pipeline_spoils_no_probe) {
    for (uint64_t seed = 5; seed < (all_trials() ? 8 : 6); seed++) {
        explored_job *s = sized_job(seed, 5, 10);
        int probes = 0;
        s->jitter = 0;
        s->outside_time_s = 0.3;
        explored_make_late(s, 0.03);
        explored_start(s, 4, "");
        for (int round = 0; round < 2; round++) {
            explored_next(s);
            probes += !explored_is_highest(s);
            explored_observe(s);
        }
        assert_int_equal(probes, 1);
        assert_int_equal(number_of(s, "exploration", "spoiled_rounds"), 0);
        explored_free(s);
    }
}

/* The runs of ranks that never know their clocks are no observations. */
TEST(ranks_that_do_not_know_their_clocks_end_the_exploration_soon) {
    enum { FIRST_ROUNDS = 8, STALE_ROUNDS = 4 };
    for (uint64_t seed = 5; seed < (all_trials() ? 8 : 6); seed++) {
        explored_job *s = sized_job(seed, 5, 10);
        s->is_blind = true;
        explored_make_late(s, 0.03);
        explored_start(s, 4, "");
        int rounds = explored_go(s, ROUNDS_MAX).rounds;
        print_message("%s: %d rounds\n", s->words, rounds);
        assert_true(is_in_phase(s, "plan"));
        assert_true(rounds <= FIRST_ROUNDS + STALE_ROUNDS + 1);
        explored_free(s);
    }
}

TEST(a_smaller_permitted_slowdown_is_kept) {
    for (int i = 0; i < (all_trials() ? test_trials(4) : 1); i++) {
        explored_job *s = sized_job((uint64_t)(500 + i), 8, 12);
        s->jitter = 0.002;
        explored_start(s, 4, ", \"exploration_slowdown\": 0.004");
        explored_way way = explored_go(s, ROUNDS_MAX);
        assert_true(way.worst_time <= 0.004 + 1e-9);
        explored_free(s);
    }
}

/* ---- Restarts -------------------------------------------------------------------------------- */

/* Runs the rounds of a job and writes their true times. With `restarts`, the server is killed
 * between the schedule and the results of each round, and after the results. */
static int times_of(uint64_t seed, bool restarts, double *times_s) {
    explored_job *s = sized_job(seed, 5, 10);
    int rounds = 0;
    if (seed % 2 == 0) explored_make_late(s, 0.01);
    explored_start(s, 4, "");
    for (; rounds < ROUNDS_MAX && !is_in_phase(s, "plan"); rounds++) {
        explored_next(s);
        if (restarts) simulated_restart(s);
        times_s[rounds] = s->ran.time_s + s->ran.energy_j;
        explored_observe(s);
        if (restarts) simulated_restart(s);
    }
    explored_next(s);
    times_s[rounds++] = s->ran.time_s + s->ran.energy_j;
    explored_free(s);
    return rounds;
}

TEST(a_restart_in_any_round_changes_nothing) {
    double whole[ROUNDS_MAX + 1], restarted[ROUNDS_MAX + 1];
    for (uint64_t seed = all_trials() ? 21 : 22; seed < (all_trials() ? 24 : 23); seed++) {
        int rounds = times_of(seed, false, whole);
        assert_int_equal(times_of(seed, true, restarted), rounds);
        for (int i = 0; i < rounds; i++)
            assert_true(fabs(whole[i] - restarted[i]) <= 1e-9 * whole[i]);
    }
}

/* ---- Job requests ---------------------------------------------------------------------------- */

/* Runs rounds, and returns the time of the last one. No round may take longer than `limit_s`. */
static double run_rounds(explored_job *s, int rounds, double limit_s, double *energy_j) {
    for (int i = 0; i < rounds; i++) {
        explored_next(s);
        if (s->ran.time_s > limit_s * (1 + 1e-9))
            fail_msg("a round takes %.6f s, and %.6f s are permitted", s->ran.time_s, limit_s);
        explored_observe(s);
    }
    *energy_j = s->ran.energy_j;
    return s->ran.time_s;
}

TEST(a_straggler_gives_room_for_lower_clocks) {
    for (uint64_t seed = all_trials() ? 31 : 33; seed < (all_trials() ? 35 : 34); seed++) {
        explored_job *s = any_job(seed);
        double before_j, during_j, after_j;
        s->jitter = 0;
        explored_start(s, 4, "");
        (void)explored_go(s, ROUNDS_MAX);
        double highest_s = s->highest.time_s;
        (void)run_rounds(s, 2, 1.001 * highest_s, &before_j);
        ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1.2);
        (void)run_rounds(s, 20, 1.2 * highest_s + 0.2 * s->outside_time_s, &during_j);
        assert_true(during_j <= before_j);
        ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1);
        double time_s = run_rounds(s, 20, 1.01 * highest_s, &after_j);
        assert_true(time_s <= 1.003 * highest_s);
        assert_true(after_j <= 1.005 * before_j);
        explored_free(s);
    }
}

/* Counts the (stage, instruction, clock) that run and that `has_run` does not have, and adds them.
 * Each stage has two instructions. */
static int take_new_clocks(const explored_job *s, bool *has_run) {
    int found = 0;
    for (size_t i = 0; i < harpe_problem_instruction_count(s->problem); i++) {
        const harpe_option_list *list = &harpe_problem_choice(s->problem, (int32_t)i)->list;
        size_t entry = 2 * (size_t)list->stage + (strcmp(list->instruction, "forward") == 0);
        bool *own = &has_run[entry * EXPLORED_CLOCKS_MAX + s->clock_index[i]];
        found += !*own;
        *own = true;
    }
    return found;
}

static int new_clocks_of(explored_job *s, int rounds, double limit_s, bool *has_run) {
    int found = 0;
    double energy_j;
    for (int i = 0; i < rounds; i++) {
        (void)run_rounds(s, 1, limit_s, &energy_j);
        found += take_new_clocks(s, has_run);
    }
    return found;
}

/* Restarts the job as if its exploration had ended because no new clock was measured for long. */
static void make_stale(explored_job *s) {
    char *text = simulated_save(s);
    json_t *json = json_loads(text, 0, NULL);
    free(text);
    json_t *exploration = json_object_get(json, "learnt");
    assert_non_null(json_object_get(exploration, "stale_rounds"));
    json_object_set_new(exploration, "stale_rounds", json_integer(1000));
    text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    simulated_load(s, text);
    free(text);
}

/* On GPUs whose clocks change late, an exploration often ends because no new clock fits into the
 * permitted time. A request that permits more time begins a new one. */
TEST(a_straggler_gives_room_after_an_exploration_without_new_clocks) {
    static bool has_run[2 * EXPLORED_STAGES_MAX * EXPLORED_CLOCKS_MAX];
    for (uint64_t seed = all_trials() ? 31 : 33; seed < (all_trials() ? 33 : 34); seed++) {
        explored_job *s = sized_job(seed, 3, 6);
        s->jitter = 0;
        explored_make_late(s, 0.02);
        for (int r = 0; r < s->pp; r++)
            s->gpus[r].late.tail_share = s->gpus[r].late.spread = 0;
        explored_start(s, 4, "");
        memset(has_run, 0, sizeof has_run);
        for (int k = 0; k < ROUNDS_MAX && !is_in_phase(s, "plan"); k++)
            (void)new_clocks_of(s, 1, 1.01 * s->highest.time_s, has_run);
        make_stale(s);
        assert_int_equal(new_clocks_of(s, 2, 1.01 * s->highest.time_s, has_run), 0);
        ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1.2);
        double limit_s = 1.21 * s->highest.time_s + 0.2 * s->outside_time_s;
        assert_true(new_clocks_of(s, 6, limit_s, has_run) > 0);
        explored_free(s);
    }
}

/* The clocks of a straggler's rounds are so low, and changes to the highest clock so late, that the
 * next iteration is too long even if all instructions ask for the highest clocks. They run for a
 * round, and the exploration goes on. */
TEST(an_exploration_goes_on_after_a_straggler) {
    enum { LOW_ROUNDS = 2 };
    static const uint64_t seeds[] = {32, 33, 36};
    for (size_t i = 0; i < (all_trials() ? sizeof seeds / sizeof *seeds : 1); i++) {
        explored_job *s = sized_job(seeds[i], 3, 6);
        double energy_j, highest_s = s->highest.time_s;
        s->jitter = 0;
        explored_make_late(s, 0.02);
        for (int r = 0; r < s->pp; r++) {
            s->gpus[r].late.tail_share = s->gpus[r].late.spread = 0;
            s->gpus[r].late.latency_s[0] = 0.1;
        }
        explored_start(s, 4, "");
        ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1.3);
        for (int low = 0; low < LOW_ROUNDS;)
            low += run_rounds(s, 1, 2 * highest_s, &energy_j) > 1.05 * highest_s;
        assert_false(is_in_phase(s, "plan"));
        ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1);
        (void)run_rounds(s, 1, 2 * highest_s, &energy_j); /* its first iteration is slow */
        assert_true(explored_is_highest(s));
        double measured = number_of(s, "exploration", "measured");
        for (int k = 0; k < ROUNDS_MAX && !is_in_phase(s, "plan"); k++)
            (void)run_rounds(s, 1, (1 + PROMISE) * highest_s, &energy_j);
        assert_true(is_in_phase(s, "plan"));
        assert_true(number_of(s, "exploration", "measured") > measured);
        explored_free(s);
    }
}

/* Returns the power of a plan of the truth in the middle of the frontier. */
static double power_that_can_be_reached_w(explored_job *s) {
    harpe_plan_request wanted = {.choice = HARPE_PLANS_SPREAD, .count = 5, .threads = 1};
    harpe_plan_set *set;
    must(s, harpe_plan_set_new(s->problem, &wanted, NULL, NULL, &set, &s->error));
    const harpe_plan *middle = harpe_plan_set_at(set, harpe_plan_set_count(set) / 2);
    double power_w = middle->energy_j / middle->time_s;
    harpe_plan_set_free(set);
    return power_w;
}

LONG_TEST(a_power_cap_is_reached_with_clocks_that_were_not_measured) {
    explored_job *s = any_job(32);
    double energy_j;
    s->jitter = 0;
    s->outside_time_s = 0;
    explored_start(s, 4, "");
    (void)explored_go(s, ROUNDS_MAX);
    double cap_w = power_that_can_be_reached_w(s);
    assert_true(cap_w < 0.99 * s->ran.energy_j / s->ran.time_s);
    ask_for(s, HARPE_JOB_REQUEST_POWER_CAP, cap_w);
    double time_s = run_rounds(s, 60, 4 * s->highest.time_s, &energy_j);
    assert_true(energy_j / time_s <= 1.02 * cap_w);
    explored_free(s);
}

/* ---- Curves ---------------------------------------------------------------------------------- */

static const int CLOCKS[] = {1400, 1200, 1000, 800, 700};
enum { CLOCK_COUNT = sizeof CLOCKS / sizeof CLOCKS[0] };

static void observe(harpe_clock_curve *curve, size_t clock, double time_s, double power_w) {
    harpe_clock_share share = {clock, 1};
    harpe_clock_curve_observe(curve, &share, 1, time_s, time_s * power_w, 100, 0);
}

TEST(bounds_contain_every_curve_that_physics_permits) {
    harpe_clock_curve curve;
    harpe_clock_estimate known[CLOCK_COUNT];
    assert_true(harpe_clock_curve_init(&curve, CLOCKS, CLOCK_COUNT));
    assert_false(harpe_clock_curve_estimate(&curve, 0, 0, known));
    for (double compute = 0; compute <= 1; compute += 0.1) {
        harpe_clock_curve_forget(&curve);
        observe(&curve, 0, 1, 300);
        observe(&curve, 2, compute * 1.4 + 1 - compute, 200);
        assert_true(harpe_clock_curve_estimate(&curve, 0, 80, known));
        for (size_t c = 0; c < CLOCK_COUNT; c++) {
            double time_s = compute * CLOCKS[0] / CLOCKS[c] + 1 - compute;
            assert_true(known[c].lower_s <= time_s * (1 + 1e-9));
            assert_true(known[c].upper_s >= time_s * (1 - 1e-9));
            assert_true(known[c].time_s >= known[c].lower_s - 1e-12 &&
                        known[c].time_s <= known[c].upper_s + 1e-12);
        }
        assert_true(known[1].upper_s <= compute * 1.4 + 1 - compute + 1e-3);
    }
    harpe_clock_curve_free(&curve);
}

/* A clock with few runs does not make a lower clock with many runs slow. */
TEST(a_clock_that_is_known_well_corrects_its_neighbours) {
    harpe_clock_curve curve;
    harpe_clock_estimate known[CLOCK_COUNT];
    harpe_clock_share few = {1, 1}, many = {2, 1};
    assert_true(harpe_clock_curve_init(&curve, CLOCKS, CLOCK_COUNT));
    observe(&curve, 0, 1, 300);
    harpe_clock_curve_observe(&curve, &few, 1, 1.015, 250, 2, 0.02);
    harpe_clock_curve_observe(&curve, &many, 1, 1.0005, 200, 2000, 0.02);
    assert_true(harpe_clock_curve_estimate(&curve, 0.02, 80, known));
    for (size_t c = 0; c <= 2; c++)
        assert_true(known[c].time_s <= 1.002);
    harpe_clock_curve_free(&curve);
}

TEST(a_run_at_two_clocks_tells_about_one_of_them) {
    harpe_clock_curve curve;
    harpe_clock_estimate known[CLOCK_COUNT];
    assert_true(harpe_clock_curve_init(&curve, CLOCKS, CLOCK_COUNT));
    observe(&curve, 0, 1, 300);
    /* 0.2 s at 1400 MHz do a fifth of the work; at 1000 MHz the rest takes 0.8 * 1.4 s. */
    double time_s = 0.2 + 0.8 * 1.4;
    harpe_clock_share shares[] = {{0, 0.2 / time_s}, {2, 0.8 * 1.4 / time_s}};
    harpe_clock_curve_observe(&curve, shares, 2, time_s, 0.2 * 300 + 0.8 * 1.4 * 200, 100, 0);
    assert_true(harpe_clock_curve_estimate(&curve, 0, 80, known));
    assert_true(fabs(known[2].time_s - 1.4) < 1e-6);
    assert_true(fabs(known[2].energy_j - 1.4 * 200) < 1e-3);
    harpe_clock_share scattered[] = {{0, 0.4}, {1, 0.3}, {3, 0.3}};
    harpe_clock_curve_observe(&curve, scattered, 3, 1.2, 250, 100, 0);
    assert_true(curve.points[1].weight == 0 && curve.points[3].weight == 0);
    harpe_clock_curve_free(&curve);
}

int main(void) { return run_listed_tests(); }
