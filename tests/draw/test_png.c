/* SPDX-License-Identifier: Apache-2.0 */
/* The PNG writer: another library must read back exactly the pixels that went in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "draw/png.h"
#include "markup.h"

enum { STRIDE = 40, HEIGHT = 30 };

/* Noise, and rows that repeat the one above. Colours multiplied by alpha. */
static void fill(uint32_t *pixels, bool is_opaque) {
    srand(3);
    for (size_t i = 0; i < STRIDE * HEIGHT; i++) {
        uint32_t alpha = is_opaque ? 255 : (uint32_t)rand() % 256;
        uint32_t color = 0;
        for (int channel = 0; channel < 3; channel++) {
            color = color << 8 | ((uint32_t)rand() % 256 * alpha / 255);
        }
        pixels[i] = (is_opaque ? 0x5a : alpha) << 24 | color;
    }
    for (size_t y = 5; y < 12; y++) {
        memcpy(pixels + y * STRIDE, pixels + 4 * STRIDE, STRIDE * sizeof *pixels);
    }
}

static int channel(uint32_t pixel, int index) { return (int)(pixel >> (8 * index) & 255); }

static void check_round_trip(size_t width, size_t height, bool is_opaque) {
    uint32_t pixels[STRIDE * HEIGHT];
    fill(pixels, is_opaque);
    harpe_png_pixels image = {pixels, width, height, STRIDE, is_opaque};
    harpe_text file = {0};
    assert_true(harpe_png_write(&image, &file));
    markup_reader reader = {&file, 0};
    cairo_surface_t *surface = cairo_image_surface_create_from_png_stream(markup_read, &reader);
    assert_int_equal(cairo_surface_status(surface), CAIRO_STATUS_SUCCESS);
    assert_int_equal(cairo_image_surface_get_width(surface), width);
    assert_int_equal(cairo_image_surface_get_height(surface), height);
    const unsigned char *rows = cairo_image_surface_get_data(surface);
    size_t stride = (size_t)cairo_image_surface_get_stride(surface);
    for (size_t y = 0; y < height; y++) {
        for (size_t x = 0; x < width; x++) {
            uint32_t found;
            memcpy(&found, rows + y * stride + x * sizeof found, sizeof found);
            for (int k = 0; k < (is_opaque ? 3 : 4); k++) {
                /* Multiplying by alpha a second time may round differently by one. */
                int difference = channel(found, k) - channel(pixels[y * STRIDE + x], k);
                assert_in_range(difference + 1, is_opaque || k == 3 ? 1 : 0,
                                is_opaque || k == 3 ? 1 : 2);
            }
        }
    }
    cairo_surface_destroy(surface);
    harpe_text_free(&file);
}

static void pixels_survive(void **state) {
    (void)state;
    check_round_trip(STRIDE, HEIGHT, true);
    check_round_trip(STRIDE, HEIGHT, false);
}

static void odd_sizes_are_written(void **state) {
    (void)state;
    check_round_trip(1, 1, true);
    check_round_trip(1, HEIGHT, false);
    check_round_trip(STRIDE, 1, true);
    check_round_trip(STRIDE - 7, 9, true);
}

static void what_stood_before_stays(void **state) {
    (void)state;
    uint32_t pixel = 0xff336699;
    harpe_png_pixels image = {&pixel, 1, 1, 1, true};
    harpe_text text = {0};
    harpe_text_append(&text, "before", 6);
    assert_true(harpe_png_write(&image, &text));
    assert_memory_equal(text.data, "before\x89PNG", 10);
    harpe_text_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_survive),
        cmocka_unit_test(odd_sizes_are_written),
        cmocka_unit_test(what_stood_before_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
