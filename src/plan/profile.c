/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction profile: sorts the collected rows, aggregates repeats and ranks, and returns the
 * points of a (stage, instruction). profile_csv.c reads files, and cost_model.c decides which
 * frequencies are worth using. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/profile.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "plan/profiles.h"
#include "plan/schedule.h"

struct harpe_profile {
    int stage_count;
    size_t entry_count;
    harpe_profile_entry *entries; /* sorted by stage, then instruction */
    harpe_profile_point *points;  /* the entries' points, one after the other */
    int *gpu_count;               /* [stage_count] */
    double *blocking_power_w;     /* [stage_count]; 0: not known */
    harpe_latencies latencies;
    size_t repeat_count, repeat_capacity;
    harpe_profile_repeat *repeats;
    const char *warnings[HARPE_PROFILE_LINES_MAX]; /* NULL: none */
    harpe_arena name_memory;
};

/* ---- Sorting --------------------------------------------------------------------------------- */

/* Rows of one point share this key. Higher frequencies come first. */
static uint64_t point_key(const harpe_profile_row *row) {
    return (uint64_t)row->stage << 48 | (uint64_t)row->name << 32 |
           (UINT32_MAX - (uint32_t)row->frequency_mhz);
}

/* Rows of one (stage, instruction) share this key. */
static uint64_t entry_key(const harpe_profile_row *row) { return point_key(row) >> 32; }

/* Compares by stage, name, falling frequency, rank and source. This is a total order, so sums are
 * always computed in the same order with any sorting algorithm. */
static int compare_rows(const void *left, const void *right) {
    const harpe_profile_row *a = left, *b = right;
    uint64_t key_a = point_key(a), key_b = point_key(b);
    if (key_a != key_b) return key_a < key_b ? -1 : 1;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return (a->source > b->source) - (a->source < b->source);
}

static int compare_names(const void *left, const void *right) {
    const char *const *a = left, *const *b = right;
    return strcmp(*a, *b);
}

/* Sorts the names, so that their indices are in alphabetical order. Afterwards the hash table of
 * names is invalid. */
static harpe_status sort_names(harpe_profile_rows *rows, harpe_error *error) {
    const char **sorted = harpe_calloc(rows->name_count, sizeof *sorted);
    uint16_t *new_index = harpe_calloc(rows->name_count, sizeof *new_index);
    if (!sorted || !new_index) {
        free(sorted);
        free(new_index);
        return harpe_fail_memory(error);
    }
    memcpy(sorted, rows->names, rows->name_count * sizeof *sorted);
    qsort(sorted, rows->name_count, sizeof *sorted, compare_names);
    for (size_t i = 0; i < rows->name_count; i++) {
        const char **place =
            bsearch(&rows->names[i], sorted, rows->name_count, sizeof *sorted, compare_names);
        new_index[i] = (uint16_t)(place - sorted);
    }
    for (size_t i = 0; i < rows->count; i++)
        rows->items[i].name = new_index[rows->items[i].name];
    memcpy(rows->names, sorted, rows->name_count * sizeof *sorted);
    free(sorted);
    free(new_index);
    return HARPE_OK;
}

static void sort_rows(harpe_profile_rows *rows) {
    for (size_t i = 1; i < rows->count; i++) {
        if (compare_rows(&rows->items[i - 1], &rows->items[i]) > 0) {
            qsort(rows->items, rows->count, sizeof *rows->items, compare_rows);
            return;
        }
    }
}

/* ---- Checking all rows ----------------------------------------------------------------------- */

/* The origin of a row, as a prefix of an error. */
typedef struct location {
    char text[512];
} location;

static location locate(const char *file_name, const harpe_profile_row *row) {
    location where;
    if (file_name)
        snprintf(where.text, sizeof where.text, "%.480s:%u:1", file_name, row->source);
    else
        snprintf(where.text, sizeof where.text, "row %u", row->source);
    return where;
}

/* Returns the origin of a row in a form for the middle of a sentence. */
static location name_row(const char *file_name, const harpe_profile_row *row) {
    location where;
    snprintf(where.text, sizeof where.text, "%s %u", file_name ? "line" : "row", row->source);
    return where;
}

static harpe_status row_status(const char *file_name) {
    return file_name ? HARPE_INVALID_INPUT : HARPE_INVALID_ARGUMENT;
}

