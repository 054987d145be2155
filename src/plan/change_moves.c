/* SPDX-License-Identifier: Apache-2.0 */
/* Local search over clocks and the places of changes; see clocks_internal.h. A move gives some
 * neighbouring instructions of a rank another clock. */
#include "plan/clocks_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/plans.h"

/* The work of a call: how many ends of instructions it may compute and how many moves it may look
 * at, for each instruction of the problem, and at most. All given plans share one half of the
 * work. The best of them then gets the other half. Moves of whole runs may take half of what a plan
 * has. */
#define VISITS UINT64_C(24000)
#define MOST_VISITS UINT64_C(12000000)
/* A difference in energy below this is a rounding error. */
#define SMALLEST_SAVING_J 1e-7
#define ROUNDING 1e-12 /* relative: times are sums of doubles */
/* A move changes an instruction by at most LARGEST_STEP clocks. A move that is not of a whole run
 * has at most LONGEST_PART instructions. */
#define LARGEST_STEP 4
#define LONGEST_PART 8
/* A part that takes less than this share of the time for which its clock must hold is not tried. */
#define SHORTEST_SHARE 0.7
/* An instruction with less slack does not become slower. */
#define LEAST_SLACK_S 1e-9

/* The instructions first .. end - 1 of a rank get a clock. Those at 0 MHz keep that of the
 * instruction before them. */
typedef struct move {
    int32_t first, end;
    int mhz;
} move;

typedef struct mover {
    harpe_arena arena;
    const harpe_problem *problem;
    const harpe_clock_switch *cost;
    double deadline_s;
    int *mhz;                           /* [instruction] */
    const harpe_profile_point **points; /* [instruction] */
    double *end_s;                      /* [instruction] */
    double *slack_s, *begin_s;          /* [instruction]: of the plan before the present move */
    bool needs_slack;                   /* only moves that make instructions slower are of use */
    bool moves_runs;                    /* only moves of whole runs */
    double *least_tail_s; /* [instruction]: from its end to the end of the iteration, at fastest */
    double *longest_s;    /* [place in the topological order]: latest end up to here */
    int32_t *place;       /* [instruction] */
    int32_t valid;        /* ends before this place are those of the present plan */
    int *kept_mhz;        /* [instruction]: of the best plan */
    int *before_mhz;      /* [instruction]: scratch of a move */
    double busy_j;        /* sum of the effective energies */
    uint64_t visits, limit;
} mover;

static bool may_go_on(const mover *m) { return m->visits < m->limit; }

/* ---- The present plan ------------------------------------------------------------------------ */

static double effective_j(const harpe_choice *choice, const harpe_profile_point *point) {
    return point->energy_j - choice->blocking_power_w * point->time_s;
}

static void set_point(mover *m, int32_t i, int mhz, const harpe_profile_point *point) {
    const harpe_choice *choice = harpe_problem_choice(m->problem, i);
    m->busy_j += effective_j(choice, point) - effective_j(choice, m->points[i]);
    m->points[i] = point;
    if (m->mhz[i] != 0) m->mhz[i] = mhz;
    if (m->place[i] < m->valid) m->valid = m->place[i];
}

static double start_s(const mover *m, int32_t i) { return m->end_s[i] - m->points[i]->time_s; }

/* Returns the length of the iteration, or INFINITY if it is above the deadline. */
static double length_s(mover *m) {
    const harpe_dag *dag = &m->problem->dag;
    double most_s = m->deadline_s * (1 + ROUNDING);
    double longest_s = m->valid > 0 ? m->longest_s[m->valid - 1] : 0;
    int32_t k = m->valid;
    for (; k < dag->node_count && longest_s <= most_s; k++) {
        int32_t i = dag->topological_order[k];
        double begin_s = 0;
        for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++)
            if (m->end_s[dag->arc_from[a]] > begin_s) begin_s = m->end_s[dag->arc_from[a]];
        m->end_s[i] = begin_s + m->points[i]->time_s;
        if (m->end_s[i] + m->least_tail_s[i] > longest_s)
            longest_s = m->end_s[i] + m->least_tail_s[i];
        m->longest_s[k] = longest_s;
    }
    m->visits += (uint64_t)(k - m->valid) + 1;
    m->valid = k;
    return longest_s <= most_s ? longest_s : INFINITY;
}

