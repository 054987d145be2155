/* SPDX-License-Identifier: Apache-2.0 */
/* Joins a profile and a schedule: finds the options of each instruction, splits overlapped pairs
 * that were not profiled as one, and builds the dependencies. It solves nothing. */
#include "plan/problem.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/dag.h"
#include "plan/problem_internal.h"
#include "plan/profiles.h"
#include "plan/schedule.h"

/* The delays of a graph: node `node_count + k` of the graph before is delay k. */
typedef struct graph_delays {
    harpe_arena arena; /* also of the working memory */
    int32_t count;
    int32_t *after; /* [count]: the node that waits; ascending */
    int *rank;      /* [count]: its rank */
    double *lag_s;  /* [count] */
} graph_delays;

/* ---- Transfers that take time ---------------------------------------------------------------- */

#define LAG_MAX_S 1e6

typedef struct delayer {
    harpe_dag *dag;
    int *rank;       /* [node] */
    double *lag_s;   /* [node] */
    bool *is_late;   /* [arc]: it gets a delay */
    int32_t *before; /* [delay]: the node that ends before */
    graph_delays *delays;
} delayer;

static harpe_status check_lag(double lag_s, harpe_error *error) {
    if (lag_s >= 0 && lag_s <= LAG_MAX_S) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "transfer time %g s is not between 0 and %.0f s", lag_s, LAG_MAX_S);
}

static harpe_status read_lags(delayer *d, const harpe_instruction *const *lists,
                              const size_t *counts, int rank_count, double transfer_time_s,
                              harpe_error *error) {
    int32_t next = 0;
    for (int rank = 0; rank < rank_count; rank++) {
        for (size_t i = 0; i < counts[rank]; i++, next++) {
            double lag_s = lists[rank][i].lag_s;
            harpe_status status = check_lag(lag_s, error);
            if (status != HARPE_OK) return status;
            d->rank[next] = rank;
            d->lag_s[next] = lag_s > 0 ? lag_s : transfer_time_s;
        }
    }
    return HARPE_OK;
}

/* Numbers the delays by the node that waits. */
static void list_delays(delayer *d) {
    const harpe_dag *dag = d->dag;
    graph_delays *delays = d->delays;
    for (int32_t a = 0; a < dag->arc_count; a++) {
        int32_t from = dag->arc_from[a], to = dag->arc_to[a];
        d->is_late[a] = d->rank[from] != d->rank[to] && d->lag_s[to] > 0;
        if (!d->is_late[a]) continue;
        d->before[delays->count] = from;
        delays->after[delays->count] = to;
        delays->rank[delays->count] = d->rank[to];
        delays->lag_s[delays->count++] = d->lag_s[to];
    }
}

static void fill_arcs(const delayer *d, harpe_dag *to) {
    const harpe_dag *from = d->dag;
    int32_t next = 0, count = d->delays->count;
    for (int32_t v = 0; v < from->node_count; v++) {
        to->first_arc_into[v] = from->first_arc_into[v];
        for (int32_t a = from->first_arc_into[v]; a < from->first_arc_into[v + 1]; a++) {
            to->arc_from[a] = d->is_late[a] ? from->node_count + next++ : from->arc_from[a];
            to->arc_to[a] = v;
        }
    }
    for (int32_t k = 0; k < count; k++) {
        int32_t a = from->arc_count + k;
        to->first_arc_into[from->node_count + k] = a;
        to->arc_from[a] = d->before[k];
        to->arc_to[a] = from->node_count + k;
    }
    to->node_count = from->node_count + count;
    to->arc_count = from->arc_count + count;
    to->first_arc_into[to->node_count] = to->arc_count;
}

/* Each delay comes directly before the node that waits for it. */
static void fill_order(const delayer *d, harpe_dag *to) {
    const harpe_dag *from = d->dag;
    int32_t next = 0;
    for (int32_t k = 0; k < from->node_count; k++) {
        int32_t v = from->topological_order[k];
        for (int32_t a = to->first_arc_into[v]; a < to->first_arc_into[v + 1]; a++)
            if (to->arc_from[a] >= from->node_count)
                to->topological_order[next++] = to->arc_from[a];
        to->topological_order[next++] = v;
    }
}

static harpe_status extend(const delayer *d, harpe_error *error) {
    size_t nodes = (size_t)d->dag->node_count + (size_t)d->delays->count;
    size_t arcs = (size_t)d->dag->arc_count + (size_t)d->delays->count;
    harpe_dag dag = {0};
    harpe_status status = harpe_dag_allocate(&dag, nodes, arcs, error);
    if (status != HARPE_OK) {
        harpe_dag_clear(&dag);
        return status;
    }
    fill_arcs(d, &dag);
    fill_order(d, &dag);
    harpe_dag_clear(d->dag);
    *d->dag = dag;
    return HARPE_OK;
}

