/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a network of events from the problem's instructions and dependencies. Merges events so
 * that the network is small. Rounds the curves of the options to whole numbers; no later step
 * rounds again. */
#include "plan/solver.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"

/* Limit for the longest path at the slowest options, L. It keeps every sum of times below 4e18 ps,
 * and the limit of int64 is 9.2e18:
 * - Every instruction is on a path from the source to the sink, so no option is longer than L, and
 *   no event is before 0 or after L, at any choice of options.
 * - The solver stores positions without the offset of their group, which goes from 0 to -L. They
 *   are at most 2 L. The difference of two positions with their offsets is a difference of event
 *   times, at most L. The time at which an edge becomes tight is an iteration time, less or plus a
 *   difference of such a difference and an option: between -2 L and 3 L.
 * - An assignment's deadline is at most L, its ends are from 0 to L, and its last starts, the
 *   deadline less a path, are from -L to L. The room of an instruction is at most 2 L.
 * No other sum of times is an int64; the sum of time times flow has 128 bits. */
#define LONGEST_ITERATION_S 1e6
/* Limit for the sum of all rates, half of HARPE_FLOW_INFINITE. */
#define LARGEST_RATE_SUM_UW 0x1p59

/* ---- Events ---------------------------------------------------------------------------------- */

static int32_t find_root(int32_t *leader, int32_t event) {
    while (leader[event] != event) {
        leader[event] = leader[leader[event]];
        event = leader[event];
    }
    return event;
}

static void merge_events(int32_t *leader, int32_t a, int32_t b) {
    leader[find_root(leader, b)] = find_root(leader, a);
}

static int32_t start_event(int32_t instruction) { return 2 * instruction; }
static int32_t end_event(int32_t instruction) { return 2 * instruction + 1; }

/* Returns the power that the wait after an instruction saves, compared with the highest power of
 * its rank. */
static double saving_after_w(const harpe_problem *problem, int32_t instruction) {
    if (!harpe_problem_has_any_wait_kinds(problem)) return 0;
    int rank = harpe_problem_choice(problem, instruction)->list.rank;
    size_t next = (size_t)instruction + 1;
    if (next < problem->rank_offset[rank + 1]) return problem->wait_saving_w[next];
    return problem->end_saving_w[rank];
}

/* Merges events that can happen at the same moment without changing the optimum. An instruction
 * with a single predecessor can start when the predecessor ends. An instruction with a single
 * successor can last until the successor starts, because cost curves are flat beyond their slowest
 * point. This does not hold if the wait of its rank after it saves energy. If kinds of waits have
 * different powers, the first merger may change the optimum of the relaxation, in which an
 * instruction may start late; but every run of a plan starts it at this moment. */
typedef struct event_set {
    harpe_arena arena;
    int32_t *leader;                    /* [2 * n + 2], union-find */
    int32_t *predecessors, *successors; /* [n] counts */
    int32_t source, sink;
} event_set;

static harpe_status merge_pinned_events(const harpe_problem *problem, event_set *events,
                                        harpe_error *error) {
    const harpe_dag *dag = &problem->dag;
    int32_t n = problem->instruction_count;
    harpe_arena *arena = &events->arena;
    events->leader = harpe_arena_alloc(arena, (size_t)n * 2 + 2, sizeof *events->leader);
    events->predecessors = harpe_arena_alloc(arena, (size_t)n, sizeof *events->predecessors);
    events->successors = harpe_arena_alloc(arena, (size_t)n, sizeof *events->successors);
    if (arena->has_failed) return harpe_fail_memory(error);
    events->source = 2 * n;
    events->sink = 2 * n + 1;
    for (int32_t event = 0; event < 2 * n + 2; event++)
        events->leader[event] = event;
    for (int32_t a = 0; a < dag->arc_count; a++) {
        events->successors[dag->arc_from[a]]++;
        events->predecessors[dag->arc_to[a]]++;
    }
    for (int32_t a = 0; a < dag->arc_count; a++) {
        int32_t from = dag->arc_from[a], to = dag->arc_to[a];
        bool ends_freely = events->successors[from] == 1 && saving_after_w(problem, from) <= 0;
        if (ends_freely || events->predecessors[to] == 1)
            merge_events(events->leader, end_event(from), start_event(to));
    }
    for (size_t d = 0; d < problem->deadline_count; d++) {
        int32_t i = problem->deadlines[d].instruction;
        merge_events(events->leader, events->source, end_event(i));
        events->successors[i]++;
    }
    for (int32_t i = 0; i < n; i++) {
        if (events->predecessors[i] == 0)
            merge_events(events->leader, events->source, start_event(i));
        if (events->successors[i] == 0 && saving_after_w(problem, i) <= 0)
            merge_events(events->leader, events->sink, end_event(i));
    }
    return HARPE_OK;
}

