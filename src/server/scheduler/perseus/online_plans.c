/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the planner, repairs its plans for late changes, and chooses a plan according to the job
 * requests. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "plan/plans.h"
#include "plan/problem.h"
#include "plan/schedule.h"
#include "server/scheduler/perseus/online_internal.h"

/* Times that differ by less are taken as equal, because additions and subtractions round them. */
#define ROUNDING 1e-9

/* Late changes may make a plan longer by this share. With a smaller share, even a latency of some
 * ms costs much of what a plan saves. */
#define LATE_SHARE 0.004
/* A repair has at most so many steps. */
enum { REPAIR_STEPS = 500 };
/* A step raises clocks before the instruction that loses most time, and before all others that lose
 * at least this share of that time. */
#define TOGETHER_SHARE 0.9

/* ---- Late changes ---------------------------------------------------------------------------- */

typedef struct repair {
    const harpe_online_plans *plans;
    const harpe_problem *problem;
    size_t count;                    /* of instructions */
    harpe_late_instruction *parts;   /* [instruction]: of the last evaluation */
    double *time_s, *end_s, *tail_s; /* [node] */
    int *mhz, *immediate_mhz;        /* [instruction]: under repair; as planned */
} repair;

/* Evaluates the clocks self->mhz with late changes. Writes all of `*out` but its frequencies. */
static harpe_status evaluate_late(const repair *self, harpe_plan *out, harpe_error *error) {
    const harpe_clock_switch late = {.takes_profile = true};
    const harpe_problem *problem = self->problem;
    harpe_late_plan made;
    harpe_status status =
        harpe_plan_evaluate_late(problem, self->mhz, &late, 0, &made, self->parts, error);
    if (status != HARPE_OK) return status;
    size_t vertices;
    double fastest_s = harpe_frontier_vertices(self->plans->frontier, &vertices)->time_s;
    double compute_j = 0, overhead_j = problem->overhead_power_w * made.time_s;
    for (size_t i = 0; i < self->count; i++)
        compute_j += self->parts[i].energy_j;
    *out = (harpe_plan){
        .time_s = made.time_s,
        .energy_j = made.energy_j,
        .lower_bound_j =
            harpe_frontier_bound_at(self->plans->frontier, fmax(made.time_s, fastest_s)),
        .compute_energy_j = compute_j,
        .blocking_energy_j = made.energy_j - overhead_j - compute_j,
        .average_power_w = (made.energy_j - overhead_j) / (made.time_s * problem->total_gpu_count),
        .overhead_energy_j = overhead_j};
    return HARPE_OK;
}

/* Finds the last instruction before `i` on its rank that has a lower clock; it may be one of the
 * iteration before. Raises its clock to that of `i`, which is then asked for earlier. Returns false
 * if there is no such instruction, or it has no such clock. */
static bool raise_before(const repair *self, size_t i) {
    int *mhz = self->mhz, rank = harpe_problem_choice(self->problem, (int32_t)i)->list.rank;
    size_t first = self->problem->rank_offset[rank], end = self->problem->rank_offset[rank + 1];
    size_t k = i;
    do
        k = k > first ? k - 1 : end - 1;
    while (k != i && (mhz[k] == 0 || mhz[k] >= mhz[i]));
    const harpe_choice *choice = harpe_problem_choice(self->problem, (int32_t)k);
    size_t p = choice->point_count - 1;
    while (p > 0 && choice->points[p].frequency_mhz < mhz[i])
        p--;
    if (k == i || choice->points[p].frequency_mhz <= mhz[k]) return false;
    mhz[k] = choice->points[p].frequency_mhz;
    return true;
}

/* Looks at the instructions on paths that are longer than `most_s`. Raises clocks before those that
 * lose most time because their clocks come late. Returns false if no clock can be raised. */
