/* SPDX-License-Identifier: Apache-2.0 */
/* Solves a fleet: from the plans of each job to its options and their lower convex hull, from the
 * hulls to the price of a watt in each group, which is the relaxation, and with rounding.c from the
 * prices to a plan of each job.
 *
 * At the optimum of the relaxation, a job has all segments of its hull that gain more than the
 * price in its group, and none that gain less. The groups are solved from the inside to the
 * outside. The threshold of a group is the price at which the segments that gain more fit into its
 * limit, and those that gain as much no longer do. Segments that an inner group has refused do not
 * come back, because the limits of nested groups form a polymatroid, in which taking the best
 * segments first is exact (Federgruen and Groenevelt 1986). The price in a group is the highest
 * threshold of the groups around it.
 *
 * A threshold is found like a quantile by quickselect. A round asks what the jobs draw at a price,
 * and halves, for each job, the part of the hull that is still open. */
#include "fleet/fleet_internal.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "fleet/fleet_tools.h"

/* ---- Hulls (Andrew's monotone chain) --------------------------------------------------------- */

double harpe_fleet_cost(const harpe_fleet_member *job, const harpe_fleet_price *price,
                        double overhead, size_t plan) {
    double slowdown = job->plans[plan].time_s / job->plans[0].time_s;
    double per_j = (price->energy_per_kwh +
                    price->carbon_per_kg * price->carbon_g_per_kwh / HARPE_GRAMS_PER_KG) /
                   HARPE_JOULES_PER_KWH;
    double value = price->value_per_s > 0 ? price->value_per_s : 1;
    return value * job->weight * (slowdown - 1) +
           per_j * overhead * job->plans[plan].power_w * slowdown;
}

static int compare_options(const void *left, const void *right) {
    const harpe_fleet_option *a = left, *b = right;
    if (a->power_uw != b->power_uw) return a->power_uw < b->power_uw ? -1 : 1;
    if (a->cost != b->cost) return a->cost < b->cost ? -1 : 1;
    return (a->plan > b->plan) - (a->plan < b->plan);
}

/* Fills `options` with the plans that the job accepts, by increasing power. Returns their number.
 */
static size_t accepted_plans(const harpe_fleet_member *job, const harpe_fleet_price *price,
                             double overhead, harpe_fleet_option *options) {
    size_t count = 0;
    bool is_sorted = true;
    for (size_t k = job->plan_count; k-- > 0;) {
        double slowdown = job->plans[k].time_s / job->plans[0].time_s;
        if (job->max_slowdown > 0 && slowdown > job->max_slowdown) continue;
        options[count] = (harpe_fleet_option){.power_uw = llround(job->plans[k].power_w * 1e6),
                                              .cost = harpe_fleet_cost(job, price, overhead, k),
                                              .plan = k};
        if (count > 0 && compare_options(&options[count - 1], &options[count]) > 0)
            is_sorted = false;
        count++;
    }
    if (!is_sorted) qsort(options, count, sizeof *options, compare_options);
    return count;
}

/* Keeps the options that cost less than all options with less power. */
static size_t keep_best(harpe_fleet_option *options, size_t count) {
    size_t kept = 1;
    for (size_t i = 1; i < count; i++)
        if (options[i].cost < options[kept - 1].cost) options[kept++] = options[i];
    return kept;
}

static double gain_between(const harpe_fleet_option *low, const harpe_fleet_option *high) {
    return (low->cost - high->cost) / (double)(high->power_uw - low->power_uw);
}

/* Fills in the vertices and gains. Rounding cannot make two gains equal: a vertex whose two gains
 * are equal as doubles is left out. */
static void find_vertices(harpe_fleet_hull *hull) {
    size_t count = 0;
    for (size_t i = 0; i < hull->option_count; i++) {
        const harpe_fleet_option *option = &hull->options[i];
        double gain = 0;
        while (count > 0) {
            gain = gain_between(&hull->options[hull->vertices[count - 1]], option);
            if (count == 1 || gain < hull->gain[count - 2]) break;
            count--;
        }
        /* A gain below the smallest number is none. */
        if (count > 0 && !(gain > 0)) continue;
        if (count > 0) hull->gain[count - 1] = gain;
        hull->power_uw[count] = option->power_uw;
        hull->vertices[count++] = i;
    }
    hull->vertex_count = count;
}

