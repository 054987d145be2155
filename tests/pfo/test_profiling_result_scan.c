/* SPDX-License-Identifier: Apache-2.0 */
/* The quick look at a result: what it takes, the whole reader takes too, with the same rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "pfo/models.h"

static const char USUAL[] =
    "{\"rank\": 12, \"iter_time\": [6.8, 1e-3, -2.5E+10], \"iter_energy\": [900.1, 0, "
    "12345678901],\n"
    " \"time_breakdown\": {\"forward\": [[0.070123456789012345, 1], []], \"backward\": []},"
    " \"energy_breakdown\": {}}";

static void usual_results_are_known_at_a_glance(void **state) {
    (void)state;
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

static void everything_else_is_left_to_the_whole_reader(void **state) {
    (void)state;
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
    };
    int rank = -1;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        if (harpe_profiling_result_scan(bodies[i], strlen(bodies[i]), &rank))
            fail_msg("%s", bodies[i]);
    }
    assert_int_equal(rank, -1);
    char digits[512] = "{\"rank\":0,\"iter_energy\":[],\"iter_time\":[";
    size_t length = strlen(digits);
    memset(digits + length, '9', 400);
    memcpy(digits + length + 400, "]}", sizeof "]}");
    assert_false(harpe_profiling_result_scan(digits, strlen(digits), &rank));
}

/* One to four bytes changed at random, and every beginning. */
static void what_it_takes_the_whole_reader_takes(void **state) {
    (void)state;
    static const char bytes[] = "0123456789-+.eE,:[]{}\" \n\\aN\x80\x01";
    int taken = 0;
    srand(7);
    for (int i = 0; i < 100000; i++) {
        char body[sizeof USUAL];
        memcpy(body, USUAL, sizeof body);
        size_t length = i % 4 ? sizeof body - 1 : (size_t)rand() % sizeof body;
        for (int k = rand() % 4; k >= 0; k--) {
            body[(size_t)rand() % (sizeof body - 1)] = bytes[(size_t)rand() % (sizeof bytes - 1)];
        }
        char *exact = malloc(length + 1); /* so that a byte too far is seen */
        memcpy(exact, body, length);
        int rank = -1;
        bool is_plain = harpe_profiling_result_scan(exact, length, &rank);
        harpe_profiling_result result = {0};
        if (is_plain) {
            taken++;
            if (harpe_profiling_result_parse(exact, length, &result, NULL)) {
                fail_msg("%.*s", (int)length, exact);
            }
            assert_int_equal(result.rank, rank);
            harpe_profiling_result_free(&result);
        }
        free(exact);
    }
    assert_in_range(taken, 1000, 99000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usual_results_are_known_at_a_glance),
        cmocka_unit_test(everything_else_is_left_to_the_whole_reader),
        cmocka_unit_test(what_it_takes_the_whole_reader_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
