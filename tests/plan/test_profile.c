/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles: the accepted files, the aggregation of rows, and the text of every refusal. Files are
 * created in a temporary directory. Measured files are read, or skipped if they are missing. */
#include "test.h"

#include <float.h>
#include <math.h>
#include <unistd.h>

#include <harpe/profile.h>

#include "base/scratch.h"
#include "base/text.h"
#include "plan/profiles.h"

#include "instances.h"

#define HEADER "stage,instruction,frequency,time,energy\n"
#define RANK_HEADER "rank,stage,instruction,frequency,time,energy\n"

static harpe_profile *parse(const char *text) {
    harpe_profile *profile = NULL;
    harpe_status status = harpe_profile_parse_csv(text, strlen(text), "p.csv", &profile, &failure);
    if (status != HARPE_OK) fail_msg("%s", failure.message);
    return profile;
}

/* Checks that the text is refused, the output is not changed, and the message begins with
 * `expected`. */
static void assert_refused_bytes(const char *text, size_t length, harpe_status status,
                                 const char *expected) {
    harpe_profile *const untouched = (harpe_profile *)&status;
    harpe_profile *profile = untouched;
    assert_int_equal(harpe_profile_parse_csv(text, length, "p.csv", &profile, &failure), status);
    if (strncmp(failure.message, expected, strlen(expected)) != 0)
        fail_msg("expected '%s', got '%s'", expected, failure.message);
    assert_null(strchr(failure.message, '\n'));
    assert_int_equal(failure.status, status);
    assert_ptr_equal(profile, untouched);
    assert_int_equal(harpe_profile_parse_csv(text, length, "p.csv", &profile, NULL), status);
}

static void assert_refused(const char *text, const char *expected) {
    assert_refused_bytes(text, strlen(text), HARPE_INVALID_INPUT, expected);
}

static void assert_point(const harpe_profile *profile, int stage, const char *instruction,
                         size_t index, int frequency_mhz, double time_s, double energy_j) {
    const harpe_profile_entry *entry = harpe_profile_find(profile, stage, instruction);
    assert_non_null(entry);
    assert_true(index < entry->point_count);
    assert_int_equal(entry->points[index].frequency_mhz, frequency_mhz);
    assert_true(fabs(entry->points[index].time_s - time_s) <= 1e-15 * time_s);
    assert_true(fabs(entry->points[index].energy_j - energy_j) <= 1e-15 * energy_j);
}

/* ---- Accepted profiles ----------------------------------------------------------------------- */

TEST(entries_and_points_are_sorted) {
    owned_profile profile = parse(HEADER "1,forward,1410,0.5,10\n"
                                         "0,forward,900,2,5\n"
                                         "0,forward,1410,1,7\n"
                                         "0,backward,1410,3,8\n"
                                         "0,forward,1200,1.5,6\n");
    assert_int_equal(harpe_profile_stage_count(profile), 2);
    assert_int_equal(harpe_profile_entry_count(profile), 3);
    assert_string_equal(harpe_profile_entry_at(profile, 0)->instruction, "backward");
    assert_string_equal(harpe_profile_entry_at(profile, 1)->instruction, "forward");
    assert_int_equal(harpe_profile_entry_at(profile, 2)->stage, 1);
    assert_null(harpe_profile_entry_at(profile, 3));
    assert_point(profile, 0, "forward", 0, 1410, 1, 7);
    assert_point(profile, 0, "forward", 1, 1200, 1.5, 6);
    assert_point(profile, 0, "forward", 2, 900, 2, 5);
    assert_null(harpe_profile_find(profile, 1, "backward"));
    assert_null(harpe_profile_find(profile, 2, "forward"));
    assert_null(harpe_profile_find(profile, -1, "forward"));
    assert_null(harpe_profile_find(profile, 0, "forwar"));
    assert_null(harpe_profile_find(profile, 0, NULL));
    assert_null(harpe_profile_find(NULL, 0, "forward"));
}

TEST(columns_come_in_any_order_among_others) {
    owned_profile profile = parse("energy,comment,time,\"stage\",frequency,instruction\n"
                                  "10,\"a, b\",0.5,0,1410,forward\n");
    assert_point(profile, 0, "forward", 0, 1410, 0.5, 10);
}

