/* SPDX-License-Identifier: Apache-2.0 */
/* report.html is complete, escaped, self-contained, bounded, and the same every time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "draw/report.h"
#include "markup.h"

#define HOSTILE "</script><script>alert(1)</script>'\"&\x01\xff"

static harpe_report_plan plans[3] = {
    {2, 1.00, 90.0, 89.9, 80.0, 10.0, 45.0, 0, 310.4, 120.7, NULL},
    {1, 1.04, 80.0, 79.9, 69.0, 11.0, 38.5, 0, 290.2, 99.5, NULL},
    {0, 1.20, 75.0, 74.9, 62.0, 13.0, 31.3, 0, 270.0, 80.1, NULL},
};

static harpe_report make_report(void) {
    return (harpe_report){.title = "profile.csv",
                          .version = "0.1.0",
                          .directory = "plans",
                          .plans = plans,
                          .plan_count = 3,
                          .has_reference = true,
                          .reference = {1.0, 100.0}};
}

static harpe_text write_report(const harpe_report *report) {
    harpe_text page = {0};
    harpe_error error = {0};
    assert_int_equal(harpe_report_write(report, &page, &error), HARPE_OK);
    assert_non_null(strstr(page.data, "</html>"));
    return page;
}

/* Checks every picture in the page separately. */
static size_t count_well_formed_pictures(const harpe_text *page) {
    size_t count = 0;
    for (const char *at = strstr(page->data, "<svg"); at; at = strstr(at + 1, "<svg")) {
        const char *end = strstr(at, "</svg>");
        assert_non_null(end);
        assert_true(markup_is_well_formed(at, (size_t)(end - at) + strlen("</svg>")));
        count++;
    }
    return count;
}

static void report_tells_headline_numbers(void **state) {
    (void)state;
    harpe_report report = make_report();
    harpe_text page = write_report(&report);
    assert_non_null(strstr(page.data, "Without any slowdown</div><div class=\"number\">10.0 %"));
    assert_non_null(strstr(page.data, "At most 5 % slower</div><div class=\"number\">20.0 %"));
    assert_non_null(strstr(page.data, "Least energy</div><div class=\"number\">25.0 %"));
    assert_non_null(strstr(page.data, "harpe choose plans --max-slowdown 1.05"));
    assert_non_null(strstr(page.data, "plans/freqs_pipeline_00002.py"));
    assert_int_equal(count_well_formed_pictures(&page), 2);
    harpe_text_free(&page);
}

static void report_compares_with_one_clock(void **state) {
    (void)state;
    const harpe_report_point clocks[] = {
        {1410, 1.0, 100.0}, {1395, 1.0, 96.0}, {1300, 1.04, 100.0 / 1.2}, {1000, 1.3, 60.0}};
    harpe_report report = make_report();
    report.one_clock = clocks;
    report.one_clock_count = 4;
    harpe_text page = write_report(&report);
    /* The last clock is slower than all plans. */
    assert_non_null(strstr(page.data, "6.3 % less than one clock, 1395 MHz, which saves 4.0 %"));
    assert_non_null(strstr(page.data, "4.0 % less than one clock, 1300 MHz, which saves 16.7 %"));
    assert_non_null(strstr(page.data, "10.0 % less than one clock, 1300 MHz"));
    assert_non_null(strstr(page.data, "against one clock<br>"));
    assert_non_null(strstr(page.data, "<td>10.00</td><td>6.25</td><td>0.00</td>"));
    assert_non_null(strstr(page.data, "\"one_clock\":[[1410,1,100],[1395,1,96]"));
    harpe_text_free(&page);
    report.one_clock_count = 0;
    page = write_report(&report);
    assert_null(strstr(page.data, "than one clock"));
    assert_null(strstr(page.data, "against one clock"));
    harpe_text_free(&page);
}

