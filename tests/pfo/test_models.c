/* SPDX-License-Identifier: Apache-2.0 */
/* JobInfo, RankInfo, FrequencySchedule: accepted documents, the errors of each bad field, and that
 * written documents read the same. */
#include "test.h"

#include "pfo/models.h"

/* One problem of the expected answer. */
#define PROBLEM(loc, msg, type) "{\"loc\":[" loc "],\"msg\":\"" msg "\",\"type\":\"" type "\"}"
#define MISSING(loc) PROBLEM(loc, "field required", "value_error.missing")
#define NO_INTEGER(loc) PROBLEM(loc, "value is not a valid integer", "type_error.integer")
#define NO_NULL(loc) PROBLEM(loc, "none is not an allowed value", "type_error.none.not_allowed")
#define NO_TEXT(loc) PROBLEM(loc, "str type expected", "type_error.str")
#define LIMIT(loc, what, name, limit) \
    "{\"loc\":[" loc "],\"msg\":\"ensure this value is " what " than or equal to " limit \
    "\",\"type\":\"value_error.number." name "\",\"ctx\":{\"limit_value\":" limit "}}"
#define TOO_SMALL(loc, limit) LIMIT(loc, "greater", "not_ge", limit)
#define TOO_LARGE(loc) LIMIT(loc, "less", "not_le", "2147483647")

/* Positions of fields. */
#define BODY(name) "\"body\",\"" name "\""
#define CLOCK(index) BODY("available_frequencies") "," index
#define QUERY(name) "\"query\",\"" name "\""

/* The problems in the order of an answer, NULL at the end. */
#define PROBLEMS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void expect_detail(const harpe_problems *problems, const char *const *expected_problems,
                          const char *body) {
    char expected[4096] = "{\"detail\":[";
    for (size_t i = 0; expected_problems[i]; i++)
        strcat(strcat(expected, i > 0 ? "," : ""), expected_problems[i]);
    strcat(expected, "]}");
    owned_array char *text = harpe_problems_format(problems);
    assert_non_null(text);
    if (strcmp(text, expected) != 0) fail_msg("%s\ngave     %s\nexpected %s", body, text, expected);
}

static void expect_bad_job(const char *body, const char *const *expected_problems) {
    AT_END(harpe_problems_free) harpe_problems problems = {0};
    harpe_job_info job = {0};
    if (harpe_job_info_decode(body, strlen(body), &job, &problems)) fail_msg("accepted: %s", body);
    assert_null(job.job_id);
    expect_detail(&problems, expected_problems, body);
}

static void expect_bad_rank(const char *body, const char *const *expected_problems) {
    AT_END(harpe_problems_free) harpe_problems problems = {0};
    harpe_rank_info rank = {0};
    if (harpe_rank_info_decode(body, strlen(body), &rank, &problems))
        fail_msg("accepted: %s", body);
    assert_null(rank.available_frequencies_mhz);
    expect_detail(&problems, expected_problems, body);
}

/* ---- JobInfo --------------------------------------------------------------------------------- */

TEST(integers_come_in_several_forms) {
    const char *body = "{\"unknown\":[{}],\"pp_degree\":\" 4 \",\"dp_degree\":2.0,\"tp_degree\":"
                       "\"+1\",\"world_size\":8e0,\"job_metadata\":\"a\\u00e9\"}";
    harpe_problems problems = {0};
    harpe_job_info job = {0};
    assert_true(harpe_job_info_decode(body, strlen(body), &job, &problems));
    assert_int_equal(harpe_problems_count(&problems), 0);
    assert_int_equal(job.pp_degree, 4);
    assert_int_equal(job.dp_degree, 2);
    assert_int_equal(job.tp_degree, 1);
    assert_int_equal(job.world_size, 8);
    assert_string_equal(job.job_id, "");
    assert_string_equal(job.job_metadata, "a\xC3\xA9");
    harpe_job_info_free(&job);
    harpe_job_info_free(&job);
    assert_null(job.job_id);
}

