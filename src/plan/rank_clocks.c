/* SPDX-License-Identifier: Apache-2.0 */
/* Dynamic programming over the runs of a rank; see clocks_internal.h. */
#include "plan/clocks_internal.h"

#include <math.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/plans.h"

#define HOLD_MARGIN 1e-9 /* relative: times are sums of doubles */

/* ---- One rank -------------------------------------------------------------------------------- */

/* Returns how long an instruction may take. At a clock at which it takes longer, or was not
 * measured, it cannot run. */
static double most_s(const harpe_rank_clocks *s, int32_t i) {
    return s->ignores_most ? INFINITY : s->most_s[i];
}

/* Returns the instruction at a place, counted from the start of the first run. */
static int32_t instruction_at(const harpe_rank_run *rank, int32_t place) {
    int32_t at = place + rank->shift;
    return rank->first + (at < rank->length ? at : at - rank->length);
}

/* Returns the cheapest run before a place, if another clock follows. */
static const harpe_last_run *run_before(const harpe_rank_clocks *s, int32_t place, int clock) {
    const harpe_last_run *last = s->last + 2 * (size_t)place;
    return &last[last[0].clock == clock];
}

/* Returns what a run costs that starts at a place, less the sum before it. */
static double start_j(const harpe_rank_clocks *s, const harpe_rank_run *rank, int32_t first,
                      int clock) {
    double reach_j = first > 0 ? run_before(s, first, clock)->cost_j + rank->change_j : 0;
    return reach_j - s->sum_j[(size_t)first * (size_t)rank->clock_count + (size_t)clock];
}

/* ---- Proofs ---------------------------------------------------------------------------------- */

static void begin_proof(harpe_rank_clocks *s, const harpe_rank_run *rank) {
    harpe_rank_proof *proof = s->proof;
    for (int c = rank->low; c < rank->end; c++)
        proof->queue_at[c] = proof->queue_end[c] = proof->least_first[c] = 0;
}

static int32_t *queue_of(const harpe_rank_clocks *s, int clock) {
    return s->proof->queue + (size_t)clock * ((size_t)s->longest + 1);
}

/* Adds a start to those of runs that are long enough. The queue holds the starts that are cheaper
 * than all before them that a run may still reach back to. */
static void add_start(harpe_rank_clocks *s, const harpe_rank_run *rank, int clock, int32_t first) {
    harpe_rank_proof *proof = s->proof;
    int32_t *queue = queue_of(s, clock), *end = &proof->queue_end[clock];
    double added_j = start_j(s, rank, first, clock);
    while (*end > proof->queue_at[clock] && start_j(s, rank, queue[*end - 1], clock) > added_j)
        --*end;
    queue[(*end)++] = first;
}

/* Returns whether the iteration can be short enough with a run from `first` to `place`, if all
 * other instructions are at their fastest. Only the part in the iteration of its end is counted. */
static bool fits(const harpe_rank_clocks *s, const harpe_rank_run *rank, int32_t first,
                 int32_t place, int clock) {
    const harpe_rank_proof *proof = s->proof;
    int32_t begin = rank->length - rank->shift; /* of an iteration */
    size_t count = (size_t)rank->clock_count;
    if (first < begin && begin < place) first = begin;
    double run_s = s->sum_s[(size_t)place * count + (size_t)clock] -
                   s->sum_s[(size_t)first * count + (size_t)clock];
    return proof->early_s[instruction_at(rank, first)] + run_s +
               proof->tail_s[instruction_at(rank, place - 1)] <=
           proof->longest_s;
}

/* Drops the starts of runs that are too long. A run that contains such a run is too long as well.
 */
static void drop_long_runs(harpe_rank_clocks *s, const harpe_rank_run *rank, int32_t place,
                           int clock) {
    harpe_rank_proof *proof = s->proof;
    const int32_t *queue = queue_of(s, clock);
    int32_t *least = &proof->least_first[clock], *at = &proof->queue_at[clock];
    while (*least < place && !fits(s, rank, *least, place, clock))
        ++*least;
    if (*least > 0) s->is_whole[clock] = false;
    if (s->next_first[clock] < *least) s->next_first[clock] = *least;
    while (*at < proof->queue_end[clock] && queue[*at] < *least)
        ++*at;
}

