/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the token of this machine's service, and decides to which servers a client may send it. */
#ifndef HARPE_BASE_MACHINE_TOKEN_H
#define HARPE_BASE_MACHINE_TOKEN_H

/* The file with the token of this machine's service. The package creates it, and the group harpe
 * may read it. */
#define HARPE_MACHINE_TOKEN_FILE "/etc/harpe/token"

/* Returns the token in HARPE_MACHINE_TOKEN_FILE, for a client that was given no token. Returns NULL
 * if this process cannot read that file, or if the token must not be sent to `server_url`. Every
 * user can listen on a port of a loopback address. So the token is sent only to a loopback address
 * on which root, the account of a service or the user of this process listens. Call this before
 * each request, and free the result with free(). */
char *harpe_token_of_machine(const char *server_url);
/* Returns advice to append to a message about status 401 if no token was sent. */
const char *harpe_token_hint(void);

#endif
