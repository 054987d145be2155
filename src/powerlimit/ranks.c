/* SPDX-License-Identifier: Apache-2.0 */
/* Meetings of all ranks of a job: all-reduces that every rank makes in the same order, even after a
 * failure, so that all ranks make the same decision and no rank waits forever. A job of one process
 * has no meetings. This file does not use the device. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "powerlimit/optimizer_internal.h"

/* ---- Meetings of all ranks ------------------------------------------------------------------- */

static harpe_status reduce(const harpe_power_limit_options *options, double *values, size_t count,
                           bool maximum, harpe_error *error) {
    if (!options->all_reduce) return HARPE_OK;
    return options->all_reduce(options->all_reduce_user, values, count, maximum, error);
}

/* Sets *agree to true if all ranks have the same value, otherwise to false. Exact for whole numbers
 * below 2^53. */
static harpe_status all_agree(const harpe_power_limit_options *options, double value, bool *agree,
                              harpe_error *error) {
    double ends[2] = {value, -value};
    harpe_status status = reduce(options, ends, 2, true, error);
    if (status == HARPE_OK) *agree = ends[0] == -ends[1];
    return status;
}

/* Combines this rank's measurement with those of the other ranks. Returns false if the optimizer
 * has given up. */
bool harpe_ranks_share_measurement(harpe_power_limit_optimizer *optimizer,
                                   harpe_power_limit_measurement *one) {
    double sums[2] = {optimizer->failed_here ? 0 : one->energy_j, optimizer->failed_here};
    /* Time, and the limits in force: the highest, and the lowest with a minus sign. */
    double most[3] = {optimizer->failed_here ? 0 : one->time_s, one->power_limit_w,
                      -one->power_limit_w};
    harpe_error error;
    if (reduce(&optimizer->options, sums, 2, false, &error) != HARPE_OK ||
        reduce(&optimizer->options, most, 3, true, &error) != HARPE_OK) {
        harpe_optimizer_give_up(optimizer, error.message);
        return false;
    }
    if (sums[1] != 0) {
        harpe_optimizer_give_up(optimizer, "it failed on another rank, whose log says why");
        return false;
    }
    if (most[1] != -most[2]) {
        harpe_optimizer_give_up(optimizer,
                                "the drivers of the ranks round a power limit differently");
        return false;
    }
    double time_s = most[0];
    if (!(sums[0] > 0) || !(time_s > 0) || !isfinite(sums[0]) || !isfinite(time_s)) {
        harpe_optimizer_give_up(optimizer, "the all-reduce returned a value that cannot be true");
        return false;
    }
    one->energy_j = sums[0];
    one->time_s = time_s;
    return true;
}

/* Tells the other ranks whether this rank has failed since the last meeting, and learns whether one
 * of them has failed. */
void harpe_ranks_share_failures(harpe_power_limit_optimizer *optimizer) {
    double failures = optimizer->failed_here;
    harpe_error error;
    if (reduce(&optimizer->options, &failures, 1, false, &error) != HARPE_OK)
        harpe_optimizer_give_up(optimizer, error.message);
    else if (failures != 0)
        harpe_optimizer_give_up(optimizer, "it failed on another rank, whose log says why");
}

bool harpe_ranks_share_fleet(harpe_power_limit_optimizer *optimizer, harpe_fleet_meeting *meeting) {
    double sums[4] = {meeting->plan, meeting->power_w, meeting->unmeasured, optimizer->failed_here};
    harpe_error error;
    if (reduce(&optimizer->options, sums, 4, false, &error) != HARPE_OK) {
        harpe_optimizer_give_up(optimizer, error.message);
        return false;
    }
    if (sums[3] != 0) {
        harpe_optimizer_give_up(optimizer, "it failed on another rank, whose log says why");
        return false;
    }
    *meeting = (harpe_fleet_meeting){sums[0], sums[1], sums[2]};
    return true;
}

/* Returns the limit that the selector chooses, or the highest measured limit if the selector
 * chooses none. */
static int choose(const harpe_power_limit_optimizer *optimizer) {
    const harpe_power_limit_selector *selector = &optimizer->options.selector;
    int choice =
        selector->select(selector->user, optimizer->measurements, optimizer->measurement_count);
    if (choice < 0 || (size_t)choice >= optimizer->measurement_count) {
        harpe_log_line(&optimizer->options.log, HARPE_LOG_WARNING,
                       "the selector chose no power limit: the highest, %d W, is held",
                       optimizer->measurements[0].power_limit_w);
        choice = 0;
    }
    return optimizer->measurements[choice].power_limit_w;
}

/* Chooses the same limit on all ranks, even if the selectors of the ranks choose different limits.
 */
harpe_status harpe_ranks_choose(const harpe_power_limit_optimizer *optimizer, int *optimum_w,
                                harpe_error *error) {
    int choice_w = choose(optimizer);
    bool agree = true;
    harpe_status status = all_agree(&optimizer->options, choice_w, &agree, error);
    if (status != HARPE_OK) return status;
    if (!agree) {
        choice_w = optimizer->measurements[0].power_limit_w;
        harpe_log_line(
            &optimizer->options.log, HARPE_LOG_WARNING,
            "the ranks' selectors chose different power limits: the highest, %d W, is held",
            choice_w);
    }
    *optimum_w = choice_w;
    return HARPE_OK;
}

