/* SPDX-License-Identifier: Apache-2.0 */
/* Branch and bound for a block; see block.h. The relaxation of a box has the instructions and the
 * dependencies of the block, and for each event an edge that prices its time. */
#include "plan/block.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

#define J_PER_UW_PS 1e-18
#define MOST_EVENTS (2 * HARPE_BLOCK_MOST_MEMBERS + 2)
#define MOST_EDGES (HARPE_BLOCK_MOST_MEMBERS + HARPE_BLOCK_MOST_WAITS + 3 * MOST_EVENTS)
/* Instructions whose two halves are both solved before one of them is divided. */
#define MOST_TRIED 8

/* ---- Making ---------------------------------------------------------------------------------- */

static harpe_status allocate(harpe_block *b, harpe_error *error) {
    harpe_arena *arena = &b->arena;
    size_t members = HARPE_BLOCK_MOST_MEMBERS, events = MOST_EVENTS;
    b->instruction_of = harpe_arena_alloc(arena, members, sizeof *b->instruction_of);
    b->wait_of = harpe_arena_alloc(arena, HARPE_BLOCK_MOST_WAITS, sizeof *b->wait_of);
    b->number = harpe_arena_alloc(arena, (size_t)b->network->node_count, sizeof *b->number);
    b->event_at = harpe_arena_alloc(arena, events, sizeof *b->event_at);
    b->balance_uw = harpe_arena_alloc(arena, events, sizeof *b->balance_uw);
    b->price_time = harpe_arena_alloc(arena, events, sizeof *b->price_time);
    b->price_rate = harpe_arena_alloc(arena, events, sizeof *b->price_rate);
    b->price_energy = harpe_arena_alloc(arena, events, sizeof *b->price_energy);
    b->price = harpe_arena_alloc(arena, events, sizeof *b->price);
    b->first = harpe_arena_alloc(arena, members, sizeof *b->first);
    b->last = harpe_arena_alloc(arena, members, sizeof *b->last);
    b->order = harpe_arena_alloc(arena, members, sizeof *b->order);
    b->stamp = harpe_arena_alloc(arena, members, sizeof *b->stamp);
    b->place = harpe_arena_alloc(arena, (size_t)b->network->node_count, sizeof *b->place);
    b->part = harpe_arena_alloc(arena, b->problem->choice_count, sizeof(void *));
    bool complete = b->instruction_of && b->wait_of && b->number && b->event_at && b->balance_uw &&
                    b->price_time && b->price_rate && b->price_energy && b->price && b->first &&
                    b->last && b->order && b->stamp && b->place && b->part;
    if (!complete) return harpe_fail_memory(error);
    return harpe_relaxation_init(&b->relaxation, MOST_EVENTS, MOST_EDGES, error);
}

harpe_status harpe_block_init(harpe_block *block, const harpe_problem *problem,
                              const harpe_network *network, const harpe_relaxation_curves *curves,
                              harpe_error *error) {
    *block = (harpe_block){.problem = problem, .network = network, .curves = curves};
    harpe_status status = allocate(block, error);
    if (status != HARPE_OK) {
        harpe_block_clear(block);
        return status;
    }
    for (int32_t k = 0; k < network->node_count; k++) {
        block->place[network->topological_order[k]] = k;
        block->number[k] = -1;
    }
    return HARPE_OK;
}

void harpe_block_clear(harpe_block *block) {
    harpe_relaxation_clear(&block->relaxation);
    harpe_arena_free(&block->curve_arena);
    harpe_arena_free(&block->arena);
    free(block->boxes);
    free(block->open);
    memset(block, 0, sizeof *block);
}

/* ---- Curves ---------------------------------------------------------------------------------- */

static int32_t choice_of(const harpe_block *b, int32_t member) {
    return b->problem->choice_of[b->instruction_of[member]];
}

static int32_t option_count(const harpe_block *b, int32_t choice) {
    return b->curves->first_option[choice + 1] - b->curves->first_option[choice];
}

