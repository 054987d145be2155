/* SPDX-License-Identifier: Apache-2.0 */
/* CSV: the fields of valid and invalid texts, and the positions in errors. Every text is copied
 * into memory of exactly its size, so that AddressSanitizer reports a read past its end. */
#include "test.h"

#include "base/csv.h"

/* Reads a whole text and prints its fields in brackets, with '/' after each record, or its error.
 */
static const char *read_all(const char *bytes, size_t length, bool by_line) {
    static char result[2048];
    char *text = malloc(length > 0 ? length : 1);
    assert_non_null(text);
    memcpy(text, bytes, length);
    harpe_csv csv;
    harpe_error error;
    bool has_record = true;
    size_t used = 0;
    result[0] = '\0';
    harpe_csv_open(&csv, text, length, "t.csv");
    for (;;) {
        harpe_status status = by_line ? harpe_csv_next_line(&csv, &has_record, &error)
                                      : harpe_csv_next(&csv, &has_record, &error);
        if (status != HARPE_OK) {
            assert_int_equal(status, HARPE_INVALID_INPUT);
            snprintf(result, sizeof result, "%s", error.message);
            break;
        }
        if (!has_record) break;
        for (size_t i = 0; i < csv.field_count; i++) {
            used += (size_t)snprintf(result + used, sizeof result - used, "[%.*s]",
                                     (int)csv.fields[i].length, csv.fields[i].text);
        }
        used += (size_t)snprintf(result + used, sizeof result - used, "/");
    }
    harpe_csv_close(&csv);
    free(text);
    return result;
}

static const char *read_text(const char *text) { return read_all(text, strlen(text), false); }

TEST(clean_texts_are_split) {
    assert_string_equal(read_text("a,b\n1,2\n"), "[a][b]/[1][2]/");
    assert_string_equal(read_text("a,b\n1,2"), "[a][b]/[1][2]/");
    assert_string_equal(read_text("a,b\r\n1,2\r\n"), "[a][b]/[1][2]/");
    assert_string_equal(read_text("\xEF\xBB\xBF"
                                  "a\n1"),
                        "[a]/[1]/");
    assert_string_equal(read_text(" a ,\tb\t\n"), "[a][b]/");
    assert_string_equal(read_text("a b, c d\n"), "[a b][c d]/");
    assert_string_equal(read_text("a,,b,\n"), "[a][][b][]/");
    assert_string_equal(read_text(","), "[][]/");
    assert_string_equal(read_text("a,b\n1\n"), "[a][b]/[1]/");
}

TEST(text_without_records_has_none) {
    assert_string_equal(read_text(""), "");
    assert_string_equal(read_text("\n"), "");
    assert_string_equal(read_text("\n \r\n\t\n"), "");
    assert_string_equal(read_text("\xEF\xBB\xBF"), "");
}

TEST(blank_lines_are_passed_over_or_kept) {
    const char *text = "\na\n\n  \nb\n\n";
    assert_string_equal(read_text(text), "[a]/[b]/");
    assert_string_equal(read_all(text, strlen(text), true), "[]/[a]/[]/[]/[b]/[]/");
}

TEST(quotes_protect_what_is_inside) {
    assert_string_equal(read_text("\"a,b\",c\n"), "[a,b][c]/");
    assert_string_equal(read_text("\"a\"\"b\",\"\"\"\"\n"), "[a\"b][\"]/");
    assert_string_equal(read_text("\"x\ny\",z\nw"), "[x\ny][z]/[w]/");
    assert_string_equal(read_text(" \" a \" ,b\n"), "[ a ][b]/");
    assert_string_equal(read_text("\"\"\n"), "[]/");
    assert_string_equal(read_text("\"\""), "[]/");
    assert_string_equal(read_text("\"a\"\"\",\"b\"\"\"\n\"c\"\"\"\n"), "[a\"][b\"]/[c\"]/");
}

TEST(unclean_texts_are_refused_where_they_are_unclean) {
    assert_string_equal(read_text("a\n1,\"b\n\n"), "t.csv:2:3: this quote is never closed");
    assert_string_equal(read_text("\""), "t.csv:1:1: this quote is never closed");
    assert_string_equal(read_text("\"a\"\""), "t.csv:1:1: this quote is never closed");
    assert_string_equal(read_text("\"a\" b,c\n"),
                        "t.csv:1:5: text after a closing quote; expected a comma");
    assert_string_equal(read_text("a\"b\n"), "t.csv:1:2: a quote inside an unquoted field");
    assert_string_equal(read_text("a\rb\n"), "t.csv:1:2: a carriage return without a line feed");
    assert_string_equal(read_text("a\r"), "t.csv:1:2: a carriage return without a line feed");
    assert_string_equal(read_all("a,\0b", 4, false),
                        "t.csv:1:3: a zero byte; this is not a text file");
    assert_string_equal(read_all("\"\0\"", 3, false),
                        "t.csv:1:2: a zero byte; this is not a text file");
    assert_string_equal(read_all("\xFF\xFE"
                                 "a\0",
                                 4, false),
                        "t.csv:1:4: a zero byte; this is not a text file");
}

