/* SPDX-License-Identifier: Apache-2.0 */
/* The plans that a member of a fleet declares, the bodies of its requests, and the answers. */
#include "test.h"

#include <math.h>

#include <jansson.h>

#include "power_limit/member.h"

typedef harpe_power_limit_measurement measurement;

static harpe_limit_plans *make(const measurement *all, size_t count, int optimum_w, int steps) {
    harpe_limit_plans *plans = NULL;
    assert_works(harpe_limit_plans_make(all, count, optimum_w, steps, &plans, &failure));
    return plans;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

TEST(each_limit_is_a_plan_of_the_whole_job) {
    /* Two GPUs of 300, 250 and 200 W, and 40 steps. */
    const measurement all[] = {{300, 5600, 10}, {250, 5300, 11}, {200, 5200, 13}};
    owned_array harpe_limit_plans *plans = make(all, 3, 250, 40);
    assert_int_equal(plans->count, 3);
    assert_int_equal(plans->chosen, 1);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(plans->plans[i].limit_w, all[i].power_limit_w);
        assert_true(plans->plans[i].time_s == all[i].time_s / 40);
        assert_true(plans->plans[i].power_w == all[i].energy_j / all[i].time_s);
    }
}

TEST(one_limit_is_one_plan) {
    const measurement one = {100, 1e-3, 1e-6};
    owned_array harpe_limit_plans *plans = make(&one, 1, 100, 1);
    assert_int_equal(plans->count, 1);
    assert_int_equal(plans->chosen, 0);
}