/* Computes how much longer each instruction may take. */
static void find_slack(mover *m) {
    int32_t count = m->problem->instruction_count;
    for (int32_t i = 0; i < count; i++)
        m->slack_s[i] = m->deadline_s * (1 + ROUNDING);
    harpe_evaluate_latest_starts(m->problem, m->points, m->slack_s);
    for (int32_t i = 0; i < count; i++) {
        m->begin_s[i] = start_s(m, i);
        m->slack_s[i] -= m->begin_s[i];
    }
    m->visits += (uint64_t)count;
}

/* Returns the instruction with which the last clock of a rank's list begins; -1: it is the only
 * clock. */
static int32_t last_change(const mover *m, int32_t first, int32_t end) {
    int32_t found = -1;
    for (int32_t i = end; i-- > first;) {
        if (m->mhz[i] == 0) continue;
        if (found >= 0 && m->mhz[i] != m->mhz[found]) return found;
        found = i;
    }
    return -1;
}

/* Returns whether each clock of a rank holds until the next change, and counts the changes. */
static bool rank_holds(mover *m, int rank, size_t *changes) {
    int32_t first = (int32_t)m->problem->rank_offset[rank];
    int32_t end = (int32_t)m->problem->rank_offset[rank + 1], last = last_change(m, first, end);
    if (last < 0) return true;
    double began_s = start_s(m, last) - m->longest_s[m->problem->dag.node_count - 1];
    int now_mhz = m->mhz[last];
    for (int32_t i = first; i < end; i++) {
        if (m->mhz[i] == 0 || m->mhz[i] == now_mhz) continue;
        now_mhz = m->mhz[i];
        double hold_s = harpe_clock_switch_hold_s(m->problem, m->cost, rank, now_mhz);
        if (start_s(m, i) - began_s < hold_s * (1 - ROUNDING)) return false;
        began_s = start_s(m, i);
        ++*changes;
    }
    return true;
}

/* Returns the energy of the present plan, or INFINITY if it takes too long or a clock does not
 * hold. */
static double energy_j(mover *m, double most_j) {
    size_t changes = 0;
    double power_w = harpe_problem_iteration_power_w(m->problem);
    if (m->busy_j + power_w * m->longest_s[0] >= most_j) return INFINITY;
    double taken_s = length_s(m);
    if (!isfinite(taken_s) || m->busy_j + power_w * taken_s >= most_j) return INFINITY;
    for (int rank = 0; rank < m->problem->rank_count; rank++)
        if (!rank_holds(m, rank, &changes)) return INFINITY;
    m->visits += (uint64_t)m->problem->instruction_count / 2;
    return m->busy_j + power_w * taken_s + m->cost->energy_j * (double)changes;
}

/* ---- Moves ----------------------------------------------------------------------------------- */

/* Applies a move. Returns false, and changes nothing, if an instruction was not measured at the
 * clock, or would miss the deadline in the plan that slack_s belongs to. Writes the change of the
 * effective energies. */
static bool may_apply(mover *m, const move *one, double *added_j) {
    *added_j = 0;
    m->visits += 1 + (uint64_t)(one->end - one->first) / 2;
    for (int32_t i = one->first; i < one->end; i++) {
        const harpe_choice *choice = harpe_problem_choice(m->problem, i);
        const harpe_profile_point *point = harpe_choice_reached(choice, one->mhz);
        if (!point || point->time_s - m->points[i]->time_s > m->slack_s[i] + 1e-12) return false;
        *added_j += effective_j(choice, point) - effective_j(choice, m->points[i]);
    }
    return true;
}

static void apply(mover *m, const move *one) {
    for (int32_t i = one->first; i < one->end; i++) {
        m->before_mhz[i] = m->mhz[i];
        const harpe_choice *choice = harpe_problem_choice(m->problem, i);
        set_point(m, i, one->mhz, harpe_choice_point(choice, one->mhz));
    }
}

static void undo(mover *m, const move *one) {
    for (int32_t i = one->first; i < one->end; i++) {
        const harpe_choice *choice = harpe_problem_choice(m->problem, i);
        set_point(m, i, m->before_mhz[i], harpe_choice_point(choice, m->before_mhz[i]));
    }
}

/* Calls `visit` for each move of a rank, until it returns false. `visit` may change the plan only
 * if it then returns false. */
