/* SPDX-License-Identifier: Apache-2.0 */
/* The three pictures: the files are valid for ordinary, degenerate, hostile and huge input, have
 * the same bytes every time, and are not written if the input is refused. */
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
#include "trials.h"

#define HOSTILE_NAME "<b>&\"'\x01\xff</svg>"

typedef harpe_status draw_function(const void *picture, harpe_image_format format, harpe_text *out,
                                   harpe_error *error);

static harpe_status draw_frontier(const void *picture, harpe_image_format format, harpe_text *out,
                                  harpe_error *error) {
    return harpe_draw_frontier(picture, format, out, error);
}

static harpe_status draw_pipeline(const void *picture, harpe_image_format format, harpe_text *out,
                                  harpe_error *error) {
    return harpe_draw_pipeline(picture, format, out, error);
}

static harpe_status draw_cost_model(const void *picture, harpe_image_format format, harpe_text *out,
                                    harpe_error *error) {
    return harpe_draw_cost_model(picture, format, out, error);
}

static bool is_valid(harpe_image_format format, const harpe_text *image) {
    if (format == HARPE_IMAGE_PNG) return markup_is_drawn_png(image);
    if (format == HARPE_IMAGE_PDF)
        return image->length > 100 && memcmp(image->data, "%PDF-", 5) == 0;
    return markup_is_well_formed(image->data, image->length) && strstr(image->data, "</svg>");
}

/* PNG takes longest, so only one picture of eight is drawn as PNG, unless all trials are made. */
static bool draws_png(void) {
    static int pictures = 0;
    return pictures++ % 8 == 0 || all_trials();
}

/* Draws in every format and checks the files. Returns the size of the largest. */
static size_t check_all_formats(draw_function *draw, const void *picture) {
    size_t largest = 0;
    for (int format = 0; format <= HARPE_IMAGE_HTML; format++) {
        harpe_text image = {0};
        harpe_error error;
        if (format == HARPE_IMAGE_PNG && !draws_png()) continue;
        assert_int_equal(draw(picture, (harpe_image_format)format, &image, &error), HARPE_OK);
        assert_true(is_valid((harpe_image_format)format, &image));
        largest = image.length > largest ? image.length : largest;
        harpe_text_free(&image);
    }
    return largest;
}

static void check_same_bytes_again(draw_function *draw, const void *picture) {
    for (int format = 0; format <= HARPE_IMAGE_HTML; format++) {
        if (format == HARPE_IMAGE_PNG && !draws_png()) continue;
        harpe_text first = {0};
        harpe_text second = {0};
        assert_int_equal(draw(picture, (harpe_image_format)format, &first, NULL), HARPE_OK);
        assert_int_equal(draw(picture, (harpe_image_format)format, &second, NULL), HARPE_OK);
        assert_int_equal(first.length, second.length);
        assert_memory_equal(first.data, second.data, first.length);
        harpe_text_free(&first);
        harpe_text_free(&second);
    }
}

static void check_refused(draw_function *draw, const void *picture, harpe_status expected) {
    harpe_text out = {0};
    harpe_error error = {0};
    harpe_text_append(&out, "before", 6);
    assert_int_equal(draw(picture, HARPE_IMAGE_SVG, &out, &error), expected);
    assert_true(strlen(error.message) > 10);
    assert_int_equal(out.length, 6);
    harpe_text_free(&out);
}

/* ---- Frontier -------------------------------------------------------------------------------- */

static harpe_point *make_frontier(size_t count, double base_s, double span_s) {
    harpe_point *points = calloc(count, sizeof *points);
    assert_non_null(points);
    for (size_t i = 0; i < count; i++) {
        double t = count > 1 ? (double)i / (double)(count - 1) : 0.0;
        points[i] = (harpe_point){base_s + span_s * t, 8000.0 + 1000.0 * (1.0 - t) * (1.0 - t)};
    }
    return points;
}

