/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding, slack spending, local search and joins; see solver.h. All use the function
 * set_option. It changes the option of one instruction, and updates earliest ends and latest starts
 * only at positions where they change. A change can be undone. */
#include "plan/solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

#define PS_PER_S HARPE_PS_PER_S
/* A difference in energy below this is a rounding error. */
#define SMALLEST_SAVING_J 1e-9
/* Largest number of options by which a trial of the local search makes an instruction faster. */
#define LARGEST_STEP 3

typedef enum change_kind { CHANGED_OPTION, CHANGED_END, CHANGED_LAST_START } change_kind;

/* A value that a trial has overwritten. */
typedef struct harpe_assignment_change {
    change_kind what;
    int32_t position;
    int64_t old_value;
} change;

/* ---- Making ---------------------------------------------------------------------------------- */

static harpe_status index_neighbours(harpe_assignment *a, const int32_t *position_of,
                                     harpe_error *error) {
    const harpe_dag *dag = &a->problem->dag;
    size_t n = (size_t)a->count, arcs = (size_t)dag->arc_count;
    a->first_before = harpe_arena_alloc(&a->arena, n + 2, sizeof(int32_t));
    a->first_after = harpe_arena_alloc(&a->arena, n + 2, sizeof(int32_t));
    a->before = harpe_arena_alloc(&a->arena, arcs, sizeof(int32_t));
    a->after = harpe_arena_alloc(&a->arena, arcs, sizeof(int32_t));
    if (a->arena.has_failed) return harpe_fail_memory(error);
    for (size_t k = 0; k < arcs; k++) {
        a->first_after[position_of[dag->arc_from[k]] + 2]++;
        a->first_before[position_of[dag->arc_to[k]] + 2]++;
    }
    for (size_t i = 2; i < n + 2; i++) {
        a->first_after[i] += a->first_after[i - 1];
        a->first_before[i] += a->first_before[i - 1];
    }
    for (size_t k = 0; k < arcs; k++) {
        int32_t from = position_of[dag->arc_from[k]], to = position_of[dag->arc_to[k]];
        a->after[a->first_after[from + 1]++] = to;
        a->before[a->first_before[to + 1]++] = from;
    }
    return HARPE_OK;
}

static harpe_status copy_options(harpe_assignment *a, harpe_error *error) {
    const harpe_problem *problem = a->problem;
    size_t total = 0;
    for (size_t c = 0; c < problem->choice_count; c++)
        total += problem->choices[c].list.option_count;
    int32_t *first = harpe_calloc(problem->choice_count, sizeof *first);
    a->option_time_ps = harpe_arena_alloc(&a->arena, total, sizeof(int64_t));
    a->option_energy_j = harpe_arena_alloc(&a->arena, total, sizeof(double));
    a->first_option = harpe_arena_alloc(&a->arena, (size_t)a->count, sizeof(int32_t));
    a->option_count = harpe_arena_alloc(&a->arena, (size_t)a->count, sizeof(int32_t));
    if (a->arena.has_failed || !first) {
        free(first);
        return harpe_fail_memory(error);
    }
    int32_t at = 0;
    for (size_t c = 0; c < problem->choice_count; c++) {
        const harpe_option_list *list = &problem->choices[c].list;
        first[c] = at;
        for (size_t o = 0; o < list->option_count; o++, at++) {
            /* Rounds like the network, so that a duration in the network equals the time of an
             * option. */
            a->option_time_ps[at] = harpe_round_down(list->options[o].time_s * PS_PER_S);
            a->option_energy_j[at] = list->options[o].effective_energy_j;
        }
    }
    for (int32_t i = 0; i < a->count; i++) {
        int32_t choice = problem->choice_of[a->instruction_at[i]];
        a->first_option[i] = first[choice];
        a->option_count[i] = (int32_t)problem->choices[choice].list.option_count;
    }
    free(first);
    return HARPE_OK;
}