/* Numbers the merged events rank by rank in the order of the ranks' lists, so that neighbours in
 * time are neighbours in memory. `*node_of` receives an array that maps each event to its node. */
static harpe_status number_nodes(const harpe_problem *problem, event_set *events, int32_t **node_of,
                                 harpe_network *network, harpe_error *error) {
    int32_t n = problem->instruction_count;
    int32_t *numbers = harpe_arena_alloc(&events->arena, (size_t)n * 2 + 2, sizeof *numbers);
    if (!numbers) return harpe_fail_memory(error);
    memset(numbers, 0xff, ((size_t)n * 2 + 2) * sizeof *numbers);
    int32_t count = 0;
    numbers[find_root(events->leader, events->source)] = count++;
    for (int32_t i = 0; i < n; i++) {
        for (int32_t event = start_event(i); event <= end_event(i); event++) {
            int32_t root = find_root(events->leader, event);
            if (numbers[root] < 0) numbers[root] = count++;
        }
    }
    int32_t sink_root = find_root(events->leader, events->sink);
    if (numbers[sink_root] < 0) numbers[sink_root] = count++;
    for (int32_t event = 0; event < 2 * n + 2; event++)
        numbers[event] = numbers[find_root(events->leader, event)];
    network->source = numbers[events->source];
    network->sink = numbers[events->sink];
    network->node_count = count;
    *node_of = numbers;
    return HARPE_OK;
}

/* ---- Whole numbers --------------------------------------------------------------------------- */

/* Relative difference below which two doubles count as equal. As a double, 0.1 s may become
 * 100000000000.00001 ps or 99999999999.99998 ps. */
#define DOUBLES_DIFFER 4e-16

int64_t harpe_round_down(double value) {
    double nearest = round(value);
    return (int64_t)(fabs(value - nearest) <= DOUBLES_DIFFER * fabs(value) ? nearest
                                                                           : floor(value));
}

/* ---- Curves ---------------------------------------------------------------------------------- */

/* Returns the energy saved per second by which the instruction becomes longer, rounded down. If the
 * curve is drawn from its slowest point with this rate, it is nowhere above the real curve, so a
 * lower bound stays valid. */
static int64_t rate_between(int64_t fast_ps, double fast_j, int64_t slow_ps, double slow_j) {
    double watts = (fast_j - slow_j) / ((double)(slow_ps - fast_ps) / HARPE_PS_PER_S);
    return watts > 0 ? (int64_t)floor(fmin(watts, 2 * HARPE_STEEPEST_W) * HARPE_UW_PER_W) : 0;
}

static harpe_status check_steepness(const harpe_option_list *list, harpe_error *error) {
    for (size_t i = 1; i < list->curve_count; i++) {
        double fast_s = list->curve_time_s[i - 1], slow_s = list->curve_time_s[i];
        double fast_j = list->curve_effective_energy_j[i - 1];
        double slow_j = list->curve_effective_energy_j[i];
        double watts = (fast_j - slow_j) / (slow_s - fast_s);
        if (slow_s - fast_s < 1 / HARPE_PS_PER_S || watts <= HARPE_STEEPEST_W) continue;
        char where[40] = "activity"; /* of a graph */
        if (list->stage >= 0) (void)snprintf(where, sizeof where, "stage %d,", list->stage);
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s '%s': from %.12f s to %.12f s its energy less blocking falls "
                          "from %s J to %s J, %.2g W where %.0e W is the limit: check the "
                          "units, or take one of the two %s out of the %s",
                          where, list->instruction, fast_s, slow_s, HARPE_DIGITS(fast_j, 6),
                          HARPE_DIGITS(slow_j, 6), watts, HARPE_STEEPEST_W,
                          list->stage >= 0 ? "rows" : "options",
                          list->stage >= 0 ? "profile" : "graph");
    }
    return HARPE_OK;
}

