/* SPDX-License-Identifier: Apache-2.0 */
/* Makes plans whose clocks hold, in two ways; see clocks_internal.h. Descents look for the best
 * plan with one clock for each rank. Starts choose the clocks of each rank by dynamic programming,
 * given the price of a second of each instruction. With given prices the ranks do not depend on
 * each other, so this choice is exact. Prices that are too low make the iteration too long. Each
 * step of a start therefore raises the prices of instructions on paths that are too long, and
 * lowers the others, in proportion to the length of the longest path through the instruction. The
 * result is the best plan of each start and descent, of those that meet the deadline. */
#include "plan/clocks_internal.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/plans.h"
#include "plan/solver.h"

#define STEPS 48
/* A step changes the logarithm of a price by the response times the relative excess of the
 * longest path through the instruction. */
#define FIRST_RESPONSE 4.0
#define POLISH_RESPONSE 8.0
/* After the steps, the clocks of one rank after the other are chosen again, while the other ranks
 * keep theirs. */
#define POLISH_ROUNDS 2
#define POLISH_STEPS 12
/* Small problems have time for several starts, with other prices. */
#define START_INSTRUCTIONS 4000
#define MOST_STARTS 9
/* A descent changes two ranks at the same time by at most PAIR_STEP clocks. All descents together
 * evaluate at most DESCENT_VISITS instructions. */
#define PAIR_STEP 3
#define DESCENT_VISITS 8000000
#define MOST_KEPT 16
/* Prices change little from one choice to the next. Each choice is therefore made among the clocks
 * of the one before and this many on both sides. */
#define NEIGHBOURS 4
/* The first run of a rank begins at one of so many places of its list. Each start takes another. */
#define SHIFTS 4
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
/* The energy of a change on a rank whose clocks cannot hold: it has as few changes as possible. */
#define FEWEST_CHANGES_J 1e12

typedef struct search {
    const harpe_problem *problem;
    harpe_rank_clocks clocks;
    double deadline_s;
    harpe_arena arena;
    double *time_s;         /* [instruction] */
    double *end_s, *tail_s; /* [instruction] */
    double response;        /* by how much prices follow the paths */
    double start_j;         /* least energy of the present start */
    int32_t *best_clock;    /* [instruction]: of the plan with this energy */
    double *best_w;         /* [instruction]: the prices that gave it */
    double *rank_j; /* [rank][clock]: effective energy of a rank at a clock, see rank_sum_j */
    int *rank_clock, *best_rank_clock; /* [rank] */
    double least_s;                    /* time of an iteration, at least */
    int64_t visits;                    /* instructions that descents may still evaluate */
    uint64_t random;
    int start;                  /* number of the present start; below 0: before the first */
    double lowest_w, highest_w; /* limits of prices */
    size_t room, kept_count;
    double kept_j[MOST_KEPT]; /* energies of the best plans, the least first; one for each start */
    int kept_start[MOST_KEPT];
    int *kept_mhz; /* [room][instruction] */
} search;

static const harpe_profile_point *point_of(const search *s, int32_t i) {
    int32_t choice = s->problem->choice_of[i];
    if (s->clocks.clock[i] < 0) return &s->problem->choices[choice].points[0];
    return s->clocks
        .points[(size_t)choice * (size_t)s->clocks.most_clocks + (size_t)s->clocks.clock[i]];
}

static void find_times(search *s) {
    for (int32_t i = 0; i < s->problem->instruction_count; i++)
        s->time_s[i] = point_of(s, i)->time_s;
}

static bool chooses(search *s, const harpe_rank_run *rank) {
    return isfinite(harpe_rank_clocks_choose(&s->clocks, rank));
}

/* Chooses the clocks of a rank. Clocks that hold matter more than the limits of times. If no clocks
 * hold, the rank has as few changes as possible from then on. */
static void choose_held(search *s, harpe_rank_run *rank) {
    if (chooses(s, rank)) return;
    s->clocks.ignores_most = true;
    if (!chooses(s, rank)) {
        rank->hold_s = 0;
        rank->change_j = FEWEST_CHANGES_J;
        (void)chooses(s, rank);
    }
    s->clocks.ignores_most = false;
}

