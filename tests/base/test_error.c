/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: their text, its truncation and cleaning, and the status for each errno. Also tests the
 * names of statuses and the version. */
#include "test.h"

#include <errno.h>

#include <harpe/version.h>

#include "base/error.h"

TEST(fail_returns_the_status_and_fills_the_error) {
    harpe_error error;
    memset(&error, 0xAA, sizeof error);
    assert_int_equal(harpe_fail(&error, HARPE_NOT_FOUND, "stage %d", 7), HARPE_NOT_FOUND);
    assert_int_equal(error.status, HARPE_NOT_FOUND);
    assert_int_equal(error.vendor_code, 0);
    assert_string_equal(error.message, "stage 7");
}

TEST(null_error_is_tolerated) {
    assert_int_equal(harpe_fail(NULL, HARPE_IO_ERROR, "x"), HARPE_IO_ERROR);
    assert_int_equal(harpe_fail_errno(NULL, EACCES, "x"), HARPE_PERMISSION_DENIED);
    assert_int_equal(harpe_fail_memory(NULL), HARPE_OUT_OF_MEMORY);
}

TEST(long_message_is_cut_with_dots) {
    char text[3 * HARPE_ERROR_MESSAGE_SIZE];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    harpe_fail(&failure, HARPE_INTERNAL, "%s", text);
    assert_int_equal(strlen(failure.message), HARPE_ERROR_MESSAGE_SIZE - 1);
    assert_string_equal(failure.message + HARPE_ERROR_MESSAGE_SIZE - 4, "...");
}

TEST(message_that_just_fits_is_not_cut) {
    char text[HARPE_ERROR_MESSAGE_SIZE];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    harpe_fail(&failure, HARPE_INTERNAL, "%s", text);
    assert_string_equal(failure.message, text);
}

TEST(cut_does_not_split_a_character) {
    for (size_t shift = 0; shift < 4; shift++) {
        char text[2 * HARPE_ERROR_MESSAGE_SIZE] = "";
        memset(text, 'x', shift);
        while (strlen(text) + 4 < sizeof text)
            strcat(text, "\xF0\x9F\x94\xAA"); /* one character of four bytes */
        harpe_fail(&failure, HARPE_INTERNAL, "%s", text);
        size_t length = strlen(failure.message);
        assert_string_equal(failure.message + length - 3, "...");
        assert_int_equal((length - 3 - shift) % 4, 0);
    }
}

TEST(message_is_one_printable_line) {
    harpe_fail(&failure, HARPE_INVALID_INPUT, "found '%s'", "a\nb\r\x1B[31m\x7F\xC3\xA4");
    assert_string_equal(failure.message, "found 'a?b??[31m?\xC3\xA4'");
}

TEST(message_can_wrap_the_one_it_replaces) {
    harpe_fail(&failure, HARPE_NOT_FOUND, "inner");
    harpe_fail(&failure, failure.status, "outer: %s", failure.message);
    assert_string_equal(failure.message, "outer: inner");
}

TEST(errno_gives_text_status_and_code) {
    harpe_error error;
    assert_int_equal(harpe_fail_errno(&error, ENOSPC, "cannot write %s", "out/plan.py"),
                     HARPE_IO_ERROR);
    assert_string_equal(error.message, "cannot write out/plan.py: No space left on device");
    assert_int_equal(error.vendor_code, ENOSPC);
    assert_int_equal(harpe_fail_errno(&error, ENOENT, "x"), HARPE_NOT_FOUND);
    assert_int_equal(harpe_fail_errno(&error, EEXIST, "x"), HARPE_ALREADY_EXISTS);
    assert_int_equal(harpe_fail_errno(&error, EROFS, "x"), HARPE_PERMISSION_DENIED);
    assert_int_equal(harpe_fail_errno(&error, ENOMEM, "x"), HARPE_OUT_OF_MEMORY);
    assert_int_equal(harpe_fail_errno(&error, EISDIR, "x"), HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_fail_errno(&error, ENOSYS, "x"), HARPE_NOT_SUPPORTED);
    assert_int_equal(harpe_fail_errno(&error, 99999, "x"), HARPE_IO_ERROR);
    assert_string_equal(error.message, "x: unknown error");
}

TEST(every_status_has_a_name_of_its_own) {
    for (int a = HARPE_OK; a <= HARPE_UNAVAILABLE; a++) {
        assert_string_not_equal(harpe_status_name((harpe_status)a), "unknown status");
        for (int b = HARPE_OK; b < a; b++) {
            assert_string_not_equal(harpe_status_name((harpe_status)a),
                                    harpe_status_name((harpe_status)b));
        }
    }
    assert_string_equal(harpe_status_name((harpe_status)(HARPE_UNAVAILABLE + 1)), "unknown status");
}

TEST(version_string_and_numbers_agree) {
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", HARPE_VERSION_MAJOR, HARPE_VERSION_MINOR,
             HARPE_VERSION_PATCH);
    assert_string_equal(text, HARPE_VERSION_STRING);
    assert_string_equal(harpe_version(), HARPE_VERSION_STRING);
    assert_string_equal(HARPE_PROJECT_VERSION, HARPE_VERSION_STRING);
}