static harpe_status allocate_state(harpe_assignment *a, harpe_error *error) {
    size_t n = (size_t)a->count;
    a->option = harpe_arena_alloc(&a->arena, n, sizeof *a->option);
    a->end_ps = harpe_arena_alloc(&a->arena, n, sizeof *a->end_ps);
    a->last_start_ps = harpe_arena_alloc(&a->arena, n, sizeof *a->last_start_ps);
    a->queue = harpe_arena_alloc(&a->arena, n, sizeof *a->queue);
    a->queued = harpe_arena_alloc(&a->arena, n, sizeof *a->queued);
    a->order = harpe_arena_alloc(&a->arena, n, sizeof *a->order);
    a->rank_key = harpe_arena_alloc(&a->arena, n, sizeof *a->rank_key);
    if (harpe_problem_has_any_wait_kinds(a->problem)) {
        size_t ranks = (size_t)a->problem->rank_count;
        a->rank_end_ps = harpe_arena_alloc(&a->arena, ranks, sizeof *a->rank_end_ps);
    }
    return a->arena.has_failed ? harpe_fail_memory(error) : HARPE_OK;
}

harpe_status harpe_assignment_init(harpe_assignment *assignment, const harpe_problem *problem,
                                   harpe_error *error) {
    harpe_assignment a = {.problem = problem, .count = problem->instruction_count};
    a.instruction_at = problem->dag.topological_order;
    int32_t *position_of = harpe_calloc((size_t)a.count, sizeof *position_of);
    if (!position_of) return harpe_fail_memory(error);
    for (int32_t i = 0; i < a.count; i++)
        position_of[a.instruction_at[i]] = i;
    harpe_status status = index_neighbours(&a, position_of, error);
    if (status == HARPE_OK) status = copy_options(&a, error);
    if (status == HARPE_OK) status = allocate_state(&a, error);
    free(position_of);
    if (status != HARPE_OK) {
        harpe_assignment_clear(&a);
        return status;
    }
    *assignment = a;
    return HARPE_OK;
}

void harpe_assignment_clear(harpe_assignment *assignment) {
    harpe_arena_free(&assignment->arena);
    free(assignment->changes);
    memset(assignment, 0, sizeof *assignment);
}

/* ---- Times ----------------------------------------------------------------------------------- */

static int64_t duration_ps(const harpe_assignment *a, int32_t i) {
    return a->option_time_ps[a->first_option[i] + a->option[i]];
}

static double option_energy_j(const harpe_assignment *a, int32_t i, int32_t option) {
    return a->option_energy_j[a->first_option[i] + option];
}

static int64_t start_ps(const harpe_assignment *a, int32_t i) {
    int64_t start = 0;
    for (int32_t k = a->first_before[i]; k < a->first_before[i + 1]; k++) {
        int64_t end = a->end_ps[a->before[k]];
        if (end > start) start = end;
    }
    return start;
}

static int64_t last_end_ps(const harpe_assignment *a, int32_t i) {
    int64_t last = a->deadline_ps;
    for (int32_t k = a->first_after[i]; k < a->first_after[i + 1]; k++) {
        int64_t start = a->last_start_ps[a->after[k]];
        if (start < last) last = start;
    }
    return last;
}

/* Returns the longest time that position i may take if nothing else changes. */
static int64_t room_ps(const harpe_assignment *a, int32_t i) {
    return last_end_ps(a, i) - start_ps(a, i);
}

static void compute_times(harpe_assignment *a) {
    a->energy_j = 0;
    for (int32_t i = 0; i < a->count; i++) {
        a->end_ps[i] = start_ps(a, i) + duration_ps(a, i);
        a->energy_j += option_energy_j(a, i, a->option[i]);
    }
    for (int32_t i = a->count - 1; i >= 0; i--)
        a->last_start_ps[i] = last_end_ps(a, i) - duration_ps(a, i);
    a->visits += 2 * (uint64_t)a->count;
}

/* Returns the slowest option that takes at most `most_ps`. Never returns an option faster than
 * `fastest`. */
static int32_t slowest_within(const harpe_assignment *a, int32_t i, int32_t fastest,
                              int64_t most_ps) {
    const int64_t *times = a->option_time_ps + a->first_option[i];
    int32_t option = fastest;
    while (option + 1 < a->option_count[i] && times[option + 1] <= most_ps)
        option++;
    return option;
}