/* Finds the cheapest run to `place` at a clock. A run whose clock does not hold waits, where
 * waiting costs least. The first run goes on from the run before the cut, so it holds. */
static harpe_last_run proven_run(const harpe_rank_clocks *s, const harpe_rank_run *rank,
                                 int32_t place, int clock) {
    const harpe_rank_proof *proof = s->proof;
    size_t count = (size_t)rank->clock_count, end = (size_t)place * count + (size_t)clock;
    harpe_last_run best = {INFINITY, 0, clock};
    if (proof->queue_at[clock] < proof->queue_end[clock]) {
        best.first = queue_of(s, clock)[proof->queue_at[clock]];
        best.cost_j = start_j(s, rank, best.first, clock);
    }
    double wait_w = place < rank->length ? INFINITY : 0; /* the last run goes on, too */
    for (int32_t first = place - 1; first >= s->next_first[clock]; first--) {
        double run_s = s->sum_s[end] - s->sum_s[(size_t)first * count + (size_t)clock];
        double missing_s = rank->hold_s - run_s, cost_j = start_j(s, rank, first, clock);
        int32_t next = first + 1;
        if (next < rank->length) wait_w = fmin(wait_w, proof->wait_w[instruction_at(rank, next)]);
        if (missing_s > 0 && first > 0 && wait_w > 0) cost_j += missing_s * wait_w;
        if (cost_j < best.cost_j) best = (harpe_last_run){cost_j, first, clock};
    }
    best.cost_j += s->sum_j[end];
    return best;
}

