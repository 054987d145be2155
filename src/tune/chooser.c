/* SPDX-License-Identifier: Apache-2.0 */
/* The order of slices. At first the highest setting is measured alone; then each trial takes turns
 * with it; then the choice is held. The program may change its phase (prefill and decode, another
 * batch): its rate or power at the highest setting jumps. Each phase has a search of its own, which
 * goes on when the phase comes back. If phases are too short for that, the program is treated as
 * one, with slices that are longer than its phases. */
#include "tune/chooser.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "tune/search.h"

enum {
    PHASES_MAX = 6,
    BASELINE_FEWEST = 4,
    BASELINE_MOST = 8,
    MINUTE_S = 60,
    HELD_PAIRS = 48,    /* pairs that the choice is judged by while it is held */
    FEWEST_PAIRS = 3,   /* of an accepted trial */
    FEWEST_KNOWN = 6,   /* of a trial whose energy is known: fewer may be alike by chance */
    FEWEST_REFUSED = 2, /* of a trial that is too slow: one slice may be an outlier */
    MOST_REFUSED = 8,
    FEWEST_FORESEEN = 12, /* after which it can be foreseen that a trial stays undecided */
    MOST_DROPS = 30,
    FEWEST_OF_KNOWN = 2, /* slices of another phase, of which one or two may be outliers */
    FEWEST_OF_NEW = 3,
    MOST_STRANGE = 12, /* slices in a row that are of no phase */
    SHORT_STAYS = 4,
    FEWEST_CHANGED = 3, /* slices at the chosen setting, each after one at the highest */
};

/* Energy counters of GPUs rise every 20 to 100 ms. */
static const double least_slice_s = 1;
static const double most_slice_s = 5, most_baseline_s = 60, held_slice_s = 2;
/* A change of rate or power that is larger than this, and than so many standard deviations, is
 * another phase. */
static const double least_jump = 0.06, jump_deviations = 6;
/* If the slices of a baseline differ more than this, they are made longer; if they still do at
 * their longest, the program cannot be measured. */
static const double steady_spread = 0.08, measurable_spread = 0.3;
/* The part of a minute that trials may lose, against the allowed slowdown. The page promises 1.25.
 */
static const double loss_share = 1.1;
/* Few slices may look steadier than they are. */
static const double least_noise = 1e-3;
/* A slice that is too slow is noticed after this time, or after a unit of work. */
static const double notice_s = 0.3, unit_share = 1.1;
/* A trial is given up after so much time at its setting, but not before so many pairs. */
static const double most_trial_s = 600, most_trial_units = 120;
static const size_t most_trial_pairs = 60;
static const double energy_error = 0.006;
static const double law_error = 0.1; /* of the slowdown of a trial that is too slow, share */
/* While the choice is held, this share of the time is spent at the highest setting. */
static const double check_share = 0.01;

typedef struct slice {
    bool is_valid;
    double s, j; /* logarithms of seconds and joules per unit of work */
    double time_s;
} slice;

typedef struct program_phase {
    slice highest;   /* moving means at the highest setting */
    double noise[3]; /* standard deviation of a slice: time, energy, power */
    slice baseline[BASELINE_MOST];
    size_t baseline_count;
    double slice_s;
    double grain;
    harpe_search search;
    double trial_s; /* time at the setting of the open trial */
    bool is_settled;
    slice held; /* moving means at the chosen setting */
    int strange_count, changed_count;
    double since_check_s, last_s; /* last_s: when the phase ran last */
} program_phase;

struct harpe_chooser {
    harpe_chooser_options options;
    int *values[HARPE_TUNE_KNOBS];
    harpe_tune_setting highest;
    program_phase phases[PHASES_MAX];
    size_t phase_count, now;
    bool is_blended; /* phases are not told apart */
    double clock_s, entered_s, mean_stay_s;
    int short_stays;
    double blur_s;        /* the usual blur_s of a slice */
    slice last;           /* the last slice at any setting */
    slice before, middle; /* the last slices at the highest setting, and at another one */
    slice strange;        /* a slice at the highest setting that does not fit the phase */
    int strange_count, alike_count, drops;
    bool has_begun; /* the first slice, in which the program may still warm up, is over */
    /* Of the slices since the last one that fitted, in which the program may have changed its
     * phase: the time that they may have lost, their time, and their work. */
    double doubt_s, doubt_time_s, doubt_work;
    double lost_s[MINUTE_S]; /* the most time lost in each second of the last minute */
    double most_lost_s;      /* the most time lost in any minute so far */
    harpe_tune_order order;
    const char *reason;
    double used_j, highest_j;
};

/* ---- Construction ---------------------------------------------------------------------------- */

static harpe_status check_options(const harpe_chooser_options *options, harpe_error *error) {
    bool has_range = false;
    for (int k = 0; k < HARPE_TUNE_KNOBS; k++) {
        const harpe_tune_range *range = &options->range[k];
        for (size_t i = 0; i < range->count; i++) {
            if (range->values[i] < 1 || (i > 0 && range->values[i] >= range->values[i - 1])) {
                return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                                  "tune: the values of a range must fall and be above 0");
            }
        }
        has_range = has_range || range->count > 1;
    }
    if (!has_range)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "tune: no knob has two values or more");
    if (!(options->max_slowdown > 0)) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "tune: the allowed slowdown must be above 0, not %g",
                          options->max_slowdown);
    }
    if (options->aim == HARPE_TUNING_COST &&
        (!(options->eta >= 0 && options->eta <= 1) || !(options->highest_w > 0))) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "tune: eta must be from 0 (time) to 1 (energy), and the highest power "
                          "above 0 W");
    }
    return HARPE_OK;
}