static void frontier_is_drawn_in_every_format(void **state) {
    (void)state;
    harpe_point *points = make_frontier(100, 2.8, 0.3);
    harpe_frontier_picture picture = {.title = "T",
                                      .subtitle = "S",
                                      .bound = points,
                                      .bound_count = 100,
                                      .plans = points,
                                      .plan_count = 100,
                                      .has_reference = true,
                                      .reference = {2.81, 9900.0},
                                      .one_clock = points,
                                      .one_clock_count = 100};
    check_all_formats(draw_frontier, &picture);
    check_same_bytes_again(draw_frontier, &picture);
    picture.width = 400.0;
    picture.height = 380.0;
    check_all_formats(draw_frontier, &picture);
    free(points);
}

static void frontier_of_one_plan_or_one_vertex_is_drawn(void **state) {
    (void)state;
    harpe_point point = {1.0, 100.0};
    harpe_frontier_picture plan = {.plans = &point, .plan_count = 1};
    check_all_formats(draw_frontier, &plan);
    harpe_frontier_picture vertex = {.bound = &point, .bound_count = 1};
    check_all_formats(draw_frontier, &vertex);
    vertex.has_reference = true;
    vertex.reference = point;
    check_all_formats(draw_frontier, &vertex);
    vertex.reference = (harpe_point){0.0, 0.0};
    check_all_formats(draw_frontier, &vertex);
}

static void one_place_has_one_label(void **state) {
    (void)state;
    harpe_point *points = make_frontier(100, 2.8, 0.3);
    harpe_frontier_picture picture = {
        .plans = points, .plan_count = 100, .has_reference = true, .reference = points[0]};
    harpe_text svg = {0};
    assert_int_equal(harpe_draw_frontier(&picture, HARPE_IMAGE_SVG, &svg, NULL), HARPE_OK);
    assert_non_null(strstr(svg.data, ">fastest plan, all at maximum frequency<"));
    assert_null(strstr(svg.data, ">all at maximum frequency<"));
    harpe_text_free(&svg);
    free(points);
}

static void frontier_of_equal_or_extreme_numbers_is_drawn(void **state) {
    (void)state;
    static const harpe_point sets[][2] = {
        {{2.0, 50.0}, {2.0, 50.0}},  {{0.0, 0.0}, {0.0, 0.0}},
        {{-1.0, -5.0}, {1.0, 5.0}},  {{1e-12, 1e-12}, {2e-12, 0.0}},
        {{1e30, 1e30}, {2e30, 0.0}}, {{1.0, 1.0}, {1.0 + 1e-15, 1.0}},
    };
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        harpe_frontier_picture picture = {
            .bound = sets[i], .bound_count = 2, .plans = sets[i], .plan_count = 2};
        check_all_formats(draw_frontier, &picture);
    }
}

static void frontier_survives_hostile_names(void **state) {
    (void)state;
    harpe_point point = {1.0, 100.0};
    harpe_frontier_picture picture = {.title = HOSTILE_NAME,
                                      .subtitle = HOSTILE_NAME,
                                      .plans = &point,
                                      .plan_count = 1,
                                      .one_clock = &point,
                                      .one_clock_count = 1};
    check_all_formats(draw_frontier, &picture);
}

static void frontier_of_many_points_stays_small(void **state) {
    (void)state;
    harpe_point *points = make_frontier(40000, 2.0, 3.0);
    harpe_frontier_picture picture = {
        .bound = points, .bound_count = 40000, .plans = points, .plan_count = 40000};
    assert_true(check_all_formats(draw_frontier, &picture) < 400000);
    free(points);
}

static void frontier_refuses_what_is_no_number(void **state) {
    (void)state;
    harpe_point points[2] = {{1.0, 100.0}, {(double)NAN, 90.0}};
    harpe_frontier_picture picture = {.plans = points, .plan_count = 2};
    check_refused(draw_frontier, &picture, HARPE_INVALID_ARGUMENT);
    points[1] = (harpe_point){1.0, (double)INFINITY};
    check_refused(draw_frontier, &picture, HARPE_INVALID_ARGUMENT);
    harpe_frontier_picture empty = {.title = "nothing"};
    check_refused(draw_frontier, &empty, HARPE_INVALID_ARGUMENT);
}

/* ---- Pipeline -------------------------------------------------------------------------------- */

/* Forwards go down and backwards up, one microbatch after the other. This is no real schedule, but
 * it has boxes. */