/* Writes where the run from `first` to `end` waits, and how long. */
static void write_wait(const harpe_rank_clocks *s, const harpe_rank_run *rank, int32_t first,
                       int32_t end, int clock) {
    const harpe_rank_proof *proof = s->proof;
    size_t count = (size_t)rank->clock_count;
    int32_t cheapest = instruction_at(rank, end < rank->length ? end : 0);
    for (int32_t k = first; k < end; k++) {
        int32_t i = instruction_at(rank, k);
        proof->wait_s[i] = 0;
        if (k > first && proof->wait_w[i] < proof->wait_w[cheapest]) cheapest = i;
    }
    double missing_s = rank->hold_s + s->sum_s[(size_t)first * count + (size_t)clock] -
                       s->sum_s[(size_t)end * count + (size_t)clock];
    if (first > 0 && end < rank->length && missing_s > 0) proof->wait_s[cheapest] = missing_s;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

static void begin_sums(harpe_rank_clocks *s, const harpe_rank_run *rank) {
    for (int c = rank->low; c < rank->end; c++) {
        s->sum_j[c] = s->sum_s[c] = 0;
        s->open_j[c] = INFINITY;
        s->open_first[c] = s->next_first[c] = 0;
        s->is_whole[c] = true;
    }
    if (s->proof) begin_proof(s, rank);
}

/* Adds the instruction before `place` to the sums. If it cannot run at a clock, no run at this
 * clock contains it: runs start after it again. */
static void add_instruction(harpe_rank_clocks *s, const harpe_rank_run *rank, int32_t place) {
    int count = rank->clock_count;
    int32_t i = instruction_at(rank, place - 1);
    size_t row = (size_t)s->problem->choice_of[i] * (size_t)s->most_clocks;
    double price_w = s->price_w[i], longest_s = most_s(s, i);
    const double *before_j = s->sum_j + (size_t)(place - 1) * (size_t)count;
    const double *before_s = s->sum_s + (size_t)(place - 1) * (size_t)count;
    double *sum_j = s->sum_j + (size_t)place * (size_t)count;
    double *sum_s = s->sum_s + (size_t)place * (size_t)count;
    for (int c = rank->low; c < rank->end; c++) {
        sum_j[c] =
            before_j[c] + s->effective_j[row + (size_t)c] + price_w * s->point_s[row + (size_t)c];
        sum_s[c] = before_s[c] + s->point_s[row + (size_t)c];
        if (s->points[row + (size_t)c] && s->point_s[row + (size_t)c] <= longest_s) continue;
        s->open_j[c] = INFINITY;
        s->next_first[c] = place;
        s->is_whole[c] = false;
        if (s->proof) s->proof->least_first[c] = place;
    }
}

/* Returns whether a clock may change at a place: an instruction without clocks keeps that of the
 * instruction before it. */
static bool begins_run(const harpe_rank_clocks *s, const harpe_rank_run *rank, int32_t place) {
    return place == 0 ||
           harpe_choice_has_clocks(harpe_problem_choice(s->problem, instruction_at(rank, place)));
}

/* Finds the cheapest two last runs before `place` with different clocks. */
static void find_last(harpe_rank_clocks *s, const harpe_rank_run *rank, int32_t place,
                      harpe_last_run found[2]) {
    int count = rank->clock_count;
    const double *sum_j = s->sum_j + (size_t)place * (size_t)count;
    const double *sum_s = s->sum_s + (size_t)place * (size_t)count;
    found[0] = found[1] = (harpe_last_run){INFINITY, 0, -1};
    for (int c = rank->low; c < rank->end; c++) {
        if (s->proof) drop_long_runs(s, rank, place, c);
        if (isinf(rank->hold_s)) continue; /* the clock never changes */
        for (; s->next_first[c] < place; s->next_first[c]++) {
            size_t at = (size_t)s->next_first[c] * (size_t)count + (size_t)c;
            if (sum_s[c] - s->sum_s[at] < rank->hold_s) break;
            if (!s->proof && !s->begins_run[s->next_first[c]]) continue;
            double open_j = start_j(s, rank, s->next_first[c], c);
            if (s->proof) add_start(s, rank, c, s->next_first[c]);
            if (open_j >= s->open_j[c]) continue;
            s->open_j[c] = open_j;
            s->open_first[c] = s->next_first[c];
        }
        harpe_last_run run = {s->open_j[c] + sum_j[c], s->open_first[c], c};
        if (s->proof) run = proven_run(s, rank, place, c);
        if (run.cost_j < found[0].cost_j) {
            found[1] = found[0];
            found[0] = run;
        } else if (run.cost_j < found[1].cost_j) {
            found[1] = run;
        }
    }
}

/* Considers one clock for the whole rank, which need not hold for any time. */
static void consider_one_clock(const harpe_rank_clocks *s, const harpe_rank_run *rank,
                               harpe_last_run *best) {
    size_t last = (size_t)rank->length * (size_t)rank->clock_count;
    for (int c = rank->low; c < rank->end; c++)
        if (s->is_whole[c] && s->sum_j[last + (size_t)c] < best->cost_j)
            *best = (harpe_last_run){s->sum_j[last + (size_t)c], 0, c};
}

/* Writes the clocks of the runs up to the last. */
static void write_clocks(harpe_rank_clocks *s, const harpe_rank_run *rank, harpe_last_run last) {
    int32_t first = last.first, end = rank->length, clock = last.clock;
    for (;;) {
        for (int32_t k = first; k < end; k++)
            s->clock[instruction_at(rank, k)] = clock;
        if (s->proof) write_wait(s, rank, first, end, clock);
        if (first == 0) return;
        const harpe_last_run *before = run_before(s, first, clock);
        end = first;
        first = before->first;
        clock = before->clock;
    }
}

/* Finds the cheapest clock for the whole rank. */
static harpe_last_run find_one_clock(const harpe_rank_clocks *s, const harpe_rank_run *rank) {
    harpe_last_run best = {INFINITY, 0, -1};
    for (int c = rank->low; c < rank->end; c++) {
        double sum_j = 0;
        for (int32_t i = rank->first; i < rank->first + rank->length && isfinite(sum_j); i++) {
            size_t at = (size_t)s->problem->choice_of[i] * (size_t)s->most_clocks + (size_t)c;
            bool may_run = s->points[at] && s->point_s[at] <= most_s(s, i);
            sum_j += may_run ? s->effective_j[at] + s->price_w[i] * s->point_s[at] : INFINITY;
        }
        if (sum_j < best.cost_j) best = (harpe_last_run){sum_j, 0, c};
    }
    return best;
}

/* Finds the cheapest clocks whose runs hold. */
static harpe_last_run find_runs(harpe_rank_clocks *s, const harpe_rank_run *rank) {
    harpe_last_run *last = s->last;
    begin_sums(s, rank);
    for (int32_t place = 0; place < rank->length; place++)
        s->begins_run[place] = begins_run(s, rank, place);
    for (int32_t place = 1; place <= rank->length; place++) {
        add_instruction(s, rank, place);
        last += 2;
        find_last(s, rank, place, last);
    }
    harpe_last_run best = last[0];
    consider_one_clock(s, rank, &best);
    return best;
}

double harpe_rank_clocks_choose(harpe_rank_clocks *s, const harpe_rank_run *rank) {
    harpe_last_run best =
        isinf(rank->hold_s) && !s->proof ? find_one_clock(s, rank) : find_runs(s, rank);
    if (isfinite(best.cost_j)) write_clocks(s, rank, best);
    return best.cost_j;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static bool is_among(const int *mhz, int count, int wanted_mhz) {
    for (int k = 0; k < count; k++)
        if (mhz[k] == wanted_mhz) return true;
    return false;
}

/* Lists the clocks that a rank's instructions were measured at. */
static harpe_status list_clocks(harpe_rank_clocks *s, int number, harpe_error *error) {
    const harpe_problem *problem = s->problem;
    harpe_rank_run *rank = &s->ranks[number];
    size_t room = 0;
    for (size_t k = 0; k < problem->choice_count; k++)
        if (problem->choices[k].list.rank == number) room += problem->choices[k].point_count;
    int *mhz = harpe_arena_alloc(&s->arena, room + 1, sizeof *mhz);
    if (!mhz) return harpe_fail_memory(error);
    *rank = (harpe_rank_run){
        .first = (int32_t)problem->rank_offset[number],
        .length = (int32_t)(problem->rank_offset[number + 1] - problem->rank_offset[number]),
        .clock_mhz = mhz,
        .least_hold_s = INFINITY,
        .change_j = s->cost->energy_j};
    for (size_t k = 0; k < problem->choice_count; k++) {
        const harpe_choice *choice = &problem->choices[k];
        if (choice->list.rank != number) continue;
        for (size_t p = choice->throttled_count; p < choice->point_count; p++) {
            int one_mhz = choice->points[p].frequency_mhz;
            if (one_mhz == 0 || is_among(mhz, rank->clock_count, one_mhz)) continue;
            int at = rank->clock_count++;
            for (; at > 0 && mhz[at - 1] < one_mhz; at--)
                mhz[at] = mhz[at - 1];
            mhz[at] = one_mhz;
            double hold_s = harpe_clock_switch_hold_s(problem, s->cost, number, one_mhz);
            rank->hold_s = fmax(rank->hold_s, hold_s * (1 + HOLD_MARGIN));
            rank->least_hold_s = fmin(rank->least_hold_s, hold_s * (1 - HOLD_MARGIN));
        }
    }
    rank->end = rank->clock_count;
    if (rank->clock_count > s->most_clocks) s->most_clocks = rank->clock_count;
    return HARPE_OK;
}

static void fill_points(harpe_rank_clocks *s) {
    const harpe_problem *problem = s->problem;
    for (size_t k = 0; k < problem->choice_count; k++) {
        const harpe_choice *choice = &problem->choices[k];
        if (choice->list.rank < 0 || choice->list.rank >= problem->rank_count) continue;
        const harpe_rank_run *rank = &s->ranks[choice->list.rank];
        for (int c = 0; c < rank->clock_count; c++) {
            size_t at = k * (size_t)s->most_clocks + (size_t)c;
            const harpe_profile_point *point = harpe_choice_reached(choice, rank->clock_mhz[c]);
            s->points[at] = point;
            if (!point) continue;
            s->point_s[at] = point->time_s;
            s->effective_j[at] = point->energy_j - choice->blocking_power_w * point->time_s;
        }
    }
}

harpe_status harpe_rank_clocks_init(harpe_rank_clocks *s, const harpe_problem *problem,
                                    const harpe_clock_switch *cost, harpe_error *error) {
    size_t count = (size_t)problem->instruction_count;
    *s = (harpe_rank_clocks){.problem = problem, .cost = cost};
    s->ranks = harpe_arena_alloc(&s->arena, (size_t)problem->rank_count, sizeof *s->ranks);
    if (!s->ranks) return harpe_fail_memory(error);
    for (int r = 0; r < problem->rank_count; r++) {
        harpe_status status = list_clocks(s, r, error);
        if (status != HARPE_OK) return status;
        if (s->ranks[r].length > s->longest) s->longest = s->ranks[r].length;
    }
    size_t clocks = (size_t)s->most_clocks, room = problem->choice_count * clocks;
    size_t places = ((size_t)s->longest + 1) * clocks;
    s->points = harpe_arena_alloc(&s->arena, room + 1, sizeof *s->points);
    s->effective_j = harpe_arena_alloc(&s->arena, room + 1, sizeof *s->effective_j);
    s->point_s = harpe_arena_alloc(&s->arena, room + 1, sizeof *s->point_s);
    s->price_w = harpe_arena_alloc(&s->arena, count + 1, sizeof *s->price_w);
    s->fastest_s = harpe_arena_alloc(&s->arena, count + 1, sizeof *s->fastest_s);
    s->most_s = harpe_arena_alloc(&s->arena, count + 1, sizeof *s->most_s);
    s->clock = harpe_arena_alloc(&s->arena, count + 1, sizeof *s->clock);
    s->sum_j = harpe_arena_alloc(&s->arena, places + 1, sizeof *s->sum_j);
    s->sum_s = harpe_arena_alloc(&s->arena, places + 1, sizeof *s->sum_s);
    s->last = harpe_arena_alloc(&s->arena, 2 * ((size_t)s->longest + 1), sizeof *s->last);
    s->open_j = harpe_arena_alloc(&s->arena, clocks + 1, sizeof *s->open_j);
    s->open_first = harpe_arena_alloc(&s->arena, clocks + 1, sizeof *s->open_first);
    s->next_first = harpe_arena_alloc(&s->arena, clocks + 1, sizeof *s->next_first);
    s->is_whole = harpe_arena_alloc(&s->arena, clocks + 1, sizeof *s->is_whole);
    s->begins_run = harpe_arena_alloc(&s->arena, (size_t)s->longest + 1, sizeof *s->begins_run);
    if (s->arena.has_failed) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        s->clock[i] = -1; /* instructions without clocks, and delays */
        s->fastest_s[i] = harpe_problem_choice(problem, (int32_t)i)->list.options[0].time_s;
    }
    fill_points(s);
    return HARPE_OK;
}

void harpe_rank_clocks_limit(harpe_rank_clocks *s, double longest_s, double *end_s,
                             double *tail_s) {
    (void)harpe_dag_run(&s->problem->dag, s->fastest_s, end_s, tail_s);
    for (int32_t i = 0; i < s->problem->instruction_count; i++)
        s->most_s[i] = longest_s - (end_s[i] - s->fastest_s[i]) - tail_s[i];
}

void harpe_rank_clocks_clear(harpe_rank_clocks *s) { harpe_arena_free(&s->arena); }
