/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs change their clocks late. The tests compare the savings that Perseus reports with the
 * true savings. */
#include "test.h"

#include "server/explored_job.h"

enum { LEARNING_ROUNDS_MAX = 80, PLANNED_ROUNDS = 10 };

/* saved_j, saved_s: of the iterations that did not run at the highest clocks. highest_j: what all
 * iterations would need at the highest clocks. */
typedef struct sums {
    double saved_j, saved_s, highest_j;
} sums;

static void run_round(explored_job *s, sums *into) {
    explored_next(s);
    double n = s->iterations, outside_j = s->blocking_power_w * s->outside_time_s * s->pp;
    into->highest_j += n * (s->highest.energy_j + outside_j);
    if (!explored_is_highest(s)) {
        into->saved_j += n * (s->highest.energy_j - s->ran.energy_j);
        into->saved_s += n * (s->highest.time_s - s->ran.time_s);
    }
    explored_observe(s);
}

TEST(a_claim_is_true_if_clocks_are_late) {
    static const double latencies_s[] = {0.08, 0.15};
    int jobs = few_trials(4);
    for (int i = 0; i < jobs; i++) {
        explored_job *s = explored_sized((uint64_t)(3000 + i), 3, all_trials() ? 6 : 3);
        sums real = {0};
        explored_make_late(s, latencies_s[i % 2]);
        explored_start(s, 4, "");
        for (int k = 0; !is_in_phase(s, "plan") && k < LEARNING_ROUNDS_MAX; k++)
            run_round(s, &real);
        for (int k = 0; k < PLANNED_ROUNDS; k++)
            run_round(s, &real);
        double energy_j = number_of(s, "saved", "energy"),
               within_j = number_of(s, "saved", "energy_uncertainty");
        double time_s = number_of(s, "saved", "time"),
               within_s = number_of(s, "saved", "time_uncertainty");
        print_message(
            "%s: %.2f %% saved; claimed %.2f %% +- %.2f %%; time %.3g s; %.3g +- %.2g s\n",
            s->words, 100 * real.saved_j / real.highest_j, 100 * energy_j / real.highest_j,
            100 * within_j / real.highest_j, real.saved_s, -time_s, within_s);
        assert_true(isfinite(within_j) && isfinite(within_s));
        /* One of twenty claims may be outside of its interval. */
        assert_true(fabs(energy_j - real.saved_j) <= 1.5 * within_j);
        assert_true(fabs(time_s + real.saved_s) <= 1.5 * within_s);
        explored_free(s);
    }
}

int main(void) { return run_listed_tests(); }