/* Computes the lower convex hull of some options, the fastest first, in whole numbers, and returns
 * the number of its points. Slower options need less energy. Rates strictly decrease: a segment
 * without room for flow would let the simplex method cycle. */
static int32_t find_hull(const int64_t *time_ps, const double *energy_j, int32_t count,
                         int64_t *times, int64_t *rates, double *energies) {
    int32_t top = -1;
    for (int32_t o = 0; o < count; o++) {
        int64_t rate = HARPE_FLOW_INFINITE;
        if (top >= 0 && time_ps[o] == times[top]) top--; /* rounded to the same time */
        for (; top >= 0; top--) {
            double saved_j = energies[top] - energy_j[o];
            double uw = saved_j / ((double)(time_ps[o] - times[top]) * J_PER_UW_PS);
            rate = (int64_t)fmin(uw, 2 * HARPE_STEEPEST_W * HARPE_UW_PER_W);
            if (top == 0 || rate < rates[top]) break;
        }
        if (top >= 0 && rate <= 0) continue;
        top++;
        times[top] = time_ps[o];
        rates[top] = top == 0 ? HARPE_FLOW_INFINITE : rate;
        energies[top] = energy_j[o];
    }
    rates[top + 1] = 0;
    return top + 1;
}

/* Makes the curve of the options `first` to `last` of a choice. */
static harpe_relaxation_curve *make_curve(harpe_block *b, int32_t choice, int32_t first,
                                          int32_t last) {
    int32_t from = b->curves->first_option[choice] + first, count = last - first + 1;
    size_t most = (size_t)count;
    harpe_relaxation_curve *curve = harpe_arena_alloc(&b->curve_arena, 1, sizeof *curve);
    int64_t *times = harpe_arena_alloc(&b->curve_arena, most, sizeof *times);
    int64_t *rates = harpe_arena_alloc(&b->curve_arena, most + 1, sizeof *rates);
    double *energies = harpe_arena_alloc(&b->curve_arena, most, sizeof *energies);
    if (!curve || !times || !rates || !energies) return NULL;
    int32_t points = find_hull(b->curves->option_time_ps + from, b->curves->option_energy_j + from,
                               count, times, rates, energies);
    *curve = (harpe_relaxation_curve){points - 1, times, rates, energies};
    return curve;
}

/* Returns the curve of some options of a choice; NULL if there is no memory. */
static const harpe_relaxation_curve *curve_of(harpe_block *b, int32_t choice, int32_t first,
                                              int32_t last) {
    size_t options = (size_t)option_count(b, choice);
    if (!b->part[choice]) {
        b->part[choice] = harpe_arena_alloc(&b->curve_arena, options * options, sizeof(void *));
        if (!b->part[choice]) return NULL;
    }
    harpe_relaxation_curve **at = &b->part[choice][(size_t)first * options + (size_t)last];
    if (!*at) *at = make_curve(b, choice, first, last);
    return *at;
}

static void forget_curves(harpe_block *b) {
    harpe_arena_free(&b->curve_arena);
    for (size_t c = 0; c < b->problem->choice_count; c++)
        b->part[c] = NULL;
}

/* ---- The graph of a block -------------------------------------------------------------------- */

static int compare_places(const void *a, const void *b, void *places) {
    int32_t x = ((const int32_t *)places)[*(const int32_t *)a];
    int32_t y = ((const int32_t *)places)[*(const int32_t *)b];
    return (x > y) - (x < y);
}

static bool belongs(const harpe_block *b, int32_t edge, int32_t number) {
    if (b->division->block_of[edge] == number) return true;
    /* A dependency without flow costs nothing, so any block may keep it. */
    return b->division->block_of[edge] < 0 && b->division->flow_uw[edge] == 0;
}