/* Converts the points of a choice's curve to picoseconds and microwatts. Both are rounded down.
 * Energy falls with time, so the whole-number curve lies nowhere above the real curve. If two
 * points have the same picosecond, the cheaper point is kept. A corner that rounding has made
 * collinear or concave is dropped, so rates strictly decrease. Returns the number of segments. */
static int32_t round_points(const harpe_option_list *list, int64_t *time_ps, int64_t *rate_uw,
                            double *energy_j) {
    int32_t top = -1;
    for (size_t i = 0; i < list->curve_count; i++) {
        int64_t time = harpe_round_down(list->curve_time_s[i] * HARPE_PS_PER_S);
        double energy = list->curve_effective_energy_j[i];
        int64_t rate = HARPE_FLOW_INFINITE;
        if (top >= 0 && time == time_ps[top]) top--;
        while (top >= 0) {
            rate = rate_between(time_ps[top], energy_j[top], time, energy);
            if (top == 0 || rate < rate_uw[top]) break;
            top--;
        }
        if (top >= 0 && rate <= 0) continue;
        top++;
        time_ps[top] = time;
        energy_j[top] = energy;
        rate_uw[top] = rate;
    }
    rate_uw[0] = HARPE_FLOW_INFINITE;
    rate_uw[top + 1] = 0;
    return top;
}

static harpe_status round_curve(const harpe_option_list *list, harpe_arena *arena,
                                harpe_network_curve *out, harpe_error *error) {
    harpe_status status = check_steepness(list, error);
    if (status != HARPE_OK) return status;
    size_t count = list->curve_count;
    int64_t *time_ps = harpe_arena_alloc(arena, count, sizeof *time_ps);
    int64_t *rate_uw = harpe_arena_alloc(arena, count + 1, sizeof *rate_uw);
    double *energy_j = harpe_calloc(count, sizeof *energy_j);
    if (!time_ps || !rate_uw || !energy_j) {
        free(energy_j);
        return harpe_fail_memory(error);
    }
    out->segment_count = round_points(list, time_ps, rate_uw, energy_j);
    out->time_ps = time_ps;
    out->rate_uw = rate_uw;
    out->slowest_energy_j = list->curve_effective_energy_j[count - 1];
    free(energy_j);
    return HARPE_OK;
}

/* Returns the slowest time of an instruction: on its curve, which may be a fitted one, or among its
 * options. */
static double slowest_s(const harpe_problem *problem, const harpe_network *network, int32_t i) {
    const harpe_network_curve *curve = &network->curves[problem->choice_of[i] + 1];
    const harpe_option_list *list = &harpe_problem_choice(problem, i)->list;
    return fmax((double)curve->time_ps[curve->segment_count] / HARPE_PS_PER_S,
                list->options[list->option_count - 1].time_s);
}

/* Refuses a problem whose longest path at the slowest options exceeds the limit. O(instructions) */
static harpe_status check_length(const harpe_problem *problem, const harpe_network *network,
                                 harpe_error *error) {
    size_t count = (size_t)problem->instruction_count;
    double *time_s = harpe_calloc(2 * count, sizeof *time_s);
    if (!time_s) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        time_s[i] = slowest_s(problem, network, (int32_t)i);
    double length_s = harpe_dag_run(&problem->dag, time_s, time_s + count, NULL);
    free(time_s);
    if (length_s <= LONGEST_ITERATION_S) return HARPE_OK;
    return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                      "one iteration takes %s s if every instruction is at its slowest, the limit "
                      "is %.0f s: check that the profile's times are in seconds",
                      HARPE_DIGITS(length_s, 3), LONGEST_ITERATION_S);
}

