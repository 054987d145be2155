/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a series of prices from a file or from an HTTP server. */
#ifndef HARPE_CLI_FLEET_FLEET_FEED_H
#define HARPE_CLI_FLEET_FLEET_FEED_H

#include <harpe/status.h>

#include "fleet/price_series.h"

/* Reads CSV or JSON. `source` is a URL (http:// or https://), or the name of a file. `ca_file` has
 * the certificate authorities for a URL; if it is NULL, those of the system count. The function
 * sends no token to a URL and follows no redirect. Error messages begin with the source, without
 * the part of a URL after '?', because this part may contain a key. If the server answers with
 * another HTTP status than 200, the error's vendor_code is this status. Returns HARPE_UNAVAILABLE
 * in place of HARPE_PERMISSION_DENIED, which callers take for the answer of a harpe server that
 * refuses the token. A signal ends a request that hangs. */
harpe_status harpe_fleet_feed_read(const char *source, const char *ca_file, harpe_price_series *out,
                                   harpe_error *error);

#endif
