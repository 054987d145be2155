/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the clocks of each rank by dynamic programming, given the price of a second of each
 * instruction; see clock_runs.h. With given prices the ranks do not depend on each other, so the
 * choice is exact. Prices that are too low make an iteration too long. Each step therefore raises
 * the prices of instructions on paths that are too long, and lowers those of the others, in
 * proportion to the length of the longest path through the instruction. The best plans of all
 * starts that meet the deadline are the result. */
#include "plan/clock_runs.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "plan/evaluate.h"
#include "plan/network.h"
#include "plan/switching.h"

#define STEPS 48
/* The logarithm of a price changes by a number times the relative excess of the path. */
#define FIRST_RESPONSE 4.0
#define POLISH_RESPONSE 8.0
/* Then the clocks of each rank are chosen again, while those of the other ranks stay. */
#define POLISH_ROUNDS 2
#define POLISH_STEPS 12
/* Small problems have time for several starts, with other prices. */
#define START_INSTRUCTIONS 4000
#define MOST_STARTS 9
#define ONE_CLOCK_STARTS 4 /* at most: of plans with one clock for each rank */
#define MOST_KEPT 16
#define SHIFTS 4 /* places of the list at which the first run of a start begins */
#define PRICE_NOISE 0.3
/* Some paths are always longer than the mean. The steps therefore aim at a length below the
 * deadline. After each step this length changes by a share of the time that the longest path has
 * left. */
#define TARGET_RESPONSE 0.2
#define LEAST_TARGET 0.95
/* The last steps only raise prices, so that a plan near the shortest time is found. */
#define CLOSING_STEPS 12
#define CLOSING_RISE 1.2
/* The lowest price, relative to the power of a whole iteration, and the highest, relative to the
 * highest price of the relaxation. */
#define LOWEST_PRICE 1e-4
#define HIGHEST_PRICE 30.0
#define FASTEST_PRICE_W 1e9 /* at which the fastest clocks are the best */
#define ROUNDING 1e-12      /* relative: times are sums of doubles */
#define HOLD_MARGIN 1e-9    /* relative */
/* The energy of a change on a rank whose clocks cannot hold: it has as few changes as possible. */
#define FEWEST_CHANGES_J 1e12

/* The instructions of a rank, and the clocks that they were measured at. */
typedef struct rank_run {
    int32_t first, length;
    int32_t shift; /* where in the list the first run begins. The last one may end in the next
                    * iteration. */
    int clock_count;
    const int *clock_mhz;
    double hold_s, change_j; /* how long a clock must hold, and the energy of a change */
} rank_run;

typedef struct search {
    const harpe_problem *problem;
    const harpe_clock_switch *cost;
    double deadline_s;
    harpe_arena arena;
    rank_run *ranks;
    int most_clocks;
    const harpe_profile_point **points; /* [choice][clock of its rank]; NULL: not measured */
    double *effective_j, *point_s;      /* [choice][clock of its rank] */
    double *price_w, *time_s;           /* [instruction] */
    double *end_s, *tail_s;             /* [instruction] */
    double *most_s;    /* [instruction]: the longest time with all others at their fastest */
    bool ignores_most; /* instructions may take longer than most_s */
    bool is_one_clock; /* each rank has one clock, if it can */
    int32_t *clock;    /* [instruction]: chosen; place in clock_mhz */
    /* [place][clock]: sums over the instructions before the place, and the least cost of these if
     * the clock changes to this one at the place, with the run before. */
    double *sum_j, *sum_s, *reach_j;
    int32_t *run_first, *run_clock;
    /* [clock]: the cheapest start of a run that is long enough at the present place, and the first
     * start that is not. */
    double *open_j;
    int32_t *open_first, *next_first;
    bool *is_whole;      /* [clock]: all instructions before the present place can run at it */
    double response;     /* by how much prices follow the paths */
    double start_j;      /* least energy of the present start */
    int32_t *best_clock; /* [instruction]: of the plan with this energy */
    double *best_w;      /* [instruction]: the prices that gave it */
    uint64_t random;
    int start;                  /* number of the present start */
    double lowest_w, highest_w; /* limits of prices */
    size_t room, kept_count;
    double kept_j[MOST_KEPT]; /* energies of the best plans, the least first, one of each start */
    int kept_start[MOST_KEPT];
    int *kept_mhz; /* [room][instruction] */
} search;

