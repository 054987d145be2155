/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the problem of one replica from the profiles of its GPUs, and the classes of replicas that
 * are equal; see replica_internal.h. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/plan.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/problem_internal.h"
#include "plan/replica_classes.h"
#include "plan/replica_internal.h"
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

/* Returns the time and energy of all peers at some points, one for each peer. */
static harpe_profile_point peers_together(const harpe_profile_point *points, const double *power_w,
                                          int peer_count) {
    harpe_profile_point together = {0};
    for (int g = 0; g < peer_count; g++)
        if (points[g].time_s > together.time_s) together.time_s = points[g].time_s;
    for (int g = 0; g < peer_count; g++)
        together.energy_j += points[g].energy_j + power_w[g] * (together.time_s - points[g].time_s);
    return together;
}

/* Adds a combination, unless it has the clocks of the first one. */
static void add(harpe_peer_options *out, const harpe_profile_point *points, const double *power_w) {
    harpe_profile_point together = peers_together(points, power_w, out->peer_count);
    int *mhz = out->frequency_mhz + out->count * (size_t)out->peer_count;
    bool is_new = out->count == 0;
    for (int g = 0; g < out->peer_count; g++) {
        mhz[g] = points[g].frequency_mhz;
        is_new = is_new || mhz[g] != out->frequency_mhz[g];
    }
    if (!is_new) return;
    out->time_s[out->count] = together.time_s;
    out->energy_j[out->count++] = together.energy_j;
}

/* Lists the times at which the best combination may change, in order: the first time at which all
 * peers can be ready, and later times of options. Returns their number. */
static size_t list_times(const peer *peers, int count, double *times) {
    size_t found = 1;
    times[0] = 0;
    for (int g = 0; g < count; g++)
        times[0] = fmax(times[0], peers[g].options[0].time_s);
    for (int g = 0; g < count; g++)
        for (size_t k = 1; k < peers[g].count; k++)
            if (peers[g].options[k].time_s > times[0]) times[found++] = peers[g].options[k].time_s;
    qsort(times, found, sizeof *times, harpe_compare_doubles);
    return found;
}

/* Adds the best combination for each time. */
static void add_all(harpe_peer_options *out, peer *peers, const double *times, size_t count,
                    harpe_profile_point *points, const double *power_w) {
    for (size_t k = 0; k < count; k++) {
        if (k > 0 && times[k] <= times[k - 1]) continue;
        for (int g = 0; g < out->peer_count; g++) {
            peer *p = &peers[g];
            while (p->at + 1 < p->count && p->options[p->at + 1].time_s <= times[k])
                p->at++;
            const harpe_option *option = &p->options[p->at];
            points[g] =
                (harpe_profile_point){option->frequency_mhz, option->time_s, option->energy_j};
        }
        add(out, points, power_w);
    }
}

harpe_status harpe_peers_combine(const harpe_profile_entry *const *entries, const double *power_w,
                                 int peer_count, harpe_arena *arena, harpe_peer_options *out,
                                 harpe_error *error) {
    harpe_arena scratch = {0};
    harpe_peer_options made = {.peer_count = peer_count};
    size_t count = (size_t)peer_count, most = 2;
    peer *peers = harpe_arena_alloc(&scratch, count, sizeof *peers);
    harpe_profile_point *points = harpe_arena_alloc(&scratch, count, sizeof *points);
    harpe_status status = scratch.has_failed ? harpe_fail_memory(error) : HARPE_OK;
    for (int g = 0; g < peer_count && status == HARPE_OK; g++) {
        points[g] = entries[g]->points[0];
        status = harpe_options_from_points(entries[g]->points + entries[g]->throttled_count,
                                           entries[g]->point_count - entries[g]->throttled_count,
                                           power_w[g], &peers[g].options, &peers[g].count, error);
        if (status == HARPE_OK) most += peers[g].count - 1;
    }
    if (status == HARPE_OK) {
        double *times = harpe_arena_alloc(&scratch, most, sizeof *times);
        made.time_s = harpe_arena_alloc(arena, most, sizeof *made.time_s);
        made.energy_j = harpe_arena_alloc(arena, most, sizeof *made.energy_j);
        made.frequency_mhz = harpe_arena_alloc(arena, most * count, sizeof *made.frequency_mhz);
        if (scratch.has_failed || arena->has_failed) {
            status = harpe_fail_memory(error);
        } else {
            add(&made, points, power_w);
            add_all(&made, peers, times, list_times(peers, peer_count, times), points, power_w);
            *out = made;
        }
    }
    for (size_t g = 0; peers && g < count; g++)
        free(peers[g].options);
    harpe_arena_free(&scratch);
    return status;
}

