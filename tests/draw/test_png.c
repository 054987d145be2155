/* SPDX-License-Identifier: Apache-2.0 */
/* Writes pixels as a PNG file, and checks that the same pixels are read back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "draw/canvas.h"
#include "draw/canvas_internal.h"
#include "markup.h"

enum { WIDTH_MAX = 40, HEIGHT_MAX = 30, PIXELS_MAX = WIDTH_MAX * HEIGHT_MAX };

/* Noise in which rows 5 to 11 repeat row 4. Colours are multiplied by alpha. */
static void fill(uint32_t *pixels, size_t width, size_t height) {
    srand(3);
    for (size_t i = 0; i < width * height; i++) {
        uint32_t alpha = (uint32_t)rand() % 256;
        uint32_t color = 0;
        for (int channel = 0; channel < 3; channel++)
            color = color << 8 | ((uint32_t)rand() % 256 * alpha / 255);
        pixels[i] = alpha << 24 | color;
    }
    for (size_t y = 5; y < 12 && y < height; y++)
        memcpy(pixels + y * width, pixels + 4 * width, width * sizeof *pixels);
}

static int channel(uint32_t pixel, int index) { return (int)(pixel >> (8 * index) & 255); }

/* Multiplying by alpha a second time may round a colour differently by one; alpha itself stays. */
static void check_pixel(uint32_t found, uint32_t expected) {
    assert_int_equal(channel(found, 3), channel(expected, 3));
    for (int k = 0; k < 3; k++)
        assert_in_range(channel(found, k) - channel(expected, k) + 1, 0, 2);
}

static void check_file(const harpe_text *file, const uint32_t *pixels, size_t width,
                       size_t height) {
    markup_reader reader = {file, 0};
    cairo_surface_t *surface = cairo_image_surface_create_from_png_stream(markup_read, &reader);
    assert_int_equal(cairo_surface_status(surface), CAIRO_STATUS_SUCCESS);
    assert_int_equal(reader.at, file->length);
    assert_int_equal(cairo_image_surface_get_width(surface), width);
    assert_int_equal(cairo_image_surface_get_height(surface), height);
    const unsigned char *rows = cairo_image_surface_get_data(surface);
    size_t stride = (size_t)cairo_image_surface_get_stride(surface);
    for (size_t y = 0; y < height; y++) {
        for (size_t x = 0; x < width; x++) {
            uint32_t found;
            memcpy(&found, rows + y * stride + x * sizeof found, sizeof found);
            check_pixel(found, pixels[y * width + x]);
        }
    }
    cairo_surface_destroy(surface);
}

static void check_round_trip(size_t width, size_t height) {
    uint32_t pixels[PIXELS_MAX];
    fill(pixels, width, height);
    harpe_pixels image = {pixels, (int)width, (int)height};
    harpe_text file = {0};
    harpe_text again = {0};
    assert_true(harpe_pixels_to_png(&image, &file));
    check_file(&file, pixels, width, height);
    assert_true(harpe_pixels_to_png(&image, &again));
    assert_int_equal(again.length, file.length);
    assert_memory_equal(again.data, file.data, file.length);
    harpe_text_free(&file);
    harpe_text_free(&again);
}

static void pixels_survive(void **state) {
    (void)state;
    check_round_trip(WIDTH_MAX, HEIGHT_MAX);
}

static void odd_sizes_are_written(void **state) {
    (void)state;
    check_round_trip(1, 1);
    check_round_trip(1, HEIGHT_MAX);
    check_round_trip(WIDTH_MAX, 1);
    check_round_trip(WIDTH_MAX - 7, 9);
}

static void what_stood_before_stays(void **state) {
    (void)state;
    uint32_t pixel = 0xff336699;
    harpe_pixels image = {&pixel, 1, 1};
    harpe_text text = {0};
    harpe_text_append(&text, "before", 6);
    assert_true(harpe_pixels_to_png(&image, &text));
    assert_memory_equal(text.data, "before\x89PNG", 10);
    harpe_text_free(&text);
}

/* A text that has failed once, as after a failed allocation, takes nothing more. */
static void failures_leave_the_text_as_it_was(void **state) {
    (void)state;
    uint32_t pixel = 0xff336699;
    harpe_pixels image = {&pixel, 1, 1};
    harpe_text text = {0};
    harpe_text_append(&text, "before", 6);
    text.failed = true;
    assert_false(harpe_pixels_to_png(&image, &text));
    assert_int_equal(text.length, 6);
    harpe_text_free(&text);
}

/* The pixels of a canvas: two device pixels per point, on opaque paper. */
static void a_canvas_is_written_opaque(void **state) {
    (void)state;
    harpe_canvas *canvas = NULL;
    harpe_text file = {0};
    assert_int_equal(harpe_canvas_new(HARPE_IMAGE_PNG, 3, 2, "test", &canvas, NULL), HARPE_OK);
    harpe_canvas_rect(canvas, 1, 0, 1, 1, 0x336699, NULL);
    assert_int_equal(harpe_canvas_finish(canvas, &file, NULL), HARPE_OK);
    uint32_t paper = 0xff000000 | harpe_ink_rgb(HARPE_INK_PAPER, false);
    uint32_t expected[4 * 6];
    for (size_t i = 0; i < 4 * 6; i++) {
        bool is_inside = i / 6 < 2 && i % 6 >= 2 && i % 6 < 4;
        expected[i] = is_inside ? 0xff336699 : paper;
    }
    check_file(&file, expected, 6, 4);
    assert_int_equal(file.data[25], 2); /* the header's colour type: no alpha channel */
    harpe_text_free(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_survive),
        cmocka_unit_test(odd_sizes_are_written),
        cmocka_unit_test(what_stood_before_stays),
        cmocka_unit_test(failures_leave_the_text_as_it_was),
        cmocka_unit_test(a_canvas_is_written_opaque),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
