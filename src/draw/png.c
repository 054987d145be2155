/* SPDX-License-Identifier: Apache-2.0 */
/* A PNG writer for charts. Rows are written as they are, or, in embedded pixels, whose rows mostly
 * repeat the one above, as the difference to it: flat areas compress as well that way, and several
 * times faster than with libpng, which tries all filters on each row. Format: PNG specification,
 * second edition. */
#include "draw/png.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/array.h"

enum { COMPRESSION_LEVEL = 6, FILTER_NONE = 0, FILTER_UP = 2, TRUE_COLOR = 2, WITH_ALPHA = 4 };

static void put_big_endian(unsigned char *into, size_t value) {
    for (int i = 0; i < 4; i++) {
        into[i] = (unsigned char)(value >> (24 - 8 * i));
    }
}

/* Length, type, data, and a checksum of type and data. */
static void append_chunk(harpe_text *out, const char type[4], const unsigned char *data,
                         size_t length) {
    unsigned char number[4];
    put_big_endian(number, length);
    harpe_text_append(out, (const char *)number, sizeof number);
    harpe_text_append(out, type, 4);
    harpe_text_append(out, (const char *)data, length);
    uLong checksum = crc32(0, (const unsigned char *)type, 4);
    if (length > 0) {
        checksum = crc32(checksum, data, (uInt)length);
    }
    put_big_endian(number, checksum);
    harpe_text_append(out, (const char *)number, sizeof number);
}

static unsigned char straight(uint32_t premultiplied, uint32_t alpha) {
    return (unsigned char)(alpha == 255 ? premultiplied
                                        : (premultiplied * 255 + alpha / 2) / alpha);
}

/* Red, green, blue and, where it counts, alpha. */
static unsigned char *put_pixel(unsigned char *to, uint32_t argb, bool is_opaque) {
    uint32_t alpha = is_opaque ? 255 : argb >> 24;
    for (int shift = 16; shift >= 0; shift -= 8) {
        *to++ = alpha > 0 ? straight(argb >> shift & 255, alpha) : 0;
    }
    if (!is_opaque) {
        *to++ = (unsigned char)alpha;
    }
    return to;
}

/* Rows, each behind the number of its filter; NULL when out of memory. */
static unsigned char *pack_rows(const harpe_png_pixels *pixels, size_t *length) {
    size_t row_length = 1 + pixels->width * (pixels->is_opaque ? 3 : 4);
    unsigned char *rows = harpe_calloc(pixels->height, row_length);
    if (!rows) {
        return NULL;
    }
    for (size_t y = 0; y < pixels->height; y++) {
        unsigned char *to = rows + y * row_length;
        const uint32_t *from = pixels->argb + y * pixels->stride;
        bool repeats = !pixels->is_opaque && y > 0 &&
                       memcmp(from, from - pixels->stride, pixels->width * sizeof *from) == 0;
        *to++ = repeats ? FILTER_UP : FILTER_NONE;
        for (size_t x = 0; x < pixels->width && !repeats; x++) {
            to = put_pixel(to, from[x], pixels->is_opaque);
        }
    }
    *length = pixels->height * row_length;
    return rows;
}

static void append_header(harpe_text *out, const harpe_png_pixels *pixels) {
    unsigned char header[13] = {[8] = 8 /* bits a channel */};
    put_big_endian(header, pixels->width);
    put_big_endian(header + 4, pixels->height);
    header[9] = pixels->is_opaque ? TRUE_COLOR : TRUE_COLOR | WITH_ALPHA;
    harpe_text_append(out, "\x89PNG\r\n\x1a\n", 8);
    append_chunk(out, "IHDR", header, sizeof header);
}

bool harpe_png_write(const harpe_png_pixels *pixels, harpe_text *out) {
    size_t before = out->length;
    size_t length = 0;
    unsigned char *rows = pack_rows(pixels, &length);
    uLongf packed_length = compressBound(length);
    unsigned char *packed = rows && packed_length < INT_MAX ? malloc(packed_length) : NULL;
    bool ok = packed && compress2(packed, &packed_length, rows, length, COMPRESSION_LEVEL) == Z_OK;
    if (ok) {
        append_header(out, pixels);
        append_chunk(out, "IDAT", packed, packed_length);
        append_chunk(out, "IEND", NULL, 0);
        ok = !out->failed;
    }
    free(rows);
    free(packed);
    if (!ok && out->data) {
        out->length = before;
    }
    return ok;
}
