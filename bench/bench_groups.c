/* SPDX-License-Identifier: Apache-2.0 */
/* Two simple searches for plans with few changes of clock, for comparison with `--min-dwell`. They
 * share no code with the planner. bench/search/dwell.py starts this program.
 *
 * Standard input, all separated by white space:
 *
 *     ranks choices instructions waits
 *     blocking power of each rank
 *     for each choice: number of clocks, then MHz, seconds and joules of each
 *     for each instruction, rank by rank, in the order of the rank: rank, choice
 *     for each wait: the instruction that ends first, the instruction that waits for it
 *     then, until the end, for each query: deadline in seconds, dwell time in seconds
 *
 * Standard output, one line for each query: time and energy of the best plan found with one clock
 * per rank, and of the plan of the greedy search with one clock per group of neighbouring
 * instructions of a rank that take at least the dwell time. -1 -1: no plan meets the deadline. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Most clocks by which two groups are changed at once. */
#define PAIR_STEP 3
/* Relative tolerance for times that are sums. */
#define ROUNDING 1e-12

typedef struct point {
    int mhz;
    double time_s, energy_j;
} point;

typedef struct choice {
    int count;
    point *points;
} choice;

/* Instructions first .. end - 1 run at one clock. */
typedef struct group {
    int first, end, count, clock;
    int *mhz;                 /* the clocks that all of its instructions have, the fastest first */
    double *time_s, *saved_j; /* [clock]: sums; energy is that beyond waiting */
} group;

typedef struct job {
    int ranks, choice_count, count, wait_count, group_count;
    double *power_w;
    choice *choices;
    int *rank, *choice_of, *order, *first_wait, *wait_from;
    double *time_s, *energy_j, *end_s; /* [instruction]: of the present plan */
    group *groups;
} job;

typedef struct result {
    double time_s, energy_j;
} result;

static const result none = {-1, -1};

/* ---- Input ----------------------------------------------------------------------------------- */

static void fail(const char *what) {
    (void)fprintf(stderr, "bench_groups: %s\n", what);
    exit(1);
}

static void *many(int count, size_t size) {
    void *made = calloc((size_t)count + 1, size);
    if (!made) fail("out of memory");
    return made;
}

static double read_number(void) {
    char word[64];
    if (scanf("%63s", word) != 1) fail("the input ends too early");
    return strtod(word, NULL);
}

static int read_count(double most) {
    double number = read_number();
    if (!(number >= 0 && number <= most)) fail("a number is out of range");
    return (int)number;
}

static void read_choices(job *j) {
    j->choices = many(j->choice_count, sizeof *j->choices);
    for (int c = 0; c < j->choice_count; c++) {
        j->choices[c].count = read_count(1e6);
        j->choices[c].points = many(j->choices[c].count, sizeof(point));
        for (int k = 0; k < j->choices[c].count; k++) {
            point *p = &j->choices[c].points[k];
            p->mhz = read_count(1e6);
            p->time_s = read_number();
            p->energy_j = read_number();
        }
    }
}

/* Sorts the waits by the instruction that waits. */
static void read_waits(job *j) {
    int *from = many(j->wait_count, sizeof *from), *to = many(j->wait_count, sizeof *to);
    j->first_wait = many(j->count + 1, sizeof *j->first_wait);
    j->wait_from = many(j->wait_count, sizeof *j->wait_from);
    for (int w = 0; w < j->wait_count; w++) {
        from[w] = read_count(j->count - 1);
        to[w] = read_count(j->count - 1);
        j->first_wait[to[w] + 1]++;
    }
    for (int i = 0; i < j->count; i++)
        j->first_wait[i + 1] += j->first_wait[i];
    int *next = many(j->count, sizeof *next);
    for (int w = 0; w < j->wait_count; w++)
        j->wait_from[j->first_wait[to[w]] + next[to[w]]++] = from[w];
    free(from);
    free(to);
    free(next);
}

