/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a fleet over time: valid, small for many samples, and refused without output if a
 * number is not usable. */
#include "test.h"

#include <math.h>

#include "draw/draw.h"
#include "markup.h"

enum { SAMPLES = 200000 };

static const double some_s[] = {0, 100, 100, 400}, some_w[] = {900, 700, 650, 900};
static const double budget_s[] = {0, 120, 300}, budget_w[] = {1000, 750, 1000};
static const harpe_fleet_band event = {120, 300, "<event> & \"more\""};

static harpe_fleet_line line(const char *label) {
    return (harpe_fleet_line){
        .label = label, .count = 4, .step = 1, .at_s = some_s, .power_w = some_w};
}

/* Draws twice. Returns the size of the picture. */
static size_t check_drawn(const harpe_fleet_picture *picture) {
    harpe_text image = {0}, again = {0};
    harpe_error error = {.message = ""};
    assert_int_equal(harpe_draw_fleet(picture, &image, &error), HARPE_OK);
    assert_int_equal(harpe_draw_fleet(picture, &again, &error), HARPE_OK);
    assert_true(markup_is_picture(&image));
    assert_int_equal(image.length, again.length);
    assert_memory_equal(image.data, again.data, image.length);
    size_t length = image.length;
    harpe_text_free(&image);
    harpe_text_free(&again);
    return length;
}

TEST(fleets_are_drawn) {
    harpe_fleet_line lines[] = {line("split"), line("uniform <cap>"), line("c"), line("d")};
    harpe_fleet_line budget = {"budget", 3, 1, budget_s, budget_w};
    harpe_fleet_picture picture = {.title = "A & B",
                                   .end_s = 400,
                                   .budget = &budget,
                                   .lines = lines,
                                   .line_count = 4,
                                   .bands = &event,
                                   .band_count = 1};
    (void)check_drawn(&picture);
    harpe_text image = {0};
    assert_int_equal(harpe_draw_fleet(&picture, &image, NULL), HARPE_OK);
    static const char *const texts[] = {"A &amp; B", "budget",     "uniform &lt;cap&gt;",
                                        "event",     "time (min)", "power (W)"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strstr(image.data, texts[i])) fail_msg("'%s' is missing", texts[i]);
    harpe_text_free(&image);
}

TEST(degenerate_fleets_are_drawn) {
    static const double zero[] = {0}, huge_w[] = {1e12};
    harpe_fleet_line still = {"none", 1, 1, zero, zero}, huge = {"huge", 1, 1, zero, huge_w};
    harpe_fleet_picture picture = {.end_s = 1e-3, .lines = &still, .line_count = 1};
    (void)check_drawn(&picture);
    picture = (harpe_fleet_picture){.end_s = 1e8, .lines = &huge, .line_count = 1};
    (void)check_drawn(&picture);
}

TEST(a_fleet_of_many_samples_stays_small) {
    double *at_s = calloc(SAMPLES, sizeof *at_s), *power_w = calloc(SAMPLES, sizeof *power_w);
    assert_true(at_s && power_w);
    for (int i = 0; i < SAMPLES; i++) {
        at_s[i] = 0.4 * i;
        power_w[i] = i % 7 * 100.0;
    }
    harpe_fleet_line many = {"many", SAMPLES, 1, at_s, power_w};
    harpe_fleet_picture picture = {.end_s = 0.4 * SAMPLES, .lines = &many, .line_count = 1};
    assert_true(check_drawn(&picture) < 400000);
    free(at_s);
    free(power_w);
}

TEST(unusable_fleets_are_refused) {
    static const double bad_w[] = {1, NAN, 1, 1};
    harpe_fleet_line bad = line("a");
    bad.power_w = bad_w;
    harpe_fleet_picture picture = {.end_s = 400, .lines = &bad, .line_count = 1};
    harpe_text out = {0};
    harpe_error error = {.message = ""};
    harpe_text_append(&out, "before", 6);
    assert_int_equal(harpe_draw_fleet(&picture, &out, &error), HARPE_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "not finite"));
    assert_int_equal(out.length, 6);
    harpe_text_free(&out);
}

/* Samples with other numbers between them are read with a step. */
TEST(samples_may_be_apart) {
    static const double both[][2] = {{0, 900}, {2000, 700}, {2000, 650}, {4000, 900}};
    static const double at_s[] = {0, 2000, 2000, 4000};
    harpe_fleet_line apart = {"a", 4, 2, &both[0][0], &both[0][1]}, together = line("a");
    harpe_text first = {0}, second = {0};
    harpe_fleet_picture picture = {.end_s = 4000, .lines = &apart, .line_count = 1};
    assert_int_equal(harpe_draw_fleet(&picture, &first, NULL), HARPE_OK);
    together.at_s = at_s;
    picture.lines = &together;
    assert_int_equal(harpe_draw_fleet(&picture, &second, NULL), HARPE_OK);
    assert_string_equal(first.data, second.data);
    harpe_text_free(&first);
    harpe_text_free(&second);
}