static harpe_pipeline_box *make_boxes(int ranks, int microbatches, size_t *count) {
    *count = (size_t)ranks * (size_t)microbatches * 2;
    harpe_pipeline_box *boxes = calloc(*count, sizeof *boxes);
    assert_non_null(boxes);
    size_t next = 0;
    for (int rank = 0; rank < ranks; rank++) {
        for (int i = 0; i < microbatches * 2; i++) {
            boxes[next++] = (harpe_pipeline_box){
                .rank = rank,
                .kind = i % 2 ? HARPE_BOX_BACKWARD : HARPE_BOX_FORWARD,
                .microbatch = i / 2,
                .frequency_mhz = 1410,
                .start_s = 0.1 * (rank + i),
                .duration_s = 0.09,
                .power_w = 200.0 + (rank * 7 + i * 13) % 250,
            };
        }
    }
    return boxes;
}

static harpe_pipeline_picture make_picture(int ranks, const harpe_pipeline_box *boxes,
                                           size_t count) {
    harpe_pipeline_picture picture = {
        .title = "P", .rank_count = ranks, .blocking_power_w = 83.64, .panel_count = 2};
    for (int i = 0; i < 2; i++) {
        picture.panels[i] = (harpe_pipeline_panel){
            .title = "panel", .detail = "detail", .boxes = boxes, .box_count = count};
    }
    return picture;
}

static void pipelines_of_many_shapes_are_drawn(void **state) {
    (void)state;
    static const int shapes[][2] = {{1, 1}, {12, 30}, {4, 8}, {1, 5}, {70, 1}};
    for (size_t i = 0; i < (all_trials() ? 5 : 2); i++) {
        size_t count = 0;
        harpe_pipeline_box *boxes = make_boxes(shapes[i][0], shapes[i][1], &count);
        harpe_pipeline_picture picture = make_picture(shapes[i][0], boxes, count);
        size_t *path = NULL;
        assert_int_equal(harpe_pipeline_critical_path(boxes, count, &path,
                                                      &picture.panels[0].critical_count, NULL),
                         HARPE_OK);
        picture.panels[0].critical = path;
        check_all_formats(draw_pipeline, &picture);
        if (i == 1) check_same_bytes_again(draw_pipeline, &picture);
        picture.panel_count = 1;
        picture.title = NULL;
        picture.blocking_power_w = -1.0;
        check_all_formats(draw_pipeline, &picture);
        free(path);
        free(boxes);
    }
}

static void degenerate_pipelines_are_drawn(void **state) {
    (void)state;
    harpe_pipeline_picture empty = {.rank_count = 3, .panel_count = 1};
    check_all_formats(draw_pipeline, &empty);
    harpe_pipeline_box box = {.rank = 0, .kind = HARPE_BOX_STANDALONE, .microbatch = -1};
    harpe_pipeline_picture nothing = make_picture(1, &box, 1);
    check_all_formats(draw_pipeline, &nothing);
    box.duration_s = 1e-9;
    box.power_w = -5.0;
    nothing.title = nothing.panels[0].title = nothing.panels[1].detail = HOSTILE_NAME;
    check_all_formats(draw_pipeline, &nothing);
}

/* Lanes and boxes of a graph have names of the user's choice. */
static void lanes_and_boxes_with_names_are_drawn(void **state) {
    (void)state;
    static const char *const names[] = {"gpu0", HOSTILE_NAME, "a resource with a long name"};
    size_t count = 0;
    harpe_pipeline_box *boxes = make_boxes(3, 2, &count);
    for (size_t i = 0; i < count; i++)
        boxes[i].name = i % 2 ? HOSTILE_NAME : "all_reduce";
    harpe_pipeline_picture picture = make_picture(3, boxes, count);
    picture.lane_names = names;
    check_all_formats(draw_pipeline, &picture);
    harpe_text image = {0};
    assert_int_equal(harpe_draw_pipeline(&picture, HARPE_IMAGE_SVG, &image, NULL), HARPE_OK);
    assert_non_null(strstr(image.data, "gpu0"));
    assert_non_null(strstr(image.data, "all_reduce"));
    assert_null(strstr(image.data, "rank"));
    harpe_text_free(&image);
    free(boxes);
}