static void report_without_reference_gives_absolute_numbers(void **state) {
    (void)state;
    harpe_report report = make_report();
    report.has_reference = false;
    harpe_text page = write_report(&report);
    assert_null(strstr(page.data, "saved<br>"));
    assert_non_null(strstr(page.data, "75.00 J"));
    harpe_text_free(&page);
}

static void report_of_one_plan_says_it_once(void **state) {
    (void)state;
    harpe_report report = make_report();
    report.plan_count = 1;
    harpe_text page = write_report(&report);
    assert_null(strstr(page.data, "At most 5 % slower"));
    assert_null(strstr(page.data, "<details>"));
    harpe_text_free(&page);
}

static void report_admits_a_plan_that_costs_more(void **state) {
    (void)state;
    harpe_report report = make_report();
    report.reference = (harpe_point){0.9, 70.0};
    harpe_text page = write_report(&report);
    assert_non_null(strstr(page.data, "Fastest plan"));
    assert_non_null(strstr(page.data, "more energy, 11.1 % slower"));
    harpe_text_free(&page);
}

static void report_writes_no_minus_before_nothing(void **state) {
    (void)state;
    harpe_report report = make_report();
    report.reference.time_s = plans[0].time_s * (1.0 + 1e-9);
    harpe_text page = write_report(&report);
    assert_non_null(strstr(page.data, "<td>0.00</td>"));
    assert_null(strstr(page.data, "\xe2\x88\x92"
                                  "0.00<"));
    harpe_text_free(&page);
    report.reference.time_s = plans[0].time_s * 1.01;
    page = write_report(&report);
    assert_non_null(strstr(page.data, "<td>\xe2\x88\x92"
                                      "0.99</td>"));
    harpe_text_free(&page);
}

static void report_escapes_everything(void **state) {
    (void)state;
    harpe_report_fact fact = {HOSTILE, HOSTILE};
    const char *arguments[] = {"harpe", HOSTILE, "", NULL};
    harpe_cost_point point = {1410, 0.1, 5.0, true};
    harpe_cost_panel panel = {HOSTILE, &point, 1, NULL, NULL, 0};
    harpe_cost_model_picture cost = {HOSTILE, HOSTILE, &panel, 1, 70.0};
    harpe_pipeline_box box = {.duration_s = 1.0, .power_w = 300.0};
    harpe_pipeline_picture pipeline = {.title = HOSTILE,
                                       .rank_count = 1,
                                       .panel_count = 1,
                                       .panels = {{HOSTILE, HOSTILE, &box, 1, 0, NULL, 0}}};
    harpe_report report = make_report();
    report.title = report.version = report.directory = HOSTILE;
    report.facts = &fact;
    report.fact_count = 1;
    report.arguments = arguments;
    report.argument_count = 4;
    report.cost_models = &cost;
    report.cost_model_count = 1;
    report.pipelines = &pipeline;
    report.pipeline_count = 1;
    harpe_text page = write_report(&report);
    assert_null(strstr(page.data, "alert(1)</script>"));
    assert_null(strchr(page.data, '\x01'));
    assert_int_equal(count_well_formed_pictures(&page), 4);
    harpe_text_free(&page);
}

/* Two ranks with one forward each. The second waits for the first and does not change its clock. */
static const harpe_report_point forward_points[] = {{1410, 0.1, 30.0}, {1200, 0.12, 25.0}};
static const harpe_report_point other_points[] = {{0, 0.2, 10.0}};
static const int32_t first_instruction[] = {0};
static const size_t rank_offset[] = {0, 1, 2};
static const int frequencies[2][2] = {{1410, 0}, {1200, 0}};
static const harpe_pipeline_box only_box = {.duration_s = 1.0, .power_w = 300.0};
static const harpe_pipeline_picture only_pipeline = {
    .rank_count = 1, .panel_count = 1, .panels = {{NULL, NULL, &only_box, 1, 0, NULL, 0}}};

