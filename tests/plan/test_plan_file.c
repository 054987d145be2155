/* SPDX-License-Identifier: Apache-2.0 */
/* Plan files: only the literal is read; written files have the layout that the servers of the
 * ecosystem expect, and read back; a plan is matched to the problem for which it was made. */
#include "test.h"

#include <unistd.h>

#include <harpe/plan.h>

#include "base/scratch.h"
#include "base/text.h"
#include "plan/plan_file.h"

#include "instances.h"

static harpe_status parse(const char *text, harpe_plan_file **file, harpe_error *error) {
    return harpe_plan_file_parse(text, strlen(text), "p.py", file, error);
}

static void assert_refused(const char *text, const char *message) {
    harpe_plan_file *file = NULL;
    harpe_status status = parse(text, &file, &failure);
    if (status == HARPE_OK) fail_msg("accepted: %s", text);
    assert_null(file);
    assert_int_equal(status, failure.status);
    assert_says(&failure, message);
}

/* Reads a text and returns "rank: name frequency, ...; rank: ..." for comparison. */
static void assert_reads_as(const char *text, const char *expected) {
    owned_plan_file file = NULL;
    if (parse(text, &file, &failure) != HARPE_OK)
        fail_msg("refused: %s\n%s", text, failure.message);
    owned_text found = {0};
    for (int rank = 0; rank < harpe_plan_file_rank_count(file); rank++) {
        size_t count = 0;
        const harpe_plan_file_entry *entries = harpe_plan_file_rank(file, rank, &count);
        harpe_text_printf(&found, "[");
        for (size_t i = 0; i < count; i++) {
            harpe_text_printf(&found, "%s%s %d", i ? ", " : "", entries[i].instruction,
                              entries[i].frequency_mhz);
        }
        harpe_text_printf(&found, "]");
    }
    assert_string_equal(found.data, expected);
}

/* ---- Reading --------------------------------------------------------------------------------- */