/* Numbers the events of the members, with the source first, in a topological order. */
static int32_t number_events(harpe_block *b) {
    const harpe_network *network = b->network;
    int32_t count = 0;
    b->event_at[count++] = network->source;
    b->number[network->source] = 0;
    for (int32_t k = 0; k < b->member_count; k++) {
        int32_t i = b->instruction_of[k], ends[2] = {network->tail[i], network->head[i]};
        for (int e = 0; e < 2; e++) {
            if (b->number[ends[e]] >= 0) continue;
            b->number[ends[e]] = 0;
            b->event_at[count++] = ends[e];
        }
    }
    qsort_r(b->event_at, (size_t)count, sizeof *b->event_at, compare_places, b->place);
    for (int32_t k = 0; k < count; k++)
        b->number[b->event_at[k]] = k;
    return count;
}

/* Lists the dependencies between events of the block. */
static void list_waits(harpe_block *b, int32_t number, int32_t events) {
    const harpe_network *network = b->network;
    b->wait_count = 0;
    for (int32_t k = 0; k < events; k++) {
        int32_t v = b->event_at[k];
        for (int32_t a = network->first_incidence[v]; a < network->first_incidence[v + 1]; a++) {
            int32_t e = network->incidences[a].edge;
            if (e < network->instruction_count || network->tail[e] != v) continue;
            if (b->number[network->head[e]] < 0 || !belongs(b, e, number)) continue;
            if (b->wait_count == HARPE_BLOCK_MOST_WAITS) return;
            b->wait_of[b->wait_count++] = e;
        }
    }
}

static void add_balance(harpe_block *b, int32_t edge) {
    int64_t flow = b->division->flow_uw[edge];
    b->balance_uw[b->number[b->network->tail[edge]]] -= flow;
    b->balance_uw[b->number[b->network->head[edge]]] += flow;
}

/* Adds an edge whose energy is the event's time times its balance. A positive balance makes a late
 * event expensive: the edge goes from the event to the end, and saves energy as it becomes
 * longer. */
static void add_price(harpe_block *b, int32_t event, int32_t end) {
    int64_t balance = b->balance_uw[event], rate = balance > 0 ? balance : -balance;
    double most_j = (double)rate * (double)b->division->deadline_ps * J_PER_UW_PS;
    b->price_time[event][0] = 0;
    b->price_time[event][1] = b->division->deadline_ps;
    b->price_rate[event][0] = HARPE_FLOW_INFINITE;
    b->price_rate[event][1] = rate;
    b->price_rate[event][2] = 0;
    b->price_energy[event][0] = balance > 0 ? most_j : 0;
    b->price_energy[event][1] = balance > 0 ? 0 : -most_j;
    b->price[event] = (harpe_relaxation_curve){1, b->price_time[event], b->price_rate[event],
                                               b->price_energy[event]};
    if (balance > 0)
        (void)harpe_relaxation_add(&b->relaxation, event, end, &b->price[event]);
    else
        (void)harpe_relaxation_add(&b->relaxation, 0, event, &b->price[event]);
}

/* Builds the relaxation with all options. */
static harpe_status build(harpe_block *b, int32_t number, harpe_error *error) {
    const harpe_network *network = b->network;
    harpe_relaxation *r = &b->relaxation;
    int32_t events = number_events(b), end = events;
    list_waits(b, number, events);
    harpe_relaxation_begin(r, events + 1, b->division->deadline_ps);
    memset(b->balance_uw, 0, (size_t)events * sizeof *b->balance_uw);
    bool complete = true;
    for (int32_t k = 0; k < b->member_count; k++) {
        int32_t i = b->instruction_of[k], choice = choice_of(b, k);
        const harpe_relaxation_curve *curve = curve_of(b, choice, 0, option_count(b, choice) - 1);
        complete = complete && curve;
        if (!curve) continue;
        (void)harpe_relaxation_add(r, b->number[network->tail[i]], b->number[network->head[i]],
                                   curve);
        add_balance(b, i);
    }
    for (int32_t k = 0; k < b->wait_count; k++) {
        int32_t e = b->wait_of[k];
        (void)harpe_relaxation_add_rigid(r, b->number[network->tail[e]],
                                         b->number[network->head[e]], 0);
        add_balance(b, e);
    }
    if (b->division->is_flat && b->number[network->sink] >= 0)
        b->balance_uw[b->number[network->sink]] = 0;
    for (int32_t v = 0; v < events; v++) {
        if (v > 0)
            (void)harpe_relaxation_add_rigid(r, 0, v, b->division->earliest_ps[b->event_at[v]]);
        (void)harpe_relaxation_add_rigid(r, v, end, b->division->before_end_ps[b->event_at[v]]);
        if (v > 0 && b->balance_uw[v] != 0) add_price(b, v, end);
    }
    for (int32_t v = 0; v < events; v++)
        b->number[b->event_at[v]] = -1;
    if (!complete) return harpe_fail_memory(error);
    harpe_relaxation_start(r);
    return HARPE_OK;
}

