/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a fleet over time: valid in every format, small for many samples, and refused
 * without output if a number is not usable. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "draw/draw.h"
#include "markup.h"

enum { SAMPLES = 200000 };

static const double some_s[] = {0, 100, 100, 400}, some_w[] = {900, 700, 650, 900};
static const double budget_s[] = {0, 120, 300}, budget_w[] = {1000, 750, 1000};
static const harpe_fleet_band event = {120, 300, "<event> & \"more\""};

static harpe_fleet_line line(const char *label) {
    return (harpe_fleet_line){.label = label, .count = 4, .at_s = some_s, .power_w = some_w};
}

static bool is_valid(harpe_image_format format, const harpe_text *image) {
    if (format == HARPE_IMAGE_PNG) return markup_is_drawn_png(image);
    if (format == HARPE_IMAGE_PDF)
        return image->length > 100 && memcmp(image->data, "%PDF-", 5) == 0;
    return markup_is_well_formed(image->data, image->length) && strstr(image->data, "</svg>");
}

/* Draws in every format. Returns the size of the largest file. */
static size_t check_all_formats(const harpe_fleet_picture *picture) {
    size_t largest = 0;
    for (int format = 0; format <= HARPE_IMAGE_HTML; format++) {
        harpe_text image = {0}, again = {0};
        harpe_error error = {.message = ""};
        harpe_image_format f = (harpe_image_format)format;
        assert_int_equal(harpe_draw_fleet(picture, f, &image, &error), HARPE_OK);
        assert_int_equal(harpe_draw_fleet(picture, f, &again, &error), HARPE_OK);
        assert_true(is_valid(f, &image));
        assert_true(image.length == again.length &&
                    memcmp(image.data, again.data, image.length) == 0);
        if (image.length > largest) largest = image.length;
        harpe_text_free(&image);
        harpe_text_free(&again);
    }
    return largest;
}

static void fleets_are_drawn_in_every_format(void **state) {
    (void)state;
    harpe_fleet_line lines[] = {line("split"), line("uniform <cap>"), line("c"), line("d")};
    harpe_fleet_line budget = {"budget", 3, budget_s, budget_w};
    harpe_fleet_picture picture = {.title = "A & B",
                                   .end_s = 400,
                                   .budget = &budget,
                                   .lines = lines,
                                   .line_count = 4,
                                   .bands = &event,
                                   .band_count = 1};
    (void)check_all_formats(&picture);
    harpe_text image = {0};
    assert_int_equal(harpe_draw_fleet(&picture, HARPE_IMAGE_SVG, &image, NULL), HARPE_OK);
    static const char *const texts[] = {"A &amp; B", "budget",     "uniform &lt;cap&gt;",
                                        "event",     "time (min)", "power (W)"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strstr(image.data, texts[i])) fail_msg("'%s' is missing", texts[i]);
    harpe_text_free(&image);
}

static void degenerate_fleets_are_drawn(void **state) {
    (void)state;
    static const double zero[] = {0}, huge_w[] = {1e12};
    harpe_fleet_line still = {"none", 1, zero, zero}, huge = {"huge", 1, zero, huge_w};
    harpe_fleet_picture picture = {.end_s = 1e-3, .lines = &still, .line_count = 1};
    (void)check_all_formats(&picture);
    picture = (harpe_fleet_picture){.end_s = 1e8, .lines = &huge, .line_count = 1};
    (void)check_all_formats(&picture);
}

static void a_fleet_of_many_samples_stays_small(void **state) {
    (void)state;
    double *at_s = calloc(SAMPLES, sizeof *at_s), *power_w = calloc(SAMPLES, sizeof *power_w);
    assert_true(at_s && power_w);
    for (int i = 0; i < SAMPLES; i++) {
        at_s[i] = 0.4 * i;
        power_w[i] = i % 7 * 100.0;
    }
    harpe_fleet_line many = {"many", SAMPLES, at_s, power_w};
    harpe_fleet_picture picture = {.end_s = 0.4 * SAMPLES, .lines = &many, .line_count = 1};
    assert_true(check_all_formats(&picture) < 400000);
    free(at_s);
    free(power_w);
}

static void check_refused(const harpe_fleet_picture *picture) {
    harpe_text out = {0};
    harpe_error error = {.message = ""};
    harpe_text_append(&out, "before", 6);
    assert_int_equal(harpe_draw_fleet(picture, HARPE_IMAGE_SVG, &out, &error),
                     HARPE_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "fleet picture: "));
    assert_int_equal(out.length, 6);
    harpe_text_free(&out);
}

static void unusable_fleets_are_refused(void **state) {
    (void)state;
    static const double bad_w[] = {1, NAN, 1, 1};
    harpe_fleet_line lines[5] = {line("a"), line("b"), line("c"), line("d"), line("e")};
    harpe_fleet_picture good = {.end_s = 1, .lines = lines, .line_count = 1}, bad = good;
    bad.line_count = 0;
    check_refused(&bad);
    bad.line_count = 5;
    check_refused(&bad);
    bad = good;
    bad.end_s = 0;
    check_refused(&bad);
    bad.end_s = INFINITY;
    check_refused(&bad);
    bad = good;
    lines[0].power_w = bad_w;
    check_refused(&bad);
    lines[0] = line("a");
    harpe_fleet_line empty = {"budget", 0, some_s, some_w};
    bad.budget = &empty;
    check_refused(&bad);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fleets_are_drawn_in_every_format),
        cmocka_unit_test(degenerate_fleets_are_drawn),
        cmocka_unit_test(a_fleet_of_many_samples_stays_small),
        cmocka_unit_test(unusable_fleets_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