static harpe_status check_stages(const harpe_profile_rows *rows, const char *file_name,
                                 harpe_error *error) {
    int next = 0; /* lowest stage without rows */
    for (size_t i = 0; i < rows->count; i++) {
        const harpe_profile_row *row = &rows->items[i];
        if (row->stage > next)
            return harpe_fail(error, row_status(file_name),
                              "%s: stage %d has no rows although stage %d has; profile every "
                              "stage and number them from 0 without gaps",
                              locate(file_name, row).text, next, row->stage);
        next = row->stage + 1;
    }
    return HARPE_OK;
}

/* Checks that either every row or no row names its rank, because a sum over some of the ranks has
 * no meaning. */
static harpe_status check_ranks(const harpe_profile_rows *rows, const char *file_name,
                                harpe_error *error) {
    for (size_t i = 1; i < rows->count; i++) {
        const harpe_profile_row *row = &rows->items[i];
        if ((row->rank < 0) != (rows->items[0].rank < 0))
            return harpe_fail(error, row_status(file_name),
                              "%s: rank %d, but other rows %s a rank; give every row one, or none "
                              "(-1)",
                              locate(file_name, row).text, row->rank,
                              rows->items[0].rank < 0 ? "lack" : "have");
    }
    return HARPE_OK;
}

/* ---- Latencies ------------------------------------------------------------------------------- */

#define US_PER_S 1e6

static int compare_for_latency(const void *left, const void *right) {
    const harpe_profile_row *const *a = left, *const *b = right;
    if ((*a)->stage != (*b)->stage) return (*a)->stage < (*b)->stage ? -1 : 1;
    if ((*a)->rank != (*b)->rank) return (*a)->rank < (*b)->rank ? -1 : 1;
    if ((*a)->frequency_mhz != (*b)->frequency_mhz)
        return (*a)->frequency_mhz < (*b)->frequency_mhz ? -1 : 1;
    return ((*a)->source > (*b)->source) - ((*a)->source < (*b)->source);
}

static harpe_status fail_latency(const char *file_name, const harpe_profile_row *row,
                                 const harpe_profile_row *before, harpe_error *error) {
    return harpe_fail(error, row_status(file_name),
                      "%s: switch_latency is %s s, but %s s for stage %d at %d MHz in %s: give the "
                      "time of a change to this clock, the same in all rows of the stage with this "
                      "frequency",
                      locate(file_name, row).text,
                      HARPE_DIGITS(row->switch_latency_us / US_PER_S, 6),
                      HARPE_DIGITS(before->switch_latency_us / US_PER_S, 6), row->stage,
                      row->frequency_mhz, name_row(file_name, before).text);
}

/* Fills in an item for each row. The rows are sorted. */
static harpe_status take_latencies(const harpe_profile_row *const *sorted, size_t count,
                                   const char *file_name, harpe_latencies *out,
                                   harpe_error *error) {
    for (size_t i = 0; i < count; i++) {
        const harpe_profile_row *row = sorted[i], *before = i > 0 ? sorted[i - 1] : NULL;
        bool is_same = before && row->stage == before->stage && row->rank == before->rank &&
                       row->frequency_mhz == before->frequency_mhz;
        if (is_same && row->switch_latency_us != before->switch_latency_us)
            return fail_latency(file_name, row, before, error);
        out->items[i] = (harpe_latency){.owner = row->stage,
                                        .frequency_mhz = row->frequency_mhz,
                                        .latency_s = row->switch_latency_us / US_PER_S};
    }
    out->count = count;
    return HARPE_OK;
}

/* Finds the latencies of the rows. Rows of one stage, rank and frequency must agree; the longest of
 * all ranks counts. */
static harpe_status collect_latencies(const harpe_profile_rows *rows, const char *file_name,
                                      harpe_latencies *out, harpe_error *error) {
    harpe_latencies found = {0};
    bool has_latency = false;
    const harpe_profile_row **sorted = harpe_calloc(rows->count, sizeof *sorted);
    found.items = harpe_calloc(rows->count, sizeof *found.items);
    harpe_status status = sorted && found.items ? HARPE_OK : harpe_fail_memory(error);
    for (size_t i = 0; i < rows->count && status == HARPE_OK; i++) {
        sorted[i] = &rows->items[i];
        has_latency = has_latency || sorted[i]->switch_latency_us > 0;
    }
    if (has_latency) {
        qsort(sorted, rows->count, sizeof *sorted, compare_for_latency);
        status = take_latencies(sorted, rows->count, file_name, &found, error);
        harpe_latencies_sort(&found);
    }
    free(sorted);
    if (status == HARPE_OK && has_latency)
        *out = found;
    else
        free(found.items);
    return status;
}

