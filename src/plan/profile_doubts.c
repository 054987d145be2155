/* SPDX-License-Identifier: Apache-2.0 */
/* A row is doubtful if a GPU cannot draw its power, or if its time or energy is far from those at
 * the next clocks. Nothing is refused: an energy may be the sum over a group of GPUs, and a
 * measurement may be as strange as it looks. */
#include "plan/profiles.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "base/possible.h"
#include "base/text.h"

/* ---- Clocks that were not reached ------------------------------------------------------------ */

/* If a GPU does not reach a clock, its time and power are those of the clock that it has. Time and
 * power are therefore the same at all clocks that it does not reach, and below these, power falls
 * with the clock. Work that memory or launches limit has the same time at many clocks, too. It is
 * told apart by its power, which rises up to the highest clock, or does not depend on the clock at
 * all, or is far below the power of other work on the same GPU. All computations use logarithms, so
 * that they do not depend on units. */

/* A curve needs so many clocks, at least two of which were not reached. */
enum { CLOCKS_MIN = 6, FLAT_MIN = 2, BELOW_MIN = 3 };
/* Values within this number of standard deviations of a mean are equal. */
#define EQUAL_ERRORS 4.0
/* The clocks below lead to a power at the highest clock. It is clearly not reached if the measured
 * power is lower by this number of standard deviations, and by this share. */
#define MISSING_ERRORS 8.0
#define MISSING_MIN 0.03
/* The least noise of a measurement, relative. */
#define NOISE_MIN 0.001
/* How power and time follow the clock is fitted over this range of clocks below, in ln MHz. */
#define BELOW_WIDTH 0.1
/* The power limit is one for all work of a GPU. */
#define LEVEL_MIN 0.7
/* If time follows the clock with a smaller slope than this, the clock is computed from power. */
#define TIME_SLOPE_MIN 0.2

/* The measurements of one (stage, instruction, rank), the highest clock first. */
typedef struct curve {
    size_t count;
    double *clock, *time, *power; /* logarithms of MHz, s, W */
    double *scratch;
    double time_noise, power_noise;
} curve;

/* Clocks that were not reached. */
typedef struct finding {
    double like;    /* ln of the clock that is as fast */
    double power_w; /* on a GPU */
    size_t first_reached;
} finding;

typedef struct straight {
    double slope, mean_x, mean_y;
} straight;

/* ---- One curve ------------------------------------------------------------------------------- */

static double mean_of(const double *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return sum / (double)count;
}

/* Returns the standard deviation of a value, from how far each is from the line through its
 * neighbours. A median is not disturbed by the few places where the curve bends. */
static double noise_of(const curve *c, const double *values) {
    for (size_t i = 0; i + 2 < c->count; i++) {
        double w = (c->clock[i] - c->clock[i + 1]) / (c->clock[i] - c->clock[i + 2]);
        double off = values[i + 1] - (1 - w) * values[i] - w * values[i + 2];
        c->scratch[i] = fabs(off) / sqrt(1 + w * w + (1 - w) * (1 - w));
    }
    qsort(c->scratch, c->count - 2, sizeof *c->scratch, harpe_compare_doubles);
    double median = c->scratch[(c->count - 2) / 2];
    return fmax(median / 0.6745, NOISE_MIN); /* the median of a normal distribution's deviation */
}

static straight fit(const double *x, const double *y, size_t count) {
    straight out = {.mean_x = mean_of(x, count), .mean_y = mean_of(y, count)};
    double xx = 0, xy = 0;
    for (size_t i = 0; i < count; i++) {
        xx += (x[i] - out.mean_x) * (x[i] - out.mean_x);
        xy += (x[i] - out.mean_x) * (y[i] - out.mean_y);
    }
    out.slope = xx > 0 ? xy / xx : 0;
    return out;
}

/* Returns where a line has a value. */
static double clock_at(const straight *l, double value) {
    return l->mean_x + (value - l->mean_y) / l->slope;
}

