/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of switching latencies: what is read, what is refused with which message, the latencies
 * between and outside of the rows, and the problem that gets them. */
#include "test.h"

#include "base/text.h"
#include "instances.h"
#include "plan/problem.h"

#define HEADER "gpu,frequency,latency_s,latency_p95_s,call_s,samples\n"

static harpe_latencies table_of(const char *text) {
    harpe_latencies table;
    assert_works(harpe_latencies_parse_csv(text, strlen(text), "s.csv", &table, &failure));
    return table;
}

TEST(rows_are_read_in_any_order) {
    static const char *const texts[] = {
        HEADER "A100,1410,0.02,0.03,0.002,7\nA100,210,0.06,0.07,0.002,7\n",
        "\xEF\xBB\xBF\"latency_s\",frequency\r\n2e-2,1410\r\n\r\n\"0.06\",210",
        "other,latency_s,gpu,frequency\n-,0.06,\"A, B\",210\nx,0.02,\"A, B\",1410\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        harpe_latencies table = table_of(texts[i]);
        assert_int_equal(table.count, 2);
        assert_int_equal(table.items[0].frequency_mhz, 210);
        assert_true(table.items[0].latency_s == 0.06);
        assert_int_equal(table.items[1].frequency_mhz, 1410);
        assert_true(table.items[1].latency_s == 0.02);
        free(table.items);
    }
}

TEST(bad_tables_are_refused) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "s.csv:1:1: the file is empty; expected the table that 'harpe profile switch"},
        {"\n\n", "s.csv:1:1: the file is empty"},
        {"frequency,latency\n1,1\n", "s.csv:1:1: missing column 'latency_s'; the first line must"},
        {"latency_s\n1\n", "s.csv:1:1: missing column 'frequency'"},
        {"frequency,latency_s,frequency\n1,1,1\n", "s.csv:1:21: this column is there twice"},
        {HEADER, "s.csv:2:1: no rows after the header; expected a row for each measured clock"},
        {HEADER "A,1,1,1,1\n", "s.csv:2:9: expected 6 fields as in the header, not 5"},
        {HEADER "A,1,1,1,1,1,1\n", "s.csv:2:13: expected 6 fields as in the header, not 7"},
        {HEADER "A,0,1,1,1,1\n", "s.csv:2:3: frequency must be a whole number of MHz from 1 to"},
        {HEADER "A,100001,1,1,1,1\n", "s.csv:2:3: frequency must be"},
        {HEADER "A,1.5,1,1,1,1\n", "s.csv:2:3: frequency must be"},
        {HEADER "A,,1,1,1,1\n", "s.csv:2:3: frequency must be"},
        {HEADER "A,9,-1e-9,1,1,1\n", "s.csv:2:5: latency_s must be a number of seconds from 0"},
        {HEADER "A,9,3600.1,1,1,1\n", "s.csv:2:5: latency_s must be"},
        {HEADER "A,9,nan,1,1,1\n", "s.csv:2:5: latency_s must be"},
        {HEADER "A,9,,1,1,1\n", "s.csv:2:5: latency_s must be"},
        {HEADER "A,9,1,1,1,1\nA,8,1,1,1,1\nA,9,1,1,1,1\n",
         "s.csv:4:1: the same frequency 9 MHz as in line 2; remove one"},
        {HEADER "A,9,1,1,1,1\n\nB,8,1,1,1,1\n",
         "s.csv:4:1: another GPU than in line 2; a table is for one model of GPU"},
        {"frequency,latency_s\n\"9,1\n", "s.csv:2:1: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        harpe_latencies table = {0};
        assert_refuses(harpe_latencies_parse_csv(cases[i].text, strlen(cases[i].text), "s.csv",
                                                 &table, &failure),
                       HARPE_INVALID_INPUT, cases[i].says);
        assert_null(table.items);
    }
}