static bool raise_worst(const repair *self, double most_s) {
    const harpe_dag *dag = &self->problem->dag;
    double worst_s = 0, *lost_s = self->time_s;
    bool has_raised = false;
    for (int32_t i = 0; i < dag->node_count; i++)
        self->time_s[i] = (size_t)i < self->count
                              ? self->parts[i].time_s
                              : harpe_problem_choice(self->problem, i)->points[0].time_s;
    (void)harpe_dag_run(dag, self->time_s, self->end_s, self->tail_s);
    for (size_t i = 0; i < self->count; i++) {
        const harpe_choice *choice = harpe_problem_choice(self->problem, (int32_t)i);
        const harpe_profile_point *own = harpe_choice_point(choice, self->mhz[i]);
        bool is_late =
            self->parts[i].first_mhz < self->mhz[i] && self->end_s[i] + self->tail_s[i] > most_s;
        lost_s[i] = is_late && own ? lost_s[i] - own->time_s : 0;
        worst_s = fmax(worst_s, lost_s[i]);
    }
    for (size_t i = 0; i < self->count; i++)
        if (lost_s[i] > 0 && lost_s[i] >= TOGETHER_SHARE * worst_s)
            has_raised |= raise_before(self, i);
    return has_raised;
}

/* Raises clocks of the plan `from_mhz` until the iteration takes at most `most_s`, although clocks
 * change late and controllers do not ask for them early. If that succeeds and saves energy, writes
 * the plan into `*best`, whose frequencies the set of plans owns. */
static harpe_status try_late(const repair *self, double most_s, const int *from_mhz,
                             harpe_plan *best, harpe_error *error) {
    harpe_plan found;
    memcpy(self->mhz, from_mhz, self->count * sizeof *self->mhz);
    for (int step = 0; step < REPAIR_STEPS; step++) {
        harpe_status status = evaluate_late(self, &found, error);
        if (status != HARPE_OK) return status;
        if (found.time_s <= most_s) {
            if (found.energy_j >= best->energy_j) return HARPE_OK;
            found.frequency_mhz =
                memcpy((int *)best->frequency_mhz, self->mhz, self->count * sizeof *self->mhz);
            *best = found;
            return HARPE_OK;
        }
        if (!raise_worst(self, most_s)) break;
    }
    return HARPE_OK;
}

/* Replaces each plan with the one of least energy that keeps the plan's time with late changes. The
 * candidates are the replacement of the plan before it, at first the highest clocks, and two plans
 * after a repair: the plan itself, and the plan of `few`, which has few changes. The set then has
 * times and energies with late changes. */
static harpe_status repair_all(const repair *self, const harpe_plan_set *few, harpe_error *error) {
    const harpe_plan_set *set = self->plans->set;
    size_t bytes = self->count * sizeof *self->mhz;
    harpe_plan best;
    memcpy(self->mhz, self->plans->all_maximum.frequency_mhz, bytes);
    harpe_status status = evaluate_late(self, &best, error);
    best.frequency_mhz = self->plans->all_maximum.frequency_mhz;
    for (size_t k = 0; k < set->count && status == HARPE_OK; k++) {
        harpe_plan *plan = &set->plans[k];
        double most_s = plan->time_s * (1 + LATE_SHARE);
        const harpe_plan *other = harpe_plan_set_within(few, plan->time_s);
        int *own_mhz = (int *)plan->frequency_mhz; /* the set owns them */
        memcpy(self->immediate_mhz, own_mhz, bytes);
        memcpy(own_mhz, best.frequency_mhz, bytes);
        *plan = best;
        plan->frequency_mhz = own_mhz;
        status = try_late(self, most_s, self->immediate_mhz, plan, error);
        if (status == HARPE_OK && other)
            status = try_late(self, most_s, other->frequency_mhz, plan, error);
        best = *plan;
    }
    return status;
}

