/* SPDX-License-Identifier: Apache-2.0 */
/* Draws large numbers of boxes of a pipeline picture. */
#ifndef HARPE_DRAW_PIPELINE_PIXELS_H
#define HARPE_DRAW_PIPELINE_PIXELS_H

#include "draw/pipeline_drawing.h"

/* Draws all boxes of a panel as one image. The colour of a pixel shows the mean power of its
 * instructions. The opacity of a pixel is the share of its time in which an instruction runs.
 * O(boxes + pixels). */
harpe_status harpe_pipeline_draw_pixels(harpe_pipeline_drawing *drawing,
                                        const harpe_pipeline_panel *panel, double panel_top,
                                        harpe_error *error);

#endif
