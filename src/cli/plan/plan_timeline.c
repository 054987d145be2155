/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a problem to the data from which report.html computes timelines: its instructions, their
 * dependencies, and their time and energy at each frequency. The data does not contain plans. */
#include "cli/plan/plan_timeline.h"

#include "base/arena.h"
#include "base/error.h"
#include "plan/problem.h"

static harpe_status collect_entries(const harpe_problem *problem, harpe_arena *arena,
                                    harpe_report_timeline *timeline, harpe_error *error) {
    harpe_report_entry *entries = harpe_arena_alloc(arena, problem->choice_count, sizeof *entries);
    if (!entries) return harpe_fail_memory(error);
    for (size_t i = 0; i < problem->choice_count; i++) {
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
    timeline->entry_count = problem->choice_count;
    return HARPE_OK;
}

harpe_status harpe_pictures_collect_timeline(const harpe_problem *problem, harpe_arena *arena,
                                             harpe_report_timeline *timeline, harpe_error *error) {
    size_t count = (size_t)problem->instruction_count;
    const int32_t *first_arc = problem->dag.first_arc_into;
    harpe_report_instruction *instructions = harpe_arena_alloc(arena, count, sizeof *instructions);
    if (!instructions) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        instructions[i] = (harpe_report_instruction){
            .entry = (size_t)problem->choice_of[i],
            .microbatch = problem->action_of[i].microbatch,
            .waits_for = problem->dag.arc_from + first_arc[i],
            .wait_count = (size_t)(first_arc[i + 1] - first_arc[i]),
        };
    }
    timeline->instructions = instructions;
    timeline->instruction_count = count;
    timeline->rank_offset = problem->rank_offset;
    timeline->rank_count = problem->rank_count;
    return collect_entries(problem, arena, timeline, error);
}