TEST(every_bad_field_of_a_job_is_listed_in_order) {
    expect_bad_job("{}", PROBLEMS(MISSING(BODY("pp_degree")), MISSING(BODY("dp_degree")),
                                  MISSING(BODY("tp_degree")), MISSING(BODY("world_size"))));
    expect_bad_job("{\"pp_degree\":0,\"dp_degree\":0,\"tp_degree\":0,\"world_size\":0}",
                   PROBLEMS(TOO_SMALL(BODY("pp_degree"), "1"), TOO_SMALL(BODY("dp_degree"), "1"),
                            TOO_SMALL(BODY("tp_degree"), "1"), TOO_SMALL(BODY("world_size"), "1")));
    expect_bad_job("{\"world_size\":\"x\",\"tp_degree\":null,\"dp_degree\":0,\"pp_degree\":true,"
                   "\"job_metadata\":[],\"job_id\":{}}",
                   PROBLEMS(NO_TEXT(BODY("job_id")), NO_INTEGER(BODY("pp_degree")),
                            TOO_SMALL(BODY("dp_degree"), "1"), NO_NULL(BODY("tp_degree")),
                            NO_INTEGER(BODY("world_size")), NO_TEXT(BODY("job_metadata"))));
}

TEST(what_is_no_integer_is_refused) {
    static const char *const bad[] = {"4.9",
                                      "NaN",
                                      "Infinity",
                                      "-Infinity",
                                      "1e400",
                                      "true",
                                      "false",
                                      "\"\"",
                                      "\"x\"",
                                      "\"4.0\"",
                                      "[]",
                                      "{}",
                                      "\"1 2\"",
                                      "\"NaN\"",
                                      "9223372036854775808",
                                      "\"9223372036854775808\"",
                                      "123456789012345678901234567890"};
    char body[256];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        (void)snprintf(body, sizeof body,
                       "{\"pp_degree\":%s,\"dp_degree\":1,\"tp_degree\":1,\"world_size\":1}",
                       bad[i]);
        expect_bad_job(body, PROBLEMS(NO_INTEGER(BODY("pp_degree"))));
    }
}

TEST(a_world_size_must_be_the_product) {
    const char *const *assertion =
        PROBLEMS(PROBLEM(BODY("world_size"), "world_size must be pp_degree * dp_degree * tp_degree",
                         "assertion_error"));
    expect_bad_job("{\"pp_degree\":2,\"dp_degree\":2,\"tp_degree\":2,\"world_size\":7}", assertion);
    /* 2^31-1 cubed is larger than int64. */
    expect_bad_job("{\"pp_degree\":2147483647,\"dp_degree\":2147483647,\"tp_degree\":2147483647,"
                   "\"world_size\":2147483647}",
                   assertion);
    expect_bad_job("{\"pp_degree\":65536,\"dp_degree\":65536,\"tp_degree\":1,\"world_size\":1}",
                   assertion);
    expect_bad_job("{\"pp_degree\":2147483648,\"dp_degree\":1,\"tp_degree\":1,\"world_size\":7}",
                   PROBLEMS(TOO_LARGE(BODY("pp_degree"))));
}

TEST(a_job_does_not_choose_its_id) {
    static const char body[] = "{\"job_id\":\"mine\",\"pp_degree\":1,\"dp_degree\":1,"
                               "\"tp_degree\":1,\"world_size\":1}";
    expect_bad_job(body,
                   PROBLEMS(PROBLEM(BODY("job_id"), "job_id must be empty: the server chooses it",
                                    "assertion_error")));
    AT_END(harpe_job_info_free) harpe_job_info job = {0};
    assert_works(harpe_job_info_parse(body, strlen(body), &job, &failure));
    assert_string_equal(job.job_id, "mine"); /* a stored job has it */
}

TEST(a_key_has_1_to_256_bytes) {
    for (int length = 0; length <= 257; length++) {
        char body[400];
        harpe_job_info job = {0};
        (void)snprintf(body, sizeof body,
                       "{\"pp_degree\":1,\"dp_degree\":1,\"tp_degree\":1,\"world_size\":1,"
                       "\"job_key\":\"%0*d\"}",
                       length, 0);
        if (length == 0) strcpy(strstr(body, "\"0\""), "\"\"}");
        harpe_status status = harpe_job_info_parse(body, strlen(body), &job, &failure);
        if (length >= 1 && length <= 256) {
            assert_int_equal(status, HARPE_OK);
            assert_int_equal(strlen(job.job_key), length);
            harpe_job_info_free(&job);
        } else {
            assert_int_equal(status, HARPE_INVALID_INPUT);
            assert_string_equal(failure.message, "job_key: job_key must have 1 to 256 bytes");
        }
    }
}

TEST(bodies_that_are_no_object_are_refused) {
    const char *const *missing = PROBLEMS(MISSING("\"body\""));
    const char *const *no_object =
        PROBLEMS(PROBLEM("\"body\"", "value is not a valid dict", "type_error.dict"));
    expect_bad_job("", missing);
    expect_bad_job("null", missing);
    expect_bad_job("[]", no_object);
    expect_bad_job("\"{}\"", no_object);
    expect_bad_job("3", no_object);
}

