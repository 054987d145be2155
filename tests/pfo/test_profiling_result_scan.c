/* SPDX-License-Identifier: Apache-2.0 */
/* The quick scan of a result: the full reader accepts all results that the scan accepts, with the
 * same rank and with the numbers that another library reads. */
#include "test.h"

#include <jansson.h>

#include "pfo/models.h"
#include "pfo/result_scan.h"

static const char USUAL[] =
    "{\"rank\": 12, \"iter_time\": [6.8, 1e-3, -2.5E+10], \"iter_energy\": [900.1, 0, "
    "12345678901],\n"
    " \"time_breakdown\": {\"forward\": [[0.070123456789012345, 1], []], \"backward\": []},"
    " \"energy_breakdown\": {}}";

TEST(usual_results_are_known_at_a_glance) {
    static const struct {
        const char *body;
        int rank;
    } cases[] = {
        {USUAL, 12},
        {"{\"rank\":0,\"iter_time\":[],\"iter_energy\":[]}", 0},
        {"\t{ \"iter_energy\" : [ 1 , 2 ] , \"iter_time\" : [ ] , \"rank\" : 7 }\r\n", 7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int rank = -1;
        assert_true(harpe_profiling_result_scan(cases[i].body, strlen(cases[i].body), &rank));
        assert_int_equal(rank, cases[i].rank);
    }
}

TEST(everything_else_is_left_to_the_whole_reader) {
    static const char *const bodies[] = {
        "",
        "[]",
        "null",
        "{}",
        "{\"rank\":0,\"iter_time\":[]}",
        "{\"rank\":0,\"iter_time\":[],\"iter_energy\":[]",
        "{\"rank\":0,\"iter_time\":[],\"iter_energy\":[]}x",
        "{\"rank\":0,\"iter_time\":[],\"iter_energy\":[],}",
        "{\"rank\":0,\"rank\":1,\"iter_time\":[],\"iter_energy\":[]}",
        "{\"rank\":0,\"iter_time\":[],\"iter_energy\":[],\"other\":1}",
        "{\"rank\":\"0\",\"iter_time\":[],\"iter_energy\":[]}",
        "{\"rank\":1.0,\"iter_time\":[],\"iter_energy\":[]}",
        "{\"rank\":-1,\"iter_time\":[],\"iter_energy\":[]}",
        "{\"rank\":01,\"iter_time\":[],\"iter_energy\":[]}",
        "{\"rank\":99999999999,\"iter_time\":[],\"iter_energy\":[]}",
        "{\"rank\":0,\"iter_time\":[1e999],\"iter_energy\":[]}",
        "{\"rank\":0,\"iter_time\":[NaN],\"iter_energy\":[]}",
        "{\"rank\":0,\"iter_time\":[01],\"iter_energy\":[]}",
        "{\"rank\":0,\"iter_time\":[1.],\"iter_energy\":[]}",
        "{\"rank\":0,\"iter_time\":[1e],\"iter_energy\":[]}",
        "{\"rank\":0,\"iter_time\":[.5],\"iter_energy\":[]}",
        "{\"rank\":0,\"iter_time\":[1,],\"iter_energy\":[]}",
        "{\"rank\":0,\"iter_time\":null,\"iter_energy\":[]}",
        "{\"rank\":0,\"iter_time\":[],\"iter_energy\":[],\"time_breakdown\":{\"\\n\":[]}}",
        "{\"rank\":0,\"iter_time\":[],\"iter_energy\":[],\"time_breakdown\":{\"\xC3\xA4\":[]}}",
        "{\"rank\":0,\"iter_time\":[],\"iter_energy\":[],\"time_breakdown\":{\"f\":[1]}}",
        "{\"rank\":0,\"iter_time\":[],\"iter_energy\":[],\"time_breakdown\":{\"f\":[],\"f\":[]}}",
    };
    int rank = -1;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        if (harpe_profiling_result_scan(bodies[i], strlen(bodies[i]), &rank))
            fail_msg("%s", bodies[i]);
    assert_int_equal(rank, -1);
    char digits[512] = "{\"rank\":0,\"iter_energy\":[],\"iter_time\":[";
    size_t length = strlen(digits);
    memset(digits + length, '9', 400);
    memcpy(digits + length + 400, "]}", sizeof "]}");
    assert_false(harpe_profiling_result_scan(digits, strlen(digits), &rank));
}

/* ---- Beside the whole reader ----------------------------------------------------------------- */

static void expect_numbers(const json_t *list, const double *values, size_t count) {
    assert_int_equal(json_array_size(list), count);
    for (size_t i = 0; i < count; i++)
        assert_true(json_number_value(json_array_get(list, i)) == values[i]);
}

static void expect_breakdown(const json_t *object, const harpe_breakdown *all, size_t count) {
    assert_int_equal(json_object_size(object), count);
    for (size_t i = 0; i < count; i++) {
        const json_t *lists = json_object_get(object, all[i].instruction);
        assert_int_equal(json_array_size(lists), all[i].iteration_count);
        for (size_t k = 0; k < all[i].iteration_count; k++) {
            expect_numbers(json_array_get(lists, k), all[i].values + all[i].offsets[k],
                           all[i].counts[k]);
        }
    }
}

/* Returns true if the quick scan accepted the result. All readers must then agree on its content.
 */
static bool is_taken_by_all(const char *body, size_t length) {
    int rank = -1;
    harpe_result_totals totals;
    if (!harpe_profiling_result_scan_totals(body, length, &rank, &totals)) return false;
    AT_END(harpe_profiling_result_free) harpe_profiling_result result = {0};
    json_t *other = json_loadb(body, length, JSON_DECODE_INT_AS_REAL, NULL);
    if (!other || harpe_profiling_result_parse(body, length, &result, NULL))
        fail_msg("%.*s", (int)length, body);
    assert_int_equal(result.rank, rank);
    harpe_result_totals summed = harpe_profiling_result_totals(&result);
    assert_int_equal(totals.iterations, summed.iterations);
    assert_true(totals.time_s == summed.time_s && totals.energy_j == summed.energy_j);
    expect_numbers(json_object_get(other, "iter_time"), result.iteration_time_s,
                   result.iteration_time_count);
    expect_numbers(json_object_get(other, "iter_energy"), result.iteration_energy_j,
                   result.iteration_energy_count);
    expect_breakdown(json_object_get(other, "time_breakdown"), result.time_breakdown,
                     result.time_breakdown_count);
    expect_breakdown(json_object_get(other, "energy_breakdown"), result.energy_breakdown,
                     result.energy_breakdown_count);
    json_decref(other);
    return true;
}

TEST(no_number_is_too_long_for_the_whole_reader) {
    static const struct {
        const char *before, *after;
    } forms[] = {{"", ""},   {"-", ""},      {"0.", ""}, {"-0.", ""},
                 {"", ".5"}, {"7.", "e-99"}, {"", "e99"}};
    char digits[3001], body[3200];
    for (size_t i = 0; i < sizeof digits - 1; i++)
        digits[i] = (char)('1' + i % 9);
    for (size_t form = 0; form < sizeof forms / sizeof *forms; form++) {
        int taken = 0;
        for (int count = 1; count <= 3000; count += count < 450 ? 1 : 850) {
            int length = snprintf(body, sizeof body,
                                  "{\"rank\":0,\"iter_time\":[%s%.*s%s],\"iter_energy\":[]}",
                                  forms[form].before, count, digits, forms[form].after);
            taken += is_taken_by_all(body, (size_t)length);
        }
        assert_in_range(taken, 150, 400);
    }
}

/* Changes one to four bytes at random, and tries every prefix. */
TEST(what_it_takes_the_whole_reader_takes) {
    static const char bytes[] = "0123456789-+.eE,:[]{}\" \n\\aN\x80\x01";
    int taken = 0;
    srand(7);
    for (int i = 0; i < 100000; i++) {
        char body[sizeof USUAL];
        memcpy(body, USUAL, sizeof body);
        size_t length = i % 4 ? sizeof body - 1 : (size_t)rand() % sizeof body;
        for (int k = rand() % 4; k >= 0; k--)
            body[(size_t)rand() % (sizeof body - 1)] = bytes[(size_t)rand() % (sizeof bytes - 1)];
        owned_array char *exact = malloc(length + 1); /* so that a read past the end is detected */
        memcpy(exact, body, length);
        taken += is_taken_by_all(exact, length);
    }
    assert_in_range(taken, 1000, 99000);
}