/* Makes the plans of the set again, for late changes. */
static harpe_status plan_late(const harpe_online_plans *plans, harpe_error *error) {
    size_t count = harpe_problem_instruction_count(plans->problem), times = plans->set->count;
    size_t nodes = (size_t)plans->problem->dag.node_count;
    harpe_arena arena = {0};
    double *times_s = harpe_arena_alloc(&arena, times, sizeof *times_s);
    repair self = {.plans = plans,
                   .problem = plans->problem,
                   .count = count,
                   .parts = harpe_arena_alloc(&arena, count, sizeof *self.parts),
                   .time_s = harpe_arena_alloc(&arena, nodes, sizeof *self.time_s),
                   .end_s = harpe_arena_alloc(&arena, nodes, sizeof *self.end_s),
                   .tail_s = harpe_arena_alloc(&arena, nodes, sizeof *self.tail_s),
                   .mhz = harpe_arena_alloc(&arena, count, sizeof *self.mhz),
                   .immediate_mhz = harpe_arena_alloc(&arena, count, sizeof *self.mhz)};
    harpe_plan_request request = {.choice = HARPE_PLANS_AT,
                                  .times_s = times_s,
                                  .time_count = times,
                                  .clock_switch = {.takes_profile = true},
                                  .threads = 1};
    harpe_plan_set *few = NULL;
    harpe_status status = arena.has_failed ? harpe_fail_memory(error) : HARPE_OK;
    for (size_t k = 0; k < times && status == HARPE_OK; k++)
        times_s[k] = plans->set->plans[k].time_s;
    if (status == HARPE_OK)
        status = harpe_plan_set_new(plans->problem, &request, NULL, NULL, &few, error);
    if (status == HARPE_OK) status = repair_all(&self, few, error);
    harpe_plan_set_free(few);
    harpe_arena_free(&arena);
    return status;
}

/* ---- Making ---------------------------------------------------------------------------------- */

harpe_status harpe_online_plans_evaluate(const harpe_online_plans *plans, const int *frequency_mhz,
                                         harpe_plan *out, harpe_error *error) {
    bool is_late = harpe_problem_has_switch_latency(plans->problem);
    const harpe_clock_switch change = {.takes_profile = is_late};
    harpe_late_plan made;
    harpe_status status =
        harpe_plan_evaluate_late(plans->problem, frequency_mhz, &change, 0, &made, NULL, error);
    if (status == HARPE_OK) *out = (harpe_plan){.time_s = made.time_s, .energy_j = made.energy_j};
    return status;
}

harpe_status harpe_online_plans_new(const harpe_online_pipeline *pipeline,
                                    const harpe_profile *profile, const double *blocking_power_w,
                                    int plan_count, double undisturbed_s, harpe_online_plans **out,
                                    harpe_error *error) {
    harpe_online_plans *plans = harpe_calloc(1, sizeof *plans);
    if (!plans) return harpe_fail_memory(error);
    harpe_problem_options options = {.blocking_power_w = blocking_power_w,
                                     .blocking_power_count = (size_t)pipeline->rank_count};
    /* One thread: other jobs need theirs. */
    harpe_plan_request request = {.choice = HARPE_PLANS_SPREAD, .count = plan_count, .threads = 1};
    harpe_status status =
        harpe_problem_new(profile, pipeline->schedule, &options, &plans->problem, error);
    size_t count = status == HARPE_OK ? harpe_problem_instruction_count(plans->problem) : 0;
    if (status == HARPE_OK && count != pipeline->instruction_count)
        status = harpe_fail(error, HARPE_INTERNAL,
                            "the planner sees %zu instructions where the schedule has %zu", count,
                            pipeline->instruction_count);
    if (status == HARPE_OK)
        status = harpe_plan_all_maximum(plans->problem, &plans->all_maximum, error);
    if (status == HARPE_OK)
        status = harpe_plan_set_one_clock(plans->problem, &plans->one_clock, error);
    if (status == HARPE_OK)
        status = harpe_plan_set_new(plans->problem, &request, NULL, &plans->frontier, &plans->set,
                                    error);
    if (status == HARPE_OK && harpe_problem_has_switch_latency(plans->problem))
        status = plan_late(plans, error);
    if (status != HARPE_OK) {
        harpe_online_plans_free(plans);
        return status;
    }
    plans->undisturbed_s =
        undisturbed_s > 0 ? undisturbed_s : harpe_plan_set_at(plans->set, 0)->time_s;
    *out = plans;
    return HARPE_OK;
}

void harpe_online_plans_free(harpe_online_plans *plans) {
    if (!plans) return;
    harpe_plan_set_free(plans->set);
    harpe_plan_set_free(plans->one_clock);
    harpe_frontier_free(plans->frontier);
    harpe_problem_free(plans->problem);
    free(plans);
}

/* ---- Choosing -------------------------------------------------------------------------------- */

/* Returns the time of an iteration that is `slowdown` times longer. The slowdown also applies to
 * the time outside of the pipeline, which plans do not include. For this, the outside time is added
 * first, and subtracted from the result. */