/* Returns how many of the highest clocks have the same power, and no less time than the others. */
static size_t flat_count(const curve *c) {
    size_t k = 1;
    while (k < c->count) {
        double power = mean_of(c->power, k), time = mean_of(c->time, k);
        double errors = EQUAL_ERRORS * sqrt(1 + 1.0 / (double)k);
        if (fabs(c->power[k] - power) > errors * c->power_noise ||
            fabs(c->time[k] - time) > errors * c->time_noise)
            break;
        k++;
    }
    return k;
}

/* Returns how many clocks from `from` on are fitted. */
static size_t below_count(const curve *c, size_t from) {
    size_t end = from;
    while (end < c->count &&
           (end < from + BELOW_MIN || c->clock[from] - c->clock[end] <= BELOW_WIDTH))
        end++;
    return end - from;
}

/* Returns true if the highest clocks were not reached. `level_w` is the highest power of the
 * stage's GPUs. */
static bool find_in(const curve *c, double level_w, finding *out) {
    size_t flat = flat_count(c), below = below_count(c, flat);
    if (flat < FLAT_MIN || below < BELOW_MIN) return false;
    double power = mean_of(c->power, flat), time = mean_of(c->time, flat);
    straight powers = fit(c->clock + flat, c->power + flat, below);
    straight times = fit(c->clock + flat, c->time + flat, below);
    double missing = powers.mean_y + powers.slope * (c->clock[0] - powers.mean_x) - power;
    if (!(powers.slope > 0) || missing < fmax(MISSING_MIN, MISSING_ERRORS * c->power_noise) ||
        exp(power) < LEVEL_MIN * level_w)
        return false;
    double limit = clock_at(&powers, power);
    size_t reached = 0;
    while (reached < flat &&
           c->clock[reached] > limit + 0.5 * (c->clock[reached] - c->clock[reached + 1]))
        reached++;
    if (reached < FLAT_MIN) return false;
    bool follows = times.slope < -TIME_SLOPE_MIN;
    *out = (finding){follows ? clock_at(&times, time) : limit, exp(power), reached};
    return true;
}

/* ---- All curves ------------------------------------------------------------------------------ */

typedef struct summary {
    int *places; /* ranks, or stages if the rows have no ranks */
    size_t place_count;
    bool has_ranks;
    double lowest_like, highest_like, lowest_w, highest_w;
    int lowest_mhz, highest_mhz; /* that were reached */
    int top_mhz;
} summary;

static bool is_same_curve(const harpe_profile_row *a, const harpe_profile_row *b) {
    return a->stage == b->stage && a->name == b->name && a->rank == b->rank;
}

/* Fills in a curve from its rows, without those at 0 MHz. Repeats of a clock are averaged. */
static void read_curve(curve *c, const harpe_profile_row *const *rows, size_t count) {
    size_t repeats = 1;
    c->count = 0;
    for (size_t i = 0; i < count && rows[i]->frequency_mhz > 0; i++, repeats++) {
        double time = log(rows[i]->time_s);
        double power = log(rows[i]->energy_j / (rows[i]->time_s * rows[i]->gpu_count));
        if (i == 0 || rows[i]->frequency_mhz != rows[i - 1]->frequency_mhz) {
            repeats = 1;
            c->clock[c->count] = log(rows[i]->frequency_mhz);
            c->time[c->count] = c->power[c->count] = 0;
            c->count++;
        }
        c->time[c->count - 1] += (time - c->time[c->count - 1]) / (double)repeats;
        c->power[c->count - 1] += (power - c->power[c->count - 1]) / (double)repeats;
    }
    if (c->count < CLOCKS_MIN) return;
    c->time_noise = noise_of(c, c->time);
    c->power_noise = noise_of(c, c->power);
}

/* Returns the highest power of a GPU of the stage that begins with rows[first], at the highest
 * clock of its instructions. */
static double level_of(const harpe_profile_row *const *rows, size_t count, size_t first) {
    double level_w = 0;
    for (size_t i = first; i < count && rows[i]->stage == rows[first]->stage; i++)
        if (i == first || !is_same_curve(rows[i], rows[i - 1]))
            level_w = fmax(level_w, rows[i]->energy_j / (rows[i]->time_s * rows[i]->gpu_count));
    return level_w;
}

/* Leaves out the points above a clock. The highest point that is left must not be slower, by noise,
 * than the highest clock, because then no plan would be as fast. */
