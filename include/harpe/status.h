/* SPDX-License-Identifier: Apache-2.0 */
/* Error reporting of every Harpe function.
 *
 * A function that can fail returns a harpe_status. Its last argument points to a harpe_error
 * that the caller owns; it may be NULL. On HARPE_OK the error is unchanged. On any other status
 * it contains one readable line that says what failed, where, and what to do, and every output
 * argument of the call is unchanged. The library never prints, exits or aborts. */
#ifndef HARPE_STATUS_H
#define HARPE_STATUS_H

#include <harpe/api.h>

HARPE_BEGIN_DECLS

typedef enum harpe_status {
    HARPE_OK = 0,
    HARPE_INVALID_ARGUMENT = 1,  /* an argument is outside its documented range */
    HARPE_INVALID_INPUT = 2,     /* a file or text is malformed; the message has file:line:column */
    HARPE_NOT_FOUND = 3,         /* a file, stage, instruction, plan ... does not exist */
    HARPE_ALREADY_EXISTS = 4,    /* the call would overwrite an existing object */
    HARPE_PERMISSION_DENIED = 5, /* the operating system or a driver refused */
    HARPE_IO_ERROR = 6,          /* a read or write failed (disk full, broken device) */
    HARPE_OUT_OF_MEMORY = 7,     /* an allocation failed */
    HARPE_LIMIT_EXCEEDED = 8,    /* something exceeds a documented or configured limit */
    HARPE_INTERRUPTED = 9,       /* the progress callback asked to stop */
    HARPE_INFEASIBLE = 10,       /* no plan satisfies the request */
    HARPE_NOT_SUPPORTED = 11,    /* this build, machine or device cannot do it */
    HARPE_INTERNAL = 12,         /* a self-check failed: a bug in Harpe */
    HARPE_GPU_LOST = 13,         /* the GPU fell off the bus or was reset: needs an administrator */
    HARPE_DRIVER_ERROR = 14, /* the driver or its library failed; vendor_code has its own code */
    HARPE_UNAVAILABLE = 15,  /* no driver library, no driver, or no GPU on this machine */
} harpe_status;

#define HARPE_ERROR_MESSAGE_SIZE 1024

/* Details of a failure. The caller owns it. It needs no initialisation and no clean-up. */
typedef struct harpe_error {
    harpe_status status;
    int vendor_code;                        /* errno or a driver's own code; 0 if there is none */
    char message[HARPE_ERROR_MESSAGE_SIZE]; /* one line without a newline at its end */
} harpe_error;

/* Returns a short name of a status, for example "invalid input". Static storage. Any thread may
 * call it. */
HARPE_API const char *harpe_status_name(harpe_status status);

HARPE_END_DECLS

#endif