typedef bool visit_move(mover *m, const move *one, void *user);

static bool visit_clocks(mover *m, int32_t first, int32_t end, visit_move *visit, void *user) {
    const harpe_choice *choice = harpe_problem_choice(m->problem, first);
    ptrdiff_t at = m->points[first] - choice->points;
    for (ptrdiff_t p = at + LARGEST_STEP; p >= at - LARGEST_STEP; p--) {
        if (p < 0 || p >= (ptrdiff_t)choice->point_count || p == at) continue;
        const move one = {first, end, choice->points[p].frequency_mhz};
        if (one.mhz == 0) continue;
        if (!visit(m, &one, user)) return false;
    }
    return true;
}

/* Visits the moves that give a new clock to a part of the run run[0] .. run[2] - 1, from run[1] on.
 * Leaves out parts that are much too short to hold. */
static bool visit_parts(mover *m, int32_t rank_end, const int32_t run[3], visit_move *visit,
                        void *user) {
    int32_t i = run[1];
    int rank = harpe_problem_choice(m->problem, i)->list.rank;
    double least_s =
        SHORTEST_SHARE * harpe_clock_switch_hold_s(m->problem, m->cost, rank, m->mhz[i]);
    for (int32_t n = 1; n <= LONGEST_PART && i + n <= run[2]; n++) {
        if (n == run[2] - run[0]) return true; /* the whole run */
        m->visits++;
        if (m->needs_slack && m->slack_s[i + n - 1] < LEAST_SLACK_S) return true;
        if (i + n < rank_end && m->begin_s[i + n] - m->begin_s[i] < least_s) continue;
        if (!visit_clocks(m, i, i + n, visit, user)) return false;
    }
    return true;
}

/* Visits the moves of the run first .. end - 1 of the rank begin .. rank_end - 1. */
static bool visit_run(mover *m, const int32_t rank[2], int32_t first, int32_t end,
                      visit_move *visit, void *user) {
    int32_t length = end - first, before = first;
    while (before > rank[0] && (before == first || m->mhz[before] == 0))
        before--;
    if (!visit_clocks(m, first, end, visit, user)) return false;
    if (m->moves_runs) return true;
    for (int32_t n = 1; n <= length; n = n < LONGEST_PART || n == length ? n + 1 : length) {
        const move earlier = {first, first + n, before < first ? m->mhz[before] : 0};
        const move later = {end - n, end, end < rank[1] ? m->mhz[end] : 0};
        if (earlier.mhz != 0 && !visit(m, &earlier, user)) return false;
        if (later.mhz != 0 && !visit(m, &later, user)) return false;
    }
    for (int32_t i = first; i < end; i++)
        if (m->mhz[i] != 0 && !visit_parts(m, rank[1], (int32_t[]){first, i, end}, visit, user))
            return false;
    return true;
}

static bool visit_rank(mover *m, int number, visit_move *visit, void *user) {
    const int32_t rank[2] = {(int32_t)m->problem->rank_offset[number],
                             (int32_t)m->problem->rank_offset[number + 1]};
    for (int32_t first = rank[0], end; first < rank[1]; first = end) {
        end = first + 1;
        while (end < rank[1] && (m->mhz[end] == m->mhz[first] || m->mhz[end] == 0))
            end++;
        if (m->mhz[first] != 0 && !visit_run(m, rank, first, end, visit, user)) return false;
    }
    return true;
}

/* ---- Search ---------------------------------------------------------------------------------- */

typedef struct descent {
    double now_j;
    bool improved;
} descent;

/* Keeps a move that saves energy. */
static bool keep_saving(mover *m, const move *one, void *user) {
    descent *d = user;
    double added_j = 0;
    if (!may_go_on(m)) return false;
    if (!may_apply(m, one, &added_j) || added_j >= m->cost->energy_j * 2) return true;
    apply(m, one);
    double found_j = energy_j(m, d->now_j - SMALLEST_SAVING_J);
    if (found_j < d->now_j - SMALLEST_SAVING_J) {
        d->now_j = found_j;
        d->improved = true;
        return false;
    }
    undo(m, one);
    return true;
}

/* Applies moves that save energy until there are none, those of rank `first` first. Returns the
 * energy. */