TEST(text_that_is_no_json_is_refused_as_the_published_server_does) {
    expect_bad_job(
        "{\"a\":\"\xC3\xA9\",\n \"b\" 1}",
        PROBLEMS("{\"loc\":[\"body\",15],\"msg\":\"Expecting ':' delimiter: line 2 column 6 "
                 "(char 15)\",\"type\":\"value_error.jsondecode\",\"ctx\":{\"msg\":\"Expecting "
                 "':' delimiter\",\"doc\":\"{\\\"a\\\":\\\"\xC3\xA9\\\",\\n \\\"b\\\" 1}\","
                 "\"pos\":15,\"lineno\":2,\"colno\":6}}"));
    expect_bad_job("{\"a\xFF",
                   PROBLEMS("{\"loc\":[\"body\",3],\"msg\":\"Invalid UTF-8: line 1 column 4 (char "
                            "3)\",\"type\":\"value_error.jsondecode\",\"ctx\":{\"msg\":\"Invalid "
                            "UTF-8\",\"doc\":\"{\\\"a\",\"pos\":3,\"lineno\":1,\"colno\":4}}"));
}

TEST(a_large_bad_document_is_shown_in_part) {
    enum { LARGE = 1 << 20 };
    owned_array char *body = malloc(LARGE);
    assert_non_null(body);
    memset(body, ' ', LARGE);
    AT_END(harpe_problems_free) harpe_problems problems = {0};
    harpe_job_info job = {0};
    assert_false(harpe_job_info_decode(body, LARGE, &job, &problems));
    owned_array char *text = harpe_problems_format(&problems);
    assert_non_null(strstr(text, "char 1048576"));
    assert_in_range(strlen(text), 4096, 5000);
}

TEST(a_job_reads_as_it_was_written) {
    const harpe_job_info jobs[] = {
        {"", 1, 2, 3, 6, NULL, NULL},
        {"id", 1, 1, 1, 1, "", "a key"},
        {NULL, 1, 1, 1, 1, "quote \" backslash \\ line \n tab \t bell \a \xC3\xA9 del \x7f", NULL},
        {"x", 2147483647, 1, 1, 2147483647, "not \xFF UTF-8", NULL},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        owned_array char *json = NULL;
        harpe_job_info job = {0};
        harpe_job_info copy = {0};
        assert_works(harpe_job_info_copy(&jobs[i], &copy, &failure));
        assert_string_equal(copy.job_id, jobs[i].job_id ? jobs[i].job_id : "");
        harpe_job_info_free(&copy);
        assert_works(harpe_job_info_format(&jobs[i], &json, &failure));
        assert_int_equal(strstr(json, "job_key") != NULL, i == 1);
        assert_works(harpe_job_info_parse(json, strlen(json), &job, &failure));
        assert_works(harpe_job_info_copy(&job, &copy, &failure));
        harpe_job_info_free(&job);
        assert_string_equal(copy.job_id, jobs[i].job_id ? jobs[i].job_id : "");
        assert_int_equal(copy.world_size, jobs[i].world_size);
        if (i == 0) {
            assert_null(copy.job_metadata);
        } else {
            assert_string_equal(copy.job_metadata,
                                i == 3 ? "not \xEF\xBF\xBD UTF-8" : jobs[i].job_metadata);
        }
        if (i == 1)
            assert_string_equal(copy.job_key, "a key");
        else
            assert_null(copy.job_key);
        harpe_job_info_free(&copy);
    }
}

TEST(numbers_become_texts_where_texts_are_expected) {
    static const char *const metadata[][2] = {
        {"5", "5"}, {"5.5", "5.5"}, {"true", "True"}, {"\"\"", ""}};
    for (size_t i = 0; i < sizeof metadata / sizeof *metadata; i++) {
        char body[128];
        harpe_problems problems = {0};
        AT_END(harpe_job_info_free) harpe_job_info job = {0};
        (void)snprintf(body, sizeof body,
                       "{\"pp_degree\":1,\"dp_degree\":1,\"tp_degree\":1,\"world_size\":1,"
                       "\"job_metadata\":%s}",
                       metadata[i][0]);
        assert_true(harpe_job_info_decode(body, strlen(body), &job, &problems));
        assert_string_equal(job.job_metadata, metadata[i][1]);
    }
}

