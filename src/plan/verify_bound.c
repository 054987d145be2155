/* SPDX-License-Identifier: Apache-2.0 */
/* Verifies the lower bounds of plans that are higher than the relaxation's. The blocks and their
 * boxes are found again as they were found at first. Everything that the bound depends on is then
 * checked with code of its own: that the flow is conserved, that each instruction is in one block,
 * that the boxes of a block leave out no options, and that the flow of each box proves its bound.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/deadline_variant.h"
#include "plan/graph_deadline.h"
#include "plan/plan_set_contents.h"
#include "plan/tight_bound.h"
#include "plan/walk.h"

#define UW_PS_TO_J 1e-18
/* Sums of thousands of doubles agree within this part of the sizes of their terms. */
#define RELATIVE_TOLERANCE 1e-10

typedef struct checker {
    const harpe_problem *problem;
    const harpe_network *network;
    const harpe_walk *walk;
    int64_t deadline_ps; /* of the present cut */
    harpe_bounder bounder;
    harpe_relaxation_curves curves;
    int64_t *flow;                      /* [edge]: of the walk */
    int32_t *seen;                      /* [edge]: blocks that contain it */
    int64_t *longest_from, *longest_to; /* [event]: at the fastest options */
    int64_t *balance;                   /* [event] */
    int32_t *from, *to;                 /* [member]: the options of a box */
    double size_j;                      /* sum of the sizes of all terms */
} checker;

static harpe_status fail_check(const char *what, harpe_error *error) {
    return harpe_fail(error, HARPE_INTERNAL, "the proof of a lower bound is wrong: %s", what);
}

static const harpe_option_list *options_of(const checker *c, int32_t instruction) {
    return &harpe_problem_choice(c->problem, instruction)->list;
}

/* ---- The flow of the whole ------------------------------------------------------------------- */

static harpe_status check_flow(checker *c, harpe_error *error) {
    const harpe_network *network = c->network;
    memset(c->balance, 0, (size_t)network->node_count * sizeof *c->balance);
    for (int32_t e = 0; e < network->edge_count; e++) {
        if (c->flow[e] < 0) return fail_check("a flow is negative", error);
        c->balance[network->tail[e]] -= c->flow[e];
        c->balance[network->head[e]] += c->flow[e];
    }
    int64_t total = c->walk->solver.flow_uw;
    for (int32_t v = 0; v < network->node_count; v++) {
        int64_t wanted = v == network->sink ? total : v == network->source ? -total : 0;
        if (c->balance[v] != wanted) return fail_check("the flow is not conserved", error);
    }
    return HARPE_OK;
}

/* Computes longest paths by repetition, without the topological order. */
static void find_longest(checker *c) {
    const harpe_network *network = c->network;
    size_t bytes = (size_t)network->node_count * sizeof *c->longest_from;
    memset(c->longest_from, 0, bytes);
    memset(c->longest_to, 0, bytes);
    for (bool has_changed = true; has_changed;) {
        has_changed = false;
        for (int32_t e = 0; e < network->edge_count; e++) {
            int32_t tail = network->tail[e], head = network->head[e];
            int64_t length = 0;
            if (e < network->instruction_count)
                length = harpe_round_down(options_of(c, e)->options[0].time_s * HARPE_PS_PER_S);
            if (c->longest_from[tail] + length > c->longest_from[head]) {
                c->longest_from[head] = c->longest_from[tail] + length;
                has_changed = true;
            }
            if (c->longest_to[head] + length > c->longest_to[tail]) {
                c->longest_to[tail] = c->longest_to[head] + length;
                has_changed = true;
            }
        }
    }
}

/* ---- One block ------------------------------------------------------------------------------- */

/* Computes what each event of the block costs, and counts its edges. */
static void find_balance(checker *c, const harpe_cut *cut) {
    const harpe_block *block = &c->bounder.block;
    memset(c->balance, 0, (size_t)c->network->node_count * sizeof *c->balance);
    for (int32_t k = 0; k < block->member_count + block->wait_count; k++) {
        int32_t e = k < block->member_count ? block->instruction_of[k]
                                            : block->wait_of[k - block->member_count];
        c->balance[c->network->tail[e]] -= c->flow[e];
        c->balance[c->network->head[e]] += c->flow[e];
        c->seen[e]++;
    }
    if (cut->is_flat) c->balance[c->network->sink] = 0;
}