static harpe_report make_report_with_timeline(harpe_report_timeline *timeline,
                                              harpe_report_entry entries[2],
                                              harpe_report_instruction instructions[2]) {
    entries[0] = (harpe_report_entry){0, "forward", forward_points, 2, 1};
    entries[1] = (harpe_report_entry){1, HOSTILE, other_points, 1, 8};
    instructions[0] = (harpe_report_instruction){0, 7, NULL, 0, 0};
    instructions[1] = (harpe_report_instruction){1, -1, first_instruction, 1, 0.25};
    *timeline = (harpe_report_timeline){entries, 2, instructions, 2, rank_offset, 2};
    static harpe_report_plan timed[2];
    for (int i = 0; i < 2; i++) {
        timed[i] = plans[i];
        timed[i].frequency_mhz = frequencies[i];
    }
    harpe_report report = make_report();
    report.plans = timed;
    report.plan_count = 2;
    report.pipelines = &only_pipeline;
    report.pipeline_count = 1;
    report.timeline = timeline;
    return report;
}

static void report_holds_what_each_plan_changes(void **state) {
    (void)state;
    harpe_report_timeline timeline;
    harpe_report_entry entries[2];
    harpe_report_instruction instructions[2];
    harpe_report report = make_report_with_timeline(&timeline, entries, instructions);
    harpe_text page = write_report(&report);
    assert_non_null(strstr(page.data, "\"points\":[[1410,0.1,30],[1200,0.12,25]]"));
    assert_non_null(strstr(page.data, "{\"entry\":[1],\"microbatch\":[-1]}"));
    assert_non_null(strstr(page.data, "\"waits\":[1,0]"));
    /* the first runs at the highest frequencies; the second changes instruction 0 to point 1 */
    assert_non_null(strstr(page.data, "\"plans\":[[],[0,1]]}"));
    assert_non_null(strstr(page.data, "\\u003c/script>\\u003cscript>alert(1)"));
    assert_null(strstr(page.data, "alert(1)</script>"));
    harpe_text_free(&page);
}

static void report_refuses_a_timeline_that_does_not_fit(void **state) {
    (void)state;
    harpe_report_timeline timeline;
    harpe_report_entry entries[2];
    harpe_report_instruction instructions[2];
    harpe_text page = {0};
    harpe_error error = {0};
    static const int32_t nobody[] = {2};
    static const size_t too_many[] = {0, 1, 3};
    for (int fault = 0; fault < 5; fault++) {
        harpe_report report = make_report_with_timeline(&timeline, entries, instructions);
        if (fault == 0) timeline.rank_offset = too_many;
        if (fault == 1) instructions[1].entry = 2;
        if (fault == 2) instructions[1].waits_for = nobody;
        if (fault == 3) entries[0].point_count = 0;
        if (fault == 4) timeline.rank_count = 0;
        assert_int_equal(harpe_report_write(&report, &page, &error), HARPE_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, "timeline"));
    }
    assert_int_equal(page.length, 0);
}

static void report_of_many_changing_plans_stays_small(void **state) {
    (void)state;
    enum { PLANS = 600, INSTRUCTIONS = 2000 };
    harpe_report_timeline timeline;
    harpe_report_entry entries[2];
    harpe_report_instruction first[2];
    harpe_report report = make_report_with_timeline(&timeline, entries, first);
    harpe_report_plan *many = calloc(PLANS, sizeof *many);
    int *mhz = calloc((size_t)PLANS * INSTRUCTIONS, sizeof *mhz);
    harpe_report_instruction *instructions = calloc(INSTRUCTIONS, sizeof *instructions);
    assert_true(many && mhz && instructions);
    for (size_t i = 0; i < PLANS; i++) {
        many[i] = plans[0];
        many[i].number = (int)(PLANS - i);
        many[i].frequency_mhz = mhz + i * INSTRUCTIONS;
        for (size_t k = 0; k < INSTRUCTIONS; k++)
            mhz[i * INSTRUCTIONS + k] = (i + k) % 2 ? 1410 : 1200;
    }
    static const size_t one_rank[] = {0, INSTRUCTIONS};
    timeline.instructions = instructions;
    timeline.instruction_count = INSTRUCTIONS;
    timeline.rank_offset = one_rank;
    timeline.rank_count = 1;
    report.plans = many;
    report.plan_count = PLANS;
    harpe_text page = write_report(&report);
    assert_true(page.length < 1500000);
    assert_non_null(strstr(page.data, ",null,")); /* some are omitted */
    harpe_text_free(&page);
    free(instructions);
    free(mhz);
    free(many);
}