/* ---- The problem of a replica ---------------------------------------------------------------- */

static harpe_status check_options(const harpe_problem_options *options, harpe_error *error) {
    const char *what = options->wait_power_count > 0            ? "wait powers"
                       : options->cost_model != HARPE_COST_HULL ? "a fitted cost model"
                       : options->gpus_per_stage != 0           ? "GPUs per stage"
                                                                : NULL;
    if (!what) return HARPE_OK;
    return harpe_fail(error, HARPE_NOT_SUPPORTED,
                      "plans for each GPU cannot be made with %s: leave it out", what);
}

/* Finds the power of each waiting GPU, in the options or in its profile. */
static harpe_status fill_powers(harpe_replica_problem *made, const harpe_profile *const *gpus,
                                const harpe_schedule *schedule,
                                const harpe_problem_options *options, harpe_error *error) {
    size_t given = options->blocking_power_w ? options->blocking_power_count : 0;
    int stages = harpe_profile_stage_count(gpus[0]), peers = made->peer_count;
    int scheduled = harpe_schedule_stage_count(schedule);
    int *owner = harpe_arena_alloc(&made->arena, (size_t)scheduled, sizeof *owner), other = 0;
    made->power_w =
        harpe_arena_alloc(&made->arena, (size_t)stages * (size_t)peers, sizeof *made->power_w);
    if (made->arena.has_failed) return harpe_fail_memory(error);
    int shared = harpe_schedule_shared_stage(schedule, owner, &other);
    if (shared >= 0)
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "stage %d of the schedule %s runs on the ranks %d and %d: plans for each "
                          "GPU need a schedule that runs each stage on one rank",
                          shared, harpe_schedule_name(schedule), owner[shared] - 1, other);
    for (int k = 0; k < stages * peers; k++) {
        int s = k / peers, rank = s < scheduled && owner[s] > 0 ? owner[s] - 1 : 0;
        made->power_w[k] = given == 0   ? harpe_profile_blocking_power_w(gpus[k % peers], s)
                           : given == 1 ? options->blocking_power_w[0]
                           : (size_t)rank < given ? options->blocking_power_w[rank]
                                                  : 0;
    }
    return HARPE_OK;
}

static const double *powers_of(const harpe_replica_problem *made, int stage) {
    return made->power_w + (size_t)stage * (size_t)made->peer_count;
}