/* Checks that a box was divided into the two halves that follow it in the list, and that these have
 * all of its options. */
static harpe_status check_division(checker *c, size_t box, harpe_error *error) {
    const harpe_block *block = &c->bounder.block;
    const harpe_block_box *half[2] = {NULL, NULL};
    size_t count = 0;
    for (size_t k = box + 1; k < block->box_count; k++) {
        if (block->boxes[k].parent != (int32_t)box) continue;
        if (count < 2) half[count] = &block->boxes[k];
        count++;
    }
    if (count != 2 || half[0]->member != half[1]->member)
        return fail_check("a box is not divided into two", error);
    int32_t member = half[0]->member, from = 0;
    int32_t to = (int32_t)options_of(c, block->instruction_of[member])->option_count - 1;
    for (const harpe_block_box *at = &block->boxes[box]; at->parent >= 0;
         at = &block->boxes[at->parent]) {
        if (at->member != member) continue;
        from = at->first > from ? at->first : from;
        to = at->last < to ? at->last : to;
    }
    bool is_whole = half[0]->first == from && half[0]->last + 1 == half[1]->first &&
                    half[1]->last == to && half[0]->first <= half[0]->last &&
                    half[1]->first <= half[1]->last;
    return is_whole ? HARPE_OK : fail_check("a division leaves out options", error);
}

static void find_box(checker *c, size_t box) {
    const harpe_block *block = &c->bounder.block;
    for (int32_t k = 0; k < block->member_count; k++) {
        c->from[k] = 0;
        c->to[k] = (int32_t)options_of(c, block->instruction_of[k])->option_count - 1;
    }
    for (const harpe_block_box *at = &block->boxes[box]; at->parent >= 0;
         at = &block->boxes[at->parent]) {
        if (at->first > c->from[at->member]) c->from[at->member] = at->first;
        if (at->last < c->to[at->member]) c->to[at->member] = at->last;
    }
}

/* Returns the least energy plus flow times time of a member's options in the box. */
static double member_j(const checker *c, int32_t member, double flow) {
    const harpe_option_list *list = options_of(c, c->bounder.block.instruction_of[member]);
    double least_j = INFINITY;
    for (int32_t o = c->from[member]; o <= c->to[member]; o++) {
        double ps = (double)harpe_round_down(list->options[o].time_s * HARPE_PS_PER_S);
        least_j = fmin(least_j, list->options[o].effective_energy_j + flow * UW_PS_TO_J * ps);
    }
    return least_j;
}

/* Writes the part of an edge that is not a member, or INFINITY if the block has no such edge. The
 * event before the last number is the end of the iteration. */
static double other_j(const checker *c, int32_t e) {
    const harpe_block *block = &c->bounder.block;
    const harpe_relaxation_edge *edge = &block->relaxation.edges[e];
    int32_t end = block->relaxation.sink, tail = edge->tail, head = edge->head;
    double deadline = (double)c->deadline_ps * UW_PS_TO_J, flow = (double)edge->flow;
    int64_t length = edge->curve->time_ps[0];
    if (tail == end) /* to the source */
        return head == 0 && length == -c->deadline_ps ? -flow * deadline : INFINITY;
    int32_t event = block->event_at[head == end ? tail : head];
    if (edge->curve->segment_count == 1) {
        double price = (double)c->balance[event];
        if (head == end && price > 0) return fmin(price, flow) * deadline;
        if (tail == 0 && price < 0) return fmin(0, (price + flow) * deadline);
        return INFINITY;
    }
    int32_t wait = e - block->member_count;
    bool is_path = (head == end && length <= c->longest_to[event]) ||
                   (tail == 0 && length <= c->longest_from[event]);
    if (wait >= 0 && wait < block->wait_count) {
        int32_t of = block->wait_of[wait];
        is_path = length == 0 && of >= c->network->instruction_count && head != end &&
                  block->event_at[tail] == c->network->tail[of] &&
                  block->event_at[head] == c->network->head[of];
    }
    return is_path ? flow * UW_PS_TO_J * (double)length : INFINITY;
}

/* A block may claim more than its boxes prove by the rounding of flows. The bound of the whole does
 * not contain this part. */
