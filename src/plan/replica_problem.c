/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the problem of one replica from the profiles of its GPUs; see replica_problem.h. */
#include "plan/replica_problem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/plan.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/cost_model.h"
#include "plan/schedule.h"

/* ---- Peers ----------------------------------------------------------------------------------- */

/* Combines the options of peers.
 *
 * If all peers are ready after the time t, peer g with the time t_g and the energy e_g needs
 * e_g + P_g (t - t_g) until then. Compared with waiting all along, the peers need the sum of e_g -
 * P_g t_g, which are their effective energies. This sum has one term for each peer, so the best
 * combination within t has, for each peer, the slowest Pareto-optimal option within t. The best
 * combination changes only at the times of the peers' options, and one pass over these times, in
 * order, finds all of them. */

/* The options of one peer, and the slowest one within the present time. */
typedef struct peer {
    harpe_option *options; /* fastest first; owned */
    size_t count, at;
} peer;

/* A time at which a peer may become slower. */
typedef struct step {
    double time_s;
    int peer;
} step;

/* Returns the time and energy of all peers at some points, one for each peer. */
static harpe_profile_point peers_together(const harpe_profile_point *const *points,
                                          const double *power_w, int peer_count) {
    harpe_profile_point together = {0};
    for (int g = 0; g < peer_count; g++)
        if (points[g]->time_s > together.time_s) together.time_s = points[g]->time_s;
    for (int g = 0; g < peer_count; g++)
        together.energy_j +=
            points[g]->energy_j + power_w[g] * (together.time_s - points[g]->time_s);
    return together;
}

static int compare_steps(const void *left, const void *right) {
    const step *a = left, *b = right;
    if (a->time_s != b->time_s) return a->time_s < b->time_s ? -1 : 1;
    return (a->peer > b->peer) - (a->peer < b->peer);
}

/* Adds a combination. */
static void add(harpe_peer_options *out, const harpe_profile_point *const *points,
                const double *power_w) {
    harpe_profile_point together = peers_together(points, power_w, out->peer_count);
    out->time_s[out->count] = together.time_s;
    out->energy_j[out->count] = together.energy_j;
    int *mhz = out->frequency_mhz + out->count * (size_t)out->peer_count;
    for (int g = 0; g < out->peer_count; g++)
        mhz[g] = points[g]->frequency_mhz;
    out->count++;
}

/* Adds the combination of the peers' present options, unless it is the first one of all. */
static void add_present(harpe_peer_options *out, const peer *peers, harpe_profile_point *present,
                        const harpe_profile_point **points, const double *power_w) {
    bool is_first = true;
    for (int g = 0; g < out->peer_count; g++) {
        const harpe_option *option = &peers[g].options[peers[g].at];
        present[g] = (harpe_profile_point){option->frequency_mhz, option->time_s, option->energy_j};
        points[g] = &present[g];
        is_first = is_first && option->frequency_mhz == out->frequency_mhz[g];
    }
    if (!is_first) add(out, points, power_w);
}

/* Moves all peers to their slowest options within `time_s`. */
static void slow_down(peer *peers, int count, double time_s) {
    for (int g = 0; g < count; g++)
        while (peers[g].at + 1 < peers[g].count &&
               peers[g].options[peers[g].at + 1].time_s <= time_s)
            peers[g].at++;
}

/* Writes the times at which peers may become slower, in order, without those before all peers can
 * be ready. Returns their number. */
static size_t list_steps(const peer *peers, int count, double first_s, step *steps) {
    size_t found = 0;
    for (int g = 0; g < count; g++)
        for (size_t k = peers[g].at + 1; k < peers[g].count; k++)
            if (peers[g].options[k].time_s > first_s)
                steps[found++] = (step){peers[g].options[k].time_s, g};
    qsort(steps, found, sizeof *steps, compare_steps);
    return found;
}

/* Lets the peers become slower together, and adds each combination. */
static void walk(harpe_peer_options *out, peer *peers, step *steps, harpe_profile_point *present,
                 const harpe_profile_point **points, const double *power_w) {
    double first_s = 0;
    for (int g = 0; g < out->peer_count; g++)
        if (peers[g].options[0].time_s > first_s) first_s = peers[g].options[0].time_s;
    slow_down(peers, out->peer_count, first_s);
    add_present(out, peers, present, points, power_w);
    size_t count = list_steps(peers, out->peer_count, first_s, steps);
    for (size_t k = 0; k < count; k++) {
        peers[steps[k].peer].at++;
        bool is_last = k + 1 == count || steps[k + 1].time_s > steps[k].time_s;
        if (is_last) add_present(out, peers, present, points, power_w);
    }
}