/* Refuses a problem in which a flow could come near the limit of 64 bits. An instruction carries a
 * finite flow until it runs at its fastest. No flow is larger than the sum of these finite flows of
 * all instructions. */
static harpe_status check_rates(const harpe_problem *problem, harpe_network *network,
                                harpe_error *error) {
    double total_uw = 0;
    for (int32_t i = 0; i < problem->instruction_count; i++) {
        const harpe_network_curve *curve = &network->curves[problem->choice_of[i] + 1];
        if (curve->segment_count > 0) total_uw += (double)curve->rate_uw[1];
        network->slowest_energy_j += curve->slowest_energy_j;
    }
    if (total_uw > LARGEST_RATE_SUM_UW) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "shortening every instruction at once would draw %.2g W more, the limit "
                          "is %.2g W: check that the profile's times are in seconds and its "
                          "energies in joules",
                          total_uw / HARPE_UW_PER_W, LARGEST_RATE_SUM_UW / HARPE_UW_PER_W);
    }
    return HARPE_OK;
}

/* Returns the number of waits that save energy. */
static size_t most_waits(const harpe_problem *problem) {
    if (!harpe_problem_has_any_wait_kinds(problem)) return 0;
    size_t count = 0;
    for (int32_t i = 0; i < problem->instruction_count; i++)
        count += problem->wait_saving_w[i] > 0;
    for (int rank = 0; rank < problem->rank_count; rank++)
        count += problem->end_saving_w[rank] > 0;
    return count;
}

static harpe_status build_curves(const harpe_problem *problem, harpe_network *network,
                                 harpe_error *error) {
    static const int64_t zero_length[1] = {0};
    static const int64_t unlimited[2] = {HARPE_FLOW_INFINITE, 0};
    network->curve_count = (int32_t)problem->choice_count + 1;
    size_t most = (size_t)network->curve_count + most_waits(problem);
    network->curves = harpe_arena_alloc(&network->arena, most, sizeof *network->curves);
    if (!network->curves) return harpe_fail_memory(error);
    network->curves[0].time_ps = harpe_arena_alloc(&network->arena, 1, sizeof zero_length);
    network->curves[0].rate_uw = harpe_arena_alloc(&network->arena, 1, sizeof unlimited);
    if (network->arena.has_failed) return harpe_fail_memory(error);
    memcpy(network->curves[0].rate_uw, unlimited, sizeof unlimited);
    for (size_t c = 0; c < problem->choice_count; c++) {
        harpe_status status =
            round_curve(&problem->choices[c].list, &network->arena, &network->curves[c + 1], error);
        if (status != HARPE_OK) return status;
    }
    for (size_t d = 0; d < problem->deadline_count; d++) {
        int32_t choice = problem->choice_of[problem->deadlines[d].instruction];
        network->curves[choice + 1].time_ps[0] =
            -harpe_round_down(problem->deadlines[d].time_s * HARPE_PS_PER_S);
    }
    harpe_status status = check_length(problem, network, error);
    return status == HARPE_OK ? check_rates(problem, network, error) : status;
}

/* ---- Waits ----------------------------------------------------------------------------------- */

/* The earliest and the latest moments at which the waits of plans can begin and end, and the memory
 * of their curves. If instructions start as early as possible, a longer instruction never makes an
 * event earlier. */
typedef struct wait_limits {
    double *earliest_end_s; /* with all instructions at their fastest points */
    double *latest_start_s; /* with all instructions at their slowest points */
    double longest_s;       /* of the iteration */
    int64_t *time_ps, *rate_uw;
} wait_limits;

static double extreme_s(const harpe_choice *choice, bool is_slowest) {
    double found_s = choice->points[0].time_s;
    for (size_t p = 1; p < choice->point_count; p++)
        found_s = is_slowest ? fmax(found_s, choice->points[p].time_s)
                             : fmin(found_s, choice->points[p].time_s);
    return found_s;
}