/* Finds an order in which each instruction comes after those that it waits for. */
static void find_order(job *j) {
    bool *is_placed = many(j->count, sizeof *is_placed);
    j->order = many(j->count, sizeof *j->order);
    int placed = 0, before = -1;
    while (placed < j->count && placed != before) {
        before = placed;
        for (int i = 0; i < j->count; i++) {
            bool is_ready = !is_placed[i];
            for (int w = j->first_wait[i]; w < j->first_wait[i + 1]; w++)
                is_ready &= is_placed[j->wait_from[w]];
            if (!is_ready) continue;
            is_placed[i] = true;
            j->order[placed++] = i;
        }
    }
    if (placed < j->count) fail("instructions wait in a circle");
    free(is_placed);
}

static void read_job(job *j) {
    j->ranks = read_count(1e6);
    j->choice_count = read_count(1e6);
    j->count = read_count(1e7);
    j->wait_count = read_count(1e8);
    j->power_w = many(j->ranks, sizeof *j->power_w);
    for (int r = 0; r < j->ranks; r++)
        j->power_w[r] = read_number();
    read_choices(j);
    j->rank = many(j->count, sizeof *j->rank);
    j->choice_of = many(j->count, sizeof *j->choice_of);
    for (int i = 0; i < j->count; i++) {
        j->rank[i] = read_count(j->ranks - 1);
        j->choice_of[i] = read_count(j->choice_count - 1);
    }
    read_waits(j);
    find_order(j);
    j->time_s = many(j->count, sizeof *j->time_s);
    j->energy_j = many(j->count, sizeof *j->energy_j);
    j->end_s = many(j->count, sizeof *j->end_s);
    j->groups = many(j->count, sizeof *j->groups);
}

/* ---- The present plan ------------------------------------------------------------------------ */

static const choice *choice_at(const job *j, int instruction) {
    return &j->choices[j->choice_of[instruction]];
}

/* Returns the point of an instruction at a clock. An instruction with one point has it at every
 * clock. NULL: it was not measured at this clock. */
static const point *point_at(const job *j, int instruction, int mhz) {
    const choice *c = choice_at(j, instruction);
    if (c->count == 1) return &c->points[0];
    for (int k = 0; k < c->count; k++)
        if (c->points[k].mhz == mhz) return &c->points[k];
    return NULL;
}

static void set_clock(job *j, group *g, int clock) {
    g->clock = clock;
    for (int i = g->first; i < g->end; i++) {
        const point *p = point_at(j, i, g->mhz[clock]);
        j->time_s[i] = p->time_s;
        j->energy_j[i] = p->energy_j - j->power_w[j->rank[i]] * p->time_s;
    }
}

/* Returns time and energy of the present plan. */
static result evaluate(job *j) {
    result found = {0, 0};
    double power_w = 0;
    for (int k = 0; k < j->count; k++) {
        int i = j->order[k];
        double start_s = 0;
        for (int w = j->first_wait[i]; w < j->first_wait[i + 1]; w++)
            start_s = fmax(start_s, j->end_s[j->wait_from[w]]);
        j->end_s[i] = start_s + j->time_s[i];
        found.time_s = fmax(found.time_s, j->end_s[i]);
        found.energy_j += j->energy_j[i];
    }
    for (int r = 0; r < j->ranks; r++)
        power_w += j->power_w[r];
    found.energy_j += power_w * found.time_s;
    return found;
}

static bool is_in_time(result found, double deadline_s) {
    return found.time_s <= deadline_s * (1 + ROUNDING);
}

/* Keeps the present plan if it is in time and better than the best. */
static bool keep(result found, double deadline_s, result *best) {
    if (!is_in_time(found, deadline_s)) return false;
    if (best->time_s >= 0 && found.energy_j >= best->energy_j - 1e-9) return false;
    *best = found;
    return true;
}

/* ---- Groups ---------------------------------------------------------------------------------- */

static void free_groups(job *j) {
    for (int g = 0; g < j->group_count; g++) {
        free(j->groups[g].mhz);
        free(j->groups[g].time_s);
        free(j->groups[g].saved_j);
    }
    j->group_count = 0;
}