static double stretched_s(double fastest_s, double slowdown, harpe_online_outside outside) {
    return slowdown * (fastest_s + outside.time_s) - outside.time_s;
}

double harpe_online_straggler_time_s(double undisturbed_s, const harpe_online_requests *requests,
                                     harpe_online_outside outside) {
    if (requests->slowdown > 0) return stretched_s(undisturbed_s, requests->slowdown, outside);
    return requests->iteration_time_s > 0 ? requests->iteration_time_s - outside.time_s : 0;
}

double harpe_online_allowed_s(double fastest_s, double undisturbed_s, double slowdown,
                              const harpe_online_requests *requests, harpe_online_outside outside) {
    double allowed_s = requests->plan_time_s > 0 ? requests->plan_time_s - outside.time_s
                                                 : stretched_s(fastest_s, slowdown, outside);
    double until_s = harpe_online_straggler_time_s(undisturbed_s, requests, outside);
    return until_s > allowed_s ? until_s : allowed_s;
}

bool harpe_online_plan_is_within(const harpe_plan *plan, double power_cap_w,
                                 harpe_online_outside outside) {
    return plan->energy_j + outside.energy_j <= power_cap_w * (plan->time_s + outside.time_s);
}

size_t harpe_online_plans_choose(const harpe_online_plans *plans, double slowdown,
                                 const harpe_online_requests *requests,
                                 harpe_online_outside outside) {
    size_t count = harpe_plan_set_count(plans->set), chosen = 0;
    double fastest_s = fmax(harpe_plan_set_at(plans->set, 0)->time_s, plans->all_maximum.time_s);
    double allowed_s =
        harpe_online_allowed_s(fastest_s, plans->undisturbed_s, slowdown, requests, outside);
    while (chosen + 1 < count &&
           harpe_plan_set_at(plans->set, chosen + 1)->time_s <= allowed_s * (1 + ROUNDING))
        chosen++;
    if (!(requests->power_cap_w > 0)) return chosen;
    while (chosen + 1 < count && !harpe_online_plan_is_within(harpe_plan_set_at(plans->set, chosen),
                                                              requests->power_cap_w, outside))
        chosen++;
    return chosen;
}

/* ---- Pipeline -------------------------------------------------------------------------------- */

/* Connects a schedule with measurements. Clients report values by instruction name. If a rank has
 * several stages, the order of the runs determines the stage of each value. */

/* Returns the index of a name; -1: out of memory. Searches the names from `first` on, and adds the
 * name if it is not there. */
static int name_for(harpe_online_pipeline *pipeline, size_t first, const char *instruction) {
    for (size_t n = first; n < pipeline->name_count; n++)
        if (strcmp(pipeline->names[n].instruction, instruction) == 0) return (int)n;
    if (!HARPE_ARRAY_RESERVE(pipeline->names, pipeline->name_capacity, pipeline->name_count + 1))
        return -1;
    pipeline->names[pipeline->name_count] = (harpe_online_name){.instruction = instruction};
    return (int)pipeline->name_count++;
}

/* Returns the index of an entry; -1: out of memory. Searches the entries from `first` on, and adds
 * the entry if it is not there. */
static int entry_for(harpe_online_pipeline *pipeline, size_t first, size_t name, int rank,
                     int stage) {
    for (size_t e = first; e < pipeline->entry_count; e++)
        if (pipeline->entries[e].stage == stage) return (int)e;
    if (!HARPE_ARRAY_RESERVE(pipeline->entries, pipeline->entry_capacity,
                             pipeline->entry_count + 1))
        return -1;
    pipeline->entries[pipeline->entry_count] = (harpe_online_entry){
        stage, rank, pipeline->names[name].instruction, .run_count = 0, .name = name};
    return (int)pipeline->entry_count++;
}