static void huge_pipelines_stay_small(void **state) {
    (void)state;
    size_t count = 0;
    harpe_pipeline_box *boxes = make_boxes(all_trials() ? 32 : 8, 1000, &count);
    harpe_pipeline_picture picture = make_picture(all_trials() ? 64 : 16, boxes, count);
    picture.panel_count = 1;
    harpe_text image = {0};
    assert_int_equal(harpe_draw_pipeline(&picture, HARPE_IMAGE_SVG, &image, NULL), HARPE_OK);
    assert_true(is_valid(HARPE_IMAGE_SVG, &image));
    assert_true(image.length < 6000000);
    harpe_text_free(&image);
    assert_int_equal(harpe_draw_pipeline(&picture, HARPE_IMAGE_PNG, &image, NULL), HARPE_OK);
    assert_true(is_valid(HARPE_IMAGE_PNG, &image));
    assert_true(image.length < 6000000);
    harpe_text_free(&image);
    free(boxes);
}

static void boxes_out_of_place_are_refused(void **state) {
    (void)state;
    harpe_pipeline_box box = {.rank = 2, .duration_s = 1.0, .power_w = 100.0};
    harpe_pipeline_picture picture = make_picture(2, &box, 1);
    check_refused(draw_pipeline, &picture, HARPE_INVALID_ARGUMENT);
    box.rank = 0;
    box.kind = HARPE_BOX_KIND_COUNT;
    check_refused(draw_pipeline, &picture, HARPE_INVALID_ARGUMENT);
    box.kind = HARPE_BOX_FORWARD;
    box.start_s = (double)NAN;
    check_refused(draw_pipeline, &picture, HARPE_INVALID_ARGUMENT);
    box.start_s = 0.0;
    size_t beyond = 1;
    picture.panels[0].critical = &beyond;
    picture.panels[0].critical_count = 1;
    check_refused(draw_pipeline, &picture, HARPE_INVALID_ARGUMENT);
    picture.panel_count = 3;
    check_refused(draw_pipeline, &picture, HARPE_INVALID_ARGUMENT);
}

static void critical_path_follows_what_was_waited_for(void **state) {
    (void)state;
    /* two ranks, one microbatch, and a short box that is on no critical path */
    static const harpe_pipeline_box boxes[] = {
        {.rank = 1, .kind = HARPE_BOX_BACKWARD, .microbatch = 0, .start_s = 3, .duration_s = 2},
        {.rank = 0, .kind = HARPE_BOX_FORWARD, .microbatch = 0, .start_s = 0, .duration_s = 1},
        {.rank = 0, .kind = HARPE_BOX_FORWARD, .microbatch = 1, .start_s = 1, .duration_s = 1.5},
        {.rank = 1, .kind = HARPE_BOX_FORWARD, .microbatch = 0, .start_s = 1, .duration_s = 2},
        {.rank = 0, .kind = HARPE_BOX_BACKWARD, .microbatch = 0, .start_s = 5, .duration_s = 1},
    };
    static const size_t expected[] = {1, 3, 0, 4};
    size_t *path = NULL;
    size_t count = 0;
    assert_int_equal(harpe_pipeline_critical_path(boxes, 5, &path, &count, NULL), HARPE_OK);
    assert_int_equal(count, 4);
    assert_memory_equal(path, expected, sizeof expected);
    free(path);
    assert_int_equal(harpe_pipeline_critical_path(NULL, 0, &path, &count, NULL), HARPE_OK);
    assert_int_equal(count, 0);
    free(path);
}

static void critical_path_ends_among_boxes_of_no_length(void **state) {
    (void)state;
    static const harpe_pipeline_box boxes[3] = {{.rank = 0}, {.rank = 0}, {.rank = 1}};
    size_t *path = NULL;
    size_t count = 0;
    assert_int_equal(harpe_pipeline_critical_path(boxes, 3, &path, &count, NULL), HARPE_OK);
    assert_int_equal(count, 1);
    free(path);
}

/* ---- Cost models ----------------------------------------------------------------------------- */