/* Adds a clock, unless an instruction of the group lacks it. The clocks are sorted by time. */
static void add_clock(const job *j, group *g, int mhz) {
    double time_s = 0, saved_j = 0;
    for (int i = g->first; i < g->end; i++) {
        const point *p = point_at(j, i, mhz);
        if (!p) return;
        time_s += p->time_s;
        saved_j += p->energy_j - j->power_w[j->rank[i]] * p->time_s;
    }
    int at = g->count++;
    for (; at > 0 && g->time_s[at - 1] > time_s; at--) {
        g->mhz[at] = g->mhz[at - 1];
        g->time_s[at] = g->time_s[at - 1];
        g->saved_j[at] = g->saved_j[at - 1];
    }
    g->mhz[at] = mhz;
    g->time_s[at] = time_s;
    g->saved_j[at] = saved_j;
}

/* Removes the clocks that are slower than another one and do not need less energy. */
static void remove_useless(group *g) {
    int kept = 0;
    for (int k = 0; k < g->count; k++) {
        if (kept > 0 && g->saved_j[k] >= g->saved_j[kept - 1]) continue;
        g->mhz[kept] = g->mhz[k];
        g->time_s[kept] = g->time_s[k];
        g->saved_j[kept++] = g->saved_j[k];
    }
    g->count = kept;
}

static void list_clocks(const job *j, group *g) {
    const choice *richest = choice_at(j, g->first);
    for (int i = g->first; i < g->end; i++)
        if (choice_at(j, i)->count > richest->count) richest = choice_at(j, i);
    g->mhz = many(richest->count, sizeof *g->mhz);
    g->time_s = many(richest->count, sizeof *g->time_s);
    g->saved_j = many(richest->count, sizeof *g->saved_j);
    for (int k = 0; k < richest->count; k++)
        add_clock(j, g, richest->points[k].mhz);
    remove_useless(g);
    if (g->count == 0) fail("the instructions of a rank have no clock in common");
}

static double shortest_s(const job *j, int instruction) {
    const choice *c = choice_at(j, instruction);
    double shortest = c->points[0].time_s;
    for (int k = 1; k < c->count; k++)
        shortest = fmin(shortest, c->points[k].time_s);
    return shortest;
}

/* Divides the lists of all ranks into groups that take at least `dwell_s` at their fastest. The
 * rest of a list joins its last group. */
static void divide(job *j, double dwell_s) {
    free_groups(j);
    for (int i = 0; i < j->count;) {
        int begin = i, first_group = j->group_count;
        double taken_s = 0;
        for (; i < j->count && j->rank[i] == j->rank[begin]; i++) {
            if (i == begin || taken_s >= dwell_s) {
                j->groups[j->group_count++] = (group){.first = i};
                taken_s = 0;
            }
            j->groups[j->group_count - 1].end = i + 1;
            taken_s += shortest_s(j, i);
        }
        if (taken_s < dwell_s && j->group_count > first_group + 1) {
            j->group_count--;
            j->groups[j->group_count - 1].end = i;
        }
    }
    for (int g = 0; g < j->group_count; g++)
        list_clocks(j, &j->groups[g]);
}

/* ---- The two searches ------------------------------------------------------------------------ */

/* Starts at the fastest clocks. Makes the group slower that saves the most energy for each second,
 * as long as the plan is in time. Returns the best plan on this way. */
static result search_greedily(job *j, double deadline_s) {
    bool *is_stuck = many(j->group_count, sizeof *is_stuck);
    result best = none;
    for (int g = 0; g < j->group_count; g++)
        set_clock(j, &j->groups[g], 0);
    bool goes_on = is_in_time(evaluate(j), deadline_s);
    if (goes_on) (void)keep(evaluate(j), deadline_s, &best);
    while (goes_on) {
        double most_w = 0;
        group *chosen = NULL;
        for (int n = 0; n < j->group_count; n++) {
            group *g = &j->groups[n];
            if (is_stuck[n] || g->clock + 1 >= g->count) continue;
            double saved_w = (g->saved_j[g->clock] - g->saved_j[g->clock + 1]) /
                             fmax(g->time_s[g->clock + 1] - g->time_s[g->clock], 1e-15);
            if (saved_w <= most_w) continue;
            most_w = saved_w;
            chosen = g;
        }
        goes_on = chosen != NULL;
        if (!chosen) break;
        set_clock(j, chosen, chosen->clock + 1);
        result found = evaluate(j);
        if (is_in_time(found, deadline_s)) {
            (void)keep(found, deadline_s, &best);
            continue;
        }
        set_clock(j, chosen, chosen->clock - 1);
        is_stuck[chosen - j->groups] = true;
    }
    free(is_stuck);
    return best;
}

