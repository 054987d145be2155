/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a holder with a lease of the kind HARPE_LEASE_POWER. The holder sends a request on
 * the socket of the lease, and receives a harpe_error with the result. One thread at a time may use
 * the socket. */
#ifndef HARPE_LEASE_LEASE_POWER_H
#define HARPE_LEASE_LEASE_POWER_H

#include <stdint.h>

#include <harpe/status.h>

typedef enum harpe_lease_power_setting {
    HARPE_LEASE_POWER_LIMIT = 1, /* value in mW */
    HARPE_LEASE_PERSISTENCE = 2, /* value 0 or 1 */
} harpe_lease_power_setting;

typedef struct harpe_lease_power_request {
    uint32_t setting, value;
} harpe_lease_power_request;

/* Makes a request, and waits until the driver has carried it out. Fails with HARPE_UNAVAILABLE if
 * the lease has ended, and with HARPE_PERMISSION_DENIED if its terms forbid the value. */
harpe_status harpe_lease_power_set(int socket, harpe_lease_power_setting setting, uint32_t value,
                                   harpe_error *error);

#endif
