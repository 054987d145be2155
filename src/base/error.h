/* SPDX-License-Identifier: Apache-2.0 */
/* Filling in a harpe_error: the only way a failure gets its text. */
#ifndef HARPE_BASE_ERROR_H
#define HARPE_BASE_ERROR_H

#include <harpe/status.h>

/* Writes the message (truncated to fit) into `error` unless it is NULL; returns `status`, so that a
 * caller can write `return harpe_fail(error, HARPE_NOT_FOUND, "%s: no such stage", ...)`. */
harpe_status harpe_fail(harpe_error *error, harpe_status status, const char *format, ...)
    HARPE_PRINTF(3, 4);

/* The same for a failed system call: appends strerror(errno_value), chooses the status from it and
 * keeps it as vendor_code. The message reads "<what>: <strerror>". */
harpe_status harpe_fail_errno(harpe_error *error, int errno_value, const char *format, ...)
    HARPE_PRINTF(3, 4);

/* "out of memory"; the one error that every allocating function shares. */
harpe_status harpe_fail_memory(harpe_error *error);

/* The static analyzer sees one file at a time. Without these it follows paths on which a failure is
 * reported as HARPE_OK. */
#ifdef __clang_analyzer__
#define harpe_fail(error, status, ...) ((harpe_fail)((error), (status), __VA_ARGS__), (status))
#define harpe_fail_errno(error, ...) ((harpe_fail_errno)((error), __VA_ARGS__), HARPE_IO_ERROR)
#define harpe_fail_memory(error) ((harpe_fail_memory)(error), HARPE_OUT_OF_MEMORY)
#endif

#endif
