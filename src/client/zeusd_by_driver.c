/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the place of zeusd.c in the program of the node agent. The agent has the privilege itself,
 * so its processes use the driver where others use a zeusd, and contain no HTTP client. */
#include "client/control.h"

#include <stddef.h>

#include "base/error.h"

harpe_status harpe_zeusd_find(const char *socket, harpe_zeusd_address *out, harpe_error *error) {
    (void)socket;
    (void)error;
    *out = (harpe_zeusd_address){.token = ""};
    return HARPE_OK;
}

harpe_status harpe_zeusd_take_token(harpe_zeusd_address *out, harpe_error *error) {
    (void)error;
    out->token[0] = '\0';
    return HARPE_OK;
}

/* NULL stands for the driver (harpe_controller_gpu). */
harpe_status harpe_zeusd_open(const harpe_zeusd_address *address, const harpe_gpu_info *gpu,
                              harpe_zeusd **out, harpe_error *error) {
    (void)address;
    (void)gpu;
    (void)error;
    *out = NULL;
    return HARPE_OK;
}

void harpe_zeusd_close(harpe_zeusd *zeusd) { (void)zeusd; }

harpe_status harpe_zeusd_call(harpe_zeusd *zeusd, harpe_error *error, const char *command,
                              const char *format, ...) {
    (void)zeusd;
    (void)format;
    return harpe_fail(error, HARPE_NOT_SUPPORTED, "%s: the node agent calls no zeusd", command);
}