/* Adds the runs of a name, and the entries of its stages. */
static harpe_status add_runs(harpe_online_pipeline *pipeline, int rank, size_t n,
                             const harpe_instruction *list, size_t count, harpe_error *error) {
    harpe_online_name *name = &pipeline->names[n];
    size_t first = pipeline->entry_count, run = n > 0 ? name[-1].first_run + name[-1].run_count : 0;
    name->first_run = run;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, name->instruction) != 0) continue;
        int entry = entry_for(pipeline, first, n, rank, list[i].actions[0].stage);
        if (entry < 0) return harpe_fail_memory(error);
        pipeline->entries[entry].run_count++;
        pipeline->entry_of[pipeline->rank_offset[rank] + i] = entry;
        pipeline->run_of[pipeline->rank_offset[rank] + i] = run++;
    }
    return HARPE_OK;
}

static harpe_status add_rank(harpe_online_pipeline *pipeline, int rank, harpe_error *error) {
    size_t count, first = pipeline->name_count;
    const harpe_instruction *list = harpe_schedule_rank(pipeline->schedule, rank, &count);
    pipeline->rank_offset[rank + 1] = pipeline->rank_offset[rank] + count;
    for (size_t i = 0; i < count; i++) {
        int n = name_for(pipeline, first, list[i].name);
        if (n < 0) return harpe_fail_memory(error);
        pipeline->names[n].run_count++;
    }
    harpe_status status = HARPE_OK;
    for (size_t n = first; n < pipeline->name_count && status == HARPE_OK; n++)
        status = add_runs(pipeline, rank, n, list, count, error);
    return status;
}

static harpe_status fill(harpe_online_pipeline *pipeline, harpe_error *error) {
    size_t total = harpe_schedule_instruction_count(pipeline->schedule);
    size_t ranks = (size_t)pipeline->rank_count;
    harpe_arena *arena = &pipeline->arena;
    pipeline->instruction_count = total;
    pipeline->rank_offset = harpe_arena_alloc(arena, ranks + 1, sizeof *pipeline->rank_offset);
    pipeline->entry_of = harpe_arena_alloc(arena, total, sizeof *pipeline->entry_of);
    pipeline->run_of = harpe_arena_alloc(arena, total, sizeof *pipeline->run_of);
    harpe_status status = arena->has_failed ? harpe_fail_memory(error) : HARPE_OK;
    for (int rank = 0; rank < pipeline->rank_count && status == HARPE_OK; rank++)
        status = add_rank(pipeline, rank, error);
    return status;
}

static harpe_status read_schedule(const harpe_online_schedule *which, int ranks,
                                  harpe_schedule **out, harpe_error *error) {
    harpe_schedule *schedule;
    harpe_status status = harpe_file_check_regular(which->csv_path, error);
    if (status == HARPE_OK) status = harpe_schedule_read_csv(which->csv_path, &schedule, error);
    if (status != HARPE_OK) return status;
    if (ranks > 0 && harpe_schedule_rank_count(schedule) != ranks)
        status = harpe_fail(error, HARPE_INVALID_INPUT,
                            "%.200s has %d ranks, but this job has %d pipeline ranks",
                            which->csv_path, harpe_schedule_rank_count(schedule), ranks);
    if (status == HARPE_OK && harpe_schedule_has_lag(schedule))
        status = harpe_fail(
            error, HARPE_NOT_SUPPORTED,
            "%.200s has lags, which only harpe plan and harpe evaluate take into account: "
            "leave the plus signs and the times after them out",
            which->csv_path);
    if (status == HARPE_OK)
        status = harpe_schedule_surround(schedule, which->prologue, which->epilogue, error);
    if (status != HARPE_OK) {
        harpe_schedule_free(schedule);
        return status;
    }
    *out = schedule;
    return HARPE_OK;
}

harpe_status harpe_online_schedule_make(const harpe_online_schedule *which, int ranks,
                                        int microbatches, harpe_schedule **out,
                                        harpe_error *error) {
    if (which->csv_path) return read_schedule(which, ranks, out, error);
    harpe_schedule_options options = {.name = which->name,
                                      .ranks = ranks,
                                      .microbatches = microbatches,
                                      .prologue = which->prologue,
                                      .epilogue = which->epilogue};
    return harpe_schedule_new(&options, out, error);
}

/* A profile has one row for a (stage, instruction, frequency), so two ranks of a stage could not
 * have measurements of their own. */