static double flow_rounding_j(const checker *c, int32_t instruction_count) {
    return HARPE_FLOW_ROUNDING_W * instruction_count * (double)c->deadline_ps / HARPE_PS_PER_S;
}

/* Checks that the flow of an open box proves its bound. */
static harpe_status check_proof(checker *c, double claimed_j, harpe_error *error) {
    const harpe_block *block = &c->bounder.block;
    const harpe_relaxation *r = &block->relaxation;
    int64_t balance[2 * HARPE_BLOCK_MOST_MEMBERS + 2] = {0};
    uint8_t prices[2 * HARPE_BLOCK_MOST_MEMBERS + 2] = {0};
    double sum_j = 0, size_j = 0;
    for (int32_t e = 0; e < r->edge_count; e++) {
        const harpe_relaxation_edge *edge = &r->edges[e];
        if (edge->flow < 0) return fail_check("a flow in a block is negative", error);
        balance[edge->tail] -= edge->flow;
        balance[edge->head] += edge->flow;
        if (e >= block->member_count + block->wait_count && edge->curve->segment_count == 1)
            prices[edge->head == r->sink ? edge->tail : edge->head]++;
        double part_j = INFINITY;
        if (e >= block->member_count)
            part_j = other_j(c, e);
        else if (block->event_at[edge->tail] == c->network->tail[block->instruction_of[e]] &&
                 block->event_at[edge->head] == c->network->head[block->instruction_of[e]])
            part_j = member_j(c, e, (double)edge->flow);
        if (!isfinite(part_j)) return fail_check("a block has an edge of its own", error);
        sum_j += part_j;
        size_j += fabs(part_j);
    }
    for (int32_t v = 0; v < r->node_count; v++) {
        if (balance[v] != 0) return fail_check("a flow in a block is not conserved", error);
        bool has_price = v > 0 && v < r->sink && c->balance[block->event_at[v]] != 0;
        if (prices[v] != has_price) return fail_check("an event of a block has no price", error);
    }
    c->size_j = fmax(c->size_j, size_j);
    if (claimed_j <= sum_j + RELATIVE_TOLERANCE * size_j + flow_rounding_j(c, block->member_count))
        return HARPE_OK;
    return fail_check("the flow of a box does not reach its bound", error);
}

/* Checks that the fastest options of a box are too slow. */
static harpe_status check_empty(const checker *c, harpe_error *error) {
    const harpe_block *block = &c->bounder.block;
    const harpe_relaxation *r = &block->relaxation;
    int64_t longest[2 * HARPE_BLOCK_MOST_MEMBERS + 2] = {0};
    for (int32_t round = 0; round < r->node_count; round++) {
        for (int32_t e = 0; e < r->edge_count; e++) {
            const harpe_relaxation_edge *edge = &r->edges[e];
            if (edge->tail == r->sink) continue;
            int64_t length = edge->curve->time_ps[0];
            if (e < block->member_count)
                length = harpe_round_down(
                    options_of(c, block->instruction_of[e])->options[c->from[e]].time_s *
                    HARPE_PS_PER_S);
            else if (!isfinite(other_j(c, e)))
                return fail_check("a block has an edge of its own", error);
            if (longest[edge->tail] + length > longest[edge->head])
                longest[edge->head] = longest[edge->tail] + length;
        }
    }
    if (longest[r->sink] > c->deadline_ps) return HARPE_OK;
    return fail_check("a box without plans has plans", error);
}

/* Checks the bound of one block. */
static harpe_status check_block(checker *c, const harpe_cut *cut, int32_t number, double *bound_j,
                                harpe_error *error) {
    bool is_exact;
    harpe_block *block = &c->bounder.block;
    harpe_status status = harpe_bounder_block(&c->bounder, cut, number, bound_j, &is_exact, error);
    if (status != HARPE_OK) return status;
    find_balance(c, cut);
    if (block->box_count == 0 || block->boxes[0].parent >= 0)
        return fail_check("a block has no first box", error);
    for (size_t box = 0; box < block->box_count && status == HARPE_OK; box++) {
        if (!block->boxes[box].is_open) {
            status = check_division(c, box, error);
            continue;
        }
        bool has_plans = harpe_block_enter(block, box);
        find_box(c, box);
        status = has_plans ? check_proof(c, *bound_j, error) : check_empty(c, error);
    }
    return status;
}