static harpe_status find_options(const harpe_profile_entry *const *entries, const double *power_w,
                                 int peer_count, peer *peers, size_t *most, harpe_error *error) {
    *most = 2;
    for (int g = 0; g < peer_count; g++) {
        harpe_status status =
            harpe_options_from_points(entries[g]->points + entries[g]->throttled_count,
                                      entries[g]->point_count - entries[g]->throttled_count,
                                      power_w[g], &peers[g].options, &peers[g].count, error);
        if (status != HARPE_OK) return status;
        *most += peers[g].count - 1;
    }
    return HARPE_OK;
}

static harpe_status make_room(harpe_peer_options *out, size_t most, harpe_error *error) {
    out->time_s = harpe_calloc(most, sizeof *out->time_s);
    out->energy_j = harpe_calloc(most, sizeof *out->energy_j);
    size_t clocks;
    if (!__builtin_mul_overflow(most, (size_t)out->peer_count, &clocks))
        out->frequency_mhz = harpe_calloc(clocks, sizeof *out->frequency_mhz);
    return out->time_s && out->energy_j && out->frequency_mhz ? HARPE_OK : harpe_fail_memory(error);
}

harpe_status harpe_peers_combine(const harpe_profile_entry *const *entries, const double *power_w,
                                 int peer_count, harpe_peer_options *out, harpe_error *error) {
    size_t peers_size = (size_t)peer_count, most = 0;
    harpe_peer_options made = {.peer_count = peer_count};
    peer *peers = harpe_calloc(peers_size, sizeof *peers);
    harpe_profile_point *present = harpe_calloc(peers_size, sizeof *present);
    const harpe_profile_point **points = harpe_calloc(peers_size, sizeof *points);
    step *steps = NULL;
    harpe_status status = peers && present && points ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK)
        status = find_options(entries, power_w, peer_count, peers, &most, error);
    if (status == HARPE_OK) status = make_room(&made, most, error);
    if (status == HARPE_OK) {
        steps = harpe_calloc(most, sizeof *steps);
        if (!steps) status = harpe_fail_memory(error);
    }
    if (status == HARPE_OK) {
        for (int g = 0; g < peer_count; g++)
            points[g] = &entries[g]->points[0];
        add(&made, points, power_w);
        walk(&made, peers, steps, present, points, power_w);
        *out = made;
    } else {
        harpe_peer_options_clear(&made);
    }
    for (int g = 0; peers && g < peer_count; g++)
        free(peers[g].options);
    free(peers);
    free(present);
    free(points);
    free(steps);
    return status;
}

void harpe_peer_options_clear(harpe_peer_options *options) {
    free(options->time_s);
    free(options->energy_j);
    free(options->frequency_mhz);
    memset(options, 0, sizeof *options);
}

/* ---- The problem of a replica ---------------------------------------------------------------- */

/* ---- Checks ---------------------------------------------------------------------------------- */

/* Writes the rank of each stage (-1: none). Fails if a stage runs on two ranks. */
static harpe_status find_ranks(const harpe_schedule *schedule, int *rank_of_stage,
                               harpe_error *error) {
    for (int s = 0; s < harpe_schedule_stage_count(schedule); s++)
        rank_of_stage[s] = -1;
    for (int r = 0; r < harpe_schedule_rank_count(schedule); r++) {
        size_t count = 0;
        const harpe_instruction *list = harpe_schedule_rank(schedule, r, &count);
        for (size_t i = 0; i < count; i++) {
            for (int a = 0; a < list[i].action_count; a++) {
                int stage = list[i].actions[a].stage;
                if (rank_of_stage[stage] >= 0 && rank_of_stage[stage] != r)
                    return harpe_fail(error, HARPE_NOT_SUPPORTED,
                                      "stage %d of the schedule %s runs on the ranks %d and %d: "
                                      "plans for each GPU need a schedule that runs each stage on "
                                      "one rank",
                                      stage, harpe_schedule_name(schedule), rank_of_stage[stage],
                                      r);
                rank_of_stage[stage] = r;
            }
        }
    }
    return HARPE_OK;
}

harpe_status harpe_replica_problem_check(const harpe_schedule *schedule,
                                         const harpe_problem_options *options, harpe_error *error) {
    const char *what = options->wait_power_count > 0            ? "wait powers"
                       : options->cost_model != HARPE_COST_HULL ? "a fitted cost model"
                       : options->gpus_per_stage != 0           ? "GPUs per stage"
                                                                : NULL;
    if (what)
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "plans for each GPU cannot be made with %s: leave it out", what);
    int *rank_of_stage =
        harpe_calloc((size_t)harpe_schedule_stage_count(schedule), sizeof *rank_of_stage);
    if (!rank_of_stage) return harpe_fail_memory(error);
    harpe_status status = find_ranks(schedule, rank_of_stage, error);
    free(rank_of_stage);
    return status;
}