TEST(positions_survive_quoted_line_breaks) {
    const char *text = "h\n\"a\nb\", 7 \n8";
    AT_END(harpe_csv_close) harpe_csv csv;
    bool has_record;
    harpe_csv_open(&csv, text, strlen(text), "t.csv");
    assert_works(harpe_csv_next(&csv, &has_record, &failure));
    assert_int_equal(csv.line, 1);
    assert_works(harpe_csv_next(&csv, &has_record, &failure));
    assert_int_equal(csv.line, 2);
    assert_int_equal(csv.fields[0].line, 2);
    assert_int_equal(csv.fields[0].column, 1);
    assert_int_equal(csv.fields[1].line, 3);
    assert_int_equal(csv.fields[1].column, 5);
    assert_works(harpe_csv_next(&csv, &has_record, &failure));
    assert_int_equal(csv.line, 4);
    assert_works(harpe_csv_next(&csv, &has_record, &failure));
    assert_false(has_record);
    harpe_csv_close(&csv);
}

static void open_row(harpe_csv *csv, const char *text) {
    bool has_record;
    harpe_csv_open(csv, text, strlen(text), "p.csv");
    assert_works(harpe_csv_next(csv, &has_record, &failure));
    assert_true(has_record);
}

TEST(numbers_are_read_from_fields) {
    AT_END(harpe_csv_close) harpe_csv csv;
    double number = 0;
    int64_t whole = 0;
    open_row(&csv, "\n 0.25 ,1410.0,-3");
    assert_works(harpe_csv_double(&csv, 0, "time", &number, &failure));
    assert_true(number == 0.25);
    assert_works(harpe_csv_int(&csv, 1, "frequency", &whole, &failure));
    assert_int_equal(whole, 1410);
    assert_works(harpe_csv_int(&csv, 2, "stage", &whole, &failure));
    assert_int_equal(whole, -3);
}

TEST(bad_numbers_name_place_column_and_value) {
    AT_END(harpe_csv_close) harpe_csv csv;
    double number = 42;
    int64_t whole = 42;
    open_row(&csv, "\n1, abc ,,nan,1.5");
    assert_int_equal(harpe_csv_double(&csv, 1, "time", &number, &failure), HARPE_INVALID_INPUT);
    assert_string_equal(failure.message, "p.csv:2:4: time: expected a number, found 'abc'");
    assert_int_equal(harpe_csv_double(&csv, 2, "time", &number, &failure), HARPE_INVALID_INPUT);
    assert_string_equal(failure.message, "p.csv:2:9: time: expected a number, found nothing");
    assert_int_equal(harpe_csv_double(&csv, 3, "time", &number, &failure), HARPE_INVALID_INPUT);
    assert_string_equal(failure.message, "p.csv:2:10: time: expected a number, found 'nan'");
    assert_int_equal(harpe_csv_int(&csv, 4, "stage", &whole, &failure), HARPE_INVALID_INPUT);
    assert_string_equal(failure.message, "p.csv:2:14: stage: expected a whole number, found '1.5'");
    assert_int_equal(harpe_csv_int(&csv, 5, "stage", &whole, &failure), HARPE_INVALID_INPUT);
    assert_string_equal(failure.message,
                        "p.csv:2: stage: expected a whole number, the row ends after 5 fields");
    assert_true(number == 42);
    assert_int_equal(whole, 42);
}

TEST(own_errors_show_the_field_cut_short) {
    AT_END(harpe_csv_close) harpe_csv csv;
    open_row(&csv, "ok,aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeee");
    assert_int_equal(harpe_csv_fail(&csv, 0, &failure, "time must be %s", "positive"),
                     HARPE_INVALID_INPUT);
    assert_string_equal(failure.message, "p.csv:1:1: time must be positive (found 'ok')");
    assert_int_equal(harpe_csv_fail(&csv, 1, &failure, "no"), HARPE_INVALID_INPUT);
    assert_string_equal(failure.message,
                        "p.csv:1:4: no (found 'aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd...')");
    assert_int_equal(harpe_csv_fail(&csv, 9, NULL, "no"), HARPE_INVALID_INPUT);
}

TEST(a_row_of_a_million_fields_is_the_limit) {
    const size_t limit = 1 << 20;
    owned_array char *text = malloc(limit);
    assert_non_null(text);
    memset(text, ',', limit);
    harpe_csv csv;
    bool has_record = false;
    harpe_csv_open(&csv, text, limit - 1, "wide.csv");
    assert_works(harpe_csv_next(&csv, &has_record, &failure));
    assert_int_equal(csv.field_count, limit);
    harpe_csv_close(&csv);
    harpe_csv_open(&csv, text, limit, "wide.csv");
    assert_int_equal(harpe_csv_next(&csv, &has_record, &failure), HARPE_LIMIT_EXCEEDED);
    assert_string_equal(failure.message, "wide.csv:1:1048577: more than 1048576 fields in one row");
    harpe_csv_close(&csv);
}

/* For all bytes: no crash, no endless loop, and all fields are inside the text. */
TEST(random_texts_are_survived) {
    const char alphabet[] = {'"', ',', '\n', '\r', ' ', 'a', '"', '\0'};
    uint32_t random = 2463534242U;
    for (int round = 0; round < 20000; round++) {
        char text[24];
        size_t length = random % sizeof text;
        for (size_t i = 0; i < length; i++) {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            text[i] = alphabet[random % sizeof alphabet];
        }
        random = random * 1664525U + 1013904223U;
        (void)read_all(text, length, round % 2 == 0);
    }
}