/* ---- A cut ----------------------------------------------------------------------------------- */

static harpe_status check_cut(checker *c, const harpe_cut *cut, harpe_error *error) {
    double sum_j = 0, size_j = 0;
    for (int32_t e = 0; e < c->network->edge_count; e++)
        c->flow[e] = c->walk->solver.edges[e].flow;
    memset(c->seen, 0, (size_t)c->network->edge_count * sizeof *c->seen);
    harpe_status status = check_flow(c, error);
    if (status != HARPE_OK) return status;
    harpe_bounder_divide(&c->bounder, &c->walk->solver, cut);
    c->deadline_ps = cut->deadline_ps;
    for (int32_t k = 0; k < c->bounder.block_count && status == HARPE_OK; k++) {
        double bound_j = 0;
        c->size_j = 0;
        status = check_block(c, cut, k, &bound_j, error);
        sum_j += bound_j;
        size_j += c->size_j;
    }
    if (status != HARPE_OK) return status;
    for (int32_t e = 0; e < c->network->edge_count; e++) {
        bool is_instruction = e < c->network->instruction_count;
        if (is_instruction ? c->seen[e] != 1 : c->seen[e] > 1 && c->flow[e] > 0)
            return fail_check("an instruction is not in exactly one block", error);
    }
    double slope_w = harpe_problem_iteration_power_w(c->problem);
    double flow_w = cut->is_flat ? 0 : (double)c->walk->solver.flow_uw / HARPE_UW_PER_W;
    if (cut->variant_ps > 0) /* the iteration ends at the deadline */
        sum_j -= flow_w * ((double)cut->deadline_ps / HARPE_PS_PER_S);
    else
        slope_w -= flow_w;
    bool is_proven = fabs(slope_w - cut->slope_w) <= RELATIVE_TOLERANCE * (1 + fabs(slope_w)) &&
                     cut->energy_j + flow_rounding_j(c, c->network->instruction_count) <=
                         sum_j + RELATIVE_TOLERANCE * size_j;
    return is_proven ? HARPE_OK : fail_check("the blocks do not reach the bound", error);
}

static harpe_status checker_init(checker *c, const harpe_problem *problem, const harpe_walk *walk,
                                 harpe_error *error) {
    const harpe_network *network = &walk->network;
    *c = (checker){.problem = problem, .network = network, .walk = walk};
    size_t edges = (size_t)network->edge_count, events = (size_t)network->node_count;
    c->flow = harpe_calloc(edges, sizeof *c->flow);
    c->seen = harpe_calloc(edges, sizeof *c->seen);
    c->longest_from = harpe_calloc(events, sizeof *c->longest_from);
    c->longest_to = harpe_calloc(events, sizeof *c->longest_to);
    c->balance = harpe_calloc(events, sizeof *c->balance);
    c->from = harpe_calloc(HARPE_BLOCK_MOST_MEMBERS, sizeof *c->from);
    c->to = harpe_calloc(HARPE_BLOCK_MOST_MEMBERS, sizeof *c->to);
    if (!c->flow || !c->seen || !c->longest_from || !c->longest_to || !c->balance || !c->from ||
        !c->to)
        return harpe_fail_memory(error);
    harpe_status status = harpe_relaxation_curves_init(&c->curves, problem, network, error);
    if (status == HARPE_OK)
        status = harpe_bounder_init(&c->bounder, problem, network, &c->curves, error);
    if (status == HARPE_OK) find_longest(c);
    return status;
}

static void checker_clear(checker *c) {
    free(c->flow);
    free(c->seen);
    free(c->longest_from);
    free(c->longest_to);
    free(c->balance);
    free(c->from);
    free(c->to);
    if (c->bounder.problem) harpe_bounder_clear(&c->bounder);
    harpe_relaxation_curves_clear(&c->curves);
}

/* Checks that the plan's bound is that of its cut. */
static harpe_status check_plan(const harpe_plan *plan, const harpe_cut *cut, harpe_error *error) {
    double bound_j = harpe_cut_at(cut, plan->time_s);
    double size_j = fabs(plan->lower_bound_j) + fabs(cut->slope_w * plan->time_s);
    if (plan->lower_bound_j <= bound_j + RELATIVE_TOLERANCE * size_j &&
        plan->lower_bound_j <= plan->energy_j + RELATIVE_TOLERANCE * size_j)
        return HARPE_OK;
    return fail_check("a plan's bound is not that of its proof", error);
}

