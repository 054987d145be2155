/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the energy curve of a counter that changes at regular intervals. The thread that reads the
 * counter may be stopped at any time. The tests check how many moments of changes the curve knows,
 * how exactly it knows them, and how much time the readings take. */
#include "test.h"

#include "client/profiler_internal.h"

#define US INT64_C(1000)
#define MS INT64_C(1000000)

/* A counter of 100 W and the thread that reads it. */
typedef struct reader {
    harpe_energy_curve curve;
    int64_t counter_ns, reading_ns, period_ns;
    int64_t now_ns;
    int64_t since_ns, base; /* the counter has changed `base` times at `since_ns` */
    int64_t in_readings_ns;
    bool has_fast_readings; /* each 20th reading is fast, because the driver knows the value */
    unsigned readings;
    int64_t jitter_ns; /* each change is late by up to this time */
} reader;

static int64_t changes(const reader *self) {
    int64_t since_ns = self->now_ns - self->since_ns, count = since_ns / self->counter_ns;
    int64_t late_ns = self->jitter_ns * (count * 7 % 11) / 10;
    return self->base + count - (count > 0 && since_ns % self->counter_ns < late_ns);
}

static void read_counter(reader *self) {
    int64_t began_ns = self->now_ns;
    bool is_fast = self->readings++ % 20 == 0 && self->has_fast_readings;
    self->now_ns += (is_fast ? 20 * US : self->reading_ns) / 2;
    uint64_t counter_mj = (uint64_t)(changes(self) * 10000);
    self->now_ns += (is_fast ? 20 * US : self->reading_ns) / 2;
    self->in_readings_ns += self->now_ns - began_ns;
    harpe_energy_curve_add_counter(&self->curve, began_ns, self->now_ns, counter_mj);
    int64_t delay_ns = harpe_energy_curve_delay_ns(&self->curve, self->now_ns, self->period_ns);
    assert_in_range(delay_ns, 1, 1100 * MS);
    self->now_ns += delay_ns > 100 * US ? delay_ns : 100 * US;
}

static void run(reader *self, int64_t time_ns) {
    for (int64_t end_ns = self->now_ns + time_ns; self->now_ns < end_ns;)
        read_counter(self);
}

/* Changes the interval of the counter. The new interval begins now. */
static void change_rhythm(reader *self, int64_t counter_ns) {
    self->base = changes(self);
    self->since_ns = self->now_ns;
    self->counter_ns = counter_ns;
}

typedef struct finding {
    double found;        /* share of the changes whose moments are known within the blur */
    double reading_time; /* share of the time that readings took */
} finding;

/* Runs the reader for `count` changes. Checks that every point of the curve is the moment of a
 * change, within the point's blur. */
static finding watch(reader *self, int64_t count, int64_t blur_ns) {
    int64_t start_ns = self->now_ns, found = 0;
    self->in_readings_ns = 0;
    run(self, count * self->counter_ns);
    for (size_t i = self->curve.count; i > 0; i--) {
        const harpe_curve_point *point = &self->curve.points[i - 1];
        if (point->time_ns < start_ns) break;
        assert_false(point->follows_gap);
        int64_t moment_ns = self->since_ns +
                            ((int64_t)(point->energy_j / 10 + 0.5) - self->base) * self->counter_ns;
        if (point->time_ns > self->since_ns + self->counter_ns)
            assert_true(llabs(moment_ns - point->time_ns) <= point->blur_ns);
        found += point->blur_ns <= blur_ns;
    }
    return (finding){(double)found / (double)count,
                     (double)self->in_readings_ns / (double)(self->now_ns - start_ns)};
}

static reader new_reader(int64_t counter_ns, int64_t reading_ns, int64_t period_ns) {
    return (reader){.counter_ns = counter_ns, .reading_ns = reading_ns, .period_ns = period_ns};
}

static void clear_reader(reader *self) { harpe_energy_curve_clear(&self->curve); }
#define owned_reader AT_END(clear_reader) reader

TEST(fast_readings_find_every_change) {
    static const int64_t counters_ns[] = {10 * MS, 20 * MS, 50 * MS, 100 * MS};
    for (size_t i = 0; i < 4; i++) {
        owned_reader self = new_reader(counters_ns[i], 20 * US, 10 * MS);
        run(&self, 3000 * MS);
        finding got = watch(&self, 200, MS);
        assert_true(got.found > 0.97 && got.found < 1.03);
        assert_true(got.reading_time < 0.01);
    }
}

/* A counter whose rhythm is certain is read only around its changes, and from earlier on if its
 * changes are not regular. */
TEST(few_readings_find_a_change) {
    static const struct {
        int64_t counter_ns, jitter_ns;
        double readings;
    } cases[] = {{50 * MS, 0, 5.6}, {100 * MS, 0, 5.6}, {100 * MS, 4 * MS, 11}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        owned_reader self = new_reader(cases[i].counter_ns, 20 * US, 10 * MS);
        self.jitter_ns = cases[i].jitter_ns;
        run(&self, 3000 * MS);
        size_t before = self.curve.count;
        self.readings = 0;
        run(&self, 200 * cases[i].counter_ns);
        size_t exact = 0;
        for (size_t k = before; k < self.curve.count; k++)
            exact += self.curve.points[k].blur_ns <= MS;
        if (exact < 195 || self.readings > 200 * cases[i].readings)
            fail_msg("case %zu: %zu exact of 200, %u readings", i, exact, self.readings);
    }
}