/* Limits the next choice to the present clocks of a rank and their neighbours. */
static void stay_near(const search *s, harpe_rank_run *rank) {
    int low = rank->clock_count, end = 0;
    for (int32_t i = rank->first; i < rank->first + rank->length; i++) {
        if (s->clocks.clock[i] < low) low = s->clocks.clock[i];
        if (s->clocks.clock[i] >= end) end = s->clocks.clock[i] + 1;
    }
    rank->low = low > NEIGHBOURS ? low - NEIGHBOURS : 0;
    rank->end = end + NEIGHBOURS < rank->clock_count ? end + NEIGHBOURS : rank->clock_count;
}

static void allow_all(search *s) {
    for (int r = 0; r < s->problem->rank_count; r++) {
        s->clocks.ranks[r].low = 0;
        s->clocks.ranks[r].end = s->clocks.ranks[r].clock_count;
    }
}

/* Begins the first run of a rank at a place of its list, or at the next instruction with clocks. */
static void begin_at(const search *s, harpe_rank_run *rank, int32_t shift) {
    for (int32_t k = 0; k < rank->length; k++) {
        rank->shift = (shift + k) % rank->length;
        int32_t i = rank->first + rank->shift;
        if (harpe_choice_has_clocks(harpe_problem_choice(s->problem, i))) return;
    }
}

static void choose_clocks(search *s) {
    for (int r = 0; r < s->problem->rank_count; r++)
        if (s->clocks.ranks[r].clock_count > 0) {
            choose_held(s, &s->clocks.ranks[r]);
            stay_near(s, &s->clocks.ranks[r]);
        }
    find_times(s);
}

/* ---- The iteration --------------------------------------------------------------------------- */

static double run_iteration(search *s) {
    return harpe_dag_run(&s->problem->dag, s->time_s, s->end_s, s->tail_s);
}