/* ---- Aggregating ----------------------------------------------------------------------------- */

/* The data of aggregation. */
typedef struct aggregation {
    const harpe_profile_rows *rows;
    const char *file_name; /* NULL: the rows come from a caller's array */
    harpe_profile *profile;
    const harpe_profile_row **by_rank; /* scratch: rows of a stage, one or more for each rank */
} aggregation;

static int compare_ranks(const void *left, const void *right) {
    const harpe_profile_row *const *a = left, *const *b = right;
    if ((*a)->rank != (*b)->rank) return (*a)->rank < (*b)->rank ? -1 : 1;
    return ((*a)->source > (*b)->source) - ((*a)->source < (*b)->source);
}

/* Finds the blocking power of the stage of rows[start .. end). Rows that have it must agree. */
static harpe_status find_blocking_power(const aggregation *a, size_t start, size_t end,
                                        harpe_error *error) {
    const harpe_profile_row *rows = a->rows->items, *known = NULL;
    for (size_t i = start; i < end; i++) {
        if (rows[i].blocking_power_w <= 0) continue;
        if (!known) known = &rows[i];
        if (rows[i].blocking_power_w < known->blocking_power_w ||
            rows[i].blocking_power_w > known->blocking_power_w)
            return harpe_fail(error, row_status(a->file_name),
                              "%s: blocking_power is %g W, but %g W for stage %d in %s: give one "
                              "GPU's power, the same in all rows of the stage",
                              locate(a->file_name, &rows[i]).text, rows[i].blocking_power_w,
                              known->blocking_power_w, rows[i].stage,
                              name_row(a->file_name, known).text);
    }
    a->profile->blocking_power_w[rows[start].stage] = known ? known->blocking_power_w : 0;
    return HARPE_OK;
}

/* Counts the different ranks in rows[start .. end), and their GPUs. A rank must have the same
 * number of GPUs in all its rows. */
static harpe_status count_ranks(const aggregation *a, size_t start, size_t end, size_t *rank_count,
                                harpe_error *error) {
    const harpe_profile_row *rows = a->rows->items;
    size_t count = 0;
    for (size_t i = start; i < end; i++) {
        const harpe_profile_row *last = count > 0 ? a->by_rank[count - 1] : NULL;
        if (!last || last->rank != rows[i].rank || last->gpu_count != rows[i].gpu_count)
            a->by_rank[count++] = &rows[i];
    }
    qsort(a->by_rank, count, sizeof *a->by_rank, compare_ranks);
    int64_t gpus = 0;
    *rank_count = 0;
    for (size_t i = 0; i < count; i++) {
        const harpe_profile_row *row = a->by_rank[i], *before = i > 0 ? a->by_rank[i - 1] : NULL;
        if (!before || before->rank != row->rank) {
            ++*rank_count;
            gpus += row->gpu_count;
        } else if (before->gpu_count != row->gpu_count) {
            return harpe_fail(error, row_status(a->file_name),
                              "%s: gpus is %d, but %d for stage %d in %s: give the number of GPUs "
                              "that the stage's energies add up, the same in all its rows",
                              locate(a->file_name, row).text, row->gpu_count, before->gpu_count,
                              row->stage, name_row(a->file_name, before).text);
        }
    }
    if (gpus > HARPE_PROFILE_GPUS_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "%s: stage %d has %lld GPUs, at most %d can be planned",
                          locate(a->file_name, &rows[start]).text, rows[start].stage,
                          (long long)gpus, HARPE_PROFILE_GPUS_MAX);
    a->profile->gpu_count[rows[start].stage] = (int)gpus;
    return HARPE_OK;
}

/* ---- Repeats of one measurement -------------------------------------------------------------- */

/* The rows with the smallest and the largest value among rows[start .. end). */
typedef struct extremes {
    const harpe_profile_row *smallest, *largest;
    double spread; /* largest / smallest - 1 */
} extremes;