/* ---- Changing one option, updating its neighbours, undoing ----------------------------------- */

static bool log_change(harpe_assignment *a, change_kind what, int32_t position, int64_t old_value) {
    if (!HARPE_ARRAY_RESERVE(a->changes, a->change_capacity, a->change_count + 1)) return false;
    change *entry = &a->changes[a->change_count++];
    entry->what = what;
    entry->position = position;
    entry->old_value = old_value;
    return true;
}

/* Adds to a heap of positions; `sign` 1: smallest first, -1: largest first. */
static void enqueue(harpe_assignment *a, int32_t position, int32_t sign) {
    if (a->queued[position]) return;
    a->queued[position] = 1;
    int32_t at = a->queue_size++;
    while (at > 0 && sign * a->queue[(at - 1) / 2] > sign * position) {
        a->queue[at] = a->queue[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    a->queue[at] = position;
}

static int32_t dequeue(harpe_assignment *a, int32_t sign) {
    int32_t first = a->queue[0], moved = a->queue[--a->queue_size], at = 0;
    for (;;) {
        int32_t below = 2 * at + 1;
        if (below >= a->queue_size) break;
        if (below + 1 < a->queue_size && sign * a->queue[below + 1] < sign * a->queue[below])
            below++;
        if (sign * a->queue[below] >= sign * moved) break;
        a->queue[at] = a->queue[below];
        at = below;
    }
    a->queue[at] = moved;
    a->queued[first] = 0;
    return first;
}

static bool repair_ends(harpe_assignment *a, int32_t position) {
    bool logged = true;
    enqueue(a, position, 1);
    while (a->queue_size > 0) {
        int32_t i = dequeue(a, 1);
        int64_t end = start_ps(a, i) + duration_ps(a, i);
        a->visits++;
        if (end == a->end_ps[i]) continue;
        logged = logged && log_change(a, CHANGED_END, i, a->end_ps[i]);
        a->end_ps[i] = end;
        for (int32_t k = a->first_after[i]; k < a->first_after[i + 1]; k++)
            enqueue(a, a->after[k], 1);
    }
    return logged;
}

static bool repair_last_starts(harpe_assignment *a, int32_t position) {
    bool logged = true;
    enqueue(a, position, -1);
    while (a->queue_size > 0) {
        int32_t i = dequeue(a, -1);
        int64_t last = last_end_ps(a, i) - duration_ps(a, i);
        a->visits++;
        if (last == a->last_start_ps[i]) continue;
        logged = logged && log_change(a, CHANGED_LAST_START, i, a->last_start_ps[i]);
        a->last_start_ps[i] = last;
        for (int32_t k = a->first_before[i]; k < a->first_before[i + 1]; k++)
            enqueue(a, a->before[k], -1);
    }
    return logged;
}

/* Changes an option. Returns false when there is no memory for the log; the assignment is then
 * consistent, but the change cannot be undone. */
static bool set_option(harpe_assignment *a, int32_t position, int32_t option) {
    if (!log_change(a, CHANGED_OPTION, position, a->option[position])) return false;
    a->energy_j +=
        option_energy_j(a, position, option) - option_energy_j(a, position, a->option[position]);
    a->option[position] = option;
    bool ends = repair_ends(a, position);
    return repair_last_starts(a, position) && ends;
}

static void undo(harpe_assignment *a, double energy_j) {
    while (a->change_count > 0) {
        const change *entry = &a->changes[--a->change_count];
        if (entry->what == CHANGED_OPTION)
            a->option[entry->position] = (int32_t)entry->old_value;
        else if (entry->what == CHANGED_END)
            a->end_ps[entry->position] = entry->old_value;
        else
            a->last_start_ps[entry->position] = entry->old_value;
    }
    a->energy_j = energy_j;
}

/* ---- Rounding -------------------------------------------------------------------------------- */

static int compare_descending(const void *a, const void *b, void *keys) {
    double x = ((const double *)keys)[*(const int32_t *)a];
    double y = ((const double *)keys)[*(const int32_t *)b];
    if (x != y) return x > y ? -1 : 1;
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : 1;
}

/* Returns the watts that the step to the next slower option saves, divided by the instruction's
 * price plus 1 W. Slack is spent in the order of these values, the highest first. Returns a
 * negative value if there is no slower option. */
static double saving_rank(const harpe_assignment *a, int32_t i, int64_t price_uw) {
    int32_t option = a->option[i];
    if (option + 1 >= a->option_count[i]) return -1;
    const int64_t *times = a->option_time_ps + a->first_option[i];
    double step_s = (double)(times[option + 1] - times[option]) / PS_PER_S;
    double saved_j = option_energy_j(a, i, option) - option_energy_j(a, i, option + 1);
    return saved_j / step_s / ((double)price_uw * 1e-6 + 1);
}

/* Goes through all instructions in the order of saving_rank, and slows each as far as its room
 * allows. Repeats this until a pass changes nothing. Without a relaxed solution the prices do not
 * affect the order. */
static bool spend_all_slack(harpe_assignment *a, const harpe_relaxed *relaxed) {
    bool found = true;
    while (found) {
        found = false;
        int32_t candidates = 0;
        for (int32_t i = 0; i < a->count; i++) {
            int64_t price_uw = relaxed ? relaxed->price_uw[a->instruction_at[i]] : 0;
            a->rank_key[i] = saving_rank(a, i, price_uw);
            if (a->rank_key[i] <= 0) continue;
            const int64_t *times = a->option_time_ps + a->first_option[i];
            if (times[a->option[i] + 1] <= room_ps(a, i)) a->order[candidates++] = i;
        }
        a->visits += (uint64_t)a->count;
        qsort_r(a->order, (size_t)candidates, sizeof *a->order, compare_descending, a->rank_key);
        for (int32_t k = 0; k < candidates; k++) {
            int32_t i = a->order[k];
            const int64_t *times = a->option_time_ps + a->first_option[i];
            if (times[a->option[i] + 1] > room_ps(a, i)) continue;
            a->change_count = 0;
            if (!set_option(a, i, a->option[i] + 1)) return false;
            found = true;
        }
    }
    return true;
}

harpe_status harpe_assignment_round(harpe_assignment *assignment, const harpe_relaxed *relaxed,
                                    harpe_error *error) {
    harpe_assignment *a = assignment;
    a->deadline_ps = relaxed->time_ps;
    for (int32_t i = 0; i < a->count; i++)
        a->option[i] = slowest_within(a, i, 0, relaxed->duration_ps[a->instruction_at[i]]);
    compute_times(a);
    return spend_all_slack(a, relaxed) ? HARPE_OK : harpe_fail_memory(error);
}

/* Computes the earliest ends of `option` (by position) into end_ps, and returns the length of the
 * iteration. Changes nothing else, so harpe_assignment_settle must be called before other
 * functions. */
static int64_t run_assignment(harpe_assignment *assignment, const int32_t *option) {
    harpe_assignment *a = assignment;
    int64_t length = 0;
    for (int32_t i = 0; i < a->count; i++) {
        a->end_ps[i] = start_ps(a, i) + a->option_time_ps[a->first_option[i] + option[i]];
        if (a->end_ps[i] > length) length = a->end_ps[i];
    }
    a->visits += (uint64_t)a->count;
    return length;
}

harpe_status harpe_assignment_settle(harpe_assignment *assignment, int64_t deadline_ps,
                                     harpe_error *error) {
    assignment->deadline_ps = deadline_ps;
    compute_times(assignment);
    return spend_all_slack(assignment, NULL) ? HARPE_OK : harpe_fail_memory(error);
}

void harpe_assignment_restore(harpe_assignment *assignment, const int32_t *option,
                              int64_t deadline_ps) {
    memcpy(assignment->option, option, (size_t)assignment->count * sizeof *option);
    assignment->deadline_ps = deadline_ps;
    compute_times(assignment);
}

/* ---- Local search ---------------------------------------------------------------------------- */

/* Looks at the positions that the trial has changed, and at the slowest option of each that fits
 * into its room. Returns the position whose option saves the most energy, or -1 if no option saves
 * energy. `*option` receives the option. */
static int32_t best_touched(const harpe_assignment *a, int32_t *option) {
    double best = SMALLEST_SAVING_J;
    int32_t found = -1;
    for (size_t k = 0; k < a->change_count; k++) {
        int32_t i = a->changes[k].position;
        int32_t slower = slowest_within(a, i, a->option[i], room_ps(a, i));
        if (slower == a->option[i]) continue;
        double saved = option_energy_j(a, i, a->option[i]) - option_energy_j(a, i, slower);
        if (saved <= best) continue;
        best = saved;
        found = i;
        *option = slower;
    }
    return found;
}

typedef enum trial_outcome { TRIAL_KEPT, TRIAL_UNDONE, TRIAL_NO_MEMORY } trial_outcome;

/* Spends the slack that a trial has freed, at the positions where this saves the most energy. Keeps
 * the trial if it saves energy in total, otherwise undoes it. */
static trial_outcome spend_touched(harpe_assignment *a, double energy_before_j) {
    int32_t option = 0;
    for (;;) {
        a->visits += a->change_count;
        int32_t i = best_touched(a, &option);
        if (i < 0) break;
        if (!set_option(a, i, option)) return TRIAL_NO_MEMORY;
    }
    if (a->energy_j < energy_before_j - SMALLEST_SAVING_J) return TRIAL_KEPT;
    undo(a, energy_before_j);
    return TRIAL_UNDONE;
}

/* Makes one instruction faster and spends the slack that this frees. */
static trial_outcome try_faster(harpe_assignment *a, int32_t position, int32_t faster) {
    double before = a->energy_j;
    a->change_count = 0;
    if (!set_option(a, position, faster)) return TRIAL_NO_MEMORY;
    return spend_touched(a, before);
}

harpe_status harpe_assignment_improve(harpe_assignment *assignment, uint64_t visit_budget,
                                      harpe_error *error) {
    harpe_assignment *a = assignment;
    uint64_t limit = a->visits + visit_budget;
    bool improved = true;
    for (int pass = 0; improved; pass++) {
        improved = false;
        for (int32_t k = 0; k < a->count; k++) {
            int32_t i = pass % 2 == 0 ? k : a->count - 1 - k;
            for (int32_t step = 1; step <= LARGEST_STEP && a->option[i] >= step; step++) {
                if (a->visits >= limit) return HARPE_OK;
                trial_outcome outcome = try_faster(a, i, a->option[i] - step);
                if (outcome == TRIAL_NO_MEMORY) return harpe_fail_memory(error);
                improved |= outcome == TRIAL_KEPT;
            }
        }
    }
    return HARPE_OK;
}

/* ---- Reading the result ---------------------------------------------------------------------- */

int64_t harpe_assignment_time_ps(const harpe_assignment *assignment) {
    int64_t time = 0;
    for (int32_t i = 0; i < assignment->count; i++)
        if (assignment->end_ps[i] > time) time = assignment->end_ps[i];
    return time;
}

double harpe_assignment_wait_saving_j(const harpe_assignment *assignment) {
    const harpe_assignment *a = assignment;
    const harpe_problem *problem = a->problem;
    if (!a->rank_end_ps) return 0;
    double saving = 0; /* in watts times picoseconds */
    memset(a->rank_end_ps, 0, (size_t)problem->rank_count * sizeof *a->rank_end_ps);
    for (int32_t i = 0; i < a->count; i++) {
        int32_t instruction = a->instruction_at[i];
        if (harpe_problem_is_delay(problem, instruction)) continue;
        int64_t *rank_end = &a->rank_end_ps[harpe_problem_choice(problem, instruction)->list.rank];
        int64_t wait = a->end_ps[i] - duration_ps(a, i) - *rank_end;
        saving += problem->wait_saving_w[instruction] * (double)wait;
        *rank_end = a->end_ps[i];
    }
    int64_t time_ps = harpe_assignment_time_ps(a);
    for (int rank = 0; rank < problem->rank_count; rank++)
        saving += problem->end_saving_w[rank] * (double)(time_ps - a->rank_end_ps[rank]);
    return saving / PS_PER_S;
}

void harpe_assignment_frequencies(const harpe_assignment *assignment, int *frequency_mhz) {
    const harpe_assignment *a = assignment;
    for (int32_t i = 0; i < a->count; i++) {
        int32_t instruction = a->instruction_at[i];
        const harpe_option_list *list = &harpe_problem_choice(a->problem, instruction)->list;
        frequency_mhz[instruction] = list->options[a->option[i]].frequency_mhz;
    }
}

/* ---- Joins ----------------------------------------------------------------------------------- */

/* Joins two plans at a moment. Orders the instructions by their starts, and finds the
 * moment by bisection. */

harpe_status harpe_splicer_init(harpe_splicer *splicer, int32_t count, harpe_error *error) {
    splicer->moment = harpe_calloc((size_t)count, sizeof *splicer->moment);
    splicer->order = harpe_calloc((size_t)count, sizeof *splicer->order);
    if (splicer->moment && splicer->order) return HARPE_OK;
    harpe_splicer_clear(splicer);
    return harpe_fail_memory(error);
}

void harpe_splicer_clear(harpe_splicer *splicer) {
    free(splicer->moment);
    free(splicer->order);
    *splicer = (harpe_splicer){0};
}

static int compare_moments(const void *a, const void *b, void *moments) {
    double x = ((const double *)moments)[*(const int32_t *)a];
    double y = ((const double *)moments)[*(const int32_t *)b];
    if (x != y) return x < y ? -1 : 1;
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : 1;
}

/* Orders instructions by the mean of their starts in the two plans. */
static void order_by_moment(harpe_splicer *splicer, harpe_assignment *assignment,
                            const int32_t *fast, const int32_t *slow) {
    const int32_t *plans[2] = {fast, slow};
    for (int p = 0; p < 2; p++) {
        int64_t length_ps = run_assignment(assignment, plans[p]);
        for (int32_t i = 0; i < assignment->count; i++) {
            int64_t duration =
                assignment->option_time_ps[assignment->first_option[i] + plans[p][i]];
            double share = (double)(assignment->end_ps[i] - duration) / (double)length_ps;
            splicer->moment[i] = p == 0 ? share : splicer->moment[i] + share;
        }
    }
    for (int32_t i = 0; i < assignment->count; i++)
        splicer->order[i] = i;
    qsort_r(splicer->order, (size_t)assignment->count, sizeof *splicer->order, compare_moments,
            splicer->moment);
}

/* Uses `slow` for the first or the last `share` instructions, and `fast` for the others. Returns
 * the length of the iteration. */
static int64_t join(const harpe_splicer *splicer, harpe_assignment *assignment, const int32_t *fast,
                    const int32_t *slow, bool slow_first, int32_t share) {
    for (int32_t k = 0; k < assignment->count; k++) {
        bool is_slow = slow_first ? k < share : k >= assignment->count - share;
        int32_t i = splicer->order[k];
        assignment->option[i] = is_slow ? slow[i] : fast[i];
    }
    return run_assignment(assignment, assignment->option);
}

harpe_status harpe_splice(harpe_splicer *splicer, harpe_assignment *assignment, const int32_t *fast,
                          const int32_t *slow, bool slow_first, int64_t deadline_ps,
                          harpe_error *error) {
    order_by_moment(splicer, assignment, fast, slow);
    int32_t meets = 0, misses = assignment->count + 1;
    while (misses - meets > 1) {
        int32_t middle = meets + (misses - meets) / 2;
        int64_t length_ps = join(splicer, assignment, fast, slow, slow_first, middle);
        if (length_ps <= deadline_ps)
            meets = middle;
        else
            misses = middle;
    }
    join(splicer, assignment, fast, slow, slow_first, meets);
    return harpe_assignment_settle(assignment, deadline_ps, error);
}