/* ---- One rank -------------------------------------------------------------------------------- */

/* Returns whether an instruction was measured at a clock, and can meet the deadline at it. */
static bool may_run(const search *s, int32_t i, int clock) {
    size_t at = (size_t)s->problem->choice_of[i] * (size_t)s->most_clocks + (size_t)clock;
    return s->points[at] && (s->ignores_most || s->point_s[at] <= s->most_s[i]);
}

/* Returns the instruction at a place, counted from the start of the first run. */
static int32_t instruction_at(const rank_run *rank, int32_t place) {
    int32_t at = place + rank->shift;
    return rank->first + (at < rank->length ? at : at - rank->length);
}

static void begin_sums(search *s, const rank_run *rank) {
    int count = rank->clock_count;
    for (int c = 0; c < count; c++) {
        s->sum_j[c] = s->sum_s[c] = s->reach_j[c] = 0;
        s->open_j[c] = INFINITY;
        s->open_first[c] = s->next_first[c] = 0;
        s->is_whole[c] = true;
    }
}

/* Adds the instruction before `place` to the sums. If it cannot run at a clock, no run at this
 * clock contains it: runs start after it again. */
static void add_instruction(search *s, const rank_run *rank, int32_t place) {
    int count = rank->clock_count;
    int32_t i = instruction_at(rank, place - 1);
    size_t row = (size_t)s->problem->choice_of[i] * (size_t)s->most_clocks;
    double price_w = s->price_w[i];
    const double *before_j = s->sum_j + (size_t)(place - 1) * (size_t)count;
    const double *before_s = s->sum_s + (size_t)(place - 1) * (size_t)count;
    double *sum_j = s->sum_j + (size_t)place * (size_t)count;
    double *sum_s = s->sum_s + (size_t)place * (size_t)count;
    for (int c = 0; c < count; c++) {
        sum_j[c] =
            before_j[c] + s->effective_j[row + (size_t)c] + price_w * s->point_s[row + (size_t)c];
        sum_s[c] = before_s[c] + s->point_s[row + (size_t)c];
        if (may_run(s, i, c)) continue;
        s->open_j[c] = INFINITY;
        s->next_first[c] = place;
        s->is_whole[c] = false;
    }
}

/* A choice of the last run before a place. */
typedef struct last_run {
    double cost_j;
    int32_t first, clock;
} last_run;

/* Finds the cheapest two last runs before `place` with different clocks. */
static void find_last(search *s, const rank_run *rank, int32_t place, last_run found[2]) {
    int count = rank->clock_count;
    const double *sum_j = s->sum_j + (size_t)place * (size_t)count;
    const double *sum_s = s->sum_s + (size_t)place * (size_t)count;
    found[0] = found[1] = (last_run){INFINITY, 0, -1};
    for (int c = 0; c < count; c++) {
        for (; s->next_first[c] < place; s->next_first[c]++) {
            size_t at = (size_t)s->next_first[c] * (size_t)count + (size_t)c;
            if (sum_s[c] - s->sum_s[at] < rank->hold_s) break;
            double open_j = s->reach_j[at] - s->sum_j[at];
            if (open_j >= s->open_j[c]) continue;
            s->open_j[c] = open_j;
            s->open_first[c] = s->next_first[c];
        }
        const last_run run = {s->open_j[c] + sum_j[c], s->open_first[c], c};
        if (run.cost_j < found[0].cost_j) {
            found[1] = found[0];
            found[0] = run;
        } else if (run.cost_j < found[1].cost_j) {
            found[1] = run;
        }
    }
}

