/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a fleet: what it means at a moment, and one clear line for each mistake. */
#include "test.h"

#include <math.h>
#include <unistd.h>

#include "fleet/fleet_tools.h"
#include "fleets.h"

#define A "{\"name\":\"a\",\"plans\":[{\"time\":1,\"power\":400},{\"time\":1.1,\"power\":300}]}"
#define JOBS(more) "{\"jobs\":[" A "]," more "}"

static harpe_fleet *fleet_at(const char *text, double at_s) {
    harpe_fleet *fleet = NULL;
    harpe_error error = {.message = ""};
    assert_ok(harpe_fleet_parse_json(text, strlen(text), "f", at_s, &fleet, &error), error);
    return fleet;
}

static double power_at(const char *text, double at_s) {
    harpe_fleet *fleet = fleet_at(text, at_s);
    harpe_fleet_split split = solve(fleet);
    harpe_fleet_free(fleet);
    return split.power_w;
}

/* ---- What a file means ----------------------------------------------------------------------- */

TEST(absent_numbers_have_defaults) {
    harpe_fleet_file file;
    harpe_error error = {.message = ""};
    const char *text = JOBS("\"events\":null");
    assert_ok(harpe_fleet_file_parse(text, strlen(text), "f", &file, &error), error);
    const harpe_fleet_file_job *job = &file.jobs[0];
    assert_true(job->weight == 1 && job->max_slowdown == 0 && job->group == 0 && job->gpus == 0);
    assert_true(job->arrival_s == 0 && isinf(job->end_s) && isinf(job->work_s) && !job->is_load);
    assert_int_equal(file.group_count, 1);
    assert_true(file.groups[0].budget.watts < 0 && file.groups[0].budget.overhead == 1);
    assert_true(file.reaction_s == 30 && isinf(file.ramp_w_per_s) && file.horizon_s == 86400);
    assert_true(harpe_fleet_file_price_at(&file, 5).energy_per_kwh == 0);
    harpe_fleet_file_free(&file);
}

TEST(groups_may_come_in_any_order) {
    const char *text = "{\"jobs\":[{\"name\":\"a\",\"group\":\"rack\",\"power\":10},"
                       "{\"name\":\"b\",\"group\":\"row\",\"power\":20},"
                       "{\"name\":\"c\",\"power\":40}],"
                       "\"budgets\":[{\"group\":\"rack\",\"parent\":\"row\",\"watts\":11},"
                       "{\"watts\":90,\"margin\":0.1},{\"group\":\"row\",\"overhead\":2}]}";
    harpe_fleet *fleet = fleet_at(text, 0);
    assert_true(solve(fleet).is_feasible);
    assert_int_equal(harpe_fleet_group_count(fleet), 3);
    assert_string_equal(harpe_fleet_group_name(fleet, 0), "");
    assert_string_equal(harpe_fleet_group_name(fleet, 1), "row");
    assert_string_equal(harpe_fleet_group_name(fleet, 2), "rack");
    assert_int_equal(harpe_fleet_group_parent(fleet, 2), 1);
    assert_near(use_of(fleet, 0).power_w, 70, 1e-12);
    assert_near(use_of(fleet, 0).limit_w, 81, 1e-12);
    assert_near(use_of(fleet, 1).power_w, 30, 1e-12);
    assert_true(use_of(fleet, 1).budget_w < 0);
    assert_near(use_of(fleet, 2).limit_w, 11, 1e-12);
    harpe_fleet_free(fleet);
}