static double time_of(const harpe_profile_row *row) { return row->time_s; }
static double energy_of(const harpe_profile_row *row) { return row->energy_j; }

static extremes find_extremes(const harpe_profile_row *rows, size_t start, size_t end,
                              double (*value)(const harpe_profile_row *)) {
    extremes found = {&rows[start], &rows[start], 0};
    for (size_t i = start + 1; i < end; i++) {
        if (value(&rows[i]) < value(found.smallest)) found.smallest = &rows[i];
        if (value(&rows[i]) > value(found.largest)) found.largest = &rows[i];
    }
    found.spread = value(found.largest) / value(found.smallest) - 1;
    return found;
}

static harpe_status fail_disagreement(const aggregation *a, const char *what, const char *unit,
                                      const extremes *found,
                                      double (*value)(const harpe_profile_row *), double allowed,
                                      harpe_error *error) {
    bool is_larger_later = found->largest->source > found->smallest->source;
    const harpe_profile_row *later = is_larger_later ? found->largest : found->smallest;
    const harpe_profile_row *earlier = is_larger_later ? found->smallest : found->largest;
    return harpe_fail(error, row_status(a->file_name),
                      "%s: stage %d, instruction '%s' at %d MHz has %s %s %s here and %s %s in "
                      "%s; repeats of one measurement agree within %g %%: remove the wrong row",
                      locate(a->file_name, later).text, later->stage, a->rows->names[later->name],
                      later->frequency_mhz, what, HARPE_DIGITS(value(later), 6), unit,
                      HARPE_DIGITS(value(earlier), 6), unit, name_row(a->file_name, earlier).text,
                      100 * allowed);
}

/* Checks rows[start .. end), which are the rows of one rank for one point. If there are several,
 * refuses them if they differ too much, and otherwise records that they are averaged. */
static harpe_status check_repeats(const aggregation *a, size_t start, size_t end,
                                  harpe_error *error) {
    if (end - start < 2) return HARPE_OK;
    const harpe_profile_row *rows = a->rows->items;
    extremes times = find_extremes(rows, start, end, time_of);
    extremes energies = find_extremes(rows, start, end, energy_of);
    if (times.spread > HARPE_REPEAT_TIME_SPREAD_MAX)
        return fail_disagreement(a, "time", "s", &times, time_of, HARPE_REPEAT_TIME_SPREAD_MAX,
                                 error);
    if (energies.spread > HARPE_REPEAT_ENERGY_SPREAD_MAX)
        return fail_disagreement(a, "energy", "J", &energies, energy_of,
                                 HARPE_REPEAT_ENERGY_SPREAD_MAX, error);
    harpe_profile *profile = a->profile;
    if (!HARPE_ARRAY_RESERVE(profile->repeats, profile->repeat_capacity, profile->repeat_count + 1))
        return harpe_fail_memory(error);
    profile->repeats[profile->repeat_count++] = (harpe_profile_repeat){
        .stage = rows[start].stage,
        .rank = rows[start].rank,
        .instruction = a->rows->names[rows[start].name],
        .frequency_mhz = rows[start].frequency_mhz,
        .row_count = end - start,
        .first_row = rows[start].source,
        .last_row = rows[end - 1].source,
        .time_spread = times.spread,
        .energy_spread = energies.spread,
    };
    return HARPE_OK;
}

/* ---- From rows to points --------------------------------------------------------------------- */

/* Makes one point from rows[start .. end), which are sorted by rank: averages each rank's repeats,
 * then takes the longest time and the sum of the energies. */
static harpe_status aggregate_point(const aggregation *a, size_t start, size_t end,
                                    harpe_profile_point *point, size_t *rank_count,
                                    harpe_error *error) {
    const harpe_profile_row *rows = a->rows->items;
    *rank_count = 0;
    *point = (harpe_profile_point){.frequency_mhz = rows[start].frequency_mhz};
    for (size_t i = start; i < end;) {
        double time_sum_s = 0, energy_sum_j = 0;
        size_t first = i;
        for (; i < end && rows[i].rank == rows[first].rank; i++) {
            time_sum_s += rows[i].time_s;
            energy_sum_j += rows[i].energy_j;
        }
        harpe_status status = check_repeats(a, first, i, error);
        if (status != HARPE_OK) return status;
        double repeats = (double)(i - first);
        double time_s = time_sum_s / repeats;
        if (time_s > point->time_s) point->time_s = time_s;
        point->energy_j += energy_sum_j / repeats;
        ++*rank_count;
    }
    return HARPE_OK;
}