TEST(an_error_names_the_first_bad_field_and_counts_the_others) {
    harpe_job_info job = {0};
    assert_int_equal(harpe_job_info_parse("{\"dp_degree\":1}", 15, &job, &failure),
                     HARPE_INVALID_INPUT);
    assert_string_equal(failure.message, "pp_degree: field required (and 2 more)");
    assert_int_equal(harpe_job_info_parse("[", 1, &job, &failure), HARPE_INVALID_INPUT);
    assert_string_equal(failure.message, "Expecting value: line 1 column 2 (char 1)");
    assert_int_equal(harpe_job_info_parse("", 0, &job, &failure), HARPE_INVALID_INPUT);
    assert_null(job.job_id);
}

/* ---- RankInfo -------------------------------------------------------------------------------- */

TEST(a_rank_reads_as_it_was_written) {
    static const int frequencies[] = {1410, 1395, 210};
    const harpe_rank_info ranks[] = {{3, 1, 0, 1, frequencies, 3}, {0, 0, 0, 0, NULL, 0}};
    for (size_t i = 0; i < 2; i++) {
        owned_array char *json = NULL;
        harpe_rank_info rank = {0};
        AT_END(harpe_rank_info_free) harpe_rank_info copy = {0};
        assert_works(harpe_rank_info_format(&ranks[i], &json, &failure));
        assert_works(harpe_rank_info_parse(json, strlen(json), &rank, &failure));
        assert_true(harpe_rank_info_equal(&ranks[i], &rank));
        assert_works(harpe_rank_info_copy(&rank, &copy, &failure));
        harpe_rank_info_free(&rank);
        assert_true(harpe_rank_info_equal(&ranks[i], &copy));
        assert_false(harpe_rank_info_equal(&ranks[1 - i], &copy));
        harpe_rank_info_free(&copy);
    }
}

TEST(every_bad_field_of_a_rank_is_listed) {
    expect_bad_rank("{\"rank\":-1,\"dp_rank\":0,\"pp_rank\":\"1.5\",\"available_frequencies\":"
                    "[1410,\"x\",null,[1],1e10]}",
                    PROBLEMS(TOO_SMALL(BODY("rank"), "0"), NO_INTEGER(BODY("pp_rank")),
                             MISSING(BODY("tp_rank")), NO_INTEGER(CLOCK("1")), NO_NULL(CLOCK("2")),
                             NO_INTEGER(CLOCK("3")), TOO_LARGE(CLOCK("4"))));
    expect_bad_rank("{\"rank\":0,\"dp_rank\":0,\"pp_rank\":0,\"tp_rank\":0,"
                    "\"available_frequencies\":{}}",
                    PROBLEMS(PROBLEM(BODY("available_frequencies"), "value is not a valid list",
                                     "type_error.list")));
}

TEST(a_rank_must_lie_in_its_job) {
    const harpe_job_info job = {"", 2, 3, 4, 24, NULL, NULL};
    AT_END(harpe_problems_free) harpe_problems problems = {0};
    assert_true(harpe_rank_info_fits(&(harpe_rank_info){23, 2, 1, 3, NULL, 0}, &job, &problems));
    assert_false(harpe_rank_info_fits(&(harpe_rank_info){24, 3, 2, 4, NULL, 0}, &job, &problems));
    assert_int_equal(harpe_problems_count(&problems), 4);
    assert_false(harpe_rank_info_fits(&(harpe_rank_info){0, 0, 2, 0, NULL, 0}, &job, &problems));
    assert_int_equal(harpe_problems_count(&problems), 5);
    owned_array char *text = harpe_problems_format(&problems);
    assert_non_null(strstr(text, "\"loc\":[\"body\",\"rank\"]"));
}

TEST(problems_without_end_are_kept_in_part) {
    enum { BAD = 100000 };
    static char body[3 * BAD + 100];
    char *at = stpcpy(body, "{\"available_frequencies\":[[]");
    for (int i = 1; i < BAD; i++)
        at = stpcpy(at, ",[]");
    (void)stpcpy(at, "]}");
    AT_END(harpe_problems_free) harpe_problems problems = {0};
    harpe_rank_info rank = {0};
    assert_false(harpe_rank_info_decode(body, strlen(body), &rank, &problems));
    assert_int_equal(harpe_problems_count(&problems), 1000);
}

/* ---- FrequencySchedule ----------------------------------------------------------------------- */