TEST(events_lower_budgets_while_they_run) {
    const char *text = JOBS("\"budgets\":[{\"watts\":500}],\"events\":["
                            "{\"from\":100,\"duration\":50,\"share\":0.2},"
                            "{\"from\":120,\"duration\":50,\"watts\":100}]");
    static const double expected[][2] = {{0, 500},   {99.9, 500}, {100, 400}, {120, 300},
                                         {150, 400}, {169, 400},  {170, 500}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        harpe_fleet *fleet = fleet_at(text, expected[i][0]);
        (void)solve(fleet);
        assert_near(use_of(fleet, 0).budget_w, expected[i][1], 1e-12);
        harpe_fleet_free(fleet);
    }
    assert_near(power_at(text, 100), 400, 1e-12);
    assert_near(power_at(text, 120), 300, 1e-12);
}

TEST(jobs_come_and_go) {
    const char *text = "{\"jobs\":[{\"name\":\"a\",\"power\":1,\"end\":10},"
                       "{\"name\":\"b\",\"power\":2,\"arrival\":5,\"end\":20}]}";
    static const double expected[][2] = {{0, 1}, {5, 3}, {10, 2}, {20, 0}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_near(power_at(text, expected[i][0]), expected[i][1], 1e-12);
    harpe_fleet *fleet = fleet_at(text, 10);
    assert_null(harpe_fleet_job_name(fleet, 0));
    assert_string_equal(harpe_fleet_job_name(fleet, 1), "b");
    harpe_fleet_free(fleet);
}

TEST(the_price_of_the_moment_counts) {
    /* A second is worth 1 per hour. 100 W less for 10 % more time save energy only from 1 per kWh
     * on: 0.4 kW against 0.33 kW. */
    const char *text = JOBS("\"value\":0.000277777777777778,\"carbon_price\":2,\"prices\":["
                            "{\"from\":0,\"price\":1},{\"from\":50,\"price\":2},"
                            "{\"from\":90,\"price\":0,\"carbon\":900}]");
    assert_near(power_at(text, 0), 400, 1e-12);
    assert_near(power_at(text, 50), 300, 1e-12);
    assert_near(power_at(text, 90), 300, 1e-12);
}

/* ---- Mistakes -------------------------------------------------------------------------------- */

static const char *const mistakes[][2] = {
    {"", "f:1:0: not JSON"},
    {"[]", "the fleet must be an object"},
    {"{\"jobs\":[],\"jobs\":[]}", "not JSON: duplicate object key"},
    {"{}", "the fleet: \"jobs\" is missing"},
    {"{\"jobs\":{}}", "the fleet: \"jobs\" must be a list"},
    {JOBS("\"budget\":1"), "\"budget\" is not a known member"},
    {JOBS("\"horizon\":0"), "\"horizon\" must be 1 .. 1e8 s"},
    {"{\"jobs\":[1]}", "job 0 (the first is 0) must be an object"},
    {"{\"jobs\":[{\"name\":\"\"}]}", "job 0 (the first is 0): \"name\" must have 1 to 255"},
    {"{\"jobs\":[{\"power\":1}]}", "job 0 (the first is 0): \"name\" is missing"},
    {"{\"jobs\":[{\"name\":\"x\"}]}", "job 'x' has neither \"plans\" nor a \"power\""},
    {"{\"jobs\":[{\"name\":\"x\",\"power\":1,\"plans\":[]}]}", "job 'x' has \"plans\" and"},
    {"{\"jobs\":[{\"name\":\"x\",\"plans\":[]}]}", "job 'x': \"plans\" must be a list of 1"},
    {"{\"jobs\":[{\"name\":\"x\",\"power\":-1}]}", "job 'x': \"power\" must be 0 .. 1e9 W"},
    {"{\"jobs\":[{\"name\":\"x\",\"power\":1,\"wieght\":2}]}", "job 'x': \"wieght\" is not"},
    {"{\"jobs\":[{\"name\":\"x\",\"plans\":[{\"time\":1}]}]}",
     "job 'x', plan 0: \"power\" is missing"},
    {"{\"jobs\":[{\"name\":\"x\",\"plans\":[{\"time\":\"1\",\"power\":1}]}]}",
     "job 'x', plan 0: \"time\" must be a number"},
    {"{\"jobs\":[{\"name\":\"x\",\"plans\":[{\"time\":2,\"power\":1},"
     "{\"time\":1,\"power\":1}]}]}",
     "job 'x', plan 1: it is faster than the plan before it"},
    {"{\"jobs\":[{\"name\":\"x\",\"power\":1,\"arrival\":5,\"end\":5}]}",
     "job 'x': \"end\" must be after its arrival"},
    {"{\"jobs\":[{\"name\":\"x\",\"power\":1,\"group\":\"row\"}]}",
     "job 'x': no entry of \"budgets\" names the group 'row'"},
    {"{\"jobs\":[{\"name\":\"x\",\"power\":1},{\"name\":\"x\",\"power\":1}]}",
     "job 'x' occurs twice"},
    {"{\"jobs\":[{\"name\":\"x\\ny\",\"power\":1}]}", "control character"},
    {JOBS("\"budgets\":[{\"watts\":1},{\"watts\":2}]"), "is the second without a \"group\""},
    {JOBS("\"budgets\":[{\"watts\":1,\"parent\":\"x\"}]"), "\"parent\" needs a \"group\""},
    {JOBS("\"budgets\":[{\"group\":\"x\",\"parent\":\"y\"}]"), "names the group 'y'"},
    {JOBS("\"budgets\":[{\"group\":\"x\",\"margin\":1}]"),
     "budget of group 'x': \"margin\" must be 0 .. 0.99"},
    {JOBS("\"budgets\":[{\"group\":\"x\"},{\"group\":\"x\"}]"), "budget of group 'x' occurs twice"},
    {JOBS("\"budgets\":[{\"group\":\"x\",\"parent\":\"y\"},"
          "{\"group\":\"y\",\"parent\":\"x\"}]"),
     "budget of group 'x': the group is inside of itself"},
    {JOBS("\"prices\":[{\"from\":5},{\"from\":5}]"), "price 1 (the first is 0): \"from\" must"},
    {JOBS("\"budgets\":[{\"watts\":1}],\"events\":[{\"from\":1,\"duration\":1}]"),
     "event 0 (the first is 0) must have either"},
    {JOBS("\"budgets\":[{\"watts\":1}],\"events\":[{\"from\":1,\"duration\":1,"
          "\"share\":2}]"),
     "event 0 (the first is 0): \"share\" must be 0 .. 1"},
    {JOBS("\"events\":[{\"from\":1,\"duration\":1,\"share\":0.5}]"),
     "its group has no \"watts\" that it could lower"},
};

TEST(mistakes_are_told_in_one_line) {
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        harpe_fleet *fleet = NULL;
        harpe_error error = {.message = ""};
        const char *text = mistakes[i][0];
        if (harpe_fleet_parse_json(text, strlen(text), "f", 0, &fleet, &error) == HARPE_OK)
            fail_msg("%s is accepted", text);
        assert_null(fleet);
        if (!strstr(error.message, mistakes[i][1])) fail_msg("%s: %s", text, error.message);
        assert_true(strncmp(error.message, "f:", 2) == 0);
        assert_null(strchr(error.message, '\n'));
    }
}

