/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the key of a pipeline picture. */
#ifndef HARPE_DRAW_PIPELINE_KEY_H
#define HARPE_DRAW_PIPELINE_KEY_H

#include "draw/pipeline_drawing.h"

/* Draws the key, which explains the strips, the grey of waiting, the line of the critical path and
 * the power scale. `y` is the middle of the key. */
void harpe_pipeline_draw_key(harpe_pipeline_drawing *drawing, double y);

#endif