TEST(windows_and_sloppy_files_are_read) {
    owned_profile profile = parse("\xEF\xBB\xBF\r\n"
                                  "stage, instruction ,frequency,time,energy\r\n"
                                  "\r\n"
                                  "0,forward,1410,0.5,10\r\n"
                                  "  \r\n"
                                  " 0 , forward , 1395 , 5.1e-1 , 9 \r\n"
                                  "\r\n"
                                  "0,backward,1410,1,20");
    assert_int_equal(harpe_profile_entry_count(profile), 2);
    assert_point(profile, 0, "forward", 1, 1395, 0.51, 9);
}

TEST(frequency_may_be_written_as_float_or_zero) {
    owned_profile profile = parse(HEADER "0,forward,1410.0,0.5,10\n"
                                         "0,forward,1410,0.51,10.5\n"
                                         "0,load,0,0.1,1\n");
    assert_int_equal(harpe_profile_find(profile, 0, "forward")->point_count, 1);
    assert_point(profile, 0, "forward", 0, 1410, 0.505, 10.25);
    assert_point(profile, 0, "load", 0, 0, 0.1, 1);
}

TEST(limits_themselves_are_accepted) {
    owned_text text = {0};
    harpe_text_printf(&text, HEADER);
    for (int stage = 0; stage <= HARPE_STAGE_MAX; stage++)
        harpe_text_printf(&text, "%d,Az09_.:-,%d,1e-9,1e9\n", stage, HARPE_FREQUENCY_MAX_MHZ);
    harpe_text_printf(&text, "0,%0*d,1,1e6,1\n", HARPE_INSTRUCTION_NAME_MAX, 7);
    owned_profile profile = parse(text.data);
    assert_int_equal(harpe_profile_stage_count(profile), HARPE_STAGE_MAX + 1);
    assert_int_equal(harpe_profile_entry_count(profile), HARPE_STAGE_MAX + 2);
}

/* ---- Aggregation ----------------------------------------------------------------------------- */

TEST(repeats_without_rank_are_averaged) {
    owned_profile profile = parse(HEADER "0,forward,1410,1,10\n"
                                         "0,backward,1410,9,90\n"
                                         "0,forward,1410,1.02,10.5\n"
                                         "0,forward,1410,1.04,10.7\n");
    assert_point(profile, 0, "forward", 0, 1410, 1.02, 10.4);
    assert_point(profile, 0, "backward", 0, 1410, 9, 90);
    assert_int_equal(harpe_profile_repeat_count(profile), 1);
    const harpe_profile_repeat *repeat = harpe_profile_repeat_at(profile, 0);
    assert_int_equal(repeat->stage, 0);
    assert_int_equal(repeat->rank, -1);
    assert_string_equal(repeat->instruction, "forward");
    assert_int_equal(repeat->frequency_mhz, 1410);
    assert_int_equal(repeat->row_count, 3);
    assert_int_equal(repeat->first_row, 2);
    assert_int_equal(repeat->last_row, 5);
    assert_true(fabs(repeat->time_spread - 0.04) < 1e-12);
    assert_true(fabs(repeat->energy_spread - 0.07) < 1e-12);
    assert_null(harpe_profile_repeat_at(profile, 1));
}

TEST(ranks_give_longest_time_and_energy_sum) {
    /* Rank 5 repeats its measurement. It is averaged (2 s, 30 J) before the comparison with rank 4,
     * which may differ by any amount. */
    owned_profile profile = parse("rank,dp_rank,pp_rank,tp_rank,stage,instruction,frequency,time,"
                                  "energy\n"
                                  "5,0,0,1,0,forward,1410,1.98,29\n"
                                  "4,0,0,0,0,forward,1410,1.5,100\n"
                                  "5,0,0,1,0,forward,1410,2.02,31\n"
                                  "6,0,1,0,1,forward,1410,7,70\n");
    assert_point(profile, 0, "forward", 0, 1410, 2, 130);
    assert_point(profile, 1, "forward", 0, 1410, 7, 70);
    assert_int_equal(harpe_profile_repeat_count(profile), 1);
    assert_int_equal(harpe_profile_repeat_at(profile, 0)->rank, 5);
}

TEST(nothing_is_noted_where_nothing_repeats) {
    owned_profile profile = parse(RANK_HEADER "0,0,forward,1410,1,10\n"
                                              "1,0,forward,1410,1,10\n"
                                              "0,0,forward,1395,1,10\n"
                                              "1,0,forward,1395,1,10\n");
    assert_int_equal(harpe_profile_repeat_count(profile), 0);
    assert_null(harpe_profile_repeat_at(profile, 0));
}