static harpe_status allocate(delayer *d, harpe_error *error) {
    size_t nodes = (size_t)d->dag->node_count, arcs = (size_t)d->dag->arc_count;
    harpe_arena *arena = &d->delays->arena;
    d->rank = harpe_arena_alloc(arena, nodes, sizeof *d->rank);
    d->lag_s = harpe_arena_alloc(arena, nodes, sizeof *d->lag_s);
    d->is_late = harpe_arena_alloc(arena, arcs, sizeof *d->is_late);
    d->before = harpe_arena_alloc(arena, arcs, sizeof *d->before);
    d->delays->after = harpe_arena_alloc(arena, arcs, sizeof *d->delays->after);
    d->delays->rank = harpe_arena_alloc(arena, arcs, sizeof *d->delays->rank);
    d->delays->lag_s = harpe_arena_alloc(arena, arcs, sizeof *d->delays->lag_s);
    return arena->has_failed ? harpe_fail_memory(error) : HARPE_OK;
}

/* Adds the delays of all instructions with a lag to a graph. `lists[r]` has the counts[r] nodes of
 * rank r. An instruction without a lag of its own has `transfer_time_s` (0: none). Fails with
 * HARPE_INVALID_ARGUMENT if a time is not between 0 and 1e6 s. Free the arena also after a
 * failure. */
static harpe_status delays_add(harpe_dag *dag, const harpe_instruction *const *lists,
                               const size_t *counts, int rank_count, double transfer_time_s,
                               graph_delays *out, harpe_error *error) {
    *out = (graph_delays){0};
    delayer d = {.dag = dag, .delays = out};
    harpe_status status = check_lag(transfer_time_s, error);
    if (status == HARPE_OK) status = allocate(&d, error);
    if (status == HARPE_OK)
        status = read_lags(&d, lists, counts, rank_count, transfer_time_s, error);
    if (status == HARPE_OK) list_delays(&d);
    if (status == HARPE_OK && out->count > 0) status = extend(&d, error);
    return status;
}

/* ---- The problem ----------------------------------------------------------------------------- */

#define DEFAULT_MEMORY_LIMIT (UINT64_C(4) << 30)
/* Memory of one instruction in the lists, the dependencies, the network, the solver and one plan.
 * Measured, then rounded up generously. */
#define BYTES_PER_INSTRUCTION 600
/* Limit for the number of instructions, because the indices of nodes, arcs and ends of arcs have 32
 * bits. */
#define INSTRUCTIONS_MAX (INT32_MAX / 64)
#define OVERHEAD_POWER_MAX_W 1e9

/* ---- Lists of the schedule, with overlapped pairs without profile rows split ----------------- */

typedef struct rank_lists {
    harpe_arena arena;
    harpe_instruction *all;          /* every rank's instructions, rank 0 first */
    const harpe_instruction **lists; /* [rank_count] into all */
    size_t *counts;                  /* [rank_count] */
    size_t total;
    harpe_wait *waits; /* of the schedule, between indices of `all` */
    size_t wait_count;
} rank_lists;

static size_t split_or_keep(const harpe_profile *profile, const harpe_instruction *instruction,
                            harpe_instruction *out) {
    bool keep = instruction->action_count == 1 ||
                harpe_profile_find(profile, instruction->actions[0].stage, instruction->name);
    if (keep) {
        out[0] = *instruction;
        return 1;
    }
    for (int half = 0; half < 2; half++) {
        out[half] = (harpe_instruction){
            .name = harpe_action_name(&instruction->actions[half]),
            .actions = {instruction->actions[half]},
            .action_count = 1,
            .lag_s = instruction->lag_s,
        };
    }
    return 2;
}

/* Copies the schedule's waits. If a pair was split, an instruction waits for its second half, and
 * its first half waits. `*first_of` has the index of each instruction's first part, and the total.
 */
static harpe_status copy_waits(const harpe_schedule *schedule, const int32_t *first_of,
                               rank_lists *out, harpe_error *error) {
    out->waits = harpe_arena_alloc(&out->arena, schedule->wait_count, sizeof *out->waits);
    if (!out->waits) return harpe_fail_memory(error);
    out->wait_count = schedule->wait_count;
    for (size_t w = 0; w < schedule->wait_count; w++) {
        const harpe_wait *wait = &schedule->waits[w];
        out->waits[w] = (harpe_wait){first_of[wait->before + 1] - 1, first_of[wait->after]};
    }
    return HARPE_OK;
}

