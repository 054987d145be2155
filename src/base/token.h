/* SPDX-License-Identifier: Apache-2.0 */
/* Reads bearer tokens from files and variables. A token there often has white space around it,
 * which HTTP does not transmit. Server and clients both use this code, so they agree on the token.
 */
#ifndef HARPE_BASE_TOKEN_H
#define HARPE_BASE_TOKEN_H

#include <stddef.h>

#include <harpe/status.h>

/* The token on the first line of `text` that is not blank, without the white space (and the
 * byte-order mark) around it. Refuses characters other than visible ASCII. The message begins with
 * `what` ("--token-file FILE") and does not contain the token. `*token` is to be freed with
 * free(). */
harpe_status harpe_token_parse(const char *text, size_t length, const char *what, char **token,
                               harpe_error *error);

/* The same of a file, of at most 64 KiB; `flag` begins the message ("--token-file"). */
harpe_status harpe_token_read(const char *path, const char *flag, char **token, harpe_error *error);

/* The same of a text from a caller or the environment: NULL, and a text that is blank, give NULL.
 */
harpe_status harpe_token_take(const char *text, const char *what, char **token, harpe_error *error);

/* The file with the token of this machine's service. The package makes it, for the group harpe. */
#define HARPE_MACHINE_TOKEN_FILE "/etc/harpe/token"

/* The token in HARPE_MACHINE_TOKEN_FILE for a client that was given none; NULL: it must not be
 * sent to `server_url`, or there is none that this process may read. Every user can listen on a
 * port of a loopback address. So the address must be a loopback address, and root, the account of
 * a service or the user of this process must listen there. Call this before each request; free the
 * result with free(). */
char *harpe_token_of_machine(const char *server_url);
/* Words to append to a message about status 401 if no token was sent: what to do about it. */
const char *harpe_token_hint(void);

#endif