/* One bad row must not change a mean without a message. */
TEST(repeats_that_disagree_are_refused_with_both_lines) {
    assert_refused(HEADER "0,forward,1410,1,10\n"
                          "0,forward,1395,1,10\n"
                          "0,forward,1410,1.06,10\n",
                   "p.csv:4:1: stage 0, instruction 'forward' at 1410 MHz has time 1.06 s here and "
                   "1 s in line 2; repeats of one measurement agree within 5 %: remove the wrong");
    assert_refused(HEADER "0,forward,1410,1,11.1\n"
                          "0,forward,1410,1,10.5\n"
                          "0,forward,1410,1,10\n",
                   "p.csv:4:1: stage 0, instruction 'forward' at 1410 MHz has energy 10 J here and "
                   "11.1 J in line 2; repeats of one measurement agree within 10 %: remove");
    /* Energy in mJ, or a time in ms. */
    assert_refused(HEADER "0,f,0,1,10\n0,f,0,1,10000\n", "p.csv:3:1: stage 0, instruction 'f'");
    assert_refused(HEADER "0,f,0,1,10\n0,f,0,1000,10\n", "p.csv:3:1: stage 0, instruction 'f'");
    /* By one of several ranks. The measurements of two ranks may differ. */
    assert_refused(RANK_HEADER "0,0,f,9,1,10\n1,0,f,9,2,50\n1,0,f,9,1,50\n",
                   "p.csv:4:1: stage 0, instruction 'f' at 9 MHz has time 1 s here and 2 s in line "
                   "3");
    /* Also if the point is omitted because some ranks lack it. */
    assert_refused(RANK_HEADER "0,0,f,9,1,10\n1,0,f,9,2,50\n1,0,f,8,1,50\n1,0,f,8,1,5\n",
                   "p.csv:5:1:");
    harpe_measurement rows[] = {{0, -1, "f", 9, 1, 10, 1, 0, 0}, {0, -1, "f", 9, 1, 20, 1, 0, 0}};
    harpe_profile *profile = NULL;
    assert_refuses(harpe_profile_new(rows, 2, &profile, &failure), HARPE_INVALID_ARGUMENT,
                   "row 1: stage 0, instruction 'f' at 9 MHz has energy 20 "
                   "J here and 10 J in row 0; ");
}

TEST(repeats_at_the_limit_agree) {
    owned_profile profile = parse(HEADER "0,f,9,1,10\n0,f,9,1.04999,10.999\n");
    assert_int_equal(harpe_profile_repeat_count(profile), 1);
    assert_refused(HEADER "0,f,9,1,10\n0,f,9,1.05001,10\n", "p.csv:3:1: ");
    assert_refused(HEADER "0,f,9,1,10\n0,f,9,1,11.001\n", "p.csv:3:1: ");
}

TEST(only_frequencies_of_all_ranks_are_kept) {
    owned_profile profile = parse(RANK_HEADER "0,0,forward,1410,1,10\n"
                                              "1,0,forward,1410,2,10\n"
                                              "0,0,forward,1395,3,10\n"
                                              "1,0,forward,1380,4,10\n"
                                              "1,0,forward,1365,5,10\n"
                                              "0,0,forward,1365,5,10\n");
    assert_int_equal(harpe_profile_find(profile, 0, "forward")->point_count, 2);
    assert_point(profile, 0, "forward", 0, 1410, 2, 20);
    assert_point(profile, 0, "forward", 1, 1365, 5, 20);
}

TEST(ranks_without_common_frequency_are_refused) {
    assert_refused(RANK_HEADER "0,0,forward,1410,1,10\n"
                               "1,0,forward,1395,2,10\n",
                   "p.csv:2:1: stage 0, instruction 'forward': no frequency was measured by all 2 "
                   "ranks of the stage; profile the same frequencies on every rank");
    /* If a rank of the stage never measured an instruction, its energy is missing too. */
    assert_refused(RANK_HEADER "0,0,forward,1410,1,10\n"
                               "1,0,forward,1410,2,10\n"
                               "1,0,backward,1410,2,10\n",
                   "p.csv:4:1: stage 0, instruction 'backward': no frequency");
}

