/* SPDX-License-Identifier: Apache-2.0 */
/* If a GPU does not reach a clock, its time and power are those of the clock that it has. Time and
 * power are therefore the same at all clocks that it does not reach, and below these, power falls
 * with the clock. Work that memory or launches limit has the same time at many clocks, too. It is
 * told apart by its power, which rises up to the highest clock, or does not depend on the clock at
 * all, or is far below the power of other work on the same GPU. All computations use logarithms, so
 * that they do not depend on units. */
#include "plan/throttled_clocks.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"

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

harpe_status harpe_throttled_clocks_find(const harpe_profile_row *const *rows, size_t row_count,
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