static double descend(mover *m, double now_j, int first) {
    descent d = {.now_j = now_j, .improved = true};
    m->needs_slack = true;
    (void)length_s(m);
    find_slack(m);
    while (d.improved && may_go_on(m)) {
        d.improved = false;
        for (int r = 0; r < m->problem->rank_count; r++) {
            int rank = (first + r) % m->problem->rank_count;
            while (!visit_rank(m, rank, keep_saving, &d) && may_go_on(m)) {
                (void)length_s(m);
                find_slack(m);
            }
        }
    }
    return d.now_j;
}

/* The moves that make a rank faster, at a cost. */
typedef struct move_list {
    move *items;
    size_t count, capacity;
    bool is_out_of_memory;
} move_list;

static bool list_faster(mover *m, const move *one, void *user) {
    move_list *list = user;
    double added_j = 0, added_s = 0;
    if (!may_apply(m, one, &added_j)) return true;
    for (int32_t i = one->first; i < one->end; i++)
        added_s += harpe_choice_point(harpe_problem_choice(m->problem, i), one->mhz)->time_s -
                   m->points[i]->time_s;
    if (added_s >= 0) return true;
    if (!HARPE_ARRAY_RESERVE(list->items, list->capacity, list->count + 1)) {
        list->is_out_of_memory = true;
        return false;
    }
    list->items[list->count++] = *one;
    return true;
}

static void keep_plan(mover *m) {
    memcpy(m->kept_mhz, m->mhz, (size_t)m->problem->instruction_count * sizeof *m->mhz);
}

static void restore_plan(mover *m) {
    for (int32_t i = 0; i < m->problem->instruction_count; i++)
        if (m->mhz[i] != m->kept_mhz[i])
            set_point(m, i, m->kept_mhz[i],
                      harpe_choice_point(harpe_problem_choice(m->problem, i), m->kept_mhz[i]));
}

/* Returns a step that is prime to a number, so that the first steps spread over all of it. */
static size_t spreading_step(size_t count) {
    size_t step = (size_t)(0.618 * (double)count) + 1;
    for (;; step++) {
        size_t a = count, b = step;
        while (b > 0) {
            size_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a <= 1) return step;
    }
}

/* Applies a move. Then makes instructions slower, those of the next rank first. Returns the
 * energy. */
static double exchange_for(mover *m, const move *one) {
    apply(m, one);
    double now_j = energy_j(m, INFINITY);
    int rank = harpe_problem_choice(m->problem, one->first)->list.rank;
    return isfinite(now_j) ? descend(m, now_j, rank + 1) : now_j;
}

/* Applies a move, and one other that makes up for its energy. Returns the energy, or INFINITY if no
 * other move does. */
static double pair_with(mover *m, const move *one, double best_j) {
    descent d = {.now_j = best_j};
    apply(m, one);
    if (!isfinite(energy_j(m, INFINITY))) return INFINITY;
    find_slack(m);
    for (int r = 0; r < m->problem->rank_count && !d.improved && may_go_on(m); r++)
        (void)visit_rank(m, r, keep_saving, &d);
    return d.improved ? d.now_j : INFINITY;
}

/* Makes some instructions faster, and then others slower, for each such move. Keeps what saves
 * energy. Returns whether anything does. */
static bool exchange(mover *m, move_list *list, double *best_j) {
    bool improved = false;
    list->count = 0;
    m->needs_slack = false;
    for (int rank = 0; rank < m->problem->rank_count; rank++)
        (void)visit_rank(m, rank, list_faster, list);
    size_t step = spreading_step(list->count);
    for (size_t n = 0, k = 0; n < list->count && may_go_on(m); n++, k = (k + step) % list->count) {
        double now_j = exchange_for(m, &list->items[k]);
        if (m->moves_runs && !(now_j < *best_j - SMALLEST_SAVING_J)) {
            restore_plan(m);
            now_j = pair_with(m, &list->items[k], *best_j);
        }
        if (now_j < *best_j - SMALLEST_SAVING_J) {
            *best_j = now_j;
            improved = true;
            keep_plan(m);
        } else {
            restore_plan(m);
        }
        (void)length_s(m);
    }
    return improved;
}

/* Improves the present plan: first the clocks of whole runs, then also the places of changes.
 * `*best_j` receives its energy, INFINITY if it does not fit. */