static void report_asks_nothing_of_a_network(void **state) {
    (void)state;
    harpe_report report = make_report();
    harpe_text page = write_report(&report);
    assert_null(strstr(page.data, "src=\"http"));
    assert_null(strstr(page.data, "@import"));
    for (const char *at = page.data; (at = strstr(at, "url(")); at++)
        assert_true(at[4] == '#');
    assert_null(strstr(page.data, "<link"));
    assert_non_null(strstr(page.data, "default-src 'none'"));
    harpe_text_free(&page);
}

static void report_is_the_same_every_time(void **state) {
    (void)state;
    harpe_report report = make_report();
    harpe_text first = write_report(&report);
    harpe_text second = write_report(&report);
    assert_int_equal(first.length, second.length);
    assert_memory_equal(first.data, second.data, first.length);
    harpe_text_free(&first);
    harpe_text_free(&second);
}

static void report_of_many_plans_stays_small(void **state) {
    (void)state;
    size_t count = 50000;
    harpe_report_plan *many = calloc(count, sizeof *many);
    assert_non_null(many);
    for (size_t i = 0; i < count; i++) {
        many[i] = (harpe_report_plan){(int)(count - i),
                                      1.0 + 1e-5 * (double)i,
                                      100.0 - 1e-4 * (double)i,
                                      90.0,
                                      80.0,
                                      10.0,
                                      50.0,
                                      0,
                                      300.0,
                                      100.0,
                                      NULL};
    }
    harpe_report report = make_report();
    report.plans = many;
    report.plan_count = count;
    harpe_text page = write_report(&report);
    assert_true(page.length < 1000000);
    harpe_text_free(&page);
    free(many);
}

static void report_refuses_what_it_cannot_show(void **state) {
    (void)state;
    harpe_report report = make_report();
    harpe_text page = {0};
    harpe_error error = {0};
    report.plan_count = 0;
    assert_int_equal(harpe_report_write(&report, &page, &error), HARPE_INVALID_ARGUMENT);
    harpe_report_plan broken = {0, (double)NAN, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0, NULL};
    report.plans = &broken;
    report.plan_count = 1;
    assert_int_equal(harpe_report_write(&report, &page, &error), HARPE_INVALID_ARGUMENT);
    assert_int_equal(page.length, 0);
    harpe_text_free(&page);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(report_tells_headline_numbers),
        cmocka_unit_test(report_compares_with_one_clock),
        cmocka_unit_test(report_without_reference_gives_absolute_numbers),
        cmocka_unit_test(report_of_one_plan_says_it_once),
        cmocka_unit_test(report_admits_a_plan_that_costs_more),
        cmocka_unit_test(report_writes_no_minus_before_nothing),
        cmocka_unit_test(report_escapes_everything),
        cmocka_unit_test(report_holds_what_each_plan_changes),
        cmocka_unit_test(report_refuses_a_timeline_that_does_not_fit),
        cmocka_unit_test(report_of_many_changing_plans_stays_small),
        cmocka_unit_test(report_asks_nothing_of_a_network),
        cmocka_unit_test(report_is_the_same_every_time),
        cmocka_unit_test(report_of_many_plans_stays_small),
        cmocka_unit_test(report_refuses_what_it_cannot_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