TEST(order_of_rows_does_not_matter) {
    enum { RANKS = 12, FREQUENCIES = 10, ONCE = RANKS * 2 * FREQUENCIES, COUNT = 3 * ONCE };
    harpe_measurement rows[COUNT];
    srand(7);
    for (int i = 0; i < COUNT; i++) {
        rows[i] = (harpe_measurement){.stage = i % RANKS % 3,
                                      .rank = i % RANKS,
                                      .instruction = i / RANKS % 2 ? "forward" : "backward",
                                      .frequency_mhz = 1200 + 15 * (i / (2 * RANKS) % FREQUENCIES),
                                      .time_s = 1 + rand() % 1000 / 7.0,
                                      .energy_j = 1 + rand() % 1000 / 7.0};
    }
    /* Repeats of equal numbers, so that their sum is exact in any order. */
    for (int i = ONCE; i < COUNT; i++) {
        rows[i].time_s = rows[i - ONCE].time_s;
        rows[i].energy_j = rows[i - ONCE].energy_j;
    }
    owned_profile sorted = NULL;
    owned_profile shuffled = NULL;
    assert_works(harpe_profile_new(rows, COUNT, &sorted, &failure));
    for (int i = COUNT - 1; i > 0; i--) {
        int k = rand() % (i + 1);
        harpe_measurement swap = rows[i];
        rows[i] = rows[k];
        rows[k] = swap;
    }
    assert_works(harpe_profile_new(rows, COUNT, &shuffled, &failure));
    assert_int_equal(harpe_profile_entry_count(sorted), 6);
    for (size_t i = 0; i < 6; i++) {
        const harpe_profile_entry *a = harpe_profile_entry_at(sorted, i);
        const harpe_profile_entry *b = harpe_profile_entry_at(shuffled, i);
        assert_int_equal(a->point_count, FREQUENCIES);
        assert_int_equal(b->point_count, FREQUENCIES);
        for (size_t k = 0; k < FREQUENCIES; k++) {
            assert_int_equal(a->points[k].frequency_mhz, b->points[k].frequency_mhz);
            assert_true(a->points[k].time_s == b->points[k].time_s);
            assert_true(a->points[k].energy_j == b->points[k].energy_j);
        }
    }
}

/* ---- Rows in memory -------------------------------------------------------------------------- */

TEST(rows_in_memory_are_checked_by_index) {
    harpe_measurement rows[] = {{0, -1, "forward", 1410, 1, 10, 1, 0, 0},
                                {0, -1, "backward", 1410, 1, 10, 1, 0, 0}};
    owned_profile profile = NULL;

    rows[1].time_s = -1;
    assert_int_equal(harpe_profile_new(rows, 2, &profile, &failure), HARPE_INVALID_ARGUMENT);
    assert_string_equal(failure.message,
                        "row 1: time must be a positive number of seconds, from 1e-9 to 1e6");
    rows[1].time_s = NAN;
    assert_int_equal(harpe_profile_new(rows, 2, &profile, &failure), HARPE_INVALID_ARGUMENT);
    rows[1].time_s = 1;
    rows[1].energy_j = INFINITY;
    assert_int_equal(harpe_profile_new(rows, 2, &profile, &failure), HARPE_INVALID_ARGUMENT);
    rows[1].energy_j = 1;
    rows[1].instruction = NULL;
    assert_int_equal(harpe_profile_new(rows, 2, &profile, &failure), HARPE_INVALID_ARGUMENT);
    rows[1].instruction = "backward";
    rows[1].stage = 2;
    assert_int_equal(harpe_profile_new(rows, 2, &profile, &failure), HARPE_INVALID_ARGUMENT);
    assert_string_equal(failure.message, "row 1: stage 1 has no rows although stage 2 has; profile "
                                         "every stage and number them from 0 without gaps");
    rows[1].stage = 0;
    rows[1].rank = 3;
    assert_refuses(harpe_profile_new(rows, 2, &profile, &failure), HARPE_INVALID_ARGUMENT,
                   "other rows");
    rows[1].rank = -2;
    assert_int_equal(harpe_profile_new(rows, 2, &profile, &failure), HARPE_INVALID_ARGUMENT);
    assert_null(profile);
    assert_int_equal(harpe_profile_new(rows, 0, &profile, NULL), HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_profile_new(NULL, 1, &profile, NULL), HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_profile_new(rows, 1, NULL, NULL), HARPE_INVALID_ARGUMENT);
    assert_works(harpe_profile_new(rows, 1, &profile, &failure));
    harpe_profile_free(NULL);
}

TEST(names_outlive_the_callers_rows) {
    char name[] = "forward";
    harpe_measurement row = {0, -1, name, 1410, 1, 10, 1, 0, 0};
    owned_profile profile = NULL;
    assert_works(harpe_profile_new(&row, 1, &profile, &failure));
    memset(name, 'x', sizeof name - 1);
    assert_non_null(harpe_profile_find(profile, 0, "forward"));
}

