/* SPDX-License-Identifier: Apache-2.0 */
/* A line reaches the caller's log whole, whatever its length. If there is no memory, it is
 * truncated. */
#include "test.h"

#include "base/log.h"

typedef struct record {
    int lines;
    harpe_log_level level;
    char *text;
} record;

/* The linker makes the library call this function instead of malloc. */
static bool is_memory_out;
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size) { return is_memory_out ? NULL : __real_malloc(size); }

static void write_line(void *user, harpe_log_level level, const char *line) {
    record *all = user;
    bool was_out = is_memory_out;
    is_memory_out = false;
    free(all->text);
    all->text = strdup(line);
    all->level = level;
    all->lines++;
    is_memory_out = was_out;
}

static void prefixed(const harpe_log *log, const char *prefix, const char *format, ...)
    HARPE_PRINTF(3, 4);
static void prefixed(const harpe_log *log, const char *prefix, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    harpe_log_prefixed_line(log, HARPE_LOG_INFO, prefix, format, arguments);
    va_end(arguments);
}

TEST(line_is_formatted) {
    record all = {0};
    harpe_log log = {.write = write_line, .user = &all};
    harpe_log_line(&log, HARPE_LOG_WARNING, "%s: %d of %.1f", "job", 7, 2.5);
    assert_int_equal(all.lines, 1);
    assert_int_equal(all.level, HARPE_LOG_WARNING);
    assert_string_equal(all.text, "job: 7 of 2.5");
    free(all.text);
}

TEST(log_without_a_function_is_silent) {
    harpe_log log = {0};
    harpe_log_line(&log, HARPE_LOG_ERROR, "%s", "nobody reads this");
}

TEST(prefix_is_no_format) {
    record all = {0};
    harpe_log log = {.write = write_line, .user = &all};
    prefixed(&log, "50%s of %n: ", "%d%%", 3);
    assert_string_equal(all.text, "50%s of %n: 3%");
    prefixed(&log, "", "%s", "");
    assert_string_equal(all.text, "");
    free(all.text);
}

/* Lengths near the size of the internal buffer and far above it, divided in every way. */
TEST(line_of_any_length_is_whole) {
    record all = {0};
    harpe_log log = {.write = write_line, .user = &all};
    static char text[70000], expected[sizeof text];
    const size_t lengths[] = {1, 1022, 1023, 1024, 1025, 2047, 2048, 4096, sizeof text - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (size_t j = 0; j < lengths[i]; j++)
            text[j] = (char)('a' + j % 26);
        text[lengths[i]] = '\0';
        for (size_t split = 0; split <= lengths[i]; split += lengths[i] / 3 + 1) {
            (void)snprintf(expected, sizeof expected, "%.*s", (int)split, text);
            prefixed(&log, expected, "%s", text + split);
            assert_string_equal(all.text, text);
        }
        harpe_log_line(&log, HARPE_LOG_DEBUG, "%s", text);
        assert_string_equal(all.text, text);
    }
    free(all.text);
}

/* "é" has two bytes and "😀" four. The line is never cut within a character, whatever its position.
 */
TEST(line_is_cut_at_a_character_where_memory_is_out) {
    const char *const characters[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t kind = 0; kind < sizeof characters / sizeof *characters; kind++) {
        for (int shift = 0; shift < 4; shift++) {
            record all = {0};
            harpe_log log = {.write = write_line, .user = &all};
            char text[4096] = "";
            size_t size = strlen(characters[kind]);
            memset(text, 'x', (size_t)shift);
            for (size_t at = (size_t)shift; at + size < sizeof text; at += size)
                memcpy(text + at, characters[kind], size);
            is_memory_out = true;
            harpe_log_line(&log, HARPE_LOG_ERROR, "%s", text);
            is_memory_out = false;
            size_t length = strlen(all.text);
            assert_in_range(length, 1000, 1023);
            assert_string_equal(all.text + length - 3, "...");
            assert_memory_equal(all.text, text, length - 3);
            assert_int_equal((length - 3 - (size_t)shift) % size, 0);
            free(all.text);
        }
    }
}
