/* SPDX-License-Identifier: Apache-2.0 */
/* Every colour that Harpe draws with. Pictures name a role (text, grid, plan ...) or take a point
 * of the heat scale; a role has a light and a dark shade, the heat scale is the same on both.
 * Lightness falls steadily along the heat scale, so it survives grey printing and colour blindness.
 */
#ifndef HARPE_DRAW_PALETTE_H
#define HARPE_DRAW_PALETTE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum harpe_ink {
    HARPE_INK_TEXT = 0,
    HARPE_INK_MUTED, /* second-rank text */
    HARPE_INK_AXIS,
    HARPE_INK_GRID,
    HARPE_INK_PAPER, /* background, and the halo around labels */
    HARPE_INK_IDLE,
    HARPE_INK_BLUE,
    HARPE_INK_ORANGE,
    HARPE_INK_GREEN,
    HARPE_INK_PURPLE,
    HARPE_INK_SKY,
    HARPE_INK_ROSE,
    HARPE_INK_CRITICAL,
    HARPE_INK_COUNT,
} harpe_ink;

/* 0xRRGGBB, a role as HARPE_INK(role), or none. */
typedef uint32_t harpe_color;
#define HARPE_INK_FLAG UINT32_C(0x01000000)
#define HARPE_INK(role) ((harpe_color)(role) | HARPE_INK_FLAG)
#define HARPE_NO_COLOR UINT32_C(0x02000000)

/* 0xRRGGBB of a role. */
uint32_t harpe_ink_rgb(harpe_ink ink, bool dark);
/* The role's name in CSS, without the leading "--". */
const char *harpe_ink_name(harpe_ink ink);

/* 0 (pale) .. 1 (deep); values outside are clamped. */
uint32_t harpe_heat_rgb(double fraction);
/* Black or white, whichever reads better on `rgb`. */
uint32_t harpe_contrast_rgb(uint32_t rgb);

#endif
