/* SPDX-License-Identifier: Apache-2.0 */
/* Anticipation on a model of a GPU whose clock changes late, with a clock that the test controls:
 * how much of each instruction runs at its clock, and how long steps take, against a controller
 * that only reacts. */
#include "test.h"

#include "client/control.h"

#define MS INT64_C(1000000)
#define TICK_NS INT64_C(100000)
#define HIGHEST_MHZ 1410

enum { MOST = 32, WARM_STEPS = 6 };

/* An instruction, and the wait after it. */
typedef struct planned {
    uint32_t mhz;    /* 0: the instruction leaves the clock as it is, and takes as long at any */
    int64_t work_ns; /* at the highest clock */
    int64_t wait_ns;
} planned;

typedef struct world {
    harpe_anticipation *anticipation; /* NULL: requests are made when instructions begin */
    harpe_switch_time takes;
    int64_t now_ns;
    uint32_t mhz;        /* of the GPU now */
    uint32_t next_mhz;   /* 0: no transition */
    int64_t next_ns;     /* its end */
    uint32_t queued_mhz; /* waits for the end of the transition; 0: none */
    uint32_t asked_mhz;
    uint64_t requests;
    int64_t at_clock_ns, below_ns, above_ns; /* of instructions, since the last reset */
    uint32_t jitter;                         /* random state; 0: none */
} world;

static harpe_switch_time switch_time(const void *user, uint32_t mhz) {
    (void)mhz;
    return ((const world *)user)->takes;
}

/* ---- The GPU --------------------------------------------------------------------------------- */

static void ask(world *w, uint32_t mhz) {
    if (mhz == w->asked_mhz) return;
    w->asked_mhz = mhz;
    w->requests++;
    if (w->next_mhz != 0) {
        w->queued_mhz = mhz;
        return;
    }
    w->next_mhz = mhz;
    w->next_ns = w->now_ns + w->takes.latency_ns;
}

static void tick(world *w) {
    w->now_ns += TICK_NS;
    if (w->next_mhz == 0 || w->next_ns > w->now_ns) return;
    w->mhz = w->next_mhz;
    w->next_mhz = w->queued_mhz;
    w->next_ns = w->now_ns + w->takes.latency_ns;
    w->queued_mhz = 0;
}

/* ---- The controller -------------------------------------------------------------------------- */

static void control(world *w) {
    if (!w->anticipation) return;
    for (int i = 0; i < MOST; i++) {
        harpe_anticipated next =
            harpe_anticipation_next(w->anticipation, w->now_ns, switch_time, w);
        if (next.mhz == 0) {
            assert_true(next.at_ns >= w->now_ns);
            return;
        }
        assert_true(next.at_ns <= w->now_ns);
        ask(w, next.mhz);
        harpe_anticipation_asked(w->anticipation, &next);
    }
    fail_msg("the anticipation asks for ever");
}

/* ---- The training ---------------------------------------------------------------------------- */

static int64_t jittered(world *w, int64_t duration_ns) {
    if (w->jitter == 0) return duration_ns;
    w->jitter = w->jitter * 1664525U + 1013904223U;
    double share = ((double)(w->jitter >> 8) / (double)(1U << 24) - 0.5) * 0.04;
    return duration_ns + (int64_t)((double)duration_ns * share);
}

static void run_instruction(world *w, const planned *plan, uint32_t position, uint32_t series) {
    if (w->anticipation)
        harpe_anticipation_begin(w->anticipation, series, position, plan->mhz, w->now_ns);
    else if (plan->mhz > 0)
        ask(w, plan->mhz);
    double left_ns = (double)jittered(w, plan->work_ns);
    while (left_ns > 0) {
        control(w);
        tick(w);
        left_ns -= plan->mhz > 0 ? (double)TICK_NS * w->mhz / HIGHEST_MHZ : (double)TICK_NS;
        if (plan->mhz == 0) continue;
        *(w->mhz == plan->mhz  ? &w->at_clock_ns
          : w->mhz < plan->mhz ? &w->below_ns
                               : &w->above_ns) += TICK_NS;
    }
    if (w->anticipation) harpe_anticipation_end(w->anticipation, w->now_ns);
    for (int64_t end_ns = w->now_ns + jittered(w, plan->wait_ns); w->now_ns < end_ns;) {
        control(w);
        tick(w);
    }
}

static void run_steps(world *w, const planned *plan, uint32_t count, int steps) {
    for (int step = 0; step < steps; step++)
        for (uint32_t i = 0; i < count; i++)
            run_instruction(w, &plan[i], i, 1);
}

static void reset(world *w) { w->at_clock_ns = w->below_ns = w->above_ns = 0; }

static double share_at_clock(const world *w) {
    return (double)w->at_clock_ns / (double)(w->at_clock_ns + w->below_ns + w->above_ns);
}

static double share_below(const world *w) {
    return (double)w->below_ns / (double)(w->at_clock_ns + w->below_ns + w->above_ns);
}