static harpe_status find_limits(const harpe_problem *problem, wait_limits *out,
                                harpe_network *network, harpe_error *error) {
    size_t count = (size_t)problem->instruction_count, most = most_waits(problem);
    double *time_s = harpe_calloc(count, sizeof *time_s);
    out->earliest_end_s = harpe_calloc(count, sizeof *out->earliest_end_s);
    out->latest_start_s = harpe_calloc(count, sizeof *out->latest_start_s);
    out->time_ps = harpe_arena_alloc(&network->arena, 2 * most, sizeof *out->time_ps);
    out->rate_uw = harpe_arena_alloc(&network->arena, 3 * most, sizeof *out->rate_uw);
    network->waits = harpe_arena_alloc(&network->arena, most, sizeof *network->waits);
    bool complete =
        time_s && out->earliest_end_s && out->latest_start_s && !network->arena.has_failed;
    for (size_t i = 0; complete && i < count; i++)
        time_s[i] = extreme_s(harpe_problem_choice(problem, (int32_t)i), false);
    if (complete) (void)harpe_dag_run(&problem->dag, time_s, out->earliest_end_s, NULL);
    for (size_t i = 0; complete && i < count; i++)
        time_s[i] = extreme_s(harpe_problem_choice(problem, (int32_t)i), true);
    if (complete) out->longest_s = harpe_dag_run(&problem->dag, time_s, out->latest_start_s, NULL);
    for (size_t i = 0; complete && i < count; i++)
        out->latest_start_s[i] -= time_s[i];
    free(time_s);
    return complete ? HARPE_OK : harpe_fail_memory(error);
}

/* Refuses a network in which the longest waits make a path longer than the limit, or whose rates
 * become too large. */
static harpe_status check_waits(const harpe_network *network, harpe_error *error) {
    double *arrival_s = harpe_calloc((size_t)network->node_count, sizeof *arrival_s);
    if (!arrival_s) return harpe_fail_memory(error);
    double total_uw = 0;
    for (int32_t i = 0; i < network->node_count; i++) {
        int32_t v = network->topological_order[i];
        for (int32_t a = network->first_incidence[v]; a < network->first_incidence[v + 1]; a++) {
            int32_t e = network->incidences[a].edge, w = network->head[e];
            if (network->tail[e] != v) continue;
            const harpe_network_curve *curve = &network->curves[network->curve_of[e]];
            double longest_s = (double)curve->time_ps[curve->segment_count] / HARPE_PS_PER_S;
            arrival_s[w] = fmax(arrival_s[w], arrival_s[v] + longest_s);
            if (curve->segment_count > 0) total_uw += (double)curve->rate_uw[1];
        }
    }
    double length_s = arrival_s[network->sink];
    free(arrival_s);
    if (length_s <= LONGEST_ITERATION_S && total_uw <= LARGEST_RATE_SUM_UW) return HARPE_OK;
    return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                      "the problem is too large for several powers of waits: its longest waits "
                      "one after another take %s s, the limit is %.0f s; give each rank one power",
                      HARPE_DIGITS(length_s, 3), LONGEST_ITERATION_S);
}

/* ---- Edges ----------------------------------------------------------------------------------- */

/* Returns true if an arc connects neighbours in a rank's list, and the wait between them saves
 * energy. */
static bool is_wait(const harpe_problem *problem, int32_t from, int32_t to) {
    return harpe_problem_has_any_wait_kinds(problem) && to == from + 1 &&
           problem->wait_saving_w[to] > 0 &&
           harpe_problem_choice(problem, from)->list.rank ==
               harpe_problem_choice(problem, to)->list.rank;
}

/* Gives an edge the curve of a wait: its energy falls by `saving_w` up to the longest wait. The
 * times of the network are rounded down, so a wait may be longer there by a picosecond for each
 * instruction. */