/* ---- Boxes ----------------------------------------------------------------------------------- */

/* Returns the bound that the present flow proves for the present box, from the energies of the
 * options themselves. */
static double proven_j(const harpe_block *b) {
    const harpe_relaxation *r = &b->relaxation;
    double sum_j = 0;
    for (int32_t e = 0; e < r->edge_count; e++) {
        const harpe_relaxation_edge *edge = &r->edges[e];
        double flow = (double)edge->flow * J_PER_UW_PS, least_j = INFINITY;
        if (e < b->member_count) {
            int32_t from = b->curves->first_option[choice_of(b, e)];
            for (int32_t o = b->first[e]; o <= b->last[e]; o++)
                least_j = fmin(least_j, b->curves->option_energy_j[from + o] +
                                            flow * (double)b->curves->option_time_ps[from + o]);
        } else {
            for (int32_t k = 0; k <= edge->curve->segment_count; k++)
                least_j = fmin(least_j,
                               edge->curve->energy_j[k] + flow * (double)edge->curve->time_ps[k]);
        }
        sum_j += least_j;
    }
    return sum_j;
}

/* Solves the relaxation of the present box. Returns the bound; INFINITY if the box has no plan. */
static double solve(harpe_block *b) {
    b->solved++;
    if (harpe_relaxation_solve(&b->relaxation, INFINITY) != HARPE_RELAXATION_OPTIMAL)
        return INFINITY;
    return proven_j(b);
}

static harpe_status limit_member(harpe_block *b, int32_t member, int32_t first, int32_t last,
                                 harpe_error *error) {
    const harpe_relaxation_curve *curve = curve_of(b, choice_of(b, member), first, last);
    if (!curve) return harpe_fail_memory(error);
    b->first[member] = first;
    b->last[member] = last;
    harpe_relaxation_change(&b->relaxation, member, curve);
    return HARPE_OK;
}

/* Makes a box the present one. The limits nearest to the box count. */
static harpe_status load_box(harpe_block *b, size_t box, harpe_error *error) {
    harpe_status status = HARPE_OK;
    b->present_stamp++;
    for (const harpe_block_box *at = &b->boxes[box]; at->parent >= 0; at = &b->boxes[at->parent]) {
        if (b->stamp[at->member] == b->present_stamp) continue;
        b->stamp[at->member] = b->present_stamp;
        if (status == HARPE_OK) status = limit_member(b, at->member, at->first, at->last, error);
    }
    for (int32_t k = 0; status == HARPE_OK && k < b->member_count; k++)
        if (b->stamp[k] != b->present_stamp)
            status = limit_member(b, k, 0, option_count(b, choice_of(b, k)) - 1, error);
    return status;
}

bool harpe_block_enter(harpe_block *block, size_t box) {
    if (load_box(block, box, NULL) != HARPE_OK) return false; /* cannot happen: the curves exist */
    return isfinite(solve(block));
}

static bool is_lower(const harpe_block *b, int32_t x, int32_t y) {
    if (b->boxes[x].bound_j != b->boxes[y].bound_j)
        return b->boxes[x].bound_j < b->boxes[y].bound_j;
    return x < y;
}

