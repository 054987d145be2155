/* SPDX-License-Identifier: Apache-2.0 */
/* Fitted to 20 programs that were measured on an A100 at 10 or 11 clocks, with a power limit of
 * 250 W: EnergAIzer, ISPASS 2026, artifact (MIT licence), file energaizer_dvfs.csv. A guess is the
 * median of its programs; low and high enclose all of them and two points more. `bench/tune guess`
 * leaves each program out in turn. */
#include "tune/guess.h"

/* Above this share of the limit, the limit holds the clock. */
static const double limited_share = 0.95;

harpe_tune_guess harpe_tune_guess_saving(double power_share) {
    static const harpe_tune_guess limited = {0.010, 0, 0.065};   /* 14 programs */
    static const harpe_tune_guess unlimited = {0.363, 0, 0.497}; /* 6, of which one saves nothing */
    return power_share >= limited_share ? limited : unlimited;
}
