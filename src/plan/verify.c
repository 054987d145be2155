/* SPDX-License-Identifier: Apache-2.0 */
/* Verifies a frontier and its plans from first principles. It takes the solver's durations and
 * flows as a claim, and checks the claim against the network and the measured options. It does not
 * use the solver's method. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/plans.h"
#include "plan/solver.h"

/* Two sums of thousands of doubles agree within about this relative difference. */
#define RELATIVE_TOLERANCE 1e-9

/* Returns true if two numbers agree. NaN and infinity agree with nothing. */
static bool agree(double a, double b, double more) {
    if (!isfinite(a) || !isfinite(b)) return false;
    return fabs(a - b) <= RELATIVE_TOLERANCE * fmax(1, fmax(fabs(a), fabs(b))) + more;
}

/* ---- One point of the frontier --------------------------------------------------------------- */

typedef struct claim {
    const harpe_walk *walk;
    const harpe_network *network;
    int64_t *event_ps; /* [node_count] */
    int64_t *balance;  /* [node_count] scratch: flow in - flow out */
    double rounding_j; /* effect of rounding to picoseconds and microwatts on an energy */
} claim;

static double steepest_w(const harpe_option_list *list) {
    if (list->curve_count == 1) return 0;
    const double *times = list->curve_time_s, *energies = list->curve_effective_energy_j;
    return (energies[0] - energies[1]) / (times[1] - times[0]);
}

/* Returns a limit for the rounding error. The network rounds every slope to a microwatt and every
 * time to a picosecond, which moves an instruction's energy by at most this amount along the whole
 * frontier. */
static double rounding_of(const harpe_option_list *list) {
    size_t last = list->curve_count - 1;
    const double *times = list->curve_time_s;
    return (times[last] - times[0]) / HARPE_UW_PER_W + 2 * steepest_w(list) / HARPE_PS_PER_S;
}

/* The blocking energy is the blocking power times the iteration time, minus the same power times
 * the time in instructions. It can be far smaller than both products, and then has fewer correct
 * digits. */
#define CANCELLATION 1e-13

/* The saving of a wait is rounded to a microwatt, and its length to a picosecond for each
 * instruction before it. */
static double wait_rounding_j(const harpe_problem *problem, double busy_s) {
    double total_w = 0;
    if (!harpe_problem_has_any_wait_kinds(problem)) return 0;
    for (int32_t i = 0; i < problem->instruction_count; i++)
        total_w += problem->wait_saving_w[i];
    for (int rank = 0; rank < problem->rank_count; rank++)
        total_w += problem->end_saving_w[rank];
    int waits = problem->instruction_count + problem->rank_count;
    return total_w * problem->instruction_count / HARPE_PS_PER_S + waits * busy_s / HARPE_UW_PER_W;
}

/* The rounded times of a path differ from the real ones by up to a picosecond for each instruction,
 * also for an instruction with a single option. One steep instruction can make up for all of it. */
static double total_rounding_j(const harpe_problem *problem) {
    double total_j = 0, busy_s = 0, largest_w = 0;
    for (int32_t i = 0; i < problem->instruction_count; i++) {
        const harpe_option_list *list = &harpe_problem_choice(problem, i)->list;
        total_j += rounding_of(list);
        largest_w = fmax(largest_w, steepest_w(list));
        busy_s += list->curve_time_s[list->curve_count - 1];
    }
    total_j += problem->instruction_count * largest_w / HARPE_PS_PER_S;
    total_j += wait_rounding_j(problem, busy_s);
    return total_j + CANCELLATION * harpe_problem_iteration_power_w(problem) * busy_s;
}

/* Returns the segment of a curve that carries `flow` and can carry more (if towards_faster is true)
 * or less. */
static int32_t segment_of(const harpe_network_curve *curve, int64_t flow, bool towards_faster) {
    int32_t k = curve->segment_count;
    while (k > 0 && (towards_faster ? flow >= curve->rate_uw[k] : flow > curve->rate_uw[k]))
        k--;
    return k;
}