/* ---- Refused profiles ------------------------------------------------------------------------ */

TEST(files_without_rows_are_refused) {
    const char *empty = "p.csv:1:1: the file is empty; expected a header line "
                        "stage,instruction,frequency,time,energy and rows";
    assert_refused("", empty);
    assert_refused("\n\r\n  \n", empty);
    assert_refused("\xEF\xBB\xBF", empty);
    assert_refused(HEADER, "p.csv:2:1: no rows after the header");
    assert_refused("stage,instruction,frequency,time,energy", "p.csv:2:1: no rows");
}

TEST(files_that_are_no_profile_are_refused_where_they_are_none) {
    static const char *const cases[][2] = {
        /* missing and doubled columns are named */
        {"stage,frequency,Time,energy\n0,1410,1,1\n",
         "p.csv:1:1: missing columns 'instruction', 'time' (found 'stage', 'frequency', "
         "'Time', 'energy'); the first line must name the columns "
         "stage,instruction,frequency,time,energy"},
        {"0,forward,1410,1,1\n",
         "p.csv:1:1: missing columns 'stage', 'instruction', 'frequency', 'time', "
         "'energy' (found '0',"},
        {"stage,instruction,frequency,time\n", "p.csv:1:1: missing column 'energy' ("},
        {"time,stage,instruction,frequency,time,energy\n",
         "p.csv:1:34: this column is there twice; remove one (found 'time')"},
        {"rank,stage,instruction,frequency,time,energy,rank\n",
         "p.csv:1:46: this column is there twice"},
        {"a,b,c,d,e,f,g,h,i,j,k,l,m,n\n", "p.csv:1:1: missing columns 'stage'"},
        /* wrong numbers of fields are refused */
        {HEADER "0,forward,1410,1,1\n0,forward,1395,1\n",
         "p.csv:3:16: expected 5 fields as in the header, not 4 (found '1')"},
        {HEADER "0,forward,1395,1,2,3\n",
         "p.csv:2:20: expected 5 fields as in the header, not 6 (found '3')"},
        {HEADER "0,forward,1395,1,2,\n", "p.csv:2:20: expected 5 fields"},
        /* gaps in the stages are named */
        {HEADER "0,f,9,1,1\n3,f,9,1,1\n1,f,9,1,1\n",
         "p.csv:3:1: stage 2 has no rows although stage 3 has; profile every stage and "
         "number them from 0 without gaps"},
        {HEADER "1,f,9,1,1\n", "p.csv:2:1: stage 0 has no rows although stage 1 has"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(cases[i][0], cases[i][1]);
}

typedef struct bad_row {
    const char *row, *expected;
} bad_row;

TEST(bad_values_are_named_with_their_place) {
    static const char stage[] = "p.csv:2:1: stage must be a whole number from 0 to 65535 (";
    static const char name[] = "p.csv:2:3: instruction must be a name of 1 to 63 characters from "
                               "A-Z, a-z, 0-9, '_', '.', ':' and '-' (";
    static const char frequency[] = "p.csv:2:5: frequency must be a whole number of MHz from 0 "
                                    "(clock left alone) to 100000 (";
    static const char time[] =
        "p.csv:2:7: time must be a positive number of seconds, from 1e-9 to 1e6 (";
    static const char energy[] =
        "p.csv:2:9: energy must be a positive number of joules, from 1e-12 to 1e9 (";
    static const bad_row rows[] = {
        {"-1,f,9,1,1", stage},       {"1.5,f,9,1,1", stage},       {"x,f,9,1,1", stage},
        {"65536,f,9,1,1", stage},    {",f,9,1,1", stage},          {"99999999999,f,9,1,1", stage},
        {"0,,9,1,1", name},          {"0,a b,9,1,1", name},        {"0,\"a,b\",9,1,1", name},
        {"0,a\xC3\xBC,9,1,1", name}, {"0,\"a\"\"\",9,1,1", name},  {"0,a/b,9,1,1", name},
        {"0,f,-1,1,1", frequency},   {"0,f,x,1,1", frequency},     {"0,f,100001,1,1", frequency},
        {"0,f,9.5,1,1", frequency},  {"0,f,1e300,1,1", frequency}, {"0,f,9,x,1", time},
        {"0,f,9,nan,1", time},       {"0,f,9,inf,1", time},        {"0,f,9,-1,1", time},
        {"0,f,9,0,1", time},         {"0,f,9,1e-10,1", time},      {"0,f,9,2e6,1", time},
        {"0,f,9,1e999,1", time},     {"0,f,9,0x1,1", time},        {"0,f,9,1s,1", time},
        {"0,f,9,,1", time},          {"0,f,9,1,x", energy},        {"0,f,9,1,NaN", energy},
        {"0,f,9,1,-inf", energy},    {"0,f,9,1,-5", energy},       {"0,f,9,1,0", energy},
        {"0,f,9,1,0.0", energy},     {"0,f,9,1,2e9", energy},      {"0,f,9,1,1e-20", energy},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256];
        (void)snprintf(text, sizeof text, HEADER "%s\n", rows[i].row);
        assert_refused(text, rows[i].expected);
    }
    assert_refused(HEADER "0,f,9,abc,1\n",
                   "p.csv:2:7: time must be a positive number of seconds, from 1e-9 to 1e6 (found "
                   "'abc')");
    assert_refused(RANK_HEADER "-1,0,f,9,1,1\n",
                   "p.csv:2:1: rank must be a whole number from 0 to 2147483646 (found '-1')");
    assert_refused(RANK_HEADER ",0,f,9,1,1\n", "p.csv:2:1: rank must be");
}

TEST(too_long_names_are_refused) {
    char text[256];
    (void)snprintf(text, sizeof text, HEADER "0,%0*d,9,1,1\n", HARPE_INSTRUCTION_NAME_MAX + 1, 7);
    assert_refused(text, "p.csv:2:3: instruction must be a name of 1 to 63");
}

TEST(binary_junk_is_refused) {
    static const char elf[] = "\x7F"
                              "ELF\2\1\1\0\0\0\0\0\n\0";
    assert_refused_bytes(elf, sizeof elf, HARPE_INVALID_INPUT, "p.csv:1:8: ");
    static const char utf16[] = "\xFF\xFEs\0t\0a\0g\0e\0";
    assert_refused_bytes(utf16, sizeof utf16, HARPE_INVALID_INPUT, "p.csv:1:4: ");
    static const char zero_in_row[] = HEADER "0,f\0,9,1,1\n";
    assert_refused_bytes(zero_in_row, sizeof zero_in_row - 1, HARPE_INVALID_INPUT, "p.csv:2:4: ");
    assert_refused("\x80\x81\x82\n", "p.csv:1:1: missing columns");
    /* errors contain no escape sequences */
    assert_refused("\x1B[31m\n", "p.csv:1:1: missing columns");
}

TEST(too_many_names_are_refused) {
    owned_text text = {0};
    harpe_text_printf(&text, HEADER);
    for (int i = 0; i <= 4096; i++)
        harpe_text_printf(&text, "0,i%d,9,1,1\n", i);
    assert_refused_bytes(text.data, text.length, HARPE_LIMIT_EXCEEDED,
                         "p.csv:4098:1: more than 4096 different instruction names");
    text.length -= strlen("0,i4096,9,1,1\n");
    text.data[text.length] = '\0';
    owned_profile profile = parse(text.data);
    assert_int_equal(harpe_profile_entry_count(profile), 4096);
    for (int i = 0; i < 4096; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "i%d", i);
        assert_non_null(harpe_profile_find(profile, 0, name));
    }
}

