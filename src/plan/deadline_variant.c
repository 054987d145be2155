/* SPDX-License-Identifier: Apache-2.0 */
/* The problem at one time; see deadline_variant.h. */
#include "plan/deadline_variant.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/network.h"

void harpe_deadline_variant_set_time(harpe_deadline_variant *variant, int64_t time_ps) {
    harpe_deadline_variant *v = variant;
    const harpe_graph_layout *layout = &v->layout;
    v->time_ps = time_ps;
    for (size_t d = 0; d < v->deadline_count; d++) {
        int64_t left_ps = time_ps - harpe_round_down(layout->deadline_s[d] * HARPE_PS_PER_S);
        double delay_s = left_ps > 0 ? (double)left_ps / HARPE_PS_PER_S : 0;
        v->delay_s[d] = v->points[d].time_s = v->options[d].time_s = delay_s;
    }
}

harpe_status harpe_deadline_variant_init(harpe_deadline_variant *variant,
                                         const harpe_problem *problem, harpe_error *error) {
    harpe_deadline_variant *v = variant;
    const harpe_graph_layout *layout = problem->graph;
    size_t deadlines = layout->deadline_count;
    *v = (harpe_deadline_variant){
        .problem = *problem, .layout = *layout, .deadline_count = deadlines};
    v->choices = harpe_calloc(problem->choice_count, sizeof *v->choices);
    v->delay_s = harpe_calloc(deadlines, sizeof *v->delay_s);
    v->points = harpe_calloc(deadlines, sizeof *v->points);
    v->options = harpe_calloc(deadlines, sizeof *v->options);
    if (!v->choices || !v->delay_s || !v->points || !v->options) return harpe_fail_memory(error);
    memcpy(v->choices, problem->choices, problem->choice_count * sizeof *v->choices);
    for (size_t d = 0; d < deadlines; d++) {
        harpe_choice *choice = &v->choices[problem->choice_of[layout->deadline_instruction[d]]];
        v->points[d] = choice->points[0];
        v->options[d] = choice->list.options[0];
        choice->points = &v->points[d];
        choice->list.options = &v->options[d];
        choice->list.curve_time_s = &v->delay_s[d];
        choice->list.curve_effective_energy_j = &v->no_energy_j;
    }
    v->layout.deadline_count = 0;
    v->problem.graph = &v->layout;
    v->problem.choices = v->choices;
    harpe_deadline_variant_set_time(v, 0);
    return HARPE_OK;
}

void harpe_deadline_variant_clear(harpe_deadline_variant *variant) {
    free(variant->choices);
    free(variant->delay_s);
    free(variant->points);
    free(variant->options);
    memset(variant, 0, sizeof *variant);
}
