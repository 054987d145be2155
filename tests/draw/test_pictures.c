/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of frontiers, pipelines and cost models: they are valid for ordinary, degenerate,
 * hostile and huge input, have the same bytes every time, and are not written if the input is
 * refused. */
#include "test.h"

#include <math.h>

#include "draw/draw.h"
#include "markup.h"

#define HOSTILE_NAME "<b>&\"'\x01\xff</svg>"

typedef harpe_status draw_function(const void *picture, bool in_page, harpe_text *out,
                                   harpe_error *error);

static harpe_status draw_frontier(const void *picture, bool in_page, harpe_text *out,
                                  harpe_error *error) {
    return harpe_draw_frontier(picture, in_page, out, error);
}

static harpe_status draw_pipeline(const void *picture, bool in_page, harpe_text *out,
                                  harpe_error *error) {
    return harpe_draw_pipeline(picture, in_page, out, error);
}

static harpe_status draw_cost_model(const void *picture, bool in_page, harpe_text *out,
                                    harpe_error *error) {
    return harpe_draw_cost_model(picture, in_page, out, error);
}

/* Draws for a file and for a page, twice each, and checks the pictures. Returns the size of the
 * larger picture. */
static size_t check_both(draw_function *draw, const void *picture) {
    size_t largest = 0;
    for (int in_page = 0; in_page < 2; in_page++) {
        harpe_text first = {0}, second = {0};
        harpe_error error;
        assert_int_equal(draw(picture, in_page, &first, &error), HARPE_OK);
        assert_int_equal(draw(picture, in_page, &second, &error), HARPE_OK);
        assert_true(markup_is_picture(&first));
        assert_int_equal(strstr(first.data, "var(--") != NULL, in_page);
        assert_int_equal(first.length, second.length);
        assert_memory_equal(first.data, second.data, first.length);
        largest = first.length > largest ? first.length : largest;
        harpe_text_free(&first);
        harpe_text_free(&second);
    }
    return largest;
}

static void check_refused(draw_function *draw, const void *picture, harpe_status expected) {
    harpe_text out = {0};
    harpe_error error = {0};
    harpe_text_append(&out, "before", 6);
    assert_int_equal(draw(picture, false, &out, &error), expected);
    assert_true(strlen(error.message) > 10);
    assert_int_equal(out.length, 6);
    harpe_text_free(&out);
}

/* ---- Frontier -------------------------------------------------------------------------------- */

enum { MANY = 40000 };

static harpe_frontier_row rows[MANY];
static harpe_frontier_vertex vertices[MANY];

/* Makes a frontier of `count` plans and vertices. The plans are those with one clock, too. */
static harpe_frontier_picture make_frontier(size_t count, double base_s, double span_s) {
    for (size_t i = 0; i < count; i++) {
        double t = count > 1 ? (double)i / (double)(count - 1) : 0.0;
        rows[i] = (harpe_frontier_row){.time_s = base_s + span_s * t,
                                       .energy_j = 8000.0 + 1000.0 * (1.0 - t) * (1.0 - t)};
        vertices[i] = (harpe_frontier_vertex){rows[i].time_s, rows[i].energy_j, 0.0};
    }
    return (harpe_frontier_picture){.title = "T",
                                    .subtitle = "S",
                                    .bound = vertices,
                                    .bound_count = count,
                                    .plans = rows,
                                    .plan_count = count,
                                    .reference = {.time_s = 2.81, .energy_j = 9900.0},
                                    .one_clock = rows,
                                    .one_clock_count = count};
}

TEST(frontiers_are_drawn) {
    harpe_frontier_picture picture = make_frontier(100, 2.8, 0.3);
    check_both(draw_frontier, &picture);
    picture.title = picture.subtitle = NULL;
    picture.one_clock_count = 0;
    check_both(draw_frontier, &picture);
}