TEST(files_that_cannot_be_read_are_named) {
    harpe_profile *profile = NULL;
    assert_refuses(harpe_profile_read_csv("/nonexistent/p.csv", &profile, &failure),
                   HARPE_NOT_FOUND, "/nonexistent/p.csv");
    assert_int_not_equal(harpe_profile_read_csv("/", &profile, &failure), HARPE_OK);
    assert_int_not_equal(harpe_profile_read_csv(NULL, &profile, &failure), HARPE_OK);
    assert_null(profile);
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void assert_same_profile(const harpe_profile *a, const harpe_profile *b) {
    assert_int_equal(harpe_profile_stage_count(a), harpe_profile_stage_count(b));
    assert_int_equal(harpe_profile_entry_count(a), harpe_profile_entry_count(b));
    for (size_t i = 0; i < harpe_profile_entry_count(a); i++) {
        const harpe_profile_entry *left = harpe_profile_entry_at(a, i);
        const harpe_profile_entry *right = harpe_profile_entry_at(b, i);
        assert_int_equal(left->stage, right->stage);
        assert_string_equal(left->instruction, right->instruction);
        assert_int_equal(left->point_count, right->point_count);
        for (size_t k = 0; k < left->point_count; k++) {
            assert_int_equal(left->points[k].frequency_mhz, right->points[k].frequency_mhz);
            assert_true(left->points[k].time_s == right->points[k].time_s);
            assert_true(left->points[k].energy_j == right->points[k].energy_j);
        }
    }
}

SCRATCH_TEST(a_written_profile_reads_back_equal) {
    const char *path = scratch_path(s, "p.csv");
    owned_profile profile = parse(HEADER "0,forward,1410,0.1,0.30000000000000004\n"
                                         "0,forward,1395,1e-9,1e9\n"
                                         "0,forward,1380,0.7,0.2\n"
                                         "0,forward,1380,0.71,0.21\n"
                                         "0,forward,1380,0.69,0.2\n"
                                         "1,a.b:c-d_e,0,123456.789012345678,1e-12\n");
    owned_profile again = NULL;
    assert_works(harpe_profile_write_csv(profile, path, &failure));
    assert_works(harpe_profile_read_csv(path, &again, &failure));
    assert_same_profile(profile, again);
    unlink(path);
}

TEST(a_profile_that_cannot_be_written_says_so) {
    owned_profile profile = parse(HEADER "0,forward,1410,0.1,0.3\n");
    assert_int_not_equal(harpe_profile_write_csv(profile, "/nonexistent/x/p.csv", &failure),
                         HARPE_OK);
    assert_says(&failure, "/nonexistent/x/p.csv");
    assert_int_not_equal(harpe_profile_write_csv(NULL, "/tmp/x", NULL), HARPE_OK);
    assert_int_not_equal(harpe_profile_write_csv(profile, NULL, NULL), HARPE_OK);
}

/* ---- Measured data --------------------------------------------------------------------------- */

static void assert_shape(const char *name, int stages, size_t frequencies) {
    owned_profile profile = data_profile(name);
    assert_int_equal(harpe_profile_stage_count(profile), stages);
    assert_int_equal(harpe_profile_entry_count(profile), 2 * stages);
    for (size_t i = 0; i < harpe_profile_entry_count(profile); i++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(profile, i);
        assert_int_equal(entry->stage, i / 2);
        assert_string_equal(entry->instruction, i % 2 ? "forward" : "backward");
        assert_int_equal(entry->point_count, frequencies);
        assert_int_equal(entry->points[0].frequency_mhz, 1410);
    }
}

TEST(measured_profiles_have_their_shape) {
    assert_shape("pipeline/gpt3-175b_a100.csv", 8, 38);
    assert_shape("pipeline/bloom-176b_a100.csv", 8, 38);
    owned_profile profile = data_profile("pipeline/gpt3-175b_a100.csv");
    assert_point(profile, 0, "forward", 0, 1410, 0.05016166687011708, 23.80547200000007);
}

TEST(synthetic_profiles_have_their_shape) {
    assert_shape("synthetic/a100_4s.csv", 4, 55);
    assert_shape("synthetic/a100_8s.csv", 8, 55);
    assert_shape("synthetic/a100_16s.csv", 16, 55);
}

/* ---- Blocking power -------------------------------------------------------------------------- */

#define POWER_HEADER "stage,instruction,frequency,time,energy,blocking_power\n"

TEST(blocking_power_is_one_for_each_stage) {
    const char *text = POWER_HEADER "0,f,1410,1,10,70.5\n0,b,1410,2,20,70.5\n1,f,1410,1,10,60\n";
    owned_profile profile = NULL;
    assert_works(harpe_profile_parse_csv(text, strlen(text), "p.csv", &profile, &failure));
    assert_true(harpe_profile_blocking_power_w(profile, 0) == 70.5);
    assert_true(harpe_profile_blocking_power_w(profile, 1) == 60);
    assert_true(harpe_profile_blocking_power_w(profile, 2) == 0);
    assert_true(harpe_profile_blocking_power_w(profile, -1) == 0);
    owned_text printed = {0};
    harpe_profile_print_csv(profile, &printed);
    harpe_profile_free(profile);
    assert_works(
        harpe_profile_parse_csv(printed.data, printed.length, "p.csv", &profile, &failure));
    assert_true(harpe_profile_blocking_power_w(profile, 0) == 70.5);
    assert_true(harpe_profile_blocking_power_w(profile, 1) == 60);
    harpe_profile_free(profile);
    const harpe_measurement rows[] = {
        {.rank = -1,
         .instruction = "f",
         .frequency_mhz = 9,
         .time_s = 1,
         .energy_j = 1,
         .blocking_power_w = 55},
        {.rank = -1, .instruction = "b", .frequency_mhz = 9, .time_s = 1, .energy_j = 1}};
    assert_works(harpe_profile_new(rows, 2, &profile, &failure));
    assert_true(harpe_profile_blocking_power_w(profile, 0) == 55);
}

TEST(bad_blocking_powers_are_refused) {
    static const char *const values[] = {"0", "-1", "nan", "100001", "x", ""};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[128];
        (void)snprintf(text, sizeof text, POWER_HEADER "0,f,9,1,1,%s\n", values[i]);
        assert_refused(
            text, "p.csv:2:11: blocking_power must be a positive number of watts, up to 100000");
    }
    assert_refused(
        POWER_HEADER "0,f,9,1,1,70\n0,b,9,1,1,71\n",
        "p.csv:2:1: blocking_power is 70 W, but 71 W for stage 0 in line 3: give one GPU's "
        "power, the same in all rows of the stage");
}

