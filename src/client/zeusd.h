/* SPDX-License-Identifier: Apache-2.0 */
/* Talks to a running zeusd by HTTP over a Unix socket or TCP. zeusd is a daemon of the Zeus
 * project. It changes GPUs for users who lack the privilege. The frequency controller and the
 * recovery of saved settings use it. */
#ifndef HARPE_CLIENT_ZEUSD_H
#define HARPE_CLIENT_ZEUSD_H

#include <harpe/gpu.h>
#include <harpe/status.h>

#include "gpu/saved_settings.h"

typedef struct harpe_zeusd harpe_zeusd;

/* Where zeusd is, and the token for it. The token is "" if there is none. */
typedef struct harpe_zeusd_address {
    harpe_zeusd_place place;
    char token[4097];
} harpe_zeusd_address;

/* Reads the address from the environment: ZEUSD_SOCK_PATH, or ZEUSD_HOST_PORT if that is not set,
 * and ZEUSD_TOKEN. If `socket` is not NULL, it replaces the first two. All members of `out` are ""
 * if there is no zeusd. Fails with HARPE_INVALID_ARGUMENT if a value is not valid. The message
 * never contains the token. */
harpe_status harpe_zeusd_find(const char *socket, harpe_zeusd_address *out, harpe_error *error);

/* Writes $ZEUSD_TOKEN to out->token, or "" if the variable is not set. The message of a failure
 * does not contain the token. */
harpe_status harpe_zeusd_take_token(harpe_zeusd_address *out, harpe_error *error);

/* Opens a connection for a GPU. Sends nothing yet. zeusd's routes take a number, which is the index
 * that the GPU had when zeusd started. The first call finds this number by the GPU's PCI address
 * (GET /discover). If zeusd shows no PCI addresses, as version 0.5.0, the number is the driver's
 * index in this process. */
harpe_status harpe_zeusd_open(const harpe_zeusd_address *address, const harpe_gpu_info *gpu,
                              harpe_zeusd **out, harpe_error *error);
void harpe_zeusd_close(harpe_zeusd *zeusd); /* NULL is allowed */

/* Sends POST /gpu/<command> and waits until it is done. `format` gives the arguments after the GPU
 * and "block": "&min_clock_mhz=%u", or "". HARPE_UNAVAILABLE: nothing answers at the address.
 * HARPE_NOT_FOUND: zeusd does not have the GPU. One thread at a time. */
harpe_status harpe_zeusd_call(harpe_zeusd *zeusd, harpe_error *error, const char *command,
                              const char *format, ...) HARPE_PRINTF(4, 5);

#endif