TEST(large_tables_are_refused) {
    owned_text text = {0};
    harpe_latencies table;
    harpe_text_printf(&text, "frequency,latency_s\n");
    for (size_t i = 1; i <= HARPE_SWITCH_TABLE_ROWS_MAX; i++)
        harpe_text_printf(&text, "%zu,0.1\n", i);
    assert_works(harpe_latencies_parse_csv(text.data, text.length, "s.csv", &table, &failure));
    assert_int_equal(table.count, HARPE_SWITCH_TABLE_ROWS_MAX);
    free(table.items);
    harpe_text_printf(&text, "99999,0.1\n");
    assert_refuses(harpe_latencies_parse_csv(text.data, text.length, "s.csv", &table, &failure),
                   HARPE_LIMIT_EXCEEDED, "s.csv:4098:1: more than 4096 rows");
    while (text.length <= (size_t)1 << 20)
        harpe_text_printf(&text, "%1000s", "\n");
    assert_int_equal(harpe_latencies_parse_csv(text.data, text.length, "s.csv", &table, &failure),
                     HARPE_LIMIT_EXCEEDED);
    assert_string_equal(failure.message, "s.csv: larger than 1 MiB");
}

TEST(a_missing_file_is_named) {
    harpe_latencies table = {0};
    assert_int_not_equal(harpe_latencies_read_csv("/no/such/s.csv", &table, &failure), HARPE_OK);
    assert_says(&failure, "/no/such/s.csv");
    assert_null(table.items);
}

/* Each row is at its frequency; the values between two rows are on the line through them. */
TEST(latencies_are_interpolated) {
    test_random random = {.state = 7};
    for (int trial = 0; trial < test_trials(50); trial++) {
        harpe_latency rows[9];
        harpe_latencies table = {.items = rows, .count = (size_t)random_int(&random, 1, 9)};
        for (size_t i = 0; i < table.count; i++) {
            int step_mhz = random_int(&random, 1, i == 0 ? 300 : 90);
            rows[i] =
                (harpe_latency){.owner = HARPE_LATENCY_OF_ALL,
                                .frequency_mhz = (i > 0 ? rows[i - 1].frequency_mhz : 0) + step_mhz,
                                .latency_s = random_between(&random, 0, 0.5)};
        }
        const harpe_latency *last = &rows[table.count - 1];
        assert_true(harpe_latencies_find(&table, 3, 0) == 0);
        for (int mhz = 1; mhz < rows[0].frequency_mhz; mhz++)
            assert_true(harpe_latencies_find(&table, 3, mhz) == rows[0].latency_s);
        for (size_t i = 0; i + 1 < table.count; i++) {
            int apart_mhz = rows[i + 1].frequency_mhz - rows[i].frequency_mhz;
            double slope = (rows[i + 1].latency_s - rows[i].latency_s) / apart_mhz;
            for (int step = 0; step < apart_mhz; step++)
                assert_near(harpe_latencies_find(&table, 3, rows[i].frequency_mhz + step),
                            rows[i].latency_s + slope * step, 1e-9);
        }
        for (int above = 0; above < 9; above++)
            assert_true(harpe_latencies_find(&table, 3, last->frequency_mhz + above) ==
                        last->latency_s);
    }
}

/* The table replaces the latencies of the profile, on all ranks. */
TEST(a_problem_gets_the_latencies) {
    owned_rows rows = {0};
    for (int stage = 0; stage < 2; stage++)
        for (int k = 0; k < 3; k++) {
            add_row(&rows, stage, "forward", 1400 - 200 * k, 1 + k, 300 - 10 * k);
            add_row(&rows, stage, "backward", 1400 - 200 * k, 2 + k, 600 - 10 * k);
        }
    for (size_t i = 0; i < rows.count; i++)
        rows.rows[i].switch_latency_s = 9;
    owned_problem problem = problem_1f1b(&rows, 2, 2, 50);
    harpe_latencies table = table_of("frequency,latency_s\n1100,0.5\n1300,0.25\n");
    assert_true(harpe_problem_switch_latency_s(problem, 1, 1200) == 9);
    free(problem->latencies.items);
    problem->latencies = table;
    assert_true(harpe_problem_has_switch_latency(problem));
    for (int rank = 0; rank < 2; rank++) {
        assert_true(harpe_problem_switch_latency_s(problem, rank, 1000) == 0.5);
        assert_true(harpe_problem_switch_latency_s(problem, rank, 1200) == 0.375);
        assert_true(harpe_problem_switch_latency_s(problem, rank, 1400) == 0.25);
    }
}