/* Appends the entry whose rows begin at rows[start] to the profile. The entry has the frequencies
 * at which all ranks of the stage were measured. `*next` receives the index after its last row. */
static harpe_status aggregate_entry(const aggregation *a, size_t start, size_t stage_ranks,
                                    size_t *point_count, size_t *next, harpe_error *error) {
    const harpe_profile_row *items = a->rows->items;
    size_t end = start, first_point = *point_count;
    while (end < a->rows->count && entry_key(&items[end]) == entry_key(&items[start])) {
        size_t first = end, ranks = 0;
        while (end < a->rows->count && point_key(&items[end]) == point_key(&items[first]))
            end++;
        harpe_profile_point point;
        harpe_status status = aggregate_point(a, first, end, &point, &ranks, error);
        if (status != HARPE_OK) return status;
        if (ranks == stage_ranks) a->profile->points[(*point_count)++] = point;
    }
    *next = end;
    const char *name = a->rows->names[items[start].name];
    if (*point_count == first_point)
        return harpe_fail(error, row_status(a->file_name),
                          "%s: stage %d, instruction '%s': no frequency was measured by all %zu "
                          "ranks of the stage; profile the same frequencies on every rank",
                          locate(a->file_name, &items[start]).text, items[start].stage, name,
                          stage_ranks);
    a->profile->entries[a->profile->entry_count++] = (harpe_profile_entry){
        .stage = items[start].stage,
        .instruction = name,
        .point_count = *point_count - first_point,
        .points = a->profile->points + first_point,
    };
    return HARPE_OK;
}

static harpe_status aggregate(const aggregation *a, harpe_error *error) {
    const harpe_profile_row *items = a->rows->items;
    size_t point_count = 0;
    harpe_status status = HARPE_OK;
    for (size_t start = 0; status == HARPE_OK && start < a->rows->count;) {
        size_t stage_end = start, stage_ranks = 0;
        while (stage_end < a->rows->count && items[stage_end].stage == items[start].stage)
            stage_end++;
        status = count_ranks(a, start, stage_end, &stage_ranks, error);
        if (status == HARPE_OK) status = find_blocking_power(a, start, stage_end, error);
        while (status == HARPE_OK && start < stage_end)
            status = aggregate_entry(a, start, stage_ranks, &point_count, &start, error);
    }
    return status;
}

/* Makes an empty profile with room for all points of the sorted rows. */
static harpe_profile *new_profile(const harpe_profile_rows *rows) {
    size_t entry_count = 0, point_count = 0;
    for (size_t i = 0; i < rows->count; i++) {
        const harpe_profile_row *row = &rows->items[i];
        entry_count += i == 0 || entry_key(row) != entry_key(row - 1);
        point_count += i == 0 || point_key(row) != point_key(row - 1);
    }
    harpe_profile *profile = harpe_calloc(1, sizeof *profile);
    if (!profile) return NULL;
    profile->stage_count = rows->items[rows->count - 1].stage + 1;
    profile->entries = harpe_calloc(entry_count, sizeof *profile->entries);
    profile->points = harpe_calloc(point_count, sizeof *profile->points);
    profile->gpu_count = harpe_calloc((size_t)profile->stage_count, sizeof *profile->gpu_count);
    profile->blocking_power_w =
        harpe_calloc((size_t)profile->stage_count, sizeof *profile->blocking_power_w);
    if (!profile->entries || !profile->points || !profile->gpu_count ||
        !profile->blocking_power_w) {
        harpe_profile_free(profile);
        return NULL;
    }
    return profile;
}