static harpe_status expand_lists(const harpe_profile *profile, const harpe_schedule *schedule,
                                 rank_lists *out, harpe_error *error) {
    int ranks = harpe_schedule_rank_count(schedule);
    size_t most = 2 * harpe_schedule_instruction_count(schedule);
    out->all = harpe_arena_alloc(&out->arena, most, sizeof *out->all);
    out->lists = harpe_arena_alloc(&out->arena, (size_t)ranks, sizeof *out->lists);
    out->counts = harpe_arena_alloc(&out->arena, (size_t)ranks, sizeof *out->counts);
    int32_t *first_of = harpe_arena_alloc(&out->arena, most / 2 + 1, sizeof *first_of);
    if (out->arena.has_failed) return harpe_fail_memory(error);
    size_t next = 0;
    for (int r = 0; r < ranks; r++) {
        size_t count = 0;
        const harpe_instruction *list = harpe_schedule_rank(schedule, r, &count);
        out->lists[r] = out->all + out->total;
        for (size_t i = 0; i < count; i++) {
            size_t added = split_or_keep(profile, &list[i], out->all + out->total);
            out->counts[r] += added;
            out->total += added;
            first_of[++next] = (int32_t)out->total;
        }
    }
    return copy_waits(schedule, first_of, out, error);
}

/* ---- Choices --------------------------------------------------------------------------------- */

static harpe_status copy_curve(harpe_problem *problem, harpe_choice *choice,
                               const harpe_curve *curve, harpe_error *error) {
    double *time_s = harpe_arena_alloc(&problem->arena, curve->count, sizeof *time_s);
    double *energy_j = harpe_arena_alloc(&problem->arena, curve->count, sizeof *energy_j);
    if (problem->arena.has_failed) return harpe_fail_memory(error);
    memcpy(time_s, curve->time_s, curve->count * sizeof *time_s);
    memcpy(energy_j, curve->effective_energy_j, curve->count * sizeof *energy_j);
    choice->list.curve_count = curve->count;
    choice->list.curve_time_s = time_s;
    choice->list.curve_effective_energy_j = energy_j;
    return HARPE_OK;
}

static harpe_status fill_curve(harpe_problem *problem, harpe_choice *choice,
                               const harpe_problem_options *options, harpe_error *error) {
    harpe_curve curve = {0};
    harpe_status status;
    if (options->cost_model == HARPE_COST_EXPONENTIAL) {
        status = harpe_curve_from_exponential(
            choice->points, choice->point_count, choice->list.options, choice->list.option_count,
            choice->blocking_power_w, options->unit_time_s, options->noise_factor, &curve,
            &choice->is_fitted, choice->coefficients, error);
    } else {
        status =
            harpe_curve_from_hull(choice->list.options, choice->list.option_count, &curve, error);
    }
    if (status == HARPE_OK) status = copy_curve(problem, choice, &curve, error);
    harpe_curve_clear(&curve);
    return status;
}

/* Checks the size of the exponential model's curves, which grows with the profile and not with the
 * schedule. */
static harpe_status check_curves(const harpe_problem *problem, harpe_error *error) {
    if (problem->arena.total_bytes <= problem->memory_limit_bytes) return HARPE_OK;
    return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                      "the cost curves of %zu instructions already need more than the limit of "
                      "%llu MiB: take a longer unit time, or the hull model",
                      problem->choice_count,
                      (unsigned long long)(problem->memory_limit_bytes >> 20));
}

harpe_status harpe_problem_fill_choice(harpe_problem *problem, const harpe_profile_entry *entry,
                                       int rank, double blocking_power_w,
                                       const harpe_problem_options *options, harpe_choice *choice,
                                       harpe_error *error) {
    harpe_profile_point *points =
        harpe_arena_alloc(&problem->arena, entry->point_count, sizeof *points);
    char *name =
        harpe_arena_strdup(&problem->arena, entry->instruction, strlen(entry->instruction));
    if (problem->arena.has_failed) return harpe_fail_memory(error);
    memcpy(points, entry->points, entry->point_count * sizeof *points);
    choice->points = points;
    choice->point_count = entry->point_count;
    choice->throttled_count = entry->throttled_count;
    choice->blocking_power_w = blocking_power_w;

    harpe_option *found = NULL;
    size_t count = 0;
    harpe_status status = harpe_options_from_points(
        points + entry->throttled_count, entry->point_count - entry->throttled_count,
        choice->blocking_power_w, &found, &count, error);
    if (status != HARPE_OK) return status;
    harpe_option *kept = harpe_arena_alloc(&problem->arena, count, sizeof *kept);
    if (kept) memcpy(kept, found, count * sizeof *kept);
    free(found);
    if (!kept) return harpe_fail_memory(error);
    choice->list = (harpe_option_list){
        .stage = entry->stage,
        .rank = rank,
        .instruction = name,
        .option_count = count,
        .options = kept,
    };
    status = fill_curve(problem, choice, options, error);
    return status == HARPE_OK ? check_curves(problem, error) : status;
}

static harpe_status find_entry(const harpe_profile *profile, const harpe_instruction *instruction,
                               const harpe_profile_entry **entry, harpe_error *error) {
    *entry = harpe_profile_find(profile, instruction->actions[0].stage, instruction->name);
    if (*entry) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "the profile has no '%s' for stage %d, which the schedule runs: measure it, "
                      "or choose another schedule",
                      instruction->name, instruction->actions[0].stage);
}