static harpe_status check_flow(const claim *c, harpe_error *error) {
    const harpe_network *network = c->network;
    memset(c->balance, 0, (size_t)network->node_count * sizeof *c->balance);
    for (int32_t e = 0; e < network->edge_count; e++) {
        int64_t flow = c->walk->solver.edges[e].flow;
        if (flow < 0) {
            return harpe_fail(error, HARPE_INTERNAL, "edge %d carries negative flow %lld uW", e,
                              (long long)flow);
        }
        c->balance[network->tail[e]] -= flow;
        c->balance[network->head[e]] += flow;
    }
    for (int32_t v = 0; v < network->node_count; v++) {
        int64_t wanted = v == network->sink     ? c->walk->solver.flow_uw
                         : v == network->source ? -c->walk->solver.flow_uw
                                                : 0;
        if (c->balance[v] != wanted) {
            return harpe_fail(error, HARPE_INTERNAL,
                              "flow is not conserved at event %d: %lld uW instead of %lld", v,
                              (long long)c->balance[v], (long long)wanted);
        }
    }
    return HARPE_OK;
}

/* Checks that every dependency is kept, and that the duration of every instruction is optimal for
 * its flow. */
static harpe_status check_durations(const claim *c, harpe_error *error) {
    const harpe_network *network = c->network;
    int64_t length = c->event_ps[network->sink] - c->event_ps[network->source];
    if (length != c->walk->solver.time_ps) {
        return harpe_fail(error, HARPE_INTERNAL, "source and sink lie %lld ps apart, not %lld",
                          (long long)length, (long long)c->walk->solver.time_ps);
    }
    for (int32_t e = 0; e < network->edge_count; e++) {
        const harpe_network_curve *curve = &network->curves[network->curve_of[e]];
        int64_t flow = c->walk->solver.edges[e].flow;
        int64_t duration = c->event_ps[network->head[e]] - c->event_ps[network->tail[e]];
        int64_t shortest = curve->time_ps[segment_of(curve, flow, true)];
        int64_t longest = flow > 0 ? curve->time_ps[segment_of(curve, flow, false)] : INT64_MAX;
        if (duration < shortest || duration > longest) {
            return harpe_fail(error, HARPE_INTERNAL,
                              "edge %d lasts %lld ps; with %lld uW it must last %lld to %lld", e,
                              (long long)duration, (long long)flow, (long long)shortest,
                              (long long)longest);
        }
    }
    return HARPE_OK;
}

/* Checks the cut: the late side can move towards the early side, all flow crosses the cut, and no
 * edge across the cut prevents the move. */
static harpe_status check_cut(const claim *c, harpe_error *error) {
    const harpe_frontier_solver *solver = &c->walk->solver;
    const harpe_network *network = c->network;
    if (!c->walk->in_segment) return HARPE_OK; /* between two trees there is no cut */
    if (harpe_frontier_solver_is_late(solver, network->source) ||
        !harpe_frontier_solver_is_late(solver, network->sink))
        return harpe_fail(error, HARPE_INTERNAL, "the cut does not part source and sink");
    int64_t crossing = 0;
    for (int32_t e = 0; e < network->edge_count; e++) {
        bool tail_late = harpe_frontier_solver_is_late(solver, network->tail[e]);
        bool head_late = harpe_frontier_solver_is_late(solver, network->head[e]);
        if (tail_late == head_late) continue;
        crossing += head_late ? solver->edges[e].flow : -solver->edges[e].flow;
    }
    if (crossing == solver->flow_uw) return HARPE_OK;
    return harpe_fail(error, HARPE_INTERNAL, "%lld uW cross the cut, %lld uW flow",
                      (long long)crossing, (long long)solver->flow_uw);
}

/* Returns the effective energy of an instruction that lasts `duration_ps`, according to its
 * curve. */
static double curve_energy_j(const harpe_option_list *list, int64_t duration_ps) {
    double time_s = (double)duration_ps / HARPE_PS_PER_S;
    const double *times = list->curve_time_s, *energies = list->curve_effective_energy_j;
    size_t last = list->curve_count - 1;
    if (time_s >= times[last]) return energies[last];
    if (time_s <= times[0]) return energies[0];
    size_t k = 1;
    while (times[k] < time_s)
        k++;
    double share = (time_s - times[k - 1]) / (times[k] - times[k - 1]);
    return energies[k - 1] + share * (energies[k] - energies[k - 1]);
}

/* Returns the least value of energy + price * time on a curve. This is the part of the instruction
 * in the dual problem. */
static double cheapest_j(const harpe_option_list *list, double price_w) {
    double least = INFINITY;
    for (size_t k = 0; k < list->curve_count; k++) {
        double cost = list->curve_effective_energy_j[k] + price_w * list->curve_time_s[k];
        if (cost < least) least = cost;
    }
    return least;
}

