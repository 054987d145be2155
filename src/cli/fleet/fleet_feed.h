/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a series of prices from a file or from an HTTP server. */
#ifndef HARPE_CLI_FLEET_FLEET_FEED_H
#define HARPE_CLI_FLEET_FLEET_FEED_H

#include <harpe/status.h>

#include "fleet/price_series.h"

/* Reads CSV or JSON. `source` is a URL (http:// or https://), or the name of a file. `ca_file` has
 * the certificate authorities of a URL; NULL: the system's. No token is sent to a URL, and
 * redirects are not followed. Errors begin with the source. They leave out the part of a URL after
 * '?', which may have a key; their vendor_code is the HTTP status, if the status is wrong. Never
 * returns HARPE_PERMISSION_DENIED, which means that the harpe server refuses the token. A signal
 * ends a request that hangs. */
harpe_status harpe_fleet_feed_read(const char *source, const char *ca_file, harpe_price_series *out,
                                   harpe_error *error);

#endif