/* Sets the choice of every instruction, and counts the choices: one for each profile entry that a
 * rank runs. A stage that two ranks run has a choice for each, because their blocking powers may
 * differ. `choice_of_entry` has a zero for each entry of the profile. */
static harpe_status count_choices(harpe_problem *problem, const harpe_profile *profile,
                                  const rank_lists *lists, int32_t *choice_of_entry,
                                  harpe_error *error) {
    const harpe_profile_entry *first = harpe_profile_entry_at(profile, 0);
    int32_t next = 0, first_of_rank = 0;
    for (int rank = 0; rank < problem->rank_count; rank++) {
        for (size_t i = 0; i < lists->counts[rank]; i++, next++) {
            const harpe_profile_entry *entry = NULL;
            harpe_status status = find_entry(profile, &lists->lists[rank][i], &entry, error);
            if (status != HARPE_OK) return status;
            int32_t *choice = &choice_of_entry[entry - first];
            if (*choice <= first_of_rank) *choice = (int32_t)++problem->choice_count;
            problem->choice_of[next] = *choice - 1;
        }
        first_of_rank = (int32_t)problem->choice_count;
    }
    return HARPE_OK;
}

static harpe_status fill_choices(harpe_problem *problem, const harpe_profile *profile,
                                 const rank_lists *lists, const harpe_problem_options *options,
                                 harpe_error *error) {
    size_t entries = harpe_profile_entry_count(profile);
    int32_t *choice_of_entry = harpe_calloc(entries, sizeof *choice_of_entry);
    if (!choice_of_entry) return harpe_fail_memory(error);
    harpe_status status = count_choices(problem, profile, lists, choice_of_entry, error);
    free(choice_of_entry);
    if (status != HARPE_OK) return status;
    size_t needed = problem->choice_count;
    problem->choice_count = 0;
    problem->choices = harpe_arena_alloc(&problem->arena, needed, sizeof *problem->choices);
    if (!problem->choices) return harpe_fail_memory(error);
    int32_t next = 0;
    for (int rank = 0; rank < problem->rank_count; rank++) {
        for (size_t i = 0; i < lists->counts[rank]; i++, next++) {
            if ((size_t)problem->choice_of[next] < problem->choice_count) continue;
            const harpe_profile_entry *entry = NULL;
            status = find_entry(profile, &lists->lists[rank][i], &entry, error);
            if (status == HARPE_OK)
                status = harpe_problem_fill_choice(
                    problem, entry, rank, problem->blocking_power_w[rank], options,
                    &problem->choices[problem->choice_count++], error);
            if (status != HARPE_OK) return status;
        }
    }
    return HARPE_OK;
}

/* ---- The object ------------------------------------------------------------------------------ */

/* Finds the blocking power of one GPU of a rank in the profile; 0 if the profile has none. */
static harpe_status find_blocking_power(const harpe_profile *profile, const rank_lists *lists,
                                        int rank, double *watts, harpe_error *error) {
    *watts = 0;
    for (size_t i = 0; i < lists->counts[rank]; i++) {
        int stage = lists->lists[rank][i].actions[0].stage;
        double found = harpe_profile_blocking_power_w(profile, stage);
        if (i == 0) *watts = found;
        if (found < *watts || found > *watts)
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "stage %d has a blocking power of %g W in the profile, but other "
                              "stages of rank %d have %g W: stages that share a rank run on the "
                              "same GPUs",
                              stage, found, rank, *watts);
    }
    return HARPE_OK;
}

static harpe_status fill_blocking_power(harpe_problem *problem, const harpe_profile *profile,
                                        const rank_lists *lists,
                                        const harpe_problem_options *options, harpe_error *error) {
    size_t given = options->blocking_power_w ? options->blocking_power_count : 0;
    if (given > 1 && given != (size_t)problem->rank_count) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "%zu blocking powers for %d ranks: give one, or one for each rank", given,
                          problem->rank_count);
    }
    for (int r = 0; r < problem->rank_count; r++) {
        double watts = given == 0 ? 0 : options->blocking_power_w[given == 1 ? 0 : r];
        if (given == 0) {
            harpe_status status = find_blocking_power(profile, lists, r, &watts, error);
            if (status != HARPE_OK) return status;
        }
        if (!isfinite(watts) || watts < 0 || watts > 1e5) {
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "blocking power %g W of rank %d is not between 0 and 100000 W", watts,
                              r);
        }
        problem->blocking_power_w[r] = watts * problem->gpu_count[r];
        problem->total_blocking_power_w += problem->blocking_power_w[r];
    }
    return HARPE_OK;
}

/* Turns the powers of one GPU into the rank's highest power and savings of all its GPUs. Returns
 * true if a saving is not 0. `usual_w` is the power of one GPU that the rank has had so far. */
