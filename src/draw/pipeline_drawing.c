/* SPDX-License-Identifier: Apache-2.0 */
/* Computes places and colours in a pipeline picture from times and powers. */
#include "draw/pipeline_drawing.h"

const harpe_box_style harpe_box_styles[HARPE_BOX_KIND_COUNT] = {
    [HARPE_BOX_FORWARD] = {"F", "forward", HARPE_INK_BLUE},
    [HARPE_BOX_BACKWARD] = {"B", "backward", HARPE_INK_GREEN},
    [HARPE_BOX_BACKWARD_INPUT] = {"I", "backward, input", HARPE_INK_GREEN},
    [HARPE_BOX_BACKWARD_WEIGHT] = {"W", "backward, weight", HARPE_INK_PURPLE},
    [HARPE_BOX_RECOMPUTATION] = {"R", "recomputation", HARPE_INK_SKY},
    [HARPE_BOX_FORWARD_BACKWARD] = {"FB", "forward + backward", HARPE_INK_ROSE},
    [HARPE_BOX_STANDALONE] = {"", "other", HARPE_INK_MUTED},
    [HARPE_BOX_OVERLAPPED] = {"FB", "overlapped pair", HARPE_INK_TEXT},
};

double harpe_pipeline_x(const harpe_pipeline_drawing *d, double time_s) {
    return d->left + time_s / d->end_s * (d->right - d->left);
}

static double power_fraction(const harpe_pipeline_drawing *d, double power_w) {
    return (power_w - d->power.low) / (d->power.high - d->power.low);
}

uint32_t harpe_pipeline_heat(const harpe_pipeline_drawing *d, double power_w) {
    return harpe_heat_rgb(power_fraction(d, power_w));
}