/* ---- Switching latency ----------------------------------------------------------------------- */

#define LATENCY_HEADER "stage,instruction,frequency,time,energy,rank,switch_latency\n"

TEST(switching_latency_is_one_for_each_stage_and_clock) {
    const char *text = LATENCY_HEADER "0,f,1410,1,10,0,0.025\n0,b,1410,2,20,0,0.025\n"
                                      "0,f,1410,1,10,1,0.03\n0,b,1410,2,20,1,0.03\n"
                                      "0,f,1200,1,10,0,0\n0,f,1200,1,10,1,0\n"
                                      "1,f,1410,1,10,2,0.2\n";
    harpe_profile *profile = NULL;
    assert_works(harpe_profile_parse_csv(text, strlen(text), "p.csv", &profile, &failure));
    owned_text printed = {0};
    for (int round = 0; round < 2; round++) {
        assert_true(harpe_profile_has_switch_latency(profile));
        assert_true(harpe_profile_switch_latency_s(profile, 0, 1410) == 0.03); /* of both ranks */
        assert_true(harpe_profile_switch_latency_s(profile, 0, 1200) == 0);
        assert_true(harpe_profile_switch_latency_s(profile, 1, 1410) == 0.2);
        assert_true(harpe_profile_switch_latency_s(profile, 1, 1200) == 0);
        assert_true(harpe_profile_switch_latency_s(profile, -1, 1410) == 0);
        if (round == 0) harpe_profile_print_csv(profile, &printed);
        harpe_profile_free(profile);
        if (round == 0)
            assert_works(
                harpe_profile_parse_csv(printed.data, printed.length, "p.csv", &profile, &failure));
    }
    harpe_measurement row = {
        .rank = -1, .instruction = "f", .frequency_mhz = 9, .time_s = 1, .energy_j = 1};
    assert_works(harpe_profile_new(&row, 1, &profile, &failure));
    assert_false(harpe_profile_has_switch_latency(profile));
    harpe_profile_free(profile);
    row.switch_latency_s = 3600;
    assert_works(harpe_profile_new(&row, 1, &profile, &failure));
    assert_true(harpe_profile_switch_latency_s(profile, 0, 9) == 3600);
    harpe_profile_free(profile);
}