/* ---- The start ------------------------------------------------------------------------------- */

/* Hashes the bytes of a number with FNV-1a, cut to the 53 bits that a double holds exactly. */
static uint64_t hash_number(uint64_t hash, uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8)
        hash = (hash ^ (number >> shift & 0xff)) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t hash_double(uint64_t hash, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return hash_number(hash, bits);
}

#define HASH_START UINT64_C(0xcbf29ce484222325)

static double as_double(uint64_t hash) { return (double)(hash >> 11); }

/* Hashes the settings that must be equal on all ranks. With different settings, the ranks would not
 * meet in the same steps. */
static double settings_hash(const harpe_power_limit_optimizer *optimizer) {
    const harpe_power_limit_options *options = &optimizer->options;
    int settings[6] = {options->wait_steps,          options->warmup_steps,
                       options->profile_steps,       options->step_w,
                       optimizer->device->minimum_w, optimizer->device->maximum_w};
    uint64_t hash = HASH_START;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        hash = hash_number(hash, (uint64_t)settings[i]);
    return as_double(hash);
}

static double profile_hash(const harpe_power_limit_optimizer *optimizer) {
    uint64_t hash = HASH_START;
    for (size_t i = 0; i < optimizer->measurement_count; i++) {
        const harpe_power_limit_measurement *one = &optimizer->measurements[i];
        hash = hash_number(hash, (uint64_t)one->power_limit_w);
        hash = hash_double(hash, one->energy_j);
        hash = hash_double(hash, one->time_s);
    }
    return as_double(hash);
}

/* Elects the rank that talks to the server. `candidates` ranks have a fleet in their options. Each
 * of them draws a random number, and the rank with the highest number is elected. So ranks need no
 * numbers, and the user may give the fleet to one rank, to some or to all. */
static harpe_status elect_for_fleet(harpe_power_limit_optimizer *optimizer, double candidates,
                                    harpe_error *error) {
    uint64_t random = 0;
    optimizer->is_in_fleet = candidates > 0;
    optimizer->talks_to_fleet = candidates == 1 && optimizer->terms;
    if (!(candidates > 1)) return HARPE_OK;
    /* Ignores the result, because the kernel always has this many random bytes. */
    (void)harpe_random(&random, sizeof random);
    double own = optimizer->terms ? 1 + as_double(random) : 0;
    double highest = own;
    harpe_status status = reduce(&optimizer->options, &highest, 1, true, error);
    optimizer->talks_to_fleet = optimizer->terms && own == highest;
    return status;
}

/* Meets all ranks. A rank that cannot continue must call this function too, because the others wait
 * for it. */
harpe_status harpe_ranks_meet_at_start(harpe_power_limit_optimizer *optimizer,
                                       harpe_status prepared, harpe_error *error) {
    const harpe_power_limit_options *options = &optimizer->options;
    double sums[3] = {prepared != HARPE_OK, optimizer->device->gpu_count, optimizer->terms ? 1 : 0};
    error = prepared == HARPE_OK ? error : NULL; /* keeps the text of the first error */
    bool same_settings = true;
    bool same_profile = true;
    harpe_status status = reduce(options, sums, 3, false, error);
    if (status == HARPE_OK)
        status = all_agree(options, settings_hash(optimizer), &same_settings, error);
    if (status == HARPE_OK)
        status = all_agree(options, profile_hash(optimizer), &same_profile, error);
    if (prepared != HARPE_OK || status != HARPE_OK) return prepared ? prepared : status;
    if (sums[0] != 0) {
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "power limit: another rank could not start, its message says why");
    }
    if (!same_settings) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "power limit: the ranks differ in their step counts or in the range of "
                          "their GPUs' limits; give all the same");
    }
    if (!same_profile) {
        harpe_log_line(&optimizer->options.log, HARPE_LOG_WARNING,
                       "not every rank sees the same power limit profile: measuring again");
        optimizer->measurement_count = 0;
    }
    optimizer->job_gpus = (int)sums[1];
    if (optimizer->options.world_size == 0) optimizer->options.world_size = optimizer->job_gpus;
    return elect_for_fleet(optimizer, sums[2], error);
}

harpe_status harpe_ranks_share_first_set(const harpe_power_limit_optimizer *optimizer,
                                         harpe_status set, int limit_w, int *in_force_w,
                                         harpe_error *error) {
    double most[2] = {set != HARPE_OK, -*in_force_w}; /* the most of -x is the least of x */
    harpe_status status =
        reduce(&optimizer->options, most, 2, true, set == HARPE_OK ? error : NULL);
    if (set != HARPE_OK || status != HARPE_OK) return set ? set : status;
    *in_force_w = (int)-most[1];
    if (most[0] != 0) {
        return harpe_fail(error, HARPE_DRIVER_ERROR,
                          "power limit: another rank could not set %d W, its message says why",
                          limit_w);
    }
    return HARPE_OK;
}
