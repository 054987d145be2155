/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a failure into the caller's harpe_error: one printable line that fits, and the status
 * that matches an errno. It never allocates, so it also works when out of memory. It logs
 * nothing. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <harpe/status.h>

#include "base/text.h"

static bool is_utf8_continuation(char byte) { return ((unsigned char)byte & 0xC0U) == 0x80U; }

/* Ends a message that did not fit with "...", without cutting a UTF-8 character in two. */
static void mark_truncated(char message[HARPE_ERROR_MESSAGE_SIZE]) {
    size_t end = HARPE_ERROR_MESSAGE_SIZE - sizeof "...";
    while (end > 0 && is_utf8_continuation(message[end]))
        end--;
    memcpy(message + end, "...", sizeof "...");
}

/* The text is made in a separate buffer because an argument may be error->message itself. */
static void set_error(harpe_error *error, harpe_status status, int vendor_code, const char *suffix,
                      const char *format, va_list arguments) __attribute__((format(printf, 5, 0)));

static void set_error(harpe_error *error, harpe_status status, int vendor_code, const char *suffix,
                      const char *format, va_list arguments) {
    char message[HARPE_ERROR_MESSAGE_SIZE];
    int length = vsnprintf(message, sizeof message, format, arguments);
    if (length < 0) length = snprintf(message, sizeof message, "%s", harpe_status_name(status));
    if (suffix && (size_t)length < sizeof message) {
        size_t room = sizeof message - (size_t)length;
        length += snprintf(message + length, room, ": %s", suffix);
    }
    if ((size_t)length >= sizeof message) mark_truncated(message);
    /* Names and values from outside may contain line breaks or escape sequences. A message is
     * one line that is safe to print on a terminal. */
    harpe_clean_in_place(message);
    error->status = status;
    error->vendor_code = vendor_code;
    memcpy(error->message, message, sizeof message);
}

harpe_status(harpe_fail)(harpe_error *error, harpe_status status, const char *format, ...) {
    if (!error) return status;
    va_list arguments;
    va_start(arguments, format);
    set_error(error, status, 0, NULL, format, arguments);
    va_end(arguments);
    return status;
}

static harpe_status status_of_errno(int errno_value) {
    switch (errno_value) {
    case ENOENT:
    case ENOTDIR: return HARPE_NOT_FOUND;
    case EEXIST:
    case ENOTEMPTY: return HARPE_ALREADY_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS: return HARPE_PERMISSION_DENIED;
    case ENOMEM: return HARPE_OUT_OF_MEMORY;
    case EINVAL:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG: return HARPE_INVALID_ARGUMENT;
    case ENOSYS:
    case EOPNOTSUPP: return HARPE_NOT_SUPPORTED;
    default: return HARPE_IO_ERROR;
    }
}

harpe_status(harpe_fail_errno)(harpe_error *error, int errno_value, const char *format, ...) {
    harpe_status status = status_of_errno(errno_value);
    if (!error) return status;
    /* Unlike strerror(), this function returns the same text in every locale and is safe on any
     * thread. */
    const char *description = strerrordesc_np(errno_value);
    va_list arguments;
    va_start(arguments, format);
    set_error(error, status, errno_value, description ? description : "unknown error", format,
              arguments);
    va_end(arguments);
    return status;
}

harpe_status(harpe_fail_memory)(harpe_error *error) {
    return harpe_fail(error, HARPE_OUT_OF_MEMORY, "out of memory");
}

/* ---- Names of statuses ----------------------------------------------------------------------- */

const char *harpe_status_name(harpe_status status) {
    switch (status) {
    case HARPE_OK: return "ok";
    case HARPE_INVALID_ARGUMENT: return "invalid argument";
    case HARPE_INVALID_INPUT: return "invalid input";
    case HARPE_NOT_FOUND: return "not found";
    case HARPE_ALREADY_EXISTS: return "already exists";
    case HARPE_PERMISSION_DENIED: return "permission denied";
    case HARPE_IO_ERROR: return "input/output error";
    case HARPE_OUT_OF_MEMORY: return "out of memory";
    case HARPE_LIMIT_EXCEEDED: return "limit exceeded";
    case HARPE_INTERRUPTED: return "interrupted";
    case HARPE_INFEASIBLE: return "infeasible";
    case HARPE_NOT_SUPPORTED: return "not supported";
    case HARPE_INTERNAL: return "internal error";
    case HARPE_GPU_LOST: return "GPU lost";
    case HARPE_DRIVER_ERROR: return "driver error";
    case HARPE_UNAVAILABLE: return "unavailable";
    }
    return "unknown status";
}