static void sift_down(harpe_block *b, size_t at) {
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < b->open_count; child++)
            if (is_lower(b, b->open[child], b->open[least])) least = child;
        if (least == at) return;
        int32_t moved = b->open[at];
        b->open[at] = b->open[least];
        b->open[least] = moved;
        at = least;
    }
}

static harpe_status add_box(harpe_block *b, harpe_block_box box, harpe_error *error) {
    if (!HARPE_ARRAY_RESERVE(b->boxes, b->box_capacity, b->box_count + 1) ||
        !HARPE_ARRAY_RESERVE(b->open, b->open_capacity, b->open_count + 1))
        return harpe_fail_memory(error);
    box.is_open = true;
    b->boxes[b->box_count] = box;
    size_t at = b->open_count++;
    b->open[at] = (int32_t)b->box_count++;
    while (at > 0 && is_lower(b, b->open[at], b->open[(at - 1) / 2])) {
        int32_t moved = b->open[at];
        b->open[at] = b->open[(at - 1) / 2];
        b->open[(at - 1) / 2] = moved;
        at = (at - 1) / 2;
    }
    return HARPE_OK;
}

/* ---- Branching ------------------------------------------------------------------------------- */

/* A way to divide the present box: `member` gets its options up to `middle`, or those after it. */
typedef struct branch {
    int32_t member, middle;
    double lower_j, upper_j; /* bounds of both halves */
    double score;
} branch;

/* Returns the option of a member before which its present duration lies, or -1 if the duration is
 * that of an option on the curve, and writes how much is lost by rounding it. */
static int32_t find_middle(const harpe_block *b, int32_t member, double *loss_j) {
    const int64_t *time_ps =
        b->curves->option_time_ps + b->curves->first_option[choice_of(b, member)];
    const harpe_relaxation_edge *edge = &b->relaxation.edges[member];
    int64_t span = harpe_relaxation_span_ps(&b->relaxation, member);
    if (edge->flow == 0 || b->first[member] == b->last[member]) return -1;
    for (int32_t k = 0; k <= edge->curve->segment_count; k++)
        if (edge->curve->time_ps[k] == span) return -1;
    if (span <= time_ps[b->first[member]] || span >= time_ps[b->last[member]]) return -1;
    int32_t middle = b->first[member];
    while (time_ps[middle + 1] <= span)
        middle++;
    int64_t below = span - time_ps[middle], above = time_ps[middle + 1] - span;
    if (below == 0) below = 1;
    *loss_j = (double)edge->flow * (double)(below < above ? below : above);
    return middle;
}

/* Lists the members to try, those that lose most by rounding first. */
static int list_candidates(const harpe_block *b, branch *tried) {
    int count = 0;
    for (int32_t k = 0; k < b->member_count; k++) {
        branch found = {.member = k};
        found.middle = find_middle(b, k, &found.score);
        if (found.middle < 0) continue;
        int at = count < MOST_TRIED ? count++ : MOST_TRIED;
        while (at > 0 && tried[at - 1].score < found.score) {
            if (at < MOST_TRIED) tried[at] = tried[at - 1];
            at--;
        }
        if (at < MOST_TRIED) tried[at] = found;
    }
    return count;
}

/* Solves both halves of a candidate, and restores the box. */
static harpe_status try_branch(harpe_block *b, branch *tried, double bound_j, harpe_error *error) {
    int32_t k = tried->member, first = b->first[k], last = b->last[k];
    harpe_status status = limit_member(b, k, first, tried->middle, error);
    if (status != HARPE_OK) return status;
    tried->lower_j = fmax(bound_j, solve(b));
    status = limit_member(b, k, tried->middle + 1, last, error);
    if (status != HARPE_OK) return status;
    tried->upper_j = fmax(bound_j, solve(b));
    double less = fmin(tried->lower_j, tried->upper_j) - bound_j;
    double more = fmax(tried->lower_j, tried->upper_j) - bound_j;
    tried->score = isfinite(less) ? 5 * less + fmin(more, 1e3 * (less + 1e-6)) : INFINITY;
    return limit_member(b, k, first, last, error);
}

