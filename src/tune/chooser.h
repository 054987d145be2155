/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the setting of a program's GPUs: the clock, the power limit, or both. It compares
 * settings with the highest one in turns (A/B/A), ends a trial that is too slow at once, and
 * settles on the setting that is best by its aim among those that were measured. It has no device
 * and no clock of its own: the caller sets what it asks for, measures, and tells the result. The
 * same slices give the same choice. Not thread-safe. Private to src/tune. */
#ifndef HARPE_TUNE_CHOOSER_H
#define HARPE_TUNE_CHOOSER_H

#include <harpe/status.h>
#include <harpe/tune.h>

#include "tune/search.h"

/* What was measured while one setting held. If work is counted in whole units, a slice begins and
 * ends when the count changes, so that the time of a unit is exact. A slice may begin with the
 * change of the setting; `late_s` is then the time until it is in force, which is taken out. A
 * slice that ends early does not wait for the count: `rest_s` is the time since its last change. */
typedef struct harpe_tune_slice {
    double work;           /* units of work (steps, tokens) that were finished */
    double time_s;         /* from the change of the count that began the slice to its end */
    double energy_j;       /* of all GPUs, in the same time */
    double late_s, rest_s; /* parts of time_s */
    double grain;          /* work by which the count usually rises at once: 1 for steps */
    double blur_s;         /* the longest time from a rise of the count to the look that sees it */
} harpe_tune_slice;

typedef struct harpe_tune_order {
    harpe_tune_setting setting;
    double time_s; /* measure for at least this long, and at least `work` units */
    double work;
} harpe_tune_order;

typedef struct harpe_chooser harpe_chooser;

/* Fails with HARPE_INVALID_ARGUMENT if a member of the options is out of its range. Free with
 * harpe_chooser_free. */
harpe_status harpe_chooser_new(const harpe_chooser_options *options, harpe_chooser **out,
                               harpe_error *error);
void harpe_chooser_free(harpe_chooser *chooser);

/* Returns the next slice to measure. */
harpe_tune_order harpe_chooser_next(const harpe_chooser *chooser);
/* While a slice runs: returns true if it must end now, because it is slower than allowed or because
 * the program works at another rate than it did. In
 * `so_far`, `time_s` is the time until now, and `rest_s` that since the last change of the count.
 * The caller then ends the slice at once and calls harpe_chooser_take with what it has; the work
 * may be 0. */
bool harpe_chooser_is_too_slow(const harpe_chooser *chooser, const harpe_tune_slice *so_far);
/* The slice is over. A slice that is shorter than the order, or has less work, has ended early. */
void harpe_chooser_take(harpe_chooser *chooser, const harpe_tune_slice *taken);
/* The slice cannot be used, because the program paused or a counter was lost. `why` becomes the
 * report's reason if no slice can be used, and outlives the chooser. */
void harpe_chooser_drop(harpe_chooser *chooser, const char *why);

/* Returns the highest setting. */
harpe_tune_setting harpe_chooser_highest(const harpe_chooser *chooser);
/* Writes to `report` what the chooser knows of the phase of the program that runs now: all members
 * but those of the meter, of what is set now, and of the whole run. The chosen setting is the
 * highest one until the first trial succeeds. */
void harpe_chooser_report(const harpe_chooser *chooser, harpe_tuning_report *report);

/* Returns the choice for `harpe_chooser_options.saved` of a later run. Its ratios are 0 until the
 * search has settled. */
harpe_tune_saved harpe_chooser_save(const harpe_chooser *chooser);

/* All members are shares of the energy at the highest clock. For 19 of 20 measured programs, the
 * saving is between `low` and `high`. */
typedef struct harpe_tune_guess {
    double saved, low, high;
} harpe_tune_guess;

/* Guesses how much energy a program saves with at most 2 % slowdown. `power_share` is the power
 * that the GPU draws at its highest clock while the program works, divided by its power limit. A
 * program that keeps the GPU at its power limit is bound by computation, and saves little. Other
 * programs wait for memory or for launches of kernels. Most of them save much; the power does not
 * show which of them do. The guess differs from the measured saving by 7 percentage points on
 * average. */
harpe_tune_guess harpe_tune_guess_saving(double power_share);

#endif