TEST(frontier_of_one_plan_or_one_vertex_is_drawn) {
    harpe_frontier_picture plan = make_frontier(1, 1.0, 0.0), vertex = plan;
    plan.bound_count = 0;
    check_both(draw_frontier, &plan);
    harpe_text svg = {0};
    assert_int_equal(harpe_draw_frontier(&plan, false, &svg, NULL), HARPE_OK);
    assert_non_null(strstr(svg.data, ">fastest, least energy<"));
    harpe_text_free(&svg);
    vertex.plan_count = 0;
    check_both(draw_frontier, &vertex);
    vertex.reference = rows[0];
    check_both(draw_frontier, &vertex);
    vertex.reference = (harpe_frontier_row){0};
    check_both(draw_frontier, &vertex);
}

TEST(one_place_has_one_label) {
    harpe_frontier_picture picture = make_frontier(100, 2.8, 0.3);
    picture.reference = rows[0];
    harpe_text svg = {0};
    assert_int_equal(harpe_draw_frontier(&picture, false, &svg, NULL), HARPE_OK);
    assert_non_null(strstr(svg.data, ">fastest plan, all at maximum frequency<"));
    assert_null(strstr(svg.data, ">all at maximum frequency<"));
    harpe_text_free(&svg);
}

TEST(frontier_of_equal_or_extreme_numbers_is_drawn) {
    static const double sets[][4] = {
        {2.0, 50.0, 2.0, 50.0}, {0.0, 0.0, 0.0, 0.0},    {-1.0, -5.0, 1.0, 5.0},
        {1e-12, 1e-12, 2e-12},  {1e30, 1e30, 2e30, 0.0}, {1.0, 1.0, 1.0 + 1e-15, 1.0},
    };
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        harpe_frontier_picture picture = make_frontier(2, 1.0, 1.0);
        for (int k = 0; k < 2; k++) {
            rows[k].time_s = vertices[k].time_s = sets[i][2 * k];
            rows[k].energy_j = vertices[k].lower_bound_j = sets[i][2 * k + 1];
        }
        picture.reference = rows[0];
        check_both(draw_frontier, &picture);
    }
}

TEST(frontier_survives_hostile_names) {
    harpe_frontier_picture picture = make_frontier(1, 1.0, 0.0);
    picture.title = picture.subtitle = HOSTILE_NAME;
    check_both(draw_frontier, &picture);
}

TEST(frontier_of_many_points_stays_small) {
    harpe_frontier_picture picture = make_frontier(MANY, 2.0, 3.0);
    picture.one_clock_count = 0;
    assert_true(check_both(draw_frontier, &picture) < 400000);
}

TEST(frontier_refuses_what_is_no_number) {
    harpe_frontier_picture picture = make_frontier(2, 1.0, 1.0);
    rows[1].time_s = (double)NAN;
    check_refused(draw_frontier, &picture, HARPE_INVALID_ARGUMENT);
    rows[1] = (harpe_frontier_row){.time_s = 1.0, .energy_j = (double)INFINITY};
    check_refused(draw_frontier, &picture, HARPE_INVALID_ARGUMENT);
}

/* ---- Pipeline -------------------------------------------------------------------------------- */

/* Makes boxes in which each rank runs a forward and a backward of each microbatch in turn. Later
 * ranks begin later. This is no real schedule. */
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

TEST(pipelines_of_many_shapes_are_drawn) {
    static const int shapes[][2] = {{1, 1}, {12, 30}, {4, 8}, {1, 5}, {70, 1}};
    for (size_t i = 0; i < (all_trials() ? 5 : 2); i++) {
        size_t count = 0;
        harpe_pipeline_box *boxes = make_boxes(shapes[i][0], shapes[i][1], &count);
        harpe_pipeline_picture picture = make_picture(shapes[i][0], boxes, count);
        static const size_t path[] = {0, 1, 3};
        picture.panels[0].critical = path;
        picture.panels[0].critical_count = count > 3 ? 3 : 1;
        check_both(draw_pipeline, &picture);
        picture.panel_count = 1;
        picture.title = NULL;
        picture.blocking_power_w = -1.0;
        check_both(draw_pipeline, &picture);
        free(boxes);
    }
}