TEST(bad_switching_latencies_are_refused) {
    static const char *const values[] = {"-0.001", "nan", "3600.1", "x", ""};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[128];
        (void)snprintf(text, sizeof text, LATENCY_HEADER "0,f,9,1,1,0,%s\n", values[i]);
        assert_refused(text,
                       "p.csv:2:13: switch_latency must be a number of seconds from 0 to 3600");
    }
    assert_refused(
        LATENCY_HEADER "0,f,9,1,1,0,0.02\n0,f,8,1,1,0,0.01\n0,b,9,1,1,0,0.03\n",
        "p.csv:4:1: switch_latency is 0.03 s, but 0.02 s for stage 0 at 9 MHz in line 2: ");
    harpe_profile *profile = NULL;
    const harpe_measurement rows[] = {
        {.rank = -1, .instruction = "f", .frequency_mhz = 9, .time_s = 1, .energy_j = 1},
        {.rank = -1,
         .instruction = "b",
         .frequency_mhz = 9,
         .time_s = 1,
         .energy_j = 1,
         .switch_latency_s = 0.1}};
    assert_refuses(harpe_profile_new(rows, 2, &profile, &failure), HARPE_INVALID_ARGUMENT,
                   "row 1: switch_latency is 0.1 s, but 0 s");
    assert_null(profile);
}