TEST(a_schedule_reads_as_it_was_written) {
    static const harpe_scheduled_instruction instructions[] = {
        {"forward", 1410}, {"backward", 0}, {"odd \"name\"", 210}, {"", 5}};
    const harpe_frequency_schedule written = {7, instructions, 4, false};
    owned_array char *json = NULL;
    harpe_frequency_schedule schedule = {0};
    AT_END(harpe_frequency_schedule_free) harpe_frequency_schedule copy = {0};
    assert_works(harpe_frequency_schedule_format(&written, &json, &failure));
    assert_string_equal(json, "{\"rank\":7,\"frequencies\":[[\"forward\",1410],[\"backward\",0],"
                              "[\"odd \\\"name\\\"\",210],[\"\",5]]}");
    assert_works(harpe_frequency_schedule_parse(json, strlen(json), &schedule, &failure));
    assert_works(harpe_frequency_schedule_copy(&schedule, &copy, &failure));
    harpe_frequency_schedule_free(&schedule);
    harpe_frequency_schedule_free(&schedule);
    assert_int_equal(copy.rank, 7);
    assert_int_equal(copy.instruction_count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(copy.instructions[i].instruction, instructions[i].instruction);
        assert_int_equal(copy.instructions[i].frequency_mhz, instructions[i].frequency_mhz);
    }
}

TEST(a_schedule_says_that_it_is_a_trial_only_where_it_is) {
    static const harpe_scheduled_instruction instruction = {"forward", 1410};
    const harpe_frequency_schedule written = {3, &instruction, 1, true};
    const char *const not_so[] = {"{\"rank\":3,\"frequencies\":[]}",
                                  "{\"trial\":false,\"rank\":3,\"frequencies\":[]}"};
    char *json = NULL;
    harpe_frequency_schedule schedule = {0}, copy = {0};
    assert_works(harpe_frequency_schedule_format(&written, &json, &failure));
    assert_string_equal(json, "{\"rank\":3,\"frequencies\":[[\"forward\",1410]],\"trial\":true}");
    assert_works(harpe_frequency_schedule_parse(json, strlen(json), &schedule, &failure));
    assert_works(harpe_frequency_schedule_copy(&schedule, &copy, &failure));
    assert_true(schedule.is_trial && copy.is_trial);
    harpe_frequency_schedule_free(&schedule);
    harpe_frequency_schedule_free(&copy);
    free(json);
    for (size_t i = 0; i < 2; i++) {
        assert_works(
            harpe_frequency_schedule_parse(not_so[i], strlen(not_so[i]), &schedule, &failure));
        assert_false(schedule.is_trial);
        harpe_frequency_schedule_free(&schedule);
    }
    const char *bad = "{\"rank\":3,\"frequencies\":[],\"trial\":[1]}";
    assert_int_equal(harpe_frequency_schedule_parse(bad, strlen(bad), &schedule, &failure),
                     HARPE_INVALID_INPUT);
    assert_string_equal(failure.message, "trial: value could not be parsed to a boolean");
}

TEST(an_item_of_a_schedule_is_a_pair) {
    const struct {
        const char *item, *message;
    } cases[] = {
        {"3", "frequencies[0]: value is not a valid tuple"},
        {"{}", "frequencies[0]: value is not a valid tuple"},
        {"null", "frequencies[0]: none is not an allowed value"},
        {"[\"a\"]", "frequencies[0]: wrong tuple length 1, expected 2"},
        {"[\"a\",1,2]", "frequencies[0]: wrong tuple length 3, expected 2"},
        {"[[[1,2]],1]", "frequencies[0][0]: str type expected"},
        {"[\"a\",\"b\"]", "frequencies[0][1]: value is not a valid integer"},
        {"[null,{}]", "frequencies[0][0]: none is not an allowed value (and 1 more)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[128];
        harpe_frequency_schedule schedule = {0};
        (void)snprintf(json, sizeof json, "{\"rank\":0,\"frequencies\":[%s]}", cases[i].item);
        assert_int_equal(harpe_frequency_schedule_parse(json, strlen(json), &schedule, &failure),
                         HARPE_INVALID_INPUT);
        assert_string_equal(failure.message, cases[i].message);
        assert_null(schedule.instructions);
    }
}

/* ---- Queries --------------------------------------------------------------------------------- */

TEST(query_values_are_integers) {
    AT_END(harpe_problems_free) harpe_problems problems = {0};
    int64_t value = 42;
    assert_true(harpe_query_int_decode("rank", "-3", &value, &problems));
    assert_int_equal(value, -3);
    assert_false(harpe_query_int_decode("rank", NULL, &value, &problems));
    assert_false(harpe_query_int_decode("rank", "", &value, &problems));
    assert_false(harpe_query_int_decode("round", "4.0", &value, &problems));
    assert_int_equal(value, -3);
    expect_detail(
        &problems,
        PROBLEMS(MISSING(QUERY("rank")), NO_INTEGER(QUERY("rank")), NO_INTEGER(QUERY("round"))),
        "queries");
    harpe_problems_free(&problems);
}
