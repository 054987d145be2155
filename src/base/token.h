/* SPDX-License-Identifier: Apache-2.0 */
/* Reads bearer tokens from files and environment variables. These often have white space around
 * the token, which HTTP does not transmit. The server and the clients use this code, so they agree
 * on the token. */
#ifndef HARPE_BASE_TOKEN_H
#define HARPE_BASE_TOKEN_H

#include <stddef.h>

#include <harpe/status.h>

/* Reads the token from the first line of `text` that is not blank, without the white space (and the
 * byte-order mark) around it. Refuses characters other than visible ASCII. An error message begins
 * with `what` ("--token-file FILE") and does not contain the token. The caller frees `*token`. */
harpe_status harpe_token_parse(const char *text, size_t length, const char *what, char **token,
                               harpe_error *error);

/* Reads the token from a file of at most 64 KiB. An error message begins with `flag`
 * ("--token-file"). */
harpe_status harpe_token_read(const char *path, const char *flag, char **token, harpe_error *error);

/* Reads the token from a text that a caller gives or that is in the environment. `*token` is NULL
 * if the text is NULL or blank. */
harpe_status harpe_token_take(const char *text, const char *what, char **token, harpe_error *error);

/* ---- The machine's token --------------------------------------------------------------------- */

/* Finds the token of this machine's service, and decides to which servers a client may send it. */

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