/* Finds the entries of the peers, and combines their options. */
static harpe_status combine(harpe_replica_problem *made, const harpe_profile *const *gpus,
                            harpe_error *error) {
    size_t peers = (size_t)made->peer_count;
    made->entry_count = harpe_profile_entry_count(gpus[0]);
    made->entries =
        harpe_arena_alloc(&made->arena, made->entry_count * peers, sizeof *made->entries);
    made->options = harpe_arena_alloc(&made->arena, made->entry_count, sizeof *made->options);
    harpe_status status = made->arena.has_failed ? harpe_fail_memory(error) : HARPE_OK;
    for (size_t e = 0; status == HARPE_OK && e < made->entry_count; e++) {
        const harpe_profile_entry *first = harpe_profile_entry_at(gpus[0], e);
        for (size_t g = 0; g < peers; g++)
            made->entries[e * peers + g] =
                harpe_profile_find(gpus[g], first->stage, first->instruction);
        status = harpe_peers_combine(made->entries + e * peers, powers_of(made, first->stage),
                                     made->peer_count, &made->arena, &made->options[e], error);
    }
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
        const harpe_profile_entry *entry = made->entries[e * (size_t)made->peer_count];
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
static harpe_status find_entries(harpe_replica_problem *made, const harpe_profile *gpu,
                                 harpe_error *error) {
    const harpe_problem *problem = made->problem;
    made->entry_of = harpe_arena_alloc(&made->arena, problem->choice_count, sizeof *made->entry_of);
    if (!made->entry_of) return harpe_fail_memory(error);
    for (size_t c = 0; c < problem->choice_count; c++) {
        const harpe_option_list *list = &problem->choices[c].list;
        const harpe_profile_entry *entry =
            list->stage < 0 ? NULL : harpe_profile_find(gpu, list->stage, list->instruction);
        made->entry_of[c] = entry ? (size_t)(entry - harpe_profile_entry_at(gpu, 0)) : SIZE_MAX;
    }
    return HARPE_OK;
}

static harpe_status make(const harpe_profile *const *gpus, const harpe_schedule *schedule,
                         const harpe_problem_options *options, harpe_replica_problem *made,
                         harpe_error *error) {
    harpe_profile *combined = NULL;
    bool with_powers = !options->blocking_power_w || options->blocking_power_count == 0;
    harpe_status status = check_options(options, error);
    if (status == HARPE_OK) status = fill_powers(made, gpus, schedule, options, error);
    if (status == HARPE_OK) status = combine(made, gpus, error);
    if (status == HARPE_OK) status = combined_profile(made, with_powers, &combined, error);
    if (status == HARPE_OK)
        status = harpe_problem_new(combined, schedule, options, &made->problem, error);
    if (status == HARPE_OK) status = find_entries(made, gpus[0], error);
    harpe_profile_free(combined);
    return status;
}

harpe_status harpe_replica_problem_new(const harpe_replica_source *source, int replica,
                                       harpe_replica_problem *out, harpe_error *error) {
    static const harpe_problem_options none = {0};
    harpe_replica_problem made = {.peer_count = source->profiles->peer_count};
    const harpe_profile *const *gpus = (const harpe_profile *const *)source->profiles->gpus;
    harpe_error reason;
    harpe_status status = make(gpus + (size_t)replica * (size_t)made.peer_count, source->schedule,
                               source->options ? source->options : &none, &made, &reason);
    if (status != HARPE_OK) {
        harpe_replica_problem_clear(&made);
        return harpe_fail(error, status, "replica %d: %s", replica, reason.message);
    }
    *out = made;
    return HARPE_OK;
}

void harpe_replica_problem_clear(harpe_replica_problem *replica) {
    harpe_problem_free(replica->problem);
    harpe_arena_free(&replica->arena);
    memset(replica, 0, sizeof *replica);
}

harpe_status harpe_replica_problem_use(const harpe_replica_source *source, int replica,
                                       harpe_status (*use)(void *user,
                                                           const harpe_replica_problem *problem,
                                                           harpe_error *error),
                                       void *user, harpe_error *error) {
    harpe_replica_problem problem;
    harpe_status status = harpe_replica_problem_new(source, replica, &problem, error);
    if (status != HARPE_OK) return status;
    status = use(user, &problem, error);
    harpe_replica_problem_clear(&problem);
    return status;
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

/* Finds the point of a peer for an instruction, as harpe_evaluate_find_points does. `clock_mhz` is
 * the clock that the peer has at this place of its list. */
static const harpe_profile_point *peer_point(const harpe_profile_entry *entry, int mhz,
                                             int clock_mhz) {
    const harpe_profile_point *found = find_point(entry, mhz);
    if (found || mhz != 0) return found;
    return clock_mhz == 0 ? &entry->points[0] : find_point(entry, clock_mhz);
}

/* Finds the points of all peers for each instruction of a rank, and writes the points that the
 * peers have together. `points` is scratch for the peers of one instruction, and `clock_mhz` for
 * their clocks. */
static harpe_status find_points(const harpe_replica_problem *replica, int rank,
                                const int *frequency_mhz, size_t stride, int *clock_mhz,
                                harpe_profile_point *points, harpe_profile_point *together,
                                harpe_error *error) {
    const harpe_problem *problem = replica->problem;
    size_t peers = (size_t)replica->peer_count;
    for (size_t g = 0; frequency_mhz && g < peers; g++)
        clock_mhz[g] = harpe_evaluate_last_clock_mhz(problem, rank, frequency_mhz + g * stride);
    for (size_t i = problem->rank_offset[rank]; i < problem->rank_offset[rank + 1]; i++) {
        const harpe_profile_entry *const *entries =
            replica->entries + replica->entry_of[problem->choice_of[i]] * peers;
        for (size_t g = 0; g < peers; g++) {
            int mhz =
                frequency_mhz ? frequency_mhz[g * stride + i] : entries[g]->points[0].frequency_mhz;
            if (mhz != 0) clock_mhz[g] = mhz;
            const harpe_profile_point *found = peer_point(entries[g], mhz, clock_mhz[g]);
            if (!found)
                return harpe_fail(error, HARPE_INVALID_INPUT,
                                  "the profile of gpu %zu has no %d MHz for '%s' of stage %d", g,
                                  mhz, entries[g]->instruction, entries[g]->stage);
            points[g] = *found;
        }
        together[i] =
            peers_together(points, powers_of(replica, entries[0]->stage), replica->peer_count);
    }
    return HARPE_OK;
}

harpe_status harpe_replica_problem_run(const harpe_replica_problem *replica,
                                       const int *frequency_mhz, size_t stride,
                                       harpe_replica_run *out, harpe_error *error) {
    const harpe_problem *problem = replica->problem;
    size_t count = (size_t)problem->instruction_count, peers = (size_t)replica->peer_count;
    harpe_arena arena = {0};
    int *clock_mhz = harpe_arena_alloc(&arena, peers, sizeof *clock_mhz);
    harpe_profile_point *of_peers = harpe_arena_alloc(&arena, peers, sizeof *of_peers);
    harpe_profile_point *together = harpe_arena_alloc(&arena, count, sizeof *together);
    const harpe_profile_point **points = harpe_arena_alloc(&arena, count, sizeof *points);
    double *start_s = harpe_arena_alloc(&arena, count, sizeof *start_s);
    harpe_status status = arena.has_failed ? harpe_fail_memory(error) : HARPE_OK;
    for (int rank = 0; rank < problem->rank_count && status == HARPE_OK; rank++)
        status =
            find_points(replica, rank, frequency_mhz, stride, clock_mhz, of_peers, together, error);
    if (status == HARPE_OK) {
        for (int32_t i = 0; i < problem->instruction_count; i++)
            points[i] = harpe_problem_is_delay(problem, i)
                            ? &harpe_problem_choice(problem, i)->points[0]
                            : &together[i];
        harpe_plan plan = harpe_evaluate_points(problem, points, start_s);
        *out = (harpe_replica_run){plan.time_s, plan.energy_j,
                                   harpe_problem_iteration_power_w(problem)};
    }
    harpe_arena_free(&arena);
    return status;
}

/* ---- Classes --------------------------------------------------------------------------------- */

/* Classes of replicas, and the iteration that they share. */

harpe_status harpe_replica_classes_init(harpe_replica_classes *classes, const int *like,
                                        int replica_count, harpe_error *error) {
    size_t count = (size_t)replica_count;
    harpe_replica_classes made = {.replica_count = replica_count,
                                  .class_of = harpe_calloc(3 * count, sizeof(int))};
    if (!made.class_of) return harpe_fail_memory(error);
    made.first_of = made.class_of + count;
    made.member_count = made.first_of + count;
    for (int r = 0; r < replica_count; r++) {
        bool is_first = like[r] == r;
        if (is_first) made.first_of[made.count] = r;
        made.class_of[r] = is_first ? made.count++ : made.class_of[like[r]];
        made.member_count[made.class_of[r]]++;
    }
    *classes = made;
    return HARPE_OK;
}

void harpe_replica_classes_clear(harpe_replica_classes *classes) {
    free(classes->class_of);
    *classes = (harpe_replica_classes){0};
}

harpe_replica_total harpe_replica_runs_total(const harpe_replica_run *runs, const int *class_of,
                                             int replica_count) {
    harpe_replica_total total = {0};
    for (int r = 0; r < replica_count; r++)
        total.time_s = fmax(total.time_s, runs[class_of ? class_of[r] : r].time_s);
    for (int r = 0; r < replica_count; r++)
        total.energy_j += harpe_replica_run_until_j(runs[class_of ? class_of[r] : r], total.time_s);
    return total;
}
