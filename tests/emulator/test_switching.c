/* SPDX-License-Identifier: Apache-2.0 */
/* Late changes of clock, compared with a simulation in small steps that knows nothing of the
 * emulator's formulas: a queue of requests, one transition after another, work and energy summed
 * up step by step. */
#include "one_gpu.h"

#include <math.h>

#include "draws.h"
#include "switching.h"

#define MS INT64_C(1000000)
#define START_NS (INT64_C(1000) * 1000 * MS)

static uint64_t random_state;

static unsigned int pick(unsigned int count) {
    return (unsigned int)(emulator_random(&random_state) % count);
}

/* ---- The GPU under test ---------------------------------------------------------------------- */

static void start(gpu *g, const char *model) {
    make_gpu(g, model_of(model));
    g->effects.seed = 1;
    emulator_state_start(&g->state, &g->chip, START_NS);
    g->state.is_waiting = true;
}

static void set_latency(gpu *g, uint32_t at, double mhz, double latency_s) {
    g->effects.latency[at].clock_mhz = mhz;
    g->effects.latency[at].latency_s = latency_s;
    g->effects.latency_count = at + 1;
}

static uint32_t clock_now(const gpu *g) { return operate(g).graphics_mhz; }

static void ask(gpu *g, uint32_t mhz) {
    (void)emulator_request_clocks(&g->state, &g->chip, (emulator_clock_range){mhz, mhz},
                                  g->state.now_ns);
}

/* ---- The simulation in steps ----------------------------------------------------------------- */

enum { REQUEST_MAX = 64, LOWEST_MHZ = 210, HIGHEST_MHZ = 1410 };

typedef struct request {
    int64_t called_ms;
    uint32_t mhz;
} request;

typedef struct stepped {
    uint32_t clock_mhz;
    int64_t finished_ms; /* of the work; -1: not finished */
    double energy_j;
    int transitions;
} stepped;

typedef struct timing {
    int64_t call_ms, low_ms, high_ms; /* latency of the lowest and the highest clock */
} timing;

static int64_t latency_ms(const timing *t, uint32_t mhz) {
    double share = (double)(mhz - LOWEST_MHZ) / (HIGHEST_MHZ - LOWEST_MHZ);
    return llround((double)t->low_ms + share * (double)(t->high_ms - t->low_ms));
}

/* Steps of 1 ms. All times of the test are whole ms, so the steps make no error. The power at a
 * clock comes from a GPU without effects. */