/* Adds what waits of cheaper kinds save: by their lengths, and by their flow. */
static void add_waits(const claim *c, double *primal_j, double *dual_j) {
    const harpe_network *network = c->network;
    for (int32_t w = 0; w < network->wait_count; w++) {
        const harpe_network_wait *wait = &network->waits[w];
        int32_t edge = wait->edge;
        double most_s =
            (double)network->curves[network->curve_of[edge]].time_ps[1] / HARPE_PS_PER_S;
        int64_t length_ps = c->event_ps[network->head[edge]] - c->event_ps[network->tail[edge]];
        double flow_w = (double)c->walk->solver.edges[edge].flow / HARPE_UW_PER_W;
        *primal_j -= wait->saving_w * fmin((double)length_ps / HARPE_PS_PER_S, most_s);
        *dual_j += fmin(0, (flow_w - wait->saving_w) * most_s);
    }
}

/* Checks optimality by weak duality, with measured numbers only. The energy of any durations is at
 * least the optimum, and the bound from any conserved flow is at most the optimum. If both values
 * are equal, durations and flow are optimal. */
static harpe_status check_duality(const claim *c, const harpe_frontier *frontier,
                                  harpe_error *error) {
    const harpe_problem *problem = c->walk->problem;
    double time_s = (double)c->walk->solver.time_ps / HARPE_PS_PER_S;
    double constant_j = (problem->total_blocking_power_w + problem->overhead_power_w) * time_s;
    double primal_j = constant_j;
    double dual_j = constant_j - (double)c->walk->solver.flow_uw / HARPE_UW_PER_W * time_s;
    for (int32_t i = 0; i < problem->instruction_count; i++) {
        const harpe_option_list *list = &harpe_problem_choice(problem, i)->list;
        int64_t duration = c->event_ps[c->network->head[i]] - c->event_ps[c->network->tail[i]];
        primal_j += curve_energy_j(list, duration);
        dual_j += cheapest_j(list, (double)c->walk->solver.edges[i].flow / HARPE_UW_PER_W);
    }
    for (size_t d = 0; d < problem->deadline_count; d++) {
        const harpe_deadline *deadline = &problem->deadlines[d];
        int64_t flow_uw = c->walk->solver.edges[deadline->instruction].flow;
        dual_j -= (double)flow_uw / HARPE_UW_PER_W * deadline->time_s;
    }
    add_waits(c, &primal_j, &dual_j);
    double claimed_j = harpe_frontier_relaxed_at(frontier, time_s);
    bool meet = agree(primal_j, dual_j, c->rounding_j) && agree(claimed_j, dual_j, c->rounding_j);
    if (meet) return HARPE_OK;
    return harpe_fail(error, HARPE_INTERNAL,
                      "at %.9f s the durations cost %.9f J, the flow proves %.9f J and the "
                      "frontier says %.9f J",
                      time_s, primal_j, dual_j, claimed_j);
}

static harpe_status check_point(const claim *c, const harpe_frontier *frontier,
                                harpe_error *error) {
    for (int32_t v = 0; v < c->network->node_count; v++)
        c->event_ps[v] = harpe_frontier_solver_event_ps(&c->walk->solver, v);
    harpe_status status = check_flow(c, error);
    if (status == HARPE_OK) status = check_durations(c, error);
    if (status == HARPE_OK) status = check_cut(c, error);
    if (status == HARPE_OK) status = check_duality(c, frontier, error);
    return status;
}

/* ---- Waits ----------------------------------------------------------------------------------- */

/* Computes the ends of all instructions by visiting all arcs until nothing changes. Returns -1 if
 * this does not end, because there is a cycle. */
static double relax_until_stable(const harpe_dag *dag, const double *duration_s, double *end_s) {
    for (int32_t i = 0; i < dag->node_count; i++)
        end_s[i] = duration_s[i];
    bool changed = true;
    for (int32_t pass = 0; changed; pass++) {
        if (pass > dag->node_count) return -1;
        changed = false;
        for (int32_t a = 0; a < dag->arc_count; a++) {
            int32_t from = dag->arc_from[a], to = dag->arc_to[a];
            if (end_s[from] + duration_s[to] <= end_s[to]) continue;
            end_s[to] = end_s[from] + duration_s[to];
            changed = true;
        }
    }
    double length_s = 0;
    for (int32_t i = 0; i < dag->node_count; i++)
        length_s = fmax(length_s, end_s[i]);
    return length_s;
}

