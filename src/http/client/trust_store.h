/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the certificates of authorities with which servers are checked if the caller names none. */
#ifndef HARPE_HTTP_CLIENT_TRUST_STORE_H
#define HARPE_HTTP_CLIENT_TRUST_STORE_H

/* Returns the file of authorities to use instead of `own`, the one for which curl was built: the
 * file that SSL_CERT_FILE names, or that of another system. Returns NULL if `own` is NULL or can be
 * read, or if there is no other. The text lasts as long as the environment stays unchanged. */
const char *harpe_other_trust_store(const char *own);

#endif