/* ---- Powers ---------------------------------------------------------------------------------- */

/* Finds the power of each waiting GPU, in the options or in its profile. */
static harpe_status fill_powers(harpe_replica_problem *made, const harpe_schedule *schedule,
                                const harpe_problem_options *options, harpe_error *error) {
    size_t given = options->blocking_power_w ? options->blocking_power_count : 0;
    int stages = harpe_profile_stage_count(made->gpus[0]);
    int scheduled = harpe_schedule_stage_count(schedule);
    int *rank_of_stage = harpe_calloc((size_t)scheduled, sizeof *rank_of_stage);
    made->power_w = harpe_calloc((size_t)stages * (size_t)made->peer_count, sizeof *made->power_w);
    harpe_status status = rank_of_stage && made->power_w ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) status = find_ranks(schedule, rank_of_stage, error);
    for (int s = 0; status == HARPE_OK && s < stages; s++) {
        int rank = s < scheduled && rank_of_stage[s] >= 0 ? rank_of_stage[s] : 0;
        for (int g = 0; g < made->peer_count; g++) {
            double *power_w = &made->power_w[(size_t)s * (size_t)made->peer_count + (size_t)g];
            *power_w = given == 0             ? harpe_profile_blocking_power_w(made->gpus[g], s)
                       : given == 1           ? options->blocking_power_w[0]
                       : (size_t)rank < given ? options->blocking_power_w[rank]
                                              : 0;
        }
    }
    free(rank_of_stage);
    return status;
}

static const double *powers_of(const harpe_replica_problem *made, int stage) {
    return made->power_w + (size_t)stage * (size_t)made->peer_count;
}

/* ---- Combining ------------------------------------------------------------------------------- */

static harpe_status combine(harpe_replica_problem *made, harpe_error *error) {
    const harpe_profile_entry **entries = harpe_calloc((size_t)made->peer_count, sizeof *entries);
    made->entry_count = harpe_profile_entry_count(made->gpus[0]);
    made->options = harpe_calloc(made->entry_count, sizeof *made->options);
    harpe_status status = entries && made->options ? HARPE_OK : harpe_fail_memory(error);
    for (size_t e = 0; status == HARPE_OK && e < made->entry_count; e++) {
        const harpe_profile_entry *first = harpe_profile_entry_at(made->gpus[0], e);
        for (int g = 0; g < made->peer_count; g++)
            entries[g] = harpe_profile_find(made->gpus[g], first->stage, first->instruction);
        status = harpe_peers_combine(entries, powers_of(made, first->stage), made->peer_count,
                                     &made->options[e], error);
    }
    free(entries);
    return status;
}

static double mean_power_w(const harpe_replica_problem *made, int stage) {
    double sum_w = 0;
    for (int g = 0; g < made->peer_count; g++)
        sum_w += powers_of(made, stage)[g];
    return sum_w / made->peer_count;
}

/* Makes a profile of the combinations. */
static harpe_status combined_profile(const harpe_replica_problem *made, bool with_powers,
                                     harpe_profile **out, harpe_error *error) {
    size_t count = 0, at = 0;
    for (size_t e = 0; e < made->entry_count; e++) {
        count += made->options[e].count;
        if (made->options[e].count > HARPE_FREQUENCY_MAX_MHZ)
            return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                              "%zu combinations of clocks of %d GPUs, at most %d are possible: "
                              "profile fewer clocks",
                              made->options[e].count, made->peer_count, HARPE_FREQUENCY_MAX_MHZ);
    }
    harpe_measurement *rows = harpe_calloc(count, sizeof *rows);
    if (!rows) return harpe_fail_memory(error);
    for (size_t e = 0; e < made->entry_count; e++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(made->gpus[0], e);
        const harpe_peer_options *options = &made->options[e];
        for (size_t k = 0; k < options->count; k++) {
            rows[at++] = (harpe_measurement){
                .stage = entry->stage,
                .rank = -1,
                .instruction = entry->instruction,
                .frequency_mhz = (int)(options->count - k),
                .time_s = options->time_s[k],
                .energy_j = options->energy_j[k],
                .gpu_count = made->peer_count,
                .blocking_power_w = with_powers ? mean_power_w(made, entry->stage) : 0,
            };
        }
    }
    harpe_status status = harpe_profile_new(rows, count, out, error);
    free(rows);
    return status;
}