static world new_world(bool anticipates, int64_t latency_ns) {
    world w = {.mhz = HIGHEST_MHZ, .asked_mhz = HIGHEST_MHZ, .takes = {.latency_ns = latency_ns}};
    if (!anticipates) return w;
    w.anticipation = harpe_anticipation_new();
    assert_non_null(w.anticipation);
    harpe_anticipation_set(w.anticipation, HIGHEST_MHZ);
    return w;
}

static void end_world(world *w) { harpe_anticipation_free(w->anticipation); }
#define owned_world AT_END(end_world) world

static const planned with_waits[] = {{1410, 60 * MS, 5 * MS},  {1005, 50 * MS, 30 * MS},
                                     {1410, 80 * MS, 40 * MS}, {705, 40 * MS, 35 * MS},
                                     {705, 40 * MS, 0},        {1200, 90 * MS, 45 * MS}};
enum { WITH_WAITS = sizeof with_waits / sizeof with_waits[0] };

/* ---- Tests ----------------------------------------------------------------------------------- */

TEST(without_latency_nothing_is_early) {
    owned_world late = new_world(true, 0);
    world plain = new_world(false, 0);
    run_steps(&late, with_waits, WITH_WAITS, WARM_STEPS);
    run_steps(&plain, with_waits, WITH_WAITS, WARM_STEPS);
    assert_true(llabs(late.now_ns - plain.now_ns) <= WITH_WAITS * WARM_STEPS * TICK_NS);
    assert_true(share_at_clock(&late) > 0.99);
}

TEST(an_instruction_after_a_wait_runs_at_its_clock) {
    static const int64_t latencies_ns[] = {2 * MS, 5 * MS, 10 * MS, 25 * MS};
    for (size_t i = 0; i < sizeof latencies_ns / sizeof latencies_ns[0]; i++) {
        owned_world late = new_world(true, latencies_ns[i]);
        world plain = new_world(false, latencies_ns[i]);
        run_steps(&late, with_waits, WITH_WAITS, WARM_STEPS);
        run_steps(&plain, with_waits, WITH_WAITS, WARM_STEPS);
        reset(&late);
        reset(&plain);
        run_steps(&late, with_waits, WITH_WAITS, 10);
        run_steps(&plain, with_waits, WITH_WAITS, 10);
        print_message("%lld ms: %.1f %% at the clock (below: %.1f %%), reacting %.1f %%\n",
                      (long long)(latencies_ns[i] / MS), 100 * share_at_clock(&late),
                      100 * share_below(&late), 100 * share_at_clock(&plain));
        assert_true(share_at_clock(&late) > 0.98);
        assert_true(share_below(&late) < 0.005);
        assert_true(share_at_clock(&late) > share_at_clock(&plain));
    }
}

TEST(jitter_slows_no_instruction_much) {
    for (uint32_t seed = 1; seed <= (uint32_t)few_trials(20); seed++) {
        owned_world late = new_world(true, 25 * MS);
        late.jitter = seed;
        run_steps(&late, with_waits, WITH_WAITS, WARM_STEPS);
        reset(&late);
        run_steps(&late, with_waits, WITH_WAITS, 30);
        assert_true(share_at_clock(&late) > 0.93);
        assert_true(share_below(&late) < 0.02);
    }
}

/* Random plans, also with latencies beyond the length of an instruction. The reference is a GPU
 * that obeys at once. */
TEST(random_plans_take_no_longer_than_planned) {
    uint32_t random = 7;
    for (int trial = 0; trial < few_trials(200); trial++) {
        planned plan[MOST];
        uint32_t count = 1;
        int64_t latency_ns = 0;
        for (uint32_t i = 0; i < MOST; i++) {
            random = random * 1664525U + 1013904223U;
            uint32_t r = random >> 8;
            plan[i] = (planned){.mhz = 600 + 15 * (r % 55),
                                .work_ns = (int64_t)(5 + r / 64 % 80) * MS,
                                .wait_ns = r / 8192 % 3 == 0 ? (int64_t)(r / 16384 % 60) * MS : 0};
            if (i == 0) count = 1 + r / 4096 % MOST;
            if (i == 1) latency_ns = (int64_t)(r / 4096 % 120) * MS;
        }
        owned_world late = new_world(true, latency_ns);
        world ideal = new_world(false, 0);
        run_steps(&late, plan, count, WARM_STEPS);
        run_steps(&ideal, plan, count, WARM_STEPS);
        int64_t late_begin_ns = late.now_ns, ideal_begin_ns = ideal.now_ns;
        reset(&late);
        run_steps(&late, plan, count, 8);
        run_steps(&ideal, plan, count, 8);
        double late_s = 1e-9 * (double)(late.now_ns - late_begin_ns);
        double ideal_s = 1e-9 * (double)(ideal.now_ns - ideal_begin_ns);
        if (late_s > ideal_s * 1.005 || (latency_ns <= 50 * MS && share_below(&late) > 0.03))
            fail_msg("trial %d: %u instructions, %lld ms: %.4f s, planned %.4f s, below %.3f",
                     trial, count, (long long)(latency_ns / MS), late_s, ideal_s,
                     share_below(&late));
    }
}