/* Considers one clock for the whole rank, which need not hold for any time. */
static void consider_one_clock(const search *s, const rank_run *rank, last_run *best) {
    size_t last = (size_t)rank->length * (size_t)rank->clock_count;
    for (int c = 0; c < rank->clock_count; c++)
        if (s->is_whole[c] && s->sum_j[last + (size_t)c] < best->cost_j)
            *best = (last_run){s->sum_j[last + (size_t)c], 0, c};
}

/* Chooses the clocks of a rank. Returns false if no clocks hold. */
static bool choose_rank(search *s, const rank_run *rank) {
    int count = rank->clock_count;
    last_run found[2] = {{0}};
    begin_sums(s, rank);
    for (int32_t place = 1; place <= rank->length; place++) {
        add_instruction(s, rank, place);
        find_last(s, rank, place, found);
        double *reach_j = s->reach_j + (size_t)place * (size_t)count;
        for (int c = 0; c < count; c++) {
            const last_run *before = &found[found[0].clock == c];
            size_t at = (size_t)place * (size_t)count + (size_t)c;
            reach_j[c] = before->cost_j + rank->change_j;
            s->run_first[at] = before->first;
            s->run_clock[at] = before->clock;
        }
    }
    consider_one_clock(s, rank, &found[0]);
    if (!isfinite(found[0].cost_j)) return false;
    int32_t first = found[0].first, end = rank->length, clock = found[0].clock;
    for (;;) {
        for (int32_t k = first; k < end; k++)
            s->clock[instruction_at(rank, k)] = clock;
        if (first == 0) return true;
        size_t at = (size_t)first * (size_t)count + (size_t)clock;
        end = first;
        first = s->run_first[at];
        clock = s->run_clock[at];
    }
}

static const harpe_profile_point *point_of(const search *s, int32_t i) {
    int32_t choice = s->problem->choice_of[i];
    if (s->clock[i] < 0) return &s->problem->choices[choice].points[0];
    return s->points[(size_t)choice * (size_t)s->most_clocks + (size_t)s->clock[i]];
}

static void find_times(search *s) {
    for (int32_t i = 0; i < s->problem->instruction_count; i++)
        s->time_s[i] = point_of(s, i)->time_s;
}

/* Chooses the clocks of a rank. Clocks that hold matter more than the limits of times. If no clocks
 * hold, the rank has as few changes as possible from then on. */
static void choose_held(search *s, rank_run *rank) {
    rank_run forever = *rank;
    forever.hold_s = INFINITY;
    if ((s->is_one_clock && choose_rank(s, &forever)) || choose_rank(s, rank)) return;
    s->ignores_most = true;
    if (!choose_rank(s, rank)) {
        rank->hold_s = 0;
        rank->change_j = FEWEST_CHANGES_J;
        (void)choose_rank(s, rank);
    }
    s->ignores_most = false;
}

static void choose_clocks(search *s) {
    for (int r = 0; r < s->problem->rank_count; r++)
        if (s->ranks[r].clock_count > 0) choose_held(s, &s->ranks[r]);
    find_times(s);
}

/* ---- The iteration --------------------------------------------------------------------------- */

/* Computes ends and tails, and returns the length of the iteration. */
static double run_iteration(search *s) {
    const harpe_dag *dag = &s->problem->dag;
    double length_s = 0;
    for (int32_t k = 0; k < dag->node_count; k++) {
        int32_t i = dag->topological_order[k];
        double start_s = 0;
        for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++)
            start_s = fmax(start_s, s->end_s[dag->arc_from[a]]);
        s->end_s[i] = start_s + s->time_s[i];
        s->tail_s[i] = 0;
        length_s = fmax(length_s, s->end_s[i]);
    }
    for (int32_t k = dag->node_count - 1; k >= 0; k--) {
        int32_t i = dag->topological_order[k];
        double own_s = s->tail_s[i] + s->time_s[i];
        for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++)
            s->tail_s[dag->arc_from[a]] = fmax(s->tail_s[dag->arc_from[a]], own_s);
    }
    return length_s;
}

