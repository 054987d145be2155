/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a problem to the data from which report.html computes timelines: its instructions, their
 * dependencies, and their time and energy at each frequency. The data does not contain plans. */
#include "cli/plan/plan_timeline.h"

#include "base/arena.h"
#include "base/error.h"
#include "plan/problem.h"

static harpe_status collect_entries(const harpe_problem *problem, harpe_arena *arena,
                                    harpe_report_timeline *timeline, harpe_error *error) {
    size_t count = harpe_problem_option_list_count(problem);
    harpe_report_entry *entries = harpe_arena_alloc(arena, count, sizeof *entries);
    if (!entries) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        const harpe_choice *choice = &problem->choices[i];
        harpe_report_point *points = harpe_arena_alloc(arena, choice->point_count, sizeof *points);
        if (!points) return harpe_fail_memory(error);
        for (size_t k = 0; k < choice->point_count; k++) {
            points[k] = (harpe_report_point){choice->points[k].frequency_mhz,
                                             choice->points[k].time_s, choice->points[k].energy_j};
        }
        entries[i] = (harpe_report_entry){.stage = choice->list.stage,
                                          .instruction = choice->list.instruction,
                                          .gpu_count = problem->gpu_count[choice->list.rank],
                                          .points = points,
                                          .point_count = choice->point_count};
    }
    timeline->entries = entries;
    timeline->entry_count = count;
    return HARPE_OK;
}

/* Returns the instruction before a delay, or the instruction itself if it is none. */
static int32_t waits_before(const harpe_problem *problem, int32_t instruction) {
    const harpe_dag *dag = &problem->dag;
    if (!harpe_problem_is_delay(problem, instruction)) return instruction;
    return dag->arc_from[dag->first_arc_into[instruction]];
}

static double lag_of(const harpe_problem *problem, size_t instruction) {
    const harpe_dag *dag = &problem->dag;
    for (int32_t a = dag->first_arc_into[instruction]; a < dag->first_arc_into[instruction + 1];
         a++)
        if (harpe_problem_is_delay(problem, dag->arc_from[a]))
            return harpe_problem_choice(problem, dag->arc_from[a])->points[0].time_s;
    return 0;
}

harpe_status harpe_pictures_collect_timeline(const harpe_problem *problem, harpe_arena *arena,
                                             harpe_report_timeline *timeline, harpe_error *error) {
    size_t count = harpe_problem_instruction_count(problem);
    const int32_t *first_arc = problem->dag.first_arc_into;
    size_t arcs = (size_t)first_arc[count];
    harpe_report_instruction *instructions = harpe_arena_alloc(arena, count, sizeof *instructions);
    int32_t *waits_for = harpe_arena_alloc(arena, arcs, sizeof *waits_for);
    if (!instructions || !waits_for) return harpe_fail_memory(error);
    for (size_t a = 0; a < arcs; a++)
        waits_for[a] = waits_before(problem, problem->dag.arc_from[a]);
    for (size_t i = 0; i < count; i++) {
        instructions[i] = (harpe_report_instruction){
            .entry = (size_t)problem->choice_of[i],
            .microbatch = problem->action_of[i].microbatch,
            .waits_for = waits_for + first_arc[i],
            .wait_count = (size_t)(first_arc[i + 1] - first_arc[i]),
            .lag_s = lag_of(problem, i),
        };
    }
    timeline->instructions = instructions;
    timeline->instruction_count = count;
    timeline->rank_offset = problem->rank_offset;
    timeline->rank_count = problem->rank_count;
    return collect_entries(problem, arena, timeline, error);
}