/* Divides the present box, or finds that the relaxation has chosen an option for each member. */
static harpe_status divide(harpe_block *b, size_t box, bool *is_divided, harpe_error *error) {
    branch tried[MOST_TRIED], *best = NULL;
    double bound_j = b->boxes[box].bound_j;
    int count = list_candidates(b, tried);
    harpe_status status = HARPE_OK;
    for (int k = 0; status == HARPE_OK && k < count; k++) {
        status = try_branch(b, &tried[k], bound_j, error);
        if (!best || tried[k].score > best->score) best = &tried[k];
    }
    *is_divided = best;
    if (status != HARPE_OK || !best) return status;
    int32_t k = best->member, parent = (int32_t)box;
    harpe_block_box lower = {best->lower_j, parent, k, b->first[k], best->middle, true};
    harpe_block_box upper = {best->upper_j, parent, k, best->middle + 1, b->last[k], true};
    b->boxes[box].is_open = false;
    status = add_box(b, lower, error);
    return status == HARPE_OK ? add_box(b, upper, error) : status;
}

/* Divides the box with the lowest bound until it has an option for each member. */
static harpe_status search(harpe_block *b, size_t most_boxes, bool *is_exact, harpe_error *error) {
    *is_exact = false;
    while (b->box_count < most_boxes && !(b->is_over && b->is_over(b->user))) {
        size_t box = (size_t)b->open[0];
        harpe_status status = load_box(b, box, error);
        if (status != HARPE_OK) return status;
        double bound_j = solve(b);
        if (bound_j > b->boxes[box].bound_j) b->boxes[box].bound_j = bound_j;
        sift_down(b, 0);
        if ((size_t)b->open[0] != box) continue; /* another box has a lower bound now */
        bool is_divided = false;
        if (isfinite(bound_j)) status = divide(b, box, &is_divided, error);
        if (status != HARPE_OK) return status;
        *is_exact = !is_divided;
        if (*is_exact) return HARPE_OK;
        /* The halves do not have lower bounds, and come later: the box is still the first one. */
        b->open[0] = b->open[--b->open_count];
        sift_down(b, 0);
    }
    return HARPE_OK;
}

/* The last box has a corner of the curve for each member, or more time than its slowest one. */
void harpe_block_read(const harpe_block *block, int32_t *option) {
    const harpe_block *b = block;
    for (int32_t k = 0; k < b->member_count; k++) {
        const int64_t *time_ps =
            b->curves->option_time_ps + b->curves->first_option[choice_of(b, k)];
        int64_t span = harpe_relaxation_span_ps(&b->relaxation, k);
        int32_t chosen = b->first[k];
        const harpe_relaxation_curve *curve = b->relaxation.edges[k].curve;
        for (int32_t c = 0; c <= curve->segment_count; c++)
            while (chosen < b->last[k] && curve->time_ps[c] <= span &&
                   time_ps[chosen + 1] <= curve->time_ps[c])
                chosen++;
        option[b->instruction_of[k]] = chosen;
    }
}

harpe_status harpe_block_bound(harpe_block *block, const harpe_division *division, int32_t number,
                               size_t most_boxes, double *bound_j, bool *is_exact,
                               harpe_error *error) {
    harpe_block *b = block;
    b->division = division;
    b->member_count = 0;
    for (int32_t i = 0; i < b->network->instruction_count; i++)
        if (division->block_of[i] == number) b->instruction_of[b->member_count++] = i;
    forget_curves(b);
    b->box_count = b->open_count = 0;
    harpe_status status = build(b, number, error);
    if (status != HARPE_OK) return status;
    for (int32_t k = 0; k < b->member_count; k++) {
        b->first[k] = 0;
        b->last[k] = option_count(b, choice_of(b, k)) - 1;
    }
    double all_j = solve(b);
    status = add_box(b, (harpe_block_box){all_j, -1, -1, 0, 0, true}, error);
    if (status == HARPE_OK) status = search(b, most_boxes, is_exact, error);
    *bound_j = b->boxes[b->open[0]].bound_j;
    return status;
}
