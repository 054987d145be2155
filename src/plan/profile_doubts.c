/* SPDX-License-Identifier: Apache-2.0 */
/* A row is doubtful if a GPU cannot draw its power, or if its time or energy is far from those at
 * the next clocks. Nothing is refused: an energy may be the sum over a group of GPUs, and a
 * measurement may be as strange as it looks. */
#include "plan/profile_doubts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "base/possible.h"
#include "base/text.h"
#include "plan/throttled_clocks.h"

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

static bool is_same_curve(const harpe_profile_row *a, const harpe_profile_row *b) {
    return a->stage == b->stage && a->name == b->name && a->rank == b->rank;
}

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
        status =
            harpe_throttled_clocks_find(f.rows, f.count, entries, file_name, &f.lines[used], error);
    free(f.rows);
    harpe_status kept = keep_lines(&f, arena, lines, error);
    return status == HARPE_OK ? kept : status;
}