/* Writes how long each instruction may take. */
static void find_most(search *s) {
    for (int32_t i = 0; i < s->problem->instruction_count; i++)
        s->time_s[i] = harpe_problem_choice(s->problem, i)->list.options[0].time_s;
    (void)run_iteration(s);
    for (int32_t i = 0; i < s->problem->instruction_count; i++)
        s->most_s[i] = s->deadline_s * (1 + ROUNDING) - (s->end_s[i] - s->time_s[i]) - s->tail_s[i];
}

static double energy_j(const search *s, double length_s) {
    double sum_j = harpe_problem_iteration_power_w(s->problem) * length_s;
    for (int r = 0; r < s->problem->rank_count; r++) {
        const rank_run *rank = &s->ranks[r];
        for (int32_t i = rank->first; i < rank->first + rank->length; i++) {
            const harpe_choice *choice = harpe_problem_choice(s->problem, i);
            const harpe_profile_point *point = point_of(s, i);
            int32_t before = i > rank->first ? i - 1 : i + rank->length - 1;
            sum_j += point->energy_j - choice->blocking_power_w * point->time_s;
            if (s->clock[i] != s->clock[before]) sum_j += s->cost->energy_j;
        }
    }
    return sum_j;
}

/* Returns a number from 0 to 1. */
static double draw(search *s) {
    s->random = s->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(s->random >> 11) / (double)(UINT64_C(1) << 53);
}

static void write_plan(const search *s, int *frequency_mhz) {
    for (int r = 0; r < s->problem->rank_count; r++) {
        const rank_run *rank = &s->ranks[r];
        for (int32_t i = rank->first; i < rank->first + rank->length; i++) {
            bool has_clock = harpe_choice_has_clocks(harpe_problem_choice(s->problem, i));
            frequency_mhz[i] = has_clock ? rank->clock_mhz[s->clock[i]] : 0;
        }
    }
}

/* Makes room for a plan in the list of the best. Returns its place; SIZE_MAX: it is not among
 * them. */
static size_t make_room(search *s, double found_j) {
    size_t size = (size_t)s->problem->instruction_count, last = 0, at;
    for (size_t k = 0; k < s->kept_count; k++)
        if (s->kept_j[k] == found_j) return SIZE_MAX; /* the same plan, or one as good */
    while (last < s->kept_count && s->kept_start[last] != s->start)
        last++; /* the plan of the same start goes, or else the worst */
    if (last == s->room) last--;
    if (last < s->kept_count && found_j >= s->kept_j[last]) return SIZE_MAX;
    if (last == s->kept_count) s->kept_count++;
    for (at = last; at > 0 && s->kept_j[at - 1] > found_j; at--) {
        s->kept_j[at] = s->kept_j[at - 1];
        s->kept_start[at] = s->kept_start[at - 1];
        memcpy(s->kept_mhz + at * size, s->kept_mhz + (at - 1) * size, size * sizeof(int));
    }
    return at;
}

/* Runs the present plan. Keeps it if it is in time and among the best.
 * Returns the length of the iteration. */
static double keep(search *s) {
    size_t size = (size_t)s->problem->instruction_count;
    double length_s = run_iteration(s);
    if (length_s > s->deadline_s * (1 + ROUNDING)) return length_s;
    double found_j = energy_j(s, length_s);
    if (found_j < s->start_j) {
        s->start_j = found_j;
        memcpy(s->best_clock, s->clock, size * sizeof *s->clock);
        memcpy(s->best_w, s->price_w, size * sizeof *s->price_w);
    }
    size_t at = make_room(s, found_j);
    if (at == SIZE_MAX) return length_s;
    s->kept_j[at] = found_j;
    s->kept_start[at] = s->start;
    write_plan(s, s->kept_mhz + at * size);
    return length_s;
}

/* Returns about e^x. Unlike exp() it has the same last digit on every machine, and so have plans.
 */
static double growth(double x) {
    double size = fabs(x), factor = 1 + size + size * size / 2;
    return x < 0 ? 1 / factor : factor;
}

