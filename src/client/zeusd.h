/* SPDX-License-Identifier: Apache-2.0 */
/* A running zeusd, the daemon of the Zeus project that changes GPUs on behalf of users without the
 * privilege: HTTP over a Unix socket. Used by the frequency controller's process alone. */
#ifndef HARPE_CLIENT_ZEUSD_H
#define HARPE_CLIENT_ZEUSD_H

#include <harpe/status.h>

typedef struct harpe_zeusd harpe_zeusd;

/* `gpu`: the index that the driver counts by. Nothing is sent yet. */
harpe_status harpe_zeusd_open(const char *socket, int gpu, harpe_zeusd **out, harpe_error *error);
void harpe_zeusd_close(harpe_zeusd *zeusd); /* NULL is allowed */

/* POST /gpu/<command>, and waits until it is done. `format` gives the arguments after the GPU and
 * "block": "&min_clock_mhz=%u", or "". HARPE_UNAVAILABLE: nobody answers there. One thread at a
 * time. */
harpe_status harpe_zeusd_call(harpe_zeusd *zeusd, harpe_error *error, const char *command,
                              const char *format, ...) HARPE_PRINTF(4, 5);

#endif