static void cost_models_are_drawn(void **state) {
    (void)state;
    harpe_cost_point points[20];
    double curve_time_s[20];
    double curve_energy_j[20];
    for (int i = 0; i < 20; i++) {
        curve_time_s[i] = 0.05 + 0.001 * i;
        curve_energy_j[i] = 12.0 + 0.02 * (20 - i) * (20 - i);
        points[i] = (harpe_cost_point){1410 - 15 * i, curve_time_s[i],
                                       curve_energy_j[i] + (i % 4 ? 0.0 : 0.3), i % 4 != 0};
    }
    harpe_cost_panel panels[24];
    for (int i = 0; i < 24; i++)
        panels[i] = (harpe_cost_panel){HOSTILE_NAME, points, 20, curve_time_s, curve_energy_j, 20};
    harpe_cost_model_picture picture = {HOSTILE_NAME, NULL, panels, 1, 70.0};
    for (picture.panel_count = 1; picture.panel_count <= 5;
         picture.panel_count += all_trials() ? 1 : 4)
        check_all_formats(draw_cost_model, &picture);
    picture.panel_count = 2;
    check_same_bytes_again(draw_cost_model, &picture);
    picture.panel_count = 24;
    check_all_formats(draw_cost_model, &picture);
    picture.panel_count = 25;
    check_refused(draw_cost_model, &picture, HARPE_INVALID_ARGUMENT);
}

static void degenerate_cost_models_are_drawn(void **state) {
    (void)state;
    harpe_cost_point points[3] = {
        {0, 1.0, -5.0, true}, {900, 1.0, -5.0, true}, {0, 1.0, -5.0, false}};
    harpe_cost_panel panel = {"all_reduce", points, 1, NULL, NULL, 0};
    harpe_cost_model_picture picture = {NULL, "curve", &panel, 1, 0.0};
    check_all_formats(draw_cost_model, &picture);
    panel.point_count = 3;
    check_all_formats(draw_cost_model, &picture);
    panel.title = NULL;
    points[0].is_option = points[1].is_option = false;
    check_all_formats(draw_cost_model, &picture);
    panel.point_count = 0;
    check_refused(draw_cost_model, &picture, HARPE_INVALID_ARGUMENT);
    panel.point_count = 1;
    points[0].time_s = (double)NAN;
    check_refused(draw_cost_model, &picture, HARPE_INVALID_ARGUMENT);
}

static void cost_model_of_many_points_stays_small(void **state) {
    (void)state;
    harpe_cost_point *points = calloc(20000, sizeof *points);
    assert_non_null(points);
    for (int i = 0; i < 20000; i++)
        points[i] = (harpe_cost_point){100000 - i, 1.0 + i, 1e6 - i, true};
    harpe_cost_panel panel = {"forward", points, 20000, NULL, NULL, 0};
    harpe_cost_model_picture picture = {"Stage 0", "curve", &panel, 1, 0.0};
    assert_true(check_all_formats(draw_cost_model, &picture) < 600000);
    free(points);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frontier_is_drawn_in_every_format),
        cmocka_unit_test(frontier_of_one_plan_or_one_vertex_is_drawn),
        cmocka_unit_test(one_place_has_one_label),
        cmocka_unit_test(frontier_of_equal_or_extreme_numbers_is_drawn),
        cmocka_unit_test(frontier_survives_hostile_names),
        cmocka_unit_test(frontier_of_many_points_stays_small),
        cmocka_unit_test(frontier_refuses_what_is_no_number),
        cmocka_unit_test(pipelines_of_many_shapes_are_drawn),
        cmocka_unit_test(degenerate_pipelines_are_drawn),
        cmocka_unit_test(lanes_and_boxes_with_names_are_drawn),
        cmocka_unit_test(huge_pipelines_stay_small),
        cmocka_unit_test(boxes_out_of_place_are_refused),
        cmocka_unit_test(critical_path_follows_what_was_waited_for),
        cmocka_unit_test(critical_path_ends_among_boxes_of_no_length),
        cmocka_unit_test(cost_models_are_drawn),
        cmocka_unit_test(degenerate_cost_models_are_drawn),
        cmocka_unit_test(cost_model_of_many_points_stays_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
