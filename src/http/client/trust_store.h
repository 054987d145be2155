/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the certificates of authorities with which all clients check servers if the caller names
 * none. */
#ifndef HARPE_HTTP_CLIENT_TRUST_STORE_H
#define HARPE_HTTP_CLIENT_TRUST_STORE_H

#include <stdbool.h>

/* Returns the file of authorities that the user names in HARPE_CA_FILE or else in SSL_CERT_FILE,
 * and stores the name of this variable. HARPE_CA_FILE is for Harpe's servers. Returns NULL if there
 * is none. The text lasts as long as the environment stays unchanged. */
const char *harpe_named_trust_store(bool is_harpe_server, const char **variable);
/* Returns the file of authorities of another system, to use instead of `own`, the one for which
 * curl was built. Returns NULL if `own` is NULL or can be read, or if there is no other. */
const char *harpe_other_trust_store(const char *own);

#endif