/* The running instruction lasts far longer than ever, so the clock of the next one, which was asked
 * for too early, is taken back. */
TEST(a_stall_returns_to_the_clock_of_the_running_instruction) {
    static const planned plan[] = {{1410, 60 * MS, 0}, {705, 60 * MS, 0}};
    static const planned stalled[] = {{1410, 400 * MS, 0}, {705, 60 * MS, 0}};
    owned_world late = new_world(true, 20 * MS);
    run_steps(&late, plan, 2, WARM_STEPS);
    reset(&late);
    run_steps(&late, stalled, 2, 1);
    /* A tolerance of a quarter of the instruction, and two changes. */
    assert_true(late.below_ns <= 15 * MS + 2 * 20 * MS + 4 * TICK_NS);
    run_steps(&late, plan, 2, 1);
    reset(&late);
    run_steps(&late, plan, 2, 2);
    assert_true(share_at_clock(&late) > 0.9);
}

/* An evaluation has other instructions, all at the highest clock. */
TEST(a_step_without_positions_is_not_anticipated) {
    owned_world late = new_world(true, 20 * MS);
    run_steps(&late, with_waits, WITH_WAITS, WARM_STEPS);
    static const planned evaluation = {HIGHEST_MHZ, 50 * MS, 0};
    for (int i = 0; i < 4; i++) {
        harpe_anticipation_begin(late.anticipation, 1, HARPE_POSITION_LOST, HIGHEST_MHZ,
                                 late.now_ns);
        assert_false(harpe_anticipation_is_following(late.anticipation));
        ask(&late, HIGHEST_MHZ);
        harpe_anticipation_set(late.anticipation, HIGHEST_MHZ);
        uint64_t requests = late.requests;
        for (int64_t left_ns = evaluation.work_ns; left_ns > 0; left_ns -= TICK_NS) {
            control(&late);
            tick(&late);
        }
        assert_int_equal(late.requests, requests);
    }
    assert_int_equal(late.mhz, HIGHEST_MHZ);
    run_steps(&late, with_waits, WITH_WAITS, 1);
    reset(&late);
    run_steps(&late, with_waits, WITH_WAITS, 2); /* what was learnt remains */
    assert_true(share_at_clock(&late) > 0.97);
}

/* Phases at 0 MHz leave the clock as it is, also the first and the last one of a step. The changes
 * beside them come in time, and there is none at them. */
TEST(phases_that_leave_the_clock_are_anticipated) {
    static const planned phases[] = {{0, 30 * MS, 0},    {1410, 60 * MS, 5 * MS}, {0, 30 * MS, 0},
                                     {1005, 50 * MS, 0}, {0, 20 * MS, 10 * MS},   {0, 15 * MS, 0},
                                     {1200, 60 * MS, 0}, {0, 40 * MS, 0}};
    enum { PHASES = sizeof phases / sizeof phases[0], CHANGES = 3 };
    owned_world late = new_world(true, 20 * MS);
    run_steps(&late, phases, PHASES, WARM_STEPS);
    reset(&late);
    uint64_t requests = late.requests;
    run_steps(&late, phases, PHASES, 10);
    assert_true(share_at_clock(&late) > 0.97);
    assert_true(share_below(&late) < 0.01);
    assert_int_equal(late.requests - requests, 10 * CHANGES);
}

TEST(a_new_schedule_is_learnt_anew) {
    owned_world late = new_world(true, 10 * MS);
    run_steps(&late, with_waits, WITH_WAITS, WARM_STEPS);
    static const planned other[] = {{900, 50 * MS, 20 * MS}, {1410, 50 * MS, 20 * MS}};
    for (int step = 0; step < WARM_STEPS + 4; step++) {
        if (step == WARM_STEPS) reset(&late);
        for (uint32_t i = 0; i < 2; i++)
            run_instruction(&late, &other[i], i, 2);
    }
    assert_true(share_at_clock(&late) > 0.97);
}

TEST(wrong_events_are_harmless) {
    uint32_t random = 99;
    owned_world late = new_world(true, 10 * MS);
    for (int i = 0; i < 20000; i++) {
        random = random * 1664525U + 1013904223U;
        uint32_t r = random >> 8;
        uint32_t position = r % 3 == 0 ? r / 4 % 6 : r % 50 == 1 ? r : r / 16 % 10000;
        if (r / 64 % 4 == 0)
            harpe_anticipation_end(late.anticipation, late.now_ns - (int64_t)(r % 5) * MS);
        else
            harpe_anticipation_begin(late.anticipation, r / 4096 % 2, position, r / 8 % 2000,
                                     late.now_ns + ((int64_t)(r % 7) - 3) * MS);
        late.now_ns += (int64_t)(r % 3) * MS;
        harpe_anticipated next =
            harpe_anticipation_next(late.anticipation, late.now_ns, switch_time, &late);
        if (next.mhz != 0) harpe_anticipation_asked(late.anticipation, &next);
    }
}
