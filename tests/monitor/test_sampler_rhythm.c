/* SPDX-License-Identifier: Apache-2.0 */
/* The times of the sampler's samples, without a thread. The test replaces the ticker: it asks each
 * tick for its pause and advances a scripted clock. */
#include "test.h"

#include "base/manual_clock.h"
#include "monitor/monitor.h"
#include "monitor/monitor_state.h"
#include "scripted_source.h"

static const int64_t ms = 1000000;

/* ---- A ticker that ticks when the test says so ----------------------------------------------- */

struct harpe_ticker {
    int64_t (*tick)(void *user);
    void *user;
};

static harpe_ticker ticker;

harpe_status harpe_ticker_start(int64_t (*tick)(void *user), void *user, harpe_ticker **out,
                                harpe_error *error) {
    (void)error;
    ticker = (harpe_ticker){tick, user};
    *out = &ticker;
    return HARPE_OK;
}

void harpe_ticker_stop(harpe_ticker *stopped) { (void)stopped; }

bool harpe_ticker_is_ours(const harpe_ticker *asked) { return asked != NULL; }

/* ---- Rhythm ---------------------------------------------------------------------------------- */

/* 30 ms of work at 200 W in every 60 ms, like a training step. */
static uint32_t power_mw_at(int64_t time_ns) { return time_ns % (60 * ms) < 30 * ms ? 200000 : 0; }

TEST(samples_have_no_rhythm_that_a_training_step_could_share) {
    enum { READS = 4000 };
    scripted script = {.count = 1, .power_mw = {200000}};
    harpe_energy_source source = scripted_source(&script);
    harpe_sampler *sampler = NULL;
    harpe_power_point start = {0};
    harpe_power_point end = {0};
    int gpu = 0;
    int short_count = 0;
    int long_count = 0;
    double energy_j = 0;
    assert_int_equal(harpe_sampler_new(&source, &gpu, 1, 0.02, &sampler, NULL), HARPE_OK);
    for (int i = 0; i < READS; i++) {
        int64_t pause_ns = ticker.tick(ticker.user);
        assert_in_range(pause_ns, 10 * ms, 30 * ms);
        if (i < 40) {
            short_count += pause_ns < 17 * ms;
            long_count += pause_ns > 23 * ms;
        }
        script.now_ns += pause_ns;
        manual_clock_pass(pause_ns);
        script.power_mw[0] = power_mw_at(script.now_ns);
        if (i == 0)
            assert_int_equal(harpe_sampler_at(sampler, 0, script.now_ns, &start, NULL), HARPE_OK);
    }
    assert_in_range(short_count, 5, 25);
    assert_in_range(long_count, 5, 25);
    /* Samples every 20 ms always hit the same three points of a step: 9 % of the energy was
     * missing. */
    assert_int_equal(harpe_sampler_at(sampler, 0, script.now_ns, &end, NULL), HARPE_OK);
    assert_int_equal(harpe_sampler_energy(sampler, 0, &start, &end, &energy_j, NULL), HARPE_OK);
    double time_s = (double)(end.time_ns - start.time_ns) * 1e-9;
    assert_close(energy_j / time_s, 100, 2);
    harpe_sampler_free(sampler);
}