static bool fill_savings(harpe_problem *problem, int rank, double usual_w) {
    size_t first = problem->rank_offset[rank], end = problem->rank_offset[rank + 1];
    double gpus = problem->gpu_count[rank], highest_w = problem->end_saving_w[rank];
    for (size_t i = first; i < end; i++)
        highest_w = fmax(highest_w, problem->wait_saving_w[i]);
    bool is_any = problem->end_saving_w[rank] < highest_w;
    problem->end_saving_w[rank] = (highest_w - problem->end_saving_w[rank]) * gpus;
    for (size_t i = first; i < end; i++) {
        is_any = is_any || problem->wait_saving_w[i] < highest_w;
        problem->wait_saving_w[i] = (highest_w - problem->wait_saving_w[i]) * gpus;
    }
    if (highest_w < usual_w || highest_w > usual_w)
        problem->blocking_power_w[rank] = highest_w * gpus;
    return is_any;
}

/* Takes the powers of kinds of waits. If every rank has one power only, the problem is the same as
 * without kinds. */
static harpe_status fill_wait_powers(harpe_problem *problem, const rank_lists *lists,
                                     const harpe_problem_options *options, harpe_error *error) {
    if (!options->wait_powers || options->wait_power_count == 0) return HARPE_OK;
    harpe_arena *arena = &problem->arena;
    size_t ranks = (size_t)problem->rank_count;
    double *usual_w = harpe_arena_alloc(arena, ranks, sizeof *usual_w);
    double *saving_w = harpe_arena_alloc(arena, lists->total, sizeof *saving_w);
    problem->end_saving_w = harpe_arena_alloc(arena, ranks, sizeof *problem->end_saving_w);
    problem->has_wait_kinds = harpe_arena_alloc(arena, ranks, sizeof *problem->has_wait_kinds);
    if (problem->arena.has_failed) return harpe_fail_memory(error);
    for (size_t r = 0; r < ranks; r++)
        usual_w[r] = problem->blocking_power_w[r] / problem->gpu_count[r];
    harpe_waits waits = {.rank_count = problem->rank_count,
                         .rank_offset = problem->rank_offset,
                         .instructions = lists->all,
                         .usual_w = usual_w,
                         .power_w = saving_w,
                         .end_w = problem->end_saving_w};
    harpe_error reason;
    harpe_status status =
        harpe_wait_powers_find(options->wait_powers, options->wait_power_count, &waits, &reason);
    const char *name = options->wait_powers_name;
    if (status == HARPE_INVALID_ARGUMENT && name) status = HARPE_INVALID_INPUT;
    if (status != HARPE_OK)
        return harpe_fail(error, status, "%s%s%s", name ? name : "", name ? ": " : "",
                          reason.message);
    problem->wait_saving_w = saving_w;
    problem->total_blocking_power_w = 0;
    bool is_any = false;
    for (int r = 0; r < problem->rank_count; r++) {
        problem->has_wait_kinds[r] = fill_savings(problem, r, usual_w[r]);
        is_any = is_any || problem->has_wait_kinds[r];
        problem->total_blocking_power_w += problem->blocking_power_w[r];
    }
    if (!is_any) problem->wait_saving_w = NULL;
    return HARPE_OK;
}

/* Finds the number of GPUs of a stage in the profile. If the profile does not contain it, takes it
 * from the options. */
static harpe_status find_stage_gpus(const harpe_profile *profile, int stage,
                                    const harpe_problem_options *options, int *gpus,
                                    harpe_error *error) {
    *gpus = harpe_profile_gpu_count(profile, stage);
    if (options->gpus_per_stage == 0 || *gpus == options->gpus_per_stage) return HARPE_OK;
    if (*gpus > 1)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%d GPUs per stage are given, but stage %d of the profile has %d: leave "
                          "the number out",
                          options->gpus_per_stage, stage, *gpus);
    *gpus = options->gpus_per_stage;
    return HARPE_OK;
}

/* Computes the GPUs of each rank from those of its stages. */
static harpe_status fill_gpus(harpe_problem *problem, const harpe_profile *profile,
                              const rank_lists *lists, const harpe_problem_options *options,
                              harpe_error *error) {
    if (options->gpus_per_stage < 0 || options->gpus_per_stage > HARPE_PROFILE_GPUS_MAX)
        return harpe_fail(
            error, HARPE_INVALID_ARGUMENT,
            "GPUs per stage must be 1 to %d, or 0 for the number in the profile, not %d",
            HARPE_PROFILE_GPUS_MAX, options->gpus_per_stage);
    for (int rank = 0; rank < problem->rank_count; rank++) {
        problem->gpu_count[rank] = 1; /* a rank that runs nothing */
        for (size_t i = 0; i < lists->counts[rank]; i++) {
            int stage = lists->lists[rank][i].actions[0].stage, gpus = 0;
            harpe_status status = find_stage_gpus(profile, stage, options, &gpus, error);
            if (status != HARPE_OK) return status;
            if (i > 0 && gpus != problem->gpu_count[rank])
                return harpe_fail(error, HARPE_INVALID_INPUT,
                                  "stage %d has %d GPUs in the profile, but other stages of rank "
                                  "%d have %d: stages that share a rank run on the same GPUs",
                                  stage, gpus, rank, problem->gpu_count[rank]);
            problem->gpu_count[rank] = gpus;
        }
        problem->total_gpu_count += problem->gpu_count[rank];
    }
    return HARPE_OK;
}