static void add_wait(const harpe_problem *problem, const wait_limits *limits, int32_t edge,
                     int32_t before, int32_t after, harpe_network *network) {
    int rank = harpe_problem_choice(problem, before < 0 ? after : before)->list.rank;
    double saving_w = after < 0 ? problem->end_saving_w[rank] : problem->wait_saving_w[after];
    double from_s = before < 0 ? 0 : limits->earliest_end_s[before];
    double to_s = after < 0 ? limits->longest_s : limits->latest_start_s[after];
    int64_t longest_ps =
        (int64_t)ceil(fmax(0, to_s - from_s) * HARPE_PS_PER_S) + problem->instruction_count + 1;
    harpe_network_curve *curve = &network->curves[network->curve_count];
    curve->time_ps = &limits->time_ps[2 * (size_t)network->wait_count];
    curve->rate_uw = &limits->rate_uw[3 * (size_t)network->wait_count];
    curve->segment_count = 1;
    curve->time_ps[1] = longest_ps;
    curve->rate_uw[0] = HARPE_FLOW_INFINITE;
    curve->rate_uw[1] = harpe_round_down(saving_w * HARPE_UW_PER_W);
    curve->slowest_energy_j = -saving_w * ((double)longest_ps / HARPE_PS_PER_S);
    network->slowest_energy_j += curve->slowest_energy_j;
    if (curve->rate_uw[1] <= 0) return; /* less than a microwatt */
    network->waits[network->wait_count++] =
        (harpe_network_wait){edge, rank, before, after, saving_w};
    network->curve_of[edge] = network->curve_count++;
}

/* Adds the edge of a wait at the start or the end of the iteration. Returns the number of edges
 * that were added: none if the wait has no length. */
static int32_t add_end_wait(const harpe_problem *problem, const wait_limits *limits, int32_t edge,
                            int32_t tail, int32_t head, int32_t before, int32_t after,
                            harpe_network *network) {
    if (tail == head) return 0;
    network->tail[edge] = tail;
    network->head[edge] = head;
    add_wait(problem, limits, edge, before, after, network);
    return 1;
}

/* `limits` is NULL if no wait saves energy. */
static harpe_status build_edges(const harpe_problem *problem, const int32_t *node_of,
                                const wait_limits *limits, harpe_network *network,
                                harpe_error *error) {
    const harpe_dag *dag = &problem->dag;
    int32_t n = problem->instruction_count;
    size_t most = (size_t)n + (size_t)dag->arc_count + 2 * (size_t)problem->rank_count +
                  problem->deadline_count;
    network->tail = harpe_arena_alloc(&network->arena, most, sizeof *network->tail);
    network->head = harpe_arena_alloc(&network->arena, most, sizeof *network->head);
    network->curve_of = harpe_arena_alloc(&network->arena, most, sizeof *network->curve_of);
    if (network->arena.has_failed) return harpe_fail_memory(error);
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++, count++) {
        network->tail[count] = node_of[start_event(i)];
        network->head[count] = node_of[end_event(i)];
        network->curve_of[count] = problem->choice_of[i] + 1;
    }
    for (int32_t a = 0; a < dag->arc_count; a++) {
        int32_t tail = node_of[end_event(dag->arc_from[a])];
        int32_t head = node_of[start_event(dag->arc_to[a])];
        if (tail == head) continue;
        network->tail[count] = tail;
        network->head[count] = head;
        if (is_wait(problem, dag->arc_from[a], dag->arc_to[a]))
            add_wait(problem, limits, count, dag->arc_from[a], dag->arc_to[a], network);
        count++;
    }
    for (size_t d = 0; d < problem->deadline_count; d++, count++) {
        network->tail[count] = network->tail[problem->deadlines[d].instruction];
        network->head[count] = network->sink;
    }
    for (int rank = 0; limits && rank < problem->rank_count; rank++) {
        if (problem->rank_offset[rank] == problem->rank_offset[rank + 1]) continue;
        int32_t first = (int32_t)problem->rank_offset[rank];
        int32_t last = (int32_t)problem->rank_offset[rank + 1] - 1;
        if (problem->wait_saving_w[first] > 0)
            count += add_end_wait(problem, limits, count, network->source,
                                  node_of[start_event(first)], -1, first, network);
        if (problem->end_saving_w[rank] > 0)
            count += add_end_wait(problem, limits, count, node_of[end_event(last)], network->sink,
                                  last, -1, network);
    }
    network->instruction_count = n;
    network->edge_count = count;
    return HARPE_OK;
}