static double energy_j(const search *s, double length_s) {
    double sum_j = harpe_problem_iteration_power_w(s->problem) * length_s;
    for (int r = 0; r < s->problem->rank_count; r++) {
        const harpe_rank_run *rank = &s->clocks.ranks[r];
        for (int32_t i = rank->first; i < rank->first + rank->length; i++) {
            const harpe_choice *choice = harpe_problem_choice(s->problem, i);
            const harpe_profile_point *point = point_of(s, i);
            int32_t before = i > rank->first ? i - 1 : i + rank->length - 1;
            sum_j += point->energy_j - choice->blocking_power_w * point->time_s;
            if (s->clocks.clock[i] != s->clocks.clock[before]) sum_j += s->clocks.cost->energy_j;
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
        const harpe_rank_run *rank = &s->clocks.ranks[r];
        for (int32_t i = rank->first; i < rank->first + rank->length; i++) {
            bool has_clock = harpe_choice_has_clocks(harpe_problem_choice(s->problem, i));
            frequency_mhz[i] = has_clock ? rank->clock_mhz[s->clocks.clock[i]] : 0;
        }
    }
}

/* Makes room for a plan in the list of the best. Returns its place, or SIZE_MAX if it is not among
 * them. */
static size_t make_room(search *s, double found_j) {
    size_t size = (size_t)s->problem->instruction_count, last = 0, at;
    for (size_t k = 0; k < s->kept_count; k++)
        if (s->kept_j[k] == found_j) return SIZE_MAX; /* the same plan, or one as good */
    while (last < s->kept_count && s->kept_start[last] != s->start)
        last++; /* the new plan replaces that of the same start, or else the worst */
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

/* Evaluates the present plan. Keeps it if it meets the deadline and is among the best. Returns the
 * length of the iteration. */
static double keep(search *s) {
    size_t size = (size_t)s->problem->instruction_count;
    double length_s = run_iteration(s);
    if (length_s > s->deadline_s * (1 + ROUNDING)) return length_s;
    double found_j = energy_j(s, length_s);
    if (found_j < s->start_j) {
        s->start_j = found_j;
        memcpy(s->best_clock, s->clocks.clock, size * sizeof *s->clocks.clock);
        memcpy(s->best_w, s->clocks.price_w, size * sizeof *s->clocks.price_w);
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
    s->clocks.price_w[i] =
        fmin(fmax(s->clocks.price_w[i] * growth(s->response * excess), s->lowest_w), s->highest_w);
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
            s->clocks.price_w[i] = fmin(CLOSING_RISE * s->clocks.price_w[i], s->highest_w);
}

/* Begins the first run of a rank at a change, so that the present plan is among those that can be
 * chosen. */
static void begin_at_change(const search *s, harpe_rank_run *rank) {
    const int32_t *clock = s->clocks.clock + rank->first;
    int32_t shift = 0;
    if (clock[0] == clock[rank->length - 1])
        while (shift + 1 < rank->length && clock[shift] == clock[0])
            shift++;
    begin_at(s, rank, shift);
}

/* Begins with the best plan of the present start, and chooses the clocks of one rank again. */
static void polish_rank(search *s, harpe_rank_run *rank) {
    size_t count = (size_t)s->problem->instruction_count;
    memcpy(s->clocks.clock, s->best_clock, count * sizeof *s->clocks.clock);
    memcpy(s->clocks.price_w, s->best_w, count * sizeof *s->clocks.price_w);
    find_times(s);
    (void)run_iteration(s);
    stay_near(s, rank);
    begin_at_change(s, rank);
    for (int step = 0; step < POLISH_STEPS; step++) {
        for (int32_t i = rank->first; i < rank->first + rank->length; i++)
            move_price(s, i, s->deadline_s);
        choose_held(s, rank);
        stay_near(s, rank);
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
        s->clocks.price_w[i] = fmax(factor * (double)price_uw[i] / HARPE_UW_PER_W, s->lowest_w);
        most_w = fmax(most_w, s->clocks.price_w[i]);
    }
    s->highest_w = HIGHEST_PRICE * most_w;
    for (int r = 0; r < s->problem->rank_count; r++) {
        harpe_rank_run *rank = &s->clocks.ranks[r];
        begin_at(s, rank, rank->length * (s->start % SHIFTS) / SHIFTS);
    }
    allow_all(s);
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
            if (s->clocks.ranks[r].clock_count > 0) polish_rank(s, &s->clocks.ranks[r]);
}

/* Makes the ranks as fast as they can be. Keeps this plan if it meets the deadline. Returns the
 * length of the iteration. */
static double try_fastest(search *s) {
    for (int32_t i = 0; i < s->problem->instruction_count; i++)
        s->clocks.price_w[i] = FASTEST_PRICE_W;
    for (int r = 0; r < s->problem->rank_count; r++)
        begin_at(s, &s->clocks.ranks[r], 0);
    allow_all(s);
    choose_clocks(s);
    return keep(s);
}

/* ---- One clock per rank ---------------------------------------------------------------------- */

/* Computes rank_j, which is INFINITY if an instruction of the rank cannot run at the clock. */
static void find_rank_sums(search *s) {
    size_t most = (size_t)s->clocks.most_clocks;
    memset(s->rank_j, 0, (size_t)s->problem->rank_count * most * sizeof *s->rank_j);
    for (size_t i = 0; i < harpe_problem_instruction_count(s->problem); i++) {
        size_t choice = (size_t)s->problem->choice_of[i];
        double *sum_j = s->rank_j + (size_t)s->problem->choices[choice].list.rank * most;
        for (size_t c = 0; c < most; c++) {
            size_t at = choice * most + c;
            bool may_run = s->clocks.points[at] && s->clocks.point_s[at] <= s->clocks.most_s[i];
            sum_j[c] += may_run ? s->clocks.effective_j[at] : INFINITY;
        }
    }
}

/* Returns the effective energy of a rank at a clock, 0 if the rank has no clocks, or INFINITY if it
 * cannot run at the clock. */
static double rank_sum_j(const search *s, int r, int c) {
    if (s->clocks.ranks[r].clock_count == 0) return 0;
    if (c < 0 || c >= s->clocks.ranks[r].clock_count) return INFINITY;
    return s->rank_j[(size_t)r * (size_t)s->clocks.most_clocks + (size_t)c];
}

/* Gives each instruction the clock of its rank. */
static void apply_rank_clocks(search *s) {
    for (int r = 0; r < s->problem->rank_count; r++) {
        const harpe_rank_run *rank = &s->clocks.ranks[r];
        for (int32_t i = rank->first; i < rank->first + rank->length; i++)
            s->clocks.clock[i] = rank->clock_count > 0 ? s->rank_clock[r] : -1;
    }
    find_times(s);
}

/* Evaluates the present clocks of the ranks. If they meet the deadline and need less than
 * `*best_j`, they become the best ones. */
static void try_rank_clocks(search *s, double *best_j) {
    double sum_j = 0, power_w = harpe_problem_iteration_power_w(s->problem);
    for (int r = 0; r < s->problem->rank_count; r++)
        sum_j += rank_sum_j(s, r, s->rank_clock[r]);
    if (!(sum_j + power_w * s->least_s < *best_j) || s->visits < 0) return;
    s->visits -= s->problem->instruction_count;
    apply_rank_clocks(s);
    double length_s = harpe_dag_run(&s->problem->dag, s->time_s, s->end_s, NULL);
    double found_j = sum_j + power_w * length_s;
    if (length_s > s->deadline_s * (1 + ROUNDING) || !(found_j < *best_j * (1 - ROUNDING))) return;
    *best_j = found_j;
    memcpy(s->best_rank_clock, s->rank_clock,
           (size_t)s->problem->rank_count * sizeof *s->rank_clock);
}

/* Begins at the best clocks. Makes the change of one rank's clock that saves most energy. If none
 * saves energy, makes one rank faster and another slower. Returns false if that saves nothing
 * either; the present clocks are then the best ones. */
static bool change_rank_clocks(search *s, double *best_j) {
    int ranks = s->problem->rank_count, *now = s->rank_clock;
    double before_j = *best_j;
    memcpy(now, s->best_rank_clock, (size_t)ranks * sizeof *now);
    for (int r = 0; r < ranks; r++) {
        int before = now[r];
        for (now[r] = 0; now[r] < s->clocks.ranks[r].clock_count; now[r]++)
            try_rank_clocks(s, best_j);
        now[r] = before;
    }
    for (int k = 0; k < ranks * ranks && *best_j == before_j; k++)
        for (int step = 0; step < PAIR_STEP * PAIR_STEP && k / ranks != k % ranks; step++) {
            int faster = 1 + step % PAIR_STEP, slower = 1 + step / PAIR_STEP;
            now[k / ranks] -= faster;
            now[k % ranks] += slower;
            try_rank_clocks(s, best_j);
            now[k / ranks] += faster;
            now[k % ranks] -= slower;
        }
    return *best_j < before_j;
}

/* Descends from the best clocks of the ranks that were tried, and keeps the result. `best_j` is
 * their energy; INFINITY: none meet the deadline. */
static void descend_rank_clocks(search *s, double best_j) {
    if (!isfinite(best_j)) return;
    s->start--;
    s->start_j = INFINITY;
    while (change_rank_clocks(s, &best_j)) {
    }
    apply_rank_clocks(s);
    (void)keep(s);
}

/* Gives a rank a clock. If the rank lacks it, this is its next lower clock, or else its lowest. */
static void set_rank_clock(search *s, int r, int mhz) {
    const harpe_rank_run *rank = &s->clocks.ranks[r];
    int c = 0;
    while (c + 1 < rank->clock_count && rank->clock_mhz[c] > mhz)
        c++;
    s->rank_clock[r] = c;
}

/* Descends from the highest clock that each rank can run at, and from the best plan with one clock
 * for all ranks. */
static void find_rank_clocks(search *s) {
    double best_j = INFINITY;
    int ranks = s->problem->rank_count;
    s->visits = DESCENT_VISITS;
    s->least_s = harpe_dag_run(&s->problem->dag, s->clocks.fastest_s, s->end_s, NULL);
    find_rank_sums(s);
    for (int r = 0; r < ranks; r++) {
        int c = 0;
        while (c + 1 < s->clocks.ranks[r].clock_count && isinf(rank_sum_j(s, r, c)))
            c++;
        s->rank_clock[r] = c;
    }
    try_rank_clocks(s, &best_j);
    descend_rank_clocks(s, best_j);
    best_j = INFINITY;
    for (int r = 0; r < ranks; r++)
        for (int c = 0; c < s->clocks.ranks[r].clock_count; c++) {
            for (int other = 0; other < ranks; other++)
                set_rank_clock(s, other, s->clocks.ranks[r].clock_mhz[c]);
            try_rank_clocks(s, &best_j);
        }
    descend_rank_clocks(s, best_j);
}

/* Descends from the best plan found, if it has one clock for each rank. */
static void improve_rank_clocks(search *s) {
    double best_j = INFINITY;
    if (s->kept_count == 0 || harpe_evaluate_changes(s->problem, s->kept_mhz) > 0) return;
    for (int r = 0; r < s->problem->rank_count; r++)
        set_rank_clock(s, r, harpe_evaluate_last_clock_mhz(s->problem, r, s->kept_mhz));
    try_rank_clocks(s, &best_j);
    descend_rank_clocks(s, best_j);
}

static void find_best(search *s, const int64_t *price_uw) {
    int starts = 1 + START_INSTRUCTIONS / s->problem->instruction_count;
    if (starts > MOST_STARTS) starts = MOST_STARTS;
    harpe_rank_clocks_limit(&s->clocks, s->deadline_s * (1 + ROUNDING), s->end_s, s->tail_s);
    s->start = -1;
    s->start_j = INFINITY;
    double shortest_s = try_fastest(s);
    find_rank_clocks(s);
    for (s->start = 0; s->start < starts; s->start++)
        search_from(s, price_uw);
    improve_rank_clocks(s);
    if (s->kept_count > 0 || s->deadline_s >= shortest_s) return;
    s->deadline_s = shortest_s;
    find_best(s, price_uw);
}

static harpe_status prepare(search *s, const harpe_clock_switch *cost, harpe_error *error) {
    size_t count = (size_t)s->problem->instruction_count;
    harpe_status status = harpe_rank_clocks_init(&s->clocks, s->problem, cost, error);
    if (status != HARPE_OK) return status;
    s->time_s = harpe_arena_alloc(&s->arena, count + 1, sizeof *s->time_s);
    s->end_s = harpe_arena_alloc(&s->arena, count + 1, sizeof *s->end_s);
    s->tail_s = harpe_arena_alloc(&s->arena, count + 1, sizeof *s->tail_s);
    s->best_clock = harpe_arena_alloc(&s->arena, count + 1, sizeof *s->best_clock);
    s->best_w = harpe_arena_alloc(&s->arena, count + 1, sizeof *s->best_w);
    size_t ranks = (size_t)s->problem->rank_count;
    s->rank_j =
        harpe_arena_alloc(&s->arena, ranks * (size_t)s->clocks.most_clocks + 1, sizeof *s->rank_j);
    s->rank_clock = harpe_arena_alloc(&s->arena, ranks + 1, sizeof *s->rank_clock);
    s->best_rank_clock = harpe_arena_alloc(&s->arena, ranks + 1, sizeof *s->best_rank_clock);
    return s->arena.has_failed ? harpe_fail_memory(error) : HARPE_OK;
}

harpe_status harpe_clock_runs_find(const harpe_problem *problem, const harpe_clock_switch *cost,
                                   const int64_t *price_uw, double deadline_s, size_t room,
                                   int *frequency_mhz, size_t *found, harpe_error *error) {
    search s = {
        .problem = problem, .deadline_s = deadline_s, .room = room, .kept_mhz = frequency_mhz};
    harpe_status status = prepare(&s, cost, error);
    if (status == HARPE_OK) find_best(&s, price_uw);
    harpe_rank_clocks_clear(&s.clocks);
    harpe_arena_free(&s.arena);
    *found = s.kept_count;
    return status;
}