/* Checks that a wait of every cheaper kind saves its energy up to the longest wait of any plan:
 * from the earliest end of the instruction before it to the latest start of the instruction after
 * it, among all measured points. */
static harpe_status check_longest_waits(const harpe_problem *problem, const harpe_network *network,
                                        harpe_error *error) {
    if (network->wait_count == 0) return HARPE_OK;
    size_t count = (size_t)problem->instruction_count;
    double *memory = harpe_calloc(4 * count, sizeof *memory);
    if (!memory) return harpe_fail_memory(error);
    double *fast_s = memory, *slow_s = fast_s + count, *early_s = slow_s + count,
           *late_s = early_s + count;
    for (size_t i = 0; i < count; i++) {
        const harpe_choice *choice = harpe_problem_choice(problem, (int32_t)i);
        fast_s[i] = INFINITY;
        for (size_t p = 0; p < choice->point_count; p++) {
            fast_s[i] = fmin(fast_s[i], choice->points[p].time_s);
            slow_s[i] = fmax(slow_s[i], choice->points[p].time_s);
        }
    }
    (void)relax_until_stable(&problem->dag, fast_s, early_s);
    double longest_s = relax_until_stable(&problem->dag, slow_s, late_s);
    harpe_status status = HARPE_OK;
    for (int32_t w = 0; w < network->wait_count && status == HARPE_OK; w++) {
        const harpe_network_wait *wait = &network->waits[w];
        double from_s = wait->before < 0 ? 0 : early_s[wait->before];
        double to_s = wait->after < 0 ? longest_s : late_s[wait->after] - slow_s[wait->after];
        const harpe_network_curve *curve = &network->curves[network->curve_of[wait->edge]];
        double allowed_s = (double)curve->time_ps[1] / HARPE_PS_PER_S;
        if (to_s - from_s > allowed_s * (1 + 1e-12) + 1e-12 * longest_s)
            status = harpe_fail(error, HARPE_INTERNAL,
                                "a wait of rank %d can take %.9f s, the relaxation counts %.9f s",
                                wait->rank, to_s - from_s, allowed_s);
    }
    free(memory);
    return status;
}

/* ---- The whole frontier ---------------------------------------------------------------------- */

static harpe_status check_shape(const harpe_problem *problem, const harpe_frontier *frontier,
                                harpe_error *error) {
    double constant_w = problem->total_blocking_power_w + problem->overhead_power_w;
    double rounding_j = total_rounding_j(problem);
    for (size_t i = 1; i < frontier->count; i++) {
        const harpe_frontier_vertex *fast = &frontier->vertices[i - 1];
        const harpe_frontier_vertex *slow = &frontier->vertices[i];
        bool is_falling = fast->time_s < slow->time_s && fast->marginal_w >= slow->marginal_w &&
                          fast->lower_bound_j >= slow->lower_bound_j;
        if (!is_falling) {
            return harpe_fail(error, HARPE_INTERNAL,
                              "the frontier is not decreasing and convex at vertex %zu (%.9f s)", i,
                              slow->time_s);
        }
        double risen_j =
            slow->lower_bound_j + (slow->marginal_w - constant_w) * (slow->time_s - fast->time_s);
        bool is_first_priced = i > 1 || fast->marginal_w == slow->marginal_w;
        if (!agree(risen_j, fast->lower_bound_j, rounding_j) || !is_first_priced) {
            return harpe_fail(error, HARPE_INTERNAL,
                              "the frontier says %.9f W below vertex %zu (%.9f s), but rises to "
                              "%.9f J instead of %.9f J",
                              slow->marginal_w, i, slow->time_s, fast->lower_bound_j, risen_j);
        }
    }
    return HARPE_OK;
}

/* Checks that the frontier begins at T_min and ends at T*; other checks take samples of the part
 * between them. */
static harpe_status check_ends(const harpe_walk *walk, const harpe_frontier *frontier,
                               harpe_error *error) {
    double fastest_s = (double)walk->fastest_ps / HARPE_PS_PER_S;
    double slowest_s = (double)walk->minimum_energy_ps / HARPE_PS_PER_S;
    if (frontier->count > 0 && frontier->vertices[0].time_s == fastest_s &&
        frontier->vertices[frontier->count - 1].time_s == slowest_s)
        return HARPE_OK;
    return harpe_fail(error, HARPE_INTERNAL,
                      "the frontier of %zu vertices does not run from %.12f s to %.12f s",
                      frontier->count, fastest_s, slowest_s);
}