static harpe_status check_cost_model(const harpe_problem_options *options, harpe_error *error) {
    harpe_cost_model model = options->cost_model;
    if (model == HARPE_COST_HULL || model == HARPE_COST_EXPONENTIAL) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "there is no cost model %d: HARPE_COST_HULL and HARPE_COST_EXPONENTIAL are "
                      "known",
                      (int)model);
}

/* Checks that profile and schedule have the same number of stages. If only the first stages of a
 * profile were planned, another stage would be treated as the last one. */
static harpe_status check_stages(const harpe_profile *profile, const harpe_schedule *schedule,
                                 harpe_error *error) {
    int has = harpe_profile_stage_count(profile), needs = harpe_schedule_stage_count(schedule);
    if (has == needs) return HARPE_OK;
    int ranks = harpe_schedule_rank_count(schedule);
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "the profile has %d stage%s, but the schedule (%s, %d rank%s) has %d: %s",
                      has, has == 1 ? "" : "s", harpe_schedule_name(schedule), ranks,
                      ranks == 1 ? "" : "s", needs,
                      has < needs ? "profile the other stages, or make the schedule for fewer"
                                  : "make the schedule for all of them, or take the other stages' "
                                    "rows out of the profile");
}

harpe_status harpe_problem_check_size(uint64_t instruction_count, uint64_t memory_limit_bytes,
                                      harpe_error *error) {
    uint64_t limit = memory_limit_bytes > 0 ? memory_limit_bytes : DEFAULT_MEMORY_LIMIT;
    if (instruction_count > INSTRUCTIONS_MAX) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "%llu instructions, at most %d can be planned: plan fewer microbatches",
                          (unsigned long long)instruction_count, INSTRUCTIONS_MAX);
    }
    uint64_t bytes = instruction_count * BYTES_PER_INSTRUCTION;
    if (bytes <= limit) return HARPE_OK;
    return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                      "%llu instructions need about %llu MiB to plan, the limit is %llu MiB: plan "
                      "fewer microbatches, or raise the memory limit",
                      (unsigned long long)instruction_count, (unsigned long long)(bytes >> 20),
                      (unsigned long long)(limit >> 20));
}

static harpe_status fill_lists(harpe_problem *problem, const rank_lists *lists,
                               harpe_error *error) {
    problem->instruction_count = (int32_t)lists->total;
    harpe_arena *arena = &problem->arena;
    size_t ranks = (size_t)problem->rank_count;
    problem->rank_offset = harpe_arena_alloc(arena, ranks + 1, sizeof *problem->rank_offset);
    problem->choice_of = harpe_arena_alloc(arena, lists->total, sizeof *problem->choice_of);
    problem->maximum_frequency_mhz =
        harpe_arena_alloc(arena, lists->total, sizeof *problem->maximum_frequency_mhz);
    problem->blocking_power_w = harpe_arena_alloc(arena, ranks, sizeof *problem->blocking_power_w);
    problem->gpu_count = harpe_arena_alloc(arena, ranks, sizeof *problem->gpu_count);
    harpe_action *actions = harpe_arena_alloc(arena, lists->total, sizeof *actions);
    if (problem->arena.has_failed) return harpe_fail_memory(error);
    for (size_t r = 0; r < ranks; r++)
        problem->rank_offset[r + 1] = problem->rank_offset[r] + lists->counts[r];
    for (size_t i = 0; i < lists->total; i++)
        actions[i] = lists->all[i].actions[0];
    problem->action_of = actions;
    return HARPE_OK;
}

/* ---- Delays ---------------------------------------------------------------------------------- */

/* Makes room for the delays in the arrays of instructions and choices. */
static harpe_status extend_arrays(harpe_problem *problem, int32_t delay_count, harpe_error *error) {
    size_t count = (size_t)problem->instruction_count, all = count + (size_t)delay_count;
    size_t choices = problem->choice_count + (size_t)delay_count;
    int32_t *choice_of = harpe_arena_alloc(&problem->arena, all, sizeof *choice_of);
    int *mhz = harpe_arena_alloc(&problem->arena, all, sizeof *mhz);
    harpe_action *actions = harpe_arena_alloc(&problem->arena, all, sizeof *actions);
    harpe_choice *choice = harpe_arena_alloc(&problem->arena, choices, sizeof *choice);
    double *saving_w = harpe_arena_alloc(&problem->arena, all, sizeof *saving_w);
    if (problem->arena.has_failed) return harpe_fail_memory(error);
    memcpy(choice_of, problem->choice_of, count * sizeof *choice_of);
    memcpy(actions, problem->action_of, count * sizeof *actions);
    memcpy(choice, problem->choices, problem->choice_count * sizeof *choice);
    if (problem->wait_saving_w) {
        memcpy(saving_w, problem->wait_saving_w, count * sizeof *saving_w);
        problem->wait_saving_w = saving_w;
    }
    for (size_t i = count; i < all; i++)
        actions[i] = (harpe_action){HARPE_STANDALONE, -1, -1};
    problem->choice_of = choice_of;
    problem->maximum_frequency_mhz = mhz;
    problem->action_of = actions;
    problem->choices = choice;
    problem->instruction_count += delay_count;
    problem->delay_count = delay_count;
    return HARPE_OK;
}

