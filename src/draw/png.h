/* SPDX-License-Identifier: Apache-2.0 */
/* Pixels become a PNG file in memory. The last step of a picture; it draws nothing. */
#ifndef HARPE_DRAW_PNG_H
#define HARPE_DRAW_PNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

/* Rows that lie `stride` pixels apart, each pixel 0xAARRGGBB with colours multiplied by alpha, as
 * cairo has them. */
typedef struct harpe_png_pixels {
    const uint32_t *argb;
    size_t width, height, stride;
    bool is_opaque; /* alpha is not looked at */
} harpe_png_pixels;

/* Appends a PNG file. False, with `out` as it was, when out of memory. The same pixels give the
 * same bytes. */
bool harpe_png_write(const harpe_png_pixels *pixels, harpe_text *out);

#endif