harpe_status harpe_fleet_hull_make(harpe_fleet_member *job, const harpe_fleet_price *price,
                                   double overhead, harpe_error *error) {
    size_t count = job->plan_count;
    harpe_fleet_hull hull = {.options = harpe_calloc(count, sizeof *hull.options),
                             .vertices = harpe_calloc(count, sizeof *hull.vertices),
                             .power_uw = harpe_calloc(count, sizeof *hull.power_uw),
                             .gain = harpe_calloc(count, sizeof *hull.gain)};
    if (!hull.options || !hull.vertices || !hull.power_uw || !hull.gain) {
        harpe_fleet_hull_clear(&hull);
        return harpe_fail_memory(error);
    }
    hull.option_count = keep_best(hull.options, accepted_plans(job, price, overhead, hull.options));
    find_vertices(&hull);
    harpe_fleet_hull_clear(&job->hull);
    job->hull = hull;
    job->has_hull = true;
    job->vertex = 0;
    return HARPE_OK;
}

void harpe_fleet_hull_clear(harpe_fleet_hull *hull) {
    free(hull->options);
    free(hull->vertices);
    free(hull->power_uw);
    free(hull->gain);
    *hull = (harpe_fleet_hull){0};
}

/* Returns how many segments between the vertices `low` and `high` gain more than `gain`. The result
 * is a vertex. `hint` is a vertex that may be the result. */
static size_t vertex_above(const harpe_fleet_hull *hull, double gain, size_t low, size_t high,
                           size_t hint) {
    if (hint >= low && hint <= high && (hint == low || hull->gain[hint - 1] > gain) &&
        (hint == high || hull->gain[hint] <= gain))
        return hint;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (hull->gain[middle] > gain)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- The search of a threshold --------------------------------------------------------------- */

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
        size_t high = floor > 0 ? vertex_above(&job->hull, floor, 0, last, job->vertex) : last;
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
            i->above = vertex_above(&i->job->hull, price, i->low, i->high, i->job->vertex);
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
            job->vertex = vertex_above(&job->hull, groups[g].price, 0, job->hull.vertex_count - 1,
                                       job->vertex);
        }
    }
}

/* Solves the relaxation, in which a job may mix two plans: sets `least_uw`, `limit_uw`,
 * `threshold`, `spare_uw` and `price` of each group that has changed, and `vertex` of each job.
 * Groups that have not changed keep their thresholds. All jobs have hulls. On failure, all groups
 * must be solved again. */