static void limit_entry(harpe_profile_entry *entry, int reached_mhz) {
    size_t above = 0;
    while (above + 1 < entry->point_count && entry->points[above].frequency_mhz > reached_mhz)
        above++;
    while (above > 0 && entry->points[above].time_s > entry->points[0].time_s)
        above--;
    if (above > entry->throttled_count) entry->throttled_count = above;
}

static void take(summary *all, const finding *found, int reached_mhz,
                 const harpe_profile_row *row) {
    bool is_first = all->place_count == 0;
    all->has_ranks = row->rank >= 0;
    all->places[all->place_count++] = row->rank >= 0 ? row->rank : row->stage;
    if (is_first || found->like < all->lowest_like) all->lowest_like = found->like;
    if (is_first || found->like > all->highest_like) all->highest_like = found->like;
    if (is_first || found->power_w < all->lowest_w) all->lowest_w = found->power_w;
    if (is_first || found->power_w > all->highest_w) all->highest_w = found->power_w;
    if (is_first || reached_mhz < all->lowest_mhz) all->lowest_mhz = reached_mhz;
    if (is_first || reached_mhz > all->highest_mhz) all->highest_mhz = reached_mhz;
    if (row->frequency_mhz > all->top_mhz) all->top_mhz = row->frequency_mhz;
}

/* ---- The sentence ---------------------------------------------------------------------------- */

