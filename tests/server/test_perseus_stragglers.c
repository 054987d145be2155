/* SPDX-License-Identifier: Apache-2.0 */
/* Stragglers that are reported at any time of the learning, in random jobs in virtual time: another
 * pipeline, or a GPU of the job. A job that learns answers in the second round, and no round is
 * slower than the straggler allows. A job with a plan answers in the next round; only this one may
 * be slower, if the straggler is a GPU of the job. */
#include "test.h"

#include "server/explored_job.h"

enum { ROUNDS_DURING = 12, ROUNDS_AFTER = 6 };

/* Plans are made from measured times, and have their noise. */
#define PLAN_NOISE_SHARE 0.25

typedef struct trial {
    explored_job *job;
    double highest_s; /* of an iteration without a straggler */
    double factor;
    int report; /* the round in which the straggler comes */
    bool restarts;
} trial;

/* Runs a round, and returns the time of an iteration, without jitter. */
static double run_round(trial *t) {
    explored_next(t->job);
    if (t->restarts) simulated_restart(t->job);
    double time_s = t->job->ran.time_s + t->job->outside_time_s;
    explored_observe(t->job);
    return time_s;
}

/* Reports a straggler while the ranks run a round. */
static void start_straggler(trial *t, bool is_own) {
    explored_job *s = t->job;
    explored_next(s);
    if (is_own)
        s->throttle[explored_pick(s, 0, s->pp - 1)] = t->factor;
    else
        s->other_s = t->factor * t->highest_s;
    ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, t->factor);
    if (t->restarts) simulated_restart(s);
    explored_observe(s);
}

static void end_straggler(trial *t) {
    explored_job *s = t->job;
    explored_next(s);
    for (int p = 0; p < s->pp; p++)
        s->throttle[p] = 1;
    s->other_s = 0;
    ask_for(s, HARPE_JOB_REQUEST_SLOWDOWN, 1);
    explored_observe(s);
}

/* Returns the longest time of the next rounds, relative to the highest clocks without a straggler.
 */
static double longest_of(trial *t, int rounds) {
    double longest_s = 0;
    for (int r = 0; r < rounds; r++)
        longest_s = fmax(longest_s, run_round(t));
    return longest_s / t->highest_s;
}

static trial new_trial(uint64_t seed) {
    int size = all_trials() ? 8 : 4;
    trial t = {.job = explored_sized(seed, all_trials() ? 5 : 3, size), .restarts = seed % 4 == 3};
    explored_job *s = t.job;
    t.report = explored_pick(s, 1, all_trials() ? 12 : 5);
    t.factor = explored_uniform(s, 1.05, 1.5);
    t.highest_s = s->highest.time_s + s->outside_time_s;
    explored_start(s, 20, "");
    return t;
}

static void check_straggler(uint64_t seed, bool is_own) {
    trial t = new_trial(seed);
    explored_job *s = t.job;
    for (int r = 0; r < t.report; r++)
        (void)run_round(&t);
    bool is_learning = !is_in_phase(s, "plan");
    start_straggler(&t, is_own);
    /* A job with a plan answers at once, and then sees whether the straggler is its own. */
    double slack = !is_learning && is_own ? t.factor : 1;
    if (is_learning) assert_true(longest_of(&t, 1) <= t.factor + 1e-9);
    explored_next(s);
    bool is_answered = !explored_is_highest(s);
    double answer = longest_of(&t, 1);
    double during = longest_of(&t, ROUNDS_DURING);
    end_straggler(&t);
    double after = longest_of(&t, ROUNDS_AFTER);
    double noise = PLAN_NOISE_SHARE * s->jitter + 1e-9;
    print_message("%d, %s%s, %s, round %d, %.3f allowed: %.4f, %.4f, then %.4f\n", (int)seed,
                  s->words, is_own ? ", own" : "", is_learning ? "learning" : "plan", t.report,
                  t.factor, answer / t.factor, during / t.factor, after);
    assert_true(is_answered);
    assert_true(answer <= t.factor * slack * (1 + noise));
    assert_true(during <= t.factor * (1 + noise));
    assert_true(after <= 1.01 * (1 + noise));
    explored_free(s);
}

TEST(no_round_is_slower_than_a_straggler_allows) {
    for (int i = 0; i < few_trials(25); i++) {
        check_straggler((uint64_t)i, false);
        check_straggler((uint64_t)i, true);
    }
}

/* A plan that was asked for may be slower than a straggler allows. This shows no straggler. */
TEST(a_slow_plan_stays_beside_a_straggler) {
    for (int i = 0; i < few_trials(4); i++) {
        trial t = new_trial((uint64_t)i);
        explored_job *s = t.job;
        (void)explored_go(s, 100);
        ask_for(s, HARPE_JOB_REQUEST_PLAN_TIME, 2 * t.highest_s);
        explored_observe(s);
        (void)longest_of(&t, ROUNDS_DURING);
        start_straggler(&t, false);
        for (int r = 0; r < ROUNDS_AFTER; r++) {
            (void)run_round(&t);
            assert_false(explored_is_highest(s));
        }
        explored_free(s);
    }
}

/* The wait for another pipeline in the first round is no time outside of the instructions. */
TEST(first_round_beside_a_straggler_does_not_count) {
    for (int i = 0; i < few_trials(4); i++) {
        trial t = new_trial((uint64_t)i);
        explored_job *s = t.job;
        start_straggler(&t, false);
        end_straggler(&t);
        (void)explored_go(s, 100);
        explored_observe(s);
        (void)run_round(&t);
        start_straggler(&t, false);
        assert_true(longest_of(&t, ROUNDS_AFTER) <=
                    t.factor * (1 + PLAN_NOISE_SHARE * s->jitter + 1e-9));
        explored_free(s);
    }
}

int main(void) { return run_listed_tests(); }
