/* SPDX-License-Identifier: Apache-2.0 */
/* Dives; see search_internal.h. */
#include "plan/search_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

/* The widest dive. The states of a dive take at most about this much memory. */
#define MOST_WIDTH 256
#define MOST_STATE_BYTES ((size_t)64 << 20)
#define BYTES_PER_EDGE ((size_t)64)
/* Options that are tried for one instruction. */
#define MOST_TRIED 4
/* Two bounds that differ by less than this share of the mean energy of an option are mostly those
 * of the same plan in another order, for example with the clocks of two microbatches exchanged.
 * Only one of the two ways is kept, so that they are not all copies of one. */
#define SAME_BOUND 1e-5

/* A way to fix one more instruction. */
typedef struct harpe_dive_way {
    double bound_j;
    int slot; /* how the instructions before are fixed */
    int32_t option;
} way;

/* ---- Making ---------------------------------------------------------------------------------- */

harpe_diver harpe_diver_make(const harpe_problem *problem, const harpe_network *network,
                             const harpe_relaxation_curves *curves) {
    harpe_diver d = {.problem = problem, .network = network, .curves = curves};
    size_t width = MOST_STATE_BYTES / (((size_t)network->edge_count + 1) * BYTES_PER_EDGE);
    d.most_width = width < 1 ? 1 : width > MOST_WIDTH ? MOST_WIDTH : (int)width;
    int32_t options = curves->first_option[problem->choice_count];
    for (int32_t o = 0; o < options; o++)
        d.same_bound_j += SAME_BOUND / options * fabs(curves->option_energy_j[o]);
    return d;
}

/* Allocates what dives need, at the first one. */
static harpe_status prepare(harpe_diver *d, harpe_error *error) {
    if (d->relaxation.now.edges) return HARPE_OK;
    size_t count = (size_t)d->problem->instruction_count, slots = (size_t)d->most_width;
    d->option = harpe_arena_alloc(&d->arena, count, sizeof *d->option);
    d->order = harpe_arena_alloc(&d->arena, count, sizeof *d->order);
    d->start_ps = harpe_arena_alloc(&d->arena, count, sizeof *d->start_ps);
    d->state = harpe_arena_alloc(&d->arena, slots, sizeof *d->state);
    d->fixed = harpe_arena_alloc(&d->arena, slots, sizeof *d->fixed);
    d->alive = harpe_arena_alloc(&d->arena, slots, sizeof *d->alive);
    d->next_alive = harpe_arena_alloc(&d->arena, slots, sizeof *d->next_alive);
    d->is_taken = harpe_arena_alloc(&d->arena, slots, sizeof *d->is_taken);
    d->way = harpe_arena_alloc(&d->arena, slots, sizeof *d->way);
    if (d->arena.has_failed) return harpe_fail_memory(error);
    return harpe_relaxation_init(&d->relaxation, d->network, error);
}

void harpe_diver_clear(harpe_diver *diver) {
    harpe_relaxation_clear(&diver->relaxation);
    harpe_arena_free(&diver->arena);
    memset(diver, 0, sizeof *diver);
}

/* Makes as many slots as the width needs, or as memory allows. Returns their number. */
static int make_slots(harpe_diver *d, int width) {
    size_t count = (size_t)d->problem->instruction_count;
    while (d->slot_count < width && d->slot_count < d->most_width) {
        int slot = d->slot_count;
        d->fixed[slot] = harpe_arena_alloc(&d->arena, count, sizeof *d->fixed[slot]);
        if (!d->fixed[slot] || !harpe_relaxation_state_make(&d->state[slot], &d->arena, d->network))
            break;
        d->slot_count++;
    }
    return width < d->slot_count ? width : d->slot_count;
}

/* ---- Options --------------------------------------------------------------------------------- */

/* Lists the options near an instruction's relaxed duration: the two around it, and the two corners
 * of the hull around it. Returns their number, 1 if the duration is that of a corner. */
static int list_tried(const harpe_diver *d, int32_t instruction, int64_t duration_ps,
                      int32_t *tried) {
    const harpe_option_list *list = &harpe_problem_choice(d->problem, instruction)->list;
    const int64_t *times =
        d->curves->option_time_ps + d->curves->first_option[d->problem->choice_of[instruction]];
    int32_t last = (int32_t)list->option_count - 1, faster = 0, slower;
    while (faster < last && times[faster + 1] <= duration_ps)
        faster++;
    int count = 0;
    tried[count++] = faster;
    if (faster == last || (times[faster] == duration_ps && list->options[faster].is_on_hull))
        return count;
    slower = faster + 1;
    tried[count++] = slower;
    while (faster > 0 && !list->options[faster].is_on_hull)
        faster--;
    while (slower < last && !list->options[slower].is_on_hull)
        slower++;
    if (faster != tried[0]) tried[count++] = faster;
    if (slower != tried[1]) tried[count++] = slower;
    return count;
}

static void fix(harpe_diver *d, int32_t instruction, int32_t option) {
    int32_t first = d->curves->first_option[d->problem->choice_of[instruction]];
    harpe_relaxation_change(&d->relaxation, instruction, &d->curves->option[first + option]);
}

/* ---- Ways ------------------------------------------------------------------------------------ */

/* Returns the bound that a further way must be below. */
static double limit_of(const harpe_diver *d, int width) {
    return d->way_count < width ? INFINITY : d->way[width - 1].bound_j;
}

/* Keeps a way if it is among the best ones. Of ways with the same bound, the first one comes
 * first. */
