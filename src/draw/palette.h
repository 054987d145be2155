/* SPDX-License-Identifier: Apache-2.0 */
/* Every colour that Harpe draws with. A picture names the role of a colour (text, grid, plan ...)
 * or uses a point of the heat scale. A role has a light and a dark shade; the heat scale is the
 * same for both. Lightness falls steadily along the heat scale, so the scale can be read in grey
 * print and by colour-blind people. */
#ifndef HARPE_DRAW_PALETTE_H
#define HARPE_DRAW_PALETTE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum harpe_ink {
    HARPE_INK_TEXT = 0,
    HARPE_INK_MUTED, /* less important text */
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

/* 0xRRGGBB, HARPE_INK(role), or no colour. */
typedef uint32_t harpe_color;
#define HARPE_INK_FLAG UINT32_C(0x01000000)
#define HARPE_INK(role) ((harpe_color)(role) | HARPE_INK_FLAG)
#define HARPE_NO_COLOR UINT32_C(0x02000000)

/* Returns the colour of a role as 0xRRGGBB. */
uint32_t harpe_ink_rgb(harpe_ink ink, bool dark);
/* Returns the role's name in CSS, without the leading "--". */
const char *harpe_ink_name(harpe_ink ink);

/* Returns a colour of the heat scale; `fraction` is between 0 (pale) and 1 (deep). Values outside
 * of this range are limited to it. */
uint32_t harpe_heat_rgb(double fraction);
/* Returns black or white, whichever has more contrast with `rgb`. */
uint32_t harpe_contrast_rgb(uint32_t rgb);

#endif
