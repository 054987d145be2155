/* SPDX-License-Identifier: Apache-2.0 */
/* Switching latencies by new clock; see latencies.h. */
#include "plan/latencies.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"

#define US_PER_S 1e6

static int compare_items(const void *left, const void *right) {
    const harpe_latency *a = left, *b = right;
    if (a->owner != b->owner) return a->owner < b->owner ? -1 : 1;
    if (a->frequency_mhz != b->frequency_mhz) return a->frequency_mhz < b->frequency_mhz ? -1 : 1;
    return (a->latency_s > b->latency_s) - (a->latency_s < b->latency_s);
}

void harpe_latencies_sort(harpe_latencies *latencies) {
    size_t kept = 0;
    if (latencies->count == 0) return;
    qsort(latencies->items, latencies->count, sizeof *latencies->items, compare_items);
    for (size_t i = 1; i < latencies->count; i++) {
        const harpe_latency *last = &latencies->items[kept], *next = &latencies->items[i];
        if (last->owner != next->owner || last->frequency_mhz != next->frequency_mhz) kept++;
        latencies->items[kept] = *next;
    }
    latencies->count = kept + 1;
}

double harpe_latencies_find(const harpe_latencies *latencies, int owner, int frequency_mhz) {
    size_t low = 0, high = latencies->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const harpe_latency *item = &latencies->items[middle];
        if (item->owner == owner && item->frequency_mhz == frequency_mhz) return item->latency_s;
        bool is_below =
            item->owner < owner || (item->owner == owner && item->frequency_mhz < frequency_mhz);
        if (is_below)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static int compare_rows(const void *left, const void *right) {
    const harpe_profile_row *const *a = left, *const *b = right;
    if ((*a)->stage != (*b)->stage) return (*a)->stage < (*b)->stage ? -1 : 1;
    if ((*a)->rank != (*b)->rank) return (*a)->rank < (*b)->rank ? -1 : 1;
    if ((*a)->frequency_mhz != (*b)->frequency_mhz)
        return (*a)->frequency_mhz < (*b)->frequency_mhz ? -1 : 1;
    return ((*a)->source > (*b)->source) - ((*a)->source < (*b)->source);
}

static harpe_status fail_disagreement(const char *file_name, const harpe_profile_row *row,
                                      const harpe_profile_row *before, harpe_error *error) {
    char where[512];
    if (file_name)
        snprintf(where, sizeof where, "%.480s:%u:1", file_name, row->source);
    else
        snprintf(where, sizeof where, "row %u", row->source);
    return harpe_fail(error, file_name ? HARPE_INVALID_INPUT : HARPE_INVALID_ARGUMENT,
                      "%s: switch_latency is %s s, but %s s for stage %d at %d MHz in %s %u: give "
                      "the time of a change to this clock, the same in all rows of the stage with "
                      "this frequency",
                      where, HARPE_DIGITS(row->switch_latency_us / US_PER_S, 6),
                      HARPE_DIGITS(before->switch_latency_us / US_PER_S, 6), row->stage,
                      row->frequency_mhz, file_name ? "line" : "row", before->source);
}

static bool has_latency(const harpe_profile_rows *rows) {
    for (size_t i = 0; i < rows->count; i++)
        if (rows->items[i].switch_latency_us > 0) return true;
    return false;
}

/* Fills in an item for each row. The rows are sorted. */
static harpe_status take_rows(const harpe_profile_row *const *sorted, size_t count,
                              const char *file_name, harpe_latencies *out, harpe_error *error) {
    for (size_t i = 0; i < count; i++) {
        const harpe_profile_row *row = sorted[i], *before = i > 0 ? sorted[i - 1] : NULL;
        bool is_same = before && row->stage == before->stage && row->rank == before->rank &&
                       row->frequency_mhz == before->frequency_mhz;
        if (is_same && row->switch_latency_us != before->switch_latency_us)
            return fail_disagreement(file_name, row, before, error);
        out->items[i] = (harpe_latency){.owner = row->stage,
                                        .frequency_mhz = row->frequency_mhz,
                                        .latency_s = row->switch_latency_us / US_PER_S};
    }
    out->count = count;
    return HARPE_OK;
}

harpe_status harpe_latencies_collect(const harpe_profile_rows *rows, const char *file_name,
                                     harpe_latencies *out, harpe_error *error) {
    harpe_latencies found = {0};
    if (!has_latency(rows)) {
        *out = found;
        return HARPE_OK;
    }
    const harpe_profile_row **sorted = harpe_calloc(rows->count, sizeof *sorted);
    found.items = harpe_calloc(rows->count, sizeof *found.items);
    harpe_status status = sorted && found.items ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) {
        for (size_t i = 0; i < rows->count; i++)
            sorted[i] = &rows->items[i];
        qsort(sorted, rows->count, sizeof *sorted, compare_rows);
        status = take_rows(sorted, rows->count, file_name, &found, error);
    }
    free(sorted);
    if (status != HARPE_OK) {
        free(found.items);
        return status;
    }
    harpe_latencies_sort(&found);
    *out = found;
    return HARPE_OK;
}