static harpe_status check_samples(claim *c, harpe_walk *walk, const harpe_frontier *frontier,
                                  size_t samples, harpe_error *error) {
    int64_t slowest = walk->minimum_energy_ps, fastest = walk->fastest_ps;
    for (size_t k = 0;; k++) {
        harpe_status status = check_point(c, frontier, error);
        if (status != HARPE_OK || walk->solver.time_ps <= fastest) return status;
        if (samples == 0) {
            status = harpe_walk_to_next_vertex(walk, error);
        } else {
            double share = (double)(k + 1) / (double)samples;
            int64_t time_ps = k + 1 >= samples
                                  ? fastest
                                  : slowest - (int64_t)((double)(slowest - fastest) * share);
            status = harpe_walk_to(walk, time_ps, error);
        }
        if (status != HARPE_OK) return status;
    }
}

harpe_status harpe_frontier_verify(const harpe_problem *problem, const harpe_frontier *frontier,
                                   size_t samples, harpe_error *error) {
    harpe_status status = check_shape(problem, frontier, error);
    if (status != HARPE_OK) return status;
    harpe_walk walk;
    status = harpe_walk_begin(&walk, problem, NULL, error);
    if (status != HARPE_OK) return status;
    status = check_ends(&walk, frontier, error);
    if (status == HARPE_OK) status = check_longest_waits(problem, &walk.network, error);
    if (status != HARPE_OK) {
        harpe_walk_clear(&walk);
        return status;
    }
    size_t nodes = (size_t)walk.network.node_count;
    claim c = {.walk = &walk, .network = &walk.network, .rounding_j = total_rounding_j(problem)};
    c.event_ps = harpe_calloc(nodes, sizeof *c.event_ps);
    c.balance = harpe_calloc(nodes, sizeof *c.balance);
    if (c.event_ps && c.balance)
        status = check_samples(&c, &walk, frontier, samples, error);
    else
        status = harpe_fail_memory(error);
    free(c.event_ps);
    free(c.balance);
    harpe_walk_clear(&walk);
    return status;
}

/* ---- One plan -------------------------------------------------------------------------------- */

/* Searches all points for a frequency. Returns NULL if the frequency was not measured. */
static const harpe_profile_point *measured_at(const harpe_choice *choice, int frequency_mhz) {
    for (size_t p = 0; p < choice->point_count; p++)
        if (choice->points[p].frequency_mhz == frequency_mhz) return &choice->points[p];
    return NULL;
}

/* Returns the energy that waits of cheaper kinds save, compared with the highest power of their
 * ranks. */
static double cheaper_waits_j(const harpe_problem *problem, const double *duration_s,
                              const double *end_s, double time_s) {
    double saved_j = 0;
    if (!harpe_problem_has_any_wait_kinds(problem)) return 0;
    for (int rank = 0; rank < problem->rank_count; rank++) {
        size_t length = harpe_problem_rank_length(problem, rank);
        double since_s = 0;
        for (size_t k = 0; k <= length; k++) {
            size_t i = problem->rank_offset[rank] + k;
            double until_s = k < length ? end_s[i] - duration_s[i] : time_s;
            double power_w = harpe_problem_wait_power_w(problem, rank, k);
            saved_j += (problem->blocking_power_w[rank] - power_w) * (until_s - since_s);
            if (k < length) since_s = end_s[i];
        }
    }
    return saved_j;
}

static harpe_status recompute(const harpe_problem *problem, const harpe_plan *plan,
                              double *duration_s, double *end_s, harpe_plan *out,
                              harpe_error *error) {
    double waiting_saved_j = 0;
    for (int32_t i = 0; i < problem->instruction_count; i++) {
        const harpe_choice *choice = harpe_problem_choice(problem, i);
        bool is_delay = harpe_problem_is_delay(problem, i);
        const harpe_profile_point *point =
            is_delay ? choice->points : measured_at(choice, plan->frequency_mhz[i]);
        if (!point) {
            return harpe_fail(error, HARPE_INTERNAL,
                              "instruction %d runs at %d MHz, which was "
                              "never measured",
                              i, plan->frequency_mhz[i]);
        }
        duration_s[i] = point->time_s;
        out->compute_energy_j += point->energy_j;
        waiting_saved_j += choice->blocking_power_w * point->time_s;
    }
    out->time_s = relax_until_stable(&problem->dag, duration_s, end_s);
    waiting_saved_j += cheaper_waits_j(problem, duration_s, end_s, out->time_s);
    out->blocking_energy_j = problem->total_blocking_power_w * out->time_s - waiting_saved_j;
    out->overhead_energy_j = problem->overhead_power_w * out->time_s;
    out->energy_j = out->compute_energy_j + out->blocking_energy_j + out->overhead_energy_j;
    out->average_power_w =
        (out->compute_energy_j + out->blocking_energy_j) / out->time_s / problem->total_gpu_count;
    return HARPE_OK;
}