/* Writes `depth` groups, each inside of the next one of the list. */
static char *nested(int depth) {
    size_t size = 100 + 60 * (size_t)depth, length = 0;
    char *text = malloc(size);
    assert_non_null(text);
    length += (size_t)snprintf(text, size, "{\"jobs\":[],\"budgets\":[");
    for (int g = 0; g < depth; g++) {
        length += (size_t)snprintf(text + length, size - length, "%s{\"group\":\"g%d\"",
                                   g > 0 ? "," : "", g);
        if (g + 1 < depth)
            length += (size_t)snprintf(text + length, size - length, ",\"parent\":\"g%d\"", g + 1);
        length += (size_t)snprintf(text + length, size - length, "}");
    }
    (void)snprintf(text + length, size - length, "]}");
    return text;
}

TEST(groups_nest_to_a_limit) {
    static const int depths[] = {HARPE_FLEET_DEPTH_MAX - 1, HARPE_FLEET_DEPTH_MAX, 20000};
    for (size_t i = 0; i < 3; i++) {
        char *text = nested(depths[i]);
        harpe_fleet *fleet = NULL;
        harpe_error error = {.message = ""};
        harpe_status status = harpe_fleet_parse_json(text, strlen(text), "f", 0, &fleet, &error);
        assert_int_equal(status == HARPE_OK, i == 0);
        harpe_fleet_free(fleet);
        free(text);
    }
}