static void move_price(search *s, int32_t i, double target_s) {
    double excess = (s->end_s[i] + s->tail_s[i] - target_s) / s->deadline_s;
    s->price_w[i] =
        fmin(fmax(s->price_w[i] * growth(s->response * excess), s->lowest_w), s->highest_w);
}

/* Moves the prices towards those at which all paths have the length `target_s`. */
static void move_prices(search *s, double target_s) {
    for (int32_t i = 0; i < s->problem->instruction_count; i++)
        move_price(s, i, target_s);
}

/* Raises the prices on paths that are too long. */
static void raise_prices(search *s) {
    for (int32_t i = 0; i < s->problem->instruction_count; i++)
        if (s->end_s[i] + s->tail_s[i] > s->deadline_s * (1 + ROUNDING))
            s->price_w[i] = fmin(CLOSING_RISE * s->price_w[i], s->highest_w);
}

/* Begins the first run of a rank at a change, so that the present plan is among those that can be
 * chosen. */
static void begin_at_change(const search *s, rank_run *rank) {
    const int32_t *clock = s->clock + rank->first;
    rank->shift = 0;
    if (clock[0] != clock[rank->length - 1]) return;
    while (rank->shift + 1 < rank->length && clock[rank->shift] == clock[0])
        rank->shift++;
}

/* Begins with the best plan of the present start, and chooses the clocks of one rank again. */
static void polish_rank(search *s, rank_run *rank) {
    size_t count = (size_t)s->problem->instruction_count;
    memcpy(s->clock, s->best_clock, count * sizeof *s->clock);
    memcpy(s->price_w, s->best_w, count * sizeof *s->price_w);
    find_times(s);
    (void)run_iteration(s);
    begin_at_change(s, rank);
    for (int step = 0; step < POLISH_STEPS; step++) {
        for (int32_t i = rank->first; i < rank->first + rank->length; i++)
            move_price(s, i, s->deadline_s);
        choose_held(s, rank);
        find_times(s);
        (void)keep(s);
    }
}

/* Begins with the prices of the relaxation. Starts after the first multiply each by a random
 * factor, and let the first run begin at another place. */
static void begin_prices(search *s, const int64_t *price_uw) {
    double most_w = 0;
    s->lowest_w = LOWEST_PRICE * harpe_problem_iteration_power_w(s->problem);
    for (int32_t i = 0; i < s->problem->instruction_count; i++) {
        double factor = 1;
        if (s->start > 0) factor += PRICE_NOISE * (2 * draw(s) - 1);
        s->price_w[i] = fmax(factor * (double)price_uw[i] / HARPE_UW_PER_W, s->lowest_w);
        most_w = fmax(most_w, s->price_w[i]);
    }
    s->highest_w = HIGHEST_PRICE * most_w;
    for (int r = 0; r < s->problem->rank_count; r++)
        s->ranks[r].shift = s->ranks[r].length * (s->start % SHIFTS) / SHIFTS;
}

/* Searches from one start. */
static void search_from(search *s, const int64_t *price_uw) {
    double target_s = s->deadline_s;
    s->start_j = INFINITY;
    s->response = FIRST_RESPONSE * (1 << s->start % 3);
    begin_prices(s, price_uw);
    for (int step = 0; step < STEPS; step++) {
        choose_clocks(s);
        double length_s = keep(s);
        target_s += TARGET_RESPONSE * (s->deadline_s - length_s);
        target_s = fmin(fmax(target_s, LEAST_TARGET * s->deadline_s), s->deadline_s);
        if (step < STEPS - CLOSING_STEPS)
            move_prices(s, target_s);
        else
            raise_prices(s);
    }
    s->response = POLISH_RESPONSE;
    for (int round = 0; round < POLISH_ROUNDS && isfinite(s->start_j); round++)
        for (int r = 0; r < s->problem->rank_count; r++)
            if (s->ranks[r].clock_count > 0) polish_rank(s, &s->ranks[r]);
}

