/* SPDX-License-Identifier: Apache-2.0 */
/* Reads JSON as Python's json module does: the accepted texts, and the messages and positions for
 * the others (recorded with Python 3.11). */
#include "test.h"

#include <math.h>

#include "pfo/json_tree.h"

static harpe_json read_json(const char *text) {
    harpe_json json = {0};
    harpe_json_failure fault = {"", 0};
    if (!harpe_json_read(text, strlen(text), &json, &fault))
        fail_msg("%s: %s at %zu", text, fault.message, fault.byte);
    return json;
}

/* Reads from memory of exactly that size, so that a read past the end is detected. */
static void expect_failure(const char *text, size_t length, const char *message, size_t byte) {
    harpe_json json = {0};
    harpe_json_failure fault = {"", 0};
    char *exact = malloc(length > 0 ? length : 1);
    assert_non_null(exact);
    memcpy(exact, text, length);
    if (harpe_json_read(exact, length, &json, &fault)) fail_msg("accepted: %s", text);
    free(exact);
    assert_null(json.nodes);
    if (strcmp(fault.message, message) != 0 || fault.byte != byte) {
        fail_msg("%s: '%s' at %zu, expected '%s' at %zu", text, fault.message, fault.byte, message,
                 byte);
    }
}

TEST(nodes_stand_in_document_order) {
    AT_END(harpe_json_free)
    AT_END(harpe_json_free)
    harpe_json json = read_json(" { \"a\" : [1, -2.5, [ ], true] , \"b\":{\"c\":null} } \n");
    static const harpe_json_kind kinds[] = {HARPE_JSON_OBJECT,  HARPE_JSON_TEXT, HARPE_JSON_LIST,
                                            HARPE_JSON_INTEGER, HARPE_JSON_REAL, HARPE_JSON_LIST,
                                            HARPE_JSON_TRUE,    HARPE_JSON_TEXT, HARPE_JSON_OBJECT,
                                            HARPE_JSON_TEXT,    HARPE_JSON_NULL};
    assert_int_equal(json.node_count, sizeof kinds / sizeof *kinds);
    for (size_t i = 0; i < json.node_count; i++)
        assert_int_equal(harpe_json_kind_of(&json, i), kinds[i]);
    assert_int_equal(json.nodes[0].held.count, 2);
    assert_int_equal(json.nodes[2].held.count, 4);
    assert_int_equal(harpe_json_next(&json, 2), 7);
    assert_int_equal(harpe_json_next(&json, 0), json.node_count);
    assert_true(json.nodes[4].number == -2.5);
}

TEST(the_last_of_repeated_members_counts) {
    AT_END(harpe_json_free)
    harpe_json json = read_json("{\"a\":1,\"b\":2,\"\\u0061\":{\"b\":7},\"c\":3,\"b\":4}");
    size_t node = harpe_json_member(&json, 0, "b");
    assert_true(json.nodes[node].number == 4);
    assert_int_equal(harpe_json_kind_of(&json, harpe_json_member(&json, 0, "a")),
                     HARPE_JSON_OBJECT);
    assert_int_equal(harpe_json_member(&json, 0, "d"), 0);

    owned_array harpe_json_pair *pairs = NULL;
    size_t count = 0;
    assert_true(harpe_json_pairs(&json, 0, &pairs, &count));
    assert_int_equal(count, 3); /* a, b, c: each at its first position */
    assert_int_equal(harpe_json_kind_of(&json, pairs[0].value), HARPE_JSON_OBJECT);
    assert_true(json.nodes[pairs[1].value].number == 4);
    assert_true(json.nodes[pairs[2].value].number == 3);
}

