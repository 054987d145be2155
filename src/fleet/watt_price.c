/* SPDX-License-Identifier: Apache-2.0 */
/* The relaxation: the price of a watt in each group. At the optimum, a job has all segments of its
 * hull that gain more than the price in its group, and none that gain less.
 *
 * The groups are solved from the inside to the outside. The threshold of a group is the price at
 * which the segments that gain more fit into its limit, and those that gain as much no longer do.
 * Segments that an inner group has refused do not come back, because the limits of nested groups
 * form a polymatroid, in which taking the best segments first is exact (Federgruen and Groenevelt
 * 1986). The price in a group is the highest threshold of the groups around it.
 *
 * A threshold is found like a quantile by quickselect. A round asks what the jobs draw at a price,
 * and halves, for each job, the part of the hull that is still open. */
#include "fleet/watt_price.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "fleet/hull.h"

#define SAMPLE_COUNT 31

/* A job, or what an inner group can still take at its threshold, as a segment. */
typedef struct item {
    harpe_fleet_member *job; /* NULL: an inner group */
    size_t low, high;        /* the vertices between which the answer lies */
    size_t above, at_least;  /* answers of this round: segments that gain more; as much or more */
    double gain;             /* of an inner group */
    int64_t width_uw;
} item;

typedef struct search {
    harpe_fleet *fleet;
    item *items; /* whose part is open */
    size_t count, capacity;
    double *floor; /* [groups] highest threshold of the groups from here to the searched group */
    uint64_t random;
    int64_t taken_uw; /* what the closed parts draw */
} search;

/* ---- Items ----------------------------------------------------------------------------------- */

static int64_t width(const item *i, size_t from, size_t to) {
    if (!i->job) return to > from ? i->width_uw : 0;
    return i->job->hull.power_uw[to] - i->job->hull.power_uw[from];
}

static double gain_at(const item *i, size_t segment) {
    return i->job ? i->job->hull.gain[segment] : i->gain;
}

static bool add_item(search *s, item made) {
    if (made.low == made.high) return true;
    if (!HARPE_ARRAY_RESERVE(s->items, s->capacity, s->count + 1)) return false;
    s->items[s->count++] = made;
    return true;
}

/* Adds the jobs of a group with the segments that the groups inside of the searched group allow. */
static bool add_jobs(search *s, const harpe_fleet_group *group, double floor) {
    for (size_t k = 0; k < group->job_count; k++) {
        harpe_fleet_member *job = &s->fleet->jobs[group->jobs[k]];
        size_t last = job->hull.vertex_count - 1;
        size_t high =
            floor > 0 ? harpe_fleet_hull_above(&job->hull, floor, 0, last, job->vertex) : last;
        if (!add_item(s, (item){.job = job, .high = high})) return false;
    }
    return true;
}

/* Returns the group after `g` in the tree below `top`, or -1. */
static int next_group(const harpe_fleet_group *groups, int g, int top) {
    if (groups[g].first_child >= 0) return groups[g].first_child;
    while (g != top && groups[g].next_sibling < 0)
        g = groups[g].parent;
    return g == top ? -1 : groups[g].next_sibling;
}

/* Collects the items of the group `top`: jobs and inner groups. */
static bool collect(search *s, int top) {
    const harpe_fleet_group *groups = s->fleet->groups;
    s->count = 0;
    s->taken_uw = groups[top].least_uw;
    for (int g = top; g >= 0; g = next_group(groups, g, top)) {
        double around = g == top ? 0 : s->floor[groups[g].parent];
        s->floor[g] = g == top ? 0 : fmax(around, groups[g].threshold);
        item inner = {.gain = groups[g].threshold, .width_uw = groups[g].spare_uw, .high = 1};
        bool is_open = g != top && groups[g].threshold > around && groups[g].spare_uw > 0;
        if (is_open && !add_item(s, inner)) return false;
        if (!add_jobs(s, &groups[g], s->floor[g])) return false;
    }
    return true;
}

/* ---- One threshold --------------------------------------------------------------------------- */

static uint64_t next_random(search *s) {
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->random;
}

/* Returns the median gain of some open segments. */
static double choose_price(search *s) {
    double sample[SAMPLE_COUNT];
    size_t count = s->count < SAMPLE_COUNT ? s->count : SAMPLE_COUNT;
    for (size_t k = 0; k < count; k++) {
        const item *i = &s->items[s->count <= SAMPLE_COUNT ? k : next_random(s) % s->count];
        sample[k] = gain_at(i, i->low + next_random(s) % (i->high - i->low));
    }
    qsort(sample, count, sizeof *sample, harpe_compare_doubles);
    return sample[count / 2];
}

/* Asks all items what they draw at a price: with the segments that gain more, and with those that
 * gain as much or more. */
static void ask(search *s, double price, int64_t *above_uw, int64_t *at_least_uw) {
    *above_uw = *at_least_uw = s->taken_uw;
    for (size_t k = 0; k < s->count; k++) {
        item *i = &s->items[k];
        if (i->job) {
            i->above =
                harpe_fleet_hull_above(&i->job->hull, price, i->low, i->high, i->job->vertex);
            i->job->vertex = i->above;
        } else {
            i->above = i->gain > price ? 1 : 0;
        }
        i->at_least = i->above;
        if (i->above < i->high && gain_at(i, i->above) == price) i->at_least++;
        *above_uw += width(i, i->low, i->above);
        *at_least_uw += width(i, i->low, i->at_least);
    }
}