/* Gives the delays their choices. Neighbours of one length at one rank share a choice. */
static harpe_status fill_delays(harpe_problem *problem, const graph_delays *delays,
                                const harpe_problem_options *options, harpe_error *error) {
    int32_t first = problem->instruction_count - delays->count;
    for (int32_t k = 0; k < delays->count; k++) {
        bool is_new = k == 0 || delays->rank[k] != delays->rank[k - 1] ||
                      delays->lag_s[k] < delays->lag_s[k - 1] ||
                      delays->lag_s[k] > delays->lag_s[k - 1];
        if (is_new) {
            harpe_profile_point point = {.time_s = delays->lag_s[k]};
            harpe_profile_entry entry = {
                .stage = -1, .instruction = "transfer", .point_count = 1, .points = &point};
            harpe_status status =
                harpe_problem_fill_choice(problem, &entry, delays->rank[k], 0, options,
                                          &problem->choices[problem->choice_count], error);
            if (status != HARPE_OK) return status;
            problem->choice_count++;
            problem->delay_choice_count++;
        }
        problem->choice_of[first + k] = (int32_t)problem->choice_count - 1;
    }
    return HARPE_OK;
}

static harpe_status add_delays(harpe_problem *problem, const rank_lists *lists,
                               const harpe_problem_options *options, harpe_error *error) {
    graph_delays delays;
    harpe_status status = delays_add(&problem->dag, lists->lists, lists->counts,
                                     problem->rank_count, options->transfer_time_s, &delays, error);
    if (status == HARPE_OK && delays.count > 0) {
        status = harpe_problem_check_size((uint64_t)lists->total + (uint64_t)delays.count,
                                          problem->memory_limit_bytes, error);
        if (status == HARPE_OK) status = extend_arrays(problem, delays.count, error);
        if (status == HARPE_OK) status = fill_delays(problem, &delays, options, error);
    }
    harpe_arena_free(&delays.arena);
    return status;
}

/* Takes the profile's latencies of the stages of each rank. */
static harpe_status fill_latencies(harpe_problem *problem, const harpe_profile *profile,
                                   harpe_error *error) {
    size_t most = 0, count = harpe_problem_option_list_count(problem);
    if (!harpe_profile_has_switch_latency(profile)) return HARPE_OK;
    for (size_t k = 0; k < count; k++)
        most += problem->choices[k].point_count;
    harpe_latencies *latencies = &problem->latencies;
    latencies->items = harpe_calloc(most, sizeof *latencies->items);
    if (!latencies->items) return harpe_fail_memory(error);
    for (size_t k = 0; k < count; k++) {
        const harpe_choice *choice = &problem->choices[k];
        for (size_t p = 0; p < choice->point_count; p++) {
            int mhz = choice->points[p].frequency_mhz;
            latencies->items[latencies->count++] = (harpe_latency){
                .owner = choice->list.rank,
                .frequency_mhz = mhz,
                .latency_s = harpe_profile_switch_latency_s(profile, choice->list.stage, mhz)};
        }
    }
    harpe_latencies_sort(latencies);
    return HARPE_OK;
}

static harpe_status fill_problem(harpe_problem *problem, const harpe_profile *profile,
                                 const rank_lists *lists, const harpe_problem_options *options,
                                 harpe_error *error) {
    harpe_status status = fill_lists(problem, lists, error);
    if (status == HARPE_OK) status = fill_gpus(problem, profile, lists, options, error);
    if (status == HARPE_OK) status = fill_blocking_power(problem, profile, lists, options, error);
    if (status == HARPE_OK) status = fill_wait_powers(problem, lists, options, error);
    if (status == HARPE_OK) status = fill_choices(problem, profile, lists, options, error);
    if (status == HARPE_OK) {
        status = harpe_dag_build(lists->lists, lists->counts, problem->rank_count, lists->waits,
                                 lists->wait_count, &problem->dag, error);
    }
    if (status == HARPE_OK) status = add_delays(problem, lists, options, error);
    if (status == HARPE_OK) status = fill_latencies(problem, profile, error);
    if (status != HARPE_OK) return status;
    for (int32_t i = 0; i < problem->instruction_count; i++) {
        problem->maximum_frequency_mhz[i] =
            harpe_problem_choice(problem, i)->points[0].frequency_mhz;
    }
    return HARPE_OK;
}