/* Tries all clocks of one group. Returns whether the plan became better. */
static bool try_clocks(job *j, group *g, double deadline_s, result *best) {
    int chosen = g->clock;
    bool improved = false;
    for (int clock = 0; clock < g->count; clock++) {
        set_clock(j, g, clock);
        if (!keep(evaluate(j), deadline_s, best)) continue;
        chosen = clock;
        improved = true;
    }
    set_clock(j, g, chosen);
    return improved;
}

/* Tries small changes of two groups at once. Returns whether the plan became better. */
static bool try_pair(job *j, group *one, group *other, double deadline_s, result *best) {
    int a = one->clock, b = other->clock;
    for (int x = a - PAIR_STEP; x <= a + PAIR_STEP; x++) {
        for (int y = b - PAIR_STEP; y <= b + PAIR_STEP; y++) {
            if (x < 0 || y < 0 || x >= one->count || y >= other->count) continue;
            set_clock(j, one, x);
            set_clock(j, other, y);
            if (keep(evaluate(j), deadline_s, best)) return true;
        }
    }
    set_clock(j, one, a);
    set_clock(j, other, b);
    return false;
}

static void improve(job *j, double deadline_s, result *best) {
    bool improved = true;
    while (improved) {
        improved = false;
        for (int g = 0; g < j->group_count; g++)
            improved |= try_clocks(j, &j->groups[g], deadline_s, best);
        for (int g = 0; g < j->group_count && !improved; g++)
            for (int h = g + 1; h < j->group_count && !improved; h++)
                improved = try_pair(j, &j->groups[g], &j->groups[h], deadline_s, best);
    }
}

/* Sets all groups to a clock, counted from the fastest, or to their slowest if they have fewer. */
static void set_all(job *j, int clock) {
    for (int g = 0; g < j->group_count; g++)
        set_clock(j, &j->groups[g], clock < j->groups[g].count ? clock : j->groups[g].count - 1);
}

/* Sets all groups to the same clock, that of the best plan of this kind. */
static void set_best_for_all(job *j, double deadline_s) {
    result best = none;
    int chosen = 0, most = 0;
    for (int g = 0; g < j->group_count; g++)
        if (j->groups[g].count > most) most = j->groups[g].count;
    for (int clock = 0; clock < most; clock++) {
        set_all(j, clock);
        if (keep(evaluate(j), deadline_s, &best)) chosen = clock;
    }
    set_all(j, chosen);
}

/* One clock per rank, by coordinate search: from the fastest clocks, from the best plan with the
 * same clock on all ranks, and from the greedy search. */
static result search_ranks(job *j, double deadline_s) {
    result best = none;
    for (int start = 0; start < 3; start++) {
        if (start == 0) set_all(j, 0);
        if (start == 1) set_best_for_all(j, deadline_s);
        if (start == 2) (void)search_greedily(j, deadline_s);
        result found = evaluate(j);
        if (!is_in_time(found, deadline_s)) continue;
        improve(j, deadline_s, &found);
        (void)keep(found, deadline_s, &best);
    }
    return best;
}

int main(void) {
    job j = {0};
    read_job(&j);
    char first[64], second[64];
    while (scanf("%63s %63s", first, second) == 2) {
        double deadline_s = strtod(first, NULL), dwell_s = strtod(second, NULL);
        divide(&j, INFINITY);
        result ranks = search_ranks(&j, deadline_s);
        divide(&j, dwell_s);
        result greedy = search_greedily(&j, deadline_s);
        (void)printf("%.12g %.12g %.12g %.12g\n", ranks.time_s, ranks.energy_j, greedy.time_s,
                     greedy.energy_j);
    }
    return 0;
}
