/* SPDX-License-Identifier: Apache-2.0 */
/* The history of the fleet's power: two rings, one of 10 s and one of minutes. If the wall clock
 * was ahead for a while, the points of that time are not shown until new points replace them. */
#include "server/fleet/fleet_state.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/json_text.h"
#include "base/text.h"

enum { SHORT_POINTS = 360, LONG_POINTS = 1440, QUANTITIES = 3 };

typedef struct point {
    double at_s; /* the beginning of its time; 0: none */
    double sums[QUANTITIES];
    int count, limited; /* samples, and those of them with a limit */
} point;

typedef struct ring {
    double step_s;
    size_t size;
    point *points;
} ring;

struct harpe_fleet_history {
    ring rings[2]; /* 10 s, and minutes */
    double last_s; /* the time of the last call of harpe_fleet_history_add; INFINITY: none */
    point short_points[SHORT_POINTS];
    point long_points[LONG_POINTS];
};

harpe_fleet_history *harpe_fleet_history_new(void) {
    harpe_fleet_history *history = harpe_calloc(1, sizeof *history);
    if (!history) return NULL;
    history->last_s = INFINITY;
    history->rings[0] = (ring){10, SHORT_POINTS, history->short_points};
    history->rings[1] = (ring){60, LONG_POINTS, history->long_points};
    return history;
}

void harpe_fleet_history_free(harpe_fleet_history *history) { free(history); }

static point *place_of(const ring *own, double at_s) {
    double index = floor(at_s / own->step_s);
    return &own->points[(size_t)fmod(index, (double)own->size)];
}

void harpe_fleet_history_add(harpe_fleet_history *history, double at_s, double measured_w,
                             double counted_w, double limit_w) {
    if (!(at_s > 0 && at_s < 1e12)) return;
    history->last_s = at_s;
    for (int r = 0; r < 2; r++) {
        const ring *own = &history->rings[r];
        double start_s = floor(at_s / own->step_s) * own->step_s;
        point *place = place_of(own, at_s);
        if (place->at_s != start_s) *place = (point){.at_s = start_s};
        place->sums[0] += measured_w;
        place->sums[1] += counted_w;
        if (limit_w >= 0) place->sums[2] += limit_w;
        place->limited += limit_w >= 0;
        place->count++;
    }
}

/* ---- Showing --------------------------------------------------------------------------------- */

static int compare_points(const void *a, const void *b) {
    const point *x = a;
    const point *y = b;
    return (x->at_s > y->at_s) - (x->at_s < y->at_s);
}

/* Returns the time of the oldest point that is younger than the ring is long. After a pause the
 * ring also holds older points. Newer points have replaced some of these, so that the rest has
 * gaps. */
static double first_s(const ring *own, double last_s) {
    double newest_s = -INFINITY, first = INFINITY;
    for (size_t i = 0; i < own->size; i++)
        if (own->points[i].count > 0 && own->points[i].at_s <= last_s)
            newest_s = fmax(newest_s, own->points[i].at_s);
    for (size_t i = 0; i < own->size; i++) {
        double at_s = own->points[i].at_s;
        bool is_old = at_s <= newest_s - (double)own->size * own->step_s;
        if (own->points[i].count > 0 && !is_old) first = fmin(first, at_s);
    }
    return first;
}

/* Copies the points from `from_s` to `to_s` into `into`, sorted by time, and returns their number.
 * Uses the points of 10 s where there are any, and minutes before them. */
static size_t collect(const harpe_fleet_history *history, double from_s, double to_s, point *into) {
    double last_s = history->last_s;
    double fine_s = first_s(&history->rings[0], last_s);
    to_s = fmin(to_s, last_s);
    size_t count = 0;
    for (int r = 0; r < 2; r++) {
        const ring *own = &history->rings[r];
        double own_s = r == 0 ? fine_s : first_s(own, last_s);
        for (size_t i = 0; i < own->size; i++) {
            const point *one = &own->points[i];
            bool is_asked = one->count > 0 && one->at_s >= fmax(from_s, own_s) && one->at_s <= to_s;
            if (is_asked && (r == 0 || one->at_s < fine_s)) into[count++] = *one;
        }
    }
    qsort(into, count, sizeof *into, compare_points);
    return count;
}

/* The limit is a mean like the power beside it. A mean power above the mean limit is a breach then,
 * and a limit that falls within the time is none. A time that was partly without a limit has none.
 */
static double value_of(const point *one, int quantity) {
    if (quantity < 0) return one->at_s;
    if (quantity == 2 && one->limited < one->count) return NAN;
    return one->sums[quantity] / one->count;
}

static void append_row(harpe_text *text, const char *name, const point *points, size_t count,
                       size_t stride, int quantity) {
    harpe_text_printf(text, "%s[", name);
    for (size_t i = 0; i < count; i += stride)
        harpe_json_number(text, i > 0 ? "," : "", round(value_of(&points[i], quantity) * 10) / 10);
    harpe_text_printf(text, "]");
}

void harpe_fleet_history_show(const harpe_fleet_history *history, double from_s, double to_s,
                              size_t points, harpe_text *text) {
    point *list = harpe_calloc(SHORT_POINTS + LONG_POINTS, sizeof *list);
    size_t count = list ? collect(history, from_s, to_s, list) : 0;
    size_t stride = points > 0 && count > points ? (count + points - 1) / points : 1;
    append_row(text, "{\"at\":", list, count, stride, -1);
    append_row(text, ",\"measured_w\":", list, count, stride, 0);
    append_row(text, ",\"counted_w\":", list, count, stride, 1);
    append_row(text, ",\"limit_w\":", list, count, stride, 2);
    harpe_text_printf(text, "}");
    if (!list) text->failed = true;
    free(list);
}

/* ---- Keeping --------------------------------------------------------------------------------- */

void harpe_fleet_history_save(const harpe_fleet_history *history, harpe_text *text) {
    const ring *own = &history->rings[1];
    const char *comma = "";
    harpe_text_printf(text, "{\"minutes\":[");
    for (size_t i = 0; i < own->size; i++) {
        const point *one = &own->points[i];
        if (one->count == 0) continue;
        harpe_text_printf(text, "%s[", comma);
        harpe_text_number(text, one->at_s);
        for (int q = 0; q < QUANTITIES; q++) {
            double value = value_of(one, q);
            harpe_text_printf(text, ",");
            harpe_text_number(text, isfinite(value) ? round(value * 10) / 10 : -1);
        }
        harpe_text_printf(text, "]");
        comma = ",";
    }
    harpe_text_printf(text, "]}");
}

void harpe_fleet_history_load(harpe_fleet_history *history, const char *text, size_t length) {
    json_t *object = json_loadb(text, length, 0, NULL);
    const json_t *list = json_object_get(object, "minutes");
    for (size_t i = 0; i < json_array_size(list) && i < LONG_POINTS; i++) {
        const json_t *row = json_array_get(list, i);
        double values[4];
        for (size_t v = 0; v < 4; v++)
            values[v] = json_number_value(json_array_get(row, v));
        if (!(values[0] > 0 && values[0] < 1e12)) continue;
        point *place = place_of(&history->rings[1], values[0]);
        *place = (point){.at_s = values[0],
                         .sums = {values[1], values[2], values[3]},
                         .count = 1,
                         .limited = values[3] >= 0};
    }
    json_decref(object);
}