harpe_status harpe_profile_rows_finish(harpe_profile_rows *rows, const char *file_name,
                                       harpe_profile **out, harpe_error *error) {
    harpe_status status = sort_names(rows, error);
    if (status != HARPE_OK) return status;
    sort_rows(rows);
    status = check_stages(rows, file_name, error);
    if (status == HARPE_OK) status = check_ranks(rows, file_name, error);
    if (status != HARPE_OK) return status;

    harpe_profile *profile = new_profile(rows);
    const harpe_profile_row **scratch = harpe_calloc(rows->count, sizeof *scratch);
    if (!profile || !scratch) {
        status = harpe_fail_memory(error);
        goto done;
    }
    status = collect_latencies(rows, file_name, &profile->latencies, error);
    if (status == HARPE_OK)
        status = aggregate(&(aggregation){rows, file_name, profile, scratch}, error);
    if (status == HARPE_OK)
        status = harpe_profile_doubts_find(rows, file_name, profile->entries, &rows->name_memory,
                                           profile->warnings, error);
    if (status != HARPE_OK) goto done;
    profile->name_memory = rows->name_memory; /* contains the entries' names, and the warnings */
    rows->name_memory = (harpe_arena){0};
    *out = profile;
    profile = NULL;
done:
    free(scratch);
    harpe_profile_free(profile);
    return status;
}

/* ---- Public ---------------------------------------------------------------------------------- */

harpe_status harpe_profile_new(const harpe_measurement *rows, size_t row_count, harpe_profile **out,
                               harpe_error *error) {
    if (!out || !rows || row_count == 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "a profile needs at least one row and a place to put the result");
    harpe_profile_rows collected = {0};
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < row_count && status == HARPE_OK; i++) {
        const char *name = rows[i].instruction;
        size_t name_length = name ? strnlen(name, HARPE_INSTRUCTION_NAME_MAX + 1) : 0;
        harpe_profile_field fault = harpe_profile_row_fault(&rows[i], name_length);
        if (fault != HARPE_FIELD_COUNT) {
            status = harpe_fail(error, HARPE_INVALID_ARGUMENT, "row %zu: %s", i,
                                harpe_profile_field_rule(fault));
        } else {
            status = harpe_profile_rows_add(&collected, &rows[i], name_length, (uint32_t)i, error);
        }
    }
    if (status == HARPE_OK) status = harpe_profile_rows_finish(&collected, NULL, out, error);
    harpe_profile_rows_clear(&collected);
    return status;
}

size_t harpe_profile_measurements(const harpe_profile *profile, harpe_measurement *rows) {
    size_t count = 0;
    for (size_t e = 0; e < profile->entry_count; e++) {
        const harpe_profile_entry *entry = &profile->entries[e];
        for (size_t p = 0; p < entry->point_count; p++, count++)
            if (rows)
                rows[count] = (harpe_measurement){
                    .stage = entry->stage,
                    .rank = -1,
                    .instruction = entry->instruction,
                    .frequency_mhz = entry->points[p].frequency_mhz,
                    .time_s = entry->points[p].time_s,
                    .energy_j = entry->points[p].energy_j,
                    .blocking_power_w = profile->blocking_power_w[entry->stage],
                };
    }
    return count;
}

void harpe_profile_free(harpe_profile *profile) {
    if (!profile) return;
    free(profile->entries);
    free(profile->points);
    free(profile->gpu_count);
    free(profile->blocking_power_w);
    free(profile->latencies.items);
    free(profile->repeats);
    harpe_arena_free(&profile->name_memory);
    free(profile);
}

int harpe_profile_stage_count(const harpe_profile *profile) { return profile->stage_count; }

double harpe_profile_blocking_power_w(const harpe_profile *profile, int stage) {
    return stage >= 0 && stage < profile->stage_count ? profile->blocking_power_w[stage] : 0;
}

bool harpe_profile_has_switch_latency(const harpe_profile *profile) {
    return profile->latencies.count > 0;
}

double harpe_profile_switch_latency_s(const harpe_profile *profile, int stage, int frequency_mhz) {
    return harpe_latencies_find(&profile->latencies, stage, frequency_mhz);
}

int harpe_profile_gpu_count(const harpe_profile *profile, int stage) {
    return stage >= 0 && stage < profile->stage_count ? profile->gpu_count[stage] : 0;
}

size_t harpe_profile_repeat_count(const harpe_profile *profile) { return profile->repeat_count; }

const harpe_profile_repeat *harpe_profile_repeat_at(const harpe_profile *profile, size_t index) {
    return index < profile->repeat_count ? &profile->repeats[index] : NULL;
}

const char *harpe_profile_warning_at(const harpe_profile *profile, size_t index) {
    return index < HARPE_PROFILE_LINES_MAX ? profile->warnings[index] : NULL;
}