/* Finds the entry of each choice. */
static harpe_status find_entries(harpe_replica_problem *made, harpe_error *error) {
    const harpe_problem *problem = made->problem;
    made->entry_of = harpe_calloc(problem->choice_count, sizeof *made->entry_of);
    if (!made->entry_of) return harpe_fail_memory(error);
    const harpe_profile_entry *first = harpe_profile_entry_at(made->gpus[0], 0);
    for (size_t c = 0; c < problem->choice_count; c++) {
        const harpe_option_list *list = &problem->choices[c].list;
        const harpe_profile_entry *entry =
            list->stage < 0 ? NULL
                            : harpe_profile_find(made->gpus[0], list->stage, list->instruction);
        made->entry_of[c] = entry ? (size_t)(entry - first) : SIZE_MAX;
    }
    return HARPE_OK;
}

static harpe_status make(const harpe_schedule *schedule, const harpe_problem_options *options,
                         harpe_replica_problem *made, harpe_error *error) {
    harpe_profile *combined = NULL;
    bool with_powers = !options->blocking_power_w || options->blocking_power_count == 0;
    harpe_status status = fill_powers(made, schedule, options, error);
    if (status == HARPE_OK) status = combine(made, error);
    if (status == HARPE_OK) status = combined_profile(made, with_powers, &combined, error);
    if (status == HARPE_OK)
        status = harpe_problem_new(combined, schedule, options, &made->problem, error);
    if (status == HARPE_OK) status = find_entries(made, error);
    harpe_profile_free(combined);
    return status;
}

harpe_status harpe_replica_problem_new(const harpe_replica_profiles *profiles, int replica,
                                       const harpe_schedule *schedule,
                                       const harpe_problem_options *options,
                                       harpe_replica_problem *out, harpe_error *error) {
    harpe_replica_problem made = {.peer_count = profiles->peer_count};
    made.gpus = (const harpe_profile *const *)profiles->gpus +
                (size_t)replica * (size_t)profiles->peer_count;
    harpe_error reason;
    harpe_status status = make(schedule, options, &made, &reason);
    if (status != HARPE_OK) {
        harpe_replica_problem_clear(&made);
        return harpe_fail(error, status, "replica %d: %s", replica, reason.message);
    }
    *out = made;
    return HARPE_OK;
}

void harpe_replica_problem_clear(harpe_replica_problem *replica) {
    for (size_t e = 0; replica->options && e < replica->entry_count; e++)
        harpe_peer_options_clear(&replica->options[e]);
    free(replica->options);
    free(replica->entry_of);
    free(replica->power_w);
    harpe_problem_free(replica->problem);
    memset(replica, 0, sizeof *replica);
}

/* ---- Using ----------------------------------------------------------------------------------- */

harpe_status harpe_replica_problem_fastest(const harpe_replica_problem *replica, double *fastest_s,
                                           harpe_error *error) {
    const harpe_problem *problem = replica->problem;
    size_t count = (size_t)problem->instruction_count;
    double *time_s = harpe_calloc(2 * count, sizeof *time_s);
    if (!time_s) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        time_s[i] = harpe_problem_choice(problem, (int32_t)i)->list.options[0].time_s;
    *fastest_s = harpe_dag_run(&problem->dag, time_s, time_s + count, NULL);
    free(time_s);
    return HARPE_OK;
}

void harpe_replica_problem_decode(const harpe_replica_problem *replica, const int *numbers,
                                  int *frequency_mhz) {
    const harpe_problem *problem = replica->problem;
    size_t count = harpe_problem_instruction_count(problem), peers = (size_t)replica->peer_count;
    for (size_t i = 0; i < count; i++) {
        const harpe_peer_options *options =
            &replica->options[replica->entry_of[problem->choice_of[i]]];
        const int *mhz = options->frequency_mhz + (options->count - (size_t)numbers[i]) * peers;
        for (size_t g = 0; g < peers; g++)
            frequency_mhz[g * count + i] = mhz[g];
    }
}

/* Returns the point of an entry at a frequency, or NULL. */
static const harpe_profile_point *find_point(const harpe_profile_entry *entry, int frequency_mhz) {
    for (size_t p = 0; p < entry->point_count; p++)
        if (entry->points[p].frequency_mhz == frequency_mhz) return &entry->points[p];
    return NULL;
}

/* Finds the points of the peers for instruction `i`, as harpe_evaluate_find_points. `clock_mhz` are
 * the clocks that the peers have. */