static harpe_status check_numbers(const harpe_problem *problem, const harpe_plan *plan,
                                  const harpe_plan *found, harpe_error *error) {
    double noise_j = CANCELLATION * harpe_problem_iteration_power_w(problem) * found->time_s;
    const struct {
        const char *what;
        double said, found, noise;
    } numbers[] = {
        {"time (s)", plan->time_s, found->time_s, 0},
        {"energy (J)", plan->energy_j, found->energy_j, noise_j},
        {"compute energy (J)", plan->compute_energy_j, found->compute_energy_j, 0},
        {"blocking energy (J)", plan->blocking_energy_j, found->blocking_energy_j, noise_j},
        {"overhead energy (J)", plan->overhead_energy_j, found->overhead_energy_j, 0},
        {"average power (W)", plan->average_power_w, found->average_power_w,
         noise_j / found->time_s},
        {"lower bound (J)", plan->lower_bound_j, found->lower_bound_j, 0},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (agree(numbers[i].said, numbers[i].found, numbers[i].noise)) continue;
        return harpe_fail(error, HARPE_INTERNAL, "the plan's %s is given as %.9f; recomputed: %.9f",
                          numbers[i].what, numbers[i].said, numbers[i].found);
    }
    return HARPE_OK;
}

/* Returns true if a curve is fitted. A fitted curve may lie above a measured point. Its frontier is
 * then not a lower bound for real plans. */
static bool is_any_curve_fitted(const harpe_problem *problem) {
    for (size_t c = 0; c < problem->choice_count; c++)
        if (problem->choices[c].is_fitted) return true;
    return false;
}

/* Checks that every activity with a deadline ends in time. */
static harpe_status check_deadlines(const harpe_problem *problem, const double *end_s,
                                    harpe_error *error) {
    for (size_t d = 0; d < problem->deadline_count; d++) {
        double deadline_s = problem->deadlines[d].time_s;
        double found_s = end_s[problem->deadlines[d].instruction];
        double rounding_s = problem->instruction_count / HARPE_PS_PER_S;
        if (found_s <= deadline_s * (1 + 1e-12) + rounding_s) continue;
        return harpe_fail(error, HARPE_INTERNAL,
                          "an activity ends at %.9f s, its deadline is %.9f s", found_s,
                          deadline_s);
    }
    return HARPE_OK;
}

harpe_status harpe_plan_verify(const harpe_problem *problem, const harpe_frontier *frontier,
                               const harpe_plan *plan, harpe_error *error) {
    size_t count = (size_t)problem->instruction_count;
    double *duration_s = harpe_calloc(count, sizeof *duration_s);
    double *end_s = harpe_calloc(count, sizeof *end_s);
    harpe_plan found = {0};
    harpe_status status = HARPE_OK;
    if (!duration_s || !end_s) status = harpe_fail_memory(error);
    if (status == HARPE_OK) status = recompute(problem, plan, duration_s, end_s, &found, error);
    if (status == HARPE_OK) status = check_deadlines(problem, end_s, error);
    free(duration_s);
    free(end_s);
    if (status != HARPE_OK) return status;
    found.lower_bound_j = harpe_frontier_bound_of(frontier, problem, plan);
    status = check_numbers(problem, plan, &found, error);
    if (status != HARPE_OK || is_any_curve_fitted(problem)) return status;
    if (plan->energy_j < plan->lower_bound_j &&
        !agree(plan->energy_j, plan->lower_bound_j, total_rounding_j(problem))) {
        return harpe_fail(error, HARPE_INTERNAL,
                          "the plan of %.9f s needs %.9f J, less than its lower bound %.9f J",
                          plan->time_s, plan->energy_j, plan->lower_bound_j);
    }
    return HARPE_OK;
}

harpe_status harpe_plan_set_verify(const harpe_problem *problem, const harpe_frontier *frontier,
                                   const harpe_plan_set *plans, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < plans->count && status == HARPE_OK; i++)
        status = harpe_plan_verify(problem, frontier, &plans->plans[i], error);
    return status;
}