static harpe_status search(mover *m, double *best_j, harpe_error *error) {
    move_list list = {0};
    (void)length_s(m);
    *best_j = energy_j(m, INFINITY);
    if (!isfinite(*best_j)) return HARPE_OK;
    uint64_t limit = m->limit;
    for (int pass = 0; pass < 2; pass++) {
        m->moves_runs = pass == 0;
        m->limit = m->moves_runs ? limit / 2 : limit;
        *best_j = descend(m, *best_j, 0);
        keep_plan(m);
        while (may_go_on(m) && !list.is_out_of_memory && exchange(m, &list, best_j)) {
        }
        restore_plan(m);
        (void)length_s(m);
    }
    free(list.items);
    return list.is_out_of_memory ? harpe_fail_memory(error) : HARPE_OK;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static void find_tails(mover *m) {
    const harpe_dag *dag = &m->problem->dag;
    for (int32_t k = 0; k < dag->node_count; k++) {
        m->place[dag->topological_order[k]] = k;
        m->slack_s[k] = harpe_problem_choice(m->problem, k)->list.options[0].time_s;
    }
    (void)harpe_dag_run(dag, m->slack_s, m->end_s, m->least_tail_s);
}

static harpe_status prepare(mover *m, const int *frequency_mhz, harpe_error *error) {
    size_t count = (size_t)m->problem->instruction_count;
    double **seconds[] = {&m->end_s, &m->slack_s, &m->begin_s, &m->least_tail_s, &m->longest_s};
    for (size_t k = 0; k < sizeof seconds / sizeof *seconds; k++)
        *seconds[k] = harpe_arena_alloc(&m->arena, count, sizeof **seconds[k]);
    m->mhz = harpe_arena_alloc(&m->arena, 3 * count, sizeof *m->mhz);
    m->points = harpe_arena_alloc(&m->arena, count, sizeof *m->points);
    m->place = harpe_arena_alloc(&m->arena, count, sizeof *m->place);
    if (m->arena.has_failed) return harpe_fail_memory(error);
    m->kept_mhz = m->mhz + count;
    m->before_mhz = m->kept_mhz + count;
    memcpy(m->mhz, frequency_mhz, count * sizeof *m->mhz);
    harpe_status status = harpe_evaluate_find_points(m->problem, m->mhz, m->points, error);
    for (size_t i = 0; status == HARPE_OK && i < count; i++)
        m->busy_j += effective_j(harpe_problem_choice(m->problem, (int32_t)i), m->points[i]);
    if (status == HARPE_OK) find_tails(m);
    return status;
}

/* Improves one plan in place. `*best_j` receives its energy, INFINITY if it does not fit. */
static harpe_status improve(const harpe_problem *problem, const harpe_clock_switch *cost,
                            double deadline_s, uint64_t limit, int *frequency_mhz, double *best_j,
                            harpe_error *error) {
    mover m = {.problem = problem, .cost = cost, .deadline_s = INFINITY, .limit = limit};
    harpe_status status = prepare(&m, frequency_mhz, error);
    if (status == HARPE_OK) {
        m.deadline_s = fmax(deadline_s, length_s(&m));
        status = search(&m, best_j, error);
    }
    if (status == HARPE_OK)
        memcpy(frequency_mhz, m.mhz, (size_t)problem->instruction_count * sizeof *frequency_mhz);
    harpe_arena_free(&m.arena);
    return status;
}

harpe_status harpe_change_moves_improve(const harpe_problem *problem,
                                        const harpe_clock_switch *cost, double deadline_s,
                                        int *plans_mhz, size_t count, int *frequency_mhz,
                                        harpe_error *error) {
    size_t length = (size_t)problem->instruction_count, best = 0;
    double best_j = INFINITY, found_j = INFINITY;
    uint64_t visits = length < MOST_VISITS / VISITS ? VISITS * length : MOST_VISITS;
    harpe_status status = HARPE_OK;
    for (size_t k = 0; k < count && status == HARPE_OK; k++) {
        status = improve(problem, cost, deadline_s, visits / (2 * count), plans_mhz + k * length,
                         &found_j, error);
        if (found_j >= best_j) continue;
        best_j = found_j;
        best = k;
    }
    memcpy(frequency_mhz, plans_mhz + best * length, length * sizeof *frequency_mhz);
    if (status != HARPE_OK || !isfinite(best_j)) return status;
    return improve(problem, cost, deadline_s, visits / 2, frequency_mhz, &best_j, error);
}
