/* SPDX-License-Identifier: Apache-2.0 */
/* The beam search; see beam.h. */
#include "plan/beam.h"

#include <math.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

/* Options that are tried for one instruction. */
#define MOST_TRIED 4
/* Two bounds that differ by less than this share of the mean energy of an option are mostly those
 * of the same plan in another order, for example with the clocks of two microbatches exchanged.
 * Only one of the two ways is kept, so that the beam does not consist of copies. */
#define SAME_BOUND 1e-5

/* A way to fix one more instruction. */
typedef struct harpe_beam_way {
    double bound_j;
    int slot; /* how the instructions before are fixed */
    int32_t option;
} way;

harpe_status harpe_beam_init(harpe_beam *beam, const harpe_problem *problem,
                             const harpe_relaxation_curves *curves, size_t most_nodes,
                             size_t most_edges, size_t most_instructions, int most_width,
                             harpe_error *error) {
    harpe_beam b = {.problem = problem,
                    .curves = curves,
                    .most_nodes = most_nodes,
                    .most_edges = most_edges,
                    .most_instructions = most_instructions,
                    .most_width = most_width};
    size_t slots = (size_t)most_width;
    b.state = harpe_arena_alloc(&b.arena, slots, sizeof *b.state);
    b.fixed = harpe_arena_alloc(&b.arena, slots, sizeof *b.fixed);
    b.alive = harpe_arena_alloc(&b.arena, slots, sizeof *b.alive);
    b.next_alive = harpe_arena_alloc(&b.arena, slots, sizeof *b.next_alive);
    b.is_taken = harpe_arena_alloc(&b.arena, slots, sizeof *b.is_taken);
    b.way = harpe_arena_alloc(&b.arena, slots, sizeof *b.way);
    if (!b.state || !b.fixed || !b.alive || !b.next_alive || !b.is_taken || !b.way) {
        harpe_arena_free(&b.arena);
        return harpe_fail_memory(error);
    }
    int32_t options = curves->first_option[problem->choice_count];
    for (int32_t o = 0; o < options; o++)
        b.same_bound_j += SAME_BOUND / options * fabs(curves->option_energy_j[o]);
    *beam = b;
    return HARPE_OK;
}

void harpe_beam_clear(harpe_beam *beam) {
    harpe_arena_free(&beam->arena);
    memset(beam, 0, sizeof *beam);
}

/* Makes as many slots as the width needs, or as memory allows. Returns their number. */
static int make_slots(harpe_beam *b, int width) {
    while (b->slot_count < width && b->slot_count < b->most_width) {
        int slot = b->slot_count;
        b->fixed[slot] = harpe_arena_alloc(&b->arena, b->most_instructions, sizeof *b->fixed[slot]);
        if (!b->fixed[slot] ||
            !harpe_relaxation_state_make(&b->state[slot], &b->arena, b->most_nodes, b->most_edges))
            break;
        b->slot_count++;
    }
    return width < b->slot_count ? width : b->slot_count;
}

/* ---- Options --------------------------------------------------------------------------------- */

/* Lists the options near an instruction's relaxed duration: the two around it, and the two corners
 * of the hull around it. Returns their number, 1 if the duration is that of a corner. */
