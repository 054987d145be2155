/* SPDX-License-Identifier: Apache-2.0 */
/* Fills in a harpe_error. Every error message is written through these functions. */
#ifndef HARPE_BASE_ERROR_H
#define HARPE_BASE_ERROR_H

#include <harpe/status.h>

/* Writes the message into `error` unless `error` is NULL. A message that does not fit is cut.
 * Returns `status`, so that a caller can write
 * `return harpe_fail(error, HARPE_NOT_FOUND, "%s: no such stage", ...)`. */
harpe_status harpe_fail(harpe_error *error, harpe_status status, const char *format, ...)
    HARPE_PRINTF(3, 4);

/* Does the same for a failed system call. Appends strerror(errno_value) to the message, returns the
 * status that matches `errno_value`, and stores `errno_value` as vendor_code. The message reads
 * "<what>: <strerror>". */
harpe_status harpe_fail_errno(harpe_error *error, int errno_value, const char *format, ...)
    HARPE_PRINTF(3, 4);

/* Fails with "out of memory", the error of every allocating function. */
harpe_status harpe_fail_memory(harpe_error *error);

/* The static analyzer examines one file at a time. Without these definitions the analyzer follows
 * paths on which a failure is reported as HARPE_OK. */
#ifdef __clang_analyzer__
#define harpe_fail(error, status, ...) ((harpe_fail)((error), (status), __VA_ARGS__), (status))
#define harpe_fail_errno(error, ...) ((harpe_fail_errno)((error), __VA_ARGS__), HARPE_IO_ERROR)
#define harpe_fail_memory(error) ((harpe_fail_memory)(error), HARPE_OUT_OF_MEMORY)
#endif

#endif