static bool is_same(const harpe_tune_setting *a, const harpe_tune_setting *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

static bool has_value(const harpe_tune_range *range, int value) {
    for (size_t i = 0; i < range->count; i++)
        if (range->values[i] == value) return true;
    return false;
}

static void begin_phase(program_phase *phase) {
    *phase = (program_phase){.slice_s = least_slice_s, .search = {.best = -1}};
}

static void plan(harpe_chooser *chooser);

harpe_status harpe_chooser_new(const harpe_chooser_options *options, harpe_chooser **out,
                               harpe_error *error) {
    harpe_status status = check_options(options, error);
    if (status != HARPE_OK) return status;
    harpe_chooser *chooser = harpe_calloc(1, sizeof *chooser);
    if (!chooser) return harpe_fail_memory(error);
    chooser->options = *options;
    harpe_tune_saved *saved = &chooser->options.saved;
    for (int k = 0; k < HARPE_TUNE_KNOBS; k++) {
        harpe_tune_range *range = &chooser->options.range[k];
        if (range->count < 2) {
            *range = (harpe_tune_range){0};
            saved->setting.value[k] = 0;
            continue;
        }
        chooser->values[k] = harpe_calloc(range->count, sizeof(int));
        if (!chooser->values[k]) {
            harpe_chooser_free(chooser);
            return harpe_fail_memory(error);
        }
        memcpy(chooser->values[k], range->values, range->count * sizeof(int));
        range->values = chooser->values[k];
        chooser->highest.value[k] = range->values[0];
        if (!has_value(range, saved->setting.value[k])) saved->time_ratio = 0;
    }
    /* The highest setting cannot be compared with itself. */
    if (is_same(&saved->setting, &chooser->highest)) saved->time_ratio = 0;
    chooser->phase_count = 1;
    begin_phase(&chooser->phases[0]);
    plan(chooser);
    *out = chooser;
    return HARPE_OK;
}

void harpe_chooser_free(harpe_chooser *chooser) {
    if (!chooser) return;
    for (int k = 0; k < HARPE_TUNE_KNOBS; k++)
        free(chooser->values[k]);
    free(chooser);
}

/* ---- The parts of a phase -------------------------------------------------------------------- */

static program_phase *phase_now(harpe_chooser *chooser) { return &chooser->phases[chooser->now]; }

static bool has_baseline(const program_phase *phase) { return phase->highest.is_valid; }

static harpe_trial *open_trial(program_phase *phase) {
    harpe_search *search = &phase->search;
    if (search->trial_count == 0) return NULL;
    harpe_trial *last = &search->trials[search->trial_count - 1];
    return last->verdict == HARPE_TRIAL_OPEN ? last : NULL;
}

static const harpe_tune_setting *chosen_setting(const harpe_chooser *chooser) {
    const harpe_search *search = &chooser->phases[chooser->now].search;
    return search->best < 0 ? &chooser->highest : &search->trials[search->best].setting;
}

/* Returns the logarithm of time, energy or power. */
static double part_of(const slice *one, int which) {
    return which == 0 ? one->s : which == 1 ? one->j : one->j - one->s;
}

static slice slice_of(const harpe_tune_slice *taken) {
    if (!(taken->work > 0) || !(taken->time_s > 0) || !(taken->energy_j > 0)) return (slice){0};
    return (slice){true, log(taken->time_s / taken->work), log(taken->energy_j / taken->work),
                   taken->time_s};
}

/* Returns true if two slices are so different that they are not of one phase. A phase is known by
 * its time and its power. */
static bool is_far(const harpe_chooser *chooser, const program_phase *phase, const slice *a,
                   const slice *b) {
    if (chooser->is_blended) return false;
    double power = part_of(a, 2) - part_of(b, 2);
    return fabs(a->s - b->s) > fmax(least_jump, jump_deviations * phase->noise[0]) ||
           fabs(power) > fmax(least_jump, jump_deviations * phase->noise[2]);
}

static void follow(slice *mean, const slice *from, const slice *to, double weight) {
    mean->s += weight * (to->s - from->s);
    mean->j += weight * (to->j - from->j);
}

/* Sets the length of a phase's slices, and their noise from that of slices of another length. */
static void scale_noise(program_phase *phase, const program_phase *from, double slice_s) {
    double scale = sqrt(from->slice_s / slice_s);
    for (int i = 0; i < 3; i++)
        phase->noise[i] = from->noise[i] * scale;
    phase->slice_s = slice_s;
}

/* Returns the least time of a slice: a unit of work, or all phases of a blended program. */
static double unit_s(const harpe_chooser *chooser, const program_phase *phase) {
    if (chooser->is_blended) return phase->slice_s;
    return phase->grain * exp(phase->highest.s);
}

/* ---- What a minute may lose ------------------------------------------------------------------ */

static double budget_s(const harpe_chooser *chooser) {
    double share = loss_share * chooser->options.max_slowdown;
    return isinf(share) ? INFINITY : MINUTE_S * share / (1 + share);
}

static double lost_last_minute_s(const harpe_chooser *chooser) {
    double sum = 0;
    for (int i = 0; i < MINUTE_S; i++)
        sum += chooser->lost_s[i];
    return sum;
}

static void add_loss(harpe_chooser *chooser, double lost_s) {
    chooser->lost_s[(long)chooser->clock_s % MINUTE_S] += fmax(0, lost_s);
    chooser->most_lost_s = fmax(chooser->most_lost_s, lost_last_minute_s(chooser));
}

/* The clock is the sum of all slices. */
static void pass_time(harpe_chooser *chooser, double time_s) {
    long last = (long)chooser->clock_s, now = (long)(chooser->clock_s + time_s);
    for (long second = last + 1; second <= now && second <= last + MINUTE_S; second++)
        chooser->lost_s[second % MINUTE_S] = 0;
    chooser->clock_s += time_s;
}

static void end_doubt(harpe_chooser *chooser) {
    chooser->doubt_s = chooser->doubt_time_s = chooser->doubt_work = 0;
}

/* Returns the time that a program may lose before a slice at a wrong setting ends. */
static double loss_before_end_s(const harpe_chooser *chooser, const program_phase *phase,
                                double worst) {
    if (worst <= 1 + loss_share * chooser->options.max_slowdown) return 0;
    return chooser->blur_s +
           fmax(notice_s * (1 - 1 / worst), unit_share * unit_s(chooser, phase) * (worst - 1));
}

/* Returns the highest ratio of times at which a slice ends before it has lost a minute's budget. */
static double worst_allowed(const harpe_chooser *chooser, const program_phase *phase) {
    double left_s = fmax(budget_s(chooser) - chooser->blur_s, 0);
    double by_unit = 1 + left_s / (unit_share * unit_s(chooser, phase));
    double by_notice = left_s < notice_s ? notice_s / (notice_s - left_s) : INFINITY;
    return fmax(fmin(by_unit, by_notice), 1 + loss_share * chooser->options.max_slowdown);
}

/* ---- The next slice -------------------------------------------------------------------------- */

static harpe_tune_order at_highest(const harpe_chooser *chooser, double time_s) {
    return (harpe_tune_order){chooser->highest, time_s, 1};
}

/* A slice of the trial, or one at the highest setting until the last minute has lost little enough.
 */
static harpe_tune_order order_trial(const harpe_chooser *chooser, const program_phase *phase,
                                    const harpe_trial *trial) {
    double worst = harpe_search_worst_ratio(&chooser->options, &phase->search, &trial->setting);
    double left_s = budget_s(chooser) - lost_last_minute_s(chooser);
    if (loss_before_end_s(chooser, phase, worst) > fmax(left_s, 0))
        return at_highest(chooser, fmax(phase->slice_s, 2));
    double time_s = phase->slice_s;
    if (trial->pairs >= FEWEST_REFUSED) {
        double expected = -expm1(-trial->time.mean - trial->time.error);
        double longest_s = fmax(left_s, 0) / fmax(expected, 1e-9);
        /* Two slices with stalls look very slow. If the last minute has lost nothing, another slice
         * is measured, because only it can show that there were stalls. */
        bool has_lost = left_s < 0.95 * budget_s(chooser);
        if (longest_s < fmin(time_s, 2 * least_slice_s) && has_lost)
            return at_highest(chooser, fmax(phase->slice_s, 2));
        time_s = fmin(time_s, fmax(longest_s, least_slice_s));
    }
    return (harpe_tune_order){trial->setting, time_s, 1};
}

/* Returns true if the slices at the chosen setting do not fit the phase, so that the next one is at
 * the highest. Short slices are repeated first, because one alone may be a stall of the program. */
static bool is_strange(const harpe_chooser *chooser, const program_phase *phase) {
    return phase->strange_count >= (unit_s(chooser, phase) > notice_s ? 1 : 2);
}

static void plan(harpe_chooser *chooser) {
    program_phase *phase = phase_now(chooser);
    const harpe_trial *trial = open_trial(phase);
    bool is_other = has_baseline(phase) &&
                    (chooser->strange.is_valid || (!trial && is_strange(chooser, phase)));
    bool is_check = !trial && phase->since_check_s * check_share > phase->slice_s;
    if (chooser->reason) {
        chooser->order = (harpe_tune_order){.time_s = MINUTE_S};
    } else if (is_other) {
        chooser->order = at_highest(chooser, fmin(phase->slice_s, held_slice_s));
    } else if (!has_baseline(phase) || is_check) {
        chooser->order = at_highest(chooser, phase->slice_s);
    } else if (trial) {
        chooser->order = chooser->before.is_valid && !chooser->middle.is_valid
                             ? order_trial(chooser, phase, trial)
                             : at_highest(chooser, phase->slice_s);
    } else {
        double time_s = fmax(chooser->is_blended ? phase->slice_s : 0, held_slice_s);
        chooser->order = (harpe_tune_order){*chosen_setting(chooser), time_s, 1};
    }
}

harpe_tune_order harpe_chooser_next(const harpe_chooser *chooser) { return chooser->order; }

/* Returns how much longer a running slice has taken at least than its work takes at a rate. The
 * unit that runs may be nearly finished. */
static double behind_s(const harpe_tune_slice *so_far, double log_s_per_work) {
    double s_per_work = exp(log_s_per_work);
    return so_far->time_s - so_far->rest_s - so_far->work * s_per_work +
           fmax(0, so_far->rest_s - so_far->grain * s_per_work);
}

bool harpe_chooser_is_too_slow(const harpe_chooser *chooser, const harpe_tune_slice *so_far) {
    const program_phase *phase = &chooser->phases[chooser->now];
    if (chooser->reason || chooser->is_blended) return false;
    if (is_same(&chooser->order.setting, &chooser->highest)) return false;
    double noise_s = phase->noise[0] * sqrt(phase->slice_s * so_far->time_s);
    double left_s = fmax(0, budget_s(chooser) - lost_last_minute_s(chooser));
    double lost_s = behind_s(so_far, phase->highest.s) - so_far->blur_s;
    if (lost_s > left_s + 2 * noise_s) return true;
    /* One unit is waited for, to know how slow it is. */
    if (so_far->time_s < notice_s || !(so_far->work > 0)) return false;
    double limit = chooser->options.max_slowdown;
    if (phase->is_settled) {
        /* A faster slice, too, belongs to another phase. */
        lost_s = fabs(behind_s(so_far, phase->held.s)) - so_far->blur_s;
        limit = least_jump;
    }
    double limit_s = limit * so_far->time_s / (1 + limit);
    return lost_s > limit_s + jump_deviations * noise_s;
}

/* ---- Searching ------------------------------------------------------------------------------- */

/* Returns true if a saved choice needs no search: its trial has found what was saved. */
static bool is_confirmed(const harpe_chooser *chooser, const harpe_search *search) {
    const harpe_tune_saved *saved = &chooser->options.saved;
    if (!(saved->time_ratio > 0)) return false;
    const harpe_trial *trial = &search->trials[0];
    return search->trial_count == 1 && trial->verdict == HARPE_TRIAL_ACCEPTED &&
           is_same(&saved->setting, &trial->setting) &&
           fabs(trial->energy.mean - log(saved->energy_ratio)) < 0.03 + trial->energy.error;
}

/* Expects at the chosen setting what its trial has measured. */
static void expect_held(program_phase *phase) {
    const harpe_search *search = &phase->search;
    phase->held = phase->highest;
    if (search->best < 0) return;
    phase->held.s += search->trials[search->best].time.mean;
    phase->held.j += search->trials[search->best].energy.mean;
}

static void search_on(harpe_chooser *chooser) {
    program_phase *phase = phase_now(chooser);
    harpe_search *search = &phase->search;
    harpe_search_choose(&chooser->options, search);
    harpe_tune_setting setting = chooser->options.saved.setting;
    harpe_tune_knob knob =
        setting.value[HARPE_TUNE_CLOCK] > 0 ? HARPE_TUNE_CLOCK : HARPE_TUNE_LIMIT;
    if (!is_confirmed(chooser, search)) {
        double allowed = worst_allowed(chooser, phase);
        bool is_check = search->trial_count == 0 && chooser->options.saved.time_ratio > 0 &&
                        harpe_search_worst_ratio(&chooser->options, search, &setting) <= allowed;
        if (is_check || harpe_search_next(&chooser->options, search, allowed, &setting, &knob)) {
            search->trials[search->trial_count++] = (harpe_trial){.setting = setting, .knob = knob};
            phase->trial_s = 0;
            return;
        }
    }
    phase->is_settled = true;
    expect_held(phase);
    if (!chooser->is_blended) scale_noise(phase, phase, fmax(held_slice_s, unit_s(chooser, phase)));
    phase->since_check_s = 0;
    phase->strange_count = phase->changed_count = 0;
}

/* The program is as before at the highest setting, but not at the chosen one. */
static void search_again(harpe_chooser *chooser) {
    program_phase *phase = phase_now(chooser);
    phase->search = (harpe_search){.best = -1, .highest_w = phase->search.highest_w};
    phase->is_settled = false;
    chooser->options.saved.time_ratio = 0;
    search_on(chooser);
}

/* Judges a trial after each pair. */
static harpe_trial_verdict judge(const harpe_chooser *chooser, const program_phase *phase,
                                 const harpe_trial *trial) {
    double allowed = log1p(chooser->options.max_slowdown);
    const harpe_ratio *time = &trial->time;
    /* How slow it is must be known for the law that the next trial is chosen by. */
    bool is_precise = time->error < law_error * time->mean || trial->pairs >= MOST_REFUSED;
    if (trial->pairs >= FEWEST_REFUSED && time->mean - time->bound > allowed && is_precise)
        return HARPE_TRIAL_TOO_SLOW;
    if (trial->pairs < FEWEST_PAIRS) return HARPE_TRIAL_OPEN;
    double most_s = fmax(most_trial_s, most_trial_units * unit_s(chooser, phase));
    bool is_given_up = trial->pairs >= TRIAL_PAIRS_MAX - 1 ||
                       (trial->pairs >= most_trial_pairs && phase->trial_s > most_s);
    if (time->mean + time->bound <= allowed) {
        bool is_known = (trial->energy.error < energy_error && trial->pairs >= FEWEST_KNOWN) ||
                        trial->pairs >= most_trial_pairs / 2;
        return is_known || is_given_up ? HARPE_TRIAL_ACCEPTED : HARPE_TRIAL_OPEN;
    }
    if (trial->pairs >= FEWEST_FORESEEN) {
        /* The bound falls with the square root of the number of pairs. The mean may be too high. */
        double missing = time->bound / (allowed - time->mean + time->error / 2);
        is_given_up |= missing < 0 || missing * missing * phase->trial_s > most_s;
    }
    return is_given_up ? HARPE_TRIAL_UNDECIDED : HARPE_TRIAL_OPEN;
}

/* Slices become longer while a trial is undecided, but not so long that phases are missed. */
static void lengthen_slices(const harpe_chooser *chooser, program_phase *phase,
                            const harpe_trial *trial) {
    /* If only the energy is still unknown, longer slices cannot cost time. */
    bool is_fast = trial->time.mean + trial->time.bound <= log1p(chooser->options.max_slowdown);
    if ((!is_fast && trial->pairs % 4 != 0) || chooser->is_blended) return;
    double most_s = chooser->mean_stay_s > 0 ? chooser->mean_stay_s / 10 : most_slice_s;
    double longer_s = fmin(is_fast ? most_s : phase->slice_s * 1.5, fmin(most_s, most_slice_s));
    if (longer_s <= phase->slice_s) return;
    scale_noise(phase, phase, longer_s);
}

/* Adds the comparison of a slice at the trial's setting with its neighbours, or of neighbours at
 * the setting with a slice at the highest. */
static void add_pair(harpe_chooser *chooser, program_phase *phase, harpe_trial *trial,
                     const slice *before, const slice *middle, const slice *after) {
    double sign = trial->verdict == HARPE_TRIAL_OPEN ? 1 : -1;
    harpe_pair pair = {
        .time = sign * (middle->s - (before->s + after->s) / 2),
        .energy = sign * (middle->j - (before->j + after->j) / 2),
        .weight = fmin(middle->time_s, (before->time_s + after->time_s) / 2),
    };
    /* The neighbours add half of their variance. */
    double scale = sqrt(1.5 * phase->slice_s);
    double noise[2] = {phase->noise[0] * scale, phase->noise[1] * scale};
    harpe_trial_add(trial, &pair, noise, phase->is_settled ? HELD_PAIRS : TRIAL_PAIRS_MAX);
    if (trial->verdict == HARPE_TRIAL_OPEN) {
        trial->verdict = judge(chooser, phase, trial);
        if (trial->verdict == HARPE_TRIAL_OPEN)
            lengthen_slices(chooser, phase, trial);
        else
            search_on(chooser);
        return;
    }
    /* The choice is compared again while it is held. */
    double allowed = log1p(chooser->options.max_slowdown);
    if (trial->time.mean - trial->time.bound <= allowed) return;
    trial->verdict = HARPE_TRIAL_TOO_SLOW;
    harpe_search_choose(&chooser->options, &phase->search);
    expect_held(phase);
}

/* ---- Phases of the program ------------------------------------------------------------------- */

static void restart(harpe_chooser *chooser, double slice_s) {
    chooser->phase_count = 1;
    chooser->now = 0;
    double grain = phase_now(chooser)->grain;
    begin_phase(phase_now(chooser));
    phase_now(chooser)->slice_s = slice_s;
    phase_now(chooser)->grain = grain;
    chooser->before = chooser->middle = chooser->strange = (slice){0};
}

/* Counts how often the program stays in a phase for less than a search can follow. */
static bool is_too_short(harpe_chooser *chooser, const program_phase *phase) {
    double stay_s = chooser->clock_s - chooser->entered_s;
    double least_s = 10 * fmax(least_slice_s, unit_s(chooser, phase));
    chooser->entered_s = chooser->clock_s;
    chooser->mean_stay_s += (stay_s - chooser->mean_stay_s) * (chooser->mean_stay_s > 0 ? 0.3 : 1);
    chooser->short_stays = stay_s < least_s ? chooser->short_stays + 1 : 0;
    return chooser->short_stays >= SHORT_STAYS;
}

static size_t room_for_phase(harpe_chooser *chooser) {
    if (chooser->phase_count < PHASES_MAX) return chooser->phase_count++;
    size_t oldest = chooser->now == 0;
    for (size_t i = 0; i < PHASES_MAX; i++)
        if (i != chooser->now && chooser->phases[i].last_s < chooser->phases[oldest].last_s)
            oldest = i;
    return oldest;
}

/* Returns the phase that a slice at the highest setting belongs to, or the number of phases. */
static size_t known_phase(const harpe_chooser *chooser, const slice *seen) {
    const program_phase *now = &chooser->phases[chooser->now];
    size_t found = chooser->phase_count;
    double nearest = INFINITY;
    for (size_t i = 0; i < chooser->phase_count; i++) {
        const slice *known = &chooser->phases[i].highest;
        double distance = fabs(known->s - seen->s) + fabs(known->j - seen->j);
        if (is_far(chooser, now, known, seen) || distance >= nearest) continue;
        nearest = distance;
        found = i;
    }
    return found;
}

/* Goes to the phase that a slice at the highest setting belongs to, or begins a new one. */
static void enter_phase(harpe_chooser *chooser, const slice *seen) {
    program_phase *left = phase_now(chooser);
    /* At the highest setting, the work needs at least this long in the faster of both phases. */
    double needed_s = chooser->doubt_work * exp(fmin(left->highest.s, seen->s));
    add_loss(chooser, fmin(chooser->doubt_s, chooser->doubt_time_s - needed_s));
    end_doubt(chooser);
    left->last_s = chooser->clock_s;
    left->strange_count = 0;
    if (is_too_short(chooser, left)) {
        chooser->is_blended = true;
        double long_s = fmin(most_baseline_s, fmax(8, 6 * chooser->mean_stay_s));
        restart(chooser, long_s);
        return;
    }
    size_t found = known_phase(chooser, seen);
    if (found == chooser->phase_count) {
        found = room_for_phase(chooser);
        program_phase begun = {.highest = *seen, .grain = left->grain, .search = {.best = -1}};
        scale_noise(&begun, left, fmax(least_slice_s, unit_s(chooser, &begun)));
        begun.search.highest_w =
            left->search.highest_w * exp(part_of(seen, 2) - part_of(&left->highest, 2));
        chooser->phases[found] = begun;
    }
    chooser->now = found;
    if (phase_now(chooser)->search.trial_count == 0) search_on(chooser);
}

/* Returns true if the slice at the highest setting belongs to the phase. One that does not may be
 * an outlier; two alike are another phase. */
static bool fits_phase(harpe_chooser *chooser, const slice *seen) {
    program_phase *phase = phase_now(chooser);
    if (!is_far(chooser, phase, seen, &phase->highest)) {
        bool was_strange = chooser->strange.is_valid;
        chooser->strange.is_valid = false;
        chooser->strange_count = 0;
        if (was_strange) chooser->middle.is_valid = false;
        return true;
    }
    chooser->before.is_valid = chooser->middle.is_valid = false;
    bool is_alike = chooser->strange.is_valid && !is_far(chooser, phase, seen, &chooser->strange);
    chooser->alike_count = is_alike ? chooser->alike_count + 1 : 1;
    if (is_alike)
        follow(&chooser->strange, &chooser->strange, seen, 0.5);
    else
        chooser->strange = *seen;
    bool is_known = known_phase(chooser, &chooser->strange) < chooser->phase_count;
    if (chooser->alike_count >= (is_known ? FEWEST_OF_KNOWN : FEWEST_OF_NEW)) {
        slice entered = chooser->strange;
        chooser->strange = (slice){0};
        chooser->strange_count = 0;
        enter_phase(chooser, &entered);
    } else if (++chooser->strange_count >= MOST_STRANGE) {
        chooser->strange_count = 0;
        restart(chooser, fmin(most_baseline_s, 2 * phase->slice_s));
    }
    return false;
}

/* ---- Slices ---------------------------------------------------------------------------------- */

/* Moves the slices that are like slice `centre` to the front, and returns their number. */
static size_t gather_alike(slice *slices, size_t count, size_t centre) {
    slice middle = slices[centre];
    size_t alike = 0;
    for (size_t i = 0; i < count; i++) {
        slice one = slices[i];
        double power = part_of(&one, 2) - part_of(&middle, 2);
        if (fabs(one.s - middle.s) > steady_spread || fabs(power) > steady_spread) continue;
        slices[i] = slices[alike];
        slices[alike++] = one;
    }
    return alike;
}

/* Begins the search as soon as most of the first slices are alike: some may have been outliers. */
static void try_baseline(harpe_chooser *chooser, program_phase *phase) {
    size_t count = phase->baseline_count, alike = 0;
    for (size_t i = 0; i < count && alike * 5 < count * 3; i++)
        alike = gather_alike(phase->baseline, count, i);
    bool is_last = count == BASELINE_MOST && phase->slice_s >= most_baseline_s;
    if (alike < BASELINE_FEWEST || alike * 5 < count * 3) {
        if (count < BASELINE_MOST) return;
        phase->baseline_count = 0;
        phase->slice_s = fmin(2 * phase->slice_s, most_baseline_s);
        if (!is_last) return;
        alike = count;
    }
    double mean[3];
    for (int k = 0; k < 3; k++) {
        double sum = 0, squares = 0;
        for (size_t i = 0; i < alike; i++)
            sum += part_of(&phase->baseline[i], k);
        mean[k] = sum / (double)alike;
        for (size_t i = 0; i < alike; i++)
            squares += pow(part_of(&phase->baseline[i], k) - mean[k], 2);
        /* The noise is at least that of the blur, which may be equal at both ends by chance. */
        double blur = k < 2 ? chooser->blur_s / sqrt(6) / phase->slice_s : 0;
        phase->noise[k] = fmax(sqrt(squares / (double)(alike - 1)), fmax(least_noise, blur));
    }
    if (phase->noise[0] > measurable_spread) {
        chooser->reason = "the rate of its work varies too much";
        return;
    }
    int gpus = chooser->options.gpu_count > 0 ? chooser->options.gpu_count : 1;
    phase->highest = (slice){true, mean[0], mean[1], 0};
    phase->slice_s = fmax(phase->slice_s, unit_s(chooser, phase));
    phase->search.highest_w = exp(mean[2]) / gpus;
    search_on(chooser);
}

/* A slice at the highest setting: ends a pair, and is the first of the next one. */
static void take_highest(harpe_chooser *chooser, const slice *seen) {
    program_phase *phase = phase_now(chooser);
    if (!has_baseline(phase)) {
        phase->baseline[phase->baseline_count++] = *seen;
        if (phase->baseline_count >= BASELINE_FEWEST) try_baseline(chooser, phase);
        return;
    }
    if (!fits_phase(chooser, seen)) return;
    end_doubt(chooser);
    phase->strange_count = 0;
    phase->since_check_s = 0;
    slice before = chooser->before, middle = chooser->middle;
    chooser->before = *seen;
    follow(&phase->highest, &phase->highest, seen, 0.5);
    if (phase->is_settled) return; /* the next slice at the chosen setting ends the pair */
    chooser->middle.is_valid = false;
    harpe_trial *trial = open_trial(phase);
    if (!trial || !before.is_valid || !middle.is_valid) return;
    add_pair(chooser, phase, trial, &before, &middle, seen);
}

/* A slice at the chosen setting. After a check at the highest one, it ends a pair. */
static void take_held(harpe_chooser *chooser, const slice *seen, double time_s) {
    program_phase *phase = phase_now(chooser);
    phase->since_check_s += time_s;
    if (is_far(chooser, phase, seen, &phase->held)) {
        phase->strange_count += seen->s > phase->held.s ? 1 : 2; /* a stall is not faster */
        phase->changed_count += chooser->before.is_valid;
        chooser->before.is_valid = chooser->middle.is_valid = false;
        if (phase->changed_count >= FEWEST_CHANGED) search_again(chooser);
        return;
    }
    phase->strange_count = phase->changed_count = 0;
    end_doubt(chooser);
    /* What drifts at this setting drifts at the highest one, too. */
    follow(&phase->highest, &phase->held, seen, 0.3);
    follow(&phase->held, &phase->held, seen, 0.3);
    slice before = chooser->middle, check = chooser->before;
    chooser->middle = *seen;
    chooser->before.is_valid = false;
    int best = phase->search.best;
    if (best < 0 || !before.is_valid || !check.is_valid) return;
    add_pair(chooser, phase, &phase->search.trials[best], &before, &check, seen);
}

/* Returns the slice without its beginning, in which the setting before was still in force, and
 * without the unit that it has cut. If there is no other, the unit counts as finished, and the
 * slice looks faster than it was. */
static harpe_tune_slice corrected(const harpe_chooser *chooser, const harpe_tune_slice *taken) {
    harpe_tune_slice whole = *taken;
    if (taken->work > 0) {
        whole.time_s -= taken->rest_s;
        whole.energy_j *= whole.time_s / taken->time_s;
    } else {
        whole.work = taken->grain;
    }
    if (taken->late_s > 0 && chooser->last.is_valid) {
        whole.time_s -= taken->late_s;
        whole.work -= taken->late_s * exp(-chooser->last.s);
        whole.energy_j -= taken->late_s * exp(chooser->last.j - chooser->last.s);
    }
    return whole;
}

/* Returns the time that the program has lost in a slice: what was measured, with its noise, but not
 * more than is possible. Of a slice of few units that was cut, only the latter is known. */
static double lost_in(const harpe_chooser *chooser, const program_phase *phase,
                      const harpe_tune_slice *taken, const harpe_tune_slice *whole) {
    const harpe_search *search = &phase->search;
    if (phase->is_settled && search->best >= 0) {
        const harpe_ratio *time = &search->trials[search->best].time;
        return whole->time_s * -expm1(-fmax(0, time->mean + time->error));
    }
    double possible_s = taken->time_s * (1 - 1 / harpe_search_worst_ratio(&chooser->options, search,
                                                                          &chooser->order.setting));
    if (taken->work < 4 * taken->grain && taken->rest_s > 0) return possible_s;
    double noise_s = phase->noise[0] * sqrt(phase->slice_s * taken->time_s);
    double measured_s = taken->time_s - whole->work * exp(phase->highest.s);
    return fmin(possible_s, measured_s + 2 * noise_s);
}

void harpe_chooser_take(harpe_chooser *chooser, const harpe_tune_slice *taken) {
    program_phase *phase = phase_now(chooser);
    pass_time(chooser, taken->time_s);
    chooser->drops = 0;
    if (chooser->reason) return;
    phase->grain = fmax(phase->grain, taken->grain);
    chooser->blur_s += (taken->blur_s - chooser->blur_s) * (chooser->has_begun ? 0.2 : 1);
    harpe_tune_slice whole = corrected(chooser, taken);
    slice seen = slice_of(&whole);
    bool is_highest = is_same(&chooser->order.setting, &chooser->highest);
    if (seen.is_valid) chooser->last = seen;
    bool has_begun = chooser->has_begun;
    chooser->has_begun = true;
    if (!seen.is_valid || !has_begun) {
        plan(chooser);
        return;
    }
    chooser->used_j += taken->energy_j;
    double at_highest_j = has_baseline(phase) ? whole.work * exp(phase->highest.j) : INFINITY;
    chooser->highest_j += is_highest || isinf(at_highest_j) ? taken->energy_j : at_highest_j;
    const harpe_trial *trial = open_trial(phase);
    if (!is_highest) {
        const harpe_search unknown = {.highest_w = phase->search.highest_w};
        double worst =
            harpe_search_worst_ratio(&chooser->options, &unknown, &chooser->order.setting);
        chooser->doubt_s += taken->time_s * (1 - 1 / worst);
        chooser->doubt_time_s += taken->time_s;
        chooser->doubt_work += taken->work;
        add_loss(chooser, lost_in(chooser, phase, taken, &whole));
    }
    if (is_highest && (trial || phase->search.best >= 0 || !phase->is_settled ||
                       is_strange(chooser, phase) || chooser->strange.is_valid)) {
        take_highest(chooser, &seen);
    } else if (trial) {
        phase->trial_s += taken->time_s;
        chooser->middle = seen;
    } else {
        take_held(chooser, &seen, taken->time_s);
    }
    plan(chooser);
}

void harpe_chooser_drop(harpe_chooser *chooser, const char *why) {
    chooser->before.is_valid = chooser->middle.is_valid = false;
    if (++chooser->drops >= MOST_DROPS && !has_baseline(phase_now(chooser))) chooser->reason = why;
    plan(chooser);
}

/* ---- Results --------------------------------------------------------------------------------- */

harpe_tune_setting harpe_chooser_highest(const harpe_chooser *chooser) { return chooser->highest; }

void harpe_chooser_report(const harpe_chooser *chooser, harpe_tuning_report *report) {
    const program_phase *phase = &chooser->phases[chooser->now];
    const harpe_search *search = &phase->search;
    const harpe_trial *best = search->best < 0 ? NULL : &search->trials[search->best];
    bool is_known = has_baseline(phase);
    double time_ratio = best ? exp(best->time.mean) : 1;
    double energy_ratio = best ? exp(best->energy.mean) : 1;
    report->phase = chooser->reason     ? HARPE_TUNING_UNMEASURABLE
                    : phase->is_settled ? HARPE_TUNING_SETTLED
                    : is_known          ? HARPE_TUNING_TRYING
                                        : HARPE_TUNING_MEASURING;
    report->reason = chooser->reason;
    report->clock_mhz = chooser->reason ? 0 : chosen_setting(chooser)->value[HARPE_TUNE_CLOCK];
    report->limit_w = chooser->reason ? 0 : chosen_setting(chooser)->value[HARPE_TUNE_LIMIT];
    report->trials = (int)search->trial_count;
    report->program_phases = (int)chooser->phase_count;
    report->slowdown = time_ratio - 1;
    report->slowdown_error = best ? time_ratio * best->time.error : 0;
    report->slowest_minute =
        chooser->most_lost_s / (MINUTE_S - fmin(chooser->most_lost_s, MINUTE_S / 2.0));
    report->saved = 1 - energy_ratio;
    report->saved_error = best ? energy_ratio * best->energy.error : 0;
    report->is_noise = report->saved <= report->saved_error;
    report->highest_s_per_work = is_known ? exp(phase->highest.s) : 0;
    report->highest_j_per_work = is_known ? exp(phase->highest.j) : 0;
    report->chosen_s_per_work = time_ratio * report->highest_s_per_work;
    report->chosen_j_per_work = energy_ratio * report->highest_j_per_work;
    report->used_j = chooser->used_j;
    report->highest_j = chooser->highest_j;
}

harpe_tune_saved harpe_chooser_save(const harpe_chooser *chooser) {
    const program_phase *phase = &chooser->phases[chooser->now];
    harpe_tune_saved saved = {.setting = *chosen_setting(chooser)};
    if (chooser->reason || !phase->is_settled) return saved;
    const harpe_search *search = &phase->search;
    saved.time_ratio = search->best < 0 ? 1 : exp(search->trials[search->best].time.mean);
    saved.energy_ratio = search->best < 0 ? 1 : exp(search->trials[search->best].energy.mean);
    return saved;
}

/* ---- A guess without trials ------------------------------------------------------------------ */

/* Fitted to 20 programs that were measured on an A100 at 10 or 11 clocks, with a power limit of
 * 250 W: EnergAIzer, ISPASS 2026, artifact (MIT licence), file energaizer_dvfs.csv. A guess is the
 * median of its programs; low and high enclose all of them and two points more. `bench/tune guess`
 * leaves each program out in turn. */

/* Above this share of the limit, the limit holds the clock. */
static const double limited_share = 0.95;

harpe_tune_guess harpe_tune_guess_saving(double power_share) {
    static const harpe_tune_guess limited = {0.010, 0, 0.065};   /* 14 programs */
    static const harpe_tune_guess unlimited = {0.363, 0, 0.497}; /* 6, of which one saves nothing */
    return power_share >= limited_share ? limited : unlimited;
}