static harpe_status check_stages(const harpe_schedule *schedule, harpe_error *error) {
    int *owner = harpe_calloc((size_t)harpe_schedule_stage_count(schedule), sizeof *owner);
    if (!owner) return harpe_fail_memory(error);
    int stage = harpe_schedule_shared_stage(schedule, owner, NULL);
    free(owner);
    if (stage < 0) return HARPE_OK;
    return harpe_fail(
        error, HARPE_INVALID_ARGUMENT,
        "schedule %s runs stage %d on two ranks, which only offline planning supports",
        harpe_schedule_name(schedule), stage);
}

harpe_status harpe_online_pipeline_new(const harpe_online_schedule *schedule, int ranks,
                                       int microbatches, harpe_online_pipeline **out,
                                       harpe_error *error) {
    harpe_online_pipeline *pipeline = harpe_calloc(1, sizeof *pipeline);
    if (!pipeline) return harpe_fail_memory(error);
    pipeline->rank_count = ranks;
    harpe_status status =
        harpe_online_schedule_make(schedule, ranks, microbatches, &pipeline->schedule, error);
    if (status == HARPE_OK) status = check_stages(pipeline->schedule, error);
    if (status == HARPE_OK) {
        pipeline->microbatches = harpe_schedule_microbatch_count(pipeline->schedule);
        status = fill(pipeline, error);
    }
    if (status != HARPE_OK) {
        harpe_online_pipeline_free(pipeline);
        return status;
    }
    *out = pipeline;
    return HARPE_OK;
}

void harpe_online_pipeline_free(harpe_online_pipeline *pipeline) {
    if (!pipeline) return;
    harpe_schedule_free(pipeline->schedule);
    free(pipeline->names);
    free(pipeline->entries);
    harpe_arena_free(&pipeline->arena);
    free(pipeline);
}

/* ---- Counting microbatches ------------------------------------------------------------------- */

static const char FORWARD[] = "forward";
static const char BACKWARD[] = "backward"; /* also backward_input and backward_weight */

/* Counts the runs of "forward" on rank 0 in one iteration that has `microbatches` microbatches. */
static harpe_status count_forwards(const char *name, int ranks, int microbatches, size_t *forwards,
                                   harpe_error *error) {
    harpe_schedule_options options = {.name = name, .ranks = ranks, .microbatches = microbatches};
    harpe_schedule *schedule;
    harpe_status status = harpe_schedule_new(&options, &schedule, error);
    if (status != HARPE_OK) return status;
    size_t count, found = 0;
    const harpe_instruction *list = harpe_schedule_rank(schedule, 0, &count);
    for (size_t i = 0; i < count; i++)
        found += strcmp(list[i].name, FORWARD) == 0;
    harpe_schedule_free(schedule);
    *forwards = found;
    return HARPE_OK;
}

static harpe_status forwards_per_microbatch(const char *name, int ranks, size_t *forwards,
                                            harpe_error *error) {
    size_t few, many;
    size_t probe =
        4 * (size_t)ranks; /* every schedule accepts a multiple of twice the number of ranks */
    harpe_status status = count_forwards(name, ranks, (int)probe, &few, error);
    if (status == HARPE_OK) status = count_forwards(name, ranks, (int)(2 * probe), &many, error);
    if (status != HARPE_OK) return status;
    if (few == 0 || many != 2 * few || few % probe != 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "scheduler_args: the microbatches of schedule '%.64s' cannot be counted "
                          "from what ranks report: give num_microbatches",
                          name ? name : "1f1b");
    *forwards = few / probe;
    return HARPE_OK;
}

harpe_status harpe_online_can_count(const char *name, int pipeline_ranks, harpe_error *error) {
    size_t forwards;
    return forwards_per_microbatch(name, pipeline_ranks, &forwards, error);
}

/* The vote of one iteration of one rank. */
typedef struct vote {
    size_t forwards;
    size_t age; /* number of the rank's later iterations */
} vote;

typedef struct votes {
    vote *items;
    size_t count, capacity;
} votes;

static size_t runs_in(const harpe_breakdown *breakdown, size_t iteration) {
    return iteration < breakdown->iteration_count ? breakdown->counts[iteration] : 0;
}

