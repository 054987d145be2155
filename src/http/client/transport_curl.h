/* SPDX-License-Identifier: Apache-2.0 */
/* Begins and ends the use of libcurl. */
#ifndef HARPE_HTTP_CLIENT_TRANSPORT_CURL_H
#define HARPE_HTTP_CLIENT_TRANSPORT_CURL_H

/* harpe_connections_begin initialises the libraries, and harpe_connections_end releases them. Both
 * are optional. Call harpe_connections_begin once, before the program has threads. */
void harpe_connections_begin(void);
void harpe_connections_end(void);

#endif