size_t harpe_profile_entry_count(const harpe_profile *profile) { return profile->entry_count; }

const harpe_profile_entry *harpe_profile_entry_at(const harpe_profile *profile, size_t index) {
    return index < profile->entry_count ? &profile->entries[index] : NULL;
}

const harpe_profile_entry *harpe_profile_find(const harpe_profile *profile, int stage,
                                              const char *instruction) {
    if (!profile || !instruction) return NULL;
    size_t low = 0, high = profile->entry_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const harpe_profile_entry *entry = &profile->entries[middle];
        int order = entry->stage != stage ? (entry->stage > stage) - (entry->stage < stage)
                                          : strcmp(entry->instruction, instruction);
        if (order == 0) return entry;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Collects measured rows: checks each number of a row, and stores rows and names compactly. A
 * million rows need 48 MB. */

#define STRINGIFY(x) #x
#define TO_STRING(x) STRINGIFY(x)

/* Limits for the numbers of a row. No pipeline instruction comes near them. Within them, the
 * planner's times, sums and slopes fit easily into 64 bits. */
#define TIME_MIN_S 1e-9
#define TIME_MAX_S 1e6
#define ENERGY_MIN_J 1e-12
#define ENERGY_MAX_J 1e9
#define BLOCKING_POWER_MAX_W 1e5
#define SWITCH_LATENCY_MAX_S 3600

#define NAME_SLOT_COUNT (2 * HARPE_PROFILE_NAME_MAX) /* a power of two */

/* ---- Checking one row ------------------------------------------------------------------------ */

const char *harpe_profile_field_rule(harpe_profile_field field) {
    static const char *const rules[HARPE_FIELD_COUNT] = {
        [HARPE_FIELD_STAGE] = "stage must be a whole number from 0 to " TO_STRING(HARPE_STAGE_MAX),
        [HARPE_FIELD_INSTRUCTION] = "instruction must be a name of 1 to " TO_STRING(
            HARPE_INSTRUCTION_NAME_MAX) " characters from A-Z, a-z, 0-9, '_', '.', ':' and '-'",
        [HARPE_FIELD_FREQUENCY] = "frequency must be a whole number of MHz from 0 (clock left "
                                  "alone) to " TO_STRING(HARPE_FREQUENCY_MAX_MHZ),
        [HARPE_FIELD_TIME] = "time must be a positive number of seconds, from 1e-9 to 1e6",
        [HARPE_FIELD_ENERGY] = "energy must be a positive number of joules, from 1e-12 to 1e9",
        [HARPE_FIELD_RANK] = "rank must be a whole number from 0 to 2147483646",
        [HARPE_FIELD_GPUS] =
            "gpus must be a whole number from 1 to " TO_STRING(HARPE_PROFILE_GPUS_MAX),
        [HARPE_FIELD_BLOCKING_POWER] =
            "blocking_power must be a positive number of watts, up to 100000",
        [HARPE_FIELD_SWITCH_LATENCY] = "switch_latency must be a number of seconds from 0 to 3600",
    };
    return field < HARPE_FIELD_COUNT ? rules[field] : "";
}

harpe_profile_field harpe_profile_row_fault(const harpe_measurement *row, size_t name_length) {
    if (row->stage < 0 || row->stage > HARPE_STAGE_MAX) return HARPE_FIELD_STAGE;
    if (!harpe_is_instruction_name(row->instruction, name_length)) return HARPE_FIELD_INSTRUCTION;
    if (row->frequency_mhz < 0 || row->frequency_mhz > HARPE_FREQUENCY_MAX_MHZ)
        return HARPE_FIELD_FREQUENCY;
    if (!(row->time_s >= TIME_MIN_S && row->time_s <= TIME_MAX_S)) return HARPE_FIELD_TIME;
    if (!(row->energy_j >= ENERGY_MIN_J && row->energy_j <= ENERGY_MAX_J))
        return HARPE_FIELD_ENERGY;
    if (row->rank < -1 || row->rank == INT32_MAX) return HARPE_FIELD_RANK;
    if (row->gpu_count < 0 || row->gpu_count > HARPE_PROFILE_GPUS_MAX) return HARPE_FIELD_GPUS;
    if (!(row->blocking_power_w >= 0 && row->blocking_power_w <= BLOCKING_POWER_MAX_W))
        return HARPE_FIELD_BLOCKING_POWER;
    if (!(row->switch_latency_s >= 0 && row->switch_latency_s <= SWITCH_LATENCY_MAX_S))
        return HARPE_FIELD_SWITCH_LATENCY;
    return HARPE_FIELD_COUNT;
}

/* ---- Collecting rows ------------------------------------------------------------------------- */

/* Returns the slot that contains the name, or the free slot for it. The hash function is FNV-1a,
 * with linear probing. The table is never more than half full. */
static size_t name_slot(const harpe_profile_rows *rows, const char *name, size_t length) {
    uint64_t hash = 14695981039346656037U;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 1099511628211U;
    size_t slot = (size_t)((hash ^ (hash >> 32)) % NAME_SLOT_COUNT);
    while (rows->name_slots[slot] != 0) {
        const char *other = rows->names[rows->name_slots[slot] - 1];
        if (strncmp(other, name, length) == 0 && other[length] == '\0') break;
        slot = (slot + 1) % NAME_SLOT_COUNT;
    }
    return slot;
}

static harpe_status intern_name(harpe_profile_rows *rows, const char *name, size_t length,
                                uint16_t *index, harpe_error *error) {
    if (!rows->name_slots) {
        rows->name_slots = harpe_calloc(NAME_SLOT_COUNT, sizeof *rows->name_slots);
        if (!rows->name_slots) return harpe_fail_memory(error);
    }
    size_t slot = name_slot(rows, name, length);
    if (rows->name_slots[slot] == 0) {
        if (rows->name_count == HARPE_PROFILE_NAME_MAX)
            return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                              "more than %d different instruction names; is the right column "
                              "called 'instruction'?",
                              HARPE_PROFILE_NAME_MAX);
        char *copy = harpe_arena_strdup(&rows->name_memory, name, length);
        if (!copy || !HARPE_ARRAY_RESERVE(rows->names, rows->name_capacity, rows->name_count + 1))
            return harpe_fail_memory(error);
        rows->names[rows->name_count++] = copy;
        rows->name_slots[slot] = (uint16_t)rows->name_count;
    }
    *index = (uint16_t)(rows->name_slots[slot] - 1);
    return HARPE_OK;
}