static int list_tried(const harpe_beam *b, int32_t instruction, int64_t duration_ps,
                      int32_t *tried) {
    const harpe_option_list *list = &harpe_problem_choice(b->problem, instruction)->list;
    const int64_t *times =
        b->curves->option_time_ps + b->curves->first_option[b->problem->choice_of[instruction]];
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

static void fix(const harpe_beam *b, harpe_relaxation *r, int32_t instruction, int32_t edge,
                int32_t option) {
    int32_t choice = b->problem->choice_of[instruction];
    harpe_relaxation_change(r, edge, &b->curves->option[b->curves->first_option[choice] + option]);
}

/* ---- Ways ------------------------------------------------------------------------------------ */

/* Returns the bound that a further way must be below. */
static double limit_of(const harpe_beam *b, int width, double limit_j) {
    return b->way_count < width ? limit_j : b->way[width - 1].bound_j;
}

/* Keeps a way if it is among the best ones. Of ways with the same bound, the first one comes
 * first. */
static void keep_way(harpe_beam *b, int width, way found) {
    int at = b->way_count;
    while (at > 0 && b->way[at - 1].bound_j > found.bound_j)
        at--;
    if (at >= width) return;
    if (at > 0 && found.bound_j - b->way[at - 1].bound_j < b->same_bound_j) return;
    if (b->way_count < width) b->way_count++;
    for (int k = b->way_count - 1; k > at; k--)
        b->way[k] = b->way[k - 1];
    b->way[at] = found;
}

/* Tries the options of one instruction after the ways of a slot. */
static void try_options(harpe_beam *b, harpe_relaxation *r, int slot, int32_t instruction,
                        int32_t edge, int width, double limit_j) {
    int32_t tried[MOST_TRIED];
    harpe_relaxation_swap(r, &b->state[slot]);
    int count = list_tried(b, instruction, harpe_relaxation_span_ps(r, edge), tried);
    if (count == 1) {
        if (r->objective_j < limit_of(b, width, limit_j))
            keep_way(b, width, (way){r->objective_j, slot, tried[0]});
    }
    for (int k = 0; k < count && count > 1; k++) {
        fix(b, r, instruction, edge, tried[k]);
        if (harpe_relaxation_solve(r, limit_of(b, width, limit_j)) == HARPE_RELAXATION_OPTIMAL)
            keep_way(b, width, (way){r->objective_j, slot, tried[k]});
    }
    harpe_relaxation_swap(r, &b->state[slot]);
}

/* Gives each way a slot. The first way of a slot keeps it, and the others get a copy in a slot that
 * is free now. */
static void give_slots(harpe_beam *b, const harpe_relaxation *r, int32_t count, int width) {
    int free_slot = 0;
    memset(b->is_taken, 0, (size_t)width);
    for (int k = 0; k < b->way_count; k++)
        b->is_taken[b->way[k].slot] = 1;
    for (int k = 0; k < b->way_count; k++) {
        int slot = b->way[k].slot;
        if (b->is_taken[slot] == 1) {
            b->is_taken[slot] = 2;
        } else {
            while (b->is_taken[free_slot])
                free_slot++;
            b->is_taken[free_slot] = 1;
            harpe_relaxation_state_copy(r, &b->state[free_slot], &b->state[slot]);
            memcpy(b->fixed[free_slot], b->fixed[slot], (size_t)count * sizeof *b->fixed[slot]);
            slot = free_slot;
        }
        b->next_alive[k] = slot;
    }
}

/* Takes the best ways. Returns false if there is none. */
static bool take_ways(harpe_beam *b, harpe_relaxation *r, int32_t instruction, int32_t edge,
                      int32_t count, int width) {
    give_slots(b, r, count, width);
    for (int k = 0; k < b->way_count; k++) {
        int slot = b->next_alive[k];
        harpe_relaxation_swap(r, &b->state[slot]);
        fix(b, r, instruction, edge, b->way[k].option);
        (void)harpe_relaxation_solve(r, INFINITY); /* it was optimal when it was tried */
        b->fixed[slot][edge] = b->way[k].option;
        harpe_relaxation_swap(r, &b->state[slot]);
    }
    int *swapped = b->alive;
    b->alive = b->next_alive;
    b->next_alive = swapped;
    b->alive_count = b->way_count;
    return b->alive_count > 0;
}

bool harpe_beam_fix(harpe_beam *beam, harpe_relaxation *relaxation, const int32_t *instruction_of,
                    const int32_t *order, int32_t count, int width, double limit_j,
                    int32_t *option) {
    harpe_beam *b = beam;
    width = make_slots(b, width);
    if (width == 0) return false;
    harpe_relaxation_swap(relaxation, &b->state[0]);
    b->alive[0] = 0;
    b->alive_count = 1;
    for (int32_t k = 0; k < count; k++) {
        int32_t edge = order[k], instruction = instruction_of[edge];
        if (b->is_over && b->is_over(b->user)) return false;
        b->way_count = 0;
        for (int s = 0; s < b->alive_count; s++)
            try_options(b, relaxation, b->alive[s], instruction, edge, width, limit_j);
        if (!take_ways(b, relaxation, instruction, edge, count, width)) return false;
    }
    b->energy_j = b->state[b->alive[0]].objective_j;
    memcpy(option, b->fixed[b->alive[0]], (size_t)count * sizeof *option);
    return true;
}