/* Keeps the open part on one side of the last price. */
static void narrow(search *s, bool is_dearer) {
    size_t kept = 0;
    for (size_t k = 0; k < s->count; k++) {
        item i = s->items[k];
        if (is_dearer) {
            i.high = i.above;
        } else {
            s->taken_uw += width(&i, i.low, i.at_least);
            i.low = i.at_least;
        }
        if (i.low < i.high) s->items[kept++] = i;
    }
    s->count = kept;
}

/* Finds the threshold of a group whose items are collected. It first tries prices near the last
 * threshold, until the answer lies between two of them, so that few segments stay open after a
 * change. */
static void find_threshold(search *s, harpe_fleet_group *group) {
    static const double steps[] = {0, 1e-4, 1e-2, 0.3};
    enum { STEP_COUNT = sizeof steps / sizeof steps[0] };
    double last = group->threshold;
    int64_t above_uw, at_least_uw = s->taken_uw;
    for (size_t k = 0; k < s->count; k++)
        at_least_uw += width(&s->items[k], s->items[k].low, s->items[k].high);
    group->threshold = 0;
    group->spare_uw = 0;
    if (at_least_uw <= group->limit_uw) return;
    size_t step = last > 0 ? 0 : STEP_COUNT;
    double direction = 0;
    for (;;) {
        bool is_near = step < STEP_COUNT;
        double price = is_near ? last * (1 + direction * steps[step]) : choose_price(s);
        ask(s, price, &above_uw, &at_least_uw);
        bool is_dearer = above_uw > group->limit_uw;
        if (!is_dearer && at_least_uw > group->limit_uw) {
            group->threshold = price;
            group->spare_uw = group->limit_uw - above_uw;
            return;
        }
        narrow(s, is_dearer);
        double towards = is_dearer ? 1 : -1;
        step = direction != 0 && towards != direction ? STEP_COUNT : step + is_near;
        direction = towards;
    }
}

/* ---- All groups ------------------------------------------------------------------------------ */

static int64_t least_of(const harpe_fleet *fleet, const harpe_fleet_group *group) {
    int64_t sum = 0;
    for (size_t k = 0; k < group->job_count; k++)
        sum += fleet->jobs[group->jobs[k]].hull.power_uw[0];
    return sum;
}

/* Sets the least power and the limit of each group, from the inside to the outside. */
static void set_limits(harpe_fleet *fleet) {
    harpe_fleet_group *groups = fleet->groups;
    for (size_t g = 0; g < fleet->group_count; g++)
        if (groups[g].is_changed) groups[g].least_uw = least_of(fleet, &groups[g]);
    for (size_t g = fleet->group_count; g-- > 1;)
        if (groups[groups[g].parent].is_changed)
            groups[groups[g].parent].least_uw += groups[g].least_uw;
    for (size_t g = 0; g < fleet->group_count; g++) {
        const harpe_fleet_budget *budget = &groups[g].budget;
        double limit_w = budget->watts * (1 - budget->margin) / budget->overhead;
        groups[g].budget_uw = budget->watts < 0 ? HARPE_FLEET_NO_LIMIT : llround(limit_w * 1e6);
        groups[g].limit_uw = groups[g].budget_uw;
        if (groups[g].limit_uw < groups[g].least_uw) groups[g].limit_uw = groups[g].least_uw;
    }
}

static void set_prices(harpe_fleet *fleet) {
    harpe_fleet_group *groups = fleet->groups;
    for (size_t g = 0; g < fleet->group_count; g++) {
        groups[g].price = groups[g].threshold;
        if (g > 0 && groups[groups[g].parent].price > groups[g].price)
            groups[g].price = groups[groups[g].parent].price;
        for (size_t k = 0; k < groups[g].job_count; k++) {
            harpe_fleet_member *job = &fleet->jobs[groups[g].jobs[k]];
            job->vertex = harpe_fleet_hull_above(&job->hull, groups[g].price, 0,
                                                 job->hull.vertex_count - 1, job->vertex);
        }
    }
}

harpe_status harpe_fleet_price_watts(harpe_fleet *fleet, harpe_error *error) {
    search s = {.fleet = fleet,
                .floor = harpe_calloc(fleet->group_count, sizeof *s.floor),
                .random = UINT64_C(0x9E3779B97F4A7C15)};
    bool has_memory = s.floor;
    if (has_memory) set_limits(fleet);
    for (size_t g = fleet->group_count; has_memory && g-- > 0;) {
        harpe_fleet_group *group = &fleet->groups[g];
        if (!group->is_changed) continue;
        if (group->limit_uw == HARPE_FLEET_NO_LIMIT) {
            group->threshold = 0;
            group->spare_uw = 0;
            continue;
        }
        has_memory = collect(&s, (int)g);
        if (has_memory) find_threshold(&s, group);
    }
    if (has_memory) set_prices(fleet);
    free(s.items);
    free(s.floor);
    return has_memory ? HARPE_OK : harpe_fail_memory(error);
}