harpe_status harpe_profile_rows_add(harpe_profile_rows *rows, const harpe_measurement *row,
                                    size_t name_length, uint32_t source, harpe_error *error) {
    if (rows->count == HARPE_PROFILE_ROW_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "more than %d rows; average the repeats before planning",
                          HARPE_PROFILE_ROW_MAX);
    uint16_t name = 0;
    harpe_status status = intern_name(rows, row->instruction, name_length, &name, error);
    if (status != HARPE_OK) return status;
    if (!HARPE_ARRAY_RESERVE(rows->items, rows->capacity, rows->count + 1))
        return harpe_fail_memory(error);
    rows->items[rows->count++] = (harpe_profile_row){
        .time_s = row->time_s,
        .energy_j = row->energy_j,
        .blocking_power_w = row->blocking_power_w,
        .frequency_mhz = row->frequency_mhz,
        .rank = row->rank,
        .gpu_count = row->gpu_count > 0 ? row->gpu_count : 1,
        .source = source,
        .stage = (uint16_t)row->stage,
        .name = name,
        .switch_latency_us = (uint32_t)llround(row->switch_latency_s * 1e6),
    };
    return HARPE_OK;
}

harpe_status harpe_profile_rows_take(harpe_profile_rows *rows, const harpe_profile_rows *from,
                                     size_t number, harpe_error *error) {
    harpe_profile_row row = from->items[number];
    const char *name = from->names[row.name];
    harpe_status status = intern_name(rows, name, strlen(name), &row.name, error);
    if (status != HARPE_OK) return status;
    if (!HARPE_ARRAY_RESERVE(rows->items, rows->capacity, rows->count + 1))
        return harpe_fail_memory(error);
    rows->items[rows->count++] = row;
    return HARPE_OK;
}

void harpe_profile_rows_clear(harpe_profile_rows *rows) {
    free(rows->items);
    free(rows->names);
    free(rows->name_slots);
    harpe_arena_free(&rows->name_memory);
    *rows = (harpe_profile_rows){0};
}
