/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of the pictures of a plan directory, as the plain arrays that src/draw uses.
 * plan_images.c draws and writes them. */
#ifndef HARPE_CLI_PLAN_PLAN_PICTURES_H
#define HARPE_CLI_PLAN_PLAN_PICTURES_H

#include <stddef.h>

#include "base/arena.h"
#include "cli/plan/plan_result.h"
#include "cli/plan/problem_options.h"
#include "draw/draw.h"
#include "draw/report_contents.h"

enum {
    HARPE_PIPELINE_PICTURES_MAX = 2,
    /* Limit for pictures of stages. A deep pipeline would have too many, so only the first are
     * drawn. */
    HARPE_COST_MODEL_PICTURES_MAX = 16,
    HARPE_COST_MODEL_PANELS_MAX = 24,
};

/* Initialise with zeros. All pointers point into the arena, the problem or the result. */
typedef struct harpe_pictures {
    harpe_arena arena;
    harpe_frontier_picture frontier;
    harpe_report_point *one_clock; /* the plans with one clock that are not slower than all plans */
    size_t pipeline_count;
    harpe_pipeline_picture pipelines[HARPE_PIPELINE_PICTURES_MAX];
    const char *pipeline_names[HARPE_PIPELINE_PICTURES_MAX]; /* of their files */
    harpe_report_timeline timeline;
    size_t cost_model_count;
    harpe_cost_model_picture cost_models[HARPE_COST_MODEL_PICTURES_MAX];
    int cost_model_stages[HARPE_COST_MODEL_PICTURES_MAX]; /* the first stage that each picture
                                                           * shows */
} harpe_pictures;

/* Collects the picture of the frontier, for pipelines and graphs. */
harpe_status harpe_pictures_collect_frontier(const harpe_problem_input *input,
                                             const harpe_plan_result *result,
                                             harpe_pictures *pictures, harpe_error *error);
/* Collects all pictures of a pipeline. */
harpe_status harpe_pictures_collect(const harpe_problem_input *input,
                                    const harpe_plan_result *result, harpe_pictures *pictures,
                                    harpe_error *error);
void harpe_pictures_free(harpe_pictures *pictures);

#endif