TEST(texts_are_decoded) {
    const struct {
        const char *json, *text;
    } cases[] = {
        {"\"\"", ""},
        {"\"plain \xC3\xA9\"", "plain \xC3\xA9"},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
        {"\"a\\u00e9\\u20AC\\ud83d\\uDE00z\"", "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z"},
        {"\"\\ud800\\u0041\"", "\xEF\xBF\xBD"
                               "A"}, /* half a pair */
        {"\"\\udc00\\ud800\"", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\"\\ud800\"", "\xEF\xBF\xBD"},
        {"\"a\\u0000b\"", "a\xEF\xBF\xBD"
                          "b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AT_END(harpe_json_free) harpe_json json = read_json(cases[i].json);
        size_t length;
        const char *bytes = harpe_json_bytes(&json, 0, &length);
        assert_int_equal(length, strlen(cases[i].text));
        assert_memory_equal(bytes, cases[i].text, length);
    }
}

TEST(integers_keep_all_of_their_64_bits) {
    const struct {
        const char *json;
        bool fits;
        int64_t value;
    } cases[] = {
        {"0", true, 0},
        {"-7", true, -7},
        {"4.0", true, 4},
        {"1e3", true, 1000},
        {"9007199254740993", true, 9007199254740993},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"9.3e18", false, 0},
        {"-9223372036854775808.0", true, INT64_MIN},
        {"4.5", false, 0},
        {"1e400", false, 0},
        {"NaN", false, 0},
        {"Infinity", false, 0},
        {"-Infinity", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AT_END(harpe_json_free) harpe_json json = read_json(cases[i].json);
        int64_t value = 0;
        if (harpe_json_int64(&json, 0, &value) != cases[i].fits || value != cases[i].value)
            fail_msg("%s: %lld", cases[i].json, (long long)value);
    }
}

TEST(errors_are_those_of_python) {
    const struct {
        const char *json, *message;
        size_t byte;
    } cases[] = {
        {"", "Expecting value", 0},
        {"  ", "Expecting value", 2},
        {"nul", "Expecting value", 0},
        {"tru", "Expecting value", 0},
        {"-", "Expecting value", 0},
        {"-x", "Expecting value", 0},
        {"-Infinit", "Expecting value", 0},
        {"+1", "Expecting value", 0},
        {".5", "Expecting value", 0},
        {"'a'", "Expecting value", 0},
        {"01", "Extra data", 1},
        {"1.", "Extra data", 1},
        {"1e", "Extra data", 1},
        {"1 2", "Extra data", 2},
        {"NaNx", "Extra data", 3},
        {"{} x", "Extra data", 3},
        {"[", "Expecting value", 1},
        {"[1,]", "Expecting value", 3},
        {"[,1]", "Expecting value", 1},
        {"[1 2]", "Expecting ',' delimiter", 3},
        {"[1", "Expecting ',' delimiter", 2},
        {"[1}", "Expecting ',' delimiter", 2},
        {"{", "Expecting property name enclosed in double quotes", 1},
        {"{1:2}", "Expecting property name enclosed in double quotes", 1},
        {"{\"a\":1,}", "Expecting property name enclosed in double quotes", 7},
        {"{\"a\"", "Expecting ':' delimiter", 4},
        {"{\"a\" 1}", "Expecting ':' delimiter", 5},
        {"{\"a\":", "Expecting value", 5},
        {"{\"a\":}", "Expecting value", 5},
        {"{\"a\":1 \"b\"}", "Expecting ',' delimiter", 7},
        {"\"abc", "Unterminated string starting at", 0},
        {"\"\\", "Unterminated string starting at", 0},
        {"\"\\n", "Unterminated string starting at", 0},
        {"{\"a\":1,\"b", "Unterminated string starting at", 7},
        {"\"a\nb\"", "Invalid control character at", 2},
        {"\"\\na\nb\"", "Invalid control character at", 4},
        {"\"\\x\"", "Invalid \\escape", 1},
        {"\"\\u12\"", "Invalid \\uXXXX escape", 2},
        {"\"\\u12G4\"", "Invalid \\uXXXX escape", 2},
        {"\"\\u123", "Invalid \\uXXXX escape", 2},
        {"\"\\u1234", "Invalid \\uXXXX escape", 2},
        {"\"\\ud800\\u12", "Invalid \\uXXXX escape", 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_failure(cases[i].json, strlen(cases[i].json), cases[i].message, cases[i].byte);
    expect_failure("[1\0]", 4, "Expecting ',' delimiter", 2);
    expect_failure("\"a\0\"", 4, "Invalid control character at", 2);
    expect_failure("\"\\\0\"", 4, "Invalid \\escape", 1);
}

TEST(invalid_utf8_is_refused_where_it_stands) {
    static const char *const bad[] = {
        "\x80",     "\xC3",     "\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80",    "\xF4\x90\x80\x80",
        "\xF8\x88", "\xC3\x28", "\xFF",     "\xE2\x82",     "\xF0\x80\x80\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[64];
        int length = snprintf(text, sizeof text, "\"0123456789 \xC3\xA9%s", bad[i]);
        expect_failure(text, (size_t)length, "Invalid UTF-8", 14);
        assert_int_equal(harpe_utf8_span(text, (size_t)length), 14);
    }
    const char *good = "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xEF\xBF\xBD\xF4\x8F\xBF\xBF";
    assert_int_equal(harpe_utf8_span(good, strlen(good)), strlen(good));
}

TEST(a_byte_order_mark_is_ignored) {
    AT_END(harpe_json_free) harpe_json json = read_json("\xEF\xBB\xBF[1]");
    assert_int_equal(json.node_count, 2);
}

TEST(nesting_has_a_limit) {
    enum { DEEP = 10000 };
    static char text[2 * DEEP];
    harpe_json json = {0};
    harpe_json_failure fault;
    for (int depth = 1; depth <= HARPE_JSON_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        if (harpe_json_read(text, 2 * (size_t)depth, &json, &fault)) {
            assert_true(depth <= HARPE_JSON_DEPTH);
            harpe_json_free(&json);
        } else {
            assert_int_equal(depth, HARPE_JSON_DEPTH + 1);
        }
    }
    memset(text, '[', sizeof text);
    expect_failure(text, sizeof text, "Nested deeper than 64 levels", HARPE_JSON_DEPTH);
    for (size_t i = 0; i + 5 <= sizeof text; i += 5)
        memcpy(text + i, "{\"a\":", 5);
    expect_failure(text, sizeof text, "Nested deeper than 64 levels", (size_t)5 * HARPE_JSON_DEPTH);
}