TEST(texts_are_read_as_plans) {
    static const char *const cases[][2] = {
        /* the published layout is read */
        {"[\n[('forward', 690), ('backward', 780)],\n[('forward', 720)],\n]\n"
         "# Iteration 0 cost change: 0.014\n# Iteration 0 total cost: 1343.3\n",
         "[forward 690, backward 780][forward 720]"},
        /* either quote and either bracket are read */
        {"[[(\"forward\", 1410)]]", "[forward 1410]"},
        {"((('f', 1), ['b', 2,],),)", "[f 1, b 2]"},
        {"([['f', 1]],)", "[f 1]"},
        {"[[('f', 1,)]]", "[f 1]"},
        /* blanks, comments and a byte order mark are skipped */
        {"\xef\xbb\xbf# made elsewhere [(\r\n\t[ # ranks\r\n [\f('f' , #x\n 1 ) , ] ,\n]"
         "\n\n# end",
         "[f 1]"},
        /* a missing final newline is fine */
        {"[[('f', 1)]]# c", "[f 1]"},
        /* an empty rank is read */
        {"[[], [('f', 1)]]", "[][f 1]"},
        /* a clock left alone is read */
        {"[[('dataload', 0)]]", "[dataload 0]"},
        /* names that begin alike stay apart */
        {"[[('forward_backward', 1), ('forward', 2), ('forward_backward', 3)]]",
         "[forward_backward 1, forward 2, forward_backward 3]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_reads_as(cases[i][0], cases[i][1]);
}

TEST(many_different_names_stay_apart) {
    owned_text text = {0};
    owned_text expected = {0};
    harpe_text_printf(&text, "[[");
    harpe_text_printf(&expected, "[");
    for (int i = 0; i < 50; i++) {
        harpe_text_printf(&text, "('name%d', %d),", i % 20, i);
        harpe_text_printf(&expected, "%sname%d %d", i ? ", " : "", i % 20, i);
    }
    harpe_text_printf(&text, "]]");
    harpe_text_printf(&expected, "]");
    assert_reads_as(text.data, expected.data);
}

TEST(what_is_no_plan_is_refused_where_it_is_none) {
    static const char *const cases[][2] = {
        /* the older form is named */
        {"[[1410, 1410], [1410]]", "p.py:1:3: a bare frequency is the older plan form"},
        {"[1410, 1410]", "p.py:1:2: expected one list of"},
        /* anything that would be executed is refused */
        {"__import__('os').system('true')", "p.py:1:1: expected a plan"},
        {"[[('f', int('1'))]]", "p.py:1:9: expected a frequency"},
        {"[[('f', 1)]] + [[]]", "p.py:1:14: expected nothing after the plan"},
        {"[[('f', 1)] for _ in range(9)]", "p.py:1:13: expected ',' or ']'"},
        {"plan = [[('f', 1)]]", "p.py:1:1: expected a plan"},
        {"[[('f' 'g', 1)]]", "expected ',' and a frequency"},
        {"[[(f'x', 1)]]", "p.py:1:4: expected an instruction name in quotes"},
        {"[[('\\x66', 1)]]", "without spaces, commas or escapes"},
        /* positions count lines and columns */
        {"[\n[('f', 1)],\n  [('f', x)],\n]", "p.py:3:10: expected a frequency"},
        {"# c\r\n[[('f', 1)\r\n", "p.py:3:1: expected ',' or ']', found the end"},
        /* what is not closed is refused */
        {"", "p.py:1:1: expected a plan"},
        {"# only a comment", "expected a plan"},
        {"[", "found the end"},
        {"[[('f', 1),", "found the end"},
        {"[[('f", "the quote is never closed"},
        {"[[('f', 1)]", "expected ',' or ']', found the end"},
        {"[[('f', 1)]}", "expected ',' or ']', found '}'"},
        {"[[('f', 1])]", "expected ')', found ']'"},
        /* stray commas are refused */
        {"[,]", "found ','"},
        {"[[('f', 1),,]]", "found ','"},
        {"[[('f', 1) ('b', 1)]]", "expected ',' or ']'"},
        /* a parenthesised single value is no tuple */
        {"([('f', 1)])", "a tuple of one element needs a comma"},
        {"[(('f', 1))]", "a tuple of one element needs a comma"},
        /* a plan without ranks is refused */
        {"[]", "no ranks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(cases[i][0], cases[i][1]);
}

TEST(frequencies_are_whole_numbers_in_range) {
    assert_reads_as("[[('f', 100000)]]", "[f 100000]");
    assert_refused("[[('f', 100001)]]", "above 100000 MHz");
    assert_refused("[[('f', 99999999999999999999)]]", "above 100000 MHz");
    assert_refused("[[('f', -1)]]", "expected a frequency in MHz (a whole number), found '-'");
    assert_refused("[[('f', 1410.0)]]", "a frequency is a whole number");
    assert_refused("[[('f', 1e3)]]", "a frequency is a whole number");
    assert_refused("[[('f', 0x58)]]", "a frequency is a whole number");
    assert_refused("[[('f', 01410)]]", "does not start with 0");
    assert_refused("[[('f', '1410')]]", "expected a frequency");
    assert_refused("[[('f',)]]", "expected a frequency");
    assert_refused("[[('f')]]", "expected ',' and a frequency");
    assert_refused("[[('f', 1, 2)]]", "expected ')', found '2'");
}

TEST(names_have_a_length) {
    assert_reads_as("[[('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 1)]]",
                    "[aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 1]");
    assert_refused("[[('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 1)]]",
                   "1 to 63 bytes");
    assert_refused("[[('', 1)]]", "1 to 63 bytes");
    assert_refused("[[('a b', 1)]]", "without spaces");
    assert_refused("[[('a\nb', 1)]]", "without spaces");
}

TEST(deeper_nesting_is_refused_at_once) {
    char text[100001];
    memset(text, '[', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_refused(text, "p.py:1:4: expected an instruction name");
}

TEST(bytes_outside_text_are_named) {
    harpe_plan_file *file = NULL;
    assert_refuses(harpe_plan_file_parse("[\0]", 3, "p.py", &file, &failure), HARPE_INVALID_INPUT,
                   "found byte 0x00");
    assert_refused("\xff\xfe[", "p.py:1:1: expected a plan");
}

TEST(a_rank_that_is_not_there_is_empty) {
    owned_plan_file file = NULL;
    assert_int_equal(parse("[[('f', 1)]]", &file, NULL), HARPE_OK);
    size_t count = 9;
    assert_null(harpe_plan_file_rank(file, 1, &count));
    assert_int_equal(count, 0);
    count = 9;
    assert_null(harpe_plan_file_rank(file, -1, &count));
    assert_int_equal(count, 0);
    harpe_plan_file_free(file);
    assert_int_equal(parse("[[]]", &file, NULL), HARPE_OK);
    count = 9;
    assert_null(harpe_plan_file_rank(file, 0, &count));
    assert_int_equal(count, 0);
    harpe_plan_file_free(NULL);
}

TEST(a_missing_file_is_named) {
    harpe_plan_file *file = NULL;
    assert_refuses(harpe_plan_file_read("no/such/plan.py", &file, &failure), HARPE_NOT_FOUND,
                   "no/such/plan.py");
    assert_null(file);
}

/* ---- Against a problem ----------------------------------------------------------------------- */

/* Two stages, two microbatches, 1F1B, 10 W on stage 0 and 20 W on stage 1:
 *     rank 0: forward forward backward backward
 *     rank 1: forward backward forward backward */
static harpe_problem *new_problem(void) {
    owned_rows rows = {0};
    for (int stage = 0; stage < 2; stage++) {
        for (int mhz = 1000; mhz <= 1400; mhz += 400) {
            add_row(&rows, stage, "forward", mhz, 1400.0 / mhz, mhz / 10.0);
            add_row(&rows, stage, "backward", mhz, 2 * 1400.0 / mhz, 2 * mhz / 10.0);
        }
    }
    const double power_w[] = {10, 20};
    owned_profile profile = profile_of(&rows);
    owned_schedule schedule = schedule_1f1b(2, 2);
    return problem_of(
        profile, schedule,
        &(harpe_problem_options){.blocking_power_w = power_w, .blocking_power_count = 2});
}

static const char matching[] = "[[('forward', 1400), ('forward', 1000), ('backward', 1400), "
                               "('backward', 1000)],"
                               "[('forward', 1400), ('backward', 1400), ('forward', 1000), "
                               "('backward', 1000)]]";

static harpe_status match(const char *text, int frequency_mhz[8], harpe_error *error) {
    owned_problem problem = new_problem();
    owned_plan_file file = NULL;
    assert_int_equal(parse(text, &file, error), HARPE_OK);
    return harpe_plan_file_match(file, problem, frequency_mhz, error);
}

TEST(a_plan_matches_its_problem) {
    int found[8] = {0};
    const int expected[8] = {1400, 1000, 1400, 1000, 1400, 1400, 1000, 1000};
    assert_int_equal(match(matching, found, NULL), HARPE_OK);
    assert_memory_equal(found, expected, sizeof expected);
}

static void assert_does_not_match(const char *text, const char *message) {
    int found[8] = {7, 7, 7, 7, 7, 7, 7, 7};
    assert_refuses(match(text, found, &failure), HARPE_INVALID_INPUT, message);
    for (int i = 0; i < 8; i++)
        assert_int_equal(found[i], 7); /* not changed on failure */
}

TEST(the_first_entry_that_does_not_match_is_named) {
    assert_does_not_match("[[('forward', 1400)]]", "the plan has 1 ranks, the schedule 2");
    assert_does_not_match("[[('forward', 1400), ('forward', 1000), ('backward', 1400)],"
                          "[('forward', 1400)]]",
                          "rank 0 has 3 instructions, but the schedule runs 4");
    assert_does_not_match("[[('forward', 1400), ('backward', 1000), ('backward', 1400), "
                          "('backward', 1000)],[('forward', 1400)]]",
                          "entry 1 of rank 0 is 'backward', but the schedule runs 'forward'");
    assert_does_not_match("[[('forward', 1400), ('forward', 1200), ('backward', 1400), "
                          "('backward', 1000)],[('forward', 1400)]]",
                          "entry 1 of rank 0 runs 'forward' at 1200 MHz, which the profile does "
                          "not have for stage 0");
}

TEST(zero_fits_every_instruction) {
    int found[8] = {0};
    static const int expected[8] = {1400, 0, 0, 1000, 0, 1400, 0, 0};
    assert_works(match("[[('forward', 1400), ('forward', 0), ('backward', 0), "
                       "('backward', 1000)],"
                       "[('forward', 0), ('backward', 1400), ('forward', 0), ('backward', 0)]]",
                       found, &failure));
    assert_memory_equal(found, expected, sizeof expected);
}

SCRATCH_TEST(what_is_written_has_the_published_layout_and_reads_back) {
    owned_problem problem = new_problem();
    const int frequency_mhz[8] = {1400, 1000, 1400, 1000, 1400, 1400, 1000, 1000};
    harpe_plan plan = {.time_s = 10, .energy_j = 1700.5, .frequency_mhz = frequency_mhz};
    const char *path = scratch_path(s, "plan.py");
    assert_works(harpe_plan_file_write(path, problem, &plan, 37, 2, &failure));
    /* 1700.5 J minus (10 + 20) W for 10 s. */
    assert_true(file_holds(
        path, "[\n"
              "[('forward', 1400), ('forward', 1000), ('backward', 1400), ('backward', 1000)],\n"
              "[('forward', 1400), ('backward', 1400), ('forward', 1000), ('backward', 1000)],\n"
              "]\n"
              "# Iteration 37 cost change: 2.0\n"
              "# Iteration 37 total cost: 1400.5\n"
              "# Iteration 37 total cost with P2P: 1700.5\n"));
    owned_plan_file file = NULL;
    int found[8] = {0};
    assert_works(harpe_plan_file_read(path, &file, &failure));
    assert_works(harpe_plan_file_match(file, problem, found, &failure));
    assert_memory_equal(found, frequency_mhz, sizeof found);
    unlink(path);
}

TEST(a_plan_that_cannot_be_written_leaves_nothing) {
    owned_problem problem = new_problem();
    const int frequency_mhz[8] = {1400, 1000, 1400, 1000, 1400, 1400, 1000, 1000};
    harpe_plan plan = {.time_s = 10, .energy_j = 1, .frequency_mhz = frequency_mhz};
    assert_refuses(harpe_plan_file_write("/no/such/dir/p.py", problem, &plan, 0, 0, &failure),
                   HARPE_NOT_FOUND, "/no/such/dir/p.py");
}