TEST(degenerate_pipelines_are_drawn) {
    harpe_pipeline_picture empty = {.rank_count = 3, .panel_count = 1};
    check_both(draw_pipeline, &empty);
    harpe_pipeline_box box = {.rank = 0, .kind = HARPE_BOX_STANDALONE, .microbatch = -1};
    harpe_pipeline_picture nothing = make_picture(1, &box, 1);
    check_both(draw_pipeline, &nothing);
    box.duration_s = 1e-9;
    box.power_w = -5.0;
    nothing.title = nothing.panels[0].title = nothing.panels[1].detail = HOSTILE_NAME;
    check_both(draw_pipeline, &nothing);
}

/* Lanes and boxes of a graph have names of the user's choice. */
TEST(lanes_and_boxes_with_names_are_drawn) {
    static const char *const names[] = {"gpu0", HOSTILE_NAME, "a resource with a long name"};
    size_t count = 0;
    harpe_pipeline_box *boxes = make_boxes(3, 2, &count);
    for (size_t i = 0; i < count; i++)
        boxes[i].name = i % 2 ? HOSTILE_NAME : "all_reduce";
    harpe_pipeline_picture picture = make_picture(3, boxes, count);
    picture.lane_names = names;
    check_both(draw_pipeline, &picture);
    harpe_text image = {0};
    assert_int_equal(harpe_draw_pipeline(&picture, false, &image, NULL), HARPE_OK);
    assert_non_null(strstr(image.data, "gpu0"));
    assert_non_null(strstr(image.data, "all_reduce"));
    assert_null(strstr(image.data, "rank"));
    harpe_text_free(&image);
    free(boxes);
}

TEST(huge_pipelines_stay_small) {
    size_t count = 0;
    harpe_pipeline_box *boxes = make_boxes(all_trials() ? 32 : 8, 1000, &count);
    harpe_pipeline_picture picture = make_picture(all_trials() ? 64 : 16, boxes, count);
    picture.panel_count = 1;
    assert_true(check_both(draw_pipeline, &picture) < 1000000);
    free(boxes);
}

/* Returns the sum of the lengths of the bars in a picture, and their number. */
static double sum_of_bars(const char *svg, size_t *count) {
    double sum = 0.0;
    *count = 0;
    for (const char *at = svg; (at = strchr(at, 'h')); at++)
        if (at > svg && at[-1] >= '0' && at[-1] <= '9') {
            sum += strtod(at + 1, NULL);
            *count += 1;
        }
    return sum;
}

/* Two of four lanes are covered for the whole time, one for a half, and one not at all. */
TEST(bars_are_as_long_as_the_instructions) {
    enum { BOXES = 6000 };
    harpe_pipeline_box *boxes = calloc(BOXES, sizeof *boxes);
    assert_non_null(boxes);
    for (int i = 0; i < BOXES; i++)
        boxes[i] = (harpe_pipeline_box){.rank = i % 3,
                                        .start_s = i / 3,
                                        .duration_s = i % 3 == 2 ? 0.5 : 1.0,
                                        .power_w = 100 + i % 3};
    harpe_pipeline_picture picture = make_picture(4, boxes, BOXES);
    picture.panel_count = 1;
    harpe_text image = {0};
    assert_int_equal(harpe_draw_pipeline(&picture, false, &image, NULL), HARPE_OK);
    double steps = 3200.0; /* two for each point */
    size_t count = 0;
    assert_true(fabs(sum_of_bars(image.data, &count) - 2.5 * steps) < 0.02 * steps);
    assert_in_range(count, BOXES / 3, BOXES); /* the waits stay visible */
    harpe_text_free(&image);
    free(boxes);
}