static void keep_way(harpe_diver *d, int width, way found) {
    int at = d->way_count;
    while (at > 0 && d->way[at - 1].bound_j > found.bound_j)
        at--;
    if (at >= width) return;
    if (at > 0 && found.bound_j - d->way[at - 1].bound_j < d->same_bound_j) return;
    if (d->way_count < width) d->way_count++;
    for (int k = d->way_count - 1; k > at; k--)
        d->way[k] = d->way[k - 1];
    d->way[at] = found;
}

/* Tries the options of one instruction after the ways of a slot. */
static void try_options(harpe_diver *d, int slot, int32_t instruction, int width) {
    harpe_relaxation *r = &d->relaxation;
    int32_t tried[MOST_TRIED];
    harpe_relaxation_swap(r, &d->state[slot]);
    int count = list_tried(d, instruction, harpe_relaxation_span_ps(r, instruction), tried);
    if (count == 1 && r->now.objective_j < limit_of(d, width))
        keep_way(d, width, (way){r->now.objective_j, slot, tried[0]});
    for (int k = 0; k < count && count > 1; k++) {
        fix(d, instruction, tried[k]);
        if (harpe_relaxation_solve(r, limit_of(d, width)) == HARPE_RELAXATION_OPTIMAL)
            keep_way(d, width, (way){r->now.objective_j, slot, tried[k]});
    }
    harpe_relaxation_swap(r, &d->state[slot]);
}

/* Gives each way a slot. The first way of a slot keeps it, and the others get a copy in a slot that
 * is free now. */
static void give_slots(harpe_diver *d, int width) {
    size_t bytes = (size_t)d->problem->instruction_count * sizeof **d->fixed;
    int free_slot = 0;
    memset(d->is_taken, 0, (size_t)width);
    for (int k = 0; k < d->way_count; k++)
        d->is_taken[d->way[k].slot] = 1;
    for (int k = 0; k < d->way_count; k++) {
        int slot = d->way[k].slot;
        if (d->is_taken[slot] == 1) {
            d->is_taken[slot] = 2;
        } else {
            while (d->is_taken[free_slot])
                free_slot++;
            d->is_taken[free_slot] = 1;
            harpe_relaxation_state_copy(&d->relaxation, &d->state[free_slot], &d->state[slot]);
            memcpy(d->fixed[free_slot], d->fixed[slot], bytes);
            slot = free_slot;
        }
        d->next_alive[k] = slot;
    }
}

/* Takes the best ways. Returns false if there is none. */
static bool take_ways(harpe_diver *d, int32_t instruction, int width) {
    harpe_relaxation *r = &d->relaxation;
    give_slots(d, width);
    for (int k = 0; k < d->way_count; k++) {
        int slot = d->next_alive[k];
        harpe_relaxation_swap(r, &d->state[slot]);
        fix(d, instruction, d->way[k].option);
        (void)harpe_relaxation_solve(r, INFINITY); /* it was optimal when it was tried */
        d->fixed[slot][instruction] = d->way[k].option;
        harpe_relaxation_swap(r, &d->state[slot]);
    }
    int *swapped = d->alive;
    d->alive = d->next_alive;
    d->next_alive = swapped;
    d->alive_count = d->way_count;
    return d->alive_count > 0;
}

/* ---- Diving ---------------------------------------------------------------------------------- */

static int compare_starts(const void *a, const void *b, void *starts) {
    int64_t x = ((const int64_t *)starts)[*(const int32_t *)a];
    int64_t y = ((const int64_t *)starts)[*(const int32_t *)b];
    if (x != y) return x > y ? -1 : 1;
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : 1;
}

static void order_instructions(harpe_diver *d) {
    const harpe_relaxation *r = &d->relaxation;
    int32_t count = d->problem->instruction_count;
    for (int32_t i = 0; i < count; i++) {
        d->order[i] = i;
        d->start_ps[i] = harpe_relaxation_event_ps(r, r->now.edges[i].tail);
    }
    qsort_r(d->order, (size_t)count, sizeof *d->order, compare_starts, d->start_ps);
}

/* Fixes all instructions. Returns false if the dive was ended. */
static bool fix_all(harpe_diver *d, int width) {
    harpe_relaxation *r = &d->relaxation;
    harpe_relaxation_swap(r, &d->state[0]);
    d->alive[0] = 0;
    d->alive_count = 1;
    for (int32_t k = 0; k < d->problem->instruction_count; k++) {
        if (d->is_over && d->is_over(d->user)) return false;
        d->way_count = 0;
        for (int s = 0; s < d->alive_count; s++)
            try_options(d, d->alive[s], d->order[k], width);
        if (!take_ways(d, d->order[k], width)) return false;
    }
    return true;
}

harpe_status harpe_diver_dive(harpe_diver *diver, const harpe_frontier_solver *solver, int width,
                              bool *found, harpe_error *error) {
    harpe_diver *d = diver;
    *found = false;
    harpe_status status = prepare(d, error);
    if (status != HARPE_OK) return status;
    width = make_slots(d, width);
    if (width == 0) return harpe_fail_memory(error);
    harpe_relaxation_load(&d->relaxation, d->curves, solver);
    order_instructions(d);
    *found = fix_all(d, width);
    if (!*found) return HARPE_OK;
    const int32_t *fixed = d->fixed[d->alive[0]];
    d->energy_j = 0;
    for (int32_t i = 0; i < d->problem->instruction_count; i++) {
        d->option[i] = fixed[i];
        d->energy_j +=
            harpe_problem_choice(d->problem, i)->list.options[fixed[i]].effective_energy_j;
    }
    return HARPE_OK;
}