/* Returns true if the iteration has a backward. An evaluation step has none. */
static bool has_backward(const harpe_profiling_result *result, size_t iteration) {
    for (size_t b = 0; b < result->time_breakdown_count; b++) {
        const harpe_breakdown *breakdown = &result->time_breakdown[b];
        if (strncmp(breakdown->instruction, BACKWARD, sizeof BACKWARD - 1) == 0 &&
            runs_in(breakdown, iteration) > 0)
            return true;
    }
    return false;
}

/* Adds votes for the iterations of a rank that runs `each` forwards per microbatch. An iteration
 * without a backward has a vote only if no iteration has a backward. Returns false if memory runs
 * out. */
static bool add_votes(votes *all, const harpe_profiling_result *result, size_t each) {
    const harpe_breakdown *forwards = NULL;
    for (size_t b = 0; b < result->time_breakdown_count; b++)
        if (strcmp(result->time_breakdown[b].instruction, FORWARD) == 0)
            forwards = &result->time_breakdown[b];
    size_t iterations = forwards ? forwards->iteration_count : 0;
    bool is_trained = false;
    for (size_t i = 0; i < iterations && !is_trained; i++)
        is_trained = forwards->counts[i] > 0 && has_backward(result, i);
    for (size_t i = 0; i < iterations; i++) {
        size_t runs = forwards->counts[i];
        if (runs == 0 || runs % each != 0 || runs / each > INT_MAX) continue;
        if (is_trained && !has_backward(result, i)) continue;
        if (!HARPE_ARRAY_RESERVE(all->items, all->capacity, all->count + 1)) return false;
        all->items[all->count++] = (vote){runs, iterations - 1 - i};
    }
    return true;
}

/* Sorts by the number of forwards, then by age: the latest iteration of each number comes first. */
static int compare_votes(const void *a, const void *b) {
    const vote *x = a, *y = b;
    if (x->forwards != y->forwards) return x->forwards < y->forwards ? -1 : 1;
    return (x->age > y->age) - (x->age < y->age);
}

/* Returns the number with the most votes. If two numbers have the same number of votes, returns the
 * number that occurs in a later iteration. If this does not decide either, returns 0 and sets
 * `*first` and `*second` to the two numbers. */
static size_t elect(votes *all, size_t *first, size_t *second) {
    size_t best_votes = 0, best_age = 0;
    *first = *second = 0;
    if (all->count > 0) qsort(all->items, all->count, sizeof *all->items, compare_votes);
    for (size_t i = 0, end; i < all->count; i = end) {
        const vote *latest = &all->items[i];
        for (end = i; end < all->count && all->items[end].forwards == latest->forwards;)
            end++;
        if (end - i > best_votes || (end - i == best_votes && latest->age < best_age)) {
            best_votes = end - i;
            best_age = latest->age;
            *first = latest->forwards;
            *second = 0;
        } else if (end - i == best_votes && latest->age == best_age) {
            *second = latest->forwards;
        }
    }
    return *second > 0 ? 0 : *first;
}

static harpe_status collect_votes(const harpe_online_reports *reports, size_t each, votes *all,
                                  harpe_error *error) {
    for (size_t r = 0; r < reports->count; r++) {
        size_t before = all->count;
        if (!add_votes(all, &reports->results[r], each)) return harpe_fail_memory(error);
        if (all->count == before)
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "rank %d reported no iteration that shows the microbatches by its "
                              "runs of 'forward': give num_microbatches, or let every rank report "
                              "its time_breakdown",
                              reports->ranks[r].rank);
    }
    return HARPE_OK;
}

harpe_status harpe_online_count_microbatches(const char *name, int pipeline_ranks,
                                             const harpe_online_reports *reports, int *microbatches,
                                             harpe_error *error) {
    size_t each, first, second;
    votes all = {0};
    harpe_status status = forwards_per_microbatch(name, pipeline_ranks, &each, error);
    if (status == HARPE_OK) status = collect_votes(reports, each, &all, error);
    size_t forwards = status == HARPE_OK ? elect(&all, &first, &second) : 0;
    free(all.items);
    if (status != HARPE_OK) return status;
    if (forwards == 0)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "as many iterations of the ranks ran 'forward' %zu times as %zu times: "
                          "give num_microbatches",
                          first, second);
    *microbatches = (int)(forwards / each);
    return HARPE_OK;
}
