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

#endif
