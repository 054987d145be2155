/* SPDX-License-Identifier: Apache-2.0 */
/* frontier.csv and bound.csv: written files read back to the last digit, a damaged file is refused
 * with the place of the damage, and percentages are correct. */
#include "test.h"

#include <math.h>

#include <unistd.h>

#include "base/scratch.h"
#include "plan/plan_file.h"

#include "instances.h"

static char path[64]; /* text of the file that a test writes and reads */

static int make_path(void **state) {
    (void)state;
    strcpy(path, "/tmp/harpe-test-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0) return -1;
    close(fd);
    return 0;
}

static int remove_path(void **state) {
    (void)state;
    return unlink(path);
}

TEST(a_row_compares_with_maximum_frequency) {
    harpe_plan maximum = {.time_s = 2, .energy_j = 400};
    harpe_plan plan = {.time_s = 2.1, .energy_j = 300, .lower_bound_j = 240};
    harpe_frontier_row row = harpe_frontier_row_of(&plan, 5, &maximum);
    assert_int_equal(row.plan, 5);
    assert_true(row.slowdown_percent == 5);
    assert_true(row.savings_percent == 25);
    assert_true(row.gap_percent == 25);
    row = harpe_frontier_row_of(&maximum, -1, &maximum);
    assert_true(row.slowdown_percent == 0 && row.savings_percent == 0);
    assert_true(row.gap_percent == 0); /* no known bound */
}

TEST(another_overhead_changes_energies_and_what_follows) {
    harpe_plan maximum = {.time_s = 2, .energy_j = 600, .overhead_energy_j = 200};
    harpe_plan plan = {
        .time_s = 2.5, .energy_j = 550, .lower_bound_j = 500, .overhead_energy_j = 250};
    harpe_frontier_row reference = harpe_frontier_row_of(&maximum, -1, &maximum);
    harpe_frontier_row row = harpe_frontier_row_of(&plan, 0, &maximum);
    row.peak_power_w = 700;
    row.swing_w = 90;
    harpe_frontier_row_set_overhead(&reference, 0, &reference);
    harpe_frontier_row_set_overhead(&row, 0, &reference);
    assert_true(reference.energy_j == 400 && reference.savings_percent == 0);
    assert_true(row.energy_j == 300 && row.lower_bound_j == 250 && row.overhead_energy_j == 0);
    assert_true(row.gap_percent == 20 && row.savings_percent == 25);
    assert_true(row.peak_power_w == 600 && row.swing_w == 90);
    assert_true(row.time_s == 2.5 && row.slowdown_percent == 25);
}

TEST(what_is_written_reads_back_exactly) {
    harpe_frontier_row rows[2] = {
        {1, 1.0 / 3, 2.0 / 3, 0.1 + 0.2, 0.019, 1e-9, 12345678.9, 83.64, -0.6, 11.25, 17.5, 4000.5,
         812.25, 0.7 / 3, 5.1 / 3, 0, 0},
        {0, 3.5, 4942.11711668, 4892.6959455132, 1.010101, 4159.2, 782.9, 176.2, 17.2, 19.9, 0,
         3999, 0, 0, 0, 0, 0},
    };
    harpe_text text = {0};
    harpe_frontier_csv_format(&text, rows, 2);
    assert_false(text.failed);
    put_file(path, text.data);
    harpe_text_free(&text);
    owned_array harpe_frontier_row *found = NULL;
    size_t count = 0;
    assert_works(harpe_frontier_csv_read(path, &found, &count, &failure));
    assert_int_equal(count, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(found[i].plan, rows[i].plan);
        assert_true(found[i].time_s == rows[i].time_s);
        assert_true(found[i].energy_j == rows[i].energy_j);
        assert_true(found[i].lower_bound_j == rows[i].lower_bound_j);
        assert_true(found[i].gap_percent == rows[i].gap_percent);
        assert_true(found[i].compute_energy_j == rows[i].compute_energy_j);
        assert_true(found[i].blocking_energy_j == rows[i].blocking_energy_j);
        assert_true(found[i].average_power_w == rows[i].average_power_w);
        assert_true(found[i].change_energy_j == rows[i].change_energy_j);
        assert_true(found[i].slowdown_percent == rows[i].slowdown_percent);
        assert_true(found[i].savings_percent == rows[i].savings_percent);
        assert_true(found[i].overhead_energy_j == rows[i].overhead_energy_j);
        assert_true(found[i].peak_power_w == rows[i].peak_power_w);
        assert_true(found[i].swing_w == rows[i].swing_w);
        assert_true(found[i].swing_hz == rows[i].swing_hz);
    }
}

TEST(the_header_is_the_documented_one) {
    owned_text text = {0};
    harpe_frontier_csv_format(&text, NULL, 0);
    assert_string_equal(text.data,
                        "plan,time_s,energy_j,lower_bound_j,gap_percent,compute_energy_j,"
                        "blocking_energy_j,average_power_w,slowdown_percent,savings_percent,"
                        "overhead_energy_j,peak_power_w,swing_w,swing_hz,change_energy_j\n");
    harpe_text_free(&text);
    const harpe_frontier_vertex vertices[] = {{1.5, 100, 20}, {2, 95.25, 0}};
    harpe_bound_csv_format(&text, vertices, 2);
    assert_string_equal(text.data, "time_s,lower_bound_j,marginal_w\n1.5,100,20\n2,95.25,0\n");
}

static void assert_refused(const char *text, const char *message) {
    put_file(path, text);
    harpe_frontier_row *rows = NULL;
    size_t count = 7;
    assert_int_not_equal(harpe_frontier_csv_read(path, &rows, &count, &failure), HARPE_OK);
    assert_null(rows);
    assert_int_equal(count, 7);
    assert_says(&failure, message);
}

#define HEADER \
    "plan,time_s,energy_j,lower_bound_j,gap_percent,compute_energy_j,blocking_energy_j," \
    "average_power_w,slowdown_percent,savings_percent\n"

TEST(damaged_files_are_refused) {
    assert_refused("", "empty");
    assert_refused("plan,time_s\n", ":1: the column 'energy_j' is missing");
    assert_refused("time,energy\n1,2\n", ":1: the column 'plan' is missing");
    assert_refused(HEADER, "no plans in it");
    assert_refused(HEADER "0,1,2,3\n", ":2:7: expected 10 fields as in the header, not 4");
    assert_refused(HEADER "0,1,x,3,4,5,6,7,8,9\n", ":2:5: energy_j");
    assert_refused(HEADER "0,1,nan,3,4,5,6,7,8,9\n", ":2:5: energy_j");
    assert_refused(HEADER "-1,1,2,3,4,5,6,7,8,9\n", ":2:1: plan");
    assert_refused(HEADER "0,0,2,3,4,5,6,7,8,9\n", ":2:3: time_s");
}

TEST(a_million_plans_are_the_limit) {
    static const char row[] = "0,1,2,3,4,5,6,7,8,9\n";
    owned_text text = {0};
    harpe_text_append(&text, HEADER, strlen(HEADER));
    for (int i = 0; i < 1000001; i++)
        harpe_text_append(&text, row, sizeof row - 1);
    assert_false(text.failed);
    assert_refused(text.data, ":1000002: more than 1000000 plans");
}

TEST(columns_may_stand_in_any_order) {
    put_file(
        path,
        "savings_percent,plan,time_s,energy_j,lower_bound_j,gap_percent,compute_energy_j,"
        "blocking_energy_j,average_power_w,slowdown_percent,note\n9,3,1,2,3,4,5,6,7,8,hello\n");
    owned_array harpe_frontier_row *rows = NULL;
    size_t count = 0;
    assert_works(harpe_frontier_csv_read(path, &rows, &count, &failure));
    assert_int_equal(count, 1);
    assert_int_equal(rows[0].plan, 3);
    assert_true(rows[0].savings_percent == 9 && rows[0].slowdown_percent == 8);
}

/* Files of older versions lack the columns after savings_percent. */
TEST(columns_that_older_files_lack_are_not_invented) {
    put_file(path, HEADER "0,1,2,3,4,5,6,7,8,9\n");
    owned_array harpe_frontier_row *rows = NULL;
    size_t count = 0;
    assert_works(harpe_frontier_csv_read(path, &rows, &count, &failure));
    assert_true(rows[0].overhead_energy_j == 0);
    assert_true(isnan(rows[0].peak_power_w) && isnan(rows[0].swing_w) && isnan(rows[0].swing_hz));
    assert_refused("swing_w," HEADER "x,0,1,2,3,4,5,6,7,8,9\n", ":2:1: swing_w");
}

int main(void) { return run_listed_tests_within(make_path, remove_path); }
