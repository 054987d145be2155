/* SPDX-License-Identifier: Apache-2.0 */
/* report.html is complete, escaped, self-contained, bounded, and the same every time. */
#include "test.h"

#include <math.h>

#include "draw/draw.h"
#include "markup.h"
#include "plan/graphs.h"

#define HOSTILE "</script><script>alert(1)</script>'\"&\x01\xff"

static const harpe_frontier_vertex bound = {1.0, 89.9, 0.0};
static const harpe_problem no_problem = {0};
static const harpe_graph_layout some_graph = {0};

/* The reference takes 1 s and 100 J. */
static harpe_frontier_row make_row(int number, double time_s, double energy_j) {
    return (harpe_frontier_row){.plan = number,
                                .time_s = time_s,
                                .energy_j = energy_j,
                                .lower_bound_j = energy_j - 0.1,
                                .slowdown_percent = 100.0 * (time_s - 1.0),
                                .savings_percent = 100.0 - energy_j,
                                .average_power_w = 45.0,
                                .peak_power_w = 310.4,
                                .swing_w = 120.7};
}

static harpe_frontier_row plans[3];

static harpe_report make_report(void) {
    plans[0] = make_row(2, 1.00, 90.0);
    plans[1] = make_row(1, 1.04, 80.0);
    plans[2] = make_row(0, 1.20, 75.0);
    return (harpe_report){.title = "profile.csv",
                          .version = "0.1.0",
                          .directory = "plans",
                          .problem = &no_problem,
                          .frontier = {.bound = &bound,
                                       .bound_count = 1,
                                       .plans = plans,
                                       .plan_count = 3,
                                       .reference = {.time_s = 1.0, .energy_j = 100.0}}};
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

TEST(report_tells_headline_numbers) {
    harpe_report report = make_report();
    harpe_text page = write_report(&report);
    assert_non_null(strstr(page.data, "Without any slowdown</div><div class=\"number\">10.0 %"));
    assert_non_null(strstr(page.data, "At most 5 % slower</div><div class=\"number\">20.0 %"));
    assert_non_null(strstr(page.data, "Least energy</div><div class=\"number\">25.0 %"));
    assert_non_null(strstr(page.data, "harpe choose plans --max-slowdown 1.05"));
    assert_non_null(strstr(page.data, "plans/freqs_pipeline_00002.py"));
    assert_int_equal(count_well_formed_pictures(&page), 1);
    harpe_text_free(&page);
}

TEST(report_compares_with_one_clock) {
    harpe_frontier_row clocks[] = {make_row(-1, 1.0, 100.0), make_row(-1, 1.0, 96.0),
                                   make_row(-1, 1.04, 100.0 / 1.2), make_row(-1, 1.3, 60.0)};
    static const int mhz[] = {1410, 1395, 1300, 1000};
    for (int i = 0; i < 4; i++)
        clocks[i].one_clock_mhz = mhz[i];
    harpe_report report = make_report();
    report.frontier.one_clock = clocks;
    report.frontier.one_clock_count = 4;
    harpe_text page = write_report(&report);
    /* The last clock is slower than all plans. */
    assert_non_null(strstr(page.data, "6.3 % less than one clock, 1395 MHz, which saves 4.0 %"));
    assert_non_null(strstr(page.data, "4.0 % less than one clock, 1300 MHz, which saves 16.7 %"));
    assert_non_null(strstr(page.data, "10.0 % less than one clock, 1300 MHz"));
    assert_non_null(strstr(page.data, "against one clock<br>"));
    assert_non_null(strstr(page.data, "<td>10.00</td><td>6.25</td><td>0.00</td>"));
    assert_non_null(strstr(page.data, "\"one_clock\":[[1410,1,100],[1395,1,96]"));
    harpe_text_free(&page);
    report.frontier.one_clock_count = 0;
    page = write_report(&report);
    assert_null(strstr(page.data, "than one clock"));
    assert_null(strstr(page.data, "against one clock"));
    harpe_text_free(&page);
}

TEST(report_of_a_graph_names_its_files) {
    harpe_problem problem = {.graph = &some_graph};
    harpe_report report = make_report();
    report.problem = &problem;
    harpe_text page = write_report(&report);
    assert_non_null(strstr(page.data, "plans/plan_00002.json"));
    assert_non_null(strstr(page.data, "\"graph\":true"));
    assert_non_null(strstr(page.data, "every activity"));
    harpe_text_free(&page);
}

TEST(report_of_one_plan_says_it_once) {
    harpe_report report = make_report();
    report.frontier.plan_count = 1;
    harpe_text page = write_report(&report);
    assert_null(strstr(page.data, "At most 5 % slower"));
    assert_null(strstr(page.data, "<details>"));
    harpe_text_free(&page);
}

TEST(report_admits_a_plan_that_costs_more) {
    harpe_report report = make_report();
    report.frontier.reference = make_row(-1, 0.9, 70.0);
    plans[0].slowdown_percent = 100.0 / 9.0;
    plans[0].savings_percent = -100.0 * 20.0 / 70.0;
    harpe_text page = write_report(&report);
    assert_non_null(strstr(page.data, "Fastest plan"));
    assert_non_null(strstr(page.data, "more energy, 11.1 % slower"));
    harpe_text_free(&page);
}

TEST(report_writes_no_minus_before_nothing) {
    harpe_report report = make_report();
    plans[0].slowdown_percent = -1e-7;
    harpe_text page = write_report(&report);
    assert_non_null(strstr(page.data, "<td>0.00</td>"));
    assert_null(strstr(page.data, "\xe2\x88\x92"
                                  "0.00<"));
    harpe_text_free(&page);
    plans[0].slowdown_percent = -0.99;
    page = write_report(&report);
    assert_non_null(strstr(page.data, "<td>\xe2\x88\x92"
                                      "0.99</td>"));
    harpe_text_free(&page);
}

TEST(report_escapes_everything) {
    harpe_report_fact fact = {HOSTILE, HOSTILE};
    const char *arguments[] = {"harpe", HOSTILE, ""};
    harpe_profile_point point = {.frequency_mhz = 1410, .time_s = 0.1, .energy_j = 5.0};
    harpe_choice choice = {.list.instruction = HOSTILE, .points = &point, .point_count = 1};
    harpe_cost_panel panel = {&choice, NULL};
    harpe_cost_model_picture cost = {HOSTILE, HOSTILE, &panel, 1};
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
    report.argument_count = 3;
    report.cost_models = &cost;
    report.cost_model_count = 1;
    report.pipelines = &pipeline;
    report.pipeline_count = 1;
    harpe_text page = write_report(&report);
    assert_null(strstr(page.data, "alert(1)</script>"));
    assert_null(strchr(page.data, '\x01'));
    assert_int_equal(count_well_formed_pictures(&page), 3);
    harpe_text_free(&page);
}

/* Two ranks. The first runs a forward twice. The second waits for the first of them, and 0.25 s
 * more (a delay, instruction 3). */
static harpe_profile_point forward_points[] = {
    {.frequency_mhz = 1410, .time_s = 0.1, .energy_j = 30},
    {.frequency_mhz = 1200, .time_s = 0.12, .energy_j = 25}};
static harpe_profile_point other_points[] = {{.frequency_mhz = 1100, .time_s = 0.2, .energy_j = 10},
                                             {.frequency_mhz = 900, .time_s = 0.3, .energy_j = 9}};
static harpe_profile_point delay_points[] = {{.time_s = 0.25}};
static harpe_choice choices[] = {{.list = {.stage = 0, .rank = 0, .instruction = "forward"},
                                  .point_count = 2,
                                  .points = forward_points},
                                 {.list = {.stage = 1, .rank = 1, .instruction = HOSTILE},
                                  .point_count = 2,
                                  .points = other_points},
                                 {.point_count = 1, .points = delay_points}};
static int32_t choice_of[] = {0, 0, 1, 2};
static const harpe_action actions[4] = {{.microbatch = 7}, {.microbatch = 8}, {.microbatch = -1}};
static size_t rank_offset[] = {0, 2, 3};
static int32_t first_arc_into[] = {0, 0, 1, 2, 3}, arc_from[] = {0, 3, 0};
static int gpu_count[] = {1, 8};
static const harpe_problem problem = {
    .rank_count = 2,
    .instruction_count = 4,
    .rank_offset = rank_offset,
    .choice_of = choice_of,
    .action_of = actions,
    .delay_count = 1,
    .delay_choice_count = 1,
    .choice_count = 3,
    .choices = choices,
    .dag = {.first_arc_into = first_arc_into, .arc_from = arc_from},
    .gpu_count = gpu_count,
};

TEST(report_holds_what_each_plan_changes) {
    static const int highest[] = {1410, 1410, 1100}, lower[] = {1410, 1200, 900};
    static const int *const frequencies[] = {highest, lower};
    harpe_report report = make_report();
    report.frontier.plan_count = 2;
    report.problem = &problem;
    report.frequency_mhz = frequencies;
    harpe_text page = write_report(&report);
    static const char *const texts[] = {
        "\"points\":[[1410,0.1,30],[1200,0.12,25]]",
        "\"gpus\":8,\"points\":[[1100,0.2,10],[900,0.3,9]]",
        "\"ranks\":[{\"entry\":[0,0],\"microbatch\":[7,8]}\n,{\"entry\":[1],\"microbatch\":[-1]}",
        "\"waits\":[2,0]", "\"lags\":[2,0.25]",
        /* the first runs at the highest frequencies; the second changes two instructions */
        "\"plans\":[[],[1,1,1,1]]}", "\\u003c/script>\\u003cscript>alert(1)"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strstr(page.data, texts[i])) fail_msg("%s is missing", texts[i]);
    assert_null(strstr(page.data, "alert(1)</script>"));
    harpe_text_free(&page);
}

TEST(report_of_many_changing_plans_stays_small) {
    enum { PLANS = 600, INSTRUCTIONS = 2000 };
    harpe_frontier_row *many = calloc(PLANS, sizeof *many);
    int *mhz = calloc((size_t)PLANS * INSTRUCTIONS, sizeof *mhz);
    const int **frequencies = calloc(PLANS, sizeof *frequencies);
    int32_t *zeros = calloc(INSTRUCTIONS + 1, sizeof *zeros);
    harpe_action *no_actions = calloc(INSTRUCTIONS, sizeof *no_actions);
    assert_true(many && mhz && frequencies && zeros && no_actions);
    for (size_t i = 0; i < PLANS; i++) {
        many[i] = make_row((int)(PLANS - i), 1.0, 90.0);
        frequencies[i] = mhz + i * INSTRUCTIONS;
        for (size_t k = 0; k < INSTRUCTIONS; k++)
            mhz[i * INSTRUCTIONS + k] = (i + k) % 2 ? 1410 : 1200;
    }
    static size_t one_rank[] = {0, INSTRUCTIONS};
    harpe_problem large = problem;
    large.rank_count = 1;
    large.instruction_count = INSTRUCTIONS;
    large.delay_count = 0;
    large.rank_offset = one_rank;
    large.choice_of = large.dag.first_arc_into = zeros;
    large.action_of = no_actions;
    harpe_report report = make_report();
    report.problem = &large;
    report.frequency_mhz = frequencies;
    report.frontier.plans = many;
    report.frontier.plan_count = PLANS;
    harpe_text page = write_report(&report);
    assert_true(page.length < 1500000);
    assert_non_null(strstr(page.data, ",null,")); /* some are omitted */
    harpe_text_free(&page);
    free(no_actions);
    free(zeros);
    free(frequencies);
    free(mhz);
    free(many);
}

TEST(report_asks_nothing_of_a_network) {
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

TEST(report_is_the_same_every_time) {
    harpe_report report = make_report();
    harpe_text first = write_report(&report);
    harpe_text second = write_report(&report);
    assert_int_equal(first.length, second.length);
    assert_memory_equal(first.data, second.data, first.length);
    harpe_text_free(&first);
    harpe_text_free(&second);
}

TEST(report_of_many_plans_stays_small) {
    size_t count = 50000;
    harpe_frontier_row *many = calloc(count, sizeof *many);
    assert_non_null(many);
    for (size_t i = 0; i < count; i++)
        many[i] = make_row((int)(count - i), 1.0 + 1e-5 * (double)i, 100.0 - 1e-4 * (double)i);
    harpe_report report = make_report();
    report.frontier.plans = many;
    report.frontier.plan_count = count;
    harpe_text page = write_report(&report);
    assert_true(page.length < 1000000);
    harpe_text_free(&page);
    free(many);
}

TEST(report_refuses_what_it_cannot_show) {
    harpe_report report = make_report();
    harpe_text page = {0};
    harpe_error error = {0};
    plans[1].time_s = (double)NAN;
    assert_int_equal(harpe_report_write(&report, &page, &error), HARPE_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "not finite"));
    assert_int_equal(page.length, 0);
    harpe_text_free(&page);
}