static harpe_status check_overhead_power(double overhead_w, harpe_error *error) {
    if (overhead_w >= 0 && overhead_w <= OVERHEAD_POWER_MAX_W) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "overhead power %g W is not between 0 and %g W", overhead_w,
                      OVERHEAD_POWER_MAX_W);
}

harpe_status harpe_problem_begin(const harpe_problem_options *options, harpe_problem **out,
                                 harpe_error *error) {
    harpe_status status = check_cost_model(options, error);
    if (status == HARPE_OK) status = check_overhead_power(options->overhead_power_w, error);
    if (status != HARPE_OK) return status;
    harpe_problem *problem = harpe_calloc(1, sizeof *problem);
    if (!problem) return harpe_fail_memory(error);
    problem->overhead_power_w = options->overhead_power_w;
    problem->memory_limit_bytes =
        options->memory_limit_bytes ? options->memory_limit_bytes : DEFAULT_MEMORY_LIMIT;
    *out = problem;
    return HARPE_OK;
}

harpe_status harpe_problem_new(const harpe_profile *profile, const harpe_schedule *schedule,
                               const harpe_problem_options *options, harpe_problem **out,
                               harpe_error *error) {
    static const harpe_problem_options defaults = {0};
    if (!options) options = &defaults;
    harpe_problem *problem = NULL;
    /* A wait is an arc, which needs a quarter of the memory of an instruction with its arcs. */
    harpe_status status = harpe_problem_check_size(harpe_schedule_instruction_count(schedule) +
                                                       schedule->wait_count / 4,
                                                   options->memory_limit_bytes, error);
    if (status == HARPE_OK) status = check_stages(profile, schedule, error);
    if (status == HARPE_OK) status = harpe_problem_begin(options, &problem, error);
    if (status != HARPE_OK) return status;
    problem->rank_count = harpe_schedule_rank_count(schedule);
    rank_lists lists = {0};
    status = expand_lists(profile, schedule, &lists, error);
    if (status == HARPE_OK) status = fill_problem(problem, profile, &lists, options, error);
    harpe_arena_free(&lists.arena);
    if (status != HARPE_OK) {
        harpe_problem_free(problem);
        return status;
    }
    *out = problem;
    return HARPE_OK;
}

void harpe_problem_free(harpe_problem *problem) {
    if (!problem) return;
    harpe_dag_clear(&problem->dag);
    free(problem->latencies.items);
    harpe_arena_free(&problem->arena);
    free(problem);
}

int harpe_problem_rank_count(const harpe_problem *problem) { return problem->rank_count; }

int harpe_problem_gpu_count(const harpe_problem *problem, int rank) {
    return rank >= 0 && rank < problem->rank_count ? problem->gpu_count[rank] : 0;
}

int harpe_problem_total_gpu_count(const harpe_problem *problem) { return problem->total_gpu_count; }

double harpe_problem_blocking_power_w(const harpe_problem *problem, int rank) {
    return rank >= 0 && rank < problem->rank_count ? problem->blocking_power_w[rank] : 0;
}

bool harpe_problem_has_switch_latency(const harpe_problem *problem) {
    return problem->latencies.count > 0;
}

double harpe_problem_switch_latency_s(const harpe_problem *problem, int rank, int frequency_mhz) {
    return harpe_latencies_find(&problem->latencies, rank, frequency_mhz);
}

double harpe_problem_wait_power_w(const harpe_problem *problem, int rank, size_t index) {
    size_t length = harpe_problem_rank_length(problem, rank);
    if (rank < 0 || rank >= problem->rank_count || index > length) return 0;
    double highest_w = problem->blocking_power_w[rank];
    if (!harpe_problem_has_wait_kinds(problem, rank)) return highest_w;
    if (index == length) return highest_w - problem->end_saving_w[rank];
    return highest_w - problem->wait_saving_w[problem->rank_offset[rank] + index];
}

size_t harpe_problem_rank_length(const harpe_problem *problem, int rank) {
    if (rank < 0 || rank >= problem->rank_count) return 0;
    return problem->rank_offset[rank + 1] - problem->rank_offset[rank];
}

size_t harpe_problem_instruction_count(const harpe_problem *problem) {
    return (size_t)(problem->instruction_count - problem->delay_count);
}

const char *harpe_problem_instruction_name(const harpe_problem *problem, int rank, size_t index) {
    if (index >= harpe_problem_rank_length(problem, rank)) return NULL;
    int32_t instruction = (int32_t)(problem->rank_offset[rank] + index);
    return harpe_problem_choice(problem, instruction)->list.instruction;
}

size_t harpe_problem_option_list_count(const harpe_problem *problem) {
    return problem->choice_count - problem->delay_choice_count;
}

const harpe_option_list *harpe_problem_option_list_at(const harpe_problem *problem, size_t index) {
    size_t count = harpe_problem_option_list_count(problem);
    return index < count ? &problem->choices[index].list : NULL;
}