static stepped simulate(const timing *t, const request *requests, int count, double work_ms,
                        int64_t until_ms) {
    static gpu ideal;
    stepped s = {.clock_mhz = HIGHEST_MHZ, .finished_ms = -1};
    uint32_t progress_mhz = 0, waiting_mhz = 0, wanted_mhz = 0;
    int64_t over_ms = 0;
    int next = 0;
    double left = work_ms * HIGHEST_MHZ;
    start(&ideal, "A100");
    put_work(&ideal, 1, 1);
    for (int64_t ms = 0; ms < until_ms; ms++) {
        while (true) {
            if (progress_mhz && over_ms == ms) {
                s.clock_mhz = progress_mhz;
                s.transitions++;
                progress_mhz = waiting_mhz;
                waiting_mhz = 0;
                if (progress_mhz) over_ms = ms + latency_ms(t, progress_mhz);
                if (progress_mhz && over_ms == ms) continue;
            }
            break;
        }
        while (next < count && requests[next].called_ms + t->call_ms == ms) {
            uint32_t mhz = requests[next++].mhz;
            uint32_t last = progress_mhz ? progress_mhz : wanted_mhz;
            wanted_mhz = mhz;
            waiting_mhz = 0;
            if (mhz == last) continue;
            if (progress_mhz) {
                waiting_mhz = mhz;
            } else {
                progress_mhz = mhz;
                over_ms = ms + latency_ms(t, mhz);
            }
        }
        ideal.state.graphics_lock = (emulator_clock_range){s.clock_mhz, s.clock_mhz};
        ideal.state.work[0].is_done = left <= 0;
        s.energy_j += 1e-3 * emulator_operate(&ideal.state, &ideal.chip).power_w;
        if (left > 0) {
            left -= s.clock_mhz;
            if (left <= 0) s.finished_ms = ms + 1;
        }
    }
    return s;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

TEST(old_clock_holds_until_the_transition) {
    gpu g;
    start(&g, "A100");
    g.effects.switch_call_s = 0.004;
    set_latency(&g, 0, 0, 0.016);
    put_work(&g, 10, 1);
    ask(&g, 705);
    emulator_advance(&g.state, &g.chip, START_NS + 20 * MS - 1);
    assert_int_equal(clock_now(&g), 1410);
    emulator_advance(&g.state, &g.chip, START_NS + 20 * MS);
    assert_int_equal(clock_now(&g), 705);
    assert_true(fabs(g.state.work[0].remaining - (1 - 0.020 / 10)) < 1e-12);
    emulator_advance(&g.state, &g.chip, START_NS + 40 * MS);
    assert_true(fabs(g.state.work[0].remaining - (1 - 0.020 / 10 - 0.010 / 10)) < 1e-12);
}

TEST(a_request_that_changes_nothing_makes_no_transition) {
    gpu g;
    start(&g, "A100");
    set_latency(&g, 0, 0, 0.01);
    ask(&g, 900);
    ask(&g, 900);
    assert_int_equal(g.state.change_count, 1);
    emulator_advance(&g.state, &g.chip, START_NS + 100 * MS);
    ask(&g, 900);
    assert_true(emulator_next_change_ns(&g.state) == INT64_MAX);
}

TEST(faster_requests_are_merged) {
    gpu g;
    start(&g, "A100");
    set_latency(&g, 0, 0, 0.05);
    for (int i = 0; i < 20; i++) { /* every ms another clock */
        emulator_advance(&g.state, &g.chip, START_NS + i * MS);
        ask(&g, 300 + 15 * (uint32_t)i);
    }
    emulator_advance(&g.state, &g.chip, START_NS + 50 * MS);
    assert_int_equal(clock_now(&g), 300); /* the first was in progress */
    emulator_advance(&g.state, &g.chip, START_NS + 100 * MS);
    assert_int_equal(clock_now(&g), 300 + 15 * 19);
    assert_true(emulator_next_change_ns(&g.state) == INT64_MAX);
}

/* Returns requests at increasing times, often close together, often the same clock again. */
static int make_requests(request *requests, int64_t until_ms) {
    static const unsigned int gaps_ms[] = {1, 3, 20, 150, 400};
    int count = 0;
    int64_t ms = pick(50);
    while (count < REQUEST_MAX && ms < until_ms) {
        requests[count++] = (request){ms, LOWEST_MHZ + 15 * 20 * pick(5)};
        ms += 1 + pick(gaps_ms[pick(5)]);
    }
    return count;
}

static void run_trial(void) {
    static const unsigned int scales_ms[] = {1, 2, 8, 75};
    request requests[REQUEST_MAX];
    int64_t until_ms = 3000;
    unsigned int scale = scales_ms[pick(4)];
    /* Four clocks apart, so that the latency of each clock is a whole number of ms. */
    timing t = {.call_ms = pick(2) * pick(20),
                .low_ms = 4 * (1 + pick(scale)),
                .high_ms = 4 * (1 + pick(scale))};
    int count = make_requests(requests, 2000);
    double work_ms = 1 + pick(1500);
    stepped expected = simulate(&t, requests, count, work_ms, until_ms);
    gpu g;
    start(&g, "A100");
    g.effects.switch_call_s = 1e-3 * (double)t.call_ms;
    set_latency(&g, 0, LOWEST_MHZ, 1e-3 * (double)t.low_ms);
    set_latency(&g, 1, HIGHEST_MHZ, 1e-3 * (double)t.high_ms);
    emulator_work *work = put_work(&g, work_ms * 1e-3, 1);
    for (int i = 0; i < count; i++) {
        /* Readers at random times must change nothing. */
        for (unsigned int looks = pick(3); looks > 0; looks--)
            emulator_advance(&g.state, &g.chip,
                             START_NS +
                                 (int64_t)pick((unsigned int)requests[i].called_ms + 1) * MS);
        emulator_advance(&g.state, &g.chip, START_NS + requests[i].called_ms * MS);
        ask(&g, requests[i].mhz);
    }
    emulator_advance(&g.state, &g.chip, START_NS + until_ms * MS);
    assert_int_equal(clock_now(&g), expected.clock_mhz);
    if (expected.finished_ms < 0) {
        assert_false(work->is_done);
        return;
    }
    assert_true(work->is_done);
    /* The simulation notices the end at a whole ms. */
    double finished_ms = 1e-6 * (double)(work->finished_ns - START_NS);
    assert_true(finished_ms > (double)expected.finished_ms - 1.001);
    assert_true(finished_ms < (double)expected.finished_ms + 0.001);
    assert_true(fabs(g.state.energy_mj * 1e-3 - expected.energy_j) < 0.4); /* one ms of 388 W */
}

TEST(state_equals_a_simulation_in_steps) {
    random_state = 11;
    for (int i = 0; i < 400; i++)
        run_trial();
}

TEST(latency_is_interpolated_between_targets) {
    static const struct {
        uint32_t mhz;
        int64_t after_ms;
    } cases[] = {{210, 30}, {405, 30}, {600, 25}, {795, 20}, {1005, 20}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gpu g;
        start(&g, "A100");
        set_latency(&g, 0, 405, 0.030);
        set_latency(&g, 1, 795, 0.020);
        ask(&g, cases[i].mhz);
        assert_int_equal(emulator_next_change_ns(&g.state), START_NS + cases[i].after_ms * MS);
    }
}

/* A process may die at any moment. Nothing but the state is needed to continue. */
TEST(a_pending_transition_is_part_of_the_state) {
    gpu g;
    start(&g, "H100");
    g.effects.switch_call_s = 0.01;
    set_latency(&g, 0, 0, 0.1);
    put_work(&g, 5, 1);
    ask(&g, 990);
    emulator_state copy = g.state;
    for (int ms = 1; ms <= 300; ms++)
        emulator_advance(&g.state, &g.chip, START_NS + ms * MS);
    emulator_advance(&copy, &g.chip, START_NS + 300 * MS);
    assert_true(fabs(copy.energy_mj - g.state.energy_mj) < 1e-6 * copy.energy_mj);
    assert_true(fabs(copy.work[0].remaining - g.state.work[0].remaining) < 1e-12);
    assert_int_equal(clock_now(&g), 990);
}

TEST(a_rewind_restores_the_older_clock) {
    gpu g;
    start(&g, "A100");
    set_latency(&g, 0, 0, 0.02);
    ask(&g, 600);
    emulator_advance(&g.state, &g.chip, START_NS + 50 * MS);
    assert_int_equal(clock_now(&g), 600);
    emulator_start_enqueued(&g.state, &g.chip, START_NS + 10 * MS);
    emulator_work *work = put_work(&g, 0.030, 1);
    work->is_enqueued = true;
    assert_int_equal(clock_now(&g), 1410);
    emulator_advance(&g.state, &g.chip, START_NS + 100 * MS);
    /* 10 ms at 1410 MHz, then 20 ms of work at 600 MHz */
    assert_true(work->is_done);
    assert_true(llabs(work->finished_ns - (START_NS + 20 * MS + 20 * MS * 1410 / 600)) < 1000);
}

/* A host that was late says when it would have asked. */
TEST(a_late_request_changes_the_work_in_flight) {
    for (int is_done = 0; is_done < 2; is_done++) {
        gpu g;
        start(&g, "A100");
        set_latency(&g, 0, 0, 0.02);
        emulator_work *work = put_work(&g, 0.1, 1);
        work->is_enqueued = true;
        emulator_advance(&g.state, &g.chip, START_NS + (is_done ? 150 : 70) * MS);
        assert_int_equal(work->is_done, is_done);
        (void)emulator_request_clocks(&g.state, &g.chip, (emulator_clock_range){705, 705},
                                      START_NS + 10 * MS);
        emulator_advance(&g.state, &g.chip, START_NS + 400 * MS);
        /* 30 ms at 1410 MHz, then 70 ms of work at half of the clock */
        assert_true(work->is_done);
        assert_true(llabs(work->finished_ns - (START_NS + 170 * MS)) < 1000);
    }
}

TEST(many_changes_are_forgotten_in_order) {
    gpu g;
    start(&g, "A100");
    set_latency(&g, 0, 0, 0.001);
    for (int i = 0; i < 10 * EMULATOR_CHANGE_MAX; i++) {
        ask(&g, i % 2 ? 300 : 600);
        emulator_advance(&g.state, &g.chip, g.state.now_ns + 2 * MS);
        assert_int_equal(clock_now(&g), i % 2 ? 300 : 600);
    }
    assert_true(g.state.change_count <= EMULATOR_CHANGE_MAX);
    /* Before the oldest change that is kept, the one before it holds. */
    uint32_t oldest_mhz = g.state.change[0].range.maximum_mhz;
    assert_int_equal(emulator_lock_in_force(&g.state, START_NS).maximum_mhz, 900 - oldest_mhz);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

TEST(latency_has_the_median_the_spread_and_the_tail) {
    enum { DRAWS = 20000 };
    static double latency_s[DRAWS];
    gpu g;
    start(&g, "A100");
    set_latency(&g, 0, 0, 0.01);
    g.effects.switch_spread = 0.1;
    g.effects.switch_tail = (emulator_tail){0.05, 10};
    for (int i = 0; i < DRAWS; i++) {
        ask(&g, i % 2 ? 300 : 600);
        int64_t at_ns = emulator_next_change_ns(&g.state);
        latency_s[i] = 1e-9 * (double)(at_ns - g.state.now_ns);
        emulator_advance(&g.state, &g.chip, at_ns);
    }
    qsort(latency_s, DRAWS, sizeof latency_s[0], by_value);
    assert_true(fabs(latency_s[DRAWS / 2] / 0.01 - 1) < 0.02);
    double lower = latency_s[DRAWS * 16 / 100], upper = latency_s[DRAWS * 80 / 100];
    assert_true(lower > 0.0087 && lower < 0.0093);
    assert_true(upper > 0.0105 && upper < 0.0118);
    int above = 0; /* beyond 3.5 deviations only the tail remains */
    while (above < DRAWS && latency_s[DRAWS - 1 - above] > 0.01 * exp(0.35))
        above++;
    assert_true(above > DRAWS * 0.045 * 0.9 && above < DRAWS * 0.05 * 1.1);
    assert_true(latency_s[DRAWS - 1] < 0.1 * exp(0.35) && latency_s[DRAWS - 1] > 0.08);
}

TEST(draws_depend_on_seed_gpu_and_number) {
    double first = emulator_draw_deviation(1, 0, EMULATOR_DRAW_LATENCY, 0);
    assert_true(first == emulator_draw_deviation(1, 0, EMULATOR_DRAW_LATENCY, 0));
    assert_true(first != emulator_draw_deviation(2, 0, EMULATOR_DRAW_LATENCY, 0));
    assert_true(first != emulator_draw_deviation(1, 1, EMULATOR_DRAW_LATENCY, 0));
    assert_true(first != emulator_draw_deviation(1, 0, EMULATOR_DRAW_CALL, 0));
    assert_true(first != emulator_draw_deviation(1, 0, EMULATOR_DRAW_LATENCY, 1));
}
