/* SPDX-License-Identifier: Apache-2.0 */
/* ProfilingResult: real bodies survive a round trip, and odd bodies are accepted or refused field
 * by field. */
#include "test.h"

#include <jansson.h>

#include "pfo/models.h"

static void assert_same_doubles(const double *a, const double *b, size_t count) {
    for (size_t i = 0; i < count; i++)
        assert_true(a[i] == b[i]);
}

static void assert_same_breakdowns(const harpe_breakdown *a, const harpe_breakdown *b,
                                   size_t count) {
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(a[i].instruction, b[i].instruction);
        assert_int_equal(a[i].iteration_count, b[i].iteration_count);
        for (size_t k = 0; k < a[i].iteration_count; k++) {
            assert_int_equal(a[i].counts[k], b[i].counts[k]);
            assert_same_doubles(a[i].values + a[i].offsets[k], b[i].values + b[i].offsets[k],
                                a[i].counts[k]);
        }
    }
}

static void assert_same(const harpe_profiling_result *a, const harpe_profiling_result *b) {
    assert_int_equal(a->rank, b->rank);
    assert_int_equal(a->iteration_time_count, b->iteration_time_count);
    assert_int_equal(a->iteration_energy_count, b->iteration_energy_count);
    assert_int_equal(a->time_breakdown_count, b->time_breakdown_count);
    assert_int_equal(a->energy_breakdown_count, b->energy_breakdown_count);
    assert_same_doubles(a->iteration_time_s, b->iteration_time_s, a->iteration_time_count);
    assert_same_doubles(a->iteration_energy_j, b->iteration_energy_j, a->iteration_energy_count);
    assert_same_breakdowns(a->time_breakdown, b->time_breakdown, a->time_breakdown_count);
    assert_same_breakdowns(a->energy_breakdown, b->energy_breakdown, a->energy_breakdown_count);
}

static harpe_profiling_result decode(const char *body) {
    harpe_problems problems = {0};
    harpe_profiling_result result = {0};
    if (!harpe_profiling_result_decode(body, strlen(body), &result, &problems))
        fail_msg("%s\nrefused: %s", body, harpe_problems_format(&problems));
    return result;
}

/* Writes, reads and copies: all values stay the same. */
static void check_round_trip(const harpe_profiling_result *result) {
    owned_array char *json = NULL;
    harpe_profiling_result again = {0};
    AT_END(harpe_profiling_result_free) harpe_profiling_result copy = {0};
    assert_works(harpe_profiling_result_format(result, &json, &failure));
    assert_works(harpe_profiling_result_parse(json, strlen(json), &again, &failure));
    assert_same(result, &again);
    assert_works(harpe_profiling_result_copy(&again, &copy, &failure));
    harpe_profiling_result_free(&again);
    harpe_profiling_result_free(&again);
    assert_same(result, &copy);
}

static void check_values(const json_t *list, const double *values, size_t count) {
    assert_int_equal(json_array_size(list), count);
    for (size_t i = 0; i < count; i++)
        assert_true(json_number_value(json_array_get(list, i)) == values[i]);
}

/* Compares with an independent reader. */
static void check_against_jansson(const json_t *expected, const harpe_profiling_result *result) {
    assert_int_equal(json_integer_value(json_object_get(expected, "rank")), result->rank);
    check_values(json_object_get(expected, "iter_time"), result->iteration_time_s,
                 result->iteration_time_count);
    check_values(json_object_get(expected, "iter_energy"), result->iteration_energy_j,
                 result->iteration_energy_count);
    const json_t *breakdowns = json_object_get(expected, "energy_breakdown");
    assert_int_equal(json_object_size(breakdowns), result->energy_breakdown_count);
    for (size_t i = 0; i < result->energy_breakdown_count; i++) {
        const harpe_breakdown *one = &result->energy_breakdown[i];
        const json_t *iterations = json_object_get(breakdowns, one->instruction);
        assert_int_equal(json_array_size(iterations), one->iteration_count);
        for (size_t k = 0; k < one->iteration_count; k++) {
            check_values(json_array_get(iterations, k), one->values + one->offsets[k],
                         one->counts[k]);
        }
    }
}

TEST(real_results_survive_a_round_trip) {
    const char *folder = getenv("HARPE_DATA");
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/results/bert_a100_pp4_mb32.prof.json",
                   folder ? folder : HARPE_SOURCE_DIR "/../shared/data");
    json_t *all = json_load_file(path, 0, NULL);
    size_t i;
    const json_t *one;
    if (!all) skip_because("data: %s is not there", path);
    assert_in_range(json_array_size(all), 1, 1000);
    json_array_foreach(all, i, one) {
        owned_array char *body = json_dumps(one, 0);
        AT_END(harpe_profiling_result_free) harpe_profiling_result result = decode(body);
        check_against_jansson(one, &result);
        check_round_trip(&result);
    }
    json_decref(all);
}