TEST(a_moment_has_a_range) {
    harpe_fleet *fleet = NULL;
    harpe_error error = {.message = ""};
    const char *text = JOBS("\"ramp\":1");
    assert_int_equal(harpe_fleet_parse_json(text, strlen(text), "f", -1, &fleet, &error),
                     HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_fleet_parse_json(text, strlen(text), "f", NAN, &fleet, &error),
                     HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_fleet_read_json("/nonexistent/f", 0, &fleet, &error), HARPE_NOT_FOUND);
    assert_null(fleet);
}

/* ---- Prices from CSV ------------------------------------------------------------------------- */

static harpe_status read_prices(const char *csv, harpe_fleet_file *file, harpe_error *error) {
    const char *text = JOBS("\"carbon_price\":1");
    assert_ok(harpe_fleet_file_parse(text, strlen(text), "f", file, error), *error);
    char path[] = "/tmp/harpe-test-prices-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, csv, strlen(csv)), strlen(csv));
    close(descriptor);
    harpe_status status = harpe_fleet_file_read_prices(file, path, error);
    unlink(path);
    return status;
}

TEST(prices_can_come_from_csv) {
    harpe_fleet_file file;
    harpe_error error = {.message = ""};
    assert_ok(read_prices("carbon_g_per_kwh,time_s,price_per_kwh\n300,0,0.1\n400,3600,0.2\n", &file,
                          &error),
              error);
    assert_int_equal(file.price_count, 2);
    assert_true(harpe_fleet_file_price_at(&file, 3599).energy_per_kwh == 0.1);
    assert_true(harpe_fleet_file_price_at(&file, 3600).energy_per_kwh == 0.2);
    assert_true(harpe_fleet_file_price_at(&file, 3600).carbon_g_per_kwh == 400);
    assert_true(harpe_fleet_file_price_at(&file, 1e9).carbon_per_kg == 1);
    harpe_fleet_file_free(&file);
}

TEST(bad_prices_are_refused) {
    static const char *const cases[][2] = {
        {"", "must name the columns time_s and price_per_kwh"},
        {"time_s\n0\n", "must name the columns time_s and price_per_kwh"},
        {"time_s,price_per_kwh,x\n", "the columns are time_s"},
        {"time_s,time_s\n", "the columns are time_s"},
        {"time_s,price_per_kwh\n", "has no price"},
        {"time_s,price_per_kwh\n0\n", "price_per_kwh is missing"},
        {"time_s,price_per_kwh\n0,-1.1e6\n", "price_per_kwh must be -1e6 .. 1e6"},
        {"time_s,price_per_kwh,carbon_g_per_kwh\n0,-1,-1\n", "carbon_g_per_kwh must be 0 .. 1e6"},
        {"time_s,price_per_kwh\n0,1\n0,1\n", "time_s must grow"},
        {"time_s,price_per_kwh\n0,x\n", ":2:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        harpe_fleet_file file;
        harpe_error error = {.message = ""};
        if (read_prices(cases[i][0], &file, &error) == HARPE_OK) fail_msg("case %zu", i);
        if (!strstr(error.message, cases[i][1])) fail_msg("case %zu: %s", i, error.message);
        assert_int_equal(file.price_count, 0);
        harpe_fleet_file_free(&file);
    }
}