static bool is_same(const harpe_cut *a, const harpe_cut *b) {
    return a->deadline_ps == b->deadline_ps && a->energy_j == b->energy_j &&
           a->slope_w == b->slope_w;
}

/* Walks to each time at which a bound was found, the longest time first. */
static harpe_status check_cuts(checker *c, harpe_walk *walk, const harpe_plan_set *plans,
                               harpe_error *error) {
    harpe_status status = HARPE_OK;
    const harpe_cut *last = NULL;
    for (size_t i = plans->count; i-- > 0 && status == HARPE_OK;) {
        const harpe_cut *cut = &plans->cuts[i];
        if (cut->deadline_ps == 0) continue;
        status = check_plan(&plans->plans[i], cut, error);
        if (status == HARPE_OK && last && is_same(last, cut)) continue;
        if (status == HARPE_OK && cut->flow_ps > walk->solver.time_ps) {
            harpe_walk again;
            status = harpe_walk_begin(&again, c->problem, NULL, error);
            if (status == HARPE_OK) {
                harpe_walk_clear(walk);
                *walk = again;
            }
        }
        if (status == HARPE_OK) status = harpe_walk_to(walk, cut->flow_ps, error);
        if (status == HARPE_OK) status = check_cut(c, cut, error);
        last = cut;
    }
    return status;
}

static harpe_status verify_bounds(const harpe_problem *problem, const harpe_plan_set *plans,
                                  harpe_error *error) {
    harpe_walk walk;
    harpe_status status = harpe_walk_begin(&walk, problem, NULL, error);
    if (status != HARPE_OK) return status;
    checker c;
    status = checker_init(&c, problem, &walk, error);
    if (status == HARPE_OK) status = check_cuts(&c, &walk, plans, error);
    checker_clear(&c);
    harpe_walk_clear(&walk);
    return status;
}

/* Proves the bound of each plan of a graph with deadlines. The effort has found the bound of a plan
 * in a variant of the problem whose deadlines include the plan's own time, so this function makes
 * the same variant and proves the bound there. */
static harpe_status verify_variants(const harpe_problem *problem, const harpe_plan_set *plans,
                                    harpe_error *error) {
    harpe_deadline_variant variant;
    harpe_status status = harpe_deadline_variant_init(&variant, problem, error);
    for (size_t i = 0; i < plans->count && status == HARPE_OK; i++) {
        harpe_cut *cut = &plans->cuts[i];
        harpe_plan_set one = {.plans = &plans->plans[i], .count = 1, .cuts = cut};
        if (cut->deadline_ps == 0) continue;
        if (!isfinite(harpe_cut_at(cut, (double)cut->variant_ps / HARPE_PS_PER_S)) ||
            cut->variant_ps == 0)
            status = fail_check("it was not found for a graph with deadlines", error);
        harpe_deadline_variant_set_time(&variant, cut->variant_ps);
        if (status == HARPE_OK) status = verify_bounds(&variant.problem, &one, error);
    }
    harpe_deadline_variant_clear(&variant);
    return status;
}

harpe_status harpe_plan_set_verify(const harpe_problem *problem, const harpe_frontier *frontier,
                                   const harpe_plan_set *plans, harpe_error *error) {
    bool has_cuts = false;
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < plans->count && status == HARPE_OK; i++) {
        harpe_plan plan = plans->plans[i];
        if (plans->cuts && plans->cuts[i].deadline_ps > 0) {
            has_cuts = true;
            plan.lower_bound_j = harpe_frontier_bound_at(frontier, plan.time_s);
            if (plans->plans[i].lower_bound_j < plan.lower_bound_j)
                return fail_check("it is below that of the relaxation", error);
        }
        status = harpe_plan_verify(problem, frontier, &plan, error);
    }
    if (status != HARPE_OK || !has_cuts) return status;
    return harpe_problem_has_deadlines(problem) ? verify_variants(problem, plans, error)
                                                : verify_bounds(problem, plans, error);
}