/* Readings take as long as on an H100, or longer. In some cases the period is short. Readings take
 * about 5 % of the time; if one takes 15 ms, they take up to 10 %. */
TEST(slow_readings_take_little_time) {
    static const struct {
        int64_t counter_ns, reading_ns, period_ns;
        double found, reading_time;
    } cases[] = {
        {100 * MS, 3 * MS, 10 * MS, 0.30, 0.06},   {100 * MS, 8 * MS, 10 * MS, 0.12, 0.06},
        {100 * MS, 15 * MS, 10 * MS, 0.10, 0.10},  {100 * MS, 3 * MS, 1 * MS, 0.30, 0.06},
        {100 * MS, 1 * MS, 10 * MS, 0.90, 0.06},   {50 * MS, 2 * MS, 10 * MS, 0.20, 0.06},
        {100 * MS, 600 * US, 10 * MS, 0.90, 0.06}, {333 * MS, 3 * MS, 10 * MS, 0.90, 0.06},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        owned_reader self =
            new_reader(cases[i].counter_ns, cases[i].reading_ns, cases[i].period_ns);
        run(&self, 5000 * MS);
        finding got = watch(&self, 500, 2 * cases[i].reading_ns + cases[i].period_ns / 10);
        if (got.found < cases[i].found || got.reading_time > cases[i].reading_time)
            fail_msg("case %zu: found %.3f, reading time %.3f", i, got.found, got.reading_time);
    }
}

/* The counter changes too often for slow readings. The curve still gets points, with a large blur.
 */
TEST(frequent_changes_of_a_slow_counter_are_not_looked_for) {
    static const int64_t readings_ns[] = {3 * MS, 13 * MS};
    for (size_t i = 0; i < 2; i++) {
        owned_reader self = new_reader(20 * MS, readings_ns[i], 10 * MS);
        run(&self, 5000 * MS);
        size_t before = self.curve.count;
        finding got = watch(&self, 1000, 200 * MS);
        if (got.reading_time > (i == 0 ? 0.06 : 0.13))
            fail_msg("%zu: reading time %.3f", i, got.reading_time);
        assert_in_range(self.curve.count - before, 150, 1000);
    }
}

TEST(a_stop_at_the_beginning_is_forgotten) {
    for (int64_t stop_ns = 50 * MS; stop_ns < 900 * MS; stop_ns += 50 * MS) {
        owned_reader self = new_reader(100 * MS, 3 * MS, 10 * MS);
        while (self.curve.count < 1)
            read_counter(&self);
        self.now_ns += stop_ns;
        run(&self, 5000 * MS);
        finding got = watch(&self, 300, 7 * MS);
        assert_true(got.found > 0.3 && got.reading_time < 0.06);
    }
}

/* The thread is stopped 200 times. Afterwards the curve finds as many changes as without stops. */
TEST(stops_do_not_last) {
    static const int64_t readings_ns[] = {20 * US, 3 * MS};
    for (size_t i = 0; i < 2; i++) {
        owned_reader self = new_reader(100 * MS, readings_ns[i], 10 * MS);
        run(&self, 3000 * MS);
        for (int k = 0; k < 200; k++) {
            self.now_ns += (7 + 37 * k) % 700 * MS;
            run(&self, 1000 * MS);
        }
        finding got = watch(&self, 300, 7 * MS);
        assert_true(got.found > (i == 0 ? 0.97 : 0.3));
        assert_true(got.reading_time < 0.06);
    }
}

/* One stop of the thread does not make the curve forget the rhythm. */
TEST(a_late_look_is_made_up_for) {
    for (int64_t stop_ns = 10 * MS; stop_ns < 700 * MS; stop_ns += 30 * MS) {
        owned_reader self = new_reader(100 * MS, 3 * MS, 10 * MS);
        run(&self, 5000 * MS);
        assert_int_equal(self.curve.rhythm.mode, HARPE_RHYTHM_SOME);
        self.now_ns += stop_ns;
        size_t intervals = self.curve.rhythm.interval_count, points = self.curve.count;
        while (self.curve.count < points + 2)
            read_counter(&self);
        assert_true(self.curve.rhythm.interval_count > intervals);
    }
}

TEST(another_rhythm_is_learnt) {
    static const int64_t counters_ns[] = {60 * MS, 170 * MS, 100 * MS, 55 * MS, 300 * MS};
    static const int64_t readings_ns[] = {20 * US, 3 * MS};
    for (size_t k = 0; k < 2; k++) {
        owned_reader self = new_reader(100 * MS, readings_ns[k], 10 * MS);
        run(&self, 5000 * MS);
        for (size_t i = 0; i < sizeof counters_ns / sizeof *counters_ns; i++) {
            change_rhythm(&self, counters_ns[i]);
            run(&self, 8000 * MS);
            finding got = watch(&self, 300, 7 * MS);
            /* The curve may find only each second change of 55 ms, so it has fewer points. */
            if (got.found < (k == 0 ? 0.97 : 0.15) || got.reading_time > 0.07)
                fail_msg("to %lld ms: found %.3f, reading time %.3f",
                         (long long)(counters_ns[i] / MS), got.found, got.reading_time);
        }
    }
}

TEST(some_fast_readings_change_nothing) {
    owned_reader self = new_reader(100 * MS, 3 * MS, 10 * MS);
    self.has_fast_readings = true;
    run(&self, 5000 * MS);
    finding got = watch(&self, 300, 7 * MS);
    assert_true(got.found > 0.3 && got.reading_time < 0.06);
}
