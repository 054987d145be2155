/* SPDX-License-Identifier: Apache-2.0 */
/* Series of prices from CSV and JSON: what they mean, and one clear line for each mistake. */
#include "test.h"

#include "fleet/fleet_tools.h"
#include "plan/instances.h"

static void check(const char *text, bool is_of_day, size_t count,
                  const harpe_fleet_file_price *prices) {
    harpe_price_series series = {0};
    harpe_error error = {.message = ""};
    assert_ok(harpe_price_series_read(text, strlen(text), "f", &series, &error), error);
    assert_int_equal(series.is_of_day, is_of_day);
    assert_int_equal(series.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_true(series.prices[i].from_s == prices[i].from_s);
        assert_true(series.prices[i].energy_per_kwh == prices[i].energy_per_kwh);
        assert_true(series.prices[i].carbon_g_per_kwh == prices[i].carbon_g_per_kwh);
    }
    harpe_price_series_free(&series);
}

TEST(series_of_all_forms_are_read) {
    static const harpe_fleet_file_price prices[] = {{1764136800, 0.2, 300}, {1764140400, 0.1, 0}};
    static const harpe_fleet_file_price relative[] = {{0, 0.2, 300}, {3600, 0.1, 0}};
    check("time_s,price_per_kwh,carbon_g_per_kwh\n0,0.2,300\n3600,0.1,0\n", false, 2, relative);
    check("at,price_per_kwh,carbon_g_per_kwh\n1764136800,0.2,300\n1764140400,0.1,0\n", true, 2,
          prices);
    check("\xef\xbb\xbf"
          "carbon_g_per_kwh,price_per_kwh,at\r\n300,0.2,2025-11-26T06:00Z\r\n"
          "0,0.1,\"2025-11-26 08:00:00+01:00\"\r\n",
          true, 2, prices);
    check(" \n[{\"at\":1764136800,\"energy_per_kwh\":0.2,\"carbon_g_per_kwh\":300},"
          "{\"at\":\"2025-11-26T07:00:00.0Z\",\"energy_per_kwh\":0.1}]",
          true, 2, prices);
    static const harpe_fleet_file_price negative[] = {{1, -0.05, 0}, {2, -1e6, 300}};
    check("at,price_per_kwh,carbon_g_per_kwh\n1,-0.05,0\n2,-1e6,300\n", true, 2, negative);
    check("[{\"at\":1,\"energy_per_kwh\":-0.05},"
          "{\"at\":2,\"energy_per_kwh\":-1e6,\"carbon_g_per_kwh\":300}]",
          true, 2, negative);
    check("\xef\xbb\xbf \n[{\"at\":1,\"energy_per_kwh\":-0.05}]", true, 1, negative);
    check("\xef\xbb\xbf"
          "at,price_per_kwh\n1,-0.05\n",
          true, 1, negative);
    check("{\"series\":[{\"energy_per_kwh\":0.2,\"at\":1764136800,\"carbon_g_per_kwh\":300}]}",
          true, 1, prices);
}

TEST(mistakes_are_named) {
    static const char *const cases[][2] = {
        {"", "f: the first line must name the columns time_s and price_per_kwh"},
        {"at,time_s,price_per_kwh\n", "f: the first line must name"},
        {"at\n0\n", "f: the first line must name"},
        {"<!DOCTYPE html>\n<html></html>\n", "f:1:1: the columns are"},
        {"at,price_per_kwh\n2025-11-26T06:00,1\n", "f:2:1: at must be seconds since 1970"},
        {"at,price_per_kwh\n1,2\n3,x\n", "f:3:3: price_per_kwh"},
        {"at,price_per_kwh\n3,2\n2,2\n", "f:3:1: at must grow from row to row"},
        {"at,price_per_kwh\n1764100000,0,25\n", "f:2:14: more fields than columns"},
        {"at,price_per_kwh\n20261126,2\n", "f:2:1: at must be"},
        {"at,price_per_kwh\n2026,2\n", "f:2:1: at must be"},
        {"at,price_per_kwh\n", "f: has no price"},
        {"at,price_per_kwh\n1\n", "price_per_kwh is missing"},
        {"[]", "f: has no price"},
        {"[{\"at\":1,}]", "f:1:10: "},
        {"{\"series\":[],\"x\":1}", "only the member series"},
        {"{\"serie\":[]}", "only the member series"},
        {"{}", "only the member series"},
        {"[5]", "f: entry 0 (the first is 0) must be an object"},
        {"[{\"at\":1}]", "f: entry 0 (the first is 0): \"energy_per_kwh\" must be a number"},
        {"[{\"at\":1,\"energy_per_kwh\":1,\"x\":2}]", "\"x\" is not known"},
        {"[{\"at\":1,\"energy_per_kwh\":-1.1e6}]", "\"energy_per_kwh\" must be a number from -1e6"},
        {"[{\"at\":1,\"energy_per_kwh\":-1,\"carbon_g_per_kwh\":-1}]",
         "\"carbon_g_per_kwh\" must be a number from 0"},
        {"[{\"at\":1,\"energy_per_kwh\":1,\"carbon_g_per_kwh\":\"a\"}]",
         "\"carbon_g_per_kwh\" must"},
        {"[{\"at\":-1,\"energy_per_kwh\":1}]", "\"at\" must be seconds"},
        {"[{\"at\":\"noon\",\"energy_per_kwh\":1}]", "\"at\" must be seconds"},
        {"[{\"at\":1,\"energy_per_kwh\":1},{\"at\":1,\"energy_per_kwh\":1}]", "entry 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        harpe_price_series series = {0};
        harpe_error error = {.message = ""};
        harpe_status status =
            harpe_price_series_read(cases[i][0], strlen(cases[i][0]), "f", &series, &error);
        assert_int_equal(status, HARPE_INVALID_INPUT);
        assert_null(series.prices);
        assert_null(strchr(error.message, '\n'));
        if (!strstr(error.message, cases[i][1]))
            fail_msg("case %zu: %s lacks %s", i, error.message, cases[i][1]);
    }
}

TEST(moments_are_read) {
    static const struct {
        const char *text;
        double seconds; /* negative: refused */
    } cases[] = {
        {"0", 0},
        {"1764136800.5", 1764136800.5},
        {"1970-01-01T00:00Z", 0},
        {"1970-01-01t01:00:00+01:00", 0},
        {"2024-02-29 12:30:15.25-0330", 1709222415.25},
        {"2000-02-29T00:00:00Z", 951782400},
        {"2023-02-29T00:00Z", -1},
        {"2023-04-31T00:00Z", -1},
        {"2023-00-01T00:00Z", -1},
        {"2023-04-30T24:00Z", -1},
        {"2023-04-30T00:60Z", -1},
        {"2023-04-30T00:00:60Z", -1},
        {"2023-04-30T00:00", -1},
        {"2023-04-30", -1},
        {"2023-04-30T00:00:00.Z", -1},
        {"2023-04-30T00:00Zx", -1},
        {"2023-04-30T00:00+15:00", -1},
        {"2023-4-30T00:00Z", -1},
        {"1970-01-01T00:00+01:00", -1},
        {"-5", -1},
        {"1e12", -1},
        {"nan", -1},
        {"", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double seconds = -1;
        bool is_read = harpe_moment_read(cases[i].text, strlen(cases[i].text), &seconds);
        if (is_read != (cases[i].seconds >= 0) || seconds != cases[i].seconds)
            fail_msg("%s: %d %f", cases[i].text, is_read, seconds);
    }
}