static harpe_status build_incidence(harpe_network *network, harpe_error *error) {
    harpe_arena *arena = &network->arena;
    int32_t nodes = network->node_count, edges = network->edge_count;
    int32_t *first = harpe_arena_alloc(arena, (size_t)nodes + 2, sizeof *first);
    harpe_incidence *incidences = harpe_arena_alloc(arena, (size_t)edges * 2, sizeof *incidences);
    if (network->arena.has_failed) return harpe_fail_memory(error);
    /* Counting sort. After the second loop, first[v + 1] is the index at which node v's incidences
     * begin. Filling moves it to the index at which they end. */
    for (int32_t e = 0; e < edges; e++) {
        first[network->tail[e] + 2]++;
        first[network->head[e] + 2]++;
    }
    for (int32_t v = 1; v < nodes; v++)
        first[v + 1] += first[v];
    for (int32_t e = 0; e < edges; e++) {
        int32_t tail = network->tail[e], head = network->head[e];
        incidences[first[tail + 1]++] = (harpe_incidence){.edge = e, .node = head};
        incidences[first[head + 1]++] = (harpe_incidence){.edge = e, .node = tail};
    }
    network->first_incidence = first;
    network->incidences = incidences;
    return HARPE_OK;
}

/* Orders the nodes with Kahn's algorithm. The DAG was checked for cycles when it was built. */
static harpe_status order_nodes(harpe_network *network, harpe_error *error) {
    int32_t nodes = network->node_count;
    int32_t *waiting = harpe_calloc((size_t)nodes, sizeof *waiting);
    network->topological_order =
        harpe_arena_alloc(&network->arena, (size_t)nodes, sizeof *network->topological_order);
    int32_t *order = network->topological_order;
    if (!waiting || !order) {
        free(waiting);
        return harpe_fail_memory(error);
    }
    for (int32_t e = 0; e < network->edge_count; e++)
        if (!harpe_network_is_deadline(network, e)) waiting[network->head[e]]++;
    int32_t done = 0, found = 0;
    for (int32_t v = 0; v < nodes; v++)
        if (waiting[v] == 0) order[found++] = v;
    for (; done < found; done++) {
        int32_t v = order[done];
        for (int32_t a = network->first_incidence[v]; a < network->first_incidence[v + 1]; a++) {
            int32_t e = network->incidences[a].edge;
            if (network->tail[e] == v && !harpe_network_is_deadline(network, e) &&
                --waiting[network->head[e]] == 0)
                order[found++] = network->head[e];
        }
    }
    free(waiting);
    if (found != nodes) return harpe_fail(error, HARPE_INTERNAL, "the event network has a cycle");
    return HARPE_OK;
}

harpe_status harpe_network_build(const harpe_problem *problem, harpe_network *out,
                                 harpe_error *error) {
    harpe_network network = {0};
    event_set events = {0};
    wait_limits limits = {0};
    int32_t *node_of = NULL;
    /* Rounding down changes no comparison: a whole-number flow is at most this power if and only if
     * it is at most this number of microwatts. */
    network.iteration_power_uw =
        harpe_round_down(harpe_problem_iteration_power_w(problem) * HARPE_UW_PER_W);
    harpe_status status = merge_pinned_events(problem, &events, error);
    if (status == HARPE_OK) status = number_nodes(problem, &events, &node_of, &network, error);
    if (status == HARPE_OK) status = build_curves(problem, &network, error);
    bool has_waits = harpe_problem_has_any_wait_kinds(problem);
    if (status == HARPE_OK && has_waits) status = find_limits(problem, &limits, &network, error);
    if (status == HARPE_OK)
        status = build_edges(problem, node_of, has_waits ? &limits : NULL, &network, error);
    if (status == HARPE_OK) status = build_incidence(&network, error);
    if (status == HARPE_OK) status = order_nodes(&network, error);
    if (status == HARPE_OK && has_waits) status = check_waits(&network, error);
    free(limits.earliest_end_s);
    free(limits.latest_start_s);
    harpe_arena_free(&events.arena);
    if (status != HARPE_OK) {
        harpe_network_clear(&network);
        return status;
    }
    *out = network;
    return HARPE_OK;
}

void harpe_network_clear(harpe_network *network) { harpe_arena_free(&network->arena); }