TEST(beaten_limits_are_left_out_but_not_the_chosen_one) {
    const measurement all[] = {
        {350, 6000, 20.0}, /* 300 W, slower than 325: beaten */
        {325, 3000, 10.0}, /* 300 W */
        {300, 3000, 10.0}, /* the same: one of them stays, that of the higher limit */
        {275, 2970, 11.0}, /* 270 W */
        {250, 3264, 12.0}, /* 272 W, chosen, though 275 is faster and draws less */
        {225, 3130, 12.5}, /* 250.4 W */
        {200, 3900, 15.0}, /* 260 W: beaten */
        {175, 3600, 20.0}, /* 180 W */
    };
    const int expected_w[] = {325, 250, 225, 175};
    owned_array harpe_limit_plans *plans = make(all, 8, 250, 10);
    assert_int_equal(plans->count, 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(plans->plans[i].limit_w, expected_w[i]);
    assert_int_equal(plans->chosen, 1);
}

TEST(values_that_no_server_accepts_are_left_out) {
    const measurement all[] = {{300, 1e300, 1}, {250, 2500, 10}, {200, 1e-300, 1e300}};
    harpe_limit_plans *plans = make(all, 3, 250, 10);
    assert_int_equal(plans->count, 1);
    free(plans);
    plans = NULL;
    assert_int_equal(harpe_limit_plans_make(all, 3, 300, 10, &plans, &failure),
                     HARPE_INVALID_INPUT);
    assert_int_equal(harpe_limit_plans_make(all, 3, 275, 10, &plans, &failure),
                     HARPE_INVALID_INPUT);
    assert_int_equal(harpe_limit_plans_make(all, 0, 275, 10, &plans, &failure),
                     HARPE_INVALID_INPUT);
    assert_null(plans);
}

static double random_number(unsigned *seed, double least, double most) {
    return least + (most - least) * (rand_r(seed) / (double)RAND_MAX);
}

/* Measurements of a job: noise, repeated values, lines that are flat, and single odd ones. */
static size_t random_measurements(unsigned *seed, measurement *all, size_t most) {
    size_t count = 1 + (size_t)rand_r(seed) % most;
    double noise = random_number(seed, 0, 0.1);
    bool is_coarse = rand_r(seed) % 3 == 0;
    for (size_t i = 0; i < count; i++) {
        double limit_w = 100 + (double)(count - i);
        double time_s = 10 + 1000 / limit_w;
        double power_w = limit_w * 0.9;
        time_s *= 1 + random_number(seed, -noise, noise);
        power_w *= 1 + random_number(seed, -noise, noise);
        if (rand_r(seed) % 20 == 0) power_w *= random_number(seed, 0.1, 10);
        if (is_coarse) {
            time_s = ceil(time_s);
            power_w = 16 * ceil(power_w / 16);
        }
        all[i] = (measurement){(int)limit_w, power_w * time_s, time_s};
    }
    return count;
}

static bool is_kept(const harpe_limit_plans *plans, int limit_w) {
    for (size_t i = 0; i < plans->count; i++)
        if (plans->plans[i].limit_w == limit_w) return true;
    return false;
}

static void check_random(unsigned seed) {
    enum { MOST = 1200 };
    static measurement all[MOST];
    size_t count = random_measurements(&seed, all, seed % 7 == 0 ? MOST : 12);
    int optimum_w = all[(size_t)rand_r(&seed) % count].power_limit_w;
    owned_array harpe_limit_plans *plans = make(all, count, optimum_w, 40);
    assert_in_range(plans->count, 1, HARPE_LIMIT_PLANS_MAX);
    assert_true(plans->chosen < plans->count);
    assert_int_equal(plans->plans[plans->chosen].limit_w, optimum_w);
    for (size_t i = 1; i < plans->count; i++) {
        assert_true(plans->plans[i].time_s > plans->plans[i - 1].time_s);
        assert_true(plans->plans[i].power_w < plans->plans[i - 1].power_w);
    }
    /* Whatever is left out is beaten, unless there were too many. */
    for (size_t i = 0; i < count && plans->count + 2 < HARPE_LIMIT_PLANS_MAX; i++) {
        double time_s = all[i].time_s / 40, power_w = all[i].energy_j / all[i].time_s;
        bool is_beaten = is_kept(plans, all[i].power_limit_w);
        const harpe_limit_plan *chosen = &plans->plans[plans->chosen];
        is_beaten |= time_s <= chosen->time_s && power_w <= chosen->power_w;
        for (size_t k = 0; k < plans->count; k++)
            is_beaten |= plans->plans[k].time_s <= time_s && plans->plans[k].power_w <= power_w;
        assert_true(is_beaten);
    }
}

TEST(plans_of_any_measurements_are_in_order) {
    for (unsigned seed = 1; seed <= 2000; seed++)
        check_random(seed);
}

/* ---- Messages -------------------------------------------------------------------------------- */

static json_t *read_text(harpe_text *text) {
    assert_false(text->failed);
    json_t *value = json_loads(text->data, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(value);
    harpe_text_free(text);
    return value;
}

TEST(a_declaration_has_all_terms) {
    const measurement all[] = {{300, 5600, 10}, {250, 5300, 11}, {200, 5200, 13}};
    const harpe_power_limit_fleet terms = {
        .group = "row \"1\"\n", .weight = 2.5, .max_slowdown = 1.25};
    owned_array harpe_limit_plans *plans = make(all, 3, 250, 40);
    harpe_text text = {0};
    harpe_member_declare(&terms, plans, &text);
    json_t *body = read_text(&text);
    assert_int_equal(json_object_size(body), 5);
    const json_t *list = json_object_get(body, "plans");
    assert_int_equal(json_array_size(list), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *plan = json_array_get(list, i);
        assert_int_equal(json_object_size(plan), 2);
        assert_true(json_number_value(json_object_get(plan, "time")) == plans->plans[i].time_s);
        assert_true(json_number_value(json_object_get(plan, "power")) == plans->plans[i].power_w);
    }
    assert_string_equal(json_string_value(json_object_get(body, "group")), terms.group);
    assert_true(json_number_value(json_object_get(body, "weight")) == 2.5);
    assert_true(json_number_value(json_object_get(body, "max_slowdown")) == 1.25);
    assert_true(json_number_value(json_object_get(body, "most_w")) == plans->plans[1].power_w);
    json_decref(body);
}

TEST(a_job_without_plans_declares_its_highest_power) {
    const harpe_power_limit_fleet terms = {0};
    harpe_text text = {0};
    harpe_member_declare_unsteered(&terms, 1200, &text);
    json_t *body = read_text(&text);
    assert_int_equal(json_object_size(body), 1);
    const json_t *plan = json_array_get(json_object_get(body, "plans"), 0);
    assert_true(json_number_value(json_object_get(plan, "power")) == 1200);
    json_decref(body);
}

TEST(a_report_has_the_power_if_it_is_known) {
    AT_END(harpe_text_free) harpe_text text = {0};
    harpe_member_report(3, 512.5, &text);
    assert_string_equal(text.data, "{\"plan\":3,\"power\":512.5}");
    harpe_text_free(&text);
    harpe_member_report(0, -1, &text);
    assert_string_equal(text.data, "{\"plan\":0}");
}

TEST(only_an_answer_with_a_plan_is_one) {
    static const char *const wrong[] = {"",
                                        "null",
                                        "{}",
                                        "[]",
                                        "{\"plan\":3}",
                                        "{\"plan\":-1}",
                                        "{\"plan\":1.0}",
                                        "{\"plan\":\"1\"}",
                                        "{\"plan\":null}",
                                        "{\"plan\":1",
                                        "<html>",
                                        "{\"plan\":99999999999999999999}"};
    size_t plan = 7;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(harpe_member_read_answer(wrong[i], strlen(wrong[i]), 3, &plan));
    assert_int_equal(plan, 7);
    const char *right = "{\"plan\":2,\"watts\":null,\"time_s\":1.5}";
    assert_true(harpe_member_read_answer(right, strlen(right), 3, &plan));
    assert_int_equal(plan, 2);
}