TEST(odd_results_are_taken) {
    static const char *const bodies[] = {
        "{\"rank\":0,\"iter_time\":[],\"iter_energy\":[]}",
        "{\"rank\":0,\"iter_time\":[],\"iter_energy\":[1],\"time_breakdown\":{}}",
        ("{\"rank\":\"2\",\"iter_time\":[1,\"2.5\",\" 3e2 \",-0.0],\"iter_energy\":[5],"
         "\"time_breakdown\":{\"f\":[[],[1],[]],\"b\":[],\"\":[[]]},\"energy_breakdown\":"
         "{\"f\":[[1e-300,1e300,123456789012345678]]},\"x\":{\"rank\":1}}"),
        ("{\"energy_breakdown\":{\"a\":[[1]],\"b\":[[2]],\"a\":[[3],[4,5]]},\"iter_energy\":[],"
         "\"iter_time\":[9],\"rank\":1,\"iter_time\":[]}"),
        "{\"rank\":0,\"iter_time\":[],\"iter_energy\":[],\"time_breakdown\":{\"\\u00e9\\\"\":[]}}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        AT_END(harpe_profiling_result_free) harpe_profiling_result result = decode(bodies[i]);
        check_round_trip(&result);
    }
}

TEST(the_last_of_repeated_names_counts) {
    AT_END(harpe_profiling_result_free)
    harpe_profiling_result result =
        decode("{\"rank\":1,\"iter_time\":[9],\"iter_energy\":[],\"iter_time\":[1,2],"
               "\"time_breakdown\":{\"a\":[[1]],\"b\":[[2]],\"\\u0061\":[[3],[4,5]]}}");
    assert_int_equal(result.iteration_time_count, 2);
    assert_int_equal(result.time_breakdown_count, 2);
    assert_string_equal(result.time_breakdown[0].instruction, "a");
    assert_int_equal(result.time_breakdown[0].iteration_count, 2);
    assert_int_equal(result.time_breakdown[0].counts[1], 2);
    assert_true(result.time_breakdown[0].values[result.time_breakdown[0].offsets[1]] == 4);
}

TEST(every_bad_value_is_listed_in_order) {
    static const char body[] =
        "{\"energy_breakdown\":{\"f\":[[1,true],3,null],\"g\":null},\"time_breakdown\":[],"
        "\"iter_energy\":[NaN,1e999,\"x\",[],Infinity,\"nan\",null],\"iter_time\":null}";
    static const char *const expected[][2] = {
        {"[\"body\",\"rank\"]", "value_error.missing"},
        {"[\"body\",\"iter_time\"]", "type_error.none.not_allowed"},
        {"[\"body\",\"iter_energy\",0]", "type_error.float"},
        {"[\"body\",\"iter_energy\",1]", "type_error.float"},
        {"[\"body\",\"iter_energy\",2]", "type_error.float"},
        {"[\"body\",\"iter_energy\",3]", "type_error.float"},
        {"[\"body\",\"iter_energy\",4]", "type_error.float"},
        {"[\"body\",\"iter_energy\",5]", "type_error.float"},
        {"[\"body\",\"iter_energy\",6]", "type_error.none.not_allowed"},
        {"[\"body\",\"time_breakdown\"]", "type_error.dict"},
        {"[\"body\",\"energy_breakdown\",\"f\",0,1]", "type_error.float"},
        {"[\"body\",\"energy_breakdown\",\"f\",1]", "type_error.list"},
        {"[\"body\",\"energy_breakdown\",\"f\",2]", "type_error.none.not_allowed"},
        {"[\"body\",\"energy_breakdown\",\"g\"]", "type_error.none.not_allowed"},
    };
    AT_END(harpe_problems_free) harpe_problems problems = {0};
    harpe_profiling_result result = {0};
    assert_false(harpe_profiling_result_decode(body, strlen(body), &result, &problems));
    assert_null(result.iteration_time_s);
    assert_int_equal(harpe_problems_count(&problems), sizeof expected / sizeof *expected);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const json_t *problem = json_array_get(problems.list, i);
        owned_array char *location = json_dumps(json_object_get(problem, "loc"), JSON_COMPACT);
        assert_string_equal(location, expected[i][0]);
        assert_string_equal(json_string_value(json_object_get(problem, "type")), expected[i][1]);
    }
}

/* Twice the instructions take about twice the time. A quadratic reader would need minutes here. */
TEST(many_instruction_names_are_no_trouble) {
    enum { NAMES = 300000, ROOM = 20 };
    owned_array char *body = malloc((size_t)NAMES * ROOM + 100);
    assert_non_null(body);
    char *at = stpcpy(body, "{\"rank\":0,\"iter_time\":[],\"iter_energy\":[],\"time_breakdown\":{");
    for (int i = 0; i < NAMES; i++)
        at += snprintf(at, ROOM, "%s\"n%d\":[]", i > 0 ? "," : "", i % (NAMES / 2));
    (void)stpcpy(at, "}}");
    AT_END(harpe_profiling_result_free) harpe_profiling_result result = decode(body);
    assert_int_equal(result.time_breakdown_count, NAMES / 2);
}