static harpe_status find_peer_points(const harpe_replica_problem *replica,
                                     const harpe_profile_entry *const *entries, size_t i,
                                     const int *frequency_mhz, int *clock_mhz,
                                     const harpe_profile_point **points, harpe_error *error) {
    size_t count = harpe_problem_instruction_count(replica->problem);
    int rank = harpe_problem_choice(replica->problem, (int32_t)i)->list.rank;
    bool is_first = i == replica->problem->rank_offset[rank];
    for (int g = 0; g < replica->peer_count; g++) {
        const int *list = frequency_mhz + (size_t)g * count;
        int mhz = list[i];
        if (is_first) clock_mhz[g] = harpe_evaluate_last_clock_mhz(replica->problem, rank, list);
        if (mhz != 0) clock_mhz[g] = mhz;
        points[g] = find_point(entries[g], mhz);
        if (!points[g] && mhz == 0)
            points[g] =
                clock_mhz[g] == 0 ? &entries[g]->points[0] : find_point(entries[g], clock_mhz[g]);
        if (!points[g])
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "the profile of gpu %d has no %d MHz for '%s' of stage %d", g, mhz,
                              entries[g]->instruction, entries[g]->stage);
    }
    return HARPE_OK;
}

/* Working memory of an evaluation. */
typedef struct evaluation {
    harpe_arena arena;
    const harpe_profile_entry **entries; /* [entry * peer_count + peer] */
    const harpe_profile_point **peer_points;
    int *clock_mhz;                /* [peer]: that its GPU has */
    harpe_profile_point *together; /* [instruction] */
    const harpe_profile_point **points;
    double *start_s;
} evaluation;

static harpe_status evaluation_init(const harpe_replica_problem *replica, evaluation *e,
                                    harpe_error *error) {
    size_t count = (size_t)replica->problem->instruction_count, peers = (size_t)replica->peer_count;
    e->entries = harpe_arena_alloc(&e->arena, replica->entry_count * peers, sizeof *e->entries);
    e->peer_points = harpe_arena_alloc(&e->arena, peers, sizeof *e->peer_points);
    e->clock_mhz = harpe_arena_alloc(&e->arena, peers, sizeof *e->clock_mhz);
    e->together = harpe_arena_alloc(&e->arena, count, sizeof *e->together);
    e->points = harpe_arena_alloc(&e->arena, count, sizeof *e->points);
    e->start_s = harpe_arena_alloc(&e->arena, count, sizeof *e->start_s);
    if (e->arena.has_failed) return harpe_fail_memory(error);
    for (size_t k = 0; k < replica->entry_count; k++) {
        const harpe_profile_entry *first = harpe_profile_entry_at(replica->gpus[0], k);
        for (size_t g = 0; g < peers; g++)
            e->entries[k * peers + g] =
                harpe_profile_find(replica->gpus[g], first->stage, first->instruction);
    }
    return HARPE_OK;
}

static harpe_status fill_points(const harpe_replica_problem *replica, const int *frequency_mhz,
                                evaluation *e, harpe_error *error) {
    const harpe_problem *problem = replica->problem;
    for (int32_t i = 0; i < problem->instruction_count; i++) {
        const harpe_choice *choice = harpe_problem_choice(problem, i);
        e->points[i] = &choice->points[0];
        if (harpe_problem_is_delay(problem, i)) continue;
        const harpe_profile_entry *const *entries =
            e->entries + replica->entry_of[problem->choice_of[i]] * (size_t)replica->peer_count;
        harpe_status status = find_peer_points(replica, entries, (size_t)i, frequency_mhz,
                                               e->clock_mhz, e->peer_points, error);
        if (status != HARPE_OK) return status;
        e->together[i] = peers_together(e->peer_points, powers_of(replica, choice->list.stage),
                                        replica->peer_count);
        e->points[i] = &e->together[i];
    }
    return HARPE_OK;
}

harpe_status harpe_replica_problem_evaluate(const harpe_replica_problem *replica,
                                            const int *frequency_mhz, harpe_plan *out,
                                            double *end_power_w, harpe_error *error) {
    evaluation e = {0};
    harpe_status status = evaluation_init(replica, &e, error);
    if (status == HARPE_OK) status = fill_points(replica, frequency_mhz, &e, error);
    if (status == HARPE_OK) {
        *out = harpe_evaluate_points(replica->problem, e.points, e.start_s);
        *end_power_w = harpe_problem_iteration_power_w(replica->problem);
    }
    harpe_arena_free(&e.arena);
    return status;
}