static harpe_status price_watts(harpe_fleet *fleet, harpe_error *error) {
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

/* ---- Solving --------------------------------------------------------------------------------- */

/* The bound and the objective are equal if they differ by less than this part. */
#define EQUAL 1e-12

static harpe_status make_hulls(harpe_fleet *fleet, harpe_error *error) {
    double overhead = fleet->groups[0].budget.overhead;
    for (size_t j = 0; j < fleet->job_slots; j++) {
        harpe_fleet_member *job = &fleet->jobs[j];
        if (!job->is_used || job->has_hull) continue;
        harpe_status status = harpe_fleet_hull_make(job, &fleet->price, overhead, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

/* Returns the power of the relaxation's vertices in each group, weighted with the groups' own
 * prices and subtracted from the limits: what the relaxation gains by the rest of the limits. */
static double unused_at_vertices(const harpe_fleet *fleet) {
    double sum = 0;
    for (size_t g = 0; g < fleet->group_count; g++) {
        const harpe_fleet_group *group = &fleet->groups[g];
        double around = g > 0 ? fleet->groups[group->parent].price : 0;
        if (group->price > around)
            sum += (group->price - around) * (double)(group->limit_uw - group->vertex_uw);
    }
    return sum;
}

/* Sums up the power of the vertices of each group. */
static void add_vertices(harpe_fleet *fleet) {
    for (size_t g = 0; g < fleet->group_count; g++)
        fleet->groups[g].vertex_uw = 0;
    for (size_t g = fleet->group_count; g-- > 0;) {
        harpe_fleet_group *group = &fleet->groups[g];
        for (size_t k = 0; k < group->job_count; k++) {
            const harpe_fleet_member *job = &fleet->jobs[group->jobs[k]];
            group->vertex_uw += job->hull.power_uw[job->vertex];
        }
        if (g > 0) fleet->groups[group->parent].vertex_uw += group->vertex_uw;
    }
}

static bool is_feasible(const harpe_fleet *fleet) {
    for (size_t g = 0; g < fleet->group_count; g++) {
        const harpe_fleet_group *group = &fleet->groups[g];
        if (group->budget.watts >= 0 && group->budget_uw < group->least_uw) return false;
    }
    return true;
}

static void sum_up(harpe_fleet *fleet, bool is_complete, harpe_fleet_split *split) {
    *split = (harpe_fleet_split){.job_count = fleet->job_count};
    double bound = 0;
    for (size_t j = 0; j < fleet->job_slots; j++) {
        const harpe_fleet_member *job = &fleet->jobs[j];
        if (!job->is_used) continue;
        const harpe_fleet_option *chosen = &job->hull.options[job->option];
        const harpe_fleet_plan *plan = &job->plans[chosen->plan];
        split->power_w += plan->power_w;
        split->weighted_slowdown += job->weight * (plan->time_s / job->plans[0].time_s - 1);
        split->objective += chosen->cost;
        bound += job->hull.options[job->hull.vertices[job->vertex]].cost;
    }
    add_vertices(fleet);
    bound -= unused_at_vertices(fleet);
    split->lower_bound = fmin(bound, split->objective);
    split->is_optimal = is_complete || split->objective - bound <= EQUAL * fabs(split->objective);
    split->is_feasible = is_feasible(fleet);
}

bool harpe_fleet_is_solved(const harpe_fleet *fleet) { return fleet->is_solved; }

harpe_status harpe_fleet_solve(harpe_fleet *fleet, harpe_fleet_split *split, harpe_error *error) {
    if (!fleet->is_solved) {
        bool is_complete = false;
        harpe_status status = make_hulls(fleet, error);
        if (status == HARPE_OK) status = price_watts(fleet, error);
        if (status == HARPE_OK) status = harpe_fleet_round(fleet, &is_complete, error);
        if (status != HARPE_OK) return status;
        sum_up(fleet, is_complete, &fleet->split);
        for (size_t g = 0; g < fleet->group_count; g++)
            fleet->groups[g].is_changed = false;
        fleet->is_solved = true;
    }
    *split = fleet->split;
    return HARPE_OK;
}

/* ---- Reading the solution -------------------------------------------------------------------- */

static harpe_status check_solved(const harpe_fleet *fleet, harpe_error *error) {
    if (fleet->is_solved) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "the fleet has changed since it was solved; call harpe_fleet_solve");
}

harpe_status harpe_fleet_choice_of(const harpe_fleet *fleet, int job, harpe_fleet_choice *choice,
                                   harpe_error *error) {
    if (!harpe_fleet_job_name(fleet, job))
        return harpe_fail(error, HARPE_NOT_FOUND, "the fleet has no job %d", job);
    harpe_status status = check_solved(fleet, error);
    if (status != HARPE_OK) return status;
    const harpe_fleet_member *member = &fleet->jobs[job];
    const harpe_fleet_hull *hull = &member->hull;
    const harpe_fleet_option *chosen = &hull->options[member->option];
    const harpe_fleet_plan *plan = &member->plans[chosen->plan];
    double gain = 0;
    for (size_t o = member->option + 1; o < hull->option_count; o++) {
        double power = (double)(hull->options[o].power_uw - chosen->power_uw);
        gain = fmax(gain, (chosen->cost - hull->options[o].cost) / power);
    }
    *choice = (harpe_fleet_choice){.plan = chosen->plan,
                                   .time_s = plan->time_s,
                                   .power_w = plan->power_w,
                                   .slowdown = plan->time_s / member->plans[0].time_s,
                                   .gain_per_w = gain * 1e6,
                                   .price_per_w = fleet->groups[member->group].price * 1e6};
    return HARPE_OK;
}

harpe_status harpe_fleet_use_of(const harpe_fleet *fleet, int group, harpe_fleet_use *use,
                                harpe_error *error) {
    if (!harpe_fleet_group_name(fleet, group))
        return harpe_fail(error, HARPE_NOT_FOUND, "the fleet has no group %d", group);
    harpe_status status = check_solved(fleet, error);
    if (status != HARPE_OK) return status;
    const harpe_fleet_group *g = &fleet->groups[group];
    const harpe_fleet_budget *budget = &g->budget;
    bool has_budget = budget->watts >= 0;
    double around = group > 0 ? fleet->groups[g->parent].price : 0;
    int64_t missing = has_budget && g->least_uw > g->budget_uw ? g->least_uw - g->budget_uw : 0;
    *use = (harpe_fleet_use){.budget_w = has_budget ? budget->watts : -1,
                             .limit_w = has_budget ? (double)g->budget_uw * 1e-6 : -1,
                             .power_w = (double)g->power_uw * 1e-6,
                             .least_w = (double)g->least_uw * 1e-6,
                             .missing_w =
                                 (double)missing * 1e-6 * budget->overhead / (1 - budget->margin),
                             .price_per_w = (g->price - around) * 1e6};
    return HARPE_OK;
}