TEST(boxes_without_a_place_are_refused) {
    harpe_pipeline_box box = {.duration_s = 1.0, .start_s = (double)NAN, .power_w = 100.0};
    harpe_pipeline_picture picture = make_picture(2, &box, 1);
    check_refused(draw_pipeline, &picture, HARPE_INVALID_ARGUMENT);
}

/* ---- Cost models ----------------------------------------------------------------------------- */

static harpe_profile_point points[MANY];
static harpe_option options[MANY];
static double curve_time_s[20], curve_energy_j[20];

/* Makes a choice of `count` points, whose curve has at most 20 points. One point in four is no
 * option. */
static harpe_choice make_choice(size_t count) {
    harpe_choice choice = {.list = {.instruction = HOSTILE_NAME,
                                    .options = options,
                                    .curve_time_s = curve_time_s,
                                    .curve_effective_energy_j = curve_energy_j},
                           .blocking_power_w = 70.0,
                           .point_count = count,
                           .points = points};
    for (size_t i = 0; i < count; i++) {
        double time_s = 0.05 + 0.001 * (double)i, n = (double)count - (double)i;
        points[i] = (harpe_profile_point){.frequency_mhz = 100000 - (int)i, .time_s = time_s};
        points[i].energy_j = 12.0 + 0.02 * n * n + 70.0 * time_s + (i % 4 ? 0.0 : 0.3);
        if (i % 4) options[choice.list.option_count++].frequency_mhz = points[i].frequency_mhz;
        if (i >= 20) continue;
        curve_time_s[i] = time_s;
        curve_energy_j[i] = points[i].energy_j - 70.0 * time_s;
        choice.list.curve_count = i + 1;
    }
    return choice;
}

TEST(cost_models_are_drawn) {
    harpe_choice choice = make_choice(20);
    harpe_cost_panel panels[24];
    for (int i = 0; i < 24; i++)
        panels[i] = (harpe_cost_panel){&choice, NULL};
    harpe_cost_model_picture picture = {HOSTILE_NAME, NULL, panels, 1};
    for (picture.panel_count = 1; picture.panel_count <= 5;
         picture.panel_count += all_trials() ? 1 : 4)
        check_both(draw_cost_model, &picture);
    picture.panel_count = 24;
    check_both(draw_cost_model, &picture);
}

TEST(cost_models_of_graphs_have_their_own_frequencies) {
    harpe_choice choice = make_choice(4);
    static const double mhz[] = {0.0, 1410.0, 0.0, 1200.0};
    harpe_cost_panel panel = {&choice, mhz};
    harpe_cost_model_picture picture = {NULL, "curve", &panel, 1};
    harpe_text image = {0};
    assert_int_equal(harpe_draw_cost_model(&picture, false, &image, NULL), HARPE_OK);
    assert_non_null(strstr(image.data, ">1410 MHz<"));
    assert_non_null(strstr(image.data, ">1200 MHz<"));
    assert_null(strstr(image.data, ">9999"));
    harpe_text_free(&image);
}

TEST(degenerate_cost_models_are_drawn) {
    harpe_choice choice = make_choice(1);
    harpe_cost_panel panel = {&choice, NULL};
    harpe_cost_model_picture picture = {NULL, "curve", &panel, 1};
    check_both(draw_cost_model, &picture); /* no options */
    choice = make_choice(3);
    choice.list.curve_count = 0;
    for (int i = 0; i < 3; i++)
        points[i] = (harpe_profile_point){.frequency_mhz = 900 * (i % 2), .time_s = 1.0};
    check_both(draw_cost_model, &picture);
    points[0].time_s = (double)NAN;
    check_refused(draw_cost_model, &picture, HARPE_INVALID_ARGUMENT);
}

TEST(cost_model_of_many_points_stays_small) {
    harpe_choice choice = make_choice(8000);
    harpe_cost_panel panel = {&choice, NULL};
    harpe_cost_model_picture picture = {"Stage 0", "curve", &panel, 1};
    assert_true(check_both(draw_cost_model, &picture) < 600000);
}