/* Makes the ranks as fast as they can be, with one clock each or with changes. Keeps these plans if
 * they are in time. Returns the length of the shorter one. */
static double try_fastest(search *s) {
    double shortest_s = INFINITY;
    for (int32_t i = 0; i < s->problem->instruction_count; i++)
        s->price_w[i] = FASTEST_PRICE_W;
    for (int one_clock = 0; one_clock < 2; one_clock++) {
        s->is_one_clock = one_clock == 1;
        choose_clocks(s);
        shortest_s = fmin(shortest_s, keep(s));
    }
    return shortest_s;
}

static void find_best(search *s, const int64_t *price_uw) {
    int starts = 1 + START_INSTRUCTIONS / s->problem->instruction_count;
    if (starts > MOST_STARTS) starts = MOST_STARTS;
    int all = starts + (starts < ONE_CLOCK_STARTS ? starts : ONE_CLOCK_STARTS);
    find_most(s);
    s->start = -1;
    s->start_j = INFINITY;
    double shortest_s = try_fastest(s);
    for (s->start = 0; s->start < all; s->start++) {
        s->is_one_clock = s->start >= starts;
        search_from(s, price_uw);
    }
    if (s->kept_count > 0 || s->deadline_s >= shortest_s) return;
    s->deadline_s = shortest_s;
    find_best(s, price_uw);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static bool is_among(const int *mhz, int count, int wanted_mhz) {
    for (int k = 0; k < count; k++)
        if (mhz[k] == wanted_mhz) return true;
    return false;
}

/* Lists the clocks that a rank's instructions were measured at. */
static harpe_status list_clocks(search *s, int number, harpe_error *error) {
    const harpe_problem *problem = s->problem;
    rank_run *rank = &s->ranks[number];
    size_t room = 0;
    for (size_t k = 0; k < problem->choice_count; k++)
        if (problem->choices[k].list.rank == number) room += problem->choices[k].point_count;
    int *mhz = harpe_arena_alloc(&s->arena, room + 1, sizeof *mhz);
    if (!mhz) return harpe_fail_memory(error);
    *rank = (rank_run){
        .first = (int32_t)problem->rank_offset[number],
        .length = (int32_t)(problem->rank_offset[number + 1] - problem->rank_offset[number]),
        .clock_mhz = mhz,
        .change_j = s->cost->energy_j};
    for (size_t k = 0; k < problem->choice_count; k++) {
        const harpe_choice *choice = &problem->choices[k];
        if (choice->list.rank != number) continue;
        for (size_t p = 0; p < choice->point_count; p++) {
            int one_mhz = choice->points[p].frequency_mhz;
            if (one_mhz == 0 || is_among(mhz, rank->clock_count, one_mhz)) continue;
            mhz[rank->clock_count++] = one_mhz;
            double hold_s = harpe_clock_switch_hold_s(problem, s->cost, number, one_mhz);
            rank->hold_s = fmax(rank->hold_s, hold_s * (1 + HOLD_MARGIN));
        }
    }
    if (rank->clock_count > s->most_clocks) s->most_clocks = rank->clock_count;
    return HARPE_OK;
}

static void fill_points(search *s) {
    const harpe_problem *problem = s->problem;
    for (size_t k = 0; k < problem->choice_count; k++) {
        const harpe_choice *choice = &problem->choices[k];
        if (choice->list.rank < 0 || choice->list.rank >= problem->rank_count) continue;
        const rank_run *rank = &s->ranks[choice->list.rank];
        for (int c = 0; c < rank->clock_count; c++) {
            size_t at = k * (size_t)s->most_clocks + (size_t)c;
            const harpe_profile_point *point = harpe_choice_point(choice, rank->clock_mhz[c]);
            s->points[at] = point;
            if (!point) continue;
            s->point_s[at] = point->time_s;
            s->effective_j[at] = point->energy_j - choice->blocking_power_w * point->time_s;
        }
    }
}

static harpe_status prepare(search *s, harpe_error *error) {
    const harpe_problem *problem = s->problem;
    size_t count = (size_t)problem->instruction_count, longest = 0;
    s->ranks = harpe_arena_alloc(&s->arena, (size_t)problem->rank_count, sizeof *s->ranks);
    if (!s->ranks) return harpe_fail_memory(error);
    for (int r = 0; r < problem->rank_count; r++) {
        harpe_status status = list_clocks(s, r, error);
        if (status != HARPE_OK) return status;
        if ((size_t)s->ranks[r].length > longest) longest = (size_t)s->ranks[r].length;
    }
    size_t clocks = (size_t)s->most_clocks, room = problem->choice_count * clocks;
    size_t places = (longest + 1) * clocks;
    s->points = harpe_arena_alloc(&s->arena, room + 1, sizeof *s->points);
    s->effective_j = harpe_arena_alloc(&s->arena, room + 1, sizeof *s->effective_j);
    s->point_s = harpe_arena_alloc(&s->arena, room + 1, sizeof *s->point_s);
    s->price_w = harpe_arena_alloc(&s->arena, count + 1, sizeof *s->price_w);
    s->time_s = harpe_arena_alloc(&s->arena, count + 1, sizeof *s->time_s);
    s->end_s = harpe_arena_alloc(&s->arena, count + 1, sizeof *s->end_s);
    s->tail_s = harpe_arena_alloc(&s->arena, count + 1, sizeof *s->tail_s);
    s->most_s = harpe_arena_alloc(&s->arena, count + 1, sizeof *s->most_s);
    s->best_clock = harpe_arena_alloc(&s->arena, count + 1, sizeof *s->best_clock);
    s->best_w = harpe_arena_alloc(&s->arena, count + 1, sizeof *s->best_w);
    s->clock = harpe_arena_alloc(&s->arena, count + 1, sizeof *s->clock);
    s->sum_j = harpe_arena_alloc(&s->arena, places + 1, sizeof *s->sum_j);
    s->sum_s = harpe_arena_alloc(&s->arena, places + 1, sizeof *s->sum_s);
    s->reach_j = harpe_arena_alloc(&s->arena, places + 1, sizeof *s->reach_j);
    s->run_first = harpe_arena_alloc(&s->arena, places + 1, sizeof *s->run_first);
    s->run_clock = harpe_arena_alloc(&s->arena, places + 1, sizeof *s->run_clock);
    s->open_j = harpe_arena_alloc(&s->arena, clocks + 1, sizeof *s->open_j);
    s->open_first = harpe_arena_alloc(&s->arena, clocks + 1, sizeof *s->open_first);
    s->next_first = harpe_arena_alloc(&s->arena, clocks + 1, sizeof *s->next_first);
    s->is_whole = harpe_arena_alloc(&s->arena, clocks + 1, sizeof *s->is_whole);
    if (!s->points || !s->effective_j || !s->point_s || !s->price_w || !s->time_s || !s->end_s ||
        !s->tail_s || !s->most_s || !s->best_clock || !s->best_w || !s->clock || !s->sum_j ||
        !s->sum_s || !s->reach_j || !s->run_first || !s->run_clock || !s->open_j ||
        !s->open_first || !s->next_first || !s->is_whole)
        return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        s->clock[i] = -1; /* instructions without clocks, and delays */
    fill_points(s);
    return HARPE_OK;
}

harpe_status harpe_clock_runs_find(const harpe_problem *problem, const harpe_clock_switch *cost,
                                   const int64_t *price_uw, double deadline_s, size_t room,
                                   int *frequency_mhz, size_t *found, harpe_error *error) {
    search s = {.problem = problem,
                .cost = cost,
                .deadline_s = deadline_s,
                .room = room,
                .kept_mhz = frequency_mhz};
    harpe_status status = prepare(&s, error);
    if (status == HARPE_OK) find_best(&s, price_uw);
    harpe_arena_free(&s.arena);
    *found = s.kept_count;
    return status;
}