static int compare_places(const void *left, const void *right) {
    const int *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* Appends "0-3, 7". */
static void append_places(harpe_text *text, int *places, size_t count) {
    qsort(places, count, sizeof *places, compare_places);
    const char *before = "";
    for (size_t i = 0, end; i < count; i = end) {
        int last = places[i];
        for (end = i + 1; end < count && places[end] <= last + 1; end++)
            last = places[end];
        harpe_text_printf(text, "%s%d", before, places[i]);
        if (last > places[i]) harpe_text_printf(text, "-%d", last);
        before = ", ";
    }
}

static void append_range(harpe_text *text, double low, double high) {
    harpe_text_printf(text, "%.0f", low);
    if (round(high) > round(low)) harpe_text_printf(text, "-%.0f", high);
}

static void describe(summary *all, const char *file_name, harpe_text *text) {
    if (file_name) harpe_text_printf(text, "%.480s: ", file_name);
    harpe_text_printf(text, "%s ", all->has_ranks ? "rank" : "stage");
    append_places(text, all->places, all->place_count);
    harpe_text_printf(text, ": the GPU did not reach clocks above ");
    append_range(text, all->lowest_mhz, all->highest_mhz);
    harpe_text_printf(text, " MHz: up to %d MHz, power stays at ", all->top_mhz);
    append_range(text, all->lowest_w, all->highest_w);
    harpe_text_printf(text, " W on a GPU, and times are those of about ");
    append_range(text, exp(all->lowest_like), exp(all->highest_like));
    harpe_text_printf(text, " MHz, as at a power limit; plans use lower clocks that are as fast");
}

/* Sets `throttled_count` of each entry, and appends one sentence about all of them to `line`; none
 * if all clocks were reached. `rows` are of one curve (stage, instruction, rank) after the other,
 * by falling frequency, and `entries` are the aggregated rows in the same order. A clock of an
 * entry was not reached if one of its ranks did not reach it. O(row_count log row_count) */
static harpe_status throttled_clocks_find(const harpe_profile_row *const *rows, size_t row_count,
                                          harpe_profile_entry *entries, const char *file_name,
                                          harpe_text *line, harpe_error *error) {
    summary all = {.places = harpe_calloc(row_count, sizeof *all.places)};
    double *block = harpe_calloc(4 * row_count, sizeof *block);
    curve c = {.clock = block,
               .time = block + row_count,
               .power = block + 2 * row_count,
               .scratch = block + 3 * row_count};
    harpe_status status = all.places && block ? HARPE_OK : harpe_fail_memory(error);
    double level_w = 0;
    for (size_t first = 0, end; status == HARPE_OK && first < row_count; first = end) {
        finding found;
        end = first + 1;
        while (end < row_count && is_same_curve(rows[end], rows[first]))
            end++;
        if (first == 0 || rows[first]->stage != rows[first - 1]->stage)
            level_w = level_of(rows, row_count, first);
        read_curve(&c, rows + first, end - first);
        if (c.count >= CLOCKS_MIN && find_in(&c, level_w, &found)) {
            int reached_mhz = (int)lround(exp(c.clock[found.first_reached]));
            limit_entry(entries, reached_mhz);
            take(&all, &found, reached_mhz, rows[first]);
        }
        if (end < row_count &&
            (rows[end]->stage != rows[first]->stage || rows[end]->name != rows[first]->name))
            entries++;
    }
    if (all.place_count > 0) describe(&all, file_name, line);
    free(all.places);
    free(block);
    return status;
}

/* ---- Doubtful rows --------------------------------------------------------------------------- */

/* How far a value may be from its neighbours: by the first factor, or, in a noisy profile, by
 * NOISE_FACTOR times what is usual in it, but not by the second factor. With a noise of 20 %, less
 * than one of 10,000 sound rows is doubtful. */
#define FACTOR_MIN 2.0
#define FACTOR_MAX 8.0
#define NOISE_FACTOR 20.0
#define SAMPLE_COUNT 4096 /* rows that tell the noise */
#define NEIGHBOURS 2      /* on each side */
/* Power rises at most with the third power of the clock. */
#define POWER_EXPONENT 3.0

typedef struct finder {
    const harpe_profile_row **rows; /* of one curve after the other, by falling frequency */
    size_t count;
    const char *const *names;
    const char *file_name; /* NULL: the rows come from a caller's array */
    double limit_time, limit_energy;
    size_t doubt_count;
    harpe_text lines[HARPE_PROFILE_LINES_MAX];
} finder;

static double time_of(const harpe_profile_row *row) { return row->time_s; }
static double energy_of(const harpe_profile_row *row) { return row->energy_j; }

/* ---- Curves ---------------------------------------------------------------------------------- */

static int compare_in_curve(const void *left, const void *right) {
    const harpe_profile_row *a = *(const harpe_profile_row *const *)left;
    const harpe_profile_row *b = *(const harpe_profile_row *const *)right;
    if (a->stage != b->stage) return a->stage < b->stage ? -1 : 1;
    if (a->name != b->name) return a->name < b->name ? -1 : 1;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    if (a->frequency_mhz != b->frequency_mhz) return a->frequency_mhz > b->frequency_mhz ? -1 : 1;
    return (a->source > b->source) - (a->source < b->source);
}

/* Finds rows of the same curve at the next clocks on one side of rows[at]. */
static size_t find_side(const finder *f, size_t at, int step, const harpe_profile_row **found) {
    const harpe_profile_row *last = f->rows[at];
    size_t count = 0;
    for (size_t i = at + (size_t)step; i < f->count && count < NEIGHBOURS; i += (size_t)step) {
        if (!is_same_curve(f->rows[i], last) || f->rows[i]->frequency_mhz == 0) break;
        if (f->rows[i]->frequency_mhz == last->frequency_mhz) continue;
        found[count++] = last = f->rows[i];
    }
    return count;
}

/* Returns the logarithm of the factor by which a value is above (or, if negative, below) what a
 * neighbour allows. At a higher clock, a time is not longer, and shorter at most in the ratio of
 * the clocks. */
static double excess(const harpe_profile_row *row, const harpe_profile_row *other,
                     double (*value)(const harpe_profile_row *)) {
    double clocks = log((double)row->frequency_mhz / other->frequency_mhz);
    double found = log(value(row) / value(other));
    double a = -clocks, b = value == energy_of ? POWER_EXPONENT * clocks : 0;
    return found - fmin(fmax(found, fmin(a, b)), fmax(a, b));
}

/* Returns by which factor, as a logarithm, rows[at] is off for more than half of its neighbours. */
static double deviation(const finder *f, size_t at, double (*value)(const harpe_profile_row *)) {
    const harpe_profile_row *near[2 * NEIGHBOURS] = {0};
    double found[2 * NEIGHBOURS];
    if (f->rows[at]->frequency_mhz == 0) return 0;
    size_t count = find_side(f, at, -1, near);
    count += find_side(f, at, 1, near + count);
    for (size_t i = 0; i < count; i++)
        found[i] = excess(f->rows[at], near[i], value);
    if (count == 0) return 0;
    qsort(found, count, sizeof *found, harpe_compare_doubles);
    size_t most = count / 2;
    return fmax(0, found[count - 1 - most]) + fmin(0, found[most]);
}

/* Sets from which deviation on a value is doubtful. */
static double find_limit(const finder *f, double (*value)(const harpe_profile_row *)) {
    double sample[SAMPLE_COUNT];
    size_t count = f->count < SAMPLE_COUNT ? f->count : SAMPLE_COUNT;
    for (size_t i = 0; i < count; i++)
        sample[i] = fabs(deviation(f, f->count * i / count, value));
    qsort(sample, count, sizeof *sample, harpe_compare_doubles);
    double usual = sample[(count - 1) / 2];
    return fmin(fmax(log(FACTOR_MIN), NOISE_FACTOR * usual), log(FACTOR_MAX));
}

/* ---- Lines ----------------------------------------------------------------------------------- */

/* Begins a line about a row. Returns NULL if there are enough lines. */
static harpe_text *begin(finder *f, const harpe_profile_row *row) {
    if (f->doubt_count++ >= HARPE_PROFILE_DOUBTS_MAX) return NULL;
    harpe_text *line = &f->lines[f->doubt_count - 1];
    if (f->file_name)
        harpe_text_printf(line, "%.480s:%u: ", f->file_name, row->source);
    else
        harpe_text_printf(line, "row %u: ", row->source);
    harpe_text_printf(line, "stage %d '%s' at %d MHz: ", row->stage, f->names[row->name],
                      row->frequency_mhz);
    return line;
}

/* What a power would be if a column had another unit. */
typedef struct unit_guess {
    const char *text;
    double factor;
} unit_guess;

static void describe_power(harpe_text *line, double power_w) {
    static const unit_guess guesses[] = {
        {"the energies are in mJ", 1e-3},
        {"the energies are in uJ", 1e-6},
        {"the times are in ms or the energies in kJ", 1e3},
        {"the times are in us or the energies in MJ", 1e6},
        {"the energies are in Wh", 3600},
        {"the energies are in kWh", 3.6e6},
    };
    const char *before = "; if ";
    harpe_text_printf(line, "%s W on a GPU, %s than any GPU draws", HARPE_DIGITS(power_w, 4),
                      power_w > HARPE_GPU_HIGHEST_W ? "more" : "less");
    for (size_t i = 0; i < sizeof guesses / sizeof guesses[0]; i++) {
        double guess_w = power_w * guesses[i].factor;
        if (guess_w < 10 * HARPE_GPU_LOWEST_W || guess_w > HARPE_GPU_HIGHEST_W / 2) continue;
        harpe_text_printf(line, "%s%s, it is %s W", before, guesses[i].text,
                          HARPE_DIGITS(guess_w, 4));
        before = ", if ";
    }
}

static void describe_deviation(const finder *f, size_t at, double off, bool is_time,
                               harpe_text *line) {
    double (*value)(const harpe_profile_row *) = is_time ? time_of : energy_of;
    const char *unit = is_time ? "s" : "J";
    const harpe_profile_row *near[NEIGHBOURS] = {f->rows[at]};
    if (find_side(f, at, -1, near) == 0) (void)find_side(f, at, 1, near);
    harpe_text_printf(line, "the %s %s %s is about %s times too %s beside %s %s at %d MHz (%s %u)",
                      is_time ? "time" : "energy", HARPE_DIGITS(value(f->rows[at]), 4), unit,
                      HARPE_DIGITS(exp(fabs(off)), 2), off > 0 ? "high" : "low",
                      HARPE_DIGITS(value(near[0]), 4), unit, near[0]->frequency_mhz,
                      f->file_name ? "line" : "row", near[0]->source);
}

static void check_row(finder *f, size_t at) {
    const harpe_profile_row *row = f->rows[at];
    double power_w = row->energy_j / (row->time_s * row->gpu_count);
    bool is_odd_power = power_w < HARPE_GPU_LOWEST_W || power_w > HARPE_GPU_HIGHEST_W;
    double time_off = deviation(f, at, time_of), energy_off = deviation(f, at, energy_of);
    bool is_odd_time = fabs(time_off) > f->limit_time;
    bool is_off = is_odd_time || fabs(energy_off) > f->limit_energy;
    harpe_text *line = is_odd_power || is_off ? begin(f, row) : NULL;
    if (!line) return;
    if (is_off) describe_deviation(f, at, is_odd_time ? time_off : energy_off, is_odd_time, line);
    if (is_off && is_odd_power) harpe_text_printf(line, ": ");
    if (is_odd_power) describe_power(line, power_w);
    if (!is_off && power_w > HARPE_GPU_HIGHEST_W)
        harpe_text_printf(line, "; if it is a sum over several GPUs, give their number as gpus");
}

/* ---- All rows -------------------------------------------------------------------------------- */

static harpe_status keep_lines(finder *f, harpe_arena *arena, const char **lines,
                               harpe_error *error) {
    harpe_status status = HARPE_OK;
    if (f->doubt_count > HARPE_PROFILE_DOUBTS_MAX)
        harpe_text_printf(&f->lines[HARPE_PROFILE_DOUBTS_MAX - 1], " (and %zu more rows)",
                          f->doubt_count - HARPE_PROFILE_DOUBTS_MAX);
    for (size_t i = 0; i < HARPE_PROFILE_LINES_MAX; i++) {
        harpe_text *line = &f->lines[i];
        lines[i] = line->data ? harpe_arena_strdup(arena, line->data, line->length) : NULL;
        if (line->failed || (line->data && !lines[i])) status = harpe_fail_memory(error);
        harpe_text_free(line);
    }
    return status;
}

harpe_status harpe_profile_doubts_find(const harpe_profile_rows *rows, const char *file_name,
                                       harpe_profile_entry *entries, harpe_arena *arena,
                                       const char *lines[HARPE_PROFILE_LINES_MAX],
                                       harpe_error *error) {
    finder f = {.rows = harpe_calloc(rows->count, sizeof(const harpe_profile_row *)),
                .count = rows->count,
                .names = rows->names,
                .file_name = file_name};
    if (!f.rows) return harpe_fail_memory(error);
    for (size_t i = 0; i < rows->count; i++)
        f.rows[i] = &rows->items[i];
    if (rows->items[0].rank >= 0) qsort(f.rows, f.count, sizeof *f.rows, compare_in_curve);
    f.limit_time = find_limit(&f, time_of);
    f.limit_energy = find_limit(&f, energy_of);
    for (size_t i = 0; i < f.count; i++)
        check_row(&f, i);
    size_t used =
        f.doubt_count < HARPE_PROFILE_DOUBTS_MAX ? f.doubt_count : HARPE_PROFILE_DOUBTS_MAX;
    harpe_status status = HARPE_OK;
    if (file_name)
        status = throttled_clocks_find(f.rows, f.count, entries, file_name, &f.lines[used], error);
    free(f.rows);
    harpe_status kept = keep_lines(&f, arena, lines, error);
    return status == HARPE_OK ? kept : status;
}

/* ---- Repeated measurements ------------------------------------------------------------------- */

/* Writes a sentence about rows of a profile that repeat a measurement and were averaged. Such rows
 * are allowed, but are often a mistake. */

void harpe_profile_note_repeats(const harpe_profile *profile, const char *path, harpe_text *text) {
    size_t count = harpe_profile_repeat_count(profile);
    if (count == 0) return;
    const harpe_profile_repeat *first = harpe_profile_repeat_at(profile, 0);
    harpe_text_printf(text, "%s: %zu rows (lines %zu %s %zu) measure stage %d '%s' at %d MHz", path,
                      first->row_count, first->first_row, first->row_count > 2 ? "to" : "and",
                      first->last_row, first->stage, first->instruction, first->frequency_mhz);
    if (first->rank >= 0) harpe_text_printf(text, " on rank %d", first->rank);
    if (count > 1) harpe_text_printf(text, ", and so for %zu more points", count - 1);
    harpe_text_printf(text, ": averaged");
}
